/* The facts of a device in the real kernel, how they change, and who changes them; and the state file of a
 * device that is gone. Each test leaves the device as it was, except the last one, which deletes it. */
#include "tc_network.h"

#include <sys/ioctl.h>
#include <sys/prctl.h>

#include "base/strbuf.h"
#include "shape/kernel/state_file.h"
#include "shape/kernel/watch.h"

#define OTHER_NAME "evb7"

static struct tc_destination destinations[4];

/* Runs ip in this namespace, with a time limit. */
static void ip(const char *arguments)
{
        char command[256];

        snprintf(command, sizeof command, "timeout 20 ip %s", arguments);
        if (system(command) != 0)
                fail_msg("ip %s failed", arguments);
}

static void set_link(const char *name, bool up)
{
        int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
        struct ifreq i = {.ifr_flags = up ? IFF_UP : 0};

        strcpy(i.ifr_name, name);
        assert_int_equal(ioctl(fd, SIOCSIFFLAGS, &i), 0);
        close(fd);
}

/* Both ends of the veth are up, so that the device has a carrier. */
static void set_up_link(void)
{
        set_link("evb1", true);
        set_link(NETWORK_DEVICE, true);
        assert_true(network_device().up);
}

/* Not only when the kernel has noted the carrier, in a work item. */
TEST(a_carrier_is_seen_at_once)
{
        for (unsigned k = 0; k < 100; k++) {
                set_up_link();
                set_link("evb1", false);
                assert_false(network_device().up);
        }
        set_up_link();
}

TEST(facts_are_those_of_the_device)
{
        struct tc_device d;

        set_up_link();
        d = network_device();
        assert_string_equal(d.name, NETWORK_DEVICE);
        assert_fields(&d, ifindex, if_nametoindex(NETWORK_DEVICE), mtu_bytes, 1500);
        assert_int_equal(d.speed_bps, UINT64_C(10000000000)); /* of any veth */
        assert_true(d.super_packet_bytes >= 65536 && d.queues >= 1 && d.is_virtual);
        assert_int_equal(tc_device_read(&d, "evb-none"), -ENODEV);
}

/* A veth has none of these counts, so nothing is reported about its port. */
TEST(a_port_without_counts_says_nothing)
{
        char text[100] = "";
        struct strbuf what = strbuf_init(text, sizeof text);
        struct tc_device d = network_device();
        struct tc_port p;

        tc_port_read(&p, &d);
        assert_true(p.pause_received == TC_COUNT_UNKNOWN && p.pause_sent == TC_COUNT_UNKNOWN &&
                    p.pfc_received == TC_COUNT_UNKNOWN && p.pfc_sent == TC_COUNT_UNKNOWN &&
                    p.missed == TC_COUNT_UNKNOWN);
        tc_port_describe(&p, &what);
        assert_string_equal(text, "");
}

/* An answer as the kernel lays it out (linux/ethtool_netlink.h, linux/dcbnl.h). */
static int decode(int (*read)(const struct nlmsghdr *m, void *ctx), const char *hex, struct tc_port *p)
{
        uint8_t bytes[256] __attribute__((aligned(8)));
        size_t n = 0;

        for (unsigned v; sscanf(hex, "%2x", &v) == 1; hex += hex[2] == ' ' ? 3 : 2)
                bytes[n++] = (uint8_t)v;
        assert_int_equal(((const struct nlmsghdr *)(const void *)bytes)->nlmsg_len, n);
        return read((const void *)bytes, p);
}

