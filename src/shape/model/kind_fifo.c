/* bfifo and pfifo (net/sched/sch_fifo.c): a queue with a limit in bytes or in packets. */
#include <errno.h>
#include <string.h>

#include "shape/model/kind.h"

/* The options consist only of the structure, without an attribute. */
static void encode(struct nlmsghdr *m, const struct tc_object *o)
{
        struct tc_fifo_qopt opt = {.limit = o->params.fifo.limit};

        memcpy(mnl_nlmsg_get_payload_tail(m), &opt, sizeof opt);
        m->nlmsg_len += sizeof opt;
}

static int decode(struct tc_object *o, const struct nlattr *options)
{
        struct tc_fifo_qopt opt;

        if (!kind_get(options, &opt, sizeof opt))
                return -EBADMSG;
        o->params.fifo.limit = opt.limit;
        return 0;
}

static bool equal(const struct tc_object *a, const struct tc_object *b)
{
        return a->params.fifo.limit == b->params.fifo.limit;
}

static void words_bytes(const struct tc_object *o, struct strbuf *b)
{
        strbuf_add(b, " limit %ub", o->params.fifo.limit);
}

static void words_packets(const struct tc_object *o, struct strbuf *b)
{
        strbuf_add(b, " limit %u", o->params.fifo.limit);
}

const struct tc_kind tc_kind_bfifo = {
        .name = "bfifo", .encode = encode, .decode = decode, .equal = equal, .words = words_bytes};
const struct tc_kind tc_kind_pfifo = {
        .name = "pfifo", .encode = encode, .decode = decode, .equal = equal, .words = words_packets};
