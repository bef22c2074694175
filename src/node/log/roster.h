/* Logs and describes the nodes that join, leave, are refused by the DFM, or are missing. */
#pragma once

#include <stddef.h>

#include "base/strbuf.h"
#include "core/dfm.h"
#include "../node_internal.h"

/* Logs all changes since the last call. */
void roster_log(struct node *n, struct dfm *core);
/* Adds the names of the nodes that the DFM `n` receives nothing from, with a text before the first one:
 * "; without ros2, sfi1". */
void roster_add_missing(const struct node *n, const char *before, struct strbuf *b);
/* Describes "the output of sfi1 failed (disk full; sfi.directory = /data)", with the directory of the DFM's
 * scenario. */
const char *roster_describe_failure(const struct scenario *s, const struct dfm *core,
                                    const struct scenario_node *n, char *text, size_t size_bytes);
/* Describes "the times of the frames of ros2 are 100.0 s ahead of those of ros1, ..."; "": none are far
 * ahead. */
const char *roster_describe_apart(const struct scenario *s, const struct dfm *core, char *text,
                                  size_t size_bytes);
/* Describes why nodes report no progress: "ros1: no front-end for 2.0 s"; "" if none does. */
void roster_describe_reasons(const struct scenario *s, const struct dfm *core, char *text, size_t size_bytes);
