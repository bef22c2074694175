/* Writes the instructions that keep the history of an exact port. */
#include "port_history.h"

#include <stddef.h>

#include "base/util.h"

/* A slot is at least this fraction of the buffer, and of 64 KiB, and less than twice as long as required. */
#define SLOTS_PER_BUFFER 16
#define SLOTS_PER_SUPER 64
#define SUPER_BYTES (64u << 10)
/* Maximum number of slots that the loop for a late packet or a super-packet visits, and that for a backlog.
 * The kernel checks each pass of these loops when it loads a program. */
#define STEPS 72
#define BACKLOG_STEPS (SLOTS_PER_BUFFER + 4)
/* The largest value for which the ring's length in ps is a positive signed number. */
#define SLOT_BITS_MOST 49
#define BITS_PER_BYTE 8
#define PS_PER_S UINT64_C(1000000000000)

struct port_history port_history_init(uint64_t rate_bps, uint64_t buffer_ps)
{
        uint64_t super_ps = SUPER_BYTES * BITS_PER_BYTE * PS_PER_S / rate_bps,
                 least_ps = MAX(buffer_ps / SLOTS_PER_BUFFER, super_ps / SLOTS_PER_SUPER);
        struct port_history h = {buffer_ps, 0};

        while (h.slot_bits < SLOT_BITS_MOST && UINT64_C(1) << h.slot_bits < least_ps)
                h.slot_bits++;
        return h;
}

#define FRONT offsetof(struct port_state, front_ps)
#define END offsetof(struct port_state, end_ps)
#define NUMBER offsetof(struct port_slot, number)
#define IDLE offsetof(struct port_slot, idle_ps)
#define PEAK offsetof(struct port_slot, peak_ps)

/* d = d + a slot's length */
static void emit_next(struct code *c, const struct port_history *h, int d)
{
        emit(c, ALU_CONST(BPF_RSH, d, h->slot_bits));
        emit(c, ALU_CONST(BPF_ADD, d, 1));
        emit(c, ALU_CONST(BPF_LSH, d, h->slot_bits));
}

/* Sets `number` to the number of the slot that contains a time, and R3 to its place in the ring. */
static void emit_slot(struct code *c, const struct port_history *h, int number, int time)
{
        emit(c, MOVE(number, time));
        emit(c, ALU_CONST(BPF_RSH, number, h->slot_bits));
        emit(c, MOVE(R3, number));
        emit(c, ALU_CONST(BPF_AND, R3, PORT_SLOTS - 1));
        emit(c, ALU_CONST(BPF_MUL, R3, sizeof(struct port_slot)));
        emit(c, ALU(BPF_ADD, R3, RING));
}

/* d = MIN(d, 0), signed. A jump here would double the states that the kernel checks. */
static void emit_negative(struct code *c, int d, int scratch)
{
        emit(c, MOVE(scratch, d));
        emit(c, ALU_CONST(BPF_ARSH, scratch, 63));
        emit(c, ALU(BPF_AND, d, scratch));
}

/* d = MIN(d, other). Changes R4 and R5; `other` may be R5. */
static void emit_least(struct code *c, int d, int other)
{
        if (other != R5)
                emit(c, MOVE(R5, other));
        emit(c, ALU(BPF_SUB, R5, d));
        emit_negative(c, R5, R4);
        emit(c, ALU(BPF_ADD, d, R5));
}

/* Ends a loop that counts in R1. */
static void emit_repeat(struct code *c, size_t begin, int times)
{
        emit(c, ALU_CONST(BPF_ADD, R1, 1));
        emit(c, JUMP_CONST(BPF_JLT, R1, times, 0));
        land_back(c, begin);
}

/* Marks the slots after the front's slot as busy, up to the end (R2), but not beyond TIME. While a packet
 * arrives at the port's rate until TIME, the backlog does not change, so in these slots it equals the backlog
 * at TIME. */
