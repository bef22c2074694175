/* The SFI's data path: reserves memory for arriving chunks and commits the payload that was copied there. The
 * receive bitmap shows which blocks of a fragment arrived, however the sender divided it. */
#include "sfi_internal.h"

/* Number of times that the full rate is announced after a recovery, in case a Rate is lost. No more are
 * needed, because a ROS discards a reduced share that is no longer repeated (RATE_KEEP_ALIVES in ros.c). */
#define RATE_REPEATS 3
/* A recovery is reported in steps of this share, and at each keep-alive. */
#define RATE_STEP_PERMILLE 10u

/* The slot of a chunk's event. Opens one in push, where data may come before the assignment. */
static uint32_t slot_of(struct sfi *s, uint64_t now_ns, const struct chunk *c, enum sfi_verdict *ret_verdict)
{
        struct sfi_slots *t = &s->slots;
        uint32_t slot = sfi_slots_find(t, c->event);

        if (slot != SLOT_NONE && t->items[slot].state == SLOT_COLLECTING)
                return slot;
        if (slot != SLOT_NONE || s->config.pull || s->state == RUN_ENDED ||
            sfi_slots_has_ended(t, c->event)) {
                *ret_verdict = SFI_LATE;
                return SLOT_NONE;
        }
        if (c->event >= MAX(t->oldest, t->newest) + EVB_EVENT_WINDOW) {
                s->counts.implausible++;
                *ret_verdict = SFI_MALFORMED;
                return SLOT_NONE;
        }
        *ret_verdict = SFI_NO_ROOM;
        return sfi_slots_open(t, now_ns, c->event, c->l1_id, false);
}

/* Finds memory for a fragment. If there is none, events that were assigned later give up their memory and
 * request its content again later. The first event can always finish, so the SFI is slow with a small buffer,
 * but never stuck. */
static uint64_t find_room(struct sfi *s, uint64_t now_ns, uint32_t slot, uint32_t bytes)
{
        uint64_t at = sfi_slots_reserve(&s->slots, slot, bytes);

        while (at == ARENA_NONE) {
                uint32_t victim = sfi_slots_victim(&s->slots, slot);

                if (victim == SLOT_NONE)
                        break;
                if (s->slots.items[victim].assigned) {
                        sfi_slots_empty(&s->slots, now_ns, victim);
                        sfi_requests_plan(&s->requests, now_ns, victim);
                } else
                        sfi_slots_give_up(&s->slots, victim);
                at = sfi_slots_reserve(&s->slots, slot, bytes);
        }
        return at;
}

/* A fragment of which nothing is known is all zero, except for the record of its requests. */
static enum sfi_verdict begin_fragment(struct sfi *s, uint64_t now_ns, uint32_t slot, uint16_t ros,
                                       const struct chunk *c)
{
        struct sfi_fragment *f = sfi_fragment(&s->slots, slot, ros);
        uint64_t at = ARENA_NONE;

        if (c->fragment_bytes > 0) {
                at = find_room(s, now_ns, slot, c->fragment_bytes);
                if (at == ARENA_NONE) {
                        sfi_slots_refuse(&s->slots, ros, f, sfi_blocks(c->length));
                        f->refused = s->slots.items[slot].starved = s->slots.has_starved = true;
                        s->slots.items[slot].progress = true; /* the ROS answers */
                        return SFI_NO_ROOM;
                }
        }
        f->at = at;
        f->bytes = c->fragment_bytes;
        f->order = c->order;
        f->form = c->form;
        f->status = c->status;
        f->known = true;
        f->refused = false;
        sfi_slots_count(&s->slots, ros, f);
        sfi_size_record(&s->requests.streams[ros].size, f->bytes);
        sfi_requests_record_size(&s->requests, f);
        if (f->asked > f->bytes)
                sfi_limit_refund(&s->limit, f->asked - f->bytes);
        return SFI_STORE;
}

static enum sfi_verdict reserve(struct sfi *s, uint64_t now_ns, struct sfi_chunk *p)
{
        const struct chunk *c = &p->chunk;
        enum sfi_verdict verdict = SFI_STORE;

