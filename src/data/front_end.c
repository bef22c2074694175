/* Receives frames of front-end electronics into the ROS's buffer. The core assigns the frames to events, by
 * their numbers or by counting them. */
#include "data/front_end.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

#include "base/log.h"
#include "base/util.h"
#include "data/socket_open.h"
#include "net/endpoint.h"
#include "net/tcp.h"
#include "front_end_internal.h"

#define RECEIVE_BUFFER_BYTES (8u << 20)
/* Limits of one turn, so that a flood does not starve the rest of the ROS. */
#define BATCHES_MAX 16
/* A datagram needs at least this much of the buffer that was requested: half of what the kernel counts. */
#define DATAGRAM_BUFFER_BYTES 256u
/* What may wait at a board on TCP: the usual limit of a socket of Linux. */
#define SENDER_BYTES (4u << 20)
/* A board that had to wait for room is silent once it has sent the rest. If it never is, the next run does
 * not wait for longer than this. */
#define BETWEEN_NS NS_PER_S

static int open_udp(struct front_end *f, const char *at)
{
        struct udp_config config = {.local = f->local, .receive_buffer_bytes = RECEIVE_BUFFER_BYTES};
        const char *colon = strrchr(at, ':');
        struct net_address group;
        int r;

        net_address_set_port(&config.local, (uint16_t)atoi(colon ? colon + 1 : at));
        if (net_address_parse_with_port(&group, at) == 0 && net_address_is_multicast(&group))
                config.group = &group;
        f->device = config.group ? net_address_device(&f->local) : 0;
        r = socket_open_udp(&f->endpoint, &config, "frames of the front-end");
        if (r < 0)
                return r;
        socket_log_buffer(SOCKET_RECEIVE, "frames of the front-end", true, config.receive_buffer_bytes,
                          f->endpoint->granted_receive_bytes);
        f->io = (struct loop_io){
                .fd = f->endpoint->fd, .events = EPOLLIN, .ready = loop_set_flag, .ctx = &f->ready};
        return loop_add(f->loop, &f->io);
}

int front_end_new(struct front_end **ret, bool tcp, const struct front_end_layout *layout,
                  const struct net_address *local, struct loop *loop, struct ros *core, uint8_t *buffer,
                  struct node_stats *stats)
{
        struct front_end *f = calloc(1, sizeof *f);

        if (!f)
                return log_error_errno(ENOMEM, "front-end: %m");
        *f = (struct front_end){
                .core = core,
                .buffer = buffer,
                .stats = stats,
                .loop = loop,
                .io.fd = -1,
                .frame = layout->frame,
                .number = layout->number,
                .fields_end = MAX(layout->number.bits > 0 ? number_field_end(&layout->number) : 0,
                                  join_rule_end(&layout->join)),
                .tcp = tcp,
                .local = *local,
        };
        tcp_backoff_init(&f->backoff, (uint64_t)(uintptr_t)f);
        *ret = f;
        return 0;
}

int front_end_open(struct front_end *f, const char *at, bool agrees)
{
        int r = f->tcp ? net_address_parse_with_port(&f->to, at) : open_udp(f, at);

        if (r < 0 && f->tcp)
                log_error("ros.source: invalid front-end address \"%s\"; expected ADDRESS:PORT with a "
                          "numeric IPv4 or [IPv6] address",
                          at);
        f->agrees = agrees;
        return r;
}

struct front_end *front_end_free(struct front_end *f)
{
        if (!f)
                return NULL;
        if (f->tcp)
                front_end_disconnect(f);
        endpoint_free(f->endpoint);
        front_end_collect(f, NULL, NULL, NULL);
        free(f);
        return NULL;
}

static void receive_frame(struct front_end *f, const uint8_t *payload, uint32_t bytes)
{
        enum ros_verdict verdict;

        if (f->between) {
                front_end_discard_between(f, 1);
                return;
        }
        verdict = front_end_arrive(f, payload, bytes, bytes);
        if (verdict == ROS_FULL && (f->slicer || f->joiner || f->matcher)) {
                front_end_deliver(f, true);
                verdict = front_end_arrive(f, payload, bytes, bytes);
        }
        if (verdict == ROS_STORE && bytes > 0)
                memcpy(f->place, payload, bytes);
        if (verdict != ROS_FULL) {
                front_end_end_frame(f, true);
                return;
        }
        if (log_is_new_fault(&f->full_ns, f->now_ns))
                log_warning("front-end: frame %" PRIu64 " finds no room in ros.buffer-size or "
                            "test.buffer-events and is lost; further ones are only counted until none comes "
                            "for 10 s",
                            f->frames);
        front_end_end_frame(f, false);
}

