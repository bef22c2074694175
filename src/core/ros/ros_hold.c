/* Holds fragments from their creation or arrival until they are cleared. ros_request.c decides which SFI
 * receives them, and ros_queue.c queues them for sending. */
#include <assert.h>

#include "ros_internal.h"

/* If the buffer is filled above the first level (percent), the ROS sends XOFF; below the second level, it
 * sends XON. */
#define XOFF_PERCENT 80
#define XON_PERCENT 60

void ros_list_append(struct ros *r, struct ros_list *list, uint32_t i)
{
        r->entries[i].next = NO_ITEM;
        r->entries[i].previous = list->last;
        *(list->last == NO_ITEM ? &list->first : &r->entries[list->last].next) = i;
        list->last = i;
}

static void list_remove(struct ros *r, struct ros_list *list, uint32_t i)
{
        const struct ros_entry *e = &r->entries[i];

        *(e->previous == NO_ITEM ? &list->first : &r->entries[e->previous].next) = e->next;
        *(e->next == NO_ITEM ? &list->last : &r->entries[e->next].previous) = e->previous;
}

static void remove_early(struct ros *r, uint32_t i)
{
        ros_announced_remove(r, i);
        list_remove(r, &r->early, i);
}

/* With level 2, half of the buffer is for frames of undecided events, which the DFM limits. */
static uint32_t share_of(const struct ros *r, uint32_t percent)
{
        return r->config.level2 ? percent / 2 : percent;
}

/* Counts only triggered fragments, because only triggered events ever clear the buffer. A front-end may be
 * ahead of the trigger by the whole buffer; then it waits. But the trigger must not wait for the
 * front-end. */
static bool is_above(const struct ros *r, uint32_t percent)
{
        return (uint64_t)(r->n_triggered - r->n_expected) * 100 >
                       (uint64_t)r->config.entries * share_of(r, percent) ||
               r->triggered_bytes * 100 > arena_size_bytes(r->arena) * share_of(r, percent);
}

void ros_check_room(struct ros *r)
{
        if (!r->xoff && is_above(r, XOFF_PERCENT)) {
                r->xoff = true;
                r->counts.xoff++;
        } else if (r->xoff && !is_above(r, XON_PERCENT))
                r->xoff = false;
}

/* An entry lies at the same distance from the end of `order` as from the beginning of `entries`, unless it
 * has changed places with another one; `order` has the difference. So a large ROS with few fragments touches
 * few pages. */
static uint32_t entry_at(const struct ros *r, uint32_t place)
{
        return r->order[place] + (r->n_entries - 1 - place);
}

static uint32_t new_entry(struct ros *r, uint64_t event, uint64_t number, uint32_t l1_id)
{
        uint32_t place = r->n_entries - ++r->n_held, i = entry_at(r, place);

        r->entries[i] = (struct ros_entry){
                .event = event,
                .number = number,
                .l1_id = l1_id,
                .place = place,
                .at = ARENA_NONE,
                .wanted_by = UINT16_MAX,
                .next = NO_ITEM,
                .previous = NO_ITEM,
        };
        if (event != ROS_NO_EVENT)
                idmap_put(&r->by_event, event, i);
        if (ros_is_numbered(r))
                idmap_put(&r->by_number, number, i);
        return i;
}

static uint64_t room_of(const struct ros *r, const struct ros_entry *e)
{
        return e->at == ARENA_NONE ? 0 : arena_block_bytes(r->arena, e->fragment.bytes);
}

void ros_record_triggered(struct ros *r, uint32_t i)
{
        struct ros_entry *e = &r->entries[i];

        if (e->triggered)
                return;
        e->triggered = true;
        r->n_triggered++;
        r->triggered_bytes += room_of(r, e);
        ros_regions_wake(r, e->number);
}

static void move_to(struct ros *r, uint32_t place, uint32_t i)
{
        r->order[place] = i - (r->n_entries - 1 - place);
        r->entries[i].place = place;
}

