/* What a DFM reports of a run that it resumed: the same as one that was there all the time, whatever its
 * nodes did before. */
#include "../test.h"

#include "../core/dfm_driver.h"
#include "node/dfm_reasons.h"

static struct scenario scenario;
static struct dfm_processes stored;

static const struct ros_rule boards[] = {{.frames = true}, {.frames = true}};

static struct dfm_config configure(void)
{
        struct dfm_config c = dfm_standard();

        c.push = false;
        c.event_timeout_ns = 1000 * NS_PER_S;
        c.node_timeout_ns = NS_PER_S;
        c.leave_timeout_ns = 3 * NS_PER_S;
        c.ros_rules = boards;
        scenario = (struct scenario){
                .n_nodes = 4, .sfi = {.count = 2, .output = OUTPUT_FILE, .durability = DURABILITY_WRITTEN}};
        for (unsigned i = 0; i < 4; i++) {
                struct scenario_node *n = &scenario.nodes[i];

                *n = (struct scenario_node){.role = i < 2 ? ROLE_ROS : ROLE_SFI,
                                            .index = i % 2,
                                            .source_kind = i < 2 ? SOURCE_UDP : SOURCE_PATTERN};
                snprintf(n->name, sizeof n->name, "%s%u", scenario_role_name(n->role), i % 2 + 1);
        }
        return c;
}

/* Of node 1 of a role: ROS 1 and SFI 1 go, node 2 of each role stays. */
enum deed { STAYS, DIES, LEAVES };

struct scene {
        const char *name;
        enum deed ros, sfi;
        uint16_t ros_flags, sfi_flags; /* in its last report */
        bool numbered;                 /* ROS 1: its frames have numbers; ROS 2 counts */
        uint64_t frames;               /* of ROS 1; ROS 2 has 5 */
        const char *why;               /* the only reason; NULL: none */
};

static const struct scene scenes[] = {
        {.name = "all stay"},
        {.name = "a ROS dies",
         .ros = DIES,
         .why = "ros1 did not report the end of the run: frames of the front-end may be in no account"},
        {.name = "a ROS leaves", .ros = LEAVES},
        {.name = "a ROS leaves short of frames",
         .ros = LEAVES,
         .ros_flags = ALIVE_SHORT,
         .why = "ros1 reported frames of the front-end that are lost, or in no event: the ROS's own report "
                "says why"},
        {.name = "a ROS leaves unreliable",
         .ros = LEAVES,
         .ros_flags = ALIVE_UNRELIABLE,
         .why = "the run is unreliable: frames of front-ends were lost before they were counted, or the ROSs "
                "counted different numbers of them"},
        {.name = "a ROS with numbers leaves unreliable",
         .ros = LEAVES,
         .numbered = true,
         .ros_flags = ALIVE_UNRELIABLE,
         .why = "the run is unreliable: frames may be in events of other triggers, by their numbers or "
                "times, on ros1"},
        {.name = "a ROS leaves with all frames",
         .ros = LEAVES,
         .ros_flags = ALIVE_COUNTS | ALIVE_QUIET,
         .frames = 5},
        {.name = "a ROS leaves with fewer frames",
         .ros = LEAVES,
         .ros_flags = ALIVE_COUNTS | ALIVE_QUIET,
         .frames = 4,
         .why = "the run is unreliable: frames of front-ends were lost before they were counted, or the ROSs "
                "counted different numbers of them"},
        {.name = "an SFI dies with its file open",
         .sfi = DIES,
         .why = "sfi1 fell silent before it had closed its output: the last file of the run may be "
                "unfinished, or lack events"},
        {.name = "an SFI leaves", .sfi = LEAVES},
        {.name = "an SFI fails and leaves",
         .sfi = LEAVES,
         .sfi_flags = ALIVE_FAILED,
         .why = "the output of sfi1 failed: events that are complete may be in no file"},
};

static void reports(struct dfm_driver *t, const struct scene *s, enum node_role role, uint16_t index,
                    enum run_state state)
{
        bool first = index == 0;

