/* Declarations shared by the files of the simulator. Each file may call those before it in this order:
 * trace.c, sim_network.c, sim_shaping.c, messages.c, coverage.c, ends.c, checks.c, sim_level2.c,
 * sim_front_ends.c, sim_output.c, the nodes (sim_ros.c, sim_sfi.c, sim_dfm.c), processes.c, sim_faults.c,
 * sim.c. Tests may replace sim_front_ends.c and sim_output.c by boards and disks of their own. */
#pragma once

#include <stdio.h>

#include "base/fault.h"
#include "base/heap.h"
#include "base/random.h"
#include "base/util.h"
#include "core/dfm.h"
#include "core/ros.h"
#include "core/sfi.h"
#include "core/trigger.h"
#include "data/fragment_source.h"
#include "protocol/chunk.h"
#include "sim/sim_farm.h"
#include "sim/rates.h"
#include "sim/sim.h"
#include "shape/model/plan.h"

#define SIM_JOBS 256
#define SIM_TO_ROSS UINT32_MAX
#define SIM_HELD_MAX 64
/* Headers of Ethernet, IP and UDP. */
#define SIM_HEADERS_BYTES 42

/* A packet on its way. It has a payload only if the nodes have buffers; `head` contains everything. */
struct sim_packet {
        uint32_t refs;
        uint32_t head_bytes, frame_bytes;
        uint32_t from, to; /* nodes, or SIM_TO_ROSS */
        uint32_t process;  /* number of the sender's process; see struct sim_node */
        bool is_data;
        bool is_number; /* `head` is a trigger number, from the frame of a board or from the trigger box */
        uint8_t head[];
};

struct sim_entry {
        uint64_t at_ps;
        struct sim_packet *packet;
};

/* A queue of packets, ordered by time. */
struct sim_queue {
        struct sim_entry *entries;
        uint32_t first, n, size;
        uint64_t bytes; /* of frames */
};

/* Packets of one socket that have arrived, or will arrive soon. */
struct sim_inbox {
        struct sim_queue queue;
        uint64_t room_bytes, charged_bytes;
        uint64_t dropped;
        struct sim_held {
                struct sim_packet *packet;
                uint32_t overtaken; /* number of packets that must overtake this packet before it arrives */
                uint64_t until_ps;
        } held[SIM_HELD_MAX];
        uint32_t n_held;
};

/* Invariants that hold after each step of each history; docs/sim.md describes them. */
enum sim_invariant {
        SIM_ENDS_ONCE,
        SIM_ACCOUNTS_BALANCE,
        SIM_EVENTS_UNMIXED,
        SIM_BUFFERS_BOUNDED,
        SIM_NOTHING_WAITS,
        SIM_PLAN_HOLDS,
        SIM_NOTHING_LOST,
};

enum sim_socket { SOCKET_CONTROL, SOCKET_DATA, SOCKET_NUMBERS, SOCKETS };

/* A ROS's socket to one SFI, and its shaping class. */
struct sim_path {
        uint64_t charged_bytes; /* bytes charged to the send buffer */
        bool blocked;
        bool was_held;
        uint64_t blocked_ns, held_until_ns;
        struct sim_queue queue;
        uint64_t limit_bytes;
        struct sim_bucket rate, ceiling;
        uint64_t dropped;
};

struct sim_shaping {
        bool on;
        struct sim_bucket link;
        struct sim_queue control;
        struct heap due; /* SFIs whose queue holds a packet, by the time at which it may pass */
        uint64_t turn;
        uint64_t armed_ps; /* time for which the timer is armed */
        uint32_t demand;
        uint64_t burst_bytes, rate_bps, control_limit_bytes;
        enum tc_backend backend;
};

/* The bytes of a fragment that arrived, according to the chunks: disjoint ranges in ascending order. */
struct sim_coverage {
        uint64_t base; /* offset in the SFI's buffer */
        struct sim_range {
                uint32_t from, to;
        } * more, first;
        uint32_t n, size; /* of `more` */
};

/* The contents of an SFI's slot; see coverage.c. */
struct sim_slot {
        uint64_t event;
        struct sim_coverage *coverage; /* one per ROS; NULL: nothing arrived */
};

