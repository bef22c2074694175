/* evb ctl: sends an operator's commands to the run control of a DFM, and shows its state. */
#include <errno.h>
#include <jansson.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/quantity.h"
#include "base/strbuf.h"
#include "base/util.h"
#include "cmd/commands.h"
#include "conf/scenario.h"
#include "net/http_get.h"
#include "net/key_file.h"
#include "node/run_states.h"
#include "sys/loop.h"

#define UNIX_PREFIX "unix:"
/* Control socket of the DFM's unit. */
#define UNIT_SOCKET "/run/evb/control.sock"
/* Longest wait for an answer, which must be longer than the DFM's HTTP server waits for the event loop. */
#define ANSWER_NS (6 * NS_PER_S)
/* Interval between requests for the state. */
#define LOOK_NS (100 * NS_PER_MS)

struct ctl {
        struct options common;
        const char *socket, *dfm, *token_file, *scenario, *wait;
        struct option_list metadata;
        enum run_command command; /* RUN_COMMANDS: status, or runs */
        bool lists;               /* runs */
        char place[SCENARIO_TEXT_MAX + sizeof UNIX_PREFIX];
        char token[TOKEN_MAX_BYTES + 1];
        char token_path[SCENARIO_TEXT_MAX]; /* from the scenario */
        uint64_t wait_ns, until_ns;         /* 0: the command does not wait */
        bool is_followed; /* the DFM has accepted the command, and the client waits for its effect */
};

/* ---- The DFM, and the request ---- */

/* The texts may come from another program, so control characters are removed. */
__attribute__((format(printf, 1, 2))) static int wrong(const char *format, ...)
{
        _cleanup_free_ char *text = NULL;
        va_list args;

        va_start(args, format);
        if (vasprintf(&text, format, args) < 0)
                text = NULL;
        va_end(args);
        fprintf(stderr, "evb ctl: %s\n", text_make_printable(text) ?: "out of memory");
        return 2;
}

static int load_scenario(struct ctl *c)
{
        _cleanup_free_ struct scenario *s = command_load(c->scenario, &c->common);

        if (!s)
                return 2;
        if (!scenario_control_place(s, c->place)) {
                fprintf(stderr,
                        "%s: control.listen: the DFM takes no commands; expected :PORT, HOST:PORT or "
                        "unix:PATH\n",
                        c->scenario);
                return 2;
        }
        if (!c->token_file && s->control.kind == CONTROL_TCP && s->control.token_file[0]) {
                snprintf(c->token_path, sizeof c->token_path, "%s", s->control.token_file);
                c->token_file = c->token_path;
        }
        return 0;
}

static int find_dfm(struct ctl *c)
{
        int n = (c->socket != NULL) + (c->dfm != NULL) + (c->scenario != NULL), r = 0;
        struct error e = {};

        if (n != 1)
                return wrong("%s; expected one of --socket PATH, --dfm HOST:PORT or --config FILE",
                             n == 0 ? "missing option" : "options exclude each other");
        if (c->scenario)
                r = load_scenario(c);
        else
                snprintf(c->place, sizeof c->place, "%s%.*s", c->socket ? UNIX_PREFIX : "",
                         (int)SCENARIO_TEXT_MAX, c->socket ?: c->dfm);
        if (r == 0 && c->token_file && token_file_read(c->token_file, c->token, &e) < 0)
                r = wrong("--token-file: %s", e.message);
        return r;
}

/* "NAME=VALUE" becomes a member of the object. */
static int add_metadata(json_t *to, const char *text)
{
        const char *equals = strchr(text, '=');
        char name[128];

        if (!equals || equals == text || (size_t)(equals - text) >= sizeof name)
                return wrong("--set-meta %s: expected NAME=VALUE", text);
        snprintf(name, sizeof name, "%.*s", (int)(equals - text), text);
        if (json_object_set_new(to, name, json_string(equals + 1)) < 0)
                return wrong("--set-meta %s: not UTF-8", text);
        return 0;
}

