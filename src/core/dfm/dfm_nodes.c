/* Tracks the presence of nodes, and decides when the run starts, drains and ends. */
#include "dfm_internal.h"

/* How long the DFM repeats the end of the run to nodes that do not answer. A live SFI may need up to
 * config.leave_timeout_ns to close its files. */
#define ENDED_LINGER_NS (2 * NS_PER_S)

/* After this many keep-alives since the last join, or since the stop, a stopped DFM resumes its run without
 * the missing nodes, or ends without a run. */
#define LAST_CALL_KEEP_ALIVES 3

/* The node lost its state, or did not follow this DFM before, so its streams restart. */
static void sfi_begins(struct dfm *d, uint64_t now_ns, uint16_t index, uint64_t incarnation)
{
        struct dfm_sfi *s = &d->sfis[index];

        if (dfm_sfi_is_live(d, s))
                dfm_disown(d, now_ns, index);
        *s = (struct dfm_sfi){
                .incarnation = incarnation,
                .resend_ns = NEVER_NS,
                .resend_after_ns = DFM_RESEND_FIRST_NS,
                .ack_due_ns = NEVER_NS,
                .stream = s->stream,
                .joined = true,
        };
        budget_init(&s->budget, d->config.control.assign_bps, d->config.control.header_bytes);
}

/* The node was only silent, so its streams continue. Its events went to other SFIs, and only this node needs
 * to be informed of that. */
static void sfi_resumes(struct dfm_sfi *s, uint64_t now_ns)
{
        s->sent = s->acked;
        s->resend_after_ns = DFM_RESEND_FIRST_NS;
        s->resend_ns = s->sent == s->next ? NEVER_NS : now_ns + s->resend_after_ns;
}

static void node_comes(struct dfm *d, uint64_t now_ns, struct dfm_node *n, enum node_role role,
                       uint16_t index)
{
        if (!n->live)
                dfm_notice(d, &(struct dfm_notice){.kind = NOTICE_JOINED, .role = role, .index = index});
        /* If only optional ROSs are missing, a ROS that joins must no longer delay the start. */
        if (role != ROLE_ROS || !d->ross[index].optional || !dfm_has_required(d))
                d->quorum_ns = now_ns;
        d->n_live[role] += !n->live;
        n->live = n->received = true;
        n->left = false;
        /* The other nodes will return soon. If KeepAlive listed no ROS, an SFI would abandon its events. */
        if (n->missed && now_ns >= d->gather_ns)
                d->gather_ns = now_ns + d->config.node_timeout_ns;
        n->missed = false;
        n->vanished = false; /* dfm_join.c has recorded a replacement */
        d->keep_alive_due_ns = now_ns;
}

static void node_goes(struct dfm *d, uint64_t now_ns, enum node_role role, uint16_t index,
                      enum dfm_notice_kind why)
{
        struct dfm_node *n = dfm_node(d, role, index);

        if (!n->live)
                return;
        n->live = false;
        n->missed = why == NOTICE_SILENT && dfm_receives_nothing(d, now_ns);
        if (why != NOTICE_LEFT)
                n->flags &= (uint16_t)~ALIVE_QUIET;
        d->n_live[role]--;
        d->frames_known = false;
        d->keep_alive_due_ns = now_ns;
        n->vanished = why == NOTICE_SILENT && role == ROLE_SFI && dfm_sfi_has_unreported_ends(d, index);
        dfm_process_goes(d, role, index);
        if (role == ROLE_SFI) {
                dfm_disown(d, now_ns, index);
        } else {
                dfm_set_xoff(d, index, false);
                dfm_level2_set_room(d, index, 0);
                dfm_record_source(d, now_ns, index);
        }
        dfm_notice(d, &(struct dfm_notice){.kind = why, .role = role, .index = index});
}

static void receive_sfi(struct dfm *d, uint64_t now_ns, uint16_t index, struct dfm_node *n,
                        uint64_t incarnation)
{
        struct dfm_sfi *s = &d->sfis[index];

        s->leaving = n->state >= RUN_DRAINING;
        if (n->live && s->incarnation == incarnation)
                return;
        if (!s->joined || s->incarnation != incarnation)
                sfi_begins(d, now_ns, index, incarnation);
        else
                sfi_resumes(s, now_ns);
        s->leaving = n->state >= RUN_DRAINING;
        dfm_process_comes(d, ROLE_SFI, index, incarnation);
        node_comes(d, now_ns, n, ROLE_SFI, index);
}

