/* Receives fragments over UDP in several threads: opens a socket for each of them, and stores in the event
 * loop what they have checked and decoded (fragment_threads.c). */
#include <errno.h>
#include <linux/filter.h>
#include <string.h>
#include <sys/epoll.h>

#include "base/log.h"
#include "base/util.h"
#include "data/network.h"
#include "data/socket_open.h"
#include "fragments.h"
#include "fragment_threads.h"

/* Batches per turn, before the node handles control messages and timers. */
#define ROUNDS 8
/* Faults of these sockets are independent of those of all others; see network_fault_config(). */
#define FAULTS_FIRST 16u

struct threads_receiver {
        struct endpoint *endpoints[SCENARIO_RECEIVE_THREADS_MAX];
        struct faults *faults[SCENARIO_RECEIVE_THREADS_MAX];
        size_t n;
        struct fragment_threads *threads;
        struct loop_io io;
        /* The kernel's number of drops at the last look, and all of them. */
        uint32_t seen[SCENARIO_RECEIVE_THREADS_MAX];
        uint64_t dropped;
};

static void is_ready(void *ctx, uint32_t events)
{
        (void)ctx;
        (void)events; /* the turn takes batches */
}

/* Gives ROS i to thread i modulo n: all threads have as many, and all datagrams of a ROS stay in order.
 * Without this program, a hash of the addresses would decide. */
static int divide(const struct threads_receiver *u)
{
        const struct sock_filter program[] = {
                BPF_STMT(BPF_LD | BPF_B | BPF_ABS, FRAGMENTS_SENDER_AT + 1),
                BPF_STMT(BPF_ALU | BPF_AND | BPF_K, (1u << (FRAGMENTS_INDEX_BITS - 8)) - 1),
                BPF_STMT(BPF_ALU | BPF_LSH | BPF_K, 8),
                BPF_STMT(BPF_MISC | BPF_TAX, 0),
                BPF_STMT(BPF_LD | BPF_B | BPF_ABS, FRAGMENTS_SENDER_AT),
                BPF_STMT(BPF_ALU | BPF_OR | BPF_X, 0),
                BPF_STMT(BPF_ALU | BPF_MOD | BPF_K, (uint32_t)u->n),
                BPF_STMT(BPF_RET | BPF_A, 0),
        };
        int k = endpoint_divide(u->endpoints[0], program, ARRAY_SIZE(program));

        return k < 0 ? log_error_errno(k, "dividing fragments among receive threads: %m") : 0;
}

static int open_socket(struct data_receiver *r, struct threads_receiver *u, const struct udp_config *config)
{
        struct fault_config faults =
                network_fault_config(r->context.scenario, r->context.self, FAULTS_FIRST + (unsigned)u->n);
        int k = faults_new(&u->faults[u->n], &faults);

        if (k < 0)
                return log_error_errno(k, "data sockets: %m");
        k = socket_open_udp(&u->endpoints[u->n], config, "fragments");
        if (k >= 0)
                u->n++;
        return k;
}

static int open_sockets(struct data_receiver *r, struct threads_receiver *u)
{
        const struct scenario *s = r->context.scenario;
        struct udp_config config = fragments_socket(r);
        size_t n = MIN((size_t)s->sfi.receive_threads, (size_t)s->ros.count);
        int k = network_node_address(&config.local, r->context.self, (uint16_t)s->network.data_port);

        while (k >= 0 && u->n < n) {
                k = open_socket(r, u, &config);
                config.beside = u->endpoints[0];
        }
        return k < 0 || n == 1 ? k : divide(u);
}

static uint64_t least_granted_bytes(const struct threads_receiver *u)
{
        uint64_t least = u->endpoints[0]->granted_receive_bytes;

        for (size_t i = 1; i < u->n; i++)
                least = MIN(least, u->endpoints[i]->granted_receive_bytes);
        return least;
}

