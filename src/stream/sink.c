/* Writes or checks received data. */
#include "sink.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "evb/base/pattern.h"
#include "evb/base/util.h"

#define LOOK_MS 100
/* A pipe that is ready takes as much without blocking (pipe(7), PIPE_BUF). */
#define PIPE_BYTES 4096u

enum sink_kind { SINK_FILE, SINK_PATTERN, SINK_NULL };

struct sink {
        enum sink_kind kind;
        char name[ERROR_LOCATION_MAX];
        int fd;
        bool regular, made;
        bool begun;     /* what a regular file had before is gone */
        uint64_t bytes; /* put so far */
        uint64_t key, corrupt;
};

static int open_file(struct sink *s, const char *text, bool overwrite, struct error *e)
{
        bool standard = strcmp(text, "-") == 0;
        struct stat st;

        assert(text);
        snprintf(s->name, sizeof s->name, "%s", standard ? "standard output" : text);
        s->made = !standard && strlen(text) < sizeof s->name && access(text, F_OK) < 0;
        s->fd = standard ? fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 0)
                         : open(text, O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
        if (s->fd < 0 || fstat(s->fd, &st) < 0) {
                error_set(e, -errno, "cannot open it for writing: %m");
                return error_locate(e, "%s", s->name);
        }
        s->regular = !standard && S_ISREG(st.st_mode);
        if (s->regular && !s->made && st.st_size > 0 && !overwrite) {
                error_set(e, -EEXIST, "the file exists; choose another name or use --overwrite");
                return error_locate(e, "%s", s->name);
        }
        return 0;
}

int sink_open(struct sink **ret, const char *text, bool overwrite, struct error *e)
{
        struct sink *s = calloc(1, sizeof *s);
        int r = 0;

        if (!s)
                return error_set(e, -ENOMEM, "%m");
        s->fd = -1;
        if (strcmp(text, "pattern") == 0)
                s->kind = SINK_PATTERN;
        else if (strcmp(text, "null") == 0)
                s->kind = SINK_NULL;
        else
                r = open_file(s, text, overwrite, e);
        if (r < 0) {
                sink_free(s);
                return r;
        }
        *ret = s;
        return 0;
}

struct sink *sink_free(struct sink *s)
{
        if (!s)
                return NULL;
        if (s->fd >= 0 && s->made && s->regular && s->bytes == 0)
                (void)unlink(s->name);
        if (s->fd >= 0)
                close(s->fd);
        free(s);
        return NULL;
}

bool sink_is_pattern(const struct sink *s)
{
        return s->kind == SINK_PATTERN;
}

void sink_set_key(struct sink *s, uint64_t key)
{
        s->key = key;
}

static int write_all(const struct sink *s, const uint8_t *at, size_t n, const _Atomic bool *stop)
{
        struct pollfd p = {.fd = s->fd, .events = POLLOUT};

        while (n > 0) {
                ssize_t put;

                if (!s->regular && poll(&p, 1, LOOK_MS) == 0) {
                        if (atomic_load_explicit(stop, memory_order_relaxed))
                                return -ECANCELED;
                        continue;
                }
                put = write(s->fd, at, s->regular ? n : MIN(n, (size_t)PIPE_BYTES));
                if (put < 0 && errno != EINTR && errno != EAGAIN)
                        return -errno;
                at += MAX(put, 0);
                n -= (size_t)MAX(put, 0);
        }
        return 0;
}

/* Until a stream comes, a file that is to be overwritten stays as it is. */
static int begin(struct sink *s)
{
        if (s->regular && !s->begun && ftruncate(s->fd, 0) < 0)
                return -errno;
        s->begun = true;
        return 0;
}

int sink_put(struct sink *s, const void *bytes, size_t n, bool missing, const _Atomic bool *stop)
{
        int r = begin(s);

        if (r < 0)
                return r;
        if (s->kind == SINK_PATTERN)
                s->corrupt += !missing && pattern_check(s->key, bytes, s->bytes, n) < n;
        else if (s->kind == SINK_FILE)
                r = write_all(s, bytes, n, stop);
        s->bytes += r >= 0 ? n : 0;
        return r;
}

int sink_explain(const struct sink *s, int code, struct error *e)
{
        error_set(e, code, "cannot write: %m");
        return s->kind == SINK_FILE ? error_locate(e, "%s", s->name) : code;
}

int sink_finish(struct sink *s, struct error *e)
{
        int r = begin(s);

        s->made = false; /* it stays, even if it is empty */
        if (r >= 0 && s->regular && fdatasync(s->fd) < 0)
                r = -errno;
        return r < 0 ? sink_explain(s, r, e) : 0;
}

uint64_t sink_corrupt(const struct sink *s)
{
        return s->corrupt;
}

uint64_t sink_bytes(const struct sink *s)
{
        return s->bytes;
}
