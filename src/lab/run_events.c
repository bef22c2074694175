/* A point that is a whole run of event building: a scenario of settings, run in the lab, its report flattened. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "evb/base/log.h"
#include "evb/base/util.h"
#include "evb/core/event.h"
#include "evb/lab/catalogue.h"
#include "evb/lab/launch.h"

#define SETTINGS_MAX 48

double lab_payload_limit(double link_bps, double mtu_bytes, double fragment_bytes)
{
        /* IP and UDP, message header, a chunk header for each fragment; pieces begin at multiples of 32 (docs/protocol.md). */
        double room = mtu_bytes - 28 - 32, frame = mtu_bytes + 14;
        double whole = 32 + 32 * (double)(uint64_t)((fragment_bytes + 31) / 32);

        /* Datagrams are filled: one fragment in each is cut, and has a second header. */
        return link_bps / 8 * (room / frame) * fragment_bytes / (whole + 32 * whole / room);
}

/* An empty file: all is set by settings. */
static int write_empty(char path[static 32])
{
        int fd;

        strcpy(path, "/tmp/evb-lab-XXXXXX");
        fd = mkstemp(path);
        if (fd < 0)
                return -errno;
        close(fd);
        return 0;
}

static struct scenario *load(const char *settings)
{
        _cleanup_free_ struct scenario *s = calloc(1, sizeof *s);
        _cleanup_free_ struct scenario_errors *errors = calloc(1, sizeof *errors);
        _cleanup_free_ char *copy = strdup(settings);
        const char *each[SETTINGS_MAX];
        char path[32], *save = NULL;
        size_t n = 0;
        int r;

        if (!s || !errors || !copy || write_empty(path) < 0)
                return NULL;
        for (char *word = strtok_r(copy, " ", &save); word && n < SETTINGS_MAX; word = strtok_r(NULL, " ", &save))
                each[n++] = word;
        r = scenario_load(s, path, each, n, errors);
        unlink(path);
        if (r < 0) {
                log_error("lab: %s", errors->n > 0 ? errors->text[0] : strerror(-r));
                return NULL;
        }
        return take_ptr(s);
}

static void copy_number(json_t *to, const char *name, const json_t *from)
{
        json_object_set(to, name, from ? (json_t *)from : json_null());
}

static const json_t *inside(const json_t *report, const char *section, const char *name)
{
        return json_object_get(json_object_get(report, section), name);
}

static json_t *flatten(const json_t *report, const struct scenario *s)
{
        static const char *const plain[] = {"qos_backend", "qos_rate_bps", "seconds", "triggers", "events_complete", "events_partial", "events_lost",
                                            "event_rate_hz", "throughput_bytes_per_second", "busy_seconds"};
        double seconds = json_number_value(json_object_get(report, "seconds"));
        json_t *o = json_object();

        for (size_t i = 0; i < ARRAY_SIZE(plain); i++)
                copy_number(o, plain[i], json_object_get(report, plain[i]));
        copy_number(o, "switch_packets", inside(report, "drops", "switch_packets"));
        copy_number(o, "source_packets", inside(report, "drops", "source_qdisc_packets"));
        copy_number(o, "socket_packets", inside(report, "drops", "socket_packets"));
        copy_number(o, "re_asked", inside(report, "fragments", "re_asked"));
        copy_number(o, "late", inside(report, "fragments", "late"));
        copy_number(o, "fragments_lost", inside(report, "fragments", "lost"));
        copy_number(o, "latency_p50_us", inside(report, "latency_us", "p50"));
        copy_number(o, "latency_p99_us", inside(report, "latency_us", "p99"));
        json_object_set_new(o, "sfi_cpu_share", json_real(json_number_value(inside(report, "cpu_seconds", "sfi")) / MAX(seconds, 1e-9)));
        json_object_set_new(o, "ros_cpu_share", json_real(json_number_value(inside(report, "cpu_seconds", "ros")) / MAX(seconds, 1e-9)));
        json_object_set_new(o, "complete_share",
                            json_real(json_number_value(json_object_get(report, "events_complete")) / MAX(json_number_value(json_object_get(report, "triggers")), 1.0)));
        if (s->network.link_rate_bps > 0) {
                double limit = lab_payload_limit((double)s->network.link_rate_bps, (double)s->network.mtu_bytes, (double)s->ros.fragment_size_bytes);
                /* An SFI has a port each; the ROSs' wires may be fewer. */
                double ports = MIN((double)s->sfi.count, (double)s->ros.count);

                json_object_set_new(o, "port_share", json_real(json_number_value(json_object_get(report, "throughput_bytes_per_second")) / (limit * ports)));
        }
        return o;
}

json_t *lab_run_events(const struct lab_point *p)
{
        _cleanup_free_ struct scenario *s = load(p->settings);
        struct launch_options options = {.scenario = s, .program = "/proc/self/exe", .net = LAUNCH_LAB};
        char *text = NULL;
        size_t size = 0;
        json_t *report = NULL, *result = NULL;
        int status;

        if (!s)
                return NULL;
        options.json = open_memstream(&text, &size);
        if (!options.json)
                return NULL;
        status = launch_run(&options);
        fclose(options.json);
        if (status <= 1 && size > 0)
                report = json_loadb(text, size, JSON_DISABLE_EOF_CHECK, NULL);
        if (report)
                result = flatten(report, s);
        else
                log_error("lab: %s, %s at %g: the run gave no report (status %d)", p->measurement->id, p->series, p->x, status);
        json_decref(report);
        free(text);
        return result;
}
