/* Parses metrics.listen, and determines where each node serves its metrics. */
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "base/strbuf.h"
#include "base/util.h"
#include "conf_internal.h"

#define UNIX_PREFIX "unix:"
#define EXPECTED                                                                                             \
        "expected none, :PORT (each node's own address), HOST:PORT with a numeric IPv4 or [IPv6] address, "  \
        "or unix:PATH"

void conf_resolve_metrics(struct loading *l)
{
        struct scenario *s = l->scenario;
        const char *text = s->metrics.listen;
        struct conf_address host;

        s->metrics.kind = METRICS_NONE;
        if (strcmp(text, "none") == 0)
                return;
        if (strncmp(text, UNIX_PREFIX, strlen(UNIX_PREFIX)) == 0) {
                if (conf_socket_path(l, "metrics", "listen", s->metrics.listen))
                        s->metrics.kind = METRICS_UNIX;
                return;
        }
        if ((text[0] == ':' && conf_port_parse(&s->metrics.port, text + 1)) ||
            (conf_endpoint_parse(&host, &s->metrics.port, text) && !conf_address_is_multicast(&host)))
                s->metrics.kind = METRICS_TCP;
        else
                conf_key_error(l, "metrics", "listen", "invalid address \"%.100s\"; " EXPECTED, text);
}

static void check_port(struct loading *l, uint16_t port, const char *key)
{
        if (port > 0 && port == l->scenario->metrics.port)
                conf_key_error(l, "metrics", "listen", "port %u is %s; expected another port", port, key);
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
                conf_check_socket_path(l, "metrics", "listen", s->metrics.listen, &s->nodes[i]);
        if (s->metrics.kind != METRICS_TCP)
                return;
        if (s->n_nodes > 0)
                check_last(l);
        check_port(l, s->level2.port, "that of level2.listen");
        check_port(l, s->level2.regions_port, "that of level2.regions");
        if (s->scenario.transport == TRANSPORT_TCP)
                check_port(l, scenario_data_port(s), "the port after network.port, which SFIs use for tcp");
}

/* Makes the place at which a node serves its metrics if `listen` is its value of metrics.listen. */
static bool make_place(const struct scenario *s, const char *listen, const struct scenario_node *n,
                       char text[static SCENARIO_TEXT_MAX])
{
        struct strbuf b = strbuf_init(text, SCENARIO_TEXT_MAX);

        if (s->metrics.kind == METRICS_UNIX) {
                strbuf_add(&b, UNIX_PREFIX);
                conf_expand_path(listen + strlen(UNIX_PREFIX), n->name, &b);
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
            (s->metrics.kind == METRICS_UNIX && conf_path_names_node(listen)))
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
