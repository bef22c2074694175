/* Prints the events of a file as indented trees, optionally with their words. In JSON, each event is an
 * object on a separate line, with a list of fragments and their depths; only one event is in memory. */
#include "dump.h"

#include <inttypes.h>
#include <stdio.h>

struct show {
        const struct dump *d;
        size_t offset_bytes; /* of the event in the file */
        json_t *fragments;
        struct event_info info;
};

static const char *marker_name(uint32_t marker)
{
        switch (marker) {
        case EFORMAT_EVENT:
                return "event";
        case EFORMAT_SUBDET:
                return "subdetector";
        case EFORMAT_ROS:
                return "ros";
        case EFORMAT_ROB:
                return "rob";
        default:
                return "rod";
        }
}

static json_t *words_json(const uint8_t *words, size_t n)
{
        json_t *array = json_array();

        for (size_t i = 0; i < n; i++)
                json_array_append_new(array, json_integer(eformat_word(words, i)));
        return array;
}

static void show_json(struct show *s, const struct eformat_fragment *f)
{
        json_t *o = json_object();

        json_object_set_new(o, "type", json_string(marker_name(f->marker)));
        json_object_set_new(o, "depth", json_integer(f->depth));
        json_object_set_new(o, "offset_bytes",
                            json_integer((json_int_t)s->offset_bytes + (json_int_t)f->offset_bytes));
        json_object_set_new(o, "size_bytes", json_integer(4 * (json_int_t)f->size_words));
        json_object_set_new(o, "source_id", json_integer(f->source_id));
        json_object_set_new(o, "status", words_json(f->status, f->n_status));
        json_object_set_new(o, "specific", words_json(f->specific, f->n_specific));
        json_array_append_new(s->fragments, o);
}

static void show_identity(const struct show *s)
{
        if (s->info.event != UINT64_MAX)
                printf(", number %" PRIu64, s->info.event);
        printf(", L1 id %u, trigger type %u, spill %u, trigger flags %08x", s->info.l1_id,
               s->info.trigger_type, s->info.spill, s->info.flags);
}

static void show_text(const struct show *s, const struct eformat_fragment *f)
{
        static const char *const sums[] = {"", ", checksum correct", ", checksum WRONG",
                                           ", checksum of an unknown kind"};

        printf("%*s%s %08x, %" PRIu64 " bytes at %zu, status", 2 * (int)f->depth + 2, "",
               marker_name(f->marker), f->source_id, 4 * (uint64_t)f->size_words,
               s->offset_bytes + f->offset_bytes);
        for (size_t i = 0; i < f->n_status; i++)
                printf(" %08x", eformat_word(f->status, i));
        if (f->marker == EFORMAT_EVENT)
                show_identity(s);
        if (f->marker == EFORMAT_ROS || f->marker == EFORMAT_ROD)
                printf(", L1 id %u", eformat_word(f->specific, 1));
        printf("%s\n", sums[eformat_verify_sum(f)]);
}

static int show_visit(void *userdata, const struct eformat_fragment *f)
{
        struct show *s = userdata;

        if (f->marker == EFORMAT_EVENT)
                eformat_event_info(f, &s->info);
        if (s->fragments)
                show_json(s, f);
        else
                show_text(s, f);
        return 0;
}

#define HEX_WORDS 8u

static void show_hex(const struct event_record *record)
{
        for (size_t i = 0; i < record->size_bytes / 4; i++) {
                if (i % HEX_WORDS == 0)
                        printf("%10zu ", record->offset_bytes + EVENT_FILE_DATA_BYTES + 4 * i);
                printf(" %08x", eformat_word(record->event, i));
                if (i % HEX_WORDS == HEX_WORDS - 1 || i + 1 == record->size_bytes / 4)
                        putchar('\n');
        }
}

/* The words are written to the file at once, because as JSON values they would need 12 times the memory. */
static void write_line(const struct show *s, uint64_t index, const struct event_record *record)
{
        const struct dump *d = s->d;
        const struct event_info *info = &s->info;

        fprintf(d->lines, "{\"index\":%" PRIu64 ",\"block\":%u,", index, record->block);
        if (info->event != UINT64_MAX)
                fprintf(d->lines, "\"number\":%" PRIu64 ",", info->event);
        fprintf(d->lines, "\"l1_id\":%u,\"trigger_type\":%u,\"spill\":%u,\"trigger_flags\":%u,\"fragments\":",
                info->l1_id, info->trigger_type, info->spill, info->flags);
        json_dumpf(s->fragments, d->lines, JSON_COMPACT);
        if (d->hex) {
                fputs(",\"words\":[", d->lines);
                for (size_t i = 0; i < record->size_bytes / 4; i++)
                        fprintf(d->lines, "%s%u", i == 0 ? "" : ",", eformat_word(record->event, i));
                fputc(']', d->lines);
        }
        fputs("}\n", d->lines);
}

static bool show_event(const struct dump *d, uint64_t index, const struct event_record *record)
{
        struct show s = {.d = d,
                         .offset_bytes = record->offset_bytes + EVENT_FILE_DATA_BYTES,
                         .info.event = UINT64_MAX};
        struct eformat_fault fault;
        int r;

        if (d->lines)
                s.fragments = json_array();
        else
                printf("event %" PRIu64 ", block %u, %u bytes\n", index, record->block, record->size_bytes);
        r = eformat_walk(record->event, record->size_bytes, show_visit, &s, &fault);
        if (d->lines)
                write_line(&s, index, record);
        else if (d->hex)
                show_hex(record);
        json_decref(s.fragments);
        if (r == 0)
                return true;
        fault.offset_bytes += s.offset_bytes;
        return d->verify ? false : dump_damage(d, &fault); /* --verify reports it as well */
}

bool dump_events(const struct dump *d, uint64_t only)
{
        struct eformat_fault fault;
        struct event_record record;
        size_t position = 0;
        bool right = true, shown = false;
        uint64_t index = 0;
        int r = 1;

        for (; (r = event_file_next(d->file, &position, &record, &fault)) == 1; index++) {
                if (only != DUMP_ALL && index != only)
                        continue;
                right &= show_event(d, index, &record);
                shown = true;
                if (only != DUMP_ALL)
                        return right;
        }
        if (r < 0)
                return false; /* reported by the summary */
        if (only != DUMP_ALL && !shown) {
                fprintf(stderr,
                        "%s: --event: no event %" PRIu64 "; the file has %" PRIu64
                        " events, and the first is 0\n",
                        d->path, only, index);
                return false;
        }
        return right;
}
