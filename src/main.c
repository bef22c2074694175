/* The program: a table of subcommands. What each does is in cmd/. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "evb/base/log.h"
#include "evb/base/util.h"
#include "evb/cmd/commands.h"

static const struct command commands[] = {
        {"run", cmd_run, "FILE", "run every node of a scenario on this machine"},
        {"ros", cmd_ros, "", "one readout: holds fragments and sends them"},
        {"dfm", cmd_dfm, "", "the data flow manager: takes triggers, assigns events"},
        {"sfi", cmd_sfi, "", "one builder: collects fragments, builds and writes events"},
        {"qos", cmd_qos, "VERB",
         "shape this machine's traffic at the source: plan, apply, status, watch, remove"},
        {"lab", cmd_lab, "VERB", "the published measurements again: list, run, report, clean"},
        {"check", cmd_check, "FILE", "read a scenario and show it as it is understood"},
        {"dump", cmd_dump, "FILE", "print, verify and repair an event file"},
};

static int help(FILE *to)
{
        fprintf(to, "evb, an event builder for data acquisition\n\nevb COMMAND [OPTION]...; evb COMMAND "
                    "--help tells more\n\n");
        for (size_t i = 0; i < ARRAY_SIZE(commands); i++)
                fprintf(to, "  %-8s %s\n", commands[i].name, commands[i].help);
        fprintf(to, "  --version\n  --help\n");
        return to == stdout ? 0 : 2;
}

static int run_command(int argc, char **argv)
{
        if (argc < 2)
                return help(stderr);
        if (strcmp(argv[1], "--help") == 0)
                return help(stdout);
        if (strcmp(argv[1], "--version") == 0) {
                printf("evb %s\n", EVB_VERSION);
                return 0;
        }
        for (size_t i = 0; i < ARRAY_SIZE(commands); i++) {
                if (strcmp(argv[1], commands[i].name) == 0)
                        return commands[i].run(argc - 1, argv + 1);
        }
        fprintf(stderr, "evb: unknown command \"%s\", allowed:", argv[1]);
        for (size_t i = 0; i < ARRAY_SIZE(commands); i++)
                fprintf(stderr, " %s", commands[i].name);
        fputc('\n', stderr);
        return 2;
}

/* A report that nobody can read is no success. */
static int check_output(int status)
{
        if (fflush(stdout) != 0)
                log_error_errno(errno, "cannot write to standard output: %m");
        else if (ferror(stdout))
                log_error("cannot write to standard output: part of the output is lost");
        else
                return status;
        return status == 0 ? 1 : status;
}

int main(int argc, char **argv)
{
        log_open("evb", LOG_LEVEL_INFO);
        return check_output(run_command(argc, argv));
}
