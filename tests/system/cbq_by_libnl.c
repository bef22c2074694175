/* Prints the qdiscs and classes of a device as libnl-route reads them, one JSON object per line. It shares no
 * code with evb.
 *   cbq_by_libnl DEVICE
 * CBQ appears only in the dumped text, because libnl has no functions for it. */
#include <net/if.h>
#include <netlink/route/class.h>
#include <netlink/route/qdisc.h>
#include <netlink/route/qdisc/fifo.h>
#include <netlink/route/qdisc/tbf.h>
#include <stdio.h>
#include <string.h>

static void print_text(struct nl_object *o)
{
        char text[4096] = "";
        struct nl_dump_params p = {.dp_type = NL_DUMP_DETAILS, .dp_buf = text, .dp_buflen = sizeof text};

        nl_object_dump(o, &p);
        for (char *c = text; *c; c++) {
                if (*c == '\n' || *c == '"' || *c == '\\' || *c == '\t')
                        *c = ' ';
        }
        printf(", \"text\": \"%s\"", text);
}

static void print_object(struct nl_object *o, void *type)
{
        struct rtnl_tc *tc = (struct rtnl_tc *)o;
        struct rtnl_qdisc *q = (struct rtnl_qdisc *)o;
        const char *kind = rtnl_tc_get_kind(tc) ?: "";

        printf("{\"type\": \"%s\", \"kind\": \"%s\", \"handle\": %u, \"parent\": %u", (const char *)type,
               kind, rtnl_tc_get_handle(tc), rtnl_tc_get_parent(tc));
        if (strcmp(type, "qdisc") == 0 && strcmp(kind, "tbf") == 0)
                printf(", \"rate_bytes\": %d, \"limit_bytes\": %d", rtnl_qdisc_tbf_get_rate(q),
                       rtnl_qdisc_tbf_get_limit(q));
        if (strcmp(type, "qdisc") == 0 && strcmp(kind, "bfifo") == 0)
                printf(", \"limit_bytes\": %d", rtnl_qdisc_fifo_get_limit(q));
        print_text(o);
        printf("}\n");
}

static int fail(const char *what, int r)
{
        fprintf(stderr, "%s: %s\n", what, nl_geterror(r));
        return 1;
}

int main(int argc, char **argv)
{
        int ifindex = argc == 2 ? (int)if_nametoindex(argv[1]) : 0, r;
        struct nl_sock *s = nl_socket_alloc();
        struct nl_cache *qdiscs, *classes;
        struct rtnl_qdisc *of_device = rtnl_qdisc_alloc();
        char qdisc[] = "qdisc", class[] = "class";

        if (ifindex == 0 || !s || !of_device) {
                fprintf(stderr, "usage: cbq_by_libnl DEVICE\n");
                return 2;
        }
        rtnl_tc_set_ifindex(TC_CAST(of_device), ifindex);
        if ((r = nl_connect(s, NETLINK_ROUTE)) < 0)
                return fail("netlink", r);
        if ((r = rtnl_qdisc_alloc_cache(s, &qdiscs)) < 0)
                return fail("qdiscs", r);
        if ((r = rtnl_class_alloc_cache(s, ifindex, &classes)) < 0)
                return fail("classes", r);
        nl_cache_foreach_filter(qdiscs, OBJ_CAST(of_device), print_object, qdisc);
        nl_cache_foreach(classes, print_object, class);
        nl_cache_free(classes);
        nl_cache_free(qdiscs);
        rtnl_qdisc_put(of_device);
        nl_socket_free(s);
        return 0;
}
