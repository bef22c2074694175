/* Raw streams: messages without header or number, which the receiver only counts or sends back one by one,
 * over UDP, TCP or multicast. Defines what both ends measure, and what their threads do differently.
 * docs/streams.md defines the terms. */
#pragma once

#include <jansson.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "stream/rules/timing.h"

struct send_threads;
struct receive_threads;
struct net_address;
struct stream_raw;

/* Interval of the samples of processor time, and their maximum number. */
#define RAW_SAMPLE_NS UINT64_C(50000000)
#define RAW_SAMPLES_MAX 2400u

/* Traffic of a thread between the warm-up and the end. The thread adds to it; the loop takes samples. */
struct raw_measure {
        _Atomic uint64_t begin_ns; /* end of the warm-up; 0: no message yet */
        uint64_t end_ns, closed_ns;
        uint64_t packets, bytes;
        uint64_t used_ns; /* processor time of the thread, set at the end */
        _Atomic bool counts;
        /* Set by the loop: shares of a processor, in percent. */
        float percent[RAW_SAMPLES_MAX];
        unsigned n_samples;
        uint64_t sampled_ns, sampled_used_ns; /* the latest reading; 0: none */
        uint64_t due_ns;
};

/* Begins the warm-up. Call this function and the next two in the measured thread. */
void raw_measure_open(struct raw_measure *m, const struct stream_raw *raw, uint64_t now_ns);
void raw_measure_add(struct raw_measure *m, uint64_t now_ns, uint64_t packets, uint64_t bytes);
void raw_measure_close(struct raw_measure *m, uint64_t now_ns);
/* Takes a sample if it is due. Returns when to call this function again. */
uint64_t raw_measure_sample(struct raw_measure *m, pthread_t thread, uint64_t now_ns);
/* {"seconds", "bytes", "packets", "cpu_seconds", "cpu_percent": [...]}. Call it after joining the thread. */
json_t *raw_measure_describe(const struct raw_measure *m);

/* The sender's state of a raw stream. */
struct raw_send {
        const struct stream_raw *rule;
        uint64_t packets_max; /* 0: no limit */
        uint32_t batch;       /* messages per system call */
        int fd;               /* TCP socket; 0: none */
        uint8_t *message;
        uint32_t offset; /* number of bytes of the present message that TCP has accepted */
        struct raw_measure measure;
        struct timing round_trips;
};

/* Allocates the message. -ENOMEM. */
int raw_send_init(struct send_threads *t);
void raw_send_fini(struct send_threads *t);
/* Connects to the receiver's TCP port. Negative errno. */
int raw_send_connect(struct send_threads *t, const struct net_address *to, uint16_t port);
/* Sends up to n messages; *ret_bytes is the number of bytes that the kernel accepted. Returns the number of
 * complete messages, or negative errno; -ETIMEDOUT: a message was not sent back. */
int raw_send_messages(struct send_threads *t, uint32_t n, uint64_t *ret_bytes);

/* The receiver's state. */
struct raw_receive {
        const struct stream_raw *rule;
        uint64_t packets_per_s; /* limit of received messages; 0: none */
        bool watches;           /* `between` refers to the packets on the wire */
        int listener, fd, wire; /* TCP sockets, and the socket that captures packets on the wire; 0: none */
        uint16_t port;          /* destination of the data */
        bool at_end;            /* end of the TCP connection */
        uint64_t ending_ns;     /* time at which the sender announced its end; 0: not yet */
        uint64_t dropped_before;
        pthread_t watcher;
        bool started_watcher;
        struct raw_measure measure;
};

/* Opens the TCP port at `local`, the address that the sender reaches, and the device if its packets are to be
 * captured. *ret_port is the port for the data. Returns negative errno. */
int raw_receive_open(struct receive_threads *t, const struct net_address *local, uint16_t *ret_port);
/* Starts the thread that captures packets, if configured. It ends with the network thread. */
int raw_receive_watch(struct receive_threads *t);
void raw_receive_join(struct receive_threads *t);
void raw_receive_fini(struct receive_threads *t);
/* Receives until the stream has ended and all messages have arrived, or no more arrive. Returns 0 or negative
 * errno. */
int raw_receive_all(struct receive_threads *t);
