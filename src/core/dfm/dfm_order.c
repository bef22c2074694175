/* Makes triggers of frames: each number that ROSs announce (dfm_announcer.c) becomes a trigger once. Numbers
 * wait here, in order, until all leading ROSs have reached them, or for the configured time; then they enter
 * the queue of dfm_triggers.c. If all boards restart their counts, all earlier numbers end first. */
#include "dfm_internal.h"

#include <errno.h>

/* A far number is accepted only if the leading ROSs agree on it, or if AGREE numbers close to each other
 * arrive and no other number does. */
#define AGREE 4u
#define APART 64u
/* How long a far number waits for other numbers that confirm it. */
#define FAR_WAIT_NS NS_PER_S
/* Maximum time between the reports of two ROSs, in keep-alives. */
#define LEADER_KEEP_ALIVES 3u
/* The boards count as apart only after this many events have ended and none of them is complete. */
#define APART_EVENTS 16u
/* A longer jump does not count as missing numbers. */
#define GAP_MAX (UINT64_C(1) << 20)

int dfm_order_init(struct dfm *d)
{
        struct dfm_order *f = &d->order;

        if (!dfm_frames_trigger(d))
                return 0;
        *f = (struct dfm_order){.size = d->config.announced_max};
        f->ring = calloc(f->size, sizeof *f->ring);
        f->announced = calloc(d->config.n_ros, sizeof *f->announced);
        return f->ring && f->announced ? 0 : -ENOMEM;
}

void dfm_order_fini(struct dfm *d)
{
        free(d->order.ring);
        free(d->order.announced);
}

static void begin_streams(struct dfm *d)
{
        for (uint32_t i = 0; i < d->config.n_ros; i++)
                d->order.announced[i] = (struct dfm_announcer){.ack_due_ns = NEVER_NS};
        d->order.begun = false;
        d->order.first_ns = d->order.agreed = UINT64_MAX;
}

void dfm_order_begin(struct dfm *d)
{
        struct dfm_order *f = &d->order;

        if (!dfm_frames_trigger(d))
                return;
        begin_streams(d);
        /* In a resumed run, the record gives the lowest number that may be new. */
        f->begun = f->has_floor = d->triggers.numbers.started;
        f->floor = d->triggers.numbers.next;
        f->open = true;
        for (uint32_t i = 0; i < d->config.n_ros; i++) {
                f->some_required |= d->ross[i].leads && !d->ross[i].optional;
                /* In a resumed run the ROSs have a record of the numbers that became triggers, even if no SFI
                 * has an event. */
                f->open &= dfm_node(d, ROLE_ROS, i)->resets == 0;
        }
}

bool dfm_leads(const struct dfm *d, uint32_t i)
{
        const struct dfm_node *n = dfm_node(d, ROLE_ROS, i);
        const struct dfm_ros *r = &d->ross[i];

        return r->leads && n->live && !r->left_out && !(n->flags & ALIVE_OUT_OF_STEP) &&
               !(r->optional && d->order.some_required);
}

uint32_t dfm_leaders(const struct dfm *d)
{
        uint32_t n = 0;

        for (uint32_t i = 0; dfm_frames_trigger(d) && i < d->config.n_ros; i++)
                n += dfm_leads(d, i);
        return n;
}

/* Returns the number below which all leading ROSs have announced their numbers. */
static uint64_t reached(const struct dfm *d)
{
        uint64_t top = UINT64_MAX;
        uint32_t n = 0;

        for (uint32_t i = 0; i < d->config.n_ros; i++) {
                if (!dfm_leads(d, i))
                        continue;
                top = MIN(top, d->order.announced[i].top);
                n++;
        }
        return n > 0 ? top : 0;
}

/* Frames of other boards prove that there are triggers. The leader's frames of the last triggers may be
 * reported later. */
bool dfm_awaits_leader(struct dfm *d, uint64_t now_ns)
{
        struct dfm_order *f = &d->order;
        uint64_t led = 0, others = 0;

        if (!dfm_frames_trigger(d) || d->state != RUN_RUNNING)
                return false;
        for (uint32_t i = 0; i < d->config.n_ros; i++)
                *(d->ross[i].leads ? &led : &others) += dfm_node(d, ROLE_ROS, i)->frames;
        if (led != f->led || f->led_ns == 0) {
                f->led = led;
                f->led_ns = now_ns;
        }
        if (others < f->others || now_ns - f->led_ns < LEADER_KEEP_ALIVES * d->config.keep_alive_ns)
                f->others = others;
        return others > f->others;
}

