/* Large blocks of memory that are freed. */
#include "../test.h"

#include <malloc.h>

#include "sys/memory.h"

#define LARGE_BYTES (8u << 20)
#define SMALLER_BYTES (2u << 20)

/* After the first large block was freed, glibc would take the second from a heap that never shrinks. */
TEST(large_blocks_go_back_to_the_kernel)
{
        size_t before;
        void *block;

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
        skip(); /* sanitizers replace malloc() */
#endif
        memory_return_large_blocks();
        before = mallinfo2().hblkhd;
        block = malloc(LARGE_BYTES);
        assert_non_null(block);
        free(block);
        block = malloc(SMALLER_BYTES);
        assert_non_null(block);
        assert_true(mallinfo2().hblkhd >= before + SMALLER_BYTES);
        free(block);
        assert_int_equal(mallinfo2().hblkhd, before);
}
