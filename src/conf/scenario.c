/* Reads a scenario: the file by inih, then the settings of the command line, then what follows from both. Every mistake
 * is told with its place and what is allowed. What a key is and takes is in keys.c. */
#include "evb/conf/scenario.h"

#include <ctype.h>
#include <errno.h>
#include <ini.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "conf_internal.h"
#include "evb/base/strbuf.h"
#include "evb/base/util.h"
#include "evb/conf/keys.h"

void conf_error(struct loading *l, unsigned line, const char *what, const char *format, ...)
{
        struct scenario_errors *e = l->errors;
        char text[400];
        va_list args;

        if (e->n++ >= SCENARIO_ERRORS_MAX)
                return;
        struct strbuf b = strbuf_init(e->text[e->n - 1], sizeof e->text[0]);

        va_start(args, format);
        vsnprintf(text, sizeof text, format, args);
        va_end(args);
        if (l->setting)
                strbuf_add(&b, "--set %.100s: ", l->setting);
        else if (line > 0)
                strbuf_add(&b, "%s:%u: ", l->path, line);
        else
                strbuf_add(&b, "%s: ", l->path);
        strbuf_add(&b, "%s: %s", what, text);
}

/* How many letters must be changed, put in or left out; small words only. */
static unsigned distance(const char *a, const char *b)
{
        unsigned row[64];
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

        snprintf(what, sizeof what, "%.60s.%.60s", section, name);
        for (size_t i = 0; i < n_scenario_keys; i++) {
                snprintf(full, sizeof full, "%s.%s", scenario_keys[i].section, scenario_keys[i].name);
                unsigned d = distance(what, full);

                if (d < least) {
                        least = d;
                        best = &scenario_keys[i];
                }
        }
        if (best)
                conf_error(l, line, what, "no such key; did you mean %s.%s?", best->section, best->name);
        else
                conf_error(l, line, what, "no such key, allowed: those that `evb check --keys` lists");
}

static void set_key(struct loading *l, unsigned line, const char *section, const char *name, const char *value)
{
        const struct scenario_key *key = scenario_key_find(section, name);
        char what[64], allowed[256];

        if (!key) {
                unknown_key(l, line, section, name);
                return;
        }
        if (scenario_key_set(l->scenario, key, value) < 0) {
                snprintf(what, sizeof what, "%s.%s", section, name);
                conf_error(l, line, what, "\"%.100s\" is not allowed, allowed: %s", value,
                           scenario_key_allowed(key, allowed, sizeof allowed));
                return;
        }
        l->lines[key - scenario_keys] = line;
        l->from_setting[key - scenario_keys] = l->setting;
}

/* inih as Debian builds it does not tell line numbers, so that lines are counted as they are read. */
static char *read_line(char *to, int size, void *user)
{
        struct loading *l = user;

        l->line++;
        return fgets(to, size, l->file);
}

static int take_line(void *user, const char *section, const char *name, const char *value)
{
        struct loading *l = user;

        if (strncmp(section, "node ", 5) == 0)
                conf_set_node(l, l->line, section + 5, name, value);
        else
                set_key(l, l->line, section, name, value);
        return 1;
}

static void take_setting(struct loading *l, const char *text)
{
        char section[64], name[64];
        const char *equals = strchr(text, '='), *dot = strchr(text, '.');

        l->setting = text;
        if (!equals || !dot || dot > equals || (size_t)(dot - text) >= sizeof section ||
            (size_t)(equals - dot) > sizeof name) {
                conf_error(l, 0, "setting", "allowed: SECTION.KEY=VALUE");
        } else {
                snprintf(section, sizeof section, "%.*s", (int)(dot - text), text);
                snprintf(name, sizeof name, "%.*s", (int)(equals - dot - 1), dot + 1);
                set_key(l, 0, section, name, equals + 1);
        }
        l->setting = NULL;
}

static void set_defaults(struct scenario *s)
{
        for (size_t i = 0; i < n_scenario_keys; i++)
                (void)scenario_key_set(s, &scenario_keys[i], scenario_keys[i].standard);
}

