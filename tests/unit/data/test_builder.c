/* The builder with a real SFI core and real files: events are verified, written and sealed, and every slot is
 * returned. */
#include "../test.h"

#include <dirent.h>
#include <limits.h>
#include <poll.h>
#include <semaphore.h>
#include <stdio.h>
#include <sys/uio.h>

#include "base/log.h"
#include "base/pattern.h"
#include "data/builder.h"
#include "data/disk_space.h"
#include "data/event_encoder.h"
#include "data/run_file.h"
#include "live/live_server.h"
#include "store/verify.h"
#include "data_sample.h"

#define FRAGMENT_BYTES 1000u
#define SEED 5

static int write_errno; /* 0: files are written */

ssize_t __real_pwritev64(int fd, const struct iovec *iov, int n, off_t offset);

ssize_t __wrap_pwritev64(int fd, const struct iovec *iov, int n, off_t offset)
{
        if (write_errno == 0)
                return __real_pwritev64(fd, iov, n, offset);
        errno = write_errno;
        return -1;
}

static unsigned partial_lines;
static char failed_line[512], earlier_line[2048];
static _Atomic unsigned disk_lines;
static bool disk_is_low;
static _Atomic uint64_t clock_ns; /* 0: the real one */

uint64_t __real_clock_now_ns(void);

uint64_t __wrap_clock_now_ns(void)
{
        return clock_ns > 0 ? clock_ns : __real_clock_now_ns();
}

static void stop_clock(void)
{
        clock_ns = __real_clock_now_ns();
}

int __wrap_log_write(enum log_level level, int error, const struct log_fields *fields,
                     struct log_limit *limit, const char *file, int line, const char *function,
                     const char *format, ...)
{
        if (fields && fields->id && strcmp(fields->id, LOG_ID_OUTPUT_FAILED) == 0) {
                va_list args;

                va_start(args, format);
                vsnprintf(failed_line, sizeof failed_line, format, args);
                va_end(args);
        }
        if (strstr(format, "has files of run")) {
                va_list args;

                va_start(args, format);
                vsnprintf(earlier_line, sizeof earlier_line, format, args);
                va_end(args);
        }
        disk_lines += strncmp(format, "sfi.directory: the file system", 30) == 0;
        partial_lines += fields && fields->id && strcmp(fields->id, LOG_ID_EVENT_PARTIAL) == 0;
        return -abs(error);
}

void __wrap_disk_space_read(struct disk_space *ret, const char *directory)
{
        *ret = (struct disk_space){true, disk_is_low ? 4 : 50, 100};
}

/* A server of live events with a consumer that has room for each event. */
static struct {
        int error;    /* of its opening */
        sem_t may_go; /* the thread offers its first event */
        unsigned opened, given, skipped;
        _Atomic unsigned looked;   /* how often the thread has looked for room */
        _Atomic bool has_no_room;  /* a consumer in mode all has no room, */
        _Atomic unsigned rooms;    /* except for so many events, */
        _Atomic bool is_unsettled; /* or events of a dead one wait for room */
        uint64_t lost_at_end;      /* events of consumers that ended after the seal */
        uint32_t status;           /* of the event given last */
        _Atomic bool is_asleep;    /* it got an event, and was not woken */
        /* With sfi.output = live: */
        _Atomic unsigned held, again;              /* how often events were held, and offered again */
        _Atomic unsigned may_end, may_acknowledge; /* so many events end; of these, so many acknowledged */
        uint32_t tags[8];
        size_t n_tags;
} live;

uint64_t __wrap_live_server_end_groups(struct live_server *s)
{
        return s ? (live.is_unsettled ? 3 : 0) + live.lost_at_end : 0;
}

bool __wrap_live_server_is_settled(struct live_server *s)
{
        live.looked++;
        return !live.is_unsettled;
}

static bool b_is_live(void);

int __wrap_live_server_new(struct live_server **ret, const struct live_settings *settings, struct loop *loop,
                           struct error *e)
{
        live.opened++;
        *ret = live.error < 0 ? NULL : (struct live_server *)&live;
        return live.error < 0 ? error_set(e, live.error, "as the test says") : 0;
}

uint64_t __wrap_live_server_finish(struct live_server *s, bool ended)
{
        return 0;
}

struct live_server *__wrap_live_server_free(struct live_server *s, bool ended)
{
        return NULL;
}

bool __wrap_live_server_is_wanted(const struct live_server *s)
{
        return s != NULL;
}

void __wrap_live_server_wake(struct live_server *s)
{
        live.is_asleep = false;
}

