/* A slicer with small limits, as fuzzing uses them. */
#include "../../test.h"

#include "data/slicer.h"

static struct slicer_config small(void)
{
        return (struct slicer_config){
                .slice_ns = 100,
                .window_ns = 100,
                .tick_ns = 1,
                .bits = 32,
                .frames_max = 100,
                .slices_max = 4,
                .fragment_max_bytes = 1024,
                .buffer_bytes = 65536,
        };
}

static enum ros_verdict comes(struct slicer *s, uint64_t counter, uint32_t bytes)
{
        uint8_t *to;
        enum ros_verdict v = slicer_arrive(s, NS_PER_S, &counter, bytes, &to);

        if (v == ROS_STORE)
                memset(to, 1, bytes);
        slicer_commit(s, NS_PER_S);
        return v;
}

TEST(limits_are_refused)
{
        struct slicer_config c = small();
        struct slicer *s;

        c.slices_max = 6;
        assert_int_equal(slicer_new(&s, &c), -EINVAL);
        c = small();
        c.fragment_max_bytes = EVB_FRAGMENT_MAX_BYTES + 1;
        assert_int_equal(slicer_new(&s, &c), -EINVAL);
}

TEST(a_slice_has_half_of_a_fragment)
{
        struct slicer_config c = small();
        struct slicer *s;

        assert_int_equal(slicer_new(&s, &c), 0);
        assert_int_equal(comes(s, 10, 400), ROS_STORE);
        assert_int_equal(comes(s, 20, 105), ROS_DISCARD); /* with the lengths, 513 bytes */
        assert_int_equal(comes(s, 20, 104), ROS_STORE);
        assert_int_equal(slicer_counts(s)->dropped, 1);
        slicer_free(s);
}

/* Whatever the place of the waiting frames in the ring: none is lost, and their memory is free again. */
TEST(a_restart_empties_all_slices)
{
        struct slicer_config c = small();
        struct slicer *s;

        c.frames_max = 4;
        assert_int_equal(slicer_new(&s, &c), 0);
        for (uint64_t start = 0, k; start < 20; start++) {
                uint64_t first = (start * 777 + 1) * 100;

                /* 64 frames elsewhere restart it. */
                for (k = 0; k < 64 && comes(s, first, 100) == ROS_DISCARD; k++)
                        ;
                for (k = 1; k < 4; k++)
                        assert_int_equal(comes(s, first + 100 * k, 100), ROS_STORE);
                assert_int_equal(slicer_counts(s)->waiting, 4);
                assert_int_equal(comes(s, first + 400, 100), ROS_DISCARD);
                assert_int_equal(slicer_counts(s)->restarts, start);
        }
        slicer_free(s);
}
