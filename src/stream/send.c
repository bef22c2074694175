/* The sending end of a stream: connects to the receiver, offers the stream, and follows it to its end. The
 * threads in send_threads.c move the data. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>

#include "control_connection.h"
#include "base/log.h"
#include "base/util.h"
#include "sys/loop.h"
#include "sys/memory.h"
#include "end_figures.h"
#include "stream/rules/stream_report.h"
#include "rules/setup.h"
#include "send_threads.h"

#define TICK_NS NS_PER_S
/* Time within which a receiver that dialled must answer the offer. */
#define ANSWER_NS (5 * NS_PER_S)
/* If there is no progress for this time, the packets in flight are lost; the next packet shows this to the
 * receiver. */
#define STALL_NS (200 * NS_PER_MS)
/* Maximum time for the kernel to send its packets before the end is announced. A shaped device may need some
 * time. */
#define UNSENT_WAIT_NS (10 * NS_PER_S)
#define UNSENT_LOOK_NS (5 * NS_PER_MS)

enum send_state {
        SEND_CONNECTING, /* until all receivers have connected */
        SEND_OFFERED,    /* until the receiver, which dialled or has a copy to resume, accepts the offer */
        SEND_RUNNING,
        SEND_DRAINING, /* the threads have ended; the kernel still has packets */
        SEND_ENDING,   /* until the reports of the receivers have arrived */
        SEND_AGAIN,    /* packets that the receiver misses; then SEND_ENDING again */
        SEND_DONE,
};

/* A receiver; only a group has several. */
struct peer {
        struct sender *sender;
        struct net_address address;
        struct stream_control control;
        struct json_connection *connection; /* admitted; NULL: none */
        uint64_t lost; /* number of lost packets, as the receiver reports; UINT64_MAX: unknown */
        json_t *report;
};

struct sender {
        const struct stream_send_config *config;
        struct peer peers[STREAM_RECEIVERS_MAX];
        size_t n_peers, n_ready;
        struct loop *loop;
        struct stream_source *source;
        struct endpoint *endpoint;
        struct stream_offer offer;
        struct send_threads threads;
        struct send_again again;
        uint64_t compared; /* the receiver has compared its copy up to this packet */
        struct loop_io done_io;
        enum send_state state;
        struct reason reason;
        unsigned signals_seen;
        uint64_t begin_ns, tick_ns, state_ns;
        /* For a stream that follows its receiver: how many packets may be in flight, one more than the
         * highest packet that has arrived, the end of the receiver's ring, and when the receiver reported
         * these values. */
        uint64_t window, seen, room, progress_ns;
        struct figures_begin begin;
        json_t *own; /* own part of the report */
};

static void enter(struct sender *s, enum send_state state)
{
        s->state = state;
        s->state_ns = clock_now_ns();
}

static const char *peer_text(const struct peer *p)
{
        static char text[NET_ADDRESS_TEXT_MAX];

        return net_address_format(&p->address, text);
}

static void finish(struct sender *s)
{
        enter(s, SEND_DONE);
}

/* Sends a message to each connected receiver. */
static void send_to_all(struct sender *s, json_t *message)
{
        for (size_t i = 0; i < s->n_peers; i++) {
                if (s->peers[i].connection)
                        json_connection_send(s->peers[i].connection, json_incref(message));
        }
        json_decref(message);
}

/* Ends once each receiver has reported or disconnected. */
static void finish_if_reported(struct sender *s)
{
        for (size_t i = 0; i < s->n_peers; i++) {
                if (s->peers[i].connection && !s->peers[i].report)
                        return;
        }
        finish(s);
}

/* The threads have ended, and the kernel has sent all packets that it can. */
static void announce_end(struct sender *s)
{
        const uint64_t first = s->threads.rule.first;

        s->own = figures_of_sender(&s->threads, &s->begin, s->reason.failed, s->reason.text);
        enter(s, SEND_ENDING);
        send_to_all(s, json_pack("{s:s, s:I, s:I, s:O}", "type", "end", "packets",
                                 (json_int_t)first + (json_int_t)atomic_load(&s->threads.packets), "bytes",
                                 (json_int_t)first * s->offer.rule.payload_bytes +
                                         (json_int_t)atomic_load(&s->threads.bytes),
                                 "report", s->own));
        finish_if_reported(s);
}

