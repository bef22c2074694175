/* Explains exit status 1 of a run with a table of checks, each of which adds its reasons. Add a new reason as
 * an entry of the table. */
#include "summary.h"

#include <inttypes.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>

#include "base/strbuf.h"
#include "base/util.h"

struct view {
        const struct launch *l;
        const struct accounts *a;
        const json_t *nodes;
};

static const json_t *report_of(const struct view *v, const char *node)
{
        const json_t *each;
        size_t i;

        json_array_foreach(v->nodes, i, each)
        {
                const char *name = json_string_value(json_object_get(each, "name"));

                if (name && strcmp(name, node) == 0)
                        return each;
        }
        return NULL;
}

static const json_t *reasons_of(const struct view *v, const char *node)
{
        return json_object_get(report_of(v, node), "reasons");
}

static bool was_ended_by_stall(const struct view *v, const char *node)
{
        return json_is_true(json_object_get(report_of(v, node), "ended_by_stall"));
}

/* If a stall ended the run, the DFM's first reason explains it. */
static void stalled(const struct view *v, struct reasons *to)
{
        const char *dfm = launch_dfm(v->l)->node->name,
                   *why = json_string_value(json_array_get(reasons_of(v, dfm), 0));

        if (was_ended_by_stall(v, dfm) && why)
                reasons_add(to, "%s", why);
}

/* Adds the invariant that a run in virtual time violated. */
static void violated(const struct view *v, struct reasons *to)
{
        if (v->l->virtual_run && v->l->virtual_run->violation)
                reasons_add(to, "%s", v->l->virtual_run->violation);
}

/* Only the DFM knows what it waited for, so its reason comes first. */
static void no_trigger(const struct view *v, struct reasons *to)
{
        const char *why = json_string_value(json_array_get(reasons_of(v, launch_dfm(v->l)->node->name), 0));

        if (v->a->triggers == 0)
                reasons_add(to, "%s", why ?: "no trigger was accepted");
}

/* Adds "partial: ros2 194, ros3 135": the missing fragments of each ROS at all SFIs. */
static void partial(const struct view *v, struct reasons *to)
{
        char text[REASON_TEXT_MAX];
        struct strbuf b = strbuf_init(text, sizeof text);

        for (size_t i = 0; i < v->l->n_children; i++) {
                const char *name = v->l->children[i].node->name;
                json_int_t missing = 0;
                const json_t *each;
                size_t k;

                json_array_foreach(v->nodes, k, each) missing +=
                        json_integer_value(json_object_get(json_object_get(each, "missing_fragments"), name));
                if (missing > 0)
                        strbuf_add(&b, "%s%s %" JSON_INTEGER_FORMAT, b.length > 0 ? ", " : "partial: ", name,
                                   missing);
        }
        if (b.length > 0)
                reasons_add(to, "%s", text);
}

static void incomplete(const struct view *v, struct reasons *to)
{
        const struct accounts *a = v->a;
        const json_t *why;
        size_t i;

        if (a->partial > 0)
                reasons_add(to, "%" PRIu64 " of %" PRIu64 " events are partial", a->partial, a->triggers);
        if (a->partial > 0)
                partial(v, to);
        if (a->lost > 0)
                reasons_add(to, "%" PRIu64 " of %" PRIu64 " events are lost", a->lost, a->triggers);
        json_array_foreach(reasons_of(v, launch_dfm(v->l)->node->name), i, why)
        {
                if (strncmp(json_string_value(why), DFM_REASON_LOST, strlen(DFM_REASON_LOST)) == 0)
                        reasons_add(to, "%s", json_string_value(why));
        }
}

