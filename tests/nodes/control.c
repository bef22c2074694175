/* Run control in virtual time: `evb ctl` asks the DFM's own HTTP code, without sockets and threads between
 * them. */
#include <fcntl.h>
#include <time.h>

#include "bed.h"
#include "net/http_get.h"
#include "net/http_server.h"
#include "net/local_listener.h"
#include "node/run_control/mailbox.h"

/* As the DFM's HTTP threads wait for the event loop. */
#define MAILBOX_NS (4 * NS_PER_S)

static struct http_config server; /* of the DFM that runs; no `answer`: none does */
static struct run_request *waiting;
static unsigned answering; /* requests whose client the server's code still answers */
static bool is_closing;

void bed_control_ends(void)
{
        server = (struct http_config){};
        answering = 0;
}

int __wrap_http_server_new(struct http_server **ret, const struct http_config *config, struct error *e)
{
        server = *config;
        *ret = (struct http_server *)&server;
        return 0;
}

/* As the server's thread, it sends the answers that it has begun. */
struct http_server *__wrap_http_server_free(struct http_server *s)
{
        if (!s)
                return NULL;
        server = (struct http_config){};
        for (is_closing = true; answering > 0;)
                turns_pass(NS_PER_MS);
        is_closing = false;
        return NULL;
}

int __wrap_local_listener_open(struct local_listener *ret, const char *path, struct error *e)
{
        /* Never used, but the DFM serves no socket without a descriptor. */
        ret->fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
        return MIN(ret->fd, 0);
}

/* Of the socket's file, which does not exist. */
int __wrap_chmod(const char *path, mode_t mode)
{
        return 0;
}

unsigned __wrap_http_client_user(int connection)
{
        return 1000;
}

bool __wrap_http_client_waits(int connection)
{
        return true;
}

bool __wrap_run_mailbox_ask(struct run_mailbox *m, struct run_request *r)
{
        uint64_t until_ns = turns_now_ns() + MAILBOX_NS;

        while (waiting && turns_now_ns() < until_ns)
                turns_pass(NS_PER_MS);
        waiting = r;
        while (waiting == r && server.answer && turns_now_ns() < until_ns)
                turns_pass(NS_PER_MS);
        if (waiting != r)
                return true;
        waiting = NULL;
        return false;
}

void __wrap_run_mailbox_turn(struct run_mailbox *m, void (*follow)(void *ctx, struct run_request *r),
                             void *ctx)
{
        if (waiting)
                follow(ctx, waiting);
        waiting = NULL;
}

/* The server's code runs in the thread of its client. */
void __wrap_http_get_all(struct http_get *gets, size_t n, uint64_t timeout_ns)
{
        const struct net_address from = {.any.sa_family = AF_UNIX};
        struct http_reply reply = {.status = 200};
        _cleanup_free_ char *path = strndup(gets->path, strcspn(gets->path, "?"));
        struct http_request request = {
                .path = path,
                .waits = strstr(gets->path, "?wait=") != NULL,
                .from = &from,
                .is_post = gets->post != NULL,
                .body = gets->post ?: "",
                .body_bytes = strlen(gets->post ?: ""),
        };

        assert_true(n == 1);
        gets->error = -ECONNREFUSED;
        if (!server.answer)
                return;
        answering++;
        server.answer(server.ctx, &request, &reply);
        answering -= answering > 0;
        if (!server.answer && !is_closing) {
                gets->error = -ECONNRESET;
                free(reply.text);
                return;
        }
        gets->error = 0;
        gets->status = reply.status;
        gets->body = reply.text;
}

int __wrap_nanosleep(const struct timespec *duration, struct timespec *rest)
{
        turns_pass((uint64_t)duration->tv_sec * NS_PER_S + (uint64_t)duration->tv_nsec);
        return 0;
}

static const char *const *ctl_words(const char *command, const char *wait)
{
        static const char *words[8];
        static char text[64];
        char *rest = text;
        size_t n = 0;

        snprintf(text, sizeof text, "%s", command);
        while (n < 2 && (words[n] = strsep(&rest, " ")))
                n++;
        words[n++] = "--socket";
        words[n++] = "control.sock";
        if (wait) {
                words[n++] = "--wait";
                words[n++] = wait;
        }
        words[n] = NULL;
        return words;
}

void bed_ctl_start(const char *name, const char *command, const char *wait)
{
        bed_start_command(name, cmd_ctl, ctl_words(command, wait));
}

int bed_ctl(const char *command, const char *wait)
{
        bed_ctl_start("ctl", command, wait);
        return bed_status("ctl");
}
