/* Sends fragments over UDP, with one connected socket per SFI, so that a shaped or full socket does not delay
 * any other. */
#include <errno.h>
#include <sys/epoll.h>

#include "base/log.h"
#include "base/util.h"
#include "data/data_send.h"
#include "data/network.h"
#include "data/socket_open.h"
#include "net/endpoint.h"

#define DATAGRAMS_MAX 256
/* Number of batches for one SFI before the next SFI is served. */
#define ROUNDS 4
/* test.pacing: a burst after a pause has at least this many frames, and is long enough that a late timer does
 * not reduce the rate. */
#define PACED_FRAMES 4
#define PACED_NS (250 * NS_PER_US)
/* Bytes of a frame in addition to its UDP payload, or to its IP packet. */
#define FRAME_BEYOND_UDP_BYTES 42
#define FRAME_BEYOND_IP_BYTES 14
/* A datagram that is not full waits for more bytes while the kernel still has other datagrams to send, as in
 * TCP's autocorking (tcp_should_autocork() in net/ipv4/tcp.c). The kernel counts the memory of unsent data,
 * which is at most twice their size, and counts a super-packet until all of it has left. */
#define HOLD_MAX_NS (10 * NS_PER_MS)
#define HOLD_LEAST_NS (100 * NS_PER_US)
#define SUPER_PACKET_BYTES 65536u
#define UNSENT_UNCERTAIN_BYTES (2 * SUPER_PACKET_BYTES)

struct udp_path {
        struct endpoint *endpoint;
        struct loop_io io;
        struct loop *loop;
        bool blocked; /* until EPOLLOUT */
        uint64_t blocked_ns;
        /* test.pacing: token bucket in bytes, time of its last update, and end of the pause (NEVER_NS:
         * none). */
        double tokens;
        uint64_t tokens_ns, paced_until_ns;
        uint64_t held_until_ns; /* queued data wait for more data until this time; 0: no wait */
        bool was_held;          /* the data have already waited, and do not wait again */
        uint64_t failed_ns;     /* when the kernel last refused a datagram; 0: never */
        size_t datagram_bytes;
        double frame_bytes;
};

