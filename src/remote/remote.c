/* The connection to the command server: who is there, orders out, answers in. What is ordered is in
 * remote_run.c. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "evb/base/log.h"
#include "evb/base/strbuf.h"
#include "evb/base/util.h"
#include "remote_internal.h"

#define CONNECT_NS (5 * NS_PER_S)
#define GATHER_NS (10 * NS_PER_S)
#define TICK_NS (100 * NS_PER_MS)
#define ALIVE_NS (5 * NS_PER_S)

size_t remote_node(const struct remote *r, const char *name)
{
        for (size_t i = 0; name && i < r->scenario->n_nodes; i++) {
                if (strcmp(r->scenario->nodes[i].name, name) == 0)
                        return i;
        }
        return SIZE_MAX;
}

static void set_member(struct remote *r, const char *name, bool there)
{
        size_t i = remote_node(r, name);

        if (i == SIZE_MAX)
                return;
        r->stands_by[i] = there;
        r->given_up[i] &= !there;
        if (!there && r->left)
                r->left(r->ctx, i);
}

static void take_answer(struct remote *r, const char *from, const json_t *answer)
{
        size_t i = remote_node(r, from);

        if (i < SIZE_MAX && r->answered && json_integer_value(json_object_get(answer, "job")) == r->job)
                r->answered(r->ctx, i, answer);
}

static void heard(void *ctx, json_t *message)
{
        struct remote *r = ctx;
        const json_t *members = json_object_get(message, "members"), *name,
                     *refused = json_object_get(message, "refused");
        char text[TALK_TEXT_MAX_BYTES];
        size_t i;

        json_array_foreach(members, i, name) set_member(r, json_string_value(name), true);
        r->introduced |= members != NULL;
        r->refused |= refused != NULL;
        if (refused)
                log_error("the DFM refused: %s", json_connection_text(refused, text, sizeof text));
        set_member(r, json_string_value(json_object_get(message, "joined")), true);
        set_member(r, json_string_value(json_object_get(message, "left")), false);
        take_answer(r, json_string_value(json_object_get(message, "from")),
                    json_object_get(message, "answer"));
}

static void ended(void *ctx, int error)
{
        struct remote *r = ctx;

        r->lost = true;
        /* The connecting code reports a connection that was never made. */
        if (r->introduced)
                log_error_errno(error, "connection to the DFM: %m");
}

/* The DFM disconnects a silent evb lab while nothing runs. */
static void say_alive(struct remote *r)
{
        uint64_t now_ns = clock_now_ns();

        if (!r->introduced || now_ns < r->alive_ns)
                return;
        json_connection_send(&r->connection, json_pack("{s:b}", "alive", 1));
        r->alive_ns = now_ns + MIN(ALIVE_NS, r->scenario->standby.idle_timeout_ns / 4);
}

int remote_wait(struct remote *r, bool (*done)(void *ctx), void *ctx, uint64_t deadline_ns)
{
        int error = 0;

        while (!done(ctx)) {
                if (r->lost)
                        return -EPIPE;
                if (signals_are_waiting())
                        return -EINTR;
                if (clock_now_ns() >= deadline_ns)
                        return -ETIMEDOUT;
                say_alive(r);
                error = loop_wait(r->loop, MIN(deadline_ns, clock_now_ns() + TICK_NS));
                if (error < 0)
                        return error;
        }
        return 0;
}

void remote_order(struct remote *r, const size_t *nodes, size_t n, json_t *order)
{
        json_t *to = json_array();

        for (size_t i = 0; i < n; i++)
                json_array_append_new(to, json_string(r->scenario->nodes[nodes[i]].name));
        json_connection_send(&r->connection, json_pack("{s:o, s:o}", "to", to, "order", order));
}

static bool is_introduced(void *ctx)
{
        return ((const struct remote *)ctx)->introduced;
}

static int introduce(struct remote *r, const struct net_address *to)
{
        int error = tcp_connect(NULL, to, 0);

        if (error >= 0)
                error = json_connection_open(&r->connection, r->loop, error, true);
        if (error < 0)
                return error;
        json_connection_send(&r->connection, json_pack("{s:{s:s}}", "command", "version", EVB_VERSION));
        error = remote_wait(r, is_introduced, r, clock_now_ns() + CONNECT_NS);
        return r->refused ? -EACCES : error;
}