/* Datagrams contain whole frames only. */
static void receive_datagram(struct front_end *f, const struct datagram *d)
{
        uint32_t skip = f->frame.skip_bytes;
        size_t at = 0, bytes;
        char why[256];

        if (!front_end_is_whole(&f->frame, d->bytes, d->size_bytes, why, sizeof why)) {
                stats_add(&f->stats->packets_malformed, 1);
                if (f->between)
                        front_end_discard_between(f, 1);
                else
                        front_end_add_gap(f, 1, GAP_MALFORMED, why);
                return;
        }
        do {
                size_t scanned = 0;

                (void)frame_find(&f->frame, d->bytes + at, d->size_bytes - at, true, EVB_FRAGMENT_MAX_BYTES,
                                 &scanned, &bytes);
                receive_frame(f, d->bytes + at + skip, (uint32_t)bytes - skip);
                at += bytes;
        } while (at < d->size_bytes);
}

/* Datagrams that the kernel dropped because the socket was full have no numbers. */
static void record_dropped(struct front_end *f, uint64_t dropped)
{
        if (dropped > f->dropped && f->between)
                front_end_discard_between(f, dropped - f->dropped);
        else if (dropped > f->dropped)
                front_end_add_gap(f, dropped - f->dropped, GAP_DROPPED, "");
        f->dropped = dropped;
        stats_set(&f->stats->packets_socket_dropped, dropped);
}

static void turn_udp(struct front_end *f, uint64_t now_ns)
{
        uint64_t end = f->frames + FRONT_END_FRAMES_MAX;
        struct datagram d[32];
        int n = 1;

        for (int batch = 0; n > 0 && batch < BATCHES_MAX && f->frames < end; batch++) {
                n = endpoint_receive(f->endpoint, d, ARRAY_SIZE(d));
                /* Drop counts arrive with datagrams: record the gap before the frames that follow it. */
                record_dropped(f, f->endpoint->counts.dropped);
                for (int i = 0; i < n; i++)
                        receive_datagram(f, &d[i]);
                if (n > 0) {
                        f->received_ns = now_ns;
                        f->held -= MIN(f->held, (uint64_t)n);
                }
                if (f->endpoint->drained)
                        n = 0;
        }
        f->ready = n > 0;
        if (f->ready)
                return;
        f->emptied_ns = now_ns;
        record_dropped(f, endpoint_counts(f->endpoint)->dropped);
}

struct front_end *front_end_rest(struct front_end *f)
{
        /* If the device of a group was created again, the socket is no longer in the group. */
        if (!f || (f->tcp && !f->up) || (f->device > 0 && net_address_device(&f->local) != f->device))
                return front_end_free(f);
        loop_remove(f->loop, &f->io);
        front_end_collect(f, NULL, NULL, NULL);
        return f;
}

/* Takes over the connection, and the frame that came in part. */
static void take_stream(struct front_end *f, struct front_end *from)
{
        size_t staged;

        f->up = f->was_up = true;
        f->narrow_ns = from->paused ? f->marked_ns : 0;
        f->reader = from->reader;
        (void)tcp_reader_bytes(&f->reader, &staged);
        f->in_frame = f->is_between = from->in_frame;
        f->is_carried = from->in_frame || staged > 0;
        f->frame_bytes = from->frame_bytes;
        f->frame_done = from->frame_done;
        f->scanned = from->scanned;
        f->found = from->found;
        from->reader = (struct tcp_reader){.fd = -1};
}

