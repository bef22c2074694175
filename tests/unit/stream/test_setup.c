/* The offer of a stream survives the wire, and a bad one is refused with a reason. */
#include "../test.h"

#include "stream/rules/setup.h"
#include "vdif_sample.h"

static struct stream_offer offer, back;

static void make_offer(enum stream_format format, uint32_t n_threads)
{
        uint8_t frame[SAMPLE_FRAME_BYTES];

        offer = (struct stream_offer){
                .rule = {.format = format,
                         .payload_bytes = SAMPLE_FRAME_BYTES,
                         .cookie = 0xfedcba9876543210,
                         .parts = format == STREAM_VDIF},
                .key = UINT64_MAX,
                .udp_port = 65535,
                .pattern = true,
                .spaced = true,
                .follows = true,
                .repairs = true,
                .resumes = true,
        };
        if (format != STREAM_VDIF)
                return;
        for (uint32_t i = 0; i < n_threads; i++) {
                sample_frame(frame, 100, 8, (9 - i) % VDIF_PLAN_THREADS_MAX, 0);
                if (i == 0)
                        assert_int_equal(vdif_plan_begin(&offer.plan, frame, sizeof frame), 0);
                assert_true(vdif_plan_add(&offer.plan, frame, sizeof frame));
        }
        offer.plan.frames_per_second = 1600;
}

static int decode(json_t *message, struct error *e)
{
        int r;

        *e = (struct error){};
        back = (struct stream_offer){};
        r = setup_decode(&back, message, e);
        json_decref(message);
        if (r < 0)
                assert_true(e->message[0]);
        return r;
}

static void check_survives(enum stream_format format, uint32_t n_threads)
{
        struct error e;

        make_offer(format, n_threads);
        assert_int_equal(decode(setup_encode(&offer), &e), 0);
        assert_memory_equal(&back, &offer, sizeof back);
        offer.pattern = offer.spaced = offer.follows = offer.repairs = offer.resumes = false;
        assert_int_equal(decode(setup_encode(&offer), &e), 0);
        assert_memory_equal(&back, &offer, sizeof back);
}

TEST(offers_survive_the_wire)
{
        check_survives(STREAM_PLAIN, 0);
        check_survives(STREAM_VDIF, 3);
        check_survives(STREAM_VDIF, VDIF_PLAN_THREADS_MAX);
        check_survives(STREAM_RAW, 0);
}

static json_t *changed(const char *name, json_t *value)
{
        json_t *m = setup_encode(&offer);

        if (value)
                json_object_set_new(m, name, value);
        else
                json_object_del(m, name);
        return m;
}

static void make_raw(void)
{
        make_offer(STREAM_RAW, 0);
        offer.raw = (struct stream_raw){.warm_up_ns = 1, .duration_ns = 86400 * NS_PER_S};
}

TEST_EACH(raw_offers_survive_the_wire, kind, 4)
{
        struct error e;

        make_raw();
        offer.raw.tcp = kind == 1;
        offer.raw.echo = kind == 2;
        offer.raw.grouped = kind == 3;
        if (offer.raw.grouped)
                assert_int_equal(net_address_parse_with_port(&offer.raw.group, "239.1.2.3:7"), 0);
        /* A message of TCP is not a datagram. */
        offer.rule.payload_bytes = offer.raw.tcp ? 4u << 20 : 65507;
        assert_int_equal(decode(setup_encode(&offer), &e), 0);
        assert_memory_equal(&back, &offer, sizeof back);
        offer.rule.payload_bytes++;
        assert_int_equal(decode(setup_encode(&offer), &e), -EBADMSG);
}

TEST(bad_raw_offers_are_refused)
{
        static const struct {
                const char *name, *value;
        } wrong[] = {{"group", "\"10.0.0.1:7\""},
                     {"group", "\"239.1.2.3:0\""},
                     {"group", "\"x\""},
                     {"warm_up_ns", "-1"},
                     {"warm_up_ns", "null"},
                     {"duration_ns", "1.5"},
                     {"duration_ns", "86400000000001"}};
        struct error e;

        make_raw();
        offer.raw.tcp = offer.raw.echo = true;
        assert_int_equal(decode(setup_encode(&offer), &e), -EBADMSG);
        for (size_t i = 0; i < ARRAY_SIZE(wrong); i++) {
                json_t *m;

                make_raw();
                m = setup_encode(&offer);
                json_object_set_new(json_object_get(m, "raw"), wrong[i].name,
                                    json_loads(wrong[i].value, JSON_DECODE_ANY, NULL));
                assert_int_equal(decode(m, &e), -EBADMSG);
        }
        assert_int_equal(decode(changed("raw", NULL), &e), -EBADMSG);
}

