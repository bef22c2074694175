/* Writes the index of an event file, with which a reader opens the file without reading all of it:
 * docs/event-format.md has its layout. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/util.h"
#include "event_file.h"
#include "event_record.h"

#define MAGIC "EVBINDX1"
#define ENTRIES_AT_ONCE 1024
/* As the reader in Python requires. */
#define EVENT_LEAST_BYTES (4 * 17u)

struct index_head {
        char magic[8];
        uint64_t entries, file_bytes, changed_ns;
        uint32_t front_sum, sum;
        uint8_t end[EVENT_FILE_END_BYTES];
};

struct index_entry {
        uint64_t at, number, global_id, time_ns;
        uint32_t size_bytes, version, status, run, l1_id, trigger_type, spill, trigger_flags;
};

_Static_assert(sizeof(struct index_head) == 80, "as documented");
_Static_assert(sizeof(struct index_entry) == 64, "as documented");

struct index {
        int fd;
        uint64_t entries;
        uint32_t sum; /* of all entries */
        size_t n;     /* entries in `entry` */
        struct index_entry entry[ENTRIES_AT_ONCE];
};

static int write_at(int fd, const void *bytes, size_t size_bytes, uint64_t offset)
{
        struct iovec iov = {(void *)(uintptr_t)bytes, size_bytes};
        size_t written;

        return record_write_all(fd, &iov, 1, offset, &written);
}

static int flush(struct index *x)
{
        size_t bytes = x->n * sizeof *x->entry;
        uint64_t offset = sizeof(struct index_head) + x->entries * sizeof *x->entry;

        x->sum = adler_add(x->sum, x->entry, bytes);
        x->entries += x->n;
        x->n = 0;
        return write_at(x->fd, x->entry, bytes, offset);
}

static int add(struct index *x, const struct event_record *record, const struct eformat_fragment *event)
{
        struct event_info info;

        eformat_event_info(event, &info);
        x->entry[x->n++] = (struct index_entry){
                .at = htole64(record->offset_bytes + EVENT_FILE_DATA_BYTES),
                .number = htole64(info.event != UINT64_MAX ? info.event : info.global_id),
                .global_id = htole64(info.global_id),
                .time_ns = htole64(info.time_s * NS_PER_S + info.time_ns),
                .size_bytes = htole32(record->size_bytes),
                .version = htole32(event->version >> 24),
                .status = htole32(info.status),
                .run = htole32(info.run),
                .l1_id = htole32(info.l1_id),
                .trigger_type = htole32(info.trigger_type),
                .spill = htole32(info.spill),
                .trigger_flags = htole32(info.flags),
        };
        return x->n == ENTRIES_AT_ONCE ? flush(x) : 0;
}

static int keep_event(void *userdata, const struct eformat_fragment *f)
{
        struct eformat_fragment *event = userdata;

        if (f->depth == 0)
                *event = *f;
        return 0;
}

static int damaged(struct eformat_fault *ret, size_t offset_bytes, const char *reason)
{
        *ret = (struct eformat_fault){offset_bytes, reason};
        return -EBADMSG;
}

static int add_record(struct index *x, const struct event_file *file, const struct event_record *record,
                      struct event_file_found *found, struct eformat_fault *fault)
{
        size_t at = record->offset_bytes + EVENT_FILE_DATA_BYTES;
        uint32_t version = event_file_front(file)->version == 2 ? 0x300 : 0x500;
        struct eformat_fragment event = {};
        int r = eformat_walk(record->event, record->size_bytes, keep_event, &event, fault);

        if (r < 0) {
                fault->offset_bytes += at;
                return r;
        }
        if (event.marker != EFORMAT_EVENT || event.version >> 16 != version ||
            record->size_bytes < EVENT_LEAST_BYTES)
                return damaged(fault, at, "not an event of the version of this file");
        found->events++;
        found->stamped += eformat_has_stamp(&event);
        found->blocks ^= record->block;
        return add(x, record, &event);
}

