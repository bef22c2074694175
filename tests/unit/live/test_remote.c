/* The server of live events with consumers over TCP. */
#include "../test.h"

#include <dirent.h>
#include <poll.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

#include "live/live_ring.h"
#include "live/live_server.h"
#include "net/tcp.h"

#define EVENT_BYTES 1000u
#define RECORD_BYTES (LIVE_RECORD_BYTES + 1024u)
#define RING_BYTES 65536u
#define WAIT_NS (120 * NS_PER_S)

static struct loop *loop;
static struct live_server *server;
static struct net_address address;
static struct auth_key key;
static uint64_t number; /* of the event offered last */

static uint32_t n_tags;

static void open_server(const struct auth_key *with)
{
        struct live_settings settings = {.listener = -1, .key = with, .allows_all = true, .n_tags = n_tags};
        struct error e = {};

        assert_int_equal(net_address_parse(&address, "127.0.0.1", 0), 0);
        settings.listener = tcp_listen(&address, 0);
        assert_true(settings.listener >= 0);
        assert_int_equal(getsockname(settings.listener, &address.any, &address.size_bytes), 0);
        assert_int_equal(live_server_new(&server, &settings, loop, &e), 0);
}

static int set_up(void **state)
{
        number = 0;
        assert_int_equal(auth_key_init(&key, (const uint8_t *)"key", 3), 0);
        if (loop_new(&loop) < 0)
                return -1;
        open_server(NULL);
        return 0;
}

static int tear_down(void **state)
{
        server = live_server_free(server, false);
        loop = loop_free(loop);
        return 0;
}

static int encode(void *ctx, bool needed, const struct iovec **iov, size_t *n_iov, size_t *size_bytes)
{
        static uint8_t rest[EVENT_BYTES];
        static struct iovec parts[2];

        parts[0] = (struct iovec){&number, sizeof number};
        parts[1] = (struct iovec){rest, EVENT_BYTES - sizeof number};
        *iov = parts;
        *n_iov = 2;
        *size_bytes = EVENT_BYTES;
        return 0;
}

static struct live_outcome offer_event(const struct live_event *event, bool may_wait)
{
        struct live_outcome outcome = live_server_offer(server, event, may_wait, encode, NULL);

        live_server_wake(server);
        return outcome;
}

static struct live_outcome offer(void)
{
        struct live_event event = {};

        event.number = ++number;
        return offer_event(&event, false);
}

static void turn(void)
{
        assert_int_equal(loop_wait(loop, 1), 0);
}

/* ---- A consumer ---- */

struct consumer {
        int fd;
        uint8_t ring[RING_BYTES];
        uint64_t received, used;
        struct auth_line auth;
        bool is_tagged;
};

static int small_buffer; /* of the consumer's socket; 0: as usual */

static void open_consumer(struct consumer *c)
{
        c->received = c->used = 0;
        c->is_tagged = false;
        c->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (small_buffer > 0)
                assert_int_equal(setsockopt(c->fd, SOL_SOCKET, SO_RCVBUF, &small_buffer, sizeof small_buffer),
                                 0);
        assert_int_equal(connect(c->fd, &address.any, address.size_bytes), 0);
}

static void close_consumer(struct consumer *c)
{
        close(c->fd);
        c->fd = -1;
}

static void send_text(const struct consumer *c, const char *text)
{
        assert_int_equal(send(c->fd, text, strlen(text), MSG_NOSIGNAL), strlen(text));
}

static void send_line(struct consumer *c, const char *text)
{
        char line[2 * LIVE_LINE_MAX], tag[AUTH_LINE_TEXT_BYTES] = "";

        if (c->is_tagged)
                auth_line_seal(&c->auth, text, strlen(text), tag);
        snprintf(line, sizeof line, "%s%s%s\n", tag, tag[0] ? " " : "", text);
        send_text(c, line);
}

/* Lets the server work until something has come to the consumer. */
static void wait_for_input(const struct consumer *c)
{
        struct pollfd p = {.fd = c->fd, .events = POLLIN};
        uint64_t deadline_ns = clock_now_ns() + WAIT_NS;

        do {
                turn();
                assert_true(clock_now_ns() < deadline_ns);
        } while (poll(&p, 1, 1) == 0);
}

/* Receives a line without its end; "" at the end of the connection. */
static const char *receive_line(struct consumer *c, char line[static LIVE_LINE_MAX])
{
        size_t n = 0;

        do {
                assert_true(n < LIVE_LINE_MAX);
                wait_for_input(c);
        } while (recv(c->fd, line + n, 1, 0) == 1 && line[n++] != '\n');
        line[n - (n > 0)] = '\0';
        return line;
}

