/* The server of live events with consumers that come, sleep, lie and die, all in one thread. */
#include "../test.h"

#include <dirent.h>
#include <malloc.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/random.h"
#include "live/live_client.h"
#include "live/live_server.h"

#define EVENT_BYTES 1000u
#define RING_EVENTS (65536u / (64 + 1024)) /* of a ring of 64 KiB */

static char directory[64], path[80], address[96];
static struct loop *loop;
static struct live_server *server;
static const struct live_settings local = {.path = path, .allows_all = true};
static uint64_t number; /* of the event offered last */
static unsigned encoded;
static size_t event_bytes;
static struct live_record record; /* of the event read last */

static int set_up(void **state)
{
        struct error e = {};

        strcpy(directory, "/tmp/evb-live-XXXXXX");
        if (!mkdtemp(directory))
                return -1;
        snprintf(path, sizeof path, "%s/socket", directory);
        snprintf(address, sizeof address, "unix:%s", path);
        number = encoded = 0;
        event_bytes = EVENT_BYTES;
        if (loop_new(&loop) < 0)
                return -1;
        return live_server_new(&server, &local, loop, &e);
}

static int tear_down(void **state)
{
        server = live_server_free(server, false);
        loop = loop_free(loop);
        return rmdir(directory);
}

static int encode(void *ctx, bool needed, const struct iovec **iov, size_t *n_iov, size_t *size_bytes)
{
        static uint8_t rest[1 << 16];
        static struct iovec parts[2];

        parts[0] = (struct iovec){&number, sizeof number};
        parts[1] = (struct iovec){rest, event_bytes - sizeof number};
        encoded++;
        *iov = parts;
        *n_iov = 2;
        *size_bytes = event_bytes;
        return 0;
}

static struct live_outcome offer(void)
{
        struct live_event event = {};

        event.number = ++number;
        return live_server_offer(server, &event, false, encode, NULL);
}

/* Offers `n` events, each of which so many consumers get. */
static void offer_to(unsigned consumers, uint64_t n)
{
        for (uint64_t i = 0; i < n; i++)
                assert_int_equal(offer().given, consumers);
}

/* Lets the server process all that has come. */
static void turn(void)
{
        for (int i = 0; i < 4; i++)
                assert_int_equal(loop_wait(loop, 1), 0);
}

static int connect_only(const char *request)
{
        struct sockaddr_un a = {.sun_family = AF_UNIX};
        int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

        strcpy(a.sun_path, path);
        assert_int_equal(connect(fd, (struct sockaddr *)&a, sizeof a), 0);
        assert_int_equal(send(fd, request, strlen(request), MSG_NOSIGNAL), strlen(request));
        return fd;
}

static int connect_raw(const char *request)
{
        int fd = connect_only(request);

        turn();
        return fd;
}

