/* Writes one line per message to standard error. Only node, lab and cmd log; lower layers return errors. Any
 * thread. Under systemd ($JOURNAL_STREAM) lines have the <N> priority prefix of sd-daemon(3). */
#pragma once

#include <stdbool.h>

enum log_level { LOG_LEVEL_ERROR, LOG_LEVEL_WARNING, LOG_LEVEL_INFO, LOG_LEVEL_DEBUG };

/* Sets the name of the sender ("ros3"; copied, at most 63 characters) and the level of messages to write.
 * EVB_LOG=warning or debug in the environment overrides the level. */
void log_open(const char *name, enum log_level level);
enum log_level log_level(void);

/* Sets errno to the absolute value of `error` during formatting, for `%m`. Returns -|error|. */
int log_full_errno(enum log_level level, int error, const char *format, ...)
        __attribute__((format(printf, 3, 4)));

#define log_error(...) ((void)log_full_errno(LOG_LEVEL_ERROR, 0, __VA_ARGS__))
#define log_warning(...) ((void)log_full_errno(LOG_LEVEL_WARNING, 0, __VA_ARGS__))
#define log_info(...) ((void)log_full_errno(LOG_LEVEL_INFO, 0, __VA_ARGS__))
#define log_debug(...) ((void)log_full_errno(LOG_LEVEL_DEBUG, 0, __VA_ARGS__))
#define log_error_errno(error, ...) log_full_errno(LOG_LEVEL_ERROR, error, __VA_ARGS__)
#define log_warning_errno(error, ...) log_full_errno(LOG_LEVEL_WARNING, error, __VA_ARGS__)
