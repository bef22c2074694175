/* Assembles, loads and reads the BPF program that decides for a switch port which packets it drops. */
#include "evb/launch/exact_port.h"

#include <errno.h>
#include <linux/bpf.h>
#include <linux/pkt_cls.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "evb/base/util.h"
#include "evb/sys/loop.h"

/* A failed attempt means that another processor's has succeeded. */
#define ATTEMPTS 8
#define INSTRUCTIONS (40 + 16 * ATTEMPTS)
#define PS_PER_NS 1000
#define PS_PER_S (UINT64_C(1000000000) * PS_PER_NS)
#define BITS_PER_BYTE 8

struct port_state {
        uint64_t end_ps;
        struct exact_port_counts counts;
};

struct exact_port {
        int map, program;
};

/* One instruction each, after include/linux/filter.h of the kernel. */
#define INSN(c, d, s, o, i)                                                                                  \
        ((struct bpf_insn){.code = (c),                                                                      \
                           .dst_reg = (d)&0xf,                                                               \
                           .src_reg = (s)&0xf,                                                               \
                           .off = (int16_t)(o),                                                              \
                           .imm = (int32_t)(i)})
#define MOVE(d, s) INSN(BPF_ALU64 | BPF_MOV | BPF_X, d, s, 0, 0)
#define SET(d, i) INSN(BPF_ALU64 | BPF_MOV | BPF_K, d, 0, 0, i)
#define ALU(op, d, s) INSN(BPF_ALU64 | (op) | BPF_X, d, s, 0, 0)
#define ALU_CONST(op, d, i) INSN(BPF_ALU64 | (op) | BPF_K, d, 0, 0, i)
#define LOAD(size, d, s, o) INSN(BPF_LDX | BPF_MEM | (size), d, s, o, 0)
#define ATOMIC(op, d, s, o) INSN(BPF_STX | BPF_ATOMIC | BPF_DW, d, s, o, op)
#define JUMP_CONST(op, d, i, o) INSN(BPF_JMP | (op) | BPF_K, d, 0, o, i)
#define JUMP(op, d, s, o) INSN(BPF_JMP | (op) | BPF_X, d, s, o, 0)
#define CALL(f) INSN(BPF_JMP | BPF_CALL, 0, 0, 0, f)
#define EXIT() INSN(BPF_JMP | BPF_EXIT, 0, 0, 0, 0)

enum { R0, R1, R2, R3, R4, R5, R6, R7, R8, R9 };
/* What registers hold from when they are known to the end. */
enum { COST = R1, START = R2, BUFFER = R5, SEGMENTS = R6, BYTES = R7, ARRIVAL = R8, STATE = R9 };

struct code {
        struct bpf_insn *at;
        size_t n;
};

static size_t emit(struct code *c, struct bpf_insn i)
{
        c->at[c->n] = i;
        return c->n++;
}

/* Two slots hold one 64-bit constant, or a pointer to the value of a map. */
static void emit_wide(struct code *c, int d, int source, uint64_t value)
{
        emit(c, INSN(BPF_LD | BPF_DW | BPF_IMM, d, source, 0, (uint32_t)value));
        emit(c, INSN(0, 0, 0, 0, (uint32_t)(value >> 32)));
}

static void land(const struct code *c, size_t jump)
{
        c->at[jump].off = (int16_t)(c->n - jump - 1);
}

/* The arrival in ps, and what the context says of the packet. The context is gone afterwards. */
static void emit_packet(struct code *c, enum exact_port_clock clock)
{
        emit(c, MOVE(R6, R1));
        if (clock == EXACT_PORT_NOW)
                emit(c, CALL(BPF_FUNC_ktime_get_ns));
        else
                emit(c, LOAD(BPF_DW, R0, R6, offsetof(struct __sk_buff, tstamp)));
        emit(c, MOVE(ARRIVAL, R0));
        emit(c, ALU_CONST(BPF_MUL, ARRIVAL, PS_PER_NS));
        /* The kernel adds the headers of the segments to wire_len; it keeps it for size-based qdiscs. */
        emit(c, LOAD(BPF_W, BYTES, R6, offsetof(struct __sk_buff, wire_len)));
        emit(c, LOAD(BPF_W, R3, R6, offsetof(struct __sk_buff, gso_segs)));
        emit(c, JUMP_CONST(BPF_JNE, R3, 0, 1));
        emit(c, SET(R3, 1));
        emit(c, MOVE(SEGMENTS, R3));
}

/* The time that the port needs for the packet, and the time at which its first segment arrived. The last one
 * arrives at ARRIVAL, and the others came before it at the port's rate. */
static void emit_cost(struct code *c, uint64_t rate_bps)
{
        emit(c, MOVE(COST, BYTES));
        emit_wide(c, R3, 0, BITS_PER_BYTE * PS_PER_S);
        emit(c, ALU(BPF_MUL, COST, R3));
        emit_wide(c, R3, 0, rate_bps);
        emit(c, ALU(BPF_DIV, COST, R3));
        emit(c, MOVE(R3, COST));
        emit(c, ALU(BPF_DIV, R3, SEGMENTS));
        emit(c, MOVE(START, ARRIVAL));
        emit(c, ALU(BPF_SUB, START, COST));
        emit(c, ALU(BPF_ADD, START, R3));
}

static void emit_end(struct code *c, size_t packets_offset, size_t bytes_offset, int result)
{
        emit(c, ATOMIC(BPF_ADD, STATE, SEGMENTS, packets_offset));
        emit(c, ATOMIC(BPF_ADD, STATE, BYTES, bytes_offset));
        emit(c, SET(R0, result));
        emit(c, EXIT());
}

#define COUNT(name) (offsetof(struct port_state, counts) + offsetof(struct exact_port_counts, name))

