/* Fragments of event files: two files of a run, of which one lacks events, are matched by spills and L1 IDs.
 */
#include "../test.h"

#include "../store/store_sample.h"
#include "data/fragment_source.h"

#define EVENTS 20u
#define BYTES 40u
#define PASS 32u /* by which L1 IDs grow in each pass over a file */
#define NONE UINT32_MAX

/* A file of the events [from, until) with these L1 IDs, but for one. */
struct part {
        uint32_t from, until, absent;
        uint32_t period; /* of the L1 IDs; 0: none */
        uint32_t second; /* event after the first one; 0: all are in order */
        bool spills;     /* a spill for each period */
};

static const struct part whole = {0, EVENTS, NONE, 0, 0}, lacking = {0, EVENTS, 7, 0, 0};

static void write_part(const char *directory, const struct part *part, char path[static PATH_MAX])
{
        struct event_writer_settings s = {.directory = directory, .application = "a", .version = 2};
        struct event_writer *w;
        char name[40];

        snprintf(name, sizeof name, "from%u-%u-%u-%u", part->from, part->until, part->absent, part->second);
        s.core_name = name;
        assert_int_equal(event_writer_new(&w, &s, SAMPLE_NOW), 0);
        for (uint32_t i = part->from; i < part->until; i++) {
                bool moved = i > part->from && i <= part->second;
                uint32_t k = !moved ? i : i == part->from + 1 ? part->second : i - 1;
                uint32_t l1_id = part->period > 0 ? k % part->period : k;
                uint32_t spill = part->spills ? k / part->period : 0;

                if (k != part->absent)
                        assert_int_equal(sample_put_as(w, &eformat_3, k, spill, l1_id, BYTES), 0);
        }
        assert_int_equal(event_writer_close(w, SAMPLE_NOW), 0);
        snprintf(path, PATH_MAX, "%s", event_writer_path(w));
        event_writer_free(w);
}

/* Replays a file, while the triggers are those of another one; NULL: that cannot be read. */
static int try_part(const char *directory, const struct part *part, const struct part *triggers,
                    struct source **ret, struct error *e)
{
        char path[PATH_MAX], of_triggers[PATH_MAX] = "/nowhere";

        write_part(directory, part, path);
        if (triggers == part)
                snprintf(of_triggers, sizeof of_triggers, "%s", path);
        else if (triggers)
                write_part(directory, triggers, of_triggers);
        return source_new_file(ret, 1, 0, of_triggers, path, e);
}

static struct source *open_part(const char *directory, const struct part *part, const struct part *triggers)
{
        struct source *source;
        struct error e = {};

        assert_int_equal(try_part(directory, part, triggers, &source, &e), 0);
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
        struct source *s = open_part(directory, &lacking, &whole);

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
        struct source *s = open_part(directory, &whole, &lacking);

        for (uint32_t k = 0; k < EVENTS - 1; k++) {
                if (k != 3 && k != 4)
                        assert_int_equal(describe(s, k, k + (k >= 7), k + (k >= 7)), FRAGMENT_OK);
        }
        assert_reason(s, "1 events of the file that it replays are in no event of the run");
        source_free(s);
        sample_remove(directory);
}

/* Events at both ends of the file are certain to have no trigger once all triggers have passed. */
TEST_EACH(events_at_the_ends_of_the_file_are_named, passes, 3)
{
        static const struct part triggers = {2, 16, NONE, 0, 0};
        char *directory = sample_directory();
        struct source *s = open_part(directory, &whole, &triggers);

        for (uint32_t k = 0; k < (passes > 0 ? 14 * passes : 13u); k++)
                assert_int_equal(describe(s, k, 2 + k % 14 + k / 14 * 16, 2 + k % 14), FRAGMENT_OK);
        assert_reason(s,
                      passes > 0 ? "6 events of the file that it replays are in no event of the run" : NULL);
        source_free(s);
        sample_remove(directory);
}

/* The file lacks the event of the last trigger, too. */
TEST(a_pass_may_end_with_a_missing_event)
{
        static const struct part triggers = {2, 16, NONE, 0, 0}, file = {0, EVENTS, 15, 0, 0};
        char *directory = sample_directory();
        struct source *s = open_part(directory, &file, &triggers);
        struct reasons r = {};

        for (uint32_t k = 0; k < 14; k++)
                assert_int_equal(describe(s, k, 2 + k, 2 + k), k == 13 ? FRAGMENT_LOST : FRAGMENT_OK);
        source_reasons(s, &r);
        assert_int_equal(r.n, 2);
        assert_non_null(strstr(r.text[1], "6 events of the file that it replays are in no event of the run"));
        source_free(s);
        sample_remove(directory);
}

