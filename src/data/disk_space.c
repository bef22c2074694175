/* Tracks the free bytes over a window of 30 s to 60 s. Writes of all programs count. */
#include "data/disk_space.h"

#include <stdio.h>
#include <sys/statvfs.h>

#include "base/quantity.h"
#include "base/util.h"

#define WINDOW_NS (30 * NS_PER_S)
/* A shorter time shows no rate, because file systems reserve space in large steps. */
#define LEAST_NS (10 * NS_PER_S)
#define LOW_PERCENT 5
#define LOW_LEFT_S 3600
#define MINUTE_S 60
#define HOUR_S 3600

void disk_space_read(struct disk_space *ret, const char *directory)
{
        struct statvfs v;

        *ret = (struct disk_space){};
        if (statvfs(directory, &v) < 0)
                return;
        ret->known = true;
        ret->free_bytes = (uint64_t)v.f_bavail * v.f_frsize;
        ret->size_bytes = (uint64_t)v.f_blocks * v.f_frsize;
}

bool disk_space_is_low(const struct disk_space *s, uint64_t left_s)
{
        return s->known && ((double)s->free_bytes * 100 < (double)s->size_bytes * LOW_PERCENT ||
                            (left_s > 0 && left_s < LOW_LEFT_S));
}

static uint64_t find_left_s(const struct disk_trend *t, uint64_t now_ns, uint64_t free_bytes)
{
        double seconds = (double)(now_ns - t->older_ns) / NS_PER_S, left_s;

        if (now_ns - t->older_ns < LEAST_NS || free_bytes >= t->older_bytes)
                return 0;
        left_s = (double)free_bytes * seconds / (double)(t->older_bytes - free_bytes);
        return left_s < (double)UINT32_MAX ? MAX((uint64_t)left_s, UINT64_C(1)) : 0;
}

/* Freed space says nothing about the rate, so the windows restart. */
static void move_windows(struct disk_trend *t, uint64_t now_ns, uint64_t free_bytes)
{
        if (t->newer_ns == 0 || free_bytes > t->newer_bytes) {
                t->older_ns = t->newer_ns = now_ns;
                t->older_bytes = t->newer_bytes = free_bytes;
        } else if (now_ns - t->newer_ns >= WINDOW_NS) {
                t->older_ns = t->newer_ns;
                t->older_bytes = t->newer_bytes;
                t->newer_ns = now_ns;
                t->newer_bytes = free_bytes;
        }
}

bool disk_trend_add(struct disk_trend *t, uint64_t now_ns, const struct disk_space *s)
{
        bool was_low = t->is_low;

        t->left_s = 0;
        if (!s->known)
                return false;
        if (t->newer_ns > 0 && s->free_bytes <= t->newer_bytes)
                t->left_s = find_left_s(t, now_ns, s->free_bytes);
        move_windows(t, now_ns, s->free_bytes);
        t->is_low = disk_space_is_low(s, t->left_s);
        return t->is_low && !was_low;
}

const char *disk_space_format(const struct disk_space *s, uint64_t left_s, char text[static DISK_TEXT_MAX])
{
        char free_text[QUANTITY_TEXT_MAX], size_text[QUANTITY_TEXT_MAX], left[48] = "";

        if (left_s > 0 && left_s < 2 * MINUTE_S)
                snprintf(left, sizeof left, ", full in %u s", (unsigned)left_s);
        else if (left_s > 0 && left_s < HOUR_S)
                snprintf(left, sizeof left, ", full in %u min", (unsigned)(left_s / MINUTE_S));
        else if (left_s > 0)
                snprintf(left, sizeof left, ", full in %.1f h", (double)left_s / HOUR_S);
        snprintf(text, DISK_TEXT_MAX, "%s of %s free%s",
                 quantity_format_real((double)s->free_bytes, "B", free_text),
                 quantity_format_real((double)s->size_bytes, "B", size_text), left);
        return text;
}
