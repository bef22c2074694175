/* Plans the shaping of a sender: computes rate, burst, limit and quantum of each destination, each with its
 * reason. The inputs are the link, the number of sources, the switch's buffer and the send buffers. Pure. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

#define TC_DESTINATIONS_MAX 4000u
/* For EDT, so that all may be replaced at once by others in its map. */
#define TC_EDT_DESTINATIONS_MAX 1000u
#define TC_ADDRESS_TEXT_MAX 46
#define TC_REASON_MAX 200
#define TC_WARNINGS_MAX 16
/* Rate of the link's class if the link rate is unknown; with this rate, the class limits nothing. */
#define TC_LINK_RATE_MAX_BPS UINT64_C(400000000000)

/* The layout of the tree. AUTO: the first layout that the kernel supports. SOCKET: no tree; the kernel paces
 * each TCP connection of a ROS (socket(7), SO_MAX_PACING_RATE). EDT: a BPF program that gives each packet its
 * departure time, and the qdisc fq. */
enum tc_backend {
        TC_BACKEND_NONE,
        TC_BACKEND_AUTO,
        TC_BACKEND_HTB,
        TC_BACKEND_HTB_TBF,
        TC_BACKEND_CBQ_TBF,
        TC_BACKEND_SOCKET,
        TC_BACKEND_EDT,
};

/* Ethernet overhead that the kernel does not count: preamble 8, checksum 4, gap 12 (IEEE 802.3). */
#define TC_ETHERNET_OVERHEAD_BYTES 24

/* Whether the kernel supports fq_codel. UNKNOWN: the plan assumes that it does, and says so. */
enum tc_fair { TC_FAIR_NO, TC_FAIR_YES, TC_FAIR_UNKNOWN };

/* Whether the device shapes by itself, with the backend HTB (TCA_HTB_OFFLOAD). AUTO: if it can; a plan does
 * not know this, so for a plan it means NO. */
enum tc_offload { TC_OFFLOAD_NO, TC_OFFLOAD_AUTO, TC_OFFLOAD_REQUIRED };

struct tc_address {
        uint8_t bytes[16]; /* network order */
        uint8_t n_bytes;   /* 4 or 16 */
};

/* Reads "10.0.0.5" or "fd00::5". False: not an address. */
bool tc_address_parse(struct tc_address *ret, const char *text);
char *tc_address_format(const struct tc_address *a, char text[static TC_ADDRESS_TEXT_MAX]);
bool tc_address_equal(const struct tc_address *a, const struct tc_address *b);

struct tc_destination {
        struct tc_address address;
        uint64_t rate_bps; /* 0: the plan chooses */
        uint32_t permille; /* share of the rate that the destination's port can take now; 0: all */
};

/* If a property of the link is 0, it is unknown; if a requested setting is 0, the plan chooses it. */
struct tc_request {
        /* Properties of the link. */
        uint64_t link_rate_bps; /* of this device and of a destination's switch port */
        bool link_is_virtual; /* the link rate is only nominal: the link carries whatever rate is requested */
        uint32_t mtu_bytes;
        uint64_t switch_buffer_bytes;
        uint32_t sources;            /* number of senders to one destination */
        uint64_t send_buffer_bytes;  /* sum over this machine's sockets to one destination, as granted */
        uint32_t super_packet_bytes; /* largest super-packet of segmentation offload; 0: disabled */
        /* Requested settings. */
        enum tc_backend backend; /* neither AUTO nor NONE */
        enum tc_fair fair;
        enum tc_offload offload;
        uint64_t rate_bps, burst_bytes, limit_bytes, control_rate_bps;
        /* The largest super-packet that a queue may already contain, because a TBF with a smaller burst would
         * never send it. */
        uint64_t burst_least_bytes;
        char control_reason[TC_REASON_MAX]; /* the reason for control_rate_bps; "": it is configured */
        uint64_t other_rate_bps; /* rate of known traffic to unknown destinations, described by other_what */
        const char *other_what;
        uint16_t control_port; /* 0: control messages have no separate class */
        /* How data reach the destinations, so that other packets to them can have a queue of their own:
         * IPPROTO_UDP, or IPPROTO_TCP with its port; 0: unknown. */
        uint16_t data_protocol, data_port;
        uint16_t overhead_bytes; /* bytes per packet on the wire, in addition to what the kernel counts */
        const struct tc_destination *destinations;
        size_t n_destinations;
};

struct tc_share {
        uint64_t rate_bps;       /* maximum rate */
        uint64_t planned_bps;    /* rate_bps without the reduction by permille; the rate of a TBF below HTB */
        uint32_t permille;       /* rate_bps as a share of planned_bps */
        uint64_t guaranteed_bps; /* rate while all destinations send */
        uint64_t burst_bytes;
        uint64_t guaranteed_burst_bytes; /* HTB: the burst at the guaranteed rate; 0: burst_bytes */
        uint64_t limit_bytes;
        uint32_t quantum_bytes;
};

struct tc_plan {
        enum tc_backend backend;
        uint32_t frame_bytes; /* largest frame, as the kernel counts it */
        /* The largest packet that a queue may contain: a super-packet with all headers. */
        uint32_t packet_most_bytes;
        uint32_t sources;
        uint64_t link_rate_bps;
        uint64_t link_burst_bytes;
        uint16_t control_port, overhead_bytes;
        /* Not 0: other packets to the destinations have a queue of their own; see tc_plan_apart(). */
        uint16_t data_protocol, data_port;
        struct tc_share control, other; /* other: traffic to unknown destinations */
        /* Queues of other traffic, and of packets to destinations that are not data, are fq_codel. The latter
         * only with htb+tbf, because without TBF a super-packet may be longer than the whole queue. */
        bool is_fair;
        bool is_offloaded;
        struct tc_address *addresses;
        struct tc_share *shares;
        size_t n;
        char reason_rate[TC_REASON_MAX], reason_burst[TC_REASON_MAX], reason_limit[TC_REASON_MAX];
        char reason_quantum[TC_REASON_MAX], reason_control[TC_REASON_MAX];
        char reason_other[TC_REASON_MAX];
        char reason_apart[TC_REASON_MAX]; /* about packets to destinations that are not data; "": in their
                                           * queues
                                           */
        char reason_link[TC_REASON_MAX];  /* reason for the rate of the link; "": that of the request */
        char reason_need[TC_REASON_MAX];  /* when shaping is not needed; "": the buffer is unknown */
        char warnings[TC_WARNINGS_MAX][TC_REASON_MAX];
        size_t n_warnings;
        bool may_overrun; /* one of the warnings: bursts may exceed the buffer of a switch's port */
};

/* -EINVAL: the request cannot work; or -ENOMEM. */
int tc_plan_make(struct tc_plan *ret, const struct tc_request *request, struct error *error);
void tc_plan_fini(struct tc_plan *p);
/* The part of destination i's share for packets that are not data. */
struct tc_share tc_plan_apart(const struct tc_plan *p, size_t i);
