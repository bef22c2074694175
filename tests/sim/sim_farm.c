/* A level-2 farm of the simulated DFM. It loses its state while it is away. */
#include <assert.h>
#include <stdlib.h>

#include "base/util.h"
#include "sim_internal.h"

#define WAITING_MAX 4096
#define LIST 64

void sim_farm_begin(struct sim *s)
{
        s->farm.waiting = s->farm.waiting ?: calloc(WAITING_MAX, sizeof *s->farm.waiting);
        assert(s->farm.waiting);
        s->farm.cursor = s->farm.n = 0;
}

bool sim_accepts(const struct sim *s, uint64_t event)
{
        return random_mix(random_mix(s->config.faults.seed) ^ event) % 100 < s->config.accept_percent;
}

static void learn(struct sim *s, const struct dfm *d)
{
        struct undecided_entry entries[LIST];
        struct sim_farm *f = &s->farm;
        uint64_t before;

        do {
                before = f->cursor;
                size_t n = dfm_list_undecided(d, &f->cursor, entries, LIST);

                assert(f->n + n <= WAITING_MAX);
                for (size_t k = 0; k < n; k++) {
                        f->waiting[f->n] = (struct sim_waiting){
                                entries[k].event, s->now_ns + random_below(&s->random, 2 * s->config.farm_ns),
                                0};
                        sim_regions_request(s, &f->waiting[f->n++]);
                }
        } while (f->cursor != before);
}

bool sim_farm_turn(struct sim *s, struct dfm *d, uint64_t *ret_deadline_ns)
{
        const struct sim_config *c = &s->config;
        struct sim_farm *f = &s->farm;
        bool decided = false;

        *ret_deadline_ns = NEVER_NS;
        if (!c->level2.on)
                return false;
        if (s->now_ns >= c->farm_away_from_ns && s->now_ns < c->farm_away_until_ns) {
                f->cursor = f->n = 0;
                *ret_deadline_ns = c->farm_away_until_ns;
                return false;
        }
        learn(s, d);
        for (size_t k = 0; k < f->n;) {
                const struct sim_waiting w = f->waiting[k];

                if (w.left > 0 || w.due_ns > s->now_ns) {
                        *ret_deadline_ns = MIN(*ret_deadline_ns, w.left > 0 ? NEVER_NS : w.due_ns);
                        k++;
                        continue;
                }
                f->waiting[k] = f->waiting[--f->n];
                dfm_decide(d, s->now_ns,
                           &(struct decision_entry){
                                   .event = w.event,
                                   .verdict = sim_accepts(s, w.event) ? DECISION_ACCEPT : DECISION_REJECT,
                           });
                decided = true;
        }
        return decided;
}
