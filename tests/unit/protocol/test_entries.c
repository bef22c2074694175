/* Compact entries: fitted into messages of any size, and encoded when they are. */
#include "../test.h"

#include "base/random.h"
#include "protocol/message.h"

#define ROOM_BYTES 65536

static struct message sent, again;

static const uint32_t types[] = {MESSAGE_UPDATE, MESSAGE_ASSIGN,  MESSAGE_BUILD,
                                 MESSAGE_CLEAR,  MESSAGE_REQUEST, MESSAGE_NUMBERS};

static void fill_entry(struct random *r, struct message *m, size_t k, uint64_t event)
{
        bool is_void = random_below(r, 10) == 0;
        uint32_t l1_id = random_below(r, 10) ? (uint32_t)event : (uint32_t)random_next(r);

        switch (m->header.type) {
        case MESSAGE_ASSIGN:
        case MESSAGE_BUILD:
                m->assign.entries[k] =
                        (struct assign_entry){.event = is_void ? ASSIGN_VOID_EVENT : event,
                                              .flags = is_void ? ASSIGN_VOID : 0,
                                              .l1_id = l1_id,
                                              .time_ns = 1000 * event,
                                              .sfi = m->assign.announces ? (uint16_t)(k % 200) : 0};
                m->assign.infos[k] = (struct event_info){.global_id = event};
                return;
        case MESSAGE_UPDATE:
                m->update.entries[k] = (struct finished_entry){event, random_below(r, 5000), is_void ? 3 : 0,
                                                               0,     EVENT_PARTIAL,         is_void};
                return;
        case MESSAGE_CLEAR:
                m->clear.events[k] = event;
                m->clear.l1_ids[k] = l1_id;
                return;
        case MESSAGE_REQUEST:
                m->request.entries[k] =
                        (struct request_entry){event, l1_id, is_void ? 32 : 0, UINT32_MAX, is_void};
                return;
        case MESSAGE_NUMBERS:
                m->announced.numbers[k] = l1_id;
                return;
        }
        fail();
}

/* `sent` becomes a message of random entries, most of which follow each other. Entries that were encoded
 * before stay in its memory. */
static void fill(struct random *r, uint32_t type, size_t n)
{
        uint64_t event = random_below(r, UINT32_MAX);

        memset(&sent, 0, offsetof(struct message, coded_bytes));
        sent.header = (struct message_header){.cookie = 7, .sender_role = ROLE_DFM, .type = type};
        sent.dfm = 1;
        sent.n = n;
        if (type == MESSAGE_CLEAR) {
                sent.clear.oldest = event;
                sent.clear.with_l1_ids = random_below(r, 2);
        } else if (type == MESSAGE_ASSIGN || type == MESSAGE_BUILD) {
                sent.assign.with_info = random_below(r, 2);
                sent.assign.announces = random_below(r, 2);
        }
        for (size_t k = 0; k < n; k++) {
                event += random_below(r, 5) ? 1 : random_below(r, 1u << random_below(r, 32));
                fill_entry(r, &sent, k, event);
        }
}

TEST(consecutive_events_take_few_bytes)
{
        size_t bytes;

        memset(&sent, 0, sizeof sent);
        sent.header = (struct message_header){.sender_role = ROLE_DFM, .type = MESSAGE_ASSIGN};
        for (; sent.n < MESSAGE_ENTRIES_MAX; sent.n++)
                sent.assign.entries[sent.n] = (struct assign_entry){.event = 1000000 + 3 * sent.n,
                                                                    .l1_id = 1000000 + 3 * (uint32_t)sent.n,
                                                                    .time_ns = 5000 * sent.n};
        message_fit(&sent, 1472);
        assert_int_equal(sent.n, MESSAGE_ENTRIES_MAX);
        /* One byte for the event and two for its time; a few more for the first. */
        bytes = message_bytes(&sent) - MESSAGE_HEADER_BYTES - 32;
        assert_in_range(bytes, 256 * 3, 256 * 3 + 10);
}

/* Fitted or not, a message has the same bytes; and what was fitted has no effect on the next message in the
 * same memory, made or received. */
TEST(fitted_entries_are_encoded_alike)
{
        static uint8_t plain[ROOM_BYTES], fitted[ROOM_BYTES], other[ROOM_BYTES];
        struct random r;

        random_init(&r, 31);
        for (int round = 0; round < 3000; round++) {
                uint32_t type = types[random_below(&r, ARRAY_SIZE(types))];
                size_t n = random_below(&r, MESSAGE_ENTRIES_MAX + 1), bytes, other_bytes;

                fill(&r, type, n);
                bytes = message_encode(&sent, plain, sizeof plain);
                assert_true(bytes > 0);
                message_fit(&sent, bytes);
                assert_int_equal(sent.n, n);
                assert_int_equal(message_bytes(&sent), bytes);
                assert_int_equal(message_encode(&sent, fitted, sizeof fitted), bytes);
                assert_memory_equal(fitted, plain, bytes);
                assert_int_equal(message_encode(&sent, fitted, bytes - 1), 0);

                again.coded_bytes = 0;
                fill(&r, type, random_below(&r, MESSAGE_ENTRIES_MAX + 1));
                memcpy(&again, &sent, offsetof(struct message, coded_bytes));
                other_bytes = message_encode(&again, other, sizeof other);
                assert_int_equal(message_encode(&sent, fitted, sizeof fitted), other_bytes);
                assert_memory_equal(fitted, other, other_bytes);
                message_fit(&sent, sizeof other);
                assert_int_equal(message_decode(&sent, plain, bytes), MESSAGE_OK);
                assert_int_equal(message_encode(&sent, fitted, sizeof fitted), bytes);
                assert_memory_equal(fitted, plain, bytes);
        }
}

TEST(as_many_entries_are_taken_as_fit)
{
        static uint8_t bytes[ROOM_BYTES];
        struct random r;

        random_init(&r, 37);
        for (int round = 0; round < 3000; round++) {
                size_t n = 1 + random_below(&r, MESSAGE_ENTRIES_MAX), least, most, size;

                fill(&r, types[random_below(&r, ARRAY_SIZE(types))], n);
                most = message_encode(&sent, bytes, sizeof bytes);
                sent.n = 0;
                least = message_encode(&sent, bytes, sizeof bytes);
                sent.n = n;
                size = least + random_below(&r, most - least);
                message_fit(&sent, size);
                assert_true(sent.n < n);
                assert_in_range(message_encode(&sent, bytes, size), least, size);
                sent.n++;
                sent.header.payload_bytes = 0;
                assert_int_equal(message_encode(&sent, bytes, size), 0);
        }
}

TEST(a_wrong_entry_is_not_sent)
{
        uint8_t bytes[1472];
        struct random r;

        random_init(&r, 41);
        for (size_t wrong = 0; wrong < 3; wrong++) {
                fill(&r, MESSAGE_REQUEST, 3);
                sent.request.entries[wrong].from_bytes = 1; /* no multiple of a block */
                message_fit(&sent, sizeof bytes);
                assert_int_equal(message_encode(&sent, bytes, sizeof bytes), 0);
        }
}
