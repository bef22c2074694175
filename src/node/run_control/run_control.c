/* Executes operators' commands in the event loop of a DFM, and starts its runs. http.c reads the requests,
 * and state_json.c describes the state. */
#include "run_control.h"

#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/stat.h>
#include <time.h>

#include "base/log.h"
#include "base/util.h"
#include "core/dfm.h"
#include "data/socket_open.h"
#include "net/http_server.h"
#include "net/local_listener.h"
#include "net/key_file.h"
#include "../progress/progress.h"
#include "node/reload.h"
#include "http.h"
#include "state_json.h"

#define UNIX_PREFIX "unix:"
#define UNIT_SOCKET "control.sock"

_Static_assert(METADATA_MAX == SCENARIO_METADATA_MAX &&
                       METADATA_NAME_BYTES == sizeof((struct scenario_metadata *)NULL)->name &&
                       METADATA_VALUE_BYTES == sizeof((struct scenario_metadata *)NULL)->value,
               "a message holds what a scenario holds");

#define PURPOSE "run control (control.listen)"

struct run_control {
        struct node *node;
        struct run_state_view view;
        struct run_mailbox *mailbox;
        struct loop_io io;
        struct run_http http;
        struct run_state_copy copy;
        char token[TOKEN_MAX_BYTES + 1];
        int listener; /* TCP; -1: none */
        struct local_listener local;
        struct http_server *server, *local_server; /* for `listener` and for `local` */
        bool begun;         /* the run of the current core has begun, or is being resumed */
        bool next_is_ready; /* an operator has started the run after the current one, with this metadata */
        struct scenario_metadata metadata[SCENARIO_METADATA_MAX];
        size_t n_metadata;
        struct metadata_set given; /* the part of the metadata that the operator set */
        /* The last command that began or ended a run, and its sender. */
        enum run_command command;
        char from[sizeof((struct run_request *)NULL)->from];
        /* Number of clients that request the state until their commands have taken effect; time of the last
         * such request; time of the last turn of the event loop. */
        unsigned n_waiting;
        uint64_t asked_ns, turn_ns;
};

static bool waits_for_start(const struct run_control *c)
{
        return c->node->scenario->run.start == START_MANUAL ||
               (c->node->runs > 0 && c->node->number_is_fixed);
}

/* Returns whether the state has changed. */
static bool record_state(struct run_control *c)
{
        int state = (int)run_state_of(c->node->core, &c->view);

        return atomic_exchange_explicit(&c->http.state, state, memory_order_relaxed) != state;
}

const struct run_http *run_control_http(const struct run_control *c)
{
        return c ? &c->http : NULL;
}

void run_control_publish(struct run_control *c, uint64_t now_ns)
{
        const char *error;

        if (!c || !run_state_copy_begin(&c->copy))
                return;
        error = run_state_of(c->node->core, &c->view) == RUN_CONTROL_ERROR && c->view.reasons.n > 0
                        ? c->view.reasons.text[0]
                        : "";
        run_state_copy_end(&c->copy, run_state_json(c->node, &c->view, now_ns), error);
}

/* ---- Commands ---- */

__attribute__((format(printf, 3, 4))) static void refuse(struct run_request *r, unsigned status,
                                                         const char *format, ...)
{
        char text[700];
        va_list args;

        va_start(args, format);
        vsnprintf(text, sizeof text, format, args);
        va_end(args);
        r->status = status;
        r->reply = run_error_json(text);
}

/* Combines the metadata of the scenario and of the command. False: there are too many names, and the request
 * is refused. */
static bool read_metadata(struct run_control *c, struct run_request *r)
{
        const struct scenario *s = c->node->scenario;
        struct scenario_metadata list[SCENARIO_METADATA_MAX];
        size_t n = s->n_metadata;

        memcpy(list, s->metadata, n * sizeof *list);
        for (size_t i = 0; i < r->n_metadata; i++) {
                const char *why = scenario_metadata_put(list, &n, r->metadata[i].name, r->metadata[i].value);

                if (!why)
                        continue;
                refuse(r, 400, "metadata.%s: %s, including those of the scenario", r->metadata[i].name, why);
                return false;
        }
        memcpy(c->metadata, list, sizeof list);
        c->n_metadata = n;
        c->given.n = (uint16_t)r->n_metadata;
        for (size_t i = 0; i < r->n_metadata; i++) {
                strcpy(c->given.entries[i].name, r->metadata[i].name);
                strcpy(c->given.entries[i].value, r->metadata[i].value);
        }
        return true;
}

