/* Loads a scenario (defaults, file, settings of the command line, then the values derived from them) and
 * writes it. read.c reads the file, keys.c converts values. */
#include "conf/scenario.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/util.h"
#include "conf/keys.h"
#include "conf_internal.h"

static void set_defaults(struct scenario *s)
{
        for (size_t i = 0; i < n_scenario_keys; i++)
                (void)scenario_key_set(s, &scenario_keys[i], scenario_keys[i].standard);
}

/* Sets the name to the name of the file, without .conf. */
static void set_name(struct scenario *s, const char *path)
{
        const char *base = strrchr(path, '/') ? strrchr(path, '/') + 1 : path;
        size_t n = strlen(base);

        s->scenario.is_named = s->scenario.name[0] != '\0';
        if (s->scenario.is_named)
                return;
        if (n > 5 && strcmp(base + n - 5, ".conf") == 0)
                n -= 5;
        snprintf(s->scenario.name, sizeof s->scenario.name, "%.*s", (int)MIN(n, (size_t)200), base);
}

const char *scenario_run_name(const struct scenario *s, uint32_t run, char text[static SCENARIO_RUN_MAX])
{
        const char *name = s->scenario.name;
        size_t n = MIN(strlen(name), (size_t)60);

        /* A journal shows no text that ends within a character of UTF-8. */
        while (n > 0 && (name[n] & 0xc0) == 0x80)
                n--;
        if (s->scenario.is_named)
                snprintf(text, SCENARIO_RUN_MAX, "run %u of %.*s", run, (int)n, name);
        else
                snprintf(text, SCENARIO_RUN_MAX, "run %u", run);
        return text;
}

int scenario_load(struct scenario *ret, const char *path, const char *const *settings, size_t n_settings,
                  struct scenario_errors *errors)
{
        _cleanup_free_ struct conf_place(*node_places)[CONF_NODE_KEYS] =
                malloc(ARRAY_SIZE(ret->nodes) * sizeof *node_places);
        struct loading l = {.scenario = ret, .path = path, .errors = errors, .node_places = node_places};
        int r;

        errors->n = errors->n_warnings = 0;
        if (!node_places)
                return -ENOMEM;
        /* Clears only the part before the nodes, because the nodes are the largest part, and most scenarios
         * use few of them. */
        memset(ret, 0, offsetof(struct scenario, nodes));
        ret->n_nodes = 0;
        snprintf(ret->path, sizeof ret->path, "%s", path);
        set_defaults(ret);
        r = conf_read_file(&l);
        if (r < 0)
                return r;
        for (size_t i = 0; i < n_settings; i++)
                conf_read_setting(&l, settings[i]);
        conf_join_parts(&l);
        set_name(ret, path);
        conf_resolve_texts(&l);
        /* Invalid values would lead to further errors in other keys. */
        if (errors->n == 0)
                conf_resolve_nodes(&l);
        if (errors->n == 0)
                conf_check_fit(&l);
        return errors->n > 0 ? -EINVAL : 0;
}

int scenario_check(struct scenario *s, struct scenario_errors *errors)
{
        _cleanup_free_ struct conf_place(*node_places)[CONF_NODE_KEYS] =
                calloc(MAX(s->n_nodes, (size_t)1), sizeof *node_places);
        struct loading l = {.scenario = s, .path = s->path, .errors = errors, .node_places = node_places};

        errors->n = errors->n_warnings = 0;
        if (!node_places)
                return -ENOMEM;
        conf_check_fit(&l);
        return errors->n > 0 ? -EINVAL : 0;
}

static void write_source(const struct scenario_node *n, FILE *to)
{
        char text[SCENARIO_TEXT_MAX];

        if (n->has_source)
                fprintf(to, "source = %s\n", scenario_source_text(n, text));
        if (n->source_id != SCENARIO_AUTO)
                fprintf(to, "source-id = 0x%06x\n", n->source_id);
        if (!n->required)
                fprintf(to, "required = no\n");
        if (n->wait_ns > 0)
                fprintf(to, "wait = %s\n", conf_time_text(n->wait_ns, text));
        for (enum conf_node_key key = NODE_BOARD_FIRST; key <= NODE_BOARD_LAST; key++) {
                if (conf_node_owns(n, key))
                        fprintf(to, "%s = %s\n", conf_node_key_name(key),
                                conf_board_text(&n->board, key, text));
        }
}

