/* A board: its counter, its memory of frames that are not sent, its faults, and its link. One thread. */
#pragma once

#include "frontend/frontend_link.h"

/* Frames that a board remembers; while its memory is full, triggers wait. */
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
        struct frontend_queue prompt, late; /* each in order of time */
        uint64_t since, start;              /* the frame of trigger `since` has number `start` */
        bool fresh;                         /* counts the next trigger as 0 */
        bool down;                          /* in an outage */
        bool closing;                       /* its connection ends when its frames are sent */
        uint64_t down_until_ns;
        unsigned next_restart; /* of config->restarts */
        uint32_t restarts;
        uint64_t triggers, missed, outage; /* of all triggers: not sent at random, and in outages */
};

/* The ROS of a dead board gets no socket. Negative errno. */
int frontend_board_init(struct frontend_board *b, const struct frontend_config *config, unsigned index,
                        struct loop *loop);
void frontend_board_fini(struct frontend_board *b);
bool frontend_board_is_dead(const struct frontend_board *b);
/* A dead board always has room. */
bool frontend_board_has_room(const struct frontend_board *b);
/* Restarts that are due at schedule_ns begin, which is zero_ns earlier than the loop's time. */
void frontend_board_advance(struct frontend_board *b, uint64_t schedule_ns, uint64_t zero_ns);
/* Trigger `serial` came at at_ns; see has_room(). */
void frontend_board_trigger(struct frontend_board *b, uint64_t serial, uint64_t at_ns);
/* The next trigger has number 0. */
void frontend_board_reset(struct frontend_board *b);
/* Sends the frames that are due. Negative errno: a programming error. */
int frontend_board_turn(struct frontend_board *b, uint64_t now_ns);
uint64_t frontend_board_deadline_ns(const struct frontend_board *b);
/* Frames in its memory. */
uint64_t frontend_board_unsent(const struct frontend_board *b);
/* It may accept a connection now. */
bool frontend_board_wants_connection(const struct frontend_board *b);
