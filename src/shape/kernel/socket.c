/* Sends rtnetlink requests and collects answers. Batches are small enough for default socket buffers in both
 * directions. */
#include "shape/kernel/socket.h"

#include <errno.h>
#include <linux/pkt_sched.h>
#include <linux/rtnetlink.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "base/util.h"
#include "shape/kernel/edt.h"
#include "shape/model/kind.h"

/* The acknowledgements of a batch fit into the default receive buffer, and a part of a dump into
 * RECEIVE_BYTES. */
#define BATCH_MESSAGES 64
#define BATCH_BYTES (64u << 10)
#define RECEIVE_BYTES (64u << 10)
#define RECEIVE_BUFFER_BYTES (4 << 20)
/* The kernel answers immediately, so a longer wait is a failure. */
#define ANSWER_MS 10000

struct tc_socket {
        struct mnl_socket *mnl;
        uint32_t sequence;
        void (*hook)(struct nlmsghdr *m, void *ctx);
        void *hook_ctx;
        struct edt edt;
        bool owns_clsact; /* as the filter of EDT said, which another program may have deleted since */
        uint8_t out[BATCH_BYTES + TC_MESSAGE_MAX] __attribute__((aligned(8)));
        uint8_t in[RECEIVE_BYTES] __attribute__((aligned(8)));
};

int tc_mnl_open(struct mnl_socket **ret, int bus)
{
        struct mnl_socket *s = mnl_socket_open2(bus, SOCK_CLOEXEC);
        int on = 1, size = RECEIVE_BUFFER_BYTES, r;

        if (!s || mnl_socket_bind(s, 0, MNL_SOCKET_AUTOPID) < 0) {
                r = -errno;
                if (s)
                        mnl_socket_close(s);
                return r;
        }
        /* Old kernels do not support these options, and send no text. */
        (void)mnl_socket_setsockopt(s, NETLINK_EXT_ACK, &on, sizeof on);
        (void)mnl_socket_setsockopt(s, NETLINK_CAP_ACK, &on, sizeof on);
        if (setsockopt(mnl_socket_get_fd(s), SOL_SOCKET, SO_RCVBUFFORCE, &size, sizeof size) < 0)
                (void)setsockopt(mnl_socket_get_fd(s), SOL_SOCKET, SO_RCVBUF, &size, sizeof size);
        *ret = s;
        return 0;
}

static int new_on(struct tc_socket **ret, int bus)
{
        struct tc_socket *s = calloc(1, sizeof *s);
        int r = s ? tc_mnl_open(&s->mnl, bus) : -ENOMEM;

        if (s)
                s->edt = EDT_CLOSED;
        if (r < 0) {
                tc_socket_free(s);
                return r;
        }
        *ret = s;
        return 0;
}

int tc_socket_new(struct tc_socket **ret)
{
        return new_on(ret, NETLINK_ROUTE);
}

int tc_socket_new_generic(struct tc_socket **ret)
{
        return new_on(ret, NETLINK_GENERIC);
}

struct tc_socket *tc_socket_free(struct tc_socket *s)
{
        if (s && s->mnl)
                mnl_socket_close(s->mnl);
        if (s)
                edt_close(&s->edt);
        free(s);
        return NULL;
}

uint32_t tc_socket_port(const struct tc_socket *s)
{
        return mnl_socket_get_portid(s->mnl);
}

int tc_read_tree(struct tc_socket *s, int ifindex, bool deep, struct tc_tree *ret, struct error *error)
{
        int r = tc_socket_dump(s, ifindex, deep, ret);

        return r < 0 ? error_set(error, r, "cannot read the qdiscs: %m") : 0;
}

void tc_socket_set_hook(struct tc_socket *s, void (*hook)(struct nlmsghdr *m, void *ctx), void *ctx)
{
        s->hook = hook;
        s->hook_ctx = ctx;
}

/* Receives the bytes of one or more messages; *ret_n is their number. */
static int receive(struct tc_socket *s, size_t *ret_n)
{
        int fd = mnl_socket_get_fd(s->mnl);
        ssize_t n = recv(fd, s->in, sizeof s->in, MSG_DONTWAIT);

        if (n < 0 && errno == EAGAIN) {
                struct pollfd p = {.fd = fd, .events = POLLIN};
                int k = poll(&p, 1, ANSWER_MS);

                if (k == 0)
                        return -ETIMEDOUT;
                n = k < 0 ? -1 : recv(fd, s->in, sizeof s->in, MSG_DONTWAIT);
        }
        if (n < 0)
                return errno == EINTR || errno == EAGAIN ? -EINTR : -errno;
        *ret_n = (size_t)n;
        return 0;
}

