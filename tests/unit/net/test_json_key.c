/* JSON connections with a key: both ends, or one with another key or none, and a stranger between them. */
#include "../test.h"

#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

#include "net/json_connection.h"

static struct auth_key key, other;

struct end {
        struct json_connection connection;
        int received, ended;
        json_int_t sum;
        char refused[200];
};

/* Two connections, with a stranger between them who passes on what each end sends. */
static struct {
        struct loop *loop;
        struct end dialer, acceptor;
        int to_dialer, to_acceptor; /* the stranger's sockets */
        char last[4096];            /* what the dialer sent */
        size_t last_bytes;
} t;

static void received(void *ctx, json_t *message)
{
        struct end *e = ctx;

        e->received++;
        e->sum += json_integer_value(json_object_get(message, "n"));
        snprintf(e->refused, sizeof e->refused, "%s",
                 json_string_value(json_object_get(message, "refused")) ?: "");
}

static void ended(void *ctx, int error)
{
        struct end *e = ctx;

        assert_int_equal(e->ended, 0);
        e->ended = error;
}

static int open_end(struct end *e, const struct auth_key *k, bool dials)
{
        int pair[2];

        *e = (struct end){.connection = {.received = received, .ended = ended, .ctx = e, .key = k}};
        assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair), 0);
        assert_int_equal(json_connection_open(&e->connection, t.loop, pair[0], dials), 0);
        return pair[1];
}

static void open_both(const struct auth_key *dialers, const struct auth_key *acceptors)
{
        memset(&t, 0, sizeof t);
        assert_int_equal(loop_new(&t.loop), 0);
        t.to_dialer = open_end(&t.dialer, dialers, true);
        t.to_acceptor = open_end(&t.acceptor, acceptors, false);
}

static void close_both(void)
{
        json_connection_close(&t.dialer.connection);
        json_connection_close(&t.acceptor.connection);
        close(t.to_dialer);
        close(t.to_acceptor);
        loop_free(t.loop);
}

static bool pass(int from, int to, char *keep, size_t *ret_n)
{
        char text[4096];
        ssize_t n = read(from, text, sizeof text);

        if (n <= 0)
                return false;
        if (keep) {
                memcpy(keep, text, (size_t)n);
                *ret_n = (size_t)n;
        }
        (void)!write(to, text, (size_t)n);
        return true;
}

static void exchange(void)
{
        for (int quiet = 0; quiet < 3; quiet++) {
                assert_int_equal(loop_wait(t.loop, 0), 0);
                if (pass(t.to_dialer, t.to_acceptor, t.last, &t.last_bytes) |
                    pass(t.to_acceptor, t.to_dialer, NULL, NULL))
                        quiet = 0;
        }
}

static void say(struct end *e, json_int_t n)
{
        json_connection_send(&e->connection, json_pack("{s:I}", "n", n));
}

TEST_BETWEEN(messages_wait_for_the_peers_nonce, open_both(&key, &key), close_both())
{
        say(&t.dialer, 1);
        say(&t.dialer, 2);
        say(&t.acceptor, 100);
        exchange();
        say(&t.dialer, 4);
        say(&t.acceptor, 200);
        exchange();
        assert_fields(&t.acceptor, sum, 7, received, 3);
        assert_fields(&t.dialer, sum, 300, ended, 0);
}

/* Both ends know why; the dialer as a refusal. */
TEST(both_ends_need_the_same_key)
{
        const struct {
                const struct auth_key *dialers, *acceptors;
                int error;
                const char *what;
        } cases[] = {{&key, NULL, -ENOKEY, "only one end"},
                     {NULL, &key, -ENOKEY, "only one end"},
                     {&key, &other, -EKEYREJECTED, "different keys"}};

        for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
                open_both(cases[i].dialers, cases[i].acceptors);
                say(&t.dialer, 1);
                exchange();
                assert_fields(&t.acceptor, sum, 0, ended, cases[i].error);
                assert_non_null(strstr(t.dialer.refused, cases[i].what));
                close_both();
        }
}

TEST_EACH_BETWEEN(a_foreign_sender_can_neither_repeat_nor_change_nor_insert, how, 3, open_both(&key, &key),
                  close_both())
{
        static const char forged[] = "{\"n\": 50}\n{\"refused\": \"you\"}\n";

        exchange();
        say(&t.dialer, 1);
        exchange();
        assert_int_equal(t.acceptor.sum, 1);
        if (how == 0)
                assert_int_equal(write(t.to_acceptor, t.last, t.last_bytes), (ssize_t)t.last_bytes);
        else if (how == 1)
                assert_int_equal(write(t.to_acceptor, forged, strlen(forged)), strlen(forged));
        else {
                t.last[0] ^= 1;
                assert_int_equal(write(t.to_acceptor, t.last, t.last_bytes), (ssize_t)t.last_bytes);
        }
        exchange();
        assert_fields(&t.acceptor, sum, 1, received, 1, ended, -EKEYREJECTED);
}

/* What was recorded on one connection does not count on the next one. */
TEST(a_recorded_connection_is_worth_nothing)
{
        char recorded[4096];
        size_t n;

        open_both(&key, &key);
        assert_int_equal(loop_wait(t.loop, 0), 0);
        n = (size_t)read(t.to_dialer, recorded, sizeof recorded);
        assert_int_equal(write(t.to_acceptor, recorded, n), (ssize_t)n);
        exchange();
        say(&t.dialer, 1);
        exchange();
        assert_int_equal(t.acceptor.sum, 1);
        memcpy(recorded + n, t.last, t.last_bytes);
        n += t.last_bytes;
        close_both();
        open_both(&key, &key);
        assert_int_equal(write(t.to_acceptor, recorded, n), (ssize_t)n);
        for (int i = 0; i < 3; i++)
                assert_int_equal(loop_wait(t.loop, 0), 0);
        assert_fields(&t.acceptor, received, 0, ended, -EKEYREJECTED);
        close_both();
}

TEST_BETWEEN(a_silent_peer_does_not_fill_the_memory, open_both(&key, &key), close_both())
{
        for (int i = 0; i < 100; i++)
                say(&t.dialer, i);
        assert_int_equal(t.dialer.ended, -ENOBUFS);
}

static int set_up(void **state)
{
        assert_int_equal(auth_key_init(&key, (const uint8_t *)"one", 3), 0);
        return auth_key_init(&other, (const uint8_t *)"two", 3);
}

TESTS_BETWEEN(set_up, NULL)
