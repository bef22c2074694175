/* evb listen: shows the first frames of a board, counts frames, and proposes `frame` and `event-number`. It
 * receives as a ROS does, but stores nothing. */
#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/quantity.h"
#include "base/util.h"
#include "cmd/commands.h"
#include "conf/scenario.h"
#include "data/front_end.h"
#include "data/network.h"
#include "net/endpoint.h"
#include "net/tcp.h"
#include "protocol/event.h"
#include "sys/loop.h"

/* Interval at which the rate line changes and signals are noticed. */
#define LOOK_MS 200
#define RATE_NS NS_PER_S
#define SAMPLE_BYTES (1u << 20)
/* A stream is cut into frames in this memory. */
#define STREAM_BYTES (EVB_FRAGMENT_MAX_BYTES + (1u << 20))
#define READ_BYTES (256u << 10)
#define RECEIVE_BUFFER_BYTES (8u << 20)
#define CONNECT_NS (5 * NS_PER_S)
/* Bytes shown of a frame, and of a stream without a rule. */
#define SHOWN_BYTES 64u
#define SHOWN_STREAM_BYTES 256u
#define LINE_BYTES 16u
#define SHOW_DEFAULT 3
#define WHY_MAX 400

struct listen {
        struct options options;
        const char *source, *config, *frame_text, *number_text, *local_text;
        uint64_t show, count, duration_ns; /* count and duration: 0 without an end */
        struct scenario *scenario;
        const struct scenario_node *node;
        bool tcp, has_frame;
        struct frame_rule frame;
        struct net_address local;

        struct endpoint *endpoint; /* UDP */
        struct tcp_reader reader;  /* TCP */
        int fd;
        uint8_t *stream; /* bytes of a stream that are not yet cut */
        size_t n_stream, scanned;
        bool has_ended;

        uint64_t begin_ns, first_ns, last_ns;
        uint64_t frames, bytes, malformed, foreign_bytes, dropped;
        size_t least_bytes, most_bytes;
        uint64_t number, first_number, gaps, repeats, unnumbered; /* of the configured event-number */
        bool has_number;
        char why[WHY_MAX]; /* the first malformed datagram or wrong byte */

        uint8_t *sample;
        size_t sample_bytes, n_sizes;
        uint32_t sizes[FRAME_CUT_MAX];
        struct frame_guess guess;

        json_t *shown; /* --json: the first frames */
        bool shows_rate;
        uint64_t rate_ns, rate_frames, rate_bytes;
};

/* ---- Output ---- */

static void print_line(const uint8_t *bytes, size_t at, size_t n)
{
        printf("  %04zx ", at);
        for (size_t i = 0; i < LINE_BYTES; i++) {
                if (i % 8 == 0)
                        putchar(' ');
                if (i < n)
                        printf("%02x ", bytes[at + i]);
                else
                        printf("   ");
        }
        printf(" |");
        for (size_t i = 0; i < n; i++)
                putchar(bytes[at + i] >= ' ' && bytes[at + i] <= '~' ? bytes[at + i] : '.');
        printf("|\n");
}

static void print_bytes(const uint8_t *bytes, size_t n, size_t most)
{
        for (size_t at = 0; at < MIN(n, most); at += LINE_BYTES)
                print_line(bytes, at, MIN(MIN(n, most) - at, (size_t)LINE_BYTES));
        if (n > most)
                printf("  ...\n");
}

static json_t *hex_of(const uint8_t *bytes, size_t n)
{
        char text[2 * SHOWN_BYTES + 1] = "";

        for (size_t i = 0; i < MIN(n, (size_t)SHOWN_BYTES); i++)
                snprintf(text + 2 * i, 3, "%02x", bytes[i]);
        return json_string(text);
}

/* JSON has no larger integers than INT64_MAX here. */
static json_t *number_or_null(const uint64_t *number)
{
        if (!number)
                return json_null();
        return *number <= INT64_MAX ? json_integer((json_int_t)*number) : json_real((double)*number);
}

/* `number`: NULL if the frame has none. */
static void show_frame(struct listen *l, const char *what, uint64_t i, const uint8_t *bytes, size_t n,
                       const uint64_t *number)
{
        if (l->options.json) {
                json_array_append_new(l->shown, json_pack("{s:I, s:o, s:o}", "bytes", (json_int_t)n, "number",
                                                          number_or_null(number), "hex", hex_of(bytes, n)));
                return;
        }
        printf("%s %" PRIu64 ", %zu bytes", what, i, n);
        if (number)
                printf(", number %" PRIu64, *number);
        printf(":\n");
        print_bytes(bytes, n, SHOWN_BYTES);
        fflush(stdout);
}

