/* The SFI's entry points: creation, received messages, the next message to send, events to write. This file
 * joins the parts of the SFI; sfi_chunks.c handles the data. */
#include "core/sfi.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

#include "sfi_internal.h"

/* ---- Metadata with which an operator started the run ---- */

/* Accepts one name and its value. */
static void receive_metadata(struct sfi *s, uint64_t now_ns, const struct message *m)
{
        struct metadata_set *a = &s->arriving;

        s->metadata_cookie = m->header.cookie;
        if (m->metadata.version == s->metadata.version)
                return;
        if (m->metadata.version != a->version || m->metadata.count != a->n) {
                *a = (struct metadata_set){.version = m->metadata.version, .n = m->metadata.count};
                s->arrived = 0;
        }
        a->entries[m->metadata.number] = m->metadata.entry;
        s->arrived |= (uint16_t)(1u << m->metadata.number);
        if (a->n > 0 && s->arrived != (1u << a->n) - 1)
                return;
        s->metadata = *a;
        s->keep_alive_due_ns = now_ns;
}

/* A new DFM: discards the metadata of a run that did not begin, because this DFM counts versions from the
 * beginning. */
static void leave_metadata(struct sfi *s)
{
        if (s->metadata_cookie == s->member.cookie)
                return;
        s->metadata = s->arriving = (struct metadata_set){};
        s->arrived = s->metadata_wanted = 0;
        s->metadata_known = false;
}

const struct metadata_set *sfi_metadata(const struct sfi *s)
{
        bool has = s->metadata_wanted == 0 || s->metadata_wanted == s->metadata.version;

        /* Fragments of a previous process's events may arrive before the DFM has announced the run's
         * metadata. */
        return has && s->metadata_known ? &s->metadata : NULL;
}

/* ---- The end of the run: when the SFI has no more to do, and whether the DFM knows that it has left ---- */

/* How long a KeepAlive counts as current: the DFM repeats the end of the run more often. */
#define PRESENT_NS (60 * NS_PER_MS)

/* Records the set of present SFIs from a KeepAlive. */
static void record_presence(struct sfi *s, uint64_t now_ns, const uint64_t *sfi_live)
{
        bool present = sfi_live[s->config.index / 64] >> s->config.index % 64 & 1;

        s->present_until_ns = present && s->run_state == RUN_ENDED ? now_ns + PRESENT_NS : 0;
}

bool sfi_is_awaited(const struct sfi *s, uint64_t now_ns)
{
        return now_ns < s->present_until_ns;
}

void sfi_stop(struct sfi *s, uint64_t now_ns)
{
        if (s->state >= RUN_DRAINING)
                return;
        s->state = RUN_DRAINING;
        s->keep_alive_due_ns = now_ns;
}

bool sfi_is_drained(const struct sfi *s)
{
        if (s->run_state != RUN_ENDED && s->state < RUN_DRAINING)
                return false;
        /* Without a DFM, no further report is acknowledged. */
        return s->slots.n_free == s->config.slots &&
               (s->run_state == RUN_ENDED || sfi_updates_are_acked(&s->updates) ||
                s->member.received_ns == 0);
}

uint64_t sfi_unacknowledged(const struct sfi *s)
{
        return sfi_updates_unacknowledged(&s->updates);
}

void sfi_set_ended(struct sfi *s, uint64_t now_ns)
{
        s->state = RUN_ENDED;
        s->keep_alive_due_ns = now_ns;
}

/* ---- Entry points ---- */

static int init_parts(struct sfi *s)
{
        int r;

        s->requests.config = s->updates.config = &s->config;
        s->requests.member = s->updates.member = &s->member;
        s->requests.slots = s->updates.slots = &s->slots;
        s->requests.retry = &s->retry;
        s->requests.limit = &s->limit;
        s->requests.counts = &s->counts;
        sfi_retry_init(&s->retry, &s->config);
        sfi_limit_init(&s->limit, &s->config);
        r = sfi_slots_init(&s->slots, &s->config, &s->counts);
        if (r >= 0)
                r = sfi_requests_init(&s->requests);
        if (r >= 0)
                r = sfi_updates_init(&s->updates);
        if (r < 0)
                return r;
        s->sequences = calloc(s->config.n_ros, sizeof *s->sequences);
        return s->sequences ? sfi_ports_init(&s->ports, &s->config) : -ENOMEM;
}

