/* Encodes and decodes messages and data datagrams, and refuses hostile bytes. */
#include "../test.h"

#include "evb/base/random.h"
#include "evb/base/util.h"
#include "evb/protocol/chunk.h"
#include "evb/protocol/message.h"

#define COOKIE UINT64_C(0x123456789ABCDEF0)
#define FRAGMENTS 40

static struct message sent, got;

static const uint32_t types[] = {
        MESSAGE_UPDATE,     MESSAGE_ASSIGN,     MESSAGE_BUILD,     MESSAGE_CLEAR,
        MESSAGE_KEEP_ALIVE, MESSAGE_REQUEST,    MESSAGE_XON,       MESSAGE_XOFF,
        MESSAGE_ALIVE,      MESSAGE_UPDATE_ACK, MESSAGE_TOTALS,    MESSAGE_JOIN,
        MESSAGE_WELCOME,    MESSAGE_INQUIRY,    MESSAGE_INVENTORY, MESSAGE_RATE,
};

/* The messages about membership in a run. */
static void fill_membership(struct random *r, uint32_t type, size_t n)
{
        switch (type) {
        case MESSAGE_KEEP_ALIVE:
                sent.keep_alive.state = RUN_RUNNING;
                sent.keep_alive.ros_live[3] = random_next(r);
                sent.keep_alive.sfi_live[7] = random_next(r);
                break;
        case MESSAGE_ALIVE:
                sent.alive.state = RUN_DRAINING;
                sent.alive.incarnation = random_next(r);
                sent.alive.frames = random_next(r);
                sent.alive.reason = REASON_BUFFER_FULL;
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
        case MESSAGE_RATE:
                sent.rate.lost = random_next(r);
                sent.rate.permille = 1000;
                break;
        case MESSAGE_INVENTORY:
                sent.inventory.totals.missing = random_next(r);
                for (size_t i = 0; i < n; i++)
                        sent.inventory.entries[i] = (struct inventory_entry){random_next(r), random_next(r)};
                break;
        }
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
        sent.dfm = type == MESSAGE_REQUEST || type == MESSAGE_TOTALS || type == MESSAGE_RATE
                           ? 0
                           : random_next(&r);
        switch (type) {
        case MESSAGE_ASSIGN:
        case MESSAGE_BUILD:
                sent.assign.with_info = info;
                for (size_t i = 0; i < n; i++) {
                        sent.assign.entries[i] = (struct assign_entry){
                                random_next(&r) >> 1, random_next(&r), (uint32_t)i, 9, 2, 1, 5};
                        sent.assign.infos[i] = (struct event_info){
                                .global_id = random_next(&r), .l1_id = (uint32_t)i, .status = 6};
                }
                break;
        case MESSAGE_XON:
        case MESSAGE_XOFF:
                sent.xoff.incarnation = (uint32_t)random_next(&r);
                break;
        case MESSAGE_UPDATE:
                sent.update.granted = random_next(&r);
                for (size_t i = 0; i < n; i++)
                        sent.update.entries[i] =
                                (struct finished_entry){random_next(&r), random_next(&r), 7, EVENT_PARTIAL};
                break;
        case MESSAGE_CLEAR:
                for (size_t i = 0; i < n; i++)
                        sent.clear.events[i] = random_next(&r);
                break;
        case MESSAGE_REQUEST:
                for (size_t i = 0; i < n; i++)
                        sent.request.entries[i] =
                                (struct request_entry){random_next(&r) >> 1, 5, 32, UINT32_MAX, 2};
                break;
        default:
                fill_membership(&r, type, n);
        }
        return message_encode(&sent, bytes, size);
}

static void messages_survive_encoding(void **state)
{
        uint8_t bytes[9000];

        (void)state;
        for (size_t t = 0; t < ARRAY_SIZE(types); t++) {
                for (int info = 0; info < 2; info++) {
                        size_t fit = message_entries_fit(types[t], info, 1472),
                               n = make(types[t], fit, info, bytes, 1472);

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
                        if (fit > 0)
                                assert_int_equal(make(types[t], fit + 1, info, bytes, 1472), 0);
                }
        }
}

