/* Qdiscs, classes and filters of one device as values. Wanted and kernel objects have the same form, so that
 * they can be compared. A tree owns its objects. No access to the kernel. One thread per tree. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/strbuf.h"

#define TC_KIND_MAX 16
#define TC_U32_KEYS_MAX 8
#define TC_HANDLE_TEXT_MAX 24
#define TC_STAB_BYTES 24

#define TC_ID(major, minor) ((uint32_t)(major) << 16 | (uint32_t)(minor))
#define TC_MAJOR(handle) ((uint32_t)(handle) >> 16)
#define TC_MINOR(handle) ((uint32_t)(handle)&0xffff)
#define TC_ROOT UINT32_MAX             /* TC_H_ROOT */
#define TC_EGRESS UINT32_C(0xfffffff3) /* the parent of filters for outgoing packets, in clsact */

enum tc_type { TC_QDISC, TC_CLASS, TC_FILTER };

struct tc_htb_qdisc {
        uint32_t default_class;  /* its minor number */
        uint32_t rate2quantum;   /* contains evb's mark; without effect, because classes set their quantum */
        uint32_t direct_packets; /* length of the queue for unclassified packets; 0: as the device; not
                                    compared */
        bool offload;            /* the device shapes, and each leaf is one of its queues */
};

struct tc_htb_class {
        uint64_t rate_bytes, ceil_bytes; /* per second */
        uint32_t burst_ticks, cburst_ticks;
        uint32_t quantum_bytes, priority; /* quantum_bytes 0: the kernel chooses; then not compared */
        uint16_t overhead_bytes;
};

struct tc_tbf {
        uint64_t rate_bytes;
        uint32_t burst_ticks, limit_bytes;
        uint32_t burst_bytes;       /* exact; sent in addition to the ticks; 0 in dumps, which omit it */
        uint32_t packet_most_bytes; /* maximum size of a queued packet; not sent; 0: unknown */
        uint16_t overhead_bytes;
};

/* Also the parameters of a CBQ qdisc, which is its own topmost class. Times are in ticks. */
struct tc_cbq {
        uint32_t rate_bytes;
        uint32_t max_idle, min_idle, off_time;
        uint32_t average_packet_bytes, allot_bytes, weight;
        uint32_t split,
                default_map; /* bit p of default_map: below `split`, takes unfiltered packets of priority p */
        uint16_t min_packet_bytes;
        uint8_t cell_log, priority, ewma_log;
        bool bounded, isolated;
        uint64_t bandwidth_bytes; /* bandwidth of the link, for idle times; needed by tc, not contained in
                                     dumps */
};

struct tc_fifo {
        uint32_t limit; /* bfifo: bytes; pfifo: packets */
};

struct tc_fq_codel {
        uint32_t limit_packets, memory_bytes; /* memory_bytes 0: unknown */
        uint32_t target_us, interval_us, quantum_bytes;
        bool ecn;
};

struct tc_fq {
        uint32_t limit_packets, flow_limit_packets;
        uint32_t horizon_us; /* packets with later departure times are dropped; 0: unknown */
};

/* The filter that runs evb's BPF program. */
struct tc_bpf {
        int fd;              /* the program to attach; not in dumps */
        uint32_t program_id; /* of the attached program; only in dumps */
        bool owns_clsact;    /* evb added the clsact below, too; not compared */
        bool is_unreadable;  /* its destinations cannot be read, and so are missing in the tree */
};

/* A destination of this program. With a class, its packets get this class instead of a departure time. */
struct tc_edt {
        uint32_t classid;    /* 0: none */
        uint8_t address[16]; /* network order; IPv4: the first four bytes */
        bool is_v6;
        uint64_t rate_bps, limit_bytes;
        uint16_t control_port; /* UDP packets to it do not wait; 0: none */
        uint16_t overhead_bytes;
};

/* Bytes are in the order of the packet. */
struct tc_u32_match {
        uint8_t mask[4], value[4];
        int32_t offset; /* from the network header */
};

