/* Basic types of event building for every layer: limits of events and nodes, the description of a trigger,
 * and the ends of events and fragments. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* Maximum number of nodes of each role in a run; bounds bitmaps and tables. */
#define EVB_ROS_MAX 1024
#define EVB_SFI_MAX 512
/* The largest fragment of one ROS, and the unit in which it is divided into chunks (docs/protocol.md). */
#define EVB_FRAGMENT_MAX_BYTES (4u << 20)
#define EVB_BLOCK_BYTES 32u
/* Maximum distance from a run's oldest open event to its newest event. Nodes keep records of events within
 * this distance, and accept no number beyond it; the DFM accepts no trigger beyond it. A multiple of 64. */
#define EVB_EVENT_WINDOW (UINT64_C(1) << 22)
/* An SFI records, for this many events below the oldest open one, whether it built them. The record that a
 * DFM keeps for its successor is at most this many events behind. */
#define EVB_EVENTS_KEPT (UINT64_C(1) << 16)

/* ROLE_LEVEL2 is a client that decides which events are built, not a node: "Level 2" in docs/protocol.md. */
enum node_role { ROLE_DFM = 1, ROLE_ROS, ROLE_SFI, ROLE_LEVEL2 };

/* An event as its trigger describes it; the built event contains nothing else in addition to its fragments.
 * In each run, the DFM numbers events from 0 ("event" in all messages). Event headers contain the global ID
 * and the L1 ID instead, which may repeat after a reset of counters. */
struct event_info {
        uint64_t event; /* the DFM's number; UINT64_MAX: unknown, as in files without it */
        uint64_t global_id;
        uint32_t l1_id;
        uint32_t bc_id;
        uint32_t time_s, time_ns; /* since 1970, UTC */
        uint32_t run;
        uint32_t trigger_type; /* L1 trigger type */
        uint32_t l2_info;
        uint32_t ef_info[4];
        uint32_t source_id; /* of the event's header; 0: the SFI's own */
        uint32_t status;    /* first status word, before the builder adds its own bits */
        uint32_t spill;     /* number of spills that had begun in the run, with this one; 0: no spills */
        uint32_t flags;     /* of the trigger, as it came */
};

/* If a ROS sends nothing for sfi.timeout divided by this number, it counts as silent rather than slow. */
#define EVB_SILENT_SHARE 8u
/* A ROS reports the silence of its front-end after this many keep-alives. */
#define EVB_SILENT_KEEP_ALIVES 2
/* How often the DFM reassigns an event before the event is lost. */
#define EVB_REASSIGNMENTS 1u

/* The requirements of a run's events on one ROS. */
struct ros_rule {
        bool optional; /* events are complete without its fragment, which is then absent rather than lost */
        uint64_t wait_ns; /* how long an event waits for its fragment; 0: until the event times out */
        bool frames;      /* its fragments are the frames of a front-end */
        uint64_t period;  /* of the numbers of these frames; 0: they have none */
        bool leads;       /* the ROS announces the numbers of its frames, and the DFM makes events of them */
};

enum event_end {
        EVENT_COMPLETE, /* with the fragments of all required ROSs */
        EVENT_PARTIAL,  /* without the fragments of some required ROSs */
        EVENT_LOST,     /* not built */
};

/* How the builder interprets the bytes of a fragment. */
enum fragment_form {
        FORM_RAW,  /* payload alone; the builder adds ROS, ROB and ROD headers */
        FORM_ROS3, /* the header of its sub-detector, then one complete ROS fragment, of format v3.0 */
};

/* What a ROS reports about a fragment. Only FRAGMENT_OK and FRAGMENT_TRUNCATED have bytes. */
enum fragment_status {
        FRAGMENT_OK,
        FRAGMENT_NONE,      /* the source has nothing for this event, so the fragment counts as received */
        FRAGMENT_PENDING,   /* the fragment did not arrive from the front-end in time */
        FRAGMENT_LOST,      /* the fragment is known to be lost */
        FRAGMENT_DISCARDED, /* the ROS had no room for the fragment */
        FRAGMENT_TRUNCATED, /* the fragment was cut off at the maximum size, or lacks frames */
        FRAGMENT_STATUSES,
};
