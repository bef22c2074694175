/* Judges the results of the selected measurements, and prints the verdicts. */
#include "lab/judge.h"
#include "lab/valid.h"
#include "lab.h"

#include <stdio.h>

#include "lab_results.h"

int lab_print_verdicts(const struct lab_options *o, const char *words, const struct lab_bed *bed,
                       const json_t *results, const struct lab_made *made)
{
        bool text = !o->common.json || o->common.json_path, differs = false;
        json_t *all = json_array();

        for (size_t i = 0; i < lab_count(); i++) {
                const struct lab_measurement *m = lab_at(i);
                char why[600] = "";
                enum lab_verdict v;
                json_t *mine;

                /* lab_plan() has said where it exists. */
                if (!lab_is_selected(m, words) || (m->virtual_only && !lab_is_virtual(bed)))
                        continue;
                mine = results_of_bed(results, m->id, bed);
                v = lab_judge(m, mine, o->quick ? LAB_QUICK : LAB_WHOLE, why, sizeof why);
                json_decref(mine);
                differs |= v == LAB_DIFFERS;
                if (text)
                        printf("%-10s %-8s %s\n%-10s %-8s published: %s\n", m->id, lab_verdict_text(v), why,
                               "", "", m->published);
                json_array_append_new(all, json_pack("{s:s, s:s, s:s}", "id", m->id, "verdict",
                                                     lab_verdict_text(v), "why", why));
        }
        if (text)
                printf("%zu of %zu measured points were made again; %zu %s disturbed; %zu made %u times to "
                       "confirm a "
                       "verdict\n",
                       made->repeated, made->points, made->disturbed,
                       made->disturbed == 1 ? "remains" : "remain", made->confirmed, LAB_SAMPLES);
        if (o->common.json)
                return options_write_json(&o->common,
                                          json_pack("{s:o, s:I, s:I, s:I, s:I}", "verdicts", all,
                                                    "measured_points", (json_int_t)made->points,
                                                    "repeated_points", (json_int_t)made->repeated,
                                                    "disturbed_points", (json_int_t)made->disturbed,
                                                    "confirmed_points", (json_int_t)made->confirmed),
                                          differs ? 1 : 0);
        json_decref(all);
        return differs ? 1 : 0;
}
