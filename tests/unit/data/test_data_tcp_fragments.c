/* Fragments over TCP between a real ROS and a real SFI, and with one of them played by the test. */
#include "../test.h"

#include <netinet/tcp.h>
#include <sys/socket.h>

#include "base/pattern.h"
#include "data/data_receive.h"
#include "data/data_send.h"
#include "net/tcp.h"
#include "busy_sockets.h"
#include "data_tcp_ends.h"

static int paced_fd = -1;

uint32_t __real_tcp_segment_bytes(int fd);
void __real_tcp_pace(int fd, uint64_t bytes_per_s);

void __wrap_tcp_pace(int fd, uint64_t bytes_per_s)
{
        paced_fd = fd;
        __real_tcp_pace(fd, bytes_per_s);
}

/* As on Ethernet. */
uint32_t __wrap_tcp_segment_bytes(int fd)
{
        assert_in_range(__real_tcp_segment_bytes(fd), 1448, 65483);
        return 1448;
}

/* ---- Both ends are real ---- */

TEST(fragments_arrive_byte_for_byte)
{
        /* Less than a block, several fragments per message, several messages per fragment. */
        static const uint32_t sizes[] = {5, 3000, 3u << 20};
        struct pair p;

        for (size_t k = 0; k < ARRAY_SIZE(sizes); k++) {
                pair_open(&p, sizes[k]);
                for (uint64_t event = 0; event < 4; event++)
                        assign(&p, event);
                for (uint64_t event = 0; event < 4; event++)
                        assert_int_equal(build_next(&p, sizes[k]), event);
                assert_int_equal(ros_counts(p.ros.sender.core)->fragments_sent, 4);
                assert_stats(p.sfi.sample.stats, packets_received,
                             stats_get(&p.ros.sample.stats->packets_sent), packets_malformed, 0);
                pair_close(&p);
        }
}

/* It is larger than the place for bytes that are discarded; the next one is read from its first byte on. */
TEST(a_large_fragment_that_comes_again_is_discarded)
{
        const uint32_t bytes = 1 << 20;
        static struct message m;
        _cleanup_(pair_close) struct pair p;

        pair_open(&p, bytes);
        assign(&p, 0);
        build_next(&p, bytes);
        m.header = (struct message_header){
                .cookie = SAMPLE_COOKIE, .sender_role = ROLE_SFI, .type = MESSAGE_REQUEST};
        m.n = 1;
        m.request.entries[0] = (struct request_entry){.to_bytes = UINT32_MAX, .again = 1};
        p.sfi.receiver.ops->request(&p.sfi.receiver, (struct message_to){ROLE_ROS, MESSAGE_TO_ALL}, &m);
        for (int i = 0; i < 5000 && ros_counts(p.ros.sender.core)->fragments_sent < 2; i++) {
                sfi_end_turn(&p.sfi, p.now_ns);
                ros_end_turn(&p.ros, p.now_ns);
        }
        assert_int_equal(ros_counts(p.ros.sender.core)->fragments_sent, 2);
        assign(&p, 1);
        assert_int_equal(build_next(&p, bytes), 1);
}

/* In pull, the ROS learns of an event only by the request. */
TEST(a_request_reaches_the_ros_on_the_same_connection)
{
        static struct message m;
        _cleanup_(pair_close) struct pair p;

        pair_open(&p, 3000);
        assign(&p, 0);
        build_next(&p, 3000);
        assert_true(sfi_receive(p.sfi.receiver.core, p.now_ns, sample_assign(1, 0)));
        m.header = (struct message_header){
                .cookie = SAMPLE_COOKIE, .sender_role = ROLE_SFI, .type = MESSAGE_REQUEST};
        m.n = 1;
        m.request.entries[0] = (struct request_entry){.event = 1, .l1_id = 1, .to_bytes = UINT32_MAX};
        p.sfi.receiver.ops->request(&p.sfi.receiver, (struct message_to){ROLE_ROS, MESSAGE_TO_ALL}, &m);
        assert_int_equal(build_next(&p, 3000), 1);
}

