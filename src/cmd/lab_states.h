/* The folder in which shaping remembers what it found, while `evb lab` runs: in /tmp, named after its
 * process. */
#pragma once

#define LAB_STATES_PATH_MAX 64

/* Makes it, and lets all that is started from here on use it. Negative errno. */
int lab_states_make(char path[static LAB_STATES_PATH_MAX]);
/* Warns about others that measure on this machine at this moment. */
void lab_states_warn(void);
/* With all that is in it. */
void lab_states_remove(const char *path);
/* Those of processes that live no more; how many. */
int lab_states_clean(void);
