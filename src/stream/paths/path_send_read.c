/* Paths through a buffer: read() from the file, then send. From the page cache, a read() gets the payload of
 * one packet. O_DIRECT reads whole blocks, which must begin and end at blocks of the disk and hold many
 * packets, or each would wait for the disk. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/util.h"
#include "path_map.h"
#include "path_send.h"

#define DIRECT_READ_BYTES (1u << 20)
#define PAGE_BYTES 4096u

/* The bytes that are read: those of [begin, begin + n) of the file stand at `bytes`. */
struct block {
        uint8_t *memory, *bytes; /* before `bytes` there is room for a header */
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

/* An earlier pass has left the position at the end. */
static int rewind_file(struct path_sender *s)
{
        return lseek(s->file, 0, SEEK_SET) < 0 ? path_failed(s, "lseek") : 0;
}

/* Reads, and calls `send_one` for each packet until that fails. */
static int send_each(struct path_sender *s,
                     int (*send_one)(struct path_sender *s, const struct path_packet *p,
                                     const uint8_t *payload))
{
        struct path_packet p;
        struct block b;
        int r = block_init(&b, s);

        if (r >= 0)
                r = rewind_file(s);
        while (r >= 0 && path_take(s, &p, 1) > 0) {
                uint8_t *payload = block_payload(&b, s, &p);

                r = payload ? send_one(s, &p, payload) : -errno;
        }
        free(b.memory);
        return r;
}

/* The header overwrites the end of the packet before, which the kernel has copied. */
static int send_at_once(struct path_sender *s, const struct path_packet *p, const uint8_t *payload)
{
        uint8_t header[PATH_HEADER_MAX_BYTES];
        size_t n = s->path->headers ? path_header_encode(p, header) : 0;

        memcpy((uint8_t *)payload - n, header, n);
        return path_send_bytes(s, payload - n, n + p->length, 0);
}

int path_read_send(struct path_sender *s)
{
        return send_each(s, send_at_once);
}

int path_read_writev(struct path_sender *s)
{
        return send_each(s, path_send_gathered);
}
