/* Finds and counts the nodes of a loaded scenario. */
#include <string.h>

#include "evb/conf/scenario.h"

const char *scenario_role_name(enum node_role role)
{
        static const char *const names[] = {[ROLE_DFM] = "dfm", [ROLE_ROS] = "ros", [ROLE_SFI] = "sfi"};

        return names[role];
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
