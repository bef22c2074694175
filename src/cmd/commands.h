/* The subcommands, one file or group of files each. argv starts at the name of the subcommand; each returns
 * the exit status. */
#pragma once

#include "cmd/options.h"

int cmd_ros(int argc, char **argv);
int cmd_dfm(int argc, char **argv);
int cmd_sfi(int argc, char **argv);
int cmd_sim(int argc, char **argv);
int cmd_run(int argc, char **argv);
int cmd_check(int argc, char **argv);
int cmd_qos(int argc, char **argv);
int cmd_lab(int argc, char **argv);
int cmd_convert(int argc, char **argv);
int cmd_live(int argc, char **argv);
int cmd_listen(int argc, char **argv);
int cmd_dump(int argc, char **argv);
int cmd_bench(int argc, char **argv);
int cmd_frontend(int argc, char **argv);
int cmd_level2(int argc, char **argv);
int cmd_stream(int argc, char **argv);
int cmd_status(int argc, char **argv);
int cmd_ctl(int argc, char **argv);
int cmd_testbed(int argc, char **argv);
int cmd_top(int argc, char **argv);

/* Opens the log under the name of the program, makes standard output wait where it is non-blocking, and calls
 * run(). Returns the exit status: that of run(), or 1 instead of 0 if part of the output is lost. */
int program_run(const char *name, int (*run)(int argc, char **argv), int argc, char **argv);

/* Whether `evb run --net NET` could start on this machine: 0, or the exit status after an error message. On
 * loopback, sets qos.backend to none if it is optional. */
struct scenario;
int command_may_run(struct scenario *s, const char *net);
/* Scenario file of the installed units, and the help text of --config for the commands that default to it. */
#define COMMAND_CONFIG "/etc/evb/scenario.conf"
#define COMMAND_CONFIG_HELP "scenario file (default: " COMMAND_CONFIG ", if it exists)"
/* Returns the scenario named by EVB_CONFIG, or else the scenario of the installed units. NULL: neither
 * exists. */
const char *command_default_config(void);
/* Returns `config`, the value of --config, or the default if that is NULL. NULL: there is no scenario; the
 * error is printed. */
const char *command_find_config(const struct command *c, const char *config);
/* Loads a scenario with the settings of the command line, and prints warnings. NULL: it failed, and all
 * errors are printed. The caller frees it. */
struct scenario *command_load(const char *path, const struct options *o);
struct error;
/* Loads a scenario for a command that shows a single error, which includes its location. The caller frees the
 * scenario. */
int command_load_one(struct scenario **ret, const char *path, const char *const *settings, size_t n,
                     struct error *error);

#define COMMAND_NODES_MAX 320
/* Lists some nodes of a role (an enum node_role; -1: of any role) for an error message: ": ros1, ros2 or 4
 * more"; "": there are none. Returns `text`. */
const char *command_list_nodes(const struct scenario *s, int role, char text[static COMMAND_NODES_MAX]);
