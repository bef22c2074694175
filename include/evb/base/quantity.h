/* Quantities as people write them, to integers and back: "64KiB", "1Gbit", "250us", "5kHz", "2%", "2-5,8".
 * All parsers take the whole string (no trailing text, blanks around are allowed), are exact where the value
 * is representable, and return 0, -EINVAL (not such a quantity) or -ERANGE (too large); on failure *ret is
 * untouched. */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* Bytes: B, kB, MB, GB, TB (powers of 1000), KiB, MiB, GiB, TiB; none: bytes. A fraction ("1.5MiB") must be
 * whole bytes. */
int quantity_parse_bytes(const char *text, uint64_t *ret_bytes);
/* Bits per second: bit, kbit, Mbit, Gbit, Tbit (powers of 1000, as tc), optional "/s"; none: bits. */
int quantity_parse_rate(const char *text, uint64_t *ret_bps);
/* Nanoseconds: ns, us, ms, s, min, h; none only for 0. */
int quantity_parse_time(const char *text, uint64_t *ret_ns);
/* Thousandths of a hertz: mHz, Hz, kHz, MHz; none: Hz. */
int quantity_parse_frequency(const char *text, uint64_t *ret_millihertz);
/* Plain count, with optional k, M, G (powers of 1000). */
int quantity_parse_count(const char *text, uint64_t *ret);
/* 0 to 1: "0.02" or "2%". */
int quantity_parse_fraction(const char *text, double *ret);
/* "2-5,8": the listed numbers in ascending order without doubles, each below `limit`. *ret_n is at most
 * `size`. */
int quantity_parse_list(const char *text, unsigned limit, unsigned *ret, size_t size, size_t *ret_n);

#define QUANTITY_TEXT_MAX 32
/* Shortest text of three significant digits and a unit ("118 MB", "52.4 Gbit/s", "1.25 ms"), for people;
 * returns `text`. */
char *quantity_format_bytes(uint64_t bytes, char text[static QUANTITY_TEXT_MAX]);
char *quantity_format_rate(uint64_t bps, char text[static QUANTITY_TEXT_MAX]);
char *quantity_format_time(uint64_t ns, char text[static QUANTITY_TEXT_MAX]);
char *quantity_format_count(uint64_t count, char text[static QUANTITY_TEXT_MAX]);
