/* Estimates the latency of fragments, derives the times of retries from it, limits the bytes that are
 * requested again, and limits and spaces the bytes that are on their way. sfi_pull.c consults this file
 * before each request; sfi_chunks.c provides the samples. */
#include "sfi_flow.h"

#include <errno.h>
/* The interval before the first sample, and the margin that is added to the estimate. */
#define RETRY_FIRST_NS (100 * NS_PER_MS)
#define RETRY_MARGIN_NS (10 * NS_PER_MS)
/* Weights of the smoothed latency and deviation: lower than in RFC 6298, as samples come by the thousand. */
#define SRTT_SHIFT 6
#define BACKOFF_MAX 64u
#define BACKOFF_HOLD_NS NS_PER_S
/* Upper limit of the pause between retries if their number is unbounded. */
#define PAUSE_LONGEST_NS (500 * NS_PER_MS)
/* The last retry is delayed only if there are at least this many retries: with fewer, too many events would
 * need it. */
#define LATE_RETRY_LEAST 4u
#define BUDGET_LEAST_BYTES 65536u
/* The budget if no bound is known, and the minimum that the retry of a range takes from it. */
#define BUDGET_BYTES (64u << 20)
#define ANSWER_LEAST_BYTES 1024u
/* A retry continues once this share of the budget is available. */
#define CONTINUE_SHARE 4u

/* The limit if nothing else bounds it. */
#define LIMIT_MOST_BYTES (UINT64_C(64) << 20)
/* A request to one ROS covers an eighth of the limit, so that several ROSs have something to send, but at
 * least BATCH_FRAMES frames and at most a super-packet. Each request wakes a ROS. So requests are larger at a
 * port of unknown buffer, where the delay determines the limit. At a known port, small requests spread the
 * load more evenly. */
#define BATCH_SHARE 8u
#define BATCH_FRAMES 2u
#define BATCH_MOST_BYTES 65536u
#define BATCH_MOST_UNKNOWN_BYTES 262144u
/* Queueing delay that is tolerated while the buffer is unknown. It covers the wake-up of a process, and the
 * batch that a busy process handles first. */
#define DELAY_TARGET_NS NS_PER_MS
#define BASE_WINDOW_NS (10 * NS_PER_S)
/* Losses decrease a limit derived from a known buffer to no less than this share of it. */
#define KNOWN_SHARE 4u
/* A new fragment is expected to have at most the smoothed size plus this many deviations. */
#define SIZE_DEVIATIONS 2u
#define SIZE_SHIFT 4
/* Minimum limit at an unknown port. If losses have another cause, a lower limit would stop the flow: lost
 * bytes count as in flight, and nothing overtakes them. */
#define LOSSY_LEAST_BYTES 32768u
/* Time from a credit to its Assign; size of an Assign until it is known how many of them share a frame;
 * weight of a message in the mean. */
#define ASSIGNS_NS (4 * NS_PER_MS)
#define ASSIGN_FIRST_BYTES 256u
#define ASSIGN_WEIGHT 16u
#define HOLD_FIRST_NS NS_PER_S
#define HOLD_LONGEST_NS (64 * NS_PER_S)

void sfi_retry_init(struct sfi_retry *r, const struct sfi_config *config)
{
        *r = (struct sfi_retry){.config = config, .backoff = 1};
}

/* If the number of retries is bounded, all of them fit into the event's time. */
static uint64_t longest_ns(const struct sfi_retry *r)
{
        uint32_t max = r->config->retries_max;

        return r->config->timeout_ns / (max == UINT32_MAX ? 8 : max + UINT64_C(1));
}

uint64_t sfi_retry_interval_ns(const struct sfi_retry *r)
{
        uint64_t after = r->config->retry_after_ns;

        if (after > 0)
                return after;
        if (r->config->reliable)
                return longest_ns(r);
        after = r->srtt_ns == 0 ? RETRY_FIRST_NS
                                : r->backoff * (r->srtt_ns + 4 * r->rttvar_ns + RETRY_MARGIN_NS);
        return MIN(after, longest_ns(r));
}

uint64_t sfi_retry_hurried_ns(const struct sfi_retry *r, uint64_t margin_ns)
{
        uint64_t after = r->backoff * (r->srtt_ns + 4 * r->rttvar_ns) + margin_ns;

        if (r->config->retry_after_ns > 0 || r->config->reliable || r->srtt_ns == 0)
                return sfi_retry_interval_ns(r);
        return MIN(after, sfi_retry_interval_ns(r));
}

