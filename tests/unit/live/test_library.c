/* libevb-live with a server that sends what the test says: false answers, false memory, damaged events. */
#include "../test.h"

#include <evb/live.h>

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "format/eformat.h"
#include "live/live_client.h"
#include "live/live_ring.h"
#include "live/live_select.h"
#include "net/tcp.h"

#define RING_BYTES 65536u

static char directory[64], path[80], address[96], error[256];
static int listener, server; /* the server's side of the connection */
static struct live_ring ring;
static int ring_fd;
static struct evb_live *live;
static struct eformat_encoding encoding;
static const struct evb_live_event *event; /* of the last call of evb_live_next() */

static int begin_ring(void)
{
        server = -1;
        live = NULL;
        event = NULL;
        return live_ring_new(&ring, RING_BYTES, &ring_fd);
}

static int set_up(void **state)
{
        struct sockaddr_un a = {.sun_family = AF_UNIX};

        strcpy(directory, "/tmp/evb-live-XXXXXX");
        if (!mkdtemp(directory))
                return -1;
        snprintf(path, sizeof path, "%s/socket", directory);
        snprintf(address, sizeof address, "unix:%s", path);
        strcpy(a.sun_path, path);
        listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (bind(listener, (struct sockaddr *)&a, sizeof a) < 0 || listen(listener, 8) < 0)
                return -1;
        return begin_ring();
}

static int tear_down_remote(void **state)
{
        evb_live_close(live);
        live_ring_free(&ring);
        close(ring_fd);
        if (server >= 0)
                close(server);
        return close(listener);
}

static int tear_down(void **state)
{
        tear_down_remote(state);
        return unlink(path) < 0 || rmdir(directory) < 0 ? -1 : 0;
}

/* What the server sends: an answer, with a descriptor unless it is -1. Then it closes the connection, if the
 * answer is not a line. */
struct answer {
        const char *text;
        int fd;
        char request[LIVE_LINE_MAX]; /* received */
};

/* A thread, because the client waits for the answer. */
static void *serve(void *ctx)
{
        struct answer *a = ctx;
        union {
                struct cmsghdr header;
                char bytes[CMSG_SPACE(sizeof(int))];
        } control = {.header = {CMSG_LEN(sizeof(int)), SOL_SOCKET, SCM_RIGHTS}};
        struct iovec text = {(char *)(uintptr_t)a->text, strlen(a->text)};
        struct msghdr m = {.msg_iov = &text, .msg_iovlen = 1};
        size_t n = 0;

        memcpy(CMSG_DATA(&control.header), &a->fd, sizeof a->fd);
        if (a->fd >= 0) {
                m.msg_control = &control;
                m.msg_controllen = sizeof control;
        }
        server = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
        while (n < sizeof a->request - 1 && recv(server, a->request + n, 1, 0) == 1 &&
               a->request[n++] != '\n')
                ;
        (void)sendmsg(server, &m, MSG_NOSIGNAL);
        if (!strchr(a->text, '\n'))
                close(take_fd(&server));
        return NULL;
}

static int connect_with_key(struct answer *a, const char *options, const struct live_client_key *key)
{
        struct error e = {};
        pthread_t thread;
        int r;

        assert_int_equal(pthread_create(&thread, NULL, serve, a), 0);
        r = key ? live_library_connect(&live, address, options, key, &e)
                : evb_live_connect(&live, address, options, error, sizeof error);
        assert_int_equal(pthread_join(thread, NULL), 0);
        return r;
}

static int connect_with(struct answer *a, const char *options)
{
        return connect_with_key(a, options, NULL);
}

/* The next event cannot be read, for a reason with this text. */
static void fails(int timeout_ms, int result, const char *text)
{
        assert_int_equal(evb_live_next(live, timeout_ms, &event), result);
        assert_non_null(strstr(evb_live_error(live), text));
}

