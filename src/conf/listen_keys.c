/* The places where nodes listen: parses and checks control.listen, metrics.listen and live.listen, and
 * returns the place of each node. In unix:PATH, %n is the name of the node and %% a percent sign. */
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "base/strbuf.h"
#include "conf_internal.h"

#define UNIX_PREFIX "unix:"

static bool is_local(const char *listen)
{
        return strncmp(listen, UNIX_PREFIX, strlen(UNIX_PREFIX)) == 0;
}

/* False: another letter follows a %. */
static bool expand_path(const char *path, const char *name, struct strbuf *to)
{
        for (; *path; path++) {
                if (*path != '%')
                        strbuf_add(to, "%c", *path);
                else if (*++path == 'n')
                        strbuf_add(to, "%s", name);
                else if (*path == '%')
                        strbuf_add(to, "%%");
                else
                        return false;
        }
        return true;
}

static bool path_names_node(const char *path)
{
        for (; *path; path++) {
                if (*path == '%' && *++path == 'n')
                        return true;
        }
        return false;
}

/* Makes the path in the value absolute. False: the error is reported. */
static bool socket_path(struct loading *l, const char *section, const char *name,
                        char value[static SCENARIO_TEXT_MAX])
{
        const char *path = value + strlen(UNIX_PREFIX);
        char whole[SCENARIO_TEXT_MAX - sizeof UNIX_PREFIX], text[SCENARIO_TEXT_MAX];
        struct strbuf expanded = strbuf_init(text, sizeof text);

        if (!*path || !expand_path(path, "", &expanded)) {
                conf_key_error(l, section, name,
                               "invalid path \"%.100s\"; expected a path in which %%n is the name of the "
                               "node, e.g. unix:/run/evb/%%n.sock",
                               path);
                return false;
        }
        if (!conf_key_path(l, section, name, path, whole, sizeof whole))
                return false;
        snprintf(value, SCENARIO_TEXT_MAX, UNIX_PREFIX "%s", whole);
        return true;
}

/* The limit for socket paths is lower than for other paths (unix(7)). */
static void check_socket_path(struct loading *l, const char *section, const char *name, const char *value,
                              const struct scenario_node *n)
{
        const size_t most = sizeof((struct sockaddr_un){}).sun_path - 1;
        char text[SCENARIO_TEXT_MAX];
        struct strbuf b = strbuf_init(text, sizeof text);

        expand_path(value + strlen(UNIX_PREFIX), n->name, &b);
        if (!b.cut && strlen(text) <= most)
                return;
        conf_key_error(l, section, name,
                       "path is too long for the socket of node %.31s; expected at most %zu bytes", n->name,
                       most);
}

/* Parses :PORT, the node's own address, or HOST:PORT. */
static bool is_endpoint(const char *text, uint16_t *ret_port)
{
        struct conf_address host;

        return (text[0] == ':' && conf_port_parse(ret_port, text + 1)) ||
               (conf_endpoint_parse(&host, ret_port, text) && !conf_address_is_multicast(&host));
}

static void check_port(struct loading *l, const char *section, uint16_t own, uint16_t port, const char *key)
{
        if (port > 0 && port == own)
                conf_key_error(l, section, "listen", "port %u is %s; expected another port", port, key);
}

/* ---- control.listen ---- */

static void resolve_path(struct loading *l)
{
        struct scenario *s = l->scenario;
        const char *path = s->control.listen + strlen(UNIX_PREFIX);
        char whole[SCENARIO_TEXT_MAX - sizeof UNIX_PREFIX];

        if (!*path) {
                conf_key_error(l, "control", "listen",
                               "no path; expected a path, e.g. unix:/run/evb/control.sock");
                return;
        }
        if (!conf_key_path(l, "control", "listen", path, whole, sizeof whole))
                return;
        /* The limit for socket paths is lower than for other paths (unix(7)). */
        if (strlen(whole) >= sizeof((struct sockaddr_un){}).sun_path) {
                conf_key_error(l, "control", "listen",
                               "path is too long for a socket; expected at most %zu bytes",
                               sizeof((struct sockaddr_un){}).sun_path - 1);
                return;
        }
        s->control.kind = CONTROL_UNIX;
        snprintf(s->control.listen, sizeof s->control.listen, UNIX_PREFIX "%s", whole);
}

