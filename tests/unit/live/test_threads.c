/* The server of live events as in an SFI that writes files: one thread offers events, another has the
 * connections, and consumers come and go. Run it with the thread sanitizer. */
#include "../test.h"

#include <arpa/inet.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/random.h"
#include "base/util.h"
#include "live/live_client.h"
#include "live/live_server.h"

#define TAGS 8u
#define VISITS 60u

static char directory[64], path[80], address[96];
static struct loop *loop;
static struct live_server *server;
static _Atomic bool stop;

static int begin(const struct live_settings *settings)
{
        struct error e = {};

        stop = false;
        return loop_new(&loop) < 0 ? -1 : live_server_new(&server, settings, loop, &e);
}

static int set_up(void **state)
{
        strcpy(directory, "/tmp/evb-live-XXXXXX");
        if (!mkdtemp(directory))
                return -1;
        snprintf(path, sizeof path, "%s/socket", directory);
        snprintf(address, sizeof address, "unix:%s", path);
        return begin(&(struct live_settings){.path = path, .allows_all = true, .n_tags = TAGS});
}

static int set_up_remote(void **state)
{
        struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
        int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

        if (bind(fd, (struct sockaddr *)&a, sizeof a) < 0 || listen(fd, 8) < 0 ||
            getsockname(fd, (struct sockaddr *)&a, &(socklen_t){sizeof a}) < 0)
                return -1;
        snprintf(address, sizeof address, "127.0.0.1:%u", ntohs(a.sin_port));
        return begin(&(struct live_settings){.listener = fd, .allows_all = true, .n_tags = TAGS});
}

static int tear_down_remote(void **state)
{
        server = live_server_free(server, false);
        loop = loop_free(loop);
        return 0;
}

static int tear_down(void **state)
{
        tear_down_remote(state);
        return rmdir(directory);
}

static int encode(void *ctx, bool needed, const struct iovec **iov, size_t *n_iov, size_t *size_bytes)
{
        static char payload[1000];
        static const struct iovec part = {payload, sizeof payload};

        *iov = &part;
        *n_iov = 1;
        *size_bytes = sizeof payload;
        return 0;
}

/* In a random order, because the lock of one call would order the next one, too. */
static void *build(void *ctx)
{
        bool is_held[TAGS] = {};
        struct live_event event = {};
        struct random random;

        random_init(&random, 1);
        while (!stop) {
                struct live_end ends[TAGS];
                uint64_t way = random_below(&random, 8);

                if (way > 2) {
                        event.number++;
                        event.tag = (event.tag + 1) % TAGS;
                        if (!is_held[event.tag])
                                is_held[event.tag] =
                                        live_server_offer(server, &event, true, encode, NULL).is_held;
                } else if (way == 2) {
                        for (size_t n = live_server_collect(server, ends, TAGS); n-- > 0;)
                                is_held[ends[n].tag] = false;
                } else if (way == 1) {
                        live_server_wake(server);
                } else {
                        (void)live_server_is_settled(server);
                }
                usleep(20);
        }
        return NULL;
}

static void *serve(void *ctx)
{
        while (!stop)
                assert_int_equal(loop_wait(loop, clock_now_ns() + NS_PER_MS), 0);
        return NULL;
}

/* Whether an event has come; waits for the first one. */
static bool read_all(struct live_client *c, int wait_ms)
{
        struct live_record record;
        bool found = false;
        int r;

        while (live_client_next(c, found ? 0 : wait_ms, &record, &r))
                found = true;
        assert_int_equal(r, -EAGAIN);
        return found;
}

static const char *const requests[] = {
        LIVE_GREETING " ring=64KiB mode=all",          LIVE_GREETING " ring=64KiB mode=skip",
        LIVE_GREETING " ring=64KiB mode=skip group=a", LIVE_GREETING " ring=64KiB",
        LIVE_GREETING " ring=64KiB mode=all group=b",
};

/* Each consumer gets an event, and those that come between it and its end do not stop it. */
static void visit(void)
{
        struct live_client c[4];
        pthread_t builder, owner;
        struct error e = {};

        assert_int_equal(pthread_create(&builder, NULL, build, NULL), 0);
        assert_int_equal(pthread_create(&owner, NULL, serve, NULL), 0);
        for (size_t i = 0; i < VISITS; i++) {
                struct live_client *own = &c[i % ARRAY_SIZE(c)];

                if (i >= ARRAY_SIZE(c))
                        live_client_close(own);
                assert_int_equal(live_client_open(own, address, requests[i % ARRAY_SIZE(requests)], NULL, &e),
                                 0);
                /* In mode all, a consumer that does not read stops the others. */
                while (!read_all(own, 1)) {
                        for (size_t k = 0; k < MIN(i, ARRAY_SIZE(c)); k++)
                                (void)read_all(&c[k], 0);
                }
        }
        stop = true;
        assert_int_equal(pthread_join(builder, NULL), 0);
        assert_int_equal(pthread_join(owner, NULL), 0);
        for (size_t i = 0; i < ARRAY_SIZE(c); i++)
                live_client_close(&c[i]);
}

TEST_WITH(consumers_come_and_go_while_events_are_offered, set_up, tear_down)
{
        visit();
}

TEST_WITH(consumers_come_and_go_over_tcp_while_events_are_offered, set_up_remote, tear_down_remote)
{
        visit();
}
