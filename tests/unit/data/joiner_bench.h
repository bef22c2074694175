/* A joiner with the core of a ROS, to which a test sends frames and messages; without any clock or socket. */
#pragma once

#include <ctype.h>

#include "../test.h"

#include "data/joiner.h"

#define BUFFER_BYTES (16u << 20)
#define COOKIE UINT64_C(0xC00C1E)
#define WITHIN_NS NS_PER_MS
#define STOP_NS (4 * WITHIN_NS)
#define FRAMES_MAX 1000
#define ENTRIES 1024

static struct {
        struct joiner *joiner;
        struct ros *core;
        uint8_t *buffer;
        uint64_t now_ns, frames, events;
        uint32_t keep_alives;
        unsigned bits;
        uint8_t field;  /* of frames without a flag */
        uint32_t bytes; /* of a frame; 0: 8 */
} b;

static inline int teardown(void **state)
{
        joiner_free(b.joiner);
        ros_free(b.core);
        free(b.buffer);
        return 0;
}

/* Gives the core a message of this run. */
static inline void receive(enum node_role role, uint32_t type, uint32_t transaction, struct message *m)
{
        m->header = (struct message_header){
                .cookie = COOKIE, .sender_role = role, .type = type, .transaction = transaction};
        m->dfm = role == ROLE_DFM;
        assert_true(ros_receive(b.core, b.now_ns, m));
}

/* A frame: its number in `bits`, its index in 8 bits at byte 4, a count or flag in 8 bits at byte 5, and its
 * content in the last byte. */
static inline void begin(const char *fragments, unsigned bits, struct joiner_config config)
{
        struct ros_config c = {.member = {.incarnation = 9, .retry_ns = NS_PER_S},
                               .n_sfi = 1,
                               .entries = ENTRIES,
                               .expected_max = 2 * ENTRIES,
                               .buffer_bytes = BUFFER_BYTES,
                               .number_period = number_period(bits)};
        static struct message m;
        struct message_to to;

        teardown(NULL);
        b = (typeof(b)){.now_ns = NS_PER_S, .buffer = malloc(BUFFER_BYTES), .bits = bits};
        assert_null(join_rule_parse(&config.rule, fragments));
        config.rule.within_ns = WITHIN_NS;
        config.stop_ns = STOP_NS;
        config.number.bits = bits;
        config.frames_max = FRAMES_MAX;
        config.buffer_bytes = 8u << 20;
        assert_int_equal(ros_new(&b.core, &c, b.now_ns), 0);
        assert_int_equal(joiner_new(&b.joiner, &config), 0);
        assert_true(ros_step(b.core, b.now_ns, &to, &m));
        m = (struct message){.welcome = {.incarnation = 9, .run = 1}};
        receive(ROLE_DFM, MESSAGE_WELCOME, 0, &m);
}

/* Each frame is in one class. */
static inline void end(void)
{
        const struct joiner_counts *c = joiner_counts(b.joiner);
        const struct ros_slice_counts *passed = &ros_counts(b.core)->slices;

        assert_int_equal(c->frames, b.frames);
        assert_fields(c, frames,
                      c->passed + c->repeated + c->beyond + c->large + c->no_room + c->left_over + c->waiting,
                      passed, passed->used + passed->late + passed->dropped + passed->left_over);
}

/* A test of a board whose numbers have so many bits and whose frames are joined by `rule`, with these fields
 * of the joiner's configuration; and the same for `n` cases. */
#define JOIN_TEST_EACH(name, i, n, rule, bits, ...)                                                          \
        TEST_EACH_BETWEEN(name, i, n, begin(rule, bits, (struct joiner_config){__VA_ARGS__}), end())
#define JOIN_TEST(name, rule, bits, ...) JOIN_TEST_EACH(name, once, 1, rule, bits, ##__VA_ARGS__)

static inline enum ros_verdict sends(uint64_t number, uint8_t index, uint8_t field, uint8_t content)
{
        uint64_t counter = b.bits < 64 ? number & ((UINT64_C(1) << b.bits) - 1) : number;
        uint8_t frame[8] = {[4] = index, [5] = field, [7] = content}, *to;
        enum ros_verdict verdict =
                joiner_arrive(b.joiner, &counter, frame, sizeof frame, b.bytes ?: sizeof frame, &to);

        if (verdict == ROS_STORE)
                memcpy(to, frame, sizeof frame);
        if (verdict == ROS_FULL)
                return verdict;
        joiner_commit(b.joiner, b.now_ns);
        b.frames++;
        return verdict;
}

