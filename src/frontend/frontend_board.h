/* A board: its counter, its memory of unsent frames, its faults, and its link: frames leave as UDP datagrams,
 * or on the TCP connection of its ROS. The content of a frame depends only on the configuration, the board
 * and the trigger. Frames are staged in a bounded buffer, where they wait for the kernel or the connection.
 * One thread. */
#pragma once

#include "frontend/frontend_run.h"
#include "net/endpoint.h"
#include "sys/loop.h"

/* The frame of a board for trigger `serial`, counted from 0 and never reset. */
struct frontend_frame {
        uint64_t serial;
        uint64_t number; /* number of the trigger as the board counts it */
        uint32_t restarts;
        uint32_t bytes; /* size without the length field */
        bool late;
};

/* False: the board misses this trigger. Otherwise sets size and lateness of *ret. */
bool frontend_plan(const struct frontend_config *c, const struct source *source, unsigned board,
                   uint64_t serial, struct frontend_frame *ret);
/* Writes the frame with its length: f->bytes + 4 bytes. */
void frontend_fill(const struct frontend_config *c, unsigned board, const struct frontend_frame *f,
                   uint8_t *to);
/* Returns the time from a trigger to a board's frames. */
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
        size_t ends[FRONTEND_LINK_FRAMES + 1]; /* [i]: end of the bytes of the frames before frame i */
        /* Number of staged frames, and how many of them are sent. */
        uint32_t n, done;
        size_t sent_bytes;                            /* TCP: number of staged bytes that were sent */
        uint64_t sent, sent_payload_bytes, sent_late; /* frames, their payload, and late frames */
        uint64_t broken;                              /* frames cut off by the end of a connection */
        uint64_t connections;
};

/* Takes over the descriptor of an accepted connection. */
int frontend_link_connect(struct frontend_link *l, int fd);
static inline uint32_t frontend_link_staged(const struct frontend_link *l)
{
        return l->n - l->done;
}
/* Returns the number of datagrams that the kernel refused; they also count as sent. */
uint64_t frontend_link_refused(const struct frontend_link *l);

/* Capacity of a board's memory in frames; while it is full, triggers wait. */
#define FRONTEND_QUEUE_FRAMES 16384u

struct frontend_queue {
        struct frontend_waiting {
                struct frontend_frame frame;
                uint64_t due_ns;
        } * items;
        uint32_t head, tail; /* mod 2^32 */
};

struct frontend_board {
        const struct frontend_config *config;
        unsigned index;
        struct source *source;
        struct frontend_link link;
        struct frontend_queue prompt, late; /* each ordered by time */
        uint64_t since, start;              /* the frame of trigger `since` has number `start` */
        bool fresh;                         /* the next trigger gets the number 0 */
        bool down;                          /* in an outage */
        bool closing;                       /* the connection ends after the frames of the board are sent */
        uint64_t down_until_ns;
        unsigned next_restart; /* index into config->restarts */
        uint32_t restarts;
        uint64_t triggers, missed, outage; /* all triggers; triggers missed at random, and in outages */
};

/* Creates no socket for a dead board. Returns negative errno. */
int frontend_board_init(struct frontend_board *b, const struct frontend_config *config, unsigned index,
                        struct loop *loop);
void frontend_board_fini(struct frontend_board *b);
bool frontend_board_is_dead(const struct frontend_board *b);
/* A dead board has room at any time. */
bool frontend_board_has_room(const struct frontend_board *b);
/* Begins the restarts that are due at schedule_ns, and ends outages. schedule_ns is the time of the loop
 * minus zero_ns. */
void frontend_board_advance(struct frontend_board *b, uint64_t schedule_ns, uint64_t zero_ns);
/* Accepts trigger `serial`, which occurred at at_ns; see frontend_board_has_room(). */
void frontend_board_trigger(struct frontend_board *b, uint64_t serial, uint64_t at_ns);
/* Makes 0 the number of the next trigger. */
void frontend_board_reset(struct frontend_board *b);
/* Sends the frames that are due. A negative errno is a programming error. */
int frontend_board_turn(struct frontend_board *b, uint64_t now_ns);
uint64_t frontend_board_deadline_ns(const struct frontend_board *b);
/* Returns the number of unsent frames in the memory of the board. */
uint64_t frontend_board_unsent(const struct frontend_board *b);
/* Whether the board may accept a connection now. */
bool frontend_board_wants_connection(const struct frontend_board *b);

/* frontend_listeners.c: the TCP ports on which boards wait for their ROSs. Boards with the same address share
 * a port, and each connection is passed to the first of these boards that has none. One thread. */
struct frontend_listeners {
        struct loop *loop;
        struct frontend_board *boards;
        unsigned n_boards, n;
        struct frontend_listener {
                struct frontend_listeners *all;
                struct loop_io io; /* fd -1: closed, because all of its boards are down */
                const struct net_address *at;
                bool ready;
        } listeners[FRONTEND_BOARDS_MAX];
};

/* Opens the ports; borrows `loop` and `boards`. Logs errors. */
int frontend_listeners_init(struct frontend_listeners *d, struct loop *loop, struct frontend_board *boards,
                            unsigned n_boards);
void frontend_listeners_fini(struct frontend_listeners *d);
/* Accepts connections; closes and opens ports as boards go down and come back. Call this after the boards'
 * turns, which detect connections that have ended. Logs errors. */
int frontend_listeners_turn(struct frontend_listeners *d);
