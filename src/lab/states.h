/* The state directory of `evb lab`, in /tmp and named after its process. Shaping stores there what a device
 * had before. */
#pragma once

#include <sys/types.h>

#define LAB_STATES_PATH_MAX 64

/* Creates the directory and exports its path to child processes. Negative errno. */
int lab_states_make(char path[static LAB_STATES_PATH_MAX]);
/* Writes the other processes that measure on this machine, at most `most`; returns their number. */
size_t lab_states_others(pid_t *owners, size_t most);
/* Removes the directory with its files. */
void lab_states_remove(const char *path);
/* Removes the directories of dead processes; returns their number. */
int lab_states_clean(void);
