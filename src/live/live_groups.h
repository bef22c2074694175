/* The consumers of live events, their groups and their rings: which consumer gets an event, and what becomes
 * of the events of those that end. Pure: the owner has the connections, the clock and the lock, and makes one
 * call at a time. A consumer is named by its index. The ring of one that has ended stays until its group has
 * the events. */
#pragma once

#include <sys/uio.h>

#include "live/live_ring.h"
#include "live/live_select.h"

#define LIVE_CONSUMERS_MAX 16u
#define LIVE_NO_GROUP UINT32_MAX
#define LIVE_NO_TAG UINT32_MAX
/* A record of an event has at least its head and 64 bytes. */
#define LIVE_RECORD_LEAST_BYTES (2 * LIVE_RECORD_BYTES)

/* Consumers that share events; a consumer without a group name has a group of its own. */
struct live_group {
        struct live_request request;
        struct live_counts counts;
        unsigned members; /* 0: unused */
        unsigned dead;    /* consumers that have ended, and whose unread events wait for room at the others */
        uint32_t next;    /* the consumer to which the next event is offered first */
};

/* An event in a ring. The consumer may have changed the records there, so this is what its end leaves to the
 * group. */
struct live_unread {
        uint64_t at; /* position of the event */
        uint64_t event_bytes;
        uint32_t tag; /* LIVE_NO_TAG: the event is not acknowledged */
};

/* An event that consumers have to acknowledge. */
struct live_copies {
        uint32_t out; /* number of consumers that have it */
        bool is_acknowledged;
};

struct live_consumer {
        uint32_t group;  /* LIVE_NO_GROUP: it has not joined yet */
        bool is_dead;    /* it has ended, but its ring has events for the group */
        bool has_news;   /* events were written since it was last woken */
        uint64_t number; /* serial number of its connection, which the owner writes */
        struct live_ring ring;
        /* A queue of the events that it has not released, if they are passed on when it ends; else NULL. */
        struct live_unread *unread;
        uint32_t unread_first, n_unread;
};

/* What the owner does, at once. It must not call back. */
struct live_contact {
        void (*wake)(void *ctx, uint32_t consumer); /* it sleeps, and its ring has events */
        void (*end)(void *ctx,
                    uint32_t consumer); /* its connection must end: then call live_groups_leave() */
        void (*record_full)(void *ctx, uint32_t consumer); /* its ring has no room for an event */
};

/* What became of an event that consumers in mode all got. */
struct live_end {
        uint32_t tag;
        bool is_acknowledged; /* false: the consumers that got it have ended, so it may be offered again */
};

struct live_groups {
        const struct live_contact *contact;
        void *ctx;
        _Atomic unsigned wanted; /* consumers that have a group; any thread may read it */
        uint64_t lost;           /* events of ended consumers of a group, which no other one got */
        uint32_t n_tags;
        struct live_copies *copies;
        struct live_end *ends; /* that have not been collected: at most one for each tag */
        uint32_t n_ends;
        struct live_consumer consumers[LIVE_CONSUMERS_MAX];
        struct live_group groups[LIVE_CONSUMERS_MAX];
};

/* `n_tags`: as in struct live_settings. -ENOMEM: call live_groups_fini() all the same. */
int live_groups_init(struct live_groups *ret, uint32_t n_tags, const struct live_contact *contact, void *ctx);
/* Frees all rings. */
void live_groups_fini(struct live_groups *all);

/* The core owns the ring then. -EINVAL: the group has another request; -ENOMEM. */
int live_groups_join(struct live_groups *all, uint32_t consumer, const struct live_request *request,
                     const struct live_ring *ring);
/* The consumer, which has joined, has ended. */
void live_groups_leave(struct live_groups *all, uint32_t consumer, uint64_t utc_ns);
/* Frees the ring of the dead consumer that connected first, and whose events may be lost: they are. Returns
 * this consumer, or -ENOENT. */
int live_groups_bury_oldest(struct live_groups *all);

struct live_outcome {
        unsigned given, skipped, missed; /* missed: skipped in mode all */
        bool waits;           /* a consumer in mode all has no room yet, so the event was offered to none */
        bool has_no_consumer; /* with tags: there is no consumer in mode all, so the event waits if it may */
        bool is_held;         /* with tags: live_server_collect() returns the end of the event later */
};

/* Returns the bytes of an event in at most IOV_MAX parts, or a negative errno, after which the event counts
 * as skipped. `needed`: for a consumer in mode all. */
typedef int (*live_encode_fn)(void *ctx, bool needed, const struct iovec **iov, size_t *n_iov,
                              size_t *size_bytes);

/* These are as the functions of live_server.h with the same ends of their names. `utc_ns` goes into the
 * records. */
struct live_outcome live_groups_offer(struct live_groups *all, const struct live_event *event, bool may_wait,
                                      uint64_t utc_ns, live_encode_fn encode, void *ctx);
void live_groups_wake(struct live_groups *all);
size_t live_groups_collect(struct live_groups *all, uint64_t utc_ns, struct live_end *ends, size_t n);
void live_groups_end_holders(struct live_groups *all, uint32_t tag);
bool live_groups_is_settled(struct live_groups *all, uint64_t utc_ns);
uint64_t live_groups_end(struct live_groups *all, uint64_t utc_ns);
