/* Parses control.listen, and determines where the DFM accepts commands. */
#include <stdio.h>
#include <string.h>
#include <sys/un.h>

#include "base/strbuf.h"
#include "base/util.h"
#include "conf_internal.h"

#define UNIX_PREFIX "unix:"

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
        struct conf_address host;

        s->control.kind = CONTROL_NONE;
        s->control.port = 0;
        resolve_token(l);
        if (strcmp(text, "none") == 0)
                return;
        if (strncmp(text, UNIX_PREFIX, strlen(UNIX_PREFIX)) == 0) {
                resolve_path(l);
                return;
        }
        if ((text[0] == ':' && conf_port_parse(&s->control.port, text + 1)) ||
            (conf_endpoint_parse(&host, &s->control.port, text) && !conf_address_is_multicast(&host)))
                s->control.kind = CONTROL_TCP;
        else
                conf_key_error(
                        l, "control", "listen",
                        "invalid address \"%.100s\"; expected none, :PORT (the DFM's own address), HOST:PORT "
                        "with a numeric IPv4 or [IPv6] address, or unix:PATH",
                        text);
}

static void check_port(struct loading *l, uint64_t port, const char *key)
{
        if (port > 0 && port == l->scenario->control.port)
                conf_key_error(l, "control", "listen", "port %u is %s; expected another port",
                               l->scenario->control.port, key);
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
        check_port(l, s->metrics.kind == METRICS_TCP ? s->metrics.port : 0, "that of metrics.listen");
        check_port(l, s->level2.port, "that of level2.listen");
        check_port(l, s->level2.regions_port, "that of level2.regions");
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
