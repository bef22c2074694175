/* Whole systems as `evb sim` runs them: whatever the network loses, and whatever nodes die, stand still or
 * restart, every trigger ends exactly once. Each history must also keep the rules of docs/sim.md.
 * EVB_SIM_SEED=N replays one seed, EVB_SIM_SEEDS=N the seeds 1 to N. */
#include "../unit/sim/sim_sample.h"

#include "base/random.h"
#include "core/sfi.h"
#include "sim/sim_farm.h"

/* What holds at the end. */
#define TAKEN 1u      /* all triggers were taken */
#define NONE_LOST 2u  /* no event is lost */
#define COMPLETE 4u   /* each event is complete, and counts once */
#define BUILT_ONCE 8u /* and no SFI built one that another one had built */
#define QUIET 16u     /* nothing was lost, repeated, late or retried */
#define BUSY 32u      /* triggers were held back */
#define PARTIAL 64u   /* some events are partial */
#define LOST 128u     /* some are lost */
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
        bool is_forged;       /* a foreign sender guesses the cookie */
};

static const char *const usual[] = {
        "ros.count=6",
        "sfi.count=2",
        "trigger.events=600",
        "trigger.rate=5kHz",
        "sfi.timeout=2s",
        "test.keep-alive=20ms",
        "dfm.node-timeout=200ms",
        "ros.fragment-size=uniform:0-2kB",
        "ros.buffer-size=64MiB",
        "network.link-rate=unlimited",
};

static const struct scene *scene_now;
static uint64_t seed_now;
static struct random forgery; /* of messages */

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

/* Events that level 2 rejects. */
static uint64_t count_unwanted(const struct scenario *s, uint64_t triggers)
{
        struct scenario_stand_in text;
        struct sim_farm farm = {.config.seed = seed_now};
        uint64_t n = 0;

        assert_true(scenario_split_stand_in(s->level2.stand_in, &text));
        farm.config.accept_percent = (uint32_t)(100 * strtod(text.accept, NULL) + 0.5);
        for (uint64_t event = 0; event < triggers; event++)
                n += !sim_farm_accepts(&farm, event);
        return n;
}

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
        check(!(holds & LOST) || SUM(ROLE_DFM, events_lost) > 0);
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
                      SUM(ROLE_ROS, regions_refused) == 0 &&
                      (SUM(ROLE_ROS, regions_sent) > 0) == (s->level2.regions_port > 0));
        /* The numbers of a box have gaps if triggers came while no DFM ran. */
        if (s->level2.port > 0 && s->trigger.source_kind != TRIGGER_UDP)
                check(rejected == count_unwanted(s, triggers));
        check(scene_now->end_ns == 0 || r.end_ns < scene_now->end_ns);
}

