/* evb live: shows, counts and stores events of a running SFI, with libevb-live. */
#include <evb/live.h>

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

#include "base/quantity.h"
#include "base/strbuf.h"
#include "base/util.h"
#include "cmd/commands.h"
#include "format/eformat.h"
#include "live/live_client.h"
#include "net/key_file.h"
#include "store/event_writer.h"
#include "sys/loop.h"

/* Interval at which the rate line changes and signals are noticed. */
#define LOOK_MS 200
#define RATE_NS NS_PER_S

struct key {
        struct live_client_key functions;
        struct auth_key shared;
        uint8_t nonce[AUTH_NONCE_BYTES];
        struct auth_line line;
};

struct live {
        struct evb_live *client;
        struct key key;
        struct event_writer *writer; /* NULL: no --output */
        const char *output;
        FILE *lines; /* --json, or NULL */
        bool shows_rate, gets_all;
        uint64_t count;         /* events until the end; 0: all */
        uint64_t events, bytes; /* received */
        uint64_t shown_ns, shown_events;
        uint64_t looked_ns; /* when signals were last noticed */
        bool has_ended;     /* the SFI has built all its events */
        bool failed;
};

static time_t utc_now(void)
{
        return (time_t)(clock_utc_ns() / NS_PER_S);
}

/* ---- The key ---- */

static void introduce(void *ctx, char nonce[static AUTH_LINE_TEXT_BYTES])
{
        auth_nonce_format(((struct key *)ctx)->nonce, nonce);
}

static bool begin_lines(void *ctx, const char *nonce)
{
        uint8_t peers[AUTH_NONCE_BYTES];
        struct key *k = ctx;

        if (!auth_nonce_parse(peers, nonce))
                return false;
        auth_line_begin(&k->line, &k->shared, true, k->nonce, peers);
        auth_forget(&k->shared);
        return true;
}

static void seal_line(void *ctx, const char *text, size_t n, char tag[static AUTH_LINE_TEXT_BYTES])
{
        auth_line_seal(&((struct key *)ctx)->line, text, n, tag);
}

static const char *open_line(void *ctx, const char *line, size_t n)
{
        return auth_line_open(&((struct key *)ctx)->line, line, n);
}

static int read_key(struct key *k, const char *path, struct error *e)
{
        struct auth_key master;
        int r = key_file_read(path, &master, e);

        if (r < 0)
                return r;
        auth_derive(&k->shared, &master, AUTH_LIVE);
        auth_forget(&master);
        if (getrandom(k->nonce, sizeof k->nonce, 0) != sizeof k->nonce)
                return error_set(e, -errno, "getrandom: %m");
        k->functions = (struct live_client_key){introduce, begin_lines, seal_line, open_line, k};
        return 0;
}

/* ---- Output ---- */

/* The writer adds a number and an ending to the name, so the finished file must be renamed to the requested
 * name. */
static void rename_output(void *ctx, const struct event_writer_file *file)
{
        struct live *l = ctx;

        if (rename(file->path, l->output) == 0)
                return;
        fprintf(stderr, "%s: %s; the events are in %s\n", l->output, strerror(errno), file->path);
        l->failed = true;
}

static int open_output(struct live *l, const struct evb_live_event *event)
{
        const char *slash = strrchr(l->output, '/'), *name = slash ? slash + 1 : l->output;
        char directory[512], core[200];
        struct event_writer_settings settings = {
                .directory = directory,
                .core_name = core,
                .application = "evb-live",
                .version = (event->format == 5 ? &eformat_5 : &eformat_3)->storage_version,
                .run = event->run,
                .stamped = event->has_number,
                .keeps_cached = true,
                .closed = rename_output,
                .userdata = l,
        };

        snprintf(directory, sizeof directory, "%.*s", (int)(slash ? MAX(slash - l->output, 1) : 1),
                 slash ? l->output : ".");
        snprintf(core, sizeof core, "%s", name);
        return event_writer_new(&l->writer, &settings, utc_now());
}

