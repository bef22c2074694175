/* Explains frames that data/front_end.c cannot use: what was read, what was expected, and the likely mistake.
 * Logs and reports lost frames and connections. */
#include "front_end_internal.h"

#include <byteswap.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/util.h"
#include "protocol/event.h"

#define LENGTH_BYTES 4
/* Bytes shown of a frame with a wrong length. */
#define SHOWN_BYTES 16
/* If the counters of boards and triggers agree, they differ by less than this. */
#define NEAR 1000

static uint32_t read_length(const uint8_t *bytes)
{
        return (uint32_t)bytes[0] | (uint32_t)bytes[1] << 8 | (uint32_t)bytes[2] << 16 |
               (uint32_t)bytes[3] << 24;
}

void front_end_explain_length(uint32_t length, size_t bytes, char *text, size_t text_bytes)
{
        size_t payload = bytes - LENGTH_BYTES;
        const char *hint = bswap_32(length) == payload ? "; the length must be little-endian"
                           : length == bytes           ? "; the length must not count its own 4 bytes"
                                                       : "";

        if (bytes < LENGTH_BYTES)
                snprintf(text, text_bytes, "it has %zu bytes, too few for a length", bytes);
        else
                snprintf(text, text_bytes,
                         "its first 4 bytes give a length of %" PRIu32 ", but %zu bytes follow%s", length,
                         payload, hint);
}

static const char *show_bytes(const uint8_t *bytes, size_t n, char text[static 3 * SHOWN_BYTES + 1])
{
        text[0] = '\0';
        for (size_t i = 0; i < MIN(n, (size_t)SHOWN_BYTES); i++)
                snprintf(text + 3 * i, 4, " %02x", bytes[i]);
        return text;
}

/* Whether the frame layout is the default of ros.frame. */
static bool is_standard(const struct frame_rule *frame)
{
        char text[FRAME_TEXT_MAX];

        return strcmp(frame_rule_format(frame, text), FRAME_STANDARD) == 0;
}

void front_end_explain_datagram(const struct frame_rule *frame, const uint8_t *bytes, size_t n, size_t at,
                                char *text, size_t text_bytes)
{
        char rule[FRAME_TEXT_MAX], shown[3 * SHOWN_BYTES + 1];

        if (is_standard(frame) && at == 0)
                front_end_explain_length(n < LENGTH_BYTES ? 0 : read_length(bytes), n, text, text_bytes);
        else
                snprintf(text, text_bytes,
                         "of its %zu bytes, those from byte %zu on (%s ) are no frame by frame = %s", n, at,
                         show_bytes(bytes + at, n - at, shown), frame_rule_format(frame, rule));
}

bool front_end_is_whole(const struct frame_rule *frame, const uint8_t *bytes, size_t n, char *text,
                        size_t text_bytes)
{
        size_t at = 0, frame_bytes;

        do {
                size_t scanned = 0;

                if (frame_find(frame, bytes + at, n - at, true, EVB_FRAGMENT_MAX_BYTES, &scanned,
                               &frame_bytes) != FRAME_FOUND ||
                    frame_bytes > n - at) {
                        front_end_explain_datagram(frame, bytes, n, at, text, text_bytes);
                        return false;
                }
                at += frame_bytes;
        } while (at < n);
        return true;
}

void front_end_explain_start(const struct frame_rule *frame, const uint8_t *bytes, size_t n, char *text,
                             size_t text_bytes)
{
        char rule[FRAME_TEXT_MAX], shown[3 * SHOWN_BYTES + 1], hint[64] = "";
        uint32_t length = n < LENGTH_BYTES ? 0 : read_length(bytes);

        show_bytes(bytes, n, shown);
        if (!is_standard(frame)) {
                snprintf(text, text_bytes,
                         "a frame begins with the bytes%s: the length of the frame, by frame = %s, is "
                         "impossible or above %u",
                         shown, frame_rule_format(frame, rule), EVB_FRAGMENT_MAX_BYTES);
                return;
        }
        if (bswap_32(length) <= EVB_FRAGMENT_MAX_BYTES)
                snprintf(hint, sizeof hint, "; in the other byte order it is %" PRIu32, bswap_32(length));
        snprintf(text, text_bytes,
                 "a frame begins with the bytes%s: the first 4 give a length of %" PRIu32
                 ", expected 32 bits, little-endian, and at most %u%s",
                 shown, length, EVB_FRAGMENT_MAX_BYTES, hint);
}

