/* Drives one ROS; the test acts as the DFM and the SFIs. Queued fragments appear as text. */
#pragma once

#include "core_trace.h"

#include "base/arena.h"
#include "core/ros.h"
#include "core/ros_regions.h"

struct ros_driver {
        struct ros *ros;
        struct ros_config config;
        uint64_t now_ns;
        uint32_t fragment_bytes; /* of fragments made on request */
        uint32_t clear_next, keep_alive_next, resets, reset_number;
        uint32_t client_resets; /* that level-2 clients know of */
        uint32_t keep_alive_flags;
        uint64_t dfm;    /* incarnation */
        uint64_t run;    /* its cookie is TRACE_COOKIE plus this */
        bool unread;     /* frames wait to be read */
        uint64_t frames; /* that came with a number, except those without room */
        struct message message;
        struct trace trace;
};

/* Tests of a ROS (core_trace.h): with any configuration and beginning, or with ros_standard(), and the ROS
 * has joined. */
#define ROS_TEST_EACH_AS(name, i, n, config, begin, ...)                                                     \
        CORE_TEST(ros, name, i, n, config, begin, ##__VA_ARGS__)
#define ROS_TEST_AS(name, config, begin, ...) CORE_TEST(ros, name, once, 1, config, begin, ##__VA_ARGS__)
#define ROS_TEST_EACH(name, i, n, ...)                                                                       \
        CORE_TEST(ros, name, i, n, ros_standard(), ros_driver_init(t, &c), ##__VA_ARGS__)
#define ROS_TEST(name, ...) ROS_TEST_EACH(name, once, 1, ##__VA_ARGS__)

static inline void driver_describe(void *ctx, uint64_t event, uint32_t l1_id, struct ros_fragment *ret)
{
        const struct ros_driver *t = ctx;

        assert_int_equal(l1_id, (uint32_t)event);
        *ret = (struct ros_fragment){.bytes = t->fragment_bytes, .order = 5};
}

static inline struct ros_config ros_standard(void)
{
        return (struct ros_config){
                .member = {.incarnation = 9, .retry_ns = 100 * NS_PER_MS},
                .index = 1,
                .n_sfi = 3,
                .entries = 10,
                .buffer_bytes = EVB_FRAGMENT_MAX_BYTES,
                .keep_alive_ns = 100 * NS_PER_MS,
                .describe = driver_describe,
                .wait_ns = 500 * NS_PER_MS,
        };
}

static inline const char *ros_says(struct ros_driver *t)
{
        struct message_to to;

        trace_clear(&t->trace);
        while (ros_step(t->ros, t->now_ns, &to, &t->message)) {
                assert_int_equal(t->message.header.sender_role, ROLE_ROS);
                assert_int_equal(t->message.header.sender_index, t->config.index);
                trace_message(&t->trace, to, &t->message);
        }
        return t->trace.text;
}

#define assert_ros_says(t, expected) assert_string_equal(ros_says(t), expected)
#define assert_ros_says_after(t, ns, expected) ((t)->now_ns += (ns), assert_ros_says(t, expected))

static inline bool to_ros(struct ros_driver *t, enum node_role role, uint16_t index, uint32_t type,
                          uint32_t transaction)
{
        trace_address(&t->message, t->dfm, role, index, type, transaction);
        t->message.header.cookie += t->run;
        return ros_receive(t->ros, t->now_ns, &t->message);
}

static inline void ros_gets_welcome(struct ros_driver *t, uint64_t dfm, enum welcome_verdict verdict)
{
        t->dfm = dfm;
        t->message.welcome.incarnation = t->config.member.incarnation;
        t->message.welcome.run = TRACE_RUN;
        t->message.welcome.verdict = verdict;
        assert_true(to_ros(t, ROLE_DFM, 0, MESSAGE_WELCOME, 0));
}

static inline void ros_driver_init(struct ros_driver *t, const struct ros_config *config)
{
        *t = (struct ros_driver){.config = *config, .now_ns = TRACE_BEGIN_NS, .fragment_bytes = 1000};
        t->config.describe_ctx = t;
        assert_int_equal(ros_new(&t->ros, &t->config, t->now_ns), 0);
        assert_ros_says(t, "dfm: Join");
        ros_gets_welcome(t, TRACE_DFM, WELCOME_OK);
        assert_ros_says(t, "dfm: Alive running");
}

/* Each frame and each request of a level-2 client is in one class. */
static inline void ros_driver_check(const struct ros_driver *t)
{
        const struct ros_counts *c = ros_counts(t->ros);

        if (t->config.number_period > 0)
                assert_int_equal(c->used + c->late + c->duplicate + c->impossible + c->dropped + c->left_over,
                                 t->frames);
        if (t->config.regions) {
                const struct ros_region_counts *r = ros_region_counts(t->ros);

                assert_int_equal(r->requests,
                                 r->sent + r->gone + r->absent + r->refused + r->dropped + r->open);
                assert_int_equal(c->fragments_sent, 0);
        }
}

static inline void ros_driver_fini(struct ros_driver *t)
{
        if (t->ros)
                ros_driver_check(t);
        t->ros = ros_free(t->ros);
}

static inline void ros_gets_assign(struct ros_driver *t, uint64_t event, uint16_t sfi, uint16_t flags)
{
        t->message.n = 1;
        t->message.assign.with_info = false;
        t->message.assign.announces = true;
        t->message.assign.resets = t->resets;
        t->message.assign.entries[0] =
                (struct assign_entry){.event = event, .l1_id = (uint32_t)event, .sfi = sfi, .flags = flags};
        assert_true(to_ros(t, ROLE_DFM, 0, MESSAGE_ASSIGN, 0));
}

/* For SFI 0. */
static inline void ros_gets_assigns(struct ros_driver *t, uint64_t from, uint64_t until)
{
        for (uint64_t event = from; event < until; event++)
                ros_gets_assign(t, event, 0, 0);
}

static inline void ros_gets_request_part(struct ros_driver *t, uint16_t sfi, uint64_t event, uint32_t from,
                                         uint32_t to, uint32_t again)
{
        t->message.n = 1;
        t->message.request.resets = t->resets;
        t->message.request.entries[0] = (struct request_entry){event, (uint32_t)event, from, to, again};
        assert_true(to_ros(t, ROLE_SFI, sfi, MESSAGE_REQUEST, 0));
}

static inline void ros_gets_request(struct ros_driver *t, uint16_t sfi, uint64_t event, uint32_t again)
{
        ros_gets_request_part(t, sfi, event, 0, UINT32_MAX, again);
}

static inline void ros_gets_clear(struct ros_driver *t, uint64_t event)
{
        t->message.n = 1;
        t->message.clear.oldest = 0;
        t->message.clear.with_l1_ids = false;
        t->message.clear.resets = 0;
        t->message.clear.events[0] = event;
        assert_true(to_ros(t, ROLE_DFM, 0, MESSAGE_CLEAR, t->clear_next++));
}

static inline void ros_gets_clears(struct ros_driver *t, uint64_t from, uint64_t until)
{
        for (uint64_t event = from; event < until; event++)
                ros_gets_clear(t, event);
}

static inline void ros_gets_keep_alive(struct ros_driver *t, enum run_state state, uint64_t oldest,
                                       uint64_t sfi_live)
{
        t->message.keep_alive.state = state;
        t->message.keep_alive.oldest = oldest;
        t->message.keep_alive.triggers = oldest;
        t->message.keep_alive.clear_next = t->clear_next;
        t->message.keep_alive.resets = t->resets;
        t->message.keep_alive.reset_number = t->reset_number;
        t->message.keep_alive.flags = t->keep_alive_flags;
        memset(t->message.keep_alive.sfi_live, 0, sizeof t->message.keep_alive.sfi_live);
        t->message.keep_alive.sfi_live[0] = sfi_live;
        assert_true(to_ros(t, ROLE_DFM, 0, MESSAGE_KEEP_ALIVE, t->keep_alive_next++));
        if (ros_reads_first(t->ros) <= 1)
                return;
        ros_set_reading(t->ros, t->unread);
        ros_expire(t->ros, t->now_ns);
}

/* Another DFM began another run, as it does not know of this one. */
static inline void ros_run_is_over(struct ros_driver *t)
{
        t->dfm = TRACE_DFM + 1;
        t->run = 1;
        t->keep_alive_next = 0;
        ros_gets_keep_alive(t, RUN_STARTING, 0, 1);
        t->now_ns += NS_PER_S;
        (void)ros_says(t); /* the ROS requests to join */
        ros_gets_welcome(t, TRACE_DFM + 1, WELCOME_OVER);
        t->dfm = TRACE_DFM;
        t->run = 0;
}

static inline void trace_job(struct trace *t, const struct ros_job *job)
{
        static const char *const statuses[] = {"", " none", " pending", " lost", " discarded", " truncated"};
        const struct chunk *c = &job->job.chunk;

        trace_add(t, "%se%llu", t->n > 0 ? " | " : "", (unsigned long long)c->event);
        if (job->at != ARENA_NONE)
                trace_add(t, "[%u,%u)", c->offset, job->job.to_bytes);
        trace_add(t, "%s%s", statuses[c->status], job->fill ? " fill" : "");
}

/* Lists the jobs for an SFI and then reports them as sent. */
static inline const char *ros_sends(struct ros_driver *t, uint32_t sfi)
{
        struct ros_job jobs[64];
        size_t n = ros_jobs(t->ros, sfi, jobs, ARRAY_SIZE(jobs));

        trace_clear(&t->trace);
        for (size_t i = 0; i < n; i++) {
                /* A fragment made on request is made once, before it is first sent. */
                trace_job(&t->trace, &jobs[i]);
                assert_true(jobs[i].at == ARENA_NONE ||
                            jobs[i].at + jobs[i].job.chunk.fragment_bytes <= t->config.buffer_bytes);
        }
        ros_sent(t->ros, sfi, n, 0);
        return t->trace.text;
}

#define assert_ros_sends(t, sfi, expected) assert_string_equal(ros_sends(t, sfi), expected)
