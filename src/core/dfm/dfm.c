/* The DFM's entry points: creation, received messages, the next message to send. dfm_events.c handles
 * events, dfm_nodes.c the nodes and the run. */
#include "core/dfm.h"

#include <errno.h>

#include "dfm_internal.h"

/* How long an acknowledgement waits, so that assignments can share its message. An SFI that receives no
 * acknowledgement repeats its report later. */
#define ACK_DELAY_NS (5 * NS_PER_MS)
/* Maximum number of assignments in flight to one SFI; also bounds its credits. */
#define STREAM_WINDOW 16384u

static int allocate(struct dfm *d)
{
        const struct dfm_config *c = &d->config;
        uint32_t window = power_of_two_at_least(MIN(c->events_max, STREAM_WINDOW)),
                 announce = power_of_two_at_least(c->events_max);
        int r;

        r = dfm_table_init(&d->table, c->events_max);
        if (r >= 0)
                r = dfm_triggers_init(d);
        if (r < 0)
                return r;
        d->nodes = calloc(c->n_ros + c->n_sfi, sizeof *d->nodes);
        d->resume.known = calloc(EVB_EVENT_WINDOW / 64, sizeof *d->resume.known);
        d->sfis = calloc(c->n_sfi, sizeof *d->sfis);
        d->ross = calloc(c->n_ros, sizeof *d->ross);
        d->policy_view = calloc(c->n_sfi, sizeof *d->policy_view);
        d->stream_memory = calloc((size_t)c->n_sfi * window, sizeof *d->stream_memory);
        d->announce = calloc(announce, sizeof *d->announce);
        d->clears = calloc(c->events_max, sizeof *d->clears);
        d->lost_events = calloc(EVB_EVENTS_KEPT, sizeof *d->lost_events);
        if (!d->nodes || !d->resume.known || !d->sfis || !d->ross || !d->policy_view || !d->stream_memory ||
            !d->announce || !d->clears || !d->lost_events || event_set_init(&d->untaken) < 0)
                return -ENOMEM;
        r = dfm_level2_init(d);
        if (r >= 0)
                r = dfm_order_init(d);
        if (r >= 0)
                r = dfm_ledger_init(d);
        if (r < 0)
                return r;
        d->stream_mask = window - 1;
        d->announce_mask = announce - 1;
        for (uint32_t i = 0; i < c->n_sfi; i++)
                d->sfis[i] = (struct dfm_sfi){
                        .stream = d->stream_memory + (size_t)i * window,
                        .resend_ns = NEVER_NS,
                        .ack_due_ns = NEVER_NS,
                };
        return 0;
}

int dfm_new(struct dfm **ret, const struct dfm_config *config, uint64_t now_ns)
{
        struct dfm *d;
        int r;

        if (config->n_ros == 0 || config->n_ros > EVB_ROS_MAX || config->n_sfi == 0 ||
            config->n_sfi > EVB_SFI_MAX || config->cookie == 0 || config->incarnation == 0 ||
            config->events_max == 0 || config->clear_group == 0 ||
            (config->trigger_source != DFM_TRIGGER_SCHEDULE && config->trigger_queue == 0) ||
            (config->trigger_source == DFM_TRIGGER_CLOCK && config->slice_ns == 0) ||
            (config->trigger_source == DFM_TRIGGER_FRAMES &&
             (config->number_period == 0 || config->announced_max == 0)) ||
            message_room(MESSAGE_ASSIGN, config->message_bytes) <
                    MESSAGE_ENTRY_BYTES_MAX + MESSAGE_INFO_BYTES)
                return -EINVAL;
        d = calloc(1, sizeof *d);
        if (!d)
                return -ENOMEM;
        d->config = *config;
        d->cookie = config->cookie;
        d->state = RUN_STARTING;
        d->started_ns = now_ns - config->previous.age_ns;
        d->policy_last = POLICY_NONE;
        d->busy_since_ns = NEVER_NS;
        d->busy = (struct busy_packet){true, BUSY_STOPPED, BUSY_NONE};
        d->keep_alive_due_ns = now_ns;
        d->clear_group = MIN(config->clear_group, (uint32_t)MESSAGE_ENTRIES_MAX);
        budget_init(&d->ros_budget, config->control.announce_bps, config->control.header_bytes);
        histogram_init(&d->latency_ns);
        r = allocate(d);
        if (r < 0) {
                dfm_free(d);
                return r;
        }
        dfm_init_sources(d);
        *ret = d;
        return 0;
}

