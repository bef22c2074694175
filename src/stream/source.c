/* Reads the data to send. */
#include "send_threads.h"

#include <assert.h>
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/pattern.h"
#include "base/quantity.h"
#include "base/util.h"
#include "sys/disk_writer.h"

#define PARTS_MAX 64u
/* Maximum time until a source that waits for data notices a request to stop. */
#define LOOK_MS 100
/* Maximum VDIF frame that fits a datagram with the sequence number. */
#define FRAME_MAX_BYTES 65499u
/* Number of bytes that are examined at the beginning of a recording: 8 frames of 8 kB from each of 1024
 * threads. */
#define PLAN_BYTES (UINT64_C(64) << 20)
/* Number of frames that are checked after the first one; one of them must have a header at the expected
 * offset. */
#define CHAIN_FRAMES 8u
/* Number of frames examined on both sides of the end of a second: one frame of each thread. */
#define NEAR_FRAMES VDIF_PLAN_THREADS_MAX
#define SECONDS_LOOKED_AT 3
/* Size of a direct read. */
#define DIRECT_BYTES ((size_t)1 << 20)

enum stream_source_kind { SOURCE_FILE, SOURCE_PATTERN, SOURCE_NULL };

struct stream_source {
        enum stream_source_kind kind;
        char name[ERROR_LOCATION_MAX];
        int fd;
        bool regular;            /* a file that allows reading ahead */
        bool standard;           /* standard input */
        bool plain;              /* frames are only examined for their rate */
        bool mark5b;             /* headers are of Mark 5B */
        struct timespec changed; /* when the file was last changed before it was opened */
        uint64_t bytes;          /* size from `begin` on */
        uint64_t position;       /* position of the next byte; pattern and null */
        uint64_t key;
        off_t begin; /* position of the file when it was opened */
        /* Bytes that were read ahead; [peek_at, peek_end) are not consumed yet. */
        uint8_t *peek;
        size_t peek_at, peek_end, peek_size;
        /* Direct reads: [block_at, block_end) of the last one are not consumed yet. */
        int direct; /* -1: reads pass through the page cache */
        off_t direct_at;
        uint8_t *block;
        size_t block_at, block_end;
};

static int open_file(struct stream_source *s, const char *text, struct error *e)
{
        bool standard = strcmp(text, "-") == 0;
        struct stat st;

        assert(text);
        s->standard = standard;
        snprintf(s->name, sizeof s->name, "%s", standard ? "standard input" : text);
        s->fd = standard ? fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 0) : open(text, O_RDONLY | O_CLOEXEC);
        if (s->fd < 0 || fstat(s->fd, &st) < 0) {
                error_set(e, -errno, "cannot open it: %m");
                return error_locate(e, "%s", s->name);
        }
        if (S_ISDIR(st.st_mode)) {
                error_set(e, -EINVAL, "it is a directory; expected a file");
                return error_locate(e, "%s", s->name);
        }
        s->regular = S_ISREG(st.st_mode);
        s->changed = st.st_mtim;
        s->bytes = STREAM_BYTES_UNKNOWN;
        if (!s->regular)
                return 0;
        s->begin = lseek(s->fd, 0, SEEK_CUR);
        s->bytes = (uint64_t)(st.st_size - MIN(s->begin, st.st_size));
        (void)posix_fadvise(s->fd, 0, 0, POSIX_FADV_SEQUENTIAL);
        return 0;
}

static int open_size(struct stream_source *s, const char *text, struct error *e)
{
        if (quantity_parse_bytes(text, &s->bytes) >= 0 && s->bytes > 0)
                return 0;
        return error_set(e, -EINVAL, "\"%s\" is not a size; expected e.g. pattern:10GB", text);
}

int stream_source_open(struct stream_source **ret, const char *text, uint64_t key, struct error *e)
{
        static const char pattern[] = "pattern:", null[] = "null:";
        struct stream_source *s = calloc(1, sizeof *s);
        int r;

        if (!s)
                return error_set(e, -ENOMEM, "%m");
        s->fd = s->direct = -1;
        s->key = key;
        if (strncmp(text, pattern, strlen(pattern)) == 0) {
                s->kind = SOURCE_PATTERN;
                r = open_size(s, text + strlen(pattern), e);
        } else if (strncmp(text, null, strlen(null)) == 0) {
                s->kind = SOURCE_NULL;
                r = open_size(s, text + strlen(null), e);
        } else
                r = open_file(s, text, e);
        if (r < 0) {
                stream_source_free(s);
                return r;
        }
        *ret = s;
        return 0;
}