static int add_setting(json_t *to, const char *text)
{
        const char *equals = strchr(text, '=');
        char key[128];

        if (!equals || (size_t)(equals - text) >= sizeof key)
                return wrong("set %s: expected SECTION.KEY=VALUE", text);
        snprintf(key, sizeof key, "%.*s", (int)(equals - text), text);
        if (json_object_set_new(to, "key", json_string(key)) < 0 ||
            json_object_set_new(to, "value", json_string(equals + 1)) < 0)
                return wrong("set %s: not UTF-8", text);
        return 0;
}

/* *ret is the body of the request; NULL: the request only asks for the state. */
static int make_request(const struct ctl *c, char **ret)
{
        json_t *o, *metadata;
        int r = 0;

        *ret = NULL;
        if (c->command == RUN_COMMANDS)
                return 0;
        o = json_pack("{s:s}", "command", run_command_name(c->command));
        metadata = json_object();
        for (size_t i = 0; r == 0 && i < c->metadata.n; i++)
                r = add_metadata(metadata, c->metadata.values[i]);
        if (json_object_size(metadata) > 0)
                json_object_set(o, "metadata", metadata);
        json_decref(metadata);
        if (c->wait)
                json_object_set_new(o, "wait", json_true());
        if (r == 0 && c->command == RUN_COMMAND_SET)
                r = add_setting(o, c->common.words[0]);
        if (r == 0)
                *ret = json_dumps(o, JSON_COMPACT);
        json_decref(o);
        return r;
}

/* ---- The answer ---- */

/* A DFM does not execute a command if its sender has closed the connection. Over TCP, the DFM may detect this
 * too late. */
static const char *explain_silence(const struct ctl *c, bool is_command)
{
        if (!is_command)
                return "no answer in time: the DFM may be suspended, or its machine not reachable";
        if (strncmp(c->place, UNIX_PREFIX, strlen(UNIX_PREFIX)) == 0)
                return "no answer in time: the DFM may be suspended. It will not follow the command later; "
                       "see evb ctl status if it has done so before";
        return "no answer in time: the DFM may be suspended, or its machine not reachable. It may have "
               "followed the command, or may still do so; see evb ctl status";
}

static const char *explain(const struct ctl *c, int error, bool is_command)
{
        if (c->is_followed && (error == -ENOENT || error == -ECONNREFUSED || error == -ECONNRESET))
                return "the DFM has ended, and did not say how the run ended; see its log";
        switch (-error) {
        case ENOENT:
                return "there is no such socket: is the DFM running, with this control.listen?";
        case ECONNREFUSED:
                return "nobody listens there: is the DFM running, with this control.listen?";
        case ETIMEDOUT:
                return explain_silence(c, is_command);
        case EACCES:
        case EPERM:
                return "permission denied: only the owner and the group of the socket may use it";
        case EINVAL:
                return c->socket ? "not the path of a socket"
                                 : "not an address; expected HOST:PORT with a numeric HOST";
        case ECONNRESET:
                return "the connection ended without an answer: the DFM may have ended; see evb ctl status";
        case EBADMSG:
                return "another program answers there";
        }
        return strerror(-error);
}

static int exit_of(unsigned http_status)
{
        return http_status == 200 ? 0 : http_status == 400 ? 2 : 1;
}

/* Returns a copy without the control characters that a terminal would obey. */
static json_t *make_printable(json_t *from)
{
        _cleanup_free_ char *text = NULL;
        json_t *to, *value;
        const char *name;
        size_t i;

        if (json_is_string(from)) {
                text = strdup(json_string_value(from));
                return json_string(text_make_printable(text));
        }
        if (!json_is_object(from) && !json_is_array(from))
                return json_incref(from);
        to = json_is_object(from) ? json_object() : json_array();
        json_array_foreach(from, i, value) json_array_append_new(to, make_printable(value));
        json_object_foreach(from, name, value)
        {
                char *copy = strdup(name);

                json_object_set_new(to, text_make_printable(copy), make_printable(value));
                free(copy);
        }
        return to;
}