static void compare_alive(struct dfm *d, struct dfm_node *n, enum node_role role, uint16_t index,
                          const struct message *m)
{
        if (m->alive.flags & ~n->flags & ALIVE_UNRELIABLE)
                dfm_notice(d, &(struct dfm_notice){.kind = NOTICE_UNRELIABLE, .role = role, .index = index});
        if (m->alive.flags & ~n->flags & ALIVE_FAILED)
                dfm_notice(d, &(struct dfm_notice){.kind = NOTICE_FAILED, .role = role, .index = index});
        n->state = (enum run_state)m->alive.state;
        if (m->alive.flags & ~n->flags & DFM_FLAGS_KEPT)
                dfm_ledger_changed(d);
        n->flags = m->alive.flags | (n->flags & DFM_FLAGS_KEPT);
        n->reason = m->alive.reason;
        n->reason_node = m->alive.reason_node;
        n->reason_ms = m->alive.reason_ms;
        n->frames = m->alive.frames;
        d->frames_known = false;
        n->resets = m->alive.resets;
        n->metadata = m->alive.metadata;
}

static void receive_state(struct dfm *d, uint64_t now_ns, enum node_role role, uint16_t index,
                          const struct message *m)
{
        struct dfm_node *n = dfm_node(d, role, index);

        compare_alive(d, n, role, index, m);
        if (n->state == RUN_ENDED) {
                n->left = true;
                dfm_process_left(d, role, index);
                node_goes(d, now_ns, role, index, NOTICE_LEFT);
                return;
        }
        if (role == ROLE_SFI) {
                receive_sfi(d, now_ns, index, n, m->alive.incarnation);
                d->failed |= (n->flags & ALIVE_FAILED) != 0;
                return;
        }
        dfm_process_comes(d, ROLE_ROS, index, n->welcomed);
        if (!n->live)
                node_comes(d, now_ns, n, role, index);
        d->triggers.known &= !dfm_is_behind(d, index);
        dfm_level2_set_room(d, index, m->alive.room);
        dfm_set_xoff(d, index, n->flags & ALIVE_XOFF);
        dfm_record_source(d, now_ns, index);
}

/* Accepts messages only from the welcomed incarnation of a node. A node with another incarnation must join
 * again; the answer states the reason. */
static bool may_speak(struct dfm *d, struct dfm_node *n, uint64_t incarnation)
{
        if (n->welcomed == incarnation) {
                n->spoken++;
                return true;
        }
        d->counts.foreign++;
        d->n_answers += !n->answer_due;
        n->answer_due = true;
        n->answer_to = incarnation;
        n->verdict = WELCOME_OCCUPIED;
        return false;
}

static void receive_alive(struct dfm *d, uint64_t now_ns, enum node_role role, uint16_t index,
                          const struct message *m)
{
        struct dfm_node *n = dfm_node(d, role, index);

        if (!may_speak(d, n, m->alive.incarnation))
                return;
        dfm_record_contact(d, now_ns, n);
        if (sequence_receive(&n->alives, m->header.transaction) == SEQUENCE_NEW)
                receive_state(d, now_ns, role, index, m);
}

bool dfm_receive_alive(struct dfm *d, uint64_t now_ns, const struct message *m)
{
        uint16_t index = m->header.sender_index;
        enum node_role role = m->header.sender_role;
        struct dfm_node *n;

        if ((role != ROLE_SFI || index >= d->config.n_sfi) && (role != ROLE_ROS || index >= d->config.n_ros))
                return false;
        if (m->header.type == MESSAGE_ALIVE) {
                receive_alive(d, now_ns, role, index, m);
                return true;
        }
        n = dfm_node(d, role, index);
        /* A late message of the previous process must not hold back triggers, and must not use up sequence
         * numbers of the new process. */
        if (role == ROLE_ROS && n->live && m->xoff.incarnation == (uint32_t)n->welcomed &&
            sequence_receive(&n->alives, m->header.transaction) == SEQUENCE_NEW)
                dfm_set_xoff(d, index, m->header.type == MESSAGE_XOFF);
        return role == ROLE_ROS;
}

static bool is_silent(const struct dfm *d, uint64_t now_ns, const struct dfm_node *n)
{
        return n->live && now_ns - n->received_ns > d->config.node_timeout_ns;
}

static bool any_is_silent(const struct dfm *d, uint64_t now_ns)
{
        for (uint32_t i = 0; i < d->config.n_ros + d->config.n_sfi; i++) {
                if (is_silent(d, now_ns, &d->nodes[i]))
                        return true;
        }
        return false;
}