static void send_metadata(struct run_control *c, struct dfm *core, uint64_t now_ns)
{
        struct node *n = c->node;

        memcpy(n->metadata, c->metadata, sizeof c->metadata);
        n->n_metadata = c->n_metadata;
        dfm_set_metadata(core, now_ns, c->given.entries, c->given.n);
}

static void let_begin(struct run_control *c, uint64_t now_ns)
{
        struct dfm *core = c->node->core;

        c->view.is_held = c->view.has_failed = false;
        c->view.ends_previous = !dfm_is_in_run(core);
        if (dfm_is_in_run(core)) {
                c->next_is_ready = true;
                return;
        }
        c->node->kind->stop_previous(c->node);
        /* A client that waits recognizes the end of its run by the number. */
        if (!dfm_awaits_run(core) && c->view.run == dfm_run(core))
                c->view.outcome = RUN_OUTCOME_NONE;
        send_metadata(c, core, now_ns);
        dfm_release_start(core, now_ns);
}

/* Later runs would have the same number as the first run, and the files of all runs would be mixed up. */
static void refuse_number(const struct node *n, struct run_request *r)
{
        const char *file = scenario_replayed_file(n->scenario);

        if (n->scenario->run.number == SCENARIO_AUTO && file)
                refuse(r, 409,
                       "run.number = auto takes the number %u of %s for every run, so this DFM makes a "
                       "single run; set run.number = next and restart the DFM to give each run another "
                       "number",
                       n->run, file);
        else
                refuse(r, 409,
                       "run.number = %llu is fixed, so this DFM makes a single run; set run.number = auto or "
                       "next and restart all nodes to make several",
                       (unsigned long long)n->scenario->run.number);
}

/* False: this DFM makes a single run, and the request is refused. */
static bool may_have_another(const struct run_control *c, struct run_request *r)
{
        const struct node *n = c->node;

        if (run_state_has_next(n))
                return true;
        if (!node_stays(n))
                refuse(r, 409,
                       getenv(NODE_STATS_ENV)
                               ? "evb run makes a single run; start the nodes as services for several"
                               : "this DFM makes a single run; set control.listen in the scenario of all "
                                 "nodes for several");
        else
                refuse_number(n, r);
        return false;
}

static void stop_run(struct run_control *c, uint64_t now_ns)
{
        struct node *n = c->node;

        if (!dfm_is_in_run(n->core) || dfm_state(n->core) >= RUN_DRAINING)
                return;
        node_record_stop(n, run_command_name(c->command), c->from);
        n->kind->stop(n, now_ns);
}

static void start(struct run_control *c, struct run_request *r, uint64_t now_ns)
{
        if (may_have_another(c, r) && read_metadata(c, r)) {
                if (r->command == RUN_COMMAND_NEXT_RUN)
                        stop_run(c, now_ns);
                let_begin(c, now_ns);
        }
}

static void stop(struct run_control *c, uint64_t now_ns)
{
        c->view.is_held = true;
        c->next_is_ready = false;
        c->view.ends_previous = !dfm_is_in_run(c->node->core);
        if (c->view.ends_previous) {
                c->node->kind->stop_previous(c->node);
                dfm_hold_start(c->node->core);
        }
        stop_run(c, now_ns);
}

static void set(struct run_control *c, struct run_request *r, uint64_t now_ns)
{
        char why[600];
        int status = node_set(c->node, now_ns, r->key, r->value, why, sizeof why);

        if (status != 0)
                refuse(r, status == -EINVAL ? 400 : 409, "%s", why);
}

/* Clients that wait send a request every 100 ms. If no request came in this time, they have given up. */
#define CLIENT_NS (2 * NS_PER_S)

static bool is_awaited(const struct run_control *c, uint64_t now_ns)
{
        return c->n_waiting > 0 && now_ns - c->asked_ns < CLIENT_NS;
}

static void record_client(struct run_control *c, uint64_t now_ns)
{
        c->n_waiting = is_awaited(c, now_ns) ? c->n_waiting + 1 : 1;
        c->asked_ns = now_ns;
}

static void record_command(struct run_control *c, const struct run_request *r)
{
        c->command = r->command;
        strcpy(c->from, r->from);
}

