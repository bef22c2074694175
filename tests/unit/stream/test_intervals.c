/* The throughput of a stream against time: what came in each interval, however long the stream is. */
#include "../test.h"

#include "stream/rules/timing.h"

static struct intervals intervals;

static json_int_t at(const json_t *o, const char *name, size_t i)
{
        return json_integer_value(json_array_get(json_object_get(o, name), i));
}

/* An interval that is not over would look like a lower throughput. */
TEST(intervals_that_are_over_are_described)
{
        json_t *o;

        intervals_init(&intervals);
        o = intervals_describe(&intervals);
        assert_int_equal(json_array_size(json_object_get(o, "packets")), 0);
        json_decref(o);
        intervals_add(&intervals, 0, 1, 1000);
        intervals_add(&intervals, 99 * NS_PER_MS, 2, 2000);
        intervals_add(&intervals, 250 * NS_PER_MS, 4, 4000);
        intervals_add(&intervals, 310 * NS_PER_MS, 8, 8000);
        o = intervals_describe(&intervals);
        assert_true(json_number_value(json_object_get(o, "seconds")) == 0.1);
        assert_int_equal(json_array_size(json_object_get(o, "packets")), 3);
        assert_int_equal(json_array_size(json_object_get(o, "bytes")), 3);
        assert_int_equal(at(o, "packets", 0), 3);
        assert_int_equal(at(o, "bytes", 0), 3000);
        assert_int_equal(at(o, "packets", 1), 0);
        assert_int_equal(at(o, "bytes", 2), 4000);
        json_decref(o);
}

/* A day has more intervals than there is room for; none of its packets is forgotten. */
TEST(long_streams_have_longer_intervals)
{
        json_int_t packets = 0;
        size_t n;
        json_auto_t *o;

        intervals_init(&intervals);
        for (uint64_t s = 0; s <= 86400; s++)
                intervals_add(&intervals, s * NS_PER_S, 3, 10);
        o = intervals_describe(&intervals);
        n = json_array_size(json_object_get(o, "packets"));
        assert_true(n > INTERVALS_MAX / 2 && n <= INTERVALS_MAX);
        assert_true(json_number_value(json_object_get(o, "seconds")) == 102.4);
        for (size_t i = 0; i < n; i++)
                packets += at(o, "packets", i);
        assert_true(packets > 3 * 86400 - 3 * 103 && packets <= 3 * 86401);
}
