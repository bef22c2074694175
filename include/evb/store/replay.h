/* An EventStorage file of v3.0 events taken apart by source, so that each ROS can serve its own fragments of
 * each event, again and again with new L1 ids. Reads and indexes the whole file when opened; does not build
 * events.
 *
 * "source" is an index into the ROS source ids in order of their first appearance in the file. "event" is an
 * index into the file's events, "trigger" counts on through pass after pass over them. Read-only after open:
 * any thread. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "evb/base/error.h"
#include "evb/format/eformat.h"
#include "evb/protocol/event.h"

struct replay;

/* -EBADMSG: not such a file, or an event in it is damaged or holds a ROS twice; -ENODATA: no events; -E2BIG:
 * more than EVB_ROS_MAX sources; -EMSGSIZE: a fragment above EVB_FRAGMENT_MAX_BYTES; or errno. */
int replay_open(struct replay **ret, const char *path, struct error *error);
struct replay *replay_free(struct replay *replay); /* always returns NULL */

size_t replay_sources(const struct replay *replay);
size_t replay_events(const struct replay *replay);
uint32_t replay_source_id(const struct replay *replay, size_t source);
uint32_t replay_run(const struct replay *replay);
uint32_t
replay_fragment_max_bytes(const struct replay *replay); /* the largest that replay_fragment can tell of */

/* What the header of event `event` says; a v3.0 event has one status word that matters, the first. */
void replay_event_info(const struct replay *replay, size_t event, struct event_info *ret);
/* The same for event `trigger % events` in pass `trigger / events`: global and L1 id grow by replay_span() a
 * pass. */
void replay_pass_info(const struct replay *replay, uint64_t trigger, struct event_info *ret);
/* A power of two above the widest range of global or L1 ids in the file, so that no id comes twice (until 32
 * bits wrap). */
uint32_t replay_span(const struct replay *replay);

/* A FORM_ROS3 fragment in place: the header of its sub-detector, then the ROS fragment. */
struct replay_fragment {
        enum fragment_status
                status; /* FRAGMENT_OK, or FRAGMENT_NONE: this source is not in this event, size 0 */
        uint16_t order; /* position of its ROS in the event */
        uint32_t size_bytes;
        const void *subdet, *ros;
        uint32_t subdet_bytes, ros_bytes;
};

void replay_fragment(const struct replay *replay, size_t event, size_t source, struct replay_fragment *ret);
/* Copies the fragment of `source` for `trigger` to `to`, renumbered for its pass (pass 0: as in the file).
 * Returns its size; 0 for FRAGMENT_NONE; nothing is written where size_bytes is less than that. */
size_t replay_copy(const struct replay *replay, uint64_t trigger, size_t source, void *to, size_t size_bytes);