/* The ends of events, according to the SFIs' outputs; see ends.c. */
struct sim_ends {
        uint8_t *events; /* per event: bits of the ends (enum event_end) with which SFIs built it */
        uint64_t size;
        uint64_t distinct[EVENT_LOST]; /* events that SFIs built, each counted once */
        uint64_t payload_bytes;        /* of all complete events */
        uint64_t counted, cookie; /* counted: maximum number of complete and partial events that a DFM of this
                                     run counted */
};

struct sim_node {
        const struct scenario_node *self;
        uint32_t number;  /* index in struct sim */
        bool is_live;     /* a process of the node runs */
        bool has_left;    /* the process exited without a fault */
        bool is_cut;      /* no packet reaches or leaves it */
        uint32_t process; /* number of processes so far */
        union {           /* of the last process, even after its end */
                struct dfm *dfm;
                struct ros *ros;
                struct sfi *sfi;
        };
        uint64_t paused_until_ps, free_ps, turn_ps, last_turn_ns;
        bool is_woken;                                        /* the socket has room again */
        uint32_t worked_packets, worked_sends, worked_chunks; /* in this turn */
        struct sim_link link;
        struct sim_queue wire;
        struct sim_port port;
        struct sim_inbox inboxes[SOCKETS];
        struct sim_path *paths; /* of a ROS */
        struct sim_shaping shaping;
        struct source *source;
        uint8_t *buffer; /* of a ROS or SFI, owned; NULL: packets have no payload */
        uint64_t sfi_live[EVB_SFI_MAX / 64];
        uint64_t dropped_at_source;
        struct sim_slot *slots; /* of an SFI */
        uint32_t n_slots, n_covered;
        uint64_t built[EVENT_LOST + 1]; /* events that this process built, by their ends */
        uint64_t *outputs, n_outputs;   /* a bit for each event that this process built; 64-bit words */
        uint64_t drained_ns, farewell_ns;
        uint32_t farewells;
        enum run_state state; /* state at the last check */
        uint64_t ends_seen;
        struct node_stats *stats, *previous; /* of this process; sums over the previous ones */
        uint32_t restarts;
};

enum sim_item { ITEM_TURN, ITEM_WIRE, ITEM_SHAPING, ITEM_BOX /* of the DFM, or of a board */, ITEMS };

struct sim {
        struct sim_config config;
        const struct scenario *scenario;
        uint64_t now_ps, order;
        struct heap heap;                           /* ITEMS of each node */
        uint64_t processors_ps[SIM_PROCESSORS_MAX]; /* when each processor finishes its current work */
        struct sim_port uplinks[SIM_PROCESSORS_MAX];
        struct sim_node *nodes;
        uint32_t n_nodes, n_ros, n_sfi;
        uint32_t dfm, *node_of_ros, *node_of_sfi; /* indices of nodes */
        struct random random;
        struct fault fault;
        struct fault_config network; /* used by the run */
        struct member_keys keys;
        struct sim_fault faults[SIM_FAULTS_MAX];
        size_t n_faults, next_fault;
        uint64_t calm_ns; /* time after which no fault of a node begins or lasts */
        struct ros_rule rules[EVB_ROS_MAX];
        struct dfm_previous previous;
        struct dfm_processes *processes; /* stored by the DFM */
        uint64_t processes_version;      /* version that the current DFM stored */
        uint64_t began_ns;               /* when the run in `previous` began */
        struct sim_farm farm;            /* without level 2, its `waiting` is NULL */
        uint64_t farm_ns;                /* the farm's next deadline */
        struct trigger box;
        bool box_has_begun;
        uint64_t box_number; /* number of the next trigger that boards read out */
        uint32_t run;
        struct chunk_packer *packer;
        uint8_t *payload; /* without buffers, of each fragment: EVB_FRAGMENT_MAX_BYTES, neither read nor
                             written */
        struct message message;
        struct ros_job jobs[SIM_JOBS];
        struct chunk_job chunk_jobs[SIM_JOBS];
        uint64_t send_buffer_bytes;
        uint64_t link_drops, messages, digest;
        struct sim_ends ends;
        uint64_t progress, progress_ns; /* of the DFM */
        uint32_t dfm_turns;             /* number of turns of all DFM processes */
        bool plan_fits;                 /* the bursts fit a port's buffer */
        bool plan_is_valid;             /* according to the plan, ports drop no packets */
        bool has_ended;                 /* the DFM has ended the run */
        bool is_over;
        bool has_cuts; /* a node was cut off */
        char violation[256];
        uint64_t violated_ns;
};

