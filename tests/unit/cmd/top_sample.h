/* Nodes as evb top sees them, with answers that a test writes. */
#pragma once

#include "../json_assert.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/util.h"
#include "cmd/top/top.h"

static struct {
        struct scenario *scenario;
        struct statuses statuses;
        struct top_model model;
        uint64_t now_ns;
} t;

/* A DFM, n_ros ROSs, and SFIs for the other nodes; nobody has answered. */
static inline void sample_open(size_t n_ros, size_t n_sfi)
{
        size_t n = 1 + n_ros + n_sfi;

        memset(&t, 0, sizeof t);
        t.now_ns = 1000 * NS_PER_S;
        t.scenario = calloc(1, sizeof *t.scenario);
        t.statuses = (struct statuses){t.scenario, n, calloc(n, sizeof *t.statuses.nodes)};
        assert_true(t.scenario && t.statuses.nodes);
        strcpy(t.scenario->scenario.name, "beam");
        t.scenario->n_nodes = n;
        for (size_t i = 0; i < n; i++) {
                struct scenario_node *node = &t.scenario->nodes[i];

                node->role = i == 0 ? ROLE_DFM : i <= n_ros ? ROLE_ROS : ROLE_SFI;
                if (i == 0)
                        strcpy(node->name, "dfm");
                else
                        snprintf(node->name, sizeof node->name, "%s%zu", i <= n_ros ? "ros" : "sfi",
                                 i <= n_ros ? i : i - n_ros);
                t.statuses.nodes[i].node = node;
        }
        assert_int_equal(top_model_init(&t.model, &t.statuses), 0);
}

static inline int sample_close(void **state)
{
        for (size_t i = 0; i < t.statuses.n; i++)
                json_decref(t.statuses.nodes[i].status);
        free(t.statuses.nodes);
        free(t.scenario);
        top_model_fini(&t.model);
        return 0;
}

/* The members of the node's object, e.g. "'credits': 3"; ' stands for ". */
static inline void __attribute__((format(printf, 2, 3))) sample_answer(size_t i, const char *format, ...)
{
        struct node_status *n = &t.statuses.nodes[i];
        char members[2048], text[2300];
        va_list args;

        va_start(args, format);
        vsnprintf(members, sizeof members, format, args);
        va_end(args);
        snprintf(text, sizeof text, "{'version':'" EVB_VERSION "','state':'running'%s%s}",
                 members[0] ? "," : "", members);
        json_decref(n->status);
        n->status = json_of(text);
        n->answered_ns = t.now_ns;
        n->asked_ns = 0;
        n->problem[0] = '\0';
        n->condition = CONDITION_FINE;
        n->is_losing = false;
}

/* As statuses.c judges. */
static inline void sample_problem(size_t i, enum node_condition condition, const char *problem)
{
        struct node_status *n = &t.statuses.nodes[i];

        n->condition = condition;
        n->is_losing = condition == CONDITION_LOSING;
        snprintf(n->problem, sizeof n->problem, "%s", problem);
}

static inline void sample_look(void)
{
        top_model_update(&t.model, t.now_ns, NS_PER_S / 2);
}
