/* Serves HTTP with libmicrohttpd, which parses requests and writes replies. This file accepts connections,
 * ends those that take too long, and prevents clients from blocking others. */
#include "net/http_server.h"

#include <assert.h>
#include <errno.h>
#include <limits.h>
#include <microhttpd.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/util.h"
#include "net/address.h"
#include "sys/loop.h"
#include "sys/thread.h"

#define CONNECTIONS_MAX 32
/* Memory for the headers of a request and its reply. Longer requests are answered with 431 or 414. */
#define CONNECTION_MEMORY_BYTES (32u << 10)
/* Maximum body that is read of a request refused by its method or length: a client that has sent all of it
 * reads the reply. */
#define UPLOAD_MAX_BYTES HTTP_BODY_MAX_BYTES
#define BEARER "Bearer "
/* Idle time after which a connection ends, and its maximum duration. */
#define IDLE_S 10u
#define LIFETIME_NS (30 * NS_PER_S)
/* Minimum time for a request before others may take over its connection slot. */
#define GRACE_NS (250 * NS_PER_MS)
/* When a client may try again after it got no answer. */
#define RETRY_AFTER_S "5"
/* Pause after accept(2) failed for lack of descriptors or memory. */
#define PAUSE_NS (100 * NS_PER_MS)
#define NICE_STEP 10
#define NICE_MOST 19

struct http_connection {
        struct MHD_Connection *handle; /* NULL: free */
        int fd;
        uint64_t since_ns;
};

struct http_server {
        struct http_config config;
        struct MHD_Daemon *daemon;
        int epoll_fd;
        int stop_fd; /* eventfd: readable once the thread must end */
        bool running;
        pthread_t thread;
        uint64_t pause_ns; /* accept no connection before this time */
        struct http_connection connections[CONNECTIONS_MAX];
};

/* The body that a request has sent so far. */
struct upload {
        size_t bytes;
        char *body; /* of a POST that is served; NULL: none yet */
};

static void add_headers(struct MHD_Response *r, const struct http_reply *reply)
{
        const char *const headers[][2] = {
                {MHD_HTTP_HEADER_CONTENT_TYPE, reply->content_type},
                {MHD_HTTP_HEADER_CACHE_CONTROL, reply->cache_control ?: "no-store"},
                {MHD_HTTP_HEADER_CONTENT_SECURITY_POLICY, reply->security_policy},
                {MHD_HTTP_HEADER_X_CONTENT_TYPE_OPTIONS, "nosniff"},
                {MHD_HTTP_HEADER_CONNECTION, "close"},
        };

        for (size_t i = 0; i < ARRAY_SIZE(headers); i++) {
                if (headers[i][1])
                        (void)MHD_add_response_header(r, headers[i][0], headers[i][1]);
        }
}

static enum MHD_Result send_reply(struct MHD_Connection *c, struct http_reply *reply, bool takes_post)
{
        static const char empty[] = "";
        struct MHD_Response *r;
        enum MHD_Result sent;

        if (reply->text)
                r = MHD_create_response_from_buffer(reply->text_bytes, reply->text, MHD_RESPMEM_MUST_FREE);
        else
                r = MHD_create_response_from_buffer(0, (void *)(uintptr_t)empty, MHD_RESPMEM_PERSISTENT);
        if (!r) {
                free(reply->text);
                return MHD_NO;
        }
        add_headers(r, reply);
        if (reply->status == MHD_HTTP_METHOD_NOT_ALLOWED)
                (void)MHD_add_response_header(r, MHD_HTTP_HEADER_ALLOW,
                                              takes_post ? "GET, HEAD, POST" : "GET, HEAD");
        if (reply->status == MHD_HTTP_UNAUTHORIZED)
                (void)MHD_add_response_header(r, MHD_HTTP_HEADER_WWW_AUTHENTICATE, "Bearer");
        if (reply->status == MHD_HTTP_SERVICE_UNAVAILABLE)
                (void)MHD_add_response_header(r, MHD_HTTP_HEADER_RETRY_AFTER, RETRY_AFTER_S);
        sent = MHD_queue_response(c, reply->text ? reply->status : MHD_HTTP_SERVICE_UNAVAILABLE, r);
        MHD_destroy_response(r);
        return sent;
}

