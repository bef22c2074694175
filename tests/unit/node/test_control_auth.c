/* Two nodes with a key, a DFM and a ROS, whose datagrams this test carries: sessions, restarts, copies. */
#include "../test.h"

#include "net/endpoint.h"
#include "node/control_auth.h"
#include "node_sample.h"

#define PORT 46910

static char key_path[] = "/tmp/evb-auth-XXXXXX", other_path[] = "/tmp/evb-auth-XXXXXX";

struct end {
        struct control_auth auth;
        struct address_book nodes;
        struct scenario *scenario;
        struct node_stats *stats;
        uint16_t node;
};

static struct end dfm, ros;

/* A datagram on the wire, which a stranger may keep. */
struct packet {
        uint8_t bytes[512];
        size_t n;
        struct net_address from;
};

static void end_open(struct end *e, const char *name, const char *key)
{
        const struct scenario_node *self;

        *e = (struct end){.scenario = sample_scenario("udp"), .stats = calloc(1, sizeof *e->stats)};
        self = scenario_find(e->scenario, name);
        e->node = AUTH_NODE(self->role, self->index);
        snprintf(e->scenario->network.key_file, sizeof e->scenario->network.key_file, "%s", key);
        assert_int_equal(address_book_init(&e->nodes, e->scenario), 0);
        assert_int_equal(control_auth_open(&e->auth, e->scenario, self, &e->nodes, e->stats), 0);
}

static void end_close(struct end *e)
{
        control_auth_close(&e->auth);
        address_book_fini(&e->nodes);
        free(e->scenario);
        free(e->stats);
}

static void restart(struct end *e)
{
        const char *name = e == &dfm ? "dfm" : "ros1";
        char key[sizeof key_path];

        memcpy(key, e->scenario->network.key_file, sizeof key);
        end_close(e);
        end_open(e, name, key);
}

static void from_end(const struct end *e, struct packet *p)
{
        p->from = *address_book_find(&e->nodes, (enum node_role)(e->node >> 12), e->node & 0xfff);
}

/* An Alive or a KeepAlive of that end. */
static struct packet make(struct end *from, uint16_t to)
{
        static struct message m;
        struct packet p;
        size_t n;

        m = (struct message){.header = {.cookie = SAMPLE_COOKIE,
                                        .sender_role = (enum node_role)(from->node >> 12),
                                        .type = from == &dfm ? MESSAGE_KEEP_ALIVE : MESSAGE_ALIVE}};
        if (from == &dfm)
                m.keep_alive.state = RUN_RUNNING;
        else
                m.alive.state = RUN_RUNNING;
        n = message_encode(&m, p.bytes, sizeof p.bytes);
        assert_true(n > 0);
        p.n = control_auth_seal(&from->auth, to, p.bytes, n);
        from_end(from, &p);
        return p;
}

static bool deliver(struct end *to, const struct packet *p, bool to_group);

/* Hellos that follow go back and forth. */
static void carry(struct end *from, const struct control_hello *h)
{
        struct packet p = {.n = sizeof h->bytes};

        if (!h->to)
                return;
        memcpy(p.bytes, h->bytes, sizeof h->bytes);
        from_end(from, &p);
        assert_false(deliver(from == &dfm ? &ros : &dfm, &p, false));
}

static bool deliver(struct end *to, const struct packet *p, bool to_group)
{
        struct datagram d = {.bytes = (uint8_t *)p->bytes, .size_bytes = (uint32_t)p->n, .from = &p->from};
        struct control_hello h;
        size_t n;
        bool admitted = control_auth_admit(&to->auth, &d, to_group, &n, &h);

        carry(to, &h);
        return admitted;
}

static bool pass(struct end *from, struct end *to)
{
        struct packet p = make(from, to->node);

        return deliver(to, &p, false);
}

/* The limit of challenges is a time. */
static void wait_to_ask(void)
{
        usleep(21000);
}

static void open_both(const char *of_ros)
{
        end_open(&dfm, "dfm", key_path);
        end_open(&ros, "ros1", of_ros);
}

