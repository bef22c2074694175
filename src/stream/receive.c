/* The receiving end of a stream: waits for a sender, follows its stream to the end, and reports. The threads
 * in receive_threads.c move the data; control_connection.c distinguishes the sender from other clients that
 * connect. */
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
#include "receive_threads.h"
#include "stream/rules/stream_report.h"
#include "rules/setup.h"

#define TICK_NS NS_PER_S
/* Time that a sender may take to announce the end after a request to stop. */
#define STOP_WAIT_NS (15 * NS_PER_S)
/* Time that a sender may take to read the report. */
#define CLOSE_WAIT_NS (5 * NS_PER_S)
/* Time after the end of a round of repair within which its last packets arrive. */
#define ROUND_QUIET_NS (100 * NS_PER_MS)
/* Time within which a sender states that a round is over, after all packets have arrived. Its answer has the
 * number of packets for the report. */
#define ANSWER_WAIT_NS (15 * NS_PER_S)
/* Without control, checks for the end of the stream come this often. */
#define END_LOOK_NS (20 * NS_PER_MS)
/* Without control, at most this number of datagrams is examined in one turn before the stream begins. */
#define EXAMINED_MAX 64
/* Held packets of injected faults are looked at this often. */
#define HELD_LOOK_NS NS_PER_MS

enum receive_state {
        RECEIVE_WAITING,   /* until a sender connects */
        RECEIVE_COMPARING, /* the copy to resume with the sender's file */
        RECEIVE_RUNNING,
        RECEIVE_ENDING,    /* the end was announced, or the sender has disconnected, so the threads finish */
        RECEIVE_REPAIRING, /* the sender sends missing packets again */
        RECEIVE_CLOSING,   /* the report was sent, and the sender closes the connection */
        RECEIVE_DONE,
};

struct receiver {
        const struct stream_receive_config *config;
        struct loop *loop;
        struct stream_control control;
        struct json_connection *connection; /* the sender's, in `control`; NULL: none */
        struct stream_offer offer;
        uint64_t copy_bytes; /* size of the file to resume */
        struct resume resume;
        struct receive_threads threads;
        struct loop_io done_io;
        /* Repair: the socket; when it began and must end; the missing packets when the present round is
         * complete; whether the sender has answered, and the time of the last missing packet or answer. */
        struct loop_io packets_io; /* also without control, until the stream begins */
        uint64_t unclear, early;   /* datagrams before a stream without control that are not VDIF, or early */
        int64_t seen_s;            /* time of the latest of these; 0: none yet */
        bool warned_unfit;
        uint64_t repair_begin_ns, repair_end_ns, round_left, round_ns, rounds;
        bool round_answered;
        enum receive_state state;
        bool stopped;
        struct reason reason;
        uint16_t data_port;
        char sender[NET_ADDRESS_TEXT_MAX];
        unsigned signals_seen;
        uint64_t begin_ns, tick_ns, deadline_ns;
        struct figures_begin begin;
        json_t *own, *theirs; /* both reports */
};

static const char *peer_text(const struct receiver *v)
{
        static char text[NET_ADDRESS_TEXT_MAX];

        return net_address_format(&v->config->at, text);
}

/* Asks the sender to stop. The sender still has to announce how much it sent. */
static void ask_to_stop(struct receiver *v, const char *reason)
{
        v->stopped = true;
        v->deadline_ns = clock_now_ns() + STOP_WAIT_NS;
        json_connection_send(v->connection, json_pack("{s:s, s:s}", "type", "stop", "reason", reason));
}

