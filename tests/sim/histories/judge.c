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

static struct node_stats stats[NODES_MAX];
static struct child children[NODES_MAX];

static void judge_dfm(struct history *h, struct node_stats *s, struct reasons *to)
{
        static const struct idle idle;
        const struct dfm *d = site_dfm(h->site);

        stats_copy_dfm(s, d);
        trigger_input_publish(d, s);
        dfm_reasons(d, site_scenario(h->site), &idle, to);
        trigger_input_reasons(d, site_scenario(h->site), s, to);
}

static void judge_slices(struct history *h, uint32_t ros, struct node_stats *s, struct reasons *to)
{
        slicer_account(site_slicer(h->site, ros), site_ros(h->site, ros), s);
        if (stats_get(&s->slice_frames_late) > 0)
                reasons_add(to, "ros%u lost frames that came after their slice was closed", ros + 1);
        if (stats_get(&s->slice_frames_dropped) > 0)
                reasons_add(to, "ros%u dropped frames with times", ros + 1);
}

static void judge_ros(struct history *h, uint32_t ros, struct node_stats *s, struct reasons *to)
{
        const struct ros_counts *c = ros_counts(site_ros(h->site, ros));

        stats_copy_ros(s, site_ros(h->site, ros));
        stats_set(&s->front_end_frames, site_fragments_arrived(h->site, ros));
        if (site_slicer(h->site, ros))
                judge_slices(h, ros, s, to);
        else
                front_end_discard_reasons(site_ros(h->site, ros), to);
        if (site_joiner(h->site, ros)) {
                joiner_account(site_joiner(h->site, ros), site_ros(h->site, ros), s);
                joiner_reasons(site_joiner(h->site, ros), site_ros(h->site, ros), to);
        }
        if (c->dropped > 0)
                reasons_add(to, "ros%u dropped %llu frames", ros + 1, (unsigned long long)c->dropped);
        if (c->restarts > 0)
                reasons_add(to, "the board of ros%u fell out of step", ros + 1);
}

static void judge_sfi(struct history *h, uint32_t sfi, struct node_stats *s, struct reasons *to)
{
        const struct sfi *core = site_sfi(h->site, sfi);

        stats_copy_sfi(s, core);
        stats_set(&s->events_stored, site_written(h->site, sfi));
        if (sfi_counts(core).mismatched > 0)
                reasons_add(to, "sfi%u refused fragments of other triggers", sfi + 1);
        if (sfi_unacknowledged(core) > 0)
                reasons_add(to, "the DFM did not acknowledge events of sfi%u", sfi + 1);
}

static void judge_node(struct history *h, uint32_t i)
{
        const struct scenario_node *n = &site_scenario(h->site)->nodes[i];
        struct reasons own = {};

        memset(&stats[i], 0, offsetof(struct node_stats, latency_ns));
        atomic_store(&stats[i].state, NODE_ENDED);
        if (n->role == ROLE_DFM)
                judge_dfm(h, &stats[i], &own);
        else if (!site_lives(h->site, n->role, (uint32_t)n->index))
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
                           .scenario = site_scenario(h->site),
                           .children = children,
                           .n_children = site_scenario(h->site)->n_nodes};

        nowhere = nowhere ?: fopen("/dev/null", "w");
        assert(nowhere);
        options.json = nowhere;
        if (summary_write(&l) != 0 && h->reasons.n == 0)
                reasons_add(&h->reasons, "evb run finds that the accounts do not balance");
}

void history_judge(struct history *h)
{
        for (uint32_t i = 0; i < site_scenario(h->site)->n_nodes; i++)
                judge_node(h, i);
        if (!h->has_deaths)
                judge_run(h);
        h->status = h->reasons.n > 0;
}
