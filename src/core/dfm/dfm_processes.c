/* Keeps the record of the run. It accounts for the events of each SFI process separately, so that the events
 * of a process that exited still count when another DFM resumes the run. dfm_resume.c collects the reports of
 * the remaining processes. */
#include "core/dfm_processes.h"

#include <errno.h>
#include <stddef.h>
#include <string.h>

#include "dfm_internal.h"
#include "base/util.h"

static void add(struct node_totals *to, const struct node_totals *t)
{
        to->complete += t->complete;
        to->partial += t->partial;
        to->missing += t->missing;
        to->absent += t->absent;
        to->payload_bytes += t->payload_bytes;
}

static uint64_t above(uint64_t a, uint64_t b)
{
        return a - MIN(a, b);
}

static void add_end(struct node_totals *t, const struct finished_entry *f, uint32_t n_ros)
{
        uint32_t missing = f->end == EVENT_PARTIAL ? MIN(f->missing, n_ros) : 0;

        if (f->end >= EVENT_LOST)
                return;
        if (f->end == EVENT_COMPLETE) {
                t->complete++;
                t->payload_bytes += f->payload_bytes;
        } else {
                t->partial++;
                t->missing += missing;
        }
        t->absent += MIN(f->absent, n_ros - missing);
}

int dfm_ledger_init(struct dfm *d)
{
        const struct dfm_processes *f = d->config.previous_processes;
        struct dfm_ledger *l = &d->ledger;

        l->has_all = true;
        l->version = 1;
        l->dfms[0] = d->config.incarnation;
        l->nodes = calloc(d->config.n_ros + d->config.n_sfi, sizeof *l->nodes);
        if (!l->nodes || event_set_init(&l->ended) < 0)
                return -ENOMEM;
        if (!f || f->cookie == 0 || f->n_ros != d->config.n_ros || f->n_sfi != d->config.n_sfi ||
            f->n_words > DFM_PROCESSES_WORDS || f->n_away > DFM_AWAY_WORDS || f->n_lost > DFM_LOST_WORDS)
                return 0;
        l->previous = calloc(1, sizeof *l->previous);
        if (!l->previous)
                return -ENOMEM;
        memcpy(l->previous, f, offsetof(struct dfm_processes, words) + f->n_words * sizeof *f->words);
        return 0;
}

void dfm_ledger_fini(struct dfm *d)
{
        event_set_fini(&d->ledger.ended);
        free(d->ledger.nodes);
        free(d->ledger.previous);
}

static struct dfm_process *process(const struct dfm *d, enum node_role role, uint32_t index)
{
        return &d->ledger.nodes[role == ROLE_ROS ? index : d->config.n_ros + index];
}

static struct dfm_process *sfi_process(const struct dfm *d, uint32_t sfi)
{
        return process(d, ROLE_SFI, sfi);
}

static uint64_t built(const struct dfm_process *p)
{
        return p->left ? 0 : p->ends.complete + p->ends.partial;
}

/* A process that should have reported and can no longer do so may have built events that are in no record. */
static void replace(struct dfm *d, struct dfm_node *n, struct dfm_process *p, uint64_t incarnation)
{
        bool silent = n->awaited && (p->incarnation != 0 || !n->was_in_run);

        add(&d->ledger.replaced, &p->ends);
        *p = (struct dfm_process){
                .incarnation = incarnation,
                .unknown = p->unknown || silent,
                .unclosed = p->unclosed + built(p),
        };
        n->replaced |= silent;
        n->awaited = n->was_in_run && !n->inventory_done;
}

void dfm_process_comes(struct dfm *d, enum node_role role, uint16_t index, uint64_t incarnation)
{
        struct dfm_process *p = process(d, role, index);

        if (p->incarnation == incarnation && !p->gone)
                return;
        if (p->incarnation != incarnation && role == ROLE_SFI)
                replace(d, dfm_node(d, ROLE_SFI, index), p, incarnation);
        else if (p->incarnation != incarnation)
                *p = (struct dfm_process){.incarnation = incarnation};
        p->gone = false;
        dfm_ledger_changed(d);
}

