/* The plan of shaping for arbitrary facts and wishes, its tree, and each of the tree's objects as a netlink
 * message and back. An accepted plan guarantees no more than the link has, and turns into itself without a
 * change. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/cursor.h"
#include "base/util.h"
#include "shape/model/netlink_message.h"
#include "shape/model/kind.h"
#include "shape/model/layout.h"
#include "shape/model/plan.h"
#include "fuzz.h"

#define DESTINATIONS_MAX 80u
#define DESTINATION_BYTES 12u

/* A number of the size that the first byte asks for. */
static uint64_t number(struct reader *r)
{
        unsigned bits = reader_u8(r) % 48;

        return reader_u64(r) & ((UINT64_C(1) << bits) - 1);
}

static struct tc_address address(struct reader *r, size_t i)
{
        uint8_t kind = reader_u8(r);
        struct tc_address a = {.bytes = {10, kind, (uint8_t)(i >> 8), (uint8_t)i}, .n_bytes = 4};

        if (kind & 1)
                a = (struct tc_address){.bytes = {0xfd, kind, [14] = (uint8_t)(i >> 8), (uint8_t)i},
                                        .n_bytes = 16};
        return a;
}

/* Each number is read on its own: the order within an initialiser is the compiler's. */
static struct tc_request read_request(struct reader *r, struct tc_destination *to)
{
        static const enum tc_backend backends[] = {TC_BACKEND_HTB, TC_BACKEND_HTB_TBF, TC_BACKEND_CBQ_TBF,
                                                   TC_BACKEND_EDT};
        struct tc_request q = {.other_what = "files", .destinations = to};

        q.backend = backends[reader_u8(r) % ARRAY_SIZE(backends)];
        q.n_destinations = reader_u8(r) % (DESTINATIONS_MAX + 1);
        q.link_rate_bps = number(r);
        q.mtu_bytes = (uint16_t)number(r);
        q.switch_buffer_bytes = number(r);
        q.sources = (uint16_t)number(r);
        q.fair = q.sources % 2 ? TC_FAIR_YES : TC_FAIR_NO;
        q.send_buffer_bytes = number(r);
        q.super_packet_bytes = (uint32_t)number(r) & 0x7ffff;
        q.rate_bps = number(r);
        q.burst_bytes = number(r);
        q.limit_bytes = number(r);
        q.control_rate_bps = number(r);
        q.other_rate_bps = number(r);
        q.control_port = reader_u16(r);
        q.overhead_bytes = reader_u8(r);
        /* Those that the input describes: otherwise, most of the time would go into many equal ones. */
        q.n_destinations = MIN(q.n_destinations, reader_left(r) / DESTINATION_BYTES);
        for (size_t i = 0; i < q.n_destinations; i++) {
                to[i] = (struct tc_destination){.address = address(r, i)};
                to[i].rate_bps = number(r);
                to[i].permille = reader_u16(r) % 1001;
        }
        return q;
}

static void check_plan(const struct tc_plan *p, const struct tc_request *q)
{
        assert(p->n == q->n_destinations && p->n_warnings <= TC_WARNINGS_MAX);
        for (size_t i = 0; i < p->n; i++) {
                const struct tc_share *s = &p->shares[i];

                assert(s->rate_bps >= 64 && s->rate_bps <= TC_LINK_RATE_MAX_BPS);
                assert(s->rate_bps <= s->planned_bps && s->guaranteed_bps <= MAX(s->rate_bps, UINT64_C(64)));
                assert(s->burst_bytes >= p->frame_bytes && s->limit_bytes >= p->frame_bytes);
                assert(s->quantum_bytes > 0);
        }
}

/* Each object goes to the kernel as it is described, with the words that tc prints. */
static void check_object(const struct tc_object *o)
{
        static _Alignas(struct nlmsghdr) char bytes[TC_MESSAGE_MAX];
        struct nlmsghdr *m = (struct nlmsghdr *)bytes;
        const struct tc_change change = {.verb = TC_ADD, .object = o};
        struct tc_object again;
        int ifindex;
        char text[512];
        struct strbuf b = strbuf_init(text, sizeof text);

        assert(tc_message_encode(m, 1, &change) == 0 && m->nlmsg_len <= TC_MESSAGE_MAX);
        assert(tc_message_decode(m, &again, &ifindex) == 0);
        assert(again.kind == o->kind && o->kind->equal(o, &again));
        free(again.options);
        o->kind->words(o, &b);
        assert(!b.cut);
}

static void check_tree(const struct tc_plan *p)
{
        const struct tc_tree nothing = {.n = 0};
        _cleanup_(tc_tree_fini) struct tc_tree tree, again;
        _cleanup_(tc_diff_fini) struct tc_diff d;

        assert(tc_layout_make(&tree, p, &nothing) == 0);
        for (size_t i = 0; i < tree.n; i++)
                check_object(&tree.objects[i]);
        assert(tc_layout_owner(&tree) == TC_OWNER_OURS && tc_layout_backend(&tree) == p->backend);
        assert(tc_layout_make(&again, p, &tree) == 0);
        assert(tc_diff_make(&d, &tree, &again) == 0 && d.n == 0);
}

bool fuzz_accepts(const uint8_t *bytes, size_t size_bytes)
{
        struct tc_destination to[DESTINATIONS_MAX];
        struct reader r = reader_init(bytes, size_bytes);
        struct tc_request q = read_request(&r, to);
        struct error e = {};
        struct tc_plan p;

        if (tc_plan_make(&p, &q, &e) < 0) {
                assert(e.code < 0 && e.message[0]);
                return false;
        }
        check_plan(&p, &q);
        check_tree(&p);
        tc_plan_fini(&p);
        return true;
}