static void close_both(void)
{
        end_close(&dfm);
        end_close(&ros);
}

TEST_BETWEEN(a_hello_makes_both_sessions_known, open_both(key_path), close_both())
{
        struct control_hello h;
        unsigned greeted = 0;

        while (control_auth_greet(&ros.auth, &h)) {
                if (net_address_equal(h.to, &ros.nodes.dfm))
                        carry(&ros, &h);
                greeted++;
        }
        /* The DFM and two SFIs, not the other ROS. */
        assert_int_equal(greeted, 3);
        assert_true(pass(&ros, &dfm));
        assert_true(pass(&dfm, &ros));
        assert_int_equal(stats_get(&dfm.stats->control_unproven), 0);
}

TEST_BETWEEN(the_first_message_of_a_session_is_refused, open_both(key_path), close_both())
{
        assert_false(pass(&ros, &dfm));
        assert_int_equal(stats_get(&dfm.stats->control_unproven), 1);
        for (int i = 0; i < 3; i++) {
                assert_true(pass(&ros, &dfm));
                assert_true(pass(&dfm, &ros));
        }
}

TEST_BETWEEN(a_copy_is_refused, open_both(key_path), close_both())
{
        struct packet old, p, q;

        old = make(&ros, dfm.node);
        pass(&ros, &dfm);
        p = make(&ros, dfm.node);
        q = make(&ros, dfm.node);
        /* The network may reorder, but not repeat. */
        assert_true(deliver(&dfm, &q, false));
        assert_true(deliver(&dfm, &p, false));
        assert_false(deliver(&dfm, &p, false));
        assert_false(deliver(&dfm, &q, false));
        assert_int_equal(stats_get(&dfm.stats->control_replayed), 2);
        /* Of before the session was proven. */
        assert_false(deliver(&dfm, &old, false));
        assert_stats(dfm.stats, control_replayed, 2, control_unproven, 2);
        /* Neither to its sender, nor to another node, nor to the group. */
        p = make(&dfm, ros.node);
        assert_false(deliver(&dfm, &p, false));
        assert_false(deliver(&ros, &p, true));
        p = make(&dfm, AUTH_NODE(ROLE_ROS, 1));
        assert_false(deliver(&ros, &p, false));
        p = make(&dfm, AUTH_GROUP);
        assert_false(deliver(&ros, &p, false));
        assert_true(deliver(&ros, &p, true));
        assert_false(deliver(&ros, &p, true));
}

/* A copy of the previous session must not count after a restart of its sender, nor of its receiver. */
TEST_EACH_BETWEEN(copies_do_not_survive_a_restart, which, 2, open_both(key_path), close_both())
{
        struct packet from_ros, from_dfm, to_group;

        pass(&ros, &dfm);
        assert_true(pass(&ros, &dfm));
        from_ros = make(&ros, dfm.node);
        from_dfm = make(&dfm, ros.node);
        to_group = make(&dfm, AUTH_GROUP);
        restart(which ? &ros : &dfm);
        wait_to_ask();
        for (int i = 0; i < 3; i++) {
                if (which)
                        assert_false(deliver(&ros, &from_dfm, false));
                assert_false(deliver(&dfm, &from_ros, false));
                assert_false(deliver(&ros, &to_group, true));
                pass(&ros, &dfm);
                pass(&dfm, &ros);
                wait_to_ask();
        }
        /* The genuine nodes go on. */
        assert_true(pass(&ros, &dfm));
        assert_true(pass(&dfm, &ros));
        to_group = make(&dfm, AUTH_GROUP);
        assert_true(deliver(&ros, &to_group, true));
}

