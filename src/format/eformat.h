/* Raw event formats v3.0 and v5.0: their constants, a bounds-checked walk over untrusted fragments, and
 * encoders that add headers to the fragments of a built event. Pure; encoders refer to payload without
 * copying it, and allocate nothing.  All fields are 32-bit little-endian words, and sizes count words.
 * docs/event-format.md describes the layouts, which are taken from public readers of the formats and were
 * checked against a BESIII file (v3.0). */
#pragma once

#include <endian.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#include "base/util.h"
#include "protocol/event.h"

#define EFORMAT_EVENT 0xAA1234AAu
#define EFORMAT_SUBDET 0xBB1234BBu
#define EFORMAT_ROS 0xCC1234CCu
#define EFORMAT_ROB 0xDD1234DDu
#define EFORMAT_ROD 0xEE1234EEu

#define EFORMAT_VERSION_3 0x03000000u
#define EFORMAT_VERSION_5 0x05000000u

/* Source IDs: the sub-detector in bits 16 to 23, the module in bits 0 to 15. */
#define EFORMAT_SUBDET_RAW 0x70u /* sub-detector of FORM_RAW sources */
#define EFORMAT_SUBDET_SFI 0x79u /* sub-detector in the header of an event, and of its stamp */

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
#define EFORMAT_EVENT_DUPLICATE_DFM (0x8u << 16)

/* Converts a fragment status to the status word of its ROB; 0 for FRAGMENT_OK. A lost, pending or discarded
 * fragment becomes a dummy: ROS, ROB and a ROD without data. */
uint32_t eformat_rob_status(enum fragment_status status);

enum eformat_checksum { EFORMAT_CHECKSUM_NONE = 0, EFORMAT_CHECKSUM_CRC16 = 1, EFORMAT_CHECKSUM_ADLER32 = 2 };

/* ---- Walking ---- */

/* A violation of the format. `reason` is static text. `offset_bytes` is the position of the invalid fragment
 * or word, counted from the first byte of the walk. */
struct eformat_fault {
        size_t offset_bytes;
        const char *reason;
};

/* One fragment in place. Words may be unaligned; read them with eformat_word(). */
struct eformat_fragment {
        uint32_t marker, version, source_id;
        unsigned depth;       /* 0: the outermost fragment */
        size_t offset_bytes;  /* from the first byte of the walk */
        const uint8_t *bytes; /* first byte of the fragment */
        uint32_t size_words;  /* size including header and trailer */
        uint32_t header_words;
        const uint8_t *status; /* n_status words */
        uint32_t n_status;
        /* n_specific words. ROD: run, L1 ID, BC ID, L1 trigger type, detector event type */
        const uint8_t *specific;
        uint32_t n_specific;
        const uint8_t *payload; /* bytes between header and checksum; ROD: its data words */
        uint32_t payload_words;
        uint32_t checksum_type; /* enum eformat_checksum, as found; 0 in v3.0 and RODs */
};

static inline uint32_t eformat_word(const uint8_t *words, size_t index)
{
        uint32_t v;

        __builtin_memcpy(&v, words + 4 * index, sizeof v);
        return le32toh(v);
}

/* Called for each fragment in byte order, parents first. A return value other than 0 ends the walk and
 * becomes its result. The walk has checked the fragment's own header, but not yet its children. */
typedef int (*eformat_visit)(void *userdata, const struct eformat_fragment *fragment);

/* Checks that the bytes are exactly one fragment (event, sub-detector, ROS or ROB; its version word selects
 * v3.0 or v5.0), and calls `visit` (may be NULL) for it and each nested fragment. It does not check
 * checksums, and does not enter a compressed v5.0 event. Returns 0, -EBADMSG with the position in *ret_fault
 * (may be NULL), or the value that `visit` returned. */
int eformat_walk(const void *bytes, size_t size_bytes, eformat_visit visit, void *userdata,
                 struct eformat_fault *ret_fault);

/* Reads the header of an event that a walk has checked, and its stamp. In v3.0, bc_id is 0; without a stamp,
 * time_ns is 0 too, and global_id has 32 bits. */
void eformat_event_info(const struct eformat_fragment *event, struct event_info *ret);

#define ADLER_BEGIN 1u
/* Continues an Adler-32 checksum, of which ADLER_BEGIN is that of no bytes. */
uint32_t adler_add(uint32_t sum, const void *bytes, size_t size_bytes);
/* Continues it by bytes whose own checksum is `next`. */
uint32_t adler_join(uint32_t sum, uint32_t next, uint64_t next_bytes);

enum eformat_sum {
        EFORMAT_SUM_NONE,
        EFORMAT_SUM_OK,
        EFORMAT_SUM_WRONG,
        EFORMAT_SUM_UNKNOWN /* not Adler-32 */
};

/* Checks the checksum of a fragment that a walk has checked. The sum of an event with a stamp is right if the
 * sums of its stamp and of its payload are. */
enum eformat_sum eformat_verify_sum(const struct eformat_fragment *fragment);

/* Whether the event, which a walk has checked, ends with the builder's stamp (v3.0), or has it among its HLT
 * words (v5.0). The stamp has what the builder knows of an event and what format v3.0 has no word for. */
