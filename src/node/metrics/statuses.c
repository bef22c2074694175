/* Finds out where the nodes of a scenario serve their states, requests the states, and judges the answers. */
#include "node/metrics/statuses.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/strbuf.h"
#include "base/util.h"
#include "conf/digest.h"
#include "conf/keys.h"
#include "net/http_get.h"
#include "node/progress/reason_text.h"

static int find_places(struct statuses *s, struct error *e)
{
        const struct scenario *c = s->scenario;

        if (c->metrics.kind == METRICS_NONE)
                return error_set(e, -EINVAL,
                                 "metrics.listen: the nodes serve no status; expected :PORT, HOST:PORT or "
                                 "unix:PATH");
        for (size_t i = 0; i < s->n; i++) {
                s->nodes[i].node = &c->nodes[i];
                if (!scenario_metrics_reach(c, &c->nodes[i], s->nodes[i].place))
                        return error_set(e, -EINVAL,
                                         "metrics.listen: the address of node %s is not known, because evb "
                                         "run chooses it; expected HOST:PORT or unix:PATH",
                                         c->nodes[i].name);
        }
        return 0;
}

int statuses_init(struct statuses *s, const struct scenario *scenario, struct error *e)
{
        int r;

        *s = (struct statuses){.scenario = scenario, .n = scenario->n_nodes};
        s->nodes = calloc(s->n, sizeof *s->nodes);
        if (!s->nodes)
                return error_set(e, -ENOMEM, "status: %m");
        r = find_places(s, e);
        if (r < 0) {
                error_locate(e, "%s", scenario->path);
                statuses_fini(s);
        }
        return r;
}

void statuses_fini(struct statuses *s)
{
        for (size_t i = 0; s && s->nodes && i < s->n; i++)
                json_decref(s->nodes[i].status);
        if (s) {
                free(s->nodes);
                *s = (struct statuses){};
        }
}

static const char *text_of(const json_t *status, const char *name)
{
        return json_string_value(json_object_get(status, name)) ?: "?";
}

/* Returns the DFM's entry for a node; NULL: none. */
static const json_t *find_peer(const json_t *dfm, const struct scenario_node *n)
{
        const json_t *peers = json_object_get(dfm, "peers");

        for (size_t i = 0; i < json_array_size(peers); i++) {
                const json_t *peer = json_array_get(peers, i);

                if (strcmp(text_of(peer, "node"), n->name) == 0)
                        return peer;
        }
        return NULL;
}

const struct node_status *statuses_find_dfm(const struct statuses *s)
{
        for (size_t i = 0; i < s->n; i++) {
                if (s->nodes[i].node->role == ROLE_DFM)
                        return &s->nodes[i];
        }
        return NULL;
}

static const json_t *dfm_status(const struct statuses *s)
{
        const struct node_status *dfm = statuses_find_dfm(s);

        return dfm ? dfm->status : NULL;
}

#define DIFFERS "its scenario differs from that of the DFM"
#define DFM_DIFFERS "its scenario differs from that of all other nodes"
#define NOTHING_RECEIVED "it receives nothing from the DFM"

static bool control_is(const struct node_status *n, const char *state)
{
        return n->node->role == ROLE_DFM && strcmp(text_of(n->status, "control_state"), state) == 0;
}

/* A node may not have exchanged messages before this time after its start. */
#define SETTLED_S 5.0

/* True if the age of the node is unknown. A clock that was set back after the start says nothing about it. */
static bool is_older(const json_t *status, double s)
{
        const json_t *now = json_object_get(status, "time"), *start = json_object_get(status, "start_time");
        double age_s = json_number_value(now) - json_number_value(start);

        return !json_is_number(now) || !json_is_number(start) || !(age_s >= 0 && age_s < s);
}

static bool is_settled(const json_t *status)
{
        return is_older(status, SETTLED_S);
}

static bool is_in(const json_t *status, const char *state)
{
        return strcmp(text_of(status, "state"), state) == 0;
}

static bool is_refused_by_dfm(const char *reason)
{
        return reason && strncmp(reason, "refused by", strlen("refused by")) == 0;
}

