/* evb level2: replaces a level-2 farm. It receives undecided events from the DFM, optionally collects some of
 * their fragments (level2_regions.c), and decides each event at random after a delay. The same seed gives the
 * same decisions. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

#include "base/log.h"
#include "base/quantity.h"
#include "base/random.h"
#include "base/util.h"
#include "cmd/commands.h"
#include "cmd/level2_regions.h"
#include "net/tcp.h"
#include "protocol/message.h"
#include "sys/loop.h"

#define STAGING_BYTES (64u << 10)
/* Maximum number of events that wait here for their decision; all other events wait in the DFM. */
#define PENDING_MAX 65536u
/* If the client waits for the DFM longer than this, it is logged. */
#define SILENT_NS NS_PER_S

struct pending {
        uint64_t event, due_ns;
        uint32_t l2_info;
        bool incomplete; /* fragments are missing */
};

struct farm {
        struct options common;
        const char *connect, *pattern_text;
        struct regions_config regions_config;
        struct regions *regions; /* NULL: none */
        double accept;
        uint64_t latency_ns, seed, run, n_regions;
        struct net_address to;
        struct loop *loop;
        struct loop_io io; /* fd -1: not connected */
        bool ready, blocked;
        struct tcp_backoff backoff;
        uint64_t again_ns;   /* when to connect again */
        uint64_t waiting_ns; /* since when this client waits for the DFM's Welcome */
        int why;             /* negative errno of the last attempt; 0: no answer yet */
        bool complained;
        struct tcp_reader reader;
        uint64_t cookie, dfm; /* of the run, from Welcome; 0: not joined */
        uint32_t next;        /* number of the next Decision */
        enum run_state state;
        int refused;             /* exit status after a refusal; 0: none */
        struct pending *pending; /* a ring, in the order of due_ns */
        uint32_t head, tail;
        size_t out_begin, out_end;
        uint8_t out[MESSAGE_LEVEL2_BYTES_MAX];
        struct message message; /* scratch */
        uint64_t connections, listed, accepted, rejected, unused, unused_before;
};

static void is_ready(void *ctx, uint32_t events)
{
        struct farm *f = ctx;

        f->ready |= (events & (EPOLLIN | EPOLLHUP | EPOLLERR)) != 0;
        if (events & EPOLLOUT)
                f->blocked = false;
}

/* The DFM lists undecided events again on the next connection. */
static void disconnect(struct farm *f, uint64_t now_ns, int why)
{
        if (f->dfm != 0)
                f->waiting_ns = now_ns;
        f->why = why;
        loop_remove(f->loop, &f->io);
        close(f->io.fd);
        tcp_reader_fini(&f->reader);
        f->io.fd = -1;
        f->cookie = f->dfm = 0;
        f->head = f->tail = 0;
        if (f->regions)
                regions_follow(f->regions, 0);
        f->unused_before = f->unused;
        f->again_ns = now_ns + tcp_backoff_next_ns(&f->backoff);
}

static void begin_message(struct farm *f, uint32_t type, uint32_t transaction)
{
        memset(&f->message, 0, sizeof f->message);
        f->message.header = (struct message_header){
                .cookie = f->cookie,
                .sender_role = ROLE_LEVEL2,
                .type = type,
                .transaction = transaction,
        };
        f->message.dfm = f->dfm;
}

static void queue_message(struct farm *f)
{
        f->out_begin = 0;
        f->out_end = message_encode(&f->message, f->out, sizeof f->out);
}

static void begin_connection(struct farm *f, uint64_t now_ns)
{
        int fd = tcp_connect(NULL, &f->to, 0);

        f->again_ns = now_ns + tcp_backoff_next_ns(&f->backoff);
        if (fd < 0) {
                f->why = fd;
                return;
        }
        tcp_notice_silence(fd);
        f->io = (struct loop_io){.fd = fd, .events = EPOLLIN | EPOLLOUT, .ready = is_ready, .ctx = f};
        f->ready = false;
        f->blocked = true;
        f->next = 0;
        begin_message(f, MESSAGE_JOIN, 0);
        f->message.join.incarnation = 1 + (uint64_t)getpid();
        f->message.join.run = (uint32_t)f->run;
        queue_message(f);
        if (tcp_reader_init(&f->reader, fd, STAGING_BYTES) < 0 || loop_add(f->loop, &f->io) < 0)
                disconnect(f, now_ns, -ENOMEM);
}

