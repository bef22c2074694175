/* evb stream recv: reads the command line. */
#include <ifaddrs.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/quantity.h"
#include "base/util.h"
#include "stream_verbs.h"

#define WINDOW_MOST 1000000u
#define REPAIR_NS (600 * NS_PER_S)

struct receive_texts {
        struct stream_texts stream;
        struct option_list outputs;
        const char *overwrite, *direct, *faults, *connect, *packet_limit, *watch_wire, *repair, *resume,
                *no_control, *format, *duration, *size, *silence;
        const char *begin;
        uint64_t window, scan_ns;
};

/* One NAME=VALUE of --fault. */
static bool read_fault(char *text, struct fault_config *c)
{
        char *value = strchr(text, '=');
        double *fraction;

        if (!value)
                return false;
        *value++ = '\0';
        if (strcmp(text, "seed") == 0)
                return quantity_parse_count(value, &c->seed) >= 0;
        fraction = strcmp(text, "loss") == 0        ? &c->loss
                   : strcmp(text, "reorder") == 0   ? &c->reorder
                   : strcmp(text, "duplicate") == 0 ? &c->duplicate
                                                    : NULL;
        return fraction && quantity_parse_fraction(value, fraction) >= 0 && *fraction < 1;
}

static int read_faults(const char *text, struct fault_config *c)
{
        char copy[200], *rest = copy;

        c->seed = 1;
        if (!text)
                return OPTIONS_GO_ON;
        snprintf(copy, sizeof copy, "%s", text);
        for (char *each; (each = strsep(&rest, ","));) {
                if (!read_fault(each, c))
                        return options_refuse(
                                "stream recv", "fault", text,
                                "fractions below 1, and a seed, e.g. loss=1%,reorder=1%,duplicate=1%,seed=7");
        }
        return OPTIONS_GO_ON;
}

/* Reads the time at which a recording begins, and the duration of its files. */
static int read_scans(const struct receive_texts *t, struct stream_receive_config *c)
{
        struct tm at = {};
        const char *rest = t->begin ? strptime(t->begin, "%Y-%m-%dT%H:%M:%S", &at) : NULL;

        if (rest && (!*rest || strcmp(rest, "Z") == 0))
                c->begin_s = timegm(&at);
        else if (t->begin && strcmp(t->begin, "next") == 0)
                c->begin_s = c->format == STREAM_PLAIN ? time(NULL) + 1 : STREAM_NEXT_SECOND;
        else if (t->begin)
                return options_refuse("stream recv", "record begin", t->begin,
                                      "a second in UTC, e.g. 2026-11-30T12:00:00Z, or next");
        c->scan_s = (int64_t)(t->scan_ns / NS_PER_S);
        if (t->scan_ns % NS_PER_S > 0 || (t->scan_ns > 0 && c->format == STREAM_PLAIN)) {
                fprintf(stderr, "evb stream recv: --record scan: expected whole seconds, and VDIF\n");
                return 2;
        }
        for (size_t i = 0; t->scan_ns > 0 && i < t->outputs.n; i++) {
                if (strcmp(t->outputs.values[i], "-") != 0 && strcmp(t->outputs.values[i], "null") != 0)
                        continue;
                fprintf(stderr, "evb stream recv: --record scan needs a file as output\n");
                return 2;
        }
        return OPTIONS_GO_ON;
}

static int read_without_control(const struct receive_texts *t, struct stream_receive_config *c)
{
        c->without_control = t->no_control;
        c->format = STREAM_VDIF;
        if (t->format && strcmp(t->format, "plain") == 0)
                c->format = STREAM_PLAIN;
        else if (t->format && strcmp(t->format, "vdif") != 0)
                return options_refuse("stream recv", "format", t->format, "vdif or plain");
        if (t->repair || t->resume) {
                c->repair_ns = t->duration ? c->duration_ns : REPAIR_NS;
                c->duration_ns = 0;
        }
        if (!t->no_control && (t->format || (t->duration && c->repair_ns == 0) || t->size || t->silence ||
                               t->begin || t->scan_ns > 0)) {
                fprintf(stderr, "evb stream recv: --format, --duration and --record need --no-control; "
                                "otherwise the sender decides\n");
                return 2;
        }
        if (t->resume && (t->overwrite || t->direct)) {
                fprintf(stderr, "evb stream recv: --resume excludes --overwrite and --direct\n");
                return 2;
        }
        if (!t->no_control || (!t->connect && c->repair_ns == 0 && !t->stream.key && !t->packet_limit &&
                               !t->watch_wire && strcmp(t->outputs.values[0], "pattern") != 0))
                return read_scans(t, c);
        fprintf(stderr, "evb stream recv: --no-control excludes --connect, --repair, --resume, --key, --raw "
                        "and the output pattern\n");
        return 2;
}