void dfm_process_goes(struct dfm *d, enum node_role role, uint16_t index)
{
        process(d, role, index)->gone = true;
        dfm_ledger_changed(d);
}

void dfm_process_left(struct dfm *d, enum node_role role, uint16_t index)
{
        struct dfm_process *p = process(d, role, index);

        if (p->left)
                return;
        p->left = true;
        dfm_ledger_changed(d);
}

bool dfm_process_was_in_run(const struct dfm *d, enum node_role role, uint32_t index)
{
        return process(d, role, index)->incarnation != 0;
}

bool dfm_process_is_another(const struct dfm *d, enum node_role role, uint32_t index, uint64_t incarnation)
{
        return dfm_process_was_in_run(d, role, index) && process(d, role, index)->incarnation != incarnation;
}

bool dfm_process_has_built(const struct dfm *d, uint32_t sfi)
{
        return built(sfi_process(d, sfi)) > 0;
}

uint64_t dfm_process_unclosed(const struct dfm *d, uint32_t sfi)
{
        return sfi_process(d, sfi)->unclosed;
}

uint64_t dfm_process_left_open(const struct dfm *d, uint32_t sfi)
{
        return dfm_node(d, ROLE_SFI, sfi)->live ? 0 : built(sfi_process(d, sfi));
}

bool dfm_process_returns(const struct dfm *d, uint16_t sfi, uint64_t incarnation)
{
        return dfm_node(d, ROLE_SFI, sfi)->welcomed == 0 && sfi_process(d, sfi)->incarnation == incarnation;
}

void dfm_record_end(struct dfm *d, uint16_t sfi, const struct finished_entry *f, bool again)
{
        add_end(&sfi_process(d, sfi)->ends, f, d->config.n_ros);
        if (!again)
                return;
        add_end(&d->ledger.again, f, d->config.n_ros);
        d->counts.ended_again += f->end < EVENT_LOST;
}

/* Unless it has other information, the next DFM counts an event below `oldest` that no SFI built as rejected.
 * It also asks the SFIs only about events that they still have records of. */
void dfm_ledger_record(struct dfm *d)
{
        struct dfm_ledger *l = &d->ledger;
        uint64_t ends = d->counts.lost + d->counts.not_taken;

        if (ends == l->recorded_ends && d->table.oldest - l->recorded_oldest < EVB_EVENTS_KEPT)
                return;
        l->recorded_ends = ends;
        l->recorded_oldest = d->table.oldest;
        dfm_ledger_changed(d);
}

static uint64_t since_start_ns(const struct dfm *d, uint64_t time_ns)
{
        return time_ns > 0 ? MAX(time_ns - d->started_ns, UINT64_C(1)) : 0;
}

static uint64_t time_since(const struct dfm *d, uint64_t since_start_ns)
{
        return since_start_ns > 0 ? d->started_ns + since_start_ns : 0;
}

static struct dfm_figures figures_now(const struct dfm *d)
{
        const struct dfm_counts *c = &d->counts;

        return (struct dfm_figures){
                .assigned = c->assigned,
                .reassigned = c->reassigned,
                .busy_ns = c->busy_ns,
                .paused_ns = c->paused_ns,
                .first_trigger_ns = since_start_ns(d, c->first_trigger_ns),
                .first_complete_ns = since_start_ns(d, c->first_complete_ns),
                .last_complete_ns = since_start_ns(d, c->last_complete_ns),
                .announced = c->announced,
                .level2 = d->level2.counts,
        };
}

static void record_figures(struct dfm *d, uint64_t now_ns)
{
        const struct dfm_figures now = figures_now(d);
        struct dfm_ledger *l = &d->ledger;

        if (now_ns - l->recorded_figures_ns < NS_PER_S || memcmp(&now, &l->recorded_figures, sizeof now) == 0)
                return;
        l->recorded_figures = now;
        l->recorded_figures_ns = now_ns;
        dfm_ledger_changed(d);
}

