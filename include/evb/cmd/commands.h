/* The subcommands, one file each. Each gets argv from its own name on and returns the exit status. */
#pragma once

#include "evb/cmd/options.h"

int cmd_ros(int argc, char **argv);
int cmd_dfm(int argc, char **argv);
int cmd_sfi(int argc, char **argv);
int cmd_run(int argc, char **argv);
int cmd_check(int argc, char **argv);
int cmd_qos(int argc, char **argv);
int cmd_lab(int argc, char **argv);
int cmd_dump(int argc, char **argv);

/* Whether `evb run --net NET` would start on this machine: 0, or its exit status, after printing what is
 * wrong. On loopback qos.backend becomes none if qos.required allows it. */
struct scenario;
int command_may_run(struct scenario *s, const char *net);
/* Loads a scenario; where it is wrong, tells all mistakes and returns NULL. Freed by the caller. */
struct scenario *command_load(const char *path, const struct options *o);
