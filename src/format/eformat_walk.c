/* Walks over untrusted fragments of v3.0 and v5.0 by recursive descent, at most five levels deep. It checks
 * each size against the enclosing fragment before use. eformat.c interprets the fields. */
#include "format/eformat.h"

#include <errno.h>

#define STATUS_WORDS_MAX 63u /* more than any known system writes; bounds the arithmetic */
#define ROD_HEADER_WORDS 9u
#define ROD_TRAILER_WORDS 3u
#define EVENT5_FIXED_WORDS 23u /* without status and info words */
#define ROB5_FIXED_WORDS 7u

struct walk {
        const uint8_t *base;
        eformat_visit visit;
        void *userdata;
        struct eformat_fault fault;
};

static int walk_bad(struct walk *w, const uint8_t *at, const char *reason)
{
        w->fault = (struct eformat_fault){.offset_bytes = (size_t)(at - w->base), .reason = reason};
        return -EBADMSG;
}

static int walk_visit(struct walk *w, const struct eformat_fragment *f)
{
        return w->visit ? w->visit(w->userdata, f) : 0;
}

/* Reads the fields with which all headers except a ROD's begin. The parent has `room_words` words left. */
static int walk_common(struct walk *w, const uint8_t *at, size_t room_words, unsigned depth,
                       struct eformat_fragment *f)
{
        if (room_words < 7)
                return walk_bad(w, at, "truncated fragment header");
        *f = (struct eformat_fragment){
                .marker = eformat_word(at, 0),
                .version = eformat_word(at, 3),
                .source_id = eformat_word(at, 4),
                .depth = depth,
                .offset_bytes = (size_t)(at - w->base),
                .bytes = at,
                .size_words = eformat_word(at, 1),
                .header_words = eformat_word(at, 2),
                .status = at + 24,
                .n_status = eformat_word(at, 5),
        };
        if (f->size_words > room_words)
                return walk_bad(w, at, "fragment exceeds its parent");
        if (f->header_words > f->size_words)
                return walk_bad(w, at, "header exceeds its fragment");
        if (f->n_status > STATUS_WORDS_MAX)
                return walk_bad(w, at, "too many status words");
        if (f->header_words < 7 + f->n_status)
                return walk_bad(w, at, "header too small for its status words");
        f->payload = at + 4 * (size_t)f->header_words;
        f->payload_words = f->size_words - f->header_words;
        return 0;
}

static int walk_header3(struct walk *w, struct eformat_fragment *f)
{
        f->n_specific = eformat_word(f->bytes, 6 + f->n_status);
        f->specific = f->bytes + 4 * (7 + (size_t)f->n_status);
        if (f->n_specific != f->header_words - 7 - f->n_status)
                return walk_bad(w, f->bytes, "header size does not match its counts");
        if (f->marker == EFORMAT_EVENT && f->n_specific < 10)
                return walk_bad(w, f->bytes, "event header has fewer than 10 specific words");
        if (f->marker == EFORMAT_ROS && f->n_specific < 3)
                return walk_bad(w, f->bytes, "ROS header has fewer than 3 specific words");
        return 0;
}

/* An event header ends with four groups, each of which consists of a count and that number of words. */
static int walk_info5(struct walk *w, const struct eformat_fragment *f)
{
        size_t at = 19 + (size_t)f->n_status;

        for (unsigned i = 0; i < 4; i++) {
                if (at >= f->header_words)
                        return walk_bad(w, f->bytes, "info words exceed the header");
                at += 1 + (size_t)eformat_word(f->bytes, at);
        }
        return at == f->header_words ? 0 : walk_bad(w, f->bytes, "header size does not match its info words");
}

static int walk_header5(struct walk *w, struct eformat_fragment *f)
{
        uint32_t fixed = f->marker == EFORMAT_EVENT ? EVENT5_FIXED_WORDS : ROB5_FIXED_WORDS;
        int r;

        f->checksum_type = eformat_word(f->bytes, 6 + f->n_status);
        f->specific = f->bytes + 4 * (7 + (size_t)f->n_status);
        f->n_specific = f->header_words - 7 - f->n_status;
        if (f->header_words < fixed + f->n_status || (f->marker == EFORMAT_ROB && f->n_specific > 0))
                return walk_bad(w, f->bytes, "header size does not match its counts");
        if (f->marker == EFORMAT_EVENT) {
                r = walk_info5(w, f);
                if (r < 0)
                        return r;
        }
        if (f->checksum_type != EFORMAT_CHECKSUM_NONE) {
                if (f->payload_words == 0)
                        return walk_bad(w, f->bytes, "no room for the checksum");
                f->payload_words--;
        }
        return 0;
}

