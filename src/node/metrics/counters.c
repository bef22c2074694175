/* Makes metrics of the table of counters. The name of a metric follows from that of its counter by a rule;
 * counters of things that were discarded are one metric with a label. */
#include "counters.h"

#include <string.h>

#include "base/util.h"

struct counter {
        const char *name, *help;
};

#define X(name_, help_) {#name_, help_},
static const struct counter counters[] = {STATS_COUNTERS(X)};
#undef X

/* Several counters as one metric, told apart by a label. */
struct group {
        const char *name, *label, *help;
        const char *discarded; /* its name in the status; NULL: it is not there */
        enum node_role role;   /* 0: any */
};

enum {
        PACKETS,
        FRAGMENTS,
        FRAMES,
        SLICE_FRAMES,
        TRIGGERS,
        DATAGRAMS,
        REGIONS,
        DECISIONS,
        DECISIONS_DISCARDED,
        NO_GROUP,
};

static const struct group groups[] = {
        [PACKETS] = {"evb_packets_discarded", "reason", "datagrams received and discarded", "packets", 0},
        [FRAGMENTS] = {"evb_fragments_discarded", "reason", "fragments received and discarded", "fragments",
                       ROLE_SFI},
        [FRAMES] = {"evb_front_end_frames_discarded", "reason", "frames of a front-end that fit no event",
                    "front_end_frames", ROLE_ROS},
        [SLICE_FRAMES] = {"evb_slice_frames_discarded", "reason", "frames with a time that no slice got",
                          "slice_frames", ROLE_ROS},
        [TRIGGERS] = {"evb_triggers_discarded", "reason", "triggers offered that became no event", "triggers",
                      ROLE_DFM},
        [DATAGRAMS] = {"evb_trigger_datagrams_discarded", "reason",
                       "datagrams with triggers received and discarded", "trigger_datagrams", ROLE_DFM},
        [REGIONS] = {"evb_regions_failed", "reason",
                     "fragments that level-2 clients requested and did not get", "regions", ROLE_ROS},
        [DECISIONS] = {"evb_level2_decisions", "decision", "events by decision of level 2 (timed_out: none)",
                       NULL, 0},
        [DECISIONS_DISCARDED] = {"evb_level2_decisions_discarded", "reason",
                                 "decisions of level 2 without an effect", "level2_decisions", ROLE_DFM},
};

static const struct {
        const char *counter;
        unsigned group; /* NO_GROUP: `value` is the name of the metric */
        const char *value;
} exceptions[] = {
        {"bytes_sent", NO_GROUP, "sent_bytes"},
        {"packets_foreign", PACKETS, "foreign"},
        {"packets_malformed", PACKETS, "malformed"},
        {"control_untagged", PACKETS, "untagged"},
        {"control_wrong_key", PACKETS, "wrong_key"},
        {"control_replayed", PACKETS, "replayed"},
        {"control_unproven", PACKETS, "unproven"},
        {"control_no_key", PACKETS, "no_key"},
        {"packets_socket_dropped", PACKETS, "socket_full"},
        {"fragments_late", FRAGMENTS, "late"},
        {"fragments_duplicate", FRAGMENTS, "duplicate"},
        {"fragments_mismatched", FRAGMENTS, "mismatched"},
        {"fragments_no_room", FRAGMENTS, "no_room"},
        {"front_end_late", FRAMES, "late"},
        {"front_end_duplicate", FRAMES, "duplicate"},
        {"front_end_impossible", FRAMES, "impossible"},
        {"front_end_dropped", FRAMES, "no_room"},
        {"front_end_left_over", FRAMES, "left_over"},
        {"slice_frames_late", SLICE_FRAMES, "late"},
        {"slice_frames_dropped", SLICE_FRAMES, "dropped"},
        {"slice_frames_left_over", SLICE_FRAMES, "left_over"},
        {"triggers_refused", TRIGGERS, "queue_full"},
        {"triggers_repeated", TRIGGERS, "repeated"},
        {"triggers_implausible", TRIGGERS, "implausible"},
        {"triggers_not_taken", TRIGGERS, "not_taken"},
        {"trigger_datagrams_repeated", DATAGRAMS, "repeated"},
        {"trigger_datagrams_late", DATAGRAMS, "late"},
        {"trigger_datagrams_other_run", DATAGRAMS, "other_run"},
        {"trigger_datagrams_dropped", DATAGRAMS, "socket_full"},
        {"regions_gone", REGIONS, "decided"},
        {"regions_absent", REGIONS, "absent"},
        {"regions_refused", REGIONS, "refused"},
        {"regions_dropped", REGIONS, "client_left"},
        {"level2_accepted", DECISIONS, "accepted"},
        {"level2_rejected", DECISIONS, "rejected"},
        {"level2_timed_out", DECISIONS, "timed_out"},
        {"level2_late", DECISIONS_DISCARDED, "late"},
        {"level2_repeated", DECISIONS_DISCARDED, "repeated"},
        {"level2_unknown", DECISIONS_DISCARDED, "unknown"},
};