struct live_outcome __wrap_live_server_offer(struct live_server *s, const struct live_event *event,
                                             bool may_wait, live_encode_fn encode, void *ctx)
{
        const struct iovec *iov;
        size_t n_iov, size_bytes;
        bool given;

        if (event->number == 0) {
                sem_wait(&live.may_go);
                sem_post(&live.may_go); /* it may be offered again */
        }
        if (live.has_no_room)
                assert_int_equal(encode(ctx, true, &iov, &n_iov, &size_bytes), 0);
        live.looked++;
        if (live.has_no_room && live.rooms == 0 && may_wait)
                return (struct live_outcome){.waits = true};
        given = (!live.has_no_room || live.rooms > 0) &&
                encode(ctx, b_is_live(), &iov, &n_iov, &size_bytes) >= 0;
        live.rooms -= live.rooms > 0;
        if (b_is_live() && given) {
                live.tags[live.n_tags++] = event->tag;
                live.again += event->is_again;
                live.held++;
        }
        live.is_asleep |= given;
        if (given) {
                memcpy(&live.status, (const uint8_t *)iov->iov_base + 24, sizeof live.status);
                live.status = le32toh(live.status);
        }
        *(given ? &live.given : &live.skipped) += 1;
        return (struct live_outcome){.given = given,
                                     .skipped = !given,
                                     .missed = !given && live.has_no_room,
                                     .is_held = b_is_live() && given};
}

size_t __wrap_live_server_collect(struct live_server *s, struct live_end *ends, size_t n)
{
        if (!s || n == 0 || live.n_tags == 0 || live.may_end == 0)
                return 0;
        live.may_end--;
        *ends = (struct live_end){live.tags[--live.n_tags], live.may_acknowledge > 0};
        live.may_acknowledge -= live.may_acknowledge > 0;
        return 1;
}

void __wrap_live_server_end_holders(struct live_server *s, uint32_t tag)
{
        live.may_end++;
}

static struct bench {
        struct sample sample;
        struct sfi_config config;
        struct sfi *core;
        uint8_t *buffer;
        struct file_list files;
        struct builder *builder;
        uint64_t now_ns;
        size_t done, failed, lost; /* slots that came back */
} b;

static bool b_is_live(void)
{
        return b.sample.scenario->sfi.output == OUTPUT_LIVE;
}

static void bench_open(enum scenario_output output)
{
        struct scenario *s;

        b = (struct bench){.config = sample_sfi(), .now_ns = NS_PER_S};
        sample_open(&b.sample, "sfi1", "udp");
        s = b.sample.scenario;
        s->run.seed = SEED;
        s->sfi.output = output;
        snprintf(s->sfi.directory, sizeof s->sfi.directory, "/tmp/evb-builder-XXXXXX");
        assert_non_null(mkdtemp(s->sfi.directory));
        b.buffer = calloc(1, b.config.buffer_bytes);
        assert_int_equal(sfi_new(&b.core, &b.config, b.now_ns), 0);
        assert_true(sfi_receive(b.core, b.now_ns, sample_welcome()));
}

static void start(void)
{
        assert_int_equal(
                builder_new(&b.builder, &b.sample.context, &b.files, b.core, b.buffer, b.config.slots), 0);
        assert_int_equal(builder_open_files(b.builder, 7, NULL, 0), 0);
}

/* Counts the files of the directory whose names end in `suffix`; removes them if `unlinks`. */
static unsigned files_with(const char *suffix, bool unlinks)
{
        const char *folder = b.sample.scenario->sfi.directory;
        char path[PATH_MAX];
        unsigned n = 0;
        DIR *d = opendir(folder);

        assert_non_null(d);
        for (struct dirent *e; (e = readdir(d));) {
                size_t length = strlen(e->d_name), end = strlen(suffix);

                if (e->d_name[0] == '.' || length < end || strcmp(e->d_name + length - end, suffix) != 0)
                        continue;
                n++;
                snprintf(path, sizeof path, "%s/%s", folder, e->d_name);
                if (unlinks)
                        unlink(path);
        }
        closedir(d);
        return n;
}

static int bench_close(void **state)
{
        clock_ns = 0;
        write_errno = 0;
        disk_is_low = false;
        builder_free(b.builder);
        files_with("", true);
        rmdir(b.sample.scenario->sfi.directory);
        file_list_clear(&b.files);
        sfi_free(b.core);
        free(b.buffer);
        sample_close(&b.sample);
        return 0;
}

/* A test of a builder with this output that has started; the last arguments prepare its scenario. */
#define BUILDER_TEST(name, output, ...)                                                                      \
        static void name##_runs(void);                                                                       \
        TEST_WITH(name, NULL, bench_close)                                                                   \
        {                                                                                                    \
                bench_open(output);                                                                          \
                __VA_ARGS__;                                                                                 \
                start();                                                                                     \
                name##_runs();                                                                               \
        }                                                                                                    \
        static void name##_runs(void)

/* The builder has `n` reasons, of which this is the last one. */
static void assert_reason(size_t n, const char *text)
{
        struct reasons reasons = {};

        builder_reasons(b.builder, &reasons);
        assert_int_equal(reasons.n, n);
        assert_string_equal(n > 0 ? reasons.text[n - 1] : "", text);
}

