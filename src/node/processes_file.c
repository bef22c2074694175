/* Encodes a DFM's record of its run, and replaces the file. docs/operate.md names the file. */
#include "processes_file.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cursor.h"
#include "base/util.h"

#define MAGIC 0x50425645u /* "EVBP" */
#define VERSION 7u
/* No part needs more bytes in the file than in memory. */
#define BYTES_MAX (sizeof(struct dfm_processes) + sizeof(struct processes_counters) + 64)

enum { HAS_ALL = 1, GUESSED = 2, UNRECORDED = 4 };
enum { NUMBERED = 1, IN_SPILL = 2, PAUSED = 4, OVER = 8 };
enum { GONE = 1, VANISHED = 2, REPLACED = 4, UNKNOWN = 8, LEFT = 16 };

static void put_numbers(struct writer *w, const uint64_t *numbers, size_t size_bytes)
{
        for (size_t i = 0; i < size_bytes / sizeof *numbers; i++)
                writer_u64(w, numbers[i]);
}

static void get_numbers(struct reader *r, uint64_t *numbers, size_t size_bytes)
{
        for (size_t i = 0; i < size_bytes / sizeof *numbers; i++)
                numbers[i] = reader_u64(r);
}

/* For parts that consist only of numbers. */
#define PUT(w, part) put_numbers(w, (const uint64_t *)(part), sizeof *(part))
#define GET(r, part) get_numbers(r, (uint64_t *)(part), sizeof *(part))

static void put_came(struct writer *w, const struct dfm_came *c)
{
        PUT(w, &c->offered);
        writer_u64(w, c->next);
        writer_u32(w, c->waiting);
        writer_u32(w, (c->numbered ? NUMBERED : 0) | (c->in_spill ? IN_SPILL : 0) | (c->paused ? PAUSED : 0) |
                              (c->over ? OVER : 0));
        PUT(w, &c->seen);
}

static void get_came(struct reader *r, struct dfm_came *c)
{
        uint32_t flags;

        GET(r, &c->offered);
        c->next = reader_u64(r);
        c->waiting = reader_u32(r);
        flags = reader_u32(r);
        c->numbered = flags & NUMBERED;
        c->in_spill = flags & IN_SPILL;
        c->paused = flags & PAUSED;
        c->over = flags & OVER;
        GET(r, &c->seen);
}

static void put_process(struct writer *w, const struct dfm_process *p)
{
        writer_u64(w, p->incarnation);
        writer_u32(w, (p->gone ? GONE : 0) | (p->vanished ? VANISHED : 0) | (p->replaced ? REPLACED : 0) |
                              (p->unknown ? UNKNOWN : 0) | (p->left ? LEFT : 0));
        writer_u16(w, p->flags);
        writer_u64(w, p->frames);
        PUT(w, &p->ends);
        writer_u64(w, p->unclosed);
}

static void get_process(struct reader *r, struct dfm_process *p)
{
        uint32_t flags;

        p->incarnation = reader_u64(r);
        flags = reader_u32(r);
        p->gone = flags & GONE;
        p->vanished = flags & VANISHED;
        p->replaced = flags & REPLACED;
        p->unknown = flags & UNKNOWN;
        p->left = flags & LEFT;
        p->flags = reader_u16(r);
        p->frames = reader_u64(r);
        GET(r, &p->ends);
        p->unclosed = reader_u64(r);
}

static void put_metadata(struct writer *w, const struct metadata_set *m)
{
        writer_u16(w, m->version);
        writer_u16(w, m->n);
        for (uint16_t i = 0; i < m->n; i++) {
                void *to = writer_reserve(w, sizeof m->entries[i]);

                if (to)
                        memcpy(to, &m->entries[i], sizeof m->entries[i]);
        }
}

static void get_metadata(struct reader *r, struct metadata_set *m)
{
        m->version = reader_u16(r);
        m->n = reader_u16(r);
        r->failed |= m->n > METADATA_MAX;
        for (uint16_t i = 0; i < m->n && !r->failed; i++) {
                const void *from = reader_consume(r, sizeof m->entries[i]);
                struct metadata_entry *e = &m->entries[i];

                if (from)
                        memcpy(e, from, sizeof *e);
                e->name[METADATA_NAME_BYTES - 1] = e->value[METADATA_VALUE_BYTES - 1] = '\0';
        }
}

