/* A level-2 farm for the cores of a simulated system: it reads lists of undecided events, requests fragments,
 * and decides. */
#include "sim/sim_farm.h"

#include <errno.h>
#include <stdlib.h>

#include "base/util.h"

#define WAITING_MAX 4096u
#define LIST 64u
#define CLIENT 3
/* One in this number of answers breaks the connection. */
#define BREAKS 100

int sim_farm_init(struct sim_farm *f, const struct sim_farm_config *config)
{
        *f = (struct sim_farm){.config = *config};
        f->waiting = calloc(WAITING_MAX, sizeof *f->waiting);
        return f->waiting ? 0 : -ENOMEM;
}

void sim_farm_fini(struct sim_farm *f)
{
        free(f->waiting);
        f->waiting = NULL;
}

void sim_farm_begin(struct sim_farm *f)
{
        f->cursor = f->n = 0;
}

bool sim_farm_accepts(const struct sim_farm *f, uint64_t event)
{
        return random_mix(random_mix(f->config.seed) ^ event) % 100 < f->config.accept_percent;
}

/* Returns the rank of the ROS for this event. The farm requests the fragments of the ROSs whose rank is below
 * config.regions. */
static uint32_t rank_of(const struct sim_farm *f, uint64_t event, uint32_t ros)
{
        uint32_t n = f->config.n_ros, first = (uint32_t)(random_mix(event) % n);

        return (ros + n - first) % n;
}

/* False: the ROS is absent, or the maximum number of requests to it is already open. */
static bool request(const struct sim_farm *f, uint32_t ros, const struct sim_waiting *w, uint64_t now_ns)
{
        struct ros *core = f->config.ros(f->config.ctx, ros);

        if (!core || !ros_region_has_room(core, CLIENT))
                return false;
        ros_region_request(core, now_ns, CLIENT, w->resets,
                           &(struct request_entry){
                                   .event = w->event, .l1_id = (uint32_t)w->event, .to_bytes = UINT32_MAX});
        f->config.wake(f->config.ctx, ROLE_ROS, ros, now_ns + f->config.latency_ns);
        return true;
}

static void request_all(const struct sim_farm *f, struct sim_waiting *w, uint64_t now_ns)
{
        for (uint32_t i = 0; f->config.regions > 0 && i < f->config.n_ros; i++) {
                uint32_t rank = rank_of(f, w->event, i);

                if (rank < f->config.regions && request(f, i, w, now_ns))
                        w->left |= 1u << rank;
        }
}

static void learn(struct sim_farm *f, const struct dfm *d, uint64_t now_ns)
{
        struct undecided_entry entries[LIST];
        uint64_t before;

        do {
                size_t n = MIN((size_t)LIST, WAITING_MAX - f->n);

                before = f->cursor;
                n = n > 0 ? dfm_list_undecided(d, &f->cursor, entries, n) : 0;
                for (size_t k = 0; k < n; k++) {
                        uint64_t takes_ns =
                                random_below(f->config.random, MAX(2 * f->config.decide_ns, UINT64_C(1)));

                        f->waiting[f->n] = (struct sim_waiting){
                                .event = entries[k].event,
                                .due_ns = now_ns + takes_ns,
                                .resets = dfm_run_view(d).resets,
                        };
                        request_all(f, &f->waiting[f->n++], now_ns);
                }
        } while (f->cursor != before);
}

static void decide(const struct sim_farm *f, struct dfm *d, uint64_t event, uint64_t now_ns)
{
        dfm_decide(d, now_ns,
                   &(struct decision_entry){
                           .event = event,
                           .verdict = sim_farm_accepts(f, event) ? DECISION_ACCEPT : DECISION_REJECT,
                   });
}

bool sim_farm_turn(struct sim_farm *f, struct dfm *d, uint64_t now_ns, uint64_t *ret_deadline_ns)
{
        bool decided = false;

        *ret_deadline_ns = NEVER_NS;
        learn(f, d, now_ns);
        for (size_t k = 0; k < f->n;) {
                const struct sim_waiting w = f->waiting[k];

                if (w.left > 0 || w.due_ns > now_ns) {
                        *ret_deadline_ns = MIN(*ret_deadline_ns, w.left > 0 ? NEVER_NS : w.due_ns);
                        k++;
                        continue;
                }
                f->waiting[k] = f->waiting[--f->n];
                decide(f, d, w.event, now_ns);
                decided = true;
        }
        return decided;
}

static void record_answer(struct sim_farm *f, uint32_t ros, uint64_t event, uint64_t now_ns)
{
        uint32_t rank = rank_of(f, event, ros);

        for (size_t k = 0; rank < f->config.regions && k < f->n; k++) {
                struct sim_waiting *w = &f->waiting[k];

                if (w->event != event || !(w->left >> rank & 1))
                        continue;
                w->left &= ~(1u << rank);
                w->due_ns = MAX(w->due_ns, now_ns + f->config.latency_ns);
                if (w->left == 0)
                        f->config.wake(f->config.ctx, ROLE_DFM, 0, w->due_ns);
        }
}

void sim_farm_reconnect(struct sim_farm *f, uint32_t ros, uint64_t now_ns)
{
        if (f->config.regions == 0)
                return;
        ros_region_forget(f->config.ros(f->config.ctx, ros), CLIENT);
        for (size_t k = 0; k < f->n; k++) {
                uint32_t rank = rank_of(f, f->waiting[k].event, ros);

                if (rank < f->config.regions && f->waiting[k].left >> rank & 1)
                        request(f, ros, &f->waiting[k], now_ns);
        }
}

bool sim_farm_answer(const struct sim_farm *f, uint32_t ros, struct ros_job *ret)
{
        return f->config.regions > 0 && ros_region_answer(f->config.ros(f->config.ctx, ros), CLIENT, ret);
}

void sim_farm_answered(struct sim_farm *f, uint32_t ros, uint64_t event, uint64_t now_ns)
{
        if (random_below(f->config.random, BREAKS) == 0)
                sim_farm_reconnect(f, ros, now_ns);
        else
                record_answer(f, ros, event, now_ns);
}
