/* Writes or checks received data. */
#include "receive_threads.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "base/pattern.h"
#include "base/util.h"
#include "sys/disk_writer.h"

#define LOOK_MS 100
/* A pipe that is ready accepts this much without blocking (pipe(7), PIPE_BUF). */
#define PIPE_BYTES 4096u
/* Size of a direct write; one buffer is filled while the other one is written. */
#define DIRECT_BYTES ((size_t)1 << 20)
/* Room for the time of a scan in a name, and for the number that makes a name that another file has another
 * one. */
#define SCAN_TIME_MAX 32u
#define SCAN_NAMES_MAX 99u

enum sink_kind { SINK_FILE, SINK_PATTERN, SINK_NULL };

struct sink {
        enum sink_kind kind;
        char name[ERROR_LOCATION_MAX];
        int fd;
        int copy; /* the same file, to read it; -1: it is not read */
        bool regular, made;
        bool begun;     /* previous contents of a regular file are erased */
        uint64_t bytes; /* number of bytes written so far, with those kept */
        uint64_t kept;
        struct disk_behind behind;
        /* Direct writes of whole blocks from two buffers, in the background. */
        struct disk_writer *disk;
        uint8_t *memory[2];
        unsigned filling;
        size_t filled_bytes;
        size_t flight_bytes; /* bytes of the other buffer being written; 0: none */
        uint64_t key, corrupt;
        /* Scans: the text of the name; the previous file, which is not durable yet (-1: none), and its name;
         * bytes of the ended files. */
        bool scans, overwrite;
        char text[ERROR_LOCATION_MAX], ended_name[ERROR_LOCATION_MAX];
        int ended;
        uint64_t files, renamed, ended_bytes;
};

/* Locks the file. False: another receiver has it, or has just removed it, because nothing came. On a file
 * system without locks, nothing is refused. Locks of flock(2) do not count, as no receiver uses them. */
static bool is_ours(int fd, const char *path, struct stat *st)
{
        struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
        bool is_taken = fcntl(fd, F_OFD_SETLK, &lock) < 0 && (errno == EAGAIN || errno == EACCES);
        struct stat named;

        return !is_taken && fstat(fd, st) == 0 && stat(path, &named) == 0 && named.st_dev == st->st_dev &&
               named.st_ino == st->st_ino;
}

static int open_file(struct sink *s, const char *text, bool overwrite, struct error *e)
{
        bool standard = strcmp(text, "-") == 0;
        struct stat st;

        assert(text);
        snprintf(s->name, sizeof s->name, "%s", standard ? "standard output" : text);
        s->made = !standard && strlen(text) < sizeof s->name && access(text, F_OK) < 0;
        s->fd = standard ? fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 0)
                         : open(text, O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
        if (s->fd < 0 || fstat(s->fd, &st) < 0) {
                error_set(e, -errno, "cannot open it for writing: %m");
                return error_locate(e, "%s", s->name);
        }
        s->regular = !standard && S_ISREG(st.st_mode);
        if (s->regular && !is_ours(s->fd, text, &st)) {
                s->made = false;
                error_set(e, -EBUSY,
                          "another receiver writes this file; use a different output for each receiver");
                return error_locate(e, "%s", s->name);
        }
        if (s->regular && !s->made && st.st_size > 0 && !overwrite) {
                error_set(e, -EEXIST, "the file exists; choose another name or use --overwrite");
                return error_locate(e, "%s", s->name);
        }
        return 0;
}

int sink_open(struct sink **ret, const char *text, bool overwrite, struct error *e)
{
        struct sink *s = calloc(1, sizeof *s);
        int r = 0;

        if (!s)
                return error_set(e, -ENOMEM, "%m");
        s->fd = s->copy = s->ended = -1;
        if (strcmp(text, "pattern") == 0)
                s->kind = SINK_PATTERN;
        else if (strcmp(text, "null") == 0)
                s->kind = SINK_NULL;
        else
                r = open_file(s, text, overwrite, e);
        if (r < 0) {
                sink_free(s);
                return r;
        }
        *ret = s;
        return 0;
}

int sink_open_scans(struct sink **ret, const char *text, bool overwrite, struct error *e)
{
        const char *slash = strrchr(text, '/');
        char folder[ERROR_LOCATION_MAX];
        struct sink *s;

        snprintf(folder, sizeof folder, "%.*s", slash ? (int)(slash - text) + 1 : 1, slash ? text : ".");
        if (strlen(text) + SCAN_TIME_MAX > ERROR_LOCATION_MAX)
                return error_set(e, -ENAMETOOLONG, "%s: the name is too long", text);
        if (access(folder, W_OK) < 0) {
                error_set(e, -errno, "cannot create files there: %m");
                return error_locate(e, "%s", folder);
        }
        s = calloc(1, sizeof *s);
        if (!s)
                return error_set(e, -ENOMEM, "%m");
        s->fd = s->copy = s->ended = -1;
        s->scans = true;
        s->overwrite = overwrite;
        snprintf(s->text, sizeof s->text, "%s", text);
        *ret = s;
        return 0;
}

