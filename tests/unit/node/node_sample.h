/* A node of a small scenario, for tests of single parts of a ROS or an SFI: only its loop is open. */
#pragma once

#include <unistd.h>

#include "evb/base/util.h"
#include "evb/core/sfi.h"
#include "node_internal.h"

static inline struct scenario *sample_scenario(const char *transport)
{
        static const char text[] =
                "[scenario]\ntransport = %s\n"
                "[network]\ncontrol-port = 46910\ndata-port = 46911\ncontrol-group = none\n"
                "[node dfm]\nrole = dfm\naddress = " SAMPLE_NET ".1\n"
                "[node ros1]\nrole = ros\naddress = " SAMPLE_NET ".2\n"
                "[node ros2]\nrole = ros\naddress = " SAMPLE_NET ".3\n"
                "[node sfi1]\nrole = sfi\naddress = " SAMPLE_NET ".4\n"
                "[node sfi2]\nrole = sfi\naddress = " SAMPLE_NET ".5\n";
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

static inline void sample_node(struct node *n, const char *name, const char *transport)
{
        struct scenario *s = sample_scenario(transport);

        *n = (struct node){.scenario = s,
                           .self = scenario_find(s, name),
                           .run = 7,
                           .stats = calloc(1, sizeof *n->stats)};
        assert_non_null(n->self);
        assert_non_null(n->stats);
        assert_int_equal(loop_new(&n->loop), 0);
        assert_int_equal(control_know_nodes(&n->control, s), 0);
}

static inline void sample_node_free(struct node *n)
{
        control_close(&n->control);
        loop_free(n->loop);
        free(n->stats);
        free((void *)n->scenario);
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
