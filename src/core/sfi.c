/* The SFI's outside: made, fed with messages, asked for the next message to send and for events to write. */
#include "evb/core/sfi.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

#include "sfi_internal.h"

/* The smallest block of the buffer: what a short fragment takes. */
#define BLOCK_MIN_BYTES 256u

static int allocate(struct sfi *s)
{
        const struct sfi_config *c = &s->config;
        uint32_t ring = power_of_two_at_least(c->slots);
        int r;

        r = idmap_init(&s->by_event, c->slots);
        if (r >= 0)
                r = heap_init(&s->due, c->slots);
        if (r >= 0)
                r = heap_init(&s->holding, c->slots);
        if (r >= 0)
                r = event_set_init(&s->ended);
        if (r >= 0)
                r = event_set_init(&s->built_events);
        if (r >= 0)
                r = sfi_inventory_init(&s->inventory);
        if (r >= 0)
                r = arena_new(&s->arena, c->buffer_bytes, BLOCK_MIN_BYTES, EVB_FRAGMENT_MAX_BYTES);
        if (r < 0)
                return r;
        s->slots = calloc(c->slots, sizeof *s->slots);
        s->fragments = calloc((size_t)c->slots * c->n_ros, sizeof *s->fragments);
        s->free_slots = calloc(c->slots, sizeof *s->free_slots);
        s->cuts = calloc(DIV_ROUND_UP(c->buffer_bytes, 64 * EVB_BLOCK_BYTES), sizeof *s->cuts);
        s->built = calloc(ring, sizeof *s->built);
        s->finished = calloc(SFI_FINISHED, sizeof *s->finished);
        s->waiting = calloc(ring, sizeof *s->waiting);
        s->overdue = calloc(c->slots, sizeof *s->overdue);
        s->sequences = calloc(c->n_ros, sizeof *s->sequences);
        s->streams = calloc(c->n_ros, sizeof *s->streams);
        if (!s->slots || !s->fragments || !s->free_slots || !s->cuts || !s->built || !s->finished ||
            !s->waiting || !s->overdue || !s->sequences || !s->streams)
                return -ENOMEM;
        s->built_mask = s->waiting_mask = ring - 1;
        s->finished_mask = SFI_FINISHED - 1;
        for (uint32_t i = 0; i < c->slots; i++)
                s->free_slots[i] = c->slots - 1 - i;
        s->n_free = c->slots;
        return 0;
}

int sfi_new(struct sfi **ret, const struct sfi_config *config, uint64_t now_ns)
{
        struct sfi *s;
        int r;

        if (config->n_ros == 0 || config->n_ros > EVB_ROS_MAX || config->index >= EVB_SFI_MAX ||
            config->slots < 4 || config->slots > SFI_ASSIGN_WINDOW || config->credits > config->slots ||
            config->timeout_ns == 0 || config->buffer_bytes < EVB_FRAGMENT_MAX_BYTES ||
            message_entries_fit(MESSAGE_REQUEST, false, config->message_bytes) < 32)
                return -EINVAL;
        s = calloc(1, sizeof *s);
        if (!s)
                return -ENOMEM;
        s->config = *config;
        member_init(&s->member, &config->member, ROLE_SFI, config->index, now_ns);
        s->run_state = RUN_STARTING;
        s->state = RUN_RUNNING;
        s->keep_alive_due_ns = now_ns;
        s->collecting[0] = s->collecting[1] = (struct sfi_list){.first = SLOT_NONE, .last = SLOT_NONE};
        s->resend_ns = s->writing_look_ns = s->slow_since_ns = NEVER_NS;
        s->resend_after_ns = SFI_RESEND_FIRST_NS;
        s->stretch = 1;
        s->n_live = config->n_ros;
        memset(s->ros_live, 0xff, sizeof s->ros_live);
        r = allocate(s);
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
        heap_fini(&s->due);
        heap_fini(&s->holding);
        idmap_fini(&s->by_event);
        event_set_fini(&s->ended);
        event_set_fini(&s->built_events);
        sfi_inventory_fini(&s->inventory);
        arena_free(s->arena);
        free(s->slots);
        free(s->fragments);
        free(s->free_slots);
        free(s->cuts);
        free(s->built);
        free(s->finished);
        free(s->waiting);
        free(s->overdue);
        free(s->sequences);
        free(s->streams);
        free(s);
        return NULL;
}

