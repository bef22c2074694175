/* Computes the figures of event building from a run's report and its scenario; see run_events.c. */
#include "lab/event_figures.h"

#include <math.h>

#include "base/util.h"

/* Bytes of a datagram before the payload (docs/protocol.md): IP, UDP and message headers, and the first
 * entry of the directory. A further entry takes one byte, and a datagram is filled in blocks. */
#define HEADERS_BYTES (28 + 20 + 10)
#define ENTRY_BYTES 1
#define BLOCK_BYTES 32

double lab_payload_limit(double link_bps, double mtu_bytes, double fragment_bytes)
{
        double room = (mtu_bytes - HEADERS_BYTES) * fragment_bytes / (fragment_bytes + ENTRY_BYTES);
        double payload = BLOCK_BYTES * floor(room / BLOCK_BYTES);

        return link_bps / 8 * payload / (mtu_bytes + 14);
}

static double number(const json_t *report, const char *name)
{
        return json_number_value(json_object_get(report, name));
}

static bool is_known(const json_t *report, const char *name)
{
        return json_is_number(json_object_get(report, name));
}

static void set(json_t *o, const char *name, double value, bool known)
{
        json_object_set_new(o, name, known ? json_real(value) : json_null());
}

static double trigger_rate_hz(const struct scenario *s)
{
        return s->trigger.rate_millihertz == SCENARIO_MAX ? 0 : (double)s->trigger.rate_millihertz / 1e3;
}

/* The longest of: the configured duration; the time from the first trigger to the last complete event, which
 * may come long after the last trigger; and the triggers' number over their rate, since n triggers span n - 1
 * periods. */
static double building_seconds(const json_t *report, const struct scenario *s)
{
        double seconds = MAX((double)s->scenario.duration_ns / 1e9, number(report, "building_seconds"));
        double rate_hz = trigger_rate_hz(s);

        if (rate_hz > 0)
                seconds = MAX(seconds, number(report, "triggers") / rate_hz);
        return seconds;
}

void figures_add_building(json_t *to, const json_t *report, const struct scenario *s)
{
        double seconds = building_seconds(report, s), whole = number(report, "payload_bytes") / seconds;
        double fragment_bytes = (double)s->ros.fragment_size_bytes,
               offered = trigger_rate_hz(s) * (double)s->ros.count * fragment_bytes;
        /* Each SFI has one port, but fewer ROSs than SFIs limit the rate to the ROSs' links. */
        double ports = (double)MIN(s->sfi.count, s->ros.count);
        double limit = ports * lab_payload_limit((double)s->network.link_rate_bps,
                                                 (double)s->network.mtu_bytes, fragment_bytes);

        bool known = seconds > 0 && is_known(report, "payload_bytes");
        double triggers = number(report, "triggers"), complete = number(report, "events_complete");

        set(to, "whole_events_per_second", complete / seconds,
            seconds > 0 && is_known(report, "events_complete"));
        set(to, "whole_bytes_per_second", whole, known);
        set(to, "complete_share", complete / triggers, triggers > 0 && is_known(report, "events_complete"));
        set(to, "port_share", whole / limit, known && limit > 0);
        set(to, "offered_share", offered / limit, offered > 0 && limit > 0);
        set(to, "built_share", whole / (offered > 0 ? MIN(offered, limit) : limit), known && limit > 0);
}
