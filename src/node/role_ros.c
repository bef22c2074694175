/* Runs the ROS as a process: connects its core and buffer with a source of fragments and a data sender. */
#include "core/ros.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/util.h"
#include "data/data_send.h"
#include "data/front_end.h"
#include "data/network.h"
#include "data/region_server.h"
#include "node/role_config.h"
#include "sys/memory.h"
#include "machine.h"
#include "path_probe.h"
#include "progress/progress.h"
#include "node_internal.h"
#include "shaping.h"

/* Maximum number of frames in all slices that are not closed, and in all fragments that are not complete. */
#define SLICER_FRAMES_MAX 262144u
#define JOINER_FRAMES_MAX 131072u
#define MATCHER_FRAMES_MAX 65536u
#define JOIN_WITHIN_NS (100 * NS_PER_MS)

/* Maximum wait for a front-end that continues to send after the run. */
#define SETTLE_NS (400 * NS_PER_MS)

/* No clock of a board gains or loses so much in a second, so the time of a count is wrong. */
#define TICK_WRONG 1e-3

struct ros_node {
        struct ros *core;
        uint8_t *buffer;
        struct source *source;
        struct front_end *front_end; /* NULL: `source` generates fragments */
        struct slicer *slicer;       /* slicer of the front-end; NULL: its frames have no times */
        struct joiner *joiner;       /* of the front-end; NULL: it joins no frames */
        struct matcher *matcher;     /* of the front-end; NULL: its frames match no times of triggers */
        struct trigger_times *times; /* for the matcher */
        struct data_sender sender;
        struct path_probe *probe;
        struct region_server *regions;       /* NULL: none */
        struct shaping *shaping;             /* NULL: unshaped */
        uint64_t sfi_live[EVB_SFI_MAX / 64]; /* at the last turn */
        bool more;                           /* the sender has more data to send now */
        uint64_t dropped;                    /* number of packets dropped by the ROS's own shaping */
        int farewells;
        uint64_t farewell_ns;
        uint64_t stopped_ns;     /* NEVER_NS: not stopped */
        uint64_t settle_ns;      /* when the count of frames becomes final; 0: the run continues */
        uint64_t out_of_step_ns; /* since when the front-end has been out of step; 0: in step */
        bool begins_anew;        /* it has counted frames of a run that goes on without it */
        bool offset_logged, clock_logged, was_aligned;
        /* Number of such frames when they were last logged. */
        uint64_t duplicate_logged, impossible_logged, pushed_out_logged, doubled_logged, ambiguous_logged;
};

/* Returns the key that sets this ROS's source. */
static const char *source_key(const struct node *n, char *text, size_t size_bytes)
{
        if (!n->self->has_source)
                return "ros.source";
        snprintf(text, size_bytes, "node %s.source", n->self->name);
        return text;
}

static int open_source(struct node *n, struct ros_node *r, struct ros_config *config)
{
        const struct scenario *s = n->scenario;
        struct pattern_sizes sizes = source_sizes_of(s);
        struct error e = {.message = "out of memory"};
        char text[ERROR_TEXT_MAX], key[64];
        int k = 0;

        if (n->self->source_kind == SOURCE_PATTERN)
                k = source_new_pattern(&r->source, n->self->index, s->run.seed, &sizes);
        else if (n->self->source_kind == SOURCE_FILE)
                k = source_new_file(&r->source, scenario_rank_in_file(s, n->self), n->self->source_id,
                                    scenario_replayed_file(s), n->self->source_at, &e);
        if (k < 0)
                return machine_path_error(
                        log_error_errno(k, "%s: %s", source_key(n, key, sizeof key), error_format(&e, text)));
        if (r->source) {
                config->describe = source_describe;
                config->describe_ctx = r->source;
        }
        return 0;
}

/* Memory for frames whose fragment is not complete. */
static uint64_t waiting_bytes(const struct scenario *s)
{
        return MAX(s->ros.buffer_size_bytes / 4, 2 * (uint64_t)EVB_FRAGMENT_MAX_BYTES);
}

/* Logs why nothing can collect the frames of a fragment. */
static int waiting_error(const struct scenario *s, const char *key, int k)
{
        return k == -ENOMEM ? machine_no_memory("ros.buffer-size", s->ros.buffer_size_bytes)
                            : log_error_errno(k, "%s: %m", key);
}