struct dfm *dfm_free(struct dfm *d)
{
        if (!d)
                return NULL;
        dfm_table_fini(&d->table);
        dfm_level2_fini(d);
        dfm_order_fini(d);
        dfm_ledger_fini(d);
        event_set_fini(&d->untaken);
        free(d->nodes);
        free(d->resume.known);
        free(d->sfis);
        free(d->ross);
        free(d->policy_view);
        free(d->stream_memory);
        free(d->announce);
        free(d->clears);
        free(d->lost_events);
        free(d->triggers.ring);
        free(d);
        return NULL;
}

/* Whether the SFI's report is about its present assignment. It is not if the event now belongs to another
 * SFI, or if it has returned to this SFI but the SFI had not received the new assignment when it sent the
 * report. `ack` is that of the same Update: a later Update may have overtaken it. */
static bool is_about(const struct dfm_event *e, uint16_t sfi, uint32_t ack)
{
        return e->sfi == sfi && (e->attempts == 1 || (int32_t)(e->sequence - ack) < 0);
}

/* Whether the trigger of an ended event does not count, because after a manual stop no board read out this
 * trigger or any newer one. The trigger counts if a required ROS is absent, because frames may be lost with
 * that ROS. */
static bool is_untaken(const struct dfm *d, const struct finished_entry *f)
{
        return f->event >= d->built_end && f->end == EVENT_LOST && f->unanswered &&
               d->config.has_front_ends && d->stopped && !d->failed && dfm_has_required_ross(d);
}

/* Counts all fragments of the ended event as received, except for the missing ones. */
static void count_absent(struct dfm *d, const struct finished_entry *f)
{
        uint32_t n_ros = d->config.n_ros, missing = f->end == EVENT_PARTIAL ? MIN(f->missing, n_ros) : 0;
        uint32_t absent = f->end == EVENT_LOST ? 0 : MIN(f->absent, n_ros - missing);

        d->counts.fragments_received -= absent;
        d->counts.fragments_absent += absent;
}

static void finished(struct dfm *d, uint64_t now_ns, uint16_t sfi, uint32_t ack,
                     const struct finished_entry *f)
{
        uint32_t slot = idmap_get(&d->table.by_event, f->event);

        if (slot == IDMAP_NONE) {
                bool again = !dfm_recover_event(d, now_ns, f);

                if (!again)
                        count_absent(d, f);
                dfm_record_end(d, sfi, f, again);
                return;
        }
        if (f->end >= EVENT_LOST && !is_about(&d->table.slots[slot], sfi, ack))
                return;
        if (f->end == UPDATE_WRITING) {
                dfm_table_set_writing(&d->table, slot);
                return;
        }
        if (is_untaken(d, f)) {
                dfm_untake(d, now_ns, slot);
                return;
        }
        if (f->end == EVENT_LOST)
                dfm_lose_event(d, now_ns, slot, DFM_LOSS_REPORTED);
        else
                dfm_end_event(d, now_ns, slot, (enum event_end)f->end, f->missing, f->payload_bytes);
        count_absent(d, f);
        dfm_record_end(d, sfi, f, false);
}

static void acknowledge(struct dfm_sfi *s, uint64_t now_ns, uint32_t ack)
{
        if (ack - s->acked > s->reached - s->acked || ack == s->acked)
                return;
        if (s->sent - s->acked < ack - s->acked)
                s->sent = ack;
        s->acked = ack;
        s->resend_after_ns = DFM_RESEND_FIRST_NS;
        s->resend_ns = s->sent == s->acked ? NEVER_NS : now_ns + s->resend_after_ns;
}