        memset(&t->message.alive, 0, sizeof t->message.alive);
        t->message.alive.state = state;
        t->message.alive.incarnation = 1;
        if (role == ROLE_ROS) {
                t->message.alive.flags = first           ? s->ros_flags
                                         : s->frames > 0 ? ALIVE_COUNTS | ALIVE_QUIET
                                                         : 0;
                t->message.alive.frames = first ? s->frames : 5;
                driver_say(t, ROLE_ROS, index, MESSAGE_ALIVE, t->ros_alive_next[index]++);
        } else {
                t->message.alive.flags = first ? s->sfi_flags : 0;
                t->message.alive.metadata = 1;
                driver_say(t, ROLE_SFI, index, MESSAGE_ALIVE, t->sfis[index].alive_next++);
        }
}

static bool stays(const struct scene *s, enum node_role role, uint16_t index)
{
        return index > 0 || (role == ROLE_ROS ? s->ros : s->sfi) == STAYS;
}

static void all_report(struct dfm_driver *t, const struct scene *s, enum run_state state)
{
        for (unsigned i = 0; i < 4; i++) {
                enum node_role role = i < 2 ? ROLE_ROS : ROLE_SFI;

                if (stays(s, role, i % 2))
                        reports(t, s, role, i % 2, state);
        }
        dfm_says_with(t, true);
}

static void pass_tenths(struct dfm_driver *t, const struct scene *s, unsigned tenths)
{
        for (unsigned i = 0; i < tenths; i++) {
                dfm_pass_ns(t, NS_PER_S / 10);
                all_report(t, s, RUN_RUNNING);
        }
}

/* SFI 1 builds events 0 and 1, SFI 2 event 2. */
static void begin_run(struct dfm_driver *t, const struct dfm_config *c, const struct scene *s)
{
        dfm_driver_start(t, c);
        sfi0_takes(t, 2);
        sfi_ends(t, 0, 0, EVENT_COMPLETE, 0);
        sfi_ends(t, 0, 1, EVENT_COMPLETE, 0);
        sfi_grants(t, 1, 1);
        dfm_says_with(t, false);
        sfi_acks(t, 1, 1);
        sfi_ends(t, 1, 2, EVENT_COMPLETE, 0);
        dfm_says_with(t, false);
        if (s->ros == LEAVES)
                reports(t, s, ROLE_ROS, 0, RUN_ENDED);
        if (s->sfi == LEAVES)
                reports(t, s, ROLE_SFI, 0, RUN_ENDED);
        pass_tenths(t, s, 15);
}

static void store(struct dfm_driver *t)
{
        assert_true(dfm_processes_version(t->dfm) > 0);
        dfm_processes_fill(t->dfm, &stored);
}

/* Another DFM takes the run over, which the nodes that are left join. */
static void restart(struct dfm_driver *t, struct dfm_config *c, const struct scene *s)
{
        const uint64_t previous = c->incarnation;

        c->incarnation++;
        c->cookie = TRACE_COOKIE + c->incarnation;
        c->previous_processes = &stored;
        c->ros_rules = boards;
        dfm_free(t->dfm);
        dfm_driver_init(t, c);
        for (unsigned i = 0; i < 4; i++) {
                enum node_role role = i < 2 ? ROLE_ROS : ROLE_SFI;

                if (stays(s, role, i % 2))
                        driver_join_in_run(t, previous, role, i % 2, 3, 3);
        }
        all_report(t, s, RUN_RUNNING);
        for (uint16_t i = 0; i < 2; i++) {
                if (stays(s, ROLE_SFI, i))
                        sfi_reports_bits(t, i, 3, i == 0 ? 2 : 1, i == 0 ? 3 : 4, 0);
        }
        pass_tenths(t, s, 15);
        assert_int_equal(dfm_cookie(t->dfm), TRACE_COOKIE);
        assert_true(dfm_has_begun(t->dfm));
}

