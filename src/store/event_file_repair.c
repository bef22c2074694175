/* Repairs an event file that is truncated or damaged: keeps all intact events, including those after a
 * damaged place, and adds a correct end record. */
#include "store/event_file.h"

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

static int keep_outermost(void *userdata, const struct eformat_fragment *f)
{
        if (f->depth == 0)
                *(struct eformat_fragment *)userdata = *f;
        return 0;
}

static int bad_event(const struct event_record *record, struct eformat_fault *fault, const char *reason)
{
        *fault = (struct eformat_fault){.offset_bytes = record->offset_bytes, .reason = reason};
        return -EBADMSG;
}

/* Returns 0 or -EBADMSG. In a file with stamps, the stamp of an event without one is damaged. */
static int check_event(const struct event_record *record, bool stamped, struct eformat_fault *fault)
{
        struct eformat_fragment event = {};
        int r = eformat_walk(record->event, record->size_bytes, keep_outermost, &event, fault);

        if (r < 0) {
                fault->offset_bytes += record->offset_bytes + EVENT_FILE_DATA_BYTES;
                return r;
        }
        if (event.marker != EFORMAT_EVENT)
                return bad_event(record, fault, "data record does not contain an event");
        if (stamped && !eformat_has_stamp(&event))
                return bad_event(record, fault, "event without the stamp that this file's events have");
        return stamped && eformat_verify_sum(&event) == EFORMAT_SUM_WRONG
                       ? bad_event(record, fault, "checksum mismatch")
                       : 0;
}

/* A sequence of intact events. All zero but `stamped`: the state before the first part, which includes the
 * front records. */
struct part {
        size_t from, to;
        struct event_file_found found;
        bool stamped; /* the events of the file have stamps */
        bool ended;   /* an end record follows the part */
};

static void walk(const struct event_file *file, struct part *p, struct eformat_fault *ret_fault)
{
        struct event_record record;
        size_t position = p->from;
        int r;

        p->found = (struct event_file_found){};
        while ((r = event_file_next(file, &position, &record, ret_fault)) == 1 &&
               check_event(&record, p->stamped, ret_fault) == 0) {
                p->found.events++;
                p->found.stamped += p->stamped;
                p->found.blocks ^= record.block;
        }
        p->to = r == 1 ? record.offset_bytes : position;
        p->ended = r == 0;
}

/* Reads the data record at `at`, and checks that its event is whole. */
static bool is_whole(const struct event_file *file, bool stamped, size_t at, struct event_record *ret)
{
        struct eformat_fault fault;

        return event_file_next(file, &at, ret, &fault) == 1 && check_event(ret, stamped, &fault) == 0;
}

/* Whether the size of this record is correct although its event is damaged. A wrong size could also end where
 * another event ends. */
static bool has_sound_size(const struct event_record *record, const struct event_record *next)
{
        return (next && next->block == record->block + 1) ||
               (record->size_bytes >= 8 && eformat_word(record->event, 0) == EFORMAT_EVENT &&
                UINT64_C(4) * eformat_word(record->event, 1) == record->size_bytes);
}

static const uint8_t *find_words(const uint8_t *from, size_t size_bytes, uint32_t first, uint32_t second)
{
        const uint32_t words[] = {htole32(first), htole32(second)};

        return memmem(from, size_bytes, words, sizeof words);
}

/* Finds the first intact event after a damaged place at *at. If a damaged event has a correct size, its
 * content is skipped. Bytes may be missing, so events may begin at any byte. */
static bool find_whole(const struct event_file *file, bool stamped, size_t *at)
{
        size_t size_bytes, next = *at;
        const uint8_t *bytes = event_file_bytes(file, &size_bytes), *found;
        struct event_record record, whole;
        struct eformat_fault fault;
        struct event_file_end end;

        if (event_file_next(file, &next, &record, &fault) == 1) {
                if (is_whole(file, stamped, next, &whole) && has_sound_size(&record, &whole)) {
                        *at = next;
                        return true;
                }
                if (event_file_read_end(file, next, &end, &fault) == 0 && has_sound_size(&record, NULL))
                        return false;
        }
        for (next = *at + 1; next < size_bytes; next++) {
                found = find_words(bytes + next, size_bytes - next, EVENT_FILE_DATA, 4);
                if (!found)
                        break;
                next = (size_t)(found - bytes);
                if (is_whole(file, stamped, next, &whole)) {
                        *at = next;
                        return true;
                }
        }
        return false;
}

