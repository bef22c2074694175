/* Computes a plan from the properties of the link and the requested settings. The comment of each function
 * explains the rule that it applies; the rules are based on measurements. */
#include "shape/model/plan.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/quantity.h"
#include "base/strbuf.h"
#include "base/util.h"
#include "shape/model/kind.h"

#define ETHERNET_HEADER_BYTES 14u
/* IPv4 and TCP with timestamps: the largest headers of a typical segment. */
#define SEGMENT_HEADERS_BYTES 52u
/* The kernel's usual gso_max_size. A UDP super-packet has up to 128 segments (UDP_MAX_SEGMENTS); the segments
 * of TCP are rarely smaller. */
#define SUPER_PACKET_USUAL_BYTES 65536u
#define SEGMENT_SMALL_BYTES 512u
/* Share of a port's rate that automatic rates assign to data, in units of 1/10000. The clocks of two Ethernet
 * ports may differ by 200 ppm (IEEE 802.3). */
#define DATA_SHARE 9995u
#define CONTROL_PERMILLE 5u
#define CONTROL_LEAST_BPS UINT64_C(1000000)
/* Packets to a destination that are not data. */
#define APART_PERMILLE 50u
#define APART_LEAST_BPS UINT64_C(1000000)
#define APART_LIMIT_LEAST_BYTES (128u << 10)
/* Automatic bursts, which leave a quarter of a port's buffer, pass check_burst() with this part added. */
#define APART_BURST_PART 8
/* Shares of a slower link would be too small to be valid rates. */
#define LINK_LEAST_BPS UINT64_C(8000)
#define QUANTUM_MAX_BYTES 60000u
/* The limit of a queue that must not drop. */
#define CONTROL_LIMIT_BYTES (16u << 20)
/* Limits of the queue of other traffic. */
#define OTHER_LIMIT_LEAST_BYTES (256u << 10)
#define OTHER_LIMIT_MOST_BYTES (16u << 20)
/* If bursts are shorter than this, late timers reduce the rate. */
#define SHORTEST_BURST_NS (100 * NS_PER_US)
/* Maximum number of rates above the link rate for which there is a separate warning. */
#define CAPS_NAMED 8

bool tc_address_parse(struct tc_address *ret, const char *text)
{
        static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};
        struct tc_address a = {};

        if (inet_pton(AF_INET, text, a.bytes) == 1)
                a.n_bytes = 4;
        else if (inet_pton(AF_INET6, text, a.bytes) == 1)
                a.n_bytes = 16;
        else
                return false;
        /* Packets to an IPv4-mapped address are IPv4. */
        if (a.n_bytes == 16 && memcmp(a.bytes, mapped, sizeof mapped) == 0) {
                a.n_bytes = 4;
                memmove(a.bytes, a.bytes + sizeof mapped, 4);
                memset(a.bytes + 4, 0, sizeof mapped);
        }
        *ret = a;
        return true;
}

char *tc_address_format(const struct tc_address *a, char text[static TC_ADDRESS_TEXT_MAX])
{
        inet_ntop(a->n_bytes == 4 ? AF_INET : AF_INET6, a->bytes, text, TC_ADDRESS_TEXT_MAX);
        return text;
}

bool tc_address_equal(const struct tc_address *a, const struct tc_address *b)
{
        return a->n_bytes == b->n_bytes && memcmp(a->bytes, b->bytes, a->n_bytes) == 0;
}

static void warn(struct tc_plan *p, const char *format, ...) __attribute__((format(printf, 2, 3)));

static void warn(struct tc_plan *p, const char *format, ...)
{
        va_list args;

        if (p->n_warnings == TC_WARNINGS_MAX)
                return;
        va_start(args, format);
        vsnprintf(p->warnings[p->n_warnings++], TC_REASON_MAX, format, args);
        va_end(args);
}

static uint64_t bytes_in(uint64_t rate_bps, uint64_t ns)
{
        return (uint64_t)((unsigned __int128)rate_bps * ns / NS_PER_S / 8);
}

