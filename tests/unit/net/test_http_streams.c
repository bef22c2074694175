/* Tests streams of events against clients that are slow, many, or vanish. */
#include "../test.h"

#include <pthread.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/util.h"
#include "net/http_server.h"
#include "net/tcp.h"
#include "sys/loop.h"

#define STREAMS 8
#define LIMIT_S 60
#define LONG_BYTES (64u << 10)

static struct {
        int listener;
        struct net_address address;
        struct http_server *server;
        _Atomic size_t watching;
} t;

static void answer(void *ctx, const struct http_request *request, struct http_reply *ret)
{
        (void)ctx;
        ret->is_stream = strcmp(request->path, "/events") == 0;
        ret->content_type = "text/plain";
        ret->cache_control = "max-age=7";
        ret->security_policy = "default-src 'self'";
        ret->text = strdup("hello\n");
        ret->text_bytes = 6;
        if (ret->is_stream)
                free(take_ptr(ret->text));
}

static void watched(void *ctx, size_t n_streams)
{
        (void)ctx;
        t.watching = n_streams;
}

static void start(uint64_t stream_ns)
{
        struct http_config config = {
                .answer = answer, .watched = watched, .stream_ns = stream_ns, .listener = t.listener};
        struct error e = {};

        assert_int_equal(http_server_new(&t.server, &config, &e), 0);
}

static int set_up(void **state)
{
        memset(&t, 0, sizeof t);
        assert_int_equal(net_address_parse(&t.address, "127.0.0.1", 0), 0);
        t.listener = tcp_listen(&t.address, 0);
        assert_true(t.listener >= 0);
        assert_int_equal(getsockname(t.listener, &t.address.any, &t.address.size_bytes), 0);
        return 0;
}

static int tear_down(void **state)
{
        t.server = http_server_free(t.server);
        close(t.listener);
        return 0;
}

static int ask(const char *request)
{
        struct timeval limit = {.tv_sec = LIMIT_S};
        int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

        assert_true(fd >= 0);
        setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
        assert_int_equal(connect(fd, &t.address.any, t.address.size_bytes), 0);
        assert_int_equal(send(fd, request, strlen(request), MSG_NOSIGNAL), (ssize_t)strlen(request));
        return fd;
}

static int open_stream(void)
{
        return ask("GET /events HTTP/1.1\r\nHost: a\r\n\r\n");
}

/* Reads until the text has come. Returns the number of bytes, or 0 if the connection ends before. */
static size_t read_until(int fd, const char *text)
{
        static char seen[2 * LONG_BYTES + 1];
        size_t n = 0, all = 0;
        ssize_t k;

        while ((k = read(fd, seen + n, LONG_BYTES)) > 0) {
                n += (size_t)k;
                all += (size_t)k;
                seen[n] = '\0';
                if (strstr(seen, text))
                        return all;
                if (n >= LONG_BYTES) {
                        memmove(seen, seen + n - 256, 257);
                        n = 256;
                }
        }
        return 0;
}

static void expect(int fd, const char *text)
{
        if (read_until(fd, text) == 0)
                fail_msg("no \"%s\" before the end", text);
}

static void publish(const char *line)
{
        assert_int_equal(http_server_publish(t.server, line), 0);
}

/* A stream whose client has gone is noticed when the next line is sent. */
static void wait_watching(size_t n)
{
        uint64_t until_ns = clock_now_ns() + LIMIT_S * NS_PER_S;

        while (t.watching != n) {
                assert_true(clock_now_ns() < until_ns);
                publish("again");
                usleep(1000);
        }
}

TEST_WITH(all_streams_get_each_line, set_up, tear_down)
{
        _cleanup_close_ int a, b;

        start(600 * NS_PER_S);
        a = open_stream();
        b = open_stream();
        expect(a, "Content-Type: text/event-stream\r\n");
        expect(b, "retry: 1000\n\n");
        publish("{\"first\": 1}");
        expect(a, "data: {\"first\": 1}\n\n");
        expect(b, "data: {\"first\": 1}\n\n");
        publish("second");
        expect(a, "data: second\n\n");
        expect(b, "data: second\n\n");
}

/* The headers that tell a browser what it may do with a page. */
TEST_WITH(replies_have_headers_for_browsers, set_up, tear_down)
{
        static const char *const headers[] = {"\r\nCache-Control: max-age=7\r\n",
                                              "\r\nContent-Security-Policy: default-src 'self'\r\n",
                                              "\r\nX-Content-Type-Options: nosniff\r\n"};

        start(600 * NS_PER_S);
        for (size_t i = 0; i < ARRAY_SIZE(headers); i++) {
                _cleanup_close_ int fd = ask("GET / HTTP/1.1\r\nHost: a\r\n\r\n");

                expect(fd, headers[i]);
        }
}

