/* The part of the report that each end makes: what its threads counted, and what the machine did meanwhile.
 */
#pragma once

#include <jansson.h>

#include "drops.h"
#include "sys/processors.h"
#include "receive_threads.h"
#include "send_threads.h"

/* Counters that run all the time, read when a stream begins. */
struct figures_begin {
        struct processors processors;
        struct device_drops drops;
        struct net_address local; /* of the device */
        uint64_t socket_dropped;
};

/* Call while no thread uses the endpoint. */
void figures_start(struct figures_begin *b, struct endpoint *e, const struct net_address *local);

/* Call after the threads have been joined. An empty reason is null. */
json_t *figures_of_sender(const struct send_threads *t, const struct figures_begin *b, bool failed,
                          const char *reason);
json_t *figures_of_receiver(const struct receive_threads *t, const struct figures_begin *b, bool failed,
                            const char *reason);

/* Warn of what is worth knowing of a VDIF recording, although nothing is missing for it. Call after the
 * threads have been joined. */
void figures_warn_sender(const struct send_threads *t, const char *input);
void figures_warn_receiver(const struct receive_threads *t);
