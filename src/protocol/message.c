/* Encodes and decodes messages. One function walks over each body in both directions, so that they cannot
 * disagree. The cores decide what a message causes: see dfm.c, ros.c and sfi.c. */
#include "protocol/message.h"

#include <string.h>

#include "base/util.h"
#include "codec.h"

/* Encodes or decodes a text in a field of fixed size. */
static void field_text(struct codec *c, char *text, size_t size_bytes)
{
        const void *from = c->decode ? reader_consume(&c->r, size_bytes) : text;
        void *to = c->decode ? text : writer_reserve(&c->w, size_bytes);

        if (!from || !to)
                return;
        if (c->decode)
                memcpy(to, from, size_bytes);
        else
                strncpy(to, from, size_bytes); /* fills the field with zeros */
}

static bool ends(const char *text, size_t size_bytes)
{
        return memchr(text, '\0', size_bytes);
}

/* Encodes or decodes the body of Metadata: one name and its value. */
static bool metadata_code(struct codec *c, struct message *m)
{
        struct metadata_entry *e = &m->metadata.entry;
        uint16_t reserved = 0;

        field_u16(c, &m->metadata.version);
        field_u16(c, &m->metadata.number);
        field_u16(c, &m->metadata.count);
        field_u16(c, &reserved);
        field_text(c, e->name, sizeof e->name);
        field_text(c, e->value, sizeof e->value);
        if (c->decode && c->r.failed)
                return true;
        return m->metadata.version > 0 && m->metadata.count <= METADATA_MAX &&
               m->metadata.number < (m->metadata.count > 0 ? m->metadata.count : 1) &&
               ends(e->name, sizeof e->name) && ends(e->value, sizeof e->value);
}

#define CHECK_BYTES_AT 28
#define ASSIGN_WITH_INFO 1u
#define ASSIGN_ANNOUNCES 2u
#define CLEAR_WITH_L1_IDS 1u
/* The 16 bits that name the sender: role, then index. */
#define SENDER_ROLE_SHIFT 12

/* Size of the fixed part, and of entries that all have the same size. */
enum {
        ASSIGN_BYTES = 32,
        UPDATE_BYTES = 40,
        CLEAR_BYTES = 24,
        INVENTORY_BYTES = 80,
        INVENTORY_ENTRY_BYTES = 16,
        REQUEST_BYTES = 8,
        DECISION_BYTES = 16,
        NUMBERS_BYTES = 32,
};

static uint64_t mix_word(uint64_t h, const uint8_t *at, size_t n)
{
        uint64_t word = 0;

        memcpy(&word, at, n);
        h = (h ^ le64toh(word)) * UINT64_C(0xD6E8FEB86659FD93);
        return h ^ h >> 32;
}

uint32_t message_check(const void *bytes, size_t n)
{
        const uint8_t *at = bytes, *end = at + n / sizeof(uint64_t) * sizeof(uint64_t);
        uint64_t h = UINT64_C(0x9E3779B97F4A7C15) ^ n;

        for (; at < end; at += sizeof h)
                h = mix_word(h, at, sizeof h);
        if (n % sizeof h > 0)
                h = mix_word(h, at, n % sizeof h);
        return (uint32_t)h;
}

void message_header_encode(const struct message_header *h, uint8_t bytes[static MESSAGE_HEADER_BYTES],
                           uint32_t check_of_payload)
{
        uint32_t sender = (uint32_t)h->sender_role << SENDER_ROLE_SHIFT | h->sender_index;
        uint32_t words[MESSAGE_HEADER_BYTES / 4] = {
                htole32(MESSAGE_MAGIC),
                htole32(MESSAGE_VERSION | sender << 16),
                htole32((uint32_t)h->cookie),
                htole32((uint32_t)(h->cookie >> 32)),
                htole32(h->type),
                htole32(h->transaction),
                htole32(h->payload_bytes),
        };

        words[7] = htole32(message_check(words, CHECK_BYTES_AT) ^ check_of_payload);
        memcpy(bytes, words, sizeof words);
}

static bool sender_is_possible(const struct message_header *h)
{
        switch (h->sender_role) {
        case ROLE_DFM:
                return h->sender_index == 0;
        case ROLE_ROS:
                return h->sender_index < EVB_ROS_MAX;
        case ROLE_SFI:
                return h->sender_index < EVB_SFI_MAX;
        case ROLE_LEVEL2:
                return true;
        }
        return false;
}

