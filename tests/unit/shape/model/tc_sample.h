/* Sample requests, plans and trees, shared by the tests of traffic control. */
#pragma once

#include "../../test.h"

#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/util.h"
#include "shape/model/netlink_message.h"
#include "shape/model/layout.h"

#define SAMPLE_MAX 1200

/* A request for n destinations; every third one is IPv6. */
static inline struct tc_request sample_request(struct tc_destination *to, size_t n, enum tc_backend backend)
{
        for (size_t i = 0; i < n; i++) {
                char text[64];

                if (i % 3 == 2)
                        snprintf(text, sizeof text, "fd00::%zx:%zx", i / 200, i + 1);
                else
                        snprintf(text, sizeof text, "10.1.%zu.%zu", i / 200, i % 200 + 1);
                assert_true(tc_address_parse(&to[i].address, text));
                to[i].permille = 0;
                to[i].rate_bps = (20 + i % 7) * UINT64_C(1000000);
        }
        return (struct tc_request){
                .link_rate_bps = UINT64_C(1000000000),
                .mtu_bytes = 1500,
                .switch_buffer_bytes = 256 << 10,
                .sources = 6,
                .send_buffer_bytes = 2 << 20,
                .backend = backend,
                .control_port = 26800,
                .destinations = to,
                .n_destinations = n,
        };
}

static inline struct tc_plan sample_plan(const struct tc_request *q)
{
        struct error e = {};
        struct tc_plan p;

        if (tc_plan_make(&p, q, &e) < 0)
                fail_msg("%s", e.message);
        return p;
}

static inline struct tc_tree sample_tree(const struct tc_request *q, const struct tc_tree *have)
{
        static const struct tc_tree nothing;
        struct tc_plan p = sample_plan(q);
        struct tc_tree t;

        assert_int_equal(tc_layout_make(&t, &p, have ?: &nothing), 0);
        tc_plan_fini(&p);
        return t;
}

static inline bool trees_equal(const struct tc_tree *a, const struct tc_tree *b)
{
        if (a->n != b->n)
                return false;
        for (size_t i = 0; i < a->n; i++) {
                if (!tc_object_equal(&a->objects[i], &b->objects[i])) {
                        char name[200];
                        struct strbuf text = strbuf_init(name, sizeof name);

                        tc_object_name(&a->objects[i], &text);
                        print_message("%s differs\n", name);
                        return false;
                }
        }
        return true;
}
