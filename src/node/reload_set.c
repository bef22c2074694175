/* Sets one key of a running node at an operator's command, as a reload would. */
#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/util.h"
#include "conf/digest.h"
#include "reload.h"

__attribute__((format(printf, 4, 5))) static int explain(int r, char *why, size_t size_bytes,
                                                         const char *format, ...)
{
        va_list args;

        va_start(args, format);
        vsnprintf(why, size_bytes, format, args);
        va_end(args);
        return r;
}

static const struct scenario_key *find_key(const char *name)
{
        const char *dot = strchr(name, '.');
        char section[32];

        if (!dot || (size_t)(dot - name) >= sizeof section)
                return NULL;
        snprintf(section, sizeof section, "%.*s", (int)(dot - name), name);
        return scenario_key_find(section, dot + 1);
}

/* Accepts only keys that this node applies while it runs. */
static int check_key(const struct node *n, const struct scenario_key *key, const char *name, char *why,
                     size_t size_bytes)
{
        char who[64];

        if (!key)
                return explain(-EINVAL, why, size_bytes,
                               "unknown key \"%.60s\"; expected a SECTION.KEY of `evb check --keys`", name);
        if (key->applied_by & KEY_OF(n->self->role))
                return 0;
        if (key->applied_by)
                return explain(-EPERM, why, size_bytes,
                               "%s is applied by %s: edit the scenario, and reload these units", name,
                               scenario_key_appliers(key, who, sizeof who));
        return explain(-EPERM, why, size_bytes,
                       "%s cannot change while nodes run: edit the scenario, and restart %s", name,
                       scenario_digest_has(key)                                  ? "all nodes"
                       : key->used_by && !(key->used_by & KEY_OF(n->self->role)) ? "the nodes that use it"
                                                                                 : "the node");
}

static int check_fit(struct scenario *to, const char *name, char *why, size_t size_bytes)
{
        _cleanup_free_ struct scenario_errors *e = calloc(1, sizeof *e);
        int r = e ? scenario_check(to, e) : -ENOMEM;

        if (r >= 0)
                return 0;
        return explain(r == -EINVAL ? -EINVAL : -EPERM, why, size_bytes, "%s: %s", name,
                       r == -EINVAL ? e->text[0] : strerror(-r));
}

static int set(struct node *n, uint64_t now_ns, struct scenario *to, const struct scenario_key *key,
               const char *name, const char *value, char *why, size_t size_bytes)
{
        char before[SCENARIO_TEXT_MAX], after[SCENARIO_TEXT_MAX], reject[400];
        bool level = strcmp(key->section, "log") == 0;
        int r;

        if (scenario_key_set(to, key, value) < 0)
                return explain(-EINVAL, why, size_bytes, "%s: %s", name,
                               scenario_key_reject(key, value, reject, sizeof reject));
        if (!reload_permits(n, to, key, reject, sizeof reject) || reject[0])
                return explain(-EPERM, why, size_bytes, "%s: %s", name, reject);
        if (level && !n->source->logs)
                return explain(-EPERM, why, size_bytes, "%s: EVB_LOG or an option sets the level", name);
        r = check_fit(to, name, why, size_bytes);
        if (r < 0)
                return r;
        reload_apply(n, now_ns, to);
        scenario_key_value(n->source->scenario, key, before, sizeof before);
        scenario_key_value(to, key, after, sizeof after);
        scenario_key_copy(n->source->scenario, to, key);
        log_info("set: %s %s -> %s", name, before, after);
        if (level)
                log_set_level((enum log_level)to->log.level);
        return 0;
}

int node_set(struct node *n, uint64_t now_ns, const char *name, const char *value, char *why,
             size_t size_bytes)
{
        const struct scenario_key *key = find_key(name);
        _cleanup_free_ struct scenario *to = malloc(sizeof *to);
        int r = check_key(n, key, name, why, size_bytes);

        if (r < 0)
                return r;
        if (!to || !n->source)
                return explain(-EPERM, why, size_bytes, "%s cannot be set: %s", name,
                               to ? "the scenario of this node is fixed" : "out of memory");
        memcpy(to, n->source->scenario, sizeof *to);
        return set(n, now_ns, to, key, name, value, why, size_bytes);
}
