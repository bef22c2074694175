/* What is wrong with frames, in words for a log line. Pure. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "evb/protocol/number.h"

/* A datagram of `bytes` bytes is not a frame: it is shorter than 4 bytes, or they give a wrong length. */
void front_end_explain_length(uint32_t length, size_t bytes, char *text, size_t text_bytes);
/* Frames do not follow the triggers: the last one has this counter (NULL: it is too short for one), and one
 * of the newest trigger would have `expected`. */
void front_end_explain_number(const struct number_field *field, const uint64_t *counter, uint64_t expected,
                              char *text, size_t text_bytes);
/* Why there is no connection: a negative errno; 0: nothing is known. */
const char *front_end_explain_loss(int why);
