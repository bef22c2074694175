/* An error with an explanation: what failed, why, and where. The caller owns it; it needs no cleanup.
 *
 * The rule of this program:
 * - A function that can explain its failure takes a `struct error *` as its last argument. When it fails, it
 *   fills the error and returns error->code; when it succeeds, it leaves the error alone.
 * - Any other function that fails returns a plain negative errno.
 * - A positive enum value is not an error but a documented condition, which the caller handles.
 */
#pragma once

#define ERROR_MESSAGE_MAX 512
#define ERROR_LOCATION_MAX 320 /* room for the path of a scenario and a line number */
#define ERROR_TEXT_MAX (ERROR_LOCATION_MAX + ERROR_MESSAGE_MAX + 2)

struct error {
        int code;                          /* negative errno; 0: no error */
        char message[ERROR_MESSAGE_MAX];   /* starts in lower case, has no full stop */
        char location[ERROR_LOCATION_MAX]; /* "eth0", "/data/run.data"; empty: unknown */
};

/* Replaces the error and returns `code`, a negative errno. `%m` names the code. */
int error_set(struct error *e, int code, const char *format, ...) __attribute__((format(printf, 3, 4)));
/* Appends to the message, for a failure that follows from the first one. */
void error_append(struct error *e, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Adds the location, unless an inner function has added a more precise one. Returns the error's code. */
int error_locate(struct error *e, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Formats "LOCATION: MESSAGE", or the message alone if the location is unknown. Returns text. */
char *error_format(const struct error *e, char text[static ERROR_TEXT_MAX]);
