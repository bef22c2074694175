/* Parses the text values of [trigger], and checks its keys against each other and against the nodes. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/quantity.h"
#include "base/util.h"
#include "core/trigger.h"
#include "conf_internal.h"

/* Half of the slices that data/slicer.c keeps open. */
#define WINDOW_MAX_SLICES 32768u
#define LEADER_STANDARD "any"
#define SLICE_STANDARD "10ms"
#define SLICE_LEAST_NS (NS_PER_MS / 10)
#define SLICE_MOST_NS (3600 * NS_PER_S)
#define WINDOW_STANDARD_NS (100 * NS_PER_MS)
#define WINDOW_LEAST_NS (NS_PER_MS / 10)
#define WINDOW_MOST_NS (3600 * NS_PER_S)

/* The text after `word`, or after `word` and a colon; NULL: another word. */
static const char *after_word(const char *text, const char *word, const char *standard)
{
        size_t n = strlen(word);

        if (strncmp(text, word, n) != 0)
                return NULL;
        return text[n] == '\0' ? standard : text[n] == ':' ? text + n + 1 : NULL;
}

/* Parses TIME or TIME+OVERLAP. */
static bool parse_slice(const char *slice, uint64_t *ret_ns, uint64_t *ret_overlap_ns)
{
        char *overlap, text[SCENARIO_TEXT_MAX];

        strcpy(text, slice);
        overlap = strchr(text, '+');
        if (overlap)
                *overlap++ = '\0';
        *ret_overlap_ns = 0;
        return quantity_parse_time(text, ret_ns) >= 0 && *ret_ns >= SLICE_LEAST_NS &&
               *ret_ns <= SLICE_MOST_NS && (!overlap || quantity_parse_time(overlap, ret_overlap_ns) >= 0);
}

static void resolve_slice(struct loading *l, const char *slice)
{
        struct scenario *s = l->scenario;

        if (!parse_slice(slice, &s->trigger.slice_ns, &s->trigger.overlap_ns))
                conf_key_error(l, "trigger", "source",
                               "invalid slice \"%.100s\"; expected a time from 100us to 1h, and optionally "
                               "an overlap, e.g. clock:10ms+100us",
                               slice);
        else if (s->trigger.overlap_ns >= s->trigger.slice_ns)
                conf_key_error(l, "trigger", "source",
                               "the overlap is too long; expected less than the slice");
}

static bool parse_window(const char *window, uint64_t *ret_ns)
{
        return quantity_parse_time(window, ret_ns) >= 0 && *ret_ns >= WINDOW_LEAST_NS &&
               *ret_ns <= WINDOW_MOST_NS;
}

bool conf_source_time_is_valid(const char *after, const char *value)
{
        uint64_t ns, overlap_ns;

        if (!after)
                return parse_slice(value, &ns, &overlap_ns) && overlap_ns < ns;
        return strcmp(after, CONF_WITHIN) == 0 ? parse_window(value, &ns)
                                               : quantity_parse_time(value, &ns) >= 0;
}

/* Parses the window after the word within, and removes it from the text. Returns whether there is one. */
static bool resolve_window(struct loading *l, char *source)
{
        char *within = strstr(source, CONF_WITHIN);
        uint64_t *ns = &l->scenario->trigger.window_ns;

        *ns = WINDOW_STANDARD_NS;
        if (!within)
                return false;
        *within = '\0';
        within += strlen(CONF_WITHIN);
        if (!parse_window(within, ns))
                conf_key_error(l, "trigger", "source",
                               "invalid time \"%.100s\" after within; expected a time from 100us to 1h",
                               within);
        return true;
}

/* Parses PORT, or GROUP:PORT with a multicast group. */
static bool parse_box(const char *text, char *ret_group, size_t group_bytes, uint16_t *ret_port)
{
        struct conf_address host;
        const char *colon = strrchr(text, ':');
        int n = colon ? (int)(colon - text) : 0;
        bool bracketed = n >= 2 && text[0] == '[';

        ret_group[0] = '\0';
        if (conf_is_port(text)) {
                *ret_port = (uint16_t)atoi(text);
                return true;
        }
        if (!conf_endpoint_parse(&host, ret_port, text) || !conf_address_is_multicast(&host))
                return false;
        snprintf(ret_group, group_bytes, "%.*s", bracketed ? n - 2 : n, bracketed ? text + 1 : text);
        return true;
}

