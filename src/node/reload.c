/* Reads the scenario again at SIGHUP. The values to apply are collected in a copy of the node's scenario. If
 * the role accepts them and they are consistent, they replace the node's values. An operator's command sets
 * one key in the same way. */
#include "reload.h"

#include <errno.h>
#include <assert.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/log.h"
#include "base/util.h"
#include "conf/digest.h"
#include "conf/scenario_changes.h"
#include "sys/notify.h"

#define CHANGES_MAX 32

struct change {
        const struct scenario_key *key;
        char text[700];
};

struct reload {
        struct node *node;
        const struct node_source *source;
        struct scenario *file; /* scenario as it was just read */
        struct scenario *to;   /* scenario as the node will use it */
        struct change changes[CHANGES_MAX];
        size_t n_changes, n_refused;
};

static void log_errors(const struct scenario_errors *e)
{
        for (size_t i = 0; i < MIN(e->n, (size_t)SCENARIO_ERRORS_MAX); i++)
                log_error("%s", e->text[i]);
}

/* Refuses a device or a pipe, such as a shell's <(...), which would block the node. */
static int check_file(const char *path)
{
        struct stat st;

        if (stat(path, &st) < 0)
                return log_error_errno(errno, "%s: %m", path);
        if (S_ISREG(st.st_mode))
                return 0;
        log_error("%s: not a regular file", path);
        return -EINVAL;
}

static int read_file(struct reload *l)
{
        const struct node_source *from = l->source;
        const struct scenario_node *self = l->node->self, *now;
        _cleanup_free_ struct scenario_errors *e = calloc(1, sizeof *e);
        int r = check_file(from->config);

        if (r < 0)
                return r;
        if (!e)
                return log_error_errno(ENOMEM, "%s: %m", from->config);
        r = scenario_load(l->file, from->config, from->settings, from->n_settings, e);
        for (size_t i = 0; i < e->n_warnings; i++)
                log_warning("%s", e->warnings[i]);
        if (r == -EINVAL)
                log_errors(e);
        if (r < 0)
                return r == -EINVAL ? r : log_error_errno(r, "%s: %m", from->config);
        now = scenario_find(l->file, self->name);
        if (now && now->role == self->role)
                return 0;
        log_error("%s: node: %s \"%s\"; expected a node with role = %s", from->config,
                  now ? "wrong role of node" : "unknown node", self->name, scenario_role_name(self->role));
        return -EINVAL;
}

static void refuse(struct reload *l, const struct scenario_difference *d)
{
        log_warning("%s differs in %s but cannot change while the node runs; restart %s", d->what,
                    l->source->config, d->kind == DIFFERENCE_COMMON ? "all nodes" : "the node");
        l->n_refused++;
}

static void add_change(struct reload *l, const struct scenario_difference *d)
{
        struct change *c = &l->changes[l->n_changes++];

        assert(l->n_changes <= CHANGES_MAX);
        c->key = d->key;
        snprintf(c->text, sizeof c->text, "%s %s -> %s", d->what, d->from, d->to);
        scenario_key_copy(l->to, l->file, d->key);
}

static void record_difference(void *ctx, const struct scenario_difference *d)
{
        struct reload *l = ctx;

        switch (d->kind) {
        case DIFFERENCE_APPLIES:
                add_change(l, d);
                break;
        case DIFFERENCE_OTHERS:
                log_debug("%s differs in %s, which does not concern this node", d->what, l->source->config);
                break;
        case DIFFERENCE_FIXED:
        case DIFFERENCE_COMMON:
                refuse(l, d);
                break;
        }
}

static bool is_log_level(const struct scenario_key *key)
{
        return strcmp(key->section, "log") == 0;
}

static bool permits(const struct reload *l, const struct scenario_key *key, char *text, size_t size_bytes)
{
        text[0] = '\0';
        if (!is_log_level(key))
                return reload_permits(l->node, l->to, key, text, size_bytes);
        if (!l->source->logs)
                snprintf(text, size_bytes, "EVB_LOG or an option sets the level");
        return true;
}

