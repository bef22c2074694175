/* Frames with the number of one trigger become one fragment, whose end a newer number, a count, a flag or a
 * time shows; without any clock or socket. */
#include "../test.h"

#include <ctype.h>

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

static int teardown(void **state)
{
        joiner_free(b.joiner);
        ros_free(b.core);
        free(b.buffer);
        return 0;
}

/* Gives the core a message of this run. */
static void receive(enum node_role role, uint32_t type, uint32_t transaction, struct message *m)
{
        m->header = (struct message_header){
                .cookie = COOKIE, .sender_role = role, .type = type, .transaction = transaction};
        m->dfm = role == ROLE_DFM;
        assert_true(ros_receive(b.core, b.now_ns, m));
}

/* A frame: its number in `bits`, its index in 8 bits at byte 4, a count or flag in 8 bits at byte 5, and its
 * content in the last byte. */
static void begin(const char *fragments, unsigned bits, struct joiner_config config)
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
static void end(void)
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

static enum ros_verdict sends(uint64_t number, uint8_t index, uint8_t field, uint8_t content)
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
static void send_all(uint64_t number, const char *letters)
{
        for (; *letters; letters++) {
                int content = tolower(*letters);

                assert_int_equal(sends(number, (uint8_t)(content - 'a'), isupper(*letters) ? 1 : b.field,
                                       (uint8_t)content),
                                 ROS_STORE);
        }
}

/* Sends frames of trigger 0, which are index, field and content of each. */
static void send_coded(const char *frames)
{
        for (const char *f = frames; *f; f += 3)
                sends(0, (uint8_t)(f[0] - '0'), (uint8_t)(f[1] - '0'), (uint8_t)f[2]);
}

/* The next frame of this trigger begins. */
static enum ros_verdict frame_begins(uint64_t number)
{
        uint8_t frame[8] = {}, *to;

        return joiner_arrive(b.joiner, &number, frame, sizeof frame, sizeof frame, &to);
}

static void frame_ends(void)
{
        joiner_commit(b.joiner, b.now_ns);
        b.frames++;
}

static void frame_breaks(void)
{
        joiner_skip(b.joiner, b.core);
        b.frames++;
}

static void finds_no_room(uint64_t number)
{
        assert_int_equal(sends(number, 0, 0, 'x'), ROS_FULL);
        frame_breaks();
}

/* `idle` and `full` as in joiner_deliver(). */
static void delivers_with(bool idle, bool full, uint64_t n)
{
        assert_int_equal(joiner_deliver(b.joiner, b.now_ns, idle, full, b.core, b.buffer), n);
}

static void delivers(uint64_t n)
{
        delivers_with(true, false, n);
}

static void delivers_after(uint64_t ns, uint64_t n)
{
        b.now_ns += ns;
        delivers(n);
}

/* Returns the fragment of this trigger, which has so many frames. */
static const uint8_t *requests(uint64_t number, uint8_t status, size_t n)
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

static void clears(void)
{
        static struct message m;

        ros_sent(b.core, 0, 1, 0);
        m = (struct message){.n = 1};
        m.clear.events[0] = b.events++;
        receive(ROLE_DFM, MESSAGE_CLEAR, 0, &m);
}

/* The event of this trigger has these frames, in this order; then it ends. */
static void builds(uint64_t number, uint8_t status, const char *contents)
{
        const uint8_t *at = requests(number, status, strlen(contents));

        for (size_t i = 0; contents[i]; i++, at += 12) {
                assert_memory_equal(at, "\x08\0\0\0", 4);
                assert_int_equal(at[11], contents[i]);
        }
        clears();
}

/* One fragment is due, which is complete. */
static void gives(uint64_t number, const char *contents)
{
        delivers(1);
        builds(number, FRAGMENT_OK, contents);
}

/* All events so far have ended. */
static void follows(enum run_state state, uint32_t resets)
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

static bool has_reason(const char *text)
{
        struct reasons reasons = {};

        joiner_reasons(b.joiner, b.core, &reasons);
        for (size_t i = 0; i < MIN(reasons.n, (size_t)REASONS_MAX); i++) {
                if (strstr(reasons.text[i], text))
                        return true;
        }
        return false;
}

