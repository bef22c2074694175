/* The file of results. */
#include "lab_results.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

#include "evb/base/util.h"

#define LINE_MAX_BYTES 65536

static bool is_text(const json_t *r, const char *key, const char *value)
{
        const char *text = json_string_value(json_object_get(r, key));

        return text && strcmp(text, value) == 0;
}

/* Another version may have measured what the catalogue no longer has, or not the figure that is looked at now. */
static bool is_of_the_catalogue(const json_t *r)
{
        const struct lab_measurement *m = lab_find(json_string_value(json_object_get(r, "id")));
        bool has_place = m && m->sweep.n_panels == 0 && !json_object_get(r, "panel");

        for (size_t i = 0; m && i < m->sweep.n_panels; i++)
                has_place |= is_text(r, "panel", m->sweep.panels[i].name);
        return has_place && json_object_get(r, m->y);
}

static void read_lines(FILE *f, const char *path, json_t *to)
{
        static char line[LINE_MAX_BYTES];
        unsigned strange = 0;

        for (unsigned number = 1; fgets(line, sizeof line, f); number++) {
                json_error_t e;
                json_t *j = json_loads(line, 0, &e);

                if (!json_is_object(j) || !json_is_string(json_object_get(j, "id")) || !json_is_string(json_object_get(j, "series")))
                        fprintf(stderr, "%s:%u: not a result, left out\n", path, number);
                else if (is_of_the_catalogue(j))
                        json_array_append(to, j);
                else
                        strange++;
                json_decref(j);
        }
        if (strange > 0)
                fprintf(stderr, "%s: %u points of another version of the catalogue left out\n", path, strange);
}

json_t *results_read(const char *const *paths, size_t n)
{
        json_t *all = json_array();

        for (size_t i = 0; i < n; i++) {
                FILE *f = fopen(paths[i], "re");

                if (!f) {
                        fprintf(stderr, "%s: %s\n", paths[i], strerror(errno));
                        json_decref(all);
                        return NULL;
                }
                read_lines(f, paths[i], all);
                fclose(f);
        }
        return all;
}

bool results_are_of(const json_t *result, const struct lab_bed *bed)
{
        return strcmp(json_string_value(json_object_get(result, "testbed")) ?: "", lab_bed_name(bed)) == 0;
}

bool results_have(const json_t *results, const struct lab_point *p)
{
        const json_t *r;
        size_t i;

        json_array_foreach(results, i, r)
        {
                if (is_text(r, "id", p->measurement->id) && (!p->panel || is_text(r, "panel", p->panel)) && is_text(r, "series", p->series) && is_text(r, "settings", p->settings) &&
                    json_number_value(json_object_get(r, "x")) == p->x && results_are_of(r, p->bed))
                        return true;
        }
        return false;
}

json_t *results_of(const json_t *results, const char *id)
{
        json_t *some = json_array(), *r;
        size_t i;

        json_array_foreach((json_t *)results, i, r)
        {
                if (is_text(r, "id", id))
                        json_array_append(some, r);
        }
        return some;
}

static void name_processor(char *text, size_t size)
{
        FILE *f = fopen("/proc/cpuinfo", "re");
        char line[256];

        snprintf(text, size, "unknown");
        while (f && fgets(line, sizeof line, f)) {
                const char *colon = strchr(line, ':');

                if (strncmp(line, "model name", 10) != 0 || !colon)
                        continue;
                snprintf(text, size, "%.*s", (int)strcspn(colon + 2, "\n"), colon + 2);
                break;
        }
        if (f)
                fclose(f);
}

bool results_append(const char *path, const struct lab_point *p, json_t *figures)
{
        char when[32], processor[128];
        time_t now = time(NULL);
        struct utsname u;
        struct tm utc;
        FILE *f;
        bool ok;

        uname(&u);
        name_processor(processor, sizeof processor);
        strftime(when, sizeof when, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&now, &utc));
        json_object_set_new(figures, "id", json_string(p->measurement->id));
        /* Of a copy this is another's. */
        json_object_del(figures, "panel");
        if (p->panel)
                json_object_set_new(figures, "panel", json_string(p->panel));
        json_object_set_new(figures, "series", json_string(p->series));
        if (p->bed)
                json_object_set_new(figures, "testbed", json_string(lab_bed_name(p->bed)));
        json_object_set_new(figures, "x", json_real(p->x));
        json_object_set_new(figures, "settings", json_string(p->settings));
        json_object_set_new(figures, "time", json_string(when));
        json_object_set_new(figures, "kernel", json_string(u.release));
        json_object_set_new(figures, "processor", json_string(processor));
        json_object_set_new(figures, "processors", json_integer(sysconf(_SC_NPROCESSORS_ONLN)));
        json_object_set_new(figures, "version", json_string(EVB_VERSION));
        f = fopen(path, "ae");
        ok = f && json_dumpf(figures, f, JSON_COMPACT | JSON_REAL_PRECISION(9)) == 0 && fputc('\n', f) != EOF;
        if (f && fclose(f) != 0)
                ok = false;
        if (!ok)
                fprintf(stderr, "%s: %s\n", path, strerror(errno));
        return ok;
}