/* The run is over: what is still open was never assigned to us, or the DFM has given it up. */
static void drop_open(struct sfi *s, uint64_t now_ns)
{
        while (s->collecting[true].n > 0)
                sfi_finish_slot(s, now_ns, s->collecting[true].first, true);
        while (s->collecting[false].n > 0)
                sfi_drop_slot(s, s->collecting[false].first);
}

static void receive_keep_alive(struct sfi *s, uint64_t now_ns, const struct message *m)
{
        if (sequence_note(&s->keep_alives, m->header.transaction) != SEQUENCE_NEW)
                return;
        s->newest = MAX(s->newest, m->keep_alive.triggers);
        if (jump_is_believed(&s->oldest_jump, s->oldest, m->keep_alive.oldest, EVB_EVENT_WINDOW))
                sfi_note_oldest(s, m->keep_alive.oldest);
        if (m->keep_alive.state > s->run_state)
                s->run_state = (enum run_state)m->keep_alive.state;
        /* Before the run begins, or is taken up by a DFM that starts again, the map only says who has come
         * so far. */
        if (m->keep_alive.state >= RUN_RUNNING)
                sfi_set_live(s, now_ns, m->keep_alive.ros_live);
        if (s->run_state == RUN_ENDED)
                drop_open(s, now_ns);
}

static bool receive_totals(struct sfi *s, const struct message *m)
{
        if (m->header.sender_role != ROLE_ROS || m->header.sender_index >= s->config.n_ros)
                return false;
        struct sfi_sequence *q = &s->sequences[m->header.sender_index];

        sequence_claim(&q->numbers, m->totals.datagrams);
        q->final = s->run_state == RUN_ENDED;
        return true;
}

/* The streams to and from the DFM restart. Open events stay open, and the DFM may inquire about them. */
static void follow_new_dfm(struct sfi *s, uint64_t now_ns)
{
        sequence_restart(&s->keep_alives);
        sfi_take_inventory(s);
        sfi_restart_streams(s, now_ns);
        s->keep_alive_due_ns = now_ns;
}

static bool receive_welcome(struct sfi *s, uint64_t now_ns, const struct message *m)
{
        switch (member_receive_welcome(&s->member, now_ns, m)) {
        case MEMBER_JOINED:
                s->keep_alive_due_ns = now_ns;
                break;
        case MEMBER_NEW_DFM:
                follow_new_dfm(s, now_ns);
                break;
        case MEMBER_REFUSED:
                if (s->member.refusal == WELCOME_OVER) {
                        s->run_state = RUN_ENDED;
                        drop_open(s, now_ns);
                }
                break;
        case MEMBER_NOTHING:
                break;
        }
        return m->header.sender_role == ROLE_DFM;
}

bool sfi_receive(struct sfi *s, uint64_t now_ns, const struct message *m)
{
        if (m->header.type == MESSAGE_WELCOME)
                return receive_welcome(s, now_ns, m);
        if (!member_accepts(&s->member, now_ns, m))
                return true;
        switch (m->header.type) {
        case MESSAGE_ASSIGN:
        case MESSAGE_BUILD:
                return sfi_receive_assign(s, now_ns, m);
        case MESSAGE_KEEP_ALIVE:
                if (m->header.sender_role != ROLE_DFM)
                        return false;
                receive_keep_alive(s, now_ns, m);
                return true;
        case MESSAGE_UPDATE_ACK:
                if (m->header.sender_role != ROLE_DFM)
                        return false;
                sfi_receive_update_ack(s, now_ns, m);
                return true;
        case MESSAGE_TOTALS:
                return receive_totals(s, m);
        case MESSAGE_CLEAR:
                return m->header.sender_role == ROLE_DFM; /* the ROSs' business */
        case MESSAGE_INQUIRY:
                return sfi_receive_inquiry(s, m);
        }
        return false;
}

