/* Sends fragments over TCP. The ROS connects to each SFI, introduces itself, and receives requests on the
 * same connection. Data that a connection does not accept wait in the core's queues. A broken connection is
 * opened again after growing pauses, and then the SFI requests the lost fragments again. */
#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include "base/log.h"
#include "base/util.h"
#include "data/data_send.h"
#include "data/network.h"
#include "data/socket_open.h"
#include "net/tcp.h"

#define MESSAGE_MAX_BYTES (1u << 20)
#define STAGING_BYTES 65536u
#define IOV_MAX_OUT 520
/* Number of full staging buffers of requests that are read from one SFI before the next SFI is served. */
#define READS_MAX 8
/* Bytes of a full frame in addition to its payload: Ethernet, IP, and TCP with timestamps. */
#define FRAME_BEYOND_TCP_BYTES (14 + 20 + 32)
#define FRAME6_BEYOND_TCP_BYTES (14 + 40 + 32)

static const char *const congestion_names[] = {
        [CONGESTION_RENO] = "reno",
        [CONGESTION_CUBIC] = "cubic",
        [CONGESTION_BBR] = "bbr",
        [CONGESTION_DCTCP] = "dctcp",
};

enum path_state { PATH_WAITING, PATH_CONNECTING, PATH_UP };

struct tcp_path {
        struct data_sender *sender;
        uint32_t sfi;
        struct net_address to;
        enum path_state state;
        struct loop_io io;
        struct tcp_backoff backoff;
        uint64_t retry_ns;
        struct tcp_reader reader;
        bool ready_in, ready_out;
        uint64_t blocked_ns;   /* time at which the kernel stopped accepting data */
        uint64_t paced_bps;    /* the sender's pace_bps that this connection follows */
        bool was_up, was_live; /* `was_live`: the SFI was in the run at the last turn */
        /* The message being sent: entries from `at` on are unsent. Its fragments stay pinned in the core. */
        struct iovec iov[IOV_MAX_OUT];
        size_t n_iov, at;
        uint32_t pinned[SEND_JOBS_MAX];
        size_t n_pinned;
        uint8_t *headers; /* a copy, because the paths share one packer */
};

struct tcp_sender {
        struct tcp_path *paths;
        uint32_t n;
        struct message message; /* scratch: encoded or decoded, then no longer needed */
};

static void is_ready(void *ctx, uint32_t events)
{
        struct tcp_path *p = ctx;

        p->ready_in |= (events & (EPOLLIN | EPOLLHUP | EPOLLERR)) != 0;
        p->ready_out |= (events & (EPOLLOUT | EPOLLHUP | EPOLLERR)) != 0;
}

static void unpin(struct tcp_path *p)
{
        for (size_t i = 0; i < p->n_pinned; i++)
                ros_unpin(p->sender->core, p->pinned[i]);
        p->n_pinned = 0;
        p->n_iov = p->at = 0;
}

static void lose(struct tcp_path *p, uint64_t now_ns, int why)
{
        uint64_t pause_ns = tcp_backoff_next_ns(&p->backoff);

        if (p->was_up && p->state == PATH_UP && ros_run_state(p->sender->core) < RUN_ENDED)
                log_warning_errno(why, "lost the connection to SFI %u: %m", p->sfi + 1);
        if (p->io.fd >= 0) {
                loop_remove(p->sender->context.loop, &p->io);
                close(p->io.fd);
        }
        p->io.fd = -1;
        tcp_reader_fini(&p->reader);
        unpin(p);
        ros_rewind(p->sender->core, p->sfi);
        p->state = PATH_WAITING;
        p->retry_ns = now_ns + pause_ns;
}

