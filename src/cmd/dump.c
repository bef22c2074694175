/* evb dump: what an event file holds, whether it is right, and one that a crash cut short made whole again.
 * It prints; reading and checking are the store's. */
#include "dump.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "evb/base/quantity.h"
#include "evb/base/util.h"
#include "evb/cmd/commands.h"

#define FAULTS_SHOWN 100u

json_t *dump_u64(uint64_t value)
{
        return value <= INT64_MAX ? json_integer((json_int_t)value) : json_sprintf("%" PRIu64, value);
}

static void put(json_t *object, const char *key, uint64_t value)
{
        json_object_set_new(object, key, dump_u64(value));
}

/* ---- Damage ---- */

static void add_fault(const struct dump *d, uint64_t event, const struct eformat_fault *fault)
{
        json_t *faults = json_object_get(d->json, "faults"), *o;

        if (!faults) {
                faults = json_array();
                json_object_set_new(d->json, "faults", faults);
        }
        if (json_array_size(faults) >= FAULTS_SHOWN)
                return;
        o = json_object();
        json_object_set_new(o, "event", event == UINT64_MAX ? json_null() : dump_u64(event));
        put(o, "offset_bytes", fault->offset_bytes);
        json_object_set_new(o, "reason", json_string(fault->reason));
        json_array_append_new(faults, o);
}

bool dump_damage(const struct dump *d, const struct eformat_fault *fault)
{
        fprintf(stderr, "%s: byte %zu: %s\n", d->path, fault->offset_bytes, fault->reason);
        if (d->json)
                add_fault(d, UINT64_MAX, fault);
        return false;
}

/* ---- Summary ---- */

struct tally {
        uint64_t events, bytes, partial;
        uint32_t first_l1, last_l1; /* lowest and highest */
        struct event_info info;
};

static int read_header(void *userdata, const struct eformat_fragment *f)
{
        eformat_event_info(f, userdata);
        return 1;
}

static void tally_add(struct tally *t, const struct event_record *record)
{
        struct event_info info = {0};

        t->bytes += record->size_bytes;
        if (eformat_walk(record->event, record->size_bytes, read_header, &info, NULL) == 1 &&
            eformat_word(record->event, 0) == EFORMAT_EVENT) {
                t->partial += (info.status & EFORMAT_EVENT_PARTIAL) != 0;
                t->first_l1 = t->events == 0 ? info.l1_id : MIN(t->first_l1, info.l1_id);
                t->last_l1 = t->events == 0 ? info.l1_id : MAX(t->last_l1, info.l1_id);
        }
        t->events++;
}

static char *date_text(char *text, size_t size_bytes, uint32_t date, uint32_t time)
{
        snprintf(text, size_bytes, "%04u-%02u-%02u %02u:%02u:%02u", date % 10000, date / 10000 % 100,
                 date / 1000000, time / 10000, time / 100 % 100, time % 100);
        return text;
}

static void summary_json(const struct dump *d, const struct tally *t, const struct event_file_end *end,
                         size_t size_bytes)
{
        const struct event_file_front *front = event_file_front(d->file);
        char date[32];

        put(d->json, "version", front->version);
        put(d->json, "run", front->run);
        put(d->json, "file_number", front->file_number);
        json_object_set_new(d->json, "application", json_string(front->application));
        json_object_set_new(d->json, "core_name", json_string(front->core_name));
        json_object_set_new(d->json, "seed", front->has_seed ? dump_u64(front->seed) : json_null());
        json_object_set_new(d->json, "begun",
                            json_string(date_text(date, sizeof date, front->date, front->time)));
        json_object_set_new(d->json, "ended",
                            end ? json_string(date_text(date, sizeof date, end->date, end->time))
                                : json_null());
        json_object_set_new(d->json, "last_file", end ? json_boolean(end->status == 1) : json_null());
        put(d->json, "size_bytes", size_bytes);
        put(d->json, "events", t->events);
        put(d->json, "event_bytes", t->bytes);
        put(d->json, "partial_events", t->partial);
        json_object_set_new(d->json, "first_l1_id", t->events ? json_integer(t->first_l1) : json_null());
        json_object_set_new(d->json, "last_l1_id", t->events ? json_integer(t->last_l1) : json_null());
}

static void summary_text(const struct dump *d, const struct tally *t, const struct event_file_end *end,
                         size_t size_bytes)
{
        const struct event_file_front *front = event_file_front(d->file);
        char date[32], bytes[QUANTITY_TEXT_MAX];

        printf("%s: EventStorage version %u, %s\n", d->path, front->version,
               quantity_format_bytes(size_bytes, bytes));
        printf("  run %u, file %u, by %s, core name %s\n", front->run, front->file_number, front->application,
               front->core_name);
        printf("  begun %s\n", date_text(date, sizeof date, front->date, front->time));
        if (end)
                printf("  ended %s%s\n", date_text(date, sizeof date, end->date, end->time),
                       end->status == 1 ? ", last file of the run" : "");
        if (front->has_seed)
                printf("  pattern seed %" PRIu64 "\n", front->seed);
        printf("  %" PRIu64 " events of %s, %" PRIu64 " partial\n", t->events,
               quantity_format_bytes(t->bytes, bytes), t->partial);
        if (t->events > 0)
                printf("  L1 ids %u to %u\n", t->first_l1, t->last_l1);
}