/* Returns the number of instructions. */
static size_t assemble(struct bpf_insn program[static INSTRUCTIONS], int map_fd, enum exact_port_clock clock,
                       uint64_t rate_bps, uint64_t buffer_bytes)
{
        /* Signed differences make times that wrap comparable. */
        uint64_t buffer_ps =
                (uint64_t)((unsigned __int128)buffer_bytes * BITS_PER_BYTE * PS_PER_S / rate_bps);
        size_t carried[ATTEMPTS], full[ATTEMPTS];
        struct code c = {program, 0};

        emit_packet(&c, clock);
        emit_cost(&c, rate_bps);
        emit_wide(&c, STATE, BPF_PSEUDO_MAP_VALUE, (uint32_t)map_fd);
        emit_wide(&c, BUFFER, 0, MIN(buffer_ps, (uint64_t)INT64_MAX));
        for (size_t i = 0; i < ATTEMPTS; i++) {
                emit(&c, LOAD(BPF_DW, R0, STATE, offsetof(struct port_state, end_ps)));
                emit(&c, MOVE(R3, R0));
                emit(&c, MOVE(R4, START));
                emit(&c, ALU(BPF_SUB, R4, R0));
                emit(&c, JUMP_CONST(BPF_JSLE, R4, 0, 1));
                emit(&c, MOVE(R3, START));
                emit(&c, ALU(BPF_ADD, R3, COST));
                emit(&c, MOVE(R4, R3));
                emit(&c, ALU(BPF_SUB, R4, ARRIVAL));
                full[i] = emit(&c, JUMP(BPF_JSGT, R4, BUFFER, 0));
                emit(&c, MOVE(R4, R0));
                /* Compares with R0, and leaves the former value there. */
                emit(&c, ATOMIC(BPF_CMPXCHG, STATE, R3, offsetof(struct port_state, end_ps)));
                carried[i] = emit(&c, JUMP(BPF_JEQ, R0, R4, 0));
        }
        /* The port is busy, so the packet follows the others, and it fitted a moment ago. */
        emit(&c, ATOMIC(BPF_ADD, STATE, COST, offsetof(struct port_state, end_ps)));
        emit(&c, ATOMIC(BPF_ADD, STATE, SEGMENTS, COUNT(contended_packets)));
        for (size_t i = 0; i < ATTEMPTS; i++)
                land(&c, carried[i]);
        emit_end(&c, COUNT(packets), COUNT(bytes), TC_ACT_UNSPEC);
        for (size_t i = 0; i < ATTEMPTS; i++)
                land(&c, full[i]);
        emit_end(&c, COUNT(dropped_packets), COUNT(dropped_bytes), TC_ACT_SHOT);
        return c.n;
}

static int bpf(enum bpf_cmd command, union bpf_attr *attr)
{
        int r = (int)syscall(SYS_bpf, command, attr, sizeof *attr);

        return r < 0 ? -errno : r;
}

static uint64_t address_of(const void *p)
{
        return (uint64_t)(uintptr_t)p;
}

static int make_map(int *ret)
{
        /* An empty virtual queue ends in the past; 0 is in the future once the time in ps has wrapped. */
        struct port_state state = {.end_ps = clock_now_ns() * PS_PER_NS};
        union bpf_attr attr = {.map_type = BPF_MAP_TYPE_ARRAY,
                               .key_size = sizeof(uint32_t),
                               .value_size = sizeof state,
                               .max_entries = 1,
                               .map_name = "evb_port"};
        uint32_t key = 0;
        int r = bpf(BPF_MAP_CREATE, &attr);

        if (r < 0)
                return r;
        *ret = r;
        attr = (union bpf_attr){
                .map_fd = (uint32_t)*ret, .key = address_of(&key), .value = address_of(&state)};
        return bpf(BPF_MAP_UPDATE_ELEM, &attr);
}

static int load(int map_fd, enum exact_port_clock clock, uint64_t rate_bps, uint64_t buffer_bytes)
{
        struct bpf_insn program[INSTRUCTIONS];
        union bpf_attr attr = {.prog_type = BPF_PROG_TYPE_SCHED_CLS,
                               .insns = address_of(program),
                               .license = address_of("BSD"),
                               .prog_name = "evb_port"};

        attr.insn_cnt = (uint32_t)assemble(program, map_fd, clock, rate_bps, buffer_bytes);
        return bpf(BPF_PROG_LOAD, &attr);
}

int exact_port_new(struct exact_port **ret, enum exact_port_clock clock, uint64_t rate_bps,
                   uint64_t buffer_bytes)
{
        struct exact_port *p = malloc(sizeof *p);
        int r;

        if (!p)
                return -ENOMEM;
        *p = (struct exact_port){-1, -1};
        r = make_map(&p->map);
        if (r >= 0)
                r = p->program = load(p->map, clock, rate_bps, buffer_bytes);
        if (r < 0) {
                exact_port_free(p);
                return r;
        }
        *ret = p;
        return 0;
}

struct exact_port *exact_port_free(struct exact_port *p)
{
        if (!p)
                return NULL;
        if (p->program >= 0)
                close(p->program);
        if (p->map >= 0)
                close(p->map);
        free(p);
        return NULL;
}

int exact_port_program(const struct exact_port *p)
{
        return p->program;
}

int exact_port_read(const struct exact_port *p, struct exact_port_counts *ret)
{
        struct port_state state;
        uint32_t key = 0;
        union bpf_attr attr = {
                .map_fd = (uint32_t)p->map, .key = address_of(&key), .value = address_of(&state)};
        int r = bpf(BPF_MAP_LOOKUP_ELEM, &attr);

        if (r >= 0)
                *ret = state.counts;
        return r < 0 ? r : 0;
}
