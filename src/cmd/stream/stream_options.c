/* Shared by the verbs of evb stream: options, live line, summary. */
#include "stream_verbs.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/quantity.h"
#include "base/util.h"
#include "net/key_file.h"

#define RING_LEAST_BYTES (256u << 10)
#define RING_MOST_BYTES (UINT64_C(64) << 30)
#define SOCKET_MOST_BYTES (UINT64_C(1) << 30)
#define SIGNAL_MOST 1000000u
#define PORT_DIGITS 5u

void stream_join_options(struct stream_texts *t, const struct option_entry *own, size_t n,
                         struct option_entry *ret)
{
        const struct option_entry common[STREAM_COMMON_OPTIONS] = {
                {"wake", "KIND",
                 "how one thread wakes the other: futex, signal=N (a semaphore, every N packets), "
                 "yield or poll (default: futex)",
                 &t->wake},
                {"ring", "SIZE", "size of the ring between the threads (default: 64MiB)",
                 OPTION_NUMBER(quantity_parse_bytes, &t->ring_bytes, RING_LEAST_BYTES, RING_MOST_BYTES,
                               "256KiB to 64GiB")},
                {"socket-buffer", "SIZE", "size of the socket's buffer (default: 8MiB)",
                 OPTION_NUMBER(quantity_parse_bytes, &t->socket_buffer_bytes, 0, SOCKET_MOST_BYTES,
                               "at most 1GiB (0: the system's default)")},
                {"cpus", "THREAD=LIST", "processors for a thread, e.g. network=1 (default: any); repeatable"},
                {"network-cpus", "LIST", "the thread of the network", &t->network_cpus, .part_of = "cpus",
                 .part = "network"},
                {"file-cpus", "LIST", "the thread of the input or output", &t->file_cpus, .part_of = "cpus",
                 .part = "file"},
                {"key", "FILE",
                 "file with the key that both ends must have, as for network.key-file (default: none)",
                 &t->key},
        };

        t->wake = "futex";
        t->ring_bytes = 64 << 20;
        t->socket_buffer_bytes = 8 << 20;
        memcpy(ret, own, n * sizeof *ret);
        memcpy(ret + n, common, sizeof common);
}

int stream_read_address(const char *verb, const char *text, bool listens, struct net_address *ret)
{
        char whole[NET_ADDRESS_TEXT_MAX];

        if (net_address_parse_with_port(ret, text) >= 0)
                return OPTIONS_GO_ON;
        snprintf(whole, sizeof whole, "0.0.0.0:%s", text);
        if (listens && strlen(text) <= PORT_DIGITS && net_address_parse_with_port(ret, whole) >= 0)
                return OPTIONS_GO_ON;
        fprintf(stderr, "evb %s: \"%s\" is not %s\n", verb, text,
                listens ? "a port; expected e.g. 26900, or 10.0.0.5:26900"
                        : "an address and a port; expected e.g. 10.0.0.5:26900");
        return 2;
}

int stream_next_port(const char *verb, struct net_address *at, size_t i)
{
        size_t port = net_address_port(at) + i;

        if (port > UINT16_MAX) {
                fprintf(stderr, "evb %s: stream %zu would need port %zu; expected a smaller first port\n",
                        verb, i + 1, port);
                return 2;
        }
        if (at->any.sa_family == AF_INET6)
                at->v6.sin6_port = htons((uint16_t)port);
        else
                at->v4.sin_port = htons((uint16_t)port);
        return 0;
}

int stream_check_files(const char *verb, const char *option, const struct option_list *files,
                       const struct options *o)
{
        if (files->n == 0 || files->n > STREAMS_MAX) {
                fprintf(stderr, "evb %s: --%s is required; expected one for each stream, at most %u\n", verb,
                        option, STREAMS_MAX);
                return 2;
        }
        for (size_t i = 0; i < files->n; i++) {
                if (strcmp(files->values[i], "-") != 0)
                        continue;
                if (files->n > 1) {
                        fprintf(stderr, "evb %s: --%s -: several streams cannot share it; use files\n", verb,
                                option);
                        return 2;
                }
                if (o && o->json && !o->json_path) {
                        fprintf(stderr, "evb %s: --json: the data go to standard output; use --json=FILE\n",
                                verb);
                        return 2;
                }
        }
        return OPTIONS_GO_ON;
}

static bool read_wake(const char *text, struct wake *ret)
{
        static const char signal[] = "signal=";
        uint64_t every;

        if (strcmp(text, "futex") == 0)
                *ret = (struct wake){.kind = WAKE_FUTEX};
        else if (strcmp(text, "yield") == 0)
                *ret = (struct wake){.kind = WAKE_YIELD};
        else if (strcmp(text, "poll") == 0)
                *ret = (struct wake){.kind = WAKE_POLL};
        else if (strncmp(text, signal, strlen(signal)) == 0 &&
                 quantity_parse_count(text + strlen(signal), &every) >= 0 && every >= 1 &&
                 every <= SIGNAL_MOST)
                *ret = (struct wake){.kind = WAKE_SIGNAL, .every = (uint32_t)every};
        else
                return false;
        return true;
}

static bool read_cpus(const char *text, struct stream_cpus *ret)
{
        long n = sysconf(_SC_NPROCESSORS_CONF);

        return !text ||
               (quantity_parse_list(text, (unsigned)MAX(n, 1L), ret->cpus, STREAM_CPUS_MAX, &ret->n) >= 0 &&
                ret->n > 0);
}

