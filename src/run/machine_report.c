/* Turns the view of a machine watch into JSON. */
#include "run/machine_report.h"

#include <math.h>

static json_t *known(double value)
{
        return isnan(value) ? json_null() : json_real(value);
}

json_t *machine_report(struct machine_watch *watch, bool raised)
{
        struct machine_view v;

        if (!watch)
                return json_null();
        machine_watch_view(watch, &v);
        return json_pack("{s:f, s:o, s:o, s:o, s:o, s:o, s:o, s:b}", "seconds", v.seconds, "stolen_share",
                         known(v.stolen_share), "others_share", known(v.others_share), "waiting_share",
                         known(v.waiting_share), "wait_mean_us", known(v.wait_mean_us), "timer_late_p99_us",
                         known(v.late_p99_us), "timer_late_max_us", known(v.late_max_us), "raised", raised);
}
