/* The SFI's hot path: gives pieces of fragments their places and notes what has come. A bitmap with a bit for
 * each EVB_BLOCK_BYTES of the buffer tells which parts of a fragment are there, however the sender cut it. */
#include "sfi_internal.h"

static uint32_t blocks_of(uint32_t bytes)
{
        return DIV_ROUND_UP(bytes, EVB_BLOCK_BYTES);
}

static uint64_t word_mask(uint64_t bit, uint64_t n)
{
        return (n >= 64 ? UINT64_MAX : (UINT64_C(1) << n) - 1) << bit;
}

static void clear_blocks(struct sfi *s, uint64_t first, uint64_t n)
{
        while (n > 0) {
                uint64_t bit = first % 64, part = MIN(n, 64 - bit);

                s->cuts[first / 64] &= ~word_mask(bit, part);
                first += part, n -= part;
        }
}

/* Returns how many were not set before. */
static uint32_t set_blocks(struct sfi *s, uint64_t first, uint64_t n)
{
        uint32_t fresh = 0;

        while (n > 0) {
                uint64_t bit = first % 64, part = MIN(n, 64 - bit), mask = word_mask(bit, part);
                uint64_t *word = &s->cuts[first / 64];

                fresh += (uint32_t)__builtin_popcountll(mask & ~*word);
                *word |= mask;
                first += part, n -= part;
        }
        return fresh;
}

bool sfi_missing_range(const struct sfi *s, const struct sfi_fragment *f, uint32_t from_bytes,
                       uint32_t *ret_from, uint32_t *ret_to)
{
        uint64_t base = f->at / EVB_BLOCK_BYTES;
        uint32_t i = from_bytes / EVB_BLOCK_BYTES, n = blocks_of(f->bytes), from;

        while (i < n && s->cuts[(base + i) / 64] >> (base + i) % 64 & 1)
                i++;
        if (i == n)
                return false;
        from = i;
        while (i < n && !(s->cuts[(base + i) / 64] >> (base + i) % 64 & 1))
                i++;
        *ret_from = from * EVB_BLOCK_BYTES;
        *ret_to = MIN(i * EVB_BLOCK_BYTES, f->bytes);
        return true;
}

/* The slot of a piece's event, opened where it may be. */
static uint32_t slot_of(struct sfi *s, uint64_t now_ns, const struct chunk *c, enum sfi_verdict *ret_verdict)
{
        uint32_t slot = idmap_get(&s->by_event, c->event);

        if (slot != IDMAP_NONE && s->slots[slot].state == SLOT_COLLECTING)
                return slot;
        if (slot != IDMAP_NONE || s->config.pull || s->state == RUN_ENDED || sfi_has_ended(s, c->event)) {
                *ret_verdict = SFI_LATE;
                return IDMAP_NONE;
        }
        if (c->event >= MAX(s->oldest, s->newest) + EVB_EVENT_WINDOW) {
                s->counts.implausible++;
                *ret_verdict = SFI_MALFORMED;
                return IDMAP_NONE;
        }
        *ret_verdict = SFI_NO_ROOM;
        return sfi_open_slot(s, now_ns, c->event, c->l1_id, false);
}

/* Memory for a fragment. Where there is none, younger events give theirs back and are asked for again later:
 * the oldest event can always be finished, so that a small buffer is slow, and never stuck. */
static uint64_t find_room(struct sfi *s, uint64_t now_ns, uint32_t slot, uint32_t bytes)
{
        uint64_t at = arena_alloc(s->arena, bytes);

        while (at == ARENA_NONE && sfi_evict_for(s, now_ns, slot))
                at = arena_alloc(s->arena, bytes);
        return at;
}

static enum sfi_verdict begin_fragment(struct sfi *s, uint64_t now_ns, uint32_t slot, struct sfi_fragment *f,
                                       const struct chunk *c)
{
        uint64_t at = ARENA_NONE;

        if (c->fragment_bytes > 0) {
                at = find_room(s, now_ns, slot, c->fragment_bytes);
                if (at == ARENA_NONE)
                        return SFI_NO_ROOM;
                sfi_note_block(s, slot);
        }
        *f = (struct sfi_fragment){
                .at = at,
                .bytes = c->fragment_bytes,
                .order = c->order,
                .form = c->form,
                .status = c->status,
                .known = true,
                .asked_again = f->asked_again,
        };
        return SFI_STORE;
}

