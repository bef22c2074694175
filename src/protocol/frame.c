/* Parses the descriptions of frames and fragments, and finds frames in the bytes of a board. */
#include "protocol/frame.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/quantity.h"
#include "base/util.h"

/* Equals EVB_FRAGMENT_MAX_BYTES. */
#define FIXED_MAX (4u << 20)
#define UNIT_MAX 4096u
#define PLUS_MAX 65536u

/* Copies the next word of *text, and advances *text; the word is empty at the end of the text. */
static void next_word(const char **text, char *word, size_t word_bytes)
{
        size_t n;

        *text += strspn(*text, " \t");
        n = strcspn(*text, " \t");
        snprintf(word, word_bytes, "%.*s", (int)n, *text);
        *text += n;
}

static bool read_count(const char *word, uint32_t least, uint32_t most, uint32_t *ret)
{
        unsigned long v = strtoul(word, NULL, 10);

        *ret = (uint32_t)v;
        return word[0] && strlen(word) < 10 && strspn(word, "0123456789") == strlen(word) && v >= least &&
               v <= most;
}

static bool read_hex(const char *word, uint8_t bytes[static FRAME_MARKER_MAX], uint8_t *ret_n)
{
        size_t n = strlen(word);

        if (n == 0 || n % 2 || n > 2 * FRAME_MARKER_MAX || strspn(word, "0123456789abcdefABCDEF") != n)
                return false;
        for (size_t i = 0; i < n / 2; i++)
                bytes[i] = (uint8_t)strtoul((char[]){word[2 * i], word[2 * i + 1], '\0'}, NULL, 16);
        *ret_n = (uint8_t)(n / 2);
        return true;
}

static bool read_field(const char *word, struct number_field *ret)
{
        const char *rest = number_field_parse(ret, word);

        return rest && *rest == '\0';
}

#define EXPECTED_MARKER "expected 1 to 16 bytes as hexadecimal digits, e.g. marker 45484452"

enum frame_word {
        WORD_DATAGRAM,
        WORD_LENGTH,
        WORD_FIXED,
        WORD_MARKER,
        WORD_END,
        WORD_UNIT,
        WORD_PLUS,
        WORD_SKIP,
        WORDS
};

static const char *const words[WORDS] = {"datagram", "length", "fixed", "marker",
                                         "end",      "unit",   "plus",  "skip"};

/* Reads the value of a word. Returns NULL, or the error. */
static const char *read_value(struct frame_rule *r, enum frame_word word, const char *value)
{
        switch (word) {
        case WORD_LENGTH:
                r->kind = FRAME_LENGTH;
                return read_field(value, &r->length)
                               ? NULL
                               : "expected length OFFSET[.BIT]:BITS[:be], e.g. length 0.0:28";
        case WORD_FIXED:
                r->kind = FRAME_FIXED;
                return read_count(value, 1, FIXED_MAX, &r->fixed_bytes)
                               ? NULL
                               : "expected fixed N with a number of bytes";
        case WORD_MARKER:
                return read_hex(value, r->marker, &r->n_marker) ? NULL : EXPECTED_MARKER;
        case WORD_END:
                return read_hex(value, r->end, &r->n_end) ? NULL : EXPECTED_MARKER;
        case WORD_UNIT:
                return read_count(value, 1, UNIT_MAX, &r->unit) ? NULL
                                                                : "expected unit N with 1 to 4096 bytes";
        case WORD_PLUS:
                return read_count(value, 0, PLUS_MAX, &r->plus) ? NULL
                                                                : "expected plus N with at most 65536 bytes";
        case WORD_SKIP:
                return read_count(value, 1, PLUS_MAX, &r->skip_bytes)
                               ? NULL
                               : "expected skip N with 1 to 65536 bytes";
        default:
                r->kind = FRAME_DATAGRAM;
                return NULL;
        }
}

