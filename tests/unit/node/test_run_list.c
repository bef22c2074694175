/* The list of runs: lines of several DFMs, whole or damaged, become runs with what is known of them. */
#include "../test.h"

#include <jansson.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "sys/loop.h"
#include "node/run_list.h"

static char path[] = "/tmp/evb-list-XXXXXX";
static json_t *answer;

static const struct run_list_stop by_operator = {"stop", "10.0.0.9:4711"},
                                  by_fault = {"fault", "\"disk\" full"};
static const struct dfm_counts counts = {.triggers = 15, .complete = 12, .partial = 2, .lost = 1};

static struct run_list_run run_of(uint32_t number, uint64_t cookie)
{
        return (struct run_list_run){number, cookie};
}

static void begin(uint32_t number, uint64_t cookie)
{
        assert_int_equal(run_list_add_begin(path, run_of(number, cookie), 1000 * NS_PER_S, "beam"), 0);
}

static void stop(uint32_t number, uint64_t cookie, const struct run_list_stop *why)
{
        assert_int_equal(run_list_add_stop(path, run_of(number, cookie), why), 0);
}

static void end(uint32_t number, uint64_t cookie, const char *status)
{
        struct reasons reasons = {};

        if (strcmp(status, "ok") != 0)
                reasons_add(&reasons, "a \"reason\"");
        assert_int_equal(
                run_list_add_end(path, run_of(number, cookie), status, &counts, &reasons, "data/*.data"), 0);
}

static size_t read_runs(bool is_in_run)
{
        char *text;

        json_decref(answer);
        assert_int_equal(run_list_read(path, is_in_run, &text), 0);
        answer = json_loads(text, 0, NULL);
        assert_non_null(answer);
        free(text);
        return json_array_size(json_object_get(answer, "runs"));
}

/* Compares a run with JSON that has ' for ". */
static void check_run(size_t i, const char *json)
{
        json_t *run = json_array_get(json_object_get(answer, "runs"), i);
        char text[700], found[700];

        snprintf(text, sizeof text, "%s", json);
        for (char *c = text; *c; c++)
                *c = *c == '\'' ? '"' : *c;
        if (json_is_string(json_object_get(run, "end")))
                json_object_set_new(run, "end", json_string("E"));
        found[json_dumpb(run, found, sizeof found - 1, JSON_COMPACT | JSON_SORT_KEYS)] = '\0';
        assert_string_equal(found, text);
}

#define BEGUN "{'begin':'1970-01-01T00:16:40Z',"
#define NO_END BEGUN "'end':null,"
#define OPEN(ended, by, run, status)                                                                         \
        NO_END "'ended':" ended ",'ended_by':" by ",'events':null,'files':null,'reasons':null,'run':" run    \
               ",'scenario':'beam','status':'" status "'}"
#define CLOSED(ended, by, reasons, run, status)                                                              \
        BEGUN "'end':'E','ended':" ended ",'ended_by':" by ",'events':{'complete':12,'lost':1,"              \
              "'partial':2,'rejected':0,'triggers':15},'files':['data/*.data'],'reasons':" reasons           \
              ",'run':" run ",'scenario':'beam','status':'" status "'}"

static void write_text(const char *mode, const char *bytes, size_t n)
{
        FILE *f = fopen(path, mode);

        assert_non_null(f);
        assert_int_equal(fwrite(bytes, 1, n, f), n);
        assert_int_equal(fclose(f), 0);
}

static int set_up(void **state)
{
        (void)unlink(path);
        return 0;
}

TEST_WITH(a_run_is_listed_from_its_begin_on, set_up, NULL)
{
        assert_int_equal(read_runs(false), 0);
        begin(7, 0xA);
        assert_int_equal(read_runs(true), 1);
        check_run(0, OPEN("null", "null", "7", "running"));
        stop(7, 0xA, &by_operator);
        assert_int_equal(read_runs(true), 1);
        check_run(0, OPEN("'stop'", "'10.0.0.9:4711'", "7", "running"));
        end(7, 0xA, "ok");
        assert_int_equal(read_runs(true), 1);
        check_run(0, CLOSED("'stop'", "'10.0.0.9:4711'", "[]", "7", "ok"));
}

/* Its DFM was killed, and no DFM resumed it. How it ended is known if its DFM knew. */
TEST_WITH(a_run_without_an_end_is_told_from_one_that_goes_on, set_up, NULL)
{
        begin(1, 0xA);
        begin(2, 0xB);
        stop(2, 0xB, &by_fault);
        begin(3, 0xC);
        stop(3, 0xC, &by_operator);
        begin(4, 0xD);
        assert_int_equal(read_runs(true), 4);
        check_run(0, OPEN("'unknown'", "null", "1", "unknown"));
        check_run(1, OPEN("'fault'", "'\\\"disk\\\" full'", "2", "unknown"));
        check_run(2, OPEN("'stop'", "'10.0.0.9:4711'", "3", "unknown"));
        check_run(3, OPEN("null", "null", "4", "running"));
        assert_int_equal(read_runs(false), 4);
        check_run(3, OPEN("'unknown'", "null", "4", "unknown"));
}

