/* Frames of a detector board over TCP. The first three bytes choose where frames carry numbers; the others
 * are what the board sends before it breaks the connection. */
#include <errno.h>
#include <string.h>

#include "evb/base/log.h"
#include "evb/data/front_end.h"
#include "evb/net/tcp.h"
#include "fuzz.h"
#include "joined_ros.h"
#include "loopback.h"

/* The core has room for all frames, even empty ones. */
#define INPUT_MAX_BYTES 4000u
/* The kernel may take its time on a busy machine. */
#define TURNS_MAX 1000000

static struct {
        struct loop *loop;
        struct net_address local;
        char at[NET_ADDRESS_TEXT_MAX];
        int listener;
        uint8_t *buffer;
} t;

static void set_up(void)
{
        char host[64];

        log_set_level(LOG_LEVEL_ERROR);
        loopback_address(host, sizeof host, 3);
        assert(net_address_parse(&t.local, host, 0) == 0 && loop_new(&t.loop) == 0);
        struct net_address bound = t.local;

        t.listener = tcp_listen(&bound, 0);
        assert(t.listener >= 0 && getsockname(t.listener, &bound.any, &bound.size_bytes) == 0);
        net_address_format(&bound, t.at);
        t.buffer = calloc(1, JOINED_BUFFER_BYTES);
        assert(t.buffer);
}

/* Number of complete frames. */
static size_t count_frames(const uint8_t *bytes, size_t n)
{
        size_t frames = 0;
        uint32_t length;

        while (n >= sizeof length) {
                memcpy(&length, bytes, sizeof length);
                length = le32toh(length);
                if (length > n - sizeof length)
                        break;
                bytes += sizeof length + length;
                n -= sizeof length + length;
                frames++;
        }
        return frames;
}

/* Runs the front-end until it has read all that the board sent, and lost the connection. */
static void receive(struct front_end *f, const uint8_t *bytes, size_t n)
{
        uint64_t now_ns = JOINED_NOW_NS, since_ns;
        int board = -1;

        front_end_turn(f, now_ns);
        /* It has had no connection since then; the loss of one comes later. */
        since_ns = front_end_down_since_ns(f);
        for (int i = 0; i < TURNS_MAX && front_end_down_since_ns(f) <= since_ns; i++) {
                assert(loop_wait(t.loop, 0) == 0);
                front_end_turn(f, now_ns += NS_PER_MS);
                if (board >= 0 || (board = accept(t.listener, NULL, NULL)) < 0)
                        continue;
                assert(send(board, bytes, n, MSG_NOSIGNAL) == (ssize_t)n);
                shutdown(board, SHUT_WR);
        }
        assert(board >= 0 && front_end_down_since_ns(f) > since_ns);
        loopback_close(board);
}

bool fuzz_accepts(const uint8_t *bytes, size_t size_bytes)
{
        static const unsigned widths[] = {0, 16, 24, 32, 64};
        struct number_field number;
        struct node_stats stats = {};
        struct front_end *f;
        struct ros *core;
        size_t frames;

        if (!t.loop)
                set_up();
        if (size_bytes < 3 || size_bytes > INPUT_MAX_BYTES)
                return false;
        number = (struct number_field){.bits = widths[bytes[0] % ARRAY_SIZE(widths)],
                                       .offset_bytes = bytes[1] & 1 ? bytes[2] * 200u : bytes[2] % 16u,
                                       .big_endian = bytes[1] & 2};
        core = joined_ros(number.bits);
        assert(front_end_new(&f, true, t.at, &number, &t.local, t.loop, core, t.buffer, &stats) == 0);
        receive(f, bytes + 3, size_bytes - 3);
        frames = count_frames(bytes + 3, size_bytes - 3);
        /* The last one may have broken off. */
        assert(front_end_frames(f) >= frames && front_end_frames(f) <= frames + 1);
        front_end_free(f);
        ros_free(core);
        return frames > 0;
}