/* Logs, once per wait, that the client waits for the DFM. */
static void complain(struct farm *f, uint64_t now_ns)
{
        if (f->dfm != 0 || f->complained || now_ns - f->waiting_ns < SILENT_NS)
                return;
        f->complained = true;
        log_warning("waiting for a DFM with level2.listen at %s: %s", f->connect,
                    f->why == -EPIPE ? "it closed the connection"
                    : f->why != 0    ? strerror(-f->why)
                    : f->io.fd >= 0  ? "no answer yet"
                                     : "no connection yet");
}

/* ---- Messages from the DFM: the functions return 0, or a negative errno that ends the connection. ---- */

static int receive_welcome(struct farm *f, const struct message *m)
{
        if (m->welcome.verdict != WELCOME_OK) {
                log_error("the DFM refused this client: it makes run %u", m->welcome.run);
                f->refused = 1;
                return -ECONNREFUSED;
        }
        f->cookie = m->header.cookie;
        f->dfm = m->dfm;
        f->connections++;
        if (f->complained)
                log_warning("connected to the DFM of run %u at %s", m->welcome.run, f->connect);
        f->complained = false;
        if (f->regions)
                regions_follow(f->regions, f->cookie);
        tcp_backoff_reset(&f->backoff);
        return 0;
}

static void add_pending(struct farm *f, uint64_t now_ns, const struct region_result *result)
{
        f->pending[f->head++ % PENDING_MAX] =
                (struct pending){result->event, now_ns + f->latency_ns, result->check, result->incomplete};
}

static int receive_list(struct farm *f, uint64_t now_ns, const struct message *m)
{
        if (f->regions && !regions_are_known(f->regions)) {
                log_error("the DFM names no ROSs to request fragments from; set level2.regions in the "
                          "scenario");
                f->refused = 1;
                return -EPROTO;
        }
        f->listed += m->n;
        for (size_t k = 0; k < m->n; k++) {
                const struct undecided_entry *e = &m->undecided.entries[k];

                if (f->regions)
                        regions_add(f->regions, now_ns, e->event, (uint32_t)e->number, m->undecided.resets);
                else
                        add_pending(f, now_ns,
                                    &(struct region_result){.event = e->event, .check = (uint32_t)e->event});
        }
        return 0;
}

static int receive_message(struct farm *f, uint64_t now_ns, const struct message *m)
{
        if (m->header.sender_role != ROLE_DFM)
                return -EPROTO;
        switch (m->header.type) {
        case MESSAGE_WELCOME:
                return receive_welcome(f, m);
        case MESSAGE_UNDECIDED:
                return receive_list(f, now_ns, m);
        case MESSAGE_READOUTS:
                if (f->regions)
                        regions_receive_readouts(f->regions, now_ns, m);
                return 0;
        case MESSAGE_DECISION_ACK:
                f->state = (enum run_state)m->decision_ack.state;
                f->unused = f->unused_before + m->decision_ack.unused;
                return 0;
        }
        return -EPROTO;
}

static bool has_room(const struct farm *f)
{
        return f->head - f->tail <= PENDING_MAX - MESSAGE_ENTRIES_MAX - REGIONS_EVENTS_MAX &&
               (!f->regions || regions_has_room(f->regions));
}

static int receive_staged(struct farm *f, uint64_t now_ns)
{
        size_t n, size;
        int r = 0;

        while (r == 0 && has_room(f)) {
                const uint8_t *bytes = tcp_reader_bytes(&f->reader, &n);
                enum message_verdict v = message_decode_first(&f->message, bytes, n, &size);

                if (v != MESSAGE_OK)
                        return v == MESSAGE_SHORT ? 0 : -EPROTO;
                tcp_reader_consume(&f->reader, size);
                r = receive_message(f, now_ns, &f->message);
        }
        return r;
}

static int read_all(struct farm *f, uint64_t now_ns)
{
        int r = receive_staged(f, now_ns);

        while (r == 0 && f->ready && has_room(f)) {
                ssize_t got = tcp_reader_fill(&f->reader);

                f->ready = got > 0;
                r = got < 0 ? (int)got : receive_staged(f, now_ns);
        }
        return r;
}

/* ---- Decisions ---- */

static bool accepts(const struct farm *f, uint64_t event)
{
        return (double)(random_mix(random_mix(f->seed) ^ event) >> 11) * 0x1p-53 < f->accept;
}

