/* Reports the result of verifying an event file, and damage, on standard error and in the JSON object. */
#include "dump.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

json_t *dump_u64(uint64_t value)
{
        return value <= INT64_MAX ? json_integer((json_int_t)value) : json_sprintf("%" PRIu64, value);
}

void dump_put(json_t *object, const char *key, uint64_t value)
{
        json_object_set_new(object, key, dump_u64(value));
}

/* Adds a fault to the JSON object; event UINT64_MAX: the fault belongs to no event. Keeps the first
 * DUMP_FAULTS_MAX. */
static void add_fault(const struct dump *d, uint64_t event, const struct eformat_fault *fault)
{
        json_t *faults = json_object_get(d->json, "faults"), *o;

        if (!faults) {
                faults = json_array();
                json_object_set_new(d->json, "faults", faults);
        }
        if (json_array_size(faults) >= DUMP_FAULTS_MAX)
                return;
        o = json_object();
        json_object_set_new(o, "event", event == UINT64_MAX ? json_null() : dump_u64(event));
        dump_put(o, "offset_bytes", fault->offset_bytes);
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

struct faults {
        const struct dump *d;
        uint64_t n;
};

static void on_fault(void *userdata, uint64_t event, const struct eformat_fault *fault)
{
        struct faults *f = userdata;

        if (f->d->json)
                add_fault(f->d, event, fault);
        if (f->n++ >= DUMP_FAULTS_MAX)
                return;
        if (event == UINT64_MAX)
                fprintf(stderr, "%s: byte %zu: %s\n", f->d->path, fault->offset_bytes, fault->reason);
        else
                fprintf(stderr, "%s: event %" PRIu64 ", byte %zu: %s\n", f->d->path, event,
                        fault->offset_bytes, fault->reason);
}

static void verify_json(json_t *json, const struct verify_report *v)
{
        json_t *o = json_object();

        json_object_set_new(o, "right", json_boolean(v->n_faults == 0));
        dump_put(o, "faults", v->n_faults);
        dump_put(o, "ros", v->ros);
        dump_put(o, "robs", v->robs);
        dump_put(o, "dummies", v->dummies);
        dump_put(o, "truncated", v->truncated);
        dump_put(o, "partial_events", v->partial_events);
        dump_put(o, "duplicate_events", v->duplicate_events);
        dump_put(o, "l1_mismatches", v->l1_mismatches);
        dump_put(o, "checksums", v->sums);
        dump_put(o, "checksums_wrong", v->sums_wrong);
        dump_put(o, "checksums_unknown", v->sums_unknown);
        json_object_set_new(o, "pattern_fragments",
                            v->has_seed ? dump_u64(v->pattern_fragments) : json_null());
        json_object_set_new(o, "pattern_bytes", v->has_seed ? dump_u64(v->pattern_bytes) : json_null());
        json_object_set_new(o, "pattern_wrong", v->has_seed ? dump_u64(v->pattern_wrong) : json_null());
        json_object_set_new(o, "ended", json_boolean(v->ended));
        json_object_set_new(json, "verify", o);
}

static void verify_text(const struct verify_report *v)
{
        printf("  %" PRIu64 " ROS and %" PRIu64 " ROB fragments, including %" PRIu64 " dummies, %" PRIu64
               " truncated\n",
               v->ros, v->robs, v->dummies, v->truncated);
        printf("  %" PRIu64 " fragments with another L1 id than their event, %" PRIu64 " duplicate events\n",
               v->l1_mismatches, v->duplicate_events);
        printf("  checksums: %" PRIu64 ", %" PRIu64 " wrong, %" PRIu64 " of an unknown kind\n", v->sums,
               v->sums_wrong, v->sums_unknown);
        if (v->has_seed)
                printf("  pattern: %" PRIu64 " fragments of %" PRIu64 " bytes checked, %" PRIu64 " wrong\n",
                       v->pattern_fragments, v->pattern_bytes, v->pattern_wrong);
        else
                printf("  pattern: not checked, because the file contains no seed (set it with --seed)\n");
        if (v->n_faults == 0)
                printf("  no faults\n");
        else
                printf("  %" PRIu64 " fault%s\n", v->n_faults, v->n_faults == 1 ? "" : "s");
}

bool dump_verify(const struct dump *d)
{
        struct faults faults = {.d = d};
        struct verify_report report;
        const char *differs;
        int r = event_file_verify(d->file, d->seed, on_fault, &faults, &report);

        if (r < 0) {
                fprintf(stderr, "%s: %s\n", d->path, strerror(-r));
                return false;
        }
        differs = dump_compare_record(d);
        if (differs) {
                on_fault(&faults, UINT64_MAX, &(struct eformat_fault){.reason = differs});
                report.n_faults++;
        }
        if (d->json)
                verify_json(d->json, &report);
        else
                verify_text(&report);
        return report.n_faults == 0;
}
