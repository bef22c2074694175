/* Sends trigger datagrams and receives busy datagrams. frontend_run.c decides when a trigger occurs. */
#include "frontend/frontend_box.h"

#include <errno.h>
#include <string.h>
#include <sys/epoll.h>

#include "base/cursor.h"
#include "base/log.h"
#include "base/util.h"

/* The DFM sends a busy datagram every 100 ms. */
#define SILENCE_NS (300 * NS_PER_MS)
/* The type of all triggers. */
#define TRIGGER_TYPE 1
#define UNSENT_PAUSE_NS NS_PER_MS
/* If a marker is not acknowledged within this time, it was lost. */
#define ASK_AGAIN_NS NS_PER_S

static int open_out(struct frontend_box *b)
{
        const struct net_address *to = &b->config->trigger_to;
        struct udp_config config = {.connect = to, .segmentation = SEGMENTATION_OFF};
        char text[NET_ADDRESS_TEXT_MAX];
        int r;

        config.local = (struct net_address){.any.sa_family = to->any.sa_family, .size_bytes = to->size_bytes};
        r = endpoint_new_udp(&b->out, &config);
        return r < 0 ? log_error_errno(r, "cannot send triggers to %s: %m", net_address_format(to, text)) : 0;
}

static int open_in(struct frontend_box *b)
{
        struct udp_config config = {.local = b->config->busy_from};
        char text[NET_ADDRESS_TEXT_MAX];
        int r = endpoint_new_udp(&b->in, &config);

        net_address_format(&config.local, text);
        if (r == -EADDRINUSE)
                return log_error_errno(r, "cannot hear busy datagrams at %s: the port is in use", text);
        if (r < 0)
                return log_error_errno(r, "cannot hear busy datagrams at %s: %m", text);
        b->io = (struct loop_io){
                .fd = b->in->fd, .events = EPOLLIN, .ready = loop_set_flag, .ctx = &b->ready};
        return loop_add(b->loop, &b->io);
}

int frontend_box_init(struct frontend_box *b, const struct frontend_config *config, struct loop *loop)
{
        int r = 0;

        *b = (struct frontend_box){.config = config,
                                   .loop = loop,
                                   .start = config->first,
                                   .asked_ns = NEVER_NS,
                                   .busy_since_ns = NEVER_NS};
        if (config->has_trigger_to)
                r = open_out(b);
        if (r >= 0 && config->has_busy_from)
                r = open_in(b);
        return r;
}

void frontend_box_fini(struct frontend_box *b)
{
        if (b->in)
                loop_remove(b->loop, &b->io);
        b->out = endpoint_free(b->out);
        b->in = endpoint_free(b->in);
}

bool frontend_box_has_room(const struct frontend_box *b)
{
        return b->n < FRONTEND_ENTRIES_MAX;
}

void frontend_box_trigger(struct frontend_box *b, uint64_t serial, uint64_t utc_ns)
{
        uint32_t flags = b->fresh || (serial == 0 && b->resets == 0) ? FRONTEND_ENTRY_RESET : 0;

        b->fresh = false;
        if (b->out)
                b->entries[b->n++] = (struct frontend_entry){.number = serial - b->since + b->start,
                                                             .time_ns = utc_ns,
                                                             .type = TRIGGER_TYPE,
                                                             .flags = flags};
}

/* Before the first trigger after a reset, announces to the DFM that the counters are reset. */
static void announce(struct frontend_box *b, uint64_t now_ns)
{
        b->entries[b->n++] = (struct frontend_entry){
                .time_ns = clock_utc_ns(),
                .flags = FRONTEND_ENTRY_RESET | FRONTEND_ENTRY_MARKER,
        };
        b->asked_ns = now_ns;
        b->acknowledged = b->forgotten = false;
}

void frontend_box_reset(struct frontend_box *b, uint64_t serial, uint64_t now_ns)
{
        b->since = serial;
        b->start = 0;
        b->resets++;
        if (b->out && b->in)
                announce(b, now_ns);
        else
                b->fresh = true;
}

bool frontend_box_is_resetting(const struct frontend_box *b)
{
        return b->asked_ns != NEVER_NS;
}

static bool is_silent(const struct frontend_box *b, uint64_t now_ns)
{
        return !b->received || now_ns - b->received_ns >= SILENCE_NS;
}

static bool is_stopped(const struct frontend_box *b)
{
        return b->state.busy && b->state.reason == FRONTEND_BUSY_STOPPED;
}

static bool must_ask_again(const struct frontend_box *b, uint64_t now_ns)
{
        if (!frontend_box_is_resetting(b) || b->acknowledged)
                return false;
        return (b->forgotten && !is_stopped(b)) || now_ns - b->asked_ns >= ASK_AGAIN_NS;
}

