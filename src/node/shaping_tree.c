/* Installs a ROS's shaping in the kernel, adapts it to the SFIs, and watches for changes by other programs.
 * src/shape/kernel does the work. */
#include "shaping_tree.h"

#include <errno.h>
#include <string.h>

#include "base/log.h"
#include "base/quantity.h"
#include "base/util.h"
#include "node/shaping_request.h"
#include "sys/loop.h"
#include "shape/model/layout.h"
#include "shape/kernel/watch.h"

/* How often, and for how long, to check whether the classes of departed SFIs have drained. */
#define DRAIN_LOOK_NS (20 * NS_PER_MS)
#define DRAIN_MAX_NS (5 * NS_PER_S)
/* Pause after the kernel refused a change. */
#define RETRY_NS NS_PER_S
/* Interval of checks for drops, and for drift without a notification. */
#define LOOK_NS NS_PER_S
/* Interval of reports about the port. */
#define PORT_NS (60 * NS_PER_S)
/* After a change, the comparison waits for this time, because a program that changes one object usually
 * changes others too. */
#define SETTLE_NS (20 * NS_PER_MS)
#define EVENTS_MAX 4096
/* An SFI's share of the planned rate, in thousandths, while nothing is lost at its port. */
#define SHARE_FULL 1000u

static void log_warnings(const struct tc_plan *p, const struct tc_outcome *o)
{
        for (size_t i = 0; p && i < p->n_warnings; i++)
                log_warning("shaping: %s", p->warnings[i]);
        for (size_t i = 0; i < o->n_warnings; i++)
                log_warning("shaping: %s", o->warnings[i]);
}

static int log_failure(const struct error *e)
{
        char text[ERROR_TEXT_MAX];

        return log_error_errno(e->code, "shaping: %s", error_format(e, text));
}

/* An attempt is made every second, and each may be refused, so the same refusal is logged only once. */
static int refuse(struct shaping_tree *t, const struct error *e)
{
        if (strcmp(t->refused, e->message) != 0)
                log_failure(e);
        strcpy(t->refused, e->message);
        return e->code;
}

/* Counts packets that were dropped with replaced queues. It is unknown how many packets each queue held, and
 * an SFI must not count them as losses at its port. So all of them are reported to each SFI. */
static void count_replaced(struct shaping_tree *t, uint64_t packets)
{
        for (unsigned i = 0; packets > 0 && i < t->scenario->sfi.count; i++)
                stats_add(&t->dropped[i], packets);
        stats_add(&t->stats->packets_source_dropped, packets);
}

/* There is no tree: the thread only plans, and each connection follows the planned rate. */
static bool paces_sockets(const struct shaping_tree *t)
{
        return t->backend == TC_BACKEND_SOCKET;
}

static int install(struct shaping_tree *t, uint64_t now_ns, bool first)
{
        char rate[QUANTITY_TEXT_MAX];
        struct tc_outcome o = {};
        struct tc_plan p = {};
        struct error e = {};
        int r = shaping_tree_plan(t, &p, &e);

        t->changed = false;
        t->again_ns = NEVER_NS;
        if (r < 0)
                return refuse(t, &e);
        r = paces_sockets(t) ? 0 : tc_shaper_apply(t->shaper, &p, false, 0, now_ns >= t->insist_ns, &o, &e);
        if (r < 0)
                t->again_ns = now_ns + RETRY_NS;
        else if (o.undraining > 0)
                t->again_ns = now_ns + DRAIN_LOOK_NS;
        if (o.dropped_bytes > 0)
                log_warning("shaping: %llu bytes for SFIs that have left were dropped",
                            (unsigned long long)o.dropped_bytes);
        if (r >= 0) {
                if (first) {
                        t->super_packet_bytes = shaping_tree_super_packet_bytes(&p.shares[0]);
                        t->overhead_bytes = p.overhead_bytes;
                }
                count_replaced(t, o.dropped_packets);
                t->refused[0] = '\0';
                stats_set(&t->stats->qos_backend, t->backend);
                if (!first && p.shares[0].planned_bps != stats_get(&t->stats->qos_rate_bps))
                        log_info("shaping %s: %s for each SFI: %s", t->device.name,
                                 quantity_format_rate(p.shares[0].planned_bps, rate), p.reason_rate);
                stats_set(&t->stats->qos_rate_bps, p.shares[0].planned_bps);
                log_warnings(first ? &p : NULL, &o);
        }
        tc_plan_fini(&p);
        return r < 0 ? refuse(t, &e) : 0;
}

