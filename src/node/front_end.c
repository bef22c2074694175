/* Frames from front-end electronics into the ROS's buffer. Which event they belong to is counted by the core. */
#include "evb/node/front_end.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

#include "evb/base/log.h"
#include "evb/base/util.h"
#include "evb/net/endpoint.h"
#include "evb/net/tcp.h"

#define LENGTH_BYTES 4
#define STAGING_BYTES (256u << 10)
#define RECEIVE_BUFFER_BYTES (8u << 20)
/* A stream that found the buffer full is looked at again after this. */
#define FULL_PAUSE_NS NS_PER_MS
/* A connection that is missing for so long is logged. */
#define MISSING_NS (2 * NS_PER_S)

struct front_end {
        struct ros *core;
        uint8_t *buffer;
        struct node_stats *stats;
        struct loop *loop;
        struct loop_io io;
        bool ready;
        uint64_t again_ns;
        /* UDP */
        struct endpoint *endpoint;
        /* TCP */
        bool tcp, up;
        struct net_address local, to;
        struct tcp_backoff backoff;
        bool was_up, complained;
        uint64_t down_since_ns; /* 0: before the first turn */
        int why_down;
        struct tcp_reader reader;
        /* The frame that is coming in: to offset `at` of the buffer, or, where it is not stored, nowhere. */
        bool in_frame, stored;
        uint64_t at;
        uint32_t frame_bytes, frame_done;
};

static void is_ready(void *ctx, uint32_t events)
{
        (void)events;
        ((struct front_end *)ctx)->ready = true;
}

static uint32_t read_length(const uint8_t *bytes)
{
        uint32_t n;

        memcpy(&n, bytes, sizeof n);
        return le32toh(n);
}

static int open_udp(struct front_end *f, const char *port)
{
        struct udp_config config = {.local = f->local, .receive_buffer_bytes = RECEIVE_BUFFER_BYTES};
        uint16_t number = (uint16_t)atoi(port);
        char text[NET_ADDRESS_TEXT_MAX];
        int r;

        if (config.local.any.sa_family == AF_INET6)
                config.local.v6.sin6_port = htons(number);
        else
                config.local.v4.sin_port = htons(number);
        r = endpoint_new_udp(&f->endpoint, &config);
        if (r < 0)
                return log_error_errno(r, "cannot open UDP %s for the front-end: %m", net_address_format(&config.local, text));
        f->io = (struct loop_io){.fd = f->endpoint->fd, .events = EPOLLIN, .ready = is_ready, .ctx = f};
        return loop_add(f->loop, &f->io);
}

int front_end_new(struct front_end **ret, bool tcp, const char *at, const struct net_address *local, struct loop *loop,
                  struct ros *core, uint8_t *buffer, struct node_stats *stats)
{
        struct front_end *f = calloc(1, sizeof *f);
        int r;

        if (!f)
                return log_error_errno(ENOMEM, "front-end: %m");
        *f = (struct front_end){
                .core = core,
                .buffer = buffer,
                .stats = stats,
                .loop = loop,
                .io.fd = -1,
                .tcp = tcp,
                .local = *local,
        };
        tcp_backoff_init(&f->backoff, (uint64_t)(uintptr_t)f);
        if (!tcp)
                r = open_udp(f, at);
        else if ((r = net_address_parse_with_port(&f->to, at)) < 0)
                log_error("ros.source: \"%s\" is no ADDRESS:PORT of a front-end, allowed: a numeric IPv4 or [IPv6] address", at);
        if (r < 0) {
                front_end_free(f);
                return r;
        }
        *ret = f;
        return 0;
}

static void disconnect(struct front_end *f)
{
        if (f->io.fd >= 0) {
                loop_remove(f->loop, &f->io);
                close(f->io.fd);
        }
        f->io.fd = -1;
        f->up = f->ready = false;
        tcp_reader_fini(&f->reader);
}