static void show_rate(struct listen *l, uint64_t now_ns)
{
        char frames[QUANTITY_TEXT_MAX], bytes[QUANTITY_TEXT_MAX];
        double seconds = (double)(now_ns - l->rate_ns) / 1e9;

        if (!l->shows_rate || now_ns - l->rate_ns < RATE_NS)
                return;
        fprintf(stderr, "\r%" PRIu64 " frames, %s, %s\033[K", l->frames,
                quantity_format_real((double)(l->frames - l->rate_frames) / seconds, "Hz", frames),
                quantity_format_real((double)(l->bytes - l->rate_bytes) / seconds, "B/s", bytes));
        l->rate_ns = now_ns;
        l->rate_frames = l->frames;
        l->rate_bytes = l->bytes;
}

/* ---- Frames ---- */

static void record_sample(struct listen *l, const uint8_t *bytes, size_t n)
{
        size_t room = SAMPLE_BYTES - l->sample_bytes;

        if (!l->tcp && (n > room || l->n_sizes == FRAME_CUT_MAX))
                return;
        memcpy(l->sample + l->sample_bytes, bytes, MIN(n, room));
        l->sample_bytes += MIN(n, room);
        if (!l->tcp)
                l->sizes[l->n_sizes++] = (uint32_t)n;
}

static void record_number(struct listen *l, uint64_t number)
{
        uint64_t period = number_field_period(&l->node->board.number), step;

        assert(period > 0);
        if (!l->has_number)
                l->first_number = number;
        else {
                step = (number + period - l->number % period) % period;
                l->repeats += step == 0;
                l->gaps += step > 1;
        }
        l->has_number = true;
        l->number = number;
}

/* A frame or, without a rule, a datagram. */
static void receive_frame(struct listen *l, const uint8_t *bytes, size_t n)
{
        const struct number_field *field = &l->node->board.number;
        uint32_t skip = l->has_frame ? l->frame.skip_bytes : 0;
        uint64_t number;
        bool numbered = field->bits > 0 && number_read(field, bytes + skip, n - skip, &number);

        l->frames++;
        l->least_bytes = l->frames == 1 ? n : MIN(l->least_bytes, n);
        l->most_bytes = MAX(l->most_bytes, n);
        if (numbered)
                record_number(l, number);
        else
                l->unnumbered += field->bits > 0;
        if (l->frames <= l->show)
                show_frame(l, l->has_frame ? "frame" : "datagram", l->frames, bytes + skip, n - skip,
                           numbered ? &number : NULL);
}

static bool is_done(const struct listen *l)
{
        return l->count > 0 && l->frames + l->malformed >= l->count;
}

static void receive_datagram(struct listen *l, const struct datagram *d)
{
        size_t at = 0, bytes, scanned;

        record_sample(l, d->bytes, d->size_bytes);
        l->bytes += d->size_bytes;
        if (!l->has_frame) {
                receive_frame(l, d->bytes, d->size_bytes);
                return;
        }
        do {
                scanned = 0;
                if (frame_find(&l->frame, d->bytes + at, d->size_bytes - at, true, EVB_FRAGMENT_MAX_BYTES,
                               &scanned, &bytes) != FRAME_FOUND ||
                    bytes > d->size_bytes - at) {
                        if (l->malformed++ == 0)
                                front_end_explain_datagram(&l->frame, d->bytes, d->size_bytes, at, l->why,
                                                           sizeof l->why);
                        return;
                }
                receive_frame(l, d->bytes + at, bytes);
                at += bytes;
        } while (at < d->size_bytes && !is_done(l));
}

/* Cuts the frames that have arrived. Returns the number of bytes that are not needed any more. */
static size_t cut_stream(struct listen *l)
{
        size_t at = 0, bytes;

        while (at < l->n_stream && !is_done(l)) {
                const uint8_t *from = l->stream + at;
                size_t n = l->n_stream - at;
                enum frame_result r = frame_find(&l->frame, from, n, l->has_ended, EVB_FRAGMENT_MAX_BYTES,
                                                 &l->scanned, &bytes);

                if (r == FRAME_WRONG && !l->has_ended) {
                        l->malformed++;
                        l->has_ended = true;
                        front_end_explain_start(&l->frame, from, n, l->why, sizeof l->why);
                        return l->n_stream;
                }
                if (r == FRAME_FOREIGN) {
                        if (l->foreign_bytes == 0)
                                front_end_explain_foreign(&l->frame, from, n, l->why, sizeof l->why);
                        l->foreign_bytes += bytes;
                        l->scanned -= MIN(l->scanned, bytes);
                } else if (r == FRAME_FOUND && bytes <= n) {
                        receive_frame(l, from, bytes);
                        l->scanned = 0;
                } else
                        break;
                at += bytes;
        }
        return at;
}