int front_end_go_on(struct front_end *f, struct front_end *from, bool agrees, bool follows, uint64_t now_ns)
{
        int r;

        f->opened_ns = f->marked_ns = now_ns;
        f->to = from->to;
        f->device = from->device;
        f->endpoint = take_ptr(from->endpoint);
        if (f->endpoint)
                f->endpoint->counts.dropped = 0;
        else
                take_stream(f, from);
        f->io = (struct loop_io){
                .fd = take_fd(&from->io.fd), .events = EPOLLIN, .ready = loop_set_flag, .ctx = &f->ready};
        if (from->awaits_run) {
                f->n_between = from->n_between;
                stats_add(&f->stats->front_end_gaps, f->n_between);
        }
        front_end_free(from);
        f->now_ns = now_ns;
        f->until_ns = now_ns + BETWEEN_NS;
        f->agrees = agrees;
        f->follows = follows;
        f->between = f->ready = true;
        r = loop_add(f->loop, &f->io);
        return r < 0 ? r : tcp_waiting_bytes(f->io.fd) > 0;
}

void front_end_explain_step(const struct front_end *f, const struct ros_sample *sample, uint64_t expected,
                            char *text, size_t text_bytes)
{
        bool has_time = f->slicer || f->matcher;

        front_end_explain_number(&f->number, has_time ? &f->last : sample, has_time ? NULL : &expected, text,
                                 text_bytes);
}

void front_end_reasons(const struct front_end *f, struct reasons *to)
{
        char address[NET_ADDRESS_TEXT_MAX];

        if (f->tcp && !f->was_up)
                reasons_add(to, "could not connect to front-end %s: %s", net_address_format(&f->to, address),
                            front_end_explain_loss(f->why_down));
        front_end_gap_reasons(&f->gaps, f->number.bits > 0, to);
}

/* When the next slice or joined fragment is given up if no frame arrives. */
static uint64_t due_ns(const struct front_end *f)
{
        if (f->slicer)
                return slicer_deadline_ns(f->slicer);
        if (f->matcher)
                return matcher_deadline_ns(f->matcher);
        return f->joiner ? joiner_deadline_ns(f->joiner) : NEVER_NS;
}

/* Whether no frame has come for so long that the front-end counts as silent, or for longer. */
static bool is_silent(const struct front_end *f, uint64_t now_ns)
{
        return now_ns >= f->received_ns + FRONT_END_QUIET_NS;
}

static bool can_read(const struct front_end *f)
{
        return (!f->tcp || f->up) && !f->paused;
}

/* When to find out whether the board was silent since the connection began. */
static uint64_t look_ns(const struct front_end *f)
{
        uint64_t at_ns = f->opened_ns + FRONT_END_QUIET_NS;
        bool can_look = f->joiner && f->opened_ns > 0 && can_read(f);

        return can_look && f->emptied_ns < at_ns ? at_ns : NEVER_NS;
}

/* When to read again, so that everything that came before the mark is read; NEVER_NS: no need. */
static uint64_t read_on_ns(const struct front_end *f)
{
        bool may_wait = (f->mark > 0 || f->between) && can_read(f);

        return may_wait && f->emptied_ns < front_end_read_from_ns(f) ? front_end_read_from_ns(f) : NEVER_NS;
}

/* This process may have been held up since it last read the socket, so before frames count as missing, or the
 * front-end as silent, or after a stop or a reset, the socket is read once more. */
static bool must_look(const struct front_end *f)
{
        return can_read(f) &&
               (look_ns(f) <= f->now_ns || due_ns(f) <= f->now_ns || read_on_ns(f) <= f->now_ns ||
                (is_silent(f, f->now_ns) && !is_silent(f, f->emptied_ns)));
}

static uint64_t may_hold(const struct front_end *f)
{
        size_t staged = 0;

        if (!f->tcp)
                return f->endpoint->granted_receive_bytes / DATAGRAM_BUFFER_BYTES;
        if (!f->up)
                return 0;
        (void)tcp_reader_bytes(&f->reader, &staged);
        return staged + tcp_waiting_bytes(f->io.fd) + SENDER_BYTES;
}

/* All that came before this run is read, or the board never stops. Staged bytes may begin a frame whose size
 * is not known yet. */
