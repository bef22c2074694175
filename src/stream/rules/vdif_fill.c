/* Predicts VDIF frames from the preceding frames. */
#include "vdif_fill.h"

#include <errno.h>
#include <string.h>

#include "base/util.h"

/* Number of frames before a place that are compared, and maximum number of comparisons for a lost frame. Only
 * frames without any order would need more, and more would not help them. */
#define CONTEXT 32u
#define COMPARISONS_MAX 256u
/* Invalid headers may lead to times far from any recording, but not to an overflow. */
#define FRAME_MAX (INT64_C(1) << 56)

static struct vdif_fill_frame *at(const struct vdif_fill *f, int64_t i)
{
        return (struct vdif_fill_frame *)&f->history[(uint64_t)i % VDIF_FILL_HISTORY];
}

/* An unknown rate counts as a very long second, so that frames of one second are comparable. */
static int64_t rate_of(const struct vdif_fill *f)
{
        return f->frames_per_second > 0 ? f->frames_per_second : VDIF_FRAMES_PER_SECOND_MAX;
}

/* Returns the number of frames of a thread from a to b. */
static int64_t step(const struct vdif_fill *f, const struct vdif_fill_frame *a,
                    const struct vdif_fill_frame *b)
{
        return (b->seconds - a->seconds) * rate_of(f) + b->frame - a->frame;
}

/* Returns the number of frames before q that match those before p. */
static uint32_t likeness(const struct vdif_fill *f, int64_t q, int64_t p, uint32_t *comparisons)
{
        uint32_t n = 0;

        for (int64_t k = 1; k <= CONTEXT && q - k >= f->oldest; k++, ++*comparisons) {
                const struct vdif_fill_frame *a = at(f, q - k), *b = at(f, p - k);

                if (!a->sure || !b->sure)
                        continue;
                if (a->thread != b->thread || step(f, a, at(f, q)) != step(f, b, at(f, p)))
                        break;
                n++;
        }
        return n;
}

/* Whether the same frame follows both places. */
static bool same_follows(const struct vdif_fill *f, int64_t a, int64_t b)
{
        return at(f, a + 1)->thread == at(f, b + 1)->thread &&
               step(f, at(f, a), at(f, a + 1)) == step(f, at(f, b), at(f, b + 1));
}

/* Returns the place that matches the last place best and that a frame follows. Among equally good places,
 * returns one of the majority, because a time gap in the recording is not a rule. Returns the last place if
 * no other place matches. */
static int64_t find_alike(const struct vdif_fill *f)
{
        int64_t p = f->next - 1, best = p;
        uint32_t most = 0, comparisons = 0, votes = 0, thread = at(f, p)->thread;

        for (int64_t q = p - 1; q >= f->oldest && comparisons < COMPARISONS_MAX && most < CONTEXT; q--) {
                uint32_t n;

                if (at(f, q)->thread != thread || !at(f, q)->sure || !at(f, q + 1)->sure)
                        continue;
                n = likeness(f, q, p, &comparisons);
                comparisons++;
                if (best == p || n > most || (n == most && votes == 0)) {
                        best = q;
                        most = n;
                        votes = 1;
                } else if (n == most)
                        votes += same_follows(f, best, q) ? 1 : -1;
        }
        return best;
}

/* Division that rounds down. */
static int64_t divide(int64_t a, int64_t b, int64_t *ret_rest)
{
        int64_t rest = a % b;

        *ret_rest = rest < 0 ? rest + b : rest;
        return a / b - (rest < 0);
}

static struct vdif_fill_frame predict(const struct vdif_fill *f)
{
        int64_t p = f->next - 1, q = find_alike(f);
        struct vdif_fill_frame next = *at(f, p);

        if (q == p) {
                next.sure = false;
                return next;
        }
        next.thread = at(f, q + 1)->thread;
        next.frame += step(f, at(f, q), at(f, q + 1));
        next.frame = MAX(MIN(next.frame, FRAME_MAX), -FRAME_MAX);
        if (f->frames_per_second == 0)
                next.seconds += divide(next.frame, rate_of(f), &next.frame);
        memcpy(next.header, at(f, q + 1)->header, sizeof next.header);
        return next;
}

static void add(struct vdif_fill *f, const struct vdif_fill_frame *frame)
{
        *at(f, f->next++) = *frame;
        f->oldest = MAX(f->oldest, f->next - (int64_t)VDIF_FILL_HISTORY);
}

