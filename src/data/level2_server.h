/* The DFM's side of level 2. Clients connect by TCP, receive lists of undecided events, and send decisions,
 * which are passed to the core. Several clients may be connected, and clients may connect or disconnect at
 * any time; no client can stop the DFM. Events that a client has not read yet wait in the core, not here. One
 * thread: the loop's. */
#pragma once

#include "core/dfm.h"
#include "data/context.h"

struct level2_server;

/* Returns the level-2 configuration of the core. */
struct dfm_level2_config level2_server_config(const struct scenario *s);

/* Listens at level2.listen; *ret is unchanged if that key is "none". Errors are logged. `incarnation` is the
 * DFM's. */
int level2_server_new(struct level2_server **ret, const struct data_context *context, struct dfm *core,
                      uint64_t incarnation);
struct level2_server *level2_server_free(struct level2_server *s);

/* Call this before the core's step: passes decisions to the core. Negative errno, logged: no more clients can
 * connect. All functions accept NULL: there is no level 2. */
int level2_server_receive(struct level2_server *s, uint64_t now_ns);
/* Call this after the core's step: sends the clients new events, and changes of the list of ROSs. */
void level2_server_send(struct level2_server *s, uint64_t now_ns);
uint64_t level2_server_deadline_ns(const struct level2_server *s);
/* Publishes the counters. */
void level2_server_account(struct level2_server *s);
