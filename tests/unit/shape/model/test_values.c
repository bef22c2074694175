/* Units, classes, differences and status, without a kernel. */
#include "tc_sample.h"

#include <netinet/in.h>

#include "shape/model/kind.h"
#include "shape/model/tree_status.h"

TEST(ticks_round_up)
{
        assert_int_equal(tc_ticks_of_bytes(15000, 1250000000), 188); /* 12 us at 10 Gbit/s: 187.5 ticks */
        assert_int_equal(tc_ticks_of_bytes(112500, 112500000), 15625);
        assert_int_equal(tc_ticks_of_bytes(1, UINT64_C(50000000000)), 1);
        assert_int_equal(tc_ticks_of_bytes(0, 1000), 0);
        assert_int_equal(tc_ticks_of_bytes(UINT64_MAX, 1), UINT32_MAX);
        assert_true(tc_bytes_of_ticks(188, 1250000000) >= 15000);
        assert_int_equal(tc_rate_bytes(UINT64_C(400000000000)), UINT64_C(50000000000));
        assert_int_equal(tc_rate_bytes(9), 2);
        assert_true(tc_ticks_equal(10, 12) && tc_ticks_equal(12, 10) && !tc_ticks_equal(10, 13));
}

TEST(rate_tables_cover_the_frame)
{
        uint32_t table[TC_RATE_TABLE_SIZE];

        assert_int_equal(tc_rate_table(table, 125000000, 1514, 64), 3);
        assert_int_equal(table[0], tc_ticks_of_bytes(64, 125000000)); /* not below the minimum packet size */
        assert_int_equal(table[189], tc_ticks_of_bytes(1520, 125000000));
        assert_int_equal(tc_rate_table(table, 125000000, 9014, 64), 6);
        assert_true((UINT32_C(256) << 6) > 9014);
}

/* A destination keeps its class while others come and go; a new one never gets a class that still drains. */
TEST(destinations_keep_their_classes)
{
        struct tc_destination all[9], some[9];
        struct tc_request q = sample_request(all, 9, TC_BACKEND_HTB_TBF);
        _cleanup_(tc_tree_fini) struct tc_tree before = sample_tree(&q, NULL), after;
        size_t n = 0;

        for (size_t i = 8; i > 0; i -= 2)
                some[n++] = all[i];
        assert_true(tc_address_parse(&some[n].address, "10.77.0.1"));
        some[n++].rate_bps = 1000000;
        q.destinations = some;
        q.n_destinations = n;
        after = sample_tree(&q, &before);
        for (size_t i = 0; i < after.n; i++) {
                struct tc_address address, other;
                bool known = false;

                if (!tc_layout_address(&after.objects[i], &address, NULL))
                        continue;
                for (size_t k = 0; k < before.n; k++) {
                        if (!tc_layout_address(&before.objects[k], &other, NULL))
                                continue;
                        if (tc_address_equal(&address, &other)) {
                                assert_int_equal(after.objects[i].params.u32.classid,
                                                 before.objects[k].params.u32.classid);
                                known = true;
                        } else
                                assert_int_not_equal(after.objects[i].params.u32.classid,
                                                     before.objects[k].params.u32.classid);
                }
                assert_int_equal(known, address.bytes[1] != 77);
        }
}

/* The kernel's CBQ rejects rate tables with one-byte cells, and silently changes turns above 32 packets. */
TEST(cbq_values_suit_the_kernel)
{
        struct tc_destination to[100];
        struct tc_request q = sample_request(to, ARRAY_SIZE(to), TC_BACKEND_CBQ_TBF);
        uint64_t least = UINT64_MAX, most = 0;
        _cleanup_(tc_tree_fini) struct tc_tree t;

        q.mtu_bytes = 200;
        to[7].rate_bps = UINT64_C(900000000);
        t = sample_tree(&q, NULL);
        for (size_t i = 0; i < t.n; i++) {
                const struct tc_object *o = &t.objects[i];

                if (strcmp(o->kind_name, "cbq") != 0)
                        continue;
                assert_in_range(o->params.cbq.cell_log, 1, 16);
                if (TC_MINOR(o->handle) >= 0x1000) {
                        least = MIN(least, o->params.cbq.weight);
                        most = MAX(most, o->params.cbq.weight);
                }
        }
        assert_true(least > 0 && most > least && most <= 16 * (least + 1));
}