static void emit_busy(struct code *c, const struct port_history *h, bool arriving)
{
        size_t begin, done;

        emit(c, MOVE(R4, TIME));
        emit(c, ALU(BPF_SUB, R4, R2));
        emit_negative(c, R4, R5);
        emit(c, ALU(BPF_ADD, R4, R2));
        emit(c, LOAD(BPF_DW, R0, STATE, FRONT));
        emit(c, SET(R1, 0));
        begin = c->n;
        emit_next(c, h, R0);
        emit(c, MOVE(R3, R4));
        emit(c, ALU(BPF_SUB, R3, R0));
        done = emit(c, JUMP_CONST(BPF_JSLT, R3, 0, 0));
        emit_slot(c, h, R5, R0);
        emit(c, STORE(BPF_DW, R3, R5, NUMBER));
        emit(c, STORE_CONST(BPF_DW, R3, 0, IDLE));
        emit(c, MOVE(R5, R2));
        emit(c, ALU(BPF_SUB, R5, arriving ? TIME : R0));
        emit(c, STORE(BPF_DW, R3, R5, PEAK));
        emit_repeat(c, begin, arriving ? STEPS : BACKLOG_STEPS);
        land(c, done);
}

/* Records the idle time from the end (R2) to TIME, which is R0 later. The slots in between remain unused. */
static void emit_gap(struct code *c, const struct port_history *h)
{
        size_t same;

        emit_slot(c, h, R1, R2);
        emit(c, MOVE(R5, R2));
        emit_next(c, h, R5);
        emit(c, ALU(BPF_SUB, R5, R2));
        emit_least(c, R0, R5);
        emit(c, LOAD(BPF_DW, R5, R3, IDLE));
        emit(c, ALU(BPF_ADD, R5, R0));
        emit(c, STORE(BPF_DW, R3, R5, IDLE));
        emit_slot(c, h, R4, TIME);
        same = emit(c, JUMP(BPF_JEQ, R4, R1, 0));
        emit(c, STORE(BPF_DW, R3, R4, NUMBER));
        emit(c, STORE_CONST(BPF_DW, R3, 0, PEAK));
        emit(c, ALU_CONST(BPF_LSH, R4, h->slot_bits));
        emit(c, MOVE(R5, TIME));
        emit(c, ALU(BPF_SUB, R5, R4));
        emit(c, STORE(BPF_DW, R3, R5, IDLE));
        land(c, same);
        emit(c, STORE(BPF_DW, STATE, TIME, END));
}

void port_history_emit_advance(struct code *c, const struct port_history *h, bool arriving)
{
        size_t busy;

        emit(c, LOAD(BPF_DW, R2, STATE, END));
        emit_busy(c, h, arriving);
        emit(c, MOVE(R0, TIME));
        emit(c, ALU(BPF_SUB, R0, R2));
        busy = emit(c, JUMP_CONST(BPF_JSLE, R0, 0, 0));
        emit_gap(c, h);
        land(c, busy);
        emit(c, STORE(BPF_DW, STATE, TIME, FRONT));
}

void port_history_emit_raise(struct code *c, const struct port_history *h)
{
        emit(c, LOAD(BPF_DW, R0, STATE, FRONT));
        emit_slot(c, h, R4, R0);
        emit(c, LOAD(BPF_DW, R4, STATE, END));
        emit(c, ALU(BPF_SUB, R4, R0));
        emit(c, LOAD(BPF_DW, R5, R3, PEAK));
        emit(c, JUMP(BPF_JLE, R4, R5, 1));
        emit(c, STORE(BPF_DW, R3, R4, PEAK));
}

/* Initializes a slot that holds another number than R4: the port was idle for all of it. */
static void emit_refresh(struct code *c, const struct port_history *h)
{
        size_t known;

        emit(c, LOAD(BPF_DW, R0, R3, NUMBER));
        known = emit(c, JUMP(BPF_JEQ, R0, R4, 0));
        emit(c, STORE(BPF_DW, R3, R4, NUMBER));
        emit(c, SET(R0, 1));
        emit(c, ALU_CONST(BPF_LSH, R0, h->slot_bits));
        emit(c, STORE(BPF_DW, R3, R0, IDLE));
        emit(c, STORE_CONST(BPF_DW, R3, 0, PEAK));
        land(c, known);
}

