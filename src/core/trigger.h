/* The schedule of triggers: periodic, Poisson or in bursts, at a rate in millihertz, or as fast as the caller
 * accepts them. Trigger n of a periodic source is due at start + floor(n * 10^12 / rate) ns, so late callers
 * catch up, and rounding errors do not add up. While triggers are held back (busy), the schedule stands
 * still. Pure. */
#pragma once

#include <stdint.h>

#include "base/random.h"

enum trigger_kind { TRIGGER_PERIODIC, TRIGGER_POISSON, TRIGGER_BURST };

#define TRIGGER_RATE_MAX UINT64_MAX /* always due */

struct trigger {
        enum trigger_kind kind;
        uint64_t rate_millihertz;
        uint64_t burst; /* triggers per burst, TRIGGER_BURST; the mean rate stays the rate */
        uint64_t start_ns;
        uint64_t taken;    /* number of triggers since start_ns */
        uint64_t next_ns;  /* time of trigger number `taken` */
        uint64_t fraction; /* Poisson: fraction that is not yet in next_ns, in units of 2^-32 ns */
        struct random random;
};

/* The first trigger is due at `now_ns` (Poisson: one interval later). rate_millihertz >= 1, burst >= 1. */
void trigger_init(struct trigger *t, enum trigger_kind kind, uint64_t rate_millihertz, uint64_t burst,
                  uint64_t seed, uint64_t now_ns);
/* Removes up to `max` triggers that are due at now_ns; returns their number. */
uint64_t trigger_next_due(struct trigger *t, uint64_t now_ns, uint64_t max);
/* When the next trigger is due; possibly in the past. */
uint64_t trigger_next_ns(const struct trigger *t);
/* Records that triggers that were due were held back until now_ns. The next trigger is due now, and further
 * triggers follow at the rate. */
void trigger_hold(struct trigger *t, uint64_t now_ns);
/* Records that the schedule stood still for `by_ns`; it continues where it was. */
void trigger_shift(struct trigger *t, uint64_t by_ns);
/* Changes the schedule at now_ns. The remaining fraction of the present interval stays the same, and so does
 * the number of overdue triggers: the change causes neither a burst nor a pause. A burst that has begun
 * continues. From TRIGGER_RATE_MAX, the first trigger is due now (Poisson: one interval later). */
void trigger_change(struct trigger *t, uint64_t now_ns, enum trigger_kind kind, uint64_t rate_millihertz,
                    uint64_t burst);