void ros_release(struct ros *r, uint32_t i)
{
        struct ros_entry *e = &r->entries[i];

        if (e->triggered) {
                r->n_triggered--;
                r->triggered_bytes -= room_of(r, e);
        }
        r->n_expected -= e->expected;
        e->cleared = true;
        arena_release(r->arena, e->at);
        uint32_t last_free = r->n_entries - r->n_held--;

        move_to(r, e->place, entry_at(r, last_free));
        move_to(r, last_free, i);
}

/* Finds memory for the fragment's bytes, for an existing entry or a new one (UINT32_MAX). Returns UINT32_MAX
 * if there is no room. */
static uint32_t hold_fragment(struct ros *r, uint32_t i, uint64_t event, uint64_t number, uint32_t l1_id,
                              const struct ros_fragment *f)
{
        uint64_t at = ARENA_NONE;

        if (r->n_held - r->n_expected == r->config.entries || (i == UINT32_MAX && r->n_held == r->n_entries))
                return UINT32_MAX;
        if (f->bytes > 0 && (at = arena_alloc(r->arena, f->bytes)) == ARENA_NONE)
                return UINT32_MAX;
        if (i == UINT32_MAX)
                i = new_entry(r, event, number, l1_id);
        struct ros_entry *e = &r->entries[i];

        r->n_expected -= e->expected;
        e->expected = false;
        e->at = at;
        e->fragment = *f;
        if (e->triggered)
                r->triggered_bytes += room_of(r, e);
        return i;
}

uint32_t ros_hold(struct ros *r, uint64_t event, uint32_t l1_id, const struct ros_fragment *f)
{
        uint32_t i = hold_fragment(r, UINT32_MAX, event, event, l1_id, f);

        if (i == UINT32_MAX)
                r->counts.full++;
        else
                r->entries[i].arrived = true;
        return i;
}

uint32_t ros_hold_frame(struct ros *r, uint32_t i, uint64_t number, const struct ros_fragment *f)
{
        return hold_fragment(r, i, ros_is_numbered(r) ? ROS_NO_EVENT : number, number, (uint32_t)number, f);
}

void ros_unhold_frame(struct ros *r, uint32_t i)
{
        struct ros_entry *e = &r->entries[i];

        if (e->event == ROS_NO_EVENT) {
                idmap_remove(&r->by_number, e->number);
                ros_release(r, i);
                return;
        }
        if (e->triggered)
                r->triggered_bytes -= room_of(r, e);
        arena_release(r->arena, e->at);
        e->at = ARENA_NONE;
        e->expected = true;
        r->n_expected++;
}

uint32_t ros_expect(struct ros *r, uint64_t event, uint64_t number, uint32_t l1_id)
{
        uint32_t i;

        if (r->n_expected >= r->config.expected_max || r->n_held == r->n_entries) {
                r->counts.full++;
                return UINT32_MAX;
        }
        i = new_entry(r, event, number, l1_id);
        r->entries[i].expected = true;
        r->n_expected++;
        return i;
}

void ros_bind(struct ros *r, uint32_t i, uint64_t event, uint32_t l1_id)
{
        struct ros_entry *e = &r->entries[i];

        if (e->arrived)
                remove_early(r, i);
        e->event = event;
        e->l1_id = l1_id;
        idmap_put(&r->by_event, event, i);
}

void ros_stop_waiting(struct ros *r, uint32_t i)
{
        struct ros_entry *e = &r->entries[i];

        if (e->arrived || e->wanted_by == UINT16_MAX)
                return;
        r->n_waiting--;
        list_remove(r, &r->waiting, i);
        e->wanted_by = UINT16_MAX;
}

void ros_forget_suspect(struct ros *r, uint32_t i)
{
        uint32_t k = 0;

        while (r->suspects[k] != i)
                k++;
        r->suspects[k] = r->suspects[--r->n_suspects];
        r->entries[i].suspect = false;
        if (r->leaper == i)
                r->leaper = UINT32_MAX;
}

void ros_unfinish(struct ros *r, uint32_t i)
{
        remove_early(r, i);
        r->n_frames--;
        r->entries[i].arrived = false;
}

