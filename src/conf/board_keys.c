/* The keys that describe a board's frames. Keys in [ros] apply to all boards, and keys in a [node NAME]
 * section apply only to the board of that node. This file parses the keys, and checks that the boards of a
 * run fit together. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/quantity.h"
#include "base/strbuf.h"
#include "base/util.h"
#include "conf_internal.h"

#define FIELD_EXPECTED "OFFSET[.BIT]:BITS[:be] with an offset up to 65535 and 1 to 64 bits"
/* With fewer values, one missed trigger, or one frame before its trigger, cannot be distinguished from other
 * cases. */
#define PERIOD_MIN 8
#define TICK_MAX_NS (3600 * NS_PER_S)
#define TIME_WINDOW_MAX_NS (100 * NS_PER_MS)
/* If the period is shorter, evb detects neither a board that restarts nor a board that misses that many
 * triggers. */
#define SAFE_PERIOD (UINT64_C(1) << 12)
#define SAFE_PERIOD_NS (10 * NS_PER_S)

static bool parse_count(const char *text, uint64_t most, uint64_t *ret)
{
        char *end;

        errno = 0;
        *ret = strtoull(text, &end, 10);
        return text[0] >= '0' && text[0] <= '9' && *end == '\0' && errno == 0 && *ret <= most;
}

/* Parses "count", or a field that may be followed by " mod N". False: `why` explains the error. */
static bool parse_number(const char *text, struct number_field *ret, char *why, size_t why_bytes)
{
        struct number_field field = {};
        const char *rest = strcmp(text, "count") == 0 ? "" : number_field_parse(&field, text);
        uint64_t modulus = 0;

        if (!rest || (*rest && strncmp(rest, " mod ", 5) != 0)) {
                snprintf(why, why_bytes,
                         "invalid place \"%.100s\"; expected count, or " FIELD_EXPECTED
                         " and, if the counter starts over earlier, mod N, e.g. 4:32 or 0:16 mod 32768",
                         text);
                return false;
        }
        if (field.bits > 0 && number_field_period(&field) < PERIOD_MIN) {
                snprintf(why, why_bytes, "invalid place \"%.100s\"; expected 3 to 64 bits for a number",
                         text);
                return false;
        }
        if (*rest && (!parse_count(rest + 5, NUMBER_PERIOD_MAX, &modulus) || modulus < PERIOD_MIN ||
                      modulus > number_field_period(&field))) {
                snprintf(why, why_bytes,
                         "invalid \"%.40s\"; expected mod N with N from %d to %" PRIu64
                         ", after which the counter is 0 again",
                         rest + 1, PERIOD_MIN, number_field_period(&field));
                return false;
        }
        /* A modulus that is the full range of the field has no effect. */
        field.modulus = modulus == number_field_period(&field) ? 0 : modulus;
        *ret = field;
        return true;
}

static bool parse_time(const char *text, struct scenario_board *b, char *why, size_t why_bytes)
{
        struct number_field field = {};
        const char *rest = strcmp(text, "none") == 0 ? "" : number_field_parse(&field, text);
        bool follows = rest && strcmp(rest, " follow") == 0;
        const char *within = rest && strncmp(rest, CONF_WITHIN, strlen(CONF_WITHIN)) == 0 && field.bits > 0
                                     ? rest + strlen(CONF_WITHIN)
                                     : NULL;
        uint64_t window_ns = 0;

        if (!rest || (*rest && !follows && !within)) {
                snprintf(why, why_bytes,
                         "invalid place \"%.100s\"; expected none, or " FIELD_EXPECTED
                         ", e.g. 8:64, optionally with follow, or within TIME",
                         text);
                return false;
        }
        if (within && (quantity_parse_time(within, &window_ns) < 0 || window_ns == 0 ||
                       window_ns > TIME_WINDOW_MAX_NS)) {
                snprintf(why, why_bytes,
                         "invalid time \"%.40s\" after within; expected 1ns to 100ms, e.g. 1us", within);
                return false;
        }
        b->time = field;
        b->follows = follows;
        b->time_window_ns = window_ns;
        return true;
}

