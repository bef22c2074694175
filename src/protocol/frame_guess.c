/* Proposes how the frames of a board begin and end, and where they carry a counter, from a sample of what the
 * board sends. */
#include <string.h>

#include "base/util.h"
#include "protocol/frame.h"

#define MAX_BYTES (4u << 20)
/* A rule is proposed if it finds this many frames, without a counter the second number. */
#define COUNTED_MIN 4
#define UNCOUNTED_MIN 8
/* Frames by which a rule is first tried. */
#define TRIED_MAX 320
/* There are some 2^13 rules to try. */
#define SPARE_BITS_MIN 40u
/* Where length and counter are searched. */
#define LENGTH_END_MAX 36u
#define NUMBER_END_MAX 64u
#define FIXED_MAX 8192u
#define PLUS_END UINT32_MAX
#define NARROW_OFFSET_MAX 2u
/* Bytes in which a first marker is searched, and the maximum distance of two markers. */
#define MARKER_BEGIN_MAX 4096u
#define MARKER_APART_MAX (64u << 10)
#define MARKER_BYTES 4
/* A sample that begins with this much text is text. */
#define TEXT_BYTES 1024u
#define BITS_MAX 32u
#define BITS_MIN 5u
/* A counter of fewer bits may not have gaps: too many fields look like that. */
#define BITS_GAPS 12u
#define GAP_MAX 255u

static void add_frame(struct frame_cut *c, size_t at, size_t bytes)
{
        c->at[c->n] = (uint32_t)at;
        c->bytes[c->n++] = (uint32_t)bytes;
        c->least_bytes = MIN(c->n > 1 ? c->least_bytes : SIZE_MAX, bytes);
        c->most_bytes = MAX(c->most_bytes, bytes);
}

/* Cuts n bytes, from `begin` on. */
static void cut_bytes(struct frame_cut *c, const struct frame_rule *r, const uint8_t *all, size_t begin,
                      size_t n, bool is_end, size_t max)
{
        size_t scanned = 0, bytes, at = begin, end = begin + n;

        while (at < end && c->n < max) {
                enum frame_result result =
                        frame_find(r, all + at, end - at, is_end, MAX_BYTES, &scanned, &bytes);

                if (result == FRAME_FOREIGN) {
                        c->foreign_bytes += c->n > 0 ? bytes : 0;
                        scanned -= MIN(scanned, bytes);
                } else if (result == FRAME_FOUND && bytes <= end - at) {
                        add_frame(c, at, bytes);
                        scanned = 0;
                } else {
                        c->is_wrong |= is_end || result == FRAME_WRONG;
                        c->next_bytes = result == FRAME_FOUND ? bytes : 0;
                        return;
                }
                at += bytes;
        }
}

static void cut_sample(struct frame_cut *ret, const struct frame_sample *s, const struct frame_rule *r,
                       size_t max)
{
        size_t at = 0;

        ret->n = ret->foreign_bytes = ret->least_bytes = ret->most_bytes = ret->next_bytes = 0;
        ret->is_wrong = false;
        if (!s->datagrams)
                cut_bytes(ret, r, s->bytes, 0, s->n, false, max);
        for (size_t i = 0; s->datagrams && i < s->n_datagrams && !ret->is_wrong; i++) {
                cut_bytes(ret, r, s->bytes, at, s->datagrams[i], true, max);
                at += s->datagrams[i];
        }
}

/* ---- Counters ---- */

struct counter {
        struct number_field field;
        size_t gaps, repeats;
        unsigned zeros; /* number of bytes above its lowest one that are always 0 */
        uint64_t first, last;
        bool is_aligned;
};

/* The field of `bits` whose lowest byte is at `low`. */
static struct number_field field_at(size_t low, unsigned bits, bool big_endian)
{
        unsigned bytes = (bits + 7) / 8;

        return (struct number_field){
                .offset_bytes = (uint32_t)(big_endian ? low + 1 - bytes : low),
                .bits = bits,
                .big_endian = big_endian,
                .bit = (uint8_t)(big_endian ? 8 * bytes - bits : 0),
        };
}

