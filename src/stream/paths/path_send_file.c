/* Paths that hand over pages of the file to the socket, without a buffer of the program: sendfile(), and
 * splice() through a pipe. */
#include <errno.h>
#include <fcntl.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/util.h"
#include "path_map.h"
#include "path_pipe.h"
#include "path_send.h"

/* One call could send 2 GiB of a stream, but not end in time. */
#define STREAM_STEP_BYTES (16u << 20)

static int send_pages(struct path_sender *s, uint64_t offset, size_t n)
{
        off_t at = (off_t)offset;

        while (n > 0) {
                ssize_t sent = sendfile(s->socket, s->file, &at, n);

                /* A stream's socket may take a part. */
                if (sent <= 0)
                        return path_moved(s, "sendfile", sent, n);
                n -= (size_t)sent;
        }
        return 0;
}

static int send_stream(struct path_sender *s)
{
        uint64_t offset;
        size_t n;
        int r = 0;

        while (r >= 0 && (n = path_take_bytes(s, STREAM_STEP_BYTES, &offset)) > 0)
                r = send_pages(s, offset, n);
        return r;
}

static int send_each(struct path_sender *s,
                     int (*send_one)(struct path_sender *s, const struct path_packet *p))
{
        struct path_packet p;
        int r = 0;

        while (r >= 0 && path_take(s, &p, 1) > 0)
                r = send_one(s, &p);
        return r;
}

static int send_alone(struct path_sender *s, const struct path_packet *p)
{
        return send_pages(s, p->offset, p->length);
}

/* A datagram is a call; a stream needs no calls but to end in time. */
int path_file_send(struct path_sender *s)
{
        return s->wire == PATH_TCP ? send_stream(s) : send_each(s, send_alone);
}

static int send_corked(struct path_sender *s, const struct path_packet *p)
{
        int r = path_cork(s, 1);

        if (r >= 0)
                r = path_send_header(s, p, 0);
        if (r >= 0)
                r = send_pages(s, p->offset, p->length);
        return r < 0 ? r : path_cork(s, 0);
}

int path_file_cork(struct path_sender *s)
{
        return send_each(s, send_corked);
}

static int send_more(struct path_sender *s, const struct path_packet *p)
{
        int r = path_send_header(s, p, MSG_MORE);

        return r < 0 ? r : send_pages(s, p->offset, p->length);
}

int path_file_more(struct path_sender *s)
{
        return send_each(s, send_more);
}

/* The header is written into the pipe, a copy of a few bytes: pages that vmsplice() hands over belong to the
 * receiver until it has read them, and nothing tells when they may be used again. */
static int splice_one(struct path_sender *s, const int pipe[static 2], const struct path_packet *p)
{
        off_t at = (off_t)p->offset;
        int r = path_pipe_header(s, pipe[1], p);

        if (r < 0)
                return r;
        r = path_moved(s, "splice from the file",
                       splice(s->file, &at, pipe[1], NULL, p->length, SPLICE_F_MOVE), p->length);
        return r < 0 ? r : path_pipe_send(s, pipe[0], p);
}

int path_file_splice(struct path_sender *s)
{
        struct path_packet p;
        int pipe[2], r = path_pipe_open(s, pipe);

        while (r >= 0 && path_take(s, &p, 1) > 0)
                r = splice_one(s, pipe, &p);
        path_pipe_close(pipe);
        return r;
}
