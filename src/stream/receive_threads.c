/* Moves packets from the socket through the ring to the sink. All input is checked and counted, and no input
 * is fatal. If the sink fails, packets are still counted until the sender ends, so that a packet that reaches
 * this machine never counts as lost in the network. */
#include "receive_threads.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>

#include "base/util.h"
#include "sys/loop.h"
#include "sys/thread.h"

#define RECEIVE_MAX 256u
/* Maximum duration of a wait, so that each thread soon notices when it must end. */
#define WAIT_NS (20 * NS_PER_MS)
#define WAIT_MS 10
/* At the end of the stream, packets that do not arrive within this time are lost. */
#define SILENCE_NS (300 * NS_PER_MS)
/* Maximum time that the output waits for a packet in the middle of a stream. No network delays reordered
 * packets by this much. */
#define GAP_NS NS_PER_S
/* Size of the writes of the output thread, which is woken for a quarter of this size. */
#define WRITE_BYTES (UINT64_C(1) << 20)
#define WAKE_BYTES (UINT64_C(1) << 18)
/* The kernel counts memory rather than bytes: for each packet, at most about twice its size, and the
 * structures. Half of the buffer is reserved for memory that the kernel has not freed yet (udp_rmem_release()
 * in net/ipv4/udp.c). */
#define SOCKET_STRUCTURES_BYTES 1024u
/* Number of reports to the sender per window. */
#define REPORTS_PER_WINDOW 4u
/* A sender whose control connection broke may continue to send for at most this time. */
#define LEFT_NS (5 * NS_PER_S)

static bool is_over(struct receive_threads *t)
{
        return slot_ring_is_closed(&t->ring);
}

/* Requests a report once there is enough progress. */
static void ask_for_report(struct receive_threads *t)
{
        uint64_t one = 1,
                 now = atomic_load_explicit(&t->seen, memory_order_relaxed) + slot_ring_emptied(&t->ring);

        if (t->reports && now >= atomic_load_explicit(&t->report_at, memory_order_relaxed) &&
            !atomic_exchange_explicit(&t->report_due, true, memory_order_acq_rel))
                (void)!write(t->done_fd, &one, sizeof one);
}

static bool is_aborted(const struct receive_threads *t)
{
        return atomic_load_explicit(&t->aborted, memory_order_relaxed);
}

/* Checks whether the output has failed. */
static void record_failure(struct receive_threads *t)
{
        if (t->takes_none || !is_over(t))
                return;
        t->taken = t->account;
        t->takes_none = true;
}

/* The first sequence number without a slot. Packets that are not written need no slot, but the limit also
 * bounds the work of each turn. */
static uint64_t limit_of(struct receive_threads *t)
{
        return (t->takes_none ? t->account.base : slot_ring_emptied(&t->ring)) + t->ring.slots;
}

/* The frame after the missing frames may begin the second that shows the rate. It is examined only once,
 * because the gap may be long. */
static void learn_from_next(struct receive_threads *t, uint64_t sequence)
{
        const uint32_t parts = packet_parts(&t->rule);
        uint64_t next;

        if (t->fill.frames_per_second > 0 || t->fill.run > 0)
                return;
        next = account_next(&t->account, parts);
        if (next < t->account.end)
                vdif_fill_look_ahead(&t->fill, (next - sequence) / parts, slot_ring_at(&t->ring, next));
}

/* All parts of the frame that begins at this number are decided. A frame with a missing part is marked
 * invalid. */
static void finish_frame(struct receive_threads *t, uint64_t sequence)
{
        uint8_t *header = slot_ring_at(&t->ring, sequence);

        if (t->frame_without_header) {
                learn_from_next(t, sequence);
                vdif_fill_make(&t->fill, header);
        } else {
                vdif_fill_record(&t->fill, header);
                if (t->frame_incomplete)
                        vdif_set_invalid(header, true);
        }
        t->invalid_frames += t->frame_incomplete;
        t->frame_incomplete = false;
}

