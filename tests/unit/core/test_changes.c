/* Settings that change while DFM and SFI run. */
#include "dfm_driver.h"
#include "sfi_driver.h"

#define HZ UINT64_C(1000)
#define CHANGED_NS (250 * NS_PER_MS + 400)

/* Triggers that are due at or before each turn, of which there is one every 0.1 ms, from now on. */
static uint64_t taken_in(struct trigger *t, uint64_t *now_ns, uint64_t time_ns)
{
        uint64_t n = 0, until_ns = *now_ns + time_ns;

        for (; *now_ns < until_ns; *now_ns += NS_PER_MS / 10) {
                uint64_t k = trigger_next_due(t, *now_ns, 1000);

                assert_true(t->kind == TRIGGER_BURST ? k <= t->burst : k <= 3);
                n += k;
        }
        return n;
}

/* After each change, the rate is the new one at once: no burst, no pause. */
TEST(a_rate_changes_without_burst_or_pause)
{
        static const uint64_t rates[] = {1000, 2000, 200, 5000, 50, 1000, 1, 1000, 999};
        uint64_t now_ns = 7, before_ns;
        struct trigger t;

        trigger_init(&t, TRIGGER_PERIODIC, rates[0] * HZ, 1, 1, now_ns);
        for (size_t i = 1; i < ARRAY_SIZE(rates); i++) {
                uint64_t n = taken_in(&t, &now_ns, CHANGED_NS),
                         expected = rates[i - 1] * CHANGED_NS / NS_PER_S;

                assert_true(n <= expected + 2 && n + 2 >= expected);
                before_ns = now_ns;
                trigger_change(&t, now_ns, TRIGGER_PERIODIC, rates[i] * HZ, 1);
                assert_true(trigger_next_ns(&t) <= before_ns + NS_PER_S / rates[i]);
        }
        /* From then on, the intervals are exact. */
        trigger_change(&t, now_ns, TRIGGER_PERIODIC, 3000 * HZ, 1);
        before_ns = trigger_next_ns(&t);
        assert_int_equal(trigger_next_due(&t, before_ns + 10 * NS_PER_S, UINT32_MAX), 30001);
        assert_int_equal(trigger_next_ns(&t), before_ns + 30001 * NS_PER_S / 3000);
}

TEST(what_is_left_of_an_interval_is_scaled)
{
        struct trigger t;

        trigger_init(&t, TRIGGER_PERIODIC, 1, 1, 1, 0); /* 1 mHz: 1000 s */
        assert_int_equal(trigger_next_due(&t, 0, 10), 1);
        trigger_change(&t, 250 * NS_PER_S, TRIGGER_PERIODIC, 1000 * HZ, 1);
        assert_int_equal(trigger_next_ns(&t), 250 * NS_PER_S + 750 * NS_PER_US);
        trigger_change(&t, 250 * NS_PER_S, TRIGGER_PERIODIC, 1, 1);
        assert_int_equal(trigger_next_ns(&t), 1000 * NS_PER_S);
}

/* Three triggers that a late caller has not taken yet stay three. */
TEST(overdue_triggers_stay_as_many)
{
        struct trigger t;

        for (uint64_t hertz = 1; hertz <= 1000000; hertz *= 1000) {
                trigger_init(&t, TRIGGER_PERIODIC, 1000 * HZ, 1, 1, NS_PER_S);
                trigger_change(&t, NS_PER_S + 2500 * NS_PER_US, TRIGGER_PERIODIC, hertz * HZ, 1);
                /* At 1 Hz they cannot have been due before time began. */
                assert_int_equal(trigger_next_due(&t, NS_PER_S + 2500 * NS_PER_US, 1000), hertz == 1 ? 2 : 3);
        }
}

