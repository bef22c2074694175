/* Writes the records of a run: one for the files of each SFI, as their directory may be divided later. */
#include "run_files.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#include "evb/base/util.h"
#include "evb/data/run_file.h"
#include "evb/store/event_writer.h"
#include "evb/sys/loop.h"

/* All nodes of a run agree on its number; those that never joined it have none. */
static uint32_t run_number(const json_t *nodes)
{
        json_int_t number = 0;
        const json_t *node;
        size_t i;

        json_array_foreach(nodes, i, node)
        {
                number = MAX(number, json_integer_value(json_object_get(node, "run")));
        }
        return (uint32_t)number;
}

/* Also for an SFI that was killed, and left no report: its files have this name. */
static void make_core(const struct launch *l, const struct child *c, uint32_t run, char *core,
                      size_t size_bytes)
{
        char name[128], application[32];

        snprintf(application, sizeof application, "SFI-%u", c->node->index + 1);
        event_writer_core_name(name, sizeof name, (time_t)(clock_utc_ns() / NS_PER_S), run, 0, application);
        snprintf(core, size_bytes, "%s/%s", l->scenario->sfi.directory, name);
}

static const char *first_file(const json_t *nodes, const struct child *c)
{
        const json_t *node;
        size_t i;

        json_array_foreach(nodes, i, node)
        {
                const char *name = json_string_value(json_object_get(node, "name"));

                if (name && strcmp(name, c->node->name) == 0)
                        return json_string_value(json_array_get(json_object_get(node, "files"), 0));
        }
        return NULL;
}

void run_files_write(const struct launch *l, const json_t *report, json_t *written, struct reasons *to)
{
        const json_t *nodes = json_object_get(report, "nodes");
        char core[RUN_FILE_PATH_MAX], path[RUN_FILE_PATH_MAX];
        struct run_file f = {
                .scenario = l->scenario, .run = run_number(nodes), .core = core, .accounts = report};

        if (!l->options->keep_records || l->scenario->sfi.output != OUTPUT_FILE || f.run == 0 ||
            stats_get(&launch_dfm(l)->stats->triggers) == 0)
                return;
        for (size_t i = 0; i < l->n_children; i++) {
                const struct child *c = &l->children[i];
                const char *file = first_file(nodes, c);
                int r;

                if (c->node->role != ROLE_SFI)
                        continue;
                if (!file || !run_file_core(file, core, sizeof core))
                        make_core(l, c, f.run, core, sizeof core);
                r = run_file_write(&f, path);
                if (r < 0)
                        reasons_add(to, "cannot write %s: %s", path, strerror(-r));
                else
                        json_array_append_new(written, json_string(path));
        }
}