/* Position of the first waiting number that is not below `number`. */
static uint32_t place_of(const struct dfm_order *f, uint64_t number)
{
        uint32_t from = 0, to = f->n;

        while (from < to) {
                uint32_t middle = from + (to - from) / 2;

                if (dfm_order_at(f, middle)->number < number)
                        from = middle + 1;
                else
                        to = middle;
        }
        return from;
}

/* The last eighth is reserved for numbers below the others, so that a ROS that is ahead cannot use up all the
 * room. */
static bool has_room(const struct dfm_order *f, uint32_t place)
{
        return f->n < (place == f->n ? f->size - f->size / 8 : f->size);
}

/* Moves the other numbers, on the side where fewer must move. */
static void make_place(struct dfm_order *f, uint32_t place)
{
        f->n++;
        if (place < f->n / 2) {
                f->tail = (f->tail + f->size - 1) % f->size;
                for (uint32_t k = 0; k < place; k++)
                        *dfm_order_at(f, k) = *dfm_order_at(f, k + 1);
                return;
        }
        for (uint32_t k = f->n - 1; k > place; k--)
                *dfm_order_at(f, k) = *dfm_order_at(f, k - 1);
}

/* A number that is inserted below others must not delay them: it waits no longer than the next number
 * does. */
static void insert(struct dfm_order *f, uint32_t place, uint64_t number, uint64_t now_ns)
{
        uint64_t since_ns = now_ns;

        make_place(f, place);
        if (place + 1 < f->n && dfm_order_at(f, place + 1)->number - number < DFM_ORDER_FAR)
                since_ns = dfm_order_at(f, place + 1)->since_ns;
        *dfm_order_at(f, place) = (struct dfm_number){.number = number, .since_ns = since_ns};
        f->first_ns = MIN(f->first_ns, now_ns);
}

void dfm_order_lift(struct dfm_order *f, uint32_t n_ros, uint32_t value, uint64_t period)
{
        uint64_t newest = dfm_order_at(f, f->n - 1)->number;
        uint64_t behind = (newest % period + period - value % period) % period;

        if (behind <= newest || behind > MIN(DFM_ORDER_FAR, period / 2))
                return;
        for (uint32_t k = 0; k < f->n; k++)
                dfm_order_at(f, k)->number += period;
        for (uint32_t i = 0; i < n_ros; i++) {
                f->announced[i].last += period * f->announced[i].has_last;
                f->announced[i].top += period * f->announced[i].has_last;
        }
        if (f->agreed != UINT64_MAX)
                f->agreed += period;
}

static void confirm(struct dfm_order *f, struct dfm_number *e, bool leading, uint32_t n_leading)
{
        e->n += leading;
        if (e->n >= n_leading && n_leading > 0)
                f->agreed = MIN(f->agreed, e->number);
}

/* Accepts an announced number that is not the number of a trigger yet. False: there is no room. */
static bool accept_new(struct dfm *d, uint64_t now_ns, uint64_t number, bool leading, uint32_t n_leading)
{
        struct dfm_order *f = &d->order;
        uint32_t place = place_of(f, number);
        bool waits = place < f->n && dfm_order_at(f, place)->number == number;

        if (!waits && !has_room(f, place))
                return false;
        if (waits)
                d->counts.announced.confirmed++;
        else
                insert(f, place, number, now_ns);
        confirm(f, dfm_order_at(f, place), leading, n_leading);
        return true;
}

bool dfm_order_accept(struct dfm *d, uint64_t now_ns, uint64_t number, uint64_t top, bool leading,
                      uint32_t n_leading)
{
        const struct dfm_numbers *taken = &d->triggers.numbers;
        enum number_state state = dfm_numbers_state(taken, number);

        if (state == NUMBER_NEW && !accept_new(d, now_ns, number, leading, n_leading))
                return false;
        if (state != NUMBER_OLD && (!taken->started || number < taken->next + DFM_ORDER_FAR))
                d->order.near_ns = now_ns;
        /* A board first sends frames that precede the run. */
        if (state == NUMBER_SEEN && number < taken->first && top > taken->first)
                state = NUMBER_OLD;
        d->counts.announced.numbers++;
        d->finish.since_ns = now_ns;
        d->counts.announced.confirmed += state == NUMBER_SEEN;
        d->counts.announced.late += state == NUMBER_OLD;
        return true;
}

