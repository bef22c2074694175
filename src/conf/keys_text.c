/* Readable texts about keys: the values that a key accepts, why it rejects one, and the list of all keys for
 * `evb check --keys` and the manual page. */
#include "conf/keys.h"

#include <errno.h>
#include <string.h>

#include "base/strbuf.h"
#include "base/util.h"
#include "conf_internal.h"

static const struct {
        const char *name, *units, *example;
} kinds[] = {
        [KEY_COUNT] = {"number", NULL, "10"},
        [KEY_BYTES] = {"size", "bytes, or with B, kB, KiB, MB, MiB, GB, GiB", "64KiB"},
        [KEY_RATE] = {"rate", "bit, kbit, Mbit, Gbit (per second)", "100Mbit"},
        [KEY_TIME] = {"time", "ns, us, ms, s, min, h", "250ms"},
        [KEY_FREQUENCY] = {"frequency", "mHz, Hz, kHz, MHz", "2kHz"},
        [KEY_FRACTION] = {"fraction", "0 to 1, or with %", "0.01 or 1%"},
};

/* "a, b or c" from "a|b|c". */
static void add_choices(struct strbuf *b, const char *words)
{
        while (*words) {
                size_t n = strcspn(words, "|");
                const char *rest = words[n] ? words + n + 1 : words + n;

                strbuf_add(b, "%.*s%s", (int)n, words, !*rest ? "" : strchr(rest, '|') ? ", " : " or ");
                words = rest;
        }
}

static void add_text_values(struct strbuf *b, const struct scenario_key *key)
{
        if (key->words[0])
                strbuf_add(b, "%s", key->words);
        else
                strbuf_add(b, "text of at most %d bytes", SCENARIO_TEXT_MAX - 1);
}

static void add_bounds(struct strbuf *b, const struct scenario_key *key)
{
        conf_add_number(b, key->kind, key->least);
        if (key->most == UINT64_MAX) {
                strbuf_add(b, " or more");
                return;
        }
        strbuf_add(b, " to ");
        conf_add_number(b, key->kind, key->most);
}

/* Adds the words that may replace a number. */
static void add_words(struct strbuf *b, const struct scenario_key *key)
{
        if (key->other_word)
                strbuf_add(b, ", %s or %s", key->words, key->other_word);
        else if (key->words)
                strbuf_add(b, ", or %s", key->words);
}

char *scenario_key_allowed(const struct scenario_key *key, char *text, size_t size_bytes)
{
        struct strbuf b = strbuf_init(text, size_bytes);

        if (key->kind == KEY_CHOICE)
                add_choices(&b, key->words);
        else if (key->kind == KEY_TEXT)
                add_text_values(&b, key);
        else
                strbuf_add(&b, "a %s", kinds[key->kind].name);
        if (key->kind == KEY_CHOICE || key->kind == KEY_TEXT)
                return text;
        if (key->kind == KEY_FRACTION)
                strbuf_add(&b, " from 0 to 1");
        else if (key->least > 0 || key->most != UINT64_MAX) {
                strbuf_add(&b, key->most == UINT64_MAX ? " of " : " from ");
                add_bounds(&b, key);
        }
        add_words(&b, key);
        return text;
}

/* Adds "e.g. 2kHz", or the bounds if they do not include the example of the kind. */
static void add_example(struct strbuf *b, const struct scenario_key *key)
{
        const char *example = kinds[key->kind].example;
        uint64_t number;

        if (key->kind == KEY_FRACTION)
                strbuf_add(b, "0 to 1, e.g. %s", example);
        else if (key->kind == KEY_COUNT || conf_parse_number(key, example, &number) < 0 ||
                 number < key->least || number > key->most)
                add_bounds(b, key);
        else
                strbuf_add(b, "e.g. %s", example);
}

