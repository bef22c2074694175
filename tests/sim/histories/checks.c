/* Checks that hold after each history, whatever its faults (docs/reliability.md). The outputs of the SFIs,
 * the decisions of the farm and the triggers of the box are those of the simulated system, not the cores'
 * reports of them. */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/util.h"
#include "history.h"

void history_violate(struct history *h, const char *format, ...)
{
        va_list args;

        if (h->violation[0])
                return;
        h->kind = format;
        va_start(args, format);
        vsnprintf(h->violation, sizeof h->violation, format, args);
        va_end(args);
}

/* Number of events by what the SFIs wrote. */
struct outputs {
        uint64_t complete;      /* at least once with all fragments */
        uint64_t partial;       /* only without some */
        uint64_t twice, copies; /* written more than once; how often in addition to the first time */
};

static struct outputs read_outputs(const struct history *h)
{
        struct outputs o = {};

        for (uint64_t e = 0; e < 2 * h->config.events; e++) {
                const struct site_event *event = site_event(h->site, e);
                unsigned times = event->complete + event->partial;

                o.complete += event->complete > 0;
                o.partial += event->complete == 0 && event->partial > 0;
                o.twice += times > 1;
                o.copies += times > 1 ? times - 1 : 0;
        }
        return o;
}

/* From the first written event to behind the last one. */
struct range {
        uint64_t from, until;
};

static struct range range_of_events(const struct history *h)
{
        struct range r = {h->config.events, 0};

        for (uint64_t e = 0; e < h->config.events; e++) {
                if (site_event(h->site, e)->complete + site_event(h->site, e)->partial == 0)
                        continue;
                r.from = MIN(r.from, e);
                r.until = e + 1;
        }
        return r;
}

static uint64_t rejected_by_farm(const struct history *h, uint64_t triggers)
{
        uint64_t n = 0;

        for (uint64_t e = 0; h->config.level2 && e < triggers; e++)
                n += !site_accepts(h->site, e);
        return n;
}

static void check_sums(struct history *h, const struct dfm_counts *d)
{
        uint64_t ends = d->complete + d->partial + d->lost + d->rejected,
                 expected = (d->triggers - d->rejected) * h->config.n_ros,
                 fragments = d->fragments_received + d->fragments_lost + d->fragments_absent;

        if (d->triggers != ends)
                history_violate(h, "%" PRIu64 " triggers, but %" PRIu64 " ends", d->triggers, ends);
        if (d->fragments_expected != expected || expected != fragments)
                history_violate(h,
                                "%" PRIu64 " fragments expected, %" PRIu64 " by the triggers, %" PRIu64
                                " accounted for",
                                d->fragments_expected, expected, fragments);
}

/* If frames make the triggers, and the boards begin to count again or their times go back, numbers that were
 * events before may become events again. A ROS that was replaced no longer counts what it saw of this. */
static uint64_t repeated_numbers(const struct history *h, const struct outputs *o)
{
        bool frames_lead = h->config.boards.free > 0 || h->config.slices.slice_ns > 0;
        uint64_t restarts = frames_lead ? dfm_counts(site_dfm(h->site))->offered.resets : 0;

        for (uint32_t i = 0; frames_lead && i < h->config.n_ros; i++)
                restarts += ros_counts(site_ros(h->site, i))->restarts;
        return restarts > 0 ? o->copies : 0;
}

/* Whether the DFM learned of each event that an SFI built. */
static bool knows_outputs(const struct history *h)
{
        for (uint32_t i = 0; i < h->config.n_sfi; i++) {
                if (sfi_unacknowledged(site_sfi(h->site, i)) > 0)
                        return false;
        }
        return !h->has_deaths;
}

/* Every event that counts as built is in a file, and the others are in none. One that is there twice is a
 * reason for status 1. */
static void check_outputs(struct history *h, const struct dfm_counts *d, const struct outputs *o)
{
        uint64_t again = repeated_numbers(h, o);

        if (d->complete > o->complete + again)
                history_violate(h, "%" PRIu64 " events count as complete, but the files hold %" PRIu64,
                                d->complete, o->complete);
        if (d->complete + d->partial > o->complete + o->partial + again)
                history_violate(h, "%" PRIu64 " events count as built, but the files hold %" PRIu64,
                                d->complete + d->partial, o->complete + o->partial);
        if (knows_outputs(h) && d->complete + d->partial + again < o->complete + o->partial)
                history_violate(
                        h, "%" PRIu64 " events count as built, but the files hold %" PRIu64 " others too",
                        d->complete + d->partial, o->complete + o->partial - d->complete - d->partial);
        if (site_wrong_decisions(h->site) > 0)
                history_violate(h, "%" PRIu64 " events are in files that level 2 rejected",
                                site_wrong_decisions(h->site));
        if (site_wrong_bytes(h->site) > 0)
                history_violate(h, "%" PRIu64 " fragments have bytes of others", site_wrong_bytes(h->site));
        if (site_short_joins(h->site) > 0)
                history_violate(h, "%" PRIu64 " fragments lack frames, and pass as whole",
                                site_short_joins(h->site));
}