/* "…/demo.conf" is called demo. */
static void set_name(struct scenario *s, const char *path)
{
        const char *base = strrchr(path, '/') ? strrchr(path, '/') + 1 : path;
        size_t n = strlen(base);

        if (s->scenario.name[0])
                return;
        if (n > 5 && strcmp(base + n - 5, ".conf") == 0)
                n -= 5;
        snprintf(s->scenario.name, sizeof s->scenario.name, "%.*s", (int)MIN(n, (size_t)200), base);
}

static int read_file(struct loading *l)
{
        int r;

        l->file = fopen(l->path, "re");
        if (!l->file)
                return -errno;
        r = ini_parse_stream(read_line, l, take_line, l);
        if (ferror(l->file)) {
                r = -errno;
                fclose(l->file);
                return r;
        }
        fclose(l->file);
        if (r > 0)
                conf_error(l, (unsigned)r, "line", "not understood, allowed: [section], KEY = VALUE, and comments after # or ;");
        return 0;
}

int scenario_load(struct scenario *ret, const char *path, const char *const *settings, size_t n_settings,
                  struct scenario_errors *errors)
{
        struct loading l = {.scenario = ret, .path = path, .errors = errors};
        int r;

        memset(ret, 0, sizeof *ret);
        errors->n = 0;
        snprintf(ret->path, sizeof ret->path, "%s", path);
        set_defaults(ret);
        r = read_file(&l);
        if (r < 0)
                return r;
        for (size_t i = 0; i < n_settings; i++)
                take_setting(&l, settings[i]);
        if (errors->n == 0) {
                set_name(ret, path);
                conf_resolve(&l);
        }
        return errors->n > 0 ? -EINVAL : 0;
}

static void write_node(const struct scenario_node *n, FILE *to)
{
        static const char *const roles[] = {[ROLE_DFM] = "dfm", [ROLE_ROS] = "ros", [ROLE_SFI] = "sfi"};

        fprintf(to, "\n[node %s]\nrole = %s\n", n->name, roles[n->role]);
        if (n->address[0])
                fprintf(to, "address = %s\n", n->address);
        if (n->device[0])
                fprintf(to, "device = %s\n", n->device);
        for (size_t i = 0; i < n->n_cpus; i++)
                fprintf(to, "%s%u%s", i == 0 ? "cpus = " : ",", n->cpus[i], i + 1 == n->n_cpus ? "\n" : "");
}

void scenario_write(const struct scenario *s, FILE *to)
{
        const char *section = "";
        char value[SCENARIO_TEXT_MAX];

        for (size_t i = 0; i < n_scenario_keys; i++) {
                const struct scenario_key *k = &scenario_keys[i];

                /* Nodes are told one by one below. */
                if (strcmp(k->name, "count") == 0)
                        continue;
                if (strcmp(section, k->section) != 0)
                        fprintf(to, "%s[%s]\n", i > 0 ? "\n" : "", section = k->section);
                scenario_key_value(s, k, value, sizeof value);
                fprintf(to, "%s = %s\n", k->name, value);
        }
        for (size_t i = 0; i < s->n_nodes; i++)
                write_node(&s->nodes[i], to);
}

const struct scenario_node *scenario_find(const struct scenario *s, const char *name)
{
        for (size_t i = 0; i < s->n_nodes; i++) {
                if (strcmp(s->nodes[i].name, name) == 0)
                        return &s->nodes[i];
        }
        return NULL;
}

unsigned scenario_count(const struct scenario *s, enum node_role role)
{
        unsigned n = 0;

        for (size_t i = 0; i < s->n_nodes; i++)
                n += s->nodes[i].role == role;
        return n;
}

const struct scenario_node *scenario_node_of(const struct scenario *s, enum node_role role, unsigned index)
{
        for (size_t i = 0; i < s->n_nodes; i++) {
                if (s->nodes[i].role == role && s->nodes[i].index == index)
                        return &s->nodes[i];
        }
        return NULL;
}
