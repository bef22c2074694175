/* Sends the metadata of the run to each SFI before the SFI receives events. An SFI reports its version of the
 * metadata in Alive. The DFM repeats all names until this is the current version. */
#include "dfm_internal.h"

void dfm_set_metadata(struct dfm *d, uint64_t now_ns, const struct metadata_entry *entries, uint16_t n)
{
        struct metadata_set *m = &d->hold.metadata;
        uint16_t version = (uint16_t)(m->version == UINT16_MAX ? 1 : m->version + 1);

        /* Without names, there is nothing to send, unless SFIs have names from an earlier set. */
        if (dfm_is_in_run(d) || (n == 0 && m->version == 0))
                return;
        *m = (struct metadata_set){.version = version, .n = n};
        for (uint16_t i = 0; i < n; i++)
                m->entries[i] = entries[i];
        for (uint32_t i = 0; i < d->config.n_sfi; i++) {
                dfm_node(d, ROLE_SFI, i)->metadata_sent = 0;
                dfm_node(d, ROLE_SFI, i)->metadata_due_ns = 0;
        }
        d->keep_alive_due_ns = now_ns;
}

static bool is_due(const struct dfm *d, uint32_t sfi)
{
        return dfm_node(d, ROLE_SFI, sfi)->live && dfm_is_missing_metadata(d, sfi);
}

bool dfm_make_metadata(struct dfm *d, uint64_t now_ns, struct message_to *to, struct message *m)
{
        const struct metadata_set *set = &d->hold.metadata;

        for (uint32_t i = 0; set->version > 0 && i < d->config.n_sfi; i++) {
                struct dfm_node *n = dfm_node(d, ROLE_SFI, i);

                if (!is_due(d, i) || now_ns < n->metadata_due_ns)
                        continue;
                *to = (struct message_to){ROLE_SFI, (uint16_t)i};
                dfm_address(d, m, MESSAGE_METADATA, 0);
                m->metadata.version = set->version;
                m->metadata.count = set->n;
                m->metadata.number = n->metadata_sent++;
                m->metadata.entry = set->entries[m->metadata.number];
                if (n->metadata_sent >= set->n) {
                        n->metadata_sent = 0;
                        n->metadata_due_ns = now_ns + d->config.keep_alive_ns;
                }
                return true;
        }
        return false;
}

uint64_t dfm_metadata_deadline_ns(const struct dfm *d)
{
        uint64_t deadline = NEVER_NS;

        for (uint32_t i = 0; d->hold.metadata.version > 0 && i < d->config.n_sfi; i++) {
                if (is_due(d, i))
                        deadline = MIN(deadline, dfm_node(d, ROLE_SFI, i)->metadata_due_ns);
        }
        return deadline;
}
