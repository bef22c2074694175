/* Scenario files. One that loads can be written, and the written one is the same scenario. */
#include <assert.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "conf/scenario.h"
#include "fuzz.h"
#include "memory_file.h"

#define TEXT_MAX_BYTES 65536u

static char *write_text(const struct scenario *s, size_t *ret_bytes)
{
        char *text = NULL;
        FILE *f = open_memstream(&text, ret_bytes);

        assert(f);
        scenario_write(s, f);
        assert(fclose(f) == 0);
        return text;
}

static void check_errors(const struct scenario_errors *errors)
{
        assert(errors->n > 0);
        for (size_t i = 0; i < errors->n && i < SCENARIO_ERRORS_MAX; i++)
                assert(errors->text[i][0]);
}

static void check_written(const struct scenario *s)
{
        static struct scenario again;
        static struct scenario_errors errors;
        size_t n, n_again;
        char *text = write_text(s, &n), *text_again;
        const char *path = memory_file(text, n);

        if (path) {
                assert(scenario_load(&again, path, NULL, 0, &errors) == 0);
                text_again = write_text(&again, &n_again);
                assert(n == n_again && memcmp(text, text_again, n) == 0);
                free(text_again);
        }
        free(text);
}

bool fuzz_accepts(const uint8_t *bytes, size_t size_bytes)
{
        static struct scenario s;
        static struct scenario_errors errors;
        const char *path = size_bytes <= TEXT_MAX_BYTES ? memory_file(bytes, size_bytes) : NULL;
        json_t *json;

        if (!path)
                return false;
        if (scenario_load(&s, path, NULL, 0, &errors) < 0) {
                check_errors(&errors);
                return false;
        }
        json = scenario_to_json(&s);
        assert(json);
        json_decref(json);
        check_written(&s);
        return true;
}