static void connect_to_ring(const char *options, const char *request)
{
        struct answer a = {LIVE_GREETING "\n", ring_fd, ""};

        assert_int_equal(connect_with(&a, options), 0);
        assert_string_equal(a.request, request);
        assert_string_equal(error, "");
}

TEST_WITH(invalid_requests_are_refused_before_they_are_sent, set_up, tear_down)
{
        char options[600];

        assert_int_equal(evb_live_connect(&live, "127.0.0.1", NULL, error, sizeof error), -EINVAL);
        assert_non_null(strstr(error, "expected unix:PATH"));
        assert_int_equal(evb_live_connect(&live, address, "mode=skip\nmode=all", error, sizeof error),
                         -EINVAL);
        assert_non_null(strstr(error, "line break"));
        memset(options, 'a', sizeof options);
        options[sizeof options - 1] = '\0';
        assert_int_equal(evb_live_connect(&live, address, options, error, 10), -EINVAL);
        assert_string_equal(error, "the optio");
        strcat(address, "-none");
        assert_int_equal(evb_live_connect(&live, address, NULL, NULL, 0), -ENOENT);
        assert_null(live);
}

/* A file where the tests run has seals only if this is a tmpfs, and then these are not the right ones. */
static int new_file(void)
{
        char name[] = "evb-ring-XXXXXX";
        int fd = mkostemp(name, O_CLOEXEC);

        unlink(name);
        return fd;
}

static int memory_of(const char *kind)
{
        struct live_ring_head head = {.magic = LIVE_RING_MAGIC, .data_bytes = RING_BYTES};
        bool is_file = strcmp(kind, "file") == 0;
        int fd = is_file ? new_file() : memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);

        if (strcmp(kind, "magic") == 0)
                head.magic++;
        if (strcmp(kind, "size") == 0)
                head.data_bytes *= 2;
        assert_int_equal(write(fd, &head, sizeof head), sizeof head);
        assert_int_equal(ftruncate(fd, strcmp(kind, "small") == 0 ? 4096 : 4096 + RING_BYTES), 0);
        if (!is_file && strcmp(kind, "unsealed") != 0)
                assert_int_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK), 0);
        return fd;
}

TEST_WITH(false_answers_are_refused, set_up, tear_down)
{
        char longest[LIVE_LINE_MAX + 100];
        const struct {
                const char *answer, *memory, *error;
                int result;
        } cases[] = {
                {"", NULL, "no answer", -EPROTO},
                {longest, NULL, "no answer", -EPROTO},
                {"error no place\n", NULL, "no place", -EINVAL},
                {LIVE_GREETING "\n", NULL, "not that of an SFI", -EPROTO},
                {LIVE_GREETING "\n", "magic", "not that of an SFI", -EPROTO},
                {LIVE_GREETING "\n", "size", "not that of an SFI", -EPROTO},
                {LIVE_GREETING "\n", "small", "not that of an SFI", -EPROTO},
                {LIVE_GREETING "\n", "unsealed", "not that of an SFI", -EPROTO},
                {LIVE_GREETING "\n", "file", "not that of an SFI", -EPROTO},
                {"evb-live 2\n", "sound", "not that of an SFI", -EPROTO},
                {LIVE_GREETING "\n", "sound", "", 0},
        };

        memset(longest, 'x', sizeof longest);
        longest[sizeof longest - 1] = '\0';
        for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
                struct answer a = {cases[i].answer, cases[i].memory ? memory_of(cases[i].memory) : -1, ""};

                assert_int_equal(connect_with(&a, NULL), cases[i].result);
                assert_non_null(strstr(error, cases[i].error));
                assert_true(cases[i].result == 0 || !live);
                if (server >= 0)
                        close(take_fd(&server));
                if (a.fd >= 0)
                        close(a.fd);
        }
}

