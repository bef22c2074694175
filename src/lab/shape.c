/* Shaping for measurements that run no node. */
#include "shape.h"

#include <errno.h>
#include <sys/wait.h>
#include <unistd.h>

#include "evb/base/log.h"
#include "evb/lab/netns.h"
#include "evb/tc/shaper.h"

#define DEVICE "eth0"

static int install(int namespace, const struct tc_request *q)
{
        char why[TC_REASON_MAX] = "";
        struct tc_outcome o = {};
        struct tc_device device;
        struct tc_shaper *shaper;
        struct tc_plan plan;
        int r = netns_enter(namespace);

        if (r >= 0)
                r = tc_device_read(&device, DEVICE);
        if (r >= 0)
                r = tc_plan_make(&plan, q, why);
        if (r >= 0)
                r = tc_shaper_new(&shaper, &device, &o);
        if (r >= 0)
                r = tc_shaper_apply(shaper, &plan, false, 0, true, &o);
        return r < 0 ? log_error_errno(r, "lab: shaping: %s%s", why, o.error) : 0;
}

int lab_shape(int namespace, const struct tc_request *request)
{
        pid_t child = fork();
        int status;

        if (child == 0)
                _exit(install(namespace, request) < 0);
        if (child < 0 || waitpid(child, &status, 0) != child)
                return log_error_errno(errno, "lab: shaping: %m");
        return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? 0 : -EIO;
}