/* A frame that comes after a newer number had ended its fragment does not end the newer one. */
JOIN_TEST(a_newer_number_ends_a_fragment, "join", 32)
{
        send_all(0, "ab");
        delivers(0);
        send_all(1, "c");
        gives(0, "ab");
        send_all(0, "x");
        send_all(1, "d");
        send_all(2, "e");
        delivers(2);
        builds(1, FRAGMENT_OK, "cd");
        assert_int_equal(joiner_deadline_ns(b.joiner), b.now_ns + WITHIN_NS);
        b.now_ns += WITHIN_NS;
        delivers_with(false, false, 0);
        gives(2, "e");
        assert_fields(ros_counts(b.core), used, 3, duplicate, 1, incomplete, 0, slices.used, 5,
                      slices.dropped, 1);
}

static const unsigned widths[] = {3, 5, 16, 33, 64};

/* Counters of all widths start over. */
JOIN_TEST_EACH(numbers_start_over, w, ARRAY_SIZE(widths), "join", widths[w])
{
        send_all(0, "ab");
        delivers(0);
        for (uint64_t k = 1; k < 40; k++) {
                send_all(k, "ab");
                gives(k - 1, "ab");
        }
        assert_fields(ros_counts(b.core), used, 39, duplicate, 0, impossible, 0);
}

static const char *const counts[] = {"join count 3 index 4:8", "join count 5:8 index 4:8"};

/* Frames of several triggers come in any order. */
JOIN_TEST_EACH(a_count_ends_a_fragment, i, ARRAY_SIZE(counts), counts[i], 16)
{
        b.field = 3;
        send_all(0, "c");
        send_all(1, "a");
        send_all(0, "a");
        send_all(1, "b");
        assert_int_equal(sends(0, 2, 3, 'x'), ROS_DISCARD);
        delivers(0);
        send_all(0, "b");
        send_all(1, "c");
        send_all(2, "a");
        delivers(2);
        builds(0, FRAGMENT_OK, "abc");
        builds(1, FRAGMENT_OK, "abc");
        assert_int_equal(joiner_counts(b.joiner)->repeated, 1);
        assert_true(has_reason("the index of an earlier one"));
        assert_false(has_reason("lack some of their frames"));
}

/* It is in no fragment, and takes the place of no frame. */
JOIN_TEST_EACH(a_frame_whose_index_is_not_below_the_count_is_dropped, i, ARRAY_SIZE(counts), counts[i], 16)
{
        b.field = 3;
        assert_int_equal(sends(0, 3, 3, 'x'), ROS_DISCARD);
        send_all(0, "abc");
        gives(0, "abc");
        send_all(1, "ab");
        assert_int_equal(sends(1, 200, 3, 'x'), ROS_DISCARD);
        assert_int_equal(sends(2, 4, 3, 'x'), ROS_DISCARD);
        delivers(0);
        delivers_after(WITHIN_NS, 2);
        builds(1, FRAGMENT_TRUNCATED, "ab");
        builds(2, FRAGMENT_TRUNCATED, "");
        assert_int_equal(joiner_counts(b.joiner)->beyond, 3);
        assert_true(has_reason("not below the count of frames, and are in no event: 3, the last one with "
                               "index 4"));
}

/* For some time, and unless there is no room. */
JOIN_TEST(a_fragment_waits_for_older_ones, "join count 2", 16, .order_ns = WITHIN_NS / 2)
{
        for (uint64_t k = 0; k < 6; k += 2) {
                send_all(k, "a");
                send_all(k + 1, "ab");
                delivers(0);
                assert_int_equal(joiner_deadline_ns(b.joiner), b.now_ns + WITHIN_NS / 2);
                if (k == 2)
                        delivers_after(WITHIN_NS / 2, 1);
                else if (k == 4)
                        delivers_with(true, true, 1);
                send_all(k, "b");
                delivers(k == 0 ? 2 : 1);
        }
        builds(0, FRAGMENT_OK, "ab");
        builds(1, FRAGMENT_OK, "ab");
}