TEST(a_port_says_what_it_counts)
{
        /* Device; autonegotiation, reception, transmission; statistics: 12 sent, 5123 received. */
        static const char pause[] = "60000000 1f000000 00000000 00000000 16010000 "
                                    "18000180 08000100 02000000 09000200 65746831 00000000 "
                                    "05000200 01000000 05000300 01000000 05000400 00000000 "
                                    "1c000580 0c000200 0c000000 00000000 0c000300 03140000 00000000";
        /* Autonegotiation without statistics: another driver, or Linux before 5.9. */
        static const char silent[] = "1c000000 1f000000 00000000 00000000 16010000 05000200 01000000";
        /* Eight priorities: 1 frame of priority 3 sent, 2 and 5 of priorities 0 and 7 received. */
        static const char pfc[] =
                "a4000000 4e000000 00000000 00000000 00150000 90000d00 8c000200 08080000 00000000 "
                "0000000000000000 0000000000000000 0000000000000000 0100000000000000 "
                "0000000000000000 0000000000000000 0000000000000000 0000000000000000 "
                "0200000000000000 0000000000000000 0000000000000000 0000000000000000 "
                "0000000000000000 0000000000000000 0000000000000000 0500000000000000";
        char text[400] = "";
        struct strbuf what = strbuf_init(text, sizeof text);
        struct tc_port p = {.pause_received = TC_COUNT_UNKNOWN, .missed = 9};

        assert_int_equal(decode(tc_port_decode_pause, silent, &p), 0);
        assert_true(p.pause_received == TC_COUNT_UNKNOWN && p.pause_sent == 0);
        assert_int_equal(decode(tc_port_decode_pause, pause, &p), 0);
        assert_fields(&p, pause_received, 5123, pause_sent, 12, pfc_received, 0, pfc_sent, 0);
        assert_int_equal(decode(tc_port_decode_pfc, pfc, &p), 0);
        assert_fields(&p, pause_received, 5123, pfc_received, 7, pfc_sent, 1);
        tc_port_describe(&p, &what);
        assert_string_equal(text, "received 5123 pause frames: the switch held this device back; "
                                  "received 7 PFC frames: the switch held back single priorities; "
                                  "sent 12 pause frames: it could not receive fast enough; "
                                  "sent 1 PFC frames: it could not receive single priorities fast enough; "
                                  "dropped 9 received packets: its buffers were full");
}

/* A driver that was loaded again counts from 0, and one may report a count only later. */
TEST(a_port_is_compared_with_itself_before)
{
        const struct tc_port before = {.pause_received = 5123,
                                       .pause_sent = 12,
                                       .pfc_received = 7,
                                       .pfc_sent = TC_COUNT_UNKNOWN,
                                       .missed = TC_COUNT_UNKNOWN},
                             now = {.pause_received = 5130,
                                    .pause_sent = 3,
                                    .pfc_received = 7,
                                    .pfc_sent = 4,
                                    .missed = TC_COUNT_UNKNOWN};
        const struct tc_port more = tc_port_since(&now, &before);
        char text[TC_PORT_TEXT_MAX] = "";
        struct strbuf to = strbuf_init(text, sizeof text);

        assert_fields(&more, pause_received, 7, pause_sent, 3, pfc_received, 0);
        assert_true(more.pfc_sent == TC_COUNT_UNKNOWN && more.missed == TC_COUNT_UNKNOWN);
        tc_port_explain(&more, "eth1", &to);
        assert_string_equal(text, "eth1: since its driver was loaded, the device "
                                  "received 7 pause frames: the switch held this device back; "
                                  "sent 3 pause frames: it could not receive fast enough");
        to = strbuf_init(text, sizeof text);
        text[0] = '\0';
        tc_port_explain(&(struct tc_port){.missed = TC_COUNT_UNKNOWN}, "eth1", &to);
        assert_string_equal(text, "");
}

TEST(a_count_that_is_too_short_is_unknown)
{
        static const char pause[] = "20000000 1f000000 00000000 00000000 16010000 "
                                    "0c000580 08000300 07000000";
        static const char pfc[] = "20000000 4e000000 00000000 00000000 00150000 "
                                  "0c000d00 08000200 08080000";
        struct tc_port p = {.pause_received = TC_COUNT_UNKNOWN, .pfc_received = TC_COUNT_UNKNOWN};

        assert_int_equal(decode(tc_port_decode_pause, pause, &p), 0);
        assert_int_equal(decode(tc_port_decode_pfc, pfc, &p), 0);
        assert_true(p.pause_received == TC_COUNT_UNKNOWN && p.pfc_received == TC_COUNT_UNKNOWN);
}

static bool is_virtual(const char *name)
{
        struct tc_device d;

        assert_int_equal(tc_device_read(&d, name), 0);
        return d.is_virtual;
}

