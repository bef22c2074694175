/* Indexes a file of v3.0 events by event and source, and returns fragments in place or as renumbered copies.
 * It checks the entire file when it opens it, so that later calls cannot fail. */
#include "store/replay.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/idmap.h"
#include "store/event_file.h"

/* In an index: several events have the same key. */
#define REPEATED (IDMAP_NONE - 1)

/* The fragment of one source in one event; ros_bytes is 0 if the event has no fragment of the source. */
struct replay_cell {
        size_t subdet_offset_bytes, ros_offset_bytes;
        uint32_t ros_bytes;
        uint16_t subdet_bytes, order;
};

struct replay {
        struct event_file *file;
        const uint8_t *bytes;
        size_t n_events, n_sources;
        uint32_t sources[EVB_ROS_MAX];
        struct event_info *events;
        struct replay_cell *cells; /* [event * n_sources + source] */
        uint32_t span;
        struct idmap by_l1; /* events by their L1 IDs, or REPEATED */
};

/* State of one walk over an event. The first pass finds the sources, and the second pass fills the cells. */
struct replay_index {
        struct replay *replay;
        struct replay_cell *row; /* NULL in the first pass */
        struct event_info *info;
        size_t event_offset_bytes;
        struct eformat_fragment subdet;
        uint16_t order;
        const char *reason; /* the reason if a visit stopped the walk */
};

size_t replay_find_source(const struct replay *r, uint32_t source_id)
{
        for (size_t i = 0; i < r->n_sources; i++)
                if (r->sources[i] == source_id)
                        return i;
        return r->n_sources;
}

static int index_stop(struct replay_index *x, int error, const char *reason)
{
        x->reason = reason;
        return error;
}

static int index_source(struct replay_index *x, uint32_t source_id)
{
        struct replay *r = x->replay;

        if (replay_find_source(r, source_id) < r->n_sources)
                return 0;
        if (r->n_sources == EVB_ROS_MAX)
                return index_stop(x, -E2BIG, "too many ROS sources");
        r->sources[r->n_sources++] = source_id;
        return 0;
}

static int index_cell(struct replay_index *x, const struct eformat_fragment *ros)
{
        struct replay_cell *cell = &x->row[replay_find_source(x->replay, ros->source_id)];
        uint64_t size_bytes = 4 * ((uint64_t)x->subdet.header_words + ros->size_words);

        if (cell->ros_bytes > 0)
                return index_stop(x, -EBADMSG, "duplicate ROS in an event");
        if (size_bytes > EVB_FRAGMENT_MAX_BYTES)
                return index_stop(x, -EMSGSIZE, "ROS fragment exceeds the maximum fragment size");
        *cell = (struct replay_cell){
                .subdet_offset_bytes = x->event_offset_bytes + x->subdet.offset_bytes,
                .ros_offset_bytes = x->event_offset_bytes + ros->offset_bytes,
                .ros_bytes = 4 * ros->size_words,
                .subdet_bytes = (uint16_t)(4 * x->subdet.header_words),
                .order = x->order,
        };
        return 0;
}

static int index_visit(void *userdata, const struct eformat_fragment *f)
{
        struct replay_index *x = userdata;
        int r = 0;

        if (f->depth == 0 && (f->marker != EFORMAT_EVENT || f->version >> 24 != 3))
                return index_stop(x, -EBADMSG, "event format is not v3.0");
        if (f->marker == EFORMAT_EVENT)
                eformat_event_info(f, x->info);
        if (f->marker == EFORMAT_SUBDET)
                x->subdet = *f;
        if (f->marker == EFORMAT_SUBDET && 4 * f->header_words > EFORMAT_ROS3_HEADER_MAX_BYTES)
                return index_stop(x, -EBADMSG, "sub-detector header is too long");
        if (f->marker == EFORMAT_ROS) {
                r = x->row ? index_cell(x, f) : index_source(x, f->source_id);
                x->order++;
        }
        return r;
}

static int index_event(struct replay *r, const struct event_record *record, size_t event, bool cells,
                       struct eformat_fault *fault)
{
        struct event_info ignored = {};
        struct replay_index x = {
                .replay = r,
                .row = cells ? &r->cells[event * r->n_sources] : NULL,
                .info = cells ? &r->events[event] : &ignored,
                .event_offset_bytes = record->offset_bytes + EVENT_FILE_DATA_BYTES,
        };
        int e = eformat_walk(record->event, record->size_bytes, index_visit, &x, fault);