/* Each pause is twice as long as the previous one, and all retries happen before the event expires. Losses
 * often come in bursts that last longer than the first retries. So if the number of retries is bounded, the
 * last retry waits until half of the remaining time has passed. */
uint64_t sfi_retry_next_ns(const struct sfi_retry *r, uint64_t now_ns, uint32_t rounds, uint64_t expire_ns)
{
        uint32_t max = r->config->retries_max;

        if (rounds >= max)
                return NEVER_NS;
        uint64_t after = MAX(sfi_retry_interval_ns(r), UINT64_C(1));
        uint64_t pause = MIN(after << MIN(rounds, 16u), longest_ns(r));

        if (max == UINT32_MAX)
                pause = MIN(pause, MAX(after, PAUSE_LONGEST_NS));
        else if (max >= LATE_RETRY_LEAST && rounds + 2 == max && now_ns < expire_ns)
                pause = MAX(pause, (expire_ns - now_ns) / 2);
        return now_ns + pause;
}

void sfi_retry_sample(struct sfi_retry *r, uint64_t latency_ns)
{
        if (r->srtt_ns == 0) {
                r->srtt_ns = latency_ns + 1;
                r->rttvar_ns = latency_ns / 2;
                return;
        }
        uint64_t apart = latency_ns > r->srtt_ns ? latency_ns - r->srtt_ns : r->srtt_ns - latency_ns;

        r->rttvar_ns += (uint64_t)((int64_t)(apart - r->rttvar_ns) >> SRTT_SHIFT);
        r->srtt_ns += (uint64_t)((int64_t)(latency_ns - r->srtt_ns) >> SRTT_SHIFT);
}

void sfi_retry_record_spurious(struct sfi_retry *r, uint64_t now_ns)
{
        if (now_ns - r->backoff_ns < sfi_retry_interval_ns(r))
                return;
        r->backoff = MIN(2 * r->backoff, BACKOFF_MAX);
        r->backoff_ns = now_ns;
}

/* The budget of retries: repeated data must fit into the receive buffer, or it is lost again. Received data
 * has left the buffer, and lost data no longer counts after about one retry interval, so the budget also
 * limits the rate. */
static uint64_t full_budget_bytes(const struct sfi_retry *r)
{
        return r->config->room_bytes ?: BUDGET_BYTES;
}

static void refill_budget(struct sfi_retry *r, uint64_t now_ns)
{
        uint64_t full = full_budget_bytes(r), after = sfi_retry_interval_ns(r);
        uint64_t passed = now_ns - r->budget_ns;

        r->budget_ns = now_ns;
        if (r->budget_filled && passed < after)
                full = MIN(full, r->budget_bytes + (uint64_t)((double)full * (double)passed / (double)after));
        r->budget_bytes = full;
        r->budget_filled = true;
}

void sfi_retry_begin_round(struct sfi_retry *r, uint64_t now_ns)
{
        if (now_ns - r->backoff_ns > BACKOFF_HOLD_NS && r->backoff > 1) {
                r->backoff /= 2;
                r->backoff_ns = now_ns;
        }
        refill_budget(r, now_ns);
}

uint32_t sfi_retry_affordable(const struct sfi_retry *r, uint32_t from, uint32_t to)
{
        uint64_t bytes = MAX(r->budget_bytes, (uint64_t)BUDGET_LEAST_BYTES);

        return bytes >= to - from ? to : from + (uint32_t)(bytes - bytes % EVB_BLOCK_BYTES);
}

void sfi_retry_spend(struct sfi_retry *r, uint32_t bytes)
{
        r->budget_bytes -= MIN(r->budget_bytes, (uint64_t)MAX(bytes, ANSWER_LEAST_BYTES));
}

void sfi_retry_refund(struct sfi_retry *r, uint32_t bytes)
{
        r->budget_bytes = MIN(r->budget_bytes + bytes, full_budget_bytes(r));
}

/* Waits for a share of the budget, because each request wakes a ROS. */
bool sfi_retry_may_continue(const struct sfi_retry *r)
{
        return r->budget_bytes >= full_budget_bytes(r) / CONTINUE_SHARE;
}

