/* Runs the stand-in: triggers follow the schedule unless the DFM is busy or a board has no room, and boards
 * send their frames. In its report, for each board, triggers = frames + missed + outage + broken + refused +
 * unsent. */
#include "frontend/frontend_run.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

#include "base/json.h"
#include "base/log.h"
#include "base/quantity.h"
#include "base/util.h"
#include "data/reasons.h"
#include "frontend/frontend_box.h"
#include "frontend_board.h"

/* Why triggers wait. */
enum frontend_hold { HOLD_NONE, HOLD_BUSY, HOLD_BOARDS, HOLD_RESET, HOLDS };

struct frontend {
        const struct frontend_config *config;
        struct loop *loop;
        struct trigger schedule; /* its time starts at 0 and stands still while triggers are held */
        struct frontend_box box;
        struct frontend_listeners listeners;
        bool started, stopping;
        uint64_t start_ns, start_utc_ns, stopped_schedule_ns, end_ns;
        enum frontend_hold hold;
        uint64_t hold_since_ns;
        uint64_t held_ns[HOLDS];
        uint64_t triggers;
        unsigned resets;                        /* number of config->resets that are done */
        bool reset_is_wanted;                   /* the DFM has been busy for too long */
        uint64_t patient_until_ns, last_unsent; /* used while stopping */
        uint64_t progress_ns;                   /* time of the next progress line or warning */
        bool warned;
        struct reasons reasons;
        struct frontend_board boards[]; /* config->n_boards */
};

static uint64_t frames_of(const struct frontend_board *b)
{
        return b->link.sent - frontend_link_refused(&b->link);
}

static void add_board_reasons(struct frontend *f, unsigned i)
{
        const struct frontend_board *b = &f->boards[i];
        char text[NET_ADDRESS_TEXT_MAX];

        net_address_format(&f->config->boards[i].at, text);
        if (!b->link.up && b->link.connections == 0 && !f->config->boards[i].dead)
                reasons_add(&f->reasons, "board %u: no ROS connected to %s", i + 1, text);
        if (b->link.broken > 0)
                reasons_add(&f->reasons, "board %u: %" PRIu64 " frames were cut by broken connections", i + 1,
                            b->link.broken);
        if (frontend_link_refused(&b->link) > 0)
                reasons_add(&f->reasons, "board %u: the kernel refused %" PRIu64 " frames to %s", i + 1,
                            frontend_link_refused(&b->link), text);
        if (frontend_board_unsent(b) > 0)
                reasons_add(&f->reasons, "board %u: %" PRIu64 " frames could not be sent to %s", i + 1,
                            frontend_board_unsent(b), text);
}

/* Adds the reasons for exit status 1. */
static void frontend_add_reasons(struct frontend *f)
{
        if (f->triggers == 0)
                reasons_add(&f->reasons, "no trigger was sent");
        if (!f->started && frontend_box_is_busy(&f->box, f->end_ns))
                reasons_add(&f->reasons, "%s",
                            f->box.received ? "the DFM was busy" : "no busy datagram arrived");
        for (unsigned i = 0; i < f->config->n_boards; i++)
                add_board_reasons(f, i);
}

static double seconds_of(uint64_t ns)
{
        return (double)ns / (double)NS_PER_S;
}

static uint64_t run_ns(const struct frontend *f)
{
        return f->started ? f->end_ns - f->start_ns : 0;
}

