/* Parts of the matcher without frames or a core: the triggers by their times, the search for the offset of a
 * board's clock, and its drift. Pure; for one thread. */
#pragma once

#include <math.h>
#include <stdbool.h>
#include <stdint.h>

#include "data/board_count.h"

/* Clocks of boards gain or lose at most this fraction, as long as it is not measured. */
#define DRIFT_UNKNOWN 2e-4
/* The measured drift is at most this. */
#define DRIFT_MAX 1e-3
/* Number of triggers that are kept for the frames that follow them; a power of two. */
#define TRIGGERS_MAX 65536u
/* A trigger may be overtaken by so many others, if they are not later by more than STEP_NS; otherwise, the
 * clock of the box was set. */
#define OVERTAKEN_MAX 256u
/* The search compares the differences between so many frames and triggers. */
#define SEARCH_FRAMES 64u
#define SEARCH_TRIGGERS 1024u
/* So many frames must agree on an offset. */
#define SURE_MATCHES 8u

/* Times are modulo 2^64, so only differences have a meaning. */
static inline int64_t time_difference(uint64_t a, uint64_t b)
{
        return (int64_t)(a - b);
}

static inline bool time_is_near(uint64_t a, uint64_t b, double tolerance_ns)
{
        return fabs((double)time_difference(a, b)) <= tolerance_ns;
}

struct known_trigger {
        uint64_t number, time_ns, arrived_ns;
        bool used; /* a frame belongs to it */
};

/* A ring, in the order of their times. */
struct known_triggers {
        struct known_trigger *ring; /* of TRIGGERS_MAX */
        uint32_t first, n;
};

static inline struct known_trigger *known_trigger_at(const struct known_triggers *t, uint32_t k)
{
        return &t->ring[(t->first + k) % TRIGGERS_MAX];
}

/* Returns the number of triggers, from trigger `from` on, before this time. */
uint32_t known_triggers_before(const struct known_triggers *t, uint32_t from, uint64_t time_ns);
/* Returns the trigger nearest to this time, from trigger `from` on, of which there is one at least. */
uint32_t known_triggers_nearest(const struct known_triggers *t, uint32_t from, uint64_t time_ns);
void known_triggers_drop_first(struct known_triggers *t);
/* Adds a trigger; if there are too many, the first one is dropped. Returns false if the clock of the box was
 * set, so that the others are forgotten: this trigger is earlier than the newest one by more than `step_ns`,
 * or too many overtook it. */
bool known_triggers_add(struct known_triggers *t, const struct known_trigger *trigger, int64_t step_ns);
/* NULL: there is none with this number and time. */
const struct known_trigger *known_triggers_find(const struct known_triggers *t, uint64_t number,
                                                uint64_t time_ns);
/* Returns the number of triggers, without the newest ones that arrived from this time on. */
uint32_t known_triggers_until(const struct known_triggers *t, uint64_t arrived_ns);
/* Whether a trigger next to number `k` is as near to this time. */
bool known_triggers_are_ambiguous(const struct known_triggers *t, uint32_t k, uint64_t time_ns,
                                  double tolerance_ns);
/* Returns the number of triggers that are as near to this time. */
uint32_t known_triggers_within(const struct known_triggers *t, uint64_t time_ns, double tolerance_ns);
/* Whether the numbers count the triggers, and not also those that the box vetoed. */
bool known_triggers_are_counted(const struct known_triggers *t);

/* Weighted sums over the matches: the time of a trigger, from the newest match on, and how far the clock of
 * the board was ahead then, from `offset_ns` on. */
struct board_fit {
        uint64_t time_ns;   /* of the trigger of the newest match */
        uint64_t offset_ns; /* modulo 2^64 */
        double s, st, stt, se, ste;
        double ahead_ns, drift, uncertainty;
        uint32_t matches;
};

/* Returns the time of a trigger at which the clock of the board had this time, and by how much this may be
 * wrong. */
uint64_t board_fit_time(const struct board_fit *f, uint64_t window_ns, uint64_t board_ns,
                        double *ret_tolerance_ns);
