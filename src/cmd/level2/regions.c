/* Requests the fragments of each event from the ROSs, and returns an event once they have arrived. */
#include "regions.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/quantity.h"
#include "base/util.h"

int regions_new(struct regions **ret, struct loop *loop, const struct regions_config *config)
{
        struct regions *g = calloc(1, sizeof *g);
        int r;

        if (!g)
                return -ENOMEM;
        r = region_events_init(&g->events, config);
        if (r >= 0)
                r = readouts_new(&g->readouts, loop, &g->events);
        if (r < 0) {
                regions_free(g);
                return r;
        }
        *ret = g;
        return 0;
}

struct regions *regions_free(struct regions *g)
{
        if (!g)
                return NULL;
        readouts_free(g->readouts);
        region_events_fini(&g->events);
        free(g);
        return NULL;
}

void regions_follow(struct regions *g, uint64_t cookie)
{
        region_events_forget_all(&g->events);
        readouts_follow(g->readouts, cookie);
}

void regions_receive_readouts(struct regions *g, uint64_t now_ns, const struct message *m)
{
        readouts_receive(g->readouts, now_ns, m);
}

bool regions_are_known(const struct regions *g)
{
        return readouts_count(g->readouts) > 0;
}

bool regions_has_room(const struct regions *g)
{
        return region_events_have_room(&g->events);
}

void regions_add(struct regions *g, uint64_t now_ns, uint64_t event, uint32_t l1_id)
{
        uint32_t i = region_events_add(&g->events, now_ns, event, l1_id, readouts_count(g->readouts));
        const struct region_event *v = region_events_at(&g->events, i);

        for (uint32_t k = 0; i != UINT32_MAX && k < v->n; k++) {
                if (!readouts_request(g->readouts, v->ros[k], i))
                        region_events_miss(&g->events, i, 1u << k);
        }
}

void regions_turn(struct regions *g, uint64_t now_ns)
{
        readouts_turn(g->readouts, now_ns);
        region_events_expire(&g->events, now_ns);
}

bool regions_next(struct regions *g, struct region_result *ret)
{
        return region_events_next(&g->events, ret);
}

uint64_t regions_deadline_ns(const struct regions *g)
{
        return MIN(readouts_deadline_ns(g->readouts), region_events_deadline_ns(&g->events));
}

json_t *regions_describe(const struct regions *g)
{
        const struct regions_counts *c;

        if (!g)
                return json_null();
        c = &g->events.counts;
        return json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "requested",
                         (json_int_t)c->requested, "received", (json_int_t)c->received, "gone",
                         (json_int_t)c->gone, "absent", (json_int_t)c->absent, "missed",
                         (json_int_t)c->missed, "corrupt", (json_int_t)c->corrupt, "bytes",
                         (json_int_t)c->bytes, "connections", (json_int_t)c->connections, "events_incomplete",
                         (json_int_t)c->events_incomplete);
}

void regions_print(const struct regions *g)
{
        const struct regions_counts *c;
        char bytes[QUANTITY_TEXT_MAX];

        if (!g)
                return;
        c = &g->events.counts;
        printf("%" PRIu64 " fragments requested: %" PRIu64 " received (%s), %" PRIu64
               " of events decided otherwise, %" PRIu64 " absent, %" PRIu64 " without an answer; %" PRIu64
               " with wrong content\n",
               c->requested, c->received, quantity_format_bytes(c->bytes, bytes), c->gone, c->absent,
               c->missed, c->corrupt);
}