TEST(the_maximum_begins_and_ends_at_once)
{
        struct trigger t;

        trigger_init(&t, TRIGGER_PERIODIC, TRIGGER_RATE_MAX, 1, 1, 5);
        assert_int_equal(trigger_next_due(&t, 100 * NS_PER_S, 1000), 1000);
        trigger_change(&t, 100 * NS_PER_S, TRIGGER_PERIODIC, 10 * HZ, 1);
        assert_int_equal(trigger_next_due(&t, 100 * NS_PER_S, 1000), 1);
        assert_int_equal(trigger_next_ns(&t), 100 * NS_PER_S + 100 * NS_PER_MS);
        trigger_change(&t, 101 * NS_PER_S, TRIGGER_PERIODIC, TRIGGER_RATE_MAX, 1);
        assert_int_equal(trigger_next_due(&t, 101 * NS_PER_S, 1000), 1000);
        trigger_change(&t, 102 * NS_PER_S, TRIGGER_POISSON, 10 * HZ, 1);
        assert_true(trigger_next_ns(&t) > 102 * NS_PER_S);
        trigger_change(&t, 102 * NS_PER_S, TRIGGER_POISSON, TRIGGER_RATE_MAX, 1);
        assert_int_equal(trigger_next_due(&t, 102 * NS_PER_S, 1000), 1000);
}

TEST(poisson_triggers_get_the_new_mean)
{
        uint64_t now_ns = 0, n;
        struct trigger t;

        trigger_init(&t, TRIGGER_PERIODIC, 100 * HZ, 1, 1, now_ns);
        trigger_next_due(&t, 0, 1);
        trigger_change(&t, NS_PER_MS, TRIGGER_POISSON, 10000 * HZ, 1);
        n = trigger_next_due(&t, now_ns + 10 * NS_PER_S, UINT32_MAX);
        assert_true(n > 98000 && n < 102000);
        now_ns += 10 * NS_PER_S;
        trigger_change(&t, now_ns, TRIGGER_POISSON, 1000 * HZ, 1);
        n = trigger_next_due(&t, now_ns + 100 * NS_PER_S, UINT32_MAX);
        assert_true(n > 98000 && n < 102000);
}

/* A burst that has begun continues, and does not restart. */
TEST(bursts_go_on)
{
        struct trigger t;

        trigger_init(&t, TRIGGER_BURST, 1000 * HZ, 5, 1, 0);
        assert_int_equal(trigger_next_due(&t, 0, 3), 3);
        trigger_change(&t, 0, TRIGGER_BURST, 500 * HZ, 5);
        assert_int_equal(trigger_next_due(&t, 0, 100), 2);
        assert_int_equal(trigger_next_ns(&t), 10 * NS_PER_MS);
        assert_int_equal(trigger_next_due(&t, 10 * NS_PER_MS, 3), 3);
        trigger_change(&t, 10 * NS_PER_MS, TRIGGER_BURST, 500 * HZ, 2); /* it has had more already */
        assert_int_equal(trigger_next_due(&t, 10 * NS_PER_MS, 100), 0);
        assert_int_equal(trigger_next_ns(&t), 14 * NS_PER_MS);
        assert_int_equal(trigger_next_due(&t, 14 * NS_PER_MS, 100), 2);
        trigger_change(&t, 16 * NS_PER_MS, TRIGGER_PERIODIC, 1000 * HZ, 2);
        assert_int_equal(trigger_next_ns(&t), 17 * NS_PER_MS);
}

static struct dfm_settings settings_of(const struct dfm_config *c)
{
        return (struct dfm_settings){
                .trigger_kind = c->trigger_kind,
                .trigger_rate_millihertz = c->trigger_rate_millihertz,
                .leave_timeout_ns = c->leave_timeout_ns,
        };
}

/* Lets the DFM run, and returns how many triggers it took. */
static uint64_t triggers_in(struct dfm_driver *t, uint64_t time_ns)
{
        uint64_t before = dfm_counts(t->dfm)->triggers;

        for (uint64_t passed_ns = 0; passed_ns < time_ns; passed_ns += NS_PER_MS) {
                dfm_pass_ns(t, NS_PER_MS);
                while (dfm_makes(t))
                        continue;
        }
        return dfm_counts(t->dfm)->triggers - before;
}

