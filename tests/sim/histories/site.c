/* The public side of a site: create, run, disturb and inspect it. */
#include "site.h"

#include <assert.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "base/util.h"
#include "data/joiner.h"
#include "data/slicer.h"
#include "site_internal.h"

/* After this time, evb sim would check that the run makes progress. The histories have limits of their own.
 */
#define NEVER_CALM_NS (NEVER_NS / 2)
#define LATENCY_NS (50 * NS_PER_US)

struct site *site_of(const struct sim *sim)
{
        return (struct site *)(void *)((uint8_t *)(uintptr_t)sim->scenario - offsetof(struct site, scenario));
}

/* With as many nodes as a history may have. */
static const struct scenario *usual_scenario(void)
{
        static const char *const settings[] = {
                "ros.count=4",          "sfi.count=3",
                "test.keep-alive=20ms", "dfm.node-timeout=200ms",
                "qos.backend=none",     "network.link-rate=unlimited",
                "trigger.events=1",     "scenario.transport=udp",
        };
        static struct scenario *s;
        struct scenario_errors *errors;

        if (s)
                return s;
        s = calloc(1, sizeof *s);
        errors = malloc(sizeof *errors);
        assert(s && errors);
        if (scenario_load(s, "/dev/null", settings, ARRAY_SIZE(settings), errors) < 0)
                assert(!errors->text[0]);
        free(errors);
        return s;
}

static enum scenario_trigger trigger_of(const struct site_config *c)
{
        return c->outside               ? TRIGGER_UDP
               : c->slices.slice_ns > 0 ? TRIGGER_CLOCK
               : c->boards.free > 0     ? TRIGGER_FRAMES
                                        : TRIGGER_INTERNAL;
}

static void set_keys(struct scenario *s, const struct site_config *c)
{
        s->scenario.mode = c->push ? MODE_PUSH : MODE_PULL;
        s->trigger.rate_millihertz = c->rate_millihertz;
        s->trigger.source_kind = trigger_of(c);
        s->trigger.events = c->boards.free > 0 || c->slices.slice_ns > 0 ? 0 : c->events;
        s->trigger.slice_ns = c->slices.slice_ns;
        s->trigger.overlap_ns = c->slices.overlap_ns;
        s->trigger.window_ns = c->boards.window_ns;
        s->dfm.event_timeout_ns = SITE_EVENT_TIMEOUTS * c->timeout_ns;
        s->level2.port = c->level2;
        s->level2.timeout_ns = 60 * NS_PER_S;
        s->level2.rejects = true;
        s->ros.count = c->n_ros;
        s->ros.buffer_size_bytes = s->sfi.buffer_size_bytes = c->buffer_bytes;
        s->ros.buffer_events = c->ros_entries;
        s->ros.wait_ns = c->timeout_ns / 2;
        s->ros.sizes_kind = SIZES_UNIFORM;
        s->ros.sizes_least_bytes = 0;
        s->ros.sizes_most_bytes = 2 * c->fragment_bytes;
        s->sfi.count = c->n_sfi;
        s->sfi.timeout_ns = c->timeout_ns;
        s->sfi.credits = c->sfi_credits;
        s->sfi.output = OUTPUT_FILE;
        s->network.loss = c->faults.loss;
        s->network.reorder = c->faults.reorder;
        s->network.duplicate = c->faults.duplicate;
}

static void set_board(struct scenario_node *n, const struct site_config *c)
{
        const struct site_counter counter = site_boards_counter(c, n->index);
        struct scenario_board *b = &n->board;

        if (c->boards.bits == 0 && c->slices.slice_ns == 0)
                return;
        n->source_kind = c->arrive_stream ? SOURCE_TCP : SOURCE_UDP;
        b->number.bits = c->boards.bits;
        if (c->boards.mixed > 0) {
                b->number.modulus = counter.period;
                b->number_from = counter.from;
        }
        b->join = c->boards.joins.rule;
        b->time.bits = c->slices.slice_ns > 0 ? 64 : 0;
        b->tick_ns = 1;
}

static void make_scenario(struct scenario *s, const struct site_config *c)
{
        const struct scenario *usual = usual_scenario();

        memcpy(s, usual, offsetof(struct scenario, nodes));
        for (size_t i = 0; i < usual->n_nodes; i++) {
                const struct scenario_node *n = &usual->nodes[i];

                if ((n->role == ROLE_ROS && n->index >= c->n_ros) ||
                    (n->role == ROLE_SFI && n->index >= c->n_sfi))
                        continue;
                s->nodes[s->n_nodes] = *n;
                if (n->role == ROLE_ROS)
                        set_board(&s->nodes[s->n_nodes], c);
                s->n_nodes++;
        }
        set_keys(s, c);
}

struct site *site_new(const struct site_config *config)
{
        struct site *s = calloc(1, sizeof *s);
        struct sim_config sim = {.scenario = &s->scenario, .seed = config->faults.seed};
        struct error e = {};