static void resolve_token(struct loading *l)
{
        char whole[SCENARIO_TEXT_MAX];

        if (l->scenario->control.token_file[0] &&
            conf_key_path(l, "control", "token-file", l->scenario->control.token_file, whole, sizeof whole))
                snprintf(l->scenario->control.token_file, sizeof whole, "%s", whole);
}

void conf_resolve_control(struct loading *l)
{
        struct scenario *s = l->scenario;
        const char *text = s->control.listen;

        s->control.kind = CONTROL_NONE;
        s->control.port = 0;
        resolve_token(l);
        if (strcmp(text, "none") == 0)
                return;
        if (is_local(text)) {
                resolve_path(l);
                return;
        }
        if (is_endpoint(text, &s->control.port))
                s->control.kind = CONTROL_TCP;
        else
                conf_key_error(l, "control", "listen",
                               "invalid address \"%.100s\"; expected none, :PORT (the DFM's own address), "
                               "HOST:PORT with a numeric IPv4 or [IPv6] address, or unix:PATH",
                               text);
}

void conf_check_control(struct loading *l)
{
        const struct scenario *s = l->scenario;

        if (strcmp(s->network.clients, "none") != 0)
                conf_check_addresses(l, "network", "clients", s->network.clients);
        if (s->run.start == START_MANUAL && s->control.kind == CONTROL_NONE)
                conf_key_error(l, "run", "start",
                               "nobody could start a run; expected auto, or control.listen");
        if (s->control.kind == CONTROL_UNIX && s->metrics.kind == METRICS_UNIX &&
            strcmp(s->control.listen, s->metrics.listen) == 0)
                conf_key_error(l, "control", "listen", "is metrics.listen; expected another path");
        if (s->control.kind != CONTROL_TCP)
                return;
        check_port(l, "control", s->control.port, s->metrics.kind == METRICS_TCP ? s->metrics.port : 0,
                   "that of metrics.listen");
        check_port(l, "control", s->control.port, s->level2.port, "that of level2.listen");
        check_port(l, "control", s->control.port, s->level2.regions_port, "that of level2.regions");
}

bool scenario_control_place(const struct scenario *s, char text[static SCENARIO_TEXT_MAX])
{
        const struct scenario_node *dfm = scenario_node_of(s, ROLE_DFM, 0);
        struct strbuf b = strbuf_init(text, SCENARIO_TEXT_MAX);

        if (s->control.kind == CONTROL_NONE)
                return false;
        if (s->control.kind == CONTROL_UNIX || s->control.listen[0] != ':')
                strbuf_add(&b, "%s", s->control.listen);
        else
                strbuf_add(&b, strchr(dfm->address, ':') ? "[%s]:%u" : "%s:%u", dfm->address,
                           s->control.port);
        return !b.cut && (s->control.listen[0] != ':' || dfm->address[0]);
}

/* ---- metrics.listen ---- */

#define EXPECTED                                                                                             \
        "expected none, :PORT (each node's own address), HOST:PORT with a numeric IPv4 or [IPv6] address, "  \
        "or unix:PATH"

void conf_resolve_metrics(struct loading *l)
{
        struct scenario *s = l->scenario;
        const char *text = s->metrics.listen;

        s->metrics.kind = METRICS_NONE;
        if (strcmp(text, "none") == 0)
                return;
        if (is_local(text)) {
                if (socket_path(l, "metrics", "listen", s->metrics.listen))
                        s->metrics.kind = METRICS_UNIX;
                return;
        }
        if (is_endpoint(text, &s->metrics.port))
                s->metrics.kind = METRICS_TCP;
        else
                conf_key_error(l, "metrics", "listen", "invalid address \"%.100s\"; " EXPECTED, text);
}

/* Nodes without an address share one machine, and have consecutive ports. Checks that the last node gets a
 * valid port. */
static void check_last(struct loading *l)
{
        const struct scenario *s = l->scenario;
        const struct scenario_node *last = &s->nodes[s->n_nodes - 1];
        char text[SCENARIO_TEXT_MAX];

        if (!last->address[0] && !scenario_metrics_beside(s, last, text))
                conf_key_error(l, "metrics", "listen",
                               "port %u leaves no port for node %s, as the nodes have consecutive ports; "
                               "expected a lower port",
                               s->metrics.port, last->name);
}