static void plan_control(struct tc_plan *p, const struct tc_request *q)
{
        char link[QUANTITY_TEXT_MAX];

        p->control_port = q->control_port;
        p->other.guaranteed_bps = MAX(p->link_rate_bps / 1000 * CONTROL_PERMILLE,
                                      MIN(CONTROL_LEAST_BPS, p->link_rate_bps / 10));
        p->other.rate_bps = p->link_rate_bps;
        p->other.burst_bytes = p->link_burst_bytes;
        p->other.quantum_bytes = p->frame_bytes;
        if (q->control_port == 0)
                return;
        p->control = p->other;
        p->control.limit_bytes = CONTROL_LIMIT_BYTES;
        if (q->control_rate_bps > 0) {
                p->control.guaranteed_bps = q->control_rate_bps;
                snprintf(p->reason_control, sizeof p->reason_control, "%s",
                         q->control_reason[0] ? q->control_reason : "as configured");
        } else
                snprintf(p->reason_control, sizeof p->reason_control,
                         "%u.%u %% of the link's %s, ahead of all data", CONTROL_PERMILLE / 10,
                         CONTROL_PERMILLE % 10, quantity_format_rate(p->link_rate_bps, link));
        if (p->is_offloaded)
                snprintf(p->reason_control, sizeof p->reason_control,
                         "only messages to the destinations; a guaranteed rate, but not ahead of data");
        if (p->backend == TC_BACKEND_EDT)
                snprintf(p->reason_control, sizeof p->reason_control,
                         "no departure time, so they do not wait behind data");
}

/* Other traffic may lose packets, so its queue is short, and an interactive session does not wait behind a
 * copy. With a queue of 10 ms at the link's rate, TCP still uses the whole link. */
static void plan_other_queue(struct tc_plan *p, const struct tc_request *q, struct strbuf *reason)
{
        uint64_t least = MAX(OTHER_LIMIT_LEAST_BYTES, 4 * (uint64_t)q->super_packet_bytes);

        if (p->backend == TC_BACKEND_EDT) {
                strbuf_add(reason, "fq, a queue for each flow, without a rate");
                return;
        }
        p->is_fair = q->fair != TC_FAIR_NO;
        p->other.limit_bytes =
                MIN(MAX(bytes_in(p->link_rate_bps, 10 * NS_PER_MS), least), (uint64_t)OTHER_LIMIT_MOST_BYTES);
        if (p->is_fair)
                strbuf_add(reason, "fq_codel, a short queue for each flow%s",
                           q->fair == TC_FAIR_UNKNOWN ? ", if the kernel supports it; otherwise " : "");
        if (q->fair != TC_FAIR_YES)
                strbuf_add(reason, "a queue of %llu bytes, about 10 ms of the link",
                           (unsigned long long)p->other.limit_bytes);
        if (p->is_fair)
                p->other.limit_bytes = OTHER_LIMIT_MOST_BYTES;
}

/* Known traffic to unknown destinations uses a part of the link, but no part of a destination's port. */
static void plan_other(struct tc_plan *p, const struct tc_request *q)
{
        struct strbuf reason = strbuf_init(p->reason_other, sizeof p->reason_other);
        char each[QUANTITY_TEXT_MAX], known[QUANTITY_TEXT_MAX];

        if (q->other_rate_bps > 0)
                strbuf_add(&reason, "%s, and %s for %s; ",
                           quantity_format_rate(p->other.guaranteed_bps, each),
                           quantity_format_rate(q->other_rate_bps, known), q->other_what);
        p->other.guaranteed_bps += q->other_rate_bps;
        plan_other_queue(p, q, &reason);
}

static int check_control(const struct tc_plan *p, struct error *e)
{
        char control[QUANTITY_TEXT_MAX], most[QUANTITY_TEXT_MAX];

        if (p->link_rate_bps < LINK_LEAST_BPS)
                return error_set(e, -EINVAL, "a link rate of %s is too low; expected at least 8 kbit/s",
                                 quantity_format_rate(p->link_rate_bps, control));
        if (p->control.guaranteed_bps + p->other.guaranteed_bps < p->link_rate_bps)
                return 0;
        return error_set(e, -EINVAL, "a control rate of %s leaves no rate for data; expected less than %s",
                         quantity_format_rate(p->control.guaranteed_bps, control),
                         quantity_format_rate(p->link_rate_bps - p->other.guaranteed_bps, most));
}

