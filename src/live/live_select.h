/* Parses the requests of consumers of live events, and selects events for them. Pure.
 *
 * A request is one line, `evb-live 1 NAME=VALUE ...\n`; all names are optional:
 *   mode=newest    an event only while the consumer waits for one, so events are always recent (the default)
 *   mode=skip      each event that its ring has room for
 *   mode=all       each event: the SFI waits for room, and so does the run. Only if live.all = yes
 *   stride=N offset=K   of the matching events, number K (below N) of each N
 *   fraction=F seed=S   a random share of the matching events, chosen by event number; equal for equal seeds
 *   trigger-type=A,B    only these L1 trigger types
 *   status=any|complete|partial
 *   group=NAME     share events with the consumers of this name, whose requests are equal: each event goes to
 *                  one of them. With mode=skip or all, the events that a consumer has not released when
 *                  its connection ends go to the others, as its ring has them
 *   ring=BYTES     room for events, at most LIVE_RINGS_MAX_BYTES; an event may have half of it
 * Over a Unix socket, the answer is `evb-live 1\n` with the descriptor of the ring (SCM_RIGHTS; live_ring.h),
 * or `error TEXT\n`. Then the SFI sends single bytes, each of which wakes a consumer that sleeps. If the SFI
 * closes the connection, no more events follow. The consumer sends nothing after its request.
 *
 * Over TCP, the answer is `evb-live 1 ring=BYTES\n`, and the SFI sends the content of a ring of this size:
 * records as in live_ring.h, with their fillers, in little-endian byte order. The consumer has memory for a
 * ring of this size, so it knows where each record begins. When it no longer uses the records before a
 * position, it sends `read POSITION\n`; the SFI never sends more than the size of the ring beyond this
 * position. A last record with record_bytes = 0 says that the SFI has built all its events, and has the final
 * counts. A connection that ends without this record has broken.
 *
 * With a key (network.key-file), the consumer over TCP first sends `key NONCE\n`, and the SFI answers with
 * its own nonce in the same way. Then each line, but not `error TEXT\n`, begins with a tag (protocol/auth.h).
 * The records have no tags. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "protocol/auth.h"

#define LIVE_GREETING "evb-live 1"
#define LIVE_NONCE_LINE "key "
#define LIVE_LINE_MAX 512u /* maximum length of a request or an answer, with its end */
#define LIVE_TYPES_MAX 8
#define LIVE_GROUP_MAX 48
/* Maximum size of all rings of an SFI together. */
#define LIVE_RINGS_MAX_BYTES (UINT64_C(256) << 20)

enum live_mode { LIVE_NEWEST, LIVE_SKIP, LIVE_ALL };
enum live_status { LIVE_ANY, LIVE_COMPLETE, LIVE_PARTIAL };

struct live_request {
        uint64_t mode, status; /* enum live_mode, live_status */
        uint64_t stride, offset, seed, ring_bytes;
        double fraction;
        char group[LIVE_GROUP_MAX]; /* "": alone */
        uint32_t types[LIVE_TYPES_MAX];
        size_t n_types; /* 0: any type */
};

/* Parses a request without its end of line. -EINVAL: the error explains what is wrong. */
int live_request_parse(struct live_request *ret, const char *line, struct error *e);

/* Whether consumers with these requests can share events. */
bool live_request_equals(const struct live_request *a, const struct live_request *b);

struct live_event {
        uint64_t number;
        uint32_t trigger_type;
        bool is_partial;
        uint32_t tag;  /* names the event in struct live_end */
        bool is_again; /* it was offered before, and no consumer acknowledged it */
};

/* Counts since the consumer, or the first consumer of its group, connected. */
struct live_counts {
        uint64_t offered; /* number of events built */
        uint64_t matched; /* number of these events that have the requested trigger type and status */
        uint64_t given;
        uint64_t skipped; /* number of selected events for which no consumer had room or was waiting */
};

/* Counts an offered event. True: it is selected; then the caller counts it as given or skipped. */
bool live_request_selects(const struct live_request *r, struct live_counts *counts,
                          const struct live_event *event);

/* ---- The lines that a consumer sends over TCP ---- */

struct live_lines {
        const struct auth_key *key; /* borrowed; NULL: none */
        uint8_t nonce[AUTH_NONCE_BYTES];
        struct auth_line auth;
        bool is_tagged, has_request;
};

enum live_line_kind { LIVE_LINE_NONCE, LIVE_LINE_REQUEST, LIVE_LINE_READ };

struct live_line {
        enum live_line_kind kind;
        struct live_request request;
        uint64_t position;
};

/* Prepares for the lines of a connection; `nonce` is random, and is used only with a key. */
void live_lines_init(struct live_lines *l, const struct auth_key *key,
                     const uint8_t nonce[static AUTH_NONCE_BYTES]);
/* Accepts the next line, of n bytes without its end. After LIVE_LINE_NONCE, the SFI sends its own nonce.
 * Negative errno: the connection must end; the error explains why. */
int live_lines_accept(struct live_lines *l, char *line, size_t n, struct live_line *ret, struct error *e);
/* Makes a line of the SFI from `text`: with its tag, if there is a key, and its end. Returns its size. */
size_t live_lines_format(struct live_lines *l, const char *text, char line[static LIVE_LINE_MAX]);
