/* Divides fragments into data messages and reads them back; refuses wrong entries and headers. */
#include "../test.h"

#include "base/random.h"
#include "protocol/chunk.h"

DEFINE_FREEP(chunk_packer)

#define COOKIE UINT64_C(0x123456789ABCDEF0)
#define ROS 7
#define FRAGMENTS 40
#define DATAGRAM_BYTES 1472

static const struct message_header header = {
        .cookie = COOKIE, .sender_role = ROLE_ROS, .sender_index = ROS, .type = MESSAGE_FRAGMENTS};

static const uint8_t zeros[200 << 10];
static uint8_t *payload[FRAGMENTS];
static struct chunk_job jobs[FRAGMENTS];
static uint8_t *back[FRAGMENTS];
static uint32_t back_bytes[FRAGMENTS];

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
                        .chunk = {.event = 1000 + i * (1 + seed % 3),
                                  .l1_id = (uint32_t)(seed % 2 ? i : random_next(&r)),
                                  .fragment_bytes = n,
                                  .order = (uint16_t)(seed % 5 ? ROS : i)},
                        .to_bytes = n,
                        .payload = payload[i],
                };
                back[i] = malloc(MAX(n, 1u));
                back_bytes[i] = 0;
        }
}

static void free_jobs(void)
{
        for (size_t i = 0; i < FRAGMENTS; i++) {
                free(payload[i]);
                free(back[i]);
                payload[i] = back[i] = NULL;
        }
}

/* The datagram in memory that ends where the datagram ends. */
static uint8_t *gather(const struct chunk_datagram *d)
{
        uint8_t *bytes = malloc(d->size_bytes);
        size_t at = 0;
        for (uint32_t i = 0; i < d->n_iov; at += d->iov[i].iov_len, i++)
                memcpy(bytes + at, d->iov[i].iov_base, d->iov[i].iov_len);
        assert_int_equal(at, d->size_bytes);
        return bytes;
}

/* Reads one datagram like a receiver; returns the bytes that the sender has still queued. */
static uint32_t receive(const struct chunk_datagram *d, uint64_t stride)
{
        uint8_t *bytes = gather(d);
        struct chunk_reader reader;
        const uint8_t *read_bytes;
        uint32_t payload_bytes = 0;
        struct chunk c;

        assert_int_equal(chunk_reader_init(&reader, bytes, d->size_bytes, COOKIE), MESSAGE_OK);
        assert_int_equal(reader.header.sender_index, ROS);
        while (chunk_reader_next(&reader, &c, &read_bytes)) {
                size_t i = (c.event - 1000) / stride;

                assert_true(i < FRAGMENTS && c.event == jobs[i].chunk.event);
                assert_true(c.fragment_bytes == jobs[i].chunk.fragment_bytes &&
                            c.l1_id == jobs[i].chunk.l1_id && c.order == jobs[i].chunk.order);
                assert_int_equal(c.offset, back_bytes[i]);
                memcpy(back[i] + c.offset, read_bytes, c.length);
                back_bytes[i] += c.length;
                payload_bytes += c.length;
        }
        assert_int_equal(payload_bytes, reader.header.payload_bytes);
        free(bytes);
        return reader.header.queued_bytes;
}

static uint64_t left_from(size_t job)
{
        uint64_t bytes = 0;

        for (; job < FRAGMENTS; job++)
                bytes += jobs[job].to_bytes - jobs[job].chunk.offset;
        return bytes;
}

