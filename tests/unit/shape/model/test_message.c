/* Encodes and decodes every kind, compared with golden bytes, and decodes invalid bytes. */
#include "tc_sample.h"

#include <linux/if_ether.h>
#include <linux/pkt_cls.h>
#include <linux/rtnetlink.h>

#include "base/random.h"
#include "shape/model/kind.h"

#define IFINDEX 3

static struct tc_object object(enum tc_type type, const char *kind, uint32_t handle, uint32_t parent)
{
        struct tc_object o = {.type = type, .handle = handle, .parent = parent, .kind = tc_kind_find(kind)};

        strcpy(o.kind_name, kind);
        return o;
}

static struct tc_object filter(uint16_t priority, uint32_t handle)
{
        struct tc_object o = object(TC_FILTER, "u32", handle, TC_OUR_ROOT);

        o.priority = priority;
        o.protocol = ETH_P_IP;
        return o;
}

static struct tc_object htb_root(void)
{
        struct tc_object o = object(TC_QDISC, "htb", TC_OUR_ROOT, TC_ROOT);

        o.params.htb_qdisc = (struct tc_htb_qdisc){.default_class = 3, .rate2quantum = 3707};
        return o;
}

static struct tc_object offloaded_root(void)
{
        struct tc_object o = htb_root();

        o.params.htb_qdisc.offload = true;
        return o;
}

static struct tc_object htb_class(void)
{
        struct tc_object o = object(TC_CLASS, "htb", TC_LINK_CLASS, TC_OUR_ROOT);

        o.params.htb_class = (struct tc_htb_class){
                .rate_bytes = UINT64_C(50000000000),
                .ceil_bytes = UINT64_C(50000000000),
                .burst_ticks = 0x15,
                .cburst_ticks = 0x15,
                .quantum_bytes = 1514,
                .priority = 1,
                .overhead_bytes = 24,
        };
        return o;
}

static struct tc_object tbf(void)
{
        struct tc_object o = object(TC_QDISC, "tbf", TC_ID(0x1001, 0), TC_LINK_CLASS);

        o.params.tbf = (struct tc_tbf){.rate_bytes = UINT64_C(5000000000),
                                       .burst_ticks = 10,
                                       .burst_bytes = 3028,
                                       .limit_bytes = 1000000};
        return o;
}

static struct tc_object bfifo(void)
{
        struct tc_object o = object(TC_QDISC, "bfifo", TC_OUR_ROOT, TC_ROOT);

        o.params.fifo.limit = 1000000;
        return o;
}

static struct tc_object fq_codel(void)
{
        struct tc_object o = object(TC_QDISC, "fq_codel", TC_ID(3, 0), TC_OTHER_CLASS);

        o.params.fq_codel = (struct tc_fq_codel){.limit_packets = 10240,
                                                 .memory_bytes = 16 << 20,
                                                 .target_us = 5000,
                                                 .interval_us = 100000,
                                                 .quantum_bytes = 1514,
                                                 .ecn = true};
        return o;
}

static struct tc_object one_match(uint16_t priority, uint32_t handle, uint8_t last)
{
        struct tc_object o = filter(priority, handle);

        o.params.u32.classid = TC_LINK_CLASS;
        o.params.u32.n_matches = 1;
        o.params.u32.matches[0] = (struct tc_u32_match){{255, 255, 255, 255}, {10, 9, 0, last}, 16};
        return o;
}

static struct tc_object linear(void)
{
        return one_match(20, 1, 2);
}

static struct tc_object table(void)
{
        struct tc_object o = filter(30, 0x10000000);

        o.params.u32.divisor = 256;
        return o;
}

static struct tc_object element(void)
{
        return one_match(30, 0x10005001, 5);
}

static struct tc_object way(void)
{
        struct tc_object o = filter(30, 1);

        o.params.u32 = (struct tc_u32){
                .link = 0x10000000, .hash_mask = {0, 0, 0, 255}, .hash_offset = 16, .n_matches = 1};
        return o;
}

static struct tc_object cbq_class(void)
{
        struct tc_object o = object(TC_CLASS, "cbq", TC_OTHER_CLASS, TC_LINK_CLASS);

