/* Common part of both encoders: the iov of an encoding, the order of the fragments, and the ROD around raw
 * payload. eformat3.c and eformat5.c add the headers above the ROD. */
#include "eformat_encode.h"

#include <errno.h>
#include <string.h>

struct build build_init(struct eformat_encoding *e, const struct built_event *event)
{
        e->n_iov = 0;
        e->size_bytes = 0;
        e->sum = 0;
        e->info = event->info;
        e->info.status |= event->status;
        e->payload_bytes = 0;
        e->n_missing = e->n_malformed = e->n_l1_mismatches = 0;
        return (struct build){.e = e, .at = e->scratch};
}

static void build_place(struct build *b, const void *at, size_t size_bytes)
{
        struct eformat_encoding *e = b->e;

        if (b->summing)
                b->sum = adler_add(b->sum, at, size_bytes);
        e->size_bytes += size_bytes;
        if (at == b->joins)
                e->iov[e->n_iov - 1].iov_len += size_bytes;
        else if (e->n_iov < EFORMAT_IOV_MAX)
                e->iov[e->n_iov++] = (struct iovec){.iov_base = (void *)at, .iov_len = size_bytes};
        else
                b->failed = true;
}

static uint8_t *build_scratch(struct build *b, const void *bytes, size_t size_bytes)
{
        uint8_t *here = b->at;

        if (b->failed || size_bytes > (size_t)(b->e->scratch + EFORMAT_SCRATCH_BYTES - here)) {
                b->failed = true;
                return b->e->scratch;
        }
        memcpy(here, bytes, size_bytes);
        build_place(b, here, size_bytes);
        b->joins = b->at = here + size_bytes;
        return here;
}

uint8_t *build_words(struct build *b, const uint32_t *words, size_t n)
{
        uint32_t little[64];

        for (size_t i = 0; i < n; i++)
                little[i] = htole32(words[i]);
        return build_scratch(b, little, 4 * n);
}

void build_data(struct build *b, const void *data, size_t size_bytes)
{
        if (size_bytes == 0 || b->failed)
                return;
        build_place(b, data, size_bytes);
        b->joins = NULL;
}

/* Appends zero bytes up to a multiple of 4. */
static void build_pad(struct build *b, size_t size_bytes)
{
        static const uint8_t zeros[4];

        if (size_bytes % 4 != 0)
                build_scratch(b, zeros, 4 - size_bytes % 4);
}

void build_patch(uint8_t *words, size_t index, uint32_t value)
{
        value = htole32(value);
        memcpy(words + 4 * index, &value, sizeof value);
}

int build_end(const struct build *b)
{
        if (b->failed)
                return -ENOBUFS;
        return b->e->size_bytes > UINT32_MAX ? -EMSGSIZE : 0;
}

static bool is_placeless(const struct built_fragment *f)
{
        return f->form == FORM_ROS3 && f->size_bytes == 0;
}

/* Shell sort with Ciura's gaps: needs no memory, and is fast on keys that are nearly sorted. */
static void sort_keys(uint64_t *keys, size_t n)
{
        static const uint16_t gaps[] = {701, 301, 132, 57, 23, 10, 4, 1};

        for (size_t g = 0; g < ARRAY_SIZE(gaps); g++) {
                for (size_t i = gaps[g]; i < n; i++) {
                        uint64_t key = keys[i];
                        size_t k = i;

                        for (; k >= gaps[g] && keys[k - gaps[g]] > key; k -= gaps[g])
                                keys[k] = keys[k - gaps[g]];
                        keys[k] = key;
                }
        }
}

/* Sort keys consist of these fields, from the highest bits: order; whether the fragment has no place;
 * sub-detector, which orders fragments if no fragment of their sub-detector has a place; index. */
int plan_init(struct plan *plan, const struct built_event *event)
{
        uint32_t last_order[256];

        if (event->n_fragments > EVB_ROS_MAX)
                return -E2BIG;
        for (size_t i = 0; i < ARRAY_SIZE(last_order); i++)
                last_order[i] = UINT32_MAX;
        for (size_t i = 0; i < event->n_fragments; i++) {
                const struct built_fragment *f = &event->fragments[i];
                uint32_t *last = &last_order[eformat_subdet(f->source_id)];

                if (!is_placeless(f))
                        *last = *last == UINT32_MAX ? f->order : MAX(*last, f->order);
        }
        plan->n = 0;
        for (size_t i = 0; i < event->n_fragments; i++) {
                const struct built_fragment *f = &event->fragments[i];
                uint8_t subdet = eformat_subdet(f->source_id);
                uint64_t order = is_placeless(f) ? MIN(last_order[subdet], 0x10000u) : f->order;

                if (f->status != FRAGMENT_NONE)
                        plan->keys[plan->n++] =
                                order << 32 | (uint64_t)is_placeless(f) << 31 | (uint64_t)subdet << 16 | i;
        }
        sort_keys(plan->keys, plan->n);
        return 0;
}

