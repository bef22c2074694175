/* The maps and the program of the backend edt. */
#include "shape/kernel/edt.h"

#include <errno.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/util.h"
#include "shape/model/kind.h"
#include "shape/model/layout.h"
#include "sys/bpf.h"

#include "edt_program.inc"

/* Old and new destinations together, if all are replaced. */
#define RATES_MOST (2 * TC_EDT_DESTINATIONS_MAX + 48)
/* By the lowest bits of the class. */
#define STATES 4096u
#define N_MAPS 2

static int make_map(enum bpf_map_type type, uint32_t key_bytes, uint32_t value_bytes, uint32_t entries)
{
        union bpf_attr attr = {.map_type = type,
                               .key_size = key_bytes,
                               .value_size = value_bytes,
                               .max_entries = entries,
                               .map_name = "evb_edt"};
        const struct rlimit all = {RLIM_INFINITY, RLIM_INFINITY};
        int r = bpf_call(BPF_MAP_CREATE, &attr);

        /* Linux before 5.11 counts maps as locked memory, of which a process may have only 64 KiB. */
        if (r == -EPERM && setrlimit(RLIMIT_MEMLOCK, &all) == 0)
                r = bpf_call(BPF_MAP_CREATE, &attr);
        return r;
}

static int get_info(int fd, void *info, uint32_t bytes)
{
        union bpf_attr attr = {
                .info = {.bpf_fd = (uint32_t)fd, .info_len = bytes, .info = bpf_address(info)}};

        return bpf_call(BPF_OBJ_GET_INFO_BY_FD, &attr);
}

static int load(struct edt *e)
{
        struct bpf_prog_info info = {};
        struct bpf_mark marks[N_MAPS];
        int r;

        r = e->rates =
                make_map(BPF_MAP_TYPE_HASH, sizeof(struct edt_key), sizeof(struct edt_rate), RATES_MOST);
        if (r >= 0)
                r = e->states =
                        make_map(BPF_MAP_TYPE_ARRAY, sizeof(uint32_t), sizeof(struct edt_state), STATES);
        if (r < 0)
                return r;
        marks[0] = (struct bpf_mark){EDT_RATES_MARK, e->rates, BPF_PSEUDO_MAP_FD};
        marks[1] = (struct bpf_mark){EDT_STATES_MARK, e->states, BPF_PSEUDO_MAP_FD};
        r = e->program = bpf_load("evb_edt", stamp_program, ARRAY_SIZE(stamp_program), marks, N_MAPS);
        if (r >= 0)
                r = get_info(e->program, &info, sizeof info);
        e->program_id = info.id;
        return r;
}

int edt_load(struct edt *e)
{
        int r = e->rates >= 0 ? 0 : load(e);

        if (r < 0)
                edt_close(e);
        return r < 0 ? r : 0;
}

static int open_id(enum bpf_cmd command, uint32_t id)
{
        union bpf_attr attr = {.prog_id = id}; /* the same place as map_id */

        return bpf_call(command, &attr);
}

/* Keeps the descriptor if the map is one of the program's. */
static int open_map(struct edt *e, uint32_t id)
{
        struct bpf_map_info info = {};
        int fd = open_id(BPF_MAP_GET_FD_BY_ID, id), r = fd < 0 ? fd : get_info(fd, &info, sizeof info);

        if (r >= 0 && info.type == BPF_MAP_TYPE_HASH && info.value_size == sizeof(struct edt_rate) &&
            e->rates < 0)
                e->rates = fd;
        else if (r >= 0 && info.type == BPF_MAP_TYPE_ARRAY && info.value_size == sizeof(struct edt_state) &&
                 e->states < 0)
                e->states = fd;
        else {
                if (fd >= 0)
                        close(fd);
                return r < 0 ? r : -EBADMSG;
        }
        return 0;
}

int edt_open(struct edt *e, uint32_t program_id)
{
        uint32_t ids[N_MAPS] = {};
        struct bpf_prog_info info = {.nr_map_ids = N_MAPS, .map_ids = bpf_address(ids)};
        int r;

        if (e->rates >= 0 && e->program_id == program_id)
                return 0;
        edt_close(e);
        r = e->program = open_id(BPF_PROG_GET_FD_BY_ID, program_id);
        if (r >= 0)
                r = get_info(e->program, &info, sizeof info);
        if (r >= 0 && info.nr_map_ids != N_MAPS)
                r = -EBADMSG;
        for (size_t i = 0; r >= 0 && i < N_MAPS; i++)
                r = open_map(e, ids[i]);
        if (r < 0) {
                edt_close(e);
                return r;
        }
        e->program_id = program_id;
        return 0;
}

