/* The streams of numbers that ROSs announce (Numbers). Each number is accepted once, in the order of its
 * stream, and acknowledged. The ROS keeps numbers that find no room. dfm_order.c makes triggers of the
 * numbers. */
#include "dfm_internal.h"
#include "protocol/number.h"

/* How long a NumbersAck waits for further announcements. */
#define ACK_DELAY_NS (5 * NS_PER_MS)

/* Extends the announced value to the number that is nearest to the known numbers. A ROS may be ahead of the
 * triggers by more than half a period of a short counter, but not of an L1 ID. */
static uint64_t extend(struct dfm *d, const struct dfm_announcer *h, uint32_t value, bool is_l1_id)
{
        struct dfm_order *f = &d->order;
        uint64_t period = is_l1_id ? NUMBER_PERIOD_MAX : d->config.number_period;

        if (h->has_last && !(is_l1_id && d->triggers.numbers.started))
                return number_nearest(value, period, h->last);
        if (d->triggers.numbers.started)
                return number_nearest(value, period, d->triggers.numbers.next);
        if (f->n > 0) {
                dfm_order_lift(f, d->config.n_ros, value, period);
                return number_nearest(value, period, dfm_order_at(f, f->n - 1)->number);
        }
        return value % period;
}

static void raise_floor(struct dfm_order *f, const struct message *m)
{
        if (!m->announced.knows)
                return;
        if (!f->has_floor)
                f->floor = m->announced.next;
        else if ((int32_t)(m->announced.next - (uint32_t)f->floor) > 0)
                f->floor += m->announced.next - (uint32_t)f->floor;
        f->has_floor = true;
}

/* While the boards restart, a ROS in step could announce earlier numbers without end. */
static bool may_accept(const struct dfm *d, uint32_t ros)
{
        return d->order.open &&
               (!d->order.closing || (dfm_node(d, ROLE_ROS, ros)->flags & ALIVE_OUT_OF_STEP));
}

/* False: there is no room. */
static bool accept_number(struct dfm *d, uint64_t now_ns, struct dfm_announcer *h, uint64_t number,
                          bool leading, uint32_t n_leading)
{
        if (!dfm_order_accept(d, now_ns, number, h->top, leading, n_leading))
                return false;
        h->has_last = true;
        h->last = number;
        h->last_ns = now_ns;
        /* If a single number was far ahead, the ROS is expected to announce lower numbers again. */
        if (number >= h->top || h->top - number > DFM_ORDER_FAR)
                h->top = number + 1;
        return true;
}

static void receive_numbers(struct dfm *d, uint64_t now_ns, uint32_t ros, const struct message *m)
{
        struct dfm_announcer *h = &d->order.announced[ros];
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
                h->blocked = !may_accept(d, ros) ||
                             !accept_number(d, now_ns, h,
                                            extend(d, h, m->announced.numbers[k], m->announced.knows),
                                            leading, n_leading);
                if (h->blocked)
                        return;
                h->next++;
        }
        /* Otherwise, earlier numbers have not arrived yet. */
        h->ended |= m->announced.last && m->header.transaction + (uint32_t)m->n == h->next;
}

bool dfm_receive_numbers(struct dfm *d, uint64_t now_ns, const struct message *m)
{
        uint16_t index = m->header.sender_index;
        struct dfm_order *f = &d->order;
        struct dfm_announcer *h;
        struct dfm_node *n;

        if (m->header.sender_role != ROLE_ROS || index >= d->config.n_ros)
                return false;
        n = dfm_node(d, ROLE_ROS, index);
        if (!n->live || m->announced.incarnation != (uint32_t)n->welcomed) {
                d->counts.foreign++;
                return true;
        }
        dfm_record_contact(d, now_ns, n);
        /* The same counters stand for different numbers before and after a reset. */
        if (!dfm_frames_trigger(d) || !dfm_accepts(d) || m->announced.resets != d->triggers.resets)
                return true;
        h = &f->announced[index];
        if (!h->received || h->incarnation != m->announced.incarnation)
                *h = (struct dfm_announcer){
                        .incarnation = m->announced.incarnation,
                        .received = true,
                        .ack_due_ns = NEVER_NS,
                };
        h->ack_due_ns = m->n == 0 ? now_ns : MIN(h->ack_due_ns, now_ns + ACK_DELAY_NS);
        if (!f->open)
                raise_floor(f, m);
        h->blocked &= m->n == 0;
        receive_numbers(d, now_ns, index, m);
        return true;
}

bool dfm_make_numbers_ack(struct dfm *d, uint64_t now_ns, struct message_to *to, struct message *m)
{
        struct dfm_order *f = &d->order;

        if (!dfm_frames_trigger(d) || !budget_allows(&d->ros_budget, now_ns))
                return false;
        for (uint32_t k = 0; k < d->config.n_ros; k++) {
                uint32_t i = (f->turn + k) % d->config.n_ros;
                struct dfm_announcer *h = &f->announced[i];

                if (now_ns < h->ack_due_ns || !h->received)
                        continue;
                f->turn = i + 1;
                h->ack_due_ns = NEVER_NS;
                *to = (struct message_to){ROLE_ROS, (uint16_t)i};
                dfm_address(d, m, MESSAGE_NUMBERS_ACK, 0);
                m->numbers_ack.incarnation = h->incarnation;
                m->numbers_ack.ack = h->next;
                m->numbers_ack.resets = d->triggers.resets;
                m->numbers_ack.go_on = h->go_on;
                h->go_on = false;
                return true;
        }
        return false;
}

uint64_t dfm_announced_deadline_ns(const struct dfm *d)
{
        uint64_t due_ns = NEVER_NS;

        if (!dfm_accepts(d))
                return NEVER_NS;
        for (uint32_t i = 0; i < d->config.n_ros; i++)
                due_ns = MIN(due_ns, d->order.announced[i].ack_due_ns);
        return MAX(due_ns, budget_next_ns(&d->ros_budget));
}