        o.params.cbq = (struct tc_cbq){
                .rate_bytes = 1250000,
                .max_idle = 0x1000,
                .min_idle = 0x7fffffff,
                .average_packet_bytes = 1514,
                .allot_bytes = 1514,
                .weight = 125000,
                .split = TC_OUR_ROOT,
                .default_map = 0xffff,
                .min_packet_bytes = 64,
                .cell_log = 3,
                .priority = 3,
                .ewma_log = 5,
                .bounded = true,
        };
        return o;
}

static struct tc_object fq(void)
{
        struct tc_object o = object(TC_QDISC, "fq", TC_OUR_ROOT, TC_ROOT);

        o.params.fq = (struct tc_fq){1000000, 100000, UINT32_C(3600000000)};
        return o;
}

static struct tc_object bpf(void)
{
        struct tc_object o = object(TC_FILTER, "bpf", 1, TC_EGRESS);

        o.priority = 1;
        o.protocol = ETH_P_ALL;
        o.params.bpf = (struct tc_bpf){.fd = 7, .owns_clsact = true};
        return o;
}

/* Multi-byte numbers are little-endian. tc 6.1 sends the same bytes, except for its rate tables and whole
 * microseconds. Header: length, type and flags, sequence number, port. */
static const struct golden {
        const char *name;
        struct tc_object (*make)(void);
        enum tc_verb verb;
        uint32_t kernel_handle;
        const char *hex; /* as much as is looked at */
        size_t bytes;
} goldens[] = {
        {"htb", htb_root, TC_ADD, 0,
         "48000000 24000506 00000000 00000000 00000000 03000000 00007b0e ffffffff 00000000"
         "08000100 68746200 1c000200 18000200 03000000 7b0e0000 03000000 00000000 00000000",
         72},
        {"htb that the device offloads", offloaded_root, TC_ADD, 0,
         "4c000000 24000506 00000000 00000000 00000000 03000000 00007b0e ffffffff 00000000"
         "08000100 68746200 20000200 18000200 03000000 7b0e0000 03000000 00000000 00000000 04000900",
         76},
        {"htb class of 400 Gbit/s", htb_class, TC_CHANGE, 0,
         "78000000 28000500 00000000 00000000 00000000 03000000 01007b0e 00007b0e 00000000"
         "08000100 68746200 4c000200"
         "30000100 00011800 00000000 ffffffff 00011800 00000000 ffffffff 15000000 15000000 ea050000 00000000 "
         "01000000"
         "0c000600 00743ba4 0b000000 0c000700 00743ba4 0b000000",
         120},
        {"tbf of 40 Gbit/s", tbf, TC_REPLACE, 0,
         "6c000000 24000505 00000000 00000000 00000000 03000000 00000110 01007b0e 00000000"
         "08000100 74626600 40000200"
         "28000100 00010000 00000000 ffffffff 00000000 00000000 00000000 40420f00 0a000000 00000000"
         "0c000400 00f2052a 01000000 08000600 d40b0000",
         108},
        {"bfifo", bfifo, TC_ADD, 0,
         "38000000 24000506 00000000 00000000 00000000 03000000 00007b0e ffffffff 00000000"
         "0a000100 62666966 6f000000 08000200 40420f00",
         56},
        {"fq_codel", fq_codel, TC_ADD, 0,
         "68000000 24000506 00000000 00000000 00000000 03000000 00000300 03007b0e 00000000"
         "0d000100 66715f63 6f64656c 00000000 34000200"
         "08000100 88130000 08000200 00280000 08000300 a0860100 08000400 01000000 08000600 ea050000"
         "08000900 00000001",
         104},
        {"fq", fq, TC_ADD, 0,
         "50000000 24000506 00000000 00000000 00000000 03000000 00007b0e ffffffff 00000000"
         "07000100 66710000 24000200"
         "08000100 40420f00 08000200 a0860100 08000e00 00a493d6 08000b00 7b0e0000",
         80},
        {"bpf at the egress", bpf, TC_REPLACE, 0,
         "54000000 2c000505 00000000 00000000 00000000 03000000 01000000 f3ffffff 00030100"
         "08000100 62706600 28000200"
         "08000600 07000000 13000700 6576622d 65647420 636c7361 63740000 08000800 01000000",
         84},
        {"u32 of one address", linear, TC_ADD, 0,
         "5c000000 2c000506 00000000 00000000 00000000 03000000 01000000 00007b0e 08001400"
         "08000100 75333200 30000200 08000100 01007b0e"
         "24000500 01000100 00000000 00000000 00000000 ffffffff 0a090002 10000000 00000000",
         92},
        {"u32 table", table, TC_ADD, 0,
         "38000000 2c000506 00000000 00000000 00000000 03000000 00000010 00007b0e 08001e00"
         "08000100 75333200 0c000200 08000400 00010000",
         56},
        {"u32 in a table", element, TC_ADD, 0,
         "64000000 2c000506 00000000 00000000 00000000 03000000 01000000 00007b0e 08001e00"
         "08000100 75333200 38000200 08000100 01007b0e 08000200 00500010"
         "24000500 01000100 00000000 00000000 00000000 ffffffff 0a090005 10000000 00000000",
         100},
        {"u32 to a table", way, TC_ADD, 0,
         "5c000000 2c000506 00000000 00000000 00000000 03000000 01000000 00007b0e 08001e00"
         "08000100 75333200 30000200 08000300 00000010"
         "24000500 00000100 00000000 00001000 000000ff 00000000 00000000 00000000 00000000",
         92},
        {"deleting a filter", linear, TC_DELETE, 0x80200001,
         "2c000000 2d000500 00000000 00000000 00000000 03000000 01002080 00007b0e 08001400 08000100 75333200",
         44},
        {"cbq class", cbq_class, TC_ADD, 0,
         "7c040000 28000506 00000000 00000000 00000000 03000000 03007b0e 01007b0e 00000000"
         "08000100 63627100 50040200 10000500 03000000 ffff4000 d0121300"
         "18000100 3f010500 00100000 ffffff7f 00000000 ea050000"
         "10000200 00030300 ea050000 48e80100"
         "10000300 00007b0e ffff0000 ffffffff 04040600 20030000 20030000 20030000 20030000 20030000 20030000 "
         "20030000"
         "20030000 84030000",
         1148},
};

