/* The loop of virtual time: executes the next turn of a process, arrival at the switch, or packet of a
 * queue. */
#include "sim/sim.h"

#include <errno.h>
#include <stdlib.h>

#include "conf/digest.h"
#include "data/network.h"
#include "node/role_config.h"
#include "sys/memory.h"
#include "sim_internal.h"

/* Same values as in data/data_receive_udp.c and node/control_messages.c. The kernel doubles the requested
 * size. */
#define RECEIVE_BUFFER_BYTES (8u << 20)
#define CONTROL_BUFFER_BYTES (4u << 20)
/* Time for which the other nodes continue to run after the last DFM has exited. */
#define ORPHANS_NS NS_PER_S

void sim_prepare(struct scenario *s)
{
        s->sfi.output = OUTPUT_NULL;
        for (size_t i = 0; i < s->n_nodes; i++) {
                if (s->nodes[i].address[0] == '\0')
                        snprintf(s->nodes[i].address, sizeof s->nodes[i].address, "10.69.%u.%u",
                                 (unsigned)(i + 1) / 256, (unsigned)(i + 1) % 256);
        }
}

int sim_check(const struct scenario *s, struct error *e)
{
        if (s->scenario.transport != TRANSPORT_UDP)
                return error_set(e, -EINVAL, "scenario.transport: tcp is not modelled; expected udp");
        if (s->ros.pacing_bps > 0)
                return error_set(e, -EINVAL, "test.pacing: pacing is not modelled; expected none");
        if (s->scenario.duration_ns == 0 && s->trigger.events == 0)
                return error_set(e, -EINVAL,
                                 "scenario.duration, trigger.events: the run has no end; expected one of "
                                 "them");
        return sim_front_ends_check(s, e);
}

static int open_node(struct sim *s, struct sim_node *n, struct error *e)
{
        const struct scenario *sc = s->scenario;
        const struct pattern_sizes sizes = source_sizes_of(sc);
        int r = 0;

        n->stats = calloc(1, sizeof *n->stats);
        n->previous = calloc(1, sizeof *n->previous);
        n->turn_ps = NEVER_NS;
        n->link.rate_bps = n->port.rate_bps = sc->network.link_rate_bps;
        n->port.buffer_bytes = sc->network.switch_buffer_bytes;
        for (uint32_t i = 0; i < s->config.model.uplinks; i++)
                s->uplinks[i] = n->port;
        n->inboxes[SOCKET_DATA].room_bytes = 2 * (sc->network.socket_buffer_bytes ?: RECEIVE_BUFFER_BYTES);
        n->inboxes[SOCKET_NUMBERS].room_bytes =
                n->self->role == ROLE_ROS && n->self->source_kind == SOURCE_TCP ? UINT64_MAX
                                                                                : 2 * RECEIVE_BUFFER_BYTES;
        n->inboxes[SOCKET_CONTROL].room_bytes = 2 * CONTROL_BUFFER_BYTES;
        if (!n->stats || !n->previous)
                return error_set(e, -ENOMEM, "%m");
        if (n->self->role == ROLE_ROS) {
                n->paths = calloc(s->n_sfi, sizeof *n->paths);
                r = n->paths ? source_new_pattern(&n->source, n->self->index, sc->run.seed, &sizes) : -ENOMEM;
        }
        if (r >= 0)
                r = sim_process_start(s, n);
        if (r < 0)
                return error_set(e, r, "%s: %m", n->self->name);
        return n->self->role == ROLE_ROS ? sim_shaping_open(s, n, e) : 0;
}

static void count_nodes(struct sim *s)
{
        for (uint32_t i = 0; i < s->n_nodes; i++) {
                const struct scenario_node *n = &s->scenario->nodes[i];

                s->nodes[i].self = n;
                s->nodes[i].number = i;
                if (n->role == ROLE_DFM)
                        s->dfm = i;
                else if (n->role == ROLE_ROS)
                        s->node_of_ros[n->index] = i;
                else
                        s->node_of_sfi[n->index] = i;
        }
}

static int open_all(struct sim *s, struct error *e)
{
        const struct scenario *sc = s->scenario;
        int r;

        s->nodes = calloc(s->n_nodes, sizeof *s->nodes);
        s->node_of_ros = calloc(EVB_ROS_MAX, sizeof *s->node_of_ros);
        s->node_of_sfi = calloc(EVB_SFI_MAX, sizeof *s->node_of_sfi);
        if (!s->nodes || !s->node_of_ros || !s->node_of_sfi)
                return error_set(e, -ENOMEM, "%m");
        r = heap_init(&s->heap, s->n_nodes * ITEMS);
        if (r >= 0)
                r = chunk_packer_new(&s->packer, network_datagram_bytes(sc), SIM_JOBS);
        if (r < 0)
                return error_set(e, r, "%m");
        count_nodes(s);
        s->farm_ns = NEVER_NS;
        r = sim_level2_open(s, e);
        sim_faults_prepare(s);
        for (uint32_t i = 0; r >= 0 && i < s->n_nodes; i++)
                r = open_node(s, &s->nodes[i], e);
        return r;
}

