/* Datagrams of a trigger box that the test plays, and the busy signal that it receives: what is counted,
 * and that no datagram stalls the DFM. */
#include "../core/dfm/dfm_order_driver.h"

#include <endian.h>
#include <poll.h>
#include <sys/socket.h>
#include <time.h>

#include "data/trigger_input.h"
#include "net/endpoint.h"
#include "data_sample.h"
#include "log_lines.h"

#define PORT 46912
#define RUN 7

static bool flood; /* the socket delivers endless datagrams */
static unsigned receives;
static uint8_t flooded[TRIGGER_PACKET_HEADER_BYTES + 100 * TRIGGER_ENTRY_BYTES];

int __real_recvmmsg(int fd, struct mmsghdr *messages, unsigned n, int flags, struct timespec *timeout);

int __wrap_recvmmsg(int fd, struct mmsghdr *messages, unsigned n, int flags, struct timespec *timeout)
{
        if (!flood)
                return __real_recvmmsg(fd, messages, n, flags, timeout);
        if (++receives > 10000)
                fail_msg("a turn does not end during a flood");
        for (unsigned i = 0; i < n; i++) {
                memcpy(messages[i].msg_hdr.msg_iov->iov_base, flooded, sizeof flooded);
                messages[i].msg_len = sizeof flooded;
                messages[i].msg_hdr.msg_controllen = 0;
        }
        return (int)n;
}

static struct bench {
        struct sample sample;
        struct dfm *core;
        struct trigger_input *input;
        struct busy_output *busy;
        struct endpoint *board;
        uint64_t now_ns;
} b;

static int bench_open(void **state)
{
        struct dfm_config config = {
                .run = RUN,
                .cookie = SAMPLE_COOKIE,
                .incarnation = SAMPLE_DFM,
                .n_ros = 2,
                .n_sfi = 2,
                .trigger_source = DFM_TRIGGER_OFFERED,
                .trigger_queue = 16,
                .events_max = 64,
                .clear_group = 10,
                .keep_alive_ns = NS_PER_S,
                .message_bytes = 1472,
        };
        struct udp_config board = {.segmentation = SEGMENTATION_OFF};
        char text[NET_ADDRESS_TEXT_MAX];

        b = (struct bench){.now_ns = 10 * NS_PER_S};
        flood = false;
        receives = 0;
        sample_open(&b.sample, "dfm", "udp");
        b.sample.scenario->trigger.port = PORT;
        assert_int_equal(net_address_parse(&board.local, sample_at(9), 0), 0);
        assert_int_equal(endpoint_new_udp(&b.board, &board), 0);
        net_address_format(&b.board->local, text);
        snprintf(b.sample.scenario->trigger.busy_to, sizeof text, "%s", text);
        assert_int_equal(dfm_new(&b.core, &config, b.now_ns), 0);
        assert_int_equal(trigger_input_new(&b.input, &b.sample.context, b.core), 0);
        assert_int_equal(busy_output_new(&b.busy, &b.sample.context), 0);
        return 0;
}

static int bench_close(void **state)
{
        trigger_input_free(b.input);
        busy_output_free(b.busy);
        endpoint_free(b.board);
        dfm_free(b.core);
        sample_close(&b.sample);
        return 0;
}

static void send_bytes(const void *bytes, size_t n)
{
        struct net_address to;

        assert_int_equal(net_address_parse(&to, sample_at(1), PORT), 0);
        assert_int_equal(sendto(b.board->fd, bytes, n, 0, &to.any, to.size_bytes), n);
}

static size_t make_packet(uint8_t *bytes, uint32_t sequence, uint32_t run, uint16_t n, uint64_t first,
                          uint32_t flags)
{
        uint32_t header[] = {htole32(UINT32_C(0x54425645)), htole32((uint32_t)n << 16 | 1), htole32(sequence),
                             htole32(run)};

        memcpy(bytes, header, sizeof header);
        for (uint64_t k = 0; k < n; k++) {
                uint64_t entry[] = {htole64(first + k), 0, htole64((uint64_t)(k ? 0 : flags) << 32)};

                memcpy(bytes + sizeof header + k * sizeof entry, entry, sizeof entry);
        }
        return sizeof header + n * (size_t)TRIGGER_ENTRY_BYTES;
}

static void turn(void)
{
        assert_int_equal(loop_wait(b.sample.loop, 0), 0);
        trigger_input_turn(b.input, b.now_ns);
        stats_copy_dfm(b.sample.stats, b.core);
        trigger_input_publish(b.core, b.sample.stats);
}

