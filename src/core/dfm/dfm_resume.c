/* Resumes the run of a former DFM. Asks each SFI which events ended there and which are open, and reassigns
 * the events that no SFI knows. docs/protocol.md ("A DFM that restarts") has the rules. */
#include <string.h>

#include "dfm_internal.h"
#include "dfm_silence.h"

/* Pause before an unanswered Inquiry is repeated. */
#define INQUIRY_AGAIN_NS (20 * NS_PER_MS)

/* Never resumes a run that has ended. Without a record of the former run, it trusts the nodes. */
bool dfm_may_resume_run(const struct dfm *d, const struct message *join)
{
        const struct dfm_former *f = &d->config.former;

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
                *n = (struct dfm_node){.heard = n->heard};
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
        d->resume.active = true;
        /* Nodes of the discarded run join again at the next KeepAlive. */
        forget_nodes(d);
        dfm_ledger_load(d);
        d->keep_alive_due_ns = now_ns;
}

/* Bounds the window, whatever a node reports. */
static void note_newest(struct dfm_resume *r, uint64_t newest)
{
        if (newest > r->newest)
                r->newest = MAX(r->newest, MIN(newest, r->oldest + EVB_EVENT_WINDOW));
}

/* Whether the node's work in the run is unknown here, because it followed another DFM until now. */
static bool is_unknown(const struct dfm *d, uint16_t sfi, const struct message *join)
{
        const struct dfm_node *n = dfm_node(d, ROLE_SFI, sfi);
        const struct dfm_sfi *s = &d->sfis[sfi];

        return join->dfm != d->config.incarnation && !n->was_in_run &&
               !(s->joined && s->incarnation == n->welcomed);
}

void dfm_note_join_in_run(struct dfm *d, enum node_role role, uint16_t index, const struct message *join)
{
        struct dfm_node *n = dfm_node(d, role, index);
        uint64_t oldest = join->join.oldest;

        if (d->resume.active) {
                dfm_ledger_check(d, join->dfm);
                d->resume.oldest = MAX(d->resume.oldest, oldest);
                note_newest(&d->resume, join->join.newest);
        }
        if (role != ROLE_SFI || !is_unknown(d, index, join))
                return;
        /* The node may also join late, after the run has resumed. */
        d->resume.late |= !d->resume.active;
        n->was_in_run = n->awaited = true;
        n->inventory_next = (d->resume.active ? oldest : MAX(oldest, d->table.oldest)) / 64 * 64;
        n->inquiry_due_ns = 0;
}

static bool owes_inventory(const struct dfm_node *n)
{
        return n->live && n->was_in_run && !n->inventory_done;
}

bool dfm_owes_inventory(const struct dfm *d, uint16_t sfi)
{
        return owes_inventory(dfm_node(d, ROLE_SFI, sfi));
}

bool dfm_make_inquiry(struct dfm *d, uint64_t now_ns, struct message_to *to, struct message *m)
{
        bool late = false;

        if (!d->resume.active && !d->resume.late)
                return false;
        for (uint32_t i = 0; i < d->config.n_sfi; i++) {
                struct dfm_node *n = dfm_node(d, ROLE_SFI, i);

                late |= n->was_in_run && !n->inventory_done;
                if (!owes_inventory(n) || now_ns < n->inquiry_due_ns)
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

                if (owes_inventory(n))
                        deadline = MIN(deadline, n->inquiry_due_ns);
        }
        return deadline;
}

static bool is_known(const struct dfm *d, uint64_t event)
{
        uint64_t bit = event % EVB_EVENT_WINDOW;

        return (d->resume.known[bit / 64] >> bit % 64 & 1) || dfm_ledger_has_ended(d, event);
}

static void note_known(struct dfm *d, uint64_t event)
{
        uint64_t bit = event % EVB_EVENT_WINDOW;

        d->resume.known[bit / 64] |= UINT64_C(1) << bit % 64;
}

/* One SFI ended the event that another one still has open. */
static void note_ended(struct dfm *d, uint64_t event)
{
        uint32_t slot = idmap_get(&d->table.by_event, event);

        if (slot != IDMAP_NONE) {
                d->sfis[d->table.slots[slot].sfi].held--;
                dfm_table_close(&d->table, slot);
        }
        note_known(d, event);
}