void conf_check_metrics(struct loading *l)
{
        const struct scenario *s = l->scenario;
        size_t before = l->errors->n;

        for (size_t i = 0; s->metrics.kind == METRICS_UNIX && i < s->n_nodes && l->errors->n == before; i++)
                check_socket_path(l, "metrics", "listen", s->metrics.listen, &s->nodes[i]);
        if (s->metrics.kind != METRICS_TCP)
                return;
        if (s->n_nodes > 0)
                check_last(l);
        check_port(l, "metrics", s->metrics.port, s->level2.port, "that of level2.listen");
        check_port(l, "metrics", s->metrics.port, s->level2.regions_port, "that of level2.regions");
        if (s->scenario.transport == TRANSPORT_TCP)
                check_port(l, "metrics", s->metrics.port, scenario_data_port(s),
                           "the port after network.port, which SFIs use for tcp");
}

/* Makes the place at which a node serves its metrics if `listen` is its value of metrics.listen. */
static bool make_place(const struct scenario *s, const char *listen, const struct scenario_node *n,
                       char text[static SCENARIO_TEXT_MAX])
{
        struct strbuf b = strbuf_init(text, SCENARIO_TEXT_MAX);

        if (s->metrics.kind == METRICS_UNIX) {
                strbuf_add(&b, UNIX_PREFIX);
                expand_path(listen + strlen(UNIX_PREFIX), n->name, &b);
        } else if (s->metrics.kind == METRICS_TCP && listen[0] == ':')
                strbuf_add(&b, strchr(n->address, ':') ? "[%s]:%u" : "%s:%u", n->address, s->metrics.port);
        else
                strbuf_add(&b, "%s", listen);
        return s->metrics.kind != METRICS_NONE && !b.cut;
}

bool scenario_metrics_place(const struct scenario *s, const struct scenario_node *n,
                            char text[static SCENARIO_TEXT_MAX])
{
        return make_place(s, s->metrics.listen, n, text);
}

/* Returns the number of a node: the DFM is number 0, and the other nodes follow in the order of the
 * scenario. */
static size_t number_of(const struct scenario *s, const struct scenario_node *n)
{
        const struct scenario_node *dfm = scenario_node_of(s, ROLE_DFM, 0);

        return n == dfm ? 0 : (size_t)(n - s->nodes) + (n < dfm);
}

bool scenario_metrics_beside(const struct scenario *s, const struct scenario_node *n,
                             char text[static SCENARIO_TEXT_MAX])
{
        struct strbuf b = strbuf_init(text, SCENARIO_TEXT_MAX);
        const char *listen = s->metrics.listen;
        size_t number = number_of(s, n);

        if (number == 0 || s->metrics.kind == METRICS_NONE || listen[0] == ':' ||
            (s->metrics.kind == METRICS_UNIX && path_names_node(listen)))
                strbuf_add(&b, "%s", listen);
        else if (s->metrics.kind == METRICS_UNIX)
                strbuf_add(&b, "%s.%s", listen, n->name);
        else
                strbuf_add(&b, "%.*s:%zu", (int)(strrchr(listen, ':') - listen), listen,
                           s->metrics.port + number);
        return !b.cut && (s->metrics.kind != METRICS_TCP || s->metrics.port + number <= UINT16_MAX);
}

bool scenario_metrics_reach(const struct scenario *s, const struct scenario_node *n,
                            char text[static SCENARIO_TEXT_MAX])
{
        struct conf_address host = {};
        char listen[SCENARIO_TEXT_MAX];
        uint16_t port;
        bool any = conf_endpoint_parse(&host, &port, s->metrics.listen) && conf_address_is_unset(&host);

        if (s->metrics.kind == METRICS_NONE || !scenario_metrics_beside(s, n, listen))
                return false;
        if (!any)
                return (listen[0] != ':' || n->address[0]) && make_place(s, listen, n, text);
        /* metrics.listen contains no host, which means all addresses of the machine. So uses the address of
         * the node, or loopback for nodes of evb run. */
        if (n->address[0]) {
                snprintf(listen, sizeof listen, ":%u", s->metrics.port);
                return make_place(s, listen, n, text);
        }
        snprintf(text, SCENARIO_TEXT_MAX, "%s%s", host.family == AF_INET6 ? "[::1]" : "127.0.0.1",
                 strrchr(listen, ':'));
        return true;
}

