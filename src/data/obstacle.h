/* The reason why a node makes no progress at present, kept in the node's shared memory. One thread of the
 * node writes the reason. Any thread or process that maps the counters may read it at any time, even after
 * the node was killed. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define OBSTACLE_TEXT_MAX 232

enum obstacle_kind {
        OBSTACLE_NONE,
        OBSTACLE_WAIT,  /* no work is pending, or it has not waited long */
        OBSTACLE_STALL, /* work that should proceed does not */
};

struct obstacle {
        uint64_t kind;     /* enum obstacle_kind */
        uint64_t since_ns; /* CLOCK_MONOTONIC */
        uint64_t timed;    /* the text must be followed by a duration: "ros4 silent" */
        char text[OBSTACLE_TEXT_MAX];
};

#define OBSTACLE_WORDS (sizeof(struct obstacle) / sizeof(uint64_t))

/* A sequence lock. All zero: no obstacle. */
struct obstacle_board {
        _Atomic uint64_t sequence; /* odd: a write is in progress */
        _Atomic uint64_t words[OBSTACLE_WORDS];
};

void obstacle_publish(struct obstacle_board *b, const struct obstacle *o);
/* The text is always terminated. False: the writer died during a write, or is writing without pause; then
 * *ret has kind OBSTACLE_NONE. */
bool obstacle_read(const struct obstacle_board *b, struct obstacle *ret);
/* Formats the obstacle as text, with its duration if it is timed: "ros4 silent for 3.2 s". The text is empty
 * if there is no obstacle. It is UTF-8, even if a path or the text itself was cut within a character. */
void obstacle_format(const struct obstacle *o, uint64_t now_ns, char *text, size_t size_bytes);