static struct part classify(const struct built_fragment *f, uint32_t l1_id, struct eformat_encoding *e)
{
        struct part part = {.kind = PART_DUMMY,
                            .status = eformat_rob_status((enum fragment_status)f->status)};

        if (f->form == FORM_RAW && (f->status == FRAGMENT_OK || f->status == FRAGMENT_TRUNCATED)) {
                part.kind = PART_RAW;
        } else if (f->form == FORM_ROS3 && f->status == FRAGMENT_OK) {
                if (eformat_ros3_parse(f->data, f->size_bytes, l1_id, &part.ros3, NULL) == 0) {
                        part.kind = PART_ROS3;
                        e->n_l1_mismatches += part.ros3.l1_mismatch;
                } else {
                        part.status = EFORMAT_ROB_LOST | EFORMAT_DUMMY | EFORMAT_CORRUPT;
                        e->n_malformed++;
                }
        } else {
                part.status |= EFORMAT_DUMMY; /* the sizes in a truncated FORM_ROS3 no longer match */
        }
        return part;
}

struct part part_classify(const struct built_fragment *f, uint32_t l1_id, struct eformat_encoding *e)
{
        struct part part = classify(f, l1_id, e);

        if (part.kind == PART_DUMMY) {
                e->n_missing++;
                if (!f->optional || part.status & EFORMAT_CORRUPT)
                        e->info.status |= EFORMAT_EVENT_PARTIAL;
        } else {
                e->payload_bytes += f->size_bytes;
        }
        e->info.status |= part.status & 0xffff;
        return part;
}

uint32_t rod_words(const struct part *part, uint32_t size_bytes)
{
        return part->kind == PART_RAW
                       ? ROD_WORDS + ROD_RAW_STATUS_WORDS + (uint32_t)DIV_ROUND_UP((uint64_t)size_bytes, 4)
                       : ROD_WORDS;
}

void rod_put(struct build *b, const struct part *part, const struct built_fragment *f,
             const struct event_info *info)
{
        bool raw = part->kind == PART_RAW;
        uint32_t size_bytes = raw ? f->size_bytes : 0;
        uint32_t header[] = {
                EFORMAT_ROD,        9, EFORMAT_VERSION_3, f->source_id, info->run, info->l1_id, info->bc_id,
                info->trigger_type, 0,
        };
        uint32_t status[ROD_RAW_STATUS_WORDS] = {0, size_bytes};
        uint32_t data_words = (uint32_t)DIV_ROUND_UP((uint64_t)size_bytes, 4);
        uint32_t trailer[] = {raw ? ROD_RAW_STATUS_WORDS : 0, data_words, 1};

        build_words(b, header, ARRAY_SIZE(header));
        build_data(b, f->data, size_bytes);
        build_pad(b, size_bytes);
        build_words(b, status, trailer[0]);
        build_words(b, trailer, ARRAY_SIZE(trailer));
}

void stamp_fill(uint32_t words[static STAMP_WORDS], const struct event_info *info)
{
        const uint32_t stamp[STAMP_WORDS] = {
                STAMP_MAGIC,
                (uint32_t)info->event,
                (uint32_t)(info->event >> 32),
                (uint32_t)(info->global_id >> 32),
                info->time_ns,
                info->spill,
                info->flags,
                0,
        };

        memcpy(words, stamp, sizeof stamp);
}

uint32_t stamp_sum(struct eformat_encoding *e, uint8_t *end)
{
        uint32_t sum = ADLER_BEGIN;
        const uint8_t *sum_at = end - 4;

        for (size_t i = 0; i < e->n_iov; i++) {
                const uint8_t *bytes = e->iov[i].iov_base;
                size_t size_bytes = e->iov[i].iov_len;
                bool is_last = sum_at >= bytes && sum_at < bytes + size_bytes;

                sum = adler_add(sum, bytes, is_last ? (size_t)(sum_at - bytes) : size_bytes);
                if (is_last)
                        break;
        }
        build_patch(end - 4, 0, sum);
        return adler_add(sum, sum_at, 4);
}

uint32_t event_source_id(const struct built_event *event, const struct eformat_settings *settings)
{
        return event->info.source_id ? event->info.source_id : settings->sfi_source_id;
}