/* Encodes an event of two raw sources, of which the second is missing. */
static void encode(const struct eformat *format, uint64_t number)
{
        struct built_fragment fragments[] = {
                {.data = "abcde", .size_bytes = 5, .source_id = 0x700000, .status = FRAGMENT_OK},
                {.source_id = 0x700001, .order = 1, .status = FRAGMENT_LOST},
        };
        struct built_event built = {
                .info = {.event = number,
                         .global_id = 1000 + number,
                         .l1_id = 77,
                         .time_s = 1700000000,
                         .time_ns = 5,
                         .run = 9,
                         .trigger_type = 3,
                         .spill = 2,
                         .flags = 6},
                .n_fragments = ARRAY_SIZE(fragments),
                .fragments = fragments,
        };
        struct eformat_settings settings = {.sfi_source_id = eformat_sfi_id(0)};

        assert_int_equal(format->encode(&built, &settings, &encoding), 0);
}

static void write_event(uint64_t given)
{
        struct live_record record = {.offered = 10 * given, .given = given, .skipped = 1, .utc_ns = 123};

        assert_int_equal(live_ring_write(&ring, &record, encoding.iov, encoding.n_iov, encoding.size_bytes),
                         LIVE_RING_WRITTEN);
}

/* Event 4, as the first one that this consumer gets. */
static void write_first(void)
{
        encode(&eformat_3, 4);
        write_event(1);
}

static void assert_event(unsigned format)
{
        const struct evb_live_event *e = event;
        const struct evb_live_fragment *f = evb_live_fragment(live, 0);

        assert_fields(e, format, format, number, 4, global_id, 1004, l1_id, 77, run, 9, trigger_type, 3);
        assert_fields(e, spill, 2, trigger_flags, 6, is_complete, false, has_number, true, n_fragments, 2);
        assert_fields(e, given_time_ns, 123, bytes, encoding.size_bytes, time_ns,
                      UINT64_C(1700000000000000005));
        assert_true(e->status & EFORMAT_EVENT_PARTIAL);
        assert_fields(f, source, 0x700000, status, 0, is_missing, false, bytes, 5);
        assert_memory_equal(f->payload, "abcde", 5);
        f = evb_live_fragment(live, 1);
        assert_fields(f, source, 0x700001, is_missing, true, bytes, 0);
        assert_null(evb_live_fragment(live, 2));
}

TEST_WITH(events_are_described_and_released, set_up, tear_down)
{
        connect_to_ring("mode=skip group=a", "evb-live 1 mode=skip group=a\n");
        write_first();
        assert_int_equal(evb_live_next(live, -1, &event), 1);
        assert_event(3);
        assert_fields(evb_live_counts(live), offered, 10, given, 1, skipped, 1);
        assert_true(live_ring_unread_bytes(&ring) > 0);
        evb_live_release(live);
        assert_int_equal(live_ring_unread_bytes(&ring), 0);
        encode(&eformat_5, 4);
        write_event(2);
        assert_int_equal(evb_live_next(live, -1, &event), 1);
        assert_event(5);
        assert_true(live_ring_unread_bytes(&ring) > 0);
        assert_int_equal(evb_live_next(live, 0, &event), -EAGAIN);
        assert_int_equal(live_ring_unread_bytes(&ring), 0);
        assert_null(evb_live_fragment(live, 0));
}

TEST_WITH(damaged_events_are_named_and_the_next_one_follows, set_up, tear_down)
{
        struct live_record record = {};
        uint32_t *words;

        connect_to_ring("", "evb-live 1\n");
        write_first();
        /* The size of its first fragment. */
        words = (uint32_t *)(ring.data + LIVE_RECORD_BYTES);
        words[words[2] + 1] = 1 << 20;
        assert_int_equal(live_ring_write(&ring, &record, &(struct iovec){(char[]){"no event"}, 8}, 1, 8),
                         LIVE_RING_WRITTEN);
        write_event(2);
        fails(0, -EBADMSG, "fragment exceeds its parent");
        assert_null(evb_live_fragment(live, 0));
        fails(0, -EBADMSG, "truncated");
        assert_null(event);
        assert_int_equal(evb_live_next(live, 0, &event), 1);
        assert_event(3);
        assert_string_equal(evb_live_error(live), "");
}

