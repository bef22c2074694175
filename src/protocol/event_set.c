/* The set of events: a ring of bits, indexed by event number. */
#include "protocol/event_set.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/util.h"
#include "protocol/event.h"

#define WORDS (EVB_EVENT_WINDOW / 64)

int event_set_init(struct event_set *s)
{
        *s = (struct event_set){.bits = calloc(WORDS, sizeof *s->bits)};
        return s->bits ? 0 : -ENOMEM;
}

void event_set_fini(struct event_set *s)
{
        free(s->bits);
        s->bits = NULL;
}

static uint64_t *word_of(const struct event_set *s, uint64_t event)
{
        return &s->bits[event / 64 % WORDS];
}

static bool is_inside(const struct event_set *s, uint64_t event)
{
        return event >= s->from && event - s->from < EVB_EVENT_WINDOW;
}

bool event_set_has(const struct event_set *s, uint64_t event)
{
        return is_inside(s, event) && *word_of(s, event) >> event % 64 & 1;
}

void event_set_add(struct event_set *s, uint64_t event)
{
        bool first = s->added_from == s->added_to;

        if (!is_inside(s, event))
                return;
        *word_of(s, event) |= UINT64_C(1) << event % 64;
        s->added_from = first ? event : MIN(s->added_from, event);
        s->added_to = first ? event + 1 : MAX(s->added_to, event + 1);
}

void event_set_remove(struct event_set *s, uint64_t event)
{
        if (is_inside(s, event))
                *word_of(s, event) &= ~(UINT64_C(1) << event % 64);
}

void event_set_clear(struct event_set *s, uint64_t from)
{
        uint64_t first = s->added_from / 64, n = DIV_ROUND_UP(s->added_to, 64) - first;
        size_t head = MIN(n, WORDS - first % WORDS);

        memset(&s->bits[first % WORDS], 0, head * sizeof *s->bits);
        /* The ring wraps around. */
        memset(s->bits, 0, MIN(n - head, WORDS) * sizeof *s->bits);
        s->added_from = s->added_to = s->from = from;
}

void event_set_advance(struct event_set *s, uint64_t from)
{
        if (from <= s->from)
                return;
        /* Most steps are short, and clear a few bits. */
        if (from - s->from >= (from >= s->added_to ? 64 : EVB_EVENT_WINDOW)) {
                event_set_clear(s, from);
                return;
        }
        for (; s->from < from && s->from % 64 != 0; s->from++)
                *word_of(s, s->from) &= ~(UINT64_C(1) << s->from % 64);
        for (; from - s->from >= 64; s->from += 64)
                *word_of(s, s->from) = 0;
        for (; s->from < from; s->from++)
                *word_of(s, s->from) &= ~(UINT64_C(1) << s->from % 64);
        s->added_from = MAX(s->added_from, from);
        s->added_to = MAX(s->added_to, from);
}

void event_set_copy(struct event_set *to, const struct event_set *s)
{
        event_set_clear(to, s->from);
        to->added_from = s->added_from;
        to->added_to = s->added_to;
        for (uint64_t k = s->added_from / 64; k < DIV_ROUND_UP(s->added_to, 64); k++)
                to->bits[k % WORDS] = s->bits[k % WORDS];
}

uint64_t event_set_word(const struct event_set *s, uint64_t from)
{
        uint64_t word = *word_of(s, from);

        /* The first and the last word of the window share one word of the ring. */
        for (uint64_t bit = 0; bit < 64; bit++) {
                if (!is_inside(s, from + bit))
                        word &= ~(UINT64_C(1) << bit);
        }
        return word;
}