/* How a counter is called; `value` is that of its group's label, or else the name without a prefix. */
static unsigned find_group(const char *counter, const char **ret_value)
{
        for (size_t i = 0; i < ARRAY_SIZE(exceptions); i++) {
                if (strcmp(exceptions[i].counter, counter) == 0) {
                        *ret_value = exceptions[i].value;
                        return exceptions[i].group;
                }
        }
        *ret_value = counter;
        return NO_GROUP;
}

static bool ends_with(const char *text, const char *end)
{
        size_t n = strlen(text), k = strlen(end);

        return n > k && strcmp(text + n - k, end) == 0;
}

/* busy_ns becomes evb_busy_seconds, payload_bytes evb_payload_bytes, events_lost evb_events_lost. */
static void write_single(struct metrics_writer *w, const struct counter *c, const char *name, uint64_t value)
{
        bool is_time = ends_with(name, "_ns");
        char text[96];

        snprintf(text, sizeof text, "evb_%.*s%s", (int)(strlen(name) - (is_time ? strlen("_ns") : 0)), name,
                 is_time ? "_seconds" : "");
        metrics_family(w, METRICS_COUNTER, text,
                       is_time                     ? "seconds"
                       : ends_with(name, "_bytes") ? "bytes"
                                                   : NULL,
                       c->help);
        if (is_time)
                metrics_time(w, NULL, value);
        else
                metrics_count(w, NULL, value);
}

static void write_group(struct metrics_writer *w, unsigned group, const uint64_t *values)
{
        const struct group *g = &groups[group];

        metrics_family(w, METRICS_COUNTER, g->name, NULL, g->help);
        for (size_t i = 0; i < ARRAY_SIZE(counters); i++) {
                struct metrics_label label = {.name = g->label};

                if (find_group(counters[i].name, &label.value) == group)
                        metrics_count(w, &label, values[i]);
        }
}

void metrics_write_counters(struct metrics_writer *w, const uint64_t values[static METRICS_COUNTERS])
{
        bool written[NO_GROUP] = {};
        const char *name;

        for (size_t i = 0; i < ARRAY_SIZE(counters); i++) {
                unsigned group = find_group(counters[i].name, &name);

                if (group == NO_GROUP)
                        write_single(w, &counters[i], name, values[i]);
                else if (!written[group]) {
                        write_group(w, group, values);
                        written[group] = true;
                }
        }
}

static json_t *make_reasons(unsigned group, const uint64_t *values)
{
        json_t *o = json_object();
        const char *reason;

        for (size_t i = 0; i < ARRAY_SIZE(counters); i++) {
                if (find_group(counters[i].name, &reason) == group)
                        json_object_set_new(o, reason, json_integer((json_int_t)values[i]));
        }
        return o;
}

json_t *metrics_make_discarded(const uint64_t values[static METRICS_COUNTERS], enum node_role role)
{
        json_t *o = json_object();

        for (unsigned i = 0; i < NO_GROUP; i++) {
                const struct group *g = &groups[i];

                if (g->discarded)
                        json_object_set_new(o, g->discarded,
                                            g->role && g->role != role ? json_null()
                                                                       : make_reasons(i, values));
        }
        return o;
}
