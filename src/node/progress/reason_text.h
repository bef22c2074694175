/* Describes the reasons that nodes report for making no progress. */
#pragma once

#include "conf/scenario.h"
#include "protocol/message.h"

/* Describes a reason: "disk full", "waits for fragments of ros4", "reason 17". `node`: the index of the ROS
 * or SFI that the reason is about. Both may come from a message. */
const char *reason_text(const struct scenario *s, unsigned reason, unsigned node, char *text,
                        size_t size_bytes);
/* Whether this reason stands for an SFI's output that has failed. */
bool reason_is_output(unsigned reason);
/* Describes a reason with the name of the node that reports it: "disk full on sfi1", "sfi1 waits for
 * fragments of ros4". */
const char *reason_text_of(const struct scenario *s, const char *name, unsigned reason, unsigned node,
                           char *text, size_t size_bytes);