/* The output is as complete as it can be, or has failed: makes the report, and sends it. */
static void send_report(struct receiver *v)
{
        const struct receive_threads *t = &v->threads;

        if (t->holes > t->gaps.first_repaired)
                reason_set(&v->reason, true, "%llu packets of the resumed copy are missing",
                           (unsigned long long)(t->holes - t->gaps.first_repaired));
        v->own = figures_of_receiver(&v->threads, &v->begin, v->reason.failed, v->reason.text);
        json_object_set_new(v->own, "strangers", json_integer((json_int_t)v->control.foreign_senders));
        if (t->first > 0)
                json_object_set_new(v->own, "resumed_bytes",
                                    json_integer((json_int_t)t->first * t->rule.payload_bytes));
        if (v->rounds > 0) {
                json_object_set_new(v->own, "repair_rounds", json_integer((json_int_t)v->rounds));
                json_object_set_new(v->own, "repair_seconds",
                                    json_real((double)(clock_now_ns() - v->repair_begin_ns) / 1e9));
        }
        v->state = v->connection ? RECEIVE_CLOSING : RECEIVE_DONE;
        v->deadline_ns = clock_now_ns() + CLOSE_WAIT_NS;
        if (v->connection)
                json_connection_send(v->connection,
                                     json_pack("{s:s, s:O}", "type", "report", "report", v->own));
}

/* Requests as many missing packets as the socket's buffer holds. */
static void begin_round(struct receiver *v)
{
        struct gaps *g = &v->threads.gaps;
        uint64_t n;
        json_t *ranges = gaps_encode(g, receive_threads_window(&v->threads), &n);

        v->rounds++;
        v->round_left = g->left - n;
        v->round_answered = false;
        json_connection_send(v->connection, json_pack("{s:s, s:o}", "type", "gaps", "ranges", ranges));
}

/* Makes the output durable again, then threads_ended() sends the report. */
static void end_repair(struct receiver *v)
{
        struct receive_threads *t = &v->threads;
        int r = t->output_error.code;

        loop_remove(v->loop, &v->packets_io);
        v->state = RECEIVE_ENDING;
        v->done_io.fd = t->done_fd;
        if (r >= 0)
                r = loop_add(v->loop, &v->done_io);
        if (r >= 0)
                r = receive_threads_finish(t);
        if (r >= 0)
                return;
        reason_set_error(&v->reason, &t->output_error);
        reason_set(&v->reason, true, "cannot finish the output: %s", strerror(-r));
        send_report(v);
}

/* Packets that were sent again have arrived. */
static void receive_again(void *ctx, uint32_t events)
{
        struct receiver *v = ctx;
        const uint64_t left = v->threads.gaps.left;
        int n = receive_threads_repair(&v->threads);

        (void)events;
        /* Datagrams of others must not delay the next round. */
        if (v->threads.gaps.left < left)
                v->round_ns = clock_now_ns();
        if (n < 0 && v->threads.output_error.code == 0)
                reason_set(&v->reason, true, "cannot receive: %s", strerror(-n));
        if (n < 0)
                end_repair(v);
}

static bool is_count(const json_t *value)
{
        return json_is_integer(value) && json_integer_value(value) >= 0;
}

/* The sender has sent what was requested, or states why it does not. */
static void receive_repaired(struct receiver *v, const json_t *message)
{
        const json_t *reason = json_object_get(message, "reason"),
                     *packets = json_object_get(message, "packets");
        char text[JSON_CONNECTION_TEXT_MAX_BYTES];

        if (v->theirs && is_count(packets))
                json_object_set(v->theirs, "sent_again", (json_t *)packets);
        v->round_answered = true;
        v->round_ns = clock_now_ns();
        if (!json_is_string(reason))
                return;
        json_connection_text(reason, text, sizeof text);
        log_warning("the sender does not send the missing packets again: %s", text);
        end_repair(v);
}

/* Ends the repair, or begins the next round, if it is time. Returns when to call this function again. */
static uint64_t take_turn_repairing(struct receiver *v, uint64_t now_ns)
{
        const struct gaps *g = &v->threads.gaps;
        uint64_t quiet_ns;

        if (faults_are_holding(v->threads.faults))
                receive_again(v, 0);
        if (v->state != RECEIVE_REPAIRING)
                return NEVER_NS;
        quiet_ns = v->round_ns + (v->round_answered ? ROUND_QUIET_NS : ANSWER_WAIT_NS);
        if (v->stopped || now_ns >= v->repair_end_ns ||
            (g->left == 0 && (v->round_answered || now_ns >= quiet_ns))) {
                end_repair(v);
                return NEVER_NS;
        }
        if (v->round_answered && (g->left <= v->round_left || now_ns >= quiet_ns))
                begin_round(v);
        if (faults_are_holding(v->threads.faults))
                return now_ns + HELD_LOOK_NS;
        return g->left == 0 || v->round_answered ? MIN(quiet_ns, v->repair_end_ns) : v->repair_end_ns;
}