/* All of 127.0.0.0/8 belongs to lo, which has no tree but may have connections. */
static int find_device(const struct scenario *s, const struct scenario_node *self, struct tc_device *ret,
                       char name[static IF_NAMESIZE])
{
        int r = 0;

        name[0] = '\0';
        if (self->device[0])
                snprintf(name, IF_NAMESIZE, "%.*s", IF_NAMESIZE - 1, self->device);
        else if (s->qos.backend == QOS_SOCKET && strncmp(self->address, "127.", 4) == 0)
                strcpy(name, "lo");
        else
                r = tc_device_of_address(self->address, name);
        return r < 0 ? r : tc_device_read(ret, name);
}

void shaping_tree_warn_of_earlier(const struct scenario *s, const struct scenario_node *self)
{
        struct tc_socket *socket = NULL;
        struct tc_tree have = {};
        char name[IF_NAMESIZE];
        struct tc_device d;

        if (find_device(s, self, &d, name) >= 0 && tc_socket_new(&socket) >= 0 &&
            tc_socket_dump(socket, d.ifindex, false, &have) >= 0 && tc_layout_owner(&have) == TC_OWNER_OURS)
                log_warning("%s is shaped, though qos.backend = %s: by evb qos, or by a node that was "
                            "killed; `evb qos remove --dev %s` removes it",
                            name, tc_backend_name(shaping_backend_of_scenario(s)), name);
        tc_tree_fini(&have);
        tc_socket_free(socket);
}

/* Opens the device's shaper, and finds the layout that the kernel supports. */
static int open_device(struct shaping_tree *t, char reason[static TC_REASON_MAX], struct tc_outcome *o,
                       struct error *e)
{
        enum tc_backend asked = shaping_backend_of_scenario(t->scenario);
        enum tc_offload wanted = (enum tc_offload)t->scenario->qos.offload;
        int r = 0;

        if (asked == TC_BACKEND_SOCKET) {
                t->backend = asked;
                snprintf(reason, TC_REASON_MAX, "%s, as configured", tc_backend_name(asked));
        } else
                r = tc_shaper_new(&t->shaper, &t->device, o, e);
        if (r >= 0 && t->shaper)
                r = tc_shaper_probe_offload(t->shaper, asked, wanted, o, e);
        t->offload = r > 0 ? TC_OFFLOAD_REQUIRED : TC_OFFLOAD_NO;
        if (r >= 0 && t->shaper)
                r = tc_shaper_probe(t->shaper, r > 0 ? TC_BACKEND_HTB : asked, &t->backend, &t->fair, reason,
                                    e);
        if (r < 0 || t->check_only)
                return r;
        tc_port_read(&t->port, &t->device);
        t->port_ns = clock_now_ns();
        if (r >= 0)
                r = tc_watch_new(&t->watch, t->device.ifindex,
                                 t->shaper ? tc_socket_port(tc_shaper_socket(t->shaper)) : 0);
        return r < 0 ? error_set(e, r, "cannot watch device %s: %m", t->device.name) : 0;
}

/* Checks that the plan is possible; installs nothing. */
static int check_plan(struct shaping_tree *t)
{
        struct tc_plan p = {};
        struct error e = {};
        int r = shaping_tree_plan(t, &p, &e);

        tc_plan_fini(&p);
        return r < 0 ? log_failure(&e) : 0;
}

