/* Connects a ROS's loop with its shaping thread by a mailbox, which holds only the newest demand. The thread
 * writes its results to the node's counters. */
#include "shaping.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/log.h"
#include "base/util.h"
#include "node/shaping_request.h"
#include "sys/thread.h"
#include "shaping_tree.h"

/* Maximum wait for the kernel's counters at the end. */
#define SETTLE_MAX_NS (2 * NS_PER_S)

struct shaping {
        struct shaping_tree tree; /* owned by the worker while it runs */
        uint32_t posted;          /* owned by the loop: number of the demand posted last */
        bool running, required;
        struct tc_device device; /* both as at the start, for the loop's use */
        enum tc_backend backend;
        pthread_t worker;
        struct waker waker;
        pthread_mutex_t lock; /* protects the members below; never held during a netlink call */
        pthread_cond_t answered_more;
        struct shaping_demand demand;
        uint32_t number;          /* number of the core's demand */
        uint32_t changes;         /* number of changes of the rates */
        uint64_t asked, answered; /* numbers of requests to read the kernel's counters, and of answers */
        bool stop;
};

/* Positions in the mailbox, which show whether it has new mail. */
struct marks {
        uint32_t number, changes;
        uint64_t asked;
};

/* False: the thread must end. */
static bool read_mail(struct shaping *s, struct shaping_demand *demand, struct marks *marks)
{
        bool stop;

        pthread_mutex_lock(&s->lock);
        *demand = s->demand;
        *marks = (struct marks){s->number, s->changes, s->asked};
        stop = s->stop;
        pthread_mutex_unlock(&s->lock);
        return !stop;
}

static void answer(struct shaping *s, uint64_t asked)
{
        pthread_mutex_lock(&s->lock);
        s->answered = asked;
        pthread_cond_signal(&s->answered_more);
        pthread_mutex_unlock(&s->lock);
}

static bool has_mail(struct shaping *s, const struct marks *m)
{
        bool has;

        pthread_mutex_lock(&s->lock);
        has = s->stop || s->asked != m->asked || s->number != m->number || s->changes != m->changes;
        pthread_mutex_unlock(&s->lock);
        return has;
}

/* Waits for mail, a notification of the kernel, or the tree's deadline. */
static void wait(struct shaping *s, const struct marks *marks)
{
        struct pollfd p[] = {
                {.fd = s->waker.fd, .events = POLLIN},
                {.fd = s->tree.watch ? tc_watch_fd(s->tree.watch) : -1, .events = POLLIN},
        };
        uint64_t now_ns = clock_now_ns(),
                 until_ns = MIN(shaping_tree_deadline_ns(&s->tree), now_ns + NS_PER_S);

        waker_prepare(&s->waker);
        if (until_ns > now_ns && !has_mail(s, marks))
                (void)poll(p, ARRAY_SIZE(p), (int)DIV_ROUND_UP(until_ns - now_ns, NS_PER_MS));
        waker_done(&s->waker);
}

static void *work(void *ctx)
{
        struct shaping *s = ctx;
        struct shaping_demand demand;
        uint64_t answered = 0;
        struct marks marks;

        while (read_mail(s, &demand, &marks)) {
                shaping_tree_follow(&s->tree, clock_now_ns(), &demand);
                shaping_tree_turn(&s->tree, marks.asked != answered);
                if (marks.asked != answered)
                        answer(s, marks.asked);
                answered = marks.asked;
                wait(s, &marks);
        }
        return NULL;
}

static int start_thread(struct shaping *s)
{
        const struct scenario_node *self = s->tree.self;
        int r = thread_start(&s->worker, "evb-shaping", self->cpus + 1,
                             self->n_cpus > 1 ? self->n_cpus - 1 : 0, work, s);

        s->running = r >= 0;
        return r < 0 ? log_error_errno(r, "shaping: thread: %m") : 0;
}

static int start_worker(struct shaping *s)
{
        pthread_condattr_t monotonic;
        int r = waker_init(&s->waker);

        if (r < 0)
                return log_error_errno(r, "shaping: %m");
        pthread_mutex_init(&s->lock, NULL);
        pthread_condattr_init(&monotonic);
        pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
        pthread_cond_init(&s->answered_more, &monotonic);
        pthread_condattr_destroy(&monotonic);
        s->demand = s->tree.demand;
        s->device = s->tree.device;
        s->backend = s->tree.backend;
        return start_thread(s);
}

