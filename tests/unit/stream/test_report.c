/* Losses are told apart by place, and never counted twice; unknown figures are null. */
#include "../json_assert.h"

#include "stream/rules/stream_report.h"
#include "stream/rules/timing.h"

static json_int_t number(const json_t *o, const char *name)
{
        assert_true(json_is_integer(json_object_get(o, name)));
        return json_integer_value(json_object_get(o, name));
}

static json_t *sender_part(json_int_t packets, json_int_t source)
{
        return json_pack("{s:s, s:s, s:I, s:I, s:f, s:I}", "format", "plain", "wake", "futex", "packets",
                         packets, "bytes", packets * 1000, "seconds", 1.0, "source_packets", source);
}

static json_t *receiver_part(json_int_t packets, json_int_t late, json_int_t socket, json_int_t nic)
{
        json_t *o = json_pack("{s:s, s:s, s:I, s:I, s:f, s:I, s:I}", "format", "plain", "wake", "yield",
                              "packets", packets, "bytes", packets * 1000, "seconds", 2.0, "late", late,
                              "socket_packets", socket);

        json_object_set_new(o, "nic_packets", nic < 0 ? json_null() : json_integer(nic));
        return o;
}

/* The places of a loss of 100 packets, as source, network, nic, socket. */
static void check_places(json_int_t source, json_int_t late, json_int_t socket, json_int_t nic,
                         const json_int_t expected[4])
{
        static const char *const places[] = {"source", "network", "nic", "socket"};
        json_auto_t *sender = sender_part(1000, source), *receiver = receiver_part(900, late, socket, nic),
                    *merged = report_merge(false, sender, receiver);
        const json_t *at = json_object_get(merged, "lost_at");
        json_int_t sum = 0;

        assert_int_equal(number(merged, "packets_lost"), 100);
        for (size_t i = 0; i < ARRAY_SIZE(places); i++) {
                if (expected[i] < 0) {
                        assert_true(json_is_null(json_object_get(at, places[i])));
                        continue;
                }
                assert_int_equal(number(at, places[i]), expected[i]);
                sum += expected[i];
        }
        assert_int_equal(sum + late, 100);
}

TEST(losses_are_told_apart)
{
        check_places(0, 0, 0, 0, (const json_int_t[]){0, 100, 0, 0});
        check_places(10, 5, 20, 30, (const json_int_t[]){10, 35, 30, 20});
        check_places(0, 0, 0, -1, (const json_int_t[]){0, 100, -1, 0});
        /* A device that dropped packets of others, too. */
        check_places(5000, 10, 20, 30, (const json_int_t[]){70, 0, 0, 20});
        check_places(0, 0, 20, 5000, (const json_int_t[]){0, 0, 80, 20});
        check_places(0, 100, 20, 30, (const json_int_t[]){0, 0, 0, 0});
}

/* A loss of 400 packets, 10 of them late; an older receiver does not say how many it did not take (untaken:
 * NULL). */
static void check_untaken(const json_t *untaken, json_int_t receiver_place, json_int_t network)
{
        json_auto_t *sender = sender_part(1000, 15), *receiver = receiver_part(600, 10, 20, 5), *merged;
        const json_t *at;

        if (untaken)
                json_object_set_new(receiver, "untaken_packets", json_deep_copy(untaken));
        merged = report_merge(true, sender, receiver);
        at = json_object_get(merged, "lost_at");
        if (receiver_place < 0)
                assert_true(json_is_null(json_object_get(at, "receiver")));
        else
                assert_int_equal(number(at, "receiver"), receiver_place);
        assert_int_equal(number(at, "network"), network);
        assert_int_equal(number(at, "socket"), 20);
        assert_int_equal(number(at, "source") + number(at, "nic") + network + MAX(receiver_place, 0), 370);
}

TEST(what_a_failed_receiver_does_not_take_is_not_lost_in_the_network)
{
        json_auto_t *some = json_integer(300), *all = json_integer(5000), *nonsense = json_integer(-7);

        check_untaken(some, 300, 50);
        check_untaken(all, 370, 0);
        check_untaken(nonsense, -1, 350);
        check_untaken(NULL, -1, 350);
}

TEST(both_ends_say_the_same)
{
        json_auto_t *sender = sender_part(1000, 0), *receiver = receiver_part(1000, 0, 0, 0),
                    *of_sender = report_merge(true, sender, receiver),
                    *of_receiver = report_merge(false, sender, receiver);

        assert_json(of_sender, "{'role': 'send', 'wake': 'futex', 'bytes': 1000000, "
                               "'throughput_bytes_per_second': 500000.0}");
        assert_json(of_receiver, "{'wake': 'yield'}");
        assert_true(json_equal(json_object_get(of_sender, "peer"), receiver));
        assert_true(json_equal(json_object_get(of_receiver, "peer"), sender));
        assert_true(
                json_equal(json_object_get(of_sender, "lost_at"), json_object_get(of_receiver, "lost_at")));
}

TEST(what_a_lost_peer_knew_is_null)
{
        json_auto_t *receiver = receiver_part(900, 0, 0, 0), *merged;

        json_object_set_new(receiver, "filled_in", json_integer(7));
        merged = report_merge(false, NULL, receiver);
        assert_json(merged, "{'packets_sent': null, 'lost_at': null, 'peer': null, 'packets_lost': 7}");
}