enum message_verdict message_header_decode(struct message_header *ret, const uint8_t *bytes, size_t n,
                                           uint32_t *ret_check)
{
        struct reader r = reader_init(bytes, n);
        uint16_t sender;

        if (n < 4)
                return MESSAGE_SHORT;
        if (reader_u32(&r) != MESSAGE_MAGIC)
                return MESSAGE_FOREIGN;
        if (n < MESSAGE_HEADER_BYTES)
                return MESSAGE_SHORT;
        if (reader_u16(&r) != MESSAGE_VERSION)
                return MESSAGE_OTHER_VERSION;
        sender = reader_u16(&r);
        ret->sender_role = (enum node_role)(sender >> SENDER_ROLE_SHIFT);
        ret->sender_index = sender & ((1u << SENDER_ROLE_SHIFT) - 1);
        ret->cookie = reader_u64(&r);
        ret->type = reader_u32(&r);
        ret->transaction = reader_u32(&r);
        ret->payload_bytes = reader_u32(&r);
        ret->queued_bytes = 0;
        *ret_check = reader_u32(&r) ^ message_check(bytes, CHECK_BYTES_AT);
        return sender_is_possible(ret) ? MESSAGE_OK : MESSAGE_MALFORMED;
}

static void reserved(struct codec *c, size_t n)
{
        if (c->decode) {
                reader_consume(&c->r, n);
                return;
        }
        void *zeros = writer_reserve(&c->w, n);
        if (zeros)
                memset(zeros, 0, n);
}

/* Encodes or decodes the number of entries. */
static bool count(struct codec *c, struct message *m)
{
        uint32_t n = (uint32_t)m->n;

        field_u32(c, &n);
        m->n = n;
        return n <= MESSAGE_ENTRIES_MAX;
}

/* Only events from files have a source ID and more than two event-filter words; the last two are spill and
 * flags of other events. */
static void body_info(struct codec *c, struct event_info *i)
{
        uint32_t words[ARRAY_SIZE(i->ef_info)];

        memcpy(words, i->ef_info, sizeof words);
        if (i->source_id == 0) {
                words[2] = i->spill;
                words[3] = i->flags;
        }
        field_u64(c, &i->global_id);
        field_u32(c, &i->bc_id);
        field_u32(c, &i->time_s);
        field_u32(c, &i->time_ns);
        field_u32(c, &i->run);
        field_u32(c, &i->trigger_type);
        field_u32(c, &i->l2_info);
        for (size_t k = 0; k < ARRAY_SIZE(words); k++)
                field_u32(c, &words[k]);
        field_u32(c, &i->source_id);
        field_u32(c, &i->status);
        if (!c->decode)
                return;
        i->spill = i->flags = 0;
        if (i->source_id == 0) {
                i->spill = words[2];
                i->flags = words[3];
                words[2] = words[3] = 0;
        }
        memcpy(i->ef_info, words, sizeof words);
}

static bool body_assign(struct codec *c, struct message *m)
{
        uint32_t flags = 0;

        if (!c->decode)
                flags = (m->assign.with_info ? ASSIGN_WITH_INFO : 0) |
                        (m->assign.announces ? ASSIGN_ANNOUNCES : 0);
        if (!count(c, m))
                return false;
        field_u32(c, &flags);
        m->assign.with_info = flags & ASSIGN_WITH_INFO;
        m->assign.announces = flags & ASSIGN_ANNOUNCES;
        field_u32(c, &m->assign.incarnation);
        field_u32(c, &m->assign.finished_ack);
        field_u16(c, &m->assign.sfi);
        reserved(c, 2);
        field_u32(c, &m->assign.resets);
        if (!entries_code(c, m))
                return false;
        for (size_t k = 0; k < m->n && m->assign.with_info; k++) {
                body_info(c, &m->assign.infos[k]);
                m->assign.infos[k].l1_id = m->assign.entries[k].l1_id;
        }
        return flags <= (ASSIGN_WITH_INFO | ASSIGN_ANNOUNCES);
}

