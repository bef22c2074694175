/* The history of an exact port before its front (the latest arrival), so that a packet that is decided late
 * finds the port as it was when the packet arrived.
 *
 * That time is divided into slots. Each holds the port's idle time within it, and its peak, which is the
 * largest backlog. A late packet uses idle time after its own arrival, slot by slot; idle time is used once.
 * Until its cost is fully placed, a late packet delays the packets that arrived after it, so it also raises
 * the peaks of their slots. Cost that is left when the front is reached is added to the port's end. A late
 * packet is dropped if it finds the buffer full, or if the backlog in a later slot already exceeds the
 * buffer. Packets that were accepted cannot be dropped later. So a late packet may push the backlog above the
 * buffer, and the next packets at the front are dropped instead. Otherwise a port full of large packets would
 * drop every small packet that is decided late. In total, the port carries as much as if it decided packets
 * in the order of their arrivals. The order within a slot is unknown.
 *
 * The slots form a ring. Each holds its number, which is the time at its start divided by its length. A slot
 * with another number has not been used: the port was idle for all of it. So recording idle time costs
 * nothing.
 *
 * The functions write instructions, which run under the port's lock and change R0, R1, R3, R4 and R5. */
#pragma once

#include <assert.h>
#include <linux/bpf.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "run/exact_port.h"

/* ---- BPF instructions, one macro each, after include/linux/filter.h of the kernel. ---- */

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
#define STORE_CONST(size, d, i, o) INSN(BPF_ST | BPF_MEM | (size), d, 0, o, i)
#define ATOMIC(op, d, s, o) INSN(BPF_STX | BPF_ATOMIC | BPF_DW, d, s, o, op)
#define JUMP_CONST(op, d, i, o) INSN(BPF_JMP | (op) | BPF_K, d, 0, o, i)
#define JUMP(op, d, s, o) INSN(BPF_JMP | (op) | BPF_X, d, s, o, 0)
#define GO(o) INSN(BPF_JMP | BPF_JA, 0, 0, o, 0)
#define CALL(f) INSN(BPF_JMP | BPF_CALL, 0, 0, 0, f)
#define EXIT() INSN(BPF_JMP | BPF_EXIT, 0, 0, 0, 0)

/* R10 points to the end of the stack. */
enum { R0, R1, R2, R3, R4, R5, R6, R7, R8, R9, R10 };

#define CODE_MOST 512

struct code {
        struct bpf_insn *at; /* room for CODE_MOST */
        size_t n;
};

static inline size_t emit(struct code *c, struct bpf_insn i)
{
        assert(c->n < CODE_MOST);
        c->at[c->n] = i;
        return c->n++;
}

/* Two slots hold one 64-bit constant, or a pointer to the value of a map. */
static inline void emit_wide(struct code *c, int d, int source, uint64_t value)
{
        emit(c, INSN(BPF_LD | BPF_DW | BPF_IMM, d, source, 0, (uint32_t)value));
        emit(c, INSN(0, 0, 0, 0, (uint32_t)(value >> 32)));
}

/* Makes a jump lead to the next instruction. */
static inline void land(const struct code *c, size_t jump)
{
        c->at[jump].off = (int16_t)(c->n - jump - 1);
}

/* Makes the last instruction, a jump, lead to an earlier one. */
static inline void land_back(const struct code *c, size_t target)
{
        c->at[c->n - 1].off = (int16_t)((int64_t)target - (int64_t)c->n);
}

/* The ring covers at least 512 times the buffer, and 8 MiB at the port's rate. */
#define PORT_SLOTS 8192

struct port_slot {
        uint64_t number, idle_ps, peak_ps;
};

/* The value of the map that a port's programs share. */
struct port_state {
        struct bpf_spin_lock lock; /* for end_ps, front_ps and the slots */
        uint64_t end_ps;   /* when the port will have sent all carried packets; not before the front */
        uint64_t front_ps; /* the latest arrival */
        uint64_t link_ps;  /* when the link from the node will have sent all its packets */
        struct exact_port_counts counts;
};

/* REST: the part of a packet's cost that has no place yet. RING points to the slots. */
enum { REST = R2, RING = R6, TIME = R7, ARRIVAL = R8, STATE = R9 };

struct port_history {
        uint64_t buffer_ps;
        unsigned slot_bits; /* a slot lasts 2^slot_bits ps */
};

struct port_history port_history_init(uint64_t rate_bps, uint64_t buffer_ps);

/* Moves the front to TIME, which is later. `arriving`: a packet that is already included in the end arrives
 * until then. Changes REST. */
void port_history_emit_advance(struct code *c, const struct port_history *h, bool arriving);
/* Raises the peak of the front's slot to the backlog at the front. */
void port_history_emit_raise(struct code *c, const struct port_history *h);

struct port_history_jumps {
        size_t full;      /* there is no room */
        size_t beyond[2]; /* the history does not reach back to TIME, or too many of its slots are in use */
};

/* Walks the slots from TIME, when the first segment of a packet arrived, to the front, and subtracts from
 * REST the part that fits into their idle time. ARRIVAL is the arrival time of the last segment. Execution
 * continues with the next instruction if there is room in the slots before the front; otherwise it takes one
 * of the jumps. */
struct port_history_jumps port_history_emit_look(struct code *c, const struct port_history *h);
/* Walks in the same way, and updates the slots. There must be room. */
void port_history_emit_read(struct code *c, const struct port_history *h);
