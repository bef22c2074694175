/* An io_uring (io_uring_setup(2)): a queue of requests to the kernel, and one of completions. Without the
 * library liburing. One thread. */
#pragma once

#include <linux/io_uring.h>
#include <stdbool.h>
#include <stddef.h>

struct uring;

/* At most `entries` requests wait for one uring_submit(), and at most `completions` for uring_completion();
 * the kernel rounds up to powers of two. Negative errno: -ENOSYS or -EPERM if the kernel does not support or
 * permit it. */
int uring_new(struct uring **ret, unsigned entries, unsigned completions);
struct uring *uring_free(struct uring *u);

/* Registers the ring's only fixed buffer, with index 0. It must be anonymous memory: the kernel refuses to
 * pin the mapping of a file. Counts against RLIMIT_MEMLOCK. Negative errno. */
int uring_register_buffer(struct uring *u, void *buffer, size_t size_bytes);

/* The next request, cleared, for the caller to fill; NULL: the queue is full. */
struct io_uring_sqe *uring_request(struct uring *u);
/* Passes all requests to the kernel and waits for `wait_for` completions, in one system call. Negative
 * errno. */
int uring_submit(struct uring *u, unsigned wait_for);
/* Pops the next completion. False: there is none. */
bool uring_completion(struct uring *u, struct io_uring_cqe *ret);
