/* Assembles, loads and reads the BPF programs that stamp packets as they leave a link, and that decide for a
 * switch port which packets it drops. */
#include "run/exact_port.h"

#include <errno.h>
#include <linux/bpf.h>
#include <linux/btf.h>
#include <linux/pkt_cls.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/timex.h>
#include <unistd.h>

#include "base/util.h"
#include "sys/loop.h"
#include "port_history.h"

/* Maximum number of compare-and-exchange attempts. One fails only if another processor has just succeeded. */
#define ATTEMPTS 8
/* An older timestamp or mark is not from this program, or the clock was set. */
#define LATE_MOST_NS 1000000000
#define PS_PER_NS 1000
#define PS_PER_S (UINT64_C(1000000000) * PS_PER_NS)
#define BITS_PER_BYTE 8

/* Type numbers in the BTF description of the state, which lists the types in this order. */
enum { U32_TYPE = 1, LOCK_TYPE, STATE_TYPE };

struct exact_port {
        int state, slots, decision, stamp;
};

/* Registers of the decision until it takes the lock; COST is used at times. */
enum { SEGMENTS = R6, BYTES = R7, COST = R1 };
/* Places on the stack that hold these values afterwards. */
enum { SEGMENTS_AT = -8, BYTES_AT = -16, COST_AT = -24, START_AT = -32 };

static uint64_t bytes_ps(uint64_t bytes, uint64_t rate_bps)
{
        return (uint64_t)((unsigned __int128)bytes * BITS_PER_BYTE * PS_PER_S / rate_bps);
}

/* Changes R0 from the current time to the time of the packet's mark. Only frames from another port carry a
 * mark of this program. */
