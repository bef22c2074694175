/* Command lines: the meaning of each word, and the errors. */

#include "../test.h"

#include <unistd.h>

#include "base/log.h"
#include "base/quantity.h"
#include "cmd/options.h"

static struct options o;
static const char *node, *fast, *other, *config, *late, *dead, *burst;
static unsigned common = OPTION_SET | OPTION_JSON | OPTION_PROGRESS;
static struct option_list boards;
static uint64_t depth, delay_ns;
static double share;
static char line[4096], said[2][4096]; /* the parsed line; the texts on standard output and standard error */

static int nothing(int argc, char **argv)
{
        return 0;
}

static int turn(int fd, FILE *to)
{
        int old = dup(fd);

        assert_non_null(to);
        assert_true(old >= 0);
        fflush(NULL);
        assert_true(dup2(fileno(to), fd) == fd);
        return old;
}

static void turn_back(int fd, int old, FILE *from, char text[static 4096])
{
        fflush(NULL);
        assert_true(dup2(old, fd) == fd);
        close(old);
        rewind(from);
        text[fread(text, 1, 4095, from)] = '\0';
        fclose(from);
}

/* Parses "test WORDS" for a command with n_words positional arguments. */
static int parse(size_t n_words, const char *words)
{
        const struct command command = {"test", nothing, "FILE", "Nothing at all.", common, 2};
        const struct option_entry own[] = {
                {"node", "NAME", "name of the node", &node, .was = "host"},
                {"fast", NULL, "run fast", &fast},
                {"config", "FILE", "scenario file", &config},
                {"board", "NAME", "board; repeatable", .list = &boards, .verbs = 3},
                {"other", "NAME", "option of other verbs", &other, .verbs = 5},
                {"fault", "NAME=VALUE", "fault; repeatable"},
                {"late", "TIME", "delay", &late, .part_of = "fault"},
                {"is-dead", NULL, "silence", &dead, .part_of = "fault", .part = "dead"},
                {"burst", "BYTES", "", &burst, .key = "qos.burst"},
                {"color", "C", "", &late, .now = "--node NAME:C"},
                {"depth", "N", "depth", OPTION_NUMBER(quantity_parse_count, &depth, 2, 9, "2 to 9")},
                {"share", "F", "share", OPTION_FRACTION(&share, "a fraction")},
                {"lag", "TIME", "lag", &late, .part_of = "fault",
                 OPTION_NUMBER(quantity_parse_time, &delay_ns, 0, UINT64_MAX, "a time")}};
        FILE *out = tmpfile(), *err = tmpfile();
        char *argv[OPTIONS_SETTINGS_MAX + 20] = {line}, *save = NULL;
        int argc = 1, old_out, old_err, r;

        snprintf(line, sizeof line, "test %s", words);
        strtok_r(line, " ", &save);
        while ((argv[argc] = strtok_r(NULL, " ", &save)) != NULL)
                assert_true(++argc < (int)ARRAY_SIZE(argv));
        node = fast = late = dead = burst = NULL;
        old_out = turn(STDOUT_FILENO, out);
        old_err = turn(STDERR_FILENO, err);
        r = options_parse(&o, &command, own, ARRAY_SIZE(own), n_words, argc, argv);
        turn_back(STDERR_FILENO, old_err, err, said[1]);
        turn_back(STDOUT_FILENO, old_out, out, said[0]);
        return r;
}

static void assert_wrong(size_t n_words, const char *words, const char *what)
{
        assert_int_equal(parse(n_words, words), 2);
        assert_string_equal(said[0], "");
        assert_memory_equal(said[1], "evb test: ", strlen("evb test: "));
        if (!strstr(said[1], what))
                fail_msg("got \"%s\", expected \"%s\"", said[1], what);
}

