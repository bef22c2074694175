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
#include "front_end_text.h"

#define STAGING_BYTES (256u << 10)
/* Maximum size of a frame that ends at a marker. Such a frame is read before its size is known. */
#define MARKED_MAX_BYTES (1u << 20)
#define MARKED_STAGING_BYTES (MARKED_MAX_BYTES + STAGING_BYTES)
#define RECEIVE_BUFFER_BYTES (8u << 20)
/* Pause of a stream after the buffer was full. */
#define FULL_PAUSE_NS NS_PER_MS
#define QUIET_NS (200 * NS_PER_MS)
/* Limits of one turn, so that a flood does not starve the rest of the ROS. */
#define BATCHES_MAX 16
#define FRAMES_MAX 4096
#define TURN_BYTES (4u << 20)
/* How long a stop or a reset waits until all frames that had come before are read, if the board never stops
 * sending, or the buffer is full. It waits for what the sockets may have held in any case. */
#define READ_NS (100 * NS_PER_MS)
/* A board that had to wait for room in the connection sends the rest within this time. */
#define RESUME_NS (10 * NS_PER_MS)
/* If the payload in a socket is at least the granted buffer divided by this number, the socket may be full. A
 * full socket holds more than twice as much, whatever the size of the frames. */
#define FULL_SHARE 4
/* A datagram needs at least this much of the buffer that was requested: half of what the kernel counts. */
#define DATAGRAM_BUFFER_BYTES 256u
/* What may wait at a board on TCP: the usual limit of a socket of Linux. */
#define SENDER_BYTES (4u << 20)
/* If there is no connection for longer than this, it is logged. */
#define MISSING_NS (2 * NS_PER_S)

struct front_end {
        struct ros *core;
        uint8_t *buffer;
        struct slicer *slicer;   /* NULL: frames have no times */
        struct joiner *joiner;   /* NULL: each frame or slice is a fragment */
        struct matcher *matcher; /* NULL: frames have numbers, or are in slices */
        uint64_t now_ns;         /* time of the current turn */
        struct node_stats *stats;
        struct loop *loop;
        struct loop_io io;
        bool ready;
        uint64_t full_ns; /* when the buffer last had no room for a datagram; 0: never */
        uint64_t again_ns, received_ns;
        uint64_t opened_ns;   /* when the socket was opened or connected; 0: never yet */
        uint64_t emptied_ns;  /* time of the last turn that read all that had arrived */
        uint64_t mark;        /* ros_reads_first() of the last turn */
        uint64_t marked_ns;   /* what came before this is read first; 0: there is no mark */
        uint64_t held;        /* what may still wait from before the mark: datagrams, or bytes */
        uint64_t narrow_ns;   /* when the board may last have waited for room in the connection; 0: never */
        uint64_t burst_bytes; /* number of bytes read since the socket was last empty */
        struct frame_rule frame;
        struct number_field number;
        size_t fields_end; /* bytes of a frame up to the end of the fields that are read on arrival */
        struct ros_sample last;
        uint64_t frames; /* number of frames so far */
        struct front_end_gaps gaps;
        /* UDP */
        struct endpoint *endpoint;
        uint64_t dropped; /* number of dropped datagrams that are already counted as gaps */
        /* TCP */
        bool tcp, up;
        /* The stream is paused because the buffer is full. It is not in the loop then, because a closed
         * stream would wake the loop continuously. */
        bool paused;
        size_t taken_bytes; /* number of bytes read in this turn */
        struct net_address local, to;
        struct tcp_backoff backoff;
        bool was_up, complained;
        uint64_t down_since_ns; /* 0: before the first turn */
        int why_down;
        struct tcp_reader reader;
        /* The frame being received; its bytes go to `place` unless it is discarded. */
        size_t scanned; /* bytes of the frame searched so far for its end */
        bool found;     /* a frame has been found since the connection began */
        /* Bytes outside frames have arrived since the last frame, or before the first one. */
        bool has_foreign;
        bool in_frame, stored;
        uint8_t *place;
        uint32_t frame_bytes, frame_done;
        /* What had come when this run took over the connection of the previous one. Frames that begin in it
         * are in no run. */
        uint64_t between_bytes;
        bool is_between;    /* the frame being received is such a frame */
        uint64_t n_between; /* number of such frames that are not logged yet */
        uint8_t discarded[65536];
};

