/* What an object of JSON has, written as in Python: {'a': 1, 'b': null}. */
#pragma once

#include "test.h"

#include <jansson.h>
#include <stdbool.h>

static inline json_t *json_of(const char *text)
{
        char *copy = strdup(text);
        json_t *o;

        for (char *c = copy; *c; c++)
                *c = *c == '\'' ? '"' : *c;
        o = json_loads(copy, 0, NULL);
        if (!o)
                fail_msg("not JSON: %s", copy);
        free(copy);
        return o;
}

/* The object has these members, and maybe others. */
static inline void assert_json(const json_t *o, const char *members)
{
        json_auto_t *all = json_of(members);
        json_t *value;
        const char *name;

        json_object_foreach(all, name, value)
        {
                bool same = json_equal(json_object_get(o, name), value);

                if (!same) {
                        char *found = json_dumps(json_object_get(o, name), JSON_ENCODE_ANY);

                        print_error("%s is %s, not as in %s\n", name, found ?: "not there", members);
                        free(found);
                }
                assert_true(same);
        }
}
