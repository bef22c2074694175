/* Frames with the number of one trigger become one fragment, whose end a newer number, a count, a flag or a
 * time shows; without any clock or socket. */
#include "../test.h"

#include "data/joiner.h"

#define BUFFER_BYTES (16u << 20)
#define COOKIE UINT64_C(0xC00C1E)
#define WITHIN_NS NS_PER_MS
#define STOP_NS (4 * WITHIN_NS)
#define FRAMES_MAX 1000

static struct {
        struct joiner *joiner;
        struct ros *core;
        uint8_t *buffer;
        uint64_t now_ns, frames, fragments, events;
        uint32_t keep_alives;
        unsigned bits;
} b;

static int teardown(void **state)
{
        (void)state;
        joiner_free(b.joiner);
        ros_free(b.core);
        free(b.buffer);
        return 0;
}

/* A frame: its number in `bits`, its index in 8 bits at byte 4, a count or flag in 8 bits at byte 5, and its
 * content in the last byte. */
static void begin_with(const char *fragments, unsigned bits, uint32_t max_bytes, uint64_t order_ns,
                       bool begins_within)
{
        struct ros_config c = {.member = {.incarnation = 9, .retry_ns = NS_PER_S},
                               .n_sfi = 1,
                               .entries = 1024,
                               .buffer_bytes = BUFFER_BYTES,
                               .number_period = number_period(bits)};
        struct joiner_config config = {.number.bits = bits,
                                       .frames_max = FRAMES_MAX,
                                       .fragment_max_bytes = max_bytes,
                                       .order_ns = order_ns,
                                       .begins_within = begins_within,
                                       .buffer_bytes = 8u << 20};
        static struct message m;
        struct message_to to;

        teardown(NULL);
        b = (typeof(b)){.now_ns = NS_PER_S, .buffer = malloc(BUFFER_BYTES), .bits = bits};
        assert_null(join_rule_parse(&config.rule, fragments));
        config.rule.within_ns = WITHIN_NS;
        config.stop_ns = STOP_NS;
        assert_int_equal(ros_new(&b.core, &c, b.now_ns), 0);
        assert_int_equal(joiner_new(&b.joiner, &config), 0);
        assert_true(ros_step(b.core, b.now_ns, &to, &m));
        m = (struct message){
                .header = {.cookie = COOKIE, .sender_role = ROLE_DFM, .type = MESSAGE_WELCOME},
                .dfm = 1,
                .welcome = {.incarnation = 9, .run = 1},
        };
        assert_true(ros_receive(b.core, b.now_ns, &m));
}

static void begin_ordered(const char *fragments, unsigned bits, uint32_t max_bytes, uint64_t order_ns)
{
        begin_with(fragments, bits, max_bytes, order_ns, false);
}

static void begin(const char *fragments, unsigned bits, uint32_t max_bytes)
{
        begin_ordered(fragments, bits, max_bytes, 0);
}

static enum ros_verdict sends(uint64_t number, uint8_t index, uint8_t field, uint8_t content)
{
        uint64_t counter = b.bits < 64 ? number & ((UINT64_C(1) << b.bits) - 1) : number;
        uint8_t frame[8] = {[4] = index, [5] = field, [7] = content}, *to;
        enum ros_verdict verdict = joiner_arrive(b.joiner, &counter, frame, sizeof frame, sizeof frame, &to);

        if (verdict == ROS_STORE)
                memcpy(to, frame, sizeof frame);
        if (verdict == ROS_FULL)
                return verdict;
        joiner_commit(b.joiner, b.now_ns);
        b.frames++;
        return verdict;
}

static void delivers(uint64_t n)
{
        assert_int_equal(joiner_deliver(b.joiner, b.now_ns, true, false, b.core, b.buffer), n);
        b.fragments += n;
}

/* Returns the fragment of this trigger, which has so many frames. */
static const uint8_t *requests(uint64_t number, uint8_t status, size_t n)
{
        static struct message m;
        struct ros_job job;

        m = (struct message){.header = {.cookie = COOKIE, .sender_role = ROLE_SFI, .type = MESSAGE_REQUEST},
                             .n = 1};
        m.request.entries[0] =
                (struct request_entry){.event = b.events, .l1_id = (uint32_t)number, .to_bytes = UINT32_MAX};
        assert_true(ros_receive(b.core, b.now_ns, &m));
        assert_int_equal(ros_jobs(b.core, 0, &job, 1), 1);
        assert_fields(&job.job.chunk, status, status, fragment_bytes, 12 * n);
        return b.buffer + job.at;
}

