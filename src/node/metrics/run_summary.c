/* Judges a run by the state of its DFM first, and then by its other nodes. */
#include "node/metrics/run_summary.h"

#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "base/strbuf.h"
#include "statuses.h"

/* Higher is worse. A node that only does not answer at metrics.listen may still work, or the run needs it
 * not, or not yet. */
static int rank(const struct statuses *s, const struct node_status *n)
{
        return node_is_excused(s, n) ? 0 : (int)n->condition;
}

/* Returns the first node with the worst problem; NULL: there is none. */
static const struct node_status *find_worst(const struct statuses *s)
{
        const struct node_status *worst = NULL;

        for (size_t i = 0; i < s->n; i++) {
                const struct node_status *n = &s->nodes[i];

                if (n->problem[0] && (!worst || rank(s, n) > rank(s, worst)))
                        worst = n;
        }
        return worst;
}

/* Returns the only SFI that loses events, if other SFIs lose none. */
static const struct node_status *find_only_loser(const struct statuses *s)
{
        const struct node_status *found = NULL;
        size_t losers = 0;

        for (size_t i = 0; i < s->n; i++) {
                if (s->nodes[i].node->role != ROLE_SFI || !s->nodes[i].is_losing)
                        continue;
                found = &s->nodes[i];
                losers++;
        }
        return losers == 1 && s->scenario->sfi.count > 1 ? found : NULL;
}

/* Returns the first SFI that loses events because its memory has no room for them; NULL: none. */
static const struct node_status *find_starved(const struct statuses *s)
{
        for (size_t i = 0; i < s->n; i++) {
                if (s->nodes[i].is_losing && node_is_starved(&s->nodes[i]))
                        return &s->nodes[i];
        }
        return NULL;
}

/* Returns the node whose problem explains the others; NULL: no node has a problem. A DFM that is stalled or
 * in an error names the cause itself. Losses follow from a node that is gone or cut off. */
static const struct node_status *find_cause(const struct statuses *s, const struct node_status *dfm)
{
        const struct node_status *worst = find_worst(s), *loser;

        if (dfm && dfm->problem[0] && !dfm->is_losing)
                return dfm;
        if (!worst || rank(s, worst) > CONDITION_LOSING)
                return worst;
        loser = find_starved(s) ?: find_only_loser(s);
        return loser ?: dfm && dfm->problem[0] ? dfm : worst;
}

/* `but_losses`: skips losses, because the losses of all nodes together are one problem. */
static size_t count_problems(const struct statuses *s, bool but_losses)
{
        size_t n = 0;

        for (size_t i = 0; i < s->n; i++)
                n += s->nodes[i].problem[0] && !(but_losses && s->nodes[i].is_losing);
        return n;
}

/* Returns the first working node that an operator should look at, and why; NULL: there is none. */
static const struct node_status *find_warned(const struct statuses *s, struct node_warning *ret)
{
        for (size_t i = 0; i < s->n; i++) {
                if (node_status_warns(s, &s->nodes[i], ret))
                        return &s->nodes[i];
        }
        return NULL;
}

/* Explains what the DFM waits for, and adds a node that works but has a warning. */
static void explain_wait(const struct statuses *s, const struct node_status *dfm, const char *waits,
                         struct run_summary *ret)
{
        struct node_warning warning;
        const struct node_status *warned = find_warned(s, &warning);

        ret->whose = waits ? dfm : warned;
        ret->blames = warned;
        if (warned)
                snprintf(ret->reason, sizeof ret->reason, "%.200s%s%s: %s", waits ?: "", waits ? "; " : "",
                         warned->node->name, warning.why);
        else
                snprintf(ret->reason, sizeof ret->reason, "%s", waits ?: "");
}

static bool any_loses(const struct statuses *s)
{
        for (size_t i = 0; i < s->n; i++) {
                if (s->nodes[i].is_losing)
                        return true;
        }
        return false;
}

