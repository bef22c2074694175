/* Where messages go: the journal, a terminal, or another file on standard error. One thread at a time. */
#pragma once

#include <stdint.h>

#include "evb/base/log.h"

struct log_message {
        enum log_level level;
        int error;                       /* positive errno; 0: none */
        const struct log_fields *fields; /* NULL: none */
        const char *file, *function;
        int line;
        const char *name, *role; /* of the sender; role NULL: not a node */
        uint32_t run;
        const char *text;
};

/* Finds out what standard error is. */
void log_sink_open(void);
void log_sink_write(const struct log_message *m);
