/* The streams of numbers that ROSs announce (Have): each number is taken once, in the order of its stream,
 * and acknowledged. What finds no room stays in the ROS. dfm_lead.c makes triggers of them. */
#include "dfm_internal.h"
#include "dfm_silence.h"
#include "protocol/number.h"

/* How long a HaveAck waits for further announcements. */
#define ACK_DELAY_NS (5 * NS_PER_MS)

static bool is_on(const struct dfm *d)
{
        return d->config.trigger_source == DFM_TRIGGER_FRAMES;
}

/* The announced value as a number: the nearest one to what is known. A ROS may be ahead of the triggers by
 * more than half a period of a short counter, but not by that of an L1 ID. */
static uint64_t extend(struct dfm *d, const struct dfm_have *h, uint32_t value, bool is_l1_id)
{
        struct dfm_lead *f = &d->lead;
        unsigned bits = is_l1_id ? 32 : d->config.number_bits;

        if (h->has_last && !(is_l1_id && d->triggers.numbers.started))
                return number_extend(value, bits, h->last);
        if (d->triggers.numbers.started)
                return number_extend(value, bits, d->triggers.numbers.next);
        if (f->n > 0) {
                dfm_lead_lift(f, d->config.n_ros, value, bits);
                return number_extend(value, bits, dfm_lead_at(f, f->n - 1)->number);
        }
        return value & ((UINT64_C(1) << bits) - 1);
}

static void note_floor(struct dfm_lead *f, const struct message *m)
{
        if (!m->have.knows)
                return;
        if (!f->has_floor)
                f->floor = m->have.next;
        else if ((int32_t)(m->have.next - (uint32_t)f->floor) > 0)
                f->floor += m->have.next - (uint32_t)f->floor;
        f->has_floor = true;
}

/* While the boards begin again, a ROS in step could go on for ever with numbers of before. */
static bool may_take(const struct dfm *d, uint32_t ros)
{
        return d->lead.open && (!d->lead.closing || (dfm_node(d, ROLE_ROS, ros)->flags & ALIVE_OUT_OF_STEP));
}

/* False: there is no room. */
static bool take(struct dfm *d, uint64_t now_ns, struct dfm_have *h, uint64_t number, bool leading,
                 uint32_t n_leading)
{
        if (!dfm_lead_take(d, now_ns, number, h->top, leading, n_leading))
                return false;
        h->has_last = true;
        h->last = number;
        /* If it was far ahead for once, it is waited for again. */
        if (number >= h->top || h->top - number > DFM_LEAD_FAR)
                h->top = number + 1;
        return true;
}

static void hear_numbers(struct dfm *d, uint64_t now_ns, uint32_t ros, const struct message *m)
{
        struct dfm_have *h = &d->lead.haves[ros];
        uint32_t n_leading = dfm_leaders(d);
        bool leading = dfm_leads(d, ros);

        if (!d->ross[ros].leads)
                return;
        for (size_t k = 0; k < m->n; k++) {
                uint32_t sequence = m->header.transaction + (uint32_t)k;

                if ((int32_t)(sequence - h->next) < 0)
                        continue;
                if (sequence != h->next)
                        return;
                h->blocked = !may_take(d, ros) ||
                             !take(d, now_ns, h, extend(d, h, m->have.numbers[k], m->have.knows), leading,
                                   n_leading);
                if (h->blocked)
                        return;
                h->next++;
        }
}

bool dfm_hear_have(struct dfm *d, uint64_t now_ns, const struct message *m)
{
        uint16_t index = m->header.sender_index;
        struct dfm_lead *f = &d->lead;
        struct dfm_have *h;
        struct dfm_node *n;

        if (m->header.sender_role != ROLE_ROS || index >= d->config.n_ros)
                return false;
        n = dfm_node(d, ROLE_ROS, index);
        if (!n->live || m->have.incarnation != (uint32_t)n->welcomed) {
                d->counts.foreign++;
                return true;
        }
        dfm_hear(d, now_ns, n);
        /* Before and after a reset, other numbers have the same counters. */
        if (!is_on(d) || d->state != RUN_RUNNING || m->have.resets != d->triggers.resets)
                return true;
        h = &f->haves[index];
        if (!h->heard || h->incarnation != m->have.incarnation)
                *h = (struct dfm_have){
                        .incarnation = m->have.incarnation,
                        .heard = true,
                        .ack_due_ns = NEVER_NS,
                };
        h->ack_due_ns = m->n == 0 ? now_ns : MIN(h->ack_due_ns, now_ns + ACK_DELAY_NS);
        if (!f->open)
                note_floor(f, m);
        h->blocked = false;
        hear_numbers(d, now_ns, index, m);
        return true;
}

bool dfm_make_have_ack(struct dfm *d, uint64_t now_ns, struct message_to *to, struct message *m)
{
        struct dfm_lead *f = &d->lead;

        if (!is_on(d) || !budget_allows(&d->ros_budget, now_ns))
                return false;
        for (uint32_t k = 0; k < d->config.n_ros; k++) {
                uint32_t i = (f->turn + k) % d->config.n_ros;
                struct dfm_have *h = &f->haves[i];

                if (now_ns < h->ack_due_ns || !h->heard)
                        continue;
                f->turn = i + 1;
                h->ack_due_ns = NEVER_NS;
                *to = (struct message_to){ROLE_ROS, (uint16_t)i};
                dfm_address(d, m, MESSAGE_HAVE_ACK, 0);
                m->have_ack.incarnation = h->incarnation;
                m->have_ack.ack = h->next;
                m->have_ack.resets = d->triggers.resets;
                m->have_ack.go_on = h->go_on;
                h->go_on = false;
                return true;
        }
        return false;
}

uint64_t dfm_have_deadline_ns(const struct dfm *d)
{
        uint64_t due_ns = NEVER_NS;

        if (!is_on(d) || d->state != RUN_RUNNING)
                return NEVER_NS;
        for (uint32_t i = 0; i < d->config.n_ros; i++)
                due_ns = MIN(due_ns, d->lead.haves[i].ack_due_ns);
        return MAX(due_ns, budget_next_ns(&d->ros_budget));
}
