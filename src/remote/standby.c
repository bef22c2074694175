/* Waiting for orders: the connection to the DFM, and signals. What is ordered is done in standby_job.c. */
#include "evb/remote/standby.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "evb/base/log.h"
#include "evb/base/random.h"
#include "evb/base/util.h"
#include "evb/node/node.h"
#include "evb/sys/notify.h"
#include "command_server.h"
#include "json_connection.h"
#include "standby_job.h"

#define STATUS_NS NS_PER_S

struct standby {
        const struct standby_options *options;
        const struct scenario_node *self;
        struct loop *loop;
        struct command_server *server; /* of the DFM alone */
        struct json_connection connection;
        struct tcp_backoff backoff;
        uint64_t connect_ns; /* when to try next; NEVER_NS while connected */
        bool welcome;
        char refused[200]; /* the last logged reason; "": accepted since then */
        struct job job;
        unsigned signals, hangups;
};

static void answer(void *ctx, json_t *what)
{
        struct standby *s = ctx;

        json_connection_send(&s->connection, json_pack("{s:o}", "answer", what));
}

/* A refused node retries every few seconds: one line for each reason. */
static void tell_refusal(struct standby *s, const json_t *refused)
{
        char why[TALK_TEXT_MAX_BYTES];

        (void)json_connection_text(refused, why, sizeof why);
        if (strncmp(s->refused, why, sizeof s->refused - 1) == 0)
                return;
        snprintf(s->refused, sizeof s->refused, "%.*s", (int)sizeof s->refused - 1, why);
        log_error("the DFM refused this node: %s", why);
}

static void heard(void *ctx, json_t *message)
{
        struct standby *s = ctx;
        const json_t *refused = json_object_get(message, "refused");

        if (json_object_get(message, "welcome")) {
                if (s->refused[0])
                        log_info("the DFM accepts this node now");
                s->refused[0] = '\0';
                s->welcome = true;
                tcp_backoff_reset(&s->backoff);
        } else if (refused)
                tell_refusal(s, refused);
        else if (json_object_get(message, "order"))
                job_order(&s->job, json_object_get(message, "order"), loop_now_ns(s->loop));
}

/* Who gave the order cannot be told any more. */
static void ended(void *ctx, int error)
{
        struct standby *s = ctx;
        uint64_t now_ns = clock_now_ns();

        if (s->backoff.failures == 0)
                log_warning_errno(error, "no connection to the DFM: %m");
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
                                       "node %s and the DFM need addresses to stand by: set them in their "
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
        json_connection_send(&s->connection, json_pack("{s:{s:s, s:s, s:I}}", "stand_by", "node",
                                                       s->self->name, "version", EVB_VERSION, "common_ground",
                                                       (json_int_t)command_server_common_ground(sc)));
        return 0;
}

static void tell_status(const struct standby *s)
{
        char text[160];

        if (s->server)
                snprintf(text, sizeof text, "standing by with %u nodes; %s",
                         command_server_members(s->server), job_status(&s->job));
        else
                snprintf(text, sizeof text, "%s; %s", s->welcome ? "standing by" : "no connection to the DFM",
                         job_status(&s->job));
        notify_status(text);
}

/* One signal lets a run end well, a second one does not. */
static bool is_over(struct standby *s, uint64_t now_ns)
{
        unsigned signals = loop_signals(s->loop);

        if (s->hangups < loop_hangups(s->loop)) {
                s->hangups = loop_hangups(s->loop);
                log_info(NODE_HANGUP_TEXT);
        }
        if (signals > 0 && s->signals == 0)
                notify_stopping("stopping");
        if (signals > 0)
                job_stop(&s->job, now_ns);
        s->signals = signals;
        return signals > 1 || (signals > 0 && !job_is_running(&s->job));
}

static int wait_for_orders(struct standby *s)
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
                tell_status(s);
                notify_watchdog();
                next_ns = now_ns + every_ns;
        }
        return r < 0 ? log_error_errno(r, "waiting for orders: %m") : 0;
}

static int standby_open(struct standby *s)
{
        int r = loop_new(&s->loop);

        if (r >= 0)
                r = loop_catch_signals(s->loop);
        if (r < 0)
                return log_error_errno(r, "event loop: %m");
        tcp_backoff_init(&s->backoff, clock_utc_ns() ^ (uint64_t)getpid());
        s->connection = (struct json_connection){.heard = heard, .ended = ended, .ctx = s};
        job_init(&s->job, s->options, s->self, s->loop, answer, s);
        return s->self->role == ROLE_DFM ? command_server_new(&s->server, s->options->scenario, s->loop) : 0;
}

int standby_run(const struct standby_options *options)
{
        struct standby s = {.options = options, .self = scenario_find(options->scenario, options->name)};
        int r = standby_open(&s);

        if (r >= 0) {
                notify_ready("standing by");
                log_info("standing by for the orders of evb lab");
                r = wait_for_orders(&s);
        }
        job_fini(&s.job);
        json_connection_close(&s.connection);
        command_server_free(s.server);
        loop_free(s.loop);
        /* No longer held: a later start may find the port free, or enough memory. */
        return r == -EINVAL ? 2 : r < 0 ? NODE_STATUS_AGAIN : 0;
}
