/* Reads and changes VDIF headers. stream/rules/vdif_fill.h predicts their sequence. */
#include "format/vdif.h"

#include <endian.h>
#include <errno.h>
#include <string.h>
#include <time.h>

/* Word 0: invalid 31, legacy 30, seconds 29-0. Word 1: unassigned, 0, 31-30, epoch 29-24, frame 23-0. Word 2:
 * version 31-29, log2 of channels 28-24, length 23-0. Word 3: complex 31, bits - 1 30-26, thread 25-16,
 * station 15-0. Word 4: EDV 31-24; in EDV 1 and 3 unit 23 (0 kHz, 1 MHz) and rate 22-0. */
#define INVALID (UINT32_C(1) << 31)
#define LEGACY (UINT32_C(1) << 30)
#define SECONDS_MASK (LEGACY - 1)
#define UNASSIGNED (UINT32_C(3) << 30)
#define LENGTH_MASK UINT32_C(0xffffff)
#define MHZ (UINT32_C(1) << 23)
/* Mark 5B: word 0 is the same in each frame. Word 1: number of the frame 14-0. Word 2, in decimal digits: day
 * 31-20, second of the day 19-0. */
#define MARK5B_SYNC UINT32_C(0xabaddeed)
#define MARK5B_NUMBER_MASK UINT32_C(0x7fff)
#define MARK5B_SECONDS_MASK UINT32_C(0xfffff)
#define EDV_NICT 1u
#define EDV_VLBA 3u

static uint32_t word_of(const uint8_t *bytes, unsigned i)
{
        uint32_t word;

        memcpy(&word, bytes + 4 * i, sizeof word);
        return le32toh(word);
}

static void set_word(uint8_t *bytes, unsigned i, uint32_t word)
{
        word = htole32(word);
        memcpy(bytes + 4 * i, &word, sizeof word);
}

/* The field contains the bandwidth: the rate of complex samples, or half the rate of real samples. */
static uint64_t samples_per_second(uint32_t word, bool complex)
{
        if (word >> 24 != EDV_NICT && word >> 24 != EDV_VLBA)
                return 0;
        return (uint64_t)(word & (MHZ - 1)) * (word & MHZ ? 1000000u : 1000u) * (complex ? 1 : 2);
}

int vdif_read(struct vdif_header *ret, const void *bytes, size_t n)
{
        if (n < VDIF_LEGACY_HEADER_BYTES)
                return -EBADMSG;
        uint32_t w0 = word_of(bytes, 0), w1 = word_of(bytes, 1), w2 = word_of(bytes, 2),
                 w3 = word_of(bytes, 3);
        struct vdif_header h = {
                .invalid = w0 & INVALID,
                .legacy = w0 & LEGACY,
                .seconds = w0 & SECONDS_MASK,
                .epoch = w1 >> 24 & 63,
                .frame = w1 & LENGTH_MASK,
                .channels = UINT32_C(1) << (w2 >> 24 & 31),
                .frame_bytes = (w2 & LENGTH_MASK) * 8,
                .header_bytes = w0 & LEGACY ? VDIF_LEGACY_HEADER_BYTES : VDIF_HEADER_BYTES,
                .complex = w3 >> 31,
                .bits_per_sample = (w3 >> 26 & 31) + 1,
                .thread = w3 >> 16 & 1023,
                .station = w3 & 0xffff,
        };

        if (n < h.header_bytes || h.frame_bytes <= h.header_bytes || w1 & UNASSIGNED)
                return -EBADMSG;
        if (!h.legacy) {
                h.extended_version = word_of(bytes, 4) >> 24;
                h.samples_per_second = samples_per_second(word_of(bytes, 4), h.complex);
        }
        *ret = h;
        return 0;
}

bool vdif_is_filler(const struct vdif_header *h)
{
        return h->invalid && h->seconds == 0 && h->frame == 0 && h->thread == 0;
}

bool mark5b_is_header(const void *bytes)
{
        return word_of(bytes, 0) == MARK5B_SYNC;
}

static uint32_t decimal_of(uint32_t bcd)
{
        uint32_t n = 0;

        for (int shift = 28; shift >= 0; shift -= 4)
                n = n * 10 + (bcd >> shift & 15);
        return n;
}

void mark5b_to_vdif(uint8_t header[static VDIF_HEADER_BYTES])
{
        const bool is_header = mark5b_is_header(header);
        const uint32_t frame = word_of(header, 1) & MARK5B_NUMBER_MASK, time = word_of(header, 2);

        memset(header, 0, VDIF_HEADER_BYTES);
        if (!is_header)
                return;
        set_word(header, 2, MARK5B_FRAME_BYTES / 8);
        vdif_set_time(header, decimal_of(time >> 20) * 86400 + decimal_of(time & MARK5B_SECONDS_MASK), frame);
}

int64_t vdif_unix_s(const struct vdif_header *h)
{
        struct tm epoch = {
                .tm_year = 100 + (int)h->epoch / 2, .tm_mon = h->epoch % 2 == 0 ? 0 : 6, .tm_mday = 1};

        return timegm(&epoch) + h->seconds;
}

void vdif_set_time(void *bytes, uint32_t seconds, uint32_t frame)
{
        set_word(bytes, 0, (word_of(bytes, 0) & ~SECONDS_MASK) | (seconds & SECONDS_MASK));
        set_word(bytes, 1, (word_of(bytes, 1) & ~LENGTH_MASK) | (frame & LENGTH_MASK));
}

void vdif_set_invalid(void *bytes, bool invalid)
{
        set_word(bytes, 0, (word_of(bytes, 0) & ~INVALID) | (invalid ? INVALID : 0));
}

uint32_t vdif_frames_per_second(const struct vdif_header *h)
{
        uint64_t bits_of_all = (uint64_t)h->bits_per_sample * (h->complex ? 2 : 1) * h->channels,
                 samples = (uint64_t)(h->frame_bytes - h->header_bytes) * 8 / bits_of_all;

        if (samples == 0 || h->samples_per_second % samples != 0)
                return 0;
        return h->samples_per_second / samples > VDIF_FRAMES_PER_SECOND_MAX
                       ? 0
                       : (uint32_t)(h->samples_per_second / samples);
}
