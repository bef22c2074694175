/* Reads and writes lines as fast as the socket allows. It does not interpret them. */
#include "net/json_connection.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "base/strbuf.h"
#include "base/util.h"

static void end(struct json_connection *c, int error)
{
        if (c->error < 0)
                return;
        c->error = error;
        loop_remove(c->loop, &c->io);
        c->ended(c->ctx, error);
}

/* Sends as much as the socket accepts; EPOLLOUT sends the rest. Negative errno: the socket failed. */
static int flush(struct json_connection *c)
{
        ssize_t n = 0;

        while (n >= 0 && c->out_begin < c->out_end) {
                struct iovec iov = {c->out + c->out_begin, c->out_end - c->out_begin};

                n = tcp_send(c->io.fd, &iov, 1);
                c->out_begin += n > 0 ? (size_t)n : 0;
        }
        if (c->out_begin == c->out_end)
                c->out_begin = c->out_end = 0;
        (void)loop_modify(c->loop, &c->io, EPOLLIN | (c->out_end > 0 ? (uint32_t)EPOLLOUT : 0));
        return n < 0 && n != -EAGAIN ? (int)n : 0;
}

static bool make_room(struct json_connection *c, size_t n)
{
        char *grown;

        if (c->out_end + n <= c->out_size)
                return true;
        if (c->out_end - c->out_begin + n > JSON_CONNECTION_UNSENT_MAX_BYTES)
                return false;
        grown = malloc(2 * (c->out_end - c->out_begin + n));
        if (!grown)
                return false;
        if (c->out)
                memcpy(grown, c->out + c->out_begin, c->out_end - c->out_begin);
        free(c->out);
        c->out = grown;
        c->out_end -= c->out_begin;
        c->out_begin = 0;
        c->out_size = 2 * (c->out_end + n);
        return true;
}

static void append(struct json_connection *c, const char *text, size_t n, char last)
{
        memcpy(c->out + c->out_end, text, n);
        c->out[c->out_end + n] = last;
        c->out_end += n + 1;
}

/* Sends a line, with the tag that the peer expects. Consumes the message. */
static void send_line(struct json_connection *c, json_t *message, bool tagged)
{
        _cleanup_free_ char *text = json_dumps(message, JSON_COMPACT | JSON_REAL_PRECISION(12));
        size_t n = text ? strlen(text) : 0;
        char tag[AUTH_LINE_TEXT_BYTES];

        json_decref(message);
        if (!json_connection_is_open(c))
                return;
        if (!text || n + (tagged ? sizeof tag : 0) >= JSON_CONNECTION_LINE_MAX_BYTES ||
            !make_room(c, n + 1 + sizeof tag)) {
                end(c, -ENOBUFS);
                return;
        }
        if (tagged) {
                auth_line_seal(&c->auth.line, text, n, tag);
                append(c, tag, sizeof tag - 1, ' ');
        }
        append(c, text, n, '\n');
        /* If this fails, the loop reports the error after the messages received before it. */
        if (!c->connecting)
                (void)flush(c);
}

static void send_held(struct json_connection *c)
{
        json_t *held = c->auth.held, *message;
        size_t i;

        c->auth.held = NULL;
        json_array_foreach(held, i, message) send_line(c, json_incref(message), true);
        json_decref(held);
}

/* Makes both ends report why their keys do not match. */
static void end_without_key(struct json_connection *c, int error)
{
        const char *why = json_auth_explain(error);
        json_t *refusal = json_pack("{s:s, s:s, s:s}", "refused", why, "type", "refused", "reason", why);

        if (c->auth.dials)
                c->received(c->ctx, refusal);
        send_line(c, refusal, false);
        if (json_connection_is_open(c))
                end(c, error);
}

static void receive_message(struct json_connection *c, const char *text, size_t n)
{
        json_t *message = json_loadb(text, n, JSON_REJECT_DUPLICATES, NULL);
        bool object = json_is_object(message);

        if (object)
                c->received(c->ctx, message);
        json_decref(message);
        if (!object)
                end(c, -EBADMSG);
}