static json_t *report_board(const struct frontend *f, unsigned i)
{
        const struct frontend_board *b = &f->boards[i];
        const struct frontend_link *l = &b->link;
        char text[NET_ADDRESS_TEXT_MAX];
        json_t *o = json_object();

        json_put_count(o, "board", i + 1);
        json_object_set_new(o, "transport", json_string(f->config->boards[i].tcp ? "tcp" : "udp"));
        json_object_set_new(o, "address", json_string(net_address_format(&f->config->boards[i].at, text)));
        json_object_set_new(o, "dead", json_boolean(f->config->boards[i].dead));
        json_put_count(o, "triggers", b->triggers);
        json_put_count(o, "frames", frames_of(b));
        json_put_count(o, "payload_bytes", l->sent_payload_bytes);
        json_put_count(o, "late", l->sent_late);
        json_put_count(o, "missed", b->missed);
        json_put_count(o, "outage", b->outage);
        json_put_count(o, "broken", l->broken);
        json_put_count(o, "refused", frontend_link_refused(l));
        json_put_count(o, "unsent", frontend_board_unsent(b));
        json_put_count(o, "restarts", b->restarts);
        json_put_count(o, "connections", l->connections);
        return o;
}

static json_t *report_busy(const struct frontend *f)
{
        json_t *o;

        if (!f->config->has_busy_from)
                return json_null();
        o = json_object();
        json_put_count(o, "datagrams", f->box.busy_packets);
        json_put_count(o, "malformed", f->box.busy_malformed);
        json_put_count(o, "changes", f->box.busy_changes);
        json_object_set_new(o, "seconds", json_real(seconds_of(frontend_box_busy_ns(&f->box, f->end_ns))));
        return o;
}

json_t *frontend_report(const struct frontend *f)
{
        json_t *o = json_object(), *boards = json_array();

        json_put_count(o, "seed", f->config->seed);
        json_put_count(o, "first", f->config->first);
        json_object_set_new(o, "seconds", json_real(seconds_of(run_ns(f))));
        json_put_count(o, "triggers", f->triggers);
        json_object_set_new(o, "trigger_datagrams", json_count_if(f->config->has_trigger_to, f->box.packets));
        json_object_set_new(o, "held_seconds",
                            json_pack("{s:f,s:f,s:f}", "busy", seconds_of(f->held_ns[HOLD_BUSY]), "boards",
                                      seconds_of(f->held_ns[HOLD_BOARDS]), "reset",
                                      seconds_of(f->held_ns[HOLD_RESET])));
        json_object_set_new(o, "busy", report_busy(f));
        json_put_count(o, "resets", f->box.resets);
        for (unsigned i = 0; i < f->config->n_boards; i++)
                json_array_append_new(boards, report_board(f, i));
        json_object_set_new(o, "boards", boards);
        json_object_set_new(o, "reasons", reasons_to_json(&f->reasons));
        return o;
}

static void print_count(FILE *to, uint64_t n, const char *what)
{
        if (n > 0)
                fprintf(to, ", %" PRIu64 " %s", n, what);
}

static void print_board(const struct frontend *f, unsigned i, FILE *to)
{
        const struct frontend_board *b = &f->boards[i];
        char text[NET_ADDRESS_TEXT_MAX], bytes[QUANTITY_TEXT_MAX];

        fprintf(to, "  board %-3u  %s %s", i + 1, f->config->boards[i].tcp ? "tcp" : "udp",
                net_address_format(&f->config->boards[i].at, text));
        if (f->config->boards[i].dead) {
                fprintf(to, ": dead\n");
                return;
        }
        fprintf(to, ": %" PRIu64 " frames of %s", frames_of(b),
                quantity_format_bytes(b->link.sent_payload_bytes, bytes));
        print_count(to, b->link.sent_late, "late");
        print_count(to, b->missed, "missed");
        print_count(to, b->outage, "missed in outages");
        print_count(to, b->link.broken, "cut");
        print_count(to, frontend_link_refused(&b->link), "refused");
        print_count(to, frontend_board_unsent(b), "not sent");
        print_count(to, b->restarts, b->restarts == 1 ? "restart" : "restarts");
        fputc('\n', to);
}