static int plan_rate(struct tc_plan *p, const struct tc_request *q, uint64_t *ret_bps, struct error *e)
{
        char port[QUANTITY_TEXT_MAX], control[QUANTITY_TEXT_MAX];
        uint32_t sources = MAX(q->sources, 1u);

        if (q->rate_bps > 0) {
                snprintf(p->reason_rate, sizeof p->reason_rate, "as configured");
                *ret_bps = q->rate_bps;
                return 0;
        }
        snprintf(p->reason_rate, sizeof p->reason_rate, "as configured for each destination");
        *ret_bps = 0;
        for (size_t i = 0; i < q->n_destinations; i++) {
                if (q->destinations[i].rate_bps == 0 && q->link_rate_bps == 0)
                        return error_set(e, -EINVAL,
                                         "an automatic rate needs the link rate, which the device does not "
                                         "report; set the rate or the link rate");
                if (q->destinations[i].rate_bps > 0)
                        continue;
                *ret_bps = (q->link_rate_bps - MIN(p->control.guaranteed_bps, q->link_rate_bps / 2)) / 10000 *
                           DATA_SHARE / sources;
                snprintf(p->reason_rate, sizeof p->reason_rate,
                         "auto: %u.%02u %% of (port rate %s - control %s) / %u sources", DATA_SHARE / 100,
                         DATA_SHARE % 100, quantity_format_rate(q->link_rate_bps, port),
                         quantity_format_rate(p->control.guaranteed_bps, control), sources);
                break;
        }
        return 0;
}

/* Payload of a full frame. */
static uint32_t segment_bytes(const struct tc_plan *p)
{
        uint32_t headers_bytes = ETHERNET_HEADER_BYTES + SEGMENT_HEADERS_BYTES;

        return MAX(p->frame_bytes, 2 * headers_bytes) - headers_bytes;
}

/* Returns the size of a super-packet as the kernel counts it, with headers for each of its segments
 * (qdisc_pkt_len_init()). */
static uint64_t whole_super_packet(const struct tc_plan *p, uint32_t bytes)
{
        return (uint64_t)DIV_ROUND_UP(bytes, segment_bytes(p)) * p->frame_bytes;
}

/* Returns the number of bursts that may meet in a port's buffer. All sources may send a burst at once: an
 * arrival curve of rate and burst needs a buffer of the size of the burst (network calculus, Le Boudec and
 * Thiran, 1.4). In the queue of a source's link, a burst to one destination delays packets to another by
 * burst / link rate, so that these packets arrive as a larger burst (6.4). Because N sources share a port's
 * rate, all of them together add one burst for each other destination, and one for known traffic to unknown
 * destinations. */
static uint32_t bursts_that_meet(const struct tc_request *q)
{
        return MAX(q->sources, 1u) + (uint32_t)q->n_destinations - 1 + (q->other_rate_bps > 0);
}

/* A quarter of the buffer remains for control messages and for the delays that the source's link adds. */
static uint64_t tolerated_burst(const struct tc_request *q)
{
        if (q->switch_buffer_bytes == 0)
                return UINT64_MAX;
        return q->switch_buffer_bytes / 4 * 3 / bursts_that_meet(q);
}

static void explain_tolerated(struct tc_plan *p, const struct tc_request *q)
{
        unsigned long long buffer_bytes = q->switch_buffer_bytes;
        uint32_t sources = MAX(q->sources, 1u);

        if (bursts_that_meet(q) == sources)
                snprintf(p->reason_burst, sizeof p->reason_burst,
                         "auto: 3/4 of the switch buffer of %llu bytes / %u sources", buffer_bytes, sources);
        else
                snprintf(p->reason_burst, sizeof p->reason_burst,
                         "auto: 3/4 of the switch buffer of %llu bytes / (%u sources + %zu destinations - 1)",
                         buffer_bytes, sources, q->n_destinations + (q->other_rate_bps > 0));
}

/* The burst is at least two frames, which sustains the rate even if a timer is late. TBF segments a
 * super-packet that is larger than the burst. If the size of the port's buffer is unknown, the burst is
 * short. A reduced rate does not reduce the burst, because the queue may hold super-packets of that size. */