static void decide_part(struct receive_threads *t, uint64_t sequence, bool arrived)
{
        const uint32_t parts = packet_parts(&t->rule), part = (uint32_t)(sequence % parts);

        t->frame_incomplete |= !arrived;
        if (part == 0)
                t->frame_without_header = !arrived;
        if (part == parts - 1)
                finish_frame(t, sequence - part);
}

/* Returns the size of the data of a packet: only the last packet of a plain stream may have fewer. */
static uint32_t size_of(const struct receive_threads *t, uint64_t sequence)
{
        const uint64_t bytes = atomic_load_explicit(&t->total_bytes, memory_order_relaxed),
                       begin = sequence * t->rule.payload_bytes;

        if (!t->plan && sequence + 1 == atomic_load_explicit(&t->total_packets, memory_order_relaxed) &&
            bytes > begin && bytes - begin < t->rule.payload_bytes)
                return (uint32_t)(bytes - begin);
        return t->rule.payload_bytes;
}

/* Fills the place of a missing packet with zeros. */
static void fill_in(struct receive_threads *t, uint64_t sequence)
{
        memset(slot_ring_at(&t->ring, sequence), 0, t->rule.payload_bytes);
        *slot_ring_size(&t->ring, sequence) = size_of(t, sequence) | SLOT_MISSING;
}

/* Returns the end of the packets that the output may have: whole frames, and all packets at the end of the
 * stream. */
static uint64_t end_of_frames(const struct receive_threads *t)
{
        uint64_t base = t->account.base;

        return base >= atomic_load_explicit(&t->total_packets, memory_order_relaxed)
                       ? base
                       : base - base % packet_parts(&t->rule);
}

/* Decides as many packets as possible below `known`, the end of the announced packets, and publishes the
 * result. */
static void decide(struct receive_threads *t, uint64_t known, bool all)
{
        uint64_t until = MIN(known, limit_of(t)), before = t->account.base;
        bool arrived;

        while (account_decide(&t->account, until, all, &arrived)) {
                uint64_t sequence = t->account.base - 1;

                if (t->takes_none)
                        continue;
                if (!arrived)
                        fill_in(t, sequence);
                if (!arrived && t->repairs)
                        gaps_add(&t->gaps, sequence);
                if (t->plan)
                        decide_part(t, sequence, arrived);
        }
        if (t->account.base == before || t->takes_none)
                return;
        slot_ring_fill(&t->ring, end_of_frames(t));
        atomic_store_explicit(&t->lost, t->account.given_up, memory_order_relaxed);
}

/* Determines the place of a packet, and waits for it if the ring is full. The socket's buffer then overflows,
 * and the kernel counts the lost packets. */
static enum account_result find_place(struct receive_threads *t, uint64_t sequence)
{
        enum account_result r = account_accept(&t->account, sequence, limit_of(t));

        while (r == ACCOUNT_BEYOND && !is_aborted(t)) {
                uint64_t emptied = slot_ring_emptied(&t->ring);

                record_failure(t);
                decide(t, sequence + 1, false);
                if (!t->takes_none && sequence >= limit_of(t))
                        slot_ring_wait_emptied(&t->ring, emptied + 1, WAIT_NS);
                r = account_accept(&t->account, sequence, limit_of(t));
        }
        return r;
}

static void record_arrival(struct receive_threads *t, const struct datagram *d, uint64_t now_ns)
{
        uint64_t gap_ns = stamps_gap(&t->stamps, now_ns - t->last_ns, t->read_ns, d->arrived_ns);

        if (t->last_ns > 0) {
                timing_add(&t->between, gap_ns, 1);
                t->elapsed_ns += gap_ns;
        } else
                t->first_ns = now_ns;
        t->last_ns = now_ns;
}

/* Whether a packet of this size may have this number: only the last packet is shorter than the others, and no
 * packet follows it. */
static enum packet_kind check_place(struct receive_threads *t, uint64_t sequence, uint32_t size)
{
        uint64_t end = MAX(t->account.end, t->account.base);