        assert(s);
        s->config = *config;
        make_scenario(&s->scenario, config);
        sim.model = sim_model_usual;
        sim.model.propagation_ns = LATENCY_NS;
        s->n_nodes = (uint32_t)s->scenario.n_nodes;
        s->nodes = calloc(s->n_nodes, sizeof *s->nodes);
        /* Behind the events: those of numbers that a board made up. */
        s->events = calloc(2 * MAX(MAX(config->events, config->boards.free), UINT64_C(1)), sizeof *s->events);
        assert(s->nodes && s->events && sim_new(&s->sim, &sim, &e) == 0);
        s->sim->calm_ns = NEVER_CALM_NS;
        s->sim->farm.config.accept_percent = config->accept_percent;
        s->sim->farm.config.decide_ns = config->farm_ns;
        random_init(&s->random, config->faults.seed);
        for (uint32_t i = 0; i < s->n_nodes; i++) {
                s->nodes[i].sim = &s->sim->nodes[i];
                site_nodes_make(s, &s->nodes[i]);
        }
        site_boards_run_free(s);
        site_slices_begin(s);
        return s;
}

struct site *site_free(struct site *s)
{
        for (uint32_t i = 0; i < s->n_nodes; i++) {
                struct site_node *n = &s->nodes[i];

                site_live_free(n);
                slicer_free(n->slicer);
                joiner_free(n->joiner);
                free(n->arriving);
                free(n->reached);
                free(n->joined);
                free(n->built);
                free(n->copied);
                free(n->writing);
                free(n->written_ns);
        }
        sim_free(s->sim);
        free(s->nodes);
        free(s->events);
        free(s);
        return NULL;
}

const struct scenario *site_scenario(const struct site *s)
{
        return &s->scenario;
}

bool site_run(struct site *s, uint64_t until_ns)
{
        (void)sim_run_until(s->sim, until_ns);
        return s->sim->is_over;
}

void site_settle(struct site *s, uint64_t ns)
{
        s->sim->is_over = false;
        (void)sim_run_until(s->sim, site_now_ns(s) + ns);
}

static struct site_node *find(const struct site *s, enum node_role role, uint32_t index)
{
        return &s->nodes[role == ROLE_DFM ? 0 : role == ROLE_ROS ? 1 + index : 1 + s->config.n_ros + index];
}

void site_kill(struct site *s, enum node_role role, uint32_t index)
{
        sim_process_end(s->sim, find(s, role, index)->sim);
}

void site_start(struct site *s, struct site_node *n)
{
        if (n->sim->self->role == ROLE_DFM) {
                s->triggers = s->resumes ? s->triggers : dfm_counts(n->sim->dfm)->triggers;
                s->resumes = true;
        }
        sim_process_end(s->sim, n->sim);
        assert(sim_process_start(s->sim, n->sim) == 0);
        site_nodes_make(s, n);
}

void site_restart(struct site *s, enum node_role role, uint32_t index)
{
        site_start(s, find(s, role, index));
}

void site_stop_nodes(struct site *s)
{
        for (uint32_t i = 1; i < s->n_nodes; i++) {
                struct sim_node *n = s->nodes[i].sim;

                if (n->self->role == ROLE_ROS)
                        ros_stop(n->ros, site_now_ns(s));
                else
                        sfi_stop(n->sfi, site_now_ns(s));
                sim_wake(s->sim, n, s->sim->now_ps);
        }
}

void site_cut(struct site *s, enum node_role role, uint32_t index, bool cut)
{
        find(s, role, index)->sim->is_cut = cut;
        s->sim->has_cuts = true;
}

bool site_lives(struct site *s, enum node_role role, uint32_t index)
{
        return find(s, role, index)->sim->is_live;
}

void site_wake_dfm(struct site *s)
{
        sim_wake(s->sim, s->nodes[0].sim, s->sim->now_ps);
}

uint64_t site_now_ns(const struct site *s)
{
        return sim_now_ns(s->sim);
}

struct dfm *site_dfm(struct site *s)
{
        return s->nodes[0].sim->dfm;
}

struct ros *site_ros(struct site *s, uint32_t index)
{
        return find(s, ROLE_ROS, index)->sim->ros;
}

struct sfi *site_sfi(struct site *s, uint32_t index)
{
        return find(s, ROLE_SFI, index)->sim->sfi;
}

const struct site_event *site_event(const struct site *s, uint64_t event)
{
        return &s->events[event];
}

uint64_t site_wrong_bytes(const struct site *s)
{
        return s->wrong_bytes;
}

const char *site_violation(const struct site *s)
{
        return s->sim->violation[0] ? s->sim->violation : NULL;
}

uint64_t site_forgotten_triggers(const struct site *s)
{
        return s->forgotten;
}

uint64_t site_wrong_decisions(const struct site *s)
{
        return s->wrong_decisions;
}

bool site_accepts(const struct site *s, uint64_t event)
{
        return sim_farm_accepts(&s->sim->farm, event);
}

uint64_t site_written(const struct site *s, uint32_t sfi)
{
        return find(s, ROLE_SFI, sfi)->written;
}

uint64_t site_fragments_arrived(const struct site *s, uint32_t ros)
{
        const struct site_node *n = find(s, ROLE_ROS, ros);

        return n->slicer || n->joiner ? n->slices : n->frames;
}

uint64_t site_frames(const struct site *s, uint32_t ros)
{
        return find(s, ROLE_ROS, ros)->frames;
}
