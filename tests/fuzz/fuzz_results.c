/* Results files of evb lab: read, and judged with all measurements of the catalogue that they have points of.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "lab/judge.h"
#include "fuzz.h"
#include "cmd/lab_results.h"
#include "memory_file.h"

static void judge(const struct lab_measurement *m, const json_t *points)
{
        static const enum lab_extent extents[] = {LAB_AS_MADE, LAB_QUICK, LAB_WHOLE};
        static struct lab_point decisive[LAB_POINTS_MAX];

        for (size_t i = 0; i < sizeof extents / sizeof extents[0]; i++) {
                char why[600] = "";
                enum lab_verdict v = lab_judge(m, points, extents[i], why, sizeof why);

                assert(lab_verdict_text(v) && why[0] && strlen(why) < sizeof why);
                assert(lab_judge_decisive(m, points, extents[i], decisive, LAB_POINTS_MAX) <= LAB_POINTS_MAX);
        }
}

bool fuzz_accepts(const uint8_t *bytes, size_t size_bytes)
{
        static FILE *nowhere;
        const char *path = memory_file(bytes, size_bytes);
        bool accepted = false;
        json_t *results;

        if (!path)
                return false;
        /* Lines that are not results are reported. */
        if (!nowhere)
                nowhere = stderr = fopen("/dev/null", "w");
        results = results_read(&path, 1);
        for (size_t i = 0; results && i < lab_count(); i++) {
                json_auto_t *mine = results_of(results, lab_at(i)->id);

                if (json_array_size(mine) > 0) {
                        judge(lab_at(i), mine);
                        accepted = true;
                }
        }
        json_decref(results);
        return accepted;
}
