/* Encodes Probe, whose padding makes it as long as the sender likes. */
#include <string.h>

#include "codec.h"

#define PROBE_ANSWERS 1u

bool probe_code(struct codec *c, struct message *m)
{
        uint32_t flags = !c->decode && m->probe.answers ? PROBE_ANSWERS : 0;

        field_u32(c, &flags);
        m->probe.answers = flags & PROBE_ANSWERS;
        field_u32(c, &m->probe.padding_bytes);
        if (flags > PROBE_ANSWERS || m->probe.padding_bytes > UINT16_MAX)
                return false;
        if (c->decode)
                reader_consume(&c->r, m->probe.padding_bytes);
        else {
                void *zeros = writer_reserve(&c->w, m->probe.padding_bytes);

                if (zeros)
                        memset(zeros, 0, m->probe.padding_bytes);
        }
        return true;
}