static bool write_output(struct live *l, const struct evb_live_event *event)
{
        struct iovec iov = {(void *)(uintptr_t)event->data, event->bytes};
        int r = l->writer ? 0 : open_output(l, event);

        if (r >= 0)
                r = event_writer_write(l->writer, &iov, 1, event->bytes, 0, NULL, utc_now());
        /* The next call of evb_live_next() tells the SFI that this event is finished. */
        if (r >= 0 && l->gets_all)
                r = event_writer_flush(l->writer, utc_now());
        if (r < 0)
                fprintf(stderr, "%s: %s\n", l->output, event_writer_describe_error(r));
        return r >= 0;
}

static void write_line(const struct live *l, const struct evb_live_event *event)
{
        const struct evb_live_counts *counts = evb_live_counts(l->client);

        fprintf(l->lines,
                "{\"number\":%" PRIu64 ",\"l1_id\":%u,\"run\":%u,\"trigger_type\":%u,\"status\":%u,\"bytes\":"
                "%zu,\"offered\":%" PRIu64 ",\"given\":%" PRIu64 ",\"skipped\":%" PRIu64 "}\n",
                event->number, event->l1_id, event->run, event->trigger_type, event->status, event->bytes,
                counts->offered, counts->given, counts->skipped);
        fflush(l->lines);
}

static void show_rate(struct live *l, uint64_t now_ns)
{
        const struct evb_live_counts *counts = evb_live_counts(l->client);
        char rate[QUANTITY_TEXT_MAX];

        if (!l->shows_rate || now_ns - l->shown_ns < RATE_NS)
                return;
        quantity_format_real((double)(l->events - l->shown_events) * 1e9 / (double)(now_ns - l->shown_ns),
                             "Hz", rate);
        fprintf(stderr, "\r%" PRIu64 " events, %s; %" PRIu64 " offered, %" PRIu64 " skipped\033[K", l->events,
                rate, counts->offered, counts->skipped);
        l->shown_ns = now_ns;
        l->shown_events = l->events;
}

/* ---- Events ---- */

static bool process(struct live *l, const struct evb_live_event *event)
{
        l->events++;
        l->bytes += event->bytes;
        if (l->output && !write_output(l, event))
                return false;
        if (l->lines)
                write_line(l, event);
        return true;
}

/* A system call for each event would cost as much as the event. */
static bool is_interrupted(struct live *l, uint64_t now_ns)
{
        if (now_ns - l->looked_ns < LOOK_MS * NS_PER_MS)
                return false;
        l->looked_ns = now_ns;
        return signals_are_waiting();
}

static int receive(struct live *l)
{
        uint64_t now_ns = clock_now_ns();

        while (!l->has_ended && !is_interrupted(l, now_ns) && (l->count == 0 || l->events < l->count)) {
                const struct evb_live_event *event;
                int r = evb_live_next(l->client, LOOK_MS, &event);

                if (r < 0 && r != -EAGAIN && r != -EINTR) {
                        fprintf(stderr, "evb live: %s\n", evb_live_error(l->client));
                        return 1;
                }
                if (r > 0 && !process(l, event))
                        return 1;
                l->has_ended = r == 0;
                now_ns = clock_now_ns();
                show_rate(l, now_ns);
        }
        /* Events that are not released go to the others of the group. */
        evb_live_release(l->client);
        return 0;
}

static int finish(struct live *l, int status)
{
        const struct evb_live_counts *counts = evb_live_counts(l->client);
        int r = l->writer ? event_writer_close(l->writer, utc_now()) : 0;
        char bytes[QUANTITY_TEXT_MAX];

        event_writer_free(l->writer);
        if (r < 0) {
                fprintf(stderr, "%s: %s\n", l->output, event_writer_describe_error(r));
                status = 1;
        }
        if (l->shows_rate)
                fprintf(stderr, "\r\033[K");
        if (l->gets_all && l->has_ended && counts->skipped > 0) {
                fprintf(stderr,
                        "evb live: %" PRIu64
                        " events are missing: at the end of the run, the SFI waits 10 s or "
                        "dfm.node-timeout for room, and larger events than half the ring (--ring) have "
                        "none\n",
                        counts->skipped);
                status = 1;
        }
        if (!l->lines)
                printf("%" PRIu64 " events, %s; %" PRIu64 " offered, %" PRIu64 " skipped\n", l->events,
                       quantity_format_bytes(l->bytes, bytes), counts->offered, counts->skipped);
        return l->failed ? 1 : status;
}

