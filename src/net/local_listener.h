/* A listening Unix socket with a path (unix(7)). */
#pragma once

#include <stdbool.h>
#include <sys/types.h>
#include <sys/un.h>

#include "base/error.h"

struct local_listener {
        int fd;
        char path[sizeof((struct sockaddr_un){}).sun_path];
        dev_t device; /* identifies the socket's file, so that no other file is removed */
        ino_t inode;
};

/* Listens at `path`. A socket left there by a crashed process is replaced; a socket that a process listens
 * at, or any other file, is an error. */
int local_listener_open(struct local_listener *ret, const char *path, struct error *e);
/* Whether local_listener_open() would succeed; changes nothing. */
int local_listener_check(const char *path, struct error *e);
/* The errno that a node returns for an error of the functions above: -EINVAL if this user cannot use the
 * path, because the path is in the scenario. */
int local_listener_node_error(int error);
/* Closes the socket, and removes its file unless another process has replaced it. */
void local_listener_close(struct local_listener *l);
