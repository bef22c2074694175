/* Runs the DFM as a process: passes messages and the time to its core, logs its nodes, records its runs. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/strbuf.h"
#include "base/util.h"
#include "core/dfm.h"
#include "data/run_file.h"
#include "data/trigger_input.h"
#include "data/level2_server.h"
#include "node/role_config.h"
#include "store/replay.h"
#include "sys/thread.h"
#include "progress/progress.h"
#include "dfm_reasons.h"
#include "machine.h"
#include "node_internal.h"
#include "last_run.h"
#include "processes_file.h"
#include "log/roster.h"
#include "log/run_log.h"
#include "run_control/run_control.h"
#include "run_control/state_json.h"
#include "run_record.h"

#define LATENCY_COPY_NS (200 * NS_PER_MS)

/* The DFM logs a wait for nodes that is longer than this. */
#define WAIT_LOG_NS (2 * NS_PER_S)
/* If the wall clock is set by more than this, or the machine is suspended for longer, this is logged as
 * well. */
#define STEP_LOG_NS NS_PER_S

/* Delay before another attempt to store the record of the run. */
#define PROCESSES_RETRY_NS NS_PER_S

struct dfm_role {
        struct dfm *core;
        struct trigger_input *input; /* NULL: the DFM makes its triggers itself */
        struct busy_output *busy;    /* NULL: not configured */
        struct run_record record;
        struct last_run last_run;
        struct {
                char path[RUN_LIST_PATH_MAX];
                bool has_begin, has_stop, has_failed;
                bool was_stopped; /* an earlier DFM recorded a stop of this run */
        } list;
        struct processes_file processes;
        uint64_t processes_version,
                processes_retry_ns; /* version: version of the stored record; processes_retry_ns: after a
                                       failure, when to try again */
        uint64_t wait_log_ns;
        uint64_t utc_offset_ns;  /* wall clock minus the time since the machine started, at the beginning of
                                    the run */
        uint64_t boot_offset_ns; /* time since the machine started minus the monotonic clock: the sum of all
                                    suspensions */
        bool recorded, stage_recorded, step_logged, wait_logged;
        enum run_stage stage;        /* stage in the record, if stage_recorded */
        char cause[REASON_TEXT_MAX]; /* fault in the record */
        struct dfm_end end;
        struct level2_server *level2; /* NULL: none */
        struct replay *replay;        /* event headers, if all ROSs replay files; NULL: none */
        uint64_t latency_copied_ns;
        struct idle idle;
        uint64_t give_up_ns; /* after a stop: time at which the DFM abandons open events */
};

static void replay_info(void *ctx, uint64_t event, struct event_info *ret)
{
        replay_pass_info(ctx, event, ret);
}

static int open_replay(struct dfm_role *d, const struct scenario *s, struct dfm_config *config)
{
        const char *file = scenario_replayed_file(s);
        char text[ERROR_TEXT_MAX];
        struct error e = {};
        int r;

        if (!file)
                return 0;
        r = replay_open(&d->replay, file, &e);
        if (r < 0)
                return machine_path_error(log_error_errno(r, "ros.source: %s", error_format(&e, text)));
        config->info = replay_info;
        config->info_ctx = d->replay;
        return 0;
}

/* The previous DFM's record is needed only if its run continues. */
static int open_processes(struct dfm_role *d, struct dfm_config *config)
{
        int r = processes_file_open(&d->processes, d->record.path);

        if (r < 0)
                return log_error_errno(r, "dfm: %m");
        config->previous_processes = d->processes.processes;
        if (config->previous.known && config->previous.cookie == 0)
                return 0;
        r = processes_file_read(&d->processes);
        if (r < 0 && r != -ENOENT)
                log_warning_errno(r,
                                  "cannot read the record of the last run from %s: %m; if that run "
                                  "continues, its report will say that the record was missing",
                                  d->processes.path);
        return 0;
}

