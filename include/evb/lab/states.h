/* The state directory of `evb lab`, in /tmp and named after its process. Shaping stores there what a device
 * had before. */
#pragma once

#define LAB_STATES_PATH_MAX 64

/* Creates the directory and exports its path to child processes. Negative errno. */
int lab_states_make(char path[static LAB_STATES_PATH_MAX]);
/* Warns about other processes that measure on this machine. */
void lab_states_warn(void);
/* Removes the directory with its files. */
void lab_states_remove(const char *path);
/* Removes the directories of dead processes; returns their number. */
int lab_states_clean(void);
