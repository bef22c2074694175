/* Handles values unix:PATH of keys that all nodes share, in which %n is the name of the node; live.listen is
 * such a key. */
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "base/strbuf.h"
#include "base/util.h"
#include "conf_internal.h"

#define UNIX_PREFIX "unix:"

bool conf_expand_path(const char *path, const char *name, struct strbuf *to)
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

bool conf_path_names_node(const char *path)
{
        for (; *path; path++) {
                if (*path == '%' && *++path == 'n')
                        return true;
        }
        return false;
}

bool conf_socket_path(struct loading *l, const char *section, const char *name,
                      char value[static SCENARIO_TEXT_MAX])
{
        const char *path = value + strlen(UNIX_PREFIX);
        char whole[SCENARIO_TEXT_MAX - sizeof UNIX_PREFIX], text[SCENARIO_TEXT_MAX];
        struct strbuf expanded = strbuf_init(text, sizeof text);

        if (!*path || !conf_expand_path(path, "", &expanded)) {
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
void conf_check_socket_path(struct loading *l, const char *section, const char *name, const char *value,
                            const struct scenario_node *n)
{
        const size_t most = sizeof((struct sockaddr_un){}).sun_path - 1;
        char text[SCENARIO_TEXT_MAX];
        struct strbuf b = strbuf_init(text, sizeof text);

        conf_expand_path(value + strlen(UNIX_PREFIX), n->name, &b);
        if (!b.cut && strlen(text) <= most)
                return;
        conf_key_error(l, section, name,
                       "path is too long for the socket of node %.31s; expected at most %zu bytes", n->name,
                       most);
}

/* ---- live.listen ---- */

static bool is_local(const char *listen)
{
        return strncmp(listen, UNIX_PREFIX, strlen(UNIX_PREFIX)) == 0;
}

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
                (void)conf_socket_path(l, "live", "listen", text);
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
        conf_check_socket_path(l, "live", "listen", text, n);
        if (!conf_path_names_node(text) && shares_machine(s, n))
                conf_key_error(l, "live", "listen",
                               "several SFIs of a machine cannot share one socket; expected a path "
                               "with %%n, the name of the node");
}

void conf_check_live(struct loading *l)
{
        const struct scenario *s = l->scenario;
        size_t before = l->errors->n;

        if (s->live.all && s->sfi.slow_disk == SLOW_DISK_DROP)
                conf_key_error(
                        l, "live", "all",
                        "consumers that slow the run down would look like a slow disk; expected no, or "
                        "sfi.slow-disk = wait");
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
                conf_expand_path(s->live.listen + strlen(UNIX_PREFIX), n->name, &b);
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
