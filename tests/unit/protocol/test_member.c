/* A node's membership in a run: which messages it trusts, when it joins, and what late messages of a previous
 * DFM can change. */
#include "../test.h"

#include "protocol/member.h"

#define TRACE_BEGIN_NS (10 * NS_PER_S)
#define TRACE_COOKIE UINT64_C(0xC00C1E)
#define TRACE_DFM UINT64_C(0xDF)
#define TRACE_RUN 7
#define OURS UINT64_C(0x1CA)
#define RETRY_NS (100 * NS_PER_MS)

static struct member_config config_of(void)
{
        struct member_config c = {.incarnation = OURS, .run = 5, .flags = JOIN_COUNTS, .retry_ns = RETRY_NS};

        c.keys = (struct member_keys){.table = 11, .n = 2, .values = {21, 22}};
        return c;
}

static struct member begun(void)
{
        struct member_config c = config_of();
        struct member m;

        member_init(&m, &c, ROLE_ROS, 4, TRACE_BEGIN_NS);
        return m;
}

static enum member_news welcome(struct member *m, uint64_t now_ns, uint64_t dfm, uint64_t cookie,
                                enum welcome_verdict verdict)
{
        struct message w = {.header = {.cookie = cookie, .sender_role = ROLE_DFM, .type = MESSAGE_WELCOME},
                            .dfm = dfm};

        w.welcome.incarnation = OURS;
        w.welcome.run = TRACE_RUN;
        w.welcome.verdict = verdict;
        return member_receive_welcome(m, now_ns, &w);
}

/* `resumed`: the DFM had resumed the run of a previous DFM. */
static enum member_news resumed_welcome(struct member *m, uint64_t now_ns, uint64_t cookie, bool resumed)
{
        struct message w = {.header = {.cookie = cookie,
                                       .sender_role = ROLE_DFM,
                                       .type = MESSAGE_WELCOME,
                                       .transaction = resumed},
                            .dfm = TRACE_DFM,
                            .welcome = {.incarnation = OURS, .run = TRACE_RUN}};

        return member_receive_welcome(m, now_ns, &w);
}

static bool receives(struct member *m, uint64_t now_ns, enum node_role from, uint64_t dfm, uint64_t cookie)
{
        struct message w = {.header = {.cookie = cookie, .sender_role = from, .type = MESSAGE_KEEP_ALIVE},
                            .dfm = dfm};

        return member_accepts(m, now_ns, &w);
}

static bool joins(struct member *m, uint64_t now_ns)
{
        struct message join;

        return member_make_join(m, now_ns, false, &join);
}

TEST(joins_until_it_is_welcome)
{
        struct member m = begun();
        uint64_t now_ns = TRACE_BEGIN_NS;
        struct message j;

        assert_true(member_make_join(&m, now_ns, false, &j));
        assert_fields(&j.header, cookie, 0, sender_role, ROLE_ROS, sender_index, 4);
        assert_fields(&j.join, incarnation, OURS, run, 5, flags, JOIN_COUNTS, table, 11);
        assert_int_equal(j.n, 2);
        assert_int_equal(j.join.keys[1], 22);
        assert_false(joins(&m, now_ns + RETRY_NS - 1));
        assert_true(joins(&m, now_ns + RETRY_NS));
        assert_int_equal(welcome(&m, now_ns, TRACE_DFM, TRACE_COOKIE, WELCOME_OK), MEMBER_JOINED);
        assert_false(joins(&m, now_ns + 1000 * NS_PER_S));
        assert_int_equal(m.run, TRACE_RUN);
}

TEST(trusts_only_its_own_run_and_dfm)
{
        struct member m = begun();
        uint64_t now_ns = TRACE_BEGIN_NS;

        assert_false(receives(&m, now_ns, ROLE_DFM, TRACE_DFM, TRACE_COOKIE));
        assert_int_equal(m.foreign, 0); /* it is in no run: nothing is foreign yet */
        assert_true(joins(&m, now_ns));
        welcome(&m, now_ns, TRACE_DFM, TRACE_COOKIE, WELCOME_OK);
        assert_true(receives(&m, now_ns + 1, ROLE_DFM, TRACE_DFM, TRACE_COOKIE));
        assert_int_equal(m.received_ns, now_ns + 1);
        assert_true(receives(&m, now_ns + 2, ROLE_SFI, 0, TRACE_COOKIE));
        assert_int_equal(m.received_ns, now_ns + 1); /* that was not the DFM */
        assert_false(receives(&m, now_ns, ROLE_SFI, 0, TRACE_COOKIE + 1));
        assert_false(joins(&m, now_ns + NS_PER_S)); /* another node is no reason to join */
        assert_false(receives(&m, now_ns + NS_PER_S, ROLE_DFM, TRACE_DFM + 1, TRACE_COOKIE));
        assert_int_equal(m.foreign, 2);
        assert_true(joins(&m, now_ns + NS_PER_S));
}

