/* Fills and formats errors with an explanation. */
#include "base/error.h"

#include <assert.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

int error_set(struct error *e, int code, const char *format, ...)
{
        int saved = errno;
        va_list args;

        assert(code < 0);
        e->code = code;
        e->location[0] = '\0';
        errno = -code;
        va_start(args, format);
        vsnprintf(e->message, sizeof e->message, format, args);
        va_end(args);
        errno = saved;
        return code;
}

void error_append(struct error *e, const char *format, ...)
{
        size_t length = strlen(e->message);
        va_list args;

        va_start(args, format);
        vsnprintf(e->message + length, sizeof e->message - length, format, args);
        va_end(args);
}

int error_locate(struct error *e, const char *format, ...)
{
        va_list args;

        if (!e->location[0]) {
                va_start(args, format);
                vsnprintf(e->location, sizeof e->location, format, args);
                va_end(args);
        }
        return e->code;
}

char *error_format(const struct error *e, char text[static ERROR_TEXT_MAX])
{
        snprintf(text, ERROR_TEXT_MAX, "%s%s%s", e->location, e->location[0] ? ": " : "", e->message);
        return text;
}