void sfi_size_record(struct sfi_size *z, uint32_t bytes)
{
        int64_t apart = (int64_t)bytes * 16 - z->mean_16, beyond;

        if (!z->is_known) {
                *z = (struct sfi_size){.mean_16 = bytes * 16, .is_known = true};
                return;
        }
        beyond = (apart < 0 ? -apart : apart) - z->deviation_16;
        z->mean_16 = (uint32_t)(z->mean_16 + (apart >> SIZE_SHIFT));
        z->deviation_16 = (uint32_t)(z->deviation_16 + (beyond >> SIZE_SHIFT));
}

/* The first request is cautious: one frame. */
uint32_t sfi_size_expected(const struct sfi_size *z, const struct sfi_config *c)
{
        uint64_t bytes = (z->mean_16 + UINT64_C(1) * SIZE_DEVIATIONS * z->deviation_16 + 15) / 16;

        if (!z->is_known)
                return sfi_frame_payload_bytes(c);
        return (uint32_t)ALIGN_UP(MIN(MAX(bytes, UINT64_C(1)), (uint64_t)EVB_FRAGMENT_MAX_BYTES),
                                  (uint64_t)EVB_BLOCK_BYTES);
}

static uint64_t frame_bytes(const struct sfi_config *c)
{
        return (uint64_t)sfi_frame_payload_bytes(c) + sfi_frame_overhead_bytes(c);
}

uint64_t sfi_in_flight_max_bytes(const struct sfi_config *c)
{
        uint64_t margin = MAX(c->port_bytes / 16, 2 * frame_bytes(c)), most = LIMIT_MOST_BYTES;

        if (c->port_bytes > 0)
                most = c->port_bytes > margin ? c->port_bytes - margin : 0;
        if (c->room_bytes > 0)
                most = MIN(most, c->room_bytes);
        return MAX(most, frame_bytes(c)); /* at least one frame must be sent */
}

void sfi_limit_init(struct sfi_limit *l, const struct sfi_config *c)
{
        uint64_t most = sfi_in_flight_max_bytes(c), least = c->n_ros * frame_bytes(c);

        /* Within a known buffer, the SFI's own requests lose nothing. */
        if (c->port_bytes > 0)
                least = MAX(least, most / KNOWN_SHARE);
        least = MIN(least, most);

        *l = (struct sfi_limit){
                .config = c,
                .bytes = c->port_bytes > 0 ? most : least,
                .least_bytes = least,
                .step_bytes = c->n_ros * frame_bytes(c),
                .most_bytes = most,
                .slow_start = c->port_bytes == 0,
                .round_latency_ns = NEVER_NS,
                .base_ns = NEVER_NS,
                .window_base_ns = NEVER_NS,
                .hold_ns = HOLD_FIRST_NS,
                .is_idle = true,
        };
}

static uint64_t lossy_least_bytes(const struct sfi_limit *l)
{
        return l->config->port_bytes > 0 ? 0 : LOSSY_LEAST_BYTES;
}

/* After a loss, the limit stays a quarter below the value at which packets were lost. Doubling overshoots
 * this value by less than a factor of 2, and three such reductions more than halve it. So after at most three
 * more losses, the limit causes no losses. */
static void set_limit(struct sfi_limit *l, uint64_t now_ns, uint64_t bytes)
{
        uint64_t most = l->most_bytes;

        if (now_ns < l->lossy_until_ns)
                most = MIN(most, MAX(l->lossy_bytes / 4 * 3, lossy_least_bytes(l)));
        l->bytes = MAX(MIN(bytes, most), l->least_bytes);
}

/* How much the delay of the fastest answer exceeds the target; 0: it does not, or the delay is not known. */
static uint64_t surplus_ns(const struct sfi_limit *l)
{
        uint64_t base_ns = MIN(l->base_ns, l->window_base_ns);

        if (l->config->port_bytes > 0 || l->round_latency_ns == NEVER_NS ||
            l->round_latency_ns < base_ns + DELAY_TARGET_NS)
                return 0;
        return l->round_latency_ns - base_ns - DELAY_TARGET_NS;
}

