/* Runs a point of event building in virtual time: the scenario that the lab would run, in the simulator. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/util.h"
#include "run/virtual_report.h"
#include "run_internal.h"

/* Returns whether the word is NAME=VALUE of a figure of the model, and valid. */
static bool set_one(struct sim_model *m, char *word)
{
        char *value = strchr(word, '=');
        bool valid;

        if (!value)
                return false;
        *value = '\0';
        valid = !sim_model_set(m, word, value + 1);
        *value = '=';
        return valid;
}

/* Words with a section are keys of the scenario. The last setting of a key counts. */
static bool set_all(struct sim_model *m, const char *settings, char *bad, size_t size)
{
        _cleanup_free_ char *words = strdup(settings);
        char *save = NULL;

        for (char *word = words ? strtok_r(words, " ", &save) : NULL; word;
             word = strtok_r(NULL, " ", &save)) {
                if (memchr(word, '.', strcspn(word, "=")) || set_one(m, word))
                        continue;
                snprintf(bad, size, "%s", word);
                return false;
        }
        return words != NULL;
}

bool lab_virtual_check_model(const char *settings, char *bad, size_t size)
{
        struct sim_model m = sim_model_usual;
        bool valid = set_all(&m, settings, bad, size);

        /* A key of the scenario would change the points themselves. */
        for (const char *at = settings; valid && *at; at += strcspn(at, " "), at += strspn(at, " ")) {
                int n = (int)strcspn(at, " ");

                if (!memchr(at, '.', strcspn(at, "= ")))
                        continue;
                snprintf(bad, size, "%.*s", n, at);
                valid = false;
        }
        return valid;
}

bool virtual_can_run(const struct lab_point *p, char *lack, size_t size)
{
        static const char *const others[] = {
                [LAB_FLOWS] = "plain flows and echoes",
                [LAB_COPY] = "copies of memory",
                [LAB_PATHS] = "data paths of a kernel",
                [LAB_STREAMS] = "streams of evb stream",
        };
        _cleanup_free_ struct scenario *s = NULL;
        struct error e = {};

        if (p->measurement->kind != LAB_EVENTS) {
                snprintf(lack, size, "cannot be simulated: it measures %s", others[p->measurement->kind]);
                return false;
        }
        s = events_load(p);
        if (!s) {
                snprintf(lack, size, "cannot be simulated: its scenario is invalid");
                return false;
        }
        if (sim_check(s, &e) >= 0)
                return true;
        snprintf(lack, size, "cannot be simulated: %s", e.message);
        return false;
}

static json_t *report_of(const struct sim *sim, const struct sim_config *c)
{
        struct launch_options options = {.quiet = true};
        char *text = NULL;
        size_t size = 0;
        json_t *report = NULL;

        options.json = open_memstream(&text, &size);
        if (!options.json)
                return NULL;
        (void)virtual_report_write(sim, c, &options);
        fclose(options.json);
        report = json_loadb(text, size, JSON_DISABLE_EOF_CHECK, NULL);
        free(text);
        return report;
}

static void set_real(json_t *o, const char *name, double value)
{
        json_object_set_new(o, name, json_real(value));
}

/* Fewer events do not span a time that means something. */
#define STEADY_EVENTS 20

/* Short runs would show the start of the run in built_share. */
static void set_steady_share(json_t *o)
{
        double whole = json_number_value(json_object_get(o, "whole_bytes_per_second")),
               built = json_number_value(json_object_get(o, "built_share")),
               steady = json_number_value(json_object_get(o, "throughput_bytes_per_second"));

        if (json_integer_value(json_object_get(o, "events_complete")) < STEADY_EVENTS)
                steady = whole;
        json_object_set_new(o, "steady_share", whole > 0 ? json_real(built * steady / whole) : json_real(0));
}

/* What the simulator knows in addition: the whole history, the buffer that the ports to SFIs needed, and the
 * control messages at the DFM's link. */
static void add_virtual(json_t *o, const struct sim *sim, const struct scenario *s)
{
        const struct sim_result r = sim_result(sim);
        const struct node_stats *dfm =
                sim_node_end(sim, (uint32_t)(scenario_node_of(s, ROLE_DFM, 0) - s->nodes)).stats;
        double seconds = (double)r.end_ns / 1e9, link_bps = (double)s->network.link_rate_bps;
        uint64_t sent = stats_get(&dfm->control_sent_bytes),
                 received = stats_get(&dfm->control_received_bytes);
        uint64_t messages = stats_get(&dfm->control_sent) + stats_get(&dfm->control_received);
        char digest[17];

        snprintf(digest, sizeof digest, "%016llx", (unsigned long long)r.digest);
        json_object_set_new(o, "digest", json_string(digest));
        set_real(o, "virtual_seconds", seconds);
        json_object_set_new(o, "plan_fits", json_integer(r.plan_fits));
        set_steady_share(o);
        json_object_set_new(o, "port_most_bytes", json_integer((json_int_t)r.port_most_bytes));
        set_real(o, "dfm_messages_per_second", (double)messages / seconds);
        if (link_bps > 0)
                set_real(o, "dfm_link_share", (double)MAX(sent, received) * 8 / seconds / link_bps);
}

json_t *run_virtual(const struct lab_point *p)
{
        _cleanup_free_ struct scenario *s = events_load(p);
        struct sim_config config = {.scenario = s, .seed = p->bed->virtual->seed};
        char text[ERROR_TEXT_MAX];
        json_t *report, *figures = NULL;
        struct error e = {};
        struct sim *sim;

        if (!s)
                return NULL;
        config.model = sim_model_usual;
        if (!set_all(&config.model, p->settings, text, sizeof text)) {
                log_error("lab: %s: unknown or invalid setting \"%s\"", p->measurement->id, text);
                return NULL;
        }
        sim_prepare(s);
        if (sim_new(&sim, &config, &e) < 0) {
                log_error("lab: %s, %s at %g: %s", p->measurement->id, p->series, p->x,
                          error_format(&e, text));
                return NULL;
        }
        sim_run(sim);
        report = report_of(sim, &config);
        if (sim_result(sim).violation)
                log_error("lab: %s, %s at %g: seed %llu, at %.9f s: %s", p->measurement->id, p->series, p->x,
                          (unsigned long long)config.seed, (double)sim_result(sim).violated_ns / 1e9,
                          sim_result(sim).violation);
        else if (report) {
                figures = events_flatten(report, s);
                add_virtual(figures, sim, s);
        }
        json_decref(report);
        sim_free(sim);
        return figures;
}
