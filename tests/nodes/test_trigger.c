/* A trigger box, which the test plays: it sends triggers over UDP and receives the busy signal. */
#include "bed.h"
#include "base/random.h"
#include "protocol/trigger_packet.h"

#define PORT 47200
#define BUSY_PORT 47201
#define SCENARIO                                                                                             \
        "ros.count=2", "ros.fragment-size=200", "sfi.count=2", "sfi.timeout=30s", "dfm.node-timeout=30s",    \
                "trigger.source=udp:47200", "trigger.busy-to=127.0.1.1:47201", "trigger.events=0",           \
                "run.number=4711"
#define DATAGRAM_MAX (TRIGGER_PACKET_HEADER_BYTES + TRIGGER_ENTRIES_MAX * TRIGGER_ENTRY_BYTES)

struct details {
        uint32_t sequence, run, flags, type;
        uint64_t time_ns;
};

static struct {
        int fd;
        uint32_t sequence;
        bool busy;
        enum busy_reason reason;
        uint32_t seen; /* bit i: reason i */
        uint8_t bytes[DATAGRAM_MAX];
} box;

/* By docs/protocol.md. */
static size_t make_datagram(uint64_t first, uint16_t n, const struct details *o)
{
        const uint16_t version = 1;
        uint8_t *at = box.bytes;

        memcpy(at, "EVBT", 4);
        memcpy(at + 4, &version, 2);
        memcpy(at + 6, &n, 2);
        memcpy(at + 8, &o->sequence, 4);
        memcpy(at + 12, &o->run, 4);
        at += 16;
        for (uint16_t k = 0; k < n; k++, at += 24) {
                uint64_t number = first + k, time_ns = o->time_ns ? o->time_ns + k : 0;
                uint32_t flags = k ? 0 : o->flags;

                memcpy(at, &number, 8);
                memcpy(at + 8, &time_ns, 8);
                memcpy(at + 16, &o->type, 4);
                memcpy(at + 20, &flags, 4);
        }
        return (size_t)(at - box.bytes);
}

static void send_with(uint64_t first, uint16_t n, struct details o)
{
        o.sequence = box.sequence++;
        bed_send_datagram("dfm", PORT, box.bytes, make_datagram(first, n, &o));
}

static void send_triggers(uint64_t first, uint16_t n)
{
        send_with(first, n, (struct details){});
}

static void again(uint64_t first, uint16_t n)
{
        box.sequence--;
        send_triggers(first, n);
}

static void listen_to_busy(void)
{
        uint8_t bytes[100];

        for (ssize_t n; (n = bed_receive(box.fd, bytes, sizeof bytes)) >= 0;) {
                assert_true(n == BUSY_PACKET_BYTES && memcmp(bytes, "EVBB", 4) == 0);
                box.busy = bytes[4];
                box.reason = bytes[5];
                box.seen |= 1u << bytes[5];
                assert_int_equal(bytes[4], bytes[5] != BUSY_NOT);
        }
}

static bool is_ready(void)
{
        listen_to_busy();
        return !box.busy;
}

static bool is_busy(enum busy_reason reason)
{
        listen_to_busy();
        return box.busy && box.reason == reason;
}

static void begin(void)
{
        memset(&box, 0, sizeof box);
        box.busy = true;
        box.fd = bed_open_socket(BUSY_PORT);
        bed_start_all();
        bed_until(is_ready());
}

static void wait_offered(uint64_t n)
{
        bed_until(count_of("dfm", triggers_offered) >= n);
}

static void wait_built(uint64_t n)
{
        bed_until(count_of("dfm", events_complete) >= n);
}

static void check_offered(void)
{
        bed_check_accounts();
        assert_int_equal(count_of("dfm", triggers_offered),
                         count_of("dfm", triggers) + count_of("dfm", triggers_refused) +
                                 count_of("dfm", triggers_repeated) + count_of("dfm", triggers_implausible) +
                                 count_of("dfm", triggers_not_taken));
}

static void stop(int status)
{
        bed_stop("dfm", status);
        close(box.fd);
        check_offered();
        bed_check_complete();
}