static uint64_t read_number(const struct frame_cut *c, const struct frame_sample *s, size_t skip, size_t i,
                            const struct number_field *f)
{
        uint64_t v = 0;

        (void)number_read(f, s->bytes + c->at[i] + skip, c->bytes[i] - skip, &v);
        return v;
}

/* Whether the field is a counter in all frames. */
static bool counts(const struct frame_cut *c, const struct frame_sample *s, size_t skip, struct counter *k)
{
        uint64_t mask = (UINT64_C(1) << k->field.bits) - 1, v, step;
        bool is_short = k->field.bits < BITS_GAPS;

        k->gaps = k->repeats = 0;
        k->first = k->last = read_number(c, s, skip, 0, &k->field);
        for (size_t i = 1; i < c->n; i++) {
                v = read_number(c, s, skip, i, &k->field);
                step = (v - k->last) & mask;
                if (step > (is_short ? 1 : GAP_MAX) || (is_short && step == 0))
                        return false;
                k->gaps += step > 1;
                k->repeats += step == 0;
                k->last = v;
        }
        /* A time in seconds rarely changes, and a time in other units rarely by 1. */
        return k->repeats <= c->n - c->n / 16 - 2 && 2 * k->gaps <= c->n - 1 - k->repeats &&
               (!is_short || c->n >= 2 * COUNTED_MIN);
}

static bool byte_is(const struct frame_cut *c, const struct frame_sample *s, size_t offset, bool zero)
{
        uint8_t first = s->bytes[c->at[0] + offset];

        for (size_t i = 0; i < c->n; i++) {
                if (s->bytes[c->at[i] + offset] != (zero ? 0 : first))
                        return false;
        }
        return true;
}

/* Whether the byte changes in at least one of 16 frames. */
static bool changes(const struct frame_cut *c, const struct frame_sample *s, size_t offset)
{
        size_t n = 0;

        for (size_t i = 1; i < c->n && n <= c->n / 16; i++)
                n += s->bytes[c->at[i] + offset] != s->bytes[c->at[i - 1] + offset];
        return n > c->n / 16;
}

/* A top byte that never changes, and is not 0 like the byte below it, is a tag: the counter has 24 bits. */
static void leave_tag(const struct frame_cut *c, const struct frame_sample *s, size_t skip, struct counter *k)
{
        size_t top = k->field.offset_bytes + (k->field.big_endian ? 0 : 3),
               below = k->field.big_endian ? 1 : 2;

        if (k->field.bits != BITS_MAX || byte_is(c, s, skip + top, true) ||
            !byte_is(c, s, skip + top, false) || !byte_is(c, s, skip + k->field.offset_bytes + below, true))
                return;
        k->field.bits -= 8;
        k->field.offset_bytes += k->field.big_endian;
}

/* Finds the widest counter whose lowest byte is at `low`. */
static bool find_counter(const struct frame_cut *c, const struct frame_sample *s, size_t skip, size_t low,
                         bool big_endian, struct counter *ret)
{
        size_t room = big_endian ? low + 1 : c->least_bytes - skip - low;
        struct counter k = {.is_aligned = low % 4 == (big_endian ? 3 : 0)};

        for (unsigned bits = (unsigned)MIN(BITS_MAX, 8 * room); bits >= BITS_MIN; bits--) {
                k.field = field_at(low, bits, big_endian);
                if (!counts(c, s, skip, &k))
                        continue;
                for (size_t i = 1; i < (bits + 7) / 8; i++)
                        k.zeros += byte_is(c, s, skip + (big_endian ? low - i : low + i), true);
                leave_tag(c, s, skip, &k);
                *ret = k;
                return true;
        }
        return false;
}

/* Lowest byte of a counter. */
static size_t low_of(const struct number_field *f)
{
        return f->big_endian ? number_field_end(f) - 1 : f->offset_bytes;
}