TEST(a_peer_may_report_nonsense)
{
        static const json_int_t least = INT64_MIN;
        json_auto_t *sender = sender_part(1000, least), *receiver = receiver_part(0, least, least, 0), *all;
        json_t *merged, *parts = json_array();
        const json_t *at;

        json_object_set_new(receiver, "packets", json_integer(least));
        merged = report_merge(true, sender, receiver);
        at = json_object_get(merged, "lost_at");
        assert_int_equal(number(merged, "packets_lost"), 1000);
        assert_json(at, "{'network': 1000, 'source': null, 'socket': null}");
        json_array_append(parts, merged);
        json_array_append_new(parts, merged);
        all = stream_join_reports(parts);
        assert_json(all, "{'packets_late': null, 'packets_lost': 2000}");
}

TEST(several_streams_add_up)
{
        json_t *parts = json_array();
        json_auto_t *all;

        for (json_int_t i = 1; i <= 2; i++) {
                json_auto_t *sender = sender_part(1000 * i, 0),
                            *receiver = receiver_part(900 * i, 0, 10, i == 1 ? 5 : -1);

                json_object_set_new(receiver, "untaken_packets", json_integer(30 * i));
                json_object_set_new(receiver, "filled_unsure", json_integer(4 * i));
                json_object_set_new(sender, "damaged", json_integer(5 * i));
                json_object_set_new(sender, "cut_bytes", json_integer(6 * i));
                json_array_append_new(parts, report_merge(true, sender, receiver));
        }
        all = stream_join_reports(parts);
        assert_json(all, "{'packets_sent': 3000, 'packets_lost': 300, 'frames_filled_unsure': 12, "
                         "'frames_damaged': 15, 'cut_bytes': 18, 'corrupt': null, 'seconds': 2.0}");
        assert_json(json_object_get(all, "lost_at"), "{'socket': 20, 'receiver': 90, 'nic': null}");
        assert_int_equal(json_array_size(json_object_get(all, "streams")), 2);
        assert_null(stream_join_reports(json_array()));
}

/* 3 packets at 10 us and one at 20 us, in bins that are at most an eighth too wide. */
static void check_bins(const json_t *bins)
{
        static const double times_us[] = {10, 20};
        static const json_int_t packets[] = {3, 1};

        assert_int_equal(json_array_size(bins), 2);
        for (size_t i = 0; i < 2; i++) {
                const json_t *bin = json_array_get(bins, i);
                double most_us = json_number_value(json_array_get(bin, 0));

                assert_true(most_us >= times_us[i] && most_us < times_us[i] * 1.125);
                assert_int_equal(json_integer_value(json_array_get(bin, 1)), packets[i]);
        }
}

TEST(times_have_mean_and_sigma)
{
        static struct timing t;
        json_t *o;

        timing_init(&t);
        o = timing_describe(&t);
        assert_true(json_is_null(o));
        json_decref(o);
        timing_add(&t, 10000, 3);
        timing_add(&t, 20000, 1);
        timing_add(&t, 99999, 0);
        o = timing_describe(&t);
        assert_true(json_number_value(json_object_get(o, "mean")) == 12.5);
        assert_true(json_number_value(json_object_get(o, "max")) == 20);
        /* sqrt((3 * 2.5^2 + 7.5^2) / 4) */
        assert_in_range((unsigned)(json_number_value(json_object_get(o, "sigma")) * 1e6), 4330126, 4330128);
        check_bins(json_object_get(o, "histogram"));
        json_decref(o);
}

/* The time between two packets with these stamps, of which the first one was read late. */
static uint64_t time_between(uint64_t looks_ns, uint64_t late_ns, uint64_t earlier_ns, uint64_t later_ns)
{
        struct stamps s = {};

        (void)stamps_gap(&s, 0, earlier_ns + late_ns, earlier_ns);
        return stamps_gap(&s, looks_ns, later_ns, later_ns);
}

TEST(a_clock_that_is_set_falsifies_nothing)
{
        /* Two packets, 12 us apart, that the program sees at once, late, or without stamps. */
        assert_int_equal(time_between(0, 0, 1000000, 1012000), 12000);
        assert_int_equal(time_between(50 * NS_PER_MS, 0, 1000000, 1012000), 12000);
        assert_int_equal(time_between(13000, 0, 0, 1012000), 13000);
        assert_int_equal(time_between(13000, 0, 1000000, 0), 13000);
        /* A second apart, of which the program sees the first one late. */
        assert_int_equal(time_between(13000, NS_PER_S, 1000000, 1000000 + NS_PER_S), NS_PER_S);
        /* The clock was set back, and forward. */
        assert_int_equal(time_between(13000, 0, 1012000, 1000000), 13000);
        assert_int_equal(time_between(13000, NS_PER_S, 1000000, 1000000 + 3600 * NS_PER_S), 13000);
}

TEST(wakes_have_names)
{
        char text[32];

        assert_string_equal(report_wake(&(struct wake){WAKE_SIGNAL, 200}, text), "signal=200");
        assert_string_equal(report_wake(&(struct wake){WAKE_POLL, 0}, text), "poll");
}
