/* Tests that replaying the real file reproduces its events byte for byte, and that later passes get new IDs.
 */

#include "../test.h"

#include "store/replay.h"
#include "store_sample.h"

#define STAMP_BYTES 64u

DEFINE_FREEP(replay)

static struct eformat_encoding e;
static struct built_fragment fragments[EVB_ROS_MAX];

static struct replay *open_real(void)
{
        const char *path = sample_real_file();
        struct replay *replay;
        struct error error = {};

        if (!path) {
                print_message("skipped: data/bes3-run91668.raw of EVB_SHARED is not there\n");
                skip();
        }
        if (replay_open(&replay, path, &error) < 0)
                fail_msg("%s", error.message);
        return replay;
}

/* Builds the event of `trigger` from copies in `room`, with shuffled sources. Returns its bytes. */
static uint8_t *rebuild(const struct replay *replay, uint64_t trigger, uint8_t *room,
                        const struct eformat *format)
{
        struct eformat_settings settings = {0};
        struct built_event event = {.fragments = fragments};
        uint8_t *bytes, *at;

        replay_pass_info(replay, trigger, &event.info);
        for (size_t i = 0; i < replay_sources(replay); i++) {
                size_t source = (i * 7 + 3) % replay_sources(replay);
                struct replay_fragment f;

                replay_fragment(replay, (size_t)(trigger % replay_events(replay)), source, &f);
                assert_int_equal(replay_copy(replay, (size_t)(trigger % replay_events(replay)), source,
                                             event.info.l1_id, room, f.size_bytes),
                                 f.size_bytes);
                fragments[event.n_fragments++] = (struct built_fragment){
                        .data = room,
                        .size_bytes = f.size_bytes,
                        .source_id = replay_source_id(replay, source),
                        .order = f.order,
                        .form = FORM_ROS3,
                        .status = (uint8_t)f.status,
                };
                room += f.size_bytes;
        }
        assert_int_equal(format->encode(&event, &settings, &e), 0);
        at = bytes = malloc(e.size_bytes);
        for (size_t i = 0; i < e.n_iov; at += e.iov[i++].iov_len)
                memcpy(at, e.iov[i].iov_base, e.iov[i].iov_len);
        return bytes;
}

TEST(test_rebuilt_events_have_the_same_bytes)
{
        _cleanup_(replay_freep) struct replay *replay = open_real();
        _cleanup_free_ uint8_t *room = malloc(1 << 20);
        struct event_file *file;
        struct event_record record;
        size_t position = 0, n = 0;

        assert_int_equal(event_file_open(&file, sample_real_file(), NULL), 0);
        while (event_file_next(file, &position, &record, NULL) == 1) {
                _cleanup_free_ uint8_t *bytes = rebuild(replay, n++, room, &eformat_3);

                /* But for the size, and the stamp at the end. */
                assert_int_equal(e.size_bytes, record.size_bytes + STAMP_BYTES);
                assert_int_equal(eformat_word(bytes, 1), record.size_bytes / 4 + STAMP_BYTES / 4);
                memcpy(bytes + 4, record.event + 4, 4);
                assert_memory_equal(bytes, record.event, record.size_bytes);
                assert_fields(&e, n_l1_mismatches, 2, n_missing, 0);
        }
        assert_int_equal(n, 10);
        assert_int_equal(replay_events(replay), 10);
        assert_int_equal(replay_sources(replay), 26);
        assert_int_equal(replay_run(replay), 91668);
        assert_int_equal(replay_source_id(replay, 0), 0x00a10020);
        event_file_free(file);
}

/* `wanted` words must differ, each by `shift`. */
static void assert_shifted(const uint8_t *a, const uint8_t *b, size_t size_bytes, uint32_t shift,
                           size_t wanted)
{
        size_t n = 0;

        for (size_t i = 0; i < size_bytes / 4; i++) {
                uint32_t difference = eformat_word(b, i) - eformat_word(a, i);

                assert_true(difference == 0 || difference == shift);
                n += difference != 0;
        }
        assert_int_equal(n, wanted);
}

