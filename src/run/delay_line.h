/* One direction of a long path: packets from one TUN device to another one, each after the same time. */
#pragma once

#include <stdatomic.h>
#include <stdint.h>

/* Shared with the process that reads the counters. */
struct delay_line_counts {
        _Atomic uint64_t carried, lost, failed;
};

struct delay_line {
        int from, to; /* not blocking */
        uint64_t delay_ns;
        double loss; /* share of UDP packets */
        uint32_t frame_bytes;
        struct delay_line_counts *counts;

        struct delayed *slots;
        uint8_t *frames;
        uint64_t head, tail; /* packets taken in and passed on */
        uint64_t random;
};

/* The caller has filled the first part. -ENOMEM. */
int delay_line_init(struct delay_line *d);
void delay_line_fini(struct delay_line *d);
/* Takes in what has come, and passes on what is due. */
void delay_line_turn(struct delay_line *d, uint64_t now_ns);
