/* Boards and their trigger box. Each board reads out each trigger and sends a frame with its number to its
 * ROS. The triggers come from the box (trigger.source is udp or frames), or from the DFM. */
#include "data/front_end.h"

#include <errno.h>
#include <string.h>

#include "data/reasons.h"
#include "node/role_config.h"
#include "sim_internal.h"

/* Time from a trigger to the arrival of its frames. */
#define READOUT_NS (80 * NS_PER_US)
/* Same values as in data/front_end.c: limit of frames in a turn, and the pause of a stream after it found the
 * buffer full. */
#define FRAMES_MAX 4096
#define FULL_PAUSE_PS (NS_PER_MS * PS_PER_NS)

/* Without a box, boards read out the triggers of the DFM. If frames are counted, a trigger waits for its
 * frames. */
static bool has_box(const struct scenario *s)
{
        return s->trigger.source_kind == TRIGGER_UDP || s->trigger.source_kind == TRIGGER_FRAMES ||
               scenario_counts_frames(s);
}

int sim_front_ends_check(const struct scenario *s, struct error *e)
{
        if (scenario_has_slices(s))
                return error_set(e, -EINVAL,
                                 "ros.event-time: slices of time are not modelled; expected none");
        if (has_box(s) && s->trigger.rate_millihertz == SCENARIO_MAX)
                return error_set(e, -EINVAL,
                                 "trigger.rate: a trigger box without a rate is not modelled; expected a "
                                 "frequency");
        for (const struct scenario_node *n = s->nodes; n < s->nodes + s->n_nodes; n++) {
                if (n->role == ROLE_ROS && scenario_matches_times(n))
                        return error_set(e, -EINVAL,
                                         "ros.event-time: times that match those of triggers are not "
                                         "modelled; expected none");
                if (n->role == ROLE_ROS && n->source_kind == SOURCE_FILE)
                        return error_set(e, -EINVAL,
                                         "ros.source: files are not modelled; expected pattern, "
                                         "udp:PORT or tcp:HOST:PORT");
        }
        return 0;
}

/* Sends the number of a trigger to a node, to arrive at this time. */
static void send_number(struct sim *s, struct sim_node *to, uint64_t number, uint64_t bytes, uint64_t at_ps)
{
        struct sim_inbox *i = &to->inboxes[SOCKET_NUMBERS];
        struct sim_packet *p;

        if (!to->is_live || to->has_left)
                return;
        p = sim_packet_new(&number, sizeof number, bytes);
        p->from = p->to = to->number;
        p->is_number = true;
        i->charged_bytes += sim_socket_charge(p->frame_bytes);
        sim_queue_put(&i->queue, at_ps, p);
        sim_wake(s, to, at_ps);
}

static uint32_t frame_bytes(const struct sim_node *ros, uint64_t number)
{
        struct ros_fragment made;

        source_describe(ros->source, number, (uint32_t)number, &made);
        return made.bytes;
}

static void read_out(struct sim *s, uint64_t number)
{
        for (uint32_t i = 0; i < s->n_ros; i++) {
                struct sim_node *n = &s->nodes[s->node_of_ros[i]];

                if (scenario_has_front_end(n->self))
                        send_number(s, n, number, frame_bytes(n, number), s->now_ps + READOUT_NS * PS_PER_NS);
        }
}

static void plan_box(struct sim *s)
{
        sim_schedule(s, &s->nodes[s->dfm], ITEM_BOX,
                     MAX(trigger_next_ns(&s->box) * PS_PER_NS, s->now_ps + 1));
}

/* The box starts and stops with the run; a dead DFM does not stop the box. */
void sim_box_follow(struct sim *s, const struct sim_node *dfm)
{
        struct dfm_config c;

        if (!has_box(s->scenario) || s->box_has_begun || dfm_state(dfm->dfm) != RUN_RUNNING)
                return;
        c = role_dfm_config(s->scenario, s->rules);
        s->box_has_begun = true;
        trigger_init(&s->box, c.trigger_kind, c.trigger_rate_millihertz, c.trigger_burst, s->config.seed,
                     sim_now_ns(s));
        plan_box(s);
}

static bool is_held_back(const struct sim *s, const struct sim_node *dfm)
{
        return strcmp(s->scenario->trigger.busy_to, "none") != 0 &&
               (!dfm->is_live || dfm_busy(dfm->dfm).busy);
}

