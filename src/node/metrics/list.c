/* Lists the metrics of nodes: it writes the metrics of one node of each role and parses the text, so the list
 * always matches the metrics. */
#include "openmetrics.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/util.h"

#define ENTRIES_MAX 256
#define ROLES 3
#define NUMBER(role) ((role)-ROLE_DFM)

struct entry {
        char name[80], type[16], labels[64], help[160];
        bool roles[ROLES]; /* by NUMBER() */
};

struct list {
        size_t n;
        struct entry entries[ENTRIES_MAX];
};

/* The family "evb_busy_seconds" of type "counter" has samples named "evb_busy_seconds_total". */
static void name_samples(struct entry *e, const char *family)
{
        const char *suffix = strcmp(e->type, "counter") == 0 ? "_total"
                             : strcmp(e->type, "info") == 0  ? "_info"
                                                             : "";

        snprintf(e->name, sizeof e->name, "%.70s%s", family, suffix);
}

static struct entry *find(struct list *l, const char *family, const char *type)
{
        struct entry e = {};

        snprintf(e.type, sizeof e.type, "%s", type);
        name_samples(&e, family);
        for (size_t i = 0; i < l->n; i++) {
                if (strcmp(l->entries[i].name, e.name) == 0)
                        return &l->entries[i];
        }
        if (l->n == ENTRIES_MAX)
                return NULL;
        l->entries[l->n] = e;
        return &l->entries[l->n++];
}

/* Reads the labels of a sample, except the common labels and the label of buckets. */
static void read_labels(struct entry *e, char *line)
{
        struct metrics_label common[] = {{"node", ""}, {"role", ""}, {"le", ""}};
        char *rest = strchr(line, '{'), *word;

        if (!rest || e->labels[0])
                return;
        for (word = strtok_r(rest, "{,", &rest); word; word = strtok_r(NULL, ",", &rest)) {
                bool known = false;

                word[strcspn(word, "=")] = '\0';
                for (size_t i = 0; i < ARRAY_SIZE(common); i++)
                        known |= strcmp(word, common[i].name) == 0;
                if (!known)
                        snprintf(e->labels + strlen(e->labels), sizeof e->labels - strlen(e->labels), "%s%s",
                                 e->labels[0] ? "," : "", word);
        }
}

static void read_lines(struct list *l, char *text, enum node_role role)
{
        char family[80], type[16], *next = text, *line;
        struct entry *e = NULL;

        while ((line = strsep(&next, "\n"))) {
                if (sscanf(line, "# TYPE %79s %15s", family, type) == 2) {
                        e = find(l, family, type);
                        if (e)
                                e->roles[NUMBER(role)] = true;
                } else if (e && strncmp(line, "# HELP ", 7) == 0)
                        snprintf(e->help, sizeof e->help, "%s", line + 7 + strlen(family) + 1);
                else if (e && line[0] != '#')
                        read_labels(e, line);
        }
}

/* Fills a scenario in which nodes have all optional parts. */
static void fill_scenario(struct scenario *s)
{
        for (enum node_role role = ROLE_DFM; role <= ROLE_SFI; role++) {
                struct scenario_node *n = &s->nodes[NUMBER(role)];

                n->role = role;
                snprintf(n->name, sizeof n->name, "%s", scenario_role_name(role));
        }
        s->n_nodes = ROLES;
        s->level2.port = 1;
}

static int list_role(struct list *l, const struct scenario *s, enum node_role role)
{
        struct metrics_peer peers[ROLES] = {};
        struct metrics_shaped shapings[ROLES] = {[NUMBER(ROLE_SFI)] = {.known = true}};
        struct metrics_state shared = {.n_peers = ROLES,
                                       .rate_permille = 1,
                                       .board_clock_known = true,
                                       .peers = peers,
                                       .shapings = shapings};
        struct metrics_view v = {.version = EVB_VERSION,
                                 .scenario = s,
                                 .self = &s->nodes[NUMBER(role)],
                                 .shared = &shared,
                                 .last_complete_seconds = 1,
                                 .disk.known = true,
                                 .disk_left_s = 1,
                                 .fault = {.node = "ros"}};
        _cleanup_free_ char *text = NULL;
        size_t size;
        FILE *f = open_memstream(&text, &size);

        if (!f)
                return -ENOMEM;
        metrics_page_write(&v, f, true);
        if (fclose(f) != 0)
                return -ENOMEM;
        read_lines(l, text, role);
        return 0;
}

static int make_list(struct list **ret)
{
        _cleanup_free_ struct scenario *s = calloc(1, sizeof *s);
        _cleanup_free_ struct list *l = calloc(1, sizeof *l);
        int r = s && l ? 0 : -ENOMEM;

        if (r < 0)
                return r;
        fill_scenario(s);
        for (enum node_role role = ROLE_DFM; r >= 0 && role <= ROLE_SFI; role++)
                r = list_role(l, s, role);
        if (r >= 0)
                *ret = take_ptr(l);
        return r;
}

/* Returns "all", or the names of the roles. */
static const char *describe_roles(const struct entry *e, char text[static 32])
{
        bool all = true;

        text[0] = '\0';
        for (enum node_role role = ROLE_DFM; role <= ROLE_SFI; role++) {
                all &= e->roles[NUMBER(role)];
                if (e->roles[NUMBER(role)])
                        snprintf(text + strlen(text), 32 - strlen(text), "%s%s", text[0] ? "," : "",
                                 scenario_role_name(role));
        }
        return all ? "all" : text;
}

int metrics_list_print(FILE *to)
{
        _cleanup_free_ struct list *l = NULL;
        char roles[32];
        int r = make_list(&l);

        for (size_t i = 0; r >= 0 && i < l->n; i++) {
                const struct entry *e = &l->entries[i];

                fprintf(to, "%-44s %-9s %-7s %-18s %s\n", e->name, e->type, describe_roles(e, roles),
                        e->labels[0] ? e->labels : "-", e->help);
        }
        return r;
}

int metrics_list_print_man(FILE *to)
{
        _cleanup_free_ struct list *l = NULL;
        char roles[32];
        int r = make_list(&l);

        if (r < 0)
                return r;
        fputs(".Bl -tag -width Ds\n", to);
        for (size_t i = 0; i < l->n; i++) {
                const struct entry *e = &l->entries[i];

                fprintf(to, ".It Ic %s%s%s\n%s\n%s, %s.\n", e->name, e->labels[0] ? " Brq " : "", e->labels,
                        e->help, describe_roles(e, roles), e->type);
        }
        fputs(".El\n", to);
        return 0;
}