bool dump_summary(const struct dump *d)
{
        struct eformat_fault fault;
        struct event_record record;
        struct event_file_end end;
        struct tally tally = {0};
        size_t position = 0, size_bytes;
        int r;

        event_file_bytes(d->file, &size_bytes);
        while ((r = event_file_next(d->file, &position, &record, &fault)) == 1)
                tally_add(&tally, &record);
        if (r == 0)
                r = event_file_read_end(d->file, position, &end, &fault);
        (d->json ? summary_json : summary_text)(d, &tally, r == 0 ? &end : NULL, size_bytes);
        return r == 0 ? true : d->verify ? false : dump_damage(d, &fault);
}

/* ---- Verify ---- */

struct verify_told {
        const struct dump *d;
        uint64_t n;
};

static void on_fault(void *userdata, uint64_t event, const struct eformat_fault *fault)
{
        struct verify_told *told = userdata;

        if (told->d->json)
                add_fault(told->d, event, fault);
        if (told->n++ >= FAULTS_SHOWN)
                return;
        if (event == UINT64_MAX)
                fprintf(stderr, "%s: byte %zu: %s\n", told->d->path, fault->offset_bytes, fault->reason);
        else
                fprintf(stderr, "%s: event %" PRIu64 ", byte %zu: %s\n", told->d->path, event,
                        fault->offset_bytes, fault->reason);
}

static void verify_json(json_t *json, const struct verify_report *v)
{
        json_t *o = json_object();

        json_object_set_new(o, "right", json_boolean(v->n_faults == 0));
        put(o, "faults", v->n_faults);
        put(o, "ros", v->ros);
        put(o, "robs", v->robs);
        put(o, "dummies", v->dummies);
        put(o, "truncated", v->truncated);
        put(o, "partial_events", v->partial_events);
        put(o, "duplicate_events", v->duplicate_events);
        put(o, "l1_mismatches", v->l1_mismatches);
        put(o, "checksums", v->sums);
        put(o, "checksums_wrong", v->sums_wrong);
        put(o, "checksums_unknown", v->sums_unknown);
        json_object_set_new(o, "pattern_fragments",
                            v->has_seed ? dump_u64(v->pattern_fragments) : json_null());
        json_object_set_new(o, "pattern_bytes", v->has_seed ? dump_u64(v->pattern_bytes) : json_null());
        json_object_set_new(o, "pattern_wrong", v->has_seed ? dump_u64(v->pattern_wrong) : json_null());
        json_object_set_new(o, "ended", json_boolean(v->ended));
        json_object_set_new(json, "verify", o);
}

static void verify_text(const struct verify_report *v)
{
        printf("  %" PRIu64 " ROS and %" PRIu64 " ROB fragments, %" PRIu64 " of them dummies, %" PRIu64
               " truncated\n",
               v->ros, v->robs, v->dummies, v->truncated);
        printf("  %" PRIu64 " fragments with another L1 id than their event, %" PRIu64
               " events more than once\n",
               v->l1_mismatches, v->duplicate_events);
        printf("  checksums: %" PRIu64 ", wrong %" PRIu64 ", of unknown kind %" PRIu64 "\n", v->sums,
               v->sums_wrong, v->sums_unknown);
        if (v->has_seed)
                printf("  pattern: %" PRIu64 " fragments of %" PRIu64
                       " bytes checked byte by byte, wrong %" PRIu64 "\n",
                       v->pattern_fragments, v->pattern_bytes, v->pattern_wrong);
        else
                printf("  pattern: not checked, the file has no seed (--seed gives one)\n");
        if (v->n_faults == 0)
                printf("  everything is as it should be\n");
        else
                printf("  %" PRIu64 " faults\n", v->n_faults);
}

bool dump_verify(const struct dump *d)
{
        struct verify_told told = {.d = d};
        struct verify_report report;
        int r = event_file_verify(d->file, d->seed, on_fault, &told, &report);

        if (r < 0) {
                fprintf(stderr, "%s: %s\n", d->path, strerror(-r));
                return false;
        }
        if (d->json)
                verify_json(d->json, &report);
        else
                verify_text(&report);
        return report.n_faults == 0;
}

/* ---- Repair ---- */

static void repair_tell(const char *path, const char *output, const struct event_file_repair *repair,
                        json_t *json)
{
        if (json) {
                json_t *o = json_object();

                put(o, "events", repair->events);
                put(o, "cut_bytes", repair->cut_bytes);
                json_object_set_new(o, "was_whole", json_boolean(repair->was_whole));
                json_object_set_new(o, "output", json_string(output ? output : path));
                json_object_set_new(json, "repair", o);
        } else if (repair->was_whole) {
                printf("%s: whole, %" PRIu64 " events; nothing to repair\n", path, repair->events);
        } else {
                printf("%s: byte %zu: %s\n", path, repair->fault.offset_bytes, repair->fault.reason);
                printf("%s: %" PRIu64 " whole events kept, %" PRIu64 " bytes cut off\n",
                       output ? output : path, repair->events, repair->cut_bytes);
        }
}