/* While the command waits, a request for the state is repeated if the DFM is too busy to answer it. A command
 * is never repeated. */
static void send_request(const struct ctl *c, const char *request, struct http_get *ret)
{
        for (;;) {
                *ret = (struct http_get){.place = c->place,
                                         .path = c->lists         ? "/control/runs"
                                                 : c->is_followed ? "/control?wait=1"
                                                                  : "/control",
                                         .post = request,
                                         .token = c->token};
                http_get_all(ret, 1, ANSWER_NS);
                if (request || (ret->error != -ETIMEDOUT && ret->status != 503) ||
                    clock_now_ns() >= c->until_ns)
                        return;
                free(take_ptr(ret->body));
                nanosleep(&(struct timespec){.tv_nsec = (long)LOOK_NS}, NULL);
        }
}

/* Sends one request. *ret is the object of the answer; NULL: there is none, and the reason is on standard
 * error. Returns the exit status. */
static int ask(const struct ctl *c, const char *request, json_t **ret)
{
        struct http_get g;
        int status = 1;

        *ret = NULL;
        send_request(c, request, &g);
        if (g.error < 0) {
                fprintf(stderr, "evb ctl: %s: %s\n", c->place, explain(c, g.error, request));
                return g.error == -EINVAL || g.error == -ENAMETOOLONG ? 2 : 1;
        }
        *ret = json_loads(g.body ?: "", 0, NULL);
        if (!json_object_get(*ret, c->lists ? "runs" : "state") && !json_object_get(*ret, "error")) {
                fprintf(stderr, "evb ctl: %s: another program answers there, or a node without run control\n",
                        c->place);
                json_decref(take_ptr(*ret));
        } else {
                status = exit_of(g.status);
                if (status != 0)
                        wrong("%s", json_string_value(json_object_get(*ret, "error"))
                                            ?: "the DFM refuses the command");
        }
        free(g.body);
        return status;
}

static const char *text_of(const json_t *o, const char *name)
{
        return json_string_value(json_object_get(o, name)) ?: "";
}

static long long number_of(const json_t *o, const char *name)
{
        return json_integer_value(json_object_get(o, name));
}

/* Prints `end` after a list that is not empty. */
static void print_list(const json_t *list, const char *before, const char *end)
{
        const json_t *each;
        size_t i;

        json_array_foreach(list, i, each)
        {
                printf("%s%s", i == 0 ? before : ", ", json_string_value(each));
        }
        if (json_array_size(list) > 0)
                fputs(end, stdout);
}

static void print_events(const json_t *events)
{
        printf("%lld triggers: %lld complete, %lld partial, %lld lost, %lld rejected",
               number_of(events, "triggers"), number_of(events, "complete"), number_of(events, "partial"),
               number_of(events, "lost"), number_of(events, "rejected"));
}

static void print_run(const json_t *o)
{
        double paused = json_number_value(json_object_get(o, "paused_seconds"));

        if (!json_is_integer(json_object_get(o, "run"))) {
                if (json_is_integer(json_object_get(o, "next_run")))
                        printf("next run   %lld\n", number_of(o, "next_run"));
                return;
        }
        /* A DFM that is resuming a run reports neither the duration nor the counts yet. */
        if (!json_is_number(json_object_get(o, "seconds"))) {
                printf("run        %lld\n", number_of(o, "run"));
                return;
        }
        printf("run        %lld, for %.1f s", number_of(o, "run"),
               json_number_value(json_object_get(o, "seconds")));
        if (paused > 0)
                printf(", %.1f s of them paused", paused);
        printf("\nevents     ");
        print_events(json_object_get(o, "events"));
        putchar('\n');
}

