/* The two ends of a connection over 127.0.0.1. Private to src/stream/paths. */
#pragma once

#include "path_internal.h"

struct path_link {
        int sender, receiver; /* -1: closed */
};

/* Both sockets are connected on return. Negative errno. */
int path_link_open(struct path_link *l, enum path_wire wire);
void path_link_close(struct path_link *l);
