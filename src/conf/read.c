/* A scenario's file and settings, line by line: inih takes lines apart, the table of keys says what each may
 * hold. What inih would pass over in silence is seen here first: long lines, indented ones (for it, more of
 * the line before), lines that say nothing. */
#include <ctype.h>
#include <errno.h>
#include <ini.h>
#include <string.h>

#include "evb/base/util.h"
#include "conf_internal.h"

/* How many letters must be changed, put in or left out; small words only. */
static unsigned distance(const char *a, const char *b)
{
        unsigned row[128];
        size_t n = strlen(b);

        if (n >= ARRAY_SIZE(row))
                return UINT32_MAX;
        for (unsigned j = 0; j <= n; j++)
                row[j] = j;
        for (unsigned i = 1; a[i - 1]; i++) {
                unsigned corner = row[0];

                row[0] = i;
                for (unsigned j = 1; j <= n; j++) {
                        unsigned above = row[j], change = corner + (a[i - 1] != b[j - 1]);

                        row[j] = MIN(MIN(above, row[j - 1]) + 1, change);
                        corner = above;
                }
        }
        return row[n];
}

static void unknown_key(struct loading *l, unsigned line, const char *section, const char *name)
{
        const struct scenario_key *best = NULL;
        unsigned least = 4;
        char what[128], full[128];

        snprintf(what, sizeof what, "%.60s%s%.60s", section, section[0] ? "." : "", name);
        for (size_t i = 0; i < n_scenario_keys; i++) {
                const struct scenario_key *k = &scenario_keys[i];

                snprintf(full, sizeof full, "%s.%s", k->section, k->name);
                unsigned d = distance(what, full);

                /* A key before any section, or in the wrong one, is known by its name. */
                if (strcmp(name, k->name) == 0)
                        d = MIN(d, 3);
                if (d < least) {
                        least = d;
                        best = k;
                }
        }
        if (best)
                conf_error(l, line, what, "no such key; did you mean %s.%s?", best->section, best->name);
        else
                conf_error(l, line, what, "no such key, allowed: those that `evb check --keys` lists");
}

static void set_key(struct loading *l, unsigned line, const char *section, const char *name,
                    const char *value)
{
        const struct scenario_key *key = scenario_key_find(section, name);
        char what[64], allowed[256];

        if (!key) {
                unknown_key(l, line, section, name);
                return;
        }
        snprintf(what, sizeof what, "%s.%s", section, name);
        if (!l->setting && l->lines[key - scenario_keys] > 0)
                conf_error(l, line, what, "is there twice, first in line %u, allowed: once",
                           l->lines[key - scenario_keys]);
        else if (scenario_key_set(l->scenario, key, value) < 0)
                conf_error(l, line, what, "\"%.100s\" is not allowed, allowed: %s%s", value,
                           scenario_key_allowed(key, allowed, sizeof allowed),
                           key->kind == KEY_TEXT ? ", on one line, without # or ; behind a blank" : "");
        l->lines[key - scenario_keys] = line;
        l->from_setting[key - scenario_keys] = l->setting;
}

static void take(struct loading *l, unsigned line, const char *section, const char *name, const char *value)
{
        if (strncmp(section, "node ", 5) == 0)
                conf_set_node(l, section + 5, name, value);
        else
                set_key(l, line, section, name, value);
}

/* SECTION.KEY=VALUE. The name of a node may hold dots, that of a key does not. */
void conf_take_setting(struct loading *l, const char *text)
{
        const char *equals = strchr(text, '='),
                   *dot = equals ? memrchr(text, '.', (size_t)(equals - text)) : NULL;
        char section[64], name[64];

        l->setting = text;
        if (!dot || (size_t)(dot - text) >= sizeof section || (size_t)(equals - dot) > sizeof name) {
                conf_error(l, 0, "setting", "allowed: SECTION.KEY=VALUE");
        } else {
                snprintf(section, sizeof section, "%.*s", (int)(dot - text), text);
                snprintf(name, sizeof name, "%.*s", (int)(equals - dot - 1), dot + 1);
                take(l, 0, section, name, equals + 1);
        }
        l->setting = NULL;
}

/* The next line of the file, without its end; false at the end of the file. Too long a line is told and
 * empty. */
static bool next_line(struct loading *l, char line[static CONF_LINE_MAX], size_t most)
{
        size_t n;
        int c;

        if (!fgets(line, CONF_LINE_MAX, l->file))
                return false;
        l->line++;
        n = strlen(line);
        if (n > 0 && line[n - 1] == '\n')
                line[--n] = '\0';
        else
                while ((c = getc(l->file)) != EOF && c != '\n')
                        n = SIZE_MAX;
        if (n >= most) {
                conf_error(l, l->line, "line", "is too long, allowed: %zu bytes",
                           MIN(most, (size_t)CONF_LINE_MAX) - 1);
                line[0] = '\0';
        }
        return true;
}

/* inih knows comments behind a value only after ';'. */
static void cut_comment(char *line)
{
        for (char *at = line; (at = strchr(at, '#')) != NULL; at++) {
                if (at == line || isspace((unsigned char)at[-1])) {
                        *at = '\0';
                        return;
                }
        }
}

/* A head without end is told, and closed, so that the lines behind it find themselves in the section that was
 * meant. */
static void see_section(struct loading *l, char *line)
{
        char *end = strchr(line, ']');

        if (!end) {
                conf_error(l, l->line, "line", "\"%.40s\" has no end, allowed: [SECTION]", line);
                end = line + strlen(line);
        }
        *end = '\0';
        if (strncmp(line, "[node ", 6) == 0)
                conf_begin_node(l, line + 6);
        strcpy(end, "]");
}

/* inih as Debian builds it does not tell line numbers, so that lines are counted as they are read. */
static char *read_line(char *to, int size, void *user)
{
        struct loading *l = user;
        char line[CONF_LINE_MAX + 1], *start = line;

        if (!next_line(l, line, (size_t)size - 2))
                return NULL;
        if (l->line == 1 && strncmp(start, "\xEF\xBB\xBF", 3) == 0)
                start += 3;
        while (isspace((unsigned char)*start))
                start++;
        cut_comment(start);
        if (start[0] == '[')
                see_section(l, start);
        else if (start[0] && start[0] != ';' && !strpbrk(start, "=:")) {
                conf_error(l, l->line, "line",
                           "\"%.40s\" is not understood, allowed: [SECTION], KEY = VALUE, and comments after "
                           "# or ;",
                           start);
                start[0] = '\0';
        }
        snprintf(to, (size_t)size, "%s\n", start);
        return to;
}

static int take_line(void *user, const char *section, const char *name, const char *value)
{
        struct loading *l = user;

        take(l, l->line, section, name, value);
        return 1;
}

int conf_read_file(struct loading *l)
{
        int r;

#ifdef EVB_INI_CAN_BE_SET
        /* Else lines may have 197 bytes, which a long path does not fit in. */
        ini_use_stack = false;
        ini_max_line = ini_initial_alloc = CONF_LINE_MAX + 2;
#endif
        l->file = fopen(l->path, "re");
        if (!l->file)
                return -errno;
        errno = 0;
        r = ini_parse_stream(read_line, l, take_line, l);
        if (ferror(l->file))
                r = errno ? -errno : -EIO;
        else if (r > 0)
                conf_error(l, (unsigned)r, "line",
                           "is not understood, allowed: [SECTION], KEY = VALUE, and comments after # or ;");
        else if (r < 0)
                r = -ENOMEM;
        fclose(l->file);
        return MIN(r, 0);
}
