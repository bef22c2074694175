/* Describes the remaining work of a node after a stop signal, for its log and its service manager. */
#pragma once

#include "../node_internal.h"

/* Room for "stopping: serves run 7 until it ends, at most 45 s longer". */
#define STOP_TEXT_MAX 192
const char *stop_text(const struct node *n, uint64_t now_ns, char text[static STOP_TEXT_MAX]);