char *scenario_key_reject(const struct scenario_key *key, const char *value, char *text, size_t size_bytes)
{
        struct strbuf b = strbuf_init(text, size_bytes);
        uint64_t number;
        int r;

        if (key->kind == KEY_CHOICE) {
                strbuf_add(&b, "invalid value \"%.100s\"; expected ", value);
                add_choices(&b, key->words);
                return text;
        }
        if (key->kind == KEY_TEXT) {
                strbuf_add(&b, "invalid value \"%.100s\"; expected ", value);
                add_text_values(&b, key);
                strbuf_add(&b, ", on one line, without # or ; after a blank");
                return text;
        }
        r = conf_parse_number(key, value, &number);
        if (r == 0 || r == -ERANGE) {
                strbuf_add(&b, "%.100s is out of range; expected ", value);
                add_bounds(&b, key);
        } else {
                strbuf_add(&b, "\"%.100s\" is not a %s; expected ", value, kinds[key->kind].name);
                add_example(&b, key);
        }
        add_words(&b, key);
        return text;
}

/* Describes the value ".", which looks like the end of a sentence if it stands alone. */
static const char *default_text(const struct scenario_key *key)
{
        return strcmp(key->standard, ".") == 0 ? "the current directory" : key->standard;
}

static void print_values(const struct scenario_key *key, FILE *to)
{
        char values[256];

        fprintf(to, "%s", scenario_key_allowed(key, values, sizeof values));
        if (key->standard[0])
                fprintf(to, " (default: %s)", default_text(key));
}

char *scenario_key_appliers(const struct scenario_key *key, char *text, size_t size_bytes)
{
        static const char *const names[] = {
                [ROLE_ROS] = "a ROS", [ROLE_SFI] = "an SFI", [ROLE_DFM] = "the DFM"};
        const unsigned all = KEY_OF(ROLE_DFM) | KEY_OF(ROLE_ROS) | KEY_OF(ROLE_SFI);
        struct strbuf b = strbuf_init(text, size_bytes);

        text[0] = '\0';
        if (key->applied_by == all) {
                strbuf_add(&b, "any node");
                return text;
        }
        for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
                if (names[i] && key->applied_by & KEY_OF(i))
                        strbuf_add(&b, "%s%s", b.length > 0 ? " or " : "", names[i]);
        }
        return text;
}

void scenario_keys_print(FILE *to)
{
        char appliers[64];
        const char *section = "";

        for (size_t i = 0; i < ARRAY_SIZE(kinds); i++) {
                if (kinds[i].units)
                        fprintf(to, "%-10s %s\n", kinds[i].name, kinds[i].units);
        }
        for (size_t i = 0; i < n_scenario_keys; i++) {
                const struct scenario_key *k = &scenario_keys[i];

                if (strcmp(section, k->section) != 0)
                        fprintf(to, "\n[%s]\n", section = k->section);
                fprintf(to, "%s\n    %s\n    Values: ", k->name, k->help);
                print_values(k, to);
                fprintf(to, "\n");
                if (k->applied_by)
                        fprintf(to, "    May change at run time: SIGHUP to %s\n",
                                scenario_key_appliers(k, appliers, sizeof appliers));
                if (k->old_name)
                        fprintf(to, "    Old name: %s\n", k->old_name);
        }
}

void scenario_keys_print_man(FILE *to)
{
        char appliers[64];
        const char *section = "";

        fprintf(to, ".Sh UNITS\n.Bl -tag -width frequency -compact\n");
        for (size_t i = 0; i < ARRAY_SIZE(kinds); i++) {
                if (kinds[i].units)
                        fprintf(to, ".It %s\n%s\n", kinds[i].name, kinds[i].units);
        }
        fprintf(to, ".El\n.Sh KEYS\n");
        for (size_t i = 0; i < n_scenario_keys; i++) {
                const struct scenario_key *k = &scenario_keys[i];

                if (strcmp(section, k->section) != 0)
                        fprintf(to, "%s.Ss [%s]\n.Bl -tag -width indent\n", i > 0 ? ".El\n" : "",
                                section = k->section);
                fprintf(to, ".It Cm %s.%s\n%s\n.br\nValues: ", k->section, k->name, k->help);
                print_values(k, to);
                fprintf(to, ".\n");
                if (k->applied_by)
                        fprintf(to, "May change at run time (SIGHUP to %s).\n",
                                scenario_key_appliers(k, appliers, sizeof appliers));
                if (k->old_name)
                        fprintf(to, "The old name %s still works.\n", k->old_name);
        }
        fprintf(to, ".El\n");
}
