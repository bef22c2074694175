/* Whole systems as `evb sim` runs them: whatever the network loses, and whatever nodes die, stand still or
 * restart, every trigger ends exactly once. Each history must also keep the rules of docs/sim.md.
 * EVB_SIM_SEED=N replays one seed, EVB_SIM_SEEDS=N the seeds 1 to N. */
#include "../unit/sim/sim_sample.h"

/* What holds at the end. */
#define TAKEN 1u      /* all triggers were taken */
#define NONE_LOST 2u  /* no event is lost */
#define COMPLETE 4u   /* each event is complete, and counts once */
#define BUILT_ONCE 8u /* and no SFI built one that another one had built */
#define QUIET 16u     /* nothing was lost, repeated, late or retried */
#define BUSY 32u      /* triggers were held back */
#define PARTIAL 64u   /* some events are partial */
#define ALL_ONCE (TAKEN | NONE_LOST | COMPLETE | BUILT_ONCE)

#define LOSSES "network.loss=0.05", "network.reorder=0.1", "network.duplicate=0.05"
#define COUNTED "ros.source=tcp:127.0.0.1:4000", "ros.event-number=count"
/* It obeys the busy signal. */
#define BOX "trigger.source=udp:4003", "trigger.busy-to=127.0.0.1:4004"
#define LEVEL2 "level2.listen=tcp:4001", "level2.regions=tcp:4002", "level2.timeout=60s"

/* A fault of a node while triggers come, at a moment that depends on the seed. */
struct scene_fault {
        enum sim_fault_kind kind;
        const char *node;
        uint64_t after_us, vary_us; /* after that moment: the first, and up to 96 times the second */
        uint64_t for_ms;
};

struct scene {
        uint64_t seeds;
        unsigned holds;
        const char *keys[9]; /* they differ from `usual` */
        struct scene_fault faults[5];
        uint64_t fragment_ns; /* an SFI processes a fragment in this time; 0: as usual */
        uint64_t end_ns;      /* the run is over before; 0: at any time */
        uint64_t moment_us;   /* 0: while triggers come */
        uint64_t few;         /* at most so many events are lost; 0: any number */
};

static const char *const usual[] = {
        "ros.count=6",
        "sfi.count=2",
        "trigger.events=600",
        "trigger.rate=5kHz",
        "sfi.timeout=2s",
        "test.keep-alive=20ms",
        "dfm.node-timeout=200ms",
        "ros.fragment-sizes=uniform:0-2kB",
        "ros.buffer-size=64MiB",
        "network.link-rate=unlimited",
};

static const struct scene *scene_now;
static uint64_t seed_now;

#define check(condition)                                                                                     \
        do {                                                                                                 \
                if (!(condition))                                                                            \
                        fail_msg("%s, replay with EVB_SIM_SEED=%llu", #condition,                            \
                                 (unsigned long long)seed_now);                                              \
        } while (0)

static uint64_t sum(const struct sim *sim, const struct scenario *s, enum node_role role, size_t offset)
{
        uint64_t n = 0;

        for (uint32_t i = 0; i < s->n_nodes; i++) {
                const void *counter = (const char *)sim_node_end(sim, i).stats + offset;

                n += s->nodes[i].role == role ? stats_get(counter) : 0;
        }
        return n;
}

#define SUM(role, name) sum(sim, s, role, offsetof(struct node_stats, name))