static bool parse_frame(const char *text, struct frame_rule *ret, char *why, size_t why_bytes)
{
        const char *wrong = frame_rule_parse(ret, text);

        if (wrong)
                snprintf(why, why_bytes, "invalid frame \"%.100s\"; %s", text, wrong);
        return !wrong;
}

static bool parse_fragments(const char *text, struct join_rule *ret, char *why, size_t why_bytes)
{
        const char *wrong = join_rule_parse(ret, text);

        if (wrong)
                snprintf(why, why_bytes, "invalid fragments \"%.100s\"; %s", text, wrong);
        return !wrong;
}

static bool parse_from(const char *text, int64_t *ret, char *why, size_t why_bytes)
{
        char *end;

        errno = 0;
        *ret = strtoll(text, &end, 10);
        if (end != text && *end == '\0' && errno != ERANGE)
                return true;
        snprintf(why, why_bytes, "\"%.100s\" is not a whole number; expected e.g. 1 or -1", text);
        return false;
}

void conf_resolve_board(struct loading *l)
{
        struct scenario *s = l->scenario;
        struct scenario_board *b = &s->ros.board;
        char why[300];

        if (!parse_frame(s->ros.frame, &b->frame, why, sizeof why))
                conf_key_error(l, "ros", "frame", "%s", why);
        if (!parse_number(s->ros.event_number, &b->number, why, sizeof why))
                conf_key_error(l, "ros", "event-number", "%s", why);
        if (!parse_time(s->ros.event_time, b, why, sizeof why))
                conf_key_error(l, "ros", "event-time", "%s", why);
        if (!parse_from(s->ros.number_from, &b->number_from, why, sizeof why))
                conf_key_error(l, "ros", "number-from", "%s", why);
        if (!parse_fragments(s->ros.fragments, &b->join, why, sizeof why))
                conf_key_error(l, "ros", "fragments", "%s", why);
        b->tick_ns = s->ros.tick_ns;
}

void conf_set_node_board(struct loading *l, const char *what, struct scenario_node *n, enum conf_node_key key,
                         const char *value)
{
        struct scenario_board *b = &n->board;
        bool right = true;
        char why[300];

        n->own_keys |= 1u << key;
        switch (key) {
        case NODE_FRAME:
                right = parse_frame(value, &b->frame, why, sizeof why);
                break;
        case NODE_EVENT_NUMBER:
                right = parse_number(value, &b->number, why, sizeof why);
                break;
        case NODE_NUMBER_FROM:
                right = parse_from(value, &b->number_from, why, sizeof why);
                break;
        case NODE_EVENT_TIME:
                right = parse_time(value, b, why, sizeof why);
                break;
        case NODE_FRAGMENTS:
                right = parse_fragments(value, &b->join, why, sizeof why);
                break;
        case NODE_TICK:
                right = quantity_parse_time(value, &b->tick_ns) == 0 && b->tick_ns > 0 &&
                        b->tick_ns <= TICK_MAX_NS;
                snprintf(why, sizeof why, "\"%.40s\" is not a time from 1ns to 3600s; expected e.g. 8ns",
                         value);
                break;
        default:
                break;
        }
        if (!right)
                conf_error(l, l->line, what, "%s", why);
}

bool conf_node_owns(const struct scenario_node *n, enum conf_node_key key)
{
        return n->own_keys & 1u << key;
}

