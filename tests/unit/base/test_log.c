/* The log: one line per message with sender, error, and priority if there is no journal; what is folded,
 * limited and coloured; threads. */
#include "../test.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/log.h"

static char said[1 << 20];

static int caught, own;

static void catch_lines(void)
{
        own = dup(STDERR_FILENO);
        caught = memfd_create("log", MFD_CLOEXEC);
        assert_true(own >= 0 && caught >= 0);
        assert_int_equal(dup2(caught, STDERR_FILENO), STDERR_FILENO);
}

/* Reads the new lines into `said`. */
static const char *release_lines(void)
{
        ssize_t n = pread(caught, said, sizeof said - 1, 0);

        dup2(own, STDERR_FILENO);
        close(own);
        close(caught);
        assert_true(n >= 0);
        said[n] = '\0';
        return said;
}

TEST(lines_name_their_sender)
{
        unsetenv("JOURNAL_STREAM");
        catch_lines();
        log_open("", LOG_LEVEL_INFO);
        log_info("no name");
        log_open("ros3", LOG_LEVEL_INFO);
        log_warning("%d of %s", 2, "them");
        log_debug("too much");
        log_open("ros3", LOG_LEVEL_DEBUG);
        log_debug("enough");
        assert_string_equal(release_lines(), "no name\nros3: 2 of them\nros3: enough\n");
        assert_int_equal(log_level(), LOG_LEVEL_DEBUG);
}

TEST(errors_are_named_and_returned)
{
        unsetenv("JOURNAL_STREAM");
        log_open("dfm", LOG_LEVEL_WARNING);
        catch_lines();
        errno = EIO;
        assert_int_equal(log_error_errno(-ENOENT, "opening: %m"), -ENOENT);
        assert_int_equal(log_warning_errno(EACCES, "opening: %m"), -EACCES);
        /* Written or not, the code is returned, and errno is unchanged. */
        assert_int_equal(log_full_errno(LOG_LEVEL_INFO, -EAGAIN, "not said"), -EAGAIN);
        assert_int_equal(errno, EIO);
        assert_string_equal(release_lines(),
                            "dfm: opening: No such file or directory\ndfm: opening: Permission denied\n");
}

/* There is no journal in a test, or none that this test would disturb: an unreachable one is enough. */
static void set_journal_stream(int64_t more)
{
        char name[64];
        struct stat st;

        assert_int_equal(fstat(STDERR_FILENO, &st), 0);
        snprintf(name, sizeof name, "%llu:%llu", (unsigned long long)st.st_dev,
                 (unsigned long long)st.st_ino + (unsigned long long)more);
        setenv("JOURNAL_STREAM", name, 1);
}

TEST(lines_have_priorities_if_the_journal_is_unreachable)
{
        if (access("/run/systemd/journal/socket", F_OK) == 0)
                skip();
        catch_lines();
        set_journal_stream(0);
        log_open("sfi1", LOG_LEVEL_DEBUG);
        log_set_role("sfi");
        log_error("a");
        log_warning("b");
        log_info("c");
        log_debug("d");
        unsetenv("JOURNAL_STREAM");
        assert_string_equal(release_lines(), "<3>sfi1: a\n<4>sfi1: b\n<6>sfi1: c\n<7>sfi1: d\n");
}

TEST(a_redirected_service_has_no_priorities)
{
        catch_lines();
        set_journal_stream(1);
        log_open("sfi1", LOG_LEVEL_DEBUG);
        unsetenv("JOURNAL_STREAM");
        log_error("a");
        assert_string_equal(release_lines(), "sfi1: a\n");
}

TEST(long_lines_are_cut_and_ended)
{
        char name[200], text[3000];

        memset(name, 'n', sizeof name);
        name[sizeof name - 1] = '\0';
        memset(text, 't', sizeof text);
        text[sizeof text - 1] = '\0';
        log_open(name, LOG_LEVEL_INFO);
        catch_lines();
        log_info("%s", text);
        release_lines();
        assert_int_equal(strspn(said, "n"), 63);
        assert_int_equal(strlen(said), 63 + strlen(": ") + 767 + 1);
        assert_ptr_equal(strchr(said, '\n'), said + strlen(said) - 1);
}

/* ---- Repeated lines ---- */

static bool is_fake;
static uint64_t fake_ns;

int __real_clock_gettime(clockid_t clock, struct timespec *ret);

