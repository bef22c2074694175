/* Loads the scenario of a command and reports its errors on standard error. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/strbuf.h"
#include "base/util.h"
#include "cmd/commands.h"
#include "conf/scenario.h"
#include "data/network.h"
#include "data/stats.h"

#define NODES_NAMED_MAX 6u

static void print_errors(const char *path, int r, const struct scenario_errors *errors)
{
        if (r != -EINVAL) {
                fprintf(stderr, "%s: %s\n", path, strerror(-r));
                return;
        }
        for (size_t i = 0; i < MIN(errors->n, (size_t)SCENARIO_ERRORS_MAX); i++)
                fprintf(stderr, "%s\n", errors->text[i]);
        if (errors->n > SCENARIO_ERRORS_MAX)
                fprintf(stderr, "%s: %zu more error%s\n", path, errors->n - SCENARIO_ERRORS_MAX,
                        errors->n - SCENARIO_ERRORS_MAX == 1 ? "" : "s");
}

const char *command_default_config(void)
{
        const char *path = getenv("EVB_CONFIG");

        if (path)
                return path[0] ? path : NULL;
        return access(COMMAND_CONFIG, F_OK) == 0 ? COMMAND_CONFIG : NULL;
}

const char *command_find_config(const struct command *c, const char *config)
{
        config = config ?: command_default_config();
        if (!config)
                fprintf(stderr,
                        "evb %s: missing %s, as there is no " COMMAND_CONFIG "; see `evb %s --help`\n",
                        c->name, c->arguments[0] ? "argument FILE" : "option; --config FILE is required",
                        c->name);
        return config;
}

struct scenario *command_load(const char *path, const struct options *o)
{
        _cleanup_free_ struct scenario *s = malloc(sizeof *s);
        _cleanup_free_ struct scenario_errors *errors = malloc(sizeof *errors);
        char text[ERROR_TEXT_MAX];
        struct error e = {};
        int r;

        if (!s || !errors) {
                fprintf(stderr, "evb: out of memory\n");
                return NULL;
        }
        r = scenario_load(s, path, o->settings, o->n_settings, errors);
        /* For nodes of `evb run`, it has already printed the warnings. */
        for (size_t i = 0; i < errors->n_warnings && !getenv(NODE_STATS_ENV); i++)
                fprintf(stderr, "%s\n", errors->warnings[i]);
        if (r == 0 && (r = network_check_control(s, &e)) < 0) {
                fprintf(stderr, "%s: %s\n", path, error_format(&e, text));
                return NULL;
        }
        if (r == 0)
                return take_ptr(s);
        print_errors(path, r, errors);
        return NULL;
}

const char *command_list_nodes(const struct scenario *s, int role, char text[static COMMAND_NODES_MAX])
{
        struct strbuf b = strbuf_init(text, COMMAND_NODES_MAX);
        unsigned n = 0;

        text[0] = '\0';
        for (size_t i = 0; i < s->n_nodes; i++) {
                if (role >= 0 && (int)s->nodes[i].role != role)
                        continue;
                if (n++ < NODES_NAMED_MAX)
                        strbuf_add(&b, "%s%s", n == 1 ? ": " : ", ", s->nodes[i].name);
        }
        if (n > NODES_NAMED_MAX)
                strbuf_add(&b, " or %u more", n - NODES_NAMED_MAX);
        return text;
}

int command_load_one(struct scenario **ret, const char *path, const char *const *settings, size_t n,
                     struct error *error)
{
        _cleanup_free_ struct scenario *s = malloc(sizeof *s);
        _cleanup_free_ struct scenario_errors *errors = malloc(sizeof *errors);
        int r = s && errors ? scenario_load(s, path, settings, n, errors) : -ENOMEM;

        if (r < 0)
                return s && errors && errors->n > 0 ? error_set(error, r, "%s", errors->text[0])
                                                    : error_set(error, r, "%m");
        *ret = take_ptr(s);
        return 0;
}