/* Each trigger becomes one event, with the number, time and type that the board gave it. */
TEST_EACH(each_trigger_is_an_event, pull, 2)
{
        const uint64_t first = (UINT64_C(1) << 32) + (UINT64_C(1) << 31) - 1000,
                       time_ns = UINT64_C(1700000000) * NS_PER_S;

        BED(1, SCENARIO, bed_mode(pull));
        begin();
        for (uint64_t k = 0; k < 2000; k += 20) {
                bed_until(is_ready());
                send_with(first + k, 20,
                          (struct details){.time_ns = time_ns + k,
                                           .type = 0x80 + k / 20 % 2,
                                           .run = k % 40 ? 0 : 4711});
        }
        wait_built(2000);
        stop(0);
        bed_check_written_once(2000);
        assert_each(count_of, "dfm", triggers_offered, 2000, trigger_datagrams, 100, trigger_datagrams_lost,
                    0);
        for (uint64_t k = 0; k < 2000; k++) {
                const struct event_info *e = bed_event(k);

                assert_fields(e, global_id, first + k, l1_id, (uint32_t)(first + k), trigger_type,
                              0x80 + k / 20 % 2);
                assert_int_equal(e->time_s * NS_PER_S + e->time_ns, time_ns + k);
                assert_int_equal(e->run, 4711);
        }
}

/* Lost datagrams fail the run, repeated ones and gaps in the numbers do not. */
TEST(lost_datagrams_fail_the_run)
{
        BED(1, SCENARIO);
        begin();
        for (uint64_t k = 0; k < 50; k++) {
                send_triggers(10 * k, 5); /* numbers have gaps */
                again(10 * k, 5);
        }
        wait_built(250);
        stop(0);
        assert_each(count_of, "dfm", trigger_datagrams_repeated, 50, trigger_datagrams_lost, 0, triggers, 250,
                    trigger_numbers_missing, 49 * 5);

        BED(1, SCENARIO);
        begin();
        send_triggers(0, 5);
        box.sequence += 3;
        send_triggers(20, 5);
        wait_built(10);
        stop(1);
        assert_each(count_of, "dfm", trigger_datagrams_lost, 3, triggers, 10);
        assert_true(bed_has_reason("dfm", "3 datagrams with triggers are lost"));
}

/* With a reset, events follow. */
TEST(numbers_that_go_back_are_refused)
{
        bool has[200] = {};

        BED(1, SCENARIO);
        begin();
        send_triggers(100, 10);
        send_triggers(105, 10);
        send_triggers(0, 10);
        wait_offered(30);
        send_with(0, 10, (struct details){.flags = TRIGGER_RESET});
        wait_built(25);
        stop(1);
        assert_each(count_of, "dfm", triggers, 25, triggers_repeated, 15, trigger_resets, 1);
        assert_true(bed_has_reason("dfm", "15 of 40 triggers are repeated: their number came before"));
        for (uint64_t k = 0; k < 25; k++)
                has[bed_event(k)->global_id] = true;
        for (uint64_t k = 0; k < 200; k++)
                assert_int_equal(has[k], k < 10 || (k >= 100 && k < 115));
}

static void check_numbers(unsigned n, unsigned times)
{
        unsigned found[100] = {};

        for (uint64_t k = 0; k < n * times; k++)
                found[bed_event(k)->global_id]++;
        for (unsigned k = 0; k < n; k++)
                assert_int_equal(found[k], times);
}

/* Nothing is lost, and a box may restart its sequence. */
TEST(resets_while_events_are_built)
{
        BED(1, SCENARIO);
        begin();
        for (int k = 0; k < 40; k++) {
                send_with(0, 25, (struct details){.flags = TRIGGER_RESET | TRIGGER_SPILL_BEGINS});
                send_triggers(25, 25);
                send_with(0, 1, (struct details){.flags = TRIGGER_MARKER | TRIGGER_SPILL_ENDS});
        }
        wait_built(2000);
        stop(0);
        assert_each(count_of, "dfm", triggers, 2000, trigger_resets, 40, spills_begun, 40, spills_ended, 40,
                    triggers_in_spills, 2000);
        check_numbers(50, 40);
        for (uint64_t k = 0; k < 2000; k++) {
                assert_int_equal(bed_event(k)->spill, 1 + k / 50);
                assert_int_equal(bed_event(k)->flags, k % 50 == 0 ? TRIGGER_RESET | TRIGGER_SPILL_BEGINS : 0);
        }
}