/* Sends frames of this trigger. A letter is a frame's content; its place in the alphabet is the index, and a
 * capital letter has the flag. */
static inline void send_all(uint64_t number, const char *letters)
{
        for (; *letters; letters++) {
                int content = tolower(*letters);

                assert_int_equal(sends(number, (uint8_t)(content - 'a'), isupper(*letters) ? 1 : b.field,
                                       (uint8_t)content),
                                 ROS_STORE);
        }
}

/* The next frame of this trigger begins. */
static inline enum ros_verdict frame_begins(uint64_t number)
{
        uint8_t frame[8] = {}, *to;

        return joiner_arrive(b.joiner, &number, frame, sizeof frame, sizeof frame, &to);
}

static inline void frame_ends(void)
{
        joiner_commit(b.joiner, b.now_ns);
        b.frames++;
}

static inline void frame_breaks(void)
{
        joiner_skip(b.joiner, b.core);
        b.frames++;
}

static inline void finds_no_room(uint64_t number)
{
        assert_int_equal(sends(number, 0, 0, 'x'), ROS_FULL);
        frame_breaks();
}

/* `idle` and `full` as in joiner_deliver(). */
static inline void delivers_with(bool idle, bool full, uint64_t n)
{
        assert_int_equal(joiner_deliver(b.joiner, b.now_ns, idle, full, b.core, b.buffer), n);
}

static inline void delivers(uint64_t n)
{
        delivers_with(true, false, n);
}

static inline void delivers_after(uint64_t ns, uint64_t n)
{
        b.now_ns += ns;
        delivers(n);
}

/* Returns the fragment of this trigger, which has so many frames. */
static inline const uint8_t *requests(uint64_t number, uint8_t status, size_t n)
{
        static struct message m;
        struct ros_job job;

        m = (struct message){.n = 1};
        m.request.entries[0] =
                (struct request_entry){.event = b.events, .l1_id = (uint32_t)number, .to_bytes = UINT32_MAX};
        receive(ROLE_SFI, MESSAGE_REQUEST, 0, &m);
        assert_int_equal(ros_jobs(b.core, 0, &job, 1), 1);
        assert_fields(&job.job.chunk, status, status, fragment_bytes, 12 * n);
        return b.buffer + job.at;
}

static inline void clears(void)
{
        static struct message m;

        ros_sent(b.core, 0, 1, 0);
        m = (struct message){.n = 1};
        m.clear.events[0] = b.events++;
        receive(ROLE_DFM, MESSAGE_CLEAR, 0, &m);
}

/* The event of this trigger has these frames, in this order; then it ends. */
static inline void builds(uint64_t number, uint8_t status, const char *contents)
{
        const uint8_t *at = requests(number, status, strlen(contents));

        for (size_t i = 0; contents[i]; i++, at += 12) {
                assert_memory_equal(at, "\x08\0\0\0", 4);
                assert_int_equal(at[11], contents[i]);
        }
        clears();
}

/* One fragment is due, which is complete. */
static inline void gives(uint64_t number, const char *contents)
{
        delivers(1);
        builds(number, FRAGMENT_OK, contents);
}

/* All events so far have ended. */
static inline void follows(enum run_state state, uint32_t resets)
{
        static struct message m;

        m = (struct message){};
        m.keep_alive.oldest = m.keep_alive.triggers = b.events;
        m.keep_alive.state = state;
        m.keep_alive.resets = resets;
        receive(ROLE_DFM, MESSAGE_KEEP_ALIVE, b.keep_alives++, &m);
        if (ros_reads_first(b.core) <= 1)
                return;
        ros_set_reading(b.core, false);
        ros_expire(b.core, b.now_ns);
}

static inline bool has_reason(const char *text)
{
        struct reasons reasons = {};

        joiner_reasons(b.joiner, b.core, &reasons);
        for (size_t i = 0; i < MIN(reasons.n, (size_t)REASONS_MAX); i++) {
                if (strstr(reasons.text[i], text))
                        return true;
        }
        return false;
}
