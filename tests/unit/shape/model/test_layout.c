/* The owner of a root, and the address bits that select a class. */
#include "tc_sample.h"

#include <linux/pkt_sched.h>

#include "shape/model/kind.h"

TEST(partly_reported_qdiscs_are_foreign)
{
        static const char *const kinds[] = {"red", "gred", "choke", "netem"};
        const struct tc_sizespec overhead = {.overhead = 24, .linklayer = TC_LINKLAYER_ETHERNET},
                                 cells = {.tsize = 512};
        struct tc_object root = {
                .type = TC_QDISC, .handle = TC_ID(5, 0), .parent = TC_ROOT, .kind_name = "pfifo"};
        _cleanup_(tc_tree_fini) struct tc_tree t = {};

        tc_tree_add(&t, &root);
        assert_int_equal(tc_layout_owner(&t), TC_OWNER_CLASSLESS);
        assert_null(tc_layout_incomplete(&t));
        t.objects[0].has_stab = true;
        memcpy(t.objects[0].stab, &overhead, sizeof overhead);
        assert_int_equal(tc_layout_owner(&t), TC_OWNER_CLASSLESS);
        memcpy(t.objects[0].stab, &cells, sizeof cells);
        assert_int_equal(tc_layout_owner(&t), TC_OWNER_FOREIGN);
        assert_ptr_equal(tc_layout_incomplete(&t), &t.objects[0]);
        t.objects[0].has_stab = false;
        for (size_t i = 0; i < ARRAY_SIZE(kinds); i++) {
                strcpy(t.objects[0].kind_name, kinds[i]);
                assert_int_equal(tc_layout_owner(&t), TC_OWNER_FOREIGN);
                assert_ptr_equal(tc_layout_incomplete(&t), &t.objects[0]);
        }
}

TEST(owners_are_recognised)
{
        struct tc_destination to[1];
        struct tc_request q = sample_request(to, 1, TC_BACKEND_HTB_TBF);
        struct tc_tree ours = sample_tree(&q, NULL), t = {};
        struct tc_object root = {.type = TC_QDISC, .parent = TC_ROOT, .kind_name = "pfifo_fast"};

        assert_int_equal(tc_layout_owner(&t), TC_OWNER_KERNEL);
        tc_tree_add(&t, &root);
        assert_int_equal(tc_layout_owner(&t), TC_OWNER_KERNEL);
        t.objects[0].handle = TC_ID(0x8001, 0);
        assert_int_equal(tc_layout_owner(&t), TC_OWNER_CLASSLESS);
        strcpy(t.objects[0].kind_name, "htb");
        assert_int_equal(tc_layout_owner(&t), TC_OWNER_FOREIGN);
        /* The handle alone is not enough. */
        t.objects[0].handle = TC_OUR_ROOT;
        t.objects[0].kind = tc_kind_find("htb");
        t.objects[0].params.htb_qdisc.rate2quantum = 10;
        assert_int_equal(tc_layout_owner(&t), TC_OWNER_FOREIGN);
        tc_tree_fini(&t);
        assert_int_equal(tc_layout_owner(&ours), TC_OWNER_OURS);
        assert_int_equal(tc_layout_backend(&ours), TC_BACKEND_HTB_TBF);
        tc_tree_fini(&ours);
        q.backend = TC_BACKEND_CBQ_TBF;
        ours = sample_tree(&q, NULL);
        assert_int_equal(tc_layout_backend(&ours), TC_BACKEND_CBQ_TBF);
        tc_tree_fini(&ours);
}

/* Makes destinations NET.x.y.LAST or NET::x:y:LAST, all with the same last byte. */
static void make_similar(struct tc_destination *to, size_t n, bool v6)
{
        for (size_t i = 0; i < n; i++) {
                char text[64];

                snprintf(text, sizeof text, v6 ? "fd00::%zx:0:%zx:7" : "10.%zu.%zu.7", i / 100, i % 100);
                assert_true(tc_address_parse(&to[i].address, text));
                to[i].rate_bps = 1000000;
        }
}

