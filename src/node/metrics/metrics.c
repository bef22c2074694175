/* Serves the metrics of a node. The thread of the HTTP server reads the node's counters, which are atomic,
 * and copies everything else from the shared state. */
#include "metrics.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "../page/page.h"
#include "../progress/progress.h"
#include "../run_control/http.h"
#include "counters.h"
#include "openmetrics.h"
#include "base/log.h"
#include "base/util.h"
#include "conf/digest.h"
#include "data/socket_open.h"
#include "net/http_server.h"
#include "net/local_listener.h"
#include "sys/loop.h"
#include "sys/memory.h"

/* Reads field 22 of /proc/self/stat, the start time in ticks since the machine started. The name in field 2
 * may contain blanks. */
static double read_start_seconds(void)
{
        double ticks_per_s = (double)sysconf(_SC_CLK_TCK);
        char text[1024], *at;
        unsigned long long ticks;
        FILE *f = fopen("/proc/self/stat", "re");
        size_t n = f ? fread(text, 1, sizeof text - 1, f) : 0;

        if (f)
                fclose(f);
        text[n] = '\0';
        at = strrchr(text, ')');
        if (!at || sscanf(at + 1,
                          " %*c %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %llu",
                          &ticks) != 1)
                return -1;
        return (double)(clock_utc_ns() - clock_boot_ns()) / NS_PER_S + (double)ticks / ticks_per_s;
}

static void read_memory(struct metrics_process *p)
{
        long page_bytes = sysconf(_SC_PAGESIZE), all, resident;
        FILE *f = fopen("/proc/self/statm", "re");

        if (!f)
                return;
        if (fscanf(f, "%ld %ld", &all, &resident) == 2) {
                p->virtual_bytes = all * page_bytes;
                p->resident_bytes = resident * page_bytes;
        }
        fclose(f);
}

static int64_t count_fds(void)
{
        DIR *d = opendir("/proc/self/fd");
        int64_t n = 0;

        if (!d)
                return -1;
        while (readdir(d))
                n++;
        closedir(d);
        return n - 3; /* ".", ".." and the descriptor of the directory */
}

static void metrics_read_process(struct metrics_process *ret)
{
        struct rlimit fds;

        *ret = (struct metrics_process){.resident_bytes = -1, .virtual_bytes = -1, .max_fds = -1};
        ret->cpu_seconds = cpu_used_seconds();
        ret->start_seconds = read_start_seconds();
        read_memory(ret);
        ret->open_fds = count_fds();
        if (getrlimit(RLIMIT_NOFILE, &fds) == 0 && fds.rlim_cur <= INT64_MAX)
                ret->max_fds = (int64_t)fds.rlim_cur;
}

#define UNIX_PREFIX "unix:"
#define PURPOSE "metrics (metrics.listen)"
#define TYPE_JSON "application/json"
#define TYPE_TEXT "text/plain; charset=utf-8"
#define TYPE_METRICS "text/plain; version=0.0.4; charset=utf-8"
#define TYPE_OPEN_METRICS "application/openmetrics-text; version=1.0.0; charset=utf-8"

struct metrics {
        const struct scenario *scenario;
        const struct scenario_node *self;
        struct node_stats *stats;
        struct metrics_shared shared;
        const struct run_http *control; /* NULL: none */
        struct metrics_sample last;     /* last sample for the computation of rates; used by the event loop */
        /* Counters since the process began, and values of earlier runs, under the lock of `shared`. */
        uint64_t counters[COUNTERS];
        uint64_t counters_before[COUNTERS];
        struct metrics_state before; /* only what metrics_add_run() adds */
        /* Used by the server's thread. */
        struct metrics_state copy;
        struct metrics_view view;
        double start_seconds;
        int listener;                /* TCP; -1: none */
        struct local_listener local; /* fd -1: none */
        struct http_server *server;
        struct page *page; /* NULL: the node is not the DFM */
};

/* Records events of a DFM or SFI, fragments of a ROS or SFI, and bytes of payload, or, for a ROS, bytes
 * sent. */
static void record_rates(struct metrics *m, struct metrics_state *to)
{
        const struct node_stats *s = m->stats;
        bool ros = m->self->role == ROLE_ROS;
        const struct metrics_sample now = {
                .now_ns = clock_now_ns(),
                .triggers = stats_get(&s->triggers),
                .events = stats_get(&s->events_complete) + stats_get(&s->events_partial),
                .fragments = stats_get(ros ? &s->fragments_sent : &s->fragments_received),
                .bytes = stats_get(ros ? &s->bytes_sent : &s->payload_bytes),
                .busy_ns = stats_get(&s->busy_ns),
        };

        metrics_update_rates(&to->rates, &m->last, &now);
}

