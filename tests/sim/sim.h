/* A whole system of cores under virtual time: one DFM, ROSs and SFIs, and a network that loses, repeats and
 * reorders packets by a seed. Messages are encoded to bytes, and payload is a real pattern that is checked
 * when events are written. No clock or socket is used, and the same seed repeats the same run. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/fault.h"
#include "core/dfm.h"
#include "core/ros.h"
#include "core/sfi.h"
#include "protocol/frame.h"

/* Boards that send several frames for each trigger, which are joined (data/joiner.h). */
struct sim_joins {
        uint32_t frames;             /* for each trigger; 0: each frame is a fragment */
        bool varies;                 /* triggers have fewer frames, but at least one */
        uint32_t boards;             /* that share the stream of their ROS; 0: one */
        struct join_rule rule;       /* its fields are those of sim_joins_rule() */
        bool shuffled;               /* the frames of a trigger come in any order, otherwise by their index */
        uint64_t gap_ns;             /* between two of them */
        double lost, late, repeated; /* fractions of frames */
        uint64_t late_ns;
};

/* Type of the triggers after a reset, if sim_boards.boxed: their numbers are not unique. */
#define SIM_AFTER_RESET 4u
/* Maximum number of announced numbers, and the time-out of an event in time-outs of an SFI. */
#define SIM_ANNOUNCED_MAX 1024u
#define SIM_EVENT_TIMEOUTS 3

/* Boards that read each trigger out, with a counter of triggers in each frame; one for each ROS. The triggers
 * are those that the DFM accepts or, with `free`, this number of the boards' own triggers, whose frames make
 * events. */
struct sim_boards {
        unsigned bits;   /* of the counter; 0: no boards */
        bool boxed;      /* the test decides when a trigger comes, by its number */
        uint64_t mixed;  /* seed of a period and a first counter for each board; 0: all are alike */
        uint64_t narrow; /* if they are mixed: the period of each, below NUMBER_NARROW; 0: at least 2^16 */
        double missed, late;  /* fractions of triggers without a frame, and with a late one */
        uint64_t late_ns;     /* time by which it is late */
        double repeated;      /* fraction of triggers whose frame comes again */
        uint64_t repeated_ns; /* time by which the second one is later */
        /* Frames of the first board that are due in this interval come together at its end. */
        uint64_t held_from_ns, held_until_ns;
        uint64_t dead_from, dead_until; /* the first board misses these triggers */
        /* All counters restart at this trigger from outside; 0: never. The test informs the DFM, and
         * KeepAlive informs the ROSs. */
        uint64_t reset_at;
        uint64_t free, first_ns; /* own triggers, from first_ns on at the configured rate */
        /* At this trigger the first board's counter is ahead, for so many frames (0: for 50), and by so much:
         * by more than there are triggers (0: by 5000). */
        uint64_t lies_at, lies, lie;
        uint64_t window_ns;
        struct sim_joins joins;
};

/* When a hit leaves its board, and its time. */
struct sim_hit {
        uint64_t sent_ns, time_ns;
};

/* Boards that send hits with times; their slices make the events. boards.window_ns applies. */
struct sim_slices {
        uint64_t slice_ns, overlap_ns; /* slice_ns is 0: none */
        /* Describes a hit of a board; the same each time. False: the board has fewer. */
        bool (*hit)(void *ctx, uint32_t ros, uint64_t hit, struct sim_hit *ret);
        void *ctx;
};

/* Consumers of live events, at random: they connect, work, sleep, lie and die. As data/builder.c does it, an
 * SFI offers them each event that it writes. */
struct sim_live {
        uint32_t consumers; /* maximum number at each SFI; 0: no live.listen */
        uint64_t act_ns;    /* mean interval between the acts of a consumer */
        bool all;           /* live.all: some use mode all */
        bool output;        /* sfi.output = live: an event is written when its consumers have released it */
        bool freezes;       /* at the end of the run, consumers stop, and hold what they have */
        uint64_t seed;
};

