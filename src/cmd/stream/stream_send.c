/* evb stream send: reads the command line. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/quantity.h"
#include "base/util.h"
#include "stream/rules/setup.h"
#include "stream_verbs.h"

#define PACKET_MOST_BYTES 65507u
#define TCP_MOST_BYTES (4u << 20)
#define BATCH_MOST 64u
#define TIME_MOST_NS (3600 * NS_PER_S)
#define RATE_MOST_BPS UINT64_C(10000000000000)
#define SPACING_MOST_NS NS_PER_S
#define FRAME_RATE_MOST ((1u << 24) - 1)

struct send_texts {
        struct stream_texts stream;
        struct option_list inputs;
        const char *format, *rate, *spacing, *packet_size, *pacing, *listen, *direct, *no_control, *transport,
                *batch, *packets, *warm_up;
        uint64_t frame_rate, n_batch;
};

static int read_spacing(const struct send_texts *t, struct stream_send_config *c)
{
        const bool recorded = t->rate && strcmp(t->rate, "recorded") == 0;

        if (t->rate && t->spacing) {
                fprintf(stderr,
                        "evb stream send: --rate and --spacing contradict each other; use one of them\n");
                return 2;
        }
        c->recorded = c->format == STREAM_PLAIN && !t->spacing &&
                      (recorded || (!t->rate && c->frames_per_second > 0));
        if (recorded && c->format == STREAM_RAW)
                return options_refuse("stream send", "rate", t->rate,
                                      "a rate, or max, because raw streams have no recording");
        if (t->rate && strcmp(t->rate, "max") == 0)
                c->full_speed = true;
        else if (t->rate && !recorded &&
                 (quantity_parse_rate(t->rate, &c->rate_bps) < 0 || c->rate_bps == 0 ||
                  c->rate_bps > RATE_MOST_BPS))
                return options_refuse("stream send", "rate", t->rate,
                                      "a rate, e.g. 940Mbit, max or recorded");
        return OPTIONS_GO_ON;
}

static int read_format(const struct send_texts *t, struct stream_send_config *c)
{
        uint64_t n = 0;

        if (!setup_format_parse(&c->format, t->format))
                return options_refuse("stream send", "format", t->format, "plain, vdif or raw");
        if (strcmp(t->pacing, "kernel") == 0)
                c->pacing = STREAM_PACING_KERNEL;
        else if (strcmp(t->pacing, "txtime") == 0)
                c->pacing = STREAM_PACING_TXTIME;
        else if (strcmp(t->pacing, "thread") != 0)
                return options_refuse("stream send", "pacing", t->pacing, "thread, kernel or txtime");
        if (t->packet_size && (quantity_parse_bytes(t->packet_size, &n) < 0 || n == 0 ||
                               n > (c->raw.tcp ? TCP_MOST_BYTES : PACKET_MOST_BYTES)))
                return options_refuse("stream send", "packet-size", t->packet_size,
                                      "bytes of UDP payload, e.g. 1472");
        c->packet_bytes = (uint32_t)n;
        c->frames_per_second = (uint32_t)t->frame_rate;
        return OPTIONS_GO_ON;
}

/* Reads one receiver, or the receivers of a group, separated by commas. */
static int read_receivers(const struct send_texts *t, struct stream_send_config *c)
{
        char word[NET_ADDRESS_TEXT_MAX];
        const char *at = t->stream.common.words[0];

        for (bool more = true; more; c->n_receivers++) {
                size_t n = strcspn(at, ",");
                int r;

                if (c->n_receivers == (c->raw.grouped ? STREAM_RECEIVERS_MAX : 1)) {
                        fprintf(stderr, "evb stream send: %s: expected %s\n", t->stream.common.words[0],
                                c->raw.grouped ? "at most 16 receivers"
                                               : "one receiver; several need --raw transport=GROUP:PORT");
                        return 2;
                }
                snprintf(word, sizeof word, "%.*s", (int)MIN(n, sizeof word - 1), at);
                r = stream_read_address("stream send", word, t->listen, &c->at[c->n_receivers]);
                if (r != OPTIONS_GO_ON)
                        return r;
                more = at[n] == ',';
                at += n + 1;
        }
        return OPTIONS_GO_ON;
}

