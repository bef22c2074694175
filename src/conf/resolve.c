/* Parses the text values of a scenario, makes its paths absolute, and checks its keys against each other. */
#include <ctype.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/quantity.h"
#include "base/strbuf.h"
#include "conf_internal.h"

/* The DFM reassigns an event only after the SFI has given it up, so that the SFI can report the event
 * first. */
#define EVENT_TIMEOUTS 5
#define LOST_NODE_TIMEOUTS 10
#define FILE_PATTERN_MAX 100u

static void resolve_directory(struct loading *l)
{
        struct scenario *s = l->scenario;
        size_t i = (size_t)(scenario_key_find("sfi", "directory") - scenario_keys);
        char directory[SCENARIO_TEXT_MAX], why[300];

        snprintf(directory, sizeof directory, "%s", s->sfi.directory);
        if (!conf_absolute_path(l, l->lines[i] > 0 && !l->from_setting[i], directory, s->sfi.directory,
                                sizeof s->sfi.directory, why, sizeof why))
                conf_key_error(l, "sfi", "directory", "%s", why);
}

static bool parse_range(const char *text, uint64_t *least, uint64_t *most)
{
        const char *dash = strchr(text, '-');
        char first[64];

        if (!dash || (size_t)(dash - text) >= sizeof first)
                return false;
        snprintf(first, sizeof first, "%.*s", (int)(dash - text), text);
        return quantity_parse_bytes(first, least) == 0 && quantity_parse_bytes(dash + 1, most) == 0 &&
               *least <= *most && *most <= EVB_FRAGMENT_MAX_BYTES;
}

static bool parse_lognormal(const char *text, double *mean, double *sigma)
{
        const char *comma = strchr(text, ',');
        char first[64], *end;
        uint64_t bytes;

        if (!comma || (size_t)(comma - text) >= sizeof first)
                return false;
        snprintf(first, sizeof first, "%.*s", (int)(comma - text), text);
        *sigma = strtod(comma + 1, &end);
        if (quantity_parse_bytes(first, &bytes) < 0 || end == comma + 1 || *end ||
            !(*sigma > 0 && *sigma <= 5) || bytes == 0 || bytes > EVB_FRAGMENT_MAX_BYTES)
                return false;
        *mean = (double)bytes;
        return true;
}

static void resolve_sizes(struct loading *l)
{
        struct scenario *s = l->scenario;
        char *text = s->ros.fragment_size;

        if (quantity_parse_bytes(text, &s->ros.fragment_size_bytes) == 0 &&
            s->ros.fragment_size_bytes <= EVB_FRAGMENT_MAX_BYTES) {
                struct strbuf b = strbuf_init(text, SCENARIO_TEXT_MAX);

                s->ros.sizes_kind = 0;
                conf_add_number(&b, KEY_BYTES, s->ros.fragment_size_bytes);
        } else if (strncmp(text, "uniform:", 8) == 0 &&
                   parse_range(text + 8, &s->ros.sizes_least_bytes, &s->ros.sizes_most_bytes))
                s->ros.sizes_kind = 1;
        else if (strncmp(text, "lognormal:", 10) == 0 &&
                 parse_lognormal(text + 10, &s->ros.sizes_mean_bytes, &s->ros.sizes_sigma))
                s->ros.sizes_kind = 2;
        else
                conf_key_error(
                        l, "ros", "fragment-size",
                        "invalid value \"%.100s\"; expected a size up to 4MiB, uniform:A-B or "
                        "lognormal:MEAN,SIGMA with A <= B, sizes up to 4MiB, MEAN > 0 and 0 < SIGMA <= 5",
                        text);
}

/* A name of a folder, or one that options or patterns of a shell could contain, is not a name of a file. */
static bool is_file_name(const char *pattern)
{
        const char *at = pattern;
        bool has_run = false;

        while (strcmp(at, SCENARIO_SEQUENCE) != 0) {
                if (strncmp(at, "{run}", 5) == 0 || strncmp(at, "{sfi}", 5) == 0) {
                        has_run |= at[1] == 'r';
                        at += 5;
                } else if (*at && strchr("._+=-", *at) ? at > pattern || *at == '_'
                                                       : isalnum((unsigned char)*at))
                        at++;
                else
                        return false;
        }
        return has_run && at[-1] != '.' && strlen(pattern) <= FILE_PATTERN_MAX;
}

static void check_file_name(struct loading *l)
{
        const char *pattern = l->scenario->sfi.file_name;

        if (strcmp(pattern, "atlas") != 0 && !is_file_name(pattern))
                conf_key_error(
                        l, "sfi", "file-name",
                        "invalid pattern \"%.100s\"; expected atlas, or at most %u characters: letters, "
                        "digits, . _ + = -, {run} and optionally {sfi}; at the end " SCENARIO_SEQUENCE,
                        pattern, FILE_PATTERN_MAX);
}