static const char *const narrow[] = {"join count 2", "join last 5:1 index 4:8"};

/* A counter that starts over within the time for which a fragment waits: frames of different triggers are
 * never joined, and fragments stay in order. */
JOIN_TEST_EACH(an_incomplete_fragment_takes_no_frame_of_a_later_trigger, i, ARRAY_SIZE(narrow), narrow[i], 3)
{
        for (uint64_t k = 0; k < 24; k++) {
                send_all(k, k % 8 == 2 ? "a" : "aB");
                delivers(k % 8 == 4 ? 3 : k % 8 == 2 || k % 8 == 3 ? 0 : 1);
                if (k % 8 == 4) {
                        builds(k - 2, FRAGMENT_TRUNCATED, "a");
                        builds(k - 1, FRAGMENT_OK, "ab");
                }
                if (k % 8 != 2 && k % 8 != 3)
                        builds(k, FRAGMENT_OK, "ab");
        }
        assert_fields(ros_counts(b.core), used, 24, duplicate, 0, impossible, 0, late, 0, incomplete, 3);
}

/* ... also if it is wide, and the board missed many triggers. */
JOIN_TEST(a_fragment_ends_before_its_number_comes_again, "join count 2", 16)
{
        send_all(5, "a");
        send_all(5 + 20000, "bb");
        send_all(5 + 40000, "cc");
        send_all(5 + 65536, "d");
        delivers_with(false, false, 3);
        assert_fields(joiner_counts(b.joiner), passed, 5, waiting, 1);
}

static const char *const rules[] = {"join", "join count 2"};

/* ... also if the board missed more than half of all values. */
JOIN_TEST_EACH(a_fragment_ends_if_most_numbers_are_missed, i, ARRAY_SIZE(rules), rules[i], 16)
{
        send_all(5, "a");
        send_all(5 + 45000, "b");
        send_all(5 + 65536, "c");
        delivers_with(false, false, 2);
}

/* A board whose data never end: a fragment waits for its frames as long as frames are read, but times in
 * which none is read end no fragment. */
JOIN_TEST(a_fragment_of_a_busy_board_ends, "join count 2", 32)
{
        send_all(0, "a");
        for (uint64_t k = 1; k <= 8; k++) {
                b.now_ns += k == 3 ? 100 * WITHIN_NS : WITHIN_NS / 8;
                send_all(k, "ab");
                delivers_with(false, false, 1 + (k == 8));
        }
        builds(0, FRAGMENT_TRUNCATED, "a");
        builds(1, FRAGMENT_OK, "ab");
}

/* Nor do times in which a frame finds no room. */
JOIN_TEST(frames_without_room_end_no_fragment, "join count 500", 32)
{
        send_all(0, "a");
        for (uint64_t k = 1; k < FRAMES_MAX; k++)
                send_all(1 + k % 4, "a");
        for (uint64_t k = 0; k < 20; k++) {
                b.now_ns += WITHIN_NS / 8;
                assert_int_equal(sends(0, 0, 0, 'x'), ROS_FULL);
                delivers_with(false, false, 0);
        }
}

/* Frames that are visibly missing, or that contradict each other. */
static const struct {
        const char *rule, *frames;
        uint8_t status;
} gaps[] = {
        {"join index 4:8", "10b00a20c", FRAGMENT_OK},
        {"join index 4:8", "00a20c", FRAGMENT_TRUNCATED},
        {"join index 4:8", "10b20c", FRAGMENT_TRUNCATED},
        {"join demux 5:4 index 4:8", "02c01a12d11b", FRAGMENT_OK},
        {"join demux 5:4 index 4:8", "01a11b12d", FRAGMENT_TRUNCATED},
        {"join demux 5:4 index 4:8", "01a21b02d", FRAGMENT_TRUNCATED},
        {"join count 5:4", "02a02b", FRAGMENT_OK},
        {"join count 5:4", "03a02b", FRAGMENT_TRUNCATED},
        {"join count 5:4", "03a02b03c", FRAGMENT_TRUNCATED},
        {"join last 5:1 index 4:8", "21c00a10b", FRAGMENT_OK},
        {"join last 5:1 index 4:8", "00a30d21c", FRAGMENT_TRUNCATED},
        {"join last 5:1 index 4:8", "31d21c", FRAGMENT_TRUNCATED},
};