static enum MHD_Result refuse_method(struct MHD_Connection *c, unsigned status, const char *text,
                                     bool takes_post)
{
        struct http_reply reply = {
                .status = status,
                .content_type = "text/plain; charset=utf-8",
                .text = strdup(text),
        };

        reply.text_bytes = reply.text ? strlen(reply.text) : 0;
        return send_reply(c, &reply, takes_post);
}

static enum MHD_Result refuse(struct MHD_Connection *c, unsigned status, const char *text)
{
        return refuse_method(c, status, text, false);
}

/* Stores a part of the body, or only counts it if the request will be refused. */
static enum MHD_Result receive_upload(const struct http_server *s, struct upload *u, const char *part,
                                      size_t n)
{
        size_t begin = u->bytes;

        u->bytes += n;
        if (u->bytes > UPLOAD_MAX_BYTES)
                return MHD_NO;
        if (u->bytes > s->config.body_max_bytes)
                return MHD_YES;
        if (!u->body)
                u->body = calloc(1, s->config.body_max_bytes + 1);
        if (!u->body)
                return MHD_NO;
        memcpy(u->body + begin, part, n);
        return MHD_YES;
}

static const char *header(struct MHD_Connection *c, const char *name)
{
        return MHD_lookup_connection_value(c, MHD_HEADER_KIND, name) ?: "";
}

static const char *bearer_token(struct MHD_Connection *c)
{
        const char *text = header(c, MHD_HTTP_HEADER_AUTHORIZATION);

        return strncasecmp(text, BEARER, strlen(BEARER)) == 0 ? text + strlen(BEARER) : "";
}

static void find_sender(struct net_address *ret, struct MHD_Connection *c)
{
        const struct sockaddr *a =
                MHD_get_connection_info(c, MHD_CONNECTION_INFO_CLIENT_ADDRESS)->client_addr;

        *ret = (struct net_address){.any.sa_family = a->sa_family == AF_UNIX ? AF_UNIX : AF_UNSPEC,
                                    .size_bytes = sizeof(sa_family_t)};
        if (a->sa_family == AF_INET)
                *ret = (struct net_address){.v4 = *(const struct sockaddr_in *)a,
                                            .size_bytes = sizeof ret->v4};
        else if (a->sa_family == AF_INET6)
                *ret = (struct net_address){.v6 = *(const struct sockaddr_in6 *)a,
                                            .size_bytes = sizeof ret->v6};
}

unsigned http_client_user(int connection)
{
        struct ucred peer;
        socklen_t n = sizeof peer;

        return getsockopt(connection, SOL_SOCKET, SO_PEERCRED, &peer, &n) == 0 ? peer.uid : UINT_MAX;
}

bool http_client_waits(int connection)
{
        struct pollfd p = {.fd = connection, .events = POLLRDHUP};

        return poll(&p, 1, 0) == 0;
}

static enum MHD_Result answer_whole(struct http_server *s, struct MHD_Connection *c, const char *url,
                                    const char *method, const struct upload *u)
{
        bool reads = strcmp(method, MHD_HTTP_METHOD_GET) == 0 || strcmp(method, MHD_HTTP_METHOD_HEAD) == 0;
        bool takes_post = s->config.post_path && strcmp(url, s->config.post_path) == 0;
        struct net_address from;
        struct http_request request = {
                .path = url,
                .accept = header(c, MHD_HTTP_HEADER_ACCEPT),
                .from = &from,
                .is_post = s->config.body_max_bytes > 0 && strcmp(method, MHD_HTTP_METHOD_POST) == 0,
                .body = u->body ?: "",
                .body_bytes = u->bytes,
                .content_type = header(c, MHD_HTTP_HEADER_CONTENT_TYPE),
                .origin = header(c, MHD_HTTP_HEADER_ORIGIN),
                .token = bearer_token(c),
                .waits = MHD_lookup_connection_value(c, MHD_GET_ARGUMENT_KIND, "wait") != NULL,
                .connection = MHD_get_connection_info(c, MHD_CONNECTION_INFO_CONNECTION_FD)->connect_fd,
        };
        struct http_reply reply = {.status = MHD_HTTP_OK};

        if (!reads && !request.is_post && takes_post)
                return refuse_method(c, MHD_HTTP_METHOD_NOT_ALLOWED,
                                     "only GET, HEAD and POST are served here\n", true);
        if (!reads && !request.is_post)
                return refuse(c, MHD_HTTP_METHOD_NOT_ALLOWED, "only GET and HEAD are served here\n");
        if (request.is_post && u->bytes > s->config.body_max_bytes)
                return refuse(c, MHD_HTTP_CONTENT_TOO_LARGE, "the request is too long\n");
        find_sender(&from, c);
        s->config.answer(s->config.ctx, &request, &reply);
        return send_reply(c, &reply, false);
}

