/* Loads a scenario from text, for the tests of the conf layer. */
#pragma once

#include "../test.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <unistd.h>

#include "base/util.h"
#include "conf/keys.h"
#include "conf/scenario.h"

#define COUNTS "[ros]\ncount = 2\n[sfi]\ncount = 1\n"

#define MACHINES                                                                                             \
        "[node a]\nrole = ros\naddress = 10.0.0.2\n[node d]\nrole = dfm\naddress = 10.0.0.1\n"               \
        "[node s]\nrole = sfi\naddress = 10.0.0.3\n"

/* The result of the last load; static, as it is large. */
static struct scenario sample;
static struct scenario_errors sample_errors;
static char sample_path[64];

static inline void sample_write_bytes(const char *bytes, size_t n)
{
        FILE *f;
        int fd;

        strcpy(sample_path, "/tmp/evb-conf-XXXXXX");
        fd = mkstemp(sample_path);
        assert_true(fd >= 0);
        f = fdopen(fd, "w");
        assert_non_null(f);
        assert_int_equal(fwrite(bytes, 1, n, f), n);
        assert_int_equal(fclose(f), 0);
}

static inline void sample_write(const char *text)
{
        sample_write_bytes(text, strlen(text));
}

static inline int sample_load_with(const char *text, const char *const *settings, size_t n)
{
        int r;

        sample_write(text);
        r = scenario_load(&sample, sample_path, settings, n, &sample_errors);
        assert_int_equal(unlink(sample_path), 0);
        return r;
}

static inline int sample_load(const char *text)
{
        return sample_load_with(text, NULL, 0);
}

/* One setting over the smallest scenario. */
static inline int sample_set(const char *setting)
{
        return sample_load_with(COUNTS, &setting, 1);
}

static inline bool says_what_to_do(const char *error)
{
        return strstr(error, "; expected ") || strstr(error, "; did you mean ") || strstr(error, "; set ") ||
               strstr(error, "; first ") || strstr(error, "no ROS has ") ||
               strstr(error, "; `evb check --keys` lists all keys");
}

/* Exactly one error, which begins with FILE`at` and contains `what`. */
static inline void assert_one_error(const char *at, const char *what)
{
        const char *text = sample_errors.text[0];

        if (sample_errors.n != 1)
                for (size_t i = 0; i < MIN(sample_errors.n, (size_t)SCENARIO_ERRORS_MAX); i++)
                        print_error("%s\n", sample_errors.text[i]);
        assert_int_equal(sample_errors.n, 1);
        if (!says_what_to_do(text))
                fail_msg("does not say what to do: %s", text);
        if (strncmp(text, sample_path, strlen(sample_path)) == 0)
                text += strlen(sample_path);
        if (strncmp(text, at, strlen(at)) != 0 || !strstr(text, what))
                fail_msg("got \"%s\", expected \"%s\" and \"%s\"", text, at, what);
}

static inline void assert_no_error(int r)
{
        if (r != 0)
                print_error("%s\n", sample_errors.text[0]);
        assert_int_equal(r, 0);
}

static inline void assert_loads(const char *text)
{
        assert_no_error(sample_load(text));
}

static inline void assert_sets(const char *setting)
{
        assert_no_error(sample_set(setting));
}

static inline void assert_wrong(const char *text, const char *at, const char *what)
{
        int r = sample_load(text);

        if (r != -EINVAL)
                print_error("not refused: %s\n", text);
        assert_int_equal(r, -EINVAL);
        assert_one_error(at, what);
}

static inline void assert_wrong_setting(const char *setting, const char *what)
{
        int r = sample_set(setting);
        char at[100];

        if (r != -EINVAL)
                print_error("not refused: %s\n", setting);
        assert_int_equal(r, -EINVAL);
        snprintf(at, sizeof at, "--set %.80s", setting);
        at[strcspn(at, "\n")] = '\0';
        assert_one_error(at, what);
}

/* Each of these values of a key is wrong for the same reason. */
#define assert_wrong_values(key, what, ...)                                                                  \
        do {                                                                                                 \
                static const char *const wrong[] = {__VA_ARGS__};                                            \
                for (size_t i = 0; i < ARRAY_SIZE(wrong); i++) {                                             \
                        char setting[200];                                                                   \
                        snprintf(setting, sizeof setting, "%s=%s", key, wrong[i]);                           \
                        assert_wrong_setting(setting, what);                                                 \
                }                                                                                            \
        } while (0)

/* The sample as a file; the caller frees the text. */
static inline char *sample_written(void)
{
        char *text = NULL;
        size_t size;
        FILE *f = open_memstream(&text, &size);

        assert_non_null(f);
        scenario_write(&sample, f);
        assert_int_equal(fclose(f), 0);
        return text;
}
