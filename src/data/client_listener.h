/* A TCP port for clients that are not nodes of the run: accepts connections from the addresses of
 * network.clients, and passes messages between each connection and the owner's functions. Clients may connect
 * and disconnect at any time. No client can stop the node, because each turn does a bounded amount of work
 * per client. One thread: the loop's. */
#pragma once

#include "data/context.h"
#include "net/tcp.h"
#include "protocol/message.h"

#define LISTENER_CLIENTS_MAX 16u

struct client_listener;

/* One connection; the owner embeds it as the first member of its own struct. */
struct listener_client {
        struct client_listener *listener;
        struct loop_io io; /* fd -1: unused */
        uint32_t index;
        bool ready, blocked;
        bool more;  /* the connection has more to send in the next turn */
        bool known; /* the first message of the client was valid */
        bool last;  /* the connection ends after the message that is being sent */
        bool full;  /* the owner accepts no messages at present */
        bool gone;  /* the connection has ended */
        struct net_address from;
        uint64_t since_ns;
        struct tcp_reader reader;
        const uint8_t *out; /* the bytes that are being sent: from out_begin below out_end */
        size_t out_begin, out_end;
};

struct listener_ops {
        const char *what; /* "level-2 client" */
        /* Processes a valid message. A negative errno ends the connection. */
        int (*take)(struct listener_client *c, uint64_t now_ns, const struct message *m);
        /* Sets `out` to the next bytes. False: there are none in this turn; sets `more` if the next turn may
         * have some. */
        bool (*make)(struct listener_client *c, uint64_t now_ns);
        /* Called when the connection begins and ends. NULL: nothing to do. */
        void (*begin)(struct listener_client *c);
        void (*end)(struct listener_client *c);
};

struct client_listener {
        const struct listener_ops *ops;
        struct data_context context;
        int listener;
        struct loop_io io;
        bool ready;
        struct listener_client *clients[LISTENER_CLIENTS_MAX];
        uint32_t first;         /* the client whose turn is next */
        uint64_t log_ns;        /* no log line about clients is written before this time */
        struct message message; /* the message being received or made */
};

/* Adds `client` as number `index`. Call this before listener_open(). */
void listener_add(struct client_listener *d, struct listener_client *client, uint32_t index);
/* Listens at this port of the node's address. Errors are logged; call listener_close() after a failure, too.
 */
int listener_open(struct client_listener *d, const struct listener_ops *ops,
                  const struct data_context *context, uint16_t port);
void listener_close(struct client_listener *d);
/* Accepts connections and receives their messages. Negative errno, logged: the port is closed. */
int listener_receive(struct client_listener *d, uint64_t now_ns);
void listener_send(struct client_listener *d, uint64_t now_ns);
/* Returns when to call listener_receive() again; 0: more work is pending. */
uint64_t listener_deadline_ns(const struct client_listener *d);
/* Resumes accepting messages of this client or, if `full`, pauses it. */
int listener_set_full(struct listener_client *c, bool full);
void listener_drop(struct listener_client *c);
/* Counts a message that is not accepted. Returns -EPROTO. */
int listener_refuse(struct listener_client *c, enum message_verdict verdict);
/* Logs at most one line each second. */
void listener_log(struct client_listener *d, const struct listener_client *c, const char *what);
