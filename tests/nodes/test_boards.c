/* The boards and the trigger box of `evb frontend` without nodes: the test receives every frame and trigger,
 * and plays the DFM. */
#include <sys/socket.h>

#include "beam.h"

#define FRAMES_MAX 4096
#define PORT 27000
#define BOX "--trigger-to", "127.0.1.1:27100", "--busy-from", "127.0.1.1:27101", "--run", "77"

/* How the boards of a test make frames. */
static struct {
        uint64_t seed, first;
        size_t offset, bits;
        bool is_big;
} form;

/* What came from a board, in order of arrival. */
static struct receiver {
        int fd; /* -1: none */
        size_t n, bytes;
        struct beam_frame frames[FRAMES_MAX];
} receivers[3];

struct box_trigger {
        uint64_t number, time_ns;
        uint32_t type, flags;
};

static struct {
        int fd;
        bool speaks, is_busy;
        uint8_t reason;
        uint64_t said, datagrams;
        size_t n;
        struct box_trigger triggers[FRAMES_MAX];
} box;

/* Checks each byte of a frame. */
static void keep_frame(struct receiver *r, const uint8_t *bytes, size_t size)
{
        static uint8_t expected[65536];
        struct beam_frame *f = &r->frames[r->n++];
        size_t n = size - 16, end = form.offset + form.bits / 8;

        assert_true(r->n < FRAMES_MAX && size >= 16 && end <= n);
        memcpy(&f->serial, bytes + n, 8);
        memcpy(&f->board, bytes + n + 8, 4);
        memcpy(&f->restarts, bytes + n + 12, 4);
        f->number = 0;
        for (size_t i = 0; i < form.bits / 8; i++)
                f->number |= (uint64_t)bytes[form.offset + (form.is_big ? form.bits / 8 - 1 - i : i)]
                             << 8 * i;
        pattern_fill(pattern_key(form.seed, f->board - 1, f->serial - form.first), expected, 0, n);
        assert_memory_equal(expected, bytes, form.offset);
        assert_memory_equal(expected + end, bytes + end, n - end);
        r->bytes += size;
}

static void receive_frames(struct receiver *r)
{
        static uint8_t datagram[65536];
        uint32_t length;

        for (ssize_t n; (n = bed_receive(r->fd, datagram, sizeof datagram)) >= 0;) {
                memcpy(&length, datagram, 4);
                assert_int_equal(length, n - 4);
                keep_frame(r, datagram + 4, length);
        }
}

static void receive_triggers(void)
{
        static uint8_t datagram[65536];
        uint32_t head[4];

        for (ssize_t n; (n = bed_receive(box.fd, datagram, sizeof datagram)) >= 0;) {
                size_t entries;

                memcpy(head, datagram, sizeof head);
                entries = head[1] >> 16;
                assert_true(head[0] == 0x54425645 && (head[1] & 0xffff) == 1 && head[2] == box.datagrams++ &&
                            head[3] == 77 && (size_t)n == 16 + 24 * entries && box.n + entries <= FRAMES_MAX);
                memcpy(box.triggers + box.n, datagram + 16, 24 * entries);
                box.n += entries;
        }
}

static void send_busy(const void *bytes, uint32_t n)
{
        const struct sockaddr_in from = {AF_INET, htons(40000), {htonl(0x7f000101)}, {}},
                                 to = {AF_INET, htons(27101), {htonl(0x7f000101)}, {}};

        sockets_inject(&from, &to, bytes, n);
}

static void speak(void)
{
        uint8_t state[16] = {'E', 'V', 'B', 'B', box.is_busy, box.is_busy ? box.reason : 0};

        send_busy(state, sizeof state);
        box.said++;
}

/* The DFM repeats its state. */
static void turn(void *ctx)
{
        for (size_t i = 0; i < ARRAY_SIZE(receivers); i++) {
                if (receivers[i].fd >= 0)
                        receive_frames(&receivers[i]);
        }
        if (box.fd >= 0)
                receive_triggers();
        if (box.speaks && turns_now_ns() / NS_PER_MS % 100 == 0)
                speak();
}