TEST(fragments_survive_partly_sent_batches)
{
        static const size_t sizes[] = {DATAGRAM_BYTES, 1452, 8972, 65000};
        struct random r;

        random_init(&r, 3);
        for (uint64_t seed = 0; seed < 40; seed++) {
                size_t bytes = sizes[seed % ARRAY_SIZE(sizes)], job = 0;
                struct message_header h = header;
                struct chunk_packer *p;

                make_jobs(seed);
                assert_int_equal(chunk_packer_new(&p, bytes, 16), 0);
                while (job < FRAGMENTS) {
                        const struct chunk_datagram *d;
                        uint32_t queued = 0;

                        h.queued_bytes = (uint32_t)left_from(job);
                        size_t n = chunk_pack(p, &h, jobs + job, FRAGMENTS - job, &d),
                               taken = 1 + random_below(&r, n);

                        assert_true(n > 0);
                        for (size_t i = 0; i < taken; i++) {
                                assert_true(d[i].size_bytes <= bytes);
                                queued = receive(&d[i], 1 + seed % 3);
                        }
                        job += d[taken - 1].jobs_done;
                        if (job < FRAGMENTS)
                                jobs[job].chunk.offset = d[taken - 1].next_offset;
                        assert_int_equal(queued, left_from(job));
                }
                for (size_t i = 0; i < FRAGMENTS; i++) {
                        assert_int_equal(back_bytes[i], jobs[i].to_bytes);
                        assert_memory_equal(back[i], payload[i], jobs[i].to_bytes);
                }
                chunk_packer_free(p);
                free_jobs();
        }
}

/* The share of payload in full datagrams: what docs/protocol.md promises. The number of the event is that of
 * a long run, the stride that of one SFI among several. */
static const struct {
        uint32_t fragment_bytes, least_bytes;
} cases[] = {{256, 1408}, {1024, 1430}, {14336, 1440}, {200 << 10, 1440}};

TEST_EACH(full_datagrams_carry_payload, i, ARRAY_SIZE(cases))
{
        struct chunk_job equal[200];
        const struct chunk_datagram *d;
        uint64_t sum = 0;
        _cleanup_(chunk_packer_freep) struct chunk_packer *p;
        size_t n;

        for (size_t k = 0; k < ARRAY_SIZE(equal); k++)
                equal[k] = (struct chunk_job){.chunk = {.event = 900000 + 3 * k,
                                                        .l1_id = (uint32_t)(900000 + 3 * k),
                                                        .fragment_bytes = cases[i].fragment_bytes,
                                                        .order = ROS},
                                              .to_bytes = cases[i].fragment_bytes,
                                              .payload = zeros};
        assert_int_equal(chunk_packer_new(&p, DATAGRAM_BYTES, 256), 0);
        n = chunk_pack(p, &header, equal, ARRAY_SIZE(equal), &d);
        assert_in_range(n, 30, 256);
        for (size_t k = 0; k + 1 < n; k++) {
                _cleanup_free_ uint8_t *whole = gather(&d[k]);
                struct chunk_reader r;

                /* All sizes are equal, so that the kernel can split a super-packet. */
                assert_int_equal(d[k].size_bytes, DATAGRAM_BYTES);
                assert_true(d[k].full);
                assert_int_equal(chunk_reader_init(&r, whole, DATAGRAM_BYTES, COOKIE), MESSAGE_OK);
                sum += r.header.payload_bytes;
        }
        if (sum < (n - 1) * cases[i].least_bytes)
                fail_msg("%u bytes: %.1f of payload in a datagram, expected %u", cases[i].fragment_bytes,
                         (double)sum / (double)(n - 1), cases[i].least_bytes);
}

TEST(only_a_datagram_with_room_is_not_full)
{
        const struct chunk_datagram *d;
        struct chunk_packer *p;

        assert_int_equal(chunk_packer_new(&p, DATAGRAM_BYTES, 4), 0);
        for (uint32_t n = 1; n < 2000; n++) {
                struct chunk_job job = {.chunk.fragment_bytes = n, .to_bytes = n, .payload = zeros};
                size_t k = chunk_pack(p, &header, &job, 1, &d);

                assert_int_equal(d[k - 1].full,
                                 d[k - 1].size_bytes + CHUNK_PADDING_MAX_BYTES > DATAGRAM_BYTES);
        }
        chunk_packer_free(p);
        assert_true(chunk_packer_new(&p, 64, 4) < 0);
}

TEST(a_stream_is_not_padded)
{
        const struct chunk_datagram *d;
        _cleanup_(chunk_packer_freep) struct chunk_packer *p;
        struct chunk_job equal[300];

        for (size_t i = 0; i < ARRAY_SIZE(equal); i++)
                equal[i] = (struct chunk_job){
                        .chunk = {.event = i, .fragment_bytes = 1000}, .to_bytes = 1000, .payload = zeros};
        assert_int_equal(chunk_packer_new(&p, 1 << 20, 1), 0);
        chunk_packer_set_stream(p);
        assert_int_equal(chunk_pack(p, &header, equal, ARRAY_SIZE(equal), &d), 1);
        assert_fields(d, jobs_done, CHUNKS_MAX, n_iov, 1 + CHUNKS_MAX);
}

