/* Tests what counts as lost a short while ago: the last 5 to 10 s, or of rarer events those that ended last.
 */
#include "../test.h"

#include "base/util.h"
#include "node/metrics/metrics_state.h"

static struct losses_sample at(uint64_t seconds, uint64_t complete, uint64_t partial, uint64_t lost)
{
        return (struct losses_sample){
                .now_ns = (100 + seconds) * NS_PER_S, .complete = complete, .partial = partial, .lost = lost};
}

static struct losses_sample note(struct losses *l, struct losses_sample now)
{
        (void)losses_note(l, &now);
        return losses_recent(l);
}

TEST(losses_of_a_run_begin_with_it)
{
        struct losses l = {};
        struct losses_sample r = note(&l, at(0, 5, 2, 3));

        assert_true(r.complete == 5 && r.partial == 2 && r.lost == 3);
}

TEST(losses_are_over_after_ten_seconds)
{
        struct losses l = {};
        struct losses_sample r = {};

        for (unsigned i = 0; i <= 4; i++)
                r = note(&l, at(i, 10 * i, i, 2 * i));
        assert_true(r.complete == 40 && r.partial == 4 && r.lost == 8);
        /* From now on, all is well. */
        for (unsigned i = 5; i <= 8; i++)
                r = note(&l, at(i, 10 * i, 4, 8));
        assert_true(r.partial == 4 && r.lost == 8);
        for (unsigned i = 9; i <= 15; i++)
                r = note(&l, at(i, 10 * i, 4, 8));
        assert_true(r.partial == 0 && r.lost == 0 && r.complete > 0);
        assert_true(r.now_ns >= 105 * NS_PER_S);
}

/* A node that is looked at rarely is asked about the time since then. */
TEST(a_late_look_covers_more)
{
        struct losses l = {};
        struct losses_sample r;

        note(&l, at(0, 0, 0, 0));
        r = note(&l, at(60, 100, 0, 1));
        assert_true(r.lost == 1 && r.now_ns == 100 * NS_PER_S);
}

/* One event in a minute, and all are lost. */
TEST(rare_losses_last_until_an_event_is_complete)
{
        struct losses l = {};
        struct losses_sample r = {};

        note(&l, at(0, 0, 0, 0));
        for (unsigned i = 1; i < 300; i++) {
                r = note(&l, at(i, 0, 0, i / 60));
                assert_true((r.lost > 0) == (i >= 60));
        }
        for (unsigned i = 300; i < 320; i++)
                r = note(&l, at(i, 1, 0, 4));
        assert_true(r.lost == 0);
}

TEST(packets_that_were_only_late_are_not_lost)
{
        struct losses l = {};
        struct losses_sample now = at(0, 0, 0, 0);

        now.packets_lost = 10;
        note(&l, now);
        for (unsigned i = 1; i < 12; i++)
                note(&l, (now.now_ns += NS_PER_S, now));
        now.packets_lost = 4;
        assert_true(note(&l, now).packets_lost == 0);
}

/* Each peer has the same windows. */
TEST(fragments_are_recent_for_as_long_as_events)
{
        struct metrics_peer p = {};
        struct losses l = {};

        for (unsigned i = 0; i < 30; i++) {
                struct losses_sample now = at(i, i, i < 3 ? i : 2, 0);
                bool moved = losses_note(&l, &now);

                metrics_note_lost(&p, 10 * now.partial, moved);
                assert_int_equal(p.lost_recently, 10 * losses_recent(&l).partial);
                assert_int_equal(p.fragments_lost, 10 * now.partial);
        }
        assert_int_equal(p.lost_recently, 0);
}