/* No decision times out here, so only what the farm rejects is rejected. */
static void check_decisions(struct history *h, const struct dfm_counts *d)
{
        uint64_t rejected = rejected_by_farm(h, d->triggers + d->not_taken);

        if (d->rejected > rejected)
                history_violate(h, "%" PRIu64 " events count as rejected, but level 2 rejects %" PRIu64,
                                d->rejected, rejected);
}

static bool has_front_ends(const struct history *h)
{
        return h->config.boards.bits > 0 || h->config.slices.slice_ns > 0;
}

static uint64_t classified(const struct ros_counts *c)
{
        return c->used + c->late + c->duplicate + c->impossible + c->dropped + c->left_over;
}

void history_record_frames(struct history *h, uint32_t ros)
{
        h->frames += site_fragments_arrived(h->site, ros);
        h->classified += classified(ros_counts(site_ros(h->site, ros)));
}

/* A frame counts as used if it is in an event that was built, or if its event is rejected or lost, or lacks
 * it after it was sent. No account of a DFM has the events of which it did not learn from its predecessor's
 * nodes. No frame that is in a file counts otherwise, if its ROS learned of the end of the run. */
static void check_used(struct history *h, const struct dfm_counts *d, const struct outputs *o, uint32_t ros)
{
        uint64_t used = ros_counts(site_ros(h->site, ros))->used, built = 0;
        uint64_t forgotten = h->status ? site_forgotten_triggers(h->site) : 0;

        for (uint64_t k = 0; k < 2 * h->config.events; k++)
                built += site_event(h->site, k)->present >> ros & 1;
        if (built > used ||
            used > built + d->lost + d->rejected + d->partial + repeated_numbers(h, o) + forgotten)
                history_violate(h,
                                "ros%u counts %" PRIu64 " frames as used, but files hold %" PRIu64
                                ", and %" PRIu64 " events are lost, %" PRIu64 " rejected, %" PRIu64
                                " partial",
                                ros + 1, used, built, d->lost, d->rejected, d->partial);
}

static void check_frames(struct history *h, const struct dfm_counts *d, const struct outputs *o)
{
        for (uint32_t i = 0; h->config.boards.bits > 0 && i < h->config.n_ros; i++) {
                if (!(h->dead_ross >> i & 1) && ros_run_state(site_ros(h->site, i)) == RUN_ENDED)
                        check_used(h, d, o, i);
        }
        for (uint32_t i = 0; has_front_ends(h) && i < h->config.n_ros; i++)
                history_record_frames(h, i);
        if (h->frames != h->classified)
                history_violate(h, "%" PRIu64 " frames were read, and %" PRIu64 " are accounted for",
                                h->frames, h->classified);
}

/* A board whose first frames leap back began earlier than the others: these frames are from before the run.
 */
static bool is_elsewhere(const struct history *h, const struct range *run, uint32_t ros, uint64_t frame)
{
        bool begins_early = h->times.leap_from == 0 && h->times.leap_ns < 0 && run->from > 0;

        return history_leaps(&h->times, ros, frame) && !begins_early;
}

/* Frames with times of one board that are in no file, although slices before and after theirs are, or their
 * time is that of no slice that the board came to. */
static uint64_t missing_frames(const struct history *h, uint32_t ros)
{
        const struct site_slices *c = &h->config.slices;
        const struct range run = range_of_events(h);
        struct site_hit hit;
        uint64_t n = 0;

        for (uint64_t k = 0; c->hit(c->ctx, ros, k, &hit); k++) {
                uint64_t slice = hit.time_ns / c->slice_ns;

                n += ((slice >= run.from && slice < run.until) || is_elsewhere(h, &run, ros, k)) &&
                     !site_hit_is_built(h->site, ros, k);
        }
        return n;
}

/* A frame counts as used if it is in an event, and no other one does. Those of slices before the first event,
 * and after the last one, are left over. What a ROS had read when it died is lost with it. */