JOIN_TEST_EACH(a_fragment_with_gaps_or_contradictions_is_incomplete, i, ARRAY_SIZE(gaps), gaps[i].rule, 16)
{
        send_coded(gaps[i].frames);
        delivers_after(WITHIN_NS, 1);
        requests(0, gaps[i].status, strlen(gaps[i].frames) / 3);
}

/* The frames of each board of a stream are adjacent, in the order of arrival or of their index. */
JOIN_TEST(frames_are_ordered_by_their_boards, "join count 4 demux 5:4", 16)
{
        send_coded("02c01a02d01b");
        gives(0, "abcd");
}

JOIN_TEST(frames_of_a_board_are_ordered_by_their_index, "join count 4 demux 5:4 index 4:8", 16)
{
        send_coded("12d11b02c");
        assert_int_equal(sends(0, 0, 2, 'x'), ROS_DISCARD);
        send_coded("01a");
        gives(0, "abcd");
}

/* Whatever the order of arrival, the work for each frame is limited. */
static const struct {
        const char *rule;
        unsigned first, step; /* of the places, modulo their number */
} orders[] = {
        {"join count 800 demux 5:4 index 4:8", 799, 799}, /* descending */
        {"join count 800 demux 5:4 index 4:8", 0, 200},   /* a frame of each board in turn */
        {"join count 800 demux 5:4", 0, 200},
        {"join count 800 demux 5:4 index 4:8", 7, 389},
};

JOIN_TEST_EACH(many_frames_are_put_in_order, k, ARRAY_SIZE(orders), orders[k].rule, 16)
{
        enum { BOARDS = 4, EACH = 200, ALL = BOARDS * EACH };
        bool has_index = strstr(orders[k].rule, "index");
        const uint8_t *at;

        for (unsigned i = 0, at_place = orders[k].first; i < ALL; i++) {
                uint8_t index = (uint8_t)(at_place % EACH), board = (uint8_t)(at_place / EACH);

                assert_int_equal(sends(0, index, board, 'a'), ROS_STORE);
                if (has_index && i % 100 == 50)
                        assert_int_equal(sends(0, index, board, 'x'), ROS_DISCARD);
                at_place = (at_place + orders[k].step) % ALL;
                /* The step to the next frame of each board. */
                at_place += orders[k].step == EACH && i % BOARDS == BOARDS - 1;
        }
        delivers(1);
        at = requests(0, FRAGMENT_OK, ALL);
        for (unsigned i = 0; i < ALL; i++, at += 12)
                assert_true(at[8] == i % EACH && at[9] == i / EACH && at[11] == 'a');
        clears();
        assert_in_range(joiner_counts(b.joiner)->compared, 1, 4 * (12 + 1) * b.frames);
}

/* With an index, the last frame shows how many there are. */
JOIN_TEST(a_flag_with_an_index_ends_a_fragment, "join last 5:1 index 4:8", 16)
{
        send_all(0, "B");
        delivers(0);
        send_all(0, "a");
        gives(0, "ab");
}

JOIN_TEST(a_flag_ends_a_fragment, "join last 5:1", 16)
{
        send_all(0, "bA");
        gives(0, "ba");
}

/* It is in its event, with a status, and named. A fragment of no event is not. */
JOIN_TEST(a_missing_frame_makes_a_fragment_incomplete, "join count 2", 16)
{
        send_all(0, "a");
        send_all(1, "ab");
        delivers(1);
        delivers_after(WITHIN_NS, 1);
        assert_false(has_reason("lack some of their frames"));
        /* The core uses a number that is not newer than all others once a newer one follows. */
        send_all(2, "ab");
        delivers(1);
        builds(0, FRAGMENT_TRUNCATED, "a");
        builds(1, FRAGMENT_OK, "ab");
        send_all(0, "b");
        delivers_after(WITHIN_NS, 1);
        assert_fields(ros_counts(b.core), incomplete, 1, duplicate, 1, used, 2);
        assert_true(has_reason("lack some of their frames: 1, the last one with number 0"));
}

