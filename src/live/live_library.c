/* libevb-live: a connection to an SFI for programs of other people, and for `evb live`. Events are copied out
 * of the shared memory before they are checked, so that the SFI cannot change them between check and use. */
#include <evb/live.h>

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/util.h"
#include "format/eformat.h"
#include "live/live_client.h"

#define FRAGMENTS_AT_START 64u
#define BYTES_AT_START (64u << 10)

struct evb_live {
        struct live_client client;
        struct evb_live_event event;
        struct evb_live_counts counts;
        uint8_t *bytes; /* of the event */
        size_t n_bytes_room;
        struct evb_live_fragment *fragments;
        size_t n_fragments_room;
        struct eformat_fragment head; /* of the event that is being read */
        char error[ERROR_MESSAGE_MAX];
};

/* ---- Connection ---- */

/* Puts the request together. The server checks names and values; a line break would begin another request. */
static int make_request(const char *options, char request[static LIVE_LINE_MAX], struct error *e)
{
        size_t n =
                (size_t)snprintf(request, LIVE_LINE_MAX, LIVE_GREETING "%s%s", *options ? " " : "", options);

        if (n >= LIVE_LINE_MAX - 1)
                return error_set(e, -EINVAL, "the options are too long");
        if (strpbrk(request, "\r\n"))
                return error_set(e, -EINVAL, "the options contain a line break");
        return 0;
}

int live_library_connect(struct evb_live **ret, const char *address, const char *options,
                         const struct live_client_key *key, struct error *e)
{
        char request[LIVE_LINE_MAX];
        struct evb_live *live;
        int r = make_request(options, request, e);

        if (r < 0)
                return r;
        live = calloc(1, sizeof *live);
        if (!live)
                return error_set(e, -ENOMEM, "%m");
        r = live_client_open(&live->client, address, request, key, e);
        if (r < 0) {
                free(live);
                return r;
        }
        *ret = live;
        return 0;
}

int evb_live_connect(struct evb_live **ret, const char *address, const char *options, char *error,
                     size_t error_bytes)
{
        struct error e = {};
        int r = live_library_connect(ret, address, options ? options : "", NULL, &e);

        if (error_bytes > 0)
                snprintf(error, error_bytes, "%s", e.message);
        return r;
}

void evb_live_close(struct evb_live *live)
{
        if (!live)
                return;
        live_client_close(&live->client);
        free(live->bytes);
        free(live->fragments);
        free(live);
}

int evb_live_descriptor(const struct evb_live *live)
{
        return live->client.fd;
}

const char *evb_live_error(const struct evb_live *live)
{
        return live->error;
}

const struct evb_live_counts *evb_live_counts(const struct evb_live *live)
{
        return &live->counts;
}

void evb_live_release(struct evb_live *live)
{
        live_client_release(&live->client);
}

/* ---- Events ---- */

/* Makes room for `n` items of `size` bytes. */
static int reserve(void *items, size_t *room, size_t n, size_t at_start, size_t size)
{
        size_t more = MAX(n, *room > 0 ? 2 * *room : at_start);
        void *found;

        if (n <= *room)
                return 0;
        found = reallocarray(*(void **)items, more, size);
        if (!found)
                return -ENOMEM;
        *(void **)items = found;
        *room = more;
        return 0;
}

static void read_rod(const struct eformat_fragment *rod, struct evb_live_fragment *f)
{
        const uint8_t *payload;
        uint32_t bytes;

        if (f->is_missing)
                return;
        f->payload = rod->payload;
        f->bytes = 4 * (size_t)rod->payload_words;
        if (eformat_raw_payload(rod, &payload, &bytes)) {
                f->payload = payload;
                f->bytes = bytes;
        }
}

