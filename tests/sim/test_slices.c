/* Slices of time under virtual time: boards that send in bursts, pause, are late, fall silent, or whose clock
 * begins again. Each frame ends in one account, and those that count as used are in events. */
#include "scenes.h"
#include "sim_slices.h"

#define FIRST_NS (100 * NS_PER_MS)
#define SLICE_NS NS_PER_MS
/* A board sends about three hits in a slice. */
#define PERIOD_NS (NS_PER_MS / 3)
#define HITS 6000u
/* The times of the boards before their clocks begin again. */
#define BASE_NS (1000 * NS_PER_S)
/* In sim_nodes.c: a silent board's slices close after this time, and events wait for so long. */
#define IDLE_NS (100 * NS_PER_MS)
#define WAIT_NS (200 * NS_PER_MS)

struct board {
        uint64_t burst_ns;                     /* it sends so often; 0: at once */
        uint64_t pause_at_ns, pause_ns;        /* it holds back what it has */
        uint64_t silent_from, silent_ns;       /* it has no hits for so long before this one */
        uint64_t late_from, late_until, by_ns; /* these hits leave it later */
        uint64_t begins_again;                 /* at this hit, its clock is 0; 0: never */
        uint64_t hits;
};

static struct board boards[16];

static uint64_t when_ns(const struct board *b, uint64_t hit)
{
        return FIRST_NS + hit * PERIOD_NS + (b->silent_ns > 0 && hit >= b->silent_from ? b->silent_ns : 0);
}

static bool hit_of(void *ctx, uint32_t ros, uint64_t hit, struct sim_hit *ret)
{
        const struct board *b = &((const struct board *)ctx)[ros];
        uint64_t at_ns = when_ns(b, hit) + ros * 1000, end_ns = b->pause_at_ns + b->pause_ns;

        ret->time_ns = b->begins_again > 0 && hit >= b->begins_again ? at_ns - when_ns(b, b->begins_again)
                                                                     : BASE_NS + at_ns;
        if (b->burst_ns > 0)
                at_ns = (at_ns / b->burst_ns + 1) * b->burst_ns + ros * NS_PER_MS;
        if (at_ns >= b->pause_at_ns)
                at_ns = MAX(at_ns, end_ns);
        if (hit >= b->late_from && hit < b->late_until)
                at_ns = when_ns(b, b->late_until) + b->by_ns;
        ret->sent_ns = at_ns;
        return hit < b->hits;
}

static struct sim_config with_slices(uint32_t n_ros, bool push, uint64_t seed)
{
        struct sim_config c = sim_standard();

        c.n_ros = n_ros;
        c.push = push;
        c.events = 0;
        c.sfi_slots = 1024;
        c.timeout_ns = 2 * WAIT_NS;
        c.faults.seed = seed;
        c.boards.window_ns = 10 * NS_PER_MS;
        c.slices = (struct sim_slices){.slice_ns = SLICE_NS, .hit = hit_of, .ctx = boards};
        for (uint32_t i = 0; i < n_ros; i++)
                boards[i] = (struct board){.hits = HITS};
        return c;
}

/* Each hit and each slice counts in one class. Used hits are in an event, whatever the class of the
 * others. */
static void check_hits(struct sim *s, const struct sim_config *c)
{
        const struct dfm_counts *d = dfm_counts(sim_dfm(s));

        check(d->triggers == d->complete + d->partial + d->lost);
        check(d->lost == 0 && d->offered.refused == 0 && sim_wrong_bytes(s) == 0);
        for (uint32_t i = 0; i < c->n_ros; i++) {
                const struct ros_counts *r = ros_counts(sim_ros(s, i));
                const struct ros_slice_counts *p = &r->slices;
                const struct slicer_counts *n = slicer_counts(sim_slicer(s, i));
                struct sim_hits h = sim_hits(s, i);

                check(h.read == h.sent && n->frames == h.read);
                check(n->frames == n->passed + n->late + n->dropped + n->left_over && n->waiting == 0);
                check(n->passed == p->used + p->late + p->dropped + p->left_over);
                check(h.slices ==
                      r->used + r->late + r->duplicate + r->impossible + r->dropped + r->left_over);
                check(p->used == h.built && p->copied == h.copied);
        }
}

