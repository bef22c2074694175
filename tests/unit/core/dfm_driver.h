/* Drives one DFM; the test acts as the ROSs and SFIs. The driver maintains their sequence numbers, and checks
 * the counters at the end of each test. */
#pragma once

#include "core/dfm/dfm_internal.h"
#include "core_trace.h"

#define DRIVER_NODES_MAX 8

/* An SFI that the test simulates. */
struct played_sfi {
        uint64_t incarnation, joined;
        uint32_t alive_next, ack, finished;
        uint64_t granted;
};

struct dfm_driver {
        struct dfm *dfm;
        struct dfm_config config;
        uint64_t now_ns;
        uint32_t ros_alive_next[DRIVER_NODES_MAX];
        bool ros_joined[DRIVER_NODES_MAX];
        uint32_t resets;   /* that the ROSs report */
        uint32_t room;     /* that the next ROS reports */
        uint16_t metadata; /* version that the next SFI reports */
        struct played_sfi sfis[DRIVER_NODES_MAX];
        struct message message;
        struct trace trace;
};

/* Tests of a DFM (core_trace.h): with any configuration and beginning, or with dfm_standard() and a run that
 * has started without credits. */
#define DFM_TEST_EACH_AS(name, i, n, config, begin, ...)                                                     \
        CORE_TEST(dfm, name, i, n, config, begin, ##__VA_ARGS__)
#define DFM_TEST_AS(name, config, begin, ...) CORE_TEST(dfm, name, once, 1, config, begin, ##__VA_ARGS__)
#define DFM_TEST_EACH(name, i, n, ...)                                                                       \
        CORE_TEST(dfm, name, i, n, dfm_standard(), dfm_driver_start(t, &c), ##__VA_ARGS__)
#define DFM_TEST(name, ...) DFM_TEST_EACH(name, once, 1, ##__VA_ARGS__)

/* Triggers are always due, so only credits limit the number of events. No node times out. */
static inline struct dfm_config dfm_standard(void)
{
        return (struct dfm_config){
                .run = TRACE_RUN,
                .cookie = TRACE_COOKIE,
                .incarnation = TRACE_DFM,
                .n_ros = 2,
                .n_sfi = 2,
                .push = true,
                .trigger_rate_millihertz = TRIGGER_RATE_MAX,
                .trigger_burst = 1,
                .events_max = 64,
                .clear_group = 100,
                .clear_after_ns = 50 * NS_PER_MS,
                .event_timeout_ns = 10 * NS_PER_S,
                .reassign_max = 1,
                .keep_alive_ns = 100 * NS_PER_MS,
                .node_timeout_ns = 1000 * NS_PER_S,
                .message_bytes = 1472,
        };
}

/* Three ROSs, of which the last one is optional, and one SFI. */
static inline struct dfm_config dfm_with_optional_ros(void)
{
        static const struct ros_rule rules[] = {{}, {}, {.optional = true, .wait_ns = 300 * NS_PER_MS}};
        struct dfm_config c = dfm_standard();

        c.n_ros = 3;
        c.n_sfi = 1;
        c.ros_rules = rules;
        c.node_timeout_ns = NS_PER_S;
        return c;
}

/* Undecided events do not time out. */
static inline struct dfm_level2_config level2_with_window(uint32_t window)
{
        return (struct dfm_level2_config){.on = true, .timeout_ns = 3600 * NS_PER_S, .window = window};
}

static inline void dfm_driver_init(struct dfm_driver *t, const struct dfm_config *config)
{
        *t = (struct dfm_driver){.config = *config, .now_ns = TRACE_BEGIN_NS};
        for (size_t i = 0; i < DRIVER_NODES_MAX; i++)
                t->sfis[i].incarnation = 1;
        assert_int_equal(dfm_new(&t->dfm, config, t->now_ns), 0);
}

/* Each trigger from outside is accepted, waits, or counts in one class. */
static inline void dfm_check_offered(const struct dfm_driver *t, const struct dfm_counts *c)
{
        const struct dfm_offered *o = &c->offered;

        if (t->config.trigger_source == DFM_TRIGGER_SCHEDULE)
                return;
        assert_int_equal(o->triggers, c->triggers + dfm_run_view(t->dfm).waiting + o->refused + o->repeated +
                                              o->implausible + o->not_taken);
        if (t->config.trigger_source == DFM_TRIGGER_FRAMES)
                assert_int_equal(c->announced.numbers,
                                 o->triggers + c->announced.confirmed + c->announced.late + t->dfm->order.n);
}

/* Each trigger is open or ended once, and each fragment of an ended event was received or lost. */
static inline void dfm_check_accounts(const struct dfm_driver *t)
{
        const struct dfm_counts *c = dfm_counts(t->dfm);
        uint64_t ended = c->complete + c->partial + c->lost;

        assert_int_equal(c->triggers, ended + c->rejected + dfm_open_events(t->dfm));
        assert_int_equal(c->fragments_expected, ended * t->config.n_ros);
        assert_int_equal(c->fragments_expected,
                         c->fragments_received + c->fragments_lost + c->fragments_absent);
        if (t->config.run_is_free && c->triggers > 0) /* assigned by the previous DFM */
                return;
        dfm_check_offered(t, c);
        assert_true(c->assigned >= c->reassigned);
        if (t->config.level2.on)
                assert_true(c->assigned - c->reassigned <= c->triggers - c->rejected);
        else
                assert_int_equal(c->assigned, c->triggers + c->not_taken + c->reassigned);
}

static inline void dfm_driver_fini(struct dfm_driver *t)
{
        if (t->dfm)
                dfm_check_accounts(t);
        t->dfm = dfm_free(t->dfm);
}

static inline bool driver_say(struct dfm_driver *t, enum node_role role, uint16_t index, uint32_t type,
                              uint32_t transaction)
{
        return dfm_receive(t->dfm, t->now_ns,
                           trace_address(&t->message, t->config.incarnation, role, index, type, transaction));
}

/* A node that is in no run joins. */
static inline void driver_join(struct dfm_driver *t, enum node_role role, uint16_t index,
                               uint64_t incarnation)
{
        struct message m = {.header = {.sender_role = role, .sender_index = index, .type = MESSAGE_JOIN}};

        m.join.incarnation = incarnation;
        dfm_receive(t->dfm, t->now_ns, &m);
}

static inline bool ros_says_alive(struct dfm_driver *t, uint16_t ros, enum run_state state, uint16_t flags)
{
        if (!t->ros_joined[ros])
                driver_join(t, ROLE_ROS, ros, 1);
        t->ros_joined[ros] = true;
        memset(&t->message.alive, 0, sizeof t->message.alive);
        t->message.alive.state = state;
        t->message.alive.incarnation = 1;
        t->message.alive.flags = flags;
        t->message.alive.resets = t->resets;
        t->message.alive.room = t->room;
        return driver_say(t, ROLE_ROS, ros, MESSAGE_ALIVE, t->ros_alive_next[ros]++);
}

/* A ROS of the run reports these fields of Alive. */
#define ros_reports(t, ros, ...)                                                                             \
        ((t)->message.alive =                                                                                \
                 (__typeof__((t)->message.alive)){                                                           \
                         .state = RUN_RUNNING, .incarnation = 1, .resets = (t)->resets, __VA_ARGS__},        \
         assert_true(driver_say(t, ROLE_ROS, ros, MESSAGE_ALIVE, (t)->ros_alive_next[ros]++)))

static inline bool ros_says_switch(struct dfm_driver *t, uint16_t ros, bool on)
{
        t->message.xoff.incarnation = 1;
        return driver_say(t, ROLE_ROS, ros, on ? MESSAGE_XON : MESSAGE_XOFF, t->ros_alive_next[ros]++);
}

static inline bool sfi_says_alive(struct dfm_driver *t, uint16_t sfi, enum run_state state, uint16_t flags)
{
        if (t->sfis[sfi].joined != t->sfis[sfi].incarnation)
                driver_join(t, ROLE_SFI, sfi, t->sfis[sfi].incarnation);
        t->sfis[sfi].joined = t->sfis[sfi].incarnation;
        memset(&t->message.alive, 0, sizeof t->message.alive);
        t->message.alive.state = state;
        t->message.alive.incarnation = t->sfis[sfi].incarnation;
        t->message.alive.flags = flags;
        t->message.alive.metadata = t->metadata;
        return driver_say(t, ROLE_SFI, sfi, MESSAGE_ALIVE, t->sfis[sfi].alive_next++);
}

/* A node of another DFM's run, with records of the events from `oldest` up to `newest`, joins. */
static inline void driver_join_in_run(struct dfm_driver *t, uint64_t dfm, enum node_role role, uint16_t index,
                                      uint64_t oldest, uint64_t newest)
{
        const uint64_t incarnation = role == ROLE_SFI ? t->sfis[index].incarnation : 1;
        struct message m = {
                .header = {.cookie = TRACE_COOKIE,
                           .sender_role = role,
                           .sender_index = index,
                           .type = MESSAGE_JOIN},
                .dfm = dfm,
                .join = {.incarnation = incarnation, .run = TRACE_RUN, .oldest = oldest, .newest = newest},
        };

        assert_true(dfm_receive(t->dfm, t->now_ns, &m));
        if (role == ROLE_ROS)
                t->ros_joined[index] = true;
        else
                t->sfis[index].joined = incarnation;
}

/* ... and is alive. */
static inline void node_follows(struct dfm_driver *t, uint64_t dfm, enum node_role role, uint16_t index,
                                uint64_t oldest, uint64_t newest)
{
        driver_join_in_run(t, dfm, role, index, oldest, newest);
        if (role == ROLE_ROS)
                ros_says_alive(t, index, RUN_RUNNING, 0);
        else
                sfi_says_alive(t, index, RUN_RUNNING, 0);
}

/* The SFI reports these events, from event `from` on, of those below `end`. */
static inline void sfi_reports(struct dfm_driver *t, uint16_t sfi, uint64_t from, uint64_t end,
                               struct node_totals totals, size_t n, const struct inventory_entry *entries)
{
        const uint64_t incarnation = t->sfis[sfi].incarnation;

        t->message.n = n;
        t->message.inventory.incarnation = incarnation;
        t->message.inventory.from = from;
        t->message.inventory.end = end;
        t->message.inventory.totals = totals;
        t->message.inventory.flags = incarnation > 1 ? INVENTORY_LATE : 0;
        for (size_t k = 0; k < n; k++)
                t->message.inventory.entries[k] = entries[k];
        assert_true(driver_say(t, ROLE_SFI, sfi, MESSAGE_INVENTORY, 0));
}

/* Of the first 64 events, it built those of a set of bits, completely, and has those of another. */
static inline void sfi_reports_bits(struct dfm_driver *t, uint16_t sfi, uint64_t end, uint64_t complete,
                                    uint64_t ended, uint64_t open)
{
        sfi_reports(t, sfi, 0, end, (struct node_totals){.complete = complete}, 1,
                    &(struct inventory_entry){ended, open});
}

/* An Update from the SFI's state, with `n` finished events from sequence `first` on. */
static inline bool sfi_says_update(struct dfm_driver *t, uint16_t sfi, uint32_t first, size_t n,
                                   const struct finished_entry *entries)
{
        const struct played_sfi *s = &t->sfis[sfi];

        t->message.n = n;
        t->message.update.granted = s->granted;
        t->message.update.assign_ack = s->ack;
        t->message.update.first = first;
        t->message.update.incarnation = s->incarnation;
        for (size_t k = 0; k < n; k++)
                t->message.update.entries[k] = entries[k];
        return driver_say(t, ROLE_SFI, sfi, MESSAGE_UPDATE, 0);
}

static inline bool sfi_grants(struct dfm_driver *t, uint16_t sfi, uint64_t granted)
{
        t->sfis[sfi].granted = granted;
        return sfi_says_update(t, sfi, t->sfis[sfi].finished, 0, NULL);
}

static inline bool sfi_acks(struct dfm_driver *t, uint16_t sfi, uint32_t ack)
{
        t->sfis[sfi].ack = ack;
        return sfi_says_update(t, sfi, t->sfis[sfi].finished, 0, NULL);
}

/* The SFI finishes its next event. */
static inline bool sfi_ends(struct dfm_driver *t, uint16_t sfi, uint64_t event, enum event_end end,
                            uint32_t missing)
{
        struct finished_entry entry = {.event = event, .end = end, .missing = missing, .payload_bytes = 100};

        return sfi_says_update(t, sfi, t->sfis[sfi].finished++, 1, &entry);
}

/* The SFI finishes its next event: each ROS that is present reports that no frame came. */
static inline bool sfi_ends_unanswered(struct dfm_driver *t, uint16_t sfi, uint64_t event)
{
        struct finished_entry entry = {
                .event = event, .end = EVENT_LOST, .missing = t->config.n_ros, .unanswered = true};

        return sfi_says_update(t, sfi, t->sfis[sfi].finished++, 1, &entry);
}

/* Makes the next message, for any receiver; false: there is none. */
static inline bool dfm_makes(struct dfm_driver *t)
{
        return dfm_step(t->dfm, t->now_ns, &(struct message_to){}, &t->message);
}

/* The flags of the last KeepAlive that the DFM makes now. */
static inline uint32_t keep_alive_flags(struct dfm_driver *t)
{
        uint32_t flags = UINT32_MAX;

        while (dfm_makes(t))
                if (t->message.header.type == MESSAGE_KEEP_ALIVE)
                        flags = t->message.keep_alive.flags;
        assert_int_not_equal(flags, UINT32_MAX);
        return flags;
}

static inline const char *dfm_says_with(struct dfm_driver *t, bool keep_alives)
{
        struct message_to to;

        trace_clear(&t->trace);
        while (dfm_step(t->dfm, t->now_ns, &to, &t->message)) {
                assert_fields(&t->message.header, sender_role, ROLE_DFM, cookie, dfm_cookie(t->dfm));
                assert_int_equal(t->message.dfm, t->config.incarnation);
                if (t->message.header.type == MESSAGE_WELCOME && t->message.welcome.verdict == WELCOME_OK)
                        continue;
                if (keep_alives || t->message.header.type != MESSAGE_KEEP_ALIVE)
                        trace_message(&t->trace, to, &t->message);
        }
        return t->trace.text;
}

/* All messages that the DFM makes now except KeepAlive. */
#define assert_dfm_says(t, expected) assert_string_equal(dfm_says_with(t, false), expected)
#define assert_dfm_says_all(t, expected) assert_string_equal(dfm_says_with(t, true), expected)

static inline void dfm_pass_ns(struct dfm_driver *t, uint64_t ns)
{
        t->now_ns += ns;
}

/* The messages after that time. */
#define assert_dfm_says_after(t, ns, expected) (dfm_pass_ns(t, ns), assert_dfm_says(t, expected))
#define assert_dfm_says_all_after(t, ns, expected) (dfm_pass_ns(t, ns), assert_dfm_says_all(t, expected))

/* Time passes in which the DFM receives messages from one ROS only. Without any, it would count as cut
 * off. */
static inline void dfm_pass_with_ros_ns(struct dfm_driver *t, uint16_t ros, uint64_t ns)
{
        for (uint64_t passed_ns = 0, step_ns; passed_ns < ns; passed_ns += step_ns) {
                step_ns = MIN(100 * NS_PER_MS, ns - passed_ns);
                dfm_pass_ns(t, step_ns);
                ros_says_alive(t, ros, RUN_RUNNING, 0);
        }
}

static inline void all_say_alive(struct dfm_driver *t)
{
        for (uint16_t i = 0; i < t->config.n_ros; i++)
                ros_says_alive(t, i, RUN_RUNNING, 0);
        for (uint16_t i = 0; i < t->config.n_sfi; i++)
                sfi_says_alive(t, i, RUN_RUNNING, 0);
}

/* All nodes join and the run starts, without credits. */
static inline void dfm_driver_start(struct dfm_driver *t, const struct dfm_config *config)
{
        dfm_driver_init(t, config);
        all_say_alive(t);
        assert_dfm_says(t, "");
        assert_int_equal(dfm_state(t->dfm), RUN_RUNNING);
}

/* Gives SFI 0 `n` events, which it acknowledges. */
static inline void sfi0_takes(struct dfm_driver *t, uint32_t n)
{
        t->sfis[0].granted += n;
        sfi_grants(t, 0, t->sfis[0].granted);
        dfm_says_with(t, false);
        sfi_acks(t, 0, (uint32_t)t->sfis[0].granted);
        dfm_says_with(t, false);
}
