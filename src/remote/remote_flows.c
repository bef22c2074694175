/* Streams between machines whose nodes stand by: each is told its ends, when to go and when to stop, and
 * tells what they counted. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "evb/base/log.h"
#include "evb/base/util.h"
#include "evb/launch/counters_json.h"
#include "evb/traffic/flow_phases.h"
#include "remote_internal.h"

struct player {
        size_t node; /* in the remote's scenario */
        struct flow_part parts[FLOW_ENDS_MAX];
        unsigned n_parts;
        bool shapes;
        enum reached { NOTHING, READY, QUIET, ENDED } reached;
};

struct play {
        struct remote *remote;
        struct player players[FLOW_ENDS_MAX];
        size_t nodes[FLOW_ENDS_MAX], n;
        struct flow_result *results;
        enum reached awaited;
        int error;
};

static struct player *player_of(struct play *p, size_t node)
{
        for (size_t i = 0; i < p->n; i++) {
                if (p->players[i].node == node)
                        return &p->players[i];
        }
        return NULL;
}

static int add_part(struct play *p, const struct scenario_node *n, const struct flow_part *part)
{
        size_t node = remote_node(p->remote, n->name);
        struct player *who = player_of(p, node);

        if (node == SIZE_MAX || (!who && p->n == FLOW_ENDS_MAX))
                return -EINVAL;
        if (!who) {
                who = &p->players[p->n];
                who->node = p->nodes[p->n++] = node;
        }
        who->parts[who->n_parts++] = *part;
        return 0;
}

static int cast(struct play *p, const struct flow *flows, unsigned n)
{
        struct flow_part parts[FLOW_RECEIVERS_MAX + 2];
        int r = 0;

        for (unsigned i = 0; r >= 0 && i < n; i++) {
                unsigned n_parts = flow_parts(&flows[i], i, parts);

                for (unsigned k = 0; r >= 0 && k < n_parts; k++)
                        r = add_part(
                                p, parts[k].role == FLOW_SENDER ? flows[i].from : flows[i].to[parts[k].which],
                                &parts[k]);
        }
        return r;
}

/* Ends come in the order in which they were given. */
static uint64_t count(const json_t *o, const char *name)
{
        json_int_t v = json_integer_value(json_object_get(o, name));

        return v > 0 ? (uint64_t)v : 0;
}

static int take_ends(struct play *p, const struct player *who, const json_t *answer)
{
        const json_t *ends = json_object_get(answer, "ends");

        for (unsigned i = 0; i < who->n_parts; i++) {
                const json_t *e = json_array_get(ends, i), *gaps = json_object_get(e, "gaps_ns");
                struct histogram shares;
                struct flow_end end = {
                        .messages = count(e, "messages"),
                        .bytes = count(e, "bytes"),
                        .socket_drops = count(e, "socket_drops"),
                };

                if (!e || (gaps && histogram_from_json(&end.gaps_ns, gaps) < 0) ||
                    histogram_from_json(&shares, json_object_get(e, "cpu_shares")) < 0)
                        return -EBADMSG;
                flow_result_add(&p->results[who->parts[i].flow], &who->parts[i], &end,
                                json_number_value(json_object_get(e, "cpu_seconds")), &shares);
        }
        p->results[who->parts[0].flow].source_drops += count(answer, "source_drops");
        p->results[who->parts[0].flow].source_drops_unknown |=
                who->shapes && !json_is_integer(json_object_get(answer, "source_drops"));
        return 0;
}

static void answered(void *ctx, size_t node, const json_t *answer)
{
        struct play *p = ctx;
        struct player *who = player_of(p, node);
        const char *state = json_string_value(json_object_get(answer, "state"));
        char why[TALK_TEXT_MAX_BYTES];

        if (!who || !state)
                return;
        if (strcmp(state, "ready") == 0)
                who->reached = MAX(who->reached, READY);
        else if (strcmp(state, "quiet") == 0)
                who->reached = MAX(who->reached, QUIET);
        else if (strcmp(state, "ended") == 0 && who->reached < ENDED) {
                int r = take_ends(p, who, answer);

                p->error = MIN(p->error, r);
                who->reached = ENDED;
        } else if (strcmp(state, "refused") == 0) {
                log_error("%s refused: %s", p->remote->scenario->nodes[node].name,
                          json_connection_text(json_object_get(answer, "why"), why, sizeof why));
                p->error = -ECANCELED;
                who->reached = ENDED;
        }
}

static void left(void *ctx, size_t node)
{
        struct play *p = ctx;

        if (!player_of(p, node))
                return;
        log_error("%s has gone in the middle of a measurement", p->remote->scenario->nodes[node].name);
        p->error = -ENOTCONN;
}