/* Whether `a`, which does not begin before `b`, is the better counter. */
static bool is_better(const struct counter *a, const struct counter *b)
{
        bool a_wide = a->field.bits >= BITS_GAPS, b_wide = b->field.bits >= BITS_GAPS;

        if (b->field.bits == 0)
                return true;
        if ((a->repeats == 0) != (b->repeats == 0))
                return a->repeats == 0;
        if (a_wide != b_wide)
                return a_wide;
        if ((a->gaps == 0) != (b->gaps == 0))
                return a->gaps == 0;
        if (low_of(&a->field) != low_of(&b->field))
                return false;
        /* Both byte orders of the same counter, which has not reached its second byte. */
        return a->zeros != b->zeros ? a->zeros > b->zeros : a->is_aligned && !b->is_aligned;
}

static void guess_number(struct frame_guess *g, const struct frame_cut *c, const struct frame_sample *s,
                         size_t skip)
{
        struct counter best = {}, k;

        g->number = (struct number_field){};
        g->first = g->last = g->gaps = g->repeats = 0;
        if (c->n < COUNTED_MIN || c->least_bytes < skip)
                return;
        for (size_t low = 0; low < MIN(c->least_bytes - skip, (size_t)NUMBER_END_MAX); low++) {
                for (int big = 0; big <= 1 && changes(c, s, skip + low); big++) {
                        if (find_counter(c, s, skip, low, big, &k) && is_better(&k, &best))
                                best = k;
                }
        }
        g->number = best.field;
        g->gaps = best.gaps;
        g->repeats = best.repeats;
        if (best.field.bits > 0) {
                g->first = read_number(c, s, skip, 0, &best.field);
                g->last = read_number(c, s, skip, c->n - 1, &best.field);
        }
}

/* ---- Frames ---- */

/* Whether the rule fits the first frames of the sample. The last frame of a stream may be incomplete. */
static bool fits(struct frame_guess *g, const struct frame_sample *s, const struct frame_rule *r, size_t max)
{
        cut_sample(&g->cut, s, r, max);
        return g->cut.n >= COUNTED_MIN && !g->cut.is_wrong && g->cut.foreign_bytes == 0 &&
               g->cut.next_bytes <= 4 * g->cut.most_bytes && g->cut.most_bytes > r->plus;
}

/* Whether the counter shows that the frames are right. In frames that are wrong, a field may change by 1 a
 * few times. */
static bool is_evidence(const struct frame_guess *g)
{
        return (g->repeats == 0 && g->cut.n >= UNCOUNTED_MIN) ||
               (g->cut.n - 1 - g->repeats >= UNCOUNTED_MIN && 8 * g->repeats <= 7 * g->cut.n);
}

/* In text, the top bit of each byte is 0, so any two of them would seem to be a small length. */
static bool begins_with_text(const struct frame_sample *s)
{
        for (size_t i = 0; i < MIN(s->n, (size_t)TEXT_BYTES); i++) {
                uint8_t c = s->bytes[i];

                if ((c < ' ' && c != '\t' && c != '\n' && c != '\r') || c > '~')
                        return false;
        }
        return true;
}

/* Whether random lengths would rarely be as small as those of all frames, so the rule needs no counter. */
static bool is_improbable(const struct frame_guess *g, const struct frame_sample *s,
                          const struct frame_rule *r)
{
        unsigned spare = 0;

        while (spare < r->length.bits &&
               (uint64_t)g->cut.most_bytes / r->unit < UINT64_C(1) << (r->length.bits - 1 - spare))
                spare++;
        return r->kind != FRAME_LENGTH || (spare * g->cut.n >= SPARE_BITS_MIN && !begins_with_text(s));
}

