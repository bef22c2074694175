/* Finds and counts the nodes of a loaded scenario. */
#include <string.h>

#include "conf/scenario.h"

#define FOR_EACH_ROS(n, s)                                                                                   \
        for (const struct scenario_node *n = (s)->nodes; n < (s)->nodes + (s)->n_nodes; n++)                 \
                if (n->role == ROLE_ROS)

const char *scenario_role_name(enum node_role role)
{
        static const char *const names[] = {
                [ROLE_DFM] = "dfm",
                [ROLE_ROS] = "ros",
                [ROLE_SFI] = "sfi",
                [ROLE_LEVEL2] = "level-2 client",
        };

        return names[role];
}

const struct scenario_node *scenario_find(const struct scenario *s, const char *name)
{
        for (size_t i = 0; i < s->n_nodes; i++) {
                if (strcmp(s->nodes[i].name, name) == 0)
                        return &s->nodes[i];
        }
        return NULL;
}

unsigned scenario_count(const struct scenario *s, enum node_role role)
{
        unsigned n = 0;

        for (size_t i = 0; i < s->n_nodes; i++)
                n += s->nodes[i].role == role;
        return n;
}

const struct scenario_node *scenario_node_of(const struct scenario *s, enum node_role role, unsigned index)
{
        for (size_t i = 0; i < s->n_nodes; i++) {
                if (s->nodes[i].role == role && s->nodes[i].index == index)
                        return &s->nodes[i];
        }
        return NULL;
}

bool scenario_all_from(const struct scenario *s, enum scenario_source kind)
{
        FOR_EACH_ROS(n, s)
        {
                if (n->source_kind != kind)
                        return false;
        }
        return true;
}

bool scenario_has_front_end(const struct scenario_node *n)
{
        return n->source_kind == SOURCE_UDP || n->source_kind == SOURCE_TCP;
}

uint64_t scenario_wait_ns(const struct scenario *s, const struct scenario_node *n)
{
        return n->wait_ns > 0 ? n->wait_ns : s->ros.wait_ns > 0 ? s->ros.wait_ns : s->sfi.timeout_ns / 4 * 3;
}

uint32_t scenario_number_of_ids(const struct scenario_node *n)
{
        return scenario_has_front_end(n) ? 1u << n->board.join.board.bits : 1;
}

uint32_t scenario_sources(const struct scenario *s)
{
        uint32_t n_sources = 0;

        FOR_EACH_ROS(n, s)
        {
                n_sources += scenario_number_of_ids(n);
        }
        return n_sources;
}

bool scenario_has_slices(const struct scenario *s)
{
        if (s->trigger.source_kind != TRIGGER_CLOCK)
                return false;
        FOR_EACH_ROS(n, s)
        {
                if (scenario_has_front_end(n) && n->board.time.bits > 0)
                        return true;
        }
        return false;
}

bool scenario_matches_times(const struct scenario_node *n)
{
        return scenario_has_front_end(n) && n->board.time_window_ns > 0;
}

static uint64_t common_divisor(uint64_t a, uint64_t b)
{
        return b == 0 ? a : common_divisor(b, a % b);
}

uint64_t scenario_number_period(const struct scenario *s, const struct scenario_node *node)
{
        uint64_t period = 0;

        if (scenario_has_slices(s) || scenario_matches_times(node))
                return NUMBER_PERIOD_MAX;
        if (s->trigger.source_kind != TRIGGER_FRAMES)
                return number_field_period(&node->board.number);
        FOR_EACH_ROS(n, s)
        {
                if (scenario_has_front_end(n))
                        period = common_divisor(period, number_field_period(&n->board.number));
        }
        return period;
}

bool scenario_counts_frames(const struct scenario *s)
{
        if (scenario_has_slices(s))
                return false;
        FOR_EACH_ROS(n, s)
        {
                if (scenario_has_front_end(n) && n->board.number.bits == 0 && !scenario_matches_times(n))
                        return true;
        }
        return false;
}

bool scenario_leads(const struct scenario *s, const struct scenario_node *n)
{
        return scenario_has_front_end(n) &&
               (scenario_has_slices(s) ||
                (s->trigger.source_kind == TRIGGER_FRAMES &&
                 (strcmp(s->trigger.leader, "any") == 0 || strcmp(s->trigger.leader, n->name) == 0)));
}

bool scenario_has_front_ends(const struct scenario *s)
{
        FOR_EACH_ROS(n, s)
        {
                if (scenario_has_front_end(n))
                        return true;
        }
        return false;
}

static bool replays_same_file(const struct scenario_node *a, const struct scenario_node *b)
{
        return a->source_kind == SOURCE_FILE && b->source_kind == SOURCE_FILE &&
               strcmp(a->source_at, b->source_at) == 0;
}

const char *scenario_replayed_file(const struct scenario *s)
{
        const struct scenario_node *first = scenario_node_of(s, ROLE_ROS, 0);

        return first && scenario_all_from(s, SOURCE_FILE) ? first->source_at : NULL;
}

unsigned scenario_rank_in_file(const struct scenario *s, const struct scenario_node *node)
{
        unsigned rank = 0;

        FOR_EACH_ROS(n, s)
        {
                rank += n->index < node->index && n->source_id == SCENARIO_AUTO && replays_same_file(n, node);
        }
        return rank;
}

char *scenario_source_text(const struct scenario_node *n, char text[static SCENARIO_TEXT_MAX])
{
        static const char *const kinds[] = {[SOURCE_PATTERN] = "pattern",
                                            [SOURCE_FILE] = "file",
                                            [SOURCE_UDP] = "udp",
                                            [SOURCE_TCP] = "tcp"};

        if (n->source_kind == SOURCE_PATTERN)
                snprintf(text, SCENARIO_TEXT_MAX, "pattern");
        else
                snprintf(text, SCENARIO_TEXT_MAX, "%s:%.*s", kinds[n->source_kind], SCENARIO_TEXT_MAX - 6,
                         n->source_at);
        return text;
}