static void set(void *ctx, enum flow_state state)
{
        struct play *p = ctx;

        remote_order(
                p->remote, p->nodes, p->n,
                json_pack("{s:s, s:I, s:i}", "kind", "state", "job", p->remote->job, "state", (int)state));
}

static bool all_reached(void *ctx)
{
        const struct play *p = ctx;
        bool all = true;

        for (size_t i = 0; i < p->n; i++)
                all &= p->players[i].reached >= p->awaited;
        return all || p->error < 0;
}

/* A stopped or slow node says nothing; another node may have failed because of it. */
static void tell_late(const struct play *p)
{
        static const char *const awaited[] = {[READY] = "ready", [QUIET] = "quiet", [ENDED] = "at its end"};

        for (size_t i = 0; i < p->n; i++) {
                if (p->players[i].reached < p->awaited)
                        log_error("%s is not %s in time", p->remote->scenario->nodes[p->players[i].node].name,
                                  awaited[p->awaited]);
        }
}

static int wait_for(void *ctx, enum flow_state state, uint64_t deadline_ns)
{
        struct play *p = ctx;
        int r;

        p->awaited = state == FLOW_WAIT ? READY : state == FLOW_END ? ENDED : QUIET;
        r = remote_wait(p->remote, all_reached, p, deadline_ns);
        if (r == -ETIMEDOUT || p->error == -ECANCELED)
                tell_late(p);
        return p->error < 0 ? p->error : r;
}

static bool never(void *ctx)
{
        return ((const struct play *)ctx)->error < 0;
}

static void pass(void *ctx, uint64_t duration_ns)
{
        struct play *p = ctx;

        (void)remote_wait(p->remote, never, p, clock_now_ns() + duration_ns);
}

static json_t *shape_to_json(const struct flow_shape *s)
{
        json_t *to = json_array();

        for (unsigned i = 0; i < s->n_to; i++)
                json_array_append_new(to, json_string(s->to[i]));
        return json_pack("{s:I, s:I, s:I, s:I, s:i, s:i, s:o}", "rate_bps", (json_int_t)s->rate_bps,
                         "link_rate_bps", (json_int_t)s->link_rate_bps, "mtu_bytes", (json_int_t)s->mtu_bytes,
                         "switch_buffer_bytes", (json_int_t)s->switch_buffer_bytes, "control_port",
                         (int)s->control_port, "sources", (int)s->sources, "to", to);
}

static void give_parts(struct play *p, const struct flow_shape *shape)
{
        for (size_t i = 0; i < p->n; i++) {
                struct player *who = &p->players[i];
                json_t *ends = json_array(), *order;
                bool sends = false;

                for (unsigned k = 0; k < who->n_parts; k++) {
                        json_array_append_new(ends, flow_part_to_json(&who->parts[k]));
                        sends |= who->parts[k].role == FLOW_SENDER;
                }
                order = json_pack("{s:s, s:I, s:o}", "kind", "streams", "job", p->remote->job, "ends", ends);
                who->shapes = sends && shape->rate_bps > 0;
                if (who->shapes)
                        json_object_set_new(order, "shape", shape_to_json(shape));
                remote_order(p->remote, &who->node, 1, order);
        }
}

static int play(struct play *p, const struct flow *flows, unsigned n, const struct flow_shape *shape,
                double seconds)
{
        static const struct flow_players remote = {set, wait_for, pass};
        int r = cast(p, flows, n);

        if (r >= 0)
                r = remote_wait_for(p->remote, p->nodes, p->n);
        if (r < 0)
                return r;
        p->remote->job++;
        p->remote->answered = answered;
        p->remote->left = left;
        p->remote->ctx = p;
        give_parts(p, shape);
        r = flow_play(&remote, p, flows[0].kind, seconds);
        p->remote->answered = NULL;
        p->remote->left = NULL;
        if (r < 0)
                remote_order(p->remote, p->nodes, p->n, json_pack("{s:s}", "kind", "stop"));
        return r;
}

int remote_flows_run(struct remote *r, const struct flow *flows, unsigned n, const struct flow_shape *shape,
                     double seconds, struct flow_result *results)
{
        _cleanup_free_ struct play *p = calloc(1, sizeof *p);
        int error = p ? 0 : -ENOMEM;

        flow_init_results(results, n, flows[0].kind, seconds);
        if (error >= 0) {
                p->remote = r;
                p->results = results;
                error = play(p, flows, n, shape, seconds);
        }
        return error < 0 ? log_error_errno(error, "lab: a stream could not run: %m") : 0;
}
