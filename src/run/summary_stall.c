/* Reports times without progress: those of the run are the DFM's. */
#include "summary_stall.h"

#include "base/util.h"

void summary_stall_of_killed(json_t *node, const struct child *c)
{
        struct obstacle last;

        (void)obstacle_read(&c->stats->last_stall, &last);
        json_object_set_new(node, "stalled_seconds",
                            json_real((double)stats_get(&c->stats->stalled_ns) / NS_PER_S));
        json_object_set_new(node, "stall_reason", last.text[0] ? json_string(last.text) : json_null());
        json_object_set_new(node, "ended_by_stall", json_false());
}

/* A DFM of an earlier version reports none of it. */
void summary_stall_add(json_t *report, const json_t *dfm)
{
        static const char *const names[] = {"stalls", "stalled_seconds", "stall_reason"};

        for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
                json_t *value = json_object_get(dfm, names[i]);

                json_object_set_new(report, names[i], value ? json_incref(value) : json_null());
        }
}

void summary_stall_print(const json_t *report)
{
        json_int_t stalls = json_integer_value(json_object_get(report, "stalls"));
        const char *why = json_string_value(json_object_get(report, "stall_reason"));

        if (stalls > 0)
                printf("  stalled    %" JSON_INTEGER_FORMAT " time%s, %.1f s without progress; %s%s\n",
                       stalls, stalls == 1 ? "" : "s",
                       json_real_value(json_object_get(report, "stalled_seconds")),
                       stalls == 1 ? "" : "last: ", why ? why : "unknown reason");
}