/* The end record bears the time of the last write, not that of the repair. */
static int dump_repair(const char *path, const char *output, json_t *json)
{
        struct event_file_repair repair = {};
        struct stat st;
        int r = stat(path, &st) < 0 ? -errno : event_file_repair(path, output, st.st_mtime, &repair);

        if (r == -EBADMSG)
                fprintf(stderr, "%s: byte %zu: %s\n", path, repair.fault.offset_bytes, repair.fault.reason);
        else if (r == -EBUSY && repair.holder > 0)
                fprintf(stderr, "%s: process %d is writing this file; repair it after its end\n", path,
                        (int)repair.holder);
        else if (r == -EBUSY)
                fprintf(stderr, "%s: another process is writing this file; repair it after its end\n", path);
        else if (r < 0)
                fprintf(stderr, "%s: %s\n", r == -EEXIST && output ? output : path, strerror(-r));
        if (r < 0)
                return r == -EBADMSG || r == -EBUSY ? 1 : 2;
        repair_tell(path, output, &repair, json);
        return 0;
}

/* ---- Command ---- */

struct dump_options {
        const char *tree, *event, *hex, *verify, *seed, *repair, *output;
};

static int dump_file(const struct dump_options *own, const char *path, json_t *json)
{
        struct dump d = {.path = path, .hex = own->hex, .verify = own->verify, .json = json};
        struct eformat_fault fault;
        struct event_file *file;
        uint64_t only = DUMP_ALL, seed;
        bool right;
        int r;

        if (own->event && quantity_parse_count(own->event, &only) < 0) {
                fprintf(stderr,
                        "evb dump: --event %s: not a number, allowed: the index of an event, from 0\n",
                        own->event);
                return 2;
        }
        if (own->seed && quantity_parse_count(own->seed, &seed) < 0) {
                fprintf(stderr, "evb dump: --seed %s: not a number\n", own->seed);
                return 2;
        }
        d.seed = own->seed ? &seed : NULL;
        r = event_file_open(&file, path, &fault);
        if (r < 0) {
                if (r == -EBADMSG)
                        fprintf(stderr, "%s: byte %zu: %s\n", path, fault.offset_bytes, fault.reason);
                else
                        fprintf(stderr, "%s: %s\n", path, strerror(-r));
                return 2;
        }
        d.file = file;
        right = dump_summary(&d);
        if (own->tree || own->event || own->hex)
                right &= dump_events(&d, only);
        if (own->verify)
                right &= dump_verify(&d);
        event_file_free(file);
        return right ? 0 : 1;
}

static int write_json(const struct options *o, json_t *json)
{
        FILE *to = options_open_json(o);
        bool failed;

        if (!to)
                return 2;
        failed = json_dumpf(json, to, JSON_INDENT(1)) < 0;
        fputc('\n', to);
        failed |= fflush(to) != 0 || ferror(to);
        if (to != stdout)
                failed |= fclose(to) != 0;
        if (failed)
                fprintf(stderr, "evb dump: --json: %s\n", strerror(errno));
        return failed ? 1 : 0;
}

/* -o is the usual short form of --output. */
static void lengthen(int argc, char **argv)
{
        static char output[] = "--output";

        for (int i = 1; i < argc; i++)
                if (strcmp(argv[i], "-o") == 0)
                        argv[i] = output;
}

int cmd_dump(int argc, char **argv)
{
        static const struct command command = {"dump", cmd_dump, "FILE",
                                               "Print, verify and repair an event file."};
        struct dump_options own = {0};
        const struct option_entry entries[] = {
                {"tree", NULL, "show every fragment of every event", &own.tree},
                {"event", "N", "show the fragments of one event, counted from 0", &own.event},
                {"hex", NULL, "with the words of the events shown", &own.hex},
                {"verify", NULL, "check structure, checksums, counters and pattern bytes", &own.verify},
                {"seed", "N", "the run's seed, where the file does not tell it", &own.seed},
                {"repair", NULL, "cut the file behind its last whole event and end it rightly", &own.repair},
                {"output", "FILE", "(-o) leave the file alone and write the repaired one here", &own.output},
        };
        struct options o;
        json_t *json;
        int r, w = 0;

        lengthen(argc, argv);
        r = options_parse(&o, &command, entries, ARRAY_SIZE(entries), 1, argc, argv);
        if (r != OPTIONS_GO_ON)
                return r;
        if (own.output && !own.repair) {
                fprintf(stderr, "evb dump: --output: only with --repair\n");
                return 2;
        }
        json = o.json ? json_object() : NULL;
        if (json)
                json_object_set_new(json, "file", json_string(o.words[0]));
        r = own.repair ? dump_repair(o.words[0], own.output, json) : 0;
        if (r == 0 && !(own.repair && !own.verify))
                r = dump_file(&own, own.output ? own.output : o.words[0], json);
        if (json && r != 2)
                w = write_json(&o, json);
        json_decref(json);
        return r ? r : w;
}
