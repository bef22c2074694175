/* Passes the frames of a front-end on: to the core, or to what collects frames before it. */
#include "base/util.h"
#include "protocol/event.h"
#include "front_end_internal.h"

/* A board that had to wait for room in the connection sends the rest within this time. */
#define RESUME_NS (10 * NS_PER_MS)
/* How long a stop or a reset waits until all frames that had come before are read, if the board never stops
 * sending, or the buffer is full. It waits for what the sockets may have held in any case. */
#define READ_NS (100 * NS_PER_MS)

void front_end_add_gap(struct front_end *f, uint64_t n, enum front_end_gap kind, const char *detail)
{
        stats_add(&f->stats->front_end_gaps, n);
        front_end_record_gap(&f->gaps, f->now_ns, n, f->frames, kind, detail, f->number.bits > 0);
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

uint64_t front_end_frames(const struct front_end *f)
{
        return f->frames;
}

enum ros_verdict front_end_arrive(struct front_end *f, const uint8_t *payload, size_t n, uint32_t bytes)
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
        if (f->joiner && f->emptied_ns < f->opened_ns + FRONT_END_QUIET_NS)
                joiner_begin_early(f->joiner, f->core);
        if (f->joiner)
                return joiner_arrive(f->joiner, counter, payload, n, bytes, &f->place);
        if (f->matcher)
                return matcher_arrive(f->matcher, f->now_ns, counter, bytes, &f->place);
        verdict = ros_arrive(f->core, counter, &fragment, &at);
        f->place = verdict == ROS_STORE && bytes > 0 ? f->buffer + at : NULL;
        return verdict;
}

void front_end_discard_between(struct front_end *f, uint64_t n)
{
        /* This run has not lost the frame that the previous one has read in part. */
        if (f->awaits_run)
                f->n_doubtful += n;
        else if (f->agrees && f->gaps.n == 0 && !f->is_carried)
                front_end_miss_frames(f, f->now_ns);
        stats_add(&f->stats->front_end_gaps, n - f->gap_waits);
        f->gap_waits = false;
        f->n_between += n;
}

void front_end_miss_frames(struct front_end *f, uint64_t now_ns)
{
        f->now_ns = now_ns;
        if (f->number.bits > 0)
                return;
        front_end_add_gap(f, 1, GAP_BETWEEN, "");
        f->gap_waits = true;
}

void front_end_end_frame(struct front_end *f, bool whole)
{
        f->in_frame = false;
        if (f->is_between) {
                front_end_discard_between(f, 1);
                f->is_between = f->is_carried = false;
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

uint64_t front_end_read_from_ns(const struct front_end *f)
{
        if (f->narrow_ns == 0 || (f->between && !f->follows))
                return f->marked_ns;
        return f->between ? MAX(f->marked_ns, f->received_ns) + FRONT_END_QUIET_NS
                          : MAX(f->marked_ns, f->narrow_ns + RESUME_NS);
}

bool front_end_is_reading(const struct front_end *f)
{
        if (f->between && f->now_ns >= f->until_ns)
                return false;
        return (!f->tcp || f->up) && f->emptied_ns < front_end_read_from_ns(f) &&
               (f->between || (f->held > 0 && !f->paused) || f->now_ns < f->marked_ns + READ_NS);
}

void front_end_deliver(struct front_end *f, bool full)
{
        bool idle = !f->ready && !f->paused, reading = f->mark == 0 || front_end_is_reading(f),
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
        if (f->matcher) {
                const struct matcher_turn turn = {f->now_ns, clock_now_ns(), f->emptied_ns, full};

                stats_add(&f->stats->front_end_frames,
                          matcher_deliver(f->matcher, &turn, f->core, f->buffer));
        }
        ros_set_collecting(f->core, collecting);
}