TEST(test_words)
{
        assert_int_equal(parse(2, "a b"), OPTIONS_GO_ON);
        assert_int_equal(o.n_words, 2);
        assert_string_equal(o.words[0], "a");
        assert_string_equal(o.words[1], "b");
        assert_false(o.json || o.progress || o.n_settings > 0 || node || fast);
        /* A single dash is an argument. */
        assert_int_equal(parse(1, "-"), OPTIONS_GO_ON);
        assert_string_equal(o.words[0], "-");
        assert_wrong(1, "a b", "unexpected argument \"b\"");
        assert_wrong(1, "", "missing argument FILE");
        assert_wrong(2, "a", "missing argument FILE");
}

TEST(test_own)
{
        assert_int_equal(parse(0, "--node n1 --fast"), OPTIONS_GO_ON);
        assert_string_equal(node, "n1");
        assert_non_null(fast);
        assert_int_equal(parse(0, "--node=n=2"), OPTIONS_GO_ON);
        assert_string_equal(node, "n=2");
        assert_null(fast);
        assert_int_equal(parse(0, "--node a --node b"), OPTIONS_GO_ON);
        assert_string_equal(node, "b");
        assert_wrong(0, "--node", "option --node requires an argument; see `evb test --help`");
}

TEST(a_list_keeps_all_values_in_their_order)
{
        assert_int_equal(parse(1, "--board b --node n1 --board=a file --board b"), OPTIONS_GO_ON);
        assert_int_equal(boards.n, 3);
        assert_string_equal(boards.values[0], "b");
        assert_string_equal(boards.values[1], "a");
        assert_string_equal(boards.values[2], "b");
        assert_string_equal(node, "n1");
        free(boards.values);
        boards = (struct option_list){};
        assert_wrong(0, "--board", "option --board requires an argument");
}

TEST(the_last_of_verbose_and_quiet_sets_the_level)
{
        assert_int_equal(parse(1, "-v file"), OPTIONS_GO_ON);
        assert_true(log_level() == LOG_LEVEL_DEBUG && !o.quiet);
        assert_int_equal(parse(1, "file --quiet"), OPTIONS_GO_ON);
        assert_true(log_level() == LOG_LEVEL_WARNING && o.quiet);
        assert_int_equal(parse(0, "-q --verbose"), OPTIONS_GO_ON);
        assert_true(log_level() == LOG_LEVEL_DEBUG && !o.quiet);
        assert_int_equal(parse(0, "-v -q"), OPTIONS_GO_ON);
        assert_true(log_level() == LOG_LEVEL_WARNING && o.quiet);
        /* After "--", it is a word. */
        assert_int_equal(parse(1, "-- -v"), OPTIONS_GO_ON);
        assert_string_equal(o.words[0], "-v");
        assert_int_equal(log_level(), LOG_LEVEL_WARNING);
        assert_wrong(0, "--quiet=yes", "option --quiet=yes takes no argument");
        assert_wrong(0, "-vq", "unknown option -vq");
        log_set_level(LOG_LEVEL_INFO);
}

TEST(test_unknown)
{
        assert_wrong(0, "--slow", "unknown option --slow");
        assert_wrong(0, "--nod x", "unknown option --nod");
        assert_wrong(0, "--nodes x", "unknown option --nodes");
        assert_wrong(0, "-x", "unknown option -x");
        assert_non_null(strstr(said[1], "evb test --help"));
}

TEST(scenario_is_the_old_name_of_config)
{
        assert_int_equal(parse(0, "--config a"), OPTIONS_GO_ON);
        assert_string_equal(config, "a");
        assert_int_equal(parse(0, "--scenario b"), OPTIONS_GO_ON);
        assert_string_equal(config, "b");
        assert_int_equal(parse(0, "--scenario=c"), OPTIONS_GO_ON);
        assert_string_equal(config, "c");
        assert_wrong(0, "--scenari d", "unknown option --scenari");
}

