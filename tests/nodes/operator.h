/* What an operator of the nodes sees by `evb ctl`. */
#pragma once

#include "bed.h"

/* The nodes stay for several runs, which an operator begins. */
#define OPERATED                                                                                             \
        CONTROL, "run.start=manual", "trigger.rate=1kHz", "trigger.events=0", "test.keep-alive=50ms",        \
                "dfm.node-timeout=3s", "dfm.start-timeout=1h", "ros.count=2", "sfi.count=2",                 \
                "sfi.timeout=20s", "network.control-group=none"

/* The state of the DFM; valid until the next call. */
static inline json_t *show(void)
{
        static json_t *last;

        json_decref(last);
        assert_int_equal(bed_ctl("status", NULL), 0);
        return last = bed_report("ctl");
}

static inline const char *text_of(json_t *o, const char *name)
{
        return json_string_value(json_object_get(o, name)) ?: "";
}

static inline bool is_state(const char *name)
{
        return strcmp(text_of(show(), "state"), name) == 0;
}

static inline long long run_of(json_t *o)
{
        return json_integer_value(json_object_get(o, "run"));
}

static inline json_t *last_run(void)
{
        return json_object_get(show(), "last_run");
}

/* As bed_until(), but with fewer looks at the state. */
#define operator_until(condition)                                                                            \
        do {                                                                                                 \
                for (uint64_t _from_ns = turns_now_ns(); !(condition); bed_pass(100 * NS_PER_MS))            \
                        bed_check_limit(_from_ns, #condition);                                               \
        } while (0)

static inline bool has_reason(json_t *last, const char *text)
{
        json_t *reason;
        bool has = false;
        size_t i;

        json_array_foreach(json_object_get(last, "reasons"), i, reason) has |=
                strstr(json_string_value(reason), text) != NULL;
        return has;
}
