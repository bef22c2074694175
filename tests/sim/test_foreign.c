/* Foreign senders, which have neither the run's cookie nor the DFM's incarnation, change nothing. */
#include "scenes.h"

#include "base/random.h"

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
                check_all_complete(s, &c);
                check(!dfm_is_unreliable(sim_dfm(s)) && dfm_counts(sim_dfm(s))->foreign > 0);
                sim_free(s);
        }
}
