/* Expands a measurement of the catalogue into its points, and checks them against a testbed. */
#include "lab/points.h"

#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "base/util.h"
#include "net/tcp.h"
#include "traffic/flows.h"
#include "run_internal.h"
#include "settings.h"

const char *lab_quick_setting(const struct lab_measurement *m)
{
        return m->quick                 ? m->quick
               : m->kind == LAB_EVENTS  ? " scenario.duration=1s"
               : m->kind == LAB_PATHS   ? " seconds=0.3 file=268435456"
               : m->kind == LAB_STREAMS ? " seconds=1.3 interval=0.5"
                                        : " seconds=0.5";
}

/* Making the files of a stream and comparing them takes about as long as the stream, on an average disk. */
#define DISK_TIMES 2

/* A simulation of S1 to S9, on average. */
#define VIRTUAL_S 0.6

/* With the time to set up and tear down the namespaces, or to check a data path. */
static double expected_seconds(const struct lab_point *p)
{
        if (p->measurement->virtual_only)
                return VIRTUAL_S;
        if (p->measurement->kind == LAB_EVENTS)
                return setting_of(p, "scenario.duration", 2) + 0.7;
        if (p->measurement->kind == LAB_PATHS)
                return setting_of(p, "seconds", 1) + 0.3;
        if (p->measurement->kind == LAB_STREAMS)
                return setting_of(p, "seconds", 1) * (setting_of(p, "disk", 0) > 0 ? DISK_TIMES : 1) + 0.6;
        return setting_of(p, "seconds", 1) + (setting_of(p, "kind", 0) == FLOW_TCP ? 1.5 : 0.6);
}

static void make_point(struct lab_point *p, const struct lab_measurement *m, const struct lab_panel *panel,
                       const struct lab_series *s, const struct lab_bed *bed, double x, bool quick)
{
        size_t n;

        *p = (struct lab_point){
                .measurement = m,
                .bed = bed,
                .panel = panel ? panel->name : NULL,
                .series = s->name,
                .x = x,
        };
        n = (size_t)snprintf(p->settings, sizeof p->settings, "%s %s%s%s%s", m->base,
                             panel ? panel->settings : "", panel ? " " : "", s->settings,
                             quick ? lab_quick_setting(m) : "");
        m->vary(p, x, p->settings + n, sizeof p->settings - n);
        if (lab_is_virtual(bed) && bed->virtual->model[0]) {
                n = strlen(p->settings);
                snprintf(p->settings + n, sizeof p->settings - n, " %s", bed->virtual->model);
        }
        p->seconds = expected_seconds(p);
        /* Only vary() reads these two; they are not keys of a scenario. */
        if (m->kind == LAB_EVENTS) {
                settings_drop(p->settings, "load=");
                settings_drop(p->settings, "paced=");
        }
}

static size_t points_of_panel(const struct lab_measurement *m, const struct lab_panel *panel,
                              const struct lab_bed *bed, bool quick, struct lab_point *ret, size_t max)
{
        const double *xs = quick ? m->sweep.quick : m->sweep.values;
        size_t n_xs = quick ? m->sweep.n_quick : m->sweep.n_values, n = 0;

        for (size_t k = 0; k < n_xs; k++) {
                for (size_t i = 0; i < ARRAY_SIZE(m->series) && m->series[i].name && n < max; i++)
                        make_point(&ret[n++], m, panel, &m->series[i], bed, xs[k], quick);
        }
        return n;
}

static size_t count_series(const struct lab_measurement *m)
{
        size_t n = 0;

        while (n < ARRAY_SIZE(m->series) && m->series[n].name)
                n++;
        return n;
}

size_t lab_points_count(const struct lab_measurement *m, bool quick)
{
        size_t panels = m->sweep.n_panels == 0;

        for (size_t i = 0; i < m->sweep.n_panels; i++)
                panels += !quick || m->sweep.panels[i].quick;
        return panels * (quick ? m->sweep.n_quick : m->sweep.n_values) * count_series(m);
}

size_t lab_points(const struct lab_measurement *m, const struct lab_bed *bed, bool quick,
                  struct lab_point *ret, size_t max)
{
        size_t n = 0;