TEST_WITH(an_event_does_not_change_after_it_was_checked, set_up, tear_down)
{
        connect_to_ring("", "evb-live 1\n");
        write_first();
        assert_int_equal(evb_live_next(live, 0, &event), 1);
        memset(ring.data, 0xff, RING_BYTES);
        assert_event(3);
        assert_int_equal(((const uint32_t *)event->data)[0], EFORMAT_EVENT);
}

TEST_WITH(the_memory_of_the_connection_is_checked, set_up, tear_down)
{
        connect_to_ring("", "evb-live 1\n");
        write_first();
        ((struct live_record *)ring.data)->event_bytes = RING_BYTES;
        fails(0, -EPROTO, "damaged");
}

TEST_WITH(the_end_of_a_run_differs_from_that_of_the_sfi, set_up, tear_down)
{
        connect_to_ring("", "evb-live 1\n");
        write_first();
        close(take_fd(&server));
        assert_int_equal(evb_live_next(live, -1, &event), 1);
        assert_int_equal(evb_live_next(live, -1, &event), -ECONNRESET);
        ring.head->offered = 50;
        ring.head->given = 7;
        ring.head->skipped = 2;
        atomic_store(&ring.head->ended, 1);
        assert_int_equal(evb_live_next(live, -1, &event), 0);
        assert_fields(evb_live_counts(live), offered, 50, given, 7, skipped, 2);
}

TEST_WITH(a_server_that_only_wakes_does_not_extend_the_time, set_up, tear_down)
{
        struct pollfd p;
        char wakes[1000] = "";
        int left;

        connect_to_ring("", "evb-live 1\n");
        p = (struct pollfd){evb_live_descriptor(live), POLLIN, 0};
        assert_int_equal(send(server, wakes, sizeof wakes, MSG_NOSIGNAL), sizeof wakes);
        assert_int_equal(evb_live_next(live, 0, &event), -EAGAIN);
        assert_int_equal(ioctl(p.fd, FIONREAD, &left), 0);
        assert_true(left > 0);
        while (left > 0) {
                assert_int_equal(evb_live_next(live, 0, &event), -EAGAIN);
                assert_int_equal(ioctl(p.fd, FIONREAD, &left), 0);
        }
        /* Now a program may sleep on the descriptor until the server wakes it. */
        assert_int_equal(poll(&p, 1, 0), 0);
        write_first();
        assert_true(live_ring_needs_wake(&ring));
        assert_int_equal(send(server, wakes, 1, MSG_NOSIGNAL), 1);
        assert_int_equal(poll(&p, 1, 0), 1);
        assert_int_equal(evb_live_next(live, 0, &event), 1);
}

/* ---- Over TCP ---- */

static int set_up_remote(void **state)
{
        struct net_address a;
        char text[NET_ADDRESS_TEXT_MAX];

        assert_int_equal(net_address_parse(&a, "127.0.0.1", 0), 0);
        listener = tcp_listen(&a, 0);
        assert_true(listener >= 0);
        assert_int_equal(fcntl(listener, F_SETFL, 0), 0);
        assert_int_equal(getsockname(listener, &a.any, &a.size_bytes), 0);
        snprintf(address, sizeof address, "%s", net_address_format(&a, text));
        return begin_ring();
}

static void connect_remotely(void)
{
        struct answer a = {LIVE_GREETING " ring=65536\n", -1, ""};

        assert_int_equal(connect_with(&a, "mode=skip"), 0);
        assert_string_equal(a.request, "evb-live 1 mode=skip\n");
}

static void send_bytes(const void *bytes, size_t n)
{
        assert_int_equal(send(server, bytes, n, MSG_NOSIGNAL), n);
}

