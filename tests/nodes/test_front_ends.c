/* Boards whose frames carry the number of their trigger, which the test plays: no event mixes triggers, and
 * every frame is accounted for. */
#include "boards.h"
#include "base/arena.h"
#include "base/random.h"

#define NUMBERED "trigger.rate=1kHz", "ros.wait=8s", "sfi.count=1", "sfi.timeout=24s", "dfm.node-timeout=30s"
#define PORT 47100
#define TRIGGERS_MAX 4000
#define TRIGGERS_LATE 50
#define ROSS_MAX 4

/* A board that reads out each trigger and misses some. A late frame follows that of the trigger 50 later. */
struct numbered {
        struct random random;
        size_t bits;             /* 0: those of all boards */
        uint64_t start, restart; /* counter of trigger 0; from this trigger on, it counts from 0 */
        double missed, late;
        bool is_late[TRIGGERS_MAX], has[TRIGGERS_MAX], sent[TRIGGERS_MAX];
};

static struct {
        struct boards tcp;
        bool is_tcp, is_big, twice;
        size_t n, bits;
        struct numbered boards[ROSS_MAX];
        uint64_t done, n_triggers; /* that were read out; all of them */
        uint64_t last;             /* the time, in triggers, up to which frames were sent */
        /* Of the written events; a thread of a node fills them. */
        uint64_t mixed, fragments;
        uint8_t present[TRIGGERS_MAX];
} play;

static size_t make_frame(const struct numbered *b, uint64_t n, uint8_t *frame)
{
        uint64_t counter = b->restart && n >= b->restart ? n - b->restart : n + b->start;
        uint32_t size = (uint32_t)(3 + play.bits / 8 + 4 + 40 + n % 100), number = (uint32_t)n;

        if (b->bits > 0)
                counter &= (UINT64_C(1) << b->bits) - 1;

        memset(frame, (int)(n % 251), 4 + size);
        memcpy(frame, &size, 4);
        memcpy(frame + 4, "abc", 3);
        for (size_t i = 0; i < play.bits / 8; i++)
                frame[7 + (play.is_big ? play.bits / 8 - 1 - i : i)] = (uint8_t)(counter >> 8 * i);
        memcpy(frame + 7 + play.bits / 8, &number, 4);
        return 4 + size;
}

static void send_frame(size_t board, uint64_t n)
{
        uint8_t frame[400];
        size_t size = make_frame(&play.boards[board], n, frame);
        struct iovec v = {frame, size};

        play.boards[board].sent[n] = true;
        for (int i = 0; i < 1 + play.twice; i++) {
                if (play.is_tcp)
                        assert_int_equal(tcp_send(play.tcp.boards[board].fd, &v, 1), size);
                else
                        bed_send_datagram(bed_name(ROLE_ROS, board), PORT, frame, size);
        }
}

/* Sends what is due before this trigger. */
static void deliver(uint64_t until)
{
        for (; play.last < until; play.last++) {
                for (size_t i = 0; i < play.n; i++) {
                        const struct numbered *b = &play.boards[i];
                        uint64_t late = play.last - TRIGGERS_LATE;

                        if (play.last >= TRIGGERS_LATE && late < TRIGGERS_MAX && b->has[late] &&
                            b->is_late[late])
                                send_frame(i, late);
                        if (play.last < TRIGGERS_MAX && b->has[play.last] && !b->is_late[play.last])
                                send_frame(i, play.last);
                }
        }
}

/* The boards read out the triggers that the DFM counts. */
static void read_out(void *ctx)
{
        uint64_t until = MIN(count_of("dfm", triggers), play.n_triggers);

        if (play.is_tcp)
                boards_accept(&play.tcp);
        for (; play.done < until; play.done++) {
                for (size_t i = 0; i < play.n; i++) {
                        struct numbered *b = &play.boards[i];

                        b->has[play.done] = random_unit(&b->random) >= b->missed;
                        b->is_late[play.done] = random_unit(&b->random) < b->late;
                }
        }
        deliver(until < play.n_triggers ? until : until + TRIGGERS_LATE + 1);
}

static void look(void *ctx, const struct sfi_built *built, const uint8_t *buffer)
{
        for (size_t i = 0; i < play.n; i++) {
                const struct sfi_fragment *f = &built->fragments[i];
                uint32_t number;

                if (!f->whole || f->bytes == 0 || f->at == ARENA_NONE)
                        continue;
                memcpy(&number, buffer + f->at + 3 + play.bits / 8, 4);
                play.mixed += number != built->info.l1_id;
                play.fragments++;
                if (number < TRIGGERS_MAX)
                        play.present[number] |= (uint8_t)(1u << i);
        }
}