void conf_inherit_board(const struct scenario *s, struct scenario_node *n)
{
        const struct scenario_board *all = &s->ros.board;
        struct scenario_board *b = &n->board;

        if (!conf_node_owns(n, NODE_FRAME))
                b->frame = all->frame;
        if (!conf_node_owns(n, NODE_EVENT_NUMBER))
                b->number = all->number;
        if (!conf_node_owns(n, NODE_NUMBER_FROM))
                b->number_from = all->number_from;
        if (!conf_node_owns(n, NODE_EVENT_TIME)) {
                b->time = all->time;
                b->follows = all->follows;
                b->time_window_ns = all->time_window_ns;
        }
        /* The time of the board counts instead of the place that others have for a number. */
        if (b->time_window_ns > 0 && !conf_node_owns(n, NODE_EVENT_NUMBER))
                b->number = (struct number_field){};
        if (!conf_node_owns(n, NODE_TICK))
                b->tick_ns = all->tick_ns;
        if (!conf_node_owns(n, NODE_FRAGMENTS))
                b->join = all->join;
}

char *conf_time_text(uint64_t ns, char text[static SCENARIO_TEXT_MAX])
{
        struct strbuf b = strbuf_init(text, SCENARIO_TEXT_MAX);

        text[0] = '\0';
        conf_add_number(&b, KEY_TIME, ns);
        return text;
}

char *conf_board_text(const struct scenario_board *b, enum conf_node_key key,
                      char text[static SCENARIO_TEXT_MAX])
{
        char window[SCENARIO_TEXT_MAX];

        switch (key) {
        case NODE_FRAME:
                return frame_rule_format(&b->frame, text);
        case NODE_EVENT_NUMBER:
                return b->number.bits > 0 ? number_field_format(&b->number, text) : strcpy(text, "count");
        case NODE_NUMBER_FROM:
                snprintf(text, SCENARIO_TEXT_MAX, "%" PRId64, b->number_from);
                return text;
        case NODE_EVENT_TIME:
                if (b->time.bits == 0)
                        return strcpy(text, "none");
                number_field_format(&b->time, text);
                if (b->time_window_ns > 0)
                        strcat(strcat(text, CONF_WITHIN), conf_time_text(b->time_window_ns, window));
                return b->follows ? strcat(text, " follow") : text;
        case NODE_FRAGMENTS:
                return join_rule_format(&b->join, text);
        case NODE_TICK:
                return conf_time_text(b->tick_ns, text);
        default:
                text[0] = '\0';
                return text;
        }
}

/* Reports an error in a key of a board at the place that sets the key: the node or [ros]. */
static void board_error(struct loading *l, const struct scenario_node *n, enum conf_node_key key,
                        const char *text)
{
        if (conf_node_owns(n, key))
                conf_node_error(l, n, key, "%s", text);
        else
                conf_key_error(l, "ros", conf_node_key_name(key), "%s", text);
}

static void check_unused(struct loading *l, const struct scenario_node *n)
{
        for (enum conf_node_key key = NODE_BOARD_FIRST; key <= NODE_BOARD_LAST; key++) {
                if (!scenario_has_front_end(n) && conf_node_has(l, n, key))
                        conf_node_error(
                                l, n, key,
                                "this ROS has no board; expected this key only with a source udp: or tcp:");
        }
}

static void warn_narrow(struct loading *l, const struct scenario_node *n)
{
        uint64_t period = number_field_period(&n->board.number);

        if (!scenario_has_front_end(n) || period == 0 || period >= SAFE_PERIOD)
                return;
        conf_warn(l, n->line,
                  "node %.31s: its numbers start over after %" PRIu64
                  " values, so evb cannot detect that the board restarts or misses that many triggers; check "
                  "a correlation with another board",
                  n->name, period);
}

/* A frame that comes late may match the triggers of the next period. */
static void warn_short(struct loading *l, const struct scenario_node *n)
{
        uint64_t counts = n->board.time.bits < 64 ? UINT64_C(1) << n->board.time.bits : UINT64_MAX;

        if (!scenario_matches_times(n) || counts >= SAFE_PERIOD_NS / n->board.tick_ns)
                return;
        conf_warn(l, n->line,
                  "node %.31s: its clock starts over after %.3g s; a frame that comes late by more than an "
                  "eighth of that may be in no event, or in the event of another trigger",
                  n->name, (double)(counts * n->board.tick_ns) / 1e9);
}