/* The places of losses can only be found from all nodes. */
static void explain(const struct statuses *s, const struct node_status *dfm, struct run_summary *ret)
{
        const struct node_status *cause = find_cause(s, dfm);
        const char *waits = dfm ? json_string_value(json_object_get(dfm->status, "reason")) : NULL;
        struct strbuf b = strbuf_init(ret->reason, sizeof ret->reason);
        size_t others, length;

        if (!cause) {
                explain_wait(s, dfm, waits, ret);
                return;
        }
        ret->whose = cause;
        ret->blames = true;
        strbuf_add(&b, "%s%s%s", cause == dfm ? "" : cause->node->name, cause == dfm ? "" : ": ",
                   cause->problem);
        if (dfm && dfm->is_losing && !(cause->is_losing && cause != dfm)) {
                if (cause != dfm)
                        strbuf_add(&b, "; %s", dfm->problem);
                losses_describe_places(s, ret->reason + b.length, sizeof ret->reason - b.length);
        }
        others = count_problems(s, any_loses(s)) - !cause->is_losing;
        length = strlen(ret->reason);
        if (others > 0)
                snprintf(ret->reason + length, sizeof ret->reason - length, "; %zu more problem%s", others,
                         others == 1 ? "" : "s");
}

void run_summary_make(const struct statuses *s, struct run_summary *ret)
{
        const struct node_status *dfm = statuses_find_dfm(s);
        json_int_t run = dfm ? json_integer_value(json_object_get(dfm->status, "run")) : 0;

        *ret = (struct run_summary){
                .run = run > 0 && run <= UINT32_MAX ? (uint32_t)run : 0,
                .ok = count_problems(s, false) == 0,
        };
        snprintf(ret->state, sizeof ret->state, "%s",
                 dfm && dfm->condition == CONDITION_FINE && any_loses(s) ? "losing"
                 : dfm                                                   ? node_status_word(dfm)
                                                                         : "?");
        explain(s, dfm, ret);
        text_make_printable(ret->state);
        text_make_printable(ret->reason);
}

/* Returns the node at fault, and sets all of *ret but the node; NULL: none. */
static const struct node_status *describe_fault(const struct statuses *s, const struct node_status *dfm,
                                                struct run_fault *ret)
{
        const struct node_status *cause = find_cause(s, dfm);
        struct node_warning warning;
        struct run_summary summary;

        if (cause && !node_is_excused(s, cause)) {
                run_summary_make(s, &summary);
                snprintf(ret->state, sizeof ret->state, "%s", node_status_word(cause));
                snprintf(ret->cause, sizeof ret->cause, "%s", cause->cause);
                snprintf(ret->text, sizeof ret->text, "%s", summary.reason);
                /* If the DFM still received something from it, it would be excused. */
                ret->is_gone = cause->condition == CONDITION_SILENT;
                return cause;
        }
        cause = find_warned(s, &warning);
        if (cause) {
                snprintf(ret->state, sizeof ret->state, "%s", warning.word);
                snprintf(ret->cause, sizeof ret->cause, "%s", warning.cause);
                snprintf(ret->text, sizeof ret->text, "%s: %s", cause->node->name, warning.why);
        }
        return cause;
}

bool run_summary_find_fault(const struct statuses *s, struct run_fault *ret)
{
        const struct node_status *dfm = statuses_find_dfm(s), *cause;

        *ret = (struct run_fault){};
        if (!dfm || !dfm->status)
                return false;
        if (statuses_are_settled(s) && (cause = describe_fault(s, dfm, ret)))
                snprintf(ret->node, sizeof ret->node, "%s", cause->node->name);
        return true;
}

bool run_fault_is_same(const struct run_fault *a, const struct run_fault *b)
{
        return strcmp(a->node, b->node) == 0 && strcmp(a->cause, b->cause) == 0;
}

static bool has_same_state(const struct run_fault *a, const struct run_fault *b)
{
        return strcmp(a->node, b->node) == 0 && strcmp(a->state, b->state) == 0;
}

bool run_fault_confirms(const struct run_fault *confirmed, const struct run_fault *seen,
                        const struct run_fault *now)
{
        if (now->is_gone)
                return true;
        return has_same_state(now, seen) && (run_fault_is_same(now, seen) || !has_same_state(now, confirmed));
}

json_t *run_summary_to_json(const struct run_summary *r)
{
        return json_pack("{s:b, s:o, s:s, s:o}", "ok", r->ok, "run", json_count_if(r->run > 0, r->run),
                         "state", r->state, "reason", json_text(r->reason));
}