static inline uint64_t sim_now_ns(const struct sim *s)
{
        return s->now_ps / PS_PER_NS;
}

/* trace.c */
void sim_trace_delivery(struct sim *s, const struct sim_node *to, const struct sim_packet *p);
void sim_trace_drop(struct sim *s, const struct sim_node *at, const struct sim_packet *p, const char *where);
/* Traces a change of state; `value` is part of the digest. */
void sim_trace(struct sim *s, const struct sim_node *n, uint64_t value, const char *format, ...)
        __attribute__((format(printf, 4, 5)));
/* Records a violation; only the first violation counts. */
void sim_violate(struct sim *s, const struct sim_node *n, enum sim_invariant which, const char *format, ...)
        __attribute__((format(printf, 4, 5)));

/* queue.c */
void *sim_must(void *memory); /* ends the program if it is NULL */
struct sim_packet *sim_packet_new(const void *head, size_t head_bytes, size_t datagram_bytes);
void sim_packet_release(struct sim_packet *p);
void sim_queue_put(struct sim_queue *q, uint64_t at_ps, struct sim_packet *p);
struct sim_entry sim_queue_pop(struct sim_queue *q);
void sim_queue_clear(struct sim_queue *q);
void sim_queue_fini(struct sim_queue *q);

static inline const struct sim_entry *sim_queue_first(const struct sim_queue *q)
{
        return q->n > 0 ? &q->entries[q->first] : NULL;
}

/* sim_network.c */
void sim_schedule(struct sim *s, const struct sim_node *n, enum sim_item item, uint64_t at_ps);
/* Plans a turn at this time, unless an earlier one is planned. */
void sim_wake(struct sim *s, struct sim_node *n, uint64_t at_ps);
/* Takes ownership of the packet, and passes it to the sender's link. */
void sim_wire_send(struct sim *s, struct sim_node *n, struct sim_packet *p);
/* Moves the first frame of the link to the switch. */
void sim_wire_arrive(struct sim *s, struct sim_node *n);
/* Returns the number of bytes that a packet occupies in a socket's buffer. */
uint64_t sim_socket_charge(uint32_t frame_bytes);
void sim_path_release(struct sim *s, const struct sim_packet *p);
/* Call this at the start of a turn: drops packets that found no room in the sockets since the previous
 * turn. */
void sim_sockets_look(struct sim *s, struct sim_node *n);
/* Returns the next packet that has arrived at the node's socket, or NULL. The caller releases it. */
struct sim_packet *sim_receive(struct sim *s, struct sim_node *n, enum sim_socket socket);
/* Returns when the next packet arrives. */
uint64_t sim_inbox_next_ps(const struct sim_inbox *i);

/* sim_shaping.c */
int sim_shaping_open(struct sim *s, struct sim_node *n, struct error *e);
void sim_shaping_fini(struct sim_node *n);
/* Takes ownership of the packet. */
void sim_shaping_send(struct sim *s, struct sim_node *n, struct sim_packet *p);
/* Passes on the packets that are due. */
void sim_shaping_turn(struct sim *s, struct sim_node *n);
/* Adapts the shaping to the core's current rates and sources. */
void sim_shaping_follow(struct sim *s, struct sim_node *n);

/* messages.c */
void sim_send_message(struct sim *s, struct sim_node *n, struct message_to to, const struct message *m);
/* Returns the next control message; NULL: none. */
const struct message *sim_receive_message(struct sim *s, struct sim_node *n);

/* sim_level2.c; without level 2, these functions do nothing. */
int sim_level2_open(struct sim *s, struct error *e);
/* Call this after a process of the DFM or of a ROS has started. */
void sim_level2_start(struct sim *s, const struct sim_node *n);
/* Call this after the DFM's messages. True: the DFM has new decisions. */
bool sim_level2_decide(struct sim *s, struct sim_node *dfm);
/* Answers the farm's requests to a ROS. */
void sim_level2_answer(struct sim *s, struct sim_node *ros);