TEST(test_later_passes_are_renumbered)
{
        _cleanup_(replay_freep) struct replay *replay = open_real();
        _cleanup_free_ uint8_t *room = malloc(1 << 20);
        struct event_info first, later;

        for (uint64_t k = 0; k < 10; k++) {
                _cleanup_free_ uint8_t *before = rebuild(replay, k, room, &eformat_3);
                _cleanup_free_ uint8_t *after = rebuild(replay, k + 30, room, &eformat_3);

                /* Event (global and L1 ID), 25 ROSs and 41 RODs; the L1 IDs of one sub-detector are 0. */
                assert_shifted(before, after, e.size_bytes - STAMP_BYTES, 48, 2 + 25 + 41);
                assert_int_equal(e.n_l1_mismatches, 2);
                assert_int_equal(eformat_walk(after, e.size_bytes, NULL, NULL, NULL), 0);
        }
        replay_pass_info(replay, 3, &first);
        replay_pass_info(replay, 13, &later);
        assert_fields(&later, l1_id, first.l1_id + 16, global_id, first.global_id + 16, time_s, first.time_s);
}

TEST(test_l1_ids_are_unique)
{
        _cleanup_(replay_freep) struct replay *replay = open_real();
        uint32_t seen[100];

        for (uint64_t t = 0; t < ARRAY_SIZE(seen); t++) {
                struct event_info info;

                replay_pass_info(replay, t, &info);
                seen[t] = info.l1_id;
                for (uint64_t k = 0; k < t; k++)
                        assert_int_not_equal(seen[k], seen[t]);
        }
}

struct robs {
        unsigned n, n_rods;
};

static int count_robs(void *userdata, const struct eformat_fragment *f)
{
        struct robs *robs = userdata;

        robs->n += f->marker == EFORMAT_ROB;
        robs->n_rods += f->marker == EFORMAT_ROD;
        return 0;
}

TEST(test_real_events_as_version_five)
{
        _cleanup_(replay_freep) struct replay *replay = open_real();
        _cleanup_free_ uint8_t *room = malloc(1 << 20);

        for (uint64_t k = 0; k < 10; k++) {
                _cleanup_free_ uint8_t *bytes = rebuild(replay, k, room, &eformat_5);
                struct robs robs = {0};

                assert_int_equal(eformat_walk(bytes, e.size_bytes, count_robs, &robs, NULL), 0);
                assert_fields(&robs, n, 42, n_rods, 42);
        }
}

TEST(test_small_buffer_stays_unchanged)
{
        _cleanup_(replay_freep) struct replay *replay = open_real();
        struct replay_fragment f;
        uint8_t room[4] = "abcd";

        replay_fragment(replay, 0, 0, &f);
        assert_fields(&f, status, FRAGMENT_OK, size_bytes, 36 + 292);
        assert_int_equal(replay_copy(replay, 0, 0, 0, room, sizeof room), f.size_bytes);
        assert_memory_equal(room, "abcd", 4);
}

/* Writes a file of these events; event k has the fragments of sources 0 to n_sources[k] - 1. */
static void write_events(const char *directory, const char *core_name, const struct event_info *infos,
                         const size_t *n_sources, size_t n, char path[static PATH_MAX])
{
        struct event_writer_settings s = {
                .directory = directory, .core_name = core_name, .application = "a", .version = 2};
        struct eformat_settings settings = {0};
        struct event_writer *w;

        assert_int_equal(event_writer_new(&w, &s, SAMPLE_NOW), 0);
        for (size_t k = 0; k < n; k++) {
                struct built_event event = {
                        .info = infos[k], .n_fragments = n_sources[k], .fragments = fragments};

                for (uint32_t i = 0; i < n_sources[k]; i++)
                        fragments[i] = (struct built_fragment){.data = "abcd",
                                                               .size_bytes = 4,
                                                               .source_id = eformat_source_id(i),
                                                               .order = (uint16_t)i};
                assert_int_equal(eformat_3.encode(&event, &settings, &e), 0);
                assert_int_equal(
                        event_writer_write(w, e.iov, e.n_iov, e.size_bytes, e.sum, &e.info, SAMPLE_NOW), 0);
        }
        assert_int_equal(event_writer_close(w, SAMPLE_NOW), 0);
        snprintf(path, PATH_MAX, "%s", event_writer_path(w));
        event_writer_free(w);
}

