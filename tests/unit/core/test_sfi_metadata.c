/* The metadata with which an operator started the run: they come in parts, in any order, and more than once.
 */
#include "sfi_driver.h"

static void sfi_gets_metadata(struct sfi_driver *t, uint16_t version, uint16_t number, uint16_t count,
                              const char *name, const char *value)
{
        t->message.metadata.version = version;
        t->message.metadata.number = number;
        t->message.metadata.count = count;
        snprintf(t->message.metadata.entry.name, METADATA_NAME_BYTES, "%s", name);
        snprintf(t->message.metadata.entry.value, METADATA_VALUE_BYTES, "%s", value);
        assert_true(to_sfi(t, ROLE_DFM, 0, MESSAGE_METADATA, 0));
}

static void sfi_receives_version(struct sfi_driver *t, uint16_t version)
{
        memset(&t->message.keep_alive, 0, sizeof t->message.keep_alive);
        t->message.keep_alive.state = RUN_RUNNING;
        t->message.keep_alive.metadata = version;
        assert_true(to_sfi(t, ROLE_DFM, 0, MESSAGE_KEEP_ALIVE, t->keep_alive_next++));
}

/* The version in the Alive that is due; 0: none is due. */
static uint16_t reported(struct sfi_driver *t)
{
        uint16_t version = 0;

        while (sfi_makes(t)) {
                if (t->message.header.type == MESSAGE_ALIVE)
                        version = t->message.alive.metadata;
        }
        return version;
}

SFI_TEST(a_run_without_any_waits_for_none, 0)
{
        assert_null(sfi_metadata(t->sfi));
        sfi_receives_version(t, 0);
        assert_int_equal(sfi_metadata(t->sfi)->n, 0);
}

SFI_TEST(they_are_complete_once_all_have_come, 0)
{
        sfi_gets_metadata(t, 1, 2, 3, "C", "3");
        sfi_gets_metadata(t, 1, 0, 3, "A", "1");
        sfi_gets_metadata(t, 1, 0, 3, "A", "1");
        assert_int_equal(reported(t), 0);
        sfi_receives_version(t, 1);
        assert_null(sfi_metadata(t->sfi));
        sfi_gets_metadata(t, 1, 1, 3, "B", "2");
        assert_int_equal(reported(t), 1);
        assert_int_equal(sfi_metadata(t->sfi)->n, 3);
        assert_string_equal(sfi_metadata(t->sfi)->entries[1].name, "B");
        assert_string_equal(sfi_metadata(t->sfi)->entries[2].value, "3");
        /* What is repeated changes nothing. */
        sfi_gets_metadata(t, 1, 1, 3, "B", "other");
        assert_string_equal(sfi_metadata(t->sfi)->entries[1].value, "2");
}

SFI_TEST(another_version_replaces_them, 0)
{
        sfi_gets_metadata(t, 1, 0, 2, "A", "1");
        sfi_gets_metadata(t, 2, 1, 2, "B", "2");
        assert_int_equal(reported(t), 0); /* parts of two versions make none */
        sfi_gets_metadata(t, 2, 0, 2, "A", "2");
        assert_int_equal(reported(t), 2);
        sfi_receives_version(t, 3);
        assert_null(sfi_metadata(t->sfi));
        sfi_gets_metadata(t, 3, 0, 0, "", "");
        assert_int_equal(reported(t), 3);
        assert_int_equal(sfi_metadata(t->sfi)->n, 0);
}

/* The DFM has no metadata, and the files are open. */
SFI_TEST(a_restarted_dfm_does_not_take_them_away, 0)
{
        sfi_gets_metadata(t, 1, 0, 1, "A", "1");
        sfi_receives_version(t, 1);
        sfi_gets_welcome(t, TRACE_DFM, WELCOME_OK);
        sfi_receives_version(t, 0);
        assert_int_equal(sfi_metadata(t->sfi)->n, 1);
}

/* Its run never began. The next one is another run, whose versions count from the beginning. */
SFI_TEST(those_of_a_run_that_did_not_begin_are_forgotten, 0)
{
        sfi_gets_metadata(t, 1, 0, 1, "A", "1");
        assert_int_equal(reported(t), 1);
        /* The SFI joins when it receives a foreign message. */
        t->now_ns += NS_PER_S;
        trace_address(&t->message, TRACE_DFM + 1, ROLE_DFM, 0, MESSAGE_KEEP_ALIVE, 0);
        t->message.header.cookie = TRACE_COOKIE + 1;
        (void)sfi_receive(t->sfi, t->now_ns, &t->message);
        (void)reported(t);
        t->message.welcome.incarnation = c.member.incarnation;
        t->message.welcome.run = TRACE_RUN;
        t->message.welcome.verdict = WELCOME_OK;
        trace_address(&t->message, TRACE_DFM + 1, ROLE_DFM, 0, MESSAGE_WELCOME, 0);
        t->message.header.cookie = TRACE_COOKIE + 1;
        assert_true(sfi_receive(t->sfi, t->now_ns, &t->message));
        assert_null(sfi_metadata(t->sfi));
        assert_int_equal(reported(t), 0);
}
