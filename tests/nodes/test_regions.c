/* Regions of interest: level-2 clients request fragments of undecided events. Building does not notice it. */
#include "boards.h"
#include "base/random.h"
#include "protocol/chunk.h"

#define PORT 26803
#define REGIONS_PORT 26804
/* No time-out decides unless a test sets a shorter one. */
#define SCENARIO                                                                                             \
        "trigger.events=4000", "trigger.rate=4kHz", "ros.count=3", "ros.fragment-size=512", "sfi.count=2",   \
                "sfi.timeout=30s", "dfm.node-timeout=30s", "level2.listen=tcp:26803", "level2.timeout=10min"
#define REGIONS "level2.regions=tcp:26804", "run.seed=5"
#define REGION_FARM(name, ...)                                                                               \
        FARM(name, "--connect", bed_address_text("dfm", PORT), "--latency", "0", "--wait", "60s", __VA_ARGS__)

static bool accepts(uint64_t event)
{
        return (double)(random_mix(random_mix(1) ^ event) >> 11) * 0x1p-53 < 0.1;
}

static void check_sums(void)
{
        bed_check_accounts();
        assert_true(count_of("dfm", triggers) > 0);
        assert_int_equal(count_of("dfm", level2_timed_out), 0);
        assert_int_equal(count_of("dfm", triggers),
                         count_of("dfm", events_complete) + count_of("dfm", events_rejected));
}

static void check_requests(void)
{
        assert_int_equal(count_sum(ROLE_ROS, regions_requested),
                         count_sum(ROLE_ROS, regions_sent) + count_sum(ROLE_ROS, regions_gone) +
                                 count_sum(ROLE_ROS, regions_absent) + count_sum(ROLE_ROS, regions_refused) +
                                 count_sum(ROLE_ROS, regions_dropped));
}

/* Each event is decided on two fragments, whose bytes are checked. The files are as without regions of
 * interest. */
static void decide_all(const char *mode, const char *transport, const char *loss, const char *size,
                       uint64_t n, uint64_t bytes)
{
        char events[32];

        snprintf(events, sizeof events, "trigger.events=%llu", (unsigned long long)n);
        BED(1, SCENARIO, REGIONS, events, mode, transport, loss, size);
        REGION_FARM("farm", "--fraction", "0.1", "--regions", "2", "--pattern", "5");
        bed_start_all();
        bed_all_end(0);
        bed_ends("farm", 0);
        check_sums();
        check_requests();
        assert_int_equal(count_of("dfm", triggers), n);
        assert_each(bed_reported, "farm", "events", n, "regions.requested", 2 * n, "regions.received", 2 * n,
                    "regions.bytes", 2 * n * bytes);
        assert_int_equal(bed_reported("farm", "regions.corrupt") + bed_reported("farm", "regions.absent") +
                                 bed_reported("farm", "regions.missed") +
                                 bed_reported("farm", "regions.gone") +
                                 bed_reported("farm", "regions.events_incomplete"),
                         0);
        assert_each(count_sum, ROLE_ROS, regions_sent, 2 * n, regions_bytes, 2 * n * bytes);
        assert_int_equal(count_of("dfm", fragments_expected), 3 * count_of("dfm", events_complete));
        for (uint64_t e = 0; e < n; e++)
                assert_int_equal(bed_written(e), accepts(e));
}

TEST(events_are_decided_on_fragments)
{
        static const char udp[] = "scenario.transport=udp", small[] = "ros.fragment-size=512";

        for (int pull = 0; pull < 2; pull++) {
                decide_all(bed_mode(pull), udp, "network.loss=0", small, 2000, 512);
                decide_all(bed_mode(pull), udp, "network.loss=0.05", small, 2000, 512);
                decide_all(bed_mode(pull), "scenario.transport=tcp", "network.loss=0", small, 2000, 512);
        }
        decide_all(bed_mode(0), udp, "network.loss=0", "ros.fragment-size=300KiB", 200, 300 * 1024);
}

/* The client sees that the bytes are not those of another seed, and fails; the run does not. */
TEST(wrong_bytes_are_found)
{
        BED(1, SCENARIO, REGIONS, "trigger.events=300");
        REGION_FARM("farm", "--regions", "2", "--pattern", "6");
        bed_start_all();
        bed_all_end(0);
        check_sums();
        bed_ends("farm", 1);
        assert_true(bed_logged("farm", "fragments had wrong content"));
        assert_each(bed_reported, "farm", "regions.corrupt", 600, "regions.received", 600);
}

