/* What systemd hears of this service (Type=notify), in the words of sd_notify(3). Nothing happens where
 * no manager listens. notify_ready() waits for room in its queue; the others never wait, and are lost where
 * there is none. */
#pragma once

#include <stdint.h>

void notify_ready(const char *status);
/* Extends the time limit of the start to at least `more_ns` from now (EXTEND_TIMEOUT_USEC of
 * sd_notify(3)). */
void notify_starting(uint64_t more_ns, const char *status);
void notify_status(const char *status);
void notify_stopping(const char *status);
void notify_watchdog(void);
/* How often notify_watchdog() is due: half of WatchdogSec=; NEVER_NS where none is set. */
uint64_t notify_watchdog_ns(void);
/* While this service starts or stops: keeps it alive for this time from now, whatever its time limits are. */
void notify_extend(uint64_t time_ns);
