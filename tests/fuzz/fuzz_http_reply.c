/* Replies of HTTP servers to evb status, top and ctl: the reply itself, and a node's state in it as evb top
 * shows it. */
#include <assert.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/util.h"
#include "net/http_get.h"
#include "node/metrics/statuses.h"
#include "fuzz.h"
#include "cmd/top/top.h"

#define INPUT_MAX_BYTES (64u << 10)
#define NOW_NS (1000 * NS_PER_S)

static char place[128];

/* A server's socket without a name in the file system would not suit http_get.h. */
static int listen_here(void)
{
        struct sockaddr_un a = {.sun_family = AF_UNIX};
        int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

        snprintf(a.sun_path, sizeof a.sun_path, "/tmp/evb-fuzz-%d", (int)getpid());
        snprintf(place, sizeof place, "unix:%s", a.sun_path);
        assert(fd >= 0 && bind(fd, (struct sockaddr *)&a, sizeof a) == 0 && listen(fd, 4) == 0);
        return fd;
}

static void remove_place(void)
{
        unlink(place + strlen("unix:"));
}

static void show(const json_t *status)
{
        static struct scenario scenario = {
                .n_nodes = 1, .nodes = {{.name = "dfm", .role = ROLE_DFM, .address = "127.0.0.1"}}};
        struct node_status node = {.node = &scenario.nodes[0],
                                   .status = (json_t *)status,
                                   .answered_ns = NOW_NS,
                                   .asked_ns = NOW_NS};
        struct statuses all = {.scenario = &scenario, .n = 1, .nodes = &node};
        _cleanup_(top_model_fini) struct top_model m;
        json_t *o;

        assert(top_model_init(&m, &all) == 0);
        for (unsigned turn = 1; turn <= 2; turn++) {
                node.answered_ns = NOW_NS * turn;
                top_model_update(&m, NOW_NS * turn, NS_PER_S);
                o = top_model_to_json(&m, NOW_NS * turn, 1e9);
                assert(o);
                json_decref(o);
        }
        o = node_status_to_json(&node);
        assert(o);
        json_decref(o);
}

bool fuzz_accepts(const uint8_t *bytes, size_t size_bytes)
{
        static int listener = -1;
        struct http_get g = {.place = place, .path = "/status", .fd = -1};
        json_t *status;
        int fd;

        if (listener < 0) {
                listener = listen_here();
                atexit(remove_place);
        }
        if (size_bytes > INPUT_MAX_BYTES)
                return false;
        http_get_start(&g);
        assert(g.fd >= 0);
        fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        assert(fd >= 0 && write(fd, bytes, size_bytes) == (ssize_t)size_bytes);
        shutdown(fd, SHUT_WR);
        while (g.fd >= 0)
                http_get_continue(&g);
        close(fd);
        assert((g.error == 0) == (g.body != NULL));
        status = g.body ? json_loads(g.body, 0, NULL) : NULL;
        if (json_is_object(status))
                show(status);
        json_decref(status);
        free(g.body);
        return g.error == 0;
}