/* Begins to repair the output if there is anything to repair. */
static bool begin_repair(struct receiver *v)
{
        struct receive_threads *t = &v->threads;

        if (v->rounds > 0 || t->gaps.left == 0 || !v->connection || v->stopped || v->signals_seen > 0 ||
            t->output_error.code < 0 || t->network_error < 0 ||
            t->account.end > atomic_load(&t->total_packets) || sink_begin_repair(t->sink) < 0)
                return false;
        v->packets_io = (struct loop_io){
                .fd = v->threads.endpoint->fd, .events = EPOLLIN, .ready = receive_again, .ctx = v};
        if (loop_add(v->loop, &v->packets_io) < 0)
                return false;
        v->state = RECEIVE_REPAIRING;
        v->repair_begin_ns = v->round_ns = clock_now_ns();
        v->repair_end_ns = v->repair_begin_ns + v->config->repair_ns;
        begin_round(v);
        return true;
}

/* The threads have ended: the output is complete, or has failed. */
static void threads_ended(struct receiver *v)
{
        loop_remove(v->loop, &v->done_io);
        v->done_io.fd = -1;
        receive_threads_join(&v->threads);
        reason_set_error(&v->reason, &v->threads.output_error);
        if (v->threads.network_error < 0)
                reason_set(&v->reason, true, "cannot receive: %s", strerror(-v->threads.network_error));
        if (v->threads.account.end > atomic_load(&v->threads.total_packets)) {
                reason_set(&v->reason, true, "the sender announced %llu packets, but number %llu has arrived",
                           (unsigned long long)atomic_load(&v->threads.total_packets),
                           (unsigned long long)v->threads.account.end - 1);
                json_decref(v->theirs);
                v->theirs = NULL;
        }
        if (v->state == RECEIVE_RUNNING && v->connection) {
                ask_to_stop(v, v->reason.text);
                return;
        }
        if (!begin_repair(v))
                send_report(v);
}

/* Adds the progress of the threads. */
static void add_progress(const struct receive_progress *p, json_t *message)
{
        json_object_set_new(message, "seen", json_integer((json_int_t)p->seen));
        json_object_set_new(message, "room", json_integer((json_int_t)p->room));
}

static void report_progress(struct receiver *v)
{
        struct receive_progress p;
        json_t *message;

        if (!v->connection || v->state != RECEIVE_RUNNING || !receive_threads_progress(&v->threads, &p))
                return;
        message = json_pack("{s:s}", "type", "progress");
        add_progress(&p, message);
        json_connection_send(v->connection, message);
}

static void end_threads(struct receiver *v, uint64_t packets, uint64_t bytes)
{
        v->state = RECEIVE_ENDING;
        v->deadline_ns = NEVER_NS;
        receive_threads_end(&v->threads, packets, bytes);
        /* The threads had failed before. */
        if (v->done_io.fd < 0)
                threads_ended(v);
}

static void look_at_threads(void *ctx, uint32_t events)
{
        struct receiver *v = ctx;
        enum receive_threads_state state = receive_threads_look(&v->threads);

        (void)events;
        if (state == RECEIVE_THREADS_ENDED)
                threads_ended(v);
        else if (state == RECEIVE_THREADS_FAILED) {
                reason_set_error(&v->reason, &v->threads.output_error);
                if (v->config->without_control)
                        end_threads(v, PACKETS_UNKNOWN, UINT64_MAX);
                else if (v->state == RECEIVE_RUNNING && v->connection && !v->stopped)
                        ask_to_stop(v, v->reason.text);
        } else
                report_progress(v);
}