static size_t read_hex(const char *text, uint8_t *bytes)
{
        size_t n = 0;

        for (unsigned v; *text; text += 2) {
                while (*text == ' ')
                        text++;
                if (!*text)
                        break;
                assert_int_equal(sscanf(text, "%2x", &v), 1);
                bytes[n++] = (uint8_t)v;
        }
        return n;
}

static struct nlmsghdr *encode(const struct golden *g, const struct tc_object *o)
{
        static uint8_t buffer[TC_MESSAGE_MAX] __attribute__((aligned(8)));
        struct nlmsghdr *m = (void *)buffer;

        memset(buffer, 0, sizeof buffer);
        assert_int_equal(tc_message_encode(m, IFINDEX, &(struct tc_change){g->verb, o, g->kernel_handle}), 0);
        return m;
}

TEST_EACH(encoding_gives_the_golden_bytes, i, ARRAY_SIZE(goldens))
{
        struct tc_object o = goldens[i].make();
        const struct nlmsghdr *m = encode(&goldens[i], &o);
        uint8_t want[512];
        size_t n = read_hex(goldens[i].hex, want);

        if (m->nlmsg_len != goldens[i].bytes || memcmp(m, want, n) != 0) {
                for (size_t k = 0; k < m->nlmsg_len && k < n; k++)
                        fprintf(stderr, "%02x%s", ((const uint8_t *)m)[k], k % 4 == 3 ? " " : "");
                fail_msg("%s: unexpected bytes (%u)", goldens[i].name, m->nlmsg_len);
        }
}

/* Decodes each message as the kernel would announce it. */
TEST(decoding_gives_the_same_object)
{
        for (size_t i = 0; i < ARRAY_SIZE(goldens); i++) {
                struct tc_object o = goldens[i].make(), back;
                struct nlmsghdr *m = encode(&goldens[i], &o);
                int ifindex;

                if (goldens[i].verb == TC_DELETE)
                        continue;
                /* In announcements filters of u32 carry their whole handle. */
                if (o.kind == &tc_kind_u32)
                        ((struct tcmsg *)mnl_nlmsg_get_payload(m))->tcm_handle =
                                o.handle >> 20 ? o.handle : 0x80300000 | o.handle;
                assert_int_equal(tc_message_decode(m, &back, &ifindex), 0);
                assert_int_equal(ifindex, IFINDEX);
                assert_non_null(back.kind);
                if (!tc_object_equal(&o, &back))
                        fail_msg("%s: decoded object differs", goldens[i].name);
                free(back.options);
        }
}

