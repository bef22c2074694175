/* Encodes and decodes control messages, and refuses hostile bytes. */
#include "../test.h"

#include "base/random.h"
#include "protocol/message.h"

#define COOKIE UINT64_C(0x123456789ABCDEF0)

static struct message sent, got;

static const uint32_t types[] = {
        MESSAGE_UPDATE,  MESSAGE_ASSIGN,      MESSAGE_BUILD,     MESSAGE_CLEAR,        MESSAGE_KEEP_ALIVE,
        MESSAGE_REQUEST, MESSAGE_XON,         MESSAGE_XOFF,      MESSAGE_ALIVE,        MESSAGE_UPDATE_ACK,
        MESSAGE_TOTALS,  MESSAGE_JOIN,        MESSAGE_WELCOME,   MESSAGE_INQUIRY,      MESSAGE_INVENTORY,
        MESSAGE_RATE,    MESSAGE_DECISION,    MESSAGE_UNDECIDED, MESSAGE_DECISION_ACK, MESSAGE_READOUTS,
        MESSAGE_NUMBERS, MESSAGE_NUMBERS_ACK, MESSAGE_METADATA,  MESSAGE_PROBE,
};

/* The messages about membership in a run. */
static void fill_membership(struct random *r, uint32_t type, size_t n)
{
        switch (type) {
        case MESSAGE_KEEP_ALIVE:
                sent.keep_alive.state = RUN_RUNNING;
                sent.keep_alive.reset_number = random_next(r);
                sent.keep_alive.resets = (uint32_t)random_next(r);
                sent.keep_alive.flags = (uint16_t)random_next(r);
                sent.keep_alive.metadata = (uint16_t)random_next(r);
                sent.keep_alive.ros_live[3] = random_next(r);
                sent.keep_alive.sfi_live[7] = random_next(r);
                break;
        case MESSAGE_ALIVE:
                sent.alive.state = RUN_DRAINING;
                sent.alive.incarnation = random_next(r);
                sent.alive.frames = random_next(r);
                sent.alive.reason = (uint16_t)random_next(r); /* perhaps one of a later version */
                sent.alive.reason_node = (uint16_t)random_next(r);
                sent.alive.resets = (uint32_t)random_next(r);
                sent.alive.room = (uint32_t)random_next(r);
                sent.alive.metadata = (uint16_t)random_next(r);
                break;
        case MESSAGE_JOIN:
                sent.join.incarnation = random_next(r);
                sent.join.newest = 5;
                for (size_t i = 0; i < n; i++)
                        sent.join.keys[i] = (uint32_t)random_next(r);
                break;
        case MESSAGE_WELCOME:
                sent.welcome.incarnation = random_next(r);
                sent.welcome.verdict = WELCOME_OTHER_CONFIG;
                sent.welcome.key = 3;
                break;
        case MESSAGE_INQUIRY:
                sent.inquiry.from = 640;
                break;
        case MESSAGE_METADATA:
                sent.metadata.version = (uint16_t)(1 + random_below(r, UINT16_MAX));
                sent.metadata.number = 11;
                sent.metadata.count = METADATA_MAX;
                strcpy(sent.metadata.entry.name, "Shift");
                memset(sent.metadata.entry.value, 'v', METADATA_VALUE_BYTES - 1);
                break;
        case MESSAGE_PROBE:
                sent.probe.answers = true;
                sent.probe.padding_bytes = (uint32_t)n;
                break;
        case MESSAGE_RATE:
                sent.rate.lost = random_next(r);
                sent.rate.permille = 1000;
                break;
        case MESSAGE_INVENTORY:
                sent.inventory.totals.missing = random_next(r);
                sent.inventory.totals.absent = random_next(r);
                sent.inventory.flags = (uint32_t)random_next(r);
                for (size_t i = 0; i < n; i++)
                        sent.inventory.entries[i] = (struct inventory_entry){random_next(r), random_next(r)};
                break;
        }
}