static void print_metadata(const json_t *o)
{
        const char *name, *separator = "metadata   ";
        json_t *value;

        json_object_foreach(json_object_get(o, "metadata"), name, value)
        {
                printf("%s%s=%s", separator, name, json_string_value(value));
                separator = ", ";
        }
        if (json_object_size(json_object_get(o, "metadata")) > 0)
                putchar('\n');
}

/* A DFM that only read how the run ended knows neither its counts nor its end. */
static void print_last_run(const json_t *last)
{
        const json_t *events = json_object_get(last, "events");

        printf("last run   %lld: %s", number_of(last, "run"), text_of(last, "status"));
        print_list(json_object_get(last, "reasons"), ": ", "");
        putchar('\n');
        if (json_is_object(events)) {
                printf("           ");
                print_events(events);
                printf("; ended %s\n", text_of(last, "end"));
        }
}

static void print_state(const json_t *o)
{
        const json_t *nodes = json_object_get(o, "nodes"), *last = json_object_get(o, "last_run");

        printf("state      %s%s%s\n", text_of(o, "state"), text_of(o, "reason")[0] ? ": " : "",
               text_of(o, "reason"));
        print_run(o);
        if (text_of(o, "scenario")[0])
                printf("scenario   %s\n", text_of(o, "scenario"));
        printf("nodes      %lld of %lld present", number_of(nodes, "present"), number_of(nodes, "expected"));
        print_list(json_object_get(nodes, "missing"), "; missing: ", "");
        putchar('\n');
        print_metadata(o);
        if (json_is_object(last))
                print_last_run(last);
        print_list(json_object_get(o, "permits"), "permits    ", "\n");
}

static const char *text_or_dash(const json_t *o, const char *name)
{
        return text_of(o, name)[0] ? text_of(o, name) : "-";
}

/* e.g. "stop by 10.0.0.9:4711", "trigger.events", "fault: the output of sfi1 failed" */
static void print_end(const json_t *run)
{
        const char *who = text_of(run, "ended_by");
        bool is_fault = strcmp(text_of(run, "ended"), "fault") == 0;

        printf(" %s%s%s\n", text_or_dash(run, "ended"), !who[0] ? "" : is_fault ? ": " : " by ", who);
}

static void print_runs(const json_t *runs)
{
        const json_t *run;
        size_t i;

        printf("%10s %-16s %-20s %-20s %12s %-10s %s\n", "RUN", "SCENARIO", "BEGIN", "END", "EVENTS",
               "STATUS", "ENDED");
        json_array_foreach(runs, i, run)
        {
                const json_t *events = json_object_get(run, "events");
                char built[24] = "-";

                if (events && !json_is_null(events))
                        snprintf(built, sizeof built, "%lld",
                                 number_of(events, "complete") + number_of(events, "partial"));
                printf("%10lld %-16.16s %-20s %-20s %12s %-10s", number_of(run, "run"),
                       text_or_dash(run, "scenario"), text_or_dash(run, "begin"), text_or_dash(run, "end"),
                       built, text_of(run, "status"));
                print_end(run);
                print_list(json_object_get(run, "reasons"), "           reasons: ", "\n");
                print_list(json_object_get(run, "files"), "           files: ", "\n");
        }
}

/* ---- Waiting ---- */

/* State in the DFM's answer to the command: the run in progress, and the last run; 0: none. */
struct before {
        long long run, last;
};

static long long last_run_of(const json_t *o)
{
        return number_of(json_object_get(o, "last_run"), "run");
}

static struct before record_before(const json_t *o)
{
        return (struct before){number_of(o, "run"), last_run_of(o)};
}

/* Whether the run that the command starts has started and ended. */
static bool has_ended(const json_t *o, const struct before *before)
{
        return last_run_of(o) != before->last && last_run_of(o) != before->run;
}

/* Whether the command has had its effect. A short run may end before a request shows it, and after a stop,
 * another operator may start a new run. */
