/* Watches whether a node makes progress: what the node waits for, since when, and what to log about it. Pure:
 * the caller supplies the time and counts the node's work; progress.c connects this file to a node. */
#pragma once

#include "data/obstacle.h"

/* A pause shorter than this is normal. */
#define STALL_SHORT_NS UINT64_C(1000000000)
/* Work that has waited for longer than this is stalled. */
#define STALL_LONG_NS UINT64_C(5000000000)
/* Minimum interval between two log lines, apart from the end of a stall. */
#define STALL_LOG_NS UINT64_C(10000000000)

/* A node's work at one time. */
struct work {
        uint64_t progress; /* changes with each step */
        bool waits;        /* some work is waiting */
        bool before_run;   /* the node waits for other nodes, which is shown at once */
};

/* Describes what the work, or the node, waits for. Sets `since_ns` and `timed` if the text is about a
 * duration; since_ns 0 stands for the last progress. */
typedef void stall_explain(void *ctx, uint64_t now_ns, struct obstacle *ret);

struct stall_settings {
        uint64_t stall_ns; /* 0: STALL_LONG_NS */
        uint64_t idle_ns;  /* longer times without work are logged; NEVER_NS: they are not */
};

struct stall {
        struct stall_settings settings;
        struct work work;
        uint64_t moved_ns; /* time of the last progress, or of the last change of the waiting work */
        uint64_t turn_ns;
        uint64_t text_ns;     /* time at which the reason last changed */
        struct obstacle now;  /* the current reason */
        struct obstacle last; /* reason of the current or the last stall */
        uint64_t stalls, stalled_ns;
        /* State of the log. */
        struct obstacle logged; /* the reason in the last log line, unless the wait has ended */
        uint64_t quiet_until_ns;
        unsigned unlogged; /* number of stalls that ended without a log line */
        /* Details of the returned news. */
        unsigned folded; /* STALL_BEGAN: number of earlier stalls without a log line */
        struct obstacle ended;
        uint64_t ended_after_ns;
};

enum stall_news {
        STALL_NOTHING,
        STALL_BEGAN,   /* a stall, or a long time without work, can be logged */
        STALL_CHANGED, /* the node now waits for something else */
        STALL_ENDED,
};

void stall_init(struct stall *s, const struct stall_settings *settings, uint64_t now_ns);
/* Checks for progress, and returns what to log: about `s->now`, or about `s->ended`. Call this several times
 * a second. A longer pause between two calls counts as a pause of the process itself, not as a fault of other
 * nodes. */
enum stall_news stall_turn(struct stall *s, uint64_t now_ns, const struct work *w, stall_explain *explain,
                           void *ctx);
/* Returns for how long the node has been stalled; 0: it is not stalled. */
uint64_t stall_age_ns(const struct stall *s, uint64_t now_ns);
