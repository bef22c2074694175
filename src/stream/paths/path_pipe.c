/* Moves packets through a pipe, which holds pages of the file. */
#include "path_pipe.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

/* The default of 16 pages, less than a large packet has, would block for ever. */
#define PIPE_BYTES (256 << 10)

int path_pipe_open(struct path_sender *s, int pipe[static 2])
{
        if (pipe2(pipe, O_CLOEXEC) < 0) {
                pipe[0] = pipe[1] = -1;
                return path_failed(s, "pipe");
        }
        return fcntl(pipe[0], F_SETPIPE_SZ, PIPE_BYTES) < 0 ? path_failed(s, "fcntl F_SETPIPE_SZ") : 0;
}

void path_pipe_close(const int pipe[static 2])
{
        for (int i = 0; i < 2; i++) {
                if (pipe[i] >= 0)
                        close(pipe[i]);
        }
}

int path_pipe_header(struct path_sender *s, int pipe, const struct path_packet *p)
{
        uint8_t header[PATH_HEADER_MAX_BYTES];
        size_t n;

        if (!s->path->headers)
                return 0;
        n = path_header_encode(p, header);
        return path_moved(s, "write to a pipe", write(pipe, header, n), n);
}

int path_pipe_send(struct path_sender *s, int pipe, const struct path_packet *p)
{
        uint8_t header[PATH_HEADER_MAX_BYTES];
        size_t n = p->length + (s->path->headers ? path_header_encode(p, header) : 0);

        return path_moved(s, "splice to the socket", splice(pipe, NULL, s->socket, NULL, n, SPLICE_F_MOVE),
                          n);
}