int shaping_new(struct shaping **ret, struct node *n)
{
        const struct scenario *sc = n->scenario;
        struct shaping *s;
        int r;

        *ret = NULL;
        if (sc->qos.backend == QOS_NONE || sc->qos.backend == QOS_SOCKET)
                shaping_tree_warn_of_earlier(sc, n->self);
        if (sc->qos.backend == QOS_NONE)
                return 0;
        s = calloc(1, sizeof *s);
        if (!s)
                return log_error_errno(ENOMEM, "shaping: %m");
        s->tree = (struct shaping_tree){.scenario = malloc(sizeof *sc),
                                        .self = n->self,
                                        .stats = n->stats,
                                        .metrics = n->metrics,
                                        .check_only = n->check_only};
        s->waker.fd = -1;
        if (!s->tree.scenario) {
                free(s);
                return log_error_errno(ENOMEM, "shaping: %m");
        }
        memcpy(s->tree.scenario, sc, sizeof *sc);
        s->required = sc->qos.required;
        r = shaping_tree_open(&s->tree);
        if (r >= 0 && !n->check_only)
                r = start_worker(s);
        if (r < 0 || n->check_only) {
                shaping_free(s);
                if (r >= 0)
                        return 0;
                if (sc->qos.required)
                        return r;
                log_warning("shaping: this node runs unshaped because shaping is optional (qos.backend)");
                return 0;
        }
        *ret = s;
        return 0;
}

static void stop_worker(struct shaping *s)
{
        pthread_mutex_lock(&s->lock);
        s->stop = true;
        pthread_mutex_unlock(&s->lock);
        waker_wake(&s->waker);
        pthread_join(s->worker, NULL);
        s->running = false;
}

void shaping_rest(struct shaping *s)
{
        if (s && s->running)
                stop_worker(s);
}

/* A new core numbers its demands from the beginning, so the mailbox restarts. */
int shaping_go_on(struct shaping *s)
{
        s->posted = s->number = 0;
        s->asked = s->answered = 0;
        s->stop = false;
        s->tree.unshaped_ns = 0;
        for (unsigned i = 0; i < EVB_SFI_MAX; i++)
                stats_set(&s->tree.dropped[i], 0);
        if (s->tree.unshaped_since_ns != NEVER_NS)
                s->tree.unshaped_since_ns = clock_now_ns();
        return s->tree.backend == TC_BACKEND_NONE ? 0 : start_thread(s);
}

struct shaping *shaping_free(struct shaping *s)
{
        if (!s)
                return NULL;
        if (s->running)
                stop_worker(s);
        waker_fini(&s->waker);
        shaping_tree_close(&s->tree);
        free(s->tree.scenario);
        free(s);
        return NULL;
}

void shaping_turn(struct shaping *s, const struct ros *core)
{
        if (!s || !s->running || s->posted == ros_demand_number(core))
                return;
        s->posted = ros_demand_number(core);
        pthread_mutex_lock(&s->lock);
        memcpy(s->demand.sfi_live, ros_sfi_live(core), sizeof s->demand.sfi_live);
        memcpy(s->demand.permille, ros_sfi_permille(core), sizeof s->demand.permille);
        s->demand.sources = ros_sources(core);
        s->number = s->posted;
        pthread_mutex_unlock(&s->lock);
        waker_wake(&s->waker);
}

bool shaping_is_active(const struct shaping *s)
{
        return s && s->running;
}

int shaping_check(const struct shaping *s, const struct scenario *to, struct error *e)
{
        return shaping_rates_check(to, s->tree.self, &s->device, s->backend, s->tree.super_packet_bytes, e);
}

void shaping_change(struct shaping *s, const struct scenario *to)
{
        const struct shaping_rates rates = shaping_rates_of(to);

        if (!shaping_is_active(s))
                return;
        pthread_mutex_lock(&s->lock);
        s->changes += memcmp(&s->demand.rates, &rates, sizeof rates) != 0;
        s->demand.rates = rates;
        pthread_mutex_unlock(&s->lock);
        waker_wake(&s->waker);
}

uint64_t shaping_dropped(const struct shaping *s, unsigned sfi)
{
        return s ? stats_get(&s->tree.dropped[sfi]) : 0;
}

void shaping_settle(struct shaping *s)
{
        uint64_t until_ns = clock_now_ns() + SETTLE_MAX_NS;
        struct timespec until = {.tv_sec = (time_t)(until_ns / NS_PER_S),
                                 .tv_nsec = (long)(until_ns % NS_PER_S)};
        int r = 0;

        if (!s || !s->running)
                return;
        pthread_mutex_lock(&s->lock);
        s->asked++;
        pthread_mutex_unlock(&s->lock);
        waker_wake(&s->waker);
        pthread_mutex_lock(&s->lock);
        while (r == 0 && s->answered != s->asked)
                r = pthread_cond_timedwait(&s->answered_more, &s->lock, &until);
        pthread_mutex_unlock(&s->lock);
        if (r != 0)
                log_warning("shaping: the kernel does not answer; the report has old counters");
}

size_t shaping_super_packet_bytes(const struct shaping *s)
{
        return s ? s->tree.super_packet_bytes : 0;
}

uint64_t shaping_pace_bps(const struct shaping *s)
{
        return s && s->backend == TC_BACKEND_SOCKET ? stats_get(&s->tree.stats->qos_rate_bps) : 0;
}

uint32_t shaping_overhead_bytes(const struct shaping *s)
{
        return s ? s->tree.overhead_bytes : 0;
}

bool shaping_fell_short(const struct shaping *s)
{
        return s && s->required && atomic_load_explicit(&s->tree.unshaped, memory_order_relaxed);
}