/* A stranger cannot cause a Join more often than every 20 ms. */
TEST(foreign_senders_cause_few_joins)
{
        struct member m = begun();
        uint64_t now_ns = TRACE_BEGIN_NS;
        int n = 0;

        assert_true(joins(&m, now_ns));
        welcome(&m, now_ns, TRACE_DFM, TRACE_COOKIE, WELCOME_OK);
        for (int i = 0; i < 1000; i++, now_ns += NS_PER_MS) {
                receives(&m, now_ns, ROLE_DFM, (uint64_t)i + 1000, TRACE_COOKIE);
                n += joins(&m, now_ns);
        }
        assert_int_equal(n, 49);
}

TEST(a_refusal_is_reported_once_and_join_repeats)
{
        struct member m = begun();
        uint64_t now_ns = TRACE_BEGIN_NS;

        assert_true(joins(&m, now_ns));
        assert_int_equal(welcome(&m, now_ns, TRACE_DFM, 0, WELCOME_OTHER_CONFIG), MEMBER_REFUSED);
        assert_int_equal(welcome(&m, now_ns, TRACE_DFM, 0, WELCOME_OTHER_CONFIG), MEMBER_NOTHING);
        assert_false(member_is_joined(&m));
        assert_true(joins(&m, now_ns + RETRY_NS));
        assert_int_equal(welcome(&m, now_ns, TRACE_DFM, TRACE_COOKIE, WELCOME_OK), MEMBER_JOINED);
        assert_int_equal(m.refusal, WELCOME_OK);
}

TEST(a_welcome_for_another_node_is_ignored)
{
        struct message w = {
                .header = {.cookie = TRACE_COOKIE, .sender_role = ROLE_DFM, .type = MESSAGE_WELCOME},
                .dfm = TRACE_DFM};
        struct member m = begun();

        w.welcome.incarnation = OURS + 1;
        assert_int_equal(member_receive_welcome(&m, TRACE_BEGIN_NS, &w), MEMBER_NOTHING);
        w.welcome.incarnation = OURS;
        w.header.sender_role = ROLE_SFI;
        assert_int_equal(member_receive_welcome(&m, TRACE_BEGIN_NS, &w), MEMBER_NOTHING);
        w.header.sender_role = ROLE_DFM;
        w.header.cookie = 0;
        assert_int_equal(member_receive_welcome(&m, TRACE_BEGIN_NS, &w), MEMBER_NOTHING);
        w.header.cookie = TRACE_COOKIE;
        w.dfm = 0;
        assert_int_equal(member_receive_welcome(&m, TRACE_BEGIN_NS, &w), MEMBER_NOTHING);
        assert_false(member_is_joined(&m));
}

TEST(another_dfm_is_followed_after_a_join)
{
        struct member m = begun();
        uint64_t now_ns = TRACE_BEGIN_NS;
        struct message j;

        assert_true(joins(&m, now_ns));
        welcome(&m, now_ns, TRACE_DFM, TRACE_COOKIE, WELCOME_OK);
        now_ns += NS_PER_S;
        /* A Welcome that answers no Join may be long delayed. */
        assert_int_equal(welcome(&m, now_ns, TRACE_DFM + 1, TRACE_COOKIE, WELCOME_OK), MEMBER_NOTHING);
        assert_int_equal(m.dfm, TRACE_DFM);
        assert_false(receives(&m, now_ns, ROLE_DFM, TRACE_DFM + 1, TRACE_COOKIE));
        assert_true(member_make_join(&m, now_ns, true, &j));
        assert_int_equal(j.header.cookie, TRACE_COOKIE);
        assert_int_equal(j.dfm, TRACE_DFM);
        assert_int_equal(j.join.run, TRACE_RUN);
        assert_int_equal(welcome(&m, now_ns, TRACE_DFM + 1, TRACE_COOKIE, WELCOME_OK), MEMBER_NEW_DFM);
        assert_int_equal(m.dfm, TRACE_DFM + 1);
}

