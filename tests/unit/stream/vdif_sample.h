/* Small VDIF frames for tests: header and 8 bytes of data. */
#pragma once

#include <stdint.h>
#include <string.h>

#include "format/vdif.h"

#define SAMPLE_FRAME_BYTES 40u

static inline void sample_frame(uint8_t frame[static SAMPLE_FRAME_BYTES], uint32_t seconds, uint32_t number,
                                uint32_t thread, uint8_t fill)
{
        uint32_t words[8] = {seconds, 28u << 24 | number, SAMPLE_FRAME_BYTES / 8,
                             1u << 26 | thread << 16 | 77};

        memcpy(frame, words, sizeof words);
        memset(frame + sizeof words, fill, SAMPLE_FRAME_BYTES - sizeof words);
}
