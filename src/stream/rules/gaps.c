/* Remembers missing packets in ascending order, and encodes them as ranges. */
#include "gaps.h"

#include <errno.h>
#include <stdlib.h>

#include "base/util.h"

int gaps_init(struct gaps *g, uint32_t parts)
{
        /* The kernel provides this memory when it is used. */
        *g = (struct gaps){.parts = parts, .list = calloc(GAPS_MAX, sizeof *g->list)};
        return g->list ? 0 : -ENOMEM;
}

void gaps_fini(struct gaps *g)
{
        free(g->list);
        *g = (struct gaps){};
}

static uint64_t bit_of(const struct gaps *g, uint64_t sequence)
{
        return UINT64_C(1) << sequence % g->parts;
}

void gaps_add(struct gaps *g, uint64_t sequence)
{
        const uint64_t unit = sequence / g->parts;
        struct gap *gap;

        if (g->n == 0 || g->list[g->n - 1].unit != unit) {
                if (g->n == GAPS_MAX)
                        return;
                /* The first part of a frame is marked invalid in the output, so it is written again. */
                g->list[g->n++] = (struct gap){.unit = unit, .missing = 1};
                g->left++;
        }
        gap = &g->list[g->n - 1];
        gap->lost |= bit_of(g, sequence);
        g->left += !(gap->missing & bit_of(g, sequence));
        gap->missing |= bit_of(g, sequence);
}

static int compare(const void *key, const void *entry)
{
        const uint64_t *unit = key;
        const struct gap *gap = entry;

        return *unit < gap->unit ? -1 : *unit > gap->unit;
}

struct gap *gaps_find(const struct gaps *g, uint64_t sequence)
{
        const uint64_t unit = g->n > 0 ? sequence / g->parts : 0;
        struct gap *gap = g->n > 0 ? bsearch(&unit, g->list, g->n, sizeof *gap, compare) : NULL;

        return gap && gap->missing & bit_of(g, sequence) ? gap : NULL;
}

void gaps_close(struct gaps *g, struct gap *gap, uint64_t sequence)
{
        gap->missing &= ~bit_of(g, sequence);
        g->left--;
        *(sequence < g->first ? &g->first_repaired : &g->repaired) += (gap->lost & bit_of(g, sequence)) > 0;
        g->closed_frames += gap->missing == 0;
        while (g->begin < g->n && g->list[g->begin].missing == 0)
                g->begin++;
}

static void append(json_t *ranges, const struct packet_range *range)
{
        if (range->n > 0)
                json_array_append_new(ranges,
                                      json_pack("[I, I]", (json_int_t)range->first, (json_int_t)range->n));
}

json_t *gaps_encode(struct gaps *g, uint64_t most, uint64_t *ret_packets)
{
        const uint64_t packets = MIN(most, (uint64_t)GAPS_REQUEST_PACKETS_MAX);
        /* A gap adds at most this many ranges, and one more may be unfinished. */
        const size_t ranges_max = GAPS_REQUEST_RANGES_MAX - g->parts / 2 - 1;
        struct packet_range range = {};
        json_t *ranges = json_array();
        uint64_t n = 0;

        for (size_t i = g->begin; i < g->n && n < packets && json_array_size(ranges) < ranges_max; i++) {
                for (uint32_t part = 0; part < g->parts && n < packets; part++) {
                        uint64_t sequence = g->list[i].unit * g->parts + part;

                        if (!(g->list[i].missing >> part & 1))
                                continue;
                        if (sequence != range.first + range.n || range.n == 0) {
                                append(ranges, &range);
                                range = (struct packet_range){.first = sequence};
                        }
                        range.n++;
                        n++;
                }
        }
        append(ranges, &range);
        *ret_packets = n;
        return ranges;
}

int gaps_decode(const json_t *ranges, uint64_t total, struct packet_range ret[static GAPS_REQUEST_RANGES_MAX],
                size_t *ret_n, uint64_t *ret_packets)
{
        const size_t n = json_array_size(ranges);
        uint64_t packets = 0;

        if (n == 0 || n > GAPS_REQUEST_RANGES_MAX)
                return -EBADMSG;
        for (size_t i = 0; i < n; i++) {
                const json_t *range = json_array_get(ranges, i), *first = json_array_get(range, 0),
                             *number = json_array_get(range, 1);
                const json_int_t begin = json_integer_value(first), count = json_integer_value(number);

                if (!json_is_integer(first) || !json_is_integer(number) || begin < 0 || count < 1 ||
                    (uint64_t)begin >= total || (uint64_t)count > total - (uint64_t)begin ||
                    (uint64_t)count > GAPS_REQUEST_PACKETS_MAX - packets)
                        return -EBADMSG;
                ret[i] = (struct packet_range){(uint64_t)begin, (uint64_t)count};
                packets += (uint64_t)count;
        }
        *ret_n = n;
        *ret_packets = packets;
        return 0;
}