/* Opens a separate descriptor, because frame headers are examined without O_DIRECT. */
int stream_source_set_direct(struct stream_source *s, struct error *e)
{
        char path[64];

        if (!s->regular || s->standard)
                return error_set(e, -EINVAL, "--direct needs a file as input");
        snprintf(path, sizeof path, "/proc/self/fd/%d", s->fd);
        s->direct = open(path, O_RDONLY | O_DIRECT | O_CLOEXEC);
        if (s->direct < 0) {
                error_set(e, -errno,
                          "its file system cannot read past the page cache (O_DIRECT): %m; expected another "
                          "place, or no --direct");
                return error_locate(e, "%s", s->name);
        }
        if (posix_memalign((void **)&s->block, DISK_BLOCK_BYTES, DIRECT_BYTES) != 0)
                return error_set(e, -ENOMEM, "%m");
        return 0;
}

struct stream_source *stream_source_free(struct stream_source *s)
{
        if (!s)
                return NULL;
        if (s->direct >= 0)
                close(s->direct);
        free(s->block);
        if (s->fd >= 0)
                close(s->fd);
        free(s->peek);
        free(s);
        return NULL;
}

bool stream_source_is_pattern(const struct stream_source *s)
{
        return s->kind == SOURCE_PATTERN;
}

/* Waits for data of a pipe or terminal. Returns false if it must stop. */
static bool wait_for_data(const struct stream_source *s, const _Atomic bool *stop)
{
        struct pollfd p = {.fd = s->fd, .events = POLLIN};

        while (!s->regular && poll(&p, 1, LOOK_MS) == 0) {
                if (stop && atomic_load_explicit(stop, memory_order_relaxed))
                        return false;
        }
        return true;
}

/* Reads the next block of the file. If a block is short, it is the last one, because the rest of the file
 * does not fill a block. */
static int read_block(struct stream_source *s)
{
        ssize_t got = s->direct_at % DISK_BLOCK_BYTES > 0
                              ? 0
                              : pread(s->direct, s->block, DIRECT_BYTES, s->direct_at);

        if (got < 0)
                return -errno;
        s->direct_at += got;
        s->block_at = 0;
        s->block_end = (size_t)got;
        return 0;
}

static ssize_t read_direct(struct stream_source *s, const struct iovec *parts, size_t n)
{
        size_t whole = 0;
        int r = s->block_at == s->block_end ? read_block(s) : 0;

        for (size_t i = 0; r == 0 && i < n && s->block_at < s->block_end; i++) {
                size_t some = MIN(parts[i].iov_len, s->block_end - s->block_at);

                memcpy(parts[i].iov_base, s->block + s->block_at, some);
                s->block_at += some;
                whole += some;
        }
        if (r < 0)
                errno = -r;
        return r < 0 ? -1 : (ssize_t)whole;
}

static ssize_t read_some(struct stream_source *s, const struct iovec *parts, size_t n)
{
        return s->direct >= 0 ? read_direct(s, parts, n) : readv(s->fd, parts, (int)n);
}

/* Reads until the parts are full, the file ends, it must stop, or a pipe has filled some parts and has no
 * more data. Changes `parts`. */
static ssize_t read_parts(struct stream_source *s, struct iovec *parts, size_t n, const _Atomic bool *stop,
                          bool *ret_ended)
{
        size_t whole = 0;

        while (n > 0) {
                ssize_t got = wait_for_data(s, stop) ? read_some(s, parts, n) : 0;

                if (got < 0 && errno == EINTR)
                        continue;
                if (got < 0)
                        return -errno;
                *ret_ended = got == 0;
                if (got == 0)
                        break;
                whole += (size_t)got;
                for (; n > 0 && (size_t)got >= parts->iov_len; parts++, n--)
                        got -= (ssize_t)parts->iov_len;
                if (got == 0 && !s->regular)
                        break;
                if (n > 0) {
                        parts->iov_base = (uint8_t *)parts->iov_base + got;
                        parts->iov_len -= (size_t)got;
                }
        }
        return (ssize_t)whole;
}

