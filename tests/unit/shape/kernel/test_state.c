/* State that outlives the process: settings and earlier qdiscs, restored only on their own device. */
#include "tc_network.h"

#include <fcntl.h>
#include <linux/if_tun.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/resource.h>

#include "shape/kernel/state_file.h"

#define TAP "evbtap0"

static struct tc_destination destinations[SAMPLE_MAX];

/* A tap device supports rx_frames, but no other coalescing setting. */
static int open_tap(void)
{
        struct ifreq r = {.ifr_name = TAP, .ifr_flags = IFF_TAP | IFF_NO_PI};
        int fd = open("/dev/net/tun", O_RDWR | O_CLOEXEC);

        if (fd >= 0 && ioctl(fd, TUNSETIFF, &r) == 0)
                return fd;
        print_message("skipped: cannot create a tap device\n");
        skip();
        return -1;
}

static struct tc_shaper *shaper_of(const char *name)
{
        struct tc_device d;
        struct tc_outcome o = {};
        struct error e = {};
        struct tc_shaper *s;

        assert_int_equal(tc_device_read(&d, name), 0);
        if (tc_shaper_new(&s, &d, &o, &e) < 0)
                fail_msg("%s", e.message);
        return s;
}

static int tune(const char *name, uint32_t mtu, uint32_t rx_usecs, uint32_t rx_frames)
{
        struct tc_tuning t = {mtu, rx_usecs, rx_frames, TC_UNCHANGED, TC_UNCHANGED};
        struct tc_shaper *s = shaper_of(name);
        struct tc_outcome o = {};
        struct error e = {};
        int r = tc_shaper_tune(s, &t, &o, &e);

        tc_shaper_free(s);
        return r < 0 ? r : (int)o.operations;
}

static unsigned remove_shaping(const char *name)
{
        struct tc_shaper *s = shaper_of(name);
        struct tc_outcome o = {};
        struct error e = {};

        if (tc_shaper_remove(s, &o, &e) < 0)
                fail_msg("%s", e.message);
        tc_shaper_free(s);
        return o.operations;
}

static struct tc_tuning tuning_of(const char *name)
{
        struct tc_tuning t;

        assert_int_equal(tc_tuning_read(name, &t), 0);
        return t;
}

static bool state_is_empty(void)
{
        return rmdir(getenv("EVB_STATE_DIRECTORY")) == 0 && mkdir(getenv("EVB_STATE_DIRECTORY"), 0755) == 0;
}

TEST(each_setting_is_restored_whenever_it_was_set)
{
        _cleanup_close_ int fd = open_tap();
        struct tc_tuning before = tuning_of(TAP), now;

        assert_int_equal(tune(TAP, 1400, TC_UNCHANGED, TC_UNCHANGED), 1);
        assert_int_equal(tune(TAP, TC_UNCHANGED, TC_UNCHANGED, 7), 1);
        assert_int_equal(tune(TAP, 1300, TC_UNCHANGED, 9), 1);
        assert_int_equal(tune(TAP, 1300, TC_UNCHANGED, 9), 0); /* unchanged */
        now = tuning_of(TAP);
        assert_fields(&now, mtu_bytes, 1300, rx_frames, 9);
        assert_int_equal(remove_shaping(TAP), 1);
        now = tuning_of(TAP);
        assert_memory_equal(&before, &now, sizeof now);
        assert_true(state_is_empty());
}

TEST(a_refused_setting_leaves_nothing_behind)
{
        _cleanup_close_ int fd = open_tap();
        struct tc_tuning before = tuning_of(TAP), now;
        struct tc_request q = sample_request(destinations, 3, TC_BACKEND_HTB_TBF);
        _cleanup_(tc_plan_fini) struct tc_plan p = sample_plan(&q);
        struct tc_tuning want = {1400, TC_UNCHANGED, 5, TC_UNCHANGED, TC_UNCHANGED};
        struct tc_outcome o = {};
        struct error e = {};
        struct tc_shaper *s;

        assert_true(tune(TAP, 1400, 5, TC_UNCHANGED) < 0);
        assert_int_equal(tune(TAP, 65535, TC_UNCHANGED, 5), -EINVAL);
        assert_true(state_is_empty());
        /* The next step fails: another program has set the root. */
        network_tc("qdisc add dev " TAP " root handle 1: htb");
        s = shaper_of(TAP);
        assert_int_equal(tc_shaper_tune(s, &want, &o, &e), 0);
        assert_int_equal(tc_shaper_apply(s, &p, false, NS_PER_S, true, &o, &e), -EEXIST);
        tc_shaper_untune(s, &e);
        tc_shaper_free(s);
        now = tuning_of(TAP);
        assert_memory_equal(&before, &now, sizeof now);
        assert_true(state_is_empty());
}

static void shell(const char *command)
{
        if (system(command) != 0)
                fail_msg("%s failed", command);
}