static void receive_bytes(struct listen *l, size_t n)
{
        const uint8_t *bytes = l->stream + l->n_stream;
        size_t done;

        record_sample(l, bytes, n);
        l->bytes += n;
        l->n_stream += n;
        done = l->has_frame ? cut_stream(l) : l->n_stream;
        l->n_stream -= done;
        memmove(l->stream, l->stream + done, l->n_stream);
        /* There is enough for a proposal. */
        l->has_ended |= !l->has_frame && l->sample_bytes == SAMPLE_BYTES;
}

/* ---- Sockets ---- */

static int fail(const struct listen *l, int r, const char *what)
{
        fprintf(stderr, "evb listen: %s %s: %s%s\n", what, l->source, strerror(-r),
                r == -EADDRINUSE ? "; is its ROS running?" : "");
        return 1;
}

static int open_udp(struct listen *l)
{
        struct udp_config config = {.local = l->local, .receive_buffer_bytes = RECEIVE_BUFFER_BYTES};
        const char *at = l->node->source_at, *colon = strrchr(at, ':');
        struct net_address group;
        int r;

        net_address_set_port(&config.local, (uint16_t)atoi(colon ? colon + 1 : at));
        if (net_address_parse_with_port(&group, at) == 0 && net_address_is_multicast(&group))
                config.group = &group;
        r = endpoint_new_udp(&l->endpoint, &config);
        if (r < 0)
                return fail(l, r, "cannot listen at");
        l->fd = l->endpoint->fd;
        return 0;
}

static int open_tcp(struct listen *l)
{
        struct net_address to;
        int r = net_address_parse_with_port(&to, l->node->source_at);
        struct pollfd p = {.events = POLLOUT};
        uint64_t end_ns = clock_now_ns() + CONNECT_NS;

        l->fd = r < 0 ? r : tcp_connect(&l->local, &to, 0);
        if (l->fd < 0)
                return fail(l, l->fd, "cannot connect to");
        p.fd = l->fd;
        while (poll(&p, 1, LOOK_MS) == 0) {
                if (signals_are_waiting() || clock_now_ns() >= end_ns)
                        return fail(l, -ETIMEDOUT, "cannot connect to");
        }
        r = tcp_connected(l->fd);
        if (r < 0)
                return fail(l, r, "cannot connect to");
        l->stream = malloc(STREAM_BYTES);
        r = l->stream ? tcp_reader_init(&l->reader, l->fd, READ_BYTES) : -ENOMEM;
        return r < 0 ? fail(l, r, "cannot connect to") : 0;
}

static bool receive_udp(struct listen *l)
{
        struct datagram d[32];
        int n = endpoint_receive(l->endpoint, d, ARRAY_SIZE(d));

        for (int i = 0; i < n && !is_done(l); i++)
                receive_datagram(l, &d[i]);
        return n > 0;
}

static bool receive_tcp(struct listen *l)
{
        ssize_t n = tcp_reader_read(&l->reader, l->stream + l->n_stream,
                                    MIN((size_t)READ_BYTES, STREAM_BYTES - l->n_stream));

        if (n < 0) {
                l->has_ended = true;
                receive_bytes(l, 0);
                return true;
        }
        receive_bytes(l, (size_t)n);
        return n > 0;
}

static void receive(struct listen *l)
{
        struct pollfd p = {.fd = l->fd, .events = POLLIN};

        while (!is_done(l) && !l->has_ended && !signals_are_waiting()) {
                uint64_t now_ns = clock_now_ns();

                if (l->duration_ns > 0 && now_ns - l->begin_ns >= l->duration_ns)
                        return;
                if (l->tcp ? receive_tcp(l) : receive_udp(l)) {
                        l->last_ns = clock_now_ns();
                        l->first_ns = l->first_ns ?: l->last_ns;
                } else
                        (void)poll(&p, 1, LOOK_MS);
                show_rate(l, now_ns);
        }
}

