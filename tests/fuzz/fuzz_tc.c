/* libFuzzer: netlink messages of any content, as dumps, events and acknowledgements. */
#include <linux/netlink.h>
#include <stdlib.h>
#include <string.h>

#include "evb/tc-model/message.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
        struct nlmsghdr *m;
        struct tc_object o;
        struct tc_ack ack;
        int ifindex;

        if (size < sizeof *m)
                return 0;
        /* As large as it is, so that reading behind it is seen; a socket hands on no message longer than what
         * came. */
        m = malloc(size);
        memcpy(m, data, size);
        m->nlmsg_len = (uint32_t)size;
        if (tc_message_decode(m, &o, &ifindex) == 0)
                free(o.options);
        (void)tc_ack_decode(m, &ack);
        free(m);
        return 0;
}
