/* How the nodes of a machine divide its processors. */
#include "../test.h"
#include "node/machine.h"

/* The parts contain each processor once, in order. */
TEST(nodes_divide_the_processors)
{
        static const unsigned processors[] = {1, 2, 4, 5, 6, 9, 10};
        static const struct {
                size_t parts, sizes[4];
        } cases[] = {{1, {7}}, {2, {3, 4}}, {3, {2, 2, 3}}, {4, {1, 2, 2, 2}}};
        unsigned got[SCENARIO_CPUS_MAX];

        for (size_t c = 0; c < ARRAY_SIZE(cases); c++) {
                size_t next = 0;

                for (size_t place = 0; place < cases[c].parts; place++) {
                        size_t n = machine_processors_part(processors, 7, place, cases[c].parts, got);

                        assert_int_equal(n, cases[c].sizes[place]);
                        for (size_t i = 0; i < n; i++)
                                assert_int_equal(got[i], processors[next++]);
                }
                assert_int_equal(next, 7);
        }
        assert_int_equal(machine_processors_part(processors, 7, 6, 7, got), 1);
        assert_int_equal(got[0], 10);
        assert_int_equal(machine_processors_part(processors, 7, 0, 8, got), 0);
}

/* A list has a limited size. */
TEST(a_node_gets_a_list_of_processors_at_most)
{
        unsigned processors[100], got[SCENARIO_CPUS_MAX];

        for (unsigned i = 0; i < ARRAY_SIZE(processors); i++)
                processors[i] = i;
        assert_int_equal(machine_processors_part(processors, 100, 1, 2, got), SCENARIO_CPUS_MAX);
        assert_int_equal(got[0], 50);
}