static bool body_update(struct codec *c, struct message *m)
{
        field_u64(c, &m->update.incarnation);
        field_u64(c, &m->update.granted);
        field_u32(c, &m->update.assign_ack);
        field_u32(c, &m->update.first);
        if (!count(c, m))
                return false;
        reserved(c, 4);
        return entries_code(c, m);
}

static bool body_clear(struct codec *c, struct message *m)
{
        uint16_t flags = !c->decode && m->clear.with_l1_ids ? CLEAR_WITH_L1_IDS : 0;

        field_u64(c, &m->clear.oldest);
        if (!count(c, m))
                return false;
        field_u16(c, &flags);
        field_u16(c, &m->clear.resets);
        m->clear.with_l1_ids = flags & CLEAR_WITH_L1_IDS;
        return flags <= CLEAR_WITH_L1_IDS && entries_code(c, m);
}

static bool body_keep_alive(struct codec *c, struct message *m)
{
        m->n = ARRAY_SIZE(m->keep_alive.ros_live);
        field_u64(c, &m->keep_alive.oldest);
        field_u64(c, &m->keep_alive.triggers);
        field_u32(c, &m->keep_alive.state);
        field_u32(c, &m->keep_alive.clear_next);
        field_u64(c, &m->keep_alive.reset_number);
        field_u32(c, &m->keep_alive.resets);
        field_u16(c, &m->keep_alive.flags);
        field_u16(c, &m->keep_alive.metadata);
        for (size_t k = 0; k < m->n; k++)
                field_u64(c, &m->keep_alive.ros_live[k]);
        for (size_t k = 0; k < ARRAY_SIZE(m->keep_alive.sfi_live); k++)
                field_u64(c, &m->keep_alive.sfi_live[k]);
        return m->keep_alive.state >= RUN_STARTING && m->keep_alive.state <= RUN_ENDED;
}

static bool body_request(struct codec *c, struct message *m)
{
        if (!count(c, m))
                return false;
        field_u32(c, &m->request.resets);
        return entries_code(c, m);
}

static bool body_alive(struct codec *c, struct message *m)
{
        field_u64(c, &m->alive.incarnation);
        field_u64(c, &m->alive.frames);
        field_u32(c, &m->alive.state);
        field_u32(c, &m->alive.reason_ms);
        field_u16(c, &m->alive.flags);
        field_u16(c, &m->alive.reason);
        field_u32(c, &m->alive.resets);
        field_u32(c, &m->alive.room);
        field_u16(c, &m->alive.reason_node);
        field_u16(c, &m->alive.metadata);
        return m->alive.state >= RUN_STARTING && m->alive.state <= RUN_ENDED;
}

static bool body_update_ack(struct codec *c, struct message *m)
{
        field_u64(c, &m->update_ack.incarnation);
        field_u32(c, &m->update_ack.finished_ack);
        reserved(c, 4);
        return true;
}

static bool body_join(struct codec *c, struct message *m)
{
        field_u64(c, &m->join.incarnation);
        field_u64(c, &m->join.newest);
        field_u64(c, &m->join.oldest);
        field_u32(c, &m->join.run);
        field_u32(c, &m->join.flags);
        field_u32(c, &m->join.table);
        if (!count(c, m) || m->n > MESSAGE_KEYS_MAX)
                return false;
        for (size_t k = 0; k < m->n; k++)
                field_u32(c, &m->join.keys[k]);
        return m->join.newest >= m->join.oldest;
}

static bool body_welcome(struct codec *c, struct message *m)
{
        field_u64(c, &m->welcome.incarnation);
        field_u32(c, &m->welcome.run);
        field_u16(c, &m->welcome.verdict);
        field_u16(c, &m->welcome.key);
        return m->welcome.verdict < WELCOME_VERDICTS;
}

static bool body_inquiry(struct codec *c, struct message *m)
{
        field_u64(c, &m->inquiry.incarnation);
        field_u64(c, &m->inquiry.from);
        return m->inquiry.from % 64 == 0;
}

