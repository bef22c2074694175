/* What the files of the server of live events share: live_server.c has the connections, live_groups.c the
 * consumers' events, live_remote.c what TCP needs. */
#pragma once

#include <pthread.h>

#include "live/live_ring.h"
#include "live/live_server.h"
#include "net/local_listener.h"

#define NO_GROUP UINT32_MAX
#define NO_TAG UINT32_MAX
/* A record of an event has at least its head and 64 bytes. */
#define LIVE_RECORD_LEAST_BYTES (2 * LIVE_RECORD_BYTES)

/* Consumers that share events; a consumer without a group name has a group of its own. */
struct group {
        struct live_request request;
        struct live_counts counts;
        unsigned members; /* 0: unused */
        unsigned dead;    /* consumers that have ended, and whose unread events wait for room at the others */
        uint32_t next;    /* the consumer to which the next event is offered first */
};

/* An event in a ring. The consumer may have changed the records there, so this is what its end leaves to the
 * group. */
struct unread {
        uint64_t at; /* position of the event */
        uint64_t event_bytes;
        uint32_t tag; /* NO_TAG: the event is not acknowledged */
};

/* An event that consumers have to acknowledge. */
struct copies {
        uint32_t out; /* number of consumers that have it */
        bool is_acknowledged;
};

struct consumer {
        struct live_server *server;
        struct loop_io io; /* fd -1: unused, or dead */
        /* Over TCP, `ring` is memory of the SFI alone, and the loop's thread sends its content. */
        struct live_lines lines;
        uint64_t sent;      /* position in the ring */
        uint64_t looked_ns; /* when its connection was checked last */
        uint32_t group;     /* NO_GROUP: no request received yet */
        bool is_dead;       /* it has ended, but its ring has events for the group */
        bool has_news;      /* events were written since it was last woken */
        char line[LIVE_LINE_MAX];
        size_t line_bytes;
        uint64_t number; /* serial number of its connection */
        struct live_ring ring;
        /* A queue of the events that it has not released, if they are passed on when it ends; else NULL. */
        struct unread *unread;
        uint32_t unread_first, n_unread;
};

struct live_server {
        struct loop *loop;
        struct local_listener listener; /* fd -1: it listens over TCP */
        struct loop_io io, wake;        /* `wake`: an event descriptor; a ring has events to send over TCP */
        bool has_key;
        struct auth_key key;
        uint64_t connections;
        uint64_t lost; /* events of ended consumers of a group, which no other one got */
        /* Protects groups, and consumers that have one. The loop's thread alone changes the members of
         * groups, so it reads these without the mutex. */
        pthread_mutex_t mutex;
        _Atomic unsigned wanted; /* consumers that have a group */
        bool allows_all, is_finished;
        uint32_t n_tags;
        struct copies *copies;
        struct live_end *ends; /* that have not been collected: at most one for each tag */
        uint32_t n_ends;
        struct consumer consumers[LIVE_CONSUMERS_MAX];
        struct group groups[LIVE_CONSUMERS_MAX];
};

/* Whether the server listens over TCP. */
static inline bool live_is_remote(const struct live_server *s)
{
        return s->wake.fd >= 0;
}

/* ---- live_groups.c. The caller holds the mutex, except where noted. ---- */

/* Whether the server must remember what a consumer has not released. No mutex is needed. */
bool live_is_remembered(const struct live_server *s, const struct live_request *r);
/* Frees the ring of a consumer that is not connected. */
void live_free_ring(struct consumer *c);
/* Frees the ring of a dead consumer; its events are lost. */
void live_bury(struct consumer *c);
/* Returns the dead consumer that connected first, and whose events may be lost; NULL: there is none. */
struct consumer *live_oldest_dead(struct live_server *s);
/* The loop's thread, without the mutex. `unread`: memory for this queue of the consumer, or NULL. -EINVAL:
 * the group has another request. */
int live_join_group(struct consumer *c, const struct live_request *request, const struct live_ring *ring,
                    struct unread *unread);
void live_leave_group(struct consumer *c);
/* Gives events that ended consumers left to others of the group, while these have room. */
void live_pass_on(struct live_server *s, struct group *g, uint64_t most_bytes);

/* ---- live_remote.c, in the loop's thread, except where noted ---- */

/* Sends what the connection accepts now, and watches for what follows. False: the connection must end. */
bool live_send_events(struct consumer *c);
/* Any thread: wakes whoever waits for events in the ring. */
void live_wake(struct consumer *c);
/* The thread that builds events, with the mutex, if the ring has no room: ends a connection over TCP whose
 * peer does not answer. A consumer that works for a long time may leave its socket full. */
void live_notice_silence(struct consumer *c);
/* Returns whether all events, and then the end of the run, have arrived, or the connection has ended; call
 * this again otherwise. */
bool live_send_rest(struct consumer *c);
/* Counts the events in the ring that the peer's kernel has not received. */
uint64_t live_count_missed(const struct consumer *c);