static void execute(struct run_control *c, struct run_request *r, uint64_t now_ns)
{
        enum run_control_state state = run_state_of(c->node->core, &c->view);
        char states[128];
        bool was_in_run = dfm_is_in_run(c->node->core) || dfm_awaits_run(c->node->core);

        if (!run_state_permits(state, r->command)) {
                refuse(r, 409, "the state is %s; %s needs %s%s", run_state_name(state),
                       run_command_name(r->command), run_command_states(r->command, states, sizeof states),
                       state == RUN_CONTROL_RESUMING && r->command == RUN_COMMAND_START
                               ? "; next-run ends the run of the earlier DFM, and begins another one"
                               : "");
                return;
        }
        if (c->node->is_stopped || c->view.is_over) {
                refuse(r, 409, "this DFM has been stopped, and is about to end");
                return;
        }
        switch (r->command) {
        case RUN_COMMAND_START:
        case RUN_COMMAND_NEXT_RUN:
                record_command(c, r);
                start(c, r, now_ns);
                break;
        case RUN_COMMAND_STOP:
                record_command(c, r);
                stop(c, now_ns);
                break;
        case RUN_COMMAND_PAUSE:
        case RUN_COMMAND_RESUME:
                c->node->kind->pause(c->node, now_ns, r->command == RUN_COMMAND_PAUSE);
                break;
        case RUN_COMMAND_SET:
                set(c, r, now_ns);
                break;
        case RUN_COMMANDS:
                break;
        }
        if (r->status != 200)
                return;
        if (r->waits && (r->command != RUN_COMMAND_STOP || was_in_run))
                record_client(c, now_ns);
        log_info("%s requested from %s", run_command_name(r->command), r->from);
}

struct following {
        struct run_control *control;
        uint64_t now_ns;
};

/* A DFM that was suspended must not execute commands of operators who no longer wait. */
static bool is_withdrawn(struct run_request *r)
{
        if (http_client_waits(r->connection))
                return false;
        log_warning("%s from %s not followed: the client has closed its connection",
                    run_command_name(r->command), r->from);
        refuse(r, 503, "the client has closed its connection");
        return true;
}

/* Records a request of a client that waits. This request shows the client whether the last command has taken
 * effect. */
static void record_question(struct run_control *c, uint64_t now_ns)
{
        bool has_effect = c->view.is_over || dfm_has_begun(c->node->core) == (c->command != RUN_COMMAND_STOP);

        if (has_effect && c->n_waiting > 0)
                c->n_waiting--;
        c->asked_ns = now_ns;
}

static void follow(void *ctx, struct run_request *r)
{
        const struct following *f = ctx;

        if (r->is_command && !is_withdrawn(r)) {
                execute(f->control, r, f->now_ns);
                /* Updates the reason, because the answer contains the present reason of the DFM. */
                progress_watch(f->control->node, f->now_ns);
        }
        if (!r->is_command && r->waits)
                record_question(f->control, f->now_ns);
        if (!r->reply)
                r->reply = run_state_json(f->control->node, &f->control->view, f->now_ns);
        if (record_state(f->control) || r->is_command)
                run_control_publish(f->control, f->now_ns);
}

/* If commands arrived before the nodes did, they concern the run that an earlier DFM left unfinished. */
static void end_previous(struct run_control *c, uint64_t now_ns)
{
        struct node *n = c->node;

        memcpy(n->metadata, n->scenario->metadata, sizeof n->metadata);
        n->n_metadata = n->scenario->n_metadata;
        c->next_is_ready = !c->view.is_held;
        stop_run(c, now_ns);
}

static void record_begin(struct run_control *c, uint64_t now_ns)
{
        c->begun = true;
        if (c->view.ends_previous && !dfm_has_begun(c->node->core))
                end_previous(c, now_ns);
        else
                c->view.is_held = waits_for_start(c);
        c->view.has_failed = c->view.ends_previous = false;
}

void run_control_turn(struct run_control *c, uint64_t now_ns)
{
        struct following f = {c, now_ns};

        if (!c)
                return;
        c->turn_ns = now_ns;
        if (!c->begun && dfm_is_in_run(c->node->core))
                record_begin(c, now_ns);
        run_mailbox_turn(c->mailbox, follow, &f);
        if (record_state(c))
                run_control_publish(c, now_ns);
}

void run_control_prepare(struct run_control *c, struct dfm *core)
{
        if (!c)
                return;
        c->begun = false;
        if (c->view.is_held)
                dfm_hold_start(core);
        if (c->next_is_ready)
                send_metadata(c, core, clock_now_ns());
        c->next_is_ready = false;
}