/* Records lost frames that have no numbers; the first of them would have been the next frame. */
static void record_gap(struct front_end *f, uint64_t n, enum front_end_gap kind, const char *detail)
{
        stats_add(&f->stats->front_end_gaps, n);
        front_end_record_gap(&f->gaps, f->now_ns, n, f->frames, kind, detail, f->number.bits > 0);
}

static int open_udp(struct front_end *f, const char *at)
{
        struct udp_config config = {.local = f->local, .receive_buffer_bytes = RECEIVE_BUFFER_BYTES};
        const char *colon = strrchr(at, ':');
        struct net_address group;
        int r;

        net_address_set_port(&config.local, (uint16_t)atoi(colon ? colon + 1 : at));
        if (net_address_parse_with_port(&group, at) == 0 && net_address_is_multicast(&group))
                config.group = &group;
        r = socket_open_udp(&f->endpoint, &config, "frames of the front-end");
        if (r < 0)
                return r;
        socket_log_buffer(SOCKET_RECEIVE, "frames of the front-end", true, config.receive_buffer_bytes,
                          f->endpoint->granted_receive_bytes);
        f->io = (struct loop_io){
                .fd = f->endpoint->fd, .events = EPOLLIN, .ready = loop_set_flag, .ctx = &f->ready};
        return loop_add(f->loop, &f->io);
}

int front_end_new(struct front_end **ret, bool tcp, const char *at, const struct front_end_layout *layout,
                  const struct net_address *local, struct loop *loop, struct ros *core, uint8_t *buffer,
                  struct node_stats *stats)
{
        struct front_end *f = calloc(1, sizeof *f);
        int r;

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
        if (!tcp)
                r = open_udp(f, at);
        else if ((r = net_address_parse_with_port(&f->to, at)) < 0)
                log_error("ros.source: invalid front-end address \"%s\"; expected ADDRESS:PORT with a "
                          "numeric IPv4 or [IPv6] address",
                          at);
        if (r < 0) {
                front_end_free(f);
                return r;
        }
        *ret = f;
        return 0;
}

static void disconnect(struct front_end *f)
{
        if (f->io.fd >= 0) {
                loop_remove(f->loop, &f->io);
                close(f->io.fd);
        }
        f->io.fd = -1;
        f->up = f->ready = f->paused = f->found = f->has_foreign = false;
        f->scanned = 0;
        f->between_bytes = 0;
        tcp_reader_fini(&f->reader);
}

struct front_end *front_end_free(struct front_end *f)
{
        if (!f)
                return NULL;
        if (f->tcp)
                disconnect(f);
        endpoint_free(f->endpoint);
        front_end_collect(f, NULL, NULL, NULL);
        free(f);
        return NULL;
}

void front_end_collect(struct front_end *f, struct slicer *slicer, struct joiner *joiner,
                       struct matcher *matcher)
{
        slicer_free(f->slicer);
        joiner_free(f->joiner);
        matcher_free(f->matcher);
        f->slicer = slicer;
        f->joiner = joiner;
        f->matcher = matcher;
}

/* A frame of `bytes` begins; its first `n` bytes are at `payload`. */
static enum ros_verdict arrive(struct front_end *f, const uint8_t *payload, size_t n, uint32_t bytes)
{
        struct ros_fragment fragment = {.bytes = bytes, .form = FORM_RAW};
        enum ros_verdict verdict;
        const uint64_t *counter;
        uint64_t at = 0;

        f->last.bytes = bytes;
        f->last.has_counter = f->number.bits > 0 &&
                              number_read(&f->number, payload, MIN(n, (size_t)bytes), &f->last.counter);
        counter = f->last.has_counter ? &f->last.counter : NULL;
        if (f->slicer)
                return slicer_arrive(f->slicer, f->now_ns, counter, bytes, &f->place);
        if (f->joiner && f->emptied_ns < f->opened_ns + QUIET_NS)
                joiner_begin_early(f->joiner, f->core);
        if (f->joiner)
                return joiner_arrive(f->joiner, counter, payload, n, bytes, &f->place);
        if (f->matcher)
                return matcher_arrive(f->matcher, f->now_ns, counter, bytes, &f->place);
        verdict = ros_arrive(f->core, counter, &fragment, &at);
        f->place = verdict == ROS_STORE && bytes > 0 ? f->buffer + at : NULL;
        return verdict;
}

