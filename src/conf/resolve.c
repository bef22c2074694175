/* What follows from the keys of a scenario, and whether they fit each other. */
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "conf_internal.h"
#include "evb/base/quantity.h"
#include "evb/base/util.h"
#include "evb/conf/keys.h"
#include "evb/core/trigger.h"

void conf_key_error(struct loading *l, const char *section, const char *name, const char *format, ...)
{
        const struct scenario_key *key = scenario_key_find(section, name);
        char text[300], what[64];
        va_list args;

        va_start(args, format);
        vsnprintf(text, sizeof text, format, args);
        va_end(args);
        snprintf(what, sizeof what, "%s.%s", section, name);
        l->setting = key ? l->from_setting[key - scenario_keys] : NULL;
        conf_error(l, key ? l->lines[key - scenario_keys] : 0, what, "%s", text);
        l->setting = NULL;
}

/* A relative path in a file is meant from that file's folder. */
static void resolve_path(struct loading *l, const char *path, const char *section, const char *name)
{
        const struct scenario_key *key = scenario_key_find(section, name);
        const char *slash = strrchr(l->path, '/');
        char *at = l->scenario->ros.source_at;
        int n;

        if (path[0] == '/' || l->from_setting[key - scenario_keys] || !slash)
                n = snprintf(at, SCENARIO_TEXT_MAX, "%s", path);
        else
                n = snprintf(at, SCENARIO_TEXT_MAX, "%.*s/%s", (int)(slash - l->path), l->path, path);
        if (n >= SCENARIO_TEXT_MAX)
                conf_key_error(l, section, name, "the path is too long, allowed: %d bytes", SCENARIO_TEXT_MAX - 6);
}

static void resolve_source(struct loading *l)
{
        struct scenario *s = l->scenario;
        const char *text = s->ros.source;
        uint64_t port;

        if (strcmp(text, "pattern") == 0) {
                s->ros.source_kind = SOURCE_PATTERN;
                return;
        }
        if (strncmp(text, "file:", 5) == 0 && text[5]) {
                s->ros.source_kind = SOURCE_FILE;
                resolve_path(l, text + 5, "ros", "source");
                /* Written again, the path does not depend on where the file lies. */
                snprintf(s->ros.source, sizeof s->ros.source, "file:%.*s", SCENARIO_TEXT_MAX - 6, s->ros.source_at);
                return;
        }
        s->ros.source_kind = strncmp(text, "udp:", 4) == 0 ? SOURCE_UDP : SOURCE_TCP;
        if (s->ros.source_kind == SOURCE_UDP && quantity_parse_count(text + 4, &port) == 0 && port >= 1 && port <= 65535) {
                snprintf(s->ros.source_at, sizeof s->ros.source_at, "%s", text + 4);
                return;
        }
        if (s->ros.source_kind == SOURCE_TCP && strncmp(text, "tcp:", 4) == 0 && strchr(text + 4, ':')) {
                snprintf(s->ros.source_at, sizeof s->ros.source_at, "%s", text + 4);
                return;
        }
        conf_key_error(l, "ros", "source", "\"%.100s\" is not allowed, allowed: pattern | file:PATH | udp:PORT | tcp:HOST:PORT", text);
}

static bool parse_range(const char *text, uint64_t *least, uint64_t *most)
{
        const char *dash = strchr(text, '-');
        char first[64];

        if (!dash || (size_t)(dash - text) >= sizeof first)
                return false;
        snprintf(first, sizeof first, "%.*s", (int)(dash - text), text);
        return quantity_parse_bytes(first, least) == 0 && quantity_parse_bytes(dash + 1, most) == 0 && *least <= *most &&
               *most <= EVB_FRAGMENT_MAX_BYTES;
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
        if (quantity_parse_bytes(first, &bytes) < 0 || end == comma + 1 || *end || !(*sigma > 0 && *sigma <= 5) ||
            bytes > EVB_FRAGMENT_MAX_BYTES)
                return false;
        *mean = (double)bytes;
        return true;
}

static void resolve_sizes(struct loading *l)
{
        struct scenario *s = l->scenario;
        const char *text = s->ros.fragment_sizes;

        if (strcmp(text, "fixed") == 0)
                s->ros.sizes_kind = 0;
        else if (strncmp(text, "uniform:", 8) == 0 &&
                 parse_range(text + 8, &s->ros.sizes_least_bytes, &s->ros.sizes_most_bytes))
                s->ros.sizes_kind = 1;
        else if (strncmp(text, "lognormal:", 10) == 0 &&
                 parse_lognormal(text + 10, &s->ros.sizes_mean_bytes, &s->ros.sizes_sigma))
                s->ros.sizes_kind = 2;
        else
                conf_key_error(l, "ros", "fragment-sizes",
                               "\"%.100s\" is not allowed, allowed: fixed | uniform:A-B | lognormal:MEAN,SIGMA, sizes up to 4MiB, SIGMA above 0 to 5",
                               text);
}

static void check_fit(struct loading *l)
{
        const struct scenario *s = l->scenario;

        if (s->trigger.kind != TRIGGER_PERIODIC && s->trigger.rate_millihertz == SCENARIO_MAX)
                conf_key_error(l, "trigger", "kind", "needs a rate, allowed: periodic, or a trigger.rate other than max");
        if (s->network.control_port == s->network.data_port)
                conf_key_error(l, "network", "data-port", "is the control port too, allowed: another one");
        if (s->dfm.node_timeout_ns < 3 * s->dfm.keep_alive_ns)
                conf_key_error(l, "dfm", "node-timeout", "is too short, allowed: at least three times dfm.keep-alive");
        if (s->dfm.event_timeout_ns <= s->sfi.timeout_ns)
                conf_key_error(l, "dfm", "event-timeout", "is too short, allowed: longer than sfi.timeout");
        if (s->network.loss >= 1)
                conf_key_error(l, "network", "loss", "nothing would arrive, allowed: below 1");
        if (strchr(s->ros.source, '\n'))
                conf_key_error(l, "ros", "source", "holds a line break");
}

void conf_resolve(struct loading *l)
{
        resolve_source(l);
        resolve_sizes(l);
        conf_resolve_nodes(l);
        check_fit(l);
}
