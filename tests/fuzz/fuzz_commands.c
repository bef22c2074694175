/* Commands to a standby node: lines of JSON over a connection, and the job that executes them. The node has
 * an address that no JSON can contain and a scenario that does not exist, so that every command is read and
 * checked, and none starts a process. */
#include <assert.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/util.h"
#include "traffic/flow_endpoint.h"
#include "fuzz.h"
#include "remote/standby_job.h"

#define NOW_NS (1000 * NS_PER_S)

static struct {
        struct scenario scenario;
        struct standby_options options;
        struct loop *loop;
        struct job job;
        bool accepted;
} t;

static void take_answer(void *ctx, json_t *answer)
{
        const json_t *reason = json_object_get(answer, "reason");

        (void)ctx;
        /* Only refusals, with a reason. */
        assert(strcmp(json_string_value(json_object_get(answer, "state")), "refused") == 0);
        assert(json_string_length(reason) > 0);
        json_decref(answer);
}

static void set_up(void)
{
        struct scenario_node *self = &t.scenario.nodes[0];

        log_set_level(LOG_LEVEL_ERROR);
        *self = (struct scenario_node){.role = ROLE_ROS, .name = "ros1", .address = "\xff"};
        t.scenario.n_nodes = 1;
        strcpy(t.scenario.standby.allow, "qos");
        t.options = (struct standby_options){
                .scenario = &t.scenario, .name = self->name, .config = "/nonexistent/evb-fuzz.conf"};
        assert(loop_new(&t.loop) == 0);
}

static void check_endpoint(const json_t *o)
{
        struct flow_endpoint first, again;
        json_t *copy;

        memset(&first, 0, sizeof first);
        memset(&again, 0, sizeof again);
        if (flow_endpoint_from_json(&first, o) < 0)
                return;
        copy = flow_endpoint_to_json(&first);
        assert(copy && flow_endpoint_from_json(&again, copy) == 0);
        assert(strcmp(first.from, again.from) == 0 && strcmp(first.to, again.to) == 0 &&
               strcmp(first.at, again.at) == 0);
        assert(first.role == again.role && first.kind == again.kind && first.port == again.port &&
               first.message_bytes == again.message_bytes && first.messages_per_s == again.messages_per_s);
        json_decref(copy);
        t.accepted = true;
}

static void run_line(const char *line, size_t n)
{
        json_t *message = json_loadb(line, n, JSON_REJECT_DUPLICATES, NULL),
               *command = json_object_get(message, "command");
        const json_t *each;
        size_t i;

        json_array_foreach(json_object_get(command, "endpoints"), i, each) check_endpoint(each);
        if (json_is_object(command)) {
                t.accepted |= json_is_array(json_object_get(command, "settings")) ||
                              json_is_string(json_object_get(command, "kind"));
                job_command(&t.job, command, NOW_NS);
                job_turn(&t.job, NOW_NS);
                assert(!job_is_running(&t.job));
        }
        json_decref(message);
}

bool fuzz_accepts(const uint8_t *bytes, size_t size_bytes)
{
        const char *at = (const char *)bytes, *end = at + size_bytes, *newline;

        if (!t.loop)
                set_up();
        t.accepted = false;
        job_init(&t.job, &t.options, &t.scenario.nodes[0], t.loop, take_answer, NULL);
        for (; (newline = memchr(at, '\n', (size_t)(end - at))) != NULL; at = newline + 1)
                run_line(at, (size_t)(newline - at));
        job_fini(&t.job);
        return t.accepted;
}
