/* Tests the HTTP server against clients that are slow, greedy, hostile or many. */
#include "../test.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "net/http_get.h"
#include "net/http_server.h"
#include "sys/loop.h"
#include "net/tcp.h"

#define LARGE_BYTES (8u << 20)
#define LIMIT_MS 60000

static struct {
        int listener;
        struct net_address address;
        struct http_server *server;
        _Atomic unsigned answered;
        char accept[256];
        char token[256];
        char type[256];
        char origin[256];
        bool waits;
        struct net_address from;
} t;

#define BODY_MAX_BYTES 1000u

static void answer(void *ctx, const struct http_request *request, struct http_reply *ret)
{
        t.answered++;
        snprintf(t.accept, sizeof t.accept, "%s", request->accept);
        snprintf(t.token, sizeof t.token, "%s", request->token);
        snprintf(t.type, sizeof t.type, "%s", request->content_type);
        snprintf(t.origin, sizeof t.origin, "%s", request->origin);
        t.from = *request->from;
        t.waits = request->waits;
        ret->content_type = "text/plain";
        if (strcmp(request->path, "/none") == 0)
                return;
        if (strcmp(request->path, "/echo") == 0) {
                ret->status = request->is_post ? (request->body_bytes == 0 ? 401 : 200) : 405;
                ret->text = calloc(1, request->body_bytes + 1);
                memcpy(ret->text, request->body, request->body_bytes);
                ret->text_bytes = request->body_bytes;
                return;
        }
        if (strcmp(request->path, "/large") == 0) {
                ret->text = malloc(LARGE_BYTES);
                memset(ret->text, 'x', LARGE_BYTES);
                ret->text_bytes = LARGE_BYTES;
                return;
        }
        ret->status = strcmp(request->path, "/") == 0 ? 200 : 404;
        ret->text = strdup("hello\n");
        ret->text_bytes = strlen(ret->text);
}

static int set_up(void **state)
{
        struct http_config config = {.answer = answer};
        struct error e = {};

        memset(&t, 0, sizeof t);
        assert_int_equal(net_address_parse(&t.address, "127.0.0.1", 0), 0);
        t.listener = tcp_listen(&t.address, 0);
        assert_true(t.listener >= 0);
        assert_int_equal(getsockname(t.listener, &t.address.any, &t.address.size_bytes), 0);
        config.listener = t.listener;
        return http_server_new(&t.server, &config, &e);
}

static int tear_down(void **state)
{
        http_server_free(t.server);
        close(t.listener);
        return 0;
}

static int open_client(void)
{
        struct timeval limit = {.tv_sec = LIMIT_MS / 1000};
        int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

        assert_true(fd >= 0);
        setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
        assert_int_equal(connect(fd, &t.address.any, t.address.size_bytes), 0);
        return fd;
}

static void send_text(int fd, const char *text)
{
        size_t n = strlen(text);

        assert_int_equal(send(fd, text, n, MSG_NOSIGNAL), (ssize_t)n);
}

/* Reads until the server closes: the number of bytes; the first of them go to `text`. */
static size_t read_all(int fd, char *text, size_t size)
{
        char more[16384];
        size_t all = 0;
        ssize_t n;

        /* With a time limit, SIGCONT ends a wait, too: signal(7). */
        while ((n = read(fd, more, sizeof more)) > 0 || (n < 0 && errno == EINTR)) {
                if (n < 0)
                        continue;
                for (ssize_t i = 0; i < n && all + (size_t)i + 1 < size; i++)
                        text[all + (size_t)i] = more[i];
                all += (size_t)n;
        }
        text[MIN(all, size - 1)] = '\0';
        return all;
}

static void assert_reply(const char *request, const char *status, const char *contains)
{
        char text[4096];
        int fd = open_client();

        send_text(fd, request);
        read_all(fd, text, sizeof text);
        close(fd);
        if (strncmp(text, status, strlen(status)) != 0 || !strstr(text, contains))
                fail_msg("%s: got %s, expected %s and %s", request, text, status, contains);
}