JOIN_TEST(a_fragment_has_a_maximum_size, "join", 16, .fragment_max_bytes = 30)
{
        send_all(0, "ab");
        assert_int_equal(sends(0, 0, 0, 'c'), ROS_DISCARD);
        send_all(1, "a");
        delivers(1);
        builds(0, FRAGMENT_TRUNCATED, "ab");
        assert_fields(ros_counts(b.core), incomplete, 1, used, 1);
        assert_int_equal(joiner_counts(b.joiner)->large, 1);
        assert_true(has_reason("larger than 30 bytes, and are in no event: 1"));
}

/* A frame that broke off, and one that is too short for a number. */
JOIN_TEST(broken_and_short_frames_are_counted, "join", 16)
{
        uint8_t frame[1] = {}, *to;

        assert_int_equal(joiner_arrive(b.joiner, NULL, frame, 1, 1, &to), ROS_STORE);
        frame_ends();
        delivers(1);
        assert_int_equal(ros_counts(b.core)->impossible, 1);
        assert_int_equal(frame_begins(0), ROS_STORE);
        delivers(0);
        frame_breaks();
        send_all(0, "b");
        send_all(1, "a");
        delivers(1);
        builds(0, FRAGMENT_TRUNCATED, "b");
        assert_int_equal(joiner_counts(b.joiner)->no_room, 1);
}

/* Its fragment has this frame already. */
JOIN_TEST(a_broken_frame_may_be_a_repeated_one, "join count 2 index 4:8", 16)
{
        send_all(0, "a");
        assert_int_equal(frame_begins(0), ROS_DISCARD);
        frame_breaks();
        send_all(0, "b");
        gives(0, "ab");
}

/* The fragment of a frame without room lacks it, whether the fragment has begun or not. */
JOIN_TEST(a_frame_without_room_makes_its_fragment_incomplete, "join", 16)
{
        for (size_t i = 0; i < FRAMES_MAX - 1; i++)
                send_all(0, "a");
        send_all(1, "b");
        finds_no_room(1);
        finds_no_room(2);
        delivers(2);
        send_all(2, "d");
        send_all(3, "e");
        delivers(1);
        send_all(4, "f");
        delivers(1);
        b.events++;
        builds(1, FRAGMENT_TRUNCATED, "b");
        builds(2, FRAGMENT_TRUNCATED, "d");
        builds(3, FRAGMENT_OK, "e");
        assert_int_equal(joiner_counts(b.joiner)->no_room, 2);
}

/* ... also if several fragments had not begun, and in a stop, whose last triggers the ROS may not know yet. A
 * fragment with the same number, but of a later period of the counter, does not lack the frame. */
JOIN_TEST_EACH(each_fragment_that_lost_its_first_frame_is_incomplete, stop, 2, "join last 5:1", 8)
{
        for (size_t i = 0; i < FRAMES_MAX; i++)
                send_all(0, i < FRAMES_MAX - 1 ? "a" : "A");
        if (stop)
                follows(RUN_DRAINING, 0);
        for (uint64_t n = 1; n < 9; n++)
                finds_no_room(n);
        delivers(1);
        b.events++;
        for (uint64_t n = 1; n < 6; n++)
                send_all(n, "B");
        delivers(5);
        for (uint64_t n = 1; n < 6; n++)
                builds(n, FRAGMENT_TRUNCATED, "b");
        assert_true(has_reason("lack some of their frames: 5"));
        for (uint64_t n = b.events = 9; n < 256 + 9; n++) {
                send_all(n, "B");
                gives(n, "b");
        }
}

/* If too many fragments wait for frames, the oldest one ends. */
JOIN_TEST(open_fragments_are_limited, "join count 2", 16)
{
        uint64_t n = 0;

        while (sends(n, 0, 0, 'a') == ROS_STORE)
                n++;
        assert_true(n >= 16 && n < 1000);
        delivers_with(false, true, 1);
        send_all(n, "a");
        builds(0, FRAGMENT_TRUNCATED, "a");
}