/* ---- The end ---- */

static void propose(struct listen *l)
{
        struct frame_sample sample = {l->sample, l->sample_bytes, l->tcp ? NULL : l->sizes, l->n_sizes};

        if (l->sample_bytes == 0)
                return;
        if (!l->has_frame || l->malformed > 0)
                frame_guess(&l->guess, &sample);
        else
                frame_guess_number(&l->guess, &sample, &l->frame);
        if (l->has_frame || !l->guess.has_frame || !l->tcp)
                return;
        for (size_t i = 0; i < MIN(l->guess.cut.n, l->show); i++) {
                const uint8_t *bytes = l->sample + l->guess.cut.at[i] + l->guess.frame.skip_bytes;
                size_t n = l->guess.cut.bytes[i] - l->guess.frame.skip_bytes;
                uint64_t number;

                show_frame(l, "frame", i + 1, bytes, n,
                           l->guess.number.bits > 0 && number_read(&l->guess.number, bytes, n, &number)
                                   ? &number
                                   : NULL);
        }
        l->frames = l->guess.cut.n;
        l->least_bytes = l->guess.cut.least_bytes;
        l->most_bytes = l->guess.cut.most_bytes;
}

static void print_proposal(const struct listen *l)
{
        const struct frame_guess *g = &l->guess;
        char frame[FRAME_TEXT_MAX], number[NUMBER_FIELD_TEXT_MAX];

        if (g->has_frame)
                printf("proposal: frame = %s\n", frame_rule_format(&g->frame, frame));
        else if (!l->has_frame && l->bytes > 0)
                printf("no proposal: the bytes show no length, no fixed size and no marker; send more "
                       "frames, or see the manual of the board\n");
        if (g->number.bits > 0 && (l->node->board.number.bits == 0 || g->has_frame))
                printf("proposal: event-number = %s\n  It goes from %" PRIu64 " to %" PRIu64
                       " in these frames. Bits that did not change may not belong to it.\n",
                       number_field_format(&g->number, number), g->first, g->last);
        else if (l->node->board.number.bits == 0 && l->frames > 1)
                printf("no proposal: no field of the frames counts up\n");
        if (g->number.bits > 0 && g->gaps > 0)
                printf("  It skips numbers %zu times.\n", g->gaps);
        if (g->number.bits > 0 && g->repeats > 0)
                printf("  Several frames have the same number: see `fragments` in evb.conf(5).\n");
}

static double frame_rate(const struct listen *l)
{
        double seconds = (double)(l->last_ns - l->first_ns) / 1e9;

        return seconds > 0 && l->frames > 1 ? (double)(l->frames - 1) / seconds : 0;
}

static void print_report(const struct listen *l)
{
        char bytes[QUANTITY_TEXT_MAX], rate[QUANTITY_TEXT_MAX];

        if (!l->has_frame && l->tcp && !l->guess.has_frame) {
                printf("the stream begins with:\n");
                print_bytes(l->sample, l->sample_bytes, SHOWN_STREAM_BYTES);
        }
        printf("%" PRIu64 " %s, %s", l->frames, l->has_frame || l->tcp ? "frames" : "datagrams",
               quantity_format_bytes(l->bytes, bytes));
        if (l->frames > 0)
                printf("; each has %zu to %zu bytes", l->least_bytes, l->most_bytes);
        if (frame_rate(l) > 0)
                printf("; %s", quantity_format_real(frame_rate(l), "Hz", rate));
        printf("\n");
        if (l->has_number)
                printf("numbers %" PRIu64 " to %" PRIu64 "; %" PRIu64 " gaps, %" PRIu64
                       " frames with the number of the frame before\n",
                       l->first_number, l->number, l->gaps, l->repeats);
        if (l->unnumbered > 0)
                printf("%" PRIu64 " frames are too short for event-number\n", l->unnumbered);
        if (l->foreign_bytes > 0)
                printf("%" PRIu64 " bytes are in no frame: %s\n", l->foreign_bytes, l->why);
        if (l->dropped > 0)
                printf("%" PRIu64 " datagrams dropped, as the socket buffer was full\n", l->dropped);
        print_proposal(l);
}