static void threads_ended(void *ctx, uint32_t events)
{
        struct sender *s = ctx;
        const bool stopped = atomic_load(&s->threads.stop);

        (void)events;
        loop_remove(s->loop, &s->done_io);
        s->done_io.fd = -1;
        send_threads_abort(&s->threads);
        send_threads_join(&s->threads);
        if (s->threads.cut_bytes > 0 && !stopped)
                reason_set(&s->reason, true,
                           "%s: the recording ends within a frame: the last %llu bytes are not sent, as a "
                           "frame has %u",
                           s->config->input, (unsigned long long)s->threads.cut_bytes,
                           s->offer.plan.frame_bytes);
        if (s->threads.input_error < 0)
                reason_set(&s->reason, true, "%s: cannot read: %s", s->config->input,
                           strerror(-s->threads.input_error));
        if (s->threads.network_error < 0)
                reason_set(&s->reason, true, "cannot send: %s", strerror(-s->threads.network_error));
        enter(s, SEND_DRAINING);
}

/* This receiver rejected the stream. If the sender listens, it waits for another receiver. */
static void give_up(struct peer *p, struct json_connection *c, const char *why)
{
        struct sender *s = p->sender;

        if (!s->config->listens) {
                reason_set(&s->reason, true, "%s refuses the stream: %s", peer_text(p), why);
                finish(s);
                return;
        }
        log_warning("%s refuses the stream: %s", peer_text(p), why);
        stream_control_refuse(c, "the sender waits for another receiver");
        p->connection = NULL;
        enter(s, SEND_CONNECTING);
}

static uint64_t count_of(const json_t *message, const char *name)
{
        json_int_t n = json_integer_value(json_object_get(message, name));

        return n > 0 ? (uint64_t)n : 0;
}

/* Permits more packets once the receiver's ring has room for them, and its socket has room for the packets in
 * flight. */
static void follow_receiver(struct sender *s, const json_t *message)
{
        const uint64_t first = s->threads.rule.first;

        s->seen = MAX(s->seen, MAX(count_of(message, "seen"), first) - first);
        s->room = MAX(s->room, MAX(count_of(message, "room"), first) - first);
        s->progress_ns = clock_now_ns();
        send_threads_permit(&s->threads, MIN(s->seen + s->window, s->room));
}

/* Sets how many packets may leave at the beginning. */
static void start_following(struct sender *s, const struct peer *p, const json_t *message)
{
        s->window = s->offer.follows ? count_of(message, "window") : 0;
        s->threads.follows = s->window > 0;
        if (s->window > 0)
                follow_receiver(s, message);
        else if (s->offer.follows)
                log_warning("%s does not report its progress, so packets may be lost; use --rate",
                            peer_text(p));
}

/* Directs all packets to this port of the receiver, or to the group. */
static int aim(struct sender *s, const struct peer *p, uint16_t port)
{
        if (s->offer.raw.grouped)
                return 0;
        return s->offer.raw.tcp ? raw_send_connect(&s->threads, &p->address, port)
                                : send_setup_aim(s->endpoint, &p->address, port);
}

/* Starts the stream when all receivers are ready. */
static int begin(struct sender *s)
{
        int r;

        figures_start(&s->begin, s->endpoint, &s->endpoint->local);
        r = send_threads_start(&s->threads);
        if (r < 0)
                return r;
        s->done_io = (struct loop_io){
                .fd = s->threads.done_fd, .events = EPOLLIN, .ready = threads_ended, .ctx = s};
        r = loop_add(s->loop, &s->done_io);
        if (r < 0)
                return r;
        enter(s, SEND_RUNNING);
        s->begin_ns = s->state_ns;
        s->tick_ns = s->begin_ns + TICK_NS;
        return 0;
}

