/* What a stream carried in equal intervals of its time, for its throughput against time. The intervals begin
 * short, and double when a long stream has filled them all. One writer. */
#pragma once

#include <jansson.h>
#include <stdint.h>

#define INTERVALS_MAX 1024u
#define INTERVALS_FIRST_NS UINT64_C(100000000)

struct intervals {
        uint64_t length_ns, last_ns; /* of an interval; the latest time that was added */
        uint64_t packets[INTERVALS_MAX], bytes[INTERVALS_MAX];
};

void intervals_init(struct intervals *v);
/* at_ns: since the beginning of the stream. */
void intervals_add(struct intervals *v, uint64_t at_ns, uint64_t packets, uint64_t bytes);
/* {"seconds", "packets": [...], "bytes": [...]}: the length of an interval, and those that are over. */
json_t *intervals_describe(const struct intervals *v);