/* Checks whether the words fit together. Returns NULL, or the error. */
static const char *check_words(const struct frame_rule *r, unsigned seen)
{
        unsigned kinds = seen & (1u << WORD_DATAGRAM | 1u << WORD_LENGTH | 1u << WORD_FIXED);

        if (kinds & (kinds - 1) || (kinds == 0 && !(seen & 1u << WORD_MARKER)))
                return "expected one of datagram, length OFFSET:BITS, fixed N and marker HEX";
        if (r->kind == FRAME_DATAGRAM && seen & 1u << WORD_MARKER)
                return "expected datagram without a marker, as each datagram is a frame";
        if (seen & 1u << WORD_END && kinds != 0)
                return "expected end only with a marker, and without a length or fixed size";
        if (seen & (1u << WORD_UNIT | 1u << WORD_PLUS) && r->kind != FRAME_LENGTH)
                return "expected unit and plus only with a length";
        if (r->kind == FRAME_FIXED && (r->fixed_bytes < r->skip_bytes || r->fixed_bytes < r->n_marker))
                return "expected a frame that is longer than its marker and the bytes to skip";
        return NULL;
}

const char *frame_rule_parse(struct frame_rule *ret, const char *text)
{
        struct frame_rule r = {.kind = FRAME_MARKED, .unit = 1};
        char word[64], value[64];
        const char *wrong;
        unsigned seen = 0;

        while (next_word(&text, word, sizeof word), word[0]) {
                size_t i = 0;

                while (i < WORDS && strcmp(word, words[i]) != 0)
                        i++;
                if (i == WORDS || seen & 1u << i)
                        return "expected datagram, length OFFSET:BITS [unit N] [plus N], fixed N, or marker "
                               "HEX [end HEX], and perhaps skip N";
                seen |= 1u << i;
                if (i != WORD_DATAGRAM)
                        next_word(&text, value, sizeof value);
                wrong = read_value(&r, (enum frame_word)i, value);
                if (wrong)
                        return wrong;
        }
        wrong = check_words(&r, seen);
        if (!wrong)
                *ret = r;
        return wrong;
}

static void add_hex(char *text, const char *word, const uint8_t *bytes, size_t n)
{
        size_t at = strlen(text);

        if (n == 0)
                return;
        at += (size_t)snprintf(text + at, FRAME_TEXT_MAX - at, "%s%s ", at > 0 ? " " : "", word);
        for (size_t i = 0; i < n; i++)
                at += (size_t)snprintf(text + at, FRAME_TEXT_MAX - at, "%02x", bytes[i]);
}

static void add_count(char *text, const char *word, uint32_t value, uint32_t standard)
{
        size_t at = strlen(text);

        if (value != standard)
                snprintf(text + at, FRAME_TEXT_MAX - at, "%s%s %u", at > 0 ? " " : "", word, value);
}

char *frame_rule_format(const struct frame_rule *r, char text[static FRAME_TEXT_MAX])
{
        char at[NUMBER_FIELD_TEXT_MAX];

        text[0] = '\0';
        if (r->kind == FRAME_DATAGRAM)
                strcpy(text, "datagram");
        else if (r->kind == FRAME_LENGTH)
                snprintf(text, FRAME_TEXT_MAX, "length %s", number_field_format(&r->length, at));
        add_count(text, "unit", r->unit, 1);
        add_count(text, "plus", r->plus, 0);
        add_count(text, "fixed", r->fixed_bytes, 0);
        add_hex(text, "marker", r->marker, r->n_marker);
        add_hex(text, "end", r->end, r->n_end);
        add_count(text, "skip", r->skip_bytes, 0);
        return text;
}

#define JOIN_WITHIN_MAX_NS (3600 * NS_PER_S)

