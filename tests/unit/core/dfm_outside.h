/* A DFM that accepts triggers from outside; the test acts as the trigger box. */
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

/* A DFM with a queue of `queue` triggers; see outside_begins(). */
#define OUTSIDE_TEST_EACH(name, i, n, queue, credits, ...)                                                   \
        DFM_TEST_EACH_AS(name, i, n, outside_standard(queue), outside_begins(t, &c, credits), ##__VA_ARGS__)
#define OUTSIDE_TEST(name, queue, credits, ...)                                                              \
        OUTSIDE_TEST_EACH(name, once, 1, queue, credits, ##__VA_ARGS__)

static inline enum dfm_offer outside_offers(struct dfm_driver *t, uint64_t number, uint32_t flags)
{
        struct trigger_entry e = {.number = number, .flags = flags};

        return dfm_offer(t->dfm, t->now_ns, &e);
}

/* All ROSs report that they have received this reset. */
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

/* A DFM resumes a run with resets. Event 0 has ended on SFI 0, event 1 is open on SFI 1, and no SFI has
 * events 2 and 3. */
static inline void outside_resumes(struct dfm_driver *t, struct dfm_config *c)
{
        c->cookie = TRACE_COOKIE + 1;
        c->run_is_free = true;
        dfm_driver_init(t, c);
        t->resets = 3;
        for (uint16_t i = 0; i < 4; i++)
                driver_join_in_run(t, 0xF0, i < 2 ? ROLE_ROS : ROLE_SFI, i % 2, 0, 4);
        all_say_alive(t);
        dfm_says_with(t, false);
        sfi_reports_bits(t, 0, 4, 1, 1, 0);
        sfi_reports_bits(t, 1, 4, 0, 0, 2);
}

/* The record of the DFM of that run: it contains two of the triggers. */
static inline const struct dfm_processes *outside_record(struct dfm_came came)
{
        static struct dfm_processes record;

        record = (struct dfm_processes){
                .cookie = TRACE_COOKIE,
                .dfms = {0xF0},
                .has_all = true,
                .n_ros = 2,
                .n_sfi = 2,
                .sfis = {{.incarnation = 1}, {.incarnation = 1}},
                .came = came,
                .next = 2,
        };
        return &record;
}

static inline const struct dfm_offered *offered(const struct dfm_driver *t)
{
        return &dfm_counts(t->dfm)->offered;
}
