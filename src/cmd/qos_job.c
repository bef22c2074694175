/* Turns the command line of `evb qos` into a job: device, destinations, rates, settings. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/quantity.h"
#include "base/util.h"
#include "cmd/commands.h"
#include "conf/keys.h"
#include "qos.h"

#define DEFAULT_SEND_BUFFER_BYTES (4u << 20) /* default maximum of net.ipv4.tcp_wmem */

/* An option that has the meaning and the bounds of a scenario key. */
struct key_option {
        const char *option, *text, *section, *name;
};

static int read_by_key(const struct key_option *k, const char *option, const char *text, struct scenario *s)
{
        const struct scenario_key *key = scenario_key_find(k->section, k->name);
        char expected[SCENARIO_TEXT_MAX];

        if (text && scenario_key_set(s, key, text) < 0)
                return options_refuse("qos", option, text,
                                      scenario_key_allowed(key, expected, sizeof expected));
        return OPTIONS_GO_ON;
}

/* Whether the setting is that of a key, by its name or old name, or of a node. */
static bool is_setting(const char *text)
{
        char section[64], name[64];
        int end = 0;

        return strncmp(text, "node ", strlen("node ")) == 0 ||
               (sscanf(text, "%63[^.=].%63[^.=]%n", section, name, &end) == 2 && text[end] == '=' &&
                scenario_key_find(section, name));
}

static int reject_setting(const struct key_option *keys, size_t n, const char *text)
{
        fprintf(stderr, "%sqos: --set %s", command_prefix, text);
        if (is_setting(text)) {
                fprintf(stderr, " needs --config FILE\n");
                return QOS_EXIT_WRONG;
        }
        fprintf(stderr, ": unknown key; without --config, expected KEY=VALUE of ");
        for (size_t i = 0; i < n; i++)
                fprintf(stderr, "%s%s.%s",
                        i == 0      ? ""
                        : i + 1 < n ? ", "
                                    : " or ",
                        keys[i].section, keys[i].name);
        fputc('\n', stderr);
        return QOS_EXIT_WRONG;
}

/* Reads a --set without a scenario: SECTION.KEY=VALUE of one of these keys, by its name or old name. */
static int read_setting(const struct key_option *keys, size_t n, const char *text, struct scenario *s)
{
        const size_t length = strcspn(text, "=");
        char option[64];

        for (size_t i = 0; text[length] && i < n; i++) {
                const char *name = option + strlen("set "),
                           *old = scenario_key_find(keys[i].section, keys[i].name)->old_name;
                bool is_old = old && strlen(old) == length && strncmp(text, old, length) == 0;

                snprintf(option, sizeof option, "set %s.%s", keys[i].section, keys[i].name);
                if (is_old)
                        log_warning("--set %s: %s is now %s", text, old, name);
                if (is_old || (strlen(name) == length && strncmp(text, name, length) == 0))
                        return read_by_key(&keys[i], option, text + length + 1, s);
        }
        return reject_setting(keys, n, text);
}

/* Reads the options that --config replaces with keys of its file, and without it, settings of these keys. */
static int read_key_options(const struct qos_options *o, struct scenario *s)
{
        const struct key_option options[] = {
                {"backend", o->backend, "qos", "backend"},
                {"offload", o->offload, "qos", "offload"},
                {"rate", o->rate, "qos", "rate"},
                {"burst", o->burst, "qos", "burst"},
                {"limit", o->limit, "qos", "limit"},
                {"link-rate", o->link_rate, "network", "link-rate"},
                {"switch-buffer", o->switch_buffer, "network", "switch-buffer"},
                {"send-buffer", o->send_buffer, "network", "socket-buffer"},
                {"control-port", o->control_port, "network", "port"},
                {"control-rate", o->control_rate, "qos", "control-rate"},
                {"overhead", o->overhead, "test", "overhead"},
        };
        int r = OPTIONS_GO_ON;

        for (size_t i = 0; r == OPTIONS_GO_ON && i < ARRAY_SIZE(options); i++) {
                if (options[i].text && o->config) {
                        fprintf(stderr,
                                "%sqos: --%s cannot be used with --config; use --set %s.%s=%s instead\n",
                                command_prefix, options[i].option, options[i].section, options[i].name,
                                options[i].text);
                        return QOS_EXIT_WRONG;
                }
                r = read_by_key(&options[i], options[i].option, options[i].text, s);
        }
        for (size_t i = 0; !o->config && r == OPTIONS_GO_ON && i < o->common.n_settings; i++)
                r = read_setting(options, ARRAY_SIZE(options), o->common.settings[i], s);
        return r;
}

