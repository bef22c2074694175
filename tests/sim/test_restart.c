/* A DFM dies, restarts and resumes the run: no event is built twice or omitted, and triggers continue.
 * Foreign senders, which have neither the run's cookie nor the DFM's incarnation, change nothing. */
#include "scenes.h"

#include "base/random.h"

/* Kills the DFM at a moment that depends on the seed, and starts another one `away_ns` later. */
static void restart(unsigned seeds, double loss, uint64_t away_ns, void (*prepare)(struct sim_config *),
                    void (*verify)(struct sim *, const struct sim_config *))
{
        FOR_SEEDS(seed, seeds)
        {
                for (int push = 0; push < 2; push++) {
                        struct sim_config c = sim_standard();
                        struct sim *s;

                        c.push = push;
                        c.events = 600;
                        c.faults = (struct fault_config){.loss = loss, .seed = seed};
                        if (prepare)
                                prepare(&c);
                        s = sim_now = sim_new(&c);
                        check(!sim_run(s, 20 * NS_PER_MS + seed % 200 * 377 * NS_PER_MS / 1000));
                        sim_kill(s, ROLE_DFM, 0);
                        (void)sim_run(s, sim_now_ns(s) + away_ns + 1);
                        sim_restart_dfm(s);
                        /* Triggers resume within 5 s. */
                        check(sim_run(s, sim_now_ns(s) + 5 * NS_PER_S) ||
                              dfm_state(sim_dfm(s)) == RUN_RUNNING);
                        check(sim_run(s, FOREVER_NS));
                        verify(s, &c);
                        sim_free(s);
                }
        }
}

static void verify_all_once(struct sim *s, const struct sim_config *c)
{
        const struct dfm_counts *d = dfm_counts(sim_dfm(s));

        check_accounts(s, c);
        check(d->triggers == c->events && d->complete == c->events && d->ended_again == 0);
        for (uint64_t e = 0; e < c->events; e++)
                check(sim_event(s, e)->complete == 1 && sim_event(s, e)->partial == 0);
}

TEST(a_restarted_dfm_resumes_the_run)
{
        restart(20, 0, 5 * NS_PER_MS, NULL, verify_all_once);
}

TEST(at_once)
{
        restart(20, 0, 0, NULL, verify_all_once);
}

TEST(after_the_nodes_became_idle)
{
        restart(10, 0, 3 * NS_PER_S, NULL, verify_all_once);
}

static void write_slowly(struct sim_config *c)
{
        c->write_ns = 2 * NS_PER_MS;
        c->rate_millihertz = 800000;
}

/* Built events that are not written yet are neither finished nor built again. */
TEST(while_events_are_being_written)
{
        restart(20, 0, 5 * NS_PER_MS, write_slowly, verify_all_once);
}

/* Messages to and from the new DFM are lost too. An event may be built twice if an SFI's report is late, but
 * none is forgotten. */
static void verify_none_forgotten(struct sim *s, const struct sim_config *c)
{
        const struct dfm_counts *d = dfm_counts(sim_dfm(s));

        check_accounts(s, c);
        check(d->triggers == c->events && d->lost == 0);
        for (uint64_t e = 0; e < c->events; e++)
                check(sim_event(s, e)->complete + sim_event(s, e)->partial >= 1);
}

TEST(with_loss)
{
        restart(60, 0.05, 5 * NS_PER_MS, NULL, verify_none_forgotten);
}

TEST(only_one_sfi_is_left)
{
        for (uint64_t seed = 1; (seed_now = seed) <= 20; seed++) {
                struct sim_config c = sim_standard();
                struct sim *s;

                c.events = 600;
                s = sim_now = sim_new(&c);
                check(!sim_run(s, 20 * NS_PER_MS + seed * NS_PER_MS));
                sim_kill(s, ROLE_DFM, 0);
                sim_kill(s, ROLE_SFI, 1);
                sim_restart_dfm(s);
                check(sim_run(s, FOREVER_NS));
                check_accounts(s, &c);
                /* Acknowledged events are lost with the dead DFM, because no other node has a record of
                 * them. */
                check(dfm_counts(sim_dfm(s))->triggers == c.events);
                sim_free(s);
        }
}

static void know_that_it_has_ended(struct sim_config *c)
{
        c->previous.known = true;
}

static void verify_run_is_over(struct sim *s, const struct sim_config *c)
{
        check_accounts(s, c);
        for (uint32_t i = 0; i < c->n_ros; i++)
                check(ros_run_state(sim_ros(s, i)) == RUN_ENDED &&
                      ros_member(sim_ros(s, i))->refusal == WELCOME_OVER);
        for (uint32_t i = 0; i < c->n_sfi; i++)
                check(sfi_run_state(sim_sfi(s, i)) == RUN_ENDED);
}

