/* Starts the nodes, watches them, and sees to it that all of them end. Their reports are put together in summary.c. */
#include "evb/lab/launch.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/pidfd.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include "evb/base/log.h"
#include "evb/base/util.h"
#include "evb/lab/netns.h"
#include "evb/node/node.h"
#include "evb/sys/memory.h"
#include "launch_internal.h"

#define REPORT_MAX_BYTES (4u << 20)
#define PROGRESS_NS (250 * NS_PER_MS)
/* After the DFM has gone the others have heard so, or soon see it. */
#define AFTER_DFM_NS (3 * NS_PER_S)
#define TERM_NS (5 * NS_PER_S)

struct child *launch_dfm(const struct launch *l)
{
        for (size_t i = 0; i < l->n_children; i++) {
                if (l->children[i].node->role == ROLE_DFM)
                        return &l->children[i];
        }
        return NULL;
}

enum node_state launch_state(const struct child *c)
{
        return (enum node_state)atomic_load(&c->stats->state);
}

static void press(struct launch *l, int level, uint64_t deadline_ns)
{
        if (level <= (int)l->press)
                return;
        l->press = level;
        l->press_deadline_ns = deadline_ns;
        for (size_t i = 0; i < l->n_children; i++) {
                struct child *c = &l->children[i];

                if (c->running && (level > PRESS_DFM || c->node->role == ROLE_DFM))
                        kill(c->pid, level == PRESS_KILL ? SIGKILL : SIGTERM);
        }
}

/* An event that an SFI does not finish is assigned again and waited for, all of it bounded by keys. */
static uint64_t drain_ns(const struct scenario *s)
{
        return s->sfi.timeout_ns + (s->dfm.reassign + 2) * s->dfm.event_timeout_ns + TERM_NS;
}

static unsigned running_of(const struct launch *l, enum node_role role)
{
        unsigned n = 0;

        for (size_t i = 0; i < l->n_children; i++)
                n += l->children[i].running && l->children[i].node->role == role;
        return n;
}

static bool died(const struct child *c)
{
        return !WIFEXITED(c->status) || WEXITSTATUS(c->status) > 1;
}

static void tell_death(const struct launch *l, const struct child *c)
{
        if (WIFSIGNALED(c->status))
                log_warning("%s was killed by signal %d (%s)", c->node->name, WTERMSIG(c->status), strsignal(WTERMSIG(c->status)));
        else if (died(c))
                log_warning("%s ended with status %d", c->node->name, WEXITSTATUS(c->status));
        (void)l;
}

static void child_ended(struct launch *l, struct child *c)
{
        uint64_t now_ns = loop_now_ns(l->loop);
        struct child *dfm = launch_dfm(l);
        bool was_running = launch_state(dfm) >= NODE_RUNNING;

        c->running = false;
        l->n_running--;
        if (died(c) && l->press < PRESS_KILL)
                tell_death(l, c);
        if (c->node->role == ROLE_DFM && was_running) {
                /* Nodes that have not heard of the end are told by us. */
                l->press = MAX((int)l->press, (int)PRESS_DFM);
                l->press_deadline_ns = MIN(l->press_deadline_ns, now_ns + AFTER_DFM_NS + l->scenario->sfi.timeout_ns);
                if (died(c))
                        press(l, PRESS_ALL, now_ns + TERM_NS + l->scenario->sfi.timeout_ns);
        } else if (!was_running && l->press == PRESS_NOT) {
                l->start_failed = true;
                l->start_status = WIFEXITED(c->status) && WEXITSTATUS(c->status) > 0 ? WEXITSTATUS(c->status) : 1;
                press(l, PRESS_ALL, now_ns + TERM_NS);
        } else if (running_of(l, ROLE_SFI) == 0 || running_of(l, ROLE_ROS) == 0)
                press(l, PRESS_DFM, now_ns + drain_ns(l->scenario));
}

static void exit_is_ready(void *ctx, uint32_t events)
{
        struct child *c = ctx;

        (void)events;
        if (wait4(c->pid, &c->status, WNOHANG, &c->usage) != c->pid)
                return;
        loop_remove(c->launch->loop, &c->exit_io);
        child_ended(c->launch, c);
}