static void receive_fragment(uint16_t ros, uint64_t event)
{
        struct sfi_chunk c = {
                .source = ros,
                .chunk = {.event = event,
                          .l1_id = (uint32_t)event,
                          .fragment_bytes = FRAGMENT_BYTES,
                          .length = FRAGMENT_BYTES,
                          .order = ros},
        };

        sfi_reserve(b.core, b.now_ns, &c, 1);
        assert_int_equal(c.verdict, SFI_STORE);
        pattern_fill(pattern_key(SEED, ros, event), b.buffer + c.at, 0, FRAGMENT_BYTES);
        sfi_commit(b.core, b.now_ns, &c, 1);
}

/* Receives an event from both ROSs; its slot is ready for the builder. */
static uint32_t receive_event(uint64_t event)
{
        uint32_t slot;

        assert_true(sfi_receive(b.core, b.now_ns, sample_assign(event, 0)));
        receive_fragment(0, event);
        receive_fragment(1, event);
        assert_int_equal(sfi_pop_built(b.core, &slot, 1), 1);
        return slot;
}

/* A byte of the second fragment. */
static uint8_t *byte_of(uint32_t slot)
{
        struct sfi_built built;

        sfi_built_event(b.core, slot, &built);
        return &b.buffer[built.fragments[1].at + 17];
}

/* The builder gets `n` events; then its thread is woken. */
static void build_from(uint64_t first, uint64_t n)
{
        for (uint64_t event = first; event < first + n; event++)
                builder_accept(b.builder, receive_event(event));
        builder_kick(b.builder);
}

static void build_events(uint64_t n)
{
        build_from(0, n);
}

static void collect(void)
{
        struct builder_done done[8];
        size_t n = builder_collect(b.builder, done, ARRAY_SIZE(done));

        for (size_t i = 0; i < n; i++) {
                sfi_written(b.core, b.now_ns, done[i].slot, done[i].failed || done[i].is_lost);
                b.failed += done[i].failed;
                b.lost += done[i].is_lost;
        }
        b.done += n;
}

/* Waits as the SFI's loop does, until `n` slots are back. */
static void collect_until(size_t n)
{
        struct pollfd p = {.fd = builder_fd(b.builder), .events = POLLIN};

        for (int i = 0; i < 6000 && b.done < n; i++) {
                builder_prepare_wait(b.builder);
                if (!builder_has_done(b.builder))
                        poll(&p, 1, 10);
                builder_woken(b.builder);
                collect();
        }
        assert_int_equal(b.done, n);
}

/* Seals the files; returns the builder's error. */
static int seal(void)
{
        struct pollfd p = {.fd = -1};
        int r;

        builder_seal(b.builder);
        for (int i = 0; i < 12000; i++) {
                collect();
                if (builder_is_sealed(b.builder, &r))
                        return r;
                poll(&p, 1, 5);
        }
        fail_msg("the files are not sealed after 60 s");
        return 0;
}

/* The first status word of the file's first event, which follows marker, sizes, version, source and count. */
static uint32_t first_status(const char *path)
{
        static uint8_t bytes[1 << 16];
        FILE *f = fopen(path, "rb");
        size_t n;

        assert_non_null(f);
        n = fread(bytes, 1, sizeof bytes, f);
        fclose(f);
        for (size_t at = 0; at + 28 <= n; at += 4) {
                uint32_t words[7];

                memcpy(words, bytes + at, sizeof words);
                if (le32toh(words[0]) == EFORMAT_EVENT)
                        return le32toh(words[6]);
        }
        fail_msg("%s has no event", path);
        return 0;
}

TEST(a_refused_fragment_of_another_trigger_shows_in_the_status)
{
        for (int refused = 0; refused < 2; refused++) {
                struct sfi_chunk c = {.source = 1, .chunk = {.l1_id = 1}};
                struct message_to to;
                struct message m;
                uint32_t slot;

                bench_open(OUTPUT_FILE);
                start();
                assert_true(sfi_receive(b.core, b.now_ns, sample_assign(0, 0)));
                receive_fragment(0, 0);
                if (refused)
                        sfi_reserve(b.core, b.now_ns, &c, 1);
                b.now_ns += b.config.timeout_ns;
                while (sfi_step(b.core, b.now_ns, &to, &m))
                        continue;
                assert_int_equal(sfi_pop_built(b.core, &slot, 1), 1);
                builder_accept(b.builder, slot);
                builder_kick(b.builder);
                collect_until(1);
                assert_int_equal(seal(), 0);
                assert_int_equal(first_status(b.files.files[0].path) &
                                         (EFORMAT_EVENT_PARTIAL | EFORMAT_L1_MISMATCH),
                                 EFORMAT_EVENT_PARTIAL | (refused ? EFORMAT_L1_MISMATCH : 0));
                bench_close(NULL);
        }
}

/* ---- Streams of several boards (demux) ---- */

#define STREAM_ID 0x120000u

static struct {
        size_t n;
        uint32_t ids[8], statuses[8];
} robs;