/* ---- live.listen ---- */

void conf_resolve_live(struct loading *l)
{
        char *text = l->scenario->live.listen;
        struct conf_address host;
        uint16_t port;

        if (l->scenario->sfi.output == OUTPUT_LIVE)
                l->scenario->live.all = 1;
        if (strcmp(text, "none") == 0)
                return;
        if (is_local(text))
                (void)socket_path(l, "live", "listen", text);
        else if (!conf_endpoint_parse(&host, &port, text) || conf_address_is_multicast(&host))
                conf_key_error(l, "live", "listen",
                               "invalid address \"%.100s\"; expected none, HOST:PORT with a numeric IPv4 or "
                               "[IPv6] address, or unix:PATH",
                               text);
}

/* Whether an earlier SFI has the same address. Nodes without an address share one machine. */
static bool shares_machine(const struct scenario *s, const struct scenario_node *n)
{
        for (const struct scenario_node *other = s->nodes; other < n; other++) {
                if (other->role == ROLE_SFI && strcmp(other->address, n->address) == 0)
                        return true;
        }
        return false;
}

static void check_place(struct loading *l, const struct scenario_node *n)
{
        const struct scenario *s = l->scenario;
        const char *text = s->live.listen;
        char place[SCENARIO_TEXT_MAX];

        if (!is_local(text)) {
                if (!n->address[0] && !scenario_live_beside(s, n, place))
                        conf_key_error(l, "live", "listen",
                                       "no port is left for node %.31s, because the SFIs of a machine have "
                                       "consecutive ports; expected a lower port",
                                       n->name);
                return;
        }
        check_socket_path(l, "live", "listen", text, n);
        if (!path_names_node(text) && shares_machine(s, n))
                conf_key_error(l, "live", "listen",
                               "several SFIs of a machine cannot share one socket; expected a path with %%n, "
                               "the name of the node");
}

void conf_check_live(struct loading *l)
{
        const struct scenario *s = l->scenario;
        size_t before = l->errors->n;

        if (s->live.all && s->sfi.slow_disk == SLOW_DISK_DROP)
                conf_key_error(l, "live", "all",
                               "consumers that slow the run down would look like a slow disk; expected no, "
                               "or sfi.slow-disk = wait");
        if (s->sfi.output == OUTPUT_LIVE && strcmp(s->live.listen, "none") == 0)
                conf_key_error(l, "sfi", "output", "live needs a place for consumers; set live.listen");
        if (strcmp(s->live.listen, "none") == 0)
                return;
        for (const struct scenario_node *n = s->nodes; n < s->nodes + s->n_nodes; n++) {
                if (n->role == ROLE_SFI && l->errors->n == before)
                        check_place(l, n);
        }
}

bool scenario_live_place(const struct scenario *s, const struct scenario_node *n,
                         char text[static SCENARIO_TEXT_MAX])
{
        struct strbuf b = strbuf_init(text, SCENARIO_TEXT_MAX);

        if (is_local(s->live.listen)) {
                strbuf_add(&b, UNIX_PREFIX);
                expand_path(s->live.listen + strlen(UNIX_PREFIX), n->name, &b);
        } else
                strbuf_add(&b, "%s", s->live.listen);
        return !b.cut && strcmp(s->live.listen, "none") != 0;
}

bool scenario_live_beside(const struct scenario *s, const struct scenario_node *n,
                          char text[static SCENARIO_TEXT_MAX])
{
        const char *listen = s->live.listen;
        struct strbuf b = strbuf_init(text, SCENARIO_TEXT_MAX);
        struct conf_address host;
        uint16_t port;

        if (n->role != ROLE_SFI || is_local(listen) || !conf_endpoint_parse(&host, &port, listen)) {
                strbuf_add(&b, "%s", listen);
                return !b.cut;
        }
        strbuf_add(&b, "%.*s:%u", (int)(strrchr(listen, ':') - listen), listen, (unsigned)(port + n->index));
        return !b.cut && port + n->index <= UINT16_MAX;
}