/* What a node prints is its report; a bound keeps one that goes wild from filling our memory. */
static void report_is_ready(void *ctx, uint32_t events)
{
        struct child *c = ctx;
        char part[4096];
        ssize_t n;

        (void)events;
        while ((n = read(c->report_io.fd, part, sizeof part)) > 0) {
                if (c->report_bytes + (size_t)n > REPORT_MAX_BYTES)
                        continue;
                if (c->report_bytes + (size_t)n > c->report_size) {
                        char *grown = realloc(c->report, 2 * (c->report_bytes + (size_t)n));

                        if (!grown)
                                continue;
                        c->report = grown;
                        c->report_size = 2 * (c->report_bytes + (size_t)n);
                }
                memcpy(c->report + c->report_bytes, part, (size_t)n);
                c->report_bytes += (size_t)n;
        }
        if (n == 0)
                loop_remove(c->launch->loop, &c->report_io);
}

/* In the child, between fork and exec. */
static void become_node(const struct launch *l, const struct child *c, int out, int namespace, pid_t parent)
{
        const char *role = c->node->role == ROLE_DFM ? "dfm" : c->node->role == ROLE_ROS ? "ros" : "sfi";
        char stats[16];
        sigset_t none;

        setpgid(0, 0);
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent)
                _exit(1);
        if (namespace >= 0 && netns_enter(namespace) < 0)
                _exit(77);
        sigemptyset(&none);
        sigprocmask(SIG_SETMASK, &none, NULL);
        signal(SIGPIPE, SIG_DFL);
        dup2(out, STDOUT_FILENO);
        fcntl(c->stats_fd, F_SETFD, 0);
        snprintf(stats, sizeof stats, "%d", c->stats_fd);
        setenv(NODE_STATS_ENV, stats, 1);
        setenv("EVB_LOG", "warning", 0);
        unsetenv("NOTIFY_SOCKET");
        execl(l->options->program, "evb", role, "--config", l->config, "--node", c->node->name, "--json", (char *)NULL);
        fprintf(stderr, "%s: cannot start %s: %s\n", c->node->name, l->options->program, strerror(errno));
        _exit(127);
}

static int start_child(struct launch *l, struct child *c, struct netns_lab *lab)
{
        pid_t parent = getpid();
        int out[2], r;
        void *page;

        c->launch = l;
        c->exit_io.fd = c->report_io.fd = -1;
        r = memory_share_new(c->node->name, sizeof *c->stats, &c->stats_fd, &page);
        if (r < 0)
                return log_error_errno(r, "page of counters: %m");
        c->stats = page;
        if (pipe2(out, O_CLOEXEC | O_NONBLOCK) < 0)
                return log_error_errno(errno, "pipe: %m");
        c->pid = fork();
        if (c->pid == 0)
                become_node(l, c, out[1], lab ? netns_lab_node(lab, c->node->name) : -1, parent);
        r = c->pid < 0 ? -errno : 0;
        close(out[1]);
        c->report_io = (struct loop_io){.fd = out[0], .events = EPOLLIN, .ready = report_is_ready, .ctx = c};
        if (r < 0)
                return log_error_errno(r, "cannot start %s: %m", c->node->name);
        c->running = true;
        l->n_running++;
        c->exit_io = (struct loop_io){.fd = pidfd_open(c->pid, 0), .events = EPOLLIN, .ready = exit_is_ready, .ctx = c};
        r = c->exit_io.fd < 0 ? -errno : loop_add(l->loop, &c->exit_io);
        if (r >= 0)
                r = loop_add(l->loop, &c->report_io);
        return r < 0 ? log_error_errno(r, "cannot watch %s: %m", c->node->name) : 0;
}

static int start_children(struct launch *l, struct netns_lab *lab)
{
        const struct scenario *s = l->scenario;
        int r = 0;

        l->children = calloc(s->n_nodes, sizeof *l->children);
        if (!l->children)
                return log_error_errno(ENOMEM, "nodes: %m");
        for (size_t i = 0; r >= 0 && i < s->n_nodes; i++) {
                l->children[i].node = &s->nodes[i];
                l->n_children++;
                r = start_child(l, &l->children[i], lab);
        }
        return r;
}

static void heed_signals(struct launch *l, uint64_t now_ns)
{
        unsigned signals = loop_signals(l->loop);

        if (signals > 0 && l->signals == 0) {
                if (l->options->progress)
                        log_info("stopping: triggers end, events are finished; once more to stop at once");
                press(l, PRESS_DFM, now_ns + drain_ns(l->scenario));
        } else if (signals > 1)
                press(l, PRESS_KILL, NEVER_NS);
        l->signals = signals;
}