/* Reads ADDRESS or ADDRESS=RATE. */
static int read_destination(const char *text, struct tc_destination *ret)
{
        const char *equals = strchr(text, '=');
        char address[64];
        size_t n = equals ? (size_t)(equals - text) : strlen(text);

        if (n >= sizeof address)
                return options_refuse("qos", "dest", text,
                                      "ADDRESS or ADDRESS=RATE with an IPv4 or IPv6 address");
        memcpy(address, text, n);
        address[n] = '\0';
        *ret = (struct tc_destination){};
        if (!tc_address_parse(&ret->address, address))
                return options_refuse("qos", "dest", text,
                                      "ADDRESS or ADDRESS=RATE with an IPv4 or IPv6 address");
        if (equals && (quantity_parse_rate(equals + 1, &ret->rate_bps) < 0 || ret->rate_bps < 8000 ||
                       ret->rate_bps > TC_LINK_RATE_MAX_BPS))
                return options_refuse("qos", "dest", text, "ADDRESS=RATE with a rate from 8kbit to 400Gbit");
        return OPTIONS_GO_ON;
}

void qos_job_use_device(struct qos_job *job)
{
        const struct tc_device *d = &job->device;
        struct tc_request *q = &job->request;

        if (job->link_rate_is_reported) {
                q->link_rate_bps = d->speed_bps;
                q->link_is_virtual = d->is_virtual;
        }
        q->mtu_bytes = d->mtu_bytes;
        /* As in shaping_request_of_scenario(). */
        if (job->scenario)
                q->mtu_bytes = MAX((uint32_t)scenario_mtu_bytes(job->scenario), q->mtu_bytes);
        q->super_packet_bytes = d->super_packet_bytes;
}

static int read_alone(struct qos_job *job, const struct scenario *s)
{
        const struct qos_options *o = job->options;
        uint64_t sources = 1;
        int r = OPTIONS_GO_ON;

        if (o->sources && (quantity_parse_count(o->sources, &sources) < 0 || sources < 1 || sources > 100000))
                return options_refuse("qos", "sources", o->sources, "a count from 1 to 100000");
        job->destinations = calloc(o->destinations.n + 1, sizeof *job->destinations);
        if (!job->destinations)
                return qos_exit_status(log_error_errno(ENOMEM, "qos: %m"));
        for (size_t i = 0; r == OPTIONS_GO_ON && i < o->destinations.n; i++)
                r = read_destination(o->destinations.values[i], &job->destinations[i]);
        if (r != OPTIONS_GO_ON)
                return r;
        job->request = (struct tc_request){
                .link_rate_bps = s->network.link_rate_bps,
                .switch_buffer_bytes = s->network.switch_buffer_bytes,
                .sources = (uint32_t)sources,
                .send_buffer_bytes = s->network.socket_buffer_bytes ?: DEFAULT_SEND_BUFFER_BYTES,
                .rate_bps = s->qos.rate_bps,
                .burst_bytes = s->qos.burst_bytes,
                .limit_bytes = s->qos.limit_bytes,
                .control_rate_bps = s->qos.control_rate_bps,
                .offload = (enum tc_offload)s->qos.offload,
                .control_port = (uint16_t)s->network.control_port,
                .overhead_bytes =
                        s->qos.overhead_bytes == SCENARIO_UNCHANGED ? 0 : (uint16_t)s->qos.overhead_bytes,
                .destinations = job->destinations,
                .n_destinations = o->destinations.n,
        };
        for (size_t i = 0; i < o->destinations.n; i++) {
                if (job->destinations[i].rate_bps == 0)
                        job->destinations[i].rate_bps = s->qos.rate_bps;
        }
        job->link_rate_is_reported = s->network.link_rate_bps == 0;
        job->asked = shaping_backend_of_scenario(s);
        qos_job_use_device(job);
        return OPTIONS_GO_ON;
}

