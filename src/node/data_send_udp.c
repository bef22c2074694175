/* Fragments over UDP: one connected socket for each SFI, so that one that is shaped or full holds up no other. */
#include <errno.h>
#include <sys/epoll.h>

#include "data_send.h"
#include "evb/base/log.h"
#include "evb/base/util.h"
#include "evb/net/endpoint.h"

#define DATAGRAMS_MAX 256
/* Batches for one SFI before the next one has its turn, and before messages are looked at again. */
#define ROUNDS 4

struct udp_way {
        struct endpoint *endpoint;
        struct loop_io io;
        struct loop *loop;
        bool blocked; /* until EPOLLOUT */
};

struct udp_sender {
        struct udp_way *ways;
        uint32_t n;
        struct outgoing out[DATAGRAMS_MAX];
};

static void is_writable(void *ctx, uint32_t events)
{
        struct udp_way *w = ctx;

        if (!(events & (EPOLLOUT | EPOLLERR)))
                return;
        w->blocked = false;
        loop_modify(w->loop, &w->io, 0);
}

static int open_way(struct data_sender *s, struct udp_way *w, uint32_t sfi)
{
        const struct scenario *sc = s->node->scenario;
        char text[NET_ADDRESS_TEXT_MAX];
        struct net_address to;
        struct udp_config config = {
                .connect = &to,
                .send_buffer_bytes = sc->network.send_buffer_bytes ?: SCENARIO_SEND_BUFFER_BYTES,
                .segmentation = (enum segmentation)sc->network.segmentation,
                .device = s->node->self->device,
                .super_packet_max_bytes = s->super_packet_max_bytes,
        };
        int r = node_address(s->node->self, 0, &config.local);

        if (r >= 0)
                r = node_address(scenario_node_of(sc, ROLE_SFI, sfi), (uint16_t)sc->network.data_port, &to);
        if (r < 0)
                return r;
        r = endpoint_new_udp(&w->endpoint, &config);
        if (r < 0)
                return log_error_errno(r, "cannot open UDP to %s: %m", net_address_format(&to, text));
        stats_set(&s->node->stats->granted_send_buffer_bytes, w->endpoint->granted_send_bytes);
        w->loop = s->node->loop;
        w->io = (struct loop_io){.fd = w->endpoint->fd, .events = 0, .ready = is_writable, .ctx = w};
        return loop_add(w->loop, &w->io);
}

static int udp_open(struct data_sender *s)
{
        struct udp_sender *u = calloc(1, sizeof *u);
        int r = 0;

        if (!u)
                return log_error_errno(ENOMEM, "data sockets: %m");
        s->state = u;
        u->n = (uint32_t)s->node->scenario->sfi.count;
        u->ways = calloc(u->n, sizeof *u->ways);
        if (!u->ways || chunk_packer_new(&s->packer, node_datagram_bytes(s->node->scenario), DATAGRAMS_MAX) < 0)
                return log_error_errno(ENOMEM, "data sockets: %m");
        for (uint32_t i = 0; r >= 0 && i < u->n; i++)
                r = open_way(s, &u->ways[i], i);
        return r;
}

static void udp_close(struct data_sender *s)
{
        struct udp_sender *u = s->state;

        if (!u)
                return;
        for (uint32_t i = 0; u->ways && i < u->n; i++)
                endpoint_free(u->ways[i].endpoint);
        free(u->ways);
        free(u);
}

/* One batch; *ret_more: it went out, and there may be another. */
static int send_batch(struct data_sender *s, uint32_t sfi, bool *ret_more)
{
        struct udp_sender *u = s->state;
        struct udp_way *w = &u->ways[sfi];
        struct message_header header = data_sender_header(s, sfi);
        const struct chunk_datagram *d;
        size_t jobs = data_sender_take(s, sfi), n = chunk_pack(s->packer, &header, s->chunk_jobs, jobs, &d);
        uint64_t bytes = 0;
        int taken;

        for (size_t i = 0; i < n; i++)
                u->out[i] = (struct outgoing){d[i].iov, d[i].n_iov, d[i].size_bytes, NULL};
        taken = n > 0 ? endpoint_send(w->endpoint, u->out, n) : 0;
        if (taken < 0)
                return log_error_errno(taken, "sending to SFI %u: %m", sfi + 1);
        for (int i = 0; i < taken; i++)
                bytes += d[i].size_bytes;
        if (taken > 0) {
                ros_sent(s->core, sfi, d[taken - 1].jobs_done, d[taken - 1].next_offset);
                ros_count_datagrams(s->core, sfi, (uint32_t)taken);
                stats_add(&s->node->stats->packets_sent, (uint64_t)taken);
                stats_add(&s->node->stats->bytes_sent, bytes);
        }
        *ret_more = taken == (int)n && n > 0;
        if (taken < (int)n) {
                w->blocked = true;
                stats_add(&s->node->stats->send_blocked, 1);
                return loop_modify(w->loop, &w->io, EPOLLOUT);
        }
        return 0;
}

static int udp_turn(struct data_sender *s, uint64_t now_ns, bool *ret_more)
{
        struct udp_sender *u = s->state;

        (void)now_ns;
        *ret_more = false;
        for (uint32_t i = ros_next_with_jobs(s->core, 0); i < u->n; i = ros_next_with_jobs(s->core, i + 1)) {
                bool more = !u->ways[i].blocked;

                for (int round = 0; more && round < ROUNDS; round++) {
                        int r = send_batch(s, i, &more);

                        if (r < 0)
                                return r;
                }
                *ret_more |= more;
        }
        return 0;
}

static uint64_t udp_deadline(const struct data_sender *s)
{
        (void)s;
        return NEVER_NS;
}

const struct data_sender_ops data_send_udp = {
        .open = udp_open,
        .turn = udp_turn,
        .deadline_ns = udp_deadline,
        .close = udp_close,
};
