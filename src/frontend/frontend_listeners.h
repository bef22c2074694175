/* The TCP ports on which boards wait for their ROSs. Boards with the same address share a port, and each
 * connection is passed to the first of these boards that has none. One thread. */
#pragma once

#include "frontend_board.h"

struct frontend_listeners {
        struct loop *loop;
        struct frontend_board *boards;
        unsigned n_boards, n;
        struct frontend_listener {
                struct frontend_listeners *all;
                struct loop_io io; /* fd -1: closed, because all of its boards are down */
                const struct net_address *at;
                bool ready;
        } listeners[FRONTEND_BOARDS_MAX];
};

/* Opens the ports; borrows `loop` and `boards`. Logs errors. */
int frontend_listeners_init(struct frontend_listeners *d, struct loop *loop, struct frontend_board *boards,
                            unsigned n_boards);
void frontend_listeners_fini(struct frontend_listeners *d);
/* Accepts connections; closes and opens ports as boards go down and come back. Call this after the boards'
 * turns, which detect connections that have ended. Logs errors. */
int frontend_listeners_turn(struct frontend_listeners *d);
