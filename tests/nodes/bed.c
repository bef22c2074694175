/* Starts, disturbs and observes the nodes of one test. */
#include "bed.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <limits.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

#include "base/log.h"
#include "cmd/options.h"
#include "data/builder.h"
#include "node/node.h"
#include "sys/memory.h"

#define PROCESSES_MAX 1024
#define SETTINGS_MAX 64
#define EVENTS_MAX 131072
#define LIMIT_NS (600 * NS_PER_S)
#define STACK_BYTES (4u << 20)

/* A node, or another command. It lives until the end of the test. */
struct process {
        char name[32];
        unsigned turn;
        int status;
        bool ended;
        bed_command command;   /* NULL: a node */
        const uint8_t *buffer; /* of an SFI */
        struct scenario *scenario;
        const char *settings[SETTINGS_MAX];
        struct node_source source;
        struct node_stats *stats;
        char *report;
        size_t report_bytes;
        FILE *json;
        char *log;
        size_t log_bytes;
        FILE *log_to;
        char *arguments[SETTINGS_MAX];
        int n_arguments;
};

static struct process *processes[PROCESSES_MAX];
static size_t n_processes;
static struct scenario *scenario;
static const char *settings_now[SETTINGS_MAX];
static size_t n_settings;
static char state[] = "/tmp/evb-test-XXXXXX", sections[sizeof state + 32];
static uint16_t written[EVENTS_MAX];
static uint64_t n_events, n_events_again;
static struct event_info infos[EVENTS_MAX];
static void (*each_ms)(void *ctx);
static void *each_ms_ctx;
static void (*look_at_event)(void *ctx, const struct sfi_built *built, const uint8_t *buffer);
static void *look_ctx;
static const char *failing; /* an SFI */
static const char *dying, *last_words;
static _Thread_local struct process *self;

int __real_memory_share_new(const char *name, size_t size_bytes, int *ret_fd, void **ret);
void __real_sfi_written(struct sfi *s, uint64_t now_ns, uint32_t slot, bool failed);
int __real_builder_new(struct builder **ret, const struct data_context *c, struct file_list *files,
                       const struct sfi *core, const uint8_t *buffer, uint32_t slots);

/* ---- What the nodes call ---- */

/* The counters outlive their node. */
int __wrap_memory_share_new(const char *name, size_t size_bytes, int *ret_fd, void **ret)
{
        void *again;
        int r = __real_memory_share_new(name, size_bytes, ret_fd, ret);

        if (r >= 0)
                r = memory_share_map(*ret_fd, size_bytes, &again);
        if (r >= 0)
                self->stats = again;
        return r;
}

static void unlock_state(void);

/* It is gone before it does anything else. Its thread stays, as for bed_kill(). */
static void die(void)
{
        dying = NULL;
        unlock_state();
        bed_control_ends();
        sockets_close_of(self->turn);
        turns_end();
        for (;;)
                pause();
}

int __wrap_log_write(enum log_level level, int error, const struct log_fields *fields,
                     struct log_limit *limit, const char *file, int line, const char *function,
                     const char *format, ...)
{
        char text[1024];
        va_list arguments;

        va_start(arguments, format);
        if (self) {
                errno = abs(error);
                vsnprintf(text, sizeof text, format, arguments);
                fprintf(self->log_to, "%.3f %s\n", (double)turns_now_ns() / 1e9, text);
                if (dying && strcmp(self->name, dying) == 0 && strstr(text, last_words))
                        die();
        }
        va_end(arguments);
        return -abs(error);
}

int __wrap_builder_new(struct builder **ret, const struct data_context *c, struct file_list *files,
                       const struct sfi *core, const uint8_t *buffer, uint32_t slots)
{
        self->buffer = buffer;
        return __real_builder_new(ret, c, files, core, buffer, slots);
}

void __wrap_sfi_written(struct sfi *s, uint64_t now_ns, uint32_t slot, bool failed)
{
        struct sfi_built built;

        if (failing && strcmp(self->name, failing) == 0) {
                sfi_set_failed(s, now_ns, REASON_DISK_FULL);
                failed = true;
        }
        sfi_built_event(s, slot, &built);
        if (!failed && built.end != EVENT_LOST && built.event < EVENTS_MAX) {
                *(written[built.event]++ == 0 ? &n_events : &n_events_again) += 1;
                infos[built.event] = built.info;
                if (look_at_event)
                        look_at_event(look_ctx, &built, self->buffer);
        }
        __real_sfi_written(s, now_ns, slot, failed);
}

