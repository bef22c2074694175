/* Requests over TCP that a connection did not carry reach the ROS on the next one. Time stands still, so no
 * retry helps. */
#include "data_tcp_ends.h"

/* An SFI in pull, with event 0 assigned. */
static void pull_open(struct sfi_end *e, uint64_t now_ns)
{
        *e = (struct sfi_end){.pull = true};
        sfi_end_open(e, now_ns);
        assert_true(sfi_receive(e->receiver.core, now_ns, sample_assign(0, 0)));
        sfi_end_turn(e, now_ns);
        assert_int_equal(sfi_counts(e->receiver.core).assigned, 1);
}

TEST(a_request_waits_for_the_first_connection)
{
        _cleanup_(pair_close) struct pair p = {.now_ns = NS_PER_S};

        pull_open(&p.sfi, p.now_ns);
        for (int i = 0; i < 5; i++)
                sfi_end_turn(&p.sfi, p.now_ns);
        ros_end_open(&p.ros, 3000, p.now_ns);
        assert_int_equal(build_next(&p, 3000), 0);
        assert_fields(sfi_event_counts(p.sfi.receiver.core), retried, 0, duplicate, 0);
}

/* The requests that a connection brings to a ROS played by the test. */
struct inbox {
        int fd;
        size_t n;
        uint8_t bytes[65536];
};

/* Receives until a request for the event comes; returns the number of its retry. */
static uint32_t next_request(struct sfi_end *e, struct inbox *in, uint64_t event)
{
        static struct message m;
        struct message_header h;
        uint32_t check;

        for (int i = 0; i < 5000; i++) {
                ssize_t got = recv(in->fd, in->bytes + in->n, sizeof in->bytes - in->n, MSG_DONTWAIT);

                assert_true(got > 0 || (got < 0 && errno == EAGAIN));
                in->n += got > 0 ? (size_t)got : 0;
                while (in->n >= MESSAGE_HEADER_BYTES) {
                        size_t size;

                        assert_int_equal(message_header_decode(&h, in->bytes, in->n, &check), MESSAGE_OK);
                        size = MESSAGE_HEADER_BYTES + h.payload_bytes;
                        if (in->n < size)
                                break;
                        assert_int_equal(message_decode(&m, in->bytes, size), MESSAGE_OK);
                        assert_int_equal(m.header.type, MESSAGE_REQUEST);
                        in->n -= size;
                        memmove(in->bytes, in->bytes + size, in->n);
                        if (m.request.entries[0].event == event)
                                return m.request.entries[0].again;
                }
                sfi_end_turn(e, NS_PER_S);
        }
        fail_msg("no request for the event comes");
        return 0;
}

TEST(a_new_connection_brings_the_requests_of_the_old_one)
{
        static struct inbox in;
        _cleanup_(sfi_end_close) struct sfi_end e;

        pull_open(&e, NS_PER_S);
        for (uint32_t connection = 0; connection < 3; connection++) {
                in = (struct inbox){.fd = dial()};
                introduce(in.fd, SAMPLE_COOKIE);
                assert_int_equal(next_request(&e, &in, 0), MIN(connection, 1u));
                close(in.fd);
        }
        assert_int_equal(sfi_counts(e.receiver.core).retried, 2);
}

/* The ROS does not read for so long that the SFI has no room for further requests. */
TEST(requests_that_found_no_room_are_repeated)
{
        static struct message m;
        static struct inbox in;
        _cleanup_(sfi_end_close) struct sfi_end e;
        uint64_t refused = 0;

        pull_open(&e, NS_PER_S);
        in = (struct inbox){.fd = dial()};
        introduce(in.fd, SAMPLE_COOKIE);
        assert_int_equal(next_request(&e, &in, 0), 0);
        m.header = (struct message_header){
                .cookie = SAMPLE_COOKIE, .sender_role = ROLE_SFI, .type = MESSAGE_REQUEST};
        for (m.n = 0; m.n < 40; m.n++)
                m.request.entries[m.n] = (struct request_entry){
                        .event = 1000 + 1000 * m.n, .l1_id = 77 * (uint32_t)m.n, .to_bytes = UINT32_MAX};
        for (int i = 0; i < 1000000 && refused == 0; i++) {
                e.receiver.ops->request(&e.receiver, (struct message_to){ROLE_ROS, 0}, &m);
                refused = stats_get(&e.sample.stats->send_blocked);
        }
        assert_int_equal(refused, 1);
        assert_int_equal(next_request(&e, &in, 0), 1);
        close(in.fd);
}

/* Another process that introduces itself as the ROS makes the SFI close the ROS's connection. */
TEST(a_fragment_survives_a_connection_that_breaks)
{
        const uint32_t bytes = 3u << 20; /* several messages */
        _cleanup_(pair_close) struct pair p = {.now_ns = NS_PER_S};
        _cleanup_close_ int fd;

        pull_open(&p.sfi, p.now_ns);
        ros_end_open(&p.ros, bytes, p.now_ns);
        /* A message and a part of the next one. */
        for (int i = 0; i < 5000 && stats_get(&p.ros.sample.stats->packets_sent) < 2; i++) {
                ros_end_turn(&p.ros, p.now_ns);
                sfi_end_turn(&p.sfi, p.now_ns);
        }
        assert_int_equal(stats_get(&p.ros.sample.stats->packets_sent), 2);
        fd = dial();
        introduce(fd, SAMPLE_COOKIE);
        for (int i = 0; i < 5000 && stats_get(&p.ros.sample.stats->reconnects) == 0; i++) {
                ros_end_turn(&p.ros, p.now_ns + (uint64_t)i * NS_PER_MS);
                sfi_end_turn(&p.sfi, p.now_ns);
        }
        p.now_ns = NS_PER_S;
        assert_int_equal(build_next(&p, bytes), 0);
}

static void keep_alive(struct ros_end *e, uint64_t now_ns, uint64_t sfi_live)
{
        static struct message m;
        static uint32_t sequence;

        m.header = (struct message_header){.cookie = SAMPLE_COOKIE,
                                           .sender_role = ROLE_DFM,
                                           .type = MESSAGE_KEEP_ALIVE,
                                           .transaction = sequence++};
        m.dfm = SAMPLE_DFM;
        m.keep_alive.state = RUN_RUNNING;
        m.keep_alive.sfi_live[0] = sfi_live;
        assert_true(ros_receive(e->sender.core, now_ns, &m));
        ros_end_turn(e, now_ns);
}

/* A ROS that tried in vain for long does not wait for its next attempt. */
TEST(an_sfi_that_joins_is_connected_at_once)
{
        _cleanup_(pair_close) struct pair p = {.now_ns = NS_PER_S};

        ros_end_open(&p.ros, 3000, p.now_ns);
        for (int i = 0; i < 40; i++, p.now_ns += 6 * NS_PER_S)
                ros_end_turn(&p.ros, p.now_ns);
        keep_alive(&p.ros, p.now_ns, 0);
        for (int i = 0; i < 20; i++)
                ros_end_turn(&p.ros, p.now_ns);
        pull_open(&p.sfi, p.now_ns);
        keep_alive(&p.ros, p.now_ns, 1);
        assert_int_equal(build_next(&p, 3000), 0);
}
