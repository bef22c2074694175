/* Connects to the command server, tracks the standby nodes, sends commands and dispatches answers.
 * coordinator_run.c and coordinator_flows.c make the commands. */
#include "remote/coordinator.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/log.h"
#include "base/strbuf.h"
#include "base/util.h"
#include "coordinator_internal.h"

#define CONNECT_NS (5 * NS_PER_S)
#define NODES_NS (10 * NS_PER_S)
#define TICK_NS (100 * NS_PER_MS)
#define ALIVE_NS (5 * NS_PER_S)

size_t coordinator_find_node(const struct coordinator *c, const char *name)
{
        for (size_t i = 0; name && i < c->scenario->n_nodes; i++) {
                if (strcmp(c->scenario->nodes[i].name, name) == 0)
                        return i;
        }
        return SIZE_MAX;
}

static void set_on_standby(struct coordinator *c, const char *name, bool on_standby)
{
        size_t i = coordinator_find_node(c, name);

        if (i == SIZE_MAX)
                return;
        c->on_standby[i] = on_standby;
        c->given_up[i] &= !on_standby;
        if (!on_standby && c->left)
                c->left(c->ctx, i);
}

static void take_answer(struct coordinator *c, const char *from, const json_t *answer)
{
        size_t i = coordinator_find_node(c, from);

        if (i < SIZE_MAX && c->answered && json_integer_value(json_object_get(answer, "job")) == c->job)
                c->answered(c->ctx, i, answer);
}

static void handle_message(void *ctx, json_t *message)
{
        struct coordinator *c = ctx;
        const json_t *nodes = json_object_get(message, "nodes"), *name,
                     *refused = json_object_get(message, "refused");
        char text[JSON_CONNECTION_TEXT_MAX_BYTES];
        size_t i;

        json_array_foreach(nodes, i, name) set_on_standby(c, json_string_value(name), true);
        c->introduced |= nodes != NULL;
        c->refused |= refused != NULL;
        if (refused)
                log_error("the DFM refused the connection: %s",
                          json_connection_text(refused, text, sizeof text));
        set_on_standby(c, json_string_value(json_object_get(message, "joined")), true);
        set_on_standby(c, json_string_value(json_object_get(message, "left")), false);
        take_answer(c, json_string_value(json_object_get(message, "from")),
                    json_object_get(message, "answer"));
}

static void ended(void *ctx, int error)
{
        struct coordinator *c = ctx;

        c->lost = true;
        /* connect_to_server() reports a connection that was never made. */
        if (c->introduced)
                log_error_errno(error, "connection to the DFM lost: %m");
}

/* The DFM disconnects a silent coordinator while nothing runs. */
static void send_alive(struct coordinator *c)
{
        uint64_t now_ns = clock_now_ns();

        if (!c->introduced || now_ns < c->alive_ns)
                return;
        json_connection_send(&c->connection, json_pack("{s:b}", "alive", 1));
        c->alive_ns = now_ns + MIN(ALIVE_NS, c->scenario->standby.idle_timeout_ns / 4);
}

int coordinator_wait(struct coordinator *c, bool (*done)(void *ctx), void *ctx, uint64_t deadline_ns)
{
        int error = 0;

        while (!done(ctx)) {
                if (c->lost)
                        return -EPIPE;
                if (signals_are_waiting())
                        return -EINTR;
                if (clock_now_ns() >= deadline_ns)
                        return -ETIMEDOUT;
                send_alive(c);
                error = loop_wait(c->loop, MIN(deadline_ns, clock_now_ns() + TICK_NS));
                if (error < 0)
                        return error;
        }
        return 0;
}

void coordinator_command(struct coordinator *c, const size_t *nodes, size_t n, json_t *command)
{
        json_t *to = json_array();

        for (size_t i = 0; i < n; i++)
                json_array_append_new(to, json_string(c->scenario->nodes[nodes[i]].name));
        json_connection_send(&c->connection, json_pack("{s:o, s:o}", "to", to, "command", command));
}

static bool is_introduced(void *ctx)
{
        return ((const struct coordinator *)ctx)->introduced;
}

static int connect_once(struct coordinator *c, const struct net_address *to)
{
        int error = tcp_connect(NULL, to, 0);

        if (error >= 0)
                error = json_connection_open(&c->connection, c->loop, error, true);
        if (error < 0)
                return error;
        json_connection_send(&c->connection, json_pack("{s:{s:s}}", "coordinator", "version", EVB_VERSION));
        error = coordinator_wait(c, is_introduced, c, clock_now_ns() + CONNECT_NS);
        return c->refused ? -EACCES : error;
}

