/* Shared by the verbs of `evb stream`: options of both ends, the live line, and the summary. */
#pragma once

#include "cmd/options.h"
#include "stream/stream.h"

/* The values of the options of both verbs. */
struct stream_texts {
        struct options common;
        const char *wake, *network_cpus, *file_cpus, *key;
        uint64_t ring_bytes, socket_buffer_bytes;
};

/* Appends the common options to the n options of a verb, and sets the defaults of their texts. `ret` must
 * have room for STREAM_COMMON_OPTIONS more entries. */
#define STREAM_COMMON_OPTIONS 7u
void stream_join_options(struct stream_texts *t, const struct option_entry *own, size_t n,
                         struct option_entry *ret);

/* `verb` is "stream send" or "stream recv" in these functions. This one reads "HOST:PORT"; a listener may
 * also use "PORT" for any IPv4 address of this machine. Returns OPTIONS_GO_ON or the exit status. */
int stream_read_address(const char *verb, const char *text, bool listens, struct net_address *ret);
/* Checks the sources or sinks: their number must be from 1 to STREAMS_MAX. "-" must be the only one, and
 * excludes a JSON report on standard output (`o`; NULL: these are not outputs). Returns OPTIONS_GO_ON or the
 * exit status. */
int stream_check_files(const char *verb, const char *option, const struct option_list *files,
                       const struct options *o);
/* Reads the common options. Returns OPTIONS_GO_ON or the exit status. */
int stream_read(const char *verb, const struct stream_texts *t, struct stream_options *ret);
/* Sets the number of a stream among several, which have no live line. */
void stream_number(struct stream_options *o, size_t number);
/* Writes the report as JSON or text, and releases it. Returns `status`, or 1 or 2 if it cannot be written.
 * The text goes to standard error if data go to standard output. */
int stream_write_report(const struct options *o, json_t *report, bool data_on_stdout, int status);

#define STREAMS_MAX 16u
/* Runs one(ctx, i, ...) at the same time for all i below n (at most STREAMS_MAX). Each call moves stream i
 * and returns its exit status. Returns the worst status; *ret is the report of all streams, or NULL. */
int stream_many(size_t n, int (*one)(void *ctx, size_t i, json_t **ret), void *ctx, json_t **ret);
/* Sets the address of stream i: each stream uses the next port. Returns 0, or 2 after an error message. */
int stream_next_port(const char *verb, struct net_address *at, size_t i);

int stream_send_verb(const struct command *c, int argc, char **argv);
int stream_receive_verb(const struct command *c, int argc, char **argv);
