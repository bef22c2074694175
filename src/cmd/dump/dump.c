/* evb dump: prints, verifies and repairs event files. The store layer reads and checks it. */
#include "dump.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
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

static bool ends_with(const char *path, const char *end)
{
        size_t n = strlen(path), n_end = strlen(end);

        return n > n_end && strcmp(path + n - n_end, end) == 0;
}

static int dump_index(const char *path, json_t *json)
{
        struct eformat_fault fault;
        uint64_t events = 0;
        bool at_index;
        int r = ends_with(path, ".writing") ? -EBUSY
                                            : event_file_write_index(path, &events, &fault, &at_index);

        if (r == -EBADMSG)
                fprintf(stderr, "%s: byte %zu: %s; a damaged file has no index\n", path, fault.offset_bytes,
                        fault.reason);
        else if (r == -EBUSY)
                fprintf(stderr, "%s: not complete: a run writes it, or was killed (--repair completes it)\n",
                        path);
        else if (r < 0)
                fprintf(stderr, "%s%s: %s\n", path, at_index ? EVENT_FILE_INDEX : "", strerror(-r));
        else if (json)
                dump_put(json, "indexed_events", events);
        else
                printf("%s" EVENT_FILE_INDEX ": %" PRIu64 " events\n", path, events);
        return r == 0 ? 0 : dump_is_wrong(r) ? 2 : 1;
}

struct dump_options {
        const char *tree, *event, *hex, *verify, *seed, *repair, *output, *index;
        uint64_t only, seed_value;
};

/* One call of the program. */
struct job {
        const struct dump_options *own;
        const struct options *o;
        FILE *lines;      /* the open file for --json, if it gets an object for each event or file */
        json_t *compared; /* files of a folder that were compared with their record; or NULL */
        uint64_t files, faulty, records, incomplete;
};

/* False: it cannot be opened, which is logged. */
static bool open_lines(struct job *j)
{
        if (j->o->json && !j->lines)
                j->lines = options_open_json(j->o);
        return !j->o->json || j->lines;
}

static void write_line(const struct job *j, const json_t *json)
{
        json_dumpf(json, j->lines, JSON_COMPACT);
        fputc('\n', j->lines);
}

static int open_file(const char *path, struct event_file **ret)
{
        struct eformat_fault fault;
        int r = event_file_open(ret, path, &fault);

        if (r == -EBADMSG)
                fprintf(stderr, "%s: byte %zu: %s\n", path, fault.offset_bytes, fault.reason);
        else if (r == -EISDIR)
                fprintf(stderr,
                        "%s: is a directory; expected an event file, such as %s/NAME.data, or --verify\n",
                        path, path);
        else if (r < 0)
                fprintf(stderr, "%s: %s\n", path, strerror(-r));
        return r;
}

static int dump_file(struct job *j, const char *path, json_t *json)
{
        const struct dump_options *own = j->own;
        struct dump d = {.path = path, .hex = own->hex, .verify = own->verify, .json = json};
        bool right, shows_events = own->tree || own->event || own->hex;
        struct event_file *file;

        d.seed = own->seed ? &own->seed_value : NULL;
        if (open_file(path, &file) < 0)
                return 2;
        d.file = file;
        if (json && shows_events && !open_lines(j)) {
                event_file_free(file);
                return 2;
        }
        d.lines = shows_events ? j->lines : NULL;
        d.compared = j->compared;
        right = dump_summary(&d);
        if (shows_events)
                right &= dump_events(&d, own->only);
        if (own->verify)
                right &= dump_verify(&d);
        event_file_free(file);
        return right ? 0 : 1;
}

/* A file, or with --verify the record of a run. */
static int dump_word(struct job *j, const char *path, json_t *json)
{
        const struct dump_options *own = j->own;
        bool lost = false;
        int r = 0;

        if (json)
                json_object_set_new(json, "file", json_string(path));
        if (own->index)
                return dump_index(path, json);
        if (own->repair)
                r = dump_repair(path, own->output, json, &lost);
        else if (own->verify && ends_with(path, ".json"))
                return dump_verify_record(path, j->compared, json);
        if (r == 0 && (!own->repair || own->verify))
                r = dump_file(j, own->output ? own->output : path, json);
        return r == 0 && lost ? 1 : r;
}