static void send_packet(uint32_t sequence, uint16_t n, uint64_t first, uint32_t flags)
{
        uint8_t bytes[TRIGGER_PACKET_HEADER_BYTES + 100 * TRIGGER_ENTRY_BYTES];

        send_bytes(bytes, make_packet(bytes, sequence, RUN, n, first, flags));
        turn();
}

/* Offered, lost, repeated and late. */
static void assert_datagrams(uint64_t offered, uint64_t lost, uint64_t repeated, uint64_t late)
{
        const struct node_stats *s = b.sample.stats;

        assert_stats(s, triggers_offered, offered, trigger_datagrams_lost, lost, trigger_datagrams_repeated,
                     repeated, trigger_datagrams_late, late);
}

TEST_WITH(sequence_numbers_show_losses_and_repeats, bench_open, bench_close)
{
        send_packet(50, 10, 0, 0);
        assert_datagrams(10, 0, 0, 0);
        send_packet(51, 10, 10, 0);
        send_packet(51, 10, 10, 0);
        assert_datagrams(20, 0, 1, 0);
        send_packet(54, 10, 40, 0);
        assert_datagrams(30, 2, 1, 0);
        send_packet(52, 10, 20, 0); /* overtaken */
        assert_datagrams(40, 1, 1, 0);
        send_packet(56, 0, 0, 0); /* empty, but shows a loss */
        assert_datagrams(40, 2, 1, 0);
        assert_int_equal(stats_get(&b.sample.stats->triggers_not_taken), 40);
        assert_int_equal(trigger_input_deadline_ns(b.input), NEVER_NS);
}

TEST_WITH(a_datagram_that_a_reset_overtook_is_dropped, NULL, bench_close)
{
        bench_open(NULL);
        send_packet(50, 1, 0, 0);
        send_packet(52, 1, 0, TRIGGER_RESET);
        assert_datagrams(2, 1, 0, 0);
        log_lines = 0;
        send_packet(51, 1, 1, 0);
        assert_datagrams(2, 0, 0, 1);
        assert_int_equal(log_lines, 1);
        bench_close(NULL);
        /* Or the first one brought the reset. */
        bench_open(NULL);
        send_packet(50, 1, 0, TRIGGER_RESET);
        send_packet(49, 1, 1, 0);
        assert_datagrams(1, 0, 0, 1);
}

/* Numbers of datagrams are 32 bits wide: the reset must not seem to come after all of them. */
TEST_WITH(a_reset_of_long_ago_overtook_nothing, bench_open, bench_close)
{
        const uint32_t later = 100 + (UINT32_C(1) << 31);

        send_packet(50, 1, 0, TRIGGER_RESET);
        for (uint32_t k = 0; k < 4; k++) /* four confirm the jump */
                send_packet(later + k, 1, 1 + k, 0);
        send_packet(later + 5, 1, 6, 0);
        send_packet(later + 4, 1, 5, 0);
        assert_stats(b.sample.stats, trigger_datagrams_late, 0, triggers_offered, 7);
}

TEST_WITH(a_restarted_board_is_followed_at_once, bench_open, bench_close)
{
        send_packet(0, 1, 0, TRIGGER_RESET);
        send_packet(1, 1, 1, 0);
        send_packet(0, 1, 0, TRIGGER_RESET); /* the network repeats it */
        assert_datagrams(2, 0, 1, 0);
        b.now_ns += NS_PER_S;
        send_packet(0, 1, 0, TRIGGER_RESET);
        assert_datagrams(3, 0, 1, 0);
        send_packet(1, 1, 1, 0);
        assert_datagrams(4, 0, 1, 0);
        send_packet(1000000, 1, 2, 0); /* suspect, but the core judges its numbers */
        assert_datagrams(5, 0, 1, 0);
}

static struct dfm_driver running;

/* A bench whose run has begun: triggers are taken. */
static int running_open(void **state)
{
        struct dfm_config config = dfm_standard();

        bench_open(NULL);
        config.trigger_source = DFM_TRIGGER_OFFERED;
        config.trigger_queue = 400;
        dfm_driver_start(&running, &config);
        trigger_input_free(b.input);
        assert_int_equal(trigger_input_new(&b.input, &b.sample.context, running.dfm), 0);
        log_lines = 0;
        return 0;
}

static int running_close(void **state)
{
        dfm_driver_fini(&running);
        bench_close(NULL);
        return 0;
}

