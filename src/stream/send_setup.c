/* Chooses the size of packets by the path, and their spacing by rate, time or recording. The kernel spaces
 * packets if a qdisc supports it (tc-fq(8), tc-etf(8)). */
#include "send_threads.h"

#include <errno.h>
#include <linux/net_tstamp.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>

#include "base/log.h"
#include "base/util.h"
#include "stream/end_figures.h"
#include "rules/setup.h"

/* Ethernet, IPv4 and UDP headers, which fq counts. */
#define FRAME_BEYOND_UDP_BYTES 42u
/* fq drops packets of a flow if more than 100 are queued (tc-fq(8), flow_limit). The socket's buffer, which
 * the kernel doubles, holds fewer packets than that. The kernel also counts its own structures, about 700
 * bytes per packet. */
#define PACED_PACKETS 32u
#define PACED_OVERHEAD_BYTES 512u
#define PACED_MOST_BYTES (64u << 10)
/* A thread that is on time passes packets to the kernel this long before they must leave. */
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
        /* fq uses the monotonic clock. etf uses the clock of its device, which runs on TAI. */
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

/* Changes the socket and the spacing in `t`, which must be set. Warns if the device has no qdisc that applies
 * the spacing. Logs errors, and returns the exit status. */
static int kernel_pacing_set(enum stream_pacing pacing, struct endpoint *e, const struct stream_offer *o,
                             struct send_threads *t)
{
        uint32_t packet_bytes = o->rule.payload_bytes + packet_header_bytes(&o->rule);
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

#define IPV4_HEADERS_BYTES 28u /* size of the IP and UDP headers */
#define IPV6_HEADERS_BYTES 48u
/* By default a packet is not larger than a jumbo frame, so that a super-packet holds several on any path. */
#define DEFAULT_MAX_BYTES 8972u
#define LEAST_DATA_BYTES 1u
#define TCP_DEFAULT_BYTES 65536u
#define TCP_MAX_BYTES (4u << 20)
/* Maximum duration of a group of packets that leave together at a given rate. */
#define BURST_NS (100 * NS_PER_US)
#define BURST_MAX 64u
#define RECORDED_MAX_BPS UINT64_C(10000000000000)

static int fail(const struct error *e)
{
        char text[ERROR_TEXT_MAX];

        log_error("%s", error_format(e, text));
        return e->code == -ENOMEM ? 1 : 2;
}

static int set_int(int fd, int level, int name, int value)
{
        return setsockopt(fd, level, name, &value, sizeof value) < 0 ? -errno : 0;
}

/* Returns the UDP payload that the path carries without fragmentation. */
static uint32_t path_bytes(const struct endpoint *e)
{
        bool v6 = e->local.any.sa_family == AF_INET6;
        uint32_t headers = v6 ? IPV6_HEADERS_BYTES : IPV4_HEADERS_BYTES;
        socklen_t size = sizeof(int);
        int mtu = 0;

        if (getsockopt(e->fd, v6 ? IPPROTO_IPV6 : IPPROTO_IP, v6 ? IPV6_MTU : IP_MTU, &mtu, &size) < 0 ||
            mtu <= (int)headers)
                return DEFAULT_MAX_BYTES;
        return MIN((uint32_t)mtu - headers, PACKET_MAX_BYTES);
}

static int open_socket(const struct stream_send_config *c, const struct net_address *local,
                       const struct net_address *to, bool single, struct endpoint **ret)
{
        bool v6 = to->any.sa_family == AF_INET6;
        struct udp_config config = {
                .local = {.v6 = {.sin6_family = to->any.sa_family}, .size_bytes = to->size_bytes},
                .connect = to,
                .send_buffer_bytes = c->common.socket_buffer_bytes,
                .segmentation = single ? SEGMENTATION_OFF : SEGMENTATION_AUTO,
        };
        char text[NET_ADDRESS_TEXT_MAX];
        int r;

        if (local) {
                config.local = *local;
                net_address_set_port(&config.local, 0);
        }
        r = endpoint_new_udp(ret, &config);
        if (r < 0)
                return log_error_errno(r, "%s: cannot open a socket to it: %m", net_address_format(to, text));
        /* A packet that IP fragments is lost with any of its fragments. */
        (void)set_int((*ret)->fd, v6 ? IPPROTO_IPV6 : IPPROTO_IP, v6 ? IPV6_MTU_DISCOVER : IP_MTU_DISCOVER,
                      IP_PMTUDISC_DO);
        return 0;
}

int send_setup_aim(struct endpoint *e, const struct net_address *to, uint16_t port)
{
        struct net_address at = *to;

        net_address_set_port(&at, port);
        return connect(e->fd, &at.any, at.size_bytes) < 0 ? -errno : 0;
}

static int choose_size(const struct stream_send_config *c, const struct net_address *at,
                       const struct endpoint *e, struct stream_offer *o)
{
        uint32_t path = path_bytes(e), header = packet_header_bytes(&o->rule),
                 bytes = c->packet_bytes
                                 ?: c->raw.tcp ? TCP_DEFAULT_BYTES
                                               : MIN(path, DEFAULT_MAX_BYTES);
        char to[NET_ADDRESS_TEXT_MAX];

        if (c->raw.tcp)
                path = TCP_MAX_BYTES;
        net_address_format(at, to);
        if (bytes <= path && o->rule.format == STREAM_VDIF) {
                bytes = c->packet_bytes ?: path;
                o->rule.parts = packet_cut(o->plan.frame_bytes, bytes - MIN(header, bytes));
                if (o->rule.parts == 0) {
                        log_error("%s: VDIF frames of %u bytes cannot be cut into at most %u equal parts "
                                  "that fit packets of %u bytes to %s; raise the MTU of the path, or use "
                                  "--format plain",
                                  c->input, o->plan.frame_bytes, PACKET_PARTS_MAX, bytes, to);
                        return 2;
                }
                bytes = o->plan.frame_bytes / o->rule.parts + header;
        } else if (bytes > path || bytes < header + LEAST_DATA_BYTES) {
                log_error("--packet-size %u: expected %u to %u, which is what the path to %s carries", bytes,
                          header + LEAST_DATA_BYTES, path, to);
                return 2;
        }
        o->rule.payload_bytes = bytes - header;
        return 0;
}

/* 0: unknown. A source without frames is counted in packets. */
static uint64_t recorded_bps(const struct stream_send_config *c, const struct stream_offer *o)
{
        const uint64_t rate = c->frames_per_second ?: o->plan.frames_per_second,
                       frame_bytes = o->plan.frame_bytes ?: o->rule.payload_bytes;

        return MIN(rate * vdif_plan_frames_at_a_time(&o->plan) * frame_bytes * 8, RECORDED_MAX_BPS);
}

static int choose_spacing(const struct stream_send_config *c, struct endpoint *e,
                          const struct stream_offer *o, struct send_threads *t)
{
        const uint64_t bits = (uint64_t)o->rule.payload_bytes * 8;
        const bool recorded = c->recorded || (o->rule.format == STREAM_VDIF && !c->full_speed);
        uint64_t rate_bps = c->rate_bps;

        t->exact = false;
        t->lead_ns = 0;
        if (c->spacing_ns > 0) {
                t->exact = c->pacing == STREAM_PACING_THREAD;
                spacing_init(&t->spacing, c->spacing_ns, 1, 0, 1);
                return c->pacing == STREAM_PACING_THREAD ? 0 : kernel_pacing_set(c->pacing, e, o, t);
        }
        if (rate_bps == 0 && recorded) {
                rate_bps = recorded_bps(c, o);
                if (rate_bps == 0) {
                        log_error("%s: the recording does not show how many frames a second has; use "
                                  "--frame-rate, --rate or --spacing",
                                  c->input);
                        return 2;
                }
        }
        if (rate_bps > 0)
                spacing_init(&t->spacing, bits * NS_PER_S, rate_bps, BURST_NS, BURST_MAX);
        else
                spacing_init(&t->spacing, 0, 1, 0, BURST_MAX * 4);
        return c->pacing == STREAM_PACING_THREAD ? 0 : kernel_pacing_set(c->pacing, e, o, t);
}

/* The rate that the frames show takes precedence. A rate set by the user is the playback rate; the receiver
 * uses the rate of the recording if it is known. */
static void check_rate(const struct stream_send_config *c, struct vdif_plan *p)
{
        char shown[64] = "";

        if (p->frames_per_second > 0)
                snprintf(shown, sizeof shown, ": they show %u", p->frames_per_second);
        if (p->header_frames_per_second > 0 && p->header_frames_per_second != p->frames_per_second)
                log_warning("%s: its first header states %u frames per second of a thread, which the numbers "
                            "of its frames contradict%s; the header is ignored",
                            c->input, p->header_frames_per_second, shown);
        p->frames_per_second = p->frames_per_second ?: c->frames_per_second;
}

int send_setup_source(const struct stream_send_config *c, struct stream_source **ret,
                      struct stream_offer *offer, struct send_threads *threads)
{
        struct error e = {};

