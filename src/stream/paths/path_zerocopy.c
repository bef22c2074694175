/* The paths whose packets refer to pages instead of copies; notifications of the kernel report when it has
 * released the pages. */
#include <errno.h>
#include <fcntl.h>
#include <linux/errqueue.h>
#include <netinet/udp.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>

#include "base/util.h"
#include "sys/memory.h"
#include "sys/uring.h"
#include "path_internal.h"

/* Paths that send pages of the mapped file without a copy: with MSG_ZEROCOPY
 * (Documentation/networking/msg_zerocopy.rst), whose notifications report that the kernel no longer needs the
 * bytes, and with vmsplice(). Headers stay unchanged until their notification has arrived. */

/* Maximum number of calls whose bytes the kernel may hold. */
#define CALLS_MAX 64u
/* Notifications are read after this many calls, because the kernel merges the notifications of consecutive
 * calls. */
#define READ_EVERY 16u
#define WAIT_MS 10000
/* MAX_SKB_FRAGS of the kernel: maximum number of uncopied parts of one super-packet. */
#define FRAGS_MAX 17u
#define PAGE_BYTES 4096u

/* The batches that the kernel holds: call k uses batch k mod CALLS_MAX. */
struct held {
        struct path_batch batches[CALLS_MAX];
        uint64_t calls, notified;
};

/* Reads the range of calls in one notification. Returns their number; 0: it is another message. */
static uint32_t read_range(struct msghdr *m, bool *ret_copied)
{
        for (struct cmsghdr *c = CMSG_FIRSTHDR(m); c; c = CMSG_NXTHDR(m, c)) {
                struct sock_extended_err e;

                if (c->cmsg_len < CMSG_LEN(sizeof e))
                        continue;
                memcpy(&e, CMSG_DATA(c), sizeof e);
                if (e.ee_origin != SO_EE_ORIGIN_ZEROCOPY || e.ee_errno != 0)
                        continue;
                *ret_copied = e.ee_code & SO_EE_CODE_ZEROCOPY_COPIED;
                return e.ee_data - e.ee_info + 1;
        }
        return 0;
}

/* Reads all pending notifications. */
static int read_notifications(struct path_sender *s, struct held *h)
{
        while (true) {
                char control[256];
                struct msghdr m = {.msg_control = control, .msg_controllen = sizeof control};
                bool copied = false;
                uint32_t n;

                if (recvmsg(s->socket, &m, MSG_ERRQUEUE | MSG_DONTWAIT) < 0)
                        return errno == EAGAIN ? 0 : path_failed(s, "recvmsg with MSG_ERRQUEUE");
                n = read_range(&m, &copied);
                h->notified += n;
                s->notified += n;
                s->copied += copied ? n : 0;
        }
}

/* Waits until the kernel holds at most `most` calls. */
static int wait_for_notifications(struct path_sender *s, struct held *h, uint64_t most)
{
        int r = 0;

        while (r >= 0 && h->calls - h->notified > most) {
                struct pollfd p = {.fd = s->socket};

                r = read_notifications(s, h);
                if (r < 0 || h->calls - h->notified <= most)
                        break;
                /* poll() reports an error queue even if it was not requested. */
                r = poll(&p, 1, WAIT_MS);
                if (r > 0 || (r < 0 && errno == EINTR)) {
                        r = 0;
                        continue;
                }
                errno = r == 0 ? ETIMEDOUT : errno;
                r = path_failed(s, "poll for notifications");
        }
        return r;
}

/* Sends, and retries once if the kernel had no memory to track the call. After a partial call, the rest is
 * copied, so that one call still uses one batch. */