static uint32_t burst_ms(const struct tc_request *q)
{
        return q->switch_buffer_bytes > 0 ? 2 : 1;
}

/* A super-packet of small segments, with the headers of each. Without segmentation offload, the queue may
 * still hold packets from before it was disabled. */
static uint32_t packet_most(const struct tc_request *q)
{
        uint32_t bytes = MAX(q->super_packet_bytes, SUPER_PACKET_USUAL_BYTES);

        return bytes +
               DIV_ROUND_UP(bytes, SEGMENT_SMALL_BYTES) * (ETHERNET_HEADER_BYTES + SEGMENT_HEADERS_BYTES);
}

static void plan_burst(struct tc_plan *p, const struct tc_request *q, struct tc_share *s, bool explain)
{
        uint64_t wanted = bytes_in(s->planned_bps, burst_ms(q) * NS_PER_MS), tolerated = tolerated_burst(q);
        uint64_t least =
                MAX((p->backend == TC_BACKEND_EDT ? 1 : 2) * (uint64_t)p->frame_bytes, q->burst_least_bytes);

        if (p->backend == TC_BACKEND_SOCKET) {
                s->burst_bytes = MAX(whole_super_packet(p, q->super_packet_bytes ?: SUPER_PACKET_USUAL_BYTES),
                                     2 * (uint64_t)p->frame_bytes);
                snprintf(p->reason_burst, sizeof p->reason_burst,
                         "the largest super-packet, which the kernel sends whole");
                return;
        }
        s->burst_bytes = q->burst_bytes;
        if (s->burst_bytes == 0)
                s->burst_bytes = MIN(MAX(MIN(wanted, tolerated), least), UINT64_C(1) << 30);
        if (!explain)
                return;
        if (p->is_offloaded)
                snprintf(p->reason_burst, sizeof p->reason_burst, "none: the device spaces the packets");
        else if (p->backend == TC_BACKEND_EDT)
                snprintf(p->reason_burst, sizeof p->reason_burst,
                         "none: each packet leaves at its time; a ROS sends super-packets of less than %llu "
                         "bytes",
                         (unsigned long long)s->burst_bytes);
        else if (q->burst_bytes > 0)
                snprintf(p->reason_burst, sizeof p->reason_burst, "as configured");
        else if (s->burst_bytes == tolerated)
                explain_tolerated(p, q);
        else if (least == q->burst_least_bytes && s->burst_bytes == least)
                snprintf(p->reason_burst, sizeof p->reason_burst, "auto: the super-packets in the queue");
        else if (s->burst_bytes == least)
                snprintf(p->reason_burst, sizeof p->reason_burst, "auto: two frames of %u bytes",
                         p->frame_bytes);
        else
                snprintf(p->reason_burst, sizeof p->reason_burst, "auto: %u ms of the rate", burst_ms(q));
}

/* Returns the number of bytes that senders can queue. A socket stops when its packets use all memory of its
 * buffer. The queue counts other bytes than the socket does: it counts the headers of each segment instead of
 * the kernel's structures, which is up to an eighth more. Also, if any byte of the buffer is free, a whole
 * super-packet still enters the queue. */
static uint64_t queue_of_senders(const struct tc_plan *p, const struct tc_request *q)
{
        return q->send_buffer_bytes + q->send_buffer_bytes / 8 + whole_super_packet(p, q->super_packet_bytes);
}

static bool has_bursts(const struct tc_plan *p)
{
        return p->backend != TC_BACKEND_EDT && !p->is_offloaded;
}

static void plan_limit(struct tc_plan *p, const struct tc_request *q, struct tc_share *s, bool explain)
{
        if (p->backend == TC_BACKEND_SOCKET) {
                s->limit_bytes = MAX(q->send_buffer_bytes, (uint64_t)p->frame_bytes);
                snprintf(p->reason_limit, sizeof p->reason_limit,
                         "none: data wait in the buffers of the sockets");
                return;
        }
        s->limit_bytes = q->limit_bytes ?: MIN(queue_of_senders(p, q) + s->burst_bytes, (uint64_t)UINT32_MAX);
        if (explain && q->limit_bytes > 0)
                snprintf(p->reason_limit, sizeof p->reason_limit, "as configured");
        else if (explain) {
                char burst[32] = "burst";

                if (!has_bursts(p))
                        snprintf(burst, sizeof burst, "%llu bytes", (unsigned long long)s->burst_bytes);
                snprintf(p->reason_limit, sizeof p->reason_limit,
                         "auto: %s + %llu bytes, what %llu bytes of send buffers may become; a full queue "
                         "makes senders wait instead of dropping packets",
                         burst, (unsigned long long)queue_of_senders(p, q),
                         (unsigned long long)q->send_buffer_bytes);
        }
}

