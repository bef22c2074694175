/* Drives one SFI; the test acts as the DFM and the ROSs. Messages and built events appear as text, and the
 * counters are checked at the end of each test. */
#pragma once

#include "core_trace.h"

#include "core/sfi.h"

#define AFTER_NS (10 * NS_PER_MS) /* retry_after_ns of all tests */

struct sfi_driver {
        struct sfi *sfi;
        struct sfi_config config;
        uint64_t now_ns;
        uint32_t assign_next, keep_alive_next, voids, resets;
        uint32_t welcome;  /* transaction of Welcome: WELCOME_* */
        uint64_t sfi_live; /* that the next KeepAlive shows */
        uint64_t dfm;      /* incarnation */
        struct message message;
        struct trace trace;
};

/* Tests of an SFI (core_trace.h): with any configuration and beginning, or with sfi_standard(), sfi_pulling()
 * or by_bytes(), and `events` are assigned to it. */
#define SFI_TEST_AS(name, config, begin, ...) CORE_TEST(sfi, name, once, 1, config, begin, ##__VA_ARGS__)
#define SFI_TEST_EACH(name, i, n, events, ...)                                                               \
        CORE_TEST(sfi, name, i, n, sfi_standard(), sfi_driver_start(t, &c, events), ##__VA_ARGS__)
#define SFI_TEST(name, events, ...) SFI_TEST_EACH(name, once, 1, events, ##__VA_ARGS__)
#define PULL_TEST_EACH(name, i, n, events, ...)                                                              \
        CORE_TEST(sfi, name, i, n, sfi_pulling(), sfi_driver_start(t, &c, events), ##__VA_ARGS__)
#define PULL_TEST(name, events, ...) PULL_TEST_EACH(name, once, 1, events, ##__VA_ARGS__)
#define BYTES_TEST(name, events, ...)                                                                        \
        SFI_TEST_AS(name, by_bytes(), sfi_driver_start(t, &c, events), ##__VA_ARGS__)

static inline struct sfi_config sfi_standard(void)
{
        return (struct sfi_config){
                .member = {.incarnation = 3, .retry_ns = 100 * NS_PER_MS},
                .index = 1,
                .n_ros = 2,
                .slots = 8,
                .buffer_bytes = 2 * EVB_FRAGMENT_MAX_BYTES,
                .credits = 4,
                .timeout_ns = 2 * NS_PER_S,
                .retries_max = 5,
                .retry_after_ns = AFTER_NS,
                .keep_alive_ns = 1000 * NS_PER_S,
                .message_bytes = 1472,
                .frame_overhead_bytes = 114,
        };
}

/* Makes the next message, for any receiver; false: there is none. */
static inline bool sfi_makes(struct sfi_driver *t)
{
        return sfi_step(t->sfi, t->now_ns, &(struct message_to){}, &t->message);
}

static inline const char *sfi_says(struct sfi_driver *t)
{
        struct message_to to;

        trace_clear(&t->trace);
        while (sfi_step(t->sfi, t->now_ns, &to, &t->message)) {
                assert_int_equal(t->message.header.sender_role, ROLE_SFI);
                assert_int_equal(t->message.header.sender_index, t->config.index);
                trace_message(&t->trace, to, &t->message);
        }
        /* Nothing is due, so the deadline must not wake the caller at once. */
        assert_true(sfi_deadline_ns(t->sfi) > t->now_ns);
        return t->trace.text;
}

#define assert_sfi_says(t, expected) assert_string_equal(sfi_says(t), expected)
#define assert_sfi_says_after(t, ns, expected) ((t)->now_ns += (ns), assert_sfi_says(t, expected))

static inline bool to_sfi(struct sfi_driver *t, enum node_role role, uint16_t index, uint32_t type,
                          uint32_t transaction)
{
        return sfi_receive(t->sfi, t->now_ns,
                           trace_address(&t->message, t->dfm, role, index, type, transaction));
}

static inline void sfi_gets_welcome(struct sfi_driver *t, uint64_t dfm, enum welcome_verdict verdict)
{
        t->dfm = dfm;
        t->message.welcome.incarnation = t->config.member.incarnation;
        t->message.welcome.run = TRACE_RUN;
        t->message.welcome.verdict = verdict;
        assert_true(to_sfi(t, ROLE_DFM, 0, MESSAGE_WELCOME, t->welcome));
}

static inline void sfi_driver_init(struct sfi_driver *t, const struct sfi_config *config)
{
        char begin[80];

        *t = (struct sfi_driver){.config = *config, .now_ns = TRACE_BEGIN_NS, .welcome = t->welcome};
        assert_int_equal(sfi_new(&t->sfi, config, t->now_ns), 0);
        assert_sfi_says(t, "dfm: Join");
        sfi_gets_welcome(t, TRACE_DFM, WELCOME_OK);
        snprintf(begin, sizeof begin, "dfm: Alive running | dfm: Update granted %u ack 0",
                 config->credits ?: 4);
        assert_sfi_says(t, begin);
}

/* The counts of each ROS's fragments add up to the sums. */
static inline void sfi_driver_check_sources(const struct sfi_driver *t, const struct sfi_counts *c)
{
        struct sfi_source_counts sum = {};

        for (uint32_t i = 0; i < t->config.n_ros; i++) {
                struct sfi_source_counts one = sfi_source_counts(t->sfi, i);

                sum.fragments_received += one.fragments_received;
                sum.fragments_lost += one.fragments_lost;
                sum.fragments_absent += one.fragments_absent;
                sum.bytes += one.bytes;
                sum.datagrams_lost += one.datagrams_lost;
        }
        assert_fields(&sum, fragments_received, c->fragments_received, fragments_lost, c->fragments_lost,
                      fragments_absent, c->fragments_absent, datagrams_lost, c->datagrams_lost);
        /* Partial events have payload too. */
        assert_true(c->partial > 0 ? sum.bytes >= c->payload_bytes : sum.bytes == c->payload_bytes);
}

/* Each assignment is open, void or ended once; void is also what has ended elsewhere. Ended events hold no
 * memory. */
static inline void sfi_driver_fini(struct sfi_driver *t)
{
        struct sfi_counts counts;
        const struct sfi_counts *c = &counts;
        uint64_t ended;

        if (!t->sfi)
                return;
        counts = sfi_counts(t->sfi);
        ended = c->complete + c->partial + c->lost;
        assert_int_equal(c->fragments_received + c->fragments_lost + c->fragments_absent,
                         ended * t->config.n_ros);
        sfi_driver_check_sources(t, c);
        assert_true(c->assigned >= ended + t->voids);
        assert_true(c->assigned <= ended + t->voids + sfi_open_events(t->sfi));
        if (sfi_open_events(t->sfi) == 0)
                assert_int_equal(sfi_buffer_used_bytes(t->sfi), 0);
        t->sfi = sfi_free(t->sfi);
}

/* An entry with that sequence number, regardless of the previous ones. One of another SFI is announced. */
static inline void sfi_gets_entry(struct sfi_driver *t, uint32_t type, uint64_t event, uint16_t sfi,
                                  uint32_t sequence, uint16_t flags)
{
        t->message.n = 1;
        t->message.assign.with_info = false;
        t->message.assign.announces = sfi != t->config.index;
        t->message.assign.sfi = sfi;
        t->message.assign.incarnation = (uint32_t)t->config.member.incarnation;
        t->message.assign.finished_ack = 0;
        t->message.assign.resets = t->resets;
        t->message.assign.entries[0] = (struct assign_entry){
                .event = event,
                .l1_id = (uint32_t)event,
                .sequence = sequence,
                .sfi = sfi,
                .flags = flags,
        };
        assert_true(to_sfi(t, ROLE_DFM, 0, type, sequence));
}

static inline void sfi_gets_assign(struct sfi_driver *t, uint64_t event)
{
        sfi_gets_entry(t, MESSAGE_ASSIGN, event, t->config.index, t->assign_next++, 0);
}

static inline void sfi_gets_assigns(struct sfi_driver *t, uint64_t from, uint64_t until)
{
        for (uint64_t event = from; event < until; event++)
                sfi_gets_assign(t, event);
}

static inline void sfi_gets_ack(struct sfi_driver *t, uint32_t finished_ack)
{
        t->message.update_ack.finished_ack = finished_ack;
        t->message.update_ack.incarnation = t->config.member.incarnation;
        assert_true(to_sfi(t, ROLE_DFM, 0, MESSAGE_UPDATE_ACK, 0));
}

static inline void sfi_gets_keep_alive(struct sfi_driver *t, enum run_state state, uint64_t oldest,
                                       uint64_t ros_live)
{
        t->message.keep_alive.state = state;
        t->message.keep_alive.flags = 0;
        t->message.keep_alive.oldest = oldest;
        t->message.keep_alive.triggers = oldest;
        t->message.keep_alive.resets = t->resets;
        memset(t->message.keep_alive.ros_live, 0, sizeof t->message.keep_alive.ros_live);
        t->message.keep_alive.ros_live[0] = ros_live;
        memset(t->message.keep_alive.sfi_live, 0, sizeof t->message.keep_alive.sfi_live);
        t->message.keep_alive.sfi_live[0] = t->sfi_live;
        assert_true(to_sfi(t, ROLE_DFM, 0, MESSAGE_KEEP_ALIVE, t->keep_alive_next++));
}

static inline struct sfi_chunk chunk_of(uint16_t ros, uint64_t event, uint32_t offset, uint32_t length,
                                        uint32_t fragment_bytes)
{
        return (struct sfi_chunk){
                .source = ros,
                .chunk =
                        {
                                .event = event,
                                .l1_id = (uint32_t)event,
                                .fragment_bytes = fragment_bytes,
                                .offset = offset,
                                .length = length,
                        },
        };
}

static inline enum sfi_verdict sfi_gets_chunk(struct sfi_driver *t, struct sfi_chunk p)
{
        sfi_reserve(t->sfi, t->now_ns, &p, 1);
        if (p.verdict == SFI_STORE && p.chunk.length > 0)
                assert_true(p.at + p.chunk.length <= t->config.buffer_bytes);
        sfi_commit(t->sfi, t->now_ns, &p, 1);
        return p.verdict;
}

/* A complete fragment of 100 bytes. */
static inline enum sfi_verdict sfi_gets_fragment(struct sfi_driver *t, uint16_t ros, uint64_t event)
{
        return sfi_gets_chunk(t, chunk_of(ros, event, 0, 100, 100));
}

/* Those of ROS 0. */
static inline void sfi_gets_fragments(struct sfi_driver *t, uint64_t from, uint64_t until)
{
        for (uint64_t event = from; event < until; event++)
                sfi_gets_fragment(t, 0, event);
}

static inline void sfi_gets_whole(struct sfi_driver *t, uint64_t event)
{
        for (uint16_t ros = 0; ros < t->config.n_ros; ros++)
                assert_int_equal(sfi_gets_fragment(t, ros, event), SFI_STORE);
}

static inline const char *sfi_writes_with(struct sfi_driver *t, bool failed)
{
        struct sfi_built built;
        uint32_t slots[64];
        size_t n = sfi_pop_built(t->sfi, slots, ARRAY_SIZE(slots));

        trace_clear(&t->trace);
        for (size_t i = 0; i < n; i++) {
                sfi_built_event(t->sfi, slots[i], &built);
                trace_add(&t->trace, "%se%llu %s%s", i > 0 ? " | " : "", (unsigned long long)built.event,
                          trace_end(built.end), built.assigned_again ? " again" : "");
                t->voids += built.is_elsewhere;
                sfi_written(t->sfi, t->now_ns, slots[i], failed);
        }
        return t->trace.text;
}

/* Compares the built events, and then reports them as written. */
#define assert_sfi_writes(t, expected) assert_string_equal(sfi_writes_with(t, false), expected)

/* Creates the SFI and assigns `events` events. */
static inline void sfi_driver_start(struct sfi_driver *t, const struct sfi_config *config, uint64_t events)
{
        sfi_driver_init(t, config);
        sfi_gets_assigns(t, 0, events);
}

/* The requests that follow `after_ns` later, without Updates. */
static inline const char *requests_after(struct sfi_driver *t, uint64_t after_ns)
{
        struct message_to to;

        t->now_ns += after_ns;
        trace_clear(&t->trace);
        while (sfi_step(t->sfi, t->now_ns, &to, &t->message)) {
                if (t->message.header.type == MESSAGE_REQUEST)
                        trace_message(&t->trace, to, &t->message);
        }
        return t->trace.text;
}

#define assert_requests(t, after_ns, expected) assert_string_equal(requests_after(t, after_ns), expected)

static inline struct sfi_config sfi_pulling(void)
{
        struct sfi_config c = sfi_standard();

        c.pull = true;
        return c;
}

/* Pull by bytes: the switch port has 32 KiB and 1 Gbit/s. */
#define FRAME_BYTES 1408u
/* A frame with a part of one fragment at the port. */
#define WIRE_BYTES (FRAME_BYTES + 150u)
/* 32 KiB less two frames; an eighth of it. */
#define LIMIT_BYTES (32768u - 2 * WIRE_BYTES)
#define BATCH_BYTES (LIMIT_BYTES / 8)

static inline struct sfi_config by_bytes(void)
{
        struct sfi_config c = sfi_pulling();

        c.port_bytes = 32768;
        c.port_rate_bps = UINT64_C(1000000000);
        c.room_bytes = 8u << 20;
        c.retry_after_ns = 0;
        return c;
}

#define BACKLOG_TEST(name, events, ...)                                                                      \
        SFI_TEST_AS(name, by_bytes(), start_with_backlog(t, &c, events), ##__VA_ARGS__)

/* An SFI with many events to request, without the assertions of sfi_driver_init(). */
static inline void start_with_backlog(struct sfi_driver *t, struct sfi_config *c, uint64_t events)
{
        c->slots = 4096;
        c->credits = (uint32_t)events; /* none is free, so nothing is reserved for further Assigns */
        *t = (struct sfi_driver){.config = *c, .now_ns = TRACE_BEGIN_NS};
        assert_int_equal(sfi_new(&t->sfi, c, t->now_ns), 0);
        sfi_gets_welcome(t, TRACE_DFM, WELCOME_OK);
        sfi_gets_assigns(t, 0, events);
}