void frontend_print(const struct frontend *f, FILE *to)
{
        fprintf(to, "frontend: %" PRIu64 " trigger%s in %.1f s from %u board%s, seed %" PRIu64 "\n",
                f->triggers, f->triggers == 1 ? "" : "s", seconds_of(run_ns(f)), f->config->n_boards,
                f->config->n_boards == 1 ? "" : "s", f->config->seed);
        if (f->config->has_trigger_to)
                fprintf(to, "  triggers   %" PRIu64 " datagrams\n", f->box.packets);
        if (f->box.resets > 0)
                fprintf(to, "  resets     %" PRIu64 "\n", f->box.resets);
        if (f->config->has_busy_from)
                fprintf(to, "  busy       %.3f s, %" PRIu64 " changes\n",
                        seconds_of(frontend_box_busy_ns(&f->box, f->end_ns)), f->box.busy_changes);
        if (f->held_ns[HOLD_BUSY] + f->held_ns[HOLD_BOARDS] > 0)
                fprintf(to, "  held back  %.3f s by busy, %.3f s by full boards\n",
                        seconds_of(f->held_ns[HOLD_BUSY]), seconds_of(f->held_ns[HOLD_BOARDS]));
        for (unsigned i = 0; i < f->config->n_boards; i++)
                print_board(f, i, to);
}

/* Maximum number of triggers in one turn. Frames leave between turns, and one datagram contains the entries
 * of a turn. */
#define TRIGGERS_PER_TURN (FRONTEND_ENTRIES_MAX / 2)
/* Maximum time for which a stopping stand-in waits for a ROS that accepts no data. */
#define PATIENCE_NS (5 * NS_PER_S)
#define WARNING_NS (2 * NS_PER_S)
#define PROGRESS_NS (500 * NS_PER_MS)
/* Interval of checks, before a reset of the counters, whether the boards have sent all frames. */
#define RESET_LOOK_NS (5 * NS_PER_MS)

static int open_board(struct frontend *f, unsigned i)
{
        const struct net_address *at = &f->config->boards[i].at;
        char text[NET_ADDRESS_TEXT_MAX];
        int r = frontend_board_init(&f->boards[i], f->config, i, f->loop);

        return r < 0 ? log_error_errno(r, "board %u at %s: %m", i + 1, net_address_format(at, text)) : 0;
}

static int open_all(struct frontend *f)
{
        int r = loop_new(&f->loop);

        if (r < 0)
                return log_error_errno(r, "cannot make the event loop: %m");
        r = loop_catch_signals(f->loop);
        if (r < 0)
                return log_error_errno(r, "cannot catch signals: %m");
        for (unsigned i = 0; i < f->config->n_boards && r >= 0; i++)
                r = open_board(f, i);
        if (r >= 0)
                r = frontend_listeners_init(&f->listeners, f->loop, f->boards, f->config->n_boards);
        return r < 0 ? r : frontend_box_init(&f->box, f->config, f->loop);
}

int frontend_new(struct frontend **ret, const struct frontend_config *config)
{
        struct frontend *f = calloc(1, sizeof *f + config->n_boards * sizeof *f->boards);
        int r;

        if (!f)
                return log_error_errno(ENOMEM, "frontend: %m");
        f->config = config;
        for (unsigned i = 0; i < config->n_boards; i++)
                f->boards[i].link.io.fd = -1;
        trigger_init(&f->schedule, config->kind, config->rate_millihertz, 1, config->seed, 0);
        r = open_all(f);
        if (r < 0) {
                frontend_free(f);
                return r;
        }
        *ret = f;
        return 0;
}

struct frontend *frontend_free(struct frontend *f)
{
        if (!f)
                return NULL;
        frontend_box_fini(&f->box);
        frontend_listeners_fini(&f->listeners);
        for (unsigned i = 0; i < f->config->n_boards; i++)
                frontend_board_fini(&f->boards[i]);
        loop_free(f->loop);
        free(f);
        return NULL;
}

/* Returns the time of the loop that corresponds to time 0 of the schedule, without the pauses. */
static uint64_t zero_ns(const struct frontend *f)
{
        return f->start_ns + f->held_ns[HOLD_BUSY] + f->held_ns[HOLD_BOARDS] + f->held_ns[HOLD_RESET];
}