/* No hardware is below a bridge of veths. The loopback device stands for hardware: it has no kind either. */
TEST(a_link_is_virtual_if_all_below_it_is)
{
        ip("link add evbbr type bridge && ip link add evb4 type veth peer name evb5 && "
           "ip link set evb4 master evbbr");
        assert_true(is_virtual("evbbr"));
        assert_true(is_virtual("evb4"));
        assert_false(is_virtual("lo"));
        ip("link add link evb5 evb8 type macvlan");
        assert_true(is_virtual("evb8"));
        ip("link set evb8 master evbbr");
        assert_true(is_virtual("evbbr"));
        ip("link del evb4; ip link del evbbr");
}

/* Expects these changes, and their description. */
static void assert_follows(struct tc_device *d, int changes, const char *what)
{
        char text[300] = "";
        struct strbuf b = strbuf_init(text, sizeof text);

        assert_int_equal(tc_device_follow(d, &b), changes);
        assert_string_equal(text, what);
}

TEST(a_device_is_followed_by_its_number)
{
        struct tc_device d;

        set_up_link();
        d = network_device();
        assert_follows(&d, 0, "");
        ip("link set " NETWORK_DEVICE " mtu 1400");
        assert_follows(&d, TC_DEVICE_FACTS, "has an MTU of 1400 instead of 1500 bytes");
        assert_follows(&d, 0, "");
        ip("link set " NETWORK_DEVICE " down mtu 1500 name " OTHER_NAME);
        assert_follows(&d, TC_DEVICE_RENAMED | TC_DEVICE_DOWN | TC_DEVICE_FACTS,
                       "is now called " OTHER_NAME "; is down; has an MTU of 1500 instead of 1400 bytes");
        ip("link set " OTHER_NAME " name " NETWORK_DEVICE);
        set_up_link();
        assert_follows(&d, TC_DEVICE_RENAMED | TC_DEVICE_UP, "is now called " NETWORK_DEVICE "; is up");
        d.ifindex = 12345;
        char text[300];
        struct strbuf b = strbuf_init(text, sizeof text);

        assert_int_equal(tc_device_follow(&d, &b), -ENODEV);
}

TEST(segmentation_offload_is_switched)
{
        uint32_t before_bytes = network_device().super_packet_bytes;
        struct tc_device d = network_device();
        struct tc_ack ack;

        assert_int_equal(tc_device_segment(NETWORK_DEVICE, false, &ack), 0);
        assert_int_equal(network_device().super_packet_bytes, 0);
        char text[300] = "";
        struct strbuf b = strbuf_init(text, sizeof text);

        assert_int_equal(tc_device_follow(&d, &b), TC_DEVICE_FACTS);
        assert_non_null(strstr(text, "takes super-packets of 0 instead of"));
        assert_int_equal(tc_device_segment(NETWORK_DEVICE, true, &ack), 0);
        assert_int_equal(network_device().super_packet_bytes, before_bytes);
        assert_int_equal(tc_device_segment("evb-none", true, &ack), -ENODEV);
}

static bool has_ipv6(void)
{
        FILE *from = fopen("/proc/sys/net/ipv6/conf/" NETWORK_DEVICE "/disable_ipv6", "re");
        bool enabled = from && fgetc(from) == '0';

        if (from)
                fclose(from);
        return enabled;
}

TEST(a_device_is_found_by_its_address)
{
        char name[IF_NAMESIZE];

        set_up_link();
        ip("addr add 10.1.0.5/24 dev " NETWORK_DEVICE);
        assert_int_equal(tc_device_of_address("10.1.0.5", name), 0);
        assert_string_equal(name, NETWORK_DEVICE);
        assert_int_equal(tc_device_of_address("10.1.0.6", name), -ENODEV);
        assert_int_equal(tc_device_of_address("fd00::5", name), -ENODEV);
        assert_int_equal(tc_device_of_address("evb", name), -ENODEV);
        if (has_ipv6()) {
                ip("addr add fd00::5/64 dev " NETWORK_DEVICE);
                assert_int_equal(tc_device_of_address("fd00::5", name), 0);
                assert_string_equal(name, NETWORK_DEVICE);
        }
        ip("addr flush dev " NETWORK_DEVICE);
}

/* The next event that is not of the link; the kernel reports changes at once. */
static struct tc_event next_change(struct tc_watch *w)
{
        struct tc_event e = {};

        do {
                free(e.object.options);
                e.object.options = NULL;
                if (tc_watch_next(w, &e) != 1)
                        fail_msg("no event");
        } while (e.what == TC_EVENT_LINK);
        return e;
}

