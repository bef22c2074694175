/* The public side of the simulated system: create, run, disturb and inspect it. */
#include "sim.h"

#include <assert.h>
#include <stdlib.h>

#include "base/util.h"
#include "data/joiner.h"
#include "data/slicer.h"
#include "sim_internal.h"

struct sim_config sim_standard(void)
{
        return (struct sim_config){
                .n_ros = 6,
                .n_sfi = 2,
                .push = true,
                .events = 300,
                .rate_millihertz = 5000000,
                .fragment_bytes = 1000,
                .latency_ns = 50000,
                .write_ns = 20000,
                .sfi_buffer_bytes = 16u << 20,
                .sfi_slots = 128,
                .sfi_credits = 0,
                .timeout_ns = 2 * NS_PER_S,
                .faults.seed = 1,
        };
}

struct sim *sim_new(const struct sim_config *config)
{
        struct sim *s = calloc(1, sizeof *s);

        s->config = *config;
        s->n_nodes = 1 + config->n_ros + config->n_sfi;
        s->nodes = calloc(s->n_nodes, sizeof *s->nodes);
        /* Behind the events: those of numbers that a board made up. */
        s->events = calloc(2 * MAX(MAX(config->events, config->boards.free), UINT64_C(1)), sizeof *s->events);
        s->processes = calloc(1, sizeof *s->processes);
        assert(s->nodes && s->events && s->processes && chunk_packer_new(&s->packer, SIM_MTU_BYTES, 64) == 0);
        fault_init(&s->fault, &config->faults);
        random_init(&s->random, config->faults.seed);
        for (uint32_t i = 0; i < s->n_nodes; i++)
                s->nodes[i].wake_ns = NEVER_NS;
        sim_make_nodes(s);
        sim_boards_run_free(s);
        sim_slices_begin(s);
        return s;
}

struct sim *sim_free(struct sim *s)
{
        for (uint32_t i = 0; i < s->n_nodes; i++) {
                struct sim_node *n = &s->nodes[i];

                if (n->role == ROLE_DFM)
                        dfm_free(n->dfm);
                else if (n->role == ROLE_ROS)
                        ros_free(n->ros);
                else
                        sfi_free(n->sfi);
                sim_live_free(n);
                slicer_free(n->slicer);
                joiner_free(n->joiner);
                free(n->reached);
                free(n->joined);
                free(n->built);
                free(n->copied);
                free(n->buffer);
                free(n->writing);
                free(n->written_ns);
        }
        sim_drop_items(s);
        chunk_packer_free(s->packer);
        free(s->nodes);
        free(s->events);
        sim_farm_fini(&s->farm);
        free(s->processes);
        free(s);
        return NULL;
}

static void return_refused(struct sim *s, struct sim_node *n)
{
        if (!s->config.returns || !n->live)
                return;
        if (n->role == ROLE_ROS && ros_member(n->ros)->refusal == WELCOME_OVER)
                sim_restart_ros(s, n->index);
        if (n->role == ROLE_SFI && sfi_member(n->sfi)->refusal == WELCOME_OVER)
                sim_restart_sfi(s, n->index);
}

/* Passes one item to its node, and gives the node its turn. */
static void pass(struct sim *s, struct sim_item item)
{
        struct sim_node *n = &s->nodes[item.node];

        sim_live_act(s, item.due_ns);
        s->now_ns = MAX(s->now_ns, item.due_ns);
        if (item.kind == ITEM_PACKET && n->live)
                sim_receive(s, n, item.bytes, item.n);
        if (item.kind == ITEM_FRAME)
                sim_boards_deliver(s, n, item.trigger);
        free(item.bytes);
        if (item.kind == ITEM_TIMER) {
                if (n->wake_ns != item.due_ns)
                        return;
                n->wake_ns = NEVER_NS;
        }
        sim_turn(s, n);
        return_refused(s, n);
}

bool sim_run(struct sim *s, uint64_t until_ns)
{
        struct sim_item item;

        while (!dfm_is_done(s->nodes[0].dfm) && s->now_ns < until_ns && sim_pop(s, &item))
                pass(s, item);
        return dfm_is_done(s->nodes[0].dfm);
}

void sim_settle(struct sim *s, uint64_t ns)
{
        uint64_t until_ns = s->now_ns + ns;
        struct sim_item item;

        s->nodes[0].live = false;
        while (s->now_ns < until_ns && sim_pop(s, &item))
                pass(s, item);
}

static struct sim_node *find(struct sim *s, enum node_role role, uint32_t index)
{
        return &s->nodes[role == ROLE_DFM ? 0 : role == ROLE_ROS ? 1 + index : 1 + s->config.n_ros + index];
}