/* An SFI requests the event of this trigger, and its frames come as datagrams. Returns the number of
 * fragments passed or dropped. */
static uint64_t arrives_in_datagrams(uint64_t number, int frames)
{
        static struct message m;
        uint64_t n = 0;

        m = (struct message){.n = 1};
        m.request.entries[0] =
                (struct request_entry){.event = number, .l1_id = (uint32_t)number, .to_bytes = UINT32_MAX};
        receive(ROLE_SFI, MESSAGE_REQUEST, 0, &m);
        for (int i = 0; i < frames; i++) {
                if (sends(number, 0, 0, (uint8_t)number) != ROS_FULL)
                        continue;
                n += joiner_deliver(b.joiner, b.now_ns, true, true, b.core, b.buffer);
                if (sends(number, 0, 0, (uint8_t)number) == ROS_FULL)
                        frame_breaks();
        }
        return n + joiner_deliver(b.joiner, b.now_ns, true, false, b.core, b.buffer);
}

/* The events so far end. Each of their fragments has the frames of its trigger. */
static void builds_and_clears_all(uint64_t *next, uint64_t end)
{
        static struct message m;
        struct ros_job job;

        while (ros_jobs(b.core, 0, &job, 1) == 1) {
                if (job.job.chunk.status == FRAGMENT_OK)
                        assert_int_equal(b.buffer[job.at + 11], (uint8_t)job.job.chunk.l1_id);
                ros_sent(b.core, 0, 1, 0);
        }
        for (; *next < end; ++*next) {
                m = (struct message){.n = 1};
                m.clear.events[0] = *next;
                receive(ROLE_DFM, MESSAGE_CLEAR, (uint32_t)*next, &m);
        }
}

/* Neither the core nor the joiner has room for more than a period of the counter. */
JOIN_TEST(later_fragments_are_in_their_events_after_a_lack_of_room, "join count 2", 5, .datagrams = true)
{
        uint64_t full = ENTRIES + 64, k = 0, passed = 0, cleared = 0;

        for (; k < full + 46 + 100; k++) {
                passed += arrives_in_datagrams(k, 2);
                if (k + 1 >= full + 46)
                        builds_and_clears_all(&cleared, ENTRIES);
        }
        builds_and_clears_all(&cleared, k);
        assert_int_equal(passed, k);
        assert_int_equal(joiner_counts(b.joiner)->no_room, 2 * 46);
        assert_fields(ros_counts(b.core), dropped, 46, used, k - 46, duplicate, 0, impossible, 0);
}

/* A large frame needs the room of several fragments, more than three quarters of a period of the counter. */
JOIN_TEST(fragments_give_way_to_larger_frames, "join count 4", 3, .datagrams = true)
{
        uint64_t k = 0, passed = 0, cleared = 0, large = ENTRIES + 30;

        for (; k < large + 160; k++) {
                b.bytes = k >= large && k < large + 60 ? 65000 : 0;
                passed += arrives_in_datagrams(k, 4);
                if (k >= large + 60)
                        builds_and_clears_all(&cleared, ENTRIES);
        }
        builds_and_clears_all(&cleared, k);
        assert_int_equal(passed, k);
        assert_int_equal(ros_counts(b.core)->used + ros_counts(b.core)->dropped, k);
        assert_int_equal(joiner_counts(b.joiner)->no_room, 4 * ros_counts(b.core)->dropped);
        assert_fields(ros_counts(b.core), duplicate, 0, impossible, 0, incomplete, 0);
}

static const struct {
        const char *fragments;
        bool cut, passes; /* whether its first frame came before; whether it becomes an event */
} firsts[] = {{"join", false, false},
              {"join", true, false},
              {"join index 4:8", false, true},
              {"join index 4:8", true, false},
              {"join count 3", false, true},
              {"join count 3", true, false},
              {"join last 5:8", false, false},
              {"join last 5:8", true, false},
              {"join last 5:8 index 4:8", false, true},
              {"join last 5:8 index 4:8", true, false}};

