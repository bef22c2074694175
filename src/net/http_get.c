/* A client of HTTP/1.0: the server closes the connection at the end of its reply. */
#include "net/http_get.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/util.h"
#include "net/address.h"
#include "net/tcp.h"
#include "sys/loop.h"

#define UNIX_PREFIX "unix:"
/* Maximum number of connections at a time; a process may have 1024 descriptors. */
#define BATCH 256
#define CHUNK_BYTES 16384u

static int connect_local(const char *path)
{
        struct sockaddr_un a = {.sun_family = AF_UNIX};
        _cleanup_close_ int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

        if (fd < 0)
                return -errno;
        if (strlen(path) >= sizeof a.sun_path)
                return -ENAMETOOLONG;
        strcpy(a.sun_path, path);
        if (connect(fd, (const struct sockaddr *)&a, sizeof a) == 0)
                return take_fd(&fd);
        /* The queue of a server that accepts nothing is full (unix(7)); over TCP, the kernel would wait. */
        return errno == EAGAIN ? -ETIMEDOUT : -errno;
}

static int open_connection(const char *place)
{
        struct net_address to;

        if (strncmp(place, UNIX_PREFIX, strlen(UNIX_PREFIX)) == 0)
                return connect_local(place + strlen(UNIX_PREFIX));
        if (net_address_parse_with_port(&to, place) < 0)
                return -EINVAL;
        return tcp_connect(NULL, &to, 0);
}

static void finish(struct http_get *g, int error)
{
        g->error = error;
        if (g->fd >= 0)
                close(take_fd(&g->fd));
        free(take_ptr(g->reply));
        free(take_ptr(g->request));
}

/* "HTTP/1.1 200 OK", headers, an empty line, the body. */
static void parse_reply(struct http_get *g)
{
        char *end = g->reply ? strstr(g->reply, "\r\n\r\n") : NULL;

        if (g->received == 0) {
                finish(g, -ECONNRESET);
                return;
        }
        if (!end || sscanf(g->reply, "HTTP/1.%*1[01] %3u", &g->status) != 1) {
                finish(g, -EBADMSG);
                return;
        }
        g->body = strdup(end + 4);
        finish(g, g->body ? 0 : -ENOMEM);
}

/* NULL: out of memory. */
static char *make_request(const struct http_get *g)
{
        const char *token = g->token ? g->token : "";
        char *text = NULL;
        size_t size;
        FILE *f = open_memstream(&text, &size);

        if (!f)
                return NULL;
        fprintf(f, "%s %s HTTP/1.0\r\nHost: evb\r\n", g->post ? "POST" : "GET", g->path);
        if (token[0])
                fprintf(f, "Authorization: Bearer %s\r\n", token);
        if (g->post)
                fprintf(f, "Content-Type: application/json\r\nContent-Length: %zu\r\n", strlen(g->post));
        fprintf(f, "\r\n%s", g->post ?: "");
        if (fclose(f) == 0)
                return text;
        free(text);
        return NULL;
}

static void send_some(struct http_get *g)
{
        size_t n = strlen(g->request);
        ssize_t k = send(g->fd, g->request + g->sent, n - g->sent, MSG_NOSIGNAL);

        if (k < 0 && errno != EAGAIN)
                finish(g, -errno);
        else if (k > 0)
                g->sent += (size_t)k;
        if (g->fd >= 0 && g->sent == n)
                g->sent = SIZE_MAX;
}

static void receive_some(struct http_get *g)
{
        char *grown = realloc(g->reply, g->received + CHUNK_BYTES + 1);
        ssize_t n;

        g->reply = grown ?: g->reply;
        if (!grown || g->received > HTTP_GET_MAX_BYTES) {
                finish(g, grown ? -EMSGSIZE : -ENOMEM);
                return;
        }
        n = recv(g->fd, g->reply + g->received, CHUNK_BYTES, 0);
        g->received += (size_t)MAX(n, (ssize_t)0);
        g->reply[g->received] = '\0';
        if (n == 0)
                parse_reply(g);
        else if (n < 0 && errno != EAGAIN)
                finish(g, -errno);
}

void http_get_start(struct http_get *g)
{
        g->error = -EINPROGRESS;
        g->status = 0;
        g->body = g->reply = NULL;
        g->sent = g->received = 0;
        g->request = make_request(g);
        g->fd = g->request ? open_connection(g->place) : -ENOMEM;
        if (g->fd < 0)
                finish(g, g->fd);
}

unsigned http_get_events(const struct http_get *g)
{
        return g->sent == SIZE_MAX ? POLLIN : POLLOUT;
}

void http_get_continue(struct http_get *g)
{
        int error = 0;
        socklen_t size = sizeof error;

        if (g->sent == 0 && getsockopt(g->fd, SOL_SOCKET, SO_ERROR, &error, &size) == 0 && error != 0)
                finish(g, -error);
        else if (g->sent == SIZE_MAX)
                receive_some(g);
        else
                send_some(g);
}

void http_get_stop(struct http_get *g, int error)
{
        if (g->fd >= 0)
                finish(g, error);
}

/* Ends requests whose host has not accepted the connection in time. Returns when the next one times out, at
 * most until_ns. */
static uint64_t stop_unconnected(struct http_get *gets, size_t n, uint64_t begun_ns, uint64_t now_ns,
                                 uint64_t until_ns)
{
        for (struct http_get *g = gets; g < gets + n; g++) {
                if (g->fd < 0 || g->sent > 0 || g->connect_ns == 0)
                        continue;
                if (now_ns >= begun_ns + g->connect_ns)
                        http_get_stop(g, -ETIMEDOUT);
                else
                        until_ns = MIN(until_ns, begun_ns + g->connect_ns);
        }
        return until_ns;
}

static void get_batch(struct http_get *gets, size_t n, uint64_t until_ns)
{
        struct pollfd p[BATCH];
        uint64_t begun_ns = clock_now_ns(), now_ns = begun_ns, next_ns;
        size_t open = n;

        for (size_t i = 0; i < n; i++)
                http_get_start(&gets[i]);
        while (open > 0 && now_ns < until_ns) {
                open = 0;
                next_ns = stop_unconnected(gets, n, begun_ns, now_ns, until_ns);
                for (size_t i = 0; i < n; i++) {
                        p[i] = (struct pollfd){.fd = gets[i].fd, .events = (short)http_get_events(&gets[i])};
                        open += gets[i].fd >= 0;
                }
                if (open > 0)
                        (void)poll(p, n, (int)DIV_ROUND_UP(next_ns - now_ns, NS_PER_MS));
                for (size_t i = 0; i < n; i++) {
                        if (gets[i].fd >= 0 && p[i].revents)
                                http_get_continue(&gets[i]);
                }
                now_ns = clock_now_ns();
        }
        for (size_t i = 0; i < n; i++)
                http_get_stop(&gets[i], -ETIMEDOUT);
}

void http_get_all(struct http_get *gets, size_t n, uint64_t timeout_ns)
{
        for (size_t i = 0; i < n; i += BATCH)
                get_batch(gets + i, MIN(n - i, (size_t)BATCH), clock_now_ns() + timeout_ns);
}
