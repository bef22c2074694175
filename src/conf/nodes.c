/* Makes the nodes of a scenario from ros.count and sfi.count, or from its [node NAME] sections. */
#include <arpa/inet.h>
#include <net/if.h>
#include <string.h>

#include "base/quantity.h"
#include "base/util.h"
#include "conf_internal.h"

/* Node names become part of command lines and file names. */
static bool is_name(const char *name)
{
        size_t n = strlen(name);

        return n > 0 && n < sizeof((struct scenario_node *)NULL)->name && name[0] != '-' && name[0] != '.' &&
               strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-") == n;
}

/* The caller must have checked that there is room. */
static struct scenario_node *add_node(struct loading *l)
{
        size_t i = l->scenario->n_nodes++;

        memset(&l->scenario->nodes[i], 0, sizeof l->scenario->nodes[i]);
        memset(l->node_places[i], 0, sizeof l->node_places[i]);
        l->scenario->nodes[i].required = true;
        return &l->scenario->nodes[i];
}

void conf_begin_node(struct loading *l, const char *name)
{
        struct scenario *s = l->scenario;
        const struct scenario_node *other = scenario_find(s, name);
        struct scenario_node *n;

        if (other) {
                conf_error(l, l->line, "node", "duplicate section [node %s]; first on line %u", name,
                           other->line);
        } else if (!is_name(name)) {
                conf_error(l, l->line, "node",
                           "invalid node name \"%.40s\"; expected 1 to %zu letters, digits, '.', '_' or '-', "
                           "and neither '.' nor '-' first",
                           name, sizeof n->name - 1);
        } else if (s->n_nodes == ARRAY_SIZE(s->nodes)) {
                conf_error(l, l->line, "node", "too many nodes at %s; expected at most %zu", name,
                           ARRAY_SIZE(s->nodes));
        } else {
                n = add_node(l);
                strcpy(n->name, name);
                n->line = l->line;
        }
}

static void set_role(struct loading *l, const char *what, struct scenario_node *n, const char *value)
{
        for (enum node_role role = ROLE_DFM; role <= ROLE_SFI; role++) {
                if (strcmp(value, scenario_role_name(role)) == 0) {
                        n->role = role;
                        n->has_role = true;
                        return;
                }
        }
        conf_error(l, l->line, what, "invalid role \"%.40s\"; expected dfm, ros or sfi", value);
}

static void set_address(struct loading *l, const char *what, struct scenario_node *n, const char *value)
{
        struct conf_address a;

        if (strlen(value) >= sizeof n->address || !conf_address_parse(&a, value) ||
            conf_address_is_multicast(&a) || conf_address_is_unset(&a) || conf_address_is_broadcast(&a))
                conf_error(l, l->line, what,
                           "invalid address \"%.60s\"; expected the IPv4 or IPv6 address of one machine",
                           value);
        else if (a.family == AF_INET)
                inet_ntop(AF_INET, a.bytes, n->address, sizeof n->address);
        else
                strcpy(n->address, value);
}

/* The kernel's rule for device names: dev_valid_name in net/core/dev.c. */
static void set_device(struct loading *l, const char *what, struct scenario_node *n, const char *value)
{
        size_t length = strlen(value);

        if (length == 0 || length >= IFNAMSIZ || strcspn(value, "/: \t") != length ||
            strcmp(value, ".") == 0 || strcmp(value, "..") == 0)
                conf_error(l, l->line, what,
                           "invalid device name \"%.40s\"; expected 1 to %d bytes without / or :", value,
                           IFNAMSIZ - 1);
        else
                strcpy(n->device, value);
}

static void set_cpus(struct loading *l, const char *what, struct scenario_node *n, const char *value)
{
        n->cpus_auto = strcmp(value, "auto") == 0;
        if (n->cpus_auto)
                n->n_cpus = 0;
        else if (quantity_parse_list(value, 1024, n->cpus, ARRAY_SIZE(n->cpus), &n->n_cpus) < 0)
                conf_error(l, l->line, what,
                           "invalid list \"%.60s\"; expected auto, or at most %d processors, e.g. 2-5,8",
                           value, SCENARIO_CPUS_MAX);
}

static void (*const node_keys[NODE_BOARD_FIRST])(struct loading *l, const char *what, struct scenario_node *n,
                                                 const char *value) = {
        [NODE_ROLE] = set_role,
        [NODE_ADDRESS] = set_address,
        [NODE_DEVICE] = set_device,
        [NODE_CPUS] = set_cpus,
        [NODE_SOURCE] = conf_set_node_source,
        [NODE_SOURCE_ID] = conf_set_node_source_id,
        [NODE_REQUIRED] = conf_set_node_required,
        [NODE_WAIT] = conf_set_node_wait,
};