/* A change of any byte of the parameters makes objects differ (except statistics). */
/* The kernel reports quanta that it has chosen, which a device that offloads HTB refuses. */
TEST(a_class_that_the_device_offloads_has_no_quantum)
{
        uint8_t buffer[512] __attribute__((aligned(8))) = {};
        struct nlmsghdr *m = mnl_nlmsg_put_header(buffer);
        struct tc_object o = htb_class(), back = {.type = TC_CLASS};
        struct nlattr *options = mnl_attr_nest_start(m, TCA_OPTIONS);

        tc_kind_htb.encode(m, &o);
        mnl_attr_nest_end(m, options);
        assert_int_equal(tc_kind_htb.decode(&back, options), 0);
        assert_int_equal(back.params.htb_class.quantum_bytes, o.params.htb_class.quantum_bytes);
        mnl_attr_put(m, TCA_HTB_OFFLOAD, 0, NULL);
        mnl_attr_nest_end(m, options);
        assert_int_equal(tc_kind_htb.decode(&back, options), 0);
        assert_int_equal(back.params.htb_class.quantum_bytes, 0);
}

static struct tc_object cbq_root(void)
{
        struct tc_object o = cbq_class();

        o.type = TC_QDISC;
        o.params.cbq.bandwidth_bytes = 125000000;
        o.params.cbq.split = o.params.cbq.default_map = 0;
        return o;
}

static struct tc_object pfifo(void)
{
        struct tc_object o = object(TC_QDISC, "pfifo", TC_ID(5, 0), TC_LINK_CLASS);

        o.params.fifo.limit = 1000;
        return o;
}

static struct tc_object edt(void)
{
        struct tc_object o = object(TC_FILTER, "edt", 1, TC_EGRESS);

        o.params.edt = (struct tc_edt){.address = {10, 9, 0, 5},
                                       .rate_bps = 250000000,
                                       .limit_bytes = 100000,
                                       .control_port = 26800,
                                       .overhead_bytes = 24};
        return o;
}

/* Plans and reports of drift show these words, which users copy to a command of tc. */
static const struct {
        struct tc_object (*make)(void);
        const char *words;
} written[] = {
        {htb_root, " default 0x3 r2q 3707"},
        {offloaded_root, " default 0x3 r2q 3707 offload"},
        {htb_class, " rate 400Gbit ceil 400Gbit burst 67200b cburst 67200b quantum 1514 prio 1 overhead 24"},
        {tbf, " rate 40Gbit burst 3028b limit 1000000b"},
        {bfifo, " limit 1000000b"},
        {pfifo, " limit 1000"},
        {fq_codel, " limit 10240 target 5000us interval 100000us quantum 1514 memory_limit 16777216b ecn"},
        {cbq_class, " bandwidth 10Mbit rate 10Mbit prio 3 allot 1514 avpkt 1514 cell 8 mpu 64 ewma 5"
                    " weight 125000 bounded split e7b: defmap 0xffff"},
        {cbq_root, " bandwidth 1Gbit allot 1514 avpkt 1514 cell 8 mpu 64 ewma 5"},
        {fq, " limit 1000000 flow_limit 100000 low_rate_threshold 29656bit horizon 3600000000us"},
        {bpf, " direct-action"},
        {edt, " to 10.9.0.5 rate 250000000bit limit 100000b overhead 24 except port 26800"},
        {linear, " match u32 0x0a090002 0xffffffff at 16 flowid e7b:1"},
        {table, " divisor 256"},
        {element, " ht 100:5: match u32 0x0a090005 0xffffffff at 16 flowid e7b:1"},
};

TEST_EACH(objects_are_written_as_for_tc, i, ARRAY_SIZE(written))
{
        struct tc_object o = written[i].make();
        char text[300] = "";
        struct strbuf b = strbuf_init(text, sizeof text);

        o.kind->words(&o, &b);
        assert_string_equal(text, written[i].words);
}

