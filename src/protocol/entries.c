/* Compact entries: most events follow each other, so an entry holds the difference to the one before it and
 * takes a few bytes. message.c codes the fixed part of a message. */
#include "codec.h"
#include "evb/base/util.h"

/* What an entry carries beyond its usual fields. */
enum {
        ENTRY_EVENT = 1, /* the event in full */
        ENTRY_VOID = 2,  /* ASSIGN_VOID_EVENT */
        ENTRY_L1_ID = 4, /* an L1 id that does not advance with the event */
        ASSIGN_FLAGS = 7,
        UPDATE_MISSING = 4, /* the number of missing fragments */
        UPDATE_END_SHIFT = 3,
        UPDATE_ABSENT = 32, /* the number of absent fragments */
        UPDATE_UNANSWERED = 64,
        UPDATE_FLAGS = 127,
        REQUEST_RANGE = 8,
        REQUEST_AGAIN = 16,
        REQUEST_FLAGS = 29,
};

/* The valid entry before, from which the next one is expected to advance. */
struct previous {
        uint64_t event;
        uint64_t value; /* its time or its bytes */
        uint32_t l1_id;
};

static const struct previous before_first = {.event = UINT64_MAX, .l1_id = UINT32_MAX};

/* A value that is close to the expected one. */
static void field_near(struct codec *c, uint64_t *v, uint64_t expected)
{
        uint64_t coded = c->decode ? 0 : zigzag((int64_t)(*v - expected));

        field_varint(c, &coded);
        if (c->decode)
                *v = expected + (uint64_t)unzigzag(coded);
}

static void field_small(struct codec *c, uint32_t *v)
{
        uint64_t wide = *v;

        field_varint(c, &wide);
        if (wide > UINT32_MAX)
                c->r.failed = true;
        *v = (uint32_t)wide;
}

/* The event and the entry's flags: one byte if the event is close to the expected one and there are no flags.
 */
static void field_event(struct codec *c, uint64_t *event, const struct previous *p, uint8_t *flags)
{
        uint64_t expected = p->event + 1, difference = 0, coded;

        if (!c->decode) {
                if (*event == ASSIGN_VOID_EVENT)
                        *flags |= ENTRY_VOID;
                else if (zigzag((int64_t)(*event - expected)) >> 63)
                        *flags |= ENTRY_EVENT;
                else
                        difference = zigzag((int64_t)(*event - expected));
        }
        coded = difference << 1 | (*flags != 0);
        field_varint(c, &coded);
        if (c->decode)
                *event = expected + (uint64_t)unzigzag(coded >> 1);
        if (coded & 1)
                field_u8(c, flags);
        if (*flags & ENTRY_EVENT)
                field_u64(c, event);
        if (*flags & ENTRY_VOID)
                *event = ASSIGN_VOID_EVENT;
}

static uint32_t expected_l1_id(const struct previous *p, uint64_t event)
{
        return p->l1_id + (uint32_t)(event - p->event);
}

static void field_l1_id(struct codec *c, uint32_t *l1_id, const struct previous *p, uint64_t event,
                        uint8_t flags)
{
        if (flags & ENTRY_L1_ID)
                field_u32(c, l1_id);
        else if (c->decode)
                *l1_id = expected_l1_id(p, event);
}

/* Only the flag makes an entry void, not the number that stands for it. */
static bool flags_are_valid(uint8_t flags, unsigned possible, uint64_t event)
{
        unsigned which = ENTRY_EVENT | ENTRY_VOID;

        return (flags & ~possible) == 0 && (flags & which) != which &&
               (event == ASSIGN_VOID_EVENT) == ((flags & ENTRY_VOID) != 0);
}

static bool assign_entry(struct codec *c, struct message *m, size_t k, const struct previous *p)
{
        struct assign_entry *e = &m->assign.entries[k];
        uint8_t flags = 0;
        uint32_t sfi = e->sfi;

        if (!c->decode && !(e->flags & ASSIGN_VOID) && e->l1_id != expected_l1_id(p, e->event))
                flags = ENTRY_L1_ID;
        if (c->decode)
                *e = (struct assign_entry){};
        field_event(c, &e->event, p, &flags);
        if (c->decode)
                e->flags = flags & ENTRY_VOID ? ASSIGN_VOID : 0;
        if (!(flags & ENTRY_VOID))
                field_l1_id(c, &e->l1_id, p, e->event, flags);
        if (m->assign.announces)
                field_small(c, &sfi);
        else if (!(flags & ENTRY_VOID))
                field_near(c, &e->time_ns, p->value);
        if (c->decode) {
                e->sfi = m->assign.announces ? (uint16_t)MIN(sfi, UINT16_MAX) : m->assign.sfi;
                e->sequence = m->assign.announces ? 0 : m->header.transaction + (uint32_t)k;
        }
        return flags_are_valid(flags, ASSIGN_FLAGS, e->event) && e->sfi < EVB_SFI_MAX &&
               e->event != UINT64_MAX;
}

static bool update_entry(struct codec *c, struct message *m, size_t k, const struct previous *p)
{
        struct finished_entry *e = &m->update.entries[k];
        uint8_t flags = 0;

        if (!c->decode)
                flags = (uint8_t)(e->end << UPDATE_END_SHIFT | (e->missing > 0 ? UPDATE_MISSING : 0) |
                                  (e->absent > 0 ? UPDATE_ABSENT : 0) |
                                  (e->unanswered ? UPDATE_UNANSWERED : 0));
        else
                *e = (struct finished_entry){};
        field_event(c, &e->event, p, &flags);
        field_near(c, &e->payload_bytes, p->value);
        if (flags & UPDATE_MISSING)
                field_small(c, &e->missing);
        if (flags & UPDATE_ABSENT)
                field_small(c, &e->absent);
        e->end = (uint32_t)flags >> UPDATE_END_SHIFT & 3;
        e->unanswered = flags & UPDATE_UNANSWERED;
        return flags_are_valid(flags, UPDATE_FLAGS, e->event) && e->missing <= EVB_ROS_MAX &&
               e->absent <= EVB_ROS_MAX;
}

