/* Encodes Metadata: one name and its value, in fields of fixed size. */
#include <string.h>

#include "codec.h"

static void field_text(struct codec *c, char *text, size_t size_bytes)
{
        const void *from = c->decode ? reader_take(&c->r, size_bytes) : text;
        void *to = c->decode ? text : writer_take(&c->w, size_bytes);

        if (!from || !to)
                return;
        if (c->decode)
                memcpy(to, from, size_bytes);
        else
                strncpy(to, from, size_bytes); /* zeros up to the end */
}

static bool ends(const char *text, size_t size_bytes)
{
        return memchr(text, '\0', size_bytes);
}

bool metadata_code(struct codec *c, struct message *m)
{
        struct metadata_entry *e = &m->metadata.entry;
        uint16_t reserved = 0;

        field_u16(c, &m->metadata.version);
        field_u16(c, &m->metadata.number);
        field_u16(c, &m->metadata.count);
        field_u16(c, &reserved);
        field_text(c, e->name, sizeof e->name);
        field_text(c, e->value, sizeof e->value);
        if (c->decode && c->r.failed)
                return true;
        return m->metadata.version > 0 && m->metadata.count <= METADATA_MAX &&
               m->metadata.number < (m->metadata.count > 0 ? m->metadata.count : 1) &&
               ends(e->name, sizeof e->name) && ends(e->value, sizeof e->value);
}
