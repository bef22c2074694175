/* Starts and ends the processes of the nodes, and keeps their counters. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "data/trigger_input.h"
#include "node/role_config.h"
#include "sim_internal.h"

static uint64_t draw_number(struct sim *s)
{
        return random_next(&s->random) | 1; /* not 0 */
}

static struct member_config member_of(struct sim *s)
{
        return (struct member_config){
                .incarnation = draw_number(s),
                .run = (uint32_t)s->scenario->run.number,
                .retry_ns = s->scenario->dfm.keep_alive_ns,
                .keys = s->keys,
        };
}

static int start_dfm(struct sim *s, struct sim_node *n)
{
        struct dfm_config c = role_dfm_config(s->scenario, s->rules);

        c.incarnation = draw_number(s);
        c.cookie = draw_number(s);
        c.keys = s->keys;
        c.seed = s->scenario->run.seed ^ random_mix(s->config.seed);
        c.run = s->run;
        c.previous = s->previous;
        c.previous.age_ns = sim_now_ns(s) - s->began_ns;
        c.previous_processes = s->processes;
        s->processes_version = 0;
        return dfm_new(&n->dfm, &c, sim_now_ns(s));
}

static int start_ros(struct sim *s, struct sim_node *n)
{
        struct ros_config c = role_ros_config(s->scenario, n->self);

        c.member = member_of(s);
        c.describe = scenario_has_front_end(n->self) ? NULL : source_describe;
        c.describe_ctx = n->source;
        memset(n->sfi_live, 0xff, sizeof n->sfi_live);
        for (uint32_t i = 0; i < s->n_sfi; i++) {
                struct sim_path *p = &n->paths[i];

                p->charged_bytes = p->blocked_ns = p->held_until_ns = 0;
                p->blocked = p->was_held = false;
        }
        return ros_new(&n->ros, &c, sim_now_ns(s));
}

static int start_sfi(struct sim *s, struct sim_node *n)
{
        struct sfi_config c = role_sfi_config(s->scenario, n->self, s->rules);

        c.member = member_of(s);
        /* The same part of the requested size as in data/data_receive_udp.c. */
        c.room_bytes = n->inboxes[SOCKET_DATA].room_bytes / 2 / 4 * 3;
        if (!n->slots) {
                n->slots = calloc(c.slots, sizeof *n->slots);
                n->n_slots = c.slots;
        }
        sim_coverage_clear_all(s, n);
        sim_ends_forget(n);
        n->drained_ns = NEVER_NS;
        return n->slots ? sfi_new(&n->sfi, &c, sim_now_ns(s)) : -ENOMEM;
}

void sim_process_free(struct sim_node *n)
{
        if (n->self->role == ROLE_DFM)
                n->dfm = dfm_free(n->dfm);
        else if (n->self->role == ROLE_ROS)
                n->ros = ros_free(n->ros);
        else
                n->sfi = sfi_free(n->sfi);
}

int sim_process_start(struct sim *s, struct sim_node *n)
{
        int r;

        sim_process_free(n);
        n->process++;
        n->farewells = 0;
        n->farewell_ns = n->last_turn_ns = n->ends_seen = 0;
        n->free_ps = s->now_ps;
        n->has_left = n->is_woken = false;
        n->state = RUN_STARTING;
        memset(n->stats, 0, sizeof *n->stats);
        histogram_init(&n->stats->latency_ns);
        if (n->self->role == ROLE_DFM)
                r = start_dfm(s, n);
        else
                r = n->self->role == ROLE_ROS ? start_ros(s, n) : start_sfi(s, n);
        if (r < 0)
                return r;
        n->is_live = true;
        sim_level2_start(s, n);
        n->turn_ps = NEVER_NS;
        sim_trace(s, n, n->process, "starts");
        sim_wake(s, n, s->now_ps);
        return 0;
}

static enum node_state state_of(const struct sim_node *n)
{
        static const enum node_state states[] = {
                [RUN_STARTING] = NODE_READY,
                [RUN_RUNNING] = NODE_RUNNING,
                [RUN_DRAINING] = NODE_DRAINING,
                [RUN_ENDED] = NODE_ENDED,
        };

        return states[n->state];
}

void sim_process_account(struct sim *s, struct sim_node *n)
{
        struct node_stats *to = n->stats;

        if (!n->is_live)
                return;
        atomic_store(&to->state, state_of(n));
        stats_set(&to->packets_socket_dropped, n->inboxes[SOCKET_DATA].dropped);
        if (n->self->role == ROLE_ROS) {
                stats_copy_ros(to, n->ros);
                if (s->scenario->level2.regions_port > 0)
                        stats_copy_regions(to, n->ros);
                stats_set(&to->granted_send_buffer_bytes, s->send_buffer_bytes / 2);
                stats_set(&to->qos_backend, n->shaping.backend);
                stats_set(&to->qos_rate_bps, n->shaping.rate_bps);
        } else if (n->self->role == ROLE_SFI) {
                stats_copy_sfi(to, n->sfi);
                stats_set(&to->granted_receive_buffer_bytes, n->inboxes[SOCKET_DATA].room_bytes / 2);
                stats_take_datagrams(to, n->sfi);
        } else {
                stats_copy_dfm(to, n->dfm);
                trigger_input_publish(n->dfm, to);
                if (s->scenario->level2.port > 0)
                        stats_copy_level2(to, n->dfm);
                to->latency_ns = *dfm_latency_ns(n->dfm);
        }
}

/* The counts of a DFM that resumes a run include the counts of the previous DFM. For other nodes, the
 * counters of ended processes are kept. */
static void keep_counts(struct sim_node *n)
{
        n->dropped_at_source = 0;
        if (n->self->role != ROLE_DFM)
                stats_add_all(n->previous, n->stats);
}

static void clear_inbox(struct sim_inbox *i)
{
        sim_queue_clear(&i->queue);
        while (i->n_held > 0)
                sim_packet_release(i->held[--i->n_held].packet);
        i->charged_bytes = i->dropped = 0;
}

void sim_process_end(struct sim *s, struct sim_node *n)
{
        if (!n->is_live)
                return;
        sim_process_account(s, n);
        keep_counts(n);
        n->is_live = false;
        n->turn_ps = NEVER_NS;
        n->paused_until_ps = 0;
        sim_schedule(s, n, ITEM_TURN, NEVER_NS);
        if (n->self->role != ROLE_DFM)
                memset(n->stats, 0, sizeof *n->stats);
        for (uint32_t i = 0; i < SOCKETS; i++)
                clear_inbox(&n->inboxes[i]);
}
