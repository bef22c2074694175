/* Runs a memory copy point: copies blocks of x bytes for a fixed time. */
#include <stdlib.h>
#include <string.h>

#include "evb/base/util.h"
#include "evb/sys/loop.h"
#include "run_internal.h"
#include "settings.h"

/* The clock is read once per batch, as a read costs as much as the copy of a small block. */
#define BATCH_BYTES (1u << 20)

json_t *run_copy(const struct lab_point *p, struct machine_watch *watch)
{
        size_t size_bytes = (size_t)p->x, rounds = 0;
        _cleanup_free_ char *from = malloc(size_bytes), *to = malloc(size_bytes);
        uint64_t begin_ns, until_ns;
        double seconds;

        if (!from || !to)
                return NULL;
        memset(from, 1, size_bytes);
        memset(to, 2, size_bytes);
        machine_watch_turn(watch, clock_now_ns(), true);
        begin_ns = clock_now_ns();
        until_ns = begin_ns + (uint64_t)(setting_of(p, "seconds", 0.2) * 1e9);
        while (clock_now_ns() < until_ns) {
                for (size_t done = 0; done < BATCH_BYTES; done += size_bytes) {
                        memcpy(to, from, size_bytes);
                        /* Keeps the compiler from removing the copy. */
                        __asm__ volatile("" : : "r"(to) : "memory");
                        rounds++;
                }
        }
        seconds = (double)(clock_now_ns() - begin_ns) / 1e9;
        machine_watch_turn(watch, clock_now_ns(), true);
        return json_pack("{s:f}", "mbyte_per_s", (double)rounds * (double)size_bytes / seconds / 1e6);
}
