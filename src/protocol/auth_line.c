/* Makes the key of a connection, and tags its lines with keyed BLAKE2b. */
#include "protocol/auth_line.h"

#include <endian.h>
#include <sodium.h>
#include <string.h>

_Static_assert(AUTH_LINE_TEXT_BYTES == 2 * AUTH_TAG_BYTES + 1 && AUTH_NONCE_BYTES == AUTH_TAG_BYTES,
               "nonces and tags have the same size");

void auth_nonce_format(const uint8_t nonce[static AUTH_NONCE_BYTES], char text[static AUTH_LINE_TEXT_BYTES])
{
        sodium_bin2hex(text, AUTH_LINE_TEXT_BYTES, nonce, AUTH_NONCE_BYTES);
}

static bool parse_hex(uint8_t bytes[static AUTH_TAG_BYTES], const char *text, size_t n)
{
        size_t got = 0;
        const char *end = NULL;

        return n == 2 * AUTH_TAG_BYTES &&
               sodium_hex2bin(bytes, AUTH_TAG_BYTES, text, n, NULL, &got, &end) == 0 &&
               got == AUTH_TAG_BYTES && end == text + n;
}

bool auth_nonce_parse(uint8_t nonce[static AUTH_NONCE_BYTES], const char *text)
{
        return text && parse_hex(nonce, text, strlen(text));
}

void auth_line_begin(struct auth_line *l, const struct auth_key *key, bool dials,
                     const uint8_t own[static AUTH_NONCE_BYTES], const uint8_t peers[static AUTH_NONCE_BYTES])
{
        uint8_t nonces[2 * AUTH_NONCE_BYTES];

        /* That of the end which made the connection is the first one. */
        memcpy(nonces, dials ? own : peers, AUTH_NONCE_BYTES);
        memcpy(nonces + AUTH_NONCE_BYTES, dials ? peers : own, AUTH_NONCE_BYTES);
        *l = (struct auth_line){.dials = dials};
        crypto_generichash(l->key.bytes, sizeof l->key.bytes, nonces, sizeof nonces, key->bytes,
                           sizeof key->bytes);
}

static void make_tag(const struct auth_line *l, bool from_dialer, uint64_t number, const char *text, size_t n,
                     uint8_t tag[static AUTH_TAG_BYTES])
{
        uint64_t words[2] = {htole64(from_dialer ? 1 : 2), htole64(number)};
        crypto_generichash_state state;

        crypto_generichash_init(&state, l->key.bytes, sizeof l->key.bytes, AUTH_TAG_BYTES);
        crypto_generichash_update(&state, (const uint8_t *)words, sizeof words);
        crypto_generichash_update(&state, (const uint8_t *)text, n);
        crypto_generichash_final(&state, tag, AUTH_TAG_BYTES);
}

void auth_line_seal(struct auth_line *l, const char *line, size_t n, char text[static AUTH_LINE_TEXT_BYTES])
{
        uint8_t tag[AUTH_TAG_BYTES];

        make_tag(l, l->dials, l->sent++, line, n, tag);
        sodium_bin2hex(text, AUTH_LINE_TEXT_BYTES, tag, sizeof tag);
}

const char *auth_line_open(struct auth_line *l, const char *line, size_t n)
{
        size_t before = AUTH_LINE_TEXT_BYTES; /* the tag and a blank */
        uint8_t tag[AUTH_TAG_BYTES], expected[AUTH_TAG_BYTES];

        if (n < before || line[before - 1] != ' ' || !parse_hex(tag, line, before - 1))
                return NULL;
        make_tag(l, !l->dials, l->received, line + before, n - before, expected);
        if (sodium_memcmp(tag, expected, sizeof tag) != 0)
                return NULL;
        l->received++;
        return line + before;
}