static bool fill_frames(struct random *r, uint32_t type, size_t n)
{
        switch (type) {
        case MESSAGE_NUMBERS:
                sent.announced.incarnation = (uint32_t)random_next(r);
                sent.announced.resets = 3;
                sent.announced.next = (uint32_t)random_next(r);
                sent.announced.knows = sent.announced.last = true;
                for (size_t i = 0; i < n; i++)
                        sent.announced.numbers[i] = (uint32_t)random_next(r);
                return true;
        case MESSAGE_NUMBERS_ACK:
                sent.numbers_ack.incarnation = (uint32_t)random_next(r);
                sent.numbers_ack.ack = (uint32_t)random_next(r);
                sent.numbers_ack.resets = 4;
                sent.numbers_ack.go_on = true;
                return true;
        }
        return false;
}

static bool fill_level2(struct random *r, uint32_t type, size_t n)
{
        switch (type) {
        case MESSAGE_DECISION:
                for (size_t i = 0; i < n; i++)
                        sent.decision.entries[i] = (struct decision_entry){
                                random_next(r), DECISION_ACCEPT, (uint8_t)i, (uint32_t)random_next(r)};
                return true;
        case MESSAGE_UNDECIDED:
                sent.undecided.resets = (uint32_t)random_next(r);
                for (size_t i = 0; i < n; i++)
                        sent.undecided.entries[i] = (struct undecided_entry){random_next(r), random_next(r),
                                                                             random_next(r), 5, (uint32_t)i};
                return true;
        case MESSAGE_DECISION_ACK:
                sent.decision_ack.next = (uint32_t)random_next(r);
                sent.decision_ack.state = RUN_ENDED;
                sent.decision_ack.unused = 9;
                return true;
        case MESSAGE_READOUTS:
                for (size_t i = 0; i < n; i++) {
                        sent.readouts.entries[i] = (struct readout_entry){
                                (uint16_t)random_below(r, EVB_ROS_MAX), 26804, i % 2, {}};
                        for (size_t k = 0; k < 16; k++)
                                sent.readouts.entries[i].address[k] = (uint8_t)random_next(r);
                }
                return true;
        }
        return false;
}

/* A message with a value in every field. */
static size_t make(uint32_t type, size_t n, bool info, uint8_t *bytes, size_t size)
{
        struct random r;

        random_init(&r, type + n);
        memset(&sent, 0, sizeof sent);
        sent.header = (struct message_header){.cookie = COOKIE,
                                              .sender_role = ROLE_SFI,
                                              .sender_index = 3,
                                              .type = type,
                                              .transaction = 77};
        sent.n = n;
        sent.dfm = type == MESSAGE_REQUEST || type == MESSAGE_TOTALS || type == MESSAGE_RATE ||
                                   type == MESSAGE_PROBE
                           ? 0
                           : random_next(&r);
        switch (type) {
        case MESSAGE_ASSIGN:
        case MESSAGE_BUILD:
                sent.assign.with_info = info;
                sent.assign.sfi = 2;
                sent.assign.incarnation = 5;
                sent.assign.finished_ack = 6;
                sent.assign.resets = 7;
                for (size_t i = 0; i < n; i++) {
                        sent.assign.entries[i] = (struct assign_entry){
                                random_next(&r) >> 1, random_next(&r), (uint32_t)i, 77 + (uint32_t)i, 2, 0};
                        sent.assign.infos[i] = (struct event_info){
                                .global_id = random_next(&r), .l1_id = (uint32_t)i, .status = 6};
                        if (i % 2 == 0) {
                                sent.assign.infos[i].spill = 7;
                                sent.assign.infos[i].flags = 8;
                        } else {
                                sent.assign.infos[i].source_id = 9;
                                sent.assign.infos[i].ef_info[2] = 10;
                                sent.assign.infos[i].ef_info[3] = 11;
                        }
                }
                break;
        case MESSAGE_XON:
        case MESSAGE_XOFF:
                sent.xoff.incarnation = (uint32_t)random_next(&r);
                break;
        case MESSAGE_UPDATE:
                sent.update.granted = random_next(&r);
                for (size_t i = 0; i < n; i++)
                        sent.update.entries[i] = (struct finished_entry){
                                random_next(&r), random_next(&r), 7, 3, EVENT_PARTIAL, i % 2};
                break;
        case MESSAGE_CLEAR:
                sent.clear.with_l1_ids = info;
                sent.clear.resets = (uint16_t)random_next(&r);
                for (size_t i = 0; i < n; i++) {
                        sent.clear.events[i] = random_next(&r);
                        sent.clear.l1_ids[i] = info ? (uint32_t)random_next(&r) : 0;
                }
                break;
        case MESSAGE_REQUEST:
                sent.request.resets = 8;
                for (size_t i = 0; i < n; i++)
                        sent.request.entries[i] =
                                (struct request_entry){random_next(&r) >> 1, 5, 32, UINT32_MAX, 2};
                break;
        default:
                if (!fill_level2(&r, type, n) && !fill_frames(&r, type, n))
                        fill_membership(&r, type, n);
        }
        return message_encode(&sent, bytes, size);
}

