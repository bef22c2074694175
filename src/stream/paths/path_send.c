/* The paths that copy or pass on the bytes of each packet with separate calls. */
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <netinet/udp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/util.h"
#include "path_internal.h"

/* Steps that several paths share: they map the file, make batches of packets, and cork sockets. */

const uint8_t *path_map(struct path_sender *s)
{
        void *map = mmap(NULL, s->file_bytes, PROT_READ, MAP_SHARED, s->file, 0);

        if (map != MAP_FAILED)
                return map;
        (void)path_failed(s, "mmap");
        return NULL;
}

int path_unmap(const struct path_sender *s, const uint8_t *map, int r)
{
        if (map)
                munmap((void *)map, s->file_bytes);
        return r;
}

int path_map_each(struct path_sender *s)
{
        const uint8_t *map = path_map(s);
        struct path_packet p;
        int r = map ? 0 : -errno;

        while (r >= 0 && path_pop(s, &p, 1) > 0)
                r = s->path->send_one(s, &p, map + p.offset);
        return path_unmap(s, map, r);
}

int path_sent(struct path_sender *s, const char *what, ssize_t n, struct iovec *iov, size_t n_iov)
{
        while (n > 0) {
                for (; n_iov > 0 && (size_t)n >= iov->iov_len; iov++, n_iov--)
                        n -= (ssize_t)iov->iov_len;
                if (n_iov == 0)
                        return 0;
                iov->iov_base = (uint8_t *)iov->iov_base + n;
                iov->iov_len -= (size_t)n;
                n = writev(s->socket, iov, (int)n_iov);
        }
        return path_moved(s, what, n, SIZE_MAX);
}

int path_send_bytes(struct path_sender *s, const uint8_t *bytes, size_t n, int flags)
{
        struct iovec iov = {(uint8_t *)bytes, n};

        return path_sent(s, flags & MSG_MORE ? "send with MSG_MORE" : "send",
                         send(s->socket, bytes, n, flags), &iov, 1);
}

static int send_header(struct path_sender *s, const struct path_packet *p, int flags)
{
        uint8_t header[PATH_HEADER_MAX_BYTES];

        return path_send_bytes(s, header, path_header_encode(p, header), flags);
}

int path_send_gathered(struct path_sender *s, const struct path_packet *p, const uint8_t *payload)
{
        uint8_t header[PATH_HEADER_MAX_BYTES];
        struct iovec iov[2] = {{header, path_header_encode(p, header)}, {(uint8_t *)payload, p->length}};

        return path_sent(s, "writev", writev(s->socket, iov, 2), iov, 2);
}

int path_set_option(struct path_sender *s, int level, int option, int value, const char *what)
{
        return setsockopt(s->socket, level, option, &value, sizeof value) < 0 ? path_failed(s, what) : 0;
}

/* Begins (1) or ends (0) a packet of several calls: UDP_CORK, TCP_CORK. */
static int set_cork(struct path_sender *s, int on)
{
        return s->wire == PATH_UDP ? path_set_option(s, IPPROTO_UDP, UDP_CORK, on, "setsockopt UDP_CORK")
                                   : path_set_option(s, IPPROTO_TCP, TCP_CORK, on, "setsockopt TCP_CORK");
}

size_t path_batch_pop(struct path_batch *b, struct path_sender *s, const uint8_t *map, size_t most)
{
        b->n = path_pop(s, b->packets, most);
        b->bytes = 0;
        for (size_t i = 0; i < b->n; i++) {
                const struct path_packet *p = &b->packets[i];

                b->iov[2 * i] = (struct iovec){b->headers[i], path_header_encode(p, b->headers[i])};
                b->iov[2 * i + 1] = (struct iovec){map ? (uint8_t *)map + p->offset : NULL, p->length};
                b->bytes += b->iov[2 * i].iov_len + p->length;
        }
        return b->n;
}

/* Moves packets through a pipe, which holds pages of the file. */

/* The default of 16 pages is less than a large packet, so writing such a packet would block for ever. */
#define PIPE_BYTES (256 << 10)

int path_pipe_open(struct path_sender *s, int pipe[static 2])
{
        if (pipe2(pipe, O_CLOEXEC) < 0) {
                pipe[0] = pipe[1] = -1;
                return path_failed(s, "pipe");
        }
        return fcntl(pipe[0], F_SETPIPE_SZ, PIPE_BYTES) < 0 ? path_failed(s, "fcntl F_SETPIPE_SZ") : 0;
}

