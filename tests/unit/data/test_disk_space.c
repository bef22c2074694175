/* How long the free space of a disk lasts, and when it is low. */
#include "../test.h"

#include "data/disk_space.h"

#define GB UINT64_C(1000000000)
#define SIZE (1000 * GB)

static struct disk_trend t;
static uint64_t now_ns;

static int set_up(void **state)
{
        t = (struct disk_trend){};
        now_ns = 7 * NS_PER_S;
        return 0;
}

/* Returns whether a warning is due. */
static bool look(uint64_t free_bytes)
{
        const struct disk_space s = {true, free_bytes, SIZE};

        now_ns += DISK_LOOK_NS;
        return disk_trend_add(&t, now_ns, &s);
}

/* Writes for that time. Returns the number of warnings. */
static unsigned fill(uint64_t *free_bytes, uint64_t bytes_per_second, unsigned seconds)
{
        unsigned warnings = 0;

        for (unsigned s = 0; s < seconds; s += DISK_LOOK_NS / NS_PER_S) {
                *free_bytes -= bytes_per_second * (DISK_LOOK_NS / NS_PER_S);
                warnings += look(*free_bytes);
        }
        return warnings;
}

TEST_WITH(the_time_left_follows_the_present_rate, set_up, NULL)
{
        uint64_t free_bytes = 900 * GB;

        assert_false(look(free_bytes));
        assert_int_equal(t.left_s, 0);
        assert_int_equal(fill(&free_bytes, GB / 100, 5), 0);
        /* 5 s are too short. */
        assert_int_equal(t.left_s, 0);
        assert_int_equal(fill(&free_bytes, GB / 100, 300), 0);
        assert_in_range(t.left_s, free_bytes / (GB / 100) - 1, free_bytes / (GB / 100) + 1);
        fill(&free_bytes, GB / 50, 90);
        assert_in_range(t.left_s, free_bytes / (GB / 50) - 1, free_bytes / (GB / 50) + 1);
        fill(&free_bytes, 0, 90);
        assert_int_equal(t.left_s, 0);
}

TEST_WITH(each_time_that_the_space_becomes_low_is_warned_of_once, set_up, NULL)
{
        uint64_t free_bytes = 900 * GB;

        look(free_bytes);
        /* 900 GB last for half an hour. */
        assert_int_equal(fill(&free_bytes, GB / 2, 100), 1);
        assert_true(t.is_low && t.left_s > 0 && t.left_s < 3600);
        /* The run stops. */
        assert_int_equal(fill(&free_bytes, 0, 100), 0);
        assert_false(t.is_low);
        /* Less than 5 %. */
        assert_true(look(49 * GB));
        assert_false(look(48 * GB));
        /* Files are moved away, and the disk fills again. */
        assert_false(look(60 * GB));
        assert_false(t.is_low);
        assert_int_equal(t.left_s, 0);
        assert_true(look(49 * GB));
}

TEST_WITH(freed_space_does_not_count_as_a_rate, set_up, NULL)
{
        uint64_t free_bytes = 500 * GB;

        look(free_bytes);
        fill(&free_bytes, GB / 100, 60);
        assert_true(t.left_s > 0);
        free_bytes += 100 * GB;
        fill(&free_bytes, GB / 100, 10);
        fill(&free_bytes, GB / 100, 20);
        assert_in_range(t.left_s, free_bytes / (GB / 100) - 1, free_bytes / (GB / 100) + 1);
}

TEST_WITH(a_disk_that_cannot_be_read_is_not_low, set_up, NULL)
{
        const struct disk_space unknown = {};
        struct disk_space s = {true, 1, 2};

        assert_false(disk_trend_add(&t, now_ns, &unknown));
        assert_false(disk_space_is_low(&unknown, 1));
        disk_space_read(&s, "/nonexistent");
        assert_false(s.known);
        disk_space_read(&s, "/tmp");
        assert_true(s.known && s.free_bytes <= s.size_bytes);
}

static const struct {
        uint64_t free_bytes, left_s;
        const char *text;
} rows[] = {{412 * GB, 0, "412 GB of 1 TB free"},
            {412 * GB, 25920, "412 GB of 1 TB free, full in 7.2 h"},
            {GB / 2, 3599, "500 MB of 1 TB free, full in 59 min"},
            {0, 1, "0 B of 1 TB free, full in 1 s"}};

TEST_EACH(the_text_has_space_and_time, i, ARRAY_SIZE(rows))
{
        char text[DISK_TEXT_MAX];
        const struct disk_space s = {true, rows[i].free_bytes, SIZE};

        assert_string_equal(disk_space_format(&s, rows[i].left_s, text), rows[i].text);
}