static int open_slicer(struct node *n, struct ros_node *r)
{
        const struct scenario *s = n->scenario;
        struct slicer_config config = {
                .slice_ns = s->trigger.slice_ns,
                .overlap_ns = s->trigger.overlap_ns,
                .window_ns = s->trigger.window_ns,
                .tick_ns = n->self->board.tick_ns,
                .follows = n->self->board.follows,
                .bits = n->self->board.time.bits,
                .frames_max = SLICER_FRAMES_MAX,
                .buffer_bytes = waiting_bytes(s),
                /* The last frames of a board must become part of events before the DFM leaves the ROS out. */
                .idle_max_ns = MIN(scenario_wait_ns(s, n->self), s->dfm.node_timeout_ns / 2),
        };
        int k = slicer_new(&r->slicer, &config);

        return k < 0 ? waiting_error(s, "ros.event-time", k) : 0;
}

static int open_joiner(struct node *n, struct ros_node *r)
{
        const struct scenario *s = n->scenario;
        struct joiner_config config = {
                .rule = n->self->board.join,
                .number = n->self->board.number,
                .frames_max = JOINER_FRAMES_MAX,
                .order_ns = s->trigger.source_kind == TRIGGER_FRAMES ? s->trigger.window_ns / 2 : 0,
                .buffer_bytes = waiting_bytes(s),
                .stop_ns = scenario_wait_ns(s, n->self),
                /* If another source makes the triggers, that of the first fragment may have been taken. */
                .begins_within = n->board_continues && scenario_leads(s, n->self),
                .leads = scenario_leads(s, n->self),
                .datagrams = n->self->source_kind == SOURCE_UDP,
                .first_number = (uint64_t)n->self->board.number_from,
        };
        int k;

        /* The fragment must come before its event stops waiting. */
        if (config.rule.within_ns == 0)
                config.rule.within_ns = MIN(JOIN_WITHIN_NS, scenario_wait_ns(s, n->self) / 2);
        k = joiner_new(&r->joiner, &config);
        return k < 0 ? waiting_error(s, "ros.fragments", k) : 0;
}

static int open_matcher(struct node *n, struct ros_node *r)
{
        const struct scenario *s = n->scenario;
        const struct scenario_board *b = &n->self->board;
        const struct data_context context = node_data_context(n);
        struct matcher_config config = {
                .window_ns = b->time_window_ns,
                .tick_ns = b->tick_ns,
                .bits = b->time.bits,
                .frames_max = MATCHER_FRAMES_MAX,
                .buffer_bytes = waiting_bytes(s),
                /* The frames must come before their events stop waiting. */
                .search_ns = scenario_wait_ns(s, n->self) / 2,
                .past = n->board_clock,
        };
        int k = matcher_new(&r->matcher, &config);

        if (k < 0)
                return waiting_error(s, "ros.event-time", k);
        return trigger_times_new(&r->times, &context, r->matcher, r->core, !n->board_continues);
}

/* Whether frames of this ROS must match triggers from outside, or frames of other ROSs. */
static bool must_agree(const struct scenario *s)
{
        unsigned boards = 0;

        for (size_t i = 0; i < s->n_nodes; i++)
                boards += scenario_has_front_end(&s->nodes[i]);
        return boards > 1 || s->trigger.source_kind != TRIGGER_INTERNAL;
}

static int open_front_end(struct node *n, struct ros_node *r)
{
        const struct scenario *s = n->scenario;
        bool tcp = n->self->source_kind == SOURCE_TCP;
        bool matches = scenario_matches_times(n->self);
        struct front_end_layout layout = {n->self->board.frame,
                                          scenario_has_slices(s) || matches ? n->self->board.time
                                                                            : n->self->board.number,
                                          n->self->board.join};
        struct net_address local;
        bool agrees = must_agree(s);
        int k = network_front_end_address(&local, n->self);

        if (k < 0 || r->source)
                return k;
        k = front_end_new(&r->front_end, tcp, &layout, &local, n->loop, r->core, r->buffer, n->stats);
        if (k < 0)
                return k;
        if (n->front_end)
                k = front_end_go_on(r->front_end, take_ptr(n->front_end), agrees,
                                    s->trigger.source_kind != TRIGGER_FRAMES && !scenario_has_slices(s),
                                    clock_now_ns());
        else
                k = front_end_open(r->front_end, n->self->source_at, agrees);
        if (n->was_refused)
                (void)front_end_refuse(r->front_end);
        else
                n->board_continues |= k > 0;
        if (k >= 0 && n->board_continues && agrees)
                front_end_miss_frames(r->front_end, clock_now_ns());
        if (k >= 0 && scenario_has_slices(s))
                k = open_slicer(n, r);
        if (k >= 0 && matches)
                k = open_matcher(n, r);
        if (k >= 0 && n->self->board.join.joins)
                k = open_joiner(n, r);
        front_end_collect(r->front_end, r->slicer, r->joiner, r->matcher);
        return k;
}