/* A recorded answer is to another challenge. */
TEST_BETWEEN(a_recorded_answer_proves_nothing, open_both(key_path), close_both())
{
        struct control_hello h;
        struct packet answer = {.n = AUTH_HELLO_BYTES}, message;
        struct datagram d;
        size_t n;

        /* The ROS answers a challenge of the DFM; a stranger keeps the answer and lets it pass. */
        while (control_auth_greet(&dfm.auth, &h) && !net_address_equal(h.to, &dfm.nodes.ros[0]))
                ;
        d = (struct datagram){.bytes = h.bytes, .size_bytes = sizeof h.bytes, .from = &dfm.nodes.dfm};
        struct control_hello reply;
        assert_false(control_auth_admit(&ros.auth, &d, false, &n, &reply));
        memcpy(answer.bytes, reply.bytes, sizeof reply.bytes);
        from_end(&ros, &answer);
        assert_false(deliver(&dfm, &answer, false));
        message = make(&ros, dfm.node);
        /* The ROS restarts, and the DFM follows it. Then come the answer and the message of before. */
        restart(&ros);
        wait_to_ask();
        pass(&ros, &dfm);
        assert_true(pass(&ros, &dfm));
        assert_false(deliver(&dfm, &answer, false));
        assert_false(deliver(&dfm, &message, false));
        assert_true(pass(&ros, &dfm));
}

TEST(another_key_and_none_are_told_apart)
{
        struct packet p;

        open_both(other_path);
        assert_false(pass(&ros, &dfm));
        assert_false(pass(&dfm, &ros));
        assert_int_equal(stats_get(&dfm.stats->control_wrong_key), 1);
        assert_int_equal(stats_get(&ros.stats->control_wrong_key), 1);
        close_both();
        open_both("");
        assert_false(pass(&ros, &dfm));
        assert_false(pass(&dfm, &ros));
        assert_int_equal(stats_get(&dfm.stats->control_untagged), 1);
        assert_int_equal(stats_get(&ros.stats->control_no_key), 1);
        /* A hello says so too. */
        struct control_hello h;
        assert_true(control_auth_greet(&dfm.auth, &h));
        carry(&dfm, &h);
        assert_int_equal(stats_get(&ros.stats->control_no_key), 2);
        /* Without a key, nothing is appended, and nothing greeted. */
        p = make(&ros, dfm.node);
        assert_int_equal(p.n, MESSAGE_HEADER_BYTES + 48);
        assert_false(control_auth_greet(&ros.auth, &h));
        close_both();
}

/* The number of a message that came from a wrong address stays free for the genuine one. */
TEST_BETWEEN(a_wrong_address_takes_no_number, open_both(key_path), close_both())
{
        struct packet p;

        pass(&ros, &dfm);
        p = make(&ros, dfm.node);
        assert_int_equal(net_address_parse(&p.from, sample_at(77), PORT), 0);
        /* control_messages.c refuses it. */
        assert_true(deliver(&dfm, &p, false));
        from_end(&ros, &p);
        assert_true(deliver(&dfm, &p, false));
        assert_false(deliver(&dfm, &p, false));
}

TEST_BETWEEN(garbage_is_harmless, open_both(key_path), close_both())
{
        struct packet p, q;

        pass(&ros, &dfm);
        p = make(&ros, dfm.node);
        for (size_t i = 0; i < p.n; i++) {
                q = p;
                q.n = i;
                /* Decoding refuses what is too short for a header. */
                assert_true(!deliver(&dfm, &q, false) || i < MESSAGE_HEADER_BYTES);
                q = p;
                q.bytes[i] ^= 0x10;
                if (i >= MESSAGE_HEADER_BYTES)
                        assert_false(deliver(&dfm, &q, false));
                else
                        deliver(&dfm, &q, false);
        }
        assert_true(deliver(&dfm, &p, false));
}

static int write_key(char *path, const char *text)
{
        int fd = mkstemp(path);

        assert_true(fd >= 0);
        assert_int_equal(write(fd, text, strlen(text)), (ssize_t)strlen(text));
        return close(fd);
}

static int set_up(void **state)
{
        return write_key(key_path, "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f\n") +
               write_key(other_path, "100102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f\n");
}

static int tear_down(void **state)
{
        return unlink(key_path) + unlink(other_path);
}

TESTS_BETWEEN(set_up, tear_down)
