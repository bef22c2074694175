/* Starts the nodes, watches them, and makes sure that all of them end; summary.c merges their reports. It
 * also shows progress, and starts the stand-in farm (test.stand-in). */
#include "run/launch.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/log.h"
#include "base/quantity.h"
#include "base/util.h"
#include "data/network.h"
#include "run/launched_run.h"
#include "run/testbed.h"
#include "run/summary.h"
#include "sys/thread.h"

/* State at the last line of progress; zero-initialized. */
struct progress {
        uint64_t last_ns, complete, bytes, busy_ns, plain_ns;
};

/* Returns false for files, and for terminals that cannot return to the start of a line. */
static bool can_redraw(void)
{
        const char *term = getenv("TERM");

        return isatty(STDERR_FILENO) && term && strcmp(term, "dumb") != 0;
}

static void progress_draw(struct progress *p, const struct launch *l, uint64_t now_ns)
{
        const struct node_stats *s = launch_dfm(l)->stats;
        uint64_t complete = stats_get(&s->events_complete), bytes = stats_get(&s->payload_bytes),
                 busy_ns = stats_get(&s->busy_ns);
        double seconds = p->last_ns ? (double)(now_ns - p->last_ns) / 1e9 : 0;
        char count[QUANTITY_TEXT_MAX], rate[QUANTITY_TEXT_MAX], throughput[QUANTITY_TEXT_MAX];
        bool redraw = can_redraw();
        char line[200];

        if (seconds > 0 && (redraw || now_ns - p->plain_ns >= NS_PER_S)) {
                snprintf(line, sizeof line,
                         "%s%5.1f s  %s events/s  %s/s  %s complete  %llu partial  %llu lost  busy %.0f %%%s",
                         redraw ? "\r\033[K" : "", (double)(now_ns - l->start_ns) / 1e9,
                         quantity_format_count((uint64_t)((double)(complete - p->complete) / seconds), rate),
                         quantity_format_bytes((uint64_t)((double)(bytes - p->bytes) / seconds), throughput),
                         quantity_format_count(complete, count),
                         (unsigned long long)stats_get(&s->events_partial),
                         (unsigned long long)stats_get(&s->events_lost),
                         MIN(100.0, (double)(busy_ns - p->busy_ns) / 1e7 / seconds), redraw ? "" : "\n");
                log_draw(line);
                p->plain_ns = now_ns;
        }
        if (redraw || p->plain_ns == now_ns || p->last_ns == 0)
                *p = (struct progress){now_ns, complete, bytes, busy_ns, p->plain_ns};
}

/* Erases the line of progress. */
static void progress_end(void)
{
        if (can_redraw())
                log_draw("\r\033[K");
}

/* Runs in the child between fork and exec. */
static _Noreturn void become_farm(const struct launch_options *options, int namespace, pid_t parent,
                                  const char *const *words)
{
        int null = open("/dev/null", O_WRONLY | O_CLOEXEC);
        sigset_t none;

        if (options->raised)
                (void)priority_raise();
        setpgid(0, 0);
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent || null < 0)
                _exit(1);
        if (namespace >= 0 && netns_enter(namespace) < 0)
                _exit(77);
        sigemptyset(&none);
        sigprocmask(SIG_SETMASK, &none, NULL);
        dup2(null, STDOUT_FILENO);
        execv(options->program, (char **)(uintptr_t)words);
        _exit(127);
}

/* Starts the farm in the DFM's namespace (-1: the caller's) if the scenario requests one; otherwise *ret is
 * 0. Logs errors. */
static int farm_start(pid_t *ret, const struct launch_options *options, int namespace)
{
        const struct scenario *s = options->scenario;
        char text[NET_ADDRESS_TEXT_MAX], timeout[24], seed[24];
        struct scenario_stand_in farm;
        const char *const words[] = {"evb",
                                     "level2",
                                     "--connect",
                                     text,
                                     "--fraction",
                                     farm.accept,
                                     "--latency",
                                     farm.latency,
                                     "--regions",
                                     farm.regions,
                                     "--wait",
                                     timeout,
                                     scenario_all_from(s, SOURCE_PATTERN) ? "--pattern" : NULL,
                                     seed,
                                     NULL};
        struct net_address dfm;
        pid_t parent = getpid();
        int r;

        *ret = 0;
        if (!scenario_split_stand_in(s->level2.stand_in, &farm))
                return 0;
        if (!farm.regions[0])
                strcpy(farm.regions, "0");
        r = network_node_address(&dfm, scenario_node_of(s, ROLE_DFM, 0), s->level2.port);
        if (r < 0)
                return r;
        net_address_format(&dfm, text);
        snprintf(timeout, sizeof timeout, "%lluus",
                 (unsigned long long)(s->level2.timeout_ns / 2 / NS_PER_US));
        snprintf(seed, sizeof seed, "%llu", (unsigned long long)s->run.seed);
        *ret = fork();
        if (*ret < 0)
                return log_error_errno(errno, "cannot start the farm: %m");
        if (*ret == 0)
                become_farm(options, namespace, parent, words);
        return 0;
}

