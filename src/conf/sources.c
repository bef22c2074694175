/* Sources of fragments: parses ros.source and the keys of single ROSs, and checks that these fit together. */
#include <stdlib.h>
#include <string.h>

#include "base/quantity.h"
#include "base/util.h"
#include "format/eformat.h"
#include "conf_internal.h"

#define SOURCE_EXPECTED                                                                                      \
        "expected pattern, file:PATH, udp:PORT or tcp:HOST:PORT; HOST is a numeric address, which udp "      \
        "takes too"
#define SOURCE_ID_MOST 0xffffffu

/* False: `text` is not a source. A path is made absolute later. */
static bool parse_source(const char *text, enum scenario_source *ret_kind, const char **ret_at)
{
        const char *colon = strchr(text, ':');
        struct conf_address host;
        uint16_t port;

        *ret_at = colon ? colon + 1 : "";
        if (strcmp(text, "pattern") == 0) {
                *ret_kind = SOURCE_PATTERN;
                return true;
        }
        if (strncmp(text, "file:", 5) == 0) {
                *ret_kind = SOURCE_FILE;
                return **ret_at != '\0';
        }
        if (strncmp(text, "tcp:", 4) == 0) {
                *ret_kind = SOURCE_TCP;
                return conf_endpoint_parse(&host, &port, *ret_at);
        }
        *ret_kind = SOURCE_UDP;
        return strncmp(text, "udp:", 4) == 0 &&
               (conf_port_parse(&port, *ret_at) || conf_endpoint_parse(&host, &port, *ret_at));
}

/* Fills in kind and place. False: `why` explains the error. */
static bool read_source(const struct loading *l, bool from_file, const char *text, enum scenario_source *kind,
                        char at[static SCENARIO_TEXT_MAX], char *why, size_t why_bytes)
{
        const char *place;

        if (!parse_source(text, kind, &place)) {
                snprintf(why, why_bytes, "invalid source \"%.100s\"; " SOURCE_EXPECTED, text);
                return false;
        }
        if (*kind == SOURCE_FILE)
                return conf_absolute_path(l, from_file, place, at, SCENARIO_TEXT_MAX - strlen("file:"), why,
                                          why_bytes);
        snprintf(at, SCENARIO_TEXT_MAX, "%s", place);
        return true;
}

void conf_resolve_source(struct loading *l)
{
        struct scenario *s = l->scenario;
        size_t i = (size_t)(scenario_key_find("ros", "source") - scenario_keys);
        char why[300];

        if (!read_source(l, l->lines[i] > 0 && !l->from_setting[i], s->ros.source, &s->ros.source_kind,
                         s->ros.source_at, why, sizeof why))
                conf_key_error(l, "ros", "source", "%s", why);
        else if (s->ros.source_kind == SOURCE_FILE)
                snprintf(s->ros.source, sizeof s->ros.source, "file:%.*s", SCENARIO_TEXT_MAX - 6,
                         s->ros.source_at);
}

void conf_set_node_source(struct loading *l, const char *what, struct scenario_node *n, const char *value)
{
        char why[300];

        n->has_source = true;
        if (!read_source(l, !l->setting, value, &n->source_kind, n->source_at, why, sizeof why))
                conf_error(l, l->line, what, "%s", why);
}

void conf_set_node_source_id(struct loading *l, const char *what, struct scenario_node *n, const char *value)
{
        bool hex = strncmp(value, "0x", 2) == 0 || strncmp(value, "0X", 2) == 0;
        const char *digits = hex ? value + 2 : value;
        bool right =
                digits[0] && strspn(digits, hex ? "0123456789abcdefABCDEF" : "0123456789") == strlen(digits);
        unsigned long id = right && strlen(digits) <= 8 ? strtoul(digits, NULL, hex ? 16 : 10) : 0;

        if (id == 0 || id > SOURCE_ID_MOST)
                conf_error(l, l->line, what,
                           "invalid source ID \"%.40s\"; expected 1 to 0xffffff, e.g. 0x510003", value);
        else
                n->source_id = (uint32_t)id;
}

void conf_set_node_required(struct loading *l, const char *what, struct scenario_node *n, const char *value)
{
        if (strcmp(value, "yes") != 0 && strcmp(value, "no") != 0)
                conf_error(l, l->line, what, "invalid value \"%.40s\"; expected no or yes", value);
        n->required = strcmp(value, "no") != 0;
}

void conf_set_node_wait(struct loading *l, const char *what, struct scenario_node *n, const char *value)
{
        if (quantity_parse_time(value, &n->wait_ns) < 0 || n->wait_ns < NS_PER_MS ||
            n->wait_ns > 3600 * NS_PER_S) {
                n->wait_ns = 0;
                conf_error(l, l->line, what, "\"%.40s\" is not a time from 1ms to 3600s; expected e.g. 200ms",
                           value);
        }
}