/* Consumes bytes that were read ahead. Changes `parts`; *n_full is the number of full parts. */
static size_t use_peeked(struct stream_source *s, struct iovec *parts, size_t n, size_t *n_full)
{
        size_t whole = 0;

        *n_full = 0;
        while (*n_full < n && s->peek_at < s->peek_end) {
                struct iovec *p = &parts[*n_full];
                size_t some = MIN(p->iov_len, s->peek_end - s->peek_at);

                memcpy(p->iov_base, s->peek + s->peek_at, some);
                s->peek_at += some;
                whole += some;
                p->iov_base = (uint8_t *)p->iov_base + some;
                p->iov_len -= some;
                *n_full += p->iov_len == 0;
        }
        return whole;
}

static ssize_t make_parts(struct stream_source *s, const struct iovec *parts, size_t n)
{
        uint64_t begin = s->position;

        for (size_t i = 0; i < n && s->position < s->bytes; i++) {
                size_t some = MIN((uint64_t)parts[i].iov_len, s->bytes - s->position);

                /* The memory of the ring is zeroed, and nothing else is written to it. */
                if (s->kind == SOURCE_PATTERN)
                        pattern_fill(s->key, parts[i].iov_base, s->position, some);
                s->position += some;
        }
        return (ssize_t)(s->position - begin);
}

ssize_t stream_source_fill(struct stream_source *s, const struct iovec *parts, size_t n,
                           const _Atomic bool *stop, bool *ret_ended)
{
        struct iovec left[PARTS_MAX];
        size_t n_full, peeked;
        ssize_t got;

        n = MIN(n, (size_t)PARTS_MAX);
        *ret_ended = false;
        if (s->kind != SOURCE_FILE) {
                got = make_parts(s, parts, n);
                *ret_ended = s->position == s->bytes;
                return got;
        }
        memcpy(left, parts, n * sizeof *left);
        peeked = use_peeked(s, left, n, &n_full);
        /* A part that has been started is filled. */
        if (n_full == n || (peeked > 0 && left[n_full].iov_len == parts[n_full].iov_len))
                return (ssize_t)peeked;
        got = read_parts(s, left + n_full, n - n_full, stop, ret_ended);
        return got < 0 ? got : got + (ssize_t)peeked;
}

int stream_source_skip(struct stream_source *s, uint64_t offset)
{
        const off_t at = s->begin + (off_t)offset;
        int r;

        s->position = offset;
        if (s->kind != SOURCE_FILE)
                return 0;
        if (s->direct < 0)
                return lseek(s->fd, at, SEEK_SET) < 0 ? -errno : 0;
        /* Direct reads begin with a whole block. */
        s->direct_at = at - at % (off_t)DISK_BLOCK_BYTES;
        r = read_block(s);
        s->block_at = MIN((size_t)(at % (off_t)DISK_BLOCK_BYTES), s->block_end);
        return r;
}

bool stream_source_is_repeatable(const struct stream_source *s)
{
        return s->kind != SOURCE_FILE || s->regular;
}

/* Whether a file has other bytes than before. One that has grown may have been continued. */
static bool has_changed(const struct stream_source *s)
{
        struct stat st;

        return s->kind == SOURCE_FILE && fstat(s->fd, &st) == 0 &&
               (uint64_t)(st.st_size - MIN(s->begin, st.st_size)) == s->bytes &&
               (st.st_mtim.tv_sec != s->changed.tv_sec || st.st_mtim.tv_nsec != s->changed.tv_nsec);
}

int stream_source_read_again(struct stream_source *s, uint64_t offset, void *bytes, size_t n)
{
        if (has_changed(s))
                return -ESTALE;
        if (s->kind == SOURCE_FILE)
                return disk_read(s->fd, (uint64_t)s->begin + offset, bytes, n);
        if (s->kind == SOURCE_PATTERN)
                pattern_fill(s->key, bytes, offset, n);
        else
                memset(bytes, 0, n);
        return 0;
}

