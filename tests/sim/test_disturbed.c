/* A whole system under virtual time, in which nodes die, leave, restart, fail and receive garbage. */
#include "scenes.h"

/* Runs for a while, disturbs the system, and runs to the end. */
static void disturb(unsigned seeds, void (*harm)(struct sim *),
                    void (*verify)(struct sim *, const struct sim_config *))
{
        FOR_SEEDS(seed, seeds)
        {
                for (int push = 0; push < 2; push++) {
                        struct sim_config c = sim_standard();
                        struct sim *s;

                        c.push = push;
                        c.events = 600;
                        c.timeout_ns = 200 * NS_PER_MS;
                        c.faults = (struct fault_config){.loss = seed % 2 ? 0.02 : 0, .seed = seed};
                        s = sim_now = sim_new(&c);
                        /* While triggers continue, for 120 ms. */
                        check(!sim_run(s, 30 * NS_PER_MS + seed % 30 * NS_PER_MS));
                        harm(s);
                        check(sim_run(s, FOREVER_NS));
                        verify(s, &c);
                        sim_free(s);
                }
        }
}

#define DISTURBED(name, seeds, verify) SCENE_OF(disturb, name, (struct sim * s), seeds, name##_scene, verify)

static void verify_reassigned(struct sim *s, const struct sim_config *c)
{
        const struct dfm_counts *d = dfm_counts(sim_dfm(s));

        check_accounts(s, c);
        /* One SFI is left, so it builds each event of the dead one. */
        check(d->triggers == c->events && d->lost == 0);
}

DISTURBED(events_of_a_killed_sfi_are_reassigned, 20, verify_reassigned)
{
        sim_kill(s, ROLE_SFI, 0);
}

DISTURBED(the_run_ends_without_an_sfi, 10, check_accounts)
{
        sim_kill(s, ROLE_SFI, 0);
        sim_kill(s, ROLE_SFI, 1);
        dfm_stop(sim_dfm(s), sim_now_ns(s));
}

DISTURBED(an_sfi_restarts, 20, verify_reassigned)
{
        sim_restart_sfi(s, 1);
}

DISTURBED(silent_sfis_continue, 20, verify_reassigned)
{
        sim_kill(s, ROLE_SFI, 0);
        sim_kill(s, ROLE_SFI, 1);
        check(!sim_run(s, sim_now_ns(s) + 300 * NS_PER_MS));
        check(dfm_live(sim_dfm(s), ROLE_SFI) == 0);
        sim_revive(s, ROLE_SFI, 0);
        sim_revive(s, ROLE_SFI, 1);
}

static void verify_quickly_partial(struct sim *s, const struct sim_config *c)
{
        check_accounts(s, c);
        check(dfm_counts(sim_dfm(s))->partial > 0 && dfm_counts(sim_dfm(s))->lost == 0);
        /* Once it counts as gone, no event waits for it. */
        check(sim_now_ns(s) < 10 * NS_PER_S);
}

DISTURBED(a_killed_ros_makes_events_partial, 20, verify_quickly_partial)
{
        sim_kill(s, ROLE_ROS, 3);
}

static void verify_stopped(struct sim *s, const struct sim_config *c)
{
        const struct dfm_counts *d = dfm_counts(sim_dfm(s));

        check_accounts(s, c);
        check(d->triggers < c->events && d->complete == d->triggers);
}

DISTURBED(stopping_finishes_open_events, 20, verify_stopped)
{
        dfm_stop(sim_dfm(s), sim_now_ns(s));
}

DISTURBED(a_leaving_sfi_loses_nothing, 20, verify_reassigned)
{
        sfi_stop(sim_sfi(s, 0), sim_now_ns(s));
}

static void verify_failed(struct sim *s, const struct sim_config *c)
{
        check_accounts(s, c);
        check(dfm_counts(sim_dfm(s))->triggers < c->events && dfm_counts(sim_dfm(s))->lost > 0);
}

DISTURBED(a_write_error_ends_the_run, 20, verify_failed)
{
        sim_fail_writes(s, 1);
}

DISTURBED(garbage_changes_nothing, 10, check_accounts)
{
        uint8_t bytes[600];
        struct random random;

        random_init(&random, seed_now);
        for (int i = 0; i < 3000; i++) {
                struct message m = {.header = {.cookie = 0x51A,
                                               .sender_role = (enum node_role)(1 + random_below(&random, 3)),
                                               .sender_index = (uint16_t)random_below(&random, 8),
                                               .transaction = (uint32_t)random_next(&random)}};
                static const uint32_t types[] = {MESSAGE_UPDATE_ACK, MESSAGE_TOTALS,       MESSAGE_XON,
                                                 MESSAGE_REQUEST,    MESSAGE_DECISION_ACK, MESSAGE_NUMBERS,
                                                 MESSAGE_NUMBERS_ACK};
                size_t n;

                /* Some are complete messages with odd values, some are noise. Types that can end a run are
                 * left out. */
                m.header.type = types[random_below(&random, ARRAY_SIZE(types))];
                m.update_ack.finished_ack = (uint32_t)random_next(&random);
                m.n = 0;
                if (m.header.type == MESSAGE_REQUEST) {
                        m.n = 1;
                        uint32_t event = (uint32_t)random_below(&random, 700);

                        m.request.entries[0] = (struct request_entry){
                                .event = event,
                                .l1_id = event,
                                .from_bytes = 32 * (uint32_t)random_below(&random, 100),
                                .to_bytes = UINT32_MAX};
                }
                n = message_encode(&m, bytes, sizeof bytes);
                if (i % 2)
                        bytes[random_below(&random, n)] ^= (uint8_t)(1 + random_below(&random, 255));
                sim_inject(s, (enum node_role)(1 + i % 3), (uint32_t)(i % 2), bytes,
                           random_below(&random, 10) ? n : n / 2);
        }
}