/* A warning names only the first destination that breaks a rule. */
enum { RULE_BUFFER = 1, RULE_SHORT = 2, RULE_LIMIT = 4, RULE_PORT = 8 };

static bool is_first(unsigned *warned, unsigned rule)
{
        bool first = !(*warned & rule);

        *warned |= rule;
        return first;
}

static void check_burst(struct tc_plan *p, const struct tc_request *q, const struct tc_share *s,
                        unsigned *warned, const char *address)
{
        uint64_t all = s->burst_bytes * bursts_that_meet(q);

        if (p->is_offloaded)
                return;
        if (q->switch_buffer_bytes > 0 && all > q->switch_buffer_bytes / 8 * 7)
                p->may_overrun = true;
        if (p->may_overrun && is_first(warned, RULE_BUFFER))
                warn(p,
                     "%s: %u %s of %llu bytes may meet in a switch port's buffer of %llu bytes; the switch "
                     "may drop packets",
                     address, bursts_that_meet(q), p->backend == TC_BACKEND_EDT ? "packets" : "bursts",
                     (unsigned long long)s->burst_bytes, (unsigned long long)q->switch_buffer_bytes);
        if (p->backend != TC_BACKEND_EDT && s->burst_bytes < bytes_in(s->rate_bps, SHORTEST_BURST_NS) &&
            is_first(warned, RULE_SHORT))
                warn(p, "%s: a burst of %llu bytes is shorter than 100 us; the rate may not be reached",
                     address, (unsigned long long)s->burst_bytes);
}

/* Fails if the share cannot work at all; warns if the share breaks a rule. */
static int check_share(struct tc_plan *p, const struct tc_request *q, size_t i, unsigned *warned,
                       struct error *e)
{
        const struct tc_share *s = &p->shares[i];
        char address[TC_ADDRESS_TEXT_MAX], rate[QUANTITY_TEXT_MAX], port[QUANTITY_TEXT_MAX];

        tc_address_format(&p->addresses[i], address);
        if (s->burst_bytes < p->frame_bytes || s->limit_bytes < p->frame_bytes)
                return error_set(e, -EINVAL,
                                 "%s: burst %llu, limit %llu: the queue would drop every packet; expected at "
                                 "least a frame, %u bytes",
                                 address, (unsigned long long)s->burst_bytes,
                                 (unsigned long long)s->limit_bytes, p->frame_bytes);
        if (s->rate_bps < 64 || s->rate_bps > TC_LINK_RATE_MAX_BPS || s->burst_bytes > UINT32_MAX ||
            s->limit_bytes > UINT32_MAX)
                return error_set(e, -EINVAL,
                                 "%s: value out of range; expected a rate from 64 bit/s to 400 Gbit/s, burst "
                                 "and limit below 4 GiB",
                                 address);
        if ((p->backend == TC_BACKEND_CBQ_TBF || p->backend == TC_BACKEND_SOCKET) &&
            s->rate_bps / 8 > UINT32_MAX)
                return error_set(
                        e, -EINVAL,
                        "%s: %s counts rates in 32 bits; expected up to 34 Gbit/s, or the backend htb+tbf",
                        address, p->backend == TC_BACKEND_CBQ_TBF ? "CBQ" : "a socket");
        if (tc_ticks_of_bytes(s->burst_bytes, tc_rate_bytes(s->rate_bps)) == UINT32_MAX)
                return error_set(
                        e, -EINVAL,
                        "%s: a burst of %llu bytes lasts longer at this rate than the kernel can count; "
                        "expected up to %llu bytes",
                        address, (unsigned long long)s->burst_bytes,
                        (unsigned long long)tc_bytes_of_ticks(UINT32_MAX - 1, tc_rate_bytes(s->rate_bps)));
        check_burst(p, q, s, warned, address);
        if (s->limit_bytes < q->send_buffer_bytes && is_first(warned, RULE_LIMIT))
                warn(p,
                     "%s: a limit of %llu bytes is below the %llu bytes of send buffers; the source may drop "
                     "packets",
                     address, (unsigned long long)s->limit_bytes, (unsigned long long)q->send_buffer_bytes);
        if (q->link_rate_bps > 0 && !q->link_is_virtual && s->planned_bps <= q->link_rate_bps &&
            s->rate_bps * MAX(q->sources, 1u) > q->link_rate_bps && is_first(warned, RULE_PORT))
                warn(p, "%s: %u sources of %s exceed the port rate of %s", address, MAX(q->sources, 1u),
                     quantity_format_rate(s->rate_bps, rate), quantity_format_rate(q->link_rate_bps, port));
        return 0;
}

