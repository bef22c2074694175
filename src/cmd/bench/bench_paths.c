/* evb bench paths: measures the ways from a file to a socket on this machine (stream/paths.h), one after
 * another. */
#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/json.h"
#include "base/log.h"
#include "base/quantity.h"
#include "base/strbuf.h"
#include "base/util.h"
#include "bench.h"
#include "stream/paths.h"
#include "sys/loop.h"
#include "sys/thread.h"

#define GB 1e9

static void set(json_t *o, const char *name, double v, bool known)
{
        json_object_set_new(o, name, json_figure(known ? v : NAN));
}

static void describe_path(json_t *o, const struct path_run *run)
{
        const struct path *p = run->path;
        bool emptied = run->source == PATH_DISK && p->reads == PATH_EMPTIED;

        json_object_set_new(o, "row", json_string(p->row));
        json_object_set_new(o, "form", json_string(p->form));
        json_object_set_new(o, "title", json_string(p->title));
        json_object_set_new(o, "wire", json_string(path_wire_name(run->wire)));
        json_object_set_new(o, "source", json_string(path_source_name(run->source)));
        json_object_set_new(o, "reads",
                            json_string(run->source == PATH_CACHE ? "page cache"
                                        : emptied                 ? "emptied page cache"
                                                                  : "O_DIRECT"));
        json_object_set_new(
                o, "published",
                json_pack("{s:s, s:s}", "copies", p->published_copies, "calls", p->published_calls));
        json_object_set_new(o, "copies", json_real(p->copies[run->source][run->wire]));
        json_object_set_new(o, "copies_reason", json_string(p->reason));
}

/* Returns the number of calls per packet, by the name of the call. */
static json_t *describe_calls(const struct path_result *r)
{
        json_t *o = json_object();

        for (size_t i = 0; i < PATH_CALLS_NAMED && r->by_call[i].n > 0; i++) {
                const char *name = path_call_name(r->by_call[i].number);
                char number[32];

                snprintf(number, sizeof number, "call %d", r->by_call[i].number);
                json_object_set_new(o, name ?: number,
                                    json_real((double)r->by_call[i].n / (double)r->counted_packets));
        }
        return o;
}

static void describe_check(json_t *o, const struct path_result *r)
{
        bool known = !r->refused, counted = known && r->counted && r->counted_packets > 0;

        json_object_set_new(o, "checked_bytes",
                            known ? json_integer((json_int_t)r->checked_bytes) : json_null());
        set(o, "corrupt", !r->intact, known);
        set(o, "calls_per_packet", (double)r->calls / (double)r->counted_packets, counted);
        json_object_set_new(o, "calls", counted ? describe_calls(r) : json_null());
        json_object_set_new(o, "calls_refused",
                            known && r->not_counted < 0 ? json_string(strerror(-r->not_counted))
                                                        : json_null());
}

static void describe_result(json_t *o, const struct path_run *run, const struct path_result *r)
{
        double gb = (double)r->bytes / GB, wire = (double)(r->bytes + r->packets * r->header_bytes);
        bool known = !r->refused && r->bytes > 0 && r->seconds > 0;

        json_object_set_new(o, "header_bytes", json_integer((json_int_t)r->header_bytes));
        set(o, "seconds", r->seconds, known);
        set(o, "bytes", (double)r->bytes, known);
        set(o, "packets", (double)r->packets, known);
        set(o, "throughput_bytes_per_second", (double)r->bytes / r->seconds, known);
        set(o, "mbyte_per_s", (double)r->bytes / r->seconds / 1e6, known);
        set(o, "user_seconds_per_gb", r->user_seconds / gb, known);
        set(o, "system_seconds_per_gb", r->system_seconds / gb, known);
        set(o, "processor_seconds_per_gb", (r->user_seconds + r->system_seconds) / gb, known);
        set(o, "received_share", fmin((double)r->received_bytes / wire, 1), known && run->wire != PATH_SINK);
        set(o, "zero_copy_copied_share", (double)r->copied / (double)r->notified, known && r->notified > 0);
        set(o, "cached_share", r->cached_share, known);
}

/* Runs a path and returns its figures, or NULL after logging the error:
 *   row, form, title, wire, source, reads, header_bytes, published: as in struct path
 *   copies, copies_reason: copies of the payload by the sender; stated, not measured
 *   throughput_bytes_per_second, mbyte_per_s: payload sent; received_share: share that arrived
 *   user_seconds_per_gb, system_seconds_per_gb, processor_seconds_per_gb: of the sender
 *   calls_per_packet, calls: system calls of the sender, counted during the check; calls_refused: why not
 *   zero_copy_copied_share: share of notifications that report a copy by the kernel; null: none
 *   checked_bytes, corrupt: bytes compared at the receiver; 1 if one of them was wrong or missing
 *   refused: the call that the kernel refused, and why, or null; then all figures are null */