static int watch(struct launch *l)
{
        uint64_t draw_ns = 0;

        while (l->n_running > 0) {
                uint64_t now_ns = loop_now_ns(l->loop), wake_ns = now_ns + PROGRESS_NS;
                int r = loop_wait(l->loop, MIN(wake_ns, l->press_deadline_ns));

                if (r < 0)
                        return log_error_errno(r, "waiting for nodes: %m");
                now_ns = loop_now_ns(l->loop);
                heed_signals(l, now_ns);
                if (now_ns >= l->press_deadline_ns)
                        press(l, (int)l->press + 1, l->press + 1 >= PRESS_KILL ? NEVER_NS : now_ns + TERM_NS + l->scenario->sfi.timeout_ns);
                if (l->options->progress && now_ns >= draw_ns) {
                        progress_draw(l, now_ns);
                        draw_ns = now_ns + PROGRESS_NS;
                }
        }
        /* What is still in the pipes. */
        for (size_t i = 0; i < l->n_children; i++)
                report_is_ready(&l->children[i], 0);
        return 0;
}

static int write_config(struct launch *l)
{
        const char *base = getenv("TMPDIR") ?: "/tmp";
        FILE *f;

        snprintf(l->directory, sizeof l->directory, "%.40s/evb-XXXXXX", base);
        if (!mkdtemp(l->directory)) {
                l->directory[0] = '\0';
                return log_error_errno(errno, "cannot make a folder in %s: %m", base);
        }
        snprintf(l->config, sizeof l->config, "%s/scenario.conf", l->directory);
        f = fopen(l->config, "we");
        if (!f)
                return log_error_errno(errno, "%s: %m", l->config);
        scenario_write(l->scenario, f);
        if (fclose(f) != 0)
                return log_error_errno(errno, "%s: %m", l->config);
        return 0;
}

/* Addresses and a group that no other run on this machine has. */
static void set_loopback(struct scenario *s)
{
        unsigned pid = (unsigned)getpid(), b = 1 + (pid >> 8) % 254, c = pid & 255;

        for (size_t i = 0; i < s->n_nodes; i++) {
                snprintf(s->nodes[i].address, sizeof s->nodes[i].address, "127.%u.%u.%zu", b, (unsigned)(c + i / 250) & 255,
                         1 + i % 250);
                s->nodes[i].device[0] = '\0';
        }
        if (strcmp(s->network.control_group, "none") != 0)
                snprintf(s->network.control_group, sizeof s->network.control_group, "239.255.%u.%u", b, c);
}

static void clean_up(struct launch *l)
{
        for (size_t i = 0; i < l->n_children; i++) {
                struct child *c = &l->children[i];

                if (c->running) {
                        kill(c->pid, SIGKILL);
                        waitpid(c->pid, NULL, 0);
                }
                if (c->exit_io.fd >= 0)
                        close(c->exit_io.fd);
                if (c->report_io.fd >= 0)
                        close(c->report_io.fd);
                if (c->stats) {
                        memory_unmap(c->stats, sizeof *c->stats);
                        close(c->stats_fd);
                }
                free(c->report);
        }
        free(l->children);
        if (l->config[0])
                unlink(l->config);
        if (l->directory[0])
                rmdir(l->directory);
        loop_free(l->loop);
}

static int run(struct launch *l, struct netns_lab *lab)
{
        int r;

        r = loop_new(&l->loop);
        if (r >= 0)
                r = loop_catch_signals(l->loop);
        if (r < 0)
                return log_error_errno(r, "event loop: %m");
        r = write_config(l);
        if (r < 0)
                return r;
        l->start_ns = clock_now_ns();
        r = start_children(l, lab);
        if (r < 0)
                press(l, PRESS_KILL, NEVER_NS);
        if (watch(l) < 0 || r < 0)
                return r < 0 ? r : -EIO;
        l->end_ns = clock_now_ns();
        l->has_switch_drops = lab && netns_lab_switch_drops(lab, &l->switch_drops) >= 0;
        if (l->options->progress)
                progress_end(l);
        return 0;
}

int launch_run(const struct launch_options *options)
{
        struct launch l = {
                .options = options,
                .scenario = options->scenario,
                .press_deadline_ns = NEVER_NS,
        };
        struct netns_lab *lab = NULL;
        int r, status;

        if (options->net == LAUNCH_LAB) {
                r = netns_lab_new(&lab, options->scenario);
                if (r < 0)
                        return r == -EPERM || r == -EACCES ? 77 : r == -EINVAL ? 2 : 1;
        } else
                set_loopback(options->scenario);
        r = run(&l, lab);
        status = r < 0 ? 1 : l.start_failed ? l.start_status : summary_write(&l);
        clean_up(&l);
        netns_lab_free(lab);
        return status;
}
