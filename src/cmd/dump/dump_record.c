/* Compares event files with the record of their run (CORE.run.json), which has the size and checksum of each
 * file as its SFI wrote it. */
#include "dump.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <unistd.h>

#include "base/util.h"
#include "data/run_file.h"

/* An event file as it is. */
struct content {
        uint64_t size_bytes;
        uint32_t sum;
};

static int read_content(const char *path, struct content *ret)
{
        static uint8_t block[1 << 16];
        _cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
        struct content c = {.sum = ADLER_BEGIN};
        ssize_t n;

        if (fd < 0)
                return -errno;
        while ((n = read(fd, block, sizeof block)) > 0) {
                c.sum = adler_add(c.sum, block, (size_t)n);
                c.size_bytes += (uint64_t)n;
        }
        *ret = c;
        return n < 0 ? -errno : 0;
}

/* The record has valid JSON, but its values may be of any type. */
static const char *find_difference(const json_t *entry, const struct content *is, const char *record)
{
        static char text[RUN_FILE_PATH_MAX + 128];
        const char *sum = json_string_value(json_object_get(entry, "adler32"));
        json_int_t size_bytes = json_integer_value(json_object_get(entry, "size_bytes"));
        char sum_is[16];

        snprintf(sum_is, sizeof sum_is, "%08x", is->sum);
        if (size_bytes >= 0 && (uint64_t)size_bytes == is->size_bytes && sum && strcmp(sum, sum_is) == 0)
                return NULL;
        snprintf(text, sizeof text,
                 "not the file that the run wrote: %" PRIu64 " bytes, Adler-32 %s; %s has %" PRId64
                 " bytes, Adler-32 %.8s",
                 is->size_bytes, sum_is, record, (int64_t)size_bytes, sum ? sum : "unknown");
        return text;
}

static const char *base_name(const char *path)
{
        const char *slash = strrchr(path, '/');

        return slash ? slash + 1 : path;
}

struct key {
        char text[3 * RUN_FILE_PATH_MAX];
};

/* Of a file in dump.compared. */
static struct key key_of(const char *record, const char *event_file)
{
        struct key k;

        snprintf(k.text, sizeof k.text, "%s/%s", base_name(record), base_name(event_file));
        return k;
}

/* Returns the entry of a file, which the caller releases, from the newest record that has it. `ret_damaged`:
 * `record` cannot be read, and no other one has the file. */
static json_t *find_entry(const char *event_file, char record[static RUN_FILE_PATH_MAX], bool *ret_recorded,
                          bool *ret_damaged)
{
        char core[RUN_FILE_PATH_MAX - 16], path[RUN_FILE_PATH_MAX];
        json_t *found = NULL, *entry;
        size_t i;

        *ret_recorded = *ret_damaged = false;
        if (!run_file_core(event_file, core, sizeof core))
                return NULL;
        for (int number = 1;; number++) {
                run_file_name(core, number, path);
                if (access(path, F_OK) < 0)
                        return found;
                json_auto_t *o = json_load_file(path, 0, NULL);

                *ret_recorded = true;
                *ret_damaged = !found && (!o || *ret_damaged);
                if (!found && (!o || !*ret_damaged))
                        strcpy(record, path);
                json_array_foreach(json_object_get(o, "files"), i, entry)
                {
                        const char *name = json_string_value(json_object_get(entry, "name"));

                        if (!name || strcmp(name, base_name(event_file)) != 0)
                                continue;
                        json_decref(found);
                        found = json_incref(entry);
                        *ret_damaged = false;
                        strcpy(record, path);
                }
        }
}

const char *dump_compare_record(const struct dump *d)
{
        char record[RUN_FILE_PATH_MAX];
        bool recorded, damaged;
        json_auto_t *entry = find_entry(d->path, record, &recorded, &damaged);
        const char *differs =
                damaged ? "its record cannot be read, so the file cannot be compared with it" : NULL;
        struct content is = {};

        if (!recorded) {
                if (d->json)
                        json_object_set_new(d->json, "record", json_null());
                return NULL;
        }
        if (entry) {
                size_t size_bytes;
                const uint8_t *bytes = event_file_bytes(d->file, &size_bytes);

                is = (struct content){size_bytes, adler_add(ADLER_BEGIN, bytes, size_bytes)};
                differs = find_difference(entry, &is, base_name(record));
                if (d->compared)
                        json_object_set_new(d->compared, key_of(record, d->path).text, json_boolean(differs));
        }
        if (d->json)
                json_object_set_new(d->json, "record",
                                    json_pack("{s:s, s:b, s:o}", "file", record, "listed", entry != NULL,
                                              "right",
                                              entry || damaged ? json_boolean(!differs) : json_null()));
        else
                printf("  record of the run: %s%s\n", base_name(record),
                       damaged   ? " cannot be read"
                       : !entry  ? " does not list this file"
                       : differs ? " lists another content"
                                 : " lists the same size and checksum");
        return differs;
}

/* ---- All files of a record ---- */

struct tally {
        const char *record;
        const json_t *compared;
        json_t *missing, *different;
};

static void check_entry(const struct tally *t, const json_t *entry)
{
        const char *name = json_string_value(json_object_get(entry, "name")), *differs;
        char path[2 * RUN_FILE_PATH_MAX];
        struct content is = {};
        const json_t *known;
        int r;

        if (!name || !*name || strchr(name, '/') || strlen(name) >= RUN_FILE_PATH_MAX) {
                fprintf(stderr, "%s: files: an entry without a valid name\n", t->record);
                json_array_append_new(t->different, json_string(""));
                return;
        }
        snprintf(path, sizeof path, "%.*s%s", (int)(base_name(t->record) - t->record), t->record, name);
        known = json_object_get(t->compared, key_of(t->record, path).text);
        r = known ? 0 : read_content(path, &is);
        if (r < 0) {
                fprintf(stderr, "%s: %s\n", path, r == -ENOENT ? "missing" : strerror(-r));
                json_array_append_new(t->missing, json_string(name));
        } else if (known) {
                if (json_is_true(known))
                        json_array_append_new(t->different, json_string(name));
        } else if ((differs = find_difference(entry, &is, base_name(t->record)))) {
                fprintf(stderr, "%s: %s\n", path, differs);
                json_array_append_new(t->different, json_string(name));
        }
}

int dump_verify_record(const char *path, const json_t *compared, json_t *json)
{
        json_error_t e;
        json_auto_t *o = json_load_file(path, 0, &e), *missing = json_array(), *different = json_array();
        const json_t *files = json_object_get(o, "files"), *entry;
        struct tally t = {path, compared, missing, different};
        size_t i;

        if (!o || !json_is_array(files)) {
                fprintf(stderr, "%s: %s\n", path, o ? "no record of a run that lists its files" : e.text);
                return 2;
        }
        json_array_foreach(files, i, entry)
        {
                check_entry(&t, entry);
        }
        if (json)
                json_object_set_new(json, "record",
                                    json_pack("{s:I, s:O, s:O}", "files", (json_int_t)json_array_size(files),
                                              "missing", missing, "different", different));
        else
                printf("%s: %zu file%s, %zu missing, %zu different\n", path, json_array_size(files),
                       json_array_size(files) == 1 ? "" : "s", json_array_size(missing),
                       json_array_size(different));
        return json_array_size(missing) + json_array_size(different) > 0 ? 1 : 0;
}