TEST(test_absent_source)
{
        char *directory = sample_directory(), path[PATH_MAX];
        struct error error = {};
        struct replay *replay;
        struct replay_fragment f;

        write_events(directory, "c", (struct event_info[]){{.l1_id = 5}, {.l1_id = 6}}, (size_t[]){2, 1}, 2,
                     path);
        assert_int_equal(replay_open(&replay, path, &error), 0);
        assert_int_equal(replay_sources(replay), 2);
        replay_fragment(replay, 1, 1, &f);
        assert_fields(&f, status, FRAGMENT_NONE, size_bytes, 0);
        assert_int_equal(replay_copy(replay, 1, 1, 1, NULL, 0), 0);
        replay_fragment(replay, 1, 0, &f);
        assert_int_equal(f.status, FRAGMENT_OK);
        replay_free(replay);
        sample_remove(directory);
}

/* The events of a ROS's file, those of the triggers' file, and what belongs to each trigger. */
static const struct {
        size_t n, n_triggers;
        struct event_info events[4], triggers[4];
        uint32_t matches[4];
        uint32_t trigger_6; /* the only trigger with L1 ID 6 */
        const char *reason; /* why they cannot be matched */
} matched[] = {
        {3,
         4,
         {{.event = 0, .l1_id = 5}, {.event = 1, .l1_id = 6}, {.event = 2, .l1_id = 5, .spill = 1}},
         {{.event = 0, .l1_id = 5, .spill = 1},
          {.event = 1, .l1_id = 6},
          {.event = 2, .l1_id = 7},
          {.event = 3, .l1_id = 5}},
         {2, 1, REPLAY_NONE, 0},
         1,
         NULL},
        /* An L1 ID twice in a spill: only as in the other file. */
        {2,
         3,
         {{.event = 0, .l1_id = 5}, {.event = 1, .l1_id = 5}},
         {{.event = 0, .l1_id = 5}, {.event = 1, .l1_id = 5}, {.event = 2, .l1_id = 6}},
         {0, 1, REPLAY_NONE},
         2,
         NULL},
        {2,
         2,
         {{.event = 0, .l1_id = 5, .spill = 3}, {.event = 1, .l1_id = 5, .spill = 3}},
         {{.event = 0, .l1_id = 5, .spill = 3}, {.event = 2, .l1_id = 5, .spill = 3}},
         {0},
         REPLAY_NONE,
         "more than one event with spill 3 and L1 ID 5"},
        {2,
         2,
         {{.event = 0, .l1_id = 5}, {.event = 1, .l1_id = 6}},
         {{.event = 0, .l1_id = 5}, {.event = 1, .l1_id = 5}},
         {0},
         REPLAY_NONE,
         "more than one event with spill 0 and L1 ID 5"},
};

