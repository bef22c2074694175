/* The exit status of the nodes and of the run, as the product judges a history. The reasons of DFM and run
 * are the product's own functions. Those of ROSs and SFIs belong to their processes: what their cores count
 * is judged here as role_ros.c and role_sfi.c do. */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "node/dfm_reasons.h"
#include "base/util.h"
#include "data/front_end.h"
#include "data/slicer.h"
#include "data/trigger_input.h"
#include "run/summary.h"
#include "history.h"

#define NODES_MAX 16

static struct scenario scenario;
static struct node_stats stats[NODES_MAX];
static struct child children[NODES_MAX];

static void name_nodes(const struct history *h)
{
        const struct sim_config *c = &h->config;
        uint32_t n = 1 + c->n_ros + c->n_sfi;

        assert(n <= NODES_MAX);
        scenario.n_nodes = n;
        scenario.ros.count = c->n_ros;
        scenario.sfi.count = c->n_sfi;
        scenario.sfi.output = OUTPUT_FILE;
        scenario.level2.port = c->level2.on;
        scenario.trigger.source_kind = h->box.on                ? TRIGGER_UDP
                                       : c->slices.slice_ns > 0 ? TRIGGER_CLOCK
                                       : c->boards.free > 0     ? TRIGGER_FRAMES
                                                                : TRIGGER_INTERNAL;
        for (uint32_t i = 0; i < n; i++) {
                struct scenario_node *s = &scenario.nodes[i];

                s->role = i == 0 ? ROLE_DFM : i <= c->n_ros ? ROLE_ROS : ROLE_SFI;
                s->index = i == 0 ? 0 : i <= c->n_ros ? i - 1 : i - 1 - c->n_ros;
                s->required = true;
                s->board.number.bits = c->boards.bits;
                s->board.join = c->boards.joins.rule;
                s->board.time.bits = c->slices.slice_ns > 0 ? 64 : 0;
                s->source_kind = (c->boards.bits > 0 || c->slices.slice_ns > 0) && s->role == ROLE_ROS
                                         ? SOURCE_UDP
                                         : SOURCE_PATTERN;
                snprintf(s->name, sizeof s->name, "%s%u", scenario_role_name(s->role),
                         (unsigned)s->index + 1);
        }
}

static void judge_dfm(struct history *h, struct node_stats *s, struct reasons *to)
{
        static const struct idle idle;
        const struct dfm *d = sim_dfm(h->sim);

        stats_copy_dfm(s, d);
        trigger_input_publish(d, s);
        dfm_reasons(d, &scenario, &idle, to);
        trigger_input_reasons(d, &scenario, s, to);
}

static void judge_slices(struct history *h, uint32_t ros, struct node_stats *s, struct reasons *to)
{
        slicer_account(sim_slicer(h->sim, ros), sim_ros(h->sim, ros), s);
        if (stats_get(&s->slice_frames_late) > 0)
                reasons_add(to, "ros%u lost frames that came after their slice was closed", ros + 1);
        if (stats_get(&s->slice_frames_dropped) > 0)
                reasons_add(to, "ros%u dropped frames with times", ros + 1);
}

static void judge_ros(struct history *h, uint32_t ros, struct node_stats *s, struct reasons *to)
{
        const struct ros_counts *c = ros_counts(sim_ros(h->sim, ros));

        stats_copy_ros(s, sim_ros(h->sim, ros));
        stats_set(&s->front_end_frames, sim_fragments_arrived(h->sim, ros));
        if (sim_slicer(h->sim, ros))
                judge_slices(h, ros, s, to);
        else
                front_end_discard_reasons(sim_ros(h->sim, ros), to);
        if (sim_joiner(h->sim, ros)) {
                joiner_account(sim_joiner(h->sim, ros), sim_ros(h->sim, ros), s);
                joiner_reasons(sim_joiner(h->sim, ros), sim_ros(h->sim, ros), to);
        }
        if (c->dropped > 0)
                reasons_add(to, "ros%u dropped %llu frames", ros + 1, (unsigned long long)c->dropped);
        if (c->restarts > 0)
                reasons_add(to, "the board of ros%u fell out of step", ros + 1);
}

static void judge_sfi(struct history *h, uint32_t sfi, struct node_stats *s, struct reasons *to)
{
        const struct sfi *core = sim_sfi(h->sim, sfi);

        stats_copy_sfi(s, core);
        stats_set(&s->events_stored, sim_written(h->sim, sfi));
        if (sfi_counts(core).mismatched > 0)
                reasons_add(to, "sfi%u refused fragments of other triggers", sfi + 1);
        if (sfi_unacknowledged(core) > 0)
                reasons_add(to, "the DFM did not acknowledge events of sfi%u", sfi + 1);
}

static void judge_node(struct history *h, uint32_t i)
{
        const struct scenario_node *n = &scenario.nodes[i];
        struct reasons own = {};

        memset(&stats[i], 0, offsetof(struct node_stats, latency_ns));
        atomic_store(&stats[i].state, NODE_ENDED);
        if (n->role == ROLE_DFM)
                judge_dfm(h, &stats[i], &own);
        else if (!sim_lives(h->sim, n->role, (uint32_t)n->index))
                return;
        else if (n->role == ROLE_ROS)
                judge_ros(h, (uint32_t)n->index, &stats[i], &own);
        else
                judge_sfi(h, (uint32_t)n->index, &stats[i], &own);
        children[i] = (struct child){.node = n, .stats = &stats[i], .status = own.n > 0 ? 1 << 8 : 0};
        for (size_t k = 0; k < MIN(own.n, (size_t)REASONS_MAX); k++)
                reasons_add(&h->reasons, "%s", own.text[k]);
}

/* The judgement of `evb run`: all nodes are its children, and none of them is replaced. */
static void judge_run(struct history *h)
{
        static FILE *nowhere;
        struct launch_options options = {.quiet = true};
        struct launch l = {.options = &options,
                           .scenario = &scenario,
                           .children = children,
                           .n_children = scenario.n_nodes};

        nowhere = nowhere ?: fopen("/dev/null", "w");
        assert(nowhere);
        options.json = nowhere;
        if (summary_write(&l) != 0 && h->reasons.n == 0)
                reasons_add(&h->reasons, "evb run finds that the accounts do not balance");
}

void history_judge(struct history *h)
{
        name_nodes(h);
        for (uint32_t i = 0; i < scenario.n_nodes; i++)
                judge_node(h, i);
        if (!h->has_deaths)
                judge_run(h);
        h->status = h->reasons.n > 0;
}