static json_t *report_json(struct listen *l)
{
        const struct frame_guess *g = &l->guess;
        char frame[FRAME_TEXT_MAX], number[NUMBER_FIELD_TEXT_MAX];
        double seconds = (double)(l->last_ns - l->first_ns) / 1e9;

        frame_rule_format(&g->frame, frame);
        number_field_format(&g->number, number);
        return json_pack("{s:s, s:I, s:I, s:f, s:f, s:f, s:I, s:I, s:I, s:I, s:I, s:o, s:o, s:O}", "source",
                         l->source, "frames", (json_int_t)l->frames, "bytes", (json_int_t)l->bytes, "seconds",
                         seconds, "frame_rate_hz", frame_rate(l), "throughput_bytes_per_second",
                         seconds > 0 ? (double)l->bytes / seconds : 0.0, "frame_bytes_min",
                         (json_int_t)l->least_bytes, "frame_bytes_max", (json_int_t)l->most_bytes,
                         "malformed", (json_int_t)l->malformed, "foreign_bytes", (json_int_t)l->foreign_bytes,
                         "number_gaps", (json_int_t)(l->has_number ? l->gaps : g->gaps), "frame",
                         json_text(g->has_frame ? frame : ""), "event_number",
                         json_text(g->number.bits > 0 ? number : ""), "first_frames", l->shown);
}

static int finish(struct listen *l)
{
        int status = 0;

        if (l->shows_rate)
                fprintf(stderr, "\r\033[K");
        if (l->endpoint)
                l->dropped = endpoint_counts(l->endpoint)->dropped;
        propose(l);
        if (!l->options.json)
                print_report(l);
        if (l->malformed > 0) {
                fprintf(stderr, "evb listen: %" PRIu64 " %s not as `frame` says; the first: %s\n",
                        l->malformed, l->tcp ? "frame is" : "datagrams are", l->why);
                status = 1;
        }
        if (l->bytes + l->frames + l->malformed == 0) {
                fprintf(stderr, "evb listen: nothing came from %s\n", l->source);
                status = 1;
        }
        return l->options.json ? options_write_json(&l->options, report_json(l), status) : status;
}

/* ---- Command line ---- */

static const struct command command = {"listen", cmd_listen, "SOURCE",
                                       "Show and count the frames of a board, and propose keys for its ROS.",
                                       OPTION_SET | OPTION_JSON | OPTION_PROGRESS};

/* SOURCE is that of a ROS, which exists for this command only. */
static int load_source(struct listen *l)
{
        const char *settings[OPTIONS_SETTINGS_MAX + 5] = {"ros.count=1", "sfi.count=1"};
        char texts[3][SCENARIO_TEXT_MAX + 32];
        const struct {
                const char *key, *value;
        } keys[] = {{"ros.source", l->source},
                    {"ros.frame", l->frame_text},
                    {"ros.event-number", l->number_text}};
        struct error e = {};
        size_t n = 2;

        for (size_t i = 0; i < ARRAY_SIZE(keys); i++) {
                if (!keys[i].value)
                        continue;
                snprintf(texts[i], sizeof texts[i], "%s=%s", keys[i].key, keys[i].value);
                settings[n++] = texts[i];
        }
        memcpy(settings + n, l->options.settings, l->options.n_settings * sizeof *settings);
        if (command_load_one(&l->scenario, "/dev/null", settings, n + l->options.n_settings, &e) < 0) {
                fprintf(stderr, "evb listen: %s\n", e.message);
                return 2;
        }
        l->node = scenario_node_of(l->scenario, ROLE_ROS, 0);
        l->has_frame = l->frame_text;
        return OPTIONS_GO_ON;
}

static int load_node(struct listen *l)
{
        const char *path = l->config ?: command_default_config();
        char names[COMMAND_NODES_MAX];

        if (l->frame_text || l->number_text) {
                fprintf(stderr, "evb listen: --%s is not for a ROS of a scenario, which has this key\n",
                        l->frame_text ? "frame" : "event-number");
                return 2;
        }
        if (!path) {
                fprintf(stderr,
                        "evb listen: \"%s\" is not a source; expected udp:PORT, udp:HOST:PORT or "
                        "tcp:HOST:PORT, or with --config FILE the name of a ROS\n",
                        l->source);
                return 2;
        }
        l->scenario = command_load(path, &l->options);
        if (!l->scenario)
                return 2;
        l->node = scenario_find(l->scenario, l->source);
        l->has_frame = true;
        if (l->node && l->node->role == ROLE_ROS)
                return OPTIONS_GO_ON;
        fprintf(stderr, "evb listen: \"%s\" is not a ROS of %s; expected one of its ROSs%s\n", l->source,
                path, command_list_nodes(l->scenario, ROLE_ROS, names));
        return 2;
}

