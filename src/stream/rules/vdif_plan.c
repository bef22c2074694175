/* Predicts VDIF headers from frames that arrived, so that a gap in the sequence becomes frames at their place
 * on the time axis. */
#include "vdif_plan.h"

#include <errno.h>
#include <string.h>

#include "evb/base/util.h"

/* Returns n_threads if the plan does not have the thread. */
static uint32_t position_of(const struct vdif_plan *p, uint32_t thread)
{
        uint32_t i = 0;

        while (i < p->n_threads && p->threads[i].thread != thread)
                i++;
        return i;
}

static bool read_frame(const struct vdif_plan *p, const void *frame, size_t n, struct vdif_header *ret)
{
        return vdif_read(ret, frame, n) >= 0 && ret->frame_bytes == p->frame_bytes &&
               ret->header_bytes == p->header_bytes;
}

static void add_thread(struct vdif_plan *p, const struct vdif_header *h, const void *frame)
{
        struct vdif_plan_thread *t = &p->threads[p->n_threads++];

        *t = (struct vdif_plan_thread){.thread = h->thread};
        memcpy(t->header, frame, h->header_bytes);
}

int vdif_plan_begin(struct vdif_plan *p, const void *frame, size_t n)
{
        struct vdif_header h;

        if (vdif_read(&h, frame, n) < 0)
                return -EBADMSG;
        *p = (struct vdif_plan){
                .frame_bytes = h.frame_bytes,
                .header_bytes = h.header_bytes,
                .frames_per_second = vdif_frames_per_second(&h),
                .seconds = h.seconds,
                .frame = h.frame,
        };
        add_thread(p, &h, frame);
        return 0;
}

bool vdif_plan_add(struct vdif_plan *p, const void *frame, size_t n)
{
        struct vdif_header h;

        if (!read_frame(p, frame, n, &h) || position_of(p, h.thread) < p->n_threads ||
            p->n_threads == VDIF_PLAN_THREADS_MAX)
                return false;
        add_thread(p, &h, frame);
        return true;
}

/* Numbers start over with each second. */
static void learn_frames_per_second(struct vdif_plan *p, uint64_t sequence, const struct vdif_header *h)
{
        int64_t frames = (int64_t)(sequence - p->sequence) + p->position - position_of(p, h->thread), passed,
                seconds = (int64_t)h->seconds - p->seconds;

        if (p->frames_per_second > 0 || sequence <= p->sequence || seconds <= 0 || frames % p->n_threads != 0)
                return;
        passed = p->frame + frames / p->n_threads - h->frame;
        if (passed % seconds == 0 && passed / seconds > MAX(p->frame, h->frame) &&
            passed / seconds <= VDIF_FRAMES_PER_SECOND_MAX)
                p->frames_per_second = (uint32_t)(passed / seconds);
}

bool vdif_plan_takes(struct vdif_plan *p, uint64_t sequence, const void *frame, size_t n)
{
        struct vdif_header h;

        if (!read_frame(p, frame, n, &h) || position_of(p, h.thread) == p->n_threads)
                return false;
        learn_frames_per_second(p, sequence, &h);
        return true;
}

void vdif_plan_note(struct vdif_plan *p, uint64_t sequence, const void *frame)
{
        struct vdif_header h;

        if (vdif_read(&h, frame, p->header_bytes) < 0)
                return;
        p->sequence = sequence;
        p->seconds = h.seconds;
        p->frame = h.frame;
        p->position = position_of(p, h.thread);
}

/* Division that rounds down. */
static int64_t divide(int64_t a, int64_t b, int64_t *ret_rest)
{
        int64_t quotient = a / b, rest = a % b;

        if (rest < 0) {
                rest += b;
                quotient--;
        }
        *ret_rest = rest;
        return quotient;
}

void vdif_plan_fill(const struct vdif_plan *p, uint64_t sequence, void *frame)
{
        int64_t position, number,
                seconds = p->seconds,
                sets = divide((int64_t)(sequence - p->sequence) + p->position, p->n_threads, &position);

        number = p->frame + sets;
        if (p->frames_per_second > 0)
                seconds += divide(number, p->frames_per_second, &number);
        memcpy(frame, p->threads[position].header, p->header_bytes);
        vdif_set_time(frame, (uint32_t)seconds, number > 0 ? (uint32_t)number : 0);
        vdif_set_invalid(frame, true);
}