/* A node that is still writing its last file between two runs has not joined the next run, but it is not cut
 * off. A node may be refused for a moment, such as while its predecessor counts as present; but one with
 * another scenario is refused until that changes. */
static bool is_cut_off(const json_t *dfm, const struct node_status *n)
{
        const char *reason = json_string_value(json_object_get(n->status, "reason"));
        bool waits = is_in(dfm, "ready") && is_in(n->status, "ready"), runs = is_in(dfm, "running") || waits;

        if (runs && is_refused_by_dfm(reason) && strstr(reason, "its scenario differs"))
                return true;
        return runs && is_settled(dfm) && is_settled(n->status) &&
               json_is_false(json_object_get(find_peer(dfm, n->node), "live"));
}

bool node_receives_nothing(const struct statuses *s, const struct node_status *n)
{
        const char *reason = json_string_value(json_object_get(n->status, "reason")) ?: "";
        char silent[SCENARIO_TEXT_MAX];

        snprintf(silent, sizeof silent, "%s silent", scenario_node_of(s->scenario, ROLE_DFM, 0)->name);
        return strncmp(reason, silent, strlen(silent)) == 0;
}

bool node_receives_no_fragment(const struct node_status *n)
{
        const json_t *lost = json_object_get(json_object_get(n->status, "losses"), "events_lost"),
                     *rate = json_object_get(json_object_get(n->status, "rates"), "fragments_hz");

        return n->node->role == ROLE_SFI && json_number_value(lost) > 0 && json_is_number(rate) &&
               !(json_number_value(rate) > 0);
}

bool node_is_starved(const struct node_status *n)
{
        const json_t *losses = json_object_get(n->status, "losses");
        double starved = json_number_value(json_object_get(losses, "events_starved")),
               lost = json_number_value(json_object_get(losses, "events_lost")),
               partial = json_number_value(json_object_get(losses, "events_partial"));

        return n->node->role == ROLE_SFI && starved > 0 && 2 * starved >= lost + partial;
}

static void __attribute__((format(printf, 2, 3))) set_cause(struct node_status *n, const char *format, ...)
{
        va_list args;

        va_start(args, format);
        vsnprintf(n->cause, sizeof n->cause, format, args);
        va_end(args);
        text_make_printable(n->cause);
}

/* Returns the length of a reason without the time at its end, which obstacle_format() adds. */
static int length_without_time(const char *reason)
{
        const char *found = NULL, *at = reason;

        while ((at = strstr(at, " for "))) {
                at += strlen(" for ");
                if (*at >= '0' && *at <= '9')
                        found = at - strlen(" for ");
        }
        return found ? (int)(found - reason) : (int)strlen(reason);
}

static bool is_node_name(const struct scenario *s, const char *word, size_t length)
{
        for (size_t i = 0; i < s->n_nodes; i++) {
                if (strlen(s->nodes[i].name) == length && strncmp(s->nodes[i].name, word, length) == 0)
                        return true;
        }
        return false;
}

/* Sets the cause to a text of the node, without what may change while the fault lasts: the time at its end,
 * how many more nodes there are, and other numbers, which become N. Names and paths keep their digits. */
static void set_steady_cause(const struct scenario *s, struct node_status *n, const char *before,
                             const char *text)
{
        char steady[NODE_STATUS_CAUSE_MAX], *more;
        struct strbuf b = strbuf_init(steady, sizeof steady);
        size_t length = (size_t)length_without_time(text), begin = 0;

        while (begin < length && !b.cut) {
                size_t word = MIN(strcspn(text + begin, " ,;:()"), length - begin),
                       digits = MIN(strspn(text + begin, "0123456789."), word);

                if (text[begin] == '.' || is_node_name(s, text + begin, word))
                        digits = 0;
                strbuf_add(&b, "%s%.*s", digits > 0 ? "N" : "",
                           (int)MIN(word + 1, length - begin) - (int)digits, text + begin + digits);
                begin += word + 1;
        }
        more = strstr(steady, " and N more");
        if (more)
                memmove(more, more + strlen(" and N more"), strlen(more + strlen(" and N more")) + 1);
        set_cause(n, "%s%s%s", before, before[0] && text[0] ? ": " : "", steady);
}