/* Whether the sender can have sent this many packets. The output gets zeros for each missing packet. */
static bool is_plausible(struct receiver *v, const json_t *packets)
{
        uint64_t now_ns = clock_now_ns(), most = receive_threads_most(&v->threads, now_ns);

        if (!is_count(packets) || (uint64_t)json_integer_value(packets) <= most)
                return true;
        reason_set(&v->reason, true,
                   "the sender announced %lld packets, but cannot have sent more than %llu in %.3f s",
                   (long long)json_integer_value(packets), (unsigned long long)most,
                   (double)(now_ns - v->begin_ns) / 1e9);
        return false;
}

static void receive_end(struct receiver *v, const json_t *message)
{
        const json_t *packets = json_object_get(message, "packets"),
                     *bytes = json_object_get(message, "bytes"), *reported, *reason;
        char text[JSON_CONNECTION_TEXT_MAX_BYTES];

        if (v->state != RECEIVE_RUNNING)
                return;
        if (!is_plausible(v, packets)) {
                end_threads(v, PACKETS_UNKNOWN, UINT64_MAX);
                return;
        }
        /* The report of another stream would falsify the report of this stream. */
        reported = json_object_get(json_object_get(message, "report"), "packets");
        if (json_is_integer(reported) && (uint64_t)json_integer_value(reported) + v->threads.first ==
                                                 (uint64_t)json_integer_value(packets))
                v->theirs = json_incref(json_object_get(message, "report"));
        reason = json_object_get(v->theirs, "reason");
        if (json_is_string(reason)) {
                json_connection_text(reason, text, sizeof text);
                reason_set(&v->reason, json_is_true(json_object_get(v->theirs, "failed")),
                           "the sender stopped: %s", text);
        }
        if (is_count(packets) && is_count(bytes))
                end_threads(v, (uint64_t)json_integer_value(packets), (uint64_t)json_integer_value(bytes));
        else {
                reason_set(&v->reason, true, "the sender's end does not say how much it sent");
                end_threads(v, PACKETS_UNKNOWN, UINT64_MAX);
        }
}

/* `local` is the address that the sender reaches. */
static int start_threads(struct receiver *v, const struct net_address *local)
{
        struct receive_threads *t = &v->threads;
        int r;

        figures_start(&v->begin, t->endpoint, local);
        r = receive_setup_threads(v->config, &v->offer, local, t, &v->data_port);
        if (r >= 0)
                r = receive_threads_start(t);
        if (r < 0)
                return r;
        v->done_io =
                (struct loop_io){.fd = t->done_fd, .events = EPOLLIN, .ready = look_at_threads, .ctx = v};
        return loop_add(v->loop, &v->done_io);
}

/* Returns why the stream is impossible, or NULL. */
static const char *check_offer(struct receiver *v, const json_t *message)
{
        static char text[ERROR_TEXT_MAX];
        struct error e = {};
        int r = setup_decode(&v->offer, message, &e);

        if (r < 0)
                return error_format(&e, text);
        if (v->offer.rule.format == STREAM_RAW && strcmp(v->config->output, "null") != 0)
                return "a raw stream has no data to store; receive it with --output null";
        if (v->offer.rule.format != STREAM_RAW && (v->config->packets_per_s > 0 || v->config->watches_wire))
                return "--raw is for raw streams";
        if (sink_is_pattern(v->threads.sink) && !v->offer.pattern)
                return "the receiver checks a pattern; send one, or receive into a file";
        if (resume_begin(&v->resume, &v->offer, v->copy_bytes) && !v->offer.resumes)
                return "the receiver has a part of it to resume, which needs a file as input, and at the "
                       "sender this version of evb or a later one";
        return NULL;
}

static void send_ready(struct receiver *v)
{
        json_t *message = json_pack("{s:s, s:i}", "type", "ready", "udp_port", (int)v->data_port);
        struct receive_progress p;

        if (receive_threads_progress(&v->threads, &p)) {
                json_object_set_new(message, "window",
                                    json_integer((json_int_t)receive_threads_window(&v->threads)));
                add_progress(&p, message);
        }
        if (v->threads.first > 0)
                json_object_set_new(message, "first", json_integer((json_int_t)v->threads.first));
        json_connection_send(v->connection, message);
}

