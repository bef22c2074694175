/* A ROS's shaping: which layout, for whom, and what came of it. How it is done is in tc. */
#include "shaping.h"

#include <errno.h>
#include <string.h>

#include "evb/base/log.h"
#include "evb/base/quantity.h"
#include "evb/base/util.h"
#include "evb/tc/request.h"
#include "evb/tc/shaper.h"
#include "evb/tc/status.h"

/* Classes of SFIs that left are looked at so often until they are empty, and so long at most. */
#define DRAIN_LOOK_NS (20 * NS_PER_MS)
#define DRAIN_MAX_NS (5 * NS_PER_S)
/* After a refusal it is tried again. */
#define RETRY_NS NS_PER_S
#define ACCOUNT_NS NS_PER_S

struct shaping {
        struct node *node;
        struct tc_device device;
        struct tc_shaper *shaper;
        enum scenario_qos backend; /* QOS_NONE: only the interface is tuned */
        uint64_t burst_bytes;
        uint64_t live[EVB_SFI_MAX / 64];
        bool wanted[EVB_SFI_MAX];
        struct tc_destination destinations[EVB_SFI_MAX];
        uint64_t again_ns; /* then apply again: something drains, or was refused */
        uint64_t insist_ns;
        uint64_t account_ns;
        uint64_t drops;
};

static bool is_live(const uint64_t *live, unsigned sfi)
{
        return live[sfi / 64] >> sfi % 64 & 1;
}

static void log_warnings(const struct tc_plan *p, const struct tc_outcome *o)
{
        for (size_t i = 0; p && i < p->n_warnings; i++)
                log_warning("shaping: %s", p->warnings[i]);
        for (size_t i = 0; i < o->n_warnings; i++)
                log_warning("shaping: %s", o->warnings[i]);
}

static int make_plan(struct shaping *s, struct tc_plan *ret, char *why)
{
        const struct scenario *sc = s->node->scenario;
        struct tc_request q;
        int r;

        for (unsigned i = 0; i < sc->sfi.count; i++)
                s->wanted[i] = is_live(s->live, i);
        r = tc_request_of_scenario(&q, sc, s->node->self, &s->device, s->destinations, s->wanted, why);
        if (r < 0)
                return r;
        /* All are gone: what is there stays until one comes back. */
        if (q.n_destinations == 0)
                return -ENODATA;
        q.backend = s->backend;
        return tc_plan_make(ret, &q, why);
}

static int install(struct shaping *s, uint64_t now_ns, bool first)
{
        char why[TC_REASON_MAX] = "";
        struct tc_outcome o = {};
        struct tc_plan p = {};
        int r = make_plan(s, &p, why);

        s->again_ns = NEVER_NS;
        if (r == -ENODATA)
                return 0;
        if (r < 0)
                return log_error_errno(r, "shaping: %s", why[0] ? why : strerror(-r));
        r = tc_shaper_apply(s->shaper, &p, false, 0, now_ns >= s->insist_ns, &o);
        if (r < 0)
                s->again_ns = now_ns + RETRY_NS;
        else if (o.undraining > 0)
                s->again_ns = now_ns + DRAIN_LOOK_NS;
        if (o.dropped_bytes > 0)
                log_warning("shaping: %llu bytes for SFIs that have left were dropped", (unsigned long long)o.dropped_bytes);
        if (r >= 0) {
                s->burst_bytes = p.shares[0].burst_bytes;
                stats_set(&s->node->stats->qos_backend, s->backend);
                stats_set(&s->node->stats->qos_rate_bps, p.shares[0].rate_bps);
                log_warnings(first ? &p : NULL, &o);
        }
        tc_plan_fini(&p);
        return r < 0 ? log_error_errno(r, "shaping: %s", o.error) : 0;
}

static void note_tuning(struct shaping *s)
{
        struct tc_tuning t = TC_TUNING_UNCHANGED;
        struct node_stats *st = s->node->stats;

        (void)tc_tuning_read(s->device.name, &t);
        stats_set(&st->mtu_bytes, t.mtu_bytes);
        stats_set(&st->rx_usecs, t.rx_usecs);
        stats_set(&st->rx_frames, t.rx_frames);
        stats_set(&st->tx_usecs, t.tx_usecs);
        stats_set(&st->tx_frames, t.tx_frames);
}

static int find_device(struct shaping *s)
{
        const struct scenario_node *self = s->node->self;
        char name[IF_NAMESIZE] = "";
        int r = 0;

        if (self->device[0])
                snprintf(name, sizeof name, "%.*s", IF_NAMESIZE - 1, self->device);
        else
                r = tc_device_of_address(self->address, name);
        if (r >= 0)
                r = tc_device_read(&s->device, name);
        if (r < 0)
                return log_error_errno(r, "shaping: node %s: no device \"%s\" with address %s here: %m", self->name, name, self->address);
        if (strcmp(name, "lo") == 0)
                return log_error_errno(EOPNOTSUPP, "shaping: all nodes share lo: there is no device of this node's own to shape; allowed: qos.backend = none, qos.required = no, or evb run --net lab");
        return 0;
}

