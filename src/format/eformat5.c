/* Encodes a built event in raw event format v5.0: event > ROB > ROD, with optional Adler-32 checksums. ROS
 * fragments of v3.0 are split: each ROB gets a v5.0 header with its source ID and status words, and its ROD
 * stays unchanged. */
#include "eformat_encode.h"

#include <assert.h>

#define ROB_FIXED_WORDS 7u

struct encode5 {
        struct build build;
        const struct built_event *event;
        uint32_t checksum;  /* enum eformat_checksum */
        uint32_t event_sum; /* checksum of the payload before the open ROB */
};

/* The L2 and HLT info words contain the v3.0 header fields of the same names, and the stamp. */
static uint8_t *put_event(struct encode5 *s, const struct eformat_settings *settings, uint8_t **ret_stamp_end)
{
        const struct event_info *i = &s->event->info;
        uint32_t stamp[STAMP_WORDS], no_stream_tags = 0;
        uint32_t words[] = {
                EFORMAT_EVENT,
                0,
                0,
                EFORMAT_VERSION_5,
                event_source_id(s->event, settings),
                1,
                0,
                s->checksum,
                i->time_s,
                i->time_ns,
                (uint32_t)i->global_id,
                (uint32_t)(i->global_id >> 32),
                settings->run_type,
                i->run,
                settings->lumi_block,
                i->l1_id,
                i->bc_id,
                i->trigger_type,
                0,
                0, /* not compressed; number of payload words, filled in later */
                0,
                1,
                i->l2_info,
                STAMP_HLT_AT + STAMP_WORDS,
                i->ef_info[0],
                i->ef_info[1],
                i->ef_info[2],
                i->ef_info[3],
        };
        uint8_t *header;

        words[2] = ARRAY_SIZE(words) + STAMP_WORDS + 1;
        stamp_fill(stamp, i);
        header = build_words(&s->build, words, ARRAY_SIZE(words));
        *ret_stamp_end = build_words(&s->build, stamp, STAMP_WORDS) + sizeof stamp;
        build_words(&s->build, &no_stream_tags, 1);
        return header;
}

static void open_rob(struct encode5 *s, const uint32_t *status, size_t n_status, uint32_t source_id,
                     uint32_t payload_words)
{
        uint32_t header_words = ROB_FIXED_WORDS + (uint32_t)n_status;
        uint32_t total = header_words + payload_words + (s->checksum != EFORMAT_CHECKSUM_NONE);
        uint32_t front[] = {EFORMAT_ROB,       total,     header_words,
                            EFORMAT_VERSION_5, source_id, (uint32_t)n_status};

        s->build.sum = s->event_sum;
        build_words(&s->build, front, ARRAY_SIZE(front));
        build_words(&s->build, status, n_status);
        build_words(&s->build, &s->checksum, 1);
        s->event_sum = s->build.sum;
        s->build.sum = ADLER_BEGIN;
}

/* Combines the ROB's sum with the event's sum, which avoids a second pass over the payload. */
static void close_rob(struct encode5 *s, uint32_t payload_words)
{
        uint32_t sum = s->build.sum;

        if (s->checksum == EFORMAT_CHECKSUM_NONE)
                return;
        s->build.sum = adler_join(s->event_sum, sum, 4 * (uint64_t)payload_words);
        build_words(&s->build, &sum, 1);
        s->event_sum = s->build.sum;
}

static int put_ros3_rob(void *userdata, const struct eformat_fragment *f)
{
        struct encode5 *s = userdata;
        uint32_t status[64];

        if (f->marker != EFORMAT_ROB)
                return 0;
        for (size_t i = 0; i < f->n_status; i++)
                status[i] = eformat_word(f->status, i);
        open_rob(s, status, f->n_status, f->source_id, f->payload_words);
        build_data(&s->build, f->payload, 4 * (size_t)f->payload_words);
        close_rob(s, f->payload_words);
        return 0;
}

static void put_fragment(struct encode5 *s, const struct built_fragment *f)
{
        struct part part = part_classify(f, s->event->info.l1_id, s->build.e);
        uint32_t words = rod_words(&part, f->size_bytes);

        if (part.kind == PART_ROS3) {
                const uint8_t *ros = (const uint8_t *)f->data + part.ros3.subdet_header_bytes;

                eformat_walk(ros, part.ros3.ros_bytes, put_ros3_rob, s, NULL);
                return;
        }
        open_rob(s, &part.status, 1, f->source_id, words);
        rod_put(&s->build, &part, f, &s->event->info);
        close_rob(s, words);
}

/* `stamp_end`: the end of the stamp, behind which the header has one more word. The checksum of the payload
 * is the last word of the event. */
static void sum_event(const struct encode5 *s, uint8_t *stamp_end, size_t payload_bytes)
{
        uint32_t sum = stamp_sum(s->build.e, stamp_end);

        if (s->checksum == EFORMAT_CHECKSUM_NONE)
                return;
        sum = adler_join(adler_add(sum, stamp_end, 4), s->event_sum, payload_bytes);
        s->build.e->sum = adler_add(sum, s->build.at - 4, 4);
}

static int encode5(const struct built_event *event, const struct eformat_settings *settings,
                   struct eformat_encoding *ret)
{
        struct encode5 s = {
                .build = build_init(ret, event),
                .event = event,
                .checksum = settings->checksum,
                .event_sum = ADLER_BEGIN,
        };
        struct plan plan;
        uint8_t *header, *stamp_end;
        size_t header_bytes, payload_bytes;
        int r = plan_init(&plan, event);

        assert(s.checksum != EFORMAT_CHECKSUM_CRC16);
        if (r < 0)
                return r;
        header = put_event(&s, settings, &stamp_end);
        header_bytes = ret->size_bytes;
        s.build.summing = s.checksum != EFORMAT_CHECKSUM_NONE;
        for (size_t i = 0; i < plan.n; i++)
                put_fragment(&s, plan_fragment(&plan, event, i));
        payload_bytes = ret->size_bytes - header_bytes;
        build_patch(header, 19, (uint32_t)(payload_bytes / 4));
        s.build.summing = false;
        if (s.checksum != EFORMAT_CHECKSUM_NONE)
                build_words(&s.build, &s.event_sum, 1);
        build_patch(header, 1, (uint32_t)(ret->size_bytes / 4));
        build_patch(header, 6, ret->info.status);
        r = build_end(&s.build);
        if (r == 0)
                sum_event(&s, stamp_end, payload_bytes);
        return r;
}

const struct eformat eformat_5 = {
        .name = "eformat5",
        .version = EFORMAT_VERSION_5,
        .storage_version = 6,
        .encode = encode5,
};