static void end_run(struct dfm_driver *t, const struct scene *s)
{
        dfm_stop(t->dfm, t->now_ns);
        dfm_says_with(t, false);
        assert_int_equal(dfm_state(t->dfm), RUN_ENDED);
        all_report(t, s, RUN_ENDED);
        for (unsigned i = 0; i < 50 && !dfm_is_done(t->dfm); i++) {
                dfm_pass_ns(t, NS_PER_S / 10);
                dfm_says_with(t, true);
        }
        assert_true(dfm_is_done(t->dfm));
        assert_counts(dfm_counts(t->dfm), triggers, 3, complete, 3);
}

static void check_reasons(const struct dfm_driver *t, const struct scene *s)
{
        static const struct idle idle;
        struct reasons r = {};

        dfm_reasons(t->dfm, &scenario, &idle, &r);
        if (s->why)
                assert_string_equal(r.n > 0 ? r.text[0] : s->name, s->why);
        assert_string_equal(r.n > (s->why != NULL) ? r.text[s->why != NULL] : "", "");
}

/* DFMs end 0 to 2 times in the run. */
TEST_EACH(a_resumed_run_has_its_reasons, i, 3 * ARRAY_SIZE(scenes))
{
        const struct scene *s = &scenes[i / 3];
        struct dfm_config c = configure();
        struct dfm_driver t;

        scenario.nodes[0].board.number.bits = s->numbered ? 32 : 0;
        begin_run(&t, &c, s);
        for (unsigned k = 0; k < i % 3; k++) {
                store(&t);
                restart(&t, &c, s);
        }
        end_run(&t, s);
        check_reasons(&t, s);
        dfm_free(t.dfm);
}

/* What a ROS reported is in the record before the DFM sends anything; a report without news changes nothing.
 */
TEST(news_of_a_ros_are_recorded)
{
        static const uint16_t flags[] = {ALIVE_SHORT, ALIVE_UNRELIABLE, ALIVE_FAILED};
        struct dfm_config c = configure();
        struct dfm_driver t;

        dfm_driver_start(&t, &c);
        dfm_says_with(&t, true);
        for (size_t i = 0; i < ARRAY_SIZE(flags); i++) {
                uint64_t version = dfm_processes_version(t.dfm);

                ros_says_alive(&t, 0, RUN_RUNNING, 0);
                assert_int_equal(dfm_processes_version(t.dfm), version);
                ros_says_alive(&t, 0, RUN_RUNNING, flags[i]);
                assert_int_equal(dfm_processes_version(t.dfm), version + 1);
        }
        store(&t);
        assert_int_equal(stored.ross[0].flags, ALIVE_SHORT | ALIVE_UNRELIABLE | ALIVE_FAILED);
        dfm_free(t.dfm);
}

/* Without the record, no flag that a node reported is known. With boards, frames may be missing. */
TEST_EACH(a_run_without_its_record_is_not_complete, k, 2)
{
        static const struct scene none = {.name = "no record"};
        static const struct idle idle;
        struct dfm_config c = configure();
        struct reasons r = {};
        struct dfm_driver t;

        begin_run(&t, &c, &none);
        stored.cookie = 0;
        restart(&t, &c, &none);
        /* The next DFM knows from this one. */
        store(&t);
        restart(&t, &c, &none);
        end_run(&t, &none);
        scenario.nodes[0].source_kind = scenario.nodes[1].source_kind = k == 0 ? SOURCE_UDP : SOURCE_PATTERN;
        dfm_reasons(t.dfm, &scenario, &idle, &r);
        assert_int_equal(r.n, 1);
        assert_string_equal(r.text[0],
                            k == 0 ? "a DFM resumed this run without the record of the one before it: what "
                                     "nodes reported before is not known, so frames may be in no account"
                                   : "a DFM resumed this run without the record of the one before it: what "
                                     "nodes reported before is not known");
        dfm_free(t.dfm);
}