/* Finds the IPv4 address of a device. */
static bool find_device(const char *name, struct net_address *ret)
{
        struct ifaddrs *all, *i;

        if (getifaddrs(&all) < 0)
                return false;
        for (i = all;
             i && (!i->ifa_addr || i->ifa_addr->sa_family != AF_INET || strcmp(i->ifa_name, name) != 0);)
                i = i->ifa_next;
        if (i)
                *ret = (struct net_address){.v4 = *(struct sockaddr_in *)i->ifa_addr,
                                            .size_bytes = sizeof(struct sockaddr_in)};
        freeifaddrs(all);
        return i;
}

/* As stream_read_address(), and with --no-control also GROUP%DEVICE:PORT (IPv4; IPv6 addresses have their
 * own). */
static int read_address(const struct receive_texts *t, const char *text, struct stream_receive_config *c)
{
        const char *percent = text[0] == '[' || !t->no_control ? NULL : strchr(text, '%'),
                   *colon = percent ? strrchr(percent, ':') : NULL;
        char at[NET_ADDRESS_TEXT_MAX], device[IF_NAMESIZE];

        if (!colon || (size_t)(colon - percent) > sizeof device || strlen(text) >= sizeof at)
                return stream_read_address("stream recv", text, !t->connect, &c->at);
        snprintf(at, sizeof at, "%.*s%s", (int)(percent - text), text, colon);
        snprintf(device, sizeof device, "%.*s", (int)(colon - percent - 1), percent + 1);
        if (find_device(device, &c->device))
                return stream_read_address("stream recv", at, true, &c->at);
        fprintf(stderr, "evb stream recv: \"%s\": no device \"%s\" with an IPv4 address\n", text, device);
        return 2;
}

static int read_all(const struct receive_texts *t, struct stream_receive_config *c)
{
        const struct options *o = &t->stream.common;
        int r = stream_read("stream recv", &t->stream, &c->common);

        if (r == OPTIONS_GO_ON)
                r = read_address(t, o->words[0], c);
        if (r == OPTIONS_GO_ON)
                r = stream_check_files("stream recv", "output", &t->outputs, o);
        if (r == OPTIONS_GO_ON)
                r = read_without_control(t, c);
        if (r == OPTIONS_GO_ON)
                r = read_faults(t->faults, &c->faults);
        if (r != OPTIONS_GO_ON)
                return r;
        c->resumes = t->resume;
        c->watches_wire = t->watch_wire;
        c->dials = t->connect;
        c->window_packets = (uint32_t)t->window;
        c->output = t->outputs.values[0];
        c->overwrite = t->overwrite;
        c->direct = t->direct;
        return OPTIONS_GO_ON;
}

struct receive_many {
        const struct stream_receive_config *config;
        const struct option_list *outputs;
};

static int receive_one(void *ctx, size_t i, json_t **ret)
{
        const struct receive_many *m = ctx;
        struct stream_receive_config c = *m->config;

        stream_number(&c.common, i + 1);
        c.output = m->outputs->values[i];
        return stream_next_port("stream recv", &c.at, i) ?: stream_receive(&c, ret);
}

static int receive_and_report(const struct receive_texts *t, const struct stream_receive_config *c)
{
        struct receive_many many = {c, &t->outputs};
        json_t *report = NULL;
        int r = t->outputs.n == 1 ? stream_receive(c, &report)
                                  : stream_many(t->outputs.n, receive_one, &many, &report);

        return stream_write_report(&t->stream.common, report, strcmp(c->output, "-") == 0, r);
}