/* A model of the kernel: accepts and refuses the same changes. */
static bool parent_exists(const struct tc_tree *t, const struct tc_object *o)
{
        const struct tc_object *root = tc_tree_qdisc(t, TC_ROOT);

        return o->parent == TC_ROOT || o->parent == TC_EGRESS || (root && o->parent == root->handle) ||
               tc_tree_class(t, o->parent);
}

static size_t position_of(const struct tc_tree *t, const struct tc_object *o)
{
        for (size_t i = 0; i < t->n; i++) {
                if (tc_object_compare(&t->objects[i], o) == 0)
                        return i;
        }
        return t->n;
}

static void model_delete(struct tc_tree *t, const struct tc_object *o)
{
        struct tc_object gone = *o;
        size_t kept = 0;

        for (size_t i = 0; i < t->n; i++) {
                const struct tc_object *x = &t->objects[i];
                bool filtered = gone.type == TC_CLASS && x->kind == &tc_kind_u32 &&
                                x->params.u32.classid == gone.handle,
                     outlives = x->kind == &tc_kind_edt || x->parent == TC_EGRESS;

                if (filtered)
                        fail_msg("a class is deleted while a filter uses it");
                if (tc_object_compare(x, &gone) == 0 ||
                    (gone.type == TC_QDISC && gone.parent == TC_ROOT && !outlives) ||
                    (gone.type == TC_CLASS && x->type == TC_QDISC && x->parent == gone.handle))
                        continue;
                t->objects[kept++] = *x;
        }
        t->n = kept;
}

static void model_apply(struct tc_tree *t, const struct tc_change *c)
{
        size_t place = position_of(t, c->object);

        assert_int_equal(c->verb == TC_ADD, place == t->n);
        if (c->verb == TC_DELETE) {
                model_delete(t, c->object);
                return;
        }
        assert_true(parent_exists(t, c->object));
        if (c->object->kind == &tc_kind_u32 && c->object->params.u32.divisor == 0 &&
            c->object->params.u32.link == 0)
                assert_non_null(tc_tree_class(t, c->object->params.u32.classid));
        if (c->verb == TC_CHANGE || c->verb == TC_RENEW ||
            (c->verb == TC_REPLACE && c->object->parent != TC_ROOT)) {
                if (c->verb != TC_REPLACE && c->object->type == TC_QDISC)
                        assert_int_equal(t->objects[place].handle, c->object->handle);
                assert_true(c->verb == TC_REPLACE || t->objects[place].kind == c->object->kind);
                t->objects[place] = *c->object;
        } else {
                if (c->verb == TC_REPLACE)
                        model_delete(t, c->object);
                assert_int_equal(tc_tree_add(t, c->object), 0);
        }
        tc_tree_sort(t);
}

static void check_diff(const struct tc_tree *from, const struct tc_tree *to, size_t expected)
{
        struct tc_tree model = {};
        struct tc_diff d;

        assert_int_equal(tc_tree_copy(&model, from), 0);
        assert_int_equal(tc_diff_make(&d, from, to), 0);
        for (size_t i = 0; i < d.n; i++)
                model_apply(&model, &d.changes[i]);
        assert_true(trees_equal(&model, to));
        if (expected != SIZE_MAX)
                assert_int_equal(d.n, expected);
        tc_diff_fini(&d);
        free(model.objects);
}

/* No queue is lost because a destination leaves and another one comes. */
static void keep_root(const struct tc_tree *from, const struct tc_tree *to)
{
        struct tc_diff d;

        assert_int_equal(tc_diff_make(&d, from, to), 0);
        for (size_t i = 0; i < d.n; i++)
                assert_false(d.changes[i].object->parent == TC_ROOT);
        assert_true(d.n_before_drain < d.n_before_tables);
        tc_diff_fini(&d);
}

/* A class that the kernel attached to the root because its parent was missing is added again. */
static void check_moved(const struct tc_tree *t)
{
        struct tc_tree moved;

        assert_int_equal(tc_tree_copy(&moved, t), 0);
        for (size_t i = 0; i < moved.n; i++) {
                if (moved.objects[i].type == TC_CLASS && moved.objects[i].handle == TC_CONTROL_CLASS)
                        moved.objects[i].parent = TC_OUR_ROOT;
        }
        check_diff(&moved, t, t->n + 1);
        tc_tree_fini(&moved);
}