TEST(an_option_may_have_parts)
{
        assert_int_equal(parse(0, "--fault late=1s=2 --fault=dead"), OPTIONS_GO_ON);
        assert_string_equal(late, "1s=2");
        assert_non_null(dead);
        assert_string_equal(said[1], "");
        assert_int_equal(parse(0, "--fault late=1s --fault late=2s"), OPTIONS_GO_ON);
        assert_string_equal(late, "2s");
        assert_null(dead);
        assert_wrong(0, "--fault late", "--fault late: expected late=TIME");
        assert_wrong(0, "--fault dead=1", "--fault dead=1: expected dead;");
        assert_wrong(0, "--fault lat=1", "--fault lat=1: unknown name \"lat\"");
        assert_wrong(0, "--fault node=1", "unknown name \"node\"");
        assert_wrong(0, "--fault", "requires an argument");
        assert_int_equal(parse(0, "--help"), 0);
        assert_non_null(
                strstr(said[0], "\n    late=TIME             delay\n    dead                  silence\n"));
        assert_null(strstr(said[0], "--late"));
}

TEST(an_argument_may_be_a_number)
{
        depth = 5;
        share = 0.25;
        assert_int_equal(parse(0, "--fast"), OPTIONS_GO_ON);
        assert_true(depth == 5 && share == 0.25);
        assert_int_equal(parse(0, "--depth 2 --depth=9 --share 50% --fault lag=2ms"), OPTIONS_GO_ON);
        assert_true(depth == 9 && share == 0.5 && delay_ns == 2 * NS_PER_MS);
        assert_string_equal(late, "2ms");
        for (size_t i = 0; i < 4; i++) {
                static const char *const wrong[] = {"1", "10", "x", "-3"};
                char words[32], expected[64];

                snprintf(words, sizeof words, "--depth %s", wrong[i]);
                snprintf(expected, sizeof expected, "--depth: invalid value \"%s\"; expected 2 to 9\n",
                         wrong[i]);
                assert_wrong(0, words, expected);
        }
        assert_wrong(0, "--share 2", "--share: invalid value \"2\"; expected a fraction\n");
        assert_wrong(0, "--fault lag=x", "--fault lag: invalid value \"x\"; expected a time\n");
}

/* Options of earlier versions that have another name now, or are parts of others, or keys. */
TEST(old_options_work_with_a_warning)
{
        assert_int_equal(parse(0, "--late 1s --is-dead --burst=9 --host n1"), OPTIONS_GO_ON);
        assert_string_equal(node, "n1");
        assert_string_equal(late, "1s");
        assert_non_null(dead);
        assert_string_equal(burst, "9");
        assert_non_null(strstr(said[1], "--late 1s is now --fault late=1s\n"));
        assert_non_null(strstr(said[1], "--is-dead is now --fault dead\n"));
        assert_non_null(strstr(said[1], "--burst 9 is now --set qos.burst=9\n"));
        assert_non_null(strstr(said[1], "--host is now --node\n"));
        assert_int_equal(parse(0, "--color red"), OPTIONS_GO_ON);
        assert_string_equal(late, "red");
        assert_non_null(strstr(said[1], "--color is now --node NAME:C\n"));
        assert_int_equal(parse(0, "--help"), 0);
        assert_null(strstr(said[0], "burst"));
        assert_null(strstr(said[0], "color"));
        assert_null(strstr(said[0], "host"));
        assert_int_equal(parse(0, "--node n1"), OPTIONS_GO_ON);
        assert_string_equal(said[1], "");
}