/* Reads ahead, so that n bytes can be examined. Returns whether so many are available. */
static bool look_ahead(struct stream_source *s, size_t n)
{
        if (n > s->peek_size) {
                uint8_t *grown = realloc(s->peek, 2 * n);

                if (!grown)
                        return false;
                s->peek = grown;
                s->peek_size = 2 * n;
        }
        if (n > s->peek_end) {
                struct iovec more = {s->peek + s->peek_end, n - s->peek_end};
                bool ended;
                ssize_t got = read_parts(s, &more, 1, NULL, &ended);

                s->peek_end += got > 0 ? (size_t)got : 0;
        }
        return n <= s->peek_end;
}

/* Reads the first bytes of frame number i of a recording. The frames before it have been examined. Returns
 * whether the file contains them. */
static bool read_header(struct stream_source *s, uint64_t frame_bytes, uint64_t i,
                        uint8_t header[static VDIF_HEADER_BYTES])
{
        const off_t at = (off_t)(i * frame_bytes);

        if (s->regular ? pread(s->fd, header, VDIF_HEADER_BYTES, s->begin + at) != VDIF_HEADER_BYTES
                       : !look_ahead(s, (size_t)at + VDIF_HEADER_BYTES))
                return false;
        if (!s->regular)
                memcpy(header, s->peek + at, VDIF_HEADER_BYTES);
        if (s->mark5b)
                mark5b_to_vdif(header);
        return true;
}

/* Reads the time of frame number i of a file, or of the next frame with a valid header. */
static bool time_of(struct stream_source *s, const struct vdif_plan *p, uint64_t i, struct vdif_header *ret)
{
        uint8_t header[VDIF_HEADER_BYTES];

        for (uint64_t n = 0; n < NEAR_FRAMES && read_header(s, p->frame_bytes, i + n, header); n++)
                if (vdif_plan_read(p, header, sizeof header, ret) && !vdif_is_filler(ret))
                        return true;
        return false;
}

/* Whether a second begins with frame number 0 near frame i of a file. If so, returns the highest number in
 * the previous second, plus 1, as the number of frames. 0: this place does not show it. */
static uint32_t frames_before(struct stream_source *s, const struct vdif_plan *p, uint64_t i, uint32_t second)
{
        uint32_t last = 0, first = UINT32_MAX;
        struct vdif_header h;
        uint8_t header[VDIF_HEADER_BYTES];

        for (uint64_t k = i - MIN(i, (uint64_t)NEAR_FRAMES); k < i + NEAR_FRAMES; k++) {
                if (!read_header(s, p->frame_bytes, k, header))
                        break;
                if (!vdif_plan_read(p, header, sizeof header, &h) || vdif_is_filler(&h))
                        continue;
                if (h.seconds == second)
                        last = MAX(last, h.frame);
                else if (h.seconds == second + 1)
                        first = MIN(first, h.frame);
        }
        return first == 0 ? last + 1 : 0;
}

/* Returns the maximum number of frames in the first complete seconds, which are found by bisection because
 * numbers restart with each second. The maximum is used because a recording may not contain the last frames
 * of a second. */
static uint32_t find_frames_per_second(struct stream_source *s, const struct vdif_plan *p)
{
        uint64_t at = 0, end = s->bytes / p->frame_bytes;
        struct vdif_header first, h;
        uint32_t most = 0;

        for (int n = 0; s->regular && n < SECONDS_LOOKED_AT && time_of(s, p, at, &first); n++) {
                uint64_t low = at, high = end;

                while (high - low > 1) {
                        uint64_t middle = low + (high - low) / 2;

                        if (time_of(s, p, middle, &h) && h.seconds == first.seconds)
                                low = middle;
                        else
                                high = middle;
                }
                if (high == end)
                        break;
                most = MAX(most, frames_before(s, p, high, first.seconds));
                at = high;
        }
        return most;
}

/* Sets the rate that the frames show. If they show none, sets the rate in the header, unless a number
 * contradicts it. */
static void find_rate(struct stream_source *s, struct vdif_plan *p)
{
        uint64_t frames = s->regular ? s->bytes / p->frame_bytes : 0;
        struct vdif_header last;

        p->frames_per_second = find_frames_per_second(s, p);
        if (p->frames_per_second > 0 || p->header_frames_per_second <= p->last_number)
                return;
        if (frames > 0 && time_of(s, p, frames - 1, &last) && last.frame >= p->header_frames_per_second)
                return;
        p->frames_per_second = p->header_frames_per_second;
}

