/* evb stream: the table of its verbs. */
#include "stream_verbs.h"
#include "base/util.h"
#include "cmd/commands.h"
static const struct verb {
        struct command command;
        int (*run)(const struct command *c, int argc, char **argv);
} verbs[] = {
        {{"stream send", cmd_stream, "HOST:PORT", "Send one stream over UDP to a receiver.",
          OPTION_JSON | OPTION_PROGRESS},
         stream_send_verb},
        {{"stream recv", cmd_stream, "[HOST:]PORT", "Wait for one stream, write it, and end with it.",
          OPTION_JSON | OPTION_PROGRESS},
         stream_receive_verb},
};

int cmd_stream(int argc, char **argv)
{
        int status;
        const struct verb *v =
                options_find_verb(verbs, ARRAY_SIZE(verbs), sizeof *verbs, argc, argv, &status);

        return v ? v->run(&v->command, argc - 1, argv + 1) : status;
}