static int open_role(struct node *n)
{
        const struct scenario *s = n->scenario;
        struct ros_node *r = calloc(1, sizeof *r);
        struct ros_config config = role_ros_config(s, n->self);
        int k;

        if (!r)
                return log_error_errno(ENOMEM, "ros: %m");
        n->state = r;
        r->stopped_ns = NEVER_NS;
        memset(r->sfi_live, 0xff, sizeof r->sfi_live);
        config.member = n->member;
        k = open_source(n, r, &config);
        if (k < 0)
                return k;
        r->buffer = memory_map(s->ros.buffer_size_bytes);
        if (!r->buffer)
                return machine_no_memory("ros.buffer-size", s->ros.buffer_size_bytes);
        k = ros_new(&r->core, &config, clock_now_ns());
        if (k < 0)
                return log_error_errno(k, "test.buffer-events: %m");
        n->core = r->core;
        r->shaping = take_ptr(n->shaping);
        k = r->shaping ? shaping_go_on(r->shaping) : shaping_new(&r->shaping, n);
        if (k < 0)
                return k;
        r->sender = (struct data_sender){
                .ops = s->scenario.transport == TRANSPORT_TCP ? &data_send_tcp : &data_send_udp,
                .context = node_data_context(n),
                .seed = n->member.incarnation,
                .core = r->core,
                .source = r->source,
                .buffer = r->buffer,
                .super_packet_max_bytes = shaping_super_packet_bytes(r->shaping),
                .pace_overhead_bytes = shaping_overhead_bytes(r->shaping),
        };
        k = r->sender.ops->open(&r->sender);
        if (k >= 0)
                k = path_probe_new(&r->probe, &n->control, &r->sender, n->self);
        if (k >= 0)
                k = open_front_end(n, r);
        return k < 0 ? k : region_server_new(&r->regions, &r->sender.context, r->core, r->source, r->buffer);
}

static void close_role(struct node *n)
{
        struct ros_node *r = n->state;

        n->was_refused = r->begins_anew;
        n->board_continues =
                r->front_end && !n->was_refused && !front_end_is_quiet(r->front_end, clock_now_ns());
        n->board_clock = r->matcher ? matcher_past(r->matcher) : (struct matcher_past){};
        path_probe_free(r->probe);
        trigger_times_free(r->times);
        if (n->goes_on)
                n->front_end = front_end_rest(r->front_end);
        else
                front_end_free(r->front_end);
        region_server_free(r->regions);
        if (r->sender.ops)
                r->sender.ops->close(&r->sender);
        chunk_packer_free(r->sender.packer);
        if (n->goes_on) {
                shaping_rest(r->shaping);
                n->shaping = r->shaping;
        } else
                shaping_free(r->shaping);
        ros_free(r->core);
        source_free(r->source);
        memory_unmap(r->buffer, n->scenario->ros.buffer_size_bytes);
        free(r);
}

/* A run goes on without this ROS: frames that came until now belong to no later run. */
static void heed_refusal(struct node *n, struct ros_node *r)
{
        const struct member *m = ros_member(r->core);

        if (!r->front_end || r->begins_anew || member_is_joined(m) || m->refusal != WELCOME_BEGUN)
                return;
        r->begins_anew = !front_end_refuse(r->front_end) && node_stays(n);
        if (r->begins_anew)
                r->farewells = FAREWELLS;
}

static void receive_message(struct node *n, uint64_t now_ns, const struct message *m)
{
        struct ros_node *r = n->state;

        if (m->header.type == MESSAGE_PROBE)
                path_probe_receive(r->probe, m);
        else if (!ros_receive(r->core, now_ns, m) && m->header.sender_role == ROLE_ROS)
                stats_add(&n->stats->packets_malformed, 1);
        if (m->header.type == MESSAGE_WELCOME)
                heed_refusal(n, r);
}

static bool step(void *core, uint64_t now_ns, struct message_to *ret_to, struct message *ret)
{
        return ros_step(core, now_ns, ret_to, ret);
}