void ros_count_frame(struct ros *r, enum ros_frame as, uint32_t in_slice)
{
        struct ros_counts *c = &r->counts;
        uint64_t *const classes[] = {
                [FRAME_GOOD] = &c->used,
                [FRAME_LATE] = &c->late,
                [FRAME_DUPLICATE] = &c->duplicate,
                [FRAME_IMPOSSIBLE] = &c->impossible,
        };

        ++*classes[as];
        c->slices.left_over -= in_slice;
        *(as == FRAME_GOOD   ? &c->slices.used
          : as == FRAME_LATE ? &c->slices.late
                             : &c->slices.dropped) += in_slice;
}

void ros_count_no_event(struct ros *r, uint32_t in_slice)
{
        ros_count_frame(r, FRAME_LATE, in_slice);
        r->counts.no_event++;
}

/* Until the run ends, a number that the DFM received may still become an event. With level 2, it may have
 * been a rejected event whose Clear was lost. */
bool ros_makes_no_event(const struct ros *r, const struct ros_entry *e)
{
        bool may = e->announced && (r->run_state != RUN_ENDED || r->config.level2);

        return r->config.leads && !may && ros_numbers_is_within(&r->numbers, e->number);
}

/* Counts a frame whose trigger did not come. If the DFM received its number, the trigger may still come, too
 * late, or a restart of the DFM may have lost it. */
static void account_untriggered(struct ros *r, const struct ros_entry *e)
{
        struct ros_numbers *n = &r->numbers;

        if (ros_makes_no_event(r, e))
                ros_count_no_event(r, e->fragment.frames);
        else if (r->config.leads && !r->config.level2 && ros_numbers_is_within(n, e->number)) {
                ros_count_no_event(r, e->fragment.frames);
                event_set_add(&n->used, e->number);
                event_set_add(&n->discarded, e->number);
        } else {
                r->left_behind++;
                ros_numbers_discard(n, e->number);
        }
}

bool ros_was_discarded(struct ros *r, uint64_t number, bool rejected)
{
        struct ros_numbers *n = &r->numbers;
        bool is_counted = event_set_has(&n->used, number);

        if (!event_set_has(&n->discarded, number))
                return false;
        event_set_remove(&n->discarded, number);
        event_set_add(&n->used, number);
        event_set_add(&n->ended, number);
        if (is_counted) {
                r->counts.no_event--;
                r->counts.discarded++;
                return true;
        }
        r->left_behind--;
        if (rejected)
                ros_count_frame(r, FRAME_GOOD, 0);
        else if (number < n->pushed_out_end) {
                r->counts.dropped++;
                r->counts.pushed_out++;
        } else {
                ros_count_frame(r, FRAME_LATE, 0);
                r->counts.discarded++;
        }
        return true;
}

static void count_incomplete(struct ros *r, const struct ros_entry *e)
{
        if (e->fragment.status != FRAGMENT_TRUNCATED)
                return;
        r->counts.incomplete++;
        r->samples.incomplete =
                (struct ros_sample){true, ros_numbers_counter(&r->numbers, e->number), e->fragment.bytes};
}

/* Counts a frame, or counts an event that waited for a frame. */
static void account(struct ros *r, uint32_t i)
{
        struct ros_entry *e = &r->entries[i];

        if (r->config.describe)
                return;
        if (e->triggered) {
                event_set_add(&r->numbers.ended, e->number);
                if (e->arrived)
                        event_set_add(&r->numbers.used, e->number);
        }
        if (e->suspect) {
                ros_forget_suspect(r, i);
                ros_count_frame(r, FRAME_LATE, e->fragment.frames);
        }
        if (!e->arrived) {
                r->counts.absent += e->triggered;
                return;
        }
        if (e->event == ROS_NO_EVENT)
                remove_early(r, i);
        r->n_frames--;
        if (!e->triggered)
                account_untriggered(r, e);
        else if (e->unrequested || (e->queued > 0 && !e->sent)) /* the event did not wait for the frame */
                ros_count_frame(r, FRAME_LATE, e->fragment.frames);
        else {
                ros_count_frame(r, FRAME_GOOD, e->fragment.frames);
                r->counts.slices.copied += e->fragment.copies;
                count_incomplete(r, e);
        }
}

