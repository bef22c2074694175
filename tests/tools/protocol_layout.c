/* Prints each kind of message as JSON: its bytes and the value of every field. test_protocol_doc.py compares
 * them with docs/protocol.md. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/util.h"
#include "protocol/trigger_packet.h"
#include "protocol/chunk.h"
#include "protocol/message.h"
#include "protocol_layout.h"

static void assign(void)
{
        begin("Assign", MESSAGE_ASSIGN);
        blank(MESSAGE_ASSIGN, 1)->assign.with_info = true;
        m.assign.announces = true;
        dfm();
        entries(4);
        field("flags", 3, 4);
        SET(m.assign, incarnation, 0x43444546);
        SET(m.assign, finished_ack, 0x35363738);
        SET(m.assign, sfi, 0x0141);
        SET(m.assign, resets, 0x47484950);
        part_now = "Event information";
        SET(m.assign.infos[0], global_id, 0x5152535455565758);
        SET(m.assign.infos[0], bc_id, 0x61626364);
        SET(m.assign.infos[0], time_s, 0x65666768);
        SET(m.assign.infos[0], time_ns, 0x71727374);
        SET(m.assign.infos[0], run, 0x75767778);
        SET(m.assign.infos[0], trigger_type, 0x81828384);
        SET(m.assign.infos[0], l2_info, 0x85868788);
        m.assign.infos[0].ef_info[0] = 0x91929394;
        field("ef_info", 0x91929394, 16);
        SET(m.assign.infos[0], source_id, 0xa1a2a3a4);
        SET(m.assign.infos[0], status, 0xa5a6a7a8);
        end_message(&m);
}

static void update(void)
{
        begin_dfm("Update", MESSAGE_UPDATE, 0);
        SET(m.update, incarnation, 0x3132333435363738);
        SET(m.update, granted, 0x1112131415161718);
        SET(m.update, assign_ack, 0x21222324);
        SET(m.update, first, 0x25262728);
        entries(4);
        end_message(&m);
}

static void request(void)
{
        begin("Request", MESSAGE_REQUEST);
        blank(MESSAGE_REQUEST, 0);
        entries(4);
        SET(m.request, resets, 0x37383940);
        end_message(&m);
}

static void clear_and_keep_alive(void)
{
        begin_dfm("Clear", MESSAGE_CLEAR, 0);
        SET(m.clear, oldest, 0x1112131415161718);
        entries(4);
        m.clear.with_l1_ids = true;
        field("flags", 1, 2);
        SET(m.clear, resets, 0x4950);
        end_message(&m);

        begin_dfm("KeepAlive", MESSAGE_KEEP_ALIVE, 0);
        SET(m.keep_alive, oldest, 0x1112131415161718);
        SET(m.keep_alive, triggers, 0x2122232425262728);
        SET(m.keep_alive, state, RUN_DRAINING);
        SET(m.keep_alive, clear_next, 0x31323334);
        SET(m.keep_alive, reset_number, 0x6162636465666768);
        SET(m.keep_alive, resets, 0x71727374);
        SET(m.keep_alive, flags, 0x0102);
        SET(m.keep_alive, metadata, 0x0304);
        m.keep_alive.ros_live[0] = 0x4142434445464748;
        field("ros_live", m.keep_alive.ros_live[0], sizeof m.keep_alive.ros_live);
        m.keep_alive.sfi_live[0] = 0x5152535455565758;
        field("sfi_live", m.keep_alive.sfi_live[0], sizeof m.keep_alive.sfi_live);
        end_message(&m);
}

static void metadata(void)
{
        begin_dfm("Metadata", MESSAGE_METADATA, 0);
        SET(m.metadata, version, 0x1112);
        SET(m.metadata, number, 0x0003);
        SET(m.metadata, count, 0x0005);
        text("name", m.metadata.entry.name, sizeof m.metadata.entry.name);
        text("value", m.metadata.entry.value, sizeof m.metadata.entry.value);
        end_message(&m);
}

static void level2(void)
{
        begin_dfm("Decision", MESSAGE_DECISION, 1);
        entries(4);
        part_now = "Entry";
        SET(m.decision.entries[0], event, 0x1112131415161718);
        SET(m.decision.entries[0], verdict, DECISION_REJECT);
        SET(m.decision.entries[0], stream, 0x21);
        SET(m.decision.entries[0], l2_info, 0x31323334);
        end_message(&m);

        begin_dfm("Undecided", MESSAGE_UNDECIDED, 1);
        entries(4);
        SET(m.undecided, resets, 0x45464748);
        part_now = "Entry";
        SET(m.undecided.entries[0], event, 0x1112131415161718);
        SET(m.undecided.entries[0], number, 0x2122232425262728);
        SET(m.undecided.entries[0], time_ns, 0x3132333435363738);
        SET(m.undecided.entries[0], type, 0x41424344);
        SET(m.undecided.entries[0], flags, 0x51525354);
        end_message(&m);

        begin_dfm("DecisionAck", MESSAGE_DECISION_ACK, 0);
        SET(m.decision_ack, next, 0x11121314);
        SET(m.decision_ack, state, RUN_ENDED);
        SET(m.decision_ack, unused, 0x21222324);
        end_message(&m);

        begin_dfm("Readouts", MESSAGE_READOUTS, 1);
        entries(4);
        part_now = "Entry";
        SET(m.readouts.entries[0], index, 0x0112);
        SET(m.readouts.entries[0], port, 0x2122);
        SET(m.readouts.entries[0], flags, READOUT_PRESENT);
        memcpy(m.readouts.entries[0].address, (const uint8_t[]){0x34, 0x33, 0x32, 0x31}, 4);
        field("address", 0x31323334, 16);
        end_message(&m);
}

static void small_ones(void)
{
        begin_dfm("Alive", MESSAGE_ALIVE, 0);
        SET(m.alive, incarnation, 0x1112131415161718);
        SET(m.alive, frames, 0x2122232425262728);
        SET(m.alive, state, RUN_ENDED);
        SET(m.alive, reason_ms, 0x31323334);
        SET(m.alive, flags, 0x4142);
        SET(m.alive, reason, REASON_SLOW_OUTPUT);
        SET(m.alive, resets, 0x51525354);
        SET(m.alive, room, 0x61626364);
        SET(m.alive, reason_node, 0x7172);
        SET(m.alive, metadata, 0x6768);
        end_message(&m);

        begin_dfm("UpdateAck", MESSAGE_UPDATE_ACK, 0);
        SET(m.update_ack, incarnation, 0x2122232425262728);
        SET(m.update_ack, finished_ack, 0x11121314);
        end_message(&m);

        begin("Totals", MESSAGE_TOTALS);
        blank(MESSAGE_TOTALS, 0);
        SET(m.totals, fragments, 0x1112131415161718);
        SET(m.totals, datagrams, 0x21222324);
        SET(m.totals, dropped, 0x31323334);
        end_message(&m);

        begin("Rate", MESSAGE_RATE);
        blank(MESSAGE_RATE, 0);
        SET(m.rate, lost, 0x1112131415161718);
        SET(m.rate, permille, 0x0123);
        end_message(&m);

        begin_dfm("XON", MESSAGE_XON, 0);
        SET(m.xoff, incarnation, 0x11121314);
        end_message(&m);
}

static void announcements(void)
{
        begin("Probe", MESSAGE_PROBE);
        blank(MESSAGE_PROBE, 0)->probe.answers = true;
        field("flags", 1, 4);
        SET(m.probe, padding_bytes, 0);
        end_message(&m);

        begin_dfm("Numbers", MESSAGE_NUMBERS, 0);
        SET(m.announced, incarnation, 0x11121314);
        SET(m.announced, resets, 0x21222324);
        SET(m.announced, next, 0x31323334);
        m.announced.knows = true;
        field("flags", 1, 4);
        entries(4);
        end_message(&m);

        begin_dfm("NumbersAck", MESSAGE_NUMBERS_ACK, 0);
        SET(m.numbers_ack, incarnation, 0x11121314);
        SET(m.numbers_ack, ack, 0x21222324);
        SET(m.numbers_ack, resets, 0x31323334);
        m.numbers_ack.go_on = true;
        field("flags", 1, 4);
        end_message(&m);
}

static void joining(void)
{
        begin_dfm("Join", MESSAGE_JOIN, 1);
        SET(m.join, incarnation, 0x1112131415161718);
        SET(m.join, newest, 0x3122232425262728);
        SET(m.join, oldest, 0x2122232425262728);
        SET(m.join, run, 0x31323334);
        SET(m.join, flags, 0x41424344);
        SET(m.join, table, 0x51525354);
        entries(4);
        m.join.keys[0] = 0x61626364;
        field("keys", m.join.keys[0], 4);
        end_message(&m);

        begin_dfm("Welcome", MESSAGE_WELCOME, 0);
        SET(m.welcome, incarnation, 0x1112131415161718);
        SET(m.welcome, run, 0x31323334);
        SET(m.welcome, verdict, WELCOME_TWICE);
        SET(m.welcome, key, 0x4142);
        end_message(&m);

        begin_dfm("Inquiry", MESSAGE_INQUIRY, 0);
        SET(m.inquiry, incarnation, 0x1112131415161718);
        SET(m.inquiry, from, 0x2122232425262740);
        end_message(&m);

        begin_dfm("Inventory", MESSAGE_INVENTORY, 1);
        SET(m.inventory, incarnation, 0x1112131415161718);
        SET(m.inventory, from, 0x2122232425262740);
        SET(m.inventory, end, 0x3122232425262740);
        SET(m.inventory.totals, complete, 0x4142434445464748);
        SET(m.inventory.totals, partial, 0x5152535455565758);
        SET(m.inventory.totals, missing, 0x6162636465666768);
        SET(m.inventory.totals, absent, 0xa1a2a3a4a5a6a7a8);
        SET(m.inventory.totals, payload_bytes, 0x7172737475767778);
        SET(m.inventory, flags, 0x01020304);
        entries(4);
        part_now = "Entry";
        SET(m.inventory.entries[0], ended, 0x8182838485868788);
        SET(m.inventory.entries[0], open, 0x9192939495969798);
        end_message(&m);
}

static void chunk(const struct chunk *c, bool first)
{
        printf("%s{\"event\": %llu, \"l1_id\": %u, \"fragment_bytes\": %u, \"offset\": %u, \"length\": %u, "
               "\"order\": %u, \"form\": %u, \"status\": %u}",
               first ? "" : ", ", (unsigned long long)c->event, c->l1_id, c->fragment_bytes, c->offset,
               c->length, c->order, c->form, c->status);
}

/* A message with every field of an entry; the document's description alone must suffice to read it. */
static void fragments(void)
{
        static const struct chunk chunks[] = {
                {.event = 0x1112131415161718,
                 .l1_id = 0x21222324,
                 .fragment_bytes = 14336,
                 .order = 5,
                 .offset = 32 * 200,
                 .length = 14336 - 32 * 200},
                {.event = 0x1112131415161719,
                 .l1_id = 0x21222325,
                 .fragment_bytes = 14336,
                 .order = 5,
                 .length = 14336},
                {.event = 0x1112131415161719 + 7,
                 .l1_id = 0x21222325 + 7,
                 .fragment_bytes = 300,
                 .order = 5,
                 .length = 300},
                {.event = 0x1112131415161719 + 14,
                 .l1_id = 17,
                 .fragment_bytes = 300,
                 .order = 0x4142,
                 .length = 300,
                 .form = 1,
                 .status = 5},
                {.event = 3, .l1_id = 17, .order = 0x4142, .form = 0, .status = 3},
                {.event = 4,
                 .l1_id = 0xFFFFFFFF,
                 .order = 5,
                 .fragment_bytes = 1 << 22,
                 .offset = 1 << 20,
                 .length = 1 << 14},
        };
        uint8_t bytes[1024];
        struct message_header h = blank(MESSAGE_FRAGMENTS, 0)->header;
        struct chunk_context k = chunk_context_begin(5);
        size_t n = FRAGMENTS_HEADER_BYTES, entry = n;

        h.sender_role = ROLE_ROS;
        h.queued_bytes = 0x41424344;
        for (size_t i = 0; i < ARRAY_SIZE(chunks); i++) {
                entry = n;
                n += chunk_encode(&k, &chunks[i], bytes + n);
        }
        bytes[entry] |= CHUNK_IS_LAST;
        fragments_header_encode(&h, bytes, n - FRAGMENTS_HEADER_BYTES);
        begin("Fragments", MESSAGE_FRAGMENTS);
        field("magic", FRAGMENTS_MAGIC, 1);
        field("version", MESSAGE_VERSION, 1);
        field("sender", ROLE_ROS << 12 | 5, 2);
        field("cookie", (uint32_t)h.cookie, 4);
        field("transaction", h.transaction, 4);
        field("queued", h.queued_bytes, 4);
        field("check",
              message_check(bytes, 16) ^ (uint32_t)(h.cookie >> 32) ^
                      message_check(bytes + FRAGMENTS_HEADER_BYTES, n - FRAGMENTS_HEADER_BYTES),
              4);
        end(bytes, n);
        printf("},\n\"chunks\": [");
        for (size_t i = 0; i < ARRAY_SIZE(chunks); i++)
                chunk(&chunks[i], i == 0);
        printf("],\n\"flags\": {");
#define X(constant, value, name) printf("%s\"%s\": %u", value == 1 ? "" : ", ", name, constant);
        CHUNK_FLAGS(X)
#undef X
}

