/* Describes why the DFM accepted no trigger, or why it lost events. */
#include "dfm_reasons.h"

#include "base/strbuf.h"
#include "base/util.h"
#include "progress/reason_text.h"
#include "log/roster.h"

/* Maximum number of names in a list; any further nodes are only counted. */
#define NAMES_MAX 6

/* Nodes to name: those for which the function returns true, or the ROSs with this flag in their view. */
struct which {
        bool (*matches)(const struct dfm *d, const struct scenario_node *n);
        size_t flag; /* offset of a bool in struct dfm_node_view */
};

#define NODES(function) ((struct which){.matches = function})
#define ROSS(member) ((struct which){.flag = offsetof(struct dfm_node_view, member)})

static bool is_one(const struct dfm *d, const struct scenario_node *n, struct which which)
{
        struct dfm_node_view v;

        if (which.matches)
                return which.matches(d, n);
        v = dfm_view(d, n->role, (uint16_t)n->index);
        return n->role == ROLE_ROS && *(const bool *)((const char *)&v + which.flag);
}

static bool was_never_received(const struct dfm *d, const struct scenario_node *n)
{
        return !dfm_view(d, n->role, (uint16_t)n->index).received;
}

static bool has_left(const struct dfm *d, const struct scenario_node *n)
{
        struct dfm_node_view v = dfm_view(d, n->role, (uint16_t)n->index);

        return v.received && !v.live;
}

/* Adds `before`, the names of the matching nodes, and `after`. False: no node matches. */
static bool add_names(struct strbuf *b, const struct dfm *d, const struct scenario *s, struct which which,
                      const char *before, const char *after)
{
        size_t n = 0;

        for (size_t i = 0; i < s->n_nodes; i++) {
                if (s->nodes[i].role == ROLE_DFM || !is_one(d, &s->nodes[i], which))
                        continue;
                if (n++ == 0)
                        strbuf_add(b, "%s%s%s", b->length > 0 ? "; " : "", before, s->nodes[i].name);
                else if (n <= NAMES_MAX)
                        strbuf_add(b, ", %s", s->nodes[i].name);
        }
        if (n > NAMES_MAX)
                strbuf_add(b, " and %zu more", n - NAMES_MAX);
        if (n > 0)
                strbuf_add(b, "%s", after);
        return n > 0;
}

/* Adds "ros1, ros2 and 3 more never reached this DFM"; false: no node matches. */
static bool add_nodes(struct strbuf *b, const struct dfm *d, const struct scenario *s, struct which which,
                      const char *what)
{
        bool any = add_names(b, d, s, which, "", " ");

        if (any)
                strbuf_add(b, "%s", what);
        return any;
}

/* Adds the reasons that nodes report: "ros1: no front-end for 2.0 s". */
static void add_own_reasons(struct strbuf *b, const struct dfm *d, const struct scenario *s)
{
        char text[256];

        roster_describe_reasons(s, d, text, sizeof text);
        if (text[0])
                strbuf_add(b, "%s%s", b->length > 0 ? "; " : "", text);
}

/* Adds the nodes that delay a reset of the counters, or the beginning of a run. */
static void add_reset(struct strbuf *b, const struct dfm *d, const struct scenario *s)
{
        const char *separator = b->length > 0 ? "; " : "";
        uint32_t open = dfm_open_events(d);

        if (open > 0)
                strbuf_add(b, "%sthe counters were reset, and %u event%s from before %s not ended", separator,
                           open, open == 1 ? "" : "s", open == 1 ? "has" : "have");
        else if (!add_nodes(b, d, s, ROSS(behind),
                            dfm_counts(d)->offered.resets > 0
                                    ? "did not confirm the last reset of the counters"
                                    : "did not confirm the beginning of the run"))
                strbuf_add(b,
                           "%sthe counters were reset, and frames from before may still arrive, for ros.wait",
                           separator);
}