/* ---- Several files ---- */

/* Returns the exit status of all so far. */
static int add_status(int status, int r)
{
        return MAX(status, r);
}

static void count(uint64_t *all, uint64_t *wrong, int r)
{
        ++*all;
        *wrong += r != 0;
}

static int dump_one_of_many(struct job *j, const char *path, bool in_folder)
{
        json_auto_t *json = j->o->json ? json_object() : NULL;
        int r = dump_word(j, path, json);

        if (j->own->verify && ends_with(path, ".json"))
                count(&j->records, &j->incomplete, r);
        else
                count(&j->files, &j->faulty, r);
        if (json)
                write_line(j, json);
        /* A damaged file is no error of the command line that names its folder. */
        return in_folder && r != 0 ? 1 : r;
}

static int is_of_run(const struct dirent *entry)
{
        const char *name = entry->d_name;

        /* A record that is being written has no name yet. */
        return ends_with(name, ".data") ||
               (ends_with(name, ".writing") && !ends_with(name, ".json.writing")) ||
               (ends_with(name, ".json") && strstr(name, ".run.") && !ends_with(name, ".begun.json"));
}

/* Records come last: what they list is compared then. */
static int by_kind(const struct dirent **a, const struct dirent **b)
{
        bool first = ends_with((*a)->d_name, ".json"), second = ends_with((*b)->d_name, ".json");

        return first != second ? first - second : alphasort(a, b);
}

static int dump_found(struct job *j, const char *folder, const char *name)
{
        _cleanup_free_ char *path = NULL;

        if (asprintf(&path, "%s%s%s", folder, ends_with(folder, "/") ? "" : "/", name) < 0)
                return 2;
        if (!ends_with(name, ".writing"))
                return dump_one_of_many(j, path, true);
        fprintf(stderr, "%s: not complete: a run writes it, or was killed (--repair completes it)\n", path);
        count(&j->files, &j->faulty, 1);
        return 1;
}

static int dump_folder(struct job *j, const char *folder)
{
        struct dirent **entries;
        int n = scandir(folder, &entries, is_of_run, by_kind), status = n > 0 ? 0 : 2;

        if (n < 0) {
                fprintf(stderr, "%s: %s\n", folder, strerror(errno));
                return 2;
        }
        if (n == 0)
                fprintf(stderr, "%s: has no event file and no record of a run\n", folder);
        j->compared = json_object();
        for (int i = 0; i < n; i++) {
                status = add_status(status, dump_found(j, folder, entries[i]->d_name));
                free(entries[i]);
        }
        json_decref(j->compared);
        j->compared = NULL;
        free(entries);
        return status;
}

static void print_sum(const struct job *j)
{
        json_auto_t *json = NULL;

        if (!j->o->json) {
                printf("%" PRIu64 " file%s, %" PRIu64 " with faults; %" PRIu64 " record%s, %" PRIu64
                       " with missing or different files\n",
                       j->files, j->files == 1 ? "" : "s", j->faulty, j->records, j->records == 1 ? "" : "s",
                       j->incomplete);
                return;
        }
        json = json_object();
        dump_put(json, "files", j->files);
        dump_put(json, "files_with_faults", j->faulty);
        dump_put(json, "records", j->records);
        dump_put(json, "records_with_faults", j->incomplete);
        write_line(j, json);
}

