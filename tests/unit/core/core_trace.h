/* The messages of a core as readable text, in order and joined by " | ". A test compares that text, so a
 * surplus, missing or wrong message is visible in the failure. */
#pragma once

#include "../test.h"

#include <stdio.h>

#include "base/util.h"
#include "core/dfm.h"

/* A test of a core. For each `i` below `n`, `begin` creates the core of the driver `t` from the configuration
 * `c`, and the body follows; the driver then checks the core's counters and frees it. Further arguments
 * change `c` before. */
#define CORE_TEST(role, name, i, n, config, begin, ...)                                                      \
        static void name##_with(struct role##_driver *t, struct role##_config c, int i);                     \
        TEST_WITH(name, NULL, test_end_cases)                                                                \
        {                                                                                                    \
                for (int i = 0; i < (int)(n); i++) {                                                         \
                        struct role##_driver driver = {}, *t = &driver;                                      \
                        struct role##_config c = config;                                                     \
                                                                                                             \
                        (void)0, ##__VA_ARGS__;                                                              \
                        test_begin_case((n) > 1 ? (unsigned)i : TEST_NO_CASE);                               \
                        begin;                                                                               \
                        name##_with(t, c, i);                                                                \
                        role##_driver_fini(t);                                                               \
                }                                                                                            \
                test_begin_case(TEST_NO_CASE);                                                               \
        }                                                                                                    \
        static void name##_with(struct role##_driver *t, struct role##_config c, int i)

/* Start of each test. Not 0, which some fields use for "never". */
#define TRACE_BEGIN_NS (10 * NS_PER_S)

/* The run of all tests: its cookie, its number, and the incarnation of its DFM. */
#define TRACE_COOKIE UINT64_C(0xC00C1E)
#define TRACE_RUN 7
#define TRACE_DFM UINT64_C(0xDF)

/* Addresses a message of that run, from this incarnation of the DFM. */
static inline const struct message *trace_address(struct message *m, uint64_t dfm, enum node_role role,
                                                  uint16_t index, uint32_t type, uint32_t transaction)
{
        m->header = (struct message_header){
                .cookie = TRACE_COOKIE,
                .sender_role = role,
                .sender_index = index,
                .type = type,
                .transaction = transaction,
        };
        m->dfm = dfm;
        return m;
}

struct trace {
        char text[8192];
        size_t n;
};

__attribute__((format(printf, 2, 3))) static inline void trace_add(struct trace *t, const char *format, ...)
{
        va_list args;
        int n;

        va_start(args, format);
        n = vsnprintf(t->text + t->n, sizeof t->text - t->n, format, args);
        va_end(args);
        assert_true(n >= 0 && t->n + (size_t)n < sizeof t->text);
        t->n += (size_t)n;
}

static inline void trace_clear(struct trace *t)
{
        t->n = 0;
        t->text[0] = 0;
}

static inline bool trace_begins(const char *text, const char *begin)
{
        return strncmp(text, begin, strlen(begin)) == 0;
}

static inline const char *trace_state(uint32_t state)
{
        static const char *const names[] = {"?", "starting", "running", "draining", "ended"};

        return names[state < ARRAY_SIZE(names) ? state : 0];
}

static inline const char *trace_end(uint32_t end)
{
        static const char *const names[] = {"complete", "partial", "lost", "writing", "?"};

        return names[MIN(end, 4u)];
}

static inline void trace_assign(struct trace *t, const struct message *m)
{
        for (size_t k = 0; k < m->n; k++) {
                const struct assign_entry *e = &m->assign.entries[k];

                /* An announcement has no numbers; of a void entry only the number counts. */
                if (m->assign.announces)
                        trace_add(t, " e%llu>sfi%u", (unsigned long long)e->event, e->sfi);
                else if (e->flags & ASSIGN_VOID)
                        trace_add(t, " void>sfi%u#%u", e->sfi, e->sequence);
                else
                        trace_add(t, " e%llu>sfi%u#%u", (unsigned long long)e->event, e->sfi, e->sequence);
        }
}

static inline void trace_ended(struct trace *t, const struct message *m)
{
        trace_add(t, " #%u oldest %llu:", m->header.transaction, (unsigned long long)m->clear.oldest);
        for (size_t k = 0; k < m->n; k++)
                trace_add(t, " e%llu", (unsigned long long)m->clear.events[k]);
        if (m->clear.resets > 0)
                trace_add(t, " reset %u", m->clear.resets);
}

static inline void trace_update(struct trace *t, const struct message *m)
{
        trace_add(t, " granted %llu ack %u", (unsigned long long)m->update.granted, m->update.assign_ack);
        for (size_t k = 0; k < m->n; k++) {
                const struct finished_entry *e = &m->update.entries[k];

                trace_add(t, " #%u:e%llu %s", m->update.first + (uint32_t)k, (unsigned long long)e->event,
                          trace_end(e->end));
                if (e->end == EVENT_COMPLETE)
                        trace_add(t, " %llu B", (unsigned long long)e->payload_bytes);
                if (e->missing > 0)
                        trace_add(t, " -%u", e->missing);
                if (e->absent > 0)
                        trace_add(t, " absent %u", e->absent);
                if (e->unanswered)
                        trace_add(t, " unanswered");
        }
}

