/* Stores run numbers and runs in small files, each of which is always written as a whole. */
#include "run_record.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/log.h"
#include "base/util.h"
#include "sys/loop.h"

/* The run's start is stored by the wall clock, and as the time since the machine started, which may be
 * negative. */
static const char *const format =
        "run %u cookie %016" PRIx64 " began %" PRIu64 " %s boot %s at %" PRId64 "%s%s\n";
#define CAUSE " because "

/* Earlier versions write "ended" for a run that has ended, whether or not it was reported. */
static const char *const stages[] = {
        [RUN_STAGE_RUNNING] = "running",
        [RUN_STAGE_STOPPED] = "stopped",
        [RUN_STAGE_ENDED] = "unreported",
        [RUN_STAGE_REPORTED] = "ended",
};

/* A larger step of the wall clock is reported. */
#define STEP_NS NS_PER_S
#define BOOT_ID_MAX 40
#define NAME_MAX_BYTES 100
#define RECORD_MAX (256 + REASON_TEXT_MAX)

static bool find_directory(char *path, size_t size_bytes)
{
        const char *state = getenv("STATE_DIRECTORY"), *xdg = getenv("XDG_STATE_HOME"),
                   *home = getenv("HOME");
        int n;

        if (state && state[0] == '/')
                n = snprintf(path, size_bytes, "%s", state);
        else if (xdg && xdg[0] == '/')
                n = snprintf(path, size_bytes, "%s/evb", xdg);
        else if (geteuid() == 0)
                n = snprintf(path, size_bytes, "/var/lib/evb");
        else if (home && home[0] == '/')
                n = snprintf(path, size_bytes, "%s/.local/state/evb", home);
        else
                return false;
        return n > 0 && (size_t)n < size_bytes;
}

