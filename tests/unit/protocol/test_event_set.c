/* Compares the event set with a plain one, far into a run and across the points where its ring wraps around;
 * and leaps of the oldest event. */
#include "../test.h"

#include "base/random.h"
#include "protocol/event.h"
#include "protocol/event_set.h"
#include "protocol/sequence.h"

#define NEAR 512

/* The contents of the set for events [base, base + NEAR), and for the same number one window further. */
struct model {
        uint64_t base, from;
        bool here[NEAR], there[NEAR];
};

static bool *place(struct model *m, uint64_t event)
{
        if (event >= m->base && event - m->base < NEAR)
                return &m->here[event - m->base];
        return &m->there[event - m->base - EVB_EVENT_WINDOW];
}

static bool is_inside(const struct model *m, uint64_t event)
{
        return event >= m->from && event < m->from + EVB_EVENT_WINDOW;
}

static uint64_t any_event(struct random *r, const struct model *m)
{
        return m->base + random_below(r, NEAR) + (random_below(r, 2) ? EVB_EVENT_WINDOW : 0);
}

static void move(struct event_set *s, struct model *m, uint64_t from)
{
        event_set_advance(s, from);
        if (from <= m->from)
                return;
        m->from = from;
        for (uint64_t i = 0; i < NEAR; i++) {
                m->here[i] &= is_inside(m, m->base + i);
                m->there[i] &= is_inside(m, m->base + EVB_EVENT_WINDOW + i);
        }
}

static void compare(const struct event_set *s, struct model *m)
{
        for (uint64_t i = 0; i < NEAR; i++) {
                assert_int_equal(event_set_has(s, m->base + i), m->here[i]);
                assert_int_equal(event_set_has(s, m->base + EVB_EVENT_WINDOW + i), m->there[i]);
        }
        for (uint64_t i = 0; i < NEAR; i += 64) {
                uint64_t near = event_set_word(s, m->base + i);
                uint64_t far = event_set_word(s, m->base + EVB_EVENT_WINDOW + i);

                for (uint64_t bit = 0; bit < 64; bit++) {
                        assert_int_equal(near >> bit & 1, m->here[i + bit]);
                        assert_int_equal(far >> bit & 1, m->there[i + bit]);
                }
        }
}

static void step(struct event_set *s, struct model *m, struct random *r)
{
        uint64_t event = any_event(r, m);

        switch (random_below(r, 8)) {
        case 0:
                move(s, m, m->base + random_below(r, 64) + (m->from > m->base ? m->from - m->base : 0));
                break;
        case 1:
                event_set_remove(s, event);
                *place(m, event) &= !is_inside(m, event);
                break;
        default:
                event_set_add(s, event);
                *place(m, event) |= is_inside(m, event);
        }
}

TEST(matches_a_plain_set)
{
        static const uint64_t bases[] = {0, EVB_EVENT_WINDOW - 256, 7 * (uint64_t)EVB_EVENT_WINDOW - 64,
                                         UINT64_C(5000000000) / 64 * 64, UINT64_C(1000000000000) / 64 * 64};
        _cleanup_(event_set_fini) struct event_set s, copy;

        assert_int_equal(event_set_init(&s), 0);
        assert_int_equal(event_set_init(&copy), 0);
        for (uint64_t seed = 1; seed <= 20; seed++) {
                for (size_t b = 0; b < sizeof bases / sizeof *bases; b++) {
                        struct model m = {.base = bases[b], .from = bases[b]};
                        struct random r;

                        random_init(&r, seed);
                        event_set_clear(&s, m.from);
                        for (int i = 0; i < 400 && m.from < m.base + NEAR - 64; i++)
                                step(&s, &m, &r);
                        compare(&s, &m);
                        event_set_copy(&copy, &s);
                        compare(&copy, &m);
                        /* A leap beyond the window leaves nothing. */
                        move(&s, &m, m.from + EVB_EVENT_WINDOW + 5 * seed);
                        compare(&s, &m);
                }
        }
}

/* Only what was added is cleared, so a copy must know that. */
TEST(a_copy_can_be_cleared)
{
        _cleanup_(event_set_fini) struct event_set s, copy;

        assert_int_equal(event_set_init(&s) | event_set_init(&copy), 0);
        event_set_add(&s, 5);
        event_set_copy(&copy, &s);
        event_set_clear(&copy, 0);
        assert_false(event_set_has(&copy, 5));
        event_set_copy(&copy, &s);
        event_set_advance(&copy, 6);
        event_set_clear(&copy, 0);
        assert_false(event_set_has(&copy, 5));
        assert_true(event_set_has(&s, 5));
}

/* Events that end in order leave an empty set each time, which costs nothing to clear. */
TEST(a_set_that_was_emptied_in_steps_is_empty)
{
        _cleanup_(event_set_fini) struct event_set s;

        assert_int_equal(event_set_init(&s), 0);
        for (uint64_t event = 0, from; event < 1000; event = from) {
                from = event + 1 + event % 3;
                event_set_add(&s, event);
                event_set_advance(&s, from);
                assert_false(event_set_has(&s, event));
                assert_fields(&s, added_from, from, added_to, from);
        }
}

TEST(the_oldest_event_leaps_only_by_agreement)
{
        struct random r;

        random_init(&r, 1);
        for (int run = 0; run < 1000; run++) {
                uint64_t now = random_below(&r, UINT64_C(1) << 40);
                uint64_t window = 1 + random_below(&r, EVB_EVENT_WINDOW);
                uint64_t far = now + window + 1 + random_below(&r, UINT64_C(1) << 40);
                struct jump j = {.started = true};

                assert_true(jump_is_believed(&j, now, now + random_below(&r, window + 1), window));
                assert_false(jump_is_believed(&j, now, far, window));
                assert_false(jump_is_believed(&j, now, far + random_below(&r, window), window));
                if (run % 2) /* one that disagrees starts afresh */
                        assert_false(jump_is_believed(&j, now, far + 3 * window, window));
                else /* the true sender reports in between */
                        assert_true(jump_is_believed(&j, now, now + 1, window));
        }
        for (int run = 0; run < 1000; run++) {
                uint64_t far = EVB_EVENT_WINDOW + 1 + random_below(&r, UINT64_C(1) << 40);
                struct jump j = {.started = true};

                assert_false(jump_is_believed(&j, 0, far, EVB_EVENT_WINDOW));
                assert_false(jump_is_believed(&j, 0, far + 1, EVB_EVENT_WINDOW));
                assert_true(jump_is_believed(&j, 0, far + 1, EVB_EVENT_WINDOW));
        }
        struct jump first = {};

        assert_true(jump_is_believed(&first, 0, UINT64_C(1) << 50, EVB_EVENT_WINDOW));
}
