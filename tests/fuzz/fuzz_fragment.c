/* Fragments of raw event formats: a walk over arbitrary bytes, and the encoders around arbitrary payload.
 * What an encoder makes can be walked, and holds the payload that went in. */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/util.h"
#include "format/eformat.h"
#include "fuzz.h"

#define L1_ID 7u

struct walk {
        size_t end_bytes; /* of the fragments so far */
        unsigned events, robs;
        const uint8_t *payload; /* of the last ROD that holds a raw one */
        uint32_t payload_bytes;
};

static int visit(void *userdata, const struct eformat_fragment *f)
{
        struct walk *w = userdata;
        struct event_info info;

        if (f->marker == EFORMAT_EVENT) {
                eformat_event_info(f, &info);
                w->events++;
        }
        w->robs += f->marker == EFORMAT_ROB;
        assert(f->depth == 0 || f->offset_bytes + 4 * (size_t)f->size_words <= w->end_bytes);
        if (f->depth == 0)
                w->end_bytes = 4 * (size_t)f->size_words;
        assert(f->header_words <= f->size_words && f->payload_words <= f->size_words);
        (void)eformat_verify_sum(f);
        if (f->marker == EFORMAT_ROD && eformat_raw_payload(f, &w->payload, &w->payload_bytes))
                assert(w->payload_bytes <= 4 * (size_t)f->payload_words);
        return 0;
}

static bool check_walk(const uint8_t *bytes, size_t n)
{
        struct eformat_fault fault = {.offset_bytes = 0};
        struct walk w = {.events = 0};

        if (eformat_walk(bytes, n, visit, &w, &fault) == 0) {
                assert(w.end_bytes == n);
                return true;
        }
        assert(fault.reason && fault.offset_bytes <= n);
        return false;
}

/* New L1 IDs leave a fragment valid, and the previous ones bring back its bytes: except where 0 is one of
 * them, which means "not set". */
static void check_renumber(const uint8_t *bytes, size_t n)
{
        _cleanup_free_ uint8_t *copy = malloc(n);
        struct eformat_ros3 parts;

        memcpy(copy, bytes, n);
        assert(eformat_ros3_renumber(copy, n, L1_ID, L1_ID) == 0 && memcmp(copy, bytes, n) == 0);
        assert(eformat_ros3_renumber(copy, n, L1_ID, 1000) == 0);
        assert(eformat_ros3_parse(copy, n, 1000, &parts, NULL) == 0);
}

static bool check_ros3(const uint8_t *bytes, size_t n)
{
        struct eformat_fault fault = {.offset_bytes = 0};
        struct eformat_ros3 parts;

        if (eformat_ros3_parse(bytes, n, L1_ID, &parts, &fault) < 0) {
                assert(fault.reason && fault.offset_bytes <= n);
                return false;
        }
        assert(parts.subdet_header_bytes + parts.ros_bytes == n);
        assert(parts.subdet_header_bytes <= EFORMAT_ROS3_HEADER_MAX_BYTES);
        check_renumber(bytes, n);
        return true;
}

static uint8_t *flatten(const struct eformat_encoding *e)
{
        uint8_t *bytes = malloc(e->size_bytes), *at = bytes;

        for (size_t i = 0; i < e->n_iov; i++) {
                if (e->iov[i].iov_len > 0)
                        memcpy(at, e->iov[i].iov_base, e->iov[i].iov_len);
                at += e->iov[i].iov_len;
        }
        assert(at == bytes + e->size_bytes);
        return bytes;
}

/* An event of the input as the payload of one source, and nothing from another. */
static void check_encoder(const struct eformat *format, const uint8_t *bytes, size_t n,
                          enum fragment_form form, bool is_valid)
{
        static struct eformat_encoding e;
        const struct eformat_settings settings = {.sfi_source_id = eformat_sfi_id(1),
                                                  .checksum = EFORMAT_CHECKSUM_ADLER32};
        struct built_fragment fragments[] = {
                {.data = n > 0 ? bytes : NULL,
                 .size_bytes = (uint32_t)n,
                 .source_id = eformat_source_id(0),
                 .form = (uint8_t)form},
                {.source_id = eformat_source_id(1), .order = 1, .status = FRAGMENT_LOST},
        };
        const struct built_event event = {.info = {.l1_id = L1_ID, .run = 1},
                                          .n_fragments = ARRAY_SIZE(fragments),
                                          .fragments = fragments};
        struct walk w = {.events = 0};
        uint8_t *flat;
        int r = format->encode(&event, &settings, &e);

        assert(r == 0 || (r == -ENOBUFS && form == FORM_ROS3));
        if (r < 0)
                return;
        assert(e.n_malformed == (form == FORM_ROS3 && !is_valid));
        flat = flatten(&e);
        assert(eformat_walk(flat, e.size_bytes, visit, &w, NULL) == 0 && w.events == 1);
        free(flat);
        if (form == FORM_RAW)
                assert(w.robs == 2 && e.payload_bytes == n);
}

bool fuzz_accepts(const uint8_t *bytes, size_t size_bytes)
{
        bool is_ros3 = check_ros3(bytes, size_bytes), is_fragment = check_walk(bytes, size_bytes);

        check_encoder(&eformat_3, bytes, size_bytes, FORM_RAW, true);
        check_encoder(&eformat_5, bytes, size_bytes, FORM_RAW, true);
        check_encoder(&eformat_3, bytes, size_bytes, FORM_ROS3, is_ros3);
        check_encoder(&eformat_5, bytes, size_bytes, FORM_ROS3, is_ros3);
        return is_ros3 || is_fragment;
}
