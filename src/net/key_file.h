/* Reads the key that all machines of a run share (network.key-file, --key of evb stream). */
#pragma once

#include <stdbool.h>

#include "base/error.h"
#include "protocol/auth.h"

/* Minimum number of random bytes in a key file, and the maximum that is read. */
#define KEY_FILE_LEAST_BYTES 32
#define KEY_FILE_MOST_BYTES 1024

/* The file must have one line, in base64 or hexadecimal digits, and only its owner may have access, unless it
 * is a credential of systemd. -EINVAL: it is not such a file; another negative errno: it cannot be read. */
int key_file_read(const char *path, struct auth_key *ret, struct error *e);

/* Reads, from the first line of a file, a token that two programs share; and compares tokens. */

#define TOKEN_LEAST_BYTES 16
#define TOKEN_MAX_BYTES 128

/* A token has 16 to 128 printable characters without blanks. -EINVAL: the file does not begin with one;
 * another negative errno: it cannot be read. */
int token_file_read(const char *path, char token[static TOKEN_MAX_BYTES + 1], struct error *e);
/* Whether the tokens are equal, in a time that does not depend on where they differ. */
bool token_equal(const char *token, const char *other);