/* All messages that a foreign sender can send, in the name of any node. */
static const struct message *forge(void)
{
        static const uint32_t types[] = {
                MESSAGE_UPDATE,     MESSAGE_ASSIGN,  MESSAGE_BUILD,      MESSAGE_CLEAR,   MESSAGE_KEEP_ALIVE,
                MESSAGE_REQUEST,    MESSAGE_XON,     MESSAGE_XOFF,       MESSAGE_ALIVE,   MESSAGE_TOTALS,
                MESSAGE_UPDATE_ACK, MESSAGE_WELCOME, MESSAGE_JOIN,       MESSAGE_INQUIRY, MESSAGE_INVENTORY,
                MESSAGE_DECISION,   MESSAGE_NUMBERS, MESSAGE_NUMBERS_ACK};
        static struct message m;
        uint64_t event = random_below(&forgery, 700);

        m = (struct message){.header = {.type = types[random_below(&forgery, ARRAY_SIZE(types))],
                                        .cookie = random_next(&forgery),
                                        .transaction = (uint32_t)random_next(&forgery),
                                        .sender_role = (enum node_role)(1 + random_below(&forgery, 4))},
                             .dfm = random_next(&forgery)};
        m.header.sender_index = m.header.sender_role == ROLE_DFM ? 0 : (uint16_t)random_below(&forgery, 8);
        switch (m.header.type) {
        case MESSAGE_KEEP_ALIVE:
                m.keep_alive.oldest = UINT64_C(1) << 63;
                m.keep_alive.triggers = UINT64_MAX;
                m.keep_alive.state = RUN_ENDED;
                break;
        case MESSAGE_ALIVE:
                m.alive.incarnation = random_next(&forgery);
                m.alive.state = 1 + (uint32_t)random_below(&forgery, 4);
                m.alive.flags = ALIVE_FAILED | ALIVE_XOFF | ALIVE_UNRELIABLE;
                break;
        case MESSAGE_ASSIGN:
        case MESSAGE_BUILD:
                m.n = 1;
                m.assign.announces = event % 2;
                m.assign.entries[0] = (struct assign_entry){.event = event, .l1_id = (uint32_t)event};
                break;
        case MESSAGE_CLEAR:
                m.n = 1;
                m.clear.events[0] = event;
                m.clear.oldest = UINT64_C(1) << 63;
                break;
        case MESSAGE_WELCOME:
        case MESSAGE_JOIN:
                m.join.incarnation = random_next(&forgery);
                break;
        case MESSAGE_UPDATE:
                m.n = 1;
                m.update.granted = UINT64_MAX;
                m.update.entries[0] = (struct finished_entry){.event = event, .end = EVENT_LOST};
                break;
        }
        return &m;
}

/* Each node gets a forged message with each real one. */
#define FORGED(role)                                                                                         \
        bool __real_##role##_receive(struct role *node, uint64_t now_ns, const struct message *m);           \
        bool __wrap_##role##_receive(struct role *node, uint64_t now_ns, const struct message *m);           \
        bool __wrap_##role##_receive(struct role *node, uint64_t now_ns, const struct message *m)            \
        {                                                                                                    \
                if (scene_now->is_forged)                                                                    \
                        (void)__real_##role##_receive(node, now_ns, forge());                                \
                return __real_##role##_receive(node, now_ns, m);                                             \
        }

FORGED(dfm)
FORGED(ros)
FORGED(sfi)

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
        random_init(&forgery, seed);
        sim = sample_run(&c);
        verify(sim, s);
        sim_free(sim);
}

/* Sanitizers look for errors of memory and threads, which the first seeds show; all of them take minutes. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SEEDS_DIVISOR 4u
#else
#define SEEDS_DIVISOR 1u
#endif

/* The seeds 1 to `n`, or as the environment says. */
#define FOR_SEEDS(seed, n) for (uint64_t seed = first_seed(), last_ = last_seed(n); seed <= last_; seed++)

static uint64_t first_seed(void)
{
        const char *one = getenv("EVB_SIM_SEED");

        return one ? strtoull(one, NULL, 0) : 1;
}

static uint64_t last_seed(uint64_t seeds)
{
        const char *one = getenv("EVB_SIM_SEED"), *many = getenv("EVB_SIM_SEEDS");

        return one || many ? strtoull(one ?: many, NULL, 0) : DIV_ROUND_UP(seeds, SEEDS_DIVISOR);
}