static void assert_line(struct consumer *c, const char *expected)
{
        char line[LIVE_LINE_MAX];
        const char *text = receive_line(c, line);

        if (c->is_tagged)
                text = auth_line_open(&c->auth, line, strlen(line));
        assert_non_null(text);
        assert_string_equal(text, expected);
}

static void assert_closed(struct consumer *c)
{
        char byte;

        wait_for_input(c);
        assert_true(recv(c->fd, &byte, 1, 0) <= 0);
        close_consumer(c);
}

static void connect_consumer(struct consumer *c, const char *options)
{
        char request[LIVE_LINE_MAX];

        if (!c->is_tagged)
                open_consumer(c);
        snprintf(request, sizeof request, LIVE_GREETING " ring=64KiB %s", options);
        send_line(c, request);
        assert_line(c, LIVE_GREETING " ring=65536");
}

static void introduce(struct consumer *c, const struct auth_key *with)
{
        uint8_t own[AUTH_NONCE_BYTES] = "mine", peers[AUTH_NONCE_BYTES];
        char line[LIVE_LINE_MAX], text[AUTH_LINE_TEXT_BYTES];

        open_consumer(c);
        auth_nonce_format(own, text);
        snprintf(line, sizeof line, "key %s", text);
        send_line(c, line);
        assert_memory_equal(receive_line(c, line), "key ", 4);
        assert_true(auth_nonce_parse(peers, line + 4));
        auth_line_begin(&c->auth, with, true, own, peers);
        c->is_tagged = true;
}

static bool receive_some(struct consumer *c)
{
        size_t at = c->received % RING_BYTES;
        ssize_t n;

        wait_for_input(c);
        n = recv(c->fd, c->ring + at, MIN(RING_BYTES - at, c->used + RING_BYTES - c->received), 0);
        c->received += (uint64_t)MAX(n, 0);
        return n > 0;
}

static struct live_record record; /* of the event read last */

/* Returns the number of the next event; 0: the last record, or the end without it. */
static uint64_t next(struct consumer *c)
{
        uint64_t found = 0;

        record = (struct live_record){};
        do {
                size_t at = c->used % RING_BYTES;

                while (c->received - c->used < LIVE_RECORD_BYTES)
                        if (!receive_some(c))
                                return 0;
                memcpy(&record, c->ring + at, sizeof record);
                assert_true(record.record_bytes <= RING_BYTES - at && record.record_bytes % 64 == 0);
                if (record.record_bytes == 0)
                        return 0;
                while (c->received - c->used < record.record_bytes)
                        if (!receive_some(c))
                                return 0;
                if (record.event_bytes > 0)
                        memcpy(&found, c->ring + at + LIVE_RECORD_BYTES, sizeof found);
                c->used += record.record_bytes;
        } while (record.event_bytes == 0);
        return found;
}

static void release(struct consumer *c)
{
        char line[64];

        snprintf(line, sizeof line, "read %llu", (unsigned long long)c->used);
        send_line(c, line);
}

static unsigned count_descriptors(void)
{
        DIR *d = opendir("/proc/self/fd");
        unsigned n = 0;

        while (readdir(d))
                n++;
        closedir(d);
        return n;
}

/* ---- Tests ---- */

static struct consumer a, b;

/* Offers events until the ring is full, or `most` times. */
static uint64_t fill(uint64_t most)
{
        uint64_t n = 0;

        while (n < most && offer().given == 1)
                n++;
        return n;
}

static void until_full_again(uint64_t n)
{
        uint64_t deadline_ns = clock_now_ns() + WAIT_NS;

        for (uint64_t got = 0; got < n; turn()) {
                got += fill(n - got);
                assert_true(clock_now_ns() < deadline_ns);
        }
}

TEST_EACH(events_arrive_in_order_with_their_counts, with_key, 2)
{
        uint64_t expected = 0, n;

        set_up(NULL);
        if (with_key) {
                server = live_server_free(server, false);
                open_server(&key);
                introduce(&a, &key);
        }
        connect_consumer(&a, "mode=all");
        n = fill(UINT64_MAX);
        assert_true(n > 50);
        for (int round = 0; round < 30; round++) {
                uint64_t last;

                for (uint64_t i = 0; i < 16; i++) {
                        uint64_t found = next(&a);

                        assert_true(found > expected);
                        expected = found;
                        assert_int_equal(record.given + record.skipped, record.offered);
                        assert_int_equal(record.event_bytes, EVENT_BYTES);
                }
                last = number;
                release(&a);
                /* At the end of the ring, a record may not fit. */
                until_full_again(15);
                assert_true(number > last);
        }
        server = live_server_free(server, true);
        while ((n = next(&a)) > 0)
                expected = n;
        assert_fields(&record, record_bytes, 0, offered, number);
        assert_int_equal(record.given + record.skipped, number);
        close_consumer(&a);
        a.is_tagged = false;
        loop = loop_free(loop);
}