static int record_rob(void *userdata, const struct eformat_fragment *f)
{
        if (f->marker != EFORMAT_ROB || eformat_subdet(f->source_id) != eformat_subdet(STREAM_ID))
                return 0;
        assert_true(robs.n < ARRAY_SIZE(robs.ids));
        robs.ids[robs.n] = f->source_id;
        robs.statuses[robs.n++] = eformat_word(f->status, 0);
        return 0;
}

/* Encodes an event whose stream has a frame of each of these boards, which are digits, and records its ROBs.
 */
static void encode_stream(struct event_encoder *e, const char *boards, enum fragment_status status)
{
        static uint8_t bytes[1 << 16];
        struct sfi_fragment fragments[2] = {{.at = ARENA_NONE, .whole = true, .status = FRAGMENT_NONE},
                                            {.at = ARENA_NONE, .whole = true, .status = (uint8_t)status}};
        struct sfi_built built = {.fragments = fragments};
        const struct eformat_encoding *encoding;
        size_t size_bytes = 0;

        for (uint32_t i = 0; boards[i]; i++) {
                const uint8_t frame[] = {2, 0, 0, 0, (uint8_t)(boards[i] - '0'), 0};

                memcpy(b.buffer + i * sizeof frame, frame, sizeof frame);
                fragments[1].at = 0;
                fragments[1].bytes += sizeof frame;
        }
        assert_int_equal(event_encoder_encode(e, &built, 0, &encoding), 0);
        for (size_t i = 0; i < encoding->n_iov; i++) {
                assert_true(size_bytes + encoding->iov[i].iov_len <= sizeof bytes);
                memcpy(bytes + size_bytes, encoding->iov[i].iov_base, encoding->iov[i].iov_len);
                size_bytes += encoding->iov[i].iov_len;
        }
        robs.n = 0;
        assert_int_equal(eformat_walk(bytes, size_bytes, record_rob, NULL, NULL), 0);
}

/* The event has these boards, of which the first `n_sent` have a frame. */
static void expect_robs(const char *boards, size_t n_sent, uint32_t sent_status, uint32_t status)
{
        assert_int_equal(robs.n, strlen(boards));
        for (size_t i = 0; i < robs.n; i++) {
                assert_int_equal(robs.ids[i], STREAM_ID + (uint32_t)(boards[i] - '0'));
                assert_int_equal(robs.statuses[i], i < n_sent ? sent_status : status);
        }
}

/* What a stream lacks is named by its boards, as far as events have shown them. */
TEST_WITH(each_known_board_of_a_stream_is_missing, NULL, bench_close)
{
        const uint32_t truncated = eformat_rob_status(FRAGMENT_TRUNCATED),
                       pending = eformat_rob_status(FRAGMENT_PENDING);
        struct scenario_node *ros2;
        struct event_encoder *e;

        for (size_t k = 0; k < 2; k++) {
                if (k > 0)
                        bench_close(NULL);
                bench_open(OUTPUT_NULL);
                b.sample.scenario->sfi.format = k == 0 ? FORMAT_EFORMAT3 : FORMAT_EFORMAT5;
                ros2 = &b.sample.scenario
                                ->nodes[scenario_find(b.sample.scenario, "ros2") - b.sample.scenario->nodes];
                ros2->source_kind = SOURCE_UDP;
                ros2->source_id = STREAM_ID;
                ros2->board.join = (struct join_rule){.joins = true, .board = {.bits = 3}};
                assert_int_equal(event_encoder_new(&e, &b.sample.context, b.buffer), 0);

                encode_stream(e, "", FRAGMENT_PENDING);
                expect_robs("0", 0, 0, pending);
                encode_stream(e, "257", FRAGMENT_OK);
                expect_robs("257", 3, 0, 0);
                encode_stream(e, "27", FRAGMENT_OK);
                expect_robs("27", 2, 0, 0);
                encode_stream(e, "", FRAGMENT_PENDING);
                expect_robs("257", 0, 0, pending);
                encode_stream(e, "5", FRAGMENT_TRUNCATED);
                expect_robs("527", 1, truncated, truncated);
                encode_stream(e, "", FRAGMENT_NONE);
                expect_robs("", 0, 0, 0);
                /* Boards do not come in order, so one has two fragments, and each place is used. */
                encode_stream(e, "01234565", FRAGMENT_TRUNCATED);
                expect_robs("01234565", 8, truncated, 0);
                event_encoder_free(e);
        }
}

BUILDER_TEST(events_end_in_a_file_that_verifies, OUTPUT_FILE)
{
        struct verify_report report;
        struct event_file *file;

        build_events(3);
        collect_until(3);
        assert_int_equal(b.failed, 0);
        assert_int_equal(sfi_open_events(b.core), 0);
        assert_int_equal(b.files.n, 0);
        assert_int_equal(seal(), 0);
        assert_int_equal(b.files.n, 1);
        assert_stats(b.sample.stats, events_stored, 3, fragments_corrupt, 0);
        assert_int_equal(event_file_open(&file, b.files.files[0].path, NULL), 0);
        assert_int_equal(event_file_front(file)->run, 7);
        assert_int_equal(event_file_verify(file, NULL, NULL, NULL, &report), 0);
        assert_fields(&report, events, 3, pattern_fragments, 6, n_faults, 0);
        assert_true(report.ended);
        event_file_free(file);
}

