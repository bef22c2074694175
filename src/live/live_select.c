/* Reads the requests and lines of consumers, with one table of names, and selects events. */
#include "live_select.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/quantity.h"
#include "base/random.h"
#include "base/util.h"

#define RING_LEAST (64u << 10)
#define RING_STANDARD (16u << 20)

enum field_kind { FIELD_COUNT, FIELD_BYTES, FIELD_FRACTION, FIELD_WORD, FIELD_TYPES, FIELD_GROUP };

static const struct field {
        const char *name;
        enum field_kind kind;
        size_t offset;
        uint64_t least, most;
        const char *words[3];
        const char *expected;
} fields[] = {
        {"mode",
         FIELD_WORD,
         offsetof(struct live_request, mode),
         0,
         0,
         {"newest", "skip", "all"},
         "newest, skip or all"},
        {"stride", FIELD_COUNT, offsetof(struct live_request, stride), 1, UINT64_MAX, {}, "1 or more"},
        {"offset",
         FIELD_COUNT,
         offsetof(struct live_request, offset),
         0,
         UINT64_MAX,
         {},
         "a number below the stride"},
        {"fraction",
         FIELD_FRACTION,
         offsetof(struct live_request, fraction),
         0,
         0,
         {},
         "a fraction from 0 to 1, e.g. 1%"},
        {"seed", FIELD_COUNT, offsetof(struct live_request, seed), 0, UINT64_MAX, {}, "a number"},
        {"trigger-type", FIELD_TYPES, 0, 0, 0, {}, "up to 8 numbers, e.g. 1,4"},
        {"status",
         FIELD_WORD,
         offsetof(struct live_request, status),
         0,
         0,
         {"any", "complete", "partial"},
         "any, complete or partial"},
        {"group", FIELD_GROUP, 0, 0, 0, {}, "a name of at most 47 characters"},
        {"ring",
         FIELD_BYTES,
         offsetof(struct live_request, ring_bytes),
         RING_LEAST,
         LIVE_RINGS_MAX_BYTES,
         {},
         "64KiB to 256MiB"},
};

static bool read_types(struct live_request *r, char *value)
{
        char *end;

        r->n_types = 0;
        for (char *each; (each = strsep(&value, ","));) {
                unsigned long long type = strtoull(each, &end, 0);

                if (each[0] < '0' || each[0] > '9' || *end || type > UINT32_MAX ||
                    r->n_types == LIVE_TYPES_MAX)
                        return false;
                r->types[r->n_types++] = (uint32_t)type;
        }
        return true;
}

static bool read_word(const struct field *f, const char *value, uint64_t *ret)
{
        for (size_t i = 0; i < ARRAY_SIZE(f->words) && f->words[i]; i++) {
                if (strcmp(f->words[i], value) == 0) {
                        *ret = i;
                        return true;
                }
        }
        return false;
}

static bool read_value(struct live_request *r, const struct field *f, char *value)
{
        void *member = (char *)r + f->offset;
        uint64_t *number = member;

        switch (f->kind) {
        case FIELD_COUNT:
        case FIELD_BYTES:
                return (f->kind == FIELD_COUNT ? quantity_parse_count : quantity_parse_bytes)(value,
                                                                                              number) >= 0 &&
                       *number >= f->least && *number <= f->most;
        case FIELD_FRACTION:
                return quantity_parse_fraction(value, member) >= 0;
        case FIELD_WORD:
                return read_word(f, value, number);
        case FIELD_TYPES:
                return read_types(r, value);
        case FIELD_GROUP:
                break;
        }
        if (!*value || strlen(value) >= sizeof r->group)
                return false;
        memcpy(r->group, value, strlen(value) + 1);
        return true;
}

static int read_field(struct live_request *r, char *text, struct error *e)
{
        char *value = strchr(text, '=');

        if (value)
                *value++ = '\0';
        for (size_t i = 0; value && i < ARRAY_SIZE(fields); i++) {
                if (strcmp(fields[i].name, text) != 0)
                        continue;
                return read_value(r, &fields[i], value)
                               ? 0
                               : error_set(e, -EINVAL, "%s: invalid value; expected %s", text,
                                           fields[i].expected);
        }
        return error_set(e, -EINVAL, "unknown option \"%.40s\"", text);
}

int live_request_parse(struct live_request *ret, const char *line, struct error *e)
{
        struct live_request r = {.stride = 1, .seed = 1, .fraction = 1, .ring_bytes = RING_STANDARD};
        char copy[LIVE_LINE_MAX], *rest = copy;
        const size_t greeting = strlen(LIVE_GREETING);
        int result;

        if (strncmp(line, LIVE_GREETING, greeting) != 0 || (line[greeting] && line[greeting] != ' ') ||
            strlen(line) >= sizeof copy)
                return error_set(e, -EINVAL,
                                 "invalid request; expected a consumer of live events, version 1");
        strcpy(copy, line + greeting);
        for (char *each; (each = strsep(&rest, " "));) {
                result = *each ? read_field(&r, each, e) : 0;
                if (result < 0)
                        return result;
        }
        if (r.offset >= r.stride)
                return error_set(e, -EINVAL, "offset: invalid value; expected a number below the stride");
        if (r.stride > 1 && r.fraction < 1)
                return error_set(e, -EINVAL, "stride and fraction exclude each other; expected one of them");
        r.ring_bytes = ALIGN_UP(r.ring_bytes, (uint64_t)4096);
        *ret = r;
        return 0;
}