static size_t encode(const struct processes_file *f)
{
        const struct dfm_processes *p = f->processes;
        struct writer w = writer_init(f->bytes, BYTES_MAX);

        writer_u32(&w, MAGIC);
        writer_u32(&w, VERSION);
        writer_u32(&w, (p->has_all ? HAS_ALL : 0) | (p->guessed ? GUESSED : 0) |
                               (p->unrecorded ? UNRECORDED : 0));
        writer_u32(&w, p->n_ros);
        writer_u32(&w, p->n_sfi);
        writer_u32(&w, p->n_words);
        writer_u32(&w, p->n_away);
        writer_u64(&w, p->cookie);
        PUT(&w, &p->dfms);
        writer_u64(&w, p->oldest);
        writer_u64(&w, p->next);
        writer_u64(&w, p->built_end);
        writer_u64(&w, p->away_from);
        writer_u64(&w, p->forgotten_from);
        writer_u64(&w, p->forgotten);
        PUT(&w, &p->replaced);
        PUT(&w, &p->again);
        PUT(&w, &p->counted);
        put_came(&w, &p->came);
        PUT(&w, &p->figures);
        PUT(&w, &f->counters);
        put_metadata(&w, &p->metadata);
        for (uint32_t i = 0; i < p->n_ros; i++)
                put_process(&w, &p->ross[i]);
        for (uint32_t i = 0; i < p->n_sfi; i++)
                put_process(&w, &p->sfis[i]);
        put_numbers(&w, p->away, p->n_away * sizeof *p->away);
        put_numbers(&w, p->words, p->n_words * sizeof *p->words);
        writer_u32(&w, message_check(f->bytes, (size_t)(w.at - f->bytes)));
        assert(!w.failed);
        return (size_t)(w.at - f->bytes);
}

/* False: encode() did not write these bytes. */
static bool decode(struct processes_file *f, size_t n)
{
        struct reader r = reader_init(f->bytes, n);
        struct dfm_processes *p = f->processes;
        uint32_t flags;

        if (reader_u32(&r) != MAGIC || reader_u32(&r) != VERSION)
                return false;
        flags = reader_u32(&r);
        p->has_all = flags & HAS_ALL;
        p->guessed = flags & GUESSED;
        p->unrecorded = flags & UNRECORDED;
        p->n_ros = reader_u32(&r);
        p->n_sfi = reader_u32(&r);
        p->n_words = reader_u32(&r);
        p->n_away = reader_u32(&r);
        p->cookie = reader_u64(&r);
        GET(&r, &p->dfms);
        p->oldest = reader_u64(&r);
        p->next = reader_u64(&r);
        p->built_end = reader_u64(&r);
        p->away_from = reader_u64(&r);
        p->forgotten_from = reader_u64(&r);
        p->forgotten = reader_u64(&r);
        GET(&r, &p->replaced);
        GET(&r, &p->again);
        GET(&r, &p->counted);
        get_came(&r, &p->came);
        GET(&r, &p->figures);
        GET(&r, &f->counters);
        get_metadata(&r, &p->metadata);
        if (p->n_ros > EVB_ROS_MAX || p->n_sfi > EVB_SFI_MAX || p->n_words > DFM_PROCESSES_WORDS ||
            p->n_away > DFM_AWAY_WORDS)
                return false;
        for (uint32_t i = 0; i < p->n_ros; i++)
                get_process(&r, &p->ross[i]);
        for (uint32_t i = 0; i < p->n_sfi; i++)
                get_process(&r, &p->sfis[i]);
        get_numbers(&r, p->away, p->n_away * sizeof *p->away);
        get_numbers(&r, p->words, p->n_words * sizeof *p->words);
        return reader_u32(&r) == message_check(f->bytes, n - MIN(n, sizeof(uint32_t))) && !r.failed &&
               reader_left(&r) == 0;
}

int processes_file_open(struct processes_file *f, const char *record_path)
{
        snprintf(f->path, sizeof f->path, "%s.processes", record_path);
        snprintf(f->next, sizeof f->next, "%s.next", f->path);
        f->bytes = calloc(1, BYTES_MAX + 1);
        f->processes = calloc(1, sizeof *f->processes);
        return f->bytes && f->processes ? 0 : -ENOMEM;
}

void processes_file_close(struct processes_file *f)
{
        free(f->bytes);
        free(f->processes);
        *f = (struct processes_file){};
}

int processes_file_read(struct processes_file *f)
{
        _cleanup_close_ int fd = open(f->path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
        ssize_t n;

        f->processes->cookie = 0;
        if (fd < 0)
                return -errno;
        n = pread(fd, f->bytes, BYTES_MAX + 1, 0);
        if (n < 0)
                return -errno;
        if (decode(f, (size_t)n))
                return 0;
        f->processes->cookie = 0;
        return -EBADMSG;
}

static int write_next(const struct processes_file *f, size_t n)
{
        _cleanup_close_ int fd = open(f->next, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0644);
        ssize_t written = fd < 0 ? -1 : write(fd, f->bytes, n);

        if (written < 0)
                return -errno;
        return (size_t)written < n ? -ENOSPC : 0;
}

int processes_file_write(struct processes_file *f)
{
        int r = write_next(f, encode(f));

        if (r >= 0 && rename(f->next, f->path) < 0)
                r = -errno;
        if (r < 0)
                processes_file_remove(f);
        return r;
}

void processes_file_remove(const struct processes_file *f)
{
        (void)unlink(f->next);
        (void)unlink(f->path);
}
