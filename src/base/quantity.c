/* Converts quantities to integers, exactly, and back to short text. A value is digits with an optional
 * fraction, then a unit. */
#include "base/quantity.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/util.h"

struct unit {
        const char *name;
        uint64_t factor;
};

/* A decimal number: digits / 10^scale. */
struct decimal {
        unsigned __int128 digits;
        unsigned scale;
};

static const char *skip_blanks(const char *s)
{
        while (isspace((unsigned char)*s))
                s++;
        return s;
}

/* Returns the end of the number; NULL: not a number, or too long. */
static const char *read_decimal(const char *s, struct decimal *ret)
{
        bool any = false, point = false;

        *ret = (struct decimal){};
        for (;; s++) {
                if (*s == '.' && !point) {
                        point = true;
                        continue;
                }
                if (!isdigit((unsigned char)*s))
                        return any ? s : NULL;
                any = true;
                if (ret->digits > UINT64_MAX || ret->scale > 18)
                        return NULL;
                ret->digits = ret->digits * 10 + (unsigned)(*s - '0');
                ret->scale += point;
        }
}

static int scale(const struct decimal *d, uint64_t factor, bool round, uint64_t *ret)
{
        unsigned __int128 value = d->digits * factor, divisor = 1;

        for (unsigned i = 0; i < d->scale; i++)
                divisor *= 10;
        if (!round && value % divisor != 0)
                return -EINVAL;
        value /= divisor;
        if (value > UINT64_MAX)
                return -ERANGE;
        *ret = (uint64_t)value;
        return 0;
}

/* `units` ends with a NULL name; the name "" is for a number without a unit. */
static int parse(const char *text, const struct unit *units, uint64_t *ret)
{
        struct decimal d;
        const char *unit = read_decimal(skip_blanks(text), &d);
        size_t n;

        if (!unit)
                return -EINVAL;
        unit = skip_blanks(unit);
        n = strlen(unit);
        while (n > 0 && isspace((unsigned char)unit[n - 1]))
                n--;
        for (; units->name; units++) {
                if (strlen(units->name) == n && strncasecmp(units->name, unit, n) == 0)
                        return scale(&d, units->factor, false, ret);
        }
        return -EINVAL;
}

#define KILO UINT64_C(1000)
#define MEGA (KILO * KILO)
#define GIGA (KILO * MEGA)
#define TERA (KILO * GIGA)

int quantity_parse_bytes(const char *text, uint64_t *ret_bytes)
{
        static const struct unit units[] = {
                {"", 1},
                {"B", 1},
                {"kB", KILO},
                {"MB", MEGA},
                {"GB", GIGA},
                {"TB", TERA},
                {"KiB", 1u << 10},
                {"MiB", 1u << 20},
                {"GiB", 1u << 30},
                {"TiB", UINT64_C(1) << 40},
                {},
        };

        return parse(text, units, ret_bytes);
}

int quantity_parse_rate(const char *text, uint64_t *ret_bps)
{
        static const struct unit units[] = {
                {"", 1},          {"bit", 1},       {"kbit", KILO},   {"Mbit", MEGA},
                {"Gbit", GIGA},   {"Tbit", TERA},   {"bit/s", 1},     {"kbit/s", KILO},
                {"Mbit/s", MEGA}, {"Gbit/s", GIGA}, {"Tbit/s", TERA}, {},
        };

        return parse(text, units, ret_bps);
}

int quantity_parse_time(const char *text, uint64_t *ret_ns)
{
        static const struct unit units[] = {
                {"ns", 1},          {"us", KILO},       {"ms", MEGA}, {"s", GIGA},
                {"min", 60 * GIGA}, {"h", 3600 * GIGA}, {},
        };
        static const struct unit none[] = {{"", 1}, {}};
        uint64_t value;

        if (parse(text, none, &value) == 0) {
                if (value != 0)
                        return -EINVAL;
                *ret_ns = 0;
                return 0;
        }
        return parse(text, units, ret_ns);
}

int quantity_parse_frequency(const char *text, uint64_t *ret_millihertz)
{
        static const struct unit units[] = {
                {"", KILO}, {"Hz", KILO}, {"kHz", MEGA}, {"MHz", GIGA}, {},
        };
        static const struct unit milli = {"mHz", 1};
        struct decimal d;
        const char *unit = read_decimal(skip_blanks(text), &d);

        /* mHz and MHz are the only units that differ in case alone. */
        if (unit)
                unit = skip_blanks(unit);
        if (unit && strncmp(unit, milli.name, 3) == 0 && *skip_blanks(unit + 3) == '\0')
                return scale(&d, milli.factor, false, ret_millihertz);
        return parse(text, units, ret_millihertz);
}

int quantity_parse_count(const char *text, uint64_t *ret)
{
        static const struct unit units[] = {{"", 1}, {"k", KILO}, {"M", MEGA}, {"G", GIGA}, {}};

        return parse(text, units, ret);
}