/* Reads the value of a word after `join`. Returns NULL, or the error. */
static const char *read_join(struct join_rule *r, const char *word, const char *value)
{
        if (strcmp(word, "count") == 0 && r->count == 0 && r->count_at.bits == 0)
                return read_field(value, &r->count_at) || read_count(value, 2, JOIN_COUNT_MAX, &r->count)
                               ? NULL
                               : "expected count N with 2 to 65536 frames, or count OFFSET[.BIT]:BITS[:be]";
        if (strcmp(word, "last") == 0 && r->last.bits == 0)
                return read_field(value, &r->last) ? NULL
                                                   : "expected last OFFSET[.BIT]:BITS[:be], e.g. last 4.7:1";
        if (strcmp(word, "demux") == 0 && r->board.bits == 0)
                return read_field(value, &r->board) && r->board.bits <= JOIN_BOARD_BITS_MAX
                               ? NULL
                               : "expected demux OFFSET[.BIT]:BITS[:be] with at most 10 bits, e.g. demux 4:4";
        if (strcmp(word, "index") == 0 && r->index.bits == 0)
                return read_field(value, &r->index)
                               ? NULL
                               : "expected index OFFSET[.BIT]:BITS[:be], e.g. index 12:32";
        if (strcmp(word, "within") == 0 && r->within_ns == 0)
                return quantity_parse_time(value, &r->within_ns) == 0 && r->within_ns > 0 &&
                                       r->within_ns <= JOIN_WITHIN_MAX_NS
                               ? NULL
                               : "expected within TIME, e.g. within 10ms";
        return "expected one, or join, perhaps with count N or count OFFSET:BITS, last OFFSET:BITS, demux "
               "OFFSET:BITS, index OFFSET:BITS and within TIME";
}

const char *join_rule_parse(struct join_rule *ret, const char *text)
{
        struct join_rule r = {};
        char word[64], value[64];
        const char *wrong;

        next_word(&text, word, sizeof word);
        r.joins = strcmp(word, "join") == 0;
        if (!r.joins && strcmp(word, "one") != 0)
                return read_join(&r, "", "");
        while (next_word(&text, word, sizeof word), word[0]) {
                next_word(&text, value, sizeof value);
                wrong = r.joins ? read_join(&r, word, value) : "expected one without further words";
                if (wrong)
                        return wrong;
        }
        if (r.last.bits > 0 && (r.count > 0 || r.count_at.bits > 0))
                return "expected either count or last, as both show the end of a fragment";
        if (r.last.bits > 0 && r.board.bits > 0)
                return "expected demux with count, as each board has its last frame";
        *ret = r;
        return NULL;
}

static void add_field(char *text, const char *word, const struct number_field *f)
{
        char at[NUMBER_FIELD_TEXT_MAX];
        size_t n = strlen(text);

        if (f->bits > 0)
                snprintf(text + n, JOIN_TEXT_MAX - n, " %s %s", word, number_field_format(f, at));
}

char *join_rule_format(const struct join_rule *r, char text[static JOIN_TEXT_MAX])
{
        static const char *const units[] = {"ns", "us", "ms", "s"};
        uint64_t time = r->within_ns;
        size_t unit = 0, n;

        strcpy(text, r->joins ? "join" : "one");
        if (r->count > 0)
                snprintf(text, JOIN_TEXT_MAX, "join count %u", r->count);
        add_field(text, "count", &r->count_at);
        add_field(text, "last", &r->last);
        add_field(text, "demux", &r->board);
        add_field(text, "index", &r->index);
        for (; unit + 1 < ARRAY_SIZE(units) && time > 0 && time % 1000 == 0; unit++)
                time /= 1000;
        n = strlen(text);
        if (time > 0)
                snprintf(text + n, JOIN_TEXT_MAX - n, " within %" PRIu64 "%s", time, units[unit]);
        return text;
}

size_t join_rule_end(const struct join_rule *r)
{
        const struct number_field *fields[] = {&r->count_at, &r->last, &r->board, &r->index};
        size_t end = 0;

        for (size_t i = 0; i < ARRAY_SIZE(fields); i++)
                end = fields[i]->bits > 0 ? MAX(end, number_field_end(fields[i])) : end;
        return end;
}

/* Number of bytes of a frame that must have arrived before the frame can be found. */
static size_t head_bytes(const struct frame_rule *r)
{
        size_t length = r->kind == FRAME_LENGTH ? number_field_end(&r->length) : 1;

        return MAX(length, (size_t)r->n_marker);
}

