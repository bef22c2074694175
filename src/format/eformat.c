/* Interprets fragments that eformat_walk() has checked: event headers, status bits, checksums, and FORM_RAW
 * and FORM_ROS3 payload. The encoders in eformat3.c and eformat5.c write such fragments. */
#include "format/eformat.h"

#include <errno.h>
#include <string.h>

#include "eformat_encode.h"

uint32_t eformat_rob_status(enum fragment_status status)
{
        switch (status) {
        case FRAGMENT_PENDING:
                return EFORMAT_ROB_PENDING | EFORMAT_DUMMY | EFORMAT_TIMEOUT;
        case FRAGMENT_LOST:
                return EFORMAT_ROB_LOST | EFORMAT_DUMMY | EFORMAT_TIMEOUT;
        case FRAGMENT_DISCARDED:
                return EFORMAT_ROB_DISCARDED | EFORMAT_DUMMY | EFORMAT_OVERFLOW;
        case FRAGMENT_TRUNCATED:
                return EFORMAT_ROB_TRUNCATED | EFORMAT_OVERFLOW;
        default:
                return 0;
        }
}

static void event_info3(const struct eformat_fragment *event, struct event_info *info)
{
        const uint8_t *w = event->specific;

        info->time_s = eformat_word(w, 0);
        info->global_id = eformat_word(w, 1);
        info->run = eformat_word(w, 2);
        info->l1_id = eformat_word(w, 3);
        info->trigger_type = eformat_word(w, 4);
        info->l2_info = eformat_word(w, 5);
        for (unsigned i = 0; i < ARRAY_SIZE(info->ef_info); i++)
                info->ef_info[i] = eformat_word(w, 6 + i);
}

/* Returns the index, among the specific words of a v5.0 event, of the number of L2 words; *ret_hlt is that of
 * the HLT words. The walk has checked both. */
static size_t find_info5(const uint8_t *specific, size_t *ret_hlt)
{
        size_t l2 = 12 + 1 + (size_t)eformat_word(specific, 12);

        *ret_hlt = l2 + 1 + eformat_word(specific, l2);
        return l2;
}

static void event_info5(const struct eformat_fragment *event, struct event_info *info)
{
        const uint8_t *w = event->specific;
        size_t hlt, l2 = find_info5(w, &hlt);

        info->time_s = eformat_word(w, 0);
        info->time_ns = eformat_word(w, 1);
        info->global_id = eformat_word(w, 2) | (uint64_t)eformat_word(w, 3) << 32;
        info->run = eformat_word(w, 5);
        info->l1_id = eformat_word(w, 7);
        info->bc_id = eformat_word(w, 8);
        info->trigger_type = eformat_word(w, 9);
        info->l2_info = eformat_word(w, l2) > 0 ? eformat_word(w, l2 + 1) : 0;
        for (unsigned i = 0; i < MIN(eformat_word(w, hlt), ARRAY_SIZE(info->ef_info)); i++)
                info->ef_info[i] = eformat_word(w, hlt + 1 + i);
}

static const uint8_t *stamp_find3(const struct eformat_fragment *event)
{
        const uint8_t *subdet = event->bytes + 4 * ((size_t)event->size_words - STAMP_SUBDET_WORDS);
        const uint32_t expected[] = {EFORMAT_SUBDET,
                                     STAMP_SUBDET_WORDS,
                                     STAMP_SUBDET_WORDS,
                                     EFORMAT_VERSION_3,
                                     EFORMAT_SUBDET_SFI << 16 | (event->source_id & 0xffff),
                                     1,
                                     0,
                                     STAMP_WORDS,
                                     STAMP_MAGIC};

        if (event->payload_words < STAMP_SUBDET_WORDS)
                return NULL;
        for (size_t i = 0; i < ARRAY_SIZE(expected); i++)
                if (eformat_word(subdet, i) != expected[i])
                        return NULL;
        return subdet + 4 * (STAMP_SUBDET_WORDS - STAMP_WORDS);
}

static const uint8_t *stamp_find5(const struct eformat_fragment *event)
{
        size_t hlt;

        (void)find_info5(event->specific, &hlt);
        if (eformat_word(event->specific, hlt) != STAMP_HLT_AT + STAMP_WORDS ||
            eformat_word(event->specific, hlt + 1 + STAMP_HLT_AT) != STAMP_MAGIC)
                return NULL;
        return event->specific + 4 * (hlt + 1 + STAMP_HLT_AT);
}

const uint8_t *stamp_find(const struct eformat_fragment *event)
{
        if (event->marker != EFORMAT_EVENT)
                return NULL;
        return event->version >> 24 == 3 ? stamp_find3(event) : stamp_find5(event);
}

bool eformat_has_stamp(const struct eformat_fragment *event)
{
        return stamp_find(event) != NULL;
}

static void read_stamp(const uint8_t *stamp, struct event_info *info)
{
        info->event = eformat_word(stamp, 1) | (uint64_t)eformat_word(stamp, 2) << 32;
        info->global_id |= (uint64_t)eformat_word(stamp, 3) << 32;
        info->time_ns = eformat_word(stamp, 4);
        info->spill = eformat_word(stamp, 5);
        info->flags = eformat_word(stamp, 6);
}

