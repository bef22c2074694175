/* Digests of the common part of a scenario: 32-bit FNV-1a over the text of each value. */
#include "conf/digest.h"

#include <string.h>

#include "base/util.h"
#include "conf/keys.h"

#define FNV_BASIS UINT32_C(2166136261)
#define FNV_PRIME UINT32_C(16777619)

/* Keys that are digested as the text of their value. The last four digests, below, cover the other
 * settings. */
static const struct {
        const char *section, *name, *both;
} common[] = {
        {"scenario", "mode", "scenario.mode"}, {"scenario", "transport", "scenario.transport"},
        {"ros", "count", "ros.count"},         {"sfi", "count", "sfi.count"},
        {"network", "port", "network.port"},   {"level2", "regions", "level2.regions"},
};

enum {
        DIGEST_TRANSPORT = 1,
        DIGEST_LEVEL2 = ARRAY_SIZE(common),
        DIGEST_SOURCE,
        DIGEST_NODES,
        DIGEST_FRAMES,
        DIGESTS
};
_Static_assert(DIGESTS <= MESSAGE_KEYS_MAX, "a Join has room for all");

static uint32_t add_text(uint32_t h, const char *text)
{
        for (const char *c = text; *c; c++)
                h = (h ^ (uint8_t)*c) * FNV_PRIME;
        return (h ^ 0xff) * FNV_PRIME; /* separates "a", "bc" from "ab", "c" */
}

static uint32_t add_number(uint32_t h, uint64_t v)
{
        return (h ^ (uint32_t)(v ^ v >> 32)) * FNV_PRIME;
}

static uint32_t digest_key(const struct scenario *s, const char *section, const char *name)
{
        char text[SCENARIO_TEXT_MAX];

        return add_text(FNV_BASIS,
                        scenario_key_value(s, scenario_key_find(section, name), text, sizeof text));
}

/* An SFI gives the fragments of a ROS these IDs. Settings that are not made add nothing, as in versions
 * without them. */
static uint32_t add_ids(uint32_t h, const struct scenario_node *ros)
{
        char text[NUMBER_FIELD_TEXT_MAX];

        if (ros->source_id != SCENARIO_AUTO)
                h = add_number(h, ros->source_id);
        if (scenario_number_of_ids(ros) > 1)
                h = add_text(h, number_field_format(&ros->board.join.board, text));
        return h;
}

static uint32_t digest_nodes(const struct scenario *s)
{
        uint32_t h = FNV_BASIS;

        for (size_t i = 0; i < s->n_nodes; i++) {
                h = add_text(h, s->nodes[i].name);
                h = add_text(h, s->nodes[i].address);
                h = add_text(h, s->nodes[i].role == ROLE_ROS && !s->nodes[i].required ? "optional" : "");
                if (s->nodes[i].role == ROLE_ROS)
                        h = add_ids(h, &s->nodes[i]);
        }
        return h;
}

/* Each ROS has its own source, but all nodes must agree on how the kinds of sources number events. */
static uint32_t digest_sources(const struct scenario *s)
{
        uint32_t h = FNV_BASIS;

        for (unsigned i = 0; i < s->ros.count; i++)
                h = (h ^ (uint32_t)scenario_node_of(s, ROLE_ROS, i)->source_kind) * FNV_PRIME;
        return h;
}

/* Covers whether the DFM makes events of frames, including the ROS that leads and the common period of the
 * numbers. Also covers the slices of time. */
static uint32_t digest_frames(const struct scenario *s)
{
        const uint64_t times[] = {s->trigger.slice_ns, s->trigger.overlap_ns, s->trigger.window_ns};
        uint32_t h = FNV_BASIS;

        if (s->trigger.source_kind == TRIGGER_FRAMES)
                h = add_number(add_text(h, s->trigger.leader),
                               scenario_number_period(s, scenario_node_of(s, ROLE_ROS, 0)));

        for (size_t i = 0; scenario_has_slices(s) && i < ARRAY_SIZE(times); i++)
                h = add_number(h, times[i]);
        return h;
}

void scenario_digest(const struct scenario *s, struct member_keys *ret)
{
        *ret = (struct member_keys){.table = FNV_BASIS, .n = DIGESTS};
        for (uint32_t i = 0; i < ARRAY_SIZE(common); i++)
                ret->values[i] = digest_key(s, common[i].section, common[i].name);
        /* Only a ROS uses the congestion control. */
        ret->values[DIGEST_TRANSPORT] =
                add_text(FNV_BASIS, s->scenario.transport == TRANSPORT_TCP ? "tcp" : "udp");
        /* Only the DFM uses the port. */
        ret->values[DIGEST_LEVEL2] = add_text(FNV_BASIS, s->level2.port > 0 ? "on" : "off");
        ret->values[DIGEST_SOURCE] = digest_sources(s);
        ret->values[DIGEST_NODES] = digest_nodes(s);
        ret->values[DIGEST_FRAMES] = digest_frames(s);
        for (uint32_t i = 0; i < DIGESTS; i++)
                ret->table = add_text(ret->table, scenario_digest_name(i));
}

const char *scenario_digest_name(unsigned key)
{
        if (key < ARRAY_SIZE(common))
                return common[key].both;
        return key == DIGEST_LEVEL2   ? "level2.listen"
               : key == DIGEST_SOURCE ? "ros.source"
               : key == DIGEST_NODES  ? "[node] sections"
               : key == DIGEST_FRAMES ? "trigger.source, or ros.event-number"
                                      : "another version of evb";
}

bool scenario_digest_has(const struct scenario_key *key)
{
        for (size_t i = 0; i < ARRAY_SIZE(common); i++) {
                if (strcmp(common[i].section, key->section) == 0 && strcmp(common[i].name, key->name) == 0)
                        return true;
        }
        return false;
}

/* Nodes may choose paths, addresses, buffers, shaping, and how they use their processors, links and disks;
 * faults for tests may concern one node only. Times that only the DFM uses do not matter at other nodes. */
static bool may_differ(const struct scenario_key *key)
{
        static const char *const chosen[] = {"busy-poll", "link-rate", "loss",      "reorder",
                                             "duplicate", "output",    "page-cache"};

        for (size_t i = 0; i < ARRAY_SIZE(chosen); i++) {
                if (strcmp(key->name, chosen[i]) == 0)
                        return true;
        }
        return key->kind == KEY_TEXT || key->applied_by || key->used_by == KEY_OF(ROLE_DFM) ||
               strcmp(key->section, "qos") == 0 || strcmp(key->section, "test") == 0 ||
               strcmp(key->section, "dfm") == 0 || strcmp(key->section, "run") == 0 ||
               strcmp(key->section, "trigger") == 0 || strstr(key->name, "buffer");
}

uint32_t scenario_digest_other(const struct scenario *s, size_t i)
{
        const struct scenario_key *key = &scenario_keys[i];
        char text[SCENARIO_TEXT_MAX];

        if (may_differ(key) || scenario_digest_has(key))
                return 0;
        return add_text(FNV_BASIS, scenario_key_value(s, key, text, sizeof text));
}
