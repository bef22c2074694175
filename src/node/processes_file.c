/* Codes the SFI processes of a run as bytes, and replaces their file. docs/operate.md names it. */
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
#define VERSION 4u
#define OFFERED_NUMBERS (sizeof(struct dfm_offered) / sizeof(uint64_t))
#define SEEN_WORDS (DFM_NUMBERS_WINDOW / 64)
#define HEAD_BYTES                                                                                           \
        (7 * 4 + (1 + DFM_LINEAGE + 3 + 2 * 5 + 6 + 1 + SEEN_WORDS) * 8 + sizeof(struct dfm_offered))
#define PROCESS_BYTES (7 * 8 + 4)
#define BYTES_MAX                                                                                            \
        (HEAD_BYTES + (size_t)EVB_SFI_MAX * PROCESS_BYTES + (size_t)DFM_PROCESSES_WORDS * 8 +                \
         sizeof(uint32_t))

enum { HAS_ALL = 1, GUESSED = 2, ROS_REPLACED = 4 };
enum { NUMBERED = 1, IN_SPILL = 2, PAUSED = 4 };
enum { GONE = 1, VANISHED = 2, REPLACED = 4, UNKNOWN = 8, LEFT = 16 };

static void put_totals(struct writer *w, const struct node_totals *t)
{
        writer_u64(w, t->complete);
        writer_u64(w, t->partial);
        writer_u64(w, t->missing);
        writer_u64(w, t->absent);
        writer_u64(w, t->payload_bytes);
}

static struct node_totals get_totals(struct reader *r)
{
        struct node_totals t;

        t.complete = reader_u64(r);
        t.partial = reader_u64(r);
        t.missing = reader_u64(r);
        t.absent = reader_u64(r);
        t.payload_bytes = reader_u64(r);
        return t;
}

static void put_ends(struct writer *w, const struct dfm_ends *e)
{
        writer_u64(w, e->complete);
        writer_u64(w, e->partial);
        writer_u64(w, e->lost);
        writer_u64(w, e->rejected);
        writer_u64(w, e->not_taken);
        writer_u64(w, e->unreported);
}

static struct dfm_ends get_ends(struct reader *r)
{
        struct dfm_ends e;

        e.complete = reader_u64(r);
        e.partial = reader_u64(r);
        e.lost = reader_u64(r);
        e.rejected = reader_u64(r);
        e.not_taken = reader_u64(r);
        e.unreported = reader_u64(r);
        return e;
}

static void put_came(struct writer *w, const struct dfm_came *c)
{
        uint64_t numbers[OFFERED_NUMBERS];

        static_assert(sizeof numbers == sizeof c->offered, "it has only numbers");
        memcpy(numbers, &c->offered, sizeof numbers);
        for (size_t i = 0; i < OFFERED_NUMBERS; i++)
                writer_u64(w, numbers[i]);
        writer_u64(w, c->next);
        writer_u32(w, c->waiting);
        writer_u32(w, (c->numbered ? NUMBERED : 0) | (c->in_spill ? IN_SPILL : 0) | (c->paused ? PAUSED : 0));
        for (size_t i = 0; i < SEEN_WORDS; i++)
                writer_u64(w, c->seen[i]);
}

static struct dfm_came get_came(struct reader *r)
{
        uint64_t numbers[OFFERED_NUMBERS] = {0};
        struct dfm_came c = {};
        uint32_t flags;

        for (size_t i = 0; i < OFFERED_NUMBERS; i++)
                numbers[i] = reader_u64(r);
        memcpy(&c.offered, numbers, sizeof numbers);
        c.next = reader_u64(r);
        c.waiting = reader_u32(r);
        flags = reader_u32(r);
        c.numbered = flags & NUMBERED;
        c.in_spill = flags & IN_SPILL;
        c.paused = flags & PAUSED;
        for (size_t i = 0; i < SEEN_WORDS; i++)
                c.seen[i] = reader_u64(r);
        return c;
}

