/* Translates the keys of a scenario into the configurations of the cores. */
#include "node/role_config.h"

#include "base/util.h"
#include "data/level2_server.h"
#include "data/network.h"

#define EVENTS_MAX 65536u
#define TRIGGER_BURST_LENGTH 10
/* Used shares of credits, queue and undecided events: above the first value, the DFM becomes busy; below the
 * second value, it stops being busy. */
#define BUSY_ABOVE_PERMILLE 800
#define BUSY_BELOW_PERMILLE 600
/* Number of ended events in a Clear message, which makes the ROSs drop their fragments, and maximum delay of
 * the message. */
#define CLEAR_GROUP 100
#define CLEAR_AFTER_NS (10 * NS_PER_MS)
/* Maximum number of announced frames that wait for other ROSs, or for room in the queue of triggers. */
#define ANNOUNCED_MAX 65536u
/* Maximum number of triggers that wait for a credit: of a trigger box, which may ignore busy, and of the
 * clock or frames, whose numbers wait elsewhere. */
#define BOX_QUEUE 65536u
#define OWN_QUEUE 4096u
/* Minimum and maximum number of slots for incomplete events, which may wait for silent ROSs. The DFM can
 * assign up to SLOTS_MOST events to one SFI. */
#define SLOTS_LEAST 2048u
#define SLOTS_MOST 16384u
#define SLOTS_FRAGMENTS (1u << 20)

void role_ros_rules(const struct scenario *s, struct ros_rule rules[static EVB_ROS_MAX])
{
        for (const struct scenario_node *n = s->nodes; n < s->nodes + s->n_nodes; n++) {
                if (n->role == ROLE_ROS)
                        rules[n->index] = (struct ros_rule){
                                .optional = !n->required,
                                .wait_ns = n->wait_ns,
                                .frames = scenario_has_front_end(n),
                                .leads = scenario_leads(s, n),
                                .period = scenario_has_front_end(n) ? scenario_number_period(s, n) : 0,
                        };
        }
}

/* Returns the longest wait of all ROSs; 0: no ROS receives frames. */
static uint64_t frame_wait_ns(const struct scenario *s)
{
        uint64_t longest_ns = 0;

        if (!scenario_has_front_ends(s))
                return 0;
        for (const struct scenario_node *n = s->nodes; n < s->nodes + s->n_nodes; n++) {
                if (n->role == ROLE_ROS)
                        longest_ns = MAX(longest_ns, scenario_wait_ns(s, n));
        }
        return longest_ns;
}

/* A ROS that joins a run extends the counter of its first frame to the value nearest to the newest trigger
 * that it knows, which may have waited as long as the queue is. So the queue is at most a quarter of the
 * counter's values. A counter of fewer than 15 bits is reported as unreliable then. */
static uint32_t box_queue(const struct scenario *s)
{
        uint64_t most = BOX_QUEUE;

        for (const struct scenario_node *n = s->nodes; n < s->nodes + s->n_nodes; n++) {
                uint64_t period = scenario_has_front_end(n) ? scenario_number_period(s, n) : 0;

                if (period > 0)
                        most = MIN(most, MAX(period / 4, OWN_QUEUE));
        }
        return (uint32_t)most;
}

static void configure_triggers(struct dfm_config *config, const struct scenario *s)
{
        static const enum dfm_trigger_source sources[] = {
                [TRIGGER_INTERNAL] = DFM_TRIGGER_SCHEDULE,
                [TRIGGER_UDP] = DFM_TRIGGER_OFFERED,
                [TRIGGER_CLOCK] = DFM_TRIGGER_CLOCK,
                [TRIGGER_FRAMES] = DFM_TRIGGER_FRAMES,
        };

        config->trigger_kind = (enum trigger_kind)s->trigger.kind;
        config->trigger_rate_millihertz = s->trigger.rate_millihertz;
        config->trigger_burst = TRIGGER_BURST_LENGTH;
        config->trigger_source =
                scenario_has_slices(s) ? DFM_TRIGGER_FRAMES : sources[s->trigger.source_kind];
        config->trigger_queue = s->trigger.source_kind == TRIGGER_UDP ? box_queue(s) : OWN_QUEUE;
        config->slice_ns = s->trigger.slice_ns;
        config->number_period = scenario_number_period(s, scenario_node_of(s, ROLE_ROS, 0));
        config->window_ns = s->trigger.window_ns;
        config->announced_max = ANNOUNCED_MAX;
        config->busy_above_permille = BUSY_ABOVE_PERMILLE;
        config->busy_below_permille = BUSY_BELOW_PERMILLE;
}