void sfi_count_datagram(struct sfi *s, uint16_t source, uint32_t transaction)
{
        s->counts.datagrams_received++;
        if (source < s->config.n_ros)
                sequence_note(&s->sequences[source].numbers, transaction);
}

static void make_alive(struct sfi *s, uint64_t now_ns, struct message *m)
{
        member_address(&s->member, m, MESSAGE_ALIVE);
        m->header.transaction = s->alive_sequence++;
        m->alive.incarnation = s->config.member.incarnation;
        m->alive.frames = 0;
        m->alive.state = s->state;
        m->alive.flags = s->failed ? ALIVE_FAILED : 0;
        m->alive.reason = s->slow_since_ns == NEVER_NS ? REASON_NONE : REASON_SLOW_OUTPUT;
        m->alive.reason_ms = s->slow_since_ns == NEVER_NS
                                     ? 0
                                     : (uint32_t)MIN((now_ns - s->slow_since_ns) / NS_PER_MS, UINT32_MAX);
        s->keep_alive_due_ns = now_ns + s->config.keep_alive_ns;
        /* Credits are told again with it, should the last Update have been lost. */
        s->update_due = true;
        s->update_due_ns = now_ns;
}

static bool may_join(const struct sfi *s)
{
        return s->state != RUN_ENDED && s->run_state != RUN_ENDED;
}

bool sfi_step(struct sfi *s, uint64_t now_ns, struct message_to *ret_to, struct message *ret)
{
        *ret_to = (struct message_to){ROLE_DFM, 0};
        if (may_join(s) &&
            member_make_join(&s->member, now_ns, s->run_state >= RUN_RUNNING || s->newest > 0, ret)) {
                ret->join.newest = s->newest;
                ret->join.oldest = s->oldest;
                return true;
        }
        if (!member_is_joined(&s->member))
                return false;
        if (now_ns >= s->keep_alive_due_ns) {
                make_alive(s, now_ns, ret);
                return true;
        }
        if (s->state == RUN_ENDED)
                return false;
        sfi_scan(s, now_ns);
        sfi_report_writing(s, now_ns);
        if (sfi_make_inventory(s, ret) || sfi_make_update(s, now_ns, ret))
                return true;
        return sfi_make_request(s, now_ns, ret_to, ret);
}

uint64_t sfi_deadline_ns(const struct sfi *s)
{
        uint64_t scan_ns = MAX(heap_first_key(&s->due), s->scan_from_ns);
        uint64_t deadline = MIN(MIN(s->keep_alive_due_ns, s->writing_look_ns), MIN(scan_ns, s->resend_ns));

        if (!member_is_joined(&s->member))
                return may_join(s) ? s->member.join_due_ns : NEVER_NS;
        if (s->state == RUN_ENDED)
                return s->keep_alive_due_ns;
        deadline = MIN(deadline, may_join(s) ? s->member.join_due_ns : NEVER_NS);
        return s->update_due ? MIN(deadline, s->update_due_ns) : deadline;
}

size_t sfi_take_built(struct sfi *s, uint32_t *slots, size_t n)
{
        size_t taken = 0;

        while (taken < n && s->built_tail != s->built_head)
                slots[taken++] = s->built[s->built_tail++ & s->built_mask];
        return taken;
}

void sfi_built_event(const struct sfi *s, uint32_t slot, struct sfi_built *ret)
{
        const struct sfi_slot *e = &s->slots[slot];

        *ret = (struct sfi_built){
                .info = e->info,
                .event = e->event,
                .end = (enum event_end)e->end,
                .assigned_again = e->assigned_again,
                .fragments = sfi_fragment(s, slot, 0),
        };
}