        if (e == 0)
                return 0;
        if (x.reason)
                *fault = (struct eformat_fault){.reason = x.reason};
        fault->offset_bytes += x.event_offset_bytes;
        return e;
}

static int index_pass(struct replay *r, bool cells, struct eformat_fault *fault)
{
        struct event_record record;
        struct event_file_end end;
        size_t position = 0, n = 0;
        int e;

        while ((e = event_file_next(r->file, &position, &record, fault)) == 1) {
                e = index_event(r, &record, n++, cells, fault);
                if (e < 0)
                        return e;
        }
        r->n_events = n;
        /* Events of another run may follow, and would otherwise be skipped silently. */
        return e < 0 ? e : event_file_read_end(r->file, position, &end, fault);
}

/* IDs of one kind are in [min, max]; the IDs of the next pass begin after max. */
static uint32_t find_span(const struct replay *r)
{
        uint64_t min[2] = {UINT64_MAX, UINT64_MAX}, max[2] = {0, 0}, span = 1;

        for (size_t i = 0; i < r->n_events; i++) {
                uint64_t ids[2] = {r->events[i].l1_id, r->events[i].global_id};

                for (unsigned k = 0; k < 2; k++) {
                        min[k] = MIN(min[k], ids[k]);
                        max[k] = MAX(max[k], ids[k]);
                }
        }
        while (span <= MAX(max[0] - min[0], max[1] - min[1]) && span < UINT64_C(1) << 31)
                span *= 2;
        return (uint32_t)span;
}

static bool are_stamped(const struct replay *r)
{
        for (size_t i = 0; i < r->n_events; i++)
                if (r->events[i].event == UINT64_MAX)
                        return false;
        return true;
}

static uint64_t key_of(const struct event_info *info, bool by_spill)
{
        return (by_spill ? (uint64_t)info->spill << 32 : 0) | info->l1_id;
}

/* Maps keys of events to events; those that several events have to REPEATED. Returns the second event with
 * the key of an earlier one, REPLAY_NONE: there is none, or a negative errno. */
static int64_t index_keys(const struct replay *r, bool by_spill, struct idmap *ret)
{
        int64_t repeated = REPLAY_NONE;
        int e = idmap_init(ret, (uint32_t)r->n_events);

        if (e < 0)
                return e;
        for (uint32_t i = 0; i < r->n_events; i++) {
                uint64_t key = key_of(&r->events[i], by_spill);
                bool is_new = idmap_get(ret, key) == IDMAP_NONE;

                idmap_put(ret, key, is_new ? i : REPEATED);
                if (!is_new && repeated == REPLAY_NONE)
                        repeated = i;
        }
        return repeated;
}

static int replay_index_file(struct replay *r, struct eformat_fault *fault)
{
        int e = index_pass(r, false, fault);

        if (e < 0)
                return e;
        if (r->n_events == 0 || r->n_sources == 0) {
                *fault =
                        (struct eformat_fault){.reason = r->n_events == 0 ? "file contains no events"
                                                                          : "file contains no ROS fragments"};
                return -ENODATA;
        }
        r->events = calloc(r->n_events, sizeof *r->events);
        r->cells = calloc(r->n_events * r->n_sources, sizeof *r->cells);
        if (!r->events || !r->cells)
                return -ENOMEM;
        e = index_pass(r, true, fault);
        if (e < 0)
                return e;
        r->span = find_span(r);
        return (int)MIN(index_keys(r, false, &r->by_l1), 0);
}

static void replay_freep(struct replay **r)
{
        replay_free(*r);
}

static int fail(struct error *error, int code, const char *path, const struct eformat_fault *fault)
{
        if (fault->reason)
                error_set(error, code, "byte %zu: %s", fault->offset_bytes, fault->reason);
        else
                error_set(error, code, "%m");
        return error_locate(error, "%s", path);
}

int replay_open(struct replay **ret, const char *path, struct error *error)
{
        _cleanup_(replay_freep) struct replay *r = calloc(1, sizeof *r);
        struct eformat_fault fault = {0};
        size_t size_bytes;
        int e;

        if (!r)
                return fail(error, -ENOMEM, path, &fault);
        e = event_file_open(&r->file, path, &fault);
        if (e < 0)
                return fail(error, e, path, &fault);
        r->bytes = event_file_bytes(r->file, &size_bytes);
        e = replay_index_file(r, &fault);
        if (e < 0)
                return fail(error, e, path, &fault);
        *ret = take_ptr(r);
        return 0;
}

struct replay *replay_free(struct replay *r)
{
        if (!r)
                return NULL;
        event_file_free(r->file);
        free(r->events);
        free(r->cells);
        idmap_fini(&r->by_l1);
        free(r);
        return NULL;
}

