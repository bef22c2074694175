/* Starts the run that belongs to the kind of a point, and watches the machine meanwhile. */
#include "lab/point_run.h"

#include "base/log.h"
#include "lab/valid.h"
#include "sys/priority.h"
#include "run_internal.h"

static json_t *run(const struct lab_point *p, struct machine_watch *watch)
{
        switch (p->measurement->kind) {
        case LAB_EVENTS:
                return run_events(p, watch);
        case LAB_FLOWS:
                return run_flows(p, watch);
        case LAB_COPY:
                return run_copy(p, watch);
        case LAB_PATHS:
                return run_paths(p, watch);
        case LAB_STREAMS:
                return run_streams(p, watch);
        }
        return NULL;
}

json_t *lab_run_point(const struct lab_point *p)
{
        struct machine_watch *watch = NULL;
        struct machine_view view;
        json_t *figures;
        int r = 0;

        if (lab_is_virtual(p->bed))
                return run_virtual(p);
        /* This machine does not make the traffic of standby nodes. */
        if (!p->bed)
                r = machine_watch_new(&watch);
        if (r < 0)
                log_warning_errno(r, "lab: cannot watch the machine: %m");
        figures = run(p, watch);
        machine_watch_view(watch, &view);
        if (figures)
                lab_valid_describe(figures, watch ? &view : NULL, priority_may_raise());
        machine_watch_free(watch);
        return figures;
}