/* Without a record, a restarted DFM relies on the nodes, and may resume a run that has ended. */
static int open_record(struct node *n, struct dfm_role *d, struct dfm_config *config)
{
        int r = run_record_open(&d->record, n->self->address, (unsigned)n->scenario->network.control_port);
        struct run_previous previous;

        if (r < 0)
                log_warning_errno(r,
                                  "cannot store the state of the run in %s: %m; a restarted DFM cannot find "
                                  "out whether this run has ended",
                                  d->record.path);
        previous = run_record_previous(&d->record);
        /* This process has ended its last run, even if it failed to record the end. */
        if (n->runs > 0)
                previous = (struct run_previous){.dfm.known = true};
        config->previous = previous.dfm;
        config->follows = n->runs > 0;
        d->list.was_stopped = previous.dfm.stopped;
        run_list_path(d->record.path, d->list.path);
        last_run_open(&d->last_run, n, &previous, config->duration_ns > 0);
        if (previous.is_damaged)
                log_warning("%s is damaged, so the state of the last run is unknown", d->record.path);
        return r < 0 ? 0 : open_processes(d, config);
}

/* A run that is resumed has its number already, so a DFM that may resume one also starts without a number. */
static int claim_next(struct dfm_config *config)
{
        int r = run_record_claim_number(&config->run, true);

        if (r >= 0 || (config->previous.known && config->previous.cookie == 0))
                return r;
        log_warning("without a run number, this DFM can only continue the last run");
        return 0;
}

/* Chooses the run number: the configured one, the number of the replayed file, or a new one. */
static int choose_number(struct node *n, struct dfm_role *d, struct dfm_config *config)
{
        const struct scenario *s = n->scenario;

        config->run = (uint32_t)s->run.number;
        config->run_is_free = config->run == 0;
        if (s->run.number == SCENARIO_NEXT)
                return claim_next(config);
        if (config->run == 0 && d->replay)
                config->run = replay_run(d->replay);
        n->number_is_fixed = config->run != 0;
        return config->run != 0 ? 0 : run_record_claim_number(&config->run, false);
}

static int choose_run(struct node *n, struct dfm_role *d, struct dfm_config *config)
{
        int r = 0;

        config->run = 1;
        if (n->check_only)
                return 0;
        /* Under `evb run` the DFM and its nodes end together, so no earlier run can continue. */
        if (getenv(NODE_STATS_ENV))
                config->previous.known = true;
        else
                r = open_record(n, d, config);
        if (r >= 0)
                r = choose_number(n, d, config);
        n->run = config->run;
        return r;
}

static int open_triggers(struct node *n, struct dfm_role *d)
{
        const struct data_context context = node_data_context(n);
        int r = 0;

        /* Triggers from outside do not wait, so the busy signal gets priority over other work if possible. */
        if (strcmp(n->scenario->trigger.busy_to, "none") != 0 && priority_prefer() < 0)
                log_info("trigger.busy-to: not permitted to raise the priority; set Nice=-20 in the unit");

        if (n->scenario->trigger.source_kind == TRIGGER_UDP)
                r = trigger_input_new(&d->input, &context, d->core);
        if (r >= 0 && strcmp(n->scenario->trigger.busy_to, "none") != 0)
                r = busy_output_new(&d->busy, &context);
        return r < 0 ? r : level2_server_new(&d->level2, &context, d->core, n->member.incarnation);
}

static int open_role(struct node *n)
{
        const struct scenario *s = n->scenario;
        struct dfm_role *d = calloc(1, sizeof *d);
        uint64_t now_ns = clock_now_ns();
        struct ros_rule rules[EVB_ROS_MAX];
        struct dfm_config config;
        int r;

        if (!d)
                return log_error_errno(ENOMEM, "dfm: %m");
        n->state = d;
        d->record.fd = -1;
        d->wait_log_ns = now_ns + WAIT_LOG_NS;
        d->give_up_ns = NEVER_NS;
        role_ros_rules(s, rules);
        config = role_dfm_config(s, rules);
        config.incarnation = n->member.incarnation;
        config.keys = n->member.keys;
        r = open_replay(d, s, &config);
        if (r >= 0)
                r = node_draw_number(&config.cookie);
        if (r < 0)
                return r;
        r = choose_run(n, d, &config);
        if (r < 0)
                return r;
        r = dfm_new(&d->core, &config, now_ns);
        n->core = d->core;
        if (r < 0)
                return log_error_errno(r, "dfm: %m");
        run_control_prepare(n->control_of_runs, d->core);
        return open_triggers(n, d);
}

static int record_run(struct dfm_role *d, enum run_stage stage)
{
        return run_record_write(&d->record, dfm_run(d->core), dfm_cookie(d->core),
                                dfm_age_ns(d->core, clock_now_ns()), stage, d->cause);
}

/* ---- The list of runs ---- */