static bool is_reached(const struct ctl *c, const json_t *o, const struct before *before)
{
        bool is_other = number_of(o, "run") != before->run;

        if (c->command == RUN_COMMAND_STOP)
                return is_other || before->run == 0;
        /* A run that is being resumed has no "seconds" yet. */
        return (is_other && number_of(o, "run") != 0 && json_is_number(json_object_get(o, "seconds"))) ||
               has_ended(o, before);
}

static int judge_last(const json_t *o)
{
        const json_t *last = json_object_get(o, "last_run");
        const char *why = json_string_value(json_array_get(json_object_get(last, "reasons"), 0));
        const char *status = text_of(last, "status");

        if (strcmp(status, "ok") == 0)
                return 0;
        fprintf(stderr, "evb ctl: run %lld %s%s%s\n", number_of(last, "run"),
                strcmp(status, "error") == 0 ? "ended in an error" : status, why ? ": " : "", why ?: "");
        return 1;
}

/* Returns the exit status from the outcome of the run that the command started or stopped; for a stop without
 * a run in progress, of the last run. */
static int judge(const struct ctl *c, const json_t *o, const struct before *before)
{
        long long run = before->run != 0 ? before->run : before->last;

        if (c->command != RUN_COMMAND_STOP)
                return has_ended(o, before) ? judge_last(o) : 0;
        if (run == 0)
                return 0;
        if (last_run_of(o) == run)
                return judge_last(o);
        fprintf(stderr,
                "evb ctl: run %lld has ended, and so has a later one; the log of the DFM says how it ended\n",
                run);
        return 1;
}

/* Requests the state until the command has had its effect. *o is the last answer. */
static int await(struct ctl *c, json_t **o)
{
        const struct before before = record_before(*o);
        bool starts = c->command != RUN_COMMAND_STOP;
        int r = 0;

        c->is_followed = true;
        while (r == 0 && !is_reached(c, *o, &before)) {
                if (clock_now_ns() >= c->until_ns || (starts && strcmp(text_of(*o, "state"), "error") == 0)) {
                        wrong("the state is still %s%s%s", text_of(*o, "state"),
                              text_of(*o, "reason")[0] ? ": " : "", text_of(*o, "reason"));
                        return 1;
                }
                nanosleep(&(struct timespec){.tv_nsec = (long)LOOK_NS}, NULL);
                json_decref(*o);
                r = ask(c, NULL, o);
        }
        return r == 0 ? judge(c, *o, &before) : r;
}

static int control(struct ctl *c)
{
        _cleanup_free_ char *request = NULL;
        json_t *o = NULL, *shown = NULL;
        int r = make_request(c, &request);

        if (r == 0)
                r = find_dfm(c);
        if (c->wait)
                c->until_ns = clock_now_ns() + c->wait_ns;
        if (r == 0)
                r = ask(c, request, &o);
        if (r == 0 && c->wait)
                r = await(c, &o);
        if (c->common.json && o)
                return options_write_json(&c->common, o, r);
        if (r == 0 && c->lists) {
                shown = make_printable(json_object_get(o, "runs"));
                print_runs(shown);
        } else if (json_object_get(o, "state")) {
                shown = make_printable(o);
                print_state(shown);
        }
        json_decref(shown);
        json_decref(o);
        return r;
}

/* ---- The command line ---- */

static int show_states(int argc, char **argv)
{
        static const struct command command = {
                "ctl states", cmd_ctl, "",
                "Show the states of run control, and the commands that each permits."};
        const char *man = NULL;
        const struct option_entry own[] = {{"man", NULL, "as text of a manual page (mdoc)", &man}};
        struct options o;
        int r = options_parse(&o, &command, own, ARRAY_SIZE(own), 0, argc, argv);

        if (r != OPTIONS_GO_ON)
                return r;
        if (man)
                run_states_print_man(stdout);
        else
                run_states_print(stdout);
        return 0;
}

/* Bits of the verbs that use an option. */
enum ctl_verb { CTL_BEGINS = 1, CTL_ENDS = 2 };

