/* Loads the BPF programs of a switch port (port_program.c), and reads their counts. */
#include "run/exact_port.h"

#include <errno.h>
#include <linux/bpf.h>
#include <linux/btf.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/timex.h>
#include <unistd.h>

#include "base/util.h"
#include "port_program.h"
#include "sys/bpf.h"
#include "sys/loop.h"

#include "port_program.inc"

#define SUPER_BYTES (64u << 10)
/* The largest value for which the ring's length in ps is a positive signed number. */
#define SLOT_BITS_MOST 49

/* Type numbers in the BTF description of the state, which lists the types in this order. */
enum { U32_TYPE = 1, LOCK_TYPE, STATE_TYPE };

struct exact_port {
        int state, slots, decision, stamp;
};

static uint64_t bytes_ps(uint64_t bytes, uint64_t rate_bps)
{
        return (uint64_t)((unsigned __int128)bytes * 8 * BIT_PS / rate_bps);
}

static struct port_rule make_rule(const struct exact_port_config *config)
{
        uint64_t rate_bps = config->rate_bps,
                 buffer_ps = MIN(bytes_ps(config->buffer_bytes, rate_bps), (uint64_t)INT64_MAX),
                 burst_ns = bytes_ps(config->burst_bytes, rate_bps) / PS_PER_NS,
                 least_ps =
                         MAX(buffer_ps / SLOTS_PER_BUFFER, bytes_ps(SUPER_BYTES, rate_bps) / SLOTS_PER_SUPER);
        struct timex clock = {};
        struct port_rule rule = {.rate_bps = rate_bps,
                                 .buffer_ps = buffer_ps,
                                 .ahead_ns = MIN(burst_ns, (uint64_t)LATE_MOST_NS),
                                 .by_timestamps = config->use_timestamps};

        adjtimex(&clock);
        rule.tai_ns = (uint64_t)clock.tai * NS_PER_S;
        while (rule.slot_bits < SLOT_BITS_MOST && UINT64_C(1) << rule.slot_bits < least_ps)
                rule.slot_bits++;
        return rule;
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
        union bpf_attr attr = {.btf = bpf_address(&description), .btf_size = sizeof description};

        return bpf_call(BPF_BTF_LOAD, &attr);
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
        return bpf_call(BPF_MAP_CREATE, &attr);
}

static int make_maps(struct exact_port *p, const struct exact_port_config *config)
{
        /* An empty virtual queue ends in the past, but 0 is in the future once the time in ps has wrapped. */
        uint64_t now_ps = clock_now_ns() * PS_PER_NS;
        struct port_state state = {
                .end_ps = now_ps, .front_ps = now_ps, .link_ps = now_ps, .rule = make_rule(config)};
        uint32_t key = 0;
        union bpf_attr attr = {.key = bpf_address(&key), .value = bpf_address(&state)};
        int btf = describe_state(), r;

        if (btf < 0)
                return btf;
        r = p->state = make_map(sizeof state, btf);
        close(btf);
        if (r < 0)
                return r;
        attr.map_fd = (uint32_t)p->state;
        r = bpf_call(BPF_MAP_UPDATE_ELEM, &attr);
        return r < 0 ? r : (p->slots = make_map(PORT_SLOTS * sizeof(struct port_slot), -1));
}

/* Loads a program that refers to the maps. */
static int load(const struct exact_port *p, const struct bpf_insn *program, size_t n)
{
        const struct bpf_mark marks[] = {{PORT_STATE_MARK, p->state, BPF_PSEUDO_MAP_VALUE},
                                         {PORT_SLOTS_MARK, p->slots, BPF_PSEUDO_MAP_VALUE}};

        return bpf_load("evb_port", program, n, marks, ARRAY_SIZE(marks));
}

int exact_port_new(struct exact_port **ret, const struct exact_port_config *config)
{
        struct exact_port *p = malloc(sizeof *p);
        int r;

        if (!p)
                return -ENOMEM;
        *p = (struct exact_port){-1, -1, -1, -1};
        r = make_maps(p, config);
        if (r >= 0)
                r = p->decision = load(p, decision_program, ARRAY_SIZE(decision_program));
        if (r >= 0)
                r = p->stamp = load(p, stamp_program, ARRAY_SIZE(stamp_program));
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
                .map_fd = (uint32_t)p->state, .key = bpf_address(&key), .value = bpf_address(&state)};
        int r = bpf_call(BPF_MAP_LOOKUP_ELEM, &attr);

        if (r >= 0)
                *ret = state.counts;
        return r < 0 ? r : 0;
}