struct dfm_config role_dfm_config(const struct scenario *s, const struct ros_rule *rules)
{
        struct dfm_config config = {
                .occupied_ns = s->dfm.keep_alive_ns / 2 * 5,
                .n_ros = (uint32_t)s->ros.count,
                .n_sfi = (uint32_t)s->sfi.count,
                .push = s->scenario.mode == MODE_PUSH,
                .has_front_ends = scenario_has_front_ends(s),
                .events = s->trigger.events,
                .duration_ns = s->scenario.duration_ns,
                .seed = s->run.seed,
                /* More events would not fit into the ROSs. Different ROSs would then hold different events,
                 * and wait for each other. */
                .events_max = (uint32_t)MIN(EVENTS_MAX, s->ros.buffer_events),
                .clear_group = CLEAR_GROUP,
                .clear_after_ns = CLEAR_AFTER_NS,
                .event_timeout_ns = s->dfm.event_timeout_ns,
                .reassign_max = EVB_REASSIGNMENTS,
                .keep_alive_ns = s->dfm.keep_alive_ns,
                .node_timeout_ns = s->dfm.node_timeout_ns,
                .start_timeout_ns = s->dfm.start_timeout_ns,
                .leave_timeout_ns = s->run.stop_timeout_ns,
                .message_bytes = network_message_bytes(s),
                .control = network_control_plan(s),
                .ros_rules = rules,
                .frame_wait_ns = frame_wait_ns(s),
                .level2 = level2_server_config(s),
        };

        configure_triggers(&config, s);
        return config;
}

static void configure_front_end(struct ros_config *config, const struct scenario *s,
                                const struct scenario_node *self)
{
        config->number_period = scenario_number_period(s, self);
        config->number_from =
                scenario_has_slices(s) || scenario_matches_times(self) ? 0 : self->board.number_from;
        config->announces = s->trigger.source_kind == TRIGGER_FRAMES || scenario_has_slices(s);
        config->leads = scenario_leads(s, self);
        config->message_bytes = network_message_bytes(s);
        config->datagrams = self->source_kind == SOURCE_UDP;
        config->level2 = s->level2.port > 0;
}

struct ros_config role_ros_config(const struct scenario *s, const struct scenario_node *self)
{
        struct ros_config config = {
                .index = (uint16_t)self->index,
                .n_sfi = (uint32_t)s->sfi.count,
                .entries = (uint32_t)s->ros.buffer_events,
                .buffer_bytes = s->ros.buffer_size_bytes,
                .keep_alive_ns = s->dfm.keep_alive_ns,
                .control = network_control_plan(s),
                .regions = s->level2.regions_port > 0,
                .wait_ns = scenario_wait_ns(s, self),
        };

        if (scenario_has_front_end(self))
                configure_front_end(&config, s, self);
        return config;
}

/* TCP needs no reaction to losses: it retransmits and slows down by itself. */
static bool follows_losses(const struct scenario *s)
{
        return s->qos.rate_bps == SCENARIO_AUTO && s->qos.backend != QOS_NONE &&
               s->scenario.transport == TRANSPORT_UDP;
}

/* Includes slots for credits that are added at run time, because no memory can be allocated then. */
static uint32_t slots(const struct scenario *s)
{
        uint32_t credits = (uint32_t)s->sfi.credits,
                 usual = MIN(MAX(SLOTS_FRAGMENTS / (uint32_t)s->ros.count, SLOTS_LEAST), SLOTS_MOST);

        return MAX(credits > 0 ? sfi_slots_for_credits(credits) : 0, usual);
}

struct sfi_config role_sfi_config(const struct scenario *s, const struct scenario_node *self,
                                  const struct ros_rule *rules)
{
        return (struct sfi_config){
                .index = (uint16_t)self->index,
                .n_ros = (uint32_t)s->ros.count,
                .pull = s->scenario.mode == MODE_PULL,
                .slots = slots(s),
                .buffer_bytes = s->sfi.buffer_size_bytes,
                .credits = (uint32_t)s->sfi.credits,
                .outstanding = (uint32_t)s->sfi.outstanding,
                .port_bytes = s->network.link_rate_bps > 0 ? s->network.switch_buffer_bytes : 0,
                .port_rate_bps = s->network.link_rate_bps,
                .timeout_ns = s->sfi.timeout_ns,
                .retries_max = (uint32_t)s->sfi.retries,
                .reliable = s->scenario.transport == TRANSPORT_TCP,
                .keep_alive_ns = s->dfm.keep_alive_ns,
                .message_bytes = network_message_bytes(s),
                .trailer_bytes = network_trailer_bytes(s),
                .frame_overhead_bytes = network_header_bytes(s) + network_overhead_bytes(s),
                .control = network_control_plan(s),
                .follows_losses = follows_losses(s),
                .rules = rules,
        };
}
