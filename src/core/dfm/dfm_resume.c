/* Resumes the run of a previous DFM. It asks each SFI which events have ended there and which are open, and
 * reassigns the events that no SFI reported. docs/protocol.md ("A DFM that restarts") describes the rules. */
#include "dfm_resume.h"

#include <string.h>

#include "dfm_internal.h"

/* Pause before an unanswered Inquiry is repeated. */
#define INQUIRY_AGAIN_NS (20 * NS_PER_MS)

/* A run that has ended is never resumed. Without a record of the previous run, the nodes are trusted. */
bool dfm_may_resume_run(const struct dfm *d, const struct message *join)
{
        const struct dfm_previous *f = &d->config.previous;

        if (d->state != RUN_STARTING || d->resume.active ||
            join->join.newest - join->join.oldest > EVB_EVENT_WINDOW)
                return false;
        if (f->known && f->cookie != join->header.cookie)
                return false;
        return d->config.run_is_free || d->config.run == join->join.run;
}

static void forget_nodes(struct dfm *d)
{
        for (uint32_t i = 0; i < d->config.n_ros + d->config.n_sfi; i++) {
                struct dfm_node *n = &d->nodes[i];

                d->n_answers -= n->answer_due;
                *n = (struct dfm_node){.received = n->received};
        }
        for (uint32_t i = 0; i < d->config.n_ros; i++)
                d->ross[i].xoff = d->ross[i].left_out = false;
        for (uint32_t i = 0; i < d->config.n_sfi; i++)
                d->sfis[i].joined = false;
        d->n_live[ROLE_ROS] = d->n_live[ROLE_SFI] = 0;
        d->n_xoff = 0;
}

void dfm_resume_run(struct dfm *d, uint64_t now_ns, const struct message *join)
{
        d->cookie = join->header.cookie;
        d->config.run = join->join.run;
        d->resume.active = d->resume.resumed = true;
        /* Nodes of the discarded run join again at the next KeepAlive. */
        forget_nodes(d);
        dfm_ledger_load(d);
        d->resume.from = MAX(d->resume.oldest, join->join.oldest - MIN(join->join.oldest, EVB_EVENTS_KEPT));
        if (d->ledger.previous && d->ledger.previous->n_away > 0)
                d->resume.from = MIN(d->resume.from, d->ledger.previous->away_from);
        if (d->ledger.previous && d->ledger.previous->n_lost > 0)
                d->resume.from = MIN(d->resume.from, d->ledger.previous->lost_from);
        d->resume.from = d->resume.from / 64 * 64;
        d->keep_alive_due_ns = now_ns;
}

/* Limits the window, even if a node reports an implausible number. */
static void record_newest(struct dfm_resume *r, uint64_t newest)
{
        if (newest > r->newest)
                r->newest = MAX(r->newest, MIN(newest, r->from + EVB_EVENT_WINDOW));
}

/* Whether this DFM does not know the node's work in the run, because the node followed another DFM until
 * now. */
static bool is_unknown(const struct dfm *d, uint16_t sfi, const struct message *join)
{
        const struct dfm_node *n = dfm_node(d, ROLE_SFI, sfi);
        const struct dfm_sfi *s = &d->sfis[sfi];

        return join->dfm != d->config.incarnation && !n->was_in_run &&
               !(s->joined && s->incarnation == n->welcomed);
}

void dfm_receive_join_in_run(struct dfm *d, enum node_role role, uint16_t index, const struct message *join)
{
        struct dfm_node *n = dfm_node(d, role, index);
        uint64_t oldest = join->join.oldest;

        if (d->resume.active) {
                dfm_ledger_check(d, join->dfm);
                d->resume.oldest = MAX(d->resume.oldest, oldest);
                record_newest(&d->resume, join->join.newest);
        }
        if (role != ROLE_SFI || !is_unknown(d, index, join))
                return;
        /* The node may also join late, after the run has resumed. */
        d->resume.late |= !d->resume.active;
        n->was_in_run = n->awaited = true;
        n->inventory_next = d->resume.from;
        n->inquiry_due_ns = 0;
}

