/* The BPF program of the backend edt. scripts/bpf-programs.py compiles it to edt_program.inc. It reads the IP
 * header at the network layer, so a tag in the metadata of a packet does not matter. Packets to other
 * destinations, packets that contain a VLAN tag, ARP, and control messages and IPv6 neighbour discovery to a
 * destination pass without a time. If the destination has a class, its packets get this class and no time.
 * Packets that wait long are marked (ECN, RFC 3168), so that a sender who asks for it slows down before any
 * packet is dropped. */
#include "shape/kernel/edt.h"

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/in6.h>
#include <linux/pkt_cls.h>
#include <stdbool.h>

#define INLINED inline __attribute__((always_inline))
#define NET_HEADERS 1 /* BPF_HDR_START_NET */
#define V4_BYTES 20
#define V6_BYTES 40

static void *(*const lookup)(void *map, const void *key) = (void *)BPF_FUNC_map_lookup_elem;
static uint64_t (*const now_ns)(void) = (void *)BPF_FUNC_ktime_get_ns;
static long (*const load)(const struct __sk_buff *packet, uint32_t offset, void *to, uint32_t n,
                          uint32_t from) = (void *)BPF_FUNC_skb_load_bytes_relative;
static long (*const mark_congested)(struct __sk_buff *packet) = (void *)BPF_FUNC_skb_ecn_set_ce;

struct packet {
        struct edt_key to;
        bool is_udp, is_neighbour;
        uint8_t payload; /* offset */
};

static INLINED void *map(int mark)
{
        void *m;

        if (mark == EDT_RATES_MARK)
                __asm__("%0 = %1 ll" : "=r"(m) : "i"(EDT_RATES_MARK));
        else
                __asm__("%0 = %1 ll" : "=r"(m) : "i"(EDT_STATES_MARK));
        return m;
}

static INLINED bool read_v4(struct __sk_buff *packet, struct packet *p)
{
        uint8_t h[V4_BYTES];

        if (load(packet, 0, h, sizeof h, NET_HEADERS) < 0 || h[0] >> 4 != 4)
                return false;
        p->to.bytes[10] = p->to.bytes[11] = 0xff;
        __builtin_memcpy(p->to.bytes + 12, h + 16, 4);
        /* Later fragments have no port. */
        p->is_udp = h[9] == IPPROTO_UDP && (h[6] & 0x1f) == 0 && h[7] == 0;
        p->payload = 4 * (h[0] & 15);
        return true;
}

static INLINED bool read_v6(struct __sk_buff *packet, struct packet *p)
{
        uint8_t h[V6_BYTES], type;

        if (load(packet, 0, h, sizeof h, NET_HEADERS) < 0 || h[0] >> 4 != 6)
                return false;
        __builtin_memcpy(p->to.bytes, h + 24, sizeof p->to.bytes);
        p->is_udp = h[6] == IPPROTO_UDP;
        p->payload = V6_BYTES;
        /* RFC 4861, 6.1 and 7.1. */
        p->is_neighbour = h[6] == IPPROTO_ICMPV6 && h[7] == 255 &&
                          load(packet, V6_BYTES, &type, sizeof type, NET_HEADERS) >= 0 && type >= 133 &&
                          type <= 137;
        return true;
}

static INLINED bool is_control(struct __sk_buff *packet, const struct packet *p, uint16_t port)
{
        uint8_t b[2];

        return port != 0 && p->is_udp && load(packet, p->payload + 2, b, sizeof b, NET_HEADERS) >= 0 &&
               (b[0] << 8 | b[1]) == port;
}

/* Two processors may read the same time and let their packets leave together. Both costs count, unless these
 * are the first packets after a pause: then one may be lost. */
static INLINED int stamp(struct __sk_buff *packet, const struct edt_rate *rate, struct edt_state *s)
{
        uint64_t now = now_ns() << EDT_TIME_BITS, next = *(volatile uint64_t *)&s->next_units, own,
                 segments = packet->gso_segs ?: 1, bytes = packet->wire_len + segments * rate->overhead_bytes,
                 cost;

        if (rate->rate_bps == 0)
                return TC_ACT_UNSPEC;
        cost = (bytes * 8 * EDT_UNITS_PER_S + rate->rate_bps - 1) / rate->rate_bps;
        if ((int64_t)(next - now) < 0)
                *(volatile uint64_t *)&s->next_units = next = now;
        if (next - now + cost > rate->limit_units) {
                __sync_fetch_and_add(&s->drops, segments);
                return TC_ACT_SHOT;
        }
        __sync_fetch_and_add(&s->next_units, cost);
        __sync_fetch_and_add(&s->packets, segments);
        __sync_fetch_and_add(&s->bytes, packet->wire_len);
        /* Only changes packets whose sender allows it. */
        if (next - now > rate->limit_units / EDT_LIMIT_PER_MARK)
                mark_congested(packet);
        /* TCP has chosen a time for some of its packets, which may be later. */
        next >>= EDT_TIME_BITS;
        own = packet->tstamp;
        if ((int64_t)(own - next) < 0 || own - next > EDT_HORIZON_S * 1000000000)
                packet->tstamp = next;
        return TC_ACT_UNSPEC;
}

static int __attribute__((used, section("edt_stamp"))) handle(struct __sk_buff *packet)
{
        struct packet p = {};
        const struct edt_rate *rate;
        struct edt_state *state;
        bool is_first;

        if (packet->protocol == __builtin_bswap16(ETH_P_IP)     ? !read_v4(packet, &p)
            : packet->protocol == __builtin_bswap16(ETH_P_IPV6) ? !read_v6(packet, &p)
                                                                : true)
                return TC_ACT_UNSPEC;
        rate = lookup(map(EDT_RATES_MARK), &p.to);
        if (!rate)
                return TC_ACT_UNSPEC;
        is_first = p.is_neighbour || is_control(packet, &p, rate->control_port);
        if (rate->class != 0)
                packet->priority = is_first ? rate->control_class : rate->class;
        if (is_first || rate->class != 0)
                return TC_ACT_UNSPEC;
        state = lookup(map(EDT_STATES_MARK), &rate->index);
        return state ? stamp(packet, rate, state) : TC_ACT_UNSPEC;
}