size_t replay_sources(const struct replay *r)
{
        return r->n_sources;
}

size_t replay_events(const struct replay *r)
{
        return r->n_events;
}

uint32_t replay_source_id(const struct replay *r, size_t source)
{
        return r->sources[source];
}

uint32_t replay_run(const struct replay *r)
{
        return event_file_front(r->file)->run;
}

void replay_pass_info(const struct replay *r, uint64_t trigger, struct event_info *ret)
{
        uint64_t shift = trigger / r->n_events * r->span;

        *ret = r->events[trigger % r->n_events];
        ret->global_id += shift;
        ret->l1_id += (uint32_t)shift;
}

uint32_t replay_span(const struct replay *r)
{
        return r->span;
}

uint32_t replay_find_event(const struct replay *r, uint32_t l1_id)
{
        uint32_t i = idmap_get(&r->by_l1, l1_id);

        return i == REPEATED ? REPLAY_NONE : i;
}

static bool is_same_event(const struct event_info *a, const struct event_info *b)
{
        return a->event == b->event && a->global_id == b->global_id && a->l1_id == b->l1_id &&
               a->spill == b->spill && a->time_s == b->time_s && a->time_ns == b->time_ns;
}

/* Whether one file begins with the events of the other one. */
static bool begin_alike(const struct replay *a, const struct replay *b)
{
        for (size_t i = 0; i < MIN(a->n_events, b->n_events); i++)
                if (!is_same_event(&a->events[i], &b->events[i]))
                        return false;
        return true;
}

static int fail_to_match(const struct event_info *info, bool by_spill, struct error *error)
{
        char spill[40] = "";

        if (by_spill)
                snprintf(spill, sizeof spill, "spill %u and ", info->spill);
        return error_set(
                error, -EINVAL,
                "one of them has more than one event with %sL1 ID %u, so their events cannot be matched; "
                "expected each L1 ID once%s, or the same file for all ROSs",
                spill, info->l1_id, by_spill ? " in a spill" : "");
}

int replay_match(const struct replay *r, const struct replay *triggers, uint32_t *ret, struct error *error)
{
        bool by_spill = are_stamped(r) && are_stamped(triggers);
        _cleanup_(idmap_fini) struct idmap map = {}, others = {};
        int64_t i = index_keys(r, by_spill, &map), k = index_keys(triggers, by_spill, &others);

        if (i < 0 || k < 0)
                return error_set(error, (int)MIN(i, k), "%m");
        if ((i != REPLAY_NONE || k != REPLAY_NONE) && !begin_alike(r, triggers))
                return fail_to_match(i != REPLAY_NONE ? &r->events[i] : &triggers->events[k], by_spill,
                                     error);
        for (uint32_t t = 0; t < triggers->n_events; t++) {
                if (i == REPLAY_NONE && k == REPLAY_NONE)
                        ret[t] = idmap_get(&map, key_of(&triggers->events[t], by_spill));
                else
                        ret[t] = t < r->n_events ? t : REPLAY_NONE;
        }
        return 0;
}

void replay_fragment(const struct replay *r, size_t event, size_t source, struct replay_fragment *ret)
{
        const struct replay_cell *cell = &r->cells[event * r->n_sources + source];

        *ret = (struct replay_fragment){.status = FRAGMENT_NONE};
        if (cell->ros_bytes > 0)
                *ret = (struct replay_fragment){
                        .status = FRAGMENT_OK,
                        .order = cell->order,
                        .size_bytes = cell->subdet_bytes + cell->ros_bytes,
                        .subdet = r->bytes + cell->subdet_offset_bytes,
                        .ros = r->bytes + cell->ros_offset_bytes,
                        .subdet_bytes = cell->subdet_bytes,
                        .ros_bytes = cell->ros_bytes,
                };
}

size_t replay_copy(const struct replay *r, size_t event, size_t source, uint32_t l1_id, void *to,
                   size_t size_bytes)
{
        struct replay_fragment f;

        replay_fragment(r, event, source, &f);
        if (f.size_bytes == 0 || f.size_bytes > size_bytes)
                return f.size_bytes;
        memcpy(to, f.subdet, f.subdet_bytes);
        memcpy((uint8_t *)to + f.subdet_bytes, f.ros, f.ros_bytes);
        if (l1_id != r->events[event].l1_id)
                eformat_ros3_renumber(to, f.size_bytes, r->events[event].l1_id, l1_id);
        return f.size_bytes;
}
