/* Makes the DFM's messages from its state. All decisions about events are in dfm_events.c. */
#include <string.h>

#include "dfm_internal.h"

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

/* Adds an entry of SFI `sfi`'s stream, as void if the event was taken back since. */
static bool add_entry(struct dfm *d, struct message *m, uint16_t sfi, uint64_t event, uint32_t sequence)
{
        uint32_t slot = idmap_get(&d->table.by_event, event);
        const struct dfm_event *e = slot == IDMAP_NONE ? NULL : &d->table.slots[slot];
        bool valid = e && e->sfi == sfi && e->sequence == sequence;
        uint32_t type = valid && e->attempts > 1 ? MESSAGE_BUILD : MESSAGE_ASSIGN;
        struct assign_entry *entry = &m->assign.entries[m->n];

        if (m->n == 0) {
                dfm_address(d, m, type, sequence);
                m->assign.with_info = d->config.info;
        } else if (m->header.type != type)
                return false;
        *entry = (struct assign_entry){
                .event = valid ? event : ASSIGN_VOID_EVENT,
                .l1_id = valid ? (uint32_t)event : 0,
                .sequence = sequence,
                .sfi = sfi,
                .incarnation = (uint32_t)d->sfis[sfi].incarnation,
                .flags = valid ? 0 : ASSIGN_VOID,
                .time_ns = valid ? e->trigger_ns + d->config.utc_offset_ns : 0,
        };
        if (d->config.info && valid) {
                d->config.info(d->config.info_ctx, event, &m->assign.infos[m->n]);
                entry->l1_id = m->assign.infos[m->n].l1_id;
        } else if (d->config.info)
                m->assign.infos[m->n] = (struct event_info){};
        m->n++;
        return true;
}

static size_t entries_max(const struct dfm *d)
{
        return message_entries_fit(MESSAGE_ASSIGN, d->config.info, d->config.message_bytes);
}

static void start_resend_timer(struct dfm_sfi *s, uint64_t now_ns)
{
        if (s->resend_ns == NEVER_NS)
                s->resend_ns = now_ns + s->resend_after_ns;
}

/* Push: multicasts the oldest assignments that wait. */
bool dfm_make_announcement(struct dfm *d, uint64_t now_ns, struct message *m)
{
        m->n = 0;
        while (d->announce_tail != d->announce_head && m->n < entries_max(d)) {
                uint64_t event = d->announce[d->announce_tail & d->announce_mask];
                uint32_t slot = idmap_get(&d->table.by_event, event);

                if (slot != IDMAP_NONE && d->table.slots[slot].sfi != NO_SFI) {
                        const struct dfm_event *e = &d->table.slots[slot];
                        struct dfm_sfi *s = &d->sfis[e->sfi];

                        if (!add_entry(d, m, e->sfi, event, e->sequence))
                                break;
                        /* An event that was taken back goes to the SFI alone, as void. */
                        if (s->sent == e->sequence)
                                s->sent = e->sequence + 1;
                        if ((int32_t)(e->sequence + 1 - s->announced) > 0)
                                s->announced = e->sequence + 1;
                        start_resend_timer(s, now_ns);
                }
                d->announce_tail++;
        }
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

        m->n = 0;
        while (s->sent != s->announced && m->n < entries_max(d)) {
                if (!add_entry(d, m, sfi, s->stream[s->sent & d->stream_mask], s->sent))
                        break;
                s->sent++;
        }
        if (m->n > 0)
                start_resend_timer(s, now_ns);
        return m->n > 0;
}

/* The next message that is due to a single SFI, in turn. */
bool dfm_make_sfi_message(struct dfm *d, uint64_t now_ns, struct message_to *to, struct message *m)
{
        uint32_t first = d->sfi_turn;

        for (uint32_t k = 0; k < d->config.n_sfi; k++) {
                uint16_t i = (uint16_t)((first + k) % d->config.n_sfi);
                struct dfm_sfi *s = &d->sfis[i];

                if (!dfm_sfi_is_live(d, s))
                        continue;
                d->sfi_turn = i;
                *to = (struct message_to){ROLE_SFI, i};
                resend_if_due(s, now_ns);
                if (make_stream_message(d, now_ns, i, m))
                        return true;
                if (s->ack_due) {
                        s->ack_due = false;
                        dfm_address(d, m, MESSAGE_UPDATE_ACK, 0);
                        m->update_ack.finished_ack = s->finished_next;
                        m->update_ack.incarnation = s->incarnation;
                        return true;
                }
        }
        return false;
}

static bool clear_is_due(const struct dfm *d, uint64_t now_ns)
{
        return d->n_clears > 0 && (d->n_clears >= d->clear_group || d->state == RUN_DRAINING ||
                                   now_ns - d->clear_since_ns >= d->config.clear_after_ns);
}

bool dfm_make_clear(struct dfm *d, uint64_t now_ns, struct message *m)
{
        if (!clear_is_due(d, now_ns))
                return false;
        uint32_t n = MIN(d->n_clears, d->clear_group);

        dfm_address(d, m, MESSAGE_CLEAR, d->clear_sequence++);
        m->n = n;
        m->clear.oldest = d->table.oldest;
        memcpy(m->clear.events, d->clears, n * sizeof *d->clears);
        d->n_clears -= n;
        memmove(d->clears, d->clears + n, d->n_clears * sizeof *d->clears);
        d->clear_since_ns = now_ns;
        return true;
}

void dfm_make_keep_alive(struct dfm *d, uint64_t now_ns, struct message *m)
{
        dfm_address(d, m, MESSAGE_KEEP_ALIVE, d->keep_alive_sequence++);
        m->keep_alive.oldest = d->table.oldest;
        m->keep_alive.triggers = d->counts.triggers;
        m->keep_alive.state = d->state;
        m->keep_alive.clear_next = d->clear_sequence;
        memset(m->keep_alive.ros_live, 0, sizeof m->keep_alive.ros_live);
        memset(m->keep_alive.sfi_live, 0, sizeof m->keep_alive.sfi_live);
        for (uint32_t i = 0; i < d->config.n_ros; i++)
                m->keep_alive.ros_live[i / 64] |= (uint64_t)dfm_node(d, ROLE_ROS, i)->live << i % 64;
        for (uint32_t i = 0; i < d->config.n_sfi; i++)
                m->keep_alive.sfi_live[i / 64] |= (uint64_t)dfm_node(d, ROLE_SFI, i)->live << i % 64;
        d->keep_alive_due_ns = now_ns + d->config.keep_alive_ns;
}