BUILDER_TEST(a_full_file_is_followed_by_the_next_one, OUTPUT_FILE, b.sample.scenario->sfi.file_events = 2)
{
        build_events(3);
        collect_until(3);
        assert_int_equal(seal(), 0);
        assert_int_equal(b.files.n, 2);
        assert_string_not_equal(b.files.files[0].path, b.files.files[1].path);
        assert_int_equal(files_with(".writing", false), 0);
}

/* An SFI that was killed and restarted in the run finds its files, but no record. */
TEST_EACH(a_record_shows_that_another_run_had_this_number, recorded, 2)
{
        char core[RUN_FILE_PATH_MAX - 16], record[RUN_FILE_PATH_MAX], expected[2048];
        FILE *f;

        earlier_line[0] = '\0';
        bench_open(OUTPUT_FILE);
        start();
        assert_int_equal(seal(), 0);
        assert_string_equal(earlier_line, "");
        assert_true(run_file_core(b.files.files[0].path, core, sizeof core));
        run_file_name(core, 1, record);
        if (recorded) {
                f = fopen(record, "w");
                assert_non_null(f);
                fclose(f);
        }
        b.builder = builder_free(b.builder);
        start();
        snprintf(expected, sizeof expected,
                 "sfi.directory: %s has files of run 7 of SFI-1%s%s%s; continuing with number 0002",
                 b.sample.scenario->sfi.directory, recorded ? " and their record, " : "",
                 recorded ? record : "", recorded ? ": another run may have had this number" : "");
        assert_string_equal(earlier_line, expected);
        bench_close(NULL);
}

BUILDER_TEST(each_file_is_listed, OUTPUT_FILE, b.sample.scenario->sfi.file_events = 1)
{
        enum { FILES = 1100 };

        for (uint64_t event = 0; event < FILES; event++) {
                build_from(event, 1);
                collect_until(event + 1);
        }
        assert_int_equal(seal(), 0);
        assert_int_equal(b.files.n, FILES);
        for (size_t i = 0; i < FILES; i++)
                assert_int_equal(unlink(b.files.files[i].path), 0);
}

BUILDER_TEST(an_unsealed_file_keeps_its_temporary_name, OUTPUT_FILE)
{
        build_events(1);
        collect_until(1);
        b.builder = builder_free(b.builder);
        assert_int_equal(files_with(".writing", false), 1);
        assert_int_equal(b.files.n, 0);
}

/* The order to seal must not overtake events that the thread has not seen yet. */
BUILDER_TEST(sealing_writes_the_events_that_are_queued, OUTPUT_FILE)
{
        for (uint64_t event = 0; event < 4; event++)
                builder_accept(b.builder, receive_event(event)); /* without a kick */
        assert_int_equal(seal(), 0);
        assert_int_equal(b.done, 4);
        assert_stats(b.sample.stats, events_stored, 4);
}

BUILDER_TEST(without_files_slots_come_back_at_once, OUTPUT_NULL)
{
        int r = -1;

        assert_int_equal(builder_fd(b.builder), -1);
        build_events(2);
        assert_true(builder_has_done(b.builder));
        collect();
        assert_fields(&b, done, 2, failed, 0);
        assert_false(builder_has_done(b.builder));
        builder_seal(b.builder);
        assert_true(builder_is_sealed(b.builder, &r));
        assert_int_equal(r, 0);
        assert_int_equal(files_with("", false), 0);
}

static void listen_for_consumers(void)
{
        struct scenario *s = b.sample.scenario;

        memset(&live, 0, sizeof live);
        assert_int_equal(sem_init(&live.may_go, 0, 0), 0);
        snprintf(s->live.listen, sizeof s->live.listen, "unix:%.60s/%%n", s->sfi.directory);
}

/* The thread offers its events from the start on. */
static void listen_at_once(void)
{
        listen_for_consumers();
        sem_post(&live.may_go);
}

BUILDER_TEST(consumers_get_no_event_while_more_than_a_quarter_of_the_slots_wait, OUTPUT_FILE,
             listen_for_consumers())
{
        build_events(6); /* of 8 slots */
        sem_post(&live.may_go);
        collect_until(6);
        assert_fields(&live, skipped, 3, given, 3);
        assert_stats(b.sample.stats, live_events, 3, live_events_skipped, 3);
        assert_int_equal(seal(), 0);
        assert_stats(b.sample.stats, events_stored, 6);
}

static void wait_for_looks(unsigned n)
{
        for (int i = 0; i < 60000 && live.looked < n; i++)
                poll(NULL, 0, 1);
        assert_true(live.looked >= n);
}