/* Whether the end record says so, or an intact event has a stamp. */
static bool has_stamps(const struct event_file *file)
{
        struct event_record record;
        struct eformat_fault fault;
        struct event_file_end end;
        size_t at = 0, size_bytes;

        (void)event_file_bytes(file, &size_bytes);
        if (size_bytes >= EVENT_FILE_END_BYTES &&
            event_file_read_end(file, size_bytes - EVENT_FILE_END_BYTES, &end, &fault) == 0 && end.checked)
                return true;
        return is_whole(file, true, at, &record) || find_whole(file, true, &at);
}

static bool next_part(const struct event_file *file, struct part *p, struct eformat_fault *ret_fault)
{
        size_t from = p->to;

        if (from > 0 && !find_whole(file, p->stamped, &from))
                return false;
        p->from = from;
        walk(file, p, ret_fault);
        return true;
}

/* Whether the file is as it was written; if not, sets the first fault. */
static bool ends_well(const struct event_file *file, const struct part *p, struct event_file_repair *ret)
{
        struct event_file_end end;
        const char *reason;

        if (!p->ended || event_file_read_end(file, p->to, &end, &ret->fault) < 0)
                return false;
        reason = event_file_check_end(file, p->to, &end, &p->found);
        if (reason)
                ret->fault = (struct eformat_fault){.offset_bytes = p->to, .reason = reason};
        ret->wrong_records = reason && end.checked && end.events == (uint32_t)p->found.events;
        return !reason;
}

/* Finds where another file begins between `from` and `to`: its events may belong to another run. 0: none. */
static size_t find_start(const struct event_file *file, size_t from, size_t to)
{
        size_t size_bytes;
        const uint8_t *bytes = event_file_bytes(file, &size_bytes),
                      *start = find_words(bytes + from, to - from, EVENT_FILE_START, 8);

        return start ? (size_t)(start - bytes) : 0;
}

/* Number of events that the end record after the last intact event counts in addition to the events found. */
static uint64_t count_missing(const struct event_file *file, size_t from, uint64_t events)
{
        size_t size_bytes;
        const uint8_t *bytes = event_file_bytes(file, &size_bytes),
                      *end = find_words(bytes + from, size_bytes - from, EVENT_FILE_END, 10);

        if (!end || (size_t)(bytes + size_bytes - end) < EVENT_FILE_END_BYTES ||
            eformat_word(end, 9) != EVENT_FILE_END_MARK || eformat_word(end, 4) <= events)
                return 0;
        return eformat_word(end, 4) - events;
}

/* Counts the events that are kept, and returns their size in bytes. *ret_check is for their end record. */
static size_t find_parts(const struct event_file *file, struct event_file_repair *ret,
                         struct record_check *ret_check)
{
        struct eformat_fault later;
        struct part p = {.stamped = has_stamps(file)};
        size_t whole_bytes, last_to;

        (void)next_part(file, &p, &ret->fault);
        ret->events = p.found.events;
        *ret_check = (struct record_check){.front_crc = event_file_front_crc(file), .blocks = p.found.blocks};
        ret->was_whole = ends_well(file, &p, ret);
        whole_bytes = last_to = p.to;
        while (!ret->was_whole && next_part(file, &p, &later)) {
                if (ret->other_file == 0)
                        ret->other_file = find_start(file, last_to, p.from);
                ret->gaps++;
                ret->behind += p.found.events;
                ret_check->blocks ^= p.found.blocks;
                whole_bytes += p.to - p.from;
                last_to = p.to;
        }
        ret->events += ret->behind;
        ret_check->on = p.stamped || ret->events == 0;
        ret->missing = ret->was_whole ? 0 : count_missing(file, last_to, ret->events);
        return whole_bytes;
}

