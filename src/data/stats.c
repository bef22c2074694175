/* Maps the verdict on a received message to the counters of struct node_stats. */
#include "evb/data/stats.h"

void stats_count_refusal(struct node_stats *s, enum message_verdict verdict)
{
        switch (verdict) {
        case MESSAGE_OK:
                break;
        case MESSAGE_FOREIGN:
        case MESSAGE_OTHER_VERSION:
        case MESSAGE_OTHER_RUN:
                stats_add(&s->packets_foreign, 1);
                break;
        case MESSAGE_SHORT:
        case MESSAGE_MALFORMED:
                stats_add(&s->packets_malformed, 1);
                break;
        }
}
