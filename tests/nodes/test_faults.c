/* Whatever dies, stands still, gets lost or arrives, a run ends with balanced accounts. */
#include <dirent.h>
#include <stdio.h>

#include "bed.h"
#include "base/random.h"

#define SMALL "ros.count=6", "ros.fragment-size=1024", "sfi.count=2"
/* Timeouts that nothing reaches. */
#define PATIENT "sfi.timeout=30s", "dfm.node-timeout=30s"
/* Dead nodes are noticed soon. */
#define QUICK "dfm.node-timeout=600ms", "dfm.start-timeout=60s", "test.keep-alive=50ms", "sfi.timeout=400ms"
#define ENDLESS "trigger.events=0", "trigger.rate=2kHz"

static bool are_complete(uint64_t n)
{
        return count_of("dfm", events_complete) >= n;
}

static void stop(int status)
{
        bed_stop("dfm", status);
        bed_check_accounts();
}

static void lose(int pull, const char *transport)
{
        RUN(1, SMALL, PATIENT, "trigger.events=2000", bed_mode(pull), transport, "network.loss=0.05",
            "network.reorder=0.02", "network.duplicate=0.02");
        bed_ends_complete();
        bed_check_written_once(2000);
}

TEST_EACH(losses_are_recovered, pull, 2)
{
        lose(pull, "scenario.transport=udp");
        assert_true(count_sum(ROLE_SFI, fragments_recovered) > 0);
        assert_true(count_sum(ROLE_SFI, packets_lost) > 0);
        lose(pull, "scenario.transport=tcp");
}

TEST(without_retries_losses_make_partial_events)
{
        RUN(1, SMALL, PATIENT, "trigger.events=2000", "network.loss=0.05", "sfi.retries=0",
            "sfi.timeout=200ms");
        bed_ends("dfm", 1);
        bed_check_accounts();
        assert_true(count_of("dfm", events_partial) > 0 && count_of("dfm", fragments_lost) > 0);
}

/* A killed ROS or SFI: the run continues, and falls short. */
static void kill_one(const char *victim, int pull)
{
        uint64_t before;

        RUN(1, SMALL, QUICK, ENDLESS, bed_mode(pull));
        bed_until(are_complete(100));
        bed_kill(victim);
        bed_pass(1200 * NS_PER_MS);
        before = count_of("dfm", events_complete) + count_of("dfm", events_partial);
        bed_until(count_of("dfm", events_complete) + count_of("dfm", events_partial) > before + 500);
        stop(1);
        assert_true(bed_logged("dfm", victim));
}

TEST_EACH(the_run_survives_a_dead_node, pull, 2)
{
        kill_one("ros3", pull);
        assert_true(count_of("dfm", events_partial) > 500 && count_of("dfm", events_lost) == 0);
        kill_one("sfi1", pull);
        assert_true(count_of("dfm", events_reassigned) > 0 && count_of("dfm", events_complete) > 500);
}

/* The others notice, and end. */
TEST_EACH(the_dfm_dies, pull, 2)
{
        RUN(1, SMALL, QUICK, ENDLESS, bed_mode(pull));
        bed_until(are_complete(100));
        bed_kill("dfm");
        for (enum node_role role = ROLE_ROS; role <= ROLE_SFI; role++) {
                for (size_t i = 0; bed_name(role, i); i++) {
                        bed_ends(bed_name(role, i), 75);
                        assert_true(bed_logged(bed_name(role, i), "the DFM dfm fell silent in run 1"));
                        assert_true(bed_logged(bed_name(role, i),
                                               "(10 times dfm.node-timeout); this node exits"));
                }
        }
}

/* Overwrites the beginning of a DFM's file whose name ends like this. */
static void damage(const char *end)
{
        const char *folder = getenv("STATE_DIRECTORY");
        DIR *d = folder ? opendir(folder) : NULL;
        unsigned damaged = 0;

        assert_non_null(d);
        for (struct dirent *e; (e = readdir(d));) {
                size_t n = strlen(e->d_name);
                char path[PATH_MAX];
                FILE *f;

                if (n < strlen(end) || strcmp(e->d_name + n - strlen(end), end) != 0)
                        continue;
                snprintf(path, sizeof path, "%s/%s", folder, e->d_name);
                f = fopen(path, "r+");
                assert_non_null(f);
                assert_true(fputs("damaged", f) > 0 && fclose(f) == 0);
                damaged++;
        }
        closedir(d);
        assert_int_equal(damaged, 1);
}

static void restart_dfm_with_damaged(const char *file)
{
        uint64_t before;

        bed_until(are_complete(100));
        bed_kill("dfm");
        before = count_of("dfm", triggers);
        damage(file);
        bed_start("dfm");
        bed_until(are_complete(before + 100));
}

TEST_EACH(a_run_is_resumed_without_its_record, pull, 2)
{
        RUN(1, SMALL, PATIENT, ENDLESS, bed_mode(pull));
        restart_dfm_with_damaged(".processes");
        stop(1);
        bed_check_written_once(count_of("dfm", triggers));
        assert_true(bed_has_reason(
                "dfm", "without the record of the one before it: what nodes reported before is not known"));
}

