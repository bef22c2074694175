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

char *text_make_printable(char *text)
{
        for (unsigned char *at = (unsigned char *)text; at && *at; at++) {
                /* U+0080 to U+009F in UTF-8. */
                bool is_c1 = *at == 0xc2 && at[1] >= 0x80 && at[1] <= 0x9f;

                if (*at < ' ' || *at == 0x7f || is_c1)
                        *at = '?';
                if (is_c1)
                        *++at = '?';
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