int shaping_tree_open(struct shaping_tree *t)
{
        char reason[TC_REASON_MAX] = "", rate[QUANTITY_TEXT_MAX], name[IF_NAMESIZE];
        struct tc_outcome o = {};
        struct error e = {};
        int r = find_device(t->scenario, t->self, &t->device, name);

        t->again_ns = t->settle_ns = t->unshaped_since_ns = t->event_ns = NEVER_NS;
        memset(&t->demand, 0xff, sizeof t->demand);
        t->demand.rates = shaping_rates_of(t->scenario);
        t->demand.sources = 0;
        for (size_t i = 0; i < EVB_SFI_MAX; i++)
                t->demand.permille[i] = SHARE_FULL;
        if (r < 0)
                return log_error_errno(
                        r, "shaping: node %s: this machine has no device \"%s\" with address %s: %m",
                        t->self->name, name, t->self->address);
        if (strcmp(name, "lo") == 0 && t->scenario->qos.backend != QOS_SOCKET)
                return log_error_errno(
                        EOPNOTSUPP,
                        "shaping: all nodes share device lo, which cannot be shaped for one of them; use "
                        "qos.backend = none, make it optional (htb:optional), or evb run --net lab");
        r = open_device(t, reason, &o, &e);
        if (r < 0)
                return log_failure(&e);
        log_warnings(NULL, &o);
        if (t->check_only)
                return check_plan(t);
        r = install(t, clock_now_ns(), true);
        /* The driver may accept a root, but refuse a class, e.g. because it has too few queues. */
        if (r < 0 && t->offload == TC_OFFLOAD_REQUIRED && t->scenario->qos.offload == TC_OFFLOAD_AUTO) {
                t->offload = TC_OFFLOAD_NO;
                r = tc_shaper_probe(t->shaper, shaping_backend_of_scenario(t->scenario), &t->backend,
                                    &t->fair, reason, &e);
                if (r >= 0)
                        log_warning("shaping without offload (qos.offload = auto)");
                r = r < 0 ? log_failure(&e) : install(t, clock_now_ns(), true);
        }
        if (r < 0)
                return r;
        t->well_ns = clock_now_ns();
        stats_set(&t->stats->mtu_bytes, t->device.mtu_bytes);
        log_info("shaping %s: %s%s; %s for each SFI", t->device.name, reason,
                 t->offload == TC_OFFLOAD_REQUIRED ? ", offloaded to the device" : "",
                 quantity_format_rate(stats_get(&t->stats->qos_rate_bps), rate));
        return 0;
}

static void count_frames(_Atomic uint64_t *to, uint64_t frames, uint64_t others)
{
        stats_add(to, (frames == TC_COUNT_UNKNOWN ? 0 : frames) + (others == TC_COUNT_UNKNOWN ? 0 : others));
}

bool shaping_tree_report_port(struct shaping_tree *t, uint64_t now_ns, const struct tc_port *now)
{
        char text[400] = "";
        struct strbuf what = strbuf_init(text, sizeof text);
        struct tc_port more = tc_port_since(now, &t->port);

        count_frames(&t->stats->pause_frames_received, more.pause_received, more.pfc_received);
        count_frames(&t->stats->pause_frames_sent, more.pause_sent, more.pfc_sent);
        count_frames(&t->stats->packets_device_dropped, more.missed, TC_COUNT_UNKNOWN);
        tc_port_describe(&more, &what);
        if (text[0])
                log_warning("shaping: in the last %.0f s, %s %s",
                            (double)(now_ns - t->port_ns) / (double)NS_PER_S, t->device.name, text);
        t->port = *now;
        t->port_ns = now_ns;
        return text[0] != '\0';
}

static void read_port(struct shaping_tree *t)
{
        struct tc_port now;

        tc_port_read(&now, &t->device);
        (void)shaping_tree_report_port(t, clock_now_ns(), &now);
}

