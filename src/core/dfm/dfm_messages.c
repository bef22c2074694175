/* Makes the DFM's messages from its state. All decisions about events are in dfm_events.c. */
#include <string.h>

#include "dfm_internal.h"

/* With level 2, the last Clears are repeated with this many KeepAlives. If 10 % of packets are lost, the
 * probability that a ROS receives none of them is 1e-9. */
#define REPEATS_MAX 8u
/* The interval at which the DFM repeats the end of the run. */
#define ENDED_REPEAT_NS (20 * NS_PER_MS)

void dfm_address(const struct dfm *d, struct message *m, uint32_t type, uint32_t transaction)
{
        m->header = (struct message_header){
                .cookie = d->cookie,
                .sender_role = ROLE_DFM,
                .type = type,
                .transaction = transaction,
        };
        m->dfm = d->config.incarnation;
        m->n = 0;
}

/* Returns the event if this is its present assignment; otherwise NULL. */
static const struct dfm_event *assignment(const struct dfm *d, uint16_t sfi, uint64_t event,
                                          uint32_t sequence)
{
        uint32_t slot = idmap_get(&d->table.by_event, event);
        const struct dfm_event *e = slot == IDMAP_NONE ? NULL : &d->table.slots[slot];

        return e && e->sfi == sfi && e->sequence == sequence ? e : NULL;
}

static void begin_assign(struct dfm *d, struct message *m, uint32_t transaction)
{
        dfm_address(d, m, MESSAGE_ASSIGN, transaction);
        m->assign.with_info = m->assign.announces = false;
        m->assign.sfi = 0;
        m->assign.resets = d->triggers.resets;
        m->assign.incarnation = m->assign.finished_ack = 0;
}

/* Adds an entry for `e`; NULL: for an event that was withdrawn. False: the entry does not fit into this
 * message. */
static bool add_entry(struct dfm *d, struct message *m, const struct dfm_event *e)
{
        struct assign_entry *entry = &m->assign.entries[m->n];
        uint32_t type = e && e->attempts > 1 ? MESSAGE_BUILD : MESSAGE_ASSIGN;

        if (m->n == MESSAGE_ENTRIES_MAX)
                return false;
        if (m->n == 0)
                m->header.type = type;
        else if (m->header.type != type)
                return false;
        *entry = (struct assign_entry){
                .event = e ? e->event : ASSIGN_VOID_EVENT,
                .l1_id = e ? (uint32_t)e->event : 0,
                .flags = e ? 0 : ASSIGN_VOID,
        };
        if (dfm_has_info(d)) {
                m->assign.infos[m->n] = (struct event_info){};
                if (e)
                        dfm_describe(d, e, &m->assign.infos[m->n]);
                entry->l1_id = m->assign.infos[m->n].l1_id;
        }
        if (m->assign.announces) {
                entry->sfi = e ? e->sfi : 0;
        } else {
                entry->sequence = m->header.transaction + (uint32_t)m->n;
                entry->sfi = m->assign.sfi;
                entry->time_ns = e ? e->trigger_ns + d->config.utc_offset_ns : 0;
        }
        m->n++;
        return true;
}

/* Whether the oldest assignment that waits for its announcement has been sent to its SFI. *ret is NULL if the
 * event was withdrawn; the assignment then goes only to the SFI, as void. */
static bool may_announce(const struct dfm *d, const struct dfm_event **ret)
{
        uint32_t slot;

        if (d->announce_tail == d->announce_head)
                return false;
        slot = idmap_get(&d->table.by_event, d->announce[d->announce_tail & d->announce_mask]);
        *ret = slot == IDMAP_NONE || d->table.slots[slot].sfi == NO_SFI ? NULL : &d->table.slots[slot];
        return !*ret || (int32_t)((*ret)->sequence - d->sfis[(*ret)->sfi].reached) < 0;
}

/* Entries from m->n on did not fit, so they wait for the next announcement. */
static void unqueue(struct dfm *d, const struct message *m, size_t n)
{
        while (n > m->n) {
                d->announce_tail--;
                if (d->announce[d->announce_tail & d->announce_mask] == m->assign.entries[n - 1].event)
                        n--;
        }
}

