/* The send queue of each SFI: ordered lists over one fixed pool of items. */
#include <assert.h>

#include "ros_internal.h"

uint32_t ros_range_end(const struct ros_fragment *f, uint32_t to_bytes)
{
        return to_bytes < f->bytes ? to_bytes - to_bytes % EVB_BLOCK_BYTES : f->bytes;
}

static uint32_t payload_bytes(const struct ros *r, uint32_t entry, uint32_t from, uint32_t to)
{
        if (entry == IDMAP_NONE || !r->entries[entry].arrived)
                return 0;
        to = ros_range_end(&r->entries[entry].fragment, to);
        return to > from ? to - from : 0;
}

/* Ranges that follow each other count as one range. */
static void record_queued(struct ros_entry *e, uint16_t sfi, uint32_t from, uint32_t to)
{
        bool follows =
                e->queued > 0 && e->queued_sfi == sfi && from >= e->queued_from && from <= e->queued_to;

        e->queued_from = follows ? e->queued_from : from;
        e->queued_to = follows ? MAX(e->queued_to, to) : to;
        e->queued_sfi = sfi;
        e->queued++;
}

static void record_removed(struct ros_entry *e, uint32_t sfi, const struct ros_item *item)
{
        if (e->queued == 0)
                return;
        e->queued--;
        if (e->queued_sfi == sfi)
                e->queued_from = MAX(e->queued_from, item->to_bytes);
}

bool ros_is_queued(const struct ros_entry *e, uint32_t sfi, uint32_t from, uint32_t to)
{
        return e->queued > 0 && e->queued_sfi == sfi && from >= e->queued_from &&
               ros_range_end(&e->fragment, to) <= e->queued_to;
}

/* The entry of the item's event, or IDMAP_NONE. In most cases the recorded entry is still valid and needs no
 * search. */
static uint32_t entry_of(const struct ros *r, const struct ros_item *item)
{
        const struct ros_entry *e = item->entry == IDMAP_NONE ? NULL : &r->entries[item->entry];

        return e && e->event == item->event && !e->cleared ? item->entry
                                                           : idmap_get(&r->by_event, item->event);
}

void ros_enqueue(struct ros *r, uint32_t sfi, uint32_t entry, const struct request_entry *what,
                 uint8_t status)
{
        struct ros_queue *q = &r->queues[sfi];
        uint32_t i = r->free_item, from = what->from_bytes, to = what->to_bytes;

        /* An SFI that never empties its queue can use up the common part of the pool, but not the items that
         * are reserved for each other SFI. If no item is free, the SFI requests the fragment again later. */
        if (q->n_items >= r->share && r->common == 0) {
                r->counts.full++;
                return;
        }
        r->common -= q->n_items++ >= r->share;
        r->free_item = i + 1 + r->items[i].next;
        r->items[i] = (struct ros_item){
                .event = what->event,
                .l1_id = what->l1_id,
                .from_bytes = from,
                .to_bytes = to,
                .bytes = payload_bytes(r, entry, from, to),
                .next = NO_ITEM,
                .entry = entry,
                .status = status,
        };
        if (q->last == NO_ITEM) {
                q->first = i;
                r->with_items[sfi / 64] |= UINT64_C(1) << sfi % 64;
        } else
                r->items[q->last].next = i;
        q->last = i;
        q->bytes += r->items[i].bytes;
        r->n_items++;
        if (entry != IDMAP_NONE)
                record_queued(&r->entries[entry], (uint16_t)sfi, from, to);
}

/* Removes the item after `before` (NO_ITEM: the first one). Returns its event's entry, or IDMAP_NONE. */
static uint32_t remove_item(struct ros *r, struct ros_queue *q, uint32_t before)
{
        uint32_t i = before == NO_ITEM ? q->first : r->items[before].next;
        uint32_t next = r->items[i].next, entry = entry_of(r, &r->items[i]);
        uint32_t sfi = (uint32_t)(q - r->queues);

        if (entry != IDMAP_NONE)
                record_removed(&r->entries[entry], sfi, &r->items[i]);
        if (before == NO_ITEM)
                q->first = next;
        else
                r->items[before].next = next;
        if (next == NO_ITEM)
                q->last = before;
        if (q->first == NO_ITEM)
                r->with_items[sfi / 64] &= ~(UINT64_C(1) << sfi % 64);
        q->bytes -= r->items[i].bytes;
        r->items[i].next = r->free_item - (i + 1);
        r->free_item = i;
        r->n_items--;
        r->common += --q->n_items >= r->share;
        return entry;
}