/* Returns whether the window of losses moved. If so, the windows of the peers move as well. */
static bool record_losses(const struct metrics *m, struct metrics_state *to)
{
        struct losses_sample now = {.now_ns = clock_now_ns()};

        stats_read(m->stats, now.counts);
        return losses_record(&to->losses, &now);
}

/* NULL: there are no metrics, or the server's thread is copying, so the state is published in the next
 * turn. */
static struct metrics_state *begin(struct metrics *m)
{
        if (!m || pthread_mutex_trylock(&m->shared.lock) != 0)
                return NULL;
        record_rates(m, &m->shared.state);
        return &m->shared.state;
}

static void end(struct metrics *m)
{
        pthread_mutex_unlock(&m->shared.lock);
}

void metrics_record_dfm(struct metrics *m, const struct dfm *core)
{
        struct metrics_state *s = begin(m);

        if (!s)
                return;
        (void)record_losses(m, s);
        /* A DFM that resumes a run adds the counts of the previous DFM at once, so the rates restart. */
        if (dfm_state(core) == RUN_STARTING)
                m->last.now_ns = 0;
        s->run = dfm_run(core);
        s->open_events = dfm_open_events(core);
        s->busy = dfm_run_view(core).is_busy;
        s->waiting_triggers = dfm_run_view(core).waiting;
        metrics_fold(&s->event_latency, dfm_latency_ns(core));
        s->latency_p50_ns = histogram_quantile(dfm_latency_ns(core), 0.5);
        s->latency_p99_ns = histogram_quantile(dfm_latency_ns(core), 0.99);
        metrics_fold(&s->level2_latency, dfm_level2_latency_ns(core));
        for (size_t i = 0; i < s->n_peers; i++) {
                const struct scenario_node *n = &m->scenario->nodes[i];
                struct dfm_node_view v;

                if (n->role == ROLE_DFM)
                        continue;
                v = dfm_view(core, n->role, (uint16_t)n->index);
                s->peers[i].live = v.live;
                s->peers[i].xoff = v.holds_back;
                s->peers[i].free_credits = v.free_credits;
                s->peers[i].held = v.held;
        }
        end(m);
}

void metrics_record_ros(struct metrics *m, const struct ros *core, uint32_t run, uint32_t mtu_failed_paths)
{
        struct metrics_state *s = begin(m);

        if (!s)
                return;
        (void)record_losses(m, s);
        s->run = run;
        s->held_fragments = ros_held(core);
        s->mtu_failed_paths = mtu_failed_paths;
        s->front_end =
                ros_blames_front_end(ros_obstacle(core).reason) ? ros_obstacle(core).reason : REASON_NONE;
        s->board_clock_known = stats_get(&m->stats->board_clock_known);
        s->board_ahead_ns = stats_get(&m->stats->board_ahead_ns);
        s->board_drift_ppb = stats_get(&m->stats->board_drift_ppb);
        s->buffer_used_bytes = ros_buffer_used_bytes(core);
        for (size_t i = 0; i < s->n_peers; i++) {
                const struct scenario_node *n = &m->scenario->nodes[i];
                struct ros_sent_to sent;

                if (n->role != ROLE_SFI)
                        continue;
                sent = ros_sent_to(core, n->index);
                s->peers[i].fragments = sent.fragments;
                s->peers[i].bytes = sent.bytes;
                s->peers[i].queued_bytes = ros_queued(core, n->index).bytes;
        }
        end(m);
}

void metrics_record_sfi(struct metrics *m, const struct sfi *core, uint32_t run, uint32_t unwritten)
{
        struct metrics_state *s = begin(m);
        bool moved;

        if (!s)
                return;
        moved = record_losses(m, s);
        s->run = run;
        s->open_events = sfi_open_events(core);
        s->credits = sfi_credits(core);
        s->buffer_used_bytes = sfi_buffer_used_bytes(core);
        s->unwritten_events = unwritten;
        s->rate_permille = sfi_port_rate(core)->permille;
        for (size_t i = 0; i < s->n_peers; i++) {
                const struct scenario_node *n = &m->scenario->nodes[i];
                struct sfi_source_counts c;

                if (n->role != ROLE_ROS)
                        continue;
                c = sfi_source_counts(core, n->index);
                s->peers[i].fragments = c.fragments_received;
                metrics_record_lost(&s->peers[i], c.fragments_lost, moved);
                s->peers[i].fragments_absent = c.fragments_absent;
                s->peers[i].bytes = c.bytes;
                s->peers[i].packets = c.datagrams_received;
                /* A packet that was only late is no longer lost, but a counter never decreases. */
                s->peers[i].packets_lost = MAX(s->peers[i].packets_lost, c.datagrams_lost);
        }
        end(m);
}