void shaping_tree_close(struct shaping_tree *t)
{
        struct tc_outcome o = {};
        struct error e = {};

        if (t->watch && !t->gone)
                read_port(t);
        if (t->shaper && !t->check_only && tc_shaper_remove(t->shaper, &o, &e) < 0)
                (void)log_failure(&e);
        log_warnings(NULL, &o);
        t->watch = tc_watch_free(t->watch);
        t->shaper = tc_shaper_free(t->shaper);
}

/* Logs the beginning and the end of a reduction. */
static void log_reduction(struct shaping_tree *t, uint64_t now_ns, unsigned sfi, unsigned permille)
{
        const char *name = scenario_node_of(t->scenario, ROLE_SFI, sfi)->name;
        uint64_t *since_ns = &t->reduced_ns[sfi];

        if (permille < SHARE_FULL && *since_ns == 0) {
                *since_ns = now_ns;
                log_warning("shaping: %s loses packets at its port although the plan allows no loss: "
                            "reducing its rate to %u %% of the planned rate",
                            name, permille / 10);
        } else if (permille == SHARE_FULL && *since_ns > 0) {
                log_warning("shaping: %s gets the planned rate again, after %.1f s of a reduced rate", name,
                            (double)(now_ns - *since_ns) / (double)NS_PER_S);
                *since_ns = 0;
        }
}

/* New rates also apply while no SFI is present. The bursts are then planned again. */
static void follow_rates(struct shaping_tree *t, const struct shaping_rates *rates)
{
        if (memcmp(&t->demand.rates, rates, sizeof *rates) == 0)
                return;
        t->demand.rates = *rates;
        shaping_rates_set(t->scenario, rates);
        t->burst_bytes = 0;
        t->changed = true;
}

void shaping_tree_follow(struct shaping_tree *t, uint64_t now_ns, const struct shaping_demand *demand)
{
        bool any = false;

        follow_rates(t, &demand->rates);
        for (size_t i = 0; i < ARRAY_SIZE(demand->sfi_live); i++)
                any |= demand->sfi_live[i] != 0;
        /* If all SFIs have left, the tree stays until an SFI returns. */
        if (!any || memcmp(&t->demand, demand, sizeof t->demand) == 0)
                return;
        for (unsigned i = 0; i < t->scenario->sfi.count; i++)
                log_reduction(t, now_ns, i, demand->permille[i]);
        if (memcmp(t->demand.sfi_live, demand->sfi_live, sizeof t->demand.sfi_live) != 0)
                t->insist_ns = now_ns + DRAIN_MAX_NS;
        memcpy(&t->demand, demand, sizeof t->demand);
        t->changed = true;
}

static void read_events(struct shaping_tree *t)
{
        struct tc_event e;

        for (unsigned n = 0; n < EVENTS_MAX && t->watch && tc_watch_next(t->watch, &e) > 0; n++) {
                free(e.object.options);
                t->gone |= e.what == TC_EVENT_LINK_GONE;
                t->link_changed |= e.what == TC_EVENT_LINK;
                if (e.by_us || e.what == TC_EVENT_LINK)
                        continue;
                tc_event_actor(&e, t->actor, sizeof t->actor);
                t->settle_ns = clock_now_ns() + SETTLE_NS;
                /* If notifications were lost, the change may have happened at any time since the last
                 * comparison. */
                t->event_ns = MIN(t->event_ns, e.what == TC_EVENT_LOST ? t->well_ns : clock_now_ns());
        }
}

static void account_unshaped(struct shaping_tree *t, uint64_t now_ns)
{
        uint64_t going_on_ns = t->unshaped_since_ns == NEVER_NS ? 0 : now_ns - t->unshaped_since_ns;

        stats_set(&t->stats->unshaped_ns, t->unshaped_ns + going_on_ns);
        atomic_store_explicit(&t->unshaped, t->unshaped_since_ns != NEVER_NS, memory_order_relaxed);
        metrics_record_shaped(t->metrics, t->unshaped_since_ns == NEVER_NS);
}

