/* The section [metadata]: names and values that the user chooses, and that evb only passes on. */
#include <string.h>

#include "base/strbuf.h"
#include "base/util.h"
#include "conf_internal.h"

/* Names that evb itself writes. */
static const char *const own[] = {"Stream", "Project", "LumiBlock", "Seed"};

static bool is_name(const char *name)
{
        size_t n = strlen(name);

        return n > 0 && n < sizeof((struct scenario_metadata *)NULL)->name &&
               strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-") == n;
}

static struct scenario_metadata *find(struct scenario_metadata *list, size_t n, const char *name)
{
        for (size_t i = 0; i < n; i++) {
                if (strcmp(list[i].name, name) == 0)
                        return &list[i];
        }
        return NULL;
}

static const char *reject(size_t n, const struct scenario_metadata *m, const char *name, const char *value)
{
        if (!is_name(name))
                return "invalid name; expected 1 to 63 letters, digits, '.', '_' or '-'";
        for (size_t i = 0; i < ARRAY_SIZE(own); i++) {
                if (strcmp(name, own[i]) == 0)
                        return "evb writes this name itself; expected another name";
        }
        if (strlen(value) >= sizeof m->value || !conf_is_line(value) || !text_is_utf8(value))
                return "invalid value; expected one line of at most 191 bytes of UTF-8, without # or ; after "
                       "a blank";
        return !m && n == SCENARIO_METADATA_MAX ? "too many names; expected at most 12" : NULL;
}

const char *scenario_metadata_put(struct scenario_metadata list[static SCENARIO_METADATA_MAX], size_t *n,
                                  const char *name, const char *value)
{
        struct scenario_metadata *m = find(list, *n, name);
        const char *why = reject(*n, m, name, value);

        if (why)
                return why;
        if (!m)
                m = &list[(*n)++];
        strcpy(m->name, name);
        strcpy(m->value, value);
        return NULL;
}

void conf_set_metadata(struct loading *l, const char *name, const char *value)
{
        struct scenario *s = l->scenario;
        const char *why = "duplicate key; expected each name once";
        char what[96];

        snprintf(what, sizeof what, "metadata.%.80s", name);
        if (l->setting || !find(s->metadata, s->n_metadata, name))
                why = scenario_metadata_put(s->metadata, &s->n_metadata, name, value);
        if (why)
                conf_error(l, l->line, what, "%s", why);
}