void eformat_event_info(const struct eformat_fragment *event, struct event_info *ret)
{
        const uint8_t *stamp = stamp_find(event);

        *ret = (struct event_info){
                .event = UINT64_MAX,
                .source_id = event->source_id,
                .status = event->n_status > 0 ? eformat_word(event->status, 0) : 0,
        };
        if (event->version >> 24 == 3)
                event_info3(event, ret);
        else
                event_info5(event, ret);
        if (stamp)
                read_stamp(stamp, ret);
}

bool eformat_raw_payload(const struct eformat_fragment *rod, const uint8_t **ret_payload,
                         uint32_t *ret_size_bytes)
{
        uint32_t size_bytes;

        if (rod->marker != EFORMAT_ROD || eformat_subdet(rod->source_id) != EFORMAT_SUBDET_RAW ||
            rod->n_status != 2)
                return false;
        size_bytes = eformat_word(rod->status, 1);
        if (DIV_ROUND_UP((uint64_t)size_bytes, 4) != rod->payload_words)
                return false;
        *ret_payload = rod->payload;
        *ret_size_bytes = size_bytes;
        return true;
}

/* Points to the L1 ID in a ROS or ROD header; NULL for other fragments. */
static const uint8_t *l1_word(const struct eformat_fragment *f)
{
        return f->marker == EFORMAT_ROS || f->marker == EFORMAT_ROD ? f->specific + 4 : NULL;
}

struct ros3_visit {
        uint32_t l1_id;
        struct eformat_ros3 *ret;
};

static int ros3_visit(void *userdata, const struct eformat_fragment *f)
{
        struct ros3_visit *v = userdata;
        const uint8_t *l1 = l1_word(f);

        v->ret->n_robs += f->marker == EFORMAT_ROB;
        v->ret->l1_mismatch |= l1 && eformat_word(l1, 0) != v->l1_id;
        return 0;
}

static int ros3_bad(struct eformat_fault *fault, const char *reason)
{
        if (fault)
                *fault = (struct eformat_fault){.reason = reason};
        return -EBADMSG;
}

/* Does not check the total size, which belongs to the original event. */
static int ros3_header(const uint8_t *at, size_t size_bytes, struct eformat_ros3 *ret,
                       struct eformat_fault *fault)
{
        uint32_t header_words, n_status;

        if (size_bytes < 28 || size_bytes % 4 != 0)
                return ros3_bad(fault, "truncated sub-detector header");
        if (eformat_word(at, 0) != EFORMAT_SUBDET || eformat_word(at, 3) >> 16 != EFORMAT_VERSION_3 >> 16)
                return ros3_bad(fault, "missing v3.0 sub-detector header");
        header_words = eformat_word(at, 2);
        n_status = eformat_word(at, 5);
        if (header_words < 7 || header_words > EFORMAT_ROS3_HEADER_MAX_BYTES / 4 ||
            4 * header_words > size_bytes)
                return ros3_bad(fault, "sub-detector header size is out of range");
        if (n_status > header_words - 7 || eformat_word(at, 6 + n_status) != header_words - 7 - n_status)
                return ros3_bad(fault, "sub-detector header size does not match its counts");
        *ret = (struct eformat_ros3){
                .subdet_source_id = eformat_word(at, 4),
                .subdet_header_bytes = 4 * header_words,
                .ros_bytes = (uint32_t)size_bytes - 4 * header_words,
        };
        return 0;
}

int eformat_ros3_parse(const void *data, size_t size_bytes, uint32_t l1_id, struct eformat_ros3 *ret,
                       struct eformat_fault *ret_fault)
{
        struct eformat_ros3 parsed;
        struct ros3_visit v = {.l1_id = l1_id, .ret = &parsed};
        const uint8_t *ros;
        int r;

        if (size_bytes > UINT32_MAX)
                return ros3_bad(ret_fault, "fragment exceeds 4 GiB");
        r = ros3_header(data, size_bytes, &parsed, ret_fault);
        if (r < 0)
                return r;
        ros = (const uint8_t *)data + parsed.subdet_header_bytes;
        r = eformat_walk(ros, parsed.ros_bytes, ros3_visit, &v, ret_fault);
        if (r < 0) {
                if (ret_fault)
                        ret_fault->offset_bytes += parsed.subdet_header_bytes;
                return r;
        }
        if (eformat_word(ros, 0) != EFORMAT_ROS)
                return ros3_bad(ret_fault, "missing ROS fragment after the sub-detector header");
        parsed.ros_source_id = eformat_word(ros, 4);
        *ret = parsed;
        return 0;
}

struct renumber {
        uint32_t from, to;
};

static int renumber_visit(void *userdata, const struct eformat_fragment *f)
{
        const struct renumber *n = userdata;
        uint8_t *l1 = (uint8_t *)l1_word(f); /* the caller passed the bytes as writable */
        uint32_t value;

        if (!l1)
                return 0;
        value = eformat_word(l1, 0);
        if (value != 0 || n->from == 0) {
                value = htole32(value + (n->to - n->from));
                memcpy(l1, &value, sizeof value);
        }
        return 0;
}

int eformat_ros3_renumber(void *data, size_t size_bytes, uint32_t from, uint32_t to)
{
        struct renumber n = {.from = from, .to = to};
        struct eformat_ros3 parts;
        int r = ros3_header(data, size_bytes, &parts, NULL);

        if (r < 0)
                return r;
        return eformat_walk((uint8_t *)data + parts.subdet_header_bytes, parts.ros_bytes, renumber_visit, &n,
                            NULL);
}
