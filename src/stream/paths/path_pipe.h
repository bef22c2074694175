/* A pipe on the way from the file to the socket. Private to src/stream/paths. */
#pragma once

#include "path_internal.h"

/* Opens a pipe with room for a packet of any size; path_pipe_close() is required in any case. */
int path_pipe_open(struct path_sender *s, int pipe[static 2]);
void path_pipe_close(const int pipe[static 2]);
/* Writes the header into the pipe, if the path sends any. */
int path_pipe_header(struct path_sender *s, int pipe, const struct path_packet *p);
/* Moves a packet, with its header, from the pipe to the socket. */
int path_pipe_send(struct path_sender *s, int pipe, const struct path_packet *p);
