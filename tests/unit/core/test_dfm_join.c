/* Admission to a run: each answer to Join, and the notices for the log. */
#include "dfm_driver.h"

static struct dfm_config join_standard(void)
{
        struct dfm_config c = dfm_standard();

        c.keys = (struct member_keys){.table = 4, .n = 3, .values = {10, 11, 12}};
        c.occupied_ns = 250 * NS_PER_MS;
        c.keep_alive_ns = 1000 * NS_PER_S;
        return c;
}

#define JOIN_TEST(name, ...) DFM_TEST_AS(name, join_standard(), begin(t, &c), ##__VA_ARGS__)

static struct message join_of(const struct dfm_config *c, enum node_role role, uint16_t index,
                              uint64_t incarnation)
{
        struct message m = {.header = {.sender_role = role, .sender_index = index, .type = MESSAGE_JOIN}};

        m.join.incarnation = incarnation;
        m.join.table = c->keys.table;
        m.n = c->keys.n;
        memcpy(m.join.keys, c->keys.values, sizeof m.join.keys);
        return m;
}

static void begin(struct dfm_driver *t, const struct dfm_config *c)
{
        dfm_driver_init(t, c);
        while (dfm_makes(t))
                assert_int_equal(t->message.header.type, MESSAGE_KEEP_ALIVE);
}

/* The verdict of the answer, with its key in *ret_key. */
static enum welcome_verdict answer(struct dfm_driver *t, const struct message *join, uint16_t *ret_key)
{
        struct message_to to;

        assert_true(dfm_receive(t->dfm, t->now_ns, join));
        assert_true(dfm_step(t->dfm, t->now_ns, &to, &t->message));
        assert_int_equal(t->message.header.type, MESSAGE_WELCOME);
        assert_fields(&to, role, join->header.sender_role, index, join->header.sender_index);
        assert_int_equal(t->message.welcome.incarnation, join->join.incarnation);
        if (ret_key)
                *ret_key = t->message.welcome.key;
        return (enum welcome_verdict)t->message.welcome.verdict;
}

static bool speaks(struct dfm_driver *t, uint16_t ros, uint64_t incarnation, uint32_t transaction)
{
        t->message = (struct message){.alive = {.state = RUN_RUNNING, .incarnation = incarnation}};
        driver_say(t, ROLE_ROS, ros, MESSAGE_ALIVE, transaction);
        return dfm_view(t->dfm, ROLE_ROS, ros).live;
}

static void assert_notice(struct dfm_driver *t, enum dfm_notice_kind kind, enum welcome_verdict verdict)
{
        struct dfm_notice o;

        assert_true(dfm_pop_notice(t->dfm, &o));
        assert_fields(&o, kind, kind, verdict, verdict);
}

static void assert_no_notice(struct dfm_driver *t)
{
        struct dfm_notice o;

        assert_false(dfm_pop_notice(t->dfm, &o));
}

JOIN_TEST(a_refusal_names_the_differing_key)
{
        struct message m;
        uint16_t key;

        for (uint16_t k = 0; k < 3; k++) {
                m = join_of(&c, ROLE_ROS, 1, 7);
                m.join.keys[k]++;
                assert_int_equal(answer(t, &m, &key), WELCOME_OTHER_CONFIG);
                assert_int_equal(key, k);
        }
        m = join_of(&c, ROLE_ROS, 1, 7);
        m.join.table++;
        assert_int_equal(answer(t, &m, &key), WELCOME_OTHER_CONFIG);
        assert_int_equal(key, WELCOME_KEY_TABLE);
        m = join_of(&c, ROLE_ROS, 1, 7);
        m.n = 2;
        assert_int_equal(answer(t, &m, &key), WELCOME_OTHER_CONFIG);
        assert_int_equal(key, WELCOME_KEY_TABLE);
        assert_notice(t, NOTICE_REFUSED, WELCOME_OTHER_CONFIG);
        assert_no_notice(t); /* once, however often it retries */
        assert_false(speaks(t, 1, 7, 0));
        m = join_of(&c, ROLE_ROS, 1, 7);
        assert_int_equal(answer(t, &m, &key), WELCOME_OK);
        assert_true(speaks(t, 1, 7, 0));
}

