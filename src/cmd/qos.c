/* evb qos: plans, installs, shows, watches and removes shaping at the source. */
#include "qos.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/quantity.h"
#include "base/util.h"
#include "cmd/commands.h"

/* Maximum time for removed classes to drain: for apply, and for the repairs of watch. */
#define APPLY_PATIENCE_NS (5 * NS_PER_S)
#define WATCH_PATIENCE_NS NS_PER_S

/* The backends that the kernel supports are not checked here; `apply` checks them. */
static int plan(const struct qos_options *o)
{
        struct tc_tree nothing = {}, want = {};
        struct tc_plan p = {};
        struct qos_job job;
        int r = qos_job_init_for_plan(&job, o);

        job.request.fair = TC_FAIR_UNKNOWN;
        if (r == OPTIONS_GO_ON)
                r = qos_make_plan(&job,
                                  job.asked != TC_BACKEND_AUTO                 ? job.asked
                                  : job.request.offload == TC_OFFLOAD_REQUIRED ? TC_BACKEND_HTB
                                                                               : TC_BACKEND_HTB_TBF,
                                  &p);
        if (r == OPTIONS_GO_ON) {
                struct qos_result result = {
                        .device = job.device_name, .plan = &p, .want = &want, .job = &job};

                snprintf(job.backend_reason, sizeof job.backend_reason,
                         p.is_offloaded                 ? "%s, offloaded to the device, if it can"
                         : job.asked == TC_BACKEND_AUTO ? "auto: %s, if the kernel supports it"
                                                        : "%s, as configured",
                         tc_backend_name(p.backend));
                if (tc_layout_make(&want, &p, &nothing) < 0) {
                        fprintf(stderr, "%sqos: out of memory\n", command_prefix);
                        r = 1;
                } else if (o->common.json)
                        r = options_write_json(&o->common, qos_result_json(&result), 0);
                else {
                        qos_print_plan(&result, stdout);
                        r = 0;
                }
        }
        tc_tree_fini(&want);
        tc_plan_fini(&p);
        qos_job_fini(&job);
        return r;
}

/* Reports the state of the kernel. */
static int report(const struct qos_options *o, struct tc_shaper *shaper, const struct qos_result *with)
{
        struct qos_result result = *with;
        struct tc_status status = {};
        struct tc_tree have = {};
        struct tc_device device;
        size_t n_asked;
        const struct tc_destination *asked = tc_shaper_asked(shaper, &n_asked);
        int r = tc_shaper_read(shaper, &have), exit = 0;

        if (r >= 0)
                r = tc_status_make(&status, &have, asked, n_asked);
        if (r >= 0) {
                if (tc_device_read(&device, result.device) >= 0)
                        result.now = &device;
                result.status = &status;
                if (status.backend != TC_BACKEND_NONE && !result.want)
                        result.want = &have;
                if (o->common.json)
                        exit = options_write_json(&o->common, qos_result_json(&result), 0);
                else
                        qos_print_status(&result, stdout);
        }
        tc_status_fini(&status);
        tc_tree_fini(&have);
        if (r < 0)
                fprintf(stderr, "%sqos: %s: cannot report the installed tree: %s\n", command_prefix,
                        result.device, strerror(-r));
        return r < 0 ? 1 : exit;
}

/* Plans and applies with the backend that the kernel supports. *ret_refusal: the offloaded tree was refused,
 * which is not reported yet. */
static int install_with(struct qos_job *job, struct tc_shaper *shaper, bool offload, struct tc_plan *p,
                        struct tc_outcome *outcome, int *ret_refusal, struct error *e)
{
        enum tc_backend backend, asked = offload ? TC_BACKEND_HTB : job->asked;
        int r = tc_shaper_probe(shaper, asked, &backend, &job->request.fair, job->backend_reason, e), status;

        job->request.offload = offload ? TC_OFFLOAD_REQUIRED : TC_OFFLOAD_NO;
        if (offload)
                snprintf(job->backend_reason, sizeof job->backend_reason, "%s, offloaded to the device",
                         tc_backend_name(asked));
        if (r < 0)
                return qos_fail(e);
        status = qos_make_plan(job, backend, p);
        if (status != OPTIONS_GO_ON)
                return status;
        r = tc_shaper_apply(shaper, p, job->options->force, job->options->patience_ns, true, outcome, e);
        if (r < 0 && offload)
                *ret_refusal = r;
        return r < 0 && !offload ? qos_fail(e) : OPTIONS_GO_ON;
}