struct udp_sender {
        struct udp_path *paths;
        uint32_t n, first;   /* a round begins with SFI `first` */
        double bytes_per_ns; /* test.pacing; 0: none */
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

/* Returns the payload of a super-packet that the qdisc counts as at most super_packet_max_bytes, in whole
 * frames. */
static uint32_t super_packet_bytes(const struct data_sender *s, const struct udp_path *p)
{
        uint64_t frames = s->super_packet_max_bytes / (uint64_t)p->frame_bytes;

        if (s->super_packet_max_bytes == 0)
                return 0;
        return (uint32_t)MIN(MAX(frames, UINT64_C(1)) * p->datagram_bytes, (uint64_t)UINT32_MAX);
}

static void udp_set_mtu(struct data_sender *s, uint32_t sfi, uint32_t bytes)
{
        struct udp_path *p = &((struct udp_sender *)s->state)->paths[sfi];

        p->datagram_bytes = network_payload_bytes(s->context.scenario, bytes);
        p->frame_bytes = (double)(bytes + FRAME_BEYOND_IP_BYTES);
}

static uint32_t udp_mtu_bytes(const struct data_sender *s, uint32_t sfi)
{
        const struct udp_path *p = &((const struct udp_sender *)s->state)->paths[sfi];

        return MIN(endpoint_mtu_bytes(p->endpoint), (uint32_t)NETWORK_MTU_MAX_BYTES);
}

static int open_path(struct data_sender *s, struct udp_path *p, uint32_t sfi)
{
        const struct scenario *sc = s->context.scenario;
        struct net_address to;
        struct udp_config config = {
                .connect = &to,
                .send_buffer_bytes = sc->network.socket_buffer_bytes ?: SCENARIO_SEND_BUFFER_BYTES,
                .device = s->context.self->device,
                .super_packet_max_bytes = super_packet_bytes(s, p),
        };
        int r = network_node_address(&config.local, s->context.self, 0);

        if (r >= 0)
                r = network_node_address(&to, scenario_node_of(sc, ROLE_SFI, sfi), scenario_data_port(sc));
        if (r < 0)
                return r;
        r = socket_open_udp(&p->endpoint, &config, "fragments");
        if (r < 0)
                return r;
        socket_mark(p->endpoint->fd, sc->network.data_dscp);
        socket_log_buffer(SOCKET_SEND, "fragments", sc->network.socket_buffer_bytes > 0,
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
        u->paths = calloc(u->n, sizeof *u->paths);
        if (!u->paths ||
            chunk_packer_new(&s->packer, network_datagram_bytes(s->context.scenario), DATAGRAMS_MAX) < 0)
                return log_error_errno(ENOMEM, "data sockets: %m");
        for (uint32_t i = 0; r >= 0 && i < u->n; i++) {
                udp_set_mtu(s, i, (uint32_t)scenario_mtu_bytes(s->context.scenario));
                r = open_path(s, &u->paths[i], i);
        }
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

/* Returns the number of datagrams that test.pacing allows now. This is checked first, so that no more than
 * that are packed. */
static size_t permitted(const struct udp_sender *u, struct udp_path *p)
{
        uint64_t now_ns;

        p->paced_until_ns = NEVER_NS;
        if (u->bytes_per_ns <= 0)
                return DATAGRAMS_MAX;
        now_ns = clock_now_ns();
        p->tokens = MIN(p->tokens + (double)(now_ns - p->tokens_ns) * u->bytes_per_ns,
                        MAX(PACED_FRAMES * p->frame_bytes, (double)PACED_NS * u->bytes_per_ns));
        p->tokens_ns = now_ns;
        if (p->tokens > 0)
                return MIN(1 + (size_t)(p->tokens / p->frame_bytes), (size_t)DATAGRAMS_MAX);
        p->paced_until_ns = now_ns + (uint64_t)(MAX(-p->tokens, 1.0) / u->bytes_per_ns);
        return 0;
}

/* Returns the minimum time that the kernel needs to send the packets queued before the next one. */
static uint64_t backlog_ns(const struct data_sender *s, const struct udp_path *p)
{
        const struct node_stats *stats = s->context.stats;
        uint64_t rate_bps = stats_get(&stats->qos_backend) > 0 ? stats_get(&stats->qos_rate_bps) : 0, bytes;

        if (rate_bps == 0)
                return 0;
        bytes = endpoint_unsent_bytes(p->endpoint);
        bytes = bytes > UNSENT_UNCERTAIN_BYTES ? (bytes - UNSENT_UNCERTAIN_BYTES) / 2 : 0;
        return (uint64_t)((double)bytes * 8e9 / (double)rate_bps);
}

/* Decides whether the last of n datagrams, if it is not full, waits. */
static bool hold(struct data_sender *s, struct udp_path *p, uint32_t sfi, size_t jobs, size_t n)
{
        uint64_t wait_ns;

        /* The next batch fills the datagram. */
        if (n > 1 && ros_queued(s->core, sfi).jobs > jobs)
                return true;
        wait_ns = p->was_held ? 0 : MIN(backlog_ns(s, p), HOLD_MAX_NS);
        if (wait_ns < HOLD_LEAST_NS)
                return false;
        p->held_until_ns = clock_now_ns() + wait_ns;
        return true;
}

static bool is_held(const struct data_sender *s, struct udp_path *p, uint32_t sfi)
{
        struct ros_queued queued = ros_queued(s->core, sfi);
        bool fills = queued.bytes >= p->datagram_bytes || queued.jobs >= CHUNKS_MAX;

        if (p->held_until_ns == 0)
                return false;
        if (!fills && clock_now_ns() < p->held_until_ns)
                return true;
        p->was_held = !fills;
        p->held_until_ns = 0;
        return false;
}

static uint64_t count_full(const struct chunk_datagram *d, int n)
{
        uint64_t full = 0;

        for (int i = 0; i < n; i++)
                full += d[i].full;
        return full;
}

/* Accounts for `taken` datagrams. Datagrams that the kernel refused permanently count as failed. */
static void account_sent(struct data_sender *s, uint32_t sfi, const struct chunk_datagram *d, int taken,
                         const struct endpoint_counts *before)
{
        struct udp_path *p = &((struct udp_sender *)s->state)->paths[sfi];
        const struct endpoint_counts *after = &p->endpoint->counts;
        uint64_t failed = after->send_failed - before->send_failed, bytes = 0;

        for (int i = 0; i < taken; i++)
                bytes += d[i].size_bytes;
        p->was_held = false;
        p->tokens -= (double)(bytes + (uint64_t)taken * FRAME_BEYOND_UDP_BYTES);
        ros_sent(s->core, sfi, d[taken - 1].jobs_done, d[taken - 1].next_offset);
        ros_count_datagrams(s->core, sfi, (uint32_t)taken);
        stats_add(&s->context.stats->packets_sent, (uint64_t)taken - failed);
        stats_add(&s->context.stats->bytes_sent,
                  bytes - (after->send_failed_bytes - before->send_failed_bytes));
        stats_add(&s->context.stats->packets_full, failed > 0 ? 0 : count_full(d, taken));
        stats_add(&s->context.stats->packets_send_failed, failed);
        if (failed > 0 && log_is_new_fault(&p->failed_ns, clock_now_ns()))
                log_warning_errno(after->send_error,
                                  "the kernel refuses datagrams to SFI %u, so they are lost: %m", sfi + 1);
        if (after->segmentation_refused && !before->segmentation_refused)
                log_warning("the kernel refuses segmentation offload for SFI %u, so each datagram is sent "
                            "separately; check that the device's MTU is at least %.0f",
                            sfi + 1, p->frame_bytes - FRAME_BEYOND_IP_BYTES);
}

/* Sends one batch; *ret_more: the whole batch was sent, and there may be another one. */
static int send_batch(struct data_sender *s, uint32_t sfi, bool *ret_more)
{
        struct udp_sender *u = s->state;
        struct udp_path *p = &u->paths[sfi];
        struct message_header header = data_sender_header(s, sfi);
        const struct chunk_datagram *d;
        size_t most = permitted(u, p), jobs, n;
        struct endpoint_counts before;
        int taken;

        *ret_more = false;
        if (most == 0 || is_held(s, p, sfi))
                return 0;
        chunk_packer_set_datagram(s->packer, p->datagram_bytes);
        chunk_packer_set_limit(s->packer, most);
        jobs = data_sender_pop(s, sfi, most < DATAGRAMS_MAX ? most * p->datagram_bytes : DATA_SENDER_ALL);
        n = chunk_pack(s->packer, &header, s->chunk_jobs, jobs, &d);
        if (n > 0 && !d[n - 1].full && hold(s, p, sfi, jobs, n))
                n--;
        for (size_t i = 0; i < n; i++)
                u->out[i] = (struct outgoing){d[i].iov, d[i].n_iov, d[i].size_bytes, NULL};
        before = p->endpoint->counts;
        taken = n > 0 ? endpoint_send(p->endpoint, u->out, n) : 0;
        if (taken < 0)
                return log_error_errno(taken, "sending to SFI %u: %m", sfi + 1);
        if (taken > 0)
                account_sent(s, sfi, d, taken, &before);
        *ret_more = taken == (int)n && n > 0 && p->held_until_ns == 0;
        if (taken == (int)n)
                return 0;
        p->blocked = true;
        p->blocked_ns = clock_now_ns();
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

        /* EPOLLOUT wakes a blocked path, and new jobs wake an idle one, so neither needs a deadline. */
        for (uint32_t i = 0; i < u->n; i++) {
                const struct udp_path *p = &u->paths[i];

                if (p->blocked || ros_queued(s->core, i).jobs == 0)
                        continue;
                if (u->bytes_per_ns > 0)
                        deadline_ns = MIN(deadline_ns, p->paced_until_ns);
                if (p->held_until_ns > 0)
                        deadline_ns = MIN(deadline_ns, p->held_until_ns);
        }
        return deadline_ns;
}

static uint64_t udp_blocked_since(const struct data_sender *s, uint32_t sfi)
{
        const struct udp_path *p = &((const struct udp_sender *)s->state)->paths[sfi];

        return p->blocked ? p->blocked_ns : 0;
}

const struct data_sender_ops data_send_udp = {
        .open = udp_open,
        .turn = udp_turn,
        .deadline_ns = udp_deadline,
        .blocked_since_ns = udp_blocked_since,
        .mtu_bytes = udp_mtu_bytes,
        .set_mtu = udp_set_mtu,
        .close = udp_close,
};
