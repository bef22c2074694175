/* Moves data from the source through the ring to the socket. */
#include "send_threads.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <time.h>

#include "base/util.h"
#include "sys/loop.h"
#include "sys/thread.h"

/* Maximum number of slots that the input fills at once, and of packets in one send. */
#define FILL_MAX 64u
#define SEND_MAX 256u
/* Maximum duration of a wait, so that each thread soon notices when it must end. */
#define WAIT_NS (20 * NS_PER_MS)
/* A timer may be this late, so exact spacing spins for this time. */
#define SPIN_NS (60 * NS_PER_US)

static bool is_over(struct send_threads *t)
{
        return slot_ring_is_closed(&t->ring);
}

static uint8_t *payload_at(const struct send_threads *t, uint64_t slot)
{
        return slot_ring_at(&t->ring, slot) + packet_header_bytes(&t->rule);
}

/* Waits for space. Returns the number of slots to fill at once; 0: call this function again. */
static uint64_t find_room(struct send_threads *t, uint64_t filled)
{
        uint64_t least = MIN((uint64_t)FILL_MAX, t->ring.slots / 4 ?: 1),
                 room = t->ring.slots - (filled - slot_ring_emptied(&t->ring));

        if (room < least) {
                uint64_t emptied = slot_ring_wait_emptied(&t->ring, filled + least - t->ring.slots, WAIT_NS);

                room = t->ring.slots - (filled - emptied);
        }
        return MIN(MIN(room, (uint64_t)FILL_MAX), slot_ring_straight(&t->ring, filled));
}

/* A frame with a damaged header is sent unchanged: its position in the recording determines its place. */
static void count_damaged(struct send_threads *t, uint64_t first, uint64_t n)
{
        struct vdif_header h;

        for (uint64_t i = first; t->plan && i < first + n; i++) {
                if (i % packet_parts(&t->rule) > 0 ||
                    vdif_plan_read(t->plan, payload_at(t, i), t->rule.payload_bytes, &h))
                        continue;
                if (t->damaged++ == 0)
                        t->first_damaged = i;
        }
}

/* Fills up to n slots from `filled` on. Returns their number; *ended: the source has ended, or failed. */
static uint64_t fill_slots(struct send_threads *t, uint64_t filled, uint64_t n, bool *ended)
{
        struct iovec parts[FILL_MAX];
        uint64_t whole;
        uint32_t rest;
        ssize_t got;

        for (uint64_t i = 0; i < n; i++)
                parts[i] = (struct iovec){payload_at(t, filled + i), t->rule.payload_bytes};
        got = stream_source_fill(t->source, parts, n, &t->stop, ended);
        if (got < 0) {
                t->input_error = (int)got;
                *ended = true;
                return 0;
        }
        whole = (uint64_t)got / t->rule.payload_bytes;
        rest = (uint32_t)((uint64_t)got % t->rule.payload_bytes);
        for (uint64_t i = 0; i < whole; i++)
                *slot_ring_size(&t->ring, filled + i) = t->rule.payload_bytes;
        if (rest > 0 && t->rule.format == STREAM_PLAIN)
                *slot_ring_size(&t->ring, filled + whole++) = rest;
        else
                t->cut_bytes = rest;
        count_damaged(t, filled, whole);
        for (uint64_t i = 0; i < whole; i++)
                packet_write(&t->rule, slot_ring_at(&t->ring, filled + i), filled + i);
        return whole;
}

static void *run_input(void *ctx)
{
        struct send_threads *t = ctx;
        uint64_t filled = 0, cut = 0;
        bool ended = false;

        while (!ended && !is_over(t)) {
                uint64_t n = find_room(t, filled);

                if (n == 0)
                        continue;
                filled += fill_slots(t, filled, n, &ended);
                /* A frame is sent once all its parts are available. */
                cut = filled % packet_parts(&t->rule);
                slot_ring_fill(&t->ring, filled - cut);
        }
        /* An interrupted stream has not reached the end of the recording. */
        t->cut_bytes = is_over(t) ? 0 : t->cut_bytes + cut * t->rule.payload_bytes;
        t->input_used_ns = thread_used_ns();
        atomic_store_explicit(&t->ended, true, memory_order_release);
        return NULL;
}

