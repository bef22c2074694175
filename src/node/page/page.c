/* Serves the page of a DFM. /events is a stream of server-sent events whose connections end after one event:
 * the client connects again after the time that the event states, so an open page needs no connection. */
#include "page.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "base/log.h"
#include "base/util.h"
#include "sys/loop.h"
#include "sys/thread.h"
#include "../run_control/http.h"
#include "history.h"

#define PERIOD_NS NS_PER_S
/* Time until the request that confirms another fault, or that a silent node is gone. */
#define CONFIRM_NS (250 * NS_PER_MS)
/* A page is open if it has asked for the states within this time. */
#define WATCHED_NS (5 * NS_PER_S)
/* When a client connects again: after an event, and before the first one. */
#define EVENT "retry: 1000\ndata: %s\n\n"
#define NO_EVENT "retry: 200\n\n"
/* Time limit for the answers of nodes; must be shorter than the period. */
#define TIMEOUT_NS (800 * NS_PER_MS)
/* If requests take more than 1/LOAD_SHARE of a processor while a page is open, or otherwise 1/IDLE_SHARE, the
 * thread sends them less often. */
#define LOAD_SHARE 10
#define IDLE_SHARE 100
#define NICE_STEP 10
#define NICE_MOST 19
/* The page loads only files from the DFM, and contains no inline scripts or styles. */
#define SECURITY_POLICY                                                                                      \
        "default-src 'self'; object-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

struct page {
        const struct scenario *scenario;
        const struct scenario_node *self;
        const struct node_stats *stats;
        const struct run_http *control;
        struct history history;
        pthread_t thread;
        bool running;
        struct waker waker;
        _Atomic bool stopping;
        _Atomic uint64_t asked_ns; /* last request for the states; 0: none */
        pthread_mutex_t lock;      /* protects the next three */
        char *message;             /* the newest states; NULL: none */
        uint64_t made_ns;
        struct run_fault fault;
        /* Used by the thread only. */
        struct run_fault seen;    /* by the last request */
        struct statuses statuses; /* n is 0 if the addresses of the nodes are unknown */
        uint64_t begin_ns, next_ns, next_look_ns;
};

static bool is_watched(const struct page *p, uint64_t now_ns)
{
        uint64_t asked_ns = p->asked_ns;

        return asked_ns > 0 && now_ns < asked_ns + WATCHED_NS;
}

static void make_message(struct page *p, uint64_t now_ns)
{
        _cleanup_free_ char *control = p->control ? run_state_copy_json(p->control->copy) : NULL;
        const struct page_moment moment = {.dfm = p->self->name,
                                           .takes_commands = p->control && p->control->token[0],
                                           .control = control,
                                           .elapsed_ns = now_ns - p->begin_ns,
                                           .utc_ns = clock_utc_ns()};
        char *text = page_make_message(&p->statuses, &moment);

        if (!text)
                return;
        pthread_mutex_lock(&p->lock);
        free(p->message);
        p->message = text;
        p->made_ns = now_ns;
        pthread_mutex_unlock(&p->lock);
}

/* Returns whether the next request should follow soon, to confirm a fault or its end. Only this thread
 * changes the confirmed fault. */
static bool find_fault(struct page *p)
{
        struct run_fault now;
        bool confirms;

        if (!run_summary_find_fault(&p->statuses, &now))
                return false;
        confirms = run_fault_confirms(&p->fault, &p->seen, &now);
        if (confirms) {
                pthread_mutex_lock(&p->lock);
                p->fault = now;
                pthread_mutex_unlock(&p->lock);
        }
        p->seen = now;
        return !confirms;
}

void page_read_fault(struct page *p, bool may_wait, struct run_fault *ret)
{
        if (!p || (may_wait ? pthread_mutex_lock(&p->lock) : pthread_mutex_trylock(&p->lock)) != 0)
                return;
        *ret = p->fault;
        pthread_mutex_unlock(&p->lock);
}

/* Requests the states of all nodes. Returns when to ask again. */
static uint64_t look(struct page *p, uint64_t now_ns)
{
        uint64_t before_ns = thread_used_ns();
        bool watched = is_watched(p, now_ns), changed = false;

        if (statuses_ask(&p->statuses, TIMEOUT_NS) >= 0) {
                changed = find_fault(p) || statuses_await_silence(&p->statuses);
                if (watched)
                        make_message(p, now_ns);
        }
        return now_ns + MAX(changed ? CONFIRM_NS : PERIOD_NS,
                            (watched ? LOAD_SHARE : IDLE_SHARE) * (thread_used_ns() - before_ns));
}

