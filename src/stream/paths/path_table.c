/* The rows of the publication, and their forms: first the published form, or the form nearest to it, then
 * other forms for today's kernel. */
#include <stdio.h>
#include <string.h>

#include "base/util.h"
#include "path_internal.h"

/* Copies by source (page cache, disk) and wire (UDP, TCP; PATH_SINK is UDP). */
#define COPIES(cache_udp, cache_tcp, disk_udp, disk_tcp)                                                     \
        {                                                                                                    \
                {cache_udp, cache_tcp, cache_udp},                                                           \
                {                                                                                            \
                        disk_udp, disk_tcp, disk_udp                                                         \
                }                                                                                            \
        }
#define ALIKE(n) COPIES(n, n, n, n)

static const char by_buffer[] = "read() copies into the buffer, unless O_DIRECT lets the disk write there; "
                                "send() copies into the socket";
static const char by_map[] = "the mapping is the page cache; send() copies it into the socket";
static const char by_pages[] = "the socket gets references to pages of the page cache; with O_DIRECT, of "
                               "pages that the disk has written";
static const char by_notification[] =
        "the socket gets references to pages of the mapping; where the receiver is on the same machine, the "
        "kernel copies on delivery, and reports it";

static const struct path paths[] = {
        {"E1", "read+send", "download read/send", "2n", "2n", COPIES(2, 2, 1, 1), by_buffer,
         .reads = PATH_DIRECT, .send = path_read_each, .send_one = path_send_at_once},
        {"E2", "mmap+send", "download mmap/send", "n", "1+n", ALIKE(1), by_map, .reads = PATH_EMPTIED,
         .send = path_map_each, .send_one = path_send_alone},
        {"E3", "sendfile", "download sendfile", "0", "1", ALIKE(0), by_pages, .reads = PATH_DIRECT,
         .send = path_file_stream, .send_one = path_send_alone},
        {"E3", "splice", "download splice", "0", "1", ALIKE(0), by_pages, .reads = PATH_DIRECT,
         .send = path_file_splice},
        {"E4", "read+send", "streaming read/send, header in the buffer", "2n", "2n", COPIES(2, 2, 1, 1),
         by_buffer, .headers = true, .reads = PATH_DIRECT, .send = path_read_each,
         .send_one = path_send_at_once},
        {"E5", "read+writev", "streaming read/writev", "3n", "2n", COPIES(2, 2, 1, 1), by_buffer,
         .headers = true, .reads = PATH_DIRECT, .send = path_read_each, .send_one = path_send_gathered},
        {"E6", "cork", "streaming mmap/send, corked", "2n", "1+4n", ALIKE(1), by_map, .headers = true,
         .reads = PATH_EMPTIED, .send = path_map_each, .send_one = path_send_corked},
        {"E6", "MSG_MORE", "streaming mmap/send, joined by MSG_MORE", "2n", "1+4n", ALIKE(1), by_map,
         .headers = true, .reads = PATH_EMPTIED, .send = path_map_each, .send_one = path_send_more},
        {"E7", "writev", "streaming mmap/writev", "2n", "1+n", ALIKE(1), by_map, .headers = true,
         .reads = PATH_EMPTIED, .send = path_map_each, .send_one = path_send_gathered},
        {"E7", "batch", "streaming mmap/sendmmsg (TCP: one long gather list)", "2n", "1+n", ALIKE(1), by_map,
         .headers = true, .reads = PATH_EMPTIED, .send = path_map_batch},
        {"E8", "cork", "streaming sendfile, corked header", "n", "4n", ALIKE(0), by_pages, .headers = true,
         .reads = PATH_DIRECT, .send = path_file_each, .send_one = path_send_corked},
        {"E8", "MSG_MORE", "streaming sendfile, header joined by MSG_MORE", "n", "4n", ALIKE(0), by_pages,
         .headers = true, .reads = PATH_DIRECT, .send = path_file_each, .send_one = path_send_more},
        {"E9", "MSG_ZEROCOPY", "streaming mmap/msend, corked header", "n", "1+4n", COPIES(1, 0, 1, 0),
         "TCP: as E10; UDP: the kernel copies a datagram of several calls", .headers = true,
         .reads = PATH_EMPTIED, .send = path_zerocopy_more},
        {"E10", "MSG_ZEROCOPY", "streaming mmap/rtpmsend", "n", "1+n", ALIKE(0), by_notification,
         .headers = true, .reads = PATH_EMPTIED, .send = path_zerocopy_sendmsg},
        {"E10", "vmsplice", "streaming mmap/vmsplice", "n", "1+n", ALIKE(0),
         "the pipe, then the socket, gets references to pages of the mapping", .headers = true,
         .reads = PATH_EMPTIED, .send = path_map_vmsplice},
        {"E11", "super-packet", "streaming mmap/krtpmsend (UDP_SEGMENT; TCP: one long gather list)", "0", "1",
         ALIKE(0), by_notification, .headers = true, .reads = PATH_EMPTIED, .send = path_zerocopy_batch},
        {"E11", "io_uring", "streaming mmap/io_uring SENDMSG_ZC", "0", "1", ALIKE(0), by_notification,
         .headers = true, .reads = PATH_EMPTIED, .send = path_uring_map},
        {"E12", "splice", "streaming rtpsendfile, by a pipe", "n", "n", ALIKE(0), by_pages, .headers = true,
         .reads = PATH_DIRECT, .send = path_file_splice},
        {"E12", "io_uring", "streaming rtpsendfile, by linked requests", "n", "n", ALIKE(0), by_pages,
         .headers = true, .reads = PATH_DIRECT, .send = path_uring_splice},
        {"E13", "io_uring", "streaming krtpsendfile, by a registered buffer", "0", "1", COPIES(1, 1, 0, 0),
         "the kernel copies from the page cache into the registered buffer, unless O_DIRECT lets the disk "
         "write there; the socket gets references to it",
         .headers = true, .reads = PATH_DIRECT, .send = path_uring_read},
};

size_t path_count(void)
{
        return ARRAY_SIZE(paths);
}

const struct path *path_at(size_t i)
{
        return &paths[i];
}

const struct path *path_find(unsigned row, unsigned form)
{
        char name[8];

        snprintf(name, sizeof name, "E%u", row % 100);
        for (size_t i = 0; i < ARRAY_SIZE(paths); i++) {
                if (strcmp(paths[i].row, name) == 0 && form-- == 0)
                        return &paths[i];
        }
        return NULL;
}

const char *path_wire_name(enum path_wire w)
{
        static const char *const names[PATH_WIRES] = {"udp", "tcp", "sink"};

        return names[w];
}

const char *path_source_name(enum path_source s)
{
        return s == PATH_CACHE ? "cache" : "disk";
}
