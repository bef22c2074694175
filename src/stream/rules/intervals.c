/* Adds up packets and bytes by the time at which they came. */
#include "intervals.h"

#include <string.h>

#include "base/util.h"

void intervals_init(struct intervals *v)
{
        memset(v, 0, sizeof *v);
        v->length_ns = INTERVALS_FIRST_NS;
}

/* Joins each two intervals, so that the second half is free. */
static void halve(struct intervals *v)
{
        for (size_t i = 0; i < INTERVALS_MAX / 2; i++) {
                v->packets[i] = v->packets[2 * i] + v->packets[2 * i + 1];
                v->bytes[i] = v->bytes[2 * i] + v->bytes[2 * i + 1];
        }
        memset(v->packets + INTERVALS_MAX / 2, 0, sizeof v->packets / 2);
        memset(v->bytes + INTERVALS_MAX / 2, 0, sizeof v->bytes / 2);
        v->length_ns *= 2;
}

void intervals_add(struct intervals *v, uint64_t at_ns, uint64_t packets, uint64_t bytes)
{
        while (at_ns / v->length_ns >= INTERVALS_MAX)
                halve(v);
        v->packets[at_ns / v->length_ns] += packets;
        v->bytes[at_ns / v->length_ns] += bytes;
        v->last_ns = MAX(v->last_ns, at_ns);
}

json_t *intervals_describe(const struct intervals *v)
{
        json_t *packets = json_array(), *bytes = json_array();

        for (uint64_t i = 0; i < v->last_ns / v->length_ns; i++) {
                json_array_append_new(packets, json_integer((json_int_t)v->packets[i]));
                json_array_append_new(bytes, json_integer((json_int_t)v->bytes[i]));
        }
        return json_pack("{s:f, s:o, s:o}", "seconds", (double)v->length_ns / 1e9, "packets", packets,
                         "bytes", bytes);
}