static int add_all(struct index *x, const struct event_file *file, struct eformat_fault *fault)
{
        struct event_file_found found = {};
        struct event_file_end end;
        struct event_record record;
        const char *differs;
        size_t position = 0;
        int r;

        while ((r = event_file_next(file, &position, &record, fault)) > 0) {
                r = add_record(x, file, &record, &found, fault);
                if (r < 0)
                        return r;
        }
        if (r >= 0)
                r = event_file_read_end(file, position, &end, fault);
        if (r < 0)
                return r;
        differs = event_file_check_end(file, position, &end, &found);
        return differs ? damaged(fault, position, differs) : flush(x);
}

static int64_t changed_ns(const struct stat *st)
{
        return st->st_mtim.tv_sec * (int64_t)NS_PER_S + st->st_mtim.tv_nsec;
}

/* The first data record follows the front records; without events, the end record does. */
static size_t front_bytes(const struct event_file *file)
{
        size_t position = 0;
        struct event_record record;

        return event_file_next(file, &position, &record, NULL) > 0 ? record.offset_bytes : position;
}

static int write_head(const struct index *x, const struct event_file *file, const struct stat *st)
{
        size_t size_bytes;
        const uint8_t *bytes = event_file_bytes(file, &size_bytes);
        struct index_head head = {
                .magic = MAGIC,
                .entries = htole64(x->entries),
                .file_bytes = htole64(size_bytes),
                .changed_ns = htole64((uint64_t)changed_ns(st)),
                .front_sum = htole32(adler_add(ADLER_BEGIN, bytes, front_bytes(file))),
        };
        uint32_t sum;

        memcpy(head.end, bytes + size_bytes - sizeof head.end, sizeof head.end);
        sum = adler_add(ADLER_BEGIN, &head, sizeof head);
        head.sum = htole32(adler_join(sum, x->sum, x->entries * sizeof *x->entry));
        return write_at(x->fd, &head, sizeof head, 0);
}

static int write_index(int fd, const struct event_file *file, const struct stat *before, int index_fd,
                       uint64_t *ret_events, struct eformat_fault *fault)
{
        _cleanup_free_ struct index *x = malloc(sizeof *x);
        struct stat after;
        int r;

        if (!x)
                return -ENOMEM;
        x->fd = index_fd;
        x->entries = x->n = 0;
        x->sum = ADLER_BEGIN;
        r = add_all(x, file, fault);
        if (r >= 0)
                r = write_head(x, file, before);
        if (r >= 0 && fstat(fd, &after) < 0)
                r = -errno;
        if (r >= 0 && (after.st_size != before->st_size || changed_ns(&after) != changed_ns(before)))
                r = -EBUSY;
        if (r >= 0)
                *ret_events = x->entries;
        return r;
}

/* Two processes may index the file at once. */
static int write_new(const char *path, int fd, const struct event_file *file, const struct stat *before,
                     uint64_t *ret_events, struct eformat_fault *fault, bool *ret_at_index)
{
        _cleanup_free_ char *name = NULL, *new_name = NULL;
        _cleanup_close_ int index_fd = -1;
        int r;

        if (asprintf(&name, "%s" EVENT_FILE_INDEX, path) < 0 ||
            asprintf(&new_name, "%s.%d.new", name, (int)getpid()) < 0)
                return -ENOMEM;
        index_fd = open(new_name, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0666);
        r = index_fd < 0 ? -errno : write_index(fd, file, before, index_fd, ret_events, fault);
        if (r >= 0 && rename(new_name, name) < 0)
                r = -errno;
        *ret_at_index = r != -EBADMSG && r != -EBUSY;
        if (r < 0 && index_fd >= 0)
                unlink(new_name);
        return r;
}

int event_file_write_index(const char *path, uint64_t *ret_events, struct eformat_fault *ret_fault,
                           bool *ret_at_index)
{
        struct event_file *file = NULL;
        /* A FIFO is refused, and not waited for. */
        _cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
        struct stat before;
        pid_t holder;
        int r;

        *ret_at_index = false;
        *ret_fault = (struct eformat_fault){};
        if (fd < 0)
                return -errno;
        r = record_lock_repair(fd, false, &holder);
        if (r >= 0)
                r = fstat(fd, &before) < 0 ? -errno : event_file_map(&file, fd, ret_fault);
        if (r < 0)
                return r;
        r = write_new(path, fd, file, &before, ret_events, ret_fault, ret_at_index);
        event_file_free(file);
        return r;
}