/* The differences lead from any of these trees to any other, and to an empty one, in steps that a kernel
 * accepts. */
TEST(differences_lead_from_any_tree_to_any_other)
{
        static const struct {
                size_t first, n;
                enum tc_backend backend;
                uint16_t control_port;
                uint64_t rate_bps;
                uint16_t data_protocol;
                enum tc_offload offload;
        } shapes[] = {
                {0, 3, TC_BACKEND_HTB_TBF, 26800, 0},
                {0, 3, TC_BACKEND_HTB_TBF, 26800, 5000000},
                {1, 5, TC_BACKEND_HTB_TBF, 0, 0},
                {0, 3, TC_BACKEND_HTB, 26800, 0},
                {0, 200, TC_BACKEND_HTB_TBF, 26800, 0},
                {5, 120, TC_BACKEND_HTB_TBF, 26800, 0},
                {0, 3, TC_BACKEND_CBQ_TBF, 26800, 0},
                {0, 3, TC_BACKEND_HTB_TBF, 26800, 0, IPPROTO_UDP},
                {0, 3, TC_BACKEND_HTB_TBF, 26800, 5000000, IPPROTO_UDP},
                {1, 3, TC_BACKEND_HTB_TBF, 26800, 0, IPPROTO_UDP},
                {0, 3, TC_BACKEND_HTB, 26800, 0, IPPROTO_TCP},
                {5, 120, TC_BACKEND_HTB_TBF, 26800, 0, IPPROTO_TCP},
                {0, 3, TC_BACKEND_EDT, 26800, 0},
                {0, 3, TC_BACKEND_EDT, 26800, 5000000},
                {1, 5, TC_BACKEND_EDT, 0, 0},
                {0, 3, TC_BACKEND_HTB, 26800, 0, .offload = TC_OFFLOAD_REQUIRED},
                {0, 3, TC_BACKEND_HTB, 26800, 5000000, .offload = TC_OFFLOAD_REQUIRED},
                {1, 5, TC_BACKEND_HTB, 0, 0, .offload = TC_OFFLOAD_REQUIRED},
        };
        static struct tc_destination to[SAMPLE_MAX];
        struct tc_tree trees[ARRAY_SIZE(shapes) + 1] = {}, moved;

        for (size_t i = 0; i < ARRAY_SIZE(shapes); i++) {
                struct tc_request q = sample_request(to, 300, shapes[i].backend);

                q.destinations = to + shapes[i].first;
                q.n_destinations = shapes[i].n;
                q.control_port = shapes[i].control_port;
                q.data_protocol = shapes[i].data_protocol;
                q.data_port = 26801;
                q.offload = shapes[i].offload;
                for (size_t k = 0; shapes[i].rate_bps && k < 300; k++)
                        to[k].rate_bps = shapes[i].rate_bps;
                trees[i] = sample_tree(&q, NULL);
        }
        for (size_t a = 0; a <= ARRAY_SIZE(shapes); a++) {
                for (size_t b = 0; b <= ARRAY_SIZE(shapes); b++)
                        check_diff(&trees[a], &trees[b], a == b ? 0 : SIZE_MAX);
        }
        /* Three new rates change three classes (their guaranteed rates) and three TBFs. */
        check_diff(&trees[0], &trees[1], 6);
        check_diff(&trees[12], &trees[13], 3);
        /* On a card, three classes and their queues; their filters stay. */
        check_diff(&trees[15], &trees[16], 6);
        /* With other packets apart, nine classes and six TBFs. */
        check_diff(&trees[7], &trees[8], 15);
        {
                struct tc_request q = sample_request(to, 300, TC_BACKEND_HTB_TBF);

                q.destinations = to + 1;
                q.n_destinations = 3;
                q.data_protocol = IPPROTO_UDP;
                moved = sample_tree(&q, &trees[8]);
                keep_root(&trees[8], &moved);
                check_diff(&trees[8], &moved, SIZE_MAX);
                tc_tree_fini(&moved);
        }
        check_moved(&trees[0]);
        for (size_t i = 0; i < ARRAY_SIZE(shapes); i++)
                tc_tree_fini(&trees[i]);
}