        if (p->source >= s->config.n_ros)
                return SFI_MALFORMED;
        sfi_requests_record_received(&s->requests, now_ns, p->source);
        p->slot = slot_of(s, now_ns, c, &verdict);
        if (p->slot == SLOT_NONE)
                return verdict;
        if (s->slots.items[p->slot].l1_id != c->l1_id) {
                s->slots.items[p->slot].mismatched = true;
                return SFI_MISMATCH;
        }
        struct sfi_fragment *f = sfi_fragment(&s->slots, p->slot, p->source);
        if (f->whole) {
                if (f->retried)
                        sfi_requests_record_spurious(&s->requests, now_ns, f->hurried);
                return SFI_DUPLICATE;
        }
        if (f->known && (f->bytes != c->fragment_bytes || f->form != c->form || f->status != c->status))
                return SFI_MALFORMED;
        if (!f->known) {
                verdict = begin_fragment(s, now_ns, p->slot, p->source, c);
                if (verdict != SFI_STORE)
                        return verdict;
        }
        /* Clear the bits only now, because most fragments arrive as one chunk and need no bitmap. */
        if (!f->split && c->length < c->fragment_bytes) {
                sfi_slots_clear_blocks(&s->slots, f->at, f->bytes);
                f->split = true;
        }
        p->at = f->at + c->offset;
        return SFI_STORE;
}

/* Counts a late or duplicate fragment once, by its last chunk. */
static void count_refusal(struct sfi *s, enum sfi_verdict verdict, bool ends_fragment)
{
        switch (verdict) {
        case SFI_STORE:
                break;
        case SFI_LATE:
                s->counts.late += ends_fragment;
                break;
        case SFI_DUPLICATE:
                s->counts.duplicate += ends_fragment;
                break;
        case SFI_MALFORMED:
                s->counts.malformed++;
                break;
        case SFI_MISMATCH:
                s->counts.mismatched += ends_fragment;
                break;
        case SFI_NO_ROOM:
                s->counts.no_room++;
                break;
        }
}

/* Does not count datagrams that a ROS only reports as sent: they may still be on their way. */
static uint64_t count_gaps(const struct sfi *s)
{
        uint64_t gaps = 0;

        for (uint32_t i = 0; i < s->config.n_ros; i++)
                gaps += s->sequences[i].numbers.expected - s->sequences[i].numbers.received;
        return gaps;
}

static void begin_look(struct sfi *s, uint64_t now_ns, uint64_t gaps)
{
        s->gaps_open = gaps;
        s->datagrams_late = 0;
        sfi_requests_hurry(&s->requests, now_ns);
}

static void record_gap(struct sfi *s, uint64_t now_ns)
{
        s->has_gap = false;
        s->requests.has_losses = true;
        if (s->slots.sources && s->requests.hurry_ns == NEVER_NS)
                begin_look(s, now_ns, count_gaps(s));
}

void sfi_check_gaps(struct sfi *s, uint64_t now_ns)
{
        uint64_t gaps, open;

        if (now_ns < s->requests.hurry_ns)
                return;
        /* Younger gaps do not count yet, because their datagrams may be on their way. */
        gaps = count_gaps(s);
        open = MIN(s->gaps_open - MIN(s->datagrams_late, s->gaps_open), gaps);
        if (gaps < s->gaps_seen)
                sfi_requests_record_spurious(&s->requests, now_ns, true);
        if (open > s->gaps_seen) {
                s->counts.limit_decreases +=
                        sfi_limit_record_loss(&s->limit, now_ns, s->slots.in_flight_bytes);
                sfi_requests_retry_overtaken(&s->requests, now_ns);
        }
        s->gaps_seen = gaps < s->gaps_seen ? gaps : MAX(open, s->gaps_seen);
        s->requests.hurry_ns = NEVER_NS;
        if (gaps > open)
                begin_look(s, now_ns, gaps); /* younger gaps get the full time, too */
}

void sfi_reserve(struct sfi *s, uint64_t now_ns, struct sfi_chunk *chunks, size_t n)
{
        if (s->has_gap)
                record_gap(s, now_ns);
        for (size_t i = 0; i < n; i++)
                idmap_prefetch(&s->slots.by_event, chunks[i].chunk.event);
        for (size_t i = 0; i < n; i++) {
                chunks[i].verdict = reserve(s, now_ns, &chunks[i]);
                count_refusal(s, chunks[i].verdict,
                              chunks[i].chunk.offset + chunks[i].chunk.length ==
                                      chunks[i].chunk.fragment_bytes);
        }
}

bool sfi_is_reserved(const struct sfi *s, const struct sfi_chunk *p)
{
        const struct sfi_slot *e = &s->slots.items[p->slot];
        const struct sfi_fragment *f = sfi_fragment(&s->slots, p->slot, p->source);

        return e->state == SLOT_COLLECTING && e->event == p->chunk.event && f->known &&
               f->at + p->chunk.offset == p->at;
}

/* New data of a fragment that was requested again: a latency sample, if it certainly answers the last request
 * (Karn and Partridge, 1987). */
