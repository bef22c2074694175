/* The supported kinds of qdiscs and filters, in one table with one file per kind. A kind encodes its
 * parameters as netlink attributes, decodes, compares and prints them as words of a tc command. It never
 * trusts its input. */
#pragma once

#include <libmnl/libmnl.h>

#include "shape/model/object.h"

struct tc_kind {
        const char *name;
        /* Adds the attributes within TCA_OPTIONS. */
        void (*encode)(struct nlmsghdr *m, const struct tc_object *o);
        /* Sets o->params. -EBADMSG: truncated, contradictory, or with features that the parameters cannot
         * express. */
        int (*decode)(struct tc_object *o, const struct nlattr *options);
        bool (*equal)(const struct tc_object *a, const struct tc_object *b);
        void (*words)(const struct tc_object *o, struct strbuf *b);
};

extern const struct tc_kind tc_kind_htb, tc_kind_tbf, tc_kind_cbq, tc_kind_bfifo, tc_kind_pfifo, tc_kind_u32;

/* NULL: unsupported kind. */
const struct tc_kind *tc_kind_find(const char *name);
