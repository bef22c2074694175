/* Runs the BPF program of EDT with chosen packets, in the kernel but without a device. */
#include "tc_sample.h"

#include <linux/pkt_cls.h>
#include <netinet/in.h>

#include "shape/kernel/edt.h"
#include "shape/model/kind.h"
#include "sys/bpf.h"
#include "sys/loop.h"

#define FRAME_BYTES 1514u
/* A frame takes about a minute, which is long compared with what this test takes. */
#define RATE_BPS (FRAME_BYTES * 8 / 60)
#define PORT 26800

enum shape { V4, V6, FRAGMENT, ARP, NEIGHBOUR };

struct sent {
        uint32_t result, priority;
        uint64_t departure_ns; /* 0: none */
        uint8_t frame[100];    /* as it leaves */
};

/* Of each packet that is sent; 0: it is not a super-packet. */
static uint32_t segments;
/* Of each packet that is sent (RFC 3168, 5). */
enum { NOT_ECT, CE = 3 };
static uint8_t ecn;

static void fini(struct edt *e)
{
        edt_close(e);
}

static struct tc_object destination(const char *text, uint64_t rate_bps, uint64_t limit_bytes,
                                    unsigned number)
{
        struct tc_address a;
        struct tc_object o = {.type = TC_CLASS,
                              .kind = &tc_kind_edt,
                              .handle = TC_ID(TC_OUR_MAJOR, 0x1000 | number),
                              .parent = TC_OUR_ROOT};

        assert_true(tc_address_parse(&a, text));
        strcpy(o.kind_name, "edt");
        o.params.edt = (struct tc_edt){.is_v6 = a.n_bytes == 16,
                                       .rate_bps = rate_bps,
                                       .limit_bytes = limit_bytes,
                                       .control_port = PORT};
        memcpy(o.params.edt.address, a.bytes, a.n_bytes);
        return o;
}

static void change(struct edt *e, enum tc_verb verb, const struct tc_object *o)
{
        int r = edt_change(e, &(struct tc_change){verb, o, 0});

        if (r == -EPERM || r == -ENOSYS) {
                print_message("SKIPPED: %s\n",
                              r == -EPERM ? "loading a BPF program needs root" : "no bpf system call");
                skip();
        }
        assert_return_code(r, -r);
}

/* RFC 791, 3.1 */
static void write_checksum(uint8_t *ip)
{
        uint32_t sum = 0;

        for (unsigned i = 0; i < 20; i += 2)
                sum += (uint32_t)(ip[i] << 8 | ip[i + 1]);
        sum = (sum & 0xffff) + (sum >> 16);
        sum = ~(sum + (sum >> 16));
        ip[10] = (uint8_t)(sum >> 8), ip[11] = (uint8_t)sum;
}

static void write_header(uint8_t *frame, enum shape shape, const char *to, uint16_t port)
{
        static const uint16_t types[] = {
                [V4] = 0x0800, [V6] = 0x86dd, [FRAGMENT] = 0x0800, [ARP] = 0x0806, [NEIGHBOUR] = 0x86dd};
        bool v6 = types[shape] == 0x86dd;
        uint8_t *ip = frame + 14, *payload = ip + (v6 ? 40 : 20);
        struct tc_address a;

        assert_true(tc_address_parse(&a, to));
        frame[12] = (uint8_t)(types[shape] >> 8), frame[13] = (uint8_t)types[shape];
        memcpy(ip + (v6 ? 24 : 16), a.bytes, a.n_bytes);
        ip[0] = v6 ? 0x60 : 0x45;
        ip[1] = v6 ? (uint8_t)(ecn << 4) : ecn;
        ip[v6 ? 6 : 9] = shape == NEIGHBOUR ? IPPROTO_ICMPV6 : IPPROTO_UDP;
        ip[7] = shape == FRAGMENT ? 100 : v6 ? 255 : 0;
        payload[0] = shape == NEIGHBOUR ? 135 : 0;
        payload[2] = (uint8_t)(port >> 8), payload[3] = (uint8_t)port;
        if (types[shape] == 0x0800)
                write_checksum(ip);
}

static struct sent send_packet(const struct edt *e, enum shape shape, const char *to, uint16_t port,
                               uint64_t own_ns)
{
        struct sent sent;
        uint8_t frame[sizeof sent.frame] = {};
        struct __sk_buff context = {.tstamp = own_ns, .wire_len = FRAME_BYTES, .gso_segs = segments},
                         after = {};
        union bpf_attr attr = {.test = {.prog_fd = (uint32_t)e->program,
                                        .data_in = bpf_address(frame),
                                        .data_size_in = sizeof frame,
                                        .data_out = bpf_address(sent.frame),
                                        .data_size_out = sizeof sent.frame,
                                        .ctx_in = bpf_address(&context),
                                        .ctx_size_in = sizeof context,
                                        .ctx_out = bpf_address(&after),
                                        .ctx_size_out = sizeof after}};
        int r;

        write_header(frame, shape, to, port);
        r = bpf_call(BPF_PROG_TEST_RUN, &attr);
        assert_return_code(r, -r);
        sent.result = attr.test.retval;
        sent.priority = after.priority;
        sent.departure_ns = after.tstamp;
        return sent;
}