/* A queue of 10 ms at the destination's rate keeps TCP going, and is short enough for interactive sessions.
 * HTB does not check the class above as long as a class is within its guaranteed rate, so a burst of these
 * packets adds to a burst of data in the port's buffer. So it is short. */
struct tc_share tc_plan_apart(const struct tc_plan *p, size_t i)
{
        struct tc_share s = p->shares[i];

        s.burst_bytes =
                MIN(s.burst_bytes, MAX(s.burst_bytes / APART_BURST_PART, 2 * (uint64_t)p->frame_bytes));
        s.guaranteed_bps =
                MAX(s.guaranteed_bps / 1000 * APART_PERMILLE, MIN(APART_LEAST_BPS, s.guaranteed_bps / 4));
        s.limit_bytes = MAX(bytes_in(s.planned_bps, 10 * NS_PER_MS), (uint64_t)APART_LIMIT_LEAST_BYTES) +
                        s.burst_bytes;
        s.quantum_bytes = p->frame_bytes;
        return s;
}

static void plan_apart(struct tc_plan *p, const struct tc_request *q)
{
        if (q->data_protocol == 0 || p->is_offloaded ||
            (p->backend != TC_BACKEND_HTB && p->backend != TC_BACKEND_HTB_TBF))
                return;
        p->data_protocol = q->data_protocol;
        p->data_port = q->data_port;
        snprintf(p->reason_apart, sizeof p->reason_apart,
                 "%s to a destination: a short queue of its own%s, %u %% of the destination's rate, and what "
                 "data leave of it",
                 q->data_protocol == IPPROTO_TCP ? "all but data" : "TCP",
                 !p->is_fair || p->backend != TC_BACKEND_HTB_TBF ? ""
                 : q->fair == TC_FAIR_UNKNOWN                    ? " (fq_codel, if the kernel supports it)"
                                                                 : " (fq_codel)",
                 APART_PERMILLE / 10);
}

/* If the rates exceed the link together, each destination is guaranteed its share of the link. */
static void plan_guarantees(struct tc_plan *p)
{
        uint64_t reserved = p->control.guaranteed_bps + p->other.guaranteed_bps;
        uint64_t room = p->link_rate_bps > reserved ? p->link_rate_bps - reserved : p->link_rate_bps / 2;
        unsigned __int128 sum = 0;

        for (size_t i = 0; i < p->n; i++)
                sum += p->shares[i].rate_bps;
        for (size_t i = 0; i < p->n; i++) {
                struct tc_share *s = &p->shares[i];

                s->guaranteed_bps = sum <= room ? s->rate_bps
                                                : MAX((uint64_t)((unsigned __int128)s->rate_bps * room / sum),
                                                      UINT64_C(64));
                s->quantum_bytes = (uint32_t)MIN(MAX(s->burst_bytes, (uint64_t)p->frame_bytes),
                                                 (uint64_t)QUANTUM_MAX_BYTES);
        }
        if (!has_bursts(p))
                snprintf(p->reason_quantum, sizeof p->reason_quantum, "not used by this backend");
        else
                snprintf(p->reason_quantum, sizeof p->reason_quantum,
                         "the burst, at least a frame and at most %u bytes", QUANTUM_MAX_BYTES);
}

