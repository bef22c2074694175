/* The stand-in for boards: what each board does with a trigger, and the bytes that leave. */
#include "../test.h"

#include "base/pattern.h"
#include "frontend/frontend_board.h"
#include "frontend/frontend_box.h"

DEFINE_FREEP(source)

#define MANY 100000

static struct frontend_config config(void)
{
        struct frontend_config c = {.n_boards = 2, .seed = 7};

        c.boards[0].tcp = c.boards[1].tcp = true; /* opens no socket by itself */
        c.sizes.bytes = 100;
        c.counter.bits = 32;
        return c;
}

TEST(the_seed_decides_which_frames_are_missed_and_late)
{
        struct frontend_config c = config();
        struct frontend_frame first = {}, again = {};
        _cleanup_(source_freep) struct source *source;
        unsigned missed = 0, late = 0, differ = 0;

        c.missed = 0.1;
        c.late = 0.2;
        assert_int_equal(source_new_pattern(&source, 0, c.seed, &c.sizes), 0);
        for (uint64_t n = 0; n < MANY; n++) {
                bool sent = frontend_plan(&c, source, 0, n, &first);

                assert_int_equal(sent, frontend_plan(&c, source, 0, n, &again));
                assert_true(!sent || first.late == again.late);
                missed += !sent;
                late += sent && first.late;
                differ += sent != frontend_plan(&c, source, 1, n, &again);
        }
        /* Ten standard deviations, or a chance of 1e-23. */
        assert_in_range(missed, 0.1 * MANY - 950, 0.1 * MANY + 950);
        assert_in_range(late, 0.18 * MANY - 1220, 0.18 * MANY + 1220);
        assert_in_range(differ, 0.18 * MANY - 1220, 0.18 * MANY + 1220);
}

TEST(sizes_stay_within_what_can_be_sent)
{
        struct frontend_config c = config();
        struct frontend_frame f = {};
        _cleanup_(source_freep) struct source *source;

        c.boards[0].tcp = false;
        c.counter = (struct number_field){.offset_bytes = 50, .bits = 64};
        c.sizes = (struct pattern_sizes){.kind = SIZES_LOGNORMAL, .mean_bytes = 5000, .sigma = 4};
        assert_int_equal(source_new_pattern(&source, 0, c.seed, &c.sizes), 0);
        for (uint64_t n = 0; n < MANY; n++) {
                assert_true(frontend_plan(&c, source, 0, n, &f));
                assert_in_range(f.bytes, 50 + 8 + FRONTEND_TRAILER_BYTES, FRONTEND_UDP_MAX_BYTES);
        }
}

static void fill_and_compare(struct number_field counter, uint64_t number, const char *bytes, size_t n)
{
        struct frontend_config c = config();
        struct frontend_frame f = {.serial = 1000, .number = number, .restarts = 3, .bytes = 100};
        uint8_t frame[104], expected[100];

        c.counter = counter;
        c.first = 0x100000000;
        frontend_fill(&c, 1, &f, frame);
        pattern_fill(pattern_key(c.seed, 1, 1000), expected, 0, sizeof expected);
        memcpy(expected + counter.offset_bytes, bytes, n);
        memcpy(expected + 84, "\xe8\x03\0\0\1\0\0\0\2\0\0\0\3\0\0\0", 16);
        assert_memory_equal(frame, "\x64\0\0\0", 4);
        assert_memory_equal(frame + 4, expected, sizeof expected);
}

TEST(the_counter_has_each_width_and_order)
{
        fill_and_compare((struct number_field){0, 16, false}, 0x123456, "\x56\x34", 2);
        fill_and_compare((struct number_field){7, 24, true}, 0x1234567, "\x23\x45\x67", 3);
        fill_and_compare((struct number_field){4, 32, false}, 0x112345678, "\x78\x56\x34\x12", 4);
        fill_and_compare((struct number_field){9, 8}, 0x1f5, "\xf5", 1);
        fill_and_compare((struct number_field){76, 64, true}, 0x112345678, "\0\0\0\1\x12\x34\x56\x78", 8);
}

TEST(a_datagram_of_triggers_has_every_byte)
{
        static const uint8_t expected[40] = {
                'E',  'V',  'B',  'T',  1,    0,    1,    0,    0x11, 0x12, 0x13, 0x14, 0x21, 0x22,
                0x23, 0x24, 0x31, 0x32, 0x33, 0x34, 0x35, 0x36, 0x37, 0x38, 0x41, 0x42, 0x43, 0x44,
                0x45, 0x46, 0x47, 0x48, 0x51, 0x52, 0x53, 0x54, 4,    0,    0,    0,
        };
        struct frontend_entry e = {.number = 0x3837363534333231,
                                   .time_ns = 0x4847464544434241,
                                   .type = 0x54535251,
                                   .flags = FRONTEND_ENTRY_RESET};
        struct frontend_entry many[FRONTEND_ENTRIES_MAX] = {};
        uint8_t bytes[FRONTEND_PACKET_MAX_BYTES];

        assert_int_equal(frontend_packet_encode(0x14131211, 0x24232221, &e, 1, bytes), sizeof expected);
        assert_memory_equal(bytes, expected, sizeof expected);
        assert_int_equal(frontend_packet_encode(0, 0, many, FRONTEND_ENTRIES_MAX, bytes), sizeof bytes);
}

