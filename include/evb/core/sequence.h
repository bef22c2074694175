/* Follows the 32-bit sequence numbers of one sender: what is new, late or repeated, and how many never came.
 * One stray or forged number changes nothing: a far jump is suspect until more messages continue at the same
 * place. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* Numbers behind the newest that are told apart one by one, and the longest gap that one message can make. */
#define SEQUENCE_WINDOW 4096u
/* Messages that must agree on a far jump, and how far apart their numbers may be. */
#define SEQUENCE_AGREE 4u
#define SEQUENCE_APART 64u
/* Repeated numbers in a row, each above the one before, after which the sender must have begun anew. */
#define SEQUENCE_REPEATS 32u
/* A confirmed jump ahead of at most this much is a loss. Any other means that the sender has begun anew. */
#define SEQUENCE_GAP_MAX (1u << 20)

enum sequence_verdict {
        SEQUENCE_NEW,     /* newer than all before */
        SEQUENCE_LATE,    /* overtaken by newer ones; counted as lost until now */
        SEQUENCE_REPEAT,  /* came before */
        SEQUENCE_SUSPECT, /* a far jump that is not confirmed: do not believe it */
};

struct sequence {
        uint64_t expected, received; /* since the first one, each number once */
        uint64_t suspects;           /* numbers that were suspect when they came */
        uint64_t resyncs;            /* far jumps that were followed */
        uint32_t next;               /* the one after the newest */
        uint32_t claimed;            /* the sender's own next number, where that is ahead, else `next` */
        uint32_t suspect;            /* the newest of `agreeing` messages at one far place */
        uint32_t repeat;             /* the newest of `repeats` repeated ones in a row */
        uint32_t agreeing, repeats;
        bool started;
        uint64_t seen[SEQUENCE_WINDOW / 64];
};

/* A sequence that is all zero is empty: it starts at the first number that comes. */
enum sequence_verdict sequence_note(struct sequence *q, uint32_t number);
/* The sender starts, or has begun anew, and its next number is `next`. Counts stay. */
void sequence_begin(struct sequence *q, uint32_t next);
/* The sender has begun anew: the next number that comes is the first. Counts stay. */
void sequence_restart(struct sequence *q);
/* The sender says that its next number is `next`: all below were sent. False: too far away to believe. */
bool sequence_claim(struct sequence *q, uint32_t next);
/* Numbers that were sent, as far as is known, and did not come. */
uint64_t sequence_lost(const struct sequence *q);
