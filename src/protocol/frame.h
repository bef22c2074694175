/* Where the frames of a board begin and end, in the bytes of a stream or in a datagram, and which of them
 * form the fragment of a trigger. Pure; the bytes come from the board, and are never trusted. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "protocol/number.h"

#define FRAME_MARKER_MAX 16
#define FRAME_TEXT_MAX 200
/* Default of `frame`: a length of 32 bits, little-endian, in front of the payload. */
#define FRAME_STANDARD "length 0:32 plus 4 skip 4"

enum frame_kind {
        FRAME_LENGTH,   /* the frame contains its length */
        FRAME_DATAGRAM, /* the frame is a datagram */
        FRAME_FIXED,
        FRAME_MARKED, /* the frame lasts until `end`, or until the next marker */
};

struct frame_rule {
        enum frame_kind kind;
        /* FRAME_LENGTH: the frame has `unit` bytes for each count of the field, plus `plus`. */
        struct number_field length;
        uint32_t unit, plus;
        uint32_t fixed_bytes;
        /* Bytes with which each frame begins (0: none), and bytes with which a marked frame ends. */
        uint8_t marker[FRAME_MARKER_MAX], end[FRAME_MARKER_MAX];
        uint8_t n_marker, n_end;
        uint32_t skip_bytes; /* bytes at the beginning of each frame that are not part of the fragment */
};

/* Returns NULL, or the error in the text, as "expected ...". */
const char *frame_rule_parse(struct frame_rule *ret, const char *text);
/* Formats a text that is parsed as the same rule; returns `text`. */
char *frame_rule_format(const struct frame_rule *r, char text[static FRAME_TEXT_MAX]);

/* Which frames form a fragment: one, or all frames with the number of one trigger. Such a fragment ends with
 * the frame that a count or a flag shows to be the last one; without these, with a frame of a newer number.
 */
struct join_rule {
        bool joins;
        uint32_t count;               /* frames of each trigger; 0: unknown, or in `count_at` */
        struct number_field count_at; /* 0 bits: frames do not contain their count */
        struct number_field last;     /* not 0 in the last frame; 0 bits: frames have no such flag */
        struct number_field board;    /* ID of the board that sent the frame; 0 bits: all are of one board */
        struct number_field index;    /* of a frame within its trigger, from 0; 0 bits: it has none */
        uint64_t within_ns;           /* a fragment ends this long after its newest frame; 0: default */
};

#define JOIN_TEXT_MAX 240
#define JOIN_COUNT_MAX 65536u
#define JOIN_BOARD_BITS_MAX 10u

/* NULL, or what is wrong with the text, as "expected ...". */
const char *join_rule_parse(struct join_rule *ret, const char *text);
/* A text that is parsed as the same rule; returns `text`. */
char *join_rule_format(const struct join_rule *r, char text[static JOIN_TEXT_MAX]);
/* Number of bytes of a frame up to the end of the last field of the rule. */
size_t join_rule_end(const struct join_rule *r);
/* Whether a count or a flag shows the end of a fragment. */
static inline bool join_rule_has_end(const struct join_rule *r)
{
        return r->count > 0 || r->count_at.bits > 0 || r->last.bits > 0;
}

enum frame_result {
        FRAME_FOUND,   /* the frame has *ret_bytes bytes, some of which may not have arrived yet */
        FRAME_MORE,    /* more bytes are needed */
        FRAME_FOREIGN, /* the first *ret_bytes bytes are not part of a frame: call again for the bytes after
                          them */
        FRAME_WRONG,   /* no frame begins here, and nothing shows where the next frame begins */
};

/* Finds the frame that begins at `bytes`; `n` bytes have arrived. `is_end`: no more bytes will arrive. A
 * frame has at most `max_bytes` bytes, without skipped ones. *scanned must be 0 for each new frame. It must
 * be kept between calls for the same frame while more bytes of the frame arrive. After foreign bytes, the
 * caller subtracts their number from *scanned, down to 0, so that no byte is searched repeatedly for the end
 * of a frame. */
enum frame_result frame_find(const struct frame_rule *r, const uint8_t *bytes, size_t n, bool is_end,
                             uint32_t max_bytes, size_t *scanned, size_t *ret_bytes);

/* A sample of what a board sends: the beginning of a stream, or datagrams. */
struct frame_sample {
        const uint8_t *bytes;
        size_t n;
        const uint32_t
                *datagrams; /* sizes of the datagrams in `bytes`, in this order; NULL: it is a stream */
        size_t n_datagrams;
};

#define FRAME_CUT_MAX 4096

/* The first complete frames of a sample, each of at most 4 MiB, with their skipped bytes. */
struct frame_cut {
        size_t n;
        uint32_t at[FRAME_CUT_MAX], bytes[FRAME_CUT_MAX];
        size_t least_bytes, most_bytes; /* sizes of the frames */
        size_t foreign_bytes;           /* bytes between frames */
        size_t next_bytes;              /* size of the incomplete frame at the end of a stream; 0: unknown */
        bool is_wrong; /* some bytes are in no frame, and nothing shows where the next one begins */
};

/* What a sample looks like. It is large. */
struct frame_guess {
        bool has_frame;
        struct frame_rule frame;
        struct frame_cut cut;       /* the frames of this rule */
        struct number_field number; /* a counter in these frames, at most 32 bits; 0 bits: none was found */
        uint64_t first, last;       /* its values in the first and last frame */
        size_t gaps, repeats;       /* frames in which it is not one higher: by more than one, or as before */
};

/* Proposes a rule and a counter. The guess may be wrong: the higher bits of a counter may be something else,
 * for example, if they did not change. */
void frame_guess(struct frame_guess *ret, const struct frame_sample *s);
/* Proposes a counter in frames that this rule finds. */
void frame_guess_number(struct frame_guess *ret, const struct frame_sample *s, const struct frame_rule *r);