static void clears(void)
{
        static struct message m;

        ros_sent(b.core, 0, 1, 0);
        m = (struct message){
                .header = {.cookie = COOKIE, .sender_role = ROLE_DFM, .type = MESSAGE_CLEAR},
                .dfm = 1,
                .n = 1,
        };
        m.clear.events[0] = b.events++;
        assert_true(ros_receive(b.core, b.now_ns, &m));
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

/* Each frame is in one class. */
static void end(void)
{
        const struct joiner_counts *c = joiner_counts(b.joiner);
        const struct ros_slice_counts *passed = &ros_counts(b.core)->slices;

        assert_int_equal(c->frames, b.frames);
        assert_int_equal(c->frames, c->passed + c->repeated + c->beyond + c->large + c->no_room +
                                            c->left_over + c->waiting);
        assert_int_equal(c->passed, passed->used + passed->late + passed->dropped + passed->left_over);
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
TEST(a_newer_number_ends_a_fragment)
{
        begin("join", 32, 0);
        sends(0, 0, 0, 'a');
        sends(0, 0, 0, 'b');
        delivers(0);
        sends(1, 0, 0, 'c');
        delivers(1);
        builds(0, FRAGMENT_OK, "ab");
        sends(0, 0, 0, 'x');
        sends(1, 0, 0, 'd');
        sends(2, 0, 0, 'e');
        delivers(2);
        builds(1, FRAGMENT_OK, "cd");
        assert_int_equal(joiner_deadline_ns(b.joiner), b.now_ns + WITHIN_NS);
        b.now_ns += WITHIN_NS;
        assert_int_equal(joiner_deliver(b.joiner, b.now_ns, false, false, b.core, b.buffer), 0);
        delivers(1);
        builds(2, FRAGMENT_OK, "e");
        assert_fields(ros_counts(b.core), used, 3, duplicate, 1, incomplete, 0, slices.used, 5,
                      slices.dropped, 1);
        end();
}

/* Counters of all widths start over. */
TEST(numbers_start_over)
{
        static const unsigned widths[] = {3, 5, 16, 33, 64};

        for (size_t w = 0; w < ARRAY_SIZE(widths); w++) {
                begin("join", widths[w], 0);
                for (uint64_t k = 0; k < 40; k++) {
                        sends(k, 0, 0, 'a');
                        sends(k, 0, 0, 'b');
                        delivers(k > 0);
                        if (k > 0)
                                builds(k - 1, FRAGMENT_OK, "ab");
                }
                assert_fields(ros_counts(b.core), used, 39, duplicate, 0, impossible, 0);
                end();
        }
}

/* Frames of several triggers come in any order. */
TEST(a_count_ends_a_fragment)
{
        static const char *const rules[] = {"join count 3 index 4:8", "join count 5:8 index 4:8"};

        for (size_t i = 0; i < ARRAY_SIZE(rules); i++) {
                begin(rules[i], 16, 0);
                sends(0, 2, 3, 'c');
                sends(1, 0, 3, 'a');
                sends(0, 0, 3, 'a');
                sends(1, 1, 3, 'b');
                assert_int_equal(sends(0, 2, 3, 'x'), ROS_DISCARD);
                delivers(0);
                sends(0, 1, 3, 'b');
                sends(1, 2, 3, 'c');
                sends(2, 0, 3, 'a');
                delivers(2);
                builds(0, FRAGMENT_OK, "abc");
                builds(1, FRAGMENT_OK, "abc");
                assert_int_equal(joiner_counts(b.joiner)->repeated, 1);
                assert_true(has_reason("the index of an earlier one"));
                assert_false(has_reason("lack some of their frames"));
                end();
        }
}

/* It is in no fragment, and takes the place of no frame. */
TEST(a_frame_whose_index_is_not_below_the_count_is_dropped)
{
        static const char *const rules[] = {"join count 3 index 4:8", "join count 5:8 index 4:8"};

        for (size_t i = 0; i < ARRAY_SIZE(rules); i++) {
                begin(rules[i], 16, 0);
                assert_int_equal(sends(0, 3, 3, 'x'), ROS_DISCARD);
                for (uint8_t k = 0; k < 3; k++)
                        sends(0, k, 3, (uint8_t)('a' + k));
                delivers(1);
                builds(0, FRAGMENT_OK, "abc");
                sends(1, 0, 3, 'a');
                sends(1, 1, 3, 'b');
                assert_int_equal(sends(1, 200, 3, 'x'), ROS_DISCARD);
                assert_int_equal(sends(2, 4, 3, 'x'), ROS_DISCARD);
                delivers(0);
                b.now_ns += WITHIN_NS;
                delivers(2);
                builds(1, FRAGMENT_TRUNCATED, "ab");
                builds(2, FRAGMENT_TRUNCATED, "");
                assert_int_equal(joiner_counts(b.joiner)->beyond, 3);
                assert_true(has_reason("not below the count of frames, and are in no event: 3, the last one "
                                       "with index 4"));
                end();
        }
}

/* For some time, and unless there is no room. */
TEST(a_fragment_waits_for_older_ones)
{
        begin_ordered("join count 2", 16, 0, WITHIN_NS / 2);
        for (uint64_t k = 0; k < 6; k += 2) {
                sends(k, 0, 0, 'a');
                sends(k + 1, 0, 0, 'a');
                sends(k + 1, 0, 0, 'b');
                delivers(0);
                assert_int_equal(joiner_deadline_ns(b.joiner), b.now_ns + WITHIN_NS / 2);
                if (k == 2) {
                        b.now_ns += WITHIN_NS / 2;
                        delivers(1);
                } else if (k == 4)
                        assert_int_equal(joiner_deliver(b.joiner, b.now_ns, true, true, b.core, b.buffer), 1);
                sends(k, 0, 0, 'b');
                delivers(k == 0 ? 2 : 1);
        }
        builds(0, FRAGMENT_OK, "ab");
        builds(1, FRAGMENT_OK, "ab");
        end();
}

/* A counter that starts over within the time for which a fragment waits: frames of different triggers are
 * never joined, and fragments stay in order. */
TEST(an_incomplete_fragment_takes_no_frame_of_a_later_trigger)
{
        static const char *const rules[] = {"join count 2", "join last 5:1 index 4:8"};

        for (size_t i = 0; i < ARRAY_SIZE(rules); i++) {
                begin(rules[i], 3, 0);
                for (uint64_t k = 0; k < 24; k++) {
                        sends(k, 0, 0, 'a');
                        if (k % 8 != 2)
                                sends(k, 1, 1, 'b');
                        delivers(k % 8 == 4 ? 3 : k % 8 == 2 || k % 8 == 3 ? 0 : 1);
                        if (k % 8 == 4) {
                                builds(k - 2, FRAGMENT_TRUNCATED, "a");
                                builds(k - 1, FRAGMENT_OK, "ab");
                        }
                        if (k % 8 != 2 && k % 8 != 3)
                                builds(k, FRAGMENT_OK, "ab");
                }
                assert_fields(ros_counts(b.core), used, 24, duplicate, 0, impossible, 0, late, 0, incomplete,
                              3);
                end();
        }
}

/* ... also if it is wide, and the board missed many triggers. */
TEST(a_fragment_ends_before_its_number_comes_again)
{
        begin("join count 2", 16, 0);
        sends(5, 0, 0, 'a');
        sends(5 + 20000, 0, 0, 'b');
        sends(5 + 20000, 0, 0, 'b');
        sends(5 + 40000, 0, 0, 'c');
        sends(5 + 40000, 0, 0, 'c');
        assert_int_equal(sends(5 + 65536, 0, 0, 'd'), ROS_STORE);
        assert_int_equal(joiner_deliver(b.joiner, b.now_ns, false, false, b.core, b.buffer), 3);
        assert_fields(joiner_counts(b.joiner), passed, 5, waiting, 1);
}

/* ... also if the board missed more than half of all values. */
TEST(a_fragment_ends_if_most_numbers_are_missed)
{
        static const char *const rules[] = {"join", "join count 2"};

        for (size_t i = 0; i < ARRAY_SIZE(rules); i++) {
                begin(rules[i], 16, 0);
                sends(5, 0, 0, 'a');
                sends(5 + 45000, 0, 0, 'b');
                sends(5 + 65536, 0, 0, 'c');
                assert_int_equal(joiner_deliver(b.joiner, b.now_ns, false, false, b.core, b.buffer), 2);
        }
}

/* A board whose data never end: a fragment waits for its frames as long as frames are read, but times in
 * which none is read or one finds no room end no fragment. */
TEST(a_fragment_of_a_busy_board_ends)
{
        begin("join count 2", 32, 0);
        sends(0, 0, 0, 'a');
        for (uint64_t k = 1; k <= 8; k++) {
                b.now_ns += k == 3 ? 100 * WITHIN_NS : WITHIN_NS / 8;
                sends(k, 0, 0, 'a');
                sends(k, 0, 0, 'b');
                assert_int_equal(joiner_deliver(b.joiner, b.now_ns, false, false, b.core, b.buffer),
                                 1 + (k == 8));
        }
        builds(0, FRAGMENT_TRUNCATED, "a");
        builds(1, FRAGMENT_OK, "ab");

        begin("join count 500", 32, 0);
        sends(0, 0, 0, 'a');
        for (uint64_t k = 1; k < FRAMES_MAX; k++)
                sends(1 + k % 4, 0, 0, 'a');
        for (uint64_t k = 0; k < 20; k++) {
                b.now_ns += WITHIN_NS / 8;
                assert_int_equal(sends(0, 0, 0, 'x'), ROS_FULL);
                assert_int_equal(joiner_deliver(b.joiner, b.now_ns, false, false, b.core, b.buffer), 0);
        }
}

/* Frames that are visibly missing, or that contradict each other. */
TEST(a_fragment_with_gaps_or_contradictions_is_incomplete)
{
        static const struct {
                const char *rule, *frames; /* index, field and content of each */
                uint8_t status;
        } cases[] = {
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

        for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
                const char *f = cases[i].frames;

                begin(cases[i].rule, 16, 0);
                for (; *f; f += 3)
                        sends(0, (uint8_t)(f[0] - '0'), (uint8_t)(f[1] - '0'), (uint8_t)f[2]);
                b.now_ns += WITHIN_NS;
                delivers(1);
                requests(0, cases[i].status, strlen(cases[i].frames) / 3);
        }
}

/* The frames of each board of a stream are adjacent, in the order of arrival or of their index. */
TEST(frames_are_ordered_by_their_boards)
{
        begin("join count 4 demux 5:4", 16, 0);
        sends(0, 0, 2, 'c');
        sends(0, 0, 1, 'a');
        sends(0, 0, 2, 'd');
        sends(0, 0, 1, 'b');
        delivers(1);
        builds(0, FRAGMENT_OK, "abcd");
        begin("join count 4 demux 5:4 index 4:8", 16, 0);
        sends(0, 1, 2, 'd');
        sends(0, 1, 1, 'b');
        sends(0, 0, 2, 'c');
        assert_int_equal(sends(0, 0, 2, 'x'), ROS_DISCARD);
        sends(0, 0, 1, 'a');
        delivers(1);
        builds(0, FRAGMENT_OK, "abcd");
        end();
}

/* Whatever the order of arrival, the work for each frame is limited. */
TEST(many_frames_are_put_in_order)
{
        enum { BOARDS = 4, EACH = 200, ALL = BOARDS * EACH };

        static const struct {
                const char *rule;
                unsigned first, step; /* of the places, modulo their number */
        } orders[] = {
                {"join count 800 demux 5:4 index 4:8", ALL - 1, ALL - 1}, /* descending */
                {"join count 800 demux 5:4 index 4:8", 0, EACH},          /* a frame of each board in turn */
                {"join count 800 demux 5:4", 0, EACH},
                {"join count 800 demux 5:4 index 4:8", 7, 389},
        };

        for (size_t k = 0; k < ARRAY_SIZE(orders); k++) {
                bool has_index = strstr(orders[k].rule, "index");
                const uint8_t *at;

                begin(orders[k].rule, 16, 0);
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
                end();
        }
}

/* With an index, the last frame shows how many there are. */
TEST(a_flag_ends_a_fragment)
{
        begin("join last 5:1 index 4:8", 16, 0);
        sends(0, 1, 1, 'b');
        delivers(0);
        sends(0, 0, 0, 'a');
        delivers(1);
        builds(0, FRAGMENT_OK, "ab");
        begin("join last 5:1", 16, 0);
        sends(0, 0, 0, 'b');
        sends(0, 0, 1, 'a');
        delivers(1);
        builds(0, FRAGMENT_OK, "ba");
        end();
}

/* It is in its event, with a status, and named. A fragment of no event is not. */
TEST(a_missing_frame_makes_a_fragment_incomplete)
{
        begin("join count 2", 16, 0);
        sends(0, 0, 0, 'a');
        sends(1, 0, 0, 'a');
        sends(1, 0, 0, 'b');
        delivers(1);
        b.now_ns += WITHIN_NS;
        delivers(1);
        assert_false(has_reason("lack some of their frames"));
        /* The core uses a number that is not newer than all others once a newer one follows. */
        sends(2, 0, 0, 'a');
        sends(2, 0, 0, 'b');
        delivers(1);
        builds(0, FRAGMENT_TRUNCATED, "a");
        builds(1, FRAGMENT_OK, "ab");
        sends(0, 0, 0, 'b');
        b.now_ns += WITHIN_NS;
        delivers(1);
        assert_fields(ros_counts(b.core), incomplete, 1, duplicate, 1, used, 2);
        assert_true(has_reason("lack some of their frames: 1, the last one with number 0"));
        end();
}

TEST(a_fragment_has_a_maximum_size)
{
        begin("join", 16, 30);
        sends(0, 0, 0, 'a');
        sends(0, 0, 0, 'b');
        assert_int_equal(sends(0, 0, 0, 'c'), ROS_DISCARD);
        sends(1, 0, 0, 'a');
        delivers(1);
        builds(0, FRAGMENT_TRUNCATED, "ab");
        assert_fields(ros_counts(b.core), incomplete, 1, used, 1);
        assert_int_equal(joiner_counts(b.joiner)->large, 1);
        assert_true(has_reason("larger than 30 bytes, and are in no event: 1"));
        end();
}

/* A frame that broke off, and one that is too short for a number. */
TEST(broken_and_short_frames_are_counted)
{
        uint8_t frame[8] = {}, *to;
        uint64_t counter = 0;

        begin("join", 16, 0);
        assert_int_equal(joiner_arrive(b.joiner, NULL, frame, 1, 1, &to), ROS_STORE);
        joiner_commit(b.joiner, b.now_ns);
        delivers(1);
        assert_int_equal(ros_counts(b.core)->impossible, 1);
        assert_int_equal(joiner_arrive(b.joiner, &counter, frame, 8, 8, &to), ROS_STORE);
        delivers(0);
        joiner_skip(b.joiner, b.core);
        b.frames += 2;
        sends(0, 0, 0, 'b');
        sends(1, 0, 0, 'a');
        delivers(1);
        builds(0, FRAGMENT_TRUNCATED, "b");
        assert_int_equal(joiner_counts(b.joiner)->no_room, 1);
        end();
        /* Its fragment has this frame already. */
        begin("join count 2 index 4:8", 16, 0);
        sends(0, 0, 0, 'a');
        assert_int_equal(joiner_arrive(b.joiner, &counter, frame, 8, 8, &to), ROS_DISCARD);
        joiner_skip(b.joiner, b.core);
        b.frames++;
        sends(0, 1, 0, 'b');
        delivers(1);
        builds(0, FRAGMENT_OK, "ab");
        end();
}

/* The fragment of a frame without room lacks it, whether the fragment has begun or not. */
TEST(a_frame_without_room_makes_its_fragment_incomplete)
{
        begin("join", 16, 0);
        for (size_t i = 0; i < FRAMES_MAX - 1; i++)
                sends(0, 0, 0, 'a');
        sends(1, 0, 0, 'b');
        for (uint64_t k = 1; k < 3; k++) {
                assert_int_equal(sends(k, 0, 0, 'x'), ROS_FULL);
                joiner_skip(b.joiner, b.core);
                b.frames++;
        }
        delivers(2);
        sends(2, 0, 0, 'd');
        sends(3, 0, 0, 'e');
        delivers(1);
        sends(4, 0, 0, 'f');
        delivers(1);
        b.events++;
        builds(1, FRAGMENT_TRUNCATED, "b");
        builds(2, FRAGMENT_TRUNCATED, "d");
        builds(3, FRAGMENT_OK, "e");
        assert_int_equal(joiner_counts(b.joiner)->no_room, 2);
        end();
}

/* If too many fragments wait for frames, the oldest one ends. */
TEST(open_fragments_are_limited)
{
        uint64_t n = 0;

        begin("join count 2", 16, 0);
        while (sends(n, 0, 0, 'a') == ROS_STORE)
                n++;
        assert_true(n >= 16 && n < 1000);
        assert_int_equal(joiner_deliver(b.joiner, b.now_ns, false, true, b.core, b.buffer), 1);
        assert_int_equal(sends(n, 0, 0, 'a'), ROS_STORE);
        builds(0, FRAGMENT_TRUNCATED, "a");
        end();
}

/* Otherwise, the event would be built without it. */
/* The board sends on when a run begins: it may have sent earlier frames of the first trigger before. */
TEST_EACH(the_first_fragment_of_a_run_is_whole_or_left_over, i, 10)
{
        static const struct {
                const char *fragments;
                bool cut, passes; /* whether its first frame came before; whether it becomes an event */
        } cases[] = {{"join", false, false},
                     {"join", true, false},
                     {"join index 4:8", false, true},
                     {"join index 4:8", true, false},
                     {"join count 3", false, true},
                     {"join count 3", true, false},
                     {"join last 5:8", false, false},
                     {"join last 5:8", true, false},
                     {"join last 5:8 index 4:8", false, true},
                     {"join last 5:8 index 4:8", true, false}};
        bool cut = cases[i].cut, passes = cases[i].passes;

        begin_with(cases[i].fragments, 32, 0, 0, true);
        for (uint64_t n = 7; n < 10; n++) {
                for (uint8_t k = n == 7 && cut; k < 3; k++)
                        (void)sends(n, k, k == 2, (uint8_t)('a' + k));
        }
        b.now_ns += WITHIN_NS;
        delivers(passes ? 3 : 2);
        assert_int_equal(joiner_counts(b.joiner)->left_over, passes ? 0 : cut ? 2 : 3);
        for (uint64_t n = passes ? 7 : 8; n < 10; n++)
                builds(n, 0, "abc");
        assert_int_equal(ros_counts(b.core)->incomplete, 0);
        end();
}

TEST(repeated_frames_do_not_keep_a_fragment_open)
{
        begin("join count 2 index 4:8", 16, 0);
        for (size_t i = 0; i < 4; i++) {
                sends(0, 0, 0, 'a');
                delivers(i == 2);
                b.now_ns += WITHIN_NS / 2;
        }
        sends(1, 0, 0, 'a');
        sends(1, 1, 0, 'b');
        delivers(1);
        builds(0, FRAGMENT_TRUNCATED, "a");
        assert_int_equal(joiner_counts(b.joiner)->repeated, 2);
        end();
}

/* All events so far have ended. */
static void follows(enum run_state state, uint32_t resets)
{
        static struct message m;

        m = (struct message){
                .header = {.cookie = COOKIE,
                           .sender_role = ROLE_DFM,
                           .type = MESSAGE_KEEP_ALIVE,
                           .transaction = b.keep_alives++},
                .dfm = 1,
        };
        m.keep_alive.oldest = m.keep_alive.triggers = b.events;
        m.keep_alive.state = state;
        m.keep_alive.resets = resets;
        assert_true(ros_receive(b.core, b.now_ns, &m));
        if (ros_reads_first(b.core) <= 1)
                return;
        ros_set_reading(b.core, false);
        ros_expire(b.core, b.now_ns);
}

static void stops(void)
{
        follows(RUN_DRAINING, 0);
}

/* The board sends when the ROS connects to it. A trigger box sends only when the run has begun. */
TEST_EACH(the_first_fragment_is_whole_or_left_over, i, 8)
{
        bool leads = i & 1, running = i & 2, first = i & 4, passes = first || (running && !leads);

        begin_with("join", 32, 0, 0, false);
        b.joiner = joiner_free(b.joiner);
        assert_int_equal(
                joiner_new(&b.joiner, &(struct joiner_config){.rule = {.joins = true, .within_ns = WITHIN_NS},
                                                              .number.bits = 32,
                                                              .frames_max = FRAMES_MAX,
                                                              .buffer_bytes = 8u << 20,
                                                              .leads = leads,
                                                              .first_number = 7}),
                0);
        if (running)
                follows(RUN_RUNNING, 0);
        for (uint64_t n = first ? 7 : 8; n < 10; n++) {
                for (uint8_t k = 0; k < 2; k++) {
                        joiner_begin_early(b.joiner, b.core);
                        (void)sends(n, k, 0, (uint8_t)('a' + k));
                }
        }
        b.now_ns += WITHIN_NS;
        delivers(passes ? 2 + first : 1);
        assert_int_equal(joiner_counts(b.joiner)->left_over, passes ? 0 : 2);
        for (uint64_t n = passes ? first ? 7 : 8 : 9; n < 10; n++)
                builds(n, 0, "ab");
        end();
}

/* Also if the last one is still arriving. */
TEST_EACH(frames_from_before_a_reset_are_in_no_event, i, 2)
{
        uint8_t frame[8] = {}, *to;
        uint64_t counter = 1;

        begin("join count 2", 16, 0);
        follows(RUN_RUNNING, 1);
        for (uint64_t k = 0; k < 2; k++) {
                sends(k, 0, 0, 'a');
                sends(k, 0, 0, 'b');
                delivers(1);
                builds(k, FRAGMENT_OK, "ab");
        }
        sends(0, 0, 0, 'x');
        if (i == 1)
                assert_int_equal(joiner_arrive(b.joiner, &counter, frame, 8, 8, &to), ROS_STORE);
        follows(RUN_RUNNING, 2);
        delivers(0);
        if (i == 1)
                joiner_commit(b.joiner, b.now_ns);
        b.frames += i;
        delivers(0);
        assert_int_equal(joiner_counts(b.joiner)->left_over, 1 + i);
        for (uint64_t k = 0; k < 2; k++) {
                sends(k, 0, 0, 'c');
                sends(k, 0, 0, 'd');
                delivers(1);
                builds(k, FRAGMENT_OK, "cd");
        }
        assert_fields(ros_counts(b.core), used, 4, duplicate, 0, impossible, 0, late, 0);
        end();
}

/* The board sends on after the last trigger: what finds no room then is in no event, and nothing is lost. */
TEST(frames_without_room_after_the_last_trigger_are_left_over)
{
        begin("join", 16, 0);
        sends(0, 0, 0, 'a');
        sends(1, 0, 0, 'a');
        delivers(1);
        builds(0, FRAGMENT_OK, "a");
        stops();
        for (size_t i = 0; i < FRAMES_MAX - 1; i++)
                sends(1, 0, 0, 'a');
        assert_int_equal(sends(1, 0, 0, 'x'), ROS_FULL);
        joiner_skip(b.joiner, b.core);
        b.frames++;
        assert_false(has_reason("did not fit"));
        assert_int_equal(joiner_counts(b.joiner)->left_over, 1);
        /* The event of trigger 0 lacks this one. */
        assert_int_equal(sends(0, 0, 0, 'x'), ROS_FULL);
        joiner_skip(b.joiner, b.core);
        b.frames++;
        assert_true(has_reason("did not fit into ros.buffer-size, and are in no event: 1"));
        end();
}

/* Fragments that began before a stop end, also if the board sends on; later ones are not waited for. */
TEST(fragments_that_began_before_a_stop_end)
{
        uint8_t frame[8] = {}, *to;
        uint64_t counter = 0;

        begin("join count 3", 16, 0);
        assert_false(joiner_is_collecting(b.joiner));
        sends(0, 0, 0, 'a');
        /* Also while the next frame of the fragment arrives. */
        assert_int_equal(joiner_arrive(b.joiner, &counter, frame, 8, 8, &to), ROS_STORE);
        assert_true(joiner_is_collecting(b.joiner));
        joiner_commit(b.joiner, b.now_ns);
        b.frames++;
        stops();
        assert_int_equal(joiner_deliver(b.joiner, b.now_ns, false, false, b.core, b.buffer), 0);
        for (uint64_t k = 1; k <= 8; k++) {
                b.now_ns += WITHIN_NS / 8;
                sends(k, 0, 0, 'a');
                assert_true(joiner_is_collecting(b.joiner));
                assert_int_equal(joiner_deliver(b.joiner, b.now_ns, false, false, b.core, b.buffer), k == 8);
        }
        assert_false(joiner_is_collecting(b.joiner));
        assert_int_equal(joiner_counts(b.joiner)->waiting, 8);
        end();
}

/* The board sends on after the end of the run, of which the ROS may learn without a stop before. */
TEST_EACH(the_end_of_a_run_divides_no_fragment, sees_stop, 2)
{
        begin("join count 3", 16, 0);
        for (int i = 0; i < 3; i++)
                sends(0, 0, 0, 'a');
        delivers(1);
        builds(0, FRAGMENT_OK, "aaa");
        if (sees_stop)
                stops();
        delivers(0);
        sends(1, 0, 0, 'a');
        follows(RUN_ENDED, 0);
        for (int i = 0; i < 2; i++) {
                delivers(0);
                sends(1, 0, 0, 'a');
        }
        sends(2, 0, 0, 'a');
        delivers(1);
        b.now_ns += WITHIN_NS;
        delivers(1);
        assert_fields(ros_counts(b.core), duplicate, 0, left_over, 2);
        end();
}

/* The board sends without pause, so that the next frame has always begun. */
TEST_EACH(a_stop_does_not_wait_for_a_fragment_with_a_frame_half_sent, idle, 2)
{
        uint8_t frame[8] = {}, *to;
        uint64_t counter = 7;
        unsigned k;

        begin("join last 5:8", 16, 0);
        assert_int_equal(joiner_arrive(b.joiner, &counter, frame, 8, 8, &to), ROS_STORE);
        stops();
        delivers(0);
        for (k = 1; joiner_is_collecting(b.joiner) || k == 1; k++) {
                assert_true(k < 8 * STOP_NS / WITHIN_NS + 4);
                b.now_ns += WITHIN_NS / 8;
                joiner_commit(b.joiner, b.now_ns);
                b.frames++;
                assert_int_equal(joiner_arrive(b.joiner, &counter, frame, 8, 8, &to), ROS_STORE);
                joiner_deliver(b.joiner, b.now_ns, idle, false, b.core, b.buffer);
        }
        assert_true(k > 8 * STOP_NS / WITHIN_NS);
        assert_int_equal(joiner_counts(b.joiner)->passed, k - 1);
        joiner_commit(b.joiner, b.now_ns);
        b.frames++;
        end();
}

/* The board never sends the flag, and no frame ends the fragment, whether or not evb waits for its frames. */
TEST_EACH(a_stop_does_not_wait_for_a_fragment_without_end, idle, 2)
{
        begin("join last 5:8", 16, 0);
        sends(7, 0, 0, 'a');
        delivers(0);
        stops();
        delivers(0);
        for (unsigned k = 1; k <= 8 * STOP_NS / WITHIN_NS; k++) {
                b.now_ns += WITHIN_NS / 8;
                assert_true(joiner_is_collecting(b.joiner));
                assert_true(joiner_deadline_ns(b.joiner) <= b.now_ns + WITHIN_NS);
                sends(7, 0, 0, 'a');
                assert_int_equal(joiner_deliver(b.joiner, b.now_ns, idle, false, b.core, b.buffer),
                                 k == 8 * STOP_NS / WITHIN_NS);
        }
        /* The board sends on, which begins another fragment. */
        sends(7, 0, 0, 'a');
        delivers(0);
        assert_false(joiner_is_collecting(b.joiner));
        assert_int_equal(joiner_counts(b.joiner)->waiting, 1);
        end();
}

TESTS_BETWEEN(NULL, teardown)