static void end_round(struct sfi_limit *l, uint64_t now_ns)
{
        uint64_t surplus = surplus_ns(l);

        if (surplus > 0) {
                l->slow_start = false;
                set_limit(l, now_ns,
                          l->bytes - (uint64_t)((double)l->bytes / 2 * (double)surplus /
                                                (double)l->round_latency_ns));
        } else if (l->was_reached)
                set_limit(l, now_ns, l->slow_start ? 2 * l->bytes : l->bytes + l->step_bytes);
        l->round_bytes = 0;
        l->round_latency_ns = NEVER_NS;
        l->was_reached = false;
}

void sfi_limit_record_bytes(struct sfi_limit *l, uint64_t now_ns, uint64_t bytes)
{
        l->round_bytes += bytes;
        l->recover_bytes -= MIN(l->recover_bytes, bytes);
        if (l->round_bytes >= l->bytes)
                end_round(l, now_ns);
}

void sfi_limit_record_latency(struct sfi_limit *l, uint64_t now_ns, uint64_t latency_ns)
{
        if (now_ns >= l->window_end_ns) {
                l->base_ns = l->window_base_ns;
                l->window_base_ns = NEVER_NS;
                l->window_end_ns = now_ns + BASE_WINDOW_NS;
        }
        l->window_base_ns = MIN(l->window_base_ns, latency_ns);
        l->round_latency_ns = MIN(l->round_latency_ns, latency_ns);
}

bool sfi_limit_record_loss(struct sfi_limit *l, uint64_t now_ns, uint64_t in_flight_bytes)
{
        bool again = l->lossy_bytes > 0 && now_ns - l->decreased_ns < 4 * l->hold_ns;

        if (l->recover_bytes > 0)
                return false;
        l->recover_bytes = in_flight_bytes;
        l->hold_ns = again ? MIN(2 * l->hold_ns, HOLD_LONGEST_NS) : HOLD_FIRST_NS;
        l->lossy_bytes = l->bytes;
        l->lossy_until_ns = now_ns + l->hold_ns;
        l->decreased_ns = now_ns;
        l->slow_start = false;
        set_limit(l, now_ns, l->bytes / 2);
        l->bytes = MAX(l->bytes, MIN(lossy_least_bytes(l), l->lossy_bytes));
        return true;
}

uint64_t sfi_limit_batch_bytes(const struct sfi_limit *l)
{
        uint64_t bytes = MAX(l->bytes / BATCH_SHARE, BATCH_FRAMES * frame_bytes(l->config));
        uint64_t most = l->config->port_bytes > 0 ? BATCH_MOST_BYTES : BATCH_MOST_UNKNOWN_BYTES;

        return MIN(MIN(bytes, MAX(most, frame_bytes(l->config))), l->bytes);
}

uint32_t sfi_limit_payload_bytes(const struct sfi_limit *l, uint64_t wire_bytes)
{
        uint64_t whole = frame_bytes(l->config), last = wire_bytes % whole;
        uint64_t bytes = wire_bytes / whole * sfi_frame_payload_bytes(l->config);

        bytes += last - MIN(last, (uint64_t)sfi_frame_overhead_bytes(l->config));
        return (uint32_t)MIN(bytes, (uint64_t)EVB_FRAGMENT_MAX_BYTES) / EVB_BLOCK_BYTES * EVB_BLOCK_BYTES;
}

/* The time that the port needs for these bytes, and the remaining fraction of a nanosecond, multiplied by the
 * rate. */
static uint64_t port_time_ns(const struct sfi_limit *l, uint64_t bytes, uint64_t *fraction)
{
        unsigned __int128 t = (unsigned __int128)bytes * 8 * NS_PER_S + *fraction;

        if (likely(t <= UINT64_MAX)) { /* avoids a 128-bit division */
                *fraction = (uint64_t)t % l->config->port_rate_bps;
                return (uint64_t)t / l->config->port_rate_bps;
        }
        *fraction = (uint64_t)(t % l->config->port_rate_bps);
        return (uint64_t)(t / l->config->port_rate_bps);
}

/* A batch may be sent at once, to one ROS or to several. */
uint64_t sfi_limit_ready_ns(const struct sfi_limit *l)
{
        uint64_t ignored = 0, batch_ns;

        if (l->config->port_rate_bps == 0)
                return 0;
        batch_ns = port_time_ns(l, sfi_limit_batch_bytes(l), &ignored);
        return l->next_ns > batch_ns ? l->next_ns - batch_ns : 0;
}

