/* What several paths do alike: they map the file, make batches of packets, and cork sockets. */
#include "path_map.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <netinet/udp.h>
#include <sys/mman.h>
#include <sys/socket.h>

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

int path_map_each(struct path_sender *s,
                  int (*send_one)(struct path_sender *s, const struct path_packet *p, const uint8_t *payload))
{
        const uint8_t *map = path_map(s);
        struct path_packet p;
        int r = map ? 0 : -errno;

        while (r >= 0 && path_take(s, &p, 1) > 0)
                r = send_one(s, &p, map + p.offset);
        return path_unmap(s, map, r);
}

int path_send_bytes(struct path_sender *s, const uint8_t *bytes, size_t n, int flags)
{
        return path_moved(s,
                          flags & MSG_ZEROCOPY ? "send with MSG_ZEROCOPY"
                          : flags & MSG_MORE   ? "send with MSG_MORE"
                                               : "send",
                          send(s->socket, bytes, n, flags), n);
}

int path_send_header(struct path_sender *s, const struct path_packet *p, int flags)
{
        uint8_t header[PATH_HEADER_MAX_BYTES];

        return path_send_bytes(s, header, path_header_encode(p, header), flags);
}

int path_send_gathered(struct path_sender *s, const struct path_packet *p, const uint8_t *payload)
{
        uint8_t header[PATH_HEADER_MAX_BYTES];
        struct iovec iov[2] = {{header, path_header_encode(p, header)}, {(uint8_t *)payload, p->length}};

        return path_moved(s, "writev", writev(s->socket, iov, 2), iov[0].iov_len + p->length);
}

int path_set_option(struct path_sender *s, int level, int option, int value, const char *what)
{
        return setsockopt(s->socket, level, option, &value, sizeof value) < 0 ? path_failed(s, what) : 0;
}

int path_cork(struct path_sender *s, int on)
{
        return s->wire == PATH_UDP ? path_set_option(s, IPPROTO_UDP, UDP_CORK, on, "setsockopt UDP_CORK")
                                   : path_set_option(s, IPPROTO_TCP, TCP_CORK, on, "setsockopt TCP_CORK");
}

size_t path_batch_take(struct path_batch *b, struct path_sender *s, const uint8_t *map, size_t most)
{
        b->n = path_take(s, b->packets, most);
        b->bytes = 0;
        for (size_t i = 0; i < b->n; i++) {
                const struct path_packet *p = &b->packets[i];

                b->iov[2 * i] = (struct iovec){b->headers[i], path_header_encode(p, b->headers[i])};
                b->iov[2 * i + 1] = (struct iovec){map ? (uint8_t *)map + p->offset : NULL, p->length};
                b->bytes += b->iov[2 * i].iov_len + p->length;
        }
        return b->n;
}
