/* A long path on this machine: two network namespaces with a TUN device each, and a process between them that
 * delays each IP packet by a fixed time, and drops some packets. One thread. */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/error.h"

/* ---- One direction: passes packets from one TUN device to another one, each after the same time. ---- */

/* Shared with the process that reads the counters. */
struct delay_line_counts {
        _Atomic uint64_t carried, lost, failed;
};

struct delay_line {
        int from, to; /* non-blocking */
        uint64_t delay_ns;
        double loss; /* share of UDP packets */
        uint32_t frame_bytes;
        struct delay_line_counts *counts;

        struct delayed *slots;
        uint8_t *frames;
        uint64_t head, tail; /* numbers of packets read and passed on */
        uint64_t random;
};

/* The caller must have set the members up to `counts`. -ENOMEM. */
int delay_line_init(struct delay_line *d);
void delay_line_fini(struct delay_line *d);
/* Reads packets that have arrived, and passes on those that are due. */
void delay_line_turn(struct delay_line *d, uint64_t now_ns);

/* ---- The path. ---- */

#define LONG_PATH_FROM "10.201.0.1"
#define LONG_PATH_TO "10.201.0.2"

struct long_path;

struct long_path_config {
        uint64_t delay_ns; /* in each direction */
        double loss;       /* share of the UDP packets towards the receiver */
        uint32_t mtu_bytes;
};

struct long_path_counts {
        uint64_t carried_packets; /* UDP, towards the receiver */
        uint64_t lost_packets;    /* UDP, dropped on purpose */
        uint64_t failed_packets;  /* all packets for which a queue had no room */
};

/* Whether this machine has TUN devices. */
bool long_path_is_possible(void);
/* Requires CAP_SYS_ADMIN and CAP_NET_ADMIN. Negative errno. */
int long_path_new(struct long_path **ret, const struct long_path_config *config, struct error *e);
struct long_path *long_path_free(struct long_path *p);
/* Returns the process that delays the packets. */
pid_t long_path_process(const struct long_path *p);
void long_path_read(const struct long_path *p, struct long_path_counts *ret);