        if (m->sweep.n_panels == 0)
                return points_of_panel(m, NULL, bed, quick, ret, max);
        for (size_t i = 0; i < m->sweep.n_panels; i++) {
                if (!quick || m->sweep.panels[i].quick)
                        n += points_of_panel(m, &m->sweep.panels[i], bed, quick, ret + n, max - n);
        }
        return n;
}

static bool differs_by_panel(const struct lab_point *p, const char *key)
{
        return p->measurement->sweep.n_panels > 0 && strstr(p->measurement->sweep.panels[0].settings, key);
}

static bool is_enough(double needed, double available, const char *role, char *lack, size_t size)
{
        if (needed <= available)
                return true;
        snprintf(lack, size, "needs %.0f %s%s, the scenario has %.0f", needed, role, needed > 1 ? "s" : "",
                 available);
        return false;
}

/* Whether the kernel has the congestion control that the settings name, if any. It loads a module on demand,
 * so what it lists says less than a socket. */
static bool has_congestion_control(const struct lab_point *p, char *lack, size_t size)
{
        static const char key[] = "network.tcp-congestion=";
        const char *at = strstr(p->settings, key);
        _cleanup_close_ int fd = -1;
        char name[32];

        if (!at)
                return true;
        at += strlen(key);
        snprintf(name, sizeof name, "%.*s", (int)strcspn(at, " "), at);
        fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (fd >= 0 && tcp_choose_congestion(fd, name) >= 0)
                return true;
        snprintf(lack, size, "needs the TCP congestion control %s, which the kernel lacks", name);
        return false;
}

bool lab_is_optional(const struct lab_point *p)
{
        const struct lab_series *all = p->measurement->series;

        for (size_t i = 0; i < LAB_SERIES_MAX && all[i].name; i++) {
                if (strcmp(all[i].name, p->series) == 0)
                        return all[i].optional;
        }
        return false;
}

bool lab_can_make(const struct lab_point *p, char *lack, size_t size)
{
        bool events = p->measurement->kind == LAB_EVENTS;
        const struct scenario *s = p->bed ? p->bed->scenario : NULL;
        double buffer_kib, mtu;

        if (lab_is_virtual(p->bed))
                return virtual_can_run(p, lack, size);
        if (p->measurement->virtual_only) {
                snprintf(lack, size, "exists in the simulator only; add --sim");
                return false;
        }
        if (!s)
                return has_congestion_control(p, lack, size) && streams_can_run(p, lack, size);
        if (p->measurement->kind == LAB_PATHS || p->measurement->kind == LAB_STREAMS) {
                snprintf(lack, size, "measures this machine; leave out --config");
                return false;
        }
        if (strstr(p->settings, "level2.stand-in=")) {
                snprintf(lack, size, "needs a stand-in farm, which standby nodes lack");
                return false;
        }
        if (!is_enough(setting_of(p, events ? "ros.count" : "senders", 1), (double)s->ros.count, "ROS", lack,
                       size) ||
            !is_enough(setting_of(p, events ? "sfi.count" : "receivers", 1), (double)s->sfi.count, "SFI",
                       lack, size))
                return false;
        buffer_kib = setting_of(p, "network.switch-buffer", 0);
        if (differs_by_panel(p, "network.switch-buffer") &&
            buffer_kib * 1024 != (double)s->network.switch_buffer_bytes) {
                snprintf(lack, size, "needs network.switch-buffer = %.0fKiB, the scenario has %g KiB",
                         buffer_kib, (double)s->network.switch_buffer_bytes / 1024);
                return false;
        }
        if (differs_by_panel(p, "network.link-rate") &&
            setting_of(p, "network.link-rate", 1) * 1e9 != (double)s->network.link_rate_bps) {
                snprintf(lack, size, "needs network.link-rate = %.0fGbit, the scenario has %g Gbit/s",
                         setting_of(p, "network.link-rate", 1), (double)s->network.link_rate_bps / 1e9);
                return false;
        }
        mtu = setting_of(p, "mtu", (double)s->network.mtu_bytes);
        if (mtu == (double)s->network.mtu_bytes)
                return true;
        snprintf(lack, size, "needs network.mtu = %.0f, the scenario has %.0f", mtu,
                 (double)s->network.mtu_bytes);
        return false;
}

bool lab_is_virtual(const struct lab_bed *bed)
{
        return bed && bed->virtual;
}

const char *lab_bed_name(const struct lab_bed *bed)
{
        return bed && bed->scenario ? bed->scenario->scenario.name : "";
}