/* Of a card that shapes, the kernel shows its own quanta, and a queue without a handle for each queue of the
 * card that has no class. The card cannot have two roots, so another program's is deleted, not replaced. */
TEST(a_card_has_one_root_and_queues_of_its_own)
{
        struct tc_destination to[3];
        struct tc_request q = sample_request(to, 3, TC_BACKEND_HTB);
        const struct tc_object queue = {.type = TC_QDISC, .parent = TC_OUR_ROOT, .kind_name = "pfifo"};
        _cleanup_(tc_tree_fini) struct tc_tree want, have = {}, other = {};
        struct tc_object root;
        struct tc_diff d;

        q.offload = TC_OFFLOAD_REQUIRED;
        want = sample_tree(&q, NULL);
        root = *tc_tree_qdisc(&want, TC_ROOT);
        assert_int_equal(tc_tree_copy(&have, &want), 0);
        for (size_t i = 0; i < have.n; i++) {
                if (have.objects[i].type == TC_CLASS && have.objects[i].kind == &tc_kind_htb)
                        have.objects[i].params.htb_class.quantum_bytes = 200000;
        }
        for (int i = 0; i < 2; i++)
                assert_int_equal(tc_tree_add(&have, &queue), 0);
        tc_tree_sort(&have);
        check_diff(&have, &have, 0);
        assert_int_equal(tc_diff_make(&d, &have, &want), 0);
        assert_int_equal(d.n, 0);
        tc_diff_fini(&d);
        assert_true(tc_layout_is_offloaded(&have));
        root.handle = TC_ID(1, 0);
        assert_int_equal(tc_tree_add(&other, &root), 0);
        check_diff(&other, &want, want.n + 1);
        assert_int_equal(tc_diff_make(&d, &other, &want), 0);
        assert_int_equal(d.changes[0].verb, TC_DELETE);
        assert_int_equal(d.changes[1].verb, TC_ADD);
        tc_diff_fini(&d);
}

/* A filter with another match is deleted and added: "replace" would keep the old match. */
TEST(a_changed_match_replaces_the_filter)
{
        struct tc_destination to[2];
        struct tc_request q = sample_request(to, 2, TC_BACKEND_HTB_TBF);
        _cleanup_(tc_tree_fini) struct tc_tree before = sample_tree(&q, NULL), other_class = {},
                                               other_match = {};
        struct tc_diff d;

        tc_tree_copy(&other_class, &before);
        tc_tree_copy(&other_match, &before);
        for (size_t i = 0; i < before.n; i++) {
                if (before.objects[i].priority != 22)
                        continue;
                other_class.objects[i].params.u32.classid = TC_OTHER_CLASS;
                other_match.objects[i].params.u32.matches[0].value[3] ^= 1;
                before.objects[i].kernel_handle = 0x80300001;
                break;
        }
        assert_int_equal(tc_diff_make(&d, &before, &other_class), 0);
        assert_int_equal(d.n, 1);
        assert_fields(&d.changes[0], verb, TC_CHANGE, kernel_handle, 0x80300001);
        tc_diff_fini(&d);
        assert_int_equal(tc_diff_make(&d, &before, &other_match), 0);
        assert_int_equal(d.n, 2);
        assert_fields(&d.changes[0], verb, TC_DELETE, kernel_handle, 0x80300001);
        assert_int_equal(d.changes[1].verb, TC_ADD);
        tc_diff_fini(&d);
}

/* A TBF as the kernel reports it: without exact bytes, and in ticks that are rounded down. */
static void as_dumped(struct tc_tree *t)
{
        for (size_t i = 0; i < t->n; i++) {
                struct tc_tbf *tbf = &t->objects[i].params.tbf;

                if (t->objects[i].kind != &tc_kind_tbf)
                        continue;
                tbf->burst_ticks = (uint32_t)(tbf->burst_bytes * NS_PER_S / (tbf->rate_bytes * TC_TICK_NS));
                tbf->burst_bytes = tbf->packet_most_bytes = 0;
        }
}

/* What happens to the queue of a destination whose rate and burst change. A rollback wants an earlier dump.
 */