struct front_end *front_end_free(struct front_end *f)
{
        if (!f)
                return NULL;
        if (f->tcp)
                disconnect(f);
        endpoint_free(f->endpoint);
        free(f);
        return NULL;
}

/* A place for the next frame; false: there is no room now. */
static bool begin_frame(struct front_end *f, uint32_t bytes)
{
        struct ros_fragment fragment = {.bytes = bytes, .form = FORM_RAW};

        enum ros_verdict verdict = ros_arrive(f->core, &fragment, &f->at);

        if (verdict == ROS_FULL)
                return false;
        f->stored = verdict == ROS_STORE;
        f->in_frame = true;
        f->frame_bytes = bytes;
        f->frame_done = 0;
        return true;
}

static void end_frame(struct front_end *f, bool stored)
{
        f->in_frame = false;
        if (stored)
                ros_landed(f->core);
        else
                ros_skip(f->core, 1);
}

static void take_datagram(struct front_end *f, const struct datagram *d)
{
        struct ros_fragment fragment = {.bytes = d->size_bytes - LENGTH_BYTES, .form = FORM_RAW};
        uint64_t at;

        if (d->size_bytes < LENGTH_BYTES || read_length(d->bytes) != d->size_bytes - LENGTH_BYTES) {
                stats_add(&f->stats->packets_malformed, 1);
                return;
        }
        if (ros_arrive(f->core, &fragment, &at) != ROS_STORE) {
                ros_skip(f->core, 1);
                return;
        }
        if (fragment.bytes > 0)
                memcpy(f->buffer + at, d->bytes + LENGTH_BYTES, fragment.bytes);
        ros_landed(f->core);
}

static void turn_udp(struct front_end *f)
{
        struct datagram d[32];
        int n;

        while ((n = endpoint_receive(f->endpoint, d, ARRAY_SIZE(d))) > 0) {
                for (int i = 0; i < n; i++)
                        take_datagram(f, &d[i]);
        }
        stats_set(&f->stats->packets_socket_dropped, endpoint_counts(f->endpoint)->dropped);
        f->ready = false;
}

static void lose(struct front_end *f, uint64_t now_ns, int why)
{
        if (f->up) {
                log_warning_errno(why, "front-end: connection lost: %m");
                f->down_since_ns = now_ns;
        }
        f->why_down = why;
        if (f->in_frame)
                end_frame(f, false);
        disconnect(f);
        f->again_ns = now_ns + tcp_backoff_next_ns(&f->backoff);
}

static void begin_connection(struct front_end *f, uint64_t now_ns)
{
        int fd = tcp_connect(&f->local, &f->to, 0);

        if (fd < 0) {
                lose(f, now_ns, fd);
                return;
        }
        f->io = (struct loop_io){.fd = fd, .events = EPOLLIN | EPOLLOUT, .ready = is_ready, .ctx = f};
        if (loop_add(f->loop, &f->io) < 0 || tcp_reader_init(&f->reader, fd, STAGING_BYTES) < 0)
                lose(f, now_ns, -ENOMEM);
        f->again_ns = NEVER_NS;
}

/* The payload of the frame that is coming in, straight into its place. 1: whole; 0: wait; negative: the stream's end. */
static int read_payload(struct front_end *f)
{
        static uint8_t waste[65536];

        while (f->frame_done < f->frame_bytes) {
                uint32_t left = f->frame_bytes - f->frame_done;
                ssize_t got = tcp_reader_read(&f->reader, f->stored ? f->buffer + f->at + f->frame_done : waste,
                                              f->stored ? left : MIN(left, (uint32_t)sizeof waste));

                if (got <= 0)
                        return (int)got;
                f->frame_done += (uint32_t)got;
        }
        end_frame(f, f->stored);
        return 1;
}

