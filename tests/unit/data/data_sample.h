/* The context of a node in a small scenario, for tests of its data path; only its loop is open. */
#pragma once

#include <sys/socket.h>
#include <unistd.h>

#include "base/util.h"
#include "core/sfi.h"
#include "data/context.h"

/* More sections of the scenario. */
#ifndef SAMPLE_MORE
#define SAMPLE_MORE ""
#endif

static inline struct scenario *sample_scenario(const char *transport)
{
        static const char text[] = "[scenario]\ntransport = %s\n"
                                   "[network]\nport = 46910\ncontrol-group = none\n"
                                   "[node dfm]\nrole = dfm\naddress = " SAMPLE_NET ".1\n"
                                   "[node ros1]\nrole = ros\naddress = " SAMPLE_NET ".2\n"
                                   "[node ros2]\nrole = ros\naddress = " SAMPLE_NET ".3\n"
                                   "[node sfi1]\nrole = sfi\naddress = " SAMPLE_NET ".4\n"
                                   "[node sfi2]\nrole = sfi\naddress = " SAMPLE_NET ".5\n" SAMPLE_MORE;
        char path[] = "/tmp/evb-test-XXXXXX";
        int fd = mkstemp(path);
        static struct scenario_errors errors;
        struct scenario *s = calloc(1, sizeof *s);

        assert_true(fd >= 0 && s && dprintf(fd, text, transport) > 0);
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