/* Reads all events that wait. */
static void drain(struct tc_watch *w)
{
        struct tc_event e;

        while (tc_watch_next(w, &e) == 1)
                free(e.object.options);
}

TEST(events_name_object_and_author)
{
        struct tc_request q = sample_request(destinations, ARRAY_SIZE(destinations), TC_BACKEND_HTB_TBF);
        struct tc_watch *ours, *others;
        char name[100], expected[100];
        struct tc_shaper *s = network_shaper();
        struct tc_event e;

        assert_int_equal(prctl(PR_SET_NAME, "evb\ttest"), 0);
        assert_int_equal(tc_watch_new(&ours, network_device().ifindex, (uint32_t)getpid()), 0);
        assert_int_equal(tc_watch_new(&others, (int)if_nametoindex("evb1"), 0), 0);
        assert_true(apply(s, &q) > 0);
        /* First, the kernel is asked which kinds it supports. */
        do {
                e = next_change(ours);
                free(e.object.options);
        } while (e.what != TC_EVENT_CHANGED || e.object.handle != TC_OUR_ROOT);
        assert_int_equal(e.object.type, TC_QDISC);
        assert_string_equal(e.object.kind_name, "htb");
        drain(ours);
        network_tc("qdisc del dev " NETWORK_DEVICE " root");
        do {
                e = next_change(ours);
                free(e.object.options);
        } while (e.what != TC_EVENT_DELETED);
        assert_false(e.by_us);
        assert_true(e.port > 0);
        /* That process has ended. */
        snprintf(expected, sizeof expected, "netlink port %u", e.port);
        assert_string_equal(tc_event_actor(&e, name, sizeof name), expected);
        e.port = (uint32_t)getpid();
        snprintf(expected, sizeof expected, "evb?test (process %d)", (int)getpid());
        assert_string_equal(tc_event_actor(&e, name, sizeof name), expected);
        e.port = 0;
        assert_string_equal(tc_event_actor(&e, name, sizeof name), "the kernel");
        /* Nothing of this was on the other device, which gets its default qdisc with its carrier. */
        while (tc_watch_next(others, &e) == 1) {
                assert_true(e.what == TC_EVENT_LINK || TC_MAJOR(e.object.handle) != TC_OUR_MAJOR);
                free(e.object.options);
        }
        tc_watch_free(ours);
        tc_watch_free(others);
        network_remove(s);
}

TEST(events_of_the_link_are_reported)
{
        struct tc_watch *w;
        struct tc_event e;

        assert_int_equal(tc_watch_new(&w, network_device().ifindex, 0), 0);
        assert_true(tc_watch_fd(w) >= 0);
        assert_int_equal(tc_watch_next(w, &e), 0);
        ip("link set " NETWORK_DEVICE " mtu 1400");
        assert_int_equal(tc_watch_next(w, &e), 1);
        assert_int_equal(e.what, TC_EVENT_LINK);
        ip("link set " NETWORK_DEVICE " mtu 1500");
        tc_watch_free(w);
}

/* Leaves the state of a device, as a process that was killed does. */
static void leave_state(struct tc_device d)
{
        _cleanup_(tc_state_fini) struct tc_state s;
        int holder;

        assert_int_equal(tc_state_open(&s, &d, &holder), 0);
        assert_true(s.empty && !s.unreadable);
        s.sources = 6;
        assert_int_equal(tc_state_write(&s), 0);
}

/* The end of a state file, after its list of saved objects. */
#define REST "\"asked\": [{\"address\": \"10.0.0.5\", \"rate_bps\": 3}]}"
#define SAVED(object) "{\"format\": 1, \"of\": \"%s\", \"sources\": 4, \"saved\": [" object "], " REST
#define OBJECT(type, kind, hex, more)                                                                        \
        "{\"type\": " type ", \"handle\": 65536, \"parent\": 4294967295, \"kernel_handle\": 65536, "         \
        "\"priority\": 0, \"protocol\": 0, \"kind\": \"" kind "\", \"options\": \"" hex "\"" more "}"

