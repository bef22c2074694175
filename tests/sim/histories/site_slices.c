/* Boards whose frames ("hits") carry times, and the slicers that collect them for their ROSs. Each hit in an
 * event is checked: it is in the slice of its time, or in the overlap before it, and in one slice only. */
#include "site_slices.h"

#include <assert.h>
#include <endian.h>
#include <stdlib.h>
#include <string.h>

#include "base/util.h"
#include "data/slicer.h"
#include "site_internal.h"

#define SLICER_BYTES (2 * (uint64_t)EVB_FRAGMENT_MAX_BYTES)
#define SLICER_FRAMES 100000u
/* As front_end.c looks again at what was due and found no room. */
#define AGAIN_NS NS_PER_MS

struct payload {
        uint64_t ros, hit, time_ns;
};

void site_slices_begin(struct site *s)
{
        const struct site_slices *c = &s->config.slices;
        struct site_hit hit;

        for (uint32_t i = 0; c->slice_ns > 0 && i < s->config.n_ros; i++) {
                struct site_node *n = &s->nodes[1 + i];

                for (n->hits = 0; c->hit(c->ctx, i, n->hits, &hit); n->hits++)
                        site_send_frame(s, 1 + i, n->hits, hit.sent_ns);
                n->built = calloc(MAX(n->hits, UINT64_C(1)), 1);
                n->copied = calloc(MAX(n->hits, UINT64_C(1)), 1);
                assert(n->built && n->copied);
        }
}

void site_slices_make(struct site *s, struct site_node *n, uint64_t wait_ns)
{
        const struct site_slices *c = &s->config.slices;
        struct slicer_config config = {
                .slice_ns = c->slice_ns,
                .overlap_ns = c->overlap_ns,
                .window_ns = s->config.boards.window_ns,
                .tick_ns = 1,
                .bits = 64,
                .frames_max = SLICER_FRAMES,
                .buffer_bytes = SLICER_BYTES,
                .idle_max_ns = wait_ns,
        };

        n->slicer = slicer_free(n->slicer);
        if (c->slice_ns > 0)
                assert(slicer_new(&n->slicer, &config) == 0);
}

void site_slices_deliver(struct site *s, struct site_node *n, uint64_t hit)
{
        const struct site_slices *c = &s->config.slices;
        struct site_hit h;
        struct payload p;
        uint8_t *to;

        if (!site_is_live(n))
                return;
        assert(c->hit(c->ctx, site_index(n), hit, &h));
        p = (struct payload){site_index(n), hit, h.time_ns};
        n->frames++;
        n->hit_ns = site_now_ns(s);
        switch (slicer_arrive(n->slicer, site_now_ns(s), &h.time_ns, sizeof p, &to)) {
        case ROS_FULL:
                slicer_skip(n->slicer);
                return;
        case ROS_STORE:
                memcpy(to, &p, sizeof p);
                break;
        case ROS_DISCARD:
                break;
        }
        slicer_commit(n->slicer, site_now_ns(s));
}

void site_slices_turn(struct site *s, struct site_node *n)
{
        /* Other frames may have arrived in this instant. */
        bool idle = site_now_ns(s) > n->hit_ns;

        if (!n->slicer)
                return;
        n->slices += slicer_deliver(n->slicer, site_now_ns(s), idle, false, n->sim->ros, n->sim->buffer);
        ros_set_collecting(n->sim->ros, slicer_is_collecting(n->slicer));
}

uint64_t site_slices_deadline_ns(const struct site *s, const struct site_node *n)
{
        if (!n->slicer)
                return NEVER_NS;
        return site_now_ns(s) == n->hit_ns ? site_now_ns(s) + 1
                                           : MAX(slicer_deadline_ns(n->slicer), site_now_ns(s) + AGAIN_NS);
}

/* False: the hit cannot be in this event. */
static bool receive_hit(struct site *s, uint32_t ros, uint64_t slice, const struct payload *p)
{
        const struct site_slices *c = &s->config.slices;
        struct site_node *n = &s->nodes[1 + ros];

        if (p->ros != ros || p->hit >= n->hits)
                return false;
        /* A DFM or an SFI that is replaced may have the event built again. */
        if (p->time_ns / c->slice_ns == slice) {
                n->hits_built += !n->built[p->hit];
                return n->built[p->hit] = true;
        }
        n->hits_copied += !n->copied[p->hit];
        n->copied[p->hit] = true;
        return p->time_ns / c->slice_ns + 1 == slice && p->time_ns + c->overlap_ns >= slice * c->slice_ns;
}

void site_slices_look(struct site *s, const struct site_node *sfi, const struct sfi_built *built)
{
        struct payload p;

        for (uint32_t i = 0; i < s->config.n_ros; i++) {
                const struct sfi_fragment *f = &built->fragments[i];
                uint32_t bytes = f->whole ? f->bytes : 0; /* 0 unless FRAGMENT_OK or _TRUNCATED */

                for (uint32_t at = 0; at < bytes; at += 4 + (uint32_t)sizeof p) {
                        uint32_t length;

                        assert(bytes - at >= 4 + sizeof p);
                        memcpy(&length, sfi->sim->buffer + f->at + at, sizeof length);
                        memcpy(&p, sfi->sim->buffer + f->at + at + 4, sizeof p);
                        s->wrong_bytes +=
                                le32toh(length) != sizeof p || !receive_hit(s, i, built->info.global_id, &p);
                }
        }
}

struct site_hits site_hits(const struct site *s, uint32_t ros)
{
        const struct site_node *n = &s->nodes[1 + ros];

        return (struct site_hits){.sent = n->hits,
                                  .read = n->frames,
                                  .built = n->hits_built,
                                  .copied = n->hits_copied,
                                  .slices = n->slices};
}

bool site_hit_is_built(const struct site *s, uint32_t ros, uint64_t hit)
{
        return s->nodes[1 + ros].built[hit];
}

const struct slicer *site_slicer(const struct site *s, uint32_t ros)
{
        return s->nodes[1 + ros].slicer;
}