static void begin_connection(struct tcp_path *p, uint64_t now_ns)
{
        const struct data_context *c = &p->sender->context;
        struct net_address local;
        int fd = network_node_address(&local, c->self, 0);

        if (fd >= 0)
                fd = tcp_connect(&local, &p->to, c->scenario->network.socket_buffer_bytes);
        if (fd >= 0) {
                /* check_congestion() has checked the name. */
                if (c->scenario->scenario.congestion != CONGESTION_AUTO)
                        (void)tcp_choose_congestion(fd, congestion_names[c->scenario->scenario.congestion]);
                tcp_notice_silence(fd);
                socket_poll_busily(fd);
                socket_mark(fd, c->scenario->network.data_dscp);
                p->io = (struct loop_io){.fd = fd, .events = EPOLLIN | EPOLLOUT, .ready = is_ready, .ctx = p};
                p->state = PATH_CONNECTING;
                p->ready_in = p->ready_out = false;
        }
        if (fd < 0 || tcp_reader_init(&p->reader, fd, STAGING_BYTES) < 0 || loop_add(c->loop, &p->io) < 0)
                lose(p, now_ns, fd < 0 ? fd : -ENOMEM);
}

/* The SFI accepts only connections whose first message identifies the ROS. */
static void introduce(struct tcp_path *p)
{
        struct message *m = &((struct tcp_sender *)p->sender->state)->message;

        m->header = data_sender_header(p->sender, p->sfi);
        m->header.type = MESSAGE_TOTALS;
        m->totals.fragments = 0;
        m->totals.datagrams = ros_transaction(p->sender->core, p->sfi);
        p->iov[0] = (struct iovec){p->headers, message_encode(m, p->headers, STAGING_BYTES)};
        p->n_iov = 1;
        p->at = 0;
}

static void publish_granted(const struct tcp_path *p)
{
        uint64_t requested = p->sender->context.scenario->network.socket_buffer_bytes,
                 granted = tcp_granted_bytes(p->io.fd, true);

        stats_set(&p->sender->context.stats->granted_send_buffer_bytes, granted);
        socket_log_buffer(SOCKET_SEND, "data connections", true, requested, granted);
}

/* The kernel counts payload only. */
static void follow_pace(struct tcp_path *p)
{
        const struct data_sender *s = p->sender;
        uint64_t segment, frame;

        if (p->paced_bps == s->pace_bps)
                return;
        p->paced_bps = s->pace_bps;
        segment = tcp_segment_bytes(p->io.fd);
        frame = segment +
                (p->to.any.sa_family == AF_INET6 ? FRAME6_BEYOND_TCP_BYTES : FRAME_BEYOND_TCP_BYTES) +
                s->pace_overhead_bytes;
        tcp_pace(p->io.fd, s->pace_bps / 8 * segment / frame);
}

static void check_connected(struct tcp_path *p, uint64_t now_ns)
{
        int r = tcp_connected(p->io.fd);

        if (r < 0) {
                lose(p, now_ns, r);
                return;
        }
        if (p->was_up)
                stats_add(&p->sender->context.stats->reconnects, 1);
        p->was_up = true;
        p->paced_bps = 0;
        p->state = PATH_UP;
        tcp_backoff_reset(&p->backoff);
        publish_granted(p);
        introduce(p);
}

/* Packs the next message; false: there is nothing to send. */
static bool pack(struct tcp_path *p)
{
        struct data_sender *s = p->sender;
        struct message_header header = data_sender_header(s, p->sfi);
        const struct chunk_datagram *d;
        size_t jobs = data_sender_pop(s, p->sfi, MESSAGE_MAX_BYTES);

        if (chunk_pack(s->packer, &header, s->chunk_jobs, jobs, &d) == 0)
                return false;
        for (size_t i = 0; i < jobs && i <= d->jobs_done; i++) {
                if (s->jobs[i].entry == UINT32_MAX)
                        continue;
                ros_pin(s->core, s->jobs[i].entry);
                p->pinned[p->n_pinned++] = s->jobs[i].entry;
        }
        /* The first entry is in the packer's memory, which the next message reuses. */
        memcpy(p->iov, d->iov, d->n_iov * sizeof *d->iov);
        memcpy(p->headers, d->iov[0].iov_base, d->iov[0].iov_len);
        p->iov[0].iov_base = p->headers;
        p->n_iov = d->n_iov;
        p->at = 0;
        stats_add(&s->context.stats->packets_sent, 1);
        stats_add(&s->context.stats->bytes_sent, d->size_bytes);
        ros_count_datagrams(s->core, p->sfi, 1);
        ros_sent(s->core, p->sfi, d->jobs_done, d->next_offset);
        return true;
}