/* A receiver with a copy that was interrupted compares it with the file before it accepts the offer. */
static void receive_compare(struct peer *p, struct json_connection *c, const json_t *message)
{
        struct sender *s = p->sender;

        stream_control_admit(c);
        p->connection = c;
        enter(s, SEND_OFFERED);
        json_connection_send(c, send_again_digests(&s->offer, s->source, message, &s->compared));
}

/* Handles a receiver's acceptance of the offer. */
static void accept_ready(struct peer *p, struct json_connection *c, const json_t *message)
{
        json_int_t port = json_integer_value(json_object_get(message, "udp_port"));
        struct sender *s = p->sender;
        const uint64_t first = count_of(message, "first");
        int r;

        if (port <= 0 || port > UINT16_MAX) {
                give_up(p, c, "its answer has no valid UDP port");
                return;
        }
        if (first > s->compared || first % packet_parts(&s->offer.rule) > 0) {
                give_up(p, c, "it resumes where it has not compared its copy");
                return;
        }
        stream_control_admit(c);
        p->connection = c;
        s->threads.rule.first = first;
        r = first > 0 ? stream_source_skip(s->source, first * s->offer.rule.payload_bytes) : 0;
        if (r >= 0)
                r = aim(s, p, (uint16_t)port);
        if (r >= 0)
                start_following(s, p, message);
        if (r >= 0 && ++s->n_ready == s->n_peers)
                r = begin(s);
        if (r < 0) {
                reason_set(&s->reason, true, "cannot start the stream: %s", strerror(-r));
                finish(s);
        }
}

static void receive_stop(struct sender *s, const json_t *message)
{
        char text[JSON_CONNECTION_TEXT_MAX_BYTES];

        json_connection_text(json_object_get(message, "reason"), text, sizeof text);
        /* The receiver's report states whether it failed. */
        reason_set(&s->reason, false, "the receiver stopped: %s", text);
        if (s->state == SEND_RUNNING)
                send_threads_abort(&s->threads);
}

/* A receiver has dialled: offers the stream to it. */
static void receive_hello(struct peer *p, struct json_connection *c, const json_t *message)
{
        struct sender *s = p->sender;
        struct net_address local;

        if (p->connection) {
                stream_control_refuse(c, "it is busy with a stream to another receiver");
                return;
        }
        if (json_integer_value(json_object_get(message, "protocol")) != SETUP_PROTOCOL) {
                stream_control_refuse(c, "the sender (evb " EVB_VERSION
                                         ") has another version of the protocol; use the "
                                         "same version of evb on both ends");
                return;
        }
        /* The answer will contain the port; until then, any port leads to the same path. */
        if (stream_control_addresses(c, 1, &p->address, &local) < 0)
                return;
        s->compared = 0;
        s->endpoint = endpoint_free(s->endpoint);
        if (send_setup_path(s->config, &local, &p->address, &s->endpoint, &s->offer, &s->threads) != 0) {
                /* Another receiver may use another path. */
                stream_control_refuse(c, "the stream does not fit the path; the sender says why");
                return;
        }
        stream_control_admit(c);
        p->connection = c;
        json_connection_send(c, setup_encode(&s->offer));
        enter(s, SEND_OFFERED);
}

static void receive_report(struct peer *p, const json_t *message)
{
        json_t *report = json_object_get(message, "report");
        struct sender *s = p->sender;
        uint64_t packets = atomic_load(&s->threads.packets);

        if (json_is_object(report) &&
            json_integer_value(json_object_get(report, "packets")) <= (json_int_t)packets) {
                json_decref(p->report);
                p->report = json_incref(report);
                finish_if_reported(s);
                return;
        }
        if (!json_is_object(report))
                reason_set(&s->reason, true, "%s: invalid report of the receiver; expected a JSON object",
                           peer_text(p));
        else
                reason_set(&s->reason, true,
                           "%s: the receiver reports more than the %llu packets that were sent", peer_text(p),
                           (unsigned long long)packets);
        finish(s);
}

/* Answers a request for missing packets. Without a reason, all of them have been sent again. */
static void finish_again(struct sender *s, const char *reason)
{
        enter(s, SEND_ENDING);
        send_to_all(s, json_pack("{s:s, s:I, s:s*}", "type", "repaired", "packets",
                                 (json_int_t)s->again.packets, "reason", reason));
}

