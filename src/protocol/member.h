/* The membership of a ROS or SFI in a run, pure: it joins the DFM, learns the run's cookie, and detects that
 * another DFM resumes the run. The cores of ROS and SFI embed it; docs/protocol.md ("Joining") describes the
 * rules.  An address alone proves nothing. So Welcome repeats the incarnation of the Join, 64 random bits
 * that only the DFM has received, and every other message contains the cookie from Welcome. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/util.h"
#include "protocol/message.h"

/* Digests of the settings that must be equal in all nodes of a run. */
struct member_keys {
        uint32_t table; /* digest of the names of the keys */
        uint32_t n;
        uint32_t values[MESSAGE_KEYS_MAX];
};

/* The information about a node in its Join. */
struct member_config {
        uint64_t incarnation; /* random, new at each start; not 0 */
        uint32_t run;         /* configured number; 0: any */
        uint32_t flags;       /* JOIN_* */
        struct member_keys keys;
        uint64_t retry_ns; /* pause between two Joins */
};

/* Maximum number of recorded previous DFMs of this run. */
#define MEMBER_PREVIOUS_MAX 8

/* A DFM of a run. */
struct member_dfm {
        uint64_t dfm, cookie;
};

struct member {
        struct member_config config;
        enum node_role role;
        uint16_t index;
        uint64_t cookie;      /* 0: in no run */
        uint64_t dfm;         /* incarnation of the DFM that this node follows */
        uint32_t welcome;     /* transaction of the last Welcome that this node accepted */
        uint32_t run;         /* 0: unknown */
        uint32_t resets;      /* of the boards' counters, including the start of the run, up to the last one
                                 that the node follows; 0: unknown, or the DFM makes the triggers */
        uint64_t join_due_ns; /* NEVER_NS: the node has joined */
        uint64_t last_join_ns;
        uint64_t received_ns; /* time of the last message of the DFM that this node follows; 0: none */
        enum welcome_verdict refusal; /* WELCOME_OK: none */
        uint16_t refused_key;
        uint32_t refused_run; /* run number of the DFM that refused */
        uint64_t foreign;     /* messages of another run or DFM */
        bool run_stalled;     /* the DFM ends the run because the run made no progress */
        struct member_dfm previous[MEMBER_PREVIOUS_MAX]; /* a ring; no previous DFM is followed again */
        uint32_t n_previous;
};

enum member_news {
        MEMBER_NOTHING,
        MEMBER_JOINED,  /* in a run now */
        MEMBER_NEW_DFM, /* another incarnation of the DFM resumed the run, so its streams restart */
        MEMBER_REFUSED, /* see refusal */
};

void member_init(struct member *m, const struct member_config *config, enum node_role role, uint16_t index,
                 uint64_t now_ns);

static inline bool member_is_joined(const struct member *m)
{
        return m->cookie != 0;
}

/* The node was suspended for `away_ns`, and received nothing in that time. */
static inline void member_was_paused(struct member *m, uint64_t now_ns, uint64_t away_ns)
{
        if (m->received_ns > 0)
                m->received_ns = MIN(m->received_ns + away_ns, now_ns);
}

/* Whether a message other than Welcome belongs to this node's run and, if a DFM sent it, comes from the DFM
 * that this node follows. Otherwise, the answer to the next Join shows why. */
bool member_accepts(struct member *m, uint64_t now_ns, const struct message *message);
enum member_news member_receive_welcome(struct member *m, uint64_t now_ns, const struct message *message);

/* Whether the `resets` of KeepAlive are valid. A DFM that is stopped while it resumes a run does not have
 * them yet. */
static inline bool member_learns_resets(const struct message *keep_alive)
{
        return keep_alive->keep_alive.state >= RUN_RUNNING &&
               !(keep_alive->keep_alive.flags & KEEP_ALIVE_RESUMES);
}

/* If Join is due, fills in all members except `newest`, `oldest` and `totals`. `in_run`: this node knows that
 * the run has begun. */
bool member_make_join(struct member *m, uint64_t now_ns, bool in_run, struct message *ret);

/* Sets the header of this node's messages, and the resets of a Request. */
void member_address(const struct member *m, struct message *ret, uint32_t type);
/* Sets the part of Alive that reports what the node waits for. */
void member_report(struct message *ret, uint64_t now_ns, const struct node_obstacle *o);