/* The driver may accept a root, but refuse a class, e.g. because it has too few queues. */
static int install(struct qos_job *job, struct tc_shaper *shaper, struct tc_plan *p,
                   struct tc_outcome *outcome)
{
        enum tc_offload offload = job->request.offload;
        struct error e = {};
        int r = tc_shaper_probe_offload(shaper, job->asked, offload, outcome, &e), refusal = 0, status;

        if (r < 0)
                return qos_fail(&e);
        status = install_with(job, shaper, r > 0, p, outcome, &refusal, &e);
        if (refusal == 0)
                return status;
        if (offload == TC_OFFLOAD_REQUIRED)
                return qos_fail(&e);
        tc_plan_fini(p);
        tc_outcome_warn(outcome, "%s; shaping without offload (qos.offload = auto)", e.message);
        return install_with(job, shaper, false, p, outcome, &refusal, &e);
}

static int apply(const struct qos_options *o)
{
        struct tc_outcome outcome = {};
        struct tc_shaper *shaper = NULL;
        struct tc_plan p = {};
        struct error e = {};
        struct qos_job job;
        int status = qos_job_init(&job, o, true), r;

        if (status == OPTIONS_GO_ON) {
                r = tc_shaper_new(&shaper, &job.device, &outcome, &e);
                status = r < 0 ? qos_fail(&e) : install(&job, shaper, &p, &outcome);
        }
        if (status == OPTIONS_GO_ON) {
                struct qos_result result = {
                        .device = job.device_name, .plan = &p, .outcome = &outcome, .job = &job};

                if (!o->common.json)
                        printf("%s: %u changes, backend %s\n", job.device_name, outcome.operations,
                               job.backend_reason);
                status = report(o, shaper, &result);
        }
        tc_plan_fini(&p);
        tc_shaper_free(shaper);
        qos_job_fini(&job);
        return status;
}

/* Warns about conditions that the counters do not show: the device was recreated or renamed, is down, or has
 * a reduced rate. */
static void warn_of_device(struct qos_job *job, const struct tc_status *s, const struct tc_state *state,
                           struct tc_outcome *o)
{
        char address[TC_ADDRESS_TEXT_MAX];

        bool lost = tc_state_find_lost(job->device_name, false, &job->lost);

        if (lost && s->backend != TC_BACKEND_NONE)
                tc_outcome_warn(o, "%s was shaped, deleted and made anew; the new device is shaped",
                                job->device_name);
        else if (lost)
                tc_outcome_warn(o,
                                "%s was shaped, deleted and made anew; the new device is not shaped: run "
                                "`%sqos apply` again",
                                job->device_name, command_prefix);
        if (!job->device.up)
                tc_outcome_warn(o, "%s is down, or has no carrier", job->device_name);
        if (s->backend != TC_BACKEND_NONE && state->name[0] && strcmp(state->name, job->device_name) != 0)
                tc_outcome_warn(o, "%s was called %s when it was shaped", job->device_name, state->name);
        for (size_t i = 0; i < s->n; i++) {
                uint32_t permille = s->rows[i].permille;

                if (permille > 0 && permille < 1000)
                        tc_outcome_warn(o,
                                        "%s: reduced to %u.%u %% of the configured rate, because packets "
                                        "were lost at its port",
                                        tc_address_format(&s->rows[i].address, address), permille / 10,
                                        permille % 10);
        }
}

/* No lock is needed, because reading the status needs no privilege. */
static int status(const struct qos_options *o)
{
        struct tc_socket *socket = NULL;
        struct tc_tree have = {};
        struct tc_state state = {.fd = -1};
        struct tc_status s = {};
        struct qos_job job;
        struct tc_outcome found = {};
        int exit = qos_job_init_for_device(&job, o, false), r;

        if (exit == OPTIONS_GO_ON) {
                struct qos_result result = {.device = job.device_name,
                                            .status = &s,
                                            .want = &have,
                                            .now = &job.device,
                                            .job = &job};

                r = tc_socket_new(&socket);
                if (r >= 0)
                        r = tc_socket_dump(socket, job.device.ifindex, false, &have);
                (void)tc_state_peek(&state, &job.device);
                if (r >= 0)
                        r = tc_status_make(&s, &have, state.asked, state.n_asked);
                if (s.backend == TC_BACKEND_NONE)
                        result.want = NULL;
                found.owner = s.owner;
                if ((s.backend == TC_BACKEND_EDT || s.is_offloaded) && s.n == 0)
                        tc_outcome_warn(&found, "found no destinations: the BPF program is detached, or only "
                                                "root can read its map");
                warn_of_device(&job, &s, &state, &found);
                result.outcome = &found;
                exit = 0;
                if (r < 0) {
                        fprintf(stderr, "%sqos: %s: cannot read the qdiscs: %s\n", command_prefix,
                                job.device_name, strerror(-r));
                        exit = qos_exit_status(r);
                } else if (o->common.json)
                        exit = options_write_json(&o->common, qos_result_json(&result), 0);
                else
                        qos_print_status(&result, stdout);
        }
        tc_status_fini(&s);
        tc_state_fini(&state);
        tc_tree_fini(&have);
        tc_socket_free(socket);
        qos_job_fini(&job);
        return exit;
}