/* libmicrohttpd calls this with the headers, with each part of the body, and at the end of the request. */
static enum MHD_Result answer(void *ctx, struct MHD_Connection *c, const char *url, const char *method,
                              const char *version, const char *upload, size_t *upload_bytes, void **state)
{
        struct upload *u = *state;
        size_t n = *upload_bytes;

        if (!u) {
                *state = u = calloc(1, sizeof *u);
                return u ? MHD_YES : MHD_NO;
        }
        *upload_bytes = 0;
        if (n > 0)
                return receive_upload(ctx, u, upload, n);
        return answer_whole(ctx, c, url, method, u);
}

static void completed(void *ctx, struct MHD_Connection *c, void **state, enum MHD_RequestTerminationCode code)
{
        struct upload *u = *state;

        if (u)
                free(u->body);
        free(u);
        *state = NULL;
}

static void notify(void *ctx, struct MHD_Connection *c, void **state,
                   enum MHD_ConnectionNotificationCode code)
{
        struct http_server *s = ctx;
        struct http_connection *free_one = NULL, *own = *state;

        if (code == MHD_CONNECTION_NOTIFY_CLOSED) {
                if (own)
                        own->handle = NULL;
                return;
        }
        for (size_t i = 0; i < CONNECTIONS_MAX && !free_one; i++) {
                if (!s->connections[i].handle)
                        free_one = &s->connections[i];
        }
        if (!free_one)
                return;
        *free_one = (struct http_connection){
                .handle = c,
                .fd = MHD_get_connection_info(c, MHD_CONNECTION_INFO_CONNECTION_FD)->connect_fd,
                .since_ns = clock_now_ns(),
        };
        *state = free_one;
}

/* Finds the oldest connection, and counts all. */
static struct http_connection *oldest(struct http_server *s, size_t *ret_n)
{
        struct http_connection *found = NULL;

        *ret_n = 0;
        for (struct http_connection *c = s->connections; c < s->connections + CONNECTIONS_MAX; c++) {
                if (!c->handle)
                        continue;
                ++*ret_n;
                if (!found || c->since_ns < found->since_ns)
                        found = c;
        }
        return found;
}

/* Shuts down connections that take too long. The next run of the daemon closes them. */
static void end_old(struct http_server *s, uint64_t now_ns)
{
        for (struct http_connection *c = s->connections; c < s->connections + CONNECTIONS_MAX; c++) {
                if (c->handle && now_ns > c->since_ns + LIFETIME_NS)
                        shutdown(c->fd, SHUT_RDWR);
        }
}

/* Accepts a connection. If all are in use, the oldest one is shut down first, so idle clients cannot exhaust
 * the limit. */
static void accept_one(struct http_server *s, uint64_t now_ns)
{
        struct net_address from = {.size_bytes = sizeof from.v6};
        struct http_connection *old;
        size_t n;
        int fd;

        old = oldest(s, &n);
        if (old && n == CONNECTIONS_MAX) {
                if (now_ns < old->since_ns + GRACE_NS)
                        s->pause_ns = old->since_ns + GRACE_NS;
                else
                        shutdown(old->fd, SHUT_RDWR);
                return;
        }
        fd = accept4(s->config.listener, &from.any, &from.size_bytes, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd < 0) {
                if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM)
                        s->pause_ns = now_ns + PAUSE_NS;
                return;
        }
        from.size_bytes = MIN(from.size_bytes, (socklen_t)sizeof from.v6);
        /* On failure, this call closes the descriptor. */
        (void)MHD_add_connection(s->daemon, fd, &from.any, from.size_bytes);
}

