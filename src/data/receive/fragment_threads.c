/* Receives, checks and decodes datagrams in several threads. Only the owner touches the SFI's core and its
 * buffer: a thread could not copy payload there, because the core may give a reserved place to another event
 * at any time. */
#include "fragment_threads.h"

#include <assert.h>
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/ring.h"
#include "base/util.h"
#include "sys/thread.h"
#include "fragments.h"

/* Of each thread. A batch without joined datagrams has 8 of them, so the owner may be 128 behind. */
#define BATCHES 16
#define DATAGRAMS 512
/* With injected faults, datagrams are copied, as the injector needs their memory again. */
#define FAULT_DATAGRAMS 8
#define FAULT_DATAGRAM_BYTES (ENDPOINT_MEMORY_BYTES / FAULT_DATAGRAMS)

struct fragment_thread {
        struct fragment_threads *all;
        struct endpoint *endpoint;
        struct faults *faults;
        pthread_t thread;
        bool started;
        struct ring full;  /* from the thread to the owner */
        struct ring empty; /* from the owner to the thread */
        struct waker wake; /* the thread waits for an empty batch */
        struct received *batches;
        uint8_t *memory;
        /* The thread's: the batch that it fills, the memory in which it receives, and unused ones. The last
         * ones that came back are used first, as they may still be in a cache. */
        struct received *batch, *idle[BATCHES];
        uint8_t *into, *spare[BATCHES];
        size_t n_idle, n_spare;
        struct datagram datagrams[DATAGRAMS];
};

struct fragment_threads {
        const struct address_book *nodes;
        struct waker wake; /* the owner waits for full batches */
        bool prepared;     /* it has prepared to wait */
        int end_fd;        /* readable once the threads are to end */
        _Atomic bool ending;
        _Atomic int error;
        _Atomic uint64_t cookie;
        size_t n, next; /* threads; the next one from which the owner takes a batch */
        struct fragment_thread threads[];
};

/* ---- A thread ---- */

static bool is_ending(const struct fragment_thread *r)
{
        return atomic_load(&r->all->ending);
}

/* Takes what the owner returned. Batches come back in the order in which they were passed: if one has memory,
 * no other batch refers to that memory. */
static void collect(struct fragment_thread *r)
{
        size_t n = ring_pop(&r->empty, r->idle + r->n_idle, BATCHES - r->n_idle);

        for (; n > 0; n--) {
                struct received *b = r->idle[r->n_idle++];

                if (b->memory)
                        r->spare[r->n_spare++] = b->memory;
                b->memory = NULL;
        }
}

static void wait_for_batch(struct fragment_thread *r)
{
        waker_prepare(&r->wake);
        if (ring_count(&r->empty) == 0 && !is_ending(r))
                waker_wait(&r->wake, -1);
        waker_done(&r->wake);
}

/* Takes an empty batch; waits for one. False: the thread is to end. */
static bool begin_batch(struct fragment_thread *r, uint64_t cookie)
{
        struct received *b;

        for (collect(r); r->n_idle == 0; collect(r)) {
                wait_for_batch(r);
                if (is_ending(r))
                        return false;
        }
        b = r->idle[--r->n_idle];
        b->cookie = cookie;
        b->n_heads = b->n_chunks = 0;
        memset(b->refused, 0, sizeof b->refused);
        r->batch = b;
        return true;
}

static void pass_batch(struct fragment_thread *r)
{
        bool passed = ring_push(&r->full, &r->batch);

        assert(passed);
        r->batch = NULL;
        waker_wake(&r->all->wake);
}

/* The batch is full; later ones refer to the same memory. */
static bool change_batch(struct fragment_thread *r)
{
        uint64_t cookie = r->batch->cookie;

        pass_batch(r);
        return begin_batch(r, cookie);
}