int __wrap_clock_gettime(clockid_t clock, struct timespec *ret)
{
        if (!is_fake || clock != CLOCK_MONOTONIC)
                return __real_clock_gettime(clock, ret);
        *ret = (struct timespec){(time_t)(fake_ns / NS_PER_S), (long)(fake_ns % NS_PER_S)};
        return 0;
}

static void begin_folding(void)
{
        unsetenv("JOURNAL_STREAM");
        is_fake = true;
        catch_lines();
        log_open("ros1", LOG_LEVEL_INFO);
}

static const char *end_folding(void)
{
        is_fake = false;
        return release_lines();
}

static void say_same(const char *text)
{
        log_warning("%s", text);
}

TEST(another_line_ends_a_row)
{
        begin_folding();
        for (int i = 0; i < 13; i++)
                say_same("again");
        say_same("other");
        say_same("other");
        log_error("other"); /* of another level */
        say_same("again");
        assert_string_equal(end_folding(), "ros1: again\nros1: again (repeated 12 times)\nros1: other\n"
                                           "ros1: other (repeated 1 time)\nros1: other\nros1: again\n");
}

TEST(time_ends_a_row)
{
        begin_folding();
        say_same("again");
        fake_ns += LOG_FOLD_NS - 1;
        say_same("again");
        log_flush();
        fake_ns += 1;
        log_flush();
        log_flush();
        say_same("again");
        fake_ns += LOG_FOLD_NS;
        log_flush();
        fake_ns += LOG_FOLD_NS;
        say_same("again");
        assert_string_equal(end_folding(), "ros1: again\nros1: again (repeated 1 time)\n"
                                           "ros1: again (repeated 1 time)\nros1: again\n");
}

TEST(an_endless_row_is_one_line_in_each_interval)
{
        begin_folding();
        for (int i = 0; i <= 20; i++, fake_ns += LOG_FOLD_NS / 10)
                say_same("again");
        assert_string_equal(
                end_folding(),
                "ros1: again\nros1: again (repeated 10 times)\nros1: again (repeated 10 times)\n");
}

TEST(an_exit_writes_the_count_once)
{
        pid_t child, grandchild;
        int status;

        begin_folding();
        fflush(NULL);
        child = fork();
        if (child == 0) {
                say_same("again");
                say_same("again");
                grandchild = fork();
                if (grandchild == 0)
                        exit(0);
                waitpid(grandchild, &status, 0);
                exit(status == 0 ? 7 : 1);
        }
        assert_true(child > 0);
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 7);
        assert_string_equal(end_folding(), "ros1: again\nros1: again (repeated 1 time)\n");
}

static void say_foreign_sender(int i)
{
        log_limited(LOG_LEVEL_WARNING, NULL, "stranger %d", i);
}

TEST(a_place_has_a_limit)
{
        char expected[4096];
        int n = 0, i = 0;

        begin_folding();
        for (; i < LOG_LIMIT_LINES + 5; i++)
                say_foreign_sender(i);
        log_info("others are not limited");
        fake_ns += LOG_LIMIT_NS - 1;
        say_foreign_sender(i++);
        log_flush();
        fake_ns += 1;
        log_flush();
        say_foreign_sender(i++);
        for (int k = 0; k < LOG_LIMIT_LINES; k++)
                n += snprintf(expected + n, sizeof expected - (size_t)n, "ros1: stranger %d\n", k);
        snprintf(expected + n, sizeof expected - (size_t)n,
                 "ros1: others are not limited\n"
                 "ros1: 6 more messages of this kind were not logged; the last one: stranger %d\n"
                 "ros1: stranger %d\n",
                 i - 2, i - 1);
        assert_string_equal(end_folding(), expected);
}

/* ---- Terminals ---- */