static json_t *bench_path_figures(const struct path_run *run, const struct path_file *file,
                                  struct machine_watch *watch)
{
        struct path_result result;
        struct error e = {};
        char text[ERROR_TEXT_MAX];
        json_t *o;

        if (path_run(run, file, watch, &result, &e) < 0) {
                if (e.code != -EINTR)
                        log_error("data path %s %s, %s, %s: %s", run->path->row, run->path->form,
                                  path_wire_name(run->wire), path_source_name(run->source),
                                  error_format(&e, text));
                return NULL;
        }
        o = json_object();
        describe_path(o, run);
        describe_result(o, run, &result);
        describe_check(o, &result);
        snprintf(text, sizeof text, "%s: %s", result.refused ?: "",
                 strerror(result.refusal < 0 ? -result.refusal : 0));
        json_object_set_new(o, "refused", result.refused ? json_string(text) : json_null());
        return o;
}

#define NAME "bench paths"
#define ROWS 13u
#define ROUNDS_MAX 9
#define FORMS_MAX 2
#define DURATION_LEAST_NS (10 * NS_PER_MS)
#define DURATION_MOST_NS (60 * NS_PER_S)
#define PAGE_BYTES 4096u
#define FILE_LEAST_BYTES (UINT64_C(1) << 20)
#define FILE_MOST_BYTES (UINT64_C(64) << 30)
#define PAYLOAD_LEAST_BYTES 32u
/* Maximum number of packets sent before each measurement, to check and count; counting takes time. */
#define CHECK_BYTES (UINT64_C(8) << 20)
#define CHECK_PACKETS 2048u

struct bench_options {
        struct options common;
        const char *rows, *wire, *source, *payload, *directory, *form;
        bool row[ROWS + 1], wires[PATH_WIRES], sources[PATH_SOURCES];
        uint64_t file_bytes, payload_bytes, n_rounds, duration_ns;
};

struct bench {
        const struct bench_options *options;
        struct path_file *file;
        json_t *all;
        bool print; /* prints each result at once, rather than a report at the end */
        size_t failed, corrupt;
};

/* Makes one run, and records other activity of the machine. */
static json_t *watch_one(const struct path_run *run, const struct path_file *file)
{
        struct machine_watch *watch = NULL;
        struct machine_view view;
        bool watched = machine_watch_new(&watch) >= 0;
        json_t *figures = bench_path_figures(run, file, watch);

        machine_watch_view(watch, &view);
        /* A refused path was not measured. */
        if (figures)
                bench_record_machine(
                        figures, watched && json_is_null(json_object_get(figures, "refused")) ? &view : NULL);
        machine_watch_free(watch);
        return figures;
}

/* Makes all rounds; returns the round with the median processor time. */
static json_t *make_rounds(const struct bench *b, const struct path_run *run)
{
        json_t *rounds[ROUNDS_MAX], *median;
        size_t n = 0;

        while (n < b->options->n_rounds && !signals_are_waiting()) {
                rounds[n] = watch_one(run, b->file);
                if (!rounds[n])
                        break;
                n++;
        }
        if (n == 0)
                return NULL;
        median = bench_median_round(rounds, n, "processor_seconds_per_gb");
        for (size_t i = 0; i < n; i++)
                json_decref(rounds[i]);
        return median;
}

/* Prints a number of a result, or "-" if it is unknown. */
static void print_number(const json_t *figures, const char *key, int width, int digits)
{
        const json_t *v = json_object_get(figures, key);

        if (json_is_number(v))
                printf(" %*.*f", width, digits, json_number_value(v));
        else
                printf(" %*s", width, "-");
}

static const char *text_of(const json_t *figures, const char *key)
{
        return json_string_value(json_object_get(figures, key)) ?: "";
}

static void print_head(const struct bench_options *o)
{
        char file[QUANTITY_TEXT_MAX];

        printf("a file of %s over 127.0.0.1, payload %llu bytes; processor time and system calls are the "
               "sender's\n\n",
               quantity_format_bytes(o->file_bytes, file), (unsigned long long)o->payload_bytes);
        printf("%-4s %-13s %-4s %-18s %7s %7s %7s %7s %9s %6s  %s\n", "row", "form", "wire", "read from",
               "MB/s", "s/GB", "user", "system", "calls/pkt", "copies", "published copies, calls");
        fflush(stdout);
}