/* May wait, in the shaping thread, for a copy to end. */
void metrics_record_shaping(struct metrics *m, const struct tc_status *status)
{
        if (!m)
                return;
        pthread_mutex_lock(&m->shared.lock);
        metrics_set_shaping(&m->shared.state, m->scenario, status);
        pthread_mutex_unlock(&m->shared.lock);
}

void metrics_record_shaped(struct metrics *m, bool shaped)
{
        if (!m)
                return;
        pthread_mutex_lock(&m->shared.lock);
        m->shared.state.shaped = shaped;
        pthread_mutex_unlock(&m->shared.lock);
}

void metrics_begin_run(struct metrics *m)
{
        uint64_t run[COUNTERS];

        if (!m)
                return;
        pthread_mutex_lock(&m->shared.lock);
        counters_read(m->stats, true, m->counters_before, run, m->counters);
        memcpy(m->counters_before, m->counters, sizeof m->counters_before);
        metrics_add_run(&m->before, &m->shared.state);
        metrics_state_begin_run(&m->shared.state);
        stats_begin_run(m->stats);
        m->last = (struct metrics_sample){};
        pthread_mutex_unlock(&m->shared.lock);
}

static void read_times(struct metrics *m)
{
        uint64_t last_ns = stats_get(&m->stats->last_complete_ns), now_ns = clock_now_ns();

        m->view.now_seconds = (double)clock_utc_ns() / NS_PER_S;
        m->view.last_complete_seconds =
                last_ns == 0 ? 0 : (double)(clock_utc_ns() - (now_ns - MIN(last_ns, now_ns))) / NS_PER_S;
}

void metrics_read_fault(struct metrics *m, struct run_fault *ret)
{
        page_read_fault(m ? m->page : NULL, false, ret);
}

static void look(struct metrics *m)
{
        struct metrics_view *v = &m->view;
        const struct scenario *s = m->scenario;

        pthread_mutex_lock(&m->shared.lock);
        metrics_state_copy(&m->copy, &m->shared.state);
        metrics_add_run(&m->copy, &m->before);
        v->state = (enum node_state)atomic_load_explicit(&m->stats->state, memory_order_acquire);
        counters_read(m->stats, v->state == NODE_ENDED, m->counters_before, v->run_counters, m->counters);
        memcpy(v->counters, m->counters, sizeof v->counters);
        pthread_mutex_unlock(&m->shared.lock);
        v->control_state = m->control ? run_http_state(m->control) : NULL;
        if (m->control)
                run_state_copy_error(m->control->copy, v->control_error);
        read_times(m);
        (void)obstacle_read(&m->stats->obstacle, &v->obstacle);
        v->receive_buffer_bytes = stats_get(&m->stats->granted_receive_buffer_bytes);
        v->send_buffer_bytes = stats_get(&m->stats->granted_send_buffer_bytes);
        metrics_read_process(&v->process);
        /* The first value is kept, because the clock may have been set since then. */
        v->process.start_seconds = m->start_seconds;
        if (m->self->role == ROLE_SFI && s->sfi.output == OUTPUT_FILE)
                disk_space_read(&v->disk, s->sfi.directory);
        v->disk_left_s = stats_get(&m->stats->output_left_s);
        page_read_fault(m->page, true, &v->fault);
}

/* Writes the root document of any node except the DFM, which serves its page there. */
static void write_root(const struct metrics *m, FILE *to)
{
        const struct scenario_node *dfm = scenario_node_of(m->scenario, ROLE_DFM, 0);
        char place[SCENARIO_TEXT_MAX];

        fprintf(to, "evb %s: %s %s of %s, %s\nThe metrics are at /metrics, its state at /status.\n",
                EVB_VERSION, scenario_role_name(m->self->role), m->self->name, m->scenario->scenario.name,
                metrics_state_name(m->view.state));
        if (dfm && scenario_metrics_reach(m->scenario, dfm, place))
                fprintf(to, "The page of all nodes is at %s%s%s.\n", m->listener >= 0 ? "http://" : "", place,
                        m->listener >= 0 ? "/" : "");
}

static void write_status(const struct metrics *m, FILE *to)
{
        _cleanup_free_ char *status = metrics_status_text(&m->view, clock_now_ns());

        fprintf(to, "%s\n", status ?: "{}");
}