/* As live_client_open(), which would wait for an answer that only this thread sends. */
static void open_client(struct live_client *c, const char *options)
{
        char request[LIVE_LINE_MAX], answer[LIVE_LINE_MAX] = "";
        union {
                struct cmsghdr header;
                char bytes[CMSG_SPACE(sizeof(int))];
        } control;
        struct iovec text = {answer, sizeof answer - 1};
        struct msghdr m = {
                .msg_iov = &text, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
        struct cmsghdr *first;
        int fd = -1;

        snprintf(request, sizeof request, LIVE_GREETING "%s %s\n",
                 strstr(options, "ring=") ? "" : " ring=64KiB", options);
        *c = (struct live_client){.fd = connect_raw(request)};
        assert_true(recvmsg(c->fd, &m, MSG_CMSG_CLOEXEC) > 0);
        assert_string_equal(answer, LIVE_GREETING "\n");
        first = CMSG_FIRSTHDR(&m);
        if (first)
                memcpy(&fd, CMSG_DATA(first), sizeof fd);
        assert_int_equal(live_ring_map(&c->ring, fd), 0);
        close(fd);
}

static void open_clients(struct live_client *c, size_t n, const char *options)
{
        for (size_t i = 0; i < n; i++)
                open_client(&c[i], options);
}

static void close_clients(struct live_client *c, size_t n)
{
        for (size_t i = 0; i < n; i++)
                live_client_close(&c[i]);
}

static void assert_answer(int fd, const char *answer)
{
        char line[LIVE_LINE_MAX] = "";

        assert_true(recv(fd, line, sizeof line - 1, MSG_DONTWAIT) >= 0);
        assert_string_equal(line, answer);
}

static void assert_refused(const char *request, const char *answer)
{
        int fd = connect_raw(request);
        char byte;

        assert_answer(fd, answer);
        assert_int_equal(recv(fd, &byte, 1, 0), 0);
        close(fd);
}

/* The number of the next event; 0: none now. */
static uint64_t next(struct live_client *c)
{
        uint64_t found;
        int r;
        const uint8_t *event = live_client_next(c, 0, &record, &r);

        if (!event)
                return 0;
        memcpy(&found, event, sizeof found);
        return found;
}

/* The next events of this consumer are these. */
static void reads(struct live_client *c, uint64_t first, uint64_t step, uint64_t last)
{
        for (uint64_t i = first; i <= last; i += step)
                assert_int_equal(next(c), i);
}

/* ... and it has no others. */
static void reads_all(struct live_client *c, uint64_t first, uint64_t step, uint64_t last)
{
        reads(c, first, step, last);
        assert_int_equal(next(c), 0);
}

static unsigned count_descriptors(void)
{
        DIR *d = opendir("/proc/self/fd");
        unsigned n = 0;

        while (d && readdir(d))
                n++;
        if (d)
                closedir(d);
        return n;
}

TEST_WITH(nothing_is_offered_without_consumers, set_up, tear_down)
{
        int silent;

        assert_false(live_server_is_wanted(NULL));
        assert_false(live_server_is_wanted(server));
        silent = connect_raw("evb-live 1 mode=sk");
        assert_false(live_server_is_wanted(server));
        assert_int_equal(send(silent, "ip\n", 3, 0), 3);
        turn();
        assert_true(live_server_is_wanted(server));
        close(silent);
        turn();
        assert_false(live_server_is_wanted(server));
}

TEST_WITH(newest_gives_an_event_only_to_a_consumer_that_waits, set_up, tear_down)
{
        struct live_client c;

        open_client(&c, "");
        assert_int_equal(offer().given, 1);
        assert_int_equal(offer().skipped, 1);
        assert_int_equal(next(&c), 1);
        /* It still uses event 1. */
        assert_int_equal(offer().skipped, 1);
        assert_int_equal(next(&c), 0);
        assert_int_equal(offer().given, 1);
        assert_int_equal(next(&c), 4);
        assert_fields(&record, offered, 4, given, 2, skipped, 2, event_bytes, EVENT_BYTES);
        assert_int_equal(encoded, 2);
        live_client_close(&c);
}

TEST_WITH(skip_gives_what_fits_and_counts_the_gaps, set_up, tear_down)
{
        struct live_client c;
        unsigned given = 0, n = 0;

        open_client(&c, "mode=skip stride=2");
        for (int i = 0; i < 1000; i++)
                given += offer().given;
        assert_int_equal(given, RING_EVENTS);
        while (next(&c)) {
                n++;
                assert_fields(&record, offered, 2 * n - 1, given, n, skipped, 0);
        }
        assert_int_equal(n, given);
        assert_int_equal(offer().given, 1);
        assert_int_equal(next(&c), 1001);
        assert_fields(&record, offered, 1001, given, given + 1, skipped, 500 - given);
        live_client_close(&c);
}

TEST_WITH(a_consumer_that_sleeps_is_woken_once_for_all_its_events, set_up, tear_down)
{
        struct live_client c;
        char woken[4];

        open_client(&c, "mode=skip");
        live_server_wake(server);
        assert_int_equal(next(&c), 0); /* it sleeps now */
        offer_to(1, 3);
        assert_true(recv(c.fd, woken, sizeof woken, MSG_DONTWAIT) < 0);
        live_server_wake(server);
        live_server_wake(server);
        assert_int_equal(recv(c.fd, woken, sizeof woken, MSG_DONTWAIT), 1);
        reads(&c, 1, 1, 3);
        live_client_close(&c);
}

TEST_WITH(each_event_goes_to_one_consumer_of_a_group, set_up, tear_down)
{
        struct live_client c[3], other;
        unsigned n[3] = {};

        open_clients(c, 3, "mode=skip group=a");
        open_client(&other, "mode=skip group=b");
        assert_refused("evb-live 1 group=a ring=64KiB\n",
                       "error group: another consumer of this group has other options\n");
        offer_to(2, 30);
        for (int i = 0; i < 3; i++) {
                for (uint64_t last = 0, e; (e = next(&c[i])); last = e, n[i]++)
                        assert_true(e > last && record.given == e);
                assert_int_equal(n[i], 10);
        }
        assert_int_equal(next(&other), 1);
        /* The others receive what a dead one would have. */
        live_client_close(&c[1]);
        turn();
        offer_to(2, 10);
        for (int i = 0; i < 5; i++) {
                assert_true(next(&c[0]) > 30);
                assert_true(next(&c[2]) > 30);
        }
        assert_int_equal(next(&c[0]) + next(&c[2]), 0);
        live_client_close(&c[0]);
        live_client_close(&c[2]);
        live_client_close(&other);
}

TEST_WITH(a_consumer_that_lies_loses_only_its_own_events, set_up, tear_down)
{
        struct live_client false_one, other;
        char byte;

        open_client(&false_one, "mode=skip");
        open_client(&other, "mode=skip");
        assert_int_equal(offer().given, 2);
        atomic_store(&false_one.ring.head->read, 1 << 20);
        offer_to(1, 3);
        turn();
        assert_int_equal(recv(false_one.fd, &byte, 1, 0), 0);
        assert_true(live_server_is_wanted(server));
        reads(&other, 1, 1, 4);
        live_client_close(&false_one);
        live_client_close(&other);
}

TEST_WITH(events_that_a_dead_consumer_has_not_read_go_to_the_others_of_its_group, set_up, tear_down)
{
        struct live_client c[3], other;

        open_clients(c, 3, "mode=skip group=a");
        open_client(&other, "mode=skip group=b");
        offer_to(2, 9);
        /* c[1] has 2, 5 and 8, and works on 5. */
        assert_int_equal(next(&c[1]), 2);
        assert_int_equal(next(&c[1]), 5);
        live_client_close(&c[1]);
        turn();
        reads(&c[0], 1, 3, 7);
        assert_int_equal(next(&c[0]), 5);
        assert_fields(&record, offered, 9, given, 9, skipped, 0);
        assert_int_equal(next(&c[0]), 0);
        reads(&c[2], 3, 3, 9);
        assert_int_equal(next(&c[2]), 8);
        /* The last one of a group leaves nothing. */
        assert_int_equal(offer().given, 2);
        live_client_close(&c[0]);
        live_client_close(&c[2]);
        turn();
        open_client(&c[0], "mode=skip group=a");
        assert_int_equal(next(&c[0]), 0);
        reads_all(&other, 1, 1, 10);
        live_client_close(&c[0]);
        live_client_close(&other);
}

TEST_WITH(events_of_a_false_consumer_go_to_the_others_of_its_group, set_up, tear_down)
{
        struct live_client c[2];

        open_clients(c, 2, "mode=skip group=a");
        offer_to(1, 8);
        assert_int_equal(next(&c[1]), 2);
        assert_int_equal(next(&c[1]), 4);
        /* With 10, the server sees that 2 is released. Then the consumer overwrites the ring. */
        offer_to(1, 2);
        for (size_t at = 0; at < c[1].ring.data_bytes; at += 64)
                memset(c[1].ring.data + at, 0xff, at % 1088 == 0 ? 64 : 0);
        atomic_store(&c[1].ring.head->read, 1 << 20);
        offer_to(1, 2);
        turn();
        reads(&c[0], 1, 2, 11);
        assert_int_equal(next(&c[0]), 12);
        reads_all(&c[0], 4, 2, 10);
        live_client_close(&c[0]);
        live_client_close(&c[1]);
}

/* The dead consumer's place, or its memory, is used for a new one. */
TEST_EACH(a_dead_consumer_gives_way_to_new_ones, i, 2)
{
        struct live_client c[LIVE_CONSUMERS_MAX], last;
        size_t n = i == 0 ? LIVE_CONSUMERS_MAX : 2;
        uint64_t given = 0;

        assert_int_equal(set_up(NULL), 0);
        open_client(&c[0], "mode=skip group=a");
        open_client(&c[1], "mode=skip group=a");
        while (offer().given > 0)
                given++;
        assert_int_equal(given, 2 * RING_EVENTS);
        live_client_close(&c[1]);
        turn();
        open_clients(c + 2, n - 2, "");
        open_client(&last, i == 0 ? "" : "ring=262080KiB");
        reads_all(&c[0], 1, 2, given);
        offer();
        assert_int_equal(next(&c[0]), number);
        assert_int_equal(next(&c[0]), 0);
        live_client_close(&c[0]);
        close_clients(c + 2, n - 2);
        live_client_close(&last);
        tear_down(NULL);
}

TEST_WITH(at_the_end_events_of_a_dead_consumer_go_to_the_others_of_its_group, set_up, tear_down)
{
        struct live_client c[3];
        struct error e = {};
        int r;

        open_clients(c, 3, "mode=skip group=a");
        offer_to(1, 9);
        /* The server has not seen its end yet. */
        live_client_close(&c[2]);
        server = live_server_free(server, true);
        for (uint64_t i = 0; i < 2; i++) {
                for (uint64_t k = 0; k < 3; k++)
                        assert_int_equal(next(&c[i]), 1 + i + 3 * k);
        }
        assert_int_equal(next(&c[0]), 3);
        assert_int_equal(next(&c[0]), 9);
        assert_int_equal(next(&c[1]), 6);
        for (int i = 0; i < 2; i++) {
                assert_null(live_client_next(&c[i], -1, &record, &r));
                assert_true(c[i].has_ended);
                live_client_close(&c[i]);
        }
        assert_int_equal(live_server_new(&server, &local, loop, &e), 0);
}

static struct live_outcome offer_or_wait(void)
{
        struct live_event event = {.number = ++number};
        struct live_outcome outcome = live_server_offer(server, &event, true, encode, NULL);

        number -= outcome.waits;
        return outcome;
}

/* Offers events, at most 1000, until a consumer in mode all has no room. */
static uint64_t fill(void)
{
        struct live_outcome outcome = {};
        uint64_t n = 0;

        for (; n < 1000 && !(outcome = offer_or_wait()).waits; n++)
                assert_int_equal(outcome.skipped, 0);
        assert_int_equal(outcome.waits ? outcome.given + outcome.skipped : 0, 0);
        return n;
}

TEST_WITH(in_mode_all_no_event_is_skipped, set_up, tear_down)
{
        struct live_client c, other;

        open_client(&c, "mode=all stride=2");
        open_client(&other, "mode=skip ring=1MiB");
        assert_int_equal(fill(), 2 * RING_EVENTS);
        /* It does not request the next event. */
        for (uint64_t i = 1; i <= number; i += 2) {
                assert_int_equal(next(&c), i);
                assert_fields(&record, skipped, 0, given, (i + 1) / 2);
        }
        assert_int_equal(next(&c), 0);
        assert_int_equal(fill(), 2 * RING_EVENTS);
        /* An event that waits is offered to no other consumer. */
        reads_all(&other, 1, 1, number);
        live_client_close(&other);
        /* A consumer that ends delays nothing. */
        live_client_close(&c);
        turn();
        assert_int_equal(fill(), 1000);
}

TEST_WITH(an_event_that_no_ring_can_hold_delays_nothing, set_up, tear_down)
{
        struct live_client c;

        open_client(&c, "mode=all");
        event_bytes = 40000;
        assert_int_equal(offer_or_wait().missed, 1);
        event_bytes = EVENT_BYTES;
        assert_int_equal(offer().given, 1);
        assert_int_equal(next(&c), 2);
        assert_fields(&record, skipped, 1, given, 1);
        live_client_close(&c);
}

TEST_WITH(in_mode_all_events_of_a_dead_consumer_are_never_lost, set_up, tear_down)
{
        struct live_client c[LIVE_CONSUMERS_MAX];
        uint64_t n = RING_EVENTS;

        open_clients(c, 2, "mode=all group=a");
        assert_int_equal(fill(), 2 * n);
        assert_true(live_server_is_settled(server));
        /* A false consumer is disconnected while its group waits. */
        atomic_store(&c[1].ring.head->read, 1);
        assert_int_equal(fill(), 0);
        turn();
        live_client_close(&c[1]);
        assert_false(live_server_is_settled(server));
        open_clients(c + 1, LIVE_CONSUMERS_MAX - 2, "");
        assert_refused("", "error this SFI has as many consumers as it can serve\n");
        reads_all(&c[0], 1, 2, 2 * n);
        assert_true(live_server_is_settled(server));
        assert_int_equal(fill(), 0);
        reads(&c[0], 2, 2, 2 * n);
        close_clients(c, LIVE_CONSUMERS_MAX - 1);
}

TEST_EACH(events_that_no_consumer_of_the_group_gets_are_counted, i, 2)
{
        static const char *const modes[] = {"mode=skip group=a", "mode=all group=a"};
        struct live_client c[2];
        uint64_t n = RING_EVENTS;

        set_up(NULL);
        open_clients(c, 2, modes[i]);
        offer_to(1, 2 * n);
        assert_int_equal(live_server_end_groups(server), 0);
        live_client_close(&c[1]);
        turn();
        /* It releases 3 events. */
        for (int k = 0; k < 4; k++)
                assert_true(next(&c[0]) > 0);
        assert_int_equal(live_server_end_groups(server), n - 3);
        /* The server has not seen its end yet. */
        live_client_close(&c[0]);
        assert_int_equal(live_server_finish(server, true), 0);
        assert_int_equal(live_server_end_groups(server), 2 * n - 3);
        assert_int_equal(live_server_end_groups(NULL), 0);
        tear_down(NULL);
}

/* There are more of them than the server passes on at once. */
TEST_WITH(in_mode_all_events_of_a_dead_consumer_do_not_use_the_room_of_the_next_event, set_up, tear_down)
{
        struct live_client c[2];

        event_bytes = 60000;
        open_clients(c, 2, "mode=all group=a ring=2MiB");
        assert_true(fill() > 60);
        live_client_close(&c[1]);
        turn();
        for (int i = 0; i < 10; i++)
                assert_true(next(&c[0]) > 0);
        assert_true(fill() > 0);
        live_client_close(&c[0]);
}

/* Returns how many events have ended, which their consumers have finished. */
static size_t collect(void)
{
        struct live_end ends[4];
        size_t n = live_server_collect(server, ends, ARRAY_SIZE(ends));

        for (size_t i = 0; i < n; i++)
                assert_true(ends[i].is_acknowledged);
        return n;
}

/* After the last event of a run, or in a pause, no offer follows. */
TEST_WITH(events_of_a_dead_consumer_go_to_its_group_without_a_further_offer, set_up, tear_down)
{
        struct live_settings settings = local;
        struct live_client c[2];
        struct error e = {};

        server = live_server_free(server, false);
        settings.n_tags = 4;
        assert_int_equal(live_server_new(&server, &settings, loop, &e), 0);
        event_bytes = 30000;
        open_clients(c, 2, "mode=all group=a");
        for (uint32_t tag = 0; tag < 4; tag++) {
                struct live_event event = {.number = ++number, .tag = tag};

                assert_true(live_server_offer(server, &event, true, encode, NULL).is_held);
        }
        live_client_close(&c[1]);
        turn();
        assert_int_equal(collect(), 0);
        reads_all(&c[0], 1, 2, 3);
        assert_int_equal(collect(), 2);
        reads_all(&c[0], 2, 2, 4);
        assert_int_equal(collect(), 2);
        live_client_close(&c[0]);
}

TEST_WITH(mode_all_needs_permission, set_up, tear_down)
{
        struct error e = {};

        server = live_server_free(server, false);
        assert_int_equal(live_server_new(&server, &(struct live_settings){.path = path}, loop, &e), 0);
        assert_refused("evb-live 1 mode=all\n",
                       "error mode: all is not allowed at this SFI; expected newest or skip, or "
                       "live.all = yes there\n");
        assert_true(live_server_is_settled(server) && live_server_is_settled(NULL));
}

TEST_WITH(wrong_requests_are_answered_and_end, set_up, tear_down)
{
        char many[2 * LIVE_LINE_MAX];
        struct live_client c;
        char byte;

        assert_refused("GET / HTTP/1.1\n",
                       "error invalid request; expected a consumer of live events, version 1\n");
        assert_refused("evb-live 1 mode=each\n", "error mode: invalid value; expected newest, skip or all\n");
        memset(many, 'x', sizeof many);
        many[LIVE_LINE_MAX - 1] = '\0';
        assert_refused(many, "error the request is too long\n");
        /* After the request, a consumer has nothing to say. */
        open_client(&c, "");
        assert_int_equal(send(c.fd, "x", 1, 0), 1);
        turn();
        assert_int_equal(recv(c.fd, &byte, 1, 0), 0);
        live_client_close(&c);
}

TEST_WITH(silent_clients_give_way_and_consumers_do_not, set_up, tear_down)
{
        struct live_client c[LIVE_CONSUMERS_MAX];
        int silent[LIVE_CONSUMERS_MAX + 4];

        for (size_t i = 0; i < ARRAY_SIZE(silent); i++)
                silent[i] = connect_raw("evb-live");
        open_clients(c, LIVE_CONSUMERS_MAX, "");
        assert_refused("", "error this SFI has as many consumers as it can serve\n");
        assert_int_equal(offer().given, LIVE_CONSUMERS_MAX);
        assert_int_equal(encoded, 1);
        close_clients(c, LIVE_CONSUMERS_MAX);
        for (size_t i = 0; i < ARRAY_SIZE(silent); i++)
                close(silent[i]);
}

TEST_WITH(a_client_whose_request_has_come_is_not_silent, set_up, tear_down)
{
        struct live_client c[LIVE_CONSUMERS_MAX - 1];
        int first, second;

        open_clients(c, ARRAY_SIZE(c), "");
        first = connect_only(LIVE_GREETING "\n");
        second = connect_only(LIVE_GREETING "\n");
        turn();
        assert_answer(first, LIVE_GREETING "\n");
        assert_answer(second, "error this SFI has as many consumers as it can serve\n");
        close_clients(c, ARRAY_SIZE(c));
        close(first);
        close(second);
}

TEST_WITH(all_rings_share_a_limit, set_up, tear_down)
{
        static const char refusal[] =
                "error ring: the rings of an SFI have at most 256MiB together, of which 1024KiB are left\n";
        struct live_client large, small;

        open_client(&large, "ring=255MiB");
        assert_refused(LIVE_GREETING "\n", refusal);
        open_client(&small, "ring=1MiB");
        live_client_close(&small);
        turn();
        assert_refused(LIVE_GREETING " ring=1028KiB\n", refusal);
        live_client_close(&large);
        turn();
        open_client(&small, "ring=256MiB");
        live_client_close(&small);
}

/* Of this process: each has a mapping of its own. */
static unsigned count_rings(void)
{
        FILE *maps = fopen("/proc/self/maps", "r");
        char line[512];
        unsigned n = 0;

        while (maps && fgets(line, sizeof line, maps))
                n += strstr(line, "memfd:evb-live") != NULL;
        if (maps)
                fclose(maps);
        return n;
}

TEST_WITH(ten_thousand_consumers_leave_no_descriptor_and_no_memory, set_up, tear_down)
{
        static const char *const sent[] = {"", "evb-live 1 ring=64KiB\n", "evb-live 1 x=\n",
                                           "evb-live 1 ring=64KiB mode=skip group=a\n"};
        unsigned before = count_descriptors();
        size_t used_bytes = 0;

        for (int i = 0; i < 10000; i++) {
                int fd = connect_raw(sent[i % 4]);

                (void)offer();
                close(fd);
                if (i == 99) {
                        turn();
                        used_bytes = mallinfo2().uordblks;
                }
        }
        turn();
        assert_int_equal(mallinfo2().uordblks, used_bytes);
        assert_false(live_server_is_wanted(server));
        assert_int_equal(count_descriptors(), before);
        assert_int_equal(count_rings(), 0);
}

TEST_WITH(the_end_of_the_run_is_told_from_the_death_of_the_sfi, set_up, tear_down)
{
        struct live_client c[2];
        struct error e = {};

        for (int i = 0; i < 2; i++) {
                int r;

                open_client(&c[i], "mode=skip");
                offer_to(1, 2);
                event_bytes = 40000;
                assert_int_equal(offer().skipped, 1);
                event_bytes = EVENT_BYTES;
                live_server_free(server, i == 0);
                /* Events that are in the ring are not lost. */
                assert_int_equal(next(&c[i]), 3 * i + 1);
                assert_int_equal(next(&c[i]), 3 * i + 2);
                assert_null(live_client_next(&c[i], -1, &record, &r));
                assert_int_equal(r, 0);
                assert_int_equal(c[i].has_ended, i == 0);
                assert_fields(&record, offered, 3, given, 2, skipped, 1);
                live_client_close(&c[i]);
                assert_int_equal(live_server_new(&server, &local, loop, &e), 0);
        }
}

/* What a consumer does next. */
enum { COMES, READS, SLEEPS, LIES, DIES, WAYS };

static const char *const options[] = {"", "mode=skip", "mode=skip group=a", "stride=3",
                                      "mode=skip fraction=0.5"};

struct history {
        struct random random;
        struct live_client c[LIVE_CONSUMERS_MAX];
        uint64_t last[LIVE_CONSUMERS_MAX]; /* event that each consumer received last */
        bool shares[LIVE_CONSUMERS_MAX];   /* in a group, where a dead consumer's events come later */
        uint64_t received;
};

static void act(struct history *h)
{
        uint64_t i = random_below(&h->random, LIVE_CONSUMERS_MAX), way = random_below(&h->random, 40);
        struct live_client *c = &h->c[i];
        uint64_t found;

        if (c->fd < 0) {
                if (way < 4) {
                        const char *chosen = options[random_below(&h->random, ARRAY_SIZE(options))];

                        open_client(c, chosen);
                        h->last[i] = 0;
                        h->shares[i] = strstr(chosen, "group") != NULL;
                }
                return;
        }
        if (way == LIES)
                atomic_store(&c->ring.head->read, random_next(&h->random));
        if (way == DIES || way == LIES) {
                if (way == LIES)
                        (void)offer();
                live_client_close(c);
                turn();
                return;
        }
        while (way > WAYS && (found = next(c)) > 0) {
                assert_true((h->shares[i] || found > h->last[i]) &&
                            record.offered >= record.given + record.skipped);
                h->last[i] = found;
                h->received++;
        }
}

TEST_WITH(consumers_in_random_histories_receive_events_in_order, set_up, tear_down)
{
        for (uint64_t seed = 1; seed <= 50; seed++) {
                struct history h = {};

                random_init(&h.random, seed);
                for (size_t i = 0; i < LIVE_CONSUMERS_MAX; i++)
                        h.c[i].fd = -1;
                for (int i = 0; i < 2000; i++) {
                        act(&h);
                        if (random_below(&h.random, 2))
                                (void)offer();
                }
                for (size_t i = 0; i < LIVE_CONSUMERS_MAX; i++)
                        live_client_close(&h.c[i]);
                turn();
                assert_false(live_server_is_wanted(server));
                assert_true(h.received > 100);
        }
}

/* ---- A group in random histories ---- */

#define SHARED_MAX 4000

struct shared {
        struct random random;
        struct live_client c[8];
        uint64_t current[8]; /* event that each consumer works on; 0: none */
        uint64_t first;      /* number before the first event */
        bool lies;
        uint8_t given[SHARED_MAX], done[SHARED_MAX];
};

static void offer_shared(struct shared *h)
{
        unsigned given = offer().given;

        assert_true(number - h->first < SHARED_MAX);
        h->given[number - h->first] = (uint8_t)given;
}

/* Works on up to `n` events. */
static void work(struct shared *h, size_t i, uint64_t n)
{
        do {
                h->done[h->current[i]]++;
                h->current[i] = next(&h->c[i]);
                h->current[i] -= h->current[i] > 0 ? h->first : 0;
        } while (h->current[i] > 0 && n-- > 0);
}

static void die(struct shared *h, size_t i)
{
        if (h->lies) {
                atomic_store(&h->c[i].ring.head->read, random_next(&h->random) | 1);
                offer_shared(h);
        }
        live_client_close(&h->c[i]);
        h->current[i] = 0;
        turn();
}

static void act_shared(struct shared *h)
{
        uint64_t i = random_below(&h->random, ARRAY_SIZE(h->c)), way = random_below(&h->random, 40);

        if (h->c[i].fd < 0 && way < 4)
                open_client(&h->c[i], "mode=skip group=a");
        else if (h->c[i].fd >= 0 && i > 0 && way < 2)
                die(h, i);
        else if (h->c[i].fd >= 0 && way >= 20)
                work(h, i, way);
}

TEST_WITH(each_event_of_a_group_is_done_once_whoever_dies, set_up, tear_down)
{
        static struct shared h;

        for (uint64_t seed = 1; seed <= 50; seed++) {
                h = (struct shared){.first = number, .lies = seed % 2};
                random_init(&h.random, seed);
                for (size_t i = 1; i < ARRAY_SIZE(h.c); i++)
                        h.c[i].fd = -1;
                open_client(&h.c[0], "mode=skip group=a");
                for (int i = 0; i < 2000; i++) {
                        act_shared(&h);
                        if (random_below(&h.random, 2))
                                offer_shared(&h);
                }
                for (int turns = 0; turns < 20; turns++) {
                        for (size_t i = 0; i < ARRAY_SIZE(h.c); i++) {
                                if (h.c[i].fd >= 0)
                                        work(&h, i, UINT64_MAX);
                        }
                        if (turns < 19)
                                offer_shared(&h);
                }
                /* Who lies does not say what it has done since the server last looked. */
                for (uint64_t i = 1; i <= number - h.first; i++)
                        assert_true(h.lies ? (h.done[i] > 0) == h.given[i] : h.done[i] == h.given[i]);
                for (size_t i = 0; i < ARRAY_SIZE(h.c); i++)
                        live_client_close(&h.c[i]);
                turn();
                assert_false(live_server_is_wanted(server));
        }
}
