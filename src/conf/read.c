/* Reads the file of a scenario and the settings of the command line into struct scenario. inih splits the
 * lines. Lines that it would silently misread are checked here first: long lines, indented lines (which inih
 * appends to the previous one) and lines without a key. */
#include <assert.h>
#include <ctype.h>
#include <errno.h>
#include <ini.h>
#include <string.h>

#include "base/strbuf.h"
#include "base/util.h"
#include "conf_internal.h"

/* Returns the set of bytes in a text, as bits; some bytes share a bit. */
static uint32_t letters(const char *text)
{
        uint32_t set = 0;

        for (; *text; text++)
                set |= UINT32_C(1) << (*text & 31);
        return set;
}

/* A lower bound of the edit distance: each letter that only one text contains must be changed, inserted or
 * deleted. */
static unsigned least_distance(uint32_t a, uint32_t b)
{
        unsigned more = (unsigned)__builtin_popcount(a & ~b), less = (unsigned)__builtin_popcount(b & ~a);

        return MAX(more, less);
}

/* Collects the letters of both names of each key, once for all errors. */
static void collect_letters(struct loading *l)
{
        for (size_t i = 0; i < n_scenario_keys && !l->has_letters; i++) {
                const struct scenario_key *k = &scenario_keys[i];
                uint32_t both = letters(k->section) | letters(".");

                l->letters[i][0] = both | letters(k->name);
                l->letters[i][1] = k->old_name ? letters(k->old_name) : l->letters[i][0];
        }
        l->has_letters = true;
}

static unsigned distance_to(const char *what, const char *section, const char *name)
{
        char full[128];

        snprintf(full, sizeof full, "%s.%s", section, name);
        return text_distance(what, full);
}

/* Returns the first character outside ASCII in valid UTF-8; 0: there is none. An editor shows a no-break
 * space like a space. */
static uint32_t first_foreign(const char *text)
{
        const uint8_t *at = (const uint8_t *)text;
        uint32_t c;

        while (*at && *at < 0x80)
                at++;
        if (!*at || !text_is_utf8(text))
                return 0;
        c = *at < 0xe0 ? *at & 0x1f : *at < 0xf0 ? *at & 0x0f : *at & 0x07;
        while ((*++at & 0xc0) == 0x80)
                c = c << 6 | (*at & 0x3f);
        return c;
}

static void unknown_key(struct loading *l, unsigned line, const char *section, const char *name)
{
        const struct scenario_key *best = NULL;
        unsigned least = TEXT_FAR;
        uint32_t of_what;
        char what[128];

        snprintf(what, sizeof what, "%.60s%s%.60s", section, section[0] ? "." : "", name);
        if (first_foreign(what)) {
                conf_error(l, line, what, "unknown key with the character U+%04X; expected only ASCII",
                           first_foreign(what));
                return;
        }
        of_what = letters(what);
        collect_letters(l);
        /* Later errors are not shown, and a file of another program causes thousands of them, so they need no
         * suggestion. */
        for (size_t i = 0; i < n_scenario_keys && l->errors->n < SCENARIO_ERRORS_MAX; i++) {
                const struct scenario_key *k = &scenario_keys[i];
                unsigned d = UINT32_MAX;

                if (least_distance(of_what, l->letters[i][0]) < least)
                        d = distance_to(what, k->section, k->name);
                if (k->old_name && least_distance(of_what, l->letters[i][1]) < least)
                        d = MIN(d, text_distance(what, k->old_name));
                /* Also proposes a key that is set before the first section, or in the wrong section. */
                if (name[0] == k->name[0] && strcmp(name, k->name) == 0)
                        d = MIN(d, 3);
                if (d < least) {
                        least = d;
                        best = k;
                }
        }
        if (best)
                conf_error(l, line, what, "unknown key; did you mean %s.%s?", best->section, best->name);
        else
                conf_error(l, line, what, "unknown key; `evb check --keys` lists all keys");
}

/* If the earlier line uses the other name of the key, reports that name; otherwise, the user would not find
 * the line. */