static void emit_mark(struct code *c, uint64_t ahead_ns)
{
        size_t now[3];

        emit(c, LOAD(BPF_W, R2, R6, offsetof(struct __sk_buff, ingress_ifindex)));
        now[0] = emit(c, JUMP_CONST(BPF_JEQ, R2, 0, 0));
        emit(c, LOAD(BPF_W, R2, R6, offsetof(struct __sk_buff, mark)));
        now[1] = emit(c, JUMP_CONST(BPF_JEQ, R2, 0, 0));
        /* The signed difference of the lower halves. */
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

/* Reads the arrival in ps, and the packet's size and segments from the context, which is not available
 * afterwards. */
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
        /* wire_len includes the headers of all segments: the kernel maintains it for size-based qdiscs. */
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

/* Computes the time that the port needs for the packet, and the time at which its first segment arrived. The
 * last segment arrives at ARRIVAL, and the others before it at the port's rate. */
static void emit_cost(struct code *c, uint64_t rate_bps)
{
        emit(c, LOAD(BPF_DW, COST, R10, BYTES_AT));
        emit_time(c, COST, rate_bps);
        emit(c, STORE(BPF_DW, R10, COST, COST_AT));
        emit(c, MOVE(TIME, ARRIVAL));
        emit(c, ALU(BPF_SUB, TIME, COST));
        emit(c, LOAD(BPF_DW, R3, R10, SEGMENTS_AT));
        emit(c, ALU(BPF_DIV, COST, R3));
        emit(c, ALU(BPF_ADD, TIME, COST));
        emit(c, STORE(BPF_DW, R10, TIME, START_AT));
}

/* Sets R3 to the later of two times: R0, which is a value of the state, and a register. Changes R4. */
static void emit_later(struct code *c, int other)
{
        emit(c, MOVE(R3, R0));
        emit(c, MOVE(R4, other));
        emit(c, ALU(BPF_SUB, R4, R0));
        emit(c, JUMP_CONST(BPF_JSLE, R4, 0, 1));
        emit(c, MOVE(R3, other));
}

/* Stores R3 where R0 was loaded from, if R0 is still there. Returns the jump that is taken on success. */
static size_t emit_exchange(struct code *c, size_t offset)
{
        emit(c, MOVE(R4, R0));
        /* Compares with R0, and loads the previous value into it. */
        emit(c, ATOMIC(BPF_CMPXCHG, STATE, R3, offset));
        return emit(c, JUMP(BPF_JEQ, R0, R4, 0));
}

#define COUNT(name) (offsetof(struct port_state, counts) + offsetof(struct exact_port_counts, name))

static void emit_end(struct code *c, size_t packets_offset, size_t bytes_offset, int result)
{
        emit(c, MOVE(R1, STATE));
        emit(c, CALL(BPF_FUNC_spin_unlock));
        emit(c, LOAD(BPF_DW, SEGMENTS, R10, SEGMENTS_AT));
        emit(c, ATOMIC(BPF_ADD, STATE, SEGMENTS, packets_offset));
        emit(c, LOAD(BPF_DW, BYTES, R10, BYTES_AT));
        emit(c, ATOMIC(BPF_ADD, STATE, BYTES, bytes_offset));
        emit(c, SET(R0, result));
        emit(c, EXIT());
}

/* Takes the lock; the verifier allows no other call until it is released. */
static void emit_lock(struct code *c, const struct exact_port *p)
{
        emit(c, STORE(BPF_DW, R10, SEGMENTS, SEGMENTS_AT));
        emit(c, STORE(BPF_DW, R10, BYTES, BYTES_AT));
        emit_wide(c, STATE, BPF_PSEUDO_MAP_VALUE, (uint32_t)p->state);
        emit_wide(c, RING, BPF_PSEUDO_MAP_VALUE, (uint32_t)p->slots);
        emit(c, MOVE(R1, STATE));
        emit(c, CALL(BPF_FUNC_spin_lock));
}

/* Returns a jump that is taken if the comparison `op` of (time - front) with 0 is true. */
static size_t emit_compare(struct code *c, int time, int op)
{
        emit(c, LOAD(BPF_DW, R3, STATE, offsetof(struct port_state, front_ps)));
        emit(c, MOVE(R4, time));
        emit(c, ALU(BPF_SUB, R4, R3));
        return emit(c, JUMP_CONST(op, R4, 0, 0));
}

/* Adds a register to the end. Returns the jump that is taken, before the addition, if the buffer is full at a
 * time: if the end, with the addition or without it (`before`), is later than the buffer allows. */
static size_t emit_add(struct code *c, const struct port_history *h, int cost, int time, bool before)
{
        size_t full;

        emit(c, LOAD(BPF_DW, R0, STATE, offsetof(struct port_state, end_ps)));
        emit(c, MOVE(R4, R0));
        emit(c, ALU(BPF_SUB, R4, time));
        if (!before)
                emit(c, ALU(BPF_ADD, R4, cost));
        emit_wide(c, R5, 0, h->buffer_ps);
        full = emit(c, JUMP(BPF_JSGT, R4, R5, 0));
        emit(c, ALU(BPF_ADD, R0, cost));
        emit(c, STORE(BPF_DW, STATE, R0, offsetof(struct port_state, end_ps)));
        return full;
}

/* Handles a packet that is not older than the front. Returns the jump that is taken if the buffer is full. */
static size_t emit_on_time(struct code *c, const struct port_history *h)
{
        size_t full, followed, whole;

        followed = emit_compare(c, TIME, BPF_JSLE);
        port_history_emit_advance(c, h, false);
        land(c, followed);
        emit(c, LOAD(BPF_DW, COST, R10, COST_AT));
        full = emit_add(c, h, COST, ARRIVAL, false);
        /* Only the segments of a super-packet arrive after its start. */
        emit(c, MOVE(TIME, ARRIVAL));
        whole = emit_compare(c, TIME, BPF_JSLE);
        port_history_emit_advance(c, h, true);
        land(c, whole);
        return full;
}

/* Handles a packet that is older than the front: it counts at its arrival, or at the front if its arrival is
 * too long ago. */
static void emit_late(struct code *c, const struct port_history *h, size_t full[static 3])
{
        struct port_history_jumps jumps;
        size_t placed, done;

        emit(c, LOAD(BPF_DW, REST, R10, COST_AT));
        jumps = port_history_emit_look(c, h);
        full[0] = jumps.full;
        placed = emit(c, JUMP_CONST(BPF_JEQ, REST, 0, 0));
        emit(c, LOAD(BPF_DW, R3, STATE, offsetof(struct port_state, front_ps)));
        full[1] = emit_add(c, h, REST, R3, true);
        land(c, placed);
        emit(c, LOAD(BPF_DW, REST, R10, COST_AT));
        emit(c, LOAD(BPF_DW, TIME, R10, START_AT));
        port_history_emit_read(c, h);
        done = emit(c, GO(0));
        for (size_t i = 0; i < ARRAY_SIZE(jumps.beyond); i++)
                land(c, jumps.beyond[i]);
        emit(c, LOAD(BPF_DW, REST, R10, COST_AT));
        emit(c, LOAD(BPF_DW, R3, STATE, offsetof(struct port_state, front_ps)));
        full[2] = emit_add(c, h, REST, R3, false);
        land(c, done);
}

/* Times in ps wrap after 213 days; signed differences make them comparable. Both assembling functions return
 * the number of instructions. */
static size_t assemble_decision(struct bpf_insn program[static CODE_MOST], const struct exact_port *p,
                                const struct exact_port_config *config)
{
        uint64_t buffer_ps = MIN(bytes_ps(config->buffer_bytes, config->rate_bps), (uint64_t)INT64_MAX);
        struct port_history h = port_history_init(config->rate_bps, buffer_ps);
        struct code c = {program, 0};
        size_t late, carried, full[4];

        emit_packet(&c, config);
        emit_lock(&c, p);
        emit_cost(&c, config->rate_bps);
        late = emit_compare(&c, ARRIVAL, BPF_JSLT);
        full[0] = emit_on_time(&c, &h);
        carried = emit(&c, GO(0));
        land(&c, late);
        emit_late(&c, &h, &full[1]);
        land(&c, carried);
        port_history_emit_raise(&c, &h);
        emit_end(&c, COUNT(packets), COUNT(bytes), TC_ACT_UNSPEC);
        for (size_t i = 0; i < ARRAY_SIZE(full); i++)
                land(&c, full[i]);
        emit_end(&c, COUNT(dropped_packets), COUNT(dropped_bytes), TC_ACT_SHOT);
        return c.n;
}

/* Sets R7 to the time at which the packet left the node, in ns of CLOCK_MONOTONIC. The kernel's timestamps
 * are from CLOCK_REALTIME, which BPF can only read as CLOCK_TAI; the difference between the two changes only
 * with leap seconds. */
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

static size_t assemble_stamp(struct bpf_insn program[static CODE_MOST], const struct exact_port *p,
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
        emit_wide(&c, STATE, BPF_PSEUDO_MAP_VALUE, (uint32_t)p->state);
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

/* Describes to the kernel where the lock is in the state. Returns a descriptor of the description. */
static int describe_state(void)
{
        enum { U32_NAME = 1, VALUE_NAME = 5, LOCK_NAME = 9, TYPE_NAME = 14, STATE_NAME = 28 };
        static const struct {
                struct btf_header header;
                struct btf_type u32;
                uint32_t u32_bits;
                struct btf_type lock;
                struct btf_member value;
                struct btf_type state;
                struct btf_member lock_member;
                char names[40];
        } description = {
                .header = {.magic = BTF_MAGIC,
                           .version = BTF_VERSION,
                           .hdr_len = sizeof description.header,
                           .type_len = offsetof(typeof(description), names) - sizeof description.header,
                           .str_off = offsetof(typeof(description), names) - sizeof description.header,
                           .str_len = sizeof description.names},
                .names = "\0u32\0val\0lock\0bpf_spin_lock\0port_state",
                .u32 = {.name_off = U32_NAME, .info = BTF_KIND_INT << 24, .size = sizeof(uint32_t)},
                .u32_bits = 32,
                .lock = {.name_off = TYPE_NAME,
                         .info = BTF_KIND_STRUCT << 24 | 1,
                         .size = sizeof(struct bpf_spin_lock)},
                .value = {.name_off = VALUE_NAME, .type = U32_TYPE},
                .state = {.name_off = STATE_NAME,
                          .info = BTF_KIND_STRUCT << 24 | 1,
                          .size = sizeof(struct port_state)},
                .lock_member = {.name_off = LOCK_NAME,
                                .type = LOCK_TYPE,
                                .offset = offsetof(struct port_state, lock) * 8},
        };
        union bpf_attr attr = {.btf = address_of(&description), .btf_size = sizeof description};

        return bpf(BPF_BTF_LOAD, &attr);
}

/* Makes a map with one value, all zero. `btf`: descriptor of the value's type, or -1. */
static int make_map(size_t size, int btf)
{
        union bpf_attr attr = {.map_type = BPF_MAP_TYPE_ARRAY,
                               .key_size = sizeof(uint32_t),
                               .value_size = (uint32_t)size,
                               .max_entries = 1,
                               .map_name = "evb_port"};

        if (btf >= 0)
                attr.btf_fd = (uint32_t)btf, attr.btf_key_type_id = U32_TYPE,
                attr.btf_value_type_id = STATE_TYPE;
        return bpf(BPF_MAP_CREATE, &attr);
}

static int make_maps(struct exact_port *p)
{
        /* An empty virtual queue ends in the past, but 0 is in the future once the time in ps has wrapped. */
        uint64_t now_ps = clock_now_ns() * PS_PER_NS;
        struct port_state state = {.end_ps = now_ps, .front_ps = now_ps, .link_ps = now_ps};
        uint32_t key = 0;
        union bpf_attr attr = {.key = address_of(&key), .value = address_of(&state)};
        int btf = describe_state(), r;

        if (btf < 0)
                return btf;
        r = p->state = make_map(sizeof state, btf);
        close(btf);
        if (r < 0)
                return r;
        attr.map_fd = (uint32_t)p->state;
        r = bpf(BPF_MAP_UPDATE_ELEM, &attr);
        return r < 0 ? r : (p->slots = make_map(PORT_SLOTS * sizeof(struct port_slot), -1));
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
        struct bpf_insn program[CODE_MOST];
        struct exact_port *p = malloc(sizeof *p);
        int r;

        if (!p)
                return -ENOMEM;
        *p = (struct exact_port){-1, -1, -1, -1};
        r = make_maps(p);
        if (r >= 0)
                r = p->decision = load(program, assemble_decision(program, p, config));
        if (r >= 0)
                r = p->stamp = load(program, assemble_stamp(program, p, config));
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
        if (p->slots >= 0)
                close(p->slots);
        if (p->state >= 0)
                close(p->state);
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
                .map_fd = (uint32_t)p->state, .key = address_of(&key), .value = address_of(&state)};
        int r = bpf(BPF_MAP_LOOKUP_ELEM, &attr);

        if (r >= 0)
                *ret = state.counts;
        return r < 0 ? r : 0;
}
