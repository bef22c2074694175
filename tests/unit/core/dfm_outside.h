/* A DFM that takes triggers from outside; the test is the trigger box. */
#pragma once

#include "dfm_driver.h"

static inline struct dfm_config outside_standard(uint32_t queue)
{
        struct dfm_config c = dfm_standard();

        c.trigger_source = DFM_TRIGGER_OFFERED;
        c.trigger_queue = queue;
        c.busy_above_permille = 800;
        c.busy_below_permille = 500;
        c.clear_group = 1;
        return c;
}

static inline enum dfm_offer outside_offers(struct dfm_driver *t, uint64_t number, uint32_t flags)
{
        struct trigger_entry e = {.number = number, .flags = flags};

        return dfm_offer(t->dfm, t->now_ns, &e);
}

/* All ROSs report that they know of this reset. */
static inline void ross_know(struct dfm_driver *t, uint32_t resets)
{
        t->resets = resets;
        for (uint16_t i = 0; i < t->config.n_ros; i++)
                ros_says_alive(t, i, RUN_RUNNING, 0);
}

/* The run has begun, and its first trigger, number 100, is event 0 on SFI 0, which holds `credits`. */
static inline void outside_begins(struct dfm_driver *t, const struct dfm_config *c, uint64_t credits)
{
        dfm_driver_start(t, c);
        sfi_grants(t, 0, credits);
        assert_int_equal(outside_offers(t, 100, 0), OFFER_QUEUED);
        assert_dfm_says(t, "");
        ross_know(t, 1);
        assert_dfm_says(t, "sfi0: Assign e0>sfi0#0 | ross: Assign e0>sfi0");
        sfi_acks(t, 0, 1);
}

static inline const struct dfm_offered *offered(const struct dfm_driver *t)
{
        return &dfm_counts(t->dfm)->offered;
}

/* Each offer is taken, waits, or counts where it says so. */
static inline void outside_ends(struct dfm_driver *t)
{
        const struct dfm_offered *o = offered(t);

        assert_int_equal(o->triggers, dfm_counts(t->dfm)->triggers + dfm_waiting(t->dfm) + o->refused +
                                              o->repeated + o->implausible + o->not_taken);
        dfm_driver_fini(t);
}
