/* Looks up keys, and converts values between the text of a scenario and struct scenario. read.c calls it for
 * each line; the keys themselves are in keys_table.c. */
#include "conf/keys.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "base/quantity.h"
#include "base/strbuf.h"
#include "base/util.h"
#include "conf_internal.h"

#define KIB UINT64_C(1024)
#define MIB (KIB * KIB)
#define GIB (KIB * MIB)

/* Almost all names differ in the first byte. */
static bool is_same(const char *a, const char *b)
{
        return a[0] == b[0] && strcmp(a, b) == 0;
}

/* Whether `full` is SECTION.NAME. */
static bool is_full_name(const char *full, const char *section, const char *name)
{
        size_t n = strlen(section);

        return strncmp(full, section, n) == 0 && full[n] == '.' && strcmp(full + n + 1, name) == 0;
}

const struct scenario_key *scenario_key_find(const char *section, const char *name)
{
        for (size_t i = 0; i < n_scenario_keys; i++) {
                const struct scenario_key *k = &scenario_keys[i];

                if ((is_same(k->name, name) && is_same(k->section, section)) ||
                    (k->old_name && is_full_name(k->old_name, section, name)))
                        return k;
        }
        return NULL;
}

const struct removed_key *removed_key_find(const char *section, const char *name)
{
        for (const struct removed_key *k = removed_keys; k->name; k++) {
                if (is_full_name(k->name, section, name))
                        return k;
        }
        return NULL;
}

int conf_choice_index(const char *words, const char *word)
{
        size_t n = strlen(word);

        for (int i = 0;; i++) {
                size_t length = strcspn(words, "|");

                if (length == n && strncmp(words, word, n) == 0)
                        return i;
                if (words[length] == '\0')
                        return -1;
                words += length + 1;
        }
}

int conf_parse_number(const struct scenario_key *key, const char *value, uint64_t *ret)
{
        switch (key->kind) {
        case KEY_COUNT:
                return quantity_parse_count(value, ret);
        case KEY_BYTES:
                return quantity_parse_bytes(value, ret);
        case KEY_RATE:
                return quantity_parse_rate(value, ret);
        case KEY_TIME:
                return quantity_parse_time(value, ret);
        case KEY_FREQUENCY:
                return quantity_parse_frequency(value, ret);
        default:
                return -EINVAL;
        }
}

static int set_number(const struct scenario_key *key, uint64_t *at, const char *value)
{
        uint64_t number;
        int r;

        if (key->words && strcmp(value, key->words) == 0) {
                *at = key->word_value;
                return 0;
        }
        if (key->other_word && strcmp(value, key->other_word) == 0) {
                *at = key->other_value;
                return 0;
        }
        r = conf_parse_number(key, value, &number);
        if (r < 0)
                return -EINVAL;
        if (number < key->least || number > key->most)
                return -EINVAL;
        *at = number;
        return 0;
}

bool conf_is_line(const char *value)
{
        for (const char *c = value; *c; c++) {
                bool edge = c == value || c[1] == '\0', behind_blank = c == value || c[-1] == ' ';

                if ((unsigned char)*c < ' ' || *c == 0x7f || (*c == ' ' && edge) ||
                    (strchr("#;", *c) && behind_blank))
                        return false;
        }
        return true;
}

/* Returns 0 or -EINVAL. */
static int parse_value(const struct scenario_key *key, const char *value, void *at)
{
        int choice;

        switch (key->kind) {
        case KEY_TEXT:
                if (strlen(value) >= SCENARIO_TEXT_MAX || !conf_is_line(value))
                        return -EINVAL;
                strcpy(at, value);
                return 0;
        case KEY_CHOICE:
                choice = conf_choice_index(key->words, value);
                if (choice < 0)
                        return -EINVAL;
                *(uint64_t *)at = (uint64_t)choice;
                return 0;
        case KEY_FRACTION:
                return quantity_parse_fraction(value, at) < 0 ? -EINVAL : 0;
        default:
                return set_number(key, at, value);
        }
}

int scenario_key_set(struct scenario *s, const struct scenario_key *key, const char *value)
{
        return parse_value(key, value, (char *)s + key->offset);
}

void scenario_key_copy(struct scenario *to, const struct scenario *from, const struct scenario_key *key)
{
        size_t size_bytes = key->kind == KEY_FRACTION ? sizeof(double) : sizeof(uint64_t);

        assert(key->kind != KEY_TEXT);
        memcpy((char *)to + key->offset, (const char *)from + key->offset, size_bytes);
}

void conf_add_number(struct strbuf *b, enum key_kind kind, uint64_t v)
{
        static const struct {
                enum key_kind kind;
                uint64_t factor;
                const char *unit;
        } units[] = {
                {KEY_BYTES, GIB, "GiB"},         {KEY_BYTES, MIB, "MiB"},
                {KEY_BYTES, KIB, "KiB"},         {KEY_RATE, 1000000000, "Gbit"},
                {KEY_RATE, 1000000, "Mbit"},     {KEY_RATE, 1000, "kbit"},
                {KEY_TIME, NS_PER_S, "s"},       {KEY_TIME, NS_PER_MS, "ms"},
                {KEY_TIME, NS_PER_US, "us"},     {KEY_TIME, 1, "ns"},
                {KEY_FREQUENCY, 1000000, "kHz"}, {KEY_FREQUENCY, 1000, "Hz"},
                {KEY_FREQUENCY, 1, "mHz"},
        };

        for (size_t i = 0; v > 0 && i < ARRAY_SIZE(units); i++) {
                if (units[i].kind == kind && v % units[i].factor == 0) {
                        strbuf_add(b, "%" PRIu64 "%s", v / units[i].factor, units[i].unit);
                        return;
                }
        }
        strbuf_add(b, "%" PRIu64, v);
}

/* Fractions are whole billionths. "%g" would print "1e-05", which cannot be read again. */
static void add_fraction(struct strbuf *b, double v)
{
        strbuf_add(b, "%.9f", v);
        while (b->text[b->length - 1] == '0')
                b->text[--b->length] = '\0';
        if (b->text[b->length - 1] == '.')
                b->text[--b->length] = '\0';
}

static char *format_value(const struct scenario_key *key, const void *at, char *text, size_t size_bytes)
{
        struct strbuf b = strbuf_init(text, size_bytes);

        if (key->kind == KEY_TEXT) {
                strbuf_add(&b, "%s", (const char *)at);
                return text;
        }
        if (key->kind == KEY_FRACTION) {
                add_fraction(&b, *(const double *)at);
                return text;
        }
        uint64_t v = *(const uint64_t *)at;

        if (key->kind == KEY_CHOICE) {
                const char *word = key->words;

                for (uint64_t i = 0; i < v; i++)
                        word += strcspn(word, "|") + 1;
                strbuf_add(&b, "%.*s", (int)strcspn(word, "|"), word);
        } else if (key->words && v == key->word_value)
                strbuf_add(&b, "%s", key->words);
        else if (key->other_word && v == key->other_value)
                strbuf_add(&b, "%s", key->other_word);
        else
                conf_add_number(&b, key->kind, v);
        return text;
}

char *scenario_key_value(const struct scenario *s, const struct scenario_key *key, char *text,
                         size_t size_bytes)
{
        return format_value(key, (const char *)s + key->offset, text, size_bytes);
}