void sim_kill(struct sim *s, enum node_role role, uint32_t index)
{
        find(s, role, index)->live = false;
}

void sim_restart_sfi(struct sim *s, uint32_t index)
{
        struct sim_node *n = find(s, ROLE_SFI, index);

        sfi_free(n->sfi);
        sim_make_sfi(s, n);
        n->live = true;
        n->wake_ns = NEVER_NS;
        sim_set_timer(s, (uint32_t)(n - s->nodes), s->now_ns);
}

void sim_restart_ros(struct sim *s, uint32_t index)
{
        struct sim_node *n = find(s, ROLE_ROS, index);

        ros_free(n->ros);
        free(n->buffer);
        free(n->writing);
        n->frames = 0;
        sim_make_ros(s, n);
        n->live = true;
        n->wake_ns = NEVER_NS;
        sim_set_timer(s, (uint32_t)(n - s->nodes), s->now_ns);
}

static void record_forgotten(struct sim *s, const struct dfm *d)
{
        if (!s->resumes || !dfm_has_begun(d))
                return;
        s->forgotten += s->triggers - MIN(s->triggers, dfm_counts(d)->triggers);
        s->resumes = false;
}

void sim_remember(struct sim *s, const struct dfm *d)
{
        uint64_t version = dfm_processes_version(d);

        record_forgotten(s, d);
        if (version == s->processes_version || dfm_state(d) == RUN_ENDED)
                return;
        s->processes_version = version;
        dfm_processes_fill(d, s->processes);
        s->begun_ns = s->begun_ns ?: s->now_ns;
}

void sim_restart_dfm(struct sim *s)
{
        struct sim_node *n = find(s, ROLE_DFM, 0);

        s->triggers = s->resumes ? s->triggers : dfm_counts(n->dfm)->triggers;
        s->resumes = true;
        dfm_free(n->dfm);
        sim_make_dfm(s, n);
        n->live = true;
        n->wake_ns = NEVER_NS;
        sim_set_timer(s, 0, s->now_ns);
}

void sim_stop_nodes(struct sim *s)
{
        for (uint32_t i = 1; i < s->n_nodes; i++) {
                struct sim_node *n = &s->nodes[i];

                if (n->role == ROLE_ROS)
                        ros_stop(n->ros, s->now_ns);
                else
                        sfi_stop(n->sfi, s->now_ns);
                sim_set_timer(s, i, s->now_ns);
        }
}

void sim_cut(struct sim *s, enum node_role role, uint32_t index, bool cut)
{
        find(s, role, index)->cut = cut;
}

bool sim_lives(struct sim *s, enum node_role role, uint32_t index)
{
        return find(s, role, index)->live;
}

void sim_inject(struct sim *s, enum node_role role, uint32_t index, const void *bytes, size_t n)
{
        sim_send(s, (uint32_t)(find(s, role, index) - s->nodes), bytes, n);
}

uint64_t sim_now_ns(const struct sim *s)
{
        return s->now_ns;
}

struct dfm *sim_dfm(struct sim *s)
{
        return s->nodes[0].dfm;
}

struct ros *sim_ros(struct sim *s, uint32_t index)
{
        return find(s, ROLE_ROS, index)->ros;
}

struct sfi *sim_sfi(struct sim *s, uint32_t index)
{
        return find(s, ROLE_SFI, index)->sfi;
}

const struct sim_event *sim_event(const struct sim *s, uint64_t event)
{
        return &s->events[event];
}

uint64_t sim_wrong_bytes(const struct sim *s)
{
        return s->wrong_bytes;
}

uint64_t sim_forgotten_triggers(const struct sim *s)
{
        return s->forgotten;
}

uint64_t sim_wrong_decisions(const struct sim *s)
{
        return s->wrong_decisions;
}

uint32_t sim_most_open(const struct sim *s)
{
        return s->most_open;
}

bool sim_accepts(const struct sim *s, uint64_t event)
{
        return sim_farm_accepts(&s->farm, event);
}

uint64_t sim_written(const struct sim *s, uint32_t sfi)
{
        return s->nodes[1 + s->config.n_ros + sfi].written;
}

uint64_t sim_fragments_arrived(const struct sim *s, uint32_t ros)
{
        const struct sim_node *n = &s->nodes[1 + ros];

        return n->slicer || n->joiner ? n->slices : n->frames;
}

uint64_t sim_frames(const struct sim *s, uint32_t ros)
{
        return s->nodes[1 + ros].frames;
}