static void note_event(struct dfm *d, uint64_t now_ns, uint16_t sfi, uint64_t event, bool open)
{
        const struct dfm_resume *r = &d->resume;

        /* It takes a credit even if the former DFM had ended it. */
        d->sfis[sfi].used += open;
        /* Bounds the window: a node that reports wrong events can only make events lost. */
        if (event < r->oldest || event >= r->newest || event - r->oldest >= EVB_EVENT_WINDOW)
                return;
        if (!open)
                note_ended(d, event);
        if (is_known(d, event) || d->table.used == d->table.capacity)
                return;
        note_known(d, event);
        dfm_table_assign(&d->table, dfm_table_insert(&d->table, event, now_ns), sfi, 0, now_ns);
        d->sfis[sfi].held++;
}

/* The run goes on already. Events that the late SFI built must not be built again, and those that it has
 * open remain its own if no other SFI has them. */
static void note_late_event(struct dfm *d, uint64_t now_ns, uint16_t sfi, uint64_t event, bool open)
{
        uint32_t slot = idmap_get(&d->table.by_event, event);

        d->sfis[sfi].used += open;
        if (slot == IDMAP_NONE)
                return;
        if (!open) {
                dfm_end_event(d, now_ns, slot, EVENT_COMPLETE, 0, 0);
                dfm_note_end(d, sfi, &(struct finished_entry){.end = EVENT_COMPLETE}, 0);
                dfm_node(d, ROLE_SFI, sfi)->late_ended++;
        } else if (d->table.slots[slot].sfi == NO_SFI) {
                dfm_table_assign(&d->table, slot, sfi, 0, now_ns);
                d->table.slots[slot].attempts = 1;
                d->sfis[sfi].held++;
        }
}

/* Without the report of an SFI, any event may be one that it had built. */
static bool none_is_lost(const struct dfm *d)
{
        for (uint32_t i = 0; i < d->config.n_sfi; i++) {
                if (dfm_ledger_has_gap(d, i))
                        return false;
        }
        return d->config.level2.on;
}

/* The last report shows that the unreported events, which counted as lost so far, were rejected. */
static void note_rejected(struct dfm *d)
{
        uint64_t fragments = d->resume.unreported * d->config.n_ros;
        struct dfm_counts *c = &d->counts;

        if (d->resume.none_is_lost || !none_is_lost(d))
                return;
        d->resume.none_is_lost = true;
        c->lost -= d->resume.unreported;
        c->rejected += d->resume.unreported;
        c->fragments_expected -= fragments;
        c->fragments_lost -= fragments;
}

/* Further events that the late SFI ended had counted as lost so far, or another SFI built them as well. */
static void note_late_totals(struct dfm *d, const struct dfm_node *n, const struct node_totals *t)
{
        struct dfm_counts *c = &d->counts;
        uint64_t ended = t->complete + t->partial, beyond = ended - MIN(ended, n->late_ended);
        uint64_t n_ros = d->config.n_ros;
        uint64_t found = MIN(beyond, d->resume.unreported), partial = MIN(t->partial, n->late_ended + found);
        uint64_t missing = MIN(t->missing, partial * n_ros), absent = MIN(t->absent, found * n_ros - missing);

        d->resume.unreported -= found;
        if (d->resume.none_is_lost) {
                c->rejected -= found;
                c->fragments_expected += found * n_ros;
                c->fragments_lost += missing;
        } else {
                c->lost -= found;
                c->fragments_lost -= found * n_ros - missing;
        }
        c->complete += found - partial;
        c->partial += partial;
        c->fragments_received += found * n_ros - missing - absent;
        c->fragments_absent += absent;
        c->payload_bytes += t->payload_bytes;
        c->ended_again += beyond - found;
        note_rejected(d);
}

static void note_report(struct dfm *d, uint16_t sfi, const struct node_totals *t)
{
        const struct node_totals more = dfm_ledger_report(d, sfi, t);

        if (!d->resume.active)
                note_late_totals(d, dfm_node(d, ROLE_SFI, sfi), &more);
}

static void note_entry(struct dfm *d, uint64_t now_ns, uint16_t sfi, uint64_t from,
                       const struct inventory_entry *e)
{
        for (uint64_t bit = 0; bit < 64; bit++) {
                uint64_t mask = UINT64_C(1) << bit;

                if (!((e->ended | e->open) & mask))
                        continue;
                if (d->resume.active)
                        note_event(d, now_ns, sfi, from + bit, !(e->ended & mask));
                else
                        note_late_event(d, now_ns, sfi, from + bit, !(e->ended & mask));
        }
}

