/* Runs the SFI as a process: connects its core and buffer with a data receiver and the builder. */
#include "core/sfi.h"

#include <errno.h>
#include <string.h>
#include <sys/epoll.h>

#include "base/log.h"
#include "base/util.h"
#include "data/builder.h"
#include "data/data_receive.h"
#include "data/run_file.h"
#include "node/role_config.h"
#include "sys/memory.h"
#include "machine.h"
#include "progress/progress.h"
#include "node_internal.h"
#include "node_report.h"

/* After everything else is done, the SFI waits at most this long for the totals of the ROSs. */
#define TOTALS_NS (250 * NS_PER_MS)
/* Interval at which the SFI checks whether the record of the run has been written. */
#define RECORD_NS (2 * NS_PER_MS)
/* After the end of the run, an SFI repeats its Updates for this time to a DFM that does not acknowledge
 * them. */
#define ACKNOWLEDGE_NS (2 * NS_PER_S)
/* A stopped SFI leaves a continuing run when it has received no event for this many keep-alives: the DFM has
 * then received the stop. */
#define QUIET_KEEP_ALIVES 5
/* Maximum number of farewells to a DFM that still counts this SFI as present. */
#define FAREWELLS_MOST 100
struct sfi_node {
        struct sfi *core;
        uint8_t *buffer;
        struct data_receiver receiver;
        struct builder *builder;
        struct loop_io builder_io;
        uint32_t waiting; /* number of slots in the builder */
        bool opened;      /* the builder has opened its files */
        bool more;
        bool failed;
        bool follows_losses; /* the SFI reports losses at its port to the ROSs */
        bool reduced;        /* the ROSs send at less than the planned rate */
        uint64_t drained_ns; /* NEVER_NS: not yet */
        uint64_t stopped_ns; /* NEVER_NS: not stopped */
        /* After a stop: number of events assigned so far, and the time of the last one. */
        uint64_t assigned, quiet_since_ns;
        bool sealing, closed;
        int farewells;
        uint64_t farewell_ns;
        struct message message; /* scratch memory, used for one message at a time */
};

static void builder_is_ready(void *ctx, uint32_t events)
{
        (void)ctx;
        (void)events; /* take_turn() collects slots */
}

static int watch_builder(struct node *n, struct sfi_node *s)
{
        int fd = builder_fd(s->builder);

        if (fd < 0)
                return 0;
        s->builder_io = (struct loop_io){.fd = fd, .events = EPOLLIN, .ready = builder_is_ready, .ctx = s};
        return loop_add(n->loop, &s->builder_io);
}

static int open_role(struct node *n)
{
        const struct scenario *sc = n->scenario;
        struct sfi_node *s = calloc(1, sizeof *s);
        struct data_context context = node_data_context(n);
        struct ros_rule rules[EVB_ROS_MAX];
        struct sfi_config config;
        int r;

        if (!s)
                return log_error_errno(ENOMEM, "sfi: %m");
        n->state = s;
        s->drained_ns = s->stopped_ns = NEVER_NS;
        role_ros_rules(sc, rules);
        config = role_sfi_config(sc, n->self, rules);
        config.member = n->member;
        s->follows_losses = config.follows_losses;
        s->buffer = memory_map(sc->sfi.buffer_size_bytes);
        if (!s->buffer)
                return machine_no_memory("sfi.buffer-size", sc->sfi.buffer_size_bytes);
        s->receiver = (struct data_receiver){
                .ops = sc->scenario.transport == TRANSPORT_TCP ? &data_receive_tcp : &data_receive_udp,
                .context = context,
                .buffer = s->buffer,
        };
        r = builder_check(&context);
        /* Between runs, the problem can be corrected; otherwise, the next run fails at its beginning. */
        if (r >= 0 || n->has_served)
                r = s->receiver.ops->open(&s->receiver);
        if (r < 0)
                return r;
        config.room_bytes = s->receiver.ops->room_bytes(&s->receiver);
        r = sfi_new(&s->core, &config, clock_now_ns());
        if (r < 0)
                return log_error_errno(r, "sfi: %m");
        s->receiver.core = n->core = s->core;
        r = builder_new(&s->builder, &context, &n->files, s->core, s->buffer, config.slots);
        return r < 0 ? r : watch_builder(n, s);
}