/* Whether no earlier node reports the same value, because all boards that inherit the value share one
 * error. */
static bool is_new(const struct scenario *s, const struct scenario_node *n, enum conf_node_key key)
{
        for (const struct scenario_node *other = s->nodes; other < n; other++) {
                if (!conf_node_owns(n, key) && scenario_has_front_end(other) && !conf_node_owns(other, key))
                        return false;
        }
        return true;
}

/* The DFM receives the numbers of all boards modulo their common period, so this period must not be too
 * short. */
static void check_common(struct loading *l, const struct scenario_node *n)
{
        const struct scenario *s = l->scenario;
        char common[200];

        if (s->trigger.source_kind != TRIGGER_FRAMES || !is_new(s, n, NODE_EVENT_NUMBER))
                return;
        if (n->board.number.bits == 0) {
                static const char text[] =
                        "frames make the triggers only if they carry numbers; set ros.event-number";

                if (conf_node_owns(n, NODE_EVENT_NUMBER))
                        board_error(l, n, NODE_EVENT_NUMBER, text);
                else
                        conf_key_error(l, "trigger", "source", "%s", text);
                return;
        }
        /* All boards share one error. */
        for (const struct scenario_node *other = s->nodes; other < n; other++) {
                if (scenario_has_front_end(other))
                        return;
        }
        if (scenario_number_period(s, n) >= SAFE_PERIOD)
                return;
        snprintf(common, sizeof common,
                 "with trigger.source = frames, the counters of all boards must start over together at least "
                 "every %" PRIu64 " triggers, not every %" PRIu64 "; expected more bits, or a trigger box",
                 SAFE_PERIOD, scenario_number_period(s, n));
        board_error(l, n, NODE_EVENT_NUMBER, common);
}

/* A stream has no datagrams. */
static void check_frame(struct loading *l, const struct scenario_node *n)
{
        if (n->board.frame.kind == FRAME_DATAGRAM && n->source_kind == SOURCE_TCP)
                board_error(l, n, NODE_FRAME,
                            "a stream has no datagrams; expected a length, a fixed size or a marker, or a "
                            "source udp:");
}

/* Frames that match triggers by their times. */
static void check_match(struct loading *l, const struct scenario_node *n)
{
        const struct scenario *s = l->scenario;

        if (conf_node_owns(n, NODE_EVENT_NUMBER) && n->board.number.bits > 0)
                conf_node_error(l, n, NODE_EVENT_NUMBER,
                                "frames match triggers by their time (event-time within) or by a number; "
                                "expected count, or event-time = none");
        if (!is_new(s, n, NODE_EVENT_TIME))
                return;
        if (s->trigger.source_kind != TRIGGER_UDP || s->trigger.group[0] == '\0')
                board_error(l, n, NODE_EVENT_TIME,
                            "frames match the times of triggers (within), which a trigger box must send to a "
                            "multicast group, so that the ROS receives them too; expected trigger.source = "
                            "udp:GROUP:PORT");
        else if (n->board.time_window_ns < n->board.tick_ns)
                board_error(l, n, NODE_EVENT_TIME,
                            "the time after within is shorter than a count of tick; expected at least that");
}