/* 1: a frame has begun; 0: wait; -EAGAIN: no room; -EPROTO: impossible length. */
static int read_start(struct front_end *f)
{
        const uint8_t *bytes;
        size_t n;

        bytes = tcp_reader_bytes(&f->reader, &n);
        if (n < LENGTH_BYTES) {
                ssize_t got = tcp_reader_fill(&f->reader);

                if (got <= 0)
                        return (int)got;
                bytes = tcp_reader_bytes(&f->reader, &n);
                if (n < LENGTH_BYTES)
                        return 0;
        }
        uint32_t length = read_length(bytes);
        if (length > EVB_FRAGMENT_MAX_BYTES)
                return -EPROTO;
        if (!begin_frame(f, length))
                return -EAGAIN;
        tcp_reader_consume(&f->reader, LENGTH_BYTES);
        return 1;
}

bool front_end_complaint(const struct front_end *f, uint64_t now_ns, char *text, size_t size_bytes)
{
        char to[NET_ADDRESS_TEXT_MAX];

        if (!f->tcp || f->up || f->down_since_ns == 0 || now_ns - f->down_since_ns < MISSING_NS)
                return false;
        snprintf(text, size_bytes, "no connection to front-end %s for %.1f s%s%s%s",
                 net_address_format(&f->to, to), (double)(now_ns - f->down_since_ns) / 1e9,
                 f->why_down ? " (" : "", f->why_down ? strerror(abs(f->why_down)) : "",
                 f->why_down ? ")" : "");
        return true;
}

/* Once for each time that the connection is missing. */
static void complain(struct front_end *f, uint64_t now_ns)
{
        char text[256];

        if (f->down_since_ns == 0)
                f->down_since_ns = now_ns;
        if (f->complained || !front_end_complaint(f, now_ns, text, sizeof text))
                return;
        f->complained = true;
        log_warning("%s", text);
}

static void note_up(struct front_end *f, uint64_t now_ns)
{
        char to[NET_ADDRESS_TEXT_MAX];

        if (f->complained)
                log_warning("connected to front-end %s after %.1f s", net_address_format(&f->to, to),
                            (double)(now_ns - f->down_since_ns) / 1e9);
        f->up = f->was_up = true;
        f->complained = false;
        tcp_backoff_reset(&f->backoff);
}

void front_end_reasons(const struct front_end *f, struct reasons *to)
{
        char address[NET_ADDRESS_TEXT_MAX];

        if (f->tcp && !f->was_up)
                reasons_add(to, "no connection to front-end %s was ever made: %s",
                            net_address_format(&f->to, address),
                            f->why_down ? strerror(abs(f->why_down)) : "no answer");
}

static void turn_tcp(struct front_end *f, uint64_t now_ns)
{
        int r = 1;

        complain(f, now_ns);
        if (f->io.fd < 0 && now_ns >= f->again_ns)
                begin_connection(f, now_ns);
        if (f->io.fd < 0 || (!f->ready && now_ns < f->again_ns))
                return;
        if (!f->up && (r = tcp_connected(f->io.fd)) == 0) {
                note_up(f, now_ns);
                r = 1;
        }
        f->again_ns = NEVER_NS;
        for (int frames = 0; r > 0 && frames < 4096; frames++)
                r = f->in_frame ? read_payload(f) : read_start(f);
        if (r == -EAGAIN) {
                /* No room: the stream waits in the kernel, and then at the front-end. */
                f->again_ns = now_ns + FULL_PAUSE_NS;
                loop_modify(f->loop, &f->io, 0);
        } else if (r < 0) {
                if (r == -EPROTO)
                        stats_add(&f->stats->packets_malformed, 1);
                lose(f, now_ns, r);
        } else
                loop_modify(f->loop, &f->io, EPOLLIN);
        f->ready = r > 0;
}

void front_end_turn(struct front_end *f, uint64_t now_ns)
{
        if (f->tcp)
                turn_tcp(f, now_ns);
        else if (f->ready)
                turn_udp(f);
}

uint64_t front_end_deadline_ns(const struct front_end *f)
{
        if (!f->tcp)
                return NEVER_NS;
        if (f->ready)
                return 0;
        return f->up || f->complained ? f->again_ns : MIN(f->again_ns, f->down_since_ns + MISSING_NS);
}
