/* Shared by the files of a site. */
#pragma once

#include "sim/sim_internal.h"
#include "site.h"
#include "site_live.h"

struct site_frame {
        uint64_t due_ns, number;
};

/* What surrounds a node. Its place in the site is that of the node in struct sim. */
struct site_node {
        struct sim_node *sim;
        /* Of a board: those that will arrive, in the order of their times; behind `first`. */
        struct site_frame *arriving;
        uint32_t first, n_arriving, size;
        uint64_t frames;
        uint64_t full_ns; /* frames of the board wait until then */
        /* ros_reads_first() of the last turn, and since when. */
        uint64_t mark, marked_ns;
        /* A board with slices: its hits, and whether each is in the event of its slice, and in the next
         * one. */
        struct slicer *slicer;
        bool *built, *copied;
        uint64_t hits, hits_built, hits_copied, slices, hit_ns;
        /* A board whose frames are joined, by trigger: bit i of the frame with index i that its ROS read, and
         * that is in an event. hits_built counts those in events. */
        struct joiner *joiner;
        uint16_t *reached, *joined;
        /* SFI: slots being written, in order of completion. */
        uint32_t *writing;
        uint64_t *written_ns;
        uint32_t n_writing;
        uint64_t written;            /* events, by this process */
        struct consumers *consumers; /* SFI; NULL: no live.listen */
};

struct site {
        struct site_config config;
        struct sim *sim;
        struct site_node *nodes; /* DFM, ROSs, SFIs */
        uint32_t n_nodes;
        struct site_event *events;
        struct random random; /* of the boards */
        uint64_t wrong_bytes, wrong_decisions;
        uint64_t short_joins; /* fragments that pass as whole, and lack frames */
        uint64_t triggered;   /* triggers that the boards have received */
        uint64_t processes;
        uint64_t triggers; /* that the previous DFM had accepted */
        uint64_t forgotten;
        struct site_live_result live;
        uint64_t consumers_ns;    /* the next act of a consumer */
        bool resumes;             /* the present DFM does not have the previous one's triggers yet */
        struct scenario scenario; /* large, so it is the last member */
};

static inline bool site_is_live(const struct site_node *n)
{
        return n->sim->is_live && !n->sim->has_left;
}

static inline uint32_t site_index(const struct site_node *n)
{
        return n->sim->self->index;
}

/* site.c: the site of a simulation. */
struct site *site_of(const struct sim *sim);
void site_start(struct site *s, struct site_node *n);
/* site_nodes.c: a process of the node has started. */
void site_nodes_make(struct site *s, struct site_node *n);
/* A frame arrives at a ROS. */
void site_send_frame(struct site *s, uint32_t node, uint64_t number, uint64_t due_ns);
/* site_boards.c: a board's counter has the value `from` at trigger 0. */
struct site_counter {
        uint64_t period;
        int64_t from;
};

/* The period of ROS 0 divides all others. */
struct site_counter site_boards_counter(const struct site_config *c, uint32_t ros);
uint64_t site_boards_count(const struct site_config *c, uint32_t ros, uint64_t trigger);
/* The frames of all own triggers. */
void site_boards_run_free(struct site *s);
/* An event of a single board, which no other board has. */
bool site_boards_is_lie(const struct site *s, uint64_t number);
/* The trigger of the event, by its number. */
uint64_t site_boards_trigger(const struct site *s, const struct sfi_built *built);
void site_boards_deliver(struct site *s, struct site_node *n, uint64_t trigger);
/* site_slices.c: the hits of boards, and their slices. */
void site_slices_begin(struct site *s);
void site_slices_make(struct site *s, struct site_node *n, uint64_t wait_ns);
void site_slices_deliver(struct site *s, struct site_node *n, uint64_t hit);
void site_slices_turn(struct site *s, struct site_node *n);
uint64_t site_slices_deadline_ns(const struct site *s, const struct site_node *n);
void site_slices_look(struct site *s, const struct site_node *sfi, const struct sfi_built *built);
/* site_joins.c: frames that are joined. A frame is numbered by its trigger and its index. */
#define SITE_FRAMES_MAX 16u
void site_joins_make(struct site *s, struct site_node *n);
/* False: all frames are lost. */
bool site_joins_send(struct site *s, uint32_t ros, uint64_t trigger, uint64_t at_ns);
void site_joins_deliver(struct site *s, struct site_node *n, uint64_t frame);
void site_joins_turn(struct site *s, struct site_node *n);
uint64_t site_joins_deadline_ns(const struct site *s, const struct site_node *n);
void site_joins_look(struct site *s, const struct site_node *sfi, const struct sfi_fragment *f, uint32_t ros,
                     uint64_t trigger);
/* site_live.c */
void site_live_make(struct site *s, struct site_node *n);
void site_live_free(struct site_node *n);
/* Consumers act up to this time. They change nothing but their rings. */
void site_live_act(struct site *s, uint64_t until_ns);
enum site_live_offer { SITE_LIVE_WRITTEN, SITE_LIVE_WAITS, SITE_LIVE_HELD, SITE_LIVE_LOST };
/* Offers an event that is ready to be written. SITE_LIVE_WAITS: offer it again later; it delays all others.
 * SITE_LIVE_HELD: site_live_collect() returns it. */
enum site_live_offer site_live_offer(struct site *s, struct site_node *n, uint32_t slot);
/* Returns a slot whose event ended, or UINT32_MAX. */
uint32_t site_live_collect(struct site *s, struct site_node *n, bool *ret_written);
/* Whether nothing of live events keeps the SFI, which has written all events, from leaving. */
bool site_live_is_sealed(struct site *s, struct site_node *n);
/* When an SFI that waits for consumers must look again. */
uint64_t site_live_deadline_ns(const struct site *s, const struct site_node *n);
