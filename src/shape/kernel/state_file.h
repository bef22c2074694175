/* The state of a shaped device that must outlive its process: the earlier qdiscs, the earlier settings of the
 * interface, and the requested rates. There is one file per device and network namespace, which also serves
 * as a lock. Namespace and device numbers are reused, so the file identifies its device uniquely. Directory:
 * $EVB_STATE_DIRECTORY, or /run/evb. */
#pragma once

#include "shape/model/object.h"
#include "shape/model/plan.h"
#include "shape/kernel/device.h"

struct tc_state {
        int fd;          /* locked */
        bool empty;      /* no state yet, so the file is deleted when it is closed */
        bool unreadable; /* the file exists but is damaged */
        char path[256];
        char of[96];          /* identity of device, boot and namespace */
        struct tc_tree saved; /* n == 0: the kernel's default */
        bool restoring; /* a restoration of `saved` has begun; if interrupted, the next process finishes it */
        struct tc_destination *asked;
        size_t n_asked;
        uint32_t sources;       /* number of senders to one destination that the plan assumes; 0: unknown */
        char name[IF_NAMESIZE]; /* the device's name when the file was written */
};

/* A file whose device has been deleted or renamed. */
struct tc_state_lost {
        int ifindex;
        char now[IF_NAMESIZE]; /* the device's current name; "": the device no longer exists */
        char path[256];
};

/* Opens, locks and reads the file; an empty or damaged file is an empty state. -EBUSY: process *ret_holder
 * shapes this device; another errno: the file cannot be opened. */
int tc_state_open(struct tc_state *ret, const struct tc_device *d, int *ret_holder);
/* Reads without a lock. -ENOENT: the device has no state. */
int tc_state_peek(struct tc_state *ret, const struct tc_device *d);
/* Finds a file of this boot and namespace that was written for a device of this name, if the device no longer
 * exists or (`also_renamed`) now has another name. False: there is none. With also_renamed, the caller must
 * not hold a state: reading a file of this process would release its lock (fcntl(2)). */
bool tc_state_find_lost(const char *name, bool also_renamed, struct tc_state_lost *ret);
/* Removes the file of a device that no longer exists. Returns 0, or negative errno; -EBUSY: a process still
 * holds the file. */
int tc_state_remove_lost(const struct tc_state_lost *lost);
/* Replaces the file atomically. */
int tc_state_write(struct tc_state *s);
/* Clears the state. */
void tc_state_erase(struct tc_state *s);
void tc_state_fini(struct tc_state *s);
