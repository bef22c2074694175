/* Both ends of one stream as processes, `evb stream send` and `evb stream recv`, in two network namespaces.
 */
#pragma once

#include <jansson.h>

#include "sys/machine_watch.h"

#define STREAM_WORDS_MAX 32
#define STREAM_WORD_MAX_BYTES 48

/* A command line. */
struct stream_words {
        char words[STREAM_WORDS_MAX][STREAM_WORD_MAX_BYTES];
        size_t n;
};

struct stream_run {
        struct stream_words sender, receiver; /* all words after "evb stream send" and "evb stream recv" */
        int sender_namespace, receiver_namespace;
        double seconds; /* that the sender sends */
        /* A process at the priority of the ends, which takes the time of this processor; -1: none. */
        int busy_processor;
};

void stream_words_add(struct stream_words *w, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Runs the stream to its end, and watches meanwhile. Returns the report of the receiver, which contains the
 * sender's, or NULL after logging the error. */
json_t *stream_ends_run(const struct stream_run *run, struct machine_watch *watch);
