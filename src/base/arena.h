/* A buddy allocator of offsets: divides a fixed number of bytes into power-of-two blocks without touching
 * them. All bookkeeping is allocated at init. Allocation and release take O(log(size/min_block)) and never
 * fail half-way. It prefers low offsets and recently released blocks, so that the memory in use stays small
 * and cached. One thread. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#define ARENA_NONE UINT64_MAX

struct arena;

/* `size_bytes` is rounded down to a multiple of `min_block_bytes`; if it is not a power of two, the arena has
 * several top-level blocks. Block sizes are powers of two from `min_block_bytes` to `max_block_bytes`, both
 * powers of two. -EINVAL, -ENOMEM. */
int arena_new(struct arena **ret, uint64_t size_bytes, uint64_t min_block_bytes, uint64_t max_block_bytes);
struct arena *arena_free(struct arena *arena); /* always returns NULL */

/* The offset of a block of at least max(size_bytes, 1), aligned to its own size, or ARENA_NONE. */
uint64_t arena_alloc(struct arena *arena, uint64_t size_bytes);
/* Releases a block. ARENA_NONE is ignored; any other unknown offset asserts. */
void arena_release(struct arena *arena, uint64_t offset);

uint64_t arena_size_bytes(const struct arena *arena);
uint64_t arena_used_bytes(const struct arena *arena); /* allocated blocks, including rounding */
/* Bytes that an allocation of `size_bytes` takes from the arena; 0: it never fits. */
uint64_t arena_block_bytes(const struct arena *arena, uint64_t size_bytes);
