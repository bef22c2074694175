/* Takes the places of src/sim/sim_front_ends.c and src/sim/sim_output.c: frames arrive at ROSs, and SFIs
 * write events. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/pattern.h"
#include "base/util.h"
#include "data/front_end.h"
#include "site_internal.h"
#include "site_joins.h"
#include "site_slices.h"

/* How long a ROS reads frames that have come before a reset of the counters. */
#define READ_NS (100 * NS_PER_MS)

static struct site_node *node_of(const struct sim *sim, const struct sim_node *n)
{
        return &site_of(sim)->nodes[n->number];
}

void site_nodes_make(struct site *s, struct site_node *n)
{
        struct sim_node *sim = n->sim;
        uint64_t wait_ns = s->config.timeout_ns / 2;

        s->processes++;
        if (sim->self->role == ROLE_DFM)
                return;
        sim->buffer = sim->buffer ?: malloc(s->config.buffer_bytes);
        assert(sim->buffer);
        n->frames = n->slices = 0;
        if (sim->self->role == ROLE_ROS) {
                site_slices_make(s, n, MIN(wait_ns, s->scenario.dfm.node_timeout_ns / 2));
                site_joins_make(s, n);
                return;
        }
        n->writing = n->writing ?: calloc(sim->n_slots, sizeof *n->writing);
        n->written_ns = n->written_ns ?: calloc(sim->n_slots, sizeof *n->written_ns);
        assert(n->writing && n->written_ns);
        n->n_writing = 0;
        n->written = 0;
        site_live_make(s, n);
}

/* ---- Boards ---- */

static void plan_frame(struct site *s, struct site_node *n)
{
        bool is_empty = n->first == n->n_arriving;

        sim_schedule(s->sim, n->sim, ITEM_BOX,
                     is_empty ? NEVER_NS : MAX(n->arriving[n->first].due_ns * PS_PER_NS, s->sim->now_ps));
}

void site_send_frame(struct site *s, uint32_t node, uint64_t number, uint64_t due_ns)
{
        struct site_node *n = &s->nodes[node];
        uint32_t i;

        if (n->n_arriving == n->size) {
                n->size = MAX(2 * n->size, 64u);
                n->arriving = realloc(n->arriving, n->size * sizeof *n->arriving);
                assert(n->arriving);
        }
        for (i = n->n_arriving++; i > n->first && n->arriving[i - 1].due_ns > due_ns; i--)
                n->arriving[i] = n->arriving[i - 1];
        n->arriving[i] = (struct site_frame){due_ns, number};
        if (i == n->first)
                plan_frame(s, n);
}

/* As its unit does, a ROS or SFI whose run is over starts anew. */
static bool is_refused(const struct site_node *n)
{
        const struct sim_node *sim = n->sim;

        if (!sim->is_live || sim->self->role == ROLE_DFM)
                return false;
        return (sim->self->role == ROLE_ROS ? ros_member(sim->ros) : sfi_member(sim->sfi))->refusal ==
               WELCOME_OVER;
}

static void return_refused(struct site *s, struct site_node *n)
{
        if (is_refused(n))
                sim_schedule(s->sim, n->sim, ITEM_BOX, s->sim->now_ps + 1);
}

void sim_box_turn(struct sim *sim, struct sim_node *node)
{
        struct site *s = site_of(sim);
        struct site_node *n = node_of(sim, node);

        if (is_refused(n))
                site_start(s, n);
        if (n->first < n->n_arriving && n->arriving[n->first].due_ns <= sim_now_ns(sim)) {
                site_boards_deliver(s, n, n->arriving[n->first++].number);
                sim_wake(sim, node, sim->now_ps);
        }
        plan_frame(s, n);
}

int sim_front_ends_check(const struct scenario *s, struct error *e)
{
        (void)s;
        (void)e;
        return 0;
}

void sim_box_offer(struct sim *sim, struct sim_node *dfm)
{
        (void)sim;
        (void)dfm;
}

/* Triggers that a DFM had accepted, and of which its successor did not learn. */
void sim_box_follow(struct sim *sim, const struct sim_node *dfm)
{
        struct site *s = site_of(sim);

        if (!s->resumes || !dfm_has_begun(dfm->dfm))
                return;
        s->forgotten += s->triggers - MIN(s->triggers, dfm_counts(dfm->dfm)->triggers);
        s->resumes = false;
}