static void check_listed(struct dfm_role *d, int r)
{
        if (r < 0 && !d->list.has_failed)
                log_warning_errno(r, "%s: %m; evb ctl runs does not know all of run %u", d->list.path,
                                  dfm_run(d->core));
        d->list.has_failed |= r < 0;
}

static struct run_list_run listed_run(const struct dfm_role *d)
{
        return (struct run_list_run){dfm_run(d->core), dfm_cookie(d->core)};
}

static uint64_t began_utc_ns(const struct dfm_role *d)
{
        return clock_utc_ns() - dfm_age_ns(d->core, clock_now_ns());
}

static struct run_list_stop find_stop(const struct node *n, const struct dfm_role *d)
{
        static const char *const limits[] = {
                [RUN_LIMIT_NONE] = "unknown",
                [RUN_LIMIT_TRIGGERS] = "trigger.events",
                [RUN_LIMIT_DURATION] = "scenario.duration",
        };
        struct run_list_stop stop = n->stop;
        const char *how;

        if (d->cause[0]) {
                how = "fault";
                snprintf(stop.who, sizeof stop.who, "%s", d->cause);
        } else if (stop.how[0])
                return stop;
        else if (d->list.was_stopped && d->last_run.cookie == dfm_cookie(d->core))
                how = run_command_name(RUN_COMMAND_STOP);
        else
                how = limits[run_limit_reached(n)];
        snprintf(stop.how, sizeof stop.how, "%s", how);
        return stop;
}

static void list_run(struct node *n, struct dfm_role *d)
{
        if (d->record.fd < 0 || !dfm_has_begun(d->core))
                return;
        if (!d->list.has_begin) {
                d->list.has_begin = true;
                check_listed(d, run_list_add_begin(d->list.path, listed_run(d), began_utc_ns(d),
                                                   n->scenario->scenario.name));
        }
        if (!d->list.has_stop && dfm_state(d->core) >= RUN_DRAINING) {
                const struct run_list_stop stop = find_stop(n, d);

                d->list.has_stop = true;
                check_listed(d, run_list_add_stop(d->list.path, listed_run(d), &stop));
        }
}

/* Describes a pattern for the files of all SFIs; "": they write none. */
static void describe_files(const struct node *n, const struct dfm_role *d, char *text, size_t size_bytes)
{
        time_t began = (time_t)(began_utc_ns(d) / NS_PER_S);
        struct strbuf b = strbuf_init(text, size_bytes);
        char name[EVENT_FILE_TEXT_MAX];

        text[0] = '\0';
        if (n->scenario->sfi.output != OUTPUT_FILE)
                return;
        run_file_core_name(n->scenario, NULL, dfm_run(d->core), began, name, sizeof name);
        strbuf_add(&b, "%s/%s%s*.data", n->scenario->sfi.directory, name, run_file_separator(n->scenario));
}

static void list_end(const struct node *n, struct dfm_role *d)
{
        char files[SCENARIO_TEXT_MAX + 160];

        if (!d->list.has_begin)
                return;
        describe_files(n, d, files, sizeof files);
        check_listed(d, run_list_add_end(d->list.path, listed_run(d), run_outcome_name(run_outcome_of(n)),
                                         dfm_counts(d->core), &n->reasons, files));
}

static void close_role(struct node *n)
{
        struct dfm_role *d = n->state;

        /* The report of the run has been written. A stopped run has ended, even if not in time, so a
         * restarted DFM must not resume it. */
        if (d->core && d->stage_recorded && (d->stage >= RUN_STAGE_ENDED || d->give_up_ns != NEVER_NS)) {
                /* If a process ends by itself, an operator or the service manager starts the next one. */
                if (!n->goes_on)
                        d->cause[0] = '\0';
                /* The next DFM looks for a reported run in the list. */
                list_end(n, d);
                (void)record_run(d, RUN_STAGE_REPORTED);
        }
        processes_file_close(&d->processes);
        run_record_close(&d->record);
        trigger_input_free(d->input);
        busy_output_free(d->busy);
        level2_server_free(d->level2);
        dfm_free(d->core);
        replay_free(d->replay);
        free(d);
}

static void receive_message(struct node *n, uint64_t now_ns, const struct message *m)
{
        struct dfm_role *d = n->state;

        if (!dfm_receive(d->core, now_ns, m) && m->header.sender_role != ROLE_DFM)
                stats_add(&n->stats->packets_malformed, 1);
}

