/* Lines in and out of a socket, as it takes them. What they mean is said in standby.c, hub.c and remote.c. */
#include "json_connection.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "evb/base/util.h"

static void end(struct json_connection *t, int error)
{
        if (t->error < 0)
                return;
        t->error = error;
        loop_remove(t->loop, &t->io);
        t->ended(t->ctx, error);
}

/* As much as the socket takes; what is left goes when it takes more. Negative errno: it takes nothing any
 * more. */
static int flush(struct json_connection *t)
{
        ssize_t n = 0;

        while (n >= 0 && t->out_begin < t->out_end) {
                struct iovec iov = {t->out + t->out_begin, t->out_end - t->out_begin};

                n = tcp_send(t->io.fd, &iov, 1);
                t->out_begin += n > 0 ? (size_t)n : 0;
        }
        if (t->out_begin == t->out_end)
                t->out_begin = t->out_end = 0;
        (void)loop_modify(t->loop, &t->io, EPOLLIN | (t->out_end > 0 ? (uint32_t)EPOLLOUT : 0));
        return n < 0 && n != -EAGAIN ? (int)n : 0;
}

/* One line; false: the conversation is over, or was ended by who heard it. */
static bool take_line(struct json_connection *t, const char *line, size_t n)
{
        json_t *message = n > 0 ? json_loadb(line, n, JSON_REJECT_DUPLICATES, NULL) : NULL;
        bool object = json_is_object(message);

        if (object)
                t->heard(t->ctx, message);
        json_decref(message);
        if (!object && n > 0)
                end(t, -EBADMSG);
        return t->error == 0;
}

static void take_lines(struct json_connection *t)
{
        const uint8_t *bytes, *newline;
        size_t n;

        while ((bytes = tcp_reader_bytes(&t->reader, &n)) && n > 0 && (newline = memchr(bytes, '\n', n))) {
                size_t length = (size_t)(newline - bytes);

                tcp_reader_consume(&t->reader, length + 1);
                if (!take_line(t, (const char *)bytes, length))
                        return;
        }
        if (n >= JSON_CONNECTION_LINE_MAX_BYTES)
                end(t, -EMSGSIZE);
}

/* What has come is heard before a word that nobody takes any more ends the conversation; and no more than a
 * buffer of it at a time, or who never stops talking would keep us from all others. */
static void is_ready(void *ctx, uint32_t events)
{
        struct json_connection *t = ctx;
        ssize_t n = t->connecting ? tcp_connected(t->io.fd) : 0;

        if (n >= 0)
                t->connecting = false;
        if (n >= 0 && (events & (EPOLLIN | EPOLLHUP | EPOLLERR)))
                n = tcp_reader_fill(&t->reader);
        if (n > 0)
                take_lines(t);
        if (n >= 0 && t->error == 0 && (events & EPOLLOUT))
                n = flush(t);
        if (n < 0)
                end(t, (int)n);
}

int json_connection_open(struct json_connection *t, struct loop *loop, int fd, bool connecting)
{
        int r;

        t->loop = loop;
        t->error = 0;
        t->connecting = connecting;
        t->out = NULL;
        t->out_begin = t->out_end = t->out_size = 0;
        t->io = (struct loop_io){.fd = fd,
                                 .events = EPOLLIN | (connecting ? (uint32_t)EPOLLOUT : 0),
                                 .ready = is_ready,
                                 .ctx = t};
        tcp_notice_silence(fd);
        /* One line more than is allowed, so that a line of that length shows. */
        r = tcp_reader_init(&t->reader, fd, 2 * JSON_CONNECTION_LINE_MAX_BYTES);
        if (r >= 0)
                r = loop_add(loop, &t->io);
        if (r < 0)
                json_connection_close(t);
        return r;
}

void json_connection_close(struct json_connection *t)
{
        if (!t->loop)
                return;
        if (t->error == 0)
                loop_remove(t->loop, &t->io);
        t->error = -ENOTCONN;
        tcp_reader_fini(&t->reader);
        free(t->out);
        t->out = NULL;
        t->out_begin = t->out_end = t->out_size = 0;
        if (t->io.fd >= 0)
                close(t->io.fd);
        t->io.fd = -1;
        t->loop = NULL;
}

bool json_connection_is_open(const struct json_connection *t)
{
        return t->loop && t->error == 0;
}

char *json_connection_printable(char *text)
{
        for (char *at = text; *at; at++) {
                if ((unsigned char)*at < ' ' || *at == 0x7f)
                        *at = '?';
        }
        return text;
}

char *json_connection_text(const json_t *value, char *text, size_t size)
{
        snprintf(text, size, "%s", json_string_value(value) ?: "it does not say why");
        return json_connection_printable(text);
}

static bool make_room(struct json_connection *t, size_t n)
{
        char *grown;

        if (t->out_end + n <= t->out_size)
                return true;
        if (t->out_end - t->out_begin + n > JSON_CONNECTION_UNSENT_MAX_BYTES)
                return false;
        grown = malloc(2 * (t->out_end - t->out_begin + n));
        if (!grown)
                return false;
        if (t->out)
                memcpy(grown, t->out + t->out_begin, t->out_end - t->out_begin);
        free(t->out);
        t->out = grown;
        t->out_end -= t->out_begin;
        t->out_begin = 0;
        t->out_size = 2 * (t->out_end + n);
        return true;
}

void json_connection_send(struct json_connection *t, json_t *message)
{
        _cleanup_free_ char *text = json_dumps(message, JSON_COMPACT | JSON_REAL_PRECISION(12));
        size_t n = text ? strlen(text) : 0;

        json_decref(message);
        if (!json_connection_is_open(t))
                return;
        if (!text || n >= JSON_CONNECTION_LINE_MAX_BYTES || !make_room(t, n + 1)) {
                end(t, -ENOBUFS);
                return;
        }
        memcpy(t->out + t->out_end, text, n);
        t->out[t->out_end + n] = '\n';
        t->out_end += n + 1;
        /* Where that fails the loop says so, when what has come before has been heard. */
        if (!t->connecting)
                (void)flush(t);
}
