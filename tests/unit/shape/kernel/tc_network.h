/* A private network for a test: a namespace with a veth that exists until the test ends. Skips the test, with
 * a reason, if the privilege is missing. */
#pragma once

#include "tc_sample.h"
#include "shape/kernel/shaper.h"

#include <fcntl.h>
#include <netlink/route/link.h>
#include <netlink/route/link/veth.h>
#include <netlink/socket.h>
#include <stdio.h>
#include <sys/stat.h>

#define NETWORK_DEVICE "evb0"

static inline bool network_enter(void)
{
        static char folder[] = "/tmp/evb-tc-XXXXXX";
        struct nl_sock *s;
        struct rtnl_link *link, *wanted;
        bool ok;

        if (unshare(CLONE_NEWNET) < 0 && unshare(CLONE_NEWUSER | CLONE_NEWNET) < 0) {
                print_message("skipped: cannot create a network namespace\n");
                return false;
        }
        s = nl_socket_alloc();
        ok = s && nl_connect(s, NETLINK_ROUTE) >= 0 &&
             rtnl_link_veth_add(s, NETWORK_DEVICE, "evb1", getpid()) >= 0 &&
             rtnl_link_get_kernel(s, 0, NETWORK_DEVICE, &link) >= 0;
        if (ok) {
                wanted = rtnl_link_alloc();
                rtnl_link_set_flags(wanted, IFF_UP);
                ok = rtnl_link_change(s, link, wanted, 0) >= 0;
                rtnl_link_put(wanted);
                rtnl_link_put(link);
        }
        nl_socket_free(s);
        if (!ok)
                print_message("skipped: cannot create a veth\n");
        if (!strchr(folder, 'X') || mkdtemp(folder))
                setenv("EVB_STATE_DIRECTORY", folder, 1);
        return ok;
}

static inline void network_leave(void)
{
        const char *folder = getenv("EVB_STATE_DIRECTORY");

        if (folder)
                rmdir(folder);
}

static inline struct tc_device network_device(void)
{
        struct tc_device d;

        assert_int_equal(tc_device_read(&d, NETWORK_DEVICE), 0);
        return d;
}

static inline struct tc_shaper *network_shaper(void)
{
        struct tc_device d = network_device();
        struct tc_outcome o = {};
        struct error e = {};
        struct tc_shaper *s;

        if (tc_shaper_new(&s, &d, &o, &e) < 0)
                fail_msg("%s", e.message);
        return s;
}

static inline unsigned apply(struct tc_shaper *s, const struct tc_request *q)
{
        struct tc_plan p = sample_plan(q);
        struct tc_outcome o = {};
        struct error e = {};

        if (tc_shaper_apply(s, &p, false, NS_PER_S, true, &o, &e) < 0)
                fail_msg("%s", e.message);
        tc_plan_fini(&p);
        return o.operations;
}

static inline void remove_all(struct tc_shaper *s)
{
        struct tc_outcome o = {};
        struct error e = {};

        if (tc_shaper_remove(s, &o, &e) < 0)
                fail_msg("%s", e.message);
}

static inline struct tc_tree network_dump(void)
{
        struct tc_device d = network_device();
        struct tc_socket *s;
        struct tc_tree t;

        assert_int_equal(tc_socket_new(&s), 0);
        assert_int_equal(tc_socket_dump(s, d.ifindex, true, &t), 0);
        tc_socket_free(s);
        return t;
}

DEFINE_FREEP(tc_shaper)

/* Removes what it has applied, and ends it. */
static inline void network_remove(struct tc_shaper *s)
{
        remove_all(s);
        tc_shaper_free(s);
}

static inline void network_removep(struct tc_shaper **s)
{
        network_remove(*s);
}

/* Runs tc, like another program, with a time limit, in this namespace. */
static inline void network_tc(const char *arguments)
{
        char command[512];

        snprintf(command, sizeof command, "timeout 20 tc %s", arguments);
        if (system(command) != 0)
                fail_msg("tc %s failed", arguments);
}

static inline bool network_has_tc(void)
{
        if (system("tc -V >/dev/null 2>&1") == 0)
                return true;
        print_message("skipped: tc (iproute2) is not installed\n");
        return false;
}

/* The device as tc prints it: without statistics, u32's own table numbers, and order. */
static inline char *network_text(void)
{
        char *text = NULL;
        size_t size = 0;
        FILE *to = open_memstream(&text, &size), *from;
        int c;

        from = popen("printf '%s show dev " NETWORK_DEVICE
                     "\\n' qdisc class filter | tc -force -batch - 2>/dev/null | sed -E 's/refcnt [0-9]+//; "
                     "s/direct_packets_stat [0-9]+//; s/ht "
                     "8[0-9a-f]{2}/ht/; s/fh 8[0-9a-f]{2}/fh/; s/order [0-9]+//; s/ref [0-9]+ bind [0-9]+//; "
                     "s/^filter.*fh : ht divisor 1 *$//' | sort",
                     "r");
        while ((c = getc(from)) != EOF)
                putc(c, to);
        pclose(from);
        fclose(to);
        return text;
}

/* The tests of a program run in one network; without it, or without tc, they are skipped. */
int main(int argc, char **argv)
{
        int failed;

        if (!network_has_tc() || !network_enter())
                return 77;
        failed = test_run(argc, argv, NULL, NULL);
        network_leave();
        return failed;
}
