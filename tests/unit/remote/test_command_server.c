/* Tests the limits of the command server on loopback. tests/system/test_commands.py covers permissions. */
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

#include "base/util.h"
#include "remote/command_server.h"

#define ROSS 60u
#define LINE_BYTES (1u << 20)
#define TURNS_MAX 10000
#define IDLE_NS (60 * NS_PER_S)
#define PEERS_MAX ((int)ROSS + 20)

static struct {
        struct scenario *scenario;
        struct loop *loop;
        struct command_server *server;
        int node, coordinator;
} t;

/* Gives each node a loopback address of its own. */
static void add_node(enum node_role role, unsigned index)
{
        struct scenario_node *n = &t.scenario->nodes[t.scenario->n_nodes++];

        *n = (struct scenario_node){.role = role, .index = index};
        snprintf(n->name, sizeof n->name, "%s%u", role == ROLE_DFM ? "dfm" : "ros", index + 1);
        snprintf(n->address, sizeof n->address, "127.0.0.%zu", t.scenario->n_nodes);
}

static int set_up(void **state)
{
        t.scenario = calloc(1, sizeof *t.scenario);
        assert_non_null(t.scenario);
        t.scenario->network.order_port = 20000 + (unsigned)getpid() % 20000;
        t.scenario->standby.idle_timeout_ns = IDLE_NS;
        add_node(ROLE_DFM, 0);
        for (unsigned i = 0; i < ROSS; i++)
                add_node(ROLE_ROS, i);
        t.node = t.coordinator = -1;
        assert_int_equal(loop_new(&t.loop), 0);
        return 0;
}

static int tear_down(void **state)
{
        command_server_free(t.server);
        t.server = NULL;
        loop_free(t.loop);
        free(t.scenario);
        if (t.node >= 0)
                close(t.node);
        if (t.coordinator >= 0)
                close(t.coordinator);
        return 0;
}

static void run_loop(void)
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
        /* Makes a message arrive before the loop runs again. */
        assert_int_equal(setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on), 0);
        return fd;
}

/* Returns false if the connection has ended. */
static bool send_text(int fd, const char *text)
{
        size_t n = strlen(text);

        for (int i = 0; n > 0 && i < TURNS_MAX; i++) {
                ssize_t done = send(fd, text, n, MSG_NOSIGNAL);

                if (done < 0 && errno != EAGAIN)
                        return false;
                text += done > 0 ? done : 0;
                n -= done > 0 ? (size_t)done : 0;
                run_loop();
        }
        assert_int_equal(n, 0);
        return true;
}

/* Runs the loop until a line arrives; "" if none does. */
static void read_line(int fd, char *line, size_t size)
{
        size_t n = 0;

        for (int i = 0; i < 1000 && (n == 0 || line[n - 1] != '\n'); i++) {
                run_loop();
                while (n + 1 < size && recv(fd, line + n, 1, 0) == 1 && line[n++] != '\n')
                        ;
        }
        line[n] = '\0';
}

static bool introduce_ros1(int fd)
{
        char text[300];

        snprintf(text, sizeof text,
                 "{\"standby\": {\"node\": \"ros1\", \"version\": \"" EVB_VERSION "\", \"digest\": %llu}}\n",
                 (unsigned long long)command_server_digest(t.scenario));
        return send_text(fd, text);
}

static void connect_both(void)
{
        char text[300];

        t.node = connect_from(t.scenario->nodes[1].address);
        assert_true(introduce_ros1(t.node));
        read_line(t.node, text, sizeof text);
        assert_string_equal(text, "{\"welcome\":true}\n");
        t.coordinator = connect_from("127.0.0.1");
        assert_true(send_text(t.coordinator, "{\"coordinator\": {\"version\": \"" EVB_VERSION "\"}}\n"));
        read_line(t.coordinator, text, sizeof text);
        assert_string_equal(text, "{\"nodes\":[\"ros1\"]}\n");
        assert_int_equal(command_server_nodes(t.server), 1);
}