/* Neither argument wins without a word. A warning about the earlier name may come first. */
TEST(an_option_has_one_of_its_names)
{
        static const char *const wrong[][2] = {
                {"--host n1 --node n2", "--host and --node"},
                {"--node n2 --host=n1", "--host and --node"},
                {"--late 1s --fault late=1s", "--late and --fault late"},
                {"--fault dead --is-dead", "--is-dead and --fault dead"},
                {"--burst 9 --set qos.burst=8", "--burst and --set qos.burst=8"},
                {"--set qos.burst=8 --burst 9", "--burst and --set qos.burst=8"},
                {"--node n1:red --color blue", "--color and --node n1:red"},
                {"--color blue --node=n1:red", "--color and --node n1:red"},
        };

        for (size_t i = 0; i < ARRAY_SIZE(wrong); i++) {
                char expected[128];

                snprintf(expected, sizeof expected,
                         "evb test: %s exclude each other; see `evb test --help`\n", wrong[i][1]);
                assert_int_equal(parse(0, wrong[i][0]), 2);
                if (!strstr(said[1], expected))
                        fail_msg("got \"%s\", expected \"%s\"", said[1], expected);
        }
        assert_int_equal(parse(0, "--color blue --node n1"), OPTIONS_GO_ON);
        assert_int_equal(parse(0, "--node n1:red"), OPTIONS_GO_ON);
        assert_int_equal(parse(0, "--host a --host b --late 1s --fault lag=2s"), OPTIONS_GO_ON);
        assert_int_equal(parse(0, "--burst 9 --set qos.burst-rate=8 --set qos.limit=1"), OPTIONS_GO_ON);
        assert_int_equal(parse(0, "--fault late=1s --fault late=2s"), OPTIONS_GO_ON);
}

TEST(options_of_other_verbs_are_refused)
{
        assert_wrong(0, "--other x", "option --other does not apply here; see `evb test --help`");
        assert_wrong(0, "--other=x", "option --other does not apply here");
        assert_null(other);
        common = OPTION_JSON;
        assert_int_equal(parse(0, "--json"), OPTIONS_GO_ON);
        assert_wrong(0, "--set a.b=1", "option --set does not apply here");
        assert_wrong(0, "--progress", "option --progress does not apply here");
        assert_int_equal(parse(0, "--help"), 0);
        assert_null(strstr(said[0], "--set"));
        assert_null(strstr(said[0], "--other"));
        common = OPTION_SET | OPTION_JSON | OPTION_PROGRESS;
}

TEST(test_settings)
{
        char words[2000] = "";

        assert_int_equal(parse(1, "--set a.b=1 file --set=c.d=2"), OPTIONS_GO_ON);
        assert_int_equal(o.n_settings, 2);
        assert_string_equal(o.settings[0], "a.b=1");
        assert_string_equal(o.settings[1], "c.d=2");
        assert_string_equal(o.words[0], "file");
        assert_wrong(0, "--set", "option --set requires an argument");
        for (int i = 0; i < OPTIONS_SETTINGS_MAX; i++)
                strcat(words, "--set=a.b=1 ");
        assert_int_equal(parse(0, words), OPTIONS_GO_ON);
        assert_int_equal(o.n_settings, OPTIONS_SETTINGS_MAX);
        strcat(words, "--set=a.b=1");
        assert_wrong(0, words, "too many settings");
}

/* The word after --json is its file only if all positional arguments come before it. */
TEST(test_json)
{
        static const struct {
                size_t n_words;
                const char *words, *path, *word;
        } cases[] = {
                {1, "FILE --json", NULL, "FILE"},
                {1, "--json FILE", NULL, "FILE"},
                {1, "FILE --json out", "out", "FILE"},
                {1, "--json=out FILE", "out", "FILE"},
                {1, "FILE --json --progress", NULL, "FILE"},
                {1, "FILE --json=out --progress", "out", "FILE"},
                {0, "--json", NULL, NULL},
                {0, "--json out", "out", NULL},
                {0, "--json --fast", NULL, NULL},
        };

        for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
                assert_int_equal(parse(cases[i].n_words, cases[i].words), OPTIONS_GO_ON);
                assert_true(o.json);
                if (cases[i].path)
                        assert_string_equal(o.json_path, cases[i].path);
                else
                        assert_null(o.json_path);
                assert_int_equal(o.n_words, cases[i].n_words);
                if (cases[i].word)
                        assert_string_equal(o.words[0], cases[i].word);
        }
        assert_wrong(1, "--json FILE out", "unexpected argument \"out\"");
        assert_wrong(1, "FILE --json out more", "unexpected argument \"more\"");
        assert_int_equal(parse(0, "--progress"), OPTIONS_GO_ON);
        assert_true(o.progress);
        assert_false(o.json);
}

