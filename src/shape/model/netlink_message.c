/* Encodes objects as netlink messages, and decodes them. */
#include "shape/model/netlink_message.h"

#include <arpa/inet.h>
#include <assert.h>
#include <errno.h>
#include <linux/gen_stats.h>
#include <linux/rtnetlink.h>
#include <stdlib.h>
#include <string.h>

#include "base/util.h"
#include "shape/model/kind.h"

static uint16_t message_type(enum tc_type type, bool delete)
{
        static const uint16_t types[][2] = {
                [TC_QDISC] = {RTM_NEWQDISC, RTM_DELQDISC},
                [TC_CLASS] = {RTM_NEWTCLASS, RTM_DELTCLASS},
                [TC_FILTER] = {RTM_NEWTFILTER, RTM_DELTFILTER},
        };

        return types[type][delete];
}

/* Existing filters are identified by the kernel's handle. New filters are sent with their number; their table
 * is a separate attribute. */
static uint32_t message_handle(const struct tc_change *c)
{
        const struct tc_object *o = c->object;

        if (o->type != TC_FILTER)
                return o->handle;
        if (c->verb == TC_DELETE || c->verb == TC_CHANGE)
                return c->kernel_handle;
        return o->kind == &tc_kind_u32 && o->params.u32.divisor == 0 ? o->handle & 0xfff : o->handle;
}

static int put_options(struct nlmsghdr *m, const struct tc_object *o)
{
        struct nlattr *nest;

        if (!o->kind) {
                if (o->options_bytes > TC_MESSAGE_MAX / 2 || o->options_bytes > UINT16_MAX - MNL_ATTR_HDRLEN)
                        return -EMSGSIZE;
                if (o->options_bytes > 0)
                        mnl_attr_put(m, TCA_OPTIONS, o->options_bytes, o->options);
                return 0;
        }
        nest = mnl_attr_nest_start(m, TCA_OPTIONS);
        nest->nla_type = TCA_OPTIONS; /* without NLA_F_NESTED, as tc sends it and old kernels expect it */
        o->kind->encode(m, o);
        mnl_attr_nest_end(m, nest);
        return 0;
}

int tc_message_encode(struct nlmsghdr *m, int ifindex, const struct tc_change *change)
{
        static const uint16_t flags[] = {
                [TC_ADD] = NLM_F_CREATE | NLM_F_EXCL,
                [TC_REPLACE] = NLM_F_CREATE | NLM_F_REPLACE,
                [TC_CHANGE] = 0,
                [TC_DELETE] = 0,
        };
        const struct tc_object *o = change->object;
        enum tc_verb verb = change->verb;
        struct tcmsg *tc;

        assert(verb != TC_RENEW);
        mnl_nlmsg_put_header(m);
        m->nlmsg_type = message_type(o->type, verb == TC_DELETE);
        m->nlmsg_flags = NLM_F_REQUEST | NLM_F_ACK | flags[verb];
        tc = mnl_nlmsg_put_extra_header(m, sizeof *tc);
        tc->tcm_family = AF_UNSPEC;
        tc->tcm_ifindex = ifindex;
        tc->tcm_handle = message_handle(change);
        tc->tcm_parent = o->parent;
        if (o->type == TC_FILTER)
                tc->tcm_info = (uint32_t)o->priority << 16 | htons(o->protocol);
        mnl_attr_put_strz(m, TCA_KIND, o->kind_name);
        if (o->chain > 0)
                mnl_attr_put_u32(m, TCA_CHAIN, o->chain);
        if (verb == TC_DELETE)
                return 0;
        if (o->has_stab && !tc_object_is_missing_table(o)) {
                struct nlattr *nest = mnl_attr_nest_start(m, TCA_STAB);

                nest->nla_type = TCA_STAB;
                mnl_attr_put(m, TCA_STAB_BASE, sizeof o->stab, o->stab);
                mnl_attr_nest_end(m, nest);
        }
        return put_options(m, o);
}

