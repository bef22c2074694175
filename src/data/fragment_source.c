/* Generates fragments from a pattern, or reads them from an event file. */
#include "data/fragment_source.h"

#include <errno.h>
#include <math.h>
#include <string.h>

#include "base/pattern.h"
#include "base/random.h"
#include "base/util.h"
#include "store/replay.h"

struct source_kind {
        void (*describe)(struct source *s, uint64_t event, uint32_t l1_id, struct ros_fragment *ret);
        void (*fill)(const struct source *s, uint64_t event, uint32_t l1_id, void *to, uint32_t bytes);
};

struct source {
        const struct source_kind *kind;
        uint32_t index;
        uint64_t seed;
        struct pattern_sizes sizes;
        struct replay *replay;
        bool by_l1_id;
        bool is_apart;       /* the file of the triggers is unreadable, so only its first pass is known */
        uint64_t n_triggers; /* events in the file of the triggers; UINT64_MAX: unknown */
        uint32_t span;       /* what a pass over it adds to L1 IDs */
        uint32_t *matches; /* for each of these, the event in this file or REPLAY_NONE; NULL: the same file */
        uint64_t missing;  /* number of triggers without an event in the file */
        uint32_t missing_l1_id;
        uint64_t *had; /* for each event in the file: 1 + the number of the newest event of the run that used
                          it; 0: none so far; LACKED: the file of the triggers has no such event */
        uint64_t end;  /* 1 + the number of the newest event of the run */
};

#define LACKED UINT64_MAX

static uint32_t size_of(const struct pattern_sizes *sizes, uint64_t key)
{
        struct random random;
        double bytes;

        switch (sizes->kind) {
        case SIZES_FIXED:
                break;
        case SIZES_UNIFORM:
                return sizes->least + (uint32_t)(((unsigned __int128)random_mix(key) *
                                                  (sizes->most - sizes->least + UINT64_C(1))) >>
                                                 64);
        case SIZES_LOGNORMAL:
                random_init(&random, key);
                bytes = sizes->mean_bytes *
                        exp(sizes->sigma * random_normal(&random) - sizes->sigma * sizes->sigma / 2);
                return (uint32_t)MIN(bytes, (double)EVB_FRAGMENT_MAX_BYTES);
        }
        return sizes->bytes;
}

/* The bytes depend on the number of the trigger. The event's header contains this number, so that a reader of
 * the file can check the bytes. */
static void pattern_describe(struct source *s, uint64_t event, uint32_t l1_id, struct ros_fragment *ret)
{
        *ret = (struct ros_fragment){
                .bytes = s->sizes.kind == SIZES_FIXED
                                 ? s->sizes.bytes
                                 : size_of(&s->sizes, pattern_key(s->seed, s->index, l1_id)),
                .order = (uint16_t)s->index,
                .form = FORM_RAW,
        };
}

static void pattern_make(const struct source *s, uint64_t event, uint32_t l1_id, void *to, uint32_t bytes)
{
        pattern_fill(pattern_key(s->seed, s->index, l1_id), to, 0, bytes);
}

/* Returns the event in the file, or REPLAY_NONE. A file of the same name on the machine of the DFM may have
 * other events than this one. */
static uint32_t event_in_file(const struct source *s, uint64_t event, uint32_t l1_id)
{
        uint32_t recorded = l1_id - (uint32_t)(event / s->n_triggers * s->span), at;
        struct event_info info;

        if (!s->by_l1_id)
                return (uint32_t)(event % replay_events(s->replay));
        if (s->is_apart)
                return replay_find_event(s->replay, recorded);
        at = (uint32_t)(event % s->n_triggers);
        if (s->matches)
                at = s->matches[at];
        if (at == REPLAY_NONE)
                return at;
        replay_pass_info(s->replay, at, &info);
        return info.l1_id == recorded ? at : replay_find_event(s->replay, recorded);
}

