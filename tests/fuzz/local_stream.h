/* Pairs of local sockets in place of TCP connections, which cost most of the time of an input. The targets
 * that include this are linked with --wrap for the functions of net/tcp.h that it or they replace: see
 * meson.build. */
#pragma once

#include <assert.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "net/tcp.h"

#ifdef __SANITIZE_ADDRESS__
#define LOCAL_STREAM_ASAN 1
#elif defined(__has_feature)
#define LOCAL_STREAM_ASAN __has_feature(address_sanitizer)
#else
#define LOCAL_STREAM_ASAN 0
#endif
#if LOCAL_STREAM_ASAN
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(at, n) ((void)(at), (void)(n))
#define ASAN_UNPOISON_MEMORY_REGION(at, n) ((void)(at), (void)(n))
#endif

/* Of a staging buffer between two inputs, so that a late access is found: all that most inputs fill. */
#define LOCAL_STREAM_POISONED_BYTES 16384u

int __wrap_tcp_reader_init(struct tcp_reader *r, int fd, size_t staging_bytes);
void __wrap_tcp_reader_fini(struct tcp_reader *r);

/* One staging buffer for all inputs, as a new one takes the allocator longer than most inputs take the code.
 */
static struct {
        uint8_t *staging;
        size_t size_bytes;
        bool used;
} local_stream;

int __wrap_tcp_reader_init(struct tcp_reader *r, int fd, size_t staging_bytes)
{
        /* The targets have one connection at a time. */
        assert(!local_stream.used);
        if (staging_bytes > local_stream.size_bytes) {
                free(local_stream.staging);
                local_stream.staging = malloc(staging_bytes);
                local_stream.size_bytes = staging_bytes;
        }
        assert(local_stream.staging);
        ASAN_UNPOISON_MEMORY_REGION(local_stream.staging, LOCAL_STREAM_POISONED_BYTES);
        local_stream.used = true;
        *r = (struct tcp_reader){.fd = fd, .size_bytes = staging_bytes, .staging = local_stream.staging};
        return 0;
}

void __wrap_tcp_reader_fini(struct tcp_reader *r)
{
        if (r->staging) {
                ASAN_POISON_MEMORY_REGION(r->staging, LOCAL_STREAM_POISONED_BYTES);
                local_stream.used = false;
        }
        *r = (struct tcp_reader){.fd = -1};
}

/* Both ends; the second one has sent the bytes, and then its end. */
static inline void local_stream_open(int ends[static 2], const void *bytes, size_t n)
{
        /* The whole input goes in at once. */
        const int buffer_bytes = 212992;

        assert(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends) == 0);
        if (n > 65536)
                assert(setsockopt(ends[1], SOL_SOCKET, SO_SNDBUF, &buffer_bytes, sizeof buffer_bytes) == 0);
        assert(send(ends[1], bytes, n, MSG_NOSIGNAL) == (ssize_t)n);
        shutdown(ends[1], SHUT_WR);
}
