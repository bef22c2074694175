/* Values of reports, which are null if they are unknown. The caller owns them. */
#pragma once

#include <jansson.h>
#include <math.h>
#include <stdbool.h>
#include <stdint.h>

static inline json_t *json_count(uint64_t value)
{
        return json_integer((json_int_t)value);
}

static inline json_t *json_count_if(bool known, uint64_t value)
{
        return known ? json_count(value) : json_null();
}

/* NAN: unknown. */
static inline json_t *json_figure(double value)
{
        return isnan(value) ? json_null() : json_real(value);
}

/* "": unknown. So is text that is not UTF-8. */
static inline json_t *json_text(const char *text)
{
        return (text[0] ? json_string(text) : NULL) ?: json_null();
}

static inline void json_put_count(json_t *o, const char *name, uint64_t value)
{
        json_object_set_new(o, name, json_count(value));
}