int front_end_log_start(const struct frame_rule *frame, const uint8_t *bytes, size_t n)
{
        char text[400];

        front_end_explain_start(frame, bytes, n, text, sizeof text);
        log_limited(LOG_LEVEL_ERROR, NULL, "front-end: %s", text);
        return -EPROTO;
}

void front_end_explain_foreign(const struct frame_rule *frame, const uint8_t *bytes, size_t n, char *text,
                               size_t text_bytes)
{
        char rule[FRAME_TEXT_MAX], shown[3 * SHOWN_BYTES + 1];

        snprintf(text, text_bytes, "the bytes%s%s are part of no frame by frame = %s",
                 show_bytes(bytes, n, shown), n > SHOWN_BYTES ? " ..." : "", frame_rule_format(frame, rule));
}

static uint64_t mask(unsigned bits)
{
        return bits < 64 ? (UINT64_C(1) << bits) - 1 : UINT64_MAX;
}

static uint64_t other_order(uint64_t counter, unsigned bits)
{
        return bswap_64(counter) >> (64 - bits);
}

static bool is_near(uint64_t a, uint64_t b, unsigned bits)
{
        uint64_t ahead = (a - b) & mask(MIN(bits, 32u));

        return MIN(ahead, mask(MIN(bits, 32u)) - ahead + 1) < NEAR;
}

static bool has_other_order(const struct number_field *f)
{
        return f->bits > 8 && f->bits % 8 == 0 && f->bit == 0;
}

void front_end_explain_number(const struct number_field *field, const struct ros_sample *last,
                              const uint64_t *expected, char *text, size_t text_bytes)
{
        char at[NUMBER_FIELD_TEXT_MAX], swapped_at[NUMBER_FIELD_TEXT_MAX];
        uint64_t counter = last->counter,
                 other = has_other_order(field) ? other_order(counter, field->bits) : counter;
        struct number_field swapped = *field;

        number_field_format(field, at);
        swapped.big_endian = !field->big_endian;
        number_field_format(&swapped, swapped_at);
        if (!last->has_counter)
                snprintf(text, text_bytes, "the last one has %" PRIu32 " bytes, too few for %s = %s",
                         last->bytes, expected ? "event-number" : "event-time", at);
        else if (!expected)
                snprintf(text, text_bytes,
                         "the last time is %" PRIu64
                         "; its frames come late, the clock of the board has jumped, or its time is not at "
                         "event-time = %s",
                         counter, at);
        else if (other != counter && is_near(other, *expected, field->bits))
                snprintf(text, text_bytes,
                         "the last one is %" PRIu64 ", expected about %" PRIu64
                         "; in the other byte order it is %" PRIu64
                         ", so event-number should be %s instead of %s",
                         counter, *expected, other, swapped_at, at);
        else
                snprintf(text, text_bytes,
                         "the last one is %" PRIu64 ", expected about %" PRIu64
                         "; its frames come late, the board has restarted, or its number is not at "
                         "event-number = %s",
                         counter, *expected, at);
}

const char *front_end_explain_loss(int why)
{
        switch (-why) {
        case 0:
                return "no answer";
        case EPIPE:
                return "the board closed it";
        case EPROTO:
                return "the length of a frame is impossible";
        }
        return strerror(abs(why));
}

static const char *const gap_names[GAPS] = {
        [GAP_MALFORMED] = "malformed datagram",
        [GAP_DROPPED] = "datagrams dropped by the full socket buffer",
        [GAP_BROKEN] = "broken connection",
        [GAP_FOREIGN] = "bytes between frames",
        [GAP_BETWEEN] = "frames sent before the run",
};

void front_end_record_gap(struct front_end_gaps *g, uint64_t now_ns, uint64_t n, uint64_t frame,
                          enum front_end_gap kind, const char *detail, bool numbered)
{
        g->n += n;
        if (!g->first) {
                g->first = gap_names[kind];
                g->first_frame = frame;
        }
        if (!log_is_new_fault(&g->last_ns[kind], now_ns))
                return;
        log_error("front-end: %s at frame %" PRIu64 "%s%s%s", gap_names[kind], frame, detail[0] ? ": " : "",
                  detail,
                  numbered ? "; the events of lost frames are built without them"
                           : "; later frames may belong to other triggers, because only their count matches "
                             "them");
}