static uint64_t leave_ns(const struct node *n)
{
        const struct ros_node *r = n->state;
        enum run_state run = ros_run_state(r->core);

        return run == RUN_ENDED ? r->settle_ns
                                : node_leave_ns(n, r->stopped_ns, ros_member(r->core)->received_ns, run);
}

/* The count of frames is final once the front-end is silent, or at the latest after SETTLE_NS. */
static void settle_count(struct ros_node *r, uint64_t now_ns)
{
        if (!r->front_end || ros_run_state(r->core) != RUN_ENDED)
                return;
        if (r->settle_ns == 0)
                r->settle_ns = now_ns + SETTLE_NS;
        if (front_end_is_quiet(r->front_end, now_ns))
                r->settle_ns = MIN(r->settle_ns, now_ns);
}

/* Adds frames with times that belong to the run but are in no event. */
static void add_slice_reasons(const struct node *n, const struct ros_node *r, struct reasons *to)
{
        const struct slicer_counts *c = slicer_counts(r->slicer);
        unsigned long long late = stats_get(&n->stats->slice_frames_late),
                           others = stats_get(&n->stats->slice_frames_dropped) - c->ahead;

        if (late > 0)
                reasons_add(to,
                            "frames with times were lost, as they came after their slice was closed, or its "
                            "event did not wait for them: %llu",
                            late);
        if (others > 0)
                reasons_add(to,
                            "frames with times were dropped, as they were incomplete, had no possible time, "
                            "did not fit, or belong to a slice that was used before: %llu",
                            others);
        if (c->ahead > 0)
                reasons_add(to,
                            "frames with times were dropped, as their times are ahead of those that its "
                            "board had come to at the end: %llu, the last one by %.3f s",
                            (unsigned long long)c->ahead, (double)c->ahead_ns / 1e9);
}

static void add_frame_reasons(const struct node *n, struct reasons *to)
{
        const struct ros_node *r = n->state;
        const struct ros_counts *c = ros_counts(r->core);
        /* joiner_reasons() names the others. */
        unsigned long long dropped = r->joiner ? c->pushed_out : c->dropped;
        char times[32];

        snprintf(times, sizeof times, "%llu times", (unsigned long long)c->restarts);
        if (r->front_end)
                front_end_reasons(r->front_end, to);
        if (dropped > 0)
                reasons_add(to,
                            "frames of the front-end did not fit into ros.buffer-size or test.buffer-events "
                            "and were dropped: %llu",
                            dropped);
        if (r->slicer)
                add_slice_reasons(n, r, to);
        if (r->joiner)
                joiner_reasons(r->joiner, r->core, to);
        if (r->matcher) {
                matcher_reasons(r->matcher, to);
                trigger_times_reasons(r->times, to);
        }
        if (c->restarts > 0)
                reasons_add(to,
                            "its front-end fell out of step with the triggers %s: %s is wrong; %llu frames "
                            "have the number of an earlier one, %llu one of no trigger, and %llu came late",
                            c->restarts == 1 ? "once" : times,
                            scenario_has_slices(n->scenario)
                                    ? "the clock of its board may have jumped, or ros.event-time"
                                    : "its board may have restarted, or sent late, or ros.event-number",
                            (unsigned long long)c->duplicate, (unsigned long long)c->impossible,
                            (unsigned long long)c->late);
        else if (!r->slicer)
                front_end_discard_reasons(r->core, to);
        if (!r->matcher)
                front_end_number_reasons(r->core, n->self->board.number_from, to);
}

/* Publishes the classes of frames that are collected before they are passed to the core. */
static void account_collected(const struct node *n, const struct ros_node *r)
{
        if (r->slicer) {
                slicer_account(r->slicer, r->core, n->stats);
                board_clock_account(slicer_clock(r->slicer), clock_now_ns(), clock_utc_ns(), n->stats);
        }
        if (r->joiner)
                joiner_account(r->joiner, r->core, n->stats);
        if (r->matcher)
                matcher_account(r->matcher, r->core, n->stats);
}

/* The DFM does not count frames, so the last messages inform it that frames are missing in the account. */
static void record_short(const struct node *n, struct ros_node *r)
{
        struct reasons reasons = {};

        if (!r->front_end)
                return;
        account_collected(n, r);
        add_frame_reasons(n, &reasons);
        ros_set_short(r->core, reasons.n > 0);
}

