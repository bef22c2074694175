/* evb check of a node on a machine whose device has counted pauses and drops. */
#include "../test.h"

#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include "cmd/commands.h"
#include "shape/kernel/device.h"

#define NONE                                                                                                 \
        {                                                                                                    \
                TC_COUNT_UNKNOWN, TC_COUNT_UNKNOWN, TC_COUNT_UNKNOWN, TC_COUNT_UNKNOWN, TC_COUNT_UNKNOWN     \
        }

static char file[] = "/tmp/evb-test-check-XXXXXX";
static const struct tc_port none = NONE, *port = &none;

void __wrap_tc_port_read(struct tc_port *ret, const struct tc_device *device);

void __wrap_tc_port_read(struct tc_port *ret, const struct tc_device *device)
{
        assert_string_equal(device->name, "lo");
        *ret = *port;
}

/* The address of the SFI is one of the loopback device, as all of 127.0.0.0/8, but no interface has it. */
int __wrap_tc_device_of_address(const char *address, char name[static IF_NAMESIZE]);

int __wrap_tc_device_of_address(const char *address, char name[static IF_NAMESIZE])
{
        assert_string_equal(address, "127.99.201.3");
        strcpy(name, "lo");
        return 0;
}

/* Checks the node; `text` receives what it prints to standard error. Another test may use its ports, so the
 * exit status does not matter. */
static void check(const char *node, char *text, size_t size)
{
        char words[][16] = {"check", "--node", ""}, *argv[] = {words[0], file, words[1], words[2], NULL};
        int out = dup(STDOUT_FILENO), err = dup(STDERR_FILENO), to = memfd_create("text", MFD_CLOEXEC),
            other = memfd_create("other", MFD_CLOEXEC);
        ssize_t n;

        snprintf(words[2], sizeof words[2], "%s", node);
        fflush(NULL);
        assert_true(to >= 0 && other >= 0 && out >= 0 && err >= 0);
        assert_true(dup2(other, STDOUT_FILENO) >= 0 && dup2(to, STDERR_FILENO) >= 0);
        (void)cmd_check(ARRAY_SIZE(argv) - 1, argv);
        fflush(NULL);
        assert_true(dup2(out, STDOUT_FILENO) >= 0 && dup2(err, STDERR_FILENO) >= 0);
        n = pread(to, text, size - 1, 0);
        assert_true(n >= 0);
        text[n] = '\0';
        close(to);
        close(other);
        close(out);
        close(err);
}

static int begin(void **state)
{
        int fd = mkstemp(file);

        return fd < 0 ||
                               dprintf(fd, "[node dfm]\nrole = dfm\naddress = 127.99.201.1\n"
                                           "[node ros1]\nrole = ros\naddress = 127.99.201.2\ndevice = lo\n"
                                           "[node sfi1]\nrole = sfi\naddress = 127.99.201.3\n") < 0 ||
                               close(fd) < 0
                       ? -1
                       : 0;
}

static int end(void **state)
{
        return unlink(file);
}

static const char *const nodes[] = {"ros1", "sfi1"};

/* By its name, and by the address. */
TEST_EACH(a_check_says_what_the_port_counts, i, ARRAY_SIZE(nodes))
{
        static const struct tc_port counts = {.pause_received = 5123,
                                              .pause_sent = TC_COUNT_UNKNOWN,
                                              .pfc_received = TC_COUNT_UNKNOWN,
                                              .pfc_sent = TC_COUNT_UNKNOWN,
                                              .missed = 9};
        char text[2000], expected[500];

        port = &counts;
        check(nodes[i], text, sizeof text);
        snprintf(expected, sizeof expected,
                 "%s: node %s: warning: lo: since its driver was loaded, the device received 5123 pause "
                 "frames: the switch held this device back; dropped 9 received packets: its buffers were "
                 "full\n",
                 file, nodes[i]);
        assert_non_null(strstr(text, expected));
}

TEST_EACH(a_port_that_counts_nothing_is_not_mentioned, i, ARRAY_SIZE(nodes))
{
        static const struct tc_port zero = {};
        char text[2000];

        for (unsigned k = 0; k < 2; k++) {
                port = k == 0 ? &zero : &none;
                check(nodes[i], text, sizeof text);
                assert_null(strstr(text, "driver"));
        }
}

TESTS_BETWEEN(begin, end)