/* False: the thread is to end. */
static bool take(struct fragment_thread *r, const struct datagram *d)
{
        struct chunk_reader reader;
        enum message_verdict v = fragments_check(r->all->nodes, r->batch->cookie, d, &reader);
        struct received *b = r->batch;

        if (v != MESSAGE_OK) {
                b->refused[v]++;
                return true;
        }
        if (b->n_heads == RECEIVED_HEADS && !change_batch(r))
                return false;
        b = r->batch;
        b->heads[b->n_heads++] = (struct received_head){reader.header.sender_index, reader.header.transaction,
                                                        reader.header.queued_bytes};
        while (chunk_reader_next(&reader, &b->chunks[b->n_chunks].chunk, &b->payload[b->n_chunks])) {
                b->chunks[b->n_chunks].source = reader.header.sender_index;
                if (++b->n_chunks == RECEIVED_CHUNKS && !change_batch(r))
                        return false;
                b = r->batch;
        }
        return true;
}

static int receive_with_faults(struct fragment_thread *r)
{
        int n = faults_receive(r->faults, r->endpoint, r->datagrams, FAULT_DATAGRAMS);

        for (int i = 0; i < n; i++) {
                struct datagram *d = &r->datagrams[i];
                uint8_t *to = r->into + (size_t)i * FAULT_DATAGRAM_BYTES;

                memcpy(to, d->bytes, d->size_bytes);
                d->bytes = to;
        }
        return n;
}

/* Prepares a batch and memory for the next datagrams; unused ones stay. False: the thread is to end. */
static bool prepare(struct fragment_thread *r)
{
        if (!r->batch && !begin_batch(r, 0))
                return false;
        if (r->into)
                return true;
        /* Memory in use belongs to batches that the owner has, and there are as many batches as memories. */
        assert(r->n_spare > 0);
        r->into = r->spare[--r->n_spare];
        if (!r->faults)
                endpoint_receive_into(r->endpoint, r->into);
        return true;
}

/* Passes the datagrams of one system call to the owner. Returns their number, 0 also at the end, or negative
 * errno. */
static int receive(struct fragment_thread *r)
{
        int n, all = 0;

        if (!prepare(r))
                return 0;
        do {
                n = r->faults ? receive_with_faults(r)
                              : endpoint_receive(r->endpoint, r->datagrams, DATAGRAMS);
                /* After the system call: answers to what the owner sent meet the cookie that it had set. */
                if (all == 0)
                        r->batch->cookie = atomic_load(&r->all->cookie);
                for (int i = 0; i < n; i++, all++) {
                        if (!take(r, &r->datagrams[i]))
                                return 0;
                }
        } while (n > 0 && !r->faults && endpoint_has_more(r->endpoint));
        if (all > 0) {
                r->batch->memory = take_ptr(r->into);
                pass_batch(r);
        }
        return n < 0 ? n : all;
}

static void wait_for_datagrams(const struct fragment_thread *r)
{
        struct pollfd fds[] = {
                {.fd = r->endpoint->fd, .events = POLLIN},
                {.fd = r->all->end_fd, .events = POLLIN},
        };

        (void)poll(fds, ARRAY_SIZE(fds), faults_are_holding(r->faults) ? 1 : -1);
}

static void *run(void *ctx)
{
        struct fragment_thread *r = ctx;
        int n = 0;

        while (!is_ending(r) && n >= 0) {
                n = receive(r);
                if (n == 0 && !is_ending(r))
                        wait_for_datagrams(r);
        }
        if (n < 0) {
                atomic_store(&r->all->error, n);
                waker_wake(&r->all->wake);
        }
        return NULL;
}

/* ---- The owner ---- */

static int prepare_thread(struct fragment_thread *r)
{
        int k = waker_init(&r->wake);

        if (k >= 0)
                k = ring_init(&r->full, BATCHES, sizeof(struct received *));
        if (k >= 0)
                k = ring_init(&r->empty, BATCHES, sizeof(struct received *));
        if (k < 0)
                return k;
        r->batches = calloc(BATCHES, sizeof *r->batches);
        r->memory = malloc((size_t)BATCHES * ENDPOINT_MEMORY_BYTES);
        if (!r->batches || !r->memory)
                return -ENOMEM;
        for (size_t i = 0; i < BATCHES; i++) {
                r->batches[i].of = r;
                r->batches[i].memory = r->memory + i * ENDPOINT_MEMORY_BYTES;
                fragment_threads_return(&r->batches[i]);
        }
        return 0;
}