/* False: the node has lost nothing recently. */
static bool judge_losses(const struct scenario *s, struct node_status *n)
{
        struct strbuf b = strbuf_init(n->problem, sizeof n->problem);

        if (node_receives_no_fragment(n))
                set_cause(n, "no fragment arrives at its port %u", scenario_data_port(s));
        else if (node_is_starved(n))
                set_cause(n, "its events find no memory (sfi.buffer-size)");
        if (n->cause[0])
                strbuf_add(&b, "%s; ", n->cause);
        if (!losses_describe(s, n, n->problem + b.length, sizeof n->problem - b.length)) {
                n->problem[0] = n->cause[0] = '\0';
                return false;
        }
        if (!n->cause[0])
                set_cause(n, "events are lost or partial");
        return true;
}

/* False: the ROS reports no problem with its front-end. */
static bool judge_front_end(const struct scenario *s, struct node_status *n)
{
        static const struct {
                const char *flag;
                enum node_reason reason;
        } problems[] = {{"front_end_missing", REASON_NO_FRONT_END},
                        {"front_end_silent", REASON_SILENT},
                        {"front_end_out_of_step", REASON_OUT_OF_STEP}};

        for (size_t i = 0; i < ARRAY_SIZE(problems); i++) {
                if (!json_is_true(json_object_get(n->status, problems[i].flag)))
                        continue;
                (void)reason_text(s, problems[i].reason, 0, n->problem, sizeof n->problem);
                set_cause(n, "%.300s", n->problem);
                return true;
        }
        return false;
}

static void judge(const struct statuses *all, struct node_status *n)
{
        const struct scenario *s = all->scenario;
        const json_t *stalled = json_object_get(n->status, "stalled_seconds");
        const char *reason = json_string_value(json_object_get(n->status, "reason")),
                   *error = json_string_value(json_object_get(n->status, "control_error"));
        json_int_t unreached = json_integer_value(json_object_get(n->status, "mtu_failed_paths"));

        n->condition = CONDITION_FINE;
        n->is_losing = false;
        n->cause[0] = '\0';
        if (control_is(n, "error")) {
                n->condition = CONDITION_ERROR;
                snprintf(n->problem, sizeof n->problem, "the last run ended in an error%s%.300s",
                         error ? ": " : "", error ?: "");
                set_steady_cause(s, n, "the last run ended in an error", error ?: "");
        } else if (dfm_status(all) && node_receives_nothing(all, n)) {
                n->condition = CONDITION_CUT_OFF;
                snprintf(n->problem, sizeof n->problem, NOTHING_RECEIVED ": %.300s", reason);
                set_cause(n, NOTHING_RECEIVED);
        } else if (json_is_number(stalled)) {
                n->condition = CONDITION_STALLED;
                snprintf(n->problem, sizeof n->problem, "stalled for %.0f s%s%.300s",
                         fmin(json_number_value(stalled), 1e12), reason ? ": " : "", reason ?: "");
                set_steady_cause(s, n, "stalled", reason ?: "");
        } else if (is_cut_off(dfm_status(all), n)) {
                n->condition = CONDITION_CUT_OFF;
                snprintf(n->problem, sizeof n->problem, "%.300s",
                         is_refused_by_dfm(reason) ? reason : NODE_UNHEARD);
                set_steady_cause(s, n, "", n->problem);
        } else if (unreached > 0) {
                n->condition = CONDITION_CUT_OFF;
                snprintf(n->problem, sizeof n->problem,
                         "its longest packets (network.mtu) do not reach %lld node%s, but short ones do",
                         (long long)unreached, unreached == 1 ? "" : "s");
                set_cause(n, "its longest packets (network.mtu) do not reach other nodes");
        } else if (n->node->required && judge_front_end(s, n)) {
                n->condition = CONDITION_NO_FRAMES;
        } else if (judge_losses(s, n)) {
                n->condition = CONDITION_LOSING;
                n->is_losing = true;
        }
        /* A pause by an operator comes first; a problem is still reported. */
        if (control_is(n, "paused"))
                n->condition = CONDITION_PAUSED;
        text_make_printable(n->problem);
}