static int send_batch(struct tc_socket *s, size_t bytes)
{
        ssize_t n = mnl_socket_sendto(s->mnl, s->out, bytes);

        return n < 0 ? -errno : (size_t)n < bytes ? -EIO : 0;
}

/* Acknowledgements arrive in order, but are matched by sequence number. */
static int collect_acks(struct tc_socket *s, uint32_t first, size_t n, struct tc_ack *acks)
{
        size_t seen = 0;

        while (seen < n) {
                size_t bytes = 0;
                int r = receive(s, &bytes), left = (int)bytes;

                if (r == -EINTR)
                        continue;
                if (r < 0)
                        return r;
                for (const struct nlmsghdr *m = (void *)s->in; mnl_nlmsg_ok(m, left);
                     m = mnl_nlmsg_next(m, &left)) {
                        if (m->nlmsg_type != NLMSG_ERROR || m->nlmsg_seq - first >= n)
                                continue;
                        r = tc_ack_decode(m, &acks[m->nlmsg_seq - first]);
                        if (r < 0)
                                return r;
                        seen++;
                }
        }
        return 0;
}

/* Encodes changes until the buffer is full; returns the number of encoded changes. */
static int fill_batch(struct tc_socket *s, int ifindex, const struct tc_change *changes, size_t n,
                      size_t *ret_bytes)
{
        size_t bytes = 0, k = 0;

        for (; k < n && k < BATCH_MESSAGES && bytes < BATCH_BYTES; k++) {
                struct nlmsghdr *m = (void *)(s->out + bytes);
                int r = tc_message_encode(m, ifindex, &changes[k]);

                if (r < 0)
                        return r;
                m->nlmsg_seq = s->sequence + (uint32_t)k;
                if (s->hook)
                        s->hook(m, s->hook_ctx);
                bytes += MNL_ALIGN(m->nlmsg_len);
        }
        *ret_bytes = bytes;
        return (int)k;
}

/* Sends up to a batch of changes, and sets their acknowledgements. Returns their number. */
static int change_batch(struct tc_socket *s, int ifindex, const struct tc_change *changes, size_t n,
                        struct tc_ack *acks)
{
        size_t bytes = 0;
        int k = fill_batch(s, ifindex, changes, n, &bytes), r;

        if (k < 0)
                return k;
        r = send_batch(s, bytes);
        if (r >= 0)
                r = collect_acks(s, s->sequence, (size_t)k, acks);
        s->sequence += (uint32_t)k;
        return r < 0 ? r : k;
}

/* Passes every answer to `answer` until the request ends. */
static int collect_answers(struct tc_socket *s, uint32_t sequence,
                           int (*answer)(const struct nlmsghdr *m, void *ctx), void *ctx, struct tc_ack *ack)
{
        bool interrupted = false;
        int result = 0;

        for (;;) {
                size_t bytes = 0;
                int r = receive(s, &bytes), left = (int)bytes;

                if (r == -EINTR)
                        continue;
                if (r < 0)
                        return r;
                for (const struct nlmsghdr *m = (void *)s->in; mnl_nlmsg_ok(m, left);
                     m = mnl_nlmsg_next(m, &left)) {
                        if (m->nlmsg_seq != sequence)
                                continue;
                        interrupted |= m->nlmsg_flags & NLM_F_DUMP_INTR;
                        if (m->nlmsg_type == NLMSG_ERROR || m->nlmsg_type == NLMSG_DONE) {
                                r = tc_ack_decode(m, ack);
                                return r < 0            ? r
                                       : ack->error < 0 ? ack->error
                                       : result < 0     ? result
                                       : interrupted    ? -EAGAIN
                                                        : 0;
                        }
                        if (answer && result >= 0)
                                result = answer(m, ctx);
                }
        }
}

int tc_socket_ask(struct tc_socket *s, struct nlmsghdr *m, int (*answer)(const struct nlmsghdr *m, void *ctx),
                  void *ctx, struct tc_ack *ack)
{
        int r;

        *ack = (struct tc_ack){};
        m->nlmsg_seq = s->sequence++;
        if (mnl_socket_sendto(s->mnl, m, m->nlmsg_len) < 0)
                return -errno;
        r = collect_answers(s, m->nlmsg_seq, answer, ctx, ack);
        return r;
}

static int dump_some(struct tc_socket *s, int ifindex, uint16_t type, uint32_t parent,
                     int (*answer)(const struct nlmsghdr *m, void *ctx), void *ctx)
{
        uint8_t buffer[MNL_NLMSG_HDRLEN + sizeof(struct tcmsg)] __attribute__((aligned(8))) = {};
        struct nlmsghdr *m = mnl_nlmsg_put_header(buffer);
        struct tcmsg *tc = mnl_nlmsg_put_extra_header(m, sizeof *tc);
        struct tc_ack ack;

        m->nlmsg_type = type;
        m->nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP;
        tc->tcm_ifindex = ifindex;
        tc->tcm_parent = parent;
        return tc_socket_ask(s, m, answer, ctx, &ack);
}