/* What a program finds in a state file with this content ("%s": the identity of the device). */
static int peek_at(const char *content, struct tc_state *ret, bool *ret_unreadable)
{
        struct tc_device d = network_device();
        struct tc_state s;
        int holder, r;
        FILE *f;

        assert_int_equal(tc_state_open(&s, &d, &holder), 0);
        f = fopen(s.path, "we");
        assert_non_null(f);
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
        fprintf(f, content, s.of);
#pragma GCC diagnostic pop
        assert_int_equal(fclose(f), 0);
        r = tc_state_peek(ret, &d);
        s.empty = false;
        tc_state_fini(&s);
        assert_int_equal(tc_state_open(&s, &d, &holder), 0);
        *ret_unreadable = s.unreadable;
        assert_int_equal(s.empty, r < 0);
        tc_state_erase(&s);
        tc_state_fini(&s);
        return r;
}

/* Damaged files and those of other devices are no state, and only the damaged ones are reported. */
TEST(state_files_are_not_trusted)
{
        static const struct {
                const char *content;
                int result;
                bool unreadable;
        } cases[] = {
                {"", -ENOENT, false},
                {"{\"format\": 1, \"of\": \"another device\", \"saved\": [], " REST, -ENOENT, false},
                {"{\"format\": 2, \"of\": \"%s\", \"saved\": [], " REST, -EBADMSG, true},
                {"{\"format\": 1, \"of\": \"%s\"", -EBADMSG, true},
                {"[]", -EBADMSG, true},
                {"{\"format\": 1, \"of\": \"%s\", \"asked\": [{\"address\": \"x\"}]}", -EBADMSG, true},
                {SAVED("{}"), -EBADMSG, true},
                {SAVED(OBJECT("9", "bfifo", "00000100", "")), -EBADMSG, true},
                {SAVED(OBJECT("0", "a kind of too many letters", "00000100", "")), -EBADMSG, true},
                {SAVED(OBJECT("0", "bfifo", "0000xx00", "")), -EBADMSG, true},
                {SAVED(OBJECT("0", "bfifo", "00000100", ", \"stab\": \"00\"")), -EBADMSG, true},
                {SAVED(OBJECT("0", "bfifo", "00000100", "")), 0, false},
        };
        struct tc_state s;
        bool unreadable;

        for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
                int r = peek_at(cases[i].content, &s, &unreadable);

                if (r != cases[i].result || unreadable != cases[i].unreadable)
                        fail_msg("%s: %d", cases[i].content, r);
        }
        assert_int_equal(s.sources, 4);
        assert_int_equal(s.saved.n, 1);
        assert_string_equal(s.saved.objects[0].kind_name, "bfifo");
        assert_int_equal(s.saved.objects[0].params.fifo.limit, 0x10000);
        assert_int_equal(s.n_asked, 1);
        assert_int_equal(s.asked[0].rate_bps, 3);
        tc_state_fini(&s);
        struct tc_device d = network_device();

        assert_int_equal(tc_state_peek(&s, &d), -ENOENT);
}

TEST(the_state_of_a_lost_device_is_found)
{
        struct tc_device d = network_device();
        struct tc_state_lost lost;
        struct tc_watch *w;
        struct tc_event e;

        leave_state(d);
        assert_false(tc_state_find_lost(NETWORK_DEVICE, true, &lost)); /* it is still there */
        ip("link set " NETWORK_DEVICE " down name " OTHER_NAME);
        assert_false(tc_state_find_lost(NETWORK_DEVICE, false, &lost));
        assert_true(tc_state_find_lost(NETWORK_DEVICE, true, &lost));
        assert_string_equal(lost.now, OTHER_NAME);
        assert_int_equal(tc_watch_new(&w, d.ifindex, 0), 0);
        ip("link del " OTHER_NAME);
        do
                assert_int_equal(tc_watch_next(w, &e), 1);
        while (e.what != TC_EVENT_LINK_GONE);
        tc_watch_free(w);
        assert_false(tc_state_find_lost("evb-none", true, &lost));
        assert_true(tc_state_find_lost(NETWORK_DEVICE, false, &lost));
        assert_int_equal(lost.ifindex, d.ifindex);
        assert_string_equal(lost.now, "");
        assert_int_equal(tc_state_remove_lost(&lost), 0);
        assert_false(tc_state_find_lost(NETWORK_DEVICE, false, &lost));
}