int sink_resume(struct sink *s, uint64_t *ret_bytes, struct error *e)
{
        char path[64];
        struct stat st;

        if (!s->regular)
                return error_set(e, -EINVAL, "--resume needs a file as output");
        snprintf(path, sizeof path, "/proc/self/fd/%d", s->fd);
        s->copy = open(path, O_RDONLY | O_CLOEXEC);
        if (s->copy < 0 || fstat(s->copy, &st) < 0) {
                error_set(e, -errno, "cannot open it for reading: %m");
                return error_locate(e, "%s", s->name);
        }
        *ret_bytes = (uint64_t)st.st_size;
        return 0;
}

int sink_read(const struct sink *s, uint64_t offset, void *bytes, size_t n)
{
        return disk_read(s->copy, offset, bytes, n);
}

int sink_keep(struct sink *s, uint64_t bytes)
{
        s->kept = s->bytes = bytes;
        return lseek(s->fd, (off_t)bytes, SEEK_SET) < 0 ? -errno : 0;
}

static int set_direct(const struct sink *s, struct error *e)
{
        int r = disk_set_direct(s->fd, true);

        if (r >= 0)
                return 0;
        error_set(e, r,
                  "its file system cannot write past the page cache (O_DIRECT): %m; expected another place, "
                  "or no --direct");
        return error_locate(e, "%s", s->name);
}

int sink_set_direct(struct sink *s, struct error *e)
{
        int r;

        if (!s->regular && !s->scans)
                return error_set(e, -EINVAL, "--direct needs a file as output");
        r = s->scans ? 0 : set_direct(s, e);
        if (r < 0)
                return r;
        for (int i = 0; i < 2; i++)
                if (posix_memalign((void **)&s->memory[i], DISK_BLOCK_BYTES, DIRECT_BYTES) != 0)
                        return error_set(e, -ENOMEM, "%m");
        r = disk_writer_new(&s->disk, true);
        return r < 0 ? error_set(e, r, "%m") : 0;
}

struct sink *sink_free(struct sink *s)
{
        if (!s)
                return NULL;
        disk_writer_free(s->disk);
        free(s->memory[0]);
        free(s->memory[1]);
        if (s->fd >= 0 && s->made && s->regular && s->bytes == 0)
                (void)unlink(s->name);
        if (s->fd >= 0)
                close(s->fd);
        if (s->copy >= 0)
                close(s->copy);
        if (s->ended >= 0)
                close(s->ended);
        free(s);
        return NULL;
}

bool sink_can_repair(const struct sink *s)
{
        return s->regular || s->kind != SINK_FILE;
}

bool sink_is_pattern(const struct sink *s)
{
        return s->kind == SINK_PATTERN;
}

void sink_set_key(struct sink *s, uint64_t key)
{
        s->key = key;
}

static int write_all(const struct sink *s, const uint8_t *at, size_t n, const _Atomic bool *stop)
{
        struct pollfd p = {.fd = s->fd, .events = POLLOUT};

        while (n > 0) {
                ssize_t put;

                if (!s->regular && poll(&p, 1, LOOK_MS) == 0) {
                        if (atomic_load_explicit(stop, memory_order_relaxed))
                                return -ECANCELED;
                        continue;
                }
                put = write(s->fd, at, s->regular ? n : MIN(n, (size_t)PIPE_BYTES));
                if (put < 0 && errno != EINTR && errno != EAGAIN)
                        return -errno;
                at += MAX(put, 0);
                n -= (size_t)MAX(put, 0);
        }
        return 0;
}

static int end_write(struct sink *s)
{
        size_t written;
        int r;

        if (s->flight_bytes == 0)
                return 0;
        s->flight_bytes = 0;
        r = disk_writer_end(s->disk, &written);
        s->bytes += written;
        return r;
}

/* Waits for the previous write, and begins to write the buffer. */
static int begin_write(struct sink *s)
{
        int r = end_write(s);

        if (r < 0)
                return r;
        disk_writer_begin(s->disk, s->fd, s->memory[s->filling], s->filled_bytes, s->bytes);
        s->flight_bytes = s->filled_bytes;
        s->filling = 1 - s->filling;
        s->filled_bytes = 0;
        return 0;
}

static int write_direct(struct sink *s, const uint8_t *at, size_t n)
{
        int r = 0;

        while (n > 0 && r == 0) {
                size_t some = MIN(n, DIRECT_BYTES - s->filled_bytes);

                memcpy(s->memory[s->filling] + s->filled_bytes, at, some);
                s->filled_bytes += some;
                at += some;
                n -= some;
                if (s->filled_bytes == DIRECT_BYTES)
                        r = begin_write(s);
        }
        return r;
}

/* The last bytes do not fill a block, so they pass through the page cache. */
static int finish_direct(struct sink *s)
{
        int r = end_write(s);

        if (r == 0 && s->filled_bytes > 0) {
                r = disk_set_direct(s->fd, false);
                if (r == 0)
                        r = begin_write(s);
                if (r == 0)
                        r = end_write(s);
        }
        return r;
}