/* The test's settings of the boards come before begin(). */
static void prepare(bool tcp, size_t n, size_t bits, uint64_t triggers)
{
        memset(&play, 0, sizeof play);
        play.is_tcp = tcp;
        play.n = n;
        play.bits = bits;
        play.n_triggers = triggers;
        for (size_t i = 0; i < n; i++)
                random_init(&play.boards[i].random, i + 1);
}

#define SOURCE (play.is_tcp ? "ros.source=" BOARDS_SOURCE : "ros.source=udp:47100")

static void begin(void)
{
        bed_each_event(look, NULL);
        if (play.is_tcp)
                boards_begin(&play.tcp, 0, NULL);
        bed_each_ms(read_out, NULL);
        bed_start_all();
}

/* Each event has the frames of its trigger, all that were sent, and no other; `restarted`: those of this
 * board from trigger `restart` on are in none. */
static void check_frames(size_t restarted, uint64_t restart)
{
        uint64_t sent = 0;

        assert_int_equal(play.mixed, 0);
        for (uint64_t k = 0; k < TRIGGERS_MAX; k++) {
                for (size_t i = 0; i < play.n; i++) {
                        bool is_usable = i != restarted || k < restart;

                        sent += play.boards[i].sent[k];
                        assert_int_equal(play.present[k] >> i & 1, play.boards[i].sent[k] && is_usable);
                }
        }
        assert_int_equal(count_sum(ROLE_ROS, front_end_frames), sent * (1 + play.twice));
        assert_int_equal(
                count_sum(ROLE_ROS, front_end_frames),
                count_sum(ROLE_ROS, front_end_used) + count_sum(ROLE_ROS, front_end_late) +
                        count_sum(ROLE_ROS, front_end_duplicate) + count_sum(ROLE_ROS, front_end_impossible) +
                        count_sum(ROLE_ROS, front_end_dropped) + count_sum(ROLE_ROS, front_end_left_over));
        assert_true(count_sum(ROLE_ROS, front_end_used) >= play.fragments);
        assert_int_equal(count_sum(ROLE_ROS, front_end_dropped) + count_sum(ROLE_ROS, front_end_gaps), 0);
        assert_int_equal(count_sum(ROLE_SFI, fragments_mismatched), 0);
}

static void end(int status)
{
        bed_ends("dfm", status);
        for (size_t i = 0; i < play.n; i++)
                bed_until(bed_has_ended(bed_name(ROLE_ROS, i)));
        bed_check_accounts();
}

static const char *number_key(void)
{
        static char text[40];

        snprintf(text, sizeof text, "ros.event-number=3:%zu%s", play.bits, play.is_big ? ":be" : "");
        return text;
}

static const char *from_key(uint64_t from)
{
        static char text[40];

        snprintf(text, sizeof text, "ros.number-from=%llu", (unsigned long long)from);
        return text;
}

/* Boards miss triggers and deliver late, and their counters wrap. */
static const struct {
        bool tcp, big;
        size_t bits;
        int pull;
} forms[] = {{false, false, 16, 0}, {false, true, 24, 0}, {true, true, 16, 0},
             {true, false, 24, 0},  {true, false, 32, 0}, {false, false, 16, 1}};

TEST_EACH(counters_of_all_widths, f, ARRAY_SIZE(forms))
{
        uint64_t complete = 0;

        prepare(forms[f].tcp, 3, forms[f].bits, 3000);
        play.is_big = forms[f].big;
        for (size_t i = 0; i < 3; i++) {
                play.boards[i].start = (UINT64_C(1) << forms[f].bits) - 1000;
                play.boards[i].missed = play.boards[i].late = 0.01;
        }
        BED(1, NUMBERED, "ros.count=3", SOURCE, number_key(), from_key(play.boards[0].start),
            "trigger.events=3000", bed_mode(forms[f].pull));
        begin();
        end(1);
        check_frames(SIZE_MAX, 0);
        for (uint64_t k = 0; k < 3000; k++)
                complete += play.present[k] == 7;
        assert_true(complete > 0 && complete < 3000);
        assert_each(count_of, "dfm", events_complete, complete, triggers, 3000);
        assert_each(count_sum, ROLE_ROS, front_end_used, play.fragments, fragments_absent,
                    3 * 3000 - play.fragments);
}