static void check_role(struct dfm *d, uint64_t now_ns, enum node_role role, uint32_t count, bool all)
{
        for (uint32_t i = 0; i < count; i++) {
                if (all || is_silent(d, now_ns, dfm_node(d, role, i)))
                        node_goes(d, now_ns, role, (uint16_t)i, NOTICE_SILENT);
        }
}

/* If the DFM is cut off, all nodes count as absent as soon as one of them does. Otherwise, their events would
 * only be reassigned to each other. */
void dfm_check_nodes(struct dfm *d, uint64_t now_ns)
{
        bool all = dfm_receives_nothing(d, now_ns) && any_is_silent(d, now_ns);

        /* If a node has answered since the end of the run, the others are silent themselves. */
        d->cut_off &= (dfm_receives_nothing(d, now_ns) && !d->end_answered) || now_ns < d->gather_ns;
        d->cut_off |= all && !d->end_answered;
        check_role(d, now_ns, ROLE_SFI, d->config.n_sfi, all);
        check_role(d, now_ns, ROLE_ROS, d->config.n_ros, all);
}

uint32_t dfm_live(const struct dfm *d, enum node_role role)
{
        return role == ROLE_DFM ? 1 : d->n_live[role];
}

/* An SFI may have written events, and no message reported that its files are closed. For a ROS: frames that
 * it read after it fell silent are not accounted for. */
static bool is_unfinished(const struct dfm *d, const struct dfm_node *n, enum node_role role, uint16_t index)
{
        if (!d->done || n->left)
                return false;
        return role == ROLE_SFI ? d->sfis[index].next > 0 || n->was_in_run || dfm_process_has_built(d, index)
                                : d->begun && dfm_process_was_in_run(d, ROLE_ROS, index) &&
                                          dfm_requires_frames(d, index);
}

/* Whether the SFI may have built events that it never reported to this DFM, and that were then assigned to
 * others. */
static bool is_unreported(const struct dfm *d, const struct dfm_node *n, enum node_role role, uint16_t index)
{
        return role == ROLE_SFI && d->begun && n->awaited &&
               (n->was_in_run || dfm_process_was_in_run(d, ROLE_SFI, index));
}

/* Flags of a ROS whose count of frames is final. */
#define COMPARABLE (ALIVE_COUNTS | ALIVE_QUIET)

/* No trigger of the box follows, so the frames may be from before the run. Then each event has the frame of
 * an earlier trigger. */
static uint64_t extra_frames(const struct dfm *d, const struct dfm_node *n)
{
        bool knows = d->state == RUN_ENDED && d->config.trigger_source == DFM_TRIGGER_OFFERED &&
                     !dfm_triggers_are_followed(d) && n->flags & ALIVE_COUNTS &&
                     n->flags & (ALIVE_QUIET | ALIVE_SURPLUS);

        return knows ? n->frames - MIN(n->frames, d->table.next_event) : 0;
}

struct dfm_node_view dfm_view(const struct dfm *d, enum node_role role, uint16_t index)
{
        const struct dfm_node *n = dfm_node(d, role, index);
        bool unfinished = is_unfinished(d, n, role, index);

        return (struct dfm_node_view){
                .live = n->live,
                .received = n->received,
                .holds_back = role == ROLE_ROS && d->ross[index].xoff && !d->ross[index].left_out,
                .left_out = role == ROLE_ROS && d->ross[index].left_out,
                .is_missing_frame = role == ROLE_ROS && d->awaits_frames && dfm_is_missing_frame(d, index),
                .behind = role == ROLE_ROS && dfm_waits_for_reset(d) && dfm_is_behind(d, index),
                .received_ns = n->received_ns,
                .credits = role == ROLE_SFI ? dfm_sfi_free(d, &d->sfis[index]) : 0,
                .held = role == ROLE_SFI ? d->sfis[index].held : 0,
                .reason = n->reason,
                .reason_node = n->reason_node,
                .reason_ms = n->reason_ms,
                .frames = n->frames,
                .extra_frames = role == ROLE_ROS ? extra_frames(d, n) : 0,
                .has_more_frames = role == ROLE_ROS && n->flags & ALIVE_SURPLUS,
                .free_credits = role == ROLE_SFI ? dfm_sfi_free(d, &d->sfis[index]) : 0,
                .unreliable = n->flags & ALIVE_UNRELIABLE,
                .cut_short = role == ROLE_ROS && dfm_frames_trigger(d) &&
                             d->order.announced[index].cut_short && !unfinished,
                .short_of_frames =
                        role == ROLE_ROS && n->flags & ALIVE_SHORT && dfm_requires_frames(d, index),
                .faulty = role == ROLE_SFI && n->flags & ALIVE_SHORT,
                .failed = n->flags & ALIVE_FAILED,
                .vanished = n->vanished || is_unreported(d, n, role, index),
                .replaced = n->replaced,
                .unknown = role == ROLE_SFI && dfm_ledger_has_gap(d, index),
                .unclosed = role == ROLE_SFI ? dfm_process_unclosed(d, index) : 0,
                .left_open = role == ROLE_SFI ? dfm_process_left_open(d, index) : 0,
                .unfinished = unfinished,
        };
}

