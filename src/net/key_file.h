/* Reads the key that all machines of a run share (network.key-file, --key of evb stream). */
#pragma once

#include "base/error.h"
#include "protocol/auth.h"

/* Random bytes that a key file must have at least, and the most that are read. */
#define KEY_FILE_LEAST_BYTES 32
#define KEY_FILE_MOST_BYTES 1024

/* The file has one line, in base64 or hexadecimal digits. Only its owner may read it, unless it is a
 * credential of systemd. -EINVAL: not such a file; another negative errno: it cannot be read. */
int key_file_read(const char *path, struct auth_key *ret, struct error *e);
