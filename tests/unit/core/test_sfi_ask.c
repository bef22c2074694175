/* Whom the SFI asks for what, and when: in pull for all, in both modes again for what is missing. */
#include "sfi_driver.h"

#define AFTER_NS (10 * NS_PER_MS)

static void start(struct sfi_driver *t, const struct sfi_config *config, uint64_t events)
{
        sfi_driver_init(t, config);
        for (uint64_t event = 0; event < events; event++)
                sfi_gets_assign(t, event);
}

/* What is asked for `after_ns` later; Updates are not looked at. */
static const char *asks_after(struct sfi_driver *t, uint64_t after_ns)
{
        struct message_to to;

        t->now_ns += after_ns;
        trace_clear(&t->trace);
        while (sfi_step(t->sfi, t->now_ns, &to, &t->message)) {
                if (t->message.header.type == MESSAGE_REQUEST)
                        trace_message(&t->trace, to, &t->message);
        }
        return t->trace.text;
}

#define assert_asks(t, after_ns, expected) assert_string_equal(asks_after(t, after_ns), expected)

static struct sfi_config pulling(void)
{
        struct sfi_config c = sfi_standard();

        c.pull = true;
        return c;
}

static void asks_all_in_the_order_of_assignment(void **state)
{
        struct sfi_config c = pulling();
        struct sfi_driver t;

        (void)state;
        start(&t, &c, 0);
        sfi_gets_assign(&t, 7);
        sfi_gets_assign(&t, 3);
        assert_asks(&t, 0, "all: Request e7 e3");
        assert_asks(&t, AFTER_NS - 1, "");
        sfi_driver_fini(&t);
}

static void in_push_it_asks_for_nothing_at_first(void **state)
{
        struct sfi_config c = sfi_standard();
        struct sfi_driver t;

        (void)state;
        start(&t, &c, 1);
        assert_asks(&t, AFTER_NS - 1, "");
        assert_asks(&t, 1, "ros0: Request e0 again 1 | ros1: Request e0 again 1");
        sfi_driver_fini(&t);
}

static void never_more_is_outstanding_than_may_be(void **state)
{
        struct sfi_config c = pulling();
        struct sfi_driver t;

        (void)state;
        c.outstanding = 2;
        start(&t, &c, 4);
        assert_asks(&t, 0, "all: Request e0 e1");
        sfi_gets_fragment(&t, 0, 1);
        assert_asks(&t, 0, "");
        sfi_gets_fragment(&t, 1, 1);
        assert_asks(&t, 0, "all: Request e2");
        /* One that is given up makes room too. */
        sfi_gets_entry(&t, MESSAGE_BUILD, 0, 0, 0, 0);
        assert_asks(&t, 0, "all: Request e3");
        assert_sfi_writes(&t, "e1 complete | e0 lost");
        sfi_driver_fini(&t);
}

static void outstanding_is_taken_from_the_socket_buffer(void **state)
{
        struct sfi_config c = pulling();
        struct sfi_driver t;

        (void)state;
        c.room_bytes = 3 * 512 + 100;
        start(&t, &c, 6);
        assert_asks(&t, 0, "all: Request e0"); /* until the size of an event is known */
        sfi_gets_fragment(&t, 0, 0);
        sfi_gets_fragment(&t, 1, 0); /* it takes 512 bytes */
        assert_asks(&t, 0, "all: Request e1 e2 e3");
        assert_sfi_writes(&t, "e0 complete");
        sfi_driver_fini(&t);
}

static void asks_a_silent_ros_again_for_what_is_missing(void **state)
{
        struct sfi_config c = pulling();
        struct sfi_driver t;

        (void)state;
        start(&t, &c, 2);
        asks_after(&t, 0);
        sfi_gets_fragment(&t, 0, 0);
        sfi_gets_fragment(&t, 0, 1);
        sfi_gets_fragment(&t, 1, 1);
        assert_asks(&t, AFTER_NS, "ros1: Request e0 again 1");
        assert_int_equal(sfi_counts(t.sfi)->re_asked, 1);
        sfi_gets_fragment(&t, 1, 0);
        assert_int_equal(sfi_counts(t.sfi)->recovered, 1);
        assert_sfi_writes(&t, "e1 complete | e0 complete");
        assert_asks(&t, 10 * AFTER_NS, "");
        sfi_driver_fini(&t);
}