void run_control_record_last(struct run_control *c, uint32_t run, const char *why, const char *cause)
{
        if (c)
                run_state_record_last(&c->view, run, why, cause);
}

void run_control_restore_last(struct run_control *c, bool fault_remains)
{
        struct run_list_outcome last;

        if (!c || !run_list_read_last(c->http.runs, &last))
                return;
        run_state_restore_last(&c->view, &last, fault_remains);
        if (c->view.has_failed)
                log_warning("run %u of an earlier DFM ended in an error, so no run begins until start or "
                            "next-run: %s",
                            last.run, last.reasons.text[0]);
}

void run_control_record_end(struct run_control *c)
{
        if (!c)
                return;
        run_state_record_end(c->node, &c->view);
        /* An operator has already started the run after this one. */
        if (c->next_is_ready)
                c->view.has_failed = false;
        else if (c->view.has_failed || c->node->number_is_fixed)
                c->view.is_held = true;
}

/* Maximum wait for a client, which may get little processor time. */
#define LINGER_NS (5 * NS_PER_S)
#define LINGER_LOOK_NS (10 * NS_PER_MS)

void run_control_linger(struct run_control *c)
{
        uint64_t now_ns = clock_now_ns(), until_ns = now_ns + LINGER_NS;

        /* No request was read after the last turn, and writing the report of the run may have taken long. */
        if (!c || !is_awaited(c, c->turn_ns))
                return;
        c->view.is_over = true;
        for (; c->n_waiting > 0 && now_ns < until_ns; now_ns = clock_now_ns()) {
                run_mailbox_turn(c->mailbox, follow, &(struct following){c, now_ns});
                if (c->n_waiting > 0)
                        nanosleep(&(struct timespec){.tv_nsec = (long)LINGER_LOOK_NS}, NULL);
        }
}

/* ---- Opening and closing ---- */

static int open_local(struct run_control *c, const char *path, bool check_only)
{
        int r = socket_open_local(check_only ? NULL : &c->local, path, "control.listen");

        /* The owner and the group may connect; the directory may restrict them further. */
        if (r >= 0 && !check_only && chmod(path, 0660) < 0)
                return log_error_errno(errno, "control.listen: %s: %m", path);
        return r;
}

/* Under systemd, a DFM without its own Unix socket accepts commands at a socket in the directory of its unit.
 * So an operator on its machine needs neither a key nor a token. Failures only cause warnings, because this
 * socket was not configured. */
static void open_unit_socket(struct run_control *c)
{
        const char *folder = getenv("RUNTIME_DIRECTORY");
        char path[sizeof c->local.path];
        struct error e = {};
        int r;

        if (!folder || !folder[0] || getenv(NODE_STATS_ENV))
                return;
        r = snprintf(path, sizeof path, "%.*s/" UNIT_SOCKET, (int)strcspn(folder, ":"), folder);
        r = r < (int)sizeof path ? local_listener_open(&c->local, path, &e) : -ENAMETOOLONG;
        if (r < 0) {
                c->local.fd = -1;
                log_warning_errno(r, "no run control at " UNIX_PREFIX "%s: %s", path,
                                  e.message[0] ? e.message : "path is too long");
        } else if (chmod(path, 0660) < 0)
                log_warning_errno(errno, UNIX_PREFIX "%s: only its owner can use it: %m", path);
}

static int open_listener(struct run_control *c, bool check_only)
{
        const struct scenario *s = c->node->scenario;
        char place[SCENARIO_TEXT_MAX];
        struct net_address local;

        if (s->control.kind != CONTROL_UNIX && !check_only)
                open_unit_socket(c);
        if (s->control.kind == CONTROL_NONE)
                return 0;
        if (!scenario_control_place(s, place) ||
            (s->control.kind == CONTROL_TCP && net_address_parse_with_port(&local, place) < 0))
                return log_error_errno(EINVAL, "control.listen: \"%s\" is not an address of this machine",
                                       s->control.listen);
        if (s->control.kind == CONTROL_UNIX)
                return open_local(c, place + strlen(UNIX_PREFIX), check_only);
        c->listener = socket_open_listener(&local, 0, PURPOSE);
        return c->listener;
}