static void unbalanced(const struct view *v, struct reasons *to)
{
        const struct accounts *a = v->a;

        if (a->difference[0])
                reasons_add(to, "the accounts do not balance: %s", a->difference);
        else if (!a->balanced)
                reasons_add(to,
                            "the accounts do not balance: %" PRIu64 " triggers, %" PRIu64
                            " complete, %" PRIu64 " partial, %" PRIu64 " lost, %" PRIu64 " rejected; %" PRIu64
                            " fragments expected, %" PRIu64 " received, %" PRIu64 " lost, %" PRIu64 " absent",
                            a->triggers, a->complete, a->partial, a->lost, a->rejected, a->expected,
                            a->received, a->fragments_lost, a->fragments_absent);
}

static void built_twice(const struct view *v, struct reasons *to)
{
        if (v->a->unexplained > 0)
                reasons_add(to,
                            "the SFIs built %" PRIu64
                            " more events than the DFM counts: files may hold events twice",
                            v->a->unexplained);
}

/* If an optional ROS is lost, only its own fragments are missing. The DFM reports the effect on other
 * fragments. */
static bool is_optional(const struct child *c)
{
        return c->node->role == ROLE_ROS && !c->node->required;
}

static void died(const struct view *v, struct reasons *to)
{
        unsigned by_us = 0;

        for (size_t i = 0; i < v->l->n_children; i++) {
                const struct child *c = &v->l->children[i];

                if (is_optional(c))
                        continue;
                if (v->l->killed && WIFSIGNALED(c->status) && WTERMSIG(c->status) == SIGKILL)
                        by_us++;
                else if (WIFSIGNALED(c->status))
                        reasons_add(to, "%s was killed by signal %d (%s)", c->node->name, WTERMSIG(c->status),
                                    strsignal(WTERMSIG(c->status)));
                else if (WEXITSTATUS(c->status) > 1)
                        reasons_add(to, "%s exited with status %d", c->node->name, WEXITSTATUS(c->status));
        }
        if (by_us > 0)
                reasons_add(to,
                            v->l->signals > 1 ? "a second signal stopped the run at once: %u node%s killed"
                                              : "%u node%s killed, as %s did not stop in time",
                            by_us, by_us == 1 ? " was" : "s were", by_us == 1 ? "it" : "they");
}

/* No other node knows this: an SFI that was killed has no report. */
static void files_of_dfm(const struct view *v, const json_t *reasons, struct reasons *to)
{
        const json_t *each;
        size_t i;

        if (v->l->scenario->sfi.output != OUTPUT_FILE)
                return;
        json_array_foreach(reasons, i, each)
        {
                if (strstr(json_string_value(each), DFM_REASON_FILES))
                        reasons_add(to, "%s", json_string_value(each));
        }
}

/* Adds the reasons that nodes report. If another reason is known, adds only those of the DFM that concern
 * files. */
static void of_nodes(const struct view *v, struct reasons *to)
{
        for (size_t i = 0; i < v->l->n_children; i++) {
                const struct child *c = &v->l->children[i];
                const json_t *reasons = reasons_of(v, c->node->name), *each;
                size_t k;

                if (!WIFEXITED(c->status) || WEXITSTATUS(c->status) != 1 || is_optional(c))
                        continue;
                if (c->node->role == ROLE_DFM && to->n > 0) {
                        files_of_dfm(v, reasons, to);
                        continue;
                }
                /* All nodes report this reason, which is already a reason of the run. */
                if (was_ended_by_stall(v, c->node->name) && json_array_size(reasons) == 1)
                        continue;
                json_array_foreach(reasons, k, each)
                        reasons_add(to, "%s: %s", c->node->name, json_string_value(each));
                if (json_array_size(reasons) == 0)
                        reasons_add(to, "%s exited with status 1", c->node->name);
        }
}

static void (*const checks[])(const struct view *v, struct reasons *to) = {
        violated, stalled, no_trigger, incomplete, unbalanced, built_twice, died, of_nodes,
};

void run_reasons(const struct launch *l, const struct accounts *a, const json_t *nodes, struct reasons *to)
{
        const struct view v = {l, a, nodes};

        for (size_t i = 0; i < ARRAY_SIZE(checks); i++)
                checks[i](&v, to);
}