static void sample_retried(struct sfi *s, uint64_t now_ns, const struct chunk *c, struct sfi_fragment *f)
{
        if (c->offset < f->lost_to) {
                sfi_retry_sample(&s->retry, now_ns - f->retried_ns);
                f->lost_to = 0;
        } else if (f->asked > 0 && c->offset >= f->asked_from &&
                   c->offset + c->length == MIN(f->asked, f->bytes))
                sfi_retry_sample(&s->retry, now_ns - f->asked_ns);
}

static void finish_fragment(struct sfi *s, uint64_t now_ns, const struct sfi_chunk *p,
                            const struct sfi_fragment *f)
{
        uint64_t since_ns = f->asked > 0 ? f->asked_ns : s->slots.items[p->slot].first_ns;

        if (f->retried)
                s->counts.recovered++;
        else {
                sfi_retry_sample(&s->retry, now_ns - since_ns);
                sfi_limit_record_latency(&s->limit, now_ns, now_ns - since_ns);
        }
        sfi_slots_set_whole(&s->slots, now_ns, p->slot, p->source);
}

void sfi_commit(struct sfi *s, uint64_t now_ns, const struct sfi_chunk *chunks, size_t n)
{
        for (size_t i = 0; i < n; i++) {
                const struct sfi_chunk *p = &chunks[i];

                if (p->verdict != SFI_STORE)
                        continue;
                struct sfi_fragment *f = sfi_fragment(&s->slots, p->slot, p->source);
                /* A batch may hold the same chunk twice, and its event may have lost the memory since. */
                if (!sfi_is_reserved(s, p) || f->whole)
                        continue;
                /* Over TCP, its payload may have arrived long after its directory. */
                sfi_requests_record_received(&s->requests, now_ns, p->source);
                sfi_requests_record_newest(&s->requests, p->source, &p->chunk, f);
                uint32_t all = sfi_blocks(f->bytes), here = sfi_blocks(p->chunk.length), fresh = here;
                uint64_t in_flight_bytes = s->slots.in_flight_bytes;

                if (here == all)
                        f->blocks_received = all;
                else {
                        fresh = sfi_slots_set_blocks(&s->slots, p->at, p->chunk.length);
                        f->blocks_received += fresh;
                        s->counts.duplicate += fresh == 0;
                        if (p->chunk.offset >= f->mark)
                                f->edge = MAX(f->edge, p->chunk.offset + p->chunk.length);
                }
                if (f->retried && fresh > 0) {
                        sample_retried(s, now_ns, &p->chunk, f);
                        sfi_requests_record_answer(&s->requests, f, fresh * EVB_BLOCK_BYTES);
                }
                sfi_slots_count(&s->slots, p->source, f);
                if (s->slots.sources)
                        sfi_limit_record_bytes(&s->limit, now_ns, in_flight_bytes - s->slots.in_flight_bytes);
                if (fresh > 0 || all == 0)
                        s->slots.items[p->slot].progress = true;
                if (p->chunk.length > 0 || f->status == FRAGMENT_OK)
                        s->requests.streams[p->source].data_ns = now_ns;
                if (f->blocks_received == all)
                        finish_fragment(s, now_ns, p, f);
        }
}

bool sfi_count_datagram(struct sfi *s, uint16_t source, uint32_t transaction)
{
        s->counts.datagrams_received++;
        if (source >= s->config.n_ros)
                return false;
        struct sequence *numbers = &s->sequences[source].numbers;
        bool is_gap = numbers->started && transaction != numbers->next;
        enum sequence_verdict verdict = sequence_receive(numbers, transaction);

        s->has_gap |= verdict == SEQUENCE_NEW && is_gap;
        s->datagrams_late += verdict == SEQUENCE_LATE;
        return verdict == SEQUENCE_NEW;
}

void sfi_record_queued(struct sfi *s, uint64_t now_ns, uint16_t source, uint32_t bytes)
{
        if (source < s->config.n_ros)
                sfi_requests_record_backlog(&s->requests, now_ns, source, bytes);
}

void sfi_record_connected(struct sfi *s, uint64_t now_ns, uint16_t source)
{
        if (source < s->config.n_ros)
                sfi_requests_record_connected(&s->requests, now_ns, source);
}

bool sfi_has_totals(const struct sfi *s)
{
        for (uint32_t i = 0; i < s->config.n_ros; i++) {
                const struct sfi_sequence *q = &s->sequences[i];

                if (q->numbers.started && sfi_slots_ros_is_live(&s->slots, i) &&
                    (!q->final || sequence_ahead(&q->numbers) > 0))
                        return false;
        }
        return true;
}

