/* The states of run control, and the commands that each state allows: one table for the DFM, `evb ctl` and
 * the manual. */
#pragma once

#include <stdbool.h>
#include <stdio.h>

enum run_control_state {
        RUN_CONTROL_IDLE,
        RUN_CONTROL_CONFIGURED,
        RUN_CONTROL_RESUMING,
        RUN_CONTROL_RUNNING,
        RUN_CONTROL_PAUSED,
        RUN_CONTROL_DRAINING,
        RUN_CONTROL_ERROR,
        RUN_CONTROL_STATES,
};

enum run_command {
        RUN_COMMAND_START,
        RUN_COMMAND_STOP,
        RUN_COMMAND_PAUSE,
        RUN_COMMAND_RESUME,
        RUN_COMMAND_SET,
        RUN_COMMAND_NEXT_RUN,
        RUN_COMMANDS,
};

const char *run_state_name(enum run_control_state state);
const char *run_command_name(enum run_command command);
/* RUN_COMMANDS: the command does not exist. */
enum run_command run_command_find(const char *name);
bool run_state_permits(enum run_control_state state, enum run_command command);
/* Lists the states that allow a command: "running or paused". Returns `text`. */
char *run_command_states(enum run_command command, char *text, size_t size_bytes);
/* Print all states: as readable text, and as the table of a manual page (mdoc). */
void run_states_print(FILE *to);
void run_states_print_man(FILE *to);
