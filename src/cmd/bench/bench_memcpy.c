/* evb bench memcpy: measures how fast one process copies blocks of memory, by their size. */
#include "bench.h"

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>

#include "base/log.h"
#include "base/quantity.h"
#include "base/util.h"
#include "run/summary.h"
#include "sys/loop.h"
#include "sys/memory.h"
#include "sys/thread.h"

#define NAME "bench memcpy"
#define SIZES_MAX 16
#define SIZE_MOST_BYTES (1u << 30)
#define DURATION_LEAST_NS (50 * NS_PER_MS)
#define DURATION_MOST_NS (60 * NS_PER_S)

/* The clock is read once per batch, because reading it takes as long as copying a small block. */
#define BATCH_BYTES (1u << 20)
#define LOOK_NS (5 * NS_PER_MS)

/* Shared with the copying process, which waits for COPY_GO, copies, and then waits to be killed. */
struct copying {
        _Atomic enum { COPY_STARTS, COPY_READY, COPY_GO, COPY_DONE } state;
        double mbyte_per_s;
};

static void pause_shortly(void)
{
        nanosleep(&(struct timespec){.tv_nsec = LOOK_NS}, NULL);
}

static double copy(char *to, const char *from, size_t size_bytes, double seconds)
{
        uint64_t begin_ns = clock_now_ns(), until_ns = begin_ns + (uint64_t)(seconds * 1e9);
        size_t rounds = 0;

        while (clock_now_ns() < until_ns) {
                for (size_t done = 0; done < BATCH_BYTES; done += size_bytes) {
                        memcpy(to, from, size_bytes);
                        /* Prevents the compiler from removing the copy. */
                        __asm__ volatile("" : : "r"(to) : "memory");
                        rounds++;
                }
        }
        return (double)rounds * (double)size_bytes * 1e3 / (double)(clock_now_ns() - begin_ns);
}

static _Noreturn void become_copier(struct copying *c, size_t size_bytes, double seconds, pid_t parent)
{
        char *from = malloc(size_bytes), *to = malloc(size_bytes);

        (void)priority_raise();
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent || !from || !to)
                _exit(1);
        memset(from, 1, size_bytes);
        memset(to, 2, size_bytes);
        atomic_store(&c->state, COPY_READY);
        while (atomic_load(&c->state) != COPY_GO)
                pause_shortly();
        c->mbyte_per_s = copy(to, from, size_bytes, seconds);
        atomic_store(&c->state, COPY_DONE);
        /* The process stays alive, because the watch reads its times from /proc. */
        while (true)
                pause();
}

/* Returns whether the process has finished copying. */
static bool follow(struct copying *c, pid_t pid, struct machine_watch *watch)
{
        while (atomic_load(&c->state) != COPY_DONE && !signals_are_waiting()) {
                if (waitpid(pid, NULL, WNOHANG) != 0)
                        return false;
                if (atomic_load(&c->state) == COPY_READY) {
                        machine_watch_turn(watch, clock_now_ns(), true);
                        atomic_store(&c->state, COPY_GO);
                }
                pause_shortly();
                machine_watch_turn(watch, clock_now_ns(), atomic_load(&c->state) >= COPY_GO);
        }
        kill(pid, SIGKILL);
        return waitpid(pid, NULL, 0) == pid && atomic_load(&c->state) == COPY_DONE;
}

/* Returns NULL after logging the error. */
static json_t *measure(size_t size_bytes, double seconds)
{
        struct copying *c = memory_map_shared(sizeof *c);
        struct machine_watch *watch = NULL;
        json_t *figures = NULL;
        pid_t parent = getpid(), pid;

        (void)machine_watch_new(&watch);
        pid = c ? fork() : -1;
        if (pid == 0)
                become_copier(c, size_bytes, seconds, parent);
        if (pid < 0)
                log_error_errno(errno, "cannot start a process that copies: %m");
        else {
                machine_watch_add(watch, pid);
                if (follow(c, pid, watch))
                        figures = json_pack("{s:I, s:f, s:o}", "bytes", (json_int_t)size_bytes, "mbyte_per_s",
                                            c->mbyte_per_s, "machine",
                                            machine_report(watch, priority_may_raise()));
        }
        machine_watch_free(watch);
        if (c)
                memory_unmap(c, sizeof *c);
        return figures;
}

static int run(const struct options *o, const unsigned *sizes, size_t n, double seconds)
{
        json_t *all = json_array();
        int status = 0;

        signals_hold();
        (void)priority_attend();
        for (size_t i = 0; i < n && status == 0; i++) {
                json_t *f = measure(sizes[i], seconds);

                if (f && !o->json)
                        printf("%10u bytes %10.0f MB/s\n", sizes[i],
                               json_number_value(json_object_get(f, "mbyte_per_s")));
                if (f)
                        json_array_append_new(all, f);
                status = f ? 0 : 1;
        }
        if (signals_are_waiting())
                fprintf(stderr, "evb " NAME ": interrupted\n");
        if (o->json)
                return options_write_json(o, json_pack("{s:s, s:o}", "bench", "memcpy", "sizes", all),
                                          status);
        json_decref(all);
        return status;
}

/* Reads "1KiB,64KiB". Returns 0, or 2 after an error message. */
static int parse_sizes(const char *text, unsigned ret[static SIZES_MAX], size_t *ret_n)
{
        _cleanup_free_ char *words = strdup(text);
        char *save = NULL;
        uint64_t bytes;

        *ret_n = 0;
        for (char *word = words ? strtok_r(words, ",", &save) : NULL; word;
             word = strtok_r(NULL, ",", &save)) {
                if (quantity_parse_bytes(word, &bytes) < 0 || bytes < 1 || bytes > SIZE_MOST_BYTES ||
                    *ret_n == SIZES_MAX)
                        return options_refuse(NAME, "size", text, "at most 16 sizes up to 1GiB");
                ret[(*ret_n)++] = (unsigned)bytes;
        }
        return *ret_n > 0 ? 0 : options_refuse(NAME, "size", text, "sizes, for example 1KiB,1MiB");
}

int bench_memcpy(const struct command *command, int argc, char **argv)
{
        const char *sizes_text = "64,1KiB,16KiB,256KiB,4MiB,64MiB";
        uint64_t duration_ns = NS_PER_S / 5;
        const struct option_entry own[] = {
                {"size", "LIST", "sizes of a block, for example 1KiB,1MiB (default: 64 bytes to 64 MiB)",
                 &sizes_text, .was = "sizes"},
                {"duration", "TIME", "time for each size, at most 60s (default: 200ms)", .was = "seconds",
                 OPTION_NUMBER(bench_parse_time, &duration_ns, DURATION_LEAST_NS, DURATION_MOST_NS,
                               "50ms to 60s")},
        };
        unsigned sizes[SIZES_MAX];
        struct options o = {};
        size_t n;
        int r = options_parse(&o, command, own, ARRAY_SIZE(own), 0, argc, argv);

        if (r != OPTIONS_GO_ON)
                return r;
        r = parse_sizes(sizes_text, sizes, &n);
        return r != 0 ? r : run(&o, sizes, n, (double)duration_ns / NS_PER_S);
}