static void verify(const struct sim *sim, const struct scenario *s)
{
        uint64_t triggers = SUM(ROLE_DFM, triggers), complete = SUM(ROLE_DFM, events_complete),
                 rejected = SUM(ROLE_DFM, events_rejected);
        const struct sim_result r = sim_result(sim);
        unsigned holds = scene_now->holds;

        if (r.violation)
                fail_msg("%s, replay with EVB_SIM_SEED=%llu", r.violation, (unsigned long long)seed_now);
        check(!(holds & TAKEN) || triggers == s->trigger.events);
        check(!(holds & NONE_LOST) || SUM(ROLE_DFM, events_lost) == 0);
        check(scene_now->few == 0 || SUM(ROLE_DFM, events_lost) < scene_now->few);
        check(!(holds & COMPLETE) || complete + rejected == triggers);
        check(!(holds & BUILT_ONCE) ||
              (SUM(ROLE_DFM, events_ended_again) == 0 && SUM(ROLE_SFI, events_complete) == complete));
        check(!(holds & PARTIAL) || SUM(ROLE_DFM, events_partial) > 0);
        check(!(holds & BUSY) || SUM(ROLE_DFM, busy_ns) > 0);
        check(!(holds & QUIET) ||
              SUM(ROLE_SFI, fragments_re_asked) + SUM(ROLE_SFI, fragments_duplicate) +
                              SUM(ROLE_SFI, fragments_late) + SUM(ROLE_SFI, fragments_no_room) +
                              SUM(ROLE_SFI, packets_lost) + SUM(ROLE_DFM, events_reassigned) ==
                      0);
        check(SUM(ROLE_SFI, fragments_mismatched) == 0);
        check(SUM(ROLE_DFM, triggers_refused) + SUM(ROLE_DFM, triggers_repeated) +
                      SUM(ROLE_DFM, triggers_implausible) ==
              0);
        if (s->level2.port > 0)
                check(rejected > 0 && complete > 0 && SUM(ROLE_DFM, level2_timed_out) == 0 &&
                      SUM(ROLE_DFM, level2_late) == 0 && SUM(ROLE_DFM, level2_unknown) == 0 &&
                      SUM(ROLE_ROS, regions_refused) == 0 && SUM(ROLE_ROS, regions_sent) > 0);
        check(scene_now->end_ns == 0 || r.end_ns < scene_now->end_ns);
}

static void play(const struct scenario *s, uint64_t seed)
{
        uint64_t moment_us = scene_now->moment_us ?: 20000 + seed % 200 * 377;
        struct sim_config c = sample_config(s, seed);
        struct sim_fault faults[ARRAY_SIZE(scene_now->faults)];
        struct sim *sim;

        for (const struct scene_fault *f = scene_now->faults; f->node; f++) {
                uint64_t at_us = moment_us + f->after_us + seed % 97 * f->vary_us;

                faults[c.n_faults++] = (struct sim_fault){f->kind, sample_node(s, f->node), at_us * 1000,
                                                          f->for_ms * NS_PER_MS};
        }
        c.faults = faults;
        c.model.fragment_ns = scene_now->fragment_ns ?: c.model.fragment_ns;
        seed_now = seed;
        sim = sample_run(&c);
        verify(sim, s);
        sim_free(sim);
}

static void play_all(const struct scene *scene)
{
        const char *one = getenv("EVB_SIM_SEED"), *many = getenv("EVB_SIM_SEEDS"),
                   *keys[ARRAY_SIZE(usual) + ARRAY_SIZE(scene->keys) + 1];
        uint64_t first = one ? strtoull(one, NULL, 0) : 1,
                 last = one || many ? strtoull(one ?: many, NULL, 0) : scene->seeds;

        scene_now = scene;
        memcpy(keys, usual, sizeof usual);
        for (int pull = 0; pull < 2; pull++) {
                size_t n = ARRAY_SIZE(usual);
                struct scenario *s;

                keys[n++] = pull ? "scenario.mode=pull" : "scenario.mode=push";
                for (size_t i = 0; i < ARRAY_SIZE(scene->keys) && scene->keys[i]; i++)
                        keys[n++] = scene->keys[i];
                s = sample_scenario(keys, n);
                for (uint64_t seed = first; seed <= last; seed++)
                        play(s, seed);
                free(s);
        }
}

#define SCENE(name, seeds, holds, ...)                                                                       \
        TEST(name)                                                                                           \
        {                                                                                                    \
                static const struct scene scene = {seeds, holds, __VA_ARGS__};                               \
                                                                                                             \
                play_all(&scene);                                                                            \
        }

SCENE(without_faults, 20, ALL_ONCE | QUIET)

/* So slow that fragments wait in the queue of their source a hundred times longer than at first. */
SCENE(fragments_queued_at_their_source_are_not_retried, 5, ALL_ONCE | QUIET,
      {"qos.backend=htb+tbf", "qos.rate=10Mbit", "network.link-rate=1Gbit", "trigger.events=300",
       "sfi.timeout=20s"})

SCENE(losses_among_queued_fragments_are_retried, 5, ALL_ONCE,
      {"qos.backend=htb+tbf", "qos.rate=10Mbit", "network.link-rate=1Gbit", "trigger.events=300",
       "sfi.timeout=20s", "network.loss=0.02"})