static void begin(struct receiver *v)
{
        v->state = RECEIVE_RUNNING;
        v->begin_ns = clock_now_ns();
        v->tick_ns = v->begin_ns + TICK_NS;
        v->deadline_ns = NEVER_NS;
}

/* Ends without a stream, and tells the sender the reason. */
static void reject(struct receiver *v)
{
        stream_control_refuse(v->connection, v->reason.text);
        v->state = RECEIVE_CLOSING;
        v->deadline_ns = clock_now_ns() + CLOSE_WAIT_NS;
}

/* Begins the stream of the sender whose offer was accepted. */
static void start_stream(struct receiver *v)
{
        struct net_address local;
        int r = stream_control_addresses(v->connection, v->offer.udp_port, &v->threads.from, &local);

        if (r >= 0)
                r = start_threads(v, &local);
        if (r < 0) {
                reason_set(&v->reason, true, "cannot start the stream: %s", strerror(-r));
                reject(v);
                return;
        }
        net_address_format(&v->threads.from, v->sender);
        send_ready(v);
        begin(v);
}

/* Requests more digests of the sender's file. */
static void compare_more(struct receiver *v)
{
        for (json_t *request; (request = resume_request(&v->resume, &v->offer));)
                json_connection_send(v->connection, request);
}

static void receive_digests(struct receiver *v, const json_t *message)
{
        const json_t *reason = json_object_get(message, "reason");
        char text[JSON_CONNECTION_TEXT_MAX_BYTES];
        int r;

        if (json_is_string(reason)) {
                json_connection_text(reason, text, sizeof text);
                reason_set(&v->reason, true, "%s: cannot resume: %s", v->config->output, text);
                reject(v);
                return;
        }
        r = resume_compare(&v->resume, &v->offer, &v->threads, json_object_get(message, "digests"));
        if (r == 1)
                start_stream(v);
        else if (r == 0)
                compare_more(v);
        else {
                if (r == -ESTALE)
                        reason_set(&v->reason, true,
                                   "%s: cannot resume: near byte %llu, it differs from the sender's file, "
                                   "which is another one or was changed; --overwrite receives all of it",
                                   v->config->output,
                                   (unsigned long long)v->resume.compared * v->offer.rule.payload_bytes);
                reason_set(&v->reason, true, "%s: cannot resume: %s", v->config->output,
                           r == -EBADMSG ? "the sender's answer is invalid" : strerror(-r));
                reject(v);
        }
}

static void receive_open(struct receiver *v, struct json_connection *c, const json_t *message)
{
        char busy[NET_ADDRESS_TEXT_MAX + 64];
        struct net_address local;
        const char *refused;

        if (v->state != RECEIVE_WAITING) {
                snprintf(busy, sizeof busy, "it is busy with a stream from %s", v->sender);
                refused = busy;
        } else
                refused = check_offer(v, message);
        if (refused) {
                stream_control_refuse(c, refused);
                if (v->config->dials) {
                        reason_set(&v->reason, true, "the sender's stream cannot be received: %s", refused);
                        v->state = RECEIVE_DONE;
                }
                return;
        }
        v->connection = c;
        stream_control_admit(c);
        if (v->resume.packets == 0) {
                start_stream(v);
                return;
        }
        (void)stream_control_addresses(c, v->offer.udp_port, &v->threads.from, &local);
        net_address_format(&v->threads.from, v->sender);
        v->state = RECEIVE_COMPARING;
        compare_more(v);
}

