/* Prepares a receiver: opens its output and its socket, and sets up its threads for an offer. To resume a
 * copy, compares the digests of its packets with those of the sender. */
#include <errno.h>
#include <netinet/udp.h>
#include <poll.h>
#include <string.h>
#include <time.h>

#include "base/log.h"
#include "base/util.h"
#include "receive_threads.h"

/* Maximum number of segments in a super-packet (UDP_MAX_SEGMENTS of linux/udp.h). */
#define SEGMENTS_MAX 128u
/* Requests to compare that are not answered yet, so that a long path does not slow them down. */
#define REQUESTS_MAX 8u
/* A packet with so many zeros in sequence may have been lost in part. */
#define ZEROS 16u
/* A frame that must wait for the next one looks for it this often; before the stream, at most for a
 * second. */
#define NEXT_WAIT_MS 20
#define NEXT_LOOKS 50u

static int open_endpoint(const struct stream_receive_config *c, const struct net_address *local,
                         const struct net_address *group, struct endpoint **ret)
{
        const struct udp_config udp = {
                .local = *local,
                .group = group,
                .receive_buffer_bytes = c->common.socket_buffer_bytes,
                .timestamps = true,
        };

        return endpoint_new_udp(ret, &udp);
}

/* The endpoint of a group never joins packets. */
static bool is_grouped(const struct stream_receive_config *c)
{
        return c->without_control && net_address_is_multicast(&c->at);
}

static void set_joining(const struct endpoint *e, int on)
{
        (void)setsockopt(e->fd, IPPROTO_UDP, UDP_GRO, &on, sizeof on);
}

static int open_socket(const struct stream_receive_config *c, struct endpoint **ret)
{
        struct net_address any = {.v6 = {.sin6_family = c->at.any.sa_family}, .size_bytes = c->at.size_bytes};
        char text[NET_ADDRESS_TEXT_MAX];
        /* A receiver that dials accepts packets at any port. */
        int r = is_grouped(c) ? open_endpoint(c, c->device.size_bytes > 0 ? &c->device : &any, &c->at, ret)
                              : open_endpoint(c, c->dials ? &any : &c->at, NULL, ret);

        if (r < 0)
                return log_error_errno(r, "%s: cannot open the UDP port: %m%s",
                                       net_address_format(&c->at, text),
                                       r == -EACCES ? "; ports below 1024 need CAP_NET_BIND_SERVICE" : "");
        if ((*ret)->granted_receive_bytes < c->common.socket_buffer_bytes)
                log_warning("the kernel grants %llu bytes of receive buffer instead of %llu; raise "
                            "net.core.rmem_max or grant CAP_NET_ADMIN",
                            (unsigned long long)(*ret)->granted_receive_bytes,
                            (unsigned long long)c->common.socket_buffer_bytes);
        /* Without control, the packets before the stream are examined one by one. */
        if (c->without_control)
                set_joining(*ret, false);
        return 0;
}

int receive_setup_open(const struct stream_receive_config *c, struct receive_threads *t, uint64_t *ret_copy)
{
        char text[ERROR_TEXT_MAX];
        struct error e = {};
        int r;

        if ((c->scan_s > 0 ? sink_open_scans(&t->sink, c->output, c->overwrite, &e)
                           : sink_open(&t->sink, c->output, c->overwrite || c->resumes, &e)) < 0 ||
            (c->resumes && sink_resume(t->sink, ret_copy, &e) < 0) ||
            (c->direct && sink_set_direct(t->sink, &e) < 0)) {
                log_error("%s", error_format(&e, text));
                return 2;
        }
        if (c->repair_ns > 0 && !sink_can_repair(t->sink)) {
                log_error("--repair needs a file as output");
                return 2;
        }
        r = open_socket(c, &t->endpoint);
        if (r < 0)
                return r == -EACCES ? 77 : 1;
        r = faults_new(&t->faults, &c->faults);
        return r < 0 ? (log_error_errno(r, "cannot start: %m"), 1) : 0;
}

/* Multicast needs a separate socket, and TCP another port. */
static int open_raw(const struct stream_receive_config *c, const struct stream_offer *o,
                    const struct net_address *local, struct receive_threads *t, uint16_t *ret_port)
{
        int r = 0;

        t->raw.rule = &o->raw;
        t->raw.packets_per_s = c->packets_per_s;
        t->raw.watches = c->watches_wire;
        if (o->raw.grouped) {
                t->endpoint = endpoint_free(t->endpoint);
                r = open_endpoint(c, local, &o->raw.group, &t->endpoint);
        }
        return r < 0 ? r : raw_receive_open(t, local, ret_port);
}

bool receive_threads_begins_file(struct receive_threads *t, uint64_t sequence, int64_t *ret_s)
{
        const uint64_t next = sequence + packet_parts(&t->rule);

        return t->scan.each_s > 0 && sequence % packet_parts(&t->rule) == 0 &&
               vdif_scan_is_due(&t->scan, t->plan, slot_ring_at(&t->ring, sequence),
                                next < slot_ring_filled(&t->ring) ? slot_ring_at(&t->ring, next) : NULL,
                                ret_s);
}

