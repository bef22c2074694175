/* The key of a JSON connection: both ends introduce themselves by a nonce, and tag each line that follows
 * (docs/security.md). Used by json_connection.c alone. */
#pragma once

#include <jansson.h>

#include "protocol/auth.h"

struct json_auth {
        const struct auth_key *key; /* NULL: none */
        bool dials;                 /* this end made the connection */
        bool ready;                 /* the peer's nonce has come */
        bool received;              /* a message has come that counts */
        uint8_t nonce[AUTH_NONCE_BYTES];
        struct auth_line line;
        json_t *held; /* messages to send once it is ready */
};

enum json_auth_verdict {
        JSON_AUTH_MESSAGE, /* the text is a message of the peer */
        JSON_AUTH_READY,   /* the peer has introduced itself: send what was held */
        JSON_AUTH_REFUSAL, /* the peer refuses this end, which is not authenticated */
        JSON_AUTH_NO_KEY,  /* the peer has no key */
        JSON_AUTH_WRONG,   /* the peer has another key */
        JSON_AUTH_UNASKED, /* the peer has a key, and this end has none */
};

/* Sets the nonce; the caller sends json_auth_greeting() before anything else if there is a key. */
int json_auth_begin(struct json_auth *a, const struct auth_key *key, bool dials);
void json_auth_end(struct json_auth *a);
json_t *json_auth_greeting(const struct json_auth *a);
/* Judges a line. On JSON_AUTH_MESSAGE and JSON_AUTH_REFUSAL *ret_text is its message. */
enum json_auth_verdict json_auth_check(struct json_auth *a, const char *line, size_t n,
                                       const char **ret_text);
/* Keeps a message until the peer has introduced itself; consumes it. -ENOBUFS: too many. */
int json_auth_hold(struct json_auth *a, json_t *message);
/* -ENOKEY or -EKEYREJECTED, if the verdict ends the connection; otherwise 0. */
int json_auth_error(enum json_auth_verdict v);
/* Explains such an error for both ends; NULL: another error. */
const char *json_auth_explain(int error);