static void receive_gaps(struct sender *s, const json_t *message)
{
        int r = s->signals_seen > 0 ? -ECANCELED
                : !s->offer.repairs ? -EOPNOTSUPP
                                    : send_again_begin(&s->again, &s->threads, message);

        if (r >= 0)
                enter(s, SEND_AGAIN);
        else
                finish_again(s, r == -ECANCELED ? "interrupted"
                                : r == -EBADMSG ? "the list of missing packets is invalid"
                                : r == -EDQUOT  ? "too many packets were requested again"
                                                : "this input cannot be read again");
}

/* Sends what the receiver misses. Returns when to call this function again. */
static uint64_t take_turn_again(struct sender *s, uint64_t now_ns)
{
        char text[ERROR_TEXT_MAX];
        uint64_t next_ns = now_ns + UNSENT_LOOK_NS;
        int r = send_again_turn(&s->again, &s->threads, &next_ns);

        if (r < 0) {
                snprintf(text, sizeof text, "%s: cannot read it again: %s", s->config->input,
                         r == -ENODATA  ? "it has become shorter"
                         : r == -ESTALE ? "it was changed"
                                        : strerror(-r));
                log_warning("%s", text);
                finish_again(s, text);
        } else if (r > 0 &&
                   (endpoint_unsent_bytes(s->endpoint) == 0 || now_ns >= s->state_ns + UNSENT_WAIT_NS))
                finish_again(s, NULL);
        return MIN(next_ns, s->tick_ns);
}

static bool awaits_answer(const struct sender *s)
{
        return s->state == SEND_OFFERED || (s->state == SEND_CONNECTING && !s->config->listens);
}

/* Whether this receiver has not accepted the offer yet. */
static bool is_undecided(const struct peer *p)
{
        return awaits_answer(p->sender) && (p->sender->state == SEND_OFFERED || !p->connection);
}

static void received(void *ctx, struct json_connection *c, const json_t *message)
{
        const char *type = json_string_value(json_object_get(message, "type")) ?: "";
        char text[JSON_CONNECTION_TEXT_MAX_BYTES];
        struct peer *p = ctx;
        struct sender *s = p->sender;

        if (s->config->listens && c != p->connection) {
                if (strcmp(type, "hello") == 0)
                        receive_hello(p, c, message);
                else
                        stream_control_refuse(c, "a receiver says hello first");
                return;
        }
        if (strcmp(type, "refused") == 0 && awaits_answer(s)) {
                json_connection_text(json_object_get(message, "reason"), text, sizeof text);
                give_up(p, c, text);
        } else if (strcmp(type, "compare") == 0 && is_undecided(p) && s->offer.resumes)
                receive_compare(p, c, message);
        else if (strcmp(type, "ready") == 0 && is_undecided(p))
                accept_ready(p, c, message);
        else if (strcmp(type, "statistics") == 0)
                p->lost = (uint64_t)json_integer_value(json_object_get(message, "lost"));
        else if (strcmp(type, "progress") == 0 && s->state == SEND_RUNNING && s->window > 0)
                follow_receiver(s, message);
        else if (strcmp(type, "stop") == 0 && p->connection)
                receive_stop(s, message);
        else if (strcmp(type, "gaps") == 0 && s->state == SEND_ENDING && p->connection)
                receive_gaps(s, message);
        else if (strcmp(type, "report") == 0 && (s->state == SEND_ENDING || s->state == SEND_AGAIN))
                receive_report(p, message);
}

static void ended(void *ctx, struct json_connection *c, int error)
{
        struct peer *p = ctx;
        struct sender *s = p->sender;

        /* A receiver that has reported may disconnect before others of the group. */
        if (c != p->connection || p->report)
                return;
        p->connection = NULL;
        if (s->state == SEND_OFFERED && s->config->listens) {
                enter(s, SEND_CONNECTING);
                return;
        }
        reason_set(&s->reason, true, "%s: the receiver left: %s", peer_text(p),
                   stream_control_explain(error));
        if (s->state == SEND_RUNNING)
                send_threads_abort(&s->threads);
        else if (s->state == SEND_CONNECTING || s->state == SEND_OFFERED)
                finish(s);
        else if (s->state == SEND_ENDING || s->state == SEND_AGAIN)
                finish_if_reported(s);
}