/* So many that they fit whatever their values are. */
static size_t entries_of(uint32_t type, bool info)
{
        size_t fit = message_entries_fit(type, 1472);

        return info && (type == MESSAGE_ASSIGN || type == MESSAGE_BUILD)
                       ? message_room(type, 1472) / (MESSAGE_ENTRY_BYTES_MAX + MESSAGE_INFO_BYTES)
                       : fit;
}

TEST(messages_survive_encoding)
{
        uint8_t bytes[9000];

        for (size_t t = 0; t < ARRAY_SIZE(types); t++) {
                for (int info = 0; info < 2; info++) {
                        size_t fit = entries_of(types[t], info), n = make(types[t], fit, info, bytes, 1472);

                        assert_true(n > 0 && n <= 1472);
                        memset(&got, 0, sizeof got);
                        assert_int_equal(message_decode(&got, bytes, n), MESSAGE_OK);
                        got.header.payload_bytes = sent.header.payload_bytes;
                        if (types[t] == MESSAGE_KEEP_ALIVE)
                                got.n = sent.n;
                        /* Without infos, none are sent. */
                        if (types[t] == MESSAGE_ASSIGN || types[t] == MESSAGE_BUILD)
                                if (!info)
                                        memset(sent.assign.infos, 0, sizeof sent.assign.infos);
                        assert_memory_equal(&got, &sent, sizeof got);
                        assert_int_equal(message_bytes(&sent), n);
                }
        }
}

/* Wrong bytes with a right check word: refused, or decoded to something that can be encoded again. */
TEST(wrong_entries_do_no_harm)
{
        uint32_t decoded = 0, refused = 0;
        uint8_t bytes[1472], again[16384];
        struct random r;

        random_init(&r, 12);
        for (int turn = 0; turn < 40000; turn++) {
                uint32_t type = types[random_below(&r, ARRAY_SIZE(types))];
                size_t n = make(type, random_below(&r, 8), random_below(&r, 2), bytes, sizeof bytes);
                struct message_header h = sent.header;
                _cleanup_free_ uint8_t *copy;

                h.payload_bytes = (uint32_t)(n - MESSAGE_HEADER_BYTES);
                for (uint64_t k = 1 + random_below(&r, 3); k > 0; k--)
                        bytes[MESSAGE_HEADER_BYTES + random_below(&r, h.payload_bytes)] =
                                (uint8_t)random_next(&r);
                message_header_encode(&h, bytes,
                                      message_check(bytes + MESSAGE_HEADER_BYTES, h.payload_bytes));
                /* In separate memory, so that a sanitizer detects a read past the end. */
                copy = malloc(n);
                memcpy(copy, bytes, n);
                if (message_decode(&got, copy, n) == MESSAGE_OK) {
                        size_t size = message_encode(&got, again, sizeof again);

                        decoded++;
                        assert_true(size > 0);
                        assert_int_equal(message_decode(&sent, again, size), MESSAGE_OK);
                        assert_int_equal(sent.n, got.n);
                } else
                        refused++;
        }
        assert_true(decoded > 1000 && refused > 1000);
}

/* Decisions come from programs of others. The check word is right; only the value is wrong. */
static enum message_verdict decode_with(uint32_t type, size_t at, uint8_t value, size_t extra)
{
        static uint8_t bytes[MESSAGE_LEVEL2_BYTES_MAX + 1];
        size_t n = make(type, 2, false, bytes, sizeof bytes) + extra;
        struct message_header h = sent.header;