TEST_WITH(newest_waits_for_the_position, set_up, tear_down)
{
        uint64_t deadline_ns = clock_now_ns() + WAIT_NS;

        connect_consumer(&a, "");
        assert_int_equal(offer().given, 1);
        assert_int_equal(next(&a), 1);
        for (int i = 0; i < 5; i++)
                assert_int_equal(offer().skipped, 1);
        release(&a);
        for (turn(); offer().given == 0; turn())
                assert_true(clock_now_ns() < deadline_ns);
        assert_int_equal(next(&a), number);
        assert_int_equal(record.skipped, number - 2);
        close_consumer(&a);
}

TEST_WITH(a_false_line_ends_the_connection, set_up, tear_down)
{
        static const struct {
                const char *line, *answer;
        } lines[] = {
                {"read 2176", NULL},
                {"read 100", NULL},
                {"read 18446744073709551616", "error invalid position"},
                {"read 64 ", "error invalid position"},
                {"read -64", "error invalid line; expected read POSITION"},
                {"", "error invalid line; expected read POSITION"},
                {LIVE_GREETING, "error invalid line; expected read POSITION"},
        };

        for (size_t i = 0; i < ARRAY_SIZE(lines); i++) {
                connect_consumer(&a, "mode=skip");
                assert_int_equal(offer().given, 1);
                assert_int_equal(next(&a), number);
                assert_int_equal(a.used, RECORD_BYTES);
                send_line(&a, lines[i].line);
                if (lines[i].answer)
                        assert_line(&a, lines[i].answer);
                assert_closed(&a);
                assert_false(live_server_is_wanted(server));
        }
        connect_consumer(&a, "mode=skip");
        (void)offer();
        assert_true(receive_some(&a));
        a.used = RECORD_BYTES;
        release(&a);
        /* It goes back. */
        send_line(&a, "read 0");
        assert_closed(&a);
        open_consumer(&a);
        send_line(&a, "GET / HTTP/1.1");
        assert_line(&a, "error invalid request; expected a consumer of live events, version 1");
        assert_closed(&a);
        open_consumer(&a);
        for (int i = 0; i < 20; i++)
                send_text(&a, "evb-live 1 ring=64KiB mode=newest ");
        assert_line(&a, "error the request is too long");
        assert_closed(&a);
}

TEST_WITH(only_consumers_with_the_key_get_events, set_up, tear_down)
{
        static const char no_key[] =
                "error this SFI has a key; expected a consumer with the same key (network.key-file)";
        static const char other_key[] = "error the consumer has another key than this SFI (network.key-file)";
        struct auth_key wrong;

        open_consumer(&a);
        send_line(&a, "key 00112233445566778899aabbccddeeff");
        assert_line(&a, "error this SFI has no key (network.key-file); expected no key");
        assert_closed(&a);

        server = live_server_free(server, false);
        open_server(&key);
        for (int i = 0; i < 3; i++) {
                open_consumer(&a);
                send_line(&a, i == 0 ? LIVE_GREETING : i == 1 ? "key 0011" : "key");
                assert_line(&a, no_key);
                assert_closed(&a);
        }
        assert_int_equal(auth_key_init(&wrong, (const uint8_t *)"kez", 3), 0);
        introduce(&a, &wrong);
        send_line(&a, LIVE_GREETING);
        a.is_tagged = false;
        assert_line(&a, other_key);
        assert_closed(&a);
        /* Without a tag after the request, and the same line again. */
        for (int i = 0; i < 2; i++) {
                introduce(&a, &key);
                connect_consumer(&a, "mode=skip");
                assert_int_equal(offer().given, 1);
                assert_int_equal(next(&a), number);
                a.is_tagged = i;
                release(&a);
                if (i) {
                        a.auth.sent--;
                        release(&a);
                }
                a.is_tagged = false;
                assert_line(&a, other_key);
                assert_closed(&a);
        }
        introduce(&a, &key);
        connect_consumer(&a, "mode=skip");
        close_consumer(&a);
        a.is_tagged = false;
}

