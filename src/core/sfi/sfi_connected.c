/* Repeats the requests that a new connection to a ROS did not carry: they were made before the connection
 * opened, or their answers were lost with an older connection. The repeated requests need neither the retry
 * timer nor its budget, because the requested fragments are not on their way. */
#include <assert.h>

#include "sfi_requests.h"

static bool is_expected(const struct sfi_requests *q, uint32_t slot, uint32_t ros)
{
        const struct sfi_slot *e = &q->slots->items[slot];

        return (!q->config->pull || e->requested) && !sfi_fragment(q->slots, slot, ros)->whole;
}

/* In push, a ROS has lost nothing before its first connection. */
void sfi_requests_record_connected(struct sfi_requests *q, uint64_t now_ns, uint16_t ros)
{
        struct sfi_stream *stream = &q->streams[ros];
        const struct sfi_slots *t = q->slots;
        bool is_first = !stream->connected;

        assert(!t->sources); /* limits in bytes are only for transports that lose packets */
        stream->connected = true;
        stream->received_ns = now_ns;
        /* Data on the new connection does not overtake data on the old one. */
        stream->newest_event = 0;
        if (!q->config->pull && is_first)
                return;
        for (uint32_t slot = t->collecting[true].first; slot != SLOT_NONE; slot = t->items[slot].next) {
                struct sfi_fragment *f = sfi_fragment(t, slot, ros);

                if (!is_expected(q, slot, ros))
                        continue;
                f->unsent = true;
                q->counts->retried += !is_first;
                f->retried |= !is_first;
        }
        q->n_unsent += !stream->unsent;
        stream->unsent = true;
}

/* Returns the next slot from `slot` on whose request may not have reached this ROS; SLOT_NONE: none. */
static uint32_t next_unsent(const struct sfi_requests *q, uint32_t slot, uint32_t ros)
{
        while (slot != SLOT_NONE && !(sfi_fragment(q->slots, slot, ros)->unsent && is_expected(q, slot, ros)))
                slot = q->slots->items[slot].next;
        return slot;
}

/* A connection delivers in order, so all bytes of a fragment from the first missing one on are missing. */
static void add_unsent(struct sfi_requests *q, struct message *m, uint32_t slot, uint32_t ros)
{
        const struct sfi_slot *e = &q->slots->items[slot];
        struct sfi_fragment *f = sfi_fragment(q->slots, slot, ros);
        uint32_t from = 0, to;

        if (f->split && !sfi_slots_missing_range(q->slots, f, 0, &from, &to))
                from = 0;
        f->unsent = false;
        m->request.entries[m->n++] = (struct request_entry){
                .event = e->event,
                .l1_id = e->l1_id,
                .from_bytes = from,
                .to_bytes = UINT32_MAX,
                .again = f->retried ? e->rounds + 1u : 0,
        };
}

bool sfi_requests_make_unsent(struct sfi_requests *q, struct message_to *to, struct message *m)
{
        size_t max = message_entries_fit(MESSAGE_REQUEST, q->config->message_bytes);

        member_address(q->member, m, MESSAGE_REQUEST);
        while (q->n_unsent > 0 && m->n == 0) {
                uint32_t slot, ros = q->unsent_ros % q->config->n_ros;

                if (!q->streams[ros].unsent) {
                        q->unsent_ros++;
                        continue;
                }
                slot = next_unsent(q, q->slots->collecting[true].first, ros);
                for (; slot != SLOT_NONE && m->n < max; slot = next_unsent(q, slot, ros))
                        add_unsent(q, m, slot, ros);
                if (slot == SLOT_NONE) {
                        q->streams[ros].unsent = false;
                        q->n_unsent--;
                }
                *to = (struct message_to){ROLE_ROS, (uint16_t)ros};
        }
        return m->n > 0;
}