int frontend_box_send(struct frontend_box *b, uint64_t now_ns)
{
        uint8_t bytes[FRONTEND_PACKET_MAX_BYTES];
        struct iovec iov = {.iov_base = bytes};
        struct outgoing out = {.iov = &iov, .n_iov = 1};
        int r;

        if (b->n == 0 && must_ask_again(b, now_ns))
                announce(b, now_ns);
        if (b->n == 0)
                return 0;
        iov.iov_len = frontend_packet_encode(b->sequence, b->config->run, b->entries, b->n, bytes);
        out.size_bytes = (uint32_t)iov.iov_len;
        r = endpoint_send(b->out, &out, 1);
        if (r <= 0)
                return r;
        b->sequence++;
        b->packets++;
        b->n = 0;
        return 0;
}

/* A DFM that stopped or restarted has lost the marker, so its next FRONTEND_BUSY_RESET does not acknowledge
 * this marker. */
static void record_answer(struct frontend_box *b, bool was_silent)
{
        b->forgotten |= was_silent || is_stopped(b);
        if (b->forgotten)
                b->acknowledged = false;
        else if (b->state.busy)
                b->acknowledged |= b->state.reason == FRONTEND_BUSY_RESET;
        else if (b->acknowledged)
                b->asked_ns = NEVER_NS;
}

static void receive_busy(struct frontend_box *b, const struct datagram *d, uint64_t now_ns)
{
        bool was_busy = b->busy_since_ns != NEVER_NS, was_silent = is_silent(b, now_ns);

        if (!frontend_packet_decode_busy(d->bytes, d->size_bytes, &b->state)) {
                b->busy_malformed++;
                return;
        }
        b->busy_packets++;
        b->received = true;
        b->received_ns = now_ns;
        record_answer(b, was_silent);
        if (b->state.busy == was_busy)
                return;
        b->busy_changes++;
        b->busy_ns += was_busy ? now_ns - b->busy_since_ns : 0;
        b->busy_since_ns = b->state.busy ? now_ns : NEVER_NS;
}

int frontend_box_receive(struct frontend_box *b, uint64_t now_ns)
{
        struct datagram d[16];
        int n = b->ready ? 1 : 0;

        while (n > 0) {
                n = endpoint_receive(b->in, d, ARRAY_SIZE(d));
                for (int i = 0; i < n; i++)
                        receive_busy(b, &d[i], now_ns);
        }
        b->ready = false;
        return n;
}

bool frontend_box_is_busy(const struct frontend_box *b, uint64_t now_ns)
{
        return b->in && (b->busy_since_ns != NEVER_NS || is_silent(b, now_ns));
}

bool frontend_box_resets_long_busy(struct frontend_box *b, uint64_t now_ns)
{
        if (b->config->reset_after_busy_ns == 0 || b->busy_since_ns == NEVER_NS || is_silent(b, now_ns) ||
            now_ns - b->busy_since_ns < b->config->reset_after_busy_ns)
                return false;
        b->busy_ns += now_ns - b->busy_since_ns;
        b->busy_since_ns = now_ns;
        return true;
}

uint64_t frontend_box_deadline_ns(const struct frontend_box *b, uint64_t now_ns)
{
        uint64_t at_ns = b->n > 0 ? now_ns + UNSENT_PAUSE_NS : NEVER_NS;

        if (b->in && !is_silent(b, now_ns))
                at_ns = MIN(at_ns, b->received_ns + SILENCE_NS);
        if (b->config->reset_after_busy_ns > 0 && b->busy_since_ns != NEVER_NS && !is_silent(b, now_ns))
                at_ns = MIN(at_ns,
                            MAX(b->busy_since_ns + b->config->reset_after_busy_ns, now_ns + UNSENT_PAUSE_NS));
        return at_ns;
}

uint64_t frontend_box_busy_ns(const struct frontend_box *b, uint64_t now_ns)
{
        return b->busy_ns + (b->busy_since_ns != NEVER_NS ? now_ns - b->busy_since_ns : 0);
}

#define VERSION 1
#define BUSY_BYTES 16u

size_t frontend_packet_encode(uint32_t sequence, uint32_t run, const struct frontend_entry *entries, size_t n,
                              uint8_t to[static FRONTEND_PACKET_MAX_BYTES])
{
        struct writer w = writer_init(to, FRONTEND_PACKET_MAX_BYTES);

        memcpy(writer_reserve(&w, 4), "EVBT", 4);
        writer_u16(&w, VERSION);
        writer_u16(&w, (uint16_t)n);
        writer_u32(&w, sequence);
        writer_u32(&w, run);
        for (size_t i = 0; i < n; i++) {
                writer_u64(&w, entries[i].number);
                writer_u64(&w, entries[i].time_ns);
                writer_u32(&w, entries[i].type);
                writer_u32(&w, entries[i].flags);
        }
        return (size_t)(w.at - to);
}

bool frontend_packet_decode_busy(const uint8_t *bytes, size_t n, struct frontend_busy *ret)
{
        struct reader r = reader_init(bytes, n);
        const void *magic = reader_consume(&r, 4);
        uint8_t state;

        if (n != BUSY_BYTES || !magic || memcmp(magic, "EVBB", 4) != 0)
                return false;
        state = reader_u8(&r);
        ret->busy = state == 1;
        ret->reason = reader_u8(&r);
        (void)reader_u16(&r);
        ret->last = reader_u64(&r);
        return state <= 1;
}
