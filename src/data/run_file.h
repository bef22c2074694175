/* The record of a run, stored next to its event files as CORE.run.json: the settings of the run, and the
 * report of the run or of the SFI. During the run, CORE.begun.json contains the settings. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#include "conf/scenario.h"
#include "store/event_writer.h"

#define RUN_FILE_PATH_MAX 512

struct run_file {
        const struct scenario *scenario; /* with its effective settings */
        uint32_t run;
        const char *core;       /* DIRECTORY/CORE of the event files */
        const json_t *metadata; /* names and values of the run; NULL: as in the scenario; borrowed */
        const json_t *accounts; /* report of the run, or of the SFI; NULL: the run continues; borrowed */
        const json_t *files;    /* from run_file_list_files() of the SFI; NULL: unknown; borrowed */
};

/* Makes the CORE of the event files of the SFI `self`, by sfi.file-name; `self` NULL: with * in place of the
 * SFI. `time`: of the start, which only ATLAS's names contain. */
void run_file_core_name(const struct scenario *s, const struct scenario_node *self, uint32_t run, time_t time,
                        char *name, size_t size_bytes);
/* What is between CORE and the number of a file. */
const char *run_file_separator(const struct scenario *s);
/* Makes DIRECTORY/CORE of the files that the SFI `self` is about to open. */
void run_file_make_core(const struct scenario *s, const struct scenario_node *self, uint32_t run, char *core,
                        size_t size_bytes);
/* Extracts DIRECTORY/CORE from the path of an event file. False: this is not such a path. */
bool run_file_core(const char *event_file, char *core, size_t size_bytes);
/* The closed files of an SFI: name without directory, events, bytes, checksum, start and end of each. */
json_t *run_file_list_files(const struct event_writer_file *files, size_t n);
/* Sets `path` to the name of record `number` of a core, counted from 1. */
void run_file_name(const char *core, int number, char path[static RUN_FILE_PATH_MAX]);
/* Returns the content for run_file_store(), without f->core. NULL: out of memory. The caller frees it. */
char *run_file_text(const struct run_file *f);
/* Writes CORE.begun.json, which has no accounts, and replaces one that another process left. Negative errno:
 * the file was not created. `path` contains its name in any case. */
int run_file_begin(const struct run_file *f, char path[static RUN_FILE_PATH_MAX]);
/* Removes CORE.begun.json if it exists; run_file_store() does this too. */
void run_file_remove_begun(const char *core);
/* Writes the whole record or nothing, and never replaces another file: a further record of the same CORE is
 * CORE.run.2.json, and so on. `path` contains the name, also after a failure. Returns negative errno. */
int run_file_store(const char *core, const char *text, char path[static RUN_FILE_PATH_MAX]);
int run_file_write(const struct run_file *f, char path[static RUN_FILE_PATH_MAX]);