static void make_end(uint8_t to[static EVENT_FILE_END_BYTES], const struct event_file_repair *repair,
                     const struct record_check *check, size_t whole_bytes, time_t now)
{
        struct event_file_end end = {
                .events = (uint32_t)repair->events,
                .megabytes = (uint32_t)(whole_bytes >> 20),
                .run_events = (uint32_t)repair->events, /* nothing is known about earlier files of the run */
                .run_megabytes = (uint32_t)(whole_bytes >> 20),
                .status = 1,
        };

        record_date(now, &end.date, &end.time);
        record_put_end(to, &end, check);
}

/* Opens a file for a new result, or the file that an interrupted repair left. -EBUSY: another repair is
 * writing it, or has just given it its name. */
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

/* If the caller is root, gives the result the owner and the permissions of the original. */
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

static int set_final_name(const char *unfinished, const char *output)
{
        if (renameat2(AT_FDCWD, unfinished, AT_FDCWD, output, RENAME_NOREPLACE) == 0)
                return 0;
        /* Some file systems do not support the flag. */
        if (errno != EINVAL)
                return -errno;
        return access(output, F_OK) == 0 ? -EEXIST : rename(unfinished, output) < 0 ? -errno : 0;
}

/* Writes all intact events and the end record; if `end` is NULL, copies the file unchanged. */
static int write_parts(int fd, const struct event_file *file, const uint8_t *end)
{
        size_t size_bytes, written, at = 0;
        const uint8_t *bytes = event_file_bytes(file, &size_bytes);
        struct iovec iov = {(void *)bytes, size_bytes};
        struct eformat_fault fault;
        struct part p = {.stamped = has_stamps(file)};
        int r = 0;

        if (!end)
                return record_write_all(fd, &iov, 1, 0, &written);
        while (r == 0 && next_part(file, &p, &fault)) {
                iov = (struct iovec){(void *)(bytes + p.from), p.to - p.from};
                r = record_write_all(fd, &iov, 1, at, &written);
                at += written;
        }
        iov = (struct iovec){(void *)end, EVENT_FILE_END_BYTES};
        return r < 0 ? r : record_write_all(fd, &iov, 1, at, &written);
}

/* `output` gets its name once it is complete, so an interrupted repair can be repeated. */
static int write_new(const char *output, int from, const struct event_file *file, const uint8_t *end,
                     struct event_file_repair *ret)
{
        char unfinished[PATH_MAX];
        _cleanup_close_ int fd = -1;
        int r;

        ret->at_output = true;
        if (access(output, F_OK) == 0)
                return -EEXIST;
        if ((size_t)snprintf(unfinished, sizeof unfinished, "%s.repair", output) >= sizeof unfinished)
                return -ENAMETOOLONG;
        fd = open_unfinished(unfinished);
        if (fd < 0)
                return fd;
        r = write_parts(fd, file, ret->was_whole ? NULL : end);
        if (r == 0)
                r = copy_owner(from, fd);
        if (r == 0 && fsync(fd) < 0)
                r = -errno;
        if (r == 0)
                r = set_final_name(unfinished, output);
        if (r < 0)
                unlink(unfinished);
        return r;
}

/* Writes the end record before it truncates the file: after a crash in between, a repair finds the same
 * events. */
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

/* If the file cannot be opened for writing, opens it for reading, because an intact file needs no repair. */
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
        struct record_check check;
        size_t size_bytes, whole_bytes;
        int r;

        *ret = (struct event_file_repair){0};
        if (fd < 0)
                return fd;
        r = record_lock_repair(fd, writing, &ret->holder);
        if (r == 0)
                r = event_file_map(&file, fd, &ret->fault);
        if (r < 0)
                return r;
        (void)event_file_bytes(file, &size_bytes);
        whole_bytes = find_parts(file, ret, &check);
        if (ret->other_file > 0 || (!output && ret->behind > 0))
                return -EBADMSG;
        if (ret->was_whole && !output)
                return 0;
        if (!output && !writing)
                return -EACCES;
        ret->cut_bytes = ret->was_whole ? 0 : size_bytes - whole_bytes;
        make_end(end, ret, &check, whole_bytes, now);
        return output ? write_new(output, fd, file, end, ret) : write_in_place(fd, whole_bytes, end);
}