        bytes[MESSAGE_HEADER_BYTES + at] = value;
        h.payload_bytes = (uint32_t)(n - MESSAGE_HEADER_BYTES);
        message_header_encode(&h, bytes, message_check(bytes + MESSAGE_HEADER_BYTES, h.payload_bytes));
        return message_decode(&got, bytes, n);
}

TEST(impossible_decisions_are_refused)
{
        static const size_t entries_at = 8, verdict_at = 16 + 8, second_verdict_at = 32 + 8;
        static const uint32_t lists[] = {MESSAGE_DECISION, MESSAGE_UNDECIDED, MESSAGE_READOUTS};

        for (unsigned verdict = 0; verdict < 256; verdict++) {
                enum message_verdict expected = verdict == 1 || verdict == 2 ? MESSAGE_OK : MESSAGE_MALFORMED;

                assert_int_equal(decode_with(MESSAGE_DECISION, verdict_at, (uint8_t)verdict, 0), expected);
                assert_int_equal(decode_with(MESSAGE_DECISION, second_verdict_at, (uint8_t)verdict, 0),
                                 expected);
        }
        for (size_t i = 0; i < ARRAY_SIZE(lists); i++) {
                assert_int_equal(decode_with(lists[i], entries_at, 2, 0), MESSAGE_OK);
                assert_int_equal(decode_with(lists[i], entries_at, 2, 1), MESSAGE_MALFORMED);
                assert_int_equal(decode_with(lists[i], entries_at, 1, 0), MESSAGE_MALFORMED);
                assert_int_equal(decode_with(lists[i], entries_at, 3, 0), MESSAGE_MALFORMED);
                assert_int_equal(decode_with(lists[i], entries_at + 1, 1, 0), MESSAGE_MALFORMED);
                assert_int_equal(decode_with(lists[i], entries_at + 3, 255, 0), MESSAGE_MALFORMED);
        }
        assert_int_equal(decode_with(MESSAGE_DECISION_ACK, 12, 0, 0), MESSAGE_MALFORMED);
        assert_int_equal(decode_with(MESSAGE_DECISION_ACK, 12, 5, 0), MESSAGE_MALFORMED);
}

/* A request of one entry whose event is in full. */
static enum message_verdict decode_request_of(uint64_t event)
{
        uint8_t bytes[MESSAGE_HEADER_BYTES + 18] = {[MESSAGE_HEADER_BYTES] = 1};
        const struct message_header h = {.sender_role = ROLE_SFI,
                                         .type = MESSAGE_REQUEST,
                                         .payload_bytes = sizeof bytes - MESSAGE_HEADER_BYTES};
        const uint64_t le = htole64(event);

        bytes[MESSAGE_HEADER_BYTES + 8] = bytes[MESSAGE_HEADER_BYTES + 9] =
                1; /* flags follow; the event does */
        memcpy(bytes + MESSAGE_HEADER_BYTES + 10, &le, sizeof le);
        message_header_encode(&h, bytes, message_check(bytes + MESSAGE_HEADER_BYTES, h.payload_bytes));
        return message_decode(&got, bytes, sizeof bytes);
}

TEST(the_number_of_void_entries_is_no_event)
{
        assert_int_equal(decode_request_of(UINT64_C(1) << 63), MESSAGE_OK);
        assert_int_equal(got.request.entries[0].event, UINT64_C(1) << 63);
        assert_int_equal(decode_request_of(ASSIGN_VOID_EVENT), MESSAGE_MALFORMED);
}

TEST(impossible_readouts_are_refused)
{
        static const size_t first = 16, second = 16 + 24;

        /* An index of EVB_ROS_MAX or more, port 0, and a flag that nobody knows. */
        assert_int_equal(decode_with(MESSAGE_READOUTS, first + 1, EVB_ROS_MAX >> 8, 0), MESSAGE_MALFORMED);
        assert_int_equal(decode_with(MESSAGE_READOUTS, second + 1, 255, 0), MESSAGE_MALFORMED);
        assert_int_equal(decode_with(MESSAGE_READOUTS, first + 4, 1, 0), MESSAGE_OK);
        assert_int_equal(decode_with(MESSAGE_READOUTS, first + 4, 2, 0), MESSAGE_MALFORMED);
        assert_int_equal(decode_with(MESSAGE_READOUTS, first + 7, 1, 0), MESSAGE_MALFORMED);
        assert_int_equal(make(MESSAGE_READOUTS, 1, false, (uint8_t[128]){}, 128), MESSAGE_HEADER_BYTES + 40);
}