int sfi_new(struct sfi **ret, const struct sfi_config *config, uint64_t now_ns)
{
        struct sfi *s;
        int r;

        if (config->n_ros == 0 || config->n_ros > EVB_ROS_MAX || config->index >= EVB_SFI_MAX ||
            config->slots < 4 || config->slots > SFI_ASSIGN_WINDOW || config->credits > config->slots ||
            config->timeout_ns == 0 || config->buffer_bytes < EVB_FRAGMENT_MAX_BYTES ||
            message_entries_fit(MESSAGE_REQUEST, config->message_bytes) < 32)
                return -EINVAL;
        s = calloc(1, sizeof *s);
        if (!s)
                return -ENOMEM;
        s->config = *config;
        member_init(&s->member, &config->member, ROLE_SFI, config->index, now_ns);
        s->run_state = RUN_STARTING;
        s->state = RUN_RUNNING;
        s->keep_alive_due_ns = now_ns;
        s->rate_due_ns = NEVER_NS;
        s->rate_sent = PORT_RATE_FULL;
        port_rate_init(&s->rate, now_ns);
        r = init_parts(s);
        if (r < 0) {
                sfi_free(s);
                return r;
        }
        *ret = s;
        return 0;
}

struct sfi *sfi_free(struct sfi *s)
{
        if (!s)
                return NULL;
        sfi_slots_fini(&s->slots);
        sfi_requests_fini(&s->requests);
        sfi_updates_fini(&s->updates);
        free(s->sequences);
        sfi_ports_fini(&s->ports);
        free(s);
        return NULL;
}

static void record_assignment(struct sfi *s, uint32_t sequence)
{
        sfi_updates_record_assignment(&s->updates, sequence);
        s->counts.assigned++;
}

static void begin_assigned(struct sfi *s, uint64_t now_ns, uint32_t slot, uint32_t l1_id)
{
        sfi_slots_set_assigned(&s->slots, slot, l1_id);
        s->slots.items[slot].expire_ns = now_ns + s->config.timeout_ns;
        if (s->config.pull)
                sfi_requests_queue(&s->requests, slot);
        else {
                sfi_requests_plan(&s->requests, now_ns, slot);
                sfi_slots_check(&s->slots, now_ns, slot);
                sfi_slots_limit_wait(&s->slots, slot);
        }
}

static struct event_info info_of(const struct sfi *s, const struct message *m, size_t k)
{
        const struct assign_entry *a = &m->assign.entries[k];

        if (m->assign.with_info)
                return m->assign.infos[k];
        return (struct event_info){
                .global_id = a->event,
                .l1_id = a->l1_id,
                .run = s->member.run,
                .time_s = (uint32_t)(a->time_ns / NS_PER_S),
                .time_ns = (uint32_t)(a->time_ns % NS_PER_S),
        };
}

/* The DFM may take back an event from a slow SFI and find no other SFI for it. Then the event already has an
 * assigned slot here. */
static bool is_double(const struct sfi *s, uint32_t slot)
{
        return slot != SLOT_NONE && s->slots.items[slot].assigned;
}