TEST(equality_compares_every_property)
{
        struct tc_object a = htb_class(), b = htb_class();

        assert_true(tc_object_equal(&a, &b));
        b.params.htb_class.ceil_bytes++;
        assert_false(tc_object_equal(&a, &b));
        b = htb_class();
        b.params.htb_class.burst_ticks += 3;
        assert_false(tc_object_equal(&a, &b));
        b = htb_class();
        b.parent = TC_ROOT;
        assert_false(tc_object_equal(&a, &b));
        b = htb_class();
        b.params.htb_class.overhead_bytes = 0;
        assert_false(tc_object_equal(&a, &b));
        b = htb_class();
        b.params.htb_class.quantum_bytes++;
        assert_false(tc_object_equal(&a, &b));
        b.params.htb_class.quantum_bytes = 0; /* the kernel chooses */
        assert_true(tc_object_equal(&a, &b));
        a = htb_root(), b = offloaded_root();
        assert_false(tc_object_equal(&a, &b));
        a = tbf(), b = tbf();
        b.params.tbf.limit_bytes++;
        assert_false(tc_object_equal(&a, &b));
        b = tbf();
        b.handle++;
        assert_false(tc_object_equal(&a, &b));
        a = linear(), b = linear();
        b.params.u32.matches[0].offset = 12;
        assert_false(tc_object_equal(&a, &b));
        b = linear();
        b.params.u32.n_matches = 0;
        assert_false(tc_object_equal(&a, &b));
        a = cbq_class(), b = cbq_class();
        b.params.cbq.isolated = true;
        assert_false(tc_object_equal(&a, &b));
        b = cbq_class();
        b.params.cbq.weight++;
        assert_false(tc_object_equal(&a, &b));
        /* The kernel chooses the quantum of a qdisc itself. */
        a.type = b.type = TC_QDISC;
        assert_true(tc_object_equal(&a, &b));
        a = bfifo(), b = bfifo();
        b.params.fifo.limit++;
        assert_false(tc_object_equal(&a, &b));
        a = fq_codel(), b = fq_codel();
        b.params.fq_codel.target_us -= 2; /* as the kernel rounds */
        b.params.fq_codel.memory_bytes = 0;
        assert_true(tc_object_equal(&a, &b));
        b.params.fq_codel.target_us--;
        assert_false(tc_object_equal(&a, &b));
        b = fq_codel();
        b.params.fq_codel.ecn = false;
        assert_false(tc_object_equal(&a, &b));
        b = fq_codel();
        b.params.fq_codel.memory_bytes++;
        assert_false(tc_object_equal(&a, &b));
        b = fq_codel();
        b.params.fq_codel.interval_us += 3;
        assert_false(tc_object_equal(&a, &b));
        b = fq_codel();
        b.params.fq_codel.limit_packets++;
        assert_false(tc_object_equal(&a, &b));
        b = fq_codel();
        b.params.fq_codel.quantum_bytes++;
        assert_false(tc_object_equal(&a, &b));
}

TEST(equality_compares_what_edt_has)
{
        struct tc_object a = fq(), b = fq();

        b.params.fq.horizon_us = 0; /* of an old kernel */
        assert_true(tc_object_equal(&a, &b));
        b.params.fq.flow_limit_packets++;
        assert_false(tc_object_equal(&a, &b));
        a = bpf(), b = bpf();
        b.params.bpf = (struct tc_bpf){.program_id = 9};
        assert_true(tc_object_equal(&a, &b));
        b.params.bpf.is_unreadable = true;
        assert_false(tc_object_equal(&a, &b));
}

/* Many systems have fq as their default. Its parameters must be restored as they were dumped. */
static const struct {
        struct tc_object (*make)(void);
        size_t at; /* in the message */
} cases[] = {{fq, 76}, {bpf, 60}, {bpf, 80}};

TEST_EACH(fq_and_programs_of_others_are_not_decoded, i, ARRAY_SIZE(cases))
{
        const struct golden g = {.verb = TC_ADD};
        struct tc_object o = cases[i].make(), back;
        struct nlmsghdr *m = encode(&g, &o);
        int ifindex;

        ((uint8_t *)m)[cases[i].at] ^= 2;
        assert_int_equal(tc_message_decode(m, &back, &ifindex), 0);
        assert_null(back.kind);
        free(back.options);
}