/* Explains that a device which evb shaped was renamed or deleted. */
static int refuse_device(struct qos_job *job, const char *name, int r)
{
        bool lost = tc_state_find_lost(name, true, &job->lost);

        if (lost && !job->lost.now[0] && job->removes)
                return OPTIONS_GO_ON;
        fprintf(stderr, "%sqos: cannot use device \"%s\": %s; ", command_prefix, name, strerror(-r));
        if (lost && job->lost.now[0])
                fprintf(stderr, "the device that was shaped under this name is now called %s; use --dev %s\n",
                        job->lost.now, job->lost.now);
        else if (lost)
                fprintf(stderr,
                        "it was shaped and has been deleted; `%sqos remove --dev %s` deletes its "
                        "state file\n",
                        command_prefix, name);
        else
                fprintf(stderr, "expected a network device of this machine\n");
        return QOS_EXIT_WRONG;
}

static int find_device(struct qos_job *job, const char *name, bool needed)
{
        int r = tc_device_read(&job->device, name);

        if (strlen(name) < sizeof job->device_name)
                strcpy(job->device_name, name);
        if (r < 0 && needed)
                return refuse_device(job, name, r);
        job->has_device = r >= 0;
        return OPTIONS_GO_ON;
}

static int read_scenario(struct qos_job *job, bool needs_device)
{
        const struct qos_options *o = job->options;
        char device[IF_NAMESIZE] = "DEVICE", text[ERROR_TEXT_MAX];
        struct error e = {};
        int r;

        job->scenario = command_load(o->config, &o->common);
        if (!job->scenario)
                return QOS_EXIT_WRONG;
        job->node = scenario_find(job->scenario, o->node);
        if (!job->node) {
                fprintf(stderr, "%sqos: --node: %s has no node \"%s\"\n", command_prefix, o->config, o->node);
                return QOS_EXIT_WRONG;
        }
        if (job->node->device[0])
                snprintf(device, sizeof device, "%.*s", IF_NAMESIZE - 1, job->node->device);
        else if (tc_device_of_address(job->node->address, device) < 0 && needs_device) {
                fprintf(stderr,
                        "%sqos: node %s: no device of this machine has the address \"%s\"; set device in "
                        "section [node %s]\n",
                        command_prefix, job->node->name, job->node->address, job->node->name);
                return QOS_EXIT_WRONG;
        }
        r = find_device(job, o->device ?: device, needs_device);
        if (r != OPTIONS_GO_ON || job->device_only)
                return r;
        job->destinations = calloc(EVB_SFI_MAX, sizeof *job->destinations);
        if (!job->destinations)
                return qos_exit_status(log_error_errno(ENOMEM, "qos: %m"));
        if (shaping_request_of_scenario(&job->request, job->scenario, job->node,
                                        job->has_device ? &job->device : NULL, job->destinations, NULL,
                                        &e) < 0) {
                error_locate(&e, "%s", o->config);
                fprintf(stderr, "%s\n", error_format(&e, text));
                return QOS_EXIT_WRONG;
        }
        job->link_rate_is_reported = job->scenario->network.link_rate_bps == 0;
        job->asked = shaping_backend_of_scenario(job->scenario);
        if (job->asked == TC_BACKEND_NONE)
                job->asked = TC_BACKEND_AUTO;
        qos_job_use_device(job);
        return OPTIONS_GO_ON;
}

