/* A network namespace of the test's own, in which only the loopback device is up. */
#pragma once

#include "test.h"

#include <net/if.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

/* `mtu` of the loopback device; 0: its default. False, with a message: the privilege is missing. */
static inline bool own_network_enter(int mtu)
{
        struct ifreq r = {.ifr_name = "lo"};
        int fd;

        if (unshare(CLONE_NEWUSER | CLONE_NEWNET) < 0) {
                print_message("skipped: no network namespace to be had here\n");
                return false;
        }
        fd = socket(AF_INET, SOCK_DGRAM, 0);
        r.ifr_mtu = mtu;
        if (mtu > 0)
                assert_int_equal(ioctl(fd, SIOCSIFMTU, &r), 0);
        r.ifr_flags = IFF_UP;
        assert_int_equal(ioctl(fd, SIOCSIFFLAGS, &r), 0);
        close(fd);
        return true;
}
