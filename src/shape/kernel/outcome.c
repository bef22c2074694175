/* Warnings of an operation on the kernel. */
#include "shape/kernel/outcome.h"

#include <stdarg.h>
#include <stdio.h>

void tc_outcome_warn(struct tc_outcome *o, const char *format, ...)
{
        va_list args;

        if (o->n_warnings == TC_WARNINGS_MAX)
                return;
        va_start(args, format);
        vsnprintf(o->warnings[o->n_warnings++], TC_OUTCOME_TEXT_MAX, format, args);
        va_end(args);
}