static uint64_t schedule_ns(const struct frontend *f, uint64_t now_ns)
{
        return (f->hold ? f->hold_since_ns : now_ns) - zero_ns(f);
}

/* Returns the next reset if it is due; NULL: no reset is due. */
static const struct frontend_reset *due_reset(const struct frontend *f, uint64_t at_ns)
{
        static const struct frontend_reset wanted = {.pause_ns = FRONTEND_RESET_PAUSE_NS};

        if (f->resets < f->config->n_resets && f->config->resets[f->resets].after_ns <= at_ns)
                return &f->config->resets[f->resets];
        return f->reset_is_wanted ? &wanted : NULL;
}

/* Returns the reason to hold back a trigger that is due at this time of the schedule. */
static enum frontend_hold must_hold(const struct frontend *f, uint64_t at_ns, uint64_t now_ns)
{
        if (due_reset(f, at_ns) || frontend_box_is_resetting(&f->box))
                return HOLD_RESET;
        if (frontend_box_is_busy(&f->box, now_ns))
                return HOLD_BUSY;
        if (!frontend_box_has_room(&f->box))
                return HOLD_BOARDS;
        for (unsigned i = 0; i < f->config->n_boards; i++) {
                if (!frontend_board_has_room(&f->boards[i]))
                        return HOLD_BOARDS;
        }
        return HOLD_NONE;
}

static bool is_connected(const struct frontend *f)
{
        for (unsigned i = 0; i < f->config->n_boards; i++) {
                if (!f->config->boards[i].dead && !f->boards[i].link.up)
                        return false;
        }
        return true;
}

static bool may_start(const struct frontend *f, uint64_t now_ns)
{
        return !f->started && !f->stopping && is_connected(f) && !frontend_box_is_busy(&f->box, now_ns);
}

static void start(struct frontend *f, uint64_t now_ns)
{
        if (f->warned)
                log_info("all boards are connected; triggers begin");
        f->started = true;
        f->start_ns = now_ns;
        f->start_utc_ns = clock_utc_ns();
}

static bool is_over(const struct frontend *f, uint64_t now_ns)
{
        const struct frontend_config *c = f->config;

        return (c->events > 0 && f->triggers == c->events) ||
               (c->duration_ns > 0 && now_ns - f->start_ns >= c->duration_ns);
}

/* Passes a trigger, at this time of the schedule, to the box and all boards. */
static void trigger_all(struct frontend *f, uint64_t at_ns)
{
        uint64_t zero = zero_ns(f), wall_ns = zero + at_ns;

        for (unsigned i = 0; i < f->config->n_boards; i++) {
                frontend_board_advance(&f->boards[i], at_ns, zero);
                frontend_board_trigger(&f->boards[i], f->triggers, wall_ns);
        }
        frontend_box_trigger(&f->box, f->triggers, f->start_utc_ns + (wall_ns - f->start_ns));
        f->triggers++;
}

static void end_hold(struct frontend *f, uint64_t now_ns)
{
        if (f->hold)
                f->held_ns[f->hold] += now_ns - f->hold_since_ns;
        f->hold = HOLD_NONE;
}

/* A board without a connection does not delay a reset. */
static bool boards_are_empty(const struct frontend *f)
{
        for (unsigned i = 0; i < f->config->n_boards; i++) {
                if (f->boards[i].link.up && frontend_board_unsent(&f->boards[i]) > 0)
                        return false;
        }
        return true;
}