/* Event 15 lies between the first two that are used, but its trigger was still to come. */
TEST(a_file_in_another_order_has_no_reason)
{
        static const struct part moved = {0, EVENTS, NONE, 0, 15};
        char *directory = sample_directory();
        struct source *s = open_part(directory, &moved, &whole);

        for (uint32_t k = 0; k < 3; k++)
                assert_int_equal(describe(s, k, k, k), FRAGMENT_OK);
        assert_reason(s, NULL);
        source_free(s);
        sample_remove(directory);
}

TEST(the_file_of_the_triggers_has_no_reason)
{
        char *directory = sample_directory();
        struct source *s = open_part(directory, &lacking, &lacking);

        for (uint32_t k = 0; k < 3 * (EVENTS - 1); k++) {
                uint32_t i = k % (EVENTS - 1), recorded = i + (i >= 7);

                assert_int_equal(describe(s, k, recorded + k / (EVENTS - 1) * PASS, recorded), FRAGMENT_OK);
        }
        assert_reason(s, NULL);
        source_free(s);
        sample_remove(directory);
}

/* The files have other events than the file of the triggers, so a pass over each would be another one. */
TEST_EACH(events_of_other_triggers_are_not_used, i, 5)
{
        static const struct part all = {0, 100, NONE, 0, 0}, first = {0, 64, NONE, 0, 0},
                                 last = {36, 100, NONE, 0, 0};
        static const struct {
                const struct part *triggers, *file;
                uint32_t pass;
        } files[] = {{&all, &first, 128},
                     {&last, &first, 64},
                     {&first, &last, 64},
                     {&first, &all, 64},
                     {NULL, &all, 128}};
        const struct part *triggers = files[i].triggers ?: &all, *file = files[i].file;
        char *directory = sample_directory();
        struct source *s = open_part(directory, file, files[i].triggers);
        uint32_t n = triggers->until - triggers->from;

        for (uint32_t k = 0; k < 3 * n; k++) {
                uint32_t recorded = triggers->from + k % n;
                bool has = recorded >= file->from && recorded < file->until && (files[i].triggers || k < n);

                assert_int_equal(describe(s, k, recorded + k / n * files[i].pass, recorded),
                                 has ? FRAGMENT_OK : FRAGMENT_LOST);
        }
        if (!files[i].triggers)
                assert_reason(s, "because this ROS cannot read that file");
        source_free(s);
        sample_remove(directory);
}

/* The file goes on after the events of the triggers, with the same L1 IDs. */
TEST(events_with_the_same_l1_id_are_told_apart_by_their_place)
{
        static const struct part triggers = {0, 8, NONE, 8, 0}, file = {0, EVENTS, NONE, 8, 0};
        char *directory = sample_directory();
        struct source *s = open_part(directory, &file, &triggers);

        for (uint32_t k = 0; k < 3 * triggers.until; k++)
                assert_int_equal(describe(s, k, k, k % triggers.until), FRAGMENT_OK);
        source_free(s);
        sample_remove(directory);
}

/* The file lacks the first spill, and an event of the second. */
TEST(events_with_the_same_l1_id_are_told_apart_by_their_spill)
{
        static const struct part triggers = {0, 24, NONE, 8, 0, true}, file = {8, 24, 12, 8, 0, true};
        char *directory = sample_directory();
        struct source *s = open_part(directory, &file, &triggers);

        for (uint32_t k = 0; k < 3 * triggers.until; k++) {
                uint32_t recorded = k % triggers.until;

                assert_int_equal(describe(s, k, recorded % 8 + k / triggers.until * PASS, recorded),
                                 recorded < 8 || recorded == 12 ? FRAGMENT_LOST : FRAGMENT_OK);
        }
        assert_reason(s, "no event for 27 triggers, the last one with L1 ID 68");
        source_free(s);
        sample_remove(directory);
}

/* Nothing tells which event of one file belongs to which of the other. */
TEST_EACH(events_with_the_same_l1_id_are_refused, i, 3)
{
        static const struct part all = {0, 24, NONE, 8, 0, false}, late = {8, 24, NONE, 8, 0, false},
                                 once = {8, 16, NONE, 8, 0, false};
        static const struct part *const files[][2] = {{&late, &all}, {&once, &all}, {&all, &once}};
        char *directory = sample_directory(), text[ERROR_TEXT_MAX];
        struct source *s;
        struct error e = {};

        assert_int_equal(try_part(directory, files[i][0], files[i][1], &s, &e), -EINVAL);
        assert_non_null(strstr(error_format(&e, text), "more than one event with spill 0 and L1 ID 0"));
        sample_remove(directory);
}

/* This ROS cannot read the file of the triggers, so it cannot tell which of its events is meant. */
TEST(events_with_the_same_l1_id_are_lost_without_the_other_file)
{
        static const struct part file = {0, 24, 20, 16, 0, true};
        char *directory = sample_directory();
        struct source *s = open_part(directory, &file, NULL);

        for (uint32_t k = 0; k < 16; k++)
                assert_int_equal(describe(s, k, k, k), k < 8 && k != 4 ? FRAGMENT_LOST : FRAGMENT_OK);
        source_free(s);
        sample_remove(directory);
}