/* As data/front_end.c does it. */
static bool reads_before_reset(const struct site *s, struct site_node *n)
{
        uint64_t mark = ros_reads_first(n->sim->ros), now_ns = site_now_ns(s);

        if (mark != n->mark)
                n->marked_ns = now_ns;
        n->mark = mark;
        return mark > 1 && now_ns <= n->full_ns && now_ns < n->marked_ns + READ_NS;
}

/* As node/role_ros.c does it. */
static void record_silence(const struct site *s, struct ros *ros)
{
        uint64_t hungry_ns = ros_hungry_since_ns(ros),
                 limit_ns = EVB_SILENT_KEEP_ALIVES * s->scenario.dfm.keep_alive_ns;
        bool silent = hungry_ns > 0 && site_now_ns(s) - hungry_ns >= limit_ns;

        ros_set_obstacle(ros, &(struct node_obstacle){.reason = silent ? REASON_SILENT : REASON_NONE,
                                                      .since_ns = hungry_ns});
}

void sim_front_end_turn(struct sim *sim, struct sim_node *node)
{
        struct site *s = site_of(sim);
        struct site_node *n = node_of(sim, node);

        return_refused(s, n);
        if (!scenario_has_front_end(node->self))
                return;
        site_slices_turn(s, n);
        site_joins_turn(s, n);
        ros_set_reading(node->ros, reads_before_reset(s, n));
        ros_expire(node->ros, site_now_ns(s));
        if (n->slicer)
                record_silence(s, node->ros);
}

uint64_t sim_front_end_deadline_ns(const struct sim *sim, const struct sim_node *node)
{
        const struct site *s = site_of(sim);
        const struct site_node *n = node_of(sim, node);
        uint64_t ns = MIN(site_slices_deadline_ns(s, n), site_joins_deadline_ns(s, n));

        return n->full_ns >= site_now_ns(s) ? MIN(ns, n->full_ns + 1) : ns;
}

/* As in role_ros.c: this is reported to the DFM even if this ROS dies after the end. */
void sim_front_end_record_short(struct sim *sim, struct sim_node *node)
{
        static struct node_stats stats;
        const struct site_node *n = node_of(sim, node);
        const struct ros_counts *c = ros_counts(node->ros);
        struct reasons reasons = {};

        if (!scenario_has_front_end(node->self))
                return;
        if (n->slicer)
                slicer_account(n->slicer, node->ros, &stats);
        else
                front_end_discard_reasons(node->ros, &reasons);
        if (n->joiner)
                joiner_reasons(n->joiner, node->ros, &reasons);
        ros_set_short(
                node->ros,
                reasons.n + c->dropped + c->restarts > 0 ||
                        (n->slicer &&
                         stats_get(&stats.slice_frames_late) + stats_get(&stats.slice_frames_dropped) > 0));
}

/* ---- Disks ---- */

static bool is_right(const struct site *s, const struct sim_node *sfi, uint32_t ros, uint32_t l1_id,
                     const struct sfi_fragment *f)
{
        struct ros_fragment made;

        source_describe(s->nodes[1 + ros].sim->source, 0, l1_id, &made);
        return f->bytes == made.bytes &&
               (f->bytes == 0 || pattern_check(pattern_key(s->scenario.run.seed, ros, l1_id),
                                               sfi->buffer + f->at, 0, f->bytes) == f->bytes);
}

static void look_at_fragment(struct site *s, struct site_node *n, const struct sfi_built *built, uint32_t ros,
                             uint64_t trigger, struct site_event *event)
{
        const struct sfi_fragment *f = &built->fragments[ros];
        bool joins = s->config.boards.joins.frames > 0, slices = s->config.slices.slice_ns > 0,
             there = f->whole &&
                     (f->status == FRAGMENT_OK || ((joins || slices) && f->status == FRAGMENT_TRUNCATED));

        if (s->config.boards.bits > 0)
                event->present |= (uint16_t)(there << ros);
        assert(there || built->end != EVENT_COMPLETE);
        if (there && joins)
                site_joins_look(s, n, f, ros, trigger);
        else if (there && !slices &&
                 !is_right(s, n->sim, ros, s->config.boards.bits > 0 ? (uint32_t)trigger : built->info.l1_id,
                           f))
                s->wrong_bytes++;
}