/* A frame matches a trigger. */
void board_fit_add(struct board_fit *f, uint64_t window_ns, uint64_t time_ns, uint64_t board_ns);

enum resumption { RESUMPTION_FOUND, RESUMPTION_OPEN, RESUMPTION_NO_TRIGGER, RESUMPTION_FAILED };

/* The clocks of the board and of this machine have drifted apart, but that of the box shows by how many
 * periods the count of the last frame that was read in time is too small. NO_TRIGGER: none came at about this
 * time. `was_reset`: the clock may have been set, so that it fits a trigger by chance. */
enum resumption board_fit_periods(const struct board_fit *f, uint64_t window_ns,
                                  const struct known_triggers *t, const struct board_count *c,
                                  uint64_t tick_ns, unsigned bits, bool was_reset, int64_t *ret_periods);
/* Finds which of `n` times of a board, `period_ns` apart, is that of a frame: the only one that fits a
 * trigger without a frame. */
bool board_fit_find(const struct board_fit *f, uint64_t window_ns, const struct known_triggers *t, unsigned n,
                    uint64_t period_ns, uint64_t *board_ns);

struct offset_search {
        const struct known_triggers *triggers;
        const struct board_fit *fit; /* only offsets that it allows are searched; NULL: all offsets */
        double drift, drift_error;   /* error 0: DRIFT_UNKNOWN */
        uint64_t window_ns;          /* maximum distance of a frame from its trigger */
        uint32_t from;               /* first trigger that is searched */
        uint32_t n;
        uint64_t times_ns[SEARCH_FRAMES]; /* of frames, by the clock of the board, in their order */
        uint64_t arrived_ns[SEARCH_FRAMES];
};

/* Adds a frame with the time of the board's clock; n < SEARCH_FRAMES. */
void offset_search_add(struct offset_search *s, uint64_t time_ns, uint64_t arrived_ns);
/* Only offsets that `f` allows are searched, with about its drift. */
void offset_search_follow(struct offset_search *s, const struct board_fit *f);

struct agreement {
        uint32_t matches;
        /* The smaller number of frames and triggers in the time that both cover. */
        uint32_t possible;
        uint64_t frames; /* bit i: frame i matches */
};

/* How many frames match if the board is ahead by `offset_ns` at its time `at_ns`. Counts no further once it
 * is sure that `most` or fewer match. There must be a trigger. */
struct agreement offset_agreement(const struct offset_search *s, uint64_t offset_ns, uint64_t at_ns,
                                  uint32_t most);
bool offset_mostly_agrees(struct agreement a);
/* Finds the offset on which the frames agree, unless another one is nearly as likely. */
bool offset_find(const struct offset_search *s, uint64_t *ret_offset_ns, uint64_t *ret_at_ns);
/* Whether most frames fit triggers as `fit` says, so that the clock of the board, which starts over after a
 * period, continues. Returns also the number of the frame less that of its trigger. */
bool offset_continues(const struct offset_search *s, double period_ns, uint64_t *ret_offset_ns,
                      uint64_t *ret_at_ns, int32_t *ret_ahead);
/* Whether other frames fit the same triggers nearly as well as those that match with this offset, for example
 * if the board sends two frames for each trigger. */
bool offset_has_rival(const struct offset_search *s, uint64_t offset_ns, uint64_t at_ns);
/* Whether the frames that match with this offset come before their triggers, and would come nearer to them if
 * a later frame was that of the first trigger: the board probably sent frames before this trigger. `spread`
 * has frames from the whole time. */
bool offset_is_early(const struct offset_search *s, const struct offset_search *spread, struct agreement a,
                     uint64_t offset_ns, uint64_t at_ns);

/* Finds the trigger of a frame after a pause in which the drift may have changed: one offset explains the
 * frames best, or the first frame belongs to the first trigger by its time, too. `is_last`: the first frame
 * waits no longer. `is_complete`: no trigger was lost in the pause. NO_TRIGGER: none is near the first frame.
 */
enum resumption offset_resume(const struct offset_search *s, bool is_last, bool is_complete,
                              uint64_t *ret_trigger_ns, uint64_t *ret_board_ns);