static size_t largest_bucket(const struct tc_tree *t)
{
        size_t n[2][256] = {}, most = 0;

        for (size_t i = 0; i < t->n; i++) {
                const struct tc_object *o = &t->objects[i];
                struct tc_address a;

                if (tc_layout_address(o, &a, NULL) && o->handle >> 20 > 0) {
                        size_t *count = &n[a.n_bytes == 16][o->handle >> 12 & 0xff];

                        ++*count;
                        most = MAX(most, *count);
                }
        }
        return most;
}

/* Computes the bucket like the kernel: u32_hash_fold() of net/sched/cls_u32.c. */
static void check_buckets(const struct tc_tree *t)
{
        for (size_t i = 0; i < t->n; i++) {
                const struct tc_object *o = &t->objects[i];
                struct tc_object place = {.type = TC_FILTER,
                                          .parent = TC_OUR_ROOT,
                                          .priority = o->priority,
                                          .protocol = o->protocol,
                                          .handle = 1};
                const struct tc_object *way = tc_tree_find(t, &place);
                struct tc_address a;
                uint32_t bucket = 0;

                if (!tc_layout_address(o, &a, NULL) || o->handle >> 20 == 0)
                        continue;
                assert_non_null(way);
                for (unsigned k = 0; k < 4; k++) {
                        unsigned at = (unsigned)way->params.u32.hash_offset - (a.n_bytes == 16 ? 24 : 16) + k;

                        bucket = bucket << 8 | (a.bytes[at] & way->params.u32.hash_mask[k]);
                }
                uint32_t mask = 0;

                for (unsigned k = 0; k < 4; k++)
                        mask = mask << 8 | way->params.u32.hash_mask[k];
                assert_int_equal(bucket >> __builtin_ctz(mask), o->handle >> 12 & 0xff);
        }
}

TEST(destinations_spread_even_with_equal_last_bytes)
{
        static struct tc_destination to[SAMPLE_MAX];

        for (int v6 = 0; v6 < 2; v6++) {
                struct tc_request q = sample_request(to, 1000, TC_BACKEND_HTB_TBF);
                _cleanup_(tc_tree_fini) struct tc_tree t;

                make_similar(to, 1000, v6);
                t = sample_tree(&q, NULL);
                assert_in_range(largest_bucket(&t), 4, 10);
                check_buckets(&t);
        }
}

static uint32_t mask_of_table(const struct tc_tree *t)
{
        for (size_t i = 0; i < t->n; i++) {
                const uint8_t *m = t->objects[i].params.u32.hash_mask;

                if (t->objects[i].type == TC_FILTER && t->objects[i].params.u32.link > 0)
                        return (uint32_t)m[0] << 24 | (uint32_t)m[1] << 16 | (uint32_t)m[2] << 8 | m[3];
        }
        return 0;
}

/* A change of the bits moves every filter, so they stay as long as they are good. */
TEST(a_table_keeps_its_bits)
{
        static struct tc_destination to[SAMPLE_MAX];
        struct tc_request q = sample_request(to, 200, TC_BACKEND_HTB_TBF);
        struct tc_tree before, after;

        make_similar(to, 200, false);
        before = sample_tree(&q, NULL);
        q.n_destinations = 120;
        q.destinations = to + 50;
        after = sample_tree(&q, &before);
        assert_int_equal(mask_of_table(&after), mask_of_table(&before));
        check_buckets(&after);
        tc_tree_fini(&after);
        /* For entirely different destinations they are useless. */
        for (size_t i = 0; i < 200; i++) {
                to[i].address.bytes[1] = to[i].address.bytes[2] = 1;
                to[i].address.bytes[3] = (uint8_t)(i + 1);
        }
        q.n_destinations = 200;
        q.destinations = to;
        after = sample_tree(&q, &before);
        assert_int_equal(mask_of_table(&after), 0xff);
        assert_int_equal(largest_bucket(&after), 1);
        tc_tree_fini(&after);
        tc_tree_fini(&before);
}

/* The packets to such a destination are IPv4, so a filter for IPv6 would match none. */
TEST(mapped_destinations_are_ipv4)
{
        struct tc_address mapped, plain, other;

        assert_true(tc_address_parse(&mapped, "::ffff:10.1.2.3"));
        assert_true(tc_address_parse(&plain, "10.1.2.3"));
        assert_true(tc_address_parse(&other, "::fffe:10.1.2.3"));
        assert_memory_equal(&mapped, &plain, sizeof plain);
        assert_int_equal(other.n_bytes, 16);
}