static void make_directory(char *path)
{
        for (char *slash = strchr(path + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
                *slash = '\0';
                (void)mkdir(path, 0755);
                *slash = '/';
        }
        (void)mkdir(path, 0755);
}

static int write_whole(int fd, const char *text, bool sync)
{
        ssize_t n = (ssize_t)strlen(text), written = pwrite(fd, text, (size_t)n, 0);

        if (written >= 0 && written < n)
                return -ENOSPC;
        if (written < 0 || ftruncate(fd, n) < 0 || (sync && fdatasync(fd) < 0))
                return -errno;
        return 0;
}

/* Returns the number of bytes. They may contain zeros, which files written by evb never do. */
static size_t read_whole(int fd, char *text, size_t size_bytes)
{
        ssize_t n = pread(fd, text, size_bytes - 1, 0);

        text[n > 0 ? n : 0] = '\0';
        return n > 0 ? (size_t)n : 0;
}

/* Makes the file with this text, if it does not exist. Even after a crash, the file appears with all of its
 * text, so an empty file is damaged. */
static int make_file(const char *path, const char *text)
{
        char next[RUN_RECORD_PATH_MAX + 8];
        _cleanup_close_ int fd = -1;
        int r;

        snprintf(next, sizeof next, "%s.XXXXXX", path);
        fd = mkostemp(next, O_CLOEXEC);
        if (fd < 0)
                return -errno;
        r = fchmod(fd, 0644) < 0 ? -errno : write_whole(fd, text, true);
        if (r >= 0 && link(next, path) < 0 && errno != EEXIST)
                r = -errno;
        (void)unlink(next);
        return r;
}

/* Sets `path`, and makes its directory. False: the directory is unknown. */
static bool make_path(const char *name, char path[static RUN_RECORD_PATH_MAX])
{
        char directory[RUN_RECORD_PATH_MAX - 128];

        snprintf(path, RUN_RECORD_PATH_MAX, "%s", name);
        if (!find_directory(directory, sizeof directory))
                return false;
        make_directory(directory);
        snprintf(path, RUN_RECORD_PATH_MAX, "%s/%s", directory, name);
        return true;
}

/* Opens and locks the file `name` in the directory; sets `path` even on errors. A new file contains the text
 * `first`. */
static int open_locked(const char *name, const char *first, bool wait, char path[static RUN_RECORD_PATH_MAX])
{
        int fd;

        if (!make_path(name, path))
                return -ENOENT;
        fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
        if (fd < 0 && errno == ENOENT) {
                int r = make_file(path, first);

                if (r < 0)
                        return r;
                fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
        }
        if (fd < 0)
                return -errno;
        if (flock(fd, LOCK_EX | (wait ? 0 : LOCK_NB)) < 0) {
                int r = -errno;

                close(fd);
                return r;
        }
        return fd;
}

static void make_name(const char *address, unsigned port, char name[static NAME_MAX_BYTES])
{
        snprintf(name, NAME_MAX_BYTES, "dfm-%.64s-%u", address, port);
        for (char *c = name; *c; c++)
                *c = *c == '/' || *c == '%' ? '_' : *c;
}

void run_record_path(const char *address, unsigned port, char path[static RUN_RECORD_PATH_MAX])
{
        char name[NAME_MAX_BYTES];

        make_name(address, port, name);
        (void)make_path(name, path);
}

int run_record_open(struct run_record *s, const char *address, unsigned port)
{
        char name[NAME_MAX_BYTES];

        make_name(address, port, name);
        s->fd = open_locked(name, "", false, s->path);
        return MIN(s->fd, 0);
}

void run_record_close(struct run_record *s)
{
        if (s->fd >= 0)
                close(s->fd);
        s->fd = -1;
}

/* Reads the identifier of the machine's current boot; "-" if the kernel has none. */
static void read_boot_id(char id[static BOOT_ID_MAX])
{
        _cleanup_close_ int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
        ssize_t n = fd < 0 ? 0 : read(fd, id, BOOT_ID_MAX - 1);

        id[MAX(n, (ssize_t)0)] = '\0';
        id[strcspn(id, " \n")] = '\0';
        if (id[0] == '\0')
                strcpy(id, "-");
}

/* The wall clock may have been set, so it is used only if the machine may have restarted since. */
static enum run_age find_age(uint64_t began_utc_ns, const char *boot, int64_t began_boot_ns, uint64_t *ret_ns)
{
        int64_t by_wall_ns = (int64_t)(clock_utc_ns() - began_utc_ns);
        int64_t by_boot_ns = (int64_t)clock_boot_ns() - began_boot_ns, step_ns = by_wall_ns - by_boot_ns;
        char id[BOOT_ID_MAX];

        read_boot_id(id);
        if (strcmp(boot, id) == 0 && strcmp(id, "-") != 0 && by_boot_ns >= 0) {
                *ret_ns = (uint64_t)by_boot_ns;
                return step_ns > (int64_t)STEP_NS || step_ns < -(int64_t)STEP_NS ? RUN_AGE_STEPPED
                                                                                 : RUN_AGE_CERTAIN;
        }
        *ret_ns = (uint64_t)MAX(by_wall_ns, INT64_C(0));
        return by_wall_ns < 0 ? RUN_AGE_UNKNOWN : RUN_AGE_BY_WALL;
}

static void read_cause(const char *text, char cause[static REASON_TEXT_MAX])
{
        const char *at = strstr(text, CAUSE);

        if (at)
                snprintf(cause, REASON_TEXT_MAX, "%.*s", (int)strcspn(at + strlen(CAUSE), "\n"),
                         at + strlen(CAUSE));
}

struct run_previous run_record_previous(const struct run_record *s)
{
        char text[RECORD_MAX], word[16], boot[BOOT_ID_MAX] = "-";
        struct run_previous f = {};
        uint64_t cookie;
        int64_t boot_ns = 0;
        size_t n;

        if (s->fd < 0)
                return f;
        n = read_whole(s->fd, text, sizeof text);
        if (strlen(text) < n ||
            sscanf(text, "run %u cookie %" SCNx64 " began %" SCNu64 " %15s boot %39s at %" SCNd64, &f.run,
                   &cookie, &f.began_utc_ns, word, boot, &boot_ns) < 4)
                return (struct run_previous){.is_damaged = n > 0};
        f.dfm.known = true;
        read_cause(text, f.cause);
        f.dfm.stopped = strcmp(word, stages[RUN_STAGE_STOPPED]) == 0;
        f.dfm.failed = f.cause[0];
        f.dfm.cookie = f.dfm.stopped || strcmp(word, stages[RUN_STAGE_RUNNING]) == 0 ? cookie : 0;
        f.is_unreported = strcmp(word, stages[RUN_STAGE_ENDED]) == 0;
        f.age = find_age(f.began_utc_ns, boot, boot_ns, &f.dfm.age_ns);
        return f;
}

int run_record_write(struct run_record *s, uint32_t run, uint64_t cookie, uint64_t age_ns,
                     enum run_stage stage, const char *cause)
{
        char text[RECORD_MAX], boot[BOOT_ID_MAX];

        if (s->fd < 0)
                return -ENOENT;
        read_boot_id(boot);
        snprintf(text, sizeof text, format, run, cookie, clock_utc_ns() - age_ns, stages[stage], boot,
                 (int64_t)(clock_boot_ns() - age_ns), cause[0] ? CAUSE : "", cause);
        /* The start of a run is synced, so that the DFM recognizes its nodes after a power failure. The end
         * need not be synced. */
        return write_whole(s->fd, text, stage <= RUN_STAGE_STOPPED);
}

/* Returns the number that follows the stored one; 0: the file is damaged. */
static uint32_t number_after(int fd)
{
        unsigned long last;
        char text[32], *end;
        size_t n = read_whole(fd, text, sizeof text);

        last = strtoul(text, &end, 10);
        if (text[0] < '0' || text[0] > '9' || strcmp(end, "\n") != 0 || strlen(text) < n)
                return 0;
        return last >= UINT32_MAX ? 0 : (uint32_t)last + 1;
}

/* Returns the time in seconds once that second has passed, so that no later process returns the same number;
 * if the clock was set back, the number after the last one. */
static uint32_t number_from_clock(void)
{
        static uint32_t last;
        uint64_t now_ns = clock_utc_ns(), over_ns = NS_PER_S - now_ns % NS_PER_S;
        struct timespec rest = {
                .tv_sec = (time_t)(over_ns / NS_PER_S),
                .tv_nsec = (long)(over_ns % NS_PER_S),
        };

        while (nanosleep(&rest, &rest) < 0 && errno == EINTR)
                ;
        last = MAX((uint32_t)(now_ns / NS_PER_S), last + 1);
        return last;
}

/* A new file survives a crash of the machine only if its directory has been synced. */
static int sync_directory(const char *path)
{
        char directory[RUN_RECORD_PATH_MAX];
        _cleanup_close_ int fd = -1;

        snprintf(directory, sizeof directory, "%.*s", (int)(strrchr(path, '/') - path), path);
        fd = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        return fd < 0 || fsync(fd) < 0 ? -errno : 0;
}

static int store_number(int fd, uint32_t number, bool is_new, const char *path)
{
        char text[32];
        int r;

        snprintf(text, sizeof text, "%u\n", number);
        r = write_whole(fd, text, true);
        return r >= 0 && is_new ? sync_directory(path) : r;
}

int run_record_next_number(uint32_t *ret, bool strict, char path[static RUN_RECORD_PATH_MAX])
{
        _cleanup_close_ int fd = open_locked("run-number", "0\n", true, path);
        uint32_t next = fd < 0 ? 0 : number_after(fd);
        int r = fd < 0 ? fd : next == 0 ? -EBADMSG : 0;

        if (r < 0 && strict)
                return r;
        if (next == 0)
                next = number_from_clock();
        if (fd >= 0) {
                int stored = store_number(fd, next, next == 1, path);

                if (stored < 0 && strict)
                        return stored;
                if (stored < 0) {
                        r = stored;
                        next = number_from_clock();
                }
        }
        *ret = next;
        return r;
}

int run_record_claim_number(uint32_t *ret, bool strict)
{
        char path[RUN_RECORD_PATH_MAX];
        int r = run_record_next_number(ret, strict, path);

        if (r == -EBADMSG && strict)
                return log_error_errno(r,
                                       "run.number: %s is damaged, so the last run number is unknown; write "
                                       "that number into the file, or set run.number = N",
                                       path);
        if (r < 0 && strict)
                return log_error_errno(r,
                                       "run.number: cannot store run numbers in %s: %m; make it writable, or "
                                       "set run.number = N",
                                       path);
        if (r == -EBADMSG)
                log_warning("%s is damaged, so the last run number is unknown; this run gets number %u, from "
                            "the clock",
                            path, *ret);
        else if (r < 0)
                log_warning_errno(
                        r, "cannot store run numbers in %s: %m; this run gets number %u, from the clock",
                        path, *ret);
        return 0;
}