void path_pipe_close(const int pipe[static 2])
{
        for (int i = 0; i < 2; i++) {
                if (pipe[i] >= 0)
                        close(pipe[i]);
        }
}

int path_pipe_header(struct path_sender *s, int pipe, const struct path_packet *p)
{
        uint8_t header[PATH_HEADER_MAX_BYTES];
        size_t n;

        if (!s->path->headers)
                return 0;
        n = path_header_encode(p, header);
        return path_moved(s, "write to a pipe", write(pipe, header, n), n);
}

int path_pipe_send(struct path_sender *s, int pipe, const struct path_packet *p)
{
        uint8_t header[PATH_HEADER_MAX_BYTES];
        size_t n = p->length + (s->path->headers ? path_header_encode(p, header) : 0);

        while (n > 0) {
                ssize_t sent = splice(pipe, NULL, s->socket, NULL, n, SPLICE_F_MOVE);

                if (sent <= 0)
                        return path_moved(s, "splice to the socket", sent, n);
                n -= (size_t)sent;
        }
        return 0;
}

/* Paths through a buffer: read() from the file, then send. From the page cache, each read() gets the payload
 * of one packet. With O_DIRECT, each read() gets a large aligned block that contains many packets; otherwise,
 * each packet would wait for the disk. */

#define DIRECT_READ_BYTES (1u << 20)
#define PAGE_BYTES 4096u

/* Bytes read from the file: [begin, begin + n), at `bytes`. */
struct block {
        uint8_t *memory, *bytes; /* there is room for a header before `bytes` */
        size_t size_bytes;
        uint64_t begin;
        size_t n;
};

static int block_init(struct block *b, struct path_sender *s)
{
        size_t packets = s->direct ? MAX(DIRECT_READ_BYTES / s->payload_bytes, 1u) : 1;

        *b = (struct block){.size_bytes = packets * s->payload_bytes};
        b->memory = aligned_alloc(PAGE_BYTES, ALIGN_UP(PAGE_BYTES + b->size_bytes, (size_t)PAGE_BYTES));
        if (!b->memory) {
                errno = ENOMEM;
                return path_failed(s, "malloc");
        }
        b->bytes = b->memory + PAGE_BYTES;
        return 0;
}

/* Returns the payload of a packet, or NULL after an error. */
static uint8_t *block_payload(struct block *b, struct path_sender *s, const struct path_packet *p)
{
        if (p->offset >= b->begin + b->n) {
                size_t most = (size_t)MIN(b->size_bytes, s->file_bytes - p->offset);
                ssize_t n = s->direct ? pread(s->file, b->bytes, most, (off_t)p->offset)
                                      : read(s->file, b->bytes, MIN(most, (size_t)p->length));

                if (n < (ssize_t)p->length) {
                        if (n >= 0)
                                errno = EIO;
                        (void)path_failed(s, s->direct ? "read with O_DIRECT" : "read");
                        return NULL;
                }
                b->begin = p->offset;
                b->n = (size_t)n;
        }
        return b->bytes + (p->offset - b->begin);
}

/* An earlier pass left the file position at the end. */
static int rewind_file(struct path_sender *s)
{
        return lseek(s->file, 0, SEEK_SET) < 0 ? path_failed(s, "lseek") : 0;
}

int path_read_each(struct path_sender *s)
{
        struct path_packet p;
        struct block b;
        int r = block_init(&b, s);

        if (r >= 0)
                r = rewind_file(s);
        while (r >= 0 && path_pop(s, &p, 1) > 0) {
                uint8_t *payload = block_payload(&b, s, &p);

                r = payload ? s->path->send_one(s, &p, payload) : -errno;
        }
        free(b.memory);
        return r;
}

/* The header overwrites the end of the previous packet, which the kernel has already copied. */
int path_send_at_once(struct path_sender *s, const struct path_packet *p, const uint8_t *payload)
{
        uint8_t header[PATH_HEADER_MAX_BYTES];
        size_t n = s->path->headers ? path_header_encode(p, header) : 0;

        memcpy((uint8_t *)payload - n, header, n);
        return path_send_bytes(s, payload - n, n + p->length, 0);
}

/* Sends one packet. Payload NULL: sends the pages of the file, without a buffer of the program. */