void vdif_fill_begin(struct vdif_fill *f, const struct vdif_plan *plan)
{
        memset(f, 0, sizeof *f);
        f->plan = plan;
        f->frames_per_second = plan->frames_per_second;
        f->next = f->oldest = -2 * (int64_t)plan->n_threads;
        /* Examines one frame of each thread, twice. */
        for (int set = 2; set > 0; set--) {
                for (uint32_t i = 0; i < plan->n_threads; i++) {
                        struct vdif_fill_frame frame = {.thread = plan->threads[i].thread, .sure = true};
                        struct vdif_header h = {};

                        (void)vdif_read(&h, plan->threads[i].header, plan->header_bytes);
                        frame.seconds = h.seconds;
                        frame.frame = (int64_t)h.frame - set;
                        memcpy(frame.header, plan->threads[i].header, sizeof frame.header);
                        add(f, &frame);
                }
        }
}

/* Numbers restart with each second. Compares the number that a frame would have if no second had begun with
 * its actual number. A rate that the sender read only from a header has less weight than consecutive
 * frames. */
static void learn_rate(struct vdif_fill *f, const struct vdif_fill_frame *expected,
                       const struct vdif_header *h)
{
        int64_t seconds = (int64_t)h->seconds - expected->seconds, frames = expected->frame - h->frame, rate;

        if (f->confirmed || !expected->sure || expected->thread != h->thread || seconds <= 0 ||
            frames % seconds != 0)
                return;
        rate = frames / seconds;
        if (rate <= f->last_number || rate >= VDIF_FRAMES_PER_SECOND_MAX)
                return;
        if (f->frames_per_second > 0 && rate != f->frames_per_second &&
            (f->run > 0 || seconds > 1 || h->frame > 0 || rate != (int64_t)f->last_number + 1))
                return;
        f->frames_per_second = (uint32_t)rate;
        f->confirmed = true;
}

/* A frame shows whether the unknown frames before it were predicted well. */
static void end_run(struct vdif_fill *f, bool good)
{
        if (!good) {
                for (int64_t i = f->next - MIN((int64_t)f->run, (int64_t)VDIF_FILL_HISTORY); i < f->next;
                     i++) {
                        at(f, i)->sure = false;
                }
                f->unsure += f->run_lost;
        }
        f->run = f->run_lost = 0;
}

static bool is_as(const struct vdif_fill *f, const struct vdif_fill_frame *expected,
                  const struct vdif_fill_frame *frame)
{
        return expected->sure && expected->thread == frame->thread && step(f, expected, frame) == 0;
}

/* A number that follows the last number is not the result of a bit error. */
static void accept_number(struct vdif_fill *f, const struct vdif_header *h)
{
        const struct vdif_fill_frame *last = at(f, f->next - 1);

        if (f->confirmed || h->seconds != last->seconds || h->frame > last->frame + 1)
                return;
        f->last_number = MAX(f->last_number, h->frame);
        if (h->frame >= f->frames_per_second)
                f->frames_per_second = 0;
}

void vdif_fill_record(struct vdif_fill *f, const void *frame)
{
        struct vdif_fill_frame expected, arrived;
        struct vdif_header h;

        if (!vdif_plan_read(f->plan, frame, f->plan->frame_bytes, &h) || vdif_is_filler(&h)) {
                expected = predict(f);
                add(f, &expected);
                f->run++;
                return;
        }
        arrived = (struct vdif_fill_frame){
                .seconds = h.seconds, .frame = h.frame, .thread = h.thread, .sure = true};
        memcpy(arrived.header, frame, h.header_bytes);
        accept_number(f, &h);
        if (f->run > 0 || (!f->confirmed && arrived.seconds != at(f, f->next - 1)->seconds)) {
                expected = predict(f);
                learn_rate(f, &expected, &h);
                end_run(f, is_as(f, &expected, &arrived));
        }
        add(f, &arrived);
}

void vdif_fill_look_ahead(struct vdif_fill *f, uint64_t n, const void *frame)
{
        struct vdif_fill_frame expected;
        struct vdif_header h;
        int64_t next = f->next;

        if (f->frames_per_second > 0 || n >= VDIF_FILL_HISTORY / 2 ||
            !vdif_plan_read(f->plan, frame, f->plan->frame_bytes, &h) || vdif_is_filler(&h) ||
            h.seconds == at(f, next - 1)->seconds)
                return;
        for (uint64_t i = 0; i < n; i++) {
                expected = predict(f);
                add(f, &expected);
        }
        expected = predict(f);
        learn_rate(f, &expected, &h);
        f->next = next;
}

