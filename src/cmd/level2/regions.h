/* Regions of interest of evb level2: collects the fragments of a few ROSs for each event before it is
 * decided. region_events.c manages the events, readouts.c the connections to the ROSs; regions.c combines
 * them. */
#pragma once

#include <jansson.h>

#include "base/idmap.h"
#include "net/tcp.h"
#include "protocol/chunk.h"
#include "protocol/message.h"
#include "sys/loop.h"

#define REGIONS_EVENTS_MAX 4096u
#define REGIONS_ROSS_MAX 32u

struct regions_config {
        uint32_t n_ros; /* fragments to request per event; 0: none */
        bool verify;    /* compare the fragments with the pattern of pattern_seed */
        uint64_t pattern_seed, timeout_ns;
};

struct regions_counts {
        uint64_t requested, received, bytes;
        uint64_t gone;   /* number of answers that the ROS has discarded the fragment */
        uint64_t absent; /* number of answers that the ROS does not have the fragment */
        uint64_t missed; /* no answer in time, or the ROS is not in the run */
        uint64_t corrupt, connections;
        uint64_t events_incomplete;
};

/* The result for an event. */
struct region_result {
        uint64_t event;
        uint32_t check; /* check value of the bytes of all fragments */
        bool incomplete;
};

/* An event whose fragments are collected. */
struct region_event {
        uint64_t event, deadline_ns;
        uint32_t l1_id, check;
        uint16_t n;
        uint16_t ros[REGIONS_ROSS_MAX];
        uint32_t waiting, requested; /* bit k: for the fragment of ros[k] */
        bool open, incomplete;
};

struct region_events {
        struct regions_config config;
        struct regions_counts counts;
        struct region_event *events; /* a ring, in the order of deadline_ns: [tail, head) */
        uint32_t head, tail;
        struct idmap by_event;
        uint32_t *done; /* a ring of collected events */
        uint32_t done_head, done_tail;
};

struct readouts;

struct regions {
        struct region_events events;
        struct readouts *readouts;
};

/* regions.c */
int regions_new(struct regions **ret, struct loop *loop, const struct regions_config *config); /* -ENOMEM */
struct regions *regions_free(struct regions *g);
/* Starts a run (`cookie`), or ends it because the DFM has gone (0). Discards all events. */
void regions_follow(struct regions *g, uint64_t cookie);
void regions_receive_readouts(struct regions *g, uint64_t now_ns, const struct message *m);
bool regions_are_known(const struct regions *g); /* the DFM has announced ROSs */
/* Whether there is room for all events of one more message. */
bool regions_has_room(const struct regions *g);
void regions_add(struct regions *g, uint64_t now_ns, uint64_t event, uint32_t l1_id);
void regions_turn(struct regions *g, uint64_t now_ns);
/* Pops the next event whose fragments have all arrived or timed out. False: there is none. */
bool regions_next(struct regions *g, struct region_result *ret);
uint64_t regions_deadline_ns(const struct regions *g);
/* The counts of requests and answers. If `g` is NULL, returns null and prints nothing. */
json_t *regions_describe(const struct regions *g);
void regions_print(const struct regions *g);

/* region_events.c */
int region_events_init(struct region_events *e, const struct regions_config *config); /* -ENOMEM */
void region_events_fini(struct region_events *e);
void region_events_forget_all(struct region_events *e);
bool region_events_have_room(const struct region_events *e);
struct region_event *region_events_at(struct region_events *e, uint32_t i);
/* Begins to collect the fragments of an event from some of n_ros ROSs; UINT32_MAX: the event is already
 * known. */
uint32_t region_events_add(struct region_events *e, uint64_t now_ns, uint64_t event, uint32_t l1_id,
                           uint32_t n_ros);
/* Returns the bit of this ROS if the event waits for the ROS's fragment; 0: it does not. */
uint32_t region_bit(const struct region_event *v, uint16_t ros);
/* Records the answer of a ROS. */
void region_events_receive(struct region_events *e, uint16_t ros, const struct chunk *c,
                           const uint8_t *payload);
/* Records that these fragments of event `i` will not arrive. */
void region_events_miss(struct region_events *e, uint32_t i, uint32_t bits);
void region_events_expire(struct region_events *e, uint64_t now_ns);
bool region_events_next(struct region_events *e, struct region_result *ret);
uint64_t region_events_deadline_ns(const struct region_events *e);

/* readouts.c */
int readouts_new(struct readouts **ret, struct loop *loop, struct region_events *events); /* -ENOMEM */
struct readouts *readouts_free(struct readouts *r);
void readouts_follow(struct readouts *r, uint64_t cookie);
void readouts_receive(struct readouts *r, uint64_t now_ns, const struct message *m);
uint32_t readouts_count(const struct readouts *r);
/* Requests a fragment of event `i`. False: the ROS is not in the run. */
bool readouts_request(struct readouts *r, uint16_t ros, uint32_t i);
void readouts_turn(struct readouts *r, uint64_t now_ns);
uint64_t readouts_deadline_ns(const struct readouts *r);
