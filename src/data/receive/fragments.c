/* Configures sockets for fragments, and reports what the kernel grants them. */
#include "fragments.h"

#include "data/socket_open.h"

/* Default of network.receive-buffer: the 2003 measurements used 8 MB. */
#define RECEIVE_BUFFER_BYTES (8u << 20)

static uint64_t requested_bytes(const struct scenario *s)
{
        return s->network.receive_buffer_bytes ?: RECEIVE_BUFFER_BYTES;
}

struct udp_config fragments_socket(const struct data_receiver *r)
{
        const struct scenario *s = r->context.scenario;

        return (struct udp_config){
                .receive_buffer_bytes = requested_bytes(s),
                .segmentation = (enum segmentation)s->network.segmentation,
                .device = r->context.self->device,
        };
}

void fragments_note_granted(struct data_receiver *r, uint64_t granted_bytes)
{
        const struct scenario *s = r->context.scenario;

        socket_note_buffer(SOCKET_RECEIVE, "fragments", s->network.receive_buffer_bytes > 0,
                           requested_bytes(s), granted_bytes);
        stats_set(&r->context.stats->granted_receive_buffer_bytes, granted_bytes);
}

uint64_t fragments_room_bytes(uint64_t granted_bytes)
{
        /* The kernel charges its own bookkeeping of each packet to the granted bytes. */
        return granted_bytes / 4 * 3;
}