/* The DFM dies when a spill has begun and its first trigger is an event. If the box reports another spill
 * while no DFM runs, the account names the datagram. */
TEST_EACH(spills_continue_with_the_next_dfm, i, 5)
{
        bool marks = i / 2 == 1, jumps = i == 4;
        uint64_t n = 0, lost = jumps ? 5000 : i % 2;
        char text[64];

        BED(1, SCENARIO);
        begin();
        for (int spill = 1; spill <= 4; spill++) {
                if (marks)
                        send_with(0, 1, (struct details){.flags = TRIGGER_MARKER | TRIGGER_SPILL_BEGINS});
                for (int k = 0; k < 10; k++) {
                        bed_until(is_ready());
                        send_with(n++, 1, (struct details){.flags = k || marks ? 0 : TRIGGER_SPILL_BEGINS});
                        wait_built(n);
                        if (spill != 2 || k != 0)
                                continue;
                        bed_kill("dfm");
                        if (lost == 1)
                                send_with(0, 1,
                                          (struct details){.flags = TRIGGER_MARKER | TRIGGER_SPILL_BEGINS});
                        listen_to_busy();
                        box.busy = true;
                        bed_start("dfm");
                }
                send_with(0, 1, (struct details){.flags = TRIGGER_MARKER | TRIGGER_SPILL_ENDS});
        }
        bed_until(count_of("dfm", spills_ended) == 4);
        for (box.sequence += jumps ? 5000 : 0; jumps && n < 50;)
                send_triggers(n++, 1);
        wait_built(n);
        stop(lost > 0);
        assert_each(count_of, "dfm", triggers, n, trigger_datagrams_lost, lost, spills_begun, 4, spills_ended,
                    4, triggers_in_spills, 40, triggers_missed, 0);
        snprintf(text, sizeof text, "%u datagrams with triggers are lost", (unsigned)lost);
        assert_int_equal(bed_has_reason("dfm", text), lost > 0);
        for (uint64_t k = 0; k < 40; k++)
                assert_int_equal(bed_event(k)->spill, 1 + k / 10);
}

static void start_dfm(void)
{
        listen_to_busy();
        box.busy = true;
        bed_start("dfm");
        bed_until(is_ready());
}

/* Two DFMs die, and the second one received no datagram. Those of the triggers that became events since the
 * record of the first one are not lost, but a marker that came while none ran is. */
TEST_EACH(datagrams_are_counted_over_two_dfms, i, 4)
{
        uint64_t n = 0, lost = i % 2;

        BED(1, SCENARIO);
        begin();
        send_with(n++, 1, (struct details){});
        wait_built(n);
        /* The record is written now, and at the earliest a second later. */
        bed_pass(500 * NS_PER_MS);
        for (; n < 40; n++) {
                bed_until(is_ready());
                send_with(n, 1, (struct details){});
        }
        wait_built(n);
        bed_kill("dfm");
        if (lost)
                send_with(0, 1, (struct details){.flags = TRIGGER_MARKER | TRIGGER_SPILL_BEGINS});
        start_dfm();
        bed_pass(i / 2 * NS_PER_S);
        bed_kill("dfm");
        start_dfm();
        for (; n < 50; n++) {
                bed_until(is_ready());
                send_with(n, 1, (struct details){});
        }
        wait_built(n);
        stop(lost > 0);
        assert_each(count_of, "dfm", triggers, n, trigger_datagrams_lost, lost, triggers_missed, 0);
}

/* It is over before the next trigger, which needs no flag. */
TEST(a_marker_announces_a_reset)
{
        BED(1, SCENARIO);
        begin();
        for (int k = 0; k < 20; k++) {
                listen_to_busy();
                box.seen = 0;
                send_with(0, 1, (struct details){.flags = TRIGGER_RESET | TRIGGER_MARKER});
                bed_until(is_ready() && box.seen & 1u << BUSY_RESET);
                send_triggers(0, 25);
        }
        wait_built(500);
        stop(0);
        assert_each(count_of, "dfm", triggers, 500, trigger_resets, 20);
        check_numbers(25, 20);
}