SCENE(with_2_percent_loss, 60, ALL_ONCE, {"network.loss=0.02"})

SCENE(with_loss_reordering_and_duplication, 60, ALL_ONCE, {LOSSES})

SCENE(with_20_percent_loss, 40, ALL_ONCE,
      {"network.loss=0.2", "network.reorder=0.1", "network.duplicate=0.1", "trigger.events=100",
       "sfi.timeout=20s"})

SCENE(without_retries_events_are_partial, 10, TAKEN | PARTIAL, {LOSSES, "sfi.retries=0", "sfi.timeout=100ms"})

SCENE(small_buffers_are_slow_but_not_stuck, 6, ALL_ONCE,
      {"network.loss=0.02", "sfi.buffer-size=4MiB", "ros.fragment-size=300kB", "ros.fragment-sizes=fixed",
       "trigger.events=20"})

SCENE(fragments_of_4_mib_with_loss, 3, ALL_ONCE,
      {"network.loss=0.05", "ros.fragment-size=4MiB", "ros.fragment-sizes=fixed", "trigger.events=2",
       "ros.count=2", "sfi.count=1", "sfi.buffer-size=32MiB"})

SCENE(a_slow_sfi_makes_the_dfm_busy, 5, ALL_ONCE | BUSY, {"sfi.credits=8"}, .fragment_ns = 100 * NS_PER_US)

/* Boards send as fast as they can into small buffers. */
SCENE(boards_ahead_of_the_trigger_block_nothing, 8, ALL_ONCE | BUSY,
      {COUNTED, "trigger.rate=50kHz", "test.buffer-events=256", "sfi.timeout=20s"},
      .fragment_ns = 20 * NS_PER_US)

SCENE(a_large_system_runs, 1, ALL_ONCE,
      {"ros.count=100", "sfi.count=20", "trigger.events=100", "network.loss=0.01"})

/* It requests fragments of each event first. */
SCENE(level_2_decides, 20, ALL_ONCE, {LEVEL2, "test.stand-in=0.3:5ms:3"})

SCENE(level_2_decides_on_a_bad_network, 20, ALL_ONCE, {LOSSES, LEVEL2, "test.stand-in=0.3:5ms:3"})

/* Accepted events wait for few credits. */
SCENE(level_2_decides_with_little_room, 10, ALL_ONCE,
      {LEVEL2, "test.stand-in=0.6:5ms:1", "trigger.rate=max", "sfi.credits=4"}, .fragment_ns = 50 * NS_PER_US)

SCENE(level_2_decides_while_an_sfi_restarts, 20, TAKEN | NONE_LOST | COMPLETE,
      {LEVEL2, "test.stand-in=0.3:5ms:1"}, {{SIM_RESTART, "sfi2"}})

SCENE(level_2_decides_while_the_dfm_restarts, 20, TAKEN | NONE_LOST | COMPLETE,
      {LEVEL2, "test.stand-in=0.3:5ms:1"}, {{SIM_RESTART, "dfm"}})

SCENE(level_2_decides_on_frames, 8, ALL_ONCE, {COUNTED, "sfi.timeout=20s", LEVEL2, "test.stand-in=0.3:5ms:2"})

SCENE(a_trigger_box_obeys_busy, 20, ALL_ONCE | BUSY,
      {BOX, LOSSES, "trigger.rate=50kHz", "trigger.events=1200", "sfi.credits=16"},
      .fragment_ns = 20 * NS_PER_US)

/* One SFI is left, so it builds each event of the dead one. */
SCENE(events_of_a_killed_sfi_are_reassigned, 20, TAKEN | NONE_LOST,
      {"network.loss=0.02", "sfi.timeout=200ms"}, {{SIM_CRASH, "sfi1"}})

SCENE(an_sfi_restarts, 20, TAKEN | NONE_LOST, {"network.loss=0.02", "sfi.timeout=200ms"},
      {{SIM_RESTART, "sfi2"}})

SCENE(silent_sfis_continue, 20, TAKEN | NONE_LOST, {"network.loss=0.02", "sfi.credits=60"},
      {{SIM_PAUSE, "sfi1", .for_ms = 300}, {SIM_PAUSE, "sfi2", .for_ms = 300}})

