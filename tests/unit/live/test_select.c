/* Requests of consumers, and the events that they select. */
#include "../test.h"

#include <stdio.h>

#include "live/live_select.h"

static struct live_request parse(const char *options)
{
        struct live_request r;
        struct error e = {};
        char line[LIVE_LINE_MAX];

        snprintf(line, sizeof line, LIVE_GREETING " %s", options);
        if (live_request_parse(&r, line, &e) < 0)
                fail_msg("%s: %s", options, e.message);
        return r;
}

/* Offers events 0 to n - 1; returns the number that are selected. */
static uint64_t count_selected(const char *options, uint64_t n, struct live_counts *counts)
{
        struct live_request r = parse(options);
        uint64_t selected = 0;

        *counts = (struct live_counts){};
        for (uint64_t i = 0; i < n; i++) {
                struct live_event e = {.number = i, .trigger_type = i % 4, .is_partial = i % 10 == 0};

                selected += live_request_selects(&r, counts, &e);
        }
        return selected;
}

static const struct {
        const char *options;
        uint64_t matched, selected;
} cases[] = {
        {"", 1000, 1000},
        {"mode=skip stride=100", 1000, 10},
        {"stride=100 offset=99", 1000, 10},
        {"stride=3", 1000, 334},
        {"stride=3 offset=2", 1000, 333},
        {"fraction=0", 1000, 0},
        {"fraction=1 stride=2", 1000, 500},
        {"trigger-type=1", 250, 250},
        {"trigger-type=1,0x3 stride=2", 500, 250},
        {"status=complete", 900, 900},
        {"status=partial", 100, 100},
        {"status=partial trigger-type=0", 50, 50},
        {"status=partial trigger-type=1", 0, 0},
};

TEST_EACH(what_is_requested_is_selected, i, ARRAY_SIZE(cases))
{
        struct live_counts c;

        assert_int_equal(count_selected(cases[i].options, 1000, &c), cases[i].selected);
        assert_counts(&c, offered, 1000, matched, cases[i].matched);
}

TEST(a_fraction_is_the_same_with_each_seed)
{
        struct live_counts c;
        uint64_t some = count_selected("fraction=10% seed=7", 100000, &c);

        /* 10,000 with a deviation of 95; the events are the same each time. */
        assert_in_range(some, 9300, 10700);
        assert_int_equal(count_selected("fraction=10% seed=7", 100000, &c), some);
        assert_int_not_equal(count_selected("fraction=10% seed=8", 100000, &c), some);
}

static const struct {
        const char *line, *error;
} wrong[] = {
        {"", "invalid request"},
        {"evb-live 12", "invalid request"},
        {"evb-live 2 mode=skip", "invalid request"},
        {"evb-live 1 mode=each", "mode: invalid value; expected newest, skip or all"},
        {"evb-live 1 mode", "unknown option \"mode\""},
        {"evb-live 1 speed=3", "unknown option \"speed\""},
        {"evb-live 1 stride=0", "stride: invalid value"},
        {"evb-live 1 stride=-1", "stride: invalid value"},
        {"evb-live 1 stride=2 offset=2", "offset: invalid value"},
        {"evb-live 1 stride=2 fraction=0.5", "stride and fraction exclude each other"},
        {"evb-live 1 fraction=2", "fraction: invalid value"},
        {"evb-live 1 trigger-type=", "trigger-type: invalid value"},
        {"evb-live 1 trigger-type=1,2,3,4,5,6,7,8,9", "trigger-type: invalid value"},
        {"evb-live 1 trigger-type=1,-2", "trigger-type: invalid value"},
        {"evb-live 1 trigger-type=4294967296", "trigger-type: invalid value"},
        {"evb-live 1 status=good", "status: invalid value"},
        {"evb-live 1 group=", "group: invalid value"},
        {"evb-live 1 group=0123456789012345678901234567890123456789012345678", "group: invalid value"},
        {"evb-live 1 ring=1KiB", "ring: invalid value"},
        {"evb-live 1 ring=257MiB", "ring: invalid value; expected 64KiB to 256MiB"},
};

TEST_EACH(a_wrong_request_is_explained, i, ARRAY_SIZE(wrong))
{
        struct live_request r;
        struct error e = {};

        assert_int_equal(live_request_parse(&r, wrong[i].line, &e), -EINVAL);
        assert_ptr_equal(strstr(e.message, wrong[i].error), e.message);
}
