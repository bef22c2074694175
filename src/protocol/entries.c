/* Encodes and decodes compact entries. Most events follow each other, so an entry contains the difference to
 * the previous entry and needs a few bytes. message.c handles the fixed part of a message. Much of a DFM's
 * processor time is spent here, so each kind of entry has separate loops, into which the compiler inlines
 * everything that depends on kind and direction. */
#include <string.h>

#include "base/util.h"
#include "codec.h"

/* What an entry contains in addition to its usual fields. */
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

/* The previous valid entry, from which the next entry is expected to advance. */
struct previous {
        uint64_t event;
        uint64_t value; /* time or bytes of the entry */
        uint32_t l1_id;
};

static const struct previous before_first = {.event = UINT64_MAX, .l1_id = UINT32_MAX};

/* Encodes or decodes a value that is close to the expected one. */
static _always_inline_ void field_near(struct codec *c, uint64_t *v, uint64_t expected)
{
        uint64_t coded = c->decode ? 0 : zigzag((int64_t)(*v - expected));

        field_varint(c, &coded);
        if (c->decode)
                *v = expected + (uint64_t)unzigzag(coded);
}

static _always_inline_ void field_small(struct codec *c, uint32_t *v)
{
        uint64_t wide = *v;

        field_varint(c, &wide);
        if (wide > UINT32_MAX)
                c->r.failed = true;
        *v = (uint32_t)wide;
}

/* Encodes or decodes the event and the entry's flags: one byte if the event is close to the expected one and
 * there are no flags. */
static _always_inline_ void field_event(struct codec *c, uint64_t *event, const struct previous *p,
                                        uint8_t *flags)
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

static _always_inline_ void field_l1_id(struct codec *c, uint32_t *l1_id, const struct previous *p,
                                        uint64_t event, uint8_t flags)
{
        if (flags & ENTRY_L1_ID)
                field_u32(c, l1_id);
        else if (c->decode)
                *l1_id = expected_l1_id(p, event);
}

/* Only the flag makes an entry void, not the event number that stands for void entries. */
static _always_inline_ bool flags_are_valid(uint8_t flags, unsigned possible, uint64_t event)
{
        unsigned which = ENTRY_EVENT | ENTRY_VOID;

        return (flags & ~possible) == 0 && (flags & which) != which &&
               (event == ASSIGN_VOID_EVENT) == ((flags & ENTRY_VOID) != 0);
}

static _always_inline_ bool assign_entry(struct codec *c, struct message *m, size_t k,
                                         const struct previous *p)
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

static _always_inline_ bool update_entry(struct codec *c, struct message *m, size_t k,
                                         const struct previous *p)
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

static _always_inline_ bool request_entry(struct codec *c, struct message *m, size_t k,
                                          const struct previous *p)
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

static _always_inline_ bool clear_entry(struct codec *c, struct message *m, size_t k,
                                        const struct previous *p)
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

static _always_inline_ bool announced_entry(struct codec *c, struct message *m, size_t k,
                                            const struct previous *p)
{
        uint32_t *number = &m->announced.numbers[k], expected = p->l1_id + 1;
        uint64_t coded = c->decode ? 0 : zigzag((int32_t)(*number - expected));

        field_varint(c, &coded);
        if (c->decode)
                *number = expected + (uint32_t)unzigzag(coded);
        return true;
}

/* KIND_previous(): converts entry k to the previous entry of the next one; false: entry k is void. */
static _always_inline_ bool assign_previous(const struct message *m, size_t k, struct previous *ret)
{
        const struct assign_entry *e = &m->assign.entries[k];

        *ret = (struct previous){e->event, e->time_ns, e->l1_id};
        return !(e->flags & ASSIGN_VOID);
}

static _always_inline_ bool update_previous(const struct message *m, size_t k, struct previous *ret)
{
        const struct finished_entry *e = &m->update.entries[k];

        *ret = (struct previous){.event = e->event, .value = e->payload_bytes};
        return e->event != ASSIGN_VOID_EVENT;
}

static _always_inline_ bool request_previous(const struct message *m, size_t k, struct previous *ret)
{
        const struct request_entry *e = &m->request.entries[k];

        *ret = (struct previous){.event = e->event, .l1_id = e->l1_id};
        return true;
}

static _always_inline_ bool clear_previous(const struct message *m, size_t k, struct previous *ret)
{
        uint32_t l1_id = m->clear.with_l1_ids ? m->clear.l1_ids[k] : 0;

        *ret = (struct previous){.event = m->clear.events[k], .l1_id = l1_id};
        return true;
}

static _always_inline_ bool announced_previous(const struct message *m, size_t k, struct previous *ret)
{
        *ret = (struct previous){.l1_id = m->announced.numbers[k]};
        return true;
}

/* X(type of the message, kind of its entries) */
#define ENTRY_KINDS(X)                                                                                       \
        X(MESSAGE_ASSIGN, assign)                                                                            \
        X(MESSAGE_BUILD, assign)                                                                             \
        X(MESSAGE_UPDATE, update)                                                                            \
        X(MESSAGE_REQUEST, request)                                                                          \
        X(MESSAGE_CLEAR, clear)                                                                              \
        X(MESSAGE_NUMBERS, announced)

