/* The DFM's side of orders on loopback: who may say what is tested in tests/system/test_standby.py; here,
 * what its bounds do. */
#include "../test.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "evb/base/util.h"
#include "command_server.h"

#define ROSS 60u
#define LINE_BYTES (1u << 20)
#define TURNS_MAX 10000
#define IDLE_NS (60 * NS_PER_S)
#define PEERS_BESIDE ((int)ROSS + 20)

static struct {
        struct scenario *scenario;
        struct loop *loop;
        struct command_server *server;
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
        t.scenario->standby.idle_timeout_ns = IDLE_NS;
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
        command_server_free(t.server);
        t.server = NULL;
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
        struct sockaddr_in from = {.sin_family = AF_INET},
                           to = {.sin_family = AF_INET,
                                 .sin_port = htons((uint16_t)t.scenario->network.order_port)};
        int fd = socket(AF_INET, SOCK_STREAM, 0), on = 1;

        inet_pton(AF_INET, address, &from.sin_addr);
        inet_pton(AF_INET, t.scenario->nodes[0].address, &to.sin_addr);
        assert_int_equal(bind(fd, (void *)&from, sizeof from), 0);
        assert_int_equal(connect(fd, (void *)&to, sizeof to), 0);
        assert_int_equal(fcntl(fd, F_SETFL, O_NONBLOCK), 0);
        /* A message has arrived by the next turn. */
        assert_int_equal(setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on), 0);
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

static bool say_ros1(int fd)
{
        char text[300];

        snprintf(text, sizeof text,
                 "{\"stand_by\": {\"node\": \"ros1\", \"version\": \"" EVB_VERSION
                 "\", \"common_ground\": %llu}}\n",
                 (unsigned long long)command_server_common_ground(t.scenario));
        return say(fd, text);
}

static void introduce(void)
{
        char text[300];

        t.member = connect_from(t.scenario->nodes[1].address);
        assert_true(say_ros1(t.member));
        hear(t.member, text, sizeof text);
        assert_string_equal(text, "{\"welcome\":true}\n");
        t.commander = connect_from("127.0.0.1");
        assert_true(say(t.commander, "{\"command\": {\"version\": \"" EVB_VERSION "\"}}\n"));
        hear(t.commander, text, sizeof text);
        assert_string_equal(text, "{\"members\":[\"ros1\"]}\n");
        assert_int_equal(command_server_members(t.server), 1);
}

/* A commander that takes no answers is let go in the middle of an order; what its members hear last is to
 * stop. */
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
        assert_int_equal(command_server_new(&t.server, t.scenario, t.loop), 0);
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

/* Who is connected as a node stays; a second one of the same name is refused, and says so. */
static void second_of_a_name(void **state)
{
        int second;
        char line[300];

        (void)state;
        assert_int_equal(command_server_new(&t.server, t.scenario, t.loop), 0);
        introduce();
        for (int i = 0; i < 20; i++) {
                second = connect_from(t.scenario->nodes[1].address);
                assert_true(say_ros1(second));
                hear(second, line, sizeof line);
                assert_non_null(strstr(line, "node ros1 is already on standby, connected from 127.0.0.2:"));
                close(second);
        }
        assert_int_equal(command_server_members(t.server), 1);
        assert_true(say(t.commander, "{\"order\": {\"kind\": \"run\"}, \"to\": [\"ros1\"]}\n"));
        hear(t.member, line, sizeof line);
        assert_non_null(strstr(line, "\"run\""));
        /* It may join once the first one has gone. */
        close(t.member);
        hear(t.commander, line, sizeof line);
        assert_string_equal(line, "{\"left\":\"ros1\"}\n");
        t.member = connect_from(t.scenario->nodes[1].address);
        assert_true(say_ros1(t.member));
        hear(t.member, line, sizeof line);
        assert_string_equal(line, "{\"welcome\":true}\n");
}

/* Later than the next deadline, as far as the command server knows. */
static void turn_late(void)
{
        command_server_turn(t.server, loop_now_ns(t.loop) + 2 * IDLE_NS);
}

static void assert_idle_is_told(void)
{
        char line[300];

        turn_late();
        hear(t.commander, line, sizeof line);
        assert_non_null(strstr(line, "refused"));
        assert_non_null(strstr(line, "standby.idle-timeout"));
}

