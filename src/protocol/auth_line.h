/* Authenticates the lines of a TCP connection with a key that both ends share. Each end sends a random nonce;
 * both nonces make the key of the connection, so lines of another connection never count. Each line begins
 * with a tag over its direction, its number and its text. Pure. */
#pragma once

#include "protocol/auth.h"

#define AUTH_NONCE_BYTES 16
/* A nonce or a tag in hexadecimal digits, with the zero byte at its end. */
#define AUTH_LINE_TEXT_BYTES 33

struct auth_line {
        struct auth_key key; /* of this connection */
        bool dials;          /* this end made the connection */
        uint64_t sent, received;
};

void auth_nonce_format(const uint8_t nonce[static AUTH_NONCE_BYTES], char text[static AUTH_LINE_TEXT_BYTES]);
/* False: `text` is not a nonce. */
bool auth_nonce_parse(uint8_t nonce[static AUTH_NONCE_BYTES], const char *text);
void auth_line_begin(struct auth_line *l, const struct auth_key *key, bool dials,
                     const uint8_t own[static AUTH_NONCE_BYTES],
                     const uint8_t peers[static AUTH_NONCE_BYTES]);
/* Makes the tag of the next line to send. */
void auth_line_seal(struct auth_line *l, const char *line, size_t n, char text[static AUTH_LINE_TEXT_BYTES]);
/* Checks the next line received, "TAG TEXT". Returns the beginning of TEXT; NULL: the tag is not of this key,
 * connection, direction or place. */
const char *auth_line_open(struct auth_line *l, const char *line, size_t n);
