/* The parts of `evb dump`: what is known of the file, and its events shown one by one. Private to
 * src/cmd/dump*.c. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "evb/store/event_file.h"
#include "evb/store/verify.h"

struct dump {
        const char *path;
        const struct event_file *file;
        bool hex;
        bool verify;
        const uint64_t *seed; /* of --seed, or NULL */
        json_t *json;         /* the object being filled; NULL: text on standard output */
};

/* Each returns whether all was right; what was wrong is told in the text, in the object, and on standard
 * error. */
bool dump_summary(const struct dump *d);
bool dump_verify(const struct dump *d);
/* All events, or only that of index `only`. */
#define DUMP_ALL UINT64_MAX
bool dump_events(const struct dump *d, uint64_t only);

/* Tells of damage at a byte of the file; false. */
bool dump_damage(const struct dump *d, const struct eformat_fault *fault);
json_t *dump_u64(uint64_t value); /* a number, or text where JSON readers would round it */
