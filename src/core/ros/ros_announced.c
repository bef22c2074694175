/* Announces the frames whose trigger is not known, so that the DFM makes an event of each number
 * (trigger.source = frames). The announcements are a stream of numbers that the DFM acknowledges;
 * unacknowledged numbers are sent again. A stream begins with an empty Numbers message, which shows a DFM
 * that resumes a run which triggers have already become events. When the run drains, a flag reports that all
 * frames that arrived before are announced. */
#include <errno.h>

#include "ros_internal.h"

/* Maximum number of sent and unacknowledged numbers. */
#define ANNOUNCED_WINDOW 4096u
/* Numbers that come within this time after a message wait for the next message, unless they fill it. */
#define ANNOUNCE_PAUSE_NS NS_PER_MS
#define RESEND_FIRST_NS (20 * NS_PER_MS)
#define RESEND_LONGEST_NS (320 * NS_PER_MS)

int ros_announced_init(struct ros *r)
{
        r->announced = (struct ros_announced){.next = NO_ITEM, .resend_after_ns = RESEND_FIRST_NS};
        if (!r->config.announces)
                return 0;
        r->announced.numbers = calloc(ANNOUNCED_WINDOW, sizeof *r->announced.numbers);
        return r->announced.numbers ? 0 : -ENOMEM;
}

void ros_announced_fini(struct ros *r)
{
        free(r->announced.numbers);
}

static uint32_t first_new(const struct ros *r, uint32_t i)
{
        while (i != NO_ITEM && r->entries[i].announced)
                i = r->entries[i].next;
        return i;
}

/* Before the first trigger, later frames than this one were discarded for lack of room. If this number began
 * the run, they would be missing in it, so it is from before the run, too. */
static bool is_overtaken(const struct ros *r, uint64_t number)
{
        return !r->numbers.has_trigger && number < r->numbers.pushed_out_end;
}

void ros_announce_number(struct ros *r, uint32_t i)
{
        struct ros_announced *h = &r->announced;
        struct ros_entry *e = &r->entries[i];
        bool after_stop = h->closing || (h->stopping && e->fragment.after_stop);

        /* After a reset, no trigger from before it is accepted. Likewise, no trigger that came after the stop
         * is accepted. */
        e->announced = e->number < r->numbers.base || after_stop || is_overtaken(r, e->number);
        if (e->announced)
                return;
        h->n_new++;
        if (h->next == NO_ITEM)
                h->next = i;
}

void ros_announced_remove(struct ros *r, uint32_t i)
{
        struct ros_announced *h = &r->announced;

        if (r->entries[i].announced)
                return;
        h->n_new--;
        if (h->next == i)
                h->next = first_new(r, r->entries[i].next);
}

void ros_announced_restart(struct ros *r)
{
        struct ros_announced *h = &r->announced;

        *h = (struct ros_announced){
                .next = NO_ITEM,
                .resend_after_ns = RESEND_FIRST_NS,
                .numbers = h->numbers,
                .reading = h->reading,
                .collecting = h->collecting,
                .has_state = h->has_state,
        };
        for (uint32_t i = r->early.first; i != NO_ITEM; i = r->entries[i].next)
                ros_announce_number(r, i);
}

/* All frames, or those that came before frames which were discarded. */
static void leave_out(struct ros *r, bool all)
{
        for (uint32_t i = r->early.first; i != NO_ITEM; i = r->entries[i].next) {
                if (r->entries[i].announced || !(all || is_overtaken(r, r->entries[i].number)))
                        continue;
                ros_announced_remove(r, i);
                r->entries[i].announced = true;
        }
}

static bool stops(const struct message *keep_alive)
{
        return keep_alive->keep_alive.state == RUN_DRAINING &&
               !(keep_alive->keep_alive.flags & KEEP_ALIVE_RESUMES);
}

bool ros_announced_closes(const struct ros *r, const struct message *keep_alive)
{
        const struct ros_announced *h = &r->announced;

        return r->config.announces && stops(keep_alive) && !h->closing && !h->collecting;
}

void ros_announced_record_state(struct ros *r, const struct message *keep_alive)
{
        struct ros_announced *h = &r->announced;
        enum run_state state = keep_alive->keep_alive.state;
        bool joins_late = !h->has_state && stops(keep_alive);

        h->has_state = true;
        h->stopping = stops(keep_alive);
        h->closing = h->stopping && (h->closing || !h->collecting || joins_late);
        h->active = state == RUN_RUNNING || (h->stopping && !h->closing);
        /* This process began after the stop, as its frames probably did. */
        if (joins_late || (h->active && is_overtaken(r, 0)))
                leave_out(r, joins_late);
}