static bool awaits_inventory(const struct dfm_node *n)
{
        return n->live && n->was_in_run && !n->inventory_done;
}

bool dfm_awaits_inventory(const struct dfm *d, uint16_t sfi)
{
        return awaits_inventory(dfm_node(d, ROLE_SFI, sfi));
}

bool dfm_make_inquiry(struct dfm *d, uint64_t now_ns, struct message_to *to, struct message *m)
{
        bool late = false;

        if (!d->resume.active && !d->resume.late)
                return false;
        for (uint32_t i = 0; i < d->config.n_sfi; i++) {
                struct dfm_node *n = dfm_node(d, ROLE_SFI, i);

                late |= n->was_in_run && !n->inventory_done;
                if (!awaits_inventory(n) || now_ns < n->inquiry_due_ns)
                        continue;
                n->inquiry_due_ns = now_ns + INQUIRY_AGAIN_NS;
                *to = (struct message_to){ROLE_SFI, (uint16_t)i};
                dfm_address(d, m, MESSAGE_INQUIRY, 0);
                m->inquiry.incarnation = n->welcomed;
                m->inquiry.from = n->inventory_next;
                return true;
        }
        d->resume.late &= late;
        return false;
}

uint64_t dfm_resume_deadline_ns(const struct dfm *d)
{
        uint64_t deadline = NEVER_NS;

        for (uint32_t i = 0; i < d->config.n_sfi; i++) {
                const struct dfm_node *n = dfm_node(d, ROLE_SFI, i);

                if (awaits_inventory(n))
                        deadline = MIN(deadline, n->inquiry_due_ns);
        }
        return deadline;
}

static void record_known(struct dfm *d, uint64_t event)
{
        uint64_t bit = event % EVB_EVENT_WINDOW;

        d->resume.known[bit / 64] |= UINT64_C(1) << bit % 64;
}

static bool is_inside(const struct dfm_resume *r, uint64_t event)
{
        return event >= r->from && event < r->newest && event - r->from < EVB_EVENT_WINDOW;
}

/* The record counts an event as lost that an SFI built. */
static void record_recovered(struct dfm *d, uint64_t event, bool partial)
{
        struct dfm_lost *e = &d->lost_events[event % EVB_EVENTS_KEPT];
        struct dfm_resume *r = &d->resume;

        if (!e->lost || e->event != event)
                return;
        e->lost = false;
        r->recovered[partial]++;
        r->builds[partial]++;
}

/* The first end counts. Another SFI may still have the event open, or have built it as well. */
static void record_ended(struct dfm *d, uint64_t event, bool partial)
{
        uint32_t slot = idmap_get(&d->table.by_event, event);
        struct dfm_resume *r = &d->resume;

        d->built_end = MAX(d->built_end, event + 1);
        if (dfm_ledger_has_ended(d, event)) {
                record_recovered(d, event, partial);
                return;
        }
        r->builds[partial]++;
        if (slot != IDMAP_NONE) {
                dfm_leave_sfi(d, slot);
                dfm_table_close(&d->table, slot);
        } else if (dfm_ledger_knows(d, event))
                return;
        *(partial ? &r->partial : &r->complete) += 1;
        record_known(d, event);
}

static void record_open(struct dfm *d, uint64_t now_ns, uint16_t sfi, uint64_t event)
{
        if (event < d->resume.oldest || dfm_ledger_knows(d, event) || d->table.used == d->table.capacity)
                return;
        record_known(d, event);
        dfm_table_assign(&d->table, dfm_table_insert(&d->table, event, now_ns), sfi, 0, now_ns);
        d->sfis[sfi].held++;
}

static void record_event(struct dfm *d, uint64_t now_ns, uint16_t sfi, uint64_t event, bool ended,
                         bool partial)
{
        /* The event uses a credit even if it ended under the previous DFM. */
        d->sfis[sfi].used += !ended;
        /* Limits the window: a node that reports wrong events can only make events lost. */
        if (!is_inside(&d->resume, event))
                return;
        if (ended)
                record_ended(d, event, partial);
        else
                record_open(d, now_ns, sfi, event);
}

