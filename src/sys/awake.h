/* Keeps the processors of a virtual machine awake while something is measured. A virtual processor that halts
 * returns to the hypervisor, which may take milliseconds to let it run again when an interrupt arrives:
 * timers come late, and the delay counts as stolen time, although no other machine wanted the processor.
 * Measured on two processors that were mostly idle: 5 to 13 % stolen and timers 2 to 7 ms late, against 1 to
 * 2 % and 0.1 ms. Idle processors then poll, which still counts as idle.
 *
 * It is a request to the kernel for a latency of 0 (Documentation/power/pm_qos_interface.rst), as cyclictest
 * makes. The kernel forgets it when the process ends, in whatever way. */
#pragma once

#include <stdbool.h>

/* Whether this is a virtual machine. */
bool awake_is_virtual(void);
/* Makes the request on a virtual machine. Returns a descriptor, which keeps it until it is closed, or
 * -EOPNOTSUPP on a physical machine, or another negative errno: without root (-EACCES), or where the kernel
 * does not manage idle processors (-ENOENT). */
int awake_request(void);
