/* Asks the kernel to pace a stream. Qdiscs decide whether it does (tc-fq(8), tc-etf(8)). */
#include "kernel_pacing.h"

#include <errno.h>
#include <linux/net_tstamp.h>
#include <string.h>
#include <sys/socket.h>

#include "drops.h"
#include "base/log.h"
#include "base/util.h"

/* Ethernet and IPv4 headers, which fq counts. */
#define FRAME_BEYOND_UDP_BYTES 42u
/* fq drops what a flow has beyond 100 packets (tc-fq(8), flow_limit): the socket's buffer, which the kernel
 * doubles, holds fewer. The kernel counts its own structures, some 700 bytes for each. */
#define PACED_PACKETS 32u
#define PACED_OVERHEAD_BYTES 512u
#define PACED_MOST_BYTES (64u << 10)
/* A thread that is on time hands packets over so long before they leave. */
#define LEAD_NS (2 * NS_PER_MS)
#define GROUP_NS NS_PER_MS
#define GROUP_MAX 64u

static void warn(const char *option, const struct device_drops *d, const char *wanted, const char *effect)
{
        log_warning("--pacing %s: %s has the qdisc %s, which does not pace: %s; use %s there", option,
                    d->device[0] ? d->device : "the device", d->qdisc_known ? d->qdisc : "(unknown)", effect,
                    wanted);
}

static int set_rate(struct endpoint *e, uint32_t frame_bytes, struct spacing *spacing,
                    const struct device_drops *d)
{
        uint64_t bytes_per_s =
                (uint64_t)((double)frame_bytes * 1e9 * (double)spacing->per / (double)spacing->ns);

        if (setsockopt(e->fd, SOL_SOCKET, SO_MAX_PACING_RATE, &bytes_per_s, sizeof bytes_per_s) < 0)
                return log_error_errno(-errno, "--pacing kernel: %m"), 1;
        if (!d->qdisc_known || strcmp(d->qdisc, "fq") != 0)
                warn("kernel", d, "fq", "packets leave at full speed");
        spacing_init(spacing, 0, 1, 0, GROUP_MAX);
        return 0;
}

static int set_times(struct endpoint *e, struct send_threads *t, const struct device_drops *d)
{
        /* fq keeps the monotonic clock, etf the one of its device, which is TAI. */
        struct sock_txtime txtime = {.clockid = d->has_etf ? CLOCK_TAI : CLOCK_MONOTONIC};

        if (setsockopt(e->fd, SOL_SOCKET, SO_TXTIME, &txtime, sizeof txtime) < 0)
                return log_error_errno(-errno, "--pacing txtime: %m"), 1;
        if (!d->has_etf && (!d->qdisc_known || strcmp(d->qdisc, "fq") != 0))
                warn("txtime", d, "fq or etf", "packets leave in groups, up to 2 ms early");
        t->exact = false;
        t->lead_ns = LEAD_NS;
        t->leave_clock = txtime.clockid;
        spacing_init(&t->spacing, t->spacing.ns, t->spacing.per, GROUP_NS, GROUP_MAX);
        return 0;
}

int kernel_pacing_set(enum stream_pacing pacing, struct endpoint *e, const struct stream_offer *o,
                      struct send_threads *t)
{
        uint32_t packet_bytes = o->rule.payload_bytes + packet_header_bytes(o->rule.format);
        int buffer_bytes = (int)MIN(PACED_PACKETS * (packet_bytes + PACED_OVERHEAD_BYTES), PACED_MOST_BYTES);
        struct device_drops d;

        if (t->spacing.ns == 0) {
                log_error("--pacing %s: there is no rate; use --rate or --spacing",
                          pacing == STREAM_PACING_KERNEL ? "kernel" : "txtime");
                return 2;
        }
        (void)setsockopt(e->fd, SOL_SOCKET, SO_SNDBUF, &buffer_bytes, sizeof buffer_bytes);
        drops_read(&d, &e->local);
        return pacing == STREAM_PACING_KERNEL
                       ? set_rate(e, packet_bytes + FRAME_BEYOND_UDP_BYTES, &t->spacing, &d)
                       : set_times(e, t, &d);
}
