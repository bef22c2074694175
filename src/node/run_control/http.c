/* Reads requests to /control: the sender, its permission, and the command. Runs in the threads of HTTP
 * servers, and does not touch the core or other state of the event loop. */
#include "http.h"

#include <errno.h>
#include <jansson.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/log.h"
#include "base/strbuf.h"
#include "conf/address_list.h"
#include "net/http_server.h"
#include "net/key_file.h"

#define TYPE_JSON "application/json"
#define ERROR_MAX 700

static void answer_error(struct http_reply *ret, unsigned status, const char *text)
{
        json_t *o = json_pack("{s:s}", "error", text);

        if (!o)
                o = json_pack("{s:s}", "error", "the request is not valid UTF-8");
        ret->status = status;
        ret->content_type = TYPE_JSON;
        ret->text = o ? json_dumps(o, JSON_COMPACT) : NULL;
        ret->text_bytes = ret->text ? strlen(ret->text) : 0;
        json_decref(o);
}

/* Logs at a limited rate, because any machine on the network could cause this. */
static void refuse(const struct run_http *h, const struct http_request *request, struct http_reply *ret,
                   unsigned status, const char *why)
{
        char from[NET_ADDRESS_TEXT_MAX];

        atomic_fetch_add_explicit(&h->stats->control_refused, 1, memory_order_relaxed);
        net_address_format(request->from, from);
        log_limited(LOG_LEVEL_WARNING, NULL, "run control: refused a request from %s: %s", from, why);
        answer_error(ret, status, why);
}

static bool is_local(const struct http_request *request)
{
        return request->from->any.sa_family == AF_UNIX;
}

/* Whether the client is on this machine. A connection from an address of this machine must come from this
 * machine, because answers to this address would not leave it. */
static bool is_own_machine(const struct net_address *from)
{
        struct net_address plain;
        uint8_t bytes[16];

        if (from->any.sa_family != AF_INET && from->any.sa_family != AF_INET6)
                return false;
        net_address_to_v6(from, bytes);
        net_address_of_v6(&plain, bytes, 0);
        return net_address_device(&plain) > 0;
}

static bool is_allowed(const struct scenario *s, const struct net_address *from)
{
        const struct in6_addr *six = &from->v6.sin6_addr;

        if (from->any.sa_family != AF_INET && from->any.sa_family != AF_INET6)
                return false;
        if (from->any.sa_family == AF_INET)
                return scenario_list_has(s, s->network.clients, AF_INET, (const uint8_t *)&from->v4.sin_addr);
        if (IN6_IS_ADDR_V4MAPPED(six))
                return scenario_list_has(s, s->network.clients, AF_INET, six->s6_addr + 12);
        return scenario_list_has(s, s->network.clients, AF_INET6, six->s6_addr);
}

/* At control.listen, either the permissions of the Unix socket decide, or address and token do. False: `ret`
 * explains why. */
static bool may_control(const struct run_http *h, const struct http_request *request, struct http_reply *ret)
{
        if (is_local(request))
                return true;
        if (!is_allowed(h->scenario, request->from) && !is_own_machine(request->from)) {
                refuse(h, request, ret, 403, "this address may not control runs (network.clients)");
                return false;
        }
        if (h->token[0] && !token_equal(h->token, request->token)) {
                refuse(h, request, ret, 401,
                       request->token[0]
                               ? "wrong token (control.token-file)"
                               : "no token; expected that of control.token-file (evb ctl --token-file)");
                return false;
        }
        /* A foreign page in a browser on this machine can send this type only after a preflight request to
         * the server. */
        if (request->is_post && !h->token[0] &&
            strncasecmp(request->content_type, TYPE_JSON, strlen(TYPE_JSON)) != 0) {
                refuse(h, request, ret, 415, "wrong Content-Type; expected " TYPE_JSON);
                return false;
        }
        /* If the name of the page's server now resolves to this machine (DNS rebinding), the browser sends no
         * preflight request. */
        if (request->is_post && !h->token[0] && request->origin[0]) {
                refuse(h, request, ret, 403, "pages of browsers need a token (control.token-file)");
                return false;
        }
        return true;
}

/* At metrics.listen, any client may read the copy, and commands need the token from every address. */
static bool may_control_at_metrics(const struct run_http *h, const struct http_request *request,
                                   struct http_reply *ret)
{
        if (!request->is_post)
                return true;
        if (!h->token[0]) {
                refuse(h, request, ret, 403,
                       "metrics.listen takes commands only with control.token-file; use control.listen");
                return false;
        }
        if (token_equal(h->token, request->token))
                return true;
        refuse(h, request, ret, 401,
               request->token[0] ? "wrong token (control.token-file)"
                                 : "no token; expected that of control.token-file (evb ctl --token-file)");
        return false;
}

static bool read_metadata(struct run_request *r, const json_t *o, char *why)
{
        const char *name, *problem;
        json_t *value;

        if (!o)
                return true;
        if (!json_is_object(o)) {
                snprintf(why, ERROR_MAX, "\"metadata\" is not an object of names and texts");
                return false;
        }
        json_object_foreach((json_t *)o, name, value)
        {
                const char *text = json_string_value(value);

                problem = !text ? "not a text; expected a value in quotes"
                                : scenario_metadata_put(r->metadata, &r->n_metadata, name, text);
                if (!problem)
                        continue;
                snprintf(why, ERROR_MAX, "metadata.%.80s: %s", name, problem);
                return false;
        }
        return true;
}