TEST_WITH(answers_get_and_head, set_up, tear_down)
{
        char text[4096];
        int fd;

        assert_reply("GET / HTTP/1.1\r\nHost: a\r\nAccept: b/c\r\n\r\n", "HTTP/1.1 200", "\r\n\r\nhello\n");
        assert_string_equal(t.accept, "b/c");
        assert_reply("GET / HTTP/1.0\r\n\r\n", "HTTP/1.", "\r\n\r\nhello\n");
        assert_reply("GET /?a=b HTTP/1.1\r\nHost: a\r\n\r\n", "HTTP/1.1 200", "hello");
        assert_reply("GET /nothing HTTP/1.1\r\nHost: a\r\n\r\n", "HTTP/1.1 404", "hello");
        assert_reply("GET /none HTTP/1.1\r\nHost: a\r\n\r\n", "HTTP/1.1 503", "");
        fd = open_client();
        send_text(fd, "HEAD / HTTP/1.1\r\nHost: a\r\n\r\n");
        read_all(fd, text, sizeof text);
        close(fd);
        assert_non_null(strstr(text, "Content-Length: 6\r\n"));
        assert_null(strstr(text, "hello"));
}

TEST_WITH(refuses_other_methods, set_up, tear_down)
{
        assert_reply("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc", "HTTP/1.1 405",
                     "Allow: GET, HEAD\r\n");
        assert_reply("DELETE / HTTP/1.1\r\nHost: a\r\n\r\n", "HTTP/1.1 405", "only GET and HEAD");
        assert_int_equal(t.answered, 0);
}

static void serve_post(void)
{
        struct http_config config = {
                .answer = answer, .listener = t.listener, .body_max_bytes = BODY_MAX_BYTES};
        struct error e = {};

        http_server_free(t.server);
        assert_int_equal(http_server_new(&t.server, &config, &e), 0);
}

/* With whom it talks, and what it was sent. */
TEST_WITH(answers_post_if_asked_to, set_up, tear_down)
{
        struct net_address own;
        char text[4096];
        socklen_t size = sizeof own.v6;
        int fd;

        serve_post();
        fd = open_client();
        assert_int_equal(getsockname(fd, &own.any, &size), 0);
        own.size_bytes = size;
        send_text(fd, "POST /echo HTTP/1.1\r\nHost: a\r\nAuthorization: bearer se cret\r\n"
                      "Content-Type: application/json\r\nOrigin: http://a:1\r\n"
                      "Content-Length: 6\r\n\r\nab");
        assert_reply("GET / HTTP/1.1\r\nHost: a\r\n\r\n", "HTTP/1.1 200", "hello");
        send_text(fd, "cdef");
        read_all(fd, text, sizeof text);
        close(fd);
        assert_non_null(strstr(text, "HTTP/1.1 200"));
        assert_non_null(strstr(text, "\r\n\r\nabcdef"));
        assert_string_equal(t.token, "se cret");
        assert_string_equal(t.type, "application/json");
        assert_string_equal(t.origin, "http://a:1");
        assert_true(net_address_equal(&t.from, &own));
        assert_reply("POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n"
                     "Authorization: Basic x\r\n\r\n2\r\nxy\r\n3\r\nz12\r\n0\r\n\r\n",
                     "HTTP/1.1 200", "\r\n\r\nxyz12");
        assert_string_equal(t.token, "");
        assert_string_equal(t.origin, "");
        assert_false(t.waits);
        assert_reply("GET /?wait=1 HTTP/1.1\r\nHost: a\r\n\r\n", "HTTP/1.1 200", "hello");
        assert_true(t.waits);
        assert_reply("POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n", "HTTP/1.1 401",
                     "WWW-Authenticate: Bearer");
        assert_reply("GET /echo HTTP/1.1\r\nHost: a\r\n\r\n", "HTTP/1.1 405", "Allow: GET, HEAD\r\n");
        assert_reply("PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc", "HTTP/1.1 405",
                     "Allow: GET, HEAD\r\n");
}