TEST_EACH(test_events_of_two_files_belong_together, i, ARRAY_SIZE(matched))
{
        static const size_t n_sources[] = {1, 1, 1, 1};
        char *directory = sample_directory(), path[2][PATH_MAX];
        _cleanup_(replay_freep) struct replay *replay = NULL, *triggers = NULL;
        struct error error = {};
        uint32_t ret[4];

        write_events(directory, "events", matched[i].events, n_sources, matched[i].n, path[0]);
        write_events(directory, "triggers", matched[i].triggers, n_sources, matched[i].n_triggers, path[1]);
        assert_int_equal(replay_open(&replay, path[0], &error), 0);
        assert_int_equal(replay_open(&triggers, path[1], &error), 0);
        if (matched[i].reason) {
                assert_int_equal(replay_match(replay, triggers, ret, &error), -EINVAL);
                assert_non_null(strstr(error.message, matched[i].reason));
        } else {
                assert_int_equal(replay_match(replay, triggers, ret, &error), 0);
                assert_memory_equal(ret, matched[i].matches, matched[i].n_triggers * sizeof *ret);
        }
        /* By the L1 ID alone, only if no other event has it. */
        assert_int_equal(replay_find_event(triggers, 5), REPLAY_NONE);
        assert_int_equal(replay_find_event(triggers, 6), matched[i].trigger_6);
        sample_remove(directory);
}

static void assert_refused(const char *path, int error, const char *reason)
{
        struct replay *replay;
        struct error refusal = {};

        assert_int_equal(replay_open(&replay, path, &refusal), error);
        assert_string_equal(refusal.location, path);
        if (!strstr(refusal.message, reason))
                fail_msg("%s does not say %s", refusal.message, reason);
}

/* A second run in the file would be missed. */
static void replay_two_runs(const char *directory)
{
        char path[PATH_MAX], command[6 * PATH_MAX];
        struct replay *replay;
        struct error error = {};

        write_events(directory, "two", (struct event_info[]){{}}, (size_t[]){1}, 1, path);
        assert_int_equal(replay_open(&replay, path, &error), 0);
        assert_int_equal(replay_events(replay), 1);
        replay_free(replay);
        snprintf(command, sizeof command, "cat %s %s > %s.both && mv %s.both %s", path, path, path, path,
                 path);
        assert_int_equal(system(command), 0);
        assert_refused(path, -EBADMSG, "another file begins after the end record; split them at this byte");
}

TEST(test_invalid_files_are_rejected)
{
        char *directory = sample_directory(), path[PATH_MAX];
        struct event_writer_settings s = {
                .directory = directory, .core_name = "c", .application = "a", .version = 2};
        struct eformat_settings settings = {0};
        struct built_event event = {.n_fragments = 2, .fragments = fragments};
        struct event_writer *w;
        size_t size_bytes;

        assert_refused("/nonexistent", -ENOENT, "No such file");
        assert_int_equal(event_writer_new(&w, &s, SAMPLE_NOW), 0);
        assert_refused(event_writer_path(w), -ENODATA, "no events");
        for (uint32_t i = 0; i < 2; i++)
                fragments[i] = (struct built_fragment){.data = "abcd",
                                                       .size_bytes = 4,
                                                       .source_id = eformat_source_id(0),
                                                       .order = (uint16_t)i};
        assert_int_equal(eformat_3.encode(&event, &settings, &e), 0);
        assert_int_equal(event_writer_write(w, e.iov, e.n_iov, e.size_bytes, e.sum, &e.info, SAMPLE_NOW), 0);
        assert_int_equal(event_writer_close(w, SAMPLE_NOW), 0);
        snprintf(path, sizeof path, "%s", event_writer_path(w));
        event_writer_free(w);
        assert_refused(path, -EBADMSG, "duplicate ROS in an event");
        replay_two_runs(directory);

        _cleanup_free_ uint8_t *bytes = sample_read(path, &size_bytes);

        sample_write(path, bytes, size_bytes - 41);
        assert_refused(path, -EBADMSG, "event extends past the end of the file");
        /* The trailer of the last ROD no longer matches its ROB. */
        bytes[size_bytes - STAMP_BYTES - 44] = 7;
        bytes[size_bytes - STAMP_BYTES - 48] ^= 4;
        sample_write(path, bytes, size_bytes);
        assert_refused(path, -EBADMSG, "ROD size does not match its counts");
        sample_remove(directory);
}
