/* Converts a scenario to JSON by the table of keys. */
#include "conf/scenario_json.h"

#include "base/util.h"
#include "conf/keys.h"

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
