/* Follows sequence numbers, with a bitmap of the newest numbers and a candidate for an unconfirmed jump. */
#include "protocol/sequence.h"

#include <string.h>

#include "base/util.h"

void sequence_begin(struct sequence *q, uint32_t next)
{
        /* Numbers that the sender claimed and that never arrived are lost, because the sender is gone. */
        if (q->started)
                q->expected += q->claimed - q->next;
        q->started = true;
        q->first = q->next = q->claimed = next;
        q->agreeing = q->repeats = 0;
        /* Earlier messages are not expected, and must not compensate for a loss. */
        memset(q->seen, 0xff, sizeof q->seen);
}

bool sequence_precede(struct sequence *q, uint32_t number)
{
        uint32_t before = q->first - number;

        if (!q->started || before - 1 >= SEQUENCE_APART || q->next - number > SEQUENCE_WINDOW)
                return false;
        q->expected += before;
        q->received++;
        while (--q->first != number)
                bits_set(q->seen, q->first % SEQUENCE_WINDOW, false);
        return true;
}

void sequence_restart(struct sequence *q)
{
        sequence_begin(q, q->next);
        q->started = false;
}

static void advance(struct sequence *q, uint32_t number)
{
        q->expected += number - q->next + 1;
        q->received++;
        for (; q->next != number; q->next++)
                bits_set(q->seen, q->next % SEQUENCE_WINDOW, false);
        bits_set(q->seen, q->next++ % SEQUENCE_WINDOW, true);
        if ((int32_t)(q->claimed - q->next) < 0)
                q->claimed = q->next;
}

/* The messages after the jump agree, so the sender continues there. */
static void follow(struct sequence *q, uint32_t number, uint32_t agreeing)
{
        uint32_t ahead = number - q->next;
        bool is_gap = ahead <= SEQUENCE_GAP_MAX;

        if (is_gap) {
                q->expected += ahead;
                q->received += agreeing - 1;
                q->claimed = q->next;
        }
        sequence_begin(q, number);
        advance(q, number);
        q->resyncs++;
}

static enum sequence_verdict judge_far(struct sequence *q, uint32_t number)
{
        bool agrees = q->agreeing > 0 && number - q->suspect + SEQUENCE_APART <= 2 * SEQUENCE_APART &&
                      number != q->suspect;

        q->suspects++;
        q->agreeing = agrees ? q->agreeing + 1 : 1;
        if (!agrees || (int32_t)(number - q->suspect) > 0)
                q->suspect = number;
        if (q->agreeing < SEQUENCE_AGREE)
                return SEQUENCE_SUSPECT;
        follow(q, q->suspect, q->agreeing);
        return number == q->next - 1 ? SEQUENCE_NEW : SEQUENCE_LATE;
}

/* The network causes only a few repeats. Many repeats in ascending order show that the sender restarted. */
static enum sequence_verdict judge_repeat(struct sequence *q, uint32_t number)
{
        q->repeats = q->repeats > 0 && (int32_t)(number - q->repeat) > 0 ? q->repeats + 1 : 1;
        q->repeat = number;
        if (q->repeats < SEQUENCE_REPEATS)
                return SEQUENCE_REPEAT;
        follow(q, number, 1);
        return SEQUENCE_NEW;
}

enum sequence_verdict sequence_receive(struct sequence *q, uint32_t number)
{
        if (!q->started)
                sequence_begin(q, number);
        uint32_t ahead = number - q->next, behind = q->next - number;

        if (ahead < SEQUENCE_WINDOW) {
                q->agreeing = q->repeats = 0;
                advance(q, number);
                return SEQUENCE_NEW;
        }
        if (behind > SEQUENCE_WINDOW)
                return judge_far(q, number);
        q->agreeing = 0;
        if (bits_get(q->seen, number % SEQUENCE_WINDOW))
                return judge_repeat(q, number);
        bits_set(q->seen, number % SEQUENCE_WINDOW, true);
        q->received++;
        return SEQUENCE_LATE;
}

bool sequence_claim(struct sequence *q, uint32_t next)
{
        if (!q->started)
                return false;
        uint32_t ahead = next - q->next, behind = q->next - next;

        if (ahead > SEQUENCE_GAP_MAX && behind > SEQUENCE_GAP_MAX) {
                q->suspects++;
                return false;
        }
        /* The newest claim replaces the previous one, so that a false claim expires. */
        q->claimed = ahead <= SEQUENCE_GAP_MAX ? next : q->next;
        return true;
}

uint32_t sequence_ahead(const struct sequence *q)
{
        return q->started ? q->claimed - q->next : 0;
}

uint64_t sequence_lost(const struct sequence *q)
{
        return q->expected - q->received + sequence_ahead(q);
}