/* The board sends on when a run begins: it may have sent earlier frames of the first trigger before. */
JOIN_TEST_EACH(the_first_fragment_of_a_run_is_whole_or_left_over, i, ARRAY_SIZE(firsts), firsts[i].fragments,
               32, .begins_within = true)
{
        bool cut = firsts[i].cut, passes = firsts[i].passes;

        for (uint64_t n = 7; n < 10; n++)
                send_all(n, n == 7 && cut ? "bC" : "abC");
        delivers_after(WITHIN_NS, passes ? 3 : 2);
        assert_int_equal(joiner_counts(b.joiner)->left_over, passes ? 0 : cut ? 2 : 3);
        for (uint64_t n = passes ? 7 : 8; n < 10; n++)
                builds(n, 0, "abc");
        assert_int_equal(ros_counts(b.core)->incomplete, 0);
}

JOIN_TEST(repeated_frames_do_not_keep_a_fragment_open, "join count 2 index 4:8", 16)
{
        for (size_t i = 0; i < 4; i++) {
                sends(0, 0, 0, 'a');
                delivers(i == 2);
                b.now_ns += WITHIN_NS / 2;
        }
        send_all(1, "ab");
        delivers(1);
        builds(0, FRAGMENT_TRUNCATED, "a");
        assert_int_equal(joiner_counts(b.joiner)->repeated, 2);
}

static void stops(void)
{
        follows(RUN_DRAINING, 0);
}

/* The board sends when the ROS connects to it. A trigger box sends only when the run has begun. */
JOIN_TEST_EACH(the_first_fragment_is_whole_or_left_over, i, 8, "join", 32, .leads = i & 1, .first_number = 7)
{
        bool leads = i & 1, running = i & 2, first = i & 4, passes = first || (running && !leads);

        if (running)
                follows(RUN_RUNNING, 0);
        for (uint64_t n = first ? 7 : 8; n < 10; n++) {
                for (uint8_t k = 0; k < 2; k++) {
                        joiner_begin_early(b.joiner, b.core);
                        send_all(n, k == 0 ? "a" : "b");
                }
        }
        delivers_after(WITHIN_NS, passes ? 2 + first : 1);
        assert_int_equal(joiner_counts(b.joiner)->left_over, passes ? 0 : 2);
        for (uint64_t n = passes ? first ? 7 : 8 : 9; n < 10; n++)
                builds(n, 0, "ab");
}

/* Also if the last one is still arriving. */
JOIN_TEST_EACH(frames_from_before_a_reset_are_in_no_event, arriving, 2, "join count 2", 16)
{
        follows(RUN_RUNNING, 1);
        for (uint64_t k = 0; k < 2; k++) {
                send_all(k, "ab");
                gives(k, "ab");
        }
        send_all(0, "x");
        if (arriving)
                assert_int_equal(frame_begins(1), ROS_STORE);
        follows(RUN_RUNNING, 2);
        delivers(0);
        if (arriving)
                frame_ends();
        delivers(0);
        assert_int_equal(joiner_counts(b.joiner)->left_over, 1 + arriving);
        for (uint64_t k = 0; k < 2; k++) {
                send_all(k, "cd");
                gives(k, "cd");
        }
        assert_fields(ros_counts(b.core), used, 4, duplicate, 0, impossible, 0, late, 0);
}

/* The board sends on after the last trigger: what finds no room then is in no event, and nothing is lost. */
JOIN_TEST(frames_without_room_after_the_last_trigger_are_left_over, "join", 16)
{
        send_all(0, "a");
        send_all(1, "a");
        gives(0, "a");
        stops();
        for (size_t i = 0; i < FRAMES_MAX - 1; i++)
                send_all(1, "a");
        finds_no_room(1);
        assert_false(has_reason("did not fit"));
        assert_int_equal(joiner_counts(b.joiner)->left_over, 1);
        /* The event of trigger 0 lacks this one. */
        finds_no_room(0);
        assert_true(has_reason("did not fit into ros.buffer-size, and are in no event: 1"));
}