void front_end_gap_reasons(const struct front_end_gaps *g, bool numbered, struct reasons *to)
{
        if (g->n > 0 && numbered)
                reasons_add(to,
                            "frames of the front-end were lost before the ROS read them: %" PRIu64
                            ", the first (%s) at frame %" PRIu64,
                            g->n, g->first, g->first_frame);
        else if (g->n > 0)
                reasons_add(to,
                            "the run is unreliable: gaps in the frames of the front-end: %" PRIu64
                            ", the first (%s) at frame %" PRIu64
                            "; later frames may belong to other triggers",
                            g->n, g->first, g->first_frame);
}

void front_end_discard_reasons(const struct ros *core, struct reasons *to)
{
        const struct ros_counts *c = ros_counts(core);

        if (c->duplicate > c->early_duplicate)
                reasons_add(to,
                            "frames of its front-end that have the same number as an earlier one, and are in "
                            "no event: %" PRIu64 ", the last one with number %" PRIu64,
                            c->duplicate - c->early_duplicate, ros_samples(core)->duplicate.counter);
        if (c->impossible > c->early_impossible)
                reasons_add(to,
                            "frames of its front-end that have no number, or that of no trigger, and are in "
                            "no event: %" PRIu64,
                            c->impossible - c->early_impossible);
        if (c->no_event > 0)
                reasons_add(to,
                            "frames of its front-end that came after newer ones had made their events, %sand "
                            "are in no event: %" PRIu64,
                            ros_member(core)->n_previous > 0 ? "or whose triggers only an earlier DFM had, "
                                                             : "",
                            c->no_event);
        if (c->discarded > 0)
                reasons_add(to,
                            "frames of its front-end whose trigger came when events of newer triggers had "
                            "ended, and the frame had been discarded: %" PRIu64,
                            c->discarded);
}

void front_end_number_reasons(const struct ros *core, int64_t number_from, struct reasons *to)
{
        long long offset = ros_offset(core, true);
        uint64_t leap = ros_leap(core), late = ros_periods(core);

        if (offset != 0)
                reasons_add(to,
                            "the numbers of its front-end seem to be %llu too %s: %s. Then its fragments are "
                            "in events of other triggers, and number-from should be %lld",
                            (unsigned long long)llabs(offset), offset > 0 ? "high" : "low",
                            offset > 0
                                    ? "the first triggers have no frame, and frames follow the last trigger"
                                    : "frames came before the first trigger, and the last ones have none",
                            (long long)number_from + offset);
        if (leap > 0)
                reasons_add(
                        to,
                        "the numbers of its front-end seem to have leapt ahead by %" PRIu64
                        " in the run: as many triggers have no frame, and frames follow the last trigger. "
                        "Then the fragments after the leap are in events of other triggers",
                        leap);
        if (late > 0)
                reasons_add(to,
                            "its front-end's narrow counter is whole periods (%s%" PRIu64
                            " numbers) ahead of the last trigger; its fragments may be in events of triggers "
                            "that came this much later",
                            ros_has_surplus(core) ? "at least " : "", late);
}

bool front_end_log_loss(int why, bool in_frame, bool begun, uint64_t frames)
{
        /* An orderly close between two frames loses nothing, and is normal at the end. */
        if (why == -EPIPE && !in_frame && !begun) {
                log_info("front-end: the board closed the connection after frame %" PRIu64, frames);
                return false;
        }
        log_warning("front-end: connection lost%s: %s", in_frame ? " in a frame" : "",
                    front_end_explain_loss(why));
        return true;
}

void front_end_log_between(uint64_t *n)
{
        log_info("front-end: %" PRIu64 " frame%s came before the run, and %s in no run", *n,
                 *n == 1 ? "" : "s", *n == 1 ? "is" : "are");
        *n = 0;
}

void front_end_log_missing(const struct net_address *to, uint64_t for_ns, int why)
{
        char text[NET_ADDRESS_TEXT_MAX];

        log_warning("no connection to front-end %s for %.1f s (%s)", net_address_format(to, text),
                    (double)for_ns / 1e9, front_end_explain_loss(why));
}

