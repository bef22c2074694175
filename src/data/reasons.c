/* Collects the reasons for exit status 1 of a node or a run, and logs them. */
#include "data/reasons.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/strbuf.h"
#include "base/util.h"

void reasons_add(struct reasons *r, const char *format, ...)
{
        char text[REASON_TEXT_MAX];
        va_list args;

        va_start(args, format);
        vsnprintf(text, sizeof text, format, args);
        va_end(args);
        text_make_printable(text);
        for (size_t i = 0; i < MIN(r->n, (size_t)REASONS_MAX); i++) {
                if (strcmp(r->text[i], text) == 0)
                        return;
        }
        if (r->n < REASONS_MAX)
                strcpy(r->text[r->n], text);
        r->n++;
}

void reasons_log(const struct reasons *r)
{
        for (size_t i = 0; i < MIN(r->n, (size_t)REASONS_MAX); i++)
                log_error("%s", r->text[i]);
        if (r->n > REASONS_MAX)
                log_error("%zu more reason%s not listed", r->n - REASONS_MAX,
                          r->n - REASONS_MAX == 1 ? " is" : "s are");
}

json_t *reasons_to_json(const struct reasons *r)
{
        json_t *texts = json_array();

        for (size_t i = 0; i < MIN(r->n, (size_t)REASONS_MAX); i++)
                json_array_append_new(texts, json_string(r->text[i]));
        return texts;
}