/* ---- Compact entries ---- */

static const char *separator;

static void begin_compact(const char *name, uint32_t type, size_t n)
{
        printf("%s{\"name\": \"%s\", ", separator, name);
        separator = ",\n";
        blank(type, n);
}

static void end_compact(void)
{
        uint8_t bytes[4096];
        size_t n = message_encode(&m, bytes, sizeof bytes);

        printf("\"bytes\": \"");
        for (size_t i = 0; i < n; i++)
                printf("%02x", bytes[i]);
        printf("\", \"entries\": [");
}

#define EACH(format, ...)                                                                                    \
        do {                                                                                                 \
                end_compact();                                                                               \
                for (size_t k = 0; k < m.n; k++)                                                             \
                        printf("%s[" format "]", k ? ", " : "", __VA_ARGS__);                                \
                printf("]}");                                                                                \
        } while (0)

static const uint64_t event_samples[] = {1000, 1001, ASSIGN_VOID_EVENT, 1004, 1003, 0xE000000000000000, 7};

static void compact_assign(bool announces)
{
        struct assign_entry *e = m.assign.entries;

        begin_compact(announces ? "announcement" : "Assign", MESSAGE_ASSIGN, ARRAY_SIZE(event_samples));
        m.assign.announces = announces;
        m.assign.sfi = 3;
        for (size_t k = 0; k < m.n; k++) {
                bool is_void = event_samples[k] == ASSIGN_VOID_EVENT;

                e[k] = (struct assign_entry){
                        .event = event_samples[k],
                        .flags = is_void ? ASSIGN_VOID : 0,
                        .l1_id = is_void ? 0
                                 : k < 4 ? (uint32_t)event_samples[k]
                                         : 0xFFFFFFFF - (uint32_t)k,
                        .sequence = announces ? 0 : m.header.transaction + (uint32_t)k,
                        .sfi = announces ? (uint16_t)(k * 40) : 3,
                        .time_ns = announces || is_void ? 0 : 1700000000000000000 + k * k * 977 - k * 300000,
                };
        }
        EACH("%llu, %u, %u, %u, %llu", (unsigned long long)e[k].event, e[k].l1_id, e[k].sequence, e[k].sfi,
             (unsigned long long)e[k].time_ns);
}