/* Without a control connection, only VDIF is a format that other programs know. */
static int check_control(const struct send_texts *t, const struct stream_send_config *c)
{
        if (!t->no_control || (c->format == STREAM_VDIF && !t->listen && !t->stream.key))
                return OPTIONS_GO_ON;
        fprintf(stderr,
                "evb stream send: --no-control needs --format vdif, and neither --listen nor --key\n");
        return 2;
}

/* Rejects options of raw streams without --format raw, and options that raw streams do not support. */
static int check_raw(const struct send_texts *t, const struct stream_send_config *c)
{
        const char *text = NULL;

        if (c->format != STREAM_RAW &&
            (strcmp(t->transport, "udp") != 0 || t->batch || t->packets || t->warm_up))
                text = "--raw needs --format raw";
        else if (c->format != STREAM_RAW)
                return OPTIONS_GO_ON;
        else if (c->raw.grouped && t->listen)
                text = "--listen contradicts the multicast group of --raw transport; use one of them";
        else if (t->inputs.n > 0 || t->direct)
                text = "--format raw sends zeros; leave --input and --direct out";
        else if (c->pacing != STREAM_PACING_THREAD)
                text = "--format raw needs --pacing thread";
        if (!text)
                return OPTIONS_GO_ON;
        fprintf(stderr, "evb stream send: %s\n", text);
        return 2;
}

static int read_raw(const struct send_texts *t, struct stream_send_config *c)
{
        c->raw.tcp = strcmp(t->transport, "tcp") == 0;
        c->raw.echo = strcmp(t->transport, "echo") == 0;
        c->raw.grouped = !c->raw.tcp && !c->raw.echo && strcmp(t->transport, "udp") != 0;
        if (c->raw.grouped &&
            (net_address_parse_with_port(&c->raw.group, t->transport) < 0 ||
             !net_address_is_multicast(&c->raw.group) || net_address_port(&c->raw.group) == 0))
                return options_refuse(
                        "stream send", "raw transport", t->transport,
                        "udp, tcp, echo, or a multicast group and port, e.g. 239.255.69.1:7100");
        c->batch = (uint32_t)t->n_batch;
        return OPTIONS_GO_ON;
}

static int read_all(const struct send_texts *t, struct stream_send_config *c)
{
        int r = stream_read("stream send", &t->stream, &c->common);

        if (r == OPTIONS_GO_ON)
                r = read_raw(t, c);
        if (r == OPTIONS_GO_ON)
                r = read_receivers(t, c);
        if (r == OPTIONS_GO_ON && strcmp(t->format, "raw") != 0)
                r = stream_check_files("stream send", "input", &t->inputs, NULL);
        if (r == OPTIONS_GO_ON)
                r = read_format(t, c);
        if (r == OPTIONS_GO_ON)
                r = check_raw(t, c);
        if (r == OPTIONS_GO_ON)
                r = check_control(t, c);
        if (r == OPTIONS_GO_ON)
                r = read_spacing(t, c);
        if (r != OPTIONS_GO_ON)
                return r;
        c->raw.duration_ns = c->duration_ns;
        c->input = t->inputs.n > 0 ? t->inputs.values[0] : NULL;
        c->listens = t->listen;
        c->without_control = t->no_control;
        c->direct = t->direct;
        return OPTIONS_GO_ON;
}

struct send_many {
        const struct stream_send_config *config;
        const struct option_list *inputs;
};

static int send_one(void *ctx, size_t i, json_t **ret)
{
        const struct send_many *m = ctx;
        struct stream_send_config c = *m->config;

        stream_number(&c.common, i + 1);
        c.input = m->inputs->values[i];
        return stream_next_port("stream send", &c.at[0], i) ?: stream_send(&c, ret);
}

