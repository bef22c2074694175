/* The raw event formats v3.0 and v5.0: their words, a bounds-checked walk over untrusted fragments, and the
 * encoders that put headers around the fragments of a built event. Pure: bytes and lists of places in, the
 * same out; payload is referenced where it lies and never copied, nothing is allocated.
 *
 * Everything is 32-bit little-endian words, sizes in words. Source of the layouts: public readers of the
 * formats, checked against a BESIII file (v3.0); docs/event-format.md has the tables. */
#pragma once

#include <endian.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#include "evb/base/util.h"
#include "evb/protocol/event.h"

#define EFORMAT_EVENT 0xAA1234AAu
#define EFORMAT_SUBDET 0xBB1234BBu
#define EFORMAT_ROS 0xCC1234CCu
#define EFORMAT_ROB 0xDD1234DDu
#define EFORMAT_ROD 0xEE1234EEu

#define EFORMAT_VERSION_3 0x03000000u
#define EFORMAT_VERSION_5 0x05000000u

/* Source ids: the sub-detector in bits 16 to 23, the module below. */
#define EFORMAT_SUBDET_RAW 0x70u /* sources of FORM_RAW */
#define EFORMAT_SUBDET_SFI 0x79u /* in the header of an event */

static inline uint32_t eformat_source_id(uint32_t ros_index)
{
        return EFORMAT_SUBDET_RAW << 16 | (ros_index & 0xffff);
}

static inline uint32_t eformat_sfi_id(uint32_t sfi_index)
{
        return EFORMAT_SUBDET_SFI << 16 | (sfi_index & 0xffff);
}

static inline uint8_t eformat_subdet(uint32_t source_id)
{
        return (uint8_t)(source_id >> 16);
}

/* Bits of a status word: `specific << 16 | generic`. */
enum eformat_generic {
        EFORMAT_BC_MISMATCH = 0x1,
        EFORMAT_L1_MISMATCH = 0x2,
        EFORMAT_TIMEOUT = 0x4,
        EFORMAT_CORRUPT = 0x8,
        EFORMAT_OVERFLOW = 0x10,
        EFORMAT_DUMMY = 0x20,
};

#define EFORMAT_ROB_LOST (0x2000u << 16)
#define EFORMAT_ROB_PENDING (0x4000u << 16)
#define EFORMAT_ROB_DISCARDED (0x8000u << 16)
#define EFORMAT_ROB_TRUNCATED (0x0800u << 16)
#define EFORMAT_EVENT_PARTIAL (0x8000u << 16)
#define EFORMAT_EVENT_DUPLICATE_SFI (0x4u << 16)
#define EFORMAT_EVENT_DUPLICATE_DFM (0x8u << 16)

/* The status word of a ROB whose fragment came (or did not come) with `status`: 0 for FRAGMENT_OK. Those of
 * LOST, PENDING and DISCARDED make it a dummy: ROS, ROB and a ROD without data. */
uint32_t eformat_rob_status(enum fragment_status status);

enum eformat_checksum { EFORMAT_CHECKSUM_NONE = 0, EFORMAT_CHECKSUM_CRC16 = 1, EFORMAT_CHECKSUM_ADLER32 = 2 };

/* ---- Walking ---- */

/* Where bytes are not what the format says. `reason` is static text; `offset_bytes` is that of the fragment
 * (or word) at fault, from the first byte walked. */
struct eformat_fault {
        size_t offset_bytes;
        const char *reason;
};

/* One fragment in place. Words are little-endian and may lie at any address: read them by eformat_word(). */
struct eformat_fragment {
        uint32_t marker, version, source_id;
        unsigned depth;       /* 0: the fragment walked */
        size_t offset_bytes;  /* from the first byte walked */
        const uint8_t *bytes; /* its first byte */
        uint32_t size_words;  /* whole, trailer included */
        uint32_t header_words;
        const uint8_t *status; /* n_status words */
        uint32_t n_status;
        const uint8_t *
                specific; /* n_specific words. ROD: run, L1 id, bc id, L1 trigger type, detector event type */
        uint32_t n_specific;
        const uint8_t *payload; /* between header and checksum; ROD: its data words */
        uint32_t payload_words;
        uint32_t checksum_type; /* enum eformat_checksum, as found; 0 in v3.0 and RODs */
};

static inline uint32_t eformat_word(const uint8_t *words, size_t index)
{
        uint32_t v;

        __builtin_memcpy(&v, words + 4 * index, sizeof v);
        return le32toh(v);
}

/* Called for each fragment, parents first, in the order of the bytes; a return other than 0 ends the walk and
 * is its result. A fragment's own header is valid when it is visited, its children may not be. */
typedef int (*eformat_visit)(void *userdata, const struct eformat_fragment *fragment);

/* Checks that [bytes, bytes + size_bytes) is exactly one whole fragment (event, sub-detector, ROS or ROB;
 * v3.0 or v5.0 by its version word) with everything inside it, and shows each part to `visit` (may be NULL).
 * Checksums are not looked at; a compressed v5.0 event is shown without its insides. 0; -EBADMSG: not so,
 * *ret_fault (may be NULL) says where; or what `visit` returned. */
int eformat_walk(const void *bytes, size_t size_bytes, eformat_visit visit, void *userdata,
                 struct eformat_fault *ret_fault);

/* What the header of an event says; `event` has been walked. time_ns and bc_id are 0 in v3.0; global_id has
 * 32 bits there. */
