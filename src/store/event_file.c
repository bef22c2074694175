/* Reads EventStorage files from a private mapping, and checks each size against the mapping before use.
 * event_file_repair.c repairs them. */
#include "store/event_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "base/cursor.h"
#include "event_record.h"

struct event_file {
        const uint8_t *bytes;
        size_t size_bytes;
        size_t data_offset_bytes; /* of the first data record */
        struct event_file_front front;
};

static int file_bad(struct eformat_fault *fault, size_t offset_bytes, const char *reason)
{
        if (fault)
                *fault = (struct eformat_fault){.offset_bytes = offset_bytes, .reason = reason};
        return -EBADMSG;
}

static void read_text(struct reader *r, char text[static EVENT_FILE_TEXT_MAX])
{
        uint32_t length = reader_u32(r);
        const char *bytes = reader_consume(r, ALIGN_UP((size_t)length, 4u));

        if (bytes) {
                size_t n = MIN(length, EVENT_FILE_TEXT_MAX - 1);

                memcpy(text, bytes, n);
                text[n] = '\0';
        }
}

static bool parse_seed(const char *text, struct event_file_front *front)
{
        char *end;

        if (text[0] < '0' || text[0] > '9')
                return false;
        errno = 0;
        front->seed = strtoull(text, &end, 10);
        front->has_seed = errno == 0 && *end == '\0';
        return front->has_seed;
}

static void find_seed(struct event_file_front *front)
{
        char *seed = strstr(front->core_name, " seed=");

        if (seed && parse_seed(seed + 6, front))
                *seed = '\0';
        for (size_t i = 0; i < front->n_metadata; i++)
                if (strncmp(front->metadata[i], "Seed=", 5) == 0)
                        parse_seed(front->metadata[i] + 5, front);
}

static const char *read_start(struct reader *r, struct event_file_front *front)
{
        if (reader_u32(r) != EVENT_FILE_START || reader_u32(r) != 8)
                return "missing file start record";
        front->version = reader_u32(r);
        if (front->version != 2 && front->version != 5 && front->version != 6)
                return "unsupported file version; expected 2, 5 or 6";
        front->file_number = reader_u32(r);
        front->date = reader_u32(r);
        front->time = reader_u32(r);
        front->max_events = reader_u32(r);
        front->max_megabytes = reader_u32(r);
        if (reader_u32(r) != EVENT_FILE_NAMES)
                return "missing names record";
        read_text(r, front->application);
        read_text(r, front->core_name);
        return NULL;
}

static const char *read_metadata(struct reader *r, struct event_file_front *front)
{
        char text[EVENT_FILE_TEXT_MAX] = "";
        uint32_t n;

        if (front->version == 2)
                return NULL;
        if (reader_u32(r) != EVENT_FILE_METADATA)
                return "missing metadata record";
        n = reader_u32(r);
        for (uint32_t i = 0; i < n && !r->failed; i++) {
                read_text(r, text);
                if (i < EVENT_FILE_METADATA_MAX && !r->failed)
                        memcpy(front->metadata[front->n_metadata++], text, sizeof text);
        }
        return NULL;
}

static const char *read_run(struct reader *r, struct event_file_front *front)
{
        uint32_t mask_words = front->version == 2 ? 1 : front->version == 5 ? 2 : 4;

        if (reader_u32(r) != EVENT_FILE_RUN || reader_u32(r) != 8 + mask_words)
                return "missing run parameters record";
        front->run = reader_u32(r);
        reader_u32(r); /* repeats max_events */
        front->recording = reader_u32(r);
        front->trigger_type = reader_u32(r);
        for (uint32_t i = 0; i < mask_words; i++)
                front->detector_mask[i / 2] |= (uint64_t)reader_u32(r) << (i % 2 * 32);
        front->beam_type = reader_u32(r);
        front->beam_energy = reader_u32(r);
        return NULL;
}

static int read_front(struct event_file *file, struct eformat_fault *fault)
{
        static const char *(*const readers[])(struct reader *, struct event_file_front *) = {
                read_start, read_metadata, read_run};
        struct reader r = reader_init(file->bytes, file->size_bytes);

        for (size_t i = 0; i < ARRAY_SIZE(readers); i++) {
                size_t offset_bytes = (size_t)(r.at - file->bytes);
                const char *reason = readers[i](&r, &file->front);

                if (r.failed)
                        return file_bad(fault, file->size_bytes, "file ends within its front records");
                if (reason)
                        return file_bad(fault, offset_bytes, reason);
        }
        find_seed(&file->front);
        file->data_offset_bytes = (size_t)(r.at - file->bytes);
        return 0;
}

static void event_file_freep(struct event_file **file)
{
        event_file_free(*file);
}

int event_file_open(struct event_file **ret, const char *path, struct eformat_fault *ret_fault)
{
        /* A FIFO is refused, and not waited for. */
        _cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);

        return fd < 0 ? -errno : event_file_map(ret, fd, ret_fault);
}