/* An idle ROS stays in the run, because the next event may be on its way. */
static void say_farewell(struct node *n, struct ros_node *r, uint64_t now_ns)
{
        if (now_ns < leave_ns(n) || now_ns < r->farewell_ns || r->farewells == FAREWELLS)
                return;
        record_short(n, r);
        ros_set_ended(r->core, now_ns);
        r->farewells++;
        r->farewell_ns = now_ns + FAREWELL_NS;
}

/* Drops jobs for SFIs that have left, because they would fill the queue that all SFIs share. */
static void forget_gone(const struct node *n, struct ros_node *r)
{
        const uint64_t *live = ros_sfi_live(r->core);

        for (uint32_t i = 0; i < n->scenario->sfi.count; i++) {
                if ((r->sfi_live[i / 64] & ~live[i / 64]) >> (i % 64) & 1)
                        ros_forget_sfi(r->core, i);
        }
        memcpy(r->sfi_live, live, sizeof r->sfi_live);
}

/* Logs when the frame numbers no longer follow the triggers, and when they follow them again. */
static void watch_step(struct ros_node *r, uint64_t now_ns)
{
        bool out = ros_is_out_of_step(r->core);
        char why[256];

        if (out == (r->out_of_step_ns > 0))
                return;
        if (out) {
                front_end_explain_step(r->front_end, &ros_samples(r->core)->stray,
                                       ros_expected_counter(r->core), why, sizeof why);
                log_error("front-end: the numbers of %u frames in a row do not follow the triggers: %s. "
                          "Frames are discarded until they agree with the triggers again",
                          ROS_STRAYS_MAX, why);
        } else
                log_warning("front-end: its numbers follow the triggers again after %.1f s",
                            (double)(now_ns - r->out_of_step_ns) / 1e9);
        r->out_of_step_ns = out ? now_ns : 0;
}

/* Whether the number must be logged: if it is the first one, or if it has grown tenfold since the last. */
static bool is_news(uint64_t n, uint64_t *logged)
{
        if (n == *logged || n / 10 < *logged)
                return false;
        *logged = n;
        return true;
}

/* Logs frames that are discarded although the board follows the triggers. */
static void watch_discarded(struct ros_node *r)
{
        const struct ros_counts *c = ros_counts(r->core);
        const struct ros_samples *s = ros_samples(r->core);
        char why[256];

        if (r->out_of_step_ns > 0 || r->slicer)
                return;
        if (is_news(c->duplicate, &r->duplicate_logged))
                log_warning("front-end: a frame has the same number as an earlier one, %" PRIu64
                            ", and is discarded: %s; %" PRIu64 " such frames so far",
                            s->duplicate.counter,
                            r->joiner ? "its fragment had ended; fragments = join within TIME waits longer, "
                                        "and count or last show the end of a fragment"
                                      : "the board sends several frames for a trigger (fragments = join uses "
                                        "all of them), or the network repeats them",
                            c->duplicate);
        if (is_news(c->pushed_out, &r->pushed_out_logged))
                log_warning(
                        "front-end: a trigger finds that its frame is lost, as the frames that came before "
                        "the first trigger found no room in ros.buffer-size or test.buffer-events; %" PRIu64
                        " such frames so far",
                        c->pushed_out);
        if (!is_news(c->impossible, &r->impossible_logged))
                return;
        front_end_explain_step(r->front_end, &s->impossible, ros_expected_counter(r->core), why, sizeof why);
        log_warning("front-end: a frame fits no trigger, and is discarded: %s; %" PRIu64
                    " such frames so far",
                    why, c->impossible);
}

/* Until the end of the run, a board that counts from another number looks like a board that missed the first
 * triggers. */
static void watch_offset(const struct node *n, struct ros_node *r)
{
        long long offset = ros_offset(r->core, false);

        if (r->offset_logged || r->slicer || r->matcher || offset == 0)
                return;
        r->offset_logged = true;
        log_warning("front-end: no frame came for the first trigger of the run, and the first frame is that "
                    "of a later one. Either frames were lost, or the board counts from another number than "
                    "the trigger: then its frames are in events of other triggers, and number-from should be "
                    "%lld. Check a correlation with another board",
                    (long long)n->self->board.number_from + offset);
}