/* Retries for a while if the DFM may be about to start. */
static int connect_to_server(struct remote *r, uint64_t until_ns)
{
        const struct scenario_node *dfm = scenario_node_of(r->scenario, ROLE_DFM, 0);
        struct net_address to;
        int error = net_address_parse(&to, dfm->address, (uint16_t)r->scenario->network.order_port);

        if (error < 0)
                return log_error_errno(error, "%s: node %s has no address, which evb lab --scenario needs",
                                       r->scenario->path, dfm->name);
        while ((error = introduce(r, &to)) < 0) {
                if (r->refused)
                        return error;
                if (clock_now_ns() >= until_ns || signals_are_waiting())
                        return log_error_errno(
                                error,
                                "no DFM takes commands at %s, port %llu; start it by evb dfm --config FILE"
                                " --node "
                                "%s --standby",
                                dfm->address, (unsigned long long)r->scenario->network.order_port, dfm->name);
                json_connection_close(&r->connection);
                r->lost = false;
                nanosleep(&(struct timespec){.tv_nsec = TICK_NS}, NULL);
        }
        return 0;
}

struct gathering {
        const struct remote *remote;
        const size_t *nodes;
        size_t n;
};

/* Or a node is missing that an earlier point waited for in vain: the next point need not wait as long
 * again. */
static bool all_there(void *ctx)
{
        const struct gathering *g = ctx;
        bool all = true, hopeless = false;

        for (size_t i = 0; i < g->n; i++) {
                all &= g->remote->stands_by[g->nodes[i]];
                hopeless |= g->remote->given_up[g->nodes[i]];
        }
        return all || hopeless;
}

/* The DFM may have restarted: its lost connection must not cost the remaining points. */
static int connect_again(struct remote *r)
{
        uint64_t until_ns = clock_now_ns() + (r->server_given_up ? 0 : GATHER_NS);
        int error;

        if (!r->lost)
                return 0;
        json_connection_close(&r->connection);
        r->lost = r->introduced = r->refused = false;
        memset(r->stands_by, 0, r->scenario->n_nodes * sizeof *r->stands_by);
        error = connect_to_server(r, until_ns);
        r->server_given_up = error < 0;
        return error;
}

int remote_wait_for(struct remote *r, const size_t *nodes, size_t n)
{
        struct gathering g = {r, nodes, n};
        int again = connect_again(r),
            error = again < 0 ? again : remote_wait(r, all_there, &g, clock_now_ns() + GATHER_NS);
        const char *still = error == 0 ? "still " : "";
        char names[400] = "";
        struct strbuf b = strbuf_init(names, sizeof names);

        if (again < 0 || (error < 0 && error != -ETIMEDOUT))
                return error;
        for (size_t i = 0; i < n; i++) {
                if (r->stands_by[nodes[i]])
                        continue;
                r->given_up[nodes[i]] = true;
                strbuf_add(&b, "%s%s", b.length > 0 ? ", " : "", r->scenario->nodes[nodes[i]].name);
        }
        if (b.length == 0)
                return 0;
        return log_error_errno(
                ENOTCONN, "%snot on standby: %s; start each by evb ROLE --config FILE --node NAME --standby",
                still, names);
}

int remote_new(struct remote **ret, const struct scenario *s, const char *const *settings, size_t n)
{
        struct remote *r = calloc(1, sizeof *r);
        int error = r ? 0 : -ENOMEM;

        if (error >= 0) {
                /* No number is used twice: what a node still tells of an evb lab before us is nothing of
                 * ours. */
                *r = (struct remote){.scenario = s,
                                     .settings = settings,
                                     .n_settings = n,
                                     .job = (json_int_t)clock_utc_ns(),
                                     .connection = {.heard = heard, .ended = ended, .ctx = r}};
                r->stands_by = calloc(s->n_nodes, sizeof *r->stands_by);
                r->given_up = calloc(s->n_nodes, sizeof *r->given_up);
                error = r->stands_by && r->given_up ? loop_new(&r->loop) : -ENOMEM;
        }
        if (error >= 0)
                error = connect_to_server(r, 0);
        if (error < 0) {
                remote_free(r);
                return error;
        }
        *ret = r;
        return 0;
}

struct remote *remote_free(struct remote *r)
{
        if (!r)
                return NULL;
        json_connection_close(&r->connection);
        loop_free(r->loop);
        free(r->stands_by);
        free(r->given_up);
        free(r);
        return NULL;
}
