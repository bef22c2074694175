/* Follows the 32-bit sequence numbers of one sender: which are new, late or repeated, and how many never
 * arrived. A single stray or forged number changes nothing, because a far jump stays suspect until more
 * messages continue from there. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* Maximum distance of tracked numbers from the newest one; also the longest gap that a single message can
 * open. */
#define SEQUENCE_WINDOW 4096u
/* Number of messages that must agree on a far jump, and the maximum distance between their numbers. */
#define SEQUENCE_AGREE 4u
#define SEQUENCE_APART 64u
/* After this many repeated numbers in ascending order, the sender must have restarted. */
#define SEQUENCE_REPEATS 32u
/* A confirmed jump ahead by at most this much is a loss. Any other jump means that the sender restarted. */
#define SEQUENCE_GAP_MAX (1u << 20)

enum sequence_verdict {
        SEQUENCE_NEW,     /* newer than all earlier numbers */
        SEQUENCE_LATE,    /* overtaken by newer numbers; counted as lost until now */
        SEQUENCE_REPEAT,  /* received before */
        SEQUENCE_SUSPECT, /* a far jump that is not confirmed: do not trust it */
};

struct sequence {
        uint64_t expected, received; /* since the first number, each counted once */
        uint64_t suspects;           /* numbers that were suspect on arrival */
        uint64_t resyncs;            /* confirmed far jumps */
        uint32_t first;              /* first number of the sender, as far as is known */
        uint32_t next;               /* newest number plus 1 */
        uint32_t claimed;            /* the sender's own next number if it is ahead of `next`, else `next` */
        uint32_t suspect;            /* newest of `agreeing` messages after a far jump */
        uint32_t repeat;             /* newest of `repeats` repeated numbers in a row */
        uint32_t agreeing, repeats;
        bool started;
        uint64_t seen[SEQUENCE_WINDOW / 64];
};

/* A sequence that is all zero is empty: it starts at the first number. */
enum sequence_verdict sequence_receive(struct sequence *q, uint32_t number);
/* The sender starts or restarts, and its next number is `next`. Keeps the counters. */
void sequence_begin(struct sequence *q, uint32_t next);
/* Accepts a message that the first one overtook; the numbers in between count as missing until they arrive.
 * False: it is too far behind the first one. */
bool sequence_precede(struct sequence *q, uint32_t number);
/* The sender restarted: accepts the next number, whatever it is, as the first one. Keeps the counters. */
void sequence_restart(struct sequence *q);
/* The sender reports `next` as its next number: it has sent all below. False: too far away to trust. */
bool sequence_claim(struct sequence *q, uint32_t next);
/* Number of messages that the sender reported beyond the newest one: they are on their way, or lost. */
uint32_t sequence_ahead(const struct sequence *q);
/* Number of messages that were sent, as far as is known, and never arrived. */
uint64_t sequence_lost(const struct sequence *q);

/* Follows a number that increases in small steps: the oldest open event, as messages report it. A leap counts
 * only after three messages confirm it, so a single forged message does not release all events. */
#define JUMP_AGREE 3u

struct jump {
        uint64_t suspect;
        uint32_t agreeing;
        bool started; /* the first number arrived */
};

/* Whether `value` may replace `now`. `window`: the longest step that needs no confirmation. */
static inline bool jump_is_believed(struct jump *j, uint64_t now, uint64_t value, uint64_t window)
{
        if (!j->started || value <= now || value - now <= window) {
                j->started = true;
                j->agreeing = 0;
                return true;
        }
        bool agrees = j->agreeing > 0 && value >= j->suspect && value - j->suspect <= window;

        j->agreeing = agrees ? j->agreeing + 1 : 1;
        j->suspect = value;
        if (j->agreeing < JUMP_AGREE)
                return false;
        j->agreeing = 0;
        return true;
}
