/* The record of a machine's runs: numbers never repeat, and only an unfinished run can be resumed. */
#include "../test.h"

#include <stdio.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "sys/loop.h"
#include "node/run_record.h"

static char folder[] = "/tmp/evb-record-XXXXXX";
static uint64_t set_back_ns;

uint64_t __real_clock_utc_ns(void);
uint64_t __wrap_clock_utc_ns(void)
{
        return __real_clock_utc_ns() - set_back_ns;
}

static void path_of(const char *name, char *path, size_t size_bytes)
{
        snprintf(path, size_bytes, "%s/%s", folder, name);
}

static uint32_t next_number(void)
{
        char path[RUN_RECORD_PATH_MAX];
        uint32_t number;

        (void)run_record_next_number(&number, false, path);
        return number;
}

static struct dfm_previous previous(const struct run_record *s)
{
        return run_record_previous(s).dfm;
}

static void put_bytes(const char *name, const char *bytes, size_t n)
{
        char path[128];
        FILE *f;

        path_of(name, path, sizeof path);
        f = fopen(path, "w");
        assert_non_null(f);
        assert_int_equal(fwrite(bytes, 1, n, f), n);
        assert_int_equal(fclose(f), 0);
}

static void put(const char *name, const char *text)
{
        put_bytes(name, text, strlen(text));
}

static void drop(const char *name)
{
        char path[128];

        path_of(name, path, sizeof path);
        (void)unlink(path);
        (void)rmdir(path);
}

static uint32_t time_now(void)
{
        return (uint32_t)(clock_utc_ns() / NS_PER_S);
}

TEST(numbers_do_not_repeat)
{
        enum { PROCESSES = 4, EACH = 50 };
        bool seen[PROCESSES * EACH + 1] = {};
        int pipe_fds[2];
        uint32_t number;

        drop("run-number");
        assert_int_equal(pipe(pipe_fds), 0);
        for (int i = 0; i < PROCESSES; i++) {
                pid_t pid = fork();

                assert_true(pid >= 0);
                if (pid > 0)
                        continue;
                for (int k = 0; k < EACH; k++) {
                        number = next_number();
                        if (write(pipe_fds[1], &number, sizeof number) != sizeof number)
                                _exit(1);
                }
                _exit(0);
        }
        close(pipe_fds[1]);
        for (int i = 0; i < PROCESSES * EACH; i++) {
                assert_int_equal(read(pipe_fds[0], &number, sizeof number), sizeof number);
                assert_in_range(number, 1, PROCESSES * EACH);
                assert_false(seen[number]);
                seen[number] = true;
        }
        close(pipe_fds[0]);
        for (int i = 0; i < PROCESSES; i++) {
                int status;

                assert_true(wait(&status) > 0);
                assert_int_equal(status, 0);
        }
}

/* A small number may have been used before, so a damaged file leads to the time instead. */
TEST(a_damaged_file_does_not_restart_the_numbers)
{
        static const char *const texts[] = {"x\n",          "-3\n",  "12", "99999999999999999999999\n",
                                            "4294967295\n", "1 2\n", "\n", ""};

        for (size_t i = 0; i < ARRAY_SIZE(texts); i++) {
                uint32_t before = time_now(), number;

                put("run-number", texts[i]);
                number = next_number();
                assert_in_range(number, before, time_now());
                assert_int_equal(next_number(), number + 1);
        }
        put("run-number", "41\n");
        assert_int_equal(next_number(), 42);
}

/* A crash of the machine may leave a file of zeros, or an empty one. Only a file that does not exist is new.
 */
TEST(an_empty_or_zero_filled_file_is_not_a_new_one)
{
        static const struct {
                const char *bytes;
                size_t n;
        } files[] = {{"", 0}, {"\0\0\0\0", 4}, {"41\n\0\0", 5}};
        char path[RUN_RECORD_PATH_MAX];
        uint32_t number = 77;

        for (size_t i = 0; i < ARRAY_SIZE(files); i++) {
                put_bytes("run-number", files[i].bytes, files[i].n);
                assert_int_equal(run_record_next_number(&number, true, path), -EBADMSG);
                assert_int_equal(run_record_next_number(&number, true, path), -EBADMSG);
                assert_int_equal(number, 77);
        }
        drop("run-number");
        assert_int_equal(run_record_next_number(&number, true, path), 0);
        assert_int_equal(number, 1);
        /* A process that died before it stored its first number. */
        put("run-number", "0\n");
        assert_int_equal(run_record_next_number(&number, true, path), 0);
        assert_int_equal(number, 1);
}