/* Refuses an answer that is not a state of this node. */
static bool is_refused(struct node_status *n, const struct http_get *g)
{
        const char *name = text_of(n->status, "node");

        if (g->error < 0)
                snprintf(n->problem, sizeof n->problem, "no answer from %s: %s", n->place,
                         strerror(-g->error));
        else if (!json_is_string(json_object_get(n->status, "state")))
                snprintf(n->problem, sizeof n->problem, "%s is not a node of evb", n->place);
        else if (strcmp(name, n->node->name) != 0)
                snprintf(n->problem, sizeof n->problem, "%s is node %.60s", n->place, name);
        return n->problem[0];
}

/* The node read its clock between the request and now. */
static void compare_clock(struct node_status *n, uint64_t asked_ns)
{
        const json_t *time = json_object_get(n->status, "time");
        double theirs = json_number_value(time), to = (double)clock_utc_ns() / NS_PER_S,
               from = to - (double)(clock_now_ns() - asked_ns) / NS_PER_S;

        n->clock_ahead_s = 0;
        if (json_is_number(time) && isfinite(theirs))
                n->clock_ahead_s = theirs > to ? theirs - to : theirs < from ? theirs - from : 0;
}

/* Takes ownership of the body. The caller judges the answer. */
static void receive_answer(struct node_status *n, uint64_t asked_ns, struct http_get *g)
{
        json_decref(take_ptr(n->status));
        n->problem[0] = '\0';
        n->answered_ns = n->asked_ns = 0;
        if (g->error == 0 && g->status == 200)
                n->status = json_loads(g->body, 0, NULL);
        free(take_ptr(g->body));
        if (is_refused(n, g)) {
                json_decref(take_ptr(n->status));
                n->condition = CONDITION_SILENT;
                n->is_losing = false;
                set_cause(n, "%.300s", g->error < 0 ? "no answer" : n->problem);
                text_make_printable(n->problem);
        } else {
                n->answered_ns = clock_now_ns();
                compare_clock(n, asked_ns);
        }
}

/* Time limit for connecting, because a host that is down does not answer at all. Twice the round-trip time of
 * the longest path is shorter than this. */
#define CONNECT_NS (NS_PER_S / 2)

int statuses_ask(struct statuses *s, uint64_t timeout_ns)
{
        _cleanup_free_ struct http_get *gets = calloc(s->n, sizeof *gets);
        uint64_t asked_ns = clock_now_ns();

        if (!gets)
                return -ENOMEM;
        for (size_t i = 0; i < s->n; i++)
                gets[i] = (struct http_get){
                        .place = s->nodes[i].place, .path = "/status", .connect_ns = CONNECT_NS};
        http_get_all(gets, s->n, timeout_ns);
        for (size_t i = 0; i < s->n; i++)
                receive_answer(&s->nodes[i], asked_ns, &gets[i]);
        for (size_t i = 0; i < s->n; i++) {
                if (s->nodes[i].status)
                        judge(s, &s->nodes[i]);
        }
        return 0;
}

/* Maximum number of concurrent connections; a process may have 1024 descriptors. */
#define CONNECTIONS_MAX 256

/* A request to one node. */
struct asker {
        struct statuses_watch *watch;
        struct node_status *node;
        struct http_get get;
        struct loop_io io; /* fd -1: no request is under way */
        bool waits;        /* waits until another connection ends */
};

struct statuses_watch {
        const struct statuses *statuses;
        struct loop *loop;
        uint64_t timeout_ns;
        size_t n, n_open, n_waiting;
        struct asker *askers;
};

static void start_waiting(struct statuses_watch *w);

static void finish(struct asker *a)
{
        if (a->io.fd >= 0) {
                loop_remove(a->watch->loop, &a->io);
                a->io.fd = -1;
                a->watch->n_open--;
        }
        receive_answer(a->node, a->node->asked_ns, &a->get);
        if (a->node->status)
                judge(a->watch->statuses, a->node);
}