void edt_close(struct edt *e)
{
        const int fds[] = {e->rates, e->states, e->program};

        for (size_t i = 0; i < ARRAY_SIZE(fds); i++) {
                if (fds[i] >= 0)
                        close(fds[i]);
        }
        *e = EDT_CLOSED;
}

static int access_map(enum bpf_cmd command, int map, const void *key, void *value)
{
        union bpf_attr attr = {.map_fd = (uint32_t)map, .key = bpf_address(key), .value = bpf_address(value)};

        return bpf_call(command, &attr);
}

static struct edt_key key_of(const struct tc_edt *d)
{
        struct edt_key key = {};

        if (d->is_v6)
                memcpy(key.bytes, d->address, sizeof key.bytes);
        else {
                key.bytes[10] = key.bytes[11] = 0xff;
                memcpy(key.bytes + 12, d->address, 4);
        }
        return key;
}

static uint64_t units_of(const struct tc_edt *d)
{
        unsigned __int128 units =
                (unsigned __int128)d->limit_bytes * 8 * EDT_UNITS_PER_S / MAX(d->rate_bps, UINT64_C(1));

        return (uint64_t)MIN(units, (unsigned __int128)INT64_MAX);
}

/* The state of a new destination is reset before the program may use it. */
int edt_change(struct edt *e, const struct tc_change *change)
{
        const struct tc_edt *d = &change->object->params.edt;
        struct edt_key key = key_of(d);
        struct edt_rate rate = {.rate_bps = d->rate_bps,
                                .limit_bytes = d->limit_bytes,
                                .limit_units = units_of(d),
                                .index = change->object->handle & (STATES - 1),
                                .class = d->classid,
                                .control_class = d->control_port > 0 ? TC_CONTROL_CLASS : 0,
                                .control_port = d->control_port,
                                .overhead_bytes = d->overhead_bytes};
        struct edt_state fresh = {};
        int r;

        if (change->verb == TC_DELETE)
                return e->rates < 0 ? 0 : access_map(BPF_MAP_DELETE_ELEM, e->rates, &key, NULL);
        r = edt_load(e);
        if (r >= 0 && change->verb == TC_ADD)
                r = access_map(BPF_MAP_UPDATE_ELEM, e->states, &rate.index, &fresh);
        return r < 0 ? r : access_map(BPF_MAP_UPDATE_ELEM, e->rates, &key, &rate);
}

static struct tc_object destination(const struct edt_key *key, const struct edt_rate *rate,
                                    const struct edt_state *state)
{
        static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};
        struct tc_object o = {.type = TC_CLASS,
                              .kind = &tc_kind_edt,
                              .handle = TC_ID(TC_OUR_MAJOR, (rate->class ? 0x5000 : 0x1000) | rate->index),
                              .parent = TC_OUR_ROOT,
                              .counters = {.known = true,
                                           .bytes = state->bytes,
                                           .packets = state->packets,
                                           .drops = state->drops}};
        bool is_v4 = memcmp(key->bytes, mapped, sizeof mapped) == 0;

        strcpy(o.kind_name, tc_kind_edt.name);
        o.kernel_handle = o.handle;
        o.params.edt = (struct tc_edt){.classid = rate->class,
                                       .is_v6 = !is_v4,
                                       .rate_bps = rate->rate_bps,
                                       .limit_bytes = rate->limit_bytes,
                                       .control_port = rate->control_port,
                                       .overhead_bytes = rate->overhead_bytes};
        memcpy(o.params.edt.address, key->bytes + (is_v4 ? 12 : 0), is_v4 ? 4 : 16);
        return o;
}

/* If a destination disappears meanwhile, the kernel begins again, so the number of steps is limited. */
int edt_read(const struct edt *e, struct tc_tree *tree)
{
        struct edt_key key = {}, next = {};
        struct edt_rate rate = {};
        struct edt_state state = {};
        int r = 0;

        for (unsigned i = 0; r >= 0 && i < RATES_MOST; i++) {
                struct tc_object o;

                r = access_map(BPF_MAP_GET_NEXT_KEY, e->rates, i == 0 ? NULL : &key, &next);
                if (r < 0)
                        return r == -ENOENT ? 0 : r;
                key = next;
                r = access_map(BPF_MAP_LOOKUP_ELEM, e->rates, &key, &rate);
                if (r >= 0)
                        r = access_map(BPF_MAP_LOOKUP_ELEM, e->states, &rate.index, &state);
                if (r < 0)
                        continue;
                o = destination(&key, &rate, &state);
                r = tc_tree_add(tree, &o);
        }
        return r == -ENOENT ? -EAGAIN : r;
}