        if (sequence >= atomic_load_explicit(&t->total_packets, memory_order_relaxed) ||
            sequence >= t->most || (t->last != PACKETS_UNKNOWN && sequence > t->last))
                return PACKET_FOREIGN;
        if (size == t->rule.payload_bytes || sequence == t->last || t->rule.unnumbered)
                return PACKET_OURS;
        if (t->last != PACKETS_UNKNOWN || sequence + 1 < end)
                return PACKET_SHORT;
        t->last = sequence;
        return PACKET_OURS;
}

/* Whether a packet, without control, is older than the first one, or beyond the end. */
static bool is_outside(const struct receive_threads *t, uint64_t sequence)
{
        return t->without_control &&
               ((t->account.end < t->window_packets && -sequence - 1 < t->window_packets) ||
                (t->limit_packets > 0 && sequence >= t->limit_packets) ||
                (t->limit_bytes > 0 && t->taken_bytes >= t->limit_bytes) ||
                sequence >= atomic_load_explicit(&t->total_packets, memory_order_relaxed));
}

/* Whether a datagram belongs to this stream. Checks all of it. */
static enum packet_kind check(struct receive_threads *t, const struct datagram *d, uint64_t *ret_sequence)
{
        uint32_t header = packet_header_bytes(&t->rule), size = d->size_bytes - header;
        enum packet_kind kind = PACKET_FOREIGN;
        const bool known = net_address_equal(d->from, &t->from);

        if (known)
                kind = packet_read(&t->rule, d->bytes, d->size_bytes, ret_sequence);
        if (kind == PACKET_OURS && t->rule.unnumbered)
                *ret_sequence = t->account.end;
        if (kind == PACKET_OURS && is_outside(t, *ret_sequence)) {
                t->foreign++;
                return PACKET_FOREIGN;
        }
        if (kind == PACKET_OURS)
                kind = check_place(t, *ret_sequence, size);
        if (kind != PACKET_OURS && known)
                atomic_fetch_add_explicit(&t->unfit, 1, memory_order_relaxed);
        t->others += !known;
        t->short_ones += kind == PACKET_SHORT;
        t->foreign += kind == PACKET_FOREIGN;
        return kind;
}

/* Attributes packets that are missing before this packet to the socket, at most as many as the socket
 * dropped. */
static void record_drops(struct receive_threads *t, uint64_t sequence)
{
        t->socket_lost += MIN(sequence - MIN(t->account.end, sequence), t->drops_pending * t->drop_packets);
        t->drops_pending = 0;
}

/* Whether a packet of VDIF whose number has arrived before is a copy of that packet. A sender that began anew
 * sends other bytes. What the ring no longer has is older than anything that a network repeats. A packet that
 * came too late was not kept, so the next one with its number counts as its copy: it is missing anyway. */
static bool is_copy(const struct receive_threads *t, uint64_t sequence, const uint8_t *bytes, uint32_t size)
{
        const uint8_t *first = slot_ring_at(&t->ring, sequence);

        if (sequence + t->ring.slots < t->account.end)
                return false;
        if (*slot_ring_size(&t->ring, sequence) & SLOT_MISSING)
                return true;
        /* Byte 3: the frame may have been marked invalid meanwhile. */
        return memcmp(first, bytes, 3) == 0 && ((first[3] ^ bytes[3]) & 0x7f) == 0 &&
               memcmp(first + 4, bytes + 4, size - 4) == 0;
}