static void advance(struct tcp_path *p, size_t sent)
{
        while (sent > 0 && p->at < p->n_iov) {
                struct iovec *v = &p->iov[p->at];
                size_t part = MIN(sent, v->iov_len);

                v->iov_base = (uint8_t *)v->iov_base + part;
                v->iov_len -= part;
                sent -= part;
                if (v->iov_len > 0)
                        return;
                p->at++;
        }
        while (p->at < p->n_iov && p->iov[p->at].iov_len == 0)
                p->at++;
        if (p->at == p->n_iov)
                unpin(p);
}

static void write_some(struct tcp_path *p, uint64_t now_ns)
{
        /* The number of rounds is limited, so that requests and other SFIs are also served. */
        for (int round = 0; round < 8; round++) {
                if (p->at == p->n_iov && !pack(p)) {
                        loop_modify(p->sender->context.loop, &p->io, EPOLLIN);
                        return;
                }
                ssize_t sent = tcp_send(p->io.fd, p->iov + p->at, p->n_iov - p->at);

                if (sent == -EAGAIN) {
                        p->ready_out = false;
                        p->blocked_ns = now_ns;
                        stats_add(&p->sender->context.stats->send_blocked, 1);
                        loop_modify(p->sender->context.loop, &p->io, EPOLLIN | EPOLLOUT);
                        return;
                }
                if (sent < 0) {
                        lose(p, now_ns, (int)sent);
                        return;
                }
                advance(p, (size_t)sent);
        }
}

/* Handles the next received message. 1: done; 0: incomplete; -EPROTO: not a request of this SFI, so the
 * connection must be closed. */
static int receive_message(struct tcp_path *p, uint64_t now_ns)
{
        struct message *m = &((struct tcp_sender *)p->sender->state)->message;
        struct message_header h;
        enum message_verdict v;
        size_t left, size;
        uint32_t check;
        const uint8_t *bytes = tcp_reader_bytes(&p->reader, &left);

        if (left < MESSAGE_HEADER_BYTES)
                return 0;
        v = message_header_decode(&h, bytes, left, &check);
        if (v == MESSAGE_OK &&
            (h.type != MESSAGE_REQUEST || h.sender_role != ROLE_SFI || h.sender_index != p->sfi))
                v = MESSAGE_MALFORMED;
        size = v == MESSAGE_OK ? MESSAGE_HEADER_BYTES + (size_t)h.payload_bytes : 0;
        if (v == MESSAGE_OK && size > left && size <= STAGING_BYTES)
                return 0;
        if (v == MESSAGE_OK)
                v = size > left ? MESSAGE_MALFORMED : message_decode(m, bytes, size);
        if (v != MESSAGE_OK) {
                stats_count_refusal(p->sender->context.stats, v);
                return -EPROTO;
        }
        ros_receive(p->sender->core, now_ns, m);
        tcp_reader_consume(&p->reader, size);
        return 1;
}

static void read_some(struct tcp_path *p, uint64_t now_ns)
{
        for (int round = 0; round < READS_MAX; round++) {
                ssize_t got = tcp_reader_fill(&p->reader);
                int r = 1;

                while (r > 0)
                        r = receive_message(p, now_ns);
                if (r < 0 || got < 0) {
                        lose(p, now_ns, r < 0 ? r : (int)got);
                        return;
                }
                if (got == 0) {
                        p->ready_in = false;
                        return;
                }
        }
}

/* An SFI that joins accepts connections, so the ROS need not wait for the end of the present pause. */
static void follow_live(struct tcp_path *p, uint64_t now_ns)
{
        bool is_live = ros_sfi_live(p->sender->core)[p->sfi / 64] >> (p->sfi % 64) & 1;

        if (is_live && !p->was_live && p->state == PATH_WAITING) {
                tcp_backoff_reset(&p->backoff);
                p->retry_ns = now_ns;
        }
        p->was_live = is_live;
}

