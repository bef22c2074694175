/* The files of the event writer: finds a free number, opens and locks the file, syncs it, and closes it. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "event_record.h"
#include "event_writer_internal.h"

/* Limits the retries if other writers create the same files concurrently. */
#define OPEN_TRIES 1000
#define NUMBER_DIGITS_MAX 9

static void set_path(struct event_writer *w, const char *name)
{
        snprintf(w->path, sizeof w->path, "%s/%s", w->directory, name);
}

/* The XOR of all numbers from 1 to n. */
static uint32_t xor_up_to(uint64_t n)
{
        const uint32_t by_rest[] = {(uint32_t)n, 1, (uint32_t)n + 1, 0};

        return by_rest[n % 4];
}

struct iovec event_writer_end_record(struct event_writer *w, uint64_t data_bytes, uint32_t status, time_t now,
                                     uint8_t to[static EVENT_FILE_END_BYTES])
{
        uint64_t size_bytes = data_bytes + EVENT_FILE_END_BYTES;
        struct event_file_end end = {
                .events = (uint32_t)w->file_events,
                .megabytes = (uint32_t)(size_bytes >> 20),
                .run_events = (uint32_t)(w->closed_events + w->file_events),
                .run_megabytes = (uint32_t)((w->closed_bytes + size_bytes) >> 20),
                .status = status,
        };
        struct record_check check = {
                .on = w->stamped,
                .front_crc = w->front_crc,
                .blocks = xor_up_to(w->closed_events) ^ xor_up_to(w->closed_events + w->file_events),
        };

        record_date(now, &end.date, &end.time);
        record_put_end(to, &end, &check);
        memcpy(w->end, to, sizeof w->end);
        w->ended = now;
        return (struct iovec){.iov_base = to, .iov_len = EVENT_FILE_END_BYTES};
}

/* ---- The index ---- */

void event_writer_check_index(struct event_writer *w, int result)
{
        char path[sizeof w->path + sizeof EVENT_FILE_INDEX];

        if (result >= 0)
                return;
        w->index = event_index_free(w->index);
        snprintf(path, sizeof path, "%s" EVENT_FILE_INDEX, w->path);
        if (w->unindexed)
                w->unindexed(w->userdata, path, result);
}

static void begin_index(struct event_writer *w)
{
        char name[sizeof w->writing + sizeof EVENT_FILE_INDEX];

        snprintf(name, sizeof name, "%s" EVENT_FILE_INDEX, w->writing);
        if (w->index)
                event_writer_check_index(
                        w, event_index_begin(w->index, w->directory_fd, name, w->front.version, w->sum));
}

static void finish_index(struct event_writer *w, const struct stat *st)
{
        char name[sizeof w->final + sizeof EVENT_FILE_INDEX];

        snprintf(name, sizeof name, "%s" EVENT_FILE_INDEX, w->final);
        if (w->index && w->error < 0)
                event_index_drop(w->index);
        else if (w->index)
                event_writer_check_index(w, event_index_finish(w->index, name, st, w->end));
}

/* ---- File numbers ---- */

/* Returns the number in "CORE._NNNN.data" or ".writing", or 0 for other names. */
static unsigned number_in(const char *name, const struct event_writer *w, bool *ret_writing)
{
        size_t length = strlen(w->front.core_name), skip = length + strlen(w->separator);
        unsigned number = 0, digits = 0;

        if (strncmp(name, w->front.core_name, length) != 0 ||
            strncmp(name + length, w->separator, skip - length) != 0)
                return 0;
        for (name += skip; *name >= '0' && *name <= '9' && digits < NUMBER_DIGITS_MAX; name++, digits++)
                number = 10 * number + (unsigned)(*name - '0');
        *ret_writing = strcmp(name, ".writing") == 0;
        return *ret_writing || strcmp(name, ".data") == 0 ? number : 0;
}

static void report_left(struct event_writer *w, const char *name, event_writer_left left, void *userdata)
{
        char path[PATH_MAX + NAME_MAX + 2];
        _cleanup_close_ int fd = openat(w->directory_fd, name, O_RDONLY | O_CLOEXEC);

        snprintf(path, sizeof path, "%s/%s", w->directory, name);
        left(userdata, path, fd < 0 ? 0 : record_lock_holder(fd));
}