/* Many chunks without bytes: messages end at the maximum number, and none is lost. */
TEST(a_message_has_a_maximum_number_of_chunks)
{
        static struct chunk_job empty[1000];
        const struct chunk_datagram *d;
        _cleanup_(chunk_packer_freep) struct chunk_packer *p;
        size_t job = 0;

        for (size_t i = 0; i < ARRAY_SIZE(empty); i++)
                empty[i] = (struct chunk_job){
                        .chunk = {.event = i, .l1_id = (uint32_t)i, .status = FRAGMENT_NONE}};
        assert_int_equal(chunk_packer_new(&p, DATAGRAM_BYTES, 1), 0);
        while (job < ARRAY_SIZE(empty)) {
                uint64_t first = job;

                assert_int_equal(chunk_pack(p, &header, empty + job, ARRAY_SIZE(empty) - job, &d), 1);
                job += d->jobs_done;
                _cleanup_free_ uint8_t *bytes = gather(d);
                struct chunk_reader r;
                const uint8_t *at;
                struct chunk c;

                assert_int_equal(chunk_reader_init(&r, bytes, d->size_bytes, COOKIE), MESSAGE_OK);
                while (chunk_reader_next(&r, &c, &at))
                        assert_true(c.event == first++ && c.status == FRAGMENT_NONE && c.length == 0);
                assert_int_equal(first, job);
        }
}

static struct chunk random_chunk(struct random *r, uint64_t event)
{
        struct chunk c = {.event = random_below(r, 8) ? event + random_below(r, 4) : random_next(r) >> 1};

        c.l1_id = random_below(r, 4) ? (uint32_t)c.event : (uint32_t)random_next(r);
        c.fragment_bytes = (uint32_t)random_below(r, random_below(r, 2) ? 100 : EVB_FRAGMENT_MAX_BYTES + 1);
        c.order = random_below(r, 4) ? ROS : (uint16_t)random_next(r);
        c.form = (uint8_t)random_below(r, 2);
        c.status = (uint8_t)random_below(r, FRAGMENT_STATUSES);
        c.offset = (uint32_t)random_below(r, MAX(DIV_ROUND_UP(c.fragment_bytes, EVB_BLOCK_BYTES), 1u)) *
                   EVB_BLOCK_BYTES;
        c.length = c.fragment_bytes - c.offset;
        if (c.length > EVB_BLOCK_BYTES && random_below(r, 2))
                c.length =
                        EVB_BLOCK_BYTES * (uint32_t)(1 + random_below(r, (c.length - 1) / EVB_BLOCK_BYTES));
        return c;
}

static bool is_same(const struct chunk *a, const struct chunk *b)
{
        return a->event == b->event && a->l1_id == b->l1_id && a->fragment_bytes == b->fragment_bytes &&
               a->offset == b->offset && a->length == b->length && a->order == b->order &&
               a->form == b->form && a->status == b->status;
}

/* Any sequence of chunks comes back, and each prefix of its bytes is only short, never accepted. */
TEST(every_chunk_survives_encoding)
{
        struct random r;

        random_init(&r, 11);
        for (int round = 0; round < 3000; round++) {
                struct chunk_context out = chunk_context_begin(ROS), in = out;
                uint8_t bytes[20 * CHUNK_ENTRY_MAX_BYTES];
                struct chunk chunks[20], c;
                size_t n = 0;
                bool last;

                for (size_t i = 0; i < ARRAY_SIZE(chunks); i++) {
                        chunks[i] = random_chunk(&r, i > 0 ? chunks[i - 1].event : 0);
                        n += chunk_encode(&out, &chunks[i], bytes + n);
                }
                struct reader reader = reader_init(bytes, n);

                for (size_t i = 0; i < ARRAY_SIZE(chunks); i++) {
                        struct chunk_context before = in;
                        const uint8_t *from = reader.at;

                        assert_int_equal(chunk_decode(&in, &reader, &c, &last), MESSAGE_OK);
                        assert_false(last);
                        assert_true(is_same(&c, &chunks[i]));
                        for (const uint8_t *cut = from; cut < reader.at; cut++) {
                                struct reader part = reader_init(from, (size_t)(cut - from));
                                struct chunk_context k = before;

                                assert_int_equal(chunk_decode(&k, &part, &c, &last), MESSAGE_SHORT);
                        }
                }
                assert_int_equal(reader_left(&reader), 0);
        }
}

