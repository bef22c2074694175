/* Writes what seeded runs in virtual time leave: golden_files DIRECTORY makes DIRECTORY/RUN with the event
 * files of each run and NODE.json, the report of each process. golden.py compares them. The SFIs' writer is
 * the product's, but runs in their turns instead of its own thread. */
#include <limits.h>
#include <stdio.h>
#include <sys/stat.h>

#include "../../src/data/event_encoder.h"
#include "../../src/data/event_output.h"
#include "../nodes/beam.h"
#include "core/sfi.h"

#define SFIS_MAX 2
#define LEVEL2_PORT 26803
#define COMMON                                                                                               \
        "trigger.rate=2kHz", "trigger.events=100", "ros.count=3", "sfi.count=2", "sfi.timeout=30s",          \
                "dfm.node-timeout=30s", "ros.fragment-size=500"

static const char *directory;

/* One SFI's files. */
struct output {
        struct scenario scenario;
        struct data_context context;
        struct node_stats stats;
        struct file_list files;
        struct event_encoder *encoder;
        struct event_output *writer;
};

static struct output outputs[SFIS_MAX];
static char folder[SCENARIO_TEXT_MAX];

static void ignore_stored(void *ctx) {}

/* An event is in the file before the next one, so one slot is enough. */
static void open_output(struct output *o, const char *name, const uint8_t *buffer)
{
        o->scenario = *bed_scenario();
        snprintf(o->scenario.sfi.directory, sizeof o->scenario.sfi.directory, "%s", folder);
        o->context = (struct data_context){
                .scenario = &o->scenario, .self = scenario_find(&o->scenario, name), .stats = &o->stats};
        assert_int_equal(event_output_new(&o->writer, &o->context, &o->files, 1, ignore_stored, NULL), 0);
        assert_int_equal(event_encoder_new(&o->encoder, &o->context, buffer), 0);
        assert_int_equal(event_output_open(o->writer, 1, NULL, 0), 0);
}

/* In the turn of the SFI. */
static void write_event(void *ctx, const struct sfi_built *built, const uint8_t *buffer)
{
        const char *name = bed_self();
        struct output *o = &outputs[scenario_find(bed_scenario(), name)->index];
        const struct eformat_encoding *e;
        struct builder_done done;

        if (!o->writer)
                open_output(o, name, buffer);
        assert_int_equal(event_encoder_encode(o->encoder, built, 0, &e), 0);
        assert_true(event_output_write(o->writer, turns_now_ns(), 0, e, 0));
        event_output_flush(o->writer);
        while (event_output_collect(o->writer, &done, 1) > 0)
                assert_false(done.failed);
}

static void begin(const char *name, uint64_t seed, const char *const *settings)
{
        snprintf(folder, sizeof folder, "%.150s/%.50s", directory, name);
        assert_int_equal(mkdir(folder, 0777), 0);
        bed_begin(seed, settings);
        bed_each_event(write_event, NULL);
        bed_start_all();
}

static void write_report(const char *name)
{
        json_t *report = bed_report(name);
        char path[PATH_MAX];

        snprintf(path, sizeof path, "%s/%s.json", folder, name);
        assert_int_equal(json_dump_file(report, path, JSON_INDENT(1)), 0);
        json_decref(report);
}

/* `status`: of the DFM. `command`: a process besides the nodes, or NULL. */
static void end(int status, const char *command)
{
        bed_ends("dfm", status);
        for (enum node_role role = ROLE_ROS; role <= ROLE_SFI; role++) {
                for (size_t i = 0; bed_name(role, i); i++)
                        bed_until(bed_has_ended(bed_name(role, i)));
        }
        if (command) {
                bed_ends(command, 0);
                write_report(command);
        }
        for (enum node_role role = ROLE_DFM; role <= ROLE_SFI; role++) {
                for (size_t i = 0; bed_name(role, i); i++)
                        write_report(bed_name(role, i));
        }
        for (struct output *o = outputs; o < outputs + SFIS_MAX; o++) {
                if (o->writer)
                        assert_int_equal(event_output_close(o->writer), 0);
                event_output_free(o->writer);
                event_encoder_free(o->encoder);
                file_list_clear(&o->files);
                *o = (struct output){};
        }
}

#define BEGIN(name, seed, ...) begin(name, seed, (const char *const[]){COMMON, __VA_ARGS__, NULL})

TEST(transports_and_formats)
{
        static const char *const transports[] = {"scenario.transport=udp", "scenario.transport=tcp"};
        static const char *const formats[] = {"sfi.format=eformat3", "sfi.format=eformat5"};

        for (int i = 0; i < 6; i++) {
                bool is_new = i >= 4;
                char name[64], seed[32];

                snprintf(name, sizeof name, "%s-%s-%s", i % 2 ? "pull" : "push",
                         transports[i / 2 % 2] + strlen("scenario.transport="),
                         formats[is_new] + strlen("sfi.format="));
                snprintf(seed, sizeof seed, "run.seed=%d", i + 1);
                BEGIN(name, (uint64_t)i + 1, bed_mode(i % 2), transports[i / 2 % 2], formats[is_new], seed);
                end(0, NULL);
        }
}

TEST(losses)
{
        BEGIN("push-partial-events", 7, "network.loss=0.05", "sfi.retries=0", "sfi.timeout=200ms");
        end(1, NULL);
        BEGIN("pull-recovered", 8, "scenario.mode=pull", "network.loss=0.05", "network.reorder=0.02",
              "network.duplicate=0.02");
        end(0, NULL);
}

TEST(small_files_of_random_sizes)
{
        BEGIN("push-small-files", 9, "sfi.file-events=20", "trigger.kind=poisson",
              "ros.fragment-size=uniform:0-3000");
        end(0, NULL);
}

TEST(a_farm_decides)
{
        BEGIN("pull-level2", 10, "scenario.mode=pull", "level2.listen=tcp:26803", "level2.timeout=10min");
        FARM("level2", "--connect", bed_address_text("dfm", LEVEL2_PORT), "--fraction", "0.3");
        end(0, "level2");
}

TEST(boards)
{
        BEGIN("push-boards", 11, BEAM_UDP, "trigger.rate=max", "trigger.events=0", "ros.wait=100ms");
        bed_pass(100 * NS_PER_MS);
        FRONTEND("frontend", "--boards", BEAM_BOARDS_UDP, "--count", "100", "--rate", "2kHz", "--fault",
                 "missed=2%", "--event-number", "8:24");
        bed_ends("frontend", 0);
        bed_pass(NS_PER_S);
        bed_signal("dfm", SIGTERM);
        end(1, "frontend");
}

TEST(the_dfm_restarts)
{
        BEGIN("pull-restarted-dfm", 12, "scenario.mode=pull");
        bed_until(bed_events() > 40);
        bed_kill("dfm");
        bed_pass(300 * NS_PER_MS);
        bed_start("dfm");
        end(0, NULL);
}

int main(int argc, char **argv)
{
        if (argc != 2) {
                fprintf(stderr, "usage: golden_files DIRECTORY\n");
                return 2;
        }
        directory = argv[1];
        setenv("TZ", "UTC", 1);
        return test_run(1, argv, NULL, NULL);
}