struct sim_config {
        uint32_t n_ros, n_sfi;
        bool push;
        uint64_t events;
        uint64_t rate_millihertz;
        bool outside;            /* the test offers the triggers; `events` of them are accepted */
        uint32_t fragment_bytes; /* mean; sizes vary from 0 to twice the mean */
        struct fault_config faults;
        uint64_t latency_ns;
        uint64_t write_ns; /* an SFI writes an event in this time */
        uint64_t sfi_buffer_bytes;
        uint32_t sfi_slots, sfi_credits;
        uint64_t timeout_ns;
        bool records;              /* a DFM stores its record for the next DFM, as node/role_dfm.c does */
        bool returns;              /* a ROS or SFI whose run is over starts anew, as its unit does */
        bool arrive_stream;        /* a frame without room waits; otherwise it is lost */
        uint32_t ros_entries;      /* 0: ample */
        uint64_t ros_buffer_bytes; /* 0: ample */
        struct sim_boards boards;
        struct sim_slices slices;
        struct sim_live live;
        uint64_t stall_from_ns, stall_until_ns; /* no SFI writes in this interval */
        /* Level 2, with a farm that accepts this share, and decides after at most twice farm_ns. */
        struct dfm_level2_config level2;
        uint32_t accept_percent;
        uint64_t farm_ns;
};

/* The end of one event, as the SFIs wrote it. */
struct sim_event {
        uint16_t complete, partial; /* number of times it was written */
        uint16_t present;           /* bit i: written with the fragment of ROS i */
        uint16_t absent;            /* bit i: the frame of board i did not reach its ROS */
};

struct sim;

struct sim_config sim_standard(void);
struct sim *sim_new(const struct sim_config *config);
struct sim *sim_free(struct sim *s);

/* Runs until the DFM is done or until `until_ns`. True: done. */
bool sim_run(struct sim *s, uint64_t until_ns);
/* The DFM is done and has exited. Delivers messages on their way to the nodes. */
void sim_settle(struct sim *s, uint64_t ns);
uint64_t sim_now_ns(const struct sim *s);

/* Stops a node at once and for good, or restarts it with empty state (SFI). */
void sim_kill(struct sim *s, enum node_role role, uint32_t index);
void sim_restart_sfi(struct sim *s, uint32_t index);
/* The frames that the previous process had are lost. */
void sim_restart_ros(struct sim *s, uint32_t index);
/* Starts another DFM process in place of the killed one. */
void sim_restart_dfm(struct sim *s);
/* All nodes but the DFM are stopped as by SIGTERM: they leave when the run has ended. */
void sim_stop_nodes(struct sim *s);
/* The node continues, but no message reaches or leaves it. Frames of its board do. */
void sim_cut(struct sim *s, enum node_role role, uint32_t index, bool cut);
/* All boards read out the trigger with this number (sim_boards.boxed). */
void sim_boards_trigger_now(struct sim *s, uint64_t number);
bool sim_lives(struct sim *s, enum node_role role, uint32_t index);
/* Delivers bytes to a node as a datagram of a foreign sender. */
void sim_inject(struct sim *s, enum node_role role, uint32_t index, const void *bytes, size_t n);

struct dfm *sim_dfm(struct sim *s);
struct ros *sim_ros(struct sim *s, uint32_t index);
struct sfi *sim_sfi(struct sim *s, uint32_t index);
const struct sim_event *sim_event(const struct sim *s, uint64_t event);
uint64_t
sim_wrong_bytes(const struct sim *s); /* fragments written with bytes that do not match the pattern */
/* Triggers that a DFM accepted, and of which its successor did not learn when it resumed the run. */
uint64_t sim_forgotten_triggers(const struct sim *s);
/* Events written although the farm rejects them: wrong unless their decision timed out. */
uint64_t sim_wrong_decisions(const struct sim *s);
uint32_t sim_most_open(const struct sim *s);             /* maximum number of open events in any SFI */
uint64_t sim_written(const struct sim *s, uint32_t sfi); /* events that this process of the SFI wrote */
uint64_t sim_fragments_arrived(const struct sim *s, uint32_t ros); /* frames or slices, for the core */
uint64_t sim_frames(const struct sim *s, uint32_t ros); /* of its board, that this process of the ROS read */
/* The farm's decision about an event, at any time. */
bool sim_accepts(const struct sim *s, uint64_t event);
