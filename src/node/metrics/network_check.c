/* The checks of `evb check --network`, one function each. Nodes may send arbitrary answers. */
#include "node/metrics/statuses.h"

#include <errno.h>
#include <string.h>

#include "base/strbuf.h"
#include "base/util.h"
#include "conf/digest.h"
#include "openmetrics.h"

#define TEXT_MAX 600

struct finder {
        const struct statuses *statuses;
        const struct scenario *scenario;
        const struct node_status *node;
        json_t *faults;
};

static bool is_loopback(const struct scenario_node *n)
{
        return strncmp(n->address, "127.", 4) == 0 || strcmp(n->address, "::1") == 0;
}

/* Returns a command for the node's unit. Nodes at loopback addresses are on this machine, so they have no
 * units and were started by hand. */
static const char *unit_command(const struct finder *f, const char *verb, char text[static TEXT_MAX])
{
        const struct scenario_node *n = f->node->node;
        const char *role = scenario_role_name(n->role);
        struct strbuf b = strbuf_init(text, TEXT_MAX);

        if (is_loopback(n))
                strbuf_add(&b, "%s evb %s --config %s --node %s",
                           strcmp(verb, "systemctl start") == 0     ? "start"
                           : strcmp(verb, "systemctl restart") == 0 ? "restart"
                                                                    : "see the log of",
                           role, f->scenario->path, n->name);
        else if (n->role == ROLE_DFM)
                strbuf_add(&b, "%s evb-dfm", verb);
        else
                strbuf_add(&b, "%s evb-%s@%s", verb, role, n->name);
        return text;
}

static const struct scenario_node *dfm_of(const struct finder *f)
{
        return scenario_node_of(f->scenario, ROLE_DFM, 0);
}

static void add(struct finder *f, const char *fault, const char *command)
{
        char text[TEXT_MAX], mend[TEXT_MAX];

        snprintf(text, sizeof text, "%s", fault);
        snprintf(mend, sizeof mend, "%s", command);
        json_array_append_new(f->faults,
                              json_pack("{s:s, s:s, s:s}", "node", f->node->node->name, "fault",
                                        text_make_printable(text), "command", text_make_printable(mend)));
}

static const char *text_of(const struct finder *f, const char *name)
{
        return json_string_value(json_object_get(f->node->status, name)) ?: "";
}

/* Checks the answer at metrics.listen. */
static void check_answer(struct finder *f)
{
        char unit[TEXT_MAX], command[TEXT_MAX];

        if (f->node->status)
                return;
        if (strstr(f->node->problem, strerror(ECONNREFUSED)) || strstr(f->node->problem, strerror(ENOENT)))
                snprintf(command, sizeof command, "%s", unit_command(f, "systemctl start", unit));
        else if (strstr(f->node->problem, "no answer from unix:"))
                snprintf(command, sizeof command, "%s", unit_command(f, "systemctl status", unit));
        else if (strstr(f->node->problem, "no answer from"))
                snprintf(command, sizeof command, "ping %s; %s; its firewall must accept TCP at %s",
                         f->node->node->address, unit_command(f, "systemctl status", unit), f->node->place);
        else
                snprintf(command, sizeof command, "correct address or metrics.listen of %s in %s",
                         f->node->node->name, f->scenario->path);
        add(f, f->node->problem, command);
}

static void check_version(struct finder *f)
{
        const char *version = text_of(f, "version");
        char unit[TEXT_MAX], text[TEXT_MAX], command[TEXT_MAX];

        if (strcmp(version, EVB_VERSION) == 0)
                return;
        snprintf(text, sizeof text, "it runs evb %.60s, and this machine evb %s", version, EVB_VERSION);
        snprintf(command, sizeof command, "install the same version there; %s",
                 unit_command(f, "systemctl restart", unit));
        add(f, text, command);
}

/* Finds the first key in which the node's scenario differs from ours. False: none, or its digests are unknown
 * or those of another version. */
static bool find_difference(const struct finder *f, struct strbuf *name)
{
        const json_t *theirs = json_object_get(f->node->status, "settings");
        json_auto_t *keys = NULL, *settings = status_make_settings(f->scenario);
        struct member_keys ours;
        uint32_t key;

        scenario_digest(f->scenario, &ours);
        keys = status_make_digest(&ours);
        key = node_digests_differ(json_object_get(f->node->status, "digest"), keys);
        if (key != UINT32_MAX) {
                strbuf_add(name, "%s", scenario_digest_name(key));
                return true;
        }
        for (size_t i = 0; json_array_size(theirs) == n_scenario_keys && i < n_scenario_keys; i++) {
                if (!json_equal(json_array_get(theirs, i), json_array_get(settings, i))) {
                        strbuf_add(name, "%s.%s", scenario_keys[i].section, scenario_keys[i].name);
                        return true;
                }
        }
        return false;
}

static void check_scenario(struct finder *f)
{
        char unit[TEXT_MAX], text[TEXT_MAX], command[TEXT_MAX];
        struct strbuf mend = strbuf_init(command, sizeof command), fault = strbuf_init(text, sizeof text);

        strbuf_add(&fault, "its scenario differs from %s in ", f->scenario->path);
        if (!find_difference(f, &fault))
                return;
        if (!is_loopback(f->node->node))
                strbuf_add(&mend, "scp %s %s:/etc/evb/scenario.conf; ", f->scenario->path,
                           f->node->node->address);
        strbuf_add(&mend, "%s", unit_command(f, "systemctl restart", unit));
        add(f, text, command);
}

