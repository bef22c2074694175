/* Holds packets in a ring until they are due. */
#include "run/delay_line.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/ip.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/util.h"

/* 100 ms of full frames at 2 Gbit/s. */
#define SLOTS 16384u
/* Packets taken in at once; meanwhile others may become due. */
#define TAKE_MAX 512u

struct delayed {
        uint64_t due_ns;
        uint32_t bytes;
        bool counts;
};

int delay_line_init(struct delay_line *d)
{
        d->slots = calloc(SLOTS, sizeof *d->slots);
        d->frames = calloc(SLOTS, d->frame_bytes);
        d->head = d->tail = 0;
        d->random = UINT64_C(0x9E3779B97F4A7C15);
        if (d->slots && d->frames)
                return 0;
        delay_line_fini(d);
        return -ENOMEM;
}

void delay_line_fini(struct delay_line *d)
{
        free(d->slots);
        free(d->frames);
        d->slots = NULL;
        d->frames = NULL;
}

static void count(_Atomic uint64_t *counter)
{
        atomic_fetch_add_explicit(counter, 1, memory_order_relaxed);
}

/* xorshift64* (Vigna 2016): the same packets are lost in each run. */
static bool is_unlucky(struct delay_line *d)
{
        d->random ^= d->random >> 12;
        d->random ^= d->random << 25;
        d->random ^= d->random >> 27;
        return (double)((d->random * UINT64_C(0x2545F4914F6CDD1D)) >> 11) * 0x1p-53 < d->loss;
}

static bool is_udp(const uint8_t *frame, ssize_t n)
{
        struct iphdr ip;

        if (n < (ssize_t)sizeof ip)
                return false;
        memcpy(&ip, frame, sizeof ip);
        return ip.version == 4 && ip.protocol == IPPROTO_UDP;
}

static uint8_t *frame_at(const struct delay_line *d, uint64_t i)
{
        return d->frames + i % SLOTS * d->frame_bytes;
}

static void read_frames(struct delay_line *d, uint64_t now_ns)
{
        for (unsigned i = 0; i < TAKE_MAX; i++) {
                uint8_t *frame = frame_at(d, d->head);
                ssize_t n;
                bool udp;

                if (d->head - d->tail == SLOTS)
                        return;
                n = read(d->from, frame, d->frame_bytes);
                if (n <= 0)
                        return;
                udp = is_udp(frame, n);
                if (udp && d->loss > 0 && is_unlucky(d)) {
                        count(&d->counts->lost);
                        continue;
                }
                d->slots[d->head++ % SLOTS] = (struct delayed){now_ns + d->delay_ns, (uint32_t)n, udp};
        }
}

static void pass_on(struct delay_line *d, uint64_t now_ns)
{
        while (d->tail < d->head) {
                const struct delayed *next = &d->slots[d->tail % SLOTS];

                if (next->due_ns > now_ns)
                        return;
                if (write(d->to, frame_at(d, d->tail), next->bytes) != (ssize_t)next->bytes)
                        count(&d->counts->failed);
                else if (next->counts)
                        count(&d->counts->carried);
                d->tail++;
        }
}

void delay_line_turn(struct delay_line *d, uint64_t now_ns)
{
        read_frames(d, now_ns);
        pass_on(d, now_ns);
}
