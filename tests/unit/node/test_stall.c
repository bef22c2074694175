/* When a node counts as stalled, and what the log hears of it; under a clock of the test. */
#include "../test.h"

#include <pthread.h>
#include <stdatomic.h>

#include "node/progress/reason_text.h"
#include "node/progress/stall.h"

#define LOOK_NS (50 * NS_PER_MS)

static struct watch {
        struct stall stall;
        struct work work;
        uint64_t now_ns;
        const char *why;
        unsigned lines[STALL_ENDED + 1];
} w;

static void explain(void *ctx, uint64_t now_ns, struct obstacle *ret)
{
        assert_int_equal(now_ns, w.now_ns);
        snprintf(ret->text, sizeof ret->text, "%s", w.why);
        ret->timed = true;
}

static void begin(bool waits, const char *why, uint64_t idle_ns)
{
        const struct stall_settings settings = {.idle_ns = idle_ns};

        w = (struct watch){.now_ns = NS_PER_S, .work = {.waits = waits}, .why = why};
        stall_init(&w.stall, &settings, w.now_ns);
}

static enum stall_news look(void)
{
        enum stall_news news;

        w.now_ns += LOOK_NS;
        news = stall_turn(&w.stall, w.now_ns, &w.work, explain, NULL);
        w.lines[news]++;
        return news;
}

static void pass_ms(unsigned ms)
{
        for (unsigned i = 0; i < ms / 50; i++)
                look();
}

TEST(work_that_waits_is_a_stall)
{
        begin(true, "no credit from sfi1", NEVER_NS);
        pass_ms(900);
        assert_int_equal(w.stall.now.kind, OBSTACLE_NONE);
        pass_ms(500);
        assert_int_equal(w.stall.now.kind, OBSTACLE_WAIT);
        assert_string_equal(w.stall.now.text, "no credit from sfi1");
        assert_int_equal(stall_age_ns(&w.stall, w.now_ns), 0);
        pass_ms(5000);
        assert_int_equal(w.stall.now.kind, OBSTACLE_STALL);
        assert_int_equal(w.lines[STALL_BEGAN], 1);
        assert_true(stall_age_ns(&w.stall, w.now_ns) >= 6 * NS_PER_S);
        w.work.progress++;
        assert_int_equal(look(), STALL_ENDED);
        assert_int_equal(w.stall.now.kind, OBSTACLE_NONE);
        assert_true(w.stall.ended_after_ns >= 6 * NS_PER_S);
        assert_int_equal(w.stall.stalls, 1);
        assert_in_range(w.stall.stalled_ns, 6 * NS_PER_S, 7 * NS_PER_S);
        assert_string_equal(w.stall.last.text, "no credit from sfi1");
}

TEST(steady_work_is_no_stall)
{
        begin(true, "x", NEVER_NS);
        for (int i = 0; i < 20; i++) {
                pass_ms(4000);
                w.work.progress++;
        }
        assert_fields(&w.stall, stalls, 0, stalled_ns, 0);
}

/* A node that has nothing to do has a reason, but no stall, for hours; if the owner wants, one line. */
TEST(idle_is_no_stall)
{
        begin(false, "no trigger", 60 * NS_PER_S);
        pass_ms(50000);
        assert_int_equal(w.stall.now.kind, OBSTACLE_WAIT);
        assert_int_equal(w.lines[STALL_BEGAN], 0);
        pass_ms(3600 * 1000);
        assert_int_equal(w.lines[STALL_BEGAN], 1);
        assert_int_equal(w.stall.stalls, 0);
        /* Work that comes after the pause starts the clock afresh. */
        w.work.waits = true;
        assert_int_equal(look(), STALL_ENDED);
        assert_int_equal(w.stall.now.kind, OBSTACLE_NONE);
        begin(false, "no event assigned", NEVER_NS);
        pass_ms(3600 * 1000);
        assert_int_equal(w.lines[STALL_NOTHING], 3600 * 20);
}

TEST(a_wait_before_the_run_has_its_reason_at_once)
{
        begin(false, "waiting for ros2", 0);
        w.work.before_run = true;
        assert_int_equal(look(), STALL_NOTHING);
        assert_int_equal(w.stall.now.kind, OBSTACLE_WAIT);
        assert_string_equal(w.stall.now.text, "waiting for ros2");
}

TEST(the_reason_may_change)
{
        begin(true, "ros1 silent", NEVER_NS);
        pass_ms(6000);
        w.why = "no credit from sfi1";
        pass_ms(2000);
        assert_int_equal(w.lines[STALL_CHANGED], 0); /* not within 10 s of the first line */
        pass_ms(10000);
        assert_int_equal(w.lines[STALL_CHANGED], 1);
        assert_string_equal(w.stall.last.text, "no credit from sfi1");
        /* Two reasons that take turns are no flood. */
        for (int i = 0; i < 600; i++) {
                w.why = i % 2 ? "a" : "b";
                pass_ms(100);
        }
        assert_int_equal(w.lines[STALL_CHANGED], 1);
        assert_int_equal(w.lines[STALL_BEGAN], 1);
        assert_int_equal(w.stall.stalls, 1);
}

/* Each stall counts, but a line follows another only after 10 s. */
TEST(many_stalls_are_folded)
{
        unsigned folded = 0;

        begin(true, "slow disk on sfi1", NEVER_NS);
        w.stall.settings.stall_ns = NS_PER_S; /* run.stall-timeout is as short */
        for (int i = 0; i < 50; i++) {
                for (int k = 0; k < 24; k++)
                        folded += look() == STALL_BEGAN ? w.stall.folded : 0;
                w.work.progress++;
        }
        assert_int_equal(w.stall.stalls, 50);
        assert_in_range(w.lines[STALL_BEGAN], 5, 8);
        assert_in_range(w.lines[STALL_ENDED], w.lines[STALL_BEGAN] - 1, w.lines[STALL_BEGAN]);
        assert_in_range(folded + w.lines[STALL_BEGAN] + w.stall.unlogged, 49, 50);
}

