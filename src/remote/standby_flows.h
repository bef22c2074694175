/* What a node that stands by does of plain streams: its ends, as processes, and its shaping while they go. */
#pragma once

#include "evb/conf/scenario.h"
#include "evb/traffic/flow_group.h"
#include "evb/traffic/flow_shaping.h"

struct streams {
        const struct scenario *scenario;
        const struct scenario_node *self;
        struct flow_group group;
        struct tc_shaper *shaper;
        bool active, told_ready, told_quiet;
};

enum streams_news { STREAMS_NOTHING, STREAMS_READY, STREAMS_QUIET, STREAMS_ENDED };

/* From an order: {"ends": [...], "shape": {...}}. Only between nodes of the scenario, and only what is at
 * this one. -EINVAL and others: nothing is left behind, `why` tells. */
int streams_begin(struct streams *s, const struct scenario *scenario, const struct scenario_node *self,
                  const json_t *order, char *why, size_t size);
void streams_set(struct streams *s, int state);
/* What has come about; to be asked again every few milliseconds while it is active, and each time until it is
 * nothing. */
enum streams_news streams_turn(struct streams *s);
/* After STREAMS_ENDED of a failed group: the reason. */
void streams_tell_error(const struct streams *s, char *why, size_t size);
/* After STREAMS_ENDED: what the ends and the shaping have counted, put into an answer. */
void streams_add_result(const struct streams *s, json_t *answer);
/* Kills what still runs, takes the shaping back. */
void streams_end(struct streams *s);