/* What the kernel has for the connection that was paced last. */
static uint32_t pace_bytes_per_s(void)
{
        uint32_t pace = 0;
        socklen_t size = sizeof pace;

        assert_int_equal(getsockopt(paced_fd, SOL_SOCKET, SO_MAX_PACING_RATE, &pace, &size), 0);
        return pace;
}

TEST(the_kernel_paces_each_connection_at_the_planned_rate)
{
        _cleanup_(pair_close) struct pair p;
        _cleanup_close_ int fd;

        paced_fd = -1;
        pair_open(&p, 3000);
        assign(&p, 0);
        build_next(&p, 3000);
        assert_int_equal(paced_fd, -1);
        p.ros.sender.pace_bps = UINT64_C(8000000000);
        p.ros.sender.pace_overhead_bytes = 24;
        assign(&p, 1);
        build_next(&p, 3000);
        /* 1448 bytes of payload in a frame of 1514, and 24 bytes. */
        assert_int_equal(pace_bytes_per_s(), UINT64_C(1000000000) * 1448 / (1514 + 24));
        p.ros.sender.pace_bps /= 2;
        ros_end_turn(&p.ros, p.now_ns);
        assert_int_equal(pace_bytes_per_s(), UINT64_C(500000000) * 1448 / (1514 + 24));

        /* So is the connection after one that broke. */
        fd = dial();
        introduce(fd, SAMPLE_COOKIE);
        paced_fd = -1;
        for (int i = 0; i < 5000 && stats_get(&p.ros.sample.stats->reconnects) == 0; i++) {
                ros_end_turn(&p.ros, p.now_ns + (uint64_t)i * NS_PER_MS);
                sfi_end_turn(&p.sfi, p.now_ns);
        }
        assert_int_equal(pace_bytes_per_s(), UINT64_C(500000000) * 1448 / (1514 + 24));
}

/* Another process that introduces itself as the ROS makes the SFI close the ROS's connection. */
TEST(a_broken_connection_is_reopened)
{
        _cleanup_(pair_close) struct pair p;
        _cleanup_close_ int fd;

        pair_open(&p, 3000);
        assign(&p, 0);
        build_next(&p, 3000);
        fd = dial();
        introduce(fd, SAMPLE_COOKIE);
        for (int i = 0; i < 50; i++) {
                sfi_end_turn(&p.sfi, p.now_ns);
                ros_end_turn(&p.ros, p.now_ns);
        }
        assert_int_equal(stats_get(&p.ros.sample.stats->reconnects), 0);
        assign(&p, 1); /* waits for the connection */
        p.now_ns += 10 * NS_PER_S;
        assert_int_equal(build_next(&p, 3000), 1);
        assert_int_equal(stats_get(&p.ros.sample.stats->reconnects), 1);
}

/* An SFI that does not read stops the ROS, which continues where it stopped. */
TEST(a_slow_sfi_loses_nothing)
{
        const uint32_t bytes = 2 << 20;
        uint64_t sent;
        _cleanup_(pair_close) struct pair p;

        pair_open(&p, bytes);
        assign(&p, 0);
        build_next(&p, bytes);
        for (uint64_t event = 1; event < 4; event++)
                assign(&p, event);
        for (int i = 0; i < 50; i++)
                ros_end_turn(&p.ros, p.now_ns);
        sent = stats_get(&p.ros.sample.stats->bytes_sent);
        assert_true(stats_get(&p.ros.sample.stats->send_blocked) > 0);
        for (int i = 0; i < 20; i++)
                ros_end_turn(&p.ros, p.now_ns);
        assert_int_equal(stats_get(&p.ros.sample.stats->bytes_sent), sent);
        for (uint64_t event = 1; event < 4; event++)
                assert_int_equal(build_next(&p, bytes), event);
}

/* ---- The test is the ROS ---- */

static struct chunk_job make_job(uint64_t event, uint32_t bytes)
{
        static uint8_t payloads[8][4096];
        uint8_t *payload = payloads[event % 8];