static void begin_unshaped(struct shaping_tree *t, const char *what)
{
        bool announced = t->event_ns != NEVER_NS;
        const char *then = t->gone ? "shaping it again once it is back" : "repairing it";

        t->unshaped_since_ns = announced ? t->event_ns : t->well_ns;
        log_warning("shaping: %s: %s, by %s: %s", t->device.name, t->gone ? "the device is gone" : what,
                    announced && t->actor[0] ? t->actor : "someone", then);
}

static void end_unshaped(struct shaping_tree *t, uint64_t now_ns, const char *how)
{
        uint64_t took_ns = now_ns - t->unshaped_since_ns;

        t->unshaped_ns += took_ns;
        t->unshaped_since_ns = NEVER_NS;
        log_warning("shaping: %s is shaped again%s, after %.3f s unshaped", t->device.name, how,
                    (double)took_ns / (double)NS_PER_S);
}

/* Another device may have the name or the address now. The settings of the old device are gone. */
static int find_again(struct shaping_tree *t)
{
        char reason[TC_REASON_MAX] = "", name[IF_NAMESIZE];
        struct tc_outcome o = {};
        struct error e = {};
        struct tc_device d;
        int r = find_device(t->scenario, t->self, &d, name);

        if (r < 0)
                return r;
        if (t->shaper && d.ifindex == t->device.ifindex) {
                t->gone = false;
                return 0;
        }
        shaping_tree_close(t);
        t->gone = false;
        t->device = d;
        t->burst_bytes = 0;
        r = open_device(t, reason, &o, &e);
        if (r < 0) {
                t->watch = tc_watch_free(t->watch);
                t->shaper = tc_shaper_free(t->shaper);
                return refuse(t, &e);
        }
        return 0;
}

/* Adds the drops of each destination's queue to its SFI's total. A count lower than before belongs to a new
 * class. */
static void count_rows(struct shaping_tree *t, const struct tc_status *status)
{
        for (unsigned i = 0; i < t->scenario->sfi.count; i++) {
                const char *text = scenario_node_of(t->scenario, ROLE_SFI, i)->address;
                struct tc_address address = {};

                if (!tc_address_parse(&address, text))
                        continue;
                for (size_t k = 0; k < status->n; k++) {
                        uint64_t drops = status->rows[k].counters.drops;

                        if (!tc_address_equal(&status->rows[k].address, &address))
                                continue;
                        stats_add(&t->dropped[i], drops - (drops < t->row_drops[i] ? 0 : t->row_drops[i]));
                        t->row_drops[i] = drops;
                }
        }
}

/* Returns how much a count of the kernel has grown. After a repair, it begins at zero. */
static uint64_t count_more(uint64_t *last, uint64_t now, bool repaired)
{
        uint64_t more = now > *last ? now - *last : now < *last && repaired ? now : 0;

        *last = now;
        return more;
}

void shaping_tree_count_drops(struct shaping_tree *t, const struct tc_status *status, bool repaired)
{
        uint64_t other = status->other.counters.drops + status->apart.counters.drops, more;

        stats_add(&t->stats->packets_other_dropped, count_more(&t->other_drops, other, repaired));
        if (repaired || t->drops != status->drops)
                count_rows(t, status);
        more = count_more(&t->drops, status->drops, repaired);
        stats_add(&t->stats->packets_source_dropped, more);
        if (more > 0)
                log_warning("shaping: %llu more packet%s dropped at the source", (unsigned long long)more,
                            more == 1 ? " was" : "s were");
}

static void count_drops(struct shaping_tree *t, const struct tc_tree *have, bool repaired)
{
        struct tc_status status = {};

        if (tc_status_make(&status, have, NULL, 0) >= 0) {
                stats_set(&t->stats->qos_backend, status.backend);
                shaping_tree_count_drops(t, &status, repaired);
                metrics_record_shaping(t->metrics, &status);
        }
        tc_status_fini(&status);
}

