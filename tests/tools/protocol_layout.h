/* Prints a message and its fields as JSON, for protocol_layout.c. */
#pragma once

#include <stdio.h>
#include <string.h>

#include "protocol/message.h"

static const char *part_now;
static int n_fields;

static void begin(const char *name, uint32_t type)
{
        printf("%s\"%s\": {\"type\": %u, \"fields\": [", n_fields ? ",\n" : "", name, type);
        n_fields = 0;
        part_now = "body";
}

static void field(const char *name, uint64_t value, unsigned size)
{
        printf("%s[\"%s\", \"%s\", %llu, %u]", n_fields++ ? ", " : "", part_now, name,
               (unsigned long long)value, size);
}

static void end(const uint8_t *bytes, size_t n)
{
        printf("], \"bytes\": \"");
        for (size_t i = 0; i < n; i++)
                printf("%02x", bytes[i]);
        printf("\"}");
        n_fields = 1;
}

static void end_message(const struct message *m)
{
        uint8_t bytes[4096];
        size_t n = message_encode(m, bytes, sizeof bytes);

        end(bytes, n);
}

#define SET(target, name, number)                                                                            \
        do {                                                                                                 \
                (target).name = (__typeof__((target).name))(number);                                         \
                field(#name, (uint64_t)(target).name, sizeof(target).name);                                  \
        } while (0)

static struct message m;

static struct message *blank(uint32_t type, size_t n)
{
        memset(&m, 0, sizeof m);
        m.header = (struct message_header){.cookie = 0x0102030405060708,
                                           .sender_role = ROLE_SFI,
                                           .sender_index = 5,
                                           .type = type,
                                           .transaction = 0x06070809};
        m.n = n;
        return &m;
}

/* The incarnation of the DFM, which most messages contain. */
static void dfm(void)
{
        SET(m, dfm, 0xd1d2d3d4d5d6d7d8);
}

static void begin_dfm(const char *name, uint32_t type, size_t n)
{
        begin(name, type);
        blank(type, n);
        dfm();
}

static void entries(unsigned size)
{
        field("entries", m.n, size);
}

/* The first 8 bytes of a text. */
static void text(const char *name, char *to, size_t size_bytes)
{
        uint64_t first;

        memcpy(to, "\x41\x42\x43\x44\x45\x46\x47\x48", 8);
        memcpy(&first, to, sizeof first);
        field(name, first, (unsigned)size_bytes);
}