void dfm_ledger_record_counts(struct dfm *d, uint64_t now_ns)
{
        const struct dfm_offered *c = &d->counts.offered;
        uint64_t sum = c->refused + c->repeated + c->implausible + c->not_taken + c->missing + c->missed +
                       c->unclear + c->datagrams_lost + d->counts.announced.late;

        if (sum != d->ledger.recorded_discarded)
                dfm_ledger_changed(d);
        d->ledger.recorded_discarded = sum;
        record_figures(d, now_ns);
}

/* Called in every step, although there is rarely anything to record. */
void dfm_ledger_record_shortfalls(struct dfm *d)
{
        const struct dfm_offered *c = &d->counts.offered;
        uint64_t sum = c->refused + c->repeated + c->implausible + c->missed + c->unclear +
                       c->datagrams_lost + c->in_pauses + d->counts.announced.late;

        if (sum == d->ledger.shortfall_sum)
                return;
        d->ledger.shortfall_sum = sum;
        const uint64_t counts[] = {c->refused, c->repeated,       c->implausible, c->missed,
                                   c->unclear, c->datagrams_lost, c->in_pauses,   d->counts.announced.late};
        unsigned shortfalls = 0;

        for (size_t i = 0; i < ARRAY_SIZE(counts); i++)
                shortfalls |= (counts[i] > 0) << i;
        if (shortfalls != d->ledger.recorded_shortfalls)
                dfm_ledger_changed(d);
        d->ledger.recorded_shortfalls = shortfalls;
}

/* A count of frames is final only if its ROS left. */
static void load_process(struct dfm *d, enum node_role role, uint32_t i, const struct dfm_process *p)
{
        struct dfm_node *n = dfm_node(d, role, i);

        *process(d, role, i) = *p;
        n->vanished = p->vanished;
        n->replaced = p->replaced;
        n->left = p->left;
        n->flags = p->flags & (DFM_FLAGS_KEPT | (p->left ? ALIVE_QUIET | ALIVE_COUNTS | ALIVE_SURPLUS : 0));
        n->frames = p->frames;
        n->awaited = role == ROLE_SFI && p->incarnation != 0 && !p->gone;
        d->failed |= (n->flags & ALIVE_FAILED) != 0;
}

static void load_figures(struct dfm *d, const struct dfm_figures *f)
{
        struct dfm_counts *c = &d->counts;

        c->assigned = f->assigned;
        c->reassigned = f->reassigned;
        c->busy_ns += f->busy_ns;
        c->paused_ns += f->paused_ns;
        c->first_trigger_ns = time_since(d, f->first_trigger_ns);
        c->first_complete_ns = time_since(d, f->first_complete_ns);
        c->last_complete_ns = time_since(d, f->last_complete_ns);
        c->announced = f->announced;
        d->level2.counts = f->level2;
}

/* How many forgotten events an SFI that was away may still report. */
static uint64_t count_forgotten(const struct dfm_processes *f)
{
        uint64_t n = 0;

        for (uint64_t k = 0; k < 64 * (uint64_t)f->n_away; k++)
                n += f->away_from + k >= f->forgotten_from && f->away[k / 64] >> k % 64 & 1;
        return n;
}

static void load_lost(struct dfm *d, const struct dfm_processes *f)
{
        for (uint64_t k = 0; k < 64 * (uint64_t)f->n_lost; k++) {
                uint64_t event = f->lost_from + k;

                if (f->lost[k / 64] >> k % 64 & 1)
                        d->lost_events[event % EVB_EVENTS_KEPT] = (struct dfm_lost){
                                .lost = true, .why = DFM_LOSSES, .sfi = NO_SFI, .event = event};
        }
}

