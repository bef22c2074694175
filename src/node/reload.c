/* Reads the scenario again at SIGHUP. The values to apply are collected in a copy of the node's scenario. If
 * the role accepts them and they are consistent, they replace the node's values. */
#include "reload.h"

#include <errno.h>
#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/log.h"
#include "base/util.h"
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