/* Nodes that missed the end of a run do not draw the next DFM into it. */
TEST(nodes_of_an_ended_run_are_refused)
{
        for (uint64_t seed = 1; (seed_now = seed) <= 10; seed++) {
                struct sim_config c = sim_standard();
                struct sim *s;

                c.events = 600;
                know_that_it_has_ended(&c);
                s = sim_now = sim_new(&c);
                check(!sim_run(s, 30 * NS_PER_MS));
                sim_kill(s, ROLE_DFM, 0);
                sim_restart_dfm(s);
                (void)sim_run(s, sim_now_ns(s) + NS_PER_S);
                check(dfm_counts(sim_dfm(s))->triggers == 0);
                verify_run_is_over(s, &c);
                sim_free(s);
        }
}

/* All messages that a foreign sender can send, from anywhere and in the name of any node. */
static struct message forge(struct random *r, uint64_t cookie)
{
        static const uint32_t types[] = {
                MESSAGE_UPDATE,     MESSAGE_ASSIGN,  MESSAGE_BUILD,      MESSAGE_CLEAR,   MESSAGE_KEEP_ALIVE,
                MESSAGE_REQUEST,    MESSAGE_XON,     MESSAGE_XOFF,       MESSAGE_ALIVE,   MESSAGE_TOTALS,
                MESSAGE_UPDATE_ACK, MESSAGE_WELCOME, MESSAGE_JOIN,       MESSAGE_INQUIRY, MESSAGE_INVENTORY,
                MESSAGE_DECISION,   MESSAGE_NUMBERS, MESSAGE_NUMBERS_ACK};
        struct message m = {.header = {.cookie = cookie, .transaction = (uint32_t)random_next(r)}};

        m.header.type = types[random_below(r, ARRAY_SIZE(types))];
        m.header.sender_role = (enum node_role)(1 + random_below(r, 4));
        m.header.sender_index = m.header.sender_role == ROLE_DFM ? 0 : (uint16_t)random_below(r, 8);
        m.dfm = random_next(r);
        switch (m.header.type) {
        case MESSAGE_KEEP_ALIVE:
                m.keep_alive.oldest = UINT64_C(1) << 63;
                m.keep_alive.triggers = UINT64_MAX;
                m.keep_alive.state = RUN_ENDED;
                break;
        case MESSAGE_ALIVE:
                m.alive.incarnation = random_next(r);
                m.alive.state = 1 + (uint32_t)random_below(r, 4);
                m.alive.flags = ALIVE_FAILED | ALIVE_XOFF | ALIVE_UNRELIABLE;
                break;
        case MESSAGE_ASSIGN:
        case MESSAGE_BUILD:
                m.n = 1;
                m.assign.announces = random_below(r, 2);
                m.assign.sfi = (uint16_t)random_below(r, 2);
                m.assign.entries[0] = (struct assign_entry){
                        .event = random_below(r, 700),
                        .sfi = m.assign.announces ? (uint16_t)random_below(r, 2) : m.assign.sfi};
                m.assign.entries[0].l1_id = (uint32_t)m.assign.entries[0].event;
                break;
        case MESSAGE_CLEAR:
                m.n = 1;
                m.clear.events[0] = random_below(r, 700);
                m.clear.oldest = UINT64_C(1) << 63;
                break;
        case MESSAGE_WELCOME:
        case MESSAGE_JOIN:
                m.join.incarnation = random_next(r);
                break;
        case MESSAGE_UPDATE:
                m.n = 1;
                m.update.granted = UINT64_MAX;
                m.update.entries[0] =
                        (struct finished_entry){.event = random_below(r, 700), .end = EVENT_LOST};
                break;
        }
        return m;
}

TEST(foreign_senders_change_nothing)
{
        uint8_t bytes[2000];

        for (uint64_t seed = 1; (seed_now = seed) <= 20; seed++) {
                struct sim_config c = sim_standard();
                struct random random;
                struct sim *s;

                c.push = seed % 2;
                c.events = 600;
                random_init(&random, seed);
                s = sim_now = sim_new(&c);
                for (int i = 0; i < 3000; i++) {
                        /* The foreign sender guesses the cookie. A message to the DFM alone, which other
                         * nodes may overhear, can carry the right one. */
                        struct message m = forge(&random, random_next(&random));
                        size_t n = message_encode(&m, bytes, sizeof bytes);

                        if (n > 0)
                                sim_inject(s, (enum node_role)(1 + i % 3), (uint32_t)(i % 2), bytes, n);
                        if (i % 10 == 0)
                                check(!sim_run(s, sim_now_ns(s) + 200 * NS_PER_MS / 1000));
                }
                check(sim_run(s, FOREVER_NS));
                verify_all_once(s, &c);
                check(!dfm_is_unreliable(sim_dfm(s)) && dfm_counts(sim_dfm(s))->foreign > 0);
                sim_free(s);
        }
}
