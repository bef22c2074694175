/* The free space of an SFI's file system, and the time until it is full at the present rate. One thread. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* Interval between two readings. */
#define DISK_LOOK_NS (5 * NS_PER_S)
#define DISK_TEXT_MAX 96

struct disk_space {
        bool known;
        uint64_t free_bytes; /* available to this user */
        uint64_t size_bytes;
};

/* Reads the free space, which may be slow on a network file system. */
void disk_space_read(struct disk_space *ret, const char *directory);

/* The last two windows of readings; the rate is measured from the start of the older one. All members are 0
 * at first. */
struct disk_trend {
        uint64_t older_ns, older_bytes, newer_ns, newer_bytes;
        /* Time until the file system is full, at least 1; 0: unknown, or it is not filling up. */
        uint64_t left_s;
        bool is_low; /* space was low at the last reading */
};

/* Adds a reading. Returns whether the space has become low, so that a warning is due. Other programs may
 * write to the same file system, or remove files from it. */
bool disk_trend_add(struct disk_trend *t, uint64_t now_ns, const struct disk_space *s);
/* Whether less than 5 % is free, or the file system will be full within an hour. For `left_s` see struct
 * disk_trend. */
bool disk_space_is_low(const struct disk_space *s, uint64_t left_s);
/* "412 GB of 2 TB free, full in 7.2 h"; returns `text`. */
const char *disk_space_format(const struct disk_space *s, uint64_t left_s, char text[static DISK_TEXT_MAX]);