static json_t *greet(void *ctx)
{
        const struct peer *p = ctx;

        return setup_encode(&p->sender->offer);
}

static void dial_failed(void *ctx, int error)
{
        struct peer *p = ctx;
        struct sender *s = p->sender;

        if (error == -EBADMSG)
                reason_set(&s->reason, true, "%s is not a receiver: it does not answer in JSON",
                           peer_text(p));
        else
                reason_set(&s->reason, true, "%s: cannot connect: %s", peer_text(p), strerror(-error));
        finish(s);
}

static void handle_signals(struct sender *s)
{
        unsigned n = loop_stops(s->loop);

        if (n == s->signals_seen)
                return;
        if (s->state == SEND_CONNECTING || s->state == SEND_OFFERED || n > 1) {
                s->reason.text[0] = '\0';
                reason_set(&s->reason, true, "interrupted");
                finish(s);
        } else if (s->state == SEND_RUNNING) {
                reason_set(&s->reason, false, "interrupted");
                send_threads_abort(&s->threads);
        } else if (s->state == SEND_AGAIN) {
                reason_set(&s->reason, false, "interrupted");
                finish_again(s, "interrupted");
        }
        s->signals_seen = n;
}

/* Returns the packets lost by all receivers. */
static uint64_t count_lost(const struct sender *s)
{
        uint64_t lost = s->config->without_control ? UINT64_MAX : 0;

        for (size_t i = 0; i < s->n_peers; i++)
                lost = s->peers[i].lost == UINT64_MAX || lost == UINT64_MAX ? UINT64_MAX
                                                                            : lost + s->peers[i].lost;
        return lost;
}

static void show_progress(struct sender *s, uint64_t now_ns, bool last)
{
        struct stream_progress p = {
                .stream = s->config->common.stream,
                .seconds = (double)(now_ns - s->begin_ns) / 1e9,
                .packets = atomic_load_explicit(&s->threads.packets, memory_order_relaxed),
                .bytes = atomic_load_explicit(&s->threads.bytes, memory_order_relaxed),
                .lost = count_lost(s),
        };

        p.ring_percent = slot_ring_percent(&s->threads.ring);
        if (s->config->common.progress)
                s->config->common.progress(&p, last);
}

static void tick(struct sender *s, uint64_t now_ns)
{
        s->tick_ns += TICK_NS;
        show_progress(s, now_ns, false);
        send_to_all(s, json_pack("{s:s, s:I, s:I}", "type", "statistics", "packets",
                                 (json_int_t)atomic_load(&s->threads.packets), "bytes",
                                 (json_int_t)atomic_load(&s->threads.bytes)));
}

/* If the last packets in flight are lost, the receiver has nothing to report, and the sender would wait for
 * ever. Returns when to call this function again. */
static uint64_t check_stall(struct sender *s, uint64_t now_ns)
{
        uint64_t sent = atomic_load(&s->threads.packets);

        if (s->window == 0)
                return NEVER_NS;
        if (now_ns < s->progress_ns + STALL_NS)
                return s->progress_ns + STALL_NS;
        s->progress_ns = now_ns;
        if (sent == atomic_load(&s->threads.permitted) && sent > s->seen && sent < s->room)
                send_threads_permit(&s->threads, sent + 1);
        return now_ns + STALL_NS;
}

/* When the stream must end, or when to look again: a raw stream has its whole duration, however late the
 * network thread begins. */
static uint64_t end_of_duration(const struct sender *s, uint64_t now_ns)
{
        uint64_t begin_ns =
                s->offer.rule.format == STREAM_RAW ? s->threads.raw.measure.begin_ns : s->begin_ns;

        if (s->config->duration_ns == 0)
                return NEVER_NS;
        return begin_ns > 0 ? begin_ns + s->config->duration_ns : now_ns + NS_PER_MS;
}