static void add_idle(struct strbuf *b, const struct dfm *d, const struct scenario *s, uint64_t other_runs)
{
        if (dfm_waits_for_reset(d))
                add_reset(b, d, s);
        else if (!dfm_run_view(d).is_busy && s->trigger.source_kind == TRIGGER_UDP && other_runs > 0)
                strbuf_add(b,
                           "%sno trigger of run %u came to UDP port %u, only %llu datagrams that name "
                           "another run",
                           b->length > 0 ? "; " : "", dfm_run(d), s->trigger.port,
                           (unsigned long long)other_runs);
        else if (!dfm_run_view(d).is_busy && s->trigger.source_kind == TRIGGER_UDP)
                strbuf_add(b, "%sno trigger came to UDP port %u", b->length > 0 ? "; " : "", s->trigger.port);
        else
                strbuf_add(b, "%s%s", b->length > 0 ? "; " : "",
                           dfm_run_view(d).is_busy ? "no SFI had a free credit"
                           : s->trigger.source_kind == TRIGGER_FRAMES
                                   ? "no ROS that makes the triggers got a frame with a number"
                           : s->trigger.source_kind == TRIGGER_CLOCK
                                   ? "no ROS got frames of a whole slice of time"
                                   : "the first trigger was not due yet");
}

void idle_explain(struct idle *i, const struct dfm *d, const struct scenario *s, uint64_t other_runs)
{
        struct strbuf b;

        if (dfm_counts(d)->triggers > 0 || dfm_state(d) >= RUN_DRAINING)
                return;
        b = strbuf_init(i->why, sizeof i->why);
        add_nodes(&b, d, s, NODES(was_never_received), "never reached this DFM");
        add_nodes(&b, d, s, NODES(has_left), "left or fell silent");
        if (dfm_has_begun(d) &&
            !add_nodes(&b, d, s, ROSS(is_missing_frame), "waited for a frame of its front-end") &&
            !add_nodes(&b, d, s, ROSS(holds_back), "held triggers back (XOFF)"))
                add_idle(&b, d, s, other_runs);
        add_own_reasons(&b, d, s);
}

/* ---- What the run waits for ---- */

/* A node counts as silent after it missed this number of keep-alives, and after at least SILENT_LEAST_NS. */
#define SILENT_KEEP_ALIVES 3
#define SILENT_LEAST_NS NS_PER_S

/* The core's state at one time, for the functions below. */
struct look {
        const struct dfm *d;
        const struct scenario *s;
        uint64_t now_ns;
        struct strbuf *b;
};

static bool is_present(const struct look *l, const struct scenario_node *n, struct dfm_node_view *ret)
{
        if (n->role != ROLE_ROS && n->role != ROLE_SFI)
                return false;
        *ret = dfm_view(l->d, n->role, (uint16_t)n->index);
        return ret->live && !ret->left_out;
}

/* Adds "ros4 silent", and returns since when. A node that is silent for longer than that counts as gone. */
static bool add_silent(const struct look *l, uint64_t *ret_since_ns)
{
        uint64_t limit_ns = MAX(SILENT_KEEP_ALIVES * l->s->dfm.keep_alive_ns, SILENT_LEAST_NS);
        struct dfm_node_view v;
        size_t n = 0;

        *ret_since_ns = l->now_ns;
        for (size_t i = 0; i < l->s->n_nodes; i++) {
                if (!is_present(l, &l->s->nodes[i], &v) || v.received_ns + limit_ns > l->now_ns)
                        continue;
                *ret_since_ns = MIN(*ret_since_ns, v.received_ns);
                if (n++ < NAMES_MAX)
                        strbuf_add(l->b, "%s%s", n > 1 ? ", " : "", l->s->nodes[i].name);
        }
        if (n > NAMES_MAX)
                strbuf_add(l->b, " and %zu more", n - NAMES_MAX);
        if (n > 0)
                strbuf_add(l->b, " silent");
        return n > 0;
}

/* Adds the reason of a ROS that an SFI waits for: " (no front-end)". */
static void add_ros_reason(const struct look *l, unsigned ros)
{
        const struct scenario_node *n = scenario_node_of(l->s, ROLE_ROS, ros);
        struct dfm_node_view v;
        char what[128];

        if (!n)
                return;
        v = dfm_view(l->d, ROLE_ROS, (uint16_t)ros);
        if (v.live && v.reason != REASON_NONE)
                strbuf_add(l->b, " (%s)", reason_text(l->s, v.reason, v.reason_node, what, sizeof what));
}