static void say(bool busy, uint8_t reason)
{
        box.speaks = true;
        box.is_busy = busy;
        box.reason = reason;
        speak();
}

/* `ross` receive datagrams, at ports PORT onwards. */
static void begin(size_t ross, bool has_box)
{
        BED(1, BEAM);
        form = (typeof(form)){.seed = 1, .bits = 32};
        for (size_t i = 0; i < ARRAY_SIZE(receivers); i++) {
                receivers[i].n = receivers[i].bytes = 0;
                receivers[i].fd = i < ross ? bed_open_socket((uint16_t)(PORT + i)) : -1;
        }
        memset(&box, 0, sizeof box);
        box.fd = has_box ? bed_open_socket(27100) : -1;
        bed_each_ms(turn, NULL);
}

/* Each trigger of a board has one fate. */
static void end(int status)
{
        json_t *o, *b;
        size_t i;

        bed_ends("frontend", status);
        bed_pass(10 * NS_PER_MS);
        o = bed_report("frontend");
        assert_int_equal(json_array_size(json_object_get(o, "reasons")) == 0, status == 0);
        json_array_foreach(json_object_get(o, "boards"), i, b)
        {
                unsigned k = (unsigned)i + 1;
                uint64_t sum = beam_sent(k, "frames") + beam_sent(k, "missed") + beam_sent(k, "outage") +
                               beam_sent(k, "broken") + beam_sent(k, "refused") + beam_sent(k, "unsent");

                assert_int_equal(beam_sent(k, "triggers"), sum);
                assert_int_equal(sum, json_is_true(json_object_get(b, "dead"))
                                              ? 0
                                              : bed_reported("frontend", "triggers"));
        }
        json_decref(o);
}

static double held_seconds(const char *reason)
{
        json_t *o = bed_report("frontend");
        double s = json_real_value(json_object_get(json_object_get(o, "held_seconds"), reason));

        json_decref(o);
        return s;
}

/* Frames whose number is below that of one before them. */
static uint64_t count_late(const struct receiver *r)
{
        uint64_t last = 0, n = 0;

        for (size_t k = 0; k < r->n; k++) {
                n += r->frames[k].serial < last;
                last = MAX(last, r->frames[k].serial);
        }
        return n;
}

/* The report counts what is missing, late or cut off by a restart. A seed repeats its history. */
TEST(faults_of_boards_are_counted)
{
        static struct beam_frame before[2][FRAMES_MAX];

        for (int again = 0; again < 2; again++) {
                uint64_t base = UINT64_MAX, outage;

                begin(3, false);
                form = (typeof(form)){.seed = 5, .first = 65000, .offset = 4, .bits = 16, .is_big = true};
                FRONTEND("frontend", "--boards",
                         "udp:127.0.1.1:27000,udp:127.0.1.1:27001,udp:127.0.1.1:27002", "--count", "3000",
                         "--rate", "poisson:3kHz", "--size", "uniform:100-300", "--event-number", "4:16:be",
                         "--first", "65000", "--fault", "missed=2%", "--fault", "late=5%:30ms", "--fault",
                         "restart=2:400ms:100ms", "--fault", "dead=3", "--seed", "5");
                end(0);
                assert_int_equal(receivers[2].n + beam_sent(3, "frames"), 0);
                for (unsigned i = 1; i <= 2; i++) {
                        const struct receiver *r = &receivers[i - 1];

                        assert_true(beam_sent(i, "missed") > 0 && beam_sent(i, "late") > 0);
                        assert_int_equal(beam_sent(i, "connections"), 0);
                        assert_int_equal(r->n, beam_sent(i, "frames"));
                        assert_int_equal(r->bytes, beam_sent(i, "payload_bytes"));
                        for (size_t k = 0; k < r->n; k++)
                                assert_int_equal(r->frames[k].board, i);
                        assert_true(count_late(r) > 0 && count_late(r) <= beam_sent(i, "late"));
                        if (again)
                                assert_memory_equal(before[i - 1], r->frames, r->n * sizeof *r->frames);
                        memcpy(before[i - 1], r->frames, sizeof r->frames);
                }
                assert_int_equal(beam_sent(1, "outage") + beam_sent(1, "restarts"), 0);
                for (size_t k = 0; k < receivers[0].n; k++)
                        assert_int_equal(receivers[0].frames[k].number,
                                         receivers[0].frames[k].serial % 65536);
                outage = beam_sent(2, "outage");
                assert_true(outage > 100 && beam_sent(2, "restarts") == 1);
                /* The first trigger after the outage is number 0. */
                for (size_t k = 0; k < receivers[1].n; k++) {
                        const struct beam_frame *f = &receivers[1].frames[k];

                        if (f->restarts == 1 && base == UINT64_MAX)
                                base = f->serial - f->number;
                        if (f->restarts == 1)
                                assert_int_equal(f->serial - f->number, base);
                }
                for (size_t k = 0; k < receivers[1].n; k++) {
                        const struct beam_frame *f = &receivers[1].frames[k];

                        if (f->restarts == 0)
                                assert_true(f->serial < base - outage && f->number == f->serial % 65536);
                }
        }
}

