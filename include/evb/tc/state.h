/* What must outlive the process that shapes a device: the qdiscs that were there before, the settings of the
 * interface, and the rates that were asked for. A file for each device of each network namespace, which is
 * locked as well, so that two do not shape one device. Numbers of namespaces and devices come again: it says
 * as well which of them it is of. Folder: $EVB_STATE_DIRECTORY, or /run/evb. */
#pragma once

#include "evb/tc-model/object.h"
#include "evb/tc-model/plan.h"
#include "evb/tc/device.h"

struct tc_state {
        int fd;          /* locked */
        bool empty;      /* nothing to be remembered: the file goes when it is closed */
        bool unreadable; /* something was there, and is not understood */
        char path[256];
        char of[96];               /* the device, this boot's and this namespace's */
        struct tc_tree saved;      /* n == 0: the kernel's own default */
        bool restoring;            /* `saved` is being put back; whoever finds this set finishes it */
        struct tc_tuning previous; /* of the interface */
        struct tc_destination *asked;
        size_t n_asked;
};

/* Opens, locks and reads; an empty or unreadable file is an empty state. -EBUSY: *ret_holder is the process
 * that shapes this device; other errno: of opening the file. */
int tc_state_open(struct tc_state *ret, const struct tc_device *d, int *ret_holder);
/* Reads without locking. -ENOENT: no state is kept for this device. */
int tc_state_peek(struct tc_state *ret, const struct tc_device *d);
/* In place of the old one at once, or not at all. */
int tc_state_write(struct tc_state *s);
/* Nothing is left to be remembered; until something is written again. */
void tc_state_erase(struct tc_state *s);
void tc_state_fini(struct tc_state *s);
