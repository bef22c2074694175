/* Lets the kernel send packets in time: by a rate, or by the time of each packet. */
#pragma once

#include "rules/setup.h"
#include "send_threads.h"

/* Changes the socket and the spacing in `t`, which is set. Warns if the device has no qdisc that honours it.
 * Logs errors, and returns the exit status. */
int kernel_pacing_set(enum stream_pacing pacing, struct endpoint *e, const struct stream_offer *o,
                      struct send_threads *t);
