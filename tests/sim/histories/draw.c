/* Draws a history from its seed. All numbers are drawn, and then those of the features that are on are used:
 * so a history keeps its course if another feature is switched off. */
#include <stdio.h>

#include "base/util.h"
#include "history.h"

/* Draws of leaps and overlaps, of room, of stops, of counters, of joins, of pauses, of resets, of replaced
 * nodes, of clocks and of consumers are sequences of their own: the others keep theirs. */
#define LEAPS UINT64_C(0x1ea5000)
#define ROOM UINT64_C(0x400e000)
#define STOPS UINT64_C(0x5709000)
#define COUNTERS UINT64_C(0xc0de000)
#define JOINS UINT64_C(0x101a000)
#define PAUSES UINT64_C(0x9a05e000)
#define NARROW UINT64_C(0x9a7709000)
#define RESETS UINT64_C(0x7e5e7000)
#define CLOSE UINT64_C(0xc105e000)
#define CLOCKS UINT64_C(0xc10c5000)
#define CONSUMERS UINT64_C(0x11fe000)

static bool has(const struct history *h, enum history_feature f)
{
        return h->features >> f & 1;
}

static bool one_in(struct random *r, uint64_t n)
{
        return random_below(r, n) == 0;
}

static uint64_t between(struct random *r, uint64_t least, uint64_t most)
{
        return least + random_below(r, most - least + 1);
}

/* Mostly short, sometimes beyond the time-out of a node, and rarely beyond that of an event. */
static uint64_t draw_absence_ns(struct random *r)
{
        uint64_t short_ns = between(r, 0, 40 * NS_PER_MS), middle_ns = between(r, 50, 600) * NS_PER_MS,
                 long_ns = between(r, 1000, 4000) * NS_PER_MS, kind = random_below(r, 10);

        return kind < 6 ? short_ns : kind < 9 ? middle_ns : long_ns;
}

static void draw_system(struct random *r, struct site_config *c)
{
        static const uint64_t rates_hz[] = {200, 500, 1000, 2000, 5000, 10000};
        static const uint64_t timeouts_ns[] = {300 * NS_PER_MS, 600 * NS_PER_MS, 2 * NS_PER_S};

        c->n_ros = (uint32_t)between(r, 1, HISTORY_ROS_MAX);
        c->n_sfi = (uint32_t)between(r, 1, 3);
        c->push = one_in(r, 2);
        c->events = between(r, 20, 120);
        /* The run may be shorter than the time-out of a node, or longer. */
        c->rate_millihertz = rates_hz[random_below(r, ARRAY_SIZE(rates_hz))] * 1000;
        c->fragment_bytes = (uint32_t)between(r, 20, 800);
        c->timeout_ns = timeouts_ns[random_below(r, ARRAY_SIZE(timeouts_ns))];
        c->write_ns = one_in(r, 3) ? NS_PER_MS : 20 * NS_PER_US;
        c->sfi_credits = one_in(r, 3) ? (uint32_t)between(r, 2, 12) : 0;
        c->buffer_bytes = 8u << 20;
        c->ros_entries = 1024;
}

static void draw_network(struct random *r, struct history *h)
{
        struct fault_config f = {.loss = (double)random_below(r, 8) / 100,
                                 .reorder = (double)random_below(r, 20) / 100,
                                 .duplicate = (double)random_below(r, 10) / 100,
                                 .seed = h->seed};
        bool bad = one_in(r, 2);

        h->config.faults = bad && has(h, HISTORY_network) ? f : (struct fault_config){.seed = h->seed};
}

static void draw_level2(struct random *r, struct history *h)
{
        struct site_config *c = &h->config;
        bool on = one_in(r, 3);

        c->accept_percent = (uint32_t)between(r, 10, 90);
        c->farm_ns = between(r, 1, 10) * NS_PER_MS;
        c->level2 = on && has(h, HISTORY_level2);
}