static void assign(struct sfi *s, uint64_t now_ns, const struct message *m, size_t k)
{
        const struct assign_entry *a = &m->assign.entries[k];
        bool again = m->header.type == MESSAGE_BUILD, is_void = a->flags & ASSIGN_VOID;
        struct sfi_slots *t = &s->slots;
        uint32_t slot;

        if (!sfi_updates_have_room(&s->updates))
                return;
        /* An Update shows only by `assign_ack` whether the end that it reports is of this assignment or of an
         * earlier one, so no earlier assignment may be missing. */
        if (again && !is_void && a->sequence != (uint32_t)s->updates.assign_next)
                return;
        if (again && !is_void) {
                sfi_slots_withdraw(t, a->event);
                sfi_updates_void_lost(&s->updates, a->event);
        }
        slot = sfi_slots_find(t, a->event);
        if (!is_void && is_double(s, slot)) {
                record_assignment(s, a->sequence);
                t->items[slot].doubles++;
                /* The DFM ignored a report from before this assignment. */
                t->items[slot].writing_reported = false;
                return;
        }
        if (is_void || (again ? sfi_slots_was_built(t, a->event) : sfi_slots_has_ended(t, a->event))) {
                record_assignment(s, a->sequence);
                sfi_updates_report_void(&s->updates, a->event);
                return;
        }
        if (slot == SLOT_NONE)
                slot = sfi_slots_open(t, now_ns, a->event, a->l1_id, true);
        if (slot == SLOT_NONE)
                return; /* if it is not acknowledged, the DFM sends it again */
        record_assignment(s, a->sequence);
        t->items[slot].assigned_again = again;
        t->items[slot].info = info_of(s, m, k);
        begin_assigned(s, now_ns, slot, a->l1_id);
}

/* An SFI that joins late may learn about an event before the first KeepAlive reports which events have ended.
 * All open events are within half of the window, because the DFM uses no more than that. So all events that
 * are further below this event have ended. */
static void record_event(struct sfi *s, uint64_t now_ns, uint64_t event)
{
        s->slots.newest = MAX(s->slots.newest, event + 1);
        if (!s->oldest_jump.started && event >= EVB_EVENT_WINDOW / 2)
                sfi_slots_record_oldest(&s->slots, now_ns, event - EVB_EVENT_WINDOW / 2);
}

/* Announcements show an SFI that an event for which it may hold fragments was assigned to another SFI. */
static void receive_announcement(struct sfi *s, uint64_t now_ns, const struct message *m)
{
        for (size_t k = 0; k < m->n; k++) {
                record_event(s, now_ns, m->assign.entries[k].event);
                if (m->assign.entries[k].sfi != s->config.index)
                        sfi_slots_cancel(&s->slots, now_ns, m->assign.entries[k].event);
        }
}

static void receive_assign(struct sfi *s, uint64_t now_ns, const struct message *m)
{
        if (m->assign.announces)
                receive_announcement(s, now_ns, m);
        if (m->assign.announces || m->assign.sfi != s->config.index ||
            m->assign.incarnation != (uint32_t)s->config.member.incarnation)
                return;
        sfi_updates_receive_ack(&s->updates, now_ns, m->assign.finished_ack);
        if ((int32_t)(m->assign.resets - s->member.resets) > 0)
                s->member.resets = m->assign.resets;
        s->metadata_known |= m->n > 0; /* the DFM assigns events only to an SFI that has the metadata */
        sfi_limit_record_assign(&s->limit, m->n, MESSAGE_HEADER_BYTES + m->header.payload_bytes);
        for (size_t k = 0; k < m->n; k++) {
                const struct assign_entry *a = &m->assign.entries[k];

                if (!(a->flags & ASSIGN_VOID))
                        record_event(s, now_ns, a->event);
                if (!sfi_updates_has_assignment(&s->updates, a->sequence))
                        assign(s, now_ns, m, k);
                /* Acknowledges a repeated assignment, too: the first acknowledgement was lost. */
                if (sfi_updates_has_assignment(&s->updates, a->sequence))
                        sfi_updates_plan(&s->updates, now_ns);
        }
}

static void receive_keep_alive(struct sfi *s, uint64_t now_ns, const struct message *m)
{
        if (sequence_receive(&s->keep_alives, m->header.transaction) != SEQUENCE_NEW)
                return;
        s->slots.newest = MAX(s->slots.newest, m->keep_alive.triggers);
        s->metadata_wanted = m->keep_alive.metadata;
        s->metadata_known = true;
        if (jump_is_believed(&s->oldest_jump, s->slots.oldest, m->keep_alive.oldest, EVB_EVENT_WINDOW))
                sfi_slots_record_oldest(&s->slots, now_ns, m->keep_alive.oldest);
        if (member_learns_resets(m))
                s->member.resets = m->keep_alive.resets;
        if (m->keep_alive.state > s->run_state)
                s->run_state = (enum run_state)m->keep_alive.state;
        /* Before the run starts, or resumes under another DFM, the map shows only the nodes that joined so
         * far. */
        if (m->keep_alive.state >= RUN_RUNNING)
                sfi_slots_set_live(&s->slots, now_ns, m->keep_alive.ros_live);
        if (s->run_state == RUN_ENDED)
                sfi_slots_drop_all(&s->slots, now_ns);
        record_presence(s, now_ns, m->keep_alive.sfi_live);
}