/* Resets the counters if a reset is due and the boards have sent all frames of the previous count. */
static void try_reset(struct frontend *f, uint64_t at_ns, uint64_t now_ns)
{
        const struct frontend_reset *due = due_reset(f, at_ns);

        if (f->hold != HOLD_RESET || !due || frontend_box_is_resetting(&f->box) ||
            now_ns - f->hold_since_ns < due->pause_ns || !boards_are_empty(f) ||
            !frontend_box_has_room(&f->box))
                return;
        while (f->resets < f->config->n_resets && f->config->resets[f->resets].after_ns <= at_ns)
                f->resets++;
        log_info("all counters are reset after trigger %" PRIu64 "%s", f->triggers,
                 f->reset_is_wanted ? ", because the DFM was busy for too long" : "");
        f->reset_is_wanted = false;
        for (unsigned i = 0; i < f->config->n_boards; i++)
                frontend_board_reset(&f->boards[i]);
        frontend_box_reset(&f->box, f->triggers, now_ns);
}

/* Sends triggers that are due. If a trigger must wait, the schedule stands still from the time of this
 * trigger on. */
static void send_triggers(struct frontend *f, uint64_t now_ns)
{
        for (unsigned n = 0; n < TRIGGERS_PER_TURN && !is_over(f, now_ns); n++) {
                uint64_t at_ns = trigger_next_ns(&f->schedule);
                enum frontend_hold hold;

                if (at_ns > schedule_ns(f, now_ns))
                        return;
                try_reset(f, at_ns, now_ns);
                hold = must_hold(f, at_ns, now_ns);
                if (hold != f->hold) {
                        uint64_t since_ns = f->hold ? now_ns : zero_ns(f) + at_ns;

                        end_hold(f, now_ns);
                        f->hold = hold;
                        f->hold_since_ns = since_ns;
                }
                if (hold)
                        return;
                trigger_all(f, at_ns);
                trigger_next_due(&f->schedule, at_ns, 1);
        }
}

static void stop(struct frontend *f, uint64_t now_ns)
{
        f->stopping = true;
        f->stopped_schedule_ns = f->started ? schedule_ns(f, now_ns) : 0;
}

static void run_triggers(struct frontend *f, uint64_t now_ns)
{
        bool long_busy = frontend_box_resets_long_busy(&f->box, now_ns);

        /* The DFM is busy because of the last reset, and another reset would not end this. */
        f->reset_is_wanted |= long_busy && !frontend_box_is_resetting(&f->box);
        send_triggers(f, now_ns);
        if (is_over(f, now_ns))
                stop(f, now_ns);
}

static int turn_boards(struct frontend *f, uint64_t now_ns)
{
        int r = 0;

        uint64_t reached_ns = f->stopping ? f->stopped_schedule_ns : schedule_ns(f, now_ns);
        uint64_t at_ns = reached_ns;

        /* After a pause, boards do not run ahead of triggers that are still held back. */
        if (!f->stopping)
                at_ns = MIN(at_ns, trigger_next_ns(&f->schedule));
        for (unsigned i = 0; i < f->config->n_boards && r >= 0; i++) {
                if (f->started)
                        frontend_board_advance(&f->boards[i], at_ns, now_ns - reached_ns);
                r = frontend_board_turn(&f->boards[i], now_ns);
        }
        return r < 0 ? log_error_errno(r, "cannot send frames: %m") : 0;
}

static uint64_t unsent(const struct frontend *f)
{
        uint64_t n = f->box.n;

        for (unsigned i = 0; i < f->config->n_boards; i++)
                n += frontend_board_unsent(&f->boards[i]);
        return n;
}

/* Whether the stand-in has ended: no frames remain, or no ROS accepts them. */
static bool is_drained(struct frontend *f, uint64_t now_ns)
{
        uint64_t left = unsent(f);

        if (left != f->last_unsent || f->patient_until_ns == 0) {
                /* Late frames may not be due yet. */
                f->patient_until_ns = now_ns + f->config->late_ns + f->config->skew_ns + PATIENCE_NS;
                f->last_unsent = left;
        }
        return left == 0 || now_ns >= f->patient_until_ns;
}