static void receive_datagram(struct receive_threads *t, const struct datagram *d, uint64_t now_ns)
{
        uint32_t header = packet_header_bytes(&t->rule), size = d->size_bytes - header;
        enum account_result place;
        uint64_t sequence;

        record_failure(t);
        t->drops_pending += d->dropped_before;
        if (check(t, d, &sequence) != PACKET_OURS)
                return;
        record_drops(t, sequence);
        if (!t->takes_none)
                record_arrival(t, d, now_ns);
        place = find_place(t, sequence);
        if (place == ACCOUNT_DUPLICATE && t->without_control && !t->takes_none &&
            !is_copy(t, sequence, d->bytes + header, size)) {
                t->account.duplicate--;
                t->foreign++;
                atomic_fetch_add_explicit(&t->unfit, 1, memory_order_relaxed);
        }
        if (place != ACCOUNT_NEW || t->takes_none)
                return;
        memcpy(slot_ring_at(&t->ring, sequence), d->bytes + header, size);
        *slot_ring_size(&t->ring, sequence) = size;
        t->taken_bytes += size;
        if (t->plan && t->rule.unnumbered)
                vdif_missing_record(&t->missing, t->plan, d->bytes);
        intervals_add(&t->intervals, t->elapsed_ns, 1, size);
}

/* Gives up the first missing packets if they are too old, even if few packets have overtaken them. */
static void give_up_old(struct receive_threads *t, uint64_t now_ns)
{
        if (t->account.base == t->account.end || t->account.base != t->gap) {
                t->gap = t->account.base;
                t->gap_ns = now_ns;
        } else if (t->asked_ns >= t->gap_ns + GAP_NS) {
                decide(t, account_next(&t->account, 1), true);
                decide(t, t->account.end, false);
        }
}

/* Waits when the socket is empty. */
static void wait_for_packets(const struct receive_threads *t)
{
        struct pollfd p = {.fd = t->endpoint->fd, .events = POLLIN};
        uint64_t sleep_ns = sleep_interval_ns(&t->sleep_interval);

        if (sleep_ns > 0)
                (void)clock_nanosleep(CLOCK_MONOTONIC, 0, &(struct timespec){.tv_nsec = (long)sleep_ns},
                                      NULL);
        else
                (void)poll(&p, 1, faults_are_holding(t->faults) ? 1 : WAIT_MS);
}

/* Returns the number of datagrams, or negative errno. */
static int receive(struct receive_threads *t)
{
        struct datagram in[RECEIVE_MAX];
        uint64_t now_ns, received = t->account.received;
        int n;

        t->asked_ns = clock_now_ns();
        n = t->faults ? faults_receive(t->faults, t->endpoint, in, 64)
                      : endpoint_receive(t->endpoint, in, RECEIVE_MAX);
        now_ns = clock_now_ns();
        t->read_ns = clock_utc_ns();
        t->most = receive_threads_most(t, now_ns);
        sleep_interval_record(&t->sleep_interval, now_ns, (uint64_t)MAX(n, 0));
        if (n == 0) {
                atomic_store_explicit(&t->quiet_ns,
                                      t->asked_ns - MIN(t->last_new_ns ?: t->begin_ns, t->asked_ns),
                                      memory_order_relaxed);
                give_up_old(t, now_ns);
                wait_for_packets(t);
                return 0;
        }
        for (int i = 0; i < n && !is_aborted(t); i++)
                receive_datagram(t, &in[i], now_ns);
        /* The packets may have waited for the output. */
        if (t->account.received > received)
                t->last_new_ns = clock_now_ns();
        atomic_store_explicit(&t->packets, receive_threads_taken(t)->received, memory_order_relaxed);
        atomic_store_explicit(&t->bytes, t->taken_bytes, memory_order_relaxed);
        atomic_store_explicit(&t->seen, t->account.end, memory_order_relaxed);
        ask_for_report(t);
        if (n > 0) {
                decide(t, t->account.end, false);
                give_up_old(t, now_ns);
                if (!t->takes_none)
                        timing_add(&t->processing, (clock_now_ns() - now_ns) / (uint64_t)n, (uint64_t)n);
        }
        return n;
}

/* At the end of the stream, no packet follows the last drops. */
static void record_last_drops(struct receive_threads *t, uint64_t total)
{
        uint64_t known = t->endpoint->counts.dropped;

        t->drops_pending += endpoint_counts(t->endpoint)->dropped - known;
        if (total != PACKETS_UNKNOWN)
                record_drops(t, total);
}

/* After the end of the stream, gives up missing packets as far as the ring has room. Returns whether all
 * packets are decided. */
