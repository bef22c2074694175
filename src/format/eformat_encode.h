/* What the encoders of both formats share: putting words and places into an encoding, and the order of the
 * fragments. Private to src/core/eformat*.c. */
#pragma once

#include "evb/format/eformat.h"

/* Puts bytes behind each other: words into the scratch, data by reference. Past a bound it sets `failed` and
 * drops what comes; check once at the end. With `summing`, `sum` is the Adler-32 of what has been put since
 * it was set. */
struct build {
        struct eformat_encoding *e;
        uint8_t *at; /* next free byte of the scratch */
        const uint8_t
                *joins; /* the last place ends here, so that words put here lengthen it; NULL: it is data */
        bool failed, summing;
        uint32_t sum;
};

struct build build_init(struct eformat_encoding *e);
/* Where the words are in the scratch, for build_patch. */
uint8_t *build_words(struct build *b, const uint32_t *words, size_t n);
void build_data(struct build *b, const void *data, size_t size_bytes);
void build_patch(uint8_t *words, size_t index, uint32_t value);
/* Zero bytes up to a whole word. */
void build_pad(struct build *b, size_t size_bytes);
/* 0, -ENOBUFS or -EMSGSIZE. */
int build_end(const struct build *b);

/* The fragments of an event in the order in which they are written. */
struct plan {
        size_t n;
        uint64_t keys[EVB_ROS_MAX];
};

int plan_init(struct plan *plan, const struct built_event *event); /* -E2BIG */

static inline const struct built_fragment *plan_fragment(const struct plan *plan,
                                                         const struct built_event *event, size_t i)
{
        return &event->fragments[plan->keys[i] & 0xffff];
}

enum part_kind { PART_RAW, PART_ROS3, PART_DUMMY };

/* How one fragment is written. */
struct part {
        enum part_kind kind;
        uint32_t status; /* of the headers made for it; PART_ROS3 brings its own */
        struct eformat_ros3 ros3;
};

/* Decides, and counts it in the encoding. */
struct part part_classify(const struct built_fragment *f, uint32_t l1_id, struct eformat_encoding *e);

/* The data-first ROD around a payload of `size_bytes`, header to trailer; a dummy's has neither data nor
 * status. */
#define ROD_WORDS 12u
#define ROD_RAW_STATUS_WORDS 2u
uint32_t rod_words(const struct part *part, uint32_t size_bytes);
void rod_put(struct build *b, const struct part *part, const struct built_fragment *f,
             const struct event_info *info);

uint32_t event_source_id(const struct built_event *event, const struct eformat_settings *settings);