uint64_t receive_threads_ready(struct receive_threads *t, uint64_t done, uint64_t filled, uint64_t most)
{
        const uint64_t parts = packet_parts(&t->rule),
                       n = MIN(MIN(filled - done, slot_ring_straight(&t->ring, done)), most);

        /* A ring of one frame has no room for the next one. */
        if (t->scan.each_s == 0 || n < parts || done + n < filled || 2 * parts > t->ring.slots ||
            slot_ring_is_closed(&t->ring) || atomic_load_explicit(&t->decided, memory_order_acquire) ||
            !vdif_scan_needs_next(&t->scan, t->plan, slot_ring_at(&t->ring, filled - parts)))
                return n;
        if (n == parts)
                (void)slot_ring_wait_filled(&t->ring, filled + parts, NEXT_WAIT_MS * NS_PER_MS);
        return n - parts;
}

int receive_threads_begin_file(struct receive_threads *t, int64_t now_s)
{
        int r = sink_next(t->sink, now_s, &t->output_error);

        vdif_scan_begin(&t->scan, now_s);
        return r;
}

/* Reads the time of the frame after the packet of the offer, which stays the first one in the socket. */
static bool read_next_time(const struct stream_offer *o, const struct receive_threads *t, int64_t *ret_s)
{
        const int fd = t->endpoint->fd, none = -1;
        bool found = false;
        int at = 0;

        for (unsigned i = 0; i < 2 * PACKET_PARTS_MAX && !found; i++) {
                uint8_t bytes[SETUP_PACKET_BYTES] = {};
                struct net_address from = {.size_bytes = sizeof from.v6};
                struct vdif_header h;
                uint64_t sequence;
                ssize_t n = setsockopt(fd, SOL_SOCKET, SO_PEEK_OFF, &at, sizeof at);

                if (n == 0)
                        n = recvfrom(fd, bytes, sizeof bytes, MSG_PEEK | MSG_TRUNC | MSG_DONTWAIT, &from.any,
                                     &from.size_bytes);
                if (n < 0)
                        break;
                found = i > 0 && net_address_equal(&from, &t->from) &&
                        packet_read(&o->rule, bytes, (size_t)n, &sequence) == PACKET_OURS &&
                        sequence % packet_parts(&o->rule) == 0 &&
                        vdif_plan_read(&o->plan, bytes + packet_header_bytes(&o->rule), o->plan.frame_bytes,
                                       &h) &&
                        !h.invalid;
                if (found)
                        *ret_s = vdif_unix_s(&h);
                at += (int)n;
        }
        (void)setsockopt(fd, SOL_SOCKET, SO_PEEK_OFF, &none, sizeof none);
        return found;
}

/* Returns the time of the next frame if it is before that of the first one, which then has a wrong header;
 * else the time of the first one. */
static int64_t confirm_time(const struct stream_offer *o, const struct receive_threads *t, int64_t first_s)
{
        int64_t next_s;

        for (unsigned i = 0; i < NEXT_LOOKS; i++) {
                if (read_next_time(o, t, &next_s))
                        return next_s < first_s - 1 ? next_s : first_s;
                (void)poll(NULL, 0, NEXT_WAIT_MS);
        }
        return first_s;
}

bool receive_setup_is_early(const struct stream_receive_config *c, const struct stream_offer *o,
                            const struct receive_threads *t, int64_t *seen_s)
{
        const int64_t before_s = *seen_s;
        int64_t confirmed_s;
        struct vdif_header h;

        if (c->begin_s == 0 || c->format == STREAM_PLAIN)
                return time(NULL) < c->begin_s;
        if (vdif_read(&h, o->plan.threads[0].header, VDIF_HEADER_BYTES) < 0 || h.invalid)
                return true;
        *seen_s = vdif_unix_s(&h);
        if (c->begin_s == STREAM_NEXT_SECOND ? before_s == 0 || *seen_s <= before_s || h.frame > 0
                                             : *seen_s < c->begin_s)
                return true;
        if (before_s > 0 && *seen_s - before_s <= 1)
                return false;
        confirmed_s = confirm_time(o, t, *seen_s);
        return c->begin_s == STREAM_NEXT_SECOND ? confirmed_s < *seen_s : confirmed_s < c->begin_s;
}

/* The first frame gives the first file its name. */
static int begin_scans(const struct stream_receive_config *c, const struct stream_offer *o,
                       struct receive_threads *t)
{
        struct vdif_header h;

        t->scan.each_s = c->scan_s;
        return vdif_read(&h, o->plan.threads[0].header, VDIF_HEADER_BYTES) < 0
                       ? -EBADMSG
                       : receive_threads_begin_file(t, confirm_time(o, t, vdif_unix_s(&h)));
}