static void does_not_ask_again_for_what_may_still_be_in_a_queue(void **state)
{
        struct sfi_config c = pulling();
        struct sfi_driver t;
        const char *asked;

        (void)state;
        start(&t, &c, 4);
        asks_after(&t, 0);
        /* ROS 0 is on its way through event 0, and the others come after it. */
        for (uint32_t offset = 0; offset < 640; offset += 32) {
                sfi_gets_piece(&t, piece(0, 0, offset, 32, 4096));
                assert_null(strstr(asks_after(&t, AFTER_NS / 2), "ros0"));
        }
        /* Then event 2 overtakes what is missing of 0 and 1; 3 may still come. */
        for (uint32_t offset = 0; offset < 640; offset += 32) {
                sfi_gets_piece(&t, piece(0, 2, offset, 32, 4096));
                asked = asks_after(&t, AFTER_NS / 2);
                if (strstr(asked, "ros0"))
                        break;
        }
        assert_non_null(strstr(asked, "ros0: Request e0[640,4096) again "));
        assert_null(strstr(asked, "e2["));
        sfi_driver_fini(&t);
}

static void asks_for_the_parts_that_are_missing(void **state)
{
        struct sfi_config c = pulling();
        struct sfi_driver t;

        (void)state;
        c.n_ros = 1;
        start(&t, &c, 1);
        asks_after(&t, 0);
        sfi_gets_piece(&t, piece(0, 0, 64, 64, 1000));
        sfi_gets_piece(&t, piece(0, 0, 512, 320, 1000));
        assert_asks(&t, AFTER_NS, "ros0: Request e0[0,64) again 1 e0[128,512) again 1 e0[832,1000) again 1");
        assert_int_equal(sfi_counts(t.sfi)->re_asked, 1);
        sfi_driver_fini(&t);
}

static void behind_sixteen_parts_it_asks_for_all(void **state)
{
        struct sfi_config c = pulling();
        struct sfi_driver t;

        (void)state;
        c.n_ros = 1;
        start(&t, &c, 1);
        asks_after(&t, 0);
        for (uint32_t offset = 32; offset < 64 * 32; offset += 64)
                sfi_gets_piece(&t, piece(0, 0, offset, 32, 64 * 32));
        assert_non_null(strstr(asks_after(&t, AFTER_NS), "e0[896,928) again 1 e0[960,2048) again 1"));
        assert_int_equal(t.message.n, 0);
        sfi_driver_fini(&t);
}

static void a_place_that_was_never_filled_is_asked_for_whole(void **state)
{
        struct sfi_piece p = piece(0, 1, 0, 4096, 4096);
        struct sfi_config c = pulling();
        struct sfi_driver t;

        (void)state;
        c.n_ros = 1;
        start(&t, &c, 2);
        asks_after(&t, 0);
        /* One that came in parts lay there before. */
        sfi_gets_piece(&t, piece(0, 0, 0, 2048, 4096));
        sfi_gets_piece(&t, piece(0, 0, 2048, 2048, 4096));
        assert_sfi_writes(&t, "e0 complete");
        sfi_place(t.sfi, t.now_ns, &p, 1);
        assert_int_equal(p.verdict, SFI_STORE);
        assert_asks(&t, AFTER_NS, "ros0: Request e1 again 1");
        sfi_driver_fini(&t);
}

static void asks_in_vain_so_often_at_growing_distances(void **state)
{
        static const uint64_t distances[] = {1, 1, 2, 4, 8};
        struct sfi_config c = pulling();
        struct sfi_driver t;

        (void)state;
        c.n_ros = 1;
        for (uint32_t max = 0; max <= ARRAY_SIZE(distances); max++) {
                c.re_ask_max = max;
                start(&t, &c, 1);
                assert_asks(&t, 0, "all: Request e0");
                for (uint32_t k = 0; k < max; k++) {
                        assert_asks(&t, distances[k] * AFTER_NS - 1, "");
                        assert_string_equal(strncmp(asks_after(&t, 1), "ros0: Request e0 again ", 23) == 0 ? "" : t.trace.text, "");
                }
                while (t.now_ns < TRACE_BEGIN_NS + c.timeout_ns)
                        assert_asks(&t, AFTER_NS, "");
                assert_sfi_writes(&t, "e0 lost");
                assert_int_equal(sfi_counts(t.sfi)->re_asked, max);
                sfi_driver_fini(&t);
        }
}