int sim_new(struct sim **ret, const struct sim_config *config, struct error *e)
{
        const struct scenario *sc = config->scenario;
        struct sim *s = calloc(1, sizeof *s);
        int r;

        if (!s)
                return error_set(e, -ENOMEM, "%m");
        s->config = *config;
        s->processes = sim_must(calloc(1, sizeof *s->processes));
        s->payload = sim_must(memory_map(EVB_FRAGMENT_MAX_BYTES));
        s->scenario = sc;
        s->n_nodes = (uint32_t)sc->n_nodes;
        s->n_ros = (uint32_t)sc->ros.count;
        s->n_sfi = (uint32_t)sc->sfi.count;
        s->send_buffer_bytes = 2 * (sc->network.socket_buffer_bytes ?: SCENARIO_SEND_BUFFER_BYTES);
        s->run = sc->run.number == SCENARIO_AUTO || sc->run.number == SCENARIO_NEXT
                         ? 1
                         : (uint32_t)sc->run.number;
        s->previous.known = true;
        random_init(&s->random, config->seed);
        s->digest = random_mix(config->seed);
        scenario_digest(sc, &s->keys);
        role_ros_rules(sc, s->rules);
        r = open_all(s, e);
        if (r < 0) {
                sim_free(s);
                return r;
        }
        *ret = s;
        return 0;
}

static void close_node(struct sim *s, struct sim_node *n)
{
        sim_process_end(s, n);
        sim_process_free(n);
        sim_queue_fini(&n->wire);
        for (uint32_t i = 0; i < SOCKETS; i++)
                sim_queue_fini(&n->inboxes[i].queue);
        for (uint32_t i = 0; n->paths && i < s->n_sfi; i++)
                sim_queue_fini(&n->paths[i].queue);
        sim_shaping_fini(n);
        source_free(n->source);
        sim_ends_forget(n);
        sim_coverage_clear_all(s, n);
        free(n->paths);
        free(n->buffer);
        free(n->slots);
        free(n->stats);
        free(n->previous);
}

struct sim *sim_free(struct sim *s)
{
        if (!s)
                return NULL;
        s->config.trace = NULL;
        for (uint32_t i = 0; s->nodes && i < s->n_nodes; i++)
                close_node(s, &s->nodes[i]);
        chunk_packer_free(s->packer);
        memory_unmap(s->payload, EVB_FRAGMENT_MAX_BYTES);
        heap_fini(&s->heap);
        sim_farm_fini(&s->farm);
        free(s->ends.events);
        free(s->processes);
        free(s->nodes);
        free(s->node_of_ros);
        free(s->node_of_sfi);
        free(s);
        return NULL;
}

static uint64_t deadline_ns(const struct sim *s, const struct sim_node *n)
{
        switch (n->self->role) {
        case ROLE_DFM:
                return sim_dfm_deadline_ns(s, n);
        case ROLE_ROS:
                return sim_ros_deadline_ns(s, n);
        default:
                return sim_sfi_deadline_ns(s, n);
        }
}

/* Returns the duration of this turn's work. */
static uint64_t work_ns(const struct sim_model *m, const struct sim_node *n)
{
        return n->worked_packets * m->packet_ns + n->worked_sends * m->send_ns +
               n->worked_chunks * m->fragment_ns;
}

/* If a process works for longer than it sleeps, it is never early. */
static void plan_turn(struct sim *s, struct sim_node *n)
{
        uint64_t deadline = deadline_ns(s, n), next_ps = NEVER_NS;

        for (uint32_t i = 0; i < SOCKETS; i++)
                next_ps = MIN(next_ps, sim_inbox_next_ps(&n->inboxes[i]));
        if (deadline != NEVER_NS)
                next_ps = MIN(next_ps, deadline * PS_PER_NS);
        if (next_ps != NEVER_NS)
                sim_wake(s, n, MAX(next_ps, s->now_ps + 1));
}