static void continue_asking(void *ctx, uint32_t events)
{
        struct asker *a = ctx;

        (void)events;
        http_get_continue(&a->get);
        if (a->get.fd < 0 || loop_modify(a->watch->loop, &a->io, http_get_events(&a->get)) < 0) {
                http_get_stop(&a->get, -EIO);
                finish(a);
                start_waiting(a->watch);
        }
}

static void start(struct asker *a)
{
        a->node->asked_ns = clock_now_ns();
        a->get = (struct http_get){.place = a->node->place, .path = "/status"};
        http_get_start(&a->get);
        a->io = (struct loop_io){
                .fd = a->get.fd, .events = http_get_events(&a->get), .ready = continue_asking, .ctx = a};
        if (a->io.fd < 0) {
                finish(a);
                return;
        }
        a->watch->n_open++;
        if (loop_add(a->watch->loop, &a->io) < 0) {
                http_get_stop(&a->get, -EIO);
                finish(a);
        }
}

static void start_waiting(struct statuses_watch *w)
{
        for (size_t i = 0; i < w->n && w->n_waiting > 0 && w->n_open < CONNECTIONS_MAX; i++) {
                if (!w->askers[i].waits)
                        continue;
                w->askers[i].waits = false;
                w->n_waiting--;
                start(&w->askers[i]);
        }
}

int statuses_watch_new(struct statuses_watch **ret, struct statuses *s, struct loop *loop,
                       uint64_t timeout_ns)
{
        struct statuses_watch *w = calloc(1, sizeof *w);

        if (w)
                w->askers = calloc(s->n, sizeof *w->askers);
        if (!w || !w->askers) {
                free(w);
                return -ENOMEM;
        }
        w->loop = loop;
        w->statuses = s;
        w->timeout_ns = timeout_ns;
        w->n = s->n;
        for (size_t i = 0; i < s->n; i++)
                w->askers[i] = (struct asker){.watch = w, .node = &s->nodes[i], .io.fd = -1};
        *ret = w;
        return 0;
}

struct statuses_watch *statuses_watch_free(struct statuses_watch *w)
{
        for (size_t i = 0; w && i < w->n; i++) {
                struct asker *a = &w->askers[i];

                if (a->io.fd < 0)
                        continue;
                loop_remove(w->loop, &a->io);
                http_get_stop(&a->get, -ECANCELED);
                a->node->asked_ns = 0;
        }
        if (w)
                free(w->askers);
        free(w);
        return NULL;
}

void statuses_watch_ask(struct statuses_watch *w, uint64_t now_ns)
{
        for (size_t i = 0; i < w->n; i++) {
                struct asker *a = &w->askers[i];

                if (a->node->asked_ns > 0)
                        continue;
                a->node->asked_ns = now_ns;
                a->waits = true;
                w->n_waiting++;
        }
        start_waiting(w);
}

size_t statuses_watch_pending(const struct statuses_watch *w, uint64_t since_ns)
{
        size_t n = w->n_waiting;

        for (size_t i = 0; i < w->n; i++)
                n += w->askers[i].io.fd >= 0 && w->askers[i].node->asked_ns >= since_ns;
        return n;
}

uint64_t statuses_watch_deadline_ns(const struct statuses_watch *w)
{
        uint64_t deadline_ns = NEVER_NS;

        for (size_t i = 0; i < w->n; i++) {
                if (w->askers[i].io.fd >= 0)
                        deadline_ns = MIN(deadline_ns, w->askers[i].node->asked_ns + w->timeout_ns);
        }
        return deadline_ns;
}

void statuses_watch_expire(struct statuses_watch *w, uint64_t now_ns)
{
        for (size_t i = 0; i < w->n; i++) {
                struct asker *a = &w->askers[i];

                if (a->io.fd < 0 || now_ns < a->node->asked_ns + w->timeout_ns)
                        continue;
                loop_remove(w->loop, &a->io);
                http_get_stop(&a->get, -ETIMEDOUT);
                finish(a);
        }
        start_waiting(w);
}

