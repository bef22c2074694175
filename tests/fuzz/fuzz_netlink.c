/* The kernel's netlink replies: dumps, events and acknowledgements. What was decoded with a kind can be sent,
 * and means the same when it comes back; its name and its words can be printed. */
#include <assert.h>
#include <linux/netlink.h>
#include <stdlib.h>
#include <string.h>

#include "shape/model/kind.h"
#include "shape/model/netlink_message.h"
#include "fuzz.h"

static void check_text(const struct tc_object *o)
{
        char text[400];
        struct strbuf b = strbuf_init(text, sizeof text);

        tc_object_name(o, &b);
        assert(b.length > 0 && strlen(text) == b.length);
        if (o->kind && o->kind->words)
                o->kind->words(o, &b);
        assert(b.length < sizeof text);
}

static void check_round_trip(const struct tc_object *o)
{
        static _Alignas(struct nlmsghdr) char bytes[TC_MESSAGE_MAX];
        struct nlmsghdr *m = (struct nlmsghdr *)bytes;
        struct tc_change change = {.verb = TC_ADD, .object = o};
        struct tc_object again;
        int ifindex = 0;

        if (tc_message_encode(m, 3, &change) < 0) {
                assert(!o->kind);
                return;
        }
        assert(m->nlmsg_len <= TC_MESSAGE_MAX);
        assert(tc_message_decode(m, &again, &ifindex) == 0 && ifindex == 3);
        assert(again.kind == o->kind && strcmp(again.kind_name, o->kind_name) == 0);
        if (o->kind)
                assert(o->kind->equal(o, &again));
        free(again.options);
}

bool fuzz_accepts(const uint8_t *bytes, size_t size_bytes)
{
        struct nlmsghdr *m;
        struct tc_object o;
        struct tc_ack ack = {};
        bool accepted;
        int ifindex;

        if (size_bytes < sizeof *m)
                return false;
        /* Netlink aligns its messages, and a socket never returns one that is longer than what it received.
         */
        m = malloc(size_bytes);
        memcpy(m, bytes, size_bytes);
        m->nlmsg_len = (uint32_t)size_bytes;
        accepted = tc_message_decode(m, &o, &ifindex) == 0;
        if (accepted) {
                check_text(&o);
                check_round_trip(&o);
                free(o.options);
        }
        if (tc_ack_decode(m, &ack) == 0) {
                assert(strnlen(ack.text, sizeof ack.text) < sizeof ack.text);
                accepted |= m->nlmsg_type == NLMSG_ERROR;
        }
        free(m);
        return accepted;
}
