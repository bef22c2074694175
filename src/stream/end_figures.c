/* Describes one end of a stream, with the drop counters of its device (RFC 2863, ifInDiscards and ifInErrors)
 * and of the root qdisc. rules/stream_report.c merges both. */
#include "end_figures.h"

#include <ifaddrs.h>
#include <jansson.h>
#include <linux/if_link.h>
#include <linux/if_packet.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "base/log.h"
#include "base/strbuf.h"
#include "base/util.h"
#include "shape/kernel/socket.h"
#include "stream/rules/setup.h"
#include "stream/rules/stream_report.h"

void figures_start(struct figures_begin *b, struct endpoint *e, const struct net_address *local)
{
        *b = (struct figures_begin){.local = *local, .socket_dropped = endpoint_counts(e)->dropped};
        drops_read(&b->drops, local);
        (void)processors_read(&b->processors);
}

/* The members that both ends report. */
static json_t *describe(const struct stream_options *o, const struct packet_rule *rule, json_int_t packets,
                        json_int_t bytes, uint64_t elapsed_ns)
{
        char wake[REPORT_WAKE_MAX];

        return json_pack("{s:s, s:s, s:I, s:I, s:f, s:I}", "format", setup_format_name(rule->format), "wake",
                         report_wake(&o->wake, wake), "packets", packets, "bytes", bytes, "seconds",
                         packets > 0 ? (double)elapsed_ns / 1e9 : 0.0, "payload_bytes",
                         (json_int_t)rule->payload_bytes);
}

static void add_times(json_t *o, const struct timing *between, const struct timing *processing,
                      const struct intervals *intervals, uint64_t network_used_ns, uint64_t file_used_ns)
{
        json_object_set_new(o, "inter_packet_us", timing_describe(between));
        json_object_set_new(o, "processing_us", timing_describe(processing));
        json_object_set_new(o, "intervals", intervals_describe(intervals));
        json_object_set_new(o, "network_cpu_seconds", json_real((double)network_used_ns / 1e9));
        json_object_set_new(o, "file_cpu_seconds", json_real((double)file_used_ns / 1e9));
}

static void add_common(json_t *o, const struct figures_begin *b, bool failed, const char *reason)
{
        struct processors now = {};

        (void)processors_read(&now);
        json_object_set_new(o, "cpu_percent", report_processors(&b->processors, &now));
        json_object_set_new(o, "failed", json_boolean(failed));
        json_object_set_new(o, "reason", json_text(reason));
}

json_t *figures_of_sender(const struct send_threads *t, const struct figures_begin *b, bool failed,
                          const char *reason)
{
        const struct endpoint_counts *c = endpoint_counts(t->endpoint);
        json_t *o = describe(t->options, &t->rule, (json_int_t)atomic_load(&t->packets),
                             (json_int_t)atomic_load(&t->bytes), atomic_load(&t->last_ns) - t->begin_ns);
        struct device_drops drops;
        json_t *qdisc;
        json_int_t of_qdisc;

        drops_read(&drops, &b->local);
        qdisc = report_difference(drops.qdisc_known && b->drops.qdisc_known, b->drops.qdisc_packets,
                                  drops.qdisc_packets);
        /* A qdisc counts a super-packet as one packet. */
        of_qdisc = json_integer_value(qdisc) * (json_int_t)(c->sent / MAX(c->messages, UINT64_C(1)));
        json_object_set_new(o, "source_packets", json_integer((json_int_t)c->send_failed + of_qdisc));
        json_put_count(o, "refused_packets", c->send_failed);
        json_object_set_new(o, "refused_reason", json_text(c->send_failed ? strerror(c->send_error) : ""));
        json_object_set_new(o, "qdisc_packets", qdisc);
        json_object_set_new(o, "behind_seconds", json_real((double)t->spacing.behind_ns / 1e9));
        json_put_count(o, "cut_bytes", t->cut_bytes);
        json_put_count(o, "damaged", t->damaged);
        json_put_count(o, "wakes", atomic_load(&t->ring.filled.wakes));
        json_put_count(o, "calls", c->calls);
        json_object_set_new(o, "segmented", json_boolean(c->super_packets > 0));
        add_times(o, &t->between, &t->processing, &t->intervals, t->network_used_ns, t->input_used_ns);
        if (t->rule.format == STREAM_RAW)
                json_object_set_new(o, "measured", raw_measure_describe(&t->raw.measure));
        if (t->rule.format == STREAM_RAW && t->raw.rule->echo)
                json_object_set_new(o, "round_trip_us", timing_describe(&t->raw.round_trips));
        add_common(o, b, failed, reason);
        return o;
}