TEST(a_run_without_regions_says_so)
{
        BED(1, SCENARIO, "trigger.events=200");
        REGION_FARM("wrong", "--regions", "2");
        bed_start_all();
        bed_ends("wrong", 1);
        assert_true(
                bed_logged("wrong", "the DFM names no ROSs to request fragments from; set level2.regions"));
        REGION_FARM("right", "--regions", "0");
        bed_all_end(0);
        check_sums();
}

static size_t make_frame(uint64_t k, uint8_t *to)
{
        uint32_t number = (uint32_t)k;

        memcpy(to, &number, sizeof number);
        memset(to + sizeof number, (int)(k % 256), 300);
        return 304;
}

/* It dies while it waits for fragments: its requests end with it, and another one takes its place. */
TEST(another_client_takes_the_place_of_a_dead_one)
{
        struct boards boards;
        uint64_t before;

        BED(1, SCENARIO, REGIONS, "ros.source=" BOARDS_SOURCE, "ros.event-number=0:32", "trigger.events=200",
            "ros.wait=20s");
        boards_begin(&boards, 0, make_frame);
        REGION_FARM("first", "--regions", "3");
        bed_start_all();
        bed_until(count_of("ros1", regions_requested) >= 10 && count_of("ros3", regions_requested) >= 10);
        bed_kill("first");
        before = count_of("ros1", regions_requested);
        REGION_FARM("second", "--regions", "3");
        bed_until(count_of("ros1", regions_requested) >= before + 10);
        boards_allow(&boards, 200);
        bed_all_end(0);
        bed_ends("second", 0);
        check_sums();
        check_requests();
        assert_each(count_sum, ROLE_ROS, regions_sent, 600, regions_dropped,
                    count_sum(ROLE_ROS, regions_requested) - 600);
        assert_true(count_sum(ROLE_ROS, regions_dropped) >= 30);
        assert_int_equal(bed_reported("second", "regions.received"), 600);
}

/* A ROS dies or stands still: its fragments are missing, the events are decided without them, and all others
 * are served. */
TEST_EACH(events_are_decided_without_a_ros, dead, 2)
{
        uint64_t before;

        BED(1, SCENARIO, REGIONS, "dfm.node-timeout=1s", "dfm.start-timeout=60s", "trigger.events=0",
            "sfi.timeout=1s");
        FARM("farm", "--connect", bed_address_text("dfm", PORT), "--latency", "0", "--regions", "2", "--wait",
             "100ms", "--fraction", "0.1", "--pattern", "5");
        bed_start_all();
        bed_until(count_of("dfm", level2_rejected) > 200);
        if (dead)
                bed_kill("ros2");
        else
                bed_freeze("ros2", true);
        before = count_of("dfm", level2_accepted);
        /* Events without a fragment of ROS 2 are accepted. */
        bed_until(count_of("dfm", level2_accepted) > before + 1000);
        before = count_of("dfm", level2_rejected);
        bed_until(count_of("dfm", level2_rejected) > before + 200);
        if (!dead)
                bed_freeze("ros2", false);
        bed_signal("dfm", SIGTERM);
        bed_until(bed_has_ended("dfm"));
        bed_check_accounts();
        bed_ends("farm", 0);
        assert_int_equal(count_of("dfm", events_lost), 0);
        assert_true(bed_reported("farm", "regions.missed") > 500);
        assert_int_equal(bed_reported("farm", "regions.corrupt"), 0);
        assert_true(bed_reported("farm", "regions.events_incomplete") > 500);
        assert_true(bed_reported("farm", "accepted") >= bed_reported("farm", "regions.events_incomplete"));
}

/* The ROSs and the DFM wait for nothing but its decisions. */
TEST(a_frozen_client_loses_nothing)
{
        BED(1, SCENARIO, REGIONS, "test.buffer-events=400");
        REGION_FARM("farm", "--regions", "2", "--fraction", "0.1", "--pattern", "5");
        bed_start_all();
        bed_until(count_of("dfm", level2_rejected) > 100);
        bed_freeze("farm", true);
        bed_until(count_of("dfm", busy_ns) > 100 * NS_PER_MS);
        bed_pass(NS_PER_S);
        bed_freeze("farm", false);
        bed_all_end(0);
        bed_ends("farm", 0);
        check_sums();
        assert_int_equal(count_of("dfm", triggers), 4000);
        assert_int_equal(bed_reported("farm", "regions.received"), 8000);
}

/* ---- A client of the test's own ---- */

struct client {
        int dfm, ros[3];
        struct tcp_reader reader, answers[3];
        uint64_t cookie, incarnation;
        uint32_t next;
        struct message message;
        uint64_t events[256];
        size_t n; /* undecided events so far */
};

