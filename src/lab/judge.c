/* Makes a verdict on the results of a measurement: finds its points, calls its verdict function, and refuses
 * a verdict if a point or a figure is missing. */
#include "lab/judge.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/strbuf.h"
#include "base/util.h"
#include "query.h"

/* Turns "-0.0 %" into "0.0 %". */
static void drop_signs_of_zero(char *text)
{
        for (char *at = text; (at = strchr(at, '-')) != NULL; at++) {
                size_t n = strspn(at + 1, "0.");
                bool zero = n > 0 && at[1] == '0' && strspn(at + 1, "0123456789.") == n;

                if (zero && (at == text || strchr(" (", at[-1])))
                        memmove(at, at + 1, strlen(at));
        }
}

enum lab_verdict lab_judge(const struct lab_measurement *m, const json_t *results, enum lab_extent extent,
                           char *why, size_t size)
{
        enum lab_verdict verdict = LAB_UNKNOWN;
        struct strbuf b = strbuf_init(why, size);
        struct judging j;

        if (json_array_size(results) == 0) {
                strbuf_add(&b, "not measured");
                return LAB_UNKNOWN;
        }
        if (judging_init(&j, m, results, extent) < 0) {
                strbuf_add(&b, "%s", strerror(ENOMEM));
        } else {
                verdict = m->judge(&j, why, size);
                drop_signs_of_zero(why);
                if (!judging_is_whole(&j)) {
                        verdict = LAB_UNKNOWN;
                        b = strbuf_init(why, size);
                        judging_add_lacks(&j, &b);
                }
        }
        judging_fini(&j);
        return verdict;
}

size_t lab_judge_decisive(const struct lab_measurement *m, const json_t *results, enum lab_extent extent,
                          struct lab_point *ret, size_t max)
{
        struct judging j;
        char why[1000];
        size_t n = 0;

        if (judging_init(&j, m, results, extent) >= 0) {
                (void)m->judge(&j, why, sizeof why);
                for (size_t i = 0; i < j.n && n < max; i++) {
                        if (j.decisive[i])
                                ret[n++] = j.points[i];
                }
        }
        judging_fini(&j);
        return n;
}

const char *lab_verdict_text(enum lab_verdict v)
{
        static const char *const texts[] = {
                [LAB_AGREES] = "agrees",
                [LAB_DIFFERS] = "differs",
                [LAB_BETTER] = "better",
                [LAB_UNKNOWN] = "unknown",
        };

        return texts[v];
}
