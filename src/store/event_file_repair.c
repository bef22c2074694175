/* Repairs an event file that is truncated or damaged: keeps the events before the first damage and adds a
 * correct end record. It does not search for events after the damage. */
#include "evb/store/event_file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include "event_record.h"

static void event_file_freep(struct event_file **file)
{
        event_file_free(*file);
}

static int check_event(const struct event_record *record, struct eformat_fault *fault)
{
        int r = eformat_walk(record->event, record->size_bytes, NULL, NULL, fault);

        if (r < 0) {
                fault->offset_bytes += record->offset_bytes + EVENT_FILE_DATA_BYTES;
                return r;
        }
        if (eformat_word(record->event, 0) == EFORMAT_EVENT)
                return 0;
        *fault = (struct eformat_fault){.offset_bytes = record->offset_bytes,
                                        .reason = "data record does not contain an event"};
        return -EBADMSG;
}

/* Counts the intact events and returns their end; sets ret->fault if the file is damaged. */
static size_t find_end(const struct event_file *file, struct event_file_repair *ret)
{
        struct event_record record;
        struct event_file_end end;
        size_t position = 0, whole_bytes;
        int r;

        do {
                r = event_file_next(file, &position, &record, &ret->fault);
                whole_bytes = r == 1 ? record.offset_bytes : position;
                if (r == 1) {
                        r = check_event(&record, &ret->fault) < 0 ? -EBADMSG : 1;
                        ret->events += r == 1;
                }
        } while (r == 1);
        if (r == 0)
                r = event_file_read_end(file, position, &end, &ret->fault);
        if (r == 0 && (end.events != (uint32_t)ret->events || end.run_events < end.events)) {
                ret->fault = (struct eformat_fault){.offset_bytes = position,
                                                    .reason = "event count in the end record is wrong"};
                r = -EBADMSG;
        }
        ret->was_whole = r == 0;
        return whole_bytes;
}

static void make_end(uint8_t to[static EVENT_FILE_END_BYTES], const struct event_file_repair *repair,
                     size_t whole_bytes, time_t now)
{
        struct event_file_end end = {
                .events = (uint32_t)repair->events,
                .megabytes = (uint32_t)(whole_bytes >> 20),
                .run_events = (uint32_t)repair->events, /* earlier files of the run are unknown */
                .run_megabytes = (uint32_t)(whole_bytes >> 20),
                .status = 1,
        };

        record_date(now, &end.date, &end.time);
        record_put_end(to, &end);
}

/* Opens a file for a new result, or the one that a killed repair left. -EBUSY: another repair writes it, or
 * has just given it its name. */
static int open_unfinished(const char *path)
{
        _cleanup_close_ int fd = open(path, O_WRONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0666);
        struct stat opened, named;

        if (fd < 0)
                return -errno;
        if (flock(fd, LOCK_EX | LOCK_NB) < 0 || fstat(fd, &opened) < 0 || lstat(path, &named) < 0 ||
            opened.st_ino != named.st_ino)
                return -EBUSY;
        return ftruncate(fd, 0) < 0 ? -errno : take_fd(&fd);
}

/* The result belongs to whom the original belongs to, and is as readable. */
static int copy_owner(int from, int to)
{
        struct stat st;

        if (geteuid() != 0)
                return 0;
        return fstat(from, &st) < 0 || fchown(to, st.st_uid, st.st_gid) < 0 ||
                               fchmod(to, st.st_mode & 0777) < 0
                       ? -errno
                       : 0;
}

static int give_name(const char *unfinished, const char *output)
{
        if (renameat2(AT_FDCWD, unfinished, AT_FDCWD, output, RENAME_NOREPLACE) == 0)
                return 0;
        /* Some file systems do not know the flag. */
        if (errno != EINVAL)
                return -errno;
        return access(output, F_OK) == 0 ? -EEXIST : rename(unfinished, output) < 0 ? -errno : 0;
}

/* `output` gets its name when it is whole, so an interrupted repair can be repeated. */
static int write_new(const char *output, int from, const struct iovec iov[static 2],
                     struct event_file_repair *ret)
{
        char unfinished[PATH_MAX];
        _cleanup_close_ int fd = -1;
        size_t written;
        int r;

        ret->at_output = true;
        if (access(output, F_OK) == 0)
                return -EEXIST;
        if ((size_t)snprintf(unfinished, sizeof unfinished, "%s.repair", output) >= sizeof unfinished)
                return -ENAMETOOLONG;
        fd = open_unfinished(unfinished);
        if (fd < 0)
                return fd;
        r = record_write_all(fd, iov, 2, 0, &written);
        if (r == 0)
                r = copy_owner(from, fd);
        if (r == 0 && fsync(fd) < 0)
                r = -errno;
        if (r == 0)
                r = give_name(unfinished, output);
        if (r < 0)
                unlink(unfinished);
        return r;
}

/* Writes the end record before it truncates: after a crash in between, a repair finds the same events. */
static int write_in_place(int fd, size_t whole_bytes, const uint8_t *end)
{
        struct iovec iov = {(void *)end, EVENT_FILE_END_BYTES};
        size_t written;
        int r = record_write_all(fd, &iov, 1, whole_bytes, &written);

        if (r < 0)
                return r;
        if (ftruncate(fd, (off_t)(whole_bytes + EVENT_FILE_END_BYTES)) < 0 || fsync(fd) < 0)
                return -errno;
        return 0;
}

/* Falls back to reading, since an intact file needs no repair. */
static int open_file(const char *path, bool *writing)
{
        int fd = *writing ? open(path, O_RDWR | O_CLOEXEC) : -1;

        if (fd >= 0 || (*writing && errno != EACCES && errno != EROFS))
                return fd < 0 ? -errno : fd;
        *writing = false;
        fd = open(path, O_RDONLY | O_CLOEXEC);
        return fd < 0 ? -errno : fd;
}

int event_file_repair(const char *path, const char *output, time_t now, struct event_file_repair *ret)
{
        _cleanup_(event_file_freep) struct event_file *file = NULL;
        bool writing = !output;
        _cleanup_close_ int fd = open_file(path, &writing);
        uint8_t end[EVENT_FILE_END_BYTES];
        size_t size_bytes, whole_bytes;
        const uint8_t *bytes;
        struct iovec iov[2] = {};
        int r;

        *ret = (struct event_file_repair){0};
        if (fd < 0)
                return fd;
        r = record_lock_repair(fd, writing, &ret->holder);
        if (r == 0)
                r = event_file_map(&file, fd, &ret->fault);
        if (r < 0)
                return r;
        bytes = event_file_bytes(file, &size_bytes);
        whole_bytes = find_end(file, ret);
        iov[0] = (struct iovec){(void *)bytes, ret->was_whole ? size_bytes : whole_bytes};
        if (ret->was_whole)
                return output ? write_new(output, fd, iov, ret) : 0;
        if (!output && !writing)
                return -EACCES;
        ret->cut_bytes = size_bytes - whole_bytes;
        make_end(end, ret, whole_bytes, now);
        iov[1] = (struct iovec){end, sizeof end};
        return output ? write_new(output, fd, iov, ret) : write_in_place(fd, whole_bytes, end);
}