void dfm_ledger_load(struct dfm *d)
{
        struct dfm_ledger *l = &d->ledger;
        const struct dfm_processes *f = l->previous;

        dfm_ledger_changed(d);
        memset(l->nodes, 0, (d->config.n_ros + d->config.n_sfi) * sizeof *l->nodes);
        d->hold.metadata = (struct metadata_set){};
        l->has_all = f && f->cookie == d->cookie && f->has_all;
        if (!f || f->cookie != d->cookie) {
                free(l->previous);
                l->previous = NULL;
                return;
        }
        memcpy(&l->dfms[1], f->dfms, (DFM_LINEAGE - 1) * sizeof *l->dfms);
        l->replaced = f->replaced;
        l->again = f->again;
        l->guessed = f->guessed;
        l->unrecorded = f->unrecorded;
        l->forgotten = above(f->forgotten, count_forgotten(f));
        d->hold.metadata = f->metadata;
        load_figures(d, &f->figures);
        for (uint32_t i = 0; i < d->config.n_ros; i++)
                load_process(d, ROLE_ROS, i, &f->ross[i]);
        for (uint32_t i = 0; i < d->config.n_sfi; i++)
                load_process(d, ROLE_SFI, i, &f->sfis[i]);
        load_lost(d, f);
        d->built_end = f->built_end;
        d->resume.oldest = f->oldest;
        d->resume.newest = MIN(MAX(f->next, f->oldest), f->oldest + EVB_EVENT_WINDOW);
}

void dfm_ledger_check(struct dfm *d, uint64_t dfm)
{
        for (int i = 0; i < DFM_LINEAGE; i++) {
                if (d->ledger.dfms[i] == dfm)
                        return;
        }
        if (d->ledger.has_all)
                dfm_ledger_changed(d);
        d->ledger.has_all = false;
}

/* An SFI that was away and has not reported yet may have built the event. */
static bool is_away(const struct dfm_processes *f, uint64_t event)
{
        uint64_t k = event - f->away_from;

        return k / 64 < f->n_away && f->away[k / 64] >> k % 64 & 1;
}

bool dfm_ledger_has_ended(const struct dfm *d, uint64_t event)
{
        const struct dfm_processes *f = d->ledger.previous;
        uint64_t k;

        if (!f || is_away(f, event))
                return false;
        if (event < f->oldest)
                return true;
        k = event / 64 - f->oldest / 64;
        return k < f->n_words && f->words[k] >> event % 64 & 1;
}

bool dfm_ledger_was_open(const struct dfm *d, uint64_t event)
{
        const struct dfm_processes *f = d->ledger.previous;

        return event >= d->resume.oldest || (f && event >= f->forgotten_from && is_away(f, event));
}

bool dfm_ledger_knows(const struct dfm *d, uint64_t event)
{
        uint64_t bit = event % EVB_EVENT_WINDOW;

        return (d->resume.known[bit / 64] >> bit % 64 & 1) || dfm_ledger_has_ended(d, event);
}

struct node_totals dfm_ledger_previous(const struct dfm *d)
{
        const struct dfm_processes *f = d->ledger.previous;
        struct node_totals sum = f ? f->replaced : (struct node_totals){};

        for (uint32_t i = 0; f && i < d->config.n_sfi; i++)
                add(&sum, &f->sfis[i].ends);
        return sum;
}

struct node_totals dfm_ledger_report(struct dfm *d, uint16_t sfi, const struct node_totals *t)
{
        struct dfm_node *n = dfm_node(d, ROLE_SFI, sfi);
        struct node_totals *counted = &sfi_process(d, sfi)->ends, more;

        more = (struct node_totals){
                .complete = above(t->complete, counted->complete),
                .partial = above(t->partial, counted->partial),
                .missing = above(t->missing, counted->missing),
                .absent = above(t->absent, counted->absent),
                .payload_bytes = above(t->payload_bytes, counted->payload_bytes),
        };
        *counted = *t;
        n->awaited = false;
        sfi_process(d, sfi)->unknown |= n->late && d->ledger.had_gaps;
        dfm_ledger_changed(d);
        return more;
}

/* Without a record of all processes, each process that has not reported may have had predecessors. */
static void settle_process(struct dfm *d, uint32_t i)
{
        struct dfm_node *n = dfm_node(d, ROLE_SFI, i);
        struct dfm_process *p = sfi_process(d, i);

        if (!d->ledger.has_all && !n->inventory_done) {
                n->awaited |= p->incarnation == 0;
                p->unknown |= !n->awaited;
        }
        p->unknown |= !d->ledger.has_all && n->inventory_done && n->late;
        n->vanished |= n->awaited && !n->live && p->incarnation != 0;
}