static void play_all(const struct scene *scene)
{
        const char *keys[ARRAY_SIZE(usual) + ARRAY_SIZE(scene->keys) + 1];

        scene_now = scene;
        memcpy(keys, usual, sizeof usual);
        for (int pull = 0; pull < 2; pull++) {
                size_t n = ARRAY_SIZE(usual);
                struct scenario *s;

                keys[n++] = pull ? "scenario.mode=pull" : "scenario.mode=push";
                for (size_t i = 0; i < ARRAY_SIZE(scene->keys) && scene->keys[i]; i++)
                        keys[n++] = scene->keys[i];
                s = sample_scenario(keys, n);
                FOR_SEEDS(seed, scene->seeds)
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
      {"network.loss=0.02", "sfi.buffer-size=4MiB", "ros.fragment-size=300kB", "trigger.events=20"})

SCENE(fragments_of_4_mib_with_loss, 3, ALL_ONCE,
      {"network.loss=0.05", "ros.fragment-size=4MiB", "trigger.events=2", "ros.count=2", "sfi.count=1",
       "sfi.buffer-size=32MiB"})

SCENE(a_slow_sfi_makes_the_dfm_busy, 5, ALL_ONCE | BUSY, {"sfi.credits=8"}, .fragment_ns = 100 * NS_PER_US)

/* Boards send as fast as they can into small buffers. */
SCENE(boards_ahead_of_the_trigger_block_nothing, 8, ALL_ONCE | BUSY,
      {COUNTED, "trigger.rate=50kHz", "test.buffer-events=256", "sfi.timeout=20s"},
      .fragment_ns = 20 * NS_PER_US)

SCENE(foreign_senders_change_nothing, 10, ALL_ONCE | QUIET, .is_forged = true)

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

/* The farm requests fragments of a ROS that is absent for a while. */
SCENE(level_2_decides_while_a_ros_restarts, 20, TAKEN | NONE_LOST, {LEVEL2, "test.stand-in=0.3:2ms:2"},
      {{SIM_CRASH, "ros2"}, {SIM_RESTART, "ros2", 3000}, {SIM_RESTART, "dfm", 7000}})

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

/* It knows from the record what the earlier process of that SFI built. */
SCENE(a_dfm_restarts_after_an_sfi, 20, TAKEN | NONE_LOST | COMPLETE,
      .faults = {{SIM_RESTART, "sfi1"}, {SIM_RESTART, "dfm", 70000, 500}})

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

/* No data come for so long that events end as lost, among and after which DFMs restart. */
#define OUTAGE_KEYS "ros.count=2", "trigger.events=1500", "trigger.rate=10kHz", "sfi.timeout=20ms"
#define OUTAGE                                                                                               \
        {SIM_PAUSE, "ros1", .for_ms = 100}, {SIM_PAUSE, "ros2", .for_ms = 100},                              \
                {SIM_RESTART, "dfm", 35000, 1000},                                                           \
        {                                                                                                    \
                SIM_RESTART, "dfm", 40000, 2000                                                              \
        }

SCENE(lost_events_stay_lost, 20, TAKEN | LOST, {OUTAGE_KEYS}, {OUTAGE}, .moment_us = 60000)

SCENE(lost_events_are_not_rejected, 20, TAKEN | LOST,
      {OUTAGE_KEYS, "level2.listen=tcp:4001", "level2.timeout=60s", "test.stand-in=0.4:2ms:0"}, {OUTAGE},
      .moment_us = 60000)

#define FRAME_MAX_BYTES 1514
#define PORT_BYTES_PER_S 125e6
#define ASSIGN_BYTES 6
/* Payload of a run with one SFI: the start, with cautious requests, is a small part of it. With more SFIs, so
 * is the end, at which some have nothing left to do. */
#define PULL_BYTES (24u << 20)

/* An overloaded system in pull without tuning: the switch drops nothing, whatever sources, fragments, buffers
 * and delays, and each port carries what it can. The seed draws what is 0. */
struct pull {
        double share; /* of a port, with full frames; others fill 0.9 of it. 0: any */
        uint32_t n_sfi;
        bool is_small;    /* the buffer of a port holds one frame of each source, and no event */
        bool is_lossy;    /* the network loses, repeats and delays packets */
        bool is_unknown;  /* the SFIs know neither rate nor buffer of their ports */
        uint32_t load;    /* of the ports, in percent; 0: as much as is possible */
        uint64_t late_ns; /* processes wake so late */
        uint64_t pauses;  /* all ROSs pause together, so many times */
};

static const struct pull *pull_now;

int __real_sfi_new(struct sfi **ret, const struct sfi_config *config, uint64_t now_ns);
int __wrap_sfi_new(struct sfi **ret, const struct sfi_config *config, uint64_t now_ns)
{
        struct sfi_config c = *config;

        if (pull_now && pull_now->is_unknown)
                c.port_bytes = c.port_rate_bps = 0;
        return __real_sfi_new(ret, &c, now_ns);
}

struct pull_system {
        uint32_t n_ros, fragment_bytes, buffer_bytes;
        bool is_fixed;
};

/* Each power of two is as likely as the others. */
static uint32_t draw_size(struct random *r, uint32_t least, uint32_t most)
{
        uint32_t doublings = 0;

        while (least << (doublings + 1) <= most)
                doublings++;
        least <<= random_below(r, doublings + 1);
        return least + (uint32_t)random_below(r, MIN(least, most - least + 1));
}

static struct pull_system draw_pull(const struct pull *p, uint64_t seed)
{
        struct random r;
        struct pull_system y;

        random_init(&r, seed);
        y.n_ros = (p->is_small ? 3 : p->n_sfi + 1) + (uint32_t)random_below(&r, 10);
        y.fragment_bytes = p->is_small ? 200 << 10 : draw_size(&r, 256, 200 << 10);
        y.buffer_bytes = p->is_small ? y.n_ros * FRAME_MAX_BYTES
                                     : draw_size(&r, p->late_ns > 0 ? 128 << 10 : 32 << 10, 512 << 10);
        y.is_fixed = p->is_small || random_below(&r, 3) > 0;
        return y;
}

/* The most payload that a port carries per second if all frames are full: of 1,472 bytes in a datagram, 20
 * are the message's header, and a fragment has an entry of some 4 bytes in each. Each event has an Assign. */
static double port_limit(const struct pull_system *y)
{
        double bytes = y->fragment_bytes, frames = (bytes + 4) / 1452, chunks = frames > 1 ? frames : 1;
        double event_bytes = (bytes + 4 * chunks) * FRAME_MAX_BYTES / 1452 * y->n_ros + ASSIGN_BYTES;

        return PORT_BYTES_PER_S * bytes * y->n_ros / event_bytes;
}

static struct scenario *pull_scenario(const struct pull *p, const struct pull_system *y)
{
        uint64_t event_bytes = (uint64_t)y->n_ros * y->fragment_bytes,
                 events = MAX(PULL_BYTES / (p->is_small || p->is_lossy ? 4 : 1) * p->n_sfi * p->n_sfi /
                                      event_bytes,
                              UINT64_C(6));
        char texts[6][64];
        const char *keys[ARRAY_SIZE(usual) + 2 * ARRAY_SIZE(texts) + 2];
        size_t n = ARRAY_SIZE(usual);

        memcpy(keys, usual, sizeof usual);
        for (size_t i = 0; i < ARRAY_SIZE(texts); i++)
                keys[n++] = texts[i];
        snprintf(texts[0], sizeof texts[0], "ros.count=%u", y->n_ros);
        snprintf(texts[1], sizeof texts[1], "sfi.count=%u", p->n_sfi);
        snprintf(texts[2], sizeof texts[2], "ros.fragment-size=uniform:%u-%u",
                 y->is_fixed ? y->fragment_bytes : 0, (y->is_fixed ? 1 : 2) * y->fragment_bytes);
        snprintf(texts[3], sizeof texts[3], "network.switch-buffer=%u", y->buffer_bytes);
        snprintf(texts[4], sizeof texts[4], "trigger.events=%llu",
                 (unsigned long long)(p->load > 0 ? MIN(events, UINT64_C(2000)) : events));
        snprintf(texts[5], sizeof texts[5], p->load > 0 ? "trigger.rate=%.0fHz" : "trigger.rate=max",
                 port_limit(y) * p->load / 100 / (double)event_bytes + 1);
        keys[n++] = "scenario.mode=pull";
        keys[n++] = "network.link-rate=1Gbit";
        keys[n++] = "sfi.timeout=20s";
        keys[n++] = "sfi.buffer-size=64MiB";
        if (p->is_lossy)
                keys[n++] = "network.loss=0.02", keys[n++] = "network.reorder=0.05",
                keys[n++] = "network.duplicate=0.02";
        return sample_scenario(keys, n);
}

static void verify_pull(const struct sim *sim, const struct scenario *s, const struct pull_system *y)
{
        const struct node_stats *dfm = sample_stats(sim, s, "dfm");
        double seconds = (double)(stats_get(&dfm->last_complete_ns) - stats_get(&dfm->first_trigger_ns)) /
                         NS_PER_S,
               share = (double)SUM(ROLE_SFI, payload_bytes) / seconds / pull_now->n_sfi / port_limit(y);

        verify(sim, s);
        check(share >=
              (y->is_fixed && y->fragment_bytes >= 1024 ? pull_now->share : MIN(pull_now->share, 0.9)));
        if (pull_now->is_unknown)
                /* It overflows in at most five rounds until its limit is found, and loses three times its
                 * size at the most. Then it overflows once in a second or less often; these runs take less.
                 */
                check(SUM(ROLE_SFI, limit_decreases) <= 5 &&
                      sim_result(sim).port_drops * FRAME_MAX_BYTES <= 3 * y->buffer_bytes);
        else if (!pull_now->is_lossy)
                check(sim_result(sim).port_drops + SUM(ROLE_SFI, limit_decreases) == 0);
}

static void play_pull(const struct pull *p, uint64_t seed)
{
        const struct pull_system y = draw_pull(p, seed);
        struct scenario *s = pull_scenario(p, &y);
        struct sim_config c = sample_config(s, seed);
        struct sim_fault faults[SIM_FAULTS_MAX];
        struct sim *sim;

        for (uint64_t k = 0; k < p->pauses * y.n_ros; k++) {
                char name[16];

                snprintf(name, sizeof name, "ros%u", (unsigned)(1 + k % y.n_ros));
                faults[c.n_faults++] = (struct sim_fault){
                        SIM_PAUSE, sample_node(s, name), (20 + 5 * (k / y.n_ros)) * NS_PER_MS, 2 * NS_PER_MS};
        }
        c.faults = faults;
        c.model.wake_ns = p->late_ns ?: c.model.wake_ns;
        seed_now = seed;
        sim = sample_run(&c);
        verify_pull(sim, s, &y);
        sim_free(sim);
        free(s);
}

#define PULL(name, n, holds, ...)                                                                            \
        TEST(name)                                                                                           \
        {                                                                                                    \
                static const struct scene scene = {0, holds};                                                \
                static const struct pull pull = {__VA_ARGS__};                                               \
                                                                                                             \
                scene_now = &scene;                                                                          \
                pull_now = &pull;                                                                            \
                FOR_SEEDS(seed, n)                                                                           \
                play_pull(&pull, seed);                                                                      \
                pull_now = NULL;                                                                             \
        }

PULL(an_overloaded_port_is_full_and_drops_nothing, 40, ALL_ONCE | QUIET, 0.95, 1)

PULL(late_processes_lose_no_rate, 12, ALL_ONCE | QUIET, 0.95, 1, .late_ns = 100 * NS_PER_US)

/* Requests gather in the ROSs, and all answer at the same moment. */
PULL(ross_that_stall_together_overflow_no_port, 12, ALL_ONCE | QUIET, 0, 1, .pauses = 20)

PULL(a_frame_for_each_source_suffices, 11, ALL_ONCE | QUIET, 0, 1, .is_small = true)

PULL(several_sfis_share_the_ross, 8, ALL_ONCE | QUIET, 0.95, 3)

PULL(a_port_that_is_not_overloaded_drops_nothing, 8, ALL_ONCE | QUIET, 0, 1, .load = 30)

PULL(an_unknown_buffer_is_found, 20, ALL_ONCE, 0.6, 1, .is_unknown = true, .pauses = 1)

PULL(with_faults_all_is_complete, 20, ALL_ONCE, 0, 1, .is_lossy = true)
