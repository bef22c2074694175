/* The trigger box: sends a datagram entry for each trigger, and receives the busy state of the DFM. A DFM
 * that is silent for 300 ms, or has not sent anything yet, counts as busy. One thread. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "frontend/frontend_run.h"
#include "net/endpoint.h"
#include "sys/loop.h"

#define FRONTEND_ENTRIES_MAX 60u /* number of entries in a packet of 1500 bytes */
#define FRONTEND_PACKET_MAX_BYTES (16u + 24u * FRONTEND_ENTRIES_MAX)

/* Flag of an entry: the counters were reset, and the number of the entry is the first one after the reset. */
#define FRONTEND_ENTRY_RESET 4u
/* The entry is not a trigger: it contains the number of the next trigger, and only its other flags count. */
#define FRONTEND_ENTRY_MARKER 8u

struct frontend_entry {
        uint64_t number, time_ns; /* time since 1970 */
        uint32_t type, flags;
};

/* Reason of a DFM without a run, which accepts no triggers. */
#define FRONTEND_BUSY_STOPPED 4u
/* Reason of a DFM that finishes the events before a reset of the counters, and announces the reset to the
 * ROSs. */
#define FRONTEND_BUSY_RESET 5u

struct frontend_busy {
        bool busy;
        uint8_t reason; /* one of FRONTEND_BUSY_*, or an unknown reason */
        uint64_t last;  /* number of the last trigger that the DFM has accepted */
};

/* n is at most FRONTEND_ENTRIES_MAX. Returns the number of bytes. */
size_t frontend_packet_encode(uint32_t sequence, uint32_t run, const struct frontend_entry *entries, size_t n,
                              uint8_t to[static FRONTEND_PACKET_MAX_BYTES]);
/* False: not a busy datagram. */
bool frontend_packet_decode_busy(const uint8_t *bytes, size_t n, struct frontend_busy *ret);

struct frontend_box {
        const struct frontend_config *config;
        struct loop *loop;
        struct loop_io io; /* for `in` */
        struct endpoint *out, *in;
        bool ready;
        struct frontend_entry entries[FRONTEND_ENTRIES_MAX]; /* entries that were not sent yet */
        size_t n;
        uint32_t sequence;
        uint64_t since, start; /* trigger `since` has number `start` */
        bool fresh;            /* without a busy signal: the next trigger announces a reset */
        /* When a marker announced a reset of which the ROSs have not been informed yet; NEVER_NS: none. */
        uint64_t asked_ns;
        bool acknowledged; /* the DFM has reported that it received that marker */
        bool forgotten;    /* the DFM may have been replaced since then */
        bool received;
        struct frontend_busy state; /* last received state */
        uint64_t received_ns;
        uint64_t busy_since_ns; /* since when datagrams report busy; NEVER_NS: it is not busy */
        uint64_t packets, resets;
        uint64_t busy_packets, busy_malformed, busy_changes, busy_ns;
};

/* Opens the sockets. Logs errors. */
int frontend_box_init(struct frontend_box *b, const struct frontend_config *config, struct loop *loop);
void frontend_box_fini(struct frontend_box *b);
bool frontend_box_has_room(const struct frontend_box *b);
/* Adds trigger `serial`, with its time since 1970; see frontend_box_has_room(). */
void frontend_box_trigger(struct frontend_box *b, uint64_t serial, uint64_t utc_ns);
/* Resets the counters: trigger `serial` has number 0. See frontend_box_has_room(). */
void frontend_box_reset(struct frontend_box *b, uint64_t serial, uint64_t now_ns);
/* Whether triggers must wait until the ROSs have been informed of the reset. */
bool frontend_box_is_resetting(const struct frontend_box *b);
/* Receives busy datagrams, and sends entries. A negative errno is a programming error. */
int frontend_box_receive(struct frontend_box *b, uint64_t now_ns);
int frontend_box_send(struct frontend_box *b, uint64_t now_ns);
bool frontend_box_is_busy(const struct frontend_box *b, uint64_t now_ns);
/* Whether the DFM has been busy for another config->reset_after_busy_ns; returns true once for each such
 * period. */
bool frontend_box_resets_long_busy(struct frontend_box *b, uint64_t now_ns);
uint64_t frontend_box_deadline_ns(const struct frontend_box *b, uint64_t now_ns);
/* Returns for how long datagrams reported that the DFM was busy. */
uint64_t frontend_box_busy_ns(const struct frontend_box *b, uint64_t now_ns);