/* Waits until the next packet is due, or until the maximum wait has passed. Returns whether the packet is
 * due. */
static bool is_due(struct send_threads *t)
{
        uint64_t due_ns = spacing_due_ns(&t->spacing), now_ns, early_ns = t->exact ? SPIN_NS : t->lead_ns;

        if (due_ns == 0)
                return true;
        now_ns = clock_now_ns();
        if (due_ns > now_ns + early_ns) {
                uint64_t wait_ns = MIN(due_ns - now_ns - early_ns, WAIT_NS);

                nanosleep(&(struct timespec){.tv_nsec = (long)wait_ns}, NULL);
        }
        while (t->exact && (now_ns = clock_now_ns()) < due_ns && due_ns - now_ns <= SPIN_NS)
                ;
        return clock_now_ns() + t->lead_ns >= due_ns;
}

/* Waits while the receiver has no more room. Returns how many of n packets may leave. */
static uint32_t find_permitted(const struct send_threads *t, uint64_t sent, uint32_t n)
{
        uint64_t until = atomic_load_explicit(&t->permitted, memory_order_relaxed), wakes;
        struct pollfd p = {.fd = t->permit_fd, .events = POLLIN};

        if (!t->follows)
                return n;
        if (until > sent)
                return (uint32_t)MIN((uint64_t)n, until - sent);
        if (poll(&p, 1, (int)(WAIT_NS / NS_PER_MS)) == 1)
                (void)!read(t->permit_fd, &wakes, sizeof wakes);
        return 0;
}

static bool is_raw(const struct send_threads *t)
{
        return t->rule.format == STREAM_RAW;
}

/* With TCP in a raw stream, send() itself waits, so there is nothing to wait for. */
static void wait_writable(const struct send_threads *t)
{
        if (t->raw.fd > 0)
                return;
        struct pollfd p = {.fd = t->endpoint->fd, .events = POLLOUT};
        struct datagram ignored;

        /* A pending ICMP error ends every wait until a call fetches the error. */
        if (poll(&p, 1, (int)(WAIT_NS / NS_PER_MS)) == 1 && (p.revents & POLLERR))
                (void)endpoint_receive(t->endpoint, &ignored, 1);
}

/* Records that n packets left, the first one at first_ns. */
static void record_times(struct send_threads *t, uint64_t first_ns, uint64_t worked_ns, uint32_t n)
{
        uint64_t last_ns = atomic_load_explicit(&t->last_ns, memory_order_relaxed);

        if (last_ns > 0)
                timing_add(&t->between, (first_ns - last_ns) / n, n);
        else
                t->begin_ns = first_ns;
        timing_add(&t->processing, worked_ns / n, n);
        atomic_store_explicit(&t->last_ns, first_ns, memory_order_relaxed);
}

/* Returns when the first packet of the next group leaves: now or, if a qdisc spaces packets, at its departure
 * time. */
static uint64_t first_leave_ns(const struct send_threads *t, uint64_t now_ns)
{
        return t->lead_ns > 0 ? MAX(spacing_due_ns(&t->spacing), now_ns + t->lead_ns / 4) : now_ns;
}

/* Sets the departure time of each packet for the qdisc. */
static void set_times(const struct send_threads *t, struct outgoing *out, uint32_t n, uint64_t first_ns)
{
        struct timespec at;
        uint64_t offset_ns;

        if (t->lead_ns == 0)
                return;
        /* The clock may be set while the stream runs. */
        clock_gettime(t->leave_clock, &at);
        offset_ns = (uint64_t)at.tv_sec * NS_PER_S + (uint64_t)at.tv_nsec - clock_now_ns();
        for (uint32_t i = 0; i < n; i++)
                out[i].leave_ns = spacing_leave_ns(&t->spacing, first_ns, i) + offset_ns;
}

