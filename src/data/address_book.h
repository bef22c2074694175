/* The control addresses of a scenario's nodes, by role and index. Nothing changes after address_book_init().
 */
#pragma once

#include <stdbool.h>

#include "conf/scenario.h"
#include "net/address.h"

struct address_book {
        struct net_address dfm, *ros, *sfi;
        size_t n_ros, n_sfi;
};

/* Errors are logged; address_book_fini() is needed in any case. */
int address_book_init(struct address_book *b, const struct scenario *s);
void address_book_fini(struct address_book *b);
/* NULL: the scenario has no such node. */
const struct net_address *address_book_find(const struct address_book *b, enum node_role role,
                                            uint16_t index);
/* Whether `address` is that node's, whatever the port; false for an unknown node. */
bool address_book_is_host(const struct address_book *b, enum node_role role, uint16_t index,
                          const struct net_address *address);
/* Whether any ROS has this host. */
bool address_book_has_ros(const struct address_book *nodes, const struct net_address *from);
