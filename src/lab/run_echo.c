/* Points of control latency: an echo on the control port beside data that fill the link, with and without a class of its
 * own. The echo is answered by a process at the other end. */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "evb/base/log.h"
#include "evb/base/util.h"
#include "evb/lab/catalogue.h"
#include "evb/lab/netns.h"
#include "evb/sys/loop.h"
#include "evb/sys/memory.h"
#include "shape.h"

#define CONTROL_PORT 46800
#define DATA_PORT 46801
#define ECHOES_MAX 400
#define ANSWER_MS 5000
#define FILL_BYTES 1400

struct echo_page {
        unsigned n;
        double us[ECHOES_MAX];
        bool failed;
};

static struct sockaddr_in at(const char *address, uint16_t port)
{
        struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(port)};

        inet_pton(AF_INET, address, &a.sin_addr);
        return a;
}

static void answer(const char *address)
{
        struct sockaddr_in here = at(address, CONTROL_PORT), from;
        int fd = socket(AF_INET, SOCK_DGRAM, 0);
        char message[64];

        if (bind(fd, (void *)&here, sizeof here) < 0)
                _exit(1);
        for (;;) {
                socklen_t size = sizeof from;
                ssize_t n = recvfrom(fd, message, sizeof message, 0, (void *)&from, &size);

                if (n > 0)
                        (void)sendto(fd, message, (size_t)n, 0, (void *)&from, size);
        }
}

static int shape(const struct lab_point *p, int namespace, const char *to)
{
        struct tc_destination destination = {.rate_bps = (uint64_t)lab_setting(p, "rate", 2e9)};
        struct tc_request q = {
                .link_rate_bps = (uint64_t)lab_setting(p, "link", 1e9),
                .mtu_bytes = 1500,
                .sources = 1,
                .send_buffer_bytes = 4u << 20,
                .backend = QOS_HTB_TBF,
                .control_port = lab_setting(p, "control", 0) > 0 ? CONTROL_PORT : 0,
                .destinations = &destination,
                .n_destinations = 1,
        };

        return tc_address_parse(&destination.address, to) ? lab_shape(namespace, &q) : -EINVAL;
}

/* Tops the queue up with data before each echo. */
static void echo(const struct lab_point *p, const char *to, struct echo_page *page)
{
        struct sockaddr_in control = at(to, CONTROL_PORT), data = at(to, DATA_PORT);
        int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0), fill = socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
        int buffer = (int)lab_setting(p, "fill", 1 << 20);
        uint64_t until_ns = clock_now_ns() + (uint64_t)(lab_setting(p, "seconds", 2) * 1e9);
        static const char payload[FILL_BYTES];

        page->failed = connect(fd, (void *)&control, sizeof control) < 0;
        (void)setsockopt(fill, SOL_SOCKET, SO_SNDBUFFORCE, &buffer, sizeof buffer);
        while (!page->failed && page->n < ECHOES_MAX && clock_now_ns() < until_ns) {
                struct pollfd wait = {.fd = fd, .events = POLLIN};
                char back[64];
                uint64_t begin_ns;

                for (int left = 2 * buffer / FILL_BYTES; left > 0 && sendto(fill, payload, sizeof payload, 0, (void *)&data, sizeof data) > 0; left--)
                        ;
                begin_ns = clock_now_ns();
                if (send(fd, "echo", 4, 0) < 0 || poll(&wait, 1, ANSWER_MS) != 1 || recv(fd, back, sizeof back, 0) != 4) {
                        page->failed = true;
                        break;
                }
                page->us[page->n++] = (double)(clock_now_ns() - begin_ns) / 1e3;
        }
}

static pid_t begin_child(int namespace)
{
        pid_t parent = getpid(), pid = fork();

        if (pid != 0)
                return pid;
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent || netns_enter(namespace) < 0)
                _exit(1);
        return 0;
}

static int compare(const void *a, const void *b)
{
        const double *x = a, *y = b;

        return (*x > *y) - (*x < *y);
}

static json_t *summarise(struct echo_page *page)
{
        json_t *o = json_object();

        qsort(page->us, page->n, sizeof page->us[0], compare);
        json_object_set_new(o, "echoes", json_integer(page->n));
        json_object_set_new(o, "echo_p50_us", json_real(page->us[page->n / 2]));
        json_object_set_new(o, "echo_p99_us", json_real(page->us[page->n - 1 - page->n / 100]));
        json_object_set_new(o, "echo_max_us", json_real(page->us[page->n - 1]));
        return o;
}

json_t *lab_run_echo(const struct lab_point *p)
{
        _cleanup_free_ struct scenario *s = calloc(1, sizeof *s);
        struct echo_page *page = memory_map_shared(sizeof *page);
        struct netns_lab *lab = NULL;
        json_t *result = NULL;
        pid_t answerer, asker = -1;
        int status;

        if (!s || !page)
                return NULL;
        s->network.link_rate_bps = (uint64_t)lab_setting(p, "link", 1e9);
        s->network.switch_buffer_bytes = 262144;
        s->network.mtu_bytes = 1500;
        s->n_nodes = 2;
        strcpy(s->nodes[0].name, "asker");
        strcpy(s->nodes[1].name, "answerer");
        if (netns_lab_new(&lab, s) < 0)
                return NULL;
        answerer = begin_child(netns_lab_node(lab, "answerer"));
        if (answerer == 0)
                answer(s->nodes[1].address);
        if (shape(p, netns_lab_node(lab, "asker"), s->nodes[1].address) >= 0)
                asker = begin_child(netns_lab_node(lab, "asker"));
        if (asker == 0) {
                nanosleep(&(struct timespec){.tv_nsec = 100000000}, NULL);
                echo(p, s->nodes[1].address, page);
                _exit(page->failed);
        }
        if (asker > 0 && waitpid(asker, &status, 0) == asker && WIFEXITED(status) && WEXITSTATUS(status) == 0 && page->n > 0)
                result = summarise(page);
        if (answerer > 0) {
                kill(answerer, SIGKILL);
                waitpid(answerer, NULL, 0);
        }
        netns_lab_free(lab);
        memory_unmap(page, sizeof *page);
        return result;
}