/* The beginning of the reply; "": the server ended the connection without one. */
static void post_of(size_t bytes, const char *status)
{
        static char request[2 * HTTP_BODY_MAX_BYTES];
        char text[4096];
        int n = snprintf(request, sizeof request,
                         "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: %zu\r\n\r\n", bytes),
            fd = open_client();

        memset(request + n, 'q', bytes);
        request[(size_t)n + bytes] = '\0';
        send_text(fd, request);
        read_all(fd, text, sizeof text);
        close(fd);
        assert_int_equal(strncmp(text, status, strlen(status)), 0);
        assert_int_equal(text[0] == '\0', status[0] == '\0');
}

TEST_WITH(bodies_are_bounded, set_up, tear_down)
{
        serve_post();
        post_of(BODY_MAX_BYTES, "HTTP/1.1 200");
        assert_int_equal(t.answered, 1);
        post_of(BODY_MAX_BYTES + 1, "HTTP/1.1 413");
        post_of(HTTP_BODY_MAX_BYTES, "HTTP/1.1 413");
        post_of(HTTP_BODY_MAX_BYTES + 1, "");
        assert_int_equal(t.answered, 1);
        assert_reply("GET / HTTP/1.1\r\nHost: a\r\n\r\n", "HTTP/1.1 200", "hello");
}

/* However a request is wrong, the server drops it and serves the next. */
TEST_WITH(bears_nonsense, set_up, tear_down)
{
        static char header[200000] = "GET / HTTP/1.1\r\nHost: a\r\nX: ";
        static const char *const wrong[] = {"\r\n\r\n", "GET\r\n\r\n", "\x16\x03\x01\x02",
                                            "GET / HTTP/9.9\r\n\r\n", "GET / HTTP/1.1\r\n\r\n"};
        char text[4096];

        for (size_t i = 0; i < ARRAY_SIZE(wrong); i++) {
                int fd = open_client();

                send_text(fd, wrong[i]);
                shutdown(fd, SHUT_WR);
                read_all(fd, text, sizeof text);
                close(fd);
        }
        memset(header + strlen(header), 'y', sizeof header - strlen(header) - 1);
        for (int i = 0; i < 3; i++) {
                int fd = open_client();

                (void)send(fd, header, sizeof header - 1, MSG_NOSIGNAL);
                read_all(fd, text, sizeof text);
                close(fd);
        }
        assert_reply("GET / HTTP/1.1\r\nHost: a\r\n\r\n", "HTTP/1.1 200", "hello");
}

/* Far more than the server keeps open. */
TEST_WITH(idle_clients_keep_nobody_out, set_up, tear_down)
{
        int idle[300];

        for (size_t i = 0; i < ARRAY_SIZE(idle); i++) {
                idle[i] = open_client();
                if (i % 2 == 0)
                        (void)send(idle[i], "GET / HT", 8, MSG_NOSIGNAL);
        }
        assert_reply("GET / HTTP/1.1\r\nHost: a\r\n\r\n", "HTTP/1.1 200", "hello");
        for (size_t i = 0; i < ARRAY_SIZE(idle); i++)
                close(idle[i]);
}

TEST_WITH(a_slow_reader_delays_nobody_and_gets_all, set_up, tear_down)
{
        char text[4096];
        _cleanup_close_ int slow = open_client();

        send_text(slow, "GET /large HTTP/1.1\r\nHost: a\r\n\r\n");
        for (int i = 0; i < 20; i++)
                assert_reply("GET / HTTP/1.1\r\nHost: a\r\n\r\n", "HTTP/1.1 200", "hello");
        assert_true(read_all(slow, text, sizeof text) > LARGE_BYTES);
}

