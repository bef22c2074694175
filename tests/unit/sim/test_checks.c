/* The checks of the simulator find what they look for: here, cores lie. */
#include "core/dfm.h"
#include "core/ros.h"
#include "core/sfi.h"
#include "shape/model/plan.h"
#include "sim_sample.h"

static enum lie {
        LIE_NONE,
        LIE_COMPLETE,
        LIE_SIZE,
        LIE_MIXED,
        LIE_COUNT,
        LIE_LOST,
        LIE_CAUSE,
        LIE_TWICE,
        LIE_BUILT_TWICE,
        LIE_SFI_COUNT,
        LIE_BYTES,
        LIE_HELD,
        LIE_CREDITS,
        LIE_STILL,
        LIE_PLAN,
        LIE_FORGOTTEN,
        LIE_REJECTED,
} lie;
static uint64_t told;

#define OTHER_EVENT (UINT64_C(1) << 20)

void __real_sfi_built_event(const struct sfi *s, uint32_t slot, struct sfi_built *ret);
void __real_sfi_reserve(struct sfi *s, uint64_t now_ns, struct sfi_chunk *chunks, size_t n);
void __real_sfi_commit(struct sfi *s, uint64_t now_ns, const struct sfi_chunk *chunks, size_t n);
const struct dfm_counts *__real_dfm_counts(const struct dfm *d);
uint64_t __real_dfm_lost(const struct dfm *d, uint16_t sfi, enum dfm_loss why);
int __real_tc_plan_make(struct tc_plan *ret, const struct tc_request *request, struct error *error);
const struct sfi_counts *__real_sfi_event_counts(const struct sfi *s);
uint64_t __real_sfi_buffer_used_bytes(const struct sfi *s);
uint32_t __real_ros_held(const struct ros *r);
struct dfm_node_view __real_dfm_view(const struct dfm *d, enum node_role role, uint16_t index);
size_t __real_sfi_pop_built(struct sfi *s, uint32_t *slots, size_t n);
void __real_dfm_processes_fill(const struct dfm *d, struct dfm_processes *ret);
uint64_t __real_dfm_progress(const struct dfm *d);

/* A partial event is complete, a fragment has another size, or an event is the previous one. */
void __wrap_sfi_built_event(const struct sfi *s, uint32_t slot, struct sfi_built *ret)
{
        static struct sfi_fragment fragments[EVB_ROS_MAX];
        static uint64_t previous;

        __real_sfi_built_event(s, slot, ret);
        if (lie == LIE_BUILT_TWICE && ret->event > 20)
                ret->event = previous;
        previous = ret->event;
        if (lie == LIE_REJECTED)
                ret->event ^= 1;
        if (lie == LIE_COMPLETE && ret->end == EVENT_PARTIAL)
                ret->end = EVENT_COMPLETE;
        if (lie != LIE_SIZE)
                return;
        memcpy(fragments, ret->fragments, 3 * sizeof *fragments);
        fragments[1].bytes--;
        ret->fragments = fragments;
}

/* A chunk of another event goes into the slot. */
void __wrap_sfi_reserve(struct sfi *s, uint64_t now_ns, struct sfi_chunk *chunks, size_t n)
{
        __real_sfi_reserve(s, now_ns, chunks, n);
        for (size_t i = 0; lie == LIE_MIXED && i < n; i++)
                chunks[i].chunk.event ^= told++ == 30 ? OTHER_EVENT : 0;
}

/* The core itself does not notice. */
void __wrap_sfi_commit(struct sfi *s, uint64_t now_ns, const struct sfi_chunk *chunks, size_t n)
{
        struct sfi_chunk honest[1024];

        memcpy(honest, chunks, n * sizeof *honest);
        for (size_t i = 0; i < n; i++)
                honest[i].chunk.event &= ~OTHER_EVENT;
        __real_sfi_commit(s, now_ns, honest, n);
}

const struct dfm_counts *__wrap_dfm_counts(const struct dfm *d)
{
        static struct dfm_counts counts;

        counts = *__real_dfm_counts(d);
        counts.complete -= lie == LIE_COUNT && counts.complete > 50;
        if (lie == LIE_LOST && counts.complete > 50) {
                counts.complete--;
                counts.lost++;
        }
        /* One event counts twice, and another one that was partial does not. */
        if (lie == LIE_TWICE && counts.partial > 0) {
                counts.complete++;
                counts.partial--;
        }
        return &counts;
}

uint64_t __wrap_dfm_lost(const struct dfm *d, uint16_t sfi, enum dfm_loss why)
{
        bool more = lie == LIE_CAUSE || (lie == LIE_LOST && __real_dfm_counts(d)->complete > 50);

        return __real_dfm_lost(d, sfi, why) + (more && sfi == UINT16_MAX && why == DFM_LOSS_REPORTED);
}

const struct sfi_counts *__wrap_sfi_event_counts(const struct sfi *s)
{
        static struct sfi_counts counts;

        counts = *__real_sfi_event_counts(s);
        counts.complete += lie == LIE_SFI_COUNT && counts.complete > 10;
        return &counts;
}

/* The last event is over, and a part of its memory is not free. */
uint64_t __wrap_sfi_buffer_used_bytes(const struct sfi *s)
{
        return __real_sfi_buffer_used_bytes(s) + (lie == LIE_BYTES ? 32 : 0);
}

uint32_t __wrap_ros_held(const struct ros *r)
{
        return __real_ros_held(r) + (lie == LIE_HELD && ros_run_state(r) == RUN_ENDED ? 1 : 0);
}

