/* The words of event building that every layer shares: numbers of events and nodes, what a trigger knows of
 * its event, and how an event or a fragment can end. */
#pragma once

#include <stdint.h>

/* Most nodes of one role in a run; bounds bitmaps and tables. */
#define EVB_ROS_MAX 1024
#define EVB_SFI_MAX 512
/* The largest fragment of one ROS, and the unit in which a fragment may be cut (docs/protocol.md). */
#define EVB_FRAGMENT_MAX_BYTES (4u << 20)
#define EVB_BLOCK_BYTES 32u
/* Distance from a run's oldest open event to its newest one. Nodes remember events within it, and believe no
 * number beyond it; the DFM takes no trigger further away. A multiple of 64. */
#define EVB_EVENT_WINDOW (UINT64_C(1) << 22)

enum node_role { ROLE_DFM = 1, ROLE_ROS, ROLE_SFI };

/* What the trigger knows of an event: the header of the built event is made from this alone.
 * Events are numbered by the DFM from 0 in a run ("event" in all messages); global and L1 id are what the
 * header shows. */
struct event_info {
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
};

enum event_end {
        EVENT_COMPLETE, /* every source's fragment is in it */
        EVENT_PARTIAL,  /* built without some of them */
        EVENT_LOST,     /* not built */
};

/* How the bytes of a fragment are to be understood by the builder. */
enum fragment_form {
        FORM_RAW,  /* payload alone; the builder puts ROS, ROB and ROD headers around it */
        FORM_ROS3, /* the header of its sub-detector, then one whole ROS fragment, of format v3.0 */
};

/* What a ROS says of a fragment. All but FRAGMENT_OK and FRAGMENT_TRUNCATED come without bytes. */
enum fragment_status {
        FRAGMENT_OK,
        FRAGMENT_NONE,      /* this source has nothing for this event: it counts as received */
        FRAGMENT_PENDING,   /* never arrived from the front-end in time */
        FRAGMENT_LOST,      /* known to be lost */
        FRAGMENT_DISCARDED, /* no room in the ROS */
        FRAGMENT_TRUNCATED, /* cut to the largest size */
        FRAGMENT_STATUSES,
};