static void freeze_sfis(bool frozen)
{
        bed_freeze("sfi1", frozen);
        bed_freeze("sfi2", frozen);
}

/* Triggers that wait at a stop by hand become events, and those that come after it are not taken. */
TEST(a_stop_drains_the_queue)
{
        BED(1, SCENARIO, "sfi.credits=100");
        begin();
        send_triggers(0, 100);
        wait_built(100);
        freeze_sfis(true);
        for (uint64_t k = 0; k < 5000; k += 250)
                send_triggers(100 + k, 250);
        wait_offered(5100);
        bed_until(is_busy(BUSY_CREDITS));
        bed_signal("dfm", SIGTERM);
        bed_until(is_busy(BUSY_STOPPED));
        send_triggers(5100, 10);
        wait_offered(5110);
        freeze_sfis(false);
        bed_ends("dfm", 0);
        close(box.fd);
        check_offered();
        bed_check_complete();
        assert_each(count_of, "dfm", triggers, 5100, triggers_not_taken, 10, triggers_refused, 0);
}

/* A box faster than the SFIs: one that obeys the signal loses nothing, another one is refused. */
static void a_fast_box(bool obeys)
{
        uint64_t sent = 100, n = obeys ? 10 : 500;

        BED(1, SCENARIO, "sfi.credits=200");
        begin();
        send_triggers(0, 100);
        wait_built(100);
        freeze_sfis(true);
        for (; sent < 70000 && (!obeys || is_ready()); sent += n) {
                send_triggers(sent, n);
                bed_pass(NS_PER_MS / 10);
        }
        bed_until(is_busy(BUSY_CREDITS));
        wait_offered(sent);
        freeze_sfis(false);
        for (int k = 0; obeys && k < 100; k++, sent += 10) {
                bed_until(is_ready());
                send_triggers(sent, 10);
        }
        wait_offered(sent);
        bed_until(is_ready());
        wait_built(sent - count_of("dfm", triggers_refused));
        stop(obeys ? 0 : 1);
        assert_true(box.seen & 1u << BUSY_NOT && box.seen & 1u << BUSY_CREDITS);
        assert_true(count_of("dfm", busy_datagrams) > 2 && count_of("dfm", busy_ns) > 0);
        if (obeys) {
                assert_each(count_of, "dfm", triggers, sent, triggers_refused, 0);
                return;
        }
        /* 200 credits of each SFI and the queue hold the rest. */
        assert_true(count_of("dfm", triggers_refused) >= 70000 - 100 - 65536 - 2 * 200);
        assert_true(bed_has_reason("dfm", "were refused, because the queue of triggers was full"));
}

/* The number in the report of the first run; -1: there is none yet. */
static json_int_t reported_triggers(void)
{
        json_auto_t *o = bed_report_of_run("dfm", 0);

        return o ? json_integer_value(json_object_get(o, "triggers")) : -1;
}

/* The DFM is held up. Meanwhile, triggers arrive, the box becomes silent, and then a command arrives. */
TEST_EACH(triggers_from_before_a_command_are_events, i, 3)
{
        static const char *const commands[] = {"stop", "pause"};

        BED(1 + i, SCENARIO, CONTROL, "run.start=auto", "test.keep-alive=50ms");
        begin();
        send_triggers(0, 10);
        wait_built(10);
        bed_freeze("dfm", true);
        for (uint64_t k = 0; k < 300; k++)
                send_triggers(10 + k, 1);
        bed_pass(100 * NS_PER_MS);
        if (i < ARRAY_SIZE(commands))
                bed_ctl_start("operator", commands[i], NULL);
        else
                bed_signal("dfm", SIGTERM);
        bed_pass(100 * NS_PER_MS);
        bed_freeze("dfm", false);
        if (i < ARRAY_SIZE(commands))
                bed_ends("operator", 0);
        bed_until(i == 1 ? count_of("dfm", events_complete) == 310 : reported_triggers() >= 0);
        if (i == 1)
                assert_int_equal(count_of("dfm", triggers_not_taken), 0);
        else
                assert_int_equal(reported_triggers(), 310);
}

