/* The DFM's side of orders on loopback: who may say what is tested in tests/system/test_standby.py; here, what its bounds do. */
#include "../test.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "evb/base/util.h"
#include "hub.h"

#define ROSS 60u
#define LINE_BYTES (1u << 20)
#define TURNS_MAX 10000

static struct {
        struct scenario *scenario;
        struct loop *loop;
        struct hub *hub;
        int member, commander;
} t;

/* Addresses of loopback, of which each machine has many. */
static void add_node(enum node_role role, unsigned index)
{
        struct scenario_node *n = &t.scenario->nodes[t.scenario->n_nodes++];

        *n = (struct scenario_node){.role = role, .index = index};
        snprintf(n->name, sizeof n->name, "%s%u", role == ROLE_DFM ? "dfm" : "ros", index + 1);
        snprintf(n->address, sizeof n->address, "127.0.0.%zu", t.scenario->n_nodes);
}

static int set_up(void **state)
{
        (void)state;
        t.scenario = calloc(1, sizeof *t.scenario);
        assert_non_null(t.scenario);
        t.scenario->network.order_port = 20000 + (unsigned)getpid() % 20000;
        add_node(ROLE_DFM, 0);
        for (unsigned i = 0; i < ROSS; i++)
                add_node(ROLE_ROS, i);
        t.member = t.commander = -1;
        assert_int_equal(loop_new(&t.loop), 0);
        return 0;
}

static int tear_down(void **state)
{
        (void)state;
        hub_free(t.hub);
        t.hub = NULL;
        loop_free(t.loop);
        free(t.scenario);
        if (t.member >= 0)
                close(t.member);
        if (t.commander >= 0)
                close(t.commander);
        return 0;
}

static void turn(void)
{
        assert_int_equal(loop_wait(t.loop, 0), 0);
}

static int connect_from(const char *address)
{
        struct sockaddr_in from = {.sin_family = AF_INET}, to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)t.scenario->network.order_port)};
        int fd = socket(AF_INET, SOCK_STREAM, 0);

        inet_pton(AF_INET, address, &from.sin_addr);
        inet_pton(AF_INET, t.scenario->nodes[0].address, &to.sin_addr);
        assert_int_equal(bind(fd, (void *)&from, sizeof from), 0);
        assert_int_equal(connect(fd, (void *)&to, sizeof to), 0);
        assert_int_equal(fcntl(fd, F_SETFL, O_NONBLOCK), 0);
        return fd;
}

/* False: the connection has ended. */
static bool say(int fd, const char *text)
{
        size_t n = strlen(text);

        for (int i = 0; n > 0 && i < TURNS_MAX; i++) {
                ssize_t done = send(fd, text, n, MSG_NOSIGNAL);

                if (done < 0 && errno != EAGAIN)
                        return false;
                text += done > 0 ? done : 0;
                n -= done > 0 ? (size_t)done : 0;
                turn();
        }
        assert_int_equal(n, 0);
        return true;
}

/* Turns until a line is there, or for a while; "": none. */
static void hear(int fd, char *line, size_t size)
{
        size_t n = 0;

        for (int i = 0; i < 1000 && (n == 0 || line[n - 1] != '\n'); i++) {
                turn();
                while (n + 1 < size && recv(fd, line + n, 1, 0) == 1 && line[n++] != '\n')
                        ;
        }
        line[n] = '\0';
}

static void introduce(void)
{
        char text[300];

        t.member = connect_from(t.scenario->nodes[1].address);
        snprintf(text, sizeof text, "{\"stand_by\": {\"node\": \"ros1\", \"version\": \"" EVB_VERSION "\", \"common_ground\": %llu}}\n",
                 (unsigned long long)hub_common_ground(t.scenario));
        assert_true(say(t.member, text));
        hear(t.member, text, sizeof text);
        assert_string_equal(text, "{\"welcome\":true}\n");
        t.commander = connect_from("127.0.0.1");
        assert_true(say(t.commander, "{\"command\": {\"version\": \"" EVB_VERSION "\"}}\n"));
        hear(t.commander, text, sizeof text);
        assert_string_equal(text, "{\"members\":[\"ros1\"]}\n");
        assert_int_equal(hub_members(t.hub), 1);
}

/* A commander that takes no answers is let go in the middle of an order; what its members hear last is to stop. */
static void stop_is_last(void **state)
{
        char *order = malloc(LINE_BYTES), line[300];
        size_t n = (size_t)snprintf(order, LINE_BYTES, "{\"order\": {\"kind\": \"run\"}, \"to\": [");
        bool stopped = false;

        (void)state;
        assert_non_null(order);
        while (n < LINE_BYTES / 4)
                n += (size_t)snprintf(order + n, LINE_BYTES - n, "\"x\",");
        snprintf(order + n, LINE_BYTES - n, "\"ros1\"]}\n");
        assert_int_equal(hub_new(&t.hub, t.scenario, t.loop), 0);
        introduce();
        for (int i = 0; !stopped && i < 1000; i++) {
                (void)say(t.commander, order);
                hear(t.member, line, sizeof line);
                stopped = strstr(line, "\"stop\"");
                assert_true(stopped || strstr(line, "\"run\""));
        }
        assert_true(stopped);
        hear(t.member, line, sizeof line);
        assert_string_equal(line, "");
        free(order);
}

/* The limit that a shell or systemd gives is less than a connection a node. */
static void descriptors(void **state)
{
        struct rlimit before, now;

        (void)state;
        assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
        assert_int_equal(setrlimit(RLIMIT_NOFILE, &(struct rlimit){.rlim_cur = 30, .rlim_max = before.rlim_max}), 0);
        assert_int_equal(hub_new(&t.hub, t.scenario, t.loop), 0);
        assert_int_equal(getrlimit(RLIMIT_NOFILE, &now), 0);
        assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
        assert_in_range(now.rlim_cur, ROSS + 32, before.rlim_max);
}

int main(void)
{
#define CASE(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)
        const struct CMUnitTest tests[] = {CASE(stop_is_last), CASE(descriptors)};

        return cmocka_run_group_tests(tests, NULL, NULL);
}