int stream_receive_verb(const struct command *command, int argc, char **argv)
{
        struct receive_texts t = {.window = 1024};
        struct stream_receive_config c = {.wait_ns = 10 * NS_PER_S};
        const struct option_entry own[] = {
                {"output", "SINK",
                 "where the data go: a file, null, pattern (checks what --input pattern:SIZE sends), or -; "
                 "repeatable, for several streams",
                 NULL, &t.outputs},
                {"overwrite", NULL, "replace a file that exists", &t.overwrite},
                {"direct", NULL, "write files past the page cache (O_DIRECT)", &t.direct},
                {"window", "PACKETS",
                 "packets that may overtake one before it counts as lost (default: 1024)",
                 OPTION_NUMBER(quantity_parse_count, &t.window, 0, WINDOW_MOST, "0 to 1000000 packets")},
                {"repair", NULL, "at the end, let the sender send again what is missing (not from a pipe)",
                 &t.repair},
                {"resume", NULL, "continue an interrupted copy; includes --repair", &t.resume},
                {"connect", NULL, "connect to evb stream send --listen there", &t.connect},
                {"wait", "TIME", "with --connect, how long to wait for the sender to listen (default: 10s)",
                 OPTION_NUMBER(quantity_parse_time, &c.wait_ns, 0, UINT64_MAX, "a time, e.g. 10s")},
                {"no-control", NULL, "record what another program sends (port or group)", &t.no_control},
                {"format", "NAME", "with --no-control: vdif or plain (default: vdif)", &t.format},
                {"duration", "TIME",
                 "with --no-control: end this long after the first packet; --repair: at most this long "
                 "(default: 10min)",
                 &t.duration, .was = "repair-time",
                 OPTION_NUMBER(quantity_parse_time, &c.duration_ns, 1, UINT64_MAX, "a time, e.g. 10s")},
                {"record", "NAME=VALUE", "with --no-control: what to record; repeatable"},
                {"begin", "TIME", "first second, in UTC: 2026-11-30T12:00:00Z, or next", &t.begin,
                 .part_of = "record"},
                {"scan", "TIME", "VDIF: begin a file at each multiple of this time, UTC", .part_of = "record",
                 OPTION_NUMBER(quantity_parse_time, &t.scan_ns, NS_PER_S, 86400 * NS_PER_S,
                               "1s to 24h, in whole seconds")},
                {"size", "BYTES", "end with this size", &t.size, .part_of = "record",
                 OPTION_NUMBER(quantity_parse_bytes, &c.bytes, 1, UINT64_MAX, "bytes, e.g. 10GB")},
                {"silence", "TIME", "end after this time without a packet", &t.silence, .part_of = "record",
                 OPTION_NUMBER(quantity_parse_time, &c.silence_ns, 1, UINT64_MAX, "a time, e.g. 10s")},
                {"raw", "NAME", "how to receive a raw stream; repeatable"},
                {"packet-limit", "N", "receive at most N packets per second (default: all)", &t.packet_limit,
                 .part_of = "raw",
                 OPTION_NUMBER(quantity_parse_count, &c.packets_per_s, 1, NS_PER_S, "packets per second")},
                {"watch-wire", NULL, "measure the times between packets at the device (IPv4, CAP_NET_RAW)",
                 &t.watch_wire, .part_of = "raw"},
                {"fault", "NAME=VALUE,...",
                 "drop, hold back or repeat arriving packets, for tests: fractions loss, reorder and "
                 "duplicate, and a seed",
                 &t.faults, .was = "faults"},
        };
        struct option_entry all[ARRAY_SIZE(own) + STREAM_COMMON_OPTIONS];
        int r;

        stream_join_options(&t.stream, own, ARRAY_SIZE(own), all);
        r = options_parse(&t.stream.common, command, all, ARRAY_SIZE(all), 1, argc, argv);

        if (r == OPTIONS_GO_ON)
                r = read_all(&t, &c);
        if (r == OPTIONS_GO_ON)
                r = receive_and_report(&t, &c);
        free(t.outputs.values);
        return r;
}