static void take_turn(struct sim *s, struct sim_node *n)
{
        n->turn_ps = NEVER_NS;
        n->worked_packets = n->worked_sends = n->worked_chunks = 0;
        sim_sockets_look(s, n);
        if (n->self->role == ROLE_DFM)
                sim_dfm_turn(s, n);
        else if (n->self->role == ROLE_ROS)
                sim_ros_turn(s, n);
        else
                sim_sfi_turn(s, n);
        sim_check_node(s, n);
        n->free_ps = s->now_ps + work_ns(&s->config.model, n) * PS_PER_NS;
        if (!n->has_left)
                plan_turn(s, n);
        else if (n->self->role == ROLE_DFM)
                s->is_over = true;
        /* The item is removed only now, because moving it costs less than removing and inserting it. */
        if (n->turn_ps == NEVER_NS)
                sim_schedule(s, n, ITEM_TURN, NEVER_NS);
}

/* Executes the turn if a processor is free; otherwise postpones it until one is. */
static void share_turn(struct sim *s, struct sim_node *n)
{
        uint64_t *first = s->processors_ps;

        for (uint32_t i = 1; i < s->config.model.processors; i++) {
                if (s->processors_ps[i] < *first)
                        first = &s->processors_ps[i];
        }
        if (s->config.model.processors > 0 && *first > s->now_ps) {
                n->turn_ps = *first;
                sim_schedule(s, n, ITEM_TURN, n->turn_ps);
                return;
        }
        take_turn(s, n);
        *first = n->free_ps;
}

/* Whether the DFM has exited, no fault will restart it, and the other nodes have had time to end. */
static bool is_orphaned(const struct sim *s)
{
        return !s->nodes[s->dfm].is_live && s->next_fault == s->n_faults &&
               sim_now_ns(s) > s->calm_ns + ORPHANS_NS;
}

/* False: no further event can happen. */
static bool step(struct sim *s)
{
        uint64_t at_ps = heap_first_key(&s->heap), fault_ns = sim_faults_next_ns(s);
        uint32_t item = heap_first(&s->heap);

        if (fault_ns != NEVER_NS && fault_ns * PS_PER_NS <= at_ps) {
                s->now_ps = MAX(s->now_ps, fault_ns * PS_PER_NS);
                sim_faults_apply(s);
                return true;
        }
        if (item == HEAP_NONE || is_orphaned(s))
                return false;
        s->now_ps = MAX(s->now_ps, at_ps);
        switch (item % ITEMS) {
        case ITEM_TURN:
                share_turn(s, &s->nodes[item / ITEMS]);
                break;
        case ITEM_WIRE:
                sim_wire_arrive(s, &s->nodes[item / ITEMS]);
                break;
        case ITEM_BOX:
                sim_box_turn(s, &s->nodes[item / ITEMS]);
                break;
        default:
                sim_shaping_turn(s, &s->nodes[item / ITEMS]);
                break;
        }
        return true;
}

static bool is_stopped(const struct sim *s)
{
        return s->config.stop && *s->config.stop;
}

bool sim_run_until(struct sim *s, uint64_t until_ns)
{
        while (!s->is_over && !is_stopped(s)) {
                if (until_ns != NEVER_NS && heap_first_key(&s->heap) >= until_ns * PS_PER_NS) {
                        s->now_ps = until_ns * PS_PER_NS;
                        return false;
                }
                if (!step(s))
                        break;
        }
        return true;
}

void sim_run(struct sim *s)
{
        sim_run_until(s, NEVER_NS);
        if (!is_stopped(s))
                sim_check_end(s);
        for (uint32_t i = 0; i < s->n_nodes; i++) {
                sim_process_account(s, &s->nodes[i]);
                stats_add_all(s->nodes[i].stats, s->nodes[i].previous);
        }
}

struct sim_result sim_result(const struct sim *s)
{
        struct sim_result r = {
                .end_ns = sim_now_ns(s),
                .run = s->run,
                .digest = s->digest,
                .messages = s->messages,
                .link_drops = s->link_drops,
                .has_switch = s->scenario->network.link_rate_bps > 0,
                .plan_fits = s->plan_fits,
                .violation = s->violation[0] ? s->violation : NULL,
                .violated_ns = s->violated_ns,
        };

        for (uint32_t i = 0; i < s->config.model.uplinks; i++)
                r.port_drops += s->uplinks[i].dropped;
        for (uint32_t i = 0; i < s->n_nodes; i++) {
                r.port_drops += s->nodes[i].port.dropped;
                if (s->nodes[i].self->role == ROLE_SFI)
                        r.port_most_bytes = MAX(r.port_most_bytes, sim_port_most_bytes(&s->nodes[i].port));
        }
        return r;
}

struct sim_node_end sim_node_end(const struct sim *s, uint32_t node)
{
        const struct sim_node *n = &s->nodes[node];

        return (struct sim_node_end){n->stats, !n->is_live, n->restarts};
}