/* Without control: the first packet of a stream waits in the socket. */
static void begin_with_packet(struct receiver *v)
{
        const struct packet_rule *rule = &v->offer.rule;
        int r;

        loop_remove(v->loop, &v->packets_io);
        r = start_threads(v, &v->config->at);
        if (r < 0) {
                reason_set_error(&v->reason, &v->threads.output_error);
                reason_set(&v->reason, true, "cannot start the stream: %s", strerror(-r));
                v->state = RECEIVE_DONE;
                return;
        }
        net_address_format(&v->threads.from, v->sender);
        if (rule->format == STREAM_VDIF)
                log_info("recording VDIF frames of %u bytes from %s, %s", v->offer.plan.frame_bytes,
                         v->sender,
                         rule->unnumbered ? "without sequence numbers: missing frames are not filled in"
                                          : "with sequence numbers");
        else
                log_info("recording datagrams from %s: losses in the network cannot be seen", v->sender);
        if (v->early > 0)
                log_info("packets before the begin, not recorded: %llu", (unsigned long long)v->early);
        if (v->unclear > 0)
                log_warning("datagrams before the first frame, which are not recorded: %llu",
                            (unsigned long long)v->unclear);
        begin(v);
}

static void examine_packets(void *ctx, uint32_t events)
{
        struct receiver *v = ctx;

        (void)events;
        for (int i = 0; i < EXAMINED_MAX; i++) {
                uint8_t bytes[SETUP_PACKET_BYTES] = {};
                struct net_address *from = &v->threads.from;
                ssize_t n;

                from->size_bytes = sizeof from->v6;
                n = recvfrom(v->threads.endpoint->fd, bytes, sizeof bytes,
                             MSG_PEEK | MSG_TRUNC | MSG_DONTWAIT, &from->any, &from->size_bytes);
                if (n < 0)
                        return;
                if (!setup_of_packet(&v->offer, v->config->format, bytes, (size_t)n))
                        v->unclear++;
                else if (receive_setup_is_early(v->config, &v->offer, &v->threads, &v->seen_s))
                        v->early++;
                else {
                        begin_with_packet(v);
                        return;
                }
                (void)recv(v->threads.endpoint->fd, bytes, 0, MSG_DONTWAIT);
        }
}

static void receive_refusal(struct receiver *v, const json_t *message)
{
        char text[JSON_CONNECTION_TEXT_MAX_BYTES];

        json_connection_text(json_object_get(message, "reason"), text, sizeof text);
        reason_set(&v->reason, true, "%s refuses to send: %s", peer_text(v), text);
        v->state = RECEIVE_DONE;
}

static void received(void *ctx, struct json_connection *c, const json_t *message)
{
        const char *type = json_string_value(json_object_get(message, "type")) ?: "";
        struct receiver *v = ctx;

        if (c != v->connection && strcmp(type, "open") == 0)
                receive_open(v, c, message);
        else if (c != v->connection && v->config->dials && strcmp(type, "refused") == 0)
                receive_refusal(v, message);
        else if (c != v->connection)
                stream_control_refuse(c, "a stream begins with an offer");
        else if (strcmp(type, "digests") == 0 && v->state == RECEIVE_COMPARING)
                receive_digests(v, message);
        else if (strcmp(type, "end") == 0)
                receive_end(v, message);
        else if (strcmp(type, "repaired") == 0 && v->state == RECEIVE_REPAIRING)
                receive_repaired(v, message);
}

static void ended(void *ctx, struct json_connection *c, int error)
{
        struct receiver *v = ctx;

        if (c != v->connection)
                return;
        v->connection = NULL;
        if (v->state == RECEIVE_RUNNING) {
                reason_set(&v->reason, true, "the sender left: %s; its total is unknown",
                           stream_control_explain(error));
                end_threads(v, PACKETS_UNKNOWN, UINT64_MAX);
        } else if (v->state == RECEIVE_REPAIRING) {
                reason_set(&v->reason, true, "the sender left: %s; packets stay missing",
                           stream_control_explain(error));
                end_repair(v);
        } else if (v->state == RECEIVE_COMPARING) {
                reason_set(&v->reason, true, "the sender left: %s", stream_control_explain(error));
                v->state = RECEIVE_DONE;
        } else if (v->state == RECEIVE_CLOSING)
                v->state = RECEIVE_DONE;
}

