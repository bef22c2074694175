/* u32 (net/sched/cls_u32.c): filters that match packet bytes, and their hash tables. */
#include <assert.h>
#include <errno.h>
#include <linux/if_ether.h>
#include <linux/pkt_cls.h>
#include <string.h>

#include "shape/model/kind.h"

static void encode(struct nlmsghdr *m, const struct tc_object *o)
{
        const struct tc_u32 *u = &o->params.u32;
        uint8_t bytes[sizeof(struct tc_u32_sel) + TC_U32_KEYS_MAX * sizeof(struct tc_u32_key)];
        struct tc_u32_sel sel = {.nkeys = u->n_matches, .hoff = u->hash_offset};
        struct tc_u32_key keys[TC_U32_KEYS_MAX] = {};

        assert(u->n_matches <= TC_U32_KEYS_MAX);
        if (u->divisor > 0) {
                mnl_attr_put_u32(m, TCA_U32_DIVISOR, u->divisor);
                return;
        }
        if (u->classid > 0)
                mnl_attr_put_u32(m, TCA_U32_CLASSID, u->classid);
        if (o->handle >> 12 > 0)
                mnl_attr_put_u32(m, TCA_U32_HASH, o->handle & 0xfffff000);
        if (u->link > 0)
                mnl_attr_put_u32(m, TCA_U32_LINK, u->link);
        else
                sel.flags = TC_U32_TERMINAL;
        memcpy(&sel.hmask, u->hash_mask, sizeof u->hash_mask);
        for (unsigned i = 0; i < u->n_matches; i++) {
                memcpy(&keys[i].mask, u->matches[i].mask, 4);
                memcpy(&keys[i].val, u->matches[i].value, 4);
                keys[i].off = u->matches[i].offset;
        }
        memcpy(bytes, &sel, sizeof sel);
        memcpy(bytes + sizeof sel, keys, u->n_matches * sizeof keys[0]);
        mnl_attr_put(m, TCA_U32_SEL, sizeof sel + u->n_matches * sizeof keys[0], bytes);
}

static int decode_selector(struct tc_u32 *u, const struct nlattr *a)
{
        struct tc_u32_sel sel;
        struct tc_u32_key keys[TC_U32_KEYS_MAX];

        if (!kind_get(a, &sel, sizeof sel) || sel.nkeys > TC_U32_KEYS_MAX ||
            mnl_attr_get_payload_len(a) < sizeof sel + sel.nkeys * sizeof keys[0])
                return -EBADMSG;
        if (sel.flags & ~TC_U32_TERMINAL)
                return -EBADMSG;
        memcpy(keys, (const char *)mnl_attr_get_payload(a) + sizeof sel, sel.nkeys * sizeof keys[0]);
        memcpy(u->hash_mask, &sel.hmask, sizeof u->hash_mask);
        u->hash_offset = sel.hoff;
        u->n_matches = sel.nkeys;
        for (unsigned i = 0; i < sel.nkeys; i++) {
                if (keys[i].offmask != 0)
                        return -EBADMSG;
                memcpy(u->matches[i].mask, &keys[i].mask, 4);
                memcpy(u->matches[i].value, &keys[i].val, 4);
                u->matches[i].offset = keys[i].off;
        }
        return 0;
}

static int decode(struct tc_object *o, const struct nlattr *options)
{
        const struct nlattr *a[TCA_U32_MAX + 1];
        struct tc_u32 *u = &o->params.u32;

        kind_read(options, a, TCA_U32_MAX);
        *u = (struct tc_u32){
                .classid = kind_get_u32(a[TCA_U32_CLASSID], 0),
                .link = kind_get_u32(a[TCA_U32_LINK], 0),
                .divisor = kind_get_u32(a[TCA_U32_DIVISOR], 0),
        };
        if (a[TCA_U32_ACT] || a[TCA_U32_POLICE] || a[TCA_U32_MARK] || a[TCA_U32_INDEV])
                return -EBADMSG;
        /* A table itself does not direct packets. */
        if (u->divisor > 0)
                return u->classid > 0 || u->link > 0 ? -EBADMSG : 0;
        return decode_selector(u, a[TCA_U32_SEL]);
}

static bool equal(const struct tc_object *x, const struct tc_object *y)
{
        const struct tc_u32 *a = &x->params.u32, *b = &y->params.u32;

        if (a->classid != b->classid || a->link != b->link || a->divisor != b->divisor ||
            a->n_matches != b->n_matches)
                return false;
        if (memcmp(a->hash_mask, b->hash_mask, sizeof a->hash_mask) != 0 || a->hash_offset != b->hash_offset)
                return false;
        return a->n_matches == 0 || memcmp(a->matches, b->matches, a->n_matches * sizeof a->matches[0]) == 0;
}

static uint32_t number(const uint8_t bytes[static 4])
{
        return (uint32_t)bytes[0] << 24 | (uint32_t)bytes[1] << 16 | (uint32_t)bytes[2] << 8 | bytes[3];
}

static void words(const struct tc_object *o, struct strbuf *b)
{
        const struct tc_u32 *u = &o->params.u32;
        char classid[TC_HANDLE_TEXT_MAX];

        if (u->divisor > 0) {
                strbuf_add(b, " divisor %u", u->divisor);
                return;
        }
        if (o->handle >> 12 > 0)
                strbuf_add(b, " ht %x:%x:", o->handle >> 20, o->handle >> 12 & 0xff);
        for (unsigned i = 0; i < u->n_matches; i++)
                strbuf_add(b, " match u32 0x%08x 0x%08x at %d", number(u->matches[i].value),
                           number(u->matches[i].mask), u->matches[i].offset);
        if (u->link > 0)
                strbuf_add(b, " hashkey mask 0x%08x at %d link %x:", number(u->hash_mask), u->hash_offset,
                           u->link >> 20);
        else
                strbuf_add(b, " flowid %s", tc_handle_format(u->classid, classid));
}

const struct tc_kind tc_kind_u32 = {
        .name = "u32", .encode = encode, .decode = decode, .equal = equal, .words = words};