/* Push: announces the oldest assignments that were not announced yet. */
bool dfm_make_announcement(struct dfm *d, uint64_t now_ns, struct message_to *to, struct message *m)
{
        const struct dfm_event *e;
        size_t n;

        if (!may_announce(d, &e) || !budget_allows(&d->ros_budget, now_ns))
                return false;
        begin_assign(d, m, 0);
        m->assign.announces = true;
        for (; may_announce(d, &e); d->announce_tail++)
                if (e && !add_entry(d, m, e))
                        break;
        n = m->n;
        message_fit(m, d->config.message_bytes);
        unqueue(d, m, n);
        /* If an event moves to another SFI, all SFIs are informed, so that the previous one drops its
         * fragments. */
        *to = (struct message_to){ROLE_ROS,
                                  m->header.type == MESSAGE_BUILD ? MESSAGE_TO_ALL : MESSAGE_TO_ROSS};
        return m->n > 0;
}

static void resend_if_due(struct dfm_sfi *s, uint64_t now_ns)
{
        if (now_ns < s->resend_ns)
                return;
        s->sent = s->acked;
        s->resend_after_ns = MIN(2 * s->resend_after_ns, DFM_RESEND_LONGEST_NS);
        s->resend_ns = now_ns + s->resend_after_ns;
}

static bool make_stream_message(struct dfm *d, uint64_t now_ns, uint16_t sfi, struct message *m)
{
        struct dfm_sfi *s = &d->sfis[sfi];
        uint32_t next = s->sent;

        if (next == s->next)
                return false;
        begin_assign(d, m, s->sent);
        m->assign.with_info = dfm_has_info(d);
        m->assign.sfi = sfi;
        m->assign.incarnation = (uint32_t)s->incarnation;
        m->assign.finished_ack = s->finished_next;
        while (next != s->next && add_entry(d, m, assignment(d, sfi, s->stream[next & d->stream_mask], next)))
                next++;
        message_fit(m, d->config.message_bytes);
        s->sent += (uint32_t)m->n;
        if ((int32_t)(s->sent - s->reached) > 0)
                s->reached = s->sent;
        if (s->resend_ns == NEVER_NS)
                s->resend_ns = now_ns + s->resend_after_ns;
        s->ack_due_ns = NEVER_NS;
        return true;
}

static bool make_ack(struct dfm *d, uint64_t now_ns, struct dfm_sfi *s, struct message *m)
{
        if (now_ns < s->ack_due_ns)
                return false;
        s->ack_due_ns = NEVER_NS;
        dfm_address(d, m, MESSAGE_UPDATE_ACK, 0);
        m->update_ack.finished_ack = s->finished_next;
        m->update_ack.incarnation = s->incarnation;
        return true;
}

/* Makes the next message that is due to a single SFI; SFIs take turns. */
bool dfm_make_sfi_message(struct dfm *d, uint64_t now_ns, struct message_to *to, struct message *m)
{
        uint32_t first = d->sfi_turn;

        for (uint32_t k = 0; k < d->config.n_sfi; k++) {
                uint16_t i = (uint16_t)((first + k) % d->config.n_sfi);
                struct dfm_sfi *s = &d->sfis[i];

                if (!dfm_sfi_is_live(d, s) || !budget_allows(&s->budget, now_ns))
                        continue;
                d->sfi_turn = i;
                *to = (struct message_to){ROLE_SFI, i};
                resend_if_due(s, now_ns);
                if (make_stream_message(d, now_ns, i, m) || make_ack(d, now_ns, s, m))
                        return true;
        }
        return false;
}

void dfm_charge(struct dfm *d, uint64_t now_ns, const struct message_to *to, const struct message *m)
{
        size_t bytes;

        if (d->ros_budget.rate_bps == 0)
                return;
        bytes = message_bytes(m);
        if (to->index == MESSAGE_TO_ALL || to->index == MESSAGE_TO_ROSS || to->role == ROLE_ROS)
                budget_charge(&d->ros_budget, now_ns, bytes);
        for (uint32_t i = 0; i < d->config.n_sfi; i++)
                if (to->index == MESSAGE_TO_ALL || (to->role == ROLE_SFI && to->index == i))
                        budget_charge(&d->sfis[i].budget, now_ns, bytes);
}

