/* Records the errors and warnings that the files of this layer find while they load a scenario, each with its
 * line or setting. */
#include <stdarg.h>
#include <stdio.h>

#include "base/strbuf.h"
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

void conf_key_error(struct loading *l, const char *section, const char *name, const char *format, ...)
{
        const struct scenario_key *key = scenario_key_find(section, name);
        char text[300], what[64];
        va_list args;

        va_start(args, format);
        vsnprintf(text, sizeof text, format, args);
        va_end(args);
        snprintf(what, sizeof what, "%s.%s", section, name);
        l->setting = key ? l->from_setting[key - scenario_keys] : NULL;
        conf_error(l, key ? l->lines[key - scenario_keys] : 0, what, "%s", text);
        l->setting = NULL;
}

const char *conf_node_key_name(enum conf_node_key key)
{
        static const char *const names[CONF_NODE_KEYS] = {
                [NODE_ROLE] = "role",
                [NODE_ADDRESS] = "address",
                [NODE_DEVICE] = "device",
                [NODE_CPUS] = "cpus",
                [NODE_SOURCE] = "source",
                [NODE_SOURCE_ID] = "source-id",
                [NODE_REQUIRED] = "required",
                [NODE_WAIT] = "wait",
                [NODE_FRAME] = "frame",
                [NODE_EVENT_NUMBER] = "event-number",
                [NODE_NUMBER_FROM] = "number-from",
                [NODE_EVENT_TIME] = "event-time",
                [NODE_TICK] = "tick",
                [NODE_FRAGMENTS] = "fragments",
        };

        return names[key];
}

bool conf_node_has(const struct loading *l, const struct scenario_node *n, enum conf_node_key key)
{
        const struct conf_place *at = &l->node_places[n - l->scenario->nodes][key];

        return at->line > 0 || at->setting;
}

void conf_node_error(struct loading *l, const struct scenario_node *n, enum conf_node_key key,
                     const char *format, ...)
{
        const struct conf_place *at = &l->node_places[n - l->scenario->nodes][key];
        char text[300], what[96];
        va_list args;

        va_start(args, format);
        vsnprintf(text, sizeof text, format, args);
        va_end(args);
        snprintf(what, sizeof what, "node %.31s.%s", n->name, conf_node_key_name(key));
        l->setting = at->setting;
        conf_error(l, at->line > 0 ? at->line : n->line, what, "%s", text);
        l->setting = NULL;
}
