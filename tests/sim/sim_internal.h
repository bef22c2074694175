/* Shared by the files of the simulated system. */
#pragma once

#include "sim.h"
#include "sim/sim_farm.h"
#include "sim_live.h"

#define SIM_SEED 5
#define KEEP_ALIVE_NS (20 * NS_PER_MS)
#define SIM_MTU_BYTES 1472

struct sim_node {
        enum node_role role;
        uint32_t index;
        bool live, cut;
        uint64_t wake_ns; /* the active timer; older ones in the heap are void */
        union {
                struct dfm *dfm;
                struct ros *ros;
                struct sfi *sfi;
        };
        uint8_t *buffer;
        uint64_t frames;  /* of a board */
        uint64_t full_ns; /* frames of the board wait until then */
        /* ros_reads_first() of the last turn, and since when. */
        uint64_t mark, marked_ns;
        /* A board with slices: its hits, and how many times each is in the event of its slice, and in the
         * next one. */
        struct slicer *slicer;
        uint8_t *built, *copied;
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
        uint64_t drained_ns;         /* 0: it still has something to do */
        struct consumers *consumers; /* SFI; NULL: no live.listen */
};

enum sim_item_kind { ITEM_PACKET, ITEM_TIMER, ITEM_FRAME };

struct sim_item {
        uint64_t due_ns, order;
        enum sim_item_kind kind;
        uint32_t node;
        uint8_t *bytes;
        size_t n;
        uint64_t trigger; /* of a frame */
};

struct sim {
        struct sim_config config;
        uint64_t now_ns, order;
        struct sim_item *heap;
        size_t n_heap, heap_size;
        struct sim_node *nodes; /* DFM, ROSs, SFIs */
        uint32_t n_nodes;
        struct fault fault;
        struct random random;
        struct chunk_packer *packer;
        struct message message; /* the message being sent or received */
        struct sim_event *events;
        struct sim_farm farm;
        uint64_t wrong_bytes, wrong_decisions;
        uint64_t short_joins; /* fragments that pass as whole, and lack frames */
        uint32_t most_open;
        uint32_t sender;    /* the node whose turn it is */
        uint64_t triggered; /* triggers that the boards have received */
        uint64_t incarnation;
        struct dfm_processes *processes; /* that the DFM stored */
        uint64_t processes_version;      /* of the present DFM */
        uint64_t begun_ns;               /* when one first did */
        uint64_t triggers;               /* that the previous DFM had accepted */
        uint64_t forgotten;
        struct sim_live_result live;
        uint64_t consumers_ns; /* the next act of a consumer */
        bool resumes;          /* the present DFM does not have the previous one's triggers yet */
};

/* sim.c: stores the DFM's record before the next message is sent. */
void sim_remember(struct sim *s, const struct dfm *d);
/* sim_network.c */
void sim_send(struct sim *s, uint32_t node, const void *bytes, size_t n);
void sim_set_timer(struct sim *s, uint32_t node, uint64_t due_ns);
bool sim_pop(struct sim *s, struct sim_item *ret);
void sim_send_frame(struct sim *s, uint32_t node, uint64_t trigger, uint64_t due_ns);
void sim_drop_items(struct sim *s);
/* sim_nodes.c */
void sim_make_dfm(struct sim *s, struct sim_node *n);
void sim_make_nodes(struct sim *s);
void sim_make_sfi(struct sim *s, struct sim_node *n);
void sim_make_ros(struct sim *s, struct sim_node *n);
uint32_t sim_size_of(const struct sim_config *c, uint32_t ros, uint64_t event);
void sim_receive(struct sim *s, struct sim_node *n, const uint8_t *bytes, size_t size);
void sim_turn(struct sim *s, struct sim_node *n);
/* sim_boards.c: a board's counter has the value `from` at trigger 0. */
struct sim_counter {
        uint64_t period;
        int64_t from;
};

/* The period of ROS 0 divides all others. */
struct sim_counter sim_boards_counter(const struct sim_config *c, uint32_t ros);
uint64_t sim_boards_count(const struct sim_config *c, uint32_t ros, uint64_t trigger);
void sim_boards_read_out(struct sim *s);
/* The frames of all own triggers. */
void sim_boards_run_free(struct sim *s);
/* An event of a single board, which no other board has. */
bool sim_boards_is_lie(const struct sim *s, uint64_t number);
/* The trigger of the event, by its number. */
uint64_t sim_boards_trigger(const struct sim *s, const struct sfi_built *built);
void sim_boards_deliver(struct sim *s, struct sim_node *n, uint64_t trigger);
/* sim_slices.c: the hits of boards, and their slices. */
void sim_slices_begin(struct sim *s);
void sim_slices_make(struct sim *s, struct sim_node *n, uint64_t wait_ns);
void sim_slices_deliver(struct sim *s, struct sim_node *n, uint64_t hit);
void sim_slices_turn(struct sim *s, struct sim_node *n);
uint64_t sim_slices_deadline_ns(const struct sim *s, const struct sim_node *n);
void sim_slices_look(struct sim *s, const struct sim_node *sfi, const struct sfi_built *built);
/* sim_joins.c: frames that are joined. A frame is numbered by its trigger and its index. */
#define SIM_FRAMES_MAX 16u
void sim_joins_make(struct sim *s, struct sim_node *n);
/* False: all frames are lost. */
bool sim_joins_send(struct sim *s, uint32_t ros, uint64_t trigger, uint64_t at_ns);
void sim_joins_deliver(struct sim *s, struct sim_node *n, uint64_t frame);
void sim_joins_turn(struct sim *s, struct sim_node *n);
uint64_t sim_joins_deadline_ns(const struct sim *s, const struct sim_node *n);
void sim_joins_look(struct sim *s, const struct sim_node *sfi, const struct sfi_fragment *f, uint32_t ros,
                    uint64_t trigger);
/* sim_live.c */
void sim_live_make(struct sim *s, struct sim_node *n);
void sim_live_free(struct sim_node *n);
/* Consumers act up to this time. They change nothing but their rings. */
void sim_live_act(struct sim *s, uint64_t until_ns);
enum sim_live_offer { SIM_LIVE_WRITTEN, SIM_LIVE_WAITS, SIM_LIVE_HELD, SIM_LIVE_LOST };
/* Offers an event that is ready to be written. SIM_LIVE_WAITS: offer it again later; it delays all others.
 * SIM_LIVE_HELD: sim_live_collect() returns it. */
enum sim_live_offer sim_live_offer(struct sim *s, struct sim_node *n, uint32_t slot);
/* Returns a slot whose event ended, or UINT32_MAX. */
uint32_t sim_live_collect(struct sim *s, struct sim_node *n, bool *ret_written);
/* Whether nothing of live events keeps the SFI, which has written all events, from leaving. */
bool sim_live_is_sealed(struct sim *s, struct sim_node *n);
/* When an SFI that waits for consumers must look again. */
uint64_t sim_live_deadline_ns(const struct sim *s, const struct sim_node *n);