        assert_true(bytes <= sizeof payloads[0]);
        pattern_fill(pattern_key(SEED, 0, event), payload, 0, bytes);
        return (struct chunk_job){
                .chunk = {.event = event, .l1_id = (uint32_t)event, .fragment_bytes = bytes},
                .to_bytes = bytes,
                .payload = payload,
        };
}

/* A data message with these fragments, in `to`; returns its size. */
static size_t make_message(uint8_t *to, size_t size, const struct chunk_job *jobs, size_t n_jobs)
{
        struct message_header header = {
                .cookie = SAMPLE_COOKIE, .sender_role = ROLE_ROS, .type = MESSAGE_FRAGMENTS};
        const struct chunk_datagram *d;
        struct chunk_packer *packer;
        size_t n = 0;

        assert_int_equal(chunk_packer_new(&packer, size, 1), 0);
        chunk_packer_set_stream(packer);
        assert_int_equal(chunk_pack(packer, &header, jobs, n_jobs, &d), 1);
        assert_int_equal(d->jobs_done, n_jobs);
        for (size_t i = 0; i < d->n_iov; i++) {
                memcpy(to + n, d->iov[i].iov_base, d->iov[i].iov_len);
                n += d->iov[i].iov_len;
        }
        chunk_packer_free(packer);
        return n;
}

static size_t make_fragment(uint8_t *to, size_t size, uint64_t event, uint32_t bytes)
{
        struct chunk_job job = make_job(event, bytes);

        return make_message(to, size, &job, 1);
}

static bool is_closed(struct sfi_end *e, int fd)
{
        char byte;
        ssize_t n = -1;

        for (int i = 0; i < 20; i++) {
                sfi_end_turn(e, NS_PER_S);
                n = recv(fd, &byte, 1, MSG_DONTWAIT);
                if (n == 0 || (n < 0 && errno != EAGAIN))
                        return true;
        }
        return false;
}

/* The bytes of the event stay until the next turn. */
static bool pop_built(struct sfi_end *e, struct sfi_built *ret)
{
        uint32_t slot;

        for (int i = 0; i < 20; i++) {
                sfi_end_turn(e, NS_PER_S);
                if (sfi_pop_built(e->receiver.core, &slot, 1) == 1) {
                        sfi_built_event(e->receiver.core, slot, ret);
                        sfi_written(e->receiver.core, NS_PER_S, slot, false);
                        return true;
                }
        }
        return false;
}

static bool has_built(struct sfi_end *e)
{
        struct sfi_built built;

        return pop_built(e, &built);
}

TEST(messages_may_arrive_byte_by_byte)
{
        _cleanup_(sfi_end_close) struct sfi_end e = {};
        uint8_t bytes[1024];
        size_t n;
        int fd, on = 1;

        sfi_end_open(&e, NS_PER_S);
        assert_true(sfi_receive(e.receiver.core, NS_PER_S, sample_assign(0, 0)));
        fd = dial();
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
        introduce(fd, SAMPLE_COOKIE);
        n = make_fragment(bytes, sizeof bytes, 0, 100);
        for (size_t i = 0; i < n; i++) {
                assert_int_equal(send(fd, bytes + i, 1, MSG_NOSIGNAL), 1);
                sfi_end_turn(&e, NS_PER_S);
        }
        assert_true(has_built(&e));
        close(fd);
}

/* Chunks of a message find their places together, wherever the stream is cut: three that are stored; after
 * the first, one that is not and an empty one. Before it comes a message without any payload. */
