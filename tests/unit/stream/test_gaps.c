/* Missing packets: what is requested again, until it has arrived, and requests that a sender does not accept.
 */
#include "../test.h"

#include "stream/rules/gaps.h"

static struct gaps g;
static struct packet_range ranges[GAPS_REQUEST_RANGES_MAX];
static size_t n_ranges;
static uint64_t n_packets;

static int end(void **state)
{
        gaps_fini(&g);
        return 0;
}

static void add(const uint64_t *sequences, size_t n)
{
        for (size_t i = 0; i < n; i++)
                gaps_add(&g, sequences[i]);
}

/* Encodes a request, and decodes it as the sender of 1000 packets does. */
static void request(uint64_t most)
{
        uint64_t n;
        json_auto_t *message = gaps_encode(&g, most, &n);

        assert_int_equal(gaps_decode(message, 1000, ranges, &n_ranges, &n_packets), 0);
        assert_int_equal(n_packets, n);
}

static void arrive(uint64_t sequence)
{
        struct gap *gap = gaps_find(&g, sequence);

        assert_non_null(gap);
        gaps_close(&g, gap, sequence);
        assert_null(gaps_find(&g, sequence));
}

static void check_range(size_t i, uint64_t first, uint64_t n)
{
        assert_fields(&ranges[i], first, first, n, n);
}

TEST_WITH(packets_are_requested_until_they_arrive, NULL, end)
{
        const uint64_t lost[] = {3, 4, 5, 9, 999};

        assert_int_equal(gaps_init(&g, 1), 0);
        assert_null(gaps_find(&g, 3));
        add(lost, ARRAY_SIZE(lost));
        assert_int_equal(g.left, 5);
        request(100);
        assert_int_equal(n_ranges, 3);
        check_range(0, 3, 3);
        check_range(1, 9, 1);
        check_range(2, 999, 1);
        request(2);
        assert_int_equal(n_ranges, 1);
        check_range(0, 3, 2);
        assert_null(gaps_find(&g, 2));
        arrive(4);
        arrive(999);
        request(100);
        assert_int_equal(n_ranges, 3);
        check_range(0, 3, 1);
        check_range(1, 5, 1);
        check_range(2, 9, 1);
        arrive(3);
        arrive(5);
        arrive(9);
        assert_fields(&g, left, 0, repaired, 5);
}

/* The first part of a frame with a loss is requested too, but was not lost. */
TEST_WITH(frames_are_repaired_with_their_header, NULL, end)
{
        const uint64_t lost[] = {5, 6, 12, 13, 14, 15};

        assert_int_equal(gaps_init(&g, 4), 0);
        add(lost, ARRAY_SIZE(lost));
        assert_int_equal(g.left, 7);
        request(100);
        assert_int_equal(n_ranges, 2);
        check_range(0, 4, 3);
        check_range(1, 12, 4);
        arrive(4);
        assert_int_equal(g.repaired, 0);
        arrive(5);
        assert_int_equal(g.closed_frames, 0);
        arrive(6);
        assert_fields(&g, closed_frames, 1, repaired, 2);
        assert_null(gaps_find(&g, 7));
        for (uint64_t i = 12; i < 16; i++)
                arrive(i);
        assert_fields(&g, left, 0, repaired, 6, closed_frames, 2);
}

/* Each other packet is missing: no request has more ranges than a sender accepts. */
TEST_WITH(requests_are_limited, NULL, end)
{
        static const uint32_t parts[] = {1, 3, 64};

        for (size_t i = 0; i < ARRAY_SIZE(parts); i++) {
                uint64_t n;
                json_t *message;

                gaps_fini(&g);
                assert_int_equal(gaps_init(&g, parts[i]), 0);
                for (uint64_t sequence = 1; sequence < 40000; sequence += 2)
                        gaps_add(&g, sequence);
                message = gaps_encode(&g, UINT64_MAX, &n);
                assert_int_equal(gaps_decode(message, 40000, ranges, &n_ranges, &n_packets), 0);
                assert_in_range(n_packets, GAPS_REQUEST_RANGES_MAX - 64, n);
                assert_int_equal(n_packets, n);
                json_decref(message);
                gaps_fini(&g);
                assert_int_equal(gaps_init(&g, parts[i]), 0);
                for (uint64_t sequence = 0; sequence < 2 * GAPS_REQUEST_PACKETS_MAX; sequence++)
                        gaps_add(&g, sequence);
                message = gaps_encode(&g, UINT64_MAX, &n);
                assert_int_equal(n, GAPS_REQUEST_PACKETS_MAX);
                json_decref(message);
        }
}

/* What does not fit into the list stays missing. */
TEST_WITH(the_list_is_limited, NULL, end)
{
        assert_int_equal(gaps_init(&g, 1), 0);
        for (uint64_t i = 0; i < GAPS_MAX + 3; i++)
                gaps_add(&g, i);
        assert_int_equal(g.left, GAPS_MAX);
        assert_null(gaps_find(&g, GAPS_MAX));
        assert_non_null(gaps_find(&g, GAPS_MAX - 1));
}

TEST(bad_requests_are_refused)
{
        static const char *const bad[] = {"null",
                                          "{}",
                                          "[]",
                                          "[1]",
                                          "[[]]",
                                          "[[1]]",
                                          "[[1,0]]",
                                          "[[-1,2]]",
                                          "[[1,-1]]",
                                          "[[1.0,1]]",
                                          "[[1,\"1\"]]",
                                          "[[1000,1]]",
                                          "[[999,2]]",
                                          "[[0,1001]]",
                                          "[[0,1],[1000,1]]",
                                          "[[1,9223372036854775807]]",
                                          "[[9223372036854775807,1]]"};
        json_t *many = json_array();

        for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
                json_auto_t *message = json_loads(bad[i], JSON_DECODE_ANY, NULL);

                assert_non_null(message);
                assert_int_equal(gaps_decode(message, 1000, ranges, &n_ranges, &n_packets), -EBADMSG);
        }
        for (size_t i = 0; i <= GAPS_REQUEST_RANGES_MAX; i++)
                json_array_append_new(many, json_pack("[i, i]", 5, 1));
        assert_int_equal(gaps_decode(many, 1000, ranges, &n_ranges, &n_packets), -EBADMSG);
        json_array_clear(many);
        for (size_t i = 0; i < 66; i++)
                json_array_append_new(many, json_pack("[i, i]", 0, 1000));
        assert_int_equal(gaps_decode(many, 1000, ranges, &n_ranges, &n_packets), -EBADMSG);
        json_decref(many);
}