static int refuse_duplicates(const struct tc_plan *p, struct error *e)
{
        char text[TC_ADDRESS_TEXT_MAX];

        for (size_t i = 0; i < p->n; i++) {
                for (size_t k = 0; k < i; k++) {
                        if (!tc_address_equal(&p->addresses[i], &p->addresses[k]))
                                continue;
                        return error_set(e, -EINVAL,
                                         "duplicate destination %s; expected each destination once",
                                         tc_address_format(&p->addresses[i], text));
                }
        }
        return 0;
}

/* Warns about each rate that the link cannot reach. */
static void check_caps(struct tc_plan *p)
{
        char address[TC_ADDRESS_TEXT_MAX], rate[QUANTITY_TEXT_MAX], link[QUANTITY_TEXT_MAX];
        size_t n = 0;

        for (size_t i = 0; i < p->n; i++) {
                if (p->shares[i].planned_bps <= p->link_rate_bps || ++n > CAPS_NAMED)
                        continue;
                warn(p, "%s: the link of %s caps the rate of %s; set the link rate if the link is faster",
                     tc_address_format(&p->addresses[i], address),
                     quantity_format_rate(p->link_rate_bps, link),
                     quantity_format_rate(p->shares[i].planned_bps, rate));
        }
        if (n > CAPS_NAMED)
                warn(p, "the link caps the rates of %zu more destinations", n - CAPS_NAMED);
}

/* HTB and fq send a super-packet whole, which the port's buffer has room for if it fits into a burst with the
 * headers of its segments. */
static void check_super_packets(struct tc_plan *p, const struct tc_request *q)
{
        uint64_t burst_bytes = UINT64_MAX, fits_bytes;

        for (size_t i = 0; i < p->n; i++)
                burst_bytes = MIN(burst_bytes, p->shares[i].burst_bytes);
        fits_bytes = burst_bytes * segment_bytes(p) / p->frame_bytes;
        if (!p->is_offloaded && (p->backend == TC_BACKEND_HTB || p->backend == TC_BACKEND_EDT) &&
            q->super_packet_bytes > MAX(fits_bytes, (uint64_t)p->frame_bytes))
                warn(p,
                     "segmentation offload passes super-packets of up to %u bytes to %s, which sends them "
                     "whole; use htb+tbf, or make them smaller: ip link set DEVICE gso_max_size %llu",
                     q->super_packet_bytes, p->backend == TC_BACKEND_HTB ? "HTB" : "fq",
                     (unsigned long long)fits_bytes);
}

static void check_link(struct tc_plan *p, const struct tc_request *q)
{
        check_caps(p);
        check_super_packets(p, q);
        if (q->link_rate_bps == 0 && p->backend != TC_BACKEND_SOCKET)
                warn(p, "the link rate is unknown; control and other traffic have no guaranteed rate");
}

static int fill(struct tc_plan *p, const struct tc_request *q, struct error *e)
{
        unsigned warned = 0;
        uint64_t rate_bps;
        int r;

        p->link_burst_bytes =
                MAX(MAX(bytes_in(p->link_rate_bps, 200 * NS_PER_US), 4 * (uint64_t)p->frame_bytes),
                    (uint64_t)q->super_packet_bytes);
        plan_control(p, q);
        plan_other(p, q);
        r = check_control(p, e);
        if (r >= 0)
                r = plan_rate(p, q, &rate_bps, e);
        for (size_t i = 0; r >= 0 && i < p->n; i++) {
                struct tc_share *s = &p->shares[i];

                p->addresses[i] = q->destinations[i].address;
                s->planned_bps = q->destinations[i].rate_bps ?: rate_bps;
                s->permille = q->destinations[i].permille ?: 1000;
                s->rate_bps = (uint64_t)((unsigned __int128)s->planned_bps * s->permille / 1000);
                plan_burst(p, q, s, i == 0);
                plan_limit(p, q, s, i == 0);
                r = check_share(p, q, i, &warned, e);
        }
        if (r >= 0)
                r = refuse_duplicates(p, e);
        if (r < 0)
                return r;
        plan_guarantees(p);
        check_link(p, q);
        return 0;
}