uint64_t dfm_streams_deadline_ns(const struct dfm *d)
{
        uint64_t deadline = NEVER_NS;
        const struct dfm_event *e;

        if (may_announce(d, &e))
                deadline = budget_next_ns(&d->ros_budget);
        for (uint32_t i = 0; i < d->config.n_sfi; i++) {
                const struct dfm_sfi *s = &d->sfis[i];
                uint64_t due_ns = s->sent != s->next ? 0 : MIN(s->resend_ns, s->ack_due_ns);

                if (dfm_sfi_is_live(d, s))
                        deadline = MIN(deadline, MAX(due_ns, budget_next_ns(&s->budget)));
        }
        return deadline;
}

uint64_t dfm_clear_deadline_ns(const struct dfm *d)
{
        /* A reset waits until the last Clear has been sent. */
        bool reset = dfm_reset_is_pending(&d->triggers) || d->order.closing;
        bool last = d->state == RUN_DRAINING || (d->table.used == 0 && reset);
        uint64_t due_ns =
                d->n_clears >= d->clear_group || last ? 0 : d->clear_since_ns + d->config.clear_after_ns;

        if (d->n_clears == 0)
                due_ns = d->repeat_at < d->repeat_end ? 0 : NEVER_NS;
        return MAX(due_ns, budget_next_ns(&d->ros_budget));
}

/* If a Clear is lost, the ROSs keep its events until all older events have ended. But the oldest open event
 * may itself wait for the room that they occupy. So if the oldest open event is the same at two KeepAlives,
 * the Clears of built events above it are repeated. With level 2, only the L1 IDs of the last Clears show a
 * ROS which of its frames belong to ended events. */
static void plan_repeats(struct dfm *d)
{
        bool moved = d->table.oldest != d->repeat_oldest;

        d->repeat_oldest = d->table.oldest;
        if (d->config.level2.on) {
                d->repeats = moved ? 0 : d->repeats + 1;
                moved |= d->repeats > REPEATS_MAX || !d->config.has_front_ends;
                d->repeat_at = d->n_cleared - MIN(d->n_cleared, DFM_CLEARED);
                d->repeat_end = moved ? d->repeat_at : d->n_cleared;
                return;
        }
        d->repeat_at = d->table.oldest;
        d->repeat_end = moved ? d->repeat_at : d->table.next_event;
}

static void add_repeat(struct dfm *d, struct message *m)
{
        const struct dfm_ended *e = &d->cleared[d->repeat_at % DFM_CLEARED];

        if (!m->clear.with_l1_ids && !event_set_has(&d->ledger.ended, d->repeat_at))
                return;
        m->clear.events[m->n] = m->clear.with_l1_ids ? e->event : d->repeat_at;
        m->clear.l1_ids[m->n++] = e->l1_id;
}

/* A ROS that was away during the last reset must not take L1 IDs for numbers of frames from before it. */
static uint16_t resets_of_clear(const struct dfm *d)
{
        for (uint32_t i = 0; d->triggers.resets > 1 && i < d->config.n_ros; i++) {
                if (dfm_node(d, ROLE_ROS, i)->resets != d->triggers.resets)
                        return (uint16_t)d->triggers.resets;
        }
        return 0;
}

static void begin_clear(struct dfm *d, struct message *m, bool with_l1_ids)
{
        dfm_address(d, m, MESSAGE_CLEAR, d->clear_sequence);
        m->clear.oldest = d->table.oldest;
        m->clear.with_l1_ids = with_l1_ids;
        m->clear.resets = with_l1_ids ? resets_of_clear(d) : 0;
}

static bool make_repeat(struct dfm *d, struct message_to *to, struct message *m)
{
        size_t max = MIN(d->clear_group, message_entries_fit(MESSAGE_CLEAR, d->config.message_bytes));

        begin_clear(d, m, d->config.level2.on);
        for (m->n = 0; d->repeat_at < d->repeat_end && m->n < max; d->repeat_at++)
                add_repeat(d, m);
        if (m->n == 0)
                return false;
        *to = (struct message_to){ROLE_ROS, MESSAGE_TO_ROSS};
        d->clear_sequence++;
        return true;
}