/* An undetected restart of a board, so early that events without its frames are still open. */
static void draw_faults(struct random *r, struct site_boards *b, uint64_t events)
{
        uint64_t dead_from = between(r, 2, events), dead = between(r, 1, 40), held_ns = between(r, 5, 40);

        b->missed = one_in(r, 3) ? 0.03 : 0;
        b->late = one_in(r, 3) ? 0.05 : 0;
        b->late_ns = between(r, 1, 60) * NS_PER_MS;
        b->repeated = one_in(r, 3) ? 0.05 : 0;
        b->repeated_ns = between(r, 0, 20) * NS_PER_MS;
        b->held_from_ns = one_in(r, 3) ? held_ns * NS_PER_MS : 0;
        b->held_until_ns = b->held_from_ns > 0 ? b->held_from_ns + between(r, 5, 400) * NS_PER_MS : 0;
        if (one_in(r, 3)) {
                b->dead_from = dead_from;
                b->dead_until = dead_from + dead;
        }
        b->lies_at = one_in(r, 4) ? between(r, 5, events) : 0;
}

/* Of one frame, of some, or of all from then on; by more than there are events. */
static void draw_lies(const struct history *h, struct site_boards *b, uint64_t events)
{
        static const uint64_t most[] = {600, 2000, 30000};
        struct random r;
        uint64_t at, n, by, kind;

        random_init(&r, h->seed ^ LEAPS);
        at = between(&r, 1, events - 1);
        n = between(&r, 1, 20);
        by = between(&r, 150, most[random_below(&r, ARRAY_SIZE(most))]);
        kind = random_below(&r, 4);
        if (!one_in(&r, 3) || !has(h, HISTORY_leaps))
                return;
        b->lies_at = kind == 1 ? events - 1 : at;
        b->lies = kind < 2 ? 1 : kind == 2 ? n : events;
        b->lie = by;
}

/* A full ROS makes a connection wait, but a datagram is lost. */
static void draw_room(struct history *h)
{
        struct random r;
        uint32_t entries;
        bool on, waits;

        random_init(&r, h->seed ^ ROOM);
        on = one_in(&r, 3);
        entries = (uint32_t)between(&r, 4, 64);
        waits = one_in(&r, 2);
        if (!on || !has(h, HISTORY_small))
                return;
        h->config.ros_entries = entries;
        h->config.arrive_stream = waits;
}

static void draw_stop(struct history *h)
{
        struct random r;

        random_init(&r, h->seed ^ STOPS);
        h->box.stops = one_in(&r, 2) && h->box.on && has(h, HISTORY_stop);
        h->stops_all = one_in(&r, 3) && has(h, HISTORY_all);
}

/* The box pauses before it, until all frames have come: those that were repeated or late too. */
static void draw_reset(struct history *h)
{
        struct site_boards *b = &h->config.boards;
        struct random r;
        uint64_t at;
        bool on;

        random_init(&r, h->seed ^ RESETS);
        on = one_in(&r, 2);
        at = between(&r, 5, h->config.events - 1);
        if (on && b->boxed && h->box.obeys && has(h, HISTORY_reset)) {
                b->reset_at = at;
                b->lies_at = 0;
        }
}

static uint64_t draw_mixed(const struct history *h)
{
        struct random r;
        bool on;

        random_init(&r, h->seed ^ COUNTERS);
        on = one_in(&r, 2);
        return on && has(h, HISTORY_mixed) ? between(&r, 1, 1u << 30) : 0;
}

/* The end of a fragment is shown by a count, a flag or a newer number. Without an end, and without an index,
 * frames must come in order. */
static struct join_rule draw_rule(struct random *r, struct site_joins *j)
{
        uint64_t end = random_below(r, 4), boards = between(r, 2, 4);
        bool indexed = one_in(r, 2), shared = one_in(r, 3);
        struct join_rule rule = {.joins = true};