void vdif_fill_make(struct vdif_fill *f, void *frame)
{
        struct vdif_fill_frame lost = predict(f);
        int64_t number = lost.frame, seconds = lost.seconds;

        if (f->frames_per_second > 0)
                seconds += divide(lost.frame, f->frames_per_second, &number);
        memcpy(frame, lost.header, f->plan->header_bytes);
        vdif_set_time(frame, (uint32_t)seconds, number > 0 ? (uint32_t)number : 0);
        vdif_set_invalid(frame, true);
        f->run++;
        f->run_lost += lost.sure;
        f->unsure += !lost.sure;
        add(f, &lost);
}

/* Collects the properties that the first frames of a VDIF recording show. */

/* After this number of frames of one thread, all other threads have appeared, although a recording may begin
 * within a set of frames, or may not contain some frames. */
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
        /* Used until a better frame is found. */
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

static uint32_t frames_per_second(const struct vdif_missing *m, const struct vdif_plan *plan)
{
        return MAX(m->last_number + 1, plan->header_frames_per_second);
}

/* A frame that is not later than the latest one: it was counted as missing, unless it is a copy. Whether a
 * much older one is a copy is unknown, so it hides no loss. */
static void record_old(struct vdif_missing *m, struct vdif_thread_seen *t, int64_t back)
{
        const bool near = back <= 64;

        if (near && (back == 0 || t->recent >> (back - 1) & 1)) {
                m->duplicate++;
                return;
        }
        if (near)
                t->recent |= UINT64_C(1) << (back - 1);
        m->frames -= near;
        m->out_of_order++;
}

void vdif_missing_record(struct vdif_missing *m, const struct vdif_plan *plan, const void *frame)
{
        struct vdif_thread_seen *t;
        struct vdif_header h;
        int64_t step;

        if (!vdif_plan_read(plan, frame, plan->frame_bytes, &h) || vdif_is_filler(&h))
                return;
        t = &m->threads[h.thread];
        m->last_number = MAX(m->last_number, h.frame);
        step = ((int64_t)h.seconds - t->seconds) * frames_per_second(m, plan) + h.frame - t->frame;
        /* Frames before the first one are not missing. */
        if (!t->known)
                t->recent = UINT64_MAX;
        else if (step <= 0) {
                record_old(m, t, -step);
                return;
        } else {
                m->seconds += h.seconds - t->seconds;
                m->frames += (int64_t)h.frame - t->frame - 1;
                t->recent =
                        (step < 64 ? t->recent << step : 0) | (step <= 64 ? UINT64_C(1) << (step - 1) : 0);
        }
        t->known = true;
        t->seconds = h.seconds;
        t->frame = h.frame;
}

uint64_t vdif_missing_frames(const struct vdif_missing *m, const struct vdif_plan *plan)
{
        const int64_t n = (int64_t)(m->seconds * frames_per_second(m, plan)) + m->frames;

        return n > 0 ? (uint64_t)n : 0;
}

static bool read_time(const struct vdif_plan *plan, const void *frame, int64_t *ret_s)
{
        struct vdif_header h;

        if (!vdif_plan_read(plan, frame, plan->frame_bytes, &h) || h.invalid)
                return false;
        *ret_s = vdif_unix_s(&h);
        return true;
}

static bool ends_scan(const struct vdif_scan *s, const struct vdif_plan *plan, const void *frame,
                      int64_t *ret_s)
{
        return s->each_s > 0 && read_time(plan, frame, ret_s) && *ret_s >= s->end_s;
}

bool vdif_scan_is_due(const struct vdif_scan *s, const struct vdif_plan *plan, const void *frame,
                      const void *next, int64_t *ret_s)
{
        int64_t next_s;

        if (!ends_scan(s, plan, frame, ret_s))
                return false;
        if (*ret_s - s->last_s <= 1)
                return true;
        return next && ends_scan(s, plan, next, &next_s) && next_s - *ret_s <= 1 && *ret_s - next_s <= 1;
}

bool vdif_scan_needs_next(const struct vdif_scan *s, const struct vdif_plan *plan, const void *frame)
{
        int64_t now_s;

        return ends_scan(s, plan, frame, &now_s) && now_s - s->last_s > 1;
}

void vdif_scan_begin(struct vdif_scan *s, int64_t now_s)
{
        s->end_s = now_s - now_s % s->each_s + s->each_s;
        s->last_s = now_s;
}

void vdif_scan_record(struct vdif_scan *s, const struct vdif_plan *plan, const void *frame)
{
        if (s->each_s == 0 || !read_time(plan, frame, &s->last_s))
                return;
        s->unconfirmed += s->last_s >= s->end_s;
}