static bool run_continues(enum run_state state)
{
        return state == RUN_RUNNING || state == RUN_DRAINING;
}

static void fail(struct sfi_node *s, uint64_t now_ns, int error)
{
        if (!s->failed)
                sfi_record_failure(s->core, now_ns, error);
        s->failed = true;
}

/* Writes the record that contains the names of the nodes, for readers of the growing files. The record is
 * written before the files, so a reader who finds a file also finds the record. */
static int begin_record(const struct node *n, const char *core, char path[static RUN_FILE_PATH_MAX])
{
        json_auto_t *metadata = scenario_metadata_to_json(n->metadata, n->n_metadata);
        struct run_file f = {.scenario = n->scenario, .run = n->run, .core = core, .metadata = metadata};

        return n->scenario->sfi.output == OUTPUT_FILE ? run_file_begin(&f, path) : 0;
}

/* Files carry the run number, which is final when the run begins. No event is built before that. */
static void open_files(struct node *n, struct sfi_node *s, uint64_t now_ns)
{
        const struct metadata_set *metadata = sfi_metadata(s->core);
        char core[RUN_FILE_PATH_MAX - 16], path[RUN_FILE_PATH_MAX];
        int r, begun;

        if (s->opened || s->failed || !metadata || !member_is_joined(sfi_member(s->core)) ||
            (!run_continues(sfi_run_state(s->core)) && sfi_open_events(s->core) == 0))
                return;
        n->run = sfi_member(s->core)->run;
        node_add_metadata(n, metadata);
        run_file_make_core(n->scenario, n->self, n->run, core, sizeof core);
        begun = begin_record(n, core, path);
        r = builder_open_files(s->builder, n->run, n->metadata, n->n_metadata);
        s->opened = r >= 0;
        if (r < 0) {
                run_file_remove_begun(core);
                fail(s, now_ns, r);
        } else if (begun < 0)
                log_warning(
                        "cannot write %s: %s; readers do not know the names of the ROSs until the run ends",
                        path, strerror(-begun));
}

static void close_role(struct node *n)
{
        struct sfi_node *s = n->state;

        builder_free(s->builder);
        if (s->receiver.ops)
                s->receiver.ops->close(&s->receiver);
        sfi_free(s->core);
        memory_unmap(s->buffer, n->scenario->sfi.buffer_size_bytes);
        free(s);
}

static void receive_message(struct node *n, uint64_t now_ns, const struct message *m)
{
        struct sfi_node *s = n->state;

        if (!sfi_receive(s->core, now_ns, m) && m->header.sender_role == ROLE_SFI)
                stats_add(&n->stats->packets_malformed, 1);
}

/* For sfi.slow-disk = drop: whether the disk delays half of the credits. The other half is enough for
 * triggers to continue. */
static bool is_disk_slow(const struct node *n, const struct sfi_node *s)
{
        return n->scenario->sfi.slow_disk == SLOW_DISK_DROP && n->scenario->sfi.output == OUTPUT_FILE &&
               sfi_run_state(s->core) == RUN_RUNNING && s->waiting >= DIV_ROUND_UP(sfi_credits(s->core), 2);
}

/* Returns finished slots to the core. */
static void collect(struct sfi_node *s, uint64_t now_ns)
{
        struct builder_done done[256];
        size_t k;

        while ((k = builder_collect(s->builder, done, ARRAY_SIZE(done))) > 0) {
                s->waiting -= (uint32_t)k;
                for (size_t i = 0; i < k; i++) {
                        sfi_written(s->core, now_ns, done[i].slot, done[i].failed || done[i].is_lost);
                        if (done[i].failed)
                                fail(s, now_ns, builder_error(s->builder));
                }
        }
}

static bool drop(struct node *n, struct sfi_node *s, uint64_t now_ns, uint32_t slot)
{
        struct sfi_built built;

        if (!is_disk_slow(n, s))
                return false;
        sfi_built_event(s->core, slot, &built);
        if (built.end == EVENT_LOST)
                return false;
        sfi_written(s->core, now_ns, slot, true);
        stats_add(&n->stats->events_not_written, 1);
        return true;
}

