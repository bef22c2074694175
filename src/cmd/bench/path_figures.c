/* Runs one data path, and describes its result. */
#include "cmd/bench/path_figures.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/util.h"

#define GB 1e9

static void set(json_t *o, const char *name, double v, bool known)
{
        json_object_set_new(o, name, known && !isnan(v) ? json_real(v) : json_null());
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

/* Each call's number per packet, by name. */
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

json_t *bench_path_figures(const struct path_run *run, const struct path_file *file,
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