static int connect_to(const char *node, uint16_t port)
{
        struct net_address to = {};
        int fd;

        to.v4 = bed_address(node, port);
        to.size_bytes = sizeof to.v4;
        fd = tcp_connect(NULL, &to, 0);
        assert_true(fd >= 0);
        return fd;
}

static void send_message(struct client *c, int fd)
{
        uint8_t bytes[MESSAGE_LEVEL2_BYTES_MAX];
        struct iovec v = {bytes, 0};

        c->message.header.sender_role = ROLE_LEVEL2;
        c->message.header.cookie = c->cookie;
        v.iov_len = message_encode(&c->message, bytes, sizeof bytes);
        assert_int_equal(tcp_send(fd, &v, 1), v.iov_len);
}

/* What the DFM sends. */
static void listen_to_dfm(struct client *c)
{
        enum message_verdict v;
        size_t n, size;

        while (tcp_reader_fill(&c->reader) > 0)
                ;
        for (;;) {
                const uint8_t *bytes = tcp_reader_bytes(&c->reader, &n);

                v = message_decode_first(&c->message, bytes, n, &size);
                if (v == MESSAGE_SHORT)
                        return;
                assert_int_equal(v, MESSAGE_OK);
                tcp_reader_consume(&c->reader, size);
                if (c->message.header.type == MESSAGE_WELCOME) {
                        c->cookie = c->message.header.cookie;
                        c->incarnation = c->message.dfm;
                }
                for (size_t i = 0; c->message.header.type == MESSAGE_UNDECIDED && i < c->message.n; i++)
                        c->events[c->n++] = c->message.undecided.entries[i].event;
        }
}

static void client_begin(struct client *c)
{
        *c = (struct client){.dfm = connect_to("dfm", PORT), .ros = {-1, -1, -1}};
        assert_int_equal(tcp_reader_init(&c->reader, c->dfm, 1 << 16), 0);
        c->message.header.type = MESSAGE_JOIN;
        c->message.join.incarnation = 7;
        send_message(c, c->dfm);
        bed_until((listen_to_dfm(c), c->cookie != 0));
}

static void client_end(struct client *c)
{
        tcp_reader_fini(&c->reader);
        close(c->dfm);
        for (int i = 0; i < 3; i++) {
                if (c->ros[i] < 0)
                        continue;
                tcp_reader_fini(&c->answers[i]);
                close(c->ros[i]);
        }
}

static void connect_to_ros(struct client *c, int i)
{
        static const char *const names[] = {"ros1", "ros2", "ros3"};

        c->ros[i] = connect_to(names[i], REGIONS_PORT);
        assert_int_equal(tcp_reader_init(&c->answers[i], c->ros[i], 1 << 18), 0);
}

static void request(struct client *c, int ros, uint64_t from, uint64_t until)
{
        c->message = (struct message){.header.type = MESSAGE_REQUEST, .n = until - from};
        for (uint64_t e = from; e < until; e++)
                c->message.request.entries[e - from] =
                        (struct request_entry){.event = e, .l1_id = (uint32_t)e, .to_bytes = UINT32_MAX};
        send_message(c, c->ros[ros]);
}

/* Counts the next n answers of a ROS by their status; the bytes of those that are there are right. */
static void receive_answers(struct client *c, int ros, unsigned n, unsigned counts[static FRAGMENT_STATUSES])
{
        struct tcp_reader *r = &c->answers[ros];
        struct chunk_reader reader;
        const uint8_t *payload;
        struct chunk chunk;
        size_t size;

        memset(counts, 0, FRAGMENT_STATUSES * sizeof *counts);
        while (n > 0) {
                const uint8_t *bytes = tcp_reader_bytes(r, &size);

                if (chunk_reader_init(&reader, bytes, size, c->cookie) != MESSAGE_OK) {
                        bed_until(tcp_reader_fill(r) > 0);
                        continue;
                }
                while (chunk_reader_next(&reader, &chunk, &payload)) {
                        assert_true(n-- > 0);
                        counts[chunk.status]++;
                        if (chunk.status != FRAGMENT_OK)
                                continue;
                        assert_int_equal(chunk.length, 304);
                        assert_int_equal(payload[0], chunk.event % 256);
                        assert_int_equal(payload[303], chunk.event % 256);
                }
                tcp_reader_consume(r, reader.head_bytes + reader.header.payload_bytes);
        }
}

/* Fragments that have not come are answered when they come, or as pending after ros.wait. If frames are
 * counted, triggers wait for them. */
