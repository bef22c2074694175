/* Appends text to an array of fixed size. */
#include "base/strbuf.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "base/util.h"

struct strbuf strbuf_init(char *text, size_t size_bytes)
{
        text[0] = '\0';
        return (struct strbuf){.text = text, .size_bytes = size_bytes};
}

void strbuf_add(struct strbuf *b, const char *format, ...)
{
        size_t room = b->size_bytes - b->length;
        va_list args;
        int n;

        va_start(args, format);
        n = vsnprintf(b->text + b->length, room, format, args);
        va_end(args);
        if (n < 0 || (size_t)n >= room) {
                b->cut = true;
                b->length = b->size_bytes - 1;
        } else
                b->length += (size_t)n;
}

/* Returns the bytes of the first character of UTF-8 (RFC 3629); 0: it is invalid or incomplete, or the text
 * ends. */
static unsigned length_of_first(const unsigned char *c)
{
        unsigned n = *c < 0x80 ? 1 : *c < 0xe0 ? 2 : *c < 0xf0 ? 3 : 4;

        if (*c == 0 || *c >= 0xf5 || (*c >= 0x80 && *c < 0xc2) || (*c == 0xe0 && c[1] < 0xa0) ||
            (*c == 0xed && c[1] >= 0xa0) || (*c == 0xf0 && c[1] < 0x90) || (*c == 0xf4 && c[1] >= 0x90))
                return 0;
        for (unsigned i = 1; i < n; i++) {
                if ((c[i] & 0xc0) != 0x80)
                        return 0;
        }
        return n;
}

bool text_is_utf8(const char *text)
{
        const unsigned char *c = (const unsigned char *)text;
        unsigned n;

        while ((n = length_of_first(c)) > 0)
                c += n;
        return *c == 0;
}

/* Control characters, U+0080 to U+009F, and the characters that reverse or embed a direction of writing:
 * U+200E, U+200F, U+2028 to U+202E, and U+2066 to U+2069. */
static bool is_unprintable(const unsigned char *c, unsigned n)
{
        if (n <= 1)
                return n == 0 || *c < ' ' || *c == 0x7f;
        if (n == 2)
                return c[0] == 0xc2 && c[1] <= 0x9f;
        return c[0] == 0xe2 &&
               ((c[1] == 0x80 && (c[2] == 0x8e || c[2] == 0x8f || (c[2] >= 0xa8 && c[2] <= 0xae))) ||
                (c[1] == 0x81 && c[2] >= 0xa6 && c[2] <= 0xa9));
}

char *text_make_printable(char *text)
{
        unsigned char *at = (unsigned char *)text;

        while (at && *at) {
                unsigned n = length_of_first(at), step = n > 0 ? n : 1;

                if (is_unprintable(at, n))
                        memset(at, '?', step);
                at += step;
        }
        return text;
}

unsigned text_distance(const char *a, const char *b)
{
        unsigned rows[3][128], nearest_before = 0;
        size_t n = strlen(b), n_a = strlen(a);

        if (n >= ARRAY_SIZE(rows[0]) || n >= n_a + TEXT_FAR || n_a >= n + TEXT_FAR)
                return UINT32_MAX;
        for (unsigned j = 0; j <= n; j++)
                rows[0][j] = j;
        for (unsigned i = 1; i <= n_a; i++) {
                unsigned *row = rows[i % 3], *above = rows[(i - 1) % 3], *second = rows[(i + 1) % 3],
                         nearest = i;

                row[0] = i;
                for (unsigned j = 1; j <= n; j++) {
                        bool same = a[i - 1] == b[j - 1];

                        row[j] = MIN(MIN(above[j], row[j - 1]) + 1, above[j - 1] + !same);
                        if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                                row[j] = MIN(row[j], second[j - 2] + 1);
                        nearest = MIN(nearest, row[j]);
                }
                /* Later rows derive from these two, so their distances are not smaller. */
                if (MIN(nearest, nearest_before) >= TEXT_FAR)
                        return UINT32_MAX;
                nearest_before = nearest;
        }
        return rows[n_a % 3][n] < TEXT_FAR ? rows[n_a % 3][n] : UINT32_MAX;
}
