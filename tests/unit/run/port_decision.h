/* Runs the decision of an exact port with packets of chosen size and arrival; the same arithmetic in C. */
#pragma once

#include "../test.h"

#include <errno.h>
#include <linux/bpf.h>
#include <linux/pkt_cls.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/util.h"
#include "run/exact_port.h"
#include "sys/loop.h"

#define FRAME_LEAST 60u
#define FRAME_MOST 1514u

struct packet {
        uint64_t arrival_ns;
        uint32_t bytes, segments; /* 0 segments: no super-packet */
};

/* Returns the program's decision. */
static inline uint32_t run_decision(const struct exact_port *port, const struct __sk_buff *context)
{
        uint8_t frame[FRAME_LEAST] = {[12] = 0x08};
        union bpf_attr attr = {.test = {.prog_fd = (uint32_t)exact_port_decision(port),
                                        .data_in = (uint64_t)(uintptr_t)frame,
                                        .data_size_in = sizeof frame,
                                        .ctx_in = (uint64_t)(uintptr_t)context,
                                        .ctx_size_in = sizeof *context}};

        assert_return_code(syscall(SYS_bpf, BPF_PROG_TEST_RUN, &attr, sizeof attr), errno);
        return attr.test.retval;
}

static inline uint32_t decide(const struct exact_port *port, const struct packet *p)
{
        struct __sk_buff context = {.tstamp = p->arrival_ns,
                                    .wire_len = p->bytes,
                                    .gso_segs = p->segments,
                                    .gso_size = p->segments > 0 ? 1400 : 0};

        return run_decision(port, &context);
}

static inline struct exact_port *open_port(const struct exact_port_config *config)
{
        struct exact_port *port = NULL;
        int r = exact_port_new(&port, config);

        if (r == -EPERM || r == -ENOSYS) {
                print_message("SKIPPED: %s\n",
                              r == -EPERM ? "loading a BPF program needs root" : "no bpf system call");
                skip();
        }
        assert_return_code(r, -r);
        return port;
}

static inline struct exact_port *new_port(uint64_t rate_bps, uint64_t buffer_bytes)
{
        return open_port(&(struct exact_port_config){
                .rate_bps = rate_bps, .buffer_bytes = buffer_bytes, .use_timestamps = true});
}

/* The rule of exact_port.h for packets in the order of their arrivals, with one division per value and no
 * processor that interferes. */
struct queue {
        uint64_t rate_bps, buffer_bytes, end_ps;
};

static inline bool queue_takes(struct queue *q, const struct packet *p)
{
        unsigned __int128 ps_per_s = 1000000000000;
        uint64_t arrival_ps = p->arrival_ns * 1000,
                 cost_ps = (uint64_t)((unsigned __int128)p->bytes * 8 * ps_per_s / q->rate_bps),
                 first_ps = p->segments > 1 ? cost_ps / p->segments : cost_ps,
                 start_ps = arrival_ps - (cost_ps - first_ps), end_ps = MAX(q->end_ps, start_ps) + cost_ps,
                 buffer_ps = (uint64_t)((unsigned __int128)q->buffer_bytes * 8 * ps_per_s / q->rate_bps);

        if (end_ps > arrival_ps && end_ps - arrival_ps > buffer_ps)
                return false;
        q->end_ps = end_ps;
        return true;
}

static inline uint64_t random_next(uint64_t *state)
{
        *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        return *state >> 33;
}
