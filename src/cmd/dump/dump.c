/* evb dump: prints, verifies and repairs an event file. The store layer reads and checks it. */
#include "dump.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/quantity.h"
#include "base/util.h"
#include "cmd/commands.h"

static void print_repair(const char *path, const char *output, const struct event_file_repair *repair,
                         json_t *json)
{
        if (json) {
                json_t *o = json_object();

                dump_put(o, "events", repair->events);
                dump_put(o, "cut_bytes", repair->cut_bytes);
                dump_put(o, "gaps", repair->gaps);
                dump_put(o, "missing", repair->missing);
                json_object_set_new(o, "wrong_records", json_boolean(repair->wrong_records));
                json_object_set_new(o, "was_whole", json_boolean(repair->was_whole));
                json_object_set_new(o, "output", json_string(output ? output : path));
                json_object_set_new(json, "repair", o);
        } else if (repair->was_whole) {
                printf("%s: complete with %" PRIu64 " events; nothing to repair\n", path, repair->events);
        } else {
                printf("%s: byte %zu: %s\n", path, repair->fault.offset_bytes, repair->fault.reason);
                printf("%s: %" PRIu64 " complete events kept, %" PRIu64 " bytes removed\n",
                       output ? output : path, repair->events, repair->cut_bytes);
                if (repair->gaps > 0)
                        printf("%s: %" PRIu64
                               " of these events are behind damaged ones, which are lost: the file has "
                               "%" PRIu64 " damaged place%s between events\n",
                               output ? output : path, repair->behind, repair->gaps,
                               repair->gaps == 1 ? "" : "s");
                if (repair->wrong_records)
                        printf("%s: run number, metadata, block numbers or times may be wrong: they do not "
                               "match "
                               "the check that the file had; the new check covers them as they are\n",
                               output ? output : path);
                if (repair->missing > 0)
                        printf("%s: %" PRIu64 " events are lost: the end record counted %" PRIu64 "\n",
                               output ? output : path, repair->missing, repair->events + repair->missing);
        }
}

/* Whether the error can be avoided by a different command line, because it is neither damage nor a busy file
 * or full disk. */
static bool dump_is_wrong(int r)
{
        return r != -EBADMSG && r != -EBUSY && r != -ENOSPC && r != -EDQUOT && r != -EFBIG && r != -EIO;
}

static void print_refusal(const char *path, const char *output, const struct event_file_repair *repair)
{
        fprintf(stderr, "%s: byte %zu: %s\n", path, repair->fault.offset_bytes, repair->fault.reason);
        if (repair->behind > 0)
                fprintf(stderr,
                        "%s: %" PRIu64 " whole events are behind this byte, so nothing was changed%s\n", path,
                        repair->behind, output || repair->other_file > 0 ? "" : "; --output FILE keeps them");
        if (repair->other_file > 0)
                fprintf(stderr, "%s: byte %zu: another file begins; split them at this byte\n", path,
                        repair->other_file);
}

/* The end record gets the time of the last write, not the time of the repair. */
static int dump_repair(const char *path, const char *output, json_t *json, bool *ret_lost)
{
        struct event_file_repair repair = {};
        struct stat st;
        int r = stat(path, &st) < 0 ? -errno : event_file_repair(path, output, st.st_mtime, &repair);

        if (r == -EBADMSG)
                print_refusal(path, output, &repair);
        else if (r == -EBUSY && repair.holder > 0)
                fprintf(stderr, "%s: process %d is writing this file; repair it after that process ends\n",
                        path, (int)repair.holder);
        else if (r == -EBUSY)
                fprintf(stderr,
                        "%s: another process is writing this file; repair it after that process ends\n",
                        path);
        else if (r < 0)
                fprintf(stderr, "%s: %s\n", repair.at_output ? output : path, strerror(-r));
        if (r < 0)
                return dump_is_wrong(r) ? 2 : 1;
        print_repair(path, output, &repair, json);
        *ret_lost = repair.gaps > 0 || repair.missing > 0 || repair.wrong_records;
        return 0;
}

static bool is_record(const char *path)
{
        size_t n = strlen(path);

        return n > 5 && strcmp(path + n - 5, ".json") == 0;
}

struct dump_options {
        const char *tree, *event, *hex, *verify, *seed, *repair, *output;
};

