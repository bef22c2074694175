/* Assembles, loads and reads the BPF programs that stamp packets as they leave a link, and that decide for a
 * switch port which packets it drops. */
#include "evb/launch/exact_port.h"

#include <errno.h>
#include <linux/bpf.h>
#include <linux/pkt_cls.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/timex.h>
#include <unistd.h>

#include "evb/base/util.h"
#include "evb/sys/loop.h"

/* A failed attempt means that another processor's has succeeded. */
#define ATTEMPTS 8
#define INSTRUCTIONS (64 + 16 * ATTEMPTS)
/* A timestamp or mark that is older is not one of ours, or somebody has set the clock. */
#define LATE_MOST_NS 1000000000
#define PS_PER_NS 1000
#define PS_PER_S (UINT64_C(1000000000) * PS_PER_NS)
#define BITS_PER_BYTE 8

struct port_state {
        uint64_t end_ps;   /* of what the port has carried */
        uint64_t front_ps; /* the latest arrival */
        uint64_t link_ps;  /* the end of what the link from the node has sent */
        struct exact_port_counts counts;
};

struct exact_port {
        int map, decision, stamp;
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
#define STORE(size, d, s, o) INSN(BPF_STX | BPF_MEM | (size), d, s, o, 0)
#define ATOMIC(op, d, s, o) INSN(BPF_STX | BPF_ATOMIC | BPF_DW, d, s, o, op)
#define JUMP_CONST(op, d, i, o) INSN(BPF_JMP | (op) | BPF_K, d, 0, o, i)
#define JUMP(op, d, s, o) INSN(BPF_JMP | (op) | BPF_X, d, s, o, 0)
#define CALL(f) INSN(BPF_JMP | BPF_CALL, 0, 0, 0, f)
#define EXIT() INSN(BPF_JMP | BPF_EXIT, 0, 0, 0, 0)

enum { R0, R1, R2, R3, R4, R5, R6, R7, R8, R9 };
/* What registers hold in the decision, from when it is known to the end. */
enum { COST = R1, START = R2, BUFFER = R5, SEGMENTS = R6, BYTES = R7, ARRIVAL = R8, STATE = R9 };

struct code {
        struct bpf_insn *at;
        size_t n;
};

static uint64_t bytes_ps(uint64_t bytes, uint64_t rate_bps)
{
        return (uint64_t)((unsigned __int128)bytes * BITS_PER_BYTE * PS_PER_S / rate_bps);
}

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

/* Adds to R0, the present, the difference to a mark (that only frames from another port have from us). */
static void emit_mark(struct code *c, uint64_t ahead_ns)
{
        size_t now[3];

        emit(c, LOAD(BPF_W, R2, R6, offsetof(struct __sk_buff, ingress_ifindex)));
        now[0] = emit(c, JUMP_CONST(BPF_JEQ, R2, 0, 0));
        emit(c, LOAD(BPF_W, R2, R6, offsetof(struct __sk_buff, mark)));
        now[1] = emit(c, JUMP_CONST(BPF_JEQ, R2, 0, 0));
        /* The difference of the lower halves, with its sign. */
        emit(c, ALU(BPF_SUB, R2, R0));
        emit(c, ALU_CONST(BPF_LSH, R2, 32));
        emit(c, ALU_CONST(BPF_ARSH, R2, 32));
        now[2] = emit(c, JUMP_CONST(BPF_JSLT, R2, -LATE_MOST_NS, 0));
        emit(c, JUMP_CONST(BPF_JSLE, R2, ahead_ns, 1));
        emit(c, SET(R2, ahead_ns));
        emit(c, ALU(BPF_ADD, R0, R2));
        for (size_t i = 0; i < ARRAY_SIZE(now); i++)
                land(c, now[i]);
}

/* The arrival in ps, and what the context says of the packet. The context is gone afterwards. */
static void emit_packet(struct code *c, const struct exact_port_config *config)
{
        emit(c, MOVE(R6, R1));
        if (config->use_timestamps)
                emit(c, LOAD(BPF_DW, R0, R6, offsetof(struct __sk_buff, tstamp)));
        else {
                emit(c, CALL(BPF_FUNC_ktime_get_ns));
                emit_mark(c, MIN(bytes_ps(config->burst_bytes, config->rate_bps) / PS_PER_NS, LATE_MOST_NS));
        }
        emit(c, MOVE(ARRIVAL, R0));
        emit(c, ALU_CONST(BPF_MUL, ARRIVAL, PS_PER_NS));
        /* The kernel adds the headers of the segments to wire_len; it keeps it for size-based qdiscs. */
        emit(c, LOAD(BPF_W, BYTES, R6, offsetof(struct __sk_buff, wire_len)));
        emit(c, LOAD(BPF_W, R3, R6, offsetof(struct __sk_buff, gso_segs)));
        emit(c, JUMP_CONST(BPF_JNE, R3, 0, 1));
        emit(c, SET(R3, 1));
        emit(c, MOVE(SEGMENTS, R3));
}

/* d = time on the wire of d bytes, in ps. Changes R3. */
static void emit_time(struct code *c, int d, uint64_t rate_bps)
{
        emit_wide(c, R3, 0, BITS_PER_BYTE * PS_PER_S);
        emit(c, ALU(BPF_MUL, d, R3));
        emit_wide(c, R3, 0, rate_bps);
        emit(c, ALU(BPF_DIV, d, R3));
}

/* Moves the front to the arrival, or the arrival to the front. If another processor moves the front
 * meanwhile, its packet arrives at the same time. */
static void emit_front(struct code *c)
{
        size_t late;

        emit(c, LOAD(BPF_DW, R0, STATE, offsetof(struct port_state, front_ps)));
        emit(c, MOVE(R4, ARRIVAL));
        emit(c, ALU(BPF_SUB, R4, R0));
        late = emit(c, JUMP_CONST(BPF_JSLT, R4, 0, 0));
        emit(c, ATOMIC(BPF_CMPXCHG, STATE, ARRIVAL, offsetof(struct port_state, front_ps)));
        emit(c, MOVE(R0, ARRIVAL));
        land(c, late);
        emit(c, MOVE(ARRIVAL, R0));
}

/* The time that the port needs for the packet, and the time at which its first segment arrived. The last one
 * arrives at ARRIVAL, and the others came before it at the port's rate. */
static void emit_cost(struct code *c, uint64_t rate_bps)
{
        emit(c, MOVE(COST, BYTES));
        emit_time(c, COST, rate_bps);
        emit(c, MOVE(R3, COST));
        emit(c, ALU(BPF_DIV, R3, SEGMENTS));
        emit(c, MOVE(START, ARRIVAL));
        emit(c, ALU(BPF_SUB, START, COST));
        emit(c, ALU(BPF_ADD, START, R3));
}

/* Sets R3 to the later of R0, a value of the state, and another register. Changes R4. */
static void emit_later(struct code *c, int other)
{
        emit(c, MOVE(R3, R0));
        emit(c, MOVE(R4, other));
        emit(c, ALU(BPF_SUB, R4, R0));
        emit(c, JUMP_CONST(BPF_JSLE, R4, 0, 1));
        emit(c, MOVE(R3, other));
}

/* Stores R3 in place of R0, which was loaded from there. Returns the jump that is taken on success. */
static size_t emit_exchange(struct code *c, size_t offset)
{
        emit(c, MOVE(R4, R0));
        /* Compares with R0, and leaves the former value there. */
        emit(c, ATOMIC(BPF_CMPXCHG, STATE, R3, offset));
        return emit(c, JUMP(BPF_JEQ, R0, R4, 0));
}

static void emit_end(struct code *c, size_t packets_offset, size_t bytes_offset, int result)
{
        emit(c, ATOMIC(BPF_ADD, STATE, SEGMENTS, packets_offset));
        emit(c, ATOMIC(BPF_ADD, STATE, BYTES, bytes_offset));
        emit(c, SET(R0, result));
        emit(c, EXIT());
}

#define COUNT(name) (offsetof(struct port_state, counts) + offsetof(struct exact_port_counts, name))

/* Times in ps wrap after 213 days; signed differences make them comparable. Both functions return the number
 * of instructions. */
static size_t assemble_decision(struct bpf_insn program[static INSTRUCTIONS], int map_fd,
                                const struct exact_port_config *config)
{
        size_t carried[ATTEMPTS], full[ATTEMPTS];
        struct code c = {program, 0};

        emit_packet(&c, config);
        emit_wide(&c, STATE, BPF_PSEUDO_MAP_VALUE, (uint32_t)map_fd);
        emit_front(&c);
        emit_cost(&c, config->rate_bps);
        emit_wide(&c, BUFFER, 0, MIN(bytes_ps(config->buffer_bytes, config->rate_bps), (uint64_t)INT64_MAX));
        for (size_t i = 0; i < ATTEMPTS; i++) {
                emit(&c, LOAD(BPF_DW, R0, STATE, offsetof(struct port_state, end_ps)));
                emit_later(&c, START);
                emit(&c, ALU(BPF_ADD, R3, COST));
                emit(&c, MOVE(R4, R3));
                emit(&c, ALU(BPF_SUB, R4, ARRIVAL));
                full[i] = emit(&c, JUMP(BPF_JSGT, R4, BUFFER, 0));
                carried[i] = emit_exchange(&c, offsetof(struct port_state, end_ps));
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

/* R7: when the packet left the node, in ns of CLOCK_MONOTONIC. The kernel's timestamps are those of
 * CLOCK_REALTIME, which BPF can only read as CLOCK_TAI; their difference changes with leap seconds alone. */
static void emit_departure(struct code *c, const struct exact_port_config *config)
{
        struct timex clock = {};
        size_t unstamped, foreign;

        if (config->use_timestamps) {
                emit(c, LOAD(BPF_DW, R7, R6, offsetof(struct __sk_buff, tstamp)));
                return;
        }
        adjtimex(&clock);
        emit(c, LOAD(BPF_DW, R8, R6, offsetof(struct __sk_buff, tstamp)));
        emit(c, CALL(BPF_FUNC_ktime_get_ns));
        emit(c, MOVE(R7, R0));
        unstamped = emit(c, JUMP_CONST(BPF_JEQ, R8, 0, 0));
        emit(c, CALL(BPF_FUNC_ktime_get_tai_ns));
        emit(c, ALU(BPF_SUB, R0, R8));
        emit_wide(c, R1, 0, (uint64_t)clock.tai * NS_PER_S);
        emit(c, ALU(BPF_SUB, R0, R1));
        foreign = emit(c, JUMP_CONST(BPF_JGT, R0, LATE_MOST_NS, 0));
        emit(c, ALU(BPF_SUB, R7, R0));
        land(c, unstamped);
        land(c, foreign);
}

static size_t assemble_stamp(struct bpf_insn program[static INSTRUCTIONS], int map_fd,
                             const struct exact_port_config *config)
{
        size_t sent[ATTEMPTS];
        struct code c = {program, 0};

        emit(&c, MOVE(R6, R1));
        emit_departure(&c, config);
        emit(&c, MOVE(R5, R7));
        emit(&c, ALU_CONST(BPF_MUL, R7, PS_PER_NS));
        emit(&c, LOAD(BPF_W, R8, R6, offsetof(struct __sk_buff, len)));
        emit_time(&c, R8, config->rate_bps);
        emit_wide(&c, STATE, BPF_PSEUDO_MAP_VALUE, (uint32_t)map_fd);
        for (size_t i = 0; i < ATTEMPTS; i++) {
                emit(&c, LOAD(BPF_DW, R0, STATE, offsetof(struct port_state, link_ps)));
                emit_later(&c, R7);
                emit(&c, ALU(BPF_ADD, R3, R8));
                sent[i] = emit_exchange(&c, offsetof(struct port_state, link_ps));
        }
        for (size_t i = 0; i < ATTEMPTS; i++)
                land(&c, sent[i]);
        /* A time in ps that has wrapped cannot be divided; the time since the departure can. */
        emit(&c, ALU(BPF_SUB, R3, R7));
        emit(&c, ALU_CONST(BPF_DIV, R3, PS_PER_NS));
        emit(&c, ALU(BPF_ADD, R3, R5));
        emit(&c, STORE(BPF_W, R6, R3, offsetof(struct __sk_buff, mark)));
        emit(&c, SET(R0, TC_ACT_UNSPEC));
        emit(&c, EXIT());
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
        uint64_t now_ps = clock_now_ns() * PS_PER_NS;
        struct port_state state = {.end_ps = now_ps, .front_ps = now_ps, .link_ps = now_ps};
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

static int load(const struct bpf_insn *program, size_t n)
{
        union bpf_attr attr = {.prog_type = BPF_PROG_TYPE_SCHED_CLS,
                               .insns = address_of(program),
                               .insn_cnt = (uint32_t)n,
                               .license = address_of("BSD"),
                               .prog_name = "evb_port"};

        return bpf(BPF_PROG_LOAD, &attr);
}

int exact_port_new(struct exact_port **ret, const struct exact_port_config *config)
{
        struct bpf_insn program[INSTRUCTIONS];
        struct exact_port *p = malloc(sizeof *p);
        int r;

        if (!p)
                return -ENOMEM;
        *p = (struct exact_port){-1, -1, -1};
        r = make_map(&p->map);
        if (r >= 0)
                r = p->decision = load(program, assemble_decision(program, p->map, config));
        if (r >= 0)
                r = p->stamp = load(program, assemble_stamp(program, p->map, config));
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
        if (p->stamp >= 0)
                close(p->stamp);
        if (p->decision >= 0)
                close(p->decision);
        if (p->map >= 0)
                close(p->map);
        free(p);
        return NULL;
}

int exact_port_decision(const struct exact_port *p)
{
        return p->decision;
}

int exact_port_stamp(const struct exact_port *p)
{
        return p->stamp;
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
