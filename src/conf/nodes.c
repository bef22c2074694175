/* The nodes of a scenario: made from ros.count and sfi.count, or named one by one in [node NAME] sections. */
#include <stdlib.h>
#include <string.h>

#include "conf_internal.h"
#include "evb/base/quantity.h"
#include "evb/base/util.h"

static struct scenario_node *find_or_add(struct loading *l, unsigned line, const char *name)
{
        struct scenario *s = l->scenario;

        for (size_t i = 0; i < s->n_nodes; i++) {
                if (strcmp(s->nodes[i].name, name) == 0)
                        return &s->nodes[i];
        }
        if (s->n_nodes == ARRAY_SIZE(s->nodes) || strlen(name) >= sizeof s->nodes[0].name || name[0] == '\0') {
                conf_error(l, line, "node", "\"%.40s\" is one too many or no name, allowed: %zu nodes, names of 1 to %zu bytes",
                           name, ARRAY_SIZE(s->nodes), sizeof s->nodes[0].name - 1);
                return NULL;
        }
        struct scenario_node *n = &s->nodes[s->n_nodes++];

        strcpy(n->name, name);
        n->line = line;
        return n;
}

static void set_role(struct loading *l, unsigned line, struct scenario_node *n, const char *value)
{
        n->has_role = true;
        if (strcmp(value, "dfm") == 0)
                n->role = ROLE_DFM;
        else if (strcmp(value, "ros") == 0)
                n->role = ROLE_ROS;
        else if (strcmp(value, "sfi") == 0)
                n->role = ROLE_SFI;
        else
                conf_error(l, line, "node.role", "\"%.40s\" is not allowed, allowed: dfm|ros|sfi", value);
}

void conf_set_node(struct loading *l, unsigned line, const char *node, const char *name, const char *value)
{
        struct scenario_node *n = find_or_add(l, line, node);

        if (!n)
                return;
        if (strcmp(name, "role") == 0)
                set_role(l, line, n, value);
        else if (strcmp(name, "address") == 0 && strlen(value) < sizeof n->address)
                strcpy(n->address, value);
        else if (strcmp(name, "device") == 0 && strlen(value) < sizeof n->device)
                strcpy(n->device, value);
        else if (strcmp(name, "cpus") == 0) {
                if (quantity_parse_list(value, 1024, n->cpus, ARRAY_SIZE(n->cpus), &n->n_cpus) < 0)
                        conf_error(l, line, "node.cpus", "\"%.60s\" is not allowed, allowed: at most %d processors, like 2-5,8",
                                   value, SCENARIO_CPUS_MAX);
        } else
                conf_error(l, line, "node", "\"%.40s\" is no key of a node or its value is too long, allowed: role, address, device, cpus",
                           name);
}

static void make_node(struct scenario *s, enum node_role role, const char *prefix, unsigned number)
{
        struct scenario_node *n = &s->nodes[s->n_nodes++];

        n->role = role;
        n->has_role = true;
        if (number > 0)
                snprintf(n->name, sizeof n->name, "%s%u", prefix, number);
        else
                snprintf(n->name, sizeof n->name, "%s", prefix);
}

static void make_nodes(struct scenario *s)
{
        make_node(s, ROLE_DFM, "dfm", 0);
        for (unsigned i = 1; i <= s->ros.count; i++)
                make_node(s, ROLE_ROS, "ros", i);
        for (unsigned i = 1; i <= s->sfi.count; i++)
                make_node(s, ROLE_SFI, "sfi", i);
}

static void check_twice(struct loading *l, const struct scenario_node *n)
{
        const struct scenario *s = l->scenario;

        for (const struct scenario_node *other = s->nodes; other < n; other++) {
                if (n->address[0] && strcmp(n->address, other->address) == 0)
                        conf_error(l, n->line, "node.address", "\"%s\" is that of node %s too, allowed: one a node", n->address,
                                   other->name);
        }
}

void conf_resolve_nodes(struct loading *l)
{
        struct scenario *s = l->scenario;
        unsigned counts[ROLE_SFI + 1] = {};

        if (s->n_nodes > 0 && (s->ros.count > 0 || s->sfi.count > 0)) {
                conf_key_error(l, "ros", "count", "there are [node NAME] sections too, allowed: either counts, or sections");
                return;
        }
        if (s->n_nodes == 0)
                make_nodes(s);
        for (size_t i = 0; i < s->n_nodes; i++) {
                struct scenario_node *n = &s->nodes[i];

                if (!n->has_role || n->role == 0) {
                        conf_error(l, n->line, "node.role", "node %s has none, allowed: dfm|ros|sfi", n->name);
                        continue;
                }
                n->index = counts[n->role]++;
                check_twice(l, n);
        }
        s->ros.count = counts[ROLE_ROS];
        s->sfi.count = counts[ROLE_SFI];
        if (counts[ROLE_DFM] != 1)
                conf_key_error(l, "node", "role", "%u nodes are the DFM, allowed: 1", counts[ROLE_DFM]);
        if (counts[ROLE_ROS] == 0 || counts[ROLE_ROS] > EVB_ROS_MAX)
                conf_key_error(l, "ros", "count", "%u ROSs, allowed: 1 to %d", counts[ROLE_ROS], EVB_ROS_MAX);
        if (counts[ROLE_SFI] == 0 || counts[ROLE_SFI] > EVB_SFI_MAX)
                conf_key_error(l, "sfi", "count", "%u SFIs, allowed: 1 to %d", counts[ROLE_SFI], EVB_SFI_MAX);
}
