/* Starts the nodes, watches them, and sees to it that all of them end. Their reports are put together in
 * summary.c. */
#include "evb/launch/launch.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "evb/base/log.h"
#include "evb/base/util.h"
#include "evb/launch/netns.h"
#include "evb/launch/run.h"

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
uint64_t launch_drain_ns(const struct scenario *s)
{
        uint64_t events_ns = s->sfi.timeout_ns + (s->dfm.reassign + 2) * s->dfm.event_timeout_ns;

        return MAX(events_ns, s->run.stop_timeout_ns) + TERM_NS;
}

/* A stopped node serves until the DFM has been silent for this long. */
static uint64_t stop_ns(const struct launch *l)
{
        return TERM_NS + MAX(l->scenario->sfi.timeout_ns, l->scenario->dfm.node_timeout_ns);
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
                log_warning("%s was killed by signal %d (%s)", c->node->name, WTERMSIG(c->status),
                            strsignal(WTERMSIG(c->status)));
        else if (died(c))
                log_warning("%s ended with status %d", c->node->name, WEXITSTATUS(c->status));
        (void)l;
}

static void note_failed_start(struct launch *l, const struct child *c)
{
        int status = WIFEXITED(c->status) ? WEXITSTATUS(c->status) : 1;

        l->start_failed = true;
        /* These two statuses of a node are also the run's. */
        l->start_status = status == 2 || status == 77 ? status : 1;
        if (WIFSIGNALED(c->status))
                log_error("the run did not begin: %s was killed by signal %d (%s)", c->node->name,
                          WTERMSIG(c->status), strsignal(WTERMSIG(c->status)));
        else
                log_error("the run did not begin: %s ended with status %d", c->node->name, status);
}

static void child_ended(void *ctx, struct child *c)
{
        struct launch *l = ctx;
        uint64_t now_ns = loop_now_ns(l->loop);
        struct child *dfm = launch_dfm(l);
        /* The end of a short run may reach a node before the DFM has published that it began. */
        bool was_running = child_state(dfm) >= NODE_RUNNING || child_state(c) == NODE_ENDED;

        l->n_running--;
        cpu_meter_remove(l->meter, c->pid);
        if (died(c) && was_running && l->press < PRESS_KILL)
                tell_death(l, c);
        if (c->node->role == ROLE_DFM && was_running) {
                /* Nodes that have not heard of the end are told by us. */
                l->press = MAX((int)l->press, (int)PRESS_DFM);
                l->press_deadline_ns =
                        MIN(l->press_deadline_ns, now_ns + AFTER_DFM_NS + l->scenario->sfi.timeout_ns);
                /* The DFM was killed or gave up; and if the run never began, most nodes hear nothing. */
                if (died(c) || child_state(c) != NODE_ENDED || stats_get(&c->stats->triggers) == 0)
                        press(l, PRESS_ALL, now_ns + stop_ns(l));
        } else if (!was_running && l->press == PRESS_NOT) {
                note_failed_start(l, c);
                press(l, PRESS_ALL, now_ns + TERM_NS);
        } else if (running_of(l, ROLE_SFI) == 0 || running_of(l, ROLE_ROS) == 0)
                press(l, PRESS_DFM, now_ns + launch_drain_ns(l->scenario));
}

static int start_children(struct launch *l, struct netns_lab *lab)
{
        const struct scenario *s = l->scenario;
        int r = 0;

        l->children = calloc(s->n_nodes, sizeof *l->children);
        if (!l->children || cpu_meter_new(&l->meter, s->n_nodes, ROLE_SFI + 1) < 0)
                return log_error_errno(ENOMEM, "nodes: %m");
        for (size_t i = 0; r >= 0 && i < s->n_nodes; i++) {
                struct child *c = &l->children[l->n_children++];
                struct child_command command = {
                        .program = l->options->program,
                        .config = l->config,
                        .namespace = lab ? netns_lab_node(lab, s->nodes[i].name) : -1,
                };

                *c = (struct child){.node = &s->nodes[i], .loop = l->loop, .ended = child_ended, .ctx = l};
                r = child_start(c, &command);
                l->n_running += c->running;
                if (c->running)
                        (void)cpu_meter_add(l->meter, c->pid, c->node->role);
        }
        return r;
}

static void heed_signals(struct launch *l, uint64_t now_ns)
{
        /* A closed terminal stops the run too, but not at once if SIGTERM and SIGHUP come together, as at
         * logout. */
        unsigned signals = MAX(loop_signals(l->loop), (unsigned)(loop_hangups(l->loop) > 0));

        if (signals > 0 && l->signals == 0) {
                if (l->options->progress)
                        log_info("stopping: triggers end, events are finished; once more to stop at once");
                press(l, PRESS_DFM, now_ns + launch_drain_ns(l->scenario));
        } else if (signals > 1)
                press(l, PRESS_KILL, NEVER_NS);
        l->signals = signals;
}

/* Never kills an SFI that has built all its events and waits for its disk. */
static bool is_sealing(const struct launch *l)
{
        for (size_t i = 0; i < l->n_children; i++) {
                if (l->children[i].running && child_state(&l->children[i]) == NODE_SEALING)
                        return true;
        }
        return false;
}

static void press_on(struct launch *l, uint64_t now_ns)
{
        uint64_t next_ns = now_ns + stop_ns(l);
        int level = (int)l->press + 1;

        if (level == PRESS_KILL && is_sealing(l))
                l->press_deadline_ns = next_ns;
        else
                press(l, level, level >= PRESS_KILL ? NEVER_NS : next_ns);
}

static int watch(struct launch *l)
{
        uint64_t draw_ns = 0;

        while (l->n_running > 0) {
                uint64_t now_ns = loop_now_ns(l->loop), wake_ns = now_ns + PROGRESS_NS;
                int r = loop_wait(l->loop,
                                  MIN(MIN(wake_ns, cpu_meter_deadline_ns(l->meter)), l->press_deadline_ns));

                if (r < 0)
                        return log_error_errno(r, "waiting for nodes: %m");
                now_ns = loop_now_ns(l->loop);
                heed_signals(l, now_ns);
                /* What nodes take while triggers come: to start and to drain is another thing. */
                cpu_meter_turn(l->meter, now_ns, child_state(launch_dfm(l)) == NODE_RUNNING);
                if (now_ns >= l->press_deadline_ns)
                        press_on(l, now_ns);
                if (l->options->progress && now_ns >= draw_ns) {
                        progress_draw(l, now_ns);
                        draw_ns = now_ns + PROGRESS_NS;
                }
        }
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
                snprintf(s->nodes[i].address, sizeof s->nodes[i].address, "127.%u.%u.%zu", b,
                         (unsigned)(c + i / 250) & 255, 1 + i % 250);
                s->nodes[i].device[0] = '\0';
        }
        if (strcmp(s->network.control_group, "none") != 0)
                snprintf(s->network.control_group, sizeof s->network.control_group, "239.255.%u.%u", b, c);
}

static void clean_up(struct launch *l)
{
        for (size_t i = 0; i < l->n_children; i++)
                child_fini(&l->children[i]);
        free(l->children);
        cpu_meter_free(l->meter);
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
        for (enum node_role role = ROLE_DFM; role <= ROLE_SFI; role++)
                l->cpu_shares[role] = *cpu_meter_shares(l->meter, role);
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
        sigset_t held;
        int r, status;

        sigprocmask(SIG_BLOCK, NULL, &held);
        /* Also while namespaces are made: a process killed then would leave them behind. */
        signals_hold();
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
        if (l.signals > 0 && sigismember(&held, SIGINT))
                raise(SIGINT);
        return status;
}
