/* The command server at the DFM: one peer at a time says what it wants, as a node or as a coordinator. In the
 * input, "@DIGEST@" stands for the digest of the scenario, and "@VERSION@" for this version. */
#include <arpa/inet.h>
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>

#include "base/log.h"
#include "base/util.h"
#include "remote/command_server.h"
#include "fuzz.h"
#include "local_stream.h"

#define INPUT_MAX_BYTES (64u << 10)
#define PORT 26888
#define PEER_PORT 40000
/* A peer that has said everything is gone after this many turns of the loop. */
#define TURNS_MAX 10000

static struct {
        struct scenario scenario;
        struct loop *loop;
        struct command_server *server;
        struct sockaddr_in from;
        int knock, peer; /* the listener; the server's end of the connection that waits there */
        char digest[32];
} t;

int __wrap_tcp_listen(const struct net_address *local, uint64_t receive_buffer_bytes);
int __wrap_tcp_accept(int listener, uint64_t receive_buffer_bytes, struct net_address *ret_peer);

int __wrap_tcp_listen(const struct net_address *local, uint64_t receive_buffer_bytes)
{
        (void)local, (void)receive_buffer_bytes;
        return t.knock = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
}

int __wrap_tcp_accept(int listener, uint64_t receive_buffer_bytes, struct net_address *ret_peer)
{
        eventfd_t n;

        (void)receive_buffer_bytes;
        if (eventfd_read(listener, &n) < 0)
                return -EAGAIN;
        ret_peer->v4 = t.from;
        ret_peer->size_bytes = sizeof t.from;
        return t.peer;
}

static void add_node(enum node_role role, const char *name, const char *address)
{
        struct scenario_node *n = &t.scenario.nodes[t.scenario.n_nodes++];

        *n = (struct scenario_node){.role = role};
        snprintf(n->name, sizeof n->name, "%s", name);
        snprintf(n->address, sizeof n->address, "%s", address);
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
        add_node(ROLE_DFM, "dfm", "127.0.0.1");
        add_node(ROLE_ROS, "ros1", "127.0.0.2");
        t.scenario.network.order_port = PORT;
        t.scenario.standby.idle_timeout_ns = 60 * NS_PER_S;
        t.from = address_of(&t.scenario.nodes[1], PEER_PORT);
        snprintf(t.digest, sizeof t.digest, "%llu", (unsigned long long)command_server_digest(&t.scenario));
        assert(loop_new(&t.loop) == 0);
        assert(command_server_new(&t.server, &t.scenario, t.loop) == 0);
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
static bool talk(const char *text, size_t n)
{
        char answer[512];
        bool taken = false;
        ssize_t got = -1;
        int ends[2], fd;

        local_stream_open(ends, text, n);
        t.peer = ends[0];
        fd = ends[1];
        assert(eventfd_write(t.knock, 1) == 0);
        for (int i = 0; got != 0 && i < TURNS_MAX; i++) {
                assert(loop_wait(t.loop, 0) == 0);
                got = recv(fd, answer, sizeof answer - 1, MSG_DONTWAIT);
                if (got > 0) {
                        answer[got] = '\0';
                        taken |= strncmp(answer, "{\"nodes\"", 8) == 0 ||
                                 strncmp(answer, "{\"welcome\"", 10) == 0;
                }
                if (got < 0 && errno != EAGAIN)
                        got = 0;
        }
        assert(got == 0);
        close(fd);
        return taken;
}

bool fuzz_accepts(const uint8_t *bytes, size_t size_bytes)
{
        _cleanup_free_ char *text = NULL;
        bool accepted;
        size_t n;

        if (!t.loop)
                set_up();
        if (size_bytes > INPUT_MAX_BYTES)
                return false;
        text = malloc(4 * size_bytes + 1);
        n = replace(bytes, size_bytes, text);
        accepted = talk(text, n);
        assert(loop_wait(t.loop, 0) == 0);
        command_server_turn(t.server, loop_now_ns(t.loop));
        assert(command_server_nodes(t.server) == 0);
        return accepted;
}