void ros_drop(struct ros *r, uint32_t i)
{
        struct ros_entry *e = &r->entries[i];

        if (e->event != ROS_NO_EVENT)
                idmap_remove(&r->by_event, e->event);
        if (ros_is_numbered(r))
                idmap_remove(&r->by_number, e->number);
        ros_stop_waiting(r, i);
        account(r, i);
        ros_regions_wake(r, e->number);
        if (e->pins == 0 && i != r->arriving)
                ros_release(r, i);
        else
                e->cleared = true;
}

/* In a leading ROS, a frame that arrived in the run and was not announced can no longer become an event. */
void ros_push_out(struct ros *r, uint32_t i)
{
        const struct ros_entry *e = &r->entries[i];
        bool is_lost = r->config.leads && e->in_run && !e->announced;
        uint64_t number = e->number, frames = e->fragment.frames;

        ros_drop(r, i);
        if (!is_lost)
                return;
        (void)ros_was_discarded(r, number, false);
        r->counts.slices.left_over -= frames;
        r->counts.slices.dropped += frames;
}

void ros_clear(struct ros *r, uint64_t event)
{
        uint32_t i = idmap_get(&r->by_event, event);

        ros_regions_record_ended(r, event);
        if (i != IDMAP_NONE)
                ros_drop(r, i);
        else if (ros_counts_frames(r)) {
                event_set_add(&r->numbers.ended, event);
                ros_regions_wake(r, event);
        }
}

static void clear_all_below(struct ros *r, uint64_t oldest)
{
        for (uint32_t place = r->n_entries; place > r->n_entries - r->n_held;) {
                uint32_t i = entry_at(r, place - 1), held = r->n_held;

                if (!r->entries[i].cleared && r->entries[i].event < oldest)
                        ros_drop(r, i);
                /* Another entry, which was not visited yet, has replaced the freed entry. */
                place -= r->n_held == held;
        }
}

/* Whether a trigger may come for an early frame although events of newer triggers have ended: the DFM has its
 * number, or a restarted DFM receives it again. */
static bool is_awaited(const struct ros *r, const struct ros_entry *e)
{
        return r->config.leads && e->announced && e->in_run &&
               e->number + r->config.entries / 2 > r->numbers.passed;
}

/* No trigger will come for these frames. */
static void clear_passed(struct ros *r)
{
        for (uint32_t i = r->early.first, next; i != NO_ITEM; i = next) {
                const struct ros_entry *e = &r->entries[i];

                next = e->next;
                if (e->number <= r->numbers.passed && !is_awaited(r, e))
                        ros_drop(r, i);
        }
}

void ros_clear_below(struct ros *r, uint64_t oldest)
{
        if (oldest <= r->oldest)
                return;
        /* Visits either the numbers or the held entries, whichever are fewer. */
        if (oldest - r->oldest > r->n_held)
                clear_all_below(r, oldest);
        else
                for (uint64_t event = r->oldest; event < oldest; event++)
                        ros_clear(r, event);
        r->oldest = oldest;
        ros_regions_record_oldest(r, oldest);
        if (!r->config.describe && ros_numbers_record_oldest(&r->numbers, oldest))
                clear_passed(r);
}

void ros_pin(struct ros *r, uint32_t entry)
{
        r->entries[entry].pins++;
}

void ros_unpin(struct ros *r, uint32_t entry)
{
        struct ros_entry *e = &r->entries[entry];

        assert(e->pins > 0);
        if (--e->pins == 0 && e->cleared)
                ros_release(r, entry);
}

uint32_t ros_held(const struct ros *r)
{
        return r->n_held;
}

uint32_t ros_triggered(const struct ros *r)
{
        return r->n_triggered;
}

bool ros_is_off(const struct ros *r)
{
        return r->xoff;
}

uint64_t ros_buffer_used_bytes(const struct ros *r)
{
        return arena_used_bytes(r->arena);
}
