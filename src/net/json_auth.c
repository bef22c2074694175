/* Authenticates the lines of a connection with the key of both ends. */
#include "net/json_connection.h"

#include <errno.h>
#include <string.h>
#include <sys/random.h>

/* Maximum number of messages held until the peer has introduced itself: an introduction, and the messages
 * that follow it at once. */
#define HELD_MAX 16u

int json_auth_begin(struct json_auth *a, const struct auth_key *key, bool dials)
{
        *a = (struct json_auth){.key = key, .dials = dials};
        if (key && getrandom(a->nonce, sizeof a->nonce, 0) != sizeof a->nonce)
                return -errno;
        return 0;
}

void json_auth_end(struct json_auth *a)
{
        json_decref(a->held);
        auth_forget(&a->line.key);
        *a = (struct json_auth){};
}

json_t *json_auth_greeting(const struct json_auth *a)
{
        char text[AUTH_LINE_TEXT_BYTES];

        auth_nonce_format(a->nonce, text);
        return json_pack("{s:{s:s}}", "key", "nonce", text);
}

/* Checks a line without a tag, which precedes all tagged lines: the peer's nonce, or its refusal. */
static enum json_auth_verdict check_plain(struct json_auth *a, const json_t *message)
{
        const json_t *peers = json_object_get(message, "key");
        uint8_t nonce[AUTH_NONCE_BYTES];

        if (json_object_get(message, "refused"))
                return JSON_AUTH_REFUSAL;
        if (!peers)
                return a->ready ? JSON_AUTH_WRONG : JSON_AUTH_NO_KEY;
        if (a->ready || !auth_nonce_parse(nonce, json_string_value(json_object_get(peers, "nonce"))))
                return JSON_AUTH_WRONG;
        auth_line_begin(&a->line, a->key, a->dials, a->nonce, nonce);
        a->ready = true;
        return JSON_AUTH_READY;
}

static bool asks_for_key(const char *line, size_t n)
{
        json_t *message = json_loadb(line, n, JSON_REJECT_DUPLICATES, NULL);
        bool asks = json_object_get(json_object_get(message, "key"), "nonce") != NULL;

        json_decref(message);
        return asks;
}

enum json_auth_verdict json_auth_check(struct json_auth *a, const char *line, size_t n, const char **ret_text)
{
        enum json_auth_verdict v;
        const char *text;
        json_t *message;

        *ret_text = line;
        if (!a->key) {
                v = !a->received && asks_for_key(line, n) ? JSON_AUTH_UNASKED : JSON_AUTH_MESSAGE;
                a->received = true;
                return v;
        }
        text = a->ready ? auth_line_open(&a->line, line, n) : NULL;
        if (text) {
                a->received = true;
                *ret_text = text;
                return JSON_AUTH_MESSAGE;
        }
        if (a->received)
                return JSON_AUTH_WRONG;
        message = json_loadb(line, n, JSON_REJECT_DUPLICATES, NULL);
        v = check_plain(a, message);
        json_decref(message);
        return v;
}

int json_auth_hold(struct json_auth *a, json_t *message)
{
        if (!a->held)
                a->held = json_array();
        if (json_array_size(a->held) < HELD_MAX)
                return json_array_append_new(a->held, message) < 0 ? -ENOMEM : 0;
        json_decref(message);
        return -ENOBUFS;
}

int json_auth_error(enum json_auth_verdict v)
{
        return v == JSON_AUTH_WRONG                              ? -EKEYREJECTED
               : v == JSON_AUTH_NO_KEY || v == JSON_AUTH_UNASKED ? -ENOKEY
                                                                 : 0;
}

const char *json_auth_explain(int error)
{
        if (error == -ENOKEY)
                return "only one end of the connection has a key (network.key-file, or --key of evb stream); "
                       "set the same one at both";
        if (error == -EKEYREJECTED)
                return "the ends of the connection have different keys (network.key-file, or --key of evb "
                       "stream); set the same one at both";
        return NULL;
}
