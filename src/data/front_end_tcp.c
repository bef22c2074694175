/* The stream of a front-end: its connection, which stays between runs, and the frames in it. */
#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "base/log.h"
#include "base/util.h"
#include "data/socket_open.h"
#include "front_end_internal.h"

/* Maximum size of a frame that ends at a marker. Such a frame is read before its size is known. */
#define MARKED_MAX_BYTES (1u << 20)
#define MARKED_STAGING_BYTES (MARKED_MAX_BYTES + STAGING_BYTES)
#define STAGING_BYTES (256u << 10)
#define TURN_BYTES (4u << 20)
/* If the payload in a socket is at least the granted buffer divided by this number, the socket may be full. A
 * full socket holds more than twice as much, whatever the size of the frames. */
#define FULL_SHARE 4

void front_end_disconnect(struct front_end *f)
{
        if (f->io.fd >= 0) {
                loop_remove(f->loop, &f->io);
                close(f->io.fd);
        }
        f->io.fd = -1;
        f->up = f->ready = f->paused = f->found = f->has_foreign = false;
        f->scanned = f->taken_bytes = 0;
        f->between_bytes = 0;
        f->between = false;
        tcp_reader_fini(&f->reader);
}

/* Whether bytes of a frame of the run are staged. */
static bool has_begun(const struct front_end *f)
{
        size_t staged = 0;

        if (f->up)
                (void)tcp_reader_bytes(&f->reader, &staged);
        return staged > 0 && !f->between && f->between_bytes == 0;
}

bool front_end_has_part(const struct front_end *f)
{
        return f->in_frame ? !f->is_between : has_begun(f);
}

static void lose(struct front_end *f, uint64_t now_ns, int why)
{
        bool in_frame = f->in_frame && !f->is_between, begun = has_begun(f), is_unused;

        f->why_down = why;
        if (f->up) {
                f->down_since_ns = now_ns;
                /* Before the run begins, there are no triggers, so the board sends no frames. */
                is_unused = f->frames == 0 && !in_frame && !begun && ros_run_state(f->core) == RUN_STARTING;
                if (front_end_log_loss(why, in_frame, begun, f->frames) && !is_unused)
                        front_end_add_gap(f, 1, GAP_BROKEN, "");
        }
        if (f->in_frame)
                front_end_end_frame(f, false);
        front_end_disconnect(f);
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
        front_end_end_frame(f, true);
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
        return f->between || f->between_bytes > f->taken_bytes;
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
                        front_end_add_gap(f, 1, GAP_FOREIGN, text);
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
        verdict = f->is_between ? ROS_DISCARD
                                : front_end_arrive(f, bytes + skip, n - skip, (uint32_t)size - skip);
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
        f->again_ns = now_ns + FRONT_END_FULL_PAUSE_NS;
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
        for (int frames = 0; r > 0 && frames < FRONT_END_FRAMES_MAX && f->taken_bytes < TURN_BYTES; frames++)
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
        if (f->up || f->complained || now_ns - f->down_since_ns < FRONT_END_MISSING_NS)
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

/* If the socket may have been full, the board sends more now that there is room. */
static void record_empty(struct front_end *f, uint64_t now_ns)
{
        uint64_t granted = tcp_granted_bytes(f->io.fd, false);

        f->emptied_ns = now_ns;
        if (granted > 0 && f->burst_bytes >= granted / FULL_SHARE)
                f->narrow_ns = now_ns;
        f->burst_bytes = 0;
}

void front_end_turn_tcp(struct front_end *f, uint64_t now_ns)
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
                front_end_deliver(f, true);
        } else if (r < 0 || (r = resume_stream(f)) < 0) {
                if (r == -EPROTO)
                        stats_add(&f->stats->packets_malformed, 1);
                lose(f, now_ns, r);
        }
}