/* Ends the frame; `whole`: all of it was read. */
static void end_frame(struct front_end *f, bool whole)
{
        f->in_frame = false;
        if (f->is_between) {
                /* If front_end_miss_frames() recorded a gap, the first of these frames is it. */
                stats_add(&f->stats->front_end_gaps, f->gaps.n == 0 || f->n_between > 0);
                f->n_between++;
                f->is_between = false;
                return;
        }
        f->frames++;
        if (f->slicer) {
                whole ? slicer_commit(f->slicer, f->now_ns) : slicer_skip(f->slicer);
                return;
        }
        if (f->joiner) {
                whole ? joiner_commit(f->joiner, f->now_ns) : joiner_skip(f->joiner, f->core);
                return;
        }
        if (f->matcher) {
                whole ? matcher_commit(f->matcher) : matcher_skip(f->matcher);
                return;
        }
        stats_add(&f->stats->front_end_frames, whole || !f->tcp);
        whole ? ros_commit(f->core) : ros_skip(f->core, 1);
}

/* A read from this time on that leaves nothing in the socket has read all that came before the mark. */
static uint64_t read_from_ns(const struct front_end *f)
{
        return f->narrow_ns > 0 ? MAX(f->marked_ns, f->narrow_ns + RESUME_NS) : f->marked_ns;
}

/* Whether frames that came before a stop or a reset of the counters may still wait to be read. Without a
 * mark, this is always true. */
static bool reads_on(const struct front_end *f)
{
        if (f->mark == 0)
                return true;
        return (!f->tcp || f->up) && f->emptied_ns < read_from_ns(f) &&
               ((f->held > 0 && !f->paused) || f->now_ns < f->marked_ns + READ_NS);
}

/* Passes closed slices, joined fragments and matched frames on. */
static void deliver(struct front_end *f, bool full)
{
        bool idle = !f->ready && !f->paused, reading = reads_on(f),
             collecting = reading || !ros_is_stopped(f->core);

        ros_set_reading(f->core, reading);
        if (f->joiner) {
                stats_add(&f->stats->front_end_frames,
                          joiner_deliver(f->joiner, f->now_ns, idle, full, f->core, f->buffer));
                collecting |= joiner_is_collecting(f->joiner);
        }
        if (f->slicer) {
                stats_add(&f->stats->front_end_frames,
                          slicer_deliver(f->slicer, f->now_ns, idle, full, f->core, f->buffer));
                collecting |= slicer_is_collecting(f->slicer);
        }
        if (f->matcher)
                stats_add(&f->stats->front_end_frames,
                          matcher_deliver(f->matcher, f->now_ns, full, f->core, f->buffer));
        ros_set_collecting(f->core, collecting);
}

static void receive_frame(struct front_end *f, const uint8_t *payload, uint32_t bytes)
{
        enum ros_verdict verdict = arrive(f, payload, bytes, bytes);

        if (verdict == ROS_FULL && (f->slicer || f->joiner || f->matcher)) {
                deliver(f, true);
                verdict = arrive(f, payload, bytes, bytes);
        }
        if (verdict == ROS_STORE && bytes > 0)
                memcpy(f->place, payload, bytes);
        if (verdict != ROS_FULL) {
                end_frame(f, true);
                return;
        }
        if (log_is_new_fault(&f->full_ns, f->now_ns))
                log_warning("front-end: frame %" PRIu64 " finds no room in ros.buffer-size or "
                            "test.buffer-events and is lost; further ones are only counted until none comes "
                            "for 10 s",
                            f->frames);
        end_frame(f, false);
}

