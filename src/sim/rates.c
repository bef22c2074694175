/* The arithmetic of links, ports and token buckets. */
#include "sim/rates.h"

#include "base/util.h"

#define BITS_PS UINT64_C(8000000000000) /* bits per byte * ps per second */

uint64_t rates_time_ps(uint64_t bytes, uint64_t rate_bps)
{
        if (likely(bytes <= UINT64_MAX / BITS_PS))
                return bytes * BITS_PS / rate_bps;
        return (uint64_t)MIN((unsigned __int128)bytes * BITS_PS / rate_bps,
                             (unsigned __int128)(UINT64_MAX / 4));
}

uint64_t sim_link_send(struct sim_link *l, uint64_t now_ps, uint32_t bytes)
{
        l->end_ps = MAX(l->end_ps, now_ps) + (l->rate_bps > 0 ? rates_time_ps(bytes, l->rate_bps) : 0);
        return l->end_ps;
}

bool sim_port_accept(struct sim_port *p, uint64_t arrival_ps, uint32_t bytes, uint64_t *ret_leaves_ps)
{
        uint64_t after_ps = arrival_ps;

        if (p->rate_bps > 0) {
                after_ps = MAX(p->end_ps, arrival_ps) + rates_time_ps(bytes, p->rate_bps);
                if (after_ps - arrival_ps > rates_time_ps(p->buffer_bytes, p->rate_bps)) {
                        p->dropped++;
                        return false;
                }
                p->end_ps = after_ps;
                p->longest_ps = MAX(p->longest_ps, after_ps - arrival_ps);
        }
        p->carried++;
        *ret_leaves_ps = after_ps;
        return true;
}

uint64_t sim_port_most_bytes(const struct sim_port *p)
{
        return (uint64_t)((unsigned __int128)p->longest_ps * p->rate_bps / BITS_PS);
}

void sim_bucket_init(struct sim_bucket *b, uint64_t rate_bps, uint64_t burst_bytes, uint32_t overhead_bytes,
                     bool debt)
{
        *b = (struct sim_bucket){
                .rate_bps = rate_bps,
                .burst_ps = rate_bps > 0 ? rates_time_ps(burst_bytes + overhead_bytes, rate_bps) : 0,
                .overhead_bytes = overhead_bytes,
                .debt = debt,
        };
}

uint64_t sim_bucket_next_ps(const struct sim_bucket *b, uint32_t bytes)
{
        uint64_t cost_ps;

        if (b->rate_bps == 0)
                return 0;
        cost_ps = b->debt ? 0 : rates_time_ps(bytes + b->overhead_bytes, b->rate_bps);
        if (cost_ps > b->burst_ps)
                return NEVER_NS;
        return b->full_ps + cost_ps > b->burst_ps ? b->full_ps + cost_ps - b->burst_ps : 0;
}

void sim_bucket_charge(struct sim_bucket *b, uint64_t now_ps, uint32_t bytes)
{
        if (b->rate_bps > 0)
                b->full_ps = MAX(b->full_ps, now_ps) + rates_time_ps(bytes + b->overhead_bytes, b->rate_bps);
}