static int refuse_sockets(void)
{
        fprintf(stderr,
                "%sqos: backend socket: only a ROS can have its own connections paced; run it with "
                "qos.backend = socket, or use another backend here\n",
                command_prefix);
        return QOS_EXIT_WRONG;
}

static int read_command_line(struct qos_job *job, bool needs_request, bool needs_device)
{
        const struct qos_options *o = job->options;
        _cleanup_free_ struct scenario *s = calloc(1, sizeof *s);
        int r = OPTIONS_GO_ON;

        if (!s)
                return qos_exit_status(log_error_errno(ENOMEM, "qos: %m"));
        for (size_t i = 0; i < n_scenario_keys; i++)
                scenario_key_set(s, &scenario_keys[i], scenario_keys[i].standard);
        scenario_set_backend(s, QOS_AUTO);
        /* Not known, and no class for control messages, unless an option or a setting says otherwise. */
        s->network.switch_buffer_bytes = s->network.control_port = 0;
        if (!o->config && (o->node || (job->device_only && o->common.n_settings > 0))) {
                fprintf(stderr, "%sqos: --%s needs --config FILE\n", command_prefix,
                        o->node ? "node" : "set");
                return QOS_EXIT_WRONG;
        }
        r = read_key_options(o, s);
        if (r != OPTIONS_GO_ON)
                return r;
        scenario_set_backend(s, s->qos.backend_choice);
        if (o->config && o->sources) {
                fprintf(stderr,
                        "%sqos: --sources cannot be used with --config; use --set ros.count=%s instead\n",
                        command_prefix, o->sources);
                return QOS_EXIT_WRONG;
        }
        if (o->config && (!o->node || o->destinations.n > 0)) {
                fprintf(stderr,
                        o->node ? "%sqos: --dest cannot be used with --config, whose file names "
                                  "the destinations\n"
                                : "%sqos: --config needs --node NAME\n",
                        command_prefix);
                return QOS_EXIT_WRONG;
        }
        if (o->config)
                return read_scenario(job, needs_device);
        if (!o->device || (needs_request && o->destinations.n == 0)) {
                fprintf(stderr,
                        "%sqos: missing device or destination; use --config FILE --node NAME, or --dev "
                        "DEVICE --dest ADDRESS=RATE...\n",
                        command_prefix);
                return QOS_EXIT_WRONG;
        }
        if (s->qos.backend == QOS_SOCKET)
                return refuse_sockets();
        if (s->qos.backend == QOS_NONE)
                return options_refuse(
                        "qos", o->backend && strcmp(o->backend, "none") == 0 ? "backend" : "set qos.backend",
                        "none", "auto, htb, htb+tbf, cbq+tbf or edt");
        r = find_device(job, o->device, true);
        return r == OPTIONS_GO_ON ? read_alone(job, s) : r;
}

int qos_job_init(struct qos_job *job, const struct qos_options *o, bool needs_request)
{
        int r;

        *job = (struct qos_job){.options = o};
        r = read_command_line(job, needs_request, true);
        return r == OPTIONS_GO_ON && job->asked == TC_BACKEND_SOCKET ? refuse_sockets() : r;
}

int qos_job_init_for_device(struct qos_job *job, const struct qos_options *o, bool removes)
{
        *job = (struct qos_job){.options = o, .device_only = true, .removes = removes};
        return read_command_line(job, false, true);
}

int qos_job_init_for_plan(struct qos_job *job, const struct qos_options *o)
{
        *job = (struct qos_job){.options = o};
        return read_command_line(job, true, false);
}

void qos_job_fini(struct qos_job *job)
{
        free(job->scenario);
        free(job->destinations);
}

int qos_make_plan(struct qos_job *job, enum tc_backend backend, struct tc_plan *ret)
{
        struct error e = {};

        job->request.backend = backend;
        return tc_plan_make(ret, &job->request, &e) < 0 ? qos_fail(&e) : OPTIONS_GO_ON;
}
