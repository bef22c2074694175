/* Appends text to an array of fixed size. */
#include "base/strbuf.h"

#include <stdarg.h>
#include <stdio.h>

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