struct node_totals dfm_ledger_settle(struct dfm *d)
{
        struct node_totals sum = d->ledger.replaced;

        for (uint32_t i = 0; i < d->config.n_sfi; i++) {
                settle_process(d, i);
                add(&sum, &sfi_process(d, i)->ends);
        }
        d->ledger.had_gaps = !d->ledger.has_all;
        d->ledger.unrecorded |= !d->ledger.has_all;
        d->ledger.has_all = true;
        dfm_ledger_changed(d);
        return sum;
}

bool dfm_ledger_has_gap(const struct dfm *d, uint32_t sfi)
{
        return sfi_process(d, sfi)->unknown || dfm_node(d, ROLE_SFI, sfi)->awaited;
}

const struct dfm_came *dfm_previous_came(const struct dfm *d)
{
        const struct dfm_resume *r = &d->resume;

        return r->resumed && !r->active && r->is_exact ? &d->ledger.previous->came : NULL;
}

uint64_t dfm_processes_version(const struct dfm *d)
{
        return d->state == RUN_STARTING && !d->resume.active ? 0 : d->ledger.version;
}

/* Until the run is settled, only the previous DFM's processes are known. */
static void copy_previous(const struct dfm *d, struct dfm_processes *ret)
{
        const struct dfm_processes *f = d->ledger.previous;

        ret->counted = f ? f->counted : (struct dfm_ends){};
        ret->came = f ? f->came : (struct dfm_came){};
        ret->oldest = f ? f->oldest : 0;
        ret->next = f ? f->next : 0;
        ret->built_end = f ? f->built_end : 0;
        ret->away_from = f ? f->away_from : 0;
        ret->forgotten_from = f ? f->forgotten_from : 0;
        ret->n_away = f ? f->n_away : 0;
        if (f)
                memcpy(ret->away, f->away, f->n_away * sizeof *f->away);
        ret->lost_from = f ? f->lost_from : 0;
        ret->n_lost = f ? f->n_lost : 0;
        if (f)
                memcpy(ret->lost, f->lost, f->n_lost * sizeof *f->lost);
        ret->n_words = f ? f->n_words : 0;
        if (f)
                memcpy(ret->words, f->words, f->n_words * sizeof *f->words);
}

/* Counts the events that the next DFM may still learn about, once the missing SFI reports. */
static uint64_t count_unreported(const struct dfm *d)
{
        for (uint32_t i = 0; i < d->config.n_sfi && !d->resume.none_is_lost; i++) {
                if (dfm_ledger_has_gap(d, i))
                        return MIN(d->resume.unreported, d->counts.lost);
        }
        return 0;
}

/* Late numbers that wait count as not received. ROSs announce such numbers again; a trigger box does not send
 * them again. */
static void copy_came(const struct dfm *d, struct dfm_came *ret)
{
        const struct dfm_triggers *q = &d->triggers;

        *ret = (struct dfm_came){
                .offered = d->counts.offered,
                .next = q->numbers.next,
                .numbered = q->numbers.started,
                .in_spill = q->in_spill,
                .paused = d->hold.paused,
                .over = d->state >= RUN_DRAINING,
                .has_datagram = q->has_datagram,
                .has_empty = q->has_empty,
                .next_datagram = q->next_datagram,
        };
        memcpy(ret->seen, q->numbers.seen, sizeof ret->seen);
        for (uint32_t k = q->tail; k != q->head; k++) {
                const struct dfm_waiting *w = &q->ring[k % q->size];

                ret->waiting += !w->late;
                ret->offered.missed += w->late && d->config.trigger_source == DFM_TRIGGER_OFFERED;
                if (w->late)
                        bits_set(ret->seen, w->trigger.number % DFM_NUMBERS_WINDOW, false);
        }
}

static uint64_t unreported_word(const struct dfm *d, uint64_t from)
{
        uint64_t n = MIN(d->resume.newest - from, UINT64_C(64)), bits = 0;

        for (uint64_t i = 0; i < n; i++)
                bits |= (uint64_t)!dfm_ledger_knows(d, from + i) << i;
        return bits;
}

/* Copies the bitmap of the unreported events. If the record has no room for all of them, it gets the newest
 * ones. */
