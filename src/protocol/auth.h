/* Authenticates the messages that nodes exchange, with a key that all machines share (docs/security.md). A
 * tagged message ends with a trailer: the sender's session, the receiver, a number, and a tag over all of it.
 * A hello proves that a session is the current session of its sender. Pure: the caller draws random numbers
 * and keeps the sessions. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define AUTH_KEY_BYTES 32
#define AUTH_TAG_BYTES 16
#define AUTH_TRAILER_BYTES 32
#define AUTH_HELLO_BYTES 72

struct auth_key {
        uint8_t bytes[AUTH_KEY_BYTES];
};

/* Each purpose has a separate subkey, so a message recorded for one purpose is not valid for another. */
enum auth_purpose { AUTH_CONTROL = 1, AUTH_COMMANDS, AUTH_STREAM, AUTH_LIVE };

/* Makes the key of all machines from the bytes of a key file. Negative errno. */
int auth_key_init(struct auth_key *ret, const uint8_t *bytes, size_t n);
void auth_derive(struct auth_key *ret, const struct auth_key *key, enum auth_purpose purpose);
void auth_forget(struct auth_key *key);

/* A node as sender or receiver, encoded as in a message's header. 0: the multicast group. */
#define AUTH_GROUP 0
#define AUTH_NODE(role, index) ((uint16_t)((unsigned)(role) << 12 | (index)))

struct auth_trailer {
        uint64_t session;
        uint64_t number; /* below 2^48 */
        uint16_t to;
};

/* Appends the trailer to a message of n bytes; `bytes` has room for it. Returns the size of both. */
size_t auth_seal(const struct auth_key *key, uint8_t *bytes, size_t n, const struct auth_trailer *t);
/* Checks the tag of a message of n bytes, trailer included. False: it was not made with this key. */
bool auth_open(const struct auth_key *key, const uint8_t *bytes, size_t n, struct auth_trailer *ret);

/* Challenges the receiver, answers its challenge, or both. */
struct auth_hello {
        uint16_t from, to;
        uint64_t session;          /* of the sender */
        uint64_t challenge;        /* for the receiver to answer; 0: none */
        uint64_t answer;           /* to the receiver's challenge; 0: none */
        uint64_t next, group_next; /* numbers of the sender's next messages to the receiver, and to the group
                                    */
};

bool auth_is_hello(const uint8_t *bytes, size_t n);
void auth_hello_encode(const struct auth_key *key, const struct auth_hello *h,
                       uint8_t bytes[static AUTH_HELLO_BYTES]);
/* Decodes a message that auth_is_hello() recognized. False: it was not made with this key, although it names
 * a sender. */
bool auth_hello_decode(const struct auth_key *key, const uint8_t bytes[static AUTH_HELLO_BYTES],
                       struct auth_hello *ret);

/* Size of the replay window: each of the newest 1024 numbers is accepted once. Older numbers are refused. */
#define AUTH_WINDOW 1024u

struct auth_window {
        uint64_t first; /* numbers below it precede the window */
        uint64_t next;  /* the newest number plus 1 */
        uint64_t seen[AUTH_WINDOW / 64];
};

/* Refuses all numbers below `next`. */
void auth_window_begin(struct auth_window *w, uint64_t next);
/* False: the number came before, or is too old. */
bool auth_window_accept(struct auth_window *w, uint64_t number);

/* ---- Lines of a TCP connection, with a key that both ends share. Each end sends a random nonce. Both nonces
 * determine the key of the connection, so lines of another connection are never valid. Each line begins with
 * a tag over its direction, its number and its text. ---- */

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
/* Checks the next line received, "TAG TEXT". Returns the beginning of TEXT; NULL: the tag does not match
 * this key, connection, direction or position. */
const char *auth_line_open(struct auth_line *l, const char *line, size_t n);