static void ask_for_frames(bool counted)
{
        unsigned counts[FRAGMENT_STATUSES];
        struct boards boards;
        struct client c;

        BED(1, SCENARIO, REGIONS, "ros.source=" BOARDS_SOURCE,
            counted ? "ros.event-number=count" : "ros.event-number=0:32", "trigger.events=100",
            "trigger.rate=max", "ros.wait=1s");
        boards_begin(&boards, counted ? 10 : 0, make_frame);
        bed_start_all();
        bed_pass(10 * NS_PER_MS);
        client_begin(&c);
        /* As long as no frame shows its size, few events are undecided. */
        bed_until((listen_to_dfm(&c), c.n >= 10));
        connect_to_ros(&c, 0);
        request(&c, 0, 0, 10);
        receive_answers(&c, 0, 10, counts);
        assert_int_equal(counts[counted ? FRAGMENT_OK : FRAGMENT_PENDING], 10);
        boards_allow(&boards, 10);
        bed_pass(10 * NS_PER_MS);
        request(&c, 0, 0, 10);
        receive_answers(&c, 0, 10, counts);
        assert_int_equal(counts[FRAGMENT_OK], 10);
        /* The rest comes while it is waited for. */
        request(&c, 0, 10, 60);
        bed_pass(500 * NS_PER_MS);
        boards_allow(&boards, 100);
        receive_answers(&c, 0, 50, counts);
        assert_int_equal(counts[FRAGMENT_OK], 50);
        bed_until((listen_to_dfm(&c), c.n == 100));
        c.message = (struct message){.header.type = MESSAGE_DECISION, .dfm = c.incarnation, .n = 100};
        for (size_t i = 0; i < 100; i++)
                c.message.decision.entries[i] = (struct decision_entry){
                        .event = c.events[i],
                        .verdict = c.events[i] % 10 ? DECISION_REJECT : DECISION_ACCEPT};
        send_message(&c, c.dfm);
        bed_all_end(0);
        client_end(&c);
        check_sums();
        check_requests();
        assert_int_equal(count_of("dfm", events_complete), 10);
        assert_int_equal(count_sum(ROLE_ROS, regions_absent), counted ? 0 : 10);
        assert_int_equal(count_sum(ROLE_ROS, regions_gone) + count_sum(ROLE_ROS, regions_refused), 0);
}

TEST(frames_are_answered_when_they_come)
{
        ask_for_frames(true);
        ask_for_frames(false);
}

/* A client requests without end, and reads nothing. Others are served, and all events are built. */
TEST_EACH(a_flood_disturbs_nobody, pull, 2)
{
        struct client c;
        uint64_t e = 0;

        RUN(1, SCENARIO, REGIONS, bed_mode(pull));
        bed_pass(10 * NS_PER_MS);
        client_begin(&c);
        for (int i = 0; i < 3; i++)
                connect_to_ros(&c, i);
        REGION_FARM("farm", "--regions", "2", "--fraction", "0.1", "--pattern", "5");
        while (!bed_has_ended("dfm")) {
                for (int i = 0; i < 3 && count_of("dfm", triggers) < 4000; i++) {
                        uint8_t bytes[MESSAGE_LEVEL2_BYTES_MAX];
                        struct iovec v = {bytes, 0};

                        c.message = (struct message){.header = {.cookie = c.cookie,
                                                                .sender_role = ROLE_LEVEL2,
                                                                .type = MESSAGE_REQUEST},
                                                     .n = 200};
                        for (size_t k = 0; k < 200; k++)
                                c.message.request.entries[k] =
                                        (struct request_entry){.event = e++ % 5000,
                                                               .l1_id = (uint32_t)(k % 3 ? e - 1 : k) % 5000,
                                                               .to_bytes = UINT32_MAX};
                        v.iov_len = message_encode(&c.message, bytes, sizeof bytes);
                        /* The rest of a message that does not fit whole is another message. */
                        if (tcp_send(c.ros[i], &v, 1) < (ssize_t)v.iov_len) {
                                tcp_reader_fini(&c.answers[i]);
                                close(c.ros[i]);
                                connect_to_ros(&c, i);
                        }
                }
                bed_pass(NS_PER_MS);
        }
        bed_all_end(0);
        bed_ends("farm", 0);
        client_end(&c);
        check_sums();
        check_requests();
        assert_int_equal(count_of("dfm", events_complete), bed_reported("farm", "accepted"));
        assert_each(bed_reported, "farm", "regions.received", 8000, "regions.corrupt", 0);
        assert_true(count_sum(ROLE_ROS, regions_dropped) > 0);
        assert_true(count_sum(ROLE_ROS, regions_requested) > 20000);
}

/* ---- Bytes of others ---- */

