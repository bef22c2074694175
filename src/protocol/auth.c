/* Encodes and checks tags, trailers and hellos, replay windows, and the tags of lines. The tag of datagrams
 * is SipHash-2-4-128 (libsodium's siphashx24). On short messages, it needs a fifth of the time of keyed
 * BLAKE2b, which derives the keys. */
#include "protocol/auth.h"

#include <endian.h>
#include <errno.h>
#include <sodium.h>
#include <string.h>

#define HELLO_MAGIC UINT32_C(0x48425645) /* "EVBH" */
#define HELLO_VERSION 1u
#define NUMBER_BITS 48
#define KEY_CONTEXT "evb-auth"
/* The words of a hello before its tag. */
#define HELLO_WORDS ((AUTH_HELLO_BYTES - AUTH_TAG_BYTES) / 8)

_Static_assert(AUTH_TAG_BYTES == crypto_shorthash_siphashx24_BYTES, "libsodium");
_Static_assert(AUTH_KEY_BYTES >= crypto_shorthash_siphashx24_KEYBYTES, "libsodium");
_Static_assert(AUTH_KEY_BYTES == crypto_kdf_blake2b_KEYBYTES, "libsodium");

int auth_key_init(struct auth_key *ret, const uint8_t *bytes, size_t n)
{
        if (sodium_init() < 0)
                return -ENOSYS;
        crypto_generichash(ret->bytes, sizeof ret->bytes, bytes, n, NULL, 0);
        return 0;
}

void auth_derive(struct auth_key *ret, const struct auth_key *key, enum auth_purpose purpose)
{
        crypto_kdf_blake2b_derive_from_key(ret->bytes, sizeof ret->bytes, (uint64_t)purpose, KEY_CONTEXT,
                                           key->bytes);
}

void auth_forget(struct auth_key *key)
{
        sodium_memzero(key->bytes, sizeof key->bytes);
}

static void make_tag(const struct auth_key *key, const uint8_t *bytes, size_t n,
                     uint8_t tag[static AUTH_TAG_BYTES])
{
        crypto_shorthash_siphashx24(tag, bytes, n, key->bytes);
}

static bool has_tag(const struct auth_key *key, const uint8_t *bytes, size_t n)
{
        uint8_t tag[AUTH_TAG_BYTES];

        make_tag(key, bytes, n - AUTH_TAG_BYTES, tag);
        return sodium_memcmp(tag, bytes + n - AUTH_TAG_BYTES, sizeof tag) == 0;
}

size_t auth_seal(const struct auth_key *key, uint8_t *bytes, size_t n, const struct auth_trailer *t)
{
        uint64_t words[2] = {htole64(t->session), htole64((uint64_t)t->to << NUMBER_BITS | t->number)};

        memcpy(bytes + n, words, sizeof words);
        make_tag(key, bytes, n + sizeof words, bytes + n + sizeof words);
        return n + AUTH_TRAILER_BYTES;
}

bool auth_open(const struct auth_key *key, const uint8_t *bytes, size_t n, struct auth_trailer *ret)
{
        uint64_t words[2];

        if (n < AUTH_TRAILER_BYTES || !has_tag(key, bytes, n))
                return false;
        memcpy(words, bytes + n - AUTH_TRAILER_BYTES, sizeof words);
        words[1] = le64toh(words[1]);
        *ret = (struct auth_trailer){.session = le64toh(words[0]),
                                     .number = words[1] & ((UINT64_C(1) << NUMBER_BITS) - 1),
                                     .to = (uint16_t)(words[1] >> NUMBER_BITS)};
        return true;
}

bool auth_is_hello(const uint8_t *bytes, size_t n)
{
        uint32_t magic;

        if (n != AUTH_HELLO_BYTES)
                return false;
        memcpy(&magic, bytes, sizeof magic);
        return le32toh(magic) == HELLO_MAGIC;
}