/* The streams to and from the DFM restart. Open events stay open, and the DFM may inquire about them. An
 * incomplete stop is cancelled. */
static void follow_new_dfm(struct sfi *s, uint64_t now_ns)
{
        if (s->run_state == RUN_DRAINING)
                s->run_state = RUN_RUNNING;
        sequence_restart(&s->keep_alives);
        sfi_inventory_fill(&s->updates, &s->totals);
        sfi_updates_restart(&s->updates, now_ns);
        leave_metadata(s);
        s->keep_alive_due_ns = now_ns;
}

static bool receive_welcome(struct sfi *s, uint64_t now_ns, const struct message *m)
{
        const uint64_t cookie = s->member.cookie;
        const enum member_news news = member_receive_welcome(&s->member, now_ns, m);

        if (s->member.cookie != cookie)
                s->updates.inventory.late = m->header.transaction & WELCOME_LATE;
        switch (news) {
        case MEMBER_JOINED:
                s->keep_alive_due_ns = now_ns;
                break;
        case MEMBER_NEW_DFM:
                follow_new_dfm(s, now_ns);
                break;
        case MEMBER_REFUSED:
                if (s->member.refusal == WELCOME_OVER) {
                        s->run_state = RUN_ENDED;
                        sfi_slots_drop_all(&s->slots, now_ns);
                }
                break;
        case MEMBER_NOTHING:
                break;
        }
        return m->header.sender_role == ROLE_DFM;
}

/* False: the DFM never sends this type. */
static bool receive_from_dfm(struct sfi *s, uint64_t now_ns, const struct message *m)
{
        switch (m->header.type) {
        case MESSAGE_ASSIGN:
        case MESSAGE_BUILD:
                receive_assign(s, now_ns, m);
                return true;
        case MESSAGE_KEEP_ALIVE:
                receive_keep_alive(s, now_ns, m);
                return true;
        case MESSAGE_UPDATE_ACK:
                if (m->update_ack.incarnation == s->config.member.incarnation)
                        sfi_updates_receive_ack(&s->updates, now_ns, m->update_ack.finished_ack);
                return true;
        case MESSAGE_INQUIRY:
                sfi_inventory_receive(&s->updates, m);
                return true;
        case MESSAGE_METADATA:
                receive_metadata(s, now_ns, m);
                return true;
        }
        return false;
}

bool sfi_receive(struct sfi *s, uint64_t now_ns, const struct message *m)
{
        if (m->header.type == MESSAGE_WELCOME)
                return receive_welcome(s, now_ns, m);
        if (!member_accepts(&s->member, now_ns, m))
                return true;
        if (m->header.type == MESSAGE_TOTALS)
                return sfi_receive_totals(s, m);
        return m->header.sender_role == ROLE_DFM && receive_from_dfm(s, now_ns, m);
}

static void make_alive(struct sfi *s, uint64_t now_ns, struct message *m)
{
        const struct node_obstacle obstacle = sfi_obstacle(s, now_ns);

        member_address(&s->member, m, MESSAGE_ALIVE);
        m->header.transaction = s->alive_sequence++;
        m->alive.incarnation = s->config.member.incarnation;
        m->alive.frames = m->alive.resets = m->alive.room = 0;
        m->alive.state = s->state;
        m->alive.flags = (uint16_t)((s->failed ? ALIVE_FAILED : 0) | (s->is_faulty ? ALIVE_SHORT : 0));
        member_report(m, now_ns, &obstacle);
        m->alive.metadata = s->metadata.version;
        s->keep_alive_due_ns = now_ns + s->config.keep_alive_ns;
        /* Repeats the credits, in case the last Update was lost. */
        sfi_updates_plan_now(&s->updates, now_ns);
}

