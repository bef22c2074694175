/* Parses the kinds of values that options of several verbs of `evb bench` have. */
#include <stdio.h>
#include <stdlib.h>

#include "bench.h"

bool bench_parse_seconds(const char *verb, const char *text, double least, double most, double *ret)
{
        char *end, expected[64];

        *ret = strtod(text, &end);
        if (end != text && !*end && *ret >= least && *ret <= most)
                return true;
        snprintf(expected, sizeof expected, "%g to %g", least, most);
        return bench_refuse_value(verb, "seconds", text, expected);
}

bool bench_refuse_value(const char *verb, const char *option, const char *text, const char *expected)
{
        fprintf(stderr, "%s: --%s: invalid value \"%s\"; expected %s\n", verb, option, text, expected);
        return false;
}