static enum tc_verb verb_of_queue(uint64_t from_bps, uint64_t from_bytes, uint64_t to_bps, uint64_t to_bytes,
                                  bool rollback)
{
        struct tc_destination to[1];
        struct tc_request q = sample_request(to, 1, TC_BACKEND_HTB_TBF);
        struct tc_tree before, after;
        enum tc_verb verb = TC_ADD;
        struct tc_diff d;

        to[0].rate_bps = from_bps;
        q.burst_bytes = from_bytes;
        before = sample_tree(&q, NULL);
        to[0].rate_bps = to_bps;
        q.burst_bytes = to_bytes;
        after = sample_tree(&q, &before);
        as_dumped(&before);
        if (rollback)
                as_dumped(&after);
        assert_int_equal(tc_diff_make(&d, &before, &after), 0);
        for (size_t i = 0; i < d.n; i++) {
                if (d.changes[i].object->type == TC_QDISC)
                        verb = d.changes[i].verb;
        }
        tc_diff_fini(&d);
        tc_tree_fini(&before);
        tc_tree_fini(&after);
        return verb;
}

/* TBF never sends a packet that waits already and is larger than its new burst. */
TEST(a_shorter_burst_renews_the_queue)
{
        assert_int_equal(verb_of_queue(8000000, 80000, 8000000, 5000, false), TC_RENEW);
        assert_int_equal(verb_of_queue(8000000, 80000, 8000000, 65536, false), TC_RENEW);
        assert_int_equal(verb_of_queue(8000000, 5000, 8000000, 4000, false), TC_RENEW);
        assert_int_equal(verb_of_queue(8000000, 5000, 8000000, 80000, false), TC_CHANGE);
        /* No packet is as large as either. */
        assert_int_equal(verb_of_queue(8000000, 200000, 8000000, 100000, false), TC_CHANGE);
        assert_int_equal(verb_of_queue(8000000, 200000, 8000000, 100000, true), TC_RENEW);
}

TEST(another_rate_keeps_the_queue)
{
        static const uint64_t rates_bps[] = {64000, 8000000, 12345678, UINT64_C(9999999999),
                                             UINT64_C(400000000000)};

        for (size_t i = 0; i < ARRAY_SIZE(rates_bps); i++) {
                for (size_t k = 0; k < ARRAY_SIZE(rates_bps); k++) {
                        if (i == k)
                                continue;
                        for (int rollback = 0; rollback < 2; rollback++)
                                assert_int_equal(
                                        verb_of_queue(rates_bps[i], 20000, rates_bps[k], 20000, rollback),
                                        TC_CHANGE);
                }
        }
}

/* The queue that another program put below a TBF goes with it, and cannot be deleted a second time. */
TEST(a_foreign_queue_goes_with_a_renewed_one)
{
        struct tc_destination to[1];
        struct tc_request q = sample_request(to, 1, TC_BACKEND_HTB_TBF);
        struct tc_object foreign = {
                .type = TC_QDISC, .handle = TC_ID(5, 0), .parent = TC_ID(0x1001, 1), .kind_name = "pfifo"};
        _cleanup_(tc_tree_fini) struct tc_tree before, after;
        _cleanup_(tc_diff_fini) struct tc_diff d;

        q.burst_bytes = 80000;
        before = sample_tree(&q, NULL);
        assert_int_equal(tc_tree_add(&before, &foreign), 0);
        tc_tree_sort(&before);
        q.burst_bytes = 5000;
        after = sample_tree(&q, &before);
        assert_int_equal(tc_diff_make(&d, &before, &after), 0);
        for (size_t i = 0; i < d.n; i++) {
                if (d.changes[i].object->type == TC_QDISC)
                        assert_int_equal(d.changes[i].verb, TC_RENEW);
        }
}

/* Classes that came with another root at one of our leaves go with it: they are neither deleted nor a reason
 * to build our tree anew. */