/* Adds the first node of this role that reports this reason; NODE_REASONS: any reason except a full
 * buffer. */
static bool add_first(const struct look *l, enum node_role role, unsigned reason)
{
        struct dfm_node_view v;
        char what[160];

        for (size_t i = 0; i < l->s->n_nodes; i++) {
                const struct scenario_node *n = &l->s->nodes[i];

                if (n->role != role || !is_present(l, n, &v) || v.reason == REASON_NONE ||
                    v.reason == REASON_BUFFER_FULL || (reason != NODE_REASONS && v.reason != reason))
                        continue;
                strbuf_add(l->b, "%s%s", l->b->length > 0 ? ": " : "",
                           reason_text_of(l->s, n->name, v.reason, v.reason_node, what, sizeof what));
                if (v.reason == REASON_WAITS_FOR)
                        add_ros_reason(l, v.reason_node);
                return true;
        }
        return false;
}

/* Adds the first cause in the chain: a disk delays an SFI, the SFI delays its ROSs, and the ROSs delay the
 * DFM. */
static bool add_cause(const struct look *l)
{
        return add_first(l, ROLE_SFI, REASON_DISK_FULL) || add_first(l, ROLE_SFI, REASON_SLOW_OUTPUT) ||
               add_first(l, ROLE_SFI, REASON_WAITS_FOR) || add_first(l, ROLE_SFI, NODE_REASONS) ||
               add_first(l, ROLE_ROS, NODE_REASONS);
}

static bool has_open_events(const struct dfm *d, const struct scenario_node *n)
{
        return n->role == ROLE_SFI && dfm_view(d, ROLE_SFI, (uint16_t)n->index).held > 0;
}

static bool is_live_sfi(const struct dfm *d, const struct scenario_node *n)
{
        return n->role == ROLE_SFI && dfm_view(d, ROLE_SFI, (uint16_t)n->index).live;
}

static bool has_credit(const struct look *l)
{
        for (unsigned i = 0; i < l->s->sfi.count; i++) {
                if (dfm_view(l->d, ROLE_SFI, (uint16_t)i).credits > 0)
                        return true;
        }
        return false;
}

/* Adds "no credit from sfi1, sfi2". */
static void add_no_credit(const struct look *l)
{
        if (!add_names(l->b, l->d, l->s, NODES(is_live_sfi), "no credit from ", ""))
                strbuf_add(l->b, "no SFI is present");
}

static void add_open_events(const struct look *l)
{
        uint32_t open = dfm_open_events(l->d);
        const char *s = open == 1 ? "" : "s";
        char before[48];

        snprintf(before, sizeof before, "%u event%s open on ", open, s);
        if (!add_names(l->b, l->d, l->s, NODES(has_open_events), before, "") && open > 0)
                strbuf_add(l->b, "%u open event%s without an SFI", open, s);
}

static bool only_undecided(const struct dfm *d)
{
        return dfm_run_view(d).undecided > 0 && dfm_run_view(d).undecided == dfm_open_events(d);
}

static void add_work(const struct look *l)
{
        bool gone = (dfm_live(l->d, ROLE_SFI) == 0 || dfm_live(l->d, ROLE_ROS) == 0) &&
                    add_nodes(l->b, l->d, l->s, NODES(has_left), "left or fell silent");
        bool held = add_nodes(l->b, l->d, l->s, ROSS(holds_back), "holds triggers back (XOFF)");

        if (gone)
                return;
        if (!held && dfm_waits_for_reset(l->d))
                add_reset(l->b, l->d, l->s);
        else if (!held && (dfm_run_view(l->d).waits_for_level2 || only_undecided(l->d))) {
                strbuf_add(l->b, "level 2 has not decided %u event%s", dfm_run_view(l->d).undecided,
                           dfm_run_view(l->d).undecided == 1 ? "" : "s");
                return;
        } else if (!held && dfm_run_view(l->d).is_busy && !has_credit(l))
                add_no_credit(l);
        if (!add_cause(l) && l->b->length == 0)
                add_open_events(l);
        if (l->b->length == 0)
                strbuf_add(l->b, "the last messages of the run are on their way");
}