/* Ends the farm, unless it has ended with the run. */
static void farm_stop(pid_t farm)
{
        if (farm <= 0)
                return;
        kill(farm, SIGTERM);
        while (waitpid(farm, NULL, 0) < 0 && errno == EINTR)
                ;
}

#define PROGRESS_NS (250 * NS_PER_MS)
/* Time in which the other nodes should exit after the DFM: they have received its last message, or will soon
 * time out. */
#define AFTER_DFM_NS (3 * NS_PER_S)

/* How forcefully the launcher stops the nodes; each deadline raises the level by one. */
enum press { PRESS_NOT, PRESS_DFM, PRESS_ALL, PRESS_KILL };

struct launcher {
        struct launch run;
        struct loop *loop;
        size_t n_running;
        char directory[256], config[288];
        struct cpu_meter *meter; /* one group for each role */
        struct progress progress;
        pid_t farm; /* the stand-in farm; 0: none */
        enum press press;
        uint64_t press_deadline_ns;
        bool start_failed;
        int start_status;
};

static void press(struct launcher *l, enum press level, uint64_t deadline_ns)
{
        if (level <= l->press)
                return;
        l->press = level;
        l->run.killed = level == PRESS_KILL;
        l->press_deadline_ns = deadline_ns;
        for (size_t i = 0; i < l->run.n_children; i++) {
                struct child *c = &l->run.children[i];

                if (c->running && (level > PRESS_DFM || c->node->role == ROLE_DFM))
                        kill(c->pid, level == PRESS_KILL ? SIGKILL : SIGTERM);
        }
}

/* A stopped node continues to serve other nodes until the DFM has been silent for node-timeout. */
static uint64_t stop_ns(const struct launcher *l)
{
        return LAUNCH_TERM_NS + MAX(l->run.scenario->sfi.timeout_ns, l->run.scenario->dfm.node_timeout_ns);
}

static unsigned running_of(const struct launcher *l, enum node_role role)
{
        unsigned n = 0;

        for (size_t i = 0; i < l->run.n_children; i++)
                n += l->run.children[i].running && l->run.children[i].node->role == role;
        return n;
}

static bool died(const struct child *c)
{
        return !WIFEXITED(c->status) || WEXITSTATUS(c->status) > 1;
}

static void log_death(const struct child *c)
{
        if (WIFSIGNALED(c->status))
                log_warning("%s was killed by signal %d (%s)", c->node->name, WTERMSIG(c->status),
                            strsignal(WTERMSIG(c->status)));
        else if (died(c))
                log_warning("%s exited with status %d", c->node->name, WEXITSTATUS(c->status));
}

static void record_failed_start(struct launcher *l, const struct child *c)
{
        int status = WIFEXITED(c->status) ? WEXITSTATUS(c->status) : 1;

        l->start_failed = true;
        /* The run exits with the same status if a node exits with one of these two. */
        l->start_status = status == 2 || status == 77 ? status : 1;
        if (WIFSIGNALED(c->status))
                log_error("the run did not start: %s was killed by signal %d (%s)", c->node->name,
                          WTERMSIG(c->status), strsignal(WTERMSIG(c->status)));
        else
                log_error("the run did not start: %s exited with status %d", c->node->name, status);
}

/* Whether the run begins without this node. It must be an optional ROS that was not stopped by the scenario
 * or a missing privilege. */
static bool may_miss(const struct child *c)
{
        return c->node->role == ROLE_ROS && !c->node->required &&
               !(WIFEXITED(c->status) && (WEXITSTATUS(c->status) == 2 || WEXITSTATUS(c->status) == 77));
}