/* The destinations of EDT are not in netlink, and its filter needs a clsact below. */
static bool is_of_edt(const struct tc_change *c)
{
        return c->object->kind == &tc_kind_edt || c->object->kind == &tc_kind_bpf;
}

/* Returns the number of changes before the first one of EDT. */
static size_t count_plain(const struct tc_change *changes, size_t n)
{
        size_t k = 0;

        while (k < n && !is_of_edt(&changes[k]))
                k++;
        return k;
}

static int change_clsact(struct tc_socket *s, int ifindex, enum tc_verb verb, struct tc_ack *ack)
{
        const struct tc_object clsact = {.type = TC_QDISC,
                                         .handle = TC_ID(TC_MAJOR(TC_H_CLSACT), 0),
                                         .parent = TC_H_CLSACT,
                                         .kind_name = "clsact"};
        const struct tc_change change = {verb, &clsact, 0};

        return change_batch(s, ifindex, &change, 1, ack);
}

/* Whether the qdisc there, which cannot be added, is a clsact. Its handle may also be that of the qdisc
 * ingress, where the filter would get incoming packets. Without parameters, a change only compares kinds. */
static int check_clsact(struct tc_socket *s, int ifindex, struct tc_ack *ack)
{
        int r = change_clsact(s, ifindex, TC_CHANGE, ack);

        if (ack->error != -EINVAL)
                return r;
        ack->error = -EEXIST;
        snprintf(ack->text, sizeof ack->text, "there is a qdisc ingress, which excludes clsact");
        return r;
}

/* If there is a clsact already, it is of another program, and stays when the filter is deleted; unless only
 * the filter in our own clsact is missing. */
static int attach(struct tc_socket *s, int ifindex, const struct tc_object *wanted, struct tc_ack *ack)
{
        struct tc_object filter = *wanted;
        const struct tc_change add = {TC_REPLACE, &filter, 0};
        struct tc_ack ignored;
        int r = change_clsact(s, ifindex, TC_ADD, ack);
        bool is_new = ack->error == 0;

        if (r >= 0 && ack->error == -EEXIST)
                r = check_clsact(s, ifindex, ack);
        if (r < 0 || ack->error < 0)
                return r;
        filter.params.bpf.fd = s->edt.program;
        s->owns_clsact |= is_new;
        filter.params.bpf.owns_clsact = s->owns_clsact;
        *ack = (struct tc_ack){};
        r = change_batch(s, ifindex, &add, 1, ack);
        if (r >= 0 && ack->error < 0 && is_new)
                r = change_clsact(s, ifindex, TC_DELETE, &ignored);
        return r;
}

static int count_filter(const struct nlmsghdr *m, void *ctx)
{
        size_t *n = ctx;

        *n += m->nlmsg_type == RTM_NEWTFILTER;
        return 0;
}

/* Other programs may have added filters to our clsact since. */
static int detach(struct tc_socket *s, int ifindex, const struct tc_change *change, struct tc_ack *ack)
{
        const uint32_t parents[] = {TC_EGRESS, TC_H_MAKE(TC_H_CLSACT, TC_H_MIN_INGRESS)};
        struct tc_ack ignored;
        size_t n = 0;
        int r = change_batch(s, ifindex, change, 1, ack);

        if (r < 0 || ack->error < 0 || !change->object->params.bpf.owns_clsact)
                return r;
        for (size_t i = 0; r >= 0 && i < ARRAY_SIZE(parents); i++)
                r = dump_some(s, ifindex, RTM_GETTFILTER, parents[i], count_filter, &n);
        if (r >= 0 && n == 0)
                r = change_clsact(s, ifindex, TC_DELETE, &ignored);
        return r;
}

/* Sets the acknowledgement of one change of EDT. Returns 1, or a negative errno of the socket. */
static int change_edt(struct tc_socket *s, int ifindex, const struct tc_change *change, struct tc_ack *ack)
{
        int r = 0;

        *ack = (struct tc_ack){};
        if (change->object->kind == &tc_kind_edt)
                ack->error = edt_change(&s->edt, change);
        else if (change->verb == TC_DELETE)
                r = detach(s, ifindex, change, ack);
        else {
                ack->error = edt_load(&s->edt);
                if (ack->error == 0)
                        r = attach(s, ifindex, change->object, ack);
        }
        return r < 0 ? r : 1;
}

int tc_socket_change(struct tc_socket *s, int ifindex, const struct tc_change *changes, size_t n,
                     struct tc_ack *acks)
{
        int succeeded = 0;
        bool refused = false;