/* What is sent is the whole chunk, or as many blocks as fit; its entry is that of a chunk of this length. */
TEST(no_longer_chunk_would_fit)
{
        static const size_t most[] = {100, 1500, 5000, EVB_FRAGMENT_MAX_BYTES};
        size_t whole = 0, part = 0, none = 0;
        struct random r;

        random_init(&r, 17);
        for (int round = 0; round < 200000; round++) {
                uint8_t fitted[CHUNK_ENTRY_MAX_BYTES], entry[CHUNK_ENTRY_MAX_BYTES];
                struct chunk first = random_chunk(&r, 1000), c = random_chunk(&r, 1001), got = c, longer;
                struct chunk_context k = chunk_context_begin(ROS), fit, other;
                size_t room = random_below(&r, most[random_below(&r, ARRAY_SIZE(most))]), n;

                chunk_encode(&k, &first, entry);
                fit = other = k;
                n = chunk_encode_fit(&fit, &got, room, fitted);
                if (n > 0) {
                        assert_true(n + got.length <= room && got.length <= c.length);
                        assert_int_equal(chunk_encode(&other, &got, entry), n);
                        assert_memory_equal(fitted, entry, n);
                }
                assert_true(fit.n == other.n && fit.stride == other.stride &&
                            is_same(&fit.last, &other.last));
                whole += n > 0 && got.length == c.length;
                part += n > 0 && got.length < c.length;
                none += n == 0;
                longer = c;
                if (n == 0 || got.length < c.length)
                        longer.length = MIN((n > 0 ? got.length : 0) + EVB_BLOCK_BYTES, c.length);
                other = k;
                assert_true((n > 0 && got.length == c.length) ||
                            chunk_encode(&other, &longer, entry) + longer.length > room);
        }
        assert_true(whole > 1000 && part > 1000 && none > 1000);
}

static enum message_verdict decode(const uint8_t *bytes, size_t n)
{
        struct chunk_context k = chunk_context_begin(ROS);
        struct reader r = reader_init(bytes, n);
        struct chunk c;
        bool last;

        return chunk_decode(&k, &r, &c, &last);
}

#define WRONG(...)                                                                                           \
        {                                                                                                    \
                {__VA_ARGS__}, sizeof((uint8_t[]){__VA_ARGS__})                                              \
        }

TEST(impossible_chunks_are_refused)
{
        /* A fragment of 64 bytes and what makes its entry impossible. Numbers below 128 are one byte. */
        static const struct {
                uint8_t bytes[40];
                size_t n;
        } wrong[] = {
                WRONG(0x44, 64),                               /* a reserved flag */
                WRONG(0x0C, 64, 3),                            /* begins after its end */
                WRONG(0x0C, 64, 2),                            /* begins at its end */
                WRONG(0x14, 64, 0),                            /* no bytes of a fragment that has some */
                WRONG(0x14, 64, 3),                            /* longer than the fragment */
                WRONG(0x1C, 64, 1, 2),                         /* ends after the fragment */
                WRONG(0x14, 50, 2),                            /* the same, beyond its last, shorter block */
                WRONG(0x04, 0x81, 0x80, 0x80, 0x02),           /* larger than 4 MiB */
                WRONG(0x0C, 64, 0x80, 0x80, 0x80, 0x80, 0x10), /* an offset that wraps in 32 bits */
                WRONG(0x14, 64, 0x82, 0x80, 0x80, 0x80, 0x10), /* a length that wraps */
                WRONG(0x05, 0x01, 64),                         /* event 2^64 - 1 */
                WRONG(0x06, 0x80, 0x80, 0x80, 0x80, 0x10, 64), /* an L1 id above 32 bits */
                WRONG(0x24, 64, 0, 0x02),                      /* unknown form */
                WRONG(0x24, 64, 0, 0x60),                      /* unknown status */
                WRONG(0x24, 64, 0x80, 0x80, 0x04, 0),          /* order above 16 bits */
                WRONG(0x04, 0xC0, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0, 0, 0, 0, 0, 0, 0,
                      0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0), /* a number of more than 64 bits */
        };
        static const uint8_t right[] = {0x1C, 64, 1, 1}, whole[] = {0x04, 64};

        assert_int_equal(decode(right, sizeof right), MESSAGE_OK);
        assert_int_equal(decode(whole, sizeof whole), MESSAGE_OK);
        for (size_t i = 0; i < ARRAY_SIZE(wrong); i++) {
                if (decode(wrong[i].bytes, wrong[i].n) != MESSAGE_MALFORMED)
                        fail_msg("entry %zu is not refused", i);
        }
}