BUILDER_TEST(without_files_the_thread_only_waits_for_consumers, OUTPUT_NULL, listen_at_once(),
             b.sample.scenario->live.all = 1)
{
        build_events(2);
        collect();
        assert_fields(&b, done, 2);
        assert_int_equal(live.given, 2);
        assert_false(live.is_asleep);
        live.has_no_room = true;
        build_from(2, 2);
        wait_for_looks(6);
        /* The events stay in order. */
        live.rooms = 1;
        collect_until(3);
        builder_accept(b.builder, receive_event(4));
        collect();
        assert_fields(&b, done, 3);
        live.has_no_room = false;
        collect_until(5);
        builder_accept(b.builder, receive_event(5));
        collect();
        assert_fields(&b, done, 6);
        assert_int_equal(seal(), 0);
        assert_int_equal(live.given, 6);
        assert_stats(b.sample.stats, live_events, 6);
}

/* What the owner's thread has found, and counted, is not counted again. */
BUILDER_TEST(an_event_that_waits_for_a_consumer_is_checked_once, OUTPUT_NULL, listen_at_once(),
             b.sample.scenario->live.all = 1, live.has_no_room = true)
{
        uint32_t slot;

        slot = receive_event(0);
        *byte_of(slot) ^= 1;
        builder_accept(b.builder, slot);
        builder_kick(b.builder);
        wait_for_looks(2);
        live.has_no_room = false;
        collect_until(1);
        assert_int_equal(seal(), 0);
        assert_stats(b.sample.stats, fragments_corrupt, 1);
        assert_int_equal(live.status, EFORMAT_CORRUPT);
}

/* A consumer in mode all has no room at first, and the thread looks at it again and again. */
static void delay_with(enum scenario_output output, uint64_t node_timeout_ns)
{
        bench_open(output);
        listen_for_consumers();
        b.sample.scenario->live.all = 1;
        b.sample.scenario->dfm.node_timeout_ns = node_timeout_ns;
        live.has_no_room = true;
        sem_post(&live.may_go);
        start();
        assert_true(builder_fd(b.builder) >= 0);
        build_events(6);
        wait_for_looks(3);
        collect();
        assert_int_equal(b.done, 0);
}

static void delay(enum scenario_output output)
{
        delay_with(output, 0);
}

TEST_EACH(a_consumer_of_all_events_holds_slots_until_it_has_room, i, 2)
{
        delay(i == 0 ? OUTPUT_FILE : OUTPUT_NULL);
        live.has_no_room = false;
        collect_until(6);
        live.is_unsettled = true;
        live.looked = 0;
        builder_seal(b.builder);
        wait_for_looks(3);
        live.is_unsettled = false;
        assert_int_equal(seal(), 0);
        assert_stats(b.sample.stats, events_stored, i == 0 ? 6 : 0);
        assert_false(live.is_asleep);
        bench_close(NULL);
}

/* The consumer has delayed the end of the run for too long, and then another DFM goes on with the run. */
TEST(after_a_cancelled_stop_consumers_have_time_again)
{
        stop_clock();
        delay(OUTPUT_FILE);
        builder_limit_waits(b.builder, true);
        clock_ns += 12 * NS_PER_S;
        collect_until(6);
        assert_int_equal(live.skipped, 6);
        builder_limit_waits(b.builder, false);
        live.looked = 0;
        build_from(6, 6);
        wait_for_looks(20);
        assert_int_equal(live.skipped, 6);
        live.has_no_room = false;
        collect_until(12);
        assert_int_equal(seal(), 0);
        bench_close(NULL);
}

TEST(events_of_consumers_that_end_after_the_seal_are_counted)
{
        bench_open(OUTPUT_NULL);
        listen_at_once();
        start();
        build_events(6);
        live.is_unsettled = true;
        assert_int_equal(seal(), 0);
        assert_stats(b.sample.stats, live_events_lost, 3);
        live.lost_at_end = 2;
        b.builder = builder_free(b.builder);
        assert_stats(b.sample.stats, live_events_lost, 5);
        bench_close(NULL);
}

TEST_EACH(at_the_end_of_the_run_a_consumer_delays_slots_for_a_limited_time, i, 3)
{
        /* The limit is 10 s, or dfm.node-timeout. */
        uint64_t scale = i == 2 ? 2 : 1;

        stop_clock();
        delay_with(i == 0 ? OUTPUT_FILE : OUTPUT_NULL, scale * 10 * NS_PER_S);
        /* The thread may have read the clock before. */
        clock_ns += NS_PER_S;
        builder_limit_waits(b.builder, true);
        clock_ns -= NS_PER_S;
        live.looked = 0;
        wait_for_looks(3);
        clock_ns += scale * 6 * NS_PER_S;
        live.rooms = 2;
        live.looked = 0;
        wait_for_looks(4);
        assert_false(live.is_asleep);
        /* So much more, for the events after these two. */
        clock_ns += scale * 4 * NS_PER_S;
        live.looked = 0;
        wait_for_looks(3);
        assert_fields(&live, skipped, 0, given, 2);
        clock_ns += NS_PER_S;
        collect_until(6);
        live.is_unsettled = true;
        assert_int_equal(seal(), 0);
        assert_stats(b.sample.stats, live_events_lost, 3);
        assert_reason(1, "4 events did not reach a consumer of live events in mode all, which had no room");
        bench_close(NULL);
}

