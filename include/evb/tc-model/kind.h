/* The kinds that we speak, one file each (kind_htb.c and so on), in one table. A kind turns its parameters
 * into netlink attributes and back, compares them, and writes them as words of a tc command line. Never
 * trusts what it reads. */
#pragma once

#include <libmnl/libmnl.h>

#include "evb/tc-model/object.h"

struct tc_kind {
        const char *name;
        /* The attributes within TCA_OPTIONS. */
        void (*encode)(struct nlmsghdr *m, const struct tc_object *o);
        /* Fills o->params; -EBADMSG: truncated, contradictory, or with features that the parameters cannot
         * express. */
        int (*decode)(struct tc_object *o, const struct nlattr *options);
        bool (*equal)(const struct tc_object *a, const struct tc_object *b);
        void (*words)(const struct tc_object *o, struct strbuf *b);
};

extern const struct tc_kind tc_kind_htb, tc_kind_tbf, tc_kind_cbq, tc_kind_bfifo, tc_kind_pfifo, tc_kind_u32;

/* NULL: not one of ours. */
const struct tc_kind *tc_kind_find(const char *name);