/* A file to be overwritten stays unchanged until a stream arrives. */
static int begin(struct sink *s)
{
        if (s->regular && !s->begun && ftruncate(s->fd, (off_t)s->kept) < 0)
                return -errno;
        s->begun = true;
        return 0;
}

int sink_put(struct sink *s, const void *bytes, size_t n, bool missing, const _Atomic bool *stop)
{
        int r = begin(s);

        if (r < 0)
                return r;
        if (s->disk)
                return write_direct(s, bytes, n);
        if (s->kind == SINK_PATTERN)
                s->corrupt += !missing && pattern_check(s->key, bytes, s->bytes, n) < n;
        else if (s->kind == SINK_FILE)
                r = write_all(s, bytes, n, stop);
        s->bytes += r >= 0 ? n : 0;
        if (r >= 0 && s->regular)
                r = disk_write_behind(&s->behind, s->fd, s->bytes);
        return r;
}

int sink_begin_repair(struct sink *s)
{
        return s->disk ? disk_set_direct(s->fd, false) : 0;
}

int sink_repair(struct sink *s, uint64_t offset, const void *bytes, size_t n)
{
        const uint8_t *at = bytes;

        if (s->kind == SINK_PATTERN)
                s->corrupt += pattern_check(s->key, bytes, offset, n) < n;
        while (s->kind == SINK_FILE && n > 0) {
                ssize_t put = pwrite(s->fd, at, n, (off_t)offset);

                if (put < 0 && errno != EINTR)
                        return -errno;
                at += MAX(put, 0);
                offset += (uint64_t)MAX(put, 0);
                n -= (size_t)MAX(put, 0);
        }
        return 0;
}

int sink_explain(const struct sink *s, int code, struct error *e)
{
        error_set(e, code, "cannot write: %m");
        return s->kind == SINK_FILE ? error_locate(e, "%s", s->name) : code;
}

/* Makes the file before the present one durable. */
static int sync_ended(struct sink *s, struct error *e)
{
        int r = s->ended >= 0 && fdatasync(s->ended) < 0 ? -errno : 0;

        if (s->ended >= 0)
                close(s->ended);
        s->ended = -1;
        if (r == 0)
                return 0;
        error_set(e, r, "cannot write: %m");
        return error_locate(e, "%s", s->ended_name);
}

int sink_finish(struct sink *s, struct error *e)
{
        int r = begin(s);

        s->made = false; /* a complete file stays, even if it is empty */
        if (r >= 0 && s->disk)
                r = finish_direct(s);
        if (r >= 0 && s->regular && fdatasync(s->fd) < 0)
                r = -errno;
        return r < 0 ? sink_explain(s, r, e) : sync_ended(s, e);
}

/* Hands the present file to sync_ended(). Its data are on their way to the disk until then, so the output
 * does not wait for the disk. */
static int end_file(struct sink *s, struct error *e)
{
        int r = s->disk ? finish_direct(s) : 0;

        r = r < 0 ? sink_explain(s, r, e) : sync_ended(s, e);
        (void)sync_file_range(s->fd, 0, 0, SYNC_FILE_RANGE_WRITE);
        s->ended = s->fd;
        strcpy(s->ended_name, s->name);
        s->fd = -1;
        s->ended_bytes += s->bytes;
        s->bytes = 0;
        s->behind = (struct disk_behind){};
        s->begun = false;
        return r;
}

int sink_next(struct sink *s, int64_t unix_s, struct error *e)
{
        const char *slash = strrchr(s->text, '/'), *dot = strrchr(s->text, '.');
        const size_t stem =
                dot && dot > (slash ? slash + 1 : s->text) ? (size_t)(dot - s->text) : strlen(s->text);
        char name[ERROR_LOCATION_MAX], when[SCAN_TIME_MAX] = "", again[8] = "";
        time_t seconds = (time_t)unix_s;
        struct tm at;
        int r = s->fd >= 0 ? end_file(s, e) : 0;

        if (r < 0)
                return r;
        if (gmtime_r(&seconds, &at))
                (void)strftime(when, sizeof when, "-%Y%m%dT%H%M%S", &at);
        for (unsigned i = 2;; i++) {
                snprintf(name, sizeof name, "%.*s%s%s%s", (int)stem, s->text, when, again, s->text + stem);
                r = open_file(s, name, s->overwrite, e);
                /* Before the first scan, nothing would be lost by an end. */
                if ((r != -EEXIST && r != -EBUSY) || s->files == 0 || i > SCAN_NAMES_MAX)
                        break;
                close(s->fd);
                s->fd = -1;
                *e = (struct error){};
                snprintf(again, sizeof again, "-%u", i);
        }
        s->renamed += r >= 0 && again[0] != '\0';
        if (r >= 0 && s->disk)
                r = set_direct(s, e);
        s->files += r >= 0;
        return r;
}

uint64_t sink_renamed(const struct sink *s)
{
        return s->renamed;
}

uint64_t sink_files(const struct sink *s)
{
        return s->files;
}

uint64_t sink_corrupt(const struct sink *s)
{
        return s->corrupt;
}

uint64_t sink_bytes(const struct sink *s)
{
        return s->ended_bytes + s->bytes - s->kept;
}