typedef bool (*entry_fn)(struct codec *c, struct message *m, size_t k, const struct previous *p);
typedef bool (*previous_fn)(const struct message *m, size_t k, struct previous *ret);

static struct previous first_previous(const struct message *m)
{
        struct previous p = before_first;

        if (m->header.type == MESSAGE_CLEAR)
                p.event = m->clear.oldest - 1;
        return p;
}

static _always_inline_ bool code_all(struct codec *c, bool decode, struct message *m, entry_fn entry,
                                     previous_fn as_previous)
{
        struct codec here = {.decode = decode, .r = c->r, .w = c->w};
        struct previous p = first_previous(m), next;
        bool valid = true;

        for (size_t k = 0; k < m->n && valid; k++) {
                valid = entry(&here, m, k, &p);
                if (as_previous(m, k, &next))
                        p = next;
        }
        *c = here;
        return valid;
}

static void put_coded(struct codec *c, const struct message *m)
{
        void *to = writer_reserve(&c->w, m->coded_bytes);

        if (to)
                memcpy(to, m->coded, m->coded_bytes);
}

bool entries_code(struct codec *c, struct message *m)
{
        if (!c->decode && m->header.payload_bytes > 0 && m->coded_bytes > 0) {
                put_coded(c, m);
                return true;
        }
        switch (m->header.type) {
#define X(type, kind)                                                                                        \
        case type:                                                                                           \
                return c->decode ? code_all(c, true, m, kind##_entry, kind##_previous)                       \
                                 : code_all(c, false, m, kind##_entry, kind##_previous);
                ENTRY_KINDS(X)
#undef X
        }
        return m->n == 0;
}

static _always_inline_ size_t fit_all(struct message *m, size_t room, size_t more, entry_fn entry,
                                      previous_fn as_previous)
{
        struct codec c = {.w = writer_init(m->coded, sizeof m->coded)};
        struct previous p = first_previous(m), next;
        size_t k = 0, used = 0;
        bool valid = true;

        for (; k < m->n; k++) {
                const uint8_t *begin = c.w.at;
                bool entry_is_valid = entry(&c, m, k, &p);
                size_t bytes = (size_t)(c.w.at - begin) + more;

                if (bytes > room - used)
                        break;
                used += bytes;
                valid &= entry_is_valid;
                if (as_previous(m, k, &next))
                        p = next;
        }
        m->n = k;
        m->coded_bytes = valid ? (uint32_t)(used - k * more) : 0;
        return used;
}

size_t entries_fit(struct message *m, size_t room, size_t more)
{
        switch (m->header.type) {
#define X(type, kind)                                                                                        \
        case type:                                                                                           \
                return fit_all(m, room, more, kind##_entry, kind##_previous);
                ENTRY_KINDS(X)
#undef X
        }
        m->n = m->coded_bytes = 0;
        return 0;
}

/* Encodes and decodes the messages about frames that a ROS announces to the DFM. */

#define NUMBERS_KNOWN 1u
#define NUMBERS_LAST 2u
#define NUMBERS_ACK_GO_ON 1u

static bool code_numbers(struct codec *c, struct message *m)
{
        uint32_t flags = 0, n = (uint32_t)m->n, reserved = 0;

        if (!c->decode)
                flags = (m->announced.knows ? NUMBERS_KNOWN : 0) | (m->announced.last ? NUMBERS_LAST : 0);

        field_u32(c, &m->announced.incarnation);
        field_u32(c, &m->announced.resets);
        field_u32(c, &m->announced.next);
        field_u32(c, &flags);
        m->announced.knows = flags & NUMBERS_KNOWN;
        m->announced.last = flags & NUMBERS_LAST;
        field_u32(c, &n);
        field_u32(c, &reserved);
        m->n = n;
        return n <= MESSAGE_ENTRIES_MAX && flags <= (NUMBERS_KNOWN | NUMBERS_LAST) && entries_code(c, m);
}

static bool code_ack(struct codec *c, struct message *m)
{
        uint32_t flags = !c->decode && m->numbers_ack.go_on ? NUMBERS_ACK_GO_ON : 0;

        field_u32(c, &m->numbers_ack.incarnation);
        field_u32(c, &m->numbers_ack.ack);
        field_u32(c, &m->numbers_ack.resets);
        field_u32(c, &flags);
        m->numbers_ack.go_on = flags & NUMBERS_ACK_GO_ON;
        return flags <= NUMBERS_ACK_GO_ON;
}

bool numbers_code(struct codec *c, struct message *m)
{
        return m->header.type == MESSAGE_NUMBERS ? code_numbers(c, m) : code_ack(c, m);
}

/* ---- Probe ---- */

#define PROBE_ANSWERS 1u

bool probe_code(struct codec *c, struct message *m)
{
        uint32_t flags = !c->decode && m->probe.answers ? PROBE_ANSWERS : 0;

        field_u32(c, &flags);
        m->probe.answers = flags & PROBE_ANSWERS;
        field_u32(c, &m->probe.padding_bytes);
        if (flags > PROBE_ANSWERS || m->probe.padding_bytes > UINT16_MAX)
                return false;
        if (c->decode)
                reader_consume(&c->r, m->probe.padding_bytes);
        else {
                void *zeros = writer_reserve(&c->w, m->probe.padding_bytes);

                if (zeros)
                        memset(zeros, 0, m->probe.padding_bytes);
        }
        return true;
}
