/* Derives what a measurement needs from the settings of its points, for `evb lab list`. */
#include "lab/needs.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/util.h"
#include "settings.h"
#include "streams/stream_files.h"

static bool has(const struct lab_point *p, const char *setting)
{
        return strstr(p->settings, setting);
}

static bool is_positive(const struct lab_point *p, const char *setting)
{
        return setting_of(p, setting, 0) > 0;
}

/* In the order in which they are listed. */
static const struct {
        const char *text, *setting;
        bool (*is_needed)(const struct lab_point *p, const char *setting);
} features[] = {
        {"shaping", "qos.backend=", has},
        {"shaping", "rate", is_positive},
        {"packet capture", "watch", is_positive},
        {"TUN devices", "round_trip_ms", is_positive},
        {"two processors", "pin", is_positive},
        {"a stand-in farm", "level2.stand-in=", has},
        {"TCP congestion control bbr", "network.tcp-congestion=bbr", has},
};

/* Properties of a network that no run can change. lab_can_make() compares the MTU, and those others that a
 * measurement varies. */
static const struct {
        const char *text, *setting, *unit;
        double otherwise;
        bool always;
} properties[] = {
        {"MTU", "mtu", "", 1500, true},
        {"link rate", "network.link-rate", " Gbit/s", 1, false},
        {"port buffer", "network.switch-buffer", " KiB", 0, false},
};

static void add_feature(struct lab_needs *needs, const char *text)
{
        for (size_t i = 0; i < needs->n_features; i++) {
                if (strcmp(needs->features[i], text) == 0)
                        return;
        }
        if (needs->n_features < LAB_FEATURES_MAX)
                snprintf(needs->features[needs->n_features++], LAB_FEATURE_TEXT_MAX, "%s", text);
}

/* Adds the values of all points, in their order. */
static void add_property(struct lab_needs *needs, const struct lab_point *points, size_t n, size_t property)
{
        char text[LAB_FEATURE_TEXT_MAX];
        struct strbuf b = strbuf_init(text, sizeof text);
        double values[16] = {};
        size_t n_values = 0;

        strbuf_add(&b, "%s", properties[property].text);
        for (size_t i = 0; i < n && n_values < ARRAY_SIZE(values); i++) {
                double value =
                        setting_of(&points[i], properties[property].setting, properties[property].otherwise);
                size_t k = 0;

                while (k < n_values && values[k] != value)
                        k++;
                if (k < n_values)
                        continue;
                values[n_values++] = value;
                strbuf_add(&b, "%s %g", n_values > 1 ? "," : "", value);
        }
        strbuf_add(&b, "%s", properties[property].unit);
        if (n_values > 1 || (properties[property].always && values[0] != properties[property].otherwise))
                add_feature(needs, text);
}

/* A stream has a file at each end. The data paths of a measurement share one file for each of their sources.
 */
static double disk_bytes(const struct lab_point *points, size_t n)
{
        double bytes = 0;
        unsigned sources = 0;

        for (size_t i = 0; i < n; i++) {
                const struct lab_point *p = &points[i];
                double file = setting_of(p, "file", 0), seconds = setting_of(p, "seconds", 0);

                if (p->measurement->kind == LAB_STREAMS && is_positive(p, "disk"))
                        file = setting_of(p, "rate_mbps", 0) * 1e6 / 8 * seconds;
                else if (p->measurement->kind != LAB_PATHS)
                        continue;
                sources |= 1u << (unsigned)setting_of(p, "source", 0);
                bytes = MAX(bytes, p->measurement->kind == LAB_STREAMS
                                           ? 2 * file + (double)STREAM_FILES_SPARE_BYTES
                                           : file * __builtin_popcount(sources));
        }
        return bytes;
}

static void add_disk(struct lab_needs *needs, const struct lab_point *points, size_t n)
{
        char text[LAB_FEATURE_TEXT_MAX];
        double bytes = disk_bytes(points, n);

        snprintf(text, sizeof text, "%.1f GB in /var/tmp", bytes / 1e9);
        if (bytes > 0)
                add_feature(needs, text);
}

static void widen(struct lab_range *range, double nodes)
{
        unsigned n = (unsigned)nodes;

        range->least = range->most == 0 ? n : MIN(range->least, n);
        range->most = MAX(range->most, n);
}

static void add_point(struct lab_needs *needs, const struct lab_point *p)
{
        bool events = p->measurement->kind == LAB_EVENTS;

        for (size_t i = 0; i < ARRAY_SIZE(features); i++) {
                char text[LAB_FEATURE_TEXT_MAX];

                snprintf(text, sizeof text, "%s%s", features[i].text,
                         lab_is_optional(p) ? " (optional)" : "");
                if (features[i].is_needed(p, features[i].setting))
                        add_feature(needs, text);
        }
        if (!needs->testbed)
                return;
        widen(&needs->ros, setting_of(p, events ? "ros.count" : "senders", 1));
        widen(&needs->sfi, setting_of(p, events ? "sfi.count" : "receivers", 1));
}

/* A stand-in farm is a process on this machine, so standby nodes do not have one. */
static bool needs_testbed(const struct lab_measurement *m, const struct lab_point *points, size_t n)
{
        for (size_t i = 0; i < n; i++) {
                if (has(&points[i], "level2.stand-in="))
                        return false;
        }
        return m->kind == LAB_EVENTS || m->kind == LAB_FLOWS;
}

int lab_needs_find(const struct lab_measurement *m, struct lab_needs *ret)
{
        _cleanup_free_ struct lab_point *points = calloc(LAB_POINTS_MAX, sizeof *points);
        struct lab_needs needs = {};
        size_t n;

        if (!points)
                return -ENOMEM;
        if (m->virtual_only) {
                *ret = (struct lab_needs){.simulator = true};
                return 0;
        }
        n = lab_points(m, NULL, false, points, LAB_POINTS_MAX);
        needs.testbed = needs_testbed(m, points, n);
        for (size_t i = 0; i < n; i++)
                add_point(&needs, &points[i]);
        add_disk(&needs, points, n);
        for (size_t i = 0; needs.testbed && i < ARRAY_SIZE(properties); i++)
                add_property(&needs, points, n, i);
        *ret = needs;
        return 0;
}

static void write_range(struct strbuf *to, struct lab_range range, const char *role)
{
        if (range.least < range.most)
                strbuf_add(to, ", %u to %u %ss", range.least, range.most, role);
        else
                strbuf_add(to, ", %u %s%s", range.most, role, range.most > 1 ? "s" : "");
}

void lab_needs_write(const struct lab_needs *needs, struct strbuf *to)
{
        strbuf_add(to, needs->testbed     ? "1 DFM"
                       : needs->simulator ? "the simulator (--sim)"
                                          : "this machine");
        if (needs->testbed) {
                write_range(to, needs->ros, "ROS");
                write_range(to, needs->sfi, "SFI");
        }
        for (size_t i = 0; i < needs->n_features; i++)
                strbuf_add(to, "%s %s", i == 0 ? ";" : ",", needs->features[i]);
}
