/* The frames of a board and how they leave: as UDP datagrams, or on the TCP connection of its ROS. A frame
 * depends on configuration, board and trigger alone. Frames are staged in a bounded buffer, in which they
 * wait for the kernel or the connection. One thread. */
#pragma once

#include "frontend/frontend_run.h"
#include "net/endpoint.h"
#include "sys/loop.h"

/* The frame of a board for trigger `serial`, counted from 0 and never reset. */
struct frontend_frame {
        uint64_t serial;
        uint64_t number; /* what the board counts */
        uint32_t restarts;
        uint32_t bytes; /* without the length */
        bool late;
};

/* False: the board misses this trigger. Otherwise sets size and lateness of *ret. */
bool frontend_plan(const struct frontend_config *c, const struct source *source, unsigned board,
                   uint64_t serial, struct frontend_frame *ret);
/* Writes the frame with its length: f->bytes + 4 bytes. */
void frontend_fill(const struct frontend_config *c, unsigned board, const struct frontend_frame *f,
                   uint8_t *to);
/* The time from a trigger to a board's frames. */
uint64_t frontend_skew_ns(const struct frontend_config *c, unsigned board);

#define FRONTEND_LINK_FRAMES 64u

struct frontend_link {
        struct loop *loop;
        struct loop_io io;
        bool tcp;
        bool up;                   /* UDP: always */
        bool blocked;              /* the kernel's buffer is full */
        bool hung;                 /* the ROS has closed the connection */
        struct endpoint *endpoint; /* UDP */
        uint8_t *bytes;
        size_t size_bytes;
        struct frontend_frame frames[FRONTEND_LINK_FRAMES];
        size_t ends[FRONTEND_LINK_FRAMES + 1];        /* [i]: end of the frames before frame i */
        uint32_t n, done;                             /* staged frames, and those of them that are sent */
        size_t sent_bytes;                            /* TCP: of the staged bytes */
        uint64_t sent, sent_payload_bytes, sent_late; /* frames */
        uint64_t broken;                              /* frames that the end of a connection cut */
        uint64_t connections;
};

/* `to`: the ROS, for UDP; NULL for TCP. `size_bytes` holds at least one frame with its length. */
int frontend_link_init(struct frontend_link *l, struct loop *loop, const struct net_address *to,
                       size_t size_bytes);
void frontend_link_fini(struct frontend_link *l);
/* The place for the next frame of f->bytes, which the caller fills; NULL: no room now. */
uint8_t *frontend_link_stage(struct frontend_link *l, const struct frontend_frame *f);
/* Passes staged frames to the kernel. Negative errno: a programming error; a broken connection is none. */
int frontend_link_send(struct frontend_link *l);
/* Takes over the descriptor of an accepted connection. */
int frontend_link_connect(struct frontend_link *l, int fd);
/* Whole frames that are not sent stay staged for the next connection. */
void frontend_link_disconnect(struct frontend_link *l);
static inline uint32_t frontend_link_staged(const struct frontend_link *l)
{
        return l->n - l->done;
}
/* Datagrams that the kernel refused; they count as sent, too. */
uint64_t frontend_link_refused(const struct frontend_link *l);