        if (end == 1)
                rule.count = j->frames;
        else if (end == 2)
                rule.count_at = site_joins_count();
        else if (end == 3)
                rule.last = site_joins_last();
        if (indexed)
                rule.index = site_joins_index();
        if (shared && end != 3) {
                rule.board = site_joins_board();
                j->boards = (uint32_t)boards;
        }
        return rule;
}

/* Without an index, repeated frames may take the places of lost ones unnoticed. */
static void draw_joins(const struct history *h, struct site_boards *b)
{
        struct site_joins j;
        struct random r;
        bool on, has_count, repeats;
        uint64_t gap_ns;

        random_init(&r, h->seed ^ JOINS);
        on = one_in(&r, 2);
        j = (struct site_joins){.frames = (uint32_t)between(&r, 1, 6), .varies = one_in(&r, 2)};
        j.rule = draw_rule(&r, &j);
        has_count = j.rule.count > 0 || j.rule.count_at.bits > 0;
        j.varies &= j.rule.count == 0;
        j.shuffled = one_in(&r, 2) && (has_count || j.rule.index.bits > 0);
        j.rule.within_ns = between(&r, 5, MIN(100, h->config.timeout_ns / NS_PER_MS / 4)) * NS_PER_MS;
        gap_ns = random_below(&r, 150) * NS_PER_US;
        j.gap_ns = join_rule_has_end(&j.rule) ? gap_ns : 0;
        repeats = one_in(&r, 2);
        j.lost = one_in(&r, 3) ? 0.01 : 0;
        j.late = one_in(&r, 3) ? 0.02 : 0;
        j.late_ns = between(&r, 0, 60) * NS_PER_MS;
        j.repeated = one_in(&r, 3) ? 0.02 : 0;
        if (!has(h, HISTORY_faulty))
                j.lost = j.late = j.repeated = 0;
        if (j.rule.index.bits == 0 && (repeats || b->repeated > 0))
                j.lost = 0;
        else if (j.rule.index.bits == 0)
                j.repeated = 0;
        if (on && has(h, HISTORY_joins))
                b->joins = j;
}

/* The period is more than four times the number of triggers, all of which a board may miss while its ROS is
 * replaced. Its frames are in order, so each that it sends again would be that of a later trigger. */
static void draw_narrow(const struct history *h, struct site_boards *b)
{
        struct random r;
        uint64_t period;
        bool on;

        random_init(&r, h->seed ^ NARROW);
        on = one_in(&r, 3);
        period = between(&r, 512, one_in(&r, 2) ? 700 : NUMBER_NARROW - 1);
        if (!on || !has(h, HISTORY_narrow))
                return;
        b->mixed = b->mixed ?: h->seed + 1;
        b->narrow = period;
        b->late = b->repeated = b->joins.late = b->joins.repeated = 0;
        b->lies_at = 0;
}

static void draw_boards(struct random *r, struct history *h)
{
        static const unsigned widths[] = {16, 24, 32, 64};
        struct site_config *c = &h->config;
        struct site_boards b = {.bits = widths[random_below(r, ARRAY_SIZE(widths))]}, faults = {};
        bool on = one_in(r, 2);

        draw_faults(r, &faults, c->events);
        if (has(h, HISTORY_faulty)) {
                faults.bits = b.bits;
                b = faults;
        }
        draw_lies(h, &b, c->events);
        b.mixed = draw_mixed(h);
        b.window_ns = between(r, 2, 50) * NS_PER_MS;
        draw_joins(h, &b);
        draw_narrow(h, &b);
        if (on && has(h, HISTORY_boards))
                c->boards = b;
}

static uint64_t time_of(const struct history_frames *f, uint32_t ros, uint64_t frame)
{
        bool after = ros == 0 && frame >= f->silent_from;

        return f->first_ns + frame * f->period_ns + (after ? f->silent_ns : 0) + ros * 1000;
}

/* What the board's clock shows at this time. */
static uint64_t clock_of(const struct history_frames *f, uint32_t ros, uint64_t at_ns)
{
        int64_t gained = (int64_t)(at_ns - f->first_ns) / 1000 * f->drift_ppm[ros] / 1000;

        return at_ns + f->ahead_ns[ros] + (uint64_t)gained;
}

