/* Runs a point of event building: makes a scenario of its settings, runs it here or on standby nodes, and
 * flattens the report into figures. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/util.h"
#include "conf/keys.h"
#include "lab/event_figures.h"
#include "run/launch.h"
#include "run/scenario_load.h"
#include "run_internal.h"

#define SETTINGS_MAX 96
#define SETTING_MAX_BYTES 96

/* The links of a testbed have the properties that its own scenario states. */
static bool is_link_setting(const char *setting)
{
        static const char *const keys[] = {"network.link-rate=", "network.mtu=", "network.switch-buffer="};
        bool is = false;

        for (size_t i = 0; i < ARRAY_SIZE(keys); i++)
                is |= strncmp(setting, keys[i], strlen(keys[i])) == 0;
        return is;
}

/* Whether the catalogue alone sets a key. A testbed's scenario sets nodes, links, sockets and tuning. */
static bool is_set_by_catalogue(const struct scenario_key *k)
{
        static const char *const sections[] = {"scenario", "trigger", "dfm", "ros", "sfi", "qos"};
        bool is = false;

        for (size_t i = 0; i < ARRAY_SIZE(sections); i++)
                is |= strcmp(k->section, sections[i]) == 0;
        return is && !k->local && strcmp(k->name, "count") != 0 && k->standard[0];
}

/* Writes the default of each key that the catalogue sets, so that a testbed's own value has no effect. */
static size_t set_defaults(char texts[static SETTINGS_MAX][SETTING_MAX_BYTES],
                           const char *ret[static SETTINGS_MAX])
{
        size_t n = 0;

        for (size_t i = 0; i < n_scenario_keys && n < SETTINGS_MAX; i++) {
                const struct scenario_key *k = &scenario_keys[i];

                if (!is_set_by_catalogue(k))
                        continue;
                snprintf(texts[n], SETTING_MAX_BYTES, "%s.%s=%s", k->section, k->name, k->standard);
                ret[n] = texts[n];
                n++;
        }
        return n;
}

/* Appends the settings in `text` to the first n, and returns the new number. Modifies `text`. */
static size_t split(char *text, bool with_links, const char *ret[static SETTINGS_MAX], size_t n)
{
        char *save = NULL;

        for (char *word = strtok_r(text, " ", &save); word && n < SETTINGS_MAX;
             word = strtok_r(NULL, " ", &save)) {
                if (with_links || !is_link_setting(word))
                        ret[n++] = word;
        }
        return n;
}

/* Without a testbed, settings alone make the scenario. */
static struct scenario *load(const char *const *settings, size_t n)
{
        struct scenario *s = NULL;
        struct error e = {};
        char text[ERROR_TEXT_MAX];

        if (scenario_load_one(&s, "/dev/null", settings, n, &e) < 0)
                log_error("lab: %s", error_format(&e, text));
        return s;
}

struct scenario *events_load(const struct lab_point *p)
{
        _cleanup_free_ char *words = strdup(p->settings);
        const char *settings[SETTINGS_MAX];
        size_t n = words ? split(words, true, settings, 0) : 0, kept = 0;

        for (size_t i = 0; i < n; i++) {
                if (memchr(settings[i], '.', strcspn(settings[i], "=")))
                        settings[kept++] = settings[i];
        }
        return words ? load(settings, kept) : NULL;
}

static void copy_number(json_t *to, const char *name, const json_t *from)
{
        json_object_set(to, name, from ? (json_t *)from : json_null());
}

static const json_t *inside(const json_t *report, const char *section, const char *name)
{
        return json_object_get(json_object_get(report, section), name);
}

static void set_cpu_share(json_t *o, const char *name, const json_t *report, const char *role)
{
        const json_t *cpu = inside(report, "cpu_seconds", role);
        double seconds = json_number_value(json_object_get(report, "seconds"));

        json_object_set_new(o, name,
                            json_is_number(cpu) && seconds > 0 ? json_real(json_number_value(cpu) / seconds)
                                                               : json_null());
}

