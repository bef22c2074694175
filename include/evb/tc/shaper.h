/* The shaping of one device, from opening it to giving it back: its plan, its state file, what is installed.
 * The daemons and `evb qos` go through here. One thread. */
#pragma once

#include "evb/tc/apply.h"
#include "evb/tc/device.h"
#include "evb/tc/state.h"

struct tc_shaper;

/* Opens a device for changing. -EPERM: without CAP_NET_ADMIN; -EBUSY: another process shapes it; each told in
 * *outcome. */
int tc_shaper_new(struct tc_shaper **ret, const struct tc_device *device, struct tc_outcome *outcome);
/* What is installed stays. */
struct tc_shaper *tc_shaper_free(struct tc_shaper *s);
struct tc_socket *tc_shaper_socket(struct tc_shaper *s);
/* The rates that the last plan asked for; borrowed. */
const struct tc_destination *tc_shaper_asked(const struct tc_shaper *s, size_t *ret_n);

/* Which layout this kernel can: the one asked for, or for TC_BACKEND_AUTO the first of htb+tbf, htb, cbq+tbf.
 * Changes nothing. -EOPNOTSUPP: *outcome names what the kernel lacks. `why` says what was taken and why. */
int tc_shaper_probe(struct tc_shaper *s, enum tc_backend asked, enum tc_backend *ret,
                    char why[static TC_REASON_MAX], struct tc_outcome *outcome);

/* Installs a plan. A foreign root with classes is refused (-EEXIST) unless `force`; then it is put back by
 * removal, as classless ones are. Destinations that the plan no longer has are drained, for patience_ns at
 * most; then they are left without traffic (outcome->undraining), or, with `insist`, deleted. */
int tc_shaper_apply(struct tc_shaper *s, const struct tc_plan *plan, bool force, uint64_t patience_ns,
                    bool insist, struct tc_outcome *outcome);
/* Sets MTU and coalescing; removal puts them back. Where it fails nothing is changed. */
int tc_shaper_tune(struct tc_shaper *s, const struct tc_tuning *want, struct tc_outcome *outcome);
/* As before the last tc_shaper_tune(): when what was to follow has failed. */
void tc_shaper_untune(struct tc_shaper *s, struct tc_outcome *outcome);
/* Lets what is queued out, deletes what is ours, puts back what was there. Nothing of ours there: nothing is
 * done. */
int tc_shaper_remove(struct tc_shaper *s, struct tc_outcome *outcome);
/* The tree that the last tc_shaper_apply() installed, for comparison; borrowed. */
const struct tc_tree *tc_shaper_installed(const struct tc_shaper *s);
/* What the kernel has now. */
int tc_shaper_read(struct tc_shaper *s, struct tc_tree *ret);