/* If N sources send X bytes each at the port's rate and at the same time, the port forwards X bytes while N
 * times X bytes arrive, so its buffer must hold the difference. C10 of `evb lab` measures this. */
static void plan_need(struct tc_plan *p, const struct tc_request *q)
{
        if (q->sources <= 1)
                snprintf(p->reason_need, sizeof p->reason_need,
                         "no shaping needed for one source whose link is not faster than the port");
        else if (q->switch_buffer_bytes > 0)
                snprintf(p->reason_need, sizeof p->reason_need,
                         "no shaping needed if each source sends at most %llu bytes at once (switch buffer "
                         "of %llu bytes / %u sources), and all together at most 90 %% of the port",
                         (unsigned long long)(q->switch_buffer_bytes / q->sources),
                         (unsigned long long)q->switch_buffer_bytes, q->sources);
}

/* Returns the rate of the link's class. A virtual link carries as much as the processors can send, so the
 * class must not limit the requested rates, and must have room for control and other traffic. */
static uint64_t link_rate(const struct tc_request *q)
{
        uint64_t asked = 0;

        if (q->link_rate_bps == 0)
                return TC_LINK_RATE_MAX_BPS;
        if (!q->link_is_virtual)
                return q->link_rate_bps;
        for (size_t i = 0; i < q->n_destinations; i++)
                asked += q->destinations[i].rate_bps ?: q->rate_bps;
        return MIN(MAX(q->link_rate_bps, asked / 1000 * (1000 + 4 * CONTROL_PERMILLE)), TC_LINK_RATE_MAX_BPS);
}

static void explain_link(struct tc_plan *p, const struct tc_request *q)
{
        char link[QUANTITY_TEXT_MAX], reported[QUANTITY_TEXT_MAX];

        if (q->link_rate_bps > 0 && p->link_rate_bps != q->link_rate_bps)
                snprintf(p->reason_link, sizeof p->reason_link,
                         "%s, for the rates that are asked; the device is virtual, so its %s is nominal",
                         quantity_format_rate(p->link_rate_bps, link),
                         quantity_format_rate(q->link_rate_bps, reported));
}

int tc_plan_make(struct tc_plan *ret, const struct tc_request *q, struct error *e)
{
        struct tc_plan p = {
                .backend = q->backend,
                .frame_bytes = q->mtu_bytes + ETHERNET_HEADER_BYTES,
                .packet_most_bytes = packet_most(q),
                .link_rate_bps = link_rate(q),
                .is_offloaded = q->offload == TC_OFFLOAD_REQUIRED,
                /* Devices that offload HTB refuse it. */
                .overhead_bytes = q->offload == TC_OFFLOAD_REQUIRED ? 0 : q->overhead_bytes,
                .sources = MAX(q->sources, 1u),
                .n = q->n_destinations,
        };
        const unsigned most =
                p.backend == TC_BACKEND_EDT || p.is_offloaded ? TC_EDT_DESTINATIONS_MAX : TC_DESTINATIONS_MAX;
        int r;

        if (p.is_offloaded && p.backend != TC_BACKEND_HTB)
                return error_set(e, -EINVAL,
                                 "a device can offload only htb; expected qos.backend = htb or auto");
        if (p.n == 0 || p.n > most)
                return error_set(e, -EINVAL, "%zu destinations; expected 1 to %u", p.n, most);
        if (p.backend == TC_BACKEND_CBQ_TBF && q->link_rate_bps == 0)
                p.link_rate_bps = (uint64_t)UINT32_MAX * 8;
        p.addresses = calloc(p.n, sizeof *p.addresses);
        p.shares = calloc(p.n, sizeof *p.shares);
        r = p.addresses && p.shares ? fill(&p, q, e) : error_set(e, -ENOMEM, "%m");
        if (r < 0) {
                tc_plan_fini(&p);
                return r;
        }
        plan_need(&p, q);
        plan_apart(&p, q);
        explain_link(&p, q);
        *ret = p;
        return 0;
}

void tc_plan_fini(struct tc_plan *p)
{
        if (!p)
                return;
        free(p->addresses);
        free(p->shares);
        *p = (struct tc_plan){};
}