static bool request_entry(struct codec *c, struct message *m, size_t k, const struct previous *p)
{
        struct request_entry *e = &m->request.entries[k];
        uint8_t flags = 0;

        if (c->decode)
                *e = (struct request_entry){.to_bytes = UINT32_MAX};
        else
                flags = (uint8_t)((e->l1_id != expected_l1_id(p, e->event) ? ENTRY_L1_ID : 0) |
                                  (e->from_bytes > 0 || e->to_bytes != UINT32_MAX ? REQUEST_RANGE : 0) |
                                  (e->again > 0 ? REQUEST_AGAIN : 0));
        field_event(c, &e->event, p, &flags);
        field_l1_id(c, &e->l1_id, p, e->event, flags);
        if (flags & REQUEST_RANGE) {
                field_small(c, &e->from_bytes);
                field_small(c, &e->to_bytes);
        }
        if (flags & REQUEST_AGAIN)
                field_small(c, &e->again);
        return flags_are_valid(flags, REQUEST_FLAGS, e->event) && e->event != UINT64_MAX &&
               e->from_bytes <= e->to_bytes && e->from_bytes % EVB_BLOCK_BYTES == 0;
}

static bool clear_entry(struct codec *c, struct message *m, size_t k, const struct previous *p)
{
        uint32_t *l1_id = &m->clear.l1_ids[k], expected;
        uint64_t coded;

        field_near(c, &m->clear.events[k], p->event + 1);
        if (!m->clear.with_l1_ids)
                return true;
        expected = expected_l1_id(p, m->clear.events[k]);
        coded = c->decode ? 0 : zigzag((int32_t)(*l1_id - expected));
        field_varint(c, &coded);
        if (c->decode)
                *l1_id = expected + (uint32_t)unzigzag(coded);
        return true;
}

static bool have_entry(struct codec *c, struct message *m, size_t k, const struct previous *p)
{
        uint32_t *number = &m->have.numbers[k], expected = p->l1_id + 1;
        uint64_t coded = c->decode ? 0 : zigzag((int32_t)(*number - expected));

        field_varint(c, &coded);
        if (c->decode)
                *number = expected + (uint32_t)unzigzag(coded);
        return true;
}

/* Entry k as the previous one of the next entry; false: it is void. */
static bool as_previous(const struct message *m, size_t k, struct previous *ret)
{
        const struct assign_entry *a = &m->assign.entries[k];
        const struct finished_entry *f = &m->update.entries[k];
        const struct request_entry *q = &m->request.entries[k];

        switch (m->header.type) {
        case MESSAGE_ASSIGN:
        case MESSAGE_BUILD:
                *ret = (struct previous){a->event, a->time_ns, a->l1_id};
                return !(a->flags & ASSIGN_VOID);
        case MESSAGE_UPDATE:
                *ret = (struct previous){.event = f->event, .value = f->payload_bytes};
                return f->event != ASSIGN_VOID_EVENT;
        case MESSAGE_REQUEST:
                *ret = (struct previous){.event = q->event, .l1_id = q->l1_id};
                return true;
        case MESSAGE_CLEAR:
                *ret = (struct previous){
                        .event = m->clear.events[k],
                        .l1_id = m->clear.with_l1_ids ? m->clear.l1_ids[k] : 0,
                };
                return true;
        case MESSAGE_HAVE:
                *ret = (struct previous){.l1_id = m->have.numbers[k]};
                return true;
        }
        return false;
}

static struct previous first_previous(const struct message *m)
{
        struct previous p = before_first;

        if (m->header.type == MESSAGE_CLEAR)
                p.event = m->clear.oldest - 1;
        return p;
}

static bool code_entry(struct codec *c, struct message *m, size_t k, const struct previous *p)
{
        switch (m->header.type) {
        case MESSAGE_ASSIGN:
        case MESSAGE_BUILD:
                return assign_entry(c, m, k, p);
        case MESSAGE_UPDATE:
                return update_entry(c, m, k, p);
        case MESSAGE_REQUEST:
                return request_entry(c, m, k, p);
        case MESSAGE_CLEAR:
                return clear_entry(c, m, k, p);
        case MESSAGE_HAVE:
                return have_entry(c, m, k, p);
        }
        return false;
}

bool entries_code(struct codec *c, struct message *m)
{
        struct previous p = first_previous(m), next;

        for (size_t k = 0; k < m->n; k++) {
                if (!code_entry(c, m, k, &p))
                        return false;
                if (as_previous(m, k, &next))
                        p = next;
        }
        return true;
}

size_t entries_bytes(const struct message *m, size_t k)
{
        uint8_t bytes[MESSAGE_ENTRY_BYTES_MAX];
        struct codec c = {.w = writer_init(bytes, sizeof bytes)};
        struct previous p = first_previous(m), before;

        for (size_t i = k; i-- > 0;) {
                if (!as_previous(m, i, &before))
                        continue;
                p = before;
                break;
        }
        /* A codec that writes does not change the message. */
        (void)code_entry(&c, (struct message *)m, k, &p);
        return (size_t)(c.w.at - bytes);
}
