/* The trigger box: sends a datagram entry for each trigger, and receives whether the DFM is busy. A DFM that
 * is silent for 300 ms, or has not sent anything yet, counts as busy. One thread. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "frontend/frontend_run.h"
#include "net/endpoint.h"
#include "sys/loop.h"

#define FRONTEND_ENTRIES_MAX 60u /* as many as a packet of 1500 bytes holds */
#define FRONTEND_PACKET_MAX_BYTES (16u + 24u * FRONTEND_ENTRIES_MAX)

/* Flag of an entry: the counters were reset, and its number is the first one after that. */
#define FRONTEND_ENTRY_RESET 4u
/* The entry is not a trigger: its number is that of the next one, and only its other flags count. */
#define FRONTEND_ENTRY_MARKER 8u

struct frontend_entry {
        uint64_t number, time_ns; /* time since 1970 */
        uint32_t type, flags;
};

/* Reason of a DFM without a run, that takes no triggers. */
#define FRONTEND_BUSY_STOPPED 4u
/* Reason of a DFM that finishes what came before a reset of the counters, and tells the ROSs of it. */
#define FRONTEND_BUSY_RESET 5u

struct frontend_busy {
        bool busy;
        uint8_t reason; /* one of FRONTEND_BUSY_*, or another */
        uint64_t last;  /* number of the last trigger that the DFM has */
};

/* n is at most FRONTEND_ENTRIES_MAX. Returns the number of bytes. */
size_t frontend_packet_encode(uint32_t sequence, uint32_t run, const struct frontend_entry *entries, size_t n,
                              uint8_t to[static FRONTEND_PACKET_MAX_BYTES]);
/* False: not a busy datagram. */
bool frontend_packet_decode_busy(const uint8_t *bytes, size_t n, struct frontend_busy *ret);

struct frontend_box {
        const struct frontend_config *config;
        struct loop *loop;
        struct loop_io io; /* of `in` */
        struct endpoint *out, *in;
        bool ready;
        struct frontend_entry entries[FRONTEND_ENTRIES_MAX]; /* not sent yet */
        size_t n;
        uint32_t sequence;
        uint64_t since, start; /* trigger `since` has number `start` */
        bool fresh;            /* without a busy signal: the next trigger announces a reset */
        uint64_t asked_ns;     /* when a marker announced a reset that ROSs do not know yet; NEVER_NS: none */
        bool acknowledged;     /* the DFM has seen that marker */
        bool forgotten;        /* it may be another DFM since */
        bool received;
        struct frontend_busy state; /* as last heard */
        uint64_t received_ns;
        uint64_t busy_since_ns; /* of datagrams that say so; NEVER_NS: it is not busy */
        uint64_t packets, resets;
        uint64_t busy_packets, busy_malformed, busy_changes, busy_ns;
};

/* Opens the sockets. Logs errors. */
int frontend_box_init(struct frontend_box *b, const struct frontend_config *config, struct loop *loop);
void frontend_box_fini(struct frontend_box *b);
bool frontend_box_has_room(const struct frontend_box *b);
/* Trigger `serial`, at this time since 1970; see has_room(). */
void frontend_box_trigger(struct frontend_box *b, uint64_t serial, uint64_t utc_ns);
/* The counters are reset: trigger `serial` has number 0. See has_room(). */
void frontend_box_reset(struct frontend_box *b, uint64_t serial, uint64_t now_ns);
/* Whether triggers must wait until the ROSs know of the reset. */
bool frontend_box_is_resetting(const struct frontend_box *b);
/* Receives busy datagrams; sends entries. Negative errno: a programming error. */
int frontend_box_receive(struct frontend_box *b, uint64_t now_ns);
int frontend_box_send(struct frontend_box *b, uint64_t now_ns);
bool frontend_box_is_busy(const struct frontend_box *b, uint64_t now_ns);
/* The DFM has been busy for config->reset_after_busy_ns, again or for the first time: true once for each. */
bool frontend_box_resets_long_busy(struct frontend_box *b, uint64_t now_ns);
uint64_t frontend_box_deadline_ns(const struct frontend_box *b, uint64_t now_ns);
/* Time for which datagrams said that the DFM was busy. */
uint64_t frontend_box_busy_ns(const struct frontend_box *b, uint64_t now_ns);
