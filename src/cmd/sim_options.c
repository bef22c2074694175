/* Reads the options of evb sim, and prints them again for a replay. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/quantity.h"
#include "base/util.h"
#include "cmd/commands.h"
#include "data/network.h"
#include "sim_command.h"

#define FAULT_MOST_NS (24 * 3600 * NS_PER_S)

struct texts {
        const char *config, *seed, *trace, *chaos, *histories;
        struct option_list model, crashes, pauses, restarts;
};

static int usage(const char *option, const char *text, const char *expected)
{
        fprintf(stderr, "evb sim: --%s: invalid value \"%s\"; expected %s\n", option, text, expected);
        return 2;
}

static int read_count(const char *option, const char *text, uint64_t least, uint64_t *to)
{
        uint64_t value;
        char *end;

        if (!text)
                return OPTIONS_GO_ON;
        errno = 0;
        value = strtoull(text, &end, 10);
        if (text[0] < '0' || text[0] > '9' || *end || errno != 0 || value < least || value > INT64_MAX)
                return usage(option, text,
                             least > 0 ? "a whole number from 1 on" : "a whole number up to 2^63 - 1");
        *to = value;
        return OPTIONS_GO_ON;
}

/* Each is NAME=VALUE. */
static int read_model(struct sim_model *m, const struct option_list *list)
{
        for (size_t i = 0; i < list->n; i++) {
                const char *text = list->values[i], *equals = strchrnul(text, '='), *expected;
                char name[32];

                snprintf(name, sizeof name, "%.*s", (int)(equals - text), text);
                expected = sim_model_set(m, name, *equals ? equals + 1 : "");
                if (expected)
                        return usage("model", text, expected);
        }
        return OPTIONS_GO_ON;
}

static bool parse_time(const char *text, size_t n, uint64_t *ret)
{
        char copy[QUANTITY_TEXT_MAX];

        if (n == 0 || n >= sizeof copy)
                return false;
        memcpy(copy, text, n);
        copy[n] = '\0';
        return quantity_parse_time(copy, ret) >= 0 && *ret <= FAULT_MOST_NS;
}

/* Parses NODE@TIME, or NODE@TIME+DURATION for a pause. */
static bool parse_fault(const struct scenario *s, enum sim_fault_kind kind, const char *text,
                        struct sim_fault *ret)
{
        const char *at = strchr(text, '@'), *plus;
        const struct scenario_node *node;
        char name[sizeof node->name];
        uint64_t for_ns = 0;

        if (!at || (size_t)(at - text) >= sizeof name)
                return false;
        snprintf(name, sizeof name, "%.*s", (int)(at - text), text);
        node = scenario_find(s, name);
        plus = strchr(at, '+');
        if (!node || (plus != NULL) != (kind == SIM_PAUSE) ||
            (plus && !parse_time(plus + 1, strlen(plus + 1), &for_ns)))
                return false;
        ret->kind = kind;
        ret->node = (uint32_t)(node - s->nodes);
        ret->for_ns = for_ns;
        return parse_time(at + 1, plus ? (size_t)(plus - at - 1) : strlen(at + 1), &ret->at_ns);
}

static int read_faults(struct sim_options *o, const struct scenario *s, enum sim_fault_kind kind,
                       const char *option, const struct option_list *list)
{
        for (size_t i = 0; i < list->n; i++) {
                if (o->config.n_faults == SIM_FAULTS_MAX) {
                        fprintf(stderr, "evb sim: more than %d faults\n", SIM_FAULTS_MAX);
                        return 2;
                }
                if (!parse_fault(s, kind, list->values[i], &o->faults[o->config.n_faults]))
                        return usage(option, list->values[i],
                                     kind == SIM_PAUSE
                                             ? "NODE@TIME+DURATION, e.g. sfi1@1s+500ms, with a node of the "
                                               "scenario"
                                             : "NODE@TIME, e.g. ros3@1.5s, with a node of the scenario");
                o->config.n_faults++;
        }
        return OPTIONS_GO_ON;
}

static int read_all(struct sim_options *o, const struct texts *t, struct scenario *s)
{
        char text[ERROR_TEXT_MAX];
        struct error e = {};
        int r = read_count("seed", t->seed, 0, &o->config.seed);

        if (r == OPTIONS_GO_ON)
                r = read_count("histories", t->histories, 1, &o->histories);
        if (r == OPTIONS_GO_ON)
                r = read_model(&o->config.model, &t->model);
        if (r == OPTIONS_GO_ON)
                r = read_faults(o, s, SIM_CRASH, "crash", &t->crashes);
        if (r == OPTIONS_GO_ON)
                r = read_faults(o, s, SIM_PAUSE, "pause", &t->pauses);
        if (r == OPTIONS_GO_ON)
                r = read_faults(o, s, SIM_RESTART, "restart", &t->restarts);
        if (r == OPTIONS_GO_ON && sim_check(s, &e) < 0) {
                fprintf(stderr, "%s: %s\n", s->path, error_format(&e, text));
                return 2;
        }
        return r;
}