int __wrap_options_write_json(const struct options *o, json_t *report, int status)
{
        json_dumpf(report, self->json, JSON_COMPACT);
        json_decref(report);
        return status;
}

/* ---- Beginning and end ---- */

static void set_address(struct scenario_node *n)
{
        static const unsigned first[] = {[ROLE_DFM] = 1, [ROLE_ROS] = 10, [ROLE_SFI] = 100};

        snprintf(n->address, sizeof n->address, "127.0.0.%u", first[n->role] + n->index);
}

/* Sections of nodes come from a file. */
static void write_sections(void)
{
        FILE *f;

        snprintf(sections, sizeof sections, "%s/scenario.conf", state);
        f = fopen(sections, "we");
        assert_non_null(f);
        for (size_t i = 0; i < n_settings; i++) {
                if (settings_now[i][0] == '[')
                        fputs(settings_now[i], f);
        }
        assert_int_equal(fclose(f), 0);
}

/* The settings of the test, and those of one process; returns their number. Tables for fewer open events than
 * usual, because AddressSanitizer marks the memory of each one, and the search for leaks reads that of killed
 * nodes. */
static size_t join_settings(const char **all, const char *const *own)
{
        size_t n = 0;

        all[n++] = "test.buffer-events=8192";
        for (size_t i = 0; i < n_settings; i++) {
                if (settings_now[i][0] != '[')
                        all[n++] = settings_now[i];
        }
        for (; own && *own; own++)
                all[n++] = *own;
        return n;
}

static struct scenario *load(const char *const *settings, size_t n)
{
        struct scenario_errors *errors = calloc(1, sizeof *errors);
        struct scenario *s = calloc(1, sizeof *s);

        assert_true(errors && s);
        if (scenario_load(s, sections, settings, n, errors) < 0)
                fail_msg("%s", errors->n > 0 ? errors->text[0] : "cannot load the scenario");
        free(errors);
        for (size_t i = 0; i < s->n_nodes; i++) {
                if (!s->nodes[i].address[0])
                        set_address(&s->nodes[i]);
        }
        return s;
}

/* The records of runs, which a DFM holds locked. */
static void remove_state(void)
{
        DIR *d = opendir(state);
        char path[PATH_MAX];

        for (struct dirent *e; d && (e = readdir(d));) {
                snprintf(path, sizeof path, "%s/%s", state, e->d_name);
                (void)unlink(path);
        }
        if (d)
                closedir(d);
}

static void remove_folder(void)
{
        remove_state();
        (void)rmdir(state);
}

static void unlock_state(void)
{
        char link[64], path[PATH_MAX];

        for (int fd = 3; fd < COUNTED_FDS; fd++) {
                ssize_t n;

                snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
                n = readlink(link, path, sizeof path - 1);
                if (n > 0 && strncmp(path, state, strlen(state)) == 0)
                        close(fd);
        }
}

/* Ends what still runs, by a signal and a second one: the search for leaks reads what a process leaves. */
static void stop_all(void)
{
        each_ms = NULL;
        look_at_event = NULL;
        failing = dying = NULL;
        sockets_mend();
        for (int k = 0; k < 2; k++) {
                for (size_t i = 0; i < n_processes; i++) {
                        if (processes[i]->ended)
                                continue;
                        turns_freeze(processes[i]->turn, false);
                        streams_signal(processes[i]->turn, SIGTERM);
                }
                bed_pass(1100 * NS_PER_MS);
        }
}

/* Threads of killed processes stay in their wait, with all that they had. */
static void end_all(void)
{
        if (n_processes > 0)
                stop_all();
        for (size_t i = 0; i < n_processes; i++) {
                struct process *p = processes[i];

                if (!p->ended)
                        turns_kill(p->turn);
                fclose(p->log_to);
                fclose(p->json);
                free(p->log);
                free(p->report);
                if (p->stats)
                        memory_unmap(p->stats, sizeof *p->stats);
                for (int k = 0; k < p->n_arguments; k++)
                        free(p->arguments[k]);
                if (p->ended) {
                        free(p->scenario);
                        free(p);
                }
        }
        n_processes = 0;
        bed_control_ends();
        free(scenario);
        scenario = NULL;
        unlock_state();
        remove_state();
}