static int start(struct fragment_thread *r, const struct fragment_threads_config *c)
{
        int k = prepare_thread(r);

        if (k >= 0)
                k = thread_start(&r->thread, "evb-receive", c->cpus, c->n_cpus, run, r);
        r->started = k >= 0;
        return k;
}

int fragment_threads_new(struct fragment_threads **ret, const struct fragment_threads_config *config)
{
        size_t size_bytes = sizeof(struct fragment_threads) + config->n * sizeof(struct fragment_thread);
        struct fragment_threads *t = aligned_alloc(_Alignof(struct fragment_threads), size_bytes);
        int k;

        if (!t)
                return -ENOMEM;
        memset(t, 0, size_bytes);
        t->nodes = config->nodes;
        t->n = config->n;
        for (size_t i = 0; i < t->n; i++) {
                t->threads[i].all = t;
                t->threads[i].endpoint = config->endpoints[i];
                t->threads[i].faults = config->faults[i];
                t->threads[i].wake.fd = -1;
        }
        k = waker_init(&t->wake);
        t->end_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
        if (k >= 0 && t->end_fd < 0)
                k = -errno;
        for (size_t i = 0; i < t->n && k >= 0; i++)
                k = start(&t->threads[i], config);
        if (k < 0) {
                fragment_threads_free(t);
                return k;
        }
        *ret = t;
        return 0;
}

static void end(struct fragment_threads *t)
{
        uint64_t one = 1;

        atomic_store(&t->ending, true);
        if (t->end_fd >= 0)
                (void)!write(t->end_fd, &one, sizeof one);
        for (size_t i = 0; i < t->n; i++) {
                if (!t->threads[i].started)
                        continue;
                waker_wake(&t->threads[i].wake);
                pthread_join(t->threads[i].thread, NULL);
        }
}

struct fragment_threads *fragment_threads_free(struct fragment_threads *t)
{
        if (!t)
                return NULL;
        end(t);
        for (size_t i = 0; i < t->n; i++) {
                struct fragment_thread *r = &t->threads[i];

                waker_fini(&r->wake);
                ring_fini(&r->full);
                ring_fini(&r->empty);
                free(r->batches);
                free(r->memory);
        }
        waker_fini(&t->wake);
        if (t->end_fd >= 0)
                close(t->end_fd);
        free(t);
        return NULL;
}

void fragment_threads_set_cookie(struct fragment_threads *t, uint64_t cookie)
{
        atomic_store(&t->cookie, cookie);
}

struct received *fragment_threads_take(struct fragment_threads *t)
{
        struct received *b;

        for (size_t i = 0; i < t->n; i++) {
                struct fragment_thread *r = &t->threads[t->next];

                t->next = (t->next + 1) % t->n;
                if (ring_pop(&r->full, &b, 1) == 1)
                        return b;
        }
        return NULL;
}

void fragment_threads_return(struct received *b)
{
        struct fragment_thread *r = b->of;
        bool returned = ring_push(&r->empty, &b);

        assert(returned);
        waker_wake(&r->wake);
}

int fragment_threads_error(const struct fragment_threads *t)
{
        return atomic_load(&((struct fragment_threads *)t)->error);
}

int fragment_threads_fd(const struct fragment_threads *t)
{
        return t->wake.fd;
}

bool fragment_threads_prepare_wait(struct fragment_threads *t)
{
        t->prepared = true;
        waker_prepare(&t->wake);
        for (size_t i = 0; i < t->n; i++) {
                if (ring_count(&t->threads[i].full) > 0)
                        return true;
        }
        return fragment_threads_error(t) < 0;
}

void fragment_threads_woken(struct fragment_threads *t)
{
        if (t->prepared)
                waker_done(&t->wake);
        t->prepared = false;
}