/* Accepts a rule that fits, if its frames have a counter, or if there are many. */
static bool accept(struct frame_guess *g, const struct frame_sample *s, const struct frame_rule *r,
                   bool needs_counter)
{
        bool counted;

        if (!fits(g, s, r, TRIED_MAX))
                return false;
        guess_number(g, &g->cut, s, r->skip_bytes);
        counted = g->number.bits > 0 && is_evidence(g);
        if (!counted && (needs_counter || g->cut.n < UNCOUNTED_MIN || g->cut.most_bytes <= r->plus ||
                         !is_improbable(g, s, r)))
                return false;
        if (!fits(g, s, r, FRAME_CUT_MAX))
                return false;
        guess_number(g, &g->cut, s, r->skip_bytes);
        g->frame = *r;
        return true;
}

static bool try_length(struct frame_guess *g, const struct frame_sample *s, const struct number_field *f,
                       uint32_t plus, bool needs_counter)
{
        for (uint32_t unit = 1; unit <= 8; unit *= 2) {
                struct frame_rule r = {.kind = FRAME_LENGTH, .length = *f, .unit = unit, .plus = plus};
                bool is_fixed;

                if (!fits(g, s, &r, TRIED_MAX))
                        continue;
                /* A field that never changes may equal the size by chance, above all a narrow one. */
                is_fixed = g->cut.least_bytes == g->cut.most_bytes;
                if (is_fixed && ((plus != 0 && plus != number_field_end(f)) ||
                                 (f->bits < 28 && f->offset_bytes > NARROW_OFFSET_MAX)))
                        continue;
                if (accept(g, s, &r, needs_counter || is_fixed))
                        return true;
        }
        return false;
}

static bool try_fields(struct frame_guess *g, const struct frame_sample *s, uint32_t plus, bool needs_counter)
{
        static const unsigned widths[] = {32, 28, 24, 16};

        for (size_t i = 0; i < ARRAY_SIZE(widths); i++) {
                for (uint32_t offset = 0; offset + (widths[i] + 7) / 8 <= LENGTH_END_MAX; offset += 2) {
                        for (int big = 0; big <= 1; big++) {
                                struct number_field f = {.offset_bytes = offset,
                                                         .bits = widths[i],
                                                         .big_endian = big,
                                                         .bit = big && widths[i] == 28 ? 4 : 0};
                                uint32_t end = (uint32_t)number_field_end(&f);

                                if (try_length(g, s, &f, plus == PLUS_END ? end : plus, needs_counter))
                                        return true;
                        }
                }
        }
        return false;
}

/* Lengths that count the whole frame, or what follows them. */
static bool try_usual(struct frame_guess *g, const struct frame_sample *s, bool needs_counter)
{
        return try_fields(g, s, 0, needs_counter) || try_fields(g, s, PLUS_END, needs_counter);
}

/* Lengths that do not count a header. With a wrong one, frames may seem to begin within those of the board.
 */
static bool try_headers(struct frame_guess *g, const struct frame_sample *s)
{
        for (uint32_t plus = 4; plus <= 32; plus += plus < 16 ? 2 : 4) {
                if (try_fields(g, s, plus, true))
                        return true;
        }
        return false;
}

/* Whether the byte at `at` counts in the first frames of this size. */
static bool may_count(const struct frame_sample *s, size_t at, size_t size)
{
        size_t i = at + size;

        for (unsigned frames = 1; i < s->n && frames < 2 * COUNTED_MIN; i += size, frames++) {
                if ((uint8_t)(s->bytes[i] - s->bytes[i - size]) > 1)
                        return false;
        }
        return i > at + size;
}

static bool try_fixed(struct frame_guess *g, const struct frame_sample *s)
{
        for (uint32_t size = 4; size <= MIN(s->n / COUNTED_MIN, (size_t)FIXED_MAX); size++) {
                struct frame_rule r = {.kind = FRAME_FIXED, .unit = 1, .fixed_bytes = size};
                bool may = false;

                for (size_t at = 0; at < MIN(size, NUMBER_END_MAX) && !may; at++)
                        may = may_count(s, at, size);
                if (may && accept(g, s, &r, true) && g->repeats == 0)
                        return true;
        }
        return false;
}

