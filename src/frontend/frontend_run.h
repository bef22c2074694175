/* A stand-in for detector boards and their trigger box, for tests and demonstrations. It sends the frames of
 * N boards to their ROSs, and optionally trigger datagrams to the DFM, whose busy datagrams it obeys.
 * Triggers, sizes and faults depend only on the seed. The report contains exactly what was sent, so that the
 * counts of a run can be compared with it. One thread. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "core/trigger.h"
#include "data/fragment_source.h"
#include "net/address.h"
#include "protocol/number.h"

#define FRONTEND_BOARDS_MAX 256
#define FRONTEND_RESTARTS_MAX 64
#define FRONTEND_RESETS_MAX 64
#define FRONTEND_RESET_PAUSE_NS UINT64_C(100000000) /* unless configured */
/* Maximum size of a frame in a UDP datagram, without its length. */
#define FRONTEND_UDP_MAX_BYTES 65503u
/* The end of each frame: number of the trigger (64 bits), number of the board from 1 (32 bits), and how often
 * the board has restarted (32 bits), all little-endian. They are correct even if the counter of the frame is
 * wrong. */
#define FRONTEND_TRAILER_BYTES 16u

/* `board` (from 0) restarts this long after the first trigger, not counting the time in which triggers are
 * held back. It misses the triggers of the outage, and then counts from 0. */
struct frontend_restart {
        unsigned board;
        uint64_t after_ns, outage_ns;
};

/* At this time of the schedule, triggers pause, and then all counters restart at 0. The pause lasts until the
 * boards have sent their frames, and at least pause_ns. */
struct frontend_reset {
        uint64_t after_ns, pause_ns;
};

struct frontend_config {
        struct {
                /* If set, the board listens at this address for its ROS; otherwise, it sends datagrams to
                 * this address. */
                bool tcp;
                struct net_address at;
                bool dead; /* the board sends nothing, and does not listen */
        } boards[FRONTEND_BOARDS_MAX];
        unsigned n_boards;
        bool has_trigger_to, has_busy_from;
        struct net_address trigger_to, busy_from;
        enum trigger_kind kind;
        uint64_t rate_millihertz;
        uint64_t events;      /* 0: no limit */
        uint64_t duration_ns; /* 0: no limit */
        struct pattern_sizes sizes;
        struct number_field counter; /* its offset does not include the frame's length prefix */
        uint64_t first;              /* number of the first trigger */
        double missed, late;         /* fractions of a board's frames */
        uint64_t late_ns;
        uint64_t skew_ns; /* delay of the last board; the delays of the other boards increase evenly up to
                             this value */
        struct frontend_reset resets[FRONTEND_RESETS_MAX]; /* ordered by time */
        unsigned n_resets;
        uint64_t reset_after_busy_ns; /* busy time after which the counters are reset; 0: never */
        struct frontend_restart restarts[FRONTEND_RESTARTS_MAX]; /* ordered by time */
        unsigned n_restarts;
        uint64_t seed;
        uint32_t run; /* run number in trigger datagrams */
        bool progress;
};

/* Returns the minimum size of a frame with the counter and the trailer. */
uint32_t frontend_least_bytes(const struct number_field *counter);

struct frontend;

/* Opens all sockets. Borrows the configuration. Logs errors. -EADDRINUSE: a port is in use. */
int frontend_new(struct frontend **ret, const struct frontend_config *config);
struct frontend *frontend_free(struct frontend *f);
/* Sends until the number of events or the duration is reached, or until a signal; then sends the frames that
 * the boards still hold. A second signal ends it at once. Logs errors. */
int frontend_run(struct frontend *f);
/* False: no trigger was sent, or frames could not be delivered; standard error lists the reasons. */
bool frontend_succeeded(const struct frontend *f);
/* NULL: out of memory. */
json_t *frontend_report(const struct frontend *f);
void frontend_print(const struct frontend *f, FILE *to);