/* A smaller number comes from a new process of the ROS, or its message was overtaken. */
static void record_source_drops(struct sfi *s, uint16_t source, uint32_t drops)
{
        uint32_t *last = &s->sequences[source].source_drops;

        if ((int32_t)(drops - *last) > 0)
                s->source_drops += drops - *last;
        *last = drops;
}

bool sfi_receive_totals(struct sfi *s, const struct message *m)
{
        if (m->header.sender_role != ROLE_ROS || m->header.sender_index >= s->config.n_ros)
                return false;
        struct sfi_sequence *q = &s->sequences[m->header.sender_index];

        sequence_claim(&q->numbers, m->totals.datagrams);
        record_source_drops(s, m->header.sender_index, m->totals.dropped);
        q->final = s->run_state == RUN_ENDED;
        return true;
}

void sfi_expect_no_datagrams(struct sfi *s)
{
        s->expects_no_datagrams = true;
}

static uint64_t count_lost(const struct sfi *s, const struct sequence *numbers)
{
        return sequence_lost(numbers) - (s->expects_no_datagrams ? 0 : sequence_ahead(numbers));
}

struct sfi_counts sfi_counts(const struct sfi *s)
{
        struct sfi_counts counts = s->counts;

        for (uint32_t i = 0; i < s->config.n_ros; i++) {
                counts.datagrams_lost += count_lost(s, &s->sequences[i].numbers);
                counts.datagrams_suspect += s->sequences[i].numbers.suspects;
        }
        return counts;
}

const struct sfi_counts *sfi_event_counts(const struct sfi *s)
{
        return &s->counts;
}

struct sfi_source_counts sfi_source_counts(const struct sfi *s, uint32_t ros)
{
        const struct sfi_sequence *q = &s->sequences[ros];

        return (struct sfi_source_counts){
                .fragments_received = q->received,
                .fragments_lost = q->lost,
                .fragments_absent = q->absent,
                .bytes = q->bytes,
                .datagrams_received = q->numbers.received,
                .datagrams_lost = count_lost(s, &q->numbers),
        };
}

uint32_t sfi_open_events(const struct sfi *s)
{
        return s->config.slots - s->slots.n_free;
}

uint64_t sfi_buffer_used_bytes(const struct sfi *s)
{
        return arena_used_bytes(s->slots.arena);
}

void sfi_set_socket_drops(struct sfi *s, uint64_t drops)
{
        s->socket_drops = drops;
}

const struct port_rate *sfi_port_rate(const struct sfi *s)
{
        return &s->rate;
}

static void look_at_losses(struct sfi *s, uint64_t now_ns)
{
        struct port_rate_counts now = {
                .received = s->counts.datagrams_received,
                .socket_drops = s->socket_drops,
                .source_drops = s->source_drops,
        };
        uint32_t permille;

        for (uint32_t i = 0; i < s->config.n_ros; i++) {
                const struct sequence *q = &s->sequences[i].numbers;

                /* Only gaps count. If a ROS reports datagrams beyond the newest number, they may still wait
                 * in its queue. */
                now.lost += q->expected - q->received;
                /* Datagrams that waited in the queue of a ROS that restarted were not lost at the port. */
                now.socket_drops += q->resyncs;
        }
        if (!port_rate_look(&s->rate, now_ns, &now))
                return;
        permille = s->rate.permille;
        s->rate_repeats = RATE_REPEATS;
        if (permille < s->rate_sent || permille >= s->rate_sent + RATE_STEP_PERMILLE ||
            permille == PORT_RATE_FULL)
                s->rate_due_ns = now_ns;
}

bool sfi_make_rate(struct sfi *s, uint64_t now_ns, struct message_to *ret_to, struct message *ret)
{
        if (!s->config.follows_losses)
                return false;
        if (now_ns >= s->rate.look_ns)
                look_at_losses(s, now_ns);
        if (now_ns < s->rate_due_ns)
                return false;
        *ret_to = (struct message_to){ROLE_ROS, MESSAGE_TO_ALL};
        member_address(&s->member, ret, MESSAGE_RATE);
        ret->rate.permille = s->rate_sent = s->rate.permille;
        ret->rate.lost = s->rate.lost;
        if (s->rate.permille == PORT_RATE_FULL && s->rate_repeats > 0)
                s->rate_repeats--;
        s->rate_due_ns = s->rate_repeats > 0 ? now_ns + s->config.keep_alive_ns : NEVER_NS;
        return true;
}

uint64_t sfi_rate_deadline_ns(const struct sfi *s)
{
        return s->config.follows_losses ? MIN(s->rate.look_ns, s->rate_due_ns) : NEVER_NS;
}