/* One turn while the stream runs. */
static uint64_t take_turn_running(struct sender *s, uint64_t now_ns)
{
        uint64_t end_ns = end_of_duration(s, now_ns),
                 sample_ns = s->offer.rule.format == STREAM_RAW && s->state == SEND_RUNNING
                                     ? raw_measure_sample(&s->threads.raw.measure, s->threads.network, now_ns)
                                     : NEVER_NS;

        if (now_ns >= s->tick_ns)
                tick(s, now_ns);
        if (s->state == SEND_RUNNING && now_ns >= end_ns)
                send_threads_abort(&s->threads);
        else if (s->state == SEND_RUNNING)
                return MIN(MIN(s->tick_ns, end_ns), MIN(check_stall(s, now_ns), sample_ns));
        if (s->state == SEND_AGAIN)
                return take_turn_again(s, now_ns);
        if (s->state != SEND_DRAINING)
                return s->tick_ns;
        if (endpoint_unsent_bytes(s->endpoint) == 0 || now_ns >= s->state_ns + UNSENT_WAIT_NS)
                announce_end(s);
        return now_ns + UNSENT_LOOK_NS;
}

/* Performs the actions that are due; returns when to call this function again. */
static uint64_t take_turn(struct sender *s, uint64_t now_ns)
{
        switch (s->state) {
        case SEND_OFFERED:
                /* A connection of ours ends if the receiver is silent. */
                if (!s->config->listens)
                        return NEVER_NS;
                if (now_ns >= s->state_ns + ANSWER_NS) {
                        stream_control_refuse(s->peers[0].connection, "the sender waited for an answer");
                        s->peers[0].connection = NULL;
                        enter(s, SEND_CONNECTING);
                }
                return s->state_ns + ANSWER_NS;
        case SEND_RUNNING:
        case SEND_DRAINING:
        case SEND_ENDING:
        case SEND_AGAIN:
                return take_turn_running(s, now_ns);
        case SEND_CONNECTING:
        case SEND_DONE:
                break;
        }
        return NEVER_NS;
}

static void follow(struct sender *s)
{
        uint64_t deadline_ns = 0, next_ns;
        int r;

        while (s->state != SEND_DONE) {
                r = loop_wait(s->loop, deadline_ns);
                if (r < 0) {
                        reason_set(&s->reason, true, "cannot wait for events: %s", strerror(-r));
                        break;
                }
                handle_signals(s);
                deadline_ns = NEVER_NS;
                for (size_t i = 0; i < s->n_peers; i++)
                        deadline_ns = MIN(deadline_ns,
                                          stream_control_turn(&s->peers[i].control, loop_now_ns(s->loop)));
                next_ns = take_turn(s, loop_now_ns(s->loop));
                deadline_ns = MIN(deadline_ns, next_ns);
        }
        if (s->begin_ns > 0)
                show_progress(s, clock_now_ns(), true);
}

/* Returns one report, or the reports of all receivers of a group. */
static json_t *merge_reports(const struct sender *s)
{
        json_t *all = json_array();

        if (s->n_peers <= 1) {
                json_decref(all);
                return report_merge(true, s->own, s->peers[0].report);
        }
        for (size_t i = 0; i < s->n_peers; i++)
                json_array_append_new(all, report_merge(true, s->own, s->peers[i].report));
        return stream_join_reports(all);
}

/* Logs what a receiver is missing. Returns whether the receiver has everything. */
static bool is_whole(const struct sender *s, const struct peer *p)
{
        json_int_t sent = (json_int_t)atomic_load(&s->threads.packets),
                   lost = sent -
                          MAX(json_integer_value(json_object_get(p->report, "packets")), (json_int_t)0),
                   corrupt = json_integer_value(json_object_get(p->report, "corrupt"));
        bool failed = json_is_true(json_object_get(p->report, "failed"));

        if (!p->report)
                return false;
        if (lost > 0 && s->n_peers > 1)
                log_error("%s misses %lld of %lld packets", peer_text(p), (long long)lost, (long long)sent);
        else if (lost > 0)
                log_error("the receiver misses %lld of %lld packets", (long long)lost, (long long)sent);
        if (corrupt > 0)
                log_error("%lld packets arrived corrupt", (long long)corrupt);
        if (!s->reason.failed && failed)
                log_error("%s", s->reason.text[0] ? s->reason.text : "the receiver failed");
        return lost <= 0 && corrupt <= 0 && !failed;
}