bool history_leaps(const struct history_frames *f, uint32_t ros, uint64_t frame)
{
        return ros == 0 && frame - f->leap_from < f->leap_n;
}

static bool describe_hit(void *ctx, uint32_t ros, uint64_t frame, struct site_hit *ret)
{
        const struct history *h = ctx;
        const struct history_frames *f = &h->times;
        uint64_t chance = random_mix(h->seed ^ random_mix(frame * 64 + ros)) % 1000;

        ret->sent_ns = time_of(f, ros, frame);
        ret->time_ns = clock_of(f, ros, ret->sent_ns);
        ret->sent_ns += (double)chance < f->late * 1000 ? f->late_ns : 0;
        if (ros == 0 && ret->sent_ns >= f->held_from_ns)
                ret->sent_ns = MAX(ret->sent_ns, f->held_until_ns);
        if (history_leaps(f, ros, frame))
                ret->time_ns += (uint64_t)f->leap_ns;
        return frame < f->n;
}

/* One frame may leap by more than slices may be open; several ones are believed, so each slice up to theirs
 * becomes an event. */
static void draw_leap(struct random *r, const struct history *h, struct history_frames *f, uint64_t slice_ns)
{
        uint64_t kind = random_below(r, 4), n = between(r, 2, 30), at = random_below(r, f->n);
        uint64_t slices = one_in(r, 2) ? between(r, 1, 80) : between(r, 80, kind == 0 ? 70000 : 2000);
        uint64_t room_ns = f->first_ns + at * f->period_ns;
        bool on = one_in(r, 4), back = one_in(r, 4);

        if (!on || !has(h, HISTORY_leaps))
                return;
        f->leap_from = kind == 1 ? f->n - 1 : at;
        f->leap_n = kind < 2 ? 1 : kind == 2 ? n : f->n;
        f->leap_ns = back ? -(int64_t)MIN(slices * slice_ns, room_ns) : (int64_t)(slices * slice_ns);
}

/* Each board may be ahead: by less than slices wait, by more, or by more than numbers may be apart. Real
 * clocks drift by up to 100 ppm; wrong ones, which count ticks of another length, by more. */
static void draw_clocks(const struct history *h, struct history_frames *f, uint64_t slice_ns)
{
        static const uint64_t most_ahead[] = {10 * NS_PER_MS, 200 * NS_PER_MS, 3 * NS_PER_S};
        static const uint64_t most_ppm[] = {0, 100, 10000, 300000};
        struct random r;
        bool on;

        random_init(&r, h->seed ^ CLOCKS);
        on = one_in(&r, 2) && has(h, HISTORY_clocks);
        for (uint32_t i = 0; i < HISTORY_ROS_MAX; i++) {
                uint64_t ahead = random_below(&r, most_ahead[random_below(&r, ARRAY_SIZE(most_ahead))]),
                         ppm = random_below(&r, 1 + most_ppm[random_below(&r, ARRAY_SIZE(most_ppm))]);
                bool same = one_in(&r, 2), slow = one_in(&r, 2);

                if (!on)
                        continue;
                f->ahead_ns[i] = same ? 0 : MIN(ahead, 2000 * slice_ns);
                f->drift_ppm[i] = slow ? -(int64_t)ppm : (int64_t)ppm;
        }
}

/* The latest time that a board's clock shows, without leaps. */
static uint64_t last_time_ns(const struct history_frames *f)
{
        uint64_t last = 0;

        for (uint32_t i = 0; i < HISTORY_ROS_MAX; i++)
                last = MAX(last, clock_of(f, i, time_of(f, i, f->n)));
        return last;
}