/* What an operator sees goes on, too. */
TEST(figures_go_on)
{
        static const struct scene none = {.name = "figures"};
        const struct metadata_entry target = {"target", "Pb"};
        struct dfm_config c = configure();
        struct dfm_driver t;

        dfm_driver_init(&t, &c);
        dfm_set_metadata(t.dfm, t.now_ns, &target, 1);
        t.metadata = 1;
        all_say_alive(&t);
        dfm_says_with(&t, false);
        assert_int_equal(dfm_state(t.dfm), RUN_RUNNING);
        pass_tenths(&t, &none, 15); /* no credit */
        sfi0_takes(&t, 2);
        sfi_ends(&t, 0, 0, EVENT_COMPLETE, 0);
        sfi_ends(&t, 0, 1, EVENT_COMPLETE, 0);
        dfm_pause(t.dfm, t.now_ns, true);
        pass_tenths(&t, &none, 20);
        store(&t);
        assert_true(dfm_counts(t.dfm)->busy_ns >= NS_PER_S);
        assert_int_equal(dfm_counts(t.dfm)->paused_ns, 2 * NS_PER_S);
        for (unsigned k = 0; k < 2; k++) {
                uint64_t busy_ns = dfm_counts(t.dfm)->busy_ns, age_ns = (7 + 3 * k) * NS_PER_S / 2;
                uint64_t begun_ns = TRACE_BEGIN_NS - age_ns, built_ns = begun_ns + 3 * NS_PER_S / 2;
                struct message_to to;
                unsigned sent = 0;

                stored.figures.reassigned = 7;
                stored.figures.announced.confirmed = 8;
                stored.figures.level2.rejected = 9;
                /* The record may be from before the first event. */
                stored.figures.first_complete_ns *= k == 0;
                c.previous = (struct dfm_previous){.known = true, .cookie = TRACE_COOKIE, .age_ns = age_ns};
                restart(&t, &c, &none);
                assert_counts(dfm_counts(t.dfm), assigned, 3 + 7, reassigned, 7, paused_ns, 2 * NS_PER_S);
                assert_counts(dfm_counts(t.dfm), first_trigger_ns, built_ns, last_complete_ns, built_ns,
                              first_complete_ns, k == 0 ? built_ns : begun_ns);
                assert_true(dfm_counts(t.dfm)->busy_ns >= busy_ns);
                assert_int_equal(dfm_counts(t.dfm)->announced.confirmed, 8);
                assert_int_equal(dfm_level2_counts(t.dfm)->rejected, 9);
                /* An SFI that comes later gets the metadata of the run, whatever is set meanwhile. */
                dfm_set_metadata(t.dfm, t.now_ns, NULL, 0);
                t.sfis[1] = (struct played_sfi){.incarnation = 2};
                sfi_says_alive(&t, 1, RUN_RUNNING, 0);
                while (dfm_step(t.dfm, t.now_ns, &to, &t.message)) {
                        if (t.message.header.type != MESSAGE_METADATA || to.index != 1)
                                continue;
                        assert_int_equal(t.message.metadata.version, 1);
                        assert_string_equal(t.message.metadata.entry.value, "Pb");
                        sent++;
                }
                assert_int_equal(sent, 1);
                t.sfis[1] = (struct played_sfi){.incarnation = 1};
                store(&t);
        }
        dfm_free(t.dfm);
}

/* A DFM that ends before all nodes have come has stored no less than it found. */
TEST(a_record_survives_a_dfm_that_resumed_nothing)
{
        static const struct scene left = {.name = "left", .ros = LEAVES, .ros_flags = ALIVE_SHORT};
        static struct dfm_processes found;
        struct dfm_config c = configure();
        struct dfm_driver t;

        begin_run(&t, &c, &left);
        store(&t);
        stored.figures.assigned = 5;
        stored.figures.level2.accepted = 6;
        found = stored;
        dfm_free(t.dfm);
        c.incarnation++;
        c.cookie++;
        c.previous_processes = &found;
        c.ros_rules = boards;
        dfm_driver_init(&t, &c);
        driver_join_in_run(&t, c.incarnation - 1, ROLE_ROS, 1, 3, 3);
        dfm_says_with(&t, true);
        assert_false(dfm_has_begun(t.dfm));
        store(&t);
        assert_memory_equal(&stored.figures, &found.figures, sizeof found.figures);
        assert_memory_equal(stored.ross, found.ross, 2 * sizeof *found.ross);
        assert_memory_equal(&stored.counted, &found.counted, sizeof found.counted);
        dfm_free(t.dfm);
}

TESTS_BETWEEN(NULL, NULL)