/* Datagrams contain whole frames only. */
static void receive_datagram(struct front_end *f, const struct datagram *d)
{
        uint32_t skip = f->frame.skip_bytes;
        size_t at = 0, bytes;
        char why[256];

        if (!front_end_is_whole(&f->frame, d->bytes, d->size_bytes, why, sizeof why)) {
                stats_add(&f->stats->packets_malformed, 1);
                record_gap(f, 1, GAP_MALFORMED, why);
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
        if (dropped > f->dropped)
                record_gap(f, dropped - f->dropped, GAP_DROPPED, "");
        f->dropped = dropped;
        stats_set(&f->stats->packets_socket_dropped, dropped);
}

static void turn_udp(struct front_end *f, uint64_t now_ns)
{
        uint64_t end = f->frames + FRAMES_MAX;
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

static void lose(struct front_end *f, uint64_t now_ns, int why)
{
        size_t begun = 0;

        f->why_down = why;
        if (f->up) {
                f->down_since_ns = now_ns;
                (void)tcp_reader_bytes(&f->reader, &begun);
                if (front_end_log_loss(why, f->in_frame && !f->is_between, begun > 0 && f->between_bytes == 0,
                                       f->frames))
                        record_gap(f, 1, GAP_BROKEN, "");
        }
        if (f->in_frame)
                end_frame(f, false);
        disconnect(f);
        f->again_ns = now_ns + tcp_backoff_next_ns(&f->backoff);
}

static void begin_connection(struct front_end *f, uint64_t now_ns)
{
        int fd = tcp_connect(&f->local, &f->to, 0);

        f->again_ns = NEVER_NS;
        if (fd < 0) {
                lose(f, now_ns, fd);
                return;
        }
        tcp_notice_silence(fd);
        socket_poll_busily(fd);
        f->io = (struct loop_io){
                .fd = fd, .events = EPOLLIN | EPOLLOUT, .ready = loop_set_flag, .ctx = &f->ready};
        if (loop_add(f->loop, &f->io) < 0 ||
            tcp_reader_init(&f->reader, fd,
                            f->frame.kind == FRAME_MARKED ? MARKED_STAGING_BYTES : STAGING_BYTES) < 0)
                lose(f, now_ns, -ENOMEM);
}

/* Reads the payload of the current frame into the buffer. 1: the frame is complete, or enough was read for
 * this turn; 0: wait; negative: the stream has ended. */
static int read_payload(struct front_end *f)
{
        while (f->frame_done < f->frame_bytes) {
                if (f->taken_bytes >= TURN_BYTES)
                        return 1;
                uint32_t left = f->frame_bytes - f->frame_done;
                ssize_t got = tcp_reader_read(&f->reader, f->stored ? f->place + f->frame_done : f->discarded,
                                              f->stored ? left : MIN(left, (uint32_t)sizeof f->discarded));

                if (got <= 0)
                        return (int)got;
                f->frame_done += (uint32_t)got;
                f->taken_bytes += (size_t)got;
        }
        end_frame(f, true);
        return 1;
}

/* Number of bytes that must have arrived before a frame is stored: the skipped bytes, and the payload up to
 * its number and the fields by which frames are joined. */
static size_t start_bytes(const struct front_end *f, size_t size)
{
        return MIN(size, f->frame.skip_bytes + f->fields_end);
}

/* Whether the next unread byte came between two runs. */
static bool begins_between(const struct front_end *f)
{
        return f->between_bytes > f->taken_bytes;
}

/* Discards bytes that belong to no frame. A board may begin with such bytes, but between frames they are a
 * gap. */
static void discard_foreign(struct front_end *f, const uint8_t *bytes, size_t n)
{
        bool is_gap = f->found && !begins_between(f);
        char text[256];

        if (!f->has_foreign) {
                front_end_explain_foreign(&f->frame, bytes, n, text, sizeof text);
                if (is_gap)
                        record_gap(f, 1, GAP_FOREIGN, text);
                else
                        log_warning("front-end: before its first frame: %s", text);
                stats_add(&f->stats->packets_malformed, is_gap);
        }
        f->has_foreign = true;
        f->scanned -= MIN(f->scanned, n);
        tcp_reader_consume(&f->reader, n);
        f->taken_bytes += n;
}

/* The end of the stream ends a frame that would extend to the next marker. */
static bool ends_frame(const struct front_end *f, ssize_t got, size_t n)
{
        return got == -EPIPE && f->frame.kind == FRAME_MARKED && n > 0;
}

/* Waits until the frame at the beginning of the staged bytes is found. 1: it is found, or enough was
 * discarded for this turn (*ret_bytes is 0); 0: wait; negative: the stream has ended, or contains no
 * frame. */
static int find_frame(struct front_end *f, size_t *ret_bytes)
{
        uint32_t max = f->frame.kind == FRAME_MARKED ? MARKED_MAX_BYTES : EVB_FRAGMENT_MAX_BYTES;
        bool is_end = false;

        for (;;) {
                size_t n;
                const uint8_t *bytes = tcp_reader_bytes(&f->reader, &n);
                enum frame_result result =
                        n == 0 ? FRAME_MORE
                               : frame_find(&f->frame, bytes, n, is_end, max, &f->scanned, ret_bytes);
                ssize_t got;

                if (result == FRAME_WRONG)
                        return front_end_log_start(&f->frame, bytes, n);
                if (result == FRAME_FOREIGN) {
                        discard_foreign(f, bytes, *ret_bytes);
                        *ret_bytes = 0;
                        if (f->taken_bytes >= TURN_BYTES)
                                return 1;
                        continue;
                }
                if (result == FRAME_FOUND && n >= start_bytes(f, *ret_bytes))
                        return 1;
                got = tcp_reader_fill(&f->reader);
                is_end = ends_frame(f, got, n);
                if (got <= 0 && !is_end)
                        return (int)got;
        }
}

/* 1: a frame has begun; 0: wait; -EAGAIN: the buffer is full; -EPROTO: these bytes cannot begin a frame. */
static int read_start(struct front_end *f)
{
        uint32_t skip = f->frame.skip_bytes;
        enum ros_verdict verdict;
        const uint8_t *bytes;
        size_t n, size = 0;
        int r = find_frame(f, &size);

        if (r <= 0 || size == 0)
                return r;
        bytes = tcp_reader_bytes(&f->reader, &n);
        f->is_between = begins_between(f);
        verdict = f->is_between ? ROS_DISCARD : arrive(f, bytes + skip, n - skip, (uint32_t)size - skip);
        if (verdict == ROS_FULL)
                return -EAGAIN;
        f->stored = verdict == ROS_STORE;
        f->in_frame = f->found = true;
        f->has_foreign = false;
        f->scanned = 0;
        f->frame_bytes = (uint32_t)size - skip;
        f->frame_done = 0;
        tcp_reader_consume(&f->reader, skip);
        f->taken_bytes += skip;
        return 1;
}

/* The buffer is full, so data wait in the kernel, and then in the front-end. */
static void pause_stream(struct front_end *f, uint64_t now_ns)
{
        if (!f->paused)
                loop_remove(f->loop, &f->io);
        f->paused = true;
        f->narrow_ns = now_ns;
        f->again_ns = now_ns + FULL_PAUSE_NS;
}

static int resume_stream(struct front_end *f)
{
        int r = f->paused ? loop_add(f->loop, &f->io) : 0;

        f->paused &= r < 0;
        return r;
}

static int receive_frames(struct front_end *f)
{
        int r = 1;

        f->taken_bytes = 0;
        for (int frames = 0; r > 0 && frames < FRAMES_MAX && f->taken_bytes < TURN_BYTES; frames++)
                r = f->in_frame ? read_payload(f) : read_start(f);
        f->held -= MIN(f->held, f->taken_bytes);
        f->between_bytes -= MIN(f->between_bytes, f->taken_bytes);
        return r;
}

uint64_t front_end_down_since_ns(const struct front_end *f)
{
        return f->tcp && !f->up ? f->down_since_ns : 0;
}

/* Logs each loss of the connection once. */
static void complain(struct front_end *f, uint64_t now_ns)
{
        if (f->down_since_ns == 0)
                f->down_since_ns = now_ns;
        if (f->up || f->complained || now_ns - f->down_since_ns < MISSING_NS)
                return;
        f->complained = true;
        front_end_log_missing(&f->to, now_ns - f->down_since_ns, f->why_down);
}

static void record_up(struct front_end *f, uint64_t now_ns)
{
        if (f->complained)
                front_end_log_return(&f->to, now_ns - f->down_since_ns);
        f->up = f->was_up = true;
        f->opened_ns = now_ns;
        f->complained = false;
        loop_modify(f->loop, &f->io, EPOLLIN);
        tcp_backoff_reset(&f->backoff);
}

struct front_end *front_end_rest(struct front_end *f)
{
        if (!f || !f->up)
                return front_end_free(f);
        loop_remove(f->loop, &f->io);
        front_end_collect(f, NULL, NULL, NULL);
        return f;
}

bool front_end_go_on(struct front_end *f, struct front_end *from, uint64_t now_ns)
{
        uint64_t waiting_bytes;
        size_t staged;

        f->io = (struct loop_io){
                .fd = from->io.fd, .events = EPOLLIN, .ready = loop_set_flag, .ctx = &f->ready};
        f->reader = from->reader;
        f->in_frame = f->is_between = from->in_frame;
        f->frame_bytes = from->frame_bytes;
        f->frame_done = from->frame_done;
        f->scanned = from->scanned;
        f->found = from->found;
        from->reader = (struct tcp_reader){.fd = -1};
        from->io.fd = -1;
        front_end_free(from);
        waiting_bytes = tcp_waiting_bytes(f->io.fd);
        (void)tcp_reader_bytes(&f->reader, &staged);
        f->between_bytes = staged + waiting_bytes;
        f->ready = true;
        if (loop_add(f->loop, &f->io) < 0)
                lose(f, now_ns, -ENOMEM);
        else
                record_up(f, now_ns);
        return waiting_bytes > 0;
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

/* If the socket may have been full, the board sends more now that there is room. */
static void record_empty(struct front_end *f, uint64_t now_ns)
{
        uint64_t granted = tcp_granted_bytes(f->io.fd, false);

        f->emptied_ns = now_ns;
        if (granted > 0 && f->burst_bytes >= granted / FULL_SHARE)
                f->narrow_ns = now_ns;
        f->burst_bytes = 0;
}

static void turn_tcp(struct front_end *f, uint64_t now_ns)
{
        uint64_t frames = f->frames;
        int r = 0;

        complain(f, now_ns);
        if (f->io.fd < 0 && now_ns >= f->again_ns)
                begin_connection(f, now_ns);
        if (f->io.fd < 0 || (!f->ready && now_ns < f->again_ns))
                return;
        if (!f->up && (r = tcp_connected(f->io.fd)) == 0)
                record_up(f, now_ns);
        f->again_ns = NEVER_NS;
        if (r == 0)
                r = receive_frames(f);
        if (f->taken_bytes > 0 || f->frames > frames)
                f->received_ns = now_ns;
        f->ready = r > 0;
        f->burst_bytes += f->taken_bytes;
        if (r == 0)
                record_empty(f, now_ns);
        if (r == -EAGAIN) {
                pause_stream(f, now_ns);
                deliver(f, true);
        } else if (r < 0 || (r = resume_stream(f)) < 0) {
                if (r == -EPROTO)
                        stats_add(&f->stats->packets_malformed, 1);
                lose(f, now_ns, r);
        }
        if (f->n_between > 0 && f->between_bytes == 0 && !f->is_between)
                front_end_log_between(&f->n_between);
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
        return now_ns >= f->received_ns + QUIET_NS;
}

/* When to find out whether the board was silent since the connection began. */
static uint64_t look_ns(const struct front_end *f)
{
        uint64_t at_ns = f->opened_ns + QUIET_NS;
        bool can_look = f->joiner && f->opened_ns > 0 && (!f->tcp || f->up) && !f->paused;

        return can_look && f->emptied_ns < at_ns ? at_ns : NEVER_NS;
}

/* When to read again, so that everything that came before the mark is read; NEVER_NS: no need. */
static uint64_t read_on_ns(const struct front_end *f)
{
        bool can_read = f->mark > 0 && (!f->tcp || f->up) && !f->paused;

        return can_read && f->emptied_ns < read_from_ns(f) ? read_from_ns(f) : NEVER_NS;
}

/* This process may have been held up since it last read the socket, so before frames count as missing, or the
 * front-end as silent, or after a stop or a reset, the socket is read once more. */
static bool must_look(const struct front_end *f)
{
        return (!f->tcp || f->up) && !f->paused &&
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

void front_end_turn(struct front_end *f, uint64_t now_ns)
{
        f->now_ns = now_ns;
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
                turn_tcp(f, now_ns);
        else if (f->ready)
                turn_udp(f, now_ns);
        deliver(f, false);
}

uint64_t front_end_deadline_ns(const struct front_end *f)
{
        /* The core had no room for slices or fragments due in this turn. */
        uint64_t slice_ns = MAX(due_ns(f), f->now_ns + FULL_PAUSE_NS);

        if (f->ready)
                return 0;
        slice_ns = MIN(slice_ns, MIN(look_ns(f), read_on_ns(f)));
        if (!f->tcp)
                return slice_ns;
        slice_ns = MIN(f->again_ns, slice_ns);
        return f->up || f->complained ? slice_ns : MIN(slice_ns, f->down_since_ns + MISSING_NS);
}

uint64_t front_end_frames(const struct front_end *f)
{
        return f->frames;
}

bool front_end_is_quiet(const struct front_end *f, uint64_t now_ns)
{
        return !f->ready && !f->paused && is_silent(f, f->tcp && !f->up ? now_ns : f->emptied_ns);
}

void front_end_miss_frames(struct front_end *f, uint64_t now_ns)
{
        f->now_ns = now_ns;
        if (f->number.bits == 0)
                record_gap(f, 1, GAP_BETWEEN, "");
}

bool front_end_is_unreliable(const struct front_end *f)
{
        return f->gaps.n > 0 && f->number.bits == 0;
}