static void take_turn(struct page *p, uint64_t now_ns)
{
        if (now_ns >= p->next_ns) {
                history_add(&p->history, p->stats, now_ns, clock_utc_ns());
                p->next_ns = now_ns + PERIOD_NS;
        }
        /* A page that has just been opened does not wait. */
        if (now_ns >= p->next_look_ns || (is_watched(p, now_ns) && now_ns > p->made_ns + WATCHED_NS))
                p->next_look_ns = look(p, now_ns);
}

static void *run(void *ctx)
{
        struct page *p = ctx;

        (void)setpriority(PRIO_PROCESS, 0, MIN(getpriority(PRIO_PROCESS, 0) + NICE_STEP, NICE_MOST));
        p->begin_ns = clock_now_ns();
        while (!p->stopping) {
                uint64_t now_ns = clock_now_ns(), until_ns;

                take_turn(p, now_ns);
                waker_prepare(&p->waker);
                now_ns = clock_now_ns();
                until_ns = MIN(p->next_ns, p->next_look_ns);
                if (!p->stopping && now_ns < until_ns)
                        waker_wait(&p->waker, (int)DIV_ROUND_UP(until_ns - now_ns, NS_PER_MS));
                waker_done(&p->waker);
        }
        return NULL;
}

/* The reply takes ownership of `text`. */
static void reply_text(struct http_reply *ret, const char *content_type, char *text)
{
        ret->content_type = content_type;
        ret->text = text;
        ret->text_bytes = text ? strlen(text) : 0;
}

static void reply_file(struct http_reply *ret, const struct page_file *file)
{
        ret->content_type = file->content_type;
        ret->cache_control = file->cache_control;
        ret->security_policy = SECURITY_POLICY;
        ret->text = malloc(file->n_bytes);
        if (ret->text)
                memcpy(ret->text, file->bytes, file->n_bytes);
        ret->text_bytes = file->n_bytes;
}

static void reply_event(struct http_reply *ret, struct page *p)
{
        uint64_t now_ns = clock_now_ns();
        bool was_watched = is_watched(p, now_ns);
        char *text = NULL;

        p->asked_ns = now_ns;
        if (!was_watched)
                waker_wake(&p->waker);
        pthread_mutex_lock(&p->lock);
        if (!p->message || now_ns > p->made_ns + WATCHED_NS)
                text = strdup(NO_EVENT);
        else if (asprintf(&text, EVENT, p->message) < 0)
                text = NULL;
        pthread_mutex_unlock(&p->lock);
        reply_text(ret, "text/event-stream", text);
}

bool page_answer(struct page *p, const struct http_request *request, struct http_reply *ret)
{
        if (!p)
                return false;
        for (size_t i = 0; i < n_page_files; i++) {
                if (strcmp(request->path, page_files[i].path) == 0) {
                        reply_file(ret, &page_files[i]);
                        return true;
                }
        }
        if (strcmp(request->path, "/events") == 0)
                reply_event(ret, p);
        else if (strcmp(request->path, "/history") == 0)
                reply_text(ret, "application/json", history_text(&p->history));
        else
                return false;
        return true;
}

int page_new(struct page **ret, const struct scenario *s, const struct scenario_node *self,
             const struct node_stats *stats, const struct run_http *control)
{
        struct error e = {};
        struct page *p;
        int r;

        *ret = NULL;
        if (self->role != ROLE_DFM)
                return 0;
        p = calloc(1, sizeof *p);
        if (!p)
                return log_error_errno(ENOMEM, "page: %m");
        *p = (struct page){.scenario = s, .self = self, .stats = stats, .control = control};
        history_init(&p->history);
        pthread_mutex_init(&p->lock, NULL);
        r = waker_init(&p->waker);
        if (r >= 0)
                r = statuses_init(&p->statuses, s, &e);
        if (r < 0) {
                page_free(p);
                return log_error_errno(r, "page: %s", e.message[0] ? e.message : strerror(-r));
        }
        *ret = p;
        return 0;
}

int page_start(struct page *p, const unsigned *cpus, size_t n_cpus)
{
        sigset_t all, before;
        int r;

        if (!p)
                return 0;
        /* Blocks signals, which the event loop handles. */
        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, &before);
        r = thread_start(&p->thread, "evb-page", cpus, n_cpus, run, p);
        pthread_sigmask(SIG_SETMASK, &before, NULL);
        p->running = r >= 0;
        return r < 0 ? log_error_errno(r, "page: cannot start a thread: %m") : 0;
}

void page_stop(struct page *p)
{
        if (!p || !p->running)
                return;
        p->stopping = true;
        waker_wake(&p->waker);
        pthread_join(p->thread, NULL);
        p->running = false;
}

struct page *page_free(struct page *p)
{
        if (!p)
                return NULL;
        page_stop(p);
        statuses_fini(&p->statuses);
        waker_fini(&p->waker);
        history_fini(&p->history);
        pthread_mutex_destroy(&p->lock);
        free(p->message);
        free(p);
        return NULL;
}
