/* Rates that follow the run: the number of ROSs, and the share that each SFI's port takes. */
#include "ros_driver.h"
#include "sfi_driver.h"

#define KEEP_ALIVE_NS (100 * NS_PER_MS)

static void ros_gets_live(struct ros_driver *t, enum run_state run, uint64_t ros_live, uint64_t sfi_live)
{
        memset(t->message.keep_alive.ros_live, 0, sizeof t->message.keep_alive.ros_live);
        t->message.keep_alive.ros_live[0] = ros_live;
        ros_gets_keep_alive(t, run, 0, sfi_live);
}

ROS_TEST(sources_are_the_present_ones)
{
        uint32_t number;

        assert_int_equal(ros_sources(t->ros), 0);
        ros_gets_live(t, RUN_STARTING, 3, 7);
        assert_int_equal(ros_sources(t->ros), 0); /* not all have joined yet */
        ros_gets_live(t, RUN_RUNNING, 63, 7);
        assert_int_equal(ros_sources(t->ros), 6);
        number = ros_demand_number(t->ros);
        ros_gets_live(t, RUN_RUNNING, 63, 7);
        assert_int_equal(ros_demand_number(t->ros), number);
        ros_gets_live(t, RUN_RUNNING, 62, 7);
        assert_int_equal(ros_sources(t->ros), 5);
        assert_int_not_equal(ros_demand_number(t->ros), number);
        number = ros_demand_number(t->ros);
        ros_gets_live(t, RUN_RUNNING, 62, 3);
        assert_int_not_equal(ros_demand_number(t->ros), number);
        ros_gets_live(t, RUN_RUNNING, 60, 3); /* without this one, which sends all the same */
        assert_int_equal(ros_sources(t->ros), 5);
        ros_gets_live(t, RUN_ENDED, 0, 0);
        assert_int_equal(ros_sources(t->ros), 5);
}

static void ros_gets_rate(struct ros_driver *t, uint16_t sfi, uint32_t permille)
{
        t->message.rate.permille = permille;
        assert_true(to_ros(t, ROLE_SFI, sfi, MESSAGE_RATE, 0));
}

ROS_TEST(a_share_is_forgotten_unless_repeated)
{
        uint32_t number;

        number = ros_demand_number(t->ros);
        ros_gets_rate(t, 2, 1000);
        assert_int_equal(ros_demand_number(t->ros), number);
        ros_gets_rate(t, 2, 560);
        assert_int_not_equal(ros_demand_number(t->ros), number);
        assert_int_equal(ros_sfi_permille(t->ros)[2], 560);
        assert_int_equal(ros_sfi_permille(t->ros)[1], 1000);
        for (int i = 0; i < 20; i++) {
                t->now_ns += c.keep_alive_ns;
                ros_gets_rate(t, 2, 560);
                ros_says(t);
                assert_int_equal(ros_sfi_permille(t->ros)[2], 560);
        }
        for (int i = 0; i < 6; i++) {
                t->now_ns += c.keep_alive_ns;
                ros_says(t);
        }
        assert_int_equal(ros_sfi_permille(t->ros)[2], 1000);
        t->message.rate.permille = 500;
        assert_false(to_ros(t, ROLE_SFI, 3, MESSAGE_RATE, 0)); /* there is no SFI 3 */
        assert_false(to_ros(t, ROLE_ROS, 0, MESSAGE_RATE, 0));
}

ROS_TEST(totals_carry_the_drops_of_the_own_queue)
{
        ros_gets_assign(t, 0, 0, 0);
        ros_sends(t, 0);
        ros_count_datagrams(t->ros, 0, 1);
        ros_set_dropped(t->ros, 0, 17);
        assert_ros_says_after(t, c.keep_alive_ns,
                              "dfm: Alive running | sfi0: Totals 1 datagrams 1 fragments");
        assert_int_equal(t->message.totals.dropped, 17);
}

/* The SFI's view: `lost` of `sent` datagrams from ROS 0 in an interval. */
static const char *sfi_observes(struct sfi_driver *t, uint32_t sent, uint32_t lost)
{
        static uint32_t number;

        for (uint32_t i = 0; i < sent; i++, number++) {
                if (i >= lost)
                        sfi_count_datagram(t->sfi, 0, number);
        }
        sfi_count_datagram(t->sfi, 0, number++);
        t->now_ns = sfi_port_rate(t->sfi)->look_ns;
        return sfi_says(t);
}

static void init_following_sfi(struct sfi_driver *t)
{
        struct sfi_config c = sfi_standard();

        c.follows_losses = true;
        sfi_driver_init(t, &c);
        sfi_observes(t, 10, 0);
}

SFI_TEST_AS(a_loss_is_reported_to_all_ross_and_repeated, sfi_standard(), init_following_sfi(t))
{
        assert_string_equal(sfi_observes(t, 1000, 0), "");
        assert_string_equal(sfi_observes(t, 1000, 200), "");
        assert_string_equal(sfi_observes(t, 1000, 0), "all: Rate 560"); /* they are still missing */
        assert_int_equal(t->message.rate.lost, 200);
}

SFI_TEST(recovery_is_reported_in_steps_and_at_its_end, 0, c.follows_losses = true,
         c.keep_alive_ns = KEEP_ALIVE_NS * 10)
{
        unsigned reports = 0, looks = 0, full = 0;

        sfi_observes(t, 10, 0);
        sfi_observes(t, 1000, 200);
        sfi_observes(t, 1000, 0);
        for (; sfi_port_rate(t->sfi)->permille < PORT_RATE_FULL; looks++) {
                reports += strstr(sfi_observes(t, 100, 0), "all: Rate") != NULL;
                assert_true(looks < 600);
        }
        assert_true(reports > 20 && reports < looks);
        assert_int_equal(sfi_port_rate(t->sfi)->permille, PORT_RATE_FULL);
        for (int i = 0; i < 100; i++)
                full += strstr(sfi_observes(t, 100, 0), "all: Rate 1000") != NULL;
        assert_int_equal(full, 2); /* and one when it was reached */
}

SFI_TEST_AS(losses_with_a_known_place_are_not_reported, sfi_standard(), init_following_sfi(t))
{
        sfi_set_socket_drops(t->sfi, 200);
        assert_string_equal(sfi_observes(t, 1000, 200), "");
        assert_string_equal(sfi_observes(t, 1000, 0), "");
        t->message.totals.dropped = 300;
        t->message.totals.datagrams = 0;
        assert_true(to_sfi(t, ROLE_ROS, 0, MESSAGE_TOTALS, 0));
        assert_string_equal(sfi_observes(t, 1000, 300), "");
        assert_string_equal(sfi_observes(t, 1000, 300), "");
}

/* A ROS claims what it has passed to the kernel, where much of it may still be queued. */
SFI_TEST_AS(packets_in_a_source_queue_are_not_lost, sfi_standard(), init_following_sfi(t))
{
        for (uint32_t i = 0; i < 100; i++)
                sfi_count_datagram(t->sfi, 1, i);
        t->message.totals.dropped = 0;
        t->message.totals.datagrams = 3000;
        assert_true(to_sfi(t, ROLE_ROS, 1, MESSAGE_TOTALS, 0));
        assert_int_equal(sfi_counts(t->sfi).datagrams_lost, 0);
        assert_string_equal(sfi_observes(t, 1000, 0), "");
}

SFI_TEST(without_follows_losses_nothing_is_reported, 0)
{
        for (uint32_t number = 0; number < 1000; number += 2)
                sfi_count_datagram(t->sfi, 0, number);
        assert_sfi_says_after(t, NS_PER_S, "");
}