static int send_held(struct path_sender *s, struct held *h, const struct msghdr *m)
{
        ssize_t n = sendmsg(s->socket, m, MSG_ZEROCOPY);
        int r = 0;

        if (n < 0 && errno == ENOBUFS && h->calls > h->notified) {
                r = wait_for_notifications(s, h, 0);
                n = r < 0 ? -1 : sendmsg(s->socket, m, MSG_ZEROCOPY);
        }
        if (r >= 0)
                r = path_sent(s, "sendmsg with MSG_ZEROCOPY", n, m->msg_iov, m->msg_iovlen);
        if (r < 0)
                return r;
        h->calls++;
        if (h->calls % READ_EVERY == 0)
                r = read_notifications(s, h);
        return r < 0 ? r : wait_for_notifications(s, h, CALLS_MAX - 1);
}

static int enable(struct path_sender *s)
{
        return path_set_option(s, SOL_SOCKET, SO_ZEROCOPY, 1, "setsockopt SO_ZEROCOPY");
}

/* Sends batches with `send_batch` until that fails, and waits for all notifications. */
static int send_each(struct path_sender *s, size_t most,
                     int (*send_batch)(struct path_sender *s, struct held *h, struct path_batch *b))
{
        struct held *h = memory_map(sizeof *h);
        const uint8_t *map = path_map(s);
        int r = map ? enable(s) : -errno;

        if (!h) {
                errno = ENOMEM;
                r = path_failed(s, "mmap");
        }
        while (h && r >= 0) {
                struct path_batch *b = &h->batches[h->calls % CALLS_MAX];

                if (path_batch_pop(b, s, map, most) == 0)
                        break;
                r = send_batch(s, h, b);
        }
        if (h && r >= 0)
                r = wait_for_notifications(s, h, 0);
        /* On an error, memory that the kernel may still hold is kept until the process ends. */
        if (r >= 0)
                memory_unmap(h, sizeof *h);
        return path_unmap(s, map, r);
}

/* The header is copied, the payload is not. The kernel copies a corked datagram as a whole:
 * __ip_append_data() in net/ipv4/ip_output.c. */
static int send_more(struct path_sender *s, struct held *h, struct path_batch *b)
{
        struct msghdr m = {.msg_iov = &b->iov[1], .msg_iovlen = 1};
        int r = path_send_bytes(s, b->headers[0], b->iov[0].iov_len, MSG_MORE);

        return r < 0 ? r : send_held(s, h, &m);
}

int path_zerocopy_more(struct path_sender *s)
{
        return send_each(s, 1, send_more);
}

static int send_gathered(struct path_sender *s, struct held *h, struct path_batch *b)
{
        struct msghdr m = {.msg_iov = b->iov, .msg_iovlen = 2 * b->n};

        return send_held(s, h, &m);
}

int path_zerocopy_sendmsg(struct path_sender *s)
{
        return send_each(s, 1, send_gathered);
}

/* The kernel divides one super-packet into datagrams of this size. The last may be shorter. */
static int send_segments(struct path_sender *s, struct held *h, struct path_batch *b)
{
        union {
                char bytes[CMSG_SPACE(sizeof(uint16_t))];
                struct cmsghdr align;
        } control = {};
        struct msghdr m = {.msg_iov = b->iov, .msg_iovlen = 2 * b->n};
        uint16_t size = (uint16_t)(b->iov[0].iov_len + b->iov[1].iov_len);

        if (b->n == 1)
                return send_held(s, h, &m);
        m.msg_control = control.bytes;
        m.msg_controllen = sizeof control.bytes;
        control.align = (struct cmsghdr){
                .cmsg_level = SOL_UDP, .cmsg_type = UDP_SEGMENT, .cmsg_len = CMSG_LEN(sizeof size)};
        memcpy(CMSG_DATA(&control.align), &size, sizeof size);
        return send_held(s, h, &m);
}

/* Number of segments: a super-packet has at most 64 KiB, and one part for each header and for each page of a
 * payload. */
static size_t segments_of(const struct path_sender *s)
{
        size_t pages = DIV_ROUND_UP(s->payload_bytes, PAGE_BYTES) + (PAGE_BYTES % s->payload_bytes != 0);

        return MAX(MIN(FRAGS_MAX / (1 + pages), 65000u / (s->payload_bytes + PATH_HEADER_MAX_BYTES)),
                   (size_t)1);
}