/* Some unreported events were built after all. The SFI that built them reports how many of their fragments
 * are missing. */
static void find(struct dfm *d, uint64_t complete, uint64_t partial, bool forgotten)
{
        uint64_t found = complete + partial, fragments = found * d->config.n_ros;
        struct dfm_resume *r = &d->resume;
        struct dfm_counts *c = &d->counts;

        r->unreported -= found;
        r->forgotten -= forgotten ? found : 0;
        if (r->none_is_lost && !forgotten) {
                c->rejected -= found;
                c->fragments_expected += fragments;
        } else {
                c->lost -= found;
                c->fragments_lost -= fragments;
        }
        c->complete += complete;
        c->partial += partial;
        c->fragments_received += fragments;
}

/* Guesses do not count, because they have no event numbers. */
static bool is_unreported(const struct dfm *d, uint64_t event)
{
        const struct dfm_resume *r = &d->resume;

        return is_inside(r, event) && !dfm_ledger_knows(d, event) &&
               (dfm_ledger_was_open(d, event) ? r->forgotten > 0 : r->unreported > r->forgotten);
}

/* The run has already continued. Events that the late SFI built must not be built a second time. */
static void record_late_ended(struct dfm *d, uint64_t now_ns, uint16_t sfi, uint64_t event, bool partial)
{
        uint32_t slot = idmap_get(&d->table.by_event, event);
        struct dfm_node *n = dfm_node(d, ROLE_SFI, sfi);
        const struct finished_entry f = {.event = event, .end = partial ? EVENT_PARTIAL : EVENT_COMPLETE};

        if (slot != IDMAP_NONE)
                dfm_end_event(d, now_ns, slot, (enum event_end)f.end, 0, 0);
        else if (is_unreported(d, event))
                find(d, !partial, partial, dfm_ledger_was_open(d, event));
        else if (!dfm_recover_event(d, now_ns, &f)) {
                /* The record may already count this build as the end of the event. */
                n->late_copies[partial] += !dfm_ledger_has_ended(d, event);
                return;
        }
        record_known(d, event);
        n->late_complete += !partial;
        n->late_partial += partial;
}

/* If the late SFI has an event open and no other SFI has it, the event stays assigned to the late SFI. */
static void record_late_open(struct dfm *d, uint64_t now_ns, uint16_t sfi, uint64_t event)
{
        uint32_t slot = idmap_get(&d->table.by_event, event);

        d->sfis[sfi].used++;
        if (slot == IDMAP_NONE || d->table.slots[slot].sfi != NO_SFI)
                return;
        dfm_table_assign(&d->table, slot, sfi, 0, now_ns);
        d->table.slots[slot].attempts = 1;
        d->sfis[sfi].held++;
}

/* If an SFI has not reported, it may have built any event. */
static bool none_is_lost(const struct dfm *d)
{
        for (uint32_t i = 0; i < d->config.n_sfi; i++) {
                if (dfm_ledger_has_gap(d, i))
                        return false;
        }
        return d->config.level2.on && d->resume.is_exact;
}

/* The last report shows that the unreported events were rejected; so far, they counted as lost. */
static void record_rejected(struct dfm *d)
{
        uint64_t rejected = d->resume.unreported - d->resume.forgotten,
                 fragments = rejected * d->config.n_ros;
        struct dfm_counts *c = &d->counts;

        if (d->resume.none_is_lost || !none_is_lost(d))
                return;
        d->resume.none_is_lost = true;
        c->lost -= rejected;
        c->rejected += rejected;
        c->fragments_expected -= fragments;
        c->fragments_lost -= fragments;
}

/* Counts the missing fragments of the newly reported events of a late SFI, and its builds of events that have
 * ended. */
static void record_late_totals(struct dfm *d, const struct node_totals *t, uint64_t complete,
                               uint64_t partial)
{
        struct node_totals *again = &d->ledger.again;
        struct dfm_counts *c = &d->counts;
        uint64_t n_ros = d->config.n_ros, missing = MIN(t->missing, partial * n_ros),
                 absent = MIN(t->absent, (complete + partial) * n_ros - missing);

        c->fragments_received -= missing + absent;
        c->fragments_lost += missing;
        c->fragments_absent += absent;
        c->payload_bytes += t->payload_bytes;
        again->complete += t->complete - MIN(t->complete, complete);
        again->partial += t->partial - MIN(t->partial, partial);
        c->ended_again = again->complete + again->partial;
}

