/* Reports what the stand-in sent. For each board, triggers = frames + missed + outage + broken + refused +
 * unsent. */
#include <inttypes.h>

#include "base/quantity.h"
#include "base/util.h"
#include "frontend_internal.h"

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

void frontend_add_reasons(struct frontend *f)
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

static void put(json_t *o, const char *name, uint64_t value)
{
        json_object_set_new(o, name, json_integer((json_int_t)value));
}

static json_t *report_board(const struct frontend *f, unsigned i)
{
        const struct frontend_board *b = &f->boards[i];
        const struct frontend_link *l = &b->link;
        char text[NET_ADDRESS_TEXT_MAX];
        json_t *o = json_object();

        put(o, "board", i + 1);
        json_object_set_new(o, "transport", json_string(f->config->boards[i].tcp ? "tcp" : "udp"));
        json_object_set_new(o, "address", json_string(net_address_format(&f->config->boards[i].at, text)));
        json_object_set_new(o, "dead", json_boolean(f->config->boards[i].dead));
        put(o, "triggers", b->triggers);
        put(o, "frames", frames_of(b));
        put(o, "payload_bytes", l->sent_payload_bytes);
        put(o, "late", l->sent_late);
        put(o, "missed", b->missed);
        put(o, "outage", b->outage);
        put(o, "broken", l->broken);
        put(o, "refused", frontend_link_refused(l));
        put(o, "unsent", frontend_board_unsent(b));
        put(o, "restarts", b->restarts);
        put(o, "connections", l->connections);
        return o;
}

static json_t *report_busy(const struct frontend *f)
{
        json_t *o;

        if (!f->config->has_busy_from)
                return json_null();
        o = json_object();
        put(o, "datagrams", f->box.busy_packets);
        put(o, "malformed", f->box.busy_malformed);
        put(o, "changes", f->box.busy_changes);
        json_object_set_new(o, "seconds", json_real(seconds_of(frontend_box_busy_ns(&f->box, f->end_ns))));
        return o;
}

json_t *frontend_report(const struct frontend *f)
{
        json_t *o = json_object(), *boards = json_array(), *reasons = json_array();

        put(o, "seed", f->config->seed);
        put(o, "first", f->config->first);
        json_object_set_new(o, "seconds", json_real(seconds_of(run_ns(f))));
        put(o, "triggers", f->triggers);
        json_object_set_new(o, "trigger_datagrams",
                            f->config->has_trigger_to ? json_integer((json_int_t)f->box.packets)
                                                      : json_null());
        json_object_set_new(o, "held_seconds",
                            json_pack("{s:f,s:f,s:f}", "busy", seconds_of(f->held_ns[HOLD_BUSY]), "boards",
                                      seconds_of(f->held_ns[HOLD_BOARDS]), "reset",
                                      seconds_of(f->held_ns[HOLD_RESET])));
        json_object_set_new(o, "busy", report_busy(f));
        put(o, "resets", f->box.resets);
        for (unsigned i = 0; i < f->config->n_boards; i++)
                json_array_append_new(boards, report_board(f, i));
        json_object_set_new(o, "boards", boards);
        for (size_t i = 0; i < MIN(f->reasons.n, (size_t)REASONS_MAX); i++)
                json_array_append_new(reasons, json_string(f->reasons.text[i]));
        json_object_set_new(o, "reasons", reasons);
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
