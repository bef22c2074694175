/* A turn of the DFM, as in node/role_dfm.c. */
#include "sim_internal.h"

/* Same value as in node/role.c. */
#define AWAY_KEEP_ALIVES 3

static void record_absence(const struct sim *s, struct sim_node *n)
{
        uint64_t now_ns = sim_now_ns(s), away_ns = n->last_turn_ns > 0 ? now_ns - n->last_turn_ns : 0;

        n->last_turn_ns = now_ns;
        if (away_ns >= AWAY_KEEP_ALIVES * s->scenario->dfm.keep_alive_ns)
                dfm_was_paused(n->dfm, now_ns, away_ns);
}

/* Stores the state that the daemon stores in its file: a restarted DFM resumes only a run that has not
 * ended. */
static void remember_run(struct sim *s, const struct sim_node *n)
{
        enum run_state state = dfm_state(n->dfm);

        if (state == RUN_STARTING)
                return;
        s->has_ended = state == RUN_ENDED;
        s->previous.known = true;
        s->previous.cookie = state == RUN_ENDED ? 0 : dfm_cookie(n->dfm);
        s->began_ns = sim_now_ns(s) - dfm_age_ns(n->dfm, sim_now_ns(s));
        s->run = dfm_run(n->dfm);
}

/* Call this before the next message is sent. */
static void remember_processes(struct sim *s, const struct sim_node *n)
{
        uint64_t version = dfm_processes_version(n->dfm);

        if (version == s->processes_version)
                return;
        s->processes_version = version;
        dfm_processes_fill(n->dfm, s->processes);
}

void sim_dfm_turn(struct sim *s, struct sim_node *n)
{
        const struct message *m;
        struct message_to to;

        record_absence(s, n);
        while ((m = sim_receive_message(s, n)))
                dfm_receive(n->dfm, sim_now_ns(s), m);
        sim_box_offer(s, n);
        do {
                while (dfm_step(n->dfm, sim_now_ns(s), &to, &s->message)) {
                        remember_processes(s, n);
                        sim_send_message(s, n, to, &s->message);
                }
        } while (sim_level2_decide(s, n));
        remember_processes(s, n);
        remember_run(s, n);
        sim_box_follow(s, n);
        sim_boards_follow(s, n);
        n->has_left = dfm_is_done(n->dfm);
}

uint64_t sim_dfm_deadline_ns(const struct sim *s, const struct sim_node *n)
{
        return MIN(dfm_deadline_ns(n->dfm), s->farm_ns);
}