/* The streams of the new DFM would restart here but not there, and never agree again. */
TEST(a_late_welcome_of_a_previous_dfm_is_ignored)
{
        struct member m = begun();
        uint64_t now_ns = TRACE_BEGIN_NS;

        assert_true(joins(&m, now_ns));
        welcome(&m, now_ns, TRACE_DFM, TRACE_COOKIE, WELCOME_OK);
        for (uint64_t dfm = TRACE_DFM + 1; dfm < TRACE_DFM + 4; dfm++) {
                now_ns += NS_PER_S;
                assert_false(receives(&m, now_ns, ROLE_DFM, dfm, TRACE_COOKIE));
                assert_true(joins(&m, now_ns));
                assert_int_equal(welcome(&m, now_ns, dfm, TRACE_COOKIE, WELCOME_OK), MEMBER_NEW_DFM);
                for (uint64_t previous = TRACE_DFM; previous < dfm; previous++) {
                        /* Its last messages make a Join due, and its last Welcome arrives after that. */
                        now_ns += NS_PER_S;
                        assert_false(receives(&m, now_ns, ROLE_DFM, previous, TRACE_COOKIE));
                        assert_int_equal(welcome(&m, now_ns, previous, TRACE_COOKIE, WELCOME_OK),
                                         MEMBER_NOTHING);
                        assert_int_equal(welcome(&m, now_ns, previous, TRACE_COOKIE, WELCOME_OVER),
                                         MEMBER_NOTHING);
                        assert_fields(&m, dfm, dfm, refusal, WELCOME_OK);
                        assert_true(receives(&m, now_ns, ROLE_DFM, dfm, TRACE_COOKIE));
                        assert_true(joins(&m, now_ns));
                        assert_int_equal(welcome(&m, now_ns, dfm, TRACE_COOKIE, WELCOME_OK), MEMBER_NOTHING);
                }
        }
}

/* A DFM that welcomed this node to a run of its own may resume another one. */
TEST(a_late_welcome_to_a_run_that_its_dfm_discarded_is_ignored)
{
        struct member m = begun();
        uint64_t now_ns = TRACE_BEGIN_NS;

        assert_true(joins(&m, now_ns));
        assert_int_equal(resumed_welcome(&m, now_ns, TRACE_COOKIE, true), MEMBER_JOINED);
        assert_int_equal(resumed_welcome(&m, now_ns, TRACE_COOKIE + 1, false), MEMBER_NOTHING);
        now_ns += NS_PER_S;
        assert_false(receives(&m, now_ns, ROLE_DFM, TRACE_DFM, TRACE_COOKIE + 1));
        assert_true(joins(&m, now_ns));
        assert_int_equal(resumed_welcome(&m, now_ns, TRACE_COOKIE + 1, false), MEMBER_NOTHING);
        assert_true(receives(&m, now_ns, ROLE_DFM, TRACE_DFM, TRACE_COOKIE));

        m = begun();
        assert_true(joins(&m, now_ns));
        assert_int_equal(resumed_welcome(&m, now_ns, TRACE_COOKIE + 1, false), MEMBER_JOINED);
        assert_false(receives(&m, now_ns, ROLE_DFM, TRACE_DFM, TRACE_COOKIE));
        assert_int_equal(resumed_welcome(&m, now_ns, TRACE_COOKIE, true), MEMBER_NEW_DFM);
        assert_int_equal(resumed_welcome(&m, now_ns, TRACE_COOKIE + 1, false), MEMBER_NOTHING);
}

/* A DFM refuses an address before the Join reaches its run, and so without the number of its Welcomes. */
TEST(a_wrong_address_is_reported_also_after_a_resume)
{
        struct member m = begun();
        uint64_t now_ns = TRACE_BEGIN_NS;

        assert_true(joins(&m, now_ns));
        assert_int_equal(resumed_welcome(&m, now_ns, TRACE_COOKIE, true), MEMBER_JOINED);
        assert_int_equal(welcome(&m, now_ns, TRACE_DFM, 0, WELCOME_ADDRESS), MEMBER_REFUSED);
        assert_int_equal(m.refusal, WELCOME_ADDRESS);
}
