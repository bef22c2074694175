/* A consumer of live events, which blocks while it waits. One thread. */
#pragma once

#include "live/live_ring.h"
#include "live/live_select.h"

#define LIVE_POSITION_MAX 32u

/* The key of a connection over TCP. Functions of the caller, so that libevb-live needs no library for them;
 * protocol/auth.h says what they must do. */
struct live_client_key {
        void (*introduce)(void *ctx, char nonce[static AUTH_LINE_TEXT_BYTES]); /* makes this side's nonce */
        bool (*begin)(void *ctx, const char *nonce);                           /* false: this is no nonce */
        void (*seal)(void *ctx, const char *text, size_t n, char tag[static AUTH_LINE_TEXT_BYTES]);
        const char *(*open)(void *ctx, const char *line, size_t n); /* NULL: made with another key */
        void *ctx;
};

struct live_client {
        const struct live_client_key *key; /* borrowed; NULL: none */
        struct live_ring ring;             /* over TCP, a copy of the SFI's ring */
        int fd;
        bool is_remote;
        bool shares; /* the SFI must know each event that is done: in a group, or in mode all */
        uint64_t received, reported;                        /* over TCP: positions in the ring */
        char out[LIVE_POSITION_MAX + AUTH_LINE_TEXT_BYTES]; /* the rest of a line with a position */
        size_t n_out;
        bool has_ended; /* the SFI has built all its events, and all events in the ring have been returned */
};

/* `address`: unix:PATH or HOST:PORT, numeric. `request`: as in live_select.h, without the end of line. `key`
 * must outlive the client; NULL: none. */
int live_client_open(struct live_client *ret, const char *address, const char *request,
                     const struct live_client_key *key, struct error *e);
void live_client_close(struct live_client *c);
/* Tells the SFI that the last event is no longer used. */
void live_client_release(struct live_client *c);
/* Returns the next event, which is valid until the next call. NULL: *ret_error is 0 at the end of the
 * connection (see `has_ended`; then *ret has the last counts), -EAGAIN if no event arrived within `wait_ms`,
 * -EPROTO if the ring is damaged, -EINTR after a signal. */
const uint8_t *live_client_next(struct live_client *c, int wait_ms, struct live_record *ret, int *ret_error);

struct evb_live;

/* evb_live_connect() with a key. */
int live_library_connect(struct evb_live **ret, const char *address, const char *options,
                         const struct live_client_key *key, struct error *e);