TEST_WITH(one_too_many_is_sent_away, set_up, tear_down)
{
        int streams[STREAMS], other;

        start(600 * NS_PER_S);
        for (size_t i = 0; i < STREAMS; i++) {
                streams[i] = open_stream();
                expect(streams[i], "retry");
        }
        other = open_stream();
        expect(other, "\r\nRetry-After: 5\r\n");
        close(other);
        other = open_stream();
        expect(other, "HTTP/1.1 503 ");
        close(other);
        /* They still work, and a place that becomes free is given away. */
        publish("line");
        for (size_t i = 0; i < STREAMS; i++)
                expect(streams[i], "data: line\n\n");
        close(streams[3]);
        wait_watching(STREAMS - 1);
        streams[3] = open_stream();
        expect(streams[3], "retry");
        for (size_t i = 0; i < STREAMS; i++)
                close(streams[i]);
        wait_watching(0);
}

TEST_WITH(head_opens_no_stream, set_up, tear_down)
{
        char text[4096] = "";
        ssize_t n;
        int fd, stream;

        start(600 * NS_PER_S);
        fd = ask("HEAD /events HTTP/1.1\r\nHost: a\r\n\r\n");
        n = recv(fd, text, sizeof text - 1, MSG_WAITALL);
        assert_true(n > 0 && strstr(text, "text/event-stream"));
        close(fd);
        stream = open_stream();
        expect(stream, "retry");
        wait_watching(1);
        close(stream);
}

TEST_WITH(a_stream_ends_after_its_time, set_up, tear_down)
{
        int fd;

        start(NS_PER_S / 5);
        fd = open_stream();
        /* Of the last chunk. */
        expect(fd, "\r\n0\r\n\r\n");
        assert_int_equal(read(fd, &fd, 1), 0);
        close(fd);
        wait_watching(0);
}

TEST_WITH(a_slow_reader_skips_lines_and_delays_nobody, set_up, tear_down)
{
        static char line[LONG_BYTES];
        /* Far more than the sockets hold; but the server closes a connection that does not move for 10 s. */
        int slow, quick, n = 200;
        size_t got;

        start(600 * NS_PER_S);
        /* Without chunks, which could divide what the test looks for. */
        slow = ask("GET /events HTTP/1.0\r\n\r\n");
        quick = ask("GET /events HTTP/1.0\r\n\r\n");
        expect(slow, "retry");
        expect(quick, "retry");
        memset(line, 'x', sizeof line - 1);
        for (int i = 0; i < n; i++) {
                char end[32];

                snprintf(end, sizeof end, "-%d-", i);
                memcpy(line + sizeof line - 1 - strlen(end), end, strlen(end));
                publish(line);
                expect(quick, end);
        }
        publish("the newest");
        expect(quick, "data: the newest\n\n");
        got = read_until(slow, "data: the newest\n\n");
        assert_true(got > 0 && got < (size_t)n * LONG_BYTES / 2);
        close(slow);
        close(quick);
}

TEST_WITH(idle_clients_do_not_displace_streams, set_up, tear_down)
{
        int streams[STREAMS], idle[100];

        start(600 * NS_PER_S);
        for (size_t i = 0; i < STREAMS; i++) {
                streams[i] = open_stream();
                expect(streams[i], "retry");
        }
        for (size_t i = 0; i < ARRAY_SIZE(idle); i++)
                idle[i] = ask("GET / HT");
        /* Its place is one of theirs. */
        {
                _cleanup_close_ int fd = ask("GET / HTTP/1.1\r\nHost: a\r\n\r\n");

                expect(fd, "hello");
        }
        publish("line");
        for (size_t i = 0; i < STREAMS; i++) {
                expect(streams[i], "data: line\n\n");
                close(streams[i]);
        }
        for (size_t i = 0; i < ARRAY_SIZE(idle); i++)
                close(idle[i]);
}

static void *publish_often(void *ctx)
{
        for (int i = 0; i < 20000; i++)
                publish("some line of some length");
        return ctx;
}

/* Clients come and go while a thread publishes. */
TEST_WITH(clients_that_vanish_leave_nothing, set_up, tear_down)
{
        struct linger reset = {.l_onoff = 1};
        pthread_t publisher;

        start(NS_PER_S / 100);
        assert_int_equal(pthread_create(&publisher, NULL, publish_often, NULL), 0);
        for (int i = 0; i < 300; i++) {
                _cleanup_close_ int fd = open_stream();

                if (i % 3 == 0)
                        expect(fd, "HTTP/1.1");
                if (i % 2 == 0)
                        setsockopt(fd, SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
        }
        assert_int_equal(pthread_join(publisher, NULL), 0);
        wait_watching(0);
}

TEST_WITH(the_server_ends_with_open_streams, set_up, tear_down)
{
        _cleanup_close_ int waiting, sending;
        static char line[LONG_BYTES];

        start(600 * NS_PER_S);
        waiting = ask("GET /events HTTP/1.0\r\n\r\n");
        sending = ask("GET /events HTTP/1.0\r\n\r\n");
        expect(waiting, "retry");
        expect(sending, "retry");
        memset(line, 'x', sizeof line - 1);
        for (int i = 0; i < 200; i++) {
                publish(line);
                expect(waiting, "xxx\n\n");
        }
        t.server = http_server_free(t.server);
        assert_int_equal(read_until(waiting, "never"), 0);
        assert_int_equal(read_until(sending, "never"), 0);
}