static void compact_others(void)
{
        struct finished_entry *f = m.update.entries;
        struct request_entry *q = m.request.entries;

        begin_compact("Update", MESSAGE_UPDATE, ARRAY_SIZE(event_samples));
        for (size_t k = 0; k < m.n; k++)
                f[k] = (struct finished_entry){.event = event_samples[k],
                                               .end = (uint32_t)(k % 4),
                                               .missing = k == 2 ? 600 : 0,
                                               .absent = k == 2 || k == 3 ? 5 : 0,
                                               .unanswered = k == 2,
                                               .payload_bytes = k < 2 ? 6144 + k : 0};
        EACH("%llu, %u, %u, %u, %u, %llu", (unsigned long long)f[k].event, f[k].end, f[k].unanswered,
             f[k].missing, f[k].absent, (unsigned long long)f[k].payload_bytes);

        begin_compact("Request", MESSAGE_REQUEST, 4);
        for (size_t k = 0; k < m.n; k++)
                q[k] = (struct request_entry){.event = event_samples[k + 3],
                                              .l1_id = k < 2 ? (uint32_t)event_samples[k + 3] : 9,
                                              .from_bytes = k % 2 ? 320 : 0,
                                              .to_bytes = k % 2 ? 100000 : UINT32_MAX,
                                              .again = k == 3 ? 1000 : 0};
        EACH("%llu, %u, %u, %u, %u", (unsigned long long)q[k].event, q[k].l1_id, q[k].from_bytes,
             q[k].to_bytes, q[k].again);

        begin_compact("Clear", MESSAGE_CLEAR, 5);
        m.clear.oldest = 990;
        for (size_t k = 0; k < m.n; k++)
                m.clear.events[k] = event_samples[k];
        EACH("%llu", (unsigned long long)m.clear.events[k]);

        begin_compact("ClearById", MESSAGE_CLEAR, 5);
        m.clear.oldest = 990;
        m.clear.with_l1_ids = true;
        for (size_t k = 0; k < m.n; k++) {
                m.clear.events[k] = event_samples[k];
                m.clear.l1_ids[k] = k < 3 ? (uint32_t)(70 + k) : 0xFFFFFFFF - (uint32_t)k;
        }
        EACH("%llu, %u", (unsigned long long)m.clear.events[k], m.clear.l1_ids[k]);

        begin_compact("Numbers", MESSAGE_NUMBERS, 5);
        for (size_t k = 0; k < m.n; k++)
                m.announced.numbers[k] = k < 3 ? (uint32_t)(70 + k) : 0xFFFFFFFF - (uint32_t)(4 - k);
        EACH("%u", m.announced.numbers[k]);
}

