/* Makes event files with the store, for the independent readers in test_foreign_readers.py:
 *
 * - event_tool rebuild IN DIRECTORY FORMAT PASSES [LOST...]: replays IN without the sources LOST
 * - event_tool pattern DIRECTORY FORMAT SOURCES EVENTS: writes events of pattern sources
 * - event_tool repair IN OUT
 *
 * The first two print the path of the file. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/pattern.h"
#include "store/event_writer.h"
#include "store/replay.h"

#define NOW ((time_t)1775621020)

static struct eformat_encoding encoding;
static struct built_fragment fragments[EVB_ROS_MAX];

static int die(const char *what, int error)
{
        fprintf(stderr, "event_tool: %s: %s\n", what, strerror(-error));
        return 1;
}

static struct event_writer *open_writer(const char *directory, const struct eformat *format, uint32_t run,
                                        bool has_seed)
{
        static char core[96];
        struct event_writer_settings settings = {
                .directory = directory,
                .core_name = event_writer_core_name(core, sizeof core, NOW, run, 0, "SFI-1"),
                .application = "SFI-1",
                .version = format->storage_version,
                .run = run,
                .stamped = true,
                .has_seed = has_seed,
                .seed = 5,
        };
        struct event_writer *writer = NULL;
        int r = event_writer_new(&writer, &settings, NOW);

        if (r < 0)
                exit(die(directory, r));
        return writer;
}

static int write_event(struct event_writer *w, const struct eformat *format, const struct built_event *event)
{
        struct eformat_settings settings = {.sfi_source_id = eformat_sfi_id(1),
                                            .checksum = EFORMAT_CHECKSUM_ADLER32};
        int r = format->encode(event, &settings, &encoding);

        return r < 0 ? r
                     : event_writer_write(w, encoding.iov, encoding.n_iov, encoding.size_bytes, encoding.sum,
                                          &encoding.info, NOW);
}

static int end_file(struct event_writer *w, int r)
{
        if (r == 0)
                r = event_writer_close(w, NOW);
        if (r == 0)
                puts(event_writer_path(w));
        event_writer_free(w);
        return r < 0 ? die("writing", r) : 0;
}

static void read_fragment(const struct replay *replay, uint64_t trigger, uint32_t l1_id, size_t source,
                          bool lost, uint8_t **room, struct built_fragment *ret)
{
        size_t event = (size_t)(trigger % replay_events(replay));
        struct replay_fragment f;

        replay_fragment(replay, event, source, &f);
        *ret = (struct built_fragment){
                .data = *room,
                .size_bytes = lost ? 0 : f.size_bytes,
                .source_id = replay_source_id(replay, source),
                .order = f.order,
                .form = FORM_ROS3,
                .status = lost ? FRAGMENT_LOST : (uint8_t)f.status,
        };
        *room += replay_copy(replay, event, source, l1_id, *room, f.size_bytes);
}

static bool is_listed(size_t source, char **list)
{
        for (; *list; list++)
                if (strtoul(*list, NULL, 10) == source)
                        return true;
        return false;
}

static int rebuild(const char *in, const char *directory, const struct eformat *format, uint64_t passes,
                   char **lost)
{
        struct event_writer *w;
        struct replay *replay;
        uint8_t *room;
        char text[ERROR_TEXT_MAX];
        struct error error = {};
        int r = 0;

        if (replay_open(&replay, in, &error) < 0) {
                fprintf(stderr, "event_tool: %s\n", error_format(&error, text));
                return 1;
        }
        w = open_writer(directory, format, replay_run(replay), false);
        room = malloc(replay_sources(replay) * EVB_FRAGMENT_MAX_BYTES);
        for (uint64_t t = 0; t < passes * replay_events(replay) && r == 0; t++) {
                struct built_event event = {.n_fragments = replay_sources(replay), .fragments = fragments};
                uint8_t *next = room;

                replay_pass_info(replay, t, &event.info);
                event.info.event = t;
                for (size_t s = event.n_fragments; s-- > 0;)
                        read_fragment(replay, t, event.info.l1_id, s, is_listed(s, lost), &next,
                                      &fragments[s]);
                r = write_event(w, format, &event);
        }
        free(room);
        replay_free(replay);
        return end_file(w, r);
}

static int pattern(const char *directory, const struct eformat *format, uint32_t sources, uint64_t events)
{
        struct event_writer *w = open_writer(directory, format, 12, true);
        static uint8_t bytes[EVB_ROS_MAX][1000];
        int r = 0;

        for (uint64_t n = 0; n < events && r == 0; n++) {
                struct built_event event = {
                        .info = {.event = n, .global_id = n, .l1_id = (uint32_t)n, .run = 12},
                        .n_fragments = sources,
                        .fragments = fragments};

                for (uint32_t s = 0; s < sources; s++) {
                        uint32_t size_bytes = (uint32_t)((n * 37 + s * 11) % sizeof bytes[s]);

                        pattern_fill(pattern_key(5, s, n), bytes[s], 0, size_bytes);
                        fragments[s] = (struct built_fragment){.data = bytes[s],
                                                               .size_bytes = size_bytes,
                                                               .source_id = eformat_source_id(s),
                                                               .order = (uint16_t)s};
                }
                r = write_event(w, format, &event);
        }
        return end_file(w, r);
}

/* NULL: unknown name. */
static const struct eformat *format_of(const char *name)
{
        return strcmp(name, eformat_3.name) == 0   ? &eformat_3
               : strcmp(name, eformat_5.name) == 0 ? &eformat_5
                                                   : NULL;
}

int main(int argc, char **argv)
{
        if (argc >= 6 && strcmp(argv[1], "rebuild") == 0 && format_of(argv[4]))
                return rebuild(argv[2], argv[3], format_of(argv[4]), strtoull(argv[5], NULL, 10), argv + 6);
        if (argc == 6 && strcmp(argv[1], "pattern") == 0 && format_of(argv[3]))
                return pattern(argv[2], format_of(argv[3]), (uint32_t)strtoul(argv[4], NULL, 10),
                               strtoull(argv[5], NULL, 10));
        if (argc == 4 && strcmp(argv[1], "repair") == 0) {
                struct event_file_repair repair;
                int r = event_file_repair(argv[2], argv[3], NOW, &repair);

                return r < 0 ? die(argv[2], r) : 0;
        }
        fputs("usage: event_tool rebuild|pattern|repair ...\n", stderr);
        return 2;
}