struct dfm_node_view __wrap_dfm_view(const struct dfm *d, enum node_role role, uint16_t index)
{
        struct dfm_node_view v = __real_dfm_view(d, role, index);

        if (lie == LIE_CREDITS && v.held > 0)
                v.held = dfm_open_events(d) + 1;
        return v;
}

uint64_t __wrap_dfm_progress(const struct dfm *d)
{
        return lie == LIE_STILL ? 0 : __real_dfm_progress(d);
}

/* What replaced processes ended is not stored. */
void __wrap_dfm_processes_fill(const struct dfm *d, struct dfm_processes *ret)
{
        __real_dfm_processes_fill(d, ret);
        if (lie == LIE_FORGOTTEN)
                ret->counted.complete -= ret->replaced.complete;
}

int __wrap_tc_plan_make(struct tc_plan *ret, const struct tc_request *request, struct error *error)
{
        int r = __real_tc_plan_make(ret, request, error);

        for (size_t i = 0; r >= 0 && lie == LIE_PLAN && i < ret->n; i++)
                ret->shares[i].planned_bps = ret->shares[i].rate_bps = request->link_rate_bps;
        return r;
}

/* No SFI writes anything. */
size_t __wrap_sfi_pop_built(struct sfi *s, uint32_t *slots, size_t n)
{
        return lie == LIE_STILL ? 0 : __real_sfi_pop_built(s, slots, n);
}

/* `text` begins with the name of the invariant. */
static void expect_after(const struct sim_fault *faults, size_t n_faults, enum lie told_lie,
                         const char *const *keys, size_t n, const char *text)
{
        _cleanup_free_ struct scenario *s = sample_scenario(keys, n);
        struct sim_config c = {
                .scenario = s, .seed = 1, .model = sim_model_usual, .faults = faults, .n_faults = n_faults};
        struct sim_result r;
        struct sim *sim;

        lie = told_lie;
        told = 0;
        sim = sample_run(&c);
        r = sim_result(sim);
        if (!text)
                assert_null(r.violation);
        else if (!r.violation || !strstr(r.violation, text))
                fail_msg("%s, not %s", r.violation ? r.violation : "nothing", text);
        lie = LIE_NONE;
        sim_free(sim);
}

/* With retries and time, a network that loses packets loses no event. */
#define PATIENT "network.loss=0.02", "sfi.timeout=10s", "dfm.node-timeout=1s"
#define LOSSY "network.loss=0.2", "sfi.retries=0"
#define LEVEL2 "level2.listen=tcp:4000", "level2.timeout=10s"
#define FEW "sfi.credits=2", "sfi.count=1", "trigger.rate=max"
/* Three sources, each at the rate of the port. */
#define SHAPED "qos.backend=htb+tbf", "ros.fragment-size=20kB"

static const struct {
        const char *keys[4];
        enum lie lie;
        const char *violation; /* NULL: none */
} histories[] = {
        {{}, LIE_NONE, NULL},
        {{LOSSY}, LIE_NONE, NULL},
        {{LOSSY}, LIE_COMPLETE, "is complete without a fragment of ros"},
        {{}, LIE_SIZE, "has a fragment of ros2 with 1999 bytes, which made 2000"},
        {{}, LIE_MIXED, "of which only some arrived for it"},
        {{LEVEL2}, LIE_NONE, NULL},
        {{LEVEL2}, LIE_REJECTED, "which level 2 rejects"},
        {{}, LIE_COUNT, "ends-once: dfm: "},
        {{LOSSY}, LIE_TWICE, " events count as complete and "},
        {{"sfi.count=1"}, LIE_BUILT_TWICE, "ends-once: sfi1: it built event 20 twice"},
        {{PATIENT}, LIE_NONE, NULL},
        {{PATIENT}, LIE_LOST, "nothing-lost: dfm: 0 events are partial and 1 lost"},
        {{}, LIE_LOST, NULL}, /* shorter time-outs promise nothing */
        {{}, LIE_CAUSE, "accounts-balance: dfm: 0 events are lost, and 1 have a cause"},
        {{}, LIE_SFI_COUNT, "accounts-balance: sfi"},
        {{}, LIE_BYTES, "it has no open event, but 32 bytes"},
        {{}, LIE_HELD, "buffers-bounded: ros"},
        {{FEW}, LIE_NONE, NULL},
        {{FEW}, LIE_CREDITS, "sfi1 has 3 events and 2 credits"},
        {{}, LIE_CREDITS, "accounts-balance: dfm: SFIs have "},
        /* Without progress for longer than every time-out. */
        {{"trigger.events=100000", "trigger.rate=5kHz"},
         LIE_STILL,
         "nothing-waits: dfm: nothing has moved for"},
        {{SHAPED}, LIE_NONE, NULL},
        {{SHAPED}, LIE_PLAN, "plan-holds: sfi"},
};

TEST_EACH(each_lie_is_found, i, ARRAY_SIZE(histories))
{
        size_t n = 0;

        while (histories[i].keys[n])
                n++;
        expect_after(NULL, 0, histories[i].lie, histories[i].keys, n, histories[i].violation);
}

/* The nodes are the DFM, three ROSs and two SFIs. */
TEST(a_restarted_dfm_knows_of_replaced_sfis)
{
        static const struct sim_fault faults[] = {
                {SIM_RESTART, 4, 20 * NS_PER_MS, 0},
                {SIM_RESTART, 0, 40 * NS_PER_MS, 0},
        };

        expect_after(faults, ARRAY_SIZE(faults), LIE_NONE, NULL, 0, NULL);
        expect_after(faults, ARRAY_SIZE(faults), LIE_FORGOTTEN, NULL, 0, "did before the DFM restarted");
}