static void go_on(struct dfm *d, uint64_t now_ns)
{
        struct dfm_order *f = &d->order;

        for (uint32_t i = 0; i < d->config.n_ros; i++) {
                struct dfm_announcer *h = &f->announced[i];

                if (!h->blocked)
                        continue;
                h->blocked = false;
                h->go_on = true;
                h->ack_due_ns = now_ns;
        }
}

static void open_streams(struct dfm *d, uint64_t now_ns)
{
        struct dfm_numbers *taken = &d->triggers.numbers;
        struct dfm_order *f = &d->order;
        bool known;

        for (uint32_t i = 0; i < d->config.n_ros; i++) {
                if (dfm_node(d, ROLE_ROS, i)->live && d->ross[i].frames && !f->announced[i].received)
                        return;
        }
        f->open = true;
        known = taken->started && f->floor == taken->next;
        if (!known && f->has_floor) {
                dfm_numbers_begin(taken, f->floor);
                f->begun = true;
                dfm_ledger_changed(d);
        }
        /* It is unknown which lower numbers did not become events. */
        d->counts.offered.unclear += !known && d->table.next_event > 0;
        go_on(d, now_ns);
}

static void remove_first(struct dfm_order *f)
{
        f->tail = (f->tail + 1) % f->size;
        f->n--;
}

static void drop_first(struct dfm *d, uint64_t *count)
{
        d->counts.offered.triggers++;
        (*count)++;
        remove_first(&d->order);
}

static void offer_first(struct dfm *d)
{
        const struct dfm_number e = *dfm_order_at(&d->order, 0);
        const struct trigger_entry t = {.number = e.number, .time_ns = e.since_ns + d->config.utc_offset_ns};
        struct dfm_numbers *taken = &d->triggers.numbers;

        if (taken->started && e.number >= taken->next && e.number - taken->next >= GAP_MAX) {
                dfm_numbers_begin(taken, e.number);
                dfm_ledger_changed(d);
        }
        dfm_offer_since(d, e.since_ns, &t);
        remove_first(&d->order);
}

static bool is_far(const struct dfm *d, uint64_t number)
{
        const struct dfm_numbers *taken = &d->triggers.numbers;

        return taken->started && number >= taken->next && number - taken->next >= DFM_ORDER_FAR;
}

/* Whether the first AGREE numbers are close to each other, and no number near the offered ones has come since
 * the first of them. */
static bool agree(const struct dfm *d)
{
        const struct dfm_order *f = &d->order;

        if (f->n < AGREE || f->near_ns >= dfm_order_at(f, 0)->since_ns)
                return false;
        for (uint32_t k = 1; k < AGREE; k++) {
                if (dfm_order_at(f, k)->number - dfm_order_at(f, k - 1)->number > APART)
                        return false;
        }
        return true;
}

/* With a single leading ROS, no other ROS can confirm a far number. So the number counts as damaged unless
 * the ROS continues from there. */
static bool is_believed(const struct dfm *d, uint64_t number)
{
        return !is_far(d, number) || d->order.n > 1 || dfm_leaders(d) > 1;
}

/* Whether this ROS has yet to announce its last number from before the stop. */
static bool awaits_last(const struct dfm *d, uint32_t i)
{
        const struct dfm_node *n = dfm_node(d, ROLE_ROS, i);

        return n->live && d->ross[i].leads && !d->order.announced[i].ended;
}

/* Whether no further number from before the stop is expected. */
static bool is_complete(const struct dfm *d)
{
        for (uint32_t i = 0; i < d->config.n_ros; i++) {
                if (awaits_last(d, i))
                        return false;
        }
        return d->finish.on;
}

/* When the first waiting number is offered as a trigger, or dropped (*ret_drop); NEVER_NS: it depends on
 * later numbers. Before the run's first offer, a number below the lowest one that all leading ROSs announced
 * waits for the window, because in other ROSs, frames with this number may have been overtaken. */
