/* The record of a run beside its event files, CORE.run.json: the settings of the run, and its accounts. While
 * the run continues, CORE.begun.json has the settings. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "conf/scenario.h"

#define RUN_FILE_PATH_MAX 512

struct run_file {
        const struct scenario *scenario; /* as effective */
        uint32_t run;
        const char *core;       /* DIRECTORY/CORE, as of the event files */
        const json_t *metadata; /* names and values of the run; NULL: use those of the scenario; borrowed */
        const json_t *accounts; /* the report of the run, or of the SFI; NULL: the run continues; borrowed */
};

/* DIRECTORY/CORE of the files that the SFI `self` begins now. */
void run_file_make_core(const struct scenario *s, const struct scenario_node *self, uint32_t run, char *core,
                        size_t size_bytes);
/* DIRECTORY/CORE from the path of an event file. False: it is not such a path. */
bool run_file_core(const char *event_file, char *core, size_t size_bytes);
/* The content, for run_file_store(); f->core is not used. NULL: no memory. The caller frees it. */
char *run_file_text(const struct run_file *f);
/* Writes CORE.begun.json, without accounts, over one that another process left. Negative errno: there is no
 * such file. `path` names it in any case. */
int run_file_begin(const struct run_file *f, char path[static RUN_FILE_PATH_MAX]);
/* Removes CORE.begun.json, if it exists. run_file_store() does so too. */
void run_file_remove_begun(const char *core);
/* Writes all or nothing, and never over another file: a further record of the same CORE is CORE.run.2.json,
 * and so on. `path` names the file, also after a failure. Negative errno. */
int run_file_store(const char *core, const char *text, char path[static RUN_FILE_PATH_MAX]);
int run_file_write(const struct run_file *f, char path[static RUN_FILE_PATH_MAX]);