static void duplicate_key(struct loading *l, unsigned line, const char *what, size_t i, bool old)
{
        const struct scenario_key *key = &scenario_keys[i];

        if (old == l->by_old_name[i])
                conf_error(l, line, what, "duplicate key; first set on line %u", l->lines[i]);
        else if (old)
                conf_error(l, line, what, "duplicate key; first set on line %u by its new name %s.%s",
                           l->lines[i], key->section, key->name);
        else
                conf_error(l, line, what, "duplicate key; first set on line %u by its old name %s",
                           l->lines[i], key->old_name);
}

static bool accepts(const struct removed_key *old, const char *value)
{
        if (!value[0] || strlen(value) >= SCENARIO_TEXT_MAX)
                return false;
        return old->words ? conf_choice_index(old->words, value) >= 0
                          : !old->is_time || conf_source_time_is_valid(old->after, value);
}

/* Remembers the value until all lines are read, because the other key may follow. */
static void keep_part(struct loading *l, unsigned line, const struct removed_key *old, const char *value)
{
        size_t i = 0;
        struct conf_part *part;

        while (strcmp(removed_keys[i].key, old->key) != 0 || strcmp(removed_keys[i].usual, old->usual) != 0)
                i++;
        assert(i < CONF_PARTS_MAX);
        part = &l->parts[i];
        if (!accepts(old, value)) {
                const struct scenario_key choice = {.kind = KEY_CHOICE, .words = old->words};
                char reason[400];

                if (old->words)
                        conf_error(l, line, old->name, "%s",
                                   scenario_key_reject(&choice, value, reason, sizeof reason));
                else
                        conf_error(l, line, old->name, "invalid value \"%.100s\"; set %s.%s instead", value,
                                   old->section, old->key);
                return;
        }
        if (part->key && !l->setting)
                conf_error(l, line, old->name, "duplicate key; first set on line %u as %s", part->line,
                           part->key->name);
        part->key = old;
        part->line = line;
        part->setting = l->setting;
        strcpy(part->value, value);
}

/* Sets the other key to its value with the part. */
static void set_joined(struct loading *l, const struct conf_part *part, const struct scenario_key *key,
                       const char *joined)
{
        size_t i = (size_t)(key - scenario_keys);
        char reason[400];

        conf_warn(l, part->line, "%s is now part of %s.%s: set %s.%s = %.100s", part->key->name, key->section,
                  key->name, key->section, key->name, joined);
        if (l->lines[i] == 0 && !l->from_setting[i]) {
                l->lines[i] = part->line;
                l->from_setting[i] = part->setting;
        }
        if (scenario_key_set(l->scenario, key, joined) < 0)
                conf_error(l, part->line, part->key->name, "%s",
                           scenario_key_reject(key, joined, reason, sizeof reason));
}

/* Why a part needs no place in the value of the other key; NULL: it needs one. */
static const char *explain_removal(bool usual, bool belongs, bool has_part)
{
        if (usual)
                return "its value is the default";
        if (!belongs)
                return "it has no effect with this value";
        return has_part ? "this value contains it" : NULL;
}

/* Where a part is in the value of the other key, or would be. */
struct part_place {
        size_t begin, end;
};

static struct part_place find_place(const struct removed_key *old, const char *value)
{
        const char *after = old->after ?: ":", *begin = strstr(value, after),
                   *window = strstr(value, CONF_WITHIN);
        size_t end = window && strcmp(after, CONF_WITHIN) != 0 ? (size_t)(window - value) : strlen(value);

        return (struct part_place){begin ? MIN((size_t)(begin - value), end) : end, end};
}

/* Whether the old key has an effect with this value of the other key. */
static bool belongs_to(const struct removed_key *old, const char *value)
{
        char word[SCENARIO_TEXT_MAX];

        if (old->without)
                return strcmp(value, old->without) != 0;
        snprintf(word, sizeof word, "%.*s", (int)strcspn(value, ": "), value);
        return !old->with || conf_choice_index(old->with, word) >= 0;
}