static void flipped_bits_and_truncations_are_refused(void **state)
{
        uint8_t bytes[1472], *copy;

        (void)state;
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

static void foreign_messages_are_distinguished(void **state)
{
        uint8_t bytes[1472];
        size_t n = make(MESSAGE_ALIVE, 0, false, bytes, sizeof bytes);

        (void)state;
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

/* ---- Data datagrams ---- */

static uint8_t *payload[FRAGMENTS];
static struct chunk_job jobs[FRAGMENTS];

static void make_jobs(uint64_t seed)
{
        static const uint32_t odd[] = {0, 1, 31, 32, 33, 64, 1000, 1024, 1407, 1408, 1409, 14336, 200000};
        struct random r;

        random_init(&r, seed);
        for (size_t i = 0; i < FRAGMENTS; i++) {
                uint32_t n = random_below(&r, 2) ? odd[random_below(&r, ARRAY_SIZE(odd))]
                                                 : (uint32_t)random_below(&r, 4000);

                free(payload[i]);
                payload[i] = malloc(MAX(n, 1u));
                for (uint32_t k = 0; k < n; k++)
                        payload[i][k] = (uint8_t)random_next(&r);
                jobs[i] = (struct chunk_job){
                        .chunk = {.event = 1000 + i,
                                  .l1_id = (uint32_t)i,
                                  .fragment_bytes = n,
                                  .order = (uint16_t)i},
                        .to_bytes = n,
                        .payload = payload[i],
                };
        }
}

static uint8_t *back[FRAGMENTS];
static uint32_t back_bytes[FRAGMENTS];

/* Reads one datagram like a receiver, from memory that ends where the datagram ends. */
static void receive(const struct chunk_datagram *d, size_t datagram_bytes)
{
        uint8_t *bytes = malloc(d->size_bytes);
        struct chunk_reader reader;
        const uint8_t *read_bytes;
        struct chunk c;
        size_t at = 0;

        assert_true(d->size_bytes <= datagram_bytes);
        for (uint32_t i = 0; i < d->n_iov; at += d->iov[i].iov_len, i++)
                memcpy(bytes + at, d->iov[i].iov_base, d->iov[i].iov_len);
        assert_int_equal(at, d->size_bytes);
        assert_int_equal(chunk_reader_init(&reader, bytes, at, COOKIE), MESSAGE_OK);
        while (chunk_reader_next(&reader, &c, &read_bytes)) {
                size_t i = c.event - 1000;

                assert_true(i < FRAGMENTS && c.fragment_bytes == jobs[i].chunk.fragment_bytes &&
                            c.order == i);
                assert_int_equal(c.offset, back_bytes[i]);
                memcpy(back[i] + c.offset, read_bytes, c.length);
                back_bytes[i] += c.length;
        }
        assert_false(reader.malformed);
        free(bytes);
}

static void fragments_survive_partly_sent_batches(void **state)
{
        static const size_t sizes[] = {1472, 1452, 8972, 65000};
        struct message_header h = {.cookie = COOKIE, .sender_role = ROLE_ROS, .type = MESSAGE_FRAGMENTS};
        struct random r;

        (void)state;
        random_init(&r, 3);
        for (uint64_t seed = 0; seed < 40; seed++) {
                size_t bytes = sizes[seed % ARRAY_SIZE(sizes)], job = 0;
                struct chunk_packer *p;

                make_jobs(seed);
                for (size_t i = 0; i < FRAGMENTS; i++) {
                        back[i] = malloc(MAX(jobs[i].to_bytes, 1u));
                        back_bytes[i] = 0;
                }
                assert_int_equal(chunk_packer_new(&p, bytes, 16), 0);
                while (job < FRAGMENTS) {
                        const struct chunk_datagram *d;
                        size_t n = chunk_pack(p, &h, jobs + job, FRAGMENTS - job, &d),
                               taken = 1 + random_below(&r, n);

                        assert_true(n > 0);
                        for (size_t i = 0; i < taken; i++)
                                receive(&d[i], bytes);
                        job += d[taken - 1].jobs_done;
                        if (job < FRAGMENTS)
                                jobs[job].chunk.offset = d[taken - 1].next_offset;
                }
                for (size_t i = 0; i < FRAGMENTS; i++) {
                        assert_int_equal(back_bytes[i], jobs[i].to_bytes);
                        assert_memory_equal(back[i], payload[i], jobs[i].to_bytes);
                        free(back[i]);
                }
                chunk_packer_free(p);
        }
        for (size_t i = 0; i < FRAGMENTS; i++) {
                free(payload[i]);
                payload[i] = NULL;
        }
}

static void datagrams_of_a_batch_have_equal_size(void **state)
{
        struct message_header h = {.cookie = COOKIE, .sender_role = ROLE_ROS, .type = MESSAGE_FRAGMENTS};
        static uint8_t bytes[1024];
        struct chunk_job equal[200];
        const struct chunk_datagram *d;
        struct chunk_packer *p;
        size_t n;

        (void)state;
        for (size_t i = 0; i < ARRAY_SIZE(equal); i++)
                equal[i] = (struct chunk_job){
                        .chunk = {.event = i, .fragment_bytes = 1024}, .to_bytes = 1024, .payload = bytes};
        assert_int_equal(chunk_packer_new(&p, 1472, 256), 0);
        n = chunk_pack(p, &h, equal, ARRAY_SIZE(equal), &d);
        /* 1440 bytes of chunks per datagram: each fragment takes 1024, and 32 for each of its chunks. */
        assert_in_range(n, 147, 153);
        for (size_t i = 0; i + 1 < n; i++)
                assert_int_equal(d[i].size_bytes, 1472);
        chunk_packer_set_stream(p);
        n = chunk_pack(p, &h, equal, ARRAY_SIZE(equal), &d);
        for (size_t i = 0; i + 1 < n; i++)
                assert_true(d[i].size_bytes <= 1472 && d[i].iov[d[i].n_iov - 1].iov_base != NULL);
        chunk_packer_free(p);
        assert_true(chunk_packer_new(&p, 64, 4) < 0);
}

static void inconsistent_chunks_are_refused(void **state)
{
        static const struct chunk lies[] = {
                {.event = UINT64_MAX},
                {.fragment_bytes = EVB_FRAGMENT_MAX_BYTES + 1, .length = 32},
                {.fragment_bytes = 100, .offset = 96, .length = 32},
                {.fragment_bytes = 100, .offset = 128},
                {.fragment_bytes = 100, .offset = 16, .length = 84},
                {.fragment_bytes = 100, .offset = 32, .length = 33},
                {.fragment_bytes = 100, .length = 0},
                {.form = 2},
                {.status = FRAGMENT_STATUSES},
                {.fragment_bytes = 100, .offset = UINT32_MAX & ~31u, .length = 64},
        };
        uint8_t bytes[CHUNK_HEADER_BYTES];
        struct chunk c;

        (void)state;
        for (size_t i = 0; i < ARRAY_SIZE(lies); i++) {
                chunk_encode(&lies[i], bytes);
                assert_false(chunk_decode(&c, bytes));
        }
        chunk_encode(&(struct chunk){.fragment_bytes = 100, .offset = 96, .length = 4}, bytes);
        assert_true(chunk_decode(&c, bytes));
        for (int i = 0; i < CHUNK_HEADER_BYTES * 8; i++) {
                bytes[i / 8] ^= (uint8_t)(1 << i % 8);
                assert_false(chunk_decode(&c, bytes));
                bytes[i / 8] ^= (uint8_t)(1 << i % 8);
        }
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(messages_survive_encoding),
                cmocka_unit_test(flipped_bits_and_truncations_are_refused),
                cmocka_unit_test(foreign_messages_are_distinguished),
                cmocka_unit_test(fragments_survive_partly_sent_batches),
                cmocka_unit_test(datagrams_of_a_batch_have_equal_size),
                cmocka_unit_test(inconsistent_chunks_are_refused),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
