/* Judges whether a point is valid, from what the machine did beside it. Pure. */
#include "evb/lab/valid.h"

#include <math.h>
#include <stdio.h>

#include "evb/base/strbuf.h"
#include "evb/base/util.h"

#define REASON_MAX_BYTES 200

static void set(json_t *o, const char *name, double value)
{
        json_object_set_new(o, name, isnan(value) ? json_null() : json_real(value));
}

/* "A" or "; B". */
static const char *separator(const struct strbuf *b)
{
        return b->length > 0 ? "; " : "";
}

/* Comparisons with an unknown figure are false. */
static void add_reasons(struct strbuf *b, const struct machine_view *v, bool raised)
{
        double contested_max = raised ? LAB_CONTESTED_SHARE_MAX : LAB_CONTESTED_SHARE_EQUAL_MAX;

        if (v->stolen_share > LAB_STOLEN_SHARE_MAX)
                strbuf_add(b, "the hypervisor took %.1f %% of the processor time, more than %g %%",
                           100 * v->stolen_share, 100 * LAB_STOLEN_SHARE_MAX);
        if (v->late_max_us > LAB_LATE_MAX_US)
                strbuf_add(b, "%sa timer was %.1f ms late, more than %g ms", separator(b),
                           v->late_max_us / 1e3, LAB_LATE_MAX_US / 1e3);
        if (v->others_share > contested_max && v->waiting_share > contested_max)
                strbuf_add(b, "%sother processes took up to %.0f %% of the processors from waiting ones%s",
                           separator(b), 100 * fmin(v->others_share, v->waiting_share),
                           raised ? "" : ", at equal priority");
}

void lab_valid_describe(json_t *figures, const struct machine_view *v, bool raised)
{
        char reason[REASON_MAX_BYTES] = "";
        struct strbuf b = strbuf_init(reason, sizeof reason);

        set(figures, "stolen_share", v->stolen_share);
        set(figures, "others_share", v->others_share);
        set(figures, "waiting_share", v->waiting_share);
        set(figures, "timer_late_p99_us", v->late_p99_us);
        set(figures, "timer_late_max_us", v->late_max_us);
        add_reasons(&b, v, raised);
        json_object_set_new(figures, "disturbed", reason[0] ? json_string(reason) : json_null());
}

const char *lab_valid_reason(const json_t *result)
{
        return json_string_value(json_object_get(result, "disturbed"));
}

json_t *lab_valid_make(const struct lab_point *p, json_t *(*make)(const struct lab_point *p),
                       bool (*stop)(void), unsigned repeats_max)
{
        json_t *figures = make(p);
        unsigned repeats = 0;

        while (figures && lab_valid_reason(figures) && repeats < repeats_max && !stop()) {
                json_decref(figures);
                figures = make(p);
                repeats++;
        }
        if (figures)
                json_object_set_new(figures, "repeats", json_integer(repeats));
        return figures;
}
