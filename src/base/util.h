/* Helpers for sizes, attributes and transfer of ownership. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <unistd.h>

#define ARRAY_SIZE(a) (sizeof(a) / sizeof((a)[0]))
#define MIN(a, b) ((a) < (b) ? (a) : (b))
#define MAX(a, b) ((a) > (b) ? (a) : (b))
#define DIV_ROUND_UP(a, b) (((a) + (b)-1) / (b))
#define ALIGN_UP(a, power_of_two) (((a) + (power_of_two)-1) & ~((__typeof__(a))(power_of_two)-1))
#define likely(x) __builtin_expect(!!(x), 1)
#define container_of(p, type, member) ((type *)((char *)(p)-offsetof(type, member)))

#define NS_PER_US UINT64_C(1000)
#define NS_PER_MS UINT64_C(1000000)
#define NS_PER_S UINT64_C(1000000000)
/* A deadline that never comes; *_deadline_ns() functions return it if there is none. */
#define NEVER_NS UINT64_MAX

/* The smallest power of two that is at least n; n is at most 2^31. */
static inline uint32_t power_of_two_at_least(uint32_t n)
{
        return n <= 1 ? 1 : UINT32_C(1) << (32 - __builtin_clz(n - 1));
}

/* For a function with few calls, at each of which its parameters are constants: a copy for each call is
 * smaller and faster, but takes five times as long to compile with sanitizers. */
#if defined __SANITIZE_ADDRESS__ || defined __SANITIZE_THREAD__
#define _always_inline_ inline
#else
#define _always_inline_ inline __attribute__((always_inline))
#endif

/* `_cleanup_(f) T x`: f(&x) runs when x leaves its scope. */
#define _cleanup_(f) __attribute__((cleanup(f)))

static inline void cleanup_free(void *p)
{
        free(*(void **)p);
}

static inline void cleanup_close(const int *fd)
{
        if (*fd >= 0)
                close(*fd);
}

#define _cleanup_free_ _cleanup_(cleanup_free)
#define _cleanup_close_ _cleanup_(cleanup_close)

/* Returns the value of a pointer (descriptor) variable and sets the variable to NULL (-1): transfers
 * ownership. */
#define take_ptr(p)                                                                                          \
        ({                                                                                                   \
                __typeof__(p) _taken = (p);                                                                  \
                (p) = NULL;                                                                                  \
                _taken;                                                                                      \
        })

static inline int take_fd(int *fd)
{
        int taken = *fd;

        *fd = -1;
        return taken;
}

static inline bool bits_get(const uint64_t *words, uint64_t i)
{
        return words[i / 64] >> i % 64 & 1;
}

static inline void bits_set(uint64_t *words, uint64_t i, bool value)
{
        uint64_t mask = UINT64_C(1) << i % 64;

        words[i / 64] = value ? words[i / 64] | mask : words[i / 64] & ~mask;
}