int path_zerocopy_batch(struct path_sender *s)
{
        return s->wire == PATH_UDP ? send_each(s, segments_of(s), send_segments)
                                   : send_each(s, PATH_BATCH_MAX, send_gathered);
}

static int splice_one(struct path_sender *s, const int pipe[static 2], const struct path_packet *p,
                      const uint8_t *payload)
{
        struct iovec iov = {(uint8_t *)payload, p->length};
        int r = path_pipe_header(s, pipe[1], p);

        if (r >= 0)
                r = path_moved(s, "vmsplice", vmsplice(pipe[1], &iov, 1, 0), p->length);
        return r < 0 ? r : path_pipe_send(s, pipe[0], p);
}

/* The mapped file does not change, so its pages need no notification. */
int path_map_vmsplice(struct path_sender *s)
{
        const uint8_t *map = path_map(s);
        struct path_packet p;
        int pipe[2], r = path_pipe_open(s, pipe);

        if (r >= 0 && !map)
                r = -errno;
        while (r >= 0 && path_pop(s, &p, 1) > 0)
                r = splice_one(s, pipe, &p, map + p.offset);
        path_pipe_close(pipe);
        return path_unmap(s, map, r);
}

/* Paths that send many packets per system call, through io_uring: a batch is a chain of linked requests, so
 * that a stream keeps its order and a packet follows its header. */

/* Maximum number of requests per packet. */
#define REQUESTS_MAX 3u
/* The next batch is made while the kernel holds the bytes of another. */
#define SLOTS 2u

struct slot {
        struct path_batch batch;
        struct msghdr messages[PATH_BATCH_MAX];
        unsigned held; /* requests whose notification has not arrived */
};

struct chain {
        struct path_sender *sender;
        struct uring *ring;
        struct slot slots[SLOTS];
        struct io_uring_sqe *last; /* the previous request */
        unsigned n;                /* requests without a result */
        int error;                 /* first error of this batch */
        uint64_t batches;
};

/* The data returned with a completion: the slot, and the expected result of the request. */
static uint64_t user_data(size_t slot, size_t size)
{
        return (uint64_t)slot << 32 | size;
}

static int chain_new(struct chain **ret, struct path_sender *s)
{
        struct chain *c = memory_map(sizeof *c);
        int r;

        if (!c) {
                errno = ENOMEM;
                return path_failed(s, "mmap");
        }
        c->sender = s;
        r = uring_new(&c->ring, REQUESTS_MAX * PATH_BATCH_MAX, SLOTS * 2 * REQUESTS_MAX * PATH_BATCH_MAX);
        if (r < 0) {
                memory_unmap(c, sizeof *c);
                errno = -r;
                return path_failed(s, "io_uring_setup");
        }
        *ret = c;
        return 0;
}

/* Adds a request that must return `size`, linked to the previous one. The queue has room for any batch. */
static struct io_uring_sqe *chain_add(struct chain *c, uint8_t opcode, int fd, size_t slot, size_t size)
{
        struct io_uring_sqe *q = uring_request(c->ring);

        if (c->last)
                c->last->flags |= IOSQE_IO_LINK;
        q->opcode = opcode;
        q->fd = fd;
        q->user_data = user_data(slot, size);
        c->last = q;
        c->n++;
        return q;
}

static void complete(struct chain *c, const struct io_uring_cqe *e)
{
        struct slot *slot = &c->slots[e->user_data >> 32];
        int32_t expected = (int32_t)(uint32_t)e->user_data;

        if (e->flags & IORING_CQE_F_NOTIF) {
                slot->held--;
                c->sender->notified++;
                c->sender->copied += ((uint32_t)e->res & IORING_NOTIF_USAGE_ZC_COPIED) != 0;
                return;
        }
        c->n--;
        slot->held += (e->flags & IORING_CQE_F_MORE) != 0;
        if (e->res == expected)
                return;
        /* The kernel cancels the requests that follow a failed one. */
        if (c->error == 0 || c->error == -ECANCELED)
                c->error = e->res < 0 ? e->res : -EIO;
}

