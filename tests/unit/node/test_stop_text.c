/* What a stopped node says that it still does. */
#include "../test.h"

#include "node/log/run_log.h"

static enum run_state current;

static enum run_state state_now(const struct node *n)
{
        return current;
}

static void check(enum node_role role, enum run_state s, bool is_sealing, uint64_t now_ns,
                  const char *expected)
{
        static const struct node_kind kind = {.state = state_now};
        struct scenario scenario = {.run.stop_timeout_ns = 45 * NS_PER_S};
        const struct scenario_node self = {.role = role};
        const struct node n = {
                .scenario = &scenario,
                .self = &self,
                .kind = &kind,
                .run = 7,
                .is_sealing = is_sealing,
                .stopped_ns = 100 * NS_PER_S,
                .stop_timeout_ns = 10 * NS_PER_S,
        };
        char text[STOP_TEXT_MAX];

        current = s;
        assert_string_equal(stop_text(&n, now_ns, text), expected);
}

TEST(each_role_says_what_it_does)
{
        static const uint64_t at_once = 100 * NS_PER_S;

        check(ROLE_ROS, RUN_RUNNING, false, at_once,
              "stopping: serves run 7 until it ends, at most 45 s longer");
        check(ROLE_ROS, RUN_DRAINING, false, at_once + 44 * NS_PER_S + 1,
              "stopping: serves run 7 until it ends, at most 1 s longer");
        check(ROLE_ROS, RUN_RUNNING, false, at_once + 60 * NS_PER_S,
              "stopping: serves run 7 until it ends, at most 0 s longer");
        check(ROLE_ROS, RUN_STARTING, false, at_once, "stopping: leaves before a run");
        check(ROLE_ROS, RUN_ENDED, false, at_once, "stopping: run 7 has ended");
        check(ROLE_SFI, RUN_RUNNING, false, at_once,
              "stopping: takes no new events, and finishes its open ones in run 7, at most 45 s longer");
        check(ROLE_SFI, RUN_ENDED, true, at_once, "stopping: seals its last file of run 7");
        /* A reload does not change the time-out of a DFM that is stopped. */
        check(ROLE_DFM, RUN_DRAINING, false, at_once + NS_PER_S,
              "stopping: finishes the open events of run 7, at most 9 s longer");
}
