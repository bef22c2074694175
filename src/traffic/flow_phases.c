/* Drives flows through their phases, whether they run in local namespaces (flows.c) or on standby nodes
 * (remote/coordinator_flows.c). */
#include "traffic/flow_phases.h"

#include <errno.h>
#include <string.h>
#include <time.h>

#include "base/util.h"
#include "sys/loop.h"

#define WARM_NS NS_PER_S
#define SETTLE_NS (300 * NS_PER_MS)
#define TIMEOUT_NS (8 * NS_PER_S)

void flow_sleep_ns(uint64_t ns)
{
        struct timespec t = {.tv_sec = (time_t)(ns / NS_PER_S), .tv_nsec = (long)(ns % NS_PER_S)};

        while (nanosleep(&t, &t) < 0 && errno == EINTR)
                ;
}

int flow_phases_run(const struct flow_driver *driver, void *ctx, enum flow_kind kind, double seconds)
{
        int r = driver->wait(ctx, FLOW_WAIT, clock_now_ns() + TIMEOUT_NS);

        if (r < 0)
                return r;
        /* TCP is counted once it runs at full speed; UDP from the first datagram to the last. */
        if (kind == FLOW_TCP) {
                driver->set(ctx, FLOW_WARM);
                flow_sleep_ns(WARM_NS);
        }
        driver->set(ctx, FLOW_GO);
        driver->pass(ctx, (uint64_t)(seconds * 1e9));
        driver->set(ctx, FLOW_STOP_SENDING);
        r = driver->wait(ctx, FLOW_STOP_SENDING, clock_now_ns() + TIMEOUT_NS);
        flow_sleep_ns(SETTLE_NS);
        driver->set(ctx, FLOW_END);
        return r < 0 ? r : driver->wait(ctx, FLOW_END, clock_now_ns() + TIMEOUT_NS);
}

void flow_results_init(struct flow_result *results, unsigned n, enum flow_kind kind, double seconds)
{
        memset(results, 0, n * sizeof *results);
        for (unsigned i = 0; i < n; i++) {
                histogram_init(&results[i].sender_shares);
                histogram_init(&results[i].receiver_shares);
                results[i].seconds = seconds;
                results[i].sending_seconds = seconds + (kind == FLOW_TCP ? (double)WARM_NS / 1e9 : 0);
        }
}