static void print_line(const json_t *f)
{
        const json_t *published = json_object_get(f, "published");

        printf("%-4s %-13s %-4s %-18s", text_of(f, "row"), text_of(f, "form"), text_of(f, "wire"),
               text_of(f, "reads"));
        if (json_is_string(json_object_get(f, "refused"))) {
                printf(" refused by the kernel: %s\n", text_of(f, "refused"));
                return;
        }
        print_number(f, "mbyte_per_s", 7, 0);
        print_number(f, "processor_seconds_per_gb", 7, 3);
        print_number(f, "user_seconds_per_gb", 7, 3);
        print_number(f, "system_seconds_per_gb", 7, 3);
        print_number(f, "calls_per_packet", 9, 3);
        print_number(f, "copies", 6, 0);
        printf("  %s, %s\n", text_of(published, "copies"), text_of(published, "calls"));
        fflush(stdout);
}

static void measure(struct bench *b, const struct path_run *run)
{
        const struct path *p = run->path;
        json_t *figures;

        if (b->options->common.progress || (options_wants_progress(&b->options->common) && !b->print))
                fprintf(stderr, "evb " NAME ": %s %s, %s, %s\n", p->row, p->form, path_wire_name(run->wire),
                        path_source_name(run->source));
        figures = make_rounds(b, run);
        if (!figures) {
                b->failed += !signals_are_waiting();
                return;
        }
        if (json_number_value(json_object_get(figures, "corrupt")) > 0) {
                fprintf(stderr, "evb " NAME ": %s %s, %s, %s: bytes arrived wrong, or not at all\n", p->row,
                        p->form, path_wire_name(run->wire), path_source_name(run->source));
                b->corrupt++;
        }
        if (b->print)
                print_line(figures);
        json_array_append_new(b->all, figures);
}

static bool is_wanted(const struct bench_options *o, const struct path *p)
{
        unsigned row = (unsigned)strtoul(p->row + 1, NULL, 10);

        return o->row[row] && (!o->form || path_find(row, (unsigned)(o->form[0] - '0')) == p);
}

static void measure_all(struct bench *b)
{
        const struct bench_options *o = b->options;
        uint64_t check_bytes = MIN(CHECK_BYTES, CHECK_PACKETS * o->payload_bytes);

        for (size_t i = 0; i < path_count(); i++) {
                const struct path *p = path_at(i);

                for (unsigned k = 0; k < PATH_SOURCES * PATH_WIRES; k++) {
                        struct path_run run = {.path = p,
                                               .wire = k % PATH_WIRES,
                                               .source = k / PATH_WIRES,
                                               .payload_bytes = (uint32_t)o->payload_bytes,
                                               .seconds = (double)o->duration_ns / NS_PER_S,
                                               .check_bytes = check_bytes - check_bytes % PAGE_BYTES};

                        if (!is_wanted(o, p) || !o->wires[run.wire] || !o->sources[run.source] ||
                            signals_are_waiting())
                                continue;
                        measure(b, &run);
                }
        }
}

static int print_end(const struct bench *b)
{
        if (signals_are_waiting()) {
                fprintf(stderr, "evb " NAME ": interrupted\n");
                return 1;
        }
        return b->failed + b->corrupt > 0 ? 1 : 0;
}

static int run(const struct bench_options *o)
{
        struct bench b = {.options = o, .all = json_array(), .print = !o->common.json || o->common.json_path};
        char text[ERROR_TEXT_MAX];
        struct error e = {};
        int status;

        signals_hold();
        if (path_file_new(&b.file, o->directory, o->file_bytes, o->sources, &e) < 0) {
                json_decref(b.all);
                if (e.code == -EINTR)
                        return print_end(&b);
                fprintf(stderr, "evb " NAME ": %s\n", error_format(&e, text));
                return 1;
        }
        /* Without permission, the bench runs at ordinary priority. */
        (void)priority_attend();
        if (b.print)
                print_head(o);
        measure_all(&b);
        path_file_free(b.file);
        status = print_end(&b);
        if (o->common.json)
                return options_write_json(&o->common,
                                          json_pack("{s:s, s:I, s:I, s:f, s:I, s:o}", "bench", "paths",
                                                    "file_bytes", (json_int_t)o->file_bytes, "payload_bytes",
                                                    (json_int_t)o->payload_bytes, "seconds",
                                                    (double)o->duration_ns / NS_PER_S, "rounds",
                                                    (json_int_t)o->n_rounds, "paths", b.all),
                                          status);
        json_decref(b.all);
        return status;
}

/* "E3,E8-13" or "3,8-13". These functions return 0, or 2 after an error message. */
static int parse_rows(struct bench_options *o)
{
        char digits[64] = "";
        unsigned rows[ROWS];
        size_t n = 0;

        for (const char *at = o->rows; *at && n + 1 < sizeof digits; at++) {
                if (*at != 'E' && *at != 'e')
                        digits[n++] = *at;
        }
        if (quantity_parse_list(digits, ROWS + 1, rows, ROWS, &n) < 0 || n == 0 || rows[0] == 0)
                return options_refuse(NAME, "rows", o->rows, "rows of E1 to E13, for example E3,E8-E13");
        for (size_t i = 0; i < n; i++)
                o->row[rows[i]] = true;
        return 0;
}