/* Only one thread runs at a time, and to wake one on another processor takes longer than most turns. */
static void stay_on_one_processor(void)
{
        cpu_set_t set;

        CPU_ZERO(&set);
        CPU_SET((size_t)sched_getcpu(), &set);
        sched_setaffinity(0, sizeof set, &set);
}

void bed_begin(uint64_t seed, const char *const *settings)
{
        static bool has_begun;
        const char *all[SETTINGS_MAX];

        if (!has_begun) {
                assert_non_null(mkdtemp(state));
                atexit(remove_folder);
                setenv("STATE_DIRECTORY", state, 1);
                stay_on_one_processor();
        }
        has_begun = true;
        end_all();
        turns_restart(seed);
        n_settings = 0;
        for (; *settings; settings++)
                settings_now[n_settings++] = *settings;
        write_sections();
        scenario = load(all, join_settings(all, NULL));
        memset(written, 0, sizeof written);
        n_events = n_events_again = 0;
}

/* ---- Processes ---- */

static void *run_process(void *ctx)
{
        struct process *p = self = ctx;
        const struct scenario_node *node = p->command ? NULL : scenario_find(p->scenario, p->name);
        const struct node_options options = {
                .scenario = p->scenario, .source = &p->source, .name = p->name, .json = p->json};

        turns_begin(p->turn, node ? node->role : (enum node_role)0);
        optind = 0;
        p->status = p->command ? p->command(p->n_arguments, p->arguments) : node_run(&options);
        fflush(p->json);
        p->ended = true;
        sockets_close_of(p->turn);
        turns_end();
        return NULL;
}

static struct process *find(const char *name)
{
        for (size_t i = n_processes; i > 0; i--) {
                if (strcmp(processes[i - 1]->name, name) == 0)
                        return processes[i - 1];
        }
        return NULL;
}

static struct process *get(const char *name)
{
        struct process *p = find(name);

        if (!p)
                fail_msg("no process has the name %s", name);
        return p;
}

static struct process *add(const char *name)
{
        struct process *p = calloc(1, sizeof *p);

        assert_true(p && n_processes < PROCESSES_MAX);
        snprintf(p->name, sizeof p->name, "%s", name);
        p->turn = turns_add();
        p->json = open_memstream(&p->report, &p->report_bytes);
        p->log_to = open_memstream(&p->log, &p->log_bytes);
        assert_true(p->json && p->log_to);
        processes[n_processes++] = p;
        return p;
}

static void begin_thread(struct process *p)
{
        pthread_attr_t attributes;
        pthread_t thread;

        pthread_attr_init(&attributes);
        pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
        pthread_attr_setstacksize(&attributes, STACK_BYTES);
        assert_int_equal(pthread_create(&thread, &attributes, run_process, p), 0);
        pthread_attr_destroy(&attributes);
}

void bed_start_with(const char *node, const char *const *settings)
{
        struct process *p = add(node);
        size_t n = join_settings(p->settings, settings);

        p->scenario = load(p->settings, n);
        p->source = (struct node_source){
                .scenario = p->scenario, .config = sections, .settings = p->settings, .n_settings = n};
        begin_thread(p);
}

void bed_start(const char *node)
{
        bed_start_with(node, NULL);
}

void bed_start_all(void)
{
        for (size_t i = 0; i < scenario->n_nodes; i++)
                bed_start(scenario->nodes[i].name);
}

void bed_start_command(const char *name, bed_command command, const char *const *arguments)
{
        struct process *p = add(name);

        p->command = command;
        p->arguments[p->n_arguments++] = strdup("evb");
        for (; *arguments; arguments++)
                p->arguments[p->n_arguments++] = strdup(*arguments);
        p->arguments[p->n_arguments++] = strdup("--json");
        begin_thread(p);
}

void bed_kill(const char *name)
{
        struct process *p = get(name);

        turns_kill(p->turn);
        if (strcmp(name, "dfm") == 0) {
                unlock_state();
                bed_control_ends();
        }
}

void bed_die_at(const char *name, const char *text)
{
        dying = name;
        last_words = text;
}

void bed_freeze(const char *name, bool frozen)
{
        turns_freeze(get(name)->turn, frozen);
}

void bed_signal(const char *name, int number)
{
        streams_signal(get(name)->turn, number);
}

void bed_reload(const char *node, const char *const *settings)
{
        struct process *p = get(node);

        p->source.n_settings = join_settings(p->settings, settings);
        bed_signal(node, SIGHUP);
        bed_pass(10 * NS_PER_MS);
}

