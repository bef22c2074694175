/* Turns the reasons of Alive into text. */
#include "reason_text.h"

#include <stdio.h>

/* Returns the name or address of a node. The node may come from a message, so it need not be in the
 * scenario. */
static const char *name_node(const struct scenario *s, enum node_role role, unsigned node, bool address,
                             char text[static SCENARIO_TEXT_MAX])
{
        const struct scenario_node *o = scenario_node_of(s, role, node);

        if (o)
                snprintf(text, SCENARIO_TEXT_MAX, "%s", address ? o->address : o->name);
        else
                snprintf(text, SCENARIO_TEXT_MAX, "%s %u", scenario_role_name(role), node + 1);
        return text;
}

const char *reason_text(const struct scenario *s, unsigned reason, unsigned node, char *text,
                        size_t size_bytes)
{
        static const char *const texts[NODE_REASONS] = {
                [REASON_NONE] = "no obstacle",
                [REASON_NO_FRONT_END] = "no front-end",
                [REASON_BUFFER_FULL] = "buffer full",
                [REASON_SLOW_OUTPUT] = "slow disk",
                [REASON_OUT_OF_STEP] = "front-end out of step with the triggers",
                [REASON_SILENT] = "silent front-end",
                [REASON_DISK_FULL] = "disk full",
                [REASON_OUTPUT_MISSING] = "directory or file missing",
                [REASON_OUTPUT_DENIED] = "directory not writable",
        };

        char name[SCENARIO_TEXT_MAX];

        if (reason == REASON_WAITS_FOR)
                snprintf(text, size_bytes, "waits for fragments of %s",
                         name_node(s, ROLE_ROS, node, false, name));
        else if (reason == REASON_QUEUE_FULL)
                snprintf(text, size_bytes, "queue to %s full", name_node(s, ROLE_SFI, node, true, name));
        else if (reason == REASON_SLOW_OUTPUT && s->live.all)
                snprintf(text, size_bytes, "%s",
                         s->sfi.output == OUTPUT_FILE   ? "slow disk or live consumer"
                         : s->sfi.output == OUTPUT_LIVE ? "no live consumer, or a slow one"
                                                        : "slow live consumer");
        else if (reason < NODE_REASONS)
                snprintf(text, size_bytes, "%s", texts[reason]);
        else
                snprintf(text, size_bytes, "reason %u", reason);
        return text;
}

bool reason_is_output(unsigned reason)
{
        return reason == REASON_DISK_FULL || reason == REASON_OUTPUT_MISSING ||
               reason == REASON_OUTPUT_DENIED;
}

const char *reason_text_of(const struct scenario *s, const char *name, unsigned reason, unsigned node,
                           char *text, size_t size_bytes)
{
        bool is_place =
                reason == REASON_SLOW_OUTPUT || reason == REASON_QUEUE_FULL || reason_is_output(reason);
        char what[128];

        (void)reason_text(s, reason, node, what, sizeof what);
        if (is_place)
                snprintf(text, size_bytes, "%s on %s", what, name);
        else
                snprintf(text, size_bytes, "%s%s %s", name, reason == REASON_WAITS_FOR ? "" : ":", what);
        return text;
}
