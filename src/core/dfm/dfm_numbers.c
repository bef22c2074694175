/* Tracks the numbers of triggers from outside, with a bitmap of the newest numbers and a candidate for an
 * unconfirmed jump. Between two resets, no number is accepted twice. */
#include <string.h>

#include "base/util.h"
#include "dfm_internal.h"

/* A jump ahead by GAP_MAX or more is accepted only after AGREE consecutive numbers, each at most APART above
 * the previous one. */
#define GAP_MAX (UINT64_C(1) << 20)
#define AGREE 4u
#define APART 64u

void dfm_numbers_begin(struct dfm_numbers *n, uint64_t next)
{
        *n = (struct dfm_numbers){.first = next, .next = next, .started = true};
        /* Earlier numbers belong to the time before the reset. */
        memset(n->seen, 0xff, sizeof n->seen);
}

/* The number takes the place of one that becomes too old. */
static void record(struct dfm_numbers *n, uint64_t number, bool came)
{
        uint64_t place = number % DFM_NUMBERS_WINDOW;

        if (!bits_get(n->seen, place))
                n->whole_from = number - DFM_NUMBERS_WINDOW + 1;
        bits_set(n->seen, place, came);
}

static enum dfm_offer advance(struct dfm_numbers *n, uint64_t number)
{
        if (number - n->next >= DFM_NUMBERS_WINDOW) {
                memset(n->seen, 0, sizeof n->seen);
                n->whole_from = number - DFM_NUMBERS_WINDOW + 1;
        } else
                for (uint64_t k = n->next; k != number; k++)
                        record(n, k, false);
        record(n, number, true);
        n->next = number + 1;
        n->agreeing = 0;
        return OFFER_QUEUED;
}

static enum dfm_offer judge_far(struct dfm_numbers *n, uint64_t number)
{
        bool agrees = n->agreeing > 0 && number - n->suspect - 1 < APART;

        n->agreeing = agrees ? n->agreeing + 1 : 1;
        n->suspect = number;
        return n->agreeing < AGREE ? OFFER_IMPLAUSIBLE : advance(n, number);
}

enum dfm_offer dfm_numbers_accept(struct dfm_numbers *n, uint64_t number, uint64_t *missing)
{
        uint64_t ahead, behind;

        if (!n->started)
                dfm_numbers_begin(n, number);
        ahead = number - n->next;
        behind = n->next - number;
        if (ahead < GAP_MAX) {
                *missing += ahead;
                return advance(n, number);
        }
        if (ahead < UINT64_C(1) << 63)
                return judge_far(n, number);
        n->agreeing = 0;
        if (behind > DFM_NUMBERS_WINDOW || bits_get(n->seen, number % DFM_NUMBERS_WINDOW))
                return OFFER_REPEATED;
        /* The datagram with this number was overtaken. */
        bits_set(n->seen, number % DFM_NUMBERS_WINDOW, true);
        *missing -= MIN(*missing, UINT64_C(1));
        return OFFER_QUEUED;
}

bool dfm_numbers_precede(struct dfm_numbers *n, uint64_t number, uint64_t *missing)
{
        if (!n->open || number >= n->first || n->next - number > DFM_NUMBERS_WINDOW)
                return false;
        *missing += n->first - number - 1;
        while (--n->first != number)
                bits_set(n->seen, n->first % DFM_NUMBERS_WINDOW, false);
        return true;
}

/* The newest numbers were those of the triggers in the queue. */
bool dfm_numbers_resume(struct dfm_numbers *n, const struct dfm_came *c, uint64_t events, uint64_t *missing)
{
        uint64_t waiting = missing ? c->waiting - MIN(c->waiting, events) : 0, next = c->next, gaps = 0;

        for (; waiting > 0; waiting -= bits_get(c->seen, next % DFM_NUMBERS_WINDOW)) {
                if (next == 0 || c->next - next == DFM_NUMBERS_WINDOW)
                        return false;
                gaps += !bits_get(c->seen, --next % DFM_NUMBERS_WINDOW);
        }
        *n = (struct dfm_numbers){.first = next, .next = next, .started = true};
        memcpy(n->seen, c->seen, sizeof n->seen);
        for (; events > c->waiting; events--)
                (void)advance(n, n->next);
        if (missing)
                *missing -= MIN(*missing, gaps);
        return true;
}

void dfm_numbers_miss(struct dfm_numbers *n, uint64_t next)
{
        if (next == n->next)
                return;
        (void)advance(n, next - 1);
        bits_set(n->seen, (next - 1) % DFM_NUMBERS_WINDOW, false);
}

void dfm_numbers_skip(struct dfm_numbers *n, uint64_t next)
{
        if (n->started && next - n->next < UINT64_C(1) << 63 && next != n->next)
                (void)advance(n, next - 1);
}

enum number_state dfm_numbers_state(const struct dfm_numbers *n, uint64_t number)
{
        if (!n->started || number >= n->next)
                return NUMBER_NEW;
        if (n->next - number > DFM_NUMBERS_WINDOW)
                return number >= MAX(n->first, n->whole_from) ? NUMBER_SEEN : NUMBER_OLD;
        return bits_get(n->seen, number % DFM_NUMBERS_WINDOW) ? NUMBER_SEEN : NUMBER_NEW;
}