static void check_group(struct loading *l)
{
        const char *text = l->scenario->network.control_group;
        struct conf_address group;

        if (strcmp(text, "none") == 0)
                return;
        if (!conf_address_parse(&group, text) || !conf_address_is_multicast(&group))
                conf_key_error(l, "network", "control-group",
                               "\"%.60s\" is not a multicast address; expected one of 224.0.0.0/4 or "
                               "ff00::/8, or none",
                               text);
}

/* Names: RFC 2474 (csN), RFC 2597 (afNM), RFC 3246 (ef), RFC 8622 (le). */
static bool parse_dscp(const char *text, uint8_t *ret)
{
        for (unsigned dscp = 0; dscp < 64; dscp++) {
                unsigned class = dscp / 8, drop = dscp % 8;
                char number[16], name[16] = "";

                snprintf(number, sizeof number, "%u", dscp);
                if (drop == 0)
                        snprintf(name, sizeof name, "cs%u", class);
                else if (class >= 1 && class <= 4 && drop % 2 == 0)
                        snprintf(name, sizeof name, "af%u%u", class, drop / 2);
                else if (dscp == 1 || dscp == 46)
                        snprintf(name, sizeof name, "%s", dscp == 1 ? "le" : "ef");
                if (strcmp(text, number) == 0 || (name[0] && strcmp(text, name) == 0)) {
                        *ret = (uint8_t)dscp;
                        return true;
                }
        }
        return false;
}

static void resolve_dscp(struct loading *l)
{
        struct scenario *s = l->scenario;
        const char *text = s->network.dscp, *comma = strchr(text, ',');
        char control[8];

        s->network.control_dscp = s->network.data_dscp = 0;
        if (strcmp(text, "none") == 0)
                return;
        snprintf(control, sizeof control, "%.*s", comma ? (int)(comma - text) : 0, text);
        if (!comma || !parse_dscp(control, &s->network.control_dscp) ||
            !parse_dscp(comma + 1, &s->network.data_dscp))
                conf_key_error(l, "network", "dscp",
                               "invalid value \"%.60s\"; expected none, or CONTROL,DATA, e.g. cs6,af21: each "
                               "a number from 0 to 63, or cs0 to cs7, af11 to af43, ef or le",
                               text);
}

static void resolve_key_file(struct loading *l)
{
        char *path = l->scenario->network.key_file, whole[SCENARIO_TEXT_MAX];

        if (path[0] && conf_key_path(l, "network", "key-file", path, whole, sizeof whole))
                memcpy(path, whole, sizeof whole);
}

/* The words of the key: udp, tcp, then tcp with each congestion control. */
static void resolve_transport(struct scenario *s)
{
        uint64_t choice = s->scenario.transport_choice;

        s->scenario.transport = choice == 0 ? TRANSPORT_UDP : TRANSPORT_TCP;
        s->scenario.congestion = choice == 0 ? CONGESTION_AUTO : (enum scenario_congestion)(choice - 1);
}

static void resolve_pacing(struct scenario *s)
{
        s->ros.stagger = s->ros.pacing != SCENARIO_TOGETHER;
        s->ros.pacing_bps = s->ros.stagger ? s->ros.pacing : 0;
}

void scenario_set_backend(struct scenario *s, uint64_t choice)
{
        s->qos.backend_choice = choice;
        s->qos.required = choice <= QOS_SOCKET;
        s->qos.backend = (enum scenario_qos)(s->qos.required ? choice : choice - QOS_SOCKET);
}

void conf_resolve_texts(struct loading *l)
{
        scenario_set_backend(l->scenario, l->scenario->qos.backend_choice);
        resolve_transport(l->scenario);
        resolve_pacing(l->scenario);
        conf_resolve_source(l);
        conf_resolve_trigger(l);
        conf_resolve_board(l);
        resolve_sizes(l);
        conf_resolve_level2(l);
        conf_resolve_metrics(l);
        conf_resolve_live(l);
        conf_resolve_control(l);
        resolve_directory(l);
        check_file_name(l);
        check_group(l);
        resolve_dscp(l);
        resolve_key_file(l);
        l->scenario->dfm.event_timeout_ns = EVENT_TIMEOUTS * l->scenario->sfi.timeout_ns;
        l->scenario->dfm.lost_after_ns = LOST_NODE_TIMEOUTS * l->scenario->dfm.node_timeout_ns;
}