bool live_request_equals(const struct live_request *a, const struct live_request *b)
{
        return a->mode == b->mode && a->status == b->status && a->stride == b->stride &&
               a->offset == b->offset && a->seed == b->seed && a->ring_bytes == b->ring_bytes &&
               a->fraction == b->fraction && strcmp(a->group, b->group) == 0 && a->n_types == b->n_types &&
               memcmp(a->types, b->types, a->n_types * sizeof a->types[0]) == 0;
}

static bool matches(const struct live_request *r, const struct live_event *event)
{
        bool right = r->n_types == 0;

        for (size_t i = 0; i < r->n_types; i++)
                right |= r->types[i] == event->trigger_type;
        return right && (r->status == LIVE_ANY || event->is_partial == (r->status == LIVE_PARTIAL));
}

bool live_request_selects(const struct live_request *r, struct live_counts *counts,
                          const struct live_event *event)
{
        counts->offered++;
        if (!matches(r, event))
                return false;
        if (r->fraction < 1 &&
            (double)(random_mix(r->seed ^ random_mix(event->number)) >> 11) * 0x1p-53 >= r->fraction) {
                counts->matched++;
                return false;
        }
        return counts->matched++ % r->stride == r->offset;
}

/* ---- Lines over TCP ---- */

#define READ_LINE "read "

void live_lines_init(struct live_lines *l, const struct auth_key *key,
                     const uint8_t nonce[static AUTH_NONCE_BYTES])
{
        *l = (struct live_lines){.key = key};
        memcpy(l->nonce, nonce, sizeof l->nonce);
}

static int accept_nonce(struct live_lines *l, const char *text, struct error *e)
{
        uint8_t peers[AUTH_NONCE_BYTES];

        if (!l->key)
                return error_set(e, -ENOKEY, "this SFI has no key (network.key-file); expected no key");
        if (strncmp(text, LIVE_NONCE_LINE, strlen(LIVE_NONCE_LINE)) != 0 ||
            !auth_nonce_parse(peers, text + strlen(LIVE_NONCE_LINE)))
                return error_set(
                        e, -ENOKEY,
                        "this SFI has a key; expected a consumer with the same key (network.key-file)");
        auth_line_begin(&l->auth, l->key, false, l->nonce, peers);
        l->is_tagged = true;
        return 0;
}

/* quantity_parse_count() also accepts units. */
static int parse_position(const char *text, uint64_t *ret, struct error *e)
{
        const char *number = text + strlen(READ_LINE);
        char *end = NULL;

        errno = 0;
        if (strncmp(text, READ_LINE, strlen(READ_LINE)) != 0 || *number < '0' || *number > '9')
                return error_set(e, -EPROTO, "invalid line; expected read POSITION");
        *ret = strtoull(number, &end, 10);
        return errno != 0 || *end ? error_set(e, -EPROTO, "invalid position") : 0;
}

int live_lines_accept(struct live_lines *l, char *line, size_t n, struct live_line *ret, struct error *e)
{
        const char *text = line;
        int r;

        line[n] = '\0';
        if (strlen(line) != n)
                return error_set(e, -EPROTO, "invalid line; expected text");
        if (!l->is_tagged && (l->key || strncmp(line, LIVE_NONCE_LINE, strlen(LIVE_NONCE_LINE)) == 0)) {
                ret->kind = LIVE_LINE_NONCE;
                return accept_nonce(l, line, e);
        }
        if (l->is_tagged && !(text = auth_line_open(&l->auth, line, n)))
                return error_set(e, -EKEYREJECTED,
                                 "the consumer has another key than this SFI (network.key-file)");
        if (l->has_request) {
                ret->kind = LIVE_LINE_READ;
                return parse_position(text, &ret->position, e);
        }
        ret->kind = LIVE_LINE_REQUEST;
        r = live_request_parse(&ret->request, text, e);
        l->has_request = r >= 0;
        return r;
}

size_t live_lines_format(struct live_lines *l, const char *text, char line[static LIVE_LINE_MAX])
{
        char tag[AUTH_LINE_TEXT_BYTES] = "";
        int n;

        if (l->is_tagged)
                auth_line_seal(&l->auth, text, strlen(text), tag);
        n = snprintf(line, LIVE_LINE_MAX, "%s%s%s\n", tag, tag[0] ? " " : "", text);
        assert(n > 0 && (size_t)n < LIVE_LINE_MAX);
        return (size_t)n;
}
