/* Writes the index of an event file, with which a reader opens the file without reading all of it: while the
 * event writer writes the file, or from a whole file. docs/event-format.md has its layout. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

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

struct event_index {
        int directory_fd, fd; /* fd: -1: no index is open */
        char name[PATH_MAX];
        uint32_t version, front_sum;
        uint64_t entries;
        uint32_t sum; /* of all entries */
        size_t n;     /* entries in `entry` */
        struct index_entry entry[ENTRIES_AT_ONCE];
};

/* ---- The index of a file that grows ---- */

struct event_index *event_index_new(void)
{
        struct event_index *x = malloc(sizeof *x);

        if (x)
                x->fd = -1;
        return x;
}

struct event_index *event_index_free(struct event_index *x)
{
        if (x)
                event_index_drop(x);
        free(x);
        return NULL;
}

void event_index_drop(struct event_index *x)
{
        if (x->fd < 0)
                return;
        unlinkat(x->directory_fd, x->name, 0);
        close(take_fd(&x->fd));
}

int event_index_begin(struct event_index *x, int directory_fd, const char *name, unsigned file_version,
                      uint32_t front_sum)
{
        if ((size_t)snprintf(x->name, sizeof x->name, "%s", name) >= sizeof x->name)
                return -ENAMETOOLONG;
        x->directory_fd = directory_fd;
        x->version = file_version == 2 ? 3 : 5;
        x->front_sum = front_sum;
        x->entries = x->n = 0;
        x->sum = ADLER_BEGIN;
        x->fd = openat(directory_fd, name, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0666);
        return x->fd < 0 ? -errno : 0;
}

static int write_at(int fd, const void *bytes, size_t size_bytes, uint64_t offset)
{
        struct iovec iov = {(void *)(uintptr_t)bytes, size_bytes};
        size_t written;

        return record_write_all(fd, &iov, 1, offset, &written);
}

static int flush(struct event_index *x)
{
        size_t bytes = x->n * sizeof *x->entry;
        uint64_t offset = sizeof(struct index_head) + x->entries * sizeof *x->entry;

        x->sum = adler_add(x->sum, x->entry, bytes);
        x->entries += x->n;
        x->n = 0;
        return write_at(x->fd, x->entry, bytes, offset);
}

int event_index_add(struct event_index *x, uint64_t at, size_t size_bytes, const struct event_info *info)
{
        x->entry[x->n++] = (struct index_entry){
                .at = htole64(at),
                .number = htole64(info->event != UINT64_MAX ? info->event : info->global_id),
                .global_id = htole64(info->global_id),
                .time_ns = htole64(info->time_s * NS_PER_S + info->time_ns),
                .size_bytes = htole32((uint32_t)size_bytes),
                .version = htole32(x->version),
                .status = htole32(info->status),
                .run = htole32(info->run),
                .l1_id = htole32(info->l1_id),
                .trigger_type = htole32(info->trigger_type),
                .spill = htole32(info->spill),
                .trigger_flags = htole32(info->flags),
        };
        return x->n == ENTRIES_AT_ONCE ? flush(x) : 0;
}

static int64_t changed_ns(const struct stat *st)
{
        return st->st_mtim.tv_sec * (int64_t)NS_PER_S + st->st_mtim.tv_nsec;
}

static int write_head(const struct event_index *x, const struct stat *st,
                      const uint8_t end[static EVENT_FILE_END_BYTES])
{
        struct index_head head = {
                .magic = MAGIC,
                .entries = htole64(x->entries),
                .file_bytes = htole64((uint64_t)st->st_size),
                .changed_ns = htole64((uint64_t)changed_ns(st)),
                .front_sum = htole32(x->front_sum),
        };
        uint32_t sum;

        memcpy(head.end, end, sizeof head.end);
        sum = adler_add(ADLER_BEGIN, &head, sizeof head);
        head.sum = htole32(adler_join(sum, x->sum, x->entries * sizeof *x->entry));
        return write_at(x->fd, &head, sizeof head, 0);
}

int event_index_finish(struct event_index *x, const char *name, const struct stat *st,
                       const uint8_t end[static EVENT_FILE_END_BYTES])
{
        int r = flush(x);

        if (r >= 0)
                r = write_head(x, st, end);
        if (r >= 0 && renameat(x->directory_fd, x->name, x->directory_fd, name) < 0)
                r = -errno;
        if (r >= 0)
                close(take_fd(&x->fd));
        return r;
}

/* ---- The index of a whole file ---- */

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

static int add_record(struct event_index *x, const struct event_file *file, const struct event_record *record,
                      struct event_file_found *found, struct eformat_fault *fault)
{
        size_t at = record->offset_bytes + EVENT_FILE_DATA_BYTES;
        uint32_t version = event_file_front(file)->version == 2 ? 0x300 : 0x500;
        struct eformat_fragment event = {};
        struct event_info info;
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
        eformat_event_info(&event, &info);
        return event_index_add(x, at, record->size_bytes, &info);
}

static int add_all(struct event_index *x, const struct event_file *file, struct eformat_fault *fault)
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
        return differs ? damaged(fault, position, differs) : 0;
}

/* The first data record follows the front records; without events, the end record does. */
static size_t front_bytes(const struct event_file *file)
{
        size_t position = 0;
        struct event_record record;

        return event_file_next(file, &position, &record, NULL) > 0 ? record.offset_bytes : position;
}

static int check_unchanged(int fd, const struct stat *before)
{
        struct stat after;

        if (fstat(fd, &after) < 0)
                return -errno;
        return after.st_size == before->st_size && changed_ns(&after) == changed_ns(before) ? 0 : -EBUSY;
}

/* Two processes may index the file at once. */
static int write_new(struct event_index *x, const char *path, int fd, const struct event_file *file,
                     const struct stat *before, struct eformat_fault *fault)
{
        char name[PATH_MAX], new_name[PATH_MAX];
        size_t size_bytes;
        const uint8_t *bytes = event_file_bytes(file, &size_bytes);
        int r;

        if ((size_t)snprintf(name, sizeof name, "%s" EVENT_FILE_INDEX, path) >= sizeof name ||
            (size_t)snprintf(new_name, sizeof new_name, "%s.%d.new", name, (int)getpid()) >= sizeof new_name)
                return -ENAMETOOLONG;
        r = event_index_begin(x, AT_FDCWD, new_name, event_file_front(file)->version,
                              adler_add(ADLER_BEGIN, bytes, front_bytes(file)));
        if (r >= 0)
                r = add_all(x, file, fault);
        if (r >= 0)
                r = check_unchanged(fd, before);
        return r < 0 ? r : event_index_finish(x, name, before, bytes + size_bytes - EVENT_FILE_END_BYTES);
}

int event_file_write_index(const char *path, uint64_t *ret_events, struct eformat_fault *ret_fault,
                           bool *ret_at_index)
{
        struct event_index *x;
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
        x = event_index_new();
        r = x ? write_new(x, path, fd, file, &before, ret_fault) : -ENOMEM;
        if (r >= 0)
                *ret_events = x->entries;
        *ret_at_index = r != -EBADMSG && r != -EBUSY;
        event_index_free(x);
        event_file_free(file);
        return r;
}
