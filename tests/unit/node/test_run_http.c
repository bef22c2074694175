/* Tests what run control answers at metrics.listen, where anybody may ask: the copy of the state, without a
 * word to the event loop, which does not run here. */
#include "../test.h"

#include <poll.h>

#include "net/address.h"
#include "net/http_server.h"
#include "node/run_control/http.h"

static struct {
        struct scenario scenario;
        struct node_stats stats;
        struct run_mailbox *mailbox;
        struct run_state_copy copy;
        struct run_http http;
        struct net_address from;
} t;

static int set_up(void **state)
{
        memset(&t, 0, sizeof t);
        run_state_copy_init(&t.copy);
        t.from.any.sa_family = AF_INET;
        t.http = (struct run_http){.scenario = &t.scenario, .stats = &t.stats, .copy = &t.copy, .token = ""};
        return run_mailbox_new(&t.mailbox) < 0 || !(t.http.mailbox = t.mailbox);
}

static int tear_down(void **state)
{
        run_mailbox_free(t.mailbox);
        run_state_copy_fini(&t.copy);
        return 0;
}

static bool event_loop_is_woken(void)
{
        struct pollfd p = {.fd = run_mailbox_fd(t.mailbox), .events = POLLIN};

        return poll(&p, 1, 0) != 0;
}

static void ask(unsigned expected_status, const char *expected_text)
{
        const struct http_request request = {.path = "/control",
                                             .accept = "",
                                             .from = &t.from,
                                             .content_type = "",
                                             .origin = "",
                                             .token = ""};
        struct http_reply reply = {};

        run_http_answer(&t.http, &request, &reply, true);
        assert_int_equal(reply.status, expected_status);
        assert_string_equal(reply.content_type, "application/json");
        assert_int_equal(reply.text_bytes, strlen(reply.text));
        if (expected_text)
                assert_string_equal(reply.text, expected_text);
        free(reply.text);
}

static void publish(const char *json, const char *error)
{
        assert_true(run_state_copy_begin(&t.copy));
        run_state_copy_end(&t.copy, json ? strdup(json) : NULL, error);
}

TEST_WITH(readers_get_the_copy_while_the_event_loop_stands, set_up, tear_down)
{
        ask(503, NULL);
        publish("{\"state\":\"running\"}", "");
        for (int i = 0; i < 1000; i++) {
                ask(200, "{\"state\":\"running\"}");
        }
        assert_false(event_loop_is_woken());
        publish("{\"state\":\"paused\"}", "");
        ask(200, "{\"state\":\"paused\"}");
}

TEST_WITH(without_memory_the_previous_copy_remains, set_up, tear_down)
{
        char error[RUN_ERROR_TEXT_MAX];

        publish("{\"state\":\"error\"}", "the disk is full");
        publish(NULL, "it stalled");
        ask(200, "{\"state\":\"error\"}");
        run_state_copy_error(&t.copy, error);
        assert_string_equal(error, "it stalled");
}

/* The event loop does not wait for a reader. */
TEST_WITH(the_event_loop_never_waits, set_up, tear_down)
{
        assert_true(run_state_copy_begin(&t.copy));
        assert_false(run_state_copy_begin(&t.copy));
        run_state_copy_end(&t.copy, NULL, "");
        assert_true(run_state_copy_begin(&t.copy));
        run_state_copy_end(&t.copy, NULL, "");
}