/* The hub disconnects a silent coordinator, so that another one may come. */
static void idle_commander(void **state)
{
        char line[300];

        (void)state;
        assert_int_equal(command_server_new(&t.server, t.scenario, t.loop), 0);
        introduce();
        command_server_turn(t.server, loop_now_ns(t.loop) + IDLE_NS / 2);
        assert_true(say(t.commander, "{\"alive\": true}\n"));
        hear(t.commander, line, sizeof line);
        assert_string_equal(line, "");
        assert_idle_is_told();
        close(t.commander);
        t.commander = connect_from("127.0.0.1");
        assert_true(say(t.commander, "{\"command\": {\"version\": \"" EVB_VERSION "\"}}\n"));
        hear(t.commander, line, sizeof line);
        assert_string_equal(line, "{\"members\":[\"ros1\"]}\n");
}

/* A coordinator whose run goes on has nothing to say. */
static void busy_commander(void **state)
{
        static const char *const ends[] = {
                "{\"answer\": {\"job\": 5, \"state\": \"ended\"}}\n",
                "{\"answer\": {\"job\": 5, \"state\": \"refused\"}}\n",
                NULL,
        };
        char line[300];

        (void)state;
        assert_int_equal(command_server_new(&t.server, t.scenario, t.loop), 0);
        for (size_t i = 0; i < ARRAY_SIZE(ends); i++) {
                introduce();
                assert_true(say(t.commander,
                                "{\"order\": {\"kind\": \"streams\", \"job\": 5}, \"to\": [\"ros1\"]}\n"));
                hear(t.member, line, sizeof line);
                assert_true(say(t.member, "{\"answer\": {\"job\": 4, \"state\": \"ended\"}}\n"));
                hear(t.commander, line, sizeof line);
                turn_late();
                hear(t.commander, line, sizeof line);
                assert_string_equal(line, "");
                if (ends[i]) {
                        assert_true(say(t.member, ends[i]));
                        hear(t.commander, line, sizeof line);
                        assert_non_null(strstr(line, "answer"));
                } else {
                        assert_true(
                                say(t.commander, "{\"order\": {\"kind\": \"stop\"}, \"to\": [\"ros1\"]}\n"));
                        hear(t.member, line, sizeof line);
                }
                assert_idle_is_told();
                close(t.commander);
                close(t.member);
                turn();
                turn();
        }
        t.commander = t.member = -1;
}

/* The hub passes no more of a node's answers to evb lab than its orders can have. */
static void talkative_member(void **state)
{
        char line[300];
        unsigned heard = 0;

        (void)state;
        assert_int_equal(command_server_new(&t.server, t.scenario, t.loop), 0);
        introduce();
        assert_true(say(t.commander, "{\"order\": {\"kind\": \"run\", \"job\": 5}, \"to\": [\"ros1\"]}\n"));
        hear(t.member, line, sizeof line);
        for (int i = 0; i < 100; i++)
                assert_true(say(t.member, "{\"answer\": {\"job\": 5, \"state\": \"ready\"}}\n"));
        while (hear(t.commander, line, sizeof line), line[0])
                heard++;
        assert_in_range(heard, 1, 10);
        assert_int_equal(command_server_members(t.server), 1);
}

/* Silent connections do not lock a node out, not even from its own address. */
static void silent_connections(void **state)
{
        int silent[3 * PEERS_BESIDE], n = 0;

        (void)state;
        assert_int_equal(command_server_new(&t.server, t.scenario, t.loop), 0);
        for (; n < 3 * PEERS_BESIDE; n++) {
                silent[n] = connect_from(t.scenario->nodes[2].address);
                turn();
        }
        introduce();
        while (n > 0)
                close(silent[--n]);
}

/* The limit that a shell or systemd gives is less than a connection a node. */
static void descriptors(void **state)
{
        struct rlimit before, now;

        (void)state;
        assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
        assert_int_equal(
                setrlimit(RLIMIT_NOFILE, &(struct rlimit){.rlim_cur = 30, .rlim_max = before.rlim_max}), 0);
        assert_int_equal(command_server_new(&t.server, t.scenario, t.loop), 0);
        assert_int_equal(getrlimit(RLIMIT_NOFILE, &now), 0);
        assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
        assert_in_range(now.rlim_cur, ROSS + 32, before.rlim_max);
}

int main(void)
{
#define CASE(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)
        const struct CMUnitTest tests[] = {
                CASE(stop_is_last),   CASE(descriptors),      CASE(second_of_a_name),   CASE(idle_commander),
                CASE(busy_commander), CASE(talkative_member), CASE(silent_connections),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
