/* Notifications to systemd (Type=notify); see sd_notify(3). They have no effect without a manager.
 * notify_ready() waits for space in the manager's queue; the others never wait, and are dropped if the queue
 * is full. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

void notify_ready(const char *status);
/* Extends the start timeout to at least `more_ns` from now (EXTEND_TIMEOUT_USEC=). */
void notify_starting(uint64_t more_ns, const char *status);
void notify_status(const char *status);
/* Reports that a reload begins at this time of the monotonic clock. */
void notify_reloading(uint64_t now_ns);
/* Reports that the reload is over. False: the queue was full; call it again, because the manager waits for
 * it. */
bool notify_reloaded(void);
void notify_stopping(const char *status);
void notify_watchdog(void);
/* The interval for notify_watchdog(): half of WatchdogSec=. NEVER_NS: no watchdog. */
uint64_t notify_watchdog_ns(void);
/* Extends the start or stop timeout to `time_ns` from now. */
void notify_extend(uint64_t time_ns);
