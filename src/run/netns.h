/* Named network namespaces, as `ip netns` shows them. Names begin with evb-PID-, where PID is the process
 * that made them. Requires CAP_SYS_ADMIN. */
#pragma once

/* Moves the calling thread into a namespace. Returns negative errno. */
int netns_enter(int namespace);
/* Makes a namespace and returns its descriptor; the calling thread stays where it is. Returns negative
 * errno. */
int netns_make(const char *name, int *ret_fd);
void netns_remove(const char *name);
/* Removes the namespaces of processes that no longer exist. Returns their number. */
int netns_clean(void);
