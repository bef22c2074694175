/* The endpoint process's side of the shared memory. */
#include "traffic/flow_shared.h"

#include <errno.h>
#include <time.h>
#include <unistd.h>

enum flow_state flow_state(const struct flow_shared *shared)
{
        return (enum flow_state)atomic_load_explicit(&shared->state, memory_order_relaxed);
}

_Noreturn void flow_fail(struct flow_shared *shared)
{
        atomic_store(&shared->failed, (unsigned)errno);
        atomic_fetch_add(&shared->ready, 1);
        atomic_fetch_add(&shared->quiet, 1);
        _exit(1);
}

void flow_wait_for_start(struct flow_shared *shared)
{
        atomic_fetch_add(&shared->ready, 1);
        while (flow_state(shared) == FLOW_WAIT)
                nanosleep(&(struct timespec){.tv_nsec = 200000}, NULL);
}
