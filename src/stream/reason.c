/* Keeps the first reason, as text that JSON can carry. */
#include "reason.h"

#include <jansson.h>
#include <stdarg.h>
#include <stdio.h>

#include "base/strbuf.h"

/* A file's name may be in any encoding. */
static void make_utf8(char *text)
{
        json_t *valid = json_string(text);

        for (char *at = text; !valid && *at; at++) {
                if ((unsigned char)*at >= 0x80)
                        *at = '?';
        }
        json_decref(valid);
}

void reason_set(struct reason *r, bool failed, const char *format, ...)
{
        va_list args;

        r->failed |= failed;
        if (r->text[0])
                return;
        va_start(args, format);
        vsnprintf(r->text, sizeof r->text, format, args);
        va_end(args);
        make_utf8(r->text);
        text_make_printable(r->text);
}

void reason_set_error(struct reason *r, const struct error *e)
{
        char text[ERROR_TEXT_MAX];

        if (e->code < 0)
                reason_set(r, true, "%s", error_format(e, text));
}