struct tc_u32 {
        uint32_t classid;
        uint32_t link;    /* table to which matching packets continue; 0: none */
        uint32_t divisor; /* not 0: the object is a table with this number of buckets */
        uint8_t hash_mask[4];
        int16_t hash_offset; /* offset of the packet bytes that, after masking, select the bucket of `link` */
        uint8_t n_matches;
        struct tc_u32_match matches[TC_U32_KEYS_MAX];
};

union tc_params {
        struct tc_htb_qdisc htb_qdisc;
        struct tc_htb_class htb_class;
        struct tc_tbf tbf;
        struct tc_cbq cbq;
        struct tc_fifo fifo;
        struct tc_fq_codel fq_codel;
        struct tc_u32 u32;
        struct tc_fq fq;
        struct tc_bpf bpf;
        struct tc_edt edt;
};

struct tc_counters {
        bool known;
        uint64_t bytes, packets, drops, overlimits, requeues, backlog_bytes, backlog_packets;
};

struct tc_kind;

struct tc_object {
        enum tc_type type;
        /* Qdisc: MAJOR:0 (0: the kernel's default). Class: its id. u32 filter: table << 20 | bucket << 12 |
         * number; table 0 is the topmost table of the filter's priority, regardless of its number in the
         * kernel. */
        uint32_t handle;
        uint32_t parent;             /* TC_ROOT, a class or a qdisc */
        uint16_t priority, protocol; /* for filters; ETH_P_*, host order */
        uint32_t chain;              /* for filters; evb uses only chain 0 */
        uint32_t kernel_handle;      /* the kernel's handle, for deletion; 0 in wanted objects */
        char kind_name[TC_KIND_MAX];
        const struct tc_kind *kind; /* NULL: unsupported; only `options` describes it */
        union tc_params params;
        /* For qdiscs: struct tc_sizespec of the size table (`tc ... stab`), which makes packets count as
         * larger. The kernel does not report the table itself. A stab without a table (no link layer, only an
         * overhead) is complete. */
        bool has_stab;
        uint8_t stab[TC_STAB_BYTES];
        /* TCA_OPTIONS as dumped; owned by the tree. */
        uint8_t *options;
        size_t options_bytes;
        struct tc_counters counters;
};

struct tc_tree {
        struct tc_object *objects;
        size_t n, size;
};

/* Copies the object, and takes ownership of its options. -ENOMEM. */
int tc_tree_add(struct tc_tree *t, const struct tc_object *o);
void tc_tree_fini(struct tc_tree *t);
/* Copies all objects. */
int tc_tree_copy(struct tc_tree *ret, const struct tc_tree *t);
/* Sorts by identity, so that two trees can be merged. */
void tc_tree_sort(struct tc_tree *t);

/* Compares the places in the tree, not the objects in these places: <0, 0, >0. */
int tc_object_compare(const struct tc_object *a, const struct tc_object *b);
/* True if all properties are the same; ignores counters. */
bool tc_object_equal(const struct tc_object *a, const struct tc_object *b);
/* These functions return, in a sorted tree: the object in the same place; the class with this id; the qdisc
 * below a parent (a class or TC_ROOT). NULL: there is none. */
const struct tc_object *tc_tree_find(const struct tc_tree *t, const struct tc_object *place);
const struct tc_object *tc_tree_class(const struct tc_tree *t, uint32_t classid);
const struct tc_object *tc_tree_qdisc(const struct tc_tree *t, uint32_t parent);

/* Whether the kernel did not report the size table completely. */
bool tc_object_is_missing_table(const struct tc_object *o);

/* Formats "e7b:1001" or "root", as tc does. Returns text. */
char *tc_handle_format(uint32_t handle, char text[static TC_HANDLE_TEXT_MAX]);
/* Appends the name for messages: "class e7b:1001", "tbf 1001: of e7b:1001", "filter for 10.0.0.5". */
void tc_object_name(const struct tc_object *o, struct strbuf *b);