static void finish(struct sim *s, const struct sim_config *c)
{
        uint64_t until_ns = 0;
        struct sim_hit h;

        for (uint32_t i = 0; i < c->n_ros; i++) {
                for (uint64_t k = 0; hit_of(boards, i, k, &h); k++)
                        until_ns = MAX(until_ns, h.sent_ns);
        }
        check(!sim_run(s, until_ns + 4 * WAIT_NS));
        dfm_stop(sim_dfm(s), sim_now_ns(s));
        sim_inject(s, ROLE_DFM, 0, "wake", 4);
        check(sim_run(s, FOREVER_NS));
        check_hits(s, c);
}

/* All classes of the frames of a board but those that are used. */
static struct ros_slice_counts others(const struct sim *s, uint32_t ros)
{
        const struct slicer_counts *n = slicer_counts(sim_slicer(s, ros));
        struct ros_slice_counts p = ros_counts(sim_ros((struct sim *)s, ros))->slices;

        return (struct ros_slice_counts){
                .used = p.used,
                .late = p.late + n->late,
                .dropped = p.dropped + n->dropped,
                .left_over = p.left_over + n->left_over,
        };
}

/* All hits are in complete events, but this number of late ones of the first board. */
static void check_whole(struct sim *s, const struct sim_config *c, uint64_t late)
{
        const struct dfm_counts *d = dfm_counts(sim_dfm(s));

        check(d->complete == d->triggers && d->offered.not_taken == 0);
        for (uint32_t i = 0; i < c->n_ros; i++) {
                struct ros_slice_counts o = others(s, i);

                check(o.late == (i == 0 ? late : 0) && o.dropped == 0 && o.left_over == 0);
                check(o.used + o.late == HITS);
                check(slicer_counts(sim_slicer(s, i))->restarts == 0 &&
                      ros_counts(sim_ros(s, i))->restarts == 0);
        }
}

typedef void (*scene)(struct sim_config *c);
typedef void (*verify)(struct sim *s, const struct sim_config *c);

/* With one board and with three, in push and pull. */
static void each_farm(unsigned seeds, scene prepare, verify check_scene)
{
        FOR_SEEDS(seed, seeds)
        {
                for (int k = 0; k < 4; k++) {
                        struct sim_config c = with_slices(k < 2 ? 1 : 3, k % 2, seed);
                        struct sim *s;

                        prepare(&c);
                        s = sim_now = sim_new(&c);
                        finish(s, &c);
                        check_scene(s, &c);
                        sim_free(s);
                }
        }
}

