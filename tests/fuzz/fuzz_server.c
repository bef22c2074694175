/* The command server at the DFM: one peer at a time says what it wants, as a node or as a coordinator. In the
 * input, "@DIGEST@" stands for the digest of the scenario, and "@VERSION@" for this version. */
#include <arpa/inet.h>
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "evb/base/log.h"
#include "evb/base/util.h"
#include "command_server.h"
#include "fuzz.h"
#include "loopback.h"

#define INPUT_MAX_BYTES (64u << 10)
#define PORT 26888
/* A peer that has said everything is gone after this many turns of the loop. */
#define TURNS_MAX 10000

static struct {
        struct scenario scenario;
        struct loop *loop;
        struct command_server *server;
        struct sockaddr_in at, from;
        char digest[32];
} t;

static void add_node(enum node_role role, const char *name, unsigned host)
{
        struct scenario_node *n = &t.scenario.nodes[t.scenario.n_nodes++];

        *n = (struct scenario_node){.role = role};
        snprintf(n->name, sizeof n->name, "%s", name);
        loopback_address(n->address, sizeof n->address, host);
}

static struct sockaddr_in address_of(const struct scenario_node *n, uint16_t port)
{
        struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(port)};

        inet_pton(AF_INET, n->address, &a.sin_addr);
        return a;
}

static void set_up(void)
{
        log_set_level(LOG_LEVEL_ERROR);
        add_node(ROLE_DFM, "dfm", 1);
        add_node(ROLE_ROS, "ros1", 2);
        t.scenario.network.order_port = PORT;
        t.scenario.standby.idle_timeout_ns = 60 * NS_PER_S;
        t.at = address_of(&t.scenario.nodes[0], PORT);
        t.from = address_of(&t.scenario.nodes[1], 0);
        snprintf(t.digest, sizeof t.digest, "%llu", (unsigned long long)command_server_digest(&t.scenario));
        assert(loop_new(&t.loop) == 0);
        assert(command_server_new(&t.server, &t.scenario, t.loop) == 0);
}

static int connect_to_server(void)
{
        int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

        assert(fd >= 0 && bind(fd, (struct sockaddr *)&t.from, sizeof t.from) == 0);
        assert(connect(fd, (struct sockaddr *)&t.at, sizeof t.at) == 0);
        return fd;
}

/* Writes the input with its two words replaced. */
static size_t replace(const uint8_t *bytes, size_t n, char *to)
{
        char *begin = to;

        for (size_t i = 0; i < n;) {
                const char *word = n - i >= 8 && memcmp(bytes + i, "@DIGEST@", 8) == 0    ? t.digest
                                   : n - i >= 9 && memcmp(bytes + i, "@VERSION@", 9) == 0 ? EVB_VERSION
                                                                                          : NULL;

                if (!word) {
                        *to++ = (char)bytes[i++];
                        continue;
                }
                i += word == t.digest ? 8 : 9;
                to = stpcpy(to, word);
        }
        return (size_t)(to - begin);
}

/* True: the server took the peer in. */
static bool talk(int fd, const char *text, size_t n)
{
        char answer[4096] = "";
        bool taken = false;
        ssize_t got = -1;

        assert(send(fd, text, n, MSG_NOSIGNAL) == (ssize_t)n);
        shutdown(fd, SHUT_WR);
        for (int i = 0; got != 0 && i < TURNS_MAX; i++) {
                assert(loop_wait(t.loop, 0) == 0);
                got = recv(fd, answer, sizeof answer - 1, MSG_DONTWAIT);
                if (got > 0)
                        taken |= strncmp(answer, "{\"nodes\"", 8) == 0 ||
                                 strncmp(answer, "{\"welcome\"", 10) == 0;
                if (got < 0 && errno != EAGAIN)
                        got = 0;
        }
        assert(got == 0);
        return taken;
}

bool fuzz_accepts(const uint8_t *bytes, size_t size_bytes)
{
        _cleanup_free_ char *text = NULL;
        bool accepted;
        size_t n;
        int fd;

        if (!t.loop)
                set_up();
        if (size_bytes > INPUT_MAX_BYTES)
                return false;
        text = malloc(4 * size_bytes + 1);
        n = replace(bytes, size_bytes, text);
        fd = connect_to_server();
        accepted = talk(fd, text, n);
        loopback_close(fd);
        assert(loop_wait(t.loop, 0) == 0);
        command_server_turn(t.server, loop_now_ns(t.loop));
        assert(command_server_nodes(t.server) == 0);
        return accepted;
}