/* The counts of frames are comparable once the front-ends are silent. The last count of an absent ROS proves
 * nothing, and a ROS without frames cannot mix any. */
bool dfm_frames_differ(const struct dfm *d)
{
        const struct dfm_node *first = NULL;

        for (uint32_t i = 0; i < d->config.n_ros; i++) {
                const struct dfm_node *n = dfm_node(d, ROLE_ROS, i);

                if ((n->flags & COMPARABLE) != COMPARABLE || n->frames == 0)
                        continue;
                if (first && n->frames != first->frames)
                        return true;
                first = n;
        }
        return false;
}

bool dfm_is_unreliable(const struct dfm *d)
{
        for (uint32_t i = 0; i < d->config.n_ros; i++) {
                const struct dfm_node *n = dfm_node(d, ROLE_ROS, i);

                if (n->flags & ALIVE_UNRELIABLE || extra_frames(d, n) > 0)
                        return true;
        }
        return dfm_frames_differ(d);
}

bool dfm_has_begun(const struct dfm *d)
{
        return d->begun;
}

bool dfm_is_in_run(const struct dfm *d)
{
        return d->begun || d->resume.active;
}

bool dfm_awaits_run(const struct dfm *d)
{
        return d->config.previous.cookie != 0 && d->state == RUN_STARTING && !d->resume.active &&
               !dfm_is_ready(d);
}

static bool last_call_is_over(const struct dfm *d, uint64_t now_ns)
{
        return now_ns - d->quorum_ns >= LAST_CALL_KEEP_ALIVES * d->config.keep_alive_ns;
}

/* Whether all nodes are present, or at least one node of each role is present and no other has joined for
 * some time. A stopped run does not wait for nodes that may be gone. */
static bool has_quorum(const struct dfm *d, uint64_t now_ns)
{
        uint32_t ross = dfm_live(d, ROLE_ROS), sfis = dfm_live(d, ROLE_SFI);

        if (ross == d->config.n_ros && sfis == d->config.n_sfi)
                return true;
        if (d->stopped)
                return last_call_is_over(d, now_ns);
        if (ross == 0 || sfis == 0)
                return false;
        return now_ns - d->quorum_ns >= (d->config.start_timeout_ns ?: d->config.node_timeout_ns);
}

static bool may_start_anew(const struct dfm *d, uint64_t now_ns)
{
        return d->state == RUN_STARTING && !d->stopped && !d->resume.active && !d->hold.held &&
               has_quorum(d, now_ns);
}

bool dfm_needs_number(const struct dfm *d, uint64_t now_ns)
{
        return d->config.run == 0 && may_start_anew(d, now_ns);
}

/* A run that is being resumed begins even after a stop, so that its events are accounted for. */
static bool may_start(const struct dfm *d, uint64_t now_ns)
{
        if (!d->resume.active)
                return d->config.run != 0 && may_start_anew(d, now_ns);
        return d->state == (d->stopped ? RUN_DRAINING : RUN_STARTING) && has_quorum(d, now_ns) &&
               dfm_resume_is_settled(d);
}

static bool triggers_are_over(const struct dfm *d, uint64_t now_ns)
{
        const struct dfm_config *c = &d->config;

        return d->failed || d->stopped || d->triggers.over ||
               (c->events > 0 && d->counts.triggers >= c->events) ||
               (c->duration_ns > 0 && now_ns - d->started_ns >= c->duration_ns);
}

static void record_overdue(struct dfm *d, uint64_t now_ns)
{
        const struct dfm_config *c = &d->config;

        d->overdue = c->duration_ns > 0 && now_ns - d->started_ns >= c->duration_ns;
        if (d->overdue)
                dfm_notice(d, &(struct dfm_notice){.kind = NOTICE_OVERDUE, .run = c->run});
}