/* A list of names, or "all". */
static int parse_names(const char *option, const char *text, const char *(*name_of)(unsigned i), unsigned n,
                       bool *ret)
{
        const char *at = text;
        bool all = strcmp(text, "all") == 0, known = true;
        char expected[64];
        struct strbuf b = strbuf_init(expected, sizeof expected);

        strbuf_add(&b, "all, or a list of");
        for (unsigned i = 0; i < n; i++) {
                ret[i] = all;
                strbuf_add(&b, "%s%s", i > 0 ? "," : " ", name_of(i));
        }
        while (!all && known) {
                size_t length = strcspn(at, ",");
                unsigned i = 0;

                while (i < n && (strlen(name_of(i)) != length || strncmp(at, name_of(i), length) != 0))
                        i++;
                known = i < n;
                if (known)
                        ret[i] = true;
                if (!at[length])
                        break;
                at += length + 1;
        }
        return known ? 0 : options_refuse(NAME, option, text, expected);
}

static const char *wire_name(unsigned i)
{
        return path_wire_name(i);
}

static const char *source_name(unsigned i)
{
        return path_source_name(i);
}

static int parse_sizes(struct bench_options *o)
{
        o->file_bytes -= o->file_bytes % PAGE_BYTES;
        if (o->sources[PATH_DISK] && o->payload_bytes % PATH_DIRECT_BYTES != 0)
                return options_refuse(NAME, "packet-size", o->payload,
                                      "a multiple of 512, which O_DIRECT requires (or --source cache)");
        return 0;
}

static int parse_form(struct bench_options *o)
{
        if (!o->form || (strlen(o->form) == 1 && o->form[0] >= '0' && o->form[0] < '0' + FORMS_MAX))
                return 0;
        return options_refuse(NAME, "form", o->form, "0, the published form of a row, or 1");
}

int bench_paths(const struct command *command, int argc, char **argv)
{
        struct bench_options o = {.rows = "1-13",
                                  .wire = "all",
                                  .source = "all",
                                  .file_bytes = 1000000000,
                                  .payload = "1024",
                                  .payload_bytes = 1024,
                                  .duration_ns = 3 * NS_PER_S,
                                  .n_rounds = 1,
                                  .directory = "/var/tmp"};
        const struct option_entry own[] = {
                {"rows", "LIST", "rows to measure, for example E3,E8-E13 (default: all)", &o.rows},
                {"form", "N",
                 "measure this form of each row only, 0 (the published one) or 1 (default: both)", &o.form},
                {"wire", "LIST", "udp, tcp, and sink: UDP to a device that discards all (default: all)",
                 &o.wire},
                {"source", "LIST", "cache and disk (default: all)", &o.source},
                {"size", "SIZE", "size of the file, which each source has (default: 1GB)", .was = "file-size",
                 OPTION_NUMBER(quantity_parse_bytes, &o.file_bytes, FILE_LEAST_BYTES, FILE_MOST_BYTES,
                               "1MiB to 64GiB")},
                {"packet-size", "BYTES", "payload of a packet (default: 1024)", &o.payload, .was = "payload",
                 OPTION_NUMBER(quantity_parse_bytes, &o.payload_bytes, PAYLOAD_LEAST_BYTES,
                               PATH_PAYLOAD_MAX_BYTES, "32 to 60000 bytes")},
                {"duration", "TIME", "longest measurement of a path, at most 60s (default: 3s)",
                 .was = "seconds",
                 OPTION_NUMBER(bench_parse_time, &o.duration_ns, DURATION_LEAST_NS, DURATION_MOST_NS,
                               "10ms to 60s")},
                {"count", "N", "number of measurements of each path, at most 9 (default: 1)", .was = "rounds",
                 OPTION_NUMBER(quantity_parse_count, &o.n_rounds, 1, ROUNDS_MAX, "1 to 9")},
                {"directory", "DIRECTORY",
                 "where to make the file, which has no name, or a file to keep (default: /var/tmp)",
                 &o.directory},
        };
        int r = options_parse(&o.common, command, own, ARRAY_SIZE(own), 0, argc, argv);

        if (r != OPTIONS_GO_ON)
                return r;
        if (parse_rows(&o) != 0 || parse_names("wire", o.wire, wire_name, PATH_WIRES, o.wires) != 0 ||
            parse_names("source", o.source, source_name, PATH_SOURCES, o.sources) != 0 ||
            parse_sizes(&o) != 0 || parse_form(&o) != 0)
                return 2;
        return run(&o);
}