/* Call this before the first record: it continues the previous DFM's record if the run is the same. */
static void continue_run(struct node *n, struct dfm_role *d)
{
        const struct processes_counters *c = &d->processes.counters;
        bool is_first = !d->recorded;

        d->recorded = true;
        if (!is_first || d->processes.processes->cookie != dfm_cookie(d->core))
                return;
        node_add_metadata(n, &d->processes.processes->metadata);
#define X(name) stats_add(&n->stats->name, c->name);
        PROCESSES_FILE_COUNTERS(X)
#undef X
}

static void take_processes(struct node *n, struct dfm_role *d)
{
        dfm_processes_fill(d->core, d->processes.processes);
        d->processes.counters = (struct processes_counters){
#define X(counter) .counter = stats_get(&n->stats->counter),
                PROCESSES_FILE_COUNTERS(X)
#undef X
        };
}

/* Stores the record before any message that follows from a change is sent. Otherwise, a node could act on a
 * change that the next DFM does not find in the record. */
static void remember_processes(struct node *n, struct dfm_role *d, uint64_t now_ns)
{
        uint64_t version = dfm_processes_version(d->core);
        int r;

        if (version == d->processes_version || now_ns < d->processes_retry_ns || !d->processes.processes ||
            dfm_state(d->core) == RUN_ENDED)
                return;
        continue_run(n, d);
        take_processes(n, d);
        r = processes_file_write(&d->processes);
        if (r >= 0) {
                d->processes_version = version;
                d->processes_retry_ns = 0;
                return;
        }
        if (d->processes_retry_ns == 0)
                log_warning_errno(r,
                                  "%s: %m; the report of a DFM that restarts in this run will say that the "
                                  "record was missing",
                                  d->processes.path);
        d->processes_retry_ns = now_ns + PROCESSES_RETRY_NS;
}

/* Sends the busy signal before further messages. */
static bool step(void *node, uint64_t now_ns, struct message_to *ret_to, struct message *ret)
{
        struct node *n = node;
        struct dfm_role *d = n->state;
        bool is_made = dfm_step(d->core, now_ns, ret_to, ret);
        const struct busy_packet busy = dfm_busy(d->core);

        remember_processes(n, d, now_ns);
        busy_output_turn(d->busy, now_ns, &busy);
        return is_made;
}

/* Finds the fault that ends the run; "": none. */
static void find_cause(const struct node *n, const struct dfm_role *d, char cause[static REASON_TEXT_MAX])
{
        struct reasons faults = {};

        cause[0] = '\0';
        if (dfm_state(d->core) < RUN_DRAINING)
                return;
        if (n->ended_by_previous)
                reasons_add(&faults, "%s", d->last_run.cause);
        if (d->end.reason[0])
                reasons_add(&faults, "%s", d->end.reason);
        dfm_failed_outputs(d->core, n->scenario, &faults);
        snprintf(cause, REASON_TEXT_MAX, "%s", faults.text[0]);
}

static enum run_stage find_stage(const struct dfm *core, const char *cause)
{
        if (dfm_state(core) == RUN_ENDED)
                return dfm_has_begun(core) ? RUN_STAGE_ENDED : RUN_STAGE_REPORTED;
        return cause[0] || dfm_is_stopped(core) ? RUN_STAGE_STOPPED : RUN_STAGE_RUNNING;
}

static void log_unrecorded(const struct dfm_role *d, int error)
{
        log_warning_errno(error, "%s: %m; a restarted DFM may be unable to resume this run", d->record.path);
}

/* Whether the record must change. While a run is being resumed, only a stop changes the record. */
static bool has_news(const struct dfm_role *d)
{
        switch (dfm_state(d->core)) {
        case RUN_STARTING:
                return false;
        case RUN_RUNNING:
                return !d->stage_recorded || dfm_is_stopped(d->core);
        case RUN_DRAINING:
        case RUN_ENDED:
                break;
        }
        /* If a run has no end, its record is kept until another run begins. */
        return dfm_is_in_run(d->core) || (dfm_state(d->core) == RUN_ENDED && d->last_run.cookie == 0);
}

/* Records whether the run continues, stops or has ended, and why: a restarted DFM resumes only a run that has
 * not ended, and accepts no triggers for a run that stops. */
