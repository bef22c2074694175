/* Describes why the DFM accepted no trigger or lost events. */
#include "dfm_reasons.h"

#include "evb/base/strbuf.h"
#include "evb/base/util.h"
#include "roster.h"

/* Maximum number of names in a list; further nodes are only counted. */
#define NAMES_MAX 6

typedef bool (*node_matches)(const struct dfm *d, const struct scenario_node *n);

static bool was_never_heard(const struct dfm *d, const struct scenario_node *n)
{
        return !dfm_view(d, n->role, (uint16_t)n->index).heard;
}

static bool has_left(const struct dfm *d, const struct scenario_node *n)
{
        struct dfm_node_view v = dfm_view(d, n->role, (uint16_t)n->index);

        return v.heard && !v.live;
}

static bool holds_back(const struct dfm *d, const struct scenario_node *n)
{
        return n->role == ROLE_ROS && dfm_view(d, ROLE_ROS, (uint16_t)n->index).holds_back;
}

static bool is_behind(const struct dfm *d, const struct scenario_node *n)
{
        return n->role == ROLE_ROS && dfm_view(d, ROLE_ROS, (uint16_t)n->index).behind;
}

static bool lacks_frame(const struct dfm *d, const struct scenario_node *n)
{
        return n->role == ROLE_ROS && dfm_view(d, ROLE_ROS, (uint16_t)n->index).lacks_frame;
}

/* Adds "ros1, ros2 and 3 more never reached this DFM"; false: no node matches. */
static bool add_nodes(struct strbuf *b, const struct dfm *d, const struct scenario *s, node_matches matches,
                      const char *what)
{
        size_t n = 0;

        for (size_t i = 0; i < s->n_nodes; i++) {
                if (s->nodes[i].role == ROLE_DFM || !matches(d, &s->nodes[i]))
                        continue;
                if (n++ < NAMES_MAX)
                        strbuf_add(b, "%s%s", n > 1 ? ", " : b->length > 0 ? "; " : "", s->nodes[i].name);
        }
        if (n > NAMES_MAX)
                strbuf_add(b, " and %zu more", n - NAMES_MAX);
        if (n > 0)
                strbuf_add(b, " %s", what);
        return n > 0;
}

/* Adds the reasons that nodes report: "ros1: no front-end for 2.0 s". */
static void add_own_reasons(struct strbuf *b, const struct dfm *d, const struct scenario *s)
{
        char text[256];

        roster_describe_reasons(s, d, text, sizeof text);
        if (text[0])
                strbuf_add(b, "%s%s", b->length > 0 ? "; " : "", text);
}

/* Adds what a reset of the counters, or the beginning of a run, waits for. */
static void add_reset(struct strbuf *b, const struct dfm *d, const struct scenario *s)
{
        const char *separator = b->length > 0 ? "; " : "";
        uint32_t open = dfm_open_events(d);

        if (open > 0)
                strbuf_add(b, "%sthe counters were reset, and %u event%s from before %s not ended", separator,
                           open, open == 1 ? "" : "s", open == 1 ? "has" : "have");
        else if (!add_nodes(b, d, s, is_behind,
                            dfm_counts(d)->offered.resets > 0
                                    ? "did not confirm the last reset of the counters"
                                    : "did not confirm the beginning of the run"))
                strbuf_add(b,
                           "%sthe counters were reset, and frames from before may still arrive, for ros.wait",
                           separator);
}

static void add_idle(struct strbuf *b, const struct dfm *d, const struct scenario *s)
{
        if (dfm_waits_for_reset(d))
                add_reset(b, d, s);
        else
                strbuf_add(b, "%s%s", b->length > 0 ? "; " : "",
                           dfm_is_busy(d)                          ? "no SFI had a free credit"
                           : s->trigger.source_kind == TRIGGER_UDP ? "no trigger came from outside"
                           : s->trigger.source_kind == TRIGGER_FRAMES
                                   ? "no ROS that makes the triggers got a frame with a number"
                                   : "the first trigger was not due yet");
}

void idle_note(struct idle *i, const struct dfm *d, const struct scenario *s)
{
        struct strbuf b;

        if (dfm_counts(d)->triggers > 0 || dfm_state(d) >= RUN_DRAINING)
                return;
        b = strbuf_init(i->why, sizeof i->why);
        add_nodes(&b, d, s, was_never_heard, "never reached this DFM");
        add_nodes(&b, d, s, has_left, "left or fell silent");
        if (dfm_has_begun(d) && !add_nodes(&b, d, s, lacks_frame, "waited for a frame of its front-end") &&
            !add_nodes(&b, d, s, holds_back, "held triggers back (XOFF)"))
                add_idle(&b, d, s);
        add_own_reasons(&b, d, s);
}

