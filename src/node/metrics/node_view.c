/* Turns the judgement of a node into what screens show. */
#include "node/metrics/statuses.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/strbuf.h"
#include "base/util.h"

static void __attribute__((format(printf, 4, 5)))
view_set(struct node_view *v, enum node_mood mood, const char *word, const char *format, ...)
{
        va_list args;

        v->mood = mood;
        snprintf(v->word, sizeof v->word, "%s", word);
        va_start(args, format);
        vsnprintf(v->why, sizeof v->why, format, args);
        va_end(args);
        text_make_printable(v->word);
        text_make_printable(v->why);
}

static void view_silent(const struct node_status *n, const json_t *peer, struct node_view *ret)
{
        const json_t *live = json_object_get(peer, "live");

        ret->is_late = !n->problem[0];
        if (ret->is_late)
                view_set(ret, MOOD_GONE, "late", "no answer yet");
        else if (json_is_false(live))
                view_set(ret, MOOD_GONE, "gone", NODE_UNHEARD "; %.300s", n->problem);
        else if (json_is_true(live))
                view_set(ret, MOOD_WARN, "no figures", "%s", n->problem);
        else
                view_set(ret, MOOD_GONE, node_status_word(n), "%s", n->problem);
}

/* Whether a text contains this word. */
static bool contains_word(const char *text, const char *word)
{
        size_t length = strlen(word);

        for (const char *at = text; length > 0 && (at = strstr(at, word)); at++) {
                bool begins = at == text || strchr(" (", at[-1]);

                if (begins && (!at[length] || strchr(" ,;:)", at[length])))
                        return true;
        }
        return false;
}

/* Whether the problem of a node names another node: a ROS names an SFI by its address. */
static bool names_node(const struct node_status *n, const struct scenario_node *other)
{
        return contains_word(n->problem, other->name) || contains_word(n->problem, other->address) ||
               (other->role == ROLE_DFM && strstr(n->problem, "the DFM"));
}

/* Whether the problem of a node follows from that of another node: it is stalled and names the other node, or
 * it loses events while the other node is gone or has a worse problem. */
static bool follows_from_another(const struct statuses *s, const struct node_status *n)
{
        for (size_t i = 0; i < s->n; i++) {
                const struct node_status *other = &s->nodes[i];

                if (other == n || other->condition <= CONDITION_LOSING || node_is_excused(s, other))
                        continue;
                if (n->condition == CONDITION_LOSING)
                        return true;
                if (n->condition == CONDITION_STALLED && names_node(n, other->node) &&
                    !(other->condition == CONDITION_STALLED && names_node(other, n->node)))
                        return true;
        }
        return false;
}

/* Whether a node only waits for a run: a DFM whose required nodes are all present, or another node that
 * waits for the DFM to begin. */
static bool waits_for_run(const struct node_status *n, const char *reason)
{
        const char *control = json_string_value(json_object_get(n->status, "control_state"));

        if (n->node->role == ROLE_DFM)
                return control && strcmp(control, "configured") == 0;
        return strncmp(reason, "waiting for run ", strlen("waiting for run ")) == 0;
}

/* Describes a node that works normally, or waits. */
static void view_fine(const struct statuses *s, const struct node_status *n, const json_t *peer,
                      struct node_view *ret)
{
        struct node_warning warning;
        const char *reason = json_string_value(json_object_get(n->status, "reason")),
                   *state = json_string_value(json_object_get(n->status, "state")) ?: "?";

        if (reason && strncmp(reason, "stopping: ", strlen("stopping: ")) == 0)
                view_set(ret, MOOD_WARN, "stopping", "%s", reason + strlen("stopping: "));
        else if (node_status_warns(s, n, &warning))
                view_set(ret, MOOD_WARN, warning.word, "%s", warning.why);
        else if (json_is_true(json_object_get(peer, "xoff")))
                view_set(ret, MOOD_WARN, "holds back", "its buffer is nearly full, and triggers wait");
        else if (reason)
                view_set(ret, waits_for_run(n, reason) ? MOOD_IDLE : MOOD_WARN, "waiting", "%s", reason);
        else if (json_is_true(json_object_get(n->status, "busy")))
                view_set(ret, MOOD_WARN, "busy", "triggers wait for free credits");
        else
                view_set(ret, strcmp(state, "running") == 0 ? MOOD_GOOD : MOOD_IDLE, state, "%s", "");
}

void node_view_make(const struct statuses *s, const struct node_status *n, uint64_t now_ns, uint64_t late_ns,
                    struct node_view *ret)
{
        const json_t *peer = statuses_find_peer(s, n->node);
        const char *reason = json_string_value(json_object_get(n->status, "reason"));

        *ret = (struct node_view){};
        if (!n->status)
                view_silent(n, peer, ret);
        else if (n->asked_ns > 0 && now_ns - MIN(n->asked_ns, now_ns) >= late_ns) {
                view_set(ret, MOOD_WARN, "late", "no answer for %.1f s",
                         (double)(now_ns - n->answered_ns) / NS_PER_S);
                ret->is_late = true;
        } else if (n->condition == CONDITION_PAUSED)
                view_set(ret, n->problem[0] ? MOOD_BAD : MOOD_WARN, "paused", "%s",
                         n->problem[0] ? n->problem : reason ?: "");
        else if (n->condition >= CONDITION_LOSING)
                view_set(ret, follows_from_another(s, n) ? MOOD_WARN : MOOD_BAD, node_status_word(n), "%s",
                         n->problem);
        else
                view_fine(s, n, peer, ret);
}

json_t *node_view_to_json(const struct node_view *v)
{
        static const char *const kinds[] = {[MOOD_GOOD] = "good",
                                            [MOOD_IDLE] = "idle",
                                            [MOOD_WARN] = "warn",
                                            [MOOD_BAD] = "bad",
                                            [MOOD_GONE] = "gone"};

        return json_pack("{s:s, s:s, s:s}", "kind", kinds[v->mood], "word", v->word, "why", v->why);
}
