/* The part of the report that each end makes: what its threads counted, what the machine did during the
 * stream, and why the stream ended early. */
#pragma once

#include <jansson.h>
#include <net/if.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "net/address.h"
#include "receive_threads.h"
#include "send_threads.h"
#include "sys/machine_watch.h"

/* Why a stream ended early. */
struct reason {
        bool failed;               /* an error of this end; otherwise, a user ended the stream */
        char text[ERROR_TEXT_MAX]; /* UTF-8; empty: no reason */
};

/* Records a reason as text that is valid in JSON, unless one is recorded already. */
void reason_set(struct reason *r, bool failed, const char *format, ...) __attribute__((format(printf, 3, 4)));
/* Records a failure, unless its code is 0. */
void reason_set_error(struct reason *r, const struct error *e);

#define DROPS_KIND_MAX 16

/* Packets that a device and its root qdisc drop. The kernel counts for the whole device, so the figures
 * include packets of other programs. */
struct device_drops {
        bool known; /* the other members are valid */
        char device[IF_NAMESIZE];
        uint64_t received_packets; /* received packets dropped by the device, or for lack of buffers */
        bool qdisc_known;
        /* Kind of the root qdisc. For a device with several queues: kind of the qdisc of each queue. */
        char qdisc[DROPS_KIND_MAX];
        bool has_etf; /* whether the tree contains an etf qdisc */
        uint64_t qdisc_packets;
};

/* Reads the counters of the device with this address. */
void drops_read(struct device_drops *ret, const struct net_address *local);

/* Counters that always run, read at the beginning of a stream. */
struct figures_begin {
        struct processors processors;
        struct device_drops drops;
        struct net_address local; /* local address, which identifies the device */
        uint64_t socket_dropped;
};

/* Call this while no thread uses the endpoint. */
void figures_start(struct figures_begin *b, struct endpoint *e, const struct net_address *local);

/* Call this after the threads have been joined. Without a reason, the member is null. */
json_t *figures_of_sender(const struct send_threads *t, const struct figures_begin *b, bool failed,
                          const char *reason);
json_t *figures_of_receiver(const struct receive_threads *t, const struct figures_begin *b, bool failed,
                            const char *reason);

/* Warns about defects of a VDIF recording that did not make the stream incomplete. Call this after the
 * threads have been joined. */
void figures_warn_sender(const struct send_threads *t, const char *input);
/* The same for a receiver. Also logs what is missing or corrupt, and returns whether anything is. `sender` is
 * the address of the sender. */
bool figures_log_receiver(const struct receive_threads *t, const struct figures_begin *b, const char *sender);
/* Shows the progress since the stream began, while the threads run or after that. */
void figures_show_progress(struct receive_threads *t, uint64_t since_ns, bool last);