/* Adds the part to the value of the other key, which may contain it already, but must not contradict it. */
static void join_part(struct loading *l, const struct conf_part *part)
{
        const struct removed_key *old = part->key;
        const struct scenario_key *key = scenario_key_find(old->section, old->key);
        char now[SCENARIO_TEXT_MAX], joined[3 * SCENARIO_TEXT_MAX], wanted[3 * SCENARIO_TEXT_MAX];
        bool usual = strcmp(part->value, old->usual) == 0, is_whole, belongs, has_part;
        const char *why, *text = !usual && old->written ? old->written : part->value;
        struct part_place at;

        scenario_key_value(l->scenario, key, now, sizeof now);
        at = find_place(old, now);
        is_whole = old->whole && strcmp(now, old->whole) == 0;
        belongs = is_whole || belongs_to(old, now);
        has_part = belongs && (is_whole || at.end > at.begin);
        snprintf(joined, sizeof joined, "%.*s%s%s%s%s", (int)at.begin, now,
                 old->first && !strchr(now, ':') ? old->first : "", old->after ?: ":", text, now + at.end);
        if (old->whole)
                strcpy(wanted, usual ? old->with ?: key->standard : old->whole[0] ? old->whole : part->value);
        else if (usual)
                snprintf(wanted, sizeof wanted, "%.*s%s", (int)at.begin, now, now + at.end);
        else
                strcpy(wanted, joined);
        why = explain_removal(usual, belongs, has_part);
        if (has_part ? strcmp(now, wanted) != 0 && strcmp(now, joined) != 0
                     : !belongs && old->whole && !usual)
                conf_error(l, part->line, old->name,
                           "\"%.60s\" contradicts %s.%s = %.60s; set %s.%s = %.60s, or remove %s",
                           part->value, key->section, key->name, now, key->section, key->name, wanted,
                           old->name);
        else if (why)
                conf_warn(l, part->line, "%s is now part of %s.%s = %.100s; remove it: %s", old->name,
                          key->section, key->name, now, why);
        else
                set_joined(l, part, key, wanted);
}

void conf_join_parts(struct loading *l)
{
        for (size_t i = 0; i < CONF_PARTS_MAX; i++) {
                l->setting = l->parts[i].setting;
                if (l->parts[i].key)
                        join_part(l, &l->parts[i]);
        }
        l->setting = NULL;
}

static void set_key(struct loading *l, unsigned line, const char *section, const char *name,
                    const char *value)
{
        const struct scenario_key *key = scenario_key_find(section, name);
        const struct removed_key *removed = removed_key_find(section, name);
        char what[64], reason[400];
        bool old;
        size_t i;

        if (removed && removed->key)
                keep_part(l, line, removed, value);
        else if (removed)
                conf_warn(l, line, "%s has no effect any more%s%s", removed->name,
                          removed->instead ? ": " : "", removed->instead ?: "");
        else if (!key)
                unknown_key(l, line, section, name);
        if (!key)
                return;
        i = (size_t)(key - scenario_keys);
        old = strcmp(name, key->name) != 0 || strcmp(section, key->section) != 0;
        snprintf(what, sizeof what, "%s.%s", section, name);
        if (old)
                conf_warn(l, line, "%s is now %s.%s", what, key->section, key->name);
        if (!l->setting && l->lines[i] > 0)
                duplicate_key(l, line, what, i, old);
        else if (scenario_key_set(l->scenario, key, value) < 0)
                conf_error(l, line, what, "%s", scenario_key_reject(key, value, reason, sizeof reason));
        l->lines[i] = line;
        l->by_old_name[i] = old;
        l->from_setting[i] = l->setting;
}

static void read_value(struct loading *l, unsigned line, const char *section, const char *name,
                       const char *value)
{
        if (strncmp(section, "node ", 5) == 0)
                conf_set_node(l, section + 5, name, value);
        else if (strcmp(section, "metadata") == 0)
                conf_set_metadata(l, name, value);
        else
                set_key(l, line, section, name, value);
}

/* SECTION.KEY=VALUE. A node name may contain dots, a key name does not. */
void conf_read_setting(struct loading *l, const char *text)
{
        const char *equals = strchr(text, '='),
                   *dot = equals ? memrchr(text, '.', (size_t)(equals - text)) : NULL;
        char section[64], name[64];

        l->setting = text;
        if (!dot || (size_t)(dot - text) >= sizeof section || (size_t)(equals - dot) > sizeof name) {
                conf_error(l, 0, "setting", "incomplete; expected SECTION.KEY=VALUE");
        } else {
                snprintf(section, sizeof section, "%.*s", (int)(dot - text), text);
                snprintf(name, sizeof name, "%.*s", (int)(equals - dot - 1), dot + 1);
                read_value(l, 0, section, name, equals + 1);
        }
        l->setting = NULL;
}