static void repair(struct shaping_tree *t, uint64_t now_ns)
{
        struct tc_tree have = {};

        if ((t->gone || !t->shaper) && find_again(t) < 0)
                return;
        if ((!t->shaper && !paces_sockets(t)) || install(t, now_ns, false) < 0)
                return;
        if (t->shaper && tc_shaper_read(t->shaper, &have) >= 0)
                count_drops(t, &have, true);
        tc_tree_fini(&have);
        stats_add(&t->stats->shaping_repairs, 1);
        end_unshaped(t, clock_now_ns(), " as planned");
}

/* The device may have another name, state or speed now. Its tree stays, but the plan may change. */
static void follow_device(struct shaping_tree *t)
{
        char was[IF_NAMESIZE], text[TC_OUTCOME_TEXT_MAX] = "";
        struct strbuf what = strbuf_init(text, sizeof text);
        int changes;

        t->link_changed = false;
        strcpy(was, t->device.name);
        changes = t->gone ? -ENODEV : tc_device_follow(&t->device, &what);
        t->gone |= changes == -ENODEV;
        if (changes <= 0)
                return;
        log_warning("shaping: %s %s%s%s", was, text,
                    changes & TC_DEVICE_DOWN ? "; the kernel has emptied its queues" : "",
                    changes & TC_DEVICE_FACTS ? "; planning again" : "");
        if (changes & TC_DEVICE_FACTS) {
                t->changed = true;
                t->burst_bytes = 0;
        }
}

static int compare_with_kernel(struct shaping_tree *t, char *what)
{
        struct tc_tree have = {};
        int r;

        follow_device(t);
        if (t->gone || !t->shaper)
                return t->gone || !paces_sockets(t);
        r = tc_shaper_read(t->shaper, &have);
        if (r >= 0) {
                count_drops(t, &have, false);
                r = tc_drift(&have, tc_shaper_installed(t->shaper), what);
        }
        tc_tree_fini(&have);
        return r;
}

static void look(struct shaping_tree *t)
{
        char what[TC_OUTCOME_TEXT_MAX] = "";
        uint64_t now_ns = clock_now_ns();
        struct error e = {};
        int r = compare_with_kernel(t, what);

        t->settle_ns = NEVER_NS;
        t->look_ns = now_ns + LOOK_NS;
        if (r < 0) {
                error_set(&e, r, "cannot read the qdiscs of %s: %m", t->device.name);
                (void)refuse(t, &e);
                return;
        }
        if (r > 0 && t->unshaped_since_ns == NEVER_NS)
                begin_unshaped(t, what);
        if (r > 0)
                repair(t, now_ns);
        else if (r == 0 && t->unshaped_since_ns != NEVER_NS)
                end_unshaped(t, now_ns, ", by someone else");
        if (t->unshaped_since_ns == NEVER_NS) {
                t->well_ns = clock_now_ns();
                t->event_ns = NEVER_NS;
        }
        account_unshaped(t, clock_now_ns());
}

void shaping_tree_turn(struct shaping_tree *t, bool wanted)
{
        uint64_t now_ns = clock_now_ns();
        bool apply = t->changed || now_ns >= t->again_ns;

        read_events(t);
        /* The comparison comes before each installation, because changes by other programs must not be
         * reverted silently. */
        if (wanted || apply || t->link_changed || now_ns >= t->look_ns || now_ns >= t->settle_ns)
                look(t);
        if (now_ns >= t->port_ns + PORT_NS && t->watch && !t->gone)
                read_port(t);
        if (apply && t->unshaped_since_ns == NEVER_NS && (t->changed || now_ns >= t->again_ns))
                (void)install(t, now_ns, false);
}

uint64_t shaping_tree_deadline_ns(const struct shaping_tree *t)
{
        return MIN(MIN(t->look_ns, t->settle_ns), t->unshaped_since_ns == NEVER_NS ? t->again_ns : NEVER_NS);
}