TEST_EACH(a_consumer_of_all_events_does_not_delay_the_end_of_the_thread, i, 2)
{
        delay(i == 0 ? OUTPUT_FILE : OUTPUT_NULL);
        bench_close(NULL);
}

static void wait_until(_Atomic unsigned *value, unsigned least)
{
        for (int i = 0; i < 60000 && *value < least; i++)
                poll(NULL, 0, 1);
        assert_true(*value >= least);
}

BUILDER_TEST(an_event_is_returned_when_its_consumer_has_finished_it, OUTPUT_LIVE, listen_at_once())
{
        build_events(6);
        wait_until(&live.held, 6);
        collect();
        assert_int_equal(b.done, 0);
        live.may_acknowledge = 4;
        live.may_end = 4;
        collect_until(4);
        /* Two consumers end, and others get their events. */
        live.may_end = 2;
        wait_until(&live.again, 2);
        collect();
        assert_int_equal(b.done, 4);
        live.may_acknowledge = 2;
        live.may_end = 2;
        assert_int_equal(seal(), 0);
        assert_fields(&b, done, 6, failed, 0);
        assert_reason(0, "");
}

BUILDER_TEST(events_without_acknowledgement_are_lost_at_the_end, OUTPUT_LIVE, stop_clock(), listen_at_once())
{
        build_events(6);
        wait_until(&live.held, 6);
        live.may_acknowledge = 1;
        live.may_end = 1;
        collect_until(1);
        builder_seal(b.builder);
        for (int i = 0; i < 60000 && b.done < 6; i++) {
                clock_ns += NS_PER_S;
                poll(NULL, 0, 1);
                collect();
        }
        assert_int_equal(seal(), 0);
        assert_fields(&b, done, 6, failed, 0, lost, 5);
        assert_reason(1, "5 events are lost: no consumer at live.listen acknowledged them");
}

BUILDER_TEST(consumers_without_acknowledgement_do_not_delay_the_seal, OUTPUT_LIVE, stop_clock(),
             listen_at_once())
{
        build_events(6);
        wait_until(&live.held, 6);
        live.has_no_room = true;
        builder_limit_waits(b.builder, true);
        for (int i = 0; i < 60000 && b.done < 6; i++) {
                clock_ns += NS_PER_S;
                poll(NULL, 0, 1);
                collect();
        }
        assert_fields(&b, done, 6, failed, 0, lost, 6);
        assert_int_equal(seal(), 0);
}

static const struct {
        int error, is;
} live_errors[] = {
        {-EACCES, -EINVAL},         {-EPERM, -EINVAL},  {-EROFS, -EINVAL},  {-ENAMETOOLONG, -EINVAL},
        {-EADDRINUSE, -EADDRINUSE}, {-ENOENT, -ENOENT}, {-EMFILE, -EMFILE}, {-ENOMEM, -ENOMEM},
};

/* An SFI that fails with -EINVAL is not started again. */
TEST_EACH(what_may_pass_at_the_socket_of_consumers_is_no_fault_of_the_scenario, i, ARRAY_SIZE(live_errors))
{
        bench_open(OUTPUT_NULL);
        listen_for_consumers();
        live.error = live_errors[i].error;
        assert_int_equal(
                builder_new(&b.builder, &b.sample.context, &b.files, b.core, b.buffer, b.config.slots),
                live_errors[i].is);
        bench_close(NULL);
}

TEST_WITH(a_check_opens_no_socket_for_consumers, NULL, bench_close)
{
        bench_open(OUTPUT_NULL);
        listen_for_consumers();
        b.sample.context.check_only = true;
        start();
        assert_int_equal(live.opened, 0);
        assert_int_equal(files_with("", false), 0);
        b.builder = builder_free(b.builder);
        snprintf(b.sample.scenario->live.listen, sizeof b.sample.scenario->live.listen, "unix:/missing/%%n");
        assert_int_equal(
                builder_new(&b.builder, &b.sample.context, &b.files, b.core, b.buffer, b.config.slots),
                -ENOENT);
}

/* A ROS whose fragments are missing has a line, and another one when that happens again after a pause. */
BUILDER_TEST(each_fault_of_a_ros_is_logged, OUTPUT_NULL)
{
        static const struct {
                uint16_t missing; /* ROS */
                unsigned at_s, lines;
        } events[] = {{0, 10, 1}, {0, 15, 1}, {1, 16, 2}, {0, 24, 2}, {1, 25, 2}, {0, 34, 3}};
        static struct message m;
        struct message_to to;
        uint32_t slot;

        partial_lines = 0;
        for (uint64_t i = 0; i < ARRAY_SIZE(events); i++) {
                b.now_ns = events[i].at_s * NS_PER_S - b.config.timeout_ns;
                assert_true(sfi_receive(b.core, b.now_ns, sample_assign(i, 0)));
                receive_fragment(1 - events[i].missing, i);
                b.now_ns += b.config.timeout_ns;
                while (sfi_pop_built(b.core, &slot, 1) == 0)
                        assert_true(sfi_step(b.core, b.now_ns, &to, &m));
                clock_ns = b.now_ns;
                builder_accept(b.builder, slot);
                collect();
                assert_int_equal(partial_lines, events[i].lines);
        }
}

