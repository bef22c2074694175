/* Fragments of event files: two files of a run, of which one lacks an event, are matched by their L1 IDs. */
#include "../test.h"

#include "../store/store_sample.h"
#include "data/fragment_source.h"

#define EVENTS 20u
#define BYTES 40u
#define PASS 32u /* by which L1 IDs grow in each pass over a file */
#define NONE UINT32_MAX

/* Events 0 to 19 with these L1 IDs, but for one. */
static struct source *open_without(const char *directory, uint32_t absent)
{
        struct event_writer_settings s = {
                .directory = directory, .core_name = "c", .application = "a", .version = 2};
        struct event_writer *w;
        struct source *source;
        char path[PATH_MAX];
        struct error e = {};

        s.core_name = absent == NONE ? "whole" : "lacking";
        assert_int_equal(event_writer_new(&w, &s, SAMPLE_NOW), 0);
        for (uint32_t k = 0; k < EVENTS; k++) {
                if (k != absent)
                        assert_int_equal(sample_put(w, &eformat_3, k, BYTES), 0);
        }
        assert_int_equal(event_writer_close(w, SAMPLE_NOW), 0);
        snprintf(path, sizeof path, "%s", event_writer_path(w));
        event_writer_free(w);
        assert_int_equal(source_new_file(&source, 1, 0, true, path, &e), 0);
        return source;
}

/* The status of the fragment for this trigger, whose bytes are those of the event `recorded`. */
static uint8_t describe(struct source *s, uint64_t event, uint32_t l1_id, uint64_t recorded)
{
        uint8_t bytes[500], payload[BYTES];
        struct ros_fragment f;

        source_describe(s, event, l1_id, &f);
        if (f.status != FRAGMENT_OK)
                return f.status;
        assert_true(f.bytes <= sizeof bytes);
        source_fill(s, event, l1_id, bytes, f.bytes);
        pattern_fill(pattern_key(5, 1, recorded), payload, 0, BYTES);
        assert_non_null(memmem(bytes, f.bytes, payload, BYTES));
        return f.status;
}

static void assert_reason(const struct source *s, const char *text)
{
        struct reasons r = {};

        source_reasons(s, &r);
        assert_int_equal(r.n, text ? 1 : 0);
        if (text && !strstr(r.text[0], text))
                fail_msg("%s does not say %s", r.text[0], text);
}

TEST(an_event_missing_in_the_file_is_lost)
{
        char *directory = sample_directory();
        struct source *s = open_without(directory, 7);

        for (uint32_t k = 0; k < 3 * EVENTS; k++) {
                uint32_t recorded = k % EVENTS, l1_id = recorded + k / EVENTS * PASS;

                assert_int_equal(describe(s, k, l1_id, recorded),
                                 recorded == 7 ? FRAGMENT_LOST : FRAGMENT_OK);
        }
        assert_reason(s, "no event for 3 triggers, the last one with L1 ID 71");
        source_free(s);
        sample_remove(directory);
}

/* Event 7 is that of no trigger. Events 3 and 4 were rejected before a ROS was asked for them. */
TEST(an_event_without_a_trigger_is_named)
{
        char *directory = sample_directory();
        struct source *s = open_without(directory, NONE);

        for (uint32_t k = 0; k < EVENTS - 1; k++) {
                if (k != 3 && k != 4)
                        assert_int_equal(describe(s, k, k + (k >= 7), k + (k >= 7)), FRAGMENT_OK);
        }
        assert_reason(s, "1 events of the file that it replays are in no event of the run");
        source_free(s);
        sample_remove(directory);
}

TEST(the_file_of_the_triggers_has_no_reason)
{
        char *directory = sample_directory();
        struct source *s = open_without(directory, 7);

        for (uint32_t k = 0; k < 3 * (EVENTS - 1); k++) {
                uint32_t i = k % (EVENTS - 1), recorded = i + (i >= 7);

                assert_int_equal(describe(s, k, recorded + k / (EVENTS - 1) * PASS, recorded), FRAGMENT_OK);
        }
        assert_reason(s, NULL);
        source_free(s);
        sample_remove(directory);
}
