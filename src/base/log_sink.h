/* Where messages go: the journal, a terminal, or another file on standard error. One thread at a time. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/log.h"

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
/* Never waits for a reader: what it does not take is kept and follows later. False: the message is lost, as
 * too much is kept already. */
bool log_sink_write(const struct log_message *m);
/* Writes text as it is to standard error, or drops it. */
void log_sink_draw(const char *text);
/* Writes what is kept. False: some is left. */
bool log_sink_flush(void);
/* As log_sink_flush(), but waits for the reader for about a second. */
void log_sink_end(void);
/* Drops what is kept, in a child. */
void log_sink_forget(void);
