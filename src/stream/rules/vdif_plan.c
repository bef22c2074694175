/* Collects what the first frames of a VDIF recording show. */
#include "vdif_plan.h"

#include <errno.h>
#include <string.h>

#include "base/util.h"

/* Frames of one thread after which the other threads have been seen, too, although a recording may begin
 * within a set of frames, or miss some. */
#define ENOUGH_FRAMES 8u

bool vdif_plan_read(const struct vdif_plan *p, const void *frame, size_t n, struct vdif_header *ret)
{
        return vdif_read(ret, frame, n) >= 0 && ret->frame_bytes == p->frame_bytes &&
               ret->header_bytes == p->header_bytes;
}

static struct vdif_plan_thread *thread_of(struct vdif_plan *p, const struct vdif_header *h, const void *frame)
{
        struct vdif_plan_thread *t = p->threads;

        while (t < p->threads + p->n_threads && t->thread != h->thread)
                t++;
        if (t == p->threads + p->n_threads) {
                p->n_threads++;
                t->thread = h->thread;
                t->frames = 0;
                memcpy(t->header, frame, h->header_bytes);
        }
        return t;
}

int vdif_plan_begin(struct vdif_plan *p, const void *frame, size_t n)
{
        struct vdif_header h;

        if (vdif_read(&h, frame, n) < 0)
                return -EBADMSG;
        memset(p, 0, sizeof *p);
        p->frame_bytes = h.frame_bytes;
        p->header_bytes = h.header_bytes;
        p->header_frames_per_second = vdif_frames_per_second(&h);
        /* Until a better one comes. */
        (void)thread_of(p, &h, frame);
        return 0;
}

bool vdif_plan_add(struct vdif_plan *p, const void *frame, size_t n)
{
        struct vdif_plan_thread *t;
        struct vdif_header h;

        if (!vdif_plan_read(p, frame, n, &h) || vdif_is_filler(&h))
                return true;
        if (p->frames == 0)
                p->n_threads = 0;
        t = thread_of(p, &h, frame);
        if (t->frames == ENOUGH_FRAMES)
                return false;
        t->frames++;
        p->frames++;
        p->most_frames = MAX(p->most_frames, t->frames);
        p->last_number = MAX(p->last_number, h.frame);
        return true;
}

uint32_t vdif_plan_frames_at_a_time(const struct vdif_plan *p)
{
        return p->frames == 0 ? 1 : (p->frames + p->most_frames - 1) / p->most_frames;
}