void conf_resolve_node_sources(struct loading *l)
{
        struct scenario *s = l->scenario;

        for (struct scenario_node *n = s->nodes; n < s->nodes + s->n_nodes; n++) {
                for (enum conf_node_key key = NODE_SOURCE; n->role != ROLE_ROS && key < CONF_NODE_KEYS;
                     key++) {
                        if (conf_node_has(l, n, key))
                                conf_node_error(l, n, key, "%s has no source; expected this key in a ROS",
                                                n->role == ROLE_DFM ? "a DFM" : "an SFI");
                }
                if (n->role != ROLE_ROS)
                        continue;
                conf_inherit_board(s, n);
                if (n->has_source)
                        continue;
                n->source_kind = s->ros.source_kind;
                memcpy(n->source_at, s->ros.source_at, sizeof n->source_at);
        }
}

static void source_error(struct loading *l, const struct scenario_node *n, const char *text)
{
        if (n->has_source)
                conf_node_error(l, n, NODE_SOURCE, "%s", text);
        else
                conf_key_error(l, "ros", "source", "%s", text);
}

/* Each port of a machine can be bound only once. A source without a host uses the port at the node's own
 * address. */
static void check_port(struct loading *l, const struct scenario_node *n)
{
        const struct scenario *s = l->scenario;
        struct conf_address host;
        bool has_host;
        char text[200];
        uint16_t port;

        if (n->source_kind != SOURCE_UDP)
                return;
        has_host = conf_endpoint_parse(&host, &port, n->source_at);
        if (!has_host && conf_port_parse(&port, n->source_at) && port == s->network.control_port) {
                snprintf(text, sizeof text, "port %u is network.port; expected another port", port);
                source_error(l, n, text);
        }
        for (const struct scenario_node *other = s->nodes; has_host && other < n; other++) {
                if (other->role != ROLE_ROS || other->source_kind != SOURCE_UDP ||
                    strcmp(other->source_at, n->source_at) != 0)
                        continue;
                snprintf(text, sizeof text,
                         "node %.31s has the same source; expected another port for each node", other->name);
                source_error(l, n, text);
                return;
        }
}

static void check_id(struct loading *l, const struct scenario_node *n)
{
        const struct scenario *s = l->scenario;
        uint8_t subdet = eformat_subdet(n->source_id);

        if (n->source_id == SCENARIO_AUTO) {
                if (scenario_number_of_ids(n) > 1)
                        conf_node_error(l, n, NODE_SOURCE_ID,
                                        "the ID of each board in the stream (demux) is added to it; expected "
                                        "one, e.g. 0x110000");
                return;
        }
        if ((n->source_id & 0xffff) + scenario_number_of_ids(n) > 0x10000)
                conf_node_error(l, n, NODE_SOURCE_ID,
                                "with 0x%06x, the IDs of the boards in the stream (demux) exceed 16 bits; "
                                "expected a lower one",
                                n->source_id);
        if (subdet == EFORMAT_SUBDET_SFI || subdet == EFORMAT_SUBDET_RAW)
                conf_node_error(l, n, NODE_SOURCE_ID,
                                "0x%06x has the sub-detector of %s in bits 16 to 23; expected another one "
                                "than 0x%02x",
                                n->source_id,
                                subdet == EFORMAT_SUBDET_SFI ? "an SFI" : "sources without source-id",
                                subdet);
        for (const struct scenario_node *other = s->nodes; other < n; other++) {
                if (other->role != ROLE_ROS || other->source_id == SCENARIO_AUTO ||
                    other->source_id >= n->source_id + scenario_number_of_ids(n) ||
                    n->source_id >= other->source_id + scenario_number_of_ids(other))
                        continue;
                conf_node_error(l, n, NODE_SOURCE_ID, "node %s also has 0x%06x; expected one ID per node",
                                other->name, MAX(n->source_id, other->source_id));
                return;
        }
}

/* Only the DFM can match the events of two files. It needs the headers of the first file, and all ROSs must
 * replay files. */
static void check_file(struct loading *l, const struct scenario_node *n)
{
        const struct scenario *s = l->scenario;
        char text[200];

        for (const struct scenario_node *other = s->nodes; n->source_kind == SOURCE_FILE && other < n;
             other++) {
                if (other->role != ROLE_ROS || other->source_kind != SOURCE_FILE ||
                    strcmp(other->source_at, n->source_at) == 0 || scenario_replayed_file(s))
                        continue;
                snprintf(text, sizeof text,
                         "node %.31s replays another file, and the events of two files are matched by their "
                         "L1 IDs only if all ROSs replay files; expected one file, or no other sources",
                         other->name);
                source_error(l, n, text);
                return;
        }
}

void conf_check_sources(struct loading *l)
{
        const struct scenario *s = l->scenario;

        if (s->ros.board.number.bits > 0 && !scenario_has_front_ends(s))
                conf_key_error(l, "ros", "event-number",
                               "no ROS has frames with numbers: pattern and file sources make the fragment "
                               "of each event; expected count, or a source udp: or tcp:");

        conf_check_boards(l);
        for (const struct scenario_node *n = s->nodes; n < s->nodes + s->n_nodes; n++) {
                if (n->role != ROLE_ROS)
                        continue;
                check_port(l, n);
                check_file(l, n);
                check_id(l, n);
                if (n->wait_ns > s->sfi.timeout_ns)
                        conf_node_error(l, n, NODE_WAIT,
                                        "longer than sfi.timeout, which ends the event; expected at most "
                                        "sfi.timeout");
        }
}