/* State belongs to a device, not to its name or number; it survives a new name. */
TEST(state_belongs_to_one_device)
{
        int fd = open_tap();

        assert_int_equal(tune(TAP, 1400, TC_UNCHANGED, TC_UNCHANGED), 1);
        close(fd);
        fd = open_tap();
        assert_int_equal(remove_shaping(TAP), 0);
        assert_int_equal(tuning_of(TAP).mtu_bytes, 1500);
        assert_int_equal(tune(TAP, 1300, TC_UNCHANGED, TC_UNCHANGED), 1);
        shell("ip link set " TAP " down && ip link set " TAP " name evbtap1");
        assert_int_equal(remove_shaping("evbtap1"), 1);
        assert_int_equal(tuning_of("evbtap1").mtu_bytes, 1500);
        close(fd);
        shell("rm -f $EVB_STATE_DIRECTORY/qos-*"); /* state of the first device */
}

static char *state_path(void)
{
        static char path[300];
        FILE *from = popen("ls $EVB_STATE_DIRECTORY/qos-*", "r");

        assert_non_null(fgets(path, sizeof path, from));
        path[strcspn(path, "\n")] = '\0';
        pclose(from);
        return path;
}

/* State files as if from a namespace or boot whose numbers are reused, and damaged files, which cause a
 * warning. */
TEST(state_of_another_device_is_ignored)
{
        static const char *const texts[] = {
                "{\"format\":1,\"of\":\"x 1 "
                "2\",\"saved\":[],\"previous\":[1280,4294967295,4294967295,4294967295,4294967295],\"asked\":["
                "]}",
                "{\"format\":1,\"saved\":[{\"type\":0",
                "[]",
                "{\"format\":1,\"of\":7,\"saved\":[{}],\"previous\":[1,2,3,4,5],\"asked\":[]}",
        };
        struct tc_request q = sample_request(destinations, 3, TC_BACKEND_HTB_TBF);

        for (size_t i = 0; i < ARRAY_SIZE(texts); i++) {
                struct tc_device d = network_device();
                struct tc_shaper *s = network_shaper();
                struct tc_outcome o = {};
                struct error e = {};
                FILE *to;

                apply(s, &q);
                tc_shaper_free(s);
                to = fopen(state_path(), "we");
                assert_non_null(to);
                fputs(texts[i], to);
                fclose(to);
                shell("touch $(ls $EVB_STATE_DIRECTORY/qos-*).new");
                assert_int_equal(tc_shaper_new(&s, &d, &o, &e), 0);
                assert_int_equal(o.n_warnings, i > 0);
                network_remove(s);
                assert_int_equal(tuning_of(NETWORK_DEVICE).mtu_bytes, 1500);
                assert_true(state_is_empty());
        }
}

/* On a full disk nothing is changed, and the earlier state is kept. */
static void small_files(rlim_t size)
{
        signal(SIGXFSZ, SIG_IGN);
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &(struct rlimit){size, RLIM_INFINITY}), 0);
}

TEST(state_survives_a_full_disk)
{
        struct tc_request q = sample_request(destinations, 3, TC_BACKEND_HTB_TBF);
        _cleanup_(tc_plan_fini) struct tc_plan p = sample_plan(&q);
        struct tc_outcome o = {};
        struct error e = {};
        struct tc_shaper *s;
        _cleanup_free_ char *text, *then;

        network_tc("qdisc add dev " NETWORK_DEVICE " root handle 5: tbf rate 10mbit burst 10k limit 100k");
        text = network_text();
        s = network_shaper();
        apply(s, &q);
        tc_shaper_free(s);
        s = network_shaper();
        small_files(10);
        assert_true(tc_shaper_apply(s, &p, false, NS_PER_S, true, &o, &e) < 0);
        small_files(RLIM_INFINITY);
        tc_shaper_free(s);
        network_remove(network_shaper());
        then = network_text();
        assert_string_equal(text, then);
        network_tc("qdisc del dev " NETWORK_DEVICE " root");
        assert_true(state_is_empty());
}

/* As the state file holds them. */
static int peek_options(const char *hex)
{
        struct tc_device d = {.ifindex = 1, .name = "lo"};
        struct tc_state s;
        int holder, r;

        assert_int_equal(tc_state_open(&s, &d, &holder), 0);
        assert_true(dprintf(s.fd,
                            "{\"format\": 1, \"of\": \"%s\", \"previous\": [0, 0, 0, 0, 0], \"asked\": [], "
                            "\"saved\": [{\"type\": 0, \"handle\": 1, \"parent\": 2, \"kernel_handle\": 0, "
                            "\"priority\": 0, \"protocol\": 0, \"kind\": \"x\", \"options\": \"%s\"}]}",
                            s.of, hex) > 0);
        r = tc_state_peek(&(struct tc_state){}, &d);
        tc_state_fini(&s);
        return r;
}

TEST(damaged_options_are_refused)
{
        assert_int_equal(peek_options("0g"), -EBADMSG);
        assert_int_equal(peek_options("-1"), -EBADMSG);
        assert_int_equal(peek_options(" 1"), -EBADMSG);
        assert_int_equal(peek_options("012"), -EBADMSG);
        assert_true(state_is_empty());
}