void front_end_log_return(const struct net_address *to, uint64_t after_ns)
{
        char text[NET_ADDRESS_TEXT_MAX];

        log_warning("connected to front-end %s after %.1f s", net_address_format(to, text),
                    (double)after_ns / 1e9);
}

bool matcher_is_unreliable(const struct matcher *m)
{
        const struct matcher_counts *c = matcher_counts(m);

        return c->wrong > 0 || c->contradicted > 0 || c->turned > 0;
}

void matcher_reasons(const struct matcher *m, struct reasons *to)
{
        const struct matcher_counts *c = matcher_counts(m);

        if (c->ambiguous > 0)
                reasons_add(to,
                            "frames of its front-end that fit the times of two triggers: %" PRIu64
                            ", the last one in the event of trigger %" PRIu64
                            "; the time after within in event-time should be shorter than the time between "
                            "triggers",
                            c->ambiguous, c->ambiguous_number);
        if (c->doubled > 0)
                reasons_add(to,
                            "frames of its front-end that fit the time of a trigger to which an earlier one "
                            "belongs, and are in no event: %" PRIu64 ", the last one at trigger %" PRIu64,
                            c->doubled, c->doubled_number);
        if (c->not_here > 0)
                reasons_add(to,
                            "the first triggers of the run did not reach this ROS: %" PRIu32
                            ", by their numbers",
                            c->not_here);
        if (c->contradicted > 0)
                reasons_add(to, "the run is unreliable: by the clock of its board, its front-end lost the "
                                "first frames of the run, or sent others before them; or the offset of this "
                                "clock was wrong in the previous run, and the frames of both runs are in "
                                "events of other triggers. Restart this ROS so that it forgets the offset");
        if (c->no_time > 0)
                reasons_add(to, "frames of its front-end that are too short for their time: %" PRIu64,
                            c->no_time);
        if (c->no_room > 0)
                reasons_add(to,
                            "frames of its front-end that broke off, or did not fit into ros.buffer-size, "
                            "and are in no event: %" PRIu64,
                            c->no_room);
        if (c->untimed > 0)
                reasons_add(to,
                            "triggers without a time (0), to which no frame of its front-end can belong: "
                            "%" PRIu64,
                            c->untimed);
        if (c->lost > 0)
                reasons_add(to,
                            "the times of its front-end stopped matching those of the triggers %" PRIu64
                            " times: the clock of its board, or of the trigger box, was set, or "
                            "drifted in a pause%s",
                            c->lost,
                            c->wrong > 0 ? ", or evb assumed a wrong offset, so frames may be in events of "
                                           "other triggers"
                                         : "");
        if (c->turned > 0)
                reasons_add(to,
                            "the run is unreliable: frames of its front-end came so late that the clock of "
                            "its board may have started over meanwhile, so frames may be in events of other "
                            "triggers; event-time should have more bits");
        if (c->unproven > 0)
                reasons_add(to,
                            "frames of its front-end that are in no event, because they came or were read so "
                            "late that the clock of its board may have started over meanwhile: %" PRIu64
                            "; event-time should have more bits",
                            c->unproven);
        if (c->early > 0)
                reasons_add(to, "frames of its front-end came before the first trigger of the run or after a "
                                "reset, so frames are in no event until their times show the offset of the "
                                "clock of its board");
        if (c->no_offset > 0)
                reasons_add(to,
                            "frames of its front-end that are in no event, because the offset of the clock "
                            "of its board was not found until the end of the run: %" PRIu64
                            "; check event-time, ros.tick and the times of the triggers",
                            c->no_offset);
}

void matcher_account(const struct matcher *m, const struct ros *core, struct node_stats *stats)
{
        const struct matcher_counts *c = matcher_counts(m);
        const struct ros_slice_counts *passed = &ros_counts(core)->slices;
        uint64_t time_ns = matcher_past(m).fit.time_ns;

        stats_set(&stats->slice_frames, c->frames);
        stats_set(&stats->slice_frames_used, passed->used);
        stats_set(&stats->slice_frames_late, passed->late);
        stats_set(&stats->slice_frames_dropped, c->doubled + c->no_time + c->no_room + passed->dropped);
        stats_set(&stats->slice_frames_left_over, c->waiting + c->alone + passed->left_over);
        board_clock_account(matcher_clock(m), time_ns, time_ns, stats);
}
