/* Regions of interest of evb level2: collects the fragments of a few ROSs for each event before it is
 * decided. */
#pragma once

#include <jansson.h>

#include "protocol/message.h"
#include "sys/loop.h"

#define REGIONS_EVENTS_MAX 4096u
#define REGIONS_ROSS_MAX 32u

struct regions_config {
        uint32_t n_ros; /* fragments to request per event; 0: none */
        bool verify;    /* compare the fragments with the pattern of pattern_seed */
        uint64_t pattern_seed, timeout_ns;
};

/* The result for an event. */
struct region_result {
        uint64_t event;
        uint32_t check; /* check value of the bytes of all fragments */
        bool incomplete;
};

struct regions;

int regions_new(struct regions **ret, struct loop *loop, const struct regions_config *config); /* -ENOMEM */
struct regions *regions_free(struct regions *g);
/* Starts a run (`cookie`), or ends it because the DFM has gone (0). Discards all events. */
void regions_follow(struct regions *g, uint64_t cookie);
void regions_receive_readouts(struct regions *g, uint64_t now_ns, const struct message *m);
bool regions_are_known(const struct regions *g); /* the DFM has announced ROSs */
/* Whether there is room for all events of one more message. */
bool regions_has_room(const struct regions *g);
/* `resets`: of Undecided. */
void regions_add(struct regions *g, uint64_t now_ns, uint64_t event, uint32_t l1_id, uint32_t resets);
void regions_turn(struct regions *g, uint64_t now_ns);
/* Pops the next event whose fragments have all arrived or timed out. False: there is none. */
bool regions_next(struct regions *g, struct region_result *ret);
uint64_t regions_deadline_ns(const struct regions *g);
uint64_t regions_corrupt(const struct regions *g); /* fragments with wrong content; NULL: none */
/* The counts of requests and answers. If `g` is NULL, returns null and prints nothing. */
json_t *regions_describe(const struct regions *g);
void regions_print(const struct regions *g);
