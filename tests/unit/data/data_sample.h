/* The context of a node in a small scenario, for tests of its data path; only its loop is open. */
#pragma once

#include <stdio.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/util.h"
#include "core/sfi.h"
#include "data/context.h"

/* This process owns 127.255.X.0/24 until it ends, of the X returned. harness.py reserves them by the same
 * names. */
static inline int sample_reserve(void)
{
        struct sockaddr_un name = {.sun_family = AF_UNIX};
        int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

        assert_true(fd >= 0);
        for (int i = 0; i < 250; i++) {
                int n = snprintf(name.sun_path + 1, sizeof name.sun_path - 1, "evb-test-net-%d", i);

                if (bind(fd, &name, (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n)) == 0)
                        return i;
        }
        fail_msg("all loopback addresses for tests are in use");
        return -1;
}

/* An address that no other process uses for tests; the text stays. */
static inline const char *sample_at(uint8_t host)
{
        static int net = -1;
        static char texts[UINT8_MAX + 1][24];

        if (net < 0)
                net = sample_reserve();
        snprintf(texts[host], sizeof texts[host], "127.255.%d.%u", net, host);
        return texts[host];
}

static inline struct scenario *sample_scenario(const char *transport)
{
        static const char *const names[] = {"dfm", "ros1", "ros2", "sfi1", "sfi2"};
        char path[] = "/tmp/evb-test-XXXXXX";
        int fd = mkstemp(path);
        static struct scenario_errors errors;
        struct scenario *s = calloc(1, sizeof *s);

        assert_true(fd >= 0 && s);
        dprintf(fd, "[scenario]\ntransport = %s\n[network]\nport = 46910\ncontrol-group = none\n", transport);
        for (uint8_t i = 0; i < ARRAY_SIZE(names); i++)
                dprintf(fd, "[node %s]\nrole = %.3s\naddress = %s\n", names[i], names[i], sample_at(i + 1));
        close(fd);
        if (scenario_load(s, path, NULL, 0, &errors) < 0)
                fail_msg("%s", errors.text[0]);
        unlink(path);
        return s;
}

/* Owns what the context names. */
struct sample {
        struct data_context context;
        struct scenario *scenario;
        struct address_book nodes;
        struct node_stats *stats;
        struct loop *loop;
};

static inline void sample_open(struct sample *s, const char *name, const char *transport)
{
        s->scenario = sample_scenario(transport);
        s->stats = calloc(1, sizeof *s->stats);
        assert_non_null(s->stats);
        assert_int_equal(loop_new(&s->loop), 0);
        assert_int_equal(address_book_init(&s->nodes, s->scenario), 0);
        s->context = (struct data_context){
                .scenario = s->scenario,
                .self = scenario_find(s->scenario, name),
                .nodes = &s->nodes,
                .stats = s->stats,
                .loop = s->loop,
        };
        assert_non_null(s->context.self);
}

static inline void sample_close(struct sample *s)
{
        address_book_fini(&s->nodes);
        loop_free(s->loop);
        free(s->stats);
        free(s->scenario);
}

/* The run of these tests, and its DFM. */
#define SAMPLE_COOKIE UINT64_C(0xC00C1E)
#define SAMPLE_DFM UINT64_C(0xDF)
#define SAMPLE_INCARNATION UINT64_C(3)

/* An SFI of that scenario. */
static inline struct sfi_config sample_sfi(void)
{
        return (struct sfi_config){
                .member = {.incarnation = SAMPLE_INCARNATION},
                .n_ros = 2,
                .slots = 8,
                .buffer_bytes = 2 * EVB_FRAGMENT_MAX_BYTES,
                .credits = 4,
                .timeout_ns = 2 * NS_PER_S,
                .keep_alive_ns = NS_PER_S,
                .message_bytes = 1472,
        };
}

/* Makes a node join that run. */
static inline const struct message *sample_welcome(void)
{
        static struct message m;

        m.header = (struct message_header){
                .cookie = SAMPLE_COOKIE, .sender_role = ROLE_DFM, .type = MESSAGE_WELCOME};
        m.dfm = SAMPLE_DFM;
        m.welcome.incarnation = SAMPLE_INCARNATION;
        m.welcome.run = 7;
        m.welcome.verdict = WELCOME_OK;
        return &m;
}

/* The DFM assigns an event to an SFI. Event numbers serve as sequence numbers, so an SFI needs all from 0 on.
 */
static inline const struct message *sample_assign(uint64_t event, uint16_t sfi)
{
        static struct message m;

        m.header = (struct message_header){.cookie = SAMPLE_COOKIE,
                                           .sender_role = ROLE_DFM,
                                           .type = MESSAGE_ASSIGN,
                                           .transaction = (uint32_t)event};
        m.dfm = SAMPLE_DFM;
        m.n = 1;
        m.assign.with_info = m.assign.announces = false;
        m.assign.sfi = sfi;
        m.assign.incarnation = (uint32_t)SAMPLE_INCARNATION;
        m.assign.entries[0] = (struct assign_entry){
                .event = event,
                .l1_id = (uint32_t)event,
                .sequence = (uint32_t)event,
                .sfi = sfi,
        };
        return &m;
}

/* The same, as the DFM announces it to the ROSs. */
static inline const struct message *sample_announce(uint64_t event, uint16_t sfi)
{
        struct message *m = (struct message *)sample_assign(event, sfi);

        m->assign.announces = true;
        return m;
}

/* The socket of this process that listens. */
static inline int sample_find_listener(void)
{
        for (int fd = 3; fd < 100; fd++) {
                int on = 0;
                socklen_t size = sizeof on;

                if (getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &on, &size) == 0 && on)
                        return fd;
        }
        return -1;
}
