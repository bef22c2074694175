/* Counts the warnings and errors that are logged, instead of writing them. For tests that wrap log_write().
 */
#pragma once

#include <stdlib.h>

#include "base/log.h"

static unsigned log_lines;

int __wrap_log_write(enum log_level level, int error, const struct log_fields *fields, ...)
{
        log_lines += level <= LOG_LEVEL_WARNING;
        return -abs(error);
}