#define FARM_SCENE(name, seeds, check_scene)                                                                 \
        SCENE_OF(each_farm, name, (struct sim_config * c), seeds, name##_scene, check_scene)

static void check_nothing_late(struct sim *s, const struct sim_config *c)
{
        check_whole(s, c, 0);
}

/* Half as long again as the window. */
FARM_SCENE(bursts_are_complete, 3, check_nothing_late)
{
        for (uint32_t i = 0; i < c->n_ros; i++)
                boards[i].burst_ns = 15 * NS_PER_MS + c->faults.seed % 3 * 20 * NS_PER_MS;
        c->slices.overlap_ns = c->faults.seed % 2 * SLICE_NS / 5;
}

static void pause_a_board(struct sim_config *c)
{
        static const uint64_t pauses_ns[] = {25 * NS_PER_MS, 99 * NS_PER_MS};

        boards[0].pause_at_ns = 500 * NS_PER_MS + c->faults.seed * 777 * NS_PER_US;
        boards[0].pause_ns = pauses_ns[c->faults.seed % 2];
}

TEST(pauses_are_complete)
{
        each_farm(4, pause_a_board, check_nothing_late);
}

static void check_rest_of_slice(struct sim *s, const struct sim_config *c)
{
        uint64_t late = others(s, 0).late;

        check(late <= 3);
        check_whole(s, c, late);
}

/* Longer than slices wait: the rest of one slice is late. */
FARM_SCENE(a_long_pause_costs_a_part_of_a_slice, 4, check_rest_of_slice)
{
        pause_a_board(c);
        boards[0].pause_ns = IDLE_NS + (1 + c->faults.seed % 7) * 10 * NS_PER_MS;
}

static uint64_t row_length(const struct sim_config *c)
{
        static const uint64_t lengths[] = {16, 64, 65, 240};

        return lengths[c->faults.seed % 4];
}

static void check_late_row(struct sim *s, const struct sim_config *c)
{
        check_whole(s, c, row_length(c));
        for (uint64_t k = 0; k < HITS; k++)
                check(sim_hit_is_built(s, 0, k) == (k < boards[0].late_from || k >= boards[0].late_until));
}

/* Another part of the same board continues. */
FARM_SCENE(rows_of_late_frames_are_late, 4, check_late_row)
{
        boards[0].late_from = 1000;
        boards[0].late_until = 1000 + row_length(c);
        boards[0].by_ns = 50 * NS_PER_MS;
}

/* All clocks begin again: after a while, the hits are in events again, and before it they were. */
static void check_begun_again(struct sim *s, const struct sim_config *c)
{
        for (uint32_t i = 0; i < c->n_ros; i++) {
                struct ros_slice_counts o = others(s, i);

                check(slicer_counts(sim_slicer(s, i))->restarts == 1);
                check(o.late >= IDLE_NS / PERIOD_NS && o.dropped == 0);
                /* The first slices that not all boards have are no events. */
                check(o.left_over <= 6);
                for (uint64_t k = 0; k < boards[i].begins_again; k++)
                        check(sim_hit_is_built(s, i, k));
                for (uint64_t k = HITS - 1000; k < HITS; k++)
                        check(sim_hit_is_built(s, i, k));
        }
}

FARM_SCENE(clocks_begin_again, 3, check_begun_again)
{
        for (uint32_t i = 0; i < c->n_ros; i++)
                boards[i].begins_again = 2000 + c->faults.seed % 10 * 100;
}

static void check_others(struct sim *s, const struct sim_config *c)
{
        check(slicer_counts(sim_slicer(s, 0))->restarts == 1 && others(s, 0).late > 0);
        for (uint32_t i = 1; i < c->n_ros; i++)
                check(others(s, i).used == HITS);
}

/* The clock of one board restarts. The others continue. */
FARM_SCENE(a_clock_begins_again, 3, check_others)
{
        c->slices.optional = 1;
        boards[0].begins_again = 2000 + c->faults.seed % 10 * 100;
}

/* Its fragments are absent instead of empty: events wait for them, and are partial. */
static void check_silent(struct sim *s, const struct sim_config *c)
{
        const struct dfm_counts *d = dfm_counts(sim_dfm(s));
        uint64_t silent = boards[0].silent_ns / SLICE_NS;

        for (uint32_t i = 0; i < c->n_ros; i++)
                check(others(s, i).used == boards[i].hits);
        if (c->n_ros == 1)
                check_whole(s, c, 0);
        else
                check(d->partial >= silent - 2 * WAIT_NS / SLICE_NS && d->partial <= silent);
}

/* The first board has nothing for a second, while the others have. */
FARM_SCENE(a_silent_board_is_absent, 1, check_silent)
{
        boards[0].silent_from = 2000;
        boards[0].silent_ns = NS_PER_S;
        for (uint32_t i = 1; i < c->n_ros; i++)
                boards[i].hits += NS_PER_S / PERIOD_NS;
}

/* Nobody has anything for half a second: there are no events, and then all are complete. */
FARM_SCENE(a_stopped_beam_costs_nothing, 1, check_nothing_late)
{
        for (uint32_t i = 0; i < c->n_ros; i++) {
                boards[i].silent_from = 2000;
                boards[i].silent_ns = 500 * NS_PER_MS;
        }
}