bool dfm_make_clear(struct dfm *d, uint64_t now_ns, struct message_to *to, struct message *m)
{
        uint32_t n = 0;

        if (now_ns < dfm_clear_deadline_ns(d))
                return false;
        dfm_ledger_record(d);
        if (d->n_clears == 0)
                return make_repeat(d, to, m);
        *to = (struct message_to){ROLE_ROS, MESSAGE_TO_ROSS};
        begin_clear(d, m, d->clears[0].has_l1_id);
        d->clear_sequence++;
        for (; n < MIN(d->n_clears, d->clear_group) && d->clears[n].has_l1_id == d->clears[0].has_l1_id;
             n++) {
                m->clear.events[n] = d->clears[n].event;
                m->clear.l1_ids[n] = d->clears[n].l1_id;
        }
        m->n = n;
        message_fit(m, d->config.message_bytes);
        n = (uint32_t)m->n;
        for (uint32_t i = 0; i < n && d->clears[i].has_l1_id; i++)
                d->cleared[d->n_cleared++ % DFM_CLEARED] = d->clears[i];
        d->n_clears -= n;
        memmove(d->clears, d->clears + n, d->n_clears * sizeof *d->clears);
        d->clear_since_ns = now_ns;
        return true;
}

/* When KeepAlive raises `oldest`, the ROSs clear all events below it. With level 2, only a Clear shows a ROS
 * which frames were triggered. So `oldest` must not pass an event whose Clear has not been sent. */
static uint64_t oldest_not_cleared(const struct dfm *d)
{
        uint64_t oldest = d->table.oldest;

        for (uint32_t i = 0; i < d->n_clears; i++)
                oldest = MIN(oldest, d->clears[i].event);
        return oldest;
}

/* Whether events wait for this ROS. If the DFM is or was cut off, events also wait for a ROS that is about to
 * return: a node that returns first receives the messages of the time before. */
static bool is_awaited(const struct dfm *d, uint64_t now_ns, uint32_t ros)
{
        const struct dfm_node *n = dfm_node(d, ROLE_ROS, ros);
        bool may_return = now_ns < d->gather_ns || d->n_live[ROLE_ROS] + d->n_live[ROLE_SFI] == 0;

        return (n->live && !d->ross[ros].left_out) || (n->missed && may_return);
}

void dfm_make_keep_alive(struct dfm *d, uint64_t now_ns, struct message *m)
{
        dfm_ledger_record(d);
        dfm_ledger_record_counts(d, now_ns);
        dfm_address(d, m, MESSAGE_KEEP_ALIVE, d->keep_alive_sequence++);
        m->keep_alive.oldest = oldest_not_cleared(d);
        m->keep_alive.triggers = d->counts.triggers;
        m->keep_alive.state = d->state;
        m->keep_alive.clear_next = d->clear_sequence;
        m->keep_alive.reset_number = d->triggers.reset_number;
        m->keep_alive.resets = d->triggers.resets;
        m->keep_alive.flags =
                dfm_expects_frames(d) || dfm_awaits_leader(d, now_ns) ? KEEP_ALIVE_AWAITS_FRAMES : 0;
        m->keep_alive.flags |= d->stalled ? KEEP_ALIVE_STALLED : 0;
        m->keep_alive.flags |= d->resume.active ? KEEP_ALIVE_RESUMES : 0;
        m->keep_alive.flags |= dfm_triggers_are_followed(d) ? KEEP_ALIVE_FOLLOWED : 0;
        m->keep_alive.metadata = d->hold.metadata.version;
        memset(m->keep_alive.ros_live, 0, sizeof m->keep_alive.ros_live);
        memset(m->keep_alive.sfi_live, 0, sizeof m->keep_alive.sfi_live);
        for (uint32_t i = 0; i < d->config.n_ros; i++)
                m->keep_alive.ros_live[i / 64] |= (uint64_t)is_awaited(d, now_ns, i) << i % 64;
        for (uint32_t i = 0; i < d->config.n_sfi; i++)
                m->keep_alive.sfi_live[i / 64] |= (uint64_t)dfm_node(d, ROLE_SFI, i)->live << i % 64;
        d->keep_alive_due_ns = now_ns + (d->state == RUN_ENDED ? ENDED_REPEAT_NS : d->config.keep_alive_ns);
        plan_repeats(d);
}
