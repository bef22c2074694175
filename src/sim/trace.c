/* Computes the digest of a history; on request prints a line for each message, drop and change of state. */
#include <endian.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "sim_internal.h"

static void mix(struct sim *s, uint64_t word)
{
        s->digest = random_mix(s->digest ^ word);
}

static void mix_bytes(struct sim *s, const uint8_t *bytes, size_t n)
{
        uint64_t word, sum = n;

        for (size_t i = 0; i < n; i += sizeof word) {
                word = 0;
                memcpy(&word, bytes + i, MIN(n - i, sizeof word));
                sum = (sum ^ le64toh(word)) * UINT64_C(0x9E3779B97F4A7C15);
                sum ^= sum >> 29;
        }
        mix(s, sum);
}

static void print_time(const struct sim *s)
{
        fprintf(s->config.trace, "%" PRIu64 ".%09" PRIu64 " ", sim_now_ns(s) / NS_PER_S,
                sim_now_ns(s) % NS_PER_S);
}

static void print_packet(const struct sim *s, const struct sim_packet *p)
{
        struct message_header h = {};
        uint32_t ignored;

        if (p->is_number) {
                fprintf(s->config.trace, "number of a trigger, %u bytes", p->frame_bytes);
                return;
        }
        if (p->is_data)
                h.type = MESSAGE_FRAGMENTS;
        else
                (void)message_header_decode(&h, p->head, p->head_bytes, &ignored);
        fprintf(s->config.trace, "%s from %s, %u bytes", message_type_name(h.type),
                s->nodes[p->from].self->name, p->frame_bytes);
}

void sim_trace_delivery(struct sim *s, const struct sim_node *to, const struct sim_packet *p)
{
        s->messages++;
        mix(s, s->now_ps);
        mix(s, (uint64_t)to->number << 32 | p->from);
        mix(s, p->frame_bytes);
        mix_bytes(s, p->head, p->head_bytes);
        if (!s->config.trace)
                return;
        print_time(s);
        fprintf(s->config.trace, "%s: ", to->self->name);
        print_packet(s, p);
        fputc('\n', s->config.trace);
}

void sim_trace_drop(struct sim *s, const struct sim_node *at, const struct sim_packet *p, const char *where)
{
        mix(s, s->now_ps);
        mix(s, ~((uint64_t)at->number << 32 | p->from));
        if (!s->config.trace)
                return;
        print_time(s);
        fprintf(s->config.trace, "%s: dropped at its %s: ", at->self->name, where);
        print_packet(s, p);
        fputc('\n', s->config.trace);
}

void sim_trace(struct sim *s, const struct sim_node *n, uint64_t value, const char *format, ...)
{
        va_list args;

        mix(s, s->now_ps);
        mix(s, n->number);
        mix(s, value);
        if (!s->config.trace)
                return;
        print_time(s);
        fprintf(s->config.trace, "%s ", n->self->name);
        va_start(args, format);
        vfprintf(s->config.trace, format, args);
        va_end(args);
        fputc('\n', s->config.trace);
}

void sim_violate(struct sim *s, const struct sim_node *n, enum sim_invariant which, const char *format, ...)
{
        static const char *const names[] = {
                [SIM_ENDS_ONCE] = "ends-once",           [SIM_ACCOUNTS_BALANCE] = "accounts-balance",
                [SIM_EVENTS_UNMIXED] = "events-unmixed", [SIM_BUFFERS_BOUNDED] = "buffers-bounded",
                [SIM_NOTHING_WAITS] = "nothing-waits",   [SIM_PLAN_HOLDS] = "plan-holds",
                [SIM_NOTHING_LOST] = "nothing-lost",
        };
        va_list args;
        int k;

        if (s->violation[0])
                return;
        k = snprintf(s->violation, sizeof s->violation, "%s: %s: ", names[which], n->self->name);
        va_start(args, format);
        vsnprintf(s->violation + k, sizeof s->violation - (size_t)k, format, args);
        va_end(args);
        s->violated_ns = sim_now_ns(s);
        s->is_over = true;
}
