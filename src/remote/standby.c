/* Waits for commands: keeps the connection to the DFM and handles signals. standby_job.c executes them. */
#include "remote/standby.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/random.h"
#include "base/util.h"
#include "net/json_connection.h"
#include "node/node.h"
#include "sys/notify.h"
#include "command_key.h"
#include "command_server.h"
#include "standby_job.h"

#define STATUS_NS NS_PER_S

struct standby {
        const struct standby_options *options;
        const struct scenario_node *self;
        struct loop *loop;
        struct command_server *server; /* on the DFM's node only */
        struct command_key key;
        struct json_connection connection;
        struct tcp_backoff backoff;
        uint64_t connect_ns; /* when to try next; NEVER_NS while connected */
        bool welcome;
        char refused[200]; /* the last logged reason; "": accepted since then */
        struct job job;
        unsigned signals, hangups;
};

static void answer(void *ctx, json_t *message)
{
        struct standby *s = ctx;

        json_connection_send(&s->connection, json_pack("{s:o}", "answer", message));
}

/* A refused node retries every few seconds, so each reason is logged once. */
static void log_refusal(struct standby *s, const json_t *refused)
{
        char why[JSON_CONNECTION_TEXT_MAX_BYTES];

        (void)json_connection_text(refused, why, sizeof why);
        if (strncmp(s->refused, why, sizeof s->refused - 1) == 0)
                return;
        snprintf(s->refused, sizeof s->refused, "%.*s", (int)sizeof s->refused - 1, why);
        log_error("the DFM refused this node: %s", why);
}

/* Logs the first failure in a row. */
static void log_no_connection(struct standby *s, int error)
{
        char why[96];

        if (s->backoff.failures > 0)
                return;
        snprintf(why, sizeof why, "%s", strerror(abs(error)));
        why[0] = (char)tolower(why[0]);
        (void)log_with(LOG_LEVEL_WARNING, error, LOG_FIELDS(.id = LOG_ID_NOT_CONNECTED),
                       "no connection to the DFM (%s), retrying", why);
}

static void log_connection(struct standby *s)
{
        if (s->refused[0])
                log_info("the DFM accepts this node now");
        else
                log_id(LOG_LEVEL_INFO, LOG_ID_CONNECTED, "connected to the DFM");
}

static void handle_message(void *ctx, json_t *message)
{
        struct standby *s = ctx;
        const json_t *refused = json_object_get(message, "refused");

        if (json_object_get(message, "welcome")) {
                log_connection(s);
                s->refused[0] = '\0';
                s->welcome = true;
                tcp_backoff_reset(&s->backoff);
        } else if (refused)
                log_refusal(s, refused);
        else if (json_object_get(message, "command"))
                job_command(&s->job, json_object_get(message, "command"), loop_now_ns(s->loop));
}

/* Stops the job: its result can no longer be sent. */
static void ended(void *ctx, int error)
{
        struct standby *s = ctx;
        uint64_t now_ns = clock_now_ns();

        log_no_connection(s, error);
        s->welcome = false;
        json_connection_close(&s->connection);
        job_stop(&s->job, now_ns);
        s->connect_ns = now_ns + tcp_backoff_next_ns(&s->backoff);
}

static int connect_to_dfm(struct standby *s)
{
        const struct scenario *sc = s->options->scenario;
        struct net_address from, to;
        int r = net_address_parse(&from, s->self->address, 0);

        if (r >= 0)
                r = net_address_parse(&to, scenario_node_of(sc, ROLE_DFM, 0)->address,
                                      (uint16_t)sc->network.order_port);
        if (r < 0)
                return log_error_errno(r,
                                       "node %s and the DFM need addresses for standby; set them in their "
                                       "[node NAME] sections",
                                       s->self->name);
        s->connect_ns = NEVER_NS;
        r = tcp_connect(&from, &to, 0);
        if (r >= 0)
                r = json_connection_open(&s->connection, s->loop, r, true);
        if (r < 0) {
                ended(s, r);
                return 0;
        }
        json_connection_send(&s->connection,
                             json_pack("{s:{s:s, s:s, s:I}}", "standby", "node", s->self->name, "version",
                                       EVB_VERSION, "digest", (json_int_t)command_server_digest(sc)));
        return 0;
}