/* ---- Datagrams to and from a trigger box ---- */

/* Decoded from counting bytes, where they are free. */
static void trigger_packet(void)
{
        static const uint8_t fixed[] = {'E', 'V', 'B', 'T', TRIGGER_PACKET_VERSION, 0, 1, 0};
        uint8_t bytes[TRIGGER_PACKET_HEADER_BYTES + TRIGGER_ENTRY_BYTES] = {0};
        struct trigger_packet p = {0};
        struct trigger_entry e;

        for (size_t i = 0; i < sizeof bytes; i++)
                bytes[i] = (uint8_t)(0x81 + i);
        memcpy(bytes, fixed, sizeof fixed);
        memset(bytes + sizeof bytes - 4, 0, 4);
        bytes[sizeof bytes - 4] = TRIGGER_FLAGS;
        if (trigger_packet_decode(&p, bytes, sizeof bytes) != TRIGGER_PACKET_OK)
                exit(1);
        e = trigger_packet_entry(&p, 0);
        begin("Triggers from outside", 0);
        field("magic", UINT32_C(0x54425645), 4);
        field("version", TRIGGER_PACKET_VERSION, 2);
        field("entries", p.n, 2);
        field("sequence", p.sequence, 4);
        field("run", p.run, 4);
        part_now = "Entry";
        field("number", e.number, 8);
        field("time_ns", e.time_ns, 8);
        field("type", e.type, 4);
        field("flags", e.flags, 4);
        end(bytes, sizeof bytes);
}

static void busy_packet(void)
{
        struct busy_packet p = {true, BUSY_STOPPED, UINT64_C(0x1112131415161718)};
        uint8_t bytes[BUSY_PACKET_BYTES];

        busy_packet_encode(&p, bytes);
        begin("Busy", 0);
        field("magic", UINT32_C(0x42425645), 4);
        field("state", 1, 1);
        field("reason", BUSY_STOPPED, 1);
        field("last", p.last, 8);
        end(bytes, sizeof bytes);
}

int main(void)
{
        printf("{\"types\": [");
#define X(constant, number, name, direction)                                                                 \
        printf("%s[%u, \"%s\"]", number == MESSAGE_UPDATE ? "" : ", ", number, name);
        MESSAGE_TYPES(X)
#undef X
        printf("],\n\"messages\": {");
        assign();
        update();
        request();
        clear_and_keep_alive();
        small_ones();
        level2();
        metadata();
        announcements();
        joining();
        fragments();
        printf("},\n\"packets\": {");
        n_fields = 0;
        trigger_packet();
        busy_packet();
        printf("},\n\"compact\": [");
        separator = "";
        compact_assign(false);
        compact_assign(true);
        compact_others();
        printf("]}\n");
        return 0;
}