TEST(classes_of_a_foreign_root_go_with_it)
{
        struct tc_destination to[2];
        struct tc_request q = sample_request(to, 2, TC_BACKEND_HTB_TBF);
        struct tc_object others[] = {
                {.type = TC_CLASS, .handle = TC_ID(5, 1), .parent = TC_ID(5, 0), .kind_name = "htb"},
                {.type = TC_CLASS, .handle = TC_ID(5, 2), .parent = TC_ID(5, 1), .kind_name = "htb"},
        };
        struct tc_tree want = sample_tree(&q, NULL), have = {};
        const struct tc_object *queue = NULL;
        struct tc_diff d;

        assert_int_equal(tc_tree_copy(&have, &want), 0);
        for (size_t i = 0; i < have.n; i++) {
                if (have.objects[i].type == TC_QDISC && have.objects[i].handle == TC_ID(0x1001, 0)) {
                        queue = &want.objects[i];
                        have.objects[i] = (struct tc_object){.type = TC_QDISC,
                                                             .handle = TC_ID(5, 0),
                                                             .parent = queue->parent,
                                                             .kind_name = "htb"};
                }
        }
        for (size_t i = 0; i < ARRAY_SIZE(others); i++)
                assert_int_equal(tc_tree_add(&have, &others[i]), 0);
        tc_tree_sort(&have);
        assert_int_equal(tc_diff_make(&d, &have, &want), 0);
        assert_int_equal(d.n, 1);
        assert_int_equal(d.changes[0].verb, TC_REPLACE);
        assert_ptr_equal(d.changes[0].object, queue);
        tc_diff_fini(&d);
        tc_tree_fini(&have);
        tc_tree_fini(&want);
}

TEST(status_is_read_from_the_tree)
{
        struct tc_destination to[4];
        struct tc_request q = sample_request(to, 4, TC_BACKEND_HTB_TBF);
        _cleanup_(tc_tree_fini) struct tc_tree t = sample_tree(&q, NULL);
        _cleanup_(tc_status_fini) struct tc_status s;

        for (size_t i = 0; i < t.n; i++) {
                if (t.objects[i].type == TC_QDISC && t.objects[i].handle == TC_ID(0x1001, 0))
                        t.objects[i].counters =
                                (struct tc_counters){.known = true, .drops = 7, .backlog_bytes = 100};
                if (t.objects[i].type == TC_CLASS && t.objects[i].handle == TC_ID(TC_OUR_MAJOR, 0x1001))
                        t.objects[i].counters =
                                (struct tc_counters){.known = true, .packets = 3, .bytes = 333};
        }
        assert_int_equal(tc_status_make(&s, &t, to, 4), 0);
        assert_int_equal(s.n, 4);
        assert_true(tc_address_equal(&s.rows[0].address, &to[0].address));
        assert_fields(&s.rows[0], rate_bps, to[0].rate_bps, asked_bps, to[0].rate_bps);
        assert_fields(&s.rows[0].counters, drops, 7, bytes, 333, backlog_bytes, 100);
        assert_int_equal(s.drops, 7);
        assert_true(s.control.present && s.other.present);
        assert_int_equal(s.control.rate_bps, 5000000);
}

static size_t count_of(const struct tc_diff *d, enum tc_verb verb, uint32_t handle)
{
        size_t n = 0;

        for (size_t i = 0; i < d->n; i++)
                n += d->changes[i].verb == verb && d->changes[i].object->handle == handle;
        return n;
}

/* Whether a filter of this priority leads packets to the destination to this class. */
static bool leads(const struct tc_tree *t, const struct tc_address *to, uint16_t priority, uint32_t minor)
{
        for (size_t i = 0; i < t->n; i++) {
                const struct tc_object *f = &t->objects[i];

                if (f->type == TC_FILTER && f->priority == priority &&
                    memcmp(f->params.u32.matches[0].value, to->bytes, 4) == 0)
                        return f->params.u32.classid == TC_ID(TC_OUR_MAJOR, minor);
        }
        return false;
}

/* HTB does not ask the class above as long as a class is within its guaranteed rate, so all that these
 * classes can send at once is short, except for one burst of data. */
static void check_bursts(const struct tc_tree *t, uint32_t low)
{
        const struct tc_object *leaves[] = {tc_tree_class(t, TC_ID(TC_OUR_MAJOR, 0x2000 | low)),
                                            tc_tree_class(t, TC_ID(TC_OUR_MAJOR, 0x3000 | low))};
        uint32_t data_bytes = tc_tree_qdisc(t, leaves[0]->handle)->params.tbf.burst_bytes,
                 short_bytes = MAX(data_bytes / 8, UINT32_C(2 * 1514));

        assert_int_equal(tc_tree_qdisc(t, leaves[1]->handle)->params.tbf.burst_bytes, short_bytes);
        for (size_t i = 0; i < ARRAY_SIZE(leaves); i++) {
                const struct tc_htb_class *c = &leaves[i]->params.htb_class;

                assert_in_range(tc_bytes_of_ticks(c->burst_ticks, c->rate_bytes), short_bytes,
                                short_bytes + short_bytes / 100);
        }
}