/* The numbers of runs are damaged: the run continues, and no other one begins. */
TEST_EACH(a_run_is_resumed_without_a_run_number, is_known, 2)
{
        RUN(1, SMALL, PATIENT, ENDLESS, "run.number=next");
        restart_dfm_with_damaged("run-number");
        stop(0);
        assert_int_equal(bed_reported("dfm", "run"), 1);
        bed_check_written_once(count_of("dfm", triggers));
        for (enum node_role role = ROLE_ROS; role <= ROLE_SFI; role++) {
                for (size_t i = 0; bed_name(role, i); i++)
                        bed_ends(bed_name(role, i), 0);
        }
        if (!is_known) /* whether the last run has ended */
                damage("-26800");
        bed_start_all();
        bed_ends("dfm", 2);
        assert_int_equal(bed_times_logged("dfm", "run-number is damaged, so the last run number is unknown"),
                         2);
        assert_int_equal(bed_times_logged("dfm", "another run needs a number"), !is_known);
}

static const int signals[] = {SIGINT, SIGTERM};

TEST_EACH(a_signal_finishes_open_events, i, ARRAY_SIZE(signals))
{
        RUN(1, SMALL, PATIENT, ENDLESS);
        bed_until(are_complete(100));
        bed_signal("dfm", signals[i]);
        bed_ends_complete();
        bed_check_written_once(count_of("dfm", triggers));
}

TEST(a_second_signal_ends_at_once)
{
        RUN(1, SMALL, QUICK, ENDLESS, "sfi.timeout=50s", "dfm.node-timeout=60s");
        bed_until(are_complete(100));
        bed_freeze("ros1", true); /* so that draining cannot end */
        bed_pass(100 * NS_PER_MS);
        bed_signal("dfm", SIGTERM);
        bed_pass(2 * NS_PER_S);
        assert_false(bed_has_ended("dfm"));
        bed_signal("dfm", SIGINT);
        bed_pass(100 * NS_PER_MS);
        assert_true(bed_has_ended("dfm"));
        bed_ends("dfm", 1);
}

/* Over TCP, so that what it does not read waits elsewhere. */
TEST(a_frozen_sfi_is_given_up_and_returns)
{
        RUN(1, SMALL, QUICK, ENDLESS, "scenario.transport=tcp", "sfi.count=3", "sfi.credits=300");
        bed_until(are_complete(100));
        for (int i = 0; i < 3; i++) {
                uint64_t before;

                bed_freeze("sfi1", true);
                bed_pass(1200 * NS_PER_MS);
                before = count_of("dfm", events_complete);
                bed_until(count_of("dfm", events_complete) > before + 1000);
                assert_true(
                        bed_logged("dfm", "no message from sfi1 for dfm.node-timeout; treating it as gone"));
                bed_freeze("sfi1", false);
                before = count_of("sfi1", events_complete);
                bed_until(count_of("sfi1", events_complete) > before + 100);
        }
        bed_signal("dfm", SIGTERM);
        bed_until(bed_has_ended("dfm"));
        bed_check_accounts();
        assert_int_equal(count_of("dfm", events_lost), 0);
}

/* Foreign and malformed datagrams are counted as such and have no effect. */
TEST(foreign_senders_are_counted)
{
        static const struct {
                const char *bytes;
                size_t n, padding;
        } hostile[] = {
                {"", 0, 0},
                {"x", 1, 0},
                {"EVB1", 4, 0},
                {"EVB1\1\0\40\0\1\0\0\0\2\0\0\0", 16, 0},
                {"EVB1\1\0\40\0\1\0\0\0\2\0\0\0", 16, 16},
                {"", 0, 1400},
                {"EVB1\xff\xff\xff\xff\xff", 9, 990},
                {"EVB1\3\0", 6, 40},
                {"\xeb\3", 2, 40},
                {"EVB1\1\0\40\0\143\0\0\0", 12, 60},
        };
        static const char *const nodes[] = {"dfm", "ros1", "sfi1", "sfi2"};
        uint8_t bytes[1500];
        struct random random;

        RUN(1, SMALL, PATIENT, ENDLESS);
        bed_until(are_complete(100));
        random_init(&random, 1);
        for (size_t i = 0; i < ARRAY_SIZE(nodes); i++) {
                for (uint16_t port = 26800; port < 26802; port++) {
                        for (size_t k = 0; k < ARRAY_SIZE(hostile); k++) {
                                memset(bytes, 0, sizeof bytes);
                                memcpy(bytes, hostile[k].bytes, hostile[k].n);
                                bed_send_datagram(nodes[i], port, bytes, hostile[k].n + hostile[k].padding);
                        }
                        for (size_t k = 0; k < 900; k++)
                                bytes[k] = (uint8_t)random_next(&random);
                        bed_send_datagram(nodes[i], port, bytes, 900);
                }
        }
        bed_pass(10 * NS_PER_MS);
        bed_stop_run(0);
        bed_check_complete();
        assert_true(count_of("sfi1", packets_foreign) > 0 && count_of("sfi1", packets_malformed) > 0);
        assert_true(count_of("dfm", packets_foreign) > 0 && count_of("dfm", packets_malformed) > 0);
        assert_true(count_of("ros1", packets_foreign) > 0 && count_of("ros1", packets_malformed) > 0);
}

TEST_EACH(events_larger_than_the_memory_are_counted, pull, 2)
{
        RUN(1, PATIENT, "ros.count=2", "ros.fragment-size=lognormal:3000000,0.01", "sfi.count=1",
            "sfi.buffer-size=4MiB", "sfi.timeout=1s", "trigger.events=4", bed_mode(pull));
        bed_ends("dfm", 1);
        bed_check_accounts();
        assert_int_equal(count_of("sfi1", events_starved), 4);
}

TEST(small_buffers_make_triggers_wait)
{
        RUN(1, SMALL, PATIENT, "sfi.buffer-size=4MiB", "ros.buffer-size=4MiB", "ros.fragment-size=200KiB",
            "trigger.events=200", "sfi.count=1");
        bed_ends_complete();
        assert_true(count_of("dfm", busy_ns) > 0);
}