/* With level 2, most triggers are not built. */
static void set_trigger_rate(json_t *o, const json_t *report)
{
        double rate_hz = json_number_value(json_object_get(report, "event_rate_hz")),
               triggers = json_number_value(json_object_get(report, "triggers")),
               complete = json_number_value(json_object_get(report, "events_complete"));

        json_object_set_new(o, "trigger_rate_hz",
                            rate_hz > 0 ? json_real(rate_hz * triggers / complete) : json_null());
}

json_t *events_flatten(const json_t *report, const struct scenario *s)
{
        static const char *const plain[] = {"qos_backend", "qos_rate_bps",    "seconds",
                                            "triggers",    "events_complete", "events_partial",
                                            "events_lost", "event_rate_hz",   "throughput_bytes_per_second",
                                            "busy_seconds"};
        json_t *o = json_object();

        for (size_t i = 0; i < ARRAY_SIZE(plain); i++)
                copy_number(o, plain[i], json_object_get(report, plain[i]));
        copy_number(o, "switch_packets", inside(report, "drops", "switch_packets"));
        copy_number(o, "port", json_object_get(report, "port"));
        copy_number(o, "testbed_lost_packets", json_object_get(report, "testbed_lost_packets"));
        copy_number(o, "source_packets", inside(report, "drops", "source_qdisc_packets"));
        copy_number(o, "socket_packets", inside(report, "drops", "socket_packets"));
        copy_number(o, "re_asked", inside(report, "fragments", "re_asked"));
        copy_number(o, "late", inside(report, "fragments", "late"));
        copy_number(o, "fragments_lost", inside(report, "fragments", "lost"));
        copy_number(o, "latency_p50_us", inside(report, "latency_us", "p50"));
        copy_number(o, "latency_p99_us", inside(report, "latency_us", "p99"));
        copy_number(o, "ros_cpu", inside(report, "cpu_percent", "ros"));
        copy_number(o, "dfm_cpu", inside(report, "cpu_percent", "dfm"));
        copy_number(o, "sfi_cpu", inside(report, "cpu_percent", "sfi"));
        set_cpu_share(o, "sfi_cpu_share", report, "sfi");
        set_cpu_share(o, "ros_cpu_share", report, "ros");
        set_trigger_rate(o, report);
        figures_add_building(o, report, s);
        return o;
}

/* Runs in namespaces of this machine, with the launcher of `evb run`. */
static json_t *run_here(const struct lab_point *p, struct scenario *s, struct machine_watch *watch)
{
        struct launch_options options = {
                .scenario = s,
                .program = "/proc/self/exe",
                .net = LAUNCH_LAB,
                .quiet = true,
                .raised = true,
                .watch = watch,
        };
        char *text = NULL;
        size_t size = 0;
        json_t *report = NULL;
        int status;

        options.json = open_memstream(&text, &size);
        if (!options.json)
                return NULL;
        status = launch_run(&options);
        fclose(options.json);
        if (status <= 1 && size > 0)
                report = json_loadb(text, size, JSON_DISABLE_EOF_CHECK, NULL);
        else
                log_error("lab: %s, %s at %g: the run wrote no report (exit status %d)", p->measurement->id,
                          p->series, p->x, status);
        free(text);
        if (report && json_integer_value(json_object_get(report, "triggers")) == 0) {
                log_error("lab: %s, %s at %g: the run accepted no trigger", p->measurement->id, p->series,
                          p->x);
                json_decref(report);
                return NULL;
        }
        return report;
}

json_t *run_events(const struct lab_point *p, struct machine_watch *watch)
{
        _cleanup_free_ char *words = strdup(p->settings);
        char defaults[SETTINGS_MAX][SETTING_MAX_BYTES];
        const char *settings[SETTINGS_MAX];
        size_t n = p->bed ? set_defaults(defaults, settings) : 0;
        _cleanup_free_ struct scenario *s = NULL;
        json_t *report, *result;

        n = words ? split(words, !p->bed, settings, n) : 0;
        s = !words ? NULL : p->bed ? coordinator_load(p->bed->coordinator, settings, n) : load(settings, n);
        if (!s)
                return NULL;
        report = p->bed ? coordinator_run(p->bed->coordinator, settings, n) : run_here(p, s, watch);
        result = report ? events_flatten(report, s) : NULL;
        json_decref(report);
        return result;
}
