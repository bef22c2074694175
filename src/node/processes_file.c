/* Encodes a DFM's record of its run, and replaces the file. docs/operate.md names the file. One function
 * walks over each part in both directions. */
#include "processes_file.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/util.h"
#include "protocol/codec.h"

#define MAGIC 0x50425645u /* "EVBP" */
#define VERSION 9u
/* No part needs more bytes in the file than in memory. */
#define BYTES_MAX (sizeof(struct dfm_processes) + sizeof(struct processes_counters) + 64)

static void field_numbers(struct codec *c, uint64_t *numbers, size_t size_bytes)
{
        for (size_t i = 0; i < size_bytes / sizeof *numbers; i++)
                field_u64(c, &numbers[i]);
}

/* For parts that consist only of numbers. */
#define FIELD_PART(c, part) field_numbers(c, (uint64_t *)(part), sizeof *(part))

/* The first flag is the lowest bit. */
static void field_flags(struct codec *c, bool *const flags[], size_t n)
{
        uint32_t bits = 0;

        for (size_t i = 0; i < n; i++)
                bits |= (uint32_t)*flags[i] << i;
        field_u32(c, &bits);
        for (size_t i = 0; i < n; i++)
                *flags[i] = bits >> i & 1;
}

static void came_code(struct codec *c, struct dfm_came *p)
{
        bool *const flags[] = {&p->numbered, &p->in_spill,     &p->paused,
                               &p->over,     &p->has_datagram, &p->has_empty};

        FIELD_PART(c, &p->offered);
        field_u64(c, &p->next);
        field_u32(c, &p->waiting);
        field_u32(c, &p->next_datagram);
        field_flags(c, flags, ARRAY_SIZE(flags));
        FIELD_PART(c, &p->seen);
}

static void process_code(struct codec *c, struct dfm_process *p)
{
        bool *const flags[] = {&p->gone, &p->vanished, &p->replaced, &p->unknown, &p->left};

        field_u64(c, &p->incarnation);
        field_flags(c, flags, ARRAY_SIZE(flags));
        field_u16(c, &p->flags);
        field_u64(c, &p->frames);
        FIELD_PART(c, &p->ends);
        field_u64(c, &p->unclosed);
}

static void metadata_code(struct codec *c, struct metadata_set *m)
{
        field_u16(c, &m->version);
        field_u16(c, &m->n);
        c->r.failed |= m->n > METADATA_MAX;
        for (uint16_t i = 0; i < m->n && !c->r.failed; i++) {
                struct metadata_entry *e = &m->entries[i];
                const void *from = c->decode ? reader_consume(&c->r, sizeof *e) : e;
                void *to = c->decode ? e : writer_reserve(&c->w, sizeof *e);

                if (from && to)
                        memcpy(to, from, sizeof *e);
                e->name[METADATA_NAME_BYTES - 1] = e->value[METADATA_VALUE_BYTES - 1] = '\0';
        }
}

/* Walks over all but the check. False: the program never writes this. */
static bool record_code(struct codec *c, struct processes_file *f)
{
        struct dfm_processes *p = f->processes;
        bool *const flags[] = {&p->has_all, &p->guessed, &p->unrecorded};
        uint32_t magic = MAGIC, version = VERSION;

        field_u32(c, &magic);
        field_u32(c, &version);
        if (magic != MAGIC || version != VERSION)
                return false;
        field_flags(c, flags, ARRAY_SIZE(flags));
        field_u32(c, &p->n_ros);
        field_u32(c, &p->n_sfi);
        field_u32(c, &p->n_words);
        field_u32(c, &p->n_away);
        field_u32(c, &p->n_lost);
        field_u64(c, &p->cookie);
        FIELD_PART(c, &p->dfms);
        field_u64(c, &p->oldest);
        field_u64(c, &p->next);
        field_u64(c, &p->built_end);
        field_u64(c, &p->away_from);
        field_u64(c, &p->forgotten_from);
        field_u64(c, &p->lost_from);
        field_u64(c, &p->forgotten);
        FIELD_PART(c, &p->replaced);
        FIELD_PART(c, &p->again);
        FIELD_PART(c, &p->counted);
        came_code(c, &p->came);
        FIELD_PART(c, &p->figures);
        FIELD_PART(c, &f->counters);
        metadata_code(c, &p->metadata);
        if (p->n_ros > EVB_ROS_MAX || p->n_sfi > EVB_SFI_MAX || p->n_words > DFM_PROCESSES_WORDS ||
            p->n_away > DFM_AWAY_WORDS || p->n_lost > DFM_LOST_WORDS)
                return false;
        for (uint32_t i = 0; i < p->n_ros; i++)
                process_code(c, &p->ross[i]);
        for (uint32_t i = 0; i < p->n_sfi; i++)
                process_code(c, &p->sfis[i]);
        field_numbers(c, p->away, p->n_away * sizeof *p->away);
        field_numbers(c, p->lost, p->n_lost * sizeof *p->lost);
        field_numbers(c, p->words, p->n_words * sizeof *p->words);
        return true;
}

static size_t encode(struct processes_file *f)
{
        struct codec c = {.w = writer_init(f->bytes, BYTES_MAX)};
        bool valid = record_code(&c, f);

        writer_u32(&c.w, message_check(f->bytes, (size_t)(c.w.at - f->bytes)));
        assert(valid && !c.w.failed);
        return (size_t)(c.w.at - f->bytes);
}

/* False: encode() did not write these bytes. */
static bool decode(struct processes_file *f, size_t n)
{
        struct codec c = {.decode = true, .r = reader_init(f->bytes, n)};

        return record_code(&c, f) &&
               reader_u32(&c.r) == message_check(f->bytes, n - MIN(n, sizeof(uint32_t))) && !c.r.failed &&
               reader_left(&c.r) == 0;
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