static void check_slices_of(struct history *h, const struct dfm_counts *d, uint32_t ros)
{
        static struct node_stats s;
        const struct site_hits hits = site_hits(h->site, ros);
        uint64_t used, others;

        slicer_account(site_slicer(h->site, ros), site_ros(h->site, ros), &s);
        used = stats_get(&s.slice_frames_used);
        others = stats_get(&s.slice_frames_late) + stats_get(&s.slice_frames_dropped) +
                 stats_get(&s.slice_frames_left_over);
        if (stats_get(&s.slice_frames) != hits.read || used + others != hits.read)
                history_violate(h,
                                "ros%u read %" PRIu64 " frames, and accounts for %" PRIu64
                                " used and %" PRIu64 " others",
                                ros + 1, hits.read, used, others);
        if (h->dead_ross >> ros & 1)
                return;
        if (d->lost == 0 && d->rejected == 0 && d->partial == 0 && used != hits.built)
                history_violate(h, "ros%u counts %" PRIu64 " frames as used, but the files hold %" PRIu64,
                                ros + 1, used, hits.built);
        if (d->lost + d->rejected + d->partial == 0 && stats_get(&s.slice_frames_copied) != hits.copied)
                history_violate(h, "ros%u counts %" PRIu64 " frames as copied, but the files hold %" PRIu64,
                                ros + 1, stats_get(&s.slice_frames_copied), hits.copied);
        if (h->status == 0 && d->rejected == 0 && missing_frames(h, ros) > 0)
                history_violate(h,
                                "status 0, but %" PRIu64 " of %" PRIu64
                                " frames of ros%u are in no event of their slice",
                                missing_frames(h, ros), hits.read, ros + 1);
}

/* Each frame counts in one class, as used if it is in an event. With status 0, each frame that its ROS read
 * is in the event of its trigger. */
static void check_joins_of(struct history *h, const struct dfm_counts *d, const struct outputs *o,
                           uint32_t ros)
{
        static struct node_stats s;
        uint64_t read = site_frames(h->site, ros), built = site_joined_frames(h->site, ros), used, others;

        joiner_account(site_joiner(h->site, ros), site_ros(h->site, ros), &s);
        used = stats_get(&s.slice_frames_used);
        others = stats_get(&s.slice_frames_late) + stats_get(&s.slice_frames_dropped) +
                 stats_get(&s.slice_frames_left_over);
        if (stats_get(&s.slice_frames) != read || used + others != read)
                history_violate(h,
                                "ros%u read %" PRIu64 " frames that are joined, and accounts for %" PRIu64
                                " used and %" PRIu64 " others",
                                ros + 1, read, used, others);
        /* A ROS that was away at the end of the run did not learn which events ended. */
        if (!(h->dead_ross >> ros & 1) && ros_run_state(site_ros(h->site, ros)) == RUN_ENDED &&
            d->lost + d->rejected + d->partial + repeated_numbers(h, o) == 0 && used != built)
                history_violate(h,
                                "ros%u counts %" PRIu64 " joined frames as used, but the files hold %" PRIu64,
                                ros + 1, used, built);
}

/* With status 0, all frames of a trigger that its ROS read are in its event. */
static void check_joined(struct history *h, uint64_t trigger)
{
        for (uint32_t i = 0; i < h->config.n_ros; i++) {
                struct site_joined j = site_joined(h->site, i, trigger);

                if (j.reached != j.built)
                        history_violate(h,
                                        "status 0, but of the frames %x of trigger %" PRIu64
                                        " that ros%u read, only %x are in its event",
                                        j.reached, trigger, i + 1, j.built);
        }
}

/* The box sends each number once, so each trigger is taken, or counts in another class. */
static void check_triggers(struct history *h, const struct dfm_counts *d)
{
        const struct dfm_offered *o = &d->offered;
        uint64_t others = o->refused + o->repeated + o->implausible + o->not_taken + o->missing + o->missed +
                          d->not_taken;

        /* How many a restart missed is not always known: then the report says so. */
        if (h->box.on && (o->unclear == 0 || h->status == 0) && h->box.sent != d->triggers + others)
                history_violate(h,
                                "the trigger box sent %" PRIu64 " triggers; %" PRIu64
                                " were taken, and %" PRIu64 " count as others",
                                h->box.sent, d->triggers, others);
}

/* Nothing of an ended event remains: neither with the DFM, nor in the nodes that learned of the end of the
 * run. */