const char *node_status_word(const struct node_status *n)
{
        static const char *const words[] = {
                [CONDITION_PAUSED] = "paused",       [CONDITION_LOSING] = "losing",
                [CONDITION_STALLED] = "stalled",     [CONDITION_ERROR] = "error",
                [CONDITION_SILENT] = "no answer",    [CONDITION_CUT_OFF] = "cut off",
                [CONDITION_NO_FRAMES] = "no frames",
        };

        return n->condition == CONDITION_FINE ? text_of(n->status, "state") : words[n->condition];
}

const json_t *statuses_find_peer(const struct statuses *s, const struct scenario_node *n)
{
        return find_peer(dfm_status(s), n);
}

/* A node may send any number. */
static uint64_t bytes_of(const json_t *status, const char *name)
{
        double value = json_number_value(json_object_get(status, name));

        return value > 0 && value < 0x1p63 ? (uint64_t)value : 0;
}

bool node_status_disk(const struct node_status *n, char text[static DISK_TEXT_MAX], bool *ret_low)
{
        const struct disk_space s = {
                .known = json_is_number(json_object_get(n->status, "output_free_bytes")),
                .free_bytes = bytes_of(n->status, "output_free_bytes"),
                .size_bytes = bytes_of(n->status, "output_size_bytes"),
        };
        uint64_t left_s = bytes_of(n->status, "output_left_seconds");

        *ret_low = disk_space_is_low(&s, left_s);
        disk_space_format(&s, left_s, text);
        return s.known;
}

uint32_t node_digests_differ(const json_t *a, const json_t *b)
{
        size_t n = json_array_size(a);

        if (!json_is_array(a) || !json_is_array(b))
                return UINT32_MAX;
        /* The first item is the digest of the keys' names. */
        if (json_array_size(b) != n || !json_equal(json_array_get(a, 0), json_array_get(b, 0)))
                return WELCOME_KEY_TABLE;
        for (size_t i = 1; i < n; i++) {
                if (!json_equal(json_array_get(a, i), json_array_get(b, i)))
                        return (uint32_t)i - 1;
        }
        return UINT32_MAX;
}

/* NULL: unknown, or those of another version. */
static const json_t *settings_of(const json_t *status)
{
        const json_t *settings = json_object_get(status, "settings");

        return json_array_size(settings) == n_scenario_keys ? settings : NULL;
}

/* Whether the other nodes, at least two, agree on a value of scenario_keys[key] that is not the DFM's. */
static bool dfm_alone_differs(const struct statuses *s, size_t key)
{
        const json_t *dfm = json_array_get(settings_of(dfm_status(s)), key), *common = NULL;
        size_t n = 0;

        for (size_t i = 0; i < s->n; i++) {
                const json_t *value = json_array_get(settings_of(s->nodes[i].status), key);

                if (!value || s->nodes[i].node->role == ROLE_DFM)
                        continue;
                if (json_equal(value, dfm) || (common && !json_equal(value, common)))
                        return false;
                common = value;
                n++;
        }
        return n >= 2;
}

/* Returns the first key that need not agree, and in which a difference is the node's fault; NULL: none. */
static const struct scenario_key *find_other_setting(const struct statuses *s, const struct node_status *n)
{
        const json_t *own = settings_of(n->status), *dfm = settings_of(dfm_status(s));
        bool is_dfm = n->node->role == ROLE_DFM;

        for (size_t i = 0; own && dfm && i < n_scenario_keys; i++) {
                if (is_dfm || !json_equal(json_array_get(own, i), json_array_get(dfm, i))) {
                        if (dfm_alone_differs(s, i) == is_dfm)
                                return &scenario_keys[i];
                }
        }
        return NULL;
}

#define CLOCK_LIMIT_S 1.0

bool node_status_clock(const struct node_status *n, char text[static NODE_STATUS_PROBLEM_MAX])
{
        snprintf(text, NODE_STATUS_PROBLEM_MAX, "its clock is %.1f s %s this machine's",
                 fmin(fabs(n->clock_ahead_s), 1e12), n->clock_ahead_s > 0 ? "ahead of" : "behind");
        return fabs(n->clock_ahead_s) > CLOCK_LIMIT_S;
}