static void notify_of_status(const struct standby *s)
{
        unsigned nodes = s->server ? command_server_nodes(s->server) : 0;
        char text[160];

        if (s->server)
                snprintf(text, sizeof text, "on standby with %u node%s; %s", nodes, nodes == 1 ? "" : "s",
                         job_status(&s->job));
        else
                snprintf(text, sizeof text, "%s; %s", s->welcome ? "on standby" : "not connected to the DFM",
                         job_status(&s->job));
        notify_status(text);
}

/* The first signal lets a run drain, the second one does not. */
static bool is_over(struct standby *s, uint64_t now_ns)
{
        unsigned signals = loop_signals(s->loop);
        char text[LOOP_SIGNAL_TEXT_MAX];

        if (s->hangups < loop_hangups(s->loop)) {
                s->hangups = loop_hangups(s->loop);
                log_info("SIGHUP ignored: a standby node does not reload its scenario; restart it to use "
                         "another "
                         "one");
        }
        if (signals > s->signals)
                log_id(LOG_LEVEL_INFO, LOG_ID_STOPPED, "stopped by %s", loop_describe_signal(s->loop, text));
        if (signals > 0 && s->signals == 0)
                notify_stopping("stopping");
        if (signals > 0)
                job_stop(&s->job, now_ns);
        s->signals = signals;
        return signals > 1 || (signals > 0 && !job_is_running(&s->job));
}

static int wait_for_commands(struct standby *s)
{
        uint64_t watchdog_every_ns = notify_watchdog_ns(), next_ns = 0, now_ns = clock_now_ns();
        uint64_t every_ns = MIN((uint64_t)STATUS_NS, watchdog_every_ns);
        int r = 0;

        while (r >= 0 && !is_over(s, now_ns)) {
                if (now_ns >= s->connect_ns)
                        r = connect_to_dfm(s);
                if (r < 0)
                        return r;
                r = loop_wait(s->loop, MIN(MIN(s->connect_ns, next_ns), job_deadline_ns(&s->job)));
                now_ns = loop_now_ns(s->loop);
                job_turn(&s->job, now_ns);
                if (s->server)
                        command_server_turn(s->server, now_ns);
                if (now_ns < next_ns)
                        continue;
                notify_of_status(s);
                log_flush();
                notify_watchdog();
                next_ns = now_ns + every_ns;
        }
        return r < 0 ? log_error_errno(r, "cannot wait for commands: %m") : 0;
}

static int standby_open(struct standby *s)
{
        int r = loop_new(&s->loop);

        if (r >= 0)
                r = loop_catch_signals(s->loop);
        if (r < 0)
                return log_error_errno(r, "cannot make the event loop: %m");
        tcp_backoff_init(&s->backoff, clock_utc_ns() ^ (uint64_t)getpid());
        r = command_key_read(&s->key, s->options->scenario);
        s->connection = (struct json_connection){
                .received = handle_message, .ended = ended, .ctx = s, .key = command_key_get(&s->key)};
        job_init(&s->job, s->options, s->self, s->loop, answer, s);
        if (r < 0)
                return r;
        return s->self->role == ROLE_DFM ? command_server_new(&s->server, s->options->scenario, s->loop) : 0;
}

int standby_run(const struct standby_options *options)
{
        struct standby s = {.options = options, .self = scenario_find(options->scenario, options->name)};
        int r = standby_open(&s);

        if (r >= 0) {
                notify_ready("on standby");
                log_info("on standby for commands of evb lab");
                r = wait_for_commands(&s);
        }
        job_fini(&s.job);
        json_connection_close(&s.connection);
        command_server_free(s.server);
        loop_free(s.loop);
        /* A later start may find the port free, or enough memory. */
        return r == -EINVAL ? 2 : r < 0 ? NODE_STATUS_AGAIN : 0;
}
