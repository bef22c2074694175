/* Writes BPF instructions into a buffer: one macro each, after include/linux/filter.h of the kernel. */
#pragma once

#include <assert.h>
#include <linux/bpf.h>
#include <stddef.h>
#include <stdint.h>

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

/* Lets a jump lead to the next instruction. */
static inline void land(const struct code *c, size_t jump)
{
        c->at[jump].off = (int16_t)(c->n - jump - 1);
}

/* Lets the last instruction, a jump, lead to an earlier one. */
static inline void land_back(const struct code *c, size_t target)
{
        c->at[c->n - 1].off = (int16_t)((int64_t)target - (int64_t)c->n);
}