static void child_ended(void *ctx, struct child *c)
{
        struct launcher *l = ctx;
        uint64_t now_ns = loop_now_ns(l->loop);
        struct child *dfm = launch_dfm(&l->run);
        /* In a short run, a node may end before the DFM publishes that the run has begun. */
        bool was_running = child_state(dfm) >= NODE_RUNNING || child_state(c) == NODE_ENDED;

        l->n_running--;
        cpu_meter_remove(l->meter, c->pid);
        if (died(c) && was_running && l->press < PRESS_KILL)
                log_death(c);
        if (c->node->role == ROLE_DFM && was_running) {
                /* The launcher stops nodes that did not receive the DFM's message. */
                l->press = MAX(l->press, PRESS_DFM);
                l->press_deadline_ns =
                        MIN(l->press_deadline_ns, now_ns + AFTER_DFM_NS + l->run.scenario->sfi.timeout_ns);
                /* If the DFM failed or the run never began, most nodes receive no message. */
                if (died(c) || child_state(c) != NODE_ENDED || stats_get(&c->stats->triggers) == 0)
                        press(l, PRESS_ALL, now_ns + stop_ns(l));
        } else if (!was_running && l->press == PRESS_NOT && may_miss(c)) {
                log_death(c);
                log_warning("%s: the run goes on without it, as required = no", c->node->name);
        } else if (!was_running && l->press == PRESS_NOT) {
                record_failed_start(l, c);
                press(l, PRESS_ALL, now_ns + LAUNCH_TERM_NS);
        } else if (running_of(l, ROLE_SFI) == 0 || running_of(l, ROLE_ROS) == 0)
                press(l, PRESS_DFM, now_ns + launch_drain_ns(l->run.scenario));
}

/* Gives the node its own port or path for metrics, because several nodes share this machine. */
static int place_metrics(const struct scenario *s, const struct scenario_node *n, char *setting, size_t size)
{
        char text[SCENARIO_TEXT_MAX];

        if (!scenario_metrics_beside(s, n, text))
                return log_error_errno(EINVAL,
                                       "metrics.listen: there is no port or path for node %s beside \"%s\"; "
                                       "expected a lower port or a shorter path",
                                       n->name, s->metrics.listen);
        snprintf(setting, size, "metrics.listen=%s", text);
        return 0;
}

/* Likewise for consumers of live events. Returns whether the node needs this setting. */
static int place_live(const struct scenario *s, const struct scenario_node *n, char *setting, size_t size)
{
        char text[SCENARIO_TEXT_MAX];

        if (!scenario_live_beside(s, n, text))
                return log_error_errno(
                        EINVAL, "live.listen: there is no port for node %s; expected a lower port", n->name);
        snprintf(setting, size, "live.listen=%s", text);
        return strcmp(text, s->live.listen) != 0;
}

static int start_children(struct launcher *l, struct testbed *testbed)
{
        const struct scenario *s = l->run.scenario;
        int r = 0;

        l->run.children = calloc(s->n_nodes, sizeof *l->run.children);
        if (!l->run.children || cpu_meter_new(&l->meter, s->n_nodes, ROLE_SFI + 1) < 0)
                return log_error_errno(ENOMEM, "cannot start nodes: %m");
        for (size_t i = 0; r >= 0 && i < s->n_nodes; i++) {
                struct child *c = &l->run.children[l->run.n_children++];
                char metrics[SCENARIO_TEXT_MAX + 16], live[SCENARIO_TEXT_MAX + 16];
                const char *settings[2];
                struct child_command command = {
                        .settings = settings,
                        .program = l->run.options->program,
                        .config = l->config,
                        .namespace = testbed ? testbed_node_namespace(testbed, s->nodes[i].name) : -1,
                        .raised = l->run.options->raised,
                };

                *c = (struct child){.node = &s->nodes[i], .loop = l->loop, .ended = child_ended, .ctx = l};
                if (s->metrics.kind != METRICS_NONE) {
                        settings[command.n_settings++] = metrics;
                        r = place_metrics(s, c->node, metrics, sizeof metrics);
                }
                if (r >= 0)
                        r = place_live(s, c->node, live, sizeof live);
                if (r > 0)
                        settings[command.n_settings++] = live;
                if (r >= 0)
                        r = child_start(c, &command);
                l->n_running += c->running;
                if (!c->running)
                        continue;
                (void)cpu_meter_add(l->meter, c->pid, c->node->role);
                machine_watch_add(l->run.options->watch, c->pid);
        }
        return r;
}

