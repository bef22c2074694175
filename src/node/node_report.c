/* Writes a node's report from its counters. */
#include "node_report.h"

#include <errno.h>
#include <jansson.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/util.h"
#include "conf/scenario.h"
#include "core/sfi.h"
#include "data/run_file.h"
#include "sys/memory.h"
#include "sys/thread.h"
#include "shape/model/layout.h"
#include "node/metrics/counters.h"
#include "node/progress/progress.h"

static void add_shaping(json_t *o, const struct node_stats *s)
{
        bool shaped = stats_get(&s->qos_backend) != TC_BACKEND_NONE;
        json_t *interface = json_object();

        json_object_set_new(o, "qos_backend",
                            json_string(tc_backend_name((enum tc_backend)stats_get(&s->qos_backend))));
        json_object_set_new(o, "qos_rate_bps", json_count_if(shaped, stats_get(&s->qos_rate_bps)));
        if (stats_get(&s->mtu_bytes) > 0)
                json_put_count(interface, "mtu_bytes", stats_get(&s->mtu_bytes));
        json_object_set_new(o, "interface", interface);
}

/* Lists the missing fragments of an SFI by the ROS that should have sent them. */
static json_t *make_missing(const struct node *n)
{
        json_t *o = json_object();

        for (uint32_t i = 0; i < n->scenario->ros.count; i++) {
                uint64_t lost = sfi_source_counts(n->core, i).fragments_lost;

                if (lost > 0)
                        json_put_count(o, scenario_node_of(n->scenario, ROLE_ROS, i)->name, lost);
        }
        return o;
}

static json_t *make_report(const struct node *n, const struct reasons *why)
{
        const struct node_stats *s = n->stats;
        json_t *o = json_object(), *files = json_array();

        json_object_set_new(o, "name", json_string(n->self->name));
        json_object_set_new(o, "role", json_string(scenario_role_name(n->self->role)));
        json_put_count(o, "run", n->run);
        counters_set_all(o, s);
        json_put_count(o, "granted_receive_buffer_bytes", stats_get(&s->granted_receive_buffer_bytes));
        json_put_count(o, "granted_send_buffer_bytes", stats_get(&s->granted_send_buffer_bytes));
        if (n->self->role == ROLE_ROS)
                add_shaping(o, s);
        if (n->self->role == ROLE_SFI)
                json_object_set_new(o, "missing_fragments", make_missing(n));
        if (n->self->role == ROLE_DFM)
                event_rates_add(o, s);
        json_put_count(o, "peak_rss_bytes", memory_peak_bytes());
        json_object_set_new(o, "cpu_seconds", json_real(cpu_used_seconds()));
        for (size_t i = 0; i < n->files.n; i++)
                json_array_append_new(files, json_string(n->files.files[i].path));
        json_object_set_new(o, "files", files);
        if (n->self->role == ROLE_SFI)
                json_object_set_new(o, "file_records", run_file_list_files(n->files.files, n->files.n));
        json_object_set_new(o, "metadata", scenario_metadata_to_json(n->metadata, n->n_metadata));
        progress_report(n, o);
        json_object_set_new(o, "reasons", reasons_to_json(why));
        return o;
}

void report_write_json(const struct node *n, FILE *to)
{
        json_t *o = make_report(n, &n->reasons);

        json_dumpf(o, to, JSON_COMPACT | JSON_REAL_PRECISION(12));
        fputc('\n', to);
        fflush(to);
        json_decref(o);
}

/* ---- The record of the run ---- */

struct run_file_job {
        char core[RUN_FILE_PATH_MAX], path[RUN_FILE_PATH_MAX];
        char *text;
        pthread_t thread;
        bool threaded;
        _Atomic bool done; /* once this is set, the owner may read `result` and `path` */
        int result;
};

static void *store(void *ctx)
{
        struct run_file_job *j = ctx;

        j->result = run_file_store(j->core, j->text, j->path);
        atomic_store(&j->done, true);
        return NULL;
}

static char *make_text(struct node *n)
{
        struct run_file f = {.scenario = n->scenario, .run = n->run};
        struct reasons why = n->reasons;
        char *text;

        n->kind->account(n);
        membership_reasons(n, &why);
        n->kind->reasons(n, &why);
        f.accounts = make_report(n, &why);
        f.metadata = json_object_get(f.accounts, "metadata");
        f.files = json_object_get(f.accounts, "file_records");
        text = run_file_text(&f);
        json_decref((json_t *)f.accounts);
        return text;
}

static struct run_file_job *begin(struct node *n)
{
        struct run_file_job *j = calloc(1, sizeof *j);

        if (!j || n->files.n == 0 || !run_file_core(n->files.files[0].path, j->core, sizeof j->core)) {
                free(j);
                return NULL;
        }
        j->text = make_text(n);
        j->threaded = thread_start(&j->thread, "evb-record", NULL, 0, store, j) >= 0;
        if (!j->threaded)
                store(j);
        return j;
}

static void join(struct run_file_job *j)
{
        if (j->threaded)
                pthread_join(j->thread, NULL);
        j->threaded = false;
}

int report_write_run_file(struct node *n, bool wait)
{
        struct run_file_job *j = n->run_file;

        /* Under `evb run`, the launcher reads this node's report and writes the record of the run. */
        if (n->self->role != ROLE_SFI || getenv(NODE_STATS_ENV))
                return 0;
        if (!j)
                j = n->run_file = begin(n);
        if (!j)
                return 0;
        if (!wait && !atomic_load(&j->done))
                return -EAGAIN;
        join(j);
        if (j->result < 0)
                reasons_add(&n->reasons, "cannot write %s: %s", j->path, strerror(-j->result));
        return j->result;
}

void report_free_run_file(struct node *n)
{
        if (!n->run_file)
                return;
        join(n->run_file);
        free(n->run_file->text);
        free(n->run_file);
        n->run_file = NULL;
}