/* A second fault is no repetition of the first: its line does not wait. */
TEST(a_stall_for_another_reason_has_a_line)
{
        begin(true, "slow disk on sfi1", NEVER_NS);
        pass_ms(6000);
        assert_int_equal(w.lines[STALL_BEGAN], 1);
        w.work.progress++;
        pass_ms(100);
        w.why = "ros1 silent";
        pass_ms(6000);
        assert_true(w.now_ns < 15 * NS_PER_S);
        assert_int_equal(w.lines[STALL_BEGAN], 2);
}

/* A process that did not run cannot blame others for that time. */
TEST(a_suspension_is_no_stall)
{
        begin(true, "x", NEVER_NS);
        pass_ms(2000);
        w.now_ns += 100 * NS_PER_S;
        look();
        assert_int_equal(w.stall.now.kind, OBSTACLE_WAIT);
        pass_ms(4000);
        assert_int_equal(w.stall.now.kind, OBSTACLE_STALL);
        w.now_ns += 100 * NS_PER_S;
        look();
        assert_true(w.stall.stalled_ns < 7 * NS_PER_S);
}

TEST(reasons_have_names)
{
        static struct scenario s = {.n_nodes = 2,
                                    .nodes = {{.name = "ros4", .role = ROLE_ROS, .index = 3},
                                              {.name = "sfi1", .role = ROLE_SFI, .address = "10.0.0.5"}}};
        char text[128];

        assert_string_equal(reason_text(&s, REASON_WAITS_FOR, 3, text, sizeof text),
                            "waits for fragments of ros4");
        assert_string_equal(reason_text(&s, REASON_QUEUE_FULL, 0, text, sizeof text),
                            "queue to 10.0.0.5 full");
        assert_string_equal(reason_text(&s, REASON_WAITS_FOR, 17, text, sizeof text),
                            "waits for fragments of ros 18");
        assert_string_equal(reason_text(&s, 17, 0, text, sizeof text), "reason 17");
        assert_string_equal(reason_text(&s, 65535, 65535, text, sizeof text), "reason 65535");
        assert_string_equal(reason_text_of(&s, "sfi1", REASON_DISK_FULL, 0, text, sizeof text),
                            "disk full on sfi1");
        assert_string_equal(reason_text_of(&s, "sfi1", REASON_OUTPUT_MISSING, 0, text, sizeof text),
                            "directory or file missing on sfi1");
        assert_string_equal(reason_text_of(&s, "sfi1", REASON_WAITS_FOR, 3, text, sizeof text),
                            "sfi1 waits for fragments of ros4");
        assert_string_equal(reason_text_of(&s, "ros4", REASON_NO_FRONT_END, 0, text, sizeof text),
                            "ros4: no front-end");
        /* A later version may report what this one does not know; each known one has a name. */
        for (unsigned i = 0; i < NODE_REASONS; i++)
                assert_null(strstr(reason_text(&s, i, 0, text, sizeof text), "null"));
}

TEST(an_obstacle_is_published_whole)
{
        struct obstacle_board board = {};
        struct obstacle o = {.kind = OBSTACLE_STALL, .since_ns = 5 * NS_PER_S, .timed = true}, read;
        char text[OBSTACLE_TEXT_MAX + 32];

        assert_true(obstacle_read(&board, &read));
        assert_int_equal(read.kind, OBSTACLE_NONE);
        snprintf(o.text, sizeof o.text, "ros4 silent");
        obstacle_publish(&board, &o);
        assert_true(obstacle_read(&board, &read));
        assert_memory_equal(&read, &o, sizeof o);
        obstacle_format(&read, 8200 * NS_PER_MS, text, sizeof text);
        assert_string_equal(text, "ros4 silent for 3.2 s");
        snprintf(o.text, sizeof o.text, "slow disk: /\303\244");
        obstacle_format(&o, 8200 * NS_PER_MS, text, strlen(o.text));
        assert_string_equal(text, "slow disk: /?");
        snprintf(o.text, sizeof o.text, "ros4 silent");
        /* The writer died in the middle. */
        board.sequence++;
        assert_false(obstacle_read(&board, &read));
        assert_int_equal(read.kind, OBSTACLE_NONE);
        /* It was replaced by another one. */
        obstacle_publish(&board, &o);
        assert_true(obstacle_read(&board, &read));
}

#define PUBLICATIONS 20000u

static void *publish(void *ctx)
{
        struct obstacle o = {.kind = OBSTACLE_STALL};

        for (unsigned i = 0; i < PUBLICATIONS; i++) {
                o.since_ns = 'a' + i % 26;
                memset(o.text, (int)o.since_ns, sizeof o.text - 1);
                obstacle_publish(ctx, &o);
        }
        return NULL;
}

/* A reader gets the text of one moment, or knows that it does not. */
TEST(a_reader_gets_one_obstacle)
{
        static struct obstacle_board board;
        struct obstacle o;
        pthread_t writer;

        assert_int_equal(pthread_create(&writer, NULL, publish, &board), 0);
        do {
                if (!obstacle_read(&board, &o) || o.kind == OBSTACLE_NONE)
                        continue;
                for (size_t i = 0; i < sizeof o.text - 1; i++)
                        assert_int_equal(o.text[i], o.since_ns);
        } while (atomic_load(&board.sequence) < 2 * PUBLICATIONS);
        assert_int_equal(pthread_join(writer, NULL), 0);
}