static void handle_signals(struct launcher *l, uint64_t now_ns)
{
        /* A closed terminal also stops the run. SIGTERM and SIGHUP together, as at logout, count once. */
        unsigned signals = loop_stops(l->loop);
        char text[LOOP_SIGNAL_TEXT_MAX];

        if (signals > l->run.signals && !l->run.options->quiet)
                log_id(LOG_LEVEL_INFO, LOG_ID_STOPPED, "stopped by %s", loop_describe_signal(l->loop, text));
        if (signals > 0 && l->run.signals == 0) {
                if (l->run.options->progress)
                        log_info("stopping after the events in progress; signal again to stop at once");
                press(l, PRESS_DFM, now_ns + launch_drain_ns(l->run.scenario));
        } else if (signals > 1)
                press(l, PRESS_KILL, NEVER_NS);
        l->run.signals = signals;
}

/* An SFI that has built all its events and is waiting for its disk must not be killed. */
static bool is_sealing(const struct launcher *l)
{
        for (size_t i = 0; i < l->run.n_children; i++) {
                if (l->run.children[i].running && child_state(&l->run.children[i]) == NODE_SEALING)
                        return true;
        }
        return false;
}

static void press_further(struct launcher *l, uint64_t now_ns)
{
        uint64_t next_ns = now_ns + stop_ns(l);
        enum press level = l->press + 1;

        if (level == PRESS_KILL && is_sealing(l))
                l->press_deadline_ns = next_ns;
        else
                press(l, level, level >= PRESS_KILL ? NEVER_NS : next_ns);
}

static int watch(struct launcher *l)
{
        uint64_t draw_ns = 0;

        while (l->n_running > 0) {
                uint64_t now_ns = loop_now_ns(l->loop), wake_ns = now_ns + PROGRESS_NS;
                bool active;
                int r = loop_wait(l->loop,
                                  MIN(MIN(wake_ns, cpu_meter_deadline_ns(l->meter)), l->press_deadline_ns));

                if (r < 0)
                        return log_error_errno(r, "cannot wait for nodes: %m");
                now_ns = loop_now_ns(l->loop);
                log_flush();
                handle_signals(l, now_ns);
                /* The meter skips the time before the run and the time of draining. */
                active = child_state(launch_dfm(&l->run)) == NODE_RUNNING;
                cpu_meter_turn(l->meter, now_ns, active);
                machine_watch_turn(l->run.options->watch, now_ns, active);
                if (now_ns >= l->press_deadline_ns)
                        press_further(l, now_ns);
                if (l->run.options->progress && now_ns >= draw_ns) {
                        progress_draw(&l->progress, &l->run, now_ns);
                        draw_ns = now_ns + PROGRESS_NS;
                }
        }
        return 0;
}

static int write_config(struct launcher *l)
{
        const char *base = getenv("TMPDIR") ?: "/tmp";
        FILE *f;

        snprintf(l->directory, sizeof l->directory, "%.200s/evb-XXXXXX", base);
        if (!mkdtemp(l->directory)) {
                l->directory[0] = '\0';
                return log_error_errno(errno, "cannot make a directory in %s: %m", base);
        }
        snprintf(l->config, sizeof l->config, "%s/scenario.conf", l->directory);
        f = fopen(l->config, "we");
        if (!f)
                return log_error_errno(errno, "%s: %m", l->config);
        scenario_write(l->run.scenario, f);
        if (fclose(f) != 0)
                return log_error_errno(errno, "%s: %m", l->config);
        return 0;
}

static bool is_taken(const struct scenario *s, const char *address)
{
        for (size_t i = 0; i < s->n_nodes; i++) {
                if (strcmp(s->nodes[i].address, address) == 0)
                        return true;
        }
        return false;
}

/* Keeps configured addresses. Chooses the other addresses, and the group, so that they differ from the
 * addresses of other runs on this machine. A group reaches only nodes on the same device. */
