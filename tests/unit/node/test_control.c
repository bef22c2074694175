/* The control socket: whose messages count, and that a flood of others does not hold up the node. */
#include "../test.h"

#include "evb/net/endpoint.h"
#include "node_sample.h"

#define DFM SAMPLE_NET ".1"
#define ROS1 SAMPLE_NET ".2"
#define STRANGER SAMPLE_NET ".77"
#define PORT 46910

struct bench {
        struct node node;
        struct endpoint *from;
};

static void bench_open(struct bench *b, const char *from, uint16_t port)
{
        struct udp_config config = {.send_buffer_bytes = 1 << 20};

        *b = (struct bench){};
        sample_node(&b->node, "dfm", "udp");
        assert_int_equal(control_open(&b->node.control, b->node.scenario, b->node.self, SAMPLE_DFM,
                                      b->node.stats, b->node.loop),
                         0);
        assert_int_equal(net_address_parse(&config.local, from, port), 0);
        assert_int_equal(endpoint_new_udp(&b->from, &config), 0);
}

static void bench_close(struct bench *b)
{
        endpoint_free(b->from);
        control_close(&b->node.control);
        sample_node_free(&b->node);
}

/* An Alive that names ROS 1 of the scenario as its sender. */
static void send_alive(struct bench *b)
{
        static struct message m;
        struct net_address to;
        uint8_t bytes[256];
        struct iovec iov = {.iov_base = bytes};

        m.header = (struct message_header){
                .cookie = SAMPLE_COOKIE, .sender_role = ROLE_ROS, .type = MESSAGE_ALIVE};
        m.alive.state = RUN_RUNNING;
        iov.iov_len = message_encode(&m, bytes, sizeof bytes);
        assert_int_equal(net_address_parse(&to, DFM, PORT), 0);
        assert_int_equal(endpoint_send(b->from, &(struct outgoing){&iov, 1, (uint32_t)iov.iov_len, &to}, 1),
                         1);
}

/* One turn; how many messages it gave. */
static unsigned turn(struct bench *b)
{
        unsigned n = 0;

        assert_int_equal(loop_wait(b->node.loop, clock_now_ns() + 20 * NS_PER_MS), 0);
        control_begin_turn(&b->node.control);
        while (control_receive(&b->node.control))
                n++;
        return n;
}

static unsigned turns_until(struct bench *b, const _Atomic uint64_t *counter, uint64_t wanted)
{
        unsigned got = 0;

        for (int i = 0; i < 500 && stats_get(counter) < wanted; i++)
                got += turn(b);
        assert_int_equal(stats_get(counter), wanted);
        return got;
}

static void a_message_comes_from_the_address_that_it_names(void **state)
{
        struct bench b;

        (void)state;
        bench_open(&b, ROS1, PORT);
        send_alive(&b);
        assert_int_equal(turns_until(&b, &b.node.stats->control_received, 1), 1);
        assert_false(b.node.control.stranger.is_new);
        bench_close(&b);
}

static void another_address_or_port_is_a_stranger(void **state)
{
        struct bench b;

        (void)state;
        for (int port = 0; port < 2; port++) {
                bench_open(&b, port ? ROS1 : STRANGER, port ? 0 : PORT);
                send_alive(&b);
                assert_int_equal(turns_until(&b, &b.node.stats->packets_foreign, 1), 0);
                assert_true(b.node.control.stranger.is_new);
                assert_int_equal(b.node.control.stranger.role, ROLE_ROS);
                bench_close(&b);
        }
}

/* More datagrams of strangers than a turn reads: the rest waits for the next turn, and the loop does not
 * sleep before it. */
static void a_flood_does_not_hold_up_the_node(void **state)
{
        struct bench b;
        uint64_t first;

        (void)state;
        bench_open(&b, STRANGER, PORT);
        for (int i = 0; i < 1500; i++)
                send_alive(&b);
        turn(&b);
        first = stats_get(&b.node.stats->packets_foreign);
        assert_true(first > 0 && first < 1500);
        assert_true(control_has_more(&b.node.control));
        turns_until(&b, &b.node.stats->packets_foreign, 1500);
        turn(&b);
        assert_false(control_has_more(&b.node.control));
        bench_close(&b);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(a_message_comes_from_the_address_that_it_names),
                cmocka_unit_test(another_address_or_port_is_a_stranger),
                cmocka_unit_test(a_flood_does_not_hold_up_the_node),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