int sim_options_read(struct sim_options *o, const struct command *command, struct scenario **ret_scenario,
                     int argc, char **argv)
{
        struct texts t = {};
        const struct option_entry own[] = {
                {"config", "FILE", COMMAND_CONFIG_HELP, &t.config},
                {"seed", "N", "seed of all random numbers (default: 1)", &t.seed},
                {"trace", NULL,
                 "print each message, drop and change of state, with its time; to standard error with --json "
                 "on standard output",
                 &t.trace},
                {"histories", "N", "run N histories, with this seed and the next ones (default: 1)",
                 &t.histories},
                {"crash", "NODE@TIME", "crash the process of a node; repeatable", .list = &t.crashes},
                {"pause", "NODE@TIME+DURATION", "suspend the process of a node for DURATION; repeatable",
                 .list = &t.pauses},
                {"restart", "NODE@TIME", "start a new process of a node; repeatable", .list = &t.restarts},
                {"chaos", NULL, "add faults of nodes and of the network, drawn from the seed", &t.chaos},
                {"model", "NAME=VALUE",
                 "figure of the model: wake-time, packet-time, send-time, fragment-time, propagation, "
                 "timer-time or processors; repeatable",
                 .list = &t.model},
        };
        int r = options_parse(&o->common, command, own, ARRAY_SIZE(own), OPTIONS_SCENARIO, argc, argv);

        *o = (struct sim_options){.common = o->common, .histories = 1, .argc = argc, .argv = argv};
        if (r == OPTIONS_GO_ON) {
                t.config = command_find_config(command, t.config);
                *ret_scenario = t.config ? command_load(t.config, &o->common) : NULL;
                r = *ret_scenario ? OPTIONS_GO_ON : 2;
        }
        if (r == OPTIONS_GO_ON) {
                sim_prepare(*ret_scenario);
                o->config = (struct sim_config){.scenario = *ret_scenario,
                                                .seed = 1,
                                                .model = sim_model_usual,
                                                .faults = o->faults,
                                                .chaos = t.chaos != NULL};
                if (t.trace)
                        o->config.trace = o->common.json && !o->common.json_path ? stderr : stdout;
                r = read_all(o, &t, *ret_scenario);
        }
        free(t.model.values);
        free(t.crashes.values);
        free(t.pauses.values);
        free(t.restarts.values);
        return r;
}

void sim_print_faults(const struct sim *sim, const struct scenario *s)
{
        static const char *const options[] = {
                [SIM_CRASH] = "crash",
                [SIM_PAUSE] = "pause",
                [SIM_RESTART] = "restart",
        };
        const struct sim_fault *faults;
        struct fault_config network;
        size_t n = sim_faults(sim, &faults, &network);

        fprintf(stderr, "evb sim: its faults:");
        for (size_t i = 0; i < n; i++) {
                fprintf(stderr, " --%s %s@%" PRIu64 "ns", options[faults[i].kind],
                        s->nodes[faults[i].node].name, faults[i].at_ns);
                if (faults[i].kind == SIM_PAUSE)
                        fprintf(stderr, "+%" PRIu64 "ns", faults[i].for_ns);
        }
        fprintf(stderr, " --set network.loss=%.9f --set network.reorder=%.9f --set network.duplicate=%.9f\n",
                network.loss, network.reorder, network.duplicate);
}

static bool is_option(const char *word, const char *name, bool *has_value)
{
        size_t n = strlen(name);

        if (strncmp(word, name, n) != 0 || (word[n] != '\0' && word[n] != '='))
                return false;
        *has_value = word[n] == '=';
        return true;
}

void sim_print_replay(const struct sim_options *o, uint64_t seed)
{
        bool has_value;

        fprintf(stderr, "evb sim: replay with: evb");
        for (int i = 0; i < o->argc; i++) {
                if (is_option(o->argv[i], "--trace", &has_value) ||
                    is_option(o->argv[i], "--json", &has_value))
                        continue;
                if (is_option(o->argv[i], "--seed", &has_value) ||
                    is_option(o->argv[i], "--histories", &has_value)) {
                        i += !has_value;
                        continue;
                }
                fprintf(stderr, strpbrk(o->argv[i], " \t'\"\\$;&|<>*?(){}") ? " '%s'" : " %s", o->argv[i]);
        }
        fprintf(stderr, " --seed %" PRIu64 " --trace\n", seed);
}
