/* Reports damage of an event file on standard error and in the JSON object. */
#include "dump.h"

#include <inttypes.h>
#include <stdio.h>

json_t *dump_u64(uint64_t value)
{
        return value <= INT64_MAX ? json_integer((json_int_t)value) : json_sprintf("%" PRIu64, value);
}

void dump_put(json_t *object, const char *key, uint64_t value)
{
        json_object_set_new(object, key, dump_u64(value));
}

void dump_add_fault(const struct dump *d, uint64_t event, const struct eformat_fault *fault)
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
                dump_add_fault(d, UINT64_MAX, fault);
        return false;
}