/* If the role refuses the new value, keeps the current one. */
static void ask_role(struct reload *l)
{
        size_t kept = 0;
        char text[512];

        for (size_t i = 0; i < l->n_changes; i++) {
                struct change *c = &l->changes[i];
                bool permitted = permits(l, c->key, text, sizeof text);

                if (!permitted) {
                        log_warning("not reloaded: %s: %s", c->text, text);
                        scenario_key_copy(l->to, l->source->scenario, c->key);
                        l->n_refused++;
                        continue;
                }
                if (text[0])
                        snprintf(c->text + strlen(c->text), sizeof c->text - strlen(c->text),
                                 ", without effect: %s", text);
                if (c != &l->changes[kept])
                        l->changes[kept] = *c;
                kept++;
        }
        l->n_changes = kept;
}

/* Values that are consistent in the file may conflict with values that cannot change. */
static int check_fit(struct reload *l)
{
        _cleanup_free_ struct scenario_errors *e = calloc(1, sizeof *e);
        int r = e ? scenario_check(l->to, e) : -ENOMEM;

        if (r != -EINVAL)
                return r < 0 ? log_error_errno(r, "%s: %m", l->source->config) : 0;
        log_errors(e);
        log_error("the values of %s that may change do not fit those that cannot change now",
                  l->source->config);
        return r;
}

static void follow_log_level(const struct reload *l)
{
        if (l->source->logs)
                log_set_level((enum log_level)l->to->log.level);
}

static void apply(struct reload *l, uint64_t now_ns)
{
        reload_apply(l->node, now_ns, l->to);
        for (size_t i = 0; i < l->n_changes; i++)
                scenario_key_copy(l->source->scenario, l->to, l->changes[i].key);
        /* The lower of the previous and the new level decides whether the following messages are logged. */
        if (l->to->log.level > log_level())
                follow_log_level(l);
        for (size_t i = 0; i < l->n_changes; i++)
                log_info("reloaded: %s", l->changes[i].text);
        if (l->n_changes + l->n_refused == 0)
                log_info("reloaded: nothing differs in %s that concerns this node", l->source->config);
        follow_log_level(l);
}

static int reload(struct reload *l, uint64_t now_ns)
{
        const struct scenario_node *self = l->node->self;
        int r = read_file(l);

        if (r < 0)
                return r;
        r = scenario_compare(l->source->scenario, l->file, self->role, self->name, record_difference, l);
        if (r < 0)
                return log_error_errno(r, "%s: %m", l->source->config);
        ask_role(l);
        r = check_fit(l);
        if (r >= 0)
                apply(l, now_ns);
        return r;
}

static int reload_with_memory(struct node *n, uint64_t now_ns)
{
        _cleanup_free_ struct reload *l = calloc(1, sizeof *l);
        _cleanup_free_ struct scenario *file = calloc(1, sizeof *file), *to = malloc(sizeof *to);

        if (!l || !file || !to)
                return log_error_errno(ENOMEM, "%s: %m", n->source->config);
        memcpy(to, n->source->scenario, sizeof *to);
        *l = (struct reload){.node = n, .source = n->source, .file = file, .to = to};
        return reload(l, now_ns);
}

void node_reload(struct node *n, uint64_t now_ns, bool stopping)
{
        if (!n->source) {
                log_info("SIGHUP ignored: this node cannot read its scenario again");
                return;
        }
        if (!stopping)
                notify_reloading(now_ns);
        if (reload_with_memory(n, now_ns) < 0)
                log_error("nothing was reloaded; the node goes on with its previous settings");
        n->ready_unsent = !stopping && !notify_reloaded();
}

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

static int explain_fit(struct scenario *to, const char *name, char *why, size_t size_bytes)
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
        r = explain_fit(to, name, why, size_bytes);
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
