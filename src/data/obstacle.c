/* Publishes and reads why a node makes no progress. */
#include "data/obstacle.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "base/strbuf.h"
#include "base/util.h"

#define ATTEMPTS 1000

_Static_assert(sizeof(struct obstacle) % sizeof(uint64_t) == 0, "it consists of whole words");

/* A reader that sees a word stored by this call also sees the odd sequence or a later one: each word is
 * released after the odd sequence, and the reader rereads the sequence after it has acquired the words. */
void obstacle_publish(struct obstacle_board *b, const struct obstacle *o)
{
        uint64_t sequence = atomic_load_explicit(&b->sequence, memory_order_relaxed), words[OBSTACLE_WORDS];

        memcpy(words, o, sizeof words);
        atomic_store_explicit(&b->sequence, (sequence | 1), memory_order_relaxed);
        for (size_t i = 0; i < OBSTACLE_WORDS; i++)
                atomic_store_explicit(&b->words[i], words[i], memory_order_release);
        atomic_store_explicit(&b->sequence, (sequence | 1) + 1, memory_order_release);
}

static bool read_once(const struct obstacle_board *b, struct obstacle *ret)
{
        struct obstacle_board *from = (struct obstacle_board *)b; /* atomic_load() requires it */
        uint64_t sequence = atomic_load_explicit(&from->sequence, memory_order_acquire),
                 words[OBSTACLE_WORDS];

        if (sequence & 1)
                return false;
        for (size_t i = 0; i < OBSTACLE_WORDS; i++)
                words[i] = atomic_load_explicit(&from->words[i], memory_order_acquire);
        if (atomic_load_explicit(&from->sequence, memory_order_relaxed) != sequence)
                return false;
        memcpy(ret, words, sizeof *ret);
        ret->text[sizeof ret->text - 1] = '\0';
        return true;
}

bool obstacle_read(const struct obstacle_board *b, struct obstacle *ret)
{
        for (int i = 0; i < ATTEMPTS; i++) {
                if (read_once(b, ret))
                        return true;
        }
        *ret = (struct obstacle){};
        return false;
}

void obstacle_format(const struct obstacle *o, uint64_t now_ns, char *text, size_t size_bytes)
{
        if (o->kind == OBSTACLE_NONE)
                text[0] = '\0';
        else if (o->timed)
                snprintf(text, size_bytes, "%s for %.1f s", o->text,
                         (double)(now_ns - MIN(o->since_ns, now_ns)) / NS_PER_S);
        else
                snprintf(text, size_bytes, "%s", o->text);
        text_make_printable(text);
}