static uint64_t departure(const struct edt *e, const char *to)
{
        struct sent s = send_packet(e, strchr(to, ':') ? V6 : V4, to, PORT + 1, 0);

        assert_int_equal(s.result, (uint32_t)TC_ACT_UNSPEC);
        return s.departure_ns;
}

/* The first packet leaves now, and each later one when its rate has sent those before it, whatever happens to
 * other destinations. */
TEST(packets_leave_at_the_rate_of_their_destination)
{
        _cleanup_(fini) struct edt e = EDT_CLOSED;
        const struct tc_object a = destination("10.0.0.5", RATE_BPS, UINT32_MAX, 1),
                               b = destination("fd00::5", 2 * RATE_BPS, UINT32_MAX, 2);
        uint64_t before_ns, first_a, first_b;

        change(&e, TC_ADD, &a);
        change(&e, TC_ADD, &b);
        before_ns = clock_now_ns();
        first_a = departure(&e, "10.0.0.5");
        first_b = departure(&e, "fd00::5");
        assert_in_range(first_a, before_ns, clock_now_ns());
        assert_in_range(first_b, first_a, clock_now_ns());
        for (uint64_t i = 1; i < 5; i++) {
                uint64_t cost_ns = FRAME_BYTES * 8 * NS_PER_S / RATE_BPS;

                assert_in_range(departure(&e, "10.0.0.5"), first_a + i * cost_ns,
                                first_a + i * cost_ns + i + 1);
                assert_in_range(departure(&e, "fd00::5"), first_b + i * cost_ns / 2,
                                first_b + i * cost_ns / 2 + i + 1);
        }
}

/* Each segment of a super-packet has its own preamble, checksum and gap on the wire. */
TEST(each_segment_costs_its_overhead)
{
        _cleanup_(fini) struct edt e = EDT_CLOSED;
        _cleanup_(tc_tree_fini) struct tc_tree t = {};
        struct tc_object to = destination("10.0.0.5", RATE_BPS, UINT32_MAX, 1);
        uint64_t due, alone_ns = (FRAME_BYTES + 24) * 8 * NS_PER_S / RATE_BPS,
                      super_ns = (FRAME_BYTES + 4 * 24) * 8 * NS_PER_S / RATE_BPS;

        to.params.edt.overhead_bytes = 24;
        change(&e, TC_ADD, &to);
        due = departure(&e, "10.0.0.5") + alone_ns;
        segments = 4;
        assert_in_range(departure(&e, "10.0.0.5"), due, due + 2);
        segments = 0;
        due += super_ns;
        assert_in_range(departure(&e, "10.0.0.5"), due, due + 3);
        assert_int_equal(edt_read(&e, &t), 0);
        assert_int_equal(t.n, 1);
        assert_true(tc_object_equal(&t.objects[0], &to));
        assert_fields(&t.objects[0].counters, packets, 6, bytes, 3 * FRAME_BYTES);
}

/* A byte at 400 Gbit/s takes 0.02 ns, which whole ns could not express. */
TEST(rounding_costs_less_than_a_thousandth)
{
        enum { N = 10000 };
        _cleanup_(fini) struct edt e = EDT_CLOSED;
        const struct tc_object slow = destination("10.0.0.5", RATE_BPS, UINT32_MAX, 1),
                               fast = destination("10.0.0.5", UINT64_C(400000000000),
                                                  UINT64_C(180000000000000), 1);
        uint64_t first, last = 0, exact_ns = N * FRAME_BYTES * UINT64_C(8) / 400;

        change(&e, TC_ADD, &slow);
        /* The next departure is in the future, so the time that the test takes does not matter. */
        (void)departure(&e, "10.0.0.5");
        change(&e, TC_CHANGE, &fast);
        first = departure(&e, "10.0.0.5");
        for (unsigned i = 0; i < N; i++)
                last = departure(&e, "10.0.0.5");
        assert_in_range(last - first, exact_ns, exact_ns + exact_ns / 1000);
}

