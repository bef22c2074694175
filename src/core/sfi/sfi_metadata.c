/* Collects the metadata with which an operator started the run. */
#include "sfi_internal.h"

void sfi_receive_metadata(struct sfi *s, uint64_t now_ns, const struct message *m)
{
        struct metadata_set *a = &s->arriving;

        s->metadata_cookie = m->header.cookie;
        if (m->metadata.version == s->metadata.version)
                return;
        if (m->metadata.version != a->version || m->metadata.count != a->n) {
                *a = (struct metadata_set){.version = m->metadata.version, .n = m->metadata.count};
                s->arrived = 0;
        }
        a->entries[m->metadata.number] = m->metadata.entry;
        s->arrived |= (uint16_t)(1u << m->metadata.number);
        if (a->n > 0 && s->arrived != (1u << a->n) - 1)
                return;
        s->metadata = *a;
        s->keep_alive_due_ns = now_ns;
}

void sfi_leave_metadata(struct sfi *s)
{
        if (s->metadata_cookie == s->member.cookie)
                return;
        s->metadata = s->arriving = (struct metadata_set){};
        s->arrived = s->metadata_wanted = 0;
        s->metadata_known = false;
}

const struct metadata_set *sfi_metadata(const struct sfi *s)
{
        bool has = s->metadata_wanted == 0 || s->metadata_wanted == s->metadata.version;

        /* Fragments of a previous process's events may arrive before the DFM has announced the run's
         * metadata. */
        return has && s->metadata_known ? &s->metadata : NULL;
}
