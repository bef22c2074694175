/* Sets up an io_uring, and moves requests and completions through its shared memory. */
#include "sys/uring.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/util.h"

struct uring {
        int fd;
        void *memory; /* of both queues */
        size_t memory_bytes;
        struct io_uring_sqe *requests;
        size_t requests_bytes;
        unsigned n_requests, request_mask, completion_mask;
        unsigned prepared; /* requests since the last submission */
        unsigned tail;     /* of the request queue; only this side writes it */
        const unsigned *request_head;
        unsigned *request_tail;
        unsigned *completion_head;
        const unsigned *completion_tail;
        const struct io_uring_cqe *completions;
};

/* Completions are delivered when this thread waits for them (IORING_SETUP_DEFER_TASKRUN, Linux 6.1); older
 * kernels interrupt the thread. */
static int setup(unsigned entries, unsigned completions, struct io_uring_params *p)
{
        static const unsigned flags[] = {
#ifdef IORING_SETUP_DEFER_TASKRUN
                IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN,
#endif
                0};
        int fd = -1;

        for (size_t i = 0; i < ARRAY_SIZE(flags) && fd < 0; i++) {
                *p = (struct io_uring_params){.flags = IORING_SETUP_CQSIZE | IORING_SETUP_CLAMP | flags[i],
                                              .cq_entries = completions};
                fd = (int)syscall(SYS_io_uring_setup, entries, p);
                if (fd < 0 && errno != EINVAL)
                        break;
        }
        return fd < 0 ? -errno : fd;
}

static int map_queues(struct uring *u, const struct io_uring_params *p)
{
        char *at;

        if (!(p->features & IORING_FEAT_SINGLE_MMAP))
                return -EOPNOTSUPP;
        u->memory_bytes = MAX(p->sq_off.array + p->sq_entries * sizeof(unsigned),
                              p->cq_off.cqes + p->cq_entries * sizeof(struct io_uring_cqe));
        u->memory = mmap(NULL, u->memory_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, u->fd,
                         (off_t)IORING_OFF_SQ_RING);
        if (u->memory == MAP_FAILED) {
                u->memory = NULL;
                return -errno;
        }
        u->requests_bytes = p->sq_entries * sizeof *u->requests;
        u->requests = mmap(NULL, u->requests_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, u->fd,
                           (off_t)IORING_OFF_SQES);
        if (u->requests == MAP_FAILED) {
                u->requests = NULL;
                return -errno;
        }
        at = u->memory;
        u->n_requests = p->sq_entries;
        u->request_mask = *(unsigned *)(at + p->sq_off.ring_mask);
        u->request_head = (unsigned *)(at + p->sq_off.head);
        u->request_tail = (unsigned *)(at + p->sq_off.tail);
        u->completion_mask = *(unsigned *)(at + p->cq_off.ring_mask);
        u->completion_head = (unsigned *)(at + p->cq_off.head);
        u->completion_tail = (unsigned *)(at + p->cq_off.tail);
        u->completions = (struct io_uring_cqe *)(at + p->cq_off.cqes);
        /* Request i is always in slot i of the queue. */
        for (unsigned i = 0; i < p->sq_entries; i++)
                ((unsigned *)(at + p->sq_off.array))[i] = i;
        return 0;
}

int uring_new(struct uring **ret, unsigned entries, unsigned completions)
{
        struct uring *u = calloc(1, sizeof *u);
        struct io_uring_params p;
        int r;

        if (!u)
                return -ENOMEM;
        u->fd = setup(entries, completions, &p);
        r = u->fd < 0 ? u->fd : map_queues(u, &p);
        if (r < 0) {
                uring_free(u);
                return r;
        }
        *ret = u;
        return 0;
}

struct uring *uring_free(struct uring *u)
{
        if (!u)
                return NULL;
        if (u->requests)
                munmap(u->requests, u->requests_bytes);
        if (u->memory)
                munmap(u->memory, u->memory_bytes);
        if (u->fd >= 0)
                close(u->fd);
        free(u);
        return NULL;
}

int uring_register_buffer(struct uring *u, void *buffer, size_t size_bytes)
{
        struct iovec iov = {buffer, size_bytes};

        return syscall(SYS_io_uring_register, u->fd, IORING_REGISTER_BUFFERS, &iov, 1) < 0 ? -errno : 0;
}

struct io_uring_sqe *uring_request(struct uring *u)
{
        struct io_uring_sqe *request;

        /* Acquire: the kernel has read the entry before it moves the head. */
        if (u->tail - __atomic_load_n(u->request_head, __ATOMIC_ACQUIRE) == u->n_requests)
                return NULL;
        request = &u->requests[u->tail++ & u->request_mask];
        u->prepared++;
        memset(request, 0, sizeof *request);
        return request;
}

int uring_submit(struct uring *u, unsigned wait_for)
{
        /* Release: the kernel sees the entries before the tail. */
        __atomic_store_n(u->request_tail, u->tail, __ATOMIC_RELEASE);
        while (true) {
                int n = (int)syscall(SYS_io_uring_enter, u->fd, u->prepared, wait_for, IORING_ENTER_GETEVENTS,
                                     NULL, 0);

                if (n >= 0)
                        u->prepared -= MIN((unsigned)n, u->prepared);
                if (n >= 0 && u->prepared == 0)
                        return 0;
                if (n < 0 && errno != EINTR)
                        return -errno;
        }
}

bool uring_completion(struct uring *u, struct io_uring_cqe *ret)
{
        unsigned head = *u->completion_head;

        /* Acquire: the entry is complete once the tail has passed it. */
        if (head == __atomic_load_n(u->completion_tail, __ATOMIC_ACQUIRE))
                return false;
        memcpy(ret, &u->completions[head & u->completion_mask], sizeof *ret);
        /* Release: the entry is read before the kernel may reuse it. */
        __atomic_store_n(u->completion_head, head + 1, __ATOMIC_RELEASE);
        return true;
}
