/* Finds the control addresses of a scenario's nodes. */
#include "data/address_book.h"

#include <errno.h>
#include <stdlib.h>

#include "base/log.h"
#include "data/network.h"

int address_book_init(struct address_book *b, const struct scenario *s)
{
        *b = (struct address_book){
                .ros = calloc(s->ros.count, sizeof *b->ros),
                .sfi = calloc(s->sfi.count, sizeof *b->sfi),
                .n_ros = s->ros.count,
                .n_sfi = s->sfi.count,
        };
        if (!b->ros || !b->sfi)
                return log_error_errno(ENOMEM, "address book: %m");
        for (size_t i = 0; i < s->n_nodes; i++) {
                const struct scenario_node *n = &s->nodes[i];
                struct net_address *to = n->role == ROLE_DFM   ? &b->dfm
                                         : n->role == ROLE_ROS ? &b->ros[n->index]
                                                               : &b->sfi[n->index];
                int r = network_node_address(to, n, (uint16_t)s->network.control_port);

                if (r < 0)
                        return r;
        }
        return 0;
}

void address_book_fini(struct address_book *b)
{
        free(b->ros);
        free(b->sfi);
        *b = (struct address_book){};
}

const struct net_address *address_book_find(const struct address_book *b, enum node_role role, uint16_t index)
{
        switch (role) {
        case ROLE_DFM:
                return &b->dfm;
        case ROLE_ROS:
                return index < b->n_ros ? &b->ros[index] : NULL;
        case ROLE_SFI:
                return index < b->n_sfi ? &b->sfi[index] : NULL;
        case ROLE_LEVEL2:
                break; /* no node */
        }
        return NULL;
}

bool address_book_is_host(const struct address_book *b, enum node_role role, uint16_t index,
                          const struct net_address *address)
{
        const struct net_address *known = address_book_find(b, role, index);

        return known && net_address_same_host(known, address);
}

bool address_book_has_ros(const struct address_book *nodes, const struct net_address *from)
{
        for (size_t i = 0; i < nodes->n_ros; i++) {
                if (address_book_is_host(nodes, ROLE_ROS, (uint16_t)i, from))
                        return true;
        }
        return false;
}
