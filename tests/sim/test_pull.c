/* Pull without tuning: a switch with finite buffers drops nothing, whatever the sources, fragments, buffers
 * and delays, and the port carries what it can. The switch's arithmetic is exact, and every seed is fixed. */
#include "scenes.h"

#include "core/sfi/sfi_internal.h"

#define PORT_BPS UINT64_C(1000000000)
#define FRAME_MAX_BYTES 1514
#define ASSIGN_BYTES 6
/* Payload of a run: the start, with cautious requests and few credits, is a small part of it. */
#define RUN_BYTES (24u << 20)

/* The most payload that the port carries per second if all frames are full: of 1,472 bytes in a datagram, 20
 * are the message's header, and a fragment has an entry of some 4 bytes in each. Each event has an Assign. */
static double port_limit(const struct sim_config *c)
{
        double bytes = c->fragment_bytes, frames = (bytes + 4) / 1452, chunks = frames > 1 ? frames : 1;
        double event_bytes = (bytes + 4 * chunks) * FRAME_MAX_BYTES / 1452 * c->n_ros + ASSIGN_BYTES;

        return (double)PORT_BPS / 8 * bytes * c->n_ros / event_bytes;
}

/* The mean share of the SFIs' ports, each from the first request to the SFI's last event. */
static double built_share(struct sim *s, const struct sim_config *c)
{
        double share = 0;

        for (uint32_t i = 0; i < c->n_sfi; i++) {
                double seconds = (double)sim_built_ns(s, i) / NS_PER_S;

                share += (double)sfi_counts(sim_sfi(s, i)).payload_bytes / seconds / c->n_sfi;
        }
        return share / port_limit(c);
}

static uint64_t draw(struct random *r, uint64_t least, uint64_t most)
{
        return least + random_below(r, most - least + 1);
}

/* A size between the two, each power of two as likely as the others. */
static uint32_t draw_size(struct random *r, uint32_t least, uint32_t most)
{
        uint32_t doublings = 0;

        while (least << (doublings + 1) <= most)
                doublings++;
        least <<= random_below(r, doublings + 1);
        return (uint32_t)draw(r, least, MIN(2 * least - 1, most));
}

static void overload(struct sim_config *c, uint64_t run_bytes)
{
        c->push = false;
        c->port_bps = PORT_BPS;
        c->rate_millihertz = TRIGGER_RATE_MAX;
        c->events = MAX(run_bytes * c->n_sfi / ((uint64_t)c->n_ros * c->fragment_bytes), UINT64_C(6));
        c->latency_ns = 20 * NS_PER_US;
        c->sfi_buffer_bytes = 64u << 20;
        c->sfi_slots = 2048;
        c->room_bytes = 6u << 20;
        c->timeout_ns = 20 * NS_PER_S;
        c->write_ns = 0;
}

/* A system with a buffer of at least one frame for each source. */
static void draw_system(struct sim_config *c, struct random *r)
{
        c->n_ros = (uint32_t)draw(r, 2, 12);
        c->n_sfi = 1;
        c->fixed = random_below(r, 3) > 0;
        c->fragment_bytes = draw_size(r, 256, 200 << 10);
        c->port_bytes = draw_size(r, 32 << 10, 512 << 10);
        overload(c, RUN_BYTES);
}

static void print_system(const struct sim_config *c, struct sim *s)
{
        uint64_t retried = 0;

        for (uint32_t i = 0; i < c->n_sfi; i++)
                retried += sfi_counts(sim_sfi(s, i)).retried;
        print_message("%u x %u, %u bytes%s, buffer %llu, late %llu us: %.3f of the port, %llu of %llu frames "
                      "dropped, %llu retried\n",
                      c->n_ros, c->n_sfi, c->fragment_bytes, c->fixed ? "" : " on average",
                      (unsigned long long)c->port_bytes, (unsigned long long)(c->late_ns / NS_PER_US),
                      built_share(s, c), (unsigned long long)sim_port_drops(s),
                      (unsigned long long)sim_port_frames(s), (unsigned long long)retried);
}

typedef void (*pull_fn)(struct sim_config *c, struct random *r);

