/* Applies a reloaded scenario to the cores, and decides which values they can apply. */
#include <string.h>

#include "base/error.h"
#include "core/dfm.h"
#include "core/sfi.h"
#include "reload.h"
#include "shaping.h"

static bool is(const struct scenario_key *key, const char *section, const char *name)
{
        return strcmp(key->section, section) == 0 && strcmp(key->name, name) == 0;
}

static bool dfm_permits(const struct dfm *core, const struct scenario *to, const struct scenario_key *key,
                        char *text, size_t size_bytes)
{
        bool triggers = strcmp(key->section, "trigger") == 0, ends = dfm_state(core) >= RUN_DRAINING;

        if (triggers && to->trigger.source_kind != TRIGGER_INTERNAL)
                snprintf(text, size_bytes, "triggers come from trigger.source = %s", to->trigger.source);
        else if (triggers && ends)
                snprintf(text, size_bytes, "the run accepts no further triggers");
        else if (is(key, "run", "stop-timeout") && ends)
                snprintf(text, size_bytes, "the run ends already");
        return true;
}

static bool ros_permits(const struct node *n, const struct scenario *to, const struct scenario_key *key,
                        char *text, size_t size_bytes)
{
        struct shaping *s = node_shaping(n);
        struct error e = {};

        if (strcmp(key->section, "qos") != 0)
                return true;
        if (!shaping_is_active(s)) {
                snprintf(text, size_bytes, "this node does not shape its traffic");
                return true;
        }
        if (shaping_check(s, to, &e) >= 0)
                return true;
        snprintf(text, size_bytes, "%s", e.message);
        return false;
}

static bool sfi_permits(const struct node *n, const struct scenario *to, const struct scenario_key *key,
                        char *text, size_t size_bytes)
{
        const struct sfi *core = n->core;

        if (is(key, "sfi", "credits") && to->sfi.credits > sfi_credits_max(core)) {
                snprintf(text, size_bytes, "this SFI has memory for %u events; restart the node",
                         sfi_credits_max(core));
                return false;
        }
        if (!is(key, "sfi", "outstanding"))
                return true;
        if (to->scenario.mode != MODE_PULL)
                snprintf(text, size_bytes, "scenario.mode is push");
        if (sfi_may_change_outstanding(core, (uint32_t)to->sfi.outstanding))
                return true;
        snprintf(text, size_bytes,
                 "requests cannot change between events and bytes in flight; restart the node");
        return false;
}

bool reload_permits(const struct node *n, const struct scenario *to, const struct scenario_key *key,
                    char *text, size_t size_bytes)
{
        text[0] = '\0';
        switch (n->self->role) {
        case ROLE_DFM:
                return dfm_permits(n->core, to, key, text, size_bytes);
        case ROLE_ROS:
                return ros_permits(n, to, key, text, size_bytes);
        case ROLE_SFI:
                return sfi_permits(n, to, key, text, size_bytes);
        case ROLE_LEVEL2:
                break; /* no node */
        }
        return false;
}

static void change_dfm(struct dfm *core, uint64_t now_ns, const struct scenario *to)
{
        const struct dfm_settings settings = {
                .trigger_kind = (enum trigger_kind)to->trigger.kind,
                .trigger_rate_millihertz = to->trigger.rate_millihertz,
                .leave_timeout_ns = to->run.stop_timeout_ns,
        };

        dfm_change(core, now_ns, &settings);
}

static void change_sfi(struct sfi *core, uint64_t now_ns, const struct scenario *to)
{
        const struct sfi_settings settings = {
                .credits = (uint32_t)to->sfi.credits,
                .outstanding = (uint32_t)to->sfi.outstanding,
                .retries_max = (uint32_t)to->sfi.retries,
        };

        sfi_change(core, now_ns, &settings);
}

void reload_apply(struct node *n, uint64_t now_ns, const struct scenario *to)
{
        switch (n->self->role) {
        case ROLE_DFM:
                change_dfm(n->core, now_ns, to);
                break;
        case ROLE_ROS:
                shaping_change(node_shaping(n), to);
                break;
        case ROLE_SFI:
                change_sfi(n->core, now_ns, to);
                break;
        case ROLE_LEVEL2:
                break;
        }
}