/* Moves built events to the builder, and collects the events that it has finished. */
static void build(struct node *n, struct sfi_node *s, uint64_t now_ns)
{
        uint32_t slots[256];
        size_t k;

        /* Before the run starts, events may come before the news of its start. */
        builder_limit_waits(s->builder, sfi_run_state(s->core) > RUN_RUNNING || s->stopped_ns != NEVER_NS);
        collect(s, now_ns);
        do {
                k = sfi_pop_built(s->core, slots, ARRAY_SIZE(slots));
                for (size_t i = 0; i < k; i++) {
                        if (drop(n, s, now_ns, slots[i]))
                                continue;
                        builder_accept(s->builder, slots[i]);
                        s->waiting++;
                }
                if (k > 0)
                        builder_kick(s->builder);
        } while (k == ARRAY_SIZE(slots));
        collect(s, now_ns);
}

/* Without files, all events count as lost. */
static void lose_built(struct sfi_node *s, uint64_t now_ns)
{
        uint32_t slots[256];
        size_t k;

        while ((k = sfi_pop_built(s->core, slots, ARRAY_SIZE(slots))) > 0) {
                for (size_t i = 0; i < k; i++)
                        sfi_written(s->core, now_ns, slots[i], true);
        }
}

static void send_due(struct node *n, struct sfi_node *s, uint64_t now_ns)
{
        struct message *m = &s->message;
        struct message_to to;

        while (sfi_step(s->core, now_ns, &to, m)) {
                if (m->header.type == MESSAGE_REQUEST && s->receiver.ops->request)
                        s->receiver.ops->request(&s->receiver, to, m);
                else
                        control_send(&n->control, to, m, n->self->index);
        }
        control_flush(&n->control);
}

/* Seals the files once the totals of all ROSs have arrived or timed out, which may take many turns. True: the
 * files are sealed. */
static bool seal(struct node *n, struct sfi_node *s, uint64_t now_ns)
{
        bool ended = sfi_run_state(s->core) == RUN_ENDED;
        int r;

        if (!s->sealing) {
                if (ended && !sfi_has_totals(s->core) && now_ns - s->drained_ns < TOTALS_NS)
                        return false;
                sfi_expect_no_datagrams(s->core);
                builder_seal(s->builder);
                s->sealing = n->is_sealing = true;
        }
        if (!builder_is_sealed(s->builder, &r))
                return false;
        if (r < 0)
                fail(s, now_ns, r);
        n->is_sealing = false;
        return true;
}

static uint64_t leave_ns(const struct node *n, const struct sfi_node *s)
{
        return node_leave_ns(n, s->stopped_ns, sfi_member(s->core)->received_ns, sfi_run_state(s->core));
}

static uint64_t quiet_ns(const struct node *n, const struct sfi_node *s)
{
        return s->quiet_since_ns + QUIET_KEEP_ALIVES * n->scenario->dfm.keep_alive_ns;
}

/* Whether all events are built, and either the run has ended or the SFI was stopped and expects no more
 * events. */
static bool may_leave(const struct node *n, struct sfi_node *s, uint64_t now_ns)
{
        if (sfi_run_state(s->core) == RUN_ENDED || s->stopped_ns == NEVER_NS)
                return sfi_is_drained(s->core);
        if (now_ns >= leave_ns(n, s))
                return true;
        if (s->assigned != sfi_event_counts(s->core)->assigned) {
                s->assigned = sfi_event_counts(s->core)->assigned;
                s->quiet_since_ns = now_ns;
        }
        return sfi_is_drained(s->core) && sfi_run_state(s->core) == RUN_RUNNING && now_ns >= quiet_ns(n, s);
}

static bool awaits_acknowledgement(const struct sfi_node *s, uint64_t now_ns)
{
        return sfi_run_state(s->core) == RUN_ENDED && sfi_member(s->core)->refusal == WELCOME_OK &&
               now_ns - s->drained_ns < ACKNOWLEDGE_NS && sfi_unacknowledged(s->core) > 0;
}