static bool is_decided(struct receive_threads *t, uint64_t ending_ns)
{
        uint64_t total = atomic_load_explicit(&t->total_packets, memory_order_relaxed),
                 known = total == PACKETS_UNKNOWN ? t->account.end : MAX(total, t->account.end),
                 quiet_since_ns = MAX(t->last_new_ns, ending_ns);
        /* This thread may have waited for a processor, and packets in the socket: the last look at the socket
         * must have begun after the silence. */
        bool silent = t->asked_ns >= quiet_since_ns + SILENCE_NS && !faults_are_holding(t->faults);

        if (total != PACKETS_UNKNOWN && t->account.base >= known)
                return true;
        if (!silent && (total != PACKETS_UNKNOWN || t->asked_ns < ending_ns + LEFT_NS))
                return false;
        record_last_drops(t, total);
        decide(t, known, true);
        return t->takes_none || t->account.base >= known;
}

/* Without control, what had arrived when the stream was ended is the stream, with the rest of its last frame.
 * Returns whether this is known: the socket was empty after that, or more packets have come than it can have
 * held. */
static bool end_here(struct receive_threads *t, bool empty)
{
        const uint64_t parts = packet_parts(&t->rule), held = t->endpoint->granted_receive_bytes;

        if (!t->without_control || atomic_load(&t->total_packets) != PACKETS_UNKNOWN)
                return true;
        if (t->end_at == 0)
                t->end_at = t->account.end + held / SOCKET_STRUCTURES_BYTES + 1;
        else if (empty || t->account.end >= t->end_at)
                atomic_store(&t->total_packets, DIV_ROUND_UP(t->account.end, parts) * parts);
        return atomic_load(&t->total_packets) != PACKETS_UNKNOWN;
}

static void tell_done(struct receive_threads *t)
{
        uint64_t one = 1;

        atomic_fetch_sub(&t->running, 1);
        (void)!write(t->done_fd, &one, sizeof one);
}

static void *run_raw(void *ctx)
{
        struct receive_threads *t = ctx;

        t->network_error = raw_receive_all(t);
        t->network_used_ns = thread_used_ns();
        tell_done(t);
        return NULL;
}

static void *run_network(void *ctx)
{
        struct receive_threads *t = ctx;
        uint64_t ending_ns = 0;

        t->cut_short = true;
        while (!is_aborted(t)) {
                int n = receive(t);

                t->network_error = MIN(n, 0);
                if (t->network_error < 0)
                        break;
                if (!atomic_load_explicit(&t->ending, memory_order_acquire))
                        continue;
                if (!end_here(t, n == 0))
                        continue;
                ending_ns = ending_ns ?: clock_now_ns();
                record_failure(t);
                if (is_decided(t, ending_ns)) {
                        t->cut_short = false;
                        break;
                }
        }
        t->network_used_ns = thread_used_ns();
        atomic_store_explicit(&t->decided, true, memory_order_release);
        tell_done(t);
        return NULL;
}

/* Writes n slots from `done` on. Returns negative errno. */
static int write_slots(struct receive_threads *t, uint64_t done, uint64_t n)
{
        bool each = sink_is_pattern(t->sink);

        for (uint64_t i = 0; i < n;) {
                uint64_t first = i;
                size_t bytes = 0;
                int64_t now_s;
                uint32_t size;
                int r = receive_threads_begins_file(t, done + i, &now_s)
                                ? receive_threads_begin_file(t, now_s)
                                : 0;

                if (r < 0)
                        return r;
                /* Full slots are contiguous, so they are written at once. */
                do {
                        if (t->scan.each_s > 0 && (done + i) % packet_parts(&t->rule) == 0)
                                vdif_scan_record(&t->scan, t->plan, slot_ring_at(&t->ring, done + i));
                        size = *slot_ring_size(&t->ring, done + i++);
                        bytes += size & ~SLOT_MISSING;
                } while (i < n && !each && (size & ~SLOT_MISSING) == t->ring.stride_bytes &&
                         !receive_threads_begins_file(t, done + i, &now_s));
                r = sink_put(t->sink, slot_ring_at(&t->ring, done + first), bytes, size & SLOT_MISSING,
                             &t->ring.closed);
                if (r < 0)
                        return r;
        }
        return 0;
}