/* Logs what is missing, and returns the exit status. */
static int conclude(struct sender *s, json_t **ret)
{
        const struct stream_send_config *c = s->config;
        bool whole = true;

        if (s->reason.failed)
                log_error("%s", s->reason.text);
        if (s->begin_ns == 0)
                return 1;
        if (!s->own) {
                send_threads_abort(&s->threads);
                send_threads_join(&s->threads);
                s->own = figures_of_sender(&s->threads, &s->begin, s->reason.failed, s->reason.text);
        }
        figures_warn_sender(&s->threads, s->config->input);
        json_object_set_new(s->own, "sent_again", json_integer((json_int_t)s->again.packets));
        *ret = merge_reports(s);
        for (size_t i = 0; i < s->n_peers; i++)
                whole &= is_whole(s, &s->peers[i]);
        if (s->endpoint->counts.send_failed > 0)
                log_error("this machine's kernel refused %llu packet%s: %s",
                          (unsigned long long)s->endpoint->counts.send_failed,
                          s->endpoint->counts.send_failed == 1 ? "" : "s",
                          strerror(s->endpoint->counts.send_error));
        return s->reason.failed || !whole || (c->without_control && s->endpoint->counts.send_failed > 0);
}

static void sender_fini(struct sender *s)
{
        for (size_t i = 0; i < s->n_peers; i++)
                stream_control_close(&s->peers[i].control);
        send_threads_fini(&s->threads);
        endpoint_free(s->endpoint);
        stream_source_free(s->source);
        json_decref(s->own);
        for (size_t i = 0; i < s->n_peers; i++)
                json_decref(s->peers[i].report);
        loop_free(s->loop);
}

static int peer_init(struct sender *s, struct peer *p, const struct net_address *at)
{
        const struct stream_send_config *c = s->config;

        p->sender = s;
        p->address = *at;
        p->lost = UINT64_MAX;
        p->control.received = received;
        p->control.ended = ended;
        p->control.greet = greet;
        p->control.failed = dial_failed;
        p->control.ctx = p;
        p->control.key = c->common.has_key ? &c->common.key : NULL;
        if (c->listens)
                return stream_control_listen(&p->control, s->loop, at);
        stream_control_dial(&p->control, s->loop, at, c->wait_ns);
        return 0;
}

/* Prepares everything that is needed before the first connection. Logs errors, and returns the exit
 * status. */
static int sender_init(struct sender *s)
{
        const struct stream_send_config *c = s->config;
        int status, r;

        s->peers[0].address = c->at[0];
        status = send_setup_source(c, &s->source, &s->offer, &s->threads);
        if (status == 0 && !c->listens)
                status = send_setup_path(c, NULL, &c->at[0], &s->endpoint, &s->offer, &s->threads);
        if (status != 0)
                return status;
        r = loop_new(&s->loop);
        if (r >= 0)
                r = loop_catch_signals(s->loop);
        for (size_t i = 0; r >= 0 && !c->without_control && i < c->n_receivers; i++)
                r = peer_init(s, &s->peers[s->n_peers++], &c->at[i]);
        if (r >= 0 && c->without_control)
                r = begin(s);
        return r < 0 ? (log_error_errno(r, "%s: cannot start: %m", peer_text(&s->peers[0])), 1) : 0;
}

int stream_send(const struct stream_send_config *c, json_t **ret)
{
        /* Maps the struct, because the rings in it need cache-line alignment. */
        struct sender *s = memory_map(sizeof *s);
        int status;

        if (!s)
                return log_error_errno(ENOMEM, "%m"), 1;
        s->config = c;
        s->done_io.fd = -1;
        status = sender_init(s);
        if (status == 0) {
                follow(s);
                status = conclude(s, ret);
        }
        sender_fini(s);
        memory_unmap(s, sizeof *s);
        return status;
}