static void read_stats(const struct nlattr *nest, struct tc_counters *s)
{
        const struct nlattr *a[TCA_STATS_MAX + 1];
        struct gnet_stats_basic basic;
        struct gnet_stats_queue queue;

        kind_read(nest, a, TCA_STATS_MAX);
        /* Not every kernel sends the padding at the end of this structure. */
        if (kind_get(a[TCA_STATS_BASIC], &basic,
                     offsetof(struct gnet_stats_basic, packets) + sizeof basic.packets)) {
                s->known = true;
                s->bytes = basic.bytes;
                s->packets = kind_get_u64(a[TCA_STATS_PKT64], basic.packets);
        }
        if (kind_get(a[TCA_STATS_QUEUE], &queue, sizeof queue)) {
                s->backlog_bytes = queue.backlog;
                s->backlog_packets = queue.qlen;
                s->drops = queue.drops;
                s->requeues = queue.requeues;
                s->overlimits = queue.overlimits;
        }
}

/* The kernel numbers topmost tables from 0x800; table 0 represents all of them. */
static uint32_t u32_handle(uint32_t kernel_handle)
{
        return kernel_handle >= UINT32_C(0x80000000) ? kernel_handle & 0xfffff : kernel_handle;
}

static int read_kind(struct tc_object *o, const struct nlattr *kind)
{
        size_t n = kind ? mnl_attr_get_payload_len(kind) : 0;
        const char *name = n > 0 ? mnl_attr_get_payload(kind) : "";

        n = strnlen(name, n);
        if (n == 0 || n >= sizeof o->kind_name)
                return -EBADMSG;
        memcpy(o->kind_name, name, n);
        return 0;
}

static void decode(struct tc_object *o, const struct nlattr *options)
{
        const struct tc_kind *kind = tc_kind_find(o->kind_name);

        if (kind && kind->decode(o, options) >= 0)
                o->kind = kind;
}

int tc_object_decode_options(struct tc_object *o)
{
        _cleanup_free_ struct nlattr *options = malloc(MNL_ATTR_HDRLEN + o->options_bytes);

        if (!options)
                return -ENOMEM;
        if (o->options_bytes > UINT16_MAX - MNL_ATTR_HDRLEN)
                return -EBADMSG;
        options->nla_type = TCA_OPTIONS;
        options->nla_len = (uint16_t)(MNL_ATTR_HDRLEN + o->options_bytes);
        memcpy(mnl_attr_get_payload(options), o->options, o->options_bytes);
        decode(o, options);
        return 0;
}

static int read_options(struct tc_object *o, const struct nlattr *options)
{
        decode(o, options);
        if (!options || mnl_attr_get_payload_len(options) == 0)
                return 0;
        o->options_bytes = mnl_attr_get_payload_len(options);
        o->options = malloc(o->options_bytes);
        if (!o->options)
                return -ENOMEM;
        memcpy(o->options, mnl_attr_get_payload(options), o->options_bytes);
        return 0;
}

/* Attributes are padded to four bytes. If a message ended within an attribute, libmnl would round up, and
 * read beyond the message. */
static bool ends_with_an_attribute(const struct nlmsghdr *m)
{
        return m->nlmsg_len % MNL_ALIGNTO == 0;
}

static bool object_type(uint16_t message_type, enum tc_type *ret)
{
        switch (message_type) {
        case RTM_NEWQDISC:
        case RTM_DELQDISC:
                *ret = TC_QDISC;
                return true;
        case RTM_NEWTCLASS:
        case RTM_DELTCLASS:
                *ret = TC_CLASS;
                return true;
        case RTM_NEWTFILTER:
        case RTM_DELTFILTER:
                *ret = TC_FILTER;
                return true;
        }
        return false;
}

static void read_stab(struct tc_object *o, const struct nlattr *stab)
{
        const struct nlattr *a[TCA_STAB_MAX + 1];

        kind_read(stab, a, TCA_STAB_MAX);
        o->has_stab = kind_get(a[TCA_STAB_BASE], o->stab, sizeof o->stab);
}