/* If the report does not name the events of some builds, these count as builds of unreported events, as long
 * as there are guesses. */
static void record_late_report(struct dfm *d, const struct dfm_node *n, const struct node_totals *t)
{
        uint64_t left = d->resume.is_exact ? 0 : d->resume.unreported - d->resume.forgotten;
        uint64_t named[2] = {n->late_complete + n->late_copies[0], n->late_partial + n->late_copies[1]};
        uint64_t partial = MIN(t->partial - MIN(t->partial, named[1]), left);
        uint64_t complete = MIN(t->complete - MIN(t->complete, named[0]), left - partial);

        find(d, complete, partial, false);
        d->ledger.guessed |= complete + partial > 0;
        record_late_totals(d, t, n->late_complete + complete, n->late_partial + partial);
        record_rejected(d);
}

static void record_report(struct dfm *d, uint16_t sfi, const struct node_totals *t)
{
        const struct node_totals more = dfm_ledger_report(d, sfi, t);

        if (!d->resume.active)
                record_late_report(d, dfm_node(d, ROLE_SFI, sfi), &more);
}

static void record_entry(struct dfm *d, uint64_t now_ns, uint16_t sfi, uint64_t from,
                         const struct inventory_entry *e)
{
        for (uint64_t bit = 0; bit < 64; bit++) {
                bool ended = e->ended >> bit & 1, open = e->open >> bit & 1;

                if (!ended && !open)
                        continue;
                if (d->resume.active)
                        record_event(d, now_ns, sfi, from + bit, ended, open);
                else if (ended)
                        record_late_ended(d, now_ns, sfi, from + bit, open);
                else
                        record_late_open(d, now_ns, sfi, from + bit);
        }
}

/* With level 2 and triggers from outside, no client can decide about an event whose trigger is unknown. */
static bool is_undecidable(const struct dfm *d)
{
        return d->config.level2.on && dfm_triggers_are_outside(d);
}

/* Another SFI builds the event. The previous DFM's decisions are not known. */
static void open_again(struct dfm *d, uint32_t slot)
{
        d->table.slots[slot].attempts = 1;
        if (d->config.level2.on)
                dfm_table_await(&d->table, slot);
}

/* The run has continued, and the late SFI knows events of the previous DFM that no other process knew. Their
 * numbers are not free, and their triggers not new. If there is no room for them, their builds count as
 * copies. */
static void record_newer(struct dfm *d, uint64_t now_ns, uint64_t end)
{
        struct dfm_table *t = &d->table;
        uint64_t from = t->next_event;

        while (t->next_event < MIN(end, d->resume.from + EVB_EVENT_WINDOW) && dfm_may_open(d)) {
                uint32_t slot = dfm_table_open(t, now_ns);

                if (is_undecidable(d) || d->state == RUN_ENDED)
                        dfm_lose_event(d, now_ns, slot, DFM_LOSS_UNKNOWN);
                else
                        open_again(d, slot);
        }
        if (t->next_event == from)
                return;
        d->counts.assigned += d->config.level2.on ? 0 : t->next_event - from;
        dfm_triggers_learn(d, t->next_event - from);
        dfm_ledger_changed(d);
}

/* Whether the inventory is complete, or as complete as possible. */
static bool is_whole(const struct dfm *d, const struct dfm_node *n, const struct message *m)
{
        return m->n == 0 || n->inventory_next >= m->inventory.end ||
               n->inventory_next >= d->resume.from + EVB_EVENT_WINDOW;
}