/* A new rate applies from the next packet on; the packets before it keep their times. */
TEST(a_new_rate_does_not_reset_the_times)
{
        _cleanup_(fini) struct edt e = EDT_CLOSED;
        struct tc_object to = destination("10.0.0.5", RATE_BPS, UINT32_MAX, 1);
        const uint64_t cost_ns = FRAME_BYTES * 8 * NS_PER_S / RATE_BPS;
        uint64_t first;

        change(&e, TC_ADD, &to);
        first = departure(&e, "10.0.0.5");
        to.params.edt.rate_bps *= 2;
        change(&e, TC_CHANGE, &to);
        assert_in_range(departure(&e, "10.0.0.5"), first + cost_ns, first + cost_ns + 2);
        assert_in_range(departure(&e, "10.0.0.5"), first + cost_ns * 3 / 2, first + cost_ns * 3 / 2 + 3);
}

/* As many bytes wait as the limit says, and the others count as dropped. A destination that comes back begins
 * anew. */
TEST(what_exceeds_the_limit_is_dropped_and_counted)
{
        _cleanup_(fini) struct edt e = EDT_CLOSED;
        _cleanup_(tc_tree_fini) struct tc_tree t = {}, again = {};
        struct tc_object to = destination("10.0.0.5", RATE_BPS, 3 * FRAME_BYTES + 100, 7);

        change(&e, TC_ADD, &to);
        for (unsigned i = 0; i < 5; i++)
                assert_int_equal(send_packet(&e, V4, "10.0.0.5", 1, 0).result,
                                 i < 3 ? (uint32_t)TC_ACT_UNSPEC : TC_ACT_SHOT);
        assert_int_equal(edt_read(&e, &t), 0);
        assert_int_equal(t.n, 1);
        assert_true(tc_object_equal(&t.objects[0], &to));
        assert_fields(&t.objects[0].counters, packets, 3, bytes, 3 * FRAME_BYTES, drops, 2);
        change(&e, TC_DELETE, &to);
        assert_int_equal(send_packet(&e, V4, "10.0.0.5", 1, 0).departure_ns, 0);
        change(&e, TC_ADD, &to);
        assert_int_equal(send_packet(&e, V4, "10.0.0.5", 1, 0).result, (uint32_t)TC_ACT_UNSPEC);
        assert_int_equal(edt_read(&e, &again), 0);
        assert_fields(&again.objects[0].counters, packets, 1, drops, 0);
}

/* Beyond half of the limit, the mark replaces ECT(0) and ECT(1); only the checksum changes with it. */
TEST_EACH(packets_that_wait_long_are_marked, v6, 2)
{
        static const char *const addresses[] = {"10.0.0.5", "fd00::5"};
        _cleanup_(fini) struct edt e = EDT_CLOSED;
        const struct tc_object to =
                destination(addresses[v6], RATE_BPS, 10 * FRAME_BYTES + FRAME_BYTES / 2, 1);

        change(&e, TC_ADD, &to);
        for (unsigned i = 0; i < 11; i++) {
                uint8_t expected[sizeof(struct sent){}.frame] = {};
                struct sent s;

                ecn = i % 4;
                s = send_packet(&e, v6 ? V6 : V4, addresses[v6], PORT + 1, 0);
                ecn = i > 5 && ecn != NOT_ECT ? CE : ecn;
                write_header(expected, v6 ? V6 : V4, addresses[v6], PORT + 1);
                ecn = NOT_ECT;
                assert_int_equal(s.result, i < 10 ? (uint32_t)TC_ACT_UNSPEC : TC_ACT_SHOT);
                if (i < 10 && memcmp(s.frame, expected, sizeof expected) != 0)
                        fail_msg("packet %u has the type of service %x instead of %x", i, s.frame[15],
                                 expected[15]);
        }
}

TEST(what_is_not_data_has_no_departure_time)
{
        static const struct {
                enum shape shape;
                const char *to;
                uint16_t port;
                bool waits;
        } cases[] = {
                {V4, "10.0.0.5", PORT, false},      {V6, "fd00::5", PORT, false},
                {V4, "10.0.0.6", PORT + 1, false},  {V6, "fd00::6", PORT + 1, false},
                {ARP, "10.0.0.5", PORT + 1, false}, {NEIGHBOUR, "fd00::5", PORT + 1, false},
                {V4, "10.0.0.5", PORT + 1, true},   {V6, "fd00::5", PORT + 1, true},
                {FRAGMENT, "10.0.0.5", PORT, true},
        };
        _cleanup_(fini) struct edt e = EDT_CLOSED;
        const struct tc_object a = destination("10.0.0.5", RATE_BPS, UINT32_MAX, 1),
                               b = destination("fd00::5", RATE_BPS, UINT32_MAX, 2);

        change(&e, TC_ADD, &a);
        change(&e, TC_ADD, &b);
        for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
                struct sent s = send_packet(&e, cases[i].shape, cases[i].to, cases[i].port, 0);

                assert_int_equal(s.result, (uint32_t)TC_ACT_UNSPEC);
                if ((s.departure_ns != 0) != cases[i].waits)
                        fail_msg("packet %zu has the departure time %llu", i,
                                 (unsigned long long)s.departure_ns);
        }
}