static uint64_t first_due_ns(const struct dfm *d, bool *ret_drop)
{
        const struct dfm_order *f = &d->order;
        const struct dfm_number *e = dfm_order_at(f, 0);
        bool last = f->closing || is_complete(d);

        *ret_drop = false;
        if (!f->begun)
                return e->number >= f->agreed || last ? 0 : f->first_ns + d->config.window_ns;
        if (e->number < reached(d) && is_believed(d, e->number))
                return 0;
        if (!is_far(d, e->number))
                return last ? 0 : e->since_ns + d->config.window_ns;
        *ret_drop = last || f->near_ns >= e->since_ns;
        if (last)
                return 0;
        if (agree(d))
                return dfm_order_at(f, AGREE - 1)->since_ns + MAX(d->config.window_ns, FAR_WAIT_NS);
        return *ret_drop ? e->since_ns + FAR_WAIT_NS : NEVER_NS;
}

static bool may_offer(const struct dfm *d)
{
        return d->order.open && dfm_triggers_waiting(&d->triggers) < d->triggers.size;
}

/* The number that the most leading ROSs announced, or the lowest of several such numbers, so that a board
 * with a different count does not decide. */
static uint64_t most_agreed(const struct dfm_order *f)
{
        const struct dfm_number *best = dfm_order_at(f, 0);

        for (uint32_t k = 1; k < f->n; k++) {
                if (dfm_order_at(f, k)->n > best->n)
                        best = dfm_order_at(f, k);
        }
        return best->number;
}

/* The run begins with the first number that all leading ROSs have announced, because the boards may have
 * started before their ROSs. */
static void begin_run(struct dfm *d)
{
        struct dfm_order *f = &d->order;
        uint64_t first = f->agreed != UINT64_MAX ? f->agreed : most_agreed(f);

        f->begun = true;
        while (f->n > 0 && dfm_order_at(f, 0)->number < first)
                drop_first(d, &d->counts.offered.not_taken);
}

/* In slices of time, a board that is further behind the others than this is not just slow or silent: then it
 * would have been left out. */
static uint64_t far_apart(const struct dfm *d)
{
        const struct dfm_config *c = &d->config;

        return c->slice_ns > 0
                       ? MIN((c->node_timeout_ns + c->window_ns) / c->slice_ns + 1, (uint64_t)DFM_ORDER_FAR)
                       : DFM_ORDER_FAR;
}

/* Frames that come too late announce no slice. Then the time of the other board went on since. */
static uint64_t difference_of_clocks(const struct dfm *d, const struct dfm_apart *a)
{
        const struct dfm_announcer *ahead = &d->order.announced[a->ahead],
                                   *behind = &d->order.announced[a->behind];
        uint64_t since_ns = ahead->last_ns - MIN(ahead->last_ns, behind->last_ns);

        return a->by - MIN(a->by, since_ns / d->config.slice_ns);
}

bool dfm_numbers_apart(const struct dfm *d, struct dfm_apart *ret)
{
        struct dfm_apart a = {};
        uint64_t least = UINT64_MAX, most = 0;

        if (!dfm_frames_trigger(d) || (d->counts.offered.implausible == 0 &&
                                       (d->counts.complete > 0 || d->counts.partial < APART_EVENTS)))
                return false;
        for (uint32_t i = 0; i < d->config.n_ros; i++) {
                const struct dfm_announcer *h = &d->order.announced[i];

                if (!h->has_last || d->ross[i].optional || d->ross[i].left_out)
                        continue;
                if (h->last < least) {
                        least = h->last;
                        a.behind = (uint16_t)i;
                }
                if (h->last >= most) {
                        most = h->last;
                        a.ahead = (uint16_t)i;
                }
        }
        a.by = most - MIN(least, most);
        if (a.by < far_apart(d))
                return false;
        if (d->config.slice_ns > 0)
                a.by = difference_of_clocks(d, &a);
        *ret = a;
        return true;
}

static void offer_due(struct dfm *d, uint64_t now_ns)
{
        struct dfm_order *f = &d->order;
        bool drop;

        while (f->n > 0 && may_offer(d) && now_ns >= first_due_ns(d, &drop)) {
                if (!f->begun)
                        begin_run(d);
                else if (drop)
                        drop_first(d, &d->counts.offered.implausible);
                else
                        offer_first(d);
        }
        if (f->open && !f->closing && f->n <= f->size / 2)
                go_on(d, now_ns);
}