static bool body_inventory(struct codec *c, struct message *m)
{
        field_u64(c, &m->inventory.incarnation);
        field_u64(c, &m->inventory.from);
        field_u64(c, &m->inventory.end);
        field_u64(c, &m->inventory.totals.complete);
        field_u64(c, &m->inventory.totals.partial);
        field_u64(c, &m->inventory.totals.missing);
        field_u64(c, &m->inventory.totals.absent);
        field_u64(c, &m->inventory.totals.payload_bytes);
        if (!count(c, m))
                return false;
        field_u32(c, &m->inventory.flags);
        for (size_t k = 0; k < m->n; k++) {
                field_u64(c, &m->inventory.entries[k].ended);
                field_u64(c, &m->inventory.entries[k].open);
        }
        return m->inventory.from % 64 == 0 && m->inventory.from <= UINT64_MAX - 64 * MESSAGE_ENTRIES_MAX;
}

static bool body_totals(struct codec *c, struct message *m)
{
        field_u64(c, &m->totals.fragments);
        field_u32(c, &m->totals.datagrams);
        field_u32(c, &m->totals.dropped);
        return true;
}

static bool body_rate(struct codec *c, struct message *m)
{
        field_u64(c, &m->rate.lost);
        field_u32(c, &m->rate.permille);
        reserved(c, 4);
        return m->rate.permille > 0 && m->rate.permille <= 1000;
}

static bool body_switch(struct codec *c, struct message *m)
{
        field_u32(c, &m->xoff.incarnation); /* the single word of Run-2 */
        return true;
}

/* All messages from and to the DFM name its incarnation first. */
static bool names_dfm(uint32_t type)
{
        return type != MESSAGE_REQUEST && type != MESSAGE_TOTALS && type != MESSAGE_RATE &&
               type != MESSAGE_PROBE;
}

/* Encodes or decodes the body. False: a value is never valid. The cursor reports missing bytes. */
static bool body(struct codec *c, struct message *m)
{
        if (names_dfm(m->header.type))
                field_u64(c, &m->dfm);
        switch (m->header.type) {
        case MESSAGE_ASSIGN:
        case MESSAGE_BUILD:
                return body_assign(c, m);
        case MESSAGE_UPDATE:
                return body_update(c, m);
        case MESSAGE_CLEAR:
                return body_clear(c, m);
        case MESSAGE_KEEP_ALIVE:
                return body_keep_alive(c, m);
        case MESSAGE_REQUEST:
                return body_request(c, m);
        case MESSAGE_ALIVE:
                return body_alive(c, m);
        case MESSAGE_UPDATE_ACK:
                return body_update_ack(c, m);
        case MESSAGE_TOTALS:
                return body_totals(c, m);
        case MESSAGE_RATE:
                return body_rate(c, m);
        case MESSAGE_XON:
        case MESSAGE_XOFF:
                return body_switch(c, m);
        case MESSAGE_JOIN:
                return body_join(c, m);
        case MESSAGE_WELCOME:
                return body_welcome(c, m);
        case MESSAGE_INQUIRY:
                return body_inquiry(c, m);
        case MESSAGE_INVENTORY:
                return body_inventory(c, m);
        case MESSAGE_NUMBERS:
        case MESSAGE_NUMBERS_ACK:
                return numbers_code(c, m);
        case MESSAGE_METADATA:
                return metadata_code(c, m);
        case MESSAGE_PROBE:
                return probe_code(c, m);
        case MESSAGE_DECISION:
        case MESSAGE_UNDECIDED:
        case MESSAGE_DECISION_ACK:
        case MESSAGE_READOUTS:
                return decision_code(c, m);
        }
        return false;
}

static size_t fixed_bytes(uint32_t type)
{
        switch (type) {
        case MESSAGE_ASSIGN:
        case MESSAGE_BUILD:
                return MESSAGE_HEADER_BYTES + ASSIGN_BYTES;
        case MESSAGE_UPDATE:
                return MESSAGE_HEADER_BYTES + UPDATE_BYTES;
        case MESSAGE_CLEAR:
                return MESSAGE_HEADER_BYTES + CLEAR_BYTES;
        case MESSAGE_REQUEST:
                return MESSAGE_HEADER_BYTES + REQUEST_BYTES;
        case MESSAGE_INVENTORY:
                return MESSAGE_HEADER_BYTES + INVENTORY_BYTES;
        case MESSAGE_DECISION:
        case MESSAGE_UNDECIDED:
                return MESSAGE_HEADER_BYTES + DECISION_BYTES;
        case MESSAGE_NUMBERS:
                return MESSAGE_HEADER_BYTES + NUMBERS_BYTES;
        }
        return SIZE_MAX;
}

