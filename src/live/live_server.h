/* Offers built events to the consumers that are connected to a Unix socket or a TCP port. No consumer can
 * stop the SFI or another consumer, unless it may use mode all. A consumer that violates the protocol, or
 * reports an invalid position, is disconnected. All rings together have at most LIVE_RINGS_MAX_BYTES, which
 * count as memory of the SFI; a ring of a group needs an eighth more. The ring of a consumer that has ended
 * stays until its group has the events. */
#pragma once

#include "live/live_groups.h"
#include "sys/loop.h"

struct live_server;

struct live_settings {
        const char *path; /* listen there, for the owner and the group of the process; NULL: at `listener` */
        int listener;     /* a listening TCP socket; the server owns it, also after an error */
        const struct auth_key *key; /* that consumers over TCP must have; copied; NULL: none */
        bool allows_all;            /* consumers may use mode all */
        /* Other than 0: consumers in mode all get each event, and acknowledge it by releasing it; tags of
         * events are below this. */
        uint32_t n_tags;
};

/* The loop must outlive the server. */
int live_server_new(struct live_server **ret, const struct live_settings *settings, struct loop *loop,
                    struct error *e);
/* Tells all consumers the end; `ended`: the SFI has built all its events. Then this waits up to 5 s until the
 * events on their way over TCP have arrived. Returns how many events in mode all have not. Call this after
 * the last live_server_offer(). live_server_end_groups() then counts the events of the consumers that have
 * ended by now, too. NULL: 0. */
uint64_t live_server_finish(struct live_server *s, bool ended);
/* Disconnects all consumers, after live_server_finish(). */
struct live_server *live_server_free(struct live_server *s, bool ended);

/* Whether an event must be offered, because a consumer is connected. Any thread. NULL: false. */
bool live_server_is_wanted(const struct live_server *s);

/* Offers an event. `encode` is called at most once, and only if the event is selected and there is room, or
 * mode all needs it. A skipped event is not copied. `may_wait`: if the outcome is `waits`, offer the event
 * again later; if not, consumers in mode all miss it, too. One thread, which may differ from the thread of
 * the loop. */
struct live_outcome live_server_offer(struct live_server *s, const struct live_event *event, bool may_wait,
                                      live_encode_fn encode, void *ctx);

/* Wakes consumers that sleep and have got events. Call this after the last live_server_offer() of a batch,
 * and before a wait: a system call for each event would cost more than the event. Same thread as
 * live_server_offer(). */
void live_server_wake(struct live_server *s);

/* Passes on what consumers that ended left to their groups, and returns the ends of up to n events. Same
 * thread as live_server_offer(). */
size_t live_server_collect(struct live_server *s, struct live_end *ends, size_t n);

/* Ends the connections of consumers that have the event and have not acknowledged it. */
void live_server_end_holders(struct live_server *s, uint32_t tag);

/* For mode all: whether events of consumers that have ended have gone to the others of their group. False:
 * ask again later. Same thread as live_server_offer(). NULL: true. */
bool live_server_is_settled(struct live_server *s);
/* Call this after the last live_server_offer(). Events of consumers that have ended are lost if the others of
 * their group have no room now. Returns how many events were lost in this way, or because no consumer of the
 * group was left, since the beginning. Same thread as live_server_offer(). NULL: 0. */
uint64_t live_server_end_groups(struct live_server *s);
