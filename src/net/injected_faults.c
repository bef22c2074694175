/* Injects faults into the receive path. Held datagrams are copied to a small pool; while it is full, no
 * datagram is held. */
#include "net/injected_faults.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

#include "base/util.h"

#define HELD_MAX 64
#define HELD_BYTES 65536

/* HELD_RELEASED: the caller of the last receive may still read it. */
enum held_state { HELD_FREE, HELD_WAITING, HELD_RELEASED };

struct held {
        enum held_state state;
        uint32_t overtaken; /* number of datagrams that must arrive before it is released */
        uint32_t size_bytes;
        struct net_address from;
};

struct faults {
        struct fault fault;
        struct held held[HELD_MAX];
        uint32_t n_held;
        uint8_t *bytes; /* HELD_BYTES per held datagram */
        struct datagram in[64];
};

int faults_new(struct faults **ret, const struct fault_config *config)
{
        struct faults *f = NULL;

        if (config->loss > 0 || config->reorder > 0 || config->duplicate > 0) {
                f = calloc(1, sizeof *f);
                if (f)
                        f->bytes = malloc((size_t)HELD_MAX * HELD_BYTES);
                if (!f || !f->bytes) {
                        faults_free(f);
                        return -ENOMEM;
                }
                fault_init(&f->fault, config);
        }
        *ret = f;
        return 0;
}

struct faults *faults_free(struct faults *f)
{
        if (f)
                free(f->bytes);
        free(f);
        return NULL;
}

bool faults_are_holding(const struct faults *f)
{
        return f && f->n_held > 0;
}

static bool hold(struct faults *f, const struct datagram *d, uint32_t overtaken)
{
        for (size_t i = 0; i < HELD_MAX; i++) {
                struct held *h = &f->held[i];

                if (h->state != HELD_FREE)
                        continue;
                *h = (struct held){HELD_WAITING, overtaken, d->size_bytes, *d->from};
                memcpy(f->bytes + i * HELD_BYTES, d->bytes, d->size_bytes);
                f->n_held++;
                return true;
        }
        return false;
}

/* Releases held datagrams that enough others have overtaken; with `all`, releases all held datagrams. */
static size_t release(struct faults *f, struct datagram *out, size_t n, bool all)
{
        size_t given = 0;

        for (size_t i = 0; f->n_held > 0 && i < HELD_MAX && given < n; i++) {
                struct held *h = &f->held[i];

                if (h->state != HELD_WAITING || (h->overtaken > 0 && !all))
                        continue;
                h->state = HELD_RELEASED;
                f->n_held--;
                out[given++] = (struct datagram){
                        .bytes = f->bytes + i * HELD_BYTES,
                        .size_bytes = h->size_bytes,
                        .from = &h->from,
                };
        }
        return given;
}

static void overtake(struct faults *f)
{
        for (size_t i = 0; f->n_held > 0 && i < HELD_MAX; i++)
                f->held[i].overtaken -= f->held[i].state == HELD_WAITING && f->held[i].overtaken > 0;
}

static size_t judge(struct faults *f, const struct datagram *d, struct datagram *out)
{
        uint32_t overtaken;

        switch (fault_decide(&f->fault, &overtaken)) {
        case FAULT_LOSE:
                return 0;
        case FAULT_HOLD:
                if (hold(f, d, overtaken))
                        return 0;
                break;
        case FAULT_DOUBLE:
                out[1] = *d;
                out[0] = *d;
                return 2;
        case FAULT_PASS:
                break;
        }
        out[0] = *d;
        return 1;
}

int faults_receive(struct faults *f, struct endpoint *e, struct datagram *out, size_t n)
{
        size_t given;
        int got;

        if (!f)
                return endpoint_receive(e, out, n);
        assert(n >= 4);
        for (size_t i = 0; i < HELD_MAX; i++)
                f->held[i].state = f->held[i].state == HELD_WAITING ? HELD_WAITING : HELD_FREE;
        given = release(f, out, n / 4, false);
        /* Continues if a whole batch was lost or held: 0 must mean that the endpoint is empty. */
        do {
                got = endpoint_receive(e, f->in, MIN((n - given) / 2, ARRAY_SIZE(f->in)));
                if (got < 0)
                        return got;
                if (got == 0)
                        given += release(f, out + given, n - given, true);
                for (int i = 0; i < got; i++) {
                        overtake(f);
                        given += judge(f, &f->in[i], out + given);
                }
        } while (given == 0 && got > 0);
        return (int)given;
}
