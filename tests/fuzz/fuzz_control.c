/* Requests of run control: the body of a command, and the Accept header of a scrape. The first byte selects
 * who asks and where. No event loop takes the requests, so that one that is well-formed gets 503. */
#include <arpa/inet.h>
#include <assert.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "base/log.h"
#include "base/util.h"
#include "net/http_server.h"
#include "fuzz.h"
#include "node/metrics/openmetrics.h"
#include "node/run_control/http.h"

static struct run_http *run_http(void)
{
        static struct scenario scenario;
        static struct node_stats stats;
        static struct run_http http = {.scenario = &scenario, .stats = &stats, .token = ""};

        if (!http.mailbox) {
                log_set_level(LOG_LEVEL_ERROR);
                assert(run_mailbox_new(&http.mailbox) == 0);
                run_mailbox_shut(http.mailbox);
        }
        return &http;
}

static void check_reply(const struct http_reply *reply)
{
        json_auto_t *o = json_loadb(reply->text, reply->text_bytes, 0, NULL);

        assert(reply->status == 400 || reply->status == 403 || reply->status == 503);
        assert(json_is_string(json_object_get(o, "error")));
}

bool fuzz_accepts(const uint8_t *bytes, size_t size_bytes)
{
        const struct net_address local = {.any.sa_family = AF_UNIX},
                                 remote = {.v4 = {.sin_family = AF_INET,
                                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)}};
        size_t n = size_bytes > 0 ? size_bytes - 1 : 0;
        _cleanup_free_ char *body = malloc(n + 1);
        struct http_reply reply = {.status = 200};
        struct http_request request = {.path = "/control",
                                       .accept = "",
                                       .body = body,
                                       .body_bytes = n,
                                       .content_type = "application/json",
                                       .origin = "",
                                       .token = "",
                                       .is_post = true};

        if (size_bytes == 0 || n > RUN_HTTP_BODY_MAX_BYTES)
                return false;
        memcpy(body, bytes + 1, n);
        body[n] = '\0';
        (void)metrics_wants_open_metrics(body);
        request.from = bytes[0] & 1 ? &remote : &local;
        run_http_answer(run_http(), &request, &reply, bytes[0] & 2);
        check_reply(&reply);
        free(reply.text);
        return reply.status == 503;
}