static bool may_join(const struct sfi *s)
{
        return s->state != RUN_ENDED && s->run_state != RUN_ENDED;
}

static bool make_message(struct sfi *s, uint64_t now_ns, struct message_to *to, struct message *m)
{
        *to = (struct message_to){ROLE_DFM, 0};
        if (may_join(s) &&
            member_make_join(&s->member, now_ns, s->run_state >= RUN_RUNNING || s->slots.newest > 0, m)) {
                m->join.newest = s->slots.newest;
                m->join.oldest = s->slots.oldest;
                return true;
        }
        if (!member_is_joined(&s->member))
                return false;
        if (now_ns >= s->keep_alive_due_ns) {
                make_alive(s, now_ns, m);
                return true;
        }
        if (s->state == RUN_ENDED)
                return false;
        sfi_check_gaps(s, now_ns);
        sfi_requests_scan(&s->requests, now_ns);
        sfi_updates_report_writing(&s->updates, now_ns);
        if (sfi_count_waiting(s, now_ns))
                sfi_updates_plan(&s->updates, now_ns);
        if (sfi_inventory_make(&s->updates, m) || sfi_make_rate(s, now_ns, to, m))
                return true;
        if (sfi_updates_due(&s->updates, now_ns)) {
                sfi_updates_make(&s->updates, now_ns, sfi_credits(s), m);
                return true;
        }
        s->requests.assigns_bytes = sfi_limit_assigns_bytes(&s->limit, sfi_mean_event_bytes(s),
                                                            sfi_updates_free_credits(&s->updates));
        s->requests_wait = now_ns < s->ports.free_ns;
        return !s->requests_wait &&
               (sfi_requests_make(&s->requests, now_ns, to, m) || sfi_pull_make(&s->requests, now_ns, to, m));
}

bool sfi_step(struct sfi *s, uint64_t now_ns, struct message_to *ret_to, struct message *ret)
{
        if (!make_message(s, now_ns, ret_to, ret))
                return false;
        if (s->config.control.share_bps == 0)
                return true;
        if (ret_to->role == ROLE_ROS)
                sfi_ports_charge(&s->ports, &s->config, now_ns, ret_to->index, message_bytes(ret));
        else
                budget_charge(&s->updates.budget, now_ns, message_bytes(ret));
        return true;
}

uint64_t sfi_deadline_ns(const struct sfi *s)
{
        uint64_t join_ns = may_join(s) ? s->member.join_due_ns : NEVER_NS;
        uint64_t requests_ns = s->requests_wait ? s->ports.free_ns : sfi_requests_deadline_ns(&s->requests);
        uint64_t parts_ns = MIN(requests_ns, sfi_updates_deadline_ns(&s->updates));

        if (!member_is_joined(&s->member))
                return join_ns;
        if (s->state == RUN_ENDED)
                return s->keep_alive_due_ns;
        parts_ns = MIN(parts_ns, sfi_rate_deadline_ns(s));
        return MIN(MIN(s->keep_alive_due_ns, join_ns), MIN(s->slots.writing_look_ns, parts_ns));
}

size_t sfi_pop_built(struct sfi *s, uint32_t *slots, size_t n)
{
        return sfi_slots_pop_built(&s->slots, slots, n);
}

void sfi_built_event(const struct sfi *s, uint32_t slot, struct sfi_built *ret)
{
        const struct sfi_slot *e = &s->slots.items[slot];

        *ret = (struct sfi_built){
                .info = e->info,
                .event = e->event,
                .end = (enum event_end)e->end,
                .is_elsewhere = e->is_elsewhere,
                .assigned_again = e->assigned_again,
                .l1_mismatch = e->mismatched && e->end == EVENT_PARTIAL,
                .fragments = sfi_fragment(&s->slots, slot, 0),
        };
}