/* Boards with other widths, and a narrow one that cannot be late, beside one with the bits of [ros]. */
TEST_EACH(boards_of_different_widths, tcp, 2)
{
        static const char sections[] =
                "[node dfm]\nrole = dfm\n[node ros1]\nrole = ros\n[node sfi1]\nrole = sfi\n"
                "[node ros2]\nrole = ros\nevent-number = 3:16 mod 32768\nnumber-from = 32700\n"
                "[node ros3]\nrole = ros\nevent-number = 3:5\nnumber-from = 29\n"
                "[node ros4]\nrole = ros\nevent-number = 3:64\n";

        prepare(tcp, 4, 64, 3000);
        play.boards[1] = (struct numbered){
                .random = play.boards[1].random, .bits = 15, .start = 32700, .missed = 0.01, .late = 0.01};
        play.boards[2].bits = 5;
        play.boards[2].start = 29;
        play.boards[2].missed = 0.01;
        BED(1, "trigger.rate=1kHz", "ros.wait=2s", "sfi.timeout=8s", "dfm.node-timeout=30s", SOURCE,
            "ros.event-number=3:32", "trigger.events=3000", sections);
        begin();
        end(1);
        check_frames(SIZE_MAX, 0);
        assert_int_equal(count_of("dfm", triggers), 3000);
        assert_int_equal(count_sum(ROLE_ROS, front_end_used), play.fragments);
}

/* This is noticed; the board's frames are not used, and the other boards continue. */
TEST_EACH(a_board_counts_from_0_again, tcp, 2)
{
        prepare(tcp, 3, 16, 3000);
        for (size_t i = 0; i < 3; i++)
                play.boards[i].late = 0.01;
        play.boards[1].restart = 1000;
        BED(1, NUMBERED, "ros.count=3", SOURCE, number_key(), "trigger.events=3000");
        begin();
        end(1);
        check_frames(1, 1000);
        assert_true(bed_logged("ros2", "do not follow the triggers: the last one is "));
        assert_true(bed_logged("ros2", "the board has restarted, or its number"));
        assert_true(bed_has_reason("ros2", "fell out of step with the triggers once: "));
        assert_int_equal(count_sum(ROLE_ROS, front_end_restarts), 1);
}

/* It misses trigger 5 and restarts while its event waits: the new frame 5, of trigger 12, is not used for it.
 */
TEST_EACH(a_board_restarts_among_open_events, tcp, 2)
{
        prepare(tcp, 3, 16, 0);
        play.boards[1].restart = 7;
        BED(1, NUMBERED, "ros.count=3", SOURCE, number_key(), "trigger.events=40", "sfi.credits=100");
        begin();
        bed_until(count_of("dfm", triggers) == 40);
        for (size_t i = 0; i < 3; i++) {
                for (uint64_t k = 0; k < 40; k++) {
                        if (i != 1 || (k != 5 && k <= 12))
                                send_frame(i, k);
                }
        }
        end(1);
        check_frames(1, 7);
        assert_int_equal(count_sum(ROLE_ROS, front_end_duplicate), 5);
        assert_int_equal(count_sum(ROLE_ROS, front_end_late) + count_sum(ROLE_ROS, front_end_impossible), 1);
        assert_int_equal(count_of("dfm", events_complete), 6);
}

/* With the numbers and the order that would fit. */
TEST(a_wrong_byte_order_is_named)
{
        prepare(false, 2, 32, 300);
        BED(1, NUMBERED, "ros.count=2", SOURCE, "ros.event-number=3:32:be", "ros.wait=5s",
            "trigger.events=300");
        begin();
        end(1);
        assert_true(bed_logged("ros1", "in the other byte order it is "));
        assert_true(bed_logged("ros1", "so event-number should be 3:32 instead of 3:32:be"));
        assert_true(count_sum(ROLE_ROS, front_end_used) < 600);
}

/* The first frame of a trigger is in the event, the second is counted and named. */
TEST_EACH(boards_send_each_frame_twice, tcp, 2)
{
        prepare(tcp, 3, 32, 1000);
        play.twice = true;
        BED(1, NUMBERED, "ros.count=3", SOURCE, number_key(), "trigger.events=1000", "trigger.rate=3kHz");
        begin();
        end(1);
        check_frames(SIZE_MAX, 0);
        assert_int_equal(count_of("dfm", events_complete), 1000);
        assert_each(count_sum, ROLE_ROS, front_end_used, 3000, front_end_duplicate, 3000, front_end_restarts,
                    0);
        for (size_t i = 0; i < 3; i++)
                assert_true(bed_has_reason(bed_name(ROLE_ROS, i),
                                           "frames of its front-end that have the same number"));
        assert_true(bed_has_reason("dfm", "reported frames of the front-end that are lost, or in no event"));
        assert_true(bed_logged("ros1", "a frame has the same number as an earlier one, 0, and is discarded"));
}

