/* Whom the SFI asks for what, and when: in pull for all, in both modes again for what is missing. */
#include "sfi_driver.h"

static void asks_all_in_the_order_of_assignment(void **state)
{
        struct sfi_config c = sfi_pulling();
        struct sfi_driver t;

        (void)state;
        sfi_driver_start(&t, &c, 0);
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
        sfi_driver_start(&t, &c, 1);
        assert_asks(&t, AFTER_NS - 1, "");
        assert_asks(&t, 1, "ros0: Request e0 again 1 | ros1: Request e0 again 1");
        sfi_driver_fini(&t);
}

static void never_more_is_outstanding_than_may_be(void **state)
{
        struct sfi_config c = sfi_pulling();
        struct sfi_driver t;

        (void)state;
        c.outstanding = 2;
        sfi_driver_start(&t, &c, 4);
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
        struct sfi_config c = sfi_pulling();
        struct sfi_driver t;

        (void)state;
        c.room_bytes = 3 * 512 + 100;
        sfi_driver_start(&t, &c, 6);
        assert_asks(&t, 0, "all: Request e0"); /* until the size of an event is known */
        sfi_gets_fragment(&t, 0, 0);
        sfi_gets_fragment(&t, 1, 0); /* it takes 512 bytes */
        assert_asks(&t, 0, "all: Request e1 e2 e3");
        assert_sfi_writes(&t, "e0 complete");
        sfi_driver_fini(&t);
}

static void asks_a_silent_ros_again_for_what_is_missing(void **state)
{
        struct sfi_config c = sfi_pulling();
        struct sfi_driver t;

        (void)state;
        sfi_driver_start(&t, &c, 2);
        asks_after(&t, 0);
        sfi_gets_fragment(&t, 0, 0);
        sfi_gets_fragment(&t, 0, 1);
        sfi_gets_fragment(&t, 1, 1);
        assert_asks(&t, AFTER_NS, "ros1: Request e0 again 1");
        assert_int_equal(sfi_counts(t.sfi)->retried, 1);
        sfi_gets_fragment(&t, 1, 0);
        assert_int_equal(sfi_counts(t.sfi)->recovered, 1);
        assert_sfi_writes(&t, "e1 complete | e0 complete");
        assert_asks(&t, 10 * AFTER_NS, "");
        sfi_driver_fini(&t);
}

static void does_not_ask_again_for_what_may_still_be_in_a_queue(void **state)
{
        struct sfi_config c = sfi_pulling();
        struct sfi_driver t;
        const char *asked;

        (void)state;
        sfi_driver_start(&t, &c, 4);
        asks_after(&t, 0);
        /* ROS 0 is on its way through event 0, and the others come after it. */
        for (uint32_t offset = 0; offset < 640; offset += 32) {
                sfi_gets_chunk(&t, piece(0, 0, offset, 32, 4096));
                assert_null(strstr(asks_after(&t, AFTER_NS / 2), "ros0"));
        }
        /* Then event 2 overtakes what is missing of 0 and 1; 3 may still come. */
        for (uint32_t offset = 0; offset < 640; offset += 32) {
                sfi_gets_chunk(&t, piece(0, 2, offset, 32, 4096));
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
        struct sfi_config c = sfi_pulling();
        struct sfi_driver t;

        (void)state;
        c.n_ros = 1;
        sfi_driver_start(&t, &c, 1);
        asks_after(&t, 0);
        sfi_gets_chunk(&t, piece(0, 0, 64, 64, 1000));
        sfi_gets_chunk(&t, piece(0, 0, 512, 320, 1000));
        assert_asks(&t, AFTER_NS, "ros0: Request e0[0,64) again 1 e0[128,512) again 1 e0[832,1000) again 1");
        assert_int_equal(sfi_counts(t.sfi)->retried, 1);
        sfi_driver_fini(&t);
}

static void behind_sixteen_parts_it_asks_for_all(void **state)
{
        struct sfi_config c = sfi_pulling();
        struct sfi_driver t;

        (void)state;
        c.n_ros = 1;
        sfi_driver_start(&t, &c, 1);
        asks_after(&t, 0);
        for (uint32_t offset = 32; offset < 64 * 32; offset += 64)
                sfi_gets_chunk(&t, piece(0, 0, offset, 32, 64 * 32));
        assert_non_null(strstr(asks_after(&t, AFTER_NS), "e0[896,928) again 1 e0[960,2048) again 1"));
        assert_int_equal(t.message.n, 0);
        sfi_driver_fini(&t);
}

static void a_place_that_was_never_filled_is_asked_for_whole(void **state)
{
        struct sfi_chunk p = piece(0, 1, 0, 4096, 4096);
        struct sfi_config c = sfi_pulling();
        struct sfi_driver t;

        (void)state;
        c.n_ros = 1;
        sfi_driver_start(&t, &c, 2);
        asks_after(&t, 0);
        /* One that came in parts lay there before. */
        sfi_gets_chunk(&t, piece(0, 0, 0, 2048, 4096));
        sfi_gets_chunk(&t, piece(0, 0, 2048, 2048, 4096));
        assert_sfi_writes(&t, "e0 complete");
        sfi_reserve(t.sfi, t.now_ns, &p, 1);
        assert_int_equal(p.verdict, SFI_STORE);
        assert_asks(&t, AFTER_NS, "ros0: Request e1 again 1");
        sfi_driver_fini(&t);
}

static void its_time_begins_when_it_is_asked_for(void **state)
{
        struct sfi_config c = sfi_pulling();
        struct sfi_driver t;

        (void)state;
        c.outstanding = 1;
        c.retries_max = 0;
        sfi_driver_start(&t, &c, 2);
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

static void without_any_ros_what_was_not_asked_for_is_asked_for_first(void **state)
{
        struct sfi_config c = sfi_pulling();
        struct sfi_driver t;

        (void)state;
        c.outstanding = 1;
        sfi_driver_start(&t, &c, 2);
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
                cmocka_unit_test(its_time_begins_when_it_is_asked_for),
                cmocka_unit_test(without_any_ros_what_was_not_asked_for_is_asked_for_first),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