static int read_key(const char *verb, const char *path, struct stream_options *ret)
{
        struct error e = {};
        struct auth_key key;

        if (key_file_read(path, &key, &e) < 0) {
                fprintf(stderr, "evb %s: --key: %s\n", verb, e.message);
                return 2;
        }
        auth_derive(&ret->key, &key, AUTH_STREAM);
        auth_forget(&key);
        ret->has_key = true;
        return OPTIONS_GO_ON;
}

/* Draws a live line; prints separate lines if standard error is not a terminal. */
static void draw(const struct stream_progress *p, bool last)
{
        bool redraw = isatty(STDERR_FILENO);
        char bytes[QUANTITY_TEXT_MAX], rate[QUANTITY_TEXT_MAX], lost[QUANTITY_TEXT_MAX] = "?", line[200];

        if (last) {
                log_draw(redraw ? "\r\033[K" : "");
                return;
        }
        if (p->lost != UINT64_MAX)
                quantity_format_count(p->lost, lost);
        snprintf(line, sizeof line, "%s%5.0f s  %s  %s  %s lost  ring %2llu %%%s", redraw ? "\r\033[K" : "",
                 p->seconds, quantity_format_bytes(p->bytes, bytes),
                 quantity_format_rate((uint64_t)((double)p->bytes * 8 / p->seconds), rate), lost,
                 (unsigned long long)p->ring_percent, redraw ? "" : "\n");
        log_draw(line);
}

/* Prints a JSON object on one line. */
static void print_statistics(const struct stream_progress *p, bool last)
{
        json_t *line = json_pack("{s:s, s:i, s:f, s:I, s:I, s:I, s:I}", "type", "statistics", "stream",
                                 (int)MAX(p->stream, 1u), "seconds", p->seconds, "packets",
                                 (json_int_t)p->packets, "bytes", (json_int_t)p->bytes, "lost",
                                 (json_int_t)p->lost, "ring_percent", (json_int_t)p->ring_percent);
        char text[300];
        size_t n;

        if (p->lost == UINT64_MAX)
                json_object_set_new(line, "lost", json_null());
        n = json_dumpb(line, text, sizeof text - 2, JSON_COMPACT | JSON_REAL_PRECISION(6));
        json_decref(line);
        if (last || n == 0 || n > sizeof text - 2)
                return;
        memcpy(text + n, "\n", 2);
        log_draw(text);
}

void stream_number(struct stream_options *o, size_t number)
{
        o->stream = (unsigned)number;
        if (o->progress == draw)
                o->progress = NULL;
}

int stream_read(const char *verb, const struct stream_texts *t, struct stream_options *ret)
{
        if (!read_wake(t->wake, &ret->wake))
                return options_refuse(verb, "wake", t->wake,
                                      "futex, signal=N (N from 1 to 1000000), yield or poll");
        ret->ring_bytes = t->ring_bytes;
        ret->socket_buffer_bytes = t->socket_buffer_bytes;
        if (!read_cpus(t->network_cpus, &ret->network_cpus))
                return options_refuse(verb, "cpus network", t->network_cpus,
                                      "processors of this machine, e.g. 0-1");
        if (!read_cpus(t->file_cpus, &ret->file_cpus))
                return options_refuse(verb, "cpus file", t->file_cpus,
                                      "processors of this machine, e.g. 0-1");
        if (options_wants_progress(&t->common))
                ret->progress = t->common.json && t->common.progress ? print_statistics : draw;
        return t->key ? read_key(verb, t->key, ret) : OPTIONS_GO_ON;
}

static void print_count(FILE *to, const json_t *report, const char *label, const char *name)
{
        const json_t *value = json_object_get(report, name);

        if (json_is_integer(value))
                fprintf(to, "%s %lld", label, (long long)json_integer_value(value));
        else
                fprintf(to, "%s unknown", label);
}

static void print_report(FILE *to, const json_t *report)
{
        const json_t *at = json_object_get(report, "lost_at");
        double seconds = json_number_value(json_object_get(report, "seconds")),
               rate = json_number_value(json_object_get(report, "throughput_bytes_per_second"));
        char bytes[QUANTITY_TEXT_MAX], speed[QUANTITY_TEXT_MAX];

        fprintf(to, "%s in %.3f s, %s\n",
                quantity_format_bytes((uint64_t)json_integer_value(json_object_get(report, "bytes")), bytes),
                seconds, quantity_format_rate((uint64_t)(rate * 8), speed));
        print_count(to, report, "packets: sent", "packets_sent");
        print_count(to, report, ", received", "packets_received");
        print_count(to, report, ", lost", "packets_lost");
        print_count(to, report, "\nof these: late", "packets_late");
        for (size_t i = 0; i < STREAM_PLACES && json_is_object(at); i++) {
                fputs(", ", to);
                print_count(to, at, stream_places[i].label, stream_places[i].name);
        }
        print_count(to, report, "\nduplicate", "packets_duplicate");
        print_count(to, report, ", out of order", "packets_out_of_order");
        print_count(to, report, ", foreign", "datagrams_foreign");
        if (strcmp(json_string_value(json_object_get(report, "format")) ?: "", "raw") != 0)
                print_count(to, report, ", filled in", "frames_filled_in");
        if (json_integer_value(json_object_get(report, "packets_repaired")) > 0)
                print_count(to, report, ", repaired", "packets_repaired");
        if (json_is_integer(json_object_get(report, "corrupt")))
                print_count(to, report, ", corrupt", "corrupt");
        fputc('\n', to);
}

int stream_write_report(const struct options *o, json_t *report, bool data_on_stdout, int status)
{
        if (!report)
                return status;
        if (o->json)
                return options_write_json(o, report, status);
        print_report(data_on_stdout ? stderr : stdout, report);
        json_decref(report);
        return status;
}
