/* Parses numbers of the options of `evb bench`. */
#include <stdio.h>

#include "bench.h"
#include "evb/base/quantity.h"

bool bench_parse_number(const char *option, const char *text, uint64_t most, uint64_t *ret)
{
        if (quantity_parse_count(text, ret) >= 0 && *ret >= 1 && *ret <= most)
                return true;
        fprintf(stderr, "evb bench: --%s: invalid number \"%s\"; expected 1 to %llu\n", option, text,
                (unsigned long long)most);
        return false;
}
