/* Describes what is wrong with frames and connections of a front-end, for a log line or a report. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/ros.h"
#include "data/reasons.h"
#include "net/address.h"
#include "protocol/frame.h"
#include "protocol/number.h"

/* Explains that a datagram of `bytes` bytes is not a frame: it is shorter than 4 bytes, or its first 4 bytes
 * give a wrong length. */
void front_end_explain_length(uint32_t length, size_t bytes, char *text, size_t text_bytes);
/* Explains that frames do not follow the triggers: `last` is the last frame, and a frame of the newest
 * trigger would have *expected (NULL: counters are times). */
void front_end_explain_number(const struct number_field *field, const struct ros_sample *last,
                              const uint64_t *expected, char *text, size_t text_bytes);
/* Explains that a datagram does not consist of whole frames: the frame at byte `at` does not fit. */
void front_end_explain_datagram(const struct frame_rule *frame, const uint8_t *bytes, size_t n, size_t at,
                                char *text, size_t text_bytes);
/* Whether these bytes of a datagram consist of whole frames; if not, explains the first one that does not
 * fit. */
bool front_end_is_whole(const struct frame_rule *frame, const uint8_t *bytes, size_t n, char *text,
                        size_t text_bytes);
/* Explains that a frame of a stream begins with these bytes, which give an impossible length. */
void front_end_explain_start(const struct frame_rule *frame, const uint8_t *bytes, size_t n, char *text,
                             size_t text_bytes);
/* Logs the text of front_end_explain_start(); returns -EPROTO. */
int front_end_log_start(const struct frame_rule *frame, const uint8_t *bytes, size_t n);
/* Explains that these bytes of a stream are not part of a frame. */
void front_end_explain_foreign(const struct frame_rule *frame, const uint8_t *bytes, size_t n, char *text,
                               size_t text_bytes);
/* Explains why there is no connection: a negative errno; 0: unknown. */
const char *front_end_explain_loss(int why);

enum front_end_gap { GAP_MALFORMED, GAP_DROPPED, GAP_BROKEN, GAP_FOREIGN, GAP_BETWEEN, GAPS };

/* Frames that were lost before the ROS read them. */
struct front_end_gaps {
        uint64_t n, first_frame;
        const char *first;      /* description of the first gap; NULL: none */
        uint64_t last_ns[GAPS]; /* times of the last gap of each kind; 0: never */
};

/* Records that `n` frames were lost; the first of them would have been frame `frame`. For each kind, logs
 * each new fault. `detail` may be "". `numbered`: frames contain numbers or times. */
void front_end_record_gap(struct front_end_gaps *g, uint64_t now_ns, uint64_t n, uint64_t frame,
                          enum front_end_gap kind, const char *detail, bool numbered);
void front_end_gap_reasons(const struct front_end_gaps *g, bool numbered, struct reasons *to);

/* Logs that the connection ended after this number of frames. Returns whether a frame was lost. */
bool front_end_log_loss(int why, bool in_frame, bool begun, uint64_t frames);
/* Logs that *n frames came between two runs; then *n is 0. */
void front_end_log_between(uint64_t *n);
void front_end_log_missing(const struct net_address *to, uint64_t for_ns, int why);
void front_end_log_return(const struct net_address *to, uint64_t after_ns);