static void add_idle_run(const struct look *l, struct obstacle *ret)
{
        unsigned kind = l->s->trigger.source_kind;

        if (dfm_state(l->d) != RUN_RUNNING)
                return;
        if (dfm_run_view(l->d).is_paused) {
                strbuf_add(l->b, "paused by an operator");
                ret->timed = true;
                return;
        }
        if (!dfm_run_view(l->d).waits_for_frames && kind == TRIGGER_UDP)
                strbuf_add(l->b, "no trigger at UDP port %u", l->s->trigger.port);
        else
                strbuf_add(l->b, "%s",
                           dfm_run_view(l->d).waits_for_frames ? "no frame from a front-end"
                           : kind == TRIGGER_FRAMES            ? "no frame that makes a trigger"
                                                               : "no trigger");
        ret->timed = true;
}

void dfm_explain(const struct dfm *d, const struct scenario *s, uint64_t now_ns, struct obstacle *ret)
{
        struct strbuf b = strbuf_init(ret->text, sizeof ret->text);
        const struct look l = {d, s, now_ns, &b};
        uint64_t since_ns;

        if (dfm_state(d) == RUN_ENDED && s->sfi.output == OUTPUT_FILE)
                (void)add_names(&b, d, s, NODES(is_live_sfi), "waiting for ", " to close the last file");
        if (dfm_state(d) == RUN_STARTING || dfm_state(d) == RUN_ENDED)
                return;
        if (add_silent(&l, &since_ns)) {
                ret->since_ns = since_ns;
                ret->timed = true;
        } else if (!dfm_has_work(d))
                add_idle_run(&l, ret);
        else if (add_nodes(&b, d, s, ROSS(is_missing_frame), "waits for frames of its front-end"))
                (void)add_first(&l, ROLE_ROS, NODE_REASONS);
        else
                add_work(&l);
}

void stall_describe_end(const struct dfm *d, const struct scenario *s, uint64_t stalled_ns, char *text,
                        size_t size_bytes)
{
        struct strbuf b = strbuf_init(text, size_bytes);
        char what[80];

        snprintf(what, sizeof what, "held triggers back (XOFF) for the last %.0f s of the run",
                 (double)stalled_ns / NS_PER_S);
        add_nodes(&b, d, s, ROSS(holds_back), what);
}

/* A disk may fail after the DFM has counted all events of the SFI as complete. */
void dfm_failed_outputs(const struct dfm *d, const struct scenario *s, struct reasons *to)
{
        for (unsigned i = 0; i < s->sfi.count; i++) {
                const struct scenario_node *n = scenario_node_of(s, ROLE_SFI, i);
                struct dfm_node_view v = dfm_view(d, ROLE_SFI, (uint16_t)i);
                char text[REASON_TEXT_MAX - 64];

                if (v.failed)
                        reasons_add(to, "%s: events that are complete may be in no file",
                                    roster_describe_failure(s, d, n, text, sizeof text));
        }
}

/* Events that such an SFI built but did not report were assigned to other SFIs, or are lost. */
static void vanished_sfis(const struct dfm *d, const struct scenario *s, struct reasons *to)
{
        const char *lost = dfm_counts(d)->lost > 0 ? ", or that count as lost" : "";
        bool writes = s->sfi.output == OUTPUT_FILE;

        for (unsigned i = 0; i < s->sfi.count; i++) {
                const struct scenario_node *n = scenario_node_of(s, ROLE_SFI, i);
                struct dfm_node_view v = dfm_view(d, ROLE_SFI, (uint16_t)i);

                if (v.vanished)
                        reasons_add(
                                to,
                                "%s fell silent and did not return: %s events that other SFIs built too%s",
                                n->name, writes ? "its files may lack an end, or hold" : "it may have built",
                                lost);
                if (v.replaced)
                        reasons_add(to,
                                    "%s was restarted with open events: its earlier %s events that other "
                                    "SFIs built too%s",
                                    n->name,
                                    writes ? "files may lack an end, or hold" : "process may have built",
                                    lost);
        }
}

/* The events of such a process count as reported by its SFI, but it is unknown whether the files contain all
 * of them. */