DFM_TEST(the_dfm_follows_another_rate, c.trigger_rate_millihertz = 100 * HZ, c.events_max = 4096,
         c.event_timeout_ns = 1000 * NS_PER_S)
{
        struct dfm_settings to = settings_of(&c);

        sfi_grants(t, 0, 2000);
        assert_in_range(triggers_in(t, NS_PER_S), 99, 102);
        to.trigger_rate_millihertz = 1000 * HZ;
        dfm_change(t->dfm, t->now_ns, &to);
        assert_in_range(triggers_in(t, NS_PER_S), 999, 1002);
        to.trigger_rate_millihertz = 10 * HZ;
        dfm_change(t->dfm, t->now_ns, &to);
        assert_in_range(triggers_in(t, NS_PER_S), 9, 11);
        /* Other settings leave the schedule alone. */
        to.leave_timeout_ns++;
        for (int i = 0; i < 1000; i++) {
                dfm_change(t->dfm, t->now_ns, &to);
                triggers_in(t, NS_PER_MS);
        }
        assert_in_range(dfm_counts(t->dfm)->triggers, 1117, 1127);
}

DFM_TEST_AS(a_rate_of_before_the_run_counts_from_its_begin, dfm_standard(), dfm_driver_init(t, &c),
            c.trigger_rate_millihertz = 1000 * HZ, c.n_ros = c.n_sfi = 1)
{
        struct dfm_settings to = settings_of(&c);

        to.trigger_rate_millihertz = 10 * HZ;
        dfm_change(t->dfm, t->now_ns, &to);
        dfm_pass_ns(t, 5 * NS_PER_S);
        ros_says_alive(t, 0, RUN_RUNNING, 0);
        sfi_says_alive(t, 0, RUN_RUNNING, 0);
        dfm_says_with(t, false);
        sfi_grants(t, 0, 60);
        assert_in_range(triggers_in(t, NS_PER_S), 10, 11);
}

/* While triggers are held back, no schedule runs, and none makes up for the time. */
DFM_TEST(a_change_while_triggers_are_held_back_makes_no_burst, c.trigger_rate_millihertz = 100 * HZ)
{
        struct dfm_settings to = settings_of(&c);

        assert_int_equal(triggers_in(t, NS_PER_S), 0);
        to.trigger_rate_millihertz = 20 * HZ;
        dfm_change(t->dfm, t->now_ns, &to);
        assert_int_equal(triggers_in(t, NS_PER_S), 0);
        sfi_grants(t, 0, 60);
        assert_in_range(triggers_in(t, NS_PER_S), 20, 21);
}

DFM_TEST(a_change_applies_in_every_state)
{
        struct dfm_settings to = settings_of(&c);

        dfm_stop(t->dfm, t->now_ns);
        dfm_change(t->dfm, t->now_ns, &to);
        dfm_says_with(t, false);
}

static struct sfi_settings sfi_settings_of(const struct sfi_config *c)
{
        return (struct sfi_settings){c->credits, c->outstanding, c->retries_max};
}

SFI_TEST(more_credits_are_granted_at_once, 4, c.slots = 64)
{
        struct sfi_settings to = sfi_settings_of(&c);

        assert_sfi_says_after(t, 2 * NS_PER_MS, "dfm: Update granted 4 ack 4");
        to.credits = sfi_credits_max(t->sfi);
        assert_int_equal(to.credits, 36); /* 36 + 36 / 4 + 16 = 61 */
        sfi_change(t->sfi, t->now_ns, &to);
        assert_sfi_says(t, "dfm: Update granted 36 ack 4");
        sfi_gets_assigns(t, 4, 36);
        assert_int_equal(sfi_open_events(t->sfi), 36);
        for (uint64_t event = 0; event < 36; event++)
                sfi_gets_whole(t, event);
        sfi_writes_with(t, false);
        assert_int_equal(sfi_counts(t->sfi).complete, 36);
}