static void *run_output(void *ctx)
{
        struct receive_threads *t = ctx;
        uint64_t done = t->first, most = MAX(WRITE_BYTES / t->ring.stride_bytes, UINT64_C(1)),
                 wanted = MAX(MIN(WAKE_BYTES / t->ring.stride_bytes, t->ring.slots / 4), UINT64_C(1));
        int r = 0;

        for (;;) {
                bool decided = atomic_load_explicit(&t->decided, memory_order_acquire);
                uint64_t filled = slot_ring_filled(&t->ring), n;

                if (filled == done && (decided || is_over(t)))
                        break;
                if (filled == done)
                        filled = slot_ring_wait_filled(&t->ring, done + wanted, WAIT_NS);
                n = receive_threads_ready(t, done, filled, most);
                r = write_slots(t, done, n);
                if (r < 0)
                        break;
                done += n;
                slot_ring_empty(&t->ring, done);
                ask_for_report(t);
        }
        if (r >= 0)
                (void)sink_finish(t->sink, &t->output_error);
        else if (r != -ECANCELED && t->output_error.code == 0)
                (void)sink_explain(t->sink, r, &t->output_error);
        if (r < 0)
                slot_ring_close(&t->ring);
        t->output_used_ns = thread_used_ns();
        tell_done(t);
        return NULL;
}

/* The published ways of waking the other thread are compared with each other, so they stay unchanged.
 * Injected faults delay packets in their own way. */
static void init_sleep_interval(struct receive_threads *t)
{
        bool sleep_interval = t->options->wake.kind == WAKE_FUTEX && !t->faults;

        sleep_interval_init(&t->sleep_interval, sleep_interval ? t->endpoint->granted_receive_bytes : 0,
                            t->rule.payload_bytes + packet_header_bytes(&t->rule));
}

/* Frames that the output has show which ones follow. */
static void begin_filling(struct receive_threads *t)
{
        const uint64_t frame_bytes = t->plan->frame_bytes, n = t->first / packet_parts(&t->rule);
        uint8_t header[VDIF_HEADER_BYTES];

        vdif_fill_begin(&t->fill, t->plan);
        for (uint64_t i = n - MIN(n, (uint64_t)VDIF_FILL_HISTORY); i < n; i++)
                if (sink_read(t->sink, i * frame_bytes, header, sizeof header) >= 0)
                        vdif_fill_record(&t->fill, header);
}

int receive_threads_start(struct receive_threads *t)
{
        const struct stream_options *o = t->options;
        bool raw = t->rule.format == STREAM_RAW;
        uint64_t slots = raw ? 64 : MAX(o->ring_bytes / t->rule.payload_bytes, UINT64_C(64)), window;
        int r = slot_ring_init(&t->ring, MIN(slots, SLOT_RING_SLOTS_MAX), raw ? 1 : t->rule.payload_bytes,
                               &o->wake);

        if (r < 0)
                return r;
        /* Packets that wait for an overtaken packet must leave room for the output. */
        window = MIN((uint64_t)t->window_packets, t->ring.slots / 2);
        r = account_init(&t->account, t->ring.slots, window);
        if (r < 0)
                return r;
        t->account.base = t->account.end = t->first;
        slot_ring_number(&t->ring, t->first);
        atomic_store(&t->seen, t->first);
        /* A copy that is resumed has gaps already. */
        if (t->repairs && !t->gaps.list)
                r = gaps_init(&t->gaps, packet_parts(&t->rule));
        if (r < 0)
                return r;
        timing_init(&t->between);
        timing_init(&t->processing);
        intervals_init(&t->intervals);
        init_sleep_interval(t);
        if (t->plan)
                begin_filling(t);
        t->last = PACKETS_UNKNOWN;
        t->begin_ns = clock_now_ns();
        atomic_store(&t->running, raw ? 1 : 2);
        atomic_store(&t->decided, raw);
        atomic_store(&t->total_packets, PACKETS_UNKNOWN);
        atomic_store(&t->total_bytes, UINT64_MAX);
        atomic_store(&t->report_due, true);
        t->done_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
        if (t->done_fd < 0)
                return -errno;
        r = raw ? raw_receive_watch(t)
                : thread_start(&t->output, "evb-output", o->file_cpus.cpus, o->file_cpus.n, run_output, t);
        t->started_output = r >= 0 && !raw;
        if (r >= 0)
                r = thread_start(&t->network, "evb-network", o->network_cpus.cpus, o->network_cpus.n,
                                 raw ? run_raw : run_network, t);
        t->started_network = r >= 0;
        if (r < 0)
                receive_threads_abort(t);
        return r;
}

