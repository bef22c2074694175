/* The ROS as a node; the test plays the DFM. */
#include "../test.h"

#include "core/ros.h"
#include "node/role_config.h"
#include "node_sample.h"

static struct ros *core;
static unsigned forgotten[3];

void __real_ros_forget_sfi(struct ros *r, uint32_t sfi);

void __wrap_ros_forget_sfi(struct ros *r, uint32_t sfi)
{
        assert_true(sfi < 2);
        core = r;
        forgotten[sfi]++;
        __real_ros_forget_sfi(r, sfi);
}

static void keep_alive(struct node *n, uint64_t live)
{
        static struct message m;
        static uint32_t transaction;

        m.header = (struct message_header){.cookie = SAMPLE_COOKIE,
                                           .sender_role = ROLE_DFM,
                                           .type = MESSAGE_KEEP_ALIVE,
                                           .transaction = transaction++};
        m.dfm = SAMPLE_DFM;
        m.keep_alive.state = RUN_RUNNING;
        m.keep_alive.sfi_live[0] = live;
        node_ros.receive(n, NS_PER_S, &m);
        assert_int_equal(node_ros.turn(n, NS_PER_S), 0);
}

static void assign(struct node *n, uint64_t event, uint16_t sfi)
{
        node_ros.receive(n, NS_PER_S, sample_announce(event, sfi));
}

/* Jobs for an SFI that has left are dropped once, and those for other SFIs stay. */
/* Or a ROS that joins would match its frames to triggers that are a period of the counter older. */
TEST_EACH(fewer_triggers_wait_than_half_a_counter, i, 6)
{
        static const struct {
                struct number_field number;
                uint32_t queue;
        } cases[] = {{{}, 65536},           {{.bits = 32}, 65536},
                     {{.bits = 16}, 16384}, {{.bits = 16, .modulus = 32768}, 8192},
                     {{.bits = 12}, 4096},  {{.bits = 17}, 32768}};
        _cleanup_free_ struct scenario *s = sample_scenario("udp");
        struct ros_rule rules[EVB_ROS_MAX] = {};

        s->trigger.source_kind = TRIGGER_UDP;
        for (size_t k = 0; k < s->n_nodes; k++) {
                s->nodes[k].board.number = cases[i].number;
                if (s->nodes[k].role == ROLE_ROS)
                        s->nodes[k].source_kind = SOURCE_UDP;
        }
        assert_int_equal(role_dfm_config(s, rules).trigger_queue, cases[i].queue);
}

TEST(jobs_for_an_sfi_that_left_are_dropped)
{
        _cleanup_(sample_node_free) struct node n;

        sample_node(&n, "ros1", "tcp");
        n.kind = &node_ros;
        assert_int_equal(control_open(&n.control, n.scenario, n.self, n.stats, n.loop), 0);
        n.member.incarnation = SAMPLE_INCARNATION;
        assert_int_equal(node_ros.open(&n), 0);
        node_ros.receive(&n, NS_PER_S, sample_welcome());
        keep_alive(&n, 3);
        for (uint64_t event = 0; event < 20; event++)
                assign(&n, event, event % 2);
        keep_alive(&n, 3);
        assert_int_equal(forgotten[0] + forgotten[1], 0);
        keep_alive(&n, 1);
        assert_int_equal(forgotten[1], 1);
        assert_int_equal(ros_next_with_jobs(core, 0), 0);
        assert_int_equal(ros_next_with_jobs(core, 1), UINT32_MAX);
        keep_alive(&n, 1);
        keep_alive(&n, 3); /* it has returned */
        assign(&n, 21, 1);
        keep_alive(&n, 3);
        assert_int_equal(ros_next_with_jobs(core, 1), 1);
        keep_alive(&n, 0);
        assert_int_equal(forgotten[0], 1);
        assert_int_equal(forgotten[1], 2);
        assert_int_equal(ros_next_with_jobs(core, 0), UINT32_MAX);
        node_ros.close(&n);
        control_close(&n.control);
}