/* What an SFI writes into files ends, and the number of its names is bounded. */
TEST(impossible_metadata_are_refused)
{
        static const size_t number = 10, count = 12, value_end = 16 + 64 + 191;

        assert_int_equal(decode_with(MESSAGE_METADATA, number, 0, 0), MESSAGE_OK);
        assert_string_equal(got.metadata.entry.name, "Shift");
        assert_int_equal(strlen(got.metadata.entry.value), METADATA_VALUE_BYTES - 1);
        assert_int_equal(decode_with(MESSAGE_METADATA, number, 12, 0), MESSAGE_MALFORMED);
        assert_int_equal(decode_with(MESSAGE_METADATA, count, 13, 0), MESSAGE_MALFORMED);
        assert_int_equal(decode_with(MESSAGE_METADATA, count + 1, 1, 0), MESSAGE_MALFORMED);
        assert_int_equal(decode_with(MESSAGE_METADATA, count, 0, 0), MESSAGE_MALFORMED);
        assert_int_equal(decode_with(MESSAGE_METADATA, value_end, 'v', 0), MESSAGE_MALFORMED);
        assert_int_equal(decode_with(MESSAGE_METADATA, number, 0, 1), MESSAGE_MALFORMED);
        assert_int_equal(make(MESSAGE_METADATA, 0, false, (uint8_t[512]){}, 512), MESSAGE_HEADER_BYTES + 272);
}

TEST(a_full_list_fits)
{
        static uint8_t bytes[MESSAGE_LEVEL2_BYTES_MAX];

        assert_int_equal(make(MESSAGE_UNDECIDED, MESSAGE_ENTRIES_MAX, false, bytes, sizeof bytes),
                         sizeof bytes);
        assert_true(make(MESSAGE_DECISION, MESSAGE_ENTRIES_MAX, false, bytes, sizeof bytes) > 0);
        assert_int_equal(message_decode(&got, bytes, MESSAGE_HEADER_BYTES + 16 + MESSAGE_ENTRIES_MAX * 16),
                         MESSAGE_OK);
        assert_int_equal(got.n, MESSAGE_ENTRIES_MAX);
}

TEST(flipped_bits_and_truncations_are_refused)
{
        uint8_t bytes[1472], *copy;

        for (size_t t = 0; t < ARRAY_SIZE(types); t++) {
                size_t n = make(types[t], 3, true, bytes, sizeof bytes);

                for (size_t i = 0; i < n; i++) {
                        /* In separate memory, so that a sanitizer detects a read past the end. */
                        copy = malloc(MAX(i, (size_t)1));
                        memcpy(copy, bytes, i);
                        assert_int_not_equal(message_decode(&got, copy, i), MESSAGE_OK);
                        free(copy);
                        for (int bit = 0; bit < 8; bit++) {
                                bytes[i] ^= (uint8_t)(1 << bit);
                                assert_int_not_equal(message_decode(&got, bytes, n), MESSAGE_OK);
                                bytes[i] ^= (uint8_t)(1 << bit);
                        }
                }
                assert_int_equal(message_decode(&got, bytes, n), MESSAGE_OK);
        }
}

TEST(foreign_messages_are_distinguished)
{
        uint8_t bytes[1472];
        size_t n = make(MESSAGE_ALIVE, 0, false, bytes, sizeof bytes);

        assert_int_equal(
                message_decode(&got, (const uint8_t *)"GET / HTTP/1.1\r\n\r\nHost: x\r\n\r\n\r\n\r\n", 33),
                MESSAGE_FOREIGN);
        assert_int_equal(message_decode(&got, bytes, 3), MESSAGE_SHORT);
        assert_int_equal(message_decode(&got, bytes, 20), MESSAGE_SHORT);
        bytes[4] = 1;
        assert_int_equal(message_decode(&got, bytes, n), MESSAGE_OTHER_VERSION);
        assert_string_equal(message_type_name(MESSAGE_CLEAR), "Clear");
        assert_string_equal(message_type_name(5), "unknown");
}