/* Submits the added requests, and waits for all results and until the kernel holds nothing of `slot`. */
static int chain_run(struct chain *c, const struct slot *slot, const char *what)
{
        struct io_uring_cqe e;
        int r = 0;

        while (r >= 0 && (c->n > 0 || (slot && slot->held > 0))) {
                r = uring_submit(c->ring, MAX(c->n, 1u));
                while (uring_completion(c->ring, &e))
                        complete(c, &e);
        }
        c->last = NULL;
        r = r < 0 ? r : c->error;
        if (r >= 0)
                return 0;
        errno = -r;
        return path_failed(c->sender, what);
}

/* Returns the slot of the next batch once the kernel has released it. NULL: failed. */
static struct slot *chain_slot(struct chain *c)
{
        struct slot *slot = &c->slots[c->batches++ % SLOTS];

        return chain_run(c, slot, "io_uring: notifications") < 0 ? NULL : slot;
}

/* Frees the chain once the kernel holds nothing; after an error, memory that it may hold is kept until the
 * process ends. Returns r, or the error. */
static int chain_end(struct chain *c, int r)
{
        for (size_t i = 0; i < SLOTS && r >= 0; i++)
                r = chain_run(c, &c->slots[i], "io_uring: notifications");
        if (r < 0)
                return r;
        uring_free(c->ring);
        memory_unmap(c, sizeof *c);
        return 0;
}

/* Adds a request for each packet of the batch. */
static void add_messages(struct chain *c, struct slot *slot, uint16_t flags)
{
        size_t index = (size_t)(slot - c->slots);

        for (size_t i = 0; i < slot->batch.n; i++) {
                struct iovec *iov = &slot->batch.iov[2 * i];
                struct io_uring_sqe *q = chain_add(c, IORING_OP_SENDMSG_ZC, c->sender->socket, index,
                                                   iov[0].iov_len + iov[1].iov_len);

                slot->messages[i] = (struct msghdr){.msg_iov = iov, .msg_iovlen = 2};
                q->addr = (uint64_t)(uintptr_t)&slot->messages[i];
                q->len = 1;
                q->msg_flags = MSG_WAITALL;
                q->ioprio = IORING_SEND_ZC_REPORT_USAGE | flags;
        }
}

int path_uring_map(struct path_sender *s)
{
        const uint8_t *map = path_map(s);
        struct chain *c = NULL;
        int r = map ? chain_new(&c, s) : -errno;

        while (c && r >= 0) {
                struct slot *slot = chain_slot(c);

                if (!slot)
                        r = -errno;
                else if (path_batch_pop(&slot->batch, s, map, PATH_BATCH_MAX) == 0)
                        break;
                if (r < 0)
                        break;
                add_messages(c, slot, 0);
                r = chain_run(c, NULL, "io_uring SENDMSG_ZC");
        }
        return path_unmap(s, map, c ? chain_end(c, r) : r);
}

static void add_splice(struct chain *c, int from, uint64_t offset, int to, size_t n)
{
        struct io_uring_sqe *q = chain_add(c, IORING_OP_SPLICE, to, 0, n);

        q->splice_fd_in = from;
        q->splice_off_in = offset;
        q->off = UINT64_MAX; /* a pipe and a socket have no position */
        q->len = (uint32_t)n;
}

/* The kernel splices in a separate thread. */
static int splice_batch(struct chain *c, struct path_batch *b, const int pipe[static 2])
{
        const struct path_sender *s = c->sender;

        for (size_t i = 0; i < b->n; i++) {
                const struct path_packet *p = &b->packets[i];
                struct io_uring_sqe *q = chain_add(c, IORING_OP_SEND, s->socket, 0, b->iov[2 * i].iov_len);

                q->addr = (uint64_t)(uintptr_t)b->headers[i];
                q->len = (uint32_t)b->iov[2 * i].iov_len;
                q->msg_flags = MSG_MORE | MSG_WAITALL;
                add_splice(c, s->file, p->offset, pipe[1], p->length);
                add_splice(c, pipe[0], UINT64_MAX, s->socket, p->length);
        }
        return chain_run(c, NULL, "io_uring SPLICE");
}