/* That it could be made; nothing is installed. */
static int check_plan(struct shaping *s)
{
        char why[TC_REASON_MAX] = "";
        struct tc_plan p = {};
        int r = s->backend == QOS_NONE ? 0 : make_plan(s, &p, why);

        tc_plan_fini(&p);
        return r < 0 ? log_error_errno(r, "shaping: %s", why[0] ? why : strerror(-r)) : 0;
}

static int begin(struct shaping *s, const struct tc_tuning *tuning)
{
        const struct scenario *sc = s->node->scenario;
        char why[TC_REASON_MAX] = "", rate[QUANTITY_TEXT_MAX];
        struct tc_outcome o = {};
        int r = find_device(s);

        if (r < 0)
                return r;
        r = tc_shaper_new(&s->shaper, &s->device, &o);
        if (r >= 0 && sc->qos.backend != QOS_NONE)
                r = tc_shaper_probe(s->shaper, (enum scenario_qos)sc->qos.backend, &s->backend, why, &o);
        if (r >= 0 && !s->node->check_only)
                r = tc_shaper_tune(s->shaper, tuning, &o);
        if (r < 0)
                return log_error_errno(r, "shaping: %s", o.error);
        if (s->node->check_only)
                return check_plan(s);
        /* The MTU may be another now. */
        r = tc_device_read(&s->device, s->device.name);
        if (r >= 0 && s->backend != QOS_NONE)
                r = install(s, clock_now_ns(), true);
        if (r < 0)
                return r;
        note_tuning(s);
        if (s->backend != QOS_NONE)
                log_info("shaping %s: %s; %s for each SFI", s->device.name, why,
                         quantity_format_rate(stats_get(&s->node->stats->qos_rate_bps), rate));
        return 0;
}

int shaping_new(struct shaping **ret, struct node *n)
{
        const struct scenario *sc = n->scenario;
        struct tc_tuning tuning = tc_tuning_of_scenario(sc);
        struct shaping *s;
        int r;

        *ret = NULL;
        if (sc->qos.backend == QOS_NONE && tc_tuning_is_unchanged(&tuning))
                return 0;
        s = calloc(1, sizeof *s);
        if (!s)
                return log_error_errno(ENOMEM, "shaping: %m");
        s->node = n;
        s->again_ns = NEVER_NS;
        memset(s->live, 0xff, sizeof s->live);
        r = begin(s, &tuning);
        if (r < 0 || n->check_only) {
                if (n->check_only)
                        tc_shaper_free(take_ptr(s->shaper));
                shaping_free(s);
                if (r >= 0)
                        return 0;
                if (sc->qos.required)
                        return r;
                log_warning("shaping: this node runs unshaped, as qos.required = no allows");
                return 0;
        }
        *ret = s;
        return 0;
}

struct shaping *shaping_free(struct shaping *s)
{
        struct tc_outcome o = {};

        if (!s)
                return NULL;
        if (s->shaper && tc_shaper_remove(s->shaper, &o) < 0)
                log_error("shaping: %s", o.error);
        log_warnings(NULL, &o);
        tc_shaper_free(s->shaper);
        free(s);
        return NULL;
}

void shaping_turn(struct shaping *s, uint64_t now_ns, const uint64_t *sfi_live)
{
        bool changed = s && memcmp(s->live, sfi_live, sizeof s->live) != 0;

        if (!s || s->backend == QOS_NONE || (!changed && now_ns < s->again_ns))
                return;
        if (changed) {
                memcpy(s->live, sfi_live, sizeof s->live);
                s->insist_ns = now_ns + DRAIN_MAX_NS;
        }
        (void)install(s, now_ns, false);
}

uint64_t shaping_deadline_ns(const struct shaping *s)
{
        return s ? s->again_ns : NEVER_NS;
}

static int read_counters(struct shaping *s)
{
        struct tc_tree have = {};
        struct tc_status status = {};
        int r = tc_shaper_read(s->shaper, &have);

        if (r >= 0)
                r = tc_status_make(&status, &have, NULL, 0);
        if (r >= 0) {
                stats_set(&s->node->stats->qos_backend, status.backend);
                stats_set(&s->node->stats->packets_source_dropped, status.drops);
                if (status.drops > s->drops)
                        log_warning("shaping: %llu packets more were dropped here, at the source",
                                    (unsigned long long)(status.drops - s->drops));
                s->drops = status.drops;
        }
        tc_status_fini(&status);
        tc_tree_fini(&have);
        return r;
}

void shaping_account(struct shaping *s)
{
        uint64_t now_ns = clock_now_ns();

        if (!s || s->backend == QOS_NONE)
                return;
        /* Every so often; at the end at once, so that the report has the last of it. */
        if (now_ns < s->account_ns && s->node->kind->state(s->node) != RUN_ENDED)
                return;
        s->account_ns = now_ns + ACCOUNT_NS;
        (void)read_counters(s);
}

size_t shaping_super_packet_bytes(const struct shaping *s)
{
        return s && s->backend == QOS_HTB ? s->burst_bytes : 0;
}