static void check_clock(struct finder *f)
{
        char text[NODE_STATUS_PROBLEM_MAX];

        if (node_status_clock(f->node, text))
                add(f, text, "timedatectl set-ntp true");
}

/* Checks whether the DFM receives the node's messages, and accepts them. */
static void check_to_dfm(struct finder *f)
{
        const char *reason = text_of(f, "reason");
        char unit[TEXT_MAX], text[TEXT_MAX], command[TEXT_MAX];

        if (strncmp(reason, "refused by", strlen("refused by")) == 0) {
                snprintf(command, sizeof command, "%s", unit_command(f, "journalctl -u", unit));
                add(f, reason, command);
                return;
        }
        snprintf(text, sizeof text,
                 "no message passes between it and the DFM %s at %s, UDP port %llu, although both run",
                 dfm_of(f)->name, dfm_of(f)->address, (unsigned long long)f->scenario->network.control_port);
        snprintf(command, sizeof command, "nft list ruleset; both machines must accept UDP ports %llu and %u",
                 (unsigned long long)f->scenario->network.control_port, scenario_data_port(f->scenario));
        add(f, text, command);
}

/* Whether the node does not know that the run began. */
static bool missed_the_begin(const struct finder *f)
{
        const char *waits = "waiting for run ";

        for (size_t i = 0; i < f->statuses->n; i++) {
                const struct node_status *n = &f->statuses->nodes[i];
                const char *state = json_string_value(json_object_get(n->status, "state"));

                if (n->node->role == ROLE_DFM)
                        return state && strcmp(state, "running") == 0 &&
                               strncmp(text_of(f, "reason"), waits, strlen(waits)) == 0;
        }
        return false;
}

/* Checks whether the node receives the DFM's messages if the DFM receives its own. The DFM sends to the ROSs
 * through a group. */
static void check_from_dfm(struct finder *f)
{
        const char *group = f->scenario->network.control_group;
        char text[TEXT_MAX], command[TEXT_MAX];

        if (!node_receives_nothing(f->statuses, f->node) && !missed_the_begin(f))
                return;
        if (f->node->node->role == ROLE_ROS && group[0] && strcmp(group, "none") != 0) {
                snprintf(text, sizeof text, "multicast of the DFM to %s does not reach it", group);
                snprintf(command, sizeof command,
                         "tcpdump -ni any host %s; let the switches pass this group, or set "
                         "network.control-group = none",
                         group);
        } else {
                snprintf(text, sizeof text, "messages of the DFM to UDP port %llu do not reach it",
                         (unsigned long long)f->scenario->network.control_port);
                snprintf(command, sizeof command, "nft list ruleset; it must accept UDP ports %llu and %u",
                         (unsigned long long)f->scenario->network.control_port,
                         scenario_data_port(f->scenario));
        }
        add(f, text, command);
}

static void check_messages(struct finder *f)
{
        const json_t *live = json_object_get(statuses_find_peer(f->statuses, f->node->node), "live");

        if (f->node->node->role == ROLE_DFM || !f->node->status)
                return;
        if (json_is_false(live))
                check_to_dfm(f);
        else if (json_is_true(live))
                check_from_dfm(f);
}

static void check_data(struct finder *f)
{
        char text[TEXT_MAX], command[TEXT_MAX];

        if (!node_receives_no_fragment(f->node))
                return;
        snprintf(text, sizeof text, "no fragment arrives at its port %u", scenario_data_port(f->scenario));
        snprintf(command, sizeof command, "nft list ruleset; it must accept %s port %u",
                 f->scenario->scenario.transport == TRANSPORT_UDP ? "UDP" : "TCP",
                 scenario_data_port(f->scenario));
        add(f, text, command);
}

static void check_mtu(struct finder *f)
{
        const json_t *failed = json_object_get(f->node->status, "mtu_failed_paths");
        unsigned long long mtu = scenario_mtu_bytes(f->scenario);
        char text[TEXT_MAX], command[TEXT_MAX];

        if (json_integer_value(failed) <= 0)
                return;
        snprintf(text, sizeof text,
                 "packets of %llu bytes (network.mtu) do not reach %lld nodes from there, but short ones do",
                 mtu, (long long)json_integer_value(failed));
        snprintf(command, sizeof command,
                 "ip link set dev %s mtu %llu, and the same on the nodes and switch ports on the way",
                 f->node->node->device[0] ? f->node->node->device : "DEVICE", mtu);
        add(f, text, command);
}

json_t *network_check_faults(const struct statuses *s)
{
        static void (*const of_answers[])(struct finder * f) = {check_version,  check_scenario, check_clock,
                                                                check_messages, check_data,     check_mtu};
        struct finder f = {.statuses = s, .scenario = s->scenario, .faults = json_array()};

        for (size_t i = 0; i < s->n; i++) {
                f.node = &s->nodes[i];
                check_answer(&f);
                for (size_t k = 0; f.node->status && k < ARRAY_SIZE(of_answers); k++)
                        of_answers[k](&f);
        }
        return f.faults;
}