TEST(test_json_files)
{
        FILE *f, *err = tmpfile();
        char text[4096];
        int old;

        o = (struct options){};
        assert_null(options_open_json(&o));
        o.json = true;
        assert_ptr_equal(options_open_json(&o), stdout);
        o.json_path = "/dev/null";
        f = options_open_json(&o);
        assert_non_null(f);
        assert_ptr_not_equal(f, stdout);
        assert_true(fputs("{}", f) >= 0 && fflush(f) == 0);
        fclose(f);
        o.json_path = "/nowhere/at/all";
        old = turn(STDERR_FILENO, err);
        f = options_open_json(&o);
        turn_back(STDERR_FILENO, old, err, text);
        assert_null(f);
        assert_non_null(strstr(text, "--json /nowhere/at/all: No such file or directory"));
}

/* The scenario is an argument or --config, and a further word may be the file of --json. */
TEST(scenario_is_argument_or_option)
{
        config = NULL;
        assert_int_equal(parse(OPTIONS_SCENARIO, "a.conf --json r.json"), OPTIONS_GO_ON);
        assert_string_equal(config, "a.conf");
        assert_string_equal(o.json_path, "r.json");
        config = NULL;
        assert_int_equal(parse(OPTIONS_SCENARIO, "--json a.conf"), OPTIONS_GO_ON);
        assert_string_equal(config, "a.conf");
        assert_null(o.json_path);
        config = NULL;
        assert_int_equal(parse(OPTIONS_SCENARIO, "--config a.conf --json r.json"), OPTIONS_GO_ON);
        assert_string_equal(config, "a.conf");
        assert_string_equal(o.json_path, "r.json");
        config = NULL;
        assert_int_equal(parse(OPTIONS_SCENARIO, ""), OPTIONS_GO_ON);
        assert_null(config);
        assert_wrong(OPTIONS_SCENARIO, "a.conf --config b.conf",
                     "--config b.conf and the argument \"a.conf\" exclude each other");
        config = NULL;
        assert_wrong(OPTIONS_SCENARIO, "a.conf b.conf", "unexpected argument \"b.conf\"");
        config = NULL;
}

TEST(figures_of_a_report_end_without_noise)
{
        struct options to = {.json = true, .json_path = "/proc/self/fd/99"};
        FILE *file = tmpfile();
        char text[256] = "";

        assert_non_null(file);
        assert_int_equal(dup2(fileno(file), 99), 99);
        assert_int_equal(options_write_json(&to, json_pack("{s:f}", "seconds", 90.430059099999994), 0), 0);
        assert_true(pread(99, text, sizeof text - 1, 0) > 0);
        assert_string_equal(text, "{\n \"seconds\": 90.4300591\n}\n");
        close(99);
        fclose(file);
}

TEST(test_help)
{
        static const char *const expected[] = {
                "Usage: evb test FILE [OPTION]...\nNothing at all.\n",
                "--node NAME ",
                "name of the node",
                "--fast ",
                "--set SECTION.KEY=VALUE",
                "--json [FILE]",
                "--progress",
                "--help",
                "--version",
        };
        char wanted[128];

        /* --help succeeds even if arguments are missing. */
        assert_int_equal(parse(1, "--help"), 0);
        for (size_t i = 0; i < ARRAY_SIZE(expected); i++)
                assert_non_null(strstr(said[0], expected[i]));
        assert_string_equal(said[1], "");
        assert_int_equal(parse(1, "-h"), 0);
        assert_memory_equal(said[0], "Usage: evb test ", strlen("Usage: evb test "));
        assert_int_equal(parse(1, "--version"), 0);
        if (strcmp(version_commit, "none") == 0)
                assert_string_equal(said[0], "evb " EVB_VERSION "\n");
        else {
                snprintf(wanted, sizeof wanted, "evb " EVB_VERSION " (commit %s)\n", version_commit);
                assert_string_equal(said[0], wanted);
        }
        assert_string_equal(said[1], "");
}
