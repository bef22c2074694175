/* Tests io_uring: requests and completions in batches, links, the registered buffer. */
#include "../test.h"

#include <stdio.h>
#include <unistd.h>

#include "sys/memory.h"
#include "sys/uring.h"

static struct uring *ring;

static int open_ring(void **state)
{
        int r = uring_new(&ring, 8, 32);

        if (r < 0)
                print_message("io_uring: %s\n", strerror(-r));
        return 0;
}

static int close_ring(void **state)
{
        ring = uring_free(ring);
        return 0;
}

TEST(a_batch_is_one_call)
{
        struct io_uring_cqe e;

        if (!ring)
                skip();
        /* More rounds than the queues have places. */
        for (uint64_t round = 0; round < 50; round++) {
                uint64_t sum = 0;

                for (uint64_t i = 0; i < 8; i++) {
                        struct io_uring_sqe *q = uring_request(ring);

                        assert_non_null(q);
                        q->opcode = IORING_OP_NOP;
                        q->user_data = 8 * round + i;
                }
                assert_null(uring_request(ring));
                assert_int_equal(uring_submit(ring, 8), 0);
                for (int i = 0; i < 8; i++) {
                        assert_true(uring_completion(ring, &e));
                        assert_int_equal(e.res, 0);
                        sum += e.user_data;
                }
                assert_int_equal(sum, 64 * round + 28);
                assert_false(uring_completion(ring, &e));
        }
}

TEST(a_failed_request_cancels_those_linked_to_it)
{
        static const int expected[] = {-EBADF, -ECANCELED};
        struct io_uring_cqe e;

        if (!ring)
                skip();
        for (int i = 0; i < 2; i++) {
                struct io_uring_sqe *q = uring_request(ring);

                q->opcode = i == 0 ? IORING_OP_FSYNC : IORING_OP_NOP;
                q->fd = -1;
                q->flags = i == 0 ? IOSQE_IO_LINK : 0;
                q->user_data = (uint64_t)i;
        }
        assert_int_equal(uring_submit(ring, 2), 0);
        for (int i = 0; i < 2; i++) {
                assert_true(uring_completion(ring, &e));
                assert_int_equal(e.res, expected[e.user_data]);
        }
}

TEST(the_registered_buffer_is_read_into)
{
        uint8_t *buffer = memory_map(8192);
        FILE *f = tmpfile();
        struct io_uring_sqe *q;
        struct io_uring_cqe e;

        if (!ring)
                skip();
        assert_true(buffer && f);
        assert_int_equal(fwrite("some bytes", 1, 10, f), 10);
        fflush(f);
        assert_int_equal(uring_register_buffer(ring, buffer, 8192), 0);
        q = uring_request(ring);
        q->opcode = IORING_OP_READ_FIXED;
        q->fd = fileno(f);
        q->addr = (uint64_t)(uintptr_t)(buffer + 100);
        q->len = 10;
        assert_int_equal(uring_submit(ring, 1), 0);
        assert_true(uring_completion(ring, &e));
        assert_int_equal(e.res, 10);
        assert_memory_equal(buffer + 100, "some bytes", 10);
        fclose(f);
        memory_unmap(buffer, 8192);
}

TESTS_BETWEEN(open_ring, close_ring)
