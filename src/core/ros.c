/* The ROS's outside: made, fed with messages, asked for messages. What it holds is in ros_hold.c, what it is to send in
 * ros_queue.c. */
#include "evb/core/ros.h"

#include <errno.h>
#include <string.h>

#include "ros_internal.h"

#define BLOCK_MIN_BYTES 256u
/* Items beside one for each fragment held: requests for parts, and answers that nothing is held. */
#define ITEMS_EXTRA 4096u

static int allocate(struct ros *r)
{
        const struct ros_config *c = &r->config;
        uint32_t items = c->entries + ITEMS_EXTRA;
        int k;

        k = idmap_init(&r->by_event, c->entries);
        if (k >= 0)
                k = arena_new(&r->arena, c->buffer_bytes, BLOCK_MIN_BYTES, EVB_FRAGMENT_MAX_BYTES);
        if (k < 0)
                return k;
        r->entries = calloc(c->entries, sizeof *r->entries);
        r->free_entries = calloc(c->entries, sizeof *r->free_entries);
        r->items = calloc(items, sizeof *r->items);
        r->queues = calloc(c->n_sfi, sizeof *r->queues);
        if (!r->entries || !r->free_entries || !r->items || !r->queues)
                return -ENOMEM;
        for (uint32_t i = 0; i < c->entries; i++)
                r->free_entries[i] = c->entries - 1 - i;
        for (uint32_t i = 0; i < items; i++)
                r->items[i].next = i + 1 < items ? i + 1 : NO_ITEM;
        for (uint32_t i = 0; i < c->n_sfi; i++)
                r->queues[i] = (struct ros_queue){.first = NO_ITEM, .last = NO_ITEM};
        return 0;
}

int ros_new(struct ros **ret, const struct ros_config *config, uint64_t now_ns)
{
        struct ros *r;
        int k;

        if (config->n_sfi == 0 || config->n_sfi > EVB_SFI_MAX || config->index >= EVB_ROS_MAX || config->entries == 0 ||
            config->buffer_bytes < EVB_FRAGMENT_MAX_BYTES)
                return -EINVAL;
        r = calloc(1, sizeof *r);
        if (!r)
                return -ENOMEM;
        r->config = *config;
        r->run_state = RUN_STARTING;
        r->state = RUN_RUNNING;
        r->keep_alive_due_ns = now_ns;
        r->arriving = UINT32_MAX;
        memset(r->sfi_live, 0xff, sizeof r->sfi_live);
        k = allocate(r);
        if (k < 0) {
                ros_free(r);
                return k;
        }
        *ret = r;
        return 0;
}

struct ros *ros_free(struct ros *r)
{
        if (!r)
                return NULL;
        idmap_fini(&r->by_event);
        arena_free(r->arena);
        free(r->entries);
        free(r->free_entries);
        free(r->items);
        free(r->queues);
        free(r);
        return NULL;
}

/* The entry of an event that someone wants, made where it is not there; UINT32_MAX: nothing is held, and *ret_status says
 * what to answer (FRAGMENT_OK: nothing). */
static uint32_t want(struct ros *r, uint64_t event, uint32_t l1_id, uint8_t *ret_status)
{
        uint32_t i = idmap_get(&r->by_event, event);
        struct ros_fragment f;

        *ret_status = FRAGMENT_OK;
        if (i != IDMAP_NONE)
                return i;
        if (event < r->oldest) {
                r->counts.unknown++;
                return UINT32_MAX;
        }
        if (r->config.describe) {
                r->config.describe(r->config.describe_ctx, event, l1_id, &f);
                return ros_hold(r, event, l1_id, &f);
        }
        if (event >= r->arrived)
                return ros_expect(r, event, l1_id);
        r->counts.unknown++;
        *ret_status = FRAGMENT_LOST;
        return UINT32_MAX;
}