TEST(only_a_box_that_ignores_busy_loses_triggers)
{
        a_fast_box(true);
        a_fast_box(false);
}

/* Whatever comes to the port is counted, and disturbs nothing. */
TEST(bad_datagrams_are_counted)
{
        static uint8_t noise[60000];
        uint8_t good[100], bad[100];
        struct random random;
        size_t n;

        BED(1, SCENARIO);
        begin();
        random_init(&random, 1);
        for (size_t i = 0; i < sizeof noise; i++)
                noise[i] = (uint8_t)random_next(&random);
        n = make_datagram(0, 3, &(struct details){});
        memcpy(good, box.bytes, n);
        good[n] = 'x';
        for (int k = 0; k < 20; k++) {
                static const struct {
                        size_t at;
                        uint8_t value;
                } wrong[] = {{3, 'X'}, {4, 2}, {6, 255}, {36, 255}};

                bed_send_datagram("dfm", PORT, good, 0);
                bed_send_datagram("dfm", PORT, good, 1);
                bed_send_datagram("dfm", PORT, good, 4);
                bed_send_datagram("dfm", PORT, good, n - 1);
                bed_send_datagram("dfm", PORT, good, n + 1);
                for (size_t i = 0; i < ARRAY_SIZE(wrong); i++) {
                        memcpy(bad, good, n);
                        bad[wrong[i].at] = wrong[i].value;
                        bed_send_datagram("dfm", PORT, bad, n);
                }
                bed_send_datagram("dfm", PORT, noise, sizeof noise);
                bed_pass(NS_PER_MS);
        }
        n = make_datagram(0, 3, &(struct details){.run = 9});
        bed_send_datagram("dfm", PORT, box.bytes, n);
        for (uint64_t k = 0; k < 20; k++)
                send_triggers(5 * k, 5);
        wait_built(100);
        stop(0);
        assert_true(bed_logged("dfm", "ignored a datagram from 127.0.1.1:40000 that is not a trigger "
                                      "datagram: it has 0 bytes, expected at least"));
        assert_each(count_of, "dfm", triggers, 100, trigger_datagrams_other_run, 1, packets_foreign, 20 * 5,
                    packets_malformed, 20 * 5);
}

/* A datagram may hold as many triggers as UDP carries, and a burst of datagrams is not lost. */
TEST(large_datagrams_are_taken)
{
        BED(1, SCENARIO);
        begin();
        for (uint64_t k = 0; k < 8; k++)
                send_triggers(2700 * k, 2700);
        wait_built(8 * 2700);
        stop(0);
        bed_check_written_once(8 * 2700);
}

/* Without triggers, each slice of time is an event. */
TEST(the_clock_triggers)
{
        RUN(1, "trigger.source=clock:5ms", "trigger.events=200", "ros.count=2", "sfi.count=2");
        bed_all_end(0);
        check_offered();
        bed_check_written_once(200);
        assert_int_equal(count_of("dfm", triggers_refused), 0);
        for (uint64_t k = 0; k < 200; k++) {
                const struct event_info *e = bed_event(k), *before = k ? bed_event(k - 1) : NULL;

                assert_fields(e, global_id, k, l1_id, k);
                assert_true(!before ||
                            (e->time_s - before->time_s) * NS_PER_S + e->time_ns - before->time_ns ==
                                    5 * NS_PER_MS);
        }
}

/* The box may keep the number of the previous run. */
TEST_EACH(a_run_without_triggers_says_so, previous, 2)
{
        BED(1, SCENARIO);
        begin();
        for (uint32_t k = 0; k < 3 * previous; k++) {
                size_t n = make_datagram(k, 1, &(struct details){.run = 9});

                bed_send_datagram("dfm", PORT, box.bytes, n);
                bed_pass(NS_PER_MS);
        }
        bed_stop("dfm", 1);
        close(box.fd);
        assert_true(bed_has_reason("dfm",
                                   previous ? "came to UDP port 47200, only 3 datagrams that name another run"
                                            : "no trigger was accepted: no trigger came to UDP port 47200"));
}
