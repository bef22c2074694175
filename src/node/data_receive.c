/* Shared by both transports of an SFI: the addresses that fragments may come from. */
#include "data_receive.h"

#include <errno.h>

#include "evb/base/log.h"
#include "evb/base/util.h"

int data_receive_know_ros(struct data_receiver *r)
{
        const struct scenario *s = r->node->scenario;
        int k = 0;

        r->ros = calloc(s->ros.count, sizeof *r->ros);
        if (!r->ros)
                return log_error_errno(ENOMEM, "addresses of the ROSs: %m");
        for (unsigned i = 0; k >= 0 && i < s->ros.count; i++)
                k = node_address(scenario_node_of(s, ROLE_ROS, i), 0, &r->ros[i]);
        return k;
}

bool data_receive_is_from(const struct data_receiver *r, size_t ros, const struct net_address *from)
{
        return ros < r->node->scenario->ros.count && net_address_same_host(from, &r->ros[ros]);
}

bool data_receive_is_from_any(const struct data_receiver *r, const struct net_address *from)
{
        for (size_t i = 0; i < r->node->scenario->ros.count; i++) {
                if (data_receive_is_from(r, i, from))
                        return true;
        }
        return false;
}