/* Logs how the clock of the board drifts, once it is known. */
static void watch_clock(struct ros_node *r)
{
        const struct board_clock *c = r->slicer    ? slicer_clock(r->slicer)
                                      : r->matcher ? matcher_clock(r->matcher)
                                                   : NULL;
        const char *of = r->matcher ? "the trigger box" : "this machine";

        if (!c || !c->known || r->clock_logged)
                return;
        r->clock_logged = true;
        if (fabs(c->drift) - c->error >= TICK_WRONG)
                log_warning(
                        "front-end: the clock of its board gains %+.0f ppm on that of %s; is ros.tick right?",
                        c->drift * 1e6, of);
        else
                log_info(
                        "front-end: the clock of its board gains %+.1f ppm (within about %.1f) on that of %s",
                        c->drift * 1e6, c->error * 1e6, of);
}

/* Logs when the times of frames fit those of triggers, and which frames are uncertain. */
static void watch_matches(struct ros_node *r)
{
        const struct matcher_counts *c;
        bool is_aligned;

        if (!r->matcher)
                return;
        c = matcher_counts(r->matcher);
        is_aligned = matcher_is_aligned(r->matcher);
        if (is_aligned && !r->was_aligned)
                log_info("front-end: the times of its frames fit those of the triggers");
        else if (!is_aligned && r->was_aligned)
                log_warning("front-end: the times of its frames do not fit those of the triggers any more; "
                            "the offset of its clock is searched again");
        r->was_aligned = is_aligned;
        if (is_news(c->doubled, &r->doubled_logged))
                log_warning("front-end: a frame fits the time of trigger %" PRIu64
                            ", to which an earlier frame belongs, and is discarded; %" PRIu64
                            " such frames so far",
                            c->doubled_number, c->doubled);
        if (is_news(c->ambiguous, &r->ambiguous_logged))
                log_warning("front-end: the frame in the event of trigger %" PRIu64
                            " fits the time of another trigger, too; %" PRIu64 " such frames so far",
                            c->ambiguous_number, c->ambiguous);
}

/* Receives frames, and passes the state of the front-end to the core, which reports it to the DFM. */
static void turn_front_end(const struct node *n, struct ros_node *r, uint64_t now_ns)
{
        const struct scenario *s = n->scenario;
        struct node_obstacle o = ros_obstacle(r->core);
        uint64_t down_since_ns, hungry_ns;

        trigger_times_turn(r->times, now_ns);
        front_end_turn(r->front_end, now_ns);
        ros_expire(r->core, now_ns);
        watch_step(r, now_ns);
        watch_discarded(r);
        watch_offset(n, r);
        watch_clock(r);
        watch_matches(r);
        down_since_ns = front_end_down_since_ns(r->front_end);
        hungry_ns = ros_hungry_since_ns(r->core);
        /* A board that breaks each connection counts as silent, like a board without a connection. */
        if (down_since_ns > 0)
                o = (struct node_obstacle){.reason = REASON_NO_FRONT_END,
                                           .since_ns = hungry_ns > 0 ? MIN(down_since_ns, hungry_ns)
                                                                     : down_since_ns};
        else if (r->out_of_step_ns > 0)
                o = (struct node_obstacle){.reason = REASON_OUT_OF_STEP, .since_ns = r->out_of_step_ns};
        else if (hungry_ns > 0 && now_ns - hungry_ns >= EVB_SILENT_KEEP_ALIVES * s->dfm.keep_alive_ns &&
                 !(r->matcher && matcher_is_searching(r->matcher)))
                o = (struct node_obstacle){.reason = REASON_SILENT, .since_ns = hungry_ns};
        else if (ros_blames_front_end(o.reason))
                o = (struct node_obstacle){};
        ros_set_obstacle(r->core, &o);
        ros_set_quiet(r->core, front_end_is_quiet(r->front_end, now_ns));
        if (front_end_is_unreliable(r->front_end) || (r->matcher && matcher_is_unreliable(r->matcher)))
                ros_set_unreliable(r->core);
}

/* Reports to the SFIs, through the core, the packets that the ROS's own shaping has dropped. */
static void record_drops(const struct node *n, struct ros_node *r)
{
        uint64_t dropped = stats_get(&n->stats->packets_source_dropped);

        if (dropped == r->dropped)
                return;
        r->dropped = dropped;
        for (unsigned i = 0; i < n->scenario->sfi.count; i++)
                ros_set_dropped(r->core, i, shaping_dropped(r->shaping, i));
}