static void send_to(struct ros *r, uint64_t now_ns, uint16_t sfi, const struct request_entry *q)
{
        uint64_t event = q->event;
        uint32_t l1_id = q->l1_id;
        uint8_t status;
        uint32_t i = want(r, event, l1_id, &status);

        if (i == UINT32_MAX) {
                if (status != FRAGMENT_OK)
                        ros_enqueue(r, sfi, event, l1_id, 0, UINT32_MAX, status);
                return;
        }
        struct ros_entry *e = &r->entries[i];
        if (!e->arrived) {
                if (e->wanted_by == UINT16_MAX) {
                        e->wanted_ns = now_ns;
                        r->n_waiting++;
                }
                e->wanted_by = sfi;
                if (q->again > 0 && now_ns - e->wanted_ns >= r->config.pending_after_ns)
                        ros_enqueue(r, sfi, event, l1_id, 0, UINT32_MAX, FRAGMENT_PENDING);
                return;
        }
        /* What still waits here to be sent is not lost, only late: sending it twice would make that worse. */
        if (q->again > 0 && e->queued > 0 && e->queued_sfi == sfi && q->from_bytes == 0)
                return;
        ros_enqueue(r, sfi, event, l1_id, q->from_bytes, q->to_bytes, FRAGMENT_OK);
}

static bool receive_assign(struct ros *r, uint64_t now_ns, const struct message *m)
{
        if (m->header.sender_role != ROLE_DFM)
                return false;
        r->heard_dfm_ns = now_ns;
        for (size_t k = 0; k < m->n; k++) {
                const struct assign_entry *a = &m->assign.entries[k];

                if (a->sfi < r->config.n_sfi && !(a->flags & ASSIGN_VOID))
                        send_to(r, now_ns, a->sfi,
                                &(struct request_entry){.event = a->event, .l1_id = a->l1_id, .to_bytes = UINT32_MAX});
        }
        ros_check_room(r);
        return true;
}

static bool receive_request(struct ros *r, uint64_t now_ns, const struct message *m)
{
        uint16_t sfi = m->header.sender_index;

        if (m->header.sender_role != ROLE_SFI || sfi >= r->config.n_sfi)
                return false;
        for (size_t k = 0; k < m->n; k++)
                send_to(r, now_ns, sfi, &m->request.entries[k]);
        ros_check_room(r);
        return true;
}

static void note_clear_sequence(struct ros *r, uint32_t next)
{
        if (r->clear_seen && (int32_t)(next - r->clear_next) > 0)
                r->counts.clear_gaps += next - r->clear_next;
        if (!r->clear_seen || (int32_t)(next - r->clear_next) > 0)
                r->clear_next = next;
        r->clear_seen = true;
}

static bool receive_clear(struct ros *r, uint64_t now_ns, const struct message *m)
{
        if (m->header.sender_role != ROLE_DFM)
                return false;
        r->heard_dfm_ns = now_ns;
        note_clear_sequence(r, m->header.transaction);
        if (m->header.transaction == r->clear_next)
                r->clear_next++;
        for (size_t k = 0; k < m->n; k++)
                ros_clear(r, m->clear.events[k]);
        ros_check_room(r);
        return true;
}

static bool receive_keep_alive(struct ros *r, uint64_t now_ns, const struct message *m)
{
        if (m->header.sender_role != ROLE_DFM)
                return false;
        r->heard_dfm_ns = now_ns;
        if ((int32_t)(m->header.transaction - r->keep_alive_next) < 0)
                return true;
        r->keep_alive_next = m->header.transaction + 1;
        note_clear_sequence(r, m->keep_alive.clear_next);
        /* All that ended is cleared here at the latest, whichever Clear was lost. */
        ros_clear_below(r, m->keep_alive.oldest);
        ros_check_room(r);
        if (m->keep_alive.state > r->run_state)
                r->run_state = (enum run_state)m->keep_alive.state;
        /* Until the run begins, not all have told the DFM that they are there; after its end, they leave. */
        if (r->run_state == RUN_RUNNING || r->run_state == RUN_DRAINING)
                memcpy(r->sfi_live, m->keep_alive.sfi_live, sizeof r->sfi_live);
        return true;
}