        for (size_t i = 0; i < n; i++)
                acks[i] = (struct tc_ack){.error = -ECANCELED};
        for (size_t i = 0; i < n && !refused;) {
                size_t plain = count_plain(changes + i, n - i);
                int k = plain == 0 ? change_edt(s, ifindex, &changes[i], &acks[i])
                                   : change_batch(s, ifindex, changes + i, plain, acks + i);

                if (k < 0)
                        return k;
                for (int j = 0; j < k; j++, i++) {
                        succeeded += acks[i].error == 0;
                        refused |= acks[i].error < 0;
                }
        }
        return succeeded;
}

int tc_socket_probe_bpf(struct tc_socket *s)
{
        return edt_load(&s->edt);
}

struct collecting {
        struct tc_tree tree;
        int ifindex;
        bool has_clsact;
};

/* Whether the object is one of those that a dump contains but that cannot be created or deleted by
 * themselves. A filter without a number represents its priority, with which the kernel creates a topmost u32
 * table. TBF and similar kinds show their queue as a class, and CBQ shows itself. Qdiscs for incoming packets
 * (ingress, clsact) are independent of the root: they stay, with the filters of other programs, and must not
 * be restored. */
static bool is_implied(const struct tc_object *o)
{
        if (o->type == TC_QDISC)
                return o->parent == TC_H_INGRESS;
        if (o->type == TC_CLASS)
                return TC_MINOR(o->handle) == 0 || strcmp(o->kind_name, tc_kind_tbf.name) == 0;
        if (o->parent == TC_EGRESS)
                return o->handle == 0 || o->kind != &tc_kind_bpf;
        if (strcmp(o->kind_name, tc_kind_u32.name) == 0)
                return o->handle << 12 == 0 && (o->handle == 0 || o->params.u32.divisor == 0);
        return o->handle == 0;
}

static int collect(const struct nlmsghdr *m, void *ctx)
{
        struct collecting *c = ctx;
        struct tc_object o;
        int ifindex, r = tc_message_decode(m, &o, &ifindex);

        if (r < 0)
                return r;
        c->has_clsact |= ifindex == c->ifindex && o.type == TC_QDISC && strcmp(o.kind_name, "clsact") == 0;
        if (ifindex != c->ifindex || is_implied(&o)) {
                free(o.options);
                return 0;
        }
        r = tc_tree_add(&c->tree, &o);
        if (r < 0)
                free(o.options);
        return r;
}

static int dump_filters(struct tc_socket *s, bool deep, struct collecting *c)
{
        size_t n = c->tree.n;
        int r = 0;

        for (size_t i = 0; r >= 0 && i < n; i++) {
                const struct tc_object *o = &c->tree.objects[i];
                bool is_root = o->type == TC_QDISC && o->parent == TC_ROOT;

                if (o->handle == 0 || o->type == TC_FILTER || !(is_root || deep))
                        continue;
                r = dump_some(s, c->ifindex, RTM_GETTFILTER, o->handle, collect, c);
                /* Classless qdiscs have no filters. */
                if (r == -EOPNOTSUPP || r == -EINVAL)
                        r = 0;
        }
        return r;
}

/* Without the privilege to read its destinations, the program is a foreign one. */
static int dump_edt(struct tc_socket *s, struct collecting *c)
{
        size_t n = c->tree.n;
        int r = 0;

        if (c->has_clsact)
                r = dump_some(s, c->ifindex, RTM_GETTFILTER, TC_EGRESS, collect, c);
        else
                s->owns_clsact = false;
        for (size_t i = n; r >= 0 && i < c->tree.n; i++) {
                struct tc_bpf *b = &c->tree.objects[i].params.bpf;

                s->owns_clsact = b->owns_clsact;
                b->is_unreadable = edt_open(&s->edt, b->program_id) < 0;
                return b->is_unreadable ? 0 : edt_read(&s->edt, &c->tree);
        }
        if (r >= 0)
                edt_close(&s->edt);
        return r;
}

int tc_socket_dump(struct tc_socket *s, int ifindex, bool deep, struct tc_tree *ret)
{
        int r = -EAGAIN;

        /* Other programs may change the tree during the dump, so it is repeated a few times. */
        for (int attempt = 0; r == -EAGAIN && attempt < 5; attempt++) {
                struct collecting c = {.ifindex = ifindex};

                r = dump_some(s, ifindex, RTM_GETQDISC, 0, collect, &c);
                if (r >= 0)
                        r = dump_some(s, ifindex, RTM_GETTCLASS, 0, collect, &c);
                if (r >= 0)
                        r = dump_filters(s, deep, &c);
                if (r >= 0 && !deep)
                        r = dump_edt(s, &c);
                if (r < 0) {
                        tc_tree_fini(&c.tree);
                        continue;
                }
                tc_tree_sort(&c.tree);
                *ret = c.tree;
        }
        return r;
}