/* Each ROB is a fragment, and its ROD follows it. */
static int visit(void *userdata, const struct eformat_fragment *f)
{
        struct evb_live *live = userdata;
        size_t *n = &live->event.n_fragments;
        int r;

        if (f->depth == 0)
                live->head = *f;
        if (f->marker == EFORMAT_ROD)
                read_rod(f, &live->fragments[*n - 1]);
        if (f->marker != EFORMAT_ROB)
                return 0;
        r = reserve(&live->fragments, &live->n_fragments_room, *n + 1, FRAGMENTS_AT_START,
                    sizeof *live->fragments);
        if (r < 0)
                return r;
        live->fragments[(*n)++] = (struct evb_live_fragment){
                .source = f->source_id,
                .status = f->n_status > 0 ? eformat_word(f->status, 0) : 0,
                .is_missing = f->n_status > 0 && (eformat_word(f->status, 0) & EFORMAT_DUMMY),
        };
        return 0;
}

static void describe(struct evb_live *live, const struct live_record *record)
{
        struct event_info info;

        eformat_event_info(&live->head, &info);
        live->event = (struct evb_live_event){
                .data = live->bytes,
                .bytes = record->event_bytes,
                .format = live->head.version >> 24,
                .is_complete = !(info.status & EFORMAT_EVENT_PARTIAL),
                .has_number = info.event != UINT64_MAX,
                .number = info.event != UINT64_MAX ? info.event : info.global_id,
                .global_id = info.global_id,
                .time_ns = info.time_s * NS_PER_S + info.time_ns,
                .given_time_ns = record->utc_ns,
                .run = info.run,
                .l1_id = info.l1_id,
                .trigger_type = info.trigger_type,
                .trigger_flags = info.flags,
                .spill = info.spill,
                .status = info.status,
                .n_fragments = live->event.n_fragments,
        };
}

static int fail(struct evb_live *live, int code, const char *text)
{
        snprintf(live->error, sizeof live->error, "%s", text);
        return code;
}

static int read_event(struct evb_live *live, const uint8_t *event, const struct live_record *record)
{
        struct eformat_fault fault = {};
        int r = reserve(&live->bytes, &live->n_bytes_room, record->event_bytes, BYTES_AT_START, 1);

        if (r < 0)
                return fail(live, r, "no memory for the event");
        memcpy(live->bytes, event, record->event_bytes);
        r = eformat_walk(live->bytes, record->event_bytes, visit, live, &fault);
        if (r == -EBADMSG)
                snprintf(live->error, sizeof live->error, "a damaged event came: byte %zu: %s",
                         fault.offset_bytes, fault.reason);
        else if (r < 0)
                (void)fail(live, r, "no memory for the fragments of the event");
        else if (live->head.marker != EFORMAT_EVENT)
                r = fail(live, -EBADMSG, "a damaged event came: byte 0: missing event marker");
        if (r < 0) {
                live->event.n_fragments = 0;
                return r;
        }
        describe(live, record);
        return 1;
}

static void count(struct evb_live *live, const struct live_record *record)
{
        live->counts = (struct evb_live_counts){record->offered, record->given, record->skipped};
}

int evb_live_next(struct evb_live *live, int timeout_ms, const struct evb_live_event **ret)
{
        struct live_record record;
        const uint8_t *event;
        int r;

        live->error[0] = '\0';
        live->event.n_fragments = 0;
        event = live_client_next(&live->client, timeout_ms, &record, &r);
        if (event) {
                count(live, &record);
                r = read_event(live, event, &record);
                if (r > 0)
                        *ret = &live->event;
                return r;
        }
        if (r == -EPROTO)
                return fail(live, r, "the ring of events is damaged");
        if (r < 0)
                return fail(live, r, r == -EAGAIN ? "no event came in time" : "a signal was handled");
        if (!live->client.has_ended)
                return fail(live, -ECONNRESET, "the connection ended before all events had come");
        count(live, &record);
        return 0;
}

const struct evb_live_fragment *evb_live_fragment(const struct evb_live *live, size_t index)
{
        return index < live->event.n_fragments ? &live->fragments[index] : NULL;
}