static void draw_slices(struct random *r, struct history *h, bool on)
{
        struct site_config *c = &h->config;
        struct history_frames f = {.period_ns = between(r, 200, 3000) * NS_PER_US, .n = between(r, 30, 150)};
        uint64_t slice_ns = f.period_ns * between(r, 1, 6), window_ns = between(r, 1, 60) * NS_PER_MS;
        uint64_t overlap_ns;
        struct random own;

        f.first_ns = between(r, 1, 40) * NS_PER_MS;
        f.late = one_in(r, 3) ? 0.05 : 0;
        f.late_ns = between(r, 1, 100) * NS_PER_MS;
        f.held_from_ns = f.first_ns + random_below(r, f.n * f.period_ns);
        f.held_until_ns = one_in(r, 3) ? f.held_from_ns + draw_absence_ns(r) : 0;
        f.silent_from = random_below(r, f.n);
        f.silent_ns = one_in(r, 3) ? draw_absence_ns(r) : 0;
        if (!has(h, HISTORY_faulty)) {
                f.late = 0;
                f.held_until_ns = f.silent_ns = 0;
        }
        random_init(&own, h->seed ^ LEAPS);
        overlap_ns = one_in(&own, 2) ? random_below(&own, slice_ns) : 0;
        draw_leap(&own, h, &f, slice_ns);
        draw_clocks(h, &f, slice_ns);
        if (!on || !has(h, HISTORY_slices))
                return;
        h->times = f;
        c->slices = (struct site_slices){
                .slice_ns = slice_ns, .overlap_ns = overlap_ns, .hit = describe_hit, .ctx = h};
        c->boards = (struct site_boards){.window_ns = window_ns};
        c->events = (last_time_ns(&f) + (uint64_t)MAX(f.leap_ns, 0) + NS_PER_MS) / slice_ns + 2;
}

/* Where triggers come from: the schedule in half of the histories. */
static void draw_triggers(struct random *r, struct history *h)
{
        struct site_config *c = &h->config;
        uint64_t kind = random_below(r, 5);
        bool obeys = !one_in(r, 4);
        uint64_t first_ns = between(r, 1, 20) * NS_PER_MS;

        draw_slices(r, h, kind == 2);

        if (kind == 0 && has(h, HISTORY_box)) {
                h->box = (struct history_box){.on = true, .obeys = obeys};
                c->outside = true;
                c->boards.boxed = c->boards.bits > 0;
        } else if (kind == 1 && c->boards.bits > 0 && has(h, HISTORY_frames)) {
                c->boards.free = c->events;
                c->boards.first_ns = first_ns;
        }
}

uint64_t history_run_ns(const struct history *h)
{
        const struct site_config *c = &h->config;

        return c->slices.slice_ns > 0
                       ? MAX(time_of(&h->times, 0, h->times.n) + h->times.late_ns, h->times.held_until_ns)
                       : c->boards.first_ns + c->events * (UINT64_C(1000000000000) / c->rate_millihertz);
}

bool history_ends_together(const struct history *h)
{
        const struct site_config *c = &h->config;
        const struct history_frames *f = &h->times;
        uint64_t first = c->slices.slice_ns > 0 ? clock_of(f, 0, time_of(f, 0, f->n - 1)) : 0;

        for (uint32_t i = 1; c->slices.slice_ns > 0 && i < c->n_ros; i++) {
                if (clock_of(f, i, time_of(f, i, f->n - 1)) / c->slices.slice_ns !=
                    first / c->slices.slice_ns)
                        return false;
        }
        return true;
}

static struct history_action draw_action(struct random *r, const struct history *h)
{
        const struct site_config *c = &h->config;
        static const enum history_act acts[] = {ACT_DFM,      ACT_DFM,     ACT_DFM,
                                                ACT_CUT_SFI,  ACT_CUT_SFI, ACT_REPLACE_SFI,
                                                ACT_KILL_SFI, ACT_CUT_ROS, ACT_REPLACE_ROS};
        struct history_action a = {.act = acts[random_below(r, ARRAY_SIZE(acts))]};
        uint64_t ros = random_below(r, c->n_ros), sfi = random_below(r, c->n_sfi);
        uint64_t run_ns = history_run_ns(h);

