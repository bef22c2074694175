/* The table of run control: its states, and the commands that each state allows. The DFM checks commands with
 * it; evb ctl and make-docs.sh print it. */
#include "node/run_states.h"

#include <string.h>

#include "base/strbuf.h"

#define START (1u << RUN_COMMAND_START)
#define STOP (1u << RUN_COMMAND_STOP)
#define PAUSE (1u << RUN_COMMAND_PAUSE)
#define RESUME (1u << RUN_COMMAND_RESUME)
#define SET (1u << RUN_COMMAND_SET)
#define NEXT_RUN (1u << RUN_COMMAND_NEXT_RUN)

static const struct {
        const char *name, *help;
        unsigned permits;
} states[RUN_CONTROL_STATES] = {
        [RUN_CONTROL_IDLE] = {"idle", "There is no run, and nodes are missing.",
                              START | STOP | SET | NEXT_RUN},
        [RUN_CONTROL_CONFIGURED] = {"configured",
                                    "All required nodes are present and wait for a run to start.",
                                    START | STOP | SET | NEXT_RUN},
        [RUN_CONTROL_RESUMING] = {"resuming",
                                  "This DFM restarted in a run, and waits for its nodes to go on with it.",
                                  STOP | SET | NEXT_RUN},
        [RUN_CONTROL_RUNNING] = {"running", "The DFM takes triggers.", STOP | PAUSE | SET | NEXT_RUN},
        [RUN_CONTROL_PAUSED] = {"paused", "The run goes on, but the DFM takes no triggers.",
                                STOP | RESUME | SET | NEXT_RUN},
        [RUN_CONTROL_DRAINING] = {"draining",
                                  "The DFM takes no further triggers, and the nodes finish open events.",
                                  START | STOP | SET | NEXT_RUN},
        [RUN_CONTROL_ERROR] =
                {"error", "The last run ended in an error: it stalled, or an output failed. No run begins.",
                 START | SET | NEXT_RUN},
};

static const char *const commands[RUN_COMMANDS] = {
        [RUN_COMMAND_START] = "start",   [RUN_COMMAND_STOP] = "stop", [RUN_COMMAND_PAUSE] = "pause",
        [RUN_COMMAND_RESUME] = "resume", [RUN_COMMAND_SET] = "set",   [RUN_COMMAND_NEXT_RUN] = "next-run",
};

const char *run_state_name(enum run_control_state state)
{
        return states[state].name;
}

const char *run_command_name(enum run_command command)
{
        return commands[command];
}

enum run_command run_command_find(const char *name)
{
        for (enum run_command c = 0; c < RUN_COMMANDS; c++) {
                if (strcmp(commands[c], name) == 0)
                        return c;
        }
        return RUN_COMMANDS;
}

bool run_state_permits(enum run_control_state state, enum run_command command)
{
        return states[state].permits & 1u << command;
}

char *run_command_states(enum run_command command, char *text, size_t size_bytes)
{
        struct strbuf b = strbuf_init(text, size_bytes);
        unsigned left = 0;

        for (size_t i = 0; i < RUN_CONTROL_STATES; i++)
                left += run_state_permits((enum run_control_state)i, command);
        for (size_t i = 0; i < RUN_CONTROL_STATES; i++) {
                if (!run_state_permits((enum run_control_state)i, command))
                        continue;
                left--;
                strbuf_add(&b, "%s%s", states[i].name, left > 1 ? ", " : left == 1 ? " or " : "");
        }
        return text;
}

/* Lists "start, stop, set". */
static void list_commands(enum run_control_state state, char *text, size_t size_bytes)
{
        struct strbuf b = strbuf_init(text, size_bytes);

        for (enum run_command c = 0; c < RUN_COMMANDS; c++) {
                if (run_state_permits(state, c))
                        strbuf_add(&b, "%s%s", b.length > 0 ? ", " : "", commands[c]);
        }
}

void run_states_print(FILE *to)
{
        char text[128];

        for (size_t i = 0; i < RUN_CONTROL_STATES; i++) {
                list_commands((enum run_control_state)i, text, sizeof text);
                fprintf(to, "%-11s %s\n%-11s permits: %s\n", states[i].name, states[i].help, "", text);
        }
}

void run_states_print_man(FILE *to)
{
        char text[128];

        fputs(".Bl -tag -width configured\n", to);
        for (size_t i = 0; i < RUN_CONTROL_STATES; i++) {
                list_commands((enum run_control_state)i, text, sizeof text);
                fprintf(to, ".It Cm %s\n%s\nPermits: %s.\n", states[i].name, states[i].help, text);
        }
        fputs(".El\n", to);
}
