/* Opens sockets at a node's own addresses, with a wait for the address if necessary, and busy polling by the
 * kernel if the scenario enables it. */
#include "data/socket_open.h"

#include <errno.h>
#include <limits.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "base/log.h"
#include "base/quantity.h"
#include "base/util.h"
#include "data/stats.h"
#include "net/tcp.h"
#include "sys/loop.h"
#include "sys/notify.h"

/* Enables busy polling: while the socket is empty, the kernel polls the network card's queue for up to
 * `poll_ns` if the call may wait, and prefers polling to interrupts (SO_PREFER_BUSY_POLL). Sockets accepted
 * by a listening socket inherit this setting. With a negative errno, `ret_refused` names the option that the
 * kernel refuses: -EPERM without CAP_NET_ADMIN, -ENOPROTOOPT if the kernel does not support the option. */
static int busy_poll_set(int fd, uint64_t poll_ns, const char **ret_refused)
{
        int poll_us = (int)MIN(DIV_ROUND_UP(poll_ns, NS_PER_US), (uint64_t)INT_MAX);
        const struct {
                const char *text;
                int name, value;
        } options[] = {
                {"SO_BUSY_POLL", SO_BUSY_POLL, poll_us},
                {"SO_PREFER_BUSY_POLL", SO_PREFER_BUSY_POLL, 1},
        };

        for (size_t i = 0; i < ARRAY_SIZE(options); i++) {
                if (setsockopt(fd, SOL_SOCKET, options[i].name, &options[i].value, sizeof(int)) < 0) {
                        *ret_refused = options[i].text;
                        return -errno;
                }
        }
        return 0;
}

#define RETRY_NS (500 * NS_PER_MS)
#define EXTEND_NS (10 * NS_PER_S)

struct opening {
        const char *what;
        const struct net_address *local;
        const struct net_address *group; /* NULL: unicast only */
        int (*open)(const struct opening *o);
        /* UDP */
        struct endpoint **ret;
        const struct udp_config *config;
        /* TCP */
        uint64_t receive_buffer_bytes;
};

/* Whether the missing address, device or route may still appear while the machine boots. */
static bool may_appear(int r)
{
        return r == -EADDRNOTAVAIL || r == -ENETUNREACH || r == -ENETDOWN;
}

/* Adds a hint that the kernel's text does not contain: the address may belong to another machine. */
static const char *hint(const struct opening *o, int r)
{
        return r == -EADDRNOTAVAIL && !o->group ? "; no device of this machine has this address" : "";
}

static int explain(const struct opening *o, int r)
{
        char text[NET_ADDRESS_TEXT_MAX];

        net_address_format(o->group ?: o->local, text);
        if (r == -EADDRINUSE)
                return log_error_errno(r,
                                       "cannot open %s for %s: it is in use; is this node running already?",
                                       text, o->what);
        return log_error_errno(r, "cannot open %s for %s: %m%s", text, o->what, hint(o, r));
}

static bool is_patient = true;

void socket_open_at_once(void)
{
        is_patient = false;
}

static uint64_t busy_poll_ns;

void socket_set_busy_poll(uint64_t poll_ns)
{
        busy_poll_ns = poll_ns;
}

void socket_poll_busily(int fd)
{
        static bool logged;
        const char *option;
        int r = busy_poll_ns > 0 ? busy_poll_set(fd, busy_poll_ns, &option) : 0;

        if (r < 0 && !logged) {
                logged = true;
                log_info("network.busy-poll: the kernel refuses %s: %s; the node goes on without it", option,
                         strerror(-r));
        }
}

void socket_mark(int fd, uint8_t dscp)
{
        static bool logged;
        int family = AF_INET, octet = dscp << 2, priority = MIN(dscp >> 3, 6);
        socklen_t size = sizeof family;
        bool v6;

        if (dscp == 0)
                return;
        v6 = getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &family, &size) == 0 && family == AF_INET6;
        /* IP_TOS sets a priority of its own, so this comes first. */
        if ((setsockopt(fd, v6 ? IPPROTO_IPV6 : IPPROTO_IP, v6 ? IPV6_TCLASS : IP_TOS, &octet, sizeof octet) <
                     0 ||
             setsockopt(fd, SOL_SOCKET, SO_PRIORITY, &priority, sizeof priority) < 0) &&
            !logged) {
                logged = true;
                log_warning_errno(errno,
                                  "network.dscp: the kernel refuses to mark packets: %m; the node goes "
                                  "on without it");
        }
}