        a.index = (uint32_t)(a.act == ACT_DFM ? 0 : a.act >= ACT_CUT_ROS ? ros : sfi);
        a.at_ns = between(r, NS_PER_MS, run_ns + 30 * NS_PER_MS);
        a.for_ns = draw_absence_ns(r);
        return a;
}

static bool is_permitted(const struct history *h, const struct history_action *a)
{
        static const enum history_feature features[] = {
                [ACT_DFM] = HISTORY_dfm,      [ACT_CUT_SFI] = HISTORY_cut, [ACT_REPLACE_SFI] = HISTORY_sfi,
                [ACT_KILL_SFI] = HISTORY_sfi, [ACT_CUT_ROS] = HISTORY_ros, [ACT_REPLACE_ROS] = HISTORY_ros,
                [ACT_KILL_ROS] = HISTORY_ros,
        };

        if (a->act == ACT_DFM && !has(h, HISTORY_resumed) &&
            (h->config.boards.free > 0 || h->config.slices.slice_ns > 0))
                return false;
        /* One node of each role stays, or the run would wait for another one. */
        return has(h, features[a->act]) &&
               !((a->act == ACT_KILL_SFI || a->act == ACT_KILL_ROS) && a->index == 0);
}

static void draw_actions(struct random *r, struct history *h)
{
        uint64_t n = random_below(r, 5);
        bool stalls = one_in(r, 5);
        uint64_t from_ns = between(r, 1, 30) * NS_PER_MS,
                 until_ns = from_ns + between(r, 10, 3000) * NS_PER_MS;

        for (uint64_t i = 0; i < n; i++) {
                struct history_action a = draw_action(r, h);

                if (is_permitted(h, &a))
                        h->actions[h->n_actions++] = a;
        }
        if (stalls && has(h, HISTORY_disk)) {
                h->config.stall_from_ns = from_ns;
                h->config.stall_until_ns = until_ns;
        }
}

/* A ROS dies for good, also behind the last trigger; often, so does the DFM after it. */
static void draw_death(struct random *r, struct history *h)
{
        uint64_t early_ns = between(r, NS_PER_MS, history_run_ns(h)),
                 later_ns = between(r, 0, 800) * NS_PER_MS;
        uint64_t rest_ns = between(r, 0, 2000) * NS_PER_MS,
                 at_ns = one_in(r, 2) ? early_ns : history_run_ns(h) + rest_ns;
        struct history_action ros = {.act = ACT_KILL_ROS, .at_ns = at_ns}, dfm = {.act = ACT_DFM};
        bool dies = one_in(r, 6), another = one_in(r, 2);

        ros.index = (uint32_t)random_below(r, h->config.n_ros);
        dfm.at_ns = at_ns + later_ns;
        dfm.for_ns = draw_absence_ns(r);
        if (!dies || !is_permitted(h, &ros))
                return;
        h->actions[h->n_actions++] = ros;
        if (another && is_permitted(h, &dfm))
                h->actions[h->n_actions++] = dfm;
}

/* The second DFM may not know what the SFI had built. */
static void draw_close(struct history *h)
{
        struct history_action a[3] = {{.act = ACT_DFM}, {.act = ACT_REPLACE_SFI}, {.act = ACT_DFM}};
        struct random r;
        uint64_t at_ns;
        bool on;

        random_init(&r, h->seed ^ CLOSE);
        on = one_in(&r, 8) && has(h, HISTORY_close);
        at_ns = between(&r, NS_PER_MS, history_run_ns(h));
        for (size_t k = 0; k < ARRAY_SIZE(a); k++) {
                a[k].at_ns = at_ns += between(&r, 1, 25 * NS_PER_MS);
                a[k].for_ns = between(&r, 0, 25 * NS_PER_MS);
        }
        a[1].index = (uint32_t)random_below(&r, h->config.n_sfi);
        for (size_t k = 0; k < ARRAY_SIZE(a) && on; k++) {
                if (is_permitted(h, &a[k]))
                        h->actions[h->n_actions++] = a[k];
        }
}

