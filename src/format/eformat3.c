/* Encodes a built event in raw event format v3.0: event > sub-detector > ROS > ROB > ROD. ROS fragments of
 * this format stay unchanged, except for the total size of their sub-detector. */
#include "eformat_encode.h"

#define EVENT_WORDS 18u
#define SUBDET_WORDS 9u
#define ROS_WORDS 11u
#define ROB_WORDS 8u

/* Worst case: each fragment is in a separate sub-detector, with a header of maximum size. */
#define FRAGMENT_SCRATCH_BYTES                                                                               \
        (EFORMAT_ROS3_HEADER_MAX_BYTES + 4 * (ROS_WORDS + ROB_WORDS + ROD_WORDS + ROD_RAW_STATUS_WORDS + 1))
_Static_assert(4 * (EVENT_WORDS + STAMP_SUBDET_WORDS) + EVB_ROS_MAX * FRAGMENT_SCRATCH_BYTES <=
                       EFORMAT_SCRATCH_BYTES,
               "scratch too small");
_Static_assert(2 * EVB_ROS_MAX + 2 <= EFORMAT_IOV_MAX, "iov too small");

struct encode3 {
        struct build build;
        const struct built_event *event;
        uint32_t source_id;
        /* The open sub-detector: its header, and the size of the event before that header. */
        uint8_t *subdet;
        size_t subdet_start_bytes;
        uint32_t subdet_id;
};

static uint8_t *put_event(struct encode3 *s)
{
        const struct event_info *i = &s->event->info;
        uint32_t words[EVENT_WORDS] = {
                EFORMAT_EVENT,
                0,
                EVENT_WORDS,
                EFORMAT_VERSION_3,
                s->source_id,
                1,
                0,
                10,
                i->time_s,
                (uint32_t)i->global_id,
                i->run,
                i->l1_id,
                i->trigger_type,
                i->l2_info,
                i->ef_info[0],
                i->ef_info[1],
                i->ef_info[2],
                i->ef_info[3],
        };

        return build_words(&s->build, words, EVENT_WORDS);
}

static void close_subdet(struct encode3 *s)
{
        if (s->subdet)
                build_patch(s->subdet, 1, (uint32_t)((s->build.e->size_bytes - s->subdet_start_bytes) / 4));
        s->subdet = NULL;
}

static uint32_t subdet_id(const struct encode3 *s, const struct part *part, const struct built_fragment *f)
{
        uint8_t subdet = eformat_subdet(f->source_id);

        if (part->kind == PART_ROS3)
                return part->ros3.subdet_source_id;
        if (s->subdet && eformat_subdet(s->subdet_id) == subdet)
                return s->subdet_id;
        return (uint32_t)subdet << 16 | (s->source_id & 0xffff);
}

static void open_subdet(struct encode3 *s, const struct part *part, const struct built_fragment *f)
{
        uint32_t id = subdet_id(s, part, f), theirs[EFORMAT_ROS3_HEADER_MAX_BYTES / 4];
        uint32_t ours[SUBDET_WORDS] = {EFORMAT_SUBDET, 0, SUBDET_WORDS, EFORMAT_VERSION_3, id, 1, 0, 1, 0};

        if (s->subdet && id == s->subdet_id)
                return;
        close_subdet(s);
        s->subdet_id = id;
        s->subdet_start_bytes = s->build.e->size_bytes;
        if (part->kind != PART_ROS3) {
                s->subdet = build_words(&s->build, ours, SUBDET_WORDS);
                return;
        }
        for (size_t i = 0; i < part->ros3.subdet_header_bytes / 4; i++)
                theirs[i] = eformat_word(f->data, i);
        s->subdet = build_words(&s->build, theirs, part->ros3.subdet_header_bytes / 4);
}

static void put_ros(struct encode3 *s, const struct part *part, const struct built_fragment *f)
{
        const struct event_info *i = &s->event->info;
        uint32_t rob_words = ROB_WORDS + rod_words(part, f->size_bytes);
        uint32_t words[ROS_WORDS + ROB_WORDS] = {
                EFORMAT_ROS,
                ROS_WORDS + rob_words,
                ROS_WORDS,
                EFORMAT_VERSION_3,
                f->source_id,
                1,
                part->status,
                3,
                i->run,
                i->l1_id,
                i->bc_id,
                EFORMAT_ROB,
                rob_words,
                ROB_WORDS,
                EFORMAT_VERSION_3,
                f->source_id,
                1,
                part->status,
                0,
        };

        build_words(&s->build, words, ARRAY_SIZE(words));
        rod_put(&s->build, part, f, i);
}

static void put_fragment(struct encode3 *s, const struct built_fragment *f)
{
        struct part part = part_classify(f, s->event->info.l1_id, s->build.e);

        open_subdet(s, &part, f);
        if (part.kind == PART_ROS3)
                build_data(&s->build, (const uint8_t *)f->data + part.ros3.subdet_header_bytes,
                           part.ros3.ros_bytes);
        else
                put_ros(s, &part, f);
}

/* A sub-detector without ROS fragments, which other readers skip. */
static uint8_t *put_stamp(struct encode3 *s)
{
        uint32_t words[STAMP_SUBDET_WORDS] = {EFORMAT_SUBDET,
                                              STAMP_SUBDET_WORDS,
                                              STAMP_SUBDET_WORDS,
                                              EFORMAT_VERSION_3,
                                              EFORMAT_SUBDET_SFI << 16 | (s->source_id & 0xffff),
                                              1,
                                              0,
                                              STAMP_WORDS};

        stamp_fill(words + STAMP_SUBDET_WORDS - STAMP_WORDS, &s->event->info);
        return build_words(&s->build, words, STAMP_SUBDET_WORDS) + sizeof words;
}

static int encode3(const struct built_event *event, const struct eformat_settings *settings,
                   struct eformat_encoding *ret)
{
        struct encode3 s = {
                .build = build_init(ret, event),
                .event = event,
                .source_id = event_source_id(event, settings),
        };
        struct plan plan;
        uint8_t *header, *end;
        int r = plan_init(&plan, event);

        if (r < 0)
                return r;
        header = put_event(&s);
        for (size_t i = 0; i < plan.n; i++)
                put_fragment(&s, plan_fragment(&plan, event, i));
        close_subdet(&s);
        end = put_stamp(&s);
        build_patch(header, 1, (uint32_t)(ret->size_bytes / 4));
        build_patch(header, 6, ret->info.status);
        r = build_end(&s.build);
        if (r == 0)
                ret->sum = stamp_sum(ret, end);
        return r;
}

const struct eformat eformat_3 = {
        .name = "eformat3",
        .version = EFORMAT_VERSION_3,
        .storage_version = 2,
        .encode = encode3,
};