/* The node is NULL if the head of its section was invalid, which is already reported. */
static void set_node_key(struct loading *l, const char *what, struct scenario_node *n, size_t i,
                         const char *value)
{
        struct conf_place *seen = n ? &l->node_places[n - l->scenario->nodes][i] : NULL;

        if (!n && l->setting)
                conf_error(l, 0, what, "unknown node; expected a node of the file");
        if (!n)
                return;
        if (!l->setting && seen->line > 0)
                conf_error(l, l->line, what, "duplicate key; first set on line %u", seen->line);
        else if (i >= NODE_BOARD_FIRST)
                conf_set_node_board(l, what, n, (enum conf_node_key)i, value);
        else
                node_keys[i](l, what, n, value);
        *seen = (struct conf_place){l->setting ? seen->line : l->line, l->setting};
}

void conf_set_node(struct loading *l, const char *node, const char *name, const char *value)
{
        struct scenario *s = l->scenario;
        const struct scenario_node *found = scenario_find(s, node);
        struct scenario_node *n = found ? &s->nodes[found - s->nodes] : NULL;
        char what[128];

        snprintf(what, sizeof what, "node %.40s.%.40s", node, name);
        for (size_t i = 0; i < CONF_NODE_KEYS; i++) {
                if (strcmp(name, conf_node_key_name((enum conf_node_key)i)) == 0) {
                        set_node_key(l, what, n, i, value);
                        return;
                }
        }
        conf_error(l, l->line, what,
                   "unknown key; expected role, address, device or cpus; for a ROS also source, source-id, "
                   "required, wait, frame, event-number, number-from, event-time, tick or fragments");
}

static void make_node(struct loading *l, enum node_role role, const char *prefix, unsigned number)
{
        struct scenario_node *n = add_node(l);

        n->role = role;
        n->has_role = true;
        if (number > 0)
                snprintf(n->name, sizeof n->name, "%s%u", prefix, number);
        else
                snprintf(n->name, sizeof n->name, "%s", prefix);
}

static void make_nodes(struct loading *l)
{
        make_node(l, ROLE_DFM, "dfm", 0);
        for (unsigned i = 1; i <= l->scenario->ros.count; i++)
                make_node(l, ROLE_ROS, "ros", i);
        for (unsigned i = 1; i <= l->scenario->sfi.count; i++)
                make_node(l, ROLE_SFI, "sfi", i);
}

/* Compares parsed addresses, because an address can be written in several ways. */
static void check_twice(struct loading *l, const struct scenario_node *n)
{
        const struct scenario *s = l->scenario;
        struct conf_address own, others;
        char what[64];

        if (!conf_address_parse(&own, n->address))
                return;
        snprintf(what, sizeof what, "node %.31s.address", n->name);
        for (const struct scenario_node *other = s->nodes; other < n; other++) {
                if (conf_address_parse(&others, other->address) && memcmp(&own, &others, sizeof own) == 0)
                        conf_error(l, n->line, what,
                                   "node %s already has address %s; expected one address per node",
                                   other->name, n->address);
        }
}

/* Keeps only the first `count` nodes of a role that have sections. */
static void keep_first(struct loading *l, enum node_role role, const char *section, uint64_t count)
{
        struct scenario *s = l->scenario;
        size_t kept = 0;
        uint64_t n = 0;

        if (count == 0)
                return;
        for (size_t i = 0; i < s->n_nodes; i++) {
                if (s->nodes[i].role == role && n++ >= count)
                        continue;
                memmove(l->node_places[kept], l->node_places[i], sizeof l->node_places[0]);
                s->nodes[kept++] = s->nodes[i];
        }
        s->n_nodes = kept;
        if (n > 0 && n < count)
                conf_key_error(l, section, "count",
                               "%llu is too many; expected at most %llu, the number of [node NAME] sections "
                               "of this role",
                               (unsigned long long)count, (unsigned long long)n);
}

void conf_resolve_nodes(struct loading *l)
{
        struct scenario *s = l->scenario;
        unsigned counts[ROLE_SFI + 1] = {};
        char what[64];

        if (s->n_nodes == 0)
                make_nodes(l);
        keep_first(l, ROLE_ROS, "ros", s->ros.count);
        keep_first(l, ROLE_SFI, "sfi", s->sfi.count);
        for (size_t i = 0; i < s->n_nodes; i++) {
                struct scenario_node *n = &s->nodes[i];

                if (!n->has_role) {
                        snprintf(what, sizeof what, "node %.31s.role", n->name);
                        conf_error(l, n->line, what, "missing key; expected dfm, ros or sfi");
                        continue;
                }
                n->index = counts[n->role]++;
                check_twice(l, n);
        }
        conf_resolve_node_sources(l);
        s->ros.count = counts[ROLE_ROS];
        s->sfi.count = counts[ROLE_SFI];
        if (counts[ROLE_DFM] != 1)
                conf_key_error(l, "node", "role", "%u nodes have the role dfm; expected 1", counts[ROLE_DFM]);
        if (counts[ROLE_ROS] == 0 || counts[ROLE_ROS] > EVB_ROS_MAX)
                conf_key_error(l, "ros", "count", "%u ROSs; expected 1 to %d", counts[ROLE_ROS], EVB_ROS_MAX);
        if (counts[ROLE_SFI] == 0 || counts[ROLE_SFI] > EVB_SFI_MAX)
                conf_key_error(l, "sfi", "count", "%u SFIs; expected 1 to %d", counts[ROLE_SFI], EVB_SFI_MAX);
}
