/* Lines that a consumer of live events sends over TCP: the request, then positions. The same lines with tags
 * of the right key must have the same effect. */
#include <assert.h>
#include <string.h>

#include "base/util.h"
#include "live/live_select.h"
#include "fuzz.h"

static const uint8_t nonces[2][AUTH_NONCE_BYTES] = {"of the SFI", "the consumer's"};

struct ends {
        struct live_lines sfi;
        struct auth_line consumer;
};

static int accept_text(struct live_lines *l, const char *text, size_t n, struct live_line *ret)
{
        char line[LIVE_LINE_MAX];
        struct error e = {};
        int r;

        memcpy(line, text, n);
        r = live_lines_accept(l, line, n, ret, &e);
        assert(r >= 0 || (e.message[0] && strnlen(e.message, sizeof e.message) < sizeof e.message));
        return r;
}

static void begin(struct ends *ends, struct auth_key *key)
{
        char line[AUTH_LINE_TEXT_BYTES + 4] = "key ";
        struct live_line found;

        assert(auth_key_init(key, (const uint8_t *)"key", 3) == 0);
        live_lines_init(&ends->sfi, key, nonces[0]);
        auth_nonce_format(nonces[1], line + 4);
        assert(accept_text(&ends->sfi, line, strlen(line), &found) == 0 && found.kind == LIVE_LINE_NONCE);
        auth_line_begin(&ends->consumer, key, true, nonces[1], nonces[0]);
}

static int accept_tagged(struct ends *ends, const char *text, size_t n, struct live_line *ret)
{
        char line[LIVE_LINE_MAX];

        auth_line_seal(&ends->consumer, text, n, line);
        line[AUTH_LINE_TEXT_BYTES - 1] = ' ';
        memcpy(line + AUTH_LINE_TEXT_BYTES, text, n);
        return accept_text(&ends->sfi, line, AUTH_LINE_TEXT_BYTES + n, ret);
}

static void check(const struct live_line *plain, const struct live_line *tagged, bool is_first)
{
        assert(plain->kind == (is_first ? LIVE_LINE_REQUEST : LIVE_LINE_READ) && tagged->kind == plain->kind);
        assert(is_first ? live_request_equals(&plain->request, &tagged->request)
                        : plain->position == tagged->position);
}

bool fuzz_accepts(const uint8_t *bytes, size_t size_bytes)
{
        static const uint8_t no_nonce[AUTH_NONCE_BYTES];
        const char *text = (const char *)bytes, *end;
        struct live_lines plain;
        struct auth_key key;
        struct ends ends = {};
        bool is_first = true;

        live_lines_init(&plain, NULL, no_nonce);
        begin(&ends, &key);
        while (size_bytes > 0 && (end = memchr(text, '\n', size_bytes))) {
                size_t n = (size_t)(end - text);
                struct live_line found = {}, tagged = {};
                int r;

                if (n + AUTH_LINE_TEXT_BYTES >= LIVE_LINE_MAX)
                        return false;
                r = accept_text(&plain, text, n, &found);
                /* A nonce is an error here only without a key. */
                if (strncmp(text, "key ", MIN(n, 4u)) != 0 || n < 4)
                        assert((accept_tagged(&ends, text, n, &tagged) < 0) == (r < 0));
                if (r < 0)
                        return false;
                check(&found, &tagged, is_first);
                is_first = false;
                size_bytes -= n + 1;
                text = end + 1;
        }
        return !is_first && size_bytes == 0;
}
