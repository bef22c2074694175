/* Reads rtnetlink notifications. The kernel announces a deleted root only once, and deletes the qdiscs of a
 * deleted link silently, so the socket joins both groups. */
#include "shape/kernel/watch.h"

#include <errno.h>
#include <libmnl/libmnl.h>
#include <linux/rtnetlink.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/util.h"
#include "shape/model/kind.h"
#include "shape/model/netlink_message.h"

#define BUFFER_BYTES (64u << 10)

struct tc_watch {
        struct mnl_socket *mnl;
        int ifindex;
        uint32_t own_port;
        const struct nlmsghdr *next;
        int left;
        uint8_t in[BUFFER_BYTES] __attribute__((aligned(8)));
};

int tc_watch_new(struct tc_watch **ret, int ifindex, uint32_t own_port)
{
        struct tc_watch *w = calloc(1, sizeof *w);
        int groups[] = {RTNLGRP_TC, RTNLGRP_LINK}, r;

        if (!w)
                return -ENOMEM;
        w->ifindex = ifindex;
        w->own_port = own_port;
        r = tc_mnl_open(&w->mnl, NETLINK_ROUTE);
        for (size_t i = 0; r >= 0 && i < ARRAY_SIZE(groups); i++) {
                if (mnl_socket_setsockopt(w->mnl, NETLINK_ADD_MEMBERSHIP, &groups[i], sizeof groups[i]) < 0)
                        r = -errno;
        }
        if (r < 0) {
                tc_watch_free(w);
                return r;
        }
        *ret = w;
        return 0;
}

struct tc_watch *tc_watch_free(struct tc_watch *w)
{
        if (w && w->mnl)
                mnl_socket_close(w->mnl);
        free(w);
        return NULL;
}

int tc_watch_fd(const struct tc_watch *w)
{
        return mnl_socket_get_fd(w->mnl);
}

/* True: the message is about the watched device, and *ret is filled. */
static bool decode_event(const struct tc_watch *w, const struct nlmsghdr *m, struct tc_event *ret)
{
        struct tc_event e = {.port = m->nlmsg_pid, .by_us = m->nlmsg_pid != 0 && m->nlmsg_pid == w->own_port};
        struct ifinfomsg link;
        int ifindex;

        if ((m->nlmsg_type == RTM_DELLINK || m->nlmsg_type == RTM_NEWLINK) &&
            mnl_nlmsg_get_payload_len(m) >= sizeof link) {
                memcpy(&link, mnl_nlmsg_get_payload(m), sizeof link);
                e.what = m->nlmsg_type == RTM_DELLINK ? TC_EVENT_LINK_GONE : TC_EVENT_LINK;
                *ret = e;
                return link.ifi_family == AF_UNSPEC && link.ifi_index == w->ifindex;
        }
        if (tc_message_decode(m, &e.object, &ifindex) < 0)
                return false;
        if (ifindex != w->ifindex) {
                free(e.object.options);
                return false;
        }
        e.what = m->nlmsg_type == RTM_DELQDISC || m->nlmsg_type == RTM_DELTCLASS ||
                                 m->nlmsg_type == RTM_DELTFILTER
                         ? TC_EVENT_DELETED
                         : TC_EVENT_CHANGED;
        *ret = e;
        return true;
}

int tc_watch_next(struct tc_watch *w, struct tc_event *ret)
{
        for (;;) {
                while (w->next && mnl_nlmsg_ok(w->next, w->left)) {
                        const struct nlmsghdr *m = w->next;

                        w->next = mnl_nlmsg_next(m, &w->left);
                        if (decode_event(w, m, ret))
                                return 1;
                }
                ssize_t n = recv(mnl_socket_get_fd(w->mnl), w->in, sizeof w->in, MSG_DONTWAIT);

                w->next = NULL;
                if (n < 0 && errno == ENOBUFS) {
                        *ret = (struct tc_event){.what = TC_EVENT_LOST};
                        return 1;
                }
                if (n < 0)
                        return errno == EAGAIN || errno == EINTR ? 0 : -errno;
                w->next = (void *)w->in;
                w->left = (int)n;
        }
}

char *tc_event_actor(const struct tc_event *e, char *text, size_t size)
{
        char path[64], name[32] = "";
        FILE *f;

        if (e->port == 0) {
                snprintf(text, size, "the kernel");
                return text;
        }
        snprintf(path, sizeof path, "/proc/%u/comm", e->port);
        f = fopen(path, "re");
        if (f && fgets(name, sizeof name, f))
                name[strcspn(name, "\n")] = '\0';
        /* Any program that can change a qdisc chooses its own name, which is written to logs and
         * terminals. */
        for (char *c = name; *c; c++) {
                if (*c < ' ' || *c > '~')
                        *c = '?';
        }
        if (f)
                fclose(f);
        if (name[0])
                snprintf(text, size, "%s (process %u)", name, e->port);
        else
                snprintf(text, size, "netlink port %u", e->port);
        return text;
}

void tc_drift_describe(const struct tc_change *c, struct strbuf *b)
{
        static const char *const is[] = {
                [TC_ADD] = "is missing",
                [TC_REPLACE] = "was replaced",
                [TC_CHANGE] = "was changed",
                [TC_RENEW] = "was changed",
                [TC_DELETE] = "was added or replaced",
        };

        tc_object_name(c->object, b);
        strbuf_add(b, " %s", is[c->verb]);
        if ((c->verb == TC_CHANGE || c->verb == TC_RENEW) && c->object->kind) {
                strbuf_add(b, "; expected:");
                c->object->kind->words(c->object, b);
        }
}

int tc_drift(const struct tc_tree *have, const struct tc_tree *installed,
             char what[static TC_OUTCOME_TEXT_MAX])
{
        struct strbuf b = strbuf_init(what, TC_OUTCOME_TEXT_MAX);
        struct tc_diff diff = {};
        int r = tc_diff_make(&diff, have, installed);
        bool differs;

        if (r < 0)
                return r;
        differs = diff.n_before_drain > 0 || diff.n > diff.n_before_tables;
        if (differs)
                tc_drift_describe(&diff.changes[diff.n_before_drain > 0 ? 0 : diff.n_before_tables], &b);
        tc_diff_fini(&diff);
        return differs;
}
