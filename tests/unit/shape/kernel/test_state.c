/* State that outlives the process: earlier qdiscs, restored only on their own device. */
#include "tc_network.h"

#include <fcntl.h>
#include <linux/if_tun.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/resource.h>

#include "shape/kernel/state_file.h"

#define TAP "evbtap0"

static struct tc_destination destinations[SAMPLE_MAX];

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

static void shape(const char *name)
{
        struct tc_request q = sample_request(destinations, 3, TC_BACKEND_HTB_TBF);
        struct tc_shaper *s = shaper_of(name);

        apply(s, &q);
        tc_shaper_free(s);
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

static bool state_is_empty(void)
{
        return rmdir(getenv("EVB_STATE_DIRECTORY")) == 0 && mkdir(getenv("EVB_STATE_DIRECTORY"), 0755) == 0;
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

        shape(TAP);
        close(fd);
        fd = open_tap();
        assert_int_equal(remove_shaping(TAP), 0);
        shape(TAP);
        shell("ip link set " TAP " down && ip link set " TAP " name evbtap1");
        assert_true(remove_shaping("evbtap1") > 0);
        assert_int_equal(remove_shaping("evbtap1"), 0);
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
static const char *const texts[] = {
        "{\"format\":1,\"of\":\"x 1 "
        "2\",\"saved\":[],\"asked\":[]}",
        "{\"format\":1,\"saved\":[{\"type\":0",
        "[]",
        "{\"format\":1,\"of\":7,\"saved\":[{}],\"asked\":[]}",
};

TEST_EACH(state_of_another_device_is_ignored, i, ARRAY_SIZE(texts))
{
        struct tc_request q = sample_request(destinations, 3, TC_BACKEND_HTB_TBF);
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
        assert_true(state_is_empty());
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
                            "{\"format\": 1, \"of\": \"%s\", \"asked\": [], "
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