static uint64_t deadline_ns(const struct frontend *f, uint64_t now_ns)
{
        uint64_t at_ns = MIN(f->progress_ns, frontend_box_deadline_ns(&f->box, now_ns));

        for (unsigned i = 0; i < f->config->n_boards; i++)
                at_ns = MIN(at_ns, frontend_board_deadline_ns(&f->boards[i]));
        if (f->stopping)
                return MIN(at_ns, f->patient_until_ns);
        if (!f->started)
                return may_start(f, now_ns) ? 0 : at_ns;
        if (f->config->duration_ns > 0)
                at_ns = MIN(at_ns, f->start_ns + f->config->duration_ns);
        if (f->hold == HOLD_RESET)
                return MIN(at_ns, now_ns + RESET_LOOK_NS);
        /* The boards may have sent the data for which triggers were held back. Everything else that ends a
         * hold wakes the loop. */
        if (f->hold && must_hold(f, trigger_next_ns(&f->schedule), now_ns) == HOLD_NONE)
                return 0;
        return f->hold ? at_ns : MIN(at_ns, zero_ns(f) + trigger_next_ns(&f->schedule));
}

static void warn_waiting(const struct frontend *f)
{
        char text[NET_ADDRESS_TEXT_MAX];

        for (unsigned i = 0; i < f->config->n_boards; i++) {
                if (!f->config->boards[i].dead && !f->boards[i].link.up)
                        log_warning("board %u: no ROS has connected to %s yet", i + 1,
                                    net_address_format(&f->config->boards[i].at, text));
        }
        if (frontend_box_is_busy(&f->box, f->progress_ns))
                log_warning("triggers wait: %s",
                            f->box.received ? "the DFM is busy" : "no busy datagram has arrived yet");
}

/* Warns once about missing peers, and prints progress. */
static void show_progress(struct frontend *f, uint64_t now_ns)
{
        static const char *const holds[HOLDS] = {"", ", held back: busy", ", held back: boards are full",
                                                 ", held back: reset"};
        char line[80];

        if (now_ns < f->progress_ns)
                return;
        if (!f->started && !f->warned) {
                warn_waiting(f);
                f->warned = true;
        } else if (f->started && f->config->progress) {
                snprintf(line, sizeof line, "\r%" PRIu64 " triggers%-30s", f->triggers, holds[f->hold]);
                log_draw(line);
        }
        f->progress_ns = f->config->progress ? now_ns + PROGRESS_NS : NEVER_NS;
}

static int turn(struct frontend *f, uint64_t now_ns)
{
        int r = frontend_box_receive(&f->box, now_ns);

        if (r < 0)
                return log_error_errno(r, "cannot receive busy datagrams: %m");
        if (!f->stopping && loop_stops(f->loop) > 0)
                stop(f, now_ns);
        if (may_start(f, now_ns))
                start(f, now_ns);
        if (f->started && !f->stopping)
                run_triggers(f, now_ns);
        r = frontend_box_send(&f->box, now_ns);
        if (r < 0)
                return log_error_errno(r, "cannot send triggers: %m");
        r = turn_boards(f, now_ns);
        return r < 0 ? r : frontend_listeners_turn(&f->listeners);
}

int frontend_run(struct frontend *f)
{
        uint64_t now_ns = clock_now_ns();
        int r;

        f->progress_ns = now_ns + WARNING_NS;
        while ((r = turn(f, now_ns)) >= 0) {
                if (f->stopping && (is_drained(f, now_ns) || loop_stops(f->loop) > 1))
                        break;
                show_progress(f, now_ns);
                r = loop_wait(f->loop, deadline_ns(f, now_ns));
                if (r < 0)
                        return log_error_errno(r, "cannot wait for events: %m");
                now_ns = loop_now_ns(f->loop);
        }
        end_hold(f, now_ns);
        f->end_ns = now_ns;
        if (f->config->progress)
                fputc('\n', stderr);
        frontend_add_reasons(f);
        reasons_log(&f->reasons);
        return r;
}

bool frontend_succeeded(const struct frontend *f)
{
        return f->reasons.n == 0;
}
