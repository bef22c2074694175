/* Reads a token that two programs share from the first line of a file, and compares tokens. */
#pragma once

#include <stdbool.h>

#include "base/error.h"

#define TOKEN_LEAST_BYTES 16
#define TOKEN_MAX_BYTES 128

/* A token has 16 to 128 printable characters without blanks. -EINVAL: the file does not begin with one;
 * another negative errno: it cannot be read. */
int token_file_read(const char *path, char token[static TOKEN_MAX_BYTES + 1], struct error *e);
/* Whether the two are equal, in a time that does not depend on where they differ. */
bool token_equal(const char *token, const char *other);