/* Frames that arrived while the process was suspended have not been read yet. */
static void record_absence(struct node *n, struct ros_node *r, uint64_t now_ns)
{
        uint64_t away_ns = node_absence_ns(n, now_ns, "the DFM and of frames");

        if (away_ns > 0)
                ros_was_paused(r->core, now_ns, away_ns);
}

/* Whether the ROS does not join yet, as frames from before the run would be taken for frames of the run. */
static bool waits_for_earlier_frames(const struct ros_node *r)
{
        return r->front_end && front_end_is_between(r->front_end);
}

static int take_turn(struct node *n, uint64_t now_ns)
{
        struct ros_node *r = n->state;
        int k;

        record_absence(n, r, now_ns);
        if (r->front_end)
                turn_front_end(n, r, now_ns);
        settle_count(r, now_ns);
        forget_gone(n, r);
        r->sender.pace_bps = shaping_pace_bps(r->shaping);
        k = r->sender.ops->turn(&r->sender, now_ns, &r->more);
        if (k >= 0 && r->regions)
                k = region_server_turn(r->regions, now_ns);
        if (k < 0)
                return k;
        say_farewell(n, r, now_ns);
        shaping_turn(r->shaping, r->core);
        record_drops(n, r);
        path_probe_turn(r->probe, r->core, now_ns);
        if (!waits_for_earlier_frames(r))
                node_send_due(n, r->core, step, now_ns);
        return 0;
}

static uint64_t next_deadline_ns(struct node *n)
{
        struct ros_node *r = n->state;
        uint64_t deadline_ns = r->more                       ? 0
                               : waits_for_earlier_frames(r) ? NEVER_NS
                                                             : ros_deadline_ns(r->core);

        if (r->front_end)
                deadline_ns = MIN(deadline_ns, front_end_deadline_ns(r->front_end));
        deadline_ns = MIN(deadline_ns, trigger_times_deadline_ns(r->times));
        deadline_ns = MIN(deadline_ns, region_server_deadline_ns(r->regions));
        deadline_ns = MIN(deadline_ns, path_probe_deadline_ns(r->probe));
        if (r->farewells < FAREWELLS)
                deadline_ns = MIN(deadline_ns, MAX(leave_ns(n), r->farewell_ns));
        else
                deadline_ns = MIN(deadline_ns, r->farewell_ns);
        return MIN(deadline_ns, r->sender.ops->deadline_ns(&r->sender));
}

static void stop_role(struct node *n, uint64_t now_ns)
{
        struct ros_node *r = n->state;

        ros_stop(r->core, now_ns);
        r->stopped_ns = now_ns;
}

static bool is_done(struct node *n, uint64_t now_ns)
{
        struct ros_node *r = n->state;

        return r->farewells == FAREWELLS && now_ns >= r->farewell_ns;
}

static enum run_state state_of_run(const struct node *n)
{
        return ros_run_state(((struct ros_node *)n->state)->core);
}

static void publish_counters(struct node *n)
{
        struct ros_node *r = n->state;
        struct node_stats *s = n->stats;

        ros_record_obstacle(r->core, &r->sender, clock_now_ns());
        stats_copy_ros(s, r->core);
        account_collected(n, r);
        region_server_account(r->regions);
        metrics_record_ros(n->metrics, r->core, n->run, r->probe ? path_probe_failed(r->probe) : 0);
        /* The node is done, so it can wait for the kernel's last counters now. */
        if (is_done(n, clock_now_ns()))
                shaping_settle(r->shaping);
}

struct shaping *node_shaping(const struct node *n)
{
        return ((struct ros_node *)n->state)->shaping;
}

static const struct member *own_member(const struct node *n)
{
        return ros_member(((struct ros_node *)n->state)->core);
}

static void add_reasons(const struct node *n, struct reasons *to)
{
        const struct ros_node *r = n->state;

        add_frame_reasons(n, to);
        if (r->source)
                source_reasons(r->source, to);
        if (shaping_fell_short(r->shaping))
                reasons_add(to, "its traffic was not shaped at the end");
        path_probe_reasons(r->probe, to);
}

const struct node_kind node_ros = {
        .open = open_role,
        .receive = receive_message,
        .turn = take_turn,
        .deadline_ns = next_deadline_ns,
        .stop = stop_role,
        .is_done = is_done,
        .account = publish_counters,
        .state = state_of_run,
        .member = own_member,
        .work = ros_work,
        .explain = ros_explain,
        .close = close_role,
        .reasons = add_reasons,
};