TEST(without_a_file_the_number_is_the_time)
{
        uint32_t before = time_now(), number;
        char path[128];

        drop("run-number");
        path_of("run-number", path, sizeof path);
        assert_int_equal(mkdir(path, 0700), 0); /* no user can write to a directory as if it were a file */
        number = next_number();
        assert_in_range(number, before, time_now());
        set_back_ns = 3600 * NS_PER_S;
        assert_int_equal(next_number(), number + 1);
        assert_int_equal(next_number(), number + 2);
        set_back_ns = 0;
        drop("run-number");
}

/* run.number = next gets a number of the sequence or an error, and leaves a damaged file as it is. */
TEST(a_strict_number_is_never_the_time)
{
        char path[RUN_RECORD_PATH_MAX], directory[128];
        uint32_t number = 77;

        drop("run-number");
        assert_int_equal(run_record_next_number(&number, true, path), 0);
        assert_int_equal(number, 1);
        put("run-number", "41\n");
        assert_int_equal(run_record_next_number(&number, true, path), 0);
        assert_int_equal(number, 42);
        put("run-number", "12");
        assert_int_equal(run_record_next_number(&number, true, path), -EBADMSG);
        assert_int_equal(run_record_next_number(&number, true, path), -EBADMSG);
        drop("run-number");
        path_of("run-number", directory, sizeof directory);
        assert_int_equal(mkdir(directory, 0700), 0);
        assert_int_equal(run_record_next_number(&number, true, path), -EISDIR);
        assert_string_equal(path, directory);
        assert_int_equal(number, 42);
        drop("run-number");
}

TEST(only_an_unfinished_run_can_be_resumed)
{
        struct run_record s, again;
        struct dfm_previous f;

        drop("dfm-127.0.0.1-5");
        run_record_open(&s, "127.0.0.1", 5);
        assert_true(s.fd >= 0);
        assert_false(previous(&s).known);
        assert_int_equal(run_record_write(&s, 7, 0xABC, 5 * NS_PER_S, RUN_STAGE_RUNNING, ""), 0);
        /* Another DFM with this address does not get the record. */
        run_record_open(&again, "127.0.0.1", 5);
        assert_true(again.fd < 0);
        assert_false(previous(&again).known);
        assert_int_equal(run_record_write(&again, 8, 1, 0, RUN_STAGE_ENDED, ""), -ENOENT);
        run_record_close(&s);
        run_record_open(&s, "127.0.0.1", 5);
        f = previous(&s);
        assert_true(f.known);
        assert_int_equal(f.cookie, 0xABC);
        assert_true(f.age_ns >= 5 * NS_PER_S);
        for (enum run_stage stage = RUN_STAGE_ENDED; stage <= RUN_STAGE_REPORTED; stage++) {
                assert_int_equal(run_record_write(&s, 7, 0xABC, 1, stage, ""), 0);
                f = previous(&s);
                assert_true(f.known);
                assert_int_equal(f.cookie, 0);
        }
        run_record_close(&s);
        drop("dfm-127.0.0.1-5");
}

/* The next DFM can name a run whose DFM was killed before its report, and when it began. */
TEST(a_run_without_a_report_is_named)
{
        static const bool unreported[] = {[RUN_STAGE_RUNNING] = false,
                                          [RUN_STAGE_STOPPED] = false,
                                          [RUN_STAGE_ENDED] = true,
                                          [RUN_STAGE_REPORTED] = false};

        for (enum run_stage stage = RUN_STAGE_RUNNING; stage <= RUN_STAGE_REPORTED; stage++) {
                struct run_record s;
                struct run_previous f;

                run_record_open(&s, "127.0.0.1", 5);
                assert_int_equal(run_record_write(&s, 7, 0xABC, NS_PER_S, stage, ""), 0);
                f = run_record_previous(&s);
                run_record_close(&s);
                assert_fields(&f, run, 7, is_unreported, unreported[stage]);
                assert_in_range(clock_utc_ns() - f.began_utc_ns, NS_PER_S, 600 * NS_PER_S);
        }
        drop("dfm-127.0.0.1-5");
}

/* The next DFM resumes a run that was to end, and lets it end for the same reason. */
TEST(a_run_that_ends_keeps_its_cause)
{
        static const char *const causes[] = {"", "the output of sfi1 failed (disk full)"};

        for (size_t i = 0; i < ARRAY_SIZE(causes); i++) {
                for (enum run_stage stage = RUN_STAGE_RUNNING; stage <= RUN_STAGE_REPORTED; stage++) {
                        struct run_record s;
                        struct run_previous f;

                        run_record_open(&s, "127.0.0.1", 5);
                        assert_int_equal(run_record_write(&s, 7, 0xABC, NS_PER_S, stage, causes[i]), 0);
                        f = run_record_previous(&s);
                        run_record_close(&s);
                        assert_fields(&f.dfm, cookie, stage <= RUN_STAGE_STOPPED ? 0xABC : 0, stopped,
                                      stage == RUN_STAGE_STOPPED, failed, i);
                        assert_string_equal(f.cause, causes[i]);
                }
        }
        drop("dfm-127.0.0.1-5");
}