/* Makes the job of an item. False: there is nothing (more) to send for it. */
static bool make_job(struct ros *r, const struct ros_item *item, struct ros_job *job)
{
        uint32_t i = entry_of(r, item);
        struct ros_entry *e = i == IDMAP_NONE ? NULL : &r->entries[i];

        *job = (struct ros_job){
                .job.chunk = {.event = item->event, .l1_id = item->l1_id},
                .at = ARENA_NONE,
                .entry = UINT32_MAX,
        };
        if (!e || !e->arrived) {
                job->job.chunk.status = item->status;
                return item->status != FRAGMENT_OK;
        }
        const struct ros_fragment *f = &e->fragment;

        job->entry = i;
        job->at = e->at;
        /* The L1 ID is that of the frame's own number, or of the trigger for which the fragment is made, so
         * that the SFI can compare it with the event's. */
        if (ros_is_numbered(r))
                job->job.chunk.l1_id = ros_numbers_l1_id(&r->numbers, e->event, e->number);
        else if (r->config.describe)
                job->job.chunk.l1_id = e->l1_id;
        job->job.chunk.fragment_bytes = f->bytes;
        job->job.chunk.offset = item->from_bytes;
        job->job.chunk.order = f->order;
        job->job.chunk.form = f->form;
        job->job.chunk.status = f->status;
        job->job.to_bytes = ros_range_end(f, item->to_bytes);
        if (f->bytes == 0)
                return item->from_bytes == 0;
        if (item->from_bytes >= job->job.to_bytes)
                return false;
        job->fill = !e->filled;
        e->filled = true;
        return true;
}

uint32_t ros_next_with_jobs(const struct ros *r, uint32_t from)
{
        uint64_t below = from % 64 > 0 ? (UINT64_C(1) << from % 64) - 1 : 0;

        for (uint32_t k = from / 64; r->n_items > 0 && k < EVB_SFI_MAX / 64; k++, below = 0) {
                uint64_t bits = r->with_items[k] & ~below;

                if (bits != 0)
                        return k * 64 + (uint32_t)__builtin_ctzll(bits);
        }
        return UINT32_MAX;
}

size_t ros_jobs(struct ros *r, uint32_t sfi, struct ros_job *jobs, size_t n)
{
        struct ros_queue *q = &r->queues[sfi];
        uint32_t before = NO_ITEM, i = q->first;
        size_t made = 0;

        while (made < n && i != NO_ITEM) {
                uint32_t next = r->items[i].next;

                if (make_job(r, &r->items[i], &jobs[made])) {
                        made++;
                        before = i;
                } else
                        remove_item(r, q, before); /* cleared after it was queued */
                i = next;
        }
        return made;
}

void ros_sent(struct ros *r, uint32_t sfi, size_t done, uint32_t next_offset)
{
        struct ros_queue *q = &r->queues[sfi];

        for (; done > 0; done--) {
                assert(q->first != NO_ITEM);
                uint32_t to = r->items[q->first].to_bytes, entry;

                q->sent_bytes += r->items[q->first].bytes;
                entry = remove_item(r, q, NO_ITEM);
                if (entry != IDMAP_NONE && to >= r->entries[entry].fragment.bytes)
                        r->entries[entry].sent = true;
                r->counts.fragments_sent++;
                q->fragments++;
        }
        if (q->first == NO_ITEM || next_offset <= r->items[q->first].from_bytes)
                return;
        struct ros_item *rest = &r->items[q->first];
        uint32_t part = MIN(next_offset - rest->from_bytes, rest->bytes);

        rest->from_bytes = next_offset;
        rest->bytes -= part;
        q->bytes -= part;
        q->sent_bytes += part;
}

struct ros_sent_to ros_sent_to(const struct ros *r, uint32_t sfi)
{
        const struct ros_queue *q = &r->queues[sfi];

        return (struct ros_sent_to){q->fragments, q->sent_bytes, q->unanswered};
}

void ros_rewind(struct ros *r, uint32_t sfi)
{
        struct ros_queue *q = &r->queues[sfi];
        struct ros_item *rest = q->first == NO_ITEM ? NULL : &r->items[q->first];
        uint32_t entry = rest ? entry_of(r, rest) : IDMAP_NONE;
        const struct ros_entry *e = entry == IDMAP_NONE ? NULL : &r->entries[entry];

        /* Includes only ranges of this request. */
        if (!e || e->queued_sfi != sfi || rest->from_bytes < e->queued_from ||
            rest->from_bytes > e->queued_to)
                return;
        q->bytes -= rest->bytes;
        rest->from_bytes = e->queued_from;
        rest->bytes = payload_bytes(r, entry, rest->from_bytes, rest->to_bytes);
        q->bytes += rest->bytes;
}

struct ros_queued ros_queued(const struct ros *r, uint32_t sfi)
{
        return (struct ros_queued){r->queues[sfi].n_items, r->queues[sfi].bytes};
}

uint32_t ros_transaction(const struct ros *r, uint32_t sfi)
{
        return r->queues[sfi].transaction;
}

void ros_count_datagrams(struct ros *r, uint32_t sfi, uint32_t n)
{
        r->queues[sfi].transaction += n;
}

void ros_empty_queue(struct ros *r, uint32_t sfi)
{
        while (r->queues[sfi].first != NO_ITEM)
                remove_item(r, &r->queues[sfi], NO_ITEM);
}
