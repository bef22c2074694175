/* Threads that receive datagrams with fragments, each from an endpoint of its own, and check and decode them
 * into batches. The owner, one thread, takes full batches and returns them empty: two rings for each thread,
 * one in each direction. A thread without an empty batch waits, and its socket buffer fills. */
#pragma once

#include "core/sfi.h"
#include "data/address_book.h"
#include "net/endpoint.h"
#include "net/injected_faults.h"

#define RECEIVED_CHUNKS 1024
#define RECEIVED_HEADS 512
#define RECEIVED_VERDICTS (MESSAGE_MALFORMED + 1)

/* The header of an accepted datagram. */
struct received_head {
        uint16_t source;
        uint32_t transaction, queued_bytes;
};

struct fragment_thread;

/* Datagrams that one thread received, in order. Each has its head in one batch; its chunks may continue in
 * the next one of the same thread. */
struct received {
        uint64_t cookie;                     /* of the run for which they were checked */
        uint32_t refused[RECEIVED_VERDICTS]; /* datagrams, by enum message_verdict */
        uint32_t n_heads, n_chunks;
        struct received_head heads[RECEIVED_HEADS];
        struct sfi_chunk chunks[RECEIVED_CHUNKS];
        const uint8_t *payload[RECEIVED_CHUNKS];
        /* For the threads. */
        struct fragment_thread *of;
        uint8_t *memory; /* no later batch refers to it; NULL: a later one does */
};

struct fragment_threads_config {
        const struct address_book *nodes; /* borrowed */
        /* One endpoint and injector of faults (or NULL) for each of n threads; borrowed. */
        struct endpoint *const *endpoints;
        struct faults *const *faults;
        size_t n;
        const unsigned *cpus; /* processors of the threads; none: those of the caller */
        size_t n_cpus;
};

struct fragment_threads;

/* Starts the threads, which have no run yet (cookie 0). Negative errno. */
int fragment_threads_new(struct fragment_threads **ret, const struct fragment_threads_config *config);
/* Ends them, and drops what is in batches. */
struct fragment_threads *fragment_threads_free(struct fragment_threads *t);

/* The functions below are the owner's. What arrives after datagrams that the owner sent is checked for a
 * cookie that the owner had set before. */
void fragment_threads_set_cookie(struct fragment_threads *t, uint64_t cookie);
/* The next full batch, of the threads in turns; NULL: none. Return batches in the order in which they came:
 * that of a thread's last one frees the memory of its earlier ones, too. */
struct received *fragment_threads_take(struct fragment_threads *t);
void fragment_threads_return(struct received *b);
/* Negative errno: a thread ended because it could not receive; 0: none. */
int fragment_threads_error(const struct fragment_threads *t);
/* Becomes readable when there is a batch or an error, if fragment_threads_prepare_wait() returned false. */
int fragment_threads_fd(const struct fragment_threads *t);
/* True: there is a batch or an error, so do not wait. */
bool fragment_threads_prepare_wait(struct fragment_threads *t);
/* Call it after a wait. */
void fragment_threads_woken(struct fragment_threads *t);