int event_file_map(struct event_file **ret, int fd, struct eformat_fault *ret_fault)
{
        _cleanup_(event_file_freep) struct event_file *file = NULL;
        struct stat st;
        void *bytes;
        int r;

        if (fstat(fd, &st) < 0)
                return -errno;
        if (!S_ISREG(st.st_mode))
                return S_ISDIR(st.st_mode) ? -EISDIR : -EINVAL;
        if (st.st_size == 0)
                return file_bad(ret_fault, 0, "file is empty");
        file = calloc(1, sizeof *file);
        if (!file)
                return -ENOMEM;
        bytes = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
        if (bytes == MAP_FAILED)
                return -errno;
        file->bytes = bytes;
        file->size_bytes = (size_t)st.st_size;
        r = read_front(file, ret_fault);
        if (r < 0)
                return r;
        *ret = take_ptr(file);
        return 0;
}

struct event_file *event_file_free(struct event_file *file)
{
        if (file && file->bytes)
                munmap((void *)file->bytes, file->size_bytes);
        free(file);
        return NULL;
}

const struct event_file_front *event_file_front(const struct event_file *file)
{
        return &file->front;
}

const uint8_t *event_file_bytes(const struct event_file *file, size_t *ret_size_bytes)
{
        *ret_size_bytes = file->size_bytes;
        return file->bytes;
}

int event_file_next(const struct event_file *file, size_t *position, struct event_record *ret,
                    struct eformat_fault *ret_fault)
{
        size_t at = MAX(*position, file->data_offset_bytes), left = file->size_bytes - at;
        const uint8_t *record = file->bytes + at;
        uint32_t size_bytes;

        *position = at;
        if (left < 4)
                return file_bad(ret_fault, at, "file ends without an end record");
        if (eformat_word(record, 0) == EVENT_FILE_END)
                return 0;
        if (eformat_word(record, 0) != EVENT_FILE_DATA)
                return file_bad(ret_fault, at, "expected a data or end record");
        if (left < EVENT_FILE_DATA_BYTES)
                return file_bad(ret_fault, at, "truncated data record");
        if (eformat_word(record, 1) != 4)
                return file_bad(ret_fault, at, "data record header size is not 4 words");
        size_bytes = eformat_word(record, 3);
        if (size_bytes == 0 || size_bytes % 4 != 0)
                return file_bad(ret_fault, at, "event size is 0 or not a multiple of 4 bytes");
        if (size_bytes > left - EVENT_FILE_DATA_BYTES)
                return file_bad(ret_fault, at, "event extends past the end of the file");
        *ret = (struct event_record){
                .offset_bytes = at,
                .block = eformat_word(record, 2),
                .event = record + EVENT_FILE_DATA_BYTES,
                .size_bytes = size_bytes,
        };
        *position = at + EVENT_FILE_DATA_BYTES + size_bytes;
        return 1;
}

int event_file_read_end(const struct event_file *file, size_t position, struct event_file_end *ret,
                        struct eformat_fault *ret_fault)
{
        struct reader r = reader_init(file->bytes + position, file->size_bytes - position);
        struct event_file_end end;
        size_t rest;

        if (reader_left(&r) < EVENT_FILE_END_BYTES)
                return file_bad(ret_fault, position, "truncated end record");
        if (reader_u32(&r) != EVENT_FILE_END || reader_u32(&r) != 10)
                return file_bad(ret_fault, position, "missing end record");
        end.date = reader_u32(&r);
        end.time = reader_u32(&r);
        end.events = reader_u32(&r);
        end.megabytes = reader_u32(&r);
        end.run_events = reader_u32(&r);
        end.run_megabytes = reader_u32(&r);
        end.status = reader_u32(&r);
        end.checked = (end.status & 0xFFu << 24) == RECORD_CHECKED;
        if (end.checked)
                end.status &= 0xff;
        if (reader_u32(&r) != EVENT_FILE_END_MARK)
                return file_bad(ret_fault, position, "end record without end mark");
        rest = reader_left(&r);
        if (rest >= 4 && reader_u32(&r) == EVENT_FILE_START)
                return file_bad(ret_fault, position + EVENT_FILE_END_BYTES,
                                "another file begins after the end record; split them at this byte");
        if (rest > 0)
                return file_bad(ret_fault, position + EVENT_FILE_END_BYTES, "bytes after the end record");
        *ret = end;
        return 0;
}

uint16_t event_file_front_crc(const struct event_file *file)
{
        return record_crc(RECORD_CRC_BEGIN, file->bytes, file->data_offset_bytes);
}

static bool check_is_right(const struct event_file *file, size_t position, const struct event_file_end *end,
                           uint32_t blocks)
{
        struct record_check check = {.on = true, .front_crc = event_file_front_crc(file), .blocks = blocks};
        uint8_t expected[EVENT_FILE_END_BYTES];

        record_put_end(expected, end, &check);
        return memcmp(file->bytes + position, expected, sizeof expected) == 0;
}

const char *event_file_check_end(const struct event_file *file, size_t position,
                                 const struct event_file_end *end, const struct event_file_found *found)
{
        if (end->events != (uint32_t)found->events || end->run_events < end->events)
                return "event count in the end record is wrong";
        if (end->checked)
                return check_is_right(file, position, end, found->blocks)
                               ? NULL
                               : "front records, block numbers and end record do not match their check";
        /* Files of earlier versions, and of other programs, have no check. */
        return found->stamped > 0 || (found->events == 0 && end->status > 1)
                       ? "end record without the check that this file has"
                       : NULL;
}
