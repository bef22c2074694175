/* Frames with the number of one trigger become one fragment, whose end a newer number, a count, a flag or a
 * time shows. */
#include "joiner_bench.h"

/* Sends frames of trigger 0, which are index, field and content of each. */
static void send_coded(const char *frames)
{
        for (const char *f = frames; *f; f += 3)
                sends(0, (uint8_t)(f[0] - '0'), (uint8_t)(f[1] - '0'), (uint8_t)f[2]);
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

TESTS_BETWEEN(NULL, teardown)