static void check_released(struct history *h)
{
        const struct dfm *d = site_dfm(h->site);
        const struct dfm_offered *o = &dfm_counts(d)->offered;

        for (uint32_t i = 0; i < h->config.n_sfi; i++) {
                const struct sfi *s = site_sfi(h->site, i);
                uint32_t held = dfm_view(d, ROLE_SFI, (uint16_t)i).held;

                if (held > 0)
                        history_violate(h, "sfi%u holds %u events, and the run is over", i + 1, held);
                if (sfi_open_events(s) == 0 && sfi_buffer_used_bytes(s) > 0)
                        history_violate(h, "sfi%u keeps %" PRIu64 " bytes", i + 1, sfi_buffer_used_bytes(s));
        }
        /* A missed trigger may have been announced to a ROS that was away when another DFM resumed the run.
         */
        for (uint32_t i = 0; !has_front_ends(h) && o->missed + o->unclear == 0 && i < h->config.n_ros; i++) {
                const struct ros *r = site_ros(h->site, i);

                if (ros_run_state(r) == RUN_ENDED && ros_held(r) > 0)
                        history_violate(h, "ros%u keeps %u fragments", i + 1, ros_held(r));
        }
}

/* Nothing but a pause was done to the system, no consumer can delay it, and all boards are good. */
static bool is_calm(const struct history *h)
{
        const struct site_config *c = &h->config;
        const struct site_boards *b = &c->boards;
        const struct history_frames *f = &h->times;

        for (size_t k = 0; k < h->n_actions; k++) {
                if (h->actions[k].act != ACT_PAUSE)
                        return false;
        }
        return !c->live.all && !c->live.output && history_ends_together(h) && c->ros_entries >= 1024 &&
               c->faults.loss == 0 && c->faults.reorder == 0 && c->faults.duplicate == 0 &&
               c->stall_until_ns == 0 && (!h->box.on || h->box.obeys) &&
               b->missed + b->late + b->repeated + f->late == 0 &&
               b->joins.lost + b->joins.late + b->joins.repeated == 0 &&
               b->held_until_ns + b->dead_until + b->lies_at + f->held_until_ns + f->silent_ns + f->leap_n ==
                       0;
}

/* With status 0, a board's frame is in no event only if its trigger is none of the run, or rejected. */
static void check_discarded(struct history *h, uint32_t ros)
{
        const struct ros_counts *c = ros_counts(site_ros(h->site, ros));
        const struct range run = range_of_events(h);
        uint64_t others = run.from + (h->config.events - run.until);

        if ((c->late > others && !h->config.level2) || c->duplicate > c->early_duplicate ||
            c->impossible > c->early_impossible || c->dropped > 0)
                history_violate(h,
                                "status 0, but of the frames of ros%u %" PRIu64 " are late, %" PRIu64
                                " duplicate, %" PRIu64 " impossible, %" PRIu64 " dropped",
                                ros + 1, c->late, c->duplicate, c->impossible, c->dropped);
}

/* In a pause that lasts until the stop, the ROS may have no room for further frames, which are read after the
 * stop. */
static bool is_stopped_early(const struct history *h)
{
        for (size_t k = 0; h->config.arrive_stream && k < h->n_actions; k++) {
                if (h->actions[k].act == ACT_PAUSE && h->actions[k].for_ns == 0)
                        return true;
        }
        return false;
}

/* If its frame came late, a number may be no event: the frame may be one of these. */
static bool may_come_after(const struct history *h, const struct site_event *e)
{
        return h->config.boards.late > 0 && e->complete + e->partial == 0 && is_stopped_early(h);
}

/* With status 0, each frame that reached its ROS is in the event of its number, except frames from before the
 * run. The stop came long after the last one. */
static void check_present(struct history *h, const struct dfm_counts *d)
{
        const struct range run = range_of_events(h);
        uint64_t events = h->config.events, until = h->config.boards.free > 0 ? events : d->triggers;

        until = is_stopped_early(h) ? run.until : until;
        for (uint64_t k = run.from; k < until; k++) {
                const struct site_event *e = site_event(h->site, k), *lie = site_event(h->site, events + k);
                unsigned reached = ((1u << h->config.n_ros) - 1) & ~(unsigned)e->absent;

                if (may_come_after(h, e))
                        continue;
                if (reached & ~(unsigned)(e->present | lie->present))
                        history_violate(h,
                                        "status 0, but of the boards %x that sent number %" PRIu64
                                        ", only %x are in its event",
                                        reached, k, e->present | lie->present);
                if (h->config.boards.joins.frames > 0)
                        check_joined(h, k);
        }
}