/* *lines: the open file for --json, if events were written to it. */
static int dump_file(const struct dump_options *own, const struct options *o, const char *path, json_t *json,
                     FILE **lines)
{
        struct dump d = {.path = path, .hex = own->hex, .verify = own->verify, .json = json};
        struct eformat_fault fault;
        struct event_file *file;
        uint64_t only = DUMP_ALL, seed;
        bool right, shows_events = own->tree || own->event || own->hex;
        int r;

        if (own->event && quantity_parse_count(own->event, &only) < 0) {
                fprintf(stderr,
                        "evb dump: --event: \"%s\" is not a number; expected the index of an event, from 0\n",
                        own->event);
                return 2;
        }
        if (own->seed && quantity_parse_count(own->seed, &seed) < 0) {
                fprintf(stderr, "evb dump: --seed: \"%s\" is not a number; expected the seed of the run\n",
                        own->seed);
                return 2;
        }
        d.seed = own->seed ? &seed : NULL;
        r = event_file_open(&file, path, &fault);
        if (r < 0) {
                if (r == -EBADMSG)
                        fprintf(stderr, "%s: byte %zu: %s\n", path, fault.offset_bytes, fault.reason);
                else if (r == -EISDIR)
                        fprintf(stderr, "%s: is a directory; expected an event file, such as %s/NAME.data\n",
                                path, path);
                else
                        fprintf(stderr, "%s: %s\n", path, strerror(-r));
                return 2;
        }
        d.file = file;
        if (json && shows_events)
                *lines = d.lines = options_open_json(o);
        if (json && shows_events && !d.lines) {
                event_file_free(file);
                return 2;
        }
        right = dump_summary(&d);
        if (shows_events)
                right &= dump_events(&d, only);
        if (own->verify)
                right &= dump_verify(&d);
        event_file_free(file);
        return right ? 0 : 1;
}

/* -o is short for --output. */
static void expand_short_options(int argc, char **argv)
{
        static char output[] = "--output";

        for (int i = 1; i < argc; i++)
                if (strcmp(argv[i], "-o") == 0)
                        argv[i] = output;
}

int cmd_dump(int argc, char **argv)
{
        static const struct command command = {"dump", cmd_dump, "FILE",
                                               "Print, verify and repair an event file.", OPTION_JSON};
        struct dump_options own = {0};
        const struct option_entry entries[] = {
                {"tree", NULL, "print all fragments of all events", &own.tree},
                {"event", "N", "print the fragments of event N (the first is 0)", &own.event},
                {"hex", NULL, "also print the words of these events", &own.hex},
                {"verify", NULL, "check structure, checksums, counters and pattern bytes", &own.verify},
                {"seed", "N", "seed of the run, if the file does not contain it", &own.seed},
                {"repair", NULL, "remove what is no complete event, and write the end record", &own.repair},
                {"output", "FILE", "with --repair: write the result to FILE, and keep the original; also -o",
                 &own.output},
        };
        struct options o;
        FILE *lines = NULL;
        bool lost = false, record;
        json_t *json;
        int r;

        expand_short_options(argc, argv);
        r = options_parse(&o, &command, entries, ARRAY_SIZE(entries), 1, argc, argv);
        if (r != OPTIONS_GO_ON)
                return r;
        if (own.output && !own.repair) {
                fprintf(stderr, "evb dump: option --output requires --repair\n");
                return 2;
        }
        json = o.json ? json_object() : NULL;
        if (json)
                json_object_set_new(json, "file", json_string(o.words[0]));
        record = own.verify && !own.repair && is_record(o.words[0]);
        if (record)
                r = dump_verify_record(o.words[0], json);
        else
                r = own.repair ? dump_repair(o.words[0], own.output, json, &lost) : 0;
        if (r == 0 && !record && !(own.repair && !own.verify))
                r = dump_file(&own, &o, own.output ? own.output : o.words[0], json, &lines);
        r = r == 0 && lost ? 1 : r;
        if (lines) {
                json_dumpf(json, lines, JSON_COMPACT);
                fputc('\n', lines);
                r = options_close_json(&o, lines, r);
        } else if (json && r != 2)
                return options_write_json(&o, json, r);
        json_decref(json);
        return r;
}