/* Includes the checks for connections that take too long. -1: no time limit. */
static int wait_ms(struct http_server *s)
{
        uint64_t now_ns = clock_now_ns();
        MHD_UNSIGNED_LONG_LONG ms = 1000, asked_ms;
        bool timed = s->pause_ns > 0;
        size_t n;

        (void)oldest(s, &n);
        if (timed)
                ms = MIN(ms, DIV_ROUND_UP(MAX(s->pause_ns, now_ns) - now_ns, NS_PER_MS));
        if (MHD_get_timeout(s->daemon, &asked_ms) == MHD_YES) {
                ms = MIN(ms, asked_ms);
                timed = true;
        }
        return timed || n > 0 ? (int)ms : -1;
}

static void *serve(void *ctx)
{
        struct http_server *s = ctx;

        (void)setpriority(PRIO_PROCESS, 0, MIN(getpriority(PRIO_PROCESS, 0) + NICE_STEP, NICE_MOST));
        for (;;) {
                struct pollfd p[] = {
                        {.fd = s->stop_fd, .events = POLLIN},
                        {.fd = s->epoll_fd, .events = POLLIN},
                        {.fd = s->pause_ns == 0 ? s->config.listener : -1, .events = POLLIN},
                };
                uint64_t now_ns;

                (void)poll(p, ARRAY_SIZE(p), wait_ms(s));
                if (p[0].revents)
                        return NULL;
                now_ns = clock_now_ns();
                if (s->pause_ns > 0 && now_ns >= s->pause_ns)
                        s->pause_ns = 0;
                if (p[2].revents)
                        accept_one(s, now_ns);
                end_old(s, now_ns);
                (void)MHD_run(s->daemon);
        }
}

/* Blocks all signals in the thread: the event loop handles them. */
static int start_thread(struct http_server *s)
{
        sigset_t all, before;
        int r;

        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, &before);
        r = thread_start(&s->thread, "evb-http", s->config.cpus, s->config.n_cpus, serve, s);
        pthread_sigmask(SIG_SETMASK, &before, NULL);
        s->running = r >= 0;
        return r;
}

static int start_daemon(struct http_server *s)
{
        s->daemon = MHD_start_daemon(MHD_USE_EPOLL | MHD_USE_NO_LISTEN_SOCKET, 0, NULL, NULL, answer, s,
                                     MHD_OPTION_CONNECTION_LIMIT, (unsigned)CONNECTIONS_MAX,
                                     MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)CONNECTION_MEMORY_BYTES,
                                     MHD_OPTION_CONNECTION_TIMEOUT, IDLE_S, MHD_OPTION_NOTIFY_CONNECTION,
                                     notify, s, MHD_OPTION_NOTIFY_COMPLETED, completed, s, MHD_OPTION_END);
        if (!s->daemon)
                return -EIO;
        s->epoll_fd = MHD_get_daemon_info(s->daemon, MHD_DAEMON_INFO_EPOLL_FD)->epoll_fd;
        return 0;
}

int http_server_new(struct http_server **ret, const struct http_config *config, struct error *e)
{
        struct http_server *s = calloc(1, sizeof *s);
        int r;

        assert(config->body_max_bytes <= HTTP_BODY_MAX_BYTES);
        if (!s)
                return error_set(e, -ENOMEM, "cannot start the HTTP server: %m");
        s->config = *config;
        s->stop_fd = eventfd(0, EFD_CLOEXEC);
        r = s->stop_fd < 0 ? -errno : 0;
        if (r >= 0)
                r = start_daemon(s);
        if (r >= 0)
                r = start_thread(s);
        if (r < 0) {
                http_server_free(s);
                return error_set(e, r, "cannot start the HTTP server: %m");
        }
        *ret = s;
        return 0;
}

struct http_server *http_server_free(struct http_server *s)
{
        if (!s)
                return NULL;
        if (s->running) {
                (void)eventfd_write(s->stop_fd, 1);
                pthread_join(s->thread, NULL);
        }
        if (s->daemon)
                MHD_stop_daemon(s->daemon);
        if (s->stop_fd >= 0)
                close(s->stop_fd);
        free(s);
        return NULL;
}