static const uint16_t short_protocols[] = {IPPROTO_UDP, IPPROTO_TCP};

TEST_EACH(packets_that_are_not_data_have_a_short_queue_within_the_rate, k, ARRAY_SIZE(short_protocols))
{
        struct tc_destination to[2];
        struct tc_request q = sample_request(to, 2, TC_BACKEND_HTB_TBF);
        _cleanup_(tc_tree_fini) struct tc_tree t = {};
        _cleanup_(tc_status_fini) struct tc_status s;
        const struct tc_object *whole, *data, *apart;
        bool tcp = short_protocols[k] == IPPROTO_TCP;

        to[0].permille = 500;
        to[1].rate_bps = UINT64_C(200000000);
        q.data_protocol = short_protocols[k];
        q.data_port = 26801;
        t = sample_tree(&q, NULL);
        whole = tc_tree_class(&t, TC_ID(TC_OUR_MAJOR, 0x1001));
        data = tc_tree_class(&t, TC_ID(TC_OUR_MAJOR, 0x2001));
        apart = tc_tree_class(&t, TC_ID(TC_OUR_MAJOR, 0x3001));
        assert_true(whole && data && apart);
        assert_int_equal(whole->parent, TC_LINK_CLASS);
        assert_int_equal(data->parent, whole->handle);
        assert_int_equal(apart->parent, whole->handle);
        assert_int_equal(whole->params.htb_class.ceil_bytes * 8, to[0].rate_bps / 2);
        assert_int_equal(data->params.htb_class.ceil_bytes * 8, to[0].rate_bps / 2);
        assert_int_equal(apart->params.htb_class.ceil_bytes * 8, to[0].rate_bps / 2);
        assert_int_equal(whole->params.htb_class.rate_bytes,
                         data->params.htb_class.rate_bytes + apart->params.htb_class.rate_bytes);
        assert_true(apart->params.htb_class.priority < data->params.htb_class.priority);
        assert_null(tc_tree_qdisc(&t, whole->handle));
        check_bursts(&t, 1);
        check_bursts(&t, 2);
        assert_in_range(tc_tree_qdisc(&t, apart->handle)->params.tbf.limit_bytes, 128 << 10, 256 << 10);
        assert_true(tc_tree_qdisc(&t, data->handle)->params.tbf.limit_bytes > 2 << 20);
        assert_true(leads(&t, &to[0].address, 16, tcp ? 0x2001 : 0x3001));
        assert_true(leads(&t, &to[0].address, 22, tcp ? 0x3001 : 0x2001));
        assert_true(leads(&t, &to[1].address, 16, tcp ? 0x2002 : 0x3002));
        /* Drops of other packets, to the destinations and elsewhere, raise no alarm. */
        for (size_t i = 0; i < t.n; i++) {
                if (t.objects[i].type == TC_CLASS)
                        t.objects[i].counters = (struct tc_counters){
                                .known = true, .drops = tc_layout_is_apart(t.objects[i].handle) ? 100 : 1};
        }
        assert_int_equal(tc_status_make(&s, &t, to, 2), 0);
        assert_int_equal(s.n, 2);
        assert_fields(&s.rows[0], classid, data->handle, rate_bps, to[0].rate_bps / 2);
        assert_int_equal(s.drops, 3);
        assert_int_equal(s.apart.counters.drops, 200);
}

/* With fq_codel below TBF, if the kernel has it. A new TBF also needs a new fq_codel, a changed TBF does
 * not. */