json_t *figures_of_receiver(const struct receive_threads *t, const struct figures_begin *b, bool failed,
                            const char *reason)
{
        const struct endpoint_counts *c = endpoint_counts(t->endpoint);
        const struct account *a = receive_threads_taken(t);
        const bool raw = t->rule.format == STREAM_RAW;
        const uint64_t received = a->received + t->gaps.repaired, filled_in = a->given_up - t->gaps.repaired,
                       invalid = t->invalid_frames - MIN(t->gaps.closed_frames, t->invalid_frames);
        json_t *o = describe(t->options, &t->rule, (json_int_t)received, (json_int_t)atomic_load(&t->bytes),
                             raw ? t->last_ns - t->first_ns : t->elapsed_ns);
        struct device_drops drops;

        drops_read(&drops, &b->local);
        /* Missing raw messages are not filled in. */
        json_object_set_new(o, "filled_in", json_count_if(!raw, filled_in));
        if (t->rule.unnumbered)
                json_object_set_new(o, "lost",
                                    json_count_if(t->plan, t->plan ? receive_threads_missing(t) : 0));
        json_put_count(o, "filled_unsure", MIN(t->fill.unsure, invalid));
        json_put_count(o, "invalid", invalid);
        json_put_count(o, "repaired", t->gaps.repaired);
        /* A late packet whose place was repaired is not lost. */
        json_put_count(o, "late", t->gaps.repaired > 0 ? MIN(t->account.late, filled_in) : t->account.late);
        json_put_count(o, "duplicate", a->duplicate + t->missing.duplicate);
        json_put_count(o, "out_of_order", a->out_of_order + t->missing.out_of_order);
        json_put_count(o, "foreign", t->foreign);
        json_put_count(o, "short", t->short_ones);
        json_put_count(o, "socket_packets", t->socket_lost);
        json_put_count(o, "untaken_packets", receive_threads_untaken(t));
        json_put_count(o, "socket_drops", c->dropped - b->socket_dropped);
        json_object_set_new(o, "nic_packets",
                            report_difference(drops.known && b->drops.known, b->drops.received_packets,
                                              drops.received_packets));
        json_object_set_new(o, "corrupt", json_count_if(sink_is_pattern(t->sink), sink_corrupt(t->sink)));
        json_put_count(o, "written_bytes", sink_bytes(t->sink));
        if (sink_files(t->sink) > 0)
                json_put_count(o, "files", sink_files(t->sink));
        json_put_count(o, "wakes", atomic_load(&t->ring.filled.wakes));
        json_put_count(o, "calls", c->calls);
        add_times(o, &t->between, &t->processing, &t->intervals, t->network_used_ns, t->output_used_ns);
        if (raw)
                json_object_set_new(o, "measured", raw_measure_describe(&t->raw.measure));
        add_common(o, b, failed, reason);
        return o;
}

void figures_warn_sender(const struct send_threads *t, const char *input)
{
        if (t->damaged > 0)
                log_warning("%s: frames without a header of a frame of %u bytes: %llu, the first one at byte "
                            "%llu; they are sent as read",
                            input, t->plan->frame_bytes, (unsigned long long)t->damaged,
                            (unsigned long long)((t->rule.first + t->first_damaged) * t->rule.payload_bytes));
}

/* Warns about defects of a VDIF recording that do not make the stream incomplete. */
static void warn_of_frames(const struct receive_threads *t)
{
        const struct vdif_fill *f = &t->fill;

        if (f->unsure > 0 && t->invalid_frames > t->gaps.closed_frames)
                log_warning("lost frames whose time or thread does not follow from the frames around them: "
                            "%llu; the invalid frames in their places have the best guess",
                            (unsigned long long)f->unsure);
        if (t->plan && t->plan->frames_per_second > 0 && f->frames_per_second != t->plan->frames_per_second)
                log_warning("the frames do not have the rate that the sender offers, %u per second of a "
                            "thread; what they show counts",
                            t->plan->frames_per_second);
        if (t->scan.unconfirmed > 0)
                log_warning("frames whose time the next frame does not confirm: %llu; each is in the file of "
                            "the scan before it",
                            (unsigned long long)t->scan.unconfirmed);
}

/* Logs the datagrams that are in no account of packets, and returns the number of those that may have been
 * data. */
static uint64_t missed_without_control(const struct receive_threads *t, const struct figures_begin *b,
                                       const char *sender)
{
        const uint64_t unfit = atomic_load(&t->unfit),
                       dropped = t->rule.unnumbered && !t->plan
                                         ? endpoint_counts(t->endpoint)->dropped - b->socket_dropped
                                         : 0;

        if (t->others > 0)
                log_warning("datagrams of other senders than %s, which was the first to send: %llu; they are "
                            "not recorded",
                            sender, (unsigned long long)t->others);
        if (unfit > 0)
                log_error("datagrams of %s that are not of its stream: %llu; they are not recorded", sender,
                          (unsigned long long)unfit);
        if (t->missing.duplicate > 0)
                log_error("frames with the thread and time of an earlier frame: %llu; they are recorded, too",
                          (unsigned long long)t->missing.duplicate);
        if (dropped > 0)
                log_error("the full socket dropped datagrams at least %llu times",
                          (unsigned long long)dropped);
        return unfit + dropped + t->missing.duplicate;
}