int stream_send_verb(const struct command *command, int argc, char **argv)
{
        struct send_texts t = {.format = "plain", .pacing = "thread", .transport = "udp", .n_batch = 1};
        struct stream_send_config c = {.wait_ns = 10 * NS_PER_S};
        const struct option_entry own[] = {
                {"input", "SOURCE",
                 "what to send: a file, pattern:SIZE, null:SIZE, or - for standard input; repeatable, for "
                 "several streams",
                 NULL, &t.inputs},
                {"direct", NULL, "read files directly from the disk, past the page cache (O_DIRECT)",
                 &t.direct},
                {"format", "NAME",
                 "plain; vdif, a frame or part in each packet; or raw, zeros that are only counted (default: "
                 "plain)",
                 &t.format},
                {"rate", "RATE",
                 "rate of the data without headers, max, or recorded (default: as the receiver takes them; "
                 "vdif: recorded)",
                 &t.rate},
                {"spacing", "TIME", "time from one packet to the next, e.g. 12us", &t.spacing,
                 OPTION_NUMBER(quantity_parse_time, &c.spacing_ns, 1, SPACING_MOST_NS,
                               "a time from 1ns to 1s, e.g. 12us")},
                {"packet-size", "BYTES",
                 "UDP payload of a packet (default: what the path carries, at most 8972)", &t.packet_size},
                {"pacing", "WHO",
                 "what keeps the rate: thread; kernel, with the qdisc fq; or txtime, a time for each packet, "
                 "with fq or etf (default: thread)",
                 &t.pacing},
                {"frame-rate", "N", "frames per second of a thread (default with --format vdif: as recorded)",
                 OPTION_NUMBER(quantity_parse_count, &t.frame_rate, 1, FRAME_RATE_MOST,
                               "frames per second of one thread")},
                {"duration", "TIME", "end after this time (default: with the input)",
                 OPTION_NUMBER(quantity_parse_time, &c.duration_ns, 0, UINT64_MAX, "a time, e.g. 60s")},
                {"raw", "NAME=VALUE", "how --format raw sends; repeatable"},
                {"transport", "KIND",
                 "udp, tcp, echo (each message comes back before the next one), or GROUP:PORT, multicast to "
                 "several HOST:PORT with commas (default: udp)",
                 &t.transport, .part_of = "raw"},
                {"batch", "N", "messages of one system call, 1 to 64 (default: 1)", &t.batch,
                 .part_of = "raw",
                 OPTION_NUMBER(quantity_parse_count, &t.n_batch, 1, BATCH_MOST, "1 to 64 messages")},
                {"packets", "N", "end after N messages", &t.packets, .part_of = "raw",
                 OPTION_NUMBER(quantity_parse_count, &c.packets_max, 1, UINT64_MAX, "a positive number")},
                {"warm-up", "TIME", "time before --duration that is not measured", &t.warm_up,
                 .part_of = "raw",
                 OPTION_NUMBER(quantity_parse_time, &c.raw.warm_up_ns, 0, TIME_MOST_NS,
                               "a time up to 1 hour, e.g. 1s")},
                {"listen", NULL, "wait at this port for evb stream recv --connect", &t.listen},
                {"no-control", NULL, "send vdif to another program, unconfirmed", &t.no_control},
                {"wait", "TIME", "how long to wait for the receiver to listen (default: 10s)",
                 OPTION_NUMBER(quantity_parse_time, &c.wait_ns, 0, UINT64_MAX, "a time, e.g. 10s")},
        };
        struct option_entry all[ARRAY_SIZE(own) + STREAM_COMMON_OPTIONS];
        json_t *report = NULL;
        int r;

        stream_join_options(&t.stream, own, ARRAY_SIZE(own), all);
        r = options_parse(&t.stream.common, command, all, ARRAY_SIZE(all), 1, argc, argv);

        if (r == OPTIONS_GO_ON)
                r = read_all(&t, &c);
        if (r == OPTIONS_GO_ON) {
                struct send_many many = {&c, &t.inputs};

                r = t.inputs.n <= 1 ? stream_send(&c, &report)
                                    : stream_many(t.inputs.n, send_one, &many, &report);
                r = stream_write_report(&t.stream.common, report, false, r);
        }
        free(t.inputs.values);
        return r;
}
