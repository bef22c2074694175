/* Builds the records of EventStorage files, writes them, and locks the files. event_file.c reads them. */
#include "event_record.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <sys/uio.h>

#include "base/cursor.h"

/* Skips the first `skip` bytes of `iov` and returns the next batch; the kernel accepts at most IOV_MAX. */
static size_t next_batch(const struct iovec *iov, size_t n_iov, size_t skip, struct iovec *batch, size_t size)
{
        size_t n = 0;

        for (size_t i = 0; i < n_iov && n < size; i++) {
                size_t here = MIN(skip, iov[i].iov_len);

                skip -= here;
                if (iov[i].iov_len > here)
                        batch[n++] = (struct iovec){(uint8_t *)iov[i].iov_base + here, iov[i].iov_len - here};
        }
        return n;
}

int record_write_all(int fd, const struct iovec *iov, size_t n_iov, uint64_t offset, size_t *ret_written)
{
        struct iovec batch[256];
        size_t n;

        *ret_written = 0;
        while ((n = next_batch(iov, n_iov, *ret_written, batch, ARRAY_SIZE(batch))) > 0) {
                ssize_t r = pwritev(fd, batch, (int)n, (off_t)(offset + *ret_written));

                if (r < 0 && errno == EINTR)
                        continue;
                if (r <= 0)
                        return r < 0 ? -errno : -EIO;
                *ret_written += (size_t)r;
        }
        return 0;
}

void record_date(time_t time, uint32_t *ret_date, uint32_t *ret_time)
{
        struct tm tm = {0};

        localtime_r(&time, &tm);
        *ret_date = (uint32_t)(tm.tm_mday * 1000000 + (tm.tm_mon + 1) * 10000 + tm.tm_year + 1900);
        *ret_time = (uint32_t)(tm.tm_hour * 10000 + tm.tm_min * 100 + tm.tm_sec);
}

/* Does not use the cursor, for which gcc 12 reports false overflows in arrays of known size. */
static void put_words(uint8_t *to, const uint32_t *words, size_t n)
{
        for (size_t i = 0; i < n; i++) {
                uint32_t little = htole32(words[i]);

                memcpy(to + 4 * i, &little, sizeof little);
        }
}

void record_put_data(uint8_t to[static EVENT_FILE_DATA_BYTES], uint32_t block, uint32_t size_bytes)
{
        uint32_t words[] = {EVENT_FILE_DATA, 4, block, size_bytes};

        put_words(to, words, ARRAY_SIZE(words));
}

uint16_t record_crc(uint16_t crc, const void *bytes, size_t size_bytes)
{
        const uint8_t *at = bytes;

        for (size_t i = 0; i < size_bytes; i++) {
                crc ^= (uint16_t)(at[i] << 8);
                for (int bit = 0; bit < 8; bit++)
                        crc = (uint16_t)(crc & 0x8000 ? crc << 1 ^ 0x1021 : crc << 1);
        }
        return crc;
}

void record_put_end(uint8_t to[static EVENT_FILE_END_BYTES], const struct event_file_end *end,
                    const struct record_check *check)
{
        uint32_t words[] = {
                EVENT_FILE_END,  10,
                end->date,       end->time,
                end->events,     end->megabytes,
                end->run_events, end->run_megabytes,
                end->status,     EVENT_FILE_END_MARK,
        };
        uint8_t blocks[4];
        uint16_t crc;

        words[8] |= check->on ? RECORD_CHECKED : 0;
        put_words(to, words, ARRAY_SIZE(words));
        if (!check->on)
                return;
        put_words(blocks, &check->blocks, 1);
        crc = record_crc(check->front_crc, blocks, sizeof blocks);
        crc = record_crc(crc, to, EVENT_FILE_END_BYTES);
        words[8] |= (uint32_t)crc << 8;
        put_words(to, words, ARRAY_SIZE(words));
}

static void put_text(struct writer *w, const char *text)
{
        size_t length = strlen(text);

        writer_u32(w, (uint32_t)length);
        for (size_t i = 0; i < ALIGN_UP(length, 4u); i++)
                writer_u8(w, i < length ? (uint8_t)text[i] : ' ');
}

static void put_names(struct writer *w, const struct event_file_front *front)
{
        char core[EVENT_FILE_TEXT_MAX + 32];

        writer_u32(w, EVENT_FILE_NAMES);
        put_text(w, front->application);
        if (front->version == 2 && front->has_seed)
                snprintf(core, sizeof core, "%s seed=%" PRIu64, front->core_name, front->seed);
        else
                snprintf(core, sizeof core, "%s", front->core_name);
        if (strlen(core) >= EVENT_FILE_TEXT_MAX)
                w->failed = true;
        put_text(w, core);
}

static void put_metadata(struct writer *w, const struct event_file_front *front)
{
        char seed[32];

        writer_u32(w, EVENT_FILE_METADATA);
        writer_u32(w, (uint32_t)front->n_metadata + front->has_seed);
        for (size_t i = 0; i < front->n_metadata; i++)
                put_text(w, front->metadata[i]);
        if (front->has_seed) {
                snprintf(seed, sizeof seed, "Seed=%" PRIu64, front->seed);
                put_text(w, seed);
        }
}

size_t record_put_front(uint8_t to[static RECORD_FRONT_MAX_BYTES], const struct event_file_front *front)
{
        struct writer w = writer_init(to, RECORD_FRONT_MAX_BYTES);
        uint32_t mask_words = front->version == 2 ? 1 : 4;

        writer_u32(&w, EVENT_FILE_START);
        writer_u32(&w, 8);
        writer_u32(&w, front->version);
        writer_u32(&w, front->file_number);
        writer_u32(&w, front->date);
        writer_u32(&w, front->time);
        writer_u32(&w, front->max_events);
        writer_u32(&w, front->max_megabytes);
        put_names(&w, front);
        if (front->version != 2)
                put_metadata(&w, front);
        writer_u32(&w, EVENT_FILE_RUN);
        writer_u32(&w, 8 + mask_words);
        writer_u32(&w, front->run);
        writer_u32(&w, front->max_events);
        writer_u32(&w, front->recording);
        writer_u32(&w, front->trigger_type);
        for (uint32_t i = 0; i < mask_words; i++)
                writer_u32(&w, (uint32_t)(front->detector_mask[i / 2] >> (i % 2 * 32)));
        writer_u32(&w, front->beam_type);
        writer_u32(&w, front->beam_energy);
        return w.failed ? 0 : RECORD_FRONT_MAX_BYTES - writer_left(&w);
}

void record_lock_writing(int fd)
{
        struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};

        while (fcntl(fd, F_SETLKW, &lock) < 0 && errno == EINTR)
                ;
}

pid_t record_lock_holder(int fd)
{
        struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};

        return fcntl(fd, F_OFD_GETLK, &lock) < 0 || lock.l_type == F_UNLCK ? 0 : MAX(lock.l_pid, 0);
}

int record_lock_repair(int fd, bool writing, pid_t *ret_holder)
{
        struct flock lock = {.l_type = writing ? F_WRLCK : F_RDLCK, .l_whence = SEEK_SET};

        if (fcntl(fd, F_OFD_SETLK, &lock) == 0 || (errno != EAGAIN && errno != EACCES))
                return 0;
        *ret_holder = record_lock_holder(fd);
        return -EBUSY;
}