static void on_a_terminal(const char *term, const char *no_colour, const char *expected)
{
        int master = posix_openpt(O_RDWR | O_NOCTTY), slave, old;
        char got[256], *text = got;
        size_t n = 0;

        assert_true(master >= 0 && grantpt(master) == 0 && unlockpt(master) == 0);
        slave = open(ptsname(master), O_RDWR | O_NOCTTY);
        old = dup(STDERR_FILENO);
        assert_true(slave >= 0 && old >= 0);
        assert_int_equal(dup2(slave, STDERR_FILENO), STDERR_FILENO);
        setenv("TERM", term, 1);
        unsetenv("NO_COLOR");
        if (no_colour)
                setenv("NO_COLOR", no_colour, 1);
        log_open("dfm", LOG_LEVEL_INFO);
        log_error("bad");
        /* A terminal passes on a line in parts. */
        for (ssize_t k = 1; k > 0 && n < sizeof got - 1 && (n == 0 || got[n - 1] != '\n'); n += (size_t)k) {
                k = read(master, got + n, sizeof got - 1 - n);
                assert_true(k > 0);
        }
        dup2(old, STDERR_FILENO);
        close(old);
        close(slave);
        close(master);
        unsetenv("NO_COLOR");
        log_open("dfm", LOG_LEVEL_INFO);
        got[n] = '\0';
        if (strcmp(term, "dumb") != 0) {
                assert_memory_equal(got, "\r\033[K", 4);
                text += 4;
        }
        /* The time of day. */
        assert_int_equal(strspn(text, "0123456789:"), 8);
        assert_true(text[2] == ':' && text[5] == ':' && text[8] == ' ');
        assert_string_equal(text + 9, expected);
}

TEST(terminals_show_levels_as_colours)
{
        unsetenv("JOURNAL_STREAM");
        on_a_terminal("xterm", NULL, "\033[1;31mdfm: bad\033[0m\r\n");
        on_a_terminal("xterm", "", "\033[1;31mdfm: bad\033[0m\r\n");
        on_a_terminal("xterm", "1", "dfm: bad\r\n");
        on_a_terminal("dumb", NULL, "dfm: bad\r\n");
}

TEST(control_characters_are_replaced)
{
        catch_lines();
        log_open("sfi1", LOG_LEVEL_INFO);
        log_info("a\033[2Jb\nc\x7f"
                 "d\302\233"
                 "e\303\244");
        assert_string_equal(release_lines(), "sfi1: a?[2Jb?c?d??e\303\244\n");
}

/* ---- Threads ---- */

#define THREADS 4
#define LINES 500

static void *say_many(void *ctx)
{
        int thread = *(int *)ctx;

        for (int i = 0; i < LINES; i++) {
                log_info("thread %d line %d", thread, i);
                log_set_run((uint32_t)i);
                if (i % 50 == 0)
                        log_flush();
        }
        return NULL;
}

TEST(threads_do_not_mix_their_lines)
{
        int numbers[THREADS], next[THREADS] = {}, thread, line, lines = 0;
        pthread_t threads[THREADS];
        char *save = NULL;

        catch_lines();
        log_open("sfi1", LOG_LEVEL_INFO);
        for (int i = 0; i < THREADS; i++) {
                numbers[i] = i;
                assert_int_equal(pthread_create(&threads[i], NULL, say_many, &numbers[i]), 0);
        }
        for (int i = 0; i < THREADS; i++)
                pthread_join(threads[i], NULL);
        release_lines();
        for (char *l = strtok_r(said, "\n", &save); l; l = strtok_r(NULL, "\n", &save), lines++) {
                int end = 0;

                assert_int_equal(sscanf(l, "sfi1: thread %d line %d%n", &thread, &line, &end), 2);
                assert_int_equal(end, strlen(l));
                assert_int_equal(next[thread]++, line);
        }
        assert_int_equal(lines, THREADS * LINES);
}

/* ---- Levels ---- */

/* The last test, because log_set_level() stays. */
TEST(the_environment_and_then_the_command_line_set_the_level)
{
        static const struct {
                const char *wished;
                enum log_level level;
        } levels[] = {{"error", LOG_LEVEL_ERROR},
                      {"warning", LOG_LEVEL_WARNING},
                      {"info", LOG_LEVEL_INFO},
                      {"debug", LOG_LEVEL_DEBUG},
                      {"loud", LOG_LEVEL_INFO}};

        assert_null(log_level_for_children());
        for (size_t i = 0; i < sizeof levels / sizeof levels[0]; i++) {
                setenv("EVB_LOG", levels[i].wished, 1);
                log_open("dfm", LOG_LEVEL_INFO);
                assert_int_equal(log_level(), levels[i].level);
        }
        log_set_level(LOG_LEVEL_WARNING);
        log_open("dfm", LOG_LEVEL_INFO);
        assert_int_equal(log_level(), LOG_LEVEL_WARNING);
        assert_string_equal(log_level_for_children(), "warning");
        log_set_level(LOG_LEVEL_DEBUG);
        assert_string_equal(log_level_for_children(), "debug");
        unsetenv("EVB_LOG");
}

int main(int argc, char **argv)
{
        unsetenv("EVB_LOG");
        return test_run(argc, argv, NULL, NULL);
}