        if (getrandom(&offer->rule.cookie, sizeof offer->rule.cookie, 0) < 0 ||
            getrandom(&offer->key, sizeof offer->key, 0) < 0)
                return log_error_errno(errno, "cannot draw a random number: %m"), 1;
        offer->rule.format = c->format;
        threads->options = &c->common;
        if (c->format == STREAM_RAW) {
                offer->raw = c->raw;
                threads->raw.rule = &offer->raw;
                threads->raw.packets_max = c->packets_max;
                threads->raw.batch = c->batch;
                return 0;
        }
        if (stream_source_open(ret, c->input, offer->key, &e) < 0 ||
            (c->direct && stream_source_set_direct(*ret, &e) < 0))
                return fail(&e);
        if (c->format == STREAM_VDIF && stream_source_plan(*ret, &offer->plan, &e) < 0)
                return fail(&e);
        if (c->recorded && stream_source_rate(*ret, &offer->plan, c->frames_per_second > 0, &e) < 0)
                return fail(&e);
        check_rate(c, &offer->plan);
        if (c->recorded && offer->plan.frame_bytes > 0 && offer->plan.frames_per_second > 0)
                log_info("%s: %s frames of %u bytes, %u per second of a thread", c->input,
                         stream_source_name(*ret), offer->plan.frame_bytes, offer->plan.frames_per_second);
        offer->pattern = stream_source_is_pattern(*ret);
        offer->repairs = stream_source_is_repeatable(*ret);
        /* Each stream has its own pattern. */
        offer->resumes = offer->repairs && !offer->pattern;
        threads->source = *ret;
        threads->plan = c->format == STREAM_VDIF ? &offer->plan : NULL;
        return 0;
}

int send_setup_path(const struct stream_send_config *c, const struct net_address *local,
                    const struct net_address *to, struct endpoint **ret, struct stream_offer *offer,
                    struct send_threads *threads)
{
        /* Each packet has its own departure time. */
        bool single = c->pacing == STREAM_PACING_TXTIME ||
                      (c->spacing_ns > 0 && c->pacing == STREAM_PACING_THREAD) ||
                      (c->format == STREAM_RAW && c->batch == 1);
        struct net_address from;
        int status;

        if (open_socket(c, local, to, single, ret) < 0)
                return 1;
        if (c->raw.grouped) {
                /* Uses the device of the path to the first receiver. */
                from = (*ret)->local;
                *ret = endpoint_free(*ret);
                if (open_socket(c, &from, &c->raw.group, single, ret) < 0)
                        return 1;
        }
        status = choose_size(c, to, *ret, offer);
        if (status == 0)
                status = choose_spacing(c, *ret, offer, threads);
        offer->spaced = single;
        offer->follows = c->rate_bps == 0 && c->spacing_ns == 0 && !c->full_speed && !c->recorded &&
                         c->format == STREAM_PLAIN;
        offer->udp_port = net_address_port(&(*ret)->local);
        threads->endpoint = *ret;
        threads->rule = offer->rule;
        return status;
}
