/* How a sender's traffic is to be shaped: from the link, the sources, the switch's buffer and the socket
 * buffers to rate, burst, limit and quantum of each destination, with the reason of each. Pure. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TC_DESTINATIONS_MAX 4000u
#define TC_ADDRESS_TEXT_MAX 46
#define TC_REASON_MAX 200
#define TC_WARNINGS_MAX 16
/* Of the link's class where the link's rate is not known: shapes nothing. */
#define TC_LINK_RATE_MAX_BPS UINT64_C(400000000000)

/* How the tree is made; AUTO: the first of the others that the kernel has. */
enum tc_backend {
        TC_BACKEND_NONE,
        TC_BACKEND_AUTO,
        TC_BACKEND_HTB,
        TC_BACKEND_HTB_TBF,
        TC_BACKEND_CBQ_TBF,
};

/* Of Ethernet, beyond the header that the kernel counts: preamble 8, checksum 4, gap 12 (IEEE 802.3). */
#define TC_ETHERNET_OVERHEAD_BYTES 24

struct tc_address {
        uint8_t bytes[16]; /* network order */
        uint8_t n_bytes;   /* 4 or 16 */
};

/* "10.0.0.5", "fd00::5". False: neither. */
bool tc_address_parse(struct tc_address *ret, const char *text);
char *tc_address_format(const struct tc_address *a, char text[static TC_ADDRESS_TEXT_MAX]);
bool tc_address_equal(const struct tc_address *a, const struct tc_address *b);

struct tc_destination {
        struct tc_address address;
        uint64_t rate_bps; /* wanted; 0: by the plan */
};

/* Zero means "not known" of a fact, "by the plan" of a wish. */
struct tc_request {
        /* Facts. */
        uint64_t link_rate_bps; /* of this wire and of a destination's port */
        uint32_t mtu_bytes;
        uint64_t switch_buffer_bytes;
        uint32_t sources;            /* that send to one destination */
        uint64_t send_buffer_bytes;  /* of all this machine's sockets to one destination, as the kernel grants
                                        it */
        uint32_t super_packet_bytes; /* the largest that segmentation offload hands to the qdisc; 0: none */
        /* Wishes. */
        enum tc_backend backend; /* resolved: not AUTO, not NONE */
        uint64_t rate_bps, burst_bytes, limit_bytes, control_rate_bps;
        uint16_t control_port;   /* 0: no class for control */
        uint16_t overhead_bytes; /* that a packet takes on the wire beyond what the kernel counts */
        const struct tc_destination *destinations;
        size_t n_destinations;
};

struct tc_share {
        uint64_t rate_bps;       /* the most that it may send */
        uint64_t guaranteed_bps; /* what it gets when all want to send */
        uint64_t burst_bytes;
        uint64_t limit_bytes;
        uint32_t quantum_bytes;
};

struct tc_plan {
        enum tc_backend backend;
        uint32_t frame_bytes; /* the largest frame as the kernel counts it */
        uint64_t link_rate_bps;
        uint64_t link_burst_bytes;
        uint16_t control_port, overhead_bytes;
        struct tc_share control, other; /* other: traffic to no known destination */
        struct tc_address *addresses;
        struct tc_share *shares;
        size_t n;
        char reason_rate[TC_REASON_MAX], reason_burst[TC_REASON_MAX], reason_limit[TC_REASON_MAX];
        char reason_quantum[TC_REASON_MAX], reason_control[TC_REASON_MAX];
        char warnings[TC_WARNINGS_MAX][TC_REASON_MAX];
        size_t n_warnings;
};

/* 0; -EINVAL: it could not work, `why` says what is wrong and what is allowed; -ENOMEM. */
int tc_plan_make(struct tc_plan *ret, const struct tc_request *request, char why[static TC_REASON_MAX]);
void tc_plan_fini(struct tc_plan *p);