static void remember_run(struct node *n, struct dfm_role *d)
{
        bool ended = dfm_state(d->core) == RUN_ENDED;
        char cause[REASON_TEXT_MAX];
        enum run_stage stage;
        int r;

        if (!has_news(d))
                return;
        if (dfm_is_in_run(d->core) && !d->stage_recorded)
                n->ended_by_previous = last_run_begin(&d->last_run, dfm_cookie(d->core));
        find_cause(n, d, cause);
        stage = find_stage(d->core, cause);
        if (d->stage_recorded && stage == d->stage && strcmp(cause, d->cause) == 0)
                return;
        d->stage_recorded = true;
        d->stage = stage;
        strcpy(d->cause, cause);
        if (ended && d->processes.processes)
                processes_file_remove(&d->processes);
        if (d->record.fd < 0)
                return;
        r = record_run(d, stage);
        if (r < 0)
                log_unrecorded(d, r);
}

static void describe_wait(const struct node *n, char *text, size_t size_bytes)
{
        struct strbuf b = strbuf_init(text, size_bytes);

        roster_add_missing(n, "waiting for ", &b);
        if (b.length == 0)
                strbuf_add(&b, "all nodes are present");
}

static void log_wait(struct node *n, struct dfm_role *d, uint64_t now_ns)
{
        char text[512];

        if (d->wait_logged || now_ns < d->wait_log_ns || dfm_state(d->core) != RUN_STARTING)
                return;
        describe_wait(n, text, sizeof text);
        log_id(LOG_LEVEL_INFO, LOG_ID_WAITING, "%s", text);
        d->wait_logged = true;
}

/* A suspended process receives nothing, so the nodes must not count as silent for that time. If the whole
 * machine is suspended, the timeouts do not advance, because the monotonic clock stops. */
static void record_absence(struct node *n, struct dfm_role *d, uint64_t now_ns)
{
        uint64_t away_ns = node_absence_ns(n, now_ns, "nodes and events");

        if (away_ns > 0)
                dfm_was_paused(d->core, now_ns, away_ns);
}

/* The times of events follow the monotonic clock from the beginning of the run, so changes of the other
 * clocks are logged. */
static void log_clock(struct dfm_role *d, uint64_t utc_offset_ns, uint64_t boot_offset_ns)
{
        int64_t step_ns = (int64_t)(utc_offset_ns - d->utc_offset_ns);
        int64_t asleep_ns = (int64_t)(boot_offset_ns - d->boot_offset_ns);

        if (asleep_ns > (int64_t)STEP_LOG_NS) {
                log_warning("this machine was suspended for %.1f s during the run; the times of later events "
                            "are too early by that",
                            (double)asleep_ns / NS_PER_S);
                d->boot_offset_ns = boot_offset_ns;
        }
        if (!d->step_logged && (step_ns > (int64_t)STEP_LOG_NS || step_ns < -(int64_t)STEP_LOG_NS)) {
                log_warning("the clock was set by %+.1f s during the run; event times ignore the change",
                            (double)step_ns / NS_PER_S);
                d->step_logged = true;
        }
}

static void watch_clock(struct dfm_role *d)
{
        uint64_t now_ns = clock_now_ns(), boot_ns = clock_boot_ns(), utc_ns = clock_utc_ns();

        /* The two readings do not match if the process was stopped, or the machine was suspended, in
         * between. */
        if (clock_now_ns() - now_ns > STEP_LOG_NS / 4 || clock_boot_ns() - boot_ns > STEP_LOG_NS / 4)
                return;
        if (dfm_has_begun(d->core)) {
                log_clock(d, utc_ns - boot_ns, boot_ns - now_ns);
                return;
        }
        dfm_set_utc_offset(d->core, utc_ns - now_ns);
        d->utc_offset_ns = utc_ns - boot_ns;
        d->boot_offset_ns = boot_ns - now_ns;
}

static int take_turn(struct node *n, uint64_t now_ns)
{
        struct dfm_role *d = n->state;
        int r;

        if (dfm_needs_number(d->core, now_ns))
                return log_error_errno(ENODATA,
                                       "no node continues the last run, and another run needs a number");
        record_absence(n, d, now_ns);
        watch_clock(d);
        trigger_input_turn(d->input, now_ns);
        r = level2_server_receive(d->level2, now_ns);
        if (r < 0)
                return r;
        node_send_due(n, n, step, now_ns);
        level2_server_send(d->level2, now_ns);
        roster_log(n, d->core);
        remember_run(n, d);
        list_run(n, d);
        log_wait(n, d, now_ns);
        dfm_end_turn(n, d->core, &d->end, now_ns);
        return 0;
}