static int threads_open(struct data_receiver *r)
{
        const struct scenario_node *self = r->context.self;
        struct threads_receiver *u = calloc(1, sizeof *u);
        struct fragment_threads_config config = {
                .nodes = r->context.nodes,
                .cpus = self->cpus + 1,
                .n_cpus = self->n_cpus > 1 ? self->n_cpus - 1 : 0,
        };
        int k;

        if (!u)
                return log_error_errno(ENOMEM, "data sockets: %m");
        r->state = u;
        k = open_sockets(r, u);
        if (k < 0)
                return k;
        fragments_note_granted(r, least_granted_bytes(u));
        config.endpoints = u->endpoints;
        config.faults = u->faults;
        config.n = u->n;
        k = fragment_threads_new(&u->threads, &config);
        if (k < 0)
                return log_error_errno(
                        k, "sfi.receive-threads: cannot start %zu threads: %m; reduce the value", u->n);
        u->io = (struct loop_io){
                .fd = fragment_threads_fd(u->threads), .events = EPOLLIN, .ready = is_ready, .ctx = u};
        return loop_add(r->context.loop, &u->io);
}

static void threads_close(struct data_receiver *r)
{
        struct threads_receiver *u = r->state;

        if (!u)
                return;
        fragment_threads_free(u->threads);
        for (size_t i = 0; i < ARRAY_SIZE(u->endpoints); i++) {
                endpoint_free(u->endpoints[i]);
                faults_free(u->faults[i]);
        }
        free(u);
}

static void count_refusals(const struct data_receiver *r, enum message_verdict v, uint32_t n)
{
        for (uint32_t i = 0; i < n; i++)
                stats_count_refusal(r->context.stats, v);
}

static void store(struct data_receiver *r, uint64_t now_ns, struct received *b)
{
        for (uint32_t i = 0; i < b->n_heads; i++) {
                const struct received_head *h = &b->heads[i];

                if (sfi_count_datagram(r->core, h->source, h->transaction))
                        sfi_note_queued(r->core, now_ns, h->source, h->queued_bytes);
        }
        fragments_store(r, now_ns, b->chunks, b->payload, b->n_chunks);
}

static void handle(struct data_receiver *r, uint64_t now_ns, struct received *b)
{
        for (unsigned v = 0; v < RECEIVED_VERDICTS; v++)
                count_refusals(r, (enum message_verdict)v, b->refused[v]);
        if (b->cookie == sfi_member(r->core)->cookie)
                store(r, now_ns, b);
        else /* the SFI has joined another run since a thread checked these */
                count_refusals(r, MESSAGE_OTHER_RUN, b->n_heads);
}

static int threads_turn(struct data_receiver *r, uint64_t now_ns, bool *ret_more)
{
        struct threads_receiver *u = r->state;
        struct received *b;
        int error;

        fragment_threads_woken(u->threads);
        fragment_threads_set_cookie(u->threads, sfi_member(r->core)->cookie);
        for (int round = 0; round < ROUNDS && (b = fragment_threads_take(u->threads)); round++) {
                handle(r, now_ns, b);
                fragment_threads_return(b);
        }
        error = fragment_threads_error(u->threads);
        if (error < 0)
                return log_error_errno(error, "receiving fragments: %m");
        *ret_more = fragment_threads_prepare_wait(u->threads);
        return 0;
}

static uint64_t threads_room(const struct data_receiver *r)
{
        /* All of it may come from ROSs of one thread, so only one buffer counts. */
        return fragments_room_bytes(least_granted_bytes(r->state));
}

static void threads_account(struct data_receiver *r)
{
        struct threads_receiver *u = r->state;

        for (size_t i = 0; i < u->n; i++) {
                uint32_t more = endpoint_read_dropped(u->endpoints[i]) - u->seen[i];

                /* 0 if the kernel cannot tell. */
                if ((int32_t)more <= 0)
                        continue;
                u->dropped += more;
                u->seen[i] += more;
        }
        stats_set(&r->context.stats->packets_socket_dropped, u->dropped);
}

const struct data_receiver_ops data_receive_threads = {
        .open = threads_open,
        .turn = threads_turn,
        .room_bytes = threads_room,
        .account = threads_account,
        .close = threads_close,
};
