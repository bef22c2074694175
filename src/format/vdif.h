/* The header of a VDIF data frame (VLBI Data Interchange Format, release 1.1.1): read from bytes and changed
 * in place. Pure. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define VDIF_LEGACY_HEADER_BYTES 16u
#define VDIF_HEADER_BYTES 32u
/* The length field of a frame has 24 bits and counts units of 8 bytes. */
#define VDIF_FRAME_MAX_BYTES ((UINT32_C(1) << 24) * 8 - 8)
/* The number of a frame has 24 bits, too. */
#define VDIF_FRAMES_PER_SECOND_MAX (UINT32_C(1) << 24)

struct vdif_header {
        bool invalid, legacy, complex;
        uint32_t seconds; /* since the reference epoch */
        uint32_t frame;   /* number within the second */
        uint32_t epoch;   /* half-years since 2000 */
        uint32_t frame_bytes, header_bytes;
        uint32_t channels, bits_per_sample;
        uint32_t thread, station;
        uint32_t extended_version;   /* EDV; 0 if legacy */
        uint64_t samples_per_second; /* of a channel, from the extended data; 0: unknown */
};

/* Reads a header from n bytes. Returns -EBADMSG if the bytes are too few, or do not describe a frame that is
 * longer than its header. */
int vdif_read(struct vdif_header *ret, const void *bytes, size_t n);
/* Whether the frame replaces one that a recorder or player did not have: such a frame is invalid, with zeros
 * as time and thread. */
bool vdif_is_filler(const struct vdif_header *h);
/* Number of bytes of a Mark 5B frame, whose header has no size. */
#define MARK5B_FRAME_BYTES 10016u
/* Whether `bytes` begin a Mark 5B frame. */
bool mark5b_is_header(const void *bytes);
/* Replaces the header of a Mark 5B frame with a VDIF header of its size, second and number. Bytes that are
 * not such a header become zeros, which are not a VDIF header. */
void mark5b_to_vdif(uint8_t header[static VDIF_HEADER_BYTES]);
/* Returns the time of the second in Unix time, as of UTC without leap seconds. */
int64_t vdif_unix_s(const struct vdif_header *h);
/* These functions change the header in place; `bytes` contains a header that vdif_read() accepted. */
void vdif_set_time(void *bytes, uint32_t seconds, uint32_t frame);
void vdif_set_invalid(void *bytes, bool invalid);
/* Number of frames of one thread per second, according to the sample rate in the header; 0: the header does
 * not state the rate, or the result is not an integer. */
uint32_t vdif_frames_per_second(const struct vdif_header *h);