TEST_WITH(events_of_a_dead_consumer_go_to_its_group, set_up, tear_down)
{
        bool found[64] = {};
        uint64_t deadline_ns = clock_now_ns() + WAIT_NS;

        connect_consumer(&a, "mode=skip group=a");
        connect_consumer(&b, "mode=skip group=a");
        for (int i = 0; i < 40; i++)
                assert_int_equal(offer().given, 1);
        /* It has finished one event, and works on another one. */
        assert_true(next(&a) > 0);
        release(&a);
        assert_true(next(&a) > 0);
        close_consumer(&a);
        for (int i = 0; i < 39; i++) {
                uint64_t event = next(&b);

                assert_true(event > 1 && event <= 40 && !found[event]);
                found[event] = true;
                release(&b);
                assert_true(clock_now_ns() < deadline_ns);
        }
        close_consumer(&b);
}

TEST_WITH(what_a_consumer_finished_before_its_end_goes_to_no_other, set_up, tear_down)
{
        static const struct linger at_once = {.l_onoff = 1};
        char lines[2000];
        size_t n = 0;

        connect_consumer(&a, "mode=skip group=a");
        connect_consumer(&b, "mode=skip group=a");
        for (int i = 0; i < 80; i++)
                assert_int_equal(offer().given, 1);
        while (a.received < 40 * RECORD_BYTES)
                assert_true(receive_some(&a));
        /* More than the server reads at once, in one segment: the kernel drops what it has not sent. */
        for (unsigned i = 1; i <= 120; i++)
                n += (size_t)snprintf(lines + n, sizeof lines - n, "read %u\n", RECORD_BYTES * MIN(i, 40u));
        send_text(&a, lines);
        assert_int_equal(setsockopt(a.fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once), 0);
        close_consumer(&a);
        /* This one is for the consumer that has ended: the server finds the end when it sends. */
        assert_int_equal(offer().given, 1);
        for (int i = 0; i < 41; i++) {
                assert_int_equal(next(&b), i < 40 ? 2 * i + 2 : 81);
                release(&b);
        }
        assert_int_equal(offer().given, 1);
        assert_int_equal(next(&b), 82);
        close_consumer(&b);
}

TEST_WITH(the_death_of_the_sfi_has_no_last_record, set_up, tear_down)
{
        connect_consumer(&a, "mode=skip");
        assert_int_equal(offer().given, 1);
        live_server_free(server, false);
        assert_int_equal(next(&a), 1);
        assert_int_equal(next(&a), 0);
        assert_int_equal(a.received, a.used);
        close_consumer(&a);
        open_server(NULL);
}

/* What had not arrived is counted in mode all, and the kernel still sends what its buffer has. */
TEST_WITH(events_that_have_not_arrived_at_the_end_are_counted, set_up, tear_down)
{
        uint64_t found = 0, offered = 0, missed;

        small_buffer = 4096;
        connect_consumer(&a, "mode=all");
        connect_consumer(&b, "mode=skip");
        small_buffer = 0;
        while (offer().given == 2)
                offered++;
        missed = live_server_finish(server, true);
        assert_true(missed > 0 && missed <= offered);
        assert_int_equal(live_server_finish(server, true), 0);
        server = live_server_free(server, true);
        while (next(&a) > 0)
                found++;
        assert_true(found >= offered - missed);
        close_consumer(&a);
        close_consumer(&b);
}

TEST_WITH(two_thousand_connections_leave_no_descriptor, set_up, tear_down)
{
        unsigned before = count_descriptors();
        uint64_t deadline_ns = clock_now_ns() + 2 * WAIT_NS;
        static const struct linger at_once = {.l_onoff = 1};

        for (int i = 0; i < 2000; i++) {
                open_consumer(&a);
                send_text(&a, i % 3 ? LIVE_GREETING " ring=64KiB\n" : i % 2 ? "evb-live 1 x=\n" : "ev");
                turn();
                (void)offer();
                assert_int_equal(setsockopt(a.fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once), 0);
                close_consumer(&a);
        }
        for (turn(); count_descriptors() != before || live_server_is_wanted(server); turn())
                assert_true(clock_now_ns() < deadline_ns);
}

/* ---- Acknowledged events ---- */

#define TAGS 8u

static int set_up_acknowledged(void **state)
{
        n_tags = TAGS;
        set_up(state);
        n_tags = 0;
        return 0;
}

static struct live_outcome offer_tagged(uint32_t tag, bool again, bool may_wait)
{
        struct live_event event = {.tag = tag, .is_again = again};

        event.number = number = 100 + tag;
        return offer_event(&event, may_wait);
}