/* A board misses the triggers of its outage, also if the program gets no processor during that time. */
TEST(an_outage_lasts_while_the_frontend_is_frozen)
{
        begin(1, false);
        FRONTEND("frontend", "--boards", "udp:127.0.1.1:27000", "--count", "3000", "--rate", "1kHz",
                 "--fault", "restart=1:1s:1s");
        bed_until(receivers[0].n >= 300);
        bed_freeze("frontend", true);
        bed_pass(2500 * NS_PER_MS);
        bed_freeze("frontend", false);
        end(0);
        assert_int_equal(beam_sent(1, "outage"), 1000);
        assert_int_equal(beam_sent(1, "restarts"), 1);
}

/* The DFM is busy, or silent: no trigger comes. */
static size_t wait_pause(void)
{
        size_t n;

        bed_pass(500 * NS_PER_MS);
        n = box.n;
        bed_pass(2 * NS_PER_S);
        assert_int_equal(box.n, n);
        return n;
}

TEST(triggers_wait_for_a_dfm_that_is_ready)
{
        size_t before;
        json_t *o, *busy;

        begin(1, true);
        form.first = UINT64_C(1) << 40;
        FRONTEND("frontend", "--boards", "udp:127.0.1.1:27000", "--rate", "1kHz", "--first", "1099511627776",
                 BOX);
        bed_pass(100 * NS_PER_MS);
        send_busy("EVBB", 4);
        bed_pass(300 * NS_PER_MS);
        assert_int_equal(box.n, 0);
        say(false, 0);
        bed_until(box.n >= 100);
        say(true, 1);
        before = wait_pause();
        say(false, 0);
        bed_until(box.n >= before + 100);
        box.speaks = false;
        wait_pause();
        bed_signal("frontend", SIGINT);
        end(0);
        assert_int_equal(box.n, bed_reported("frontend", "triggers"));
        assert_int_equal(box.datagrams, bed_reported("frontend", "trigger_datagrams"));
        assert_int_equal(receivers[0].n, box.n);
        for (size_t k = 0; k < box.n; k++) {
                const struct box_trigger *t = &box.triggers[k];

                assert_int_equal(t->number, form.first + k);
                assert_true(t->type == 1 && t->flags == (k == 0 ? 4 : 0));
                assert_true(k == 0 || t->time_ns >= t[-1].time_ns);
                assert_int_equal(receivers[0].frames[k].serial, t->number);
        }
        assert_true(box.triggers[0].time_ns / NS_PER_S >= 1700000000 &&
                    box.triggers[box.n - 1].time_ns / NS_PER_S < 1700000600);
        o = bed_report("frontend");
        busy = json_object_get(o, "busy");
        assert_int_equal(json_integer_value(json_object_get(busy, "datagrams")), box.said);
        assert_int_equal(json_integer_value(json_object_get(busy, "malformed")), 1);
        assert_int_equal(json_integer_value(json_object_get(busy, "changes")), 2);
        assert_true(json_real_value(json_object_get(busy, "seconds")) > 0);
        assert_true(held_seconds("busy") > json_real_value(json_object_get(busy, "seconds")));
        json_decref(o);
}

