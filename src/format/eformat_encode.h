/* Common part of both encoders: appends words and data to an encoding, and orders the fragments. Private to
 * src/format. */
#pragma once

#include "format/eformat.h"

/* Appends bytes to an encoding: words are copied into the scratch memory, data are referenced. After an
 * overflow, `failed` is set and further bytes are dropped; build_end() reports it. With `summing`, `sum` is
 * the Adler-32 checksum of the bytes appended since `sum` was set. */
struct build {
        struct eformat_encoding *e;
        uint8_t *at;          /* next free byte of the scratch */
        const uint8_t *joins; /* end of the last iov, which further words extend; NULL: the last iov refers to
                                 data */
        bool failed, summing;
        uint32_t sum;
};

struct build build_init(struct eformat_encoding *e, const struct built_event *event);
/* Returns the position of the words in the scratch, for build_patch(). */
uint8_t *build_words(struct build *b, const uint32_t *words, size_t n);
void build_data(struct build *b, const void *data, size_t size_bytes);
void build_patch(uint8_t *words, size_t index, uint32_t value);
/* Returns 0, -ENOBUFS or -EMSGSIZE. */
int build_end(const struct build *b);

/* The order in which the fragments of an event are written. */
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
        uint32_t status; /* status in new headers; a PART_ROS3 has its own headers */
        struct eformat_ros3 ros3;
};

/* Decides how to write a fragment, and updates the counts of the encoding. */
struct part part_classify(const struct built_fragment *f, uint32_t l1_id, struct eformat_encoding *e);

/* The size of a ROD with header and trailer; the data precede the status words. The ROD of a dummy has
 * neither data nor status words. */
#define ROD_WORDS 12u
#define ROD_RAW_STATUS_WORDS 2u
uint32_t rod_words(const struct part *part, uint32_t size_bytes);
void rod_put(struct build *b, const struct part *part, const struct built_fragment *f,
             const struct event_info *info);

/* The builder's stamp. It is the specific part of the last sub-detector of a v3.0 event, and the last HLT
 * words of a v5.0 event. Its last word is the Adler-32 of all bytes of the event before this word. */
#define STAMP_WORDS 8u
#define STAMP_MAGIC 0x01425645u /* "EVB", 1 */
#define STAMP_SUBDET_WORDS (8u + STAMP_WORDS)
#define STAMP_HLT_AT 4u /* index among the HLT words */
/* Returns the stamp of an event that a walk has checked, or NULL if it has none. */
const uint8_t *stamp_find(const struct eformat_fragment *event);
/* Fills all words but the checksum. */
void stamp_fill(uint32_t words[static STAMP_WORDS], const struct event_info *info);
/* Fills the checksum of the stamp that ends at `end`, in the scratch. Returns the Adler-32 of the event up to
 * `end`. */
uint32_t stamp_sum(struct eformat_encoding *e, uint8_t *end);

uint32_t event_source_id(const struct built_event *event, const struct eformat_settings *settings);