/* Waits for the end of an event. */
static void assert_end(uint32_t tag, bool is_acknowledged)
{
        uint64_t deadline_ns = clock_now_ns() + WAIT_NS;
        struct live_end end;

        for (turn(); live_server_collect(server, &end, 1) == 0; turn())
                assert_true(clock_now_ns() < deadline_ns);
        assert_fields(&end, tag, tag, is_acknowledged, is_acknowledged);
}

static void assert_no_end(void)
{
        struct live_end end;

        turn();
        assert_int_equal(live_server_collect(server, &end, 1), 0);
}

TEST_WITH(an_event_ends_when_its_consumer_has_finished_it, set_up_acknowledged, tear_down)
{
        struct live_outcome outcome = offer_tagged(3, false, true);

        assert_true(outcome.waits && outcome.has_no_consumer && !outcome.is_held);
        outcome = offer_tagged(3, false, false);
        assert_true(!outcome.waits && outcome.has_no_consumer && !outcome.is_held);
        connect_consumer(&a, "mode=all");
        connect_consumer(&b, "mode=skip");
        outcome = offer_tagged(3, false, true);
        assert_true(!outcome.waits && !outcome.has_no_consumer && outcome.is_held);
        assert_true(offer_tagged(5, false, true).is_held);
        assert_int_equal(next(&b), 103);
        release(&b);
        assert_int_equal(next(&a), 103);
        assert_no_end();
        release(&a);
        assert_end(3, true);
        assert_int_equal(next(&a), 105);
        close_consumer(&a);
        assert_end(5, false);
        /* Others that get all events get it again, and the counts do not change. */
        connect_consumer(&a, "mode=all group=a");
        outcome = offer_tagged(5, true, true);
        assert_true(outcome.is_held && outcome.given == 0 && outcome.skipped == 0);
        assert_int_equal(next(&a), 105);
        assert_fields(&record, offered, 0, given, 0);
        release(&a);
        assert_end(5, true);
        assert_int_equal(next(&b), 105);
        assert_true(offer_tagged(6, false, true).is_held);
        assert_int_equal(next(&b), 106);
        close_consumer(&a);
        close_consumer(&b);
}

TEST_WITH(an_event_of_a_dead_consumer_ends_when_its_group_has_finished_it, set_up_acknowledged, tear_down)
{
        connect_consumer(&a, "mode=all group=a");
        connect_consumer(&b, "mode=all group=a");
        assert_true(offer_tagged(0, false, true).is_held && offer_tagged(1, false, true).is_held);
        assert_true(next(&a) > 0);
        close_consumer(&a);
        for (int i = 0; i < 2; i++) {
                uint64_t event = next(&b);

                assert_no_end();
                release(&b);
                assert_end((uint32_t)event - 100, true);
        }
        /* Nothing is left in the group. */
        assert_true(offer_tagged(2, false, true).is_held);
        close_consumer(&b);
        assert_end(2, false);
        assert_int_equal(live_server_end_groups(server), 0);
}

TEST_WITH(each_of_several_consumers_must_finish_an_event_or_end, set_up_acknowledged, tear_down)
{
        connect_consumer(&a, "mode=all");
        connect_consumer(&b, "mode=all");
        assert_true(offer_tagged(0, false, true).is_held);
        assert_int_equal(next(&a), 100);
        release(&a);
        assert_no_end();
        close_consumer(&b);
        assert_end(0, true);
        close_consumer(&a);
}

TEST_WITH(a_consumer_that_holds_an_event_for_too_long_is_disconnected, set_up_acknowledged, tear_down)
{
        connect_consumer(&a, "mode=all");
        assert_true(offer_tagged(2, false, true).is_held);
        live_server_end_holders(server, 1);
        assert_int_equal(next(&a), 102);
        assert_no_end();
        live_server_end_holders(server, 2);
        assert_end(2, false);
        assert_closed(&a);
}

TEST_WITH(a_consumer_that_lies_acknowledges_nothing, set_up_acknowledged, tear_down)
{
        connect_consumer(&a, "mode=all");
        assert_true(offer_tagged(0, false, true).is_held);
        assert_int_equal(next(&a), 100);
        send_line(&a, "read 2176");
        assert_end(0, false);
        assert_closed(&a);
        open_consumer(&a);
        send_line(&a, LIVE_GREETING " mode=all stride=2");
        assert_line(&a,
                    "error mode: with sfi.output = live, consumers in mode all get each event; expected no "
                    "stride, fraction, trigger-type and status");
        assert_closed(&a);
}