/* Returns the apparent type of a file that is not a recording. */
static const char *looks_like(const uint8_t header[static VDIF_HEADER_BYTES])
{
        static const struct {
                const char *begin, *name;
        } kinds[] = {{"HEADER ", "a DADA file"},
                     {"HDR_", "a DADA file"},
                     {"DADA", "a DADA file"},
                     {"SIMPLE  =", "a FITS file"},
                     {"\xed\xde\xad\xab", "a Mark 5B recording"},
                     {"\x66\x66\xed\xfe", "a Mark 6 file of one disk"}};
        size_t n = 0;

        for (size_t i = 0; i < ARRAY_SIZE(kinds); i++)
                if (memcmp(header, kinds[i].begin, strlen(kinds[i].begin)) == 0)
                        return kinds[i].name;
        while (n < VDIF_HEADER_BYTES && (isprint(header[n]) || isspace(header[n])))
                n++;
        return n == VDIF_HEADER_BYTES ? "text" : NULL;
}

/* Whether one of the next headers follows the first one at the stated distance, or the first frame is the
 * only frame. */
static bool is_chain(struct stream_source *s, const struct vdif_plan *p)
{
        uint8_t header[VDIF_HEADER_BYTES];
        struct vdif_header h;
        uint64_t i = 1;

        for (; i <= CHAIN_FRAMES && read_header(s, p->frame_bytes, i, header); i++)
                if (vdif_plan_read(p, header, sizeof header, &h))
                        return true;
        return i == 1;
}

static int begin_plan(struct stream_source *s, struct vdif_plan *ret, struct error *e)
{
        uint8_t header[VDIF_HEADER_BYTES];
        bool whole = read_header(s, 0, 0, header);
        const char *other = whole ? looks_like(header) : NULL;

        if (other)
                return error_set(e, -EBADMSG,
                                 "the file does not begin with a VDIF header: it looks like %s; expected "
                                 "VDIF, or --format plain",
                                 other);
        if (!whole || vdif_plan_begin(ret, header, sizeof header) < 0)
                return error_set(e, -EBADMSG, "the file does not begin with a VDIF header");
        if ((s->regular || ret->frame_bytes <= FRAME_MAX_BYTES) && !is_chain(s, ret))
                return error_set(e, -EBADMSG,
                                 "the file does not begin with a VDIF header: it would be that of a frame of "
                                 "%u bytes, but no other header follows at this distance",
                                 ret->frame_bytes);
        if (ret->frame_bytes > FRAME_MAX_BYTES && !s->plain)
                return error_set(e, -EMSGSIZE, "frames of %u bytes do not fit a datagram; use --format plain",
                                 ret->frame_bytes);
        return 0;
}

int stream_source_plan(struct stream_source *s, struct vdif_plan *ret, struct error *e)
{
        uint8_t header[VDIF_HEADER_BYTES];
        int r;

        if (s->kind != SOURCE_FILE)
                return error_set(e, -EINVAL, "VDIF needs a recording; expected a file or -");
        r = begin_plan(s, ret, e);
        if (r < 0)
                return error_locate(e, "%s", s->name);
        for (uint64_t i = 0; (i + 1) * ret->frame_bytes <= PLAN_BYTES; i++)
                if (!read_header(s, ret->frame_bytes, i, header) ||
                    !vdif_plan_add(ret, header, sizeof header))
                        break;
        find_rate(s, ret);
        return 0;
}

const char *stream_source_name(const struct stream_source *s)
{
        return s->mark5b ? "Mark 5B" : "VDIF";
}

int stream_source_rate(struct stream_source *s, struct vdif_plan *ret, bool known, struct error *e)
{
        uint8_t header[VDIF_HEADER_BYTES] = {};
        const bool whole = s->kind == SOURCE_FILE && read_header(s, 0, 0, header);
        const char *kind = whole ? looks_like(header) : NULL;
        int r;

        s->plain = true;
        s->mark5b = whole && mark5b_is_header(header);
        r = stream_source_plan(s, ret, e);
        if (r < 0 && known) {
                *ret = (struct vdif_plan){};
                return 0;
        }
        if (r < 0) {
                error_set(e, r, "the rate of %s is not known; use --rate RATE or --frame-rate",
                          kind ?: "this format");
                return error_locate(e, "%s", s->name);
        }
        return 0;
}