void auth_hello_encode(const struct auth_key *key, const struct auth_hello *h,
                       uint8_t bytes[static AUTH_HELLO_BYTES])
{
        uint64_t words[HELLO_WORDS] = {
                HELLO_MAGIC | (uint64_t)HELLO_VERSION << 32 | (uint64_t)h->from << 48,
                h->to,
                h->session,
                h->challenge,
                h->answer,
                h->next,
                h->group_next,
        };

        for (size_t i = 0; i < HELLO_WORDS; i++)
                words[i] = htole64(words[i]);
        memcpy(bytes, words, sizeof words);
        make_tag(key, bytes, sizeof words, bytes + sizeof words);
}

bool auth_hello_decode(const struct auth_key *key, const uint8_t bytes[static AUTH_HELLO_BYTES],
                       struct auth_hello *ret)
{
        uint64_t words[HELLO_WORDS];

        memcpy(words, bytes, sizeof words);
        for (size_t i = 0; i < HELLO_WORDS; i++)
                words[i] = le64toh(words[i]);
        *ret = (struct auth_hello){
                .from = (uint16_t)(words[0] >> 48),
                .to = (uint16_t)words[1],
                .session = words[2],
                .challenge = words[3],
                .answer = words[4],
                .next = words[5],
                .group_next = words[6],
        };
        return (uint16_t)(words[0] >> 32) == HELLO_VERSION && has_tag(key, bytes, AUTH_HELLO_BYTES);
}

void auth_window_begin(struct auth_window *w, uint64_t next)
{
        w->first = w->next = next;
        memset(w->seen, 0xff, sizeof w->seen);
}

static uint64_t *word_of(struct auth_window *w, uint64_t number)
{
        return &w->seen[number / 64 % (AUTH_WINDOW / 64)];
}

bool auth_window_accept(struct auth_window *w, uint64_t number)
{
        uint64_t bit = UINT64_C(1) << number % 64;

        if (number + AUTH_WINDOW < w->next || number == UINT64_MAX)
                return false;
        if (number >= w->next && number - w->next >= AUTH_WINDOW) {
                memset(w->seen, 0, sizeof w->seen);
                w->next = number + 1;
        }
        for (; w->next <= number; w->next++)
                *word_of(w, w->next) &= ~(UINT64_C(1) << w->next % 64);
        if (*word_of(w, number) & bit)
                return false;
        *word_of(w, number) |= bit;
        return true;
}

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

        /* The nonce of the end that made the connection comes first. */
        memcpy(nonces, dials ? own : peers, AUTH_NONCE_BYTES);
        memcpy(nonces + AUTH_NONCE_BYTES, dials ? peers : own, AUTH_NONCE_BYTES);
        *l = (struct auth_line){.dials = dials};
        crypto_generichash(l->key.bytes, sizeof l->key.bytes, nonces, sizeof nonces, key->bytes,
                           sizeof key->bytes);
}

static void make_line_tag(const struct auth_line *l, bool from_dialer, uint64_t number, const char *text,
                          size_t n, uint8_t tag[static AUTH_TAG_BYTES])
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

        make_line_tag(l, l->dials, l->sent++, line, n, tag);
        sodium_bin2hex(text, AUTH_LINE_TEXT_BYTES, tag, sizeof tag);
}

const char *auth_line_open(struct auth_line *l, const char *line, size_t n)
{
        size_t before = AUTH_LINE_TEXT_BYTES; /* the tag and a space */
        uint8_t tag[AUTH_TAG_BYTES], expected[AUTH_TAG_BYTES];

        if (n < before || line[before - 1] != ' ' || !parse_hex(tag, line, before - 1))
                return NULL;
        make_line_tag(l, !l->dials, l->received, line + before, n - before, expected);
        if (sodium_memcmp(tag, expected, sizeof tag) != 0)
                return NULL;
        l->received++;
        return line + before;
}