bool ros_receive(struct ros *r, uint64_t now_ns, const struct message *m)
{
        switch (m->header.type) {
        case MESSAGE_ASSIGN:
        case MESSAGE_BUILD:
                return receive_assign(r, now_ns, m);
        case MESSAGE_REQUEST:
                return receive_request(r, now_ns, m);
        case MESSAGE_CLEAR:
                return receive_clear(r, now_ns, m);
        case MESSAGE_KEEP_ALIVE:
                return receive_keep_alive(r, now_ns, m);
        }
        return false;
}

static void address(const struct ros *r, struct message *m, uint32_t type)
{
        m->header = (struct message_header){
                .run = r->config.run,
                .sender_role = ROLE_ROS,
                .sender_index = r->config.index,
                .type = type,
        };
        m->n = 0;
}

static void make_alive(struct ros *r, uint64_t now_ns, struct message *m)
{
        address(r, m, MESSAGE_ALIVE);
        m->header.transaction = r->alive_sequence++;
        m->alive.state = r->state;
        m->alive.incarnation = r->config.incarnation;
        m->alive.flags = r->xoff ? ALIVE_XOFF : 0;
        r->xoff_told = r->xoff;
        r->keep_alive_due_ns = now_ns + r->config.keep_alive_ns;
        for (uint32_t i = 0; i < r->config.n_sfi; i++)
                r->queues[i].totals_due = r->queues[i].transaction > 0;
}

static bool make_totals(struct ros *r, struct message_to *to, struct message *m)
{
        for (uint32_t i = 0; i < r->config.n_sfi; i++) {
                struct ros_queue *q = &r->queues[i];

                if (!q->totals_due)
                        continue;
                q->totals_due = false;
                *to = (struct message_to){ROLE_SFI, (uint16_t)i};
                address(r, m, MESSAGE_TOTALS);
                m->totals.datagrams = q->transaction;
                m->totals.fragments = q->fragments;
                return true;
        }
        return false;
}

bool ros_step(struct ros *r, uint64_t now_ns, struct message_to *ret_to, struct message *ret)
{
        *ret_to = (struct message_to){ROLE_DFM, 0};
        if (now_ns >= r->keep_alive_due_ns) {
                make_alive(r, now_ns, ret);
                return true;
        }
        if (r->xoff != r->xoff_told) {
                r->xoff_told = r->xoff;
                address(r, ret, r->xoff ? MESSAGE_XOFF : MESSAGE_XON);
                ret->header.transaction = r->alive_sequence++;
                return true;
        }
        return make_totals(r, ret_to, ret);
}

uint64_t ros_deadline_ns(const struct ros *r)
{
        return r->keep_alive_due_ns;
}

void ros_stop(struct ros *r, uint64_t now_ns)
{
        if (r->state >= RUN_DRAINING)
                return;
        r->state = RUN_DRAINING;
        r->keep_alive_due_ns = now_ns;
}

bool ros_is_drained(const struct ros *r)
{
        if (r->run_state == RUN_ENDED)
                return true;
        return r->state >= RUN_DRAINING && r->n_held == 0 && r->n_items == 0;
}

void ros_set_ended(struct ros *r, uint64_t now_ns)
{
        r->state = RUN_ENDED;
        r->keep_alive_due_ns = now_ns;
}

enum run_state ros_run_state(const struct ros *r)
{
        return r->run_state;
}

const uint64_t *ros_sfi_live(const struct ros *r)
{
        return r->sfi_live;
}

uint64_t ros_heard_dfm_ns(const struct ros *r)
{
        return r->heard_dfm_ns;
}

const struct ros_counts *ros_counts(const struct ros *r)
{
        return &r->counts;
}

uint32_t ros_held(const struct ros *r)
{
        return r->n_held;
}