/* Whether the device has neither a tree nor a state file of evb. If so, there is nothing to remove, and
 * neither a privilege nor a state directory is needed. */
static bool is_untouched(const struct qos_job *job)
{
        struct tc_state state = {.fd = -1};
        struct tc_socket *socket = NULL;
        struct tc_tree have = {};
        struct tc_state_lost lost;
        bool untouched = tc_state_peek(&state, &job->device) == -ENOENT &&
                         !tc_state_find_lost(job->device_name, false, &lost);
        int r = tc_socket_new(&socket);

        if (r >= 0)
                r = tc_socket_dump(socket, job->device.ifindex, false, &have);
        untouched = untouched && r >= 0 && tc_layout_owner(&have) != TC_OWNER_OURS;
        tc_state_fini(&state);
        tc_tree_fini(&have);
        tc_socket_free(socket);
        return untouched;
}

/* The device has been deleted, together with its qdiscs. */
static int remove_lost(const struct qos_options *o, const struct qos_job *job, struct tc_outcome *outcome)
{
        struct qos_result result = {.device = job->device_name, .outcome = outcome, .job = job};
        int r = tc_state_remove_lost(&job->lost);

        if (r < 0) {
                fprintf(stderr, "%sqos: %s: cannot delete the state file %s: %s\n", command_prefix,
                        job->device_name, job->lost.path, strerror(-r));
                return qos_exit_status(r);
        }
        tc_outcome_warn(outcome, "%s no longer exists; its state file is deleted", job->device_name);
        if (o->common.json)
                return options_write_json(&o->common, qos_result_json(&result), 0);
        printf("%s: 0 changes\nwarning: %s\n", job->device_name, outcome->warnings[0]);
        return 0;
}

static int remove_shaping(const struct qos_options *o)
{
        struct tc_outcome outcome = {};
        struct tc_shaper *shaper = NULL;
        struct error e = {};
        struct qos_job job;
        int exit = qos_job_init_for_device(&job, o, true), r;

        if (exit == OPTIONS_GO_ON && !job.has_device)
                exit = remove_lost(o, &job, &outcome);
        else if (exit == OPTIONS_GO_ON && is_untouched(&job)) {
                if (!o->common.json && !o->common.quiet)
                        printf("%s: 0 changes\n", job.device_name);
                exit = o->common.quiet && !o->common.json ? 0 : status(o);
        } else if (exit == OPTIONS_GO_ON) {
                struct qos_result result = {.device = job.device_name, .outcome = &outcome, .job = &job};

                r = tc_shaper_new(&shaper, &job.device, &outcome, &e);
                if (r >= 0)
                        r = tc_shaper_remove(shaper, &outcome, &e);
                exit = r < 0 ? qos_fail(&e) : OPTIONS_GO_ON;
                if (exit == OPTIONS_GO_ON && !o->common.json)
                        printf("%s: %u changes\n", job.device_name, outcome.operations);
                if (exit == OPTIONS_GO_ON)
                        exit = report(o, shaper, &result);
        }
        tc_shaper_free(shaper);
        qos_job_fini(&job);
        return exit;
}

