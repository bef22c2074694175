/* Paths that send pages of the mapped file without a copy: with MSG_ZEROCOPY (Documentation/networking/
 * msg_zerocopy.rst), whose notifications say when the kernel needs the bytes no longer, and with vmsplice().
 * Headers stay where they are until their notification has come. */
#include <errno.h>
#include <fcntl.h>
#include <linux/errqueue.h>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>

#include "base/util.h"
#include "sys/memory.h"
#include "path_map.h"
#include "path_pipe.h"
#include "path_send.h"

/* Calls whose bytes the kernel may hold at once. */
#define CALLS_MAX 64u
/* Reads notifications after so many calls: the kernel joins those of subsequent calls. */
#define READ_EVERY 16u
#define WAIT_MS 10000
/* MAX_SKB_FRAGS of the kernel: the parts of one super-packet that are not copied. */
#define FRAGS_MAX 17u
#define PAGE_BYTES 4096u

/* What the kernel holds: call k has batch k mod CALLS_MAX. */
struct held {
        struct path_batch batches[CALLS_MAX];
        uint64_t calls, notified;
};

/* The range of calls in one notification. Returns their number; 0: it is another message. */
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

/* Reads all notifications that are there. */
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
                /* An error queue is reported whether it is asked for or not. */
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

/* Sends, and once more if the kernel had no room to remember the call. */
static int send_held(struct path_sender *s, struct held *h, const struct msghdr *m, size_t size)
{
        ssize_t n = sendmsg(s->socket, m, MSG_ZEROCOPY);
        int r = 0;

        if (n < 0 && errno == ENOBUFS && h->calls > h->notified) {
                r = wait_for_notifications(s, h, 0);
                n = r < 0 ? -1 : sendmsg(s->socket, m, MSG_ZEROCOPY);
        }
        if (r >= 0)
                r = path_moved(s, "sendmsg with MSG_ZEROCOPY", n, size);
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

/* Sends batches by `send_batch` until that fails, and waits for all notifications. */
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

                if (path_batch_take(b, s, map, most) == 0)
                        break;
                r = send_batch(s, h, b);
        }
        if (h && r >= 0)
                r = wait_for_notifications(s, h, 0);
        /* What the kernel may still hold is kept until the process ends. */
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

        return r < 0 ? r : send_held(s, h, &m, b->iov[1].iov_len);
}

int path_zerocopy_more(struct path_sender *s)
{
        return send_each(s, 1, send_more);
}

static int send_gathered(struct path_sender *s, struct held *h, struct path_batch *b)
{
        struct msghdr m = {.msg_iov = b->iov, .msg_iovlen = 2 * b->n};

        return send_held(s, h, &m, b->bytes);
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
                return send_held(s, h, &m, b->bytes);
        m.msg_control = control.bytes;
        m.msg_controllen = sizeof control.bytes;
        control.align = (struct cmsghdr){
                .cmsg_level = SOL_UDP, .cmsg_type = UDP_SEGMENT, .cmsg_len = CMSG_LEN(sizeof size)};
        memcpy(CMSG_DATA(&control.align), &size, sizeof size);
        return send_held(s, h, &m, b->bytes);
}

/* A super-packet has at most 64 KiB, and a part for each header and each page that a payload touches. */
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

/* The mapped file does not change, so nothing has to tell when its pages are free again. */
int path_map_vmsplice(struct path_sender *s)
{
        const uint8_t *map = path_map(s);
        struct path_packet p;
        int pipe[2], r = path_pipe_open(s, pipe);

        if (r >= 0 && !map)
                r = -errno;
        while (r >= 0 && path_take(s, &p, 1) > 0)
                r = splice_one(s, pipe, &p, map + p.offset);
        path_pipe_close(pipe);
        return path_unmap(s, map, r);
}