static bool is_folder(const char *path)
{
        struct stat st;

        return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

/* Whether the SFI writes such a file beside event files, and this call has no use for it. */
static bool is_beside_files(const struct job *j, const char *path)
{
        const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;

        return ends_with(name, EVENT_FILE_INDEX) || ends_with(name, ".begun.json") ||
               ends_with(name, ".json.writing") ||
               (ends_with(name, ".json") && strstr(name, ".run.") && !j->own->verify);
}

/* A shell's pattern for all files of a folder names these, too. */
static bool is_beside_others(const struct job *j, const char *path)
{
        bool has_others = false;

        for (size_t i = 0; i < j->o->n_words; i++)
                has_others |= !is_beside_files(j, j->o->words[i]);
        return has_others && is_beside_files(j, path);
}

static int dump_many(struct job *j)
{
        int status = 0;

        if (!open_lines(j))
                return 2;
        for (size_t i = 0; i < j->o->n_words; i++) {
                const char *path = j->o->words[i];

                if (is_beside_others(j, path))
                        continue;
                status = add_status(status, j->own->verify && is_folder(path)
                                                    ? dump_folder(j, path)
                                                    : dump_one_of_many(j, path, false));
        }
        if (j->own->verify)
                print_sum(j);
        return options_close_json(j->o, j->lines, status);
}

static int dump_single(struct job *j)
{
        json_t *json = j->o->json ? json_object() : NULL;
        int r = dump_word(j, j->o->words[0], json);

        if (j->lines) {
                write_line(j, json);
                r = options_close_json(j->o, j->lines, r);
        } else if (json && r != 2)
                return options_write_json(j->o, json, r);
        json_decref(json);
        return r;
}

/* ---- The command line ---- */

/* -o is short for --output. */
static void expand_short_options(int argc, char **argv)
{
        static char output[] = "--output";

        for (int i = 1; i < argc; i++)
                if (strcmp(argv[i], "-o") == 0)
                        argv[i] = output;
}

static bool read_values(struct dump_options *own, const struct options *o)
{
        const char *wrong = NULL;

        if (own->output && !own->repair)
                wrong = "option --output requires --repair";
        else if (own->repair && o->n_words > 1)
                wrong = "option --repair requires a single file";
        else if (own->index && (own->tree || own->event || own->hex || own->verify || own->repair))
                wrong = "option --index excludes --tree, --event, --hex, --verify and --repair";
        else
                return true;
        if (wrong)
                fprintf(stderr, "evb dump: %s\n", wrong);
        return false;
}

int cmd_dump(int argc, char **argv)
{
        static const struct command command = {"dump", cmd_dump, "FILE...",
                                               "Print, verify and repair event files.", OPTION_JSON};
        struct dump_options own = {.only = DUMP_ALL};
        const struct option_entry entries[] = {
                {"tree", NULL, "print all fragments of all events", &own.tree},
                {"event", "N", "print the fragments of event N (the first is 0)", &own.event,
                 OPTION_NUMBER(quantity_parse_count, &own.only, 0, UINT64_MAX,
                               "the index of an event, from 0")},
                {"hex", NULL, "also print the words of these events", &own.hex},
                {"verify", NULL, "check structure, checksums, counters and pattern bytes", &own.verify},
                {"seed", "N", "seed of the run, if the file does not contain it", &own.seed,
                 OPTION_NUMBER(quantity_parse_count, &own.seed_value, 0, UINT64_MAX, "the seed of the run")},
                {"repair", NULL, "remove what is no complete event, and write the end record", &own.repair},
                {"output", "FILE", "with --repair: write the result to FILE, and keep the original; also -o",
                 &own.output},
                {"index", NULL, "write FILE.index, with which Python opens FILE without reading all of it",
                 &own.index},
        };
        struct options o;
        struct job job = {.own = &own, .o = &o};
        int r;

        expand_short_options(argc, argv);
        r = options_parse(&o, &command, entries, ARRAY_SIZE(entries), OPTIONS_FILES, argc, argv);
        if (r != OPTIONS_GO_ON)
                return r;
        if (!read_values(&own, &o))
                return 2;
        return o.n_words > 1 || (own.verify && !own.repair && is_folder(o.words[0])) ? dump_many(&job)
                                                                                     : dump_single(&job);
}