/* Queues the events whose fragments were collected, for their decisions. */
static void collect(struct farm *f, uint64_t now_ns)
{
        struct region_result result;

        if (!f->regions)
                return;
        regions_turn(f->regions, now_ns);
        while (regions_next(f->regions, &result))
                add_pending(f, now_ns, &result);
}

/* Decides the events that are due. An event with missing fragments is accepted, so that level 2 does not lose
 * the event. False: no event is due. */
static bool decide(struct farm *f, uint64_t now_ns)
{
        struct message *m = &f->message;

        begin_message(f, MESSAGE_DECISION, f->next);
        for (; f->tail != f->head && m->n < MESSAGE_ENTRIES_MAX; f->tail++) {
                const struct pending *p = &f->pending[f->tail % PENDING_MAX];
                bool accepted = p->incomplete || accepts(f, p->event);

                if (p->due_ns > now_ns)
                        break;
                f->accepted += accepted;
                f->rejected += !accepted;
                m->decision.entries[m->n++] = (struct decision_entry){
                        .event = p->event,
                        .verdict = accepted ? DECISION_ACCEPT : DECISION_REJECT,
                        .stream = accepted,
                        .l2_info = p->l2_info,
                };
        }
        if (m->n == 0)
                return false;
        f->next++;
        queue_message(f);
        return true;
}

static int write_all(struct farm *f, uint64_t now_ns)
{
        while (!f->blocked) {
                struct iovec rest = {f->out + f->out_begin, f->out_end - f->out_begin};
                ssize_t sent;

                if (f->out_begin == f->out_end && (f->dfm == 0 || !decide(f, now_ns)))
                        break;
                rest = (struct iovec){f->out + f->out_begin, f->out_end - f->out_begin};
                sent = tcp_send(f->io.fd, &rest, 1);
                if (sent < 0 && sent != -EAGAIN)
                        return (int)sent;
                f->out_begin += sent > 0 ? (size_t)sent : 0;
                f->blocked = f->out_begin < f->out_end;
        }
        return loop_modify(f->loop, &f->io, (has_room(f) ? EPOLLIN : 0) | (f->blocked ? EPOLLOUT : 0));
}

static void turn(struct farm *f, uint64_t now_ns)
{
        int r;

        complain(f, now_ns);
        if (f->io.fd < 0 && now_ns >= f->again_ns)
                begin_connection(f, now_ns);
        if (f->io.fd < 0)
                return;
        r = read_all(f, now_ns);
        collect(f, now_ns);
        if (r == 0)
                r = write_all(f, now_ns);
        if (r < 0)
                disconnect(f, now_ns, r);
}

static uint64_t deadline_ns(const struct farm *f)
{
        uint64_t complaint_ns = f->dfm == 0 && !f->complained ? f->waiting_ns + SILENT_NS : NEVER_NS;
        uint64_t deadline_ns = f->regions ? regions_deadline_ns(f->regions) : NEVER_NS;

        if (f->io.fd < 0)
                return MIN(f->again_ns, complaint_ns);
        if (f->dfm == 0)
                return complaint_ns;
        /* Staged messages waited for room. */
        if (f->ready && has_room(f))
                return 0;
        if (f->tail != f->head && !f->blocked)
                deadline_ns = MIN(deadline_ns, f->pending[f->tail % PENDING_MAX].due_ns);
        return deadline_ns;
}

static int run(struct farm *f)
{
        int r = 0;

        f->waiting_ns = clock_now_ns();
        while (r >= 0 && !f->refused && f->state != RUN_ENDED && loop_signals(f->loop) == 0) {
                turn(f, clock_now_ns());
                r = loop_wait(f->loop, f->state == RUN_ENDED || f->refused ? 0 : deadline_ns(f));
        }
        if (r < 0)
                return log_error_errno(r, "waiting for the DFM: %m");
        return 0;
}

/* ---- Command line ---- */

static int parse(struct farm *f)
{
        if (!f->connect) {
                fprintf(stderr, "evb level2: missing --connect HOST:PORT; see `evb level2 --help`\n");
                return 2;
        }
        if (net_address_parse_with_port(&f->to, f->connect) < 0)
                return options_refuse("level2", "connect", f->connect,
                                      "ADDRESS:PORT with a numeric IPv4 or [IPv6] address");
        f->regions_config.n_ros = (uint32_t)f->n_regions;
        f->regions_config.verify = f->pattern_text;
        return OPTIONS_GO_ON;
}