/* Features that the parameters cannot express, e.g. a peak rate, are not silently dropped. */
TEST(unsupported_features_leave_the_kind_unset)
{
        struct tc_object o = tbf(), back;
        struct nlmsghdr *m = encode(&goldens[2], &o);
        int ifindex;

        ((uint8_t *)m)[36 + 8 + 4 + 4 + 12 + 8] = 1; /* peak rate */
        assert_int_equal(tc_message_decode(m, &back, &ifindex), 0);
        assert_null(back.kind);
        assert_true(back.options_bytes > 0);
        free(back.options);
}

TEST(acks_carry_the_kernels_text)
{
        static const char text[] = "HTB: quantum of class 10001 is big. Consider r2q change.";
        uint8_t buffer[512] __attribute__((aligned(8))) = {};
        struct nlmsghdr *m = mnl_nlmsg_put_header(buffer);
        struct nlmsgerr *e = mnl_nlmsg_put_extra_header(m, sizeof *e);
        struct tc_ack ack = {};

        m->nlmsg_type = NLMSG_ERROR;
        m->nlmsg_flags = NLM_F_CAPPED | NLM_F_ACK_TLVS;
        mnl_attr_put_strz(m, NLMSGERR_ATTR_MSG, text);
        assert_int_equal(tc_ack_decode(m, &ack), 0);
        assert_int_equal(ack.error, 0); /* a warning on success */
        assert_string_equal(ack.text, text);
        e->error = -EINVAL;
        m->nlmsg_flags = NLM_F_CAPPED;
        ack = (struct tc_ack){};
        assert_int_equal(tc_ack_decode(m, &ack), 0);
        assert_int_equal(ack.error, -EINVAL);
        assert_string_equal(ack.text, "");
        m->nlmsg_len = MNL_NLMSG_HDRLEN + 3;
        assert_int_equal(tc_ack_decode(m, &ack), -EBADMSG);
}

/* Flips bytes, truncates, sets lengths to any value. Decoding succeeds or fails; the sanitizers check the
 * accesses. */
static void spoil(uint8_t *bytes, size_t n, struct random *r)
{
        for (uint64_t k = 1 + random_below(r, 4); k > 0; k--) {
                size_t at = MNL_NLMSG_HDRLEN + (size_t)random_below(r, n - MNL_NLMSG_HDRLEN);

                switch (random_below(r, 3)) {
                case 0:
                        bytes[at] ^= (uint8_t)(1u << random_below(r, 8));
                        break;
                case 1:
                        bytes[at] = (uint8_t)random_below(r, 256);
                        break;
                default:
                        /* Where lengths are: every four bytes. */
                        at &= ~(size_t)3;
                        if (at + 2 <= n)
                                memcpy(bytes + at, (uint16_t[]){(uint16_t)random_below(r, 80)}, 2);
                }
        }
}

TEST(invalid_messages_do_not_crash)
{
        struct random r;
        unsigned read = 0;

        random_init(&r, 20261121);
        for (unsigned round = 0; round < 60000; round++) {
                const struct golden *g = &goldens[round % (ARRAY_SIZE(goldens) - 2)]; /* of the short ones */
                struct tc_object o = g->make(), back;
                struct nlmsghdr *m = encode(g, &o), *copy;
                size_t n = m->nlmsg_len;
                struct tc_ack ack;
                int ifindex;

                if (random_below(&r, 4) == 0)
                        n = MNL_NLMSG_HDRLEN + (size_t)random_below(&r, n - MNL_NLMSG_HDRLEN + 1);
                copy = malloc(n); /* exactly as large, so that reading behind it is seen */
                memcpy(copy, m, n);
                copy->nlmsg_len = (uint32_t)n;
                if (n > MNL_NLMSG_HDRLEN)
                        spoil((uint8_t *)copy, n, &r);
                if (tc_message_decode(copy, &back, &ifindex) == 0) {
                        read += back.kind != NULL;
                        free(back.options);
                }
                copy->nlmsg_type = random_below(&r, 2) ? NLMSG_ERROR : NLMSG_DONE;
                copy->nlmsg_flags = (uint16_t)random_below(&r, 65536);
                (void)tc_ack_decode(copy, &ack);
                free(copy);
        }
        assert_true(read > 1000); /* many get past the first checks */
}