static size_t make_message(uint8_t *to, uint64_t cookie)
{
        static const uint8_t text[] = "forty bytes in two chunks of two events";
        struct chunk_job two[] = {
                {.chunk = {.event = 70000, .l1_id = 5, .fragment_bytes = 40},
                 .to_bytes = 40,
                 .payload = text},
                {.chunk = {.event = 70004, .l1_id = 9, .fragment_bytes = 8}, .to_bytes = 8, .payload = text}};
        struct message_header h = header;
        const struct chunk_datagram *d;
        struct chunk_packer *p;
        size_t n;

        h.cookie = cookie;
        assert_int_equal(chunk_packer_new(&p, DATAGRAM_BYTES, 1), 0);
        assert_int_equal(chunk_pack(p, &h, two, 2, &d), 1);
        uint8_t *bytes = gather(d);

        n = d->size_bytes;
        memcpy(to, bytes, n);
        free(bytes);
        chunk_packer_free(p);
        return n;
}

TEST(flipped_bits_and_foreign_messages_are_refused)
{
        uint8_t bytes[256];
        struct chunk_reader r;
        size_t n = make_message(bytes, COOKIE), head_bytes;

        assert_int_equal(chunk_reader_init(&r, bytes, n, COOKIE), MESSAGE_OK);
        head_bytes = r.head_bytes;
        /* Compact: 20 bytes of header; flags, event, L1 id, size and kind; flags, event and size. */
        assert_in_range(head_bytes, FRAGMENTS_HEADER_BYTES + 8, FRAGMENTS_HEADER_BYTES + 18);
        for (size_t i = 0; i < head_bytes * 8; i++) {
                bytes[i / 8] ^= (uint8_t)(1 << i % 8);
                assert_int_not_equal(chunk_reader_init(&r, bytes, n, COOKIE), MESSAGE_OK);
                bytes[i / 8] ^= (uint8_t)(1 << i % 8);
        }
        for (size_t cut = 0; cut < n; cut++) {
                _cleanup_free_ uint8_t *part = malloc(MAX(cut, (size_t)1));

                memcpy(part, bytes, cut);
                assert_int_equal(chunk_reader_init(&r, part, cut, COOKIE), MESSAGE_SHORT);
        }
        /* Each half of the cookie counts. */
        assert_int_equal(chunk_reader_init(&r, bytes, n, COOKIE + 1), MESSAGE_OTHER_RUN);
        assert_int_equal(chunk_reader_init(&r, bytes, n, COOKIE ^ UINT64_C(1) << 40), MESSAGE_MALFORMED);
        bytes[1] = MESSAGE_VERSION - 1;
        assert_int_equal(chunk_reader_init(&r, bytes, n, COOKIE), MESSAGE_OTHER_VERSION);
        bytes[0] = 'x';
        assert_int_equal(chunk_reader_init(&r, bytes, n, COOKIE), MESSAGE_FOREIGN);
        memcpy(bytes, "EVB1\2\0", 6);
        assert_int_equal(chunk_reader_init(&r, bytes, n, COOKIE), MESSAGE_OTHER_VERSION);
        message_header_encode(&(struct message_header){.cookie = COOKIE, .sender_role = ROLE_ROS}, bytes, 0);
        assert_int_equal(chunk_reader_init(&r, bytes, n, COOKIE), MESSAGE_MALFORMED);
        assert_int_equal(chunk_reader_init(&r, bytes, n, COOKIE + 1), MESSAGE_OTHER_RUN);
}
