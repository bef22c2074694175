/* A datagram is queued at the endpoint with its destination address. */
#include "inproc.h"

#include <errno.h>
#include <string.h>
#include <sys/eventfd.h>

#include "base/util.h"

#define DATAGRAM_MAX_BYTES 65536u

struct queued {
        uint32_t size_bytes;
        struct net_address from;
        uint8_t bytes[DATAGRAM_MAX_BYTES];
};

struct inproc {
        struct endpoint endpoint;
        struct inproc *next; /* list of all endpoints in this process */
        uint32_t capacity, head, tail, given;
        struct queued *queue;
};

static struct inproc *all;

static struct inproc *find(const struct net_address *address)
{
        for (struct inproc *i = all; i; i = i->next) {
                if (net_address_equal(&i->endpoint.local, address))
                        return i;
        }
        return NULL;
}

static int inproc_receive(struct endpoint *e, struct datagram *out, size_t n)
{
        struct inproc *i = (struct inproc *)e;
        uint64_t count;
        size_t given = 0;

        /* The caller has read the datagrams of the last receive. */
        i->tail += i->given;
        while (given < n && i->tail + given != i->head) {
                const struct queued *q = &i->queue[(i->tail + given) % i->capacity];

                out[given++] = (struct datagram){q->bytes, q->size_bytes, &q->from};
        }
        i->given = (uint32_t)given;
        if (i->tail + given == i->head)
                (void)!read(e->fd, &count, sizeof count);
        e->counts.received += given;
        return (int)given;
}

static void put(struct inproc *to, const struct inproc *from, const struct outgoing *o)
{
        struct queued *q = &to->queue[to->head % to->capacity];
        uint64_t one = 1;

        if (to->head - to->tail == to->capacity) {
                to->endpoint.counts.dropped++;
                return;
        }
        q->size_bytes = 0;
        q->from = from->endpoint.local;
        for (uint32_t k = 0; k < o->n_iov; k++) {
                memcpy(q->bytes + q->size_bytes, o->iov[k].iov_base, o->iov[k].iov_len);
                q->size_bytes += (uint32_t)o->iov[k].iov_len;
        }
        to->head++;
        (void)!write(to->endpoint.fd, &one, sizeof one);
}

static int inproc_send(struct endpoint *e, const struct outgoing *out, size_t n)
{
        for (size_t k = 0; k < n; k++) {
                struct inproc *to = out[k].to ? find(out[k].to) : NULL;
                bool reaches = to && out[k].size_bytes <= DATAGRAM_MAX_BYTES;

                if (reaches)
                        put(to, (struct inproc *)e, &out[k]);
                e->counts.sent += reaches;
                if (!reaches) {
                        e->counts.send_failed++;
                        e->counts.send_failed_bytes += out[k].size_bytes;
                        e->counts.send_error = to ? EMSGSIZE : EHOSTUNREACH;
                }
        }
        return (int)n;
}

static void inproc_counts(struct endpoint *e) {}

static uint64_t inproc_unsent(struct endpoint *e)
{
        return 0;
}

static void inproc_free(struct endpoint *e)
{
        struct inproc *i = (struct inproc *)e, **at = &all;

        while (*at && *at != i)
                at = &(*at)->next;
        if (*at)
                *at = i->next;
        if (e->fd >= 0)
                close(e->fd);
        free(i->queue);
        free(i);
}

static const struct endpoint_ops inproc_ops = {inproc_receive, inproc_send, inproc_counts, inproc_unsent,
                                               inproc_free};

int endpoint_new_inproc(struct endpoint **ret, const struct net_address *local, uint32_t capacity)
{
        struct inproc *i;

        if (capacity == 0)
                return -EINVAL;
        if (find(local))
                return -EADDRINUSE;
        i = calloc(1, sizeof *i);
        if (!i)
                return -ENOMEM;
        i->endpoint.ops = &inproc_ops;
        i->endpoint.local = *local;
        i->capacity = capacity;
        i->queue = calloc(capacity, sizeof *i->queue);
        i->endpoint.fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
        if (!i->queue || i->endpoint.fd < 0) {
                inproc_free(&i->endpoint);
                return -ENOMEM;
        }
        i->next = all;
        all = i;
        *ret = &i->endpoint;
        return 0;
}
