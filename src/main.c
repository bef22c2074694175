/* The program: runs the subcommand that the first argument names. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/util.h"
#include "cmd/commands.h"
#include "cmd/version.h"

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
        {"dump", cmd_dump, "FILE", "print, verify and repair an event file"},
        {"convert", cmd_convert, "RUN", "convert event files to HDF5 or ROOT"},
        {"live", cmd_live, "ADDRESS", "receive events of a running SFI"},
        {"stream", cmd_stream, "VERB", "send and receive streams of data over UDP"},
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
        {"run", "Run"},        {"ros", "Nodes"}, {"qos", "Shape"}, {"dump", "Files and streams"},
        {"frontend", "Tools"},
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

/* A write function of fopencookie(3), to which a short write is an error. */
static ssize_t write_all(void *cookie, const char *bytes, size_t n)
{
        struct pollfd output = {.fd = STDOUT_FILENO, .events = POLLOUT};
        size_t done = 0;

        (void)cookie;
        while (done < n) {
                ssize_t r = write(STDOUT_FILENO, bytes + done, n - done);

                if (r >= 0)
                        done += (size_t)r;
                else if (errno == EAGAIN)
                        (void)poll(&output, 1, -1);
                else if (errno != EINTR)
                        break;
        }
        return (ssize_t)done;
}

/* Another process that shares standard output may have made it non-blocking. The C library then discards what
 * does not fit. The mode belongs to all these processes, so it remains as it is. */
static void open_output(void)
{
        int flags = fcntl(STDOUT_FILENO, F_GETFL);
        FILE *waiting;

        if (flags < 0 || !(flags & O_NONBLOCK))
                return;
        waiting = fopencookie(NULL, "w", (cookie_io_functions_t){.write = write_all});
        if (!waiting)
                return;
        setvbuf(waiting, NULL, isatty(STDOUT_FILENO) ? _IOLBF : _IOFBF, BUFSIZ);
        stdout = waiting;
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
        open_output();
        return check_output(run_command(argc, argv));
}