int send_threads_pass(struct send_threads *t, uint64_t slot, uint32_t n, uint64_t first_ns,
                      uint64_t *ret_bytes)
{
        uint32_t header = packet_header_bytes(&t->rule);
        struct iovec parts[SEND_MAX];
        struct outgoing out[SEND_MAX];
        int taken;

        for (uint32_t i = 0; i < n; i++) {
                uint32_t size = header + *slot_ring_size(&t->ring, slot + i);

                parts[i] = (struct iovec){slot_ring_at(&t->ring, slot + i), size};
                out[i] = (struct outgoing){.iov = &parts[i], .n_iov = 1, .size_bytes = size};
        }
        set_times(t, out, n, first_ns);
        taken = endpoint_send(t->endpoint, out, n);
        for (int i = 0; i < taken; i++)
                *ret_bytes += out[i].size_bytes - header;
        return taken;
}

/* Sends n packets from number `sent` on. Returns how many the kernel accepted, or negative errno. */
static int send_packets(struct send_threads *t, uint64_t sent, uint32_t n)
{
        uint64_t before_ns = clock_now_ns(), after_ns, first_ns = first_leave_ns(t, before_ns), bytes = 0;
        int taken =
                is_raw(t) ? raw_send_messages(t, n, &bytes) : send_threads_pass(t, sent, n, first_ns, &bytes);

        after_ns = clock_now_ns();
        /* The duration begins after the first message, however late that leaves. */
        if (is_raw(t) && t->raw.measure.end_ns == 0 && bytes > 0)
                raw_measure_open(&t->raw.measure, t->raw.rule, after_ns);
        if (is_raw(t))
                raw_measure_add(&t->raw.measure, after_ns, (uint64_t)MAX(taken, 0), bytes);
        if (taken <= 0) {
                atomic_fetch_add_explicit(&t->bytes, bytes, memory_order_relaxed);
                return taken;
        }
        record_times(t, first_ns, after_ns - before_ns, (uint32_t)taken);
        intervals_add(&t->intervals, first_ns - t->begin_ns, (uint64_t)taken, bytes);
        spacing_sent(&t->spacing, first_ns, (uint32_t)taken);
        atomic_fetch_add_explicit(&t->packets, (uint64_t)taken, memory_order_relaxed);
        atomic_fetch_add_explicit(&t->bytes, bytes, memory_order_relaxed);
        return taken;
}

/* Raw messages are always available, until enough are sent. */
static uint32_t find_messages(struct send_threads *t, uint64_t sent, bool *over)
{
        uint64_t most = t->raw.packets_max ?: UINT64_MAX;

        *over = is_over(t) || sent >= most;
        return (uint32_t)MIN(most - MIN(sent, most), (uint64_t)t->raw.batch);
}

/* Returns the number of parts that follow the last packet in its frame. */
static uint32_t rest_of_frame(const struct send_threads *t, uint64_t sent)
{
        const uint32_t parts = packet_parts(&t->rule);

        return (parts - (uint32_t)(sent % parts)) % parts;
}

/* Waits for filled slots. Returns their number; 0: call this function again. *over: the input has ended, and
 * all slots are sent. A frame of several packets is sent to its end. */
static uint32_t find_filled(struct send_threads *t, uint64_t sent, bool *over)
{
        bool ended = atomic_load_explicit(&t->ended, memory_order_acquire);
        uint64_t filled = slot_ring_filled(&t->ring), most = SEND_MAX;

        if (filled == sent && !ended)
                filled = slot_ring_wait_filled(&t->ring, sent + 1, WAIT_NS);
        if (is_over(t))
                most = rest_of_frame(t, sent);
        *over = most == 0 || (ended && filled == sent);
        return (uint32_t)MIN(MIN(filled - sent, slot_ring_straight(&t->ring, sent)), most);
}