static int read_token(struct run_control *c)
{
        const char *path = c->node->scenario->control.token_file;
        struct error e = {};
        struct stat st;
        int r;

        if (!path[0])
                return 0;
        r = token_file_read(path, c->token, &e);
        if (r < 0) {
                log_error("control.token-file: %s", e.message);
                return -EINVAL;
        }
        if (stat(path, &st) >= 0 && st.st_mode & S_IROTH)
                log_warning("control.token-file: all users of this machine can read %s; to leave it to its "
                            "owner, run: chmod 600 %s",
                            path, path);
        return 0;
}

static void ready(void *ctx, uint32_t events)
{
        (void)ctx;
        (void)events; /* run_control_turn() reads the mailbox */
}

static void answer(void *ctx, const struct http_request *request, struct http_reply *ret)
{
        const struct run_control *c = ctx;

        if (strcmp(request->path, RUN_HTTP_PATH) == 0 || strcmp(request->path, RUN_HTTP_LIST_PATH) == 0) {
                run_http_answer(&c->http, request, ret, false);
                return;
        }
        ret->status = 404;
        ret->content_type = "text/plain; charset=utf-8";
        ret->text = strdup("not found; run control is at /control\n");
        ret->text_bytes = ret->text ? strlen(ret->text) : 0;
}

static int serve_at(struct run_control *c, int listener, struct http_server **ret)
{
        struct node *n = c->node;
        struct http_config config = {
                .listener = listener,
                .answer = answer,
                .ctx = c,
                .body_max_bytes = RUN_HTTP_BODY_MAX_BYTES,
                .post_path = RUN_HTTP_PATH,
                .cpus = n->self->cpus + 1,
                .n_cpus = n->self->n_cpus > 1 ? n->self->n_cpus - 1 : 0,
        };
        struct error e = {};
        int r = listener >= 0 ? http_server_new(ret, &config, &e) : 0;

        return r < 0 ? log_error_errno(r, "control.listen: %s", e.message) : 0;
}

static int serve(struct run_control *c)
{
        int r;

        c->io = (struct loop_io){
                .fd = run_mailbox_fd(c->mailbox), .events = EPOLLIN, .ready = ready, .ctx = c};
        r = loop_add(c->node->loop, &c->io);
        if (r < 0)
                return log_error_errno(r, "control.listen: %m");
        r = serve_at(c, c->listener, &c->server);
        return r < 0 ? r : serve_at(c, c->local.fd, &c->local_server);
}

int run_control_open(struct run_control **ret, struct node *n)
{
        char record[RUN_RECORD_PATH_MAX];
        struct run_control *c;
        bool has_listener;
        int r;

        *ret = NULL;
        if (n->self->role != ROLE_DFM ||
            (n->scenario->control.kind == CONTROL_NONE && !getenv("RUNTIME_DIRECTORY")))
                return 0;
        c = calloc(1, sizeof *c);
        if (!c)
                return log_error_errno(ENOMEM, "control.listen: %m");
        c->node = n;
        c->listener = c->local.fd = -1;
        run_state_copy_init(&c->copy);
        c->view.is_held = waits_for_start(c);
        r = run_mailbox_new(&c->mailbox);
        if (r < 0)
                log_error_errno(r, "control.listen: %m");
        else
                r = read_token(c);
        c->http.scenario = n->scenario;
        c->http.stats = n->stats;
        c->http.mailbox = c->mailbox;
        c->http.copy = &c->copy;
        c->http.token = c->token;
        if (!getenv(NODE_STATS_ENV)) {
                run_record_path(n->self->address, (unsigned)n->scenario->network.control_port, record);
                run_list_path(record, c->http.runs);
        }
        if (r >= 0)
                r = open_listener(c, n->check_only);
        has_listener = c->listener >= 0 || c->local.fd >= 0;
        if (r >= 0 && has_listener && !n->check_only)
                r = serve(c);
        if (r < 0 || !has_listener || n->check_only) {
                run_control_close(c);
                return MIN(r, 0);
        }
        *ret = c;
        return 0;
}

void run_control_shut(struct run_control *c)
{
        if (c)
                run_mailbox_shut(c->mailbox);
}

struct run_control *run_control_close(struct run_control *c)
{
        if (!c)
                return NULL;
        if (c->mailbox)
                run_mailbox_shut(c->mailbox);
        http_server_free(c->server);
        http_server_free(c->local_server);
        if (c->listener >= 0)
                close(c->listener);
        local_listener_close(&c->local);
        run_mailbox_free(c->mailbox);
        run_state_copy_fini(&c->copy);
        free(c);
        return NULL;
}
