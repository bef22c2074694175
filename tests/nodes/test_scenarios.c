/* Runs of all sizes, policies and kinds of triggers: each trigger is a complete event, with all bytes right.
 */
#include "bed.h"

#define SMALL                                                                                                \
        "trigger.events=2000", "ros.count=6", "ros.fragment-size=1024", "sfi.count=2", "sfi.timeout=30s",    \
                "dfm.node-timeout=30s"
#define PULL "scenario.mode=pull"
#define TCP "scenario.transport=tcp"

static const struct {
        const char *settings[6];
        uint64_t events;
} scenarios[] = {
        {{"ros.fragment-size=0"}, 2000},
        {{"ros.fragment-size=uniform:0-5000"}, 2000},
        {{"ros.fragment-size=lognormal:2kB,1", PULL}, 2000},
        {{"ros.fragment-size=lognormal:2kB,1", TCP}, 2000},
        {{"sfi.count=3"}, 2000},
        {{"ros.count=8", "sfi.count=4", PULL}, 2000},
        {{"trigger.kind=poisson", "trigger.rate=5kHz"}, 2000},
        {{"trigger.kind=burst", "trigger.rate=5kHz"}, 2000},
        {{"sfi.credits=1"}, 2000},
        {{PULL, "sfi.outstanding=1"}, 2000},
        {{"network.control-group=none"}, 2000},
        {{"ros.fragment-size=4MiB", "trigger.events=40", PULL, TCP}, 40},
        {{"ros.fragment-size=4MiB", "trigger.events=10", "network.loss=0.02", "sfi.timeout=100s"}, 10},
};

TEST_EACH(each_trigger_is_a_complete_event, i, ARRAY_SIZE(scenarios))
{
        const char *const *own = scenarios[i].settings;

        RUN(1, SMALL, own[0], own[1], own[2], own[3], own[4], own[5]);
        bed_ends_complete();
        bed_check_written_once(scenarios[i].events);
        assert_int_equal(count_of("dfm", triggers), scenarios[i].events);
        assert_true(count_sum(ROLE_SFI, fragments_received) ==
                    bed_scenario()->ros.count * scenarios[i].events);
}