/* If the device shapes, packets get the class of their destination, and no time. */
TEST(packets_get_the_class_of_their_destination)
{
        static const struct {
                enum shape shape;
                const char *to;
                uint16_t port;
                uint32_t priority;
        } cases[] = {
                {V4, "10.0.0.5", PORT + 1, TC_ID(TC_OUR_MAJOR, 0x1007)},
                {V6, "fd00::5", PORT + 1, TC_ID(TC_OUR_MAJOR, 0x1008)},
                {FRAGMENT, "10.0.0.5", PORT, TC_ID(TC_OUR_MAJOR, 0x1007)},
                {V4, "10.0.0.5", PORT, TC_CONTROL_CLASS},
                {NEIGHBOUR, "fd00::5", PORT + 1, TC_CONTROL_CLASS},
                {V4, "10.0.0.6", PORT, 0},
                {ARP, "10.0.0.5", PORT, 0},
        };
        _cleanup_(fini) struct edt e = EDT_CLOSED;
        _cleanup_(tc_tree_fini) struct tc_tree t = {};
        struct tc_object a = destination("10.0.0.5", 0, 0, 7), b = destination("fd00::5", 0, 0, 8);

        a.handle = TC_ID(TC_OUR_MAJOR, 0x5007), a.params.edt.classid = TC_ID(TC_OUR_MAJOR, 0x1007);
        b.handle = TC_ID(TC_OUR_MAJOR, 0x5008), b.params.edt.classid = TC_ID(TC_OUR_MAJOR, 0x1008);
        change(&e, TC_ADD, &a);
        change(&e, TC_ADD, &b);
        for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
                struct sent s = send_packet(&e, cases[i].shape, cases[i].to, cases[i].port, 0);

                assert_int_equal(s.result, (uint32_t)TC_ACT_UNSPEC);
                assert_int_equal(s.departure_ns, 0);
                if (s.priority != cases[i].priority)
                        fail_msg("packet %zu has the priority %x", i, s.priority);
        }
        assert_int_equal(edt_read(&e, &t), 0);
        tc_tree_sort(&t);
        assert_true(t.n == 2 && tc_object_equal(&t.objects[0], &a) && tc_object_equal(&t.objects[1], &b));
}

/* A packet may leave later than the program says, but a time that is not one of this clock is replaced. */
TEST(a_later_time_of_the_sender_stays)
{
        _cleanup_(fini) struct edt e = EDT_CLOSED;
        const struct tc_object to = destination("10.0.0.5", RATE_BPS, UINT32_MAX, 1);
        uint64_t first, later;

        change(&e, TC_ADD, &to);
        first = departure(&e, "10.0.0.5");
        later = first + 1000 * NS_PER_S;
        assert_int_equal(send_packet(&e, V4, "10.0.0.5", 1, later).departure_ns, later);
        assert_true(send_packet(&e, V4, "10.0.0.5", 1, UINT64_MAX).departure_ns < later);
        assert_true(send_packet(&e, V4, "10.0.0.5", 1, 1).departure_ns > first);
}

/* Another process, or the same one after a restart, finds the destinations by the program's number. */
TEST(another_process_reads_the_destinations)
{
        _cleanup_(fini) struct edt e = EDT_CLOSED, other = EDT_CLOSED;
        _cleanup_(tc_tree_fini) struct tc_tree t = {};

        for (unsigned i = 1; i <= TC_EDT_DESTINATIONS_MAX; i++) {
                char text[TC_ADDRESS_TEXT_MAX];
                struct tc_object o;

                snprintf(text, sizeof text, i % 2 ? "10.0.%u.%u" : "fd00::%x:%x", i / 250, i % 250 + 1);
                o = destination(text, i * UINT64_C(1000), 5000 + i, i);
                change(&e, TC_ADD, &o);
        }
        assert_int_equal(edt_open(&other, e.program_id), 0);
        assert_int_equal(edt_read(&other, &t), 0);
        assert_int_equal(t.n, TC_EDT_DESTINATIONS_MAX);
        tc_tree_sort(&t);
        for (unsigned i = 1; i <= t.n; i++)
                assert_fields(&t.objects[i - 1].params.edt, rate_bps, i * UINT64_C(1000), limit_bytes,
                              5000 + i);
        assert_int_equal(edt_open(&other, UINT32_MAX), -ENOENT);
}