/* Subtracts from REST the slot's idle time, but no more than fits between TIME and the slot's end or the
 * front. */
static void emit_idle(struct code *c, const struct port_history *h, bool take)
{
        emit(c, MOVE(R0, TIME));
        emit_next(c, h, R0);
        emit(c, LOAD(BPF_DW, R5, STATE, FRONT));
        emit_least(c, R0, R5);
        emit(c, ALU(BPF_SUB, R0, TIME));
        emit(c, LOAD(BPF_DW, R5, R3, IDLE));
        emit_least(c, R0, R5);
        emit_least(c, R0, REST);
        emit(c, ALU(BPF_SUB, REST, R0));
        if (!take)
                return;
        emit(c, LOAD(BPF_DW, R5, R3, IDLE));
        emit(c, ALU(BPF_SUB, R5, R0));
        emit(c, STORE(BPF_DW, R3, R5, IDLE));
}

/* Checks that the backlog in the slot of TIME fits the buffer; in the first slot (R1 is 0), the packet itself
 * counts too. If the packet's last segment arrives after the slot's start, the peak may be earlier: by then,
 * the port has sent as much as the time since the slot's start allows. Returns the jump that is taken if
 * there is no room. */
static size_t emit_peak(struct code *c, const struct port_history *h, bool take)
{
        size_t full = 0;

        emit(c, MOVE(R4, TIME));
        emit(c, ALU_CONST(BPF_RSH, R4, h->slot_bits));
        emit(c, ALU_CONST(BPF_LSH, R4, h->slot_bits));
        emit(c, ALU(BPF_SUB, R4, ARRIVAL));
        emit_negative(c, R4, R5);
        emit(c, LOAD(BPF_DW, R5, R3, PEAK));
        emit(c, ALU(BPF_ADD, R4, R5));
        if (!take)
                emit(c, JUMP_CONST(BPF_JNE, R1, 0, 1));
        emit(c, ALU(BPF_ADD, R4, REST));
        if (take) {
                emit(c, JUMP(BPF_JSLE, R4, R5, 1));
                emit(c, STORE(BPF_DW, R3, R4, PEAK));
                return full;
        }
        emit_wide(c, R5, 0, h->buffer_ps);
        return emit(c, JUMP(BPF_JSGT, R4, R5, 0));
}

/* Walks from the slot of TIME to the slot of the front, or until REST is 0. Returns the jump that is taken if
 * there is no room. The jump in *ret_beyond is taken if too many slots are in use. */
static size_t emit_walk(struct code *c, const struct port_history *h, bool take, size_t *ret_beyond)
{
        size_t begin, full, placed, at_front;

        emit(c, SET(R1, 0));
        begin = c->n;
        emit_slot(c, h, R4, TIME);
        if (!take)
                emit_refresh(c, h);
        emit_idle(c, h, take);
        full = emit_peak(c, h, take);
        placed = emit(c, JUMP_CONST(BPF_JEQ, REST, 0, 0));
        emit_next(c, h, TIME);
        emit(c, LOAD(BPF_DW, R0, STATE, FRONT));
        emit(c, ALU(BPF_SUB, R0, TIME));
        at_front = emit(c, JUMP_CONST(BPF_JSLT, R0, 0, 0));
        emit_repeat(c, begin, STEPS);
        *ret_beyond = emit(c, GO(0));
        land(c, placed);
        land(c, at_front);
        return full;
}

struct port_history_jumps port_history_emit_look(struct code *c, const struct port_history *h)
{
        struct port_history_jumps jumps;

        emit(c, LOAD(BPF_DW, R0, STATE, FRONT));
        emit(c, ALU(BPF_SUB, R0, TIME));
        emit(c, ALU_CONST(BPF_RSH, R0, h->slot_bits));
        jumps.beyond[0] = emit(c, JUMP_CONST(BPF_JGE, R0, PORT_SLOTS - 1, 0));
        jumps.full = emit_walk(c, h, false, &jumps.beyond[1]);
        return jumps;
}

void port_history_emit_read(struct code *c, const struct port_history *h)
{
        size_t end;

        emit_walk(c, h, true, &end);
        land(c, end);
}