bool dfm_receive_inventory(struct dfm *d, uint64_t now_ns, const struct message *m)
{
        uint16_t index = m->header.sender_index;
        struct dfm_node *n;

        if (m->header.sender_role != ROLE_SFI || index >= d->config.n_sfi)
                return false;
        n = dfm_node(d, ROLE_SFI, index);
        if (!awaits_inventory(n) || m->inventory.incarnation != n->welcomed ||
            m->inventory.from != n->inventory_next)
                return true;
        dfm_record_contact(d, now_ns, n);
        /* Includes events that the SFI received after its Join. */
        if (d->resume.active)
                record_newest(&d->resume, m->inventory.end);
        else
                record_newer(d, now_ns, m->inventory.end);
        for (size_t k = 0; k < m->n; k++)
                record_entry(d, now_ns, index, m->inventory.from + 64 * k, &m->inventory.entries[k]);
        n->inventory_next += 64 * m->n;
        n->inquiry_due_ns = 0;
        n->inventory_done = is_whole(d, n, m);
        n->late = m->inventory.flags & INVENTORY_LATE;
        if (n->inventory_done)
                record_report(d, index, &m->inventory.totals);
        return true;
}

bool dfm_resume_is_settled(const struct dfm *d)
{
        for (uint32_t i = 0; i < d->config.n_sfi; i++) {
                if (awaits_inventory(dfm_node(d, ROLE_SFI, i)))
                        return false;
        }
        return true;
}

/* Without the previous DFM's record, or if some of its events are unreported, the totals of the SFIs may
 * include builds of events that no SFI lists, or whose number is unknown. Each such build is assumed to be of
 * a different unreported event, as long as there are any. */
static void guess(struct dfm *d, const struct node_totals *sum)
{
        const struct node_totals previous = dfm_ledger_previous(d);
        struct dfm_resume *r = &d->resume;
        uint64_t known[2] = {previous.complete + r->builds[0], previous.partial + r->builds[1]};
        uint64_t partial = MIN(sum->partial - MIN(sum->partial, known[1]), r->unreported);
        uint64_t complete = MIN(sum->complete - MIN(sum->complete, known[0]), r->unreported - partial);

        r->complete += complete;
        r->partial += partial;
        r->unreported -= complete + partial;
        d->ledger.guessed |= complete + partial > 0 || (d->config.level2.on && r->unreported > 0);
}

static void count_fragments(struct dfm *d, const struct node_totals *t)
{
        const struct node_totals *again = &d->ledger.again;
        struct dfm_counts *c = &d->counts;
        uint64_t n_ros = d->config.n_ros;

        c->payload_bytes = t->payload_bytes - MIN(t->payload_bytes, again->payload_bytes);
        c->fragments_expected = (c->complete + c->partial + c->lost) * n_ros;
        c->fragments_lost = MIN(t->missing - MIN(t->missing, again->missing), c->partial * n_ros);
        c->fragments_absent = MIN(t->absent - MIN(t->absent, again->absent),
                                  (c->complete + c->partial) * n_ros - c->fragments_lost);
        c->fragments_lost += c->lost * n_ros;
        c->fragments_received = c->fragments_expected - c->fragments_lost - c->fragments_absent;
}

/* A lower bound: with level 2, an event may end before it has an SFI. Every other event has been assigned at
 * least once. */
static uint64_t count_assigned(const struct dfm *d)
{
        const struct dfm_processes *f = d->ledger.previous;
        const struct dfm_counts *c = &d->counts;

        if (!d->config.level2.on)
                return d->resume.newest + c->reassigned;
        return MAX(f ? f->figures.assigned : 0, c->complete + c->partial + c->reassigned);
}

/* Accounts for all triggers so far. Events are counted that ended according to the previous DFM's record,
 * that the SFIs have built since, or that are open. All others are lost, because they may have ended on an
 * SFI that left; with level 2 they were rejected, if all SFIs have reported. */
