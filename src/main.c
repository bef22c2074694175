/* The program: runs the subcommand that the first argument names. */
#include <stdio.h>
#include <string.h>

#include "base/util.h"
#include "cmd/commands.h"
#include "cmd/options.h"

static const struct command commands[] = {
        {"run", cmd_run, "FILE", "run all nodes of a scenario on this machine"},
        {"sim", cmd_sim, "FILE", "run a scenario in virtual time, reproducibly"},
        {"check", cmd_check, "FILE", "check a scenario and print its effective values"},
        {"status", cmd_status, "", "show the state of all nodes of a scenario"},
        {"top", cmd_top, "", "watch all nodes of a scenario"},
        {"ctl", cmd_ctl, "VERB", "control the runs of a DFM: start, stop, pause, resume"},
        {"ros", cmd_ros, "", "run a readout system, which buffers and sends fragments"},
        {"dfm", cmd_dfm, "", "run the data flow manager, which assigns events"},
        {"sfi", cmd_sfi, "", "run a builder, which collects fragments and writes events"},
        {"qos", cmd_qos, "VERB", "shape the traffic of this machine"},
        {"dump", cmd_dump, "FILE...", "print, verify and repair event files"},
        {"convert", cmd_convert, "RUN", "convert event files to HDF5 or ROOT"},
        {"live", cmd_live, "ADDRESS", "receive events of a running SFI"},
        {"stream", cmd_stream, "VERB", "send and receive streams of data over UDP"},
        {"listen", cmd_listen, "SOURCE", "show and count the frames of a board"},
        {"frontend", cmd_frontend, "", "play the boards of a detector and their trigger box"},
        {"level2", cmd_level2, "", "decide about events as a level-2 farm does, for tests"},
        {"testbed", cmd_testbed, "FILE", "build the network of a scenario for other programs"},
        {"lab", cmd_lab, "VERB", "repeat the published measurements"},
        {"bench", cmd_bench, "VERB", "measure what this machine can do"},
};

/* The headings of the help, and the command that follows each. */
static const struct {
        const char *first, *title;
} groups[] = {
        {"run", "Run"},      {"ros", "Nodes"}, {"qos", "Shape"}, {"dump", "Files and streams"},
        {"listen", "Tools"},
};

static int help(FILE *to)
{
        fprintf(to, "Usage: evb COMMAND [OPTION]...\nEvent builder for data acquisition.\n");
        for (size_t i = 0, group = 0; i < ARRAY_SIZE(commands); i++) {
                if (group < ARRAY_SIZE(groups) && strcmp(commands[i].name, groups[group].first) == 0)
                        fprintf(to, "\n%s:\n", groups[group++].title);
                fprintf(to, "  %-8s %s\n", commands[i].name, commands[i].help);
        }
        fprintf(to, "\nOptions:\n  --help     print this help (short: -h)\n  --version  print the version\n\n"
                    "`evb help COMMAND` or `evb COMMAND --help` describes a command.\n");
        return to == stdout ? 0 : 2;
}

static int unknown_command(const char *name)
{
        const char *similar = options_find_similar(commands, ARRAY_SIZE(commands), sizeof *commands, name);

        fprintf(stderr, "evb: unknown command \"%s\"; ", name);
        if (similar)
                fprintf(stderr, "did you mean \"%s\"? ", similar);
        fprintf(stderr, "%s `evb --help`\n", similar ? "See" : "see");
        return 2;
}

static int run_command(int argc, char **argv)
{
        static char option[] = "--help";
        char *described[] = {argv[0], option, option, option, NULL};

        if (argc < 2)
                return help(stderr);
        if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0 ||
            (strcmp(argv[1], "help") == 0 && argc == 2))
                return help(stdout);
        if (strcmp(argv[1], "--version") == 0 || strcmp(argv[1], "version") == 0) {
                version_print();
                return 0;
        }
        /* `evb help qos plan` is `evb qos plan --help`. */
        if (strcmp(argv[1], "help") == 0) {
                for (int i = 2; i < argc && i < 4; i++)
                        described[i - 1] = argv[i];
                argc = MIN(argc, 4);
                argv = described;
        }
        for (size_t i = 0; i < ARRAY_SIZE(commands); i++) {
                if (strcmp(argv[1], commands[i].name) == 0)
                        return commands[i].run(argc - 1, argv + 1);
        }
        return unknown_command(argv[1]);
}

int main(int argc, char **argv)
{
        return program_run("evb", run_command, argc, argv);
}
