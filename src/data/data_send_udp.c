/* Sends fragments over UDP: one connected socket per SFI, so that a shaped or full one delays no other. */
#include <errno.h>
#include <sys/epoll.h>

#include "evb/base/log.h"
#include "evb/base/util.h"
#include "evb/data/data_send.h"
#include "evb/data/network.h"
#include "evb/data/socket_open.h"
#include "evb/net/endpoint.h"

#define DATAGRAMS_MAX 256
/* Batches for one SFI before the next SFI is served. */
#define ROUNDS 4
/* ros.pacing: frames in a burst after a pause, and the bytes of a frame beyond its UDP payload or IP packet.
 */
#define PACED_FRAMES 4
#define FRAME_BEYOND_UDP_BYTES 42
#define FRAME_BEYOND_IP_BYTES 14

struct udp_path {
        struct endpoint *endpoint;
        struct loop_io io;
        struct loop *loop;
        bool blocked; /* until EPOLLOUT */
        /* ros.pacing: a token bucket in bytes, its last update, and the end of the pause (NEVER_NS: none). */
        double tokens;
        uint64_t tokens_ns, paced_until_ns;
        bool failure_logged;
};

struct udp_sender {
        struct udp_path *paths;
        uint32_t n, first; /* a round begins with SFI `first` */
        size_t datagram_bytes;
        double bytes_per_ns, frame_bytes; /* ros.pacing; 0: none */
        struct outgoing out[DATAGRAMS_MAX];
};

static void is_writable(void *ctx, uint32_t events)
{
        struct udp_path *p = ctx;
        struct datagram ignored;

        if (!(events & (EPOLLOUT | EPOLLERR)))
                return;
        /* A pending ICMP error wakes the loop until a call fetches it. */
        if (events & EPOLLERR)
                (void)endpoint_receive(p->endpoint, &ignored, 1);
        p->blocked = false;
        loop_modify(p->loop, &p->io, 0);
}

static int open_path(struct data_sender *s, struct udp_path *p, uint32_t sfi)
{
        const struct scenario *sc = s->context.scenario;
        struct net_address to;
        struct udp_config config = {
                .connect = &to,
                .send_buffer_bytes = sc->network.send_buffer_bytes ?: SCENARIO_SEND_BUFFER_BYTES,
                .segmentation = (enum segmentation)sc->network.segmentation,
                .device = s->context.self->device,
                .super_packet_max_bytes = s->super_packet_max_bytes,
        };
        int r = network_node_address(&config.local, s->context.self, 0);

        if (r >= 0)
                r = network_node_address(&to, scenario_node_of(sc, ROLE_SFI, sfi),
                                         (uint16_t)sc->network.data_port);
        if (r < 0)
                return r;
        r = socket_open_udp(&p->endpoint, &config, "fragments");
        if (r < 0)
                return r;
        socket_note_buffer(SOCKET_SEND, "fragments", sc->network.send_buffer_bytes > 0,
                           config.send_buffer_bytes, p->endpoint->granted_send_bytes);
        stats_set(&s->context.stats->granted_send_buffer_bytes, p->endpoint->granted_send_bytes);
        p->loop = s->context.loop;
        p->paced_until_ns = NEVER_NS;
        p->io = (struct loop_io){.fd = p->endpoint->fd, .events = 0, .ready = is_writable, .ctx = p};
        return loop_add(p->loop, &p->io);
}

static int udp_open(struct data_sender *s)
{
        struct udp_sender *u = calloc(1, sizeof *u);
        int r = 0;

        if (!u)
                return log_error_errno(ENOMEM, "data sockets: %m");
        s->state = u;
        u->n = (uint32_t)s->context.scenario->sfi.count;
        if (s->context.scenario->ros.stagger)
                u->first = (uint32_t)((uint64_t)s->context.self->index * u->n /
                                      MAX(s->context.scenario->ros.count, UINT64_C(1)));
        u->bytes_per_ns = (double)s->context.scenario->ros.pacing_bps / 8e9;
        u->frame_bytes = (double)(s->context.scenario->network.mtu_bytes + FRAME_BEYOND_IP_BYTES);
        u->datagram_bytes = network_datagram_bytes(s->context.scenario);
        u->paths = calloc(u->n, sizeof *u->paths);
        if (!u->paths || chunk_packer_new(&s->packer, u->datagram_bytes, DATAGRAMS_MAX) < 0)
                return log_error_errno(ENOMEM, "data sockets: %m");
        for (uint32_t i = 0; r >= 0 && i < u->n; i++)
                r = open_path(s, &u->paths[i], i);
        return r;
}

static void udp_close(struct data_sender *s)
{
        struct udp_sender *u = s->state;

        if (!u)
                return;
        for (uint32_t i = 0; u->paths && i < u->n; i++)
                endpoint_free(u->paths[i].endpoint);
        free(u->paths);
        free(u);
}