static void send_running(uint32_t sequence, uint16_t n, uint64_t first, uint32_t flags)
{
        uint8_t bytes[TRIGGER_PACKET_HEADER_BYTES + 100 * TRIGGER_ENTRY_BYTES];

        send_bytes(bytes, make_packet(bytes, sequence, TRACE_RUN, n, first, flags));
        assert_int_equal(loop_wait(b.sample.loop, 0), 0);
        trigger_input_turn(b.input, b.now_ns);
        stats_copy_dfm(b.sample.stats, running.dfm);
        trigger_input_publish(running.dfm, b.sample.stats);
}

/* All triggers that were offered wait: none was discarded, and nothing was logged. */
static void assert_all_wait(uint32_t n)
{
        const struct node_stats *s = b.sample.stats;

        assert_int_equal(dfm_run_view(running.dfm).waiting, n);
        assert_stats(s, triggers_offered, n, triggers_repeated, 0, trigger_resets, 0);
        assert_int_equal(log_lines, 0);
}

/* The network swaps the first datagrams of the trigger box. Only a datagram that comes again is a repeat. */
TEST(the_first_datagram_may_overtake_others)
{
        running_open(NULL);
        send_running(7, 1, 107, 0);
        send_running(5, 2, 104, TRIGGER_RESET);
        assert_all_wait(3);
        assert_datagrams(3, 1, 0, 0);
        assert_int_equal(stats_get(&b.sample.stats->trigger_numbers_missing), 1);
        send_running(5, 2, 104, TRIGGER_RESET);
        assert_datagrams(3, 1, 1, 0);
        send_running(6, 1, 106, 0);
        assert_all_wait(4);
        assert_datagrams(4, 0, 1, 0);
        assert_int_equal(stats_get(&b.sample.stats->trigger_numbers_missing), 0);
        running_close(NULL);
        /* Behind a datagram without triggers. */
        running_open(NULL);
        send_running(0, 0, 0, 0);
        send_running(2, 1, 8, 0);
        send_running(1, 1, 7, TRIGGER_RESET);
        assert_all_wait(2);
        assert_datagrams(2, 0, 0, 0);
        /* Later, the network cannot have held it for so long. */
        b.now_ns += NS_PER_S;
        send_running(UINT32_MAX, 1, 6, 0);
        assert_int_equal(stats_get(&b.sample.stats->triggers_repeated), 1);
        assert_int_equal(log_lines, 1);
        running_close(NULL);
}

/* It counts its datagrams from 0 again, while its triggers go on. */
static const uint32_t begins[] = {20, 300};

TEST_EACH(a_sequence_that_begins_again_costs_no_trigger, i, ARRAY_SIZE(begins))
{
        uint32_t n = 0;

        running_open(NULL);
        for (; n < begins[i]; n++)
                send_running(n, 1, n, 0);
        assert_all_wait(n);
        for (uint32_t k = 0; k < 40; k++)
                if (k != 15)
                        send_running(k, 1, n + k, 0);
        assert_int_equal(dfm_run_view(running.dfm).waiting, n + 39);
        assert_datagrams(n + 39, 1, 0, 0);
        assert_int_equal(stats_get(&b.sample.stats->triggers_repeated), 0);
        assert_int_equal(log_lines, 1);
        running_close(NULL);
}

/* Soon after the first one, so that it may seem to have overtaken the others. */
TEST_WITH(a_sequence_may_begin_again_soon, bench_open, bench_close)
{
        for (uint32_t k = 0; k < 30; k++)
                send_packet(50 + k, 1, k, 0);
        b.now_ns += NS_PER_S / 2;
        for (uint32_t k = 0; k < 10; k++)
                send_packet(k, 1, 30 + k, 0);
        assert_datagrams(40, 0, 0, 0);
}

/* Its numbers begin again too, without a reset: no trigger vanishes in silence. */
TEST_WITH(a_repeated_number_is_never_only_a_repeated_datagram, running_open, running_close)
{
        struct reasons r = {};

        for (uint32_t k = 0; k < 20; k++)
                send_running(k, 1, k, 0);
        for (uint32_t k = 0; k < 10; k++)
                send_running(k, 2, k, 0);
        assert_datagrams(40, 0, 0, 0);
        assert_int_equal(stats_get(&b.sample.stats->triggers_repeated), 20);
        assert_int_equal(log_lines, 2);
        trigger_input_reasons(running.dfm, b.sample.scenario, b.sample.stats, &r);
        assert_int_equal(r.n, 1);
}

