/* What the files of the server of live events share: live_server.c has the connections, and live_remote.c
 * what TCP needs. */
#pragma once

#include <pthread.h>

#include "live/live_server.h"
#include "net/local_listener.h"

struct connection {
        struct live_server *server;
        struct live_consumer *consumer; /* has the same index */
        struct loop_io io;              /* fd -1: unused, or the consumer is dead */
        /* Over TCP, the ring is memory of the SFI alone, and the loop's thread sends its content. */
        struct live_lines lines;
        uint64_t sent;      /* position in the ring */
        uint64_t looked_ns; /* when it was checked last */
        char line[LIVE_LINE_MAX];
        size_t line_bytes;
};

struct live_server {
        struct loop *loop;
        struct local_listener listener; /* fd -1: it listens over TCP */
        struct loop_io io, wake;        /* `wake`: an event descriptor; a ring has events to send over TCP */
        bool has_key;
        struct auth_key key;
        uint64_t accepted; /* connections */
        bool allows_all, is_finished;
        /* Protects `core`. The loop's thread alone changes the members of groups, so it reads these without
         * the mutex. */
        pthread_mutex_t mutex;
        struct live_groups core;
        struct connection connections[LIVE_CONSUMERS_MAX];
};

/* Whether the server listens over TCP. */
static inline bool live_is_remote(const struct live_server *s)
{
        return s->wake.fd >= 0;
}

/* ---- live_remote.c, in the loop's thread, except where noted ---- */

/* Sends what the connection accepts now, and watches for what follows. False: the connection must end. */
bool live_send_events(struct connection *c);
/* Any thread: wakes whoever waits for events in the ring. */
void live_wake(struct connection *c);
/* The thread that builds events, with the mutex, if the ring has no room: ends a connection over TCP whose
 * peer does not answer. A consumer that works for a long time may leave its socket full. */
void live_notice_silence(struct connection *c);
/* Returns whether all events, and then the end of the run, have arrived, or the connection has ended; call
 * this again otherwise. */
bool live_send_rest(struct connection *c);
/* Counts the events in the ring that the peer's kernel has not received. */
uint64_t live_count_missed(const struct connection *c);