uint64_t receive_threads_most(const struct receive_threads *t, uint64_t now_ns)
{
        return t->first + packet_most(&t->rule, now_ns - t->begin_ns) + t->ring.slots;
}

uint64_t receive_threads_window(const struct receive_threads *t)
{
        uint64_t packet_bytes = t->rule.payload_bytes + packet_header_bytes(&t->rule);

        return MAX(t->endpoint->granted_receive_bytes / (2 * packet_bytes + SOCKET_STRUCTURES_BYTES),
                   UINT64_C(2));
}

bool receive_threads_progress(struct receive_threads *t, struct receive_progress *ret)
{
        uint64_t step = MAX(MIN(receive_threads_window(t), t->ring.slots) / REPORTS_PER_WINDOW, UINT64_C(1)),
                 emptied;

        if (!t->reports || !atomic_exchange(&t->report_due, false))
                return false;
        emptied = slot_ring_emptied(&t->ring);
        ret->seen = atomic_load(&t->seen);
        ret->room = emptied + t->ring.slots;
        atomic_store(&t->report_at, ret->seen + emptied + step);
        /* If there is enough further progress, a report is requested again. */
        ask_for_report(t);
        return true;
}

void receive_threads_end(struct receive_threads *t, uint64_t packets, uint64_t bytes)
{
        atomic_store_explicit(&t->total_packets, packets, memory_order_relaxed);
        atomic_store_explicit(&t->total_bytes, bytes, memory_order_relaxed);
        atomic_store_explicit(&t->ending, true, memory_order_release);
}

enum receive_threads_state receive_threads_look(struct receive_threads *t)
{
        uint64_t n;

        (void)!read(t->done_fd, &n, sizeof n);
        if (atomic_load(&t->running) == 0)
                return RECEIVE_THREADS_ENDED;
        /* If all packets are decided, the output thread ended because the output is complete; otherwise, it
         * failed. */
        return atomic_load(&t->running) == 2 || atomic_load(&t->decided) ? RECEIVE_THREADS_RUN
                                                                         : RECEIVE_THREADS_FAILED;
}

const struct account *receive_threads_taken(const struct receive_threads *t)
{
        return t->takes_none ? &t->taken : &t->account;
}

uint64_t receive_threads_missing(const struct receive_threads *t)
{
        uint64_t total = atomic_load(&t->total_packets);
        const struct account *a = receive_threads_taken(t);

        if (t->rule.unnumbered)
                return t->plan ? vdif_missing_frames(&t->missing, t->plan) : 0;
        return (total == PACKETS_UNKNOWN ? a->given_up : total - MIN(t->first + a->received, total)) -
               t->gaps.repaired + t->holes - t->gaps.first_repaired;
}

uint64_t receive_threads_untaken(const struct receive_threads *t)
{
        uint64_t total = atomic_load(&t->total_packets),
                 n = t->account.received - receive_threads_taken(t)->received;

        if (t->cut_short && total != PACKETS_UNKNOWN)
                n += total - MIN(t->account.end, total);
        return n;
}