static int report(const struct farm *f, int status)
{
        if (f->common.json)
                return options_write_json(
                        &f->common,
                        json_pack("{s:I, s:I, s:I, s:I, s:I, s:b, s:o}", "connections",
                                  (json_int_t)f->connections, "events", (json_int_t)f->listed, "accepted",
                                  (json_int_t)f->accepted, "rejected", (json_int_t)f->rejected, "unused",
                                  (json_int_t)f->unused, "run_ended", f->state == RUN_ENDED, "regions",
                                  regions_describe(f->regions)),
                        status);
        printf("%" PRIu64 " events: %" PRIu64 " accepted, %" PRIu64 " rejected; %" PRIu64
               " decisions had no effect; %" PRIu64 " connections\n",
               f->listed, f->accepted, f->rejected, f->unused, f->connections);
        regions_print(f->regions);
        return status;
}

static int decide_events(struct farm *f)
{
        int r, status;

        f->io.fd = -1;
        tcp_backoff_init(&f->backoff, (uint64_t)getpid());
        f->pending = calloc(PENDING_MAX, sizeof *f->pending);
        r = f->pending ? loop_new(&f->loop) : -ENOMEM;
        if (r >= 0 && f->regions_config.n_ros > 0)
                r = regions_new(&f->regions, f->loop, &f->regions_config);
        if (r >= 0)
                r = loop_catch_signals(f->loop);
        if (r >= 0)
                r = run(f);
        else
                log_error_errno(r, "cannot start: %m");
        if (f->io.fd >= 0)
                disconnect(f, 0, 0);
        free(f->pending);
        status = r < 0 ? 1 : f->refused;
        if (status == 0 && regions_corrupt(f->regions) > 0) {
                log_error("%" PRIu64 " fragments had wrong content", regions_corrupt(f->regions));
                status = 1;
        }
        if (status == 0 && f->connections == 0) {
                log_error("no DFM was at %s", f->connect);
                status = 1;
        }
        status = report(f, status);
        regions_free(f->regions);
        loop_free(f->loop);
        return status;
}

int cmd_level2(int argc, char **argv)
{
        static const struct command command = {
                "level2", cmd_level2, "",
                "Stands in for a level-2 farm: accepts or rejects the events of a DFM, until its run ends.",
                OPTION_JSON};
        _cleanup_free_ struct farm *f = calloc(1, sizeof *f);
        int r;

        if (!f)
                return log_error_errno(ENOMEM, "level2: %m") < 0;
        f->accept = 0.1;
        f->latency_ns = 5 * NS_PER_MS;
        f->seed = 1;
        f->regions_config.timeout_ns = 500 * NS_PER_MS;
        const struct option_entry own[] = {
                {"connect", "HOST:PORT", "address of the DFM, and port of its level2.listen", &f->connect},
                {"fraction", "FRACTION", "fraction of events to accept (default: 0.1)", .was = "accept",
                 OPTION_FRACTION(&f->accept, "a fraction from 0 to 1")},
                {"latency", "TIME", "time from receiving an event to its decision (default: 5ms)",
                 OPTION_NUMBER(quantity_parse_time, &f->latency_ns, 0, UINT64_MAX, "a time, e.g. 5ms")},
                {"seed", "N", "seed of the choice (default: 1)",
                 OPTION_NUMBER(quantity_parse_count, &f->seed, 0, UINT64_MAX, "a number")},
                {"regions", "N", "fragments of each event to request before it is decided (default: 0)",
                 OPTION_NUMBER(quantity_parse_count, &f->n_regions, 0, REGIONS_ROSS_MAX,
                               "a number of ROSs from 0 to 32")},
                {"wait", "TIME", "how long to wait for these fragments (default: 500ms)",
                 .was = "regions-timeout",
                 OPTION_NUMBER(quantity_parse_time, &f->regions_config.timeout_ns, 1, UINT64_MAX,
                               "a time, e.g. 500ms")},
                {"pattern", "SEED", "check that the fragments have the pattern of this run.seed",
                 &f->pattern_text,
                 OPTION_NUMBER(quantity_parse_count, &f->regions_config.pattern_seed, 0, UINT64_MAX,
                               "the run.seed of the scenario")},
                {"run", "N", "run number of the DFM (default: 0, any)",
                 OPTION_NUMBER(quantity_parse_count, &f->run, 0, UINT32_MAX, "the number of a run, or 0")},
        };

        r = options_parse(&f->common, &command, own, ARRAY_SIZE(own), 0, argc, argv);
        if (r == OPTIONS_GO_ON)
                r = parse(f);
        return r == OPTIONS_GO_ON ? decide_events(f) : r;
}