/* The sum of all pauses is exact: neither rounding nor a late turn of the loop loses time. The limit bounds
 * how much a late loop may send at once to catch up. */
void sfi_limit_spend(struct sfi_limit *l, uint64_t now_ns, uint64_t bytes)
{
        uint64_t ignored = 0, longest_ns;

        if (l->config->port_rate_bps == 0)
                return;
        longest_ns = l->is_idle ? 0 : port_time_ns(l, l->bytes, &ignored);
        if (l->next_ns + longest_ns < now_ns) {
                l->next_ns = now_ns - longest_ns;
                l->fraction = 0;
        }
        l->is_idle = false;
        l->next_ns += port_time_ns(l, bytes, &l->fraction);
}

void sfi_limit_refund(struct sfi_limit *l, uint64_t bytes)
{
        uint64_t fraction = 0, ns;

        if (l->config->port_rate_bps == 0)
                return;
        ns = port_time_ns(l, bytes, &fraction);
        if (l->fraction < fraction) {
                l->fraction += l->config->port_rate_bps;
                ns++;
        }
        l->fraction -= fraction;
        l->next_ns -= MIN(ns, l->next_ns);
}

void sfi_limit_rest(struct sfi_limit *l)
{
        l->is_idle = true;
}

void sfi_limit_record_assign(struct sfi_limit *l, size_t n, size_t message_bytes)
{
        uint64_t bytes;

        if (n == 0)
                return;
        bytes = (message_bytes + l->config->trailer_bytes + l->config->frame_overhead_bytes) * 16 / n;
        if (l->assign_16_bytes == 0)
                l->assign_16_bytes = bytes;
        else
                l->assign_16_bytes += bytes / ASSIGN_WEIGHT - l->assign_16_bytes / ASSIGN_WEIGHT;
}

static uint64_t assign_bytes(const struct sfi_limit *l)
{
        return l->assign_16_bytes > 0 ? DIV_ROUND_UP(l->assign_16_bytes, 16) : ASSIGN_FIRST_BYTES;
}

/* Bytes of the Assigns for as many events as the port carries in ASSIGNS_NS. */
static uint64_t assigns_share_bytes(const struct sfi_limit *l, uint64_t mean_event_bytes)
{
        uint64_t each = assign_bytes(l), needed = l->bytes / 8;

        if (l->config->credits > 0)
                return 0;
        if (l->config->port_rate_bps > 0 && mean_event_bytes > 0)
                needed = l->config->port_rate_bps / 8 / (NS_PER_S / ASSIGNS_NS) * each /
                         (mean_event_bytes + each);
        return MIN(MAX(needed, each), l->bytes / 2);
}

uint64_t sfi_limit_assigns_bytes(const struct sfi_limit *l, uint64_t mean_event_bytes, uint64_t free_credits)
{
        return MAX(free_credits * assign_bytes(l), assigns_share_bytes(l, mean_event_bytes));
}

uint64_t sfi_limit_credits(const struct sfi_limit *l, uint64_t mean_event_bytes, uint64_t in_flight_bytes)
{
        uint64_t room = l->bytes - MIN(in_flight_bytes, l->bytes);

        room = MIN(MAX(room, assigns_share_bytes(l, mean_event_bytes)), l->bytes / 2);
        return MAX(room / assign_bytes(l), UINT64_C(1));
}

int sfi_ports_init(struct sfi_ports *p, const struct sfi_config *config)
{
        p->budgets = calloc(config->n_ros, sizeof *p->budgets);
        if (!p->budgets)
                return -ENOMEM;
        for (uint32_t i = 0; i < config->n_ros; i++)
                budget_init(&p->budgets[i], config->control.request_bps, config->control.header_bytes);
        return 0;
}

void sfi_ports_fini(struct sfi_ports *p)
{
        free(p->budgets);
}

void sfi_ports_charge(struct sfi_ports *p, const struct sfi_config *config, uint64_t now_ns, uint16_t ros,
                      size_t bytes)
{
        for (uint32_t i = 0; i < config->n_ros; i++) {
                if (ros != MESSAGE_TO_ALL && ros != i)
                        continue;
                budget_charge(&p->budgets[i], now_ns, bytes);
                p->free_ns = MAX(p->free_ns, budget_next_ns(&p->budgets[i]));
        }
}