/* If frames make the triggers, half of the pauses last until the stop. A trigger box is not paused. */
static void draw_pause(struct history *h)
{
        bool waits = h->config.boards.free > 0 || h->config.slices.slice_ns > 0, on, lasts;
        struct history_action a = {.act = ACT_PAUSE};
        struct random r;

        random_init(&r, h->seed ^ PAUSES);
        on = one_in(&r, 3);
        lasts = one_in(&r, 2);
        a.at_ns = between(&r, NS_PER_MS, history_run_ns(h));
        a.for_ns = 1 + draw_absence_ns(&r);
        if (lasts && waits)
                a.for_ns = 0;
        if (on && !h->box.on && has(h, HISTORY_pause))
                h->actions[h->n_actions++] = a;
}

static void draw_consumers(struct history *h)
{
        struct site_live l;
        struct random r;
        bool on;

        random_init(&r, h->seed ^ CONSUMERS);
        on = one_in(&r, 3);
        l = (struct site_live){.consumers = (uint32_t)between(&r, 1, 8),
                               .act_ns = between(&r, 1, 20) * NS_PER_MS / 4,
                               .seed = random_next(&r)};
        l.all = one_in(&r, 2) && has(h, HISTORY_delays);
        l.output = one_in(&r, 2) && has(h, HISTORY_acknowledged);
        l.freezes = one_in(&r, 4);
        if (on && has(h, HISTORY_live))
                h->config.live = l;
}

void history_draw(struct history *h, uint64_t seed, unsigned features)
{
        struct random r;

        *h = (struct history){.seed = seed, .features = features};
        random_init(&r, seed);
        random_init(&h->random, ~seed);
        draw_system(&r, &h->config);
        draw_network(&r, h);
        draw_level2(&r, h);
        draw_boards(&r, h);
        draw_triggers(&r, h);
        draw_room(h);
        draw_stop(h);
        draw_reset(h);
        draw_actions(&r, h);
        draw_death(&r, h);
        draw_pause(h);
        draw_close(h);
        draw_consumers(h);
}

static void describe_boards(const struct site_boards *b)
{
        if (b->bits == 0)
                return;
        fprintf(stderr, "  boards: %u bits, missed %.2f, late %.2f by %.0f ms, repeated %.2f after %.0f ms",
                b->bits, b->missed, b->late, (double)b->late_ns / 1e6, b->repeated,
                (double)b->repeated_ns / 1e6);
        fprintf(stderr, ", held %.0f to %.0f ms, dead %llu to %llu, lies at %llu (%llu, by %llu)%s\n",
                (double)b->held_from_ns / 1e6, (double)b->held_until_ns / 1e6,
                (unsigned long long)b->dead_from, (unsigned long long)b->dead_until,
                (unsigned long long)b->lies_at, (unsigned long long)b->lies, (unsigned long long)b->lie,
                b->free > 0 ? ", frames make triggers" : "");
        if (b->mixed > 0)
                fprintf(stderr, "  counters with periods (%llu) and first values of their own, seed %llu\n",
                        (unsigned long long)b->narrow, (unsigned long long)b->mixed);
        if (b->reset_at > 0)
                fprintf(stderr, "  reset at %llu\n", (unsigned long long)b->reset_at);
}

static void describe_joins(const struct site_joins *j)
{
        char rule[JOIN_TEXT_MAX];

        if (j->frames == 0)
                return;
        fprintf(stderr, "  %s%u frames of %u boards, %s; gap %.3f ms%s", j->varies ? "up to " : "", j->frames,
                MAX(j->boards, 1u), join_rule_format(&j->rule, rule), (double)j->gap_ns / 1e6,
                j->shuffled ? ", in any order" : "");
        fprintf(stderr, "; lost %.2f, late %.2f by %.0f ms, repeated %.2f\n", j->lost, j->late,
                (double)j->late_ns / 1e6, j->repeated);
}