TEST_WITH(clients_that_vanish_leave_nothing, set_up, tear_down)
{
        struct linger reset = {.l_onoff = 1};

        for (int i = 0; i < 200; i++) {
                _cleanup_close_ int fd = open_client();

                send_text(fd, i % 2 ? "GET /large HTTP/1.1\r\nHost: a\r\n\r\n" : "GET /large HTTP");
                setsockopt(fd, SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
        }
        assert_reply("GET / HTTP/1.1\r\nHost: a\r\n\r\n", "HTTP/1.1 200", "hello");
}

static void *ask_often(void *ctx)
{
        for (int i = 0; i < 50; i++)
                assert_reply("GET / HTTP/1.1\r\nHost: a\r\n\r\n", "HTTP/1.1 200", "hello");
        return ctx;
}

TEST_WITH(many_clients_at_once, set_up, tear_down)
{
        pthread_t clients[8];

        for (size_t i = 0; i < ARRAY_SIZE(clients); i++)
                assert_int_equal(pthread_create(&clients[i], NULL, ask_often, NULL), 0);
        for (size_t i = 0; i < ARRAY_SIZE(clients); i++)
                assert_int_equal(pthread_join(clients[i], NULL), 0);
        assert_int_equal(t.answered, 50 * ARRAY_SIZE(clients));
}

TEST_WITH(one_client_asks_many_servers, set_up, tear_down)
{
        struct http_get gets[30] = {};
        char place[NET_ADDRESS_TEXT_MAX], nobody[NET_ADDRESS_TEXT_MAX], silent_place[NET_ADDRESS_TEXT_MAX];
        struct net_address silent;
        int fd, closed;

        net_address_format(&t.address, place);
        /* One port at which nobody listens and that no other program can get, and one that accepts and never
         * answers. */
        assert_int_equal(net_address_parse(&silent, "127.0.0.1", 0), 0);
        closed = socket(AF_INET, SOCK_STREAM, 0);
        assert_int_equal(bind(closed, &silent.any, silent.size_bytes), 0);
        assert_int_equal(getsockname(closed, &silent.any, &silent.size_bytes), 0);
        net_address_format(&silent, nobody);
        assert_int_equal(net_address_parse(&silent, "127.0.0.1", 0), 0);
        fd = tcp_listen(&silent, 0);
        assert_int_equal(getsockname(fd, &silent.any, &silent.size_bytes), 0);
        net_address_format(&silent, silent_place);
        for (size_t i = 0; i < ARRAY_SIZE(gets); i++)
                gets[i] = (struct http_get){.place = place, .path = i % 3 ? "/" : "/nothing"};
        gets[7].place = nobody;
        gets[8].place = "unix:/tmp/evb-no-such-socket";
        http_get_all(gets, ARRAY_SIZE(gets), 600 * NS_PER_S);
        for (size_t i = 0; i < ARRAY_SIZE(gets); i++) {
                if (i == 7 || i == 8) {
                        assert_int_equal(gets[i].error, i == 7 ? -ECONNREFUSED : -ENOENT);
                        assert_null(gets[i].body);
                        continue;
                }
                assert_fields(&gets[i], error, 0, status, i % 3 ? 200 : 404);
                assert_string_equal(gets[i].body, "hello\n");
                free(gets[i].body);
        }
        serve_post();
        gets[0] = (struct http_get){.place = place, .path = "/echo", .post = "{\"a\":1}", .token = "key"};
        http_get_all(gets, 1, 600 * NS_PER_S);
        assert_int_equal(gets[0].error, 0);
        assert_string_equal(gets[0].body, "{\"a\":1}");
        assert_string_equal(t.token, "key");
        assert_string_equal(t.type, "application/json");
        free(gets[0].body);
        gets[0] = (struct http_get){.place = silent_place, .path = "/"};
        http_get_all(gets, 1, NS_PER_S / 10);
        assert_int_equal(gets[0].error, -ETIMEDOUT);
        close(fd);
        close(closed);
}

/* At once: the kernel does not wait for room in the queue of a Unix socket. */
TEST(silent_server_on_this_machine_counts_as_silent)
{
        struct sockaddr_un a = {.sun_family = AF_UNIX};
        char place[sizeof a.sun_path + 5];
        struct http_get get = {.place = place, .path = "/"};
        int fd = socket(AF_UNIX, SOCK_STREAM, 0), full;

        snprintf(a.sun_path, sizeof a.sun_path, "/tmp/evb-test-silent-%d", (int)getpid());
        snprintf(place, sizeof place, "unix:%s", a.sun_path);
        assert_int_equal(bind(fd, (struct sockaddr *)&a, sizeof a), 0);
        assert_int_equal(listen(fd, 0), 0);
        full = socket(AF_UNIX, SOCK_STREAM, 0);
        assert_int_equal(connect(full, (struct sockaddr *)&a, sizeof a), 0);
        http_get_all(&get, 1, 600 * NS_PER_S);
        assert_int_equal(get.error, -ETIMEDOUT);
        close(full);
        close(fd);
        unlink(a.sun_path);
}

/* The kernel ignores a connection to a full listener, as a host that is down does. */
TEST(silent_host_costs_no_more_than_the_wait_for_its_connection)
{
        struct net_address silent;
        char place[NET_ADDRESS_TEXT_MAX];
        int fd, full[4];

        assert_int_equal(net_address_parse(&silent, "127.0.0.1", 0), 0);
        fd = tcp_listen(&silent, 0);
        assert_int_equal(getsockname(fd, &silent.any, &silent.size_bytes), 0);
        assert_int_equal(listen(fd, 0), 0);
        net_address_format(&silent, place);
        for (size_t i = 0; i < ARRAY_SIZE(full); i++) {
                full[i] = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
                (void)connect(full[i], &silent.any, silent.size_bytes);
        }
        for (uint64_t connect_ns = NS_PER_S / 20;; connect_ns = 0) {
                struct http_get get = {.place = place, .path = "/", .connect_ns = connect_ns};
                uint64_t begun_ns = clock_now_ns();

                http_get_all(&get, 1, connect_ns > 0 ? 600 * NS_PER_S : NS_PER_S / 20);
                assert_int_equal(get.error, -ETIMEDOUT);
                /* The kernel itself gives up after 127 s. */
                assert_true(clock_now_ns() - begun_ns < 100 * NS_PER_S);
                if (connect_ns == 0)
                        break;
        }
        for (size_t i = 0; i < ARRAY_SIZE(full); i++)
                close(full[i]);
        close(fd);
}

/* The server's thread must not take a signal that the event loop waits for. */
TEST_WITH(signals_do_not_reach_its_thread, set_up, tear_down)
{
        sigset_t one, before, pending;

        sigemptyset(&one);
        sigaddset(&one, SIGUSR1);
        assert_int_equal(pthread_sigmask(SIG_BLOCK, &one, &before), 0);
        assert_int_equal(kill(getpid(), SIGUSR1), 0);
        assert_reply("GET / HTTP/1.1\r\nHost: a\r\n\r\n", "HTTP/1.1 200", "hello");
        assert_int_equal(sigpending(&pending), 0);
        assert_true(sigismember(&pending, SIGUSR1));
        assert_int_equal(sigwaitinfo(&one, NULL), SIGUSR1);
        assert_int_equal(pthread_sigmask(SIG_SETMASK, &before, NULL), 0);
}

TEST_WITH(it_ends_while_clients_are_connected, set_up, tear_down)
{
        char text[4096];
        int idle = open_client(), slow = open_client();
        struct error e = {};
        struct http_config config = {.answer = answer, .listener = t.listener};

        send_text(slow, "GET /large HTTP/1.1\r\nHost: a\r\n\r\n");
        assert_reply("GET / HTTP/1.1\r\nHost: a\r\n\r\n", "HTTP/1.1 200", "hello");
        t.server = http_server_free(t.server);
        read_all(idle, text, sizeof text);
        assert_string_equal(text, "");
        close(idle);
        close(slow);
        assert_int_equal(http_server_new(&t.server, &config, &e), 0);
        assert_reply("GET / HTTP/1.1\r\nHost: a\r\n\r\n", "HTTP/1.1 200", "hello");
}
