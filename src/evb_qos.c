/* The program evb-qos: `evb qos` for machines without the event builder, and without the libraries that only
 * it needs. */
#include "cmd/commands.h"

static int run_command(int argc, char **argv)
{
        static char name[] = "qos";

        command_prefix = "evb-";
        if (argc > 0)
                argv[0] = name;
        return cmd_qos(argc, argv);
}

int main(int argc, char **argv)
{
        return program_run("evb-qos", run_command, argc, argv);
}
