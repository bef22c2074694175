/* The priority of a process that is measured, against processes that have nothing to do with it. */
#pragma once

#include <stdbool.h>

/* Gives the calling process, and the processes that it starts, precedence over ordinary ones: nice value -20
 * in a session of its own, whose autogroup gets the same value. (Where the kernel groups sessions,
 * CONFIG_SCHED_AUTOGROUP, nice values count within a group only; see sched(7).) Nothing outlives the process
 * and its children, so nothing has to be restored. Within a cgroup of the cpu controller, the priority holds
 * within that cgroup only.
 *
 * Call in a child between fork and exec: the caller becomes the leader of a new session and process group.
 * Returns -EACCES or -EPERM without CAP_SYS_NICE or a sufficient RLIMIT_NICE; the session is new anyway. */
int priority_raise(void);
/* Gives the calling thread nice value -20, in the session that it has. Returns negative errno, like
 * priority_raise(). */
int priority_prefer(void);
/* Gives the calling thread, and no thread or process that it starts, the lowest real-time priority: for one
 * that mostly sleeps, and has to act in time while raised processes work. Returns negative errno. */
int priority_attend(void);
/* Whether priority_raise() would succeed. One thread. */
bool priority_may_raise(void);