/* Any address of this machine, of the family of the source. */
static int find_local(struct listen *l)
{
        struct net_address at;
        bool is_v6 =
                net_address_parse_with_port(&at, l->node->source_at) == 0 && at.any.sa_family == AF_INET6;

        if (l->local_text)
                return net_address_parse(&l->local, l->local_text, 0) == 0
                               ? OPTIONS_GO_ON
                               : options_refuse("listen", "local", l->local_text,
                                                "an address of this machine");
        if (l->node->address[0])
                return network_front_end_address(&l->local, l->node) < 0 ? 2 : OPTIONS_GO_ON;
        (void)net_address_parse(&l->local, is_v6 ? "::" : "0.0.0.0", 0);
        if (!l->tcp && strchr(l->node->source_at, ':') && !net_address_is_multicast(&at))
                l->local = at;
        return OPTIONS_GO_ON;
}

static int prepare(struct listen *l)
{
        int r = strchr(l->source, ':') ? load_source(l) : load_node(l);

        if (r != OPTIONS_GO_ON)
                return r;
        if (!scenario_has_front_end(l->node)) {
                fprintf(stderr, "evb listen: %s has no board; expected a source udp: or tcp:\n", l->source);
                return 2;
        }
        l->tcp = l->node->source_kind == SOURCE_TCP;
        l->frame = l->node->board.frame;
        if (l->tcp && !l->has_frame && l->count > 0) {
                fprintf(stderr, "evb listen: --count: without --frame, the frames of a stream are not known; "
                                "expected both, or --duration\n");
                return 2;
        }
        return find_local(l);
}

static void close_all(struct listen *l)
{
        if (l->tcp && l->fd >= 0)
                close(l->fd);
        tcp_reader_fini(&l->reader);
        endpoint_free(l->endpoint);
        json_decref(l->shown);
        free(l->stream);
        free(l->sample);
        free(l->scenario);
        free(l);
}

static int listen_to(struct listen *l)
{
        int r = prepare(l);

        if (r != OPTIONS_GO_ON)
                return r;
        l->sample = malloc(SAMPLE_BYTES);
        l->shown = json_array();
        if (!l->sample || !l->shown)
                return fail(l, -ENOMEM, "cannot listen at");
        signals_hold();
        r = l->tcp ? open_tcp(l) : open_udp(l);
        if (r != 0)
                return r;
        l->shows_rate = options_wants_progress(&l->options);
        if (l->shows_rate)
                fprintf(stderr, "listening to %s; Ctrl-C ends\n", l->source);
        l->begin_ns = l->rate_ns = clock_now_ns();
        receive(l);
        return finish(l);
}

static int run(struct listen *l, int argc, char **argv)
{
        const struct option_entry own[] = {
                {"frame", "RULE", "frame, as a ROS has it (default: each datagram; a stream is not cut)",
                 &l->frame_text},
                {"event-number", "FIELD", "event-number, as a ROS has it", &l->number_text},
                {"config", "FILE", "scenario, if SOURCE is the name of one of its ROSs", &l->config},
                {"local", "ADDRESS", "address of this machine (default: any), whose device joins a group",
                 &l->local_text},
                {"show", "N", "show the first N frames (default: 3)",
                 OPTION_NUMBER(quantity_parse_count, &l->show, 0, UINT64_MAX, "a number of frames")},
                {"count", "N",
                 "end after N frames, also malformed ones (default: at Ctrl-C, or the end of the stream)",
                 OPTION_NUMBER(quantity_parse_count, &l->count, 1, UINT64_MAX, "1 or more")},
                {"duration", "TIME", "end after this time",
                 OPTION_NUMBER(quantity_parse_time, &l->duration_ns, 1, UINT64_MAX, "a time, e.g. 10s")},
        };
        int r = options_parse(&l->options, &command, own, ARRAY_SIZE(own), 1, argc, argv);

        l->source = l->options.words[0];
        return r == OPTIONS_GO_ON ? listen_to(l) : r;
}

int cmd_listen(int argc, char **argv)
{
        struct listen *l = calloc(1, sizeof *l);
        int r;

        if (!l)
                return 1;
        l->fd = -1;
        l->show = SHOW_DEFAULT;
        r = run(l, argc, argv);
        close_all(l);
        return r;
}