bool eformat_has_stamp(const struct eformat_fragment *event);

/* Returns the exact payload of a FORM_RAW source from the ROD of our encoder, or false for other RODs. The
 * data words are the payload, padded with zero bytes; the status words are {0, payload bytes}. */
bool eformat_raw_payload(const struct eformat_fragment *rod, const uint8_t **ret_payload,
                         uint32_t *ret_size_bytes);

/* ---- FORM_ROS3 ---- */

/* The two parts of a FORM_ROS3 fragment, in place. */
struct eformat_ros3 {
        uint32_t subdet_source_id, subdet_header_bytes; /* at the front */
        uint32_t ros_source_id, ros_bytes;              /* the remaining bytes */
        unsigned n_robs;
        bool l1_mismatch; /* a ROS or ROD header has an L1 ID other than l1_id */
};

#define EFORMAT_ROS3_HEADER_MAX_BYTES 64u /* maximum size of a sub-detector header */

/* Checks an untrusted fragment; returns 0 or -EBADMSG. L1 mismatches are not an error, because they occur in
 * intact data. */
int eformat_ros3_parse(const void *data, size_t size_bytes, uint32_t l1_id, struct eformat_ros3 *ret,
                       struct eformat_fault *ret_fault);
/* Adds `to - from` to the L1 IDs in the ROS and ROD headers of a parsed FORM_ROS3 fragment, in place. An ID
 * of 0 (not set by its sub-detector) stays 0, unless `from` is 0. */
int eformat_ros3_renumber(void *data, size_t size_bytes, uint32_t from, uint32_t to);

/* ---- Encoding ---- */

struct built_fragment {
        const void *data; /* borrowed until the encoding is written; NULL if the size is 0 */
        uint32_t size_bytes;
        uint32_t source_id; /* ID of its ROS; also required for a missing fragment */
        /* Position in the event, ascending; equal values keep the order of the array. Ignored for an empty
         * FORM_ROS3 fragment, which follows the last one of its sub-detector. */
        uint16_t order;
        uint8_t form;   /* enum fragment_form */
        uint8_t status; /* enum fragment_status; FRAGMENT_LOST for a missing fragment */
        bool optional;  /* the event is not partial without this fragment */
};

struct built_event {
        struct event_info info; /* `info.event` becomes part of the stamp */
        uint32_t status; /* e.g. EFORMAT_EVENT_DUPLICATE_DFM; the encoder adds PARTIAL and generic bits */
        size_t n_fragments;
        struct built_fragment *fragments; /* in any order; not changed */
};

/* Settings for all events of a run. */
struct eformat_settings {
        uint32_t sfi_source_id;         /* used if info.source_id is 0; see eformat_sfi_id() */
        enum eformat_checksum checksum; /* v5.0: NONE or ADLER32, for the event and each ROB */
        uint32_t run_type, lumi_block;  /* v5.0 */
};

/* Maximum number of ROBs in a v5.0 event; only EVB_ROS_MAX limits v3.0. */
#define EFORMAT_ROBS_MAX 4096u
#define EFORMAT_IOV_MAX (2 * EFORMAT_ROBS_MAX + 2)
#define EFORMAT_SCRATCH_BYTES (256u << 10)

/* An encoded event: `iov` refers to its bytes, in `scratch` and in the fragments' data. Takes about 390 KiB,
 * so allocate one per thread at start. It can be reused once its bytes are written. */
struct eformat_encoding {
        size_t n_iov;
        size_t size_bytes;
        uint32_t sum;             /* Adler-32 of all bytes; 0: unknown */
        struct event_info info;   /* of the event, with the status as written */
        uint64_t payload_bytes;   /* payload of the received fragments */
        unsigned n_missing;       /* number of dummies, including those for malformed fragments */
        unsigned n_malformed;     /* number of invalid FORM_ROS3 fragments; each became a dummy with
                                     EFORMAT_CORRUPT */
        unsigned n_l1_mismatches; /* FORM_ROS3 fragments whose L1 ID differs from the event's; written
                                     unchanged */
        struct iovec iov[EFORMAT_IOV_MAX];
        uint8_t scratch[EFORMAT_SCRATCH_BYTES];
};

struct eformat {
        const char *name; /* value of sfi.format */
        uint32_t version;
        unsigned storage_version; /* of its EventStorage file */
        /* Encodes an event of at most EVB_ROS_MAX fragments; skips those with FRAGMENT_NONE. Returns 0;
         * -E2BIG: too many fragments; -ENOBUFS: more than EFORMAT_ROBS_MAX ROBs (v5.0); -EMSGSIZE: the event
         * exceeds a data record (4 GiB). */
        int (*encode)(const struct built_event *event, const struct eformat_settings *settings,
                      struct eformat_encoding *ret);
};

extern const struct eformat eformat_3; /* "eformat3": v3.0, event > sub-detector > ROS > ROB > ROD */
extern const struct eformat eformat_5; /* "eformat5": v5.0, event > ROB > ROD; splits v3.0 ROS fragments */