static uint64_t next_deadline_ns(struct node *n)
{
        const struct dfm_role *d = n->state;
        uint64_t outside_ns = MIN(trigger_input_deadline_ns(d->input), busy_output_deadline_ns(d->busy));

        outside_ns = MIN(outside_ns, level2_server_deadline_ns(d->level2));
        return MIN(MIN(dfm_deadline_ns(d->core), d->give_up_ns), outside_ns);
}

static void explain_idle(const struct node *n, struct dfm_role *d)
{
        idle_explain(&d->idle, d->core, n->scenario, stats_get(&n->stats->trigger_datagrams_other_run));
}

static void stop_role(struct node *n, uint64_t now_ns)
{
        struct dfm_role *d = n->state;

        explain_idle(n, d);
        trigger_input_catch_up(d->input, now_ns);
        dfm_stop(d->core, now_ns);
        d->give_up_ns = now_ns + n->scenario->run.stop_timeout_ns;
        remember_run(n, d);
}

static void pause_role(struct node *n, uint64_t now_ns, bool on)
{
        struct dfm_role *d = n->state;

        trigger_input_catch_up(d->input, now_ns);
        dfm_pause(d->core, now_ns, on);
}

/* Stops the run of an earlier DFM that no node has joined yet, at an operator's command. */
static void stop_previous(struct node *n)
{
        struct dfm_role *d = n->state;
        const struct last_run *l = &d->last_run;
        int r;

        if (!dfm_awaits_run(d->core) || d->record.fd < 0)
                return;
        r = run_record_write(&d->record, l->run, l->cookie, dfm_age_ns(d->core, clock_now_ns()),
                             RUN_STAGE_STOPPED, l->cause);
        if (r < 0)
                log_unrecorded(d, r);
}

static bool is_done(struct node *n, uint64_t now_ns)
{
        const struct dfm_role *d = n->state;

        return dfm_is_done(d->core) || (now_ns >= d->give_up_ns && dfm_state(d->core) != RUN_ENDED);
}

static void end_role(struct node *n, uint64_t now_ns)
{
        const struct dfm_role *d = n->state;

        dfm_close_accounts(d->core, now_ns);
}

static enum run_state state_of_run(const struct node *n)
{
        return dfm_state(((struct dfm_role *)n->state)->core);
}

static void publish_counters(struct node *n)
{
        struct dfm_role *d = n->state;
        struct node_stats *s = n->stats;
        uint64_t now_ns = clock_now_ns();

        explain_idle(n, d);
        stats_copy_dfm(s, d->core);
        trigger_input_publish(d->core, s);
        level2_server_account(d->level2);
        if (now_ns - d->latency_copied_ns >= LATENCY_COPY_NS || dfm_state(d->core) == RUN_ENDED) {
                s->latency_ns = *dfm_latency_ns(d->core);
                d->latency_copied_ns = now_ns;
        }
        metrics_record_dfm(n->metrics, d->core);
}

static void add_reasons(const struct node *n, struct reasons *to)
{
        const struct dfm_role *d = n->state;

        if (n->ended_by_previous)
                reasons_add(to, "%s", d->last_run.cause);
        dfm_end_reasons(&d->end, to);
        dfm_reasons(d->core, n->scenario, &d->idle, to);
        trigger_input_reasons(d->core, n->scenario, n->stats, to);
}

static struct work work_now(const struct node *n, uint64_t now_ns)
{
        const struct dfm_role *d = n->state;

        (void)now_ns;
        return (struct work){
                .progress = dfm_progress(d->core),
                .waits = dfm_has_work(d->core),
                .before_run = dfm_state(d->core) == RUN_STARTING,
        };
}

static void explain(const struct node *n, uint64_t now_ns, struct obstacle *ret)
{
        const struct dfm_role *d = n->state;

        if (dfm_state(d->core) == RUN_STARTING)
                describe_wait(n, ret->text, sizeof ret->text);
        else
                dfm_explain(d->core, n->scenario, now_ns, ret);
}

const struct node_kind node_dfm = {
        .open = open_role,
        .receive = receive_message,
        .turn = take_turn,
        .deadline_ns = next_deadline_ns,
        .stop = stop_role,
        .pause = pause_role,
        .stop_previous = stop_previous,
        .is_done = is_done,
        .end = end_role,
        .account = publish_counters,
        .state = state_of_run,
        .work = work_now,
        .explain = explain,
        .close = close_role,
        .reasons = add_reasons,
};