TEST(packets_that_are_not_data_have_fq_codel)
{
        struct tc_destination to[1];
        struct tc_request q = sample_request(to, 1, TC_BACKEND_HTB_TBF);
        _cleanup_(tc_tree_fini) struct tc_tree fair = {}, changed = {}, shorter = {}, plain = {}, htb = {};
        const struct tc_object *queue;
        struct tc_diff d;

        q.data_protocol = IPPROTO_UDP;
        q.fair = TC_FAIR_YES;
        to[0].rate_bps = UINT64_C(10000000);
        fair = sample_tree(&q, NULL);
        queue = tc_tree_qdisc(&fair, TC_ID(0x3001, 1));
        assert_true(queue && queue->kind == &tc_kind_fq_codel && queue->handle == TC_ID(0x4001, 0));
        /* The packets are guaranteed 1 Mbit/s, and two frames of 1514 bytes take 24 ms then. */
        assert_fields(&queue->params.fq_codel, target_us, 24224, interval_us, 484480, memory_bytes,
                      4 * tc_tree_qdisc(&fair, TC_ID(TC_OUR_MAJOR, 0x3001))->params.tbf.limit_bytes);
        to[0].rate_bps = UINT64_C(12000000);
        changed = sample_tree(&q, &fair);
        assert_int_equal(tc_diff_make(&d, &fair, &changed), 0);
        for (size_t i = 0; i < d.n; i++)
                assert_true(d.changes[i].verb == TC_CHANGE && d.changes[i].object->handle != queue->handle);
        assert_true(d.n > 0);
        tc_diff_fini(&d);
        q.mtu_bytes = 600;
        shorter = sample_tree(&q, &changed);
        assert_int_equal(tc_diff_make(&d, &changed, &shorter), 0);
        assert_int_equal(count_of(&d, TC_RENEW, TC_ID(0x3001, 0)), 1);
        assert_int_equal(count_of(&d, TC_ADD, queue->handle), 1);
        tc_diff_fini(&d);
        q.fair = TC_FAIR_NO;
        plain = sample_tree(&q, &shorter);
        assert_null(tc_tree_qdisc(&plain, TC_ID(0x3001, 1)));
        assert_int_equal(tc_diff_make(&d, &shorter, &plain), 0);
        assert_int_equal(count_of(&d, TC_DELETE, queue->handle), 1);
        assert_int_equal(count_of(&d, TC_CHANGE, TC_ID(0x3001, 0)), 1);
        tc_diff_fini(&d);
        q.fair = TC_FAIR_YES;
        q.backend = TC_BACKEND_HTB;
        htb = sample_tree(&q, NULL);
        assert_ptr_equal(tc_tree_qdisc(&htb, TC_ID(TC_OUR_MAJOR, 0x3001))->kind, &tc_kind_bfifo);
}

/* With fq_codel, if the kernel has it. At a low rate, its target is the time of two frames. */
static const enum tc_backend backends[] = {TC_BACKEND_HTB_TBF, TC_BACKEND_CBQ_TBF};

TEST_EACH(other_traffic_has_a_short_queue, i, 2 * ARRAY_SIZE(backends))
{
        struct tc_destination to[2];
        struct tc_request q = sample_request(to, 2, backends[i / 2]);
        bool slow = i % 2 == 1;
        _cleanup_(tc_tree_fini) struct tc_tree fair = {}, plain = {};
        _cleanup_(tc_status_fini) struct tc_status s;
        const struct tc_object *queue;

        q.link_rate_bps = slow ? UINT64_C(200000000) : UINT64_C(1000000000);
        plain = sample_tree(&q, NULL);
        queue = tc_tree_qdisc(&plain, TC_OTHER_CLASS);
        assert_ptr_equal(queue->kind, &tc_kind_bfifo);
        assert_int_equal(queue->params.fifo.limit, slow ? 256 << 10 : 1250000);
        assert_int_equal(tc_layout_fair(&plain), TC_FAIR_NO);
        q.fair = TC_FAIR_YES;
        fair = sample_tree(&q, NULL);
        queue = tc_tree_qdisc(&fair, TC_OTHER_CLASS);
        assert_ptr_equal(queue->kind, &tc_kind_fq_codel);
        assert_fields(&queue->params.fq_codel, limit_packets, 10240, memory_bytes, 16 << 20, target_us,
                      slow ? 24224 : 5000, interval_us, slow ? 484480 : 100000, quantum_bytes, 1514, ecn,
                      true);
        assert_int_equal(tc_layout_fair(&fair), TC_FAIR_YES);
        assert_int_equal(tc_status_make(&s, &fair, to, 2), 0);
        assert_int_equal(s.other.limit_bytes, 16 << 20);
}