/* Checks the written event independently of the SFI. */
static void look_at_event(struct site *s, struct site_node *n, uint32_t slot, bool is_lost)
{
        struct sfi_built built;
        struct site_event *event;
        uint64_t trigger;

        sfi_built_event(n->sim->sfi, slot, &built);
        built.end = is_lost ? EVENT_LOST : built.end;
        sim_ends_record(s->sim, n->sim, &built);
        sim_coverage_clear(s->sim, n->sim, &n->sim->slots[slot]);
        if (built.end == EVENT_LOST)
                return;
        if (s->config.slices.slice_ns > 0)
                site_slices_look(s, n, &built);
        trigger = site_boards_trigger(s, &built);
        assert(trigger < s->config.events);
        event = &s->events[trigger + (site_boards_is_lie(s, built.info.global_id) ? s->config.events : 0)];
        n->written++;
        s->wrong_decisions += s->config.level2 && !site_accepts(s, built.event);
        event->complete += built.end == EVENT_COMPLETE;
        event->partial += built.end == EVENT_PARTIAL;
        for (uint32_t i = 0; i < s->config.n_ros; i++)
                look_at_fragment(s, n, &built, i, trigger, event);
}

static void end_event(struct site *s, struct site_node *n, uint32_t slot, bool is_lost)
{
        look_at_event(s, n, slot, is_lost);
        sfi_written(n->sim->sfi, site_now_ns(s), slot, is_lost);
}

/* Writes the event whose turn it is. False: it waits, and so do the others. */
static bool write_event(struct site *s, struct site_node *n, uint32_t slot)
{
        enum site_live_offer offer = n->consumers ? site_live_offer(s, n, slot) : SITE_LIVE_WRITTEN;

        if (offer == SITE_LIVE_WRITTEN || offer == SITE_LIVE_LOST)
                end_event(s, n, slot, offer == SITE_LIVE_LOST);
        return offer != SITE_LIVE_WAITS;
}

/* Events that consumers had to acknowledge. */
static void end_held(struct site *s, struct site_node *n)
{
        bool is_written;

        for (uint32_t slot; (slot = site_live_collect(s, n, &is_written)) != UINT32_MAX;)
                end_event(s, n, slot, !is_written);
}

static void begin_writing(struct site *s, struct site_node *n, uint32_t slot)
{
        uint64_t now_ns = site_now_ns(s),
                 from_ns = n->n_writing > 0 ? MAX(now_ns, n->written_ns[n->n_writing - 1]) : now_ns;

        if (from_ns >= s->config.stall_from_ns && from_ns < s->config.stall_until_ns)
                from_ns = s->config.stall_until_ns;
        n->writing[n->n_writing] = slot;
        n->written_ns[n->n_writing++] = from_ns + s->config.write_ns;
}

void sim_output_turn(struct sim *sim, struct sim_node *node)
{
        struct site *s = site_of(sim);
        struct site_node *n = node_of(sim, node);
        uint32_t slots[64], done = 0;
        size_t k = sfi_pop_built(node->sfi, slots, ARRAY_SIZE(slots));

        return_refused(s, n);
        site_live_act(s, site_now_ns(s));
        for (size_t i = 0; i < k; i++)
                begin_writing(s, n, slots[i]);
        if (n->consumers)
                end_held(s, n);
        while (done < n->n_writing && n->written_ns[done] <= site_now_ns(s) &&
               write_event(s, n, n->writing[done]))
                done++;
        n->n_writing -= done;
        memmove(n->writing, n->writing + done, n->n_writing * sizeof *n->writing);
        memmove(n->written_ns, n->written_ns + done, n->n_writing * sizeof *n->written_ns);
}

uint64_t sim_output_deadline_ns(const struct sim *sim, const struct sim_node *node)
{
        const struct site *s = site_of(sim);
        const struct site_node *n = node_of(sim, node);
        uint64_t ns = n->consumers ? site_live_deadline_ns(s, n) : NEVER_NS;

        return n->n_writing > 0 && n->written_ns[0] > site_now_ns(s) ? MIN(ns, n->written_ns[0]) : ns;
}

bool sim_output_close(struct sim *sim, struct sim_node *node)
{
        struct site_node *n = node_of(sim, node);

        return !n->consumers || site_live_is_sealed(site_of(sim), n);
}