static bool receive_update(struct dfm *d, uint64_t now_ns, const struct message *m)
{
        uint16_t index = m->header.sender_index;

        if (m->header.sender_role != ROLE_SFI || index >= d->config.n_sfi)
                return false;
        struct dfm_sfi *s = &d->sfis[index];
        if (!dfm_sfi_is_live(d, s) || s->incarnation != m->update.incarnation) {
                d->counts.foreign++;
                return true;
        }
        dfm_record_contact(d, now_ns, dfm_node(d, ROLE_SFI, index));
        /* Ends from before the resumption must be known before any later end. */
        if (d->resume.active || dfm_awaits_inventory(d, index))
                return true;
        /* Credits count only once all finished events before them arrived. This bounds the number of
         * unacknowledged events. */
        if ((int32_t)(m->update.first - s->finished_next) <= 0)
                s->granted = MAX(s->granted, m->update.granted);
        acknowledge(s, now_ns, m->update.assign_ack);
        for (size_t k = 0; k < m->n; k++) {
                if (m->update.first + (uint32_t)k != s->finished_next)
                        continue;
                s->finished_next++;
                s->finished += m->update.entries[k].end != UPDATE_WRITING;
                finished(d, now_ns, index, m->update.assign_ack, &m->update.entries[k]);
        }
        if (m->n > 0 && s->ack_due_ns == NEVER_NS)
                s->ack_due_ns = now_ns + (d->state == RUN_RUNNING ? ACK_DELAY_NS : 0);
        return true;
}

bool dfm_receive(struct dfm *d, uint64_t now_ns, const struct message *m)
{
        if (m->header.type == MESSAGE_JOIN)
                return dfm_receive_join(d, now_ns, m);
        if (m->header.cookie != d->cookie || m->dfm != d->config.incarnation) {
                d->counts.foreign++;
                return true;
        }
        switch (m->header.type) {
        case MESSAGE_UPDATE:
                return receive_update(d, now_ns, m);
        case MESSAGE_ALIVE:
        case MESSAGE_XON:
        case MESSAGE_XOFF:
                return dfm_receive_alive(d, now_ns, m);
        case MESSAGE_INVENTORY:
                return dfm_receive_inventory(d, now_ns, m);
        case MESSAGE_NUMBERS:
                return dfm_receive_numbers(d, now_ns, m);
        }
        return false;
}

static bool make_message(struct dfm *d, uint64_t now_ns, struct message_to *to, struct message *m)
{
        if (dfm_make_welcome(d, to, m))
                return true;
        if (now_ns >= d->keep_alive_due_ns) {
                *to = (struct message_to){ROLE_ROS, MESSAGE_TO_ALL};
                dfm_make_keep_alive(d, now_ns, m);
                return true;
        }
        if (dfm_make_metadata(d, now_ns, to, m) || dfm_make_clear(d, now_ns, to, m) ||
            dfm_make_inquiry(d, now_ns, to, m) || dfm_make_numbers_ack(d, now_ns, to, m))
                return true;
        /* A full announcement is sent first, even if more triggers keep arriving. */
        if (d->announce_head - d->announce_tail >= MESSAGE_ENTRIES_MAX &&
            dfm_make_announcement(d, now_ns, to, m))
                return true;
        return dfm_make_sfi_message(d, now_ns, to, m) || dfm_make_announcement(d, now_ns, to, m);
}

static void record_apart(struct dfm *d)
{
        struct dfm_apart a;

        if (d->order.apart || !dfm_numbers_apart(d, &a))
                return;
        d->order.apart = true;
        dfm_notice(d, &(struct dfm_notice){.kind = NOTICE_APART, .role = ROLE_ROS, .index = a.ahead});
}