int event_writer_find_number(struct event_writer *w, event_writer_left left, void *userdata)
{
        int fd = openat(w->directory_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        DIR *d = fd < 0 ? NULL : fdopendir(fd);
        bool writing;

        if (!d) {
                int r = -errno;

                cleanup_close(&fd);
                return r;
        }
        for (struct dirent *e; (e = readdir(d));) {
                unsigned number = number_in(e->d_name, w, &writing);

                w->front.file_number = MAX(w->front.file_number, number);
                if (number > 0 && writing && left)
                        report_left(w, e->d_name, left, userdata);
        }
        closedir(d);
        return 0;
}

/* ---- Opening ---- */

void event_writer_empty_buffer(struct event_writer *w, uint64_t data_bytes, const uint8_t *end)
{
        size_t lead_bytes = w->direct ? data_bytes % DISK_BLOCK_BYTES : 0;

        if (w->memory[1])
                w->filling = 1 - w->filling;
        memmove(w->memory[w->filling], end - lead_bytes, lead_bytes);
        w->buffer = w->memory[w->filling] + lead_bytes;
        w->filled_bytes = 0;
}

static int write_front(struct event_writer *w, time_t now)
{
        uint8_t front[RECORD_FRONT_MAX_BYTES], end[EVENT_FILE_END_BYTES];
        struct iovec iov[2];
        size_t written;

        record_date(now, &w->front.date, &w->front.time);
        w->disk_bytes = record_put_front(front, &w->front);
        if (w->disk_bytes == 0)
                return -ENAMETOOLONG;
        w->front_crc = record_crc(RECORD_CRC_BEGIN, front, w->disk_bytes);
        w->sum = w->disk_sum = adler_add(ADLER_BEGIN, front, w->disk_bytes);
        w->begun = now;
        iov[0] = (struct iovec){.iov_base = front, .iov_len = w->disk_bytes};
        iov[1] = event_writer_end_record(w, w->disk_bytes, 0, now, end);
        event_writer_empty_buffer(w, w->disk_bytes, front + w->disk_bytes);
        return record_write_all(w->fd, iov, 2, 0, &written);
}

static int create(struct event_writer *w)
{
        w->front.file_number++;
        snprintf(w->writing, sizeof w->writing, "%s%s%04u.writing", w->front.core_name, w->separator,
                 w->front.file_number);
        snprintf(w->final, sizeof w->final, "%s%s%04u.data", w->front.core_name, w->separator,
                 w->front.file_number);
        set_path(w, w->writing);
        w->fd = openat(w->directory_fd, w->writing, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (w->fd < 0)
                return -errno;
        /* From here on, no other writer can give a file the final name. */
        if (faccessat(w->directory_fd, w->final, F_OK, AT_SYMLINK_NOFOLLOW) < 0)
                return 0;
        unlinkat(w->directory_fd, w->writing, 0);
        close(take_fd(&w->fd));
        return -EEXIST;
}

int event_writer_open_next(struct event_writer *w, time_t now)
{
        int r = -EEXIST;

        w->file_events = w->disk_events = w->disk_bytes = 0;
        w->behind = (struct disk_behind){.drops = !w->keeps_cached};
        w->entry_is_synced = false;
        for (int i = 0; i < OPEN_TRIES && r == -EEXIST; i++)
                r = create(w);
        if (r < 0)
                return r;
        record_lock_writing(w->fd);
        r = write_front(w, now);
        if (r == 0 && w->direct)
                r = disk_set_direct(w->fd, true);
        if (r < 0) {
                unlinkat(w->directory_fd, w->writing, 0);
                close(take_fd(&w->fd));
                return r;
        }
        w->files++;
        begin_index(w);
        return 0;
}

/* ---- Syncing and closing ---- */

/* If the open file is removed or truncated, or its directory is removed, the events in it are lost. Further
 * writes would only lose more. */
static int check_file(const struct event_writer *w)
{
        struct stat st;

        if (fstat(w->fd, &st) < 0)
                return -errno;
        if (st.st_nlink == 0)
                return -ENOENT;
        return (uint64_t)st.st_size == w->disk_bytes + EVENT_FILE_END_BYTES ? 0 : -EBADFD;
}

static int read_last(int fd, uint64_t end, struct write_guard *ret)
{
        ssize_t n;

        *ret = (struct write_guard){.n = MIN(end, sizeof ret->bytes)};
        n = pread(fd, ret->bytes, ret->n, (off_t)(end - ret->n));
        if (n < 0)
                return -errno;
        return (size_t)n == ret->n ? 0 : -EBADFD;
}

int event_writer_begin_write(const struct event_writer *w, struct write_guard *ret)
{
        int r = check_file(w);

        return r < 0 || !ret ? r : read_last(w->fd, w->disk_bytes, ret);
}

static bool is_hole(int fd, uint64_t at)
{
        return lseek(fd, (off_t)at, SEEK_HOLE) == (off_t)at;
}

/* Whether the file was truncated before a direct write, or before it got its new size. The bytes that are now
 * zero are not read, because that would require a read from the disk. */
static bool has_hole(const struct event_writer *w, uint64_t size_bytes)
{
        uint64_t begin = w->disk_bytes - w->disk_bytes % DISK_BLOCK_BYTES;

        return (begin > 0 && is_hole(w->fd, begin - 1)) || is_hole(w->fd, size_bytes - 1);
}

/* If a file was truncated after the check, a write beyond its end gives it the expected size again, with
 * zeros in place of the events. */
int event_writer_end_write(const struct event_writer *w, const struct write_guard *guard)
{
        struct write_guard now;
        int r = read_last(w->fd, w->disk_bytes, &now);

        if (r < 0)
                return r;
        return memcmp(now.bytes, guard->bytes, sizeof now.bytes) == 0 ? 0 : -EBADFD;
}

int event_writer_end_direct(const struct event_writer *w, uint64_t size_bytes)
{
        if (ftruncate(w->fd, (off_t)size_bytes) < 0)
                return -errno;
        return has_hole(w, size_bytes) ? -EBADFD : 0;
}

/* Another file in its place must not get the final name, as if it held the events. */
static int check_name(const struct event_writer *w, int fd)
{
        struct stat ours, named;

        if (fstat(fd, &ours) < 0 || fstatat(w->directory_fd, w->writing, &named, AT_SYMLINK_NOFOLLOW) < 0)
                return -errno;
        return named.st_dev == ours.st_dev && named.st_ino == ours.st_ino ? 0 : -EBADFD;
}

static int rename_final(struct event_writer *w, int fd)
{
        int r = check_name(w, fd);

        if (r < 0)
                return r;
        r = renameat2(w->directory_fd, w->writing, w->directory_fd, w->final, RENAME_NOREPLACE);
        if (r < 0 &&
            (errno == EINVAL || errno == ENOSYS)) /* the file system does not support RENAME_NOREPLACE */
                r = renameat(w->directory_fd, w->writing, w->directory_fd, w->final);
        return r < 0 ? -errno : 0;
}

static void report_closed(const struct event_writer *w, uint64_t size_bytes)
{
        const struct event_writer_file file = {
                .path = w->path,
                .events = w->file_events,
                .size_bytes = size_bytes,
                .sum = adler_add(w->disk_sum, w->end, sizeof w->end),
                .begun = w->begun,
                .ended = w->ended,
        };

        if (w->closed)
                w->closed(w->userdata, &file);
}

int event_writer_seal(struct event_writer *w)
{
        uint64_t size_bytes = w->disk_bytes + EVENT_FILE_END_BYTES;
        int r = check_file(w);
        _cleanup_close_ int fd = take_fd(&w->fd);
        struct stat st;

        if (r < 0)
                return r;
        if (fsync(fd) < 0 || fstat(fd, &st) < 0)
                return -errno;
        if (w->behind.drops)
                disk_drop_cached(fd);
        r = rename_final(w, fd);
        if (r < 0)
                return r;
        set_path(w, w->final);
        finish_index(w, &st);
        if (fsync(w->directory_fd) < 0)
                return -errno;
        w->closed_events += w->file_events;
        w->closed_bytes += size_bytes;
        w->events_synced = w->closed_events;
        report_closed(w, size_bytes);
        w->file_events = w->disk_events = 0;
        return 0;
}
