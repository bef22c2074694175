/* evb bench: measures what this machine can do. Each verb has a separate file. */
#include "bench.h"

#include "base/util.h"
#include "cmd/commands.h"

static const struct verb {
        struct command command;
        int (*run)(const struct command *command, int argc, char **argv);
} verbs[] = {
        {{"bench paths", cmd_bench, "",
          "Measure the ways from a file to a socket: rate, processor time, system calls.",
          OPTION_JSON | OPTION_PROGRESS},
         bench_paths},
        {{"bench memcpy", cmd_bench, "", "Measure how fast memory is copied, by the size of a block.",
          OPTION_JSON},
         bench_memcpy},
        {{"bench wire", cmd_bench, "",
          "Measure what the kernel alone carries over one link: the bound of every builder.",
          OPTION_JSON | OPTION_PROGRESS},
         bench_wire},
};

int cmd_bench(int argc, char **argv)
{
        int status;
        const struct verb *v =
                options_find_verb(verbs, ARRAY_SIZE(verbs), sizeof *verbs, argc, argv, &status);

        return v ? v->run(&v->command, argc - 1, argv + 1) : status;
}