static void unclosed_files(const struct dfm *d, const struct scenario *s, struct reasons *to)
{
        for (unsigned i = 0; i < s->sfi.count && s->sfi.output == OUTPUT_FILE; i++) {
                const struct scenario_node *n = scenario_node_of(s, ROLE_SFI, i);
                struct dfm_node_view v = dfm_view(d, ROLE_SFI, (uint16_t)i);
                unsigned long long events = v.unclosed + v.left_open;

                if (s->sfi.durability == DURABILITY_NONE && events > 0)
                        reasons_add(to,
                                    "%s ended without closing its files: up to %llu of the events that it "
                                    "reported as built may be in no file, because sfi.durability is none",
                                    n->name, events);
                else if (v.unclosed > 0 && !v.replaced)
                        reasons_add(to,
                                    "%s was restarted before it had closed its files: until then it built "
                                    "%llu events, and the last ones before each restart are in a file "
                                    "without an end, which evb dump --repair completes",
                                    n->name, (unsigned long long)v.unclosed);
        }
}

static void add_ross(const struct dfm *d, const struct scenario *s, struct which which, const char *what,
                     struct reasons *to)
{
        char text[REASON_TEXT_MAX];
        struct strbuf b = strbuf_init(text, sizeof text);

        if (add_nodes(&b, d, s, which, what))
                reasons_add(to, "%s", text);
}

/* Only a ROS counts the frames of its front-end that are in no event, so without the ROS their number is
 * unknown. */
static void unknown_frames(const struct dfm *d, const struct scenario *s, struct reasons *to)
{
        add_ross(d, s, ROSS(replaced),
                 "restarted in the run: frames that the earlier process had, or did not read, may be in no "
                 "account",
                 to);
        if (dfm_run_view(d).was_unrecorded)
                reasons_add(to,
                            "a DFM resumed this run without the record of the one before it: what nodes "
                            "reported before is not known%s",
                            scenario_has_front_ends(s) ? ", so frames may be in no account" : "");
        add_ross(d, s, ROSS(unfinished),
                 "did not report the end of the run: frames of the front-end may be in no account", to);
        add_ross(d, s, ROSS(cut_short),
                 "did not report which frames came before the stop (it was silent then, or has an older "
                 "version of evb): the last frames of the front-end may be in no event",
                 to);
        add_ross(d, s, ROSS(short_of_frames),
                 "reported frames of the front-end that are lost, or in no event: the ROS's own report says "
                 "why",
                 to);
}

/* Another DFM resumed the run, and no remaining process has the information. If the ROSs have cleared an
 * event that was open then, it is lost, too. */
static void unknown_ends(const struct dfm *d, const struct scenario *s, struct reasons *to)
{
        uint64_t lost = dfm_counts(d)->lost, forgotten = MIN(dfm_run_view(d).forgotten, lost);

        if (forgotten > 0)
                reasons_add(to,
                            "%llu event%s waited for level 2, or for an SFI, when an earlier DFM ended: "
                            "their triggers are not known, and they count as lost",
                            (unsigned long long)forgotten, forgotten == 1 ? "" : "s");
        for (size_t i = 0; i < s->n_nodes && lost > 0; i++) {
                const struct scenario_node *n = &s->nodes[i];

                if (n->role == ROLE_SFI && dfm_view(d, ROLE_SFI, (uint16_t)n->index).unknown)
                        reasons_add(to,
                                    "%s: the events of its earlier process are not known: its files may hold "
                                    "up to %llu of those that count as lost",
                                    n->name, (unsigned long long)lost);
        }
}

/* Their events may all count as complete. */
static void faulty_sfis(const struct dfm *d, const struct scenario *s, struct reasons *to)
{
        for (unsigned i = 0; i < s->sfi.count; i++) {
                struct dfm_node_view v = dfm_view(d, ROLE_SFI, (uint16_t)i);

                if (v.faulty && !v.failed)
                        reasons_add(to, "%s found a fault in what it built: its own report says which",
                                    scenario_node_of(s, ROLE_SFI, i)->name);
        }
}