void bed_fail_output(const char *sfi)
{
        failing = sfi;
}

void bed_cut(const char *from, const char *to)
{
        sockets_cut(bed_address(from, 0).sin_addr.s_addr, get(to)->turn, false, 0, 0);
}

void bed_cut_groups(const char *to)
{
        sockets_cut(0, get(to)->turn, true, 0, 0);
}

void bed_cut_packets_above(const char *to, uint32_t mtu_bytes)
{
        sockets_cut(0, get(to)->turn, false, mtu_bytes - 20 - 8 + 1, 0);
}

void bed_cut_data_above(const char *to, uint32_t mtu_bytes)
{
        sockets_cut(0, get(to)->turn, false, mtu_bytes - 20 - 8 + 1, scenario_data_port(scenario));
}

/* ---- Time ---- */

void bed_each_ms(void (*turn)(void *ctx), void *ctx)
{
        each_ms = turn;
        each_ms_ctx = ctx;
}

void bed_pass(uint64_t ns)
{
        for (uint64_t until_ns = turns_now_ns() + ns; turns_now_ns() < until_ns;) {
                if (each_ms)
                        each_ms(each_ms_ctx);
                turns_pass(MIN(until_ns - turns_now_ns(), each_ms ? NS_PER_MS : until_ns));
        }
}

static void print_logs(void)
{
        for (size_t i = 0; i < n_processes; i++) {
                struct process *p = processes[i];

                fflush(p->log_to);
                print_error("%s%s:\n%s", p->name, p->ended ? "" : " (not ended)", p->log);
        }
}

void bed_check_limit(uint64_t from_ns, const char *what)
{
        if (turns_now_ns() - from_ns < LIMIT_NS)
                return;
        print_logs();
        fail_msg("%s: did not happen in %llu s", what, (unsigned long long)(LIMIT_NS / NS_PER_S));
}

bool bed_has_ended(const char *name)
{
        return get(name)->ended;
}

int bed_status(const char *name)
{
        const struct process *p = get(name);

        bed_until(p->ended);
        return p->status;
}

void bed_ends(const char *name, int status)
{
        int is = bed_status(name);

        if (is == status)
                return;
        print_logs();
        fail_msg("%s: exit status %d, not %d", name, is, status);
}

void bed_all_end(int status)
{
        for (size_t i = 0; i < scenario->n_nodes; i++)
                bed_ends(scenario->nodes[i].name, status);
}

/* ---- What happened ---- */

const struct node_stats *bed_stats(const char *node)
{
        static const struct node_stats none;
        const struct process *p = get(node);

        return p->stats ?: &none;
}

const struct scenario *bed_scenario(void)
{
        return scenario;
}

const char *bed_self(void)
{
        return self->name;
}

const char *bed_name(enum node_role role, size_t index)
{
        for (size_t i = 0; i < scenario->n_nodes; i++) {
                if (scenario->nodes[i].role == role && index-- == 0)
                        return scenario->nodes[i].name;
        }
        return NULL;
}

json_t *bed_report_of_run(const char *name, size_t index)
{
        struct process *p = get(name);
        json_error_t e = {};
        json_t *o = NULL;

        fflush(p->json);
        for (size_t at = 0; at < p->report_bytes; at += (size_t)e.position) {
                o = json_loadb(p->report + at, p->report_bytes - at, JSON_DISABLE_EOF_CHECK, &e);
                if (!o || index-- == 0)
                        return o;
                json_decref(o);
        }
        return NULL;
}

json_t *bed_report(const char *name)
{
        json_t *o = bed_has_ended(name) ? bed_report_of_run(name, 0) : NULL;

        if (!o)
                fail_msg("%s: no report", name);
        return o;
}

uint64_t bed_reported(const char *name, const char *field)
{
        json_t *o = bed_report(name), *at = o;
        char names[64], *rest = names;
        uint64_t value;

        snprintf(names, sizeof names, "%s", field);
        for (char *n; (n = strsep(&rest, "."));)
                at = json_object_get(at, n);
        if (!at)
                fail_msg("the report of %s has no %s", name, field);
        value = (uint64_t)json_integer_value(at);
        json_decref(o);
        return value;
}

