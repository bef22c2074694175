/* The delay line of a long path, between two pairs of sockets and at times of the test's choice. */
#include "../test.h"

#include <netinet/in.h>
#include <netinet/ip.h>
#include <sys/socket.h>
#include <unistd.h>

#include "run/long_path.h"

#define FRAME_BYTES 100u

struct fixture {
        struct delay_line line;
        struct delay_line_counts counts;
        int in, out; /* the test's ends */
};

static void open_line(struct fixture *f, double loss)
{
        int in[2], out[2];

        *f = (struct fixture){};
        assert_int_equal(socketpair(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK, 0, in), 0);
        assert_int_equal(socketpair(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK, 0, out), 0);
        f->in = in[0];
        f->out = out[0];
        f->line = (struct delay_line){.from = in[1],
                                      .to = out[1],
                                      .delay_ns = 50 * NS_PER_MS,
                                      .loss = loss,
                                      .frame_bytes = FRAME_BYTES,
                                      .counts = &f->counts};
        assert_int_equal(delay_line_init(&f->line), 0);
}

static void close_line(struct fixture *f)
{
        delay_line_fini(&f->line);
        close(f->in);
        close(f->out);
        close(f->line.from);
        close(f->line.to);
}

/* An IP packet whose last byte is `mark`. */
static void put(const struct fixture *f, uint8_t protocol, uint8_t mark)
{
        struct iphdr ip = {.version = 4, .ihl = 5, .protocol = protocol};
        uint8_t frame[64] = {};

        memcpy(frame, &ip, sizeof ip);
        frame[sizeof frame - 1] = mark;
        assert_int_equal(write(f->in, frame, sizeof frame), sizeof frame);
}

/* The mark of the next packet that came out; -1: none. */
static int next(const struct fixture *f)
{
        uint8_t frame[FRAME_BYTES];
        ssize_t n = read(f->out, frame, sizeof frame);

        return n == 64 ? frame[63] : -1;
}

TEST(packets_leave_in_order_after_the_delay)
{
        struct fixture f;

        open_line(&f, 0);
        put(&f, IPPROTO_UDP, 1);
        delay_line_turn(&f.line, NS_PER_S);
        put(&f, IPPROTO_TCP, 2);
        delay_line_turn(&f.line, NS_PER_S + 10 * NS_PER_MS);
        delay_line_turn(&f.line, NS_PER_S + 50 * NS_PER_MS - 1);
        assert_int_equal(next(&f), -1);
        delay_line_turn(&f.line, NS_PER_S + 50 * NS_PER_MS);
        assert_int_equal(next(&f), 1);
        assert_int_equal(next(&f), -1);
        delay_line_turn(&f.line, NS_PER_S + 60 * NS_PER_MS);
        assert_int_equal(next(&f), 2);
        assert_int_equal(atomic_load(&f.counts.carried), 1);
        assert_int_equal(atomic_load(&f.counts.lost), 0);
        assert_int_equal(atomic_load(&f.counts.failed), 0);
        close_line(&f);
}

/* Control packets always arrive, and each lost packet is counted. */
TEST(some_data_are_lost)
{
        struct fixture f;
        unsigned udp = 0, tcp = 0;

        open_line(&f, 0.25);
        for (unsigned i = 0; i < 4000; i++) {
                int mark;

                put(&f, i % 4 == 0 ? IPPROTO_TCP : IPPROTO_UDP, i % 4 == 0);
                delay_line_turn(&f.line, i * NS_PER_MS);
                while ((mark = next(&f)) >= 0) {
                        udp += mark == 0;
                        tcp += mark == 1;
                }
        }
        delay_line_turn(&f.line, 5 * NS_PER_S);
        for (int mark; (mark = next(&f)) >= 0;) {
                udp += mark == 0;
                tcp += mark == 1;
        }
        assert_int_equal(tcp, 1000);
        assert_int_equal(atomic_load(&f.counts.carried), udp);
        assert_int_equal(atomic_load(&f.counts.lost) + udp, 3000);
        assert_in_range(udp, 2100, 2400);
        close_line(&f);
}

/* A device that is full is not waited for. */
TEST(what_cannot_be_passed_on_is_counted)
{
        struct fixture f;
        unsigned arrived = 0;

        open_line(&f, 0);
        for (unsigned i = 0; i < 2000; i++) {
                put(&f, IPPROTO_UDP, 0);
                delay_line_turn(&f.line, i);
        }
        delay_line_turn(&f.line, NS_PER_S);
        while (next(&f) >= 0)
                arrived++;
        assert_true(atomic_load(&f.counts.failed) > 0);
        assert_int_equal(atomic_load(&f.counts.failed) + arrived, 2000);
        assert_int_equal(atomic_load(&f.counts.carried), arrived);
        close_line(&f);
}