TEST_WITH(bad_datagrams_are_counted, bench_open, bench_close)
{
        uint8_t bytes[1000] = {0};
        size_t n;

        send_bytes(bytes, 0);
        send_bytes(bytes, 3);
        send_bytes(bytes, sizeof bytes);
        turn();
        assert_int_equal(stats_get(&b.sample.stats->packets_foreign), 3);
        n = make_packet(bytes, 9, RUN, 3, 0, 0);
        send_bytes(bytes, n - 1);
        send_bytes(bytes, n + 1);
        n = make_packet(bytes, 9, RUN, 3, 0, 1u << 31);
        send_bytes(bytes, n);
        turn();
        assert_int_equal(stats_get(&b.sample.stats->packets_malformed), 3);
        n = make_packet(bytes, 9, RUN + 1, 3, 0, 0);
        send_bytes(bytes, n);
        turn();
        assert_int_equal(stats_get(&b.sample.stats->trigger_datagrams_other_run), 1);
        assert_datagrams(0, 0, 0, 0);
        n = make_packet(bytes, 9, 0, 3, 0, 0);
        send_bytes(bytes, n);
        turn();
        assert_datagrams(3, 0, 0, 0);
        assert_int_equal(stats_get(&b.sample.stats->trigger_datagrams), 1);
}

TEST_WITH(a_flood_does_not_prolong_a_turn, bench_open, bench_close)
{
        make_packet(flooded, 1, 0, 100, 0, 0);
        send_bytes(flooded, sizeof flooded);
        flood = true;
        turn();
        assert_true(receives <= 16);
        assert_int_equal(trigger_input_deadline_ns(b.input), 0);
}

/* The socket holds 10,900 small datagrams. */
TEST_WITH(before_a_command_all_that_the_socket_holds_is_read, bench_open, bench_close)
{
        make_packet(flooded, 1, 0, 1, 0, 0);
        flood = true;
        trigger_input_catch_up(b.input, b.now_ns);
        assert_in_range(stats_get(&b.sample.stats->packets_malformed), 11000, 20000);
}

/* Repeated triggers, those of another run, and datagrams that are none have a line each, and another one when
 * they come again after a pause. */
TEST_WITH(each_fault_is_logged, running_open, running_close)
{
        static const struct {
                unsigned at_s, lines;
        } times[] = {{10, 3}, {15, 3}, {24, 3}, {34, 6}, {35, 6}};
        uint8_t bytes[TRIGGER_PACKET_HEADER_BYTES + 100 * TRIGGER_ENTRY_BYTES];

        for (uint32_t i = 0; i < ARRAY_SIZE(times); i++) {
                b.now_ns = times[i].at_s * NS_PER_S;
                send_bytes(bytes, make_packet(bytes, 0, TRACE_RUN + 1, 1, 0, 0));
                send_bytes(bytes, 1);
                for (uint32_t k = 0; k < 2; k++)
                        send_bytes(bytes, make_packet(bytes, 2 * i + k, TRACE_RUN, 1, 0, 0));
                turn();
                assert_int_equal(log_lines, times[i].lines);
        }
        assert_true(dfm_counts(running.dfm)->offered.repeated >= ARRAY_SIZE(times));
}

/* They are so far back that the DFM does not know them any longer. */
TEST_WITH(frames_that_are_too_late_are_a_reason, bench_open, bench_close)
{
        struct dfm_config c = frames_config(2, 64);
        struct reasons r = {};
        struct dfm_driver t = {};

        start_after(&t, &c, 6007);
        trigger_input_reasons(t.dfm, b.sample.scenario, b.sample.stats, &r);
        assert_int_equal(r.n, 0);
        announce_range(&t, 1, 1008, 2);
        trigger_input_reasons(t.dfm, b.sample.scenario, b.sample.stats, &r);
        assert_int_equal(r.n, 1);
        assert_string_equal(r.text[0],
                            "2 numbers of frames came too late, after higher ones, and made no event");
        dfm_driver_fini(&t);
}

static void connect_boards(uint8_t number_bits)
{
        for (size_t i = 0; i < b.sample.scenario->n_nodes; i++) {
                b.sample.scenario->nodes[i].source_kind = SOURCE_UDP;
                b.sample.scenario->nodes[i].board.number.bits = number_bits;
        }
}

/* Where frames are only counted, each trigger that became no event shifts all later frames. */
TEST_WITH(lost_triggers_shift_counted_frames, bench_open, bench_close)
{
        struct reasons r = {};

        send_packet(50, 1, 0, 0);
        send_packet(52, 1, 2, 0);
        trigger_input_reasons(b.core, b.sample.scenario, b.sample.stats, &r);
        assert_int_equal(r.n, 1);
        connect_boards(0);
        r.n = 0;
        trigger_input_reasons(b.core, b.sample.scenario, b.sample.stats, &r);
        assert_int_equal(r.n, 2);
        assert_non_null(strstr(r.text[1], "the run is unreliable: ROSs count frames"));
        connect_boards(32);
        r.n = 0;
        trigger_input_reasons(b.core, b.sample.scenario, b.sample.stats, &r);
        assert_int_equal(r.n, 1);
}