/* ---- Resets ---- */

enum { FLAG_RESET = 4, FLAG_MARKER = 12, REASON_BUSY_RESET = 5 };

static uint32_t last_flags(size_t back)
{
        return box.n > back ? box.triggers[box.n - 1 - back].flags : 0;
}

/* If the DFM stays busy, trigger and boards count from 0, once the DFM has answered the marker that says so.
 */
TEST(counters_are_reset_while_the_dfm_is_busy)
{
        size_t markers = 0, again = SIZE_MAX, n = 0;

        begin(1, true);
        form.first = 5000;
        FRONTEND("frontend", "--boards", "udp:127.0.1.1:27000", "--rate", "1kHz", "--first", "5000",
                 "--fault", "reset-after-busy=2s", BOX);
        bed_pass(100 * NS_PER_MS);
        say(false, 0);
        bed_until(box.n >= 50);
        say(true, 1);
        bed_until(last_flags(0) == FLAG_MARKER);
        /* Neither another reason nor ready answers it, so it comes again. */
        say(true, 1);
        say(false, 0);
        bed_until(last_flags(0) == FLAG_MARKER && last_flags(1) == FLAG_MARKER);
        say(true, REASON_BUSY_RESET);
        /* An answer that takes longer is no reason for another reset. */
        bed_pass(2500 * NS_PER_MS);
        say(false, 0);
        bed_pass(500 * NS_PER_MS);
        bed_signal("frontend", SIGINT);
        end(0);
        assert_int_equal(bed_reported("frontend", "resets"), 1);
        assert_true(bed_logged("frontend", "all counters are reset"));
        for (size_t k = 0; k < box.n; k++) {
                const struct box_trigger *t = &box.triggers[k];

                if (t->flags == FLAG_MARKER) {
                        again = MIN(again, k);
                        assert_int_equal(k, again + markers++);
                        assert_int_equal(t->number, 0);
                        continue;
                }
                assert_int_equal(t->flags, k == 0 ? FLAG_RESET : 0);
                assert_int_equal(t->number, again == SIZE_MAX ? 5000 + k : n - again);
                assert_int_equal(receivers[0].frames[n].number, t->number);
                n++;
        }
        assert_true(markers >= 2 && n > again + 20);
        assert_int_equal(receivers[0].n, n);
}

static unsigned count_at(uint64_t serial)
{
        return (unsigned)MIN(serial / 300, (uint64_t)2);
}

/* By a schedule; no frame of the previous count comes later. */
TEST(counters_are_reset_by_a_schedule)
{
        static const uint64_t begins[] = {0, 300, 600};

        begin(2, true);
        form.bits = 16;
        FRONTEND("frontend", "--boards", "udp:127.0.1.1:27000,udp:127.0.1.1:27001", "--rate", "1kHz",
                 "--count", "1000", "--run", "77", "--event-number", "0:16", "--fault", "reset=600ms:1ms",
                 "--fault", "reset=300ms", "--fault", "late=10%:50ms", "--fault", "restart=2:100ms",
                 "--trigger-to", "127.0.1.1:27100");
        end(0);
        assert_int_equal(bed_reported("frontend", "resets"), 2);
        assert_true(held_seconds("reset") >= 0.1);
        assert_int_equal(box.n, 1000);
        for (size_t k = 0; k < box.n; k++) {
                assert_int_equal(box.triggers[k].flags, k == begins[count_at(k)] ? FLAG_RESET : 0);
                assert_int_equal(box.triggers[k].number, k - begins[count_at(k)]);
        }
        for (unsigned i = 1; i <= 2; i++) {
                const struct receiver *r = &receivers[i - 1];

                assert_int_equal(r->n, beam_sent(i, "frames"));
                assert_true(count_late(r) > 0);
                for (size_t k = 0; k < r->n; k++) {
                        unsigned count = count_at(r->frames[k].serial);

                        assert_true(k == 0 || count >= count_at(r->frames[k - 1].serial));
                        if (count > 0 || i == 1)
                                assert_int_equal(r->frames[k].number, r->frames[k].serial - begins[count]);
                }
        }
}
