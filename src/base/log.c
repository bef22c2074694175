/* Writes each line with one system call, so that lines of several processes do not mix. */
#include "evb/base/log.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "evb/base/strbuf.h"

static char log_name[64];
static enum log_level log_max = LOG_LEVEL_INFO;
static bool under_journal;

void log_open(const char *name, enum log_level level)
{
        const char *wished = getenv("EVB_LOG");

        snprintf(log_name, sizeof log_name, "%s", name);
        log_max = level;
        if (wished && strcmp(wished, "warning") == 0)
                log_max = LOG_LEVEL_WARNING;
        else if (wished && strcmp(wished, "debug") == 0)
                log_max = LOG_LEVEL_DEBUG;
        under_journal = getenv("JOURNAL_STREAM") != NULL;
}

enum log_level log_level(void)
{
        return log_max;
}

int log_full_errno(enum log_level level, int error, const char *format, ...)
{
        /* Priorities of sd-daemon(3). */
        static const char priorities[] = {'3', '4', '6', '7'};
        char line[1024];
        int saved = errno, code = error < 0 ? -error : error;

        if (level <= log_max) {
                struct strbuf b = strbuf_init(line, sizeof line - 1);
                char text[768];
                va_list args;

                errno = code;
                va_start(args, format);
                vsnprintf(text, sizeof text, format, args);
                va_end(args);
                if (under_journal)
                        strbuf_add(&b, "<%c>", priorities[level]);
                strbuf_add(&b, "%s%s%s", log_name, log_name[0] ? ": " : "", text);
                line[b.length] = '\n';
                (void)!write(STDERR_FILENO, line, b.length + 1);
        }
        errno = saved;
        return -code;
}
