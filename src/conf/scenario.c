/* Loads a scenario (defaults, file, settings of the command line, then the values that follow from them),
 * writes it, and finds its nodes. read.c reads the file, keys.c converts values. */
#include "evb/conf/scenario.h"

#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "evb/base/strbuf.h"
#include "evb/base/util.h"
#include "conf_internal.h"

static void add_place(struct strbuf *b, const struct loading *l, unsigned line)
{
        if (l->setting)
                strbuf_add(b, "--set %.100s: ", l->setting);
        else if (line > 0)
                strbuf_add(b, "%s:%u: ", l->path, line);
        else
                strbuf_add(b, "%s: ", l->path);
}

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
        add_place(&b, l, line);
        strbuf_add(&b, "%s: %s", what, text);
}

void conf_warn(struct loading *l, unsigned line, const char *format, ...)
{
        struct scenario_errors *e = l->errors;
        char text[300];
        va_list args;

        if (e->n_warnings >= SCENARIO_WARNINGS_MAX)
                return;
        struct strbuf b = strbuf_init(e->warnings[e->n_warnings++], sizeof e->warnings[0]);

        va_start(args, format);
        vsnprintf(text, sizeof text, format, args);
        va_end(args);
        add_place(&b, l, line);
        strbuf_add(&b, "warning: %s", text);
}

static void set_defaults(struct scenario *s)
{
        for (size_t i = 0; i < n_scenario_keys; i++)
                (void)scenario_key_set(s, &scenario_keys[i], scenario_keys[i].standard);
}

/* The name of the file without .conf. */
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

int scenario_load(struct scenario *ret, const char *path, const char *const *settings, size_t n_settings,
                  struct scenario_errors *errors)
{
        _cleanup_free_ unsigned(*node_lines)[CONF_NODE_KEYS] =
                calloc(ARRAY_SIZE(ret->nodes), sizeof *node_lines);
        struct loading l = {.scenario = ret, .path = path, .errors = errors, .node_lines = node_lines};
        int r;

        if (!node_lines)
                return -ENOMEM;
        memset(ret, 0, sizeof *ret);
        errors->n = errors->n_warnings = 0;
        snprintf(ret->path, sizeof ret->path, "%s", path);
        set_defaults(ret);
        r = conf_read_file(&l);
        if (r < 0)
                return r;
        for (size_t i = 0; i < n_settings; i++)
                conf_take_setting(&l, settings[i]);
        set_name(ret, path);
        conf_resolve_texts(&l);
        /* Invalid values would cause errors in other keys. */
        if (errors->n == 0)
                conf_resolve_nodes(&l);
        if (errors->n == 0)
                conf_check_fit(&l);
        return errors->n > 0 ? -EINVAL : 0;
}

const char *scenario_role_name(enum node_role role)
{
        static const char *const names[] = {[ROLE_DFM] = "dfm", [ROLE_ROS] = "ros", [ROLE_SFI] = "sfi"};

        return names[role];
}

static void write_node(const struct scenario_node *n, FILE *to)
{
        fprintf(to, "\n[node %s]\nrole = %s\n", n->name, scenario_role_name(n->role));
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

                /* The sections of nodes below replace the counts. */
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
