/* Computes the share of each port that control messages may use, and limits one sender to it. */
#include "protocol/budget.h"

#include "base/util.h"
#include "protocol/chunk.h"

/* Automatic share: the rate that assignments need, and in addition this share for headers, acknowledgements
 * and retries. */
#define SPARE_PERMILLE 1u
#define LEAST_PERMILLE 1u
#define UNKNOWN_PERMILLE 5u
#define MOST_PERMILLE 100u
#define REQUEST_PERMILLE 100u
#define LEAST_BPS UINT64_C(1000000)
/* Usual bytes of an assignment: two bytes for the event, and up to four for its time. */
#define ASSIGN_BYTES 6u
#define ASSIGN_INFO_BYTES 56u
/* Size of a Totals message, which each ROS sends in each keep-alive interval. */
#define TOTALS_BYTES 48u
/* Usual bytes of the entry of a chunk. */
#define CHUNK_BYTES 2u

void budget_init(struct budget *b, uint64_t rate_bps, uint32_t header_bytes)
{
        *b = (struct budget){.rate_bps = rate_bps, .header_bytes = header_bytes};
}

static uint64_t duration_ns(uint64_t bytes, uint64_t rate_bps)
{
        return (uint64_t)(((unsigned __int128)bytes * 8 * NS_PER_S + rate_bps - 1) / rate_bps);
}

uint64_t budget_next_ns(const struct budget *b)
{
        uint64_t burst_ns = b->rate_bps ? duration_ns(BUDGET_BURST_BYTES, b->rate_bps) : 0;

        return b->paid_ns > burst_ns ? b->paid_ns - burst_ns : 0;
}

void budget_charge(struct budget *b, uint64_t now_ns, size_t bytes)
{
        if (b->rate_bps > 0)
                b->paid_ns = MAX(b->paid_ns, now_ns) + duration_ns(bytes + b->header_bytes, b->rate_bps);
}

static uint64_t permille(uint64_t bps, uint64_t n)
{
        return bps / 1000 * n;
}

/* Events/s that saturate an SFI's port if each event needs one whole fragment of each ROS, in full frames. */
static double full_rate_hz(const struct budget_demand *d)
{
        double header_bytes = FRAGMENTS_HEADER_BYTES + d->header_bytes + d->overhead_bytes,
               frame_bytes = d->mtu_bytes + 14.0 + d->overhead_bytes,
               payload_bytes = (double)d->n_ros * (double)(d->fragment_bytes + CHUNK_BYTES);

        return (double)d->link_bps / 8 / (payload_bytes * frame_bytes / (frame_bytes - header_bytes));
}

static uint64_t automatic_share(const struct budget_demand *d, struct budget_plan *p)
{
        uint32_t entry_bytes = ASSIGN_BYTES + (d->with_info ? ASSIGN_INFO_BYTES : 0);
        uint64_t share;

        if (d->fragment_bytes == 0)
                share = permille(d->link_bps, UNKNOWN_PERMILLE);
        else {
                p->event_rate_hz = full_rate_hz(d);
                p->needed_bps = (uint64_t)(p->event_rate_hz * entry_bytes * 8);
                share = p->needed_bps + permille(d->link_bps, SPARE_PERMILLE);
        }
        share = MAX(share + p->totals_bps, permille(d->link_bps, LEAST_PERMILLE));
        return MAX(MIN(MAX(share, LEAST_BPS), permille(d->link_bps, MOST_PERMILLE)), UINT64_C(2));
}

struct budget_plan budget_plan_make(const struct budget_demand *d)
{
        struct budget_plan p = {.header_bytes = d->header_bytes + d->trailer_bytes + d->overhead_bytes};
        uint32_t n_sfi = MAX(d->n_sfi, 1u);

        if (d->link_bps == 0)
                return p;
        if (d->keep_alive_ns > 0)
                p.totals_bps = (uint64_t)((unsigned __int128)d->n_ros * (TOTALS_BYTES + p.header_bytes) * 8 *
                                          NS_PER_S / d->keep_alive_ns);
        p.share_bps = d->configured_bps ?: automatic_share(d, &p);
        /* If there are many ROSs, the DFM may get less than it needs, but at least half of the share. */
        p.totals_bps = MIN(p.totals_bps, p.share_bps / 2);
        p.assign_bps = p.share_bps - p.totals_bps;
        /* The ports of ROSs and of the DFM receive no data, so all SFIs may need their share there at the
         * same time. */
        p.announce_bps = (uint64_t)MIN((unsigned __int128)p.share_bps * n_sfi, MAX(d->link_bps / 4, 1u));
        p.update_bps = MIN(p.share_bps, MAX(d->link_bps / 4 / n_sfi, 1u));
        /* Small windows need many requests, but requests only pass through ports that receive no data. */
        p.request_bps = MAX(permille(d->link_bps, REQUEST_PERMILLE) / n_sfi, 1u);
        p.alive_bps = MIN(p.share_bps, MAX(d->link_bps / 4 / MAX(d->n_ros, 1u), 1u));
        return p;
}
