/* Frames of a detector board over a stream. The first three bytes choose what frames look like, where they
 * carry numbers, and which are joined; the others are what the board sends before it breaks the connection.
 */
#include <string.h>

#include "base/log.h"
#include "data/front_end.h"
#include "fuzz.h"
#include "joined_ros.h"
#include "local_stream.h"

#define INPUT_MAX_BYTES 4000u
/* A frame may announce the most, and have others before it. */
#define BUFFER_BYTES (2 * EVB_FRAGMENT_MAX_BYTES)
/* Frames and bytes of one turn are limited. */
#define TURNS_MAX 10000

static struct {
        struct loop *loop;
        struct net_address local;
        uint8_t *buffer;
        const uint8_t *sent; /* what the board sends once it is connected */
        size_t sent_bytes;
        int board; /* its end of the connection */
} t = {.board = -1};

int __wrap_tcp_connect(const struct net_address *local, const struct net_address *to,
                       uint64_t send_buffer_bytes);

int __wrap_tcp_connect(const struct net_address *local, const struct net_address *to,
                       uint64_t send_buffer_bytes)
{
        int ends[2];

        (void)local, (void)to, (void)send_buffer_bytes;
        assert(t.board < 0);
        local_stream_open(ends, t.sent, t.sent_bytes);
        t.board = ends[1];
        return ends[0];
}

static const char *const rules[] = {
        FRAME_STANDARD,
        "length 0.4:12:be unit 2 plus 3",
        "fixed 5",
        "marker 4142 end 43",
        "marker 41",
        "length 2:8 marker 4142 skip 1",
        "fixed 4 marker 41 skip 2",
        "length 1:16 unit 4",
};

static const char *const joins[] = {
        "one", "join within 1ms", "join count 2:4 index 1:4", "join last 2:1 index 3:8", "join count 3",
};

static void set_up(void)
{
        log_set_level(LOG_LEVEL_ERROR);
        assert(net_address_parse(&t.local, "127.0.0.1", 0) == 0 && loop_new(&t.loop) == 0);
        t.buffer = calloc(1, BUFFER_BYTES);
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

/* NULL: the rule joins no frames. */
static struct joiner *open_joiner(const struct front_end_layout *layout)
{
        struct joiner_config config = {.rule = layout->join,
                                       .number = layout->number,
                                       .frames_max = 16,
                                       .fragment_max_bytes = 64,
                                       .buffer_bytes = BUFFER_BYTES};
        struct joiner *joiner;

        config.rule.within_ns = NS_PER_MS;
        return joiner_new(&joiner, &config) == 0 ? joiner : NULL;
}

/* The bytes as a stream, and as datagrams of 64 bytes. A proposal fits the bytes. */
static void propose(const uint8_t *bytes, size_t n)
{
        static struct frame_guess guess;
        static uint32_t sizes[INPUT_MAX_BYTES / 64 + 1];
        struct frame_sample sample = {.bytes = bytes, .n = n};

        for (int i = 0; i < 2; i++) {
                frame_guess(&guess, &sample);
                for (size_t k = 0; guess.has_frame && k < guess.cut.n; k++)
                        assert(guess.cut.at[k] + guess.cut.bytes[k] <= n);
                sample.datagrams = sizes;
                for (size_t at = 0; at < n; at += 64)
                        sizes[sample.n_datagrams++] = (uint32_t)(n - at < 64 ? n - at : 64);
        }
}

/* Runs the front-end until it has read all that the board sent, and lost the connection. */
static void receive(struct front_end *f)
{
        uint64_t now_ns = JOINED_NOW_NS, since_ns;

        front_end_turn(f, now_ns);
        /* It has had no connection since then; the loss of one comes later. */
        since_ns = front_end_down_since_ns(f);
        for (int i = 0; i < TURNS_MAX && front_end_down_since_ns(f) <= since_ns; i++) {
                assert(loop_wait(t.loop, 0) == 0);
                front_end_turn(f, now_ns += NS_PER_MS);
        }
        assert(t.board >= 0 && front_end_down_since_ns(f) > since_ns);
        close(t.board);
        t.board = -1;
}

bool fuzz_accepts(const uint8_t *bytes, size_t size_bytes)
{
        static const unsigned widths[] = {0, 16, 24, 32, 64};
        struct front_end_layout layout;
        struct node_stats stats = {};
        struct joiner *joiner;
        struct front_end *f;
        struct ros *core;
        size_t frames;

        if (!t.loop)
                set_up();
        if (size_bytes < 3 || size_bytes > INPUT_MAX_BYTES)
                return false;
        assert(!frame_rule_parse(&layout.frame, rules[(bytes[1] >> 2) % ARRAY_SIZE(rules)]) &&
               !join_rule_parse(&layout.join, joins[bytes[0] / ARRAY_SIZE(widths) % ARRAY_SIZE(joins)]));
        layout.number = (struct number_field){.bits = widths[bytes[0] % ARRAY_SIZE(widths)],
                                              .offset_bytes = bytes[1] & 1 ? bytes[2] * 200u : bytes[2] % 16u,
                                              .big_endian = bytes[1] & 2};
        t.sent = bytes + 3;
        t.sent_bytes = size_bytes - 3;
        propose(t.sent, t.sent_bytes);
        /* Room for all frames, even empty ones. */
        core = joined_ros(layout.number.bits, (uint32_t)(size_bytes + 1), BUFFER_BYTES);
        assert(front_end_new(&f, true, &layout, &t.local, t.loop, core, t.buffer, &stats) == 0 &&
               front_end_open(f, "127.0.0.2:1", true) == 0);
        joiner = open_joiner(&layout);
        front_end_collect(f, NULL, joiner, NULL);
        receive(f);
        frames = (bytes[1] >> 2) % ARRAY_SIZE(rules) == 0 ? count_frames(t.sent, t.sent_bytes)
                                                          : front_end_frames(f);
        /* The last one may have broken off. */
        assert(front_end_frames(f) >= frames && front_end_frames(f) <= frames + 1);
        assert(!joiner || joiner_counts(joiner)->frames == front_end_frames(f));
        front_end_free(f);
        ros_free(core);
        return frames > 0;
}
