/* Parses the requests of consumers of live events, and selects events for them. Pure.
 *
 * A request is one line, `evb-live 1 NAME=VALUE ...\n`; all names are optional:
 *   mode=newest    an event only while the consumer waits for one, so events are always recent (the default)
 *   mode=skip      each event that its ring has room for
 *   mode=all       each event: the SFI waits for room, and so does the run. Only if live.all = yes
 *   stride=N offset=K   of the matching events, number K (below N) of each N
 *   fraction=F seed=S   a random share of the matching events, chosen by event number; equal for equal seeds
 *   trigger-type=A,B    only these L1 trigger types
 *   status=any|complete|partial
 *   group=NAME     share events with the consumers of this name, whose requests are equal: each event goes to
 *                  one of them. With mode=skip or all, the events that a consumer has not released when
 *                  its connection ends go to the others, as its ring has them
 *   ring=BYTES     room for events, at most LIVE_RINGS_MAX_BYTES; an event may have half of it
 * The answer is `evb-live 1\n` with the descriptor of the ring (SCM_RIGHTS; live_ring.h), or `error TEXT\n`.
 * Then the SFI sends single bytes, each of which wakes a consumer that sleeps. If the SFI closes the
 * connection, no more events follow. The consumer sends nothing after its request. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

#define LIVE_GREETING "evb-live 1"
#define LIVE_LINE_MAX 512u /* maximum length of a request or an answer, with its end */
#define LIVE_TYPES_MAX 8
#define LIVE_GROUP_MAX 48
/* Maximum size of all rings of an SFI together. */
#define LIVE_RINGS_MAX_BYTES (UINT64_C(256) << 20)

enum live_mode { LIVE_NEWEST, LIVE_SKIP, LIVE_ALL };
enum live_status { LIVE_ANY, LIVE_COMPLETE, LIVE_PARTIAL };

struct live_request {
        uint64_t mode, status; /* enum live_mode, live_status */
        uint64_t stride, offset, seed, ring_bytes;
        double fraction;
        char group[LIVE_GROUP_MAX]; /* "": alone */
        uint32_t types[LIVE_TYPES_MAX];
        size_t n_types; /* 0: any type */
};

/* Parses a request without its end of line. -EINVAL: the error explains what is wrong. */
int live_request_parse(struct live_request *ret, const char *line, struct error *e);

/* Whether consumers with these requests can share events. */
bool live_request_equals(const struct live_request *a, const struct live_request *b);

struct live_event {
        uint64_t number;
        uint32_t trigger_type;
        bool is_partial;
};

/* Counts since the consumer, or the first consumer of its group, connected. */
struct live_counts {
        uint64_t offered; /* number of events built */
        uint64_t matched; /* number of these events that have the requested trigger type and status */
        uint64_t given;
        uint64_t skipped; /* number of selected events for which no consumer had room or was waiting */
};

/* Counts an offered event. True: it is selected; then the caller counts it as given or skipped. */
bool live_request_selects(const struct live_request *r, struct live_counts *counts,
                          const struct live_event *event);