static void resolve_source(struct loading *l)
{
        struct scenario *s = l->scenario;
        char text[SCENARIO_TEXT_MAX];
        const char *leader, *slice;
        bool has_window;

        strcpy(text, s->trigger.source);
        has_window = resolve_window(l, text);
        leader = after_word(text, "frames", LEADER_STANDARD);
        slice = after_word(text, "clock", SLICE_STANDARD);
        if (has_window && !leader && !slice)
                conf_key_error(l, "trigger", "source",
                               "only numbers of frames and slices have a window; expected within only after "
                               "frames or clock");
        strcpy(s->trigger.leader, leader ?: LEADER_STANDARD);
        resolve_slice(l, slice ?: SLICE_STANDARD);
        if (strcmp(text, "internal") == 0) {
                s->trigger.source_kind = TRIGGER_INTERNAL;
        } else if (strncmp(text, "udp:", 4) == 0 &&
                   parse_box(text + 4, s->trigger.group, sizeof s->trigger.group, &s->trigger.port)) {
                s->trigger.source_kind = TRIGGER_UDP;
        } else if (slice) {
                s->trigger.source_kind = TRIGGER_CLOCK;
        } else if (leader) {
                s->trigger.source_kind = TRIGGER_FRAMES;
        } else
                conf_key_error(l, "trigger", "source",
                               "invalid source \"%.100s\"; expected internal, udp:PORT, frames or clock, or "
                               "udp:GROUP:PORT with a multicast group",
                               text);
}

void conf_resolve_trigger(struct loading *l)
{
        const char *to = l->scenario->trigger.busy_to;
        struct conf_address host;
        uint16_t port;

        resolve_source(l);
        if (strcmp(to, "none") != 0 && (!conf_endpoint_parse(&host, &port, to) ||
                                        conf_address_is_unset(&host) || conf_address_is_broadcast(&host)))
                conf_key_error(
                        l, "trigger", "busy-to",
                        "invalid address \"%.100s\"; expected none, or HOST:PORT with a numeric IPv4 or "
                        "[IPv6] address, which may be a multicast group but not a broadcast address",
                        to);
}

/* The DFM sends from its own address, so busy-to must have the same family. */
static void check_busy_family(struct loading *l)
{
        const struct scenario *s = l->scenario;
        const struct scenario_node *dfm = scenario_node_of(s, ROLE_DFM, 0);
        struct conf_address own, to;
        uint16_t port;

        if (dfm && conf_address_parse(&own, dfm->address) &&
            conf_endpoint_parse(&to, &port, s->trigger.busy_to) && own.family != to.family)
                conf_key_error(l, "trigger", "busy-to",
                               "\"%.60s\" is of another address family than %s of node %s; expected an "
                               "address of that family",
                               s->trigger.busy_to, dfm->address, dfm->name);
}

static bool is_ros_with_front_end(const struct scenario *s, const char *name)
{
        for (unsigned i = 0; i < s->ros.count; i++) {
                const struct scenario_node *n = scenario_node_of(s, ROLE_ROS, i);

                if (strcmp(n->name, name) == 0)
                        return scenario_has_front_end(n);
        }
        return false;
}

static void check_frames(struct loading *l)
{
        const struct scenario *s = l->scenario;
        const char *leader = s->trigger.leader;

        if (s->trigger.source_kind != TRIGGER_FRAMES)
                return;
        if (!scenario_has_front_ends(s))
                conf_key_error(
                        l, "trigger", "source",
                        "no ROS has a board whose frames make the triggers; expected a source udp: or tcp:");
        if (strcmp(leader, "any") != 0 && !is_ros_with_front_end(s, leader))
                conf_key_error(l, "trigger", "source",
                               "\"%.60s\" is not a ROS with a front-end; expected frames, or frames:ROS with "
                               "the name of one",
                               leader);
}

static void check_slices(struct loading *l)
{
        const struct scenario *s = l->scenario;

        if (!scenario_has_slices(s)) {
                if (s->trigger.overlap_ns > 0)
                        conf_key_error(l, "trigger", "source",
                                       "only frames with times can be copied; set ros.event-time");
                if (s->ros.board.time.bits > 0 && !scenario_has_front_ends(s))
                        conf_key_error(l, "ros", "event-time",
                                       "no ROS has a front-end whose frames have times");
                return;
        }
        if (s->trigger.window_ns / s->trigger.slice_ns >= WINDOW_MAX_SLICES)
                conf_key_error(l, "trigger", "source",
                               "the time after within is too long; expected less than %u times the slice, as "
                               "slices that are open need memory",
                               WINDOW_MAX_SLICES);
}

void conf_check_trigger(struct loading *l)
{
        const struct scenario *s = l->scenario;

        if (s->trigger.source_kind == TRIGGER_INTERNAL && s->trigger.kind != TRIGGER_PERIODIC &&
            s->trigger.rate_millihertz == SCENARIO_MAX)
                conf_key_error(l, "trigger", "kind", "needs a rate; set trigger.rate, or use periodic");
        if (s->trigger.source_kind == TRIGGER_UDP &&
            (s->trigger.port == s->network.control_port || s->trigger.port == scenario_data_port(s)))
                conf_key_error(l, "trigger", "source", "port %u is %s; expected another port",
                               s->trigger.port,
                               s->trigger.port == s->network.control_port ? "network.port"
                                                                          : "the port after network.port");
        check_frames(l);
        check_slices(l);
        check_busy_family(l);
}
