/* The page of a DFM: serves the files of the page, and a stream of the states of all nodes. A thread of its
 * own samples the DFM's rates every second, and asks all nodes while a browser shows the page. The event loop
 * is not involved. NULL: this node has no page. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "conf/scenario.h"
#include "data/stats.h"
#include "net/http_server.h"
#include "node/metrics/statuses.h"

/* The files of the page, which embed.py builds into the program. */
struct page_file {
        const char *path; /* as requested */
        const char *content_type, *cache_control;
        const unsigned char *bytes;
        size_t n_bytes;
};

extern const struct page_file page_files[];
extern const size_t n_page_files;

struct page_moment {
        const char *dfm;     /* its name */
        bool takes_commands; /* the page may control runs */
        uint64_t elapsed_ns; /* never goes back; for rates */
        uint64_t utc_ns;
};

/* page_message.c: makes the content of the page at one time, as a line of JSON (docs/monitoring.md). From
 * malloc(); NULL: out of memory. */
char *page_make_message(const struct statuses *s, const struct page_moment *moment);

/* A stream of the page ends after this time, and the browser connects again. */
#define PAGE_STREAM_NS (300 * NS_PER_S)

struct page;

/* Only a DFM has a page: otherwise *ret is NULL. `takes_commands`: the page may control runs. Errors are
 * logged.
 */
int page_new(struct page **ret, const struct scenario *s, const struct scenario_node *self,
             const struct node_stats *stats, bool takes_commands);
/* Starts the thread, which publishes to the server until page_stop(). Errors are logged. */
int page_start(struct page *p, struct http_server *server, const unsigned *cpus, size_t n_cpus);
void page_stop(struct page *p);
struct page *page_free(struct page *p);

/* The functions below run in the server's thread. True: the request is for the page, and *ret contains the
 * answer. */
bool page_answer(struct page *p, const struct http_request *request, struct http_reply *ret);
/* The number of open streams has changed. */
void page_watch(struct page *p, size_t n_streams);