/* False: a signal stops the node. A SIGHUP stays pending until the event loop reads it and reloads. */
static bool wait_for_address(const char *text, bool *hung_up)
{
        uint64_t watchdog_ns = notify_watchdog_ns();
        char status[NET_ADDRESS_TEXT_MAX + 32];
        int signal;

        snprintf(status, sizeof status, "waiting for its address %s", text);
        notify_starting(EXTEND_NS, status);
        /* Between two runs, the service manager still expects watchdog messages. */
        if (watchdog_ns != NEVER_NS)
                notify_watchdog();
        signal = signals_wait(MIN(RETRY_NS, watchdog_ns));
        if (signal == SIGHUP && !*hung_up)
                log_info("SIGHUP: the scenario is read again once %s is present", text);
        *hung_up |= signal == SIGHUP;
        if (signal != 0 && signal != SIGHUP)
                log_info("stopped while waiting for %s", text);
        return signal == 0 || signal == SIGHUP;
}

static int open_patiently(const struct opening *o)
{
        bool logged = false, hung_up = false;
        int r;

        while (may_appear(r = o->open(o)) && is_patient && !getenv(NODE_STATS_ENV)) {
                char text[NET_ADDRESS_TEXT_MAX];

                net_address_format(o->local, text);
                if (!logged)
                        log_warning_errno(r, "cannot open %s for %s yet, retrying every 500 ms: %m%s", text,
                                          o->what, hint(o, r));
                logged = true;
                if (!wait_for_address(text, &hung_up))
                        return -ECANCELED;
        }
        if (hung_up)
                (void)raise(SIGHUP);
        if (r < 0)
                return explain(o, r);
        if (logged)
                log_info("the address for %s is present", o->what);
        return r;
}

static int open_udp(const struct opening *o)
{
        int r = endpoint_new_udp(o->ret, o->config);

        if (r >= 0)
                socket_poll_busily((*o->ret)->fd);
        return r;
}

int socket_open_udp(struct endpoint **ret, const struct udp_config *config, const char *what)
{
        struct opening o = {
                .what = what,
                .local = &config->local,
                .group = config->group,
                .open = open_udp,
                .ret = ret,
                .config = config,
        };

        return open_patiently(&o);
}

static int open_listener(const struct opening *o)
{
        return tcp_listen(o->local, o->receive_buffer_bytes);
}

int socket_open_listener(const struct net_address *local, uint64_t receive_buffer_bytes, const char *what)
{
        struct opening o = {.what = what,
                            .local = local,
                            .open = open_listener,
                            .receive_buffer_bytes = receive_buffer_bytes};

        return open_patiently(&o);
}

void socket_log_buffer(enum socket_direction direction, const char *what, bool configured,
                       uint64_t requested_bytes, uint64_t granted_bytes)
{
        /* One entry per direction suffices, because all sockets with the same purpose are opened one after
         * another. */
        static const char *logged[2];
        char requested[QUANTITY_TEXT_MAX], granted[QUANTITY_TEXT_MAX];

        if (granted_bytes >= requested_bytes || logged[direction] == what)
                return;
        logged[direction] = what;
        log_id(configured ? LOG_LEVEL_WARNING : LOG_LEVEL_INFO, LOG_ID_BUFFER_SMALL,
               "the kernel grants %s of the requested %s as %s buffer for %s; raise net.core.%s to %llu",
               quantity_format_bytes(granted_bytes, granted),
               quantity_format_bytes(requested_bytes, requested),
               direction == SOCKET_SEND ? "send" : "receive", what,
               direction == SOCKET_SEND ? "wmem_max" : "rmem_max", (unsigned long long)requested_bytes);
}

int socket_open_local(struct local_listener *ret, const char *path, const char *key)
{
        struct error e = {};
        int r = ret ? local_listener_open(ret, path, &e) : local_listener_check(path, &e);

        if (r >= 0)
                return 0;
        log_error_errno(r, "%s: unix:%s: %s", key, path, e.message);
        return local_listener_node_error(r);
}