bool figures_log_receiver(const struct receive_threads *t, const struct figures_begin *b, const char *sender)
{
        uint64_t lost = receive_threads_missing(t), corrupt = sink_corrupt(t->sink),
                 renamed = sink_renamed(t->sink), missed;

        warn_of_frames(t);
        missed = t->without_control ? missed_without_control(t, b, sender) : 0;
        if (lost > 0)
                log_error("%llu packet%s missing", (unsigned long long)lost, lost == 1 ? " is" : "s are");
        if (corrupt > 0)
                log_error("%llu packet%s arrived corrupt", (unsigned long long)corrupt,
                          corrupt == 1 ? "" : "s");
        if (renamed > 0)
                log_error("scans whose names other files had: %llu; \"-2\" or a higher number is in the "
                          "names of their files",
                          (unsigned long long)renamed);
        return lost > 0 || corrupt > 0 || missed > 0 || renamed > 0;
}

void figures_show_progress(struct receive_threads *t, uint64_t since_ns, bool last)
{
        struct stream_progress p = {
                .stream = t->options->stream,
                .seconds = (double)since_ns / 1e9,
                .packets = atomic_load_explicit(&t->packets, memory_order_relaxed),
                .bytes = atomic_load_explicit(&t->bytes, memory_order_relaxed),
                .lost = atomic_load_explicit(&t->lost, memory_order_relaxed),
                .ring_percent = slot_ring_percent(&t->ring),
        };

        if (t->options->progress)
                t->options->progress(&p, last);
}

static bool read_device(struct device_drops *d)
{
        struct ifaddrs *all, *i;
        bool found = false;

        if (getifaddrs(&all) < 0)
                return false;
        for (i = all; i && !found; i = i->ifa_next) {
                struct rtnl_link_stats s;

                if (!i->ifa_addr || i->ifa_addr->sa_family != AF_PACKET || !i->ifa_data ||
                    strcmp(i->ifa_name, d->device) != 0)
                        continue;
                memcpy(&s, i->ifa_data, sizeof s);
                d->received_packets = (uint64_t)s.rx_dropped + s.rx_missed_errors + s.rx_fifo_errors;
                found = true;
        }
        freeifaddrs(all);
        return found;
}

/* The kind of the qdisc that packets pass: a device with several queues has one qdisc for each, below its
 * root. */
static const char *kind_of(const struct tc_tree *tree, const struct tc_object *root)
{
        const char *kind = NULL;

        if (!root)
                return "noqueue";
        for (size_t i = 0; i < tree->n && strcmp(root->kind_name, "mq") == 0; i++) {
                const struct tc_object *o = &tree->objects[i];

                if (o->type != TC_QDISC || o->parent == TC_ROOT ||
                    TC_MAJOR(o->parent) != TC_MAJOR(root->handle))
                        continue;
                if (kind && strcmp(kind, o->kind_name) != 0)
                        return root->kind_name;
                kind = o->kind_name;
        }
        return kind ?: root->kind_name;
}

static bool has_kind(const struct tc_tree *tree, const char *kind)
{
        for (size_t i = 0; i < tree->n; i++) {
                if (tree->objects[i].type == TC_QDISC && strcmp(tree->objects[i].kind_name, kind) == 0)
                        return true;
        }
        return false;
}

static void read_qdisc(struct device_drops *d, unsigned index)
{
        struct tc_socket *s = NULL;
        struct tc_tree tree = {};
        const struct tc_object *root;

        if (tc_socket_new(&s) < 0)
                return;
        if (tc_socket_dump(s, (int)index, false, &tree) >= 0) {
                root = tc_tree_qdisc(&tree, TC_ROOT);
                d->qdisc_known = true;
                snprintf(d->qdisc, sizeof d->qdisc, "%s", kind_of(&tree, root));
                d->has_etf = has_kind(&tree, "etf");
                d->qdisc_packets = root && root->counters.known ? root->counters.drops : 0;
        }
        tc_tree_fini(&tree);
        tc_socket_free(s);
}

void drops_read(struct device_drops *ret, const struct net_address *local)
{
        unsigned index = net_address_device(local);

        *ret = (struct device_drops){};
        if (index == 0 || !if_indextoname(index, ret->device))
                return;
        ret->known = read_device(ret);
        read_qdisc(ret, index);
}

/* The encoding of a file name is unknown. */
static void make_utf8(char *text)
{
        json_t *valid = json_string(text);

        for (char *at = text; !valid && *at; at++) {
                if ((unsigned char)*at >= 0x80)
                        *at = '?';
        }
        json_decref(valid);
}

void reason_set(struct reason *r, bool failed, const char *format, ...)
{
        va_list args;

        r->failed |= failed;
        if (r->text[0])
                return;
        va_start(args, format);
        vsnprintf(r->text, sizeof r->text, format, args);
        va_end(args);
        make_utf8(r->text);
        text_make_printable(r->text);
}

void reason_set_error(struct reason *r, const struct error *e)
{
        char text[ERROR_TEXT_MAX];

        if (e->code < 0)
                reason_set(r, true, "%s", error_format(e, text));
}
