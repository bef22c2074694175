/* Names the run that an earlier DFM left unfinished or unreported. */
#include "last_run.h"

#include "base/log.h"
#include "base/util.h"
#include "node/run_control/run_control.h"

/* Logs a doubtful age of a resumed run: the age decides when a run with a duration ends, and event times
 * follow the clock since this DFM began. */
static void log_doubtful_age(enum run_age age, uint64_t age_ns)
{
        double age_s = (double)age_ns / NS_PER_S;

        switch (age) {
        case RUN_AGE_CERTAIN:
                break;
        case RUN_AGE_STEPPED:
                log_warning("the clock was set since the last run began; by the uptime of this machine, "
                            "that run is %.1f s old; if it continues, its further events have the times of "
                            "this clock",
                            age_s);
                break;
        case RUN_AGE_BY_WALL:
                log_warning("this machine may have restarted since the last run began; by the clock, that "
                            "run is %.1f s old",
                            age_s);
                break;
        case RUN_AGE_UNKNOWN:
                log_warning("this machine may have restarted since the last run began, and its clock shows "
                            "an earlier time; if that run continues, it lasts for scenario.duration from "
                            "now");
                break;
        }
}

void last_run_open(struct last_run *l, struct node *n, const struct run_previous *f, bool has_duration)
{
        const char *what = f->dfm.cookie != 0 ? "has no end" : "ended, but its DFM did not report it";

        *l = (struct last_run){.cookie = f->dfm.cookie};
        snprintf(l->cause, sizeof l->cause, "%s", f->cause);
        if (f->dfm.cookie == 0 && !f->is_unreported) {
                if (n->runs == 0)
                        run_control_restore_last(n->control_of_runs, f->cause[0]);
                return;
        }
        l->run = f->run;
        clock_format_utc(f->began_utc_ns, l->began);
        log_warning("run %u of an earlier DFM, which began at %s, %s%s%s", l->run, l->began, what,
                    l->cause[0] ? ": " : "", l->cause);
        run_control_record_last(n->control_of_runs, l->run, what, l->cause);
        if (f->dfm.cookie != 0 && (has_duration || f->age == RUN_AGE_STEPPED))
                log_doubtful_age(f->age, f->dfm.age_ns);
}

bool last_run_begin(struct last_run *l, uint64_t cookie)
{
        if (l->cookie != cookie)
                l->cause[0] = '\0';
        if (l->run != 0 && l->cookie != 0 && l->cookie != cookie)
                log_warning(
                        "run %u, which began at %s, is abandoned without an end: no account has its events",
                        l->run, l->began);
        l->run = 0;
        return l->cause[0];
}