BUILDER_TEST(a_lost_event_is_returned_and_not_written, OUTPUT_FILE)
{
        static struct message m;
        struct message_to to;
        uint32_t slot;

        assert_true(sfi_receive(b.core, b.now_ns, sample_assign(0, 0)));
        b.now_ns += b.config.timeout_ns;
        for (int i = 0; i < 10 && sfi_step(b.core, b.now_ns, &to, &m); i++)
                ;
        assert_int_equal(sfi_pop_built(b.core, &slot, 1), 1);
        builder_accept(b.builder, slot);
        builder_kick(b.builder);
        collect_until(1);
        assert_int_equal(b.failed, 0);
        assert_int_equal(seal(), 0);
        assert_stats(b.sample.stats, events_stored, 0);
}

BUILDER_TEST(corrupt_fragments_are_counted_and_the_first_is_described, OUTPUT_NULL)
{
        char expected[128];
        uint32_t slot;
        uint8_t *byte;

        builder_accept(b.builder, receive_event(0));
        slot = receive_event(1);
        byte = byte_of(slot);
        snprintf(expected, sizeof expected,
                 "1 fragments of 1 events are corrupt; the first: event 1 of ros2, byte 17 is 0x%02x, "
                 "expected 0x%02x",
                 *byte ^ 1u, *byte);
        *byte ^= 1;
        builder_accept(b.builder, slot);
        assert_stats(b.sample.stats, fragments_corrupt, 1);
        assert_reason(1, expected);
}

TEST_WITH(a_low_disk_is_logged_before_it_is_full, NULL, bench_close)
{
        disk_is_low = true;
        bench_open(OUTPUT_FILE);
        start();
        while (disk_lines == 0)
                (void)poll(NULL, 0, 1);
}

BUILDER_TEST(a_full_disk_fails_every_later_event, OUTPUT_FILE,
             b.sample.scenario->sfi.durability = DURABILITY_WRITTEN)
{
        char why[SCENARIO_TEXT_MAX + 100];

        write_errno = ENOSPC;
        build_events(2);
        collect_until(2);
        assert_int_equal(b.failed, 2);
        assert_int_equal(builder_error(b.builder), -ENOSPC);
        assert_int_equal(sfi_counts(b.core).lost, 2);
        build_from(2, 1);
        collect_until(3);
        assert_int_equal(b.failed, 3);
        assert_int_equal(seal(), -ENOSPC);
        snprintf(why, sizeof why,
                 "its output failed: No space left on device in %s; free space there, or set sfi.directory",
                 b.sample.scenario->sfi.directory);
        assert_reason(1, why);
}

/* They count as complete, and the disk fills before the writer's buffer is due. */
BUILDER_TEST(events_that_were_reported_and_not_written_are_a_reason, OUTPUT_FILE,
             b.sample.scenario->sfi.durability = DURABILITY_NONE, stop_clock())
{
        build_events(2);
        collect_until(2);
        assert_int_equal(b.failed, 0);
        write_errno = ENOSPC;
        assert_int_equal(seal(), -ENOSPC);
        assert_reason(2, "2 events that it reported as built were not written, because sfi.durability is "
                         "none");
}

/* The events are gone, or where the file is. */
BUILDER_TEST(a_removed_file_is_not_called_readable, OUTPUT_FILE,
             b.sample.scenario->sfi.durability = DURABILITY_WRITTEN)
{
        build_events(1);
        collect_until(1);
        assert_int_equal(files_with(".writing", true), 1);
        build_from(1, 1);
        collect_until(2);
        assert_int_equal(b.failed, 1);
        assert_int_equal(seal(), -ENOENT);
        assert_non_null(strstr(failed_line, "; stopping the run; another program removed or moved the file"));
        assert_null(strstr(failed_line, "readable"));
}

/* Between two runs, the folder may come back until a run begins. */
TEST_WITH(a_missing_folder_fails_the_check_and_the_run, NULL, bench_close)
{
        char why[SCENARIO_TEXT_MAX + 100];
        struct scenario *s;

        bench_open(OUTPUT_FILE);
        s = b.sample.scenario;
        strcat(s->sfi.directory, "/missing");
        assert_int_equal(builder_check(&b.sample.context), -EINVAL);
        assert_int_equal(
                builder_new(&b.builder, &b.sample.context, &b.files, b.core, b.buffer, b.config.slots), 0);
        assert_int_equal(builder_open_files(b.builder, 7, NULL, 0), -ENOENT);
        snprintf(why, sizeof why, "its output failed: No such file or directory in %s", s->sfi.directory);
        assert_reason(1, why);
        *strrchr(s->sfi.directory, '/') = '\0';
}
