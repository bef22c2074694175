/* Parses and formats quantities with units: "64KiB", "1Gbit", "250us", "5kHz", "2%", "2-5,8". Parsers take
 * the whole string (blanks around are allowed) and are exact if the value is representable. They return 0,
 * -EINVAL (not a quantity) or -ERANGE (too large); on failure *ret is untouched. */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* Bytes: B, kB, MB, GB, TB (powers of 1000), KiB, MiB, GiB, TiB; without unit: bytes. A fraction ("1.5MiB")
 * must give whole bytes. */
int quantity_parse_bytes(const char *text, uint64_t *ret_bytes);
/* Bits per second: bit, kbit, Mbit, Gbit, Tbit (powers of 1000, as in tc), optional "/s"; no unit: bits. */
int quantity_parse_rate(const char *text, uint64_t *ret_bps);
/* Nanoseconds: ns, us, ms, s, min, h; only 0 needs no unit. */
int quantity_parse_time(const char *text, uint64_t *ret_ns);
/* Millihertz: mHz, Hz, kHz, MHz; without unit: Hz. */
int quantity_parse_frequency(const char *text, uint64_t *ret_millihertz);
/* Count, with optional k, M, G (powers of 1000). */
int quantity_parse_count(const char *text, uint64_t *ret);
/* Fraction from 0 to 1: "0.02" or "2%". */
int quantity_parse_fraction(const char *text, double *ret);
/* "2-5,8": at most `size` numbers in ascending order without duplicates, each below `limit`. */
int quantity_parse_list(const char *text, unsigned limit, unsigned *ret, size_t size, size_t *ret_n);

#define QUANTITY_TEXT_MAX 32
/* Formats three significant digits and a unit ("118 MB", "52.4 Gbit/s", "1.25 ms"). Returns text. */
char *quantity_format_bytes(uint64_t bytes, char text[static QUANTITY_TEXT_MAX]);
char *quantity_format_rate(uint64_t bps, char text[static QUANTITY_TEXT_MAX]);
char *quantity_format_time(uint64_t ns, char text[static QUANTITY_TEXT_MAX]);
char *quantity_format_count(uint64_t count, char text[static QUANTITY_TEXT_MAX]);
/* The same for fractions and any unit of at most 8 characters: "2.5 kHz", "0.333 Hz"; below 0.001: "0 Hz".
 * NAN: "-". */
char *quantity_format_real(double value, const char *unit, char text[static QUANTITY_TEXT_MAX]);