/* The trigger and the other board count from 0: this is named at both ends of the run. */
TEST(a_board_counts_from_1)
{
        prepare(false, 2, 32, 500);
        play.boards[1].start = 1;
        BED(1, NUMBERED, "ros.count=2", SOURCE, number_key(), "ros.wait=2s", "trigger.events=500");
        begin();
        end(1);
        assert_each(count_of, "dfm", events_complete, 499, events_partial, 1);
        assert_each(count_sum, ROLE_ROS, front_end_left_over, 1, fragments_absent, 1);
        assert_true(bed_has_reason("ros2", "the numbers of its front-end seem to be 1 too high"));
        assert_true(bed_has_reason("ros2", "number-from should be 1"));
        assert_true(bed_logged("ros2", "front-end: no frame came for the first trigger of the run"));
        assert_false(bed_logged("ros1", "front-end:"));
        assert_true(bed_logged("dfm",
                               "ros2 has frames whose numbers or times seem to be those of other triggers"));
}

/* Then the run stops: triggers without any frame do not count, and the end is clean. */
TEST_EACH(boards_stop_before_the_run, tcp, 2)
{
        prepare(tcp, 3, 32, 1000);
        for (size_t i = 0; i < 3; i++)
                play.boards[i].start = 7;
        BED(1, NUMBERED, "ros.count=3", SOURCE, number_key(), from_key(7), "trigger.events=0");
        begin();
        bed_until(count_of("dfm", events_complete) == 1000);
        bed_until(count_of("dfm", triggers) > 1000);
        /* A board that closes its connection at the end is no fault. */
        for (size_t i = 0; tcp && i < 3; i++)
                close(play.tcp.boards[i].fd);
        bed_stop_run(0);
        bed_check_accounts();
        check_frames(SIZE_MAX, 0);
        for (size_t i = 0; i < 3; i++)
                assert_false(bed_logged(bed_name(ROLE_ROS, i), "connection lost"));
        assert_each(count_of, "dfm", triggers, 1000, events_complete, 1000);
        assert_true(count_of("dfm", triggers_not_taken) > 0);
}

/* More frames than a turn reads came in the pause, and events have waited for them since before it. */
TEST(a_pause_of_all_nodes_loses_no_frame)
{
        static const char *const nodes[] = {"dfm", "ros1", "ros2", "sfi1"};

        prepare(false, 2, 32, 0);
        BED(1, "trigger.rate=1kHz", "ros.wait=2s", "sfi.count=1", "sfi.timeout=24s", "dfm.node-timeout=30s",
            "sfi.credits=1000", "ros.count=2", SOURCE, number_key(), "trigger.events=1400");
        begin();
        bed_until(count_of("dfm", triggers) >= 1000);
        for (size_t i = 0; i < ARRAY_SIZE(nodes); i++)
                bed_freeze(nodes[i], true);
        for (size_t i = 0; i < 2; i++) {
                for (uint64_t k = 0; k < 1400; k++)
                        send_frame(i, k);
        }
        bed_pass(3 * NS_PER_S);
        for (size_t i = 0; i < ARRAY_SIZE(nodes); i++)
                bed_freeze(nodes[i], false);
        bed_all_end(0);
        bed_check_accounts();
        check_frames(SIZE_MAX, 0);
        assert_true(bed_logged("ros1", "this ROS was suspended for 3.0 s"));
}

/* They are lost beam data. */
TEST(frames_without_room_fail_the_run)
{
        prepare(false, 1, 32, 0);
        BED(1, NUMBERED, "ros.count=1", SOURCE, number_key(), "test.buffer-events=100", "trigger.events=0");
        begin();
        bed_until(count_of("dfm", triggers) > 0);
        for (uint64_t k = 0; k < 2000; k++) {
                send_frame(0, k);
                if (k % 20 == 0)
                        bed_pass(NS_PER_MS / 10);
        }
        bed_until(count_of("ros1", front_end_dropped) > 0);
        bed_signal("dfm", SIGTERM);
        bed_until(bed_has_ended("dfm"));
        bed_ends("ros1", 1);
        bed_check_accounts();
        assert_true(bed_has_reason("ros1", "frames of the front-end did not fit into"));
}