/* Describes how a working node differs from the DFM or from this machine. */
static bool warn_of_difference(const struct statuses *s, const struct node_status *n,
                               struct node_warning *ret)
{
        const char *version = json_string_value(json_object_get(n->status, "version"));
        uint32_t key = node_digests_differ(json_object_get(n->status, "digest"),
                                           json_object_get(dfm_status(s), "digest"));
        const struct scenario_key *other = find_other_setting(s, n);

        snprintf(ret->word, sizeof ret->word, "differs");
        if (version && strcmp(version, EVB_VERSION) != 0)
                snprintf(ret->why, sizeof ret->why, "it runs evb %.40s, and this is evb %s", version,
                         EVB_VERSION);
        else if (key != UINT32_MAX)
                snprintf(ret->why, sizeof ret->why, DIFFERS " in %s", scenario_digest_name(key));
        else if (other)
                snprintf(ret->why, sizeof ret->why, "%s in %s.%s",
                         n->node->role == ROLE_DFM ? DFM_DIFFERS : DIFFERS, other->section, other->name);
        else if (node_status_clock(n, ret->why)) {
                snprintf(ret->cause, sizeof ret->cause, "its clock is %s this machine's",
                         n->clock_ahead_s > 0 ? "ahead of" : "behind");
                return true;
        } else
                return false;
        snprintf(ret->cause, sizeof ret->cause, "%.300s", ret->why);
        return true;
}

bool node_status_warns(const struct statuses *s, const struct node_status *n, struct node_warning *ret)
{
        char disk[DISK_TEXT_MAX];
        bool is_low;

        *ret = (struct node_warning){};
        if (!n->status)
                return false;
        if (json_is_false(json_object_get(n->status, "shaped"))) {
                *ret = (struct node_warning){"not shaped", "its shaping is not installed as planned",
                                             "its shaping is not installed as planned"};
        } else if (node_status_disk(n, disk, &is_low) && is_low) {
                *ret = (struct node_warning){"disk low", "", "its disk is nearly full"};
                snprintf(ret->why, sizeof ret->why, "the disk has %s", disk);
        } else if (!warn_of_difference(s, n, ret))
                return false;
        text_make_printable(ret->why);
        text_make_printable(ret->cause);
        return true;
}

static bool any_is_live(const json_t *dfm)
{
        const json_t *peers = json_object_get(dfm, "peers");

        for (size_t i = 0; i < json_array_size(peers); i++) {
                if (json_is_true(json_object_get(json_array_get(peers, i), "live")))
                        return true;
        }
        return false;
}

static bool is_live(const struct statuses *s, const struct node_status *n)
{
        return json_is_true(json_object_get(find_peer(dfm_status(s), n->node), "live"));
}

bool statuses_await_silence(const struct statuses *s)
{
        for (size_t i = 0; i < s->n; i++) {
                if (s->nodes[i].condition == CONDITION_SILENT && is_live(s, &s->nodes[i]))
                        return true;
        }
        return false;
}

bool node_is_excused(const struct statuses *s, const struct node_status *n)
{
        const json_t *dfm = dfm_status(s);
        uint64_t wait_ns = s->scenario->dfm.start_timeout_ns ?: s->scenario->dfm.node_timeout_ns;

        if (n->condition != CONDITION_SILENT)
                return false;
        return is_live(s, n) || (n->node->role == ROLE_ROS && !n->node->required) ||
               (is_in(dfm, "ready") && !(any_is_live(dfm) && is_older(dfm, (double)wait_ns / NS_PER_S)));
}

bool statuses_are_settled(const struct statuses *s)
{
        const json_t *dfm = dfm_status(s);

        return dfm && is_settled(dfm) && (is_in(dfm, "ready") || is_in(dfm, "running"));
}

json_t *node_status_to_json(const struct node_status *n)
{
        json_t *o = n->status ? json_copy(n->status) : json_object();

        if (!n->status) {
                json_object_set_new(o, "node", json_string(n->node->name));
                json_object_set_new(o, "role", json_string(scenario_role_name(n->node->role)));
        }
        json_object_set_new(o, "reachable", json_boolean(n->status));
        json_object_set_new(o, "condition", json_string(node_status_word(n)));
        json_object_set_new(o, "problem", json_text(n->problem));
        return o;
}