static uint64_t payload_of(const struct sfi *s, uint32_t slot)
{
        uint64_t bytes = 0;

        for (uint32_t i = 0; i < s->config.n_ros; i++)
                bytes +=
                        sfi_fragment(&s->slots, slot, i)->whole ? sfi_fragment(&s->slots, slot, i)->bytes : 0;
        return bytes;
}

/* Whether every present ROS reports that no frame came. If a ROS held a fragment, or has not answered, its
 * frame may have come and been lost. If a ROS has a wait of its own, its answer may be missing, because the
 * event may end just before the answer arrives. But at least one ROS must have answered. */
static bool is_unanswered(const struct sfi *s, uint32_t slot)
{
        const struct sfi_slots *t = &s->slots;
        bool any = false;

        for (uint32_t i = 0; i < t->n_ros; i++) {
                const struct sfi_fragment *f = sfi_fragment(t, slot, i);
                bool pending = f->whole && f->status == FRAGMENT_PENDING;

                any |= pending;
                if (!pending && sfi_slots_ros_is_live(t, i) && (f->known || t->rules[i].wait_ns == 0))
                        return false;
        }
        return any;
}

/* If an event is lost, the fragments of all ROSs are lost. */
static void count_sources(struct sfi *s, uint32_t slot, bool is_lost)
{
        for (uint32_t i = 0; i < s->config.n_ros; i++) {
                const struct sfi_fragment *f = sfi_fragment(&s->slots, slot, i);
                struct sfi_sequence *q = &s->sequences[i];

                if (!is_lost && sfi_fragment_is_present(f)) {
                        q->received++;
                        q->bytes += f->bytes;
                } else if (!is_lost && s->slots.rules[i].optional)
                        q->absent++;
                else
                        q->lost++;
        }
}

static void count_end(struct sfi *s, uint32_t slot, const struct finished_entry *entry)
{
        const struct sfi_slot *e = &s->slots.items[slot];

        if (entry->end == EVENT_COMPLETE) {
                s->counts.payload_bytes += entry->payload_bytes;
                s->counts.complete++;
                s->totals.complete++;
                s->totals.payload_bytes += entry->payload_bytes;
        } else if (entry->end == EVENT_PARTIAL) {
                s->counts.partial++;
                s->totals.partial++;
                s->totals.missing += entry->missing;
        } else
                s->counts.lost++;
        s->counts.starved += e->end != EVENT_COMPLETE && e->starved;
        s->totals.absent += entry->absent;
        s->counts.fragments_received += s->config.n_ros - entry->missing - entry->absent;
        s->counts.fragments_lost += entry->missing;
        s->counts.fragments_absent += entry->absent;
        count_sources(s, slot, entry->end == EVENT_LOST);
}

void sfi_written(struct sfi *s, uint64_t now_ns, uint32_t slot, bool failed)
{
        struct sfi_slot *e = &s->slots.items[slot];
        struct finished_entry entry = {
                .event = e->taken_back ? ASSIGN_VOID_EVENT : e->event,
                .end = failed ? EVENT_LOST : e->end,
                .missing = failed || e->end == EVENT_LOST ? s->config.n_ros : e->missing,
                .absent = failed || e->end == EVENT_LOST ? 0 : e->absent,
                .unanswered = e->end == EVENT_LOST && is_unanswered(s, slot),
        };

        assert(e->state == SLOT_BUILDING);
        if (entry.end == EVENT_COMPLETE)
                entry.payload_bytes = payload_of(s, slot);
        if (!e->is_elsewhere)
                count_end(s, slot, &entry);
        sfi_updates_report(&s->updates, &entry);
        /* Report this only after the actual end, because the DFM trusts the first report. */
        for (; e->doubles > 0; e->doubles--)
                sfi_updates_report_void(&s->updates, entry.event);
        sfi_slots_written(&s->slots, slot, failed);
        if (s->slots.has_starved && !s->slots.sources)
                sfi_requests_retry_refused(&s->requests, now_ns);
        s->slots.has_starved = false;
}

enum run_state sfi_run_state(const struct sfi *s)
{
        return s->run_state;
}

const struct member *sfi_member(const struct sfi *s)
{
        return &s->member;
}

