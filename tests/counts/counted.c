/* Runs all nodes of a scenario in this process, with the product's own event loops, cores and data paths, and
 * prints what they asked of the kernel while a fixed number of events was built. Callgrind counts the
 * instructions of the same interval; scripts/counts.py compares both with the recorded figures. */
#include <errno.h>
#include <gnu/libc-version.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#if HAVE_CALLGRIND
#include <valgrind/callgrind.h>
#else
#define CALLGRIND_START_INSTRUMENTATION
#define CALLGRIND_STOP_INSTRUMENTATION
#define VALGRIND_PRINTF(...)
#endif

#include "counted.h"
#include "base/log.h"
#include "base/util.h"
#include "core/sfi.h"
#include "data/stats.h"
#include "node/node.h"
#include "sys/memory.h"

/* Events before the counted interval, which find every buffer and table in use, and after it. */
#define EVENTS_AROUND 1000

struct counted_node {
        const struct scenario_node *self;
        unsigned number;
        int status;
        pthread_t thread;
};

static struct scenario scenario;
static struct counted_node nodes[COUNTED_NODES];
static uint64_t events, written, calls[ROLE_SFI + 1][CALLS];

void __real_sfi_written(struct sfi *s, uint64_t now_ns, uint32_t slot, bool failed);

/* The counted interval begins and ends with an event. */
void __wrap_sfi_written(struct sfi *s, uint64_t now_ns, uint32_t slot, bool failed)
{
        written++;
        if (written == EVENTS_AROUND) {
                memcpy(calls, counted_calls, sizeof calls);
                /* Marks the interval among the system calls in valgrind's log. */
                VALGRIND_PRINTF("counted: begin\n");
                CALLGRIND_START_INSTRUMENTATION;
        } else if (written == EVENTS_AROUND + events) {
                CALLGRIND_STOP_INSTRUMENTATION;
                VALGRIND_PRINTF("counted: end\n");
                for (int r = 0; r <= ROLE_SFI; r++)
                        for (int c = 0; c < CALLS; c++)
                                calls[r][c] = counted_calls[r][c] - calls[r][c];
        }
        __real_sfi_written(s, now_ns, slot, failed);
}

/* Each node has counters of its own, as under `evb run`. */
int __wrap_memory_share_map(int fd, size_t size_bytes, void **ret)
{
        void *memory = memory_map_shared(size_bytes);

        if (!memory)
                return -ENOMEM;
        *ret = memory;
        return 0;
}

static void *run_node(void *ctx)
{
        struct counted_node *n = ctx;
        const struct node_options options = {.scenario = &scenario, .name = n->self->name};

        turns_begin(n->number, n->self->role);
        n->status = node_run(&options);
        turns_end();
        return NULL;
}

static int load(int n, char **settings)
{
        struct scenario_errors *errors = calloc(1, sizeof *errors);
        int r = errors ? scenario_load(&scenario, "/dev/null", (const char *const *)settings, (size_t)n,
                                       errors)
                       : -ENOMEM;

        if (r < 0)
                fprintf(stderr, "counted: %s\n", errors && errors->n > 0 ? errors->text[0] : strerror(-r));
        free(errors);
        for (size_t i = 0; r >= 0 && i < scenario.n_nodes; i++)
                snprintf(scenario.nodes[i].address, sizeof scenario.nodes[i].address, "127.0.0.%zu", 1 + i);
        return r;
}

/* The pattern uses it, so the figures depend on it. */
static bool has_avx2(void)
{
#if defined(__x86_64__)
        return __builtin_cpu_supports("avx2");
#else
        return false;
#endif
}

static void print_calls(void)
{
        static const char *const names[] = {
                [CALL_EPOLL_CTL] = "epoll_ctl", [CALL_EPOLL_WAIT] = "epoll_wait",
                [CALL_IOCTL] = "ioctl",         [CALL_RECVMMSG] = "recvmmsg",
                [CALL_RECVMSG] = "recvmsg",     [CALL_SENDMMSG] = "sendmmsg",
                [CALL_SENDMSG] = "sendmsg",     [CALL_SOCKOPT] = "sockopt",
        };
        uint64_t fragments = events * scenario.ros.count;

        printf("{\"build\": \"%s, glibc %s, %s\", \"callgrind\": %s, \"events\": %llu, \"fragments\": %llu, "
               "\"calls\": {",
               COUNTED_BUILD, gnu_get_libc_version(), has_avx2() ? "AVX2" : "no AVX2",
               HAVE_CALLGRIND ? "true" : "false", (unsigned long long)events, (unsigned long long)fragments);
        for (int r = ROLE_DFM; r <= ROLE_SFI; r++) {
                printf("%s\"%s\": {", r > ROLE_DFM ? "}, " : "", scenario_role_name((enum node_role)r));
                for (int c = 0; c < CALLS; c++)
                        printf("%s\"%s\": %llu", c ? ", " : "", names[c], (unsigned long long)calls[r][c]);
        }
        printf("}}, \"roles\": [");
        for (size_t i = 0; i < scenario.n_nodes; i++)
                printf("%s\"%s\"", i ? ", " : "", scenario_role_name(scenario.nodes[i].role));
        printf("]}\n");
}

int main(int argc, char **argv)
{
        int status = 0;

        if (argc < 3) {
                fprintf(stderr, "usage: counted EVENTS SECTION.KEY=VALUE...\n");
                return 2;
        }
        events = strtoull(argv[1], NULL, 10);
        setenv(NODE_STATS_ENV, "0", 1);
        log_open("counted", LOG_LEVEL_WARNING);
        if (load(argc - 2, argv + 2) < 0)
                return 2;
        scenario.trigger.events = 2 * EVENTS_AROUND + events;
        turns_init((unsigned)scenario.n_nodes);
        for (unsigned i = 0; i < scenario.n_nodes; i++) {
                nodes[i] = (struct counted_node){.self = &scenario.nodes[i], .number = i};
                if (pthread_create(&nodes[i].thread, NULL, run_node, &nodes[i]) != 0) {
                        fprintf(stderr, "counted: cannot create a thread for each node\n");
                        return 1;
                }
        }
        for (unsigned i = 0; i < scenario.n_nodes; i++) {
                pthread_join(nodes[i].thread, NULL);
                status |= nodes[i].status;
        }
        if (status != 0 || sockets_dropped() > 0 || written != scenario.trigger.events) {
                fprintf(stderr, "counted: status %d, %llu datagrams did not fit, %llu of %llu events\n",
                        status, (unsigned long long)sockets_dropped(), (unsigned long long)written,
                        (unsigned long long)scenario.trigger.events);
                return 1;
        }
        print_calls();
        return 0;
}