/* At the end of the run, the DFM waited for these SFIs. */
static void unfinished_sfis(const struct dfm *d, const struct scenario *s, struct reasons *to)
{
        for (unsigned i = 0; i < s->sfi.count && s->sfi.output == OUTPUT_FILE; i++) {
                const struct scenario_node *n = scenario_node_of(s, ROLE_SFI, i);
                struct dfm_node_view v = dfm_view(d, ROLE_SFI, (uint16_t)i);

                if (v.unfinished && !v.failed && !v.vanished)
                        reasons_add(to, "%s %s: the last file of the run may be unfinished, or lack events",
                                    n->name,
                                    v.live ? "did not close its output within run.stop-timeout"
                                           : "fell silent before it had closed its output");
        }
}

static bool has_wrong_numbers(const struct dfm *d, const struct scenario_node *n)
{
        return is_one(d, n, ROSS(unreliable)) && (n->board.number.bits > 0 || n->board.time.bits > 0);
}

static bool has_wrong_count(const struct dfm *d, const struct scenario_node *n)
{
        return is_one(d, n, ROSS(unreliable)) && !has_wrong_numbers(d, n);
}

static void extra_frames(const struct dfm *d, const struct scenario *s, struct reasons *to)
{
        char names[REASON_TEXT_MAX - 192];
        struct strbuf b = strbuf_init(names, sizeof names);

        for (size_t i = 0; i < s->n_nodes; i++) {
                const struct scenario_node *n = &s->nodes[i];
                struct dfm_node_view v = dfm_view(d, n->role, (uint16_t)n->index);

                if (v.extra_frames > 0)
                        strbuf_add(&b, "%s%s (%llu%s more)", b.length > 0 ? ", " : "", n->name,
                                   (unsigned long long)v.extra_frames, v.has_more_frames ? " or" : "");
        }
        if (b.length > 0)
                reasons_add(
                        to,
                        "the run is unreliable: ROSs counted more frames than there were triggers: %s; if "
                        "the board sent these before the run, later frames are in events of other triggers",
                        names);
}

/* A board may count while another one has numbers. */
static void unreliable_frames(const struct dfm *d, const struct scenario *s, struct reasons *to)
{
        char names[REASON_TEXT_MAX - 96], counting[REASON_TEXT_MAX];
        struct strbuf b = strbuf_init(names, sizeof names), c = strbuf_init(counting, sizeof counting);
        bool numbered = add_names(&b, d, s, NODES(has_wrong_numbers), "", "");

        if (add_names(&c, d, s, NODES(has_wrong_count), "", "") || dfm_frames_differ(d))
                reasons_add(to, "the run is unreliable: frames of front-ends were lost before they were "
                                "counted, or the ROSs counted different numbers of them");
        if (numbered)
                reasons_add(to,
                            "the run is unreliable: frames may be in events of other triggers, by their "
                            "numbers or times, on %s",
                            names);
        extra_frames(d, s, to);
}

/* An earlier DFM lost these events, so this one does not recover them. */
static uint64_t lost_before(const struct dfm *d)
{
        uint64_t rest = dfm_counts(d)->lost;

        for (enum dfm_loss why = 0; why < DFM_LOSSES; why++)
                rest -= MIN(rest, dfm_lost(d, UINT16_MAX, why));
        return rest;
}

/* Whether files may hold such events: the SFI may build them after this DFM's end, or it had written them
 * when its disk could not sync or close the file. */
static bool files_may_hold(const struct dfm *d, const struct scenario *s, enum dfm_loss why)
{
        bool failed = false;

        for (uint16_t i = 0; i < s->sfi.count; i++)
                failed |= dfm_view(d, ROLE_SFI, i).failed && dfm_lost(d, i, why) > 0;
        return s->sfi.output == OUTPUT_FILE &&
               (why == DFM_LOSS_OPEN ||
                (why == DFM_LOSS_REPORTED && s->sfi.durability == DURABILITY_SYNCED && failed));
}