static void *run_network(void *ctx)
{
        struct send_threads *t = ctx;
        uint64_t sent = 0, one = 1;
        bool over = false, began = false;

        /* Without this, a sleep may end 50 us late (prctl(2), PR_SET_TIMERSLACK). */
        (void)prctl(PR_SET_TIMERSLACK, 1UL, 0, 0, 0);
        while (!over) {
                uint32_t n = is_raw(t) ? find_messages(t, sent, &over) : find_filled(t, sent, &over);
                int taken = 0;

                if (over || n == 0)
                        continue;
                n = find_permitted(t, sent, n);
                if (n == 0)
                        continue;
                if (!began)
                        spacing_start(&t->spacing, clock_now_ns() + t->lead_ns);
                began = true;
                if (!is_due(t) && !(is_over(t) && rest_of_frame(t, sent) > 0))
                        continue;
                taken = send_packets(t, sent, spacing_group(&t->spacing, n));
                if (taken == 0 && is_over(t))
                        break;
                if (taken < 0) {
                        t->network_error = taken;
                        break;
                }
                if (taken == 0)
                        wait_writable(t);
                sent += (uint64_t)taken;
                slot_ring_empty(&t->ring, sent);
        }
        raw_measure_close(&t->raw.measure, clock_now_ns());
        t->network_used_ns = thread_used_ns();
        (void)!write(t->done_fd, &one, sizeof one);
        return NULL;
}

int send_threads_start(struct send_threads *t)
{
        const struct stream_options *o = t->options;
        uint64_t stride = is_raw(t) ? 1 : packet_header_bytes(&t->rule) + t->rule.payload_bytes;
        uint64_t slots = is_raw(t) ? 1 : MIN(MAX(o->ring_bytes / stride, UINT64_C(2)), SLOT_RING_SLOTS_MAX);
        int r = slot_ring_init(&t->ring, slots, stride, &o->wake);

        if (r < 0)
                return r;
        timing_init(&t->between);
        timing_init(&t->processing);
        intervals_init(&t->intervals);
        t->done_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
        t->permit_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
        if (t->done_fd < 0 || t->permit_fd < 0)
                return -errno;
        r = is_raw(t) ? raw_send_init(t)
                      : thread_start(&t->input, "evb-input", o->file_cpus.cpus, o->file_cpus.n, run_input, t);
        t->started_input = r >= 0 && !is_raw(t);
        if (r >= 0)
                r = thread_start(&t->network, "evb-network", o->network_cpus.cpus, o->network_cpus.n,
                                 run_network, t);
        t->started_network = r >= 0;
        if (r < 0)
                send_threads_abort(t);
        return r;
}

void send_threads_permit(struct send_threads *t, uint64_t until)
{
        uint64_t one = 1;

        atomic_store_explicit(&t->permitted, until, memory_order_relaxed);
        (void)!write(t->permit_fd, &one, sizeof one);
}

void send_threads_abort(struct send_threads *t)
{
        atomic_store_explicit(&t->stop, true, memory_order_relaxed);
        slot_ring_close(&t->ring);
}

void send_threads_join(struct send_threads *t)
{
        if (t->started_input)
                pthread_join(t->input, NULL);
        if (t->started_network)
                pthread_join(t->network, NULL);
        t->started_input = t->started_network = false;
}

void send_threads_fini(struct send_threads *t)
{
        if (t->ring.slots == 0)
                return;
        send_threads_abort(t);
        send_threads_join(t);
        if (t->done_fd > 0)
                close(t->done_fd);
        if (t->permit_fd > 0)
                close(t->permit_fd);
        raw_send_fini(t);
        slot_ring_fini(&t->ring);
}