static void put_process(struct writer *w, const struct dfm_process *p)
{
        writer_u64(w, p->incarnation);
        writer_u32(w, (p->gone ? GONE : 0) | (p->vanished ? VANISHED : 0) | (p->replaced ? REPLACED : 0) |
                              (p->unknown ? UNKNOWN : 0) | (p->left ? LEFT : 0));
        put_totals(w, &p->ends);
        writer_u64(w, p->unclosed);
}

static struct dfm_process get_process(struct reader *r)
{
        struct dfm_process p = {.incarnation = reader_u64(r)};
        uint32_t flags = reader_u32(r);

        p.gone = flags & GONE;
        p.vanished = flags & VANISHED;
        p.replaced = flags & REPLACED;
        p.unknown = flags & UNKNOWN;
        p.left = flags & LEFT;
        p.ends = get_totals(r);
        p.unclosed = reader_u64(r);
        return p;
}

static size_t encode(const struct dfm_processes *p, uint8_t *bytes)
{
        struct writer w = writer_init(bytes, BYTES_MAX);

        writer_u32(&w, MAGIC);
        writer_u32(&w, VERSION);
        writer_u32(&w, (p->has_all ? HAS_ALL : 0) | (p->guessed ? GUESSED : 0) |
                               (p->ros_replaced ? ROS_REPLACED : 0));
        writer_u32(&w, p->n_sfi);
        writer_u32(&w, p->n_words);
        writer_u64(&w, p->cookie);
        for (size_t i = 0; i < DFM_LINEAGE; i++)
                writer_u64(&w, p->dfms[i]);
        writer_u64(&w, p->oldest);
        writer_u64(&w, p->next);
        writer_u64(&w, p->forgotten);
        put_totals(&w, &p->replaced);
        put_totals(&w, &p->again);
        put_ends(&w, &p->counted);
        put_came(&w, &p->came);
        for (uint32_t i = 0; i < p->n_sfi; i++)
                put_process(&w, &p->sfis[i]);
        for (uint32_t k = 0; k < p->n_words; k++)
                writer_u64(&w, p->words[k]);
        writer_u32(&w, message_check(bytes, (size_t)(w.at - bytes)));
        return (size_t)(w.at - bytes);
}

/* False: they are not those of encode(). */
static bool decode(const uint8_t *bytes, size_t n, struct dfm_processes *p)
{
        struct reader r = reader_init(bytes, n);
        uint32_t flags;

        if (n < HEAD_BYTES + sizeof(uint32_t) || reader_u32(&r) != MAGIC || reader_u32(&r) != VERSION)
                return false;
        flags = reader_u32(&r);
        p->has_all = flags & HAS_ALL;
        p->guessed = flags & GUESSED;
        p->ros_replaced = flags & ROS_REPLACED;
        p->n_sfi = reader_u32(&r);
        p->n_words = reader_u32(&r);
        p->cookie = reader_u64(&r);
        for (size_t i = 0; i < DFM_LINEAGE; i++)
                p->dfms[i] = reader_u64(&r);
        p->oldest = reader_u64(&r);
        p->next = reader_u64(&r);
        p->forgotten = reader_u64(&r);
        p->replaced = get_totals(&r);
        p->again = get_totals(&r);
        p->counted = get_ends(&r);
        p->came = get_came(&r);
        if (p->n_sfi > EVB_SFI_MAX || p->n_words > DFM_PROCESSES_WORDS)
                return false;
        for (uint32_t i = 0; i < p->n_sfi; i++)
                p->sfis[i] = get_process(&r);
        for (uint32_t k = 0; k < p->n_words; k++)
                p->words[k] = reader_u64(&r);
        return reader_u32(&r) == message_check(bytes, n - sizeof(uint32_t)) && !r.failed &&
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
        if (decode(f->bytes, (size_t)n, f->processes))
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
        int r = write_next(f, encode(f->processes, f->bytes));

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