/* Nodes of different address families can reach neither each other nor the multicast group. */
static void check_families(struct loading *l)
{
        const struct scenario *s = l->scenario;
        const struct scenario_node *first = NULL;
        struct conf_address one = {}, other;
        char what[64];

        for (const struct scenario_node *n = s->nodes; n < s->nodes + s->n_nodes; n++) {
                if (!conf_address_parse(&other, n->address))
                        continue;
                if (!first) {
                        first = n;
                        one = other;
                }
                snprintf(what, sizeof what, "node %.31s.address", n->name);
                if (one.family != other.family)
                        conf_error(l, n->line, what,
                                   "%s cannot reach %s of node %s; expected all IPv4 or all IPv6", n->address,
                                   first->address, first->name);
        }
        if (first && conf_address_parse(&other, s->network.control_group) && other.family != one.family)
                conf_key_error(l, "network", "control-group",
                               "\"%.60s\" is of another address family than %s of node %s; expected a "
                               "multicast address of that family, or none",
                               s->network.control_group, first->address, first->name);
}

static bool is_loopback(const char *text)
{
        struct conf_address a;

        return conf_address_parse(&a, text) && conf_is_loopback(a.family, a.bytes);
}

/* /etc/hosts often maps the machine's own name to 127.0.1.1. */
static void check_loopback(struct loading *l)
{
        const struct scenario *s = l->scenario;
        const struct scenario_node *end = s->nodes + s->n_nodes, *other = s->nodes;

        while (other < end && is_loopback(other->address))
                other++;
        if (other == end)
                return;
        for (const struct scenario_node *n = s->nodes; n < end; n++) {
                if (is_loopback(n->address))
                        conf_warn(l, n->line,
                                  "node %.31s.address: %s is a loopback address, which other machines cannot "
                                  "reach; node %.31s has %s",
                                  n->name, n->address, other->name, other->address);
        }
}

/* Returns the space that the SFI's buffer needs for the smallest event of pattern sources: a power of two for
 * each fragment. The sizes of other sources are not known here. */
static uint64_t least_event_bytes(const struct scenario *s)
{
        const uint64_t least[] = {s->ros.fragment_size_bytes, s->ros.sizes_least_bytes, 0};
        uint64_t block = 256, n = 0;

        while (block < least[s->ros.sizes_kind])
                block *= 2;
        for (size_t i = 0; i < s->n_nodes; i++)
                n += s->nodes[i].role == ROLE_ROS && s->nodes[i].source_kind == SOURCE_PATTERN;
        return n * block;
}

static void check_memory(struct loading *l)
{
        uint64_t bytes = least_event_bytes(l->scenario);

        if (bytes > l->scenario->sfi.buffer_size_bytes)
                conf_key_error(l, "sfi", "buffer-size",
                               "has no room for one event; expected at least %" PRIu64
                               "KiB, as each fragment takes a power of two",
                               bytes / 1024);
}

/* Over UDP, the kernel paces a socket only below the qdisc fq, which drops what its sender does not await. */
static void check_socket_pacing(struct loading *l)
{
        const struct scenario *s = l->scenario;

        if (s->qos.backend != QOS_SOCKET)
                return;
        if (s->scenario.transport != TRANSPORT_TCP)
                conf_key_error(l, "qos", "backend",
                               "the kernel paces sockets by itself only over TCP; set scenario.transport = "
                               "tcp, or another backend");
        if (s->qos.burst_bytes != SCENARIO_AUTO)
                conf_key_error(l, "qos", "burst", "qos.backend = socket has no queue; expected auto");
        if (s->qos.limit_bytes != SCENARIO_AUTO)
                conf_key_error(l, "qos", "limit", "qos.backend = socket has no queue; expected auto");
}

static void check_offload(struct loading *l)
{
        const struct scenario *s = l->scenario;

        if (s->qos.offload == QOS_OFFLOAD_REQUIRED && s->qos.backend != QOS_AUTO && s->qos.backend != QOS_HTB)
                conf_key_error(l, "qos", "offload",
                               "only htb can be offloaded; expected qos.backend = htb or auto");
}

void conf_check_fit(struct loading *l)
{
        const struct scenario *s = l->scenario;

        conf_check_trigger(l);
        if (s->dfm.node_timeout_ns < 3 * s->dfm.keep_alive_ns)
                conf_key_error(l, "dfm", "node-timeout",
                               "too short; expected at least three times test.keep-alive");
        if (s->ros.wait_ns >= s->sfi.timeout_ns)
                conf_key_error(l, "ros", "wait", "too long; expected shorter than sfi.timeout");
        conf_check_level2(l);
        conf_check_metrics(l);
        conf_check_live(l);
        conf_check_control(l);
        if (s->network.loss >= 1)
                conf_key_error(l, "network", "loss", "drops every datagram; expected below 1");
        check_socket_pacing(l);
        check_offload(l);
        check_families(l);
        check_loopback(l);
        conf_check_sources(l);
        check_memory(l);
}