/* Fragments that began before a stop end, also if the board sends on; later ones are not waited for. */
JOIN_TEST(fragments_that_began_before_a_stop_end, "join count 3", 16)
{
        assert_false(joiner_is_collecting(b.joiner));
        send_all(0, "a");
        /* Also while the next frame of the fragment arrives. */
        assert_int_equal(frame_begins(0), ROS_STORE);
        assert_true(joiner_is_collecting(b.joiner));
        frame_ends();
        stops();
        delivers_with(false, false, 0);
        for (uint64_t k = 1; k <= 8; k++) {
                b.now_ns += WITHIN_NS / 8;
                send_all(k, "a");
                assert_true(joiner_is_collecting(b.joiner));
                delivers_with(false, false, k == 8);
        }
        assert_false(joiner_is_collecting(b.joiner));
        assert_int_equal(joiner_counts(b.joiner)->waiting, 8);
}

/* The board sends on after the end of the run, of which the ROS may learn without a stop before. */
JOIN_TEST_EACH(the_end_of_a_run_divides_no_fragment, sees_stop, 2, "join count 3", 16)
{
        send_all(0, "aaa");
        gives(0, "aaa");
        if (sees_stop)
                stops();
        delivers(0);
        send_all(1, "a");
        follows(RUN_ENDED, 0);
        for (int i = 0; i < 2; i++) {
                delivers(0);
                send_all(1, "a");
        }
        send_all(2, "a");
        delivers(1);
        delivers_after(WITHIN_NS, 1);
        assert_fields(ros_counts(b.core), duplicate, 0, left_over, 2);
}

/* No index shows that a frame of an event is late. The ROS may leave before the time within which the frame's
 * fragment ends. */
JOIN_TEST(a_late_frame_of_an_event_counts_at_the_end_of_the_run, "join last 5:8", 16)
{
        send_all(0, "acD");
        gives(0, "acd");
        follows(RUN_ENDED, 1);
        send_all(0, "b");
        send_all(1, "a");
        delivers(1);
        assert_fields(ros_counts(b.core), used, 1, duplicate, 1, left_over, 0);
        assert_int_equal(joiner_counts(b.joiner)->waiting, 1);
}

/* The board sends without pause, so that the next frame has always begun. */
JOIN_TEST_EACH(a_stop_does_not_wait_for_a_fragment_with_a_frame_half_sent, idle, 2, "join last 5:8", 16)
{
        unsigned k;

        assert_int_equal(frame_begins(7), ROS_STORE);
        stops();
        delivers(0);
        for (k = 1; joiner_is_collecting(b.joiner) || k == 1; k++) {
                assert_true(k < 8 * STOP_NS / WITHIN_NS + 4);
                b.now_ns += WITHIN_NS / 8;
                frame_ends();
                assert_int_equal(frame_begins(7), ROS_STORE);
                joiner_deliver(b.joiner, b.now_ns, idle, false, b.core, b.buffer);
        }
        assert_true(k > 8 * STOP_NS / WITHIN_NS);
        assert_int_equal(joiner_counts(b.joiner)->passed, k - 1);
        frame_ends();
}

/* The board never sends the flag, and no frame ends the fragment, whether or not evb waits for its frames. */
JOIN_TEST_EACH(a_stop_does_not_wait_for_a_fragment_without_end, idle, 2, "join last 5:8", 16)
{
        send_all(7, "a");
        delivers(0);
        stops();
        delivers(0);
        for (unsigned k = 1; k <= 8 * STOP_NS / WITHIN_NS; k++) {
                b.now_ns += WITHIN_NS / 8;
                assert_true(joiner_is_collecting(b.joiner));
                assert_true(joiner_deadline_ns(b.joiner) <= b.now_ns + WITHIN_NS);
                send_all(7, "a");
                delivers_with(idle, false, k == 8 * STOP_NS / WITHIN_NS);
        }
        /* The board sends on, which begins another fragment. */
        send_all(7, "a");
        delivers(0);
        assert_false(joiner_is_collecting(b.joiner));
        assert_int_equal(joiner_counts(b.joiner)->waiting, 1);
}

TESTS_BETWEEN(NULL, teardown)