/* Before the first trigger, a board restarted its count, or returned to it after a leap, which only the first
 * board makes: then its frames so far are from before the run, although a late frame with one of their
 * numbers may begin the run. */
static bool has_begun_again(const struct history *h)
{
        bool leaps = h->config.boards.free > 0 && h->config.boards.lies_at > 0;
        uint64_t n = leaps ? ros_counts(site_ros(h->site, 0))->left_over : 0;

        for (uint32_t i = 0; i < h->config.n_ros; i++) {
                const struct ros_counts *c = ros_counts(site_ros(h->site, i));

                n += c->early_duplicate + c->early_impossible;
        }
        return n > 0;
}

/* With status 0, each number that a board sent within the run is an event. */
static void check_numbers(struct history *h)
{
        const struct range run = range_of_events(h);
        unsigned all = (1u << h->config.n_ros) - 1;

        for (uint64_t k = run.from; k < run.until; k++) {
                const struct site_event *e = site_event(h->site, k);

                if ((e->absent & all) != all && e->complete == 0 && !may_come_after(h, e))
                        history_violate(h, "status 0, but the number %" PRIu64 " is no event", k);
        }
}

static void check_status(struct history *h, const struct dfm_counts *d, const struct outputs *o)
{
        uint64_t built = d->triggers - d->rejected;

        if (h->status != 0) {
                if (is_calm(h))
                        history_violate(h, "status 1, although nothing happened: %s", h->reasons.text[0]);
                return;
        }
        if (d->complete != built || o->complete != built || o->partial > 0 || o->twice > 0)
                history_violate(h,
                                "status 0, but of %" PRIu64 " events %" PRIu64 " count as complete, %" PRIu64
                                " are complete in files, %" PRIu64 " partial, %" PRIu64 " there twice",
                                built, d->complete, o->complete, o->partial, o->twice);
        /* A trigger that no board read out before the stop is not taken. */
        if (h->box.on && h->box.sent != d->triggers + (h->box.stops ? d->not_taken : 0))
                history_violate(h, "status 0, but of %" PRIu64 " triggers of the box %" PRIu64 " were taken",
                                h->box.sent, d->triggers);
        if (has_front_ends(h) && h->has_lost_ros)
                history_violate(h, "status 0, but a ROS died, and what its board sent is in no account");
        for (uint32_t i = 0; has_front_ends(h) && i < h->config.n_ros; i++)
                check_discarded(h, i);
        if (h->config.boards.bits > 0 && h->dead_ross == 0 && !h->config.level2 && !has_begun_again(h))
                check_present(h, d);
        /* What a ROS had read when it died is lost with it. */
        if (h->config.boards.free > 0 && h->dead_ross == 0 && !h->config.level2 && !has_begun_again(h))
                check_numbers(h);
}

/* Without mode all, the run is the same as without consumers. */
static void check_undelayed(struct history *h)
{
        static struct history without;

        history_draw(&without, h->seed, h->features & ~(1u << HISTORY_live));
        history_play(&without);
        if (memcmp(dfm_counts(site_dfm(h->site)), dfm_counts(site_dfm(without.site)),
                   sizeof(struct dfm_counts)) != 0)
                history_violate(h, "consumers of live events changed the run");
        site_free(without.site);
}

/* What the consumers of live events saw. */
static void check_live(struct history *h)
{
        const struct site_live *l = &h->config.live;

        if (h->live.wrong[0])
                history_violate(h, "live events: %s", h->live.wrong);
        if (l->consumers > 0 && !l->all && !l->output)
                check_undelayed(h);
}

void history_check(struct history *h)
{
        const struct dfm_counts *d = dfm_counts(site_dfm(h->site));
        const struct outputs o = read_outputs(h);

        if (site_violation(h->site))
                history_violate(h, "%s", site_violation(h->site));
        check_sums(h, d);
        check_live(h);
        /* No process was left that knew the run, so the DFM began another one, with files of its own. */
        if (dfm_cookie(site_dfm(h->site)) != h->cookie)
                return;
        check_outputs(h, d, &o);
        check_decisions(h, d);
        check_frames(h, d, &o);
        check_released(h);
        check_triggers(h, d);
        check_status(h, d, &o);
        for (uint32_t i = 0; h->config.slices.slice_ns > 0 && i < h->config.n_ros; i++)
                check_slices_of(h, d, i);
        for (uint32_t i = 0; h->config.boards.joins.frames > 0 && i < h->config.n_ros; i++)
                check_joins_of(h, d, &o, i);
}