/* Number of datagrams that ros.pacing permits now. Checked first, to pack no more than that. */
static size_t permitted(const struct udp_sender *u, struct udp_path *p)
{
        uint64_t now_ns;

        p->paced_until_ns = NEVER_NS;
        if (u->bytes_per_ns <= 0)
                return DATAGRAMS_MAX;
        now_ns = clock_now_ns();
        p->tokens = MIN(p->tokens + (double)(now_ns - p->tokens_ns) * u->bytes_per_ns,
                        PACED_FRAMES * u->frame_bytes);
        p->tokens_ns = now_ns;
        if (p->tokens > 0)
                return 1 + (size_t)(p->tokens / u->frame_bytes);
        p->paced_until_ns = now_ns + (uint64_t)(MAX(-p->tokens, 1.0) / u->bytes_per_ns);
        return 0;
}

/* Accounts for `taken` datagrams. Those that the kernel refused for good count as failed. */
static void account_sent(struct data_sender *s, uint32_t sfi, const struct chunk_datagram *d, int taken,
                         const struct endpoint_counts *before)
{
        struct udp_path *p = &((struct udp_sender *)s->state)->paths[sfi];
        const struct endpoint_counts *after = &p->endpoint->counts;
        uint64_t failed = after->send_failed - before->send_failed, bytes = 0;

        for (int i = 0; i < taken; i++)
                bytes += d[i].size_bytes;
        p->tokens -= (double)(bytes + (uint64_t)taken * FRAME_BEYOND_UDP_BYTES);
        ros_sent(s->core, sfi, d[taken - 1].jobs_done, d[taken - 1].next_offset);
        ros_count_datagrams(s->core, sfi, (uint32_t)taken);
        stats_add(&s->context.stats->packets_sent, (uint64_t)taken - failed);
        stats_add(&s->context.stats->bytes_sent,
                  bytes - (after->send_failed_bytes - before->send_failed_bytes));
        stats_add(&s->context.stats->packets_send_failed, failed);
        if (failed > 0 && !p->failure_logged)
                log_warning_errno(after->send_error,
                                  "the kernel refuses datagrams to SFI %u, so they are lost: %m", sfi + 1);
        p->failure_logged |= failed > 0;
        if (after->segmentation_refused && !before->segmentation_refused)
                log_warning("the kernel refuses segmentation offload for SFI %u, so each datagram is sent "
                            "separately; check that network.mtu is not larger than the device's MTU",
                            sfi + 1);
}

/* Sends one batch; *ret_more: it was sent as a whole, and there may be another. */
static int send_batch(struct data_sender *s, uint32_t sfi, bool *ret_more)
{
        struct udp_sender *u = s->state;
        struct udp_path *p = &u->paths[sfi];
        struct message_header header = data_sender_header(s, sfi);
        const struct chunk_datagram *d;
        size_t most = permitted(u, p), n;
        struct endpoint_counts before;
        int taken;

        *ret_more = false;
        if (most == 0)
                return 0;
        chunk_packer_set_limit(s->packer, most);
        n = data_sender_take(s, sfi, most < DATAGRAMS_MAX ? most * u->datagram_bytes : DATA_SENDER_ALL);
        n = chunk_pack(s->packer, &header, s->chunk_jobs, n, &d);
        for (size_t i = 0; i < n; i++)
                u->out[i] = (struct outgoing){d[i].iov, d[i].n_iov, d[i].size_bytes, NULL};
        before = p->endpoint->counts;
        taken = n > 0 ? endpoint_send(p->endpoint, u->out, n) : 0;
        if (taken < 0)
                return log_error_errno(taken, "sending to SFI %u: %m", sfi + 1);
        if (taken > 0)
                account_sent(s, sfi, d, taken, &before);
        *ret_more = taken == (int)n && n > 0;
        if (taken == (int)n)
                return 0;
        p->blocked = true;
        stats_add(&s->context.stats->send_blocked, 1);
        return loop_modify(p->loop, &p->io, EPOLLOUT);
}

/* Serves the SFIs from `from` up to, but not including, `to`. */
static int serve(struct data_sender *s, uint32_t from, uint32_t to, bool *more_of_any)
{
        struct udp_sender *u = s->state;

        for (uint32_t i = ros_next_with_jobs(s->core, from); i < to; i = ros_next_with_jobs(s->core, i + 1)) {
                bool more = !u->paths[i].blocked;

                for (int round = 0; more && round < ROUNDS; round++) {
                        int r = send_batch(s, i, &more);

                        if (r < 0)
                                return r;
                }
                *more_of_any |= more;
        }
        return 0;
}

static int udp_turn(struct data_sender *s, uint64_t now_ns, bool *ret_more)
{
        struct udp_sender *u = s->state;
        int r;

        (void)now_ns;
        *ret_more = false;
        r = serve(s, u->first, u->n, ret_more);
        return r < 0 ? r : serve(s, 0, u->first, ret_more);
}

static uint64_t udp_deadline(const struct data_sender *s)
{
        const struct udp_sender *u = s->state;
        uint64_t deadline_ns = NEVER_NS;

        /* A blocked SFI waits for EPOLLOUT, and an idle one for jobs. */
        for (uint32_t i = 0; u->bytes_per_ns > 0 && i < u->n; i++) {
                if (!u->paths[i].blocked && ros_next_with_jobs(s->core, i) == i)
                        deadline_ns = MIN(deadline_ns, u->paths[i].paced_until_ns);
        }
        return deadline_ns;
}

const struct data_sender_ops data_send_udp = {
        .open = udp_open,
        .turn = udp_turn,
        .deadline_ns = udp_deadline,
        .close = udp_close,
};
