/* The measurements of each publication. A file publication_X.c holds the table of publication X and the
 * verdict function of each of its measurements; catalogue.c joins the tables. */
#pragma once

#include "base/util.h"
#include "lab/points.h"

struct lab_publication {
        const struct lab_measurement *measurements;
        size_t n;
};

extern const struct lab_publication publication_a; /* QoS for UDP multicast and TCP, CHEP 2001 */
extern const struct lab_publication publication_b; /* QoS on Gigabit Ethernet, 2000 */
extern const struct lab_publication publication_c; /* event building, JPS 2003 */
extern const struct lab_publication publication_d; /* throughput and stability of vlbi_udp, 2006 */
extern const struct lab_publication publication_e; /* data paths for download and streaming, about 2005 */
extern const struct lab_publication extension_c;   /* questions that publication C left open */
extern const struct lab_publication extension_incast;
extern const struct lab_publication extension_level2;
extern const struct lab_publication extension_scaling; /* in the simulator only */

#define LAB_LIST(...)                                                                                        \
        {                                                                                                    \
                __VA_ARGS__                                                                                  \
        }
/* The x values of a full and of a --quick run. */
#define LAB_SWEEP(all, few, ...)                                                                             \
        {                                                                                                    \
                .values = (const double[])all, .quick = (const double[])few,                                 \
                .n_values = sizeof((double[])all) / sizeof(double),                                          \
                .n_quick = sizeof((double[])few) / sizeof(double), __VA_ARGS__                               \
        }
#define LAB_PANELS(table) .panels = (table), .n_panels = ARRAY_SIZE(table)

#define LAB_TCP_SIZES LAB_SWEEP(LAB_LIST(10, 30, 100, 300, 1000, 3000, 10000), LAB_LIST(100, 1000, 10000))
#define LAB_6X1                                                                                              \
        "ros.count=6 sfi.count=1 network.link-rate=1Gbit network.switch-buffer=256KiB scenario.duration=3s"
#define LAB_SHAPED "qos.backend=auto qos.rate=auto"