int path_uring_splice(struct path_sender *s)
{
        struct path_batch *b;
        struct chain *c = NULL;
        int pipe[2], r = path_pipe_open(s, pipe);

        if (r >= 0)
                r = chain_new(&c, s);
        b = c ? &c->slots[0].batch : NULL;
        while (b && r >= 0 && path_batch_pop(b, s, NULL, PATH_BATCH_MAX) > 0)
                r = splice_batch(c, b, pipe);
        path_pipe_close(pipe);
        return c ? chain_end(c, r) : r;
}

/* Memory registered with the ring: headers and payload of all slots. */
struct region {
        uint8_t *memory;
        size_t size_bytes, slot_bytes, payload_at;
        bool fixed; /* messages may refer to it as registered (Linux 6.16) */
};

static int region_init(struct region *g, struct chain *c)
{
        int r;

        g->payload_at = ALIGN_UP((size_t)PATH_BATCH_MAX * PATH_HEADER_PLACE_BYTES, (size_t)PAGE_BYTES);
        g->slot_bytes = g->payload_at +
                        ALIGN_UP((size_t)MAX(PATH_BATCH_BYTES, c->sender->payload_bytes), (size_t)PAGE_BYTES);
        g->size_bytes = SLOTS * g->slot_bytes;
        g->fixed = true;
        g->memory = memory_map(g->size_bytes);
        r = g->memory ? uring_register_buffer(c->ring, g->memory, g->size_bytes) : -ENOMEM;
        if (r >= 0)
                return 0;
        errno = -r;
        return path_failed(c->sender, "io_uring: register a buffer");
}

/* Reads the payload of a batch from the file, then sends it, in one chain. */
static int read_and_send(struct chain *c, struct region *g, struct slot *slot)
{
        size_t index = (size_t)(slot - c->slots), bytes = 0;
        struct path_batch *b = &slot->batch;
        uint8_t *headers = g->memory + index * g->slot_bytes, *payload = headers + g->payload_at;
        struct io_uring_sqe *q;

        for (size_t i = 0; i < b->n; i++) {
                uint8_t *header = headers + i * PATH_HEADER_PLACE_BYTES;

                memcpy(header, b->headers[i], b->iov[2 * i].iov_len);
                b->iov[2 * i].iov_base = header;
                b->iov[2 * i + 1].iov_base = payload + bytes;
                bytes += b->packets[i].length;
        }
        q = chain_add(c, IORING_OP_READ_FIXED, c->sender->file, index, bytes);
        q->addr = (uint64_t)(uintptr_t)payload;
        q->len = (uint32_t)bytes;
        q->off = b->packets[0].offset;
        add_messages(c, slot, g->fixed ? IORING_RECVSEND_FIXED_BUF : 0);
        return chain_run(c, NULL, "io_uring READ_FIXED and SENDMSG_ZC");
}

int path_uring_read(struct path_sender *s)
{
        struct region g = {};
        struct chain *c = NULL;
        int r = chain_new(&c, s);

        if (c && r >= 0)
                r = region_init(&g, c);
        while (c && r >= 0) {
                struct slot *slot = chain_slot(c);

                if (!slot)
                        r = -errno;
                if (r < 0 || path_batch_pop(&slot->batch, s, NULL, PATH_BATCH_MAX) == 0)
                        break;
                r = read_and_send(c, &g, slot);
                /* An older kernel refuses the first message without sending anything. */
                if (r == -EINVAL && g.fixed && c->batches == 1) {
                        g.fixed = false;
                        c->error = 0;
                        r = read_and_send(c, &g, slot);
                }
        }
        r = c ? chain_end(c, r) : r;
        if (r >= 0)
                memory_unmap(g.memory, g.size_bytes);
        return r;
}
