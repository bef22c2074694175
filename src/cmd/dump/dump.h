/* The parts of `evb dump`. Private to src/cmd/dump. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "store/event_file.h"
#include "store/verify.h"

struct dump {
        const char *path;
        const struct event_file *file;
        bool hex;
        bool verify;
        const uint64_t *seed; /* value of --seed, or NULL */
        json_t *json;         /* the output object; NULL: text on standard output */
        FILE *lines;          /* receives each event as a line of JSON, before the output object */
        json_t *compared; /* dump_compare_record() adds the file here, for dump_verify_record(); or NULL */
};

#define DUMP_FAULTS_MAX 100u

/* Each function returns whether the file is valid. Faults are written to the output and to standard error. */
bool dump_summary(const struct dump *d);
bool dump_verify(const struct dump *d);
/* Prints all events, or only the one with index `only`. */
#define DUMP_ALL UINT64_MAX
bool dump_events(const struct dump *d, uint64_t only);

/* Compares a whole file with the record of its run, and reports the record in the output. Returns NULL if the
 * file is as recorded or not recorded, or else what differs (valid until the next call). */
const char *dump_compare_record(const struct dump *d);
/* Compares the files that a record of a run lists, but reads and reports none that is in `compared` (may be
 * NULL). Returns the exit status. */
int dump_verify_record(const char *path, const json_t *compared, json_t *json);

/* Reports damage at a byte of the file; returns false. */
bool dump_damage(const struct dump *d, const struct eformat_fault *fault);
json_t *dump_u64(uint64_t value); /* a number, or a text if JSON readers would round it */
void dump_put(json_t *object, const char *key, uint64_t value);
