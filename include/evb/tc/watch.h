/* What happens to a device's queueing, as the kernel announces it: by whom, and what. One thread. */
#pragma once

#include "evb/tc-model/object.h"

struct tc_watch;

struct tc_event {
        enum {
                TC_EVENT_CHANGED, /* made or changed: `object` */
                TC_EVENT_DELETED, /* what hung below it is gone as well, without a word */
                TC_EVENT_LINK_GONE,
                TC_EVENT_LOST, /* more happened than we could read: look again */
        } what;
        bool by_us;
        uint32_t port;           /* netlink port id of who did it: most often a process id; 0: the kernel */
        struct tc_object object; /* options owned by the receiver: free(object.options) */
};

/* own_port: tc_socket_port() of the socket that we change things by. */
int tc_watch_new(struct tc_watch **ret, int ifindex, uint32_t own_port);
struct tc_watch *tc_watch_free(struct tc_watch *w);
int tc_watch_fd(const struct tc_watch *w);
/* Takes the next event; 1, or 0: none at the moment, or negative errno. */
int tc_watch_next(struct tc_watch *w, struct tc_event *ret);
/* "tc (process 123)", as far as it can be known; returns text. */
char *tc_event_actor(const struct tc_event *e, char *text, size_t size);
