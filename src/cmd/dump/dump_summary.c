/* Prints the summary of an event file: header, run, and counts of events. */
#include "dump.h"

#include <inttypes.h>
#include <stdio.h>

#include "base/quantity.h"
#include "base/strbuf.h"
#include "base/util.h"

struct tally {
        uint64_t events, bytes, partial;
        uint32_t first_l1, last_l1; /* lowest and highest L1 ID */
        struct event_info info;
};

static int read_header(void *userdata, const struct eformat_fragment *f)
{
        eformat_event_info(f, userdata);
        return 1;
}

static void tally_add(struct tally *t, const struct event_record *record)
{
        struct event_info info = {0};

        t->bytes += record->size_bytes;
        if (eformat_walk(record->event, record->size_bytes, read_header, &info, NULL) == 1 &&
            eformat_word(record->event, 0) == EFORMAT_EVENT) {
                t->partial += (info.status & EFORMAT_EVENT_PARTIAL) != 0;
                t->first_l1 = t->events == 0 ? info.l1_id : MIN(t->first_l1, info.l1_id);
                t->last_l1 = t->events == 0 ? info.l1_id : MAX(t->last_l1, info.l1_id);
        }
        t->events++;
}

static char *date_text(char *text, size_t size_bytes, uint32_t date, uint32_t time)
{
        snprintf(text, size_bytes, "%04u-%02u-%02u %02u:%02u:%02u", date % 10000, date / 10000 % 100,
                 date / 1000000, time / 10000, time / 100 % 100, time % 100);
        return text;
}

static json_t *metadata_json(const struct event_file_front *front)
{
        json_t *all = json_array();

        for (size_t i = 0; i < front->n_metadata; i++)
                json_array_append_new(all, json_string(front->metadata[i]));
        return all;
}

static void summary_json(const struct dump *d, const struct tally *t, const struct event_file_end *end,
                         size_t size_bytes)
{
        const struct event_file_front *front = event_file_front(d->file);
        char date[32];

        dump_put(d->json, "version", front->version);
        dump_put(d->json, "run", front->run);
        dump_put(d->json, "file_number", front->file_number);
        json_object_set_new(d->json, "application", json_string(front->application));
        json_object_set_new(d->json, "core_name", json_string(front->core_name));
        json_object_set_new(d->json, "seed", front->has_seed ? dump_u64(front->seed) : json_null());
        json_object_set_new(d->json, "metadata", metadata_json(front));
        json_object_set_new(d->json, "begun",
                            json_string(date_text(date, sizeof date, front->date, front->time)));
        json_object_set_new(d->json, "ended",
                            end ? json_string(date_text(date, sizeof date, end->date, end->time))
                                : json_null());
        json_object_set_new(d->json, "last_file", end ? json_boolean(end->status == 1) : json_null());
        dump_put(d->json, "size_bytes", size_bytes);
        dump_put(d->json, "events", t->events);
        dump_put(d->json, "event_bytes", t->bytes);
        dump_put(d->json, "partial_events", t->partial);
        json_object_set_new(d->json, "first_l1_id", t->events ? json_integer(t->first_l1) : json_null());
        json_object_set_new(d->json, "last_l1_id", t->events ? json_integer(t->last_l1) : json_null());
}

/* A file may contain any bytes, which a terminal must not interpret. */
static const char *printable(const char *from, char to[static EVENT_FILE_TEXT_MAX])
{
        snprintf(to, EVENT_FILE_TEXT_MAX, "%s", from);
        return text_make_printable(to);
}

static void summary_text(const struct dump *d, const struct tally *t, const struct event_file_end *end,
                         size_t size_bytes)
{
        const struct event_file_front *front = event_file_front(d->file);
        char date[32], bytes[QUANTITY_TEXT_MAX], text[EVENT_FILE_TEXT_MAX], core[EVENT_FILE_TEXT_MAX];

        printf("%s: EventStorage version %u, %s\n", d->path, front->version,
               quantity_format_bytes(size_bytes, bytes));
        printf("  run %u, file %u, by %s, core name %s\n", front->run, front->file_number,
               printable(front->application, text), printable(front->core_name, core));
        printf("  begun %s\n", date_text(date, sizeof date, front->date, front->time));
        if (end)
                printf("  ended %s%s\n", date_text(date, sizeof date, end->date, end->time),
                       end->status == 1 ? ", last file of the run" : "");
        if (front->has_seed)
                printf("  pattern seed %" PRIu64 "\n", front->seed);
        for (size_t i = 0; i < front->n_metadata; i++)
                printf("  %s\n", printable(front->metadata[i], text));
        printf("  %" PRIu64 " events of %s, %" PRIu64 " partial\n", t->events,
               quantity_format_bytes(t->bytes, bytes), t->partial);
        if (t->events > 0)
                printf("  L1 ids %u to %u\n", t->first_l1, t->last_l1);
}

bool dump_summary(const struct dump *d)
{
        struct eformat_fault fault;
        struct event_record record;
        struct event_file_end end;
        struct tally tally = {0};
        size_t position = 0, size_bytes;
        int r;

        event_file_bytes(d->file, &size_bytes);
        while ((r = event_file_next(d->file, &position, &record, &fault)) == 1)
                tally_add(&tally, &record);
        if (r == 0)
                r = event_file_read_end(d->file, position, &end, &fault);
        (d->json ? summary_json : summary_text)(d, &tally, r == 0 ? &end : NULL, size_bytes);
        return r == 0 ? true : d->verify ? false : dump_damage(d, &fault);
}