/* Reads the next line of the file, without its newline; false at the end of the file. If a line cannot be
 * used, it is reported, and returned empty. */
static bool next_line(struct loading *l, char line[static CONF_LINE_MAX], size_t most)
{
        size_t n = 0, max = MIN(most, (size_t)CONF_LINE_MAX) - 1;
        bool has_nul = false, is_long = false;
        int c;

        while ((c = getc(l->file)) != EOF && c != '\n') {
                has_nul |= c == '\0';
                if (n < max)
                        line[n++] = (char)c;
                else
                        is_long = true;
        }
        if (c == EOF && n == 0)
                return false;
        l->line++;
        line[n] = '\0';
        /* Without this error, everything after the zero byte would be ignored. */
        if (has_nul)
                conf_error(l, l->line, "line", "contains a NUL byte; expected UTF-8 text");
        else if (is_long)
                conf_error(l, l->line, "line", "too long; expected at most %zu bytes", max);
        if (has_nul || is_long)
                line[0] = '\0';
        return true;
}

/* After a value, inih strips only comments that begin with ';'. */
static void cut_comment(char *line)
{
        for (char *at = line; (at = strchr(at, '#')) != NULL; at++) {
                if (at == line || isspace((unsigned char)at[-1])) {
                        *at = '\0';
                        return;
                }
        }
}

/* Closes an unclosed head after reporting the error, so that the lines below it belong to the intended
 * section. */
static void check_section(struct loading *l, char *line)
{
        char *end = strchr(line, ']');

        if (!end) {
                conf_error(l, l->line, "line", "\"%.40s\" is not closed; expected [SECTION]", line);
                end = line + strlen(line);
        }
        *end = '\0';
        if (strncmp(line, "[node ", 6) == 0)
                conf_begin_node(l, line + 6);
        strcpy(end, "]");
}

/* Counts lines, because Debian builds inih so that it does not pass line numbers. */
static char *read_line(char *to, int size, void *user)
{
        struct loading *l = user;
        char line[CONF_LINE_MAX + 1] = "", *start = line;

        if (!next_line(l, line, (size_t)size - 2))
                return NULL;
        if (l->line == 1 && strncmp(start, "\xEF\xBB\xBF", 3) == 0)
                start += 3;
        while (isspace((unsigned char)*start))
                start++;
        cut_comment(start);
        if (start[0] == '[')
                check_section(l, start);
        else if (start[0] && start[0] != ';' && !strpbrk(start, "=:")) {
                conf_error(
                        l, l->line, "line",
                        "invalid line \"%.40s\"; expected [SECTION], KEY = VALUE, or a comment after # or ;",
                        start);
                start[0] = '\0';
        }
        snprintf(to, (size_t)size, "%s\n", start);
        return to;
}

static int read_entry(void *user, const char *section, const char *name, const char *value)
{
        struct loading *l = user;

        read_value(l, l->line, section, name, value);
        return 1;
}

int conf_read_file(struct loading *l)
{
        int r;

#ifdef EVB_INI_CAN_BE_SET
        /* The default limit of 197 bytes is too short for long paths. */
        ini_use_stack = false;
        ini_max_line = ini_initial_alloc = CONF_LINE_MAX + 2;
#endif
        l->file = fopen(l->path, "re");
        if (!l->file)
                return -errno;
        errno = 0;
        r = ini_parse_stream(read_line, l, read_entry, l);
        if (ferror(l->file))
                r = errno ? -errno : -EIO;
        else if (r > 0)
                conf_error(l, (unsigned)r, "line",
                           "invalid line; expected [SECTION], KEY = VALUE, or a comment after # or ;");
        else if (r < 0)
                r = -ENOMEM;
        fclose(l->file);
        return MIN(r, 0);
}
