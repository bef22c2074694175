/* The DFM's side of level 2: clients connect by TCP, receive lists of undecided events, and send decisions,
 * which go to the core. Clients come and go, and several may be connected; none of them can stop the DFM.
 * Events that a client has not read yet wait in the core, not here. One thread: the loop's. */
#pragma once

#include "core/dfm.h"
#include "data/context.h"

struct level2_server;

/* For the core. */
struct dfm_level2_config level2_server_config(const struct scenario *s);

/* Listens at level2.listen; *ret is unchanged if that key is "none". Errors are logged. `incarnation` is the
 * DFM's. */
int level2_server_new(struct level2_server **ret, const struct data_context *context, struct dfm *core,
                      uint64_t incarnation);
struct level2_server *level2_server_free(struct level2_server *s);

/* Before the core's step: passes decisions to it. Negative errno, logged: no client can connect any longer.
 * All functions accept NULL: no level 2. */
int level2_server_receive(struct level2_server *s, uint64_t now_ns);
/* After the core's step: lists new events to the clients, and the ROSs as they come and go. */
void level2_server_send(struct level2_server *s, uint64_t now_ns);
uint64_t level2_server_deadline_ns(const struct level2_server *s);
/* Publishes the counters. */
void level2_server_account(struct level2_server *s);
