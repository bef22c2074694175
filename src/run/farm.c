/* Starts and ends the stand-in farm of a run. It needs no watching: if it ends, events time out. */
#include "farm.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/log.h"
#include "base/util.h"
#include "data/network.h"
#include "run/netns.h"
#include "sys/thread.h"

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

int farm_start(pid_t *ret, const struct launch_options *options, int namespace)
{
        const struct scenario *s = options->scenario;
        char text[NET_ADDRESS_TEXT_MAX], timeout[24], seed[24];
        struct scenario_stand_in farm;
        const char *const words[] = {"evb",
                                     "level2",
                                     "--connect",
                                     text,
                                     "--accept",
                                     farm.accept,
                                     "--latency",
                                     farm.latency,
                                     "--regions",
                                     farm.regions,
                                     "--regions-timeout",
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

void farm_stop(pid_t farm)
{
        if (farm <= 0)
                return;
        kill(farm, SIGTERM);
        while (waitpid(farm, NULL, 0) < 0 && errno == EINTR)
                ;
}