#define COMMON (OPTION_SET | OPTION_JSON)

static const struct verb {
        struct command command;
        size_t n_words;
} verbs[] = {
        {{"ctl status", cmd_ctl, "", "Show the state of the DFM and of its run.", COMMON}, 0},
        {{"ctl start", cmd_ctl, "", "Start a run: at once, or when all nodes are present.", COMMON,
          CTL_BEGINS},
         0},
        {{"ctl stop", cmd_ctl, "", "End the run. No other run begins until start or next-run.", COMMON,
          CTL_ENDS},
         0},
        {{"ctl pause", cmd_ctl, "", "Take no further triggers until resume; the run goes on.", COMMON}, 0},
        {{"ctl resume", cmd_ctl, "", "Take triggers again after a pause.", COMMON}, 0},
        {{"ctl set", cmd_ctl, "KEY=VALUE",
          "Set a key that the DFM applies while it runs, such as trigger.rate.", COMMON},
         1},
        {{"ctl next-run", cmd_ctl, "", "End the run, and begin another one with the next number.", COMMON,
          CTL_BEGINS},
         0},
        {{"ctl runs", cmd_ctl, "", "List the last runs: begin, end, events, how and by whom ended, files.",
          COMMON},
         0},
        {{"ctl states", cmd_ctl, "", "Show the states, and the commands that each permits."}, 0},
};

/* Without an option, uses the DFM of this machine's unit, or else the DFM of the default scenario. */
static void choose_default(struct ctl *c)
{
        if (c->socket || c->dfm || c->scenario)
                return;
        if (c->common.n_settings == 0 && !getenv("EVB_CONFIG") && access(UNIT_SOCKET, F_OK) == 0)
                c->socket = UNIT_SOCKET;
        else
                c->scenario = command_default_config();
}

static int run(const struct verb *verb, int argc, char **argv)
{
        const char *name = verb->command.name + strlen("ctl ");
        struct ctl c = {.command = run_command_find(name), .lists = strcmp(name, "runs") == 0};
        const struct option_entry own[] = {
                {"socket", "PATH", "Unix socket of the DFM (control.listen = unix:PATH)", &c.socket},
                {"dfm", "HOST:PORT", "address and port of the DFM (control.listen = HOST:PORT)", &c.dfm},
                {"token-file", "FILE", "file with the token of the DFM (control.token-file)", &c.token_file},
                {"config", "FILE",
                 "scenario of the DFM (default: /run/evb/control.sock of its unit, or "
                 "/etc/evb/scenario.conf, if they exist)",
                 &c.scenario},
                {"set-meta", "NAME=VALUE", "add to the metadata of the run that begins; repeatable",
                 .list = &c.metadata, .verbs = CTL_BEGINS},
                {"wait", "TIME", "wait at most TIME until the run has begun or ended", &c.wait,
                 .verbs = CTL_BEGINS | CTL_ENDS,
                 OPTION_NUMBER(quantity_parse_time, &c.wait_ns, 0, UINT64_MAX, "a time, e.g. 30s")},
        };
        int r = options_parse(&c.common, &verb->command, own, ARRAY_SIZE(own), verb->n_words, argc, argv);

        choose_default(&c);
        if (r == OPTIONS_GO_ON && c.common.n_settings > 0 && !c.scenario)
                r = wrong("--set needs --config FILE");
        if (r == OPTIONS_GO_ON)
                r = control(&c);
        free(c.metadata.values);
        return r;
}

int cmd_ctl(int argc, char **argv)
{
        int status;
        const struct verb *v =
                options_find_verb(verbs, ARRAY_SIZE(verbs), sizeof *verbs, argc, argv, &status);

        if (!v)
                return status;
        return strcmp(v->command.name, "ctl states") == 0 ? show_states(argc - 1, argv + 1)
                                                          : run(v, argc - 1, argv + 1);
}