/* Runs in the server's thread. */
static void answer(void *ctx, const struct http_request *request, struct http_reply *ret)
{
        struct metrics *m = ctx;
        bool open_metrics = metrics_wants_open_metrics(request->accept);
        FILE *to;

        if (m->control && strcmp(request->path, "/control") == 0) {
                run_http_answer(m->control, request, ret, true);
                return;
        }
        if (!request->is_post && page_answer(m->page, request, ret))
                return;
        to = open_memstream(&ret->text, &ret->text_bytes);
        if (!to)
                return;
        ret->content_type = TYPE_TEXT;
        look(m);
        if (request->is_post) {
                ret->status = 405;
                fputs("commands are taken at /control\n", to);
        } else if (strcmp(request->path, "/metrics") == 0) {
                ret->content_type = open_metrics ? TYPE_OPEN_METRICS : TYPE_METRICS;
                metrics_page_write(&m->view, to, open_metrics);
        } else if (strcmp(request->path, "/status") == 0) {
                ret->content_type = TYPE_JSON;
                write_status(m, to);
        } else if (strcmp(request->path, "/") == 0) {
                write_root(m, to);
        } else {
                ret->status = 404;
                fputs("not found; see /metrics\n", to);
        }
        if (fclose(to) != 0) {
                free(ret->text);
                ret->text = NULL;
        }
}

static int open_listener(struct metrics *m, bool check_only)
{
        char place[SCENARIO_TEXT_MAX];
        struct net_address local;

        if (!scenario_metrics_place(m->scenario, m->self, place))
                return log_error_errno(EINVAL, "metrics.listen: node %s has no place for its metrics",
                                       m->self->name);
        if (strncmp(place, UNIX_PREFIX, strlen(UNIX_PREFIX)) == 0)
                return socket_open_local(check_only ? NULL : &m->local, place + strlen(UNIX_PREFIX),
                                         "metrics.listen");
        if (net_address_parse_with_port(&local, place) < 0)
                return log_error_errno(EINVAL, "metrics.listen: \"%s\" is not an address of this machine",
                                       place);
        m->listener = socket_open_listener(&local, 0, PURPOSE);
        return m->listener;
}

static int start(struct metrics *m)
{
        const struct scenario_node *self = m->self;
        struct http_config config = {
                .listener = m->listener >= 0 ? m->listener : m->local.fd,
                .answer = answer,
                .ctx = m,
                .body_max_bytes = m->control && m->control->token[0] ? RUN_HTTP_BODY_MAX_BYTES : 0,
                .post_path = m->control && m->control->token[0] ? RUN_HTTP_PATH : NULL,
                .cpus = self->cpus + 1,
                .n_cpus = self->n_cpus > 1 ? self->n_cpus - 1 : 0,
        };
        struct error e = {};
        int r = page_new(&m->page, m->scenario, self, m->stats, m->control);

        if (r < 0)
                return r;
        r = http_server_new(&m->server, &config, &e);
        if (r < 0)
                return log_error_errno(r, "metrics.listen: %s", e.message);
        return page_start(m->page, config.cpus, config.n_cpus);
}

int metrics_open(struct metrics **ret, const struct scenario *s, const struct scenario_node *self,
                 struct node_stats *stats, const struct run_http *control, bool check_only)
{
        struct metrics *m;
        struct metrics_process process;
        int r;

        *ret = NULL;
        if (s->metrics.kind == METRICS_NONE)
                return 0;
        m = calloc(1, sizeof *m);
        if (!m)
                return log_error_errno(ENOMEM, "metrics: %m");
        m->scenario = s;
        m->self = self;
        m->stats = stats;
        m->control = control;
        m->listener = m->local.fd = -1;
        pthread_mutex_init(&m->shared.lock, NULL);
        metrics_read_process(&process);
        m->start_seconds = process.start_seconds;
        m->view = (struct metrics_view){
                .version = EVB_VERSION, .scenario = s, .self = self, .shared = &m->copy};
        scenario_digest(s, &m->view.digest);
        r = metrics_state_init(&m->shared.state, s->n_nodes);
        if (r >= 0)
                r = metrics_state_init(&m->copy, s->n_nodes);
        if (r >= 0)
                r = metrics_state_init(&m->before, s->n_nodes);
        if (r < 0)
                log_error_errno(r, "metrics: %m");
        else
                r = open_listener(m, check_only);
        if (r >= 0 && !check_only)
                r = start(m);
        if (r < 0 || check_only) {
                metrics_close(m);
                return MIN(r, 0);
        }
        *ret = m;
        return 0;
}

struct metrics *metrics_close(struct metrics *m)
{
        if (!m)
                return NULL;
        page_stop(m->page);
        http_server_free(m->server);
        page_free(m->page);
        if (m->listener >= 0)
                close(m->listener);
        local_listener_close(&m->local);
        metrics_state_fini(&m->shared.state);
        metrics_state_fini(&m->copy);
        metrics_state_fini(&m->before);
        pthread_mutex_destroy(&m->shared.lock);
        free(m);
        return NULL;
}