/* What is granted stays granted; the number of open events falls as they end. */
SFI_TEST(fewer_credits_take_none_back, 3, c.slots = 64)
{
        struct sfi_settings to = sfi_settings_of(&c);

        to.credits = 2;
        sfi_change(t->sfi, t->now_ns, &to);
        assert_sfi_says(t, "dfm: Update granted 4 ack 3");
        sfi_gets_assign(t, 3); /* it was on its way */
        assert_int_equal(sfi_open_events(t->sfi), 4);
        for (uint64_t event = 0; event < 4; event++) {
                sfi_gets_whole(t, event);
                sfi_writes_with(t, false);
                t->now_ns += 2 * NS_PER_MS;
                assert_true(strstr(sfi_says(t), event < 2    ? "granted 4"
                                                : event == 2 ? "granted 5"
                                                             : "granted 6"));
        }
        /* Both ways, and derived ones too. */
        to.credits = 0;
        sfi_change(t->sfi, t->now_ns, &to);
        assert_true(sfi_credits(t->sfi) > 2);
        to.credits = 36;
        sfi_change(t->sfi, t->now_ns, &to);
        assert_true(strstr(sfi_says(t), "granted 40"));
}

/* Unassigned events leave the slots of later credits free. */
SFI_TEST(unassigned_events_follow_the_credits, 0, c.slots = 4096)
{
        struct sfi_settings to = sfi_settings_of(&c);

        sfi_gets_fragments(t, 0, 600);
        assert_int_equal(sfi_open_events(t->sfi), 10); /* of 4 + 1 + 16 slots */
        to.credits = 3000;
        sfi_change(t->sfi, t->now_ns, &to);
        sfi_gets_fragments(t, 0, 600);
        assert_int_equal(sfi_open_events(t->sfi), (3000 + 750 + 16) / 8);
}

PULL_TEST(retries_follow_at_the_next_round, 0)
{
        struct sfi_settings to = sfi_settings_of(&c);

        sfi_gets_assign(t, 0);
        requests_after(t, 0);
        assert_requests(t, AFTER_NS - 1, "");
        assert_string_not_equal(requests_after(t, 1), "");
        to.retries_max = 0;
        sfi_change(t->sfi, t->now_ns, &to);
        sfi_gets_assign(t, 1);
        assert_string_not_equal(requests_after(t, 0), "");
        requests_after(t, 10 * AFTER_NS); /* the retry of event 0 that was due */
        assert_requests(t, 20 * AFTER_NS, "");
}

PULL_TEST(outstanding_events_stay_events_or_bytes, 4, c.outstanding = 1, c.room_bytes = 1 << 20)
{
        struct sfi_settings to = sfi_settings_of(&c);

        assert_requests(t, 0, "all: Request e0");
        assert_requests(t, 0, "");
        to.outstanding = 3;
        assert_true(sfi_may_change_outstanding(t->sfi, 3));
        sfi_change(t->sfi, t->now_ns, &to);
        assert_requests(t, 0, "all: Request e1 e2");
        assert_false(sfi_may_change_outstanding(t->sfi, 0));
        sfi_driver_fini(t);

        c = by_bytes();
        assert_int_equal(sfi_new(&t->sfi, &c, t->now_ns), 0);
        assert_true(sfi_may_change_outstanding(t->sfi, 0));
        assert_false(sfi_may_change_outstanding(t->sfi, 3));
        sfi_free(t->sfi);
        c.pull = false;
        assert_int_equal(sfi_new(&t->sfi, &c, t->now_ns), 0);
        assert_true(sfi_may_change_outstanding(t->sfi, 3));
}
