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

/* A DFM resumes a run with resets. Event 0 has ended on SFI 0, event 1 is open on SFI 1, and no SFI knows
 * events 2 and 3. */
static inline void outside_resumes(struct dfm_driver *t, struct dfm_config *c)
{
        struct message m = {.header = {.cookie = TRACE_COOKIE, .type = MESSAGE_JOIN}, .dfm = 0xF0};

        c->cookie = TRACE_COOKIE + 1;
        c->run_is_free = true;
        dfm_driver_init(t, c);
        m.join.incarnation = 1;
        m.join.run = TRACE_RUN;
        m.join.newest = 4;
        t->resets = 3;
        for (uint16_t i = 0; i < 4; i++) {
                m.header.sender_role = i < 2 ? ROLE_ROS : ROLE_SFI;
                m.header.sender_index = i % 2;
                dfm_receive(t->dfm, t->now_ns, &m);
                t->ros_joined[i % 2] |= i < 2;
                t->sfis[i % 2].joined |= i >= 2;
        }
        for (uint16_t i = 0; i < 2; i++) {
                ros_says_alive(t, i, RUN_RUNNING, 0);
                sfi_says_alive(t, i, RUN_RUNNING, 0);
        }
        dfm_says_with(t, false);
        for (uint16_t i = 0; i < 2; i++) {
                t->message.n = 1;
                memset(&t->message.inventory, 0, sizeof t->message.inventory.entries[0]);
                t->message.inventory = (__typeof__(t->message.inventory)){.incarnation = 1, .end = 4};
                t->message.inventory.entries[0].ended = i == 0;
                t->message.inventory.entries[0].open = i == 1 ? 2 : 0;
                t->message.inventory.totals.complete = i == 0;
                assert_true(driver_say(t, ROLE_SFI, i, MESSAGE_INVENTORY, 0));
        }
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
