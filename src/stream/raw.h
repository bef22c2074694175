/* Raw streams: messages without header or number, which the receiver only counts, over UDP, TCP or multicast,
 * or sent back one by one. What both ends measure of them, and what the threads of both ends do differently.
 * docs/streams.md has the terms. */
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

/* Processor time is sampled that often, for that long. */
#define RAW_SAMPLE_NS UINT64_C(50000000)
#define RAW_SAMPLES_MAX 2400u

/* What a thread carried between the warm-up and the end. The thread adds; the loop samples. */
struct raw_measure {
        uint64_t begin_ns, end_ns, closed_ns;
        uint64_t packets, bytes;
        uint64_t used_ns; /* processor time of the thread; once it is closed */
        _Atomic bool counts;
        /* The loop's: shares of a processor, in per cent. */
        float percent[RAW_SAMPLES_MAX];
        unsigned n_samples;
        uint64_t sampled_ns, sampled_used_ns; /* the latest reading; 0: none */
        uint64_t due_ns;
};

/* The warm-up begins now. Call the next three from the measured thread. */
void raw_measure_open(struct raw_measure *m, const struct stream_raw *raw, uint64_t now_ns);
void raw_measure_add(struct raw_measure *m, uint64_t now_ns, uint64_t packets, uint64_t bytes);
void raw_measure_close(struct raw_measure *m, uint64_t now_ns);
/* Samples the thread if it is time. Returns when to call again. */
uint64_t raw_measure_sample(struct raw_measure *m, pthread_t thread, uint64_t now_ns);
/* {"seconds", "bytes", "packets", "cpu_seconds", "cpu_percent": [...]}. After the thread was joined. */
json_t *raw_measure_describe(const struct raw_measure *m);

/* The sender's part of a raw stream. */
struct raw_send {
        const struct stream_raw *rule;
        uint64_t packets_max; /* 0: no limit */
        uint32_t batch;       /* messages of a system call */
        int fd;               /* of TCP; 0: none */
        uint8_t *message;
        uint32_t offset; /* of a message that TCP has taken in part */
        struct raw_measure measure;
        struct timing round_trips;
};

/* Allocates the message. -ENOMEM. */
int raw_send_init(struct send_threads *t);
void raw_send_fini(struct send_threads *t);
/* Connects to the receiver's TCP port. Negative errno. */
int raw_send_connect(struct send_threads *t, const struct net_address *to, uint16_t port);
/* Hands over up to n messages; *ret_bytes are those that the kernel took. Returns the number of whole
 * messages, or negative errno; -ETIMEDOUT: a message did not come back. */
int raw_send_messages(struct send_threads *t, uint32_t n, uint64_t *ret_bytes);

/* The receiver's part. */
struct raw_receive {
        const struct stream_raw *rule;
        uint64_t packets_per_s; /* that it takes at most; 0: no limit */
        bool watches;           /* `between` is of the packets on the wire */
        int listener, fd, wire; /* of TCP; of the packets on the wire; 0: none */
        bool at_end;            /* of the TCP connection */
        uint64_t ending_ns;     /* when the sender had announced its end; 0: it has not */
        uint64_t dropped_before;
        pthread_t watcher;
        bool started_watcher;
        struct raw_measure measure;
};

/* Opens the TCP port at `local`, the address that the sender reaches, and the device, if it is to be watched.
 * *ret_port is where the data are to go. Negative errno. */
int raw_receive_open(struct receive_threads *t, const struct net_address *local, uint16_t *ret_port);
/* Starts the thread that watches the wire, if there is to be one. It ends with the network thread. */
int raw_receive_watch(struct receive_threads *t);
void raw_receive_join(struct receive_threads *t);
void raw_receive_fini(struct receive_threads *t);
/* Receives until the end of the stream is known and all has come, or nothing more comes. Returns 0 or
 * negative errno. */
int raw_receive_all(struct receive_threads *t);