static int send_pages(struct path_sender *s, uint64_t offset, size_t n)
{
        off_t at = (off_t)offset;

        while (n > 0) {
                ssize_t sent = sendfile(s->socket, s->file, &at, n);

                /* A stream socket may accept only part of the bytes. */
                if (sent <= 0)
                        return path_moved(s, "sendfile", sent, n);
                n -= (size_t)sent;
        }
        return 0;
}

int path_send_alone(struct path_sender *s, const struct path_packet *p, const uint8_t *payload)
{
        return payload ? path_send_bytes(s, payload, p->length, 0) : send_pages(s, p->offset, p->length);
}

/* Header and payload are sent by two calls, joined by the cork. */
int path_send_corked(struct path_sender *s, const struct path_packet *p, const uint8_t *payload)
{
        int r = set_cork(s, 1);

        if (r >= 0)
                r = send_header(s, p, 0);
        if (r >= 0)
                r = path_send_alone(s, p, payload);
        return r < 0 ? r : set_cork(s, 0);
}

int path_send_more(struct path_sender *s, const struct path_packet *p, const uint8_t *payload)
{
        int r = send_header(s, p, MSG_MORE);

        return r < 0 ? r : path_send_alone(s, p, payload);
}

/* After a partial send, sendmmsg() must be called again for the rest of the batch. */
static int send_datagrams(struct path_sender *s, const struct path_batch *b)
{
        struct mmsghdr messages[PATH_BATCH_MAX];

        for (size_t i = 0; i < b->n; i++)
                messages[i] = (struct mmsghdr){
                        .msg_hdr = {.msg_iov = (struct iovec *)&b->iov[2 * i], .msg_iovlen = 2}};
        for (size_t i = 0; i < b->n;) {
                int sent = sendmmsg(s->socket, messages + i, (unsigned)(b->n - i), 0);

                if (sent <= 0)
                        return path_failed(s, "sendmmsg");
                i += (size_t)sent;
        }
        return 0;
}

int path_map_batch(struct path_sender *s)
{
        const uint8_t *map = path_map(s);
        struct path_batch b = {};
        int r = map ? 0 : -errno;

        while (r >= 0 && path_batch_pop(&b, s, map, PATH_BATCH_MAX) > 0) {
                struct msghdr m = {.msg_iov = b.iov, .msg_iovlen = 2 * b.n};

                r = s->wire == PATH_UDP ? send_datagrams(s, &b)
                                        : path_sent(s, "sendmsg", sendmsg(s->socket, &m, 0), b.iov, 2 * b.n);
        }
        return path_unmap(s, map, r);
}

/* Paths that pass pages of the file to the socket, without a buffer of the program: sendfile(), and splice()
 * through a pipe. */

/* A single call could send 2 GiB of a stream, but could not end in time. */
#define STREAM_STEP_BYTES (16u << 20)

static int send_stream(struct path_sender *s)
{
        uint64_t offset;
        size_t n;
        int r = 0;

        while (r >= 0 && (n = path_pop_bytes(s, STREAM_STEP_BYTES, &offset)) > 0)
                r = send_pages(s, offset, n);
        return r;
}

int path_file_each(struct path_sender *s)
{
        struct path_packet p;
        int r = 0;

        while (r >= 0 && path_pop(s, &p, 1) > 0)
                r = s->path->send_one(s, &p, NULL);
        return r;
}

/* UDP needs one call per datagram; a stream is divided into calls only so that it can end in time. */
int path_file_stream(struct path_sender *s)
{
        return s->wire == PATH_TCP ? send_stream(s) : path_file_each(s);
}

/* The header is written into the pipe, which copies a few bytes. With vmsplice(), the receiver would use the
 * page until it has read the header, and the sender could not find out when it may reuse the page. */
static int splice_one(struct path_sender *s, const int pipe[static 2], const struct path_packet *p)
{
        off_t at = (off_t)p->offset;
        int r = path_pipe_header(s, pipe[1], p);

        if (r < 0)
                return r;
        r = path_moved(s, "splice from the file",
                       splice(s->file, &at, pipe[1], NULL, p->length, SPLICE_F_MOVE), p->length);
        return r < 0 ? r : path_pipe_send(s, pipe[0], p);
}

int path_file_splice(struct path_sender *s)
{
        struct path_packet p;
        int pipe[2], r = path_pipe_open(s, pipe);

        while (r >= 0 && path_pop(s, &p, 1) > 0)
                r = splice_one(s, pipe, &p);
        path_pipe_close(pipe);
        return r;
}