void sim_box_turn(struct sim *s, struct sim_node *dfm)
{
        sim_schedule(s, dfm, ITEM_BOX, NEVER_NS);
        if (s->has_ended || (dfm->is_live && dfm->state > RUN_RUNNING))
                return;
        if (is_held_back(s, dfm))
                trigger_hold(&s->box, sim_now_ns(s) + s->scenario->dfm.keep_alive_ns / 100);
        for (; trigger_next_due(&s->box, sim_now_ns(s), 1) > 0; s->box_number++) {
                read_out(s, s->box_number);
                if (s->scenario->trigger.source_kind == TRIGGER_UDP)
                        send_number(s, dfm, s->box_number, TRIGGER_PACKET_HEADER_BYTES + TRIGGER_ENTRY_BYTES,
                                    s->now_ps + s->config.model.propagation_ns * PS_PER_NS);
        }
        plan_box(s);
}

/* Returns the first number that has arrived, and leaves it in the socket. */
static bool look_at_number(const struct sim *s, const struct sim_node *n, uint64_t *ret)
{
        const struct sim_entry *first = sim_queue_first(&n->inboxes[SOCKET_NUMBERS].queue);

        if (!first || first->at_ps > s->now_ps)
                return false;
        memcpy(ret, first->packet->head, sizeof *ret);
        return true;
}

static void remove_number(struct sim *s, struct sim_node *n)
{
        struct sim_inbox *i = &n->inboxes[SOCKET_NUMBERS];
        struct sim_packet *p = sim_queue_pop(&i->queue).packet;

        i->charged_bytes -= sim_socket_charge(p->frame_bytes);
        sim_trace_delivery(s, n, p);
        n->worked_packets++;
        sim_packet_release(p);
}

void sim_box_offer(struct sim *s, struct sim_node *dfm)
{
        struct trigger_entry t = {};

        for (; look_at_number(s, dfm, &t.number); remove_number(s, dfm))
                dfm_offer(dfm->dfm, sim_now_ns(s), &t);
}

void sim_boards_follow(struct sim *s, const struct sim_node *dfm)
{
        uint64_t triggers = dfm_counts(dfm->dfm)->triggers;

        if (has_box(s->scenario) || !scenario_has_front_ends(s->scenario))
                return;
        for (; s->box_number < triggers; s->box_number++)
                read_out(s, s->box_number);
}

/* False: the buffer is full, so the stream waits. */
static bool arrive(const struct sim *s, struct sim_node *n, uint64_t number)
{
        struct ros_fragment f = {.bytes = frame_bytes(n, number), .form = FORM_RAW};
        const struct scenario_board *b = &n->self->board;
        uint64_t period = number_field_period(&b->number), counter = number, at;
        enum ros_verdict verdict;

        if (period > 0)
                counter = (number + period + (uint64_t)(b->number_from % (int64_t)period)) % period;
        verdict = ros_arrive(n->ros, period > 0 ? &counter : NULL, &f, &at);
        if (verdict == ROS_FULL && n->self->source_kind == SOURCE_TCP)
                return false;
        if (verdict == ROS_FULL)
                ros_skip(n->ros, 1);
        else
                ros_commit(n->ros);
        stats_add(&n->stats->front_end_frames, 1);
        return true;
}

static void receive_frames(struct sim *s, struct sim_node *n)
{
        struct sim_queue *q = &n->inboxes[SOCKET_NUMBERS].queue;
        uint64_t number;

        for (uint32_t k = 0; k < FRAMES_MAX && look_at_number(s, n, &number); k++) {
                if (!arrive(s, n, number)) {
                        q->entries[q->first].at_ps = s->now_ps + FULL_PAUSE_PS;
                        return;
                }
                remove_number(s, n);
        }
}

static void record_silence(const struct sim *s, struct sim_node *n)
{
        uint64_t hungry_ns = ros_hungry_since_ns(n->ros);
        bool is_silent = hungry_ns > 0 &&
                         sim_now_ns(s) - hungry_ns >= EVB_SILENT_KEEP_ALIVES * s->scenario->dfm.keep_alive_ns;

        ros_set_obstacle(n->ros, &(struct node_obstacle){.reason = is_silent ? REASON_SILENT : REASON_NONE,
                                                         .since_ns = hungry_ns});
}

void sim_front_end_turn(struct sim *s, struct sim_node *n)
{
        if (!scenario_has_front_end(n->self))
                return;
        receive_frames(s, n);
        stats_set(&n->stats->front_end_gaps, n->inboxes[SOCKET_NUMBERS].dropped);
        ros_set_reading(n->ros, false);
        ros_expire(n->ros, sim_now_ns(s));
        record_silence(s, n);
}

uint64_t sim_front_end_deadline_ns(const struct sim *s, const struct sim_node *n)
{
        (void)s;
        (void)n;
        return NEVER_NS;
}

void sim_front_end_record_short(struct sim *s, struct sim_node *n)
{
        const struct ros_counts *c = ros_counts(n->ros);
        struct reasons reasons = {};

        (void)s;
        if (!scenario_has_front_end(n->self))
                return;
        front_end_discard_reasons(n->ros, &reasons);
        ros_set_short(n->ros, reasons.n + c->dropped + c->restarts > 0);
}