static uint64_t payload_of(const struct sfi *s, uint32_t slot)
{
        uint64_t bytes = 0;

        for (uint32_t i = 0; i < s->config.n_ros; i++)
                bytes += sfi_fragment(s, slot, i)->bytes;
        return bytes;
}

void sfi_written(struct sfi *s, uint64_t now_ns, uint32_t slot, bool failed)
{
        struct sfi_slot *e = &s->slots[slot];
        struct finished_entry entry = {
                .event = e->taken_back ? ASSIGN_VOID_EVENT : e->event,
                .end = failed ? EVENT_LOST : e->end,
                .missing = failed || e->end == EVENT_LOST ? s->config.n_ros : e->missing,
        };

        assert(e->state == SLOT_BUILDING);
        if (entry.end == EVENT_COMPLETE) {
                entry.payload_bytes = payload_of(s, slot);
                s->counts.payload_bytes += entry.payload_bytes;
                s->counts.complete++;
                s->totals.complete++;
                s->totals.payload_bytes += entry.payload_bytes;
        } else if (entry.end == EVENT_PARTIAL) {
                s->counts.partial++;
                s->totals.partial++;
                s->totals.missing += entry.missing;
        } else
                s->counts.lost++;
        s->counts.fragments_received += s->config.n_ros - entry.missing;
        s->counts.fragments_lost += entry.missing;
        sfi_report(s, &entry);
        if (failed)
                event_set_remove(&s->built_events, e->event);
        /* Only after the true end: the DFM believes the first that it hears. */
        for (; e->doubles > 0; e->doubles--)
                sfi_report_void(s, entry.event);
        s->n_building--;
        sfi_drop_slot(s, slot);
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
        /* Without a DFM to listen, nothing more is acknowledged. */
        return s->n_free == s->config.slots &&
               (s->run_state == RUN_ENDED || s->finished_acked == s->finished_next ||
                s->member.heard_ns == 0);
}

uint64_t sfi_unacknowledged(const struct sfi *s)
{
        uint64_t n = 0;

        for (uint32_t i = s->finished_acked; i != s->finished_next; i++)
                n += s->finished[i & s->finished_mask].end < EVENT_LOST;
        return n;
}

bool sfi_has_totals(const struct sfi *s)
{
        for (uint32_t i = 0; i < s->config.n_ros; i++) {
                if (s->sequences[i].numbers.started && sfi_ros_is_live(s, i) && !s->sequences[i].final)
                        return false;
        }
        return true;
}

void sfi_set_ended(struct sfi *s, uint64_t now_ns)
{
        s->state = RUN_ENDED;
        s->keep_alive_due_ns = now_ns;
}

void sfi_set_failed(struct sfi *s, uint64_t now_ns)
{
        s->failed = true;
        s->keep_alive_due_ns = now_ns;
}

enum run_state sfi_run_state(const struct sfi *s)
{
        return s->run_state;
}

const struct member *sfi_member(const struct sfi *s)
{
        return &s->member;
}

const struct sfi_counts *sfi_counts(const struct sfi *s)
{
        struct sfi_counts *counts = (struct sfi_counts *)&s->counts;

        counts->datagrams_lost = counts->datagrams_suspect = 0;
        for (uint32_t i = 0; i < s->config.n_ros; i++) {
                counts->datagrams_lost += sequence_lost(&s->sequences[i].numbers);
                counts->datagrams_suspect += s->sequences[i].numbers.suspects;
        }
        return counts;
}

uint32_t sfi_open_events(const struct sfi *s)
{
        return s->config.slots - s->n_free;
}

uint64_t sfi_buffer_used_bytes(const struct sfi *s)
{
        return arena_used_bytes(s->arena);
}
