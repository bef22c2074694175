/* The page of a DFM: serves its files, and the states of all nodes. A separate thread samples the DFM's rates
 * and requests the states of all nodes about every second, for the page and to find the node at fault. The
 * event loop is not involved. NULL: this node has no page. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "conf/scenario.h"
#include "data/stats.h"
#include "net/http_server.h"
#include "node/metrics/run_summary.h"

/* A file of the page; embed.py builds the files into the program. */
struct page_file {
        const char *path; /* path in the request */
        const char *content_type, *cache_control;
        const unsigned char *bytes;
        size_t n_bytes;
};

extern const struct page_file page_files[];
extern const size_t n_page_files;

struct page_moment {
        const char *dfm;     /* name of the DFM */
        bool takes_commands; /* the page may control runs */
        const char *control; /* state of run control (run_state_json()); NULL: none */
        uint64_t elapsed_ns; /* never goes back; for rates */
        uint64_t utc_ns;
};

/* page_message.c: makes the content of the page at one time, as a line of JSON (docs/monitoring.md). From
 * malloc(); NULL: out of memory. */
char *page_make_message(const struct statuses *s, const struct page_moment *moment);

struct page;
struct run_http;

/* *ret is NULL if the node is not the DFM, because only a DFM has a page. `control`: run control, borrowed;
 * NULL: none. With its token, the page may control runs. Errors are logged. */
int page_new(struct page **ret, const struct scenario *s, const struct scenario_node *self,
             const struct node_stats *stats, const struct run_http *control);
/* Starts the thread, which runs until page_stop(). Errors are logged. */
int page_start(struct page *p, const unsigned *cpus, size_t n_cpus);
void page_stop(struct page *p);
struct page *page_free(struct page *p);

/* Copies the fault that the last two requests found, or an empty one. Leaves *ret unchanged if this node has
 * no page, or if another thread uses the page and `may_wait` is false. Any thread. */
void page_read_fault(struct page *p, bool may_wait, struct run_fault *ret);
/* Runs in the server's thread. True: the request is for the page, and *ret contains the answer. */
bool page_answer(struct page *p, const struct http_request *request, struct http_reply *ret);
