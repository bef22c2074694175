/* A trigger box resets the counters while level 2, or an SFI, holds back the triggers before: no frame is in
 * the event of a trigger of the other count with the same number. The test plays the boards and the box. */
#include "bed.h"
#include "base/arena.h"
#include "protocol/trigger_packet.h"

#define SCENARIO                                                                                             \
        "ros.count=2", "sfi.count=1", "sfi.credits=200", "ros.source=udp:27000", "ros.frame=datagram",       \
                "ros.event-number=0:32", "trigger.source=udp:47200", "trigger.busy-to=127.0.1.1:47201",      \
                "trigger.events=0"
#define LEVEL2 "level2.listen=tcp:26803", "level2.timeout=30s"
#define DELAY_NS (2 * NS_PER_MS)
#define COUNT 100u /* triggers between two resets */
#define SERIALS (4 * COUNT)

/* The serial number of a trigger is its type, and is in the frames. */
static struct {
        int fd;
        bool busy;
        uint32_t sequence, number, serial;
        uint32_t numbers[SERIALS];
        uint64_t due_ns[SERIALS];
        uint32_t sent; /* triggers whose frames were sent */
        unsigned complete[SERIALS], partial[SERIALS];
        uint64_t mixed;
} beam;

static void look(void *ctx, const struct sfi_built *built, const uint8_t *buffer)
{
        unsigned n = 0;

        for (int i = 0; i < 2; i++) {
                const struct sfi_fragment *f = &built->fragments[i];
                uint64_t serial;

                if (!f->whole || f->bytes == 0 || f->at == ARENA_NONE)
                        continue;
                memcpy(&serial, buffer + f->at + 8, sizeof serial);
                beam.mixed += serial != built->info.trigger_type;
                n++;
        }
        (n == 2 ? beam.complete : beam.partial)[built->info.trigger_type]++;
}

static void turn(void *ctx)
{
        uint8_t bytes[100];

        while (bed_receive(beam.fd, bytes, sizeof bytes) == BUSY_PACKET_BYTES)
                beam.busy = bytes[4];
        for (; beam.sent < beam.serial && beam.due_ns[beam.sent] <= turns_now_ns(); beam.sent++) {
                const uint64_t frame[2] = {beam.numbers[beam.sent], beam.sent};

                bed_send_datagram("ros1", 27000, frame, sizeof frame);
                bed_send_datagram("ros2", 27000, frame, sizeof frame);
        }
}

/* The box sends all triggers before it receives busy. */
static void send_triggers(unsigned n, bool begins, uint32_t flags)
{
        for (beam.number = begins ? 0 : beam.number; n > 0; n--, flags = 0) {
                struct {
                        char magic[4];
                        uint16_t version, n;
                        uint32_t sequence, run;
                        uint64_t number, time_ns;
                        uint32_t type, flags;
                } d = {"EVBT", 1, 1, beam.sequence++, 0, beam.number, 0, beam.serial, flags};

                bed_send_datagram("dfm", 47200, &d, sizeof d);
                beam.numbers[beam.serial] = beam.number++;
                beam.due_ns[beam.serial++] = turns_now_ns() + DELAY_NS;
        }
}

static void begin(void)
{
        memset(&beam, 0, sizeof beam);
        beam.busy = true;
        beam.fd = bed_open_socket(47201);
        bed_each_event(look, NULL);
        bed_each_ms(turn, NULL);
        bed_start_all();
        bed_until(!beam.busy);
}

static void begin_with(bool level2, bool pull)
{
        if (level2)
                BED(1, SCENARIO, bed_mode(pull), LEVEL2);
        else
                BED(1, SCENARIO, bed_mode(pull));
        begin();
        if (level2)
                FARM("farm", "--connect", bed_address_text("dfm", 26803), "--fraction", "1", "--latency",
                     "1s");
        else
                bed_freeze("sfi1", true);
}

static void end(int status)
{
        bed_pass(10 * NS_PER_S);
        bed_signal("dfm", SIGTERM);
        bed_until(bed_has_ended("dfm"));
        for (size_t i = 0; i < 2; i++)
                bed_until(bed_has_ended(bed_name(ROLE_ROS, i)));
        bed_until(bed_has_ended("sfi1"));
        bed_ends("dfm", status);
        bed_check_accounts();
        assert_int_equal(beam.mixed, 0);
}

static unsigned n_complete(unsigned count)
{
        unsigned n = 0;

        for (unsigned k = count * COUNT; k < (count + 1) * COUNT; k++)
                n += beam.complete[k];
        return n;
}

/* Without level 2, in pull, an SFI is held up. */
static const struct {
        bool level2, pull;
        uint64_t after_ns; /* pause before the reset */
} cases[] = {{true, false, 0},
             {true, true, 0},
             {true, false, 500 * NS_PER_MS},
             {true, true, 500 * NS_PER_MS},
             {false, true, 0},
             {false, true, 300 * NS_PER_MS}};

TEST_EACH(frames_from_before_a_reset_stay_with_their_triggers, i, 2 * ARRAY_SIZE(cases))
{
        bool flagged = i % 2;

        begin_with(cases[i / 2].level2, cases[i / 2].pull);
        send_triggers(COUNT, true, TRIGGER_RESET);
        bed_pass(cases[i / 2].after_ns);
        send_triggers(COUNT, true, flagged ? TRIGGER_RESET : 0);
        bed_pass(NS_PER_S);
        if (!cases[i / 2].level2)
                bed_freeze("sfi1", false);
        end(1);
        assert_int_equal(n_complete(0), COUNT);
        assert_true(bed_has_reason("ros1", "out of step"));
}

/* The box resets the counters twice within the time of a decision. */
TEST_EACH(frames_of_three_counts_do_not_mix, pull, 2)
{
        begin_with(true, pull);
        send_triggers(COUNT, true, TRIGGER_RESET);
        send_triggers(COUNT, true, TRIGGER_RESET);
        bed_pass(50 * NS_PER_MS);
        send_triggers(COUNT, true, TRIGGER_RESET);
        end(1);
        assert_int_equal(n_complete(0), COUNT);
}

/* In the middle of it, a process is replaced. */
TEST_EACH(a_process_that_is_replaced_does_not_mix_counts, i, 12)
{
        const char *const nodes[] = {"ros1", "dfm", "sfi1"};
        const char *node = nodes[i / 4];

        begin_with(true, i % 2);
        send_triggers(COUNT, true, TRIGGER_RESET);
        bed_pass(100 * NS_PER_MS);
        if (i / 2 % 2)
                bed_restart(node);
        send_triggers(COUNT / 2, true, TRIGGER_RESET);
        bed_pass(10 * NS_PER_MS);
        if (i / 2 % 2 == 0)
                bed_restart(node);
        bed_pass(500 * NS_PER_MS);
        send_triggers(COUNT / 2, false, 0);
        end(1);
}

TESTS_BETWEEN(NULL, NULL)
