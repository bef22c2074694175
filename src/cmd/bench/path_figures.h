/* Figures of one data path (stream/paths.h). */
#pragma once

#include <jansson.h>

#include "stream/paths.h"

/* Runs a path and returns its figures, or NULL after logging the error:
 *   row, form, title, wire, source, reads, header_bytes, published: as in struct path
 *   copies, copies_reason: copies of the payload by the sender; stated, not measured
 *   throughput_bytes_per_second, mbyte_per_s: payload sent; received_share: what arrived of it
 *   user_seconds_per_gb, system_seconds_per_gb, processor_seconds_per_gb: of the sender
 *   calls_per_packet, calls: system calls of the sender, counted during the check; calls_refused: why not
 *   zero_copy_copied_share: notifications that said that the kernel had copied; null without notifications
 *   checked_bytes, corrupt: bytes compared at the receiver; 1 if one of them was wrong or missing
 *   refused: the call that the kernel refused, and why, or null; then all figures are null */
json_t *bench_path_figures(const struct path_run *run, const struct path_file *file,
                           struct machine_watch *watch);