/* Handles one line. Returns false if the connection has ended or the callback closed it. */
static bool read_line(struct json_connection *c, const char *line, size_t n)
{
        const char *text;
        enum json_auth_verdict v = n > 0 ? json_auth_check(&c->auth, line, n, &text) : JSON_AUTH_MESSAGE;

        if (json_auth_error(v) < 0)
                end_without_key(c, json_auth_error(v));
        else if (v == JSON_AUTH_READY)
                send_held(c);
        else if (v == JSON_AUTH_REFUSAL && !c->auth.dials)
                end(c, -ENOKEY);
        else if (n > 0)
                receive_message(c, text, n - (size_t)(text - line));
        return c->error == 0;
}

static void read_lines(struct json_connection *c)
{
        const uint8_t *bytes, *newline;
        size_t n;

        while ((bytes = tcp_reader_bytes(&c->reader, &n)) && n > 0 && (newline = memchr(bytes, '\n', n))) {
                size_t length = (size_t)(newline - bytes);

                tcp_reader_consume(&c->reader, length + 1);
                if (!read_line(c, (const char *)bytes, length))
                        return;
        }
        if (n >= JSON_CONNECTION_LINE_MAX_BYTES)
                end(c, -EMSGSIZE);
}

/* Reads before it writes, so that messages arrive even if a failed write ends the connection. It reads one
 * buffer at a time, so that a busy peer does not starve the others. */
static void is_ready(void *ctx, uint32_t events)
{
        struct json_connection *c = ctx;
        ssize_t n = c->connecting ? tcp_connected(c->io.fd) : 0;

        if (n >= 0)
                c->connecting = false;
        if (n >= 0 && (events & (EPOLLIN | EPOLLHUP | EPOLLERR)))
                n = tcp_reader_fill(&c->reader);
        if (n > 0)
                read_lines(c);
        if (n >= 0 && c->error == 0 && (events & EPOLLOUT))
                n = flush(c);
        if (n < 0)
                end(c, (int)n);
}

int json_connection_open(struct json_connection *c, struct loop *loop, int fd, bool connecting)
{
        int r;

        c->loop = loop;
        c->error = 0;
        c->connecting = connecting;
        c->out = NULL;
        c->out_begin = c->out_end = c->out_size = 0;
        c->io = (struct loop_io){.fd = fd,
                                 .events = EPOLLIN | (connecting ? (uint32_t)EPOLLOUT : 0),
                                 .ready = is_ready,
                                 .ctx = c};
        tcp_notice_silence(fd);
        /* Larger than the limit, so that a longer line is recognized. */
        r = tcp_reader_init(&c->reader, fd, 2 * JSON_CONNECTION_LINE_MAX_BYTES);
        if (r >= 0)
                r = json_auth_begin(&c->auth, c->key, connecting);
        if (r >= 0)
                r = loop_add(loop, &c->io);
        if (r < 0)
                json_connection_close(c);
        else if (c->key)
                send_line(c, json_auth_greeting(&c->auth), false);
        return r;
}

void json_connection_close(struct json_connection *c)
{
        if (!c->loop)
                return;
        if (c->error == 0)
                loop_remove(c->loop, &c->io);
        c->error = -ENOTCONN;
        tcp_reader_fini(&c->reader);
        json_auth_end(&c->auth);
        free(c->out);
        c->out = NULL;
        c->out_begin = c->out_end = c->out_size = 0;
        if (c->io.fd >= 0)
                close(c->io.fd);
        c->io.fd = -1;
        c->loop = NULL;
}

bool json_connection_is_open(const struct json_connection *c)
{
        return c->loop && c->error == 0;
}

char *json_connection_text(const json_t *value, char *text, size_t size)
{
        snprintf(text, size, "%s", json_string_value(value) ?: "no reason given");
        return text_make_printable(text);
}

void json_connection_send(struct json_connection *c, json_t *message)
{
        bool waits = json_connection_is_open(c) && c->auth.key && !c->auth.ready;

        /* A refusal ends the connection, so it is sent at once. */
        if (waits && !json_object_get(message, "refused")) {
                if (json_auth_hold(&c->auth, message) < 0)
                        end(c, -ENOBUFS);
                return;
        }
        send_line(c, message, json_connection_is_open(c) && c->auth.ready);
}
