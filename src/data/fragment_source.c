/* Generates fragments from a pattern or an event file. */
#include "data/fragment_source.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>

#include "base/pattern.h"
#include "base/random.h"
#include "base/util.h"
#include "store/replay.h"

struct source_kind {
        void (*describe)(const struct source *s, uint64_t event, uint32_t l1_id, struct ros_fragment *ret);
        void (*fill)(const struct source *s, uint64_t event, uint32_t l1_id, void *to, uint32_t bytes);
};

struct source {
        const struct source_kind *kind;
        uint32_t index;
        uint64_t seed;
        struct pattern_sizes sizes;
        struct replay *replay;
};

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

/* The trigger's number decides, as it is in the event's header: a reader of the file can check the bytes. */
static void pattern_describe(const struct source *s, uint64_t event, uint32_t l1_id, struct ros_fragment *ret)
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

static void file_describe(const struct source *s, uint64_t event, uint32_t l1_id, struct ros_fragment *ret)
{
        struct replay_fragment f;

        replay_fragment(s->replay, event % replay_events(s->replay), s->index, &f);
        *ret = (struct ros_fragment){
                .bytes = f.size_bytes,
                .order = f.order,
                .form = FORM_ROS3,
                .status = (uint8_t)f.status,
        };
}

static void file_fill(const struct source *s, uint64_t event, uint32_t l1_id, void *to, uint32_t bytes)
{
        replay_copy(s->replay, event, s->index, to, bytes);
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

/* Without an ID, the ROS replays the source at `rank`. */
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

int source_new_file(struct source **ret, uint32_t rank, uint32_t source_id, const char *path,
                    struct error *error)
{
        struct source *s = calloc(1, sizeof *s);
        int r;

        if (!s)
                return error_set(error, -ENOMEM, "%m");
        s->kind = &file_kind;
        r = replay_open(&s->replay, path, error);
        if (r >= 0) {
                r = choose_source(s, rank, source_id, error);
                if (r < 0)
                        r = error_locate(error, "%s", path);
        }
        if (r < 0) {
                source_free(s);
                return r;
        }
        *ret = s;
        return 0;
}

struct source *source_free(struct source *s)
{
        if (!s)
                return NULL;
        replay_free(s->replay);
        free(s);
        return NULL;
}

void source_describe(void *source, uint64_t event, uint32_t l1_id, struct ros_fragment *ret)
{
        const struct source *s = source;

        s->kind->describe(s, event, l1_id, ret);
}

void source_fill(const struct source *s, uint64_t event, uint32_t l1_id, void *to, uint32_t bytes)
{
        s->kind->fill(s, event, l1_id, to, bytes);
}