/* Until the first run begins, the file is empty. */
TEST(a_damaged_record_of_a_run_is_noticed)
{
        static const struct {
                const char *bytes;
                size_t n;
                bool damaged;
        } files[] = {{"", 0, false}, {"nonsense", 8, true}, {"\0\0\0\0", 4, true}};

        for (size_t i = 0; i < ARRAY_SIZE(files); i++) {
                _cleanup_(run_record_close) struct run_record s;

                put_bytes("dfm-127.0.0.1-5", files[i].bytes, files[i].n);
                run_record_open(&s, "127.0.0.1", 5);
                assert_false(previous(&s).known);
                assert_int_equal(run_record_previous(&s).is_damaged, files[i].damaged);
        }
        drop("dfm-127.0.0.1-5");
}

static enum run_age age_of(const char *text, uint64_t *ret_ns)
{
        struct run_record s;
        struct run_previous f;

        put("dfm-127.0.0.1-6", text);
        run_record_open(&s, "127.0.0.1", 6);
        f = run_record_previous(&s);
        assert_false(f.is_damaged);
        *ret_ns = f.dfm.age_ns;
        run_record_close(&s);
        drop("dfm-127.0.0.1-6");
        return f.age;
}

/* The record as a DFM writes it for a run that began `age_ns` ago, with another beginning by the wall clock,
 * and by another start of the machine if `other_boot`. */
static const char *record(uint64_t age_ns, int64_t step_ns, bool other_boot)
{
        static char text[256];
        char path[128], *began, *boot, *end;
        struct run_record s;
        FILE *f;

        run_record_open(&s, "127.0.0.1", 6);
        assert_int_equal(run_record_write(&s, 7, 0xABC, age_ns, RUN_STAGE_RUNNING, ""), 0);
        run_record_close(&s);
        path_of("dfm-127.0.0.1-6", path, sizeof path);
        f = fopen(path, "r");
        assert_non_null(fgets(text, sizeof text, f));
        fclose(f);
        began = strstr(text, "began ");
        boot = strstr(text, "boot ");
        assert_true(began && boot);
        if (other_boot)
                boot[5] = boot[5] == '0' ? '1' : '0';
        end = strdup(strstr(began + 6, " "));
        snprintf(began + 6, 200, "%llu%s", strtoull(began + 6, NULL, 10) - (unsigned long long)step_ns, end);
        free(end);
        return text;
}

/* The clock may be set while a run goes on; only after a start of the machine there is none but it. */
TEST(the_age_of_a_run_does_not_follow_the_wall_clock)
{
        const uint64_t hour_ns = 3600 * NS_PER_S;
        uint64_t age_ns;

        assert_int_equal(age_of(record(5 * NS_PER_S, 0, false), &age_ns), RUN_AGE_CERTAIN);
        assert_in_range(age_ns, 5 * NS_PER_S, hour_ns - 1);
        assert_int_equal(age_of(record(5 * NS_PER_S, (int64_t)hour_ns, false), &age_ns), RUN_AGE_STEPPED);
        assert_in_range(age_ns, 5 * NS_PER_S, hour_ns - 1);
        assert_int_equal(age_of(record(5 * NS_PER_S, -(int64_t)hour_ns, false), &age_ns), RUN_AGE_STEPPED);
        assert_in_range(age_ns, 5 * NS_PER_S, hour_ns - 1);
        assert_int_equal(age_of(record(5 * NS_PER_S, (int64_t)hour_ns, true), &age_ns), RUN_AGE_BY_WALL);
        assert_in_range(age_ns, hour_ns + 5 * NS_PER_S, 2 * hour_ns);
        assert_int_equal(age_of(record(5 * NS_PER_S, -(int64_t)hour_ns, true), &age_ns), RUN_AGE_UNKNOWN);
        assert_int_equal(age_ns, 0);
        /* It began before the machine's clock did. */
        assert_int_equal(age_of(record(1000000 * hour_ns / 4, 0, false), &age_ns), RUN_AGE_CERTAIN);
        assert_true(age_ns >= 1000000 * hour_ns / 4);
        /* A record without a start of the machine, as earlier versions wrote it. */
        assert_int_equal(age_of("run 7 cookie abc began 1 running\n", &age_ns), RUN_AGE_BY_WALL);
        assert_true(age_ns > hour_ns);
}

int main(int argc, char **argv)
{
        int failed;

        if (!mkdtemp(folder) || setenv("STATE_DIRECTORY", folder, 1) < 0)
                return 1;
        failed = test_run(argc, argv, NULL, NULL);
        drop("run-number");
        (void)rmdir(folder);
        return failed;
}