/* If the file of the triggers is unreadable, returns how many more events the file has between the used
 * events than the run has between the same events. Level 2 may have rejected some of them. */
static uint64_t guess_lacked(const struct source *s)
{
        uint64_t n = 0, last = UINT64_MAX;

        for (uint64_t i = 0; i < replay_events(s->replay); i++) {
                if (s->had[i] == 0)
                        continue;
                if (last != UINT64_MAX && s->had[i] > s->had[last] && s->had[i] - s->had[last] < i - last)
                        n += i - last - (s->had[i] - s->had[last]);
                last = i;
        }
        return n;
}

/* Returns the number of events that the file of the triggers lacks and that the run has passed: all of them
 * after a whole pass, otherwise those between used events. */
static uint64_t count_lacked(const struct source *s)
{
        bool is_whole = s->end >= s->n_triggers;
        uint64_t n = 0, between = 0;
        bool used = is_whole;

        for (uint64_t i = 0; i < replay_events(s->replay); i++) {
                between += used && s->had[i] == LACKED;
                if (s->had[i] == 0 || s->had[i] == LACKED)
                        continue;
                used = true;
                n += between;
                between = 0;
        }
        return is_whole ? n + between : n;
}

static uint64_t unused(const struct source *s)
{
        return s->is_apart ? guess_lacked(s) : count_lacked(s);
}

static void file_describe(struct source *s, uint64_t event, uint32_t l1_id, struct ros_fragment *ret)
{
        uint32_t i = event_in_file(s, event, l1_id);
        struct replay_fragment f;

        s->end = MAX(s->end, event + 1);
        if (i == REPLAY_NONE) {
                s->missing++;
                s->missing_l1_id = l1_id;
                *ret = (struct ros_fragment){.status = FRAGMENT_LOST, .form = FORM_ROS3};
                return;
        }
        s->had[i] = event + 1;
        replay_fragment(s->replay, i, s->index, &f);
        *ret = (struct ros_fragment){
                .bytes = f.size_bytes,
                .order = f.order,
                .form = FORM_ROS3,
                .status = (uint8_t)f.status,
        };
}

static void file_fill(const struct source *s, uint64_t event, uint32_t l1_id, void *to, uint32_t bytes)
{
        struct event_info info = {.l1_id = l1_id};
        uint32_t i = event_in_file(s, event, l1_id);

        /* Among other sources, the L1 ID of the file stays. */
        if (!s->by_l1_id)
                replay_pass_info(s->replay, event, &info);
        if (i != REPLAY_NONE)
                replay_copy(s->replay, i, s->index, info.l1_id, to, bytes);
}

static const struct source_kind pattern_kind = {pattern_describe, pattern_make};
static const struct source_kind file_kind = {file_describe, file_fill};

struct pattern_sizes source_sizes_of(const struct scenario *s)
{
        return (struct pattern_sizes){
                .kind = (enum source_sizes)s->ros.sizes_kind,
                .bytes = (uint32_t)s->ros.fragment_size_bytes,
                .least = (uint32_t)s->ros.sizes_least_bytes,
                .most = (uint32_t)s->ros.sizes_most_bytes,
                .mean_bytes = s->ros.sizes_mean_bytes,
                .sigma = s->ros.sizes_sigma,
        };
}

int source_new_pattern(struct source **ret, uint32_t index, uint64_t seed, const struct pattern_sizes *sizes)
{
        struct source *s = calloc(1, sizeof *s);

        if (!s)
                return -ENOMEM;
        *s = (struct source){.kind = &pattern_kind, .index = index, .seed = seed, .sizes = *sizes};
        *ret = s;
        return 0;
}