static void count_previous(struct dfm *d)
{
        static const struct dfm_ends none;
        const struct dfm_ends *f = d->ledger.previous ? &d->ledger.previous->counted : &none;
        const struct node_totals sum = dfm_ledger_settle(d);
        struct node_totals *again = &d->ledger.again;
        struct dfm_resume *r = &d->resume;
        struct dfm_counts *c = &d->counts;
        /* An event was built since, which is newer than those that were not taken, or than some of them. */
        bool follows = d->ledger.previous && d->built_end > d->ledger.previous->built_end;
        uint64_t counted = f->complete + f->partial + f->lost + f->rejected + f->not_taken + r->complete +
                           r->partial + d->table.used;

        r->unreported = r->newest - MIN(r->newest, counted);
        r->forgotten = MIN(r->forgotten, r->unreported);
        if (!r->is_exact)
                guess(d, &sum);
        r->none_is_lost = none_is_lost(d);
        c->not_taken = follows ? 0 : f->not_taken;
        d->n_untaken_before = c->not_taken;
        c->triggers = r->newest - c->not_taken;
        c->complete = f->complete + r->complete + r->recovered[0];
        c->partial = f->partial + r->partial + r->recovered[1];
        c->lost = f->lost - MIN(f->lost, r->recovered[0] + r->recovered[1]) + (f->not_taken - c->not_taken) +
                  (r->none_is_lost ? r->forgotten : r->unreported);
        c->rejected = f->rejected + (r->none_is_lost ? r->unreported - r->forgotten : 0);
        again->complete = sum.complete - MIN(sum.complete, c->complete);
        again->partial = sum.partial - MIN(sum.partial, c->partial);
        c->ended_again = again->complete + again->partial;
        /* The record may be older than the first events. */
        c->first_trigger_ns = c->first_trigger_ns ?: c->triggers > 0 ? d->started_ns : 0;
        c->first_complete_ns = c->first_complete_ns ?: c->complete > 0 ? d->started_ns : 0;
        c->assigned = count_assigned(d);
        count_fragments(d, &sum);
}

static void reopen(struct dfm *d, uint64_t now_ns, uint64_t event)
{
        if (dfm_ledger_knows(d, event))
                return;
        if (is_undecidable(d) || d->table.used == d->table.capacity) {
                d->resume.forgotten++;
                return;
        }
        record_known(d, event);
        open_again(d, dfm_table_insert(&d->table, event, now_ns));
}

static uint64_t count_away(const struct dfm_processes *f)
{
        uint64_t n = 0;

        for (uint32_t k = 0; k < f->n_away; k++)
                n += (uint64_t)__builtin_popcountll(f->away[k]);
        return n;
}

/* Whether the SFIs still have records of all events that they built and that ended after the DFM's record was
 * written. */
static bool is_exact(const struct dfm *d)
{
        const struct dfm_processes *f = d->ledger.previous;

        return f && d->ledger.has_all && f->counted.unreported == count_away(f) &&
               d->resume.from <= f->oldest &&
               d->resume.oldest - (f->n_away > 0 ? f->away_from : f->oldest) <= EVB_EVENTS_KEPT;
}

void dfm_settle_resume(struct dfm *d, uint64_t now_ns)
{
        struct dfm_resume *r = &d->resume;
        struct dfm_table *t = &d->table;

        r->oldest = MIN(r->oldest, r->newest);
        r->is_exact = is_exact(d);
        t->next_event = r->newest;
        /* The run may have waited longer for nodes than an event may wait. */
        dfm_table_postpone(t, now_ns, now_ns);
        for (uint64_t event = r->oldest; event < r->newest && event - r->from < EVB_EVENT_WINDOW; event++)
                reopen(d, now_ns, event);
        for (uint64_t event = r->from; event < r->oldest; event++)
                r->forgotten += dfm_ledger_was_open(d, event) && !dfm_ledger_knows(d, event);
        event_set_clear(&d->ledger.ended, r->oldest);
        for (uint64_t event = r->oldest; event < r->newest; event++) {
                if (idmap_get(&t->by_event, event) == IDMAP_NONE)
                        event_set_add(&d->ledger.ended, event);
        }
        t->oldest = r->oldest;
        while (t->oldest < t->next_event && idmap_get(&t->by_event, t->oldest) == IDMAP_NONE)
                t->oldest++;
        count_previous(d);
        dfm_triggers_resume(d);
        r->active = false;
        /* An SFI that fell silent before its report was complete may come back. */
        r->late = true;
        d->keep_alive_due_ns = now_ns;
}