/* The server disconnects a coordinator that reads no answers. The last command to its nodes is stop. */
TEST_WITH(sends_nothing_after_stop, set_up, tear_down)
{
        char *command = malloc(LINE_BYTES), line[300];
        size_t n = (size_t)snprintf(command, LINE_BYTES, "{\"command\": {\"kind\": \"run\"}, \"to\": [");
        bool stopped = false;

        assert_non_null(command);
        while (n < LINE_BYTES / 4)
                n += (size_t)snprintf(command + n, LINE_BYTES - n, "\"x\",");
        snprintf(command + n, LINE_BYTES - n, "\"ros1\"]}\n");
        assert_int_equal(command_server_new(&t.server, t.scenario, t.loop), 0);
        connect_both();
        for (int i = 0; !stopped && i < 1000; i++) {
                (void)send_text(t.coordinator, command);
                read_line(t.node, line, sizeof line);
                stopped = strstr(line, "\"stop\"");
                assert_true(stopped || strstr(line, "\"run\""));
        }
        assert_true(stopped);
        read_line(t.node, line, sizeof line);
        assert_string_equal(line, "");
        free(command);
}

/* The connected node stays; a second one of the same name is refused. */
TEST_WITH(refuses_second_node_of_a_name, set_up, tear_down)
{
        int second;
        char line[300];

        assert_int_equal(command_server_new(&t.server, t.scenario, t.loop), 0);
        connect_both();
        for (int i = 0; i < 20; i++) {
                second = connect_from(t.scenario->nodes[1].address);
                assert_true(introduce_ros1(second));
                read_line(second, line, sizeof line);
                assert_non_null(strstr(line, "node ros1 is already on standby, connected from 127.0.0.2:"));
                close(second);
        }
        assert_int_equal(command_server_nodes(t.server), 1);
        assert_true(send_text(t.coordinator, "{\"command\": {\"kind\": \"run\"}, \"to\": [\"ros1\"]}\n"));
        read_line(t.node, line, sizeof line);
        assert_non_null(strstr(line, "\"run\""));
        /* It may join once the first one has left. */
        close(t.node);
        read_line(t.coordinator, line, sizeof line);
        assert_string_equal(line, "{\"left\":\"ros1\"}\n");
        t.node = connect_from(t.scenario->nodes[1].address);
        assert_true(introduce_ros1(t.node));
        read_line(t.node, line, sizeof line);
        assert_string_equal(line, "{\"welcome\":true}\n");
}

/* A node of another version may introduce itself in another way; its user must learn why it is refused. */
TEST_WITH(refuses_unknown_introduction, set_up, tear_down)
{
        static const char *const introductions[] = {
                "{\"hello\": {\"name\": \"ros1\"}}\n",
                "{\"standby\": {\"node\": \"ros1\", \"version\": \"0.0.1\"}}\n",
                "{\"coordinator\": {\"version\": \"0.0.1\"}}\n",
        };
        char line[300];

        assert_int_equal(command_server_new(&t.server, t.scenario, t.loop), 0);
        for (size_t i = 0; i < ARRAY_SIZE(introductions); i++) {
                _cleanup_close_ int fd = connect_from(t.scenario->nodes[1].address);

                assert_true(send_text(fd, introductions[i]));
                read_line(fd, line, sizeof line);
                assert_non_null(strstr(line, "\"refused\""));
                assert_int_equal(!strstr(line, "unexpected introduction; "), i > 0);
                assert_non_null(strstr(line, "the DFM runs evb " EVB_VERSION
                                             "; install the same version on all machines"));
        }
        assert_int_equal(command_server_nodes(t.server), 0);
}

/* Runs the server after the idle timeout. */
static void run_loop_late(void)
{
        command_server_turn(t.server, loop_now_ns(t.loop) + 2 * IDLE_NS);
}

static void assert_idle_is_refused(void)
{
        char line[300];

        run_loop_late();
        read_line(t.coordinator, line, sizeof line);
        assert_non_null(strstr(line, "refused"));
        assert_non_null(strstr(line, "standby.idle-timeout"));
}

