/* What the files of the testbed share. */
#pragma once

#include "evb/launch/netns.h"

/* Makes a namespace of this name; its descriptor. The calling thread stays where it is. Negative errno. */
int netns_make(const char *name, int *ret_fd);
void netns_remove(const char *name);