TEST_EACH(chunks_of_a_message_may_be_cut_anywhere, part, 3)
{
        _cleanup_(sfi_end_close) struct sfi_end e = {};
        const struct chunk_job jobs[] = {make_job(0, 0), make_job(1, 2000), make_job(2, 3000),
                                         make_job(3, 0), make_job(4, 4000), make_job(5, 2000)};
        struct chunk_job sent[ARRAY_SIZE(jobs)];
        uint8_t bytes[16384];
        struct sfi_built built;
        size_t n;
        _cleanup_close_ int fd;

        sfi_end_open(&e, NS_PER_S);
        for (uint64_t event = 0; event < ARRAY_SIZE(jobs); event++)
                assert_true(sfi_receive(e.receiver.core, NS_PER_S, sample_assign(event, 0)));
        fd = dial();
        introduce(fd, SAMPLE_COOKIE);
        memcpy(sent, jobs, sizeof jobs);
        sent[2].chunk.l1_id = 99; /* of another trigger */
        n = make_message(bytes, sizeof bytes, sent, 1);
        n += make_message(bytes + n, sizeof bytes - n, sent + 1, ARRAY_SIZE(sent) - 1);
        for (size_t at = 0, piece = (size_t[]){100, 1999, sizeof bytes}[part]; at < n; at += piece) {
                size_t k = MIN(piece, n - at);

                assert_int_equal(send(fd, bytes + at, k, MSG_NOSIGNAL), k);
                sfi_end_turn(&e, NS_PER_S);
        }
        for (uint64_t event = 0; event < ARRAY_SIZE(jobs); event++) {
                if (event == 2)
                        continue;
                assert_true(pop_built(&e, &built));
                assert_int_equal(built.event, event);
                assert_int_equal(built.fragments[0].bytes, jobs[event].to_bytes);
                if (jobs[event].to_bytes > 0)
                        assert_memory_equal(e.receiver.buffer + built.fragments[0].at, jobs[event].payload,
                                            jobs[event].to_bytes);
        }
        assert_int_equal(sfi_counts(e.receiver.core).mismatched, 1);
}

TEST(payload_of_an_ended_event_is_skipped)
{
        _cleanup_(sfi_end_close) struct sfi_end e = {};
        uint8_t bytes[8192];
        size_t n;
        _cleanup_close_ int fd;

        sfi_end_open(&e, NS_PER_S);
        assert_true(sfi_receive(e.receiver.core, NS_PER_S, sample_assign(0, 0)));
        assert_true(sfi_receive(e.receiver.core, NS_PER_S, sample_assign(1, 0)));
        fd = dial();
        introduce(fd, SAMPLE_COOKIE);
        n = make_fragment(bytes, sizeof bytes, 0, 2000);
        assert_int_equal(send(fd, bytes, n, MSG_NOSIGNAL), n);
        assert_true(has_built(&e));
        assert_int_equal(send(fd, bytes, 500, MSG_NOSIGNAL), 500); /* in two reads */
        assert_false(has_built(&e));
        assert_int_equal(send(fd, bytes + 500, n - 500, MSG_NOSIGNAL), n - 500);
        assert_false(has_built(&e));
        assert_int_equal(sfi_counts(e.receiver.core).late, 1);
        n = make_fragment(bytes, sizeof bytes, 1, 2000);
        assert_int_equal(send(fd, bytes, n, MSG_NOSIGNAL), n);
        assert_true(has_built(&e));
}

/* Another event may have the memory then. */
TEST(payload_of_an_event_that_ends_meanwhile_is_not_stored)
{
        _cleanup_(sfi_end_close) struct sfi_end e = {};
        uint64_t later_ns = NS_PER_S + sample_sfi().timeout_ns;
        uint8_t bytes[8192];
        struct message_to to;
        struct message m;
        uint32_t slot;
        size_t n;
        _cleanup_close_ int fd = -1;

        sfi_end_open(&e, NS_PER_S);
        assert_true(sfi_receive(e.receiver.core, NS_PER_S, sample_assign(0, 0)));
        fd = dial();
        introduce(fd, SAMPLE_COOKIE);
        n = make_fragment(bytes, sizeof bytes, 0, 2000);
        assert_int_equal(send(fd, bytes, 500, MSG_NOSIGNAL), 500);
        assert_false(has_built(&e));
        while (sfi_step(e.receiver.core, later_ns, &to, &m))
                ;
        assert_int_equal(sfi_pop_built(e.receiver.core, &slot, 1), 1);
        sfi_written(e.receiver.core, later_ns, slot, false);
        memset(e.receiver.buffer, 0xaa, BUFFER_BYTES);
        assert_int_equal(send(fd, bytes + 500, n - 500, MSG_NOSIGNAL), n - 500);
        for (int i = 0; i < 20; i++)
                sfi_end_turn(&e, later_ns);
        assert_int_equal(e.receiver.buffer[0], 0xaa);
        assert_memory_equal(e.receiver.buffer, e.receiver.buffer + 1, BUFFER_BYTES - 1);
        /* The connection goes on. */
        assert_true(sfi_receive(e.receiver.core, later_ns, sample_assign(1, 0)));
        n = make_fragment(bytes, sizeof bytes, 1, 2000);
        assert_int_equal(send(fd, bytes, n, MSG_NOSIGNAL), n);
        assert_true(has_built(&e));
}