/* Whether all farewells were sent, and the DFM has acknowledged them or is not expected to do so. */
static bool has_said_farewell(const struct sfi_node *s, uint64_t now_ns)
{
        return s->farewells >= FAREWELLS &&
               (s->farewells >= FAREWELLS_MOST || !sfi_is_awaited(s->core, now_ns));
}

/* If writing the record fails, this must be reported to the DFM, so the record is written before the
 * farewell. */
static bool is_recorded(struct node *n, struct sfi_node *s, uint64_t now_ns)
{
        int r = report_write_run_file(n, false);

        n->is_sealing = r == -EAGAIN;
        if (n->is_sealing)
                s->farewell_ns = now_ns + RECORD_NS;
        else if (r < 0)
                fail(s, now_ns, r);
        return !n->is_sealing;
}

/* What the SFI found itself. */
static void add_faults(const struct node *n, struct reasons *to)
{
        const struct sfi_node *s = n->state;
        uint64_t dropped = stats_get(&n->stats->events_not_written);

        builder_reasons(s->builder, to);
        if (dropped > 0)
                reasons_add(to, "it dropped %llu built events because the disk was slow (sfi.slow-disk)",
                            (unsigned long long)dropped);
        if (sfi_counts(s->core).mismatched > 0)
                reasons_add(to, "it refused %llu fragments of other triggers than their events",
                            (unsigned long long)sfi_counts(s->core).mismatched);
        if (sfi_counts(s->core).starved > 0)
                reasons_add(to, "it had no memory for fragments of %llu events (sfi.buffer-size)",
                            (unsigned long long)sfi_counts(s->core).starved);
        if (s->failed && to->n == 0)
                reasons_add(to, "its output failed");
}

/* The DFM may count all events of this SFI as complete. */
static void report_faults(const struct node *n, struct sfi_node *s)
{
        struct reasons found = {};

        add_faults(n, &found);
        if (found.n > 0)
                sfi_set_faulty(s->core);
}

/* Informs the DFM that the files are sealed; then the SFI leaves. */
static void say_farewell(struct node *n, struct sfi_node *s, uint64_t now_ns)
{
        if (s->drained_ns == NEVER_NS && may_leave(n, s, now_ns))
                s->drained_ns = now_ns;
        if (s->drained_ns == NEVER_NS || now_ns < s->farewell_ns || has_said_farewell(s, now_ns))
                return;
        s->closed = s->closed || seal(n, s, now_ns);
        if (!s->closed)
                return;
        s->farewell_ns = now_ns + FAREWELL_NS;
        if (s->farewells == 0 && (awaits_acknowledgement(s, now_ns) || !is_recorded(n, s, now_ns)))
                return;
        report_faults(n, s);
        sfi_set_ended(s->core, now_ns);
        s->farewells++;
}

/* Logs the beginning and the end of a reduction. */
static void follow_reduction(struct node *n, struct sfi_node *s, uint64_t now_ns)
{
        const struct port_rate *p = sfi_port_rate(s->core);

        if (!s->follows_losses)
                return;
        /* The core will now evaluate an interval. */
        if (now_ns >= p->look_ns) {
                s->receiver.ops->account(&s->receiver);
                sfi_set_socket_drops(s->core, stats_get(&n->stats->packets_socket_dropped));
        }
        if (s->reduced == (p->permille < PORT_RATE_FULL))
                return;
        s->reduced = !s->reduced;
        if (s->reduced)
                log_warning("%llu packets were lost at this SFI's port although the plan allows no loss: "
                            "other traffic, or a slower switch; the ROSs reduce their rate to %u %% of the "
                            "planned rate",
                            (unsigned long long)(p->lost - p->lost_before), p->permille / 10);
        else
                log_warning("the ROSs send at the planned rate again, after %.1f s of a rate reduced down to "
                            "%u %%, with %llu packets lost",
                            (double)(now_ns - p->since_ns) / (double)NS_PER_S, p->least / 10,
                            (unsigned long long)(p->lost - p->lost_before));
}