/* Position of the next occurrence of these bytes from `from` on; SIZE_MAX: none. */
static size_t find_bytes(const uint8_t *bytes, size_t n, size_t from, const uint8_t *what, size_t n_what)
{
        const uint8_t *at = from < n ? memmem(bytes + from, n - from, what, n_what) : NULL;

        return at ? (size_t)(at - bytes) : SIZE_MAX;
}

/* Number of bytes before the next marker, if the bytes do not begin with a marker. The last bytes may be the
 * beginning of one. */
static size_t foreign_bytes(const struct frame_rule *r, const uint8_t *bytes, size_t n, bool is_end)
{
        size_t at = find_bytes(bytes, n, 1, r->marker, r->n_marker);

        if (at != SIZE_MAX || is_end)
                return MIN(at, n);
        return MAX(n - MIN(n, (size_t)r->n_marker - 1), (size_t)1);
}

/* Finds the end of a frame that begins at `bytes` with its marker. */
static enum frame_result find_end(const struct frame_rule *r, const uint8_t *bytes, size_t n, bool is_end,
                                  uint64_t max_bytes, size_t *scanned, size_t *ret_bytes)
{
        const uint8_t *what = r->n_end > 0 ? r->end : r->marker;
        size_t n_what = r->n_end > 0 ? r->n_end : r->n_marker;
        size_t at = find_bytes(bytes, n, MAX(*scanned, (size_t)r->n_marker), what, n_what);

        if (at != SIZE_MAX)
                *ret_bytes = at + r->n_end;
        else if (is_end && r->n_end == 0)
                *ret_bytes = n;
        else if (n < max_bytes + n_what && !is_end) {
                /* The last bytes may be the beginning of the bytes that are searched for. */
                *scanned = n - MIN(n, n_what - 1);
                return FRAME_MORE;
        } else
                *ret_bytes = SIZE_MAX;
        if (*ret_bytes <= max_bytes && *ret_bytes >= r->skip_bytes)
                return FRAME_FOUND;
        *scanned = at != SIZE_MAX ? at : n - MIN(n, n_what - 1);
        /* The frame has no end, or is too long, so the marker does not begin a frame. */
        *ret_bytes = foreign_bytes(r, bytes, n, is_end);
        return FRAME_FOREIGN;
}

/* The size according to the length field; 0: the size is impossible. */
static uint64_t read_size(const struct frame_rule *r, const uint8_t *bytes, size_t n, uint64_t max_bytes)
{
        uint64_t count = 0, size;

        (void)number_read(&r->length, bytes, n, &count);
        if (count > max_bytes)
                return 0;
        size = count * r->unit + r->plus;
        return size < head_bytes(r) || size < r->skip_bytes || size > max_bytes ? 0 : size;
}

enum frame_result frame_find(const struct frame_rule *r, const uint8_t *bytes, size_t n, bool is_end,
                             uint32_t max_bytes, size_t *scanned, size_t *ret_bytes)
{
        uint64_t max = (uint64_t)max_bytes + r->skip_bytes;

        if (r->kind == FRAME_DATAGRAM) {
                *ret_bytes = n;
                return n <= max && n >= r->skip_bytes ? FRAME_FOUND : FRAME_WRONG;
        }
        if (n < r->n_marker && !is_end)
                return FRAME_MORE;
        if (r->n_marker > 0 && (n < r->n_marker || memcmp(bytes, r->marker, r->n_marker) != 0)) {
                *ret_bytes = foreign_bytes(r, bytes, n, is_end);
                return FRAME_FOREIGN;
        }
        if (r->kind == FRAME_MARKED)
                return find_end(r, bytes, n, is_end, max, scanned, ret_bytes);
        if (n < head_bytes(r))
                return is_end ? FRAME_WRONG : FRAME_MORE;
        *ret_bytes = r->kind == FRAME_FIXED ? r->fixed_bytes : read_size(r, bytes, n, max);
        if (*ret_bytes > 0)
                return FRAME_FOUND;
        *ret_bytes = r->n_marker > 0 ? foreign_bytes(r, bytes, n, is_end) : 0;
        return r->n_marker > 0 ? FRAME_FOREIGN : FRAME_WRONG;
}