/* If no ID is given, the ROS replays the source at `rank`. */
static int choose_source(struct source *s, uint32_t rank, uint32_t source_id, struct error *error)
{
        size_t n = replay_sources(s->replay);

        s->index = source_id > 0 ? (uint32_t)replay_find_source(s->replay, source_id) : rank;
        if (s->index < n)
                return 0;
        if (source_id > 0)
                return error_set(error, -EINVAL, "has no ROS source with ID 0x%06x", source_id);
        return error_set(error, -EINVAL, "has %zu ROS sources, but this is ROS %u; set ros.count to %zu", n,
                         rank + 1, n);
}

/* Finds the events that belong to triggers of another file, and those that belong to none. */
static int match(struct source *s, const struct replay *triggers, struct error *error)
{
        size_t n = replay_events(triggers);
        int r;

        s->matches = calloc(n, sizeof *s->matches);
        if (!s->matches)
                return error_set(error, -ENOMEM, "%m");
        r = replay_match(s->replay, triggers, s->matches, error);
        if (r < 0)
                return r;
        for (uint64_t i = 0; i < replay_events(s->replay); i++)
                s->had[i] = LACKED;
        for (size_t t = 0; t < n; t++)
                if (s->matches[t] != REPLAY_NONE)
                        s->had[s->matches[t]] = 0;
        return 0;
}

/* The file of the triggers determines the passes. */
static int find_passes(struct source *s, const char *path, const char *triggers, struct error *error)
{
        bool is_other = triggers && strcmp(triggers, path) != 0;
        struct replay *other = NULL;
        struct error ignored = {};
        int r = 0;

        s->is_apart = is_other && replay_open(&other, triggers, &ignored) < 0;
        s->n_triggers = s->is_apart ? UINT64_MAX : replay_events(other ?: s->replay);
        s->span = replay_span(other ?: s->replay);
        if (other)
                r = match(s, other, error);
        if (r < 0)
                error_locate(error, "%s and %s", path, triggers);
        replay_free(other);
        return r;
}

int source_new_file(struct source **ret, uint32_t rank, uint32_t source_id, const char *triggers,
                    const char *path, struct error *error)
{
        struct source *s = calloc(1, sizeof *s);
        int r;

        if (!s)
                return error_set(error, -ENOMEM, "%m");
        s->kind = &file_kind;
        s->by_l1_id = triggers;
        r = replay_open(&s->replay, path, error);
        if (r >= 0) {
                r = choose_source(s, rank, source_id, error);
                if (r < 0)
                        r = error_locate(error, "%s", path);
        }
        if (r >= 0 && !(s->had = calloc(replay_events(s->replay), sizeof *s->had)))
                r = error_set(error, -ENOMEM, "%m");
        if (r >= 0)
                r = find_passes(s, path, triggers, error);
        if (r < 0) {
                source_free(s);
                return r;
        }
        *ret = s;
        return 0;
}

void source_reasons(const struct source *s, struct reasons *to)
{
        if (s->missing > 0)
                reasons_add(to,
                            "the file that it replays has no event for %llu triggers, the last one with L1 "
                            "ID %u%s",
                            (unsigned long long)s->missing, s->missing_l1_id,
                            s->is_apart ? "; triggers that repeat the file of the first ROS have none, "
                                          "because this ROS cannot read that file"
                                        : "");
        if (s->by_l1_id && unused(s) > 0)
                reasons_add(to,
                            "%llu events of the file that it replays are in no event of the run, as the file "
                            "of the first ROS lacks them",
                            (unsigned long long)unused(s));
}

struct source *source_free(struct source *s)
{
        if (!s)
                return NULL;
        replay_free(s->replay);
        free(s->matches);
        free(s->had);
        free(s);
        return NULL;
}

void source_describe(void *source, uint64_t event, uint32_t l1_id, struct ros_fragment *ret)
{
        struct source *s = source;

        s->kind->describe(s, event, l1_id, ret);
}

void source_fill(const struct source *s, uint64_t event, uint32_t l1_id, void *to, uint32_t bytes)
{
        s->kind->fill(s, event, l1_id, to, bytes);
}