/* A field of a frame that rarely changes is not taken for a marker. */
static bool may_mark(const uint8_t *bytes)
{
        unsigned zeros = 0;

        for (size_t i = 0; i < MARKER_BYTES; i++)
                zeros += bytes[i] == 0;
        return zeros <= 1 && memcmp(bytes, bytes + 1, MARKER_BYTES - 1) != 0;
}

/* Distance to the next marker, if the bytes at `at` come again at the same distances; 0: they do not. */
static size_t marker_distance(const struct frame_sample *s, size_t at)
{
        const uint8_t *word = s->bytes + at, *next;
        size_t from = at + MARKER_BYTES, apart;

        if (from + MARKER_BYTES > s->n || !may_mark(word))
                return 0;
        next = memmem(s->bytes + from, MIN(s->n - from, (size_t)MARKER_APART_MAX), word, MARKER_BYTES);
        apart = next ? (size_t)(next - word) : 0;
        for (size_t i = 2; apart > 0 && i < COUNTED_MIN; i++) {
                if (at + i * apart + MARKER_BYTES > s->n || memcmp(word, word + i * apart, MARKER_BYTES) != 0)
                        return 0;
        }
        return apart;
}

static bool is_text(const uint8_t *bytes)
{
        for (size_t i = 0; i < MARKER_BYTES; i++) {
                if (bytes[i] <= ' ' || bytes[i] > '~')
                        return false;
        }
        return true;
}

/* Frames of one size that begin with the same bytes, perhaps after other bytes. */
static bool try_marked(struct frame_guess *g, const struct frame_sample *s, bool needs_text)
{
        for (size_t at = 0; at < MIN(s->n, (size_t)MARKER_BEGIN_MAX); at++) {
                struct frame_rule r = {.kind = FRAME_FIXED, .unit = 1, .n_marker = MARKER_BYTES};

                if (needs_text && (at + MARKER_BYTES > s->n || !is_text(s->bytes + at)))
                        continue;
                r.fixed_bytes = (uint32_t)marker_distance(s, at);
                if (r.fixed_bytes == 0)
                        continue;
                memcpy(r.marker, s->bytes + at, MARKER_BYTES);
                if (accept(g, s, &r, true))
                        return true;
        }
        return false;
}

/* Frames of any size that begin with the bytes with which the sample begins. */
static bool try_marker(struct frame_guess *g, const struct frame_sample *s)
{
        struct frame_rule r = {.kind = FRAME_MARKED, .unit = 1, .n_marker = MARKER_BYTES};

        if (s->n < MARKER_BYTES || !may_mark(s->bytes))
                return false;
        memcpy(r.marker, s->bytes, MARKER_BYTES);
        return accept(g, s, &r, false);
}

/* If each datagram has one frame, none needs a length. */
static bool try_several(struct frame_guess *g, const struct frame_sample *s)
{
        return (try_usual(g, s, true) || try_headers(g, s)) && g->cut.n > s->n_datagrams;
}

void frame_guess(struct frame_guess *g, const struct frame_sample *s)
{
        const struct frame_rule datagram = {.kind = FRAME_DATAGRAM, .unit = 1};
        struct frame_rule standard;

        (void)frame_rule_parse(&standard, FRAME_STANDARD);
        g->number = (struct number_field){};
        g->has_frame = accept(g, s, &standard, false) ||
                       (s->datagrams ? try_several(g, s)
                                     : try_usual(g, s, true) || try_marked(g, s, true) || try_fixed(g, s) ||
                                               try_marked(g, s, false) || try_headers(g, s) ||
                                               try_usual(g, s, false) || try_marker(g, s));
        if (g->has_frame || !s->datagrams)
                return;
        cut_sample(&g->cut, s, &datagram, FRAME_CUT_MAX);
        guess_number(g, &g->cut, s, 0);
        g->frame = datagram;
        g->has_frame = true;
}

void frame_guess_number(struct frame_guess *g, const struct frame_sample *s, const struct frame_rule *r)
{
        g->has_frame = false;
        cut_sample(&g->cut, s, r, FRAME_CUT_MAX);
        guess_number(g, &g->cut, s, r->skip_bytes);
}
