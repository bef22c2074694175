/* A ROS and an SFI that exchange fragments over TCP, for tests; the test may play one of them. */
#pragma once

#include "../test.h"

#include <poll.h>
#include <sys/socket.h>

#include "base/pattern.h"
#include "data/data_receive.h"
#include "data/data_send.h"
#include "net/tcp.h"
#include "data_sample.h"

#define ROS1 sample_at(2)
#define SFI1 sample_at(4)
#define DATA_PORT 46911
#define SEED 5
#define BUFFER_BYTES (32u << 20)

struct sfi_end {
        struct sample sample;
        struct sfi_config config;
        struct data_receiver receiver;
        bool pull; /* set before sfi_end_open(); a turn then makes requests */
};

static inline void sfi_end_open(struct sfi_end *e, uint64_t now_ns)
{
        e->config = sample_sfi();
        e->config.n_ros = 1; /* events are complete without ROS 2 */
        e->config.buffer_bytes = BUFFER_BYTES;
        e->config.pull = e->config.reliable = e->pull;
        sample_open(&e->sample, "sfi1", "tcp");
        e->sample.scenario->network.socket_buffer_bytes = 64 << 10;
        e->receiver = (struct data_receiver){
                .ops = &data_receive_tcp,
                .context = e->sample.context,
                .buffer = calloc(1, e->config.buffer_bytes),
        };
        assert_int_equal(sfi_new(&e->receiver.core, &e->config, now_ns), 0);
        assert_true(sfi_receive(e->receiver.core, now_ns, sample_welcome()));
        assert_int_equal(e->receiver.ops->open(&e->receiver), 0);
}

static inline void sfi_end_close(struct sfi_end *e)
{
        e->receiver.ops->close(&e->receiver);
        sfi_free(e->receiver.core);
        free(e->receiver.buffer);
        sample_close(&e->sample);
}

static inline void sfi_end_turn(struct sfi_end *e, uint64_t now_ns)
{
        static struct message m;
        struct message_to to;
        bool more;

        assert_int_equal(loop_wait(e->sample.loop, clock_now_ns() + NS_PER_MS), 0);
        assert_int_equal(e->receiver.ops->turn(&e->receiver, now_ns, &more), 0);
        while (e->pull && sfi_step(e->receiver.core, now_ns, &to, &m)) {
                if (m.header.type == MESSAGE_REQUEST)
                        e->receiver.ops->request(&e->receiver, to, &m);
        }
}

struct ros_end {
        struct sample sample;
        struct data_sender sender;
        struct source *source;
        uint8_t *buffer;
};

static inline void ros_end_open(struct ros_end *e, uint32_t fragment_bytes, uint64_t now_ns)
{
        struct pattern_sizes sizes = {.bytes = fragment_bytes};
        struct ros_config config = {
                .member = {.incarnation = SAMPLE_INCARNATION},
                .n_sfi = 2,
                .entries = 16,
                .buffer_bytes = BUFFER_BYTES,
                .keep_alive_ns = NS_PER_S,
                .describe = source_describe,
        };

        assert_int_equal(source_new_pattern(&e->source, 0, SEED, &sizes), 0);
        config.describe_ctx = e->source;
        sample_open(&e->sample, "ros1", "tcp");
        e->sample.scenario->network.socket_buffer_bytes = 64 << 10;
        e->buffer = calloc(1, config.buffer_bytes);
        e->sender = (struct data_sender){
                .ops = &data_send_tcp,
                .context = e->sample.context,
                .source = e->source,
                .buffer = e->buffer,
        };
        assert_int_equal(ros_new(&e->sender.core, &config, now_ns), 0);
        assert_true(ros_receive(e->sender.core, now_ns, sample_welcome()));
        assert_int_equal(e->sender.ops->open(&e->sender), 0);
}

static inline void ros_end_close(struct ros_end *e)
{
        e->sender.ops->close(&e->sender);
        chunk_packer_free(e->sender.packer);
        ros_free(e->sender.core);
        source_free(e->source);
        free(e->buffer);
        sample_close(&e->sample);
}

static inline void ros_end_turn(struct ros_end *e, uint64_t now_ns)
{
        bool more;

        assert_int_equal(loop_wait(e->sample.loop, clock_now_ns() + NS_PER_MS), 0);
        assert_int_equal(e->sender.ops->turn(&e->sender, now_ns, &more), 0);
}

struct pair {
        struct sfi_end sfi;
        struct ros_end ros;
        uint64_t now_ns;
};

static inline void pair_open(struct pair *p, uint32_t fragment_bytes)
{
        *p = (struct pair){.now_ns = NS_PER_S};
        sfi_end_open(&p->sfi, p->now_ns);
        ros_end_open(&p->ros, fragment_bytes, p->now_ns);
}

static inline void pair_close(struct pair *p)
{
        ros_end_close(&p->ros);
        sfi_end_close(&p->sfi);
}

static inline void assign(struct pair *p, uint64_t event)
{
        assert_true(sfi_receive(p->sfi.receiver.core, p->now_ns, sample_assign(event, 0)));
        assert_true(ros_receive(p->ros.sender.core, p->now_ns, sample_announce(event, 0)));
}

/* Turns until the SFI has built an event; checks each byte, and returns its number. */
static inline uint64_t build_next(struct pair *p, uint32_t fragment_bytes)
{
        struct sfi *core = p->sfi.receiver.core;
        struct sfi_built built;
        uint32_t slot;
        uint64_t key;
        bool is_built = false;

        for (int i = 0; i < 5000 && !is_built; i++) {
                ros_end_turn(&p->ros, p->now_ns);
                sfi_end_turn(&p->sfi, p->now_ns);
                is_built = sfi_pop_built(core, &slot, 1) == 1;
        }
        assert_true(is_built);
        sfi_built_event(core, slot, &built);
        assert_int_equal(built.end, EVENT_COMPLETE);
        assert_int_equal(built.fragments[0].bytes, fragment_bytes);
        key = pattern_key(SEED, 0, built.event);
        assert_int_equal(
                pattern_check(key, p->sfi.receiver.buffer + built.fragments[0].at, 0, fragment_bytes),
                fragment_bytes);
        sfi_written(core, p->now_ns, slot, false);
        return built.event;
}

static inline int dial(void)
{
        struct net_address local, to;
        struct pollfd p = {.events = POLLOUT};

        assert_int_equal(net_address_parse(&local, ROS1, 0), 0);
        assert_int_equal(net_address_parse(&to, SFI1, DATA_PORT), 0);
        p.fd = tcp_connect(&local, &to, 0);
        assert_true(p.fd >= 0);
        assert_int_equal(poll(&p, 1, 5000), 1);
        assert_int_equal(tcp_connected(p.fd), 0);
        return p.fd;
}

static inline void introduce(int fd, uint64_t cookie)
{
        static struct message m;
        uint8_t bytes[256];
        size_t n;

        m.header = (struct message_header){.cookie = cookie, .sender_role = ROLE_ROS, .type = MESSAGE_TOTALS};
        n = message_encode(&m, bytes, sizeof bytes);
        assert_int_equal(send(fd, bytes, n, MSG_NOSIGNAL), n);
}