/* Whether the inventory is complete, or as complete as possible. */
static bool is_whole(const struct dfm *d, const struct dfm_node *n, const struct message *m)
{
        uint64_t oldest = d->resume.active ? d->resume.oldest : d->table.oldest;

        return m->n == 0 || n->inventory_next >= m->inventory.end ||
               n->inventory_next >= oldest + EVB_EVENT_WINDOW;
}

bool dfm_hear_inventory(struct dfm *d, uint64_t now_ns, const struct message *m)
{
        uint16_t index = m->header.sender_index;
        struct dfm_node *n;

        if (m->header.sender_role != ROLE_SFI || index >= d->config.n_sfi)
                return false;
        n = dfm_node(d, ROLE_SFI, index);
        if (!owes_inventory(n) || m->inventory.incarnation != n->welcomed ||
            m->inventory.from != n->inventory_next)
                return true;
        dfm_hear(d, now_ns, n);
        /* Includes events that the SFI learned of after its Join. */
        note_newest(&d->resume, m->inventory.end);
        for (size_t k = 0; k < m->n; k++)
                note_entry(d, now_ns, index, m->inventory.from + 64 * k, &m->inventory.entries[k]);
        n->inventory_next += 64 * m->n;
        n->inquiry_due_ns = 0;
        n->inventory_done = is_whole(d, n, m);
        n->late = m->inventory.flags & INVENTORY_LATE;
        if (n->inventory_done)
                note_report(d, index, &m->inventory.totals);
        return true;
}

bool dfm_resume_is_settled(const struct dfm *d)
{
        for (uint32_t i = 0; i < d->config.n_sfi; i++) {
                if (owes_inventory(dfm_node(d, ROLE_SFI, i)))
                        return false;
        }
        return true;
}

/* Accounts for all triggers so far. Events whose end no SFI reports are lost, as they may have ended on one
 * that left; with level 2 they were rejected, if all SFIs have reported. */
static void count_former(struct dfm *d)
{
        const struct node_totals sum = dfm_ledger_settle(d), *t = &sum;
        struct dfm_counts *c = &d->counts;
        uint64_t ended = d->resume.newest - d->table.used, n_ros = d->config.n_ros;

        c->triggers = c->assigned = d->resume.newest;
        c->complete = MIN(t->complete, ended);
        c->partial = MIN(t->partial, ended - c->complete);
        c->ended_again += t->complete + t->partial - c->complete - c->partial;
        d->resume.unreported = ended - c->complete - c->partial;
        d->resume.none_is_lost = none_is_lost(d);
        *(d->resume.none_is_lost ? &c->rejected : &c->lost) = d->resume.unreported;
        c->payload_bytes = t->payload_bytes;
        c->fragments_expected = (ended - c->rejected) * n_ros;
        c->fragments_lost = MIN(t->missing, c->partial * n_ros) + c->lost * n_ros;
        c->fragments_absent = MIN(t->absent, c->fragments_expected - c->fragments_lost);
        c->fragments_received = c->fragments_expected - c->fragments_lost - c->fragments_absent;
}

/* An event that no SFI knows. With level 2 and triggers from outside, it was rejected or is lost: nobody can
 * decide about it, as its trigger is not known. */
static bool is_over(const struct dfm *d)
{
        return d->config.level2.on && dfm_triggers_are_outside(d);
}

void dfm_settle_resume(struct dfm *d, uint64_t now_ns)
{
        struct dfm_resume *r = &d->resume;
        struct dfm_table *t = &d->table;

        t->next_event = r->newest;
        for (uint64_t event = r->oldest; event < r->newest && event - r->oldest < EVB_EVENT_WINDOW; event++) {
                uint32_t slot;

                if (is_known(d, event) || is_over(d) || t->used == t->capacity)
                        continue;
                slot = dfm_table_insert(t, event, now_ns);
                t->slots[slot].attempts = 1;
                /* The former DFM's decisions are not known. */
                if (d->config.level2.on)
                        dfm_table_await(t, slot);
        }
        event_set_clear(&d->ledger.ended, r->oldest);
        for (uint64_t event = r->oldest; event < r->newest; event++) {
                if (is_known(d, event) && idmap_get(&t->by_event, event) == IDMAP_NONE)
                        event_set_add(&d->ledger.ended, event);
        }
        t->oldest = r->oldest;
        while (t->oldest < t->next_event && idmap_get(&t->by_event, t->oldest) == IDMAP_NONE)
                t->oldest++;
        count_former(d);
        r->active = false;
        /* An SFI that fell silent before its report was complete may come back. */
        r->late = true;
        d->keep_alive_due_ns = now_ns;
}
