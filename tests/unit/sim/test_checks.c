/* The checks of the simulator find what they look for: here, cores lie. */
#include "evb/core/dfm.h"
#include "evb/core/sfi.h"
#include "evb/tc-model/plan.h"
#include "sim_sample.h"

static enum lie { LIE_NONE, LIE_COMPLETE, LIE_SIZE, LIE_MIXED, LIE_COUNT, LIE_STILL, LIE_PLAN } lie;
static uint64_t told;

#define OTHER_EVENT (UINT64_C(1) << 20)

void __real_sfi_built_event(const struct sfi *s, uint32_t slot, struct sfi_built *ret);
void __wrap_sfi_built_event(const struct sfi *s, uint32_t slot, struct sfi_built *ret);
void __real_sfi_reserve(struct sfi *s, uint64_t now_ns, struct sfi_chunk *chunks, size_t n);
void __wrap_sfi_reserve(struct sfi *s, uint64_t now_ns, struct sfi_chunk *chunks, size_t n);
void __real_sfi_commit(struct sfi *s, uint64_t now_ns, const struct sfi_chunk *chunks, size_t n);
void __wrap_sfi_commit(struct sfi *s, uint64_t now_ns, const struct sfi_chunk *chunks, size_t n);
const struct dfm_counts *__real_dfm_counts(const struct dfm *d);
const struct dfm_counts *__wrap_dfm_counts(const struct dfm *d);
int __real_tc_plan_make(struct tc_plan *ret, const struct tc_request *request, struct error *error);
int __wrap_tc_plan_make(struct tc_plan *ret, const struct tc_request *request, struct error *error);
size_t __real_sfi_take_built(struct sfi *s, uint32_t *slots, size_t n);
size_t __wrap_sfi_take_built(struct sfi *s, uint32_t *slots, size_t n);
uint64_t __real_dfm_progress(const struct dfm *d);
uint64_t __wrap_dfm_progress(const struct dfm *d);

/* A partial event is complete, or a fragment has another size. */
void __wrap_sfi_built_event(const struct sfi *s, uint32_t slot, struct sfi_built *ret)
{
        static struct sfi_fragment fragments[EVB_ROS_MAX];

        __real_sfi_built_event(s, slot, ret);
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
        return &counts;
}

uint64_t __wrap_dfm_progress(const struct dfm *d)
{
        return lie == LIE_STILL ? 0 : __real_dfm_progress(d);
}

int __wrap_tc_plan_make(struct tc_plan *ret, const struct tc_request *request, struct error *error)
{
        int r = __real_tc_plan_make(ret, request, error);

        for (size_t i = 0; r >= 0 && lie == LIE_PLAN && i < ret->n; i++)
                ret->shares[i].planned_bps = ret->shares[i].rate_bps = request->link_rate_bps;
        return r;
}

/* No SFI writes anything. */
size_t __wrap_sfi_take_built(struct sfi *s, uint32_t *slots, size_t n)
{
        return lie == LIE_STILL ? 0 : __real_sfi_take_built(s, slots, n);
}

static void expect(enum lie told_lie, const char *const *keys, size_t n, const char *text)
{
        struct scenario *s = sample_scenario(keys, n);
        struct sim_config c = {.scenario = s, .seed = 1, .model = sim_model_usual};
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
        free(s);
}

static void honest_cores_pass(void **state)
{
        (void)state;
        expect(LIE_NONE, NULL, 0, NULL);
}

static void a_complete_event_has_all_fragments(void **state)
{
        static const char *const keys[] = {"network.loss=0.2", "sfi.retries=0"};

        (void)state;
        expect(LIE_NONE, keys, ARRAY_SIZE(keys), NULL);
        expect(LIE_COMPLETE, keys, ARRAY_SIZE(keys), "is complete without a fragment of ros");
}

static void a_fragment_has_the_size_of_its_source(void **state)
{
        (void)state;
        expect(LIE_SIZE, NULL, 0, "has a fragment of ros2 with 1999 bytes, which made 2000");
}

static void the_bytes_of_an_event_came_for_it(void **state)
{
        (void)state;
        expect(LIE_MIXED, NULL, 0, "arrived for it");
}

static void triggers_balance(void **state)
{
        (void)state;
        expect(LIE_COUNT, NULL, 0, "have ended and");
}

/* Without progress for longer than every time-out. */
static void a_stall_is_found(void **state)
{
        static const char *const keys[] = {"trigger.events=100000", "trigger.rate=5kHz"};

        (void)state;
        expect(LIE_STILL, keys, ARRAY_SIZE(keys), "nothing has moved for");
}

/* Three sources, each at the rate of the port. */
static void a_valid_plan_drops_nothing(void **state)
{
        static const char *const keys[] = {"qos.backend=htb+tbf", "ros.fragment-size=20kB"};

        (void)state;
        expect(LIE_NONE, keys, ARRAY_SIZE(keys), NULL);
        expect(LIE_PLAN, keys, ARRAY_SIZE(keys), "although the plan allows none");
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(honest_cores_pass),
                cmocka_unit_test(a_complete_event_has_all_fragments),
                cmocka_unit_test(a_fragment_has_the_size_of_its_source),
                cmocka_unit_test(the_bytes_of_an_event_came_for_it),
                cmocka_unit_test(triggers_balance),
                cmocka_unit_test(a_stall_is_found),
                cmocka_unit_test(a_valid_plan_drops_nothing),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