void conf_write_node(const struct scenario_node *n, FILE *to)
{
        fprintf(to, "\n[node %s]\nrole = %s\n", n->name, scenario_role_name(n->role));
        if (n->address[0])
                fprintf(to, "address = %s\n", n->address);
        if (n->device[0])
                fprintf(to, "device = %s\n", n->device);
        if (n->cpus_auto)
                fprintf(to, "cpus = auto\n");
        for (size_t i = 0; i < n->n_cpus; i++)
                fprintf(to, "%s%u%s", i == 0 ? "cpus = " : ",", n->cpus[i], i + 1 == n->n_cpus ? "\n" : "");
        if (n->role == ROLE_ROS)
                write_source(n, to);
}

void scenario_write(const struct scenario *s, FILE *to)
{
        const char *section = "";
        char value[SCENARIO_TEXT_MAX];

        for (size_t i = 0; i < n_scenario_keys; i++) {
                const struct scenario_key *k = &scenario_keys[i];

                /* The sections of the nodes, below, replace the counts. */
                if (strcmp(k->name, "count") == 0)
                        continue;
                if (strcmp(section, k->section) != 0)
                        fprintf(to, "%s[%s]\n", i > 0 ? "\n" : "", section = k->section);
                scenario_key_value(s, k, value, sizeof value);
                fprintf(to, "%s = %s\n", k->name, value);
        }
        for (size_t i = 0; i < s->n_metadata; i++)
                fprintf(to, "%s%s = %s\n", i == 0 ? "\n[metadata]\n" : "", s->metadata[i].name,
                        s->metadata[i].value);
        for (size_t i = 0; i < s->n_nodes; i++)
                conf_write_node(&s->nodes[i], to);
}

/* Converts a scenario to JSON by the table of keys. */

static void add_key(json_t *object, const struct scenario *s, const struct scenario_key *k)
{
        json_t *section = json_object_get(object, k->section);
        char value[SCENARIO_TEXT_MAX];

        if (!section) {
                section = json_object();
                json_object_set_new(object, k->section, section);
        }
        json_object_set_new(section, k->name, json_string(scenario_key_value(s, k, value, sizeof value)));
}

static json_t *node_to_json(const struct scenario_node *n)
{
        json_t *o = json_pack("{s:s, s:s, s:s, s:s}", "name", n->name, "role", scenario_role_name(n->role),
                              "address", n->address, "device", n->device);
        char source[SCENARIO_TEXT_MAX];

        if (n->role != ROLE_ROS)
                return o;
        json_object_set_new(o, "source", json_string(scenario_source_text(n, source)));
        json_object_set_new(o, "source_id",
                            n->source_id == SCENARIO_AUTO ? json_null() : json_integer(n->source_id));
        for (enum conf_node_key key = NODE_BOARD_FIRST; scenario_has_front_end(n) && key <= NODE_BOARD_LAST;
             key++)
                json_object_set_new(o, conf_node_key_name(key),
                                    json_string(conf_board_text(&n->board, key, source)));
        json_object_set_new(o, "required", json_boolean(n->required));
        json_object_set_new(o, "wait_seconds",
                            n->wait_ns == 0 ? json_null() : json_real((double)n->wait_ns / NS_PER_S));
        return o;
}

json_t *scenario_metadata_to_json(const struct scenario_metadata *list, size_t n)
{
        json_t *o = json_object();

        for (size_t i = 0; i < n; i++)
                json_object_set_new(o, list[i].name, json_string(list[i].value));
        return o;
}

json_t *scenario_to_json(const struct scenario *s)
{
        json_t *object = json_object(), *nodes = json_array();

        for (size_t i = 0; i < n_scenario_keys; i++)
                add_key(object, s, &scenario_keys[i]);
        json_object_set_new(object, "metadata", scenario_metadata_to_json(s->metadata, s->n_metadata));
        for (size_t i = 0; i < s->n_nodes; i++)
                json_array_append_new(nodes, node_to_json(&s->nodes[i]));
        json_object_set_new(object, "nodes", nodes);
        return object;
}