TEST(busy_datagrams_are_checked)
{
        uint8_t bytes[17] = {'E', 'V', 'B', 'B', 1, 3, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8};
        struct frontend_busy b;

        assert_true(frontend_packet_decode_busy(bytes, 16, &b));
        assert_true(b.busy && b.reason == 3 && b.last == 0x0807060504030201);
        for (size_t n = 0; n <= sizeof bytes; n++)
                assert_int_equal(frontend_packet_decode_busy(bytes, n, &b), n == 16);
        bytes[4] = 0;
        assert_true(frontend_packet_decode_busy(bytes, 16, &b));
        assert_false(b.busy);
        bytes[4] = 2;
        assert_false(frontend_packet_decode_busy(bytes, 16, &b));
        bytes[4] = 0;
        bytes[3] = 'T';
        assert_false(frontend_packet_decode_busy(bytes, 16, &b));
}

/* The board gets a trigger each millisecond of the schedule, `held_ns` later in time. */
static void trigger(struct frontend_board *b, uint64_t serial, uint64_t held_ns)
{
        uint64_t at_ns = serial * NS_PER_MS;

        frontend_board_advance(b, at_ns, held_ns);
        frontend_board_trigger(b, serial, held_ns + at_ns);
}

static uint64_t last_number(const struct frontend_board *b)
{
        return b->prompt.items[b->prompt.head - 1].frame.number;
}

TEST(a_restarted_board_counts_from_0)
{
        struct frontend_config c = config();
        _cleanup_(frontend_board_fini) struct frontend_board b, other;

        c.first = 65530;
        c.restarts[c.n_restarts++] = (struct frontend_restart){1, 10 * NS_PER_MS, 5 * NS_PER_MS};
        c.restarts[c.n_restarts++] = (struct frontend_restart){1, 20 * NS_PER_MS, 0};
        assert_int_equal(frontend_board_init(&b, &c, 1, NULL), 0);
        assert_int_equal(frontend_board_init(&other, &c, 0, NULL), 0);
        for (uint64_t n = 0; n < 30; n++) {
                uint64_t before = b.prompt.head;

                trigger(&b, n, 0);
                trigger(&other, n, 0);
                assert_int_equal(last_number(&other), 65530 + n);
                assert_int_equal(b.prompt.head - before, n < 10 || n >= 15);
                if (b.prompt.head > before)
                        assert_int_equal(last_number(&b), n < 10 ? 65530 + n : n < 20 ? n - 15 : n - 20);
        }
        assert_fields(&b, outage, 5, restarts, 2);
        assert_int_equal(b.prompt.items[b.prompt.head - 1].frame.restarts, 2);
        assert_int_equal(other.restarts, 0);
}

/* Triggers may wait for the very board that is away. */
TEST(an_outage_passes_while_triggers_are_held_back)
{
        struct frontend_config c = config();
        _cleanup_(frontend_board_fini) struct frontend_board b;

        c.restarts[c.n_restarts++] = (struct frontend_restart){0, 10 * NS_PER_MS, NS_PER_S};
        assert_int_equal(frontend_board_init(&b, &c, 0, NULL), 0);
        for (uint64_t n = 0; n < 12; n++)
                trigger(&b, n, 0);
        assert_true(b.down && b.outage == 2);
        trigger(&b, 12, NS_PER_S);
        assert_false(b.down);
        assert_int_equal(last_number(&b), 0);
        assert_int_equal(b.outage, 2);
}

TEST(a_full_board_has_no_room)
{
        struct frontend_config c = config();
        _cleanup_(frontend_board_fini) struct frontend_board b;

        assert_int_equal(frontend_board_init(&b, &c, 0, NULL), 0);
        for (uint64_t n = 0; n < FRONTEND_QUEUE_FRAMES; n++) {
                assert_true(frontend_board_has_room(&b));
                trigger(&b, n, 0);
        }
        assert_false(frontend_board_has_room(&b));
        assert_int_equal(frontend_board_unsent(&b), FRONTEND_QUEUE_FRAMES);
}

TEST(late_and_skewed_frames_wait)
{
        struct frontend_config c = config();
        _cleanup_(frontend_board_fini) struct frontend_board b;

        c.late = 1;
        c.late_ns = 50 * NS_PER_MS;
        c.skew_ns = 3 * NS_PER_MS;
        assert_int_equal(frontend_skew_ns(&c, 0), 0);
        assert_int_equal(frontend_board_init(&b, &c, 1, NULL), 0);
        trigger(&b, 0, NS_PER_S);
        assert_int_equal(b.late.items[0].due_ns, NS_PER_S + 53 * NS_PER_MS);
}