void eformat_event_info(const struct eformat_fragment *event, struct event_info *ret);

enum eformat_sum {
        EFORMAT_SUM_NONE,
        EFORMAT_SUM_OK,
        EFORMAT_SUM_WRONG,
        EFORMAT_SUM_UNKNOWN /* not Adler-32 */
};

enum eformat_sum eformat_verify_sum(const struct eformat_fragment *fragment);

/* The payload of a FORM_RAW source, to the byte, out of the ROD that the encoder put around it: true where
 * `rod` is one. Its data words are the payload padded with zero bytes; its status words are {0, payload
 * bytes}. */
bool eformat_raw_payload(const struct eformat_fragment *rod, const uint8_t **ret_payload,
                         uint32_t *ret_size_bytes);

/* ---- FORM_ROS3 ---- */

/* The two parts of a FORM_ROS3 fragment, in place. */
struct eformat_ros3 {
        uint32_t subdet_source_id, subdet_header_bytes; /* at the front */
        uint32_t ros_source_id, ros_bytes;              /* the rest */
        unsigned n_robs;
        bool l1_mismatch; /* some ROS or ROD header in it has another L1 id than was asked for */
};

#define EFORMAT_ROS3_HEADER_MAX_BYTES 64u /* of its sub-detector header */

/* Checks all of it (untrusted). Honest data has L1 mismatches, so that is no fault. 0 or -EBADMSG. */
int eformat_ros3_parse(const void *data, size_t size_bytes, uint32_t l1_id, struct eformat_ros3 *ret,
                       struct eformat_fault *ret_fault);
/* Renumbers the ROS and ROD headers of a parsed FORM_ROS3 fragment, in place: L1 ids equal to `from` become
 * `to`, others stay as far from it as they were, and 0 (not filled in by its sub-detector) stays 0 unless
 * `from` is 0. */
int eformat_ros3_renumber(void *data, size_t size_bytes, uint32_t from, uint32_t to);

/* ---- Encoding ---- */

struct built_fragment {
        const void *data; /* borrowed until the encoding has been written; NULL where size is 0 */
        uint32_t size_bytes;
        uint32_t source_id; /* of its ROS; needed also where nothing came */
        /* Place in the event, ascending, ties in the order of the array. That of a FORM_ROS3 fragment without
         * bytes is not known and not looked at: it goes behind the last one of its sub-detector. */
        uint16_t order;
        uint8_t form;   /* enum fragment_form */
        uint8_t status; /* enum fragment_status; a fragment that did not come at all: FRAGMENT_LOST */
};

struct built_event {
        struct event_info info;
        uint32_t status; /* EFORMAT_EVENT_DUPLICATE_DFM say; the encoder itself adds PARTIAL and generic bits
                          */
        size_t n_fragments;
        struct built_fragment *fragments; /* any order; left as they are */
};

/* The same for all events of a run. */
struct eformat_settings {
        uint32_t sfi_source_id;         /* for headers where info.source_id is 0: eformat_sfi_id() */
        enum eformat_checksum checksum; /* v5.0: NONE or ADLER32, on the event and each ROB */
        uint32_t run_type, lumi_block;  /* v5.0 */
};

/* ROBs in one v5.0 event at the most; v3.0 is bound by EVB_ROS_MAX alone. */
#define EFORMAT_ROBS_MAX 4096u
#define EFORMAT_IOV_MAX (2 * EFORMAT_ROBS_MAX + 2)
#define EFORMAT_SCRATCH_BYTES (256u << 10)

/* An encoded event: `iov` names its bytes in order, partly in `scratch`, partly in the fragments' own data.
 * Some 390 KiB: allocate one a thread, ahead. It may be used again at once after the bytes have been written.
 */
struct eformat_encoding {
        size_t n_iov;
        size_t size_bytes;
        uint32_t status;        /* of the event, as written */
        uint64_t payload_bytes; /* of the fragments that came */
        unsigned n_missing;     /* dummies made, malformed ones included */
        unsigned n_malformed; /* FORM_ROS3 fragments that were none; each became a dummy with EFORMAT_CORRUPT
                               */
        unsigned n_l1_mismatches; /* FORM_ROS3 fragments with a foreign L1 id inside; their bytes are left
                                     alone */
        struct iovec iov[EFORMAT_IOV_MAX];
        uint8_t scratch[EFORMAT_SCRATCH_BYTES];
};

struct eformat {
        const char *name; /* value of sfi.format */
        uint32_t version;
        unsigned storage_version; /* of the EventStorage file that carries it */
        /* Any fragments of at most EVB_ROS_MAX sources make an event; FRAGMENT_NONE leaves no trace. 0;
         * -E2BIG: more fragments than that; -ENOBUFS: more than EFORMAT_ROBS_MAX ROBs (v5.0); -EMSGSIZE:
         * larger than a file's data record can be (4 GiB). */
        int (*encode)(const struct built_event *event, const struct eformat_settings *settings,
                      struct eformat_encoding *ret);
};

extern const struct eformat eformat_3; /* "eformat3": v3.0, event > sub-detector > ROS > ROB > ROD */
extern const struct eformat
        eformat_5; /* "eformat5": v5.0, event > ROB > ROD; ROS fragments of v3.0 are taken apart */

/* NULL: no such name. */
const struct eformat *eformat_by_name(const char *name);