static void describe_slices(const struct history *h)
{
        const struct history_frames *f = &h->times;

        if (h->config.slices.slice_ns == 0)
                return;
        fprintf(stderr, "  slices of %.2f ms, window %.0f ms; %llu frames each %.2f ms from %.0f ms",
                (double)h->config.slices.slice_ns / 1e6, (double)h->config.boards.window_ns / 1e6,
                (unsigned long long)f->n, (double)f->period_ns / 1e6, (double)f->first_ns / 1e6);
        fprintf(stderr,
                "; late %.2f by %.0f ms, held %.1f to %.1f ms, silent before frame %llu for %.1f ms\n",
                f->late, (double)f->late_ns / 1e6, (double)f->held_from_ns / 1e6,
                (double)f->held_until_ns / 1e6, (unsigned long long)f->silent_from,
                (double)f->silent_ns / 1e6);
        fprintf(stderr, "  overlap %.3f ms; %llu frames from %llu on leap by %.1f ms\n  clocks ahead:",
                (double)h->config.slices.overlap_ns / 1e6, (unsigned long long)f->leap_n,
                (unsigned long long)f->leap_from, (double)f->leap_ns / 1e6);
        for (uint32_t i = 0; i < h->config.n_ros; i++)
                fprintf(stderr, " %.3f ms %+lld ppm", (double)f->ahead_ns[i] / 1e6,
                        (long long)f->drift_ppm[i]);
        fputc('\n', stderr);
}

void history_describe(const struct history *h)
{
        static const char *const acts[] = {
                [ACT_DFM] = "replace dfm",   [ACT_CUT_SFI] = "cut sfi", [ACT_REPLACE_SFI] = "replace sfi",
                [ACT_KILL_SFI] = "kill sfi", [ACT_CUT_ROS] = "cut ros", [ACT_REPLACE_ROS] = "replace ros",
                [ACT_KILL_ROS] = "kill ros", [ACT_PAUSE] = "pause dfm",
        };
        const struct site_config *c = &h->config;

        fprintf(stderr,
                "  %u ROSs, %u SFIs, %s, %llu events at %llu Hz, timeout %.0f ms, credits %u, write %.2f "
                "ms\n",
                c->n_ros, c->n_sfi, c->push ? "push" : "pull", (unsigned long long)c->events,
                (unsigned long long)c->rate_millihertz / 1000, (double)c->timeout_ns / 1e6, c->sfi_credits,
                (double)c->write_ns / 1e6);
        fprintf(stderr,
                "  loss %.2f, reorder %.2f, duplicate %.2f%s%s%s%s%s; stall %.0f to %.0f ms; %u entries%s\n",
                c->faults.loss, c->faults.reorder, c->faults.duplicate, c->level2 ? "; level 2" : "",
                h->box.on ? "; trigger box" : "", h->box.on && !h->box.obeys ? " that ignores busy" : "",
                h->box.stops ? ", then a stop" : "", h->stops_all ? "; all nodes are stopped" : "",
                (double)c->stall_from_ns / 1e6, (double)c->stall_until_ns / 1e6, c->ros_entries,
                c->arrive_stream ? ", connections" : "");
        describe_boards(&c->boards);
        describe_joins(&c->boards.joins);
        describe_slices(h);
        if (c->live.consumers > 0)
                fprintf(stderr, "  up to %u consumers at each SFI, which act each %.2f ms%s%s%s\n",
                        c->live.consumers, (double)c->live.act_ns / 1e6,
                        c->live.all ? ", also in mode all" : "",
                        c->live.output ? ", and acknowledge events" : "",
                        c->live.freezes ? "; some stop at the end" : "");
        for (size_t i = 0; i < h->n_actions; i++)
                fprintf(stderr, "  %s%u at %.3f ms for %.3f ms\n", acts[h->actions[i].act],
                        h->actions[i].index, (double)h->actions[i].at_ns / 1e6,
                        (double)h->actions[i].for_ns / 1e6);
}