bool dfm_step(struct dfm *d, uint64_t now_ns, struct message_to *ret_to, struct message *ret)
{
        if (now_ns >= d->keep_alive_due_ns) {
                dfm_check_nodes(d, now_ns);
                record_apart(d);
        }
        dfm_count_pause(d, now_ns);
        dfm_expire(d, now_ns);
        dfm_level2_expire(d, now_ns);
        dfm_advance_run(d, now_ns);
        dfm_triggers_tick(d, now_ns);
        dfm_order_tick(d, now_ns);
        dfm_assign_due(d, now_ns);
        dfm_judge_busy(d, now_ns);
        dfm_ledger_record_shortfalls(d);
        if (!make_message(d, now_ns, ret_to, ret))
                return false;
        dfm_charge(d, now_ns, ret_to, ret);
        return true;
}

static uint64_t first_timeout_ns(const struct dfm *d, const struct dfm_list *list)
{
        return list->first == SLOT_NONE || d->resume.active
                       ? NEVER_NS
                       : d->table.slots[list->first].assigned_ns + d->config.event_timeout_ns;
}

uint64_t dfm_deadline_ns(const struct dfm *d)
{
        uint64_t deadline = d->keep_alive_due_ns;

        deadline = MIN(deadline, first_timeout_ns(d, &d->table.assigned));
        deadline = MIN(deadline, first_timeout_ns(d, &d->table.orphans));
        deadline = MIN(deadline, MIN(dfm_level2_deadline_ns(d), dfm_metadata_deadline_ns(d)));
        deadline = MIN(deadline, dfm_clear_deadline_ns(d));
        deadline = MIN(deadline, dfm_triggers_deadline_ns(d));
        if (d->finish.on)
                deadline = MIN(deadline, dfm_finish_deadline_ns(d));
        if (dfm_frames_trigger(d))
                deadline = MIN(deadline, MIN(dfm_order_deadline_ns(d), dfm_announced_deadline_ns(d)));
        if (d->state == RUN_RUNNING && d->config.duration_ns > 0)
                deadline = MIN(deadline, d->started_ns + d->config.duration_ns);
        deadline = MIN(deadline, dfm_streams_deadline_ns(d));
        if (d->resume.active || d->resume.late)
                deadline = MIN(deadline, dfm_resume_deadline_ns(d));
        return deadline;
}

enum run_state dfm_state(const struct dfm *d)
{
        return d->state;
}

bool dfm_is_done(const struct dfm *d)
{
        return d->done;
}

const struct dfm_counts *dfm_counts(const struct dfm *d)
{
        return &d->counts;
}

const struct histogram *dfm_latency_ns(const struct dfm *d)
{
        return &d->latency_ns;
}

void dfm_set_utc_offset(struct dfm *d, uint64_t utc_offset_ns)
{
        if (!d->begun)
                d->config.utc_offset_ns = utc_offset_ns;
}

uint32_t dfm_run(const struct dfm *d)
{
        return d->config.run;
}

uint64_t dfm_cookie(const struct dfm *d)
{
        return d->cookie;
}

struct dfm_run_view dfm_run_view(const struct dfm *d)
{
        return (struct dfm_run_view){
                .is_held = d->hold.held,
                .is_paused = d->hold.paused,
                .is_busy = d->busy_since_ns != NEVER_NS,
                .waits_for_frames = d->awaits_frames,
                .waits_for_level2 = d->config.level2.on && !dfm_level2_has_room(d),
                .is_overdue = d->overdue,
                .was_unrecorded = d->ledger.unrecorded,
                .has_guessed = d->ledger.guessed,
                .forgotten = d->ledger.forgotten + d->resume.forgotten,
                .resets = d->triggers.resets,
                .waiting = dfm_triggers_waiting(&d->triggers),
                .undecided = d->table.n_undecided,
        };
}

uint64_t dfm_age_ns(const struct dfm *d, uint64_t now_ns)
{
        return dfm_is_in_run(d) || dfm_awaits_run(d) ? now_ns - d->started_ns : 0;
}

bool dfm_pop_notice(struct dfm *d, struct dfm_notice *ret)
{
        if (d->notices_tail == d->notices_head)
                return false;
        *ret = d->notices[d->notices_tail++ % DFM_NOTICES];
        return true;
}

uint32_t dfm_open_events(const struct dfm *d)
{
        return d->table.used;
}