int quantity_parse_fraction(const char *text, double *ret)
{
        static const struct unit units[] = {{"", UINT64_C(1000000000)}, {"%", UINT64_C(10000000)}, {}};
        struct decimal d;
        const char *unit = read_decimal(skip_blanks(text), &d);
        uint64_t billionths;

        if (!unit)
                return -EINVAL;
        unit = skip_blanks(unit);
        int r = scale(&d, units[*unit == '%'].factor, true, &billionths);

        if (r < 0 || *skip_blanks(unit + (*unit == '%')) != '\0')
                return -EINVAL;
        if (billionths > UINT64_C(1000000000))
                return -ERANGE;
        *ret = (double)billionths / 1e9;
        return 0;
}

static const char *read_index(const char *s, unsigned limit, unsigned *ret)
{
        uint64_t value = 0;

        s = skip_blanks(s);
        if (!isdigit((unsigned char)*s))
                return NULL;
        for (; isdigit((unsigned char)*s); s++) {
                value = value * 10 + (unsigned)(*s - '0');
                if (value >= limit)
                        return NULL;
        }
        *ret = (unsigned)value;
        return skip_blanks(s);
}

/* Inserts `value` in order, unless the list contains it. False: the list is full. */
static bool insert(unsigned *list, size_t size, size_t *n, unsigned value)
{
        size_t i = *n;

        while (i > 0 && list[i - 1] >= value)
                i--;
        if (i < *n && list[i] == value)
                return true;
        if (*n == size)
                return false;
        memmove(list + i + 1, list + i, (*n - i) * sizeof *list);
        list[i] = value;
        (*n)++;
        return true;
}

int quantity_parse_list(const char *text, unsigned limit, unsigned *ret, size_t size, size_t *ret_n)
{
        const char *s = text;
        size_t n = 0;

        do {
                unsigned first = 0, last;

                s = read_index(s, limit, &first);
                last = first;
                if (s && *s == '-')
                        s = read_index(s + 1, limit, &last);
                if (!s || last < first)
                        return -EINVAL;
                for (unsigned i = first; i <= last; i++) {
                        if (!insert(ret, size, &n, i))
                                return -ERANGE;
                }
        } while (*s++ == ',');
        if (s[-1] != '\0')
                return -EINVAL;
        *ret_n = n;
        return 0;
}

/* Formats three significant digits of `value` in the largest unit that fits. */
static char *format(double value, const struct unit *units, char *text)
{
        const struct unit *u = units;

        while (u[1].name && value >= (double)u[1].factor * 0.9995)
                u++;
        value /= (double)u->factor;
        snprintf(text, QUANTITY_TEXT_MAX, "%.*f %s",
                 value >= 99.95 || u == units ? 0
                 : value >= 9.995             ? 1
                                              : 2,
                 value, u->name);
        return text;
}

char *quantity_format_bytes(uint64_t bytes, char text[static QUANTITY_TEXT_MAX])
{
        static const struct unit units[] = {{"B", 1},     {"kB", KILO}, {"MB", MEGA},
                                            {"GB", GIGA}, {"TB", TERA}, {}};

        return format((double)bytes, units, text);
}

char *quantity_format_rate(uint64_t bps, char text[static QUANTITY_TEXT_MAX])
{
        static const struct unit units[] = {
                {"bit/s", 1}, {"kbit/s", KILO}, {"Mbit/s", MEGA}, {"Gbit/s", GIGA}, {"Tbit/s", TERA}, {},
        };

        return format((double)bps, units, text);
}

char *quantity_format_time(uint64_t ns, char text[static QUANTITY_TEXT_MAX])
{
        static const struct unit units[] = {{"ns", 1}, {"us", KILO}, {"ms", MEGA}, {"s", GIGA}, {}};

        return format((double)ns, units, text);
}

char *quantity_format_count(uint64_t count, char text[static QUANTITY_TEXT_MAX])
{
        static const struct unit units[] = {{"", 1}, {"k", KILO}, {"M", MEGA}, {"G", GIGA}, {}};
        size_t n;

        format((double)count, units, text);
        n = strlen(text);
        if (text[n - 1] == ' ')
                text[n - 1] = '\0';
        return text;
}

char *quantity_format_real(double value, const char *unit, char text[static QUANTITY_TEXT_MAX])
{
        static const char *const prefixes[] = {"", "k", "M", "G", "T", "P"};
        size_t i = 0;

        if (isnan(value))
                return strcpy(text, "-");
        if (fabs(value) < 0.001)
                value = 0;
        for (; fabs(value) >= 999.5 && i + 1 < ARRAY_SIZE(prefixes); i++)
                value /= KILO;
        snprintf(text, QUANTITY_TEXT_MAX, "%.3g%s%s%.8s", value, prefixes[i][0] || unit[0] ? " " : "",
                 prefixes[i], unit);
        return text;
}
