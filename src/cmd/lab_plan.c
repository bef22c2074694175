/* Selects measurements by the words of the command line, and plans their points. */
#include "lab.h"

#include <stdio.h>
#include <string.h>

#include "base/strbuf.h"

bool lab_is_selected(const struct lab_measurement *m, const char *words)
{
        for (const char *w = words; *w; w += strcspn(w, ","), w += *w == ',') {
                size_t n = strcspn(w, ",");

                if ((n == 3 && strncmp(w, "all", 3) == 0) || (n == 1 && m->id[0] == w[0]) ||
                    (strlen(m->id) == n && strncmp(m->id, w, n) == 0))
                        return true;
        }
        return false;
}

/* Whether `words` name a measurement by its ID. */
static bool is_named(const struct lab_measurement *m, const char *words)
{
        size_t n = strlen(m->id);
        bool named = false;

        for (const char *w = words; *w; w += strcspn(w, ","), w += *w == ',')
                named |= strcspn(w, ",") == n && strncmp(m->id, w, n) == 0;
        return named;
}

int lab_check_words(const char *words)
{
        for (const char *w = words; *w; w += strcspn(w, ","), w += *w == ',') {
                int n = (int)strcspn(w, ",");
                bool known = n == 3 && strncmp(w, "all", 3) == 0;
                char word[64];

                snprintf(word, sizeof word, "%.*s", n, w);
                for (size_t i = 0; i < lab_count(); i++)
                        known |= lab_is_selected(lab_at(i), word);
                if (known)
                        continue;
                fprintf(stderr, "evb lab run: unknown measurement \"%s\"; expected all, a letter, or", word);
                for (size_t i = 0; i < lab_count(); i++)
                        fprintf(stderr, " %s", lab_at(i)->id);
                fputc('\n', stderr);
                return 2;
        }
        return 0;
}

/* Keeps the points that the testbed can measure. Reports each reason for skipping others once, and counts
 * those that are not optional. */
static size_t keep_possible(const struct lab_measurement *m, struct lab_point *points, size_t n,
                            size_t *ret_lacking)
{
        char lack[160] = "", lacks[600] = "";
        struct strbuf b = strbuf_init(lacks, sizeof lacks);
        size_t kept = 0;

        *ret_lacking = 0;
        for (size_t i = 0; i < n; i++) {
                if (lab_can_make(&points[i], lack, sizeof lack))
                        points[kept++] = points[i];
                else {
                        *ret_lacking += !lab_is_optional(&points[i]);
                        if (!strstr(lacks, lack))
                                strbuf_add(&b, "%s%s %s", b.length > 0 ? "; " : "", m->id, lack);
                }
        }
        if (kept < n)
                fprintf(stderr, "evb lab run: %zu of %zu points of %s are skipped: %s\n", n - kept, n, m->id,
                        lacks);
        return kept;
}

size_t lab_plan(const char *words, const struct lab_bed *bed, bool quick, struct lab_point *points,
                size_t max, size_t *ret_skipped)
{
        size_t n = 0;

        *ret_skipped = 0;
        for (size_t i = 0; i < lab_count(); i++) {
                const struct lab_measurement *m = lab_at(i);
                bool elsewhere = lab_is_virtual(bed) || m->virtual_only;
                size_t all, kept, lacking;

                if (!lab_is_selected(m, words))
                        continue;
                all = lab_points(m, bed, quick, points + n, max - n);
                kept = keep_possible(m, points + n, all, &lacking);
                n += kept;
                if (!elsewhere || (kept == 0 && is_named(m, words)))
                        *ret_skipped += lacking;
        }
        return n;
}