/* ---- What the SFI waits for: its disk, or fragments of a ROS ---- */

/* If an event waits longer than this for a fragment, the ROS of the fragment counts as slow. */
#define SFI_LONG_WAIT_NS NS_PER_S

/* Examines only the oldest assigned event, because it has waited longest. */
static struct node_obstacle missing_fragments(const struct sfi *s, uint64_t now_ns)
{
        const struct sfi_slots *t = &s->slots;
        uint32_t slot = t->collecting[1].first;
        struct node_obstacle o = {};

        if (slot == SLOT_NONE || (s->config.pull && !t->items[slot].requested) ||
            now_ns - t->items[slot].first_ns < SFI_LONG_WAIT_NS)
                return o;
        for (uint32_t i = t->n_ros; i-- > 0;) {
                if (sfi_fragment(t, slot, i)->whole || !sfi_slots_ros_is_live(t, i))
                        continue;
                o.reason = REASON_WAITS_FOR;
                o.node = (uint16_t)i;
                o.n_nodes++;
                o.since_ns = t->items[slot].first_ns;
        }
        return o;
}

struct node_obstacle sfi_obstacle(const struct sfi *s, uint64_t now_ns)
{
        if (s->failure != REASON_NONE)
                return (struct node_obstacle){.reason = s->failure, .since_ns = s->failed_ns};
        if (s->slots.slow_since_ns != NEVER_NS)
                return (struct node_obstacle){.reason = REASON_SLOW_OUTPUT,
                                              .since_ns = s->slots.slow_since_ns};
        return missing_fragments(s, now_ns);
}

void sfi_set_failed(struct sfi *s, uint64_t now_ns, enum node_reason why)
{
        if (!s->failed) {
                s->failed_ns = now_ns;
                s->failure = why;
        }
        s->failed = true;
        s->keep_alive_due_ns = now_ns;
}

void sfi_set_faulty(struct sfi *s)
{
        s->is_faulty = true;
}

/* ---- Changes of a running SFI, whose parts read the configuration whenever they need it ---- */

uint32_t sfi_credits_max(const struct sfi *s)
{
        uint32_t slots = s->config.slots;

        return slots <= SFI_SLOTS_SPARE ? s->config.credits
                                        : MAX((slots - SFI_SLOTS_SPARE) / 5 * 4, s->config.credits);
}

bool sfi_may_change_outstanding(const struct sfi *s, uint32_t outstanding)
{
        struct sfi_config c = s->config;

        c.outstanding = outstanding;
        return sfi_pulls_by_bytes(&c) == sfi_pulls_by_bytes(&s->config);
}

void sfi_change(struct sfi *s, uint64_t now_ns, const struct sfi_settings *to)
{
        bool keeps_way_of_pulling = sfi_may_change_outstanding(s, to->outstanding);

        assert(keeps_way_of_pulling && to->credits <= sfi_credits_max(s));
        s->config.credits = to->credits;
        s->config.outstanding = to->outstanding;
        s->config.retries_max = to->retries_max;
        sfi_updates_plan_now(&s->updates, now_ns);
}

/* ---- Pauses of the process: data that arrived then waits unread in its sockets ---- */

static void postpone(struct sfi_slots *t, const struct sfi_list *list, uint64_t now_ns, uint64_t away_ns)
{
        for (uint32_t slot = list->first; slot != SLOT_NONE; slot = t->items[slot].next) {
                struct sfi_slot *e = &t->items[slot];

                e->expire_ns = MAX(e->expire_ns, MIN(e->expire_ns + away_ns, now_ns + t->config->timeout_ns));
                heap_put(&t->due, slot, MIN(e->retry_ns, e->expire_ns), e->event);
        }
}

void sfi_was_paused(struct sfi *s, uint64_t now_ns, uint64_t away_ns)
{
        for (size_t i = 0; i < ARRAY_SIZE(s->slots.collecting); i++)
                postpone(&s->slots, &s->slots.collecting[i], now_ns, away_ns);
        member_was_paused(&s->member, now_ns, away_ns);
}