/* Writes a part of a frame. The frame stays marked invalid until all its parts have arrived. */
static int write_part(struct receive_threads *t, struct gap *gap, uint64_t sequence, const uint8_t *bytes,
                      uint32_t size)
{
        const uint32_t parts = packet_parts(&t->rule);
        const uint64_t others = gap->missing & ~(UINT64_C(1) << sequence % parts),
                       begin = gap->unit * parts * t->rule.payload_bytes;
        uint8_t header[VDIF_HEADER_BYTES];
        int r = sink_repair(t->sink, sequence * t->rule.payload_bytes, bytes, size);

        if (r < 0 || parts == 1)
                return r;
        if (sequence % parts == 0) {
                memcpy(&gap->word, bytes, sizeof gap->word);
                memcpy(header, bytes, sizeof header);
                vdif_set_invalid(header, true);
                return others > 0 ? sink_repair(t->sink, begin, header, sizeof header) : 0;
        }
        return others > 0 ? 0 : sink_repair(t->sink, begin, &gap->word, sizeof gap->word);
}

/* Writes a packet that was sent again. */
static int repair_packet(struct receive_threads *t, const struct datagram *d)
{
        const uint32_t header = packet_header_bytes(&t->rule), size = d->size_bytes - header;
        const uint64_t repaired = t->gaps.repaired;
        struct gap *gap;
        uint64_t sequence;
        int r;

        if (check(t, d, &sequence) != PACKET_OURS)
                return 0;
        gap = gaps_find(&t->gaps, sequence);
        if (!gap) {
                t->account.duplicate++;
                return 0;
        }
        if (size != size_of(t, sequence)) {
                t->short_ones++;
                return 0;
        }
        r = write_part(t, gap, sequence, d->bytes + header, size);
        if (r < 0)
                return sink_explain(t->sink, r, &t->output_error);
        gaps_close(&t->gaps, gap, sequence);
        t->taken_bytes += t->gaps.repaired > repaired ? size : 0;
        return 0;
}

int receive_threads_repair(struct receive_threads *t)
{
        struct datagram in[RECEIVE_MAX];
        int n = t->faults ? faults_receive(t->faults, t->endpoint, in, 64)
                          : endpoint_receive(t->endpoint, in, RECEIVE_MAX);

        /* The total is known, so no other limit is needed. */
        t->most = UINT64_MAX;
        for (int i = 0; i < n; i++) {
                int r = repair_packet(t, &in[i]);

                if (r < 0)
                        return r;
        }
        atomic_store(&t->bytes, t->taken_bytes);
        atomic_store(&t->packets, t->account.received + t->gaps.repaired);
        atomic_store(&t->lost, t->account.given_up - t->gaps.repaired);
        return n;
}

static void *run_finish(void *ctx)
{
        struct receive_threads *t = ctx;

        (void)sink_finish(t->sink, &t->output_error);
        tell_done(t);
        return NULL;
}

int receive_threads_finish(struct receive_threads *t)
{
        const struct stream_options *o = t->options;
        int r;

        atomic_store(&t->running, 1);
        r = thread_start(&t->output, "evb-output", o->file_cpus.cpus, o->file_cpus.n, run_finish, t);
        t->started_output = r >= 0;
        return r;
}

void receive_threads_abort(struct receive_threads *t)
{
        atomic_store(&t->aborted, true);
        slot_ring_close(&t->ring);
}

void receive_threads_join(struct receive_threads *t)
{
        if (t->started_network)
                pthread_join(t->network, NULL);
        if (t->started_output)
                pthread_join(t->output, NULL);
        t->started_network = t->started_output = false;
        raw_receive_join(t);
}

void receive_threads_fini(struct receive_threads *t)
{
        if (t->ring.slots > 0) {
                receive_threads_abort(t);
                receive_threads_join(t);
        }
        /* A copy that was compared has gaps before there are threads. */
        gaps_fini(&t->gaps);
        if (t->ring.slots == 0)
                return;
        if (t->done_fd > 0)
                close(t->done_fd);
        account_fini(&t->account);
        raw_receive_fini(t);
        slot_ring_fini(&t->ring);
}