static void what_helps_is_not_in_vain(void **state)
{
        struct sfi_config c = pulling();
        struct sfi_driver t;

        (void)state;
        c.n_ros = 1;
        c.re_ask_max = 2;
        start(&t, &c, 1);
        asks_after(&t, 0);
        for (uint32_t offset = 0; offset < 6 * 32; offset += 32) {
                assert_int_equal(strncmp(asks_after(&t, AFTER_NS), "ros0: Request e0", 16), 0);
                sfi_gets_piece(&t, piece(0, 0, offset, 32, 1000));
        }
        assert_asks(&t, AFTER_NS, "ros0: Request e0[192,1000) again 1");
        assert_asks(&t, AFTER_NS, "ros0: Request e0[192,1000) again 2");
        assert_asks(&t, 4 * AFTER_NS, "");
        assert_asks(&t, c.timeout_ns, "");
        assert_sfi_writes(&t, "e0 lost");
        sfi_driver_fini(&t);
}

static void what_is_there_already_does_not_help(void **state)
{
        struct sfi_config c = pulling();
        struct sfi_driver t;

        (void)state;
        c.n_ros = 1;
        c.re_ask_max = 2;
        start(&t, &c, 1);
        asks_after(&t, 0);
        sfi_gets_piece(&t, piece(0, 0, 0, 32, 1000));
        assert_asks(&t, AFTER_NS, "ros0: Request e0[32,1000) again 1");
        sfi_gets_piece(&t, piece(0, 0, 0, 32, 1000));
        assert_asks(&t, AFTER_NS, "ros0: Request e0[32,1000) again 2");
        sfi_gets_piece(&t, piece(0, 0, 0, 32, 1000));
        assert_asks(&t, 2 * AFTER_NS, "");
        sfi_driver_fini(&t);
}

static void a_fragment_without_bytes_helps_too(void **state)
{
        struct sfi_piece none = piece(0, 0, 0, 0, 0);
        struct sfi_config c = pulling();
        struct sfi_driver t;

        (void)state;
        c.re_ask_max = 1;
        start(&t, &c, 1);
        asks_after(&t, 0);
        assert_asks(&t, AFTER_NS, "ros0: Request e0 again 1 | ros1: Request e0 again 1");
        none.chunk.status = FRAGMENT_NONE;
        assert_int_equal(sfi_gets_piece(&t, none), SFI_STORE);
        assert_asks(&t, AFTER_NS, "ros1: Request e0 again 1");
        sfi_driver_fini(&t);
}

static void all_asks_come_before_the_time_is_up(void **state)
{
        struct sfi_config c = pulling();
        struct sfi_driver t;
        unsigned asks = 0;

        (void)state;
        c.n_ros = 1;
        c.re_ask_after_ns = 300 * NS_PER_MS; /* doubled, it would be too long */
        start(&t, &c, 1);
        asks_after(&t, 0);
        while (t.now_ns < TRACE_BEGIN_NS + c.timeout_ns)
                asks += asks_after(&t, NS_PER_MS)[0] != 0;
        assert_int_equal(asks, c.re_ask_max);
        sfi_writes_with(&t, false);
        sfi_driver_fini(&t);
}

static void over_a_reliable_transport_it_asks_late(void **state)
{
        struct sfi_config c = pulling();
        struct sfi_driver t;

        (void)state;
        c.reliable = true;
        c.re_ask_after_ns = 0;
        start(&t, &c, 1);
        assert_int_equal(sfi_re_ask_after_ns(t.sfi), c.timeout_ns / 6);
        sfi_driver_fini(&t);
}