static bool is_active(const struct ros *r)
{
        return r->config.announces && (r->announced.active || r->announced.closing) && r->state != RUN_ENDED;
}

/* How many numbers that were not announced yet may be announced now. */
static uint32_t n_sendable(const struct ros *r)
{
        const struct ros_announced *h = &r->announced;

        return r->config.leads ? MIN(h->n_new, ANNOUNCED_WINDOW - (h->end - h->acked)) : 0;
}

/* Whether a message with all numbers that are waiting to be sent is the last message. */
static bool ends_with(const struct ros *r, uint32_t sent)
{
        const struct ros_announced *h = &r->announced;

        return h->closing && sent == h->end && (h->n_new == 0 || !r->config.leads);
}

static uint64_t due_ns(const struct ros *r)
{
        const struct ros_announced *h = &r->announced;
        uint32_t n = n_sendable(r);

        if (!h->open || h->sent != h->end)
                return h->open ? 0 : h->resend_ns;
        if (n == 0)
                return ends_with(r, h->sent) && !h->closed ? 0 : h->resend_ns;
        return MIN(n >= MESSAGE_ENTRIES_MAX ? 0 : h->sent_ns + ANNOUNCE_PAUSE_NS, h->resend_ns);
}

uint64_t ros_announced_deadline_ns(const struct ros *r)
{
        return is_active(r) ? MAX(due_ns(r), budget_next_ns(&r->budget)) : NEVER_NS;
}

static void resend_if_due(struct ros_announced *h, uint64_t now_ns)
{
        if (now_ns < h->resend_ns)
                return;
        h->sent = h->acked;
        h->resend_ns = now_ns + h->resend_after_ns;
        h->resend_after_ns = MIN(2 * h->resend_after_ns, RESEND_LONGEST_NS);
}

/* Appends the oldest unannounced frame to the numbers that the DFM must acknowledge. */
static void append_new(struct ros *r)
{
        struct ros_announced *h = &r->announced;
        struct ros_entry *e = &r->entries[h->next];

        h->numbers[h->end++ % ANNOUNCED_WINDOW] = e->number;
        e->announced = true;
        h->next = first_new(r, e->next);
        h->n_new--;
}

static void add_numbers(struct ros *r, struct message *m)
{
        struct ros_announced *h = &r->announced;
        uint32_t first = h->sent;

        for (; m->n < MESSAGE_ENTRIES_MAX && (h->sent != h->end || n_sendable(r) > 0); h->sent++) {
                if (h->sent == h->end)
                        append_new(r);
                m->announced.numbers[m->n++] =
                        ros_numbers_announced(&r->numbers, h->numbers[h->sent % ANNOUNCED_WINDOW]);
        }
        message_fit(m, r->config.message_bytes);
        h->sent = first + (uint32_t)m->n;
}

bool ros_make_announcement(struct ros *r, uint64_t now_ns, struct message *m)
{
        struct ros_announced *h = &r->announced;

        if (now_ns < ros_announced_deadline_ns(r))
                return false;
        resend_if_due(h, now_ns);
        member_address(&r->member, m, MESSAGE_NUMBERS);
        m->header.transaction = h->sent;
        m->n = 0;
        m->announced.incarnation = (uint32_t)r->config.member.incarnation;
        m->announced.resets = r->member.resets;
        m->announced.knows = r->numbers.has_trigger;
        m->announced.next = ros_numbers_next_l1_id(&r->numbers);
        if (h->open)
                add_numbers(r, m);
        m->announced.last = ends_with(r, h->sent);
        h->closed |= m->announced.last;
        h->sent_ns = now_ns;
        /* The last message is repeated until the run ends, because the DFM waits for it. */
        if (h->resend_ns == NEVER_NS && (h->acked != h->end || h->closing))
                h->resend_ns = now_ns + h->resend_after_ns;
        return true;
}

bool ros_receive_numbers_ack(struct ros *r, uint64_t now_ns, const struct message *m)
{
        struct ros_announced *h = &r->announced;
        uint32_t ack = m->numbers_ack.ack;

        if (m->header.sender_role != ROLE_DFM)
                return false;
        if (m->numbers_ack.incarnation != (uint32_t)r->config.member.incarnation ||
            m->numbers_ack.resets != r->member.resets || ack - h->acked > h->end - h->acked)
                return true;
        if (!h->open || ack != h->acked) {
                h->resend_after_ns = RESEND_FIRST_NS;
                h->resend_ns = ack == h->end && !h->closing ? NEVER_NS : now_ns + h->resend_after_ns;
        }
        h->open = true;
        if (h->sent - h->acked < ack - h->acked || m->numbers_ack.go_on)
                h->sent = ack;
        h->acked = ack;
        return true;
}