static json_t *greet(void *ctx)
{
        (void)ctx;
        return json_pack("{s:s, s:i, s:s}", "type", "hello", "protocol", SETUP_PROTOCOL, "program",
                         "evb " EVB_VERSION);
}

static void dial_failed(void *ctx, int error)
{
        struct receiver *v = ctx;

        if (error == -EBADMSG)
                reason_set(&v->reason, true, "%s is not a sender: it does not answer in JSON", peer_text(v));
        else
                reason_set(&v->reason, true, "%s: cannot connect: %s", peer_text(v), strerror(-error));
        v->state = RECEIVE_DONE;
}

static void handle_signals(struct receiver *v)
{
        unsigned n = loop_stops(v->loop);

        if (n == v->signals_seen)
                return;
        v->signals_seen = n;
        if (v->state < RECEIVE_RUNNING || n > 1) {
                reason_set(&v->reason, true, "interrupted");
                v->state = RECEIVE_DONE;
        } else if (v->state == RECEIVE_RUNNING && !v->stopped) {
                reason_set(&v->reason, false, "interrupted");
                if (v->config->without_control)
                        end_threads(v, PACKETS_UNKNOWN, UINT64_MAX);
                else
                        ask_to_stop(v, "interrupted");
        } else if (v->state == RECEIVE_REPAIRING)
                v->stopped = true;
}

static void tick(struct receiver *v, uint64_t now_ns)
{
        const struct receive_threads *t = &v->threads;

        v->tick_ns += TICK_NS;
        figures_show_progress(&v->threads, now_ns - v->begin_ns, false);
        if (v->connection)
                json_connection_send(v->connection, json_pack("{s:s, s:I, s:I, s:I}", "type", "statistics",
                                                              "packets", (json_int_t)atomic_load(&t->packets),
                                                              "bytes", (json_int_t)atomic_load(&t->bytes),
                                                              "lost", (json_int_t)atomic_load(&t->lost)));
}

/* Without control: ends the stream if it is time. Returns when to call this function again. */
static uint64_t look_for_end(struct receiver *v, uint64_t now_ns)
{
        const struct stream_receive_config *c = v->config;
        const struct receive_threads *t = &v->threads;
        const uint64_t end_ns = c->duration_ns > 0 ? v->begin_ns + c->duration_ns : NEVER_NS;

        if (!v->warned_unfit && atomic_load(&t->unfit) > 0) {
                log_warning("%s sends datagrams that are not of its stream: of another size, or its sequence "
                            "numbers began anew; they are not recorded",
                            v->sender);
                v->warned_unfit = true;
        }
        if (now_ns >= end_ns || (c->silence_ns > 0 && atomic_load(&t->quiet_ns) >= c->silence_ns) ||
            (t->limit_packets > 0 && atomic_load(&t->seen) >= t->limit_packets) ||
            (t->limit_bytes > 0 && atomic_load(&t->bytes) >= t->limit_bytes)) {
                end_threads(v, PACKETS_UNKNOWN, UINT64_MAX);
                return v->tick_ns;
        }
        return MIN(end_ns, now_ns + END_LOOK_NS);
}

/* Performs the actions that are due; returns when to call this function again. */
static uint64_t take_turn(struct receiver *v, uint64_t now_ns)
{
        uint64_t sample_ns = v->offer.rule.format == STREAM_RAW && v->state == RECEIVE_RUNNING
                                     ? raw_measure_sample(&v->threads.raw.measure, v->threads.network, now_ns)
                                     : NEVER_NS,
                 repair_ns = NEVER_NS, end_ns = NEVER_NS;

        if ((v->state == RECEIVE_RUNNING || v->state == RECEIVE_ENDING || v->state == RECEIVE_REPAIRING) &&
            now_ns >= v->tick_ns)
                tick(v, now_ns);
        if (v->state == RECEIVE_REPAIRING)
                repair_ns = take_turn_repairing(v, now_ns);
        if (v->state == RECEIVE_RUNNING && v->config->without_control)
                end_ns = look_for_end(v, now_ns);
        if (v->state == RECEIVE_RUNNING && now_ns >= v->deadline_ns) {
                reason_set(&v->reason, true, "the sender does not end the stream");
                end_threads(v, PACKETS_UNKNOWN, UINT64_MAX);
        }
        if (v->state == RECEIVE_CLOSING && now_ns >= v->deadline_ns)
                v->state = RECEIVE_DONE;
        return MIN(MIN(MIN(v->config->without_control ? NEVER_NS : stream_control_turn(&v->control, now_ns),
                           sample_ns),
                       MIN(MIN(v->deadline_ns, repair_ns), end_ns)),
                   v->state < RECEIVE_RUNNING || v->state == RECEIVE_CLOSING ? NEVER_NS : v->tick_ns);
}