static void check_time(struct loading *l, const struct scenario_node *n)
{
        const struct scenario *s = l->scenario;

        if (n->board.time.bits == 0) {
                if (scenario_has_slices(s))
                        conf_node_error(l, n, NODE_EVENT_TIME,
                                        "other boards have times, by which frames are in slices; expected "
                                        "the place of the time for this board too");
                return;
        }
        if (n->board.time_window_ns > 0) {
                check_match(l, n);
                return;
        }
        if (s->trigger.source_kind != TRIGGER_CLOCK && is_new(s, n, NODE_EVENT_TIME))
                board_error(l, n, NODE_EVENT_TIME,
                            "only slices of time need the times of frames, or matches to the times of "
                            "triggers (within); expected trigger.source = clock, none, or within TIME");
        else if (n->board.number.bits > 0 && is_new(s, n, NODE_EVENT_NUMBER))
                board_error(l, n, NODE_EVENT_NUMBER,
                            "frames belong to slices by their time, not by a number; expected count");
        else if (s->trigger.source_kind == TRIGGER_CLOCK && n->board.time.bits < 64 &&
                 (UINT64_C(1) << n->board.time.bits) / 2 <
                         (s->trigger.slice_ns + s->trigger.window_ns) / n->board.tick_ns)
                board_error(l, n, NODE_EVENT_TIME,
                            "the time starts over within two slices and their windows; expected more bits, a "
                            "longer tick, or a shorter slice and time after within (trigger.source)");
}

/* Reports that `fragments` and another key do not fit together: at the other one if only this is set for the
 * node. All boards that inherit both share one error. */
static void join_error(struct loading *l, const struct scenario_node *n, enum conf_node_key key,
                       const char *text)
{
        if (conf_node_owns(n, NODE_FRAGMENTS))
                conf_node_error(l, n, NODE_FRAGMENTS, "%s", text);
        else if (conf_node_has(l, n, key))
                conf_node_error(l, n, key, "%s", text);
        else {
                for (const struct scenario_node *other = l->scenario->nodes; other < n; other++) {
                        if (scenario_has_front_end(other) && !conf_node_owns(other, NODE_FRAGMENTS) &&
                            !conf_node_has(l, other, key))
                                return;
                }
                conf_key_error(l, "ros", "fragments", "%s", text);
        }
}

static void check_fragments(struct loading *l, const struct scenario_node *n)
{
        const struct join_rule *join = &n->board.join;
        const struct frame_rule *frame = &n->board.frame;
        bool first = is_new(l->scenario, n, NODE_FRAGMENTS);

        if (!join->joins)
                return;
        if (scenario_has_slices(l->scenario)) {
                if (first)
                        board_error(l, n, NODE_FRAGMENTS,
                                    "the frames of a slice of time form a fragment already; expected one");
                return;
        }
        if (scenario_matches_times(n)) {
                join_error(l, n, NODE_EVENT_TIME,
                           "one frame matches the time of a trigger, so there is nothing to join; expected "
                           "fragments = one");
                return;
        }
        if (n->board.number.bits == 0)
                join_error(l, n, NODE_EVENT_NUMBER,
                           "frames are joined by the number of their trigger, but event-number is count; "
                           "expected the place of the number, or fragments = one");
        if (frame->kind == FRAME_FIXED && join_rule_end(join) + frame->skip_bytes > frame->fixed_bytes)
                join_error(l, n, NODE_FRAME,
                           "a field of count, last, demux or index in fragments is beyond the end of the "
                           "frame; expected a place within its fixed size");
        if (join->within_ns >= scenario_wait_ns(l->scenario, n))
                join_error(l, n, NODE_WAIT,
                           "events wait for the fragment no longer than for within in fragments; expected a "
                           "shorter time, or a longer wait");
        if (first && join->board.bits > 0 && scenario_sources(l->scenario) > EVB_ROS_MAX)
                board_error(l, n, NODE_FRAGMENTS,
                            "an event would have the fragments of more than 1024 boards and ROSs; expected "
                            "fewer bits for demux");
}

void conf_check_boards(struct loading *l)
{
        const struct scenario *s = l->scenario;

        for (const struct scenario_node *n = s->nodes; n < s->nodes + s->n_nodes; n++) {
                if (n->role != ROLE_ROS)
                        continue;
                check_unused(l, n);
                warn_narrow(l, n);
                warn_short(l, n);
                if (!scenario_has_front_end(n))
                        continue;
                check_frame(l, n);
                check_common(l, n);
                check_time(l, n);
                check_fragments(l, n);
        }
}