int tc_message_decode(const struct nlmsghdr *m, struct tc_object *ret, int *ret_ifindex)
{
        const struct nlattr *attributes[TCA_MAX + 1] = {}, *a;
        struct tc_object o = {};
        struct tcmsg tc;
        int r;

        if (!object_type(m->nlmsg_type, &o.type) || mnl_nlmsg_get_payload_len(m) < sizeof tc ||
            !ends_with_an_attribute(m))
                return -EBADMSG;
        memcpy(&tc, mnl_nlmsg_get_payload(m), sizeof tc);
        mnl_attr_for_each(a, m, sizeof tc)
        {
                if (mnl_attr_get_type(a) <= TCA_MAX)
                        attributes[mnl_attr_get_type(a)] = a;
        }
        o.handle = o.kernel_handle = tc.tcm_handle;
        /* The kernel reports topmost classes with the parent "root", regardless of the root's handle. */
        o.parent = o.type == TC_CLASS && tc.tcm_parent == TC_ROOT ? TC_ID(TC_MAJOR(tc.tcm_handle), 0)
                                                                  : tc.tcm_parent;
        if (o.type == TC_FILTER) {
                o.priority = (uint16_t)(tc.tcm_info >> 16);
                o.protocol = ntohs((uint16_t)tc.tcm_info);
                o.chain = kind_get_u32(attributes[TCA_CHAIN], 0);
        }
        r = read_kind(&o, attributes[TCA_KIND]);
        if (r < 0)
                return r;
        if (o.type == TC_FILTER && strcmp(o.kind_name, tc_kind_u32.name) == 0)
                o.handle = u32_handle(tc.tcm_handle);
        if (attributes[TCA_STATS2])
                read_stats(attributes[TCA_STATS2], &o.counters);
        if (o.type == TC_QDISC)
                read_stab(&o, attributes[TCA_STAB]);
        r = read_options(&o, attributes[TCA_OPTIONS]);
        if (r < 0)
                return r;
        *ret = o;
        *ret_ifindex = tc.tcm_ifindex;
        return 0;
}

static void copy_text(struct tc_ack *ack, const struct nlattr *a)
{
        size_t n = strnlen(mnl_attr_get_payload(a), mnl_attr_get_payload_len(a));

        n = MIN(n, sizeof ack->text - 1);
        memcpy(ack->text, mnl_attr_get_payload(a), n);
        ack->text[n] = '\0';
}

/* Reads the error number, and the text from the attributes that follow. */
int tc_ack_decode(const struct nlmsghdr *m, struct tc_ack *ack)
{
        size_t offset = sizeof(int32_t);
        const struct nlattr *a;
        int32_t error = 0;

        if (mnl_nlmsg_get_payload_len(m) < sizeof error)
                return -EBADMSG;
        memcpy(&error, mnl_nlmsg_get_payload(m), sizeof error);
        ack->error = error;
        if (m->nlmsg_type == NLMSG_ERROR) {
                struct nlmsgerr e;

                if (mnl_nlmsg_get_payload_len(m) < sizeof e)
                        return -EBADMSG;
                memcpy(&e, mnl_nlmsg_get_payload(m), sizeof e);
                /* Without NLM_F_CAPPED, the complete request follows. */
                offset = m->nlmsg_flags & NLM_F_CAPPED
                                 ? sizeof e
                                 : sizeof(int32_t) + MNL_ALIGN(MAX(e.msg.nlmsg_len, (uint32_t)sizeof e.msg));
        }
        if (!(m->nlmsg_flags & NLM_F_ACK_TLVS) || offset > mnl_nlmsg_get_payload_len(m) ||
            !ends_with_an_attribute(m))
                return 0;
        mnl_attr_for_each(a, m, (unsigned)offset)
        {
                if (mnl_attr_get_type(a) == NLMSGERR_ATTR_MSG)
                        copy_text(ack, a);
        }
        return 0;
}
