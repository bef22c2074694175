/* Front-ends over TCP that the test simulates: all ROSs connect to one address, and each ROS's board sends
 * the same frames, up to the allowed number. */
#pragma once

#include <unistd.h>

#include "bed.h"
#include "net/tcp.h"

#define BOARDS_SOURCE "tcp:127.0.1.1:9000"
#define BOARDS_MAX 8
#define BOARD_FRAME_MAX 8192

struct boards {
        int listener;
        struct board {
                bool is_connected;
                int fd;
                uint64_t sent, allowed; /* frames */
                uint8_t frame[BOARD_FRAME_MAX];
                size_t begin, end;
        } boards[BOARDS_MAX];     /* by ROS */
        bool refuses[BOARDS_MAX]; /* closes each connection at once */
        /* Writes the frame's payload; returns its size. */
        size_t (*make)(uint64_t frame, uint8_t *to);
};

/* The board of the ROS that connected. */
static inline size_t boards_index(const struct net_address *from)
{
        struct in_addr first = bed_address(bed_name(ROLE_ROS, 0), 0).sin_addr;

        return ntohl(from->v4.sin_addr.s_addr) - ntohl(first.s_addr);
}

static inline void boards_accept(struct boards *b)
{
        struct net_address from;
        int fd;

        while ((fd = tcp_accept(b->listener, 0, &from)) >= 0) {
                size_t i = boards_index(&from);

                if (b->refuses[i]) {
                        close(fd);
                        continue;
                }
                b->boards[i].fd = fd;
                b->boards[i].is_connected = true;
                b->boards[i].begin = b->boards[i].end = 0;
        }
}

static inline void boards_make(struct boards *b, struct board *o)
{
        uint32_t size = (uint32_t)b->make(o->sent++, o->frame + sizeof size);

        memcpy(o->frame, &size, sizeof size);
        o->begin = 0;
        o->end = size + sizeof size;
}

static inline void boards_turn(void *ctx)
{
        struct boards *b = ctx;

        boards_accept(b);
        for (size_t i = 0; i < BOARDS_MAX; i++) {
                struct board *o = &b->boards[i];

                while (o->is_connected && (o->begin < o->end || o->sent < o->allowed)) {
                        struct iovec rest;
                        ssize_t k;

                        if (o->begin == o->end)
                                boards_make(b, o);
                        rest = (struct iovec){o->frame + o->begin, o->end - o->begin};
                        k = tcp_send(o->fd, &rest, 1);
                        if (k <= 0)
                                break;
                        o->begin += (size_t)k;
                }
        }
}

static inline void boards_allow(struct boards *b, uint64_t frames)
{
        for (size_t i = 0; i < BOARDS_MAX; i++)
                b->boards[i].allowed = frames;
}

static inline void boards_begin(struct boards *b, uint64_t allowed, size_t (*make)(uint64_t, uint8_t *))
{
        struct net_address a = {.v4 = {AF_INET, htons(9000), {htonl(0x7f000101)}, {}}};

        a.size_bytes = sizeof a.v4;
        *b = (struct boards){.make = make};
        boards_allow(b, allowed);
        b->listener = tcp_listen(&a, 0);
        assert_true(b->listener >= 0);
        bed_each_ms(boards_turn, b);
}