static enum sfi_verdict place(struct sfi *s, uint64_t now_ns, struct sfi_chunk *p)
{
        const struct chunk *c = &p->chunk;
        enum sfi_verdict verdict = SFI_STORE;

        if (p->source >= s->config.n_ros)
                return SFI_MALFORMED;
        s->streams[p->source].heard_ns = now_ns;
        p->slot = slot_of(s, now_ns, c, &verdict);
        if (p->slot == IDMAP_NONE)
                return verdict;
        struct sfi_fragment *f = sfi_fragment(s, p->slot, p->source);
        if (f->whole) {
                if (f->asked_again)
                        sfi_note_too_early(s, now_ns);
                return SFI_DUPLICATE;
        }
        if (f->known && (f->bytes != c->fragment_bytes || f->form != c->form || f->status != c->status))
                return SFI_MALFORMED;
        if (!f->known) {
                verdict = begin_fragment(s, now_ns, p->slot, f, c);
                if (verdict != SFI_STORE)
                        return verdict;
        }
        /* Not before it is cut: most fragments come in one piece. */
        if (!f->in_parts && c->length < c->fragment_bytes) {
                clear_blocks(s, f->at / EVB_BLOCK_BYTES, blocks_of(f->bytes));
                f->in_parts = true;
        }
        if (!f->asked_again && c->event > s->streams[p->source].newest_event)
                s->streams[p->source].newest_event = c->event;
        p->at = f->at + c->offset;
        return SFI_STORE;
}

/* Late and double fragments count once, by the piece that ends them. */
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
        case SFI_NO_ROOM:
                s->counts.no_room++;
                break;
        }
}

void sfi_reserve(struct sfi *s, uint64_t now_ns, struct sfi_chunk *pieces, size_t n)
{
        for (size_t i = 0; i < n; i++)
                idmap_prefetch(&s->by_event, pieces[i].chunk.event);
        for (size_t i = 0; i < n; i++) {
                pieces[i].verdict = place(s, now_ns, &pieces[i]);
                count_refusal(s, pieces[i].verdict,
                              pieces[i].chunk.offset + pieces[i].chunk.length ==
                                      pieces[i].chunk.fragment_bytes);
        }
}

bool sfi_is_reserved(const struct sfi *s, const struct sfi_chunk *p)
{
        const struct sfi_slot *e = &s->slots[p->slot];

        const struct sfi_fragment *f = sfi_fragment(s, p->slot, p->source);

        return e->state == SLOT_COLLECTING && e->event == p->chunk.event && f->known &&
               f->at + p->chunk.offset == p->at;
}

static void fragment_is_whole(struct sfi *s, uint64_t now_ns, const struct sfi_chunk *p,
                              struct sfi_fragment *f)
{
        struct sfi_slot *e = &s->slots[p->slot];

        f->whole = true;
        e->whole++;
        if (sfi_ros_is_live(s, p->source))
                e->missing--;
        if (f->asked_again)
                s->counts.recovered++;
        else
                sfi_sample_latency(s, now_ns - e->first_ns);
        sfi_check_slot(s, now_ns, p->slot);
}

void sfi_commit(struct sfi *s, uint64_t now_ns, const struct sfi_chunk *pieces, size_t n)
{
        for (size_t i = 0; i < n; i++) {
                const struct sfi_chunk *p = &pieces[i];

                if (p->verdict != SFI_STORE)
                        continue;
                struct sfi_fragment *f = sfi_fragment(s, p->slot, p->source);
                /* The same piece may have come twice in one batch, or its event may have lost its place in
                 * between. */
                if (!sfi_is_reserved(s, p) || f->whole)
                        continue;
                uint32_t all = blocks_of(f->bytes), here = blocks_of(p->chunk.length), fresh = here;

                if (here == all)
                        f->blocks_received = all;
                else {
                        fresh = set_blocks(s, p->at / EVB_BLOCK_BYTES, here);
                        f->blocks_received += fresh;
                        s->counts.duplicate += fresh == 0;
                }
                if (fresh > 0 || all == 0)
                        s->slots[p->slot].progress = true;
                if (f->blocks_received == all)
                        fragment_is_whole(s, now_ns, p, f);
        }
}