/* Makes bytes that no ROS or DFM accepts. Returns their number; 0: there are no more. */
static size_t make_attack(const struct client *c, bool to_ros, unsigned k, bool known, uint8_t *to,
                          size_t room)
{
        struct message m = {
                .header = {.cookie = c->cookie, .sender_role = ROLE_LEVEL2}, .dfm = c->incarnation, .n = 1};
        size_t n;

        /* With k = 2, it is for the other server. */
        m.header.type = to_ros != (k == 2) ? MESSAGE_REQUEST : MESSAGE_DECISION;
        if (m.header.type == MESSAGE_REQUEST)
                m.request.entries[0] = (struct request_entry){.to_bytes = UINT32_MAX};
        else
                m.decision.entries[0].verdict = DECISION_REJECT;
        if (k == (to_ros ? 10 : 12))
                return 0;
        switch (k) {
        case 0:
                return (size_t)snprintf((char *)to, room, "GET / HTTP/1.1\r\nHost: %40s\r\n\r\n", "");
        case 1:
                memset(to, 0, 100);
                return 100;
        case 3:
                m.header.sender_role = ROLE_SFI;
                break;
        case 4:
                m.header.sender_role = ROLE_DFM;
                break;
        case 5:
                m.header.cookie ^= 1;
                break;
        case 9:
                m = (struct message){.header = m.header, .join.incarnation = known || to_ros};
                m.header.type = MESSAGE_JOIN;
                break;
        case 10:
                m.dfm ^= 1;
                break;
        case 11:
                m.header.transaction = 1;
                break;
        }
        n = message_encode(&m, to, room);
        assert_true(n > 0);
        if (k == 6)
                to[n - 1] ^= 1;
        if (k == 7)
                to[4] ^= 1; /* the version */
        if (k == 8)
                to[27] = 0x80; /* 2 GiB of payload */
        return n;
}

static bool is_closed(struct tcp_reader *r)
{
        ssize_t got;

        while ((got = tcp_reader_fill(r)) > 0)
                tcp_reader_consume(r, (size_t)got);
        return got < 0;
}

/* To a node on a new connection, `known` after a message that it accepts. False: there are no more. */
static bool attack(bool to_ros, unsigned k, bool known)
{
        uint8_t bytes[MESSAGE_LEVEL2_BYTES_MAX];
        struct client c;
        struct iovec v = {bytes, 0};

        client_begin(&c);
        if (to_ros)
                connect_to_ros(&c, 0);
        if (to_ros && known) {
                request(&c, 0, 0, 1);
                bed_until(tcp_reader_fill(&c.answers[0]) > 0);
        }
        if (!to_ros && !known) {
                client_end(&c);
                c = (struct client){.dfm = connect_to("dfm", PORT), .ros = {-1, -1, -1}};
                assert_int_equal(tcp_reader_init(&c.reader, c.dfm, 1 << 16), 0);
        }
        v.iov_len = make_attack(&c, to_ros, k, known, bytes, sizeof bytes);
        if (v.iov_len > 0) {
                assert_int_equal(tcp_send(to_ros ? c.ros[0] : c.dfm, &v, 1), v.iov_len);
                bed_until(is_closed(to_ros ? &c.answers[0] : &c.reader));
        }
        client_end(&c);
        return v.iov_len > 0;
}

/* More idle clients than there are places, and one that breaks off within a message, keep none out. */
TEST_EACH(bytes_of_others_end_their_connection_only, to_ros, 2)
{
        int idle[20];
        unsigned n = 0;

        RUN(1, SCENARIO, REGIONS, "level2.timeout=1h");
        bed_pass(10 * NS_PER_MS);
        for (; attack(to_ros, n / 2, n % 2); n++)
                ;
        for (size_t i = 0; i < ARRAY_SIZE(idle); i++)
                idle[i] = connect_to(to_ros ? "ros1" : "dfm", to_ros ? REGIONS_PORT : PORT);
        assert_int_equal(tcp_send(idle[19], &(struct iovec){(char[]){"EVB1"}, 4}, 1), 4);
        REGION_FARM("farm", "--regions", "2", "--fraction", "0.1", "--pattern", "5");
        bed_all_end(0);
        bed_ends("farm", 0);
        for (size_t i = 0; i < ARRAY_SIZE(idle); i++)
                close(idle[i]);
        check_sums();
        check_requests();
        assert_int_equal(bed_reported("farm", "regions.received"), bed_reported("farm", "regions.requested"));
        assert_true(count_of("dfm", packets_foreign) + count_of("dfm", packets_malformed) +
                            count_of("ros1", packets_foreign) + count_of("ros1", packets_malformed) >=
                    n);
}