static void assert_position(uint64_t position)
{
        char line[64], expected[64];
        int n = snprintf(expected, sizeof expected, "read %llu\n", (unsigned long long)position);

        assert_int_equal(recv(server, line, (size_t)n, MSG_WAITALL), n);
        assert_memory_equal(line, expected, (size_t)n);
}

TEST_WITH(remote_events_come_in_any_parts, set_up_remote, tear_down_remote)
{
        struct live_record last = {.offered = 50, .given = 40, .skipped = 10};
        uint64_t size;

        connect_remotely();
        write_first();
        size = ring.written;
        for (uint64_t i = 0; i < size; i++) {
                assert_int_equal(evb_live_next(live, 0, &event), -EAGAIN);
                send_bytes(ring.data + i, 1);
        }
        assert_int_equal(evb_live_next(live, -1, &event), 1);
        assert_event(3);
        evb_live_release(live);
        assert_position(size);
        /* Several times around the ring. */
        for (int i = 0; i < 500; i++) {
                uint64_t sent = ring.written;

                write_event(1);
                /* The end of the ring, and the part after it. */
                for (uint64_t at, n; sent < ring.written; sent += n) {
                        at = sent % RING_BYTES;
                        n = MIN(ring.written - sent, RING_BYTES - at);
                        send_bytes(ring.data + at, n);
                }
                assert_int_equal(evb_live_next(live, -1, &event), 1);
                assert_event(3);
                evb_live_release(live);
                assert_position(ring.written);
                atomic_store(&ring.head->read, ring.written);
        }
        send_bytes(&last, sizeof last);
        assert_int_equal(evb_live_next(live, -1, &event), 0);
        assert_fields(evb_live_counts(live), offered, 50, given, 40, skipped, 10);
}

TEST_WITH(false_remote_answers_are_refused, set_up_remote, tear_down_remote)
{
        static const char *const answers[] = {
                "ring=63", "ring=0", "ring=268435520", "ring=-64", "ring=64x", "ring=65536", "", "ring="};

        for (size_t i = 0; i < ARRAY_SIZE(answers); i++) {
                char text[64];
                struct answer a = {text, -1, ""};

                snprintf(text, sizeof text, LIVE_GREETING " %s\n", answers[i]);
                assert_int_equal(connect_with(&a, ""), i == 5 ? 0 : -EPROTO);
                close(take_fd(&server));
        }
}

/* A key whose tags are the numbers of lines. */
static void introduce(void *ctx, char nonce[static AUTH_LINE_TEXT_BYTES])
{
        strcpy(nonce, "ours");
}

static bool begin(void *ctx, const char *nonce)
{
        return strcmp(nonce, "theirs") == 0;
}

static void seal(void *ctx, const char *text, size_t n, char tag[static AUTH_LINE_TEXT_BYTES])
{
        snprintf(tag, AUTH_LINE_TEXT_BYTES, "%d", (*(int *)ctx)++);
}

static const char *open_line(void *ctx, const char *line, size_t n)
{
        return strncmp(line, "right ", 6) == 0 ? line + 6 : NULL;
}

TEST_WITH(lines_have_tags_if_there_is_a_key, set_up_remote, tear_down_remote)
{
        static const struct {
                const char *answer;
                int error;
        } cases[] = {
                {"key other\n", -EPROTO},
                {"evb-live 1 ring=65536\n", -EPROTO},
                {"key theirs\nwrong evb-live 1 ring=65536\n", -EKEYREJECTED},
                {"key theirs\nevb-live 1 ring=65536\n", -EKEYREJECTED},
                {"key theirs\nright evb-live 1\n", -EPROTO},
                {"error no\n", -EINVAL},
                {"key theirs\nerror no\n", -EINVAL},
                {"key theirs\nright evb-live 1 ring=65536\n", 0},
        };
        char found[64] = "", expected[64];
        int lines;
        struct live_client_key key = {introduce, begin, seal, open_line, &lines};

        for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
                struct answer a = {cases[i].answer, -1, ""};

                if (server >= 0)
                        close(take_fd(&server));
                lines = 0;
                assert_int_equal(connect_with_key(&a, "mode=skip", &key), cases[i].error);
                assert_string_equal(a.request, "key ours\n");
        }
        write_first();
        send_bytes(ring.data, ring.written);
        assert_int_equal(evb_live_next(live, -1, &event), 1);
        evb_live_release(live);
        snprintf(expected, sizeof expected, "0 evb-live 1 mode=skip\n1 read %llu\n",
                 (unsigned long long)ring.written);
        assert_int_equal(recv(server, found, strlen(expected), MSG_WAITALL), strlen(expected));
        assert_string_equal(found, expected);
}