/* Once it counts as gone, no event waits for it. */
SCENE(a_killed_ros_makes_events_partial, 20, TAKEN | NONE_LOST | PARTIAL,
      {"network.loss=0.02", "sfi.timeout=200ms"}, {{SIM_CRASH, "ros4"}}, .end_ns = 10 * NS_PER_S)

/* A DFM dies, and another one resumes the run: no event is built twice or omitted, and triggers continue
 * within 5 s. */
SCENE(a_restarted_dfm_resumes_the_run, 20, ALL_ONCE,
      .faults = {{SIM_CRASH, "dfm"}, {SIM_RESTART, "dfm", 5000}}, .end_ns = 5 * NS_PER_S)

SCENE(a_dfm_restarts_at_once, 20, ALL_ONCE, .faults = {{SIM_RESTART, "dfm"}}, .end_ns = 5 * NS_PER_S)

SCENE(a_dfm_restarts_after_the_nodes_became_idle, 10, ALL_ONCE,
      .faults = {{SIM_CRASH, "dfm"}, {SIM_RESTART, "dfm", 3000000}}, .end_ns = 8 * NS_PER_S)

/* Messages to and from the new DFM are lost too. */
SCENE(a_dfm_restarts_with_loss, 60, TAKEN | NONE_LOST, {"network.loss=0.05"},
      {{SIM_CRASH, "dfm"}, {SIM_RESTART, "dfm", 5000}})

SCENE(a_dfm_restarts_with_late_and_repeated_messages, 20, TAKEN | NONE_LOST | COMPLETE,
      {"network.reorder=0.2", "network.duplicate=0.2"}, {{SIM_RESTART, "dfm"}})

/* At any moment of the first takeover. */
SCENE(a_dfm_restarts_twice_in_a_row, 20, ALL_ONCE,
      .faults = {{SIM_RESTART, "dfm"}, {SIM_RESTART, "dfm", 0, 10}})

SCENE(a_dfm_restarts_twice_on_a_bad_network, 20, TAKEN | NONE_LOST | COMPLETE,
      {"network.loss=0.05", "network.reorder=0.2", "network.duplicate=0.2"},
      {{SIM_RESTART, "dfm"}, {SIM_RESTART, "dfm", 0, 1000}})

/* The run resumes without the SFI, which returns with all that it built. */
SCENE(a_dfm_restarts_while_an_sfi_is_away, 20, TAKEN | NONE_LOST, {"trigger.events=3000"},
      {{SIM_PAUSE, "sfi2", .for_ms = 400}, {SIM_RESTART, "dfm"}})

SCENE(a_dfm_restarts_with_an_sfi, 20, TAKEN, .faults = {{SIM_RESTART, "sfi2"}, {SIM_RESTART, "dfm", 0, 30}})

SCENE(a_dfm_restarts_when_one_sfi_is_left, 20, TAKEN, .faults = {{SIM_CRASH, "sfi2"}, {SIM_RESTART, "dfm"}})

SCENE(a_dfm_restarts_with_boards, 20, ALL_ONCE, {COUNTED, "dfm.node-timeout=2s"},
      {{SIM_CRASH, "dfm"}, {SIM_RESTART, "dfm", 5000}})

/* It has no record of triggers that waited, nor of events that no SFI has: these are lost, but counted, and
 * the run continues. */
SCENE(a_dfm_restarts_with_a_trigger_box, 60, TAKEN, {BOX, "network.loss=0.02"},
      {{SIM_CRASH, "dfm"}, {SIM_RESTART, "dfm", 3000}}, .few = 100)

SCENE(a_dfm_restarts_with_a_trigger_box_and_level_2, 40, TAKEN, {BOX, LEVEL2, "test.stand-in=0.4:2ms:1"},
      {{SIM_CRASH, "dfm"}, {SIM_RESTART, "dfm", 3000}}, .few = 200)

/* After the last trigger, at 19.8 ms. */
SCENE(a_dfm_restarts_at_the_end, 40, ALL_ONCE, {"trigger.events=100"}, {{SIM_RESTART, "dfm", 0, 20}},
      .moment_us = 19800)

/* It does not die but stands still, beyond the time-outs of nodes and events. */
SCENE(a_dfm_stands_still, 20, ALL_ONCE, .faults = {{SIM_PAUSE, "dfm", .for_ms = 11000}})