static void how_long_it_waits_is_taken_from_what_is_usual(void **state)
{
        struct sfi_config c = pulling();
        struct sfi_driver t;

        (void)state;
        c.re_ask_after_ns = 0;
        start(&t, &c, 0);
        assert_int_equal(sfi_re_ask_after_ns(t.sfi), 100 * NS_PER_MS); /* before anything is known */
        for (uint64_t event = 0; event < 500; event++) {
                sfi_gets_assign(&t, event);
                asks_after(&t, 0);
                t.now_ns += 3 * NS_PER_MS;
                sfi_gets_fragment(&t, 0, event);
                sfi_gets_fragment(&t, 1, event);
                sfi_writes_with(&t, false);
                sfi_gets_ack(&t, (uint32_t)event + 1);
        }
        assert_in_range(sfi_re_ask_after_ns(t.sfi), 13 * NS_PER_MS, 14 * NS_PER_MS);
        /* Asked again, and then what was on its way all the time comes twice: it was too early. */
        sfi_gets_assign(&t, 500);
        asks_after(&t, 0);
        asks_after(&t, 14 * NS_PER_MS);
        sfi_gets_fragment(&t, 0, 500);
        assert_int_equal(sfi_gets_fragment(&t, 0, 500), SFI_DUPLICATE);
        assert_in_range(sfi_re_ask_after_ns(t.sfi), 26 * NS_PER_MS, 28 * NS_PER_MS);
        sfi_driver_fini(&t);
}

static void a_ros_that_is_gone_is_not_asked(void **state)
{
        struct sfi_config c = pulling();
        struct sfi_driver t;

        (void)state;
        start(&t, &c, 1);
        asks_after(&t, 0);
        sfi_gets_keep_alive(&t, RUN_RUNNING, 0, 2);
        assert_asks(&t, AFTER_NS, "ros1: Request e0 again 1");
        sfi_driver_fini(&t);
}

static void not_more_is_asked_for_again_at_a_time_than_fits(void **state)
{
        struct sfi_config c = pulling();
        struct sfi_driver t;

        (void)state;
        c.n_ros = 1;
        c.outstanding = 4;
        c.room_bytes = 100000;
        start(&t, &c, 2);
        asks_after(&t, 0);
        for (uint64_t event = 0; event < 2; event++)
                sfi_gets_piece(&t, piece(0, event, 0, 32, 200000));
        /* The oldest first, and of it what fits; the rest has its turn later. */
        assert_asks(&t, AFTER_NS, "ros0: Request e0[32,100032) again 1");
        sfi_gets_piece(&t, piece(0, 0, 32, 100000, 200000));
        assert_asks(&t, AFTER_NS, "ros0: Request e0[100032,200000) again 1 e1[32,65568) again 1");
        sfi_driver_fini(&t);
}

static void what_gave_way_is_asked_for_again(void **state)
{
        const uint32_t big = EVB_FRAGMENT_MAX_BYTES; /* two fill the buffer */
        struct sfi_config c = pulling();
        struct sfi_driver t;

        (void)state;
        c.n_ros = 2;
        start(&t, &c, 2);
        asks_after(&t, 0);
        sfi_gets_piece(&t, piece(0, 1, 0, big, big));
        sfi_gets_piece(&t, piece(0, 0, 0, big, big));
        sfi_gets_piece(&t, piece(1, 0, 0, big, big));
        assert_sfi_writes(&t, "e0 complete");
        assert_asks(&t, AFTER_NS, "ros0: Request e1 again 1 | ros1: Request e1 again 1");
        sfi_gets_fragment(&t, 1, 1);
        assert_sfi_writes(&t, "");
        sfi_gets_fragment(&t, 0, 1);
        assert_sfi_writes(&t, "e1 complete");
        sfi_driver_fini(&t);
}

static void what_gave_way_has_all_its_time_again(void **state)
{
        const uint32_t big = EVB_FRAGMENT_MAX_BYTES;
        struct sfi_config c = pulling();
        struct sfi_driver t;

        (void)state;
        c.re_ask_max = 1;
        start(&t, &c, 0);
        sfi_gets_assign(&t, 1);
        asks_after(&t, 0);
        sfi_gets_piece(&t, piece(0, 1, 0, big, big));
        assert_asks(&t, AFTER_NS, "ros1: Request e1 again 1");
        assert_asks(&t, c.timeout_ns - 5 * AFTER_NS, ""); /* asks are used up */
        sfi_gets_assign(&t, 0);
        asks_after(&t, 0);
        sfi_gets_piece(&t, piece(0, 0, 0, big, big));
        sfi_gets_piece(&t, piece(1, 0, 0, big, big));
        assert_sfi_writes(&t, "e0 complete");
        assert_asks(&t, AFTER_NS, "ros0: Request e1 again 1 | ros1: Request e1 again 1");
        assert_asks(&t, c.timeout_ns - 2 * AFTER_NS, "");
        assert_sfi_writes(&t, "");
        asks_after(&t, AFTER_NS);
        assert_sfi_writes(&t, "e1 lost");
        sfi_driver_fini(&t);
}

