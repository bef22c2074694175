/* What an SFI reports that it waits for. */
#include "sfi_driver.h"

static void assert_obstacle(const struct sfi_driver *t, enum node_reason reason, unsigned node,
                            uint64_t since_ns)
{
        struct node_obstacle o = sfi_obstacle(t->sfi, t->now_ns);

        assert_fields(&o, reason, reason, node, node, since_ns, since_ns);
}

SFI_TEST(a_missing_fragment_names_its_ros, 1, c.timeout_ns = 60 * NS_PER_S)
{
        uint64_t since_ns;

        since_ns = t->now_ns;
        sfi_gets_fragment(t, 0, 0);
        assert_obstacle(t, REASON_NONE, 0, 0);
        t->now_ns += NS_PER_S;
        assert_obstacle(t, REASON_WAITS_FOR, 1, since_ns);
        assert_int_equal(sfi_obstacle(t->sfi, t->now_ns).n_nodes, 1);
        sfi_gets_fragment(t, 1, 0);
        assert_obstacle(t, REASON_NONE, 0, 0);
}

/* This is reported to the DFM, with the time since when. */
SFI_TEST(alive_carries_the_reason, 1, c.timeout_ns = 60 * NS_PER_S, c.keep_alive_ns = 1500 * NS_PER_MS,
         c.retries_max = 0)
{
        bool said = false;

        sfi_gets_fragment(t, 0, 0);
        t->now_ns += c.keep_alive_ns;
        while (memset(&t->message, 0xff, sizeof t->message), sfi_makes(t)) {
                if (t->message.header.type != MESSAGE_ALIVE)
                        continue;
                said = true;
                assert_fields(&t->message.alive, reason, REASON_WAITS_FOR, reason_node, 1, reason_ms, 1500,
                              room, 0);
        }
        assert_true(said);
}

/* A full disk is the first cause, whatever else the SFI waits for, or fails in later. */
SFI_TEST(a_full_disk_comes_first, 1, c.timeout_ns = 60 * NS_PER_S)
{
        uint64_t since_ns;

        t->now_ns += 2 * NS_PER_S;
        since_ns = t->now_ns;
        sfi_set_failed(t->sfi, t->now_ns, REASON_DISK_FULL);
        t->now_ns += NS_PER_S;
        sfi_set_failed(t->sfi, t->now_ns, REASON_OUTPUT_MISSING);
        assert_obstacle(t, REASON_DISK_FULL, 0, since_ns);
}
