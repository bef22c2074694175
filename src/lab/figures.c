/* Figures that follow from a report and its scenario. */
#include "evb/lab/figures.h"

#include "evb/base/util.h"
#include "evb/lab/catalogue.h"

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

/* The longest of: the time in which triggers are taken; from the first complete event to the last, which may
 * come long after the last trigger; and what so many triggers stand for, as there is one at either end of a
 * second. */
static double building_seconds(const json_t *report, const struct scenario *s)
{
        double throughput = number(report, "throughput_bytes_per_second"), rate_hz = trigger_rate_hz(s);
        double seconds = (double)s->scenario.duration_ns / 1e9;

        if (throughput > 0)
                seconds = MAX(seconds, number(report, "payload_bytes") / throughput);
        if (rate_hz > 0)
                seconds = MAX(seconds, number(report, "triggers") / rate_hz);
        return seconds;
}

void figures_add_building(json_t *to, const json_t *report, const struct scenario *s)
{
        double seconds = building_seconds(report, s), whole = number(report, "payload_bytes") / seconds;
        double fragment_bytes = (double)s->ros.fragment_size_bytes,
               offered = trigger_rate_hz(s) * (double)s->ros.count * fragment_bytes;
        /* An SFI has a port each; the ROSs' wires may be fewer. */
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