static void begin(struct dfm *d, uint64_t now_ns)
{
        const struct dfm_config *c = &d->config;

        d->state = RUN_RUNNING;
        d->hold.held = false;
        d->begun = true;
        if (d->resume.active) {
                dfm_settle_resume(d, now_ns);
                d->stopped |= c->previous.stopped && c->previous.cookie == d->cookie;
                d->failed |= c->previous.failed && c->previous.cookie == d->cookie;
                record_overdue(d, now_ns);
        } else {
                d->started_ns = now_ns;
        }
        d->keep_alive_due_ns = now_ns;
        if (!d->overdue && !d->stopped)
                dfm_notice(d, &(struct dfm_notice){.kind = NOTICE_BEGUN, .run = c->run});
        dfm_triggers_begin(d, now_ns);
        dfm_order_begin(d);
        trigger_init(&d->trigger, c->trigger_kind, c->trigger_rate_millihertz, c->trigger_burst, c->seed,
                     now_ns);
}

static void end(struct dfm *d, uint64_t now_ns)
{
        d->state = RUN_ENDED;
        d->ended_ns = now_ns;
        d->keep_alive_due_ns = now_ns;
}

static void drain(struct dfm *d, uint64_t now_ns)
{
        bool finishes;

        /* Slices that have passed came before the stop. */
        dfm_triggers_tick(d, now_ns);
        dfm_triggers_close(d);
        finishes = dfm_finish(d, now_ns);
        dfm_count_pause(d, now_ns);
        d->hold.paused = false;
        d->state = RUN_DRAINING;
        d->draining_ns = now_ns;
        dfm_ledger_changed(d);
        d->level2.served_ns = now_ns;
        if (!finishes) {
                dfm_order_drop(d);
                dfm_triggers_drop(d);
        }
        d->keep_alive_due_ns = now_ns;
}

/* If the DFM is cut off, absent nodes of a run may be there. */
static bool may_return(const struct dfm *d, uint64_t now_ns)
{
        if (!d->begun || now_ns - d->draining_ns >= d->config.leave_timeout_ns)
                return false;
        for (uint32_t i = 0; d->cut_off && i < d->config.n_ros + d->config.n_sfi; i++) {
                if (d->nodes[i].missed && !d->nodes[i].left)
                        return true;
        }
        return false;
}

/* Whether a present node still has to report its end: an SFI, or a ROS whose frames must be accounted for. */
static bool awaits_end(const struct dfm *d)
{
        for (uint32_t i = 0; i < d->config.n_ros; i++) {
                if (dfm_node(d, ROLE_ROS, i)->live && dfm_requires_frames(d, i))
                        return true;
        }
        return d->n_live[ROLE_SFI] > 0;
}

static bool may_leave_nodes(const struct dfm *d, uint64_t now_ns)
{
        uint64_t since_ns = now_ns - d->ended_ns;

        if (may_return(d, now_ns) ||
            (awaits_end(d) && since_ns < MAX(d->config.leave_timeout_ns, ENDED_LINGER_NS)))
                return false;
        return dfm_live(d, ROLE_ROS) == 0 || since_ns >= ENDED_LINGER_NS;
}

void dfm_advance_run(struct dfm *d, uint64_t now_ns)
{
        if (d->state == RUN_STARTING && d->stopped && (d->resume.active || last_call_is_over(d, now_ns)))
                drain(d, now_ns);
        if (may_start(d, now_ns))
                begin(d, now_ns);
        if (d->state == RUN_RUNNING && triggers_are_over(d, now_ns))
                drain(d, now_ns);
        if (d->state == RUN_DRAINING || d->only_leaving)
                dfm_check_leaving(d);
        if (d->state == RUN_DRAINING && !d->resume.active && !dfm_is_finishing(d, now_ns) &&
            d->table.used == 0 && d->n_clears == 0 && dfm_resume_is_settled(d))
                end(d, now_ns);
        d->done |= d->state == RUN_ENDED && may_leave_nodes(d, now_ns);
}

bool dfm_is_stopped(const struct dfm *d)
{
        return d->stopped;
}

void dfm_stop(struct dfm *d, uint64_t now_ns)
{
        if (d->state >= RUN_DRAINING)
                return;
        d->stopped = true;
        d->quorum_ns = now_ns;
        if (!dfm_awaits_run(d))
                drain(d, now_ns);
}
