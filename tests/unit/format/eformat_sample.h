/* Shared by the tests of the event formats: flattens an encoding, and makes v3.0 fragments word by word. */
#pragma once

#include <stdlib.h>
#include <string.h>

#include "format/eformat.h"

static inline uint8_t *flatten(const struct eformat_encoding *e)
{
        uint8_t *bytes = malloc(e->size_bytes + 1), *at = bytes;

        for (size_t i = 0; i < e->n_iov; i++) {
                if (e->iov[i].iov_len > 0)
                        memcpy(at, e->iov[i].iov_base, e->iov[i].iov_len);
                at += e->iov[i].iov_len;
        }
        if (at != bytes + e->size_bytes ||
            (e->sum != 0 && e->sum != adler_add(ADLER_BEGIN, bytes, e->size_bytes)))
                abort();
        return bytes;
}

/* Makes a sub-detector header (9 words), a ROS, and `n_robs` ROBs of `n_data` data words; returns the number
 * of words. */
static inline size_t sample_ros3(uint32_t *w, uint32_t subdet_id, uint32_t ros_id, uint32_t l1_id,
                                 unsigned n_robs, unsigned n_data)
{
        uint32_t rob = 8 + 9 + n_data + 1 + 3;
        uint32_t front[] = {EFORMAT_SUBDET,
                            9 + 11 + n_robs * rob,
                            9,
                            EFORMAT_VERSION_3,
                            subdet_id,
                            1,
                            0,
                            1,
                            0,
                            EFORMAT_ROS,
                            11 + n_robs * rob,
                            11,
                            EFORMAT_VERSION_3,
                            ros_id,
                            1,
                            0,
                            3,
                            7,
                            l1_id,
                            0};
        size_t n = sizeof front / 4;

        memcpy(w, front, sizeof front);
        for (unsigned i = 0; i < n_robs; i++) {
                uint32_t head[] = {EFORMAT_ROB, rob,         8, EFORMAT_VERSION_3, ros_id + i, 1, 0,
                                   0,           EFORMAT_ROD, 9, EFORMAT_VERSION_3, ros_id + i, 0, l1_id,
                                   0,           0,           0};
                uint32_t tail[] = {0x00ffffff, 1, n_data, 1};

                memcpy(w + n, head, sizeof head);
                n += sizeof head / 4;
                for (unsigned k = 0; k < n_data; k++)
                        w[n++] = 0x1000 * i + k;
                memcpy(w + n, tail, sizeof tail);
                n += sizeof tail / 4;
        }
        return n;
}
