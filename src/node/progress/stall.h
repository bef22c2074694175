/* Watches whether a node makes progress: what it waits for, since when, and what the log should hear of it.
 * Pure: the caller gives the time and counts the node's work; progress.c connects it to a node. */
#pragma once

#include "data/obstacle.h"

/* A pause shorter than this is usual. */
#define STALL_SHORT_NS UINT64_C(1000000000)
/* Work that waits for longer than this is a stall. */
#define STALL_LONG_NS UINT64_C(5000000000)
/* Minimum interval between two log lines, apart from the end of a stall. */
#define STALL_LOG_NS UINT64_C(10000000000)

/* A node's work at one moment. */
struct work {
        uint64_t progress; /* changes with each step */
        bool waits;        /* something should proceed */
        bool before_run;   /* the node waits for others, from the first moment on */
};

/* Fills the text of what the work, or the node, waits for; `since_ns` and `timed` if the text is about a
 * duration: 0 stands for the last progress. */
typedef void stall_explain(void *ctx, uint64_t now_ns, struct obstacle *ret);

struct stall_settings {
        uint64_t stall_ns; /* 0: STALL_LONG_NS */
        uint64_t idle_ns;  /* a node without work for longer is worth a log line; NEVER_NS: it is not */
};

struct stall {
        struct stall_settings settings;
        struct work work;
        uint64_t moved_ns; /* the last progress, or change of what waits */
        uint64_t turn_ns;
        uint64_t text_ns;     /* the last change of the reason */
        struct obstacle now;  /* the reason */
        struct obstacle last; /* of the present or the last stall */
        uint64_t stalls, stalled_ns;
        /* The log. */
        struct obstacle logged; /* the reason of the last line, unless it has ended */
        uint64_t quiet_until_ns;
        unsigned unlogged; /* stalls that ended without a line */
        /* About the news. */
        unsigned folded; /* STALL_BEGAN: earlier stalls without a line */
        struct obstacle ended;
        uint64_t ended_after_ns;
};

enum stall_news {
        STALL_NOTHING,
        STALL_BEGAN,   /* or went on until it could be logged */
        STALL_CHANGED, /* the node waits for something else */
        STALL_ENDED,
};

void stall_init(struct stall *s, const struct stall_settings *settings, uint64_t now_ns);
/* Takes a look, and returns what the log should hear: of `s->now`, or of `s->ended`. Call it several times a
 * second: a longer pause between two calls is one of the process, for which it cannot blame others. */
enum stall_news stall_turn(struct stall *s, uint64_t now_ns, const struct work *w, stall_explain *explain,
                           void *ctx);
/* For how long the node has been stalled; 0: it is not. */
uint64_t stall_age_ns(const struct stall *s, uint64_t now_ns);
