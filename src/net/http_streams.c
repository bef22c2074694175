/* Feeds streams of events to an HTTP server's connections. MHD asks for bytes when a socket takes some; a
 * stream without any is suspended until the next line or its end. */
#include "http_streams.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/util.h"
#include "sys/loop.h"

/* Of a response, for each stream. */
#define BLOCK_BYTES (16u << 10)
/* The client waits this long before it connects again. */
#define GREETING "retry: 1000\n\n"
#define FIELD "data: "
#define FIELD_END "\n\n"

struct http_message {
        size_t n_users; /* streams that send it, and the place it is kept in */
        uint64_t number;
        size_t bytes;
        char text[];
};

static struct http_message *message_new(const char *begin, const char *text, const char *end)
{
        size_t bytes = strlen(begin) + strlen(text) + strlen(end);
        struct http_message *m = malloc(sizeof *m + bytes + 1);

        if (!m)
                return NULL;
        *m = (struct http_message){.n_users = 1, .bytes = bytes};
        stpcpy(stpcpy(stpcpy(m->text, begin), text), end);
        return m;
}

static struct http_message *message_unref(struct http_message *m)
{
        if (m && --m->n_users == 0)
                free(m);
        return NULL;
}

int http_streams_init(struct http_streams *s, uint64_t lifetime_ns)
{
        *s = (struct http_streams){.lifetime_ns = lifetime_ns, .wake_fd = -1};
        pthread_mutex_init(&s->lock, NULL);
        s->greeting = message_new("", GREETING, "");
        if (!s->greeting)
                return -ENOMEM;
        s->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
        return s->wake_fd < 0 ? -errno : 0;
}

void http_streams_fini(struct http_streams *s)
{
        s->greeting = message_unref(s->greeting);
        s->current = message_unref(s->current);
        s->incoming = message_unref(s->incoming);
        if (s->wake_fd >= 0)
                close(take_fd(&s->wake_fd));
        pthread_mutex_destroy(&s->lock);
}

int http_streams_publish(struct http_streams *s, const char *line)
{
        struct http_message *m = message_new(FIELD, line, FIELD_END), *previous;

        if (!m)
                return -ENOMEM;
        pthread_mutex_lock(&s->lock);
        previous = s->incoming;
        s->incoming = m;
        pthread_mutex_unlock(&s->lock);
        message_unref(previous);
        (void)eventfd_write(s->wake_fd, 1);
        return 0;
}

static void send_next(struct http_stream *one, struct http_message *m)
{
        m->n_users++;
        one->sending = m;
        one->sent_bytes = 0;
        one->number = m->number;
}

static bool is_over(const struct http_stream *one, uint64_t now_ns)
{
        return one->all->ended || now_ns >= one->until_ns;
}

/* MHD calls this whenever it can send. */
static ssize_t read_some(void *ctx, uint64_t position, char *buffer, size_t size)
{
        struct http_stream *one = ctx;
        struct http_message *current = one->all->current;
        size_t n;

        if (!one->sending && is_over(one, clock_now_ns()))
                return MHD_CONTENT_READER_END_OF_STREAM;
        if (!one->sending && current && current->number != one->number)
                send_next(one, current);
        if (!one->sending) {
                one->waits = true;
                MHD_suspend_connection(one->handle);
                return 0;
        }
        n = MIN(size, one->sending->bytes - one->sent_bytes);
        memcpy(buffer, one->sending->text + one->sent_bytes, n);
        one->sent_bytes += n;
        if (one->sent_bytes == one->sending->bytes)
                one->sending = message_unref(one->sending);
        return (ssize_t)n;
}

static void remove_one(void *ctx)
{
        struct http_stream *one = ctx;
        struct http_streams *s = one->all;

        message_unref(one->sending);
        *one = (struct http_stream){};
        /* It would be old for the next stream. */
        if (--s->n == 0)
                s->current = message_unref(s->current);
}

struct MHD_Response *http_streams_add(struct http_streams *s, struct MHD_Connection *c, uint64_t now_ns)
{
        struct http_stream *one = s->streams;
        struct MHD_Response *r;

        if (s->n == HTTP_STREAMS_MAX)
                return NULL;
        while (one->handle)
                one++;
        r = MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, BLOCK_BYTES, read_some, one, remove_one);
        if (!r)
                return NULL;
        *one = (struct http_stream){.all = s, .handle = c, .until_ns = now_ns + s->lifetime_ns};
        send_next(one, s->greeting);
        s->n++;
        return r;
}

static void accept_incoming(struct http_streams *s)
{
        struct http_message *m;
        uint64_t ignored;

        (void)read(s->wake_fd, &ignored, sizeof ignored);
        pthread_mutex_lock(&s->lock);
        m = take_ptr(s->incoming);
        pthread_mutex_unlock(&s->lock);
        if (!m)
                return;
        m->number = s->current ? s->current->number + 1 : 1;
        message_unref(s->current);
        s->current = s->n > 0 ? m : message_unref(m);
}

static void resume(struct http_stream *one)
{
        one->waits = false;
        MHD_resume_connection(one->handle);
}

void http_streams_turn(struct http_streams *s, uint64_t now_ns)
{
        accept_incoming(s);
        for (struct http_stream *one = s->streams; one < s->streams + HTTP_STREAMS_MAX; one++) {
                bool is_new = s->current && s->current->number != one->number;

                if (one->handle && one->waits && (is_new || is_over(one, now_ns)))
                        resume(one);
        }
}

void http_streams_end(struct http_streams *s)
{
        s->ended = true;
        http_streams_turn(s, 0);
}