size_t message_room(uint32_t type, size_t bytes)
{
        size_t fixed = fixed_bytes(type);

        return bytes > fixed ? bytes - fixed : 0;
}

size_t message_entries_fit(uint32_t type, size_t bytes)
{
        size_t each = type == MESSAGE_INVENTORY ? INVENTORY_ENTRY_BYTES : MESSAGE_ENTRY_BYTES_MAX;

        return MIN(message_room(type, bytes) / each, (size_t)MESSAGE_ENTRIES_MAX);
}

void message_fit(struct message *m, size_t bytes)
{
        bool with_info =
                (m->header.type == MESSAGE_ASSIGN || m->header.type == MESSAGE_BUILD) && m->assign.with_info;
        size_t used = entries_fit(m, message_room(m->header.type, bytes), with_info ? MESSAGE_INFO_BYTES : 0);

        m->header.payload_bytes = (uint32_t)(fixed_bytes(m->header.type) - MESSAGE_HEADER_BYTES + used);
}

size_t message_encode(const struct message *m, uint8_t *bytes, size_t size)
{
        struct message_header header = m->header;
        struct codec c = {.w = writer_init(bytes, size)};

        writer_reserve(&c.w, MESSAGE_HEADER_BYTES);
        /* A codec that writes does not change the message, so the cast is safe. */
        if (!body(&c, (struct message *)m) || c.w.failed)
                return 0;
        size_t total = (size_t)(c.w.at - bytes);
        header.payload_bytes = (uint32_t)(total - MESSAGE_HEADER_BYTES);
        message_header_encode(&header, bytes,
                              message_check(bytes + MESSAGE_HEADER_BYTES, header.payload_bytes));
        return total;
}

size_t message_bytes(const struct message *m)
{
        uint8_t bytes[MESSAGE_HEADER_BYTES + 512 +
                      MESSAGE_ENTRIES_MAX * (MESSAGE_ENTRY_BYTES_MAX + MESSAGE_INFO_BYTES)];

        if (m->header.payload_bytes > 0)
                return MESSAGE_HEADER_BYTES + m->header.payload_bytes;
        return message_encode(m, bytes, sizeof bytes);
}

enum message_verdict message_decode(struct message *ret, const uint8_t *bytes, size_t n)
{
        uint32_t check;
        enum message_verdict v = message_header_decode(&ret->header, bytes, n, &check);

        if (v != MESSAGE_OK)
                return v;
        if (ret->header.payload_bytes > n - MESSAGE_HEADER_BYTES)
                return MESSAGE_SHORT;
        if (ret->header.payload_bytes < n - MESSAGE_HEADER_BYTES ||
            check != message_check(bytes + MESSAGE_HEADER_BYTES, ret->header.payload_bytes))
                return MESSAGE_MALFORMED;

        struct codec c = {
                .decode = true,
                .r = reader_init(bytes + MESSAGE_HEADER_BYTES, ret->header.payload_bytes),
        };
        ret->n = ret->coded_bytes = 0;
        if (!body(&c, ret) || c.r.failed || reader_left(&c.r) > 0)
                return MESSAGE_MALFORMED;
        return MESSAGE_OK;
}

const char *message_type_name(uint32_t type)
{
        switch (type) {
#define X(constant, number, name, direction)                                                                 \
        case number:                                                                                         \
                return name;
                MESSAGE_TYPES(X)
#undef X
        }
        return "unknown";
}

/* Finds messages in a byte stream. */

enum message_verdict message_decode_first(struct message *ret, const uint8_t *bytes, size_t n,
                                          size_t *ret_bytes)
{
        struct message_header h;
        uint32_t check;
        enum message_verdict v = message_header_decode(&h, bytes, n, &check);

        if (v != MESSAGE_OK)
                return v;
        if (h.payload_bytes > MESSAGE_LEVEL2_BYTES_MAX - MESSAGE_HEADER_BYTES)
                return MESSAGE_MALFORMED;
        *ret_bytes = MESSAGE_HEADER_BYTES + (size_t)h.payload_bytes;
        return n < *ret_bytes ? MESSAGE_SHORT : message_decode(ret, bytes, *ret_bytes);
}