JOIN_TEST(run_numbers_agree)
{
        struct message m = join_of(&c, ROLE_SFI, 0, 7);

        m.join.run = TRACE_RUN + 1;
        assert_int_equal(answer(t, &m, NULL), WELCOME_OTHER_RUN);
        assert_notice(t, NOTICE_REFUSED, WELCOME_OTHER_RUN);
        m.join.run = TRACE_RUN;
        assert_int_equal(answer(t, &m, NULL), WELCOME_OK);
        m.join.run = 0;
        assert_int_equal(answer(t, &m, NULL), WELCOME_OK);
}

JOIN_TEST(a_silent_node_can_be_replaced)
{
        struct message m = join_of(&c, ROLE_ROS, 0, 1), other = join_of(&c, ROLE_ROS, 0, 2);

        assert_int_equal(answer(t, &m, NULL), WELCOME_OK);
        assert_true(speaks(t, 0, 1, 0));
        dfm_pass_ns(t, c.occupied_ns - 1);
        assert_int_equal(answer(t, &other, NULL), WELCOME_OCCUPIED);
        dfm_pass_ns(t, 1);
        assert_int_equal(answer(t, &other, NULL), WELCOME_OK);
        /* The previous one must join again, and does not get its place back. */
        speaks(t, 0, 1, 1);
        assert_dfm_says(t, "ros0: Welcome occupied run 7");
        speaks(t, 0, 2, 0);
        assert_int_equal(answer(t, &m, NULL), WELCOME_OCCUPIED);
}

JOIN_TEST(two_active_incarnations_are_detected)
{
        struct message m = join_of(&c, ROLE_ROS, 0, 1), other = join_of(&c, ROLE_ROS, 0, 2);

        answer(t, &m, NULL);
        for (uint32_t k = 0; k < 3; k++) {
                speaks(t, 0, 1, k);
                assert_int_equal(answer(t, &other, NULL), WELCOME_OCCUPIED);
        }
        assert_notice(t, NOTICE_JOINED, WELCOME_OK);
        assert_no_notice(t);
        speaks(t, 0, 1, 3);
        assert_int_equal(answer(t, &other, NULL), WELCOME_TWICE);
        assert_notice(t, NOTICE_REFUSED, WELCOME_TWICE);
        assert_true(speaks(t, 0, 1, 4));
}

JOIN_TEST(nodes_of_another_run_and_late_counting_nodes_are_refused, c.previous.known = true)
{
        struct message m = join_of(&c, ROLE_ROS, 0, 9);

        m.header.cookie = TRACE_COOKIE + 5;
        assert_int_equal(answer(t, &m, NULL), WELCOME_OVER);
        assert_notice(t, NOTICE_REFUSED, WELCOME_OVER);
        c.keys = (struct member_keys){};
        dfm_free(t->dfm);
        dfm_driver_start(t, &c);
        m = join_of(&c, ROLE_ROS, 0, 9);
        m.join.flags = JOIN_COUNTS;
        assert_int_equal(answer(t, &m, NULL), WELCOME_BEGUN);
        m.join.incarnation = 1; /* it was present at the start */
        assert_int_equal(answer(t, &m, NULL), WELCOME_OK);
}

JOIN_TEST(malformed_messages_are_refused)
{
        struct message m = join_of(&c, ROLE_ROS, 2, 1);

        assert_false(dfm_receive(t->dfm, t->now_ns, &m));
        m = join_of(&c, ROLE_DFM, 0, 1);
        assert_false(dfm_receive(t->dfm, t->now_ns, &m));
        m = join_of(&c, ROLE_ROS, 0, 0);
        assert_false(dfm_receive(t->dfm, t->now_ns, &m));
        assert_dfm_says(t, "");
}