static void its_time_begins_when_it_is_asked_for(void **state)
{
        struct sfi_config c = pulling();
        struct sfi_driver t;

        (void)state;
        c.outstanding = 1;
        c.re_ask_max = 0;
        start(&t, &c, 2);
        asks_after(&t, 0);
        t.now_ns += 1500 * NS_PER_MS;
        sfi_gets_fragment(&t, 0, 0);
        sfi_gets_fragment(&t, 1, 0);
        assert_asks(&t, 0, "all: Request e1");
        asks_after(&t, c.timeout_ns - NS_PER_MS);
        assert_sfi_writes(&t, "e0 complete");
        asks_after(&t, NS_PER_MS);
        assert_sfi_writes(&t, "e1 lost");
        sfi_driver_fini(&t);
}

static void what_was_asked_for_again_overtakes_nothing(void **state)
{
        struct sfi_config c = pulling();
        struct sfi_driver t;

        (void)state;
        c.n_ros = 1;
        start(&t, &c, 2);
        asks_after(&t, 0);
        assert_asks(&t, AFTER_NS, "ros0: Request e0 again 1 e1 again 1");
        t.now_ns += AFTER_NS / 2;
        sfi_gets_fragment(&t, 0, 1); /* the first e0 may still come, behind it or before the second */
        assert_asks(&t, AFTER_NS / 2, "");
        assert_sfi_writes(&t, "e1 complete");
        sfi_driver_fini(&t);
}

static void without_any_ros_what_was_not_asked_for_is_asked_for_first(void **state)
{
        struct sfi_config c = pulling();
        struct sfi_driver t;

        (void)state;
        c.outstanding = 1;
        start(&t, &c, 2);
        assert_asks(&t, 0, "all: Request e0");
        sfi_gets_keep_alive(&t, RUN_RUNNING, 0, 0);
        assert_sfi_writes(&t, "e0 lost");
        assert_asks(&t, 0, "all: Request e1");
        sfi_driver_fini(&t);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(asks_all_in_the_order_of_assignment),
                cmocka_unit_test(in_push_it_asks_for_nothing_at_first),
                cmocka_unit_test(never_more_is_outstanding_than_may_be),
                cmocka_unit_test(outstanding_is_taken_from_the_socket_buffer),
                cmocka_unit_test(asks_a_silent_ros_again_for_what_is_missing),
                cmocka_unit_test(does_not_ask_again_for_what_may_still_be_in_a_queue),
                cmocka_unit_test(asks_for_the_parts_that_are_missing),
                cmocka_unit_test(behind_sixteen_parts_it_asks_for_all),
                cmocka_unit_test(a_place_that_was_never_filled_is_asked_for_whole),
                cmocka_unit_test(asks_in_vain_so_often_at_growing_distances),
                cmocka_unit_test(what_helps_is_not_in_vain),
                cmocka_unit_test(what_is_there_already_does_not_help),
                cmocka_unit_test(a_fragment_without_bytes_helps_too),
                cmocka_unit_test(all_asks_come_before_the_time_is_up),
                cmocka_unit_test(over_a_reliable_transport_it_asks_late),
                cmocka_unit_test(how_long_it_waits_is_taken_from_what_is_usual),
                cmocka_unit_test(a_ros_that_is_gone_is_not_asked),
                cmocka_unit_test(not_more_is_asked_for_again_at_a_time_than_fits),
                cmocka_unit_test(what_gave_way_is_asked_for_again),
                cmocka_unit_test(what_gave_way_has_all_its_time_again),
                cmocka_unit_test(its_time_begins_when_it_is_asked_for),
                cmocka_unit_test(what_was_asked_for_again_overtakes_nothing),
                cmocka_unit_test(without_any_ros_what_was_not_asked_for_is_asked_for_first),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
