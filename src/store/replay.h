/* Splits an EventStorage file of v3.0 events by source, so that each ROS can replay its own fragments,
 * repeatedly and with new L1 IDs. It indexes the entire file when it opens it.
 *
 * "source" is an index into the ROS source IDs, in order of their first appearance in the file. "event" is an
 * index into the file's events. "trigger" also counts the events of repeated passes. All threads may read
 * after replay_open(). */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "format/eformat.h"
#include "protocol/event.h"

struct replay;

/* Returns 0; -EBADMSG: the file is invalid, or an event is damaged or contains a ROS twice; -ENODATA: no
 * events; -E2BIG: more than EVB_ROS_MAX sources; -EMSGSIZE: a fragment exceeds EVB_FRAGMENT_MAX_BYTES; or
 * another negative errno. */
int replay_open(struct replay **ret, const char *path, struct error *error);
struct replay *replay_free(struct replay *replay); /* always returns NULL */

size_t replay_sources(const struct replay *replay);
size_t replay_events(const struct replay *replay);
/* Returns the source with this ID; replay_sources() if there is none. */
size_t replay_find_source(const struct replay *replay, uint32_t source_id);
uint32_t replay_source_id(const struct replay *replay, size_t source);
uint32_t replay_run(const struct replay *replay);

/* Returns the header, with the first status word, of event `trigger % events` in pass `trigger / events`.
 * Each pass adds a power of two above the range of global IDs and of L1 IDs in the file to both, so that IDs
 * are unique until 32 bits wrap. */
void replay_pass_info(const struct replay *replay, uint64_t trigger, struct event_info *ret);

/* What a pass adds to the IDs. */
uint32_t replay_span(const struct replay *replay);

/* No event. */
#define REPLAY_NONE UINT32_MAX

/* Writes the event that belongs to each event of the file `triggers`, or REPLAY_NONE, to `ret`. Events belong
 * together if they have the same L1 ID and, if both files have the builder's stamp, the same spill. -EINVAL:
 * a file has two such events, and the events of one file are not those with which the other one begins. */
int replay_match(const struct replay *replay, const struct replay *triggers, uint32_t *ret,
                 struct error *error);
/* Returns the only event with this L1 ID, or REPLAY_NONE. */
uint32_t replay_find_event(const struct replay *replay, uint32_t l1_id);

/* A FORM_ROS3 fragment in place: the header of its sub-detector, and the ROS fragment. */
struct replay_fragment {
        enum fragment_status status; /* FRAGMENT_OK, or FRAGMENT_NONE if the event lacks the source */
        uint16_t order;              /* position of the ROS in the event */
        uint32_t size_bytes;
        const void *subdet, *ros;
        uint32_t subdet_bytes, ros_bytes;
};

void replay_fragment(const struct replay *replay, size_t event, size_t source, struct replay_fragment *ret);
/* Copies the fragment of `source` in the event, with this L1 ID. Returns its size, 0 for FRAGMENT_NONE;
 * copies nothing if the size exceeds `size_bytes`. */
size_t replay_copy(const struct replay *replay, size_t event, size_t source, uint32_t l1_id, void *to,
                   size_t size_bytes);