TEST(another_run_or_a_contradiction_ends_the_connection)
{
        _cleanup_(sfi_end_close) struct sfi_end e = {};
        uint8_t bytes[1024];
        size_t n;
        int fd;

        sfi_end_open(&e, NS_PER_S);
        fd = dial();
        introduce(fd, SAMPLE_COOKIE + 1);
        assert_true(is_closed(&e, fd));
        assert_int_equal(stats_get(&e.sample.stats->packets_foreign), 1);
        close(fd);
        fd = dial();
        introduce(fd, SAMPLE_COOKIE);
        n = make_fragment(bytes, sizeof bytes, 0, 100);
        bytes[8] ^= 1; /* the check word no longer matches */
        assert_int_equal(send(fd, bytes, n, MSG_NOSIGNAL), n);
        assert_true(is_closed(&e, fd));
        assert_int_equal(stats_get(&e.sample.stats->packets_malformed), 1);
        close(fd);
}

/* The listener, and both ends of the connection. One to SFI 2 counts until it is refused. */
TEST(all_sockets_are_polled_if_configured)
{
        struct sfi_end sfi = {};
        struct ros_end ros = {};

        busy_sockets_begin();
        sfi_end_open(&sfi, NS_PER_S);
        ros_end_open(&ros, 100, NS_PER_S);
        for (int i = 0; i < 5000 && busy_sockets() != 3; i++) {
                ros_end_turn(&ros, NS_PER_S);
                sfi_end_turn(&sfi, NS_PER_S);
        }
        assert_int_equal(busy_sockets(), 3);
        ros_end_close(&ros);
        sfi_end_close(&sfi);
        socket_set_busy_poll(0);
}

/* ---- The test is the SFI ---- */

TEST(the_ros_introduces_itself_before_it_sends)
{
        static struct message m;
        struct net_address local, from;
        _cleanup_(ros_end_close) struct ros_end e = {};
        struct message_header h;
        struct chunk_reader data;
        uint8_t bytes[4096];
        size_t n = 0, introduction;
        uint32_t check;
        _cleanup_close_ int listener, fd = -1;

        assert_int_equal(net_address_parse(&local, SFI1, DATA_PORT), 0);
        listener = tcp_listen(&local, 0);
        assert_true(listener >= 0);
        ros_end_open(&e, 100, NS_PER_S);
        assert_true(ros_receive(e.sender.core, NS_PER_S, sample_announce(0, 0)));
        for (int i = 0; i < 5000 && n < 100; i++) {
                ssize_t got;

                ros_end_turn(&e, NS_PER_S);
                if (fd < 0)
                        fd = tcp_accept(listener, 0, &from);
                got = fd < 0 ? -1 : recv(fd, bytes + n, sizeof bytes - n, MSG_DONTWAIT);
                n += got > 0 ? (size_t)got : 0;
        }
        assert_int_equal(message_header_decode(&h, bytes, n, &check), MESSAGE_OK);
        assert_fields(&h, type, MESSAGE_TOTALS, sender_role, ROLE_ROS, sender_index, 0);
        introduction = MESSAGE_HEADER_BYTES + h.payload_bytes;
        assert_int_equal(message_decode(&m, bytes, introduction), MESSAGE_OK);
        assert_int_equal(m.totals.datagrams, 0);
        assert_int_equal(chunk_reader_init(&data, bytes + introduction, n - introduction, SAMPLE_COOKIE),
                         MESSAGE_OK);
        assert_fields(&data.header, payload_bytes, 100, queued_bytes, 0);
}