static int tcp_turn(struct data_sender *s, uint64_t now_ns, bool *ret_more)
{
        struct tcp_sender *t = s->state;

        *ret_more = false;
        /* The introduction needs the run's cookie. */
        if (!member_is_joined(ros_member(s->core)))
                return 0;
        for (uint32_t i = 0; i < t->n; i++) {
                struct tcp_path *p = &t->paths[i];

                follow_live(p, now_ns);
                if (p->state == PATH_WAITING && now_ns >= p->retry_ns)
                        begin_connection(p, now_ns);
                if (p->state == PATH_CONNECTING && p->ready_out)
                        check_connected(p, now_ns);
                if (p->state == PATH_UP)
                        follow_pace(p);
                if (p->state == PATH_UP && p->ready_in)
                        read_some(p, now_ns);
                if (p->state == PATH_UP && p->ready_out)
                        write_some(p, now_ns);
                *ret_more |= p->state == PATH_UP && p->ready_in;
                *ret_more |= p->state == PATH_UP && p->ready_out &&
                             (p->at < p->n_iov || ros_next_with_jobs(s->core, i) == i);
        }
        return 0;
}

static uint64_t tcp_deadline(const struct data_sender *s)
{
        const struct tcp_sender *t = s->state;
        uint64_t deadline_ns = NEVER_NS;

        for (uint32_t i = 0; member_is_joined(ros_member(s->core)) && i < t->n; i++) {
                if (t->paths[i].state == PATH_WAITING)
                        deadline_ns = MIN(deadline_ns, t->paths[i].retry_ns);
        }
        return deadline_ns;
}

/* Refuses a congestion control that the kernel does not have, before the run begins. */
static int check_congestion(const struct scenario *sc)
{
        _cleanup_close_ int fd = -1;
        const char *name;
        int r;

        if (sc->scenario.congestion == CONGESTION_AUTO)
                return 0;
        name = congestion_names[sc->scenario.congestion];
        fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        r = fd < 0 ? -errno : tcp_choose_congestion(fd, name);
        if (r == -ENOENT)
                return log_error_errno(EOPNOTSUPP,
                                       "scenario.transport: the kernel has no %s; expected one of "
                                       "/proc/sys/net/ipv4/tcp_available_congestion_control",
                                       name);
        return r < 0 ? log_error_errno(r, "scenario.transport: cannot use %s: %m", name) : 0;
}

static int tcp_open(struct data_sender *s)
{
        const struct scenario *sc = s->context.scenario;
        struct tcp_sender *t;
        int r = check_congestion(sc);

        if (r < 0)
                return r;
        t = calloc(1, sizeof *t);
        if (!t)
                return log_error_errno(ENOMEM, "data connections: %m");
        s->state = t;
        t->n = (uint32_t)sc->sfi.count;
        t->paths = calloc(t->n, sizeof *t->paths);
        if (!t->paths || chunk_packer_new(&s->packer, MESSAGE_MAX_BYTES, 1) < 0)
                return log_error_errno(ENOMEM, "data connections: %m");
        chunk_packer_set_stream(s->packer);
        for (uint32_t i = 0; r >= 0 && i < t->n; i++) {
                struct tcp_path *p = &t->paths[i];

                p->sender = s;
                p->sfi = i;
                p->io.fd = -1;
                p->headers = malloc(STAGING_BYTES);
                tcp_backoff_init(&p->backoff, s->seed ^ i);
                r = p->headers ? network_node_address(&p->to, scenario_node_of(sc, ROLE_SFI, i),
                                                      scenario_data_port(sc))
                               : log_error_errno(ENOMEM, "data connections: %m");
        }
        return r;
}

static void tcp_close(struct data_sender *s)
{
        struct tcp_sender *t = s->state;

        if (!t)
                return;
        for (uint32_t i = 0; t->paths && i < t->n; i++) {
                struct tcp_path *p = &t->paths[i];

                if (p->state != PATH_WAITING) {
                        unpin(p);
                        tcp_reader_fini(&p->reader);
                        close(p->io.fd);
                }
                free(p->headers);
        }
        free(t->paths);
        free(t);
}

static uint64_t tcp_blocked_since(const struct data_sender *s, uint32_t sfi)
{
        const struct tcp_path *p = &((const struct tcp_sender *)s->state)->paths[sfi];

        return p->state == PATH_UP && !p->ready_out && p->at < p->n_iov ? p->blocked_ns : 0;
}

const struct data_sender_ops data_send_tcp = {
        .open = tcp_open,
        .turn = tcp_turn,
        .deadline_ns = tcp_deadline,
        .blocked_since_ns = tcp_blocked_since,
        .close = tcp_close,
};
