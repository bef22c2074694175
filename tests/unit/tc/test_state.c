/* What outlives the process: settings of the interface and what was there before, put back on the device that it is of. */
#include "tc_network.h"

#include <fcntl.h>
#include <linux/if_tun.h>
#include <sys/ioctl.h>

#define TAP "evbtap0"

static struct tc_destination destinations[SAMPLE_MAX];

/* A tap device takes rx_frames, and nothing else of coalescing. */
static int open_tap(void)
{
        struct ifreq r = {.ifr_name = TAP, .ifr_flags = IFF_TAP | IFF_NO_PI};
        int fd = open("/dev/net/tun", O_RDWR | O_CLOEXEC);

        if (fd >= 0 && ioctl(fd, TUNSETIFF, &r) == 0)
                return fd;
        print_message("skipped: no tap device to be had here\n");
        skip();
        return -1;
}

static struct tc_shaper *shaper_of(const char *name)
{
        struct tc_device d;
        struct tc_outcome o = {};
        struct tc_shaper *s;

        assert_int_equal(tc_device_read(&d, name), 0);
        if (tc_shaper_new(&s, &d, &o) < 0)
                fail_msg("%s", o.error);
        return s;
}

static int tune(const char *name, uint32_t mtu, uint32_t rx_usecs, uint32_t rx_frames)
{
        struct tc_tuning t = {mtu, rx_usecs, rx_frames, TC_UNCHANGED, TC_UNCHANGED};
        struct tc_shaper *s = shaper_of(name);
        struct tc_outcome o = {};
        int r = tc_shaper_tune(s, &t, &o);

        tc_shaper_free(s);
        return r < 0 ? r : (int)o.operations;
}

static unsigned take_away(const char *name)
{
        struct tc_shaper *s = shaper_of(name);
        struct tc_outcome o = {};

        if (tc_shaper_remove(s, &o) < 0)
                fail_msg("%s", o.error);
        tc_shaper_free(s);
        return o.operations;
}

static struct tc_tuning tuning_of(const char *name)
{
        struct tc_tuning t;

        assert_int_equal(tc_tuning_read(NULL, name, &t), 0);
        return t;
}

static bool state_is_empty(void)
{
        return rmdir(getenv("EVB_STATE_DIRECTORY")) == 0 && mkdir(getenv("EVB_STATE_DIRECTORY"), 0755) == 0;
}

static void each_setting_is_put_back_whenever_it_was_set(void **state)
{
        int fd = open_tap();
        struct tc_tuning before = tuning_of(TAP), now;

        (void)state;
        assert_int_equal(tune(TAP, 1400, TC_UNCHANGED, TC_UNCHANGED), 1);
        assert_int_equal(tune(TAP, TC_UNCHANGED, TC_UNCHANGED, 7), 1);
        assert_int_equal(tune(TAP, 1300, TC_UNCHANGED, 9), 1);
        assert_int_equal(tune(TAP, 1300, TC_UNCHANGED, 9), 0); /* as it is */
        now = tuning_of(TAP);
        assert_int_equal(now.mtu_bytes, 1300);
        assert_int_equal(now.rx_frames, 9);
        assert_int_equal(take_away(TAP), 1);
        now = tuning_of(TAP);
        assert_memory_equal(&before, &now, sizeof now);
        assert_true(state_is_empty());
        close(fd);
}

static void a_refused_setting_leaves_nothing_behind(void **state)
{
        int fd = open_tap();
        struct tc_tuning before = tuning_of(TAP), now;
        struct tc_request q = sample_request(destinations, 3, QOS_HTB_TBF);
        struct tc_plan p = sample_plan(&q);
        struct tc_tuning want = {1400, TC_UNCHANGED, 5, TC_UNCHANGED, TC_UNCHANGED};
        struct tc_outcome o = {};
        struct tc_shaper *s;

        (void)state;
        assert_true(tune(TAP, 1400, 5, TC_UNCHANGED) < 0);
        assert_int_equal(tune(TAP, 65535, TC_UNCHANGED, 5), -EINVAL);
        assert_true(state_is_empty());
        /* What was to follow fails: a root of someone else. */
        if (!network_has_tc())
                skip();
        network_tc("qdisc add dev " TAP " root handle 1: htb");
        s = shaper_of(TAP);
        assert_int_equal(tc_shaper_tune(s, &want, &o), 0);
        assert_int_equal(tc_shaper_apply(s, &p, false, NS_PER_S, true, &o), -EEXIST);
        tc_shaper_untune(s, &o);
        tc_shaper_free(s);
        now = tuning_of(TAP);
        assert_memory_equal(&before, &now, sizeof now);
        assert_true(state_is_empty());
        tc_plan_fini(&p);
        close(fd);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(each_setting_is_put_back_whenever_it_was_set),
                cmocka_unit_test(a_refused_setting_leaves_nothing_behind),
        };
        int failed;

        if (!network_enter())
                return 77;
        failed = cmocka_run_group_tests(tests, NULL, NULL);
        network_leave();
        return failed;
}
