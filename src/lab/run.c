/* Starts the run that belongs to the kind of a point. */
#include "evb/lab/run.h"

#include "run_internal.h"

json_t *lab_run_point(const struct lab_point *p)
{
        switch (p->measurement->kind) {
        case LAB_EVENTS:
                return run_events(p);
        case LAB_FLOWS:
                return run_flows(p);
        case LAB_COPY:
                return run_copy(p);
        }
        return NULL;
}