static void copy_away(const struct dfm *d, struct dfm_processes *ret)
{
        const uint64_t to = d->resume.newest;
        uint64_t at = MAX(d->resume.from, (to - MIN(to, EVB_EVENTS_KEPT * 2 - 64)) / 64 * 64);

        while (at < to && unreported_word(d, at) == 0)
                at += 64;
        ret->away_from = ret->forgotten_from = at;
        while (ret->forgotten_from < to &&
               (dfm_ledger_knows(d, ret->forgotten_from) || !dfm_ledger_was_open(d, ret->forgotten_from)))
                ret->forgotten_from++;
        for (ret->n_away = 0; at < to; at += 64)
                ret->away[ret->n_away++] = unreported_word(d, at);
}

static uint64_t lost_word(const struct dfm *d, uint64_t from)
{
        uint64_t bits = 0;

        for (uint64_t i = 0; i < 64; i++) {
                const struct dfm_lost *e = &d->lost_events[(from + i) % EVB_EVENTS_KEPT];

                bits |= (uint64_t)(e->lost && e->event == from + i) << i;
        }
        return bits;
}

static void copy_lost(const struct dfm *d, struct dfm_processes *ret)
{
        const uint64_t to = d->counts.lost > 0 ? d->table.next_event : 0;
        uint64_t at = (to - MIN(to, EVB_EVENTS_KEPT - 64)) / 64 * 64;

        while (at < to && lost_word(d, at) == 0)
                at += 64;
        ret->lost_from = at;
        for (ret->n_lost = 0; at < to; at += 64)
                ret->lost[ret->n_lost++] = lost_word(d, at);
}

static void read_events(const struct dfm *d, struct dfm_processes *ret)
{
        const struct dfm_counts *c = &d->counts;
        uint64_t unreported = count_unreported(d);

        ret->counted = (struct dfm_ends){c->complete, c->partial,   c->lost - unreported,
                                         c->rejected, c->not_taken, unreported};
        copy_came(d, &ret->came);
        ret->oldest = d->table.oldest;
        ret->next = d->table.next_event;
        ret->built_end = d->built_end;
        ret->n_away = 0;
        if (unreported > 0)
                copy_away(d, ret);
        copy_lost(d, ret);
        ret->n_words = 0;
        for (uint64_t at = ret->oldest / 64 * 64; at < ret->next && ret->n_words < DFM_PROCESSES_WORDS;
             at += 64)
                ret->words[ret->n_words++] = event_set_word(&d->ledger.ended, at);
}

static void take_process(const struct dfm *d, enum node_role role, uint32_t i, struct dfm_process *ret)
{
        const struct dfm_node *n = dfm_node(d, role, i);

        *ret = *process(d, role, i);
        ret->gone &= !n->awaited;
        ret->vanished = n->vanished;
        ret->replaced = n->replaced;
        ret->flags = n->flags;
        ret->frames = n->frames;
        ret->unknown |= n->awaited && ret->incarnation == 0;
}

void dfm_processes_fill(const struct dfm *d, struct dfm_processes *ret)
{
        const struct dfm_ledger *l = &d->ledger;

        ret->cookie = d->cookie;
        memcpy(ret->dfms, l->dfms, sizeof ret->dfms);
        ret->has_all = l->has_all;
        ret->guessed = l->guessed;
        ret->unrecorded = l->unrecorded;
        ret->forgotten = d->ledger.forgotten + d->resume.forgotten;
        ret->replaced = l->replaced;
        ret->again = l->again;
        ret->figures = figures_now(d);
        ret->metadata = d->hold.metadata;
        ret->n_ros = d->config.n_ros;
        ret->n_sfi = d->config.n_sfi;
        for (uint32_t i = 0; i < d->config.n_ros; i++)
                take_process(d, ROLE_ROS, i, &ret->ross[i]);
        for (uint32_t i = 0; i < d->config.n_sfi; i++)
                take_process(d, ROLE_SFI, i, &ret->sfis[i]);
        if (d->resume.active)
                copy_previous(d, ret);
        else
                read_events(d, ret);
}
