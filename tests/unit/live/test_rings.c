/* The ring of events: what the producer writes is what the consumer reads, whatever the consumer does. */
#include "../test.h"

#include <unistd.h>

#include "base/random.h"
#include "live/live_ring.h"

#define RING_BYTES 65536u

static struct live_ring producer, consumer;
static uint8_t bytes[RING_BYTES];

static int set_up(void **state)
{
        int fd;

        if (live_ring_new(&producer, RING_BYTES, &fd) < 0 || live_ring_map(&consumer, fd) < 0)
                return -1;
        /* Neither process can make it smaller. */
        assert_int_equal(ftruncate(fd, 4096), -1);
        assert_int_equal(errno, EPERM);
        close(fd);
        return 0;
}

static int tear_down(void **state)
{
        live_ring_free(&producer);
        live_ring_free(&consumer);
        return 0;
}

/* An event of `n` bytes that begins with its number. */
static int write_event(uint64_t number, size_t n)
{
        struct live_record record = {.offered = number};
        struct iovec iov[2] = {{&number, sizeof number}, {bytes, n - sizeof number}};

        return live_ring_write(&producer, &record, iov, 2, n);
}

/* Reads an event; returns its number, or UINT64_MAX if there is none. */
static uint64_t read_event(size_t *ret_n)
{
        struct live_record record;
        uint64_t number;
        int r;
        const uint8_t *event = live_ring_next(&consumer, &record, &r);

        assert_int_equal(r, 0);
        if (!event)
                return UINT64_MAX;
        assert_int_equal((uintptr_t)event % 64, 0);
        memcpy(&number, event, sizeof number);
        assert_int_equal(record.offered, number);
        *ret_n = record.event_bytes;
        return number;
}

TEST_WITH(events_are_read_as_they_were_written_while_both_sides_come_and_go, set_up, tear_down)
{
        uint64_t written = 0, read = 0, full = 0, sizes[1024] = {};
        struct random random;

        random_init(&random, 3);
        for (int i = 0; i < 100000; i++) {
                size_t n = 8 + random_below(&random, random_below(&random, 8) ? 300 : RING_BYTES / 2 - 72);
                size_t got = 0;

                if (random_below(&random, 2)) {
                        int r = write_event(written, n);

                        assert_true(r == LIVE_RING_WRITTEN || r == LIVE_RING_FULL);
                        full += r == LIVE_RING_FULL;
                        if (r == LIVE_RING_WRITTEN)
                                sizes[written++ % ARRAY_SIZE(sizes)] = n;
                } else if (read_event(&got) == read) {
                        assert_int_equal(got, sizes[read++ % ARRAY_SIZE(sizes)]);
                        if (random_below(&random, 3) == 0)
                                live_ring_release(&consumer);
                } else {
                        assert_int_equal(read, written);
                        live_ring_release(&consumer);
                }
        }
        assert_true(full > 1000 && written > 10000 && written - read < ARRAY_SIZE(sizes));
}

TEST_WITH(an_event_of_half_the_ring_fits_at_each_position, set_up, tear_down)
{
        size_t n;

        assert_int_equal(write_event(0, RING_BYTES / 2 - 63), LIVE_RING_FULL);
        for (uint64_t i = 0; i < 5000; i++) {
                assert_int_equal(write_event(i, i % 2 ? RING_BYTES / 2 - 64 : 8 + i), LIVE_RING_WRITTEN);
                assert_int_equal(read_event(&n), i);
                live_ring_release(&consumer);
                assert_int_equal(live_ring_unread_bytes(&producer), 0);
        }
}

TEST_WITH(a_full_ring_keeps_its_events, set_up, tear_down)
{
        uint64_t written = 0;
        size_t n;

        while (write_event(written, 1000) == LIVE_RING_WRITTEN)
                written++;
        assert_int_equal(written, RING_BYTES / (64 + 1024));
        assert_int_equal(write_event(written, 1000), LIVE_RING_FULL);
        for (uint64_t i = 0; i < written; i++)
                assert_int_equal(read_event(&n), i);
        assert_int_equal(read_event(&n), UINT64_MAX);
}

TEST_WITH(a_consumer_that_sleeps_is_woken_once, set_up, tear_down)
{
        assert_false(live_ring_needs_wake(&producer));
        assert_true(live_ring_prepare_sleep(&consumer));
        assert_int_equal(write_event(0, 100), LIVE_RING_WRITTEN);
        assert_true(live_ring_needs_wake(&producer));
        assert_false(live_ring_needs_wake(&producer));
        assert_false(live_ring_prepare_sleep(&consumer));
}

static const uint64_t lies[] = {64, 63, RING_BYTES, UINT64_MAX, UINT64_MAX - 63};

/* With 1,088 bytes written, of which 1,088 are read. */
TEST_EACH(a_consumer_that_lies_is_noticed, i, ARRAY_SIZE(lies))
{
        uint64_t bad = i == 0 ? 1088 + 64 : lies[i];
        size_t n;

        assert_int_equal(set_up(NULL), 0);
        assert_int_equal(write_event(0, 1000), LIVE_RING_WRITTEN);
        assert_int_equal(read_event(&n), 0);
        live_ring_release(&consumer);
        assert_int_equal(live_ring_unread_bytes(&producer), 0);
        atomic_store(&consumer.head->read, bad);
        assert_int_equal(live_ring_unread_bytes(&producer), -EPROTO);
        assert_int_equal(write_event(1, 1000), -EPROTO);
        tear_down(NULL);
}

/* The producer never reads what a consumer may have changed. */
TEST_WITH(a_consumer_that_overwrites_the_ring_harms_only_itself, set_up, tear_down)
{
        struct live_record record;
        int r;

        assert_int_equal(write_event(0, 1000), LIVE_RING_WRITTEN);
        memset(consumer.data, 0xff, RING_BYTES);
        consumer.head->data_bytes = 0;
        atomic_store(&consumer.head->written, UINT64_MAX);
        assert_int_equal(live_ring_unread_bytes(&producer), 64 + 1024);
        assert_int_equal(write_event(1, 1000), LIVE_RING_WRITTEN);
        assert_null(live_ring_next(&consumer, &record, &r));
        assert_int_equal(r, -EPROTO);
}