static inline void trace_request(struct trace *t, const struct message *m)
{
        for (size_t k = 0; k < m->n; k++) {
                const struct request_entry *e = &m->request.entries[k];

                trace_add(t, " e%llu", (unsigned long long)e->event);
                if (e->from_bytes > 0 || e->to_bytes != UINT32_MAX)
                        trace_add(t, "[%u,%d)", e->from_bytes, (int)e->to_bytes);
                if (e->again > 0)
                        trace_add(t, " again %u", e->again);
        }
}

static inline const char *trace_verdict(uint16_t verdict)
{
        static const char *const names[] = {"ok",    "other-config", "other-run", "occupied",
                                            "twice", "over",         "begun",     "address"};

        return verdict < ARRAY_SIZE(names) ? names[verdict] : "?";
}

static inline void trace_inventory(struct trace *t, const struct message *m)
{
        trace_add(t, " [%llu,%llu) %llu complete %llu partial", (unsigned long long)m->inventory.from,
                  (unsigned long long)m->inventory.end, (unsigned long long)m->inventory.totals.complete,
                  (unsigned long long)m->inventory.totals.partial);
        for (size_t k = 0; k < m->n; k++)
                trace_add(t, " ended %llx open %llx", (unsigned long long)m->inventory.entries[k].ended,
                          (unsigned long long)m->inventory.entries[k].open);
}

static inline void trace_join(struct trace *t, const struct message *m)
{
        if (m->header.cookie != 0)
                trace_add(t, " in run %u, events [%llu,%llu)", m->join.run,
                          (unsigned long long)m->join.oldest, (unsigned long long)m->join.newest);
}

static inline void trace_totals(struct trace *t, const struct message *m)
{
        trace_add(t, " %u datagrams %llu fragments", m->totals.datagrams,
                  (unsigned long long)m->totals.fragments);
}

static inline void trace_metadata(struct trace *t, const struct message *m)
{
        trace_add(t, " v%u %u/%u %s=%s", m->metadata.version, m->metadata.number, m->metadata.count,
                  m->metadata.entry.name, m->metadata.entry.value);
}

static inline void trace_body(struct trace *t, const struct message *m)
{
        switch (m->header.type) {
        case MESSAGE_ASSIGN:
        case MESSAGE_BUILD:
                trace_assign(t, m);
                break;
        case MESSAGE_UPDATE:
                trace_update(t, m);
                break;
        case MESSAGE_CLEAR:
                trace_ended(t, m);
                break;
        case MESSAGE_KEEP_ALIVE:
                trace_add(t, " %s oldest %llu clears %u ros %llx sfi %llx", trace_state(m->keep_alive.state),
                          (unsigned long long)m->keep_alive.oldest, m->keep_alive.clear_next,
                          (unsigned long long)m->keep_alive.ros_live[0],
                          (unsigned long long)m->keep_alive.sfi_live[0]);
                if (m->keep_alive.resets > 0)
                        trace_add(t, " reset %u at %llu", m->keep_alive.resets,
                                  (unsigned long long)m->keep_alive.reset_number);
                break;
        case MESSAGE_REQUEST:
                trace_request(t, m);
                break;
        case MESSAGE_ALIVE:
                trace_add(t, " %s%s%s", trace_state(m->alive.state),
                          m->alive.flags & ALIVE_XOFF ? " xoff" : "",
                          m->alive.flags & ALIVE_FAILED ? " failed" : "");
                if (m->alive.flags & ALIVE_OUT_OF_STEP)
                        trace_add(t, " out of step");
                break;
        case MESSAGE_JOIN:
                trace_join(t, m);
                break;
        case MESSAGE_WELCOME:
                trace_add(t, " %s run %u", trace_verdict(m->welcome.verdict), m->welcome.run);
                break;
        case MESSAGE_INQUIRY:
                trace_add(t, " from %llu", (unsigned long long)m->inquiry.from);
                break;
        case MESSAGE_INVENTORY:
                trace_inventory(t, m);
                break;
        case MESSAGE_UPDATE_ACK:
                trace_add(t, " %u", m->update_ack.finished_ack);
                break;
        case MESSAGE_NUMBERS:
                trace_add(t, " #%u", m->header.transaction);
                if (m->announced.knows)
                        trace_add(t, " next %u", m->announced.next);
                for (size_t k = 0; k < m->n; k++)
                        trace_add(t, " %u", m->announced.numbers[k]);
                trace_add(t, "%s", m->announced.last ? " last" : "");
                break;
        case MESSAGE_NUMBERS_ACK:
                trace_add(t, " %u%s", m->numbers_ack.ack, m->numbers_ack.go_on ? " go on" : "");
                break;
        case MESSAGE_METADATA:
                trace_metadata(t, m);
                break;
        case MESSAGE_RATE:
                trace_add(t, " %u", m->rate.permille);
                break;
        case MESSAGE_TOTALS:
                trace_totals(t, m);
                break;
        }
}

static inline void trace_message(struct trace *t, struct message_to to, const struct message *m)
{
        static const char *const roles[] = {"?", "dfm", "ros", "sfi"};

        if (t->n > 0)
                trace_add(t, " | ");
        if (to.index == MESSAGE_TO_ALL)
                trace_add(t, "all: ");
        else if (to.index == MESSAGE_TO_ROSS)
                trace_add(t, "ross: ");
        else if (to.role == ROLE_DFM)
                trace_add(t, "dfm: ");
        else
                trace_add(t, "%s%u: ", roles[to.role], to.index);
        trace_add(t, "%s", message_type_name(m->header.type));
        trace_body(t, m);
}