static void follow(struct receiver *v)
{
        uint64_t deadline_ns = 0;
        int r;

        v->deadline_ns = NEVER_NS;
        while (v->state != RECEIVE_DONE) {
                r = loop_wait(v->loop, deadline_ns);
                if (r < 0) {
                        reason_set(&v->reason, true, "cannot wait for events: %s", strerror(-r));
                        break;
                }
                handle_signals(v);
                deadline_ns = v->state == RECEIVE_DONE ? 0 : take_turn(v, loop_now_ns(v->loop));
        }
        if (v->begin_ns > 0)
                figures_show_progress(&v->threads, clock_now_ns() - v->begin_ns, true);
}

/* Logs what is missing, and returns the exit status. */
static int conclude(struct receiver *v, json_t **ret)
{
        if (v->reason.failed)
                log_error("%s", v->reason.text);
        if (v->begin_ns == 0)
                return 1;
        if (!v->own) {
                receive_threads_abort(&v->threads);
                receive_threads_join(&v->threads);
                v->own = figures_of_receiver(&v->threads, &v->begin, v->reason.failed, v->reason.text);
        }
        *ret = report_merge(false, v->theirs, v->own);
        return figures_log_receiver(&v->threads, &v->begin, v->sender) || v->reason.failed ? 1 : 0;
}

static int open_all(struct receiver *v)
{
        const struct stream_receive_config *c = v->config;
        int r = receive_setup_open(c, &v->threads, &v->copy_bytes);

        if (r != 0)
                return r;
        r = loop_new(&v->loop);
        if (r >= 0)
                r = loop_catch_signals(v->loop);
        if (r < 0)
                return log_error_errno(r, "cannot start: %m"), 1;
        v->control.received = received;
        v->control.ended = ended;
        v->control.greet = greet;
        v->control.failed = dial_failed;
        v->control.ctx = v;
        v->control.key = c->common.has_key ? &c->common.key : NULL;
        if (c->without_control) {
                v->packets_io = (struct loop_io){
                        .fd = v->threads.endpoint->fd, .events = EPOLLIN, .ready = examine_packets, .ctx = v};
                r = loop_add(v->loop, &v->packets_io);
        } else if (c->dials)
                stream_control_dial(&v->control, v->loop, &c->at, c->wait_ns);
        else
                r = stream_control_listen(&v->control, v->loop, &c->at);
        return r < 0 ? (log_error_errno(r, "%s: cannot listen: %m", peer_text(v)), 1) : 0;
}

int stream_receive(const struct stream_receive_config *c, json_t **ret)
{
        /* Maps the struct, because the rings in it need cache-line alignment. */
        struct receiver *v = memory_map(sizeof *v);
        int status;

        if (!v)
                return log_error_errno(ENOMEM, "%m"), 1;
        v->config = c;
        v->done_io.fd = -1;
        status = open_all(v);
        if (status == 0) {
                follow(v);
                status = conclude(v, ret);
        }
        stream_control_close(&v->control);
        receive_threads_fini(&v->threads);
        faults_free(v->threads.faults);
        endpoint_free(v->threads.endpoint);
        sink_free(v->threads.sink);
        json_decref(v->own);
        json_decref(v->theirs);
        loop_free(v->loop);
        memory_unmap(v, sizeof *v);
        return status;
}