TEST(bad_offers_are_refused)
{
        static const char *const needed[] = {"protocol", "format", "payload_bytes", "udp_port",
                                             "cookie",   "key",    "vdif"};
        struct error e;

        make_offer(STREAM_VDIF, 3);
        for (size_t i = 0; i < ARRAY_SIZE(needed); i++) {
                assert_true(decode(changed(needed[i], NULL), &e) < 0);
                assert_true(decode(changed(needed[i], json_array()), &e) < 0);
                assert_true(decode(changed(needed[i], json_string("x")), &e) < 0);
                assert_true(decode(changed(needed[i], json_integer(-1)), &e) < 0);
        }
        assert_int_equal(decode(changed("protocol", json_integer(2)), &e), -EPROTO);
        assert_non_null(strstr(e.message, "version 2"));
        assert_true(decode(changed("payload_bytes", json_integer(65500)), &e) < 0);
        assert_true(decode(changed("payload_bytes", json_integer(48)), &e) < 0);
        assert_true(decode(changed("udp_port", json_integer(65536)), &e) < 0);
        assert_true(decode(changed("cookie", json_string("FEDCBA9876543210")), &e) < 0);
        assert_true(decode(json_object(), &e) < 0);
}

/* An offer of frames of 5032 bytes in packets with this many bytes of data. */
static int decode_parts(uint32_t payload_bytes)
{
        uint8_t frame[VDIF_HEADER_BYTES];
        uint32_t length = 5032 / 8;
        struct error e;

        make_offer(STREAM_VDIF, 1);
        memcpy(frame, offer.plan.threads[0].header, sizeof frame);
        memcpy(frame + 8, &length, sizeof length);
        assert_int_equal(vdif_plan_begin(&offer.plan, frame, sizeof frame), 0);
        assert_true(vdif_plan_add(&offer.plan, frame, sizeof frame));
        offer.rule.payload_bytes = payload_bytes;
        return decode(setup_encode(&offer), &e);
}

TEST(frames_arrive_in_equal_parts)
{
        /* 74 and 8 are more than the maximum number of parts; 1256 leaves a rest. */
        static const uint32_t bad[] = {8, 74, 1256, 2517, 5033, 10064};
        static const struct {
                uint32_t bytes, parts;
        } good[] = {{5032, 1}, {2516, 2}, {1258, 4}, {629, 8}, {296, 17}, {148, 34}};

        for (size_t i = 0; i < ARRAY_SIZE(good); i++) {
                assert_int_equal(decode_parts(good[i].bytes), 0);
                assert_int_equal(back.rule.parts, good[i].parts);
        }
        for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
                assert_int_equal(decode_parts(bad[i]), -EBADMSG);
}

static int decode_next(struct error *e)
{
        json_t *message = setup_encode(&offer);
        int r = setup_decode(&back, message, e);

        json_decref(message);
        return r;
}

/* A receiver that refused an offer decodes the next one into the same structure. */
TEST(an_offer_does_not_depend_on_the_one_before)
{
        struct error e = {};

        make_raw();
        offer.raw.tcp = true;
        assert_int_equal(decode(setup_encode(&offer), &e), 0);
        make_offer(STREAM_PLAIN, 0);
        offer.rule.payload_bytes = 65507;
        assert_int_equal(decode_next(&e), -EBADMSG);

        assert_int_equal(decode_parts(2516), 0);
        make_offer(STREAM_PLAIN, 0);
        assert_int_equal(decode_next(&e), 0);
        assert_memory_equal(&back, &offer, sizeof back);
}

TEST(bad_vdif_plans_are_refused)
{
        static const char *const headers[] = {"", "0", "zz", "00", "0000000000000000000000000000000000"};
        struct error e;

        make_offer(STREAM_VDIF, 3);
        for (size_t i = 0; i < ARRAY_SIZE(headers); i++)
                assert_true(decode(changed("vdif", json_pack("{s:i, s:[s]}", "frames_per_second", 1,
                                                             "headers", headers[i])),
                                   &e) < 0);
        assert_true(decode(changed("vdif", json_pack("{s:i, s:[]}", "frames_per_second", 1, "headers")), &e) <
                    0);
        /* A thread that is there twice. */
        offer.plan.threads[2] = offer.plan.threads[0];
        assert_true(decode(setup_encode(&offer), &e) < 0);
}