/* All boards that events need have restarted, so no ROS accepts the frames of its board. */
static bool boards_began_again(const struct dfm *d)
{
        uint32_t n = 0, required = 0;
        bool optional_too = true;

        for (uint32_t i = 0; i < d->config.n_ros; i++)
                required += d->ross[i].frames && !d->ross[i].optional;
        optional_too = required == 0;
        for (uint32_t i = 0; i < d->config.n_ros; i++) {
                const struct dfm_node *ros = dfm_node(d, ROLE_ROS, i);
                const struct dfm_ros *r = &d->ross[i];

                if (!ros->live || !r->frames || r->left_out || (r->optional && !optional_too))
                        continue;
                if (!(ros->flags & ALIVE_OUT_OF_STEP) || ros->resets != d->triggers.resets)
                        return false;
                n++;
        }
        return n > 0;
}

/* An earlier Clear must not reach a ROS after the reset: it may carry an L1 ID. */
static void close_epoch(struct dfm *d, uint64_t now_ns)
{
        struct dfm_triggers *q = &d->triggers;
        struct dfm_order *f = &d->order;

        if (f->n > 0 || dfm_triggers_waiting(q) > 0 || d->table.used > 0 || d->n_clears > 0 ||
            d->announce_tail != d->announce_head)
                return;
        f->closing = false;
        begin_streams(d);
        q->numbers.started = false;
        d->counts.offered.resets++;
        dfm_ledger_changed(d);
        dfm_announce_reset(d, now_ns, 0);
}

void dfm_order_tick(struct dfm *d, uint64_t now_ns)
{
        struct dfm_order *f = &d->order;

        if (!dfm_frames_trigger(d) || !dfm_accepts(d))
                return;
        if (!f->open)
                open_streams(d, now_ns);
        /* If a ROS agrees with the triggers again, its board continues its count, so there is no reset. */
        f->closing = f->open && !d->finish.on && boards_began_again(d);
        offer_due(d, now_ns);
        if (f->closing)
                close_epoch(d, now_ns);
}

/* At the stop, the boards' last numbers follow the numbers that were already offered. A number far ahead was
 * still waiting for confirmation. */
void dfm_order_drop(struct dfm *d)
{
        const struct dfm_numbers *taken = &d->triggers.numbers;
        struct dfm_offered *o = &d->counts.offered;
        uint64_t near = taken->next;

        for (bool far = false; d->order.n > 0; remove_first(&d->order)) {
                uint64_t number = dfm_order_at(&d->order, 0)->number;

                far |= taken->started && number >= near && number - near >= DFM_ORDER_FAR;
                near = MAX(near, number);
                o->triggers++;
                ++*(far ? &o->implausible : &o->not_taken);
        }
}

bool dfm_order_cut_short(struct dfm *d)
{
        bool any = false;

        for (uint32_t i = 0; dfm_frames_trigger(d) && i < d->config.n_ros; i++) {
                if (awaits_last(d, i))
                        any = d->order.announced[i].ended = d->order.announced[i].cut_short = true;
        }
        return any;
}

void dfm_order_record_absent(struct dfm *d)
{
        bool may_miss_optional = d->order.some_required || dfm_leaders(d) > 0;

        for (uint32_t i = 0; dfm_frames_trigger(d) && i < d->config.n_ros; i++) {
                const struct dfm_node *n = dfm_node(d, ROLE_ROS, i);
                const struct dfm_ros *r = &d->ross[i];

                if (!n->live && !n->left && r->leads && !(r->optional && may_miss_optional))
                        d->order.announced[i].cut_short |= dfm_process_was_in_run(d, ROLE_ROS, i);
        }
}

bool dfm_order_end_streams(struct dfm *d, uint64_t now_ns)
{
        struct dfm_order *f = &d->order;

        if (!dfm_frames_trigger(d) || !f->open)
                return false;
        for (uint32_t i = 0; i < d->config.n_ros; i++) {
                /* It waits for room, which no event makes any more. */
                if (awaits_last(d, i) && f->announced[i].blocked)
                        return false;
        }
        d->finish.since_ns = now_ns;
        return dfm_order_cut_short(d);
}

bool dfm_order_is_over(const struct dfm *d)
{
        return d->order.open && is_complete(d) && d->order.n == 0;
}

uint64_t dfm_order_deadline_ns(const struct dfm *d)
{
        const struct dfm_order *f = &d->order;
        bool drop;

        return dfm_accepts(d) && f->n > 0 && may_offer(d) ? first_due_ns(d, &drop) : NEVER_NS;
}
