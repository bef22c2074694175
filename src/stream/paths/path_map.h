/* The mapped file, batches of packets from it, and calls that several paths make. Private to
 * src/stream/paths. */
#pragma once

#include <sys/uio.h>

#include "path_internal.h"

/* Maps the whole file; NULL: failed, with errno and `what`. */
const uint8_t *path_map(struct path_sender *s);
/* Unmaps it; NULL is allowed. Returns r. */
int path_unmap(const struct path_sender *s, const uint8_t *map, int r);
/* Maps the file, and calls `send_one` for each packet until that fails. */
int path_map_each(struct path_sender *s, int (*send_one)(struct path_sender *s, const struct path_packet *p,
                                                         const uint8_t *payload));
/* Sends bytes, or a header, in one call. */
int path_send_bytes(struct path_sender *s, const uint8_t *bytes, size_t n, int flags);
int path_send_header(struct path_sender *s, const struct path_packet *p, int flags);
/* Sends header and payload by writev(). */
int path_send_gathered(struct path_sender *s, const struct path_packet *p, const uint8_t *payload);
/* Begins (1) or ends (0) a packet of several calls: UDP_CORK, TCP_CORK. */
int path_cork(struct path_sender *s, int on);
int path_set_option(struct path_sender *s, int level, int option, int value, const char *what);

/* A header that lies in two pages would be two parts of a packet that is not copied, whose number is limited.
 */
#define PATH_HEADER_PLACE_BYTES 64u

/* Packets and their headers: iov[2k] is the header of packet k, and iov[2k + 1] its payload. */
struct path_batch {
        struct path_packet packets[PATH_BATCH_MAX];
        _Alignas(PATH_HEADER_PLACE_BYTES) uint8_t headers[PATH_BATCH_MAX][PATH_HEADER_PLACE_BYTES];
        struct iovec iov[2 * PATH_BATCH_MAX];
        size_t n, bytes;
};

/* Takes at most `most` packets, with payload from `map` (NULL: the caller sets it); returns their number. */
size_t path_batch_take(struct path_batch *b, struct path_sender *s, const uint8_t *map, size_t most);