/* Retries until the deadline: the DFM may be about to start. */
static int connect_to_server(struct coordinator *c, uint64_t until_ns)
{
        const struct scenario_node *dfm = scenario_node_of(c->scenario, ROLE_DFM, 0);
        struct net_address to;
        int error = net_address_parse(&to, dfm->address, (uint16_t)c->scenario->network.order_port);

        if (error < 0)
                return log_error_errno(error, "%s: node %s has no address; evb lab run --config needs one",
                                       c->scenario->path, dfm->name);
        while ((error = connect_once(c, &to)) < 0) {
                if (c->refused)
                        return error;
                if (clock_now_ns() >= until_ns || signals_are_waiting())
                        return log_error_errno(
                                error,
                                "no command server at %s, port %llu: %m; start it with evb dfm --config FILE "
                                "--node %s --standby",
                                dfm->address, (unsigned long long)c->scenario->network.order_port, dfm->name);
                json_connection_close(&c->connection);
                c->lost = false;
                nanosleep(&(struct timespec){.tv_nsec = TICK_NS}, NULL);
        }
        return 0;
}

struct node_wait {
        const struct coordinator *coordinator;
        const size_t *nodes;
        size_t n;
};

/* Also returns true if an earlier wait for one of the nodes timed out: later points do not wait for it again.
 */
static bool all_on_standby(void *ctx)
{
        const struct node_wait *w = ctx;
        bool all = true, given_up = false;

        for (size_t i = 0; i < w->n; i++) {
                all &= w->coordinator->on_standby[w->nodes[i]];
                given_up |= w->coordinator->given_up[w->nodes[i]];
        }
        return all || given_up;
}

/* The DFM may have restarted; the remaining points need the connection. */
static int reconnect(struct coordinator *c)
{
        uint64_t until_ns = clock_now_ns() + (c->server_given_up ? 0 : NODES_NS);
        int error;

        if (!c->lost)
                return 0;
        json_connection_close(&c->connection);
        c->lost = c->introduced = c->refused = false;
        memset(c->on_standby, 0, c->scenario->n_nodes * sizeof *c->on_standby);
        error = connect_to_server(c, until_ns);
        c->server_given_up = error < 0;
        return error;
}

int coordinator_wait_for_nodes(struct coordinator *c, const size_t *nodes, size_t n)
{
        struct node_wait w = {c, nodes, n};
        int connected = reconnect(c),
            error = connected < 0 ? connected
                                  : coordinator_wait(c, all_on_standby, &w, clock_now_ns() + NODES_NS);
        const char *still = error == 0 ? "still " : "";
        char names[400] = "";
        struct strbuf b = strbuf_init(names, sizeof names);

        if (connected < 0 || (error < 0 && error != -ETIMEDOUT))
                return error;
        for (size_t i = 0; i < n; i++) {
                if (c->on_standby[nodes[i]])
                        continue;
                c->given_up[nodes[i]] = true;
                strbuf_add(&b, "%s%s", b.length > 0 ? ", " : "", c->scenario->nodes[nodes[i]].name);
        }
        if (b.length == 0)
                return 0;
        return log_error_errno(
                ENOTCONN,
                "%snot on standby: %s; start each with evb ROLE --config FILE --node NAME --standby", still,
                names);
}

int coordinator_new(struct coordinator **ret, const struct scenario *s, const char *const *settings, size_t n)
{
        struct coordinator *c = calloc(1, sizeof *c);
        int error = c ? 0 : -ENOMEM;

        if (error >= 0) {
                /* Job numbers are unique, so a late answer to an earlier evb lab matches no job. */
                *c = (struct coordinator){
                        .scenario = s,
                        .settings = settings,
                        .n_settings = n,
                        .job = (json_int_t)clock_utc_ns(),
                        .connection = {.received = handle_message, .ended = ended, .ctx = c}};
                c->on_standby = calloc(s->n_nodes, sizeof *c->on_standby);
                c->given_up = calloc(s->n_nodes, sizeof *c->given_up);
                error = c->on_standby && c->given_up ? loop_new(&c->loop) : -ENOMEM;
        }
        if (error >= 0)
                error = command_key_read(&c->key, s);
        if (error >= 0) {
                c->connection.key = command_key_get(&c->key);
                error = connect_to_server(c, 0);
        }
        if (error < 0) {
                coordinator_free(c);
                return error;
        }
        *ret = c;
        return 0;
}

struct coordinator *coordinator_free(struct coordinator *c)
{
        if (!c)
                return NULL;
        json_connection_close(&c->connection);
        loop_free(c->loop);
        free(c->on_standby);
        free(c->given_up);
        free(c);
        return NULL;
}