static const struct verb {
        struct command command;
        int (*run)(const struct qos_options *o);
} verbs[] = {
        {{"qos plan", cmd_qos, "",
          "Show the planned tree, the reason for each value, and the equivalent tc commands; change nothing.",
          OPTION_SET | OPTION_JSON, QOS_PLAN},
         plan},
        {{"qos apply", cmd_qos, "", "Install the plan: send only the differences, and verify the result.",
          OPTION_SET | OPTION_JSON, QOS_APPLY},
         apply},
        {{"qos status", cmd_qos, "", "Show the kernel's rates and counters for each destination.",
          OPTION_SET | OPTION_JSON},
         status},
        {{"qos watch", cmd_qos, "",
          "Report changes by other programs, and dropped packets; with --repair, revert the changes.",
          OPTION_SET | OPTION_JSON, QOS_WATCH},
         qos_watch},
        {{"qos remove", cmd_qos, "", "Drain the queues, and restore the earlier qdiscs and settings.",
          OPTION_SET | OPTION_JSON},
         remove_shaping},
};

static int run(const struct verb *verb, int argc, char **argv)
{
        struct qos_options o = {.patience_ns = verb->command.verb == QOS_WATCH ? WATCH_PATIENCE_NS
                                                                               : APPLY_PATIENCE_NS};
        const struct option_entry own[] = {
                {"config", "FILE",
                 "scenario file; shapes the device of the node named by --node (default with --node: "
                 "/etc/evb/scenario.conf, if it exists)",
                 &o.config},
                {"node", "NAME", "name of the ROS in the scenario", &o.node},
                {"dev", "DEVICE", "network device, without a scenario", &o.device},
                {"dest", "ADDRESS[=RATE]",
                 "destination address (IPv4, IPv6 or multicast), without a scenario, where --set accepts "
                 "only qos.backend, qos.offload, qos.rate, qos.burst, qos.limit, qos.control-rate, "
                 "network.link-rate, network.switch-buffer, network.socket-buffer, network.port and "
                 "test.overhead; repeatable",
                 .list = &o.destinations, .verbs = QOS_PLANNING},
                {"rate", "RATE", "rate of each destination without its own (default: auto)", &o.rate,
                 .verbs = QOS_PLANNING},
                {"backend", "KIND", "layout of the tree: auto, htb, htb+tbf, cbq+tbf or edt (default: auto)",
                 &o.backend, .verbs = QOS_PLANNING},
                {"offload", "MODE",
                 "whether the device shapes (backend htb): auto, required or no (default: no)", &o.offload,
                 .verbs = QOS_PLANNING},
                {"link-rate", "RATE", "rate of the link (default: as reported by the device)", &o.link_rate,
                 .verbs = QOS_PLANNING},
                {"sources", "N", "number of machines that send to one destination (default: 1)", &o.sources,
                 .verbs = QOS_PLANNING},
                {"switch-buffer", "BYTES", "buffer of a switch port; limits the bursts", &o.switch_buffer,
                 .verbs = QOS_PLANNING},
                {"send-buffer", "BYTES", "", &o.send_buffer, .verbs = QOS_PLANNING,
                 .key = "network.socket-buffer"},
                {"burst", "BYTES", "", &o.burst, .verbs = QOS_PLANNING, .key = "qos.burst"},
                {"limit", "BYTES", "", &o.limit, .verbs = QOS_PLANNING, .key = "qos.limit"},
                {"control-port", "PORT", "", &o.control_port, .verbs = QOS_PLANNING, .key = "network.port"},
                {"control-rate", "RATE", "", &o.control_rate, .verbs = QOS_PLANNING,
                 .key = "qos.control-rate"},
                {"overhead", "BYTES", "", &o.overhead, .verbs = QOS_PLANNING, .key = "test.overhead"},
                {"wait", "TIME", "maximum time for removed classes to drain (default: 5s; watch: 1s)",
                 .verbs = QOS_CHANGING, .was = "patience",
                 OPTION_NUMBER(quantity_parse_time, &o.patience_ns, 0, UINT64_MAX, "a time, e.g. 5s")},
                {"force", NULL, "also replace another program's root qdisc that has classes", &o.force,
                 .verbs = QOS_CHANGING},
                {"repair", NULL, "revert changes by other programs", &o.repair, .verbs = QOS_WATCH},
        };
        int r = options_parse(&o.common, &verb->command, own, ARRAY_SIZE(own), 0, argc, argv);

        if (o.node && !o.config)
                o.config = command_default_config();
        if (r == OPTIONS_GO_ON)
                r = verb->run(&o);
        free(o.destinations.values);
        return r;
}

int cmd_qos(int argc, char **argv)
{
        int status;
        const struct verb *v =
                options_find_verb(verbs, ARRAY_SIZE(verbs), sizeof *verbs, argc, argv, &status);

        return v ? run(v, argc - 1, argv + 1) : status;
}