TEST_EACH(false_remote_records_end_the_connection, i, 4)
{
        static const struct live_record records[] = {
                {.record_bytes = 100},
                {.record_bytes = RING_BYTES + 64},
                {.record_bytes = 128, .event_bytes = 65},
                {.record_bytes = UINT64_MAX - 63},
        };
        uint8_t rest[64] = {};

        set_up_remote(NULL);
        connect_remotely();
        send_bytes(&records[i], sizeof records[i]);
        send_bytes(rest, sizeof rest);
        assert_int_equal(evb_live_next(live, -1, &event), -EPROTO);
        tear_down_remote(NULL);
}

TEST_WITH(a_broken_remote_connection_is_no_end_of_a_run, set_up_remote, tear_down_remote)
{
        connect_remotely();
        write_first();
        send_bytes(ring.data, ring.written);
        send_bytes(ring.data, 63);
        close(take_fd(&server));
        assert_int_equal(evb_live_next(live, -1, &event), 1);
        assert_int_equal(evb_live_next(live, -1, &event), -ECONNRESET);
        assert_int_equal(evb_live_connect(&live, "10.0.0.1:0:1", NULL, error, sizeof error), -EINVAL);
}

static void write_and_send(unsigned n)
{
        uint64_t begin = ring.written;

        encode(&eformat_3, 4);
        for (unsigned i = 0; i < n; i++)
                write_event(i + 1);
        send_bytes(ring.data + begin, ring.written - begin);
}

TEST_WITH(a_remote_run_ends_although_the_connection_stays, set_up_remote, tear_down_remote)
{
        struct live_record last = {.offered = 50};

        connect_remotely();
        write_first();
        /* Both come at once. */
        memcpy(ring.data + ring.written, &last, sizeof last);
        send_bytes(ring.data, ring.written + sizeof last);
        assert_int_equal(evb_live_next(live, -1, &event), 1);
        assert_int_equal(evb_live_next(live, -1, &event), 0);
        assert_int_equal(evb_live_counts(live)->offered, 50);
}

TEST_WITH(positions_are_reported_for_each_event_only_in_a_group, set_up_remote, tear_down_remote)
{
        struct answer a = {LIVE_GREETING " ring=65536\n", -1, ""};
        char byte;

        for (unsigned shares = 0; shares < 2; shares++) {
                assert_int_equal(connect_with(&a, shares ? "mode=skip group=a" : "mode=skip"), 0);
                ring.written = ring.released = 0;
                atomic_store(&ring.head->read, 0);
                write_and_send(3);
                assert_int_equal(evb_live_next(live, -1, &event), 1);
                for (uint64_t i = 1; i < 3; i++) {
                        assert_int_equal(evb_live_next(live, -1, &event), 1);
                        if (shares)
                                assert_position(ring.written / 3 * i);
                }
                assert_int_equal(recv(server, &byte, 1, MSG_DONTWAIT), -1);
                assert_int_equal(evb_live_next(live, 0, &event), -EAGAIN);
                assert_position(ring.written);
                evb_live_close(take_ptr(live));
                close(take_fd(&server));
                a.request[0] = '\0';
        }
}