/* Adds "7 not reported in time (sfi1, sfi2)". */
static void add_loss(struct strbuf *b, const struct dfm *d, const struct scenario *s, enum dfm_loss why)
{
        uint64_t n = dfm_lost(d, UINT16_MAX, why);
        static const char *const texts[DFM_LOSSES] = {
                [DFM_LOSS_REPORTED] = "without a fragment, or not written",
                [DFM_LOSS_OVERDUE] = "not reported in time",
                [DFM_LOSS_GONE] = "of an SFI that left, fell silent or restarted",
                [DFM_LOSS_NO_SFI] = "that no SFI took",
                [DFM_LOSS_FAILED] = "open when the run failed",
                [DFM_LOSS_STALLED] = "given up without progress",
                [DFM_LOSS_UNKNOWN] = "whose trigger an earlier DFM knew",
                [DFM_LOSS_OPEN] = "still open when this DFM ended",
        };
        unsigned names = 0;

        if (n == 0)
                return;
        strbuf_add(b, "%s%llu %s", b->length > 0 ? ", " : "", (unsigned long long)n, texts[why]);
        for (size_t i = 0; i < s->n_nodes; i++) {
                if (s->nodes[i].role == ROLE_SFI && dfm_lost(d, (uint16_t)s->nodes[i].index, why) > 0)
                        strbuf_add(b, "%s%s", names++ ? ", " : " (", s->nodes[i].name);
        }
        if (names > 0 && files_may_hold(d, s, why))
                strbuf_add(b, ": files may hold %s", n == 1 ? "it" : "some of them");
        strbuf_add(b, "%s", names > 0 ? ")" : "");
}

static void lost_events(const struct dfm *d, const struct scenario *s, struct reasons *to)
{
        char text[REASON_TEXT_MAX - 16];
        struct strbuf b = strbuf_init(text, sizeof text);
        uint64_t rest = lost_before(d);

        for (enum dfm_loss why = 0; why < DFM_LOSSES; why++)
                add_loss(&b, d, s, why);
        if (rest > 0)
                strbuf_add(&b, "%s%llu of before this DFM resumed the run", b.length > 0 ? ", " : "",
                           (unsigned long long)rest);
        if (b.length > 0)
                reasons_add(to, DFM_REASON_LOST "%s", text);
}

void dfm_reasons(const struct dfm *d, const struct scenario *s, const struct idle *i, struct reasons *to)
{
        const struct dfm_counts *c = dfm_counts(d);
        unsigned long long triggers = c->triggers;
        char text[REASON_TEXT_MAX];

        dfm_failed_outputs(d, s, to);
        if (dfm_is_in_run(d) && !dfm_has_begun(d))
                reasons_add(to, "this DFM was stopped before the nodes of the run had reported their events, "
                                "so no account has them");
        else if (triggers == 0)
                reasons_add(to, "no trigger was accepted: %s%s%s",
                            dfm_has_begun(d) ? "" : "stopped before the run began",
                            dfm_has_begun(d) || !i->why[0] ? "" : "; ", i->why);
        if (dfm_is_unreliable(d))
                unreliable_frames(d, s, to);
        if (dfm_run_view(d).is_overdue)
                reasons_add(
                        to,
                        "the run ended when this DFM resumed it: its scenario.duration had already passed");
        if (roster_describe_apart(s, d, text, sizeof text)[0])
                reasons_add(to, "%s", text);
        vanished_sfis(d, s, to);
        unclosed_files(d, s, to);
        unknown_ends(d, s, to);
        unknown_frames(d, s, to);
        unfinished_sfis(d, s, to);
        faulty_sfis(d, s, to);
        if (dfm_run_view(d).has_guessed)
                reasons_add(to, "a DFM resumed this run without all records and reports of the time before: "
                                "of the events of that time, lost ones may count as complete, and rejected "
                                "ones as lost or complete");
        if (c->ended_again > 0)
                reasons_add(to, "%llu event%s ended again on another SFI: files may hold %s twice%s",
                            (unsigned long long)c->ended_again, c->ended_again == 1 ? "" : "s",
                            c->ended_again == 1 ? "it" : "them",
                            lost_before(d) > 0 ? ", or once, although the event counts as lost" : "");
        if (c->partial > 0)
                reasons_add(to, "%llu of %llu events are partial", (unsigned long long)c->partial, triggers);
        if (c->lost > 0)
                reasons_add(to, "%llu of %llu events are lost", (unsigned long long)c->lost, triggers);
        lost_events(d, s, to);
}