/* sim_front_ends.c; without front-ends, these functions do nothing. */
int sim_front_ends_check(const struct scenario *s, struct error *e);
/* Call this at the time that was planned for the node's ITEM_BOX: the trigger box's next trigger. */
void sim_box_turn(struct sim *s, struct sim_node *n);
/* Call this before the DFM's turn: it offers the box's triggers that have arrived. */
void sim_box_offer(struct sim *s, struct sim_node *dfm);
/* Call these after the DFM's turn: the first starts the box, and the second reads out the triggers that the
 * DFM has accepted. */
void sim_box_follow(struct sim *s, const struct sim_node *dfm);
void sim_boards_follow(struct sim *s, const struct sim_node *dfm);
/* Reads the frames of a ROS's board. */
void sim_front_end_turn(struct sim *s, struct sim_node *ros);
uint64_t sim_front_end_deadline_ns(const struct sim *s, const struct sim_node *ros);
/* At the end of the ROS, reports whether frames are lost. */
void sim_front_end_record_short(struct sim *s, struct sim_node *ros);

/* sim_output.c: passes built events to the output of an SFI. */
void sim_output_turn(struct sim *s, struct sim_node *sfi);
uint64_t sim_output_deadline_ns(const struct sim *s, const struct sim_node *sfi);
/* False: the SFI may not leave the run yet. */
bool sim_output_close(struct sim *s, struct sim_node *sfi);

/* sim_ros.c, sim_sfi.c, sim_dfm.c: a turn of a process, and its next deadline. */
void sim_ros_turn(struct sim *s, struct sim_node *n);
uint64_t sim_ros_deadline_ns(const struct sim *s, const struct sim_node *n);
void sim_sfi_turn(struct sim *s, struct sim_node *n);
uint64_t sim_sfi_deadline_ns(const struct sim *s, const struct sim_node *n);
void sim_dfm_turn(struct sim *s, struct sim_node *n);
uint64_t sim_dfm_deadline_ns(const struct sim *s, const struct sim_node *n);

/* sim.c: continues until this time. True: the run is over, or no further event can happen. */
bool sim_run_until(struct sim *s, uint64_t until_ns);

/* processes.c, sim_faults.c */
int sim_process_start(struct sim *s, struct sim_node *n);
void sim_process_end(struct sim *s, struct sim_node *n);
void sim_process_free(struct sim_node *n); /* the core of a process that ended */
void sim_process_account(struct sim *s, struct sim_node *n);
void sim_faults_prepare(struct sim *s);
/* Returns when the next fault happens; NEVER_NS: no fault follows. */
uint64_t sim_faults_next_ns(const struct sim *s);
void sim_faults_apply(struct sim *s);

/* coverage.c */
void sim_coverage_add(const struct sim *s, struct sim_node *n, const struct sfi_chunk *chunks, size_t k);
/* Whether bytes 0 to `bytes` of a ROS's fragment arrived for this event, in the right place. */
bool sim_coverage_all(const struct sim_slot *slot, const struct sfi_built *built, uint32_t ros);
void sim_coverage_clear(const struct sim *s, struct sim_node *n, struct sim_slot *slot);
void sim_coverage_clear_all(const struct sim *s, struct sim_node *n);

/* ends.c */
void sim_ends_record(struct sim *s, struct sim_node *n, const struct sfi_built *built);
void sim_ends_check(struct sim *s, const struct sim_node *dfm);
void sim_ends_forget(struct sim_node *n); /* another process of the SFI starts */

/* checks.c */
void sim_check_built(struct sim *s, struct sim_node *n, uint32_t slot);
/* Call this when a ROS answers a request for its fragment. */
void sim_check_answer(struct sim *s, const struct sim_node *n, const struct chunk *c);
/* Call this when a port has dropped a packet. */
void sim_check_drop(struct sim *s, const struct sim_node *at);
/* Call this after each turn of the node. */
void sim_check_node(struct sim *s, struct sim_node *n);
void sim_check_end(struct sim *s);