static void end_between(struct front_end *f)
{
        if (f->emptied_ns < front_end_read_from_ns(f))
                log_warning(
                        "front-end: the board has not been silent for 0.2 s since the previous run; if its "
                        "numbers begin again in each run, events of this run may contain frames of the "
                        "previous one");
        f->between = false;
        f->opened_ns = f->now_ns;
        f->between_bytes = 0;
        if (f->tcp && !f->in_frame)
                (void)tcp_reader_bytes(&f->reader, &f->between_bytes);
}

bool front_end_refuse(struct front_end *f)
{
        if (f->tcp)
                return true;
        f->between = f->awaits_run = true;
        f->n_doubtful = 0;
        f->n_between += f->frames;
        return f->frames == 0 && f->gaps.n == 0;
}

/* What waits in the socket now came before the run. */
static void end_refusal(struct front_end *f)
{
        f->awaits_run = false;
        f->marked_ns = f->now_ns;
        f->until_ns = f->now_ns + BETWEEN_NS;
        f->ready = true;
        if (f->n_doubtful > 0 && f->agrees && f->gaps.n == 0)
                front_end_record_gap(&f->gaps, f->now_ns, f->n_doubtful, f->frames, GAP_BETWEEN, "", false);
}

/* True: the ROS joins a later run in this turn. No trigger of the run can come before the DFM knows that, so
 * the board has sent all that waits in the socket now before the run. */
static bool joins_later_run(struct front_end *f)
{
        const struct member *m = ros_member(f->core);

        if (f->is_joined || !member_is_joined(m))
                return false;
        f->is_joined = true;
        if (f->awaits_run) {
                end_refusal(f);
                return false;
        }
        f->ready |= can_read(f);
        return m->welcome & WELCOME_FOLLOWS;
}

/* If the board still sent frames of the previous run, they are counted as the first ones of this run. */
static void record_early(struct front_end *f)
{
        uint64_t n = f->frames + front_end_has_part(f);

        if (n > 0 && f->number.bits == 0 && f->agrees && f->gaps.n == 0)
                front_end_record_gap(&f->gaps, f->now_ns, n, 0, GAP_BETWEEN, "", false);
}

bool front_end_is_between(const struct front_end *f)
{
        return f->between && !f->awaits_run;
}

void front_end_turn(struct front_end *f, uint64_t now_ns)
{
        bool joins;

        /* Time in which this process was suspended does not count. */
        if (f->between && now_ns > f->now_ns + FRONT_END_QUIET_NS)
                f->until_ns += now_ns - f->now_ns;
        f->now_ns = now_ns;
        joins = joins_later_run(f);
        if (!f->tcp && f->opened_ns == 0)
                f->opened_ns = now_ns;
        if (ros_reads_first(f->core) != f->mark) {
                f->mark = ros_reads_first(f->core);
                f->marked_ns = now_ns;
                f->held = may_hold(f);
        }
        f->ready |= must_look(f);
        if (f->joiner)
                joiner_follow(f->joiner, f->core);
        if (f->tcp)
                front_end_turn_tcp(f, now_ns);
        else if (f->ready)
                turn_udp(f, now_ns);
        if (joins)
                record_early(f);
        if (front_end_is_between(f) && !front_end_is_reading(f))
                end_between(f);
        if (f->n_between > 0 && !f->between && !f->is_between && f->between_bytes == 0)
                front_end_log_between(&f->n_between);
        front_end_deliver(f, false);
}

uint64_t front_end_deadline_ns(const struct front_end *f)
{
        /* The core had no room for slices or fragments due in this turn. */
        uint64_t slice_ns = MAX(due_ns(f), f->now_ns + FRONT_END_FULL_PAUSE_NS);

        if (f->ready)
                return 0;
        slice_ns = MIN(slice_ns, MIN(look_ns(f), read_on_ns(f)));
        if (!f->tcp)
                return slice_ns;
        slice_ns = MIN(f->again_ns, slice_ns);
        return f->up || f->complained ? slice_ns : MIN(slice_ns, f->down_since_ns + FRONT_END_MISSING_NS);
}

bool front_end_is_quiet(const struct front_end *f, uint64_t now_ns)
{
        return !f->ready && !f->paused && is_silent(f, f->tcp && !f->up ? now_ns : f->emptied_ns);
}

bool front_end_is_unreliable(const struct front_end *f)
{
        return f->gaps.n > 0 && f->number.bits == 0;
}