/* ---- Command line ---- */

/* The options of a request have the same names as its settings in the protocol, and the protocol's parser
 * checks them. */
static int make_request(const struct option_entry *options, size_t n, char text[static LIVE_LINE_MAX])
{
        struct strbuf b = strbuf_init(text, LIVE_LINE_MAX - 1);
        struct live_request request;
        struct error e = {};

        strbuf_add(&b, LIVE_GREETING);
        for (const struct option_entry *o = options; o < options + n; o++) {
                if (*o->value)
                        strbuf_add(&b, " %s=%s", o->name, *o->value);
        }
        if (!b.cut && live_request_parse(&request, text, &e) >= 0)
                return OPTIONS_GO_ON;
        fprintf(stderr, "evb live: %s\n", b.cut ? "the options are too long" : e.message);
        return 2;
}

int cmd_live(int argc, char **argv)
{
        static const struct command command = {"live", cmd_live, "ADDRESS",
                                               "Receive events of a running SFI, at its live.listen.",
                                               OPTION_JSON | OPTION_PROGRESS};
        const char *values[9] = {}, *key = NULL;
        struct live l = {};
        const struct option_entry own[] = {
                {"mode", "MODE",
                 "newest: an event only while this program waits for one; skip: each event that fits; all: "
                 "each "
                 "event, and the run waits (default: newest)",
                 &values[0]},
                {"stride", "N[:K]", "one of N events: number K of each N, below N (default: 1:0)",
                 &values[1]},
                {"offset", "K", "", &values[2], .now = "--stride N:K"},
                {"fraction", "F", "a share of the events, chosen by their numbers, e.g. 1%", &values[3]},
                {"seed", "N", "with --fraction, choose others (default: 1)", &values[4]},
                {"trigger-type", "N,...", "only events of these trigger types (default: all)", &values[5]},
                {"status", "STATUS", "any, complete or partial events (default: any)", &values[6]},
                {"group", "NAME", "share the events with all programs that name this group", &values[7]},
                {"ring", "BYTES",
                 "memory for events that wait; one event may have half of it (default: 16MiB)", &values[8]},
                {"key", "FILE", "over TCP, the key of the SFI (its network.key-file)", &key},
                {"output", "FILE", "write the events to a new event file", &l.output},
                {"count", "N", "end after N events (default: at the end of the run)",
                 OPTION_NUMBER(quantity_parse_count, &l.count, 1, UINT64_MAX, "1 or more")},
        };
        char request[LIVE_LINE_MAX], stride[LIVE_LINE_MAX];
        struct error e = {};
        struct options o;
        int r = options_parse(&o, &command, own, ARRAY_SIZE(own), 1, argc, argv);

        if (values[1] && strchr(values[1], ':')) {
                values[2] = strchr(values[1], ':') + 1;
                snprintf(stride, sizeof stride, "%.*s", (int)strcspn(values[1], ":"), values[1]);
                values[1] = stride;
        }
        if (r == OPTIONS_GO_ON)
                r = make_request(own, ARRAY_SIZE(values), request);
        l.gets_all = values[0] && strcmp(values[0], "all") == 0;
        if (r != OPTIONS_GO_ON)
                return r;
        if (l.output && access(l.output, F_OK) == 0) {
                fprintf(stderr, "evb live: %s exists; expected the name of a new file\n", l.output);
                return 2;
        }
        signals_hold();
        r = key ? read_key(&l.key, key, &e) : 0;
        /* The library adds the greeting. */
        if (r >= 0)
                r = live_library_connect(&l.client, o.words[0], request + strlen(LIVE_GREETING),
                                         key ? &l.key.functions : NULL, &e);
        if (r < 0) {
                fprintf(stderr, "evb live: %s\n", e.message);
                return r == -EINVAL || (key && !l.key.functions.ctx) ? 2 : 1;
        }
        if (o.json && !(l.lines = options_open_json(&o)))
                return 2;
        l.shows_rate = options_wants_progress(&o);
        l.shown_ns = clock_now_ns();
        r = finish(&l, receive(&l));
        evb_live_close(l.client);
        return options_close_json(&o, l.lines, r);
}