static void set_loopback(struct scenario *s)
{
        unsigned pid = (unsigned)getpid(), b = 1 + (pid >> 8) % 254, c = pid & 255, next = 0;
        bool one_device = true;
        char address[sizeof s->nodes[0].address];

        for (size_t i = 0; i < s->n_nodes; i++) {
                struct scenario_node *n = &s->nodes[i];

                n->device[0] = '\0';
                one_device &= n->address[0] == '\0' || strncmp(n->address, "127.", 4) == 0;
                while (n->address[0] == '\0') {
                        snprintf(address, sizeof address, "127.%u.%u.%u", b, (c + next / 250) & 255,
                                 1 + next % 250);
                        next++;
                        if (!is_taken(s, address))
                                strcpy(n->address, address);
                }
        }
        if (!one_device)
                strcpy(s->network.control_group, "none");
        else if (strcmp(s->network.control_group, "none") != 0)
                snprintf(s->network.control_group, sizeof s->network.control_group, "239.255.%u.%u", b, c);
}

static void clean_up(struct launcher *l)
{
        farm_stop(l->farm);
        for (size_t i = 0; i < l->run.n_children; i++)
                child_fini(&l->run.children[i]);
        free(l->run.children);
        cpu_meter_free(l->meter);
        if (l->config[0])
                unlink(l->config);
        if (l->directory[0])
                rmdir(l->directory);
        loop_free(l->loop);
}

static int start_farm(struct launcher *l, struct testbed *testbed)
{
        const char *dfm = launch_dfm(&l->run)->node->name;
        int r = farm_start(&l->farm, l->run.options, testbed ? testbed_node_namespace(testbed, dfm) : -1);

        if (l->farm > 0)
                machine_watch_add(l->run.options->watch, l->farm);
        return r;
}

/* Logs how to start the run, because the user of `evb run` cannot see that the nodes wait for a command. */
static void name_start(const struct scenario *s)
{
        char place[SCENARIO_TEXT_MAX];

        if (s->run.start != START_MANUAL || !scenario_control_place(s, place))
                return;
        if (s->control.kind == CONTROL_UNIX)
                log_info("run.start = manual: the run waits for evb ctl start --socket %s",
                         strchr(place, ':') + 1);
        else
                log_info("run.start = manual: the run waits for evb ctl start --dfm %s%s%s", place,
                         s->control.token_file[0] ? " --token-file " : "", s->control.token_file);
}

static int run(struct launcher *l, struct testbed *testbed)
{
        int r;

        r = loop_new(&l->loop);
        if (r >= 0)
                r = loop_catch_signals(l->loop);
        if (r < 0)
                return log_error_errno(r, "cannot make the event loop: %m");
        r = write_config(l);
        if (r < 0)
                return r;
        l->run.start_ns = clock_now_ns();
        r = start_children(l, testbed);
        if (r >= 0)
                r = start_farm(l, testbed);
        if (r < 0)
                press(l, PRESS_KILL, NEVER_NS);
        else
                name_start(l->run.scenario);
        if (watch(l) < 0 || r < 0)
                return r < 0 ? r : -EIO;
        l->run.end_ns = clock_now_ns();
        for (enum node_role role = ROLE_DFM; role <= ROLE_SFI; role++)
                l->run.cpu_shares[role] = *cpu_meter_shares(l->meter, role);
        l->run.has_switch = testbed && testbed_read_counts(testbed, &l->run.at_switch) >= 0;
        if (l->run.options->progress)
                progress_end();
        return 0;
}

int launch_run(const struct launch_options *options)
{
        struct launcher l = {
                .run = {.options = options, .scenario = options->scenario},
                .press_deadline_ns = NEVER_NS,
        };
        struct testbed *testbed = NULL;
        sigset_t held;
        int r, status;

        sigprocmask(SIG_BLOCK, NULL, &held);
        /* Hold signals before namespaces are made, because a killed process would not remove them. */
        signals_hold();
        if (options->net == LAUNCH_LAB) {
                r = testbed_new(&testbed, options->scenario);
                if (r < 0)
                        return r == -EPERM || r == -EACCES ? 77 : r == -EINVAL ? 2 : 1;
        } else
                set_loopback(options->scenario);
        r = run(&l, testbed);
        status = r < 0 ? 1 : l.start_failed ? l.start_status : summary_write(&l.run);
        clean_up(&l);
        testbed_free(testbed);
        if (l.run.signals > 0 && sigismember(&held, SIGINT))
                raise(SIGINT);
        return status;
}