static bool read_setting(struct run_request *r, const json_t *o, char *why)
{
        const char *key = json_string_value(json_object_get(o, "key")),
                   *value = json_string_value(json_object_get(o, "value"));

        if (!key || !value || strlen(key) >= sizeof r->key || strlen(value) >= sizeof r->value) {
                snprintf(why, ERROR_MAX, "set needs \"key\" and \"value\", both short texts");
                return false;
        }
        strcpy(r->key, key);
        strcpy(r->value, value);
        return true;
}

static bool read_command(struct run_request *r, const json_t *o, char *why)
{
        const char *name = json_string_value(json_object_get(o, "command"));

        r->is_command = true;
        r->waits = json_is_true(json_object_get(o, "wait"));
        r->command = name ? run_command_find(name) : RUN_COMMANDS;
        if (r->command == RUN_COMMANDS) {
                struct strbuf b = strbuf_init(why, ERROR_MAX);

                strbuf_add(&b, "%s%.60s%s; expected ", name ? "unknown command \"" : "no \"command",
                           name ?: "", "\"");
                for (enum run_command c = 0; c < RUN_COMMANDS; c++)
                        strbuf_add(&b, "%s%s",
                                   c == 0                 ? ""
                                   : c + 1 < RUN_COMMANDS ? ", "
                                                          : " or ",
                                   run_command_name(c));
                return false;
        }
        if (r->command == RUN_COMMAND_SET)
                return read_setting(r, o, why);
        if (r->command == RUN_COMMAND_START || r->command == RUN_COMMAND_NEXT_RUN)
                return read_metadata(r, json_object_get(o, "metadata"), why);
        return true;
}

/* The server limits the size of the body. False: `why` explains the error. */
static bool read_body(struct run_request *r, const struct http_request *request, char *why)
{
        json_error_t e;
        json_t *o = json_loadb(request->body, request->body_bytes, JSON_REJECT_DUPLICATES, &e);
        bool ok = json_is_object(o);

        if (ok)
                ok = read_command(r, o, why);
        else
                snprintf(why, ERROR_MAX, "the request is not a JSON object: %.160s",
                         o ? "it is of another type" : e.text);
        json_decref(o);
        return ok;
}

static void describe_sender(const struct http_request *request, char *text, size_t size_bytes)
{
        char from[NET_ADDRESS_TEXT_MAX];
        if (is_local(request))
                snprintf(text, size_bytes, "the Unix socket, user %u", http_client_user(request->connection));
        else
                snprintf(text, size_bytes, "%s", net_address_format(request->from, from));
}

static void answer_copy(const struct run_http *h, struct http_reply *ret)
{
        char *json = run_state_copy_json(h->copy);

        if (!json) {
                answer_error(ret, 503, "the DFM is starting");
                return;
        }
        ret->status = 200;
        ret->content_type = TYPE_JSON;
        ret->text = json;
        ret->text_bytes = strlen(json);
}

/* Whether the DFM is in the newest run of its list. */
static bool is_in_run(const struct run_http *h)
{
        switch (atomic_load_explicit(&h->state, memory_order_relaxed)) {
        case RUN_CONTROL_RESUMING:
        case RUN_CONTROL_RUNNING:
        case RUN_CONTROL_PAUSED:
        case RUN_CONTROL_DRAINING:
                return true;
        }
        return false;
}

/* Reads the file in the thread of the server, so the event loop is not delayed. */
static void answer_list(const struct run_http *h, struct http_reply *ret)
{
        char why[ERROR_MAX];
        int r;

        if (!h->runs[0]) {
                answer_error(ret, 409, "evb run keeps no list of runs; --json reports its run");
                return;
        }
        r = run_list_read(h->runs, is_in_run(h), &ret->text);

        if (r < 0) {
                snprintf(why, sizeof why, "cannot read %s: %s", h->runs,
                         r == -EINVAL ? "not a regular file" : strerror(-r));
                answer_error(ret, 500, why);
                return;
        }
        ret->status = 200;
        ret->content_type = TYPE_JSON;
        ret->text_bytes = strlen(ret->text);
}

void run_http_answer(const struct run_http *h, const struct http_request *request, struct http_reply *ret,
                     bool at_metrics)
{
        struct run_request r = {.status = 200, .connection = request->connection, .waits = request->waits};
        char why[ERROR_MAX];

        if (at_metrics ? !may_control_at_metrics(h, request, ret) : !may_control(h, request, ret))
                return;
        if (at_metrics && !request->is_post) {
                answer_copy(h, ret);
                return;
        }
        if (strcmp(request->path, RUN_HTTP_LIST_PATH) == 0) {
                answer_list(h, ret);
                return;
        }
        describe_sender(request, r.from, sizeof r.from);
        if (request->is_post && !read_body(&r, request, why)) {
                answer_error(ret, 400, why);
                return;
        }
        if (!run_mailbox_ask(h->mailbox, &r)) {
                answer_error(ret, 503,
                             request->is_post
                                     ? "the DFM does not answer, or ends; it does not follow the command"
                                     : "the DFM does not answer, or ends");
                return;
        }
        ret->status = r.status;
        ret->content_type = TYPE_JSON;
        ret->text = r.reply;
        ret->text_bytes = r.reply ? strlen(r.reply) : 0;
}

const char *run_http_state(const struct run_http *h)
{
        return run_state_name((enum run_control_state)atomic_load_explicit(&h->state, memory_order_relaxed));
}