/* A ROD fills the whole payload of its ROB. */
static int walk_rod(struct walk *w, const struct eformat_fragment *rob)
{
        const uint8_t *at = rob->payload;
        size_t words = rob->payload_words, n_status, n_data;
        struct eformat_fragment f;
        bool data_first;

        if (words < ROD_HEADER_WORDS + ROD_TRAILER_WORDS)
                return walk_bad(w, at, "truncated ROD");
        if (eformat_word(at, 0) != EFORMAT_ROD)
                return walk_bad(w, at, "missing ROD marker");
        if (eformat_word(at, 1) != ROD_HEADER_WORDS)
                return walk_bad(w, at, "ROD header size is not 9 words");
        n_status = eformat_word(at, words - 3);
        n_data = eformat_word(at, words - 2);
        data_first = eformat_word(at, words - 1) != 0;
        if (n_status + n_data != words - ROD_HEADER_WORDS - ROD_TRAILER_WORDS)
                return walk_bad(w, at, "ROD size does not match its counts");
        f = (struct eformat_fragment){
                .marker = EFORMAT_ROD,
                .version = eformat_word(at, 2),
                .source_id = eformat_word(at, 3),
                .depth = rob->depth + 1,
                .offset_bytes = (size_t)(at - w->base),
                .bytes = at,
                .size_words = (uint32_t)words,
                .header_words = ROD_HEADER_WORDS,
                .specific = at + 16,
                .n_specific = 5,
                .status = at + 4 * (ROD_HEADER_WORDS + (data_first ? n_data : 0)),
                .n_status = (uint32_t)n_status,
                .payload = at + 4 * (ROD_HEADER_WORDS + (data_first ? 0 : n_status)),
                .payload_words = (uint32_t)n_data,
        };
        return walk_visit(w, &f);
}

static uint32_t child_marker(const struct eformat_fragment *f)
{
        if (f->marker == EFORMAT_EVENT)
                return f->version >> 24 == 3 ? EFORMAT_SUBDET : EFORMAT_ROB;
        return f->marker == EFORMAT_SUBDET ? EFORMAT_ROS : EFORMAT_ROB;
}

static const char *marker_reason(uint32_t wanted)
{
        switch (wanted) {
        case EFORMAT_SUBDET:
                return "missing sub-detector marker";
        case EFORMAT_ROS:
                return "missing ROS marker";
        default:
                return "missing ROB marker";
        }
}

static bool is_compressed(const struct eformat_fragment *f)
{
        return f->marker == EFORMAT_EVENT && f->version >> 24 == 5 && eformat_word(f->specific, 10) != 0;
}

static int walk_fragment(struct walk *w, const uint8_t *at, size_t room_words,
                         const struct eformat_fragment *parent);

static int walk_children(struct walk *w, const struct eformat_fragment *f)
{
        size_t done = 0;

        if (f->payload_words == 0 || is_compressed(f))
                return 0;
        if (f->marker == EFORMAT_ROB)
                return walk_rod(w, f);
        while (done < f->payload_words) {
                const uint8_t *at = f->payload + 4 * done;
                int r = walk_fragment(w, at, f->payload_words - done, f);

                if (r != 0)
                        return r;
                done += eformat_word(at, 1);
        }
        return 0;
}

static int walk_fragment(struct walk *w, const uint8_t *at, size_t room_words,
                         const struct eformat_fragment *parent)
{
        struct eformat_fragment f;
        int r = walk_common(w, at, room_words, parent ? parent->depth + 1 : 0, &f);

        /* A wrong marker is a better reason than the wrong sizes that result from it. */
        if (parent && room_words >= 7 && f.marker != child_marker(parent))
                return walk_bad(w, at, marker_reason(child_marker(parent)));
        if (r < 0)
                return r;
        if (parent && f.version >> 16 != parent->version >> 16)
                return walk_bad(w, at, "version differs from that of the parent");
        r = f.version >> 24 == 3 ? walk_header3(w, &f) : walk_header5(w, &f);
        if (r == 0)
                r = walk_visit(w, &f);
        return r != 0 ? r : walk_children(w, &f);
}

static int walk_top(struct walk *w, const uint8_t *at, size_t size_bytes)
{
        uint32_t marker, version;

        if (size_bytes < 28)
                return walk_bad(w, at, "truncated fragment header");
        if (size_bytes % 4 != 0)
                return walk_bad(w, at, "size is not a multiple of 4 bytes");
        marker = eformat_word(at, 0);
        version = eformat_word(at, 3) >> 16;
        if (version != EFORMAT_VERSION_3 >> 16 && version != EFORMAT_VERSION_5 >> 16)
                return walk_bad(w, at, "unsupported version; expected 3.0 or 5.0");
        if (marker != EFORMAT_EVENT && marker != EFORMAT_ROB &&
            (version != EFORMAT_VERSION_3 >> 16 || (marker != EFORMAT_SUBDET && marker != EFORMAT_ROS)))
                return walk_bad(w, at, "missing fragment marker");
        if (eformat_word(at, 1) != size_bytes / 4)
                return walk_bad(w, at, "fragment size differs from that of its buffer");
        return walk_fragment(w, at, size_bytes / 4, NULL);
}

int eformat_walk(const void *bytes, size_t size_bytes, eformat_visit visit, void *userdata,
                 struct eformat_fault *ret_fault)
{
        struct walk w = {.base = bytes, .visit = visit, .userdata = userdata};
        int r = walk_top(&w, bytes, size_bytes);

        if (r == -EBADMSG && w.fault.reason && ret_fault)
                *ret_fault = w.fault;
        return r;
}
