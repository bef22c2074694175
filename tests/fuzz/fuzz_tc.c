/* A libFuzzer target that decodes arbitrary bytes as netlink messages: dumps, events and acknowledgements. */
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
        /* The exact allocation lets ASan detect a read past the end. A socket never returns a message that is
         * longer than the received bytes. */
        m = malloc(size);
        memcpy(m, data, size);
        m->nlmsg_len = (uint32_t)size;
        if (tc_message_decode(m, &o, &ifindex) == 0)
                free(o.options);
        (void)tc_ack_decode(m, &ack);
        free(m);
        return 0;
}
