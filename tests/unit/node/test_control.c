/* The control socket accepts messages only from the addresses of their senders, and a flood from strangers
 * does not stall the node. */
#include <sys/socket.h>

#include "../test.h"

#include "net/endpoint.h"
#include "node_sample.h"

#define DFM sample_at(1)
#define ROS1 sample_at(2)
#define FOREIGN_SENDER sample_at(77)
#define PORT 46910

static struct node node;
static struct endpoint *peer;

/* The node, and a socket that talks to it from that address. */
static void open_as(const char *name, const char *from, uint16_t port)
{
        struct udp_config config = {.send_buffer_bytes = 1 << 20};

        sample_node(&node, name, "udp");
        node.control.incarnation = SAMPLE_DFM;
        assert_int_equal(control_open(&node.control, node.scenario, node.self, node.stats, node.loop), 0);
        assert_int_equal(net_address_parse(&config.local, from, port), 0);
        assert_int_equal(endpoint_new_udp(&peer, &config), 0);
}

static int end(void **state)
{
        endpoint_free(peer);
        control_close(&node.control);
        sample_node_free(&node);
        return 0;
}

static void send_bytes(uint8_t *bytes, size_t n)
{
        struct iovec iov = {bytes, n};
        struct net_address to;

        assert_int_equal(net_address_parse(&to, DFM, PORT), 0);
        assert_int_equal(endpoint_send(peer, &(struct outgoing){&iov, 1, (uint32_t)n, &to}, 1), 1);
}

/* Sends an Alive that names ROS 1 of the scenario as its sender. */
static void send_alive(void)
{
        static struct message m;
        uint8_t bytes[256];

        m.header = (struct message_header){
                .cookie = SAMPLE_COOKIE, .sender_role = ROLE_ROS, .type = MESSAGE_ALIVE};
        m.alive.state = RUN_RUNNING;
        send_bytes(bytes, message_encode(&m, bytes, sizeof bytes));
}

/* Takes one turn; returns the number of messages that it accepted. */
static unsigned turn(void)
{
        unsigned n = 0;

        assert_int_equal(loop_wait(node.loop, clock_now_ns() + 20 * NS_PER_MS), 0);
        control_begin_turn(&node.control);
        while (control_receive(&node.control))
                n++;
        return n;
}

static unsigned turns_until(const _Atomic uint64_t *counter, uint64_t wanted)
{
        unsigned got = 0;

        for (int i = 0; i < 500 && stats_get(counter) < wanted; i++)
                got += turn();
        assert_int_equal(stats_get(counter), wanted);
        return got;
}

TEST_WITH(a_message_from_its_senders_address_is_accepted, NULL, end)
{
        open_as("dfm", ROS1, PORT);
        send_alive();
        assert_int_equal(turns_until(&node.stats->control_received, 1), 1);
        assert_false(node.control.foreign_sender.is_new);
}

TEST_EACH(a_message_from_another_address_or_port_is_foreign, port, 2)
{
        open_as("dfm", port ? ROS1 : FOREIGN_SENDER, port ? 0 : PORT);
        send_alive();
        assert_int_equal(turns_until(&node.stats->packets_foreign, 1), 0);
        assert_true(node.control.foreign_sender.is_new);
        assert_int_equal(node.control.foreign_sender.role, ROLE_ROS);
        end(NULL);
}

static size_t send_probe(uint32_t padding_bytes, uint8_t *bytes, size_t size)
{
        static struct message m;
        size_t n;

        m = (struct message){.header = {.cookie = 99, .sender_role = ROLE_ROS, .type = MESSAGE_PROBE}};
        m.probe.padding_bytes = padding_bytes;
        n = message_encode(&m, bytes, size);
        assert_int_equal(n, MESSAGE_PROBE_BYTES + padding_bytes);
        send_bytes(bytes, n);
        return n;
}

/* The answer is as long as the Probe, up to a whole datagram; it goes to nodes of the scenario alone. */
TEST_WITH(a_probe_is_answered_with_the_same_length, NULL, end)
{
        static struct message answer;
        uint8_t bytes[2048];
        size_t n;

        open_as("dfm", ROS1, PORT);
        for (uint32_t padding = 0; padding < 2; padding++) {
                n = send_probe(padding * (uint32_t)(node.control.message_bytes - MESSAGE_PROBE_BYTES), bytes,
                               sizeof bytes);
                assert_int_equal(turns_until(&node.stats->control_received, 1 + padding), 0);
                assert_int_equal(recv(peer->fd, bytes, sizeof bytes, 0), n);
                assert_int_equal(message_decode(&answer, bytes, n), MESSAGE_OK);
                assert_int_equal(answer.header.sender_role, ROLE_DFM);
                assert_true(answer.header.cookie == 99 && answer.probe.answers);
        }
        end(NULL);
        open_as("dfm", FOREIGN_SENDER, PORT);
        send_probe(0, bytes, sizeof bytes);
        assert_int_equal(turns_until(&node.stats->packets_foreign, 1), 0);
        assert_int_equal(recv(peer->fd, bytes, sizeof bytes, MSG_DONTWAIT), -1);
}