void stall_describe(const struct dfm *d, const struct scenario *s, char *text, size_t size_bytes)
{
        struct strbuf b = strbuf_init(text, size_bytes);

        if (add_nodes(&b, d, s, lacks_frame, "waits for frames of its front-end"))
                return;

        bool holding = add_nodes(&b, d, s, holds_back, "holds triggers back (XOFF)");
        bool left = add_nodes(&b, d, s, has_left, "left or fell silent");

        if (!holding && !left && dfm_waits_for_reset(d))
                add_reset(&b, d, s);
        else if (!holding && !left && dfm_waits_for_level2(d))
                strbuf_add(&b, "level 2 has not decided %u event%s", dfm_undecided(d),
                           dfm_undecided(d) == 1 ? "" : "s");
        else if (!holding && !left)
                strbuf_add(&b, "no SFI has a free credit");
}

void stall_describe_end(const struct dfm *d, const struct scenario *s, uint64_t stalled_ns, char *text,
                        size_t size_bytes)
{
        struct strbuf b = strbuf_init(text, size_bytes);
        char what[80];

        snprintf(what, sizeof what, "held triggers back (XOFF) for the last %.0f s of the run",
                 (double)stalled_ns / NS_PER_S);
        add_nodes(&b, d, s, holds_back, what);
}

/* A disk may fail after the DFM has counted all events of the SFI as complete. */
static void failed_outputs(const struct dfm *d, const struct scenario *s, struct reasons *to)
{
        for (size_t i = 0; i < s->n_nodes; i++) {
                const struct scenario_node *n = &s->nodes[i];

                if (n->role == ROLE_SFI && dfm_view(d, ROLE_SFI, (uint16_t)n->index).failed)
                        reasons_add(to, "the output of %s failed: events that are complete may be in no file",
                                    n->name);
        }
}

/* What such an SFI built and did not report was assigned to others. */
static void vanished_sfis(const struct dfm *d, const struct scenario *s, struct reasons *to)
{
        for (size_t i = 0; i < s->n_nodes; i++) {
                const struct scenario_node *n = &s->nodes[i];
                struct dfm_node_view v;

                if (n->role != ROLE_SFI)
                        continue;
                v = dfm_view(d, ROLE_SFI, (uint16_t)n->index);
                if (v.vanished)
                        reasons_add(to,
                                    "%s fell silent and did not return: its files may lack an end, or hold "
                                    "events that other SFIs built too",
                                    n->name);
                if (v.replaced)
                        reasons_add(to,
                                    "%s was restarted with open events: its earlier files may lack an end, "
                                    "or hold events that other SFIs built too",
                                    n->name);
        }
}

void dfm_reasons(const struct dfm *d, const struct scenario *s, const struct idle *i, struct reasons *to)
{
        const struct dfm_counts *c = dfm_counts(d);
        unsigned long long triggers = c->triggers;
        uint64_t open;

        if (triggers == 0)
                reasons_add(to, "no trigger was accepted: %s%s%s",
                            dfm_has_begun(d) ? "" : "stopped before the run began",
                            dfm_has_begun(d) || !i->why[0] ? "" : "; ", i->why);
        if (dfm_is_unreliable(d))
                reasons_add(to, "the run is unreliable: frames of front-ends were lost before they were "
                                "counted, or the ROSs counted different numbers of them");
        if (dfm_is_overdue(d))
                reasons_add(
                        to,
                        "the run ended when this DFM resumed it: its scenario.duration had already passed");
        failed_outputs(d, s, to);
        vanished_sfis(d, s, to);
        if (c->ended_again > 0)
                reasons_add(to, "%llu event%s ended again on another SFI: files may hold %s twice",
                            (unsigned long long)c->ended_again, c->ended_again == 1 ? "" : "s",
                            c->ended_again == 1 ? "it" : "them");
        if (c->partial > 0)
                reasons_add(to, "%llu of %llu events are partial", (unsigned long long)c->partial, triggers);
        if (c->lost > 0)
                reasons_add(to, "%llu of %llu events are lost", (unsigned long long)c->lost, triggers);
        open = c->triggers - c->complete - c->partial - c->lost - c->rejected;
        if (open != 0)
                reasons_add(to, "%llu of %llu events were still open", (unsigned long long)open, triggers);
}
