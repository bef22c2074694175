/* A level-2 client that comes late and reads slowly: it learns of each undecided event, although the DFM has
 * nothing else to do. */
#include "../core/dfm_driver.h"

#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include "data/level2_server.h"
#include "net/endpoint.h"
#include "data_sample.h"
#include "log_lines.h"

#define PORT 46913
#define EVENTS 32768u
/* All of these are decided before the client comes. One listing looks at fewer. */
#define DECIDED 10000u
/* What the client reads at a time. */
#define READ_BYTES 3000

static int n_ready; /* descriptors that were ready at the last wait */

int __real_epoll_pwait2(int fd, struct epoll_event *events, int n, const struct timespec *timeout,
                        const sigset_t *signals);

int __wrap_epoll_pwait2(int fd, struct epoll_event *events, int n, const struct timespec *timeout,
                        const sigset_t *signals)
{
        n_ready = __real_epoll_pwait2(fd, events, n, timeout, signals);
        return n_ready;
}

static struct bench {
        struct sample sample;
        struct dfm_driver dfm;
        struct level2_server *server;
        int client;
        uint8_t bytes[2 * MESSAGE_LEVEL2_BYTES_MAX];
        size_t n_bytes;
        uint64_t next; /* event that the client expects */
} b;

static void steps(void)
{
        struct message_to to;

        while (dfm_step(b.dfm.dfm, b.dfm.now_ns, &to, &b.dfm.message))
                ;
}

static void nodes_say_alive(void)
{
        for (uint16_t i = 0; i < 2; i++) {
                ros_says_alive(&b.dfm, i, RUN_RUNNING, 0);
                sfi_says_alive(&b.dfm, i, RUN_RUNNING, 0);
        }
}

static void bench_open(uint32_t window)
{
        struct dfm_config c = dfm_standard();

        b = (struct bench){.next = DECIDED};
        sample_open(&b.sample, "dfm", "udp");
        b.sample.scenario->level2.port = PORT;
        c.events = c.events_max = EVENTS;
        c.keep_alive_ns = 10 * NS_PER_S; /* no pause looks as if the DFM had been away */
        c.level2 = (struct dfm_level2_config){.on = true, .timeout_ns = NS_PER_S, .window = window};
        dfm_driver_init(&b.dfm, &c);
        nodes_say_alive();
        b.client = -1;
        assert_int_equal(level2_server_new(&b.server, &b.sample.context, b.dfm.dfm, TRACE_DFM), 0);
}

/* The DFM has taken all triggers. Event 0 is accepted and waits for a credit. */
static void receive_all(void)
{
        for (unsigned i = 0; dfm_run_view(b.dfm.dfm).undecided < EVENTS && i < EVENTS; i++)
                steps();
        for (uint64_t event = 0; event < DECIDED; event++)
                assert_true(dfm_decide(
                        b.dfm.dfm, b.dfm.now_ns,
                        &(struct decision_entry){.event = event,
                                                 .verdict = event == 0 ? DECISION_ACCEPT : DECISION_REJECT}));
        steps();
        assert_int_equal(dfm_run_view(b.dfm.dfm).undecided, EVENTS - DECIDED);
}

static int bench_close(void **state)
{
        if (b.client >= 0)
                close(b.client);
        level2_server_free(b.server);
        dfm_driver_fini(&b.dfm);
        sample_close(&b.sample);
        return 0;
}

static void comes(void)
{
        struct message m = {.header = {.sender_role = ROLE_LEVEL2, .type = MESSAGE_JOIN}};
        uint8_t bytes[MESSAGE_LEVEL2_BYTES_MAX];
        struct net_address to;
        int small = 4096;
        size_t n;

        m.join.incarnation = 1;
        n = message_encode(&m, bytes, sizeof bytes);
        b.client = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        assert_true(b.client >= 0 && n > 0);
        assert_int_equal(setsockopt(b.client, SOL_SOCKET, SO_RCVBUF, &small, sizeof small), 0);
        assert_int_equal(net_address_parse(&to, sample_at(1), PORT), 0);
        assert_int_equal(connect(b.client, &to.any, sizeof to.v4), 0);
        assert_int_equal(write(b.client, bytes, n), n);
}

/* A turn follows what is ready, or the server's own deadline; nothing else asks for one. */
static void turns(void)
{
        for (unsigned i = 0; i < 100; i++) {
                assert_int_equal(loop_wait(b.sample.loop, 0), 0);
                if (n_ready <= 0 && level2_server_deadline_ns(b.server) > b.dfm.now_ns)
                        return;
                level2_server_receive(b.server, b.dfm.now_ns);
                level2_server_send(b.server, b.dfm.now_ns);
        }
}

static void receive_messages(void)
{
        static struct message m;
        size_t size;

        while (message_decode_first(&m, b.bytes, b.n_bytes, &size) == MESSAGE_OK) {
                b.n_bytes -= size;
                memmove(b.bytes, b.bytes + size, b.n_bytes);
                for (size_t k = 0; m.header.type == MESSAGE_UNDECIDED && k < m.n; k++)
                        assert_int_equal(m.undecided.entries[k].event, b.next++);
        }
}

/* False: nothing comes. */
static bool reads(void)
{
        struct pollfd ready = {.fd = b.client, .events = POLLIN};
        size_t room = MIN((size_t)READ_BYTES, sizeof b.bytes - b.n_bytes);
        ssize_t got;

        if (poll(&ready, 1, 10) == 0)
                return false;
        got = recv(b.client, b.bytes + b.n_bytes, room, 0);
        assert_true(got > 0);
        b.n_bytes += (size_t)got;
        receive_messages();
        return true;
}

TEST_WITH(a_late_and_slow_client_learns_of_all_events, NULL, bench_close)
{
        unsigned idle = 0;

        bench_open(EVENTS);
        receive_all();
        comes();
        while (b.next < EVENTS && idle < 1000) {
                turns();
                idle = reads() ? 0 : idle + 1;
        }
        assert_int_equal(b.next, EVENTS);
}

/* Events time out each time. That has a line, and another one after a pause. */
TEST_WITH(each_fault_is_logged, NULL, bench_close)
{
        static const struct {
                unsigned after_s, lines;
        } times[] = {{1, 1}, {5, 1}, {9, 1}, {10, 2}, {1, 2}};

        bench_open(8);
        steps();
        log_lines = 0;
        for (unsigned i = 0; i < ARRAY_SIZE(times); i++) {
                uint64_t before = dfm_level2_counts(b.dfm.dfm)->timed_out;

                dfm_pass_ns(&b.dfm, times[i].after_s * NS_PER_S);
                nodes_say_alive();
                steps();
                assert_true(dfm_level2_counts(b.dfm.dfm)->timed_out > before);
                level2_server_send(b.server, b.dfm.now_ns);
                level2_server_send(b.server, b.dfm.now_ns);
                assert_int_equal(log_lines, times[i].lines);
        }
}

/* A DFM that no client can reach must not look as if it were ready. */
TEST_WITH(a_closed_port_is_an_error, NULL, bench_close)
{
        bench_open(8);
        assert_int_equal(level2_server_receive(b.server, b.dfm.now_ns), 0);
        assert_return_code(shutdown(sample_find_listener(), SHUT_RDWR), 0);
        assert_int_equal(loop_wait(b.sample.loop, clock_now_ns() + NS_PER_S), 0);
        assert_int_equal(level2_server_receive(b.server, b.dfm.now_ns), -ECONNABORTED);
}