/* A DFM that resumes a run lists it again, and does not know who stopped it. */
TEST_WITH(a_resumed_run_is_one_run, set_up, NULL)
{
        static const struct run_list_stop by_signal = {"signal", ""};

        begin(7, 0xA);
        stop(7, 0xA, &by_operator);
        assert_int_equal(run_list_add_begin(path, run_of(7, 0xA), 2000 * NS_PER_S, "beam"), 0);
        stop(7, 0xA, &by_signal);
        end(7, 0xA, "fell short");
        assert_int_equal(read_runs(false), 1);
        check_run(0, CLOSED("'stop'", "'10.0.0.9:4711'", "['a \\\"reason\\\"']", "7", "fell short"));
}

TEST_WITH(runs_of_one_number_stay_apart, set_up, NULL)
{
        begin(7, 0xA);
        end(7, 0xA, "ok");
        begin(7, 0xB);
        assert_int_equal(read_runs(true), 2);
        check_run(0, CLOSED("'unknown'", "null", "[]", "7", "ok"));
        check_run(1, OPEN("null", "null", "7", "running"));
}

TEST_WITH(damaged_lines_hide_no_other_run, set_up, NULL)
{
        static const char zeros[20], *const lines[] = {"\n",
                                                       "{}\n",
                                                       "[1]\n",
                                                       "{\"run\":\"x\",\"cookie\":\"b\"}\n",
                                                       "{\"run\":5,\"cookie\":6}\n",
                                                       "{\"cookie\":\"c\",\"end\":\"1\"}\n",
                                                       "{\"run\":7,\"coo"};

        begin(6, 0xA);
        write_text("a", zeros, sizeof zeros);
        for (size_t i = 0; i < ARRAY_SIZE(lines); i++)
                write_text("a", lines[i], strlen(lines[i]));
        begin(7, 0xB);
        assert_int_equal(read_runs(true), 2);
        check_run(0, OPEN("'unknown'", "null", "6", "unknown"));
        check_run(1, OPEN("null", "null", "7", "running"));
}

/* A name from another process may be any bytes. */
TEST_WITH(texts_that_are_not_utf8_are_left_out, set_up, NULL)
{
        static const struct run_list_stop foreign = {"signal", "\xff\xfe"};

        begin(7, 0xA);
        stop(7, 0xA, &foreign);
        assert_int_equal(read_runs(false), 1);
        check_run(0, OPEN("'signal'", "null", "7", "unknown"));
}

TEST_WITH(the_last_runs_of_a_large_file_are_read, set_up, NULL)
{
        static char line[1 << 20];
        json_t *runs;

        memset(line, 'x', sizeof line);
        for (int i = 0; i < 5; i++)
                write_text("a", line, sizeof line);
        for (uint32_t i = 1; i <= RUN_LIST_MAX + 9; i++) {
                begin(i, i);
                end(i, i, "ok");
        }
        assert_int_equal(read_runs(false), RUN_LIST_MAX);
        runs = json_object_get(answer, "runs");
        assert_int_equal(json_integer_value(json_object_get(json_array_get(runs, 0), "run")), 10);
        check_run(RUN_LIST_MAX - 1, CLOSED("'unknown'", "null", "[]", "265", "ok"));
}

/* A DFM that starts learns how the last run ended. */
TEST_WITH(the_last_run_is_read_if_it_has_ended, set_up, NULL)
{
        struct run_list_outcome last;

        assert_false(run_list_read_last(path, &last));
        begin(7, 0xA);
        assert_false(run_list_read_last(path, &last));
        end(7, 0xA, "fell short");
        write_text("a", "{\"run\":8\n[]\n", 12);
        assert_true(run_list_read_last(path, &last));
        assert_int_equal(last.run, 7);
        assert_string_equal(last.status, "fell short");
        assert_int_equal(last.reasons.n, 1);
        assert_string_equal(last.reasons.text[0], "a \"reason\"");
        begin(8, 0xB);
        assert_false(run_list_read_last(path, &last));
        end(8, 0xB, "ok");
        assert_true(run_list_read_last(path, &last));
        assert_int_equal(last.run, 8);
        assert_int_equal(last.reasons.n, 0);
}

/* None of them blocks the event loop. */
TEST_WITH(only_a_regular_file_is_used, set_up, NULL)
{
        char *text;

        assert_int_equal(mkfifo(path, 0600), 0);
        assert_int_equal(run_list_add_begin(path, run_of(1, 1), 0, "beam"), -EINVAL);
        assert_int_equal(run_list_read(path, false, &text), -EINVAL);
        (void)unlink(path);
        assert_int_equal(mkdir(path, 0700), 0);
        assert_true(run_list_add_begin(path, run_of(1, 1), 0, "beam") < 0);
        assert_true(run_list_read(path, false, &text) < 0);
        (void)rmdir(path);
        assert_int_equal(symlink("/dev/null", path), 0);
        assert_int_equal(run_list_add_begin(path, run_of(1, 1), 0, "beam"), -ELOOP);
        assert_int_equal(run_list_read(path, false, &text), -ELOOP);
}

int main(int argc, char **argv)
{
        int failed, fd = mkstemp(path);

        if (fd < 0)
                return 1;
        close(fd);
        failed = test_run(argc, argv, NULL, NULL);
        json_decref(answer);
        (void)unlink(path);
        return failed;
}
