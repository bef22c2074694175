/* A ROS's or SFI's membership in a run, pure: it joins the DFM, learns the run's cookie, and finds out when another DFM
 * has taken the run up. The cores of ROS and SFI embed it; docs/protocol.md ("Joining") gives the rules.
 *
 * Nobody is believed for an address alone: Welcome repeats the incarnation that Join named, 64 random bits which only
 * the DFM has seen, and everything else carries the cookie that Welcome brought. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "evb/core/message.h"

/* Digests of what must be the same in the scenarios of all nodes of a run. */
struct member_keys {
        uint32_t table; /* of the names of the keys */
        uint32_t n;
        uint32_t values[MESSAGE_KEYS_MAX];
};

/* What a node says of itself in Join. */
struct member_config {
        uint64_t incarnation; /* random, another one at each start; not 0 */
        uint32_t run;         /* configured number; 0: any */
        uint32_t flags;       /* JOIN_* */
        struct member_keys keys;
        uint64_t retry_ns; /* between two Joins */
};

/* DFMs that are remembered after another one has taken their run up. */
#define MEMBER_FORMER_MAX 8

/* A DFM as it speaks for a run. */
struct member_dfm {
        uint64_t dfm, cookie;
};

struct member {
        struct member_config config;
        enum node_role role;
        uint16_t index;
        uint64_t cookie; /* 0: in no run yet */
        uint64_t dfm;    /* incarnation that is followed */
        uint32_t run;    /* 0: not known yet */
        uint64_t join_due_ns; /* NEVER_NS: joined */
        uint64_t last_join_ns;
        uint64_t heard_ns; /* when our DFM said something; 0: never */
        enum welcome_verdict refusal; /* WELCOME_OK: none */
        uint16_t refused_key;
        uint32_t refused_run; /* the DFM's */
        uint64_t foreign;     /* messages of another run or DFM */
        struct member_dfm former[MEMBER_FORMER_MAX]; /* a ring; once left, none is followed again */
        uint32_t n_former;
};

enum member_news {
        MEMBER_NOTHING,
        MEMBER_JOINED,  /* in a run now */
        MEMBER_NEW_DFM, /* another incarnation of the DFM has taken our run up: streams to and from it begin anew */
        MEMBER_REFUSED, /* see refusal */
};

void member_init(struct member *m, const struct member_config *config, enum node_role role, uint16_t index,
                 uint64_t now_ns);

static inline bool member_is_joined(const struct member *m)
{
        return m->cookie != 0;
}

/* A message from the DFM (but Welcome) or from another node is of our run, and of the DFM that we follow. Where it is not, the
 * next Join finds out why. */
bool member_accepts(struct member *m, uint64_t now_ns, const struct message *message);
enum member_news member_receive_welcome(struct member *m, uint64_t now_ns, const struct message *message);

/* Join is due: fills in all but `newest`, `oldest` and `totals`. `in_run`: the run has begun, as far as the node knows. */
bool member_make_join(struct member *m, uint64_t now_ns, bool in_run, struct message *ret);

/* The header of a message of this node. */
void member_address(const struct member *m, struct message *ret, uint32_t type);
