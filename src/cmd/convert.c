/* evb convert: checks the command line, and runs the Python module that converts event files. */
#include "base/util.h"
#include "cmd/commands.h"
#include "cmd/options.h"

int cmd_convert(int argc, char **argv)
{
        static const struct command command = {"convert", cmd_convert, "RUN...",
                                               "Convert the event files of a run to columns for analysis.",
                                               OPTION_JSON | OPTION_PROGRESS};
        const char *output = NULL, *run = NULL, *decode = NULL, *compress = NULL;
        const struct option_entry own[] = {
                {"output", "FILE", "the new file: FILE.h5 for HDF5, FILE.root for an RNTuple of ROOT",
                 &output},
                {"run", "N", "run number, if the files are of several runs", &run},
                {"decode", "MODULE:FUNCTION",
                 "Python function that makes an array of the bytes of a fragment; its fields become columns",
                 &decode},
                {"compress", "LEVEL", "level of compression from 1 to 9, or 0 for none (default: 4)",
                 &compress},
        };
        struct options o;
        int status = options_parse(&o, &command, own, ARRAY_SIZE(own), OPTIONS_MANY, argc, argv);

        if (status != OPTIONS_GO_ON)
                return status;
        return python_command_run("convert", "evb.convert", NULL, own, ARRAY_SIZE(own), &o);
}