/* Fragments that arrived while the process was suspended have not been read yet, so the timeouts are
 * extended. */
static void record_absence(struct node *n, struct sfi_node *s, uint64_t now_ns)
{
        uint64_t away_ns = node_absence_ns(n, now_ns, "the DFM and of events");

        if (away_ns > 0)
                sfi_was_paused(s->core, now_ns, away_ns);
}

static int take_turn(struct node *n, uint64_t now_ns)
{
        struct sfi_node *s = n->state;
        int r;

        open_files(n, s, now_ns);
        record_absence(n, s, now_ns);
        builder_woken(s->builder);
        r = s->receiver.ops->turn(&s->receiver, now_ns, &s->more);
        if (r < 0)
                return r;
        if (s->opened)
                build(n, s, now_ns);
        else if (s->failed)
                lose_built(s, now_ns);
        say_farewell(n, s, now_ns);
        follow_reduction(n, s, now_ns);
        send_due(n, s, now_ns);
        builder_prepare_wait(s->builder);
        s->more |= builder_has_done(s->builder);
        return 0;
}

static uint64_t next_deadline_ns(struct node *n)
{
        struct sfi_node *s = n->state;
        uint64_t deadline_ns = s->more ? 0 : sfi_deadline_ns(s->core);

        if (s->receiver.ops->is_holding && s->receiver.ops->is_holding(&s->receiver))
                deadline_ns = MIN(deadline_ns, loop_now_ns(n->loop) + NS_PER_MS);
        if (s->drained_ns != NEVER_NS && (s->closed || !s->sealing))
                deadline_ns = MIN(deadline_ns, s->closed ? s->farewell_ns : s->drained_ns + TOTALS_NS);
        if (s->drained_ns != NEVER_NS || s->stopped_ns == NEVER_NS)
                return deadline_ns;
        if (sfi_is_drained(s->core) && sfi_run_state(s->core) == RUN_RUNNING)
                deadline_ns = MIN(deadline_ns, quiet_ns(n, s));
        return MIN(deadline_ns, leave_ns(n, s));
}

static void stop_role(struct node *n, uint64_t now_ns)
{
        struct sfi_node *s = n->state;

        sfi_stop(s->core, now_ns);
        s->stopped_ns = s->quiet_since_ns = now_ns;
}

static bool is_done(struct node *n, uint64_t now_ns)
{
        struct sfi_node *s = n->state;

        return now_ns >= s->farewell_ns && has_said_farewell(s, now_ns);
}

static enum run_state state_of_run(const struct node *n)
{
        return sfi_run_state(((struct sfi_node *)n->state)->core);
}

static void publish_counters(struct node *n)
{
        struct sfi_node *s = n->state;
        struct node_stats *to = n->stats;

        if (s->receiver.ops->account)
                s->receiver.ops->account(&s->receiver);
        stats_copy_sfi(to, s->core);
        stats_set(&to->reduced_ns, port_rate_below_ns(sfi_port_rate(s->core), clock_now_ns()));
        if (n->scenario->scenario.transport == TRANSPORT_UDP)
                stats_take_datagrams(to, s->core);
        metrics_record_sfi(n->metrics, s->core, n->run, s->waiting);
}

static const struct member *own_member(const struct node *n)
{
        return sfi_member(((struct sfi_node *)n->state)->core);
}

static void add_reasons(const struct node *n, struct reasons *to)
{
        const struct sfi_node *s = n->state;
        uint64_t unacknowledged = sfi_unacknowledged(s->core);

        add_faults(n, to);
        if (unacknowledged > 0)
                reasons_add(to,
                            "the DFM did not acknowledge %llu of its events: files of other SFIs may hold "
                            "them too",
                            (unsigned long long)unacknowledged);
}

const struct node_kind node_sfi = {
        .open = open_role,
        .receive = receive_message,
        .turn = take_turn,
        .deadline_ns = next_deadline_ns,
        .stop = stop_role,
        .is_done = is_done,
        .account = publish_counters,
        .state = state_of_run,
        .member = own_member,
        .work = sfi_work,
        .explain = sfi_explain,
        .close = close_role,
        .reasons = add_reasons,
};