/* Runs systems drawn from seeds, and verifies each. */
static void each_pull(unsigned seeds, pull_fn prepare,
                      void (*verify)(struct sim *, const struct sim_config *))
{
        FOR_SEEDS(seed, seeds)
        {
                struct sim_config c = sim_standard();
                struct random r;
                struct sim *s;

                random_init(&r, seed);
                c.faults.seed = seed;
                prepare(&c, &r);
                s = sim_now = sim_new(&c);
                check(sim_run(s, FOREVER_NS));
                print_system(&c, s);
                verify(s, &c);
                sim_free(s);
        }
}

#define PULL_SCENE(name, seeds, verify)                                                                      \
        SCENE_OF(each_pull, name, (struct sim_config * c, struct random * r), seeds, name##_scene, verify)

static void verify_lossless(struct sim *s, const struct sim_config *c)
{
        check_all_complete(s, c);
        check_empty(s, c);
        check(sim_port_drops(s) == 0);
        for (uint32_t i = 0; i < c->n_sfi; i++) {
                const struct sfi_counts k = sfi_counts(sim_sfi(s, i));

                check(k.retried == 0 && k.duplicate == 0 && k.late == 0 && k.datagrams_lost == 0);
                check(k.limit_decreases == 0 && sim_sfi(s, i)->slots.in_flight_bytes == 0);
        }
}

static void verify_full(struct sim *s, const struct sim_config *c)
{
        verify_lossless(s, c);
        /* Assigns use the port too, one for each event; small fragments, and rests, rarely fill their frames.
         */
        check(built_share(s, c) >= (c->fixed && c->fragment_bytes >= 1024 ? 0.95 : 0.9));
}

TEST(an_overloaded_port_is_full_and_drops_nothing)
{
        each_pull(40, draw_system, verify_full);
}

PULL_SCENE(a_late_loop_loses_no_rate, 12, verify_full)
{
        draw_system(c, r);
        c->port_bytes = MAX(c->port_bytes, UINT64_C(128) << 10);
        c->late_ns = 200 * NS_PER_US;
}

/* Requests gather in the ROSs while they stop, and all answer at the same moment. */
PULL_SCENE(ross_that_stall_together_overflow_no_port, 12, verify_lossless)
{
        draw_system(c, r);
        c->pause_ns = 2 * NS_PER_MS;
        c->pause_every_ns = 5 * NS_PER_MS;
}

/* The whole event is larger than the buffer, which holds one frame for each source. */
PULL_SCENE(a_frame_for_each_source_suffices, 11, verify_lossless)
{
        c->n_ros = (uint32_t)draw(r, 2, 12);
        c->n_sfi = 1;
        c->fixed = true;
        c->fragment_bytes = 200 << 10;
        c->port_bytes = c->n_ros * FRAME_MAX_BYTES;
        overload(c, RUN_BYTES / 4);
}

PULL_SCENE(several_sfis_share_the_ross, 8, verify_full)
{
        draw_system(c, r);
        c->n_sfi = (uint32_t)draw(r, 2, 3);
        c->n_ros = MAX(c->n_ros, c->n_sfi + 1);
        overload(c, RUN_BYTES);
}

PULL_SCENE(a_port_that_is_not_overloaded_drops_nothing, 8, verify_lossless)
{
        draw_system(c, r);
        c->rate_millihertz = (uint64_t)(port_limit(c) * 300 / c->n_ros / c->fragment_bytes);
        c->events = MIN(c->events, UINT64_C(2000));
}

/* An unknown buffer overflows in at most four rounds until its limit is found, and loses twice its size at
 * the most. Then it overflows once in a second or less often; these runs take less. */
static void verify_rare(struct sim *s, const struct sim_config *c)
{
        check_all_complete(s, c);
        check(sfi_counts(sim_sfi(s, 0)).limit_decreases <= 4);
        check(sim_port_drops(s) * FRAME_MAX_BYTES <= 2 * c->port_bytes);
        check(built_share(s, c) >= 0.6);
}

PULL_SCENE(an_unknown_buffer_is_found, 20, verify_rare)
{
        draw_system(c, r);
        c->port_is_unknown = true;
}

PULL_SCENE(with_faults_all_is_complete, 20, check_all_complete)
{
        draw_system(c, r);
        overload(c, RUN_BYTES / 4);
        c->faults = (struct fault_config){
                .loss = 0.02, .reorder = 0.05, .duplicate = 0.02, .seed = c->faults.seed};
}