bool bed_has_reason(const char *node, const char *text)
{
        json_t *o = bed_report(node), *reason;
        bool has = false;
        size_t i;

        json_array_foreach(json_object_get(o, "reasons"), i, reason) has |=
                strstr(json_string_value(reason), text) != NULL;
        json_decref(o);
        return has;
}

unsigned bed_times_logged(const char *name, const char *text)
{
        unsigned n = 0;

        for (size_t i = 0; i < n_processes; i++) {
                struct process *p = processes[i];

                if (strcmp(p->name, name) != 0)
                        continue;
                fflush(p->log_to);
                for (const char *at = p->log; (at = strstr(at, text)); at++)
                        n++;
        }
        return n;
}

bool bed_logged(const char *name, const char *text)
{
        return bed_times_logged(name, text) > 0;
}

unsigned bed_written(uint64_t event)
{
        return event < EVENTS_MAX ? written[event] : 0;
}

uint64_t bed_events(void)
{
        return n_events;
}

uint64_t bed_events_again(void)
{
        return n_events_again;
}

void bed_each_event(void (*look)(void *ctx, const struct sfi_built *built, const uint8_t *buffer), void *ctx)
{
        look_at_event = look;
        look_ctx = ctx;
}

const struct event_info *bed_event(uint64_t event)
{
        assert_true(bed_written(event) > 0);
        return &infos[event];
}

void bed_check_written_once(uint64_t n)
{
        for (uint64_t e = 0; e < EVENTS_MAX; e++) {
                if (written[e] != (e < n))
                        fail_msg("event %llu was written %u times", (unsigned long long)e, written[e]);
        }
}

#define check(condition)                                                                                     \
        do {                                                                                                 \
                if (!(condition)) {                                                                          \
                        print_logs();                                                                        \
                        fail_msg("%s", #condition);                                                          \
                }                                                                                            \
        } while (0)

void bed_check_accounts(void)
{
        uint64_t triggers = count_of("dfm", triggers), complete = count_of("dfm", events_complete),
                 partial = count_of("dfm", events_partial), lost = count_of("dfm", events_lost),
                 rejected = count_of("dfm", events_rejected);
        uint64_t expected = count_of("dfm", fragments_expected);

        check(triggers == complete + partial + lost + rejected);
        check(expected == (triggers - rejected) * scenario->ros.count);
        check(expected == count_of("dfm", fragments_received) + count_of("dfm", fragments_lost) +
                                  count_of("dfm", fragments_optional));
}

void bed_check_complete(void)
{
        bed_check_accounts();
        check(count_of("dfm", triggers) == count_of("dfm", events_complete) && count_of("dfm", triggers) > 0);
        check(count_sum(ROLE_SFI, fragments_corrupt) == 0);
}

int bed_open_socket(uint16_t port)
{
        const struct sockaddr_in a = {AF_INET, htons(port), {htonl(0x7f000101)}, {}};
        int fd = socket(AF_INET, SOCK_DGRAM, 0), bytes = 1 << 20;

        assert_int_equal(bind(fd, (const struct sockaddr *)&a, sizeof a), 0);
        assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &bytes, sizeof bytes), 0);
        return fd;
}

ssize_t bed_receive(int fd, void *to, size_t n)
{
        struct sockaddr_in from;
        struct iovec v = {to, n};
        struct mmsghdr m = {
                .msg_hdr = {.msg_name = &from, .msg_namelen = sizeof from, .msg_iov = &v, .msg_iovlen = 1}};

        return recvmmsg(fd, &m, 1, 0, NULL) == 1 ? (ssize_t)m.msg_len : -1;
}

struct sockaddr_in bed_address(const char *node, uint16_t port)
{
        struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(port)};
        const struct scenario_node *n = scenario_find(scenario, node);

        assert_non_null(n);
        assert_int_equal(inet_pton(AF_INET, n->address, &a.sin_addr), 1);
        return a;
}

const char *bed_address_text(const char *node, uint16_t port)
{
        static char text[64];
        struct sockaddr_in a = bed_address(node, port);

        snprintf(text, sizeof text, "127.0.0.%u:%u", ntohl(a.sin_addr.s_addr) & 255, port);
        return text;
}

void bed_send_datagram(const char *node, uint16_t port, const void *bytes, size_t n)
{
        const struct sockaddr_in from = {AF_INET, htons(40000), {htonl(0x7f000101)}, {}},
                                 to = bed_address(node, port);

        sockets_inject(&from, &to, bytes, (uint32_t)n);
}