/* The board has sent a frame for the trigger, unless the network has repeated the datagram. */
TEST_EACH_BETWEEN(triggers_with_false_numbers_shift_counted_frames, far, 2, running_open(NULL),
                  running_close(NULL))
{
        struct reasons r = {};

        connect_boards(0);
        send_running(0, 1, 0, 0);
        send_running(1, 1, 1, 0);
        send_running(1, 1, 1, 0);
        assert_datagrams(2, 0, 1, 0);
        trigger_input_reasons(running.dfm, b.sample.scenario, b.sample.stats, &r);
        assert_int_equal(r.n, 0);
        send_running(2, 1, far ? UINT64_C(1) << 40 : 1, 0);
        send_running(3, 1, 3, 0);
        assert_stats(b.sample.stats, triggers_repeated, !far, triggers_implausible, far);
        trigger_input_reasons(running.dfm, b.sample.scenario, b.sample.stats, &r);
        assert_int_equal(r.n, 2);
        assert_non_null(strstr(r.text[0], "the run is unreliable: ROSs count frames"));
}

/* The newest datagram that the board received; -1: none. */
static int receive_busy(uint8_t bytes[static BUSY_PACKET_BYTES])
{
        struct pollfd p = {.fd = b.board->fd, .events = POLLIN};

        if (poll(&p, 1, 0) == 0)
                return -1;
        return (int)recv(b.board->fd, bytes, BUSY_PACKET_BYTES, 0);
}

TEST_WITH(busy_is_sent_at_changes_and_every_100_ms, bench_open, bench_close)
{
        struct busy_packet p = {true, BUSY_STOPPED, BUSY_NONE};
        uint8_t bytes[BUSY_PACKET_BYTES];

        busy_output_turn(b.busy, b.now_ns, &p);
        assert_int_equal(receive_busy(bytes), BUSY_PACKET_BYTES);
        assert_int_equal(bytes[4], 1);
        assert_int_equal(busy_output_deadline_ns(b.busy), b.now_ns + 100 * NS_PER_MS);
        p.last = 5; /* no change of the state */
        busy_output_turn(b.busy, b.now_ns + 1, &p);
        assert_int_equal(receive_busy(bytes), -1);
        p = (struct busy_packet){false, BUSY_NOT, 6};
        busy_output_turn(b.busy, b.now_ns + 2, &p);
        assert_int_equal(receive_busy(bytes), BUSY_PACKET_BYTES);
        assert_int_equal(bytes[4], 0);
        assert_int_equal(bytes[8], 6);
        p = (struct busy_packet){true, BUSY_XOFF, 7};
        busy_output_turn(b.busy, b.now_ns + 3, &p);
        p.reason = BUSY_CREDITS;
        busy_output_turn(b.busy, b.now_ns + 4, &p);
        assert_int_equal(receive_busy(bytes), BUSY_PACKET_BYTES);
        assert_int_equal(bytes[5], BUSY_XOFF);
        assert_int_equal(receive_busy(bytes), BUSY_PACKET_BYTES);
        assert_int_equal(bytes[5], BUSY_CREDITS);
        busy_output_turn(b.busy, b.now_ns + 3 + 100 * NS_PER_MS, &p);
        assert_int_equal(receive_busy(bytes), -1);
        busy_output_turn(b.busy, b.now_ns + 4 + 100 * NS_PER_MS, &p);
        assert_int_equal(receive_busy(bytes), BUSY_PACKET_BYTES);
        assert_int_equal(stats_get(&b.sample.stats->busy_datagrams), 5);
}

/* Nobody listens there: ICMP errors must not end anything. */
TEST_WITH(a_missing_receiver_does_no_harm, bench_open, bench_close)
{
        struct busy_packet p = {true, BUSY_STOPPED, BUSY_NONE};

        endpoint_free(b.board);
        b.board = NULL;
        for (int k = 0; k < 20; k++) {
                p.busy = !p.busy;
                busy_output_turn(b.busy, b.now_ns + (uint64_t)k, &p);
        }
        assert_true(stats_get(&b.sample.stats->busy_datagrams) >= 10);
        assert_null(trigger_input_free(NULL));
        assert_null(busy_output_free(NULL));
        trigger_input_turn(NULL, 0);
        busy_output_turn(NULL, 0, &p);
        assert_int_equal(busy_output_deadline_ns(NULL), NEVER_NS);
}