/* Strangers send more datagrams than a turn reads. The rest waits for the next turn, which begins at once. */
TEST_WITH(a_flood_does_not_stall_the_node, NULL, end)
{
        uint64_t first;

        open_as("dfm", FOREIGN_SENDER, PORT);
        for (int i = 0; i < 1500; i++)
                send_alive();
        turn();
        first = stats_get(&node.stats->packets_foreign);
        assert_true(first > 0 && first < 1500);
        assert_true(control_has_more(&node.control));
        turns_until(&node.stats->packets_foreign, 1500);
        turn();
        assert_false(control_has_more(&node.control));
}

/* The node answers, so that a node with a wrong address can report its mistake. */
TEST_WITH(a_join_from_a_wrong_address_is_answered, NULL, end)
{
        static struct message m;
        uint8_t bytes[1472];
        struct datagram answer;

        open_as("dfm", FOREIGN_SENDER, PORT);
        m.header = (struct message_header){.sender_role = ROLE_ROS, .type = MESSAGE_JOIN};
        m.join.incarnation = 5;
        send_bytes(bytes, message_encode(&m, bytes, sizeof bytes));
        assert_int_equal(turns_until(&node.stats->packets_foreign, 1), 0);
        assert_int_equal(endpoint_receive(peer, &answer, 1), 1);
        assert_int_equal(message_decode(&m, answer.bytes, answer.size_bytes), MESSAGE_OK);
        assert_int_equal(m.header.type, MESSAGE_WELCOME);
        assert_fields(&m.welcome, verdict, WELCOME_ADDRESS, incarnation, 5);
        assert_int_equal(m.dfm, SAMPLE_DFM);
}

/* The sockets of other nodes. */
static void open_others(struct endpoint **ret, const char *const *addresses, size_t n)
{
        for (size_t i = 0; i < n; i++) {
                struct udp_config config = {};

                assert_int_equal(net_address_parse(&config.local, addresses[i], PORT), 0);
                assert_int_equal(endpoint_new_udp(&ret[i], &config), 0);
        }
}

/* Without a multicast group, the DFM sends to each ROS in turn; what is for all nodes goes to each SFI in any
 * case. */
TEST_WITH(a_message_to_all_reaches_each_node, NULL, end)
{
        const char *const addresses[] = {ROS1, sample_at(3), sample_at(4), sample_at(5)};
        static struct message m;
        struct endpoint *nodes[ARRAY_SIZE(addresses)];
        struct datagram d;

        open_as("dfm", FOREIGN_SENDER, PORT);
        open_others(nodes, addresses, ARRAY_SIZE(addresses));
        m.header = (struct message_header){
                .cookie = SAMPLE_COOKIE, .sender_role = ROLE_DFM, .type = MESSAGE_KEEP_ALIVE};
        m.keep_alive.state = RUN_RUNNING;
        control_send(&node.control, (struct message_to){ROLE_ROS, MESSAGE_TO_ALL}, &m, 0);
        control_send(&node.control, (struct message_to){ROLE_SFI, 1}, &m, 0);
        control_flush(&node.control);
        assert_int_equal(stats_get(&node.stats->control_sent), 5);
        for (size_t i = 0; i < ARRAY_SIZE(addresses); i++) {
                assert_int_equal(endpoint_receive(nodes[i], &d, 1), 1);
                assert_int_equal(message_decode(&m, d.bytes, d.size_bytes), MESSAGE_OK);
                assert_int_equal(endpoint_receive(nodes[i], &d, 1), i == 3 ? 1 : 0);
                endpoint_free(nodes[i]);
        }
}

/* Whatever its type is. */
TEST_WITH(a_message_of_an_sfi_to_all_is_for_the_ross, NULL, end)
{
        const char *const addresses[] = {ROS1, sample_at(3), sample_at(5)};
        static struct message m;
        struct endpoint *nodes[ARRAY_SIZE(addresses)];
        struct datagram d;

        open_as("sfi1", FOREIGN_SENDER, PORT);
        open_others(nodes, addresses, ARRAY_SIZE(addresses));
        m.header = (struct message_header){
                .cookie = SAMPLE_COOKIE, .sender_role = ROLE_SFI, .type = MESSAGE_TOTALS};
        control_send(&node.control, (struct message_to){ROLE_ROS, MESSAGE_TO_ALL}, &m, 0);
        control_flush(&node.control);
        assert_int_equal(stats_get(&node.stats->control_sent), 2);
        for (size_t i = 0; i < ARRAY_SIZE(addresses); i++) {
                assert_int_equal(endpoint_receive(nodes[i], &d, 1), i < 2);
                endpoint_free(nodes[i]);
        }
}