int receive_setup_threads(const struct stream_receive_config *c, const struct stream_offer *o,
                          const struct net_address *local, struct receive_threads *t, uint16_t *ret_port)
{
        int r = c->scan_s > 0 ? begin_scans(c, o, t) : 0;

        if (r < 0)
                return r;
        /* Packets joined by GRO share one arrival time. */
        if (o->spaced)
                set_joining(t->endpoint, false);
        else if (c->without_control && !is_grouped(c))
                set_joining(t->endpoint, true);
        t->options = &c->common;
        t->rule = o->rule;
        t->plan = o->rule.format == STREAM_VDIF ? &o->plan : NULL;
        t->window_packets = c->window_packets;
        t->drop_packets = o->spaced ? 1 : SEGMENTS_MAX;
        t->reports = o->follows;
        t->repairs = o->repairs && c->repair_ns > 0;
        t->without_control = c->without_control;
        /* Plain packets have any size. */
        if (t->plan)
                t->limit_packets =
                        DIV_ROUND_UP(c->bytes, (uint64_t)t->plan->frame_bytes) * packet_parts(&t->rule);
        else if (t->without_control)
                t->limit_bytes = c->bytes;
        if (c->repair_ns > 0 && !o->repairs)
                log_warning("--repair: the sender cannot send packets again: its input is a pipe, or its "
                            "version is older; lost packets stay missing");
        sink_set_key(t->sink, o->key);
        *ret_port = net_address_port(&t->endpoint->local);
        return o->rule.format == STREAM_RAW ? open_raw(c, o, local, t, ret_port) : 0;
}

bool resume_begin(struct resume *u, const struct stream_offer *o, uint64_t bytes)
{
        const uint64_t packets = bytes / o->rule.payload_bytes;

        *u = (struct resume){.packets = packets - packets % packet_parts(&o->rule)};
        return u->packets > 0;
}

json_t *resume_request(struct resume *u, const struct stream_offer *o)
{
        const uint64_t most = MIN((uint64_t)SETUP_COMPARED_PACKETS_MAX,
                                  MAX(SETUP_COMPARED_BYTES_MAX / o->rule.payload_bytes, 1u)),
                       first = u->requested, n = MIN(most, u->packets - first);

        if (n == 0 || first - u->compared >= REQUESTS_MAX * most)
                return NULL;
        u->requested += n;
        return json_pack("{s:s, s:I, s:I}", "type", "compare", "first", (json_int_t)first, "packets",
                         (json_int_t)n);
}

/* Whether a packet that differs from the sender's was lost, at least in part: it has zeros, or is the
 * beginning of a frame that is marked invalid. */
static bool may_be_lost(const struct stream_offer *o, const uint8_t *bytes, uint64_t sequence)
{
        static const uint8_t zeros[ZEROS];
        struct vdif_header h;

        if (o->rule.format == STREAM_VDIF && sequence % packet_parts(&o->rule) == 0 &&
            vdif_read(&h, bytes, o->rule.payload_bytes) >= 0 && h.invalid)
                return true;
        return memmem(bytes, o->rule.payload_bytes, zeros, MIN(ZEROS, o->rule.payload_bytes)) != NULL;
}

/* Compares the next packet. Returns -ESTALE if it is not of the sender's file. */
static int compare_packet(struct resume *u, const struct stream_offer *o, struct receive_threads *t,
                          const json_t *theirs)
{
        const uint32_t size = o->rule.payload_bytes;
        uint8_t bytes[PACKET_MAX_BYTES];
        json_t *own;
        bool same;
        int r = sink_read(t->sink, u->compared * size, bytes, size);

        if (r < 0)
                return r;
        own = setup_digest(o, bytes, size);
        same = json_equal(own, theirs);
        json_decref(own);
        if (!same && !may_be_lost(o, bytes, u->compared))
                return -ESTALE;
        if (!same) {
                t->holes++;
                gaps_add(&t->gaps, u->compared);
        }
        u->compared++;
        return 0;
}

int resume_compare(struct resume *u, const struct stream_offer *o, struct receive_threads *t,
                   const json_t *digests)
{
        const size_t n = json_array_size(digests);
        int r = t->gaps.list ? 0 : gaps_init(&t->gaps, packet_parts(&o->rule));

        if (r >= 0 && (n == 0 || n > u->requested - u->compared))
                r = -EBADMSG;
        for (size_t i = 0; r >= 0 && i < n; i++)
                r = compare_packet(u, o, t, json_array_get(digests, i));
        if (r < 0 || u->compared < u->packets)
                return r;
        t->first = t->gaps.first = u->packets;
        if (o->rule.format == STREAM_VDIF)
                t->invalid_frames = t->gaps.n;
        r = sink_keep(t->sink, u->packets * o->rule.payload_bytes);
        return r < 0 ? r : 1;
}