/* The server disconnects a silent coordinator, so that another one can connect. */
TEST_WITH(disconnects_idle_coordinator, set_up, tear_down)
{
        char line[300];

        assert_int_equal(command_server_new(&t.server, t.scenario, t.loop), 0);
        connect_both();
        command_server_turn(t.server, loop_now_ns(t.loop) + IDLE_NS / 2);
        assert_true(send_text(t.coordinator, "{\"alive\": true}\n"));
        read_line(t.coordinator, line, sizeof line);
        assert_string_equal(line, "");
        assert_idle_is_refused();
        close(t.coordinator);
        t.coordinator = connect_from("127.0.0.1");
        assert_true(send_text(t.coordinator, "{\"coordinator\": {\"version\": \"" EVB_VERSION "\"}}\n"));
        read_line(t.coordinator, line, sizeof line);
        assert_string_equal(line, "{\"nodes\":[\"ros1\"]}\n");
}

/* A coordinator may be silent while its run continues. */
TEST_WITH(keeps_busy_coordinator, set_up, tear_down)
{
        static const char *const ends[] = {
                "{\"answer\": {\"job\": 5, \"state\": \"ended\"}}\n",
                "{\"answer\": {\"job\": 5, \"state\": \"refused\"}}\n",
                NULL,
        };
        char line[300];

        assert_int_equal(command_server_new(&t.server, t.scenario, t.loop), 0);
        for (size_t i = 0; i < ARRAY_SIZE(ends); i++) {
                connect_both();
                assert_true(
                        send_text(t.coordinator,
                                  "{\"command\": {\"kind\": \"flows\", \"job\": 5}, \"to\": [\"ros1\"]}\n"));
                read_line(t.node, line, sizeof line);
                assert_true(send_text(t.node, "{\"answer\": {\"job\": 4, \"state\": \"ended\"}}\n"));
                read_line(t.coordinator, line, sizeof line);
                run_loop_late();
                read_line(t.coordinator, line, sizeof line);
                assert_string_equal(line, "");
                if (ends[i]) {
                        assert_true(send_text(t.node, ends[i]));
                        read_line(t.coordinator, line, sizeof line);
                        assert_non_null(strstr(line, "answer"));
                } else {
                        assert_true(send_text(t.coordinator,
                                              "{\"command\": {\"kind\": \"stop\"}, \"to\": [\"ros1\"]}\n"));
                        read_line(t.node, line, sizeof line);
                }
                assert_idle_is_refused();
                close(t.coordinator);
                close(t.node);
                run_loop();
                run_loop();
        }
        t.coordinator = t.node = -1;
}

/* The server forwards at most as many answers as the commands can have. */
TEST_WITH(drops_excess_answers, set_up, tear_down)
{
        char line[300];
        unsigned heard = 0;

        assert_int_equal(command_server_new(&t.server, t.scenario, t.loop), 0);
        connect_both();
        assert_true(send_text(t.coordinator,
                              "{\"command\": {\"kind\": \"run\", \"job\": 5}, \"to\": [\"ros1\"]}\n"));
        read_line(t.node, line, sizeof line);
        for (int i = 0; i < 100; i++)
                assert_true(send_text(t.node, "{\"answer\": {\"job\": 5, \"state\": \"ready\"}}\n"));
        while (read_line(t.coordinator, line, sizeof line), line[0])
                heard++;
        assert_in_range(heard, 1, 10);
        assert_int_equal(command_server_nodes(t.server), 1);
}

/* Silent connections lock out no node, not even from the node's own address. */
TEST_WITH(survives_silent_connections, set_up, tear_down)
{
        int silent[3 * PEERS_MAX], n = 0;

        assert_int_equal(command_server_new(&t.server, t.scenario, t.loop), 0);
        for (; n < 3 * PEERS_MAX; n++) {
                silent[n] = connect_from(t.scenario->nodes[2].address);
                run_loop();
        }
        connect_both();
        while (n > 0)
                close(silent[--n]);
}

/* The usual soft limit allows fewer connections than a scenario has nodes. */
TEST_WITH(raises_descriptor_limit, set_up, tear_down)
{
        struct rlimit before, now;

        assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
        assert_int_equal(
                setrlimit(RLIMIT_NOFILE, &(struct rlimit){.rlim_cur = 30, .rlim_max = before.rlim_max}), 0);
        assert_int_equal(command_server_new(&t.server, t.scenario, t.loop), 0);
        assert_int_equal(getrlimit(RLIMIT_NOFILE, &now), 0);
        assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
        assert_in_range(now.rlim_cur, ROSS + 32, before.rlim_max);
}
