/* What surrounds the nodes of evb sim in a history: boards with faults, disks that are slow, and consumers of
 * live events. Packets have payload, which is checked when events are written. These files replace those of
 * src/sim for boards and outputs. The same seed repeats the same run. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/fault.h"
#include "core/dfm.h"
#include "core/ros.h"
#include "core/sfi.h"
#include "protocol/frame.h"
#include "sim/sim.h"

/* Boards that send several frames for each trigger, which are joined (data/joiner.h). */
struct site_joins {
        uint32_t frames;             /* for each trigger; 0: each frame is a fragment */
        bool varies;                 /* triggers have fewer frames, but at least one */
        uint32_t boards;             /* that share the stream of their ROS; 0: one */
        struct join_rule rule;       /* its fields are those of site_joins.h */
        bool shuffled;               /* the frames of a trigger come in any order, otherwise by their index */
        uint64_t gap_ns;             /* between two of them */
        double lost, late, repeated; /* fractions of frames */
        uint64_t late_ns;
};

/* Type of the triggers after a reset, if site_boards.boxed: their numbers are not unique. */
#define SITE_AFTER_RESET 4u
/* The time-out of an event in time-outs of an SFI. */
#define SITE_EVENT_TIMEOUTS 3

/* Boards that read each trigger out, with a counter of triggers in each frame; one for each ROS. The triggers
 * are those that the DFM accepts or, with `free`, this number of the boards' own triggers, whose frames make
 * events. */
struct site_boards {
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
        struct site_joins joins;
};

/* When a hit leaves its board, and its time. */
struct site_hit {
        uint64_t sent_ns, time_ns;
};

/* Boards that send hits with times; their slices make the events. boards.window_ns applies. */
struct site_slices {
        uint64_t slice_ns, overlap_ns; /* slice_ns is 0: none */
        /* Describes a hit of a board; the same each time. False: the board has fewer. */
        bool (*hit)(void *ctx, uint32_t ros, uint64_t hit, struct site_hit *ret);
        void *ctx;
};

/* Consumers of live events, at random: they connect, work, sleep, lie and die. As data/builder.c does it, an
 * SFI offers them each event that it writes. */
struct site_live {
        uint32_t consumers; /* maximum number at each SFI; 0: no live.listen */
        uint64_t act_ns;    /* mean interval between the acts of a consumer */
        bool all;           /* live.all: some use mode all */
        bool output;        /* sfi.output = live: an event is written when its consumers have released it */
        bool freezes;       /* at the end of the run, consumers stop, and hold what they have */
        uint64_t seed;
};

struct site_config {
        uint32_t n_ros, n_sfi;
        bool push;
        uint64_t events;
        uint64_t rate_millihertz;
        bool outside;            /* the test offers the triggers; `events` of them are accepted */
        uint32_t fragment_bytes; /* mean; sizes vary from 0 to twice the mean */
        struct fault_config faults;
        uint64_t write_ns;     /* an SFI writes an event in this time */
        uint64_t buffer_bytes; /* of each ROS and SFI */
        uint32_t sfi_credits;
        uint64_t timeout_ns;
        bool arrive_stream; /* a frame without room waits; otherwise it is lost */
        uint32_t ros_entries;
        struct site_boards boards;
        struct site_slices slices;
        struct site_live live;
        uint64_t stall_from_ns, stall_until_ns; /* no SFI writes in this interval */
        /* Level 2, with a farm that accepts this share, and decides after at most twice farm_ns. */
        bool level2;
        uint32_t accept_percent;
        uint64_t farm_ns;
};

/* The end of one event, as the SFIs wrote it. */
struct site_event {
        uint16_t complete, partial; /* number of times it was written */
        uint16_t present;           /* bit i: written with the fragment of ROS i */
        uint16_t absent;            /* bit i: the frame of board i did not reach its ROS */
};

struct site;

struct site *site_new(const struct site_config *config);
struct site *site_free(struct site *s);
const struct scenario *site_scenario(const struct site *s);

/* Runs until the DFM is done or until `until_ns`. True: done. */
bool site_run(struct site *s, uint64_t until_ns);
/* The DFM is done and has exited. Delivers messages on their way to the nodes. */
void site_settle(struct site *s, uint64_t ns);
uint64_t site_now_ns(const struct site *s);

/* Stops a process at once. Its core stays as it is until the next process starts. */
void site_kill(struct site *s, enum node_role role, uint32_t index);
/* The frames that the previous process of a ROS had are lost. */
void site_restart(struct site *s, enum node_role role, uint32_t index);
/* All nodes but the DFM are stopped as by SIGTERM: they leave when the run has ended. */
void site_stop_nodes(struct site *s);
/* The node continues, but no message reaches or leaves it. Frames of its board do. */
void site_cut(struct site *s, enum node_role role, uint32_t index, bool cut);
/* All boards read out the trigger with this number (site_boards.boxed). */
void site_boards_trigger_now(struct site *s, uint64_t number);
bool site_lives(struct site *s, enum node_role role, uint32_t index);
/* The test has done something to the DFM. */
void site_wake_dfm(struct site *s);

struct dfm *site_dfm(struct site *s);
struct ros *site_ros(struct site *s, uint32_t index);
struct sfi *site_sfi(struct site *s, uint32_t index);
const struct site_event *site_event(const struct site *s, uint64_t event);
/* Fragments written with bytes that are not theirs. */
uint64_t site_wrong_bytes(const struct site *s);
/* An invariant of evb sim that does not hold; NULL: none. */
const char *site_violation(const struct site *s);
/* Triggers that a DFM accepted, and of which its successor did not learn when it resumed the run. */
uint64_t site_forgotten_triggers(const struct site *s);
/* Events written although the farm rejects them: wrong unless their decision timed out. */
uint64_t site_wrong_decisions(const struct site *s);
uint64_t site_written(const struct site *s, uint32_t sfi); /* events that this process of the SFI wrote */
uint64_t site_fragments_arrived(const struct site *s, uint32_t ros); /* frames or slices, for the core */
uint64_t site_frames(const struct site *s,
                     uint32_t ros); /* of its board, that this process of the ROS read */
/* The farm's decision about an event, at any time. */
bool site_accepts(const struct site *s, uint64_t event);
